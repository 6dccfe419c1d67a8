/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads of a peer's memory, served from its arena: always the bytes, the counts and the errors of
 * the real call. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/endpoint.h"
#include "message/private.h"
#include "os/os.h"
#include "region/private.h"
#include "message_case.h"

enum { PAGE = 4096, RUNS = 200 };

/* ---- bytes -------------------------------------------------------------------------------- */

static void any_part_is_read(struct ranks *r)
{
	char *p = NULL, *mine = pages(3 * MIB);
	uint64_t state = 5;

	announce(r);
	if (r->rank == 0) {
		p = pages(3 * MIB);
		CHECK(is_mapped(p + MIB, MIB)); /* the middle third */
		tell(r, p);
	}
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]);
	for (int i = 0; i < RUNS && r->rank; i++) {
		size_t from = ranks_below(&state, 3 * MIB), n = ranks_below(&state, 3 * MIB - from);

		memset(mine, 0, n + 1);
		CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p + from, n), (ssize_t)n);
		for (size_t k = 0; k < n; k++)
			if ((uint8_t)mine[k] != byte_at(from + k))
				CHECK_EQ(k, n);
		CHECK_EQ(mine[n], 0);
	}
	if (r->rank) {
		CHECK(base_counter_value(BASE_CTR_BYTES_MESSAGES) > 10 * MIB);
		real_calls = 0;
		CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p + MIB, MIB), MIB);
		CHECK_EQ(real_calls, 0);
		CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p + MIB - 8, MIB + 16), MIB + 16);
		CHECK_EQ(real_calls, 1); /* both edges */
	}
	ranks_barrier(r);
}

UNIT_TEST(any_part_of_a_peers_memory_is_read_right)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), any_part_is_read, NULL);
}

/* 1,024 pieces of 8 bytes, in regions, between them, and cut differently on both sides. */
static void many_pieces_are_read(struct ranks *r)
{
	struct iovec remote[1024], local[1024];
	char *p = NULL, *mine = pages(MIB);

	announce(r);
	if (r->rank == 0) {
		p = pages(2 * MIB);
		CHECK(is_mapped(p, MIB));
		tell(r, p);
	}
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]);
	for (int step = 512; r->rank && step <= 2048; step *= 2) {
		for (int i = 0; i < 1024; i++) {
			remote[i] = (struct iovec){ p + i * step, 8 };
			local[i] = (struct iovec){ mine + i * 12, i % 2 ? 4 : 12 };
		}
		memset(mine, 0, MIB);
		CHECK_EQ(read_vectors(r->pids[0], local, 1024, remote, 1024), 8192);
		for (size_t i = 0, at = 0; i < 1024; i++)
			for (size_t k = 0; k < local[i].iov_len; k++, at++)
				CHECK_EQ(((uint8_t *)local[i].iov_base)[k],
					 byte_at(at / 8 * (size_t)step + at % 8));
	}
	ranks_barrier(r);
}

UNIT_TEST(a_thousand_short_pieces_are_read_right)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), many_pieces_are_read, NULL);
}

/* ---- counts and errors -------------------------------------------------------------------- */

/* The call and the real one have the same result and errno. */
static void same(int pid, const struct iovec *l, int n, const struct iovec *r, int m)
{
	ssize_t want, got;
	int err;

	errno = 0;
	want = process_vm_readv(pid, l, (unsigned)n, r, (unsigned)m, 0);
	err = errno;
	errno = 0;
	got = read_vectors(pid, l, n, r, m);
	CHECK_EQ(got, want);
	CHECK_EQ(errno, err);
}

static void results_are_the_kernels(struct ranks *r)
{
	char *p = NULL, *mine = pages(3 * MIB);

	announce(r);
	if (r->rank == 0) {
		p = pages(3 * MIB);
		munmap(p, PAGE);
		munmap(p + 2 * MIB + PAGE, PAGE);
		CHECK(is_mapped(p + MIB, MIB));
		tell(r, p);
	}
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]);
	if (r->rank) {
		struct iovec l[2] = { { mine, 3 * MIB }, { mine, 0 } };
		struct iovec from[3] = { { p + MIB, MIB }, { p, MIB }, { p + MIB, 100 } };

		same(r->pids[0], l, 1, from, 1);
		same(r->pids[0], l, 1, from, 2); /* ends behind the region */
		same(r->pids[0], l, 1, from + 1, 2); /* nothing at all */
		from[0].iov_len = 2 * MIB; /* ends at the hole behind the region */
		same(r->pids[0], l, 1, from, 1);
		same(r->pids[0], l, 2, from, 3);
		same(r->pids[0], l, 0, from, 1);
		same(r->pids[0], l, 2000, from, 1);
		same(r->pids[0], l, 1, from, 2000);
		l[0].iov_len = 5000;
		same(r->pids[0], l, 1, from, 1);
		from[0].iov_len = SIZE_MAX;
		same(r->pids[0], l, 1, from, 1);
		same(getppid(), l, 1, from + 1, 1);
		same(1 << 30, l, 1, from + 2, 1);
		same(getpid(), l, 1, &(struct iovec){ mine + 8192, 5000 }, 1);
	}
	ranks_barrier(r);
}

