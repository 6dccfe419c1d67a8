/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce_scatter over several nodes. Each node reduces its contributions for another node, and
 * sends only the sum.
 *
 *   step 0                  for the ranks here: start the sum at the acting rank
 *   step s, of nodes - 1    for the node s places on: send segments to its acting rank; from the
 *                           node s places back: receive segments and add them
 *   at the end              each rank here gets its part of the sum
 *
 * The layout fixes the order of nodes in each sum, so results are equal from run to run. As in an
 * all-to-all, both ends of a step use one order of segments.
 */
#include <string.h>

#include "base/base.h"
#include "hier/hier.h"

struct scattered {
	struct flow *f;
	uint64_t sum_bytes;   /* of the parts of all ranks here */
	char *sum, *out, *in; /* of the acting rank; out and in: HIER_SLOTS segments each */
	struct coll_call up;  /* the reduction inside the node */
	struct coll_part part, sum_part;
	struct post sends[HIER_SLOTS], recvs[HIER_SLOTS];
};

/* A segment of the result of one rank of a node. */
struct unit {
	const struct scattered *d;
	int node, member;
	uint64_t at;    /* offset in that rank's part */
	uint64_t index;
	uint64_t sum_at; /* offset in the node's parts, one after the other */
};

/* By facts that all ranks share; valid after errors, too. */
static uint64_t bytes_of(const struct flow *f, int rank)
{
	const struct coll_op *t = f->t;

	if (t->args.kind == COLL_REDUCE_SCATTER_BLOCK)
		return t->bytes;
	return (uint64_t)list_get(t->args.recv.counts, rank) * t->reduce.element_bytes;
}

static int rank_at(const struct unit *u) { return hier_node_ranks(u->d->f->l, u->node)[u->member]; }
static bool is_end(const struct unit *u)
{
	return u->member >= hier_node_size(u->d->f->l, u->node);
}
static uint64_t length(const struct unit *u)
{
	return base_min_u64(bytes_of(u->d->f, rank_at(u)) - u->at, u->d->f->cut.segment);
}
static uint64_t slot(const struct unit *u) { return u->index % HIER_SLOTS * u->d->f->cut.segment; }
/* Offset in the contribution of each rank. */
static uint64_t offset(const struct unit *u)
{
	return u->d->f->t->call.send.parts[rank_at(u)].off + u->at;
}

static void settle(struct unit *u)
{
	while (!is_end(u) && u->at >= bytes_of(u->d->f, rank_at(u))) {
		u->at = 0;
		u->member++;
	}
}

static void advance(struct unit *u)
{
	u->sum_at += length(u);
	u->at += length(u);
	u->index++;
	settle(u);
}

static struct unit first_of(const struct scattered *d, int node)
{
	struct unit u = { .d = d, .node = node };

	settle(&u);
	return u;
}

/* ---- inside the node --------------------------------------------------------------------- */

/* Reduces to the acting rank, at offset `to` of the sum and the slots behind it. */
static void reduce_near(struct scattered *d, const struct unit *u, uint64_t to)
{
	struct flow *f = d->f;

	if (f->err)
		return;
	if (f->s->local)
		flow_run(f, f->inside, offset(u), to, length(u));
	else
		memcpy(d->sum + to, d->f->bufs.send + offset(u), length(u));
}

/* The acting rank delivers the part of each rank. */
static void deliver(struct scattered *d)
{
	struct flow *f = d->f;
	const struct coll_part *own = f->t->call.recv.parts;
	uint64_t at = 0;
	int n = 0;

	for (int k = 0; k < hier_node_size(f->l, f->node); k++) {
		int rank = hier_node_ranks(f->l, f->node)[k];
		uint64_t bytes = bytes_of(f, rank);

		if (f->acts && rank == f->acting && bytes)
			memcpy(d->f->bufs.recv + own->off, d->sum + at, bytes);
		if (f->acts ? rank != f->acting : rank == f->t->cs->rank) {
			f->parts[n] = (struct coll_part){ f->acts ? at : own->off, bytes };
			f->partners[n++] = f->acts ? k : f->l->place[f->acting];
		}
		at += bytes;
	}
	flow_move(f, f->acts, n);
}

