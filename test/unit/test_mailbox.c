/* SPDX-License-Identifier: BSD-3-Clause */
/* Mailboxes between forked ranks: every message arrives whole, whoever is ahead, in whichever order
 * they end. */
#include <errno.h>
#include <sched.h>

#include "mailbox/mailbox.h"
#include "ranks.h"

enum { COLLECTIVES = 2000 };

static struct node_group *group;
static struct mailbox *mailbox;

static void open_mailbox(struct ranks *r)
{
	struct node_oob oob = r->oob;

	CHECK_EQ(node_group_create(&oob, OS_PAGE + mailbox_area_bytes(0), &group), 0);
	CHECK(group);
	CHECK_EQ(mailbox_create(group, OS_PAGE, 0, &mailbox), 0);
}

static void close_mailbox(struct ranks *r)
{
	ranks_barrier(r);
	mailbox_destroy(mailbox);
	node_group_destroy(group);
	node_fini();
}

/* A rank's message of a collective, of any length including 0. */
static uint32_t length_of(int rank, uint64_t n)
{
	uint64_t seed = n * 131 + (uint64_t)rank;

	return (uint32_t)ranks_below(&seed, MAILBOX_BYTES + 1);
}

static char byte_of(int rank, uint64_t n, uint32_t i)
{
	return (char)(n * 7 + (uint64_t)rank * 31 + i);
}

static void post(int rank, uint64_t n)
{
	char *to = mailbox_record(mailbox, n);
	uint32_t bytes = length_of(rank, n);

	for (uint32_t i = 0; i < bytes; i++)
		to[i] = byte_of(rank, n, i);
	mailbox_post(mailbox, n, bytes);
}

static void check(int rank, uint64_t n)
{
	struct node_wait w = { 0 };
	const char *from;
	uint32_t bytes;

	while (!(from = mailbox_peek(mailbox, rank, n, &bytes)))
		node_wait(group, &w);
	node_wait_end(group, &w);
	CHECK_EQ(bytes, length_of(rank, n));
	for (uint32_t i = 0; i < bytes; i++)
		CHECK(from[i] == byte_of(rank, n, i));
}

static uint64_t begin(void)
{
	struct node_wait w = { 0 };
	uint64_t n;

	while (!(n = mailbox_begin(mailbox)))
		node_wait(group, &w);
	node_wait_end(group, &w);
	return n;
}

static void everybody_reads_everybody(struct ranks *r)
{
	open_mailbox(r);
	for (uint64_t k = 1; k <= COLLECTIVES; k++) {
		uint64_t n = begin();

		CHECK_EQ(n, k);
		post(r->rank, n);
		for (int q = 0; q < r->size; q++)
			check(q, n);
		mailbox_end(mailbox, n);
	}
	close_mailbox(r);
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

	open_mailbox(r);
	for (int round = 0; round < 50; round++) {
		uint64_t n[MAILBOX_RECORDS];

		for (uint32_t i = 0; i < MAILBOX_RECORDS; i++) {
			n[i] = begin();
			post(r->rank, n[i]);
		}
		CHECK_EQ(mailbox_begin(mailbox), 0);
		for (uint32_t left = MAILBOX_RECORDS; left; left--) {
			uint32_t i = (uint32_t)ranks_below(&seed, left);

			check((r->rank + 1) % r->size, n[i]);
			mailbox_end(mailbox, n[i]);
			n[i] = n[left - 1];
		}
	}
	close_mailbox(r);
}

UNIT_TEST(collectives_may_end_in_any_order)
{
	ranks_run(2, NULL, out_of_order, NULL);
	ranks_run(4, NULL, out_of_order, NULL);
}

/* One rank posts, the others only read, each as late as it likes; nobody runs away from the
 * slowest. */
static void one_sender(struct ranks *r)
{
	uint64_t seed = (uint64_t)r->rank + 1;

	open_mailbox(r);
	for (uint64_t k = 1; k <= COLLECTIVES; k++) {
		uint64_t n = begin();

		if (!r->rank)
			post(0, n);
		else if (!ranks_below(&seed, 50))
			sched_yield();
		check(0, n);
		mailbox_end(mailbox, n);
	}
	close_mailbox(r);
}

UNIT_TEST(a_sender_waits_for_the_slowest_reader) { ranks_run(4, NULL, one_sender, NULL); }

/* ---- what ranks make of the messages ----------------------------------------------------- */

static uint64_t post_bytes(const void *message, uint32_t bytes)
{
	uint64_t n = begin();

	memcpy(mailbox_record(mailbox, n), message, bytes);
	mailbox_post(mailbox, n, bytes);
	return n;
}