UNIT_TEST(counts_and_errors_are_those_of_the_kernel)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), results_are_the_kernels, NULL);
}

/* ---- memory that changes ------------------------------------------------------------------ */

/* Rank 0 writes a number all over its buffer and then tells it, again and again; meanwhile its
 * region ends in all ways and is adopted again. Ranks 1 and 2 ask for a number and then read: what
 * they get is that number or a later one at each place, zeros once the contents were dropped,
 * and never bytes of other memory. */
enum { WORDS = MIB / 8, ROUNDS = 60 };

static void write_round(struct ranks *r, uint64_t *p, uint64_t n)
{
	for (int i = 0; i < WORDS; i++)
		__atomic_store_n(&p[i], n, __ATOMIC_RELAXED);
	atomic_store(&r->words[1], n);
}

static void end_region(struct ranks *r, char *p, char *other, int how)
{
	pid_t child;

	switch (how) {
	case 0:
		region_return((uintptr_t)p, (uintptr_t)p + MIB);
		break;
	case 1:
		child = fork();
		if (!child)
			_exit(0);
		waitpid(child, NULL, 0);
		break;
	case 2: /* another buffer gets the pages, and other numbers */
		atomic_fetch_add(&r->words[4], 1);
		region_drop((uintptr_t)p, (uintptr_t)p + MIB);
		CHECK(is_mapped(other, MIB));
		memset(other, 0xee, MIB);
		region_drop((uintptr_t)other, (uintptr_t)other + MIB);
		break;
	}
}

static void own_changing(struct ranks *r)
{
	struct region_head *head = (void *)((char *)region_arena_base() + OS_PAGE);
	char *p = pages(MIB), *other = pages(MIB);

	/* the version of the table passes its last value while readers look */
	atomic_store(&head->version, UINT64_MAX - 99);
	write_round(r, (uint64_t *)p, 1);
	tell(r, p);
	ranks_barrier(r);
	for (uint64_t n = 2; n < ROUNDS && atomic_load(&r->words[3]) < 2; n++) {
		CHECK(is_mapped(p, MIB));
		usleep(n % 3 * 50);
		end_region(r, p, other, (int)(n % 3));
		write_round(r, (uint64_t *)p, n);
	}
	CHECK(atomic_load(&head->version) < UINT64_MAX - 99);
	atomic_store(&r->words[2], 1);
}

static void read_changing(struct ranks *r)
{
	uint64_t *mine = malloc(MIB);
	uintptr_t p;

	ranks_barrier(r);
	p = atomic_load(&r->words[0]);
	for (int i = 0; i < 20000 && !atomic_load(&r->words[2]); i++) {
		uint64_t before = atomic_load(&r->words[1]), after;
		uint64_t drops = atomic_load(&r->words[4]);

		CHECK_EQ(read_one(r->pids[0], mine, p, MIB), MIB);
		after = atomic_load(&r->words[1]) + 1; /* it may be writing that one */
		if (atomic_load(&r->words[4]) != drops || (before % 3 == 1 && drops))
			before = 0;
		for (int k = 0; k < WORDS; k++)
			if (mine[k] < before || mine[k] > after)
				CHECK_EQ(mine[k], before);
	}
	atomic_fetch_add(&r->words[3], 1);
	free(mine);
}

static void memory_changes(struct ranks *r)
{
	announce(r);
	if (r->rank)
		read_changing(r);
	else
		own_changing(r);
	ranks_barrier(r);
}

UNIT_TEST(a_region_that_ends_while_it_is_read_gives_no_other_bytes)
{
	ranks_run(3, OPTIONS("SLUICE_LOG=info"), memory_changes, NULL);
}

