/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gather and scatter over several nodes. The message of each rank crosses the network once, in
 * fragments.
 *
 *   gather    in step k the acting rank collects the k-th fragments of its node and sends each
 *             to the root, straight into place; step k + 1 overlaps the sends
 *   scatter   the reverse
 *
 * The ranks of a node may lie anywhere in the communicator, so each rank's fragment is a message
 * of its own. Nodes of different sizes have fragments of different lengths; the root interleaves
 * the steps of all nodes.
 */
#include <errno.h>

#include "base/base.h"
#include "hier/hier.h"

struct rooted {
	struct flow *f;
	bool is_root, is_scatter;
	int root;
	uint64_t bytes;            /* of each rank's message */
	char *slots; /* of an acting rank other than the root: HIER_SLOTS times a fragment of
		        each rank */
};

static uint64_t unit_of(const struct rooted *o, int node)
{
	return hier_unit_bytes(o->f->s->segment_bytes, hier_node_size(o->f->l, node));
}

static uint64_t steps_of(const struct rooted *o, int node)
{
	return base_divide_up(o->bytes, unit_of(o, node));
}

static uint64_t length(const struct rooted *o, int node, uint64_t k)
{
	uint64_t unit = unit_of(o, node);

	return k < steps_of(o, node) ? base_min_u64(unit, o->bytes - k * unit) : 0;
}

static struct post *post_of(const struct rooted *o, int rank, uint64_t k)
{
	return &o->f->s->posts[(k % HIER_SLOTS) * (uint64_t)o->f->l->ranks + (uint64_t)rank];
}

/* ---- inside the node --------------------------------------------------------------------- */

/* Returns: offset in the acting rank's slots. */
static uint64_t slot_offset(const struct rooted *o, int place, uint64_t k)
{
	uint64_t n = (uint64_t)hier_node_size(o->f->l, o->f->node);

	return ((k % HIER_SLOTS) * n + (uint64_t)place) * unit_of(o, o->f->node);
}

/* The root's buffer has one part for each rank. */
static const struct coll_side *root_side(const struct rooted *o)
{
	return o->is_scatter ? &o->f->t->call.send : &o->f->t->call.recv;
}
/* Returns: side with the rank's own message; the root has none in place. */
static const struct coll_side *own_side(const struct rooted *o)
{
	return o->is_scatter ? &o->f->t->call.recv : &o->f->t->call.send;
}
static char *root_at(const struct rooted *o)
{
	return o->is_scatter ? o->f->bufs.send : o->f->bufs.recv;
}
static char *own_at(const struct rooted *o)
{
	char *at = o->is_scatter ? o->f->bufs.recv : o->f->bufs.send;

	return at ? at + own_side(o)->parts[0].off : NULL;
}

/* Moves fragment k between the acting rank and the other ranks here. */
static void step_inside(struct rooted *o, uint64_t k)
{
	struct flow *f = o->f;
	uint64_t at = k * unit_of(o, f->node), bytes = length(o, f->node, k);
	int n = 0;

	if (!bytes || !f->inside || f->err)
		return;
	for (int i = 0; f->acts && i < hier_node_size(f->l, f->node); i++) {
		int rank = hier_node_ranks(f->l, f->node)[i];

		if (rank == f->acting)
			continue;
		f->parts[n] = (struct coll_part){ o->is_root ? root_side(o)->parts[rank].off + at
							     : slot_offset(o, i, k),
						  bytes };
		f->partners[n++] = i;
	}
	if (!f->acts) {
		f->parts[n] = (struct coll_part){ own_side(o)->parts[0].off + at, bytes };
		f->partners[n++] = f->l->place[f->acting];
	}
	flow_move(f, f->acts == o->is_scatter, n);
}

static int begin_inside(struct rooted *o)
{
	struct flow *f = o->f;
	uint64_t bytes = (uint64_t)hier_node_size(f->l, f->node) * unit_of(o, f->node);
	struct coll_buf slots = { .addr = o->slots, .bytes = HIER_SLOTS * bytes };
	struct coll_buf send = { .addr = f->bufs.send, .bytes = f->bufs.send_bytes };
	struct coll_buf recv = { .addr = f->bufs.recv, .bytes = f->bufs.recv_bytes };
	struct coll_buf none = { 0 };

	if (f->acts == o->is_scatter)
		return flow_open_exchanges(f, o->slots ? slots : send, none, bytes);
	return flow_open_exchanges(f, none, o->slots ? slots : recv, bytes);
}

static void begin(struct rooted *o, struct flow *f)
{
	bool has_slots = f->acts && f->t->cs->rank != f->t->args.root;
	uint64_t slots;
	int err;

	*o = (struct rooted){
		.f = f,
		.is_scatter = f->t->args.kind == COLL_SCATTER,
		.root = f->t->args.root,
		.is_root = f->t->cs->rank == f->t->args.root,
		.bytes = f->t->bytes,
	};
	slots = has_slots
			? HIER_SLOTS * (uint64_t)hier_node_size(f->l, f->node) * unit_of(o, f->node)
			: 0;
	err = flow_open(f, false, slots);
	o->slots = !err && has_slots ? o->f->bufs.more : NULL;
	if (!err && !o->is_root && own_side(o)->parts[0].bytes != o->bytes)
		err = -EREMOTEIO;
	if (!err && o->is_root)
		err = flow_copy_own(f);
	if (!err)
		err = begin_inside(o);
	flow_note_error(f, err);
}

