/* SPDX-License-Identifier: BSD-3-Clause */
/* The progress thread: schedules go on while every rank computes, and nothing depends on it. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sched_case.h"

enum { STAGES = CASE_OPS / 2, COMPUTE_NS = 300000000 };

static struct plan plan; /* large: not on the stack */

/* A chain of exchanges between two ranks, each of which requires the one before. */
static struct sched_inst *open_chain(struct sched_group *g, uint32_t stages, void *buf)
{
	uint32_t peer = 1 - (uint32_t)sched_rank(g);

	plan_init(&plan);
	for (uint32_t i = 0; i < stages; i++) {
		goal_send(&plan.build, peer, i, 0, GOAL_USER, 0, 8);
		goal_recv(&plan.build, peer, i, GOAL_USER, 8, 8);
		for (uint32_t k = 0; i && k < 2; k++)
			goal_requires(&plan.build, 2 * i + k, 2 * i - 1);
	}
	plan.buffers[0] = buf;
	plan.bytes[0] = 16;
	plan.count = 1;
	return plan_open(&plan, g);
}

static struct sched_inst *open_calc(struct sched_group *g, uint64_t ns)
{
	plan_init(&plan);
	goal_add(&plan.build, &(struct goal_op){ .type = GOAL_CALC, .bytes = ns });
	return plan_open(&plan, g);
}

/* ---- progress ---------------------------------------------------------------------------- */

/* Returns: when the last operation of a run ended, in ms; all ranks compute meanwhile. */
static int ended_after_ms(struct ranks *r, struct sched_inst *s, uint32_t last)
{
	ranks_barrier(r);
	CHECK_EQ(sched_run(s), 0);
	ranks_barrier(r); /* no rank waits before every other one has computed so long */
	case_compute(COMPUTE_NS);
	CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	return (int)(sched_times(s)[last].end_ns / 1000000);
}

/* The chain takes several times as long as a call drives. */
static void long_chain(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	bool *has_thread = r->arg;
	int ms;

	sched_keep_times(g, true);
	ms = ended_after_ms(r, open_chain(g, STAGES, sched_alloc(g, 16)), 2 * STAGES - 1);
	CHECK_EQ(ms >= COMPUTE_NS / 1000000, !*has_thread);
	ranks_barrier(r);
	sched_group_destroy(g);
	CHECK_EQ(unit_count_threads(), 1);
}

UNIT_TEST(a_long_chain_ends_while_all_ranks_compute)
{
	ranks_run(2, NULL, long_chain, &(bool){ true });
}

UNIT_TEST(without_the_thread_a_long_chain_ends_in_a_wait)
{
	ranks_run(2, (char *[]){ "SLUICE_GOAL_THREAD=off", NULL }, long_chain, &(bool){ false });
}

/* Rank 0 computes 20 ms by its schedule, then sends; rank 1 computes 5 ms after the message. */
static void calc_and_message(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	uint32_t rank = (uint32_t)r->rank;
	struct sched_inst *s;
	int ms;

	sched_keep_times(g, true);
	plan_init(&plan);
	if (rank)
		goal_recv(&plan.build, 0, 0, GOAL_USER, 0, 8);
	goal_add(&plan.build,
		 &(struct goal_op){ .type = GOAL_CALC, .bytes = rank ? 5000000 : 20000000 });
	if (!rank)
		goal_send(&plan.build, 1, 0, 0, GOAL_USER, 0, 8);
	goal_requires(&plan.build, 1, 0);
	plan.buffers[0] = sched_alloc(g, 8);
	plan.bytes[0] = 8;
	plan.count = 1;
	s = plan_open(&plan, g);
	ms = ended_after_ms(r, s, 1);
	CHECK(ms >= (rank ? 5 : 20)); /* rank 1 may have started when rank 0 had computed */
	if (rank)
		CHECK(sched_times(s)[1].end_ns - sched_times(s)[0].end_ns >= 5000000);
	CHECK(ms < COMPUTE_NS / 1000000 / 2);
	ranks_barrier(r);
	sched_group_destroy(g);
}

UNIT_TEST(a_calc_ends_in_time_while_all_ranks_compute)
{
	ranks_run(2, NULL, calc_and_message, NULL);
}

/* Whoever executes it computes no more for others. */
static struct sched_inst *open_nop(struct sched_group *g)
{
	plan_init(&plan);
	goal_add(&plan.build, &(struct goal_op){ .type = GOAL_NOP });
	plan.channel = 2;
	return plan_open(&plan, g);
}

/* ---- starts that are left to the watcher -------------------------------------------------- */

enum { HANDOVERS = 3000, LOST_NS = 1000000000 };

