/* SPDX-License-Identifier: BSD-3-Clause */
#include "places.h"

#ifdef HAVE_HWLOC
#include <hwloc.h>

#include "unit.h"

static const char *const machines[] = {
	"numa:2 core:4 pu:1",        "numa:4 core:3 pu:2", "numa:2 core:12 pu:2",
	"pack:2 numa:2 core:5 pu:1", "numa:8 core:2 pu:1",
};

void places_of(const char *machine, int ranks, bool in_turn, int *out)
{
	hwloc_topology_t t;
	int nodes, cores;

	CHECK_EQ(hwloc_topology_init(&t), 0);
	CHECK_EQ(hwloc_topology_set_synthetic(t, machine), 0);
	CHECK_EQ(hwloc_topology_load(t), 0);
	nodes = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE);
	cores = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE);
	for (int r = 0; r < ranks; r++) {
		int at = in_turn ? r % nodes * (cores / nodes) + r / nodes : r;
		hwloc_obj_t core = hwloc_get_obj_by_type(t, HWLOC_OBJ_CORE, (unsigned)(at % cores));

		CHECK(core && core->nodeset);
		out[r] = hwloc_bitmap_first(core->nodeset);
	}
	hwloc_topology_destroy(t);
}

void places_each(void (*check)(int ranks, const int *number_of))
{
	int number_of[PLACES_RANKS];

	for (size_t m = 0; m < sizeof machines / sizeof machines[0]; m++)
		for (int ranks = 2; ranks <= PLACES_RANKS; ranks++)
			for (int in_turn = 0; in_turn < 2; in_turn++) {
				places_of(machines[m], ranks, in_turn, number_of);
				check(ranks, number_of);
			}
}
#endif