static void end(struct scattered *d)
{
	struct flow *f = d->f;
	struct coll_buf sum = { .addr = d->sum, .bytes = d->sum_bytes };
	struct coll_buf recv = { .addr = f->bufs.recv, .bytes = f->bufs.recv_bytes };
	struct coll_buf none = { 0 };
	int err = f->err ? 0
			 : flow_open_exchanges(f, f->acts ? sum : none, f->acts ? none : recv,
					       d->sum_bytes);

	flow_note_error(f, err);
	if (!f->err)
		deliver(d);
	flow_close(f);
}

/* ---- buffers ----------------------------------------------------------------------------- */

static int begin_inside(struct scattered *d)
{
	struct flow *f = d->f;
	uint64_t gathered = d->sum_bytes + HIER_SLOTS * f->cut.segment;

	d->up = flow_call(f, COLL_REDUCE);
	d->up.send = flow_side(f->bufs.send, f->bufs.send_bytes, &d->part);
	d->up.bytes = f->bufs.send_bytes;
	d->up.reduce = f->t->call.reduce;
	if (f->acts)
		d->up.recv = flow_side(d->sum, gathered, &d->sum_part);
	return f->s->local ? rt_pieces_begin(f->s->local, &d->up, f->cut.segment, &f->inside) : 0;
}

static void begin(struct scattered *d, struct flow *f)
{
	uint64_t slots = HIER_SLOTS * f->cut.segment;
	int err;

	*d = (struct scattered){ .f = f };
	for (int k = 0; k < hier_node_size(f->l, f->node); k++)
		d->sum_bytes += bytes_of(f, hier_node_ranks(f->l, f->node)[k]);
	err = flow_open(f, false, f->acts ? d->sum_bytes + 2 * slots : 0);
	if (!err && f->acts) {
		d->sum = f->bufs.more;
		d->out = d->sum + d->sum_bytes;
		d->in = d->out + slots;
	}
	if (!err)
		err = begin_inside(d);
	flow_note_error(f, err);
}

/* ---- between nodes ----------------------------------------------------------------------- */

static char *passing(const struct scattered *d, char *slots, const struct unit *u)
{
	return slots && !d->f->err ? slots + slot(u) : d->f->s->dummy;
}

static void expect(struct scattered *d, struct unit *u, int from)
{
	struct flow *f = d->f;

	if (!f->acts || is_end(u))
		return;
	flow_recv(f, &d->recvs[u->index % HIER_SLOTS], passing(d, d->in, u), length(u),
		  hier_acting(f->l, from, -1), FLOW_UP);
	advance(u);
}

static void send_unit(struct scattered *d, struct unit *u)
{
	struct flow *f = d->f;
	struct post *p = &d->sends[u->index % HIER_SLOTS];

	flow_wait(f, p);
	reduce_near(d, u, d->sum_bytes + slot(u));
	if (f->acts)
		flow_send(f, p, passing(d, d->out, u), length(u), hier_acting(f->l, u->node, -1),
			  FLOW_UP);
	advance(u);
}

static void add_unit(struct scattered *d, struct unit *u)
{
	struct flow *f = d->f;
	const struct coll_reduce *reduce = &f->t->call.reduce;
	int err = 0;

	flow_wait(f, &d->recvs[u->index % HIER_SLOTS]);
	if (f->acts && !f->err)
		err = reduce->combine(reduce->ctx, d->in + slot(u), d->sum + u->sum_at,
				    length(u) / reduce->element_bytes);
	flow_note_error(f, err);
	advance(u);
}

static void run_step(struct scattered *d, int step)
{
	const struct flow *f = d->f;
	int nodes = f->l->nodes, from = (f->node - step + nodes) % nodes;
	struct unit out = first_of(d, (f->node + step) % nodes), in = first_of(d, f->node),
		    expected = in;

	for (int i = 0; i < HIER_SLOTS; i++)
		expect(d, &expected, from);
	while (!is_end(&out) || !is_end(&in)) {
		if (!is_end(&out))
			send_unit(d, &out);
		if (is_end(&in))
			continue;
		add_unit(d, &in);
		expect(d, &expected, from);
	}
	for (int i = 0; i < HIER_SLOTS; i++)
		flow_wait(d->f, &d->sends[i]);
}

void hier_scattered(struct flow *f)
{
	struct scattered d;

	begin(&d, f);
	for (struct unit u = first_of(&d, f->node); !is_end(&u); advance(&u))
		reduce_near(&d, &u, u.sum_at);
	for (int step = 1; step < f->l->nodes; step++)
		run_step(&d, step);
	if (f->acts)
		flow_agree(f);
	end(&d); /* the other ranks here learn of an error */
}
