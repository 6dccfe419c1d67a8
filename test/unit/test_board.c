/* SPDX-License-Identifier: BSD-3-Clause */
/* Boards between forked ranks: every message arrives whole, whoever is ahead, in whichever order they end. */
#include <sched.h>

#include "board/board.h"
#include "ranks.h"

enum { COLLECTIVES = 2000 };

static struct node_group *group;
static struct board *board;

static void open_board(struct ranks *r)
{
	struct node_oob oob = { r->oob.ctx, r->oob.rank, r->oob.size, r->oob.allgather, r->oob.allreduce_min };

	CHECK_EQ(node_group_create(&oob, HOST_PAGE + board_area_bytes(), &group), 0);
	CHECK(group);
	CHECK_EQ(board_create(group, HOST_PAGE, &board), 0);
}

static void close_board(struct ranks *r)
{
	ranks_barrier(r);
	board_destroy(board);
	node_group_destroy(group);
	node_fini();
}

/* What a rank brings to a collective: any length, also none. */
static uint32_t length_of(int rank, uint64_t n)
{
	uint64_t seed = n * 131 + (uint64_t)rank;

	return (uint32_t)ranks_below(&seed, BOARD_BYTES + 1);
}

static char byte_of(int rank, uint64_t n, uint32_t i) { return (char)(n * 7 + (uint64_t)rank * 31 + i); }

static void post(int rank, uint64_t n)
{
	char *to = board_record(board, n);
	uint32_t bytes = length_of(rank, n);

	for (uint32_t i = 0; i < bytes; i++)
		to[i] = byte_of(rank, n, i);
	board_post(board, n, bytes);
}

static void check(int rank, uint64_t n)
{
	struct node_wait w;
	const char *from;
	uint32_t bytes;

	node_wait_init(&w);
	while (!(from = board_look(board, rank, n, &bytes)))
		node_wait(group, &w);
	node_wait_end(group, &w);
	CHECK_EQ(bytes, length_of(rank, n));
	for (uint32_t i = 0; i < bytes; i++)
		CHECK(from[i] == byte_of(rank, n, i));
}

static uint64_t begin(void)
{
	struct node_wait w;
	uint64_t n;

	node_wait_init(&w);
	while (!(n = board_begin(board)))
		node_wait(group, &w);
	node_wait_end(group, &w);
	return n;
}

static void everybody_reads_everybody(struct ranks *r)
{
	open_board(r);
	for (uint64_t k = 1; k <= COLLECTIVES; k++) {
		uint64_t n = begin();

		CHECK_EQ(n, k);
		post(r->rank, n);
		for (int q = 0; q < r->size; q++)
			check(q, n);
		board_end(board, n);
	}
	close_board(r);
}

UNIT_TEST(messages_of_any_length_arrive)
{
	ranks_run(1, NULL, everybody_reads_everybody, NULL);
	ranks_run(2, NULL, everybody_reads_everybody, NULL);
	ranks_run(5, NULL, everybody_reads_everybody, NULL);
}

/* As many as may be in flight are begun, then end in an order of each rank's own. */
static void out_of_order(struct ranks *r)
{
	uint64_t seed = (uint64_t)r->rank + 1;

	open_board(r);
	for (int round = 0; round < 50; round++) {
		uint64_t n[BOARD_RECORDS];

		for (uint32_t i = 0; i < BOARD_RECORDS; i++) {
			n[i] = begin();
			post(r->rank, n[i]);
		}
		CHECK_EQ(board_begin(board), 0);
		for (uint32_t left = BOARD_RECORDS; left; left--) {
			uint32_t i = (uint32_t)ranks_below(&seed, left);

			check((r->rank + 1) % r->size, n[i]);
			board_end(board, n[i]);
			n[i] = n[left - 1];
		}
	}
	close_board(r);
}

UNIT_TEST(collectives_may_end_in_any_order)
{
	ranks_run(2, NULL, out_of_order, NULL);
	ranks_run(4, NULL, out_of_order, NULL);
}

/* One rank posts, the others only read, each as late as it likes; nobody runs away from the slowest. */
static void one_sender(struct ranks *r)
{
	uint64_t seed = (uint64_t)r->rank + 1;

	open_board(r);
	for (uint64_t k = 1; k <= COLLECTIVES; k++) {
		uint64_t n = begin();

		if (!r->rank)
			post(0, n);
		else if (!ranks_below(&seed, 50))
			sched_yield();
		check(0, n);
		board_end(board, n);
	}
	close_board(r);
}

UNIT_TEST(a_sender_waits_for_the_slowest_reader) { ranks_run(4, NULL, one_sender, NULL); }
