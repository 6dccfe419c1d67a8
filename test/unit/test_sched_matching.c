/* SPDX-License-Identifier: BSD-3-Clause */
/* Matching: order, any source, any tag, contexts, many schedules at once, driving other ranks. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sched_case.h"

static char *const no_options[] = { "SLUICE_GOAL_TIMEOUT=10000", NULL };
static struct plan plan;

static struct sched_inst *open_plan(struct sched_group *g, void *buf, uint64_t bytes,
				    uint32_t channel, unsigned flags)
{
	plan.buffers[0] = buf;
	plan.bytes[0] = bytes;
	plan.count = 1;
	plan.channel = channel;
	plan.flags = flags;
	return plan_open(&plan, g);
}

static void run_and_wait(struct sched_inst *s)
{
	CHECK_EQ(sched_run(s), 0);
	CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
}

/* Messages of one tag keep their order, whichever way each travels. */
static void in_order(struct ranks *r)
{
	enum { N = 600 };
	static const uint64_t sizes[] = { 8, 2000, 40, 8, 1024, 70000 };
	struct sched_group *g = case_group(r);
	char *buf = calloc(N, 70000);
	struct sched_inst *s;

	plan_init(&plan);
	for (uint32_t i = 0; i < N; i++) {
		uint64_t bytes = sizes[i % BASE_ARRAY_LEN(sizes)];

		if (r->rank)
			goal_recv(&plan.build, 0, 1, GOAL_USER, 70000 * (uint64_t)i, bytes);
		else
			goal_send(&plan.build, 1, 1, 0, GOAL_USER, 70000 * (uint64_t)i, bytes);
		if (!r->rank)
			case_fill(buf + 70000 * (uint64_t)i, bytes, i);
	}
	s = open_plan(g, buf, N * 70000ull, 0, 0);
	if (r->rank)
		usleep(20000); /* most messages are unexpected */
	run_and_wait(s);
	for (uint32_t i = 0; r->rank && i < N; i++)
		CHECK_EQ(case_wrong(buf + 70000 * (uint64_t)i, sizes[i % BASE_ARRAY_LEN(sizes)], i),
			 -1);
	sched_group_destroy(g);
	free(buf);
}

UNIT_TEST(messages_of_a_tag_keep_their_order) { ranks_run(2, no_options, in_order, NULL); }

/* Receives in the opposite order, one after another: every message but one is unexpected. */
static void backwards(struct ranks *r)
{
	enum { N = 1000 };
	struct sched_group *g = case_group(r);
	uint64_t *buf = calloc(N, 8);
	struct sched_inst *s;

	plan_init(&plan);
	for (uint32_t i = 0; i < N; i++) {
		if (!r->rank) {
			buf[i] = i + 7;
			goal_send(&plan.build, 1, i, 0, GOAL_USER, 8 * (uint64_t)i, 8);
			continue;
		}
		goal_recv(&plan.build, 0, N - 1 - i, GOAL_USER, 8 * (uint64_t)i, 8);
		if (i)
			goal_requires(&plan.build, i, i - 1);
	}
	s = open_plan(g, buf, N * 8, 0, 0);
	for (int k = 0; k < 3; k++)
		run_and_wait(s);
	for (uint32_t i = 0; r->rank && i < N; i++)
		CHECK_EQ(buf[i], N - 1 - i + 7);
	sched_group_destroy(g);
	free(buf);
}

UNIT_TEST(receives_in_the_opposite_order_find_their_messages)
{
	ranks_run(2, no_options, backwards, NULL);
}

