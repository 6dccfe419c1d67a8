/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Schedules whose operations require others: what is sent on must have been received first, and
 * what is overwritten must have been sent, whoever copies and however late the ranks are.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "exec/exec.h"
#include "os/os.h"
#include "ranks.h"

enum { BYTES = 300 * 1024 + 77, SKEW = 100, ROUNDS = 12 };
#define OPTIONS(...) ((char *const[]){ __VA_ARGS__, "SLUICE_TEST=region_adopt_min=4K", NULL })

/* Adds a rank's side of a schedule. */
typedef void build_fn(struct goal_build *b, int rank, int size, int root);

static struct bench {
	struct ranks *r;
	struct node_group *g;
	struct exec_comm *e;
	char *user[2];
	struct region_extent scratch;
	uint64_t random;
} bench;

static char *make_buffer(void)
{
	char *b = mmap(NULL, BYTES + SKEW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);

	CHECK(b != MAP_FAILED);
	return b + SKEW;
}

static void bench_begin(struct ranks *r)
{
	const struct node_oob oob = r->oob;

	bench.r = r;
	bench.random = (uint64_t)r->rank;
	CHECK_EQ(node_group_create(&oob, exec_area_bytes(r->size), &bench.g), 0);
	CHECK(bench.g);
	CHECK_EQ(exec_create(bench.g, NULL, NULL, &bench.e), 0);
	bench.user[0] = make_buffer();
	bench.user[1] = make_buffer();
	CHECK_EQ(region_extent_get(BYTES, false, &bench.scratch), 0);
}

static void bench_end(void)
{
	ranks_barrier(bench.r);
	exec_destroy(bench.e);
	node_group_destroy(bench.g);
}

static int bench_run(build_fn *build, int root)
{
	static _Alignas(8) char room[4096];
	struct goal_block *block = (struct goal_block *)room;
	struct goal_edge edges[16];
	struct goal_op ops[16];
	struct goal_build b;
	struct exec_call call = { .schedule = block,
				  .user = { bench.user[0], bench.user[1] },
				  .prefer_vm = true,
				  .name = "schedule" };
	const uint64_t mem_bytes[GOAL_MEMS] = { BYTES, BYTES, BYTES };
	const struct goal_limits limits = { (uint32_t)bench.r->size, GOAL_MEMS, mem_bytes, false };
	uint32_t work[sizeof room / sizeof(struct goal_op)];
	int ret;

	goal_build_init(&b, ops, 16, edges, 16);
	build(&b, bench.r->rank, bench.r->size, root);
	CHECK_EQ(goal_compile(&b, block, sizeof room), 0);
	CHECK_EQ(goal_verify(block, block->bytes, &limits, work), 0);
	region_describe_extent(&bench.scratch, BYTES, &call.desc[GOAL_SCRATCH]);
	for (int i = 0; i < 2; i++)
		region_describe(bench.user[i], BYTES, REGION_USE, &call.desc[GOAL_USER + i]);
	if (ranks_below(&bench.random, 3) == 0)
		usleep((useconds_t)ranks_below(&bench.random, 3000));
	ret = exec_run(bench.e, &call);
	for (int i = 0; i < 2; i++)
		region_release(&call.desc[GOAL_USER + i]);
	return ret;
}

static void check_all(const char *p, char want, const char *what, int round)
{
	for (uint64_t k = 0; k < BYTES; k++)
		if (p[k] != want)
			unit_fail(__FILE__, __LINE__,
				  "%s, round %d: byte %" PRIu64 " is %d, not %d", what, round, k,
				  p[k], want);
}

/* ---- relays: each rank sends on what it has received ------------------------------------- */

/* From rank to rank, whole. */
static void build_chain(struct goal_build *b, int rank, int size, int root)
{
	int place = (rank - root + size) % size;
	uint32_t in = 0, out;

	if (place)
		in = goal_recv(b, (uint32_t)((rank + size - 1) % size), 1, GOAL_USER, 0, BYTES);
	if (place == size - 1)
		return;
	out = goal_send(b, (uint32_t)((rank + 1) % size), 1, 0, GOAL_USER, 0, BYTES);
	if (place)
		goal_requires(b, out, in);
}

/* The same through temporary memory, from which each copies to its buffer. */
static void build_scratch_chain(struct goal_build *b, int rank, int size, int root)
{
	int place = (rank - root + size) % size;
	uint32_t in, out, copy;

	b->scratch_bytes = BYTES;
	if (!place) {
		in = goal_copy(b, GOAL_SCRATCH, 0, GOAL_USER, 0, BYTES);
	} else {
		in = goal_recv(b, (uint32_t)((rank + size - 1) % size), 1, GOAL_SCRATCH, 0, BYTES);
		copy = goal_copy(b, GOAL_USER, 0, GOAL_SCRATCH, 0, BYTES);
		goal_requires(b, copy, in);
	}
	if (place == size - 1)
		return;
	out = goal_send(b, (uint32_t)((rank + 1) % size), 1, 0, GOAL_SCRATCH, 0, BYTES);
	goal_requires(b, out, in);
}

/* A binomial tree. */
static void build_tree(struct goal_build *b, int rank, int size, int root)
{
	int place = (rank - root + size) % size, step = 1;
	uint32_t in = 0;

	while (place && !(place & step))
		step *= 2;
	if (place)
		in = goal_recv(b, (uint32_t)((rank - step + 2 * size) % size), 1, GOAL_USER, 0,
			       BYTES);
	else
		while (step < size)
			step *= 2;
	for (step /= 2; step; step /= 2) {
		if (place + step >= size)
			continue;
		uint32_t out =
			goal_send(b, (uint32_t)((rank + step) % size), 1, 0, GOAL_USER, 0, BYTES);

		if (place)
			goal_requires(b, out, in);
	}
}

