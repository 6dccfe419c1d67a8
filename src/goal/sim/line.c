/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events that found their CPU or NIC busy. The oldest of a line stands in the queue of events; the
 * others wait in a pairing heap, ordered by age. With all of them in the queue, each event would
 * meet all that wait: 10^12 steps for a million messages to one rank. head_seq names the event that
 * stands in the queue. Older heads may still stand there, too; they are recognised when their time
 * comes.
 */
#include <errno.h>

#include "private.h"

#define NOBODY UINT64_MAX

static struct sim_waiter *at(const struct sim *s, uint32_t i)
{
	return sim_pool_at(&s->waiters, i);
}

static uint32_t meld(const struct sim *s, uint32_t a, uint32_t b)
{
	if (!a || !b)
		return a ? a : b;
	if (at(s, b)->event.seq < at(s, a)->event.seq) {
		uint32_t t = a;

		a = b;
		b = t;
	}
	at(s, b)->sibling = at(s, a)->child;
	at(s, a)->child = b;
	return a;
}

/* Removes the root: melds its children in pairs, then the pairs from the last to the first. */
static uint32_t without_root(const struct sim *s, uint32_t i)
{
	uint32_t pairs = SIM_NONE, all = SIM_NONE;

	for (uint32_t a = at(s, i)->child; a;) {
		uint32_t b = at(s, a)->sibling;
		uint32_t rest = b ? at(s, b)->sibling : SIM_NONE;
		uint32_t pair;

		at(s, a)->sibling = SIM_NONE;
		if (b)
			at(s, b)->sibling = SIM_NONE;
		pair = meld(s, a, b);
		at(s, pair)->sibling = pairs;
		pairs = pair;
		a = rest;
	}
	while (pairs) {
		uint32_t next = at(s, pairs)->sibling;

		at(s, pairs)->sibling = SIM_NONE;
		all = meld(s, all, pairs);
		pairs = next;
	}
	return all;
}

int sim_line_wait(struct sim *s, struct sim_line line, struct sim_event *e, uint64_t when)
{
	uint64_t *head = &line.unit->head_seq[line.kind];
	uint32_t *root = &line.unit->root[line.kind];
	uint32_t i;

	e->time = when;
	/* a CPU of ATLAHS may become free earlier than it was known to: each event looks itself */
	if (e->seq <= *head || s->config.params.model == SIM_ATLAHS) {
		*head = e->seq;
		return sim_queue_push(&s->queue, e);
	}
	i = sim_pool_get(&s->waiters);
	if (!i)
		return -ENOMEM;
	*at(s, i) = (struct sim_waiter){ .event = *e };
	*root = meld(s, *root, i);
	return 0;
}

int sim_line_advance(struct sim *s, struct sim_line line, const struct sim_event *e, uint64_t when,
		     uint32_t from, enum sim_cause cause)
{
	uint64_t *head = &line.unit->head_seq[line.kind];
	uint32_t *root = &line.unit->root[line.kind], i = *root;
	struct sim_event next;

	if (*head != e->seq)
		/* the event was never in the heap; a new head is recognised by head_seq */
		return 0;
	*head = NOBODY;
	if (!i)
		return 0;
	next = at(s, i)->event;
	*root = without_root(s, i);
	sim_pool_put(&s->waiters, i);
	next.time = when;
	next.from = from;
	next.cause = (uint8_t)cause;
	*head = next.seq;
	return sim_queue_push(&s->queue, &next);
}
