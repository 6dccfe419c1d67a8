/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One-sided operations: what network cards do by themselves, after LogGOPSim2's model of Portals 4.
 * A CPU spends o on each; then
 *
 *   put, get   after D the card sends (g, G); after L it is at the peer's card, which is busy with
 *              it for its bytes and max(g, M), searches an entry, and increments that entry's
 *              counter D + M later
 *   get        the peer's card answers; the answer increments the counter of the get as above
 *   append     the entry is there once the operation has begun
 *   tput ...   the same D after a counter has reached its value, without a CPU
 *   test       ends when a counter has reached its value; its CPU waits
 *
 * M and D are LogGOPSim2's defaults. What finds no entry is lost.
 */
#include <errno.h>
#include <stdlib.h>

#include "private.h"

#define CARD_PS (100 * SIM_PS_PER_NS) /* M: the card compares a message with its entries */
#define DMA_PS (3 * SIM_PS_PER_NS)    /* D: between card and memory */
#define REQUEST_BYTES 5u              /* length of the request of a get */

static const struct sim_side *side_of(const struct sim *s, const struct sim_op *op)
{
	return &s->shapes.sides[op->tag];
}

static bool is_get(const struct sim_op *op)
{
	return op->type == GOAL_GET || op->type == GOAL_TGET;
}

void sim_cards_fini(struct sim *s)
{
	free(s->cards);
	sim_table_fini(&s->counters);
	sim_pool_fini(&s->entries);
	sim_pool_fini(&s->watchers);
}

/* ---- counters ---------------------------------------------------------------------------- */

/* counter: 1 + its number. Returns: NULL: no memory. */
static struct sim_counter *counter_of(struct sim *s, uint32_t rank, uint32_t counter)
{
	bool is_new;

	return sim_table_get(&s->counters, (uint64_t)rank << 32 | counter, &is_new);
}

static int push(struct sim *s, enum sim_event_kind kind, uint32_t rank, uint32_t op, uint64_t time,
		uint32_t from)
{
	struct sim_event e = { .time = time, .seq = s->seq++, .rank = rank, .op = op, .from = from,
			       .kind = (uint8_t)kind, .cause = SIM_WIRE };

	return sim_queue_push(&s->queue, &e);
}

/* Increments a counter at `time`; counter may be 0. */
static int count_at(struct sim *s, uint32_t rank, uint32_t counter, uint64_t time, uint32_t from)
{
	return counter ? push(s, SIM_EVENT_COUNT, rank, counter, time, from) : 0;
}

/* The counter has reached the value of operation w at `now`; the CPU finished its part at
 * `ready`. */
static int trigger(struct sim *s, uint32_t rank, uint32_t index, uint64_t ready, uint64_t now,
		   uint32_t from)
{
	const struct sim_op *op = sim_op_of(s, sim_rank_of(s, rank), index);

	if (op->type == GOAL_TEST)
		return sim_end_test(s, rank, op, sim_later(ready, now), from);
	return push(s, SIM_EVENT_CARD, rank, index, sim_later(ready, now + DMA_PS), from);
}

int sim_card_count(struct sim *s, const struct sim_event *e)
{
	struct sim_counter *c = counter_of(s, e->rank, e->op);
	uint64_t value = c ? ++c->value : 0;
	uint32_t *link = c ? &c->first : NULL;
	int rc = c ? 0 : -ENOMEM;

	while (link && *link && !rc) {
		struct sim_watcher w = *(struct sim_watcher *)sim_pool_at(&s->watchers, *link);
		uint32_t freed = *link;

		if (w.value > value) {
			link = &((struct sim_watcher *)sim_pool_at(&s->watchers, *link))->next;
			continue;
		}
		*link = w.next;
		sim_pool_put(&s->watchers, freed);
		rc = trigger(s, e->rank, w.op, w.ready, e->time, e->from);
	}
	return rc;
}

/* The CPU finished its part of an operation that waits for a counter at `ready`. */
static int wait_for(struct sim *s, uint32_t rank, uint32_t index, const struct sim_side *side,
		    uint64_t ready, uint32_t from)
{
	struct sim_counter *c = counter_of(s, rank, side->when);
	struct sim_watcher *w;
	uint32_t i, *link;

	if (!c)
		return -ENOMEM;
	if (c->value >= side->value)
		return sim_op_of(s, sim_rank_of(s, rank), index)->type == GOAL_TEST ?
			       trigger(s, rank, index, ready, 0, from) :
			       push(s, SIM_EVENT_CARD, rank, index, ready, from);
	i = sim_pool_get(&s->watchers);
	if (!i)
		return -ENOMEM;
	w = sim_pool_at(&s->watchers, i);
	*w = (struct sim_watcher){ .op = index, .value = side->value, .ready = ready };
	for (link = &c->first; *link;)
		link = &((struct sim_watcher *)sim_pool_at(&s->watchers, *link))->next;
	*link = i;
	return 0;
}

