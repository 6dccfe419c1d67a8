/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An all-to-all over several nodes. Messages go between nodes, not between ranks.
 *
 *   step s, of nodes - 1    to the node s places on, from the node s places back. For each rank
 *                           there in turn, the acting rank collects the data of all ranks here and
 *                           sends it as one message, in fragments. Arriving data goes to its rank.
 *   at the end              the ranks of the node exchange data among themselves
 *
 * Both ends of a step use one order of fragments and end the step before the next begins. Each end
 * therefore waits only for a partner at the same fragment or a later one.
 */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "hier/hier.h"

struct alltoall {
	struct flow *f;
	uint64_t bytes, unit, units; /* of one message between two ranks; of a fragment; number
				        of fragments */
	int size;                    /* ranks of this node */
	const int *ranks;
	char *out, *in;              /* of the acting rank: HIER_SLOTS messages each */
	struct post sends[HIER_SLOTS], recvs[HIER_SLOTS];
};

static uint64_t at_of(const struct alltoall *a, uint64_t i) { return i % a->units * a->unit; }
static uint64_t length(const struct alltoall *a, uint64_t i)
{
	return base_min_u64(a->unit, a->bytes - at_of(a, i));
}
static uint64_t slot(const struct alltoall *a, uint64_t i)
{
	return i % HIER_SLOTS * a->f->s->segment_bytes;
}
static uint64_t count(const struct alltoall *a, int node)
{
	return (uint64_t)hier_node_size(a->f->l, node) * a->units;
}

static int node_after(const struct alltoall *a, int step)
{
	int nodes = a->f->l->nodes;

	return (a->f->node + step + nodes) % nodes;
}

/* ---- inside the node --------------------------------------------------------------------- */

/* The acting rank collects fragment i of all ranks here for rank `to`. */
static void collect(struct alltoall *a, int to, uint64_t i)
{
	struct flow *f = a->f;
	const struct coll_part *mine = f->t->call.send.parts;
	uint64_t at = at_of(a, i), bytes = length(a, i);
	int n = 0;

	if (f->err)
		return;
	if (!f->acts) {
		f->parts[0] = (struct coll_part){ mine[to].off + at, bytes };
		f->partners[0] = f->l->place[f->acting];
		flow_move(f, true, 1);
		return;
	}
	for (int k = 0; k < a->size; k++) {
		uint64_t off = slot(a, i) + (uint64_t)k * bytes;

		if (a->ranks[k] == f->acting) {
			memcpy(a->out + off, a->f->bufs.send + mine[to].off + at, bytes);
			continue;
		}
		f->parts[n] = (struct coll_part){ off, bytes };
		f->partners[n++] = k;
	}
	flow_move(f, false, n);
}

/* The acting rank delivers to its k-th rank the data of ranks `first` to `end` of another node. */
static void deliver_part(struct alltoall *a, const int *from, int first, int end, int k, uint64_t i)
{
	struct flow *f = a->f;
	const struct coll_part *mine = f->t->call.recv.parts;
	uint64_t at = at_of(a, i), bytes = length(a, i);
	int n = 0;

	for (int r = first; r < end; r++, n++) {
		uint64_t off = slot(a, i) + (uint64_t)r * bytes;

		if (f->acts && a->ranks[k] == f->acting)
			memcpy(a->f->bufs.recv + mine[from[r]].off + at, a->in + off, bytes);
		f->parts[n] = f->acts ? (struct coll_part){ off, bytes }
				      : (struct coll_part){ mine[from[r]].off + at, bytes };
		f->partners[n] = f->acts ? k : f->l->place[f->acting];
	}
	if (a->ranks[k] == f->acting)
		return; /* all ranks here know the error */
	flow_move(f, f->acts, f->acts || a->ranks[k] == f->t->cs->rank ? n : 0);
}

/* Splits the delivery: an exchange has a limited number of partners. */
static void deliver(struct alltoall *a, int node, uint64_t i)
{
	const int *from = hier_node_ranks(a->f->l, node);
	int n = hier_node_size(a->f->l, node);

	for (int first = 0; first < n && !a->f->err; first += a->size)
		deliver_part(a, from, first, first + a->size < n ? first + a->size : n,
			 (int)(i / a->units), i);
}

/* The ranks here exchange fragment i among themselves. */
static void exchange_near(struct alltoall *a, uint64_t i)
{
	struct flow *f = a->f;
	const struct coll_call *call = &f->t->call;
	struct rt_exchange x = { .targets = f->partners, .sources = f->partners, .sent = f->parts,
				 .received = f->parts + a->size };
	int n = 0;

	for (int k = 0; k < a->size && !f->err; k++) {
		int rank = a->ranks[k];

		if (rank == f->t->cs->rank)
			continue;
		f->parts[n] = (struct coll_part){ call->send.parts[rank].off + at_of(a, i),
						  length(a, i) };
		f->parts[a->size + n] =
			(struct coll_part){ call->recv.parts[rank].off + at_of(a, i),
					    length(a, i) };
		f->partners[n++] = k;
	}
	x.target_count = x.source_count = n;
	flow_exchange(f, &x);
}

