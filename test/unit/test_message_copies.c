/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies that sends offer: always the bytes of the message that is sent. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

#include "message_case.h"
#include "os/os.h"

/* Sends [p, p + bytes) as a blocking call does while rank 1 reads it. Returns: whether a copy was
 * offered. */
static bool send_and_read(struct ranks *r, char *p, char *mine, size_t bytes, uint8_t value)
{
	struct snapshot *s = NULL;

	if (!r->rank) {
		memset(p, value, bytes);
		s = message_send(p, bytes, bytes, MESSAGE_BLOCKING);
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
	if (!r->rank) {
		price_kernel(UINT32_MAX);
		CHECK_EQ(message_sent(s, 7), 7);
	}
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

/* Sets what peers have read so far; then a message has a copy, or none. */
static void send_after(struct ranks *r, uint64_t read, char *p, char *mine, size_t bytes,
		       bool has_copy)
{
	if (!r->rank)
		atomic_store(&node_header_self()->private_bytes, read);
	CHECK_EQ(send_and_read(r, p, mine, bytes, (uint8_t)(read / 3)), has_copy && !r->rank);
}

/* A copy gets pages when peers have read 32 bytes for each of their bytes, 128 of a long message,
 * once. */
static void pages_are_earned(struct ranks *r)
{
	char *p = NULL, *mine = pages(MIB);

	announce_only(r);
	CHECK(node_header_of(r->pids[!r->rank], true));
	if (!r->rank)
		tell(r, pages(MIB));
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]);
	send_after(r, 1, p, mine, 262144, false); /* memory that the kernel has not read has none */
	send_after(r, MIB - 1, p, mine, 32768, false);
	send_after(r, MIB, p, mine, 32768, true);
	send_after(r, MIB, p, mine, 32768, true);
	send_after(r, 2 * MIB - 1, p, mine, 65536, false);
	send_after(r, 2 * MIB, p, mine, 65536, true);
	send_after(r, 2 * MIB, p, mine, 65536, true);
	send_after(r, 2 * MIB, p, mine, 32768, true);
	send_after(r, 2 * MIB + 511, p, mine, 65540, false);
	send_after(r, 2 * MIB + 512, p, mine, 65540, true);
	send_after(r, 26 * MIB - 1, p, mine, 262144, false);
	send_after(r, 26 * MIB, p, mine, 262144, true);
}

UNIT_TEST(a_copy_gets_pages_when_peers_have_read_enough)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), pages_are_earned, NULL);
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

/* Adopted memory that a raw system call has replaced. A short message with an end outside is the
 * kernel's, and its send checks nothing; the send from inside finds that the region has ended. */
static void replaced_memory_is_sent(struct ranks *r)
{
	static const size_t starts[] = { MIB - 8, MIB + 64 };
	char *p = NULL, *mine = pages(MIB);

	announce(r);
	if (!r->rank) {
		p = pages(3 * MIB);
		CHECK(is_mapped(p + MIB, MIB));
		syscall(SYS_mmap, p + MIB, MIB, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0l);
		tell(r, p);
	}
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]);
	for (size_t i = 0; i < BASE_ARRAY_LEN(starts); i++) {
		if (!r->rank) {
			memset(p + starts[i], 5, 8192);
			CHECK(!message_send(p + starts[i], 8192, 8192, MESSAGE_UNCOPIED));
		}
		ranks_barrier(r);
		if (r->rank) {
			CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p + starts[i], 8192), 8192);
			for (int k = 0; k < 8192; k++)
				CHECK_EQ(mine[k], 5);
		}
		ranks_barrier(r);
	}
}

UNIT_TEST(short_sends_from_memory_that_was_replaced)
{
	if (!os_vma_query_is_cheap())
		unit_skip("this kernel cannot be asked about a mapping");
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), replaced_memory_is_sent, NULL);
}

/* Sends that nobody reads offer fewer and fewer copies. */
static void copies_are_in_vain(struct ranks *r)
{
	char *p = NULL, *mine = pages(MIB);
	int offers = 0;

	p = announce_mib(r);
	send_and_read(r, p, mine, 60000, 1);
	for (int i = 0; i < 1000 && !r->rank; i++) {
		struct snapshot *s = message_send(p, 60000, 60000, MESSAGE_BLOCKING);

		message_sent(s, 0);
		offers += s != NULL;
	}
	CHECK(offers < 12);
	ranks_barrier(r);
}

UNIT_TEST(copies_that_nobody_reads_become_rare)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), copies_are_in_vain, NULL);
}

