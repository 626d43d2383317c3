/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cfg is one slot an option: the checked value and how strong its source is. It starts with the
 * defaults of options.def and every slot always holds a value that its row accepts, so reading cannot
 * fail. All sources go through cfg_put(): check, then replace unless something stronger is there. The
 * result therefore does not depend on the order in which the sources are read.
 */
#include "cfg/cfg.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <unistd.h>

#include "cfg/cfg_table.h"
#include "reactor/base/err.h"
#include "reactor/base/mem.h"

#define ERRORS_MAX 100 /* lines kept; the count goes on */

const struct cfg_row cfg_rows[OPT_N] = {
/* clang-format off */
#define OPTION(section_, key_, type_, def_, min_, max_, unit_, services_, flags_, prose_)          \
	[OPT_##section_##_##key_] = {                                                              \
		.section = #section_, .key = #key_, .type = CFG_##type_, .def = def_, .min = min_, \
		.max = max_, .unit = unit_, .services = services_, .flags = flags_, .prose = prose_},
#include "cfg/options.def"
#undef OPTION
	/* clang-format on */
};

struct cfg_slot {
	struct cfg_value value;
	enum cfg_source source;
};

struct cfg {
	struct cfg_slot slots[OPT_N];
};

struct cfg *cfg_new(void)
{
	struct cfg *cfg = mem_alloc(sizeof *cfg);
	struct buf why cleanup(buf_fini) = BUF_INIT;

	for (size_t i = 0; i < OPT_N; i++)
		CHECK(cfg_value_parse(
			&cfg_rows[i], str_from(cfg_rows[i].def), &cfg->slots[i].value, &why));
	return cfg;
}

void cfg_free(struct cfg *cfg)
{
	if (!cfg)
		return;
	for (size_t i = 0; i < OPT_N; i++) {
		if (cfg_rows[i].flags & CFG_SECRET)
			explicit_bzero(cfg->slots[i].value.text, strlen(cfg->slots[i].value.text));
		cfg_value_fini(&cfg->slots[i].value);
	}
	free(cfg);
}

void cfg_errors_fini(struct cfg_errors *errors)
{
	buf_fini(&errors->text);
	errors->count = 0;
}

void cfg_errors_add(struct cfg_errors *errors, const char *place, const char *fmt, ...)
{
	va_list ap;

	errors->count++;
	if (errors->count == ERRORS_MAX + 1)
		buf_add_str(&errors->text, STR("(more problems are not listed)\n"));
	if (errors->count > ERRORS_MAX)
		return;
	buf_addf(&errors->text, "%s: ", place);
	va_start(ap, fmt);
	buf_vaddf(&errors->text, fmt, ap);
	va_end(ap);
	buf_add_char(&errors->text, '\n');
}

int cfg_find(struct str section, struct str key)
{
	for (int i = 0; i < OPT_N; i++) {
		if (str_is(section, cfg_rows[i].section) && str_is(key, cfg_rows[i].key))
			return i;
	}
	return -1;
}

void cfg_put(struct cfg *cfg, enum cfg_option option, struct str value, enum cfg_source source,
	const char *place, struct cfg_errors *errors)
{
	const struct cfg_row *row = &cfg_rows[option];
	struct cfg_slot *slot = &cfg->slots[option];
	struct buf why cleanup(buf_fini) = BUF_INIT;
	struct cfg_value parsed = {0};

	if (!cfg_value_parse(row, value, &parsed, &why)) {
		cfg_errors_add(errors, place, "%s.%s: " STR_FMT, row->section, row->key,
			STR_ARG(buf_str(&why)));
		return;
	}
	if (source < slot->source) {
		cfg_value_fini(&parsed);
		return;
	}
	cfg_value_fini(&slot->value);
	slot->value = parsed;
	slot->source = source;
}

void cfg_set(struct cfg *cfg, enum cfg_option option, const char *value, const char *place,
	struct cfg_errors *errors)
{
	cfg_put(cfg, option, str_from(value), CFG_FROM_PROGRAM, place, errors);
}

