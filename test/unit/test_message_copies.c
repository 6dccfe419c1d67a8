/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies that blocking sends offer: always the bytes of the message that is sent. */
#include <pthread.h>

#include "message_case.h"

/* Sends [p, p + bytes) as a blocking call does while rank 1 reads it. Returns: whether a copy was
 * offered. */
static bool send_and_read(struct ranks *r, char *p, char *mine, size_t bytes, uint8_t value)
{
	struct message_edges edges = { 0 };
	struct snapshot *s = NULL;

	if (!r->rank) {
		memset(p, value, bytes);
		edges = message_send(p, bytes, bytes);
		if (message_may_offer(p, bytes, &edges))
			s = message_offer(p, bytes, &edges);
	}
	ranks_barrier(r);
	if (r->rank) {
		real_calls = 0;
		memset(mine, 0, bytes + 1);
		CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, bytes), (ssize_t)bytes);
		for (size_t i = 0; i < bytes; i++)
			CHECK_EQ((uint8_t)mine[i], value);
		CHECK_EQ(mine[bytes], 0);
	}
	ranks_barrier(r);
	if (!r->rank)
		CHECK_EQ(message_sent(s, 7), 7);
	return s;
}

/* The first read is the kernel's. Then a copy is offered, and withdrawn when the call ends. */
static void sends_offer_copies(struct ranks *r)
{
	char *p = NULL, *mine = pages(MIB);

	announce(r);
	if (!r->rank)
		tell(r, pages(MIB));
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]) + 100;
	for (uint8_t i = 1; i < 10; i++) {
		bool is_offered = send_and_read(r, p, mine, 60000, i);

		if (r->rank)
			CHECK_EQ(real_calls, i == 1);
		else
			CHECK_EQ(is_offered, i > 1);
	}
	if (!r->rank)
		memset(p, 99, 60000);
	ranks_barrier(r);
	if (r->rank) {
		CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, 60000), 60000);
		CHECK_EQ(mine[0], 99);
		CHECK_EQ(mine[59999], 99);
	}
	ranks_barrier(r);
}

UNIT_TEST(a_blocking_send_offers_a_copy_until_it_returns)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), sends_offer_copies, NULL);
}

/* The pages are a region; the bytes before and behind them are in the copy. */
static void edges_are_offered(struct ranks *r)
{
	char *p = NULL, *mine = pages(MIB);

	announce(r);
	if (!r->rank) {
		p = pages(MIB);
		tell(r, p);
	}
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]) + 16;
	send_and_read(r, p, mine, 200000, 1);
	if (!r->rank)
		CHECK(is_mapped(p, 200000));
	for (uint8_t i = 2; i < 6; i++) {
		bool is_offered = send_and_read(r, p, mine, 200000, i);

		if (r->rank)
			CHECK_EQ(real_calls, 0);
		else
			CHECK(is_offered);
	}
	ranks_barrier(r);
}

UNIT_TEST(the_edges_of_a_region_are_offered)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), edges_are_offered, NULL);
}

/* Rank 0 leaves a send of ones by longjmp(), sends twos from there, of which `used` bytes are the
 * message, and rank 1 gets twos. */
static void leave_a_send(struct ranks *r, char *p, char *mine, uint64_t used)
{
	struct message_edges edges;

	if (!r->rank) {
		memset(p, 1, 60000);
		edges = message_send(p, 60000, 60000);
		CHECK(message_offer(p, 60000, &edges));
		memset(p, 2, 60000);
		message_send(p + 20000, 60000, used);
	}
	ranks_barrier(r);
	if (r->rank) {
		CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, 60000), 60000);
		CHECK_EQ(mine[30000], 2);
	}
	ranks_barrier(r);
}

/* A call that never ended: the thread's next send, or another thread's from there, withdraws its
 * copy. Sends that nobody reads offer fewer and fewer copies. */