/* ---- the owner ----------------------------------------------------------------------------- */

/* A buffer that peers read earns adoption; one that nobody reads, and one used once, does not. */
static void buffers_earn_adoption(struct ranks *r)
{
	char *p = NULL, *mine = pages(MIB);

	announce(r);
	if (r->rank == 0) {
		p = pages(MIB);
		for (int i = 0; i < 20; i++)
			message_send(p, MIB, MIB, MESSAGE_UNCOPIED);
		CHECK(!region_overlaps((uintptr_t)p, (uintptr_t)p + MIB));
		tell(r, p);
	}
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]);
	if (r->rank)
		CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, MIB), MIB);
	ranks_barrier(r);
	for (int i = 0; i < 10 && !r->rank; i++) {
		message_send(p, MIB, MIB, MESSAGE_UNCOPIED);
		CHECK_EQ(region_overlaps((uintptr_t)p, (uintptr_t)p + MIB), i >= 3);
	}
	ranks_barrier(r);
	real_calls = 0;
	if (r->rank)
		CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, MIB), MIB);
	CHECK_EQ(real_calls, 0);
	ranks_barrier(r);
}

UNIT_TEST(a_buffer_that_peers_read_again_and_again_is_adopted)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info", "SLUICE_REGION_ADOPT_AFTER=3"),
		  buffers_earn_adoption, NULL);
}

/* ---- the first messages -------------------------------------------------------------------- */

static uint64_t slow_ns, longest_ns; /* of all calls, of one */

static ssize_t slow_real(pid_t pid, const struct iovec *l, unsigned long n, const struct iovec *r,
			 unsigned long m, unsigned long flags)
{
	uint64_t begin = os_now_ns();
	ssize_t ret = process_vm_readv(pid, l, n, r, m, flags);

	while (os_now_ns() < begin + 100000)
		;
	slow_ns += os_now_ns() - begin;
	longest_ns = base_max_u64(longest_ns, os_now_ns() - begin);
	return ret;
}

/* A message of the program; no peer is told of its copy. */
static void send_long(const void *p) { (void)message_send(p, 65536, 65536, MESSAGE_UNCOPIED); }

/* A peer is looked for when reads have taken 480 us; where this process sends nothing, 16 times as
 * long. */
static void peers_are_earned(struct ranks *r)
{
	uint64_t price_ns = r->arg ? 480000 : 16 * 480000;
	_Atomic uint64_t *noticed;
	char *p = pages(MIB);
	struct iovec v = { p, 65536 };

	announce_only(r);
	noticed = &node_header_self()->private_bytes;
	if (r->arg)
		send_long(p);
	for (int i = 0; i < 120; i++) {
		struct iovec from = { (void *)atomic_load(&r->words[0]), 65536 };
		/* after 32 reads some count twice, so an interrupted one could be several */
		uint64_t before_ns = slow_ns, late_ns = (i < 32 ? 1 : 16) * longest_ns;
		bool is_calm = i < 32 || longest_ns < 150000;
		struct message_read call = { .pid = r->pids[0], .local = &v, .locals = 1,
					     .remote = &from, .remotes = 1, .real = slow_real };

		if (!r->rank)
			tell(r, p);
		ranks_barrier(r);
		if (r->rank) {
			from.iov_base = (void *)atomic_load(&r->words[0]);
			CHECK_EQ(message_read(&call), 65536);
			if (is_calm && before_ns + late_ns < price_ns)
				CHECK(!node_header_of(r->pids[0], false));
			if (before_ns > price_ns + late_ns)
				CHECK(node_header_of(r->pids[0], false));
		}
		ranks_barrier(r);
	}
	CHECK(r->rank || atomic_load(noticed));
}

UNIT_TEST(a_peer_is_looked_for_when_reads_have_taken_long_enough)
{
	static char sends;

	ranks_run(2, OPTIONS("SLUICE_LOG=info"), peers_are_earned, &sends);
}

UNIT_TEST(a_peer_is_looked_for_later_where_this_process_sends_no_message)
{
	ranks_run(2, OPTIONS("SLUICE_LOG=info"), peers_are_earned, NULL);
}

static void read_slowly(struct ranks *r, int rank, char *to)
{
	struct iovec v = { to, 65536 };
	struct iovec from = { (void *)atomic_load(&r->words[rank]), 65536 };
	struct message_read call = { .pid = r->pids[rank], .local = &v, .locals = 1,
				     .remote = &from, .remotes = 1, .real = slow_real };

	CHECK_EQ(message_read(&call), 65536);
}

