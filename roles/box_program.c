/* SPDX-License-Identifier: Apache-2.0 */
/*
 * box_program - a look beside ourselves first, so that a tree and an installation never mix their programs.
 */
#include "roles/box_program.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "reactor/base/mem.h"
#include "reactor/base/str.h"

static char *in_directory(struct str dir)
{
	char *path = mem_printf(STR_FMT "/conclave-box", STR_ARG(dir));

	if (access(path, X_OK) == 0)
		return path;
	free(path);
	return NULL;
}

char *box_program_find(const char *program)
{
	const char *slash = program ? strrchr(program, '/') : NULL;
	struct str rest = str_from(getenv("PATH")), dir;
	char *path = slash ? in_directory((struct str){program, (size_t)(slash - program)}) : NULL;

	while (!path && str_cut(&rest, ':', &dir)) {
		if (dir.n && dir.p[0] == '/')
			path = in_directory(dir);
	}
	return path;
}
