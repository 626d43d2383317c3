/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokens - who may do what: the file that gateway.tokens names. It holds no token, only the SHA-256 of each.
 *
 *     # NAME ROLE[,ROLE] SHA256-HEX-OF-TOKEN [rate=N/s] [open=N] [user=NAME]
 *     alice submit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 rate=5/s open=20
 *
 * NAME and user: 1 to 64 of A-Z a-z 0-9 . _ @ -; rate: N a second (s), minute (m) or hour (h), which is also the burst; open: tasks of
 * the user that are not done, at most TOKEN_OPEN_MAX. Blank lines and what follows a # at the beginning of a word do not count.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "reactor/base/str.h"

struct cfg_errors;

#define TOKENS_MAX 2000
#define TOKENS_FILE_MAX (1 << 20)
#define TOKEN_NAME_MAX 64
#define TOKEN_OPEN_MAX 1000
#define TOKEN_RATE_MAX 1000000
#define TOKEN_DIGEST 32

enum token_role { TOKEN_SUBMIT = 1, TOKEN_READ = 2, TOKEN_ADMIN = 4 };

struct token {
	char name[TOKEN_NAME_MAX + 1];
	char user[TOKEN_NAME_MAX + 1]; /* of its tasks; the name when none is given */
	unsigned roles;                /* enum token_role */
	unsigned char digest[TOKEN_DIGEST];
	int64_t rate_n, rate_us; /* so many requests in so long a time; 0 = without limit */
	int64_t open_max;        /* 0 = without limit */
};

struct tokens {
	struct token *items;
	unsigned n;
};

/* Adds every problem to errors with its FILE:LINE; *out is to be finished in any case. */
void tokens_parse(struct str text, const char *path, struct tokens *out, struct cfg_errors *errors);
/* The same from the file, which must be regular, closed to others and owned by root, `owner` or whoever asks. Blocks. */
void tokens_load(const char *path, unsigned owner, struct tokens *out, struct cfg_errors *errors);
void tokens_fini(struct tokens *tokens); /* idempotent */

/* The token whose digest is that of `secret`, or NULL. Takes as long for each. */
const struct token *tokens_find(const struct tokens *tokens, struct str secret);
/* One request more: 0 when it is within the rate, else how long to wait. *full_at_us, the loop time at which the bucket is full
 * again, may be shared with other processes; it begins as 0. */
int64_t token_charge(const struct token *token, int64_t *full_at_us, int64_t now_us);