/* Rank 0 receives from any source under any tag; each sender's messages keep their order. */
static void from_any(struct ranks *r)
{
	enum { EACH = 50, RUNS = 20 };
	struct sched_group *g = case_group(r);
	uint32_t n = (uint32_t)(r->size - 1) * EACH, next[16] = { 0 };
	uint64_t *buf = calloc(n, 8);
	struct sched_inst *s;

	plan_init(&plan);
	for (uint32_t i = 0; i < (r->rank ? EACH : n); i++) {
		if (r->rank)
			goal_send(&plan.build, 0, i % 3, 0, GOAL_USER, 8 * (uint64_t)i, 8);
		else
			goal_recv(&plan.build, GOAL_ANY, GOAL_ANY, GOAL_USER, 8 * (uint64_t)i, 8);
	}
	s = open_plan(g, buf, 8 * (uint64_t)n, 0, 0);
	for (uint64_t run = 0; run < RUNS; run++) {
		for (uint32_t i = 0; r->rank && i < EACH; i++)
			buf[i] = run << 32 | (uint64_t)r->rank << 16 | i;
		run_and_wait(s);
		memset(next, 0, sizeof next);
		for (uint32_t i = 0; !r->rank && i < n; i++) {
			uint32_t src = (uint32_t)(buf[i] >> 16 & 0xffff);

			CHECK_EQ(buf[i] >> 32,
				 /* no message of another rank's next run, however far ahead that
				  * rank is */
				 run);
			CHECK_EQ(buf[i] & 0xffff, next[src]++);
		}
	}
	sched_group_destroy(g);
	free(buf);
}

UNIT_TEST(receives_from_anyone_take_messages_of_their_run_in_order)
{
	ranks_run(4, no_options, from_any, NULL);
}

/* Inline, eager, announced: a tag and a size for each kind. */
static const uint64_t kind_bytes[] = { 8, 700, 6000 };
enum { KINDS = BASE_ARRAY_LEN(kind_bytes), EACH_KIND = 6, DELAYED_RUNS = 6 };

/* All ranks send, and receive from any source. */
static void delayed_schedule(struct ranks *r, uint64_t *random)
{
	uint64_t at = kind_bytes[KINDS - 1];

	plan_init(&plan);
	for (uint32_t i = 0; i < EACH_KIND * KINDS * (uint32_t)r->size; i++) {
		uint32_t kind = i % KINDS, dst = i / KINDS % (uint32_t)r->size;
		uint32_t calc = goal_add(&plan.build,
					 &(struct goal_op){ .type = GOAL_CALC,
							    .cpu = (uint16_t)i,
							    .bytes = ranks_below(random, 30000) });
		uint32_t send =
			goal_send(&plan.build, dst, kind, 0, GOAL_USER, 0, kind_bytes[kind]);

		goal_requires(&plan.build, send, calc);
		goal_recv(&plan.build, GOAL_ANY, kind, GOAL_USER, at, kind_bytes[kind]);
		at += kind_bytes[kind];
	}
}

static void from_any_delayed(struct ranks *r)
{
	uint64_t seed = 7 + (uint64_t)r->rank, *random = &seed, at;
	uint32_t all = EACH_KIND * KINDS * (uint32_t)r->size;
	uint64_t bytes = (1 + all) * kind_bytes[KINDS - 1];
	struct sched_group *g = case_group(r);
	char *buf = calloc(1, bytes);
	struct sched_inst *s;

	delayed_schedule(r, random);
	s = open_plan(g, buf, bytes, 0, 0);
	for (int run = 0; run < DELAYED_RUNS; run++) {
		uint32_t seen[KINDS][RANKS_MAX] = { { 0 } };

		memset(buf, 16 * run + r->rank, kind_bytes[KINDS - 1]);
		usleep((useconds_t)ranks_below(random, 1000));
		CHECK_EQ(sched_run(s), 0);
		usleep((useconds_t)ranks_below(random,
					       /* other processes may drive this rank meanwhile */
					       1000));
		CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
		at = kind_bytes[KINDS - 1];
		for (uint32_t i = 0; i < all; at += kind_bytes[i++ % KINDS]) {
			int src = (unsigned char)buf[at] - 16 * run;

			CHECK(src >= 0 && src < r->size); /* of this run */
			CHECK(!memcmp(buf + at, buf + at + 1, kind_bytes[i % KINDS] - 1));
			seen[i % KINDS][src]++;
		}
		for (uint32_t k = 0; k < KINDS * (uint32_t)r->size; k++)
			CHECK_EQ(seen[k % KINDS][k / KINDS], EACH_KIND);
	}
	sched_group_destroy(g);
	free(buf);
}