/* ---- buffers ----------------------------------------------------------------------------- */

/* Opens the exchanges between two buffers. */
static int open_near(struct alltoall *a, char *send, uint64_t send_bytes, char *recv,
		     uint64_t recv_bytes)
{
	return flow_open_exchanges(a->f, (struct coll_buf){ .addr = send, .bytes = send_bytes },
				   (struct coll_buf){ .addr = recv, .bytes = recv_bytes },
				   (uint64_t)a->size * a->unit);
}

static int open_own(struct alltoall *a)
{
	const struct flow_bufs *b = &a->f->bufs;

	return open_near(a, b->send, b->send_bytes, b->recv, b->recv_bytes);
}

static void begin(struct alltoall *a, struct flow *f)
{
	uint64_t slots = f->acts ? HIER_SLOTS * f->s->segment_bytes : 0;
	const struct coll_call *call = &f->t->call;
	int most = 1, err;

	*a = (struct alltoall){
		.f = f,
		.bytes = f->t->bytes,
		.size = hier_node_size(f->l, f->node),
		.ranks = hier_node_ranks(f->l, f->node),
	};
	for (int node = 0; node < f->l->nodes; node++)
		most = hier_node_size(f->l, node) > most ? hier_node_size(f->l, node) : most;
	a->unit = base_min_u64(base_max_u64(f->s->segment_bytes / (uint64_t)most, 1), a->bytes);
	a->units = base_divide_up(a->bytes, a->unit);
	err = flow_open(f, call->in_place, 2 * slots);
	a->out = err ? NULL : f->bufs.more;
	a->in = err ? NULL : f->bufs.more + slots;
	if (!err && call->send.parts[0].bytes != a->bytes)
		err = -EREMOTEIO;
	if (!err)
		err = flow_copy_own(f);
	if (!err)
		err = f->acts ? open_near(a, a->in, slots, a->out, slots) : open_own(a);
	flow_note_error(f, err);
}

static void end(struct alltoall *a)
{
	struct flow *f = a->f;

	if (!f->err)
		flow_note_error(f, open_own(a));
	for (uint64_t i = 0; i < a->units && f->s->local; i++)
		exchange_near(a, i);
	flow_close(f);
}

/* ---- between nodes ----------------------------------------------------------------------- */

static void expect(struct alltoall *a, int node, uint64_t i)
{
	struct flow *f = a->f;
	uint64_t bytes = (uint64_t)hier_node_size(f->l, node) * length(a, i);
	char *at = a->in && !f->err ? a->in + slot(a, i) : f->s->dummy;

	if (f->acts && i < count(a, f->node))
		flow_recv(f, &a->recvs[i % HIER_SLOTS], at, bytes, hier_acting(f->l, node, -1),
			  FLOW_DOWN);
}

static void send_unit(struct alltoall *a, int node, uint64_t i)
{
	struct flow *f = a->f;
	struct post *p = &a->sends[i % HIER_SLOTS];

	flow_wait(f, p);
	collect(a, hier_node_ranks(f->l, node)[i / a->units], i);
	if (f->acts)
		flow_send(f, p, a->out && !f->err ? a->out + slot(a, i) : f->s->dummy,
			  (uint64_t)a->size * length(a, i), hier_acting(f->l, node, -1), FLOW_DOWN);
}

static void run_step(struct alltoall *a, int step)
{
	int to = node_after(a, step), from = node_after(a, -step);
	uint64_t sent = count(a, to), received = count(a, a->f->node);

	for (uint64_t i = 0; i < HIER_SLOTS; i++)
		expect(a, from, i);
	for (uint64_t i = 0; i < sent || i < received; i++) {
		if (i < sent)
			send_unit(a, to, i);
		if (i >= received)
			continue;
		flow_wait(a->f, &a->recvs[i % HIER_SLOTS]);
		deliver(a, from, i);
		expect(a, from, i + HIER_SLOTS);
	}
	for (int i = 0; i < HIER_SLOTS; i++)
		flow_wait(a->f, &a->sends[i]);
}

void hier_alltoall(struct flow *f)
{
	struct alltoall a;

	begin(&a, f);
	for (int step = 1; step < f->l->nodes; step++)
		run_step(&a, step);
	if (f->acts)
		flow_agree(f);
	end(&a); /* the other ranks here learn of an error */
}
