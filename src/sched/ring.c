/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages from one rank to another: a ring of cache lines for each pair. One writes, who drives
 * the sender; one reads, who drives the receiver. The reader always takes what is there, so a full
 * ring is never for long: a message that has no receive yet
 *   - announced:  stays in the sender's memory and is linked there,
 *   - eager:      stays in its record, of which the sender has a few for each receiver,
 *   - inline:     is stored here; the sender keeps count and announces when the store may be full.
 */
#include <string.h>

#include "sched/private.h"

#define KIND_SHIFT 56

/*
 * The slot of message n. Processors fetch lines in pairs: two messages in a row are not neighbours,
 * or reading the one would take away the line that the next one is being written into.
 */
static uint32_t place_of(uint32_t n)
{
	_Static_assert(SCHED_RING % 2 == 0, "two halves");
	n %= SCHED_RING;
	return n / (SCHED_RING / 2) + n % (SCHED_RING / 2) * 2;
}

/* ---- sending ----------------------------------------------------------------------------- */

bool ring_has_room(struct sched_driver *d, uint32_t dst)
{
	struct sched_peer *p = &d->peers[dst];

	if (base_likely(p->out_tail - p->out_seen < SCHED_RING))
		return true;
	p->out_seen =
		atomic_load_explicit(&ends_of(d->g, (int)dst, d->rank)->head, memory_order_acquire);
	return p->out_tail - p->out_seen < SCHED_RING; /* partner: tell */
}

static bool may_inline(struct sched_driver *d, uint32_t dst)
{
	struct sched_peer *p = &d->peers[dst];

	if (p->inline_sent - p->inline_seen < SCHED_STORE)
		return true;
	p->inline_seen = atomic_load_explicit(&ends_of(d->g, (int)dst, d->rank)->returned,
					      memory_order_acquire);
	return p->inline_sent - p->inline_seen < SCHED_STORE;
}

/* The next record of the round that is free again; one that is not makes this message an announced
 * one. */
static struct sched_eager *eager_get(struct sched_driver *d, uint32_t dst)
{
	struct sched_peer *p = &d->peers[dst];
	struct sched_eager *r = eagers_of(d->g, d->rank, (int)dst) + p->next_eager % SCHED_EAGERS;

	p->next_eager++;
	if (atomic_load_explicit(&r->m.busy, memory_order_acquire)) /* partner: msg_release */
		return NULL;
	atomic_store_explicit(&r->m.busy, 1, memory_order_relaxed);
	return r;
}

/* The bytes of a short send; false: not from this process. */
static bool gather(const struct sched_inst *s, const struct goal_op *op, char *to)
{
	const struct goal_segment *l = goal_segments(s->block) + op->segment;
	char *from;

	if (!op->segment_count) {
		from = inst_addr(s, op->mem, op->off, op->bytes);
		if (from)
			memcpy(to, from, op->bytes);
		return from;
	}
	for (uint32_t k = 0; k < op->segment_count; k++) {
		from = inst_addr(s, l[k].mem, l[k].off, l[k].bytes);
		if (!from)
			return false;
		memcpy(to, from, l[k].bytes);
		to += l[k].bytes;
	}
	return true;
}

static enum sched_kind choose(struct sched_driver *d, struct sched_inst *s,
			      const struct goal_op *op, struct sched_slot *slot,
			      struct sched_eager **out)
{
	struct sched_eager *r;

	if (op->bytes <= SCHED_INLINE_BYTES)
		return may_inline(d, op->peer) && (!op->bytes || gather(s, op, slot->data))
			       ? SCHED_INLINE
			       : SCHED_ANNOUNCED;
	if (op->bytes > SCHED_EAGER_BYTES)
		return SCHED_ANNOUNCED;
	r = eager_get(d, op->peer);
	if (!r)
		return SCHED_ANNOUNCED;
	if (gather(s, op, r->data)) {
		*out = r;
		return SCHED_EAGER;
	}
	atomic_store_explicit(&r->m.busy, 0, memory_order_relaxed);
	return SCHED_ANNOUNCED;
}