/* The program makes an error handler while a copy of ones is offered, changes its buffer to twos,
 * and rank 1 gets twos. */
static void no_more_copies(struct ranks *r)
{
	char *p = NULL, *mine = pages(MIB);
	struct snapshot *s = NULL;

	p = announce_mib(r);
	send_and_read(r, p, mine, 60000, 1);
	if (!r->rank) {
		s = message_send(p, 60000, 60000, MESSAGE_BLOCKING);
		CHECK(s);
		message_copy_no_more();
		memset(p, 2, 60000);
	}
	ranks_barrier(r);
	if (r->rank) {
		CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, 60000), 60000);
		CHECK_EQ(mine[30000], 2);
	}
	ranks_barrier(r);
	CHECK_EQ(message_sent(s, 7), 7);
	for (int i = 0; i < 100 && !r->rank; i++)
		CHECK(!message_send(p, 60000, 60000, MESSAGE_BLOCKING));
	ranks_barrier(r);
}

UNIT_TEST(an_error_handler_of_the_program_ends_all_copies)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), no_more_copies, NULL);
}

/* Offers a copy of the message in a thread of its own, which ends in its send. */
static void *offer_in_thread(void *p) { return message_send(p, 60000, 60000, MESSAGE_BLOCKING); }

/* The end of a send leaves the copies of other threads. */
static void sends_of_two_threads(struct ranks *r)
{
	char *p = NULL, *mine = pages(MIB);
	struct snapshot *first, *second;
	pthread_t thread;

	p = announce_mib(r);
	for (int i = 0; i < 2; i++)
		send_and_read(r, p + 60000 * i, mine, 60000, 1);
	if (!r->rank) {
		first = message_send(p + 60000, 60000, 60000, MESSAGE_BLOCKING);
		CHECK_EQ(pthread_create(&thread, NULL, offer_in_thread, p), 0);
		CHECK_EQ(pthread_join(thread, (void **)&second), 0);
		CHECK(first && second && second != first);
		message_sent(first, 0);
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
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), sends_of_two_threads, NULL);
}

/* The reader's fault in the middle of a copy: the owner withdraws it, and sends another message
 * from the same memory. */
static struct ranks *faulting;
static char *closed;

static void fault(int sig)
{
	atomic_store(&faulting->words[1], 1);
	while (atomic_load(&faulting->words[1]) == 1)
		sched_yield();
	CHECK(!mprotect(closed, MIB / 2, PROT_READ | PROT_WRITE));
}

static void copy_changes(struct ranks *r)
{
	char *p = NULL, *mine = pages(MIB);
	struct snapshot *s;

	p = announce_mib(r);
	send_and_read(r, p, mine, 60000, 0);
	if (!r->rank) {
		memset(p, 1, 60000);
		s = message_send(p, 60000, 60000, MESSAGE_BLOCKING);
		CHECK(s);
		ranks_barrier(r);
		while (!atomic_load(&r->words[1]))
			sched_yield();
		price_kernel(UINT32_MAX);
		message_sent(s, 0);
		memset(p, 2, 60000);
		do /* after a copy that nobody has read to its end, some sends offer none */
			s = message_send(p, 60000, 60000, MESSAGE_BLOCKING);
		while (!s);
		atomic_store(&r->words[1], 2);
		ranks_barrier(r);
		message_sent(s, 0);
		return;
	}
	faulting = r;
	closed = mine + 32768;
	CHECK(!mprotect(closed, MIB / 2, PROT_NONE));
	signal(SIGSEGV, fault);
	ranks_barrier(r);
	CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, 60000), 60000);
	for (size_t i = 0; i < 60000; i++)
		CHECK_EQ(mine[i], 2);
	CHECK_EQ(atomic_load(&r->words[1]), 2);
	ranks_barrier(r);
}

UNIT_TEST(a_copy_that_changes_while_it_is_read_is_not_used)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), copy_changes, NULL);
}

/* A kernel that reads faster than copies are made and read has the messages, but for a try now and
 * then. */
static void copies_cost_more(struct ranks *r)
{
	char *p = NULL, *mine = pages(MIB);
	int offers = 0;

	p = announce_mib(r);
	send_and_read(r, p, mine, 60000, 1);
	for (int i = 0; i < 200; i++) {
		struct snapshot *s = NULL;

		if (!r->rank) {
			s = message_send(p, 60000, 60000, MESSAGE_BLOCKING);
			offers += s != NULL;
		}
		ranks_barrier(r);
		if (r->rank)
			CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, 60000), 60000);
		ranks_barrier(r);
		if (!r->rank)
			price_kernel(1);
		message_sent(s, 0);
	}
	CHECK(offers < 20);
	CHECK(r->rank || offers > 2);
	ranks_barrier(r);
}

