/* SPDX-License-Identifier: BSD-3-Clause */
/* CPUs and NICs that a rank's operations and the messages to it occupy. CPU 0 and NIC 0 are in the
 * rank itself; a hash table has the others, so memory grows with the pairs that are used. */
#include <errno.h>
#include <string.h>

#include "private.h"

static uint64_t key_of(uint32_t rank, uint32_t cpu, uint32_t nic)
{
	return (uint64_t)rank << 32 | cpu << 16 | nic;
}

void sim_unit_init(struct sim_unit *u)
{
	*u = (struct sim_unit){ .reserved = 0 };
	memset(u->head_seq, 0xff, sizeof(u->head_seq));
}

static int add(struct sim_table *units, uint64_t key)
{
	bool is_new;
	struct sim_unit_slot *slot = sim_table_get(units, key, &is_new);

	if (slot && is_new)
		sim_unit_init(&slot->unit);
	return slot ? 0 : -ENOMEM;
}

static int add_pair(struct sim *s, uint32_t rank, uint32_t cpu, uint32_t nic)
{
	int rc = add(&s->units, key_of(rank, cpu, nic));

	if (!rc && cpu)
		rc = add(&s->units, key_of(rank, cpu, 0));
	return !rc && nic ? add(&s->units, key_of(rank, 0, nic)) : rc;
}

int sim_units_add(struct sim *s, uint32_t rank, const struct goal_block *b)
{
	const struct goal_op *op = goal_ops_const(b);
	int rc = 0;

	for (uint32_t i = 0; i < b->op_count && !rc; i++, op++) {
		/* a receive occupies units of its sender in the model of ATLAHS */
		bool is_peers = op->type == GOAL_RECV ? s->config.params.model == SIM_ATLAHS
						      : goal_is_transfer(op);
		bool arrives = is_peers || goal_is_one_sided(op);

		if (!(op->cpu | op->nic))
			continue;
		rc = add_pair(s, rank, op->cpu, op->nic);
		if (!rc && arrives && op->peer < s->config.ranks)
			rc = add_pair(s, op->peer, op->cpu, op->nic);
	}
	return rc;
}

struct sim_unit *sim_units_find(const struct sim *s, uint32_t rank, uint32_t cpu, uint32_t nic)
{
	struct sim_unit_slot *slot = sim_table_find(&s->units, key_of(rank, cpu, nic));

	return &slot->unit;
}

void sim_units_end(struct sim *s)
{
	const struct sim_unit_slot *slot = NULL;

	while ((slot = sim_table_next(&s->units, slot))) {
		uint32_t number = (uint32_t)slot->key >> 16;
		struct sim_cpu *last;

		if (!number || slot->key & UINT16_MAX)
			continue;
		last = &sim_rank_of(s, (uint32_t)(slot->key >> 32))->unit.cpu;
		/* of several the lowest */
		if (slot->unit.cpu.free < last->free ||
		    (slot->unit.cpu.free == last->free && number > last->number))
			continue;
		*last = slot->unit.cpu;
		last->number = number;
	}
}
