/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank's operations of a collective, written straight into its slot. Receives come first, ordered
 * by sending rank, then sends, ordered by receiving rank, then a copy: each end of a transfer can
 * estimate the other's index.
 */
#include <string.h>

#include "exec/private.h"

struct out {
	int rank, ranks;
	struct slot_op *ops;
	struct layout *layouts;
	const struct layout *last_layout; /* the program's, of layouts[layout_count - 1] */
	uint32_t count, recv_count, layout_count;
	bool has_sends, has_copies;
};

/* A part of the shape. */
struct part {
	uint64_t off, bytes;
	const struct layout *layout; /* NULL: without gaps */
};

static struct part sent(const struct exec_shape *s, int i)
{
	return (struct part){ s->send[i].off, s->send[i].bytes,
			      s->send_layouts ? &s->send_layouts[i] : NULL };
}

static struct part received(const struct exec_shape *s, int i)
{
	return (struct part){ s->recv[i].off, s->recv[i].bytes,
			      s->recv_layouts ? &s->recv_layouts[i] : NULL };
}

/* Index of a rank's receive from rank `from` when it receives from every other rank. */
static uint32_t number_from(int from, int rank)
{
	return (uint32_t)(from < rank ? from : from - 1);
}

/* A repeated operation stays unwritten: the peers' cached copies of its lines stay valid. */
static void add(struct out *o, const struct slot_op *op)
{
	struct slot_op *place = &o->ops[o->count];

	if (!op->bytes)
		return;
	if (memcmp(place, op, sizeof *op))
		*place = *op;
	o->count++;
}

/* Publishes the layout of a part. Operations in a row may have one layout. Returns: its index. */
static uint32_t add_layout(struct out *o, struct part p)
{
	if (!p.layout || !p.bytes)
		return 0;
	if (p.layout != o->last_layout)
		o->layouts[o->layout_count++] = *p.layout;
	o->last_layout = p.layout;
	return o->layout_count;
}

static void send_part(struct out *o, int peer, uint32_t tag, uint32_t match, struct part p)
{
	add(o, &(struct slot_op){ .type = OP_SEND,
				  .buf = COLL_SEND,
				  .peer = (uint32_t)peer,
				  .tag = tag,
				  .match = match,
				  .layout = add_layout(o, p),
				  .off = p.off,
				  .bytes = p.bytes });
	o->has_sends |= p.bytes > 0;
}

static void recv_part(struct out *o, int peer, uint32_t tag, enum coll_buffer buf, struct part p)
{
	add(o, &(struct slot_op){ .type = OP_RECV,
				  .buf = (uint8_t)buf,
				  .layout = add_layout(o, p),
				  .peer = (uint32_t)peer,
				  .tag = tag,
				  .off = p.off,
				  .bytes = p.bytes });
	o->recv_count = o->count;
}

static void copy_part(struct out *o, struct part to, struct part from)
{
	add(o, &(struct slot_op){ .type = OP_COPY,
				  .buf = COLL_RECV,
				  .src_buf = COLL_SEND,
				  .layout = add_layout(o, to),
				  .src_layout = add_layout(o, from),
				  .off = to.off,
				  .src_off = from.off,
				  .bytes = to.bytes });
	o->has_copies |= to.bytes > 0;
}

static void build_bcast(struct out *o, const struct exec_shape *s)
{
	if (o->rank != s->root) {
		recv_part(o, s->root, 0, COLL_SEND, sent(s, 0));
		return;
	}
	for (int k = 1; k < o->ranks; k++)
		send_part(o, (s->root + k) % o->ranks, 0, 0, sent(s, 0));
}

static void build_gather(struct out *o, const struct exec_shape *s)
{
	if (o->rank != s->root) {
		send_part(o, s->root, 0, number_from(o->rank, s->root), sent(s, 0));
		return;
	}
	for (int r = 0; r < o->ranks; r++)
		if (r != s->root)
			recv_part(o, r, 0, COLL_RECV, received(s, r));
	if (!s->in_place)
		copy_part(o, received(s, s->root), sent(s, 0));
}

