/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One parser a type: text -> normal form and number, or a reason that says what would be right. Pure
 * functions of a row and a text; the language profiles use them with rows of their own.
 *
 * Normal form: what is written back to a file and compared on reload. Lists are "a,b", booleans yes/no,
 * numbers as they were written.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>

#include "cfg/cfg_table.h"
#include "cfg/suggest.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"

#define LIST_MAX 64        /* items in a CFG_MANY value */
#define ADDRESSES_MAX 3000 /* bytes of a CFG_ADDRESS value; fits a line of a file */

struct unit {
	const char *name;
	int64_t factor;
};

static const struct unit durations[] = {
	{"ms", INT64_C(1000)},
	{"s", INT64_C(1000000)},
	{"m", INT64_C(60000000)},
	{"h", INT64_C(3600000000)},
};

static const struct unit sizes[] = {
	{"B", 1},
	{"KiB", INT64_C(1) << 10},
	{"MiB", INT64_C(1) << 20},
	{"GiB", INT64_C(1) << 30},
	{"TiB", INT64_C(1) << 40},
};

/* What durations and sizes have in common: a number and a unit. */
struct measure {
	const char *noun;
	const char *units; /* for people */
	const struct unit *table;
	size_t n;
	const char *often[2]; /* the units to offer when none was written */
};

static const struct measure measures[] = {
	[CFG_DURATION] = {"a duration", "ms, s, m or h", durations, ARRAY_SIZE(durations),
		{"s", "ms"}},
	[CFG_BYTES] = {"a size", "B, KiB, MiB, GiB or TiB", sizes, ARRAY_SIZE(sizes),
		{"KiB", "MiB"}},
};

static bool refuse(struct buf *why, struct str text, const char *rest)
{
	char quoted[LOG_QUOTE_MAX];

	buf_addf(why, "%s %s", log_quote(text, quoted), rest);
	return false;
}

/* The number with the largest unit that divides it: 90000000 -> "90s". */
static void write_scaled(struct buf *out, const struct measure *measure, int64_t number)
{
	const struct unit *best = NULL;

	for (size_t i = 0; number != 0 && i < measure->n; i++) {
		if (number % measure->table[i].factor == 0)
			best = &measure->table[i];
	}
	buf_addf(out, "%" PRId64 "%s", best ? number / best->factor : number,
		best ? best->name : "");
}

static void range_of_numbers(struct buf *out, const struct cfg_row *row)
{
	buf_addf(out, "%" PRId64 " to %" PRId64, row->min, row->max);
	if (row->unit[0])
		buf_addf(out, " %s", row->unit);
}

static void range_of_measures(struct buf *out, const struct cfg_row *row)
{
	write_scaled(out, &measures[row->type], row->min);
	buf_add_str(out, STR(" to "));
	write_scaled(out, &measures[row->type], row->max);
}

static void range_of_strings(struct buf *out, const struct cfg_row *row)
{
	buf_addf(out, "%s, %" PRId64 " to %" PRId64 " bytes", row->unit[0] ? row->unit : "text",
		row->min, row->max);
}

static void range_of_bools(struct buf *out, const struct cfg_row *row unused)
{
	buf_add_str(out, STR("yes or no"));
}

static void range_of_choices(struct buf *out, const struct cfg_row *row)
{
	struct str rest = str_from(row->unit), word;

	for (bool first = true; str_cut(&rest, '|', &word); first = false) {
		if (!first)
			buf_add_str(out, rest.p ? STR(", ") : STR(" or "));
		buf_add_str(out, word);
	}
}

static void range_of_addresses(struct buf *out, const struct cfg_row *row)
{
	buf_add_str(out, row->flags & CFG_MANY ? STR("IP:PORT or [IPV6]:PORT, several by comma")
					       : STR("IP:PORT or [IPV6]:PORT"));
}

void cfg_value_range(struct buf *out, const struct cfg_row *row)
{
	static void (*const writers[])(struct buf *, const struct cfg_row *) = {
		[CFG_STRING] = range_of_strings,
		[CFG_INT] = range_of_numbers,
		[CFG_BOOL] = range_of_bools,
		[CFG_DURATION] = range_of_measures,
		[CFG_BYTES] = range_of_measures,
		[CFG_ADDRESS] = range_of_addresses,
		[CFG_CHOICE] = range_of_choices,
	};

	writers[row->type](out, row);
}

static bool refuse_range(const struct cfg_row *row, struct str text, struct buf *why)
{
	refuse(why, text, "is out of range: ");
	cfg_value_range(why, row);
	return false;
}

static bool take(struct cfg_value *out, struct str text, int64_t number)
{
	*out = (struct cfg_value){.text = mem_dup(text.p, text.n), .number = number};
	return true;
}

static bool take_number(const struct cfg_row *row, struct str text, int64_t number,
	struct cfg_value *out, struct buf *why)
{
	if (number < row->min || number > row->max)
		return refuse_range(row, text, why);
	return take(out, text, number);
}

static bool is_digits(struct str s)
{
	for (size_t i = 0; i < s.n; i++) {
		if (!isdigit((unsigned char)s.p[i]))
			return false;
	}
	return s.n > 0;
}