static int take(uint64_t n, struct mailbox_read *r)
{
	struct node_wait w = { 0 };
	int ret;

	r->next = r->first;
	while (!(ret = mailbox_receive(mailbox, n, r)))
		node_wait(group, &w);
	node_wait_end(group, &w);
	mailbox_end(mailbox, n);
	return ret;
}

/* Everybody's, a stride apart; the bytes in between are left alone. */
static void all_gather(struct ranks *r)
{
	char got[RANKS_MAX * 8];

	open_mailbox(r);
	memset(got, '.', sizeof got);
	for (int i = 0; i < 100; i++) {
		char mine[5] = { (char)r->rank, 'a', 'b', (char)i, 'd' };
		struct mailbox_read all = {
			.end = r->size, .bytes = 5, .to = got, .stride = 8, .skip = -1
		};

		CHECK_EQ(take(post_bytes(mine, 5), &all), 1);
		for (int q = 0; q < r->size; q++) {
			mine[0] = (char)q;
			CHECK(!memcmp(got + 8 * q, mine, 5) && !memcmp(got + 8 * q + 5, "...", 3));
		}
	}
	close_mailbox(r);
}

UNIT_TEST(messages_are_laid_side_by_side) { ranks_run(5, NULL, all_gather, NULL); }

/* Each rank's part of each message. */
static void all_to_all(struct ranks *r)
{
	int mine[RANKS_MAX], got[RANKS_MAX];
	struct mailbox_read all = { .end = r->size,
				  .at = 4 * (uint32_t)r->rank,
				  .bytes = 4,
				  .to = (char *)got,
				  .stride = 4,
				  .skip = -1 };

	open_mailbox(r);
	for (int q = 0; q < r->size; q++)
		mine[q] = 100 * r->rank + q;
	CHECK_EQ(take(post_bytes(mine, 4 * (uint32_t)r->size), &all), 1);
	for (int q = 0; q < r->size; q++)
		CHECK_EQ(got[q], 100 * q + r->rank);
	close_mailbox(r);
}

UNIT_TEST(parts_of_messages_are_exchanged) { ranks_run(4, NULL, all_to_all, NULL); }

/* Parts of different lengths, none of one rank, to places in no order. */
static void parts(struct ranks *r)
{
	struct coll_part to[3] = { { 10, 3 }, { 0, 0 }, { 2, 5 } };
	struct mailbox_read all = { .end = 3, .parts = to, .skip = -1 };
	char got[16];

	open_mailbox(r);
	memset(got, '.', sizeof got);
	all.to = got;
	CHECK_EQ(take(post_bytes("01234", r->rank == 0 ? 3 : r->rank == 1 ? 0 : 5), &all), 1);
	CHECK(!memcmp(got, "..01234...012...", 16));
	close_mailbox(r);
}

UNIT_TEST(parts_may_lie_anywhere) { ranks_run(3, NULL, parts, NULL); }

/* Rank 1 has its own part in place already, and posts nothing. */
static void in_place(struct ranks *r)
{
	char got[13] = "............";
	struct mailbox_read all = { .end = 3, .bytes = 4, .to = got, .stride = 4, .skip = 1 };
	uint64_t n;

	open_mailbox(r);
	if (r->rank == 1) {
		n = begin();
		CHECK_EQ(take(n, &all), 1);
		CHECK(!memcmp(got, "abc0....abc2", 12));
	} else {
		char mine[4] = { 'a', 'b', 'c', (char)('0' + r->rank) };

		mailbox_end(mailbox, post_bytes(mine, 4));
	}
	close_mailbox(r);
}

UNIT_TEST(a_rank_may_have_its_part_in_place) { ranks_run(3, NULL, in_place, NULL); }

/* Not commutative: 2 x 2 matrices. */
static int multiply(void *ctx, const void *in, void *inout, uint32_t bytes)
{
	const uint32_t *a = in;
	uint32_t *b = inout, c[4];

	++*(int *)ctx;
	CHECK_EQ(bytes, sizeof c);
	c[0] = a[0] * b[0] + a[1] * b[2];
	c[1] = a[0] * b[1] + a[1] * b[3];
	c[2] = a[2] * b[0] + a[3] * b[2];
	c[3] = a[2] * b[1] + a[3] * b[3];
	memcpy(b, c, sizeof c);
	return 0;
}

static void matrix_of(int rank, uint32_t m[4])
{
	for (int i = 0; i < 4; i++)
		m[i] = (uint32_t)(rank * 5 + i * i + 1);
}

