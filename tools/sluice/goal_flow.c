/* SPDX-License-Identifier: BSD-3-Clause */
#include "goal_flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { ANY_SOURCE = 1, ANY_TAG = 2, ANY_BOTH = 4 };

const struct goal_op *goal_flow_op(const struct goal_flow *f, uint32_t op, uint32_t *out_rank)
{
	*out_rank = f->rank[op];
	return &goal_ops_const(goal_program_block(f->program, *out_rank))[op - f->first[*out_rank]];
}

/* ---- classes ---------------------------------------------------------------------------- */

static uint32_t hash_of(uint32_t dst, uint32_t src, uint32_t tag)
{
	uint64_t h = (uint64_t)dst << 32 | src;

	h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ull + tag;
	h = (h ^ h >> 32) * 0x94d049bb133111ebull;
	return (uint32_t)(h >> 32);
}

static struct goal_flow_class *find(const struct goal_flow *f, uint32_t dst, uint32_t src,
				    uint32_t tag)
{
	for (uint32_t at = hash_of(dst, src, tag) & f->mask; f->slots[at];
	     at = (at + 1) & f->mask) {
		struct goal_flow_class *c = &f->classes[f->slots[at] - 1];

		if (c->dst == dst && c->src == src && c->tag == tag)
			return c;
	}
	return NULL;
}

static void put_in_slot(struct goal_flow *f, uint32_t index)
{
	const struct goal_flow_class *c = &f->classes[index];
	uint32_t at = hash_of(c->dst, c->src, c->tag) & f->mask;

	while (f->slots[at])
		at = (at + 1) & f->mask;
	f->slots[at] = index + 1;
}

static int grow(struct goal_flow *f)
{
	uint32_t cap = f->class_cap ? f->class_cap * 2 : 1024, *slots;
	struct goal_flow_class *classes;

	if (f->class_cap > UINT32_MAX / 8)
		return -ENOMEM;
	classes = realloc(f->classes, cap * sizeof *classes);
	if (!classes)
		return -ENOMEM;
	f->classes = classes;
	slots = calloc(cap * 2ull, sizeof *slots);
	if (!slots)
		return -ENOMEM;
	free(f->slots);
	f->slots = slots;
	f->class_cap = cap;
	f->mask = cap * 2 - 1;
	for (uint32_t i = 0; i < f->class_count; i++)
		put_in_slot(f, i);
	return 0;
}

/* Finds or makes a class. Returns: NULL: out of memory. */
static struct goal_flow_class *class_of(struct goal_flow *f, uint32_t dst, uint32_t src,
					uint32_t tag)
{
	struct goal_flow_class *c = find(f, dst, src, tag);

	if (c)
		return c;
	if (f->class_count == f->class_cap && grow(f))
		return NULL;
	f->classes[f->class_count] = (struct goal_flow_class){ dst,       src,       tag,
							       GOAL_NONE, GOAL_NONE, GOAL_NONE,
							       GOAL_NONE };
	put_in_slot(f, f->class_count);
	return &f->classes[f->class_count++];
}

static void append(struct goal_flow *f, uint32_t *head, uint32_t *last, uint32_t op)
{
	f->link[op] = GOAL_NONE;
	*(*head == GOAL_NONE ? head : &f->link[*last]) = op;
	*last = op;
}

/* ---- what a rank that receives from any has not taken yet ------------------------------- */

static void arrived_in_order(struct goal_flow *f, uint32_t dst, uint32_t op)
{
	if (!f->wildcards[dst])
		return;
	f->before[op] = f->rank_last[dst];
	f->after[op] = GOAL_NONE;
	*(f->rank_last[dst] == GOAL_NONE ? &f->rank_first[dst] : &f->after[f->rank_last[dst]]) = op;
	f->rank_last[dst] = op;
}

static void remove_in_order(struct goal_flow *f, uint32_t dst, uint32_t op)
{
	if (!f->wildcards[dst])
		return;
	*(f->before[op] == GOAL_NONE ? &f->rank_first[dst] : &f->after[f->before[op]]) =
		f->after[op];
	*(f->after[op] == GOAL_NONE ? &f->rank_last[dst] : &f->before[f->after[op]]) =
		f->before[op];
}

