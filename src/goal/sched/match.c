/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matching of messages and receives. Posted receives and unexpected messages lie in buckets by
 * (context, source, tag), whose number grows with what waits. Receives from any source or under any
 * tag lie in one list; for them all unexpected messages lie in one more list. The receive posted
 * first, or the message that came first, wins: receives are numbered, and all lists are in order.
 */
#include "goal/sched/private.h"

#define LONG_LIST 4u /* average length of a list before the number of lists grows */

static uint32_t bucket_count(const struct sched_state *st)
{
	return SCHED_BUCKETS << base_min_u64(st->bucket_shift, SCHED_SHIFT_MAX);
}

static uint32_t bucket_of(const struct sched_driver *d, uint64_t ctx, uint32_t src, uint32_t tag)
{
	uint64_t h = (ctx ^ ((uint64_t)src << 32 | tag)) * 0x9e3779b97f4a7c15ull;

	return (uint32_t)(h >> 40) & (bucket_count(d->st) - 1);
}

static bool is_wild(const struct goal_op *recv)
{
	return recv->peer == GOAL_ANY || recv->tag == GOAL_ANY;
}

static bool matches(const struct goal_op *recv, uint32_t src, uint32_t tag)
{
	return (recv->peer == src || recv->peer == GOAL_ANY) &&
	       (recv->tag == tag || recv->tag == GOAL_ANY);
}

/* ---- receives ---------------------------------------------------------------------------- */

static struct sched_list *posted_list(struct sched_driver *d, const struct sched_inst *s,
				      const struct goal_op *recv)
{
	if (is_wild(recv))
		return &d->st->posted_any;
	return &d->st->posted[bucket_of(d, s->body->ctx, recv->peer, recv->tag)];
}

/* The first receive of a list that matches. */
static sched_opref first_of(struct sched_driver *d, const struct sched_list *l, uint64_t ctx,
			    uint32_t src, uint32_t tag, uint64_t *out_post)
{
	struct sched_inst *s;
	struct sched_op *op;

	for (sched_opref ref = l->head; ref; ref = op->next) {
		op = op_at(d, ref, &s);
		if (!op)
			break;
		if (s->body->ctx == ctx && matches(inst_goal(s, (uint32_t)ref), src, tag)) {
			*out_post = op->post;
			return ref;
		}
	}
	return 0;
}

/* ---- messages ---------------------------------------------------------------------------- */

static struct sched_msg *msg_at(struct sched_driver *d, sched_ref ref)
{
	return ref ? ref_at(d->g, ref, sizeof(struct sched_msg)) : NULL;
}

static struct sched_list *unexpected_list(struct sched_driver *d, const struct sched_msg *m)
{
	return &d->st->unexpected_bucket[bucket_of(d, m->ctx, m->src, m->tag)];
}

static void push_to_bucket(struct sched_driver *d, struct sched_msg *m, sched_ref ref)
{
	struct sched_list *bucket = unexpected_list(d, m);
	struct sched_msg *last = msg_at(d, bucket->tail);

	m->next = 0;
	m->prev = bucket->tail;
	*(last ? &last->next : &bucket->head) = ref;
	bucket->tail = ref;
}

/* Each list is dealt out to lists of its own, so that all stay in order. */
static void grow(struct sched_driver *d)
{
	struct sched_state *st = d->st;
	uint32_t before = bucket_count(st);
	struct sched_inst *s;
	struct sched_op *op;
	struct sched_msg *m;

	st->bucket_shift += 2;
	for (uint32_t b = 0; b < before; b++) {
		sched_opref ref = st->posted[b].head, next;
		sched_ref at = st->unexpected_bucket[b].head, behind;

		st->posted[b] = st->unexpected_bucket[b] = (struct sched_list){ 0 };
		for (; ref && (op = op_at(d, ref, &s)) != NULL; ref = next) {
			next = op->next;
			list_push(d, posted_list(d, s, inst_goal(s, (uint32_t)ref)), ref, op);
		}
		for (; (m = msg_at(d, at)) != NULL; at = behind) {
			behind = m->next;
			push_to_bucket(d, m, at);
		}
	}
}

