/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inih keeps the section and splits lines; this file is the reader in front of it, and the only one that
 * includes <ini.h>. As packaged, inih cuts lines at 200 bytes without a word and then miscounts them,
 * takes " ;" inside a value for a comment, makes an indented line a second value of the key above, does
 * not tell the handler the line, and reports only the first bad line. Its settings are writable
 * globals, which we leave alone. So:
 *
 *   text -> read_line(): counts, refuses, keeps the value -> "[section]\n" or "key=\n" -> inih
 *                                                                                          |
 *   on_entry(section, key, value, line)  <- on_key(): takes the kept value  <--------------+
 *
 * What inih sees is therefore never longer than a name, never indented and never has a comment. One line in
 * is one line out, so its count and ours are the same.
 */
#include "cfg/ini_text.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reactor/base/log.h"
#include "reactor/base/mem.h"

struct ini_source {
	struct str rest;  /* text not read yet */
	unsigned line;    /* of what was read last; 1 is the first */
	struct str value; /* of the key on that line */
	bool lost;        /* the last header was refused: whose keys are these? skip them */
	const char *name; /* of the text */
	struct buf place;
	ini_entry_fn *on_entry;
	void *arg;
	struct cfg_errors *errors;
};

static bool is_name(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
			    c == '_' || c == '.' || c == '-'))
			return false;
	}
	return s.n > 0 && s.n <= INI_NAME_MAX;
}

static bool has_control(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		unsigned char c = (unsigned char)s.p[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return true;
	}
	return false;
}

/* A value that starts like a comment, or has one behind it: ' ;' or ' #'. */
static bool has_comment(struct str value)
{
	for (size_t i = 0; i < value.n; i++) {
		bool starts = i == 0 || value.p[i - 1] == ' ' || value.p[i - 1] == '\t';

		if (starts && (value.p[i] == ';' || value.p[i] == '#'))
			return true;
	}
	return false;
}

static bool is_quoted(struct str value)
{
	return value.n >= 2 && value.p[0] == '"' && value.p[value.n - 1] == '"';
}

/* The one way out of read_line(): what inih gets. All of it fits: names are short. */
static void hand_over(char *out, int size, const char *before, struct str name, const char *after)
{
	int n = snprintf(out, (size_t)size, "%s" STR_FMT "%s\n", before, STR_ARG(name), after);

	CHECK(n > 0 && n < size);
}

static void refuse(struct ini_source *source, const char *why)
{
	cfg_errors_add(source->errors, source->place.data, "%s", why);
}

static void read_header(struct ini_source *source, struct str line, char *out, int size)
{
	struct str name = str_trim((struct str){line.p + 1, line.n - 1});
	char quoted[LOG_QUOTE_MAX];

	if (name.n == 0 || name.p[name.n - 1] != ']') {
		source->lost = true;
		refuse(source, "a section is [name] with nothing behind the bracket");
		return;
	}
	name.n--;
	name = str_trim(name);
	if (!is_name(name)) {
		source->lost = true;
		cfg_errors_add(source->errors, source->place.data,
			"%s is not a section name: 1 to %d letters, digits, _ . or -",
			log_quote(name, quoted), INI_NAME_MAX);
		return;
	}
	source->lost = false;
	hand_over(out, size, "[", name, "]");

	char *section cleanup(mem_freep) = str_dup(name);
	struct ini_entry entry = {
		.section = section,
		.line = source->line,
		.place = source->place.data,
	};

	source->on_entry(source->arg, &entry);
}

static void read_key(struct ini_source *source, struct str line, char *out, int size)
{
	char quoted[LOG_QUOTE_MAX];
	size_t at = 0;

	while (at < line.n && line.p[at] != '=' && line.p[at] != ':')
		at++;
	if (at == line.n) {
		cfg_errors_add(source->errors, source->place.data,
			"%s is neither [section] nor key = value nor a comment",
			log_quote(line, quoted));
		return;
	}
	struct str name = str_trim((struct str){line.p, at});
	struct str value = str_trim((struct str){line.p + at + 1, line.n - at - 1});

	if (!is_name(name)) {
		cfg_errors_add(source->errors, source->place.data,
			"%s is not a key: 1 to %d letters, digits, _ . or -",
			log_quote(name, quoted), INI_NAME_MAX);
		return;
	}
	if (is_quoted(value)) {
		value = (struct str){value.p + 1, value.n - 2};
	} else if (has_comment(value)) {
		refuse(source,
			"a comment stands on its own line; if ; or # belongs to the value, put "
			"the value in double quotes");
		return;
	}
	source->value = value;
	hand_over(out, size, "", name, "=");
}

