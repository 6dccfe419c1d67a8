/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages from one rank to another: a ring of cache lines for each pair of ranks. The sender's
 * driver writes, the receiver's driver reads. The reader always consumes what has come, so a ring
 * is full for a short time only. An unexpected message stays
 * - announced: in the sender's memory,
 * - eager:     in its record, of which the sender has SCHED_EAGERS for each receiver,
 * - inline:    in a record of the receiver; the sender counts these and announces when they run
 * out.
 */
#include <string.h>

#include "goal/sched/private.h"

#define KIND_SHIFT 56

/*
 * The slot of message n. Processors fetch cache lines in pairs: consecutive messages use slots that
 * are no pair, so that reading one does not take away the line into which the next is written.
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

	if (base_likely(p->out_tail - p->out_head < SCHED_RING))
		return true;
	p->out_head =
		atomic_load_explicit(&ends_of(d->g, (int)dst, d->rank)->head, memory_order_acquire);
	return p->out_tail - p->out_head < SCHED_RING; /* partner: publish_head */
}

static bool has_inline_credit(struct sched_driver *d, uint32_t dst)
{
	struct sched_peer *p = &d->peers[dst];

	if (p->inline_sent - p->inline_credits < SCHED_STORE)
		return true;
	p->inline_credits = atomic_load_explicit(&ends_of(d->g, (int)dst, d->rank)->credits,
						 memory_order_acquire);
	return p->inline_sent - p->inline_credits < SCHED_STORE;
}

/* Returns: the next eager record; NULL when it is in use, then the message is announced. */
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

/* Copies the bytes of a short send. Returns: false when this process does not map them. */
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
		return has_inline_credit(d, op->peer) && (!op->bytes || gather(s, op, slot->data))
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
		m = &s->msgs[op->match];
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
	/* A fence here would wait until the message has reached the other cache. The wake-up that
	 * includes the fence comes later, in state_wake_peers(). */
	if (op->peer != (uint32_t)d->rank) {
		node_wake_relaxed(d->g->node, (int)op->peer);
		p->wake_due = 1;
		d->st->wake_due = 1;
	}
	if (kind != SCHED_ANNOUNCED) {
		op_ended(d, s, i);
		return;
	}
	s->ops[i].state = OP_SENT;
	if (op->bytes <= SCHED_FLAT_BYTES) /* no record was free: the receive may be a flat run's */
		state_mark_computing(&d->g->drivers[op->peer]);
}

/* ---- receiving --------------------------------------------------------------------------- */

static struct sched_slot *peek(struct sched_driver *d, int src)
{
	struct sched_peer *p = &d->peers[src];
	struct sched_slot *slot = ring_of(d->g, d->rank, src) + place_of(p->in_head);

	return atomic_load_explicit(&slot->seq, memory_order_acquire) == p->in_head + 1 ? slot
											: NULL;
}

/* Publishes how far the ring is consumed. Done seldom: each time costs the sender a cache miss. */
static void publish_head(struct sched_driver *d, int src)
{
	struct sched_peer *p = &d->peers[src];
	struct sched_ends *e = ends_of(d->g, d->rank, src);

	p->in_published = p->in_head;
	atomic_store_explicit(&e->credits, p->credits, memory_order_release);
	atomic_store_explicit(&e->head, p->in_head,
			      memory_order_release); /* partner: ring_has_room */
}

static void return_credit(struct sched_driver *d, uint32_t src)
{
	struct sched_peer *p = &d->peers[src];

	p->credits++;
	/* not urgent: a sender without credit announces */
	if (p->credits % SCHED_PUBLISH == 0)
		atomic_store_explicit(&ends_of(d->g, d->rank, (int)src)->credits, p->credits,
				      memory_order_release);
}

void msg_release(struct sched_driver *d, struct sched_msg *m, sched_ref ref)
{
	uint32_t src = m->src; /* read first: the sender may reuse the message once it is pushed */
	sched_ref head;
	_Atomic sched_ref *ended;

	if (src >= (uint32_t)d->g->size) /* no peer of this group wrote it */
		return;
	if (m->kind == SCHED_INLINE) {
		m->next = d->peers[src].store_free;
		d->peers[src].store_free = ref;
		return_credit(d, src);
		return;
	}
	if (m->kind == SCHED_EAGER) {
		atomic_store_explicit(&m->busy, 0, memory_order_release); /* partner: eager_get */
		return;
	}
	ended = &d->g->drivers[src].st->ended;
	head = atomic_load_explicit(ended, memory_order_relaxed);
	do
		m->ended_next = head;
	while (!atomic_compare_exchange_weak_explicit(ended, &head, ref, memory_order_release,
						      memory_order_relaxed));
	/* partner: state_end_sends */
	node_wake(d->g->node, (int)src);
}

/* Copies an unexpected inline message into a record. Returns: NULL when the sender exceeded its
 * credit. */
static struct sched_msg *store_inline(struct sched_driver *d, int src,
				      const struct sched_slot *slot, sched_ref *out)
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

/* The common case: the receive is posted, and no record is needed. */
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

static void deliver(struct sched_driver *d, int src, const struct sched_slot *slot)
{
	uint32_t kind = (uint32_t)(slot->kind_bytes >> KIND_SHIFT);
	sched_opref recv = match_receive(d, slot->ctx, (uint32_t)src, slot->tag);
	struct sched_inst *s = NULL;
	sched_ref ref = slot->msg;
	struct sched_msg *m;

	if (recv)
		op_at(d, recv, &s);
	if (s && kind == SCHED_INLINE && receive_inline(d, s, (uint32_t)recv, slot)) {
		return_credit(d, (uint32_t)src);
		return;
	}
	m = kind == SCHED_INLINE ? store_inline(d, src, slot, &ref) : ref_at(d->g, ref, sizeof *m);
	if (!m || m->src != (uint32_t)src || m->tag != slot->tag || m->kind != kind ||
	    m->ctx != slot->ctx) {
		if (s) /* the slot is not valid: the receive stays posted */
			match_post(d, s, (uint32_t)recv);
		return;
	}
	if (s)
		op_receive(d, s, (uint32_t)recv, m, ref);
	else
		match_add_unexpected(d, m, ref);
}

bool ring_has_message(struct sched_driver *d)
{
	for (int src = 0; src < d->g->size; src++)
		if (peek(d, src))
			return true;
	return false;
}

bool ring_poll(struct sched_driver *d)
{
	bool progress = false;
	bool has_runs = atomic_load_explicit(&d->st->runs, memory_order_relaxed);

	for (int src = 0; src < d->g->size; src++) {
		struct sched_peer *p = &d->peers[src];
		struct sched_slot *slot;

		for (uint32_t n = 0; n < SCHED_RING && (slot = peek(d, src)) != NULL; n++) {
			deliver(d, src, slot);
			p->in_head++;
			if (p->in_head - p->in_published >= SCHED_PUBLISH)
				publish_head(d, src);
			progress = true;
			/* The next message may be the reply to what this rank is about to start.
			 * Polling for it now would take its cache line away from the writer. */
			if (has_runs && !atomic_load_explicit(&d->st->runs, memory_order_relaxed))
				return true;
		}
	}
	return progress;
}
