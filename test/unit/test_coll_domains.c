/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives of two levels on machines that hwloc makes up: whatever the ranks' places, each has
 * every block in the end, no block enters a domain twice, and nothing is sent before it is there.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "coll/coll.h"
#include "places.h"
#include "unit.h"

enum { RANKS_MAX = 24, BLOCK = 100 };

struct world {
	int ranks, root;
	enum coll kind;
	bool in_place;
	struct coll_domains domains;
	int words[4 * RANKS_MAX + 1];
	_Alignas(8) char blocks[RANKS_MAX][16384];
};
static struct world w;

static const struct goal_block *block_of(int rank)
{
	return (const struct goal_block *)w.blocks[rank];
}

static void build(int rank)
{
	struct goal_op ops[2 * RANKS_MAX];
	struct goal_edge edges[2 * RANKS_MAX];
	struct coll_part send = { 0, BLOCK }, recv[RANKS_MAX];
	struct coll_shape s = { .kind = w.kind,
				.rank = rank,
				.ranks = w.ranks,
				.root = w.root,
				.send = &send,
				.recv = recv,
				.in_place = w.in_place,
				.domains = &w.domains };
	struct goal_build b;

	for (int r = 0; r < w.ranks; r++)
		recv[r] = (struct coll_part){ (uint64_t)r * BLOCK, BLOCK };
	goal_build_init(&b, ops, coll_ops_max(w.ranks), edges, coll_ops_max(w.ranks));
	coll_build(&b, &s);
	CHECK_EQ(goal_compile(&b, (struct goal_block *)w.blocks[rank], sizeof w.blocks[rank]), 0);
}

/* Which rank's data an operation moves. */
static int origin(const struct goal_op *op) { return w.kind == COLL_BCAST ? w.root : (int)op->tag; }

static const struct goal_op *find_recv(int rank, const struct goal_op *send, int from)
{
	const struct goal_op *op = &goal_ops_const(block_of(rank))[send->match];

	CHECK(send->match < block_of(rank)->recv_count);
	CHECK_EQ(op->type, GOAL_RECV);
	CHECK_EQ(op->peer, from);
	CHECK_EQ(op->tag, send->tag);
	CHECK_EQ(op->bytes, send->bytes);
	return op;
}

/* Lets the operations happen, in any order that the requirements permit, and counts. */
struct play {
	bool has[RANKS_MAX][RANKS_MAX]; /* rank, origin */
	uint32_t waits[RANKS_MAX][2 * RANKS_MAX];
	bool sent[RANKS_MAX][2 * RANKS_MAX];
	int entered[RANKS_MAX][RANKS_MAX]; /* domain, origin: how often it came in */
};

static void ended(struct play *p, int rank, const struct goal_op *op)
{
	const uint32_t *next = goal_adjacency(block_of(rank)) + op->next;

	for (uint32_t k = 0; k < op->next_count; k++)
		p->waits[rank][next[k]]--;
}

static void deliver(struct play *p, int from, const struct goal_op *send)
{
	int to = (int)send->peer, block = origin(send);
	const struct goal_op *recv = find_recv(to, send, from);

	CHECK(p->has[from][block]);
	CHECK(!p->has[to][block]);
	CHECK_EQ(recv->off, w.kind == COLL_BCAST ? 0 : block * BLOCK);
	p->has[to][block] = true;
	if (w.domains.of[from] != w.domains.of[to])
		p->entered[w.domains.of[to]][block]++;
	ended(p, to, recv);
}

static bool pass(struct play *p, int rank)
{
	const struct goal_op *ops = goal_ops_const(block_of(rank));
	bool moved = false;

	for (uint32_t i = 0; i < block_of(rank)->op_count; i++) {
		if (ops[i].type != GOAL_SEND || p->sent[rank][i] || p->waits[rank][i])
			continue;
		p->sent[rank][i] = true;
		deliver(p, rank, &ops[i]);
		moved = true;
	}
	return moved;
}

static void play(void)
{
	static struct play p;
	bool moved = true;

	memset(&p, 0, sizeof p);
	for (int r = 0; r < w.ranks; r++) {
		p.has[r][r] = w.kind != COLL_BCAST || r == w.root;
		for (uint32_t i = 0; i < block_of(r)->op_count; i++)
			p.waits[r][i] = goal_ops_const(block_of(r))[i].requires;
	}
	while (moved) {
		moved = false;
		for (int r = 0; r < w.ranks; r++)
			moved |= pass(&p, r);
	}
	for (int r = 0; r < w.ranks; r++)
		for (int block = 0; block < w.ranks; block++) {
			if (w.kind == COLL_BCAST && block != w.root)
				continue;
			CHECK(p.has[r][block]);
			CHECK_EQ(p.entered[w.domains.of[r]][block],
				 w.domains.of[r] != w.domains.of[block]);
		}
}

static void check_all(int ranks, const int *number_of)
{
	w.ranks = ranks;
	coll_domains_init(&w.domains, w.words, ranks, number_of);
	for (int bcast = 0; bcast < 2; bcast++) {
		for (w.root = 0; w.root < ranks; w.root++) {
			w.kind = bcast ? COLL_BCAST : COLL_ALLGATHER;
			w.in_place = !bcast && w.root % 2;
			if (w.domains.count < 2 || (!bcast && !w.domains.is_even))
				continue;
			for (int r = 0; r < ranks; r++)
				build(r);
			play();
		}
	}
}

#ifdef HAVE_HWLOC
UNIT_TEST(every_machine_every_placement) { places_each(check_all); }

UNIT_TEST(two_sockets_halve_what_crosses)
{
	int number_of[RANKS_MAX];

	places_of("numa:2 core:4 pu:1", 8, true, number_of);
	coll_domains_init(&w.domains, w.words, 8, number_of);
	CHECK_EQ(w.domains.count, 2);
	CHECK(w.domains.is_even);
	for (int r = 0; r < 8; r++)
		CHECK_EQ(w.domains.of[r], r % 2);
	/* members take turns in letting data in: the four of domain 1 one block each of domain 0's
	 */
	for (int from = 0; from < 8; from += 2)
		CHECK_EQ(coll_domains_entry(&w.domains, 1, from), from + 1);
}
#endif

UNIT_TEST(any_division)
{
	uint64_t random = 12345;

	for (int n = 0; n < 300; n++) {
		int number_of[RANKS_MAX], ranks = 2 + n % 22;

		for (int r = 0; r < ranks; r++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			number_of[r] = (int)(random >> 40) % (1 + n % 5) * 7;
		}
		check_all(ranks, number_of);
	}
}

UNIT_TEST(flat_where_nothing_is_gained)
{
	const int one[] = { 3, 3, 3, 3 }, each[] = { 9, 1, 5, 0 }, two[] = { 5, 2, 5, 2 };

	coll_domains_init(&w.domains, w.words, 4, one);
	CHECK_EQ(w.domains.count, 1);
	coll_domains_init(&w.domains, w.words, 4, each);
	CHECK_EQ(w.domains.count, 1);
	coll_domains_init(&w.domains, w.words, 4, two);
	CHECK_EQ(w.domains.count, 2);
}
