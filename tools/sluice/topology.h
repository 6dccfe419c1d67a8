/* SPDX-License-Identifier: BSD-3-Clause */
/* topology: what `sluice info` tells about the processors; by hwloc, where it was built with it. */
#ifndef SLUICE_TOOL_TOPOLOGY_H
#define SLUICE_TOOL_TOPOLOGY_H

#include <stddef.h>
#include <stdint.h>

#define TOPOLOGY_CACHES 8

struct topology_cache {
	char name[16];  /* "L3", "L1d" */
	unsigned count; /* of them in the machine */
	unsigned pus;   /* that share one */
	uint64_t bytes; /* of each */
};

struct topology {
	const char *source;                        /* "hwloc", or "sysfs ..." */
	char cpu[128];                             /* model, "" unknown */
	unsigned packages, numa_nodes, cores, pus; /* 0 unknown */
	unsigned allowed_pus;
	char allowed[256]; /* "0-3,8" */
	uint64_t memory_bytes;
	struct topology_cache caches[TOPOLOGY_CACHES]; /* largest first */
	size_t cache_count;
};

/* Returns 0 or -errno, upon which the rest of out is unset. */
int topology_read(struct topology *out);

#endif
