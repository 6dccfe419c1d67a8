/* SPDX-License-Identifier: BSD-3-Clause */
/* Early return between processes, without MPI: ranks.h gives what rt needs of it. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ranks.h"
#include "rt/early.h"
#include "rt_case.h"
#include "rt/rt.h"
#include "guard/guard.h"
#include "unit.h"

/* TSan reports two accesses without an order even when they do not meet in time: a few rounds of
 * each pattern of root, late rank and first touch (round % 3, 4, 5) suffice. */
#ifdef __SANITIZE_THREAD__
enum { ROUNDS = 16 };
#else
enum { ROUNDS = 40 };
#endif
enum { BYTES = 3 << 20, ODD = 777 };

#define COMMON "SLUICE_REGION_KIND=arena", "SLUICE_TEST=region_adopt_min=4K", "SLUICE_EARLY=on", \
	       "SLUICE_EARLY_MIN=1", "SLUICE_WORKERS=1", "SLUICE_WORKERS=@1"

static char *make_buffer(size_t bytes)
{
	char *b = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(b != MAP_FAILED);
	return b;
}

UNIT_UNSANITIZED static char value(int round, int rank, size_t at)
{
	return (char)(round * 7 + rank * 31 + (int)(at >> 9) + (int)at);
}

UNIT_UNSANITIZED static void fill(char *b, size_t bytes, int round, int rank)
{
	for (size_t i = 0; i < bytes; i++)
		b[i] = value(round, rank, i);
}

UNIT_UNSANITIZED static void check(const char *b, size_t bytes, int round, int rank)
{
	for (size_t i = 0; i < bytes; i++)
		if (b[i] != value(round, rank, i))
			unit_fail(__FILE__, __LINE__,
				  "round %d: byte %zu of rank %d: %d instead of %d", round, i, rank,
				  b[i], value(round, rank, i));
}

/* By some rank: who comes last may find all of it done, however often. */
static void check_some_were_left(struct ranks *r)
{
	atomic_fetch_add(&r->words[0], atomic_load(&base_counters[BASE_CTR_EARLY]));
	ranks_barrier(r);
	/* a sanitizer's own thread cannot be protected by signals: then nothing is left */
	if (strcmp(guard_kind_name(), "none") && guard_is_ready())
		CHECK(atomic_load(&r->words[0]) > 0);
}

static void one_bcast(struct ranks *r, struct rt_comm *c, char *b, size_t bytes, int round,
		      int late)
{
	struct coll_buf buf = { .addr = b, .bytes = bytes };
	int root = round % r->size;

	b[-1] = b[bytes] = 77; /* the neighbours */
	if (r->rank == root)
		fill(b, bytes, round, root);
	if (r->rank == late)
		usleep(2000);
	CHECK_EQ(rt_bcast(c, &buf, root, &late), 0);
	if (round % 3 == 0)
		usleep(1500);
	CHECK_EQ(b[-1], 77);
	CHECK_EQ(b[bytes], 77);
	if (round % 4 == 1)
		CHECK_EQ(b[bytes / 2],
			 value(round, root, bytes / 2)); /* the first touch is in the middle */
	check(b, bytes, round, root);
}

static void bcasts(struct ranks *r)
{
	char *b = make_buffer(BYTES + 8192) + 4096;
	struct rt_comm *c;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	for (int round = 0; round < ROUNDS; round++) {
		one_bcast(r, c, b, BYTES, round, round % 5 - 1);
		one_bcast(r, c, b + ODD, BYTES - ODD - 100, round, round % 5 - 1);
	}
	rt_complete_all();
	check_some_were_left(r);
	rt_comm_destroy(c);
}

static void gathers(struct ranks *r)
{
	size_t bytes = 700000;
	char *send = make_buffer(bytes + 8192) + 16,
	     *recv = make_buffer(bytes * (size_t)r->size + 8192) + 16;
	struct rt_comm *c;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	for (int round = 0; round < ROUNDS; round++) {
		struct coll_buf s = { .addr = send, .bytes = bytes },
			      d = { .addr = recv, .bytes = bytes * (size_t)r->size };
		int root = round % r->size;

		fill(send, bytes, round, r->rank); /* waits until the last round's has been taken */
		if (r->rank == round % 5 - 1)
			usleep(2000);
		CHECK_EQ(rt_gather(c, &s, r->rank == root ? &d : NULL, bytes, root, &send), 0);
		for (int k = 0; k < r->size && r->rank == root; k++)
			check(recv + bytes * (size_t)k, bytes, round, k);
	}
	rt_complete_all();
	ranks_barrier(r);
	rt_comm_destroy(c);
}

