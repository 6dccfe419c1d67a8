/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An allgather over several nodes. The ranks of each node exchange their parts; then the acting
 * ranks pass the data of the nodes around a ring, and each acting rank broadcasts arriving
 * segments in its node.
 *
 *   received   the data of the previous node, of the node before that ..., except this node's
 *   sent       this node's data, then all received data except the next node's
 *
 * Lengths differ, so the two sequences advance independently.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "hier/hier.h"

/* Position in the sequence of segments that a node sends or receives. */
struct place {
	const struct allgather *a;
	int step, steps;    /* one step for each node */
	bool from_own;      /* step 0 covers this node's own data */
	int member;         /* index of a rank of that node */
	uint64_t at;        /* offset in that rank's part */
	uint64_t index;     /* number of earlier segments */
};

struct allgather {
	struct flow *f;
	char *at;                    /* receive buffer, or its packed form; NULL after an error */
	const struct coll_part *parts; /* part of each rank in `at` */
	struct coll_part whole, *near; /* parts of the ranks of this node */
	struct coll_call call, down;   /* inside the node: exchange of own parts; broadcast of
				          arrivals */
	struct place recv, expect, send;
	struct post recvs[HIER_SLOTS], sends[HIER_SLOTS];
	int before, after;           /* acting ranks of the neighbours in the ring */
};

/* ---- the order --------------------------------------------------------------------------- */

static int node_at(const struct place *p)
{
	const struct flow *f = p->a->f;
	int step = p->step - p->from_own;

	return step < 0 ? f->node : hier_ring_from(f->l->nodes, f->node, step);
}

static int rank_at(const struct place *p)
{
	return hier_node_ranks(p->a->f->l, node_at(p))[p->member];
}

static bool is_end(const struct place *p) { return p->step >= p->steps; }

/* Returns: bytes of a rank's part, by facts that all ranks share; valid after errors, too. */
static uint64_t bytes_of(const struct flow *f, int rank)
{
	const struct coll_op *t = f->t;

	if (t->args.kind == COLL_ALLGATHER)
		return t->bytes;
	return (uint64_t)(list_get(t->args.recv.counts, rank) * t->recv.shape.size);
}

static uint64_t length_at(const struct place *p)
{
	return base_min_u64(bytes_of(p->a->f, rank_at(p)) - p->at, p->a->f->s->segment_bytes);
}

/* Skips ranks without data. */
static void settle(struct place *p)
{
	while (!is_end(p) && p->at >= bytes_of(p->a->f, rank_at(p))) {
		p->at = 0;
		if (++p->member == hier_node_size(p->a->f->l, node_at(p))) {
			p->member = 0;
			p->step++;
		}
	}
}

static void advance(struct place *p)
{
	p->at += length_at(p);
	p->index++;
	settle(p);
}

static struct place place_first(const struct allgather *a, bool from_own)
{
	struct place p = { .a = a, .steps = a->f->l->nodes - 1, .from_own = from_own };

	settle(&p);
	return p;
}

static char *segment(const struct place *p)
{
	return p->a->at ? p->a->at + p->a->parts[rank_at(p)].off + p->at : p->a->f->s->dummy;
}

/* ---- buffers ----------------------------------------------------------------------------- */

static int open_buffers(struct allgather *a)
{
	struct flow *f = a->f;
	const struct coll_call *call = &f->t->call;
	const struct coll_part *own = &a->parts[f->t->cs->rank];
	int err = flow_open(f, false, 0);

	if (!err && call->in_place && call->recv.buf.pack)
		err = call->recv.buf.pack(call->recv.buf.ctx, own->off, own->bytes,
					  f->bufs.recv + own->off);
	a->at = f->bufs.recv;
	return err;
}

static int begin_inside(struct allgather *a)
{
	struct flow *f = a->f;
	const struct coll_call *call = &f->t->call;
	int n = hier_node_size(f->l, f->node);

	a->near = malloc((size_t)n * sizeof(*a->near));
	if (!a->near)
		return -ENOMEM;
	for (int i = 0; i < n; i++)
		a->near[i] = a->parts[hier_node_ranks(f->l, f->node)[i]];
	a->call = flow_call(f, call->kind);
	a->call.in_place = call->in_place;
	a->call.bytes = call->bytes;
	a->call.send = call->send;
	if (call->send.buf.pack)
		a->call.send.buf = (struct coll_buf){ .addr = f->bufs.send,
						      .bytes = f->bufs.send_bytes };
	a->call.recv = (struct coll_side){ .buf = { .addr = a->at,
						    .bytes = f->bufs.recv_bytes,
						    .is_shared = !call->recv.buf.pack &&
								 call->recv.buf.is_shared },
					   .parts = a->near,
					   .count = n };
	a->down = flow_call(f, COLL_BCAST);
	a->down.bytes = f->bufs.recv_bytes;
	a->down.send = flow_side(a->at, a->down.bytes, &a->whole);
	a->down.send.buf.is_shared = a->call.recv.buf.is_shared;
	return rt_pieces_begin(f->s->local, &a->down, f->s->segment_bytes, &f->inside);
}