/* Rank 1 waits for some microseconds, as the watcher. Rank 0 starts a run in the meantime, or just
 * before or after, and makes no further call: the run ends all the same. */
static void hand_over(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_inst *calc = r->rank ? open_calc(g, 20000) : NULL, *s = NULL;
	struct sched_inst *alone = open_nop(g);
	_Atomic uint64_t *stamp = sched_alloc(g, sizeof *stamp);

	if (!r->rank) {
		plan_init(&plan);
		goal_add(&plan.build,
			 &(struct goal_op){ .type = GOAL_STAMP, .mem = GOAL_USER, .bytes = 8 });
		plan.buffers[0] = (void *)stamp;
		plan.bytes[0] = sizeof *stamp;
		plan.count = plan.channel = 1;
		s = plan_open(&plan, g);
	}
	for (uint64_t k = 0; k < HANDOVERS; k++) {
		uint64_t until = os_now_ns() + LOST_NS;

		CHECK_EQ(sched_execute(alone, UINT64_MAX), 0);
		ranks_barrier(r);
		if (r->rank) {
			CHECK_EQ(sched_execute(calc, UINT64_MAX), 0);
		} else {
			case_compute(k % 100 * 300);
			*stamp = 0;
			CHECK_EQ(sched_run(s), 0);
			while (!*stamp)
				CHECK(os_now_ns() < until);
			CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
		}
		ranks_barrier(r);
	}
	sched_group_destroy(g);
}

UNIT_TEST(a_start_that_is_left_to_the_watcher_is_not_lost)
{
	ranks_run(2, (char *[]){ "SLUICE_GOAL_THREAD=off", NULL }, hand_over, NULL);
}

/* ---- ranks that compute after a start --------------------------------------------------- */

/* Both ranks start, rank 0 before, after or while rank 1 does, and make no further call: the last
 * start executes what is ready. */
static void both_compute(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	_Atomic uint64_t *stamp = sched_alloc(g, 16);
	struct sched_inst *s = plan_open_stamp(&plan, g, stamp), *alone = open_nop(g);

	for (uint64_t k = 0; k < HANDOVERS; k++) {
		uint64_t until = os_now_ns() + LOST_NS;

		CHECK_EQ(sched_execute(alone, UINT64_MAX), 0);
		*stamp = 0;
		ranks_barrier(r);
		case_compute(r->rank ? 1000 : k % 200 * 10);
		CHECK_EQ(sched_run(s), 0);
		while (!r->rank && !*stamp)
			CHECK(os_now_ns() < until);
		ranks_barrier(r);
		CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	}
	sched_group_destroy(g);
}

UNIT_TEST(the_last_start_executes_what_is_ready_whoever_comes_last)
{
	ranks_run(2, (char *[]){ "SLUICE_GOAL_THREAD=off", NULL }, both_compute, NULL);
}

/* Rank 1 has begun to receive short messages, for which nothing waits, and makes no further call.
 * Rank 0 sends it more than rings and records hold, then writes the time. */
struct many { uint32_t messages, bytes; };

static void more_than_rings_hold(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	const struct many *m = r->arg;
	_Atomic uint64_t *stamp = sched_alloc(g, 8 + m->bytes);
	struct sched_inst *s;
	uint64_t until;

	plan_init(&plan);
	for (uint32_t i = 0; i < m->messages && r->rank; i++)
		goal_recv(&plan.build, 0, i, GOAL_USER, 8, m->bytes);
	for (uint32_t i = 0; i < m->messages && !r->rank; i++)
		goal_send(&plan.build, 1, i, 0, GOAL_USER, 8, m->bytes);
	if (!r->rank)
		goal_add(&plan.build,
			 &(struct goal_op){ .type = GOAL_STAMP, .mem = GOAL_USER, .bytes = 8 });
	for (uint32_t i = 0; i < m->messages && !r->rank; i++)
		goal_requires(&plan.build, m->messages, i);
	plan.buffers[0] = (void *)stamp;
	plan.bytes[0] = 8 + m->bytes;
	plan.count = 1;
	s = plan_open(&plan, g);
	for (int k = 0; k < 20; k++) {
		*stamp = 0;
		if (r->rank)
			CHECK_EQ(sched_run(s), 0);
		ranks_barrier(r);
		if (!r->rank)
			CHECK_EQ(sched_run(s), 0);
		until = os_now_ns() + LOST_NS;
		while (!r->rank && !*stamp) {
			CHECK(os_now_ns() < until);
			sched_test(s); /* one call drives for 100 us at most */
		}
		ranks_barrier(r);
		CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	}
	sched_group_destroy(g);
}

