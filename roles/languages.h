/* SPDX-License-Identifier: Apache-2.0 */
/*
 * languages - where the language profiles are, for the roles that read them (executor, gateway).
 */
#pragma once

#include "cfg/language.h"

struct role_env;

/* Path of the directory (free()), or NULL after logging what to do: executor.languages when set; else the first that exists of
 * share/conclave/languages beside the program's bin/ and, when run from a build tree, cfg/languages of its sources. */
char *languages_dir(const struct role_env *env) must_check;
/* Fills languages (an initialised map: name -> struct language *; language_map_fini()) from there. 0, or -EINVAL after
 * logging each problem of each file. */
int languages_load(const struct role_env *env, struct map *languages) must_check;