static void copies_are_forgotten(struct ranks *r)
{
	struct message_edges edges;
	char *p = NULL, *mine = pages(MIB);
	int offers = 0;

	announce(r);
	if (!r->rank)
		tell(r, pages(MIB));
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]);
	send_and_read(r, p, mine, 60000, 1);
	leave_a_send(r, p, mine, 60000);
	leave_a_send(r, p, mine, 30000); /* a type with gaps */
	for (int i = 0; i < 1000 && !r->rank; i++) {
		edges = message_send(p, 60000, 60000);
		if (message_may_offer(p, 60000, &edges)) {
			message_sent(message_offer(p, 60000, &edges), 0);
			offers++;
		}
	}
	CHECK(offers < 12);
	ranks_barrier(r);
}

UNIT_TEST(copies_of_calls_that_never_ended_are_withdrawn)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), copies_are_forgotten, NULL);
}

/* Offers a copy of the message in a thread of its own, which ends in its send. */
static void *offer_in_thread(void *p)
{
	return message_offer(p, 60000, &(struct message_edges){ 60000, 0 });
}

/* An error handler of a send sends, too. The end of the outer call withdraws no copy that another
 * thread has offered meanwhile. */
static void sends_are_nested(struct ranks *r)
{
	struct message_edges edges = { 60000, 0 };
	char *p = NULL, *mine = pages(MIB);
	struct snapshot *outer, *inner;
	pthread_t thread;

	announce(r);
	if (!r->rank)
		tell(r, pages(MIB));
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]);
	send_and_read(r, p, mine, 60000, 1);
	if (!r->rank) {
		outer = message_offer(p + 60000, 60000, &edges);
		message_send(p + 120000, 60000, 60000);
		inner = message_offer(p + 120000, 60000, &edges);
		CHECK(outer && inner == outer);
		message_sent(inner, 0);
		CHECK_EQ(pthread_create(&thread, NULL, offer_in_thread, p), 0);
		CHECK_EQ(pthread_join(thread, (void **)&inner), 0);
		CHECK(inner == outer);
		message_sent(outer, 0);
	}
	ranks_barrier(r);
	if (r->rank) {
		real_calls = 0;
		CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, 60000), 60000);
		CHECK_EQ(real_calls, 0);
	}
	ranks_barrier(r);
}

UNIT_TEST(the_end_of_a_send_withdraws_only_its_own_copy)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), sends_are_nested, NULL);
}

/* A reader that meets copies that change gets each message whole, or what memory holds. */
static void copies_change(struct ranks *r)
{
	struct message_edges edges = { 60000, 0 };
	char *p = NULL, *mine = pages(MIB);

	announce(r);
	if (!r->rank) {
		p = pages(MIB);
		memset(p, 0, MIB);
		tell(r, p);
	}
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]);
	for (int i = 0; i < 3000 && !r->rank; i++) {
		struct snapshot *s;

		memset(p, i % 100, 60000);
		s = message_offer(p, 60000, &edges);
		CHECK(s);
		atomic_store(&r->words[1], (uint64_t)i);
		message_sent(s, 0);
		if (atomic_load(&r->words[2]) > 500)
			break;
	}
	if (!r->rank)
		atomic_store(&r->words[3], 1);
	while (r->rank && !atomic_load(&r->words[3])) {
		uint64_t before = atomic_load(&r->words[1]), after;
		int behind, range;

		CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, 60000), 60000);
		after = atomic_load(&r->words[1]) + 1; /* it may be writing that one */
		range = (int)(after - before);
		for (int k = 0; k < 60000; k++) {
			behind = (mine[k] - (int)(before % 100) + 100) % 100;
			if (range < 100 && behind > range)
				CHECK_EQ(k, 60000);
		}
		atomic_fetch_add(&r->words[2], 1);
	}
	ranks_barrier(r);
}

UNIT_TEST(a_copy_that_changes_while_it_is_read_gives_no_other_bytes)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), copies_change, NULL);
}
