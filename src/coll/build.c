/* SPDX-License-Identifier: BSD-3-Clause */
/* Building a rank's operations of a collective. */
#include <errno.h>

#include "coll/coll.h"

struct out {
	struct coll_schedule *to;
	uint32_t cap;
	bool is_full;
};

/* Index of a rank's receive from rank `from` when it receives from every other rank. */
static uint32_t number_from(int from, int rank)
{
	return (uint32_t)(from < rank ? from : from - 1);
}

static void add(struct out *o, const struct coll_flat_op *op)
{
	if (!op->bytes)
		return;
	o->is_full |= o->to->count == o->cap;
	if (!o->is_full)
		o->to->ops[o->to->count++] = *op;
}

static void send_part(struct out *o, int peer, uint32_t tag, uint32_t match,
		      const struct coll_part *p)
{
	add(o, &(struct coll_flat_op){ .type = COLL_OP_SEND,
				  .buf = COLL_SEND,
				  .peer = (uint32_t)peer,
				  .tag = tag,
				  .match = match,
				  .off = p->off,
				  .bytes = p->bytes });
}

static void recv_part(struct out *o, int peer, uint32_t tag, enum coll_buffer buf,
		      const struct coll_part *p)
{
	add(o, &(struct coll_flat_op){ .type = COLL_OP_RECV,
				  .buf = (uint8_t)buf,
				  .peer = (uint32_t)peer,
				  .tag = tag,
				  .off = p->off,
				  .bytes = p->bytes });
	o->to->recv_count = o->to->count;
}

static void copy_part(struct out *o, const struct coll_part *to, const struct coll_part *from)
{
	add(o, &(struct coll_flat_op){ .type = COLL_OP_COPY,
				  .buf = COLL_RECV,
				  .src_buf = COLL_SEND,
				  .off = to->off,
				  .src_off = from->off,
				  .bytes = to->bytes });
}

static void build_bcast(struct out *o, const struct coll_shape *s)
{
	if (s->rank != s->root) {
		recv_part(o, s->root, 0, COLL_SEND, &s->send[0]);
		return;
	}
	for (int k = 1; k < s->ranks; k++)
		send_part(o, (s->root + k) % s->ranks, 0, 0, &s->send[0]);
}

static void build_gather(struct out *o, const struct coll_shape *s)
{
	if (s->rank != s->root) {
		send_part(o, s->root, 0, number_from(s->rank, s->root), &s->send[0]);
		return;
	}
	for (int r = 0; r < s->ranks; r++)
		if (r != s->root)
			recv_part(o, r, 0, COLL_RECV, &s->recv[r]);
	if (!s->in_place)
		copy_part(o, &s->recv[s->root], &s->send[0]);
}

static void build_scatter(struct out *o, const struct coll_shape *s)
{
	if (s->rank != s->root) {
		recv_part(o, s->root, 0, COLL_RECV, &s->recv[0]);
		return;
	}
	for (int r = 0; r < s->ranks; r++)
		if (r != s->root)
			send_part(o, r, 0, 0, &s->send[r]);
	if (!s->in_place)
		copy_part(o, &s->recv[0], &s->send[s->root]);
}

static void build_all(struct out *o, const struct coll_shape *s)
{
	bool is_gather = coll_pattern(s->kind) == COLL_ALLGATHER,
	     one_buffer = is_gather && s->in_place;
	const struct coll_part *own = one_buffer  ? &s->recv[s->rank]
				      : is_gather ? &s->send[0]
						  : &s->send[s->rank];

	for (int r = 0; r < s->ranks; r++)
		if (r != s->rank)
			recv_part(o, r, 0, one_buffer ? COLL_SEND : COLL_RECV, &s->recv[r]);
	for (int r = 0; r < s->ranks; r++)
		if (r != s->rank)
			send_part(o, r, 0, number_from(s->rank, r), is_gather ? own : &s->send[r]);
	if (!s->in_place)
		copy_part(o, &s->recv[s->rank], own);
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
static void build_neighbours(struct out *o, const struct coll_shape *s)
{
	bool is_gather = coll_pattern(s->kind) == COLL_NEIGHBOR_ALLGATHER;

	for (int i = 0; i < s->source_count; i++)
		if (s->sources[i] >= 0 && s->sources[i] != s->rank)
			recv_part(o, s->sources[i], count_of(s->sources, i, s->sources[i]),
				  COLL_RECV, &s->recv[i]);
	for (int i = 0; i < s->target_count; i++) {
		const struct coll_part *part = &s->send[is_gather ? 0 : i];
		uint32_t k = count_of(s->targets, i, s->targets[i]);
		int own;

		if (s->targets[i] < 0)
			continue;
		if (s->targets[i] != s->rank) {
			send_part(o, s->targets[i], k, 0, part);
			continue;
		}
		own = find_nth(s->sources, s->source_count, s->rank, k);
		if (own >= 0)
			copy_part(o, &s->recv[own], part);
	}
}

static void build(struct out *o, const struct coll_shape *s)
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

int coll_build(const struct coll_shape *s, struct coll_flat_op *ops, uint32_t cap,
	       struct coll_schedule *out)
{
	struct out o = { .to = out, .cap = cap };

	*out = (struct coll_schedule){ .ops = ops };
	build(&o, s);
	return o.is_full ? -E2BIG : 0;
}