/* "a , b" -> "a,b" into out, every item checked; an empty value is an empty list. */
static bool parse_list(const struct cfg_row *row, struct str text,
	bool (*check)(const struct cfg_row *, struct str, struct buf *), struct buf *out,
	struct buf *why)
{
	struct str rest = str_trim(text), item, other;
	size_t n = 0;

	if (rest.n == 0)
		return true;
	while (str_cut(&rest, ',', &item)) {
		struct str before = buf_str(out);

		item = str_trim(item);
		if (item.n == 0)
			return refuse(why, text, "has an empty item between its commas");
		if (++n > LIST_MAX)
			return refuse(why, text, "lists more than 64 items");
		if (check && !check(row, item, why))
			return false;
		while (before.n > 0 && str_cut(&before, ',', &other)) {
			if (str_eq(item, other))
				return refuse(why, item, "is listed twice");
		}
		if (n > 1)
			buf_add_char(out, ',');
		buf_add_str(out, item);
	}
	return true;
}

static bool parse_string(
	const struct cfg_row *row, struct str text, struct cfg_value *out, struct buf *why)
{
	struct buf list cleanup(buf_fini) = BUF_INIT;

	for (size_t i = 0; i < text.n; i++) {
		unsigned char c = (unsigned char)text.p[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f)
			return refuse(why, text, "holds a control character");
	}
	if (row->flags & CFG_MANY) {
		if (!parse_list(row, text, NULL, &list, why))
			return false;
		text = buf_str(&list);
	}
	if ((int64_t)text.n < row->min || (int64_t)text.n > row->max) {
		refuse(why, text, "");
		buf_addf(why, "is %zu bytes long: %" PRId64 " to %" PRId64 " are allowed", text.n,
			row->min, row->max);
		return false;
	}
	return take(out, text, 0);
}

static bool parse_int(
	const struct cfg_row *row, struct str text, struct cfg_value *out, struct buf *why)
{
	int64_t number;

	text = str_trim(text);
	if (str_to_i64(text, &number))
		return take_number(row, text, number, out, why);
	if (is_digits(text)) /* a number all the same, only too large for us */
		return refuse_range(row, text, why);
	refuse(why, text, "is not a number: write ");
	cfg_value_range(why, row);
	return false;
}

static bool parse_bool(
	const struct cfg_row *row unused, struct str text, struct cfg_value *out, struct buf *why)
{
	static const char *const words[] = {"no", "yes", "false", "true", "off", "on"};

	text = str_trim(text);
	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (str_is(text, words[i]))
			return take(out, i % 2 ? STR("yes") : STR("no"), i % 2);
	}
	return refuse(
		why, text, "is neither yes nor no (true, false, on and off are understood too)");
}

/* The unit that was probably meant by "MB", "sec" or "minutes"; NULL when there is no telling. */
static const struct unit *guess_unit(const struct measure *measure, struct str written)
{
	const struct unit *best = NULL;

	for (size_t i = 0; written.n > 0 && i < measure->n; i++) {
		const struct unit *unit = &measure->table[i];
		size_t n = strlen(unit->name);

		if (n <= written.n && memcmp(unit->name, written.p, n) == 0 &&
			(!best || n > strlen(best->name)))
			best = unit;
	}
	for (size_t i = 0; written.n > 0 && !best && i < measure->n; i++) {
		if (tolower((unsigned char)measure->table[i].name[0]) ==
			tolower((unsigned char)written.p[0]))
			best = &measure->table[i];
	}
	return best;
}

static bool refuse_unit(
	const struct measure *measure, struct str text, struct str digits, struct buf *why)
{
	struct str written = str_trim((struct str){text.p + digits.n, text.n - digits.n});
	const struct unit *guess = guess_unit(measure, written);

	refuse(why, text, "is not ");
	if (digits.n == 0 || digits.n > 18 ||
		(written.n > 0 && !isalpha((unsigned char)written.p[0])))
		buf_addf(why, "%s: write a whole number and a unit (%s)", measure->noun,
			measure->units);
	else if (guess)
		buf_addf(why, "%s: write " STR_FMT "%s", measure->noun, STR_ARG(digits),
			guess->name);
	else if (written.n == 0)
		buf_addf(why, "%s: write " STR_FMT "%s or " STR_FMT "%s", measure->noun,
			STR_ARG(digits), measure->often[0], STR_ARG(digits), measure->often[1]);
	else
		buf_addf(why, "%s: write " STR_FMT " and a unit (%s)", measure->noun,
			STR_ARG(digits), measure->units);
	return false;
}