/* The ranks of this node exchange their parts. */
static int exchange_near(struct allgather *a)
{
	struct flow *f = a->f;
	int ret;

	if (!f->s->local)
		return flow_copy_own(f);
	ret = rt_collective(f->s->local, &a->call);
	if (!ret) /* the exchange may have detached; the ring sends its result */
		rt_complete_range(a->at, f->bufs.recv_bytes);
	return ret;
}

static void begin(struct allgather *a, struct flow *f)
{
	int err;

	*a = (struct allgather){
		.f = f,
		.parts = f->t->call.recv.parts,
		.before = hier_acting(f->l, (f->node + f->l->nodes - 1) % f->l->nodes, -1),
		.after = hier_acting(f->l, (f->node + 1) % f->l->nodes, -1),
	};
	err = open_buffers(a);
	if (!err && f->s->local)
		err = begin_inside(a);
	if (!err)
		err = exchange_near(a);
	if (err) {
		flow_note_error(f, err);
		a->at = NULL;
	}
	a->recv = a->expect = place_first(a, false);
	a->send = place_first(a, true);
}

/* ---- the ring ---------------------------------------------------------------------------- */

/* The other ranks of the node get the segments in the order of receiving. */
static void pass_inside(struct allgather *a, const struct place *p)
{
	uint64_t off = a->at ? (uint64_t)(segment(p) - a->at) : 0;

	flow_run(a->f, a->f->inside, off, 0, length_at(p));
}

static void expect(struct allgather *a)
{
	for (; !is_end(&a->expect) && a->expect.index < a->recv.index + HIER_SLOTS;
	     advance(&a->expect))
		flow_recv(a->f, &a->recvs[a->expect.index % HIER_SLOTS], segment(&a->expect),
			  length_at(&a->expect), a->before, FLOW_DOWN);
}

/* A node can send its own data and the segments that have arrived. */
static bool can_send(const struct allgather *a, const struct place *own_end)
{
	return !is_end(&a->send) &&
	       (!a->send.step || a->send.index - own_end->index < a->recv.index);
}

/* Runs the ring until everything is received and sent. The last received segment stays for the
 * caller to pass on. */
static void run_ring(struct allgather *a, struct place *last)
{
	struct place own_end = a->send;

	while (!own_end.step)
		advance(&own_end);
	while (!is_end(&a->recv) || !is_end(&a->send)) {
		struct post *in = &a->recvs[a->recv.index % HIER_SLOTS],
			    *out = &a->sends[a->send.index % HIER_SLOTS];

		expect(a);
		if (can_send(a, &own_end) && !out->is_active) {
			flow_send(a->f, out, segment(&a->send), length_at(&a->send), a->after,
				  FLOW_DOWN);
			advance(&a->send);
			continue;
		}
		flow_wait_any(a->f, is_end(&a->recv) ? NULL : in,
			      can_send(a, &own_end) ? out : NULL);
		if (is_end(&a->recv) || in->is_active)
			continue;
		*last = a->recv;
		advance(&a->recv);
		if (!is_end(&a->recv))
			pass_inside(a, last);
	}
}

/* A rank that does not act gets each segment from the acting rank. */
static void receive_near(struct allgather *a, struct place *last)
{
	while (!is_end(&a->recv)) {
		*last = a->recv;
		advance(&a->recv);
		if (!is_end(&a->recv))
			pass_inside(a, last);
	}
}

void hier_allgather(struct flow *f)
{
	struct allgather a;
	struct place last;
	bool has_last;

	begin(&a, f);
	has_last = !is_end(&a.recv);
	if (f->acts) {
		run_ring(&a, &last);
		for (int i = 0; i < HIER_SLOTS; i++)
			flow_wait(f, &a.sends[i]);
		flow_status(f, f->children, f->child_count, &f->parent, f->parent >= 0);
		flow_status(f, &f->parent, f->parent >= 0, f->children, f->child_count);
	} else {
		receive_near(&a, &last);
	}
	if (has_last) /* the status precedes the last segment inside the node */
		pass_inside(&a, &last);
	flow_close(f);
	free(a.near);
}