UNIT_TEST(receives_from_anyone_take_each_message_once_whatever_the_delays)
{
	for (int size = 2; size <= 9; size += size < 5 ? 1 : 2)
		ranks_run(size, no_options, from_any_delayed, NULL);
}

/* The receive posted first wins: here the one from any source, then the one from rank 1. */
static void posted_first(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	uint64_t buf[2] = { 1, 2 };
	struct sched_inst *s;

	plan_init(&plan);
	for (uint32_t i = 0; i < 2; i++) {
		if (r->rank)
			goal_send(&plan.build, 0, 5, 0, GOAL_USER, 8 * (uint64_t)i, 8);
		else
			goal_recv(&plan.build, i ? 1 : GOAL_ANY, i ? 5 : GOAL_ANY, GOAL_USER,
				  8 * (uint64_t)i, 8);
	}
	s = open_plan(g, buf, sizeof buf, 0, 0);
	if (!r->rank)
		buf[0] = buf[1] = 0;
	CHECK_EQ(sched_run(s), 0);
	CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	CHECK(buf[0] == 1 && buf[1] == 2);
	sched_group_destroy(g);
}

UNIT_TEST(the_receive_that_was_posted_first_wins) { ranks_run(2, no_options, posted_first, NULL); }

/* Thousands of messages in flight on one channel and on many, with the same tags. */
static void thousands(struct ranks *r)
{
	enum { N = 4000 };
	struct sched_group *g = case_group(r);
	uint32_t other = 1 - (uint32_t)r->rank;
	uint64_t *buf = calloc(N, 16);
	struct sched_inst **s = calloc(N, sizeof *s);

	for (uint32_t i = 0; i < N; i++) {
		plan_init(&plan);
		goal_send(&plan.build, other, 0, 0, GOAL_USER, 0, 8);
		goal_recv(&plan.build, other, 0, GOAL_USER, 8, 8);
		s[i] = open_plan(g, &buf[2 * i], 16, i % 5, 0);
		buf[2 * i] = i * 2 + (uint32_t)r->rank;
	}
	for (uint32_t i = 0; i < N; i++)
		CHECK_EQ(sched_run(s[i]), 0);
	for (uint32_t i = N; i-- > 0;) {
		CHECK_EQ(sched_wait(s[i], UINT64_MAX), 0);
		CHECK_EQ(buf[2 * i + 1], i * 2 + other);
	}
	sched_group_destroy(g);
	free(s);
	free(buf);
}

UNIT_TEST(thousands_of_schedules_are_in_flight) { ranks_run(2, no_options, thousands, NULL); }

/* Rank 1 starts a run and computes; its part makes progress, because rank 0 waits. */
static void helped(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	uint64_t *buf = sched_alloc(g, 8 << 20);
	struct sched_inst *s;
	uint32_t got;

	plan_init(&plan);
	/* a reply that requires the request, and an operation that requires the reply */
	if (r->rank) {
		got = goal_recv(&plan.build, 0, 0, GOAL_USER, 0, 4 << 20);
		goal_add(&plan.build, &(struct goal_op){ .type = GOAL_ADD,
							 .dtype = GOAL_U64,
							 .mem = GOAL_USER,
							 .src_mem = GOAL_USER,
							 .src2_mem = GOAL_USER,
							 .bytes = 4 << 20 });
		goal_requires(&plan.build, got + 1, got);
		goal_send(&plan.build, 0, 1, 0, GOAL_USER, 0, 4 << 20);
		goal_requires(&plan.build, got + 2, got + 1);
	} else {
		buf[0] = 21;
		buf[(4 << 20) / 8 - 1] = 4;
		goal_send(&plan.build, 1, 0, 0, GOAL_USER, 0, 4 << 20);
		goal_recv(&plan.build, 1, 1, GOAL_USER, 4 << 20, 4 << 20);
	}
	s = open_plan(g, buf, 8 << 20, 0, 0);
	CHECK_EQ(sched_run(s), 0);
	ranks_barrier(r);
	if (r->rank) {
		for (int k = 0; !atomic_load(&r->words[0]); k++) {
			CHECK(k < 5000);
			usleep(1000);
		}
		CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	} else {
		CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
		CHECK_EQ(buf[(4 << 20) / 8], 42);
		CHECK_EQ(buf[(8 << 20) / 8 - 1], 8);
		atomic_store(&r->words[0], 1);
	}
	sched_group_destroy(g);
}

