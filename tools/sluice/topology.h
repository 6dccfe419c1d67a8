/* SPDX-License-Identifier: BSD-3-Clause */
/* topology: processors and caches for `sluice info`, by hwloc if built with it. */
#ifndef SLUICE_TOOL_TOPOLOGY_H
#define SLUICE_TOOL_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

#define TOPOLOGY_CACHES 8

struct topology_cache {
	char name[16];  /* "L3", "L1d" */
	unsigned count; /* number in the machine */
	unsigned pus;   /* hardware threads that share one */
	uint64_t bytes; /* of each */
};

struct topology {
	const char *source;                        /* "hwloc", or "sysfs ..." */
	char cpu[128];                             /* model; "": unknown */
	unsigned packages, numa_nodes, cores, pus; /* 0: unknown */
	unsigned allowed_pus;
	char allowed[256]; /* "0-3,8" */
	uint64_t memory_bytes;
	struct topology_cache caches[TOPOLOGY_CACHES]; /* largest first */
	size_t cache_count;
};

/* Returns: 0, or -errno, and then only `source` is set. */
int topology_read(struct topology *out);

#endif