void cfg_set_default(struct cfg *cfg, enum cfg_option option, const char *value, const char *place,
	struct cfg_errors *errors)
{
	cfg_put(cfg, option, str_from(value), CFG_FROM_PRESET, place, errors);
}

const char *cfg_str(const struct cfg *cfg, enum cfg_option option)
{
	return cfg->slots[option].value.text;
}

int64_t cfg_int(const struct cfg *cfg, enum cfg_option option)
{
	enum cfg_type type = cfg_rows[option].type;

	CHECK(type == CFG_INT || type == CFG_BYTES || type == CFG_DURATION);
	return cfg->slots[option].value.number;
}

bool cfg_bool(const struct cfg *cfg, enum cfg_option option)
{
	CHECK(cfg_rows[option].type == CFG_BOOL);
	return cfg->slots[option].value.number != 0;
}

bool cfg_is_set(const struct cfg *cfg, enum cfg_option option)
{
	return cfg->slots[option].source != CFG_FROM_DEFAULT;
}

unsigned cfg_reload(struct cfg *cfg, const struct cfg *fresh, struct buf *ignored)
{
	unsigned changed = 0;

	for (size_t i = 0; i < OPT_N; i++) {
		const struct cfg_slot *from = &fresh->slots[i];
		struct cfg_slot *to = &cfg->slots[i];

		if (strcmp(from->value.text, to->value.text) == 0)
			continue;
		if (!(cfg_rows[i].flags & CFG_RELOADABLE)) {
			buf_addf(ignored, "%s%s.%s", ignored->len ? " " : "", cfg_rows[i].section,
				cfg_rows[i].key);
			continue;
		}
		cfg_value_fini(&to->value);
		to->value.text = mem_strdup(from->value.text);
		to->value.number = from->value.number;
		to->source = from->source;
		changed++;
	}
	return changed;
}

/* Defaults as comments, so that reading the file back leaves them unset, as they are here. */
static void write_values(const struct cfg *cfg, unsigned services, struct buf *out)
{
	const char *section = "";

	for (int i = 0; i < OPT_N; i++) {
		const struct cfg_row *row = &cfg_rows[i];

		if (!(row->services & services))
			continue;
		if (strcmp(section, row->section) != 0)
			buf_addf(out, "%s[%s]\n", section[0] ? "\n" : "", row->section);
		section = row->section;
		buf_addf(out, "%s%s = ", cfg_is_set(cfg, i) ? "" : "#", row->key);
		cfg_value_write(out, cfg_str(cfg, i));
		buf_add_char(out, '\n');
	}
}

static int write_all(int fd, struct str bytes)
{
	while (bytes.n > 0) {
		ssize_t n = write(fd, bytes.p, bytes.n);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		bytes.p += n;
		bytes.n -= (size_t)n;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

static int sync_directory_of(const char *path)
{
	char *copy cleanup(mem_freep) = mem_strdup(path);
	int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int error = 0;

	if (fd < 0)
		return -errno;
	if (fsync(fd) < 0)
		error = -errno;
	close(fd);
	return error;
}

int cfg_write_file(const struct cfg *cfg, const char *path, unsigned services)
{
	struct buf text cleanup(buf_fini) = BUF_INIT;
	char *aside cleanup(mem_freep) = mem_printf("%s.XXXXXX", path);
	int error, fd = mkostemp(aside, O_CLOEXEC); /* creates it 0600 */

	if (fd < 0)
		return err_origin(-errno);
	write_values(cfg, services, &text);
	error = write_all(fd, buf_str(&text));
	if (close(fd) < 0 && error == 0)
		error = -errno;
	if (error == 0 && rename(aside, path) < 0)
		error = -errno;
	if (error < 0) {
		unlink(aside);
		return err_origin(error);
	}
	error = sync_directory_of(path);
	return error < 0 ? err_origin(error) : 0;
}