UNIT_TEST(a_schedule_goes_on_while_its_rank_computes) { ranks_run(2, no_options, helped, NULL); }

/* Rank 1 executes the schedule of rank 0, whose stamp goes to memory that rank 1 does not map. */
static void stamped(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	static _Atomic uint64_t stamp[2];
	struct sched_inst *s = plan_open_stamp(&plan, g, stamp);

	for (int k = 0; k < 10; k++) {
		*stamp = 0;
		if (!r->rank)
			CHECK_EQ(sched_run(s), 0);
		ranks_barrier(r);
		if (r->rank)
			CHECK_EQ(sched_run(s), 0);
		ranks_barrier(r);
		CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
		CHECK((*stamp > 0) == !r->rank);
	}
	sched_group_destroy(g);
}

UNIT_TEST(a_stamp_in_private_memory_is_written_when_a_peer_drives_its_rank)
{
	ranks_run(2, no_options, stamped, NULL);
}

enum { CHAIN = 40, CHAIN_RANKS = 3 };

/* A ring of CHAIN stages, each of which sends what came in the one before. */
static struct sched_inst *open_chain(struct sched_group *g, char *buf, uint64_t bytes)
{
	uint32_t rank = (uint32_t)sched_rank(g), size = (uint32_t)sched_size(g);

	plan_init(&plan);
	for (uint32_t i = 0; i < CHAIN; i++) {
		goal_send(&plan.build, (rank + 1) % size, i, 0, GOAL_USER, i * bytes, bytes);
		goal_recv(&plan.build, (rank + size - 1) % size, i, GOAL_USER, (i + 1) * bytes,
			  bytes);
		if (i)
			goal_requires(&plan.build, 2 * i, 2 * i - 1);
	}
	return open_plan(g, buf, (CHAIN + 1) * bytes, 0, 0);
}

/* All ranks start and then make no call: the last start executes what is ready of every rank. */
static void chain(struct ranks *r)
{
	uint64_t bytes = *(const uint64_t *)r->arg;
	struct sched_group *g = case_group(r);
	char *buf = sched_alloc(g, (CHAIN + 1) * bytes);
	uint64_t began, elapsed;
	struct sched_inst *s;

	CHECK(buf);
	sched_keep_times(g, true);
	s = open_chain(g, buf, bytes);
	for (uint64_t round = 0; round < 20; round++) {
		case_fill(buf, bytes, round * CHAIN_RANKS + (uint64_t)r->rank);
		ranks_barrier(r);
		began = os_now_ns();
		CHECK_EQ(sched_run(s), 0);
		usleep(2000);
		ranks_barrier(r);
		elapsed = os_now_ns() - began;
		CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
		if (sched_times(s)[2 * CHAIN - 1].end_ns < elapsed)
			atomic_fetch_add(&r->words[0], 1);
		CHECK_EQ(case_wrong(buf + CHAIN * bytes, bytes,
				    round * CHAIN_RANKS +
					    (uint64_t)(r->rank + CHAIN_RANKS * CHAIN - CHAIN) %
						    CHAIN_RANKS),
			 -1);
		ranks_barrier(r);
	}
	ranks_barrier(r);
	/* not each time: a start that loses its CPU gives up */
	CHECK(bytes > 1000 || atomic_load(&r->words[0]));
	sched_group_destroy(g);
}

UNIT_TEST(a_chain_of_messages_is_executed_while_every_rank_computes)
{
	uint64_t bytes[] = { 8, 1000, 8192 };

	for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++)
		ranks_run(CHAIN_RANKS, no_options, chain, &bytes[i]);
}

/* ---- groups by name ---------------------------------------------------------------------- */