/* Both buffers in the same pages; one is looked at from its end, the other written to meanwhile. */
static void all_to_all(struct ranks *r, struct rt_comm *c, char *send, char *recv, size_t part,
		       int round)
{
	for (int k = 0; k < r->size; k++)
		fill(send + part * (size_t)k, part, round, r->rank * r->size + k);
	if (r->rank == round % 5 - 1)
		usleep(2000);
	CHECK_EQ(rt_exchange(c, COLL_ALLTOALL, send, recv, part, r->size), 0);
	send[part / 2]++;
	for (int k = r->size - 1; k >= 0; k--)
		check(recv + part * (size_t)k, part, round, k * r->size + r->rank);
}

/* The own part lies among those that come. */
static void all_gather(struct ranks *r, struct rt_comm *c, char *recv, size_t part, int round)
{
	fill(recv + part * (size_t)r->rank, part, round, r->rank);
	CHECK_EQ(rt_exchange(c, COLL_ALLGATHER, NULL, recv, part, r->size), 0);
	recv[part * (size_t)r->rank] ^= 1;
	recv[part * (size_t)r->rank] ^= 1;
	for (int k = 0; k < r->size; k++)
		check(recv + part * (size_t)k, part, round, k);
}

UNIT_UNSANITIZED static void fill_words(uint64_t *to, size_t words, uint64_t factor, uint64_t more)
{
	for (size_t i = 0; i < words; i++)
		to[i] = i * factor + more;
}

UNIT_UNSANITIZED static void check_words(const uint64_t *got, size_t words, uint64_t factor,
					 uint64_t more)
{
	for (size_t i = 0; i < words; i++)
		CHECK_EQ(got[i], i * factor + more);
}

static void all_reduce(struct ranks *r, struct rt_comm *c, uint64_t *send, uint64_t *recv,
		       size_t words, int round)
{
	fill_words(send, words, (uint64_t)round + 1, (uint64_t)r->rank);
	CHECK_EQ(rt_allreduce(c, send, recv, words), 0);
	send[words / 3]++;
	check_words(recv, words, (uint64_t)(round + 1) * (uint64_t)r->size,
		    (uint64_t)(r->size * (r->size - 1) / 2));
}

static void exchanges(struct ranks *r)
{
	size_t part = 200008, whole = part * (size_t)r->size;
	char *send = make_buffer(2 * whole + 8192) + 24, *recv = send + whole;
	struct rt_comm *c;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	for (int round = 0; round < ROUNDS / 2; round++) {
		all_to_all(r, c, send, recv, part, round);
		all_gather(r, c, recv, part, round);
		all_reduce(r, c, (uint64_t *)(void *)send, (uint64_t *)(void *)recv, whole / 8,
			   round);
	}
	rt_complete_all();
	check_some_were_left(r);
	rt_comm_destroy(c);
}

/* Many in flight, touched in another order than they came. */
static void many(struct ranks *r)
{
	enum { FLIGHT = 100, EACH = 64 << 10 };
	char *b = make_buffer(FLIGHT * EACH);
	struct rt_comm *c[2];

	CHECK_EQ(rt_comm_create(&r->oob, &c[0]), 0);
	CHECK_EQ(rt_comm_create(&r->oob, &c[1]), 0);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < FLIGHT; i++) {
			struct coll_buf buf = { .addr = b + i * EACH, .bytes = EACH };

			if (r->rank == i % r->size)
				fill(buf.addr, EACH, round + i, 0);
			CHECK_EQ(rt_bcast(c[i & 1], &buf, i % r->size, &b), 0);
		}
		for (int i = 0; i < FLIGHT; i++) {
			int k = i * 37 % FLIGHT;

			check(b + k * EACH, EACH, round + k, 0);
		}
	}
	rt_complete_all();
	for (int i = 0; i < 10000 && rt_has_pending(); i++, usleep(1000))
		rt_reap(); /* a worker may still have to say that it found nothing more */
	CHECK_EQ(atomic_load(&rt_pending), 0);
	ranks_barrier(r);
	rt_comm_destroy(c[1]);
	rt_comm_destroy(c[0]);
}

