/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Flat schedules, and the second level of those that have one. Receives come first, by the rank
 * that sends, then sends, by the rank that receives: so either end of a transfer knows where the
 * other stands in its rank's schedule (exec/match.c).
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

/* ---- two levels -------------------------------------------------------------------------- */

/* Is this collective, on these ranks, one of two levels? */
static bool has_levels(const struct coll_shape *s)
{
	const struct coll_domains *m = s->domains;

	return m && m->count > 1 &&
	       (s->kind == COLL_BCAST || (coll_pattern(s->kind) == COLL_ALLGATHER && m->is_even));
}

/* The rank that sends rank `from`'s data to `rank`. */
static int holder(const struct coll_shape *s, int from, int rank)
{
	const struct coll_domains *m = s->domains;
	int entry = coll_domains_entry(m, m->of[rank], from);

	return m->of[rank] == m->of[from] || entry == rank ? from : entry;
}

/* What this rank has of rank `from`, its own or, once `received`, what has come: to its domain,
 * and, its own, to one rank of each other domain. match(from, to): the number of the receive. */
static void send_on(struct goal_build *b, const struct coll_shape *s, int from, uint32_t received,
		    uint16_t mem, const struct coll_part *p, uint32_t (*match)(int from, int to))
{
	const struct coll_domains *m = s->domains;
	int d = m->of[s->rank];

	if (!p->bytes)
		return;
	for (int i = m->first[d]; i < m->first[d + 1]; i++) {
		int to = m->members[i];
		uint32_t send;

		if (to == s->rank || to == from)
			continue;
		send = goal_send(b, (uint32_t)to, (uint32_t)from, match(from, to), mem, p->off,
				 p->bytes);
		if (received != GOAL_NONE)
			goal_requires(b, send, received);
	}
	for (d = 0; from == s->rank && d < m->count; d++) {
		int to = coll_domains_entry(m, d, from);

		if (d != m->of[from])
			goal_send(b, (uint32_t)to, (uint32_t)from, match(from, to), mem, p->off,
				  p->bytes);
	}
}

static uint32_t receive_of(const struct coll_shape *s, struct goal_build *b, int from, uint16_t mem,
			   const struct coll_part *p)
{
	if (!p->bytes)
		return GOAL_NONE;
	return goal_recv(b, (uint32_t)holder(s, from, s->rank), (uint32_t)from, mem, p->off,
			 p->bytes);
}

static bool is_entry_for(const struct coll_shape *s, int from)
{
	const struct coll_domains *m = s->domains;

	return m->of[from] != m->of[s->rank] &&
	       coll_domains_entry(m, m->of[s->rank], from) == s->rank;
}

static uint32_t match_only(int from, int to)
{
	(void)from;
	(void)to;
	return 0;
}

static void build_bcast_levels(struct goal_build *b, const struct coll_shape *s)
{
	uint32_t received = GOAL_NONE;

	if (s->rank != s->root)
		received = receive_of(s, b, s->root, COLL_SEND, &s->send[0]);
	if (s->rank == s->root || is_entry_for(s, s->root))
		send_on(b, s, s->root, received, COLL_SEND, &s->send[0], match_only);
}

/* Blocks without bytes have no receive, so the number may be too large: then the receive is
 * searched for. */
static void build_allgather_levels(struct goal_build *b, const struct coll_shape *s)
{
	uint16_t mem = s->in_place ? COLL_SEND : COLL_RECV;
	uint32_t first = GOAL_NONE; /* receives count up from it */

	for (int r = 0; r < s->ranks; r++)
		if (r != s->rank) {
			uint32_t label = receive_of(s, b, r, mem, &s->recv[r]);

			first = first == GOAL_NONE ? label : first;
		}
	send_on(b, s, s->rank, GOAL_NONE, COLL_SEND, s->in_place ? &s->recv[s->rank] : &s->send[0],
		number_from);
	for (int r = 0, k = 0; r < s->ranks; r++) {
		if (r == s->rank || !s->recv[r].bytes)
			continue;
		if (is_entry_for(s, r))
			send_on(b, s, r, first + (uint32_t)k, mem, &s->recv[r], number_from);
		k++;
	}
	if (!s->in_place)
		copy_part(b, &s->recv[s->rank], &s->send[0]);
}

/* ---- one level --------------------------------------------------------------------------- */

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

static void build_levels(struct goal_build *b, const struct coll_shape *s)
{
	if (s->kind == COLL_BCAST)
		build_bcast_levels(b, s);
	else
		build_allgather_levels(b, s);
}

void coll_build(struct goal_build *b, const struct coll_shape *s)
{
	if (has_levels(s)) {
		build_levels(b, s);
		return;
	}
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