/* ---- entries ----------------------------------------------------------------------------- */

enum { PRIORITY, OVERFLOW, HEADERS };

static int add_entry(struct sim *s, uint32_t rank, int list, const struct sim_entry *entry)
{
	uint32_t i = sim_pool_get(&s->entries), *link = &s->cards[rank].first[list];
	struct sim_entry *to;

	if (!i)
		return -ENOMEM;
	to = sim_pool_at(&s->entries, i);
	*to = *entry;
	to->next = SIM_NONE;
	while (*link)
		link = &((struct sim_entry *)sim_pool_at(&s->entries, *link))->next;
	*link = i;
	return 0;
}

static bool fits(const struct sim_entry *entry, uint32_t peer, uint32_t tag)
{
	return (entry->peer == GOAL_ANY || peer == GOAL_ANY || entry->peer == peer) &&
	       (entry->tag == GOAL_ANY || tag == GOAL_ANY || entry->tag == tag);
}

/* Finds the first entry that matches; an entry that accepts one message is removed. */
static bool match_entry(struct sim *s, uint32_t rank, int list, uint32_t peer, uint32_t tag,
			struct sim_entry *out)
{
	uint32_t *link = &s->cards[rank].first[list], i;

	for (; (i = *link) != SIM_NONE;
	     link = &((struct sim_entry *)sim_pool_at(&s->entries, i))->next) {
		*out = *(struct sim_entry *)sim_pool_at(&s->entries, i);
		if (!fits(out, peer, tag))
			continue;
		if (out->options & GOAL_ONCE) {
			*link = out->next;
			sim_pool_put(&s->entries, i);
		}
		return true;
	}
	return false;
}

/* Increments the counters of an entry D after `done`. */
static int append(struct sim *s, uint32_t rank, const struct sim_op *op, uint64_t done,
		  uint32_t from)
{
	const struct sim_side *side = side_of(s, op);
	struct sim_entry entry = { .peer = op->peer == GOAL_ANY ? GOAL_ANY : sim_peer(s, rank, op),
				   .tag = side->tag,
				   .counter = side->counter,
				   .options = side->options },
			 header;
	bool is_overflow = side->options & GOAL_OVERFLOW, once = side->options & GOAL_ONCE,
	     is_matched = false;
	int rc = 0;

	while (!is_overflow && !rc && !(is_matched && once) &&
	       match_entry(s, rank, HEADERS, entry.peer, entry.tag, &header)) {
		is_matched = true;
		rc = count_at(s, rank, side->counter, done + DMA_PS, from);
	}
	return rc || (is_matched && once)
		       ? rc
		       : add_entry(s, rank, is_overflow ? OVERFLOW : PRIORITY, &entry);
}

/* ---- cards ------------------------------------------------------------------------------- */

static uint64_t bytes_of(const struct sim_op *op) { return is_get(op) ? REQUEST_BYTES : op->bytes; }

int sim_card_begin(struct sim *s, uint32_t rank, uint32_t index, const struct sim_op *op,
		   uint64_t end, uint32_t from)
{
	if (!s->cards) {
		s->cards = calloc(s->config.ranks, sizeof(*s->cards));
		if (!s->cards)
			return -ENOMEM;
	}
	if (side_of(s, op)->when)
		return wait_for(s, rank, index, side_of(s, op), end, from);
	if (op->type == GOAL_APPEND)
		return append(s, rank, op, end, from);
	return push(s, SIM_EVENT_CARD, rank, index, end + DMA_PS, from);
}

int sim_card_send(struct sim *s, struct sim_event *e)
{
	struct sim_rank *r = sim_rank_of(s, e->rank);
	const struct sim_op *op = sim_op_of(s, r, e->op);
	const struct sim_costs *p = sim_costs_of(s, op->bytes);
	struct sim_nic *nic = sim_nic_of(s, e->rank, op->nic);
	struct sim_line line = sim_line_of(s, e->rank, SIM_SEND, op->cpu, op->nic);
	int rc;

	if (nic->free_send > e->time)
		return sim_line_wait(s, line, e, nic->free_send);
	nic->last_send = e->from;
	if (op->type == GOAL_TAPPEND) {
		nic->free_send = e->time + CARD_PS;
		rc = append(s, e->rank, op, e->time, e->from);
	} else {
		nic->free_send = e->time + p->gap_ps + sim_byte_cost(p->gap_byte, bytes_of(op));
		rc = is_get(op) ? 0
				: count_at(s, e->rank, side_of(s, op)->counter, e->time + DMA_PS,
					   e->from);
		if (!rc)
			rc = push(s, SIM_EVENT_ARRIVAL, e->rank, e->op, e->time + p->latency_ps,
				  e->from);
		s->stats.messages++;
		s->stats.message_bytes += bytes_of(op);
	}
	return rc ? rc
		  : sim_line_advance(s, line, e, nic->free_send, nic->last_send, SIM_NIC);
}