/* ---- messages ---------------------------------------------------------------------------- */

/* Returns: place in the root's buffer of a rank of another node. */
static char *place_of(const struct rooted *o, int rank, uint64_t k)
{
	uint64_t at = k * unit_of(o, o->f->l->node_of[rank]);

	return root_at(o) && !o->f->err ? root_at(o) + root_side(o)->parts[rank].off + at
					: o->f->s->dummy;
}

/* Returns: place in the acting rank's memory of a rank of this node. */
static char *passing(const struct rooted *o, int rank, uint64_t k)
{
	if (o->f->err || !o->slots)
		return o->f->s->dummy;
	return rank == o->f->acting ? own_at(o) + k * unit_of(o, o->f->node) :
				      o->slots + slot_offset(o, o->f->l->place[rank], k);
}

/* Starts the root's messages: fragment k of each rank of the other nodes. */
static void root_post(struct rooted *o, uint64_t k)
{
	struct flow *f = o->f;

	for (int node = 0; node < f->l->nodes; node++) {
		uint64_t bytes = length(o, node, k);
		int to = hier_acting(f->l, node, o->root);

		for (int i = 0; node != f->node && bytes && i < hier_node_size(f->l, node); i++) {
			int rank = hier_node_ranks(f->l, node)[i];

			if (o->is_scatter)
				flow_send(f, post_of(o, rank, k), place_of(o, rank, k), bytes, to,
					  FLOW_DOWN);
			else
				flow_recv(f, post_of(o, rank, k), place_of(o, rank, k), bytes, to,
					  FLOW_UP);
		}
	}
}

static void acting_post(struct rooted *o, uint64_t k)
{
	struct flow *f = o->f;
	uint64_t bytes = length(o, f->node, k);

	for (int i = 0; bytes && i < hier_node_size(f->l, f->node); i++) {
		int rank = hier_node_ranks(f->l, f->node)[i];

		if (o->is_scatter)
			flow_recv(f, post_of(o, rank, k), passing(o, rank, k), bytes, o->root,
				  FLOW_DOWN);
		else
			flow_send(f, post_of(o, rank, k), passing(o, rank, k), bytes, o->root,
				  FLOW_UP);
	}
}

static void wait_all(struct rooted *o, uint64_t k)
{
	for (int rank = 0; rank < o->f->l->ranks; rank++)
		flow_wait(o->f, post_of(o, rank, k));
}

static uint64_t most_steps(const struct rooted *o)
{
	uint64_t most = 0;

	for (int node = 0; node < o->f->l->nodes; node++)
		most = base_max_u64(most, steps_of(o, node));
	return most;
}

/* Exchanges the status between the root and the acting ranks. */
static void root_status(struct rooted *o)
{
	struct flow *f = o->f;

	for (int node = 0; node < f->l->nodes; node++) {
		int other = hier_acting(f->l, node, o->root);

		if (node != f->node)
			flow_status(f, &other, !o->is_scatter, &other, o->is_scatter);
	}
}

/* ---- gather ------------------------------------------------------------------------------ */

static void gather_root(struct rooted *o)
{
	uint64_t steps = most_steps(o);

	for (uint64_t k = 0; k < HIER_SLOTS; k++)
		root_post(o, k);
	for (uint64_t k = 0; k < steps; k++) {
		step_inside(o, k);
		wait_all(o, k);
		root_post(o, k + HIER_SLOTS);
	}
	root_status(o);
}

static void gather_acting(struct rooted *o)
{
	uint64_t steps = steps_of(o, o->f->node);

	for (uint64_t k = 0; k < steps; k++) {
		wait_all(o, k); /* the slot's previous fragment has been sent */
		step_inside(o, k);
		acting_post(o, k);
	}
	for (uint64_t k = 0; k < HIER_SLOTS; k++)
		wait_all(o, k);
	flow_status(o->f, NULL, 0, &o->root, 1);
}

/* ---- scatter ----------------------------------------------------------------------------- */

static void scatter_root(struct rooted *o)
{
	uint64_t steps = most_steps(o);

	for (uint64_t k = 0; k < steps; k++) {
		wait_all(o, k);
		root_post(o, k);
		step_inside(o, k);
	}
	for (uint64_t k = 0; k < HIER_SLOTS; k++)
		wait_all(o, k);
	root_status(o);
}

static void scatter_acting(struct rooted *o)
{
	uint64_t steps = steps_of(o, o->f->node);

	for (uint64_t k = 0; k < HIER_SLOTS; k++)
		acting_post(o, k);
	for (uint64_t k = 0; k < steps; k++) {
		wait_all(o, k);
		if (k + 1 == steps) /* the status precedes the last fragment inside the node */
			flow_status(o->f, &o->root, 1, NULL, 0);
		step_inside(o, k);
		acting_post(o, k + HIER_SLOTS);
	}
}

static void run(struct flow *f, void (*root)(struct rooted *), void (*acting)(struct rooted *))
{
	struct rooted o;

	begin(&o, f);
	if (o.is_root)
		root(&o);
	else if (f->acts)
		acting(&o);
	else
		for (uint64_t k = 0; k < steps_of(&o, f->node); k++)
			step_inside(&o, k);
	flow_close(f);
}

void hier_gather(struct flow *f) { run(f, gather_root, gather_acting); }

void hier_scatter(struct flow *f) { run(f, scatter_root, scatter_acting); }