/* Ranks that do not serve reads: the second is looked for after four times as long. The kernel's
 * time is measured within, so slow_ns is less than what was measured. */
static void second_peer_is_earned_later(struct ranks *r)
{
	char *p = pages(MIB);

	announce_only(r);
	send_long(p);
	atomic_store(&r->words[r->rank], (uintptr_t)p);
	ranks_barrier(r);
	for (int peer = 1; peer < 3 && !r->rank; peer++) {
		uint64_t price_ns = peer == 1 ? 480000 : 4 * 480000, begin_ns = slow_ns;
		uint64_t at_ns = 0, last_ns = 0; /* before this read, and before the one before */

		while (!node_header_of(r->pids[peer], false) && last_ns < price_ns) {
			last_ns = at_ns;
			at_ns = slow_ns - begin_ns;
			read_slowly(r, peer, p);
		}
		CHECK(node_header_of(r->pids[peer], false));
		CHECK(at_ns > price_ns / 2);
	}
	ranks_barrier(r);
}

UNIT_TEST(a_second_peer_is_looked_for_later_where_nothing_was_served)
{
	ranks_run(3, OPTIONS("SLUICE_LOG=info"), second_peer_is_earned_later, NULL);
}

/* ---- peers of which nothing is served -------------------------------------------------------- */

enum { SHORT = 16384, SHORT_READS = 2000, BLOCKS = 16, BLOCK = 65536 };

static void read_short(struct ranks *r, const char *p, char *mine)
{
	CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, SHORT), SHORT);
	CHECK_EQ((uint8_t)mine[SHORT - 1], byte_at(SHORT - 1));
}

/* Reads of one block, then of others. Returns: those others that the owner was told of. */
static int blocks_told(struct ranks *r, const char *p, char *mine)
{
	struct node_header *h = node_header_of(r->pids[0], false);
	int told = 0;

	for (int i = 0; i < SHORT_READS; i++)
		read_short(r, p, mine);
	for (int i = 1; i <= BLOCKS; i++) {
		uintptr_t at = (uintptr_t)p + (uintptr_t)i * BLOCK;

		CHECK_EQ(read_one(r->pids[0], mine, at, SHORT), SHORT);
		told += atomic_load(node_granule(h, at >> NODE_GRANULE_SHIFT)) ==
			(uint32_t)(at >> NODE_GRANULE_SHIFT);
	}
	return told;
}

/* The owner hears of few reads, of each as of many, until its regions change. */
static void checks_become_rare(struct ranks *r)
{
	char *p, *mine = pages(MIB);
	struct node_header *h;
	uint64_t before, counted;

	announce(r);
	if (!r->rank)
		tell(r, pages(2 * MIB));
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]);
	if (r->rank) {
		h = node_header_of(r->pids[0], false);
		before = atomic_load(&h->private_bytes);
		real_calls = 0;
		CHECK(blocks_told(r, p, mine) <= 2);
		CHECK_EQ(real_calls, SHORT_READS + BLOCKS);
		counted = (atomic_load(&h->private_bytes) - before) / SHORT;
		CHECK(counted > SHORT_READS / 2 && counted < 2 * SHORT_READS);
	}
	ranks_barrier(r);
	if (!r->rank)
		CHECK(is_mapped(p, 2 * MIB));
	ranks_barrier(r);
	if (r->rank) {
		real_calls = 0;
		read_short(r, p, mine);
		CHECK_EQ(real_calls, 0);
	}
	ranks_barrier(r);
}

UNIT_TEST(a_peer_of_which_nothing_is_served_is_checked_rarely)
{
	ranks_run(2, NULL, checks_become_rare, NULL);
}

/* A short message that is offered is found at once. */
static void offers_are_found(struct ranks *r)
{
	struct message_edges whole = { SHORT, 0 };
	struct snapshot *s = NULL;
	char *p, *mine = pages(MIB);

	announce(r);
	if (!r->rank)
		tell(r, pages(2 * MIB));
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]);
	if (r->rank)
		CHECK(blocks_told(r, p, mine) <= 2);
	ranks_barrier(r);
	if (!r->rank)
		s = snapshot_make(node_header_self(), p, SHORT, &whole, false);
	ranks_barrier(r);
	if (r->rank) {
		real_calls = 0;
		read_short(r, p, mine);
		CHECK_EQ(real_calls, 0);
	}
	ranks_barrier(r);
	if (!r->rank)
		snapshot_end(node_header_self(), s);
	ranks_barrier(r);
	if (r->rank)
		for (int i = 1; i <= BLOCKS; i++)
			read_short(r, p, mine);
	ranks_barrier(r);
}