static void grow_if_long(struct sched_driver *d, uint32_t count)
{
	if (base_unlikely(count > LONG_LIST * bucket_count(d->st)) &&
	    d->st->bucket_shift < SCHED_SHIFT_MAX)
		grow(d);
}

void match_post(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	struct sched_op *op = &s->ops[i];

	op->state = OP_POSTED;
	op->post = ++d->st->posts;
	grow_if_long(d, ++d->st->posted_count);
	list_push(d, posted_list(d, s, inst_goal(s, i)), opref_of(s->slot, i), op);
}

void match_add_unexpected(struct sched_driver *d, struct sched_msg *m, sched_ref ref)
{
	struct sched_list *all = &d->st->unexpected;
	struct sched_msg *last = msg_at(d, all->tail);

	grow_if_long(d, ++d->st->unexpected_count);
	push_to_bucket(d, m, ref);
	m->all_next = 0;
	m->all_prev = all->tail;
	*(last ? &last->all_next : &all->head) = ref;
	all->tail = ref;
}

/* An empty state uses few lists again, which a cache holds. */
static void shrink_if_empty(struct sched_state *st)
{
	if (!st->posted_count && !st->unexpected_count)
		st->bucket_shift = 0;
}

static void remove_unexpected(struct sched_driver *d, struct sched_msg *m)
{
	struct sched_list *bucket = unexpected_list(d, m), *all = &d->st->unexpected;
	struct sched_msg *prev = msg_at(d, m->prev), *next = msg_at(d, m->next);

	*(prev ? &prev->next : &bucket->head) = m->next;
	*(next ? &next->prev : &bucket->tail) = m->prev;
	prev = msg_at(d, m->all_prev);
	next = msg_at(d, m->all_next);
	*(prev ? &prev->all_next : &all->head) = m->all_next;
	*(next ? &next->all_prev : &all->tail) = m->all_prev;
	d->st->unexpected_count--;
	shrink_if_empty(d->st);
}

void match_unpost(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	list_remove(d, posted_list(d, s, inst_goal(s, i)), &s->ops[i]);
	d->st->posted_count--;
	shrink_if_empty(d->st);
}

sched_opref match_receive(struct sched_driver *d, uint64_t ctx, uint32_t src, uint32_t tag)
{
	struct sched_list *exact = &d->st->posted[bucket_of(d, ctx, src, tag)];
	struct sched_list *wild = &d->st->posted_any;
	uint64_t post = UINT64_MAX, wild_post = UINT64_MAX;
	sched_opref ref = exact->head ? first_of(d, exact, ctx, src, tag, &post) : 0;
	sched_opref other = wild->head ? first_of(d, wild, ctx, src, tag, &wild_post) : 0;
	bool is_other = other && wild_post < post;
	struct sched_inst *s;
	struct sched_op *op;

	if (is_other)
		ref = other;
	op = ref ? op_at(d, ref, &s) : NULL;
	if (!op)
		return 0;
	list_remove(d, is_other ? wild : exact, op);
	d->st->posted_count--;
	shrink_if_empty(d->st);
	return ref;
}

struct sched_msg *match_message(struct sched_driver *d, uint64_t ctx, const struct goal_op *recv,
				sched_ref *out)
{
	bool wild = is_wild(recv);
	struct sched_list *l =
		wild ? &d->st->unexpected
		     : &d->st->unexpected_bucket[bucket_of(d, ctx, recv->peer, recv->tag)];
	struct sched_msg *m;

	for (sched_ref ref = l->head; (m = msg_at(d, ref)) != NULL;
	     ref = wild ? m->all_next : m->next) {
		if (m->ctx != ctx || !matches(recv, m->src, m->tag))
			continue;
		remove_unexpected(d, m);
		*out = ref;
		return m;
	}
	return NULL;
}

void match_drop(struct sched_driver *d, uint64_t ctx, uint32_t src)
{
	struct sched_msg *m;
	sched_ref next;

	for (sched_ref ref = d->st->unexpected.head; (m = msg_at(d, ref)) != NULL; ref = next) {
		next = m->all_next;
		if (m->ctx != ctx || m->src != src)
			continue;
		remove_unexpected(d, m);
		/* its run has failed: its sender waits for no reply */
		if (m->kind != SCHED_ANNOUNCED)
			msg_release(d, m, ref);
	}
}
