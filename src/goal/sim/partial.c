/* SPDX-License-Identifier: BSD-3-Clause */
/* Requirement counters, only of operations that require several others of which some have ended and
 * some have not. So memory grows with what is in flight, not with the schedules. */
#include <errno.h>

#include "private.h"

int sim_partial_release(struct sim_table *partials, uint32_t rank, uint32_t op, uint32_t requires,
			uint64_t *ready, uint32_t *from)
{
	struct sim_partial *p;
	bool is_new;

	if (requires <= 1)
		return 1;
	p = sim_table_get(partials, ((uint64_t)rank << 32 | op) + 1, &is_new);
	if (!p)
		return -ENOMEM;
	if (is_new)
		p->remaining = requires;
	if (is_new || *ready >= p->ready) {
		p->ready = *ready;
		p->from = *from;
	}
	if (--p->remaining)
		return 0;
	*ready = p->ready;
	*from = p->from;
	sim_table_remove(partials, p);
	return 1;
}
