/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Matching of messages and receives. Posted receives and unexpected messages lie in buckets by
 * (context, source, tag). Receives from any source or under any tag lie in one list; for them all
 * unexpected messages lie in one more list. The receive posted first, or the message that came
 * first, wins: receives are numbered, and all lists are in order.
 */
#include "goal/sched/private.h"

uint32_t match_hash(uint64_t ctx, uint32_t src, uint32_t tag)
{
	uint64_t h = (ctx ^ ((uint64_t)src << 32 | tag)) * 0x9e3779b97f4a7c15ull;

	return (uint32_t)(h >> 40) % SCHED_BUCKETS;
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
	return &d->st->posted[match_hash(s->body->ctx, recv->peer, recv->tag)];
}

void match_post(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	struct sched_op *op = &s->ops[i];

	op->state = OP_POSTED;
	op->post = ++d->st->posts;
	list_push(d, posted_list(d, s, inst_goal(s, i)), opref_of(s->slot, i), op);
}

void match_unpost(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	list_remove(d, posted_list(d, s, inst_goal(s, i)), opref_of(s->slot, i), &s->ops[i]);
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

sched_opref match_receive(struct sched_driver *d, uint64_t ctx, uint32_t src, uint32_t tag)
{
	struct sched_list *exact = &d->st->posted[match_hash(ctx, src, tag)];
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
	list_remove(d, is_other ? wild : exact, ref, op);
	return ref;
}

/* ---- messages ---------------------------------------------------------------------------- */

static struct sched_msg *msg_at(struct sched_driver *d, sched_ref ref)
{
	return ref ? ref_at(d->g, ref, sizeof(struct sched_msg)) : NULL;
}

void match_add_unexpected(struct sched_driver *d, struct sched_msg *m, sched_ref ref)
{
	struct sched_list *bucket = &d->st->unexpected_bucket[match_hash(m->ctx, m->src, m->tag)],
			  *all = &d->st->unexpected;
	struct sched_msg *last = msg_at(d, bucket->tail), *last_all = msg_at(d, all->tail);

	m->next = m->all_next = 0;
	m->prev = bucket->tail;
	m->all_prev = all->tail;
	*(last ? &last->next : &bucket->head) = ref;
	*(last_all ? &last_all->all_next : &all->head) = ref;
	bucket->tail = all->tail = ref;
}

static void remove_unexpected(struct sched_driver *d, struct sched_msg *m)
{
	struct sched_list *bucket = &d->st->unexpected_bucket[match_hash(m->ctx, m->src, m->tag)],
			  *all = &d->st->unexpected;
	struct sched_msg *prev = msg_at(d, m->prev), *next = msg_at(d, m->next);

	*(prev ? &prev->next : &bucket->head) = m->next;
	*(next ? &next->prev : &bucket->tail) = m->prev;
	prev = msg_at(d, m->all_prev);
	next = msg_at(d, m->all_next);
	*(prev ? &prev->all_next : &all->head) = m->all_next;
	*(next ? &next->all_prev : &all->tail) = m->all_prev;
}

struct sched_msg *match_message(struct sched_driver *d, uint64_t ctx, const struct goal_op *recv,
				sched_ref *out)
{
	bool wild = is_wild(recv);
	struct sched_list *l =
		wild ? &d->st->unexpected
		     : &d->st->unexpected_bucket[match_hash(ctx, recv->peer, recv->tag)];
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
