/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile is read in two steps: every line goes through the row of its section and key, which checks and
 * stores it; then, when the text is over, what must be there is asked for. A struct language is
 * therefore either complete or not given out. Lines may be in any order; only argv repeats.
 *
 * Numbers are checked by the option parsers (cfg_value_parse) with rows of their own, so "64MB" is
 * refused here in the same words as in a configuration file.
 */
#include "cfg/language.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>

#include "cfg/cfg_table.h"
#include "cfg/ini_text.h"
#include "cfg/suggest.h"
#include "reactor/base/log.h"
#include "reactor/base/mem.h"

#define PROFILE_MAX (64 * 1024) /* bytes of a file */
#define PROFILES_MAX 256        /* of a directory */
#define TITLE_MAX 100
#define GIB (INT64_C(1) << 30)

struct profile; /* a language being read */
struct profile_key {
	const char *section;
	const char *key;
	void (*store)(struct profile *, const struct profile_key *, const struct ini_entry *);
	size_t offset;      /* of the field of struct language */
	struct cfg_row row; /* of numbers */
	bool repeats;
};

struct profile {
	struct language *language;
	struct cfg_errors *errors;
	bool unknown_section;
	unsigned lines[16]; /* where each row of profile_keys was set */
};

static char ***list_at(struct profile *profile, const struct profile_key *key)
{
	return (char ***)((char *)profile->language + key->offset);
}

static size_t list_length(char **list)
{
	size_t n = 0;

	while (list && list[n])
		n++;
	return n;
}

/* Takes item over; false (and item freed) when the list is full. */
static bool list_add(char ***list, char *item)
{
	size_t n = list_length(*list);

	if (n == LANGUAGE_ARGV_MAX) {
		free(item);
		return false;
	}
	*list = mem_resize(*list, (n + 2) * sizeof **list);
	(*list)[n] = item;
	(*list)[n + 1] = NULL;
	return true;
}

static bool is_made_of(struct str s, const char *more, size_t max)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c && strchr(more, c))))
			return false;
	}
	return s.n > 0 && s.n <= max;
}

#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

static void store_title(struct profile *profile, const struct profile_key *key unused,
	const struct ini_entry *entry)
{
	if (entry->value.n == 0 || entry->value.n > TITLE_MAX || !str_is_utf8(entry->value))
		cfg_errors_add(profile->errors, entry->place,
			"a title is 1 to %d bytes of UTF-8 text", TITLE_MAX);
	else
		profile->language->title = str_dup(entry->value);
}

static void store_source(struct profile *profile, const struct profile_key *key unused,
	const struct ini_entry *entry)
{
	char quoted[LOG_QUOTE_MAX];

	if (!is_made_of(entry->value, UPPER "._-", 64) || entry->value.p[0] == '.' ||
		entry->value.p[0] == '-')
		cfg_errors_add(profile->errors, entry->place,
			"%s is not a file name for the source: 1 to 64 letters, digits, . _ or -, "
			"the first a letter, digit or _",
			log_quote(entry->value, quoted));
	else
		profile->language->source = str_dup(entry->value);
}

static void store_extensions(
	struct profile *profile, const struct profile_key *key, const struct ini_entry *entry)
{
	struct str rest = entry->value, word;
	char quoted[LOG_QUOTE_MAX];

	while (str_cut(&rest, ' ', &word)) {
		if (word.n == 0)
			continue;
		if (!is_made_of(word, UPPER "_+-", 16))
			cfg_errors_add(profile->errors, entry->place,
				"%s is not an extension: write them without dot, blanks between",
				log_quote(word, quoted));
		else if (!list_add(list_at(profile, key), str_dup(word)))
			cfg_errors_add(profile->errors, entry->place, "more than %d extensions",
				LANGUAGE_ARGV_MAX);
	}
}

/* The next {word} at or behind *at; advances *at behind it. */
static bool next_placeholder(struct str text, size_t *at, struct str *word)
{
	for (size_t i = *at; i < text.n; i++) {
		size_t end = i + 1;

		while (text.p[i] == '{' && end < text.n &&
			((text.p[end] >= 'a' && text.p[end] <= 'z') || text.p[end] == '_'))
			end++;
		if (end == i + 1 || end == text.n || text.p[end] != '}')
			continue;
		*word = (struct str){text.p + i + 1, end - i - 1};
		*at = end + 1;
		return true;
	}
	return false;
}

