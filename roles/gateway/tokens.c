/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens - the file of gateway.tokens as a table, and the bucket of each token.
 *
 * A line is cut into words: three by position, the rest options by name, each with a row that reads it. All problems of a file
 * are told at once. A token never comes near a log: the file does not hold it, and what a client sends is hashed before it is compared.
 *
 * Comparing: the digest of what was sent against that of every token, in constant time and to the end of the table, so nothing can be
 * learnt from how long it took. The digest needs no salt: tokens are random, not words that somebody chose (README.md says how
 * to make one).
 *
 * The bucket is one number, the time at which it would be full again: a request moves it by rate_us / rate_n, and
 * is refused when that would be further away than rate_us. So rate_n requests may come at once after a pause. It lies in memory
 * that all workers share (shared.c), hence the atomic exchange.
 */
/* First: OpenSSL has a parameter that is called `unused`, which is an attribute with us. */
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "roles/gateway/tokens.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cfg/cfg.h"
#include "reactor/base/clock.h"
#include "reactor/base/mem.h"

#define PLACE_MAX 512

struct line {
	struct token *token;
	const char *place;
	struct cfg_errors *errors;
};

/* --- words ------------------------------------------------------------------------------------------------------- */

static bool word_cut(struct str *rest, struct str *word)
{
	*rest = str_trim(*rest);
	if (!rest->n || rest->p[0] == '#')
		return false;
	word->p = rest->p;
	word->n = 0;
	while (word->n < rest->n && !memchr(" \t\r", rest->p[word->n], 3))
		word->n++;
	*rest = (struct str){rest->p + word->n, rest->n - word->n};
	return true;
}

static bool is_name(struct str s)
{
	static const char marks[] = "._@-";

	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
			!memchr(marks, c, sizeof(marks) - 1))
			return false;
	}
	return s.n >= 1 && s.n <= TOKEN_NAME_MAX;
}

static bool take_name(struct str word, char out[TOKEN_NAME_MAX + 1])
{
	if (!is_name(word))
		return false;
	memcpy(out, word.p, word.n);
	out[word.n] = '\0';
	return true;
}

static unsigned role_of(struct str word)
{
	static const struct {
		const char *name;
		unsigned role;
	} rows[] = {{"admin", TOKEN_ADMIN}, {"read", TOKEN_READ}, {"submit", TOKEN_SUBMIT}};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (str_is(word, rows[i].name))
			return rows[i].role;
	}
	return 0;
}

static bool read_roles(struct token *token, struct str word)
{
	struct str role;

	while (str_cut(&word, ',', &role)) {
		if (!role_of(role))
			return false;
		token->roles |= role_of(role);
	}
	return token->roles != 0;
}

static int hex_digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = memchr(digits, c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c, 16);

	return at ? (int)(at - digits) : -1;
}

