/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that die, that cannot take part, and that leave before the others: nobody hangs. */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "exec/exec.h"
#include "os/os.h"
#include "ranks.h"
#include "rt_case.h"

enum { BYTES = 1 << 20, VICTIM = 2, OPS = 100000 };
enum { SOON_NS = 5000000000 };
#define OPTIONS(...)                                                                               \
	((char *const[]){ __VA_ARGS__, "SLUICE_TEST=region_adopt_min=4K", "SLUICE_EARLY=off",      \
			  NULL })

static char *make_buffer(void)
{
	char *b = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(b != MAP_FAILED);
	return b;
}

/* Occurrences of `part` in what the ranks wrote to stderr. */
static int count_in_text(const char *part)
{
	int n = 0;

	for (const char *at = ranks_text; (at = strstr(at, part)); at++)
		n++;
	return n;
}

/* ---- death ------------------------------------------------------------------------------- */

/* Broadcasts and gathers until it fails. */
static void collect_until_death(struct ranks *r, void (*before)(struct ranks *, int op))
{
	struct rt_comm *c;
	char *b = make_buffer(),
	     *all = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t part = BYTES / (uint64_t)r->size;
	int ret = 0;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	for (int op = 0; op < OPS && !ret; op++) {
		struct coll_buf buf = { .addr = b, .bytes = BYTES },
			      one = { .addr = b, .bytes = part };
		struct coll_buf recv = { .addr = all, .bytes = part * (uint64_t)r->size };
		int root = op / 2 % r->size;

		before(r, op);
		ret = op % 2 ? rt_gather(c, &one, r->rank == root ? &recv : NULL, part, root, NULL)
			     : rt_bcast(c, &buf, root, NULL);
	}
	CHECK_EQ(ret, -EOWNERDEAD);
	CHECK(os_now_ns() - atomic_load(&r->words[0]) < SOON_NS);
	CHECK_EQ(rt_bcast(c, &(struct coll_buf){ .addr = b, .bytes = BYTES }, 0, NULL),
		 -EOWNERDEAD);
	rt_comm_destroy(c);
}

static void kill_now(struct ranks *r)
{
	atomic_store(&r->words[0], os_now_ns());
	kill(r->pids[VICTIM], SIGKILL);
}

static void dies_between(struct ranks *r, int op)
{
	if (r->rank == VICTIM && op == 11)
		kill_now(r);
}
static void death_between(struct ranks *r)
{
	collect_until_death(r, dies_between);
}

static struct ranks *killer;
static void kill_later(int signal)
{
	kill_now(killer);
}

/* Rank 0's alarm kills the victim at any point of its work, mostly in the middle of a copy. */
static void dies_anywhere(struct ranks *r, int op)
{
	if (r->rank || op != 2)
		return;
	killer = r;
	signal(SIGALRM, kill_later);
	ualarm(20000, 0);
}
static void death_anywhere(struct ranks *r)
{
	collect_until_death(r, dies_anywhere);
}

/* Every survivor says which rank of which operation it was. */
static void check_death(int ranks, char *const *options, void (*body)(struct ranks *))
{
	int status[RANKS_MAX];

	ranks_run_any(ranks, options, body, NULL, status);
	for (int i = 0; i < ranks; i++) {
		if (status[i] == (i == VICTIM ? 128 + SIGKILL : 0))
			continue;
		printf("%s", ranks_text);
		unit_fail(__FILE__, __LINE__, "rank %d: status %d", i, status[i]);
	}
	CHECK_HAS(ranks_text, "exec: MPI_");
	if (count_in_text("rank 2 (pid ") != ranks - 1 || count_in_text("has died") != ranks - 1)
		unit_fail(__FILE__, __LINE__, "not one message a survivor:\n%s", ranks_text);
}

UNIT_TEST(death_between_collectives_ends_those_of_all_others)
{
	check_death(4, OPTIONS("SLUICE_REGION_KIND=arena"), death_between);
	check_death(4, OPTIONS("SLUICE_REGION_KIND=cma"), death_between);
	check_death(4, OPTIONS("SLUICE_REGION_KIND=staged"), death_between);
}

UNIT_TEST(death_in_the_middle_ends_the_collective_of_all_others)
{
	check_death(3, OPTIONS("SLUICE_REGION_KIND=arena"), death_anywhere);
	check_death(3, OPTIONS("SLUICE_REGION_KIND=cma"), death_anywhere);
	check_death(3, OPTIONS("SLUICE_REGION_KIND=staged"), death_anywhere);
	check_death(5, OPTIONS("SLUICE_REGION_ADOPT_AFTER=1"), death_anywhere);
}

static int die_in_pack(void *ctx, uint64_t off, uint64_t len, void *out)
{
	kill_now(ctx);
	return 0;
}