static void store_argument(
	struct profile *profile, const struct profile_key *key, const struct ini_entry *entry)
{
	char ***argv = list_at(profile, key);
	struct str word;
	size_t at = 0;

	while (next_placeholder(entry->value, &at, &word)) {
		if (!str_is(word, "source") && !str_is(word, "memory_mb")) {
			cfg_errors_add(profile->errors, entry->place,
				"{" STR_FMT "} is not replaced by anything; there are {source} and "
				"{memory_mb}",
				STR_ARG(word));
			return;
		}
	}
	if (!*argv && !memchr(entry->value.p, '/', entry->value.n))
		cfg_errors_add(profile->errors, entry->place,
			"the first argument is the program: an absolute path, or ./NAME for what "
			"was compiled");
	if (!list_add(argv, str_dup(entry->value)))
		cfg_errors_add(
			profile->errors, entry->place, "more than %d arguments", LANGUAGE_ARGV_MAX);
}

static void store_number(
	struct profile *profile, const struct profile_key *key, const struct ini_entry *entry)
{
	struct buf why cleanup(buf_fini) = BUF_INIT;
	struct cfg_value value = {0};

	if (cfg_value_parse(&key->row, entry->value, &value, &why))
		*(int64_t *)((char *)profile->language + key->offset) = value.number;
	else
		cfg_errors_add(profile->errors, entry->place, "%s.%s: " STR_FMT, key->section,
			key->key, STR_ARG(buf_str(&why)));
	cfg_value_fini(&value);
}

/* "2", "1.5" or "0.25", 0.1 to 20, as a percentage. */
static bool parse_factor(struct str text, unsigned *percent)
{
	struct str part = text, whole;
	int64_t ones, hundredths = 0;

	if (memchr(text.p, '-', text.n) || !str_cut(&part, '.', &whole) ||
		!str_to_i64(whole, &ones) || ones > 20)
		return false;
	if (part.p && (part.n > 2 || !str_to_i64(part, &hundredths)))
		return false;
	if (part.n == 1)
		hundredths *= 10;
	ones = ones * 100 + hundredths;
	if (ones < 10 || ones > 2000)
		return false;
	*percent = (unsigned)ones;
	return true;
}

static void store_factor(
	struct profile *profile, const struct profile_key *key, const struct ini_entry *entry)
{
	char quoted[LOG_QUOTE_MAX];

	if (!parse_factor(entry->value, (unsigned *)((char *)profile->language + key->offset)))
		cfg_errors_add(profile->errors, entry->place,
			"%s is not a factor: write 0.1 to 20, for example 1.5",
			log_quote(entry->value, quoted));
}

/* [environment]: every key is a variable. */
static void store_variable(struct profile *profile, const struct ini_entry *entry)
{
	char ***list = &profile->language->environment;
	struct str name = str_from(entry->key);
	size_t n = list_length(*list);

	if (!is_made_of(name, UPPER "_", INI_NAME_MAX) || (name.p[0] >= '0' && name.p[0] <= '9')) {
		cfg_errors_add(profile->errors, entry->place,
			"%s is not a variable's name: letters, digits and _", entry->key);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (strncmp((*list)[i], name.p, name.n) == 0 && (*list)[i][name.n] == '=') {
			cfg_errors_add(profile->errors, entry->place,
				"environment.%s is set already, keep one", entry->key);
			return;
		}
	}
	if (!list_add(list, mem_printf("%s=" STR_FMT, entry->key, STR_ARG(entry->value))))
		cfg_errors_add(
			profile->errors, entry->place, "more than %d variables", LANGUAGE_ARGV_MAX);
}

#define FIELD(name) .offset = offsetof(struct language, name)