static void relay(struct ranks *r)
{
	build_fn *build = r->arg;

	bench_begin(r);
	for (int round = 0; round < ROUNDS; round++) {
		int root = round % r->size;

		memset(bench.user[0], r->rank == root ? round + 1 : -1, BYTES);
		CHECK_EQ(bench_run(build, root), 0);
		check_all(bench.user[0], (char)(round + 1), "relayed", round);
	}
	bench_end();
}

static void check_ways(void (*body)(struct ranks *), void *arg)
{
	ranks_run(4, OPTIONS("SLUICE_REGION_KIND=arena"), body, arg);
	ranks_run(4, OPTIONS("SLUICE_REGION_ADOPT_AFTER=3"), body, arg);
	ranks_run(4, OPTIONS("SLUICE_REGION_KIND=cma"), body, arg);
	ranks_run(4, OPTIONS("SLUICE_REGION_KIND=cma", "SLUICE_TEST=fault=vm_readv:all,vm_writev:all"),
		  body, arg);
	ranks_run(4,
		  OPTIONS("SLUICE_REGION_ADOPT_AFTER=3", "SLUICE_TEST=fault=vm_readv:all,vm_writev:all"),
		  body, arg);
}

UNIT_TEST(schedule_of_a_chain_sends_on_what_has_arrived)
{
	check_ways(relay, build_chain);
}

UNIT_TEST(schedule_of_a_chain_through_scratch_memory)
{
	check_ways(relay, build_scratch_chain);
}

UNIT_TEST(schedule_of_a_tree_sends_on_what_has_arrived)
{
	check_ways(relay, build_tree);
}

/* ---- a receive that must wait: its place is sent from first ------------------------------ */

/* The root sends its buffer to all, and only then receives from the last rank into the same place.
 */
static void build_turn(struct goal_build *b, int rank, int size, int root)
{
	int last = (root + size - 1) % size;
	uint32_t out, back;

	if (rank != root) {
		goal_recv(b, (uint32_t)root, 1, GOAL_USER, 0, BYTES);
		if (rank == last)
			goal_send(b, (uint32_t)root, 2, 0, GOAL_USER + 1, 0, BYTES);
		return;
	}
	back = goal_recv(b, (uint32_t)last, 2, GOAL_USER, 0, BYTES);
	for (int k = 1; k < size; k++) {
		out = goal_send(b, (uint32_t)((root + k) % size), 1, 0, GOAL_USER, 0, BYTES);
		goal_requires(b, back, out);
	}
}

static void turn(struct ranks *r)
{
	bench_begin(r);
	for (int round = 0; round < ROUNDS; round++) {
		int root = round % r->size;

		memset(bench.user[0], r->rank == root ? round + 1 : -1, BYTES);
		memset(bench.user[1], 100 + round, BYTES);
		CHECK_EQ(bench_run(build_turn, root), 0);
		check_all(bench.user[0], (char)(r->rank == root ? 100 + round : round + 1),
			  "turned", round);
	}
	bench_end();
}

UNIT_TEST(schedule_does_not_receive_over_what_is_still_sent)
{
	check_ways(turn, NULL);
}

/* ---- different bytes to each ------------------------------------------------------------- */

static void build_scatter(struct goal_build *b, int rank, int size, int root)
{
	uint64_t part = BYTES / (uint64_t)size;

	if (rank != root) {
		goal_recv(b, (uint32_t)root, 1, GOAL_USER + 1, 5, part);
		return;
	}
	for (int r = 0; r < size; r++)
		if (r != root)
			goal_send(b, (uint32_t)r, 1, 0, GOAL_USER, (uint64_t)r * part, part);
}

static void scatter(struct ranks *r)
{
	uint64_t part = BYTES / (uint64_t)r->size;

	bench_begin(r);
	if (r->arg)
		ranks_options(OPTIONS("SLUICE_REGION_KIND=cma", r->arg));
	for (int round = 0; round < ROUNDS; round++) {
		int root = round % r->size;

		for (int q = 0; q < r->size; q++)
			memset(bench.user[0] + (uint64_t)q * part, round + q, part);
		memset(bench.user[1], -1, BYTES);
		CHECK_EQ(bench_run(build_scatter, root), 0);
		for (uint64_t k = 0; k < BYTES; k++)
			if (bench.user[1][k] !=
			    (r->rank != root && k >= 5 && k < 5 + part ? round + r->rank : -1))
				unit_fail(__FILE__, __LINE__, "scattered, round %d: byte %" PRIu64,
					  round, k);
	}
	bench_end();
}

UNIT_TEST(schedule_of_a_scatter_brings_each_its_own)
{
	ranks_run(4, OPTIONS("SLUICE_REGION_KIND=arena"), scatter, NULL);
	ranks_run(4, OPTIONS("SLUICE_REGION_ADOPT_AFTER=3"), scatter, NULL);
	ranks_run(4, OPTIONS("SLUICE_REGION_KIND=cma"), scatter, NULL);
	ranks_run(4, OPTIONS("SLUICE_REGION_KIND=cma"), scatter, "SLUICE_TEST=fault=vm_copy:all");
	ranks_run(3, OPTIONS("SLUICE_REGION_KIND=cma"), scatter,
		  "SLUICE_TEST=fault=vm_copy:2,vm_copy:7");
}