static void fill(struct sched_driver *d, struct sched_inst *s, uint32_t i, enum sched_kind kind,
		 struct sched_msg *m)
{
	const struct goal_op *op = inst_goal(s, i);

	m->ctx = s->body->ctx;
	m->bytes = op->bytes;
	m->tag = op->tag;
	m->src = (uint32_t)d->rank;
	m->kind = kind;
	if (kind != SCHED_ANNOUNCED)
		return;
	m->body = s->ref;
	m->op = opref_of(s->slot, i);
	m->mem = op->mem;
	m->off = op->off;
	m->segment = op->segment;
	m->segment_count = op->segment_count;
}

void ring_send(struct sched_driver *d, struct sched_inst *s, uint32_t i)
{
	const struct goal_op *op = inst_goal(s, i);
	struct sched_peer *p = &d->peers[op->peer];
	struct sched_slot *slot = ring_of(d->g, (int)op->peer, d->rank) + place_of(p->out_tail);
	struct sched_eager *eager = NULL;
	struct sched_msg *m = NULL;
	enum sched_kind kind;

	kind = choose(d, s, op, slot, &eager);
	if (kind == SCHED_EAGER)
		m = &eager->m;
	else if (kind == SCHED_ANNOUNCED)
		m = &s->msgs[s->ops[i].send];
	if (m)
		fill(d, s, i, kind, m);
	slot->ctx = s->body->ctx;
	slot->msg = kind == SCHED_EAGER     ? area_ref(d->g, m) :
		    kind == SCHED_ANNOUNCED ? s->ref + (uint64_t)((char *)m - (char *)s->body) :
					      0;
	slot->kind_bytes = (uint64_t)kind << KIND_SHIFT | op->bytes;
	slot->tag = op->tag;
	p->out_tail++;
	p->inline_sent += kind == SCHED_INLINE;
	atomic_store_explicit(&slot->seq, p->out_tail, memory_order_release); /* partner: peek */
	/* A fence would wait until the message has reached the other cache; the one that makes sure
	 * comes when this rank has time, in engine_ring_all(). */
	if (op->peer != (uint32_t)d->rank) {
		node_wake_relaxed(d->g->node, (int)op->peer);
		p->unrung = 1;
		d->e->unrung = 1;
	}
	if (kind == SCHED_ANNOUNCED)
		s->ops[i].state = SCHED_SENT;
	else
		op_ended(d, s, i);
}

/* ---- receiving --------------------------------------------------------------------------- */

static struct sched_slot *peek(struct sched_driver *d, int src)
{
	struct sched_peer *p = &d->peers[src];
	struct sched_slot *slot = ring_of(d->g, d->rank, src) + place_of(p->in_head);

	return atomic_load_explicit(&slot->seq, memory_order_acquire) == p->in_head + 1 ? slot
											: NULL;
}

/* Told now and then only: each time costs the sender a cache miss. */
static void tell(struct sched_driver *d, int src)
{
	struct sched_peer *p = &d->peers[src];
	struct sched_ends *e = ends_of(d->g, d->rank, src);

	p->in_told = p->in_head;
	atomic_store_explicit(&e->returned, p->returned, memory_order_release);
	atomic_store_explicit(&e->head, p->in_head,
			      memory_order_release); /* partner: ring_has_room */
}

static void returned(struct sched_driver *d, uint32_t src)
{
	struct sched_peer *p = &d->peers[src];

	p->returned++;
	/* a sender without credit goes on another way: no hurry */
	if (p->returned % SCHED_PUBLISH == 0)
		atomic_store_explicit(&ends_of(d->g, d->rank, (int)src)->returned, p->returned,
				      memory_order_release);
}

