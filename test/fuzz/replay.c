/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target over its corpus without a fuzzer: `fuzz_NAME FILE_OR_DIRECTORY...`. So every build, with any
 * compiler, replays what was ever worth keeping. An empty or missing corpus is a failure, not a pass.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "reactor/base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Files replayed, or -1 when the path cannot be read. */
static int replay_file(const char *path)
{
	struct buf bytes cleanup(buf_fini) = BUF_INIT;
	FILE *file = fopen(path, "rb");
	size_t n;

	if (!file) {
		perror(path);
		return -1;
	}
	while ((n = fread(buf_reserve(&bytes, 65536), 1, 65536, file)) > 0)
		bytes.len += n;
	fclose(file);
	printf("%s\n", path);
	fflush(stdout); /* the last line names the input that killed us */
	LLVMFuzzerTestOneInput((const uint8_t *)buf_str(&bytes).p, bytes.len);
	return 1;
}

static int replay_directory(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	int count = 0;

	if (!dir) {
		perror(path);
		return -1;
	}
	while (count >= 0 && (entry = readdir(dir))) {
		struct buf name cleanup(buf_fini) = BUF_INIT;

		if (entry->d_name[0] == '.')
			continue;
		buf_addf(&name, "%s/%s", path, entry->d_name);
		count = replay_file(name.data) < 0 ? -1 : count + 1;
	}
	closedir(dir);
	return count;
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		struct stat st;
		int count = -1;

		if (stat(argv[i], &st) < 0)
			perror(argv[i]);
		else
			count = S_ISDIR(st.st_mode) ? replay_directory(argv[i])
						    : replay_file(argv[i]);
		if (count <= 0) {
			fprintf(stderr, "%s: nothing to replay\n", argv[i]);
			return 1;
		}
	}
	return argc < 2;
}
