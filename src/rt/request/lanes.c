/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lanes. Ranks may start their persistent requests in any order, so each has a lane, in which
 * nothing else happens: the n-th start on one rank matches the n-th start on the others. A lane is
 * a slot of exec/, whose collectives are numbered by its turns, and a lane of the mailbox.
 */
#include <stdlib.h>
#include <string.h>

#include "rt/request/request.h"

/* The word of a rank in the agreement on a lane. */
struct lanes_word {
	uint64_t free;
	struct lanes_turns turns[MAILBOX_LANES_MAX];
};

struct lanes *lanes_create(const struct rt_comm *c)
{
	struct lanes *l = base_fault("lanes") ? NULL : calloc(1, sizeof *l);

	if (!l)
		return NULL;
	pthread_mutex_init(&l->lock, NULL);
	l->n = (uint32_t)base_min_u64(exec_slots(c->exec), MAILBOX_LANES_MAX);
	l->words = calloc((size_t)c->size, sizeof *l->words);
	if (l->words)
		return l;
	lanes_destroy(l);
	return NULL;
}

void lanes_destroy(struct lanes *l)
{
	if (!l)
		return;
	pthread_mutex_destroy(&l->lock);
	free(l->words);
	free(l);
}

/* Returns: the first lane that is free on all ranks and equally often used; -1: none. */
static int choose(const struct lanes_word *all, int ranks, uint32_t lanes)
{
	for (uint32_t lane = 0; lane < lanes; lane++) {
		int r = 0;

		while (r < ranks && all[r].free >> lane & 1 &&
		       !memcmp(&all[r].turns[lane], &all[0].turns[lane], sizeof all[0].turns[lane]))
			r++;
		if (r == ranks)
			return (int)lane;
	}
	return -1;
}

static void set_used(struct lanes *l, int lane, bool is_used)
{
	pthread_mutex_lock(&l->lock);
	if (is_used)
		l->used |= 1ull << lane;
	else
		l->used &= ~(1ull << lane);
	pthread_mutex_unlock(&l->lock);
}

int rt_lane_allocate(struct rt_comm *c, const struct node_oob *oob, bool asks, int *out_lane)
{
	struct lanes_word mine = { 0 };
	struct lanes *l = c->lanes;
	int ret;

	if (asks) {
		pthread_mutex_lock(&l->lock);
		mine.free = ~l->used;
		pthread_mutex_unlock(&l->lock);
		for (uint32_t i = 0; i < l->n; i++)
			if (mine.free >> i & 1) /* another thread may count turns of a used lane */
				mine.turns[i] = l->turns[i];
	}
	ret = oob->allgather(oob->ctx, &mine, sizeof mine, l->words);
	*out_lane = ret ? -1 : choose(l->words, oob->size, l->n);
	if (*out_lane >= 0)
		set_used(l, *out_lane, true);
	return ret;
}

void rt_request_set_lane(struct rt_request *r, int lane) { r->lane = lane; }

void request_free_lane(struct rt_request *r)
{
	if (r->lane >= 0)
		set_used(r->comm->lanes, r->lane, false);
}

void request_next_turn(struct rt_request *r)
{
	struct lanes_turns *turns = r->lane < 0 ? NULL : &r->comm->lanes->turns[r->lane];

	if (turns)
		r->turn = ++turns->by[r->ops->way];
}

uint64_t request_number(const struct rt_request *r)
{
	return r->lane < 0 ? 0 : r->turn * exec_slots(r->comm->exec) + (uint64_t)r->lane;
}