static const struct profile_key profile_keys[] = {
	{"compile", "argv", store_argument, FIELD(compile), .repeats = true},
	{"compile", "cpu_factor", store_factor, FIELD(compile_cpu_percent)},
	{"compile", "memory_bytes", store_number, FIELD(compile_memory_bytes),
		.row = {.type = CFG_BYTES, .min = 16 << 20, .max = 4 * GIB, .unit = ""}},
	{"language", "extensions", store_extensions, FIELD(extensions)},
	{"language", "source", store_source, FIELD(source)},
	{"language", "title", store_title, FIELD(title)},
	{"run", "argv", store_argument, FIELD(run), .repeats = true},
	{"run", "cpu_factor", store_factor, FIELD(cpu_percent)},
	{"run", "memory_extra", store_number, FIELD(run_memory_extra),
		.row = {.type = CFG_BYTES, .min = 0, .max = 4 * GIB, .unit = ""}},
	{"run", "processes", store_number, FIELD(run_processes),
		.row = {.type = CFG_INT, .min = 1, .max = 4096, .unit = "processes"}},
	{"version", "argv", store_argument, FIELD(version), .repeats = true},
};

_Static_assert(ARRAY_SIZE(profile_keys) <= ARRAY_SIZE(((struct profile *)0)->lines),
	"profile.lines has a place for each row");

static void check_header(struct profile *profile, const struct ini_entry *entry)
{
	profile->unknown_section = false;
	if (strcmp(entry->section, "environment") == 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(profile_keys); i++) {
		if (strcmp(entry->section, profile_keys[i].section) == 0)
			return;
	}
	profile->unknown_section = true;
	cfg_errors_add(profile->errors, entry->place,
		"unknown section [%s]; there are [language] [compile] [run] [version] "
		"[environment]",
		entry->section);
}

static void refuse_key(struct profile *profile, const struct ini_entry *entry)
{
	struct suggest near;
	const char *best;

	suggest_init(&near, str_from(entry->key));
	for (size_t i = 0; i < ARRAY_SIZE(profile_keys); i++) {
		if (strcmp(entry->section, profile_keys[i].section) == 0)
			suggest_offer(&near, str_from(profile_keys[i].key), profile_keys[i].key);
	}
	best = suggest_best(&near);
	cfg_errors_add(profile->errors, entry->place, "unknown key %s in [%s]%s%s%s", entry->key,
		entry->section, best ? "; did you mean " : "", best ? best : "", best ? "?" : "");
}

static void on_entry(void *arg, const struct ini_entry *entry)
{
	struct profile *profile = arg;
	size_t i = 0;

	if (!entry->key) {
		check_header(profile, entry);
		return;
	}
	if (profile->unknown_section)
		return;
	if (strcmp(entry->section, "environment") == 0) {
		store_variable(profile, entry);
		return;
	}
	while (i < ARRAY_SIZE(profile_keys) &&
		(strcmp(entry->section, profile_keys[i].section) != 0 ||
			strcmp(entry->key, profile_keys[i].key) != 0))
		i++;
	if (i == ARRAY_SIZE(profile_keys)) {
		refuse_key(profile, entry);
		return;
	}
	if (profile->lines[i] && !profile_keys[i].repeats) {
		cfg_errors_add(profile->errors, entry->place,
			"%s.%s is set again: line %u has set it already, keep one", entry->section,
			entry->key, profile->lines[i]);
		return;
	}
	profile->lines[i] = entry->line;
	profile_keys[i].store(profile, &profile_keys[i], entry);
}

static void check_complete(const struct profile *profile, const char *place)
{
	static const char *const needed[][2] = {
		{"language", "title"}, {"language", "source"}, {"run", "argv"}};

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
		for (size_t k = 0; k < ARRAY_SIZE(profile_keys); k++) {
			if (strcmp(profile_keys[k].section, needed[i][0]) == 0 &&
				strcmp(profile_keys[k].key, needed[i][1]) == 0 &&
				!profile->lines[k])
				cfg_errors_add(profile->errors, place, "[%s] needs %s",
					needed[i][0], needed[i][1]);
		}
	}
}

static bool name_is_valid(struct str name)
{
	return is_made_of(name, "_+-", 32);
}

