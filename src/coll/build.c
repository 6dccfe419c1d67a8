/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flat schedules. Receives come first, by the rank that sends, then sends, by the rank that
 * receives: so either end of a transfer knows where the other stands in its rank's schedule
 * (exec/match.c).
 */
#include "coll/coll.h"

/* The number of a rank's receive from `from`, when it receives from every other. */
static uint32_t number_from(int from, int rank)
{
	return (uint32_t)(from < rank ? from : from - 1);
}

static void send_part(struct goal_build *b, int peer, uint32_t tag, uint32_t match,
		      const struct coll_part *p)
{
	if (p->bytes)
		goal_send(b, (uint32_t)peer, tag, match, COLL_SEND, p->off, p->bytes);
}

static void recv_part(struct goal_build *b, int peer, uint32_t tag, uint16_t mem,
		      const struct coll_part *p)
{
	if (p->bytes)
		goal_recv(b, (uint32_t)peer, tag, mem, p->off, p->bytes);
}

static void copy_part(struct goal_build *b, const struct coll_part *to,
		      const struct coll_part *from)
{
	if (to->bytes)
		goal_copy(b, COLL_RECV, to->off, COLL_SEND, from->off, to->bytes);
}

static void build_bcast(struct goal_build *b, const struct coll_shape *s)
{
	if (s->rank != s->root) {
		recv_part(b, s->root, 0, COLL_SEND, &s->send[0]);
		return;
	}
	for (int k = 1; k < s->ranks; k++)
		send_part(b, (s->root + k) % s->ranks, 0, 0, &s->send[0]);
}

static void build_gather(struct goal_build *b, const struct coll_shape *s)
{
	if (s->rank != s->root) {
		send_part(b, s->root, 0, number_from(s->rank, s->root), &s->send[0]);
		return;
	}
	for (int r = 0; r < s->ranks; r++)
		if (r != s->root)
			recv_part(b, r, 0, COLL_RECV, &s->recv[r]);
	if (!s->in_place)
		copy_part(b, &s->recv[s->root], &s->send[0]);
}

static void build_scatter(struct goal_build *b, const struct coll_shape *s)
{
	if (s->rank != s->root) {
		recv_part(b, s->root, 0, COLL_RECV, &s->recv[0]);
		return;
	}
	for (int r = 0; r < s->ranks; r++)
		if (r != s->root)
			send_part(b, r, 0, 0, &s->send[r]);
	if (!s->in_place)
		copy_part(b, &s->recv[0], &s->send[s->root]);
}

static void build_all(struct goal_build *b, const struct coll_shape *s)
{
	bool is_gather = coll_pattern(s->kind) == COLL_ALLGATHER, one_buffer = is_gather && s->in_place;
	const struct coll_part *own = one_buffer  ? &s->recv[s->rank]
				      : is_gather ? &s->send[0]
						  : &s->send[s->rank];

	for (int r = 0; r < s->ranks; r++)
		if (r != s->rank)
			recv_part(b, r, 0, one_buffer ? COLL_SEND : COLL_RECV, &s->recv[r]);
	for (int r = 0; r < s->ranks; r++)
		if (r != s->rank)
			send_part(b, r, 0, number_from(s->rank, r), is_gather ? own : &s->send[r]);
	if (!s->in_place)
		copy_part(b, &s->recv[s->rank], own);
}

/* ---- neighbours -------------------------------------------------------------------------- */

/* How many of the first n are `rank`. */
static uint32_t count_of(const int *list, int n, int rank)
{
	uint32_t count = 0;

	for (int i = 0; i < n; i++)
		count += list[i] == rank;
	return count;
}

/* Where `rank` stands in the list for the k-th time, from 0; -1: not so often. */
static int find_nth(const int *list, int n, int rank, uint32_t k)
{
	for (int i = 0; i < n; i++)
		if (list[i] == rank && !k--)
			return i;
	return -1;
}

/* The k-th send to a rank belongs to its k-th receive from this one: k is the tag. */
static void build_neighbours(struct goal_build *b, const struct coll_shape *s)
{
	bool is_gather = coll_pattern(s->kind) == COLL_NEIGHBOR_ALLGATHER;

	for (int i = 0; i < s->source_count; i++)
		if (s->sources[i] >= 0 && s->sources[i] != s->rank)
			recv_part(b, s->sources[i], count_of(s->sources, i, s->sources[i]),
				  COLL_RECV, &s->recv[i]);
	for (int i = 0; i < s->target_count; i++) {
		const struct coll_part *part = &s->send[is_gather ? 0 : i];
		uint32_t k = count_of(s->targets, i, s->targets[i]);
		int own;

		if (s->targets[i] < 0)
			continue;
		if (s->targets[i] != s->rank) {
			send_part(b, s->targets[i], k, 0, part);
			continue;
		}
		own = find_nth(s->sources, s->source_count, s->rank, k);
		if (own >= 0)
			copy_part(b, &s->recv[own], part);
	}
}

void coll_build(struct goal_build *b, const struct coll_shape *s)
{
	switch (coll_pattern(s->kind)) {
	case COLL_BCAST:
		build_bcast(b, s);
		break;
	case COLL_GATHER:
		build_gather(b, s);
		break;
	case COLL_SCATTER:
		build_scatter(b, s);
		break;
	case COLL_ALLGATHER:
	case COLL_ALLTOALL:
		build_all(b, s);
		break;
	case COLL_NEIGHBOR_ALLGATHER:
	case COLL_NEIGHBOR_ALLTOALL:
		build_neighbours(b, s);
		break;
	default:
		break;
	}
}