static void reductions(struct ranks *r)
{
	int calls = 0, first = r->rank / 2, none = 0;
	struct mailbox_reduce reduce = { multiply, &calls, r->rank % 2 };
	_Alignas(16) uint32_t got[3 * 4], want[4];
	struct mailbox_read some = { .first = first,
				   .end = r->rank + 1,
				   .bytes = 16,
				   .to = (char *)got,
				   .stride = 16,
				   .reduce = &reduce,
				   .skip = -1 };
	uint32_t m[4];

	open_mailbox(r);
	matrix_of(first, want);
	for (int q = first + 1; q <= r->rank; q++) {
		matrix_of(q, m);
		multiply(&none, want, m, 16);
		memcpy(want, m, 16);
	}
	matrix_of(r->rank, m);
	CHECK_EQ(take(post_bytes(m, 16), &some), 1);
	CHECK(!memcmp(got, want, 16));
	CHECK_EQ(calls, r->rank - first);
	close_mailbox(r);
}

UNIT_TEST(messages_are_combined_in_the_order_of_ranks) { ranks_run(5, NULL, reductions, NULL); }

static int refuse(void *ctx, const void *in, void *inout, uint32_t bytes) { return -EDOM; }

static void trouble(struct ranks *r)
{
	_Alignas(16) char got[64];
	struct mailbox_reduce reduce = { refuse, NULL, false };
	struct mailbox_read longer = {
		.end = r->size, .at = 4, .bytes = 13, .to = got, .stride = 16, .skip = -1
	};
	struct mailbox_read reduced = {
		.end = r->size, .bytes = 4, .to = got, .stride = 16, .reduce = &reduce, .skip = -1
	};

	open_mailbox(r);
	CHECK_EQ(take(post_bytes("0123456789abcdef", 16), &longer), -EREMOTEIO);
	CHECK_EQ(take(post_bytes("0123456789abcdef", 16), &reduced), -EDOM);
	close_mailbox(r);
}

UNIT_TEST(a_message_that_is_too_short_is_an_error) { ranks_run(2, NULL, trouble, NULL); }

/* ---- a result that one rank combines for all ----------------------------------------------- */

static int combines;

static int add(void *ctx, const void *in, void *inout, uint32_t bytes)
{
	(void)ctx;
	combines++;
	for (uint32_t i = 0; i < bytes / sizeof(uint64_t); i++)
		((uint64_t *)inout)[i] += ((const uint64_t *)in)[i];
	return 0;
}

/* Rank 0 finds all messages first. `longer`: one rank posts more than the others combine. */
static void share(struct ranks *r, uint32_t bytes, bool longer)
{
	static const struct mailbox_reduce reduce = { .combine = add };
	static _Alignas(64) char to[4][MAILBOX_BYTES / 64 * 64];
	struct mailbox_read read = { .end = r->size, .bytes = bytes, .to = to[0],
				     .stride = sizeof to[0], .reduce = &reduce,
				     .is_shared = true, .skip = -1 };
	uint64_t n = begin(), *message = mailbox_record(mailbox, n);

	for (uint32_t i = 0; i < bytes / sizeof(uint64_t); i++)
		message[i] = n * i + (uint64_t)r->rank;
	mailbox_post(mailbox, n, longer && !r->rank ? bytes + 8 : bytes);
	ranks_barrier(r);
	combines = 0;
	if (!r->rank)
		CHECK_EQ(mailbox_receive(mailbox, n, &read), 1);
	ranks_barrier(r);
	if (r->rank)
		CHECK_EQ(mailbox_receive(mailbox, n, &read), 1);
	for (uint32_t i = 0; i < bytes / sizeof(uint64_t); i++)
		CHECK_EQ(((uint64_t *)to[0])[i], 4 * n * i + 6);
	CHECK_EQ(combines, !r->rank || longer || bytes > MAILBOX_RESULT_BYTES ? 3 : 0);
	mailbox_end(mailbox, n);
}

static void one_combines(struct ranks *r)
{
	open_mailbox(r);
	for (uint32_t i = 0; i < 4 * MAILBOX_RECORDS; i++) {
		share(r, 8, false);
		share(r, MAILBOX_RESULT_BYTES, false);
		share(r, MAILBOX_RESULT_BYTES + 8, false);
		share(r, 4096, false); /* user data where results lie otherwise */
		share(r, 8, true);
	}
	close_mailbox(r);
}

UNIT_TEST(one_rank_combines_for_all) { ranks_run(4, NULL, one_combines, NULL); }
