/* SPDX-License-Identifier: BSD-3-Clause */
/* Requirement counters, only of operations that require several others of which some have ended and
 * some have not. So memory grows with what is in flight, not with the schedules. Open addressing,
 * linear probing. */
#include <errno.h>
#include <stdlib.h>

#include "private.h"

static uint32_t slot_of(const struct sim_partials *p, uint64_t key)
{
	return (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & p->mask;
}

static uint32_t find(const struct sim_partials *p, uint64_t key)
{
	uint32_t i = slot_of(p, key);

	while (p->slots[i].key && p->slots[i].key != key)
		i = (i + 1) & p->mask;
	return i;
}

static int grow(struct sim_partials *p)
{
	uint32_t size = p->slots ? (p->mask + 1) * 2 : 1024;
	struct sim_partials old = *p;

	p->slots = calloc(size, sizeof(*p->slots));
	if (!p->slots) {
		p->slots = old.slots;
		return -ENOMEM;
	}
	p->mask = size - 1;
	for (uint32_t i = 0; old.slots && i <= old.mask; i++)
		if (old.slots[i].key)
			p->slots[find(p, old.slots[i].key)] = old.slots[i];
	free(old.slots);
	return 0;
}

/* Moves up the entries behind it that probing would not find any more. */
static void remove_at(struct sim_partials *p, uint32_t hole)
{
	p->count--;
	for (uint32_t i = (hole + 1) & p->mask; p->slots[i].key; i = (i + 1) & p->mask) {
		uint32_t home = slot_of(p, p->slots[i].key);

		if (((i - home) & p->mask) < ((i - hole) & p->mask))
			continue;
		p->slots[hole] = p->slots[i];
		hole = i;
	}
	p->slots[hole].key = 0;
}

int sim_partial_release(struct sim_partials *p, uint32_t rank, uint32_t op, uint32_t requires,
			uint64_t *ready, uint32_t *from)
{
	uint64_t key = ((uint64_t)rank << 32 | op) + 1;
	struct sim_partial *slot;

	if (requires <= 1)
		return 1;
	if ((!p->slots || p->count >= p->mask / 4 * 3) && grow(p))
		return -ENOMEM;
	slot = p->slots + find(p, key);
	if (!slot->key) {
		*slot = (struct sim_partial){
			.key = key, .ready = *ready, .remaining = requires - 1, .from = *from
		};
		p->count++;
		return 0;
	}
	if (*ready >= slot->ready) {
		slot->ready = *ready;
		slot->from = *from;
	}
	if (--slot->remaining)
		return 0;
	*ready = slot->ready;
	*from = slot->from;
	remove_at(p, (uint32_t)(slot - p->slots));
	return 1;
}

void sim_partials_fini(struct sim_partials *p)
{
	free(p->slots);
	*p = (struct sim_partials){ .slots = NULL };
}