/* ---- matching --------------------------------------------------------------------------- */

static bool is_any(const struct goal_op *recv)
{
	return recv->peer == GOAL_ANY || recv->tag == GOAL_ANY;
}

/* Removes and returns the first unexpected message that matches this receive of rank dst;
 * GOAL_NONE: none. */
static uint32_t dequeue_message(struct goal_flow *f, uint32_t dst, const struct goal_op *recv)
{
	struct goal_flow_class *c;
	const struct goal_op *send;
	uint32_t op, src;

	if (is_any(recv)) {
		for (op = f->rank_first[dst]; op != GOAL_NONE; op = f->after[op]) {
			send = goal_flow_op(f, op, &src);
			if ((recv->peer == GOAL_ANY || recv->peer == src) &&
			    (recv->tag == GOAL_ANY || recv->tag == send->tag))
				break;
		}
		if (op == GOAL_NONE)
			return op;
		c = find(f, dst, src, send->tag);
	} else {
		c = find(f, dst, recv->peer, recv->tag);
	}
	if (!c || c->arrived == GOAL_NONE)
		return GOAL_NONE;
	/* the first that matches is the first of its class */
	op = c->arrived;
	c->arrived = f->link[op];
	remove_in_order(f, dst, op);
	return op;
}

/* Removes and returns the first posted receive that matches this message; GOAL_NONE: none. */
static uint32_t dequeue_receive(struct goal_flow *f, uint32_t src, const struct goal_op *send)
{
	uint8_t any = f->wildcards[send->peer];
	struct goal_flow_class *candidates[4] = {
		find(f, send->peer, src, send->tag),
		any & ANY_SOURCE ? find(f, send->peer, GOAL_ANY, send->tag) : NULL,
		any & ANY_TAG ? find(f, send->peer, src, GOAL_ANY) : NULL,
		any & ANY_BOTH ? find(f, send->peer, GOAL_ANY, GOAL_ANY) : NULL,
	}, *best = NULL;
	uint32_t op;

	for (int i = 0; i < 4; i++)
		if (candidates[i] && candidates[i]->posted != GOAL_NONE &&
		    (!best || f->order[candidates[i]->posted] < f->order[best->posted]))
			best = candidates[i];
	if (!best)
		return GOAL_NONE;
	op = best->posted;
	best->posted = f->link[op];
	return op;
}

/* ---- running ---------------------------------------------------------------------------- */

static void release(struct goal_flow *f, uint32_t rank, uint32_t next, uint32_t count)
{
	const uint32_t *list = goal_adjacency(goal_program_block(f->program, rank)) + next;

	for (uint32_t k = 0; k < count; k++)
		if (!--f->remaining[f->first[rank] + list[k]])
			f->queue[f->queue_tail++] = f->first[rank] + list[k];
}

static void end(struct goal_flow *f, uint32_t op)
{
	uint32_t rank;
	const struct goal_op *o = goal_flow_op(f, op, &rank);

	f->state[op] = GOAL_FLOW_ENDED;
	f->ended++;
	release(f, rank, o->next, o->next_count);
}

static void match(struct goal_flow *f, uint32_t send, uint32_t recv, uint64_t bytes)
{
	f->partner[send] = recv;
	f->partner[recv] = send;
	f->messages++;
	f->bytes += bytes;
	end(f, recv);
	if (f->state[send] == GOAL_FLOW_BEGUN)
		end(f, send);
}

static int begin_send(struct goal_flow *f, uint32_t op, uint32_t rank, const struct goal_op *o)
{
	uint32_t recv = dequeue_receive(f, rank, o);
	struct goal_flow_class *c;

	if (!f->rendezvous)
		end(f, op);
	if (recv != GOAL_NONE) {
		match(f, op, recv, o->bytes);
		return 0;
	}
	c = class_of(f, o->peer, rank, o->tag);
	if (!c)
		return -ENOMEM;
	append(f, &c->arrived, &c->arrived_last, op);
	arrived_in_order(f, o->peer, op);
	return 0;
}