UNIT_TEST(sends_to_a_rank_that_computes_end_when_the_ring_is_full)
{
	ranks_run(2, (char *[]){ "SLUICE_GOAL_THREAD=off", NULL }, more_than_rings_hold,
		  &(struct many){ 250, 8 });
}

UNIT_TEST(sends_to_a_rank_that_computes_end_when_all_records_are_in_use)
{
	ranks_run(2, (char *[]){ "SLUICE_GOAL_THREAD=off", NULL }, more_than_rings_hold,
		  &(struct many){ 50, 64 });
}

/* ---- nobody is woken for nothing --------------------------------------------------------- */

static void nothing_pending(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_inst *s = open_chain(g, 1, sched_alloc(g, 16));

	for (int k = 0; k < 20000; k++)
		CHECK_EQ(sched_execute(s, UINT64_MAX), 0);
	CHECK_EQ(unit_count_threads(), 1);
	for (int k = 0; k < 10; k++) {
		CHECK_EQ(sched_run(s), 0);
		CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	}
	CHECK_EQ(unit_count_threads(), 1);
	ranks_barrier(r);
	sched_group_destroy(g);
}

UNIT_TEST(programs_that_do_not_need_the_thread_have_none)
{
	ranks_run(2, NULL, nothing_pending, NULL);
}

/* The thread sleeps while nothing is pending: it uses no CPU. */
static void idle_thread(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_inst *s = open_calc(g, 1000000);
	clock_t before;

	CHECK_EQ(sched_run(s), 0);
	CHECK_EQ(unit_count_threads(), 2);
	CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	usleep(50000);
	before = clock();
	usleep(300000);
	CHECK(clock() - before < CLOCKS_PER_SEC / 100);
	sched_group_destroy(g);
}

UNIT_TEST(the_thread_sleeps_while_nothing_is_pending) { ranks_run(1, NULL, idle_thread, NULL); }

/* ---- ends -------------------------------------------------------------------------------- */

/* Rank 1 ends by exit(), without leaving the group, while its thread drives rank 0. */
static void exits(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_inst *chain = open_chain(g, STAGES, sched_alloc(g, 16));
	struct sched_inst *later;
	int ret;

	plan_init(&plan);
	plan.channel = 1;
	later = plan_open(&plan, g);
	CHECK_EQ(sched_run(chain), 0);
	if (r->rank)
		exit(0);
	ret = sched_wait(chain, UINT64_MAX);
	CHECK(!ret || ret == -EOWNERDEAD);
	CHECK_EQ(sched_execute(later, UINT64_MAX), 0); /* the state of this rank is whole */
	sched_group_destroy(g);
}

UNIT_TEST(a_rank_that_exits_while_its_thread_drives_breaks_no_other)
{
	for (int k = 0; k < 10; k++)
		ranks_run(2, (char *[]){ "SLUICE_LOG=none", NULL }, exits, NULL);
}

/* A rank is killed while its thread waits for the end of a calc. */
static void killed(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_inst *s = open_calc(g, r->rank ? 50000000 : 10000000);

	CHECK_EQ(sched_run(s), 0);
	ranks_barrier(r);
	if (r->rank == 1)
		raise(SIGKILL);
	CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	_exit(0);
}

UNIT_TEST(a_killed_rank_with_a_thread_hangs_nobody)
{
	int status[3];

	ranks_run_any(3, (char *[]){ "SLUICE_LOG=none", NULL }, killed, NULL, status);
	CHECK_EQ(status[0], 0);
	CHECK_EQ(status[1], 128 + SIGKILL);
	CHECK_EQ(status[2], 0);
}

static void forks(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_inst *s = open_calc(g, 20000000);
	int status = 1;
	pid_t child;

	CHECK_EQ(sched_run(s), 0);
	child = fork();
	CHECK(child >= 0);
	if (!child)
		/* its handlers end no thread of the parent */
		exit(unit_count_threads() == 1 ? 0 : 2);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	CHECK_EQ(sched_run(s), 0);
	CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	CHECK_EQ(unit_count_threads(), 2);
	sched_group_destroy(g);
	CHECK_EQ(unit_count_threads(), 1);
}

UNIT_TEST(a_forked_child_leaves_the_thread_alone) { ranks_run(1, NULL, forks, NULL); }

/* Without a thread all ends in the calls of the program. */
static void no_thread(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_inst *s = open_calc(g, 2000000);

	CHECK_EQ(sched_run(s), 0);
	CHECK_EQ(unit_count_threads(), 1);
	CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	sched_group_destroy(g);
}

UNIT_TEST(a_thread_that_cannot_be_created_is_done_without)
{
	ranks_run(1, (char *[]){ "SLUICE_TEST=fault=engine_thread:all", "SLUICE_LOG=none", NULL },
		  no_thread, NULL);
}