static void set_place(struct ini_source *source)
{
	buf_clear(&source->place);
	buf_addf(&source->place, "%s:%u", source->name, source->line);
}

/* inih's fgets(): one line of ours, or NULL at the end. */
static char *read_line(char *out, int size, void *stream)
{
	struct ini_source *source = stream;
	struct str line;

	if (source->rest.n == 0 || !str_cut(&source->rest, '\n', &line))
		return NULL;
	source->line++;
	set_place(source);
	hand_over(out, size, "", STR(""), ""); /* what is refused reads as an empty line */
	if (source->line == 1 && line.n >= 3 && memcmp(line.p, "\xEF\xBB\xBF", 3) == 0)
		line = (struct str){line.p + 3, line.n - 3};
	if (line.n > INI_LINE_MAX) {
		cfg_errors_add(source->errors, source->place.data,
			"the line is %zu bytes long: at most %d are read", line.n, INI_LINE_MAX);
		return out;
	}
	line = str_trim(line);
	if (has_control(line))
		refuse(source, "the line holds a control character");
	else if (line.n > 0 && line.p[0] == '[')
		read_header(source, line, out, size);
	else if (line.n > 0 && line.p[0] != ';' && line.p[0] != '#')
		read_key(source, line, out, size);
	return out;
}

/* inih's handler: section and name are its, the value is the one read_line() kept. */
static int on_key(void *arg, const char *section, const char *name, const char *value unused)
{
	struct ini_source *source = arg;
	struct ini_entry entry = {
		.section = section,
		.key = name,
		.value = source->value,
		.line = source->line,
		.place = source->place.data,
	};

	if (source->lost)
		return 1;
	if (!section[0])
		cfg_errors_add(source->errors, source->place.data,
			"%s stands before the first [section]", name);
	else
		source->on_entry(source->arg, &entry);
	return 1;
}

void ini_text_parse(struct str text, const char *place, ini_entry_fn *on_entry, void *arg,
	struct cfg_errors *errors)
{
	struct ini_source source = {
		.rest = text,
		.name = place,
		.place = BUF_INIT,
		.on_entry = on_entry,
		.arg = arg,
		.errors = errors,
	};
	int bad = ini_parse_stream(read_line, &source, on_key, &source);

	buf_fini(&source.place);
	CHECK(bad == 0); /* the reader lets nothing through that inih would refuse */
}

static int read_all(int fd, size_t max, struct buf *out)
{
	for (;;) {
		size_t room = max + 1 - out->len;
		ssize_t n = read(
			fd, buf_reserve(out, room < 8192 ? room : 8192), room < 8192 ? room : 8192);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		out->len += (size_t)n;
		if (out->len > max)
			return -EFBIG;
	}
}

bool ini_text_read(const char *path, size_t max, struct buf *out, struct cfg_errors *errors)
{
	/* Non-blocking: a FIFO in the file's place must be refused, not waited for. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	int error = 0;

	if (fd < 0 || fstat(fd, &st) < 0) {
		error = -errno;
	} else if (!S_ISREG(st.st_mode)) {
		cfg_errors_add(errors, path, "is not a regular file");
		close(fd);
		return false;
	} else {
		error = read_all(fd, max, out);
	}
	if (fd >= 0)
		close(fd);
	if (error == -EFBIG)
		cfg_errors_add(errors, path, "is larger than %zu bytes", max);
	else if (error < 0)
		cfg_errors_add(errors, path, "cannot be read: %s", strerror(-error));
	return error == 0;
}
