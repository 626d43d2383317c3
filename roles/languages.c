/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program in PREFIX/bin has its profiles in PREFIX/share/conclave/languages; one in SOURCES/build/PRESET/bin in
 * SOURCES/cfg/languages. Both are found from the program's own path, so nothing is compiled in.
 */
#include "roles/languages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "reactor/base/log.h"
#include "reactor/base/mem.h"
#include "roles/role.h"

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *languages_dir(const struct role_env *env)
{
	static const char *const places[] = {
		"../share/conclave/languages",
		"../../../cfg/languages",
	};
	const char *set = cfg_str(env->cfg, OPT_executor_languages);
	const char *slash = env->program ? strrchr(env->program, '/') : NULL;

	if (*set)
		return mem_strdup(set);
	for (size_t i = 0; slash && i < ARRAY_SIZE(places); i++) {
		char *path =
			mem_printf("%.*s/%s", (int)(slash - env->program), env->program, places[i]);

		if (is_directory(path))
			return path;
		free(path);
	}
	log_error(env->log, "languages",
		"why=\"no directory of language profiles found\" fix=\"set executor.languages\"");
	return NULL;
}

int languages_load(const struct role_env *env, struct map *languages)
{
	struct cfg_errors errors cleanup(cfg_errors_fini) = {BUF_INIT, 0};
	char *dir cleanup(mem_freep) = languages_dir(env);
	struct str rest, line;

	if (!dir)
		return -EINVAL;
	language_load_dir(dir, languages, &errors);
	rest = str_trim(buf_str(&errors.text));
	while (errors.count && str_cut(&rest, '\n', &line)) {
		char quoted[LOG_QUOTE_MAX];

		log_error(env->log, "languages", "dir=%s problem=%s", dir, log_quote(line, quoted));
	}
	return errors.count ? -EINVAL : 0;
}
