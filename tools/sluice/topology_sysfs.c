/* SPDX-License-Identifier: BSD-3-Clause */
/* For builds without hwloc: only what Sluice itself uses. */
#include "topology.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/os.h"

static void add_cache(struct topology *out, const char *name, uint64_t bytes)
{
	struct topology_cache *c = &out->caches[out->cache_count];

	if (!bytes)
		return;
	snprintf(c->name, sizeof(c->name), "%s", name);
	c->bytes = bytes;
	out->cache_count++;
}

static void list_cpus(const struct os_cpumask *m, char *out, size_t cap)
{
	size_t used = 0;

	for (unsigned i = 0; i < OS_CPUMASK_WORDS * 64 && used < cap; i++) {
		unsigned first = i;

		while (i < OS_CPUMASK_WORDS * 64 && (m->bits[i / 64] >> i % 64 & 1))
			i++;
		if (i == first)
			continue;
		used += (size_t)snprintf(out + used, cap - used, used ? ",%u" : "%u", first);
		if (i - first > 1 && used < cap)
			used += (size_t)snprintf(out + used, cap - used, "-%u", i - 1);
	}
}

int topology_read(struct topology *out)
{
	struct os_cpumask mask;

	*out = (struct topology){ .source = "sysfs (built without hwloc)" };
	os_cpumask_self(&mask);
	out->allowed_pus = (unsigned)os_cpumask_count(&mask);
	list_cpus(&mask, out->allowed, sizeof(out->allowed));
	out->pus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
	out->numa_nodes = (unsigned)os_numa_node_count();
	out->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * OS_PAGE;
	add_cache(out, "last level", os_llc_bytes());
	add_cache(out, "L2", os_l2_bytes());
	return 0;
}
