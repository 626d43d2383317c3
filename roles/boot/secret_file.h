/* SPDX-License-Identifier: Apache-2.0 */
/*
 * secret_file - the file with the secret that judicators, executors and gateways share: 32 random bytes as 64 hex digits
 * and a newline, mode 0600.
 */
#pragma once

#include "reactor/base/check.h"
#include "roles/boot/user.h"

struct loop;

#define SECRET_FILE_E_EXISTS 1 /* it was there already and was left alone */

/* Makes the file when it is missing, whole or not at all, and gives it to user (root only). 0, SECRET_FILE_E_EXISTS or
 * -errno. */
int secret_file_make(struct loop *loop, const char *path, const struct user *user) must_check;
/* Can group or others get at the file? */
bool secret_file_is_exposed(const char *path);