void msg_release(struct sched_driver *d, struct sched_msg *m, sched_ref ref)
{
	uint32_t src = m->src; /* once it is pushed the sender may use it again */
	sched_ref head;
	_Atomic sched_ref *ended;

	if (m->kind == SCHED_INLINE) {
		m->next = d->peers[src].store_free;
		d->peers[src].store_free = ref;
		returned(d, src);
		return;
	}
	if (m->kind == SCHED_EAGER) {
		atomic_store_explicit(&m->busy, 0, memory_order_release); /* partner: eager_get */
		return;
	}
	ended = &d->g->drivers[src].e->ended;
	head = atomic_load_explicit(ended, memory_order_relaxed);
	do
		m->ended_next = head;
	while (!atomic_compare_exchange_weak_explicit(ended, &head, ref, memory_order_release,
						      memory_order_relaxed));
	/* partner: engine_take_ended */
	node_wake(d->g->node, (int)src);
}

/* A record for an inline message; there is one for each that the sender may send. NULL: it lies. */
static struct sched_msg *store(struct sched_driver *d, int src, const struct sched_slot *slot,
			       sched_ref *out)
{
	struct sched_peer *p = &d->peers[src];
	struct sched_stored *r = store_of(d->g, d->rank, src);

	if (p->store_free) {
		*out = p->store_free;
		r = ref_at(d->g, *out, sizeof *r);
		if (!r)
			return NULL;
		p->store_free = r->m.next;
	} else {
		if (p->store_used >= SCHED_STORE)
			return NULL;
		r += p->store_used++;
		*out = area_ref(d->g, r);
	}
	r->m.ctx = slot->ctx;
	r->m.bytes =
		base_min_u64(slot->kind_bytes & ((1ull << KIND_SHIFT) - 1), SCHED_INLINE_BYTES);
	r->m.tag = slot->tag;
	r->m.src = (uint32_t)src;
	r->m.kind = SCHED_INLINE;
	memcpy(r->data, slot->data, SCHED_INLINE_BYTES);
	return &r->m;
}

/* The common case, without any record. */
static bool receive_inline(struct sched_driver *d, struct sched_inst *s, uint32_t i,
			   const struct sched_slot *slot)
{
	const struct goal_op *op = inst_goal(s, i);
	uint64_t bytes = slot->kind_bytes & ((1ull << KIND_SHIFT) - 1);
	char *to;

	if (bytes != op->bytes || op->segment_count || bytes > SCHED_INLINE_BYTES)
		return false;
	if (bytes) {
		to = inst_addr(s, op->mem, op->off, bytes);
		if (!to)
			return false;
		memcpy(to, slot->data, bytes);
	}
	op_ended(d, s, i);
	return true;
}

static void take(struct sched_driver *d, int src, const struct sched_slot *slot)
{
	uint32_t kind = (uint32_t)(slot->kind_bytes >> KIND_SHIFT);
	sched_opref recv = match_find(d, slot->ctx, (uint32_t)src, slot->tag);
	struct sched_inst *s = NULL;
	sched_ref ref = slot->msg;
	struct sched_msg *m;

	if (recv)
		op_at(d, recv, &s);
	if (s && kind == SCHED_INLINE && receive_inline(d, s, (uint32_t)recv, slot)) {
		returned(d, (uint32_t)src);
		return;
	}
	m = kind == SCHED_INLINE ? store(d, src, slot, &ref) : ref_at(d->g, ref, sizeof *m);
	if (!m || m->src != (uint32_t)src || m->tag != slot->tag || m->kind != kind ||
	    m->ctx != slot->ctx) {
		if (s) /* not a message at all */
			match_post(d, s, (uint32_t)recv);
		return;
	}
	if (s)
		op_receive(d, s, (uint32_t)recv, m, ref);
	else
		match_keep(d, m, ref);
}

bool ring_poll(struct sched_driver *d)
{
	bool progress = false, has_runs = d->e->runs;

	for (int src = 0; src < d->g->size; src++) {
		struct sched_peer *p = &d->peers[src];
		struct sched_slot *slot;

		for (uint32_t n = 0; n < SCHED_RING && (slot = peek(d, src)) != NULL; n++) {
			take(d, src, slot);
			p->in_head++;
			if (p->in_head - p->in_told >= SCHED_PUBLISH)
				tell(d, src);
			progress = true;
			/* The next message may be the answer to what this rank is about to start:
			 * looking for it now would only take its line away from who writes it. */
			if (has_runs && !d->e->runs)
				return true;
		}
	}
	return progress;
}