static void death_of_packing_root(struct ranks *r)
{
	struct rt_comm *c;
	char *b = make_buffer();
	struct coll_buf buf = { .addr = b, .bytes = BYTES };

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	if (r->rank == VICTIM) {
		buf.pack = die_in_pack;
		buf.ctx = r;
	}
	CHECK_EQ(rt_bcast(c, &buf, VICTIM, NULL), -EOWNERDEAD);
	CHECK(os_now_ns() - atomic_load(&r->words[0]) < SOON_NS);
	rt_comm_destroy(c);
}

UNIT_TEST(death_of_a_root_before_it_publishes_ends_the_collective)
{
	check_death(3, OPTIONS("SLUICE_REGION_KIND=arena"), death_of_packing_root);
}

/* ---- ranks that cannot ------------------------------------------------------------------- */

static int refuse_pack(void *ctx, uint64_t off, uint64_t len, void *out)
{
	return -ENOBUFS;
}
static int refuse_unpack(void *ctx, uint64_t off, uint64_t len, const void *in)
{
	return -ENOBUFS;
}

static void pack_fails(struct ranks *r)
{
	struct rt_comm *c;
	char *b = make_buffer();
	struct coll_buf buf = { .addr = b, .bytes = BYTES };
	uint64_t begin = os_now_ns();

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	CHECK_EQ(rt_bcast(c, &buf, 0, NULL), 0);
	if (r->rank == 1)
		buf.pack = refuse_pack;
	CHECK_EQ(rt_bcast(c, &buf, 1, NULL), r->rank == 1 ? -ENOBUFS : -EIO);
	CHECK(rt_bcast(c, &buf, 0, NULL) < 0);
	CHECK(os_now_ns() - begin < SOON_NS);
	ranks_barrier(r); /* or the others might find a dead rank */
	rt_comm_destroy(c);
}

UNIT_TEST(rank_that_cannot_pack_fails_the_collective_of_all)
{
	ranks_run(3, OPTIONS("SLUICE_REGION_KIND=cma"), pack_fails, NULL);
}

/* Rank 1 fails in the second collective while ranks 0 and 2 are still in the first. */
static void fails_later(struct ranks *r)
{
	struct rt_comm *c;
	char *b = make_buffer();
	struct coll_buf buf = { .addr = b, .bytes = BYTES };

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	if (r->rank == 2)
		usleep(300000); /* the others look for what is wrong meanwhile */
	CHECK_EQ(rt_bcast(c, &buf, 0, NULL), 0);
	if (r->rank == 1)
		buf.pack = refuse_pack;
	CHECK_EQ(rt_bcast(c, &buf, 1, NULL), r->rank == 1 ? -ENOBUFS : -EIO);
	ranks_barrier(r);
	rt_comm_destroy(c);
}

UNIT_TEST(rank_that_fails_later_does_not_fail_the_collective_that_it_has_ended)
{
	ranks_run(3, OPTIONS("SLUICE_REGION_KIND=arena"), fails_later, NULL);
}

/* One rank has no room for the packed form of its buffer. */
static void extent_fails(struct ranks *r)
{
	struct rt_comm *c;
	char *b = make_buffer();
	struct coll_buf buf = { .addr = b, .bytes = BYTES };
	int ret;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	if (r->rank == 1) {
		ranks_options(OPTIONS("SLUICE_REGION_KIND=cma", "SLUICE_TEST=fault=extent:all"));
		buf.pack = refuse_pack;
		buf.unpack = refuse_unpack;
	}
	ret = rt_bcast(c, &buf, 0, NULL);
	if (r->rank < 2) /* rank 2 has what it needs */
		CHECK_EQ(ret, r->rank == 1 ? -ENOSPC : -EIO);
	CHECK(rt_bcast(c, &buf, 0, NULL) < 0);
	ranks_barrier(r);
	rt_comm_destroy(c);
}

UNIT_TEST(rank_without_scratch_memory_fails_the_collective_of_all)
{
	ranks_run(3, OPTIONS("SLUICE_REGION_KIND=cma"), extent_fails, NULL);
}

static void sizes_differ(struct ranks *r)
{
	struct rt_comm *c;
	char *b = make_buffer();
	struct coll_buf buf = { .addr = b, .bytes = BYTES - (r->rank == 1) };
	int ret;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	ret = rt_bcast(c, &buf, 0, NULL);
	if (r->rank < 2)
		CHECK_EQ(ret, -EREMOTEIO);
	rt_comm_destroy(c);
}

UNIT_TEST(ranks_that_disagree_about_the_size_are_told)
{
	ranks_run(3, OPTIONS("SLUICE_REGION_KIND=cma"), sizes_differ, NULL);
}

/* The buffer of rank 0 is not mapped, those of the others begin and end within pages: the bytes
 * outside these come by a system call, which the kernel refuses although it allowed the trial. */
