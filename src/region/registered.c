/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions whose pages a GPU accesses: memory that the program registered with CUDA after it was
 * adopted. Such a region is kept: it has one pin for the GPU, with which it is neither evicted nor
 * returned. The program's registrations are known to the CUDA driver only, which may not be asked
 * under the lock: a thread inside the driver may wait for the lock in a memory hook.
 */
#include "region/private.h"

/* Copies the first active region that ends above `at` and begins below `end`. */
static bool next_region(uintptr_t at, uintptr_t end, struct region *out)
{
	bool found = false;

	region_lock();
	for (uint32_t i = table_find(at); i < region_table.head->n && !found; i++) {
		*out = region_table.head->at[i];
		if (out->start >= end)
			break;
		found = out->state == REGION_ACTIVE;
	}
	region_unlock();
	return found;
}

static void set_gpu_pin(const struct region *known, bool keep)
{
	struct region *r;
	bool release = false;

	region_lock();
	r = &region_table.head->at[table_find(known->start)];
	if (r < &region_table.head->at[region_table.head->n] && r->id == known->id &&
	    r->has_gpu_pin != keep) {
		if (keep)
			r->has_gpu_pin = pins_add(r->id);
		else
			r->has_gpu_pin = !(release = true);
	}
	region_unlock();
	if (release)
		pins_release(known->id);
}

void registered_ask(uintptr_t start, uintptr_t end, enum registered_cause cause)
{
	struct region r;

	if (start >= end || region_is_locked_here() || base_likely(!os_gpu_is_loaded()))
		return;
	for (uintptr_t at = start; at < end && next_region(at, end, &r); at = r.end) {
		bool dies = cause == REGISTERED_DIES && r.start >= start && r.end <= end;

		if (dies && !r.has_gpu_pin)
			continue;
		set_gpu_pin(&r, (cause != REGISTERED_ASK && !dies) ||
				     os_gpu_is_registered(r.start, r.end));
	}
}