struct language *language_parse(
	const char *name, struct str text, const char *place, struct cfg_errors *errors)
{
	struct profile profile = {.errors = errors};
	unsigned before = errors->count;
	char quoted[LOG_QUOTE_MAX];

	if (!name_is_valid(str_from(name)) || strcmp(name, "raw") == 0)
		cfg_errors_add(errors, place,
			"%s is not a language's name: 1 to 32 of a-z 0-9 _ + -, and not raw",
			log_quote(str_from(name), quoted));
	profile.language = mem_alloc(sizeof *profile.language);
	profile.language->name = mem_strdup(name);
	profile.language->cpu_percent = 100;
	profile.language->compile_cpu_percent = 100;
	profile.language->extensions = mem_array(1, sizeof(char *));
	profile.language->environment = mem_array(1, sizeof(char *));
	ini_text_parse(text, place, on_entry, &profile, errors);
	check_complete(&profile, place);
	if (errors->count == before)
		return profile.language;
	language_free(profile.language);
	return NULL;
}

void language_free(struct language *language)
{
	if (!language)
		return;
	free(language->name);
	free(language->title);
	free(language->source);
	language_argv_free(language->extensions);
	language_argv_free(language->compile);
	language_argv_free(language->run);
	language_argv_free(language->version);
	language_argv_free(language->environment);
	free(language);
}

static int is_profile(const struct dirent *file)
{
	size_t n = strlen(file->d_name);

	return file->d_name[0] != '.' && n >= 4 && strcmp(file->d_name + n - 4, ".ini") == 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void load_profile(
	const char *dir, const char *file, struct map *languages, struct cfg_errors *errors)
{
	struct str name_part = {file, strlen(file) - strlen(".ini")};
	char *name cleanup(mem_freep) = str_dup(name_part);
	char *path cleanup(mem_freep) = mem_printf("%s/%s", dir, file);
	struct buf text cleanup(buf_fini) = BUF_INIT;
	struct language *language;

	if (!ini_text_read(path, PROFILE_MAX, &text, errors))
		return;
	language = language_parse(name, buf_str(&text), path, errors);
	if (language)
		language_free(map_set(languages, str_from(name), language));
}

void language_load_dir(const char *dir, struct map *languages, struct cfg_errors *errors)
{
	struct dirent **files = NULL;
	int n = scandir(dir, &files, is_profile, by_bytes);

	if (n < 0) {
		cfg_errors_add(
			errors, dir, "language profiles cannot be read: %s", strerror(errno));
		return;
	}
	if (n == 0)
		cfg_errors_add(errors, dir, "holds no language profile (*.ini)");
	if (n > PROFILES_MAX)
		cfg_errors_add(errors, dir, "holds %d language profiles: at most %d are read", n,
			PROFILES_MAX);
	for (int i = 0; i < n; i++) {
		if (n <= PROFILES_MAX)
			load_profile(dir, files[i]->d_name, languages, errors);
		free(files[i]);
	}
	free(files);
}

void language_map_fini(struct map *languages)
{
	map_each (it, languages) {
		language_free(map_entry_of(it)->value);
	}
	map_fini(languages);
}

char **language_argv(const struct language *language, char **argv, int64_t memory_bytes)
{
	char **out = mem_array(list_length(argv) + 1, sizeof *out);

	for (size_t i = 0; argv[i]; i++) {
		struct str text = str_from(argv[i]), word;
		struct buf built = BUF_INIT;
		size_t done = 0, at = 0;

		while (next_placeholder(text, &at, &word)) {
			/* word stands between braces: {word} ends at `at` */
			buf_add(&built, text.p + done, at - word.n - 2 - done);
			done = at;
			if (str_is(word, "source"))
				buf_add_str(&built, str_from(language->source));
			else
				buf_addf(&built, "%" PRId64, memory_bytes >> 20);
		}
		buf_add(&built, text.p + done, text.n - done);
		out[i] = buf_take(&built);
	}
	return out;
}

void language_argv_free(char **argv)
{
	for (size_t i = 0; argv && argv[i]; i++)
		free(argv[i]);
	free(argv);
}
