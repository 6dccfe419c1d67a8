/* SPDX-License-Identifier: BSD-3-Clause */
/* Hash tables: open addressing, linear probing, three quarters full at most. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "private.h"

#define LEAST 64u /* slots of a new table */

void sim_table_init(struct sim_table *t, size_t slot_bytes)
{
	*t = (struct sim_table){ .slot_bytes = slot_bytes };
}

void sim_table_fini(struct sim_table *t)
{
	free(t->slots);
	sim_table_init(t, t->slot_bytes);
}

static int grow(struct sim_table *t)
{
	struct sim_table old = *t;

	t->mask = old.slots ? 2 * old.mask + 1 : LEAST - 1;
	t->slots = calloc(t->mask + 1, t->slot_bytes);
	if (!t->slots) {
		*t = old;
		return -ENOMEM;
	}
	for (uint64_t *from = sim_table_next(&old, NULL); from; from = sim_table_next(&old, from))
		memcpy(sim_table_find(t, *from), from, t->slot_bytes);
	free(old.slots);
	return 0;
}

void *sim_table_get(struct sim_table *t, uint64_t key, bool *out_new)
{
	uint64_t *slot;

	if ((!t->slots || t->count >= t->mask / 4 * 3) && grow(t))
		return NULL;
	slot = sim_table_find(t, key);
	*out_new = !*slot;
	*slot = key;
	t->count += *out_new;
	return slot;
}

void sim_table_remove(struct sim_table *t, void *slot)
{
	uint64_t *hole = slot, *moved, at = sim_table_home(t, *hole);

	while (sim_table_at(t, at) != slot)
		at = (at + 1) & t->mask;
	t->count--;
	/* moves up the slots behind it that probing would not find any more */
	for (uint64_t i = (at + 1) & t->mask; *(moved = sim_table_at(t, i));
	     i = (i + 1) & t->mask) {
		uint64_t home = sim_table_home(t, *moved);

		if (((i - home) & t->mask) < ((i - at) & t->mask))
			continue;
		memcpy(hole, moved, t->slot_bytes);
		hole = moved;
		at = i;
	}
	memset(hole, 0, t->slot_bytes);
}

void *sim_table_next(const struct sim_table *t, const void *slot)
{
	uint64_t i = slot ? (uint64_t)((const char *)slot - t->slots) / t->slot_bytes + 1 : 0;

	for (; t->slots && i <= t->mask; i++)
		if (*(uint64_t *)sim_table_at(t, i))
			return sim_table_at(t, i);
	return NULL;
}