static void build_scatter(struct out *o, const struct exec_shape *s)
{
	if (o->rank != s->root) {
		recv_part(o, s->root, 0, COLL_RECV, received(s, 0));
		return;
	}
	for (int r = 0; r < o->ranks; r++)
		if (r != s->root)
			send_part(o, r, 0, 0, sent(s, r));
	if (!s->in_place)
		copy_part(o, received(s, 0), sent(s, s->root));
}

static void build_all(struct out *o, const struct exec_shape *s)
{
	bool is_gather = coll_pattern(s->kind) == COLL_ALLGATHER,
	     one_buffer = is_gather && s->in_place;
	struct part own = one_buffer ? received(s, o->rank) : sent(s, is_gather ? 0 : o->rank);

	for (int r = 0; r < o->ranks; r++)
		if (r != o->rank)
			recv_part(o, r, 0, one_buffer ? COLL_SEND : COLL_RECV, received(s, r));
	for (int r = 0; r < o->ranks; r++)
		if (r != o->rank)
			send_part(o, r, 0, number_from(o->rank, r), is_gather ? own : sent(s, r));
	if (!s->in_place)
		copy_part(o, received(s, o->rank), own);
}

/* ---- neighbours -------------------------------------------------------------------------- */

/* Occurrences of `rank` among the first n. */
static uint32_t count_of(const int *list, int n, int rank)
{
	uint32_t count = 0;

	for (int i = 0; i < n; i++)
		count += list[i] == rank;
	return count;
}

/* Index of occurrence k (from 0) of `rank` in the list; -1: there are fewer. */
static int find_nth(const int *list, int n, int rank, uint32_t k)
{
	for (int i = 0; i < n; i++)
		if (list[i] == rank && !k--)
			return i;
	return -1;
}

/* The k-th send to a rank matches its k-th receive from this one: k is the tag. */
static void build_neighbours(struct out *o, const struct exec_shape *s)
{
	bool is_gather = coll_pattern(s->kind) == COLL_NEIGHBOR_ALLGATHER;

	for (int i = 0; i < s->source_count; i++)
		if (s->sources[i] >= 0 && s->sources[i] != o->rank)
			recv_part(o, s->sources[i], count_of(s->sources, i, s->sources[i]),
				  COLL_RECV, received(s, i));
	for (int i = 0; i < s->target_count; i++) {
		struct part part = sent(s, is_gather ? 0 : i);
		uint32_t k = count_of(s->targets, i, s->targets[i]);
		int own;

		if (s->targets[i] < 0)
			continue;
		if (s->targets[i] != o->rank) {
			send_part(o, s->targets[i], k, 0, part);
			continue;
		}
		own = find_nth(s->sources, s->source_count, o->rank, k);
		if (own >= 0)
			copy_part(o, received(s, own), part);
	}
}

static void build(struct out *o, const struct exec_shape *s)
{
	switch (coll_pattern(s->kind)) {
	case COLL_BCAST:
		build_bcast(o, s);
		break;
	case COLL_GATHER:
		build_gather(o, s);
		break;
	case COLL_SCATTER:
		build_scatter(o, s);
		break;
	case COLL_ALLGATHER:
	case COLL_ALLTOALL:
		build_all(o, s);
		break;
	case COLL_NEIGHBOR_ALLGATHER:
	case COLL_NEIGHBOR_ALLTOALL:
		build_neighbours(o, s);
		break;
	default:
		break;
	}
}

bool slot_build(struct exec_slot *s, struct layout *layouts, const struct exec_shape *shape,
		int rank, int ranks)
{
	struct out o = { .rank = rank, .ranks = ranks, .ops = slot_ops(s), .layouts = layouts };

	build(&o, shape);
	s->op_count = o.count;
	s->recv_count = o.recv_count;
	return o.has_sends || (s->is_nonblocking && o.has_copies);
}