static int begin_recv(struct goal_flow *f, uint32_t op, uint32_t rank, const struct goal_op *o)
{
	uint32_t send = dequeue_message(f, rank, o);
	struct goal_flow_class *c;

	if (send != GOAL_NONE) {
		match(f, send, op, o->bytes);
		return 0;
	}
	c = class_of(f, rank, o->peer, o->tag);
	if (!c)
		return -ENOMEM;
	append(f, &c->posted, &c->posted_last, op);
	return 0;
}

static int begin(struct goal_flow *f, uint32_t op)
{
	uint32_t rank;
	const struct goal_op *o = goal_flow_op(f, op, &rank);

	f->state[op] = GOAL_FLOW_BEGUN;
	f->order[op] = f->began++;
	release(f, rank, o->inext, o->inext_count);
	if (o->type == GOAL_SEND)
		return begin_send(f, op, rank, o);
	if (o->type == GOAL_RECV)
		return begin_recv(f, op, rank, o);
	end(f, op);
	return 0;
}

/* ---- before and after ------------------------------------------------------------------- */

static int number(struct goal_flow *f)
{
	const struct goal_program *p = f->program;
	uint64_t count = 0;

	f->first = malloc((p->ranks + 1ull) * sizeof *f->first);
	f->wildcards = calloc(p->ranks, 1);
	if (!f->first || !f->wildcards)
		return -ENOMEM;
	for (uint32_t r = 0; r < p->ranks; r++) {
		f->first[r] = (uint32_t)count;
		count += goal_program_block(p, r)->op_count;
		if (count >= GOAL_NONE)
			return -EOVERFLOW;
	}
	f->first[p->ranks] = f->op_count = (uint32_t)count;
	return 0;
}

static void *array(uint64_t count)
{
	return malloc(count * sizeof(uint32_t) + 1);
}

static int make_lists(struct goal_flow *f)
{
	uint64_t n = f->op_count;

	f->rank = array(n);
	f->remaining = array(n);
	f->partner = array(n);
	f->order = calloc(n + 1, sizeof *f->order);
	f->queue = array(n);
	f->link = array(n);
	f->state = calloc(n + 1, 1);
	if (!f->rank || !f->remaining || !f->partner || !f->order || !f->queue || !f->link ||
	    !f->state)
		return -ENOMEM;
	return grow(f);
}

static int make_any_lists(struct goal_flow *f)
{
	f->before = array(f->op_count);
	f->after = array(f->op_count);
	f->rank_first = array(f->program->ranks);
	f->rank_last = array(f->program->ranks);
	if (!f->before || !f->after || !f->rank_first || !f->rank_last)
		return -ENOMEM;
	for (uint32_t r = 0; r < f->program->ranks; r++)
		f->rank_first[r] = f->rank_last[r] = GOAL_NONE;
	return 0;
}

static void init_rank(struct goal_flow *f, uint32_t rank)
{
	const struct goal_block *b = goal_program_block(f->program, rank);

	for (uint32_t i = 0; i < b->op_count; i++) {
		const struct goal_op *o = &goal_ops_const(b)[i];
		uint32_t op = f->first[rank] + i;

		f->rank[op] = rank;
		f->remaining[op] = o->requires;
		f->partner[op] = GOAL_NONE;
		if (!o->requires)
			f->queue[f->queue_tail++] = op;
		if (o->type != GOAL_RECV || !is_any(o))
			continue;
		f->any_count++;
		f->wildcards[rank] |= o->tag != GOAL_ANY    ? ANY_SOURCE
				      : o->peer != GOAL_ANY ? ANY_TAG
							    : ANY_BOTH;
	}
}

int goal_flow_run(struct goal_flow *f, const struct goal_program *p, bool rendezvous)
{
	int ret;

	*f = (struct goal_flow){ .program = p, .rendezvous = rendezvous };
	ret = number(f);
	if (!ret)
		ret = make_lists(f);
	for (uint32_t r = 0; r < p->ranks && !ret; r++)
		init_rank(f, r);
	if (!ret && f->any_count)
		ret = make_any_lists(f);
	while (!ret && f->queue_head < f->queue_tail)
		ret = begin(f, f->queue[f->queue_head++]);
	if (ret)
		goal_flow_free(f);
	return ret;
}

