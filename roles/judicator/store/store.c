/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of backends: a new one is a file and a row here.
 */
#include "roles/judicator/store/store.h"

static const struct store_ops *const stores[] = {
	&store_memory,
	&store_sqlite,
};

const struct store_ops *store_find(struct str name)
{
	for (size_t i = 0; i < ARRAY_SIZE(stores); i++) {
		if (str_is(name, stores[i]->name))
			return stores[i];
	}
	return NULL;
}
