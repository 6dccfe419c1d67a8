/* SPDX-License-Identifier: BSD-3-Clause */
#include "topology.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>

static unsigned count_of(hwloc_topology_t t, hwloc_obj_type_t type)
{
	int n = hwloc_get_nbobjs_by_type(t, type);

	return n < 0 ? 0 : (unsigned)n;
}

static void read_caches(hwloc_topology_t t, struct topology *out)
{
	static const hwloc_obj_type_t types[] = {
		HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE,
		HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L1CACHE,
	};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		hwloc_obj_t o = hwloc_get_obj_by_type(t, types[i], 0);
		struct topology_cache *c = &out->caches[out->cache_count];

		if (!o || out->cache_count == TOPOLOGY_CACHES)
			continue;
		hwloc_obj_type_snprintf(c->name, sizeof(c->name), o, 0);
		c->count = count_of(t, types[i]);
		c->pus = (unsigned)hwloc_bitmap_weight(o->cpuset);
		c->bytes = o->attr->cache.size;
		out->cache_count++;
	}
}

static void read_cpu(hwloc_topology_t t, struct topology *out)
{
	hwloc_obj_t package = hwloc_get_obj_by_type(t, HWLOC_OBJ_PACKAGE, 0);
	const char *model = package ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
	hwloc_bitmap_t bound = hwloc_bitmap_alloc();

	if (!model)
		model = hwloc_obj_get_info_by_name(hwloc_get_root_obj(t), "CPUModel");
	snprintf(out->cpu, sizeof(out->cpu), "%s", model ? model : "");
	/* the binding of this process, not only the container's limit */
	if (bound && hwloc_get_cpubind(t, bound, HWLOC_CPUBIND_PROCESS) == 0) {
		out->allowed_pus = (unsigned)hwloc_bitmap_weight(bound);
		hwloc_bitmap_list_snprintf(out->allowed, sizeof(out->allowed), bound);
	}
	hwloc_bitmap_free(bound);
}

int topology_read(struct topology *out)
{
	hwloc_topology_t t;

	*out = (struct topology){ .source = "hwloc" };
	if (hwloc_topology_init(&t))
		return -ENOMEM;
	/* includes what this process may not use; `allowed` shows the difference */
	hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
	if (hwloc_topology_load(t)) {
		hwloc_topology_destroy(t);
		return -EIO;
	}
	out->packages = count_of(t, HWLOC_OBJ_PACKAGE);
	out->numa_nodes = count_of(t, HWLOC_OBJ_NUMANODE);
	out->cores = count_of(t, HWLOC_OBJ_CORE);
	out->pus = count_of(t, HWLOC_OBJ_PU);
	out->memory_bytes = hwloc_get_root_obj(t)->total_memory;
	read_cpu(t, out);
	read_caches(t, out);
	hwloc_topology_destroy(t);
	return 0;
}
