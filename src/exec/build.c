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
	uint32_t count, recv_count;
	bool has_sends, has_copies;
};

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

static void send_part(struct out *o, int peer, uint32_t tag, uint32_t match,
		      const struct coll_part *p)
{
	add(o, &(struct slot_op){ .type = OP_SEND,
				  .buf = COLL_SEND,
				  .peer = (uint32_t)peer,
				  .tag = tag,
				  .match = match,
				  .off = p->off,
				  .bytes = p->bytes });
	o->has_sends |= p->bytes > 0;
}

static void recv_part(struct out *o, int peer, uint32_t tag, enum coll_buffer buf,
		      const struct coll_part *p)
{
	add(o, &(struct slot_op){ .type = OP_RECV,
				  .buf = (uint8_t)buf,
				  .peer = (uint32_t)peer,
				  .tag = tag,
				  .off = p->off,
				  .bytes = p->bytes });
	o->recv_count = o->count;
}

static void copy_part(struct out *o, const struct coll_part *to, const struct coll_part *from)
{
	add(o, &(struct slot_op){ .type = OP_COPY,
				  .buf = COLL_RECV,
				  .src_buf = COLL_SEND,
				  .off = to->off,
				  .src_off = from->off,
				  .bytes = to->bytes });
	o->has_copies |= to->bytes > 0;
}

static void build_bcast(struct out *o, const struct exec_shape *s)
{
	if (o->rank != s->root) {
		recv_part(o, s->root, 0, COLL_SEND, &s->send[0]);
		return;
	}
	for (int k = 1; k < o->ranks; k++)
		send_part(o, (s->root + k) % o->ranks, 0, 0, &s->send[0]);
}

static void build_gather(struct out *o, const struct exec_shape *s)
{
	if (o->rank != s->root) {
		send_part(o, s->root, 0, number_from(o->rank, s->root), &s->send[0]);
		return;
	}
	for (int r = 0; r < o->ranks; r++)
		if (r != s->root)
			recv_part(o, r, 0, COLL_RECV, &s->recv[r]);
	if (!s->in_place)
		copy_part(o, &s->recv[s->root], &s->send[0]);
}

static void build_scatter(struct out *o, const struct exec_shape *s)
{
	if (o->rank != s->root) {
		recv_part(o, s->root, 0, COLL_RECV, &s->recv[0]);
		return;
	}
	for (int r = 0; r < o->ranks; r++)
		if (r != s->root)
			send_part(o, r, 0, 0, &s->send[r]);
	if (!s->in_place)
		copy_part(o, &s->recv[0], &s->send[s->root]);
}

static void build_all(struct out *o, const struct exec_shape *s)
{
	bool is_gather = coll_pattern(s->kind) == COLL_ALLGATHER,
	     one_buffer = is_gather && s->in_place;
	const struct coll_part *own = one_buffer  ? &s->recv[o->rank]
				      : is_gather ? &s->send[0]
						  : &s->send[o->rank];

	for (int r = 0; r < o->ranks; r++)
		if (r != o->rank)
			recv_part(o, r, 0, one_buffer ? COLL_SEND : COLL_RECV, &s->recv[r]);
	for (int r = 0; r < o->ranks; r++)
		if (r != o->rank)
			send_part(o, r, 0, number_from(o->rank, r), is_gather ? own : &s->send[r]);
	if (!s->in_place)
		copy_part(o, &s->recv[o->rank], own);
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
				  COLL_RECV, &s->recv[i]);
	for (int i = 0; i < s->target_count; i++) {
		const struct coll_part *part = &s->send[is_gather ? 0 : i];
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
			copy_part(o, &s->recv[own], part);
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

bool slot_build(struct exec_slot *s, const struct exec_shape *shape, int rank, int ranks)
{
	struct out o = { .rank = rank, .ranks = ranks, .ops = slot_ops(s) };

	build(&o, shape);
	s->op_count = o.count;
	s->recv_count = o.recv_count;
	return o.has_sends || (s->is_nonblocking && o.has_copies);
}
