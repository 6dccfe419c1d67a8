/* SPDX-License-Identifier: BSD-3-Clause */
/* Mailboxes with lanes between forked ranks: turns of many lanes in an order of each rank's own, a
 * rank that is ahead. */
#include <string.h>
#include <unistd.h>

#include "mailbox/mailbox.h"
#include "ranks.h"

enum { LANES = 5, ROUNDS = 1500 };

static struct node_group *group;
static struct mailbox *mailbox;

static void open_mailbox(struct ranks *r, uint32_t lanes)
{
	struct node_oob oob = r->oob;

	CHECK_EQ(node_group_create(&oob, OS_PAGE + mailbox_area_bytes(lanes), &group), 0);
	CHECK(group);
	CHECK_EQ(mailbox_create(group, OS_PAGE, lanes, &mailbox), 0);
}

static void close_mailbox(struct ranks *r)
{
	ranks_barrier(r);
	mailbox_destroy(mailbox);
	node_group_destroy(group);
	node_fini();
}

/* A rank's message of a turn, which fills any part of a record. */
static uint32_t length_of(int rank, uint32_t lane, uint64_t turn)
{
	uint64_t seed = turn * 977 + lane * 131 + (uint64_t)rank;

	return (uint32_t)ranks_below(&seed, MAILBOX_BYTES + 1);
}

static char byte_of(int rank, uint32_t lane, uint64_t turn)
{
	return (char)(turn * 7 + lane * 59 + (uint64_t)rank * 31);
}

static void post(int rank, uint32_t lane, uint64_t turn, uint64_t n)
{
	uint32_t bytes = length_of(rank, lane, turn);

	memset(mailbox_record(mailbox, n), byte_of(rank, lane, turn), bytes);
	mailbox_post(mailbox, n, bytes);
}

static bool is_there(int rank, uint32_t lane, uint64_t turn, uint64_t n)
{
	uint32_t bytes, want = length_of(rank, lane, turn);
	const char *from = mailbox_peek(mailbox, rank, n, &bytes);

	if (!from)
		return false;
	CHECK_EQ(bytes, want);
	for (uint32_t i = 0; i < bytes; i++)
		CHECK(from[i] == byte_of(rank, lane, turn));
	return true;
}

static uint64_t wait_for_room(uint32_t lane, uint64_t turn)
{
	struct node_wait w = { 0 };
	uint64_t n;

	while (!(n = mailbox_begin_turn(mailbox, lane, turn)))
		node_wait(group, &w);
	node_wait_end(group, &w);
	return n;
}

static void wait_for(int rank, uint32_t lane, uint64_t turn, uint64_t n)
{
	struct node_wait w = { 0 };

	while (!is_there(rank, lane, turn, n))
		node_wait(group, &w);
	node_wait_end(group, &w);
}

static void shuffle(uint32_t *order, uint32_t n, uint64_t *seed)
{
	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t k = (uint32_t)ranks_below(seed, i), kept = order[i - 1];

		order[i - 1] = order[k];
		order[k] = kept;
	}
}

/* Lane i has a turn in each (i + 1)-th round: begun in one order, read in another. */
static void own_orders(struct ranks *r)
{
	uint64_t seed = (uint64_t)r->rank + 5, n[LANES], turn[LANES] = { 0 };
	uint32_t order[LANES];

	open_mailbox(r, LANES);
	for (int round = 0; round < ROUNDS; round++) {
		shuffle(order, LANES, &seed);
		for (uint32_t i = 0; i < LANES; i++) {
			uint32_t lane = order[i];

			if (round % (int)(lane + 1))
				continue;
			n[lane] = wait_for_room(lane, ++turn[lane]);
			post(r->rank, lane, turn[lane], n[lane]);
		}
		shuffle(order, LANES, &seed);
		for (uint32_t i = 0; i < LANES; i++) {
			uint32_t lane = order[i];

			if (round % (int)(lane + 1))
				continue;
			for (int q = 0; q < r->size; q++)
				wait_for(q, lane, turn[lane], n[lane]);
			mailbox_end(mailbox, n[lane]);
		}
	}
	close_mailbox(r);
}

UNIT_TEST(lanes_are_used_in_any_order)
{
	ranks_run(1, NULL, own_orders, NULL);
	ranks_run(2, NULL, own_orders, NULL);
	ranks_run(4, NULL, own_orders, NULL);
}

/* Numbers of turns are of one lane, and of no two turns. */
static void all_numbers(struct ranks *r)
{
	enum { MANY = 64, FAR = 40 };
	uint64_t seen[MANY * FAR];
	int count = 0;

	open_mailbox(r, MANY);
	for (uint64_t turn = 1; turn <= FAR; turn++)
		for (uint32_t lane = 0; lane < MANY; lane++) {
			uint64_t n = mailbox_begin_turn(mailbox, lane, turn);

			CHECK(n);
			mailbox_end(mailbox, n);
			seen[count++] = n;
		}
	for (int i = 0; i < count; i++)
		for (int k = 0; k < i; k++)
			CHECK(seen[i] != seen[k]);
	close_mailbox(r);
}

UNIT_TEST(turns_have_numbers_of_their_own) { ranks_run(1, NULL, all_numbers, NULL); }

static void read_turns(uint32_t lane, uint64_t turn, uint64_t last)
{
	for (; turn <= last; turn++) {
		uint64_t n = wait_for_room(lane, turn);

		wait_for(0, lane, turn, n);
		mailbox_end(mailbox, n);
	}
}

/* The first rank need not wait for the others before it is MAILBOX_TURNS ahead in a lane, and each
 * turn keeps what it said; whoever is so far ahead in one lane goes on in another. Who sleeps has
 * to be woken: nobody wakes by himself here. */
static void one_ahead(struct ranks *r)
{
	uint64_t n, last = MAILBOX_TURNS + 1;

	open_mailbox(r, 2);
	for (uint32_t lane = 0; lane < 2 && !r->rank; lane++) {
		for (uint64_t turn = 1; turn < last; turn++) {
			n = mailbox_begin_turn(mailbox, lane, turn);
			CHECK(n);
			post(0, lane, turn, n);
			mailbox_end(mailbox, n);
		}
		CHECK_EQ(mailbox_begin_turn(mailbox, lane, last), 0);
		CHECK_EQ(mailbox_begin_turn(mailbox, lane, last), 0);
	}
	ranks_barrier(r);
	for (uint32_t lane = 2; r->rank && lane-- > 0;) { /* room comes in the other order */
		usleep(100000);
		read_turns(lane, 1, last - 1);
	}
	for (uint32_t lane = 0; lane < 2; lane++) {
		if (r->rank) {
			read_turns(lane, last, last);
			continue;
		}
		n = wait_for_room(lane, last);
		post(0, lane, last, n);
		mailbox_end(mailbox, n);
	}
	close_mailbox(r);
}

UNIT_TEST(a_rank_is_ahead_by_some_turns_in_a_lane)
{
	ranks_run(3, NULL, one_ahead, NULL);
}

UNIT_TEST(room_in_a_lane_wakes)
{
	char *rung[] = { "SLUICE_TEST=fault=nap:all", NULL };

	ranks_run(2, rung, one_ahead, NULL);
}