struct joiner {
	int rank, size, expect;
	const char *name;
	unsigned timeout_ms;
};

static void join(void *arg)
{
	const struct joiner *j = arg;
	struct sched_group *g = NULL;
	char name[64];

	/* names hold for the machine, on which this test may run twice */
	snprintf(name, sizeof name, "%s-%d", j->name, (int)getppid());
	ranks_options((char *const[]){ "SLUICE_LOG=none", NULL });
	CHECK_EQ(sched_join(name, j->rank, j->size,
			    (j->timeout_ms ? j->timeout_ms : 3000) * 1000000ull, &g),
		 j->expect);
	if (g) {
		CHECK_EQ(sched_size(g), j->size);
		sched_group_destroy(g);
	}
}

/* Returns: whether the process waits for others, or has ended. */
static bool has_joined(int pid)
{
	char path[64], call[8] = "";
	siginfo_t end = { 0 };
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/syscall", pid);
	f = fopen(path, "r");
	if (f && !fgets(call, sizeof call, f))
		call[0] = 0;
	if (f)
		fclose(f);
	return !waitid(P_PID, (id_t)pid, &end, WEXITED | WNOHANG | WNOWAIT) &&
	       (end.si_pid || strtol(call, NULL, 10) == SYS_poll);
}

/* One after the other; one with a timeout of its own ends before the next begins. */
static void join_all(const struct joiner *all, int n)
{
	int pids[8], status;
	siginfo_t end;

	for (int i = 0; i < n; i++) {
		pids[i] = unit_spawn(join, (void *)(uintptr_t)&all[i]);
		for (int ms = 0; ms < 1000 && !has_joined(pids[i]); ms++)
			usleep(1000);
		if (all[i].timeout_ms)
			CHECK(!waitid(P_PID, (id_t)pids[i], &end, WEXITED | WNOWAIT));
	}
	for (int i = 0; i < n; i++) {
		CHECK(waitpid(pids[i], &status, 0) == pids[i]);
		CHECK_EQ(status, 0);
	}
}

UNIT_TEST(processes_meet_by_name)
{
	join_all((struct joiner[]){ { 2, 3, 0, "here", 0 },
				    { 0, 3, 0, "here", 0 },
				    { 1, 3, 0, "here", 0 } },
		 3);
}

UNIT_TEST(a_name_that_is_in_use_is_refused)
{
	join_all((struct joiner[]){ { 0, 2, -ETIMEDOUT, "used", 0 },
				    { 0, 2, -EADDRINUSE, "used", 0 } },
		 2);
}

UNIT_TEST(a_rank_that_is_there_already_is_refused)
{
	join_all((struct joiner[]){ { 0, 3, 0, "twice", 0 },
				    { 1, 3, 0, "twice", 0 },
				    { 1, 3, -EEXIST, "twice", 0 },
				    { 1, 4, -EINVAL, "twice", 0 },
				    { 2, 3, 0, "twice", 0 } },
		 5);
}

/* The timeout of a rank that has connected is its own. */
UNIT_TEST(a_rank_that_gives_up_joining_may_come_again)
{
	join_all((struct joiner[]){ { 0, 3, 0, "again", 0 },
				    { 1, 3, -ETIMEDOUT, "again", 200 },
				    { 2, 3, 0, "again", 0 },
				    { 1, 3, 0, "again", 0 } },
		 4);
	join_all((struct joiner[]){ { 0, 2, -ETIMEDOUT, "alone", 200 } }, 1);
}

/* But for the one of its socket. */
static void join_without_descriptors(void *arg)
{
	int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
	struct rlimit limit = { (rlim_t)next + 1, (rlim_t)next + 1 };

	close(next);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	join(arg);
}

/* It polled its listener until the timeout, as fast as it could once somebody had come. */
UNIT_TEST(a_rank_that_can_open_no_descriptor_says_so_instead_of_timing_out)
{
	struct joiner first = { 0, 2, -EMFILE, "full", 0 };
	int pid = unit_spawn(join_without_descriptors, &first), status;

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_EQ(status, 0);
}
