/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions over several nodes, segment by segment. The ranks of a node reduce their data to the
 * acting rank; the sum goes up the tree and, where all ranks get the result, down again `lag`
 * segments later.
 *
 *   segment      k           inside the node, then up: own part first, then parts of the children
 *                k - lag     down, then inside the node
 *
 * The layout fixes the order in which parts are combined. Results are equal from run to run, and
 * on all ranks.
 */
#include <string.h>

#include "base/base.h"
#include "hier/hier.h"

struct reduce {
	struct flow *f;
	bool for_all;
	uint64_t count, lag;
	const char *mine;      /* this rank's contribution */
	char *sum;             /* of the acting rank: the whole sum, or slots */
	uint64_t sum_slots;    /* 0: the whole sum */
	char *theirs;          /* HIER_SLOTS segments of each child */
	struct coll_part part, sum_part;
	struct coll_call up, down; /* inside the node: reduction, broadcast */
	struct rt_pieces *inside; /* steps of `up` */
	struct post recv_up[HIER_CHILDREN][HIER_SLOTS], send_up[HIER_SLOTS];
	struct post recv_down[HIER_SLOTS], send_down[HIER_CHILDREN][HIER_SLOTS];
};

static uint64_t sum_offset(const struct reduce *d, uint64_t k)
{
	return (d->sum_slots ? k % d->sum_slots : k) * d->f->cut.segment;
}

static char *sum_at(const struct reduce *d, uint64_t k)
{
	return d->sum ? d->sum + sum_offset(d, k) : d->f->s->dummy;
}

static char *their_at(const struct reduce *d, int child, uint64_t k)
{
	uint64_t slot = (uint64_t)child * HIER_SLOTS + k % HIER_SLOTS;

	return d->theirs ? d->theirs + slot * d->f->cut.segment : d->f->s->dummy;
}

/* ---- buffers ----------------------------------------------------------------------------- */

static int open_buffers(struct reduce *d)
{
	struct flow *f = d->f;
	bool has_slots = f->acts && !f->t->call.recv.count;
	uint64_t slots = HIER_SLOTS * f->cut.segment;
	int err = flow_open(f, false,
			    (has_slots ? slots : 0) + (uint64_t)f->child_count * slots);

	if (err)
		return err;
	d->mine = f->bufs.send;
	d->sum = has_slots ? f->bufs.more : f->bufs.recv;
	d->sum_slots = has_slots ? HIER_SLOTS : 0;
	d->theirs = f->bufs.more + (has_slots ? slots : 0);
	return 0;
}

static int begin_inside(struct reduce *d)
{
	struct flow *f = d->f;
	uint64_t whole = f->cut.bytes,
		 sum_bytes = d->sum_slots ? d->sum_slots * f->cut.segment : whole;
	int err;

	d->up = flow_call(f, COLL_REDUCE);
	d->up.in_place = f->acts && d->sum == d->mine;
	d->up.send = flow_side((void *)d->mine, whole, &d->part);
	d->up.bytes = whole;
	d->up.reduce = f->t->call.reduce;
	d->down = d->up;
	d->down.kind = COLL_BCAST;
	d->down.send = flow_side(d->sum, whole, &d->part);
	if (f->acts)
		d->up.recv = flow_side(d->sum, sum_bytes, &d->sum_part);
	err = rt_pieces_begin(f->s->local, &d->up, f->cut.segment, &d->inside);
	return err || !d->for_all
		       ? err
		       : rt_pieces_begin(f->s->local, &d->down, f->cut.segment, &f->inside);
}

static void begin(struct reduce *d, struct flow *f)
{
	int err;

	*d = (struct reduce){
		.f = f,
		.for_all = f->t->args.kind == COLL_ALLREDUCE,
		.count = hier_count(&f->cut),
	};
	d->lag = d->for_all ? 2 * (uint64_t)hier_tree_depth(f->l->nodes) + 1 : 0;
	err = open_buffers(d);
	if (!err && f->s->local)
		err = begin_inside(d);
	flow_note_error(f, err);
}

/* ---- up ---------------------------------------------------------------------------------- */