#define EARLY_TESTS(kind, engine_option, suffix)                                                   \
	UNIT_TEST(early_broadcasts_bring_every_byte_##suffix)                                      \
	{                                                                                          \
		ranks_run(3, (char *[]){ COMMON, "SLUICE_GUARD_KIND=" kind, engine_option, NULL }, \
			  bcasts, NULL);                                                           \
	}                                                                                          \
	UNIT_TEST(early_gathers_bring_every_byte_##suffix)                                         \
	{                                                                                          \
		ranks_run(3, (char *[]){ COMMON, "SLUICE_GUARD_KIND=" kind, engine_option, NULL }, \
			  gathers, NULL);                                                          \
	}                                                                                          \
	UNIT_TEST(early_exchanges_bring_every_byte_##suffix)                                       \
	{                                                                                          \
		ranks_run(3, (char *[]){ COMMON, "SLUICE_GUARD_KIND=" kind, engine_option, NULL }, \
			  exchanges, NULL);                                                        \
	}                                                                                          \
	UNIT_TEST(early_many_in_flight_##suffix)                                                   \
	{                                                                                          \
		ranks_run(2, (char *[]){ COMMON, "SLUICE_GUARD_KIND=" kind, engine_option, NULL }, \
			  many, NULL);                                                             \
	}
EARLY_TESTS("mremap", "SLUICE_ENGINE=sw", mremap)
EARLY_TESTS("mprotect", "SLUICE_ENGINE=sw", mprotect)
EARLY_TESTS("uffd", "SLUICE_ENGINE=sw", uffd)
EARLY_TESTS("mremap", "SLUICE_ENGINE=none", no_engine)

/* A leaf waits in its call while root is late, ever later until that was enough: root need not copy
 * too. */
static void late_root(struct ranks *r)
{
	char *b = make_buffer(BYTES + 8192) + 4096;
	struct coll_buf buf = { .addr = b, .bytes = BYTES };
	int64_t left = 0, all;
	struct rt_comm *c;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	if (!strcmp(guard_kind_name(), "none") || !guard_is_ready()) {
		fprintf(stderr, "memory cannot be guarded here\n");
		unit_skip("memory cannot be guarded here");
	}
	for (int round = 0; !left && round < 8; round++) {
		if (r->rank == 0)
			fill(b, BYTES, round, 0);
		ranks_barrier(r);
		if (r->rank == 0)
			usleep(10000u << round);
		CHECK_EQ(rt_bcast(c, &buf, 0, &buf), 0);
		check(b, BYTES, round, 0);
		all = r->rank ? 1 : (int64_t)atomic_load(&base_counters[BASE_CTR_EARLY]);
		ranks_allreduce_min(r->oob.ctx, all, &left);
	}
	CHECK_EQ(left, 1);
	b[BYTES / 2]++; /* the leaf has copied all of it: root's memory is its own again */
	rt_complete_all();
	ranks_barrier(r);
	rt_comm_destroy(c);
}

/* By userfaultfd, which works below sanitizers too. */
UNIT_TEST(early_return_of_a_root_for_which_a_leaf_has_waited_long)
{
	ranks_run(2,
		  (char *[]){ "SLUICE_REGION_KIND=arena", "SLUICE_ENGINE=none",
			      "SLUICE_TEST=early_wait=10000000", "SLUICE_GUARD_KIND=uffd",
			      "SLUICE_LOG=debug", NULL },
		  late_root, NULL);
	if (strstr(ranks_text, "memory cannot be guarded here"))
		unit_skip("memory cannot be guarded by userfaultfd here");
	CHECK(strstr(ranks_text, "a partner has waited"));
}

/* ---- a partner that does not come any more ----------------------------------------------- */

enum { LAST_WORDS = 14 }; /* exit status of a rank that cannot get what it was told it had */

/* Rank 0 has returned from what rank 1 never calls, as it dies; what it then touches can never be
 * there. */
static void partner_dies(struct ranks *r, bool is_reduce)
{
	char *send = make_buffer(2 * BYTES), *recv = send + BYTES;
	struct rt_comm *c;
	int ret;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	memset(send, 1, 2 * BYTES);
	ranks_barrier(r);
	if (r->rank)
		raise(SIGKILL);
	ret = is_reduce ? rt_allreduce(c, (uint64_t *)(void *)send, (uint64_t *)(void *)recv,
				     BYTES / 8)
		      : rt_exchange(c, COLL_ALLTOALL, send, recv, BYTES / 2, r->size);
	if (ret == -EOWNERDEAD) /* it was not left, where memory cannot be guarded */
		_exit(LAST_WORDS);
	CHECK_EQ(ret, 0);
	if (is_reduce)
		recv[BYTES / 2]++;
	else
		send[BYTES / 2]++;
	_exit(0);
}

static void partner_of_an_exchange_dies(struct ranks *r) { partner_dies(r, false); }
static void partner_of_a_reduction_dies(struct ranks *r) { partner_dies(r, true); }

static void check_last_words(void (*body)(struct ranks *r), char *guard)
{
	int status[2];

	ranks_run_any(2, (char *[]){ COMMON, "SLUICE_ENGINE=none", guard, NULL }, body, NULL,
		      status);
	CHECK_EQ(status[0], LAST_WORDS);
	CHECK_EQ(status[1], 128 + SIGKILL);
	CHECK(strstr(ranks_text, "has died"));
}

UNIT_TEST(early_return_whose_partner_dies_ends_the_rank_that_looks)
{
	check_last_words(partner_of_an_exchange_dies, "SLUICE_GUARD_KIND=mremap");
	check_last_words(partner_of_a_reduction_dies, "SLUICE_GUARD_KIND=mremap");
	check_last_words(partner_of_an_exchange_dies, "SLUICE_GUARD_KIND=uffd");
	check_last_words(partner_of_a_reduction_dies, "SLUICE_GUARD_KIND=mprotect");
}