/* Executes a put or get that matched an entry: increments its counter, sends the answer. */
static int let_in(struct sim *s, struct sim_event *e, const struct sim_op *op, uint32_t rank,
		  struct sim_nic *nic, const struct sim_entry *entry, bool was_overflow)
{
	const struct sim_costs *p = sim_costs_of(s, op->bytes);
	uint64_t done = e->time + sim_byte_cost(p->gap_byte, bytes_of(op)) + CARD_PS;
	struct sim_entry header = { .peer = e->rank,
				    .tag = side_of(s, op)->tag,
				    .options = GOAL_ONCE };
	int rc = was_overflow ? add_entry(s, rank, HEADERS, &header) : 0;

	if (!rc)
		rc = count_at(s, rank, entry->counter, done + DMA_PS, e->from);
	if (rc || !is_get(op))
		return rc;
	nic->free_send = done + p->gap_ps + sim_byte_cost(p->gap_byte, op->bytes);
	nic->last_send = e->from;
	s->stats.messages++;
	s->stats.message_bytes += op->bytes;
	return push(s, SIM_EVENT_ANSWER, e->rank, e->op, done + p->latency_ps, e->from);
}

int sim_card_arrival(struct sim *s, struct sim_event *e)
{
	const struct sim_op *op = sim_op_of(s, sim_rank_of(s, e->rank), e->op);
	const struct sim_costs *p = sim_costs_of(s, op->bytes);
	uint32_t rank = sim_peer(s, e->rank, op);
	struct sim_line line = sim_line_of(s, rank, SIM_RECEIVE, op->cpu, op->nic);
	struct sim_nic *nic = sim_nic_of(s, rank, op->nic);
	uint64_t free_at = is_get(op) ? sim_later(nic->free_recv, nic->free_send) : nic->free_recv;
	uint32_t tag = side_of(s, op)->tag;
	struct sim_entry entry;
	int rc = 0;

	if (free_at > e->time)
		return sim_line_wait(s, line, e, free_at);
	nic->free_recv =
		e->time + sim_byte_cost(p->gap_byte, bytes_of(op)) + sim_later(p->gap_ps, CARD_PS);
	nic->last_recv = e->from;
	if (match_entry(s, rank, PRIORITY, e->rank, tag, &entry))
		rc = let_in(s, e, op, rank, nic, &entry, false);
	else if (match_entry(s, rank, OVERFLOW, e->rank, tag, &entry))
		rc = let_in(s, e, op, rank, nic, &entry, true);
	else
		s->stats.lost++;
	return rc ? rc
		  : sim_line_advance(s, line, e, nic->free_recv, nic->last_recv, SIM_NIC);
}

int sim_card_answer(struct sim *s, struct sim_event *e)
{
	struct sim_rank *r = sim_rank_of(s, e->rank);
	const struct sim_op *op = sim_op_of(s, r, e->op);
	const struct sim_costs *p = sim_costs_of(s, op->bytes);
	struct sim_nic *nic = sim_nic_of(s, e->rank, op->nic);
	struct sim_line line = sim_line_of(s, e->rank, SIM_RECEIVE, op->cpu, op->nic);
	uint64_t bytes_ps = sim_byte_cost(p->gap_byte, op->bytes);
	int rc;

	if (nic->free_recv > e->time)
		return sim_line_wait(s, line, e, nic->free_recv);
	nic->free_recv = e->time + p->gap_ps + bytes_ps;
	nic->last_recv = e->from;
	rc = count_at(s, e->rank, side_of(s, op)->counter, e->time + bytes_ps + CARD_PS + DMA_PS,
		      e->from);
	return rc ? rc
		  : sim_line_advance(s, line, e, nic->free_recv, nic->last_recv, SIM_NIC);
}

void sim_cards_each(const struct sim *s, void (*visit)(void *ctx, uint32_t rank, uint32_t op),
		    void *ctx)
{
	const struct sim_counter *c = NULL;

	while ((c = sim_table_next(&s->counters, c)))
		for (uint32_t k = c->first; k;) {
			const struct sim_watcher *w = sim_pool_at(&s->watchers, k);

			visit(ctx, (uint32_t)(c->key >> 32), w->op);
			k = w->next;
		}
}