static void expect_up(struct reduce *d, uint64_t k)
{
	struct flow *f = d->f;

	for (int i = 0; i < f->child_count && k < d->count; i++)
		flow_recv(f, &d->recv_up[i][k % HIER_SLOTS], their_at(d, i, k),
			  hier_length(&f->cut, k), f->children[i], FLOW_UP);
}

/* Reduces the contributions of the ranks here. */
static void reduce_near(struct reduce *d, uint64_t k)
{
	struct flow *f = d->f;
	uint64_t at = k * f->cut.segment, bytes = hier_length(&f->cut, k);

	if (f->s->local)
		flow_run(f, d->inside, at, sum_offset(d, k), bytes);
	else if (!f->err && d->sum != d->mine)
		memcpy(sum_at(d, k), d->mine + at, bytes);
}

static void combine(struct reduce *d, int child, uint64_t k)
{
	struct flow *f = d->f;
	const struct coll_reduce *reduce = &f->t->call.reduce;
	int err;

	flow_wait(f, &d->recv_up[child][k % HIER_SLOTS]);
	if (f->err)
		return;
	err = reduce->combine(reduce->ctx, their_at(d, child, k), sum_at(d, k),
			    hier_length(&f->cut, k) / reduce->element_bytes);
	flow_note_error(f, err);
}

static void go_up(struct reduce *d, uint64_t k)
{
	struct flow *f = d->f;
	struct post *p = &d->send_up[k % HIER_SLOTS];

	flow_wait(f, p); /* the slot's previous segment has been sent */
	reduce_near(d, k);
	for (int i = 0; i < f->child_count; i++)
		combine(d, i, k);
	expect_up(d, k + HIER_SLOTS);
	if (f->parent >= 0) {
		flow_send(f, p, sum_at(d, k), hier_length(&f->cut, k), f->parent, FLOW_UP);
		p->segment = k;
	}
	if (f->acts && k + 1 == d->count)
		flow_status(f, f->children, f->child_count, &f->parent, f->parent >= 0);
}

/* ---- down -------------------------------------------------------------------------------- */

/* Receives into the sum, whose segment has gone up before. */
static void expect_down(struct reduce *d, uint64_t k)
{
	struct flow *f = d->f;
	struct post *up = &d->send_up[k % HIER_SLOTS];

	if (f->parent < 0 || k >= d->count)
		return;
	if (up->segment == k)
		flow_wait(f, up);
	flow_recv(f, &d->recv_down[k % HIER_SLOTS], sum_at(d, k), hier_length(&f->cut, k),
		  f->parent, FLOW_DOWN);
}

static void go_down(struct reduce *d, uint64_t k)
{
	struct flow *f = d->f;
	uint64_t bytes = hier_length(&f->cut, k);

	for (uint64_t i = k ? k + HIER_SLOTS - 1 : 0; i < k + HIER_SLOTS; i++)
		expect_down(d, i);
	flow_wait(f, &d->recv_down[k % HIER_SLOTS]);
	for (int i = 0; i < f->child_count; i++) {
		flow_wait(f, &d->send_down[i][k % HIER_SLOTS]);
		flow_send(f, &d->send_down[i][k % HIER_SLOTS], sum_at(d, k), bytes, f->children[i],
			  FLOW_DOWN);
	}
	if (f->acts && k + 1 == d->count) /* the status precedes the last segment inside the node */
		flow_status(f, &f->parent, f->parent >= 0, f->children, f->child_count);
	flow_run(f, f->inside, k * f->cut.segment, 0, bytes);
}

void hier_reduce(struct flow *f)
{
	struct reduce d;

	begin(&d, f);
	for (uint64_t k = 0; k < HIER_SLOTS; k++)
		expect_up(&d, k);
	for (uint64_t k = 0; k < d.count + d.lag; k++) {
		if (k < d.count)
			go_up(&d, k);
		if (d.for_all && k >= d.lag)
			go_down(&d, k - d.lag);
	}
	for (int slot = 0; slot < HIER_SLOTS; slot++) {
		flow_wait(f, &d.send_up[slot]);
		for (int i = 0; i < f->child_count; i++)
			flow_wait(f, &d.send_down[i][slot]);
	}
	rt_pieces_end(d.inside);
	flow_close(f);
}