UNIT_TEST(copies_are_offered_only_where_they_pay)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), copies_cost_more, NULL);
}

/* Without the kernel's time of a length its copies seem to pay always. */
static void reads_are_timed(struct ranks *r)
{
	char *p = NULL, *mine = pages(MIB);

	p = announce_mib(r);
	for (size_t bytes = 4096; bytes <= 262144 && r->rank; bytes *= 2)
		for (int i = 0; i < 4; i++)
			CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, bytes), (ssize_t)bytes);
	ranks_barrier(r);
	for (size_t i = 0; i < BASE_ARRAY_LEN(node_header_self()->kernel_ps) && !r->rank; i++)
		CHECK(atomic_load(&node_header_self()->kernel_ps[i]));
}

UNIT_TEST(reads_by_the_kernel_are_timed_for_all_lengths_of_copies)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), reads_are_timed, NULL);
}

/* ---- nonblocking sends ------------------------------------------------------------------- */

enum { REQUEST = 4711 };

/* Rank 1 reads the message. Returns: how often it needed the kernel. */
static int read_sent(struct ranks *r, const char *p, char *mine, uint8_t value)
{
	ranks_barrier(r);
	if (r->rank) {
		real_calls = 0;
		memset(mine, 0, 60000);
		CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, 60000), 60000);
		for (size_t i = 0; i < 60000; i++)
			CHECK_EQ((uint8_t)mine[i], value);
	}
	ranks_barrier(r);
	return real_calls;
}

/* Starts a send of memory that peers have read before. */
static void post(char *p, uint8_t value, bool is_persistent)
{
	struct snapshot *s;

	memset(p, value, 60000);
	s = message_send(p, 60000, 60000, MESSAGE_POSTED);
	CHECK(s);
	message_posted(s, REQUEST, is_persistent);
	CHECK(message_has_posted());
}

/* A copy is there while the request is in the list that the program gives to a call, and gone once
 * the request has left it. A persistent one stays in the list. */
static void posted_sends_offer_copies(struct ranks *r)
{
	char *p = NULL, *mine = pages(MIB);
	uint64_t listed;

	p = announce_mib(r);
	send_and_read(r, p, mine, 60000, 1);
	for (uint8_t i = 2; i < 8; i++) {
		if (!r->rank)
			post(p, i, i % 2);
		CHECK_EQ(read_sent(r, p, mine, i), 0);
		listed = message_listed(REQUEST);
		CHECK_EQ(message_listed(REQUEST + 1), 0);
		if (!r->rank && !(i % 2)) {
			CHECK(!message_completed(listed, listed));
			CHECK(message_has_posted());
		}
		if (!(i % 2))
			CHECK_EQ(read_sent(r, p, mine, i), 0);
		if (!r->rank) {
			price_kernel(UINT32_MAX);
			CHECK(message_completed(listed, i % 2 ? listed : 0));
			CHECK(!message_has_posted());
			memset(p, 99, 60000);
		}
		CHECK_EQ(read_sent(r, p, mine, 99), r->rank);
	}
}

UNIT_TEST(a_nonblocking_send_offers_a_copy_until_its_request_is_complete)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), posted_sends_offer_copies, NULL);
}

/* The end of the job withdraws what is left, and frees the places. */
static void posted_sends_are_many(struct ranks *r)
{
	char *p = NULL, *mine = pages(MIB);

	p = announce_mib(r);
	send_and_read(r, p, mine, 60000, 1);
	for (int round = 0; round < 3 && !r->rank; round++) {
		struct snapshot *s = NULL;
		int n = 0;

		while (n < 100 && (s = message_send(p + 512 * n, 512 + 8192, 512 + 8192,
						    MESSAGE_POSTED)))
			message_posted(s, REQUEST + (uintptr_t)n++, false);
		CHECK(n >= 4 && n <= 32);
		CHECK(message_end());
		CHECK(!message_has_posted());
		CHECK(!message_end());
		message_begin();
		for (int i = 0; i < 2000; i++) /* these copies were in vain */
			message_send(p, 10000, 10000, MESSAGE_BLOCKING);
	}
	ranks_barrier(r);
}

UNIT_TEST(nonblocking_sends_that_never_end_leave_no_copy)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), posted_sends_are_many, NULL);
}
