/* SPDX-License-Identifier: BSD-3-Clause */
/* Room for a new region: at most SLUICE_REGION_MAX are active. */
#include "region/private.h"

#define NO_REGION UINT32_MAX /* no region ever has this number */

/* Returns: the least recently used region that may be evicted, or UINT32_MAX. */
static uint32_t find_victim(uint32_t *out_active)
{
	uint32_t victim = UINT32_MAX, n = 0;

	for (uint32_t i = 0; i < region_table.head->n; i++) {
		const struct region *r = &region_table.head->at[i];

		if (r->state == REGION_RETURNED)
			continue;
		n++;
		if (!pins_of(r) && !r->ticket &&
		    (victim == UINT32_MAX ||
		     pins_last_use(r) < pins_last_use(&region_table.head->at[victim])))
			victim = i;
	}
	*out_active = n;
	return victim;
}

static bool has_room(uint32_t active)
{
	return active < (uint64_t)base_opt.region_max && region_table.head->n < TABLE_MAX;
}

uint32_t evict_ask(void)
{
	struct region r = { 0 };
	uint32_t at, active;

	region_lock();
	at = find_victim(&active);
	if (at != UINT32_MAX && !has_room(active))
		r = region_table.head->at[at];
	region_unlock();
	/* may pin it */
	registered_ask(r.start, r.end, REGISTERED_ASK);
	return r.id ? r.id : NO_REGION;
}

bool evict_make_room_locked(uint32_t may_evict)
{
	uint32_t n, victim = find_victim(&n);
	bool alone;

	if (has_room(n))
		return true;
	if (victim == UINT32_MAX || (may_evict && region_table.head->at[victim].id != may_evict))
		return false;
	alone = table_is_unread();
	if (!alone && region_table.head->n - n >= (uint64_t)base_opt.region_max)
		return false;
	if (alone ? ends_make_anonymous(victim) : ends_make_private(&region_table.head->at[victim]))
		return false;
	base_count(BASE_CTR_EVICTED, 1);
	return region_table.head->n < TABLE_MAX;
}