static bool parse_measure(
	const struct cfg_row *row, struct str text, struct cfg_value *out, struct buf *why)
{
	const struct measure *measure = &measures[row->type];
	const struct unit *unit = NULL;
	struct str digits;
	int64_t number = 0;

	text = str_trim(text);
	digits = (struct str){text.p, 0};
	while (digits.n < text.n && isdigit((unsigned char)text.p[digits.n]))
		digits.n++;
	for (size_t i = 0; i < measure->n; i++) {
		if (str_is((struct str){text.p + digits.n, text.n - digits.n},
			    measure->table[i].name))
			unit = &measure->table[i];
	}
	if (digits.n > 0 && unit &&
		(!str_to_i64(digits, &number) ||
			__builtin_mul_overflow(number, unit->factor, &number)))
		return refuse_range(row, text, why);
	if (!unit && !(digits.n == text.n && str_to_i64(digits, &number) && number == 0))
		return refuse_unit(measure, text, digits, why);
	if (digits.n == 0)
		return refuse_unit(measure, text, digits, why);
	return take_number(row, text, number, out, why);
}

static bool is_ip(struct str host, int family)
{
	unsigned char parsed[sizeof(struct in6_addr)];
	char text[INET6_ADDRSTRLEN];

	if (host.n >= sizeof text)
		return false;
	memcpy(text, host.p, host.n);
	text[host.n] = '\0';
	return inet_pton(family, text, parsed) == 1;
}

static bool check_address(const struct cfg_row *row, struct str item, struct buf *why)
{
	struct str host = item, port;
	int64_t number;

	while (host.n > 0 && host.p[host.n - 1] != ':')
		host.n--;
	if (host.n == 0)
		return refuse(why, item, "has no port: write 127.0.0.1:4000 or [::1]:4000");
	port = (struct str){item.p + host.n, item.n - host.n};
	host.n--;
	if (!is_digits(port) || !str_to_i64(port, &number) || number < row->min || number > 65535) {
		refuse(why, item, "has no good port: ");
		buf_addf(why, "%" PRId64 " to 65535", row->min);
		return false;
	}
	if (host.n >= 2 && host.p[0] == '[' && host.p[host.n - 1] == ']') {
		if (is_ip((struct str){host.p + 1, host.n - 2}, AF_INET6))
			return true;
	} else if (is_ip(host, AF_INET)) {
		return true;
	}
	return refuse(why, item, "is not an address: write IP:PORT or [IPV6]:PORT, no host names");
}

static bool parse_address(
	const struct cfg_row *row, struct str text, struct cfg_value *out, struct buf *why)
{
	struct buf list cleanup(buf_fini) = BUF_INIT;

	text = str_trim(text);
	if (text.n == 0 && !row->def[0])
		return take(out, text, 0);
	if (text.n == 0) {
		buf_add_str(why, STR("is empty: write "));
		cfg_value_range(why, row);
		return false;
	}
	if (text.n > ADDRESSES_MAX)
		return refuse(why, text, "is too long a list");
	if (!(row->flags & CFG_MANY))
		return check_address(row, text, why) && take(out, text, 0);
	return parse_list(row, text, check_address, &list, why) && take(out, buf_str(&list), 0);
}

static bool parse_choice(
	const struct cfg_row *row, struct str text, struct cfg_value *out, struct buf *why)
{
	struct str rest = str_from(row->unit), word;
	struct suggest near;

	text = str_trim(text);
	suggest_init(&near, text);
	while (str_cut(&rest, '|', &word)) {
		if (str_eq(word, text))
			return take(out, text, 0);
		suggest_offer(&near, word, word.p);
	}
	refuse(why, text, "is not a choice: write ");
	const char *best = suggest_best(&near);

	if (best)
		buf_addf(why, "%.*s (one of ", (int)strcspn(best, "|"), best);
	cfg_value_range(why, row);
	if (best)
		buf_add_char(why, ')');
	return false;
}

bool cfg_value_parse(
	const struct cfg_row *row, struct str text, struct cfg_value *out, struct buf *why)
{
	static bool (*const parsers[])(
		const struct cfg_row *, struct str, struct cfg_value *, struct buf *) = {
		[CFG_STRING] = parse_string,
		[CFG_INT] = parse_int,
		[CFG_BOOL] = parse_bool,
		[CFG_DURATION] = parse_measure,
		[CFG_BYTES] = parse_measure,
		[CFG_ADDRESS] = parse_address,
		[CFG_CHOICE] = parse_choice,
	};

	if (!(row->flags & CFG_SECRET))
		return parsers[row->type](row, text, out, why);

	struct buf hidden cleanup(buf_fini) = BUF_INIT; /* reasons quote the value: drop it */

	if (parsers[row->type](row, text, out, &hidden))
		return true;
	buf_add_str(why, STR("the value (not shown, it is a secret) is wrong: write "));
	cfg_value_range(why, row);
	return false;
}

void cfg_value_fini(struct cfg_value *value)
{
	free(value->text);
	value->text = NULL;
}

void cfg_value_write(struct buf *out, const char *value)
{
	size_t n = strlen(value);
	bool quotes = n > 0 && (strchr(" \t\"", value[0]) || strchr(" \t", value[n - 1]));

	for (size_t i = 0; i < n; i++) {
		if ((value[i] == ';' || value[i] == '#') && (i == 0 || strchr(" \t", value[i - 1])))
			quotes = true;
	}
	buf_addf(out, quotes ? "\"%s\"" : "%s", value);
}