void goal_flow_free(struct goal_flow *f)
{
	void *const all[] = { f->first,     f->rank,  f->remaining,  f->partner,
			      f->order,     f->state, f->queue,      f->link,
			      f->before,    f->after, f->rank_first, f->rank_last,
			      f->wildcards, f->slots, f->why,        f->classes };

	for (size_t i = 0; i < BASE_ARRAY_LEN(all); i++)
		free(all[i]);
	*f = (struct goal_flow){ 0 };
}

/* ---- why -------------------------------------------------------------------------------- */

/* An operation that waits, and an operation of the same rank that it requires. */
static void explain_requirements(struct goal_flow *f, uint32_t rank)
{
	const struct goal_block *b = goal_program_block(f->program, rank);
	const uint32_t *list = goal_adjacency(b);

	for (uint32_t i = b->op_count; i-- > 0;) {
		const struct goal_op *o = &goal_ops_const(b)[i];
		uint32_t op = f->first[rank] + i;

		for (uint32_t k = 0; k < o->next_count && f->state[op] != GOAL_FLOW_ENDED; k++)
			f->why[f->first[rank] + list[o->next + k]] = op;
		for (uint32_t k = 0; k < o->inext_count && f->state[op] == GOAL_FLOW_WAITS; k++)
			f->why[f->first[rank] + list[o->inext + k]] = op;
	}
}

/* Collects sends and receives that never began in the lists of the classes, which are free now. */
static int list_absent(struct goal_flow *f)
{
	f->class_count = 0;
	memset(f->slots, 0, (f->mask + 1ull) * sizeof *f->slots);
	for (uint32_t op = 0; op < f->op_count; op++) {
		struct goal_flow_class *c;
		uint32_t rank;
		const struct goal_op *o;

		if (f->state[op] != GOAL_FLOW_WAITS)
			continue;
		o = goal_flow_op(f, op, &rank);
		if (!goal_is_transfer(o))
			continue;
		c = o->type == GOAL_SEND ? class_of(f, o->peer, rank, o->tag)
					 : class_of(f, rank, o->peer, o->tag);
		if (!c)
			return -ENOMEM;
		if (o->type == GOAL_SEND)
			append(f, &c->arrived, &c->arrived_last, op);
		else
			append(f, &c->posted, &c->posted_last, op);
	}
	return 0;
}

/* Returns: a send that never began and would match a receive from any source. */
static uint32_t any_absent_send(const struct goal_flow *f, uint32_t dst, const struct goal_op *recv)
{
	for (uint32_t i = 0; i < f->class_count; i++) {
		const struct goal_flow_class *c = &f->classes[i];

		if (c->dst == dst && c->arrived != GOAL_NONE &&
		    (recv->peer == GOAL_ANY || recv->peer == c->src) &&
		    (recv->tag == GOAL_ANY || recv->tag == c->tag))
			return c->arrived;
	}
	return GOAL_NONE;
}

static uint32_t absent_partner(struct goal_flow *f, uint32_t op)
{
	const struct goal_flow_class *c;
	uint32_t rank, recv;
	const struct goal_op *o = goal_flow_op(f, op, &rank);

	if (o->type == GOAL_SEND) {
		recv = dequeue_receive(f, rank, o);
		/* restored: other sends may wait for it, too */
		if (recv != GOAL_NONE) {
			uint32_t to;
			const struct goal_op *r = goal_flow_op(f, recv, &to);
			struct goal_flow_class *back = find(f, to, r->peer, r->tag);

			f->link[recv] = back->posted;
			back->posted = recv;
		}
		return recv;
	}
	if (is_any(o))
		return any_absent_send(f, rank, o);
	c = find(f, rank, o->peer, o->tag);
	return c ? c->arrived : GOAL_NONE;
}

int goal_flow_explain(struct goal_flow *f)
{
	f->why = array(f->op_count);
	if (!f->why || list_absent(f))
		return -ENOMEM;
	for (uint32_t op = 0; op < f->op_count; op++)
		f->why[op] = GOAL_NONE;
	for (uint32_t r = 0; r < f->program->ranks; r++)
		explain_requirements(f, r);
	for (uint32_t op = 0; op < f->op_count; op++)
		if (f->state[op] == GOAL_FLOW_BEGUN)
			f->why[op] = absent_partner(f, op);
	return 0;
}