static void edges_are_refused(struct ranks *r)
{
	enum { AT = 100, PART = 5 * 4096 + 1000 };
	char *send = make_buffer(), *recv = make_buffer() + AT;
	struct rt_comm *c;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	ranks_options(
		r->rank ? OPTIONS("SLUICE_REGION_KIND=arena", "SLUICE_TEST=fault=vm_copy:all")
			: OPTIONS("SLUICE_REGION_KIND=cma", "SLUICE_TEST=fault=vm_copy:all"));
	for (int k = 0; k < PART * r->size; k++)
		send[k] = (char)(k * 7 + k / 251 + r->rank);
	CHECK_EQ(rt_exchange(c, COLL_ALLTOALL, send, recv, PART, r->size), 0);
	for (int k = 0; k < PART * r->size; k++) {
		int from = k % PART + PART * r->rank; /* in the buffer of rank k / PART */

		CHECK_EQ(recv[k], (char)(from * 7 + from / 251 + k / PART));
	}
	ranks_barrier(r);
	rt_comm_destroy(c);
}

UNIT_TEST(bytes_outside_the_pages_that_the_kernel_refuses_come_through_the_arena)
{
	ranks_run(4, OPTIONS("SLUICE_REGION_KIND=arena"), edges_are_refused, NULL);
}

/* A mover may be displaced for a second in the middle of a copy to memory that is freed by then. */
static void frees_after_failure(struct ranks *r)
{
	struct region_desc failed, later;
	char *b = make_buffer();
	struct coll_buf buf = { .addr = b, .bytes = BYTES - (r->rank == 1) };
	struct rt_comm *c;

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	CHECK_EQ(rt_bcast(c, &buf, 0, NULL), -EREMOTEIO);
	region_describe(b, buf.bytes, REGION_LOOKUP, &failed);
	CHECK(failed.flags & REGION_DESC_MAPPED);
	region_release(&failed);
	region_drop((uintptr_t)b, (uintptr_t)b + BYTES);
	CHECK_EQ(munmap(b, BYTES), 0);
	for (int i = 0; i < 64; i++) {
		region_describe(make_buffer(), buf.bytes, REGION_FORCE, &later);
		CHECK(later.flags & REGION_DESC_MAPPED);
		CHECK(later.arena_off != failed.arena_off);
	}
	ranks_barrier(r);
	rt_comm_destroy(c);
}

UNIT_TEST(pages_of_a_failed_collective_are_not_used_again)
{
	ranks_run(2, OPTIONS("SLUICE_REGION_KIND=arena"), frees_after_failure, NULL);
}

/* ---- ranks that leave early -------------------------------------------------------------- */

/* Rank 0, whose arena holds the control segment, is through and writes to all memory it can get. */
static void scribble(void)
{
	struct region_extent e[2];

	for (int i = 0; i < 2; i++) {
		CHECK_EQ(region_extent_get(REGION_UNIT, true, &e[i]), 0);
		memset((char *)region_arena_base() + e[i].offset, 0xff, REGION_UNIT);
	}
	for (int i = 0; i < 2; i++)
		region_extent_put(&e[i]);
}

static void leave_early(struct ranks *r)
{
	struct rt_comm *c;
	char *b = make_buffer();

	for (int round = 0; round < 4; round++) {
		struct coll_buf buf = { .addr = b, .bytes = BYTES / 16 };

		CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
		CHECK(c);
		if (r->rank == 1)
			memset(b, round + 1, buf.bytes);
		if (r->rank == 2)
			usleep(20000);
		CHECK_EQ(rt_bcast(c, &buf, 1, NULL), 0);
		for (uint64_t k = 0; k < buf.bytes; k++)
			CHECK_EQ(b[k], round + 1);
		rt_comm_destroy(c);
		if (r->rank == 0)
			scribble();
	}
}

UNIT_TEST(group_lives_on_when_rank_0_has_destroyed_it)
{
	ranks_run(3, OPTIONS("SLUICE_REGION_KIND=arena"), leave_early, NULL);
	ranks_run(3, OPTIONS("SLUICE_REGION_KIND=cma"), leave_early, NULL);
	ranks_run(3, OPTIONS("SLUICE_REGION_KIND=staged"), leave_early, NULL);
}

static void exit_early(struct ranks *r)
{
	struct rt_comm *c;
	char *b = make_buffer();
	struct coll_buf buf = { .addr = b, .bytes = BYTES / 16 };

	CHECK_EQ(rt_comm_create(&r->oob, &c), 0);
	CHECK(c);
	if (r->rank == 2)
		usleep(300000); /* the others look for dead peers meanwhile */
	CHECK_EQ(rt_bcast(c, &buf, 1, NULL), 0);
	if (!r->rank)
		return;
	rt_comm_destroy(c);
}

/* As after an MPI_Finalize that does not wait for all. */
UNIT_TEST(rank_that_exits_when_its_part_is_over_is_no_dead_peer)
{
	ranks_run(3, OPTIONS("SLUICE_REGION_KIND=arena"), exit_early, NULL);
	ranks_run(3, OPTIONS("SLUICE_REGION_KIND=cma"), exit_early, NULL);
}
