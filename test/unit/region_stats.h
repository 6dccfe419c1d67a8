/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts of region/ at the moment. */
#ifndef SLUICE_TEST_REGION_STATS_H
#define SLUICE_TEST_REGION_STATS_H

#include "region/private.h"

struct region_stats {
	uint32_t active, returned; /* adopted; made private and not freed yet */
	uint64_t active_bytes, pool_bytes, arena_used_bytes;
};

static inline void region_get_stats(struct region_stats *out)
{
	struct region_stats s = { 0 };

	region_lock();
	for (uint32_t i = 0; i < region_table.head->n; i++) {
		if (region_table.head->at[i].state == REGION_RETURNED) {
			s.returned++;
			continue;
		}
		s.active++;
		s.active_bytes += region_table.head->at[i].end - region_table.head->at[i].start;
	}
	s.pool_bytes = arena_pool_bytes_locked();
	s.arena_used_bytes = arena_used_bytes_locked();
	region_unlock();
	*out = s;
}

#endif
