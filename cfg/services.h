/* SPDX-License-Identifier: Apache-2.0 */
/*
 * services - which service an option is for: the bits of options.def's services column.
 */
#pragma once

enum cfg_service {
	CFG_BOOT = 1,
	CFG_JUDICATOR = 2,
	CFG_EXECUTOR = 4,
	CFG_GATEWAY = 8,
	CFG_ETCD = 16,
	CFG_MONGODB = 32,
	CFG_ALL = 63,
};