static bool read_digest(struct token *token, struct str word)
{
	if (word.n != 2 * TOKEN_DIGEST)
		return false;
	for (size_t i = 0; i < TOKEN_DIGEST; i++) {
		int high = hex_digit(word.p[2 * i]), low = hex_digit(word.p[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		token->digest[i] = (unsigned char)(high << 4 | low);
	}
	return true;
}

/* --- options ------------------------------------------------------------------------------------------------------- */

static bool read_rate(struct token *token, struct str value)
{
	static const struct {
		const char *name;
		int64_t us;
	} units[] = {{"s", US_PER_S}, {"m", 60 * US_PER_S}, {"h", 3600 * US_PER_S}};
	struct str n;

	if (!str_cut(&value, '/', &n) || !str_to_i64(n, &token->rate_n) || token->rate_n < 1 ||
		token->rate_n > TOKEN_RATE_MAX)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (value.p && str_is(value, units[i].name))
			token->rate_us = units[i].us;
	}
	return token->rate_us != 0;
}

static bool read_open(struct token *token, struct str value)
{
	return str_to_i64(value, &token->open_max) && token->open_max >= 1 &&
	       token->open_max <= TOKEN_OPEN_MAX;
}

static bool read_user(struct token *token, struct str value)
{
	return take_name(value, token->user);
}

static const struct option_row {
	const char *name;
	bool (*read)(struct token *token, struct str value);
	const char *right;
} option_rows[] = {
	{"open", read_open, "open=N, 1 to 1000"},
	{"rate", read_rate, "rate=N/s, N/m or N/h, N 1 to 1000000"},
	{"user", read_user, "user=NAME, 1 to 64 of A-Z a-z 0-9 . _ @ -"},
};

static void read_option(const struct line *line, struct str word, unsigned *seen)
{
	struct str value = word, name;

	str_cut(&value, '=', &name);
	for (size_t i = 0; i < ARRAY_SIZE(option_rows); i++) {
		if (!str_is(name, option_rows[i].name))
			continue;
		if (*seen & 1u << i)
			cfg_errors_add(line->errors, line->place, "%s is given twice",
				option_rows[i].name);
		else if (!value.p || !option_rows[i].read(line->token, value))
			cfg_errors_add(
				line->errors, line->place, "expected %s", option_rows[i].right);
		*seen |= 1u << i;
		return;
	}
	cfg_errors_add(line->errors, line->place,
		"expected rate=N/s, open=N or user=NAME behind the digest");
}

/* --- a line, a file -------------------------------------------------------------------------------------------------- */

/* What a line says is never repeated in a message: somebody may have written the token itself there. */
static const struct word_row {
	bool (*read)(struct token *token, struct str word);
	const char *right;
} word_rows[] = {
	{read_roles,
		"expected the roles behind the name: submit, read, admin, with commas between"},
	{read_digest, "expected the token's SHA-256 behind the roles: 64 hexadecimal digits"},
};

static void read_line(const struct line *line, struct str name, struct str rest)
{
	unsigned seen = 0;
	struct str word;

	if (!take_name(name, line->token->name))
		cfg_errors_add(line->errors, line->place,
			"expected a name first: 1 to 64 of A-Z a-z 0-9 . _ @ -");
	for (size_t i = 0; i < ARRAY_SIZE(word_rows); i++) {
		if (!word_cut(&rest, &word) || !word_rows[i].read(line->token, word)) {
			cfg_errors_add(line->errors, line->place, "%s", word_rows[i].right);
			return;
		}
	}
	while (word_cut(&rest, &word))
		read_option(line, word, &seen);
	if (!line->token->user[0])
		memcpy(line->token->user, line->token->name, sizeof(line->token->user));
}

static void check_twice(const struct tokens *tokens, const struct line *line)
{
	static const unsigned char none[TOKEN_DIGEST];
	const struct token *t = line->token;

	for (unsigned i = 0; i < tokens->n; i++) {
		if (t->name[0] && !strcmp(t->name, tokens->items[i].name))
			cfg_errors_add(line->errors, line->place, "the name %s is taken", t->name);
		if (memcmp(t->digest, none, TOKEN_DIGEST) != 0 &&
			!memcmp(t->digest, tokens->items[i].digest, TOKEN_DIGEST))
			cfg_errors_add(line->errors, line->place,
				"%s has this digest already: each needs a token of its own",
				tokens->items[i].name);
	}
}

void tokens_parse(struct str text, const char *path, struct tokens *out, struct cfg_errors *errors)
{
	struct str rest = text, row, name;
	char place[PLACE_MAX];

	*out = (struct tokens){0};
	for (unsigned n = 1; str_cut(&rest, '\n', &row); n++) {
		struct token token = {.name = ""};
		struct line line = {&token, place, errors};

		if (!word_cut(&row, &name))
			continue;
		snprintf(place, sizeof(place), "%s:%u", path, n);
		if (out->n == TOKENS_MAX) {
			cfg_errors_add(errors, place, "more than %d tokens", TOKENS_MAX);
			return;
		}
		read_line(&line, name, row);
		check_twice(out, &line);
		out->items = mem_resize(out->items, (out->n + 1) * sizeof(token));
		out->items[out->n++] = token;
	}
	if (!out->n)
		cfg_errors_add(errors, path, "has no token: nobody could come in");
}

/* Why the file is not to be trusted, or NULL. */
static const char *file_problem(int fd, unsigned owner)
{
	struct stat st;

	if (fstat(fd, &st))
		return strerror(errno);
	if (!S_ISREG(st.st_mode))
		return "is no regular file";
	if (st.st_mode & 077)
		return "others may read or write it: chmod 600";
	if (st.st_uid != 0 && st.st_uid != owner && st.st_uid != geteuid())
		return "must be owned by root or boot.user";
	if (st.st_size > TOKENS_FILE_MAX)
		return "is larger than 1 MiB";
	return NULL;
}

static int read_file(int fd, struct buf *out)
{
	while (out->len <= TOKENS_FILE_MAX) {
		ssize_t n = read(fd, buf_reserve(out, 65536), 65536);

		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		out->len += (size_t)n;
	}
	return -EFBIG;
}

void tokens_load(const char *path, unsigned owner, struct tokens *out, struct cfg_errors *errors)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), r;
	const char *why;

	*out = (struct tokens){0};
	if (fd < 0) {
		cfg_errors_add(errors, path, "%s%s", strerror(errno),
			errno == EACCES ? " (SIGHUP reads it as boot.user, who must own it)" : "");
		return;
	}
	why = file_problem(fd, owner);
	if (!why && (r = read_file(fd, &text)) != 0)
		why = strerror(-r);
	close(fd);
	if (why)
		cfg_errors_add(errors, path, "%s", why);
	else
		tokens_parse(buf_str(&text), path, out, errors);
}

void tokens_fini(struct tokens *tokens)
{
	free(tokens->items);
	*tokens = (struct tokens){0};
}

/* --- use -------------------------------------------------------------------------------------------------------------- */

const struct token *tokens_find(const struct tokens *tokens, struct str secret)
{
	unsigned char digest[SHA256_DIGEST_LENGTH];
	const struct token *found = NULL;

	SHA256((const unsigned char *)secret.p, secret.n, digest);
	for (unsigned i = 0; i < tokens->n; i++) {
		if (!CRYPTO_memcmp(digest, tokens->items[i].digest, TOKEN_DIGEST))
			found = &tokens->items[i];
	}
	return found;
}

int64_t token_charge(const struct token *token, int64_t *full_at_us, int64_t now_us)
{
	int64_t before_us = __atomic_load_n(full_at_us, __ATOMIC_RELAXED), at_us;

	if (!token->rate_n)
		return 0;
	do {
		at_us = before_us > now_us ? before_us : now_us;
		/* It never is further away, unless the token had a slower rate before. */
		if (at_us > now_us + token->rate_us)
			at_us = now_us + token->rate_us;
		at_us += token->rate_us / token->rate_n;
		if (at_us > now_us + token->rate_us)
			return at_us - now_us - token->rate_us;
	} while (!__atomic_compare_exchange_n(
		full_at_us, &before_us, at_us, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return 0;
}