UNIT_TEST(what_such_a_peer_offers_is_found_at_once)
{
	ranks_run(2, NULL, offers_are_found, NULL);
}

/* ---- the end ------------------------------------------------------------------------------- */

static void owner_is_killed(struct ranks *r)
{
	char *p = NULL, *mine = pages(MIB);
	ssize_t n = MIB;

	announce(r);
	if (r->rank == 0) {
		p = pages(MIB);
		CHECK(is_mapped(p, MIB));
		tell(r, p);
	}
	ranks_barrier(r);
	p = (char *)atomic_load(&r->words[0]);
	if (r->rank) {
		CHECK_EQ(read_one(r->pids[0], mine, (uintptr_t)p, MIB), MIB);
		atomic_store(&r->words[1], 1);
	}
	while (!atomic_load(&r->words[1]))
		usleep(100);
	if (!r->rank)
		raise(SIGKILL);
	for (int i = 0; i < 500 && n == MIB; i++) {
		n = read_one(r->pids[0], mine, (uintptr_t)p, MIB);
		usleep(1000);
	}
	CHECK_EQ(n, -1);
	CHECK_EQ(errno, ESRCH);
	_exit(0);
}

UNIT_TEST(reading_from_a_killed_process_ends)
{
	int status[2];

	ranks_run_any(2, OPTIONS("SLUICE_LOG=info"), owner_is_killed, NULL, status);
	CHECK_EQ(status[0], 128 + SIGKILL);
	CHECK_EQ(status[1], 0);
}

/* ---- one address space --------------------------------------------------------------------- */

/* A process shares its memory with itself, as with an image beside it. */
static void siblings_are_read(struct ranks *r)
{
	enum { BYTES = 3 * MIB, HOLE = MIB + 5 * PAGE, CLOSED = 2 * MIB };
	char *p = pages(BYTES), *mine = pages(BYTES), *other = pages(BYTES);
	struct endpoint_space space = { .count = 2, .rank[1].pid = getpid() };
	uint64_t state = 7;

	announce(r);
	endpoint_space = &space;
	CHECK_EQ(munmap(p + HOLE, PAGE), 0);
	CHECK_EQ(mprotect(p + CLOSED, PAGE, PROT_NONE), 0);
	for (int i = 0; i < 3 * RUNS; i++) {
		size_t from = ranks_below(&state, BYTES), n = ranks_below(&state, BYTES - from);
		struct iovec l[] = { { mine, n / 3 }, { mine + n / 3, n - n / 3 } };
		struct iovec k[] = { { other, n / 3 }, { other + n / 3, n - n / 3 } };
		struct iovec at[] = { { p + from, n / 2 }, { p + from + n / 2, n - n / 2 } };
		ssize_t expected = process_vm_readv(getpid(), k, 2, at, 2, 0);
		int err = errno;

		memset(mine, 0, n);
		CHECK_EQ(read_vectors(getpid(), l, 2, at, 2), expected);
		if (expected < 0)
			CHECK_EQ(errno, err);
		CHECK(expected <= 0 || !memcmp(mine, other, (size_t)expected));
	}
	real_calls = 0;
	CHECK_EQ(read_one(getpid(), mine, (uintptr_t)p, MIB), MIB);
	CHECK_EQ(real_calls, os_vma_query_is_cheap() ? 0 : 1);
	CHECK_EQ(read_one(getpid(), mine, 16, MIB), -1);
	CHECK_EQ(errno, EFAULT);
	CHECK_EQ(read_one(getpid(), mine, UINTPTR_MAX - MIB, MIB / 2), -1);
	CHECK_EQ(errno, EFAULT);
	real_calls = 0;
	atomic_store(&space.rank[1].pid,
		     0); /* it has ended: what is true of its ID, the kernel knows */
	CHECK_EQ(read_one(getpid(), mine, (uintptr_t)p, MIB), MIB);
	CHECK_EQ(real_calls, 1);
	_exit(0);
}

UNIT_TEST(a_peer_in_the_same_address_space_is_read_directly)
{
	ranks_run(1, OPTIONS("SLUICE_LOG=info"), siblings_are_read, NULL);
}
