/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>
#include <errno.h>

#include "private.h"

#define SLOTS_MIN 64u

void text_labels_fini(struct text_labels *t)
{
	free(t->all);
	free(t->names);
	free(t->slots);
	*t = (struct text_labels){ 0 };
}

int text_labels_clear(struct text_labels *t)
{
	if (goal_grow(&t->slots, &t->slots_cap, SLOTS_MIN, sizeof *t->slots))
		return -ENOMEM;
	/* shrink: after one large rank, clearing a large table for each small rank would be slow */
	t->mask = SLOTS_MIN - 1;
	memset(t->slots, 0, SLOTS_MIN * sizeof *t->slots);
	t->count = t->names_bytes = 0;
	return 0;
}

static uint32_t hash_of(const char *name, uint32_t bytes)
{
	uint32_t h = 2166136261u;

	for (uint32_t i = 0; i < bytes; i++)
		h = (h ^ (unsigned char)name[i]) * 16777619u;
	return h ^ h >> 15;
}

static int grow_slots(struct text_labels *t)
{
	uint32_t count = (t->mask + 1) * 2;

	if (goal_grow(&t->slots, &t->slots_cap, count, sizeof *t->slots))
		return -ENOMEM;
	memset(t->slots, 0, (size_t)count * sizeof *t->slots);
	t->mask = count - 1;
	for (uint32_t i = 0; i < t->count; i++) {
		uint32_t at = t->all[i].hash & t->mask;

		while (t->slots[at])
			at = (at + 1) & t->mask;
		t->slots[at] = i + 1;
	}
	return 0;
}

static int grow(struct text_labels *t, uint32_t bytes)
{
	if (goal_grow(&t->all, &t->cap, t->count + 1ull, sizeof *t->all) ||
	    goal_grow(&t->names, &t->names_cap, t->names_bytes + bytes + 1ull, 1))
		return -ENOMEM;
	/* half full at most */
	return t->count * 2 >= t->mask ? grow_slots(t) : 0;
}

uint32_t text_label(struct text_labels *t, const char *name, uint32_t bytes, uint64_t line,
		    uint32_t column)
{
	uint32_t hash = hash_of(name, bytes), at = hash & t->mask;

	for (; t->slots[at]; at = (at + 1) & t->mask) {
		const struct text_label *l = &t->all[t->slots[at] - 1];

		if (l->hash == hash && l->bytes == bytes &&
		    !memcmp(t->names + l->name, name, bytes))
			return t->slots[at] - 1;
	}
	if (t->count >= UINT32_MAX / 4 || grow(t, bytes))
		return GOAL_NONE;
	/* the table may have grown */
	for (at = hash & t->mask; t->slots[at]; at = (at + 1) & t->mask)
		;
	t->all[t->count] = (struct text_label){ .name = t->names_bytes,
						.bytes = bytes,
						.hash = hash,
						.op = GOAL_NONE,
						.line = line,
						.column = column };
	memcpy(t->names + t->names_bytes, name, bytes);
	t->names[t->names_bytes + bytes] = '\0';
	t->names_bytes += bytes + 1;
	t->slots[at] = ++t->count;
	return t->count - 1;
}
