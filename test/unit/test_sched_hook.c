/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that wait elsewhere and poll meanwhile: they drive others, and nothing is lost when they
 * stop without a word. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "sched_case.h"

enum { STAGES = 20, ROUNDS = 200, LOST_NS = 1000000000, WATCH_NS = 30000 };

static struct plan plan; /* large: not on the stack */

static int poll_for(uint64_t ns)
{
	uint64_t until = os_now_ns() + ns;
	int useful = 0;

	while (os_now_ns() < until)
		useful += sched_poll() > 0;
	return useful;
}

/* A chain of exchanges between two ranks, each of which requires the one before; then rank 0 writes
 * the time. */
static struct sched_inst *open_chain(struct sched_group *g, _Atomic uint64_t *stamp)
{
	uint32_t peer = 1 - (uint32_t)sched_rank(g);

	plan_init(&plan);
	for (uint32_t i = 0; i < STAGES; i++) {
		goal_send(&plan.build, peer, i, 0, GOAL_USER, 8, 8);
		goal_recv(&plan.build, peer, i, GOAL_USER, 16, 8);
		for (uint32_t k = 0; i && k < 2; k++)
			goal_requires(&plan.build, 2 * i + k, 2 * i - 1);
	}
	if (!peer) {
		goal_add(&plan.build, &(struct goal_op){ .type = GOAL_NOP });
	} else {
		goal_add(&plan.build,
			 &(struct goal_op){ .type = GOAL_STAMP, .mem = GOAL_USER, .bytes = 8 });
	}
	goal_requires(&plan.build, 2 * STAGES, 2 * STAGES - 1);
	plan.buffers[0] = (void *)stamp;
	plan.bytes[0] = 24;
	plan.count = 1;
	return plan_open(&plan, g);
}

/* Rank 0 receives from rank 1 what that sends in the end. */
static struct sched_inst *open_pending(struct sched_group *g)
{
	plan_init(&plan);
	if (sched_rank(g))
		goal_send(&plan.build, 0, 0, 0, GOAL_SCRATCH, 0, 0);
	else
		goal_recv(&plan.build, 1, 0, GOAL_SCRATCH, 0, 0);
	plan.channel = 1;
	return plan_open(&plan, g);
}

/* ---- whoever polls drives ---------------------------------------------------------------- */

/* Rank 0 starts and polls until all has ended; rank 1 starts and computes until then. Where both
 * share a CPU, rank 1 may find nobody who polls, and do all of it: not always. */
static void polls(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	_Atomic uint64_t *stamp = sched_alloc(g, 24);
	struct sched_inst *s = open_chain(g, stamp);
	_Atomic uint64_t *useful = &r->words[0];

	for (int k = 0; k < ROUNDS || !*useful; k++) {
		uint64_t until = os_now_ns() + LOST_NS;

		*stamp = 0;
		ranks_barrier(r);
		if (r->rank)
			case_compute(2 * WATCH_NS);
		CHECK_EQ(sched_run(s), 0);
		while (!r->rank && !*stamp) {
			*useful += sched_poll() > 0;
			CHECK(os_now_ns() < until);
		}
		ranks_barrier(r);
		CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
		CHECK(k < 100 * ROUNDS);
	}
	ranks_barrier(r);
	sched_group_destroy(g);
	CHECK_EQ(unit_count_threads(), 1);
}

UNIT_TEST(a_rank_that_polls_drives_one_that_computes) { ranks_run(2, NULL, polls, NULL); }

/* A schedule that a rank drove which polls every 5 us would wait for each poll. */
static void polls_rarely(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	_Atomic uint64_t *stamp = sched_alloc(g, 24);
	struct sched_inst *s = open_chain(g, stamp);

	for (int k = 0; k < ROUNDS; k++) {
		*stamp = 0;
		CHECK_EQ(r->rank ? 0 : sched_run(s), 0);
		ranks_barrier(r);
		case_compute(r->rank ? 2 * WATCH_NS : 0);
		CHECK_EQ(r->rank ? sched_run(s) : 0, 0);
		while (!r->rank && !*stamp) {
			case_compute(5000);
			CHECK_EQ(sched_poll(), 0);
		}
		ranks_barrier(r);
		CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	}
	ranks_barrier(r);
	sched_group_destroy(g);
}

UNIT_TEST(a_rank_that_polls_rarely_drives_nobody) { ranks_run(2, NULL, polls_rarely, NULL); }

/* Rank 0 polls for some microseconds and stops without a word, while, before or after rank 1 starts
 * what both need; then both compute. */
static void stops_polling(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	_Atomic uint64_t *stamp = sched_alloc(g, 24);
	struct sched_inst *s = open_chain(g, stamp), *pending = open_pending(g);

	if (!r->rank)
		CHECK_EQ(sched_run(pending), 0);
	for (uint64_t k = 0; k < 5 * ROUNDS; k++) {
		uint64_t until = os_now_ns() + LOST_NS;

		*stamp = 0;
		CHECK_EQ(r->rank ? 0 : sched_run(s), 0);
		ranks_barrier(r);
		if (r->rank) {
			case_compute(WATCH_NS + k % 100 * 200);
			CHECK_EQ(sched_run(s), 0);
		} else {
			poll_for(WATCH_NS + 10000);
			while (!*stamp)
				CHECK(os_now_ns() < until);
		}
		ranks_barrier(r);
		CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	}
	if (r->rank)
		CHECK_EQ(sched_run(pending), 0);
	CHECK_EQ(sched_wait(pending, UINT64_MAX), 0);
	ranks_barrier(r);
	sched_group_destroy(g);
}

UNIT_TEST(nothing_is_lost_when_a_rank_stops_polling)
{
	ranks_run(2, NULL, stops_polling, NULL);
}

/* ---- nothing pending --------------------------------------------------------------------- */

static int asked;
static int ask(void)
{
	asked++;
	return 0;
}

static void polls_for_nothing(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_inst *s = open_pending(g);
	uint64_t until;

	CHECK_EQ(sched_execute(s, UINT64_MAX), 0);
	ranks_barrier(r);
	sched_ask(ask);
	CHECK_EQ(asked, 1);
	until = os_now_ns() + 100000000;
	while (sched_poll() >= 0) /* -1 after 20 ms */
		CHECK(os_now_ns() < until || asked);
	CHECK(os_now_ns() > until - 90000000);
	CHECK_EQ(unit_count_threads(), 1);
	CHECK_EQ(sched_run(s), 0);
	CHECK_EQ(asked, 2);
	CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	CHECK_EQ(sched_run(s), 0);
	CHECK_EQ(asked, 2);
	CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	ranks_barrier(r);
	sched_group_destroy(g);
}

UNIT_TEST(polls_for_nothing_end_and_begin_with_the_next_start)
{
	ranks_run(2, NULL, polls_for_nothing, NULL);
}

static void without_a_thread(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	_Atomic uint64_t *stamp = sched_alloc(g, 24);
	struct sched_inst *s = open_chain(g, stamp);

	CHECK_EQ(r->rank ? 0 : sched_run(s), 0);
	ranks_barrier(r);
	CHECK_EQ(r->rank ? 0 : poll_for(2 * WATCH_NS), 0); /* nobody would look after it */
	CHECK_EQ(unit_count_threads(), 1);
	CHECK_EQ(r->rank ? sched_run(s) : 0, 0);
	CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	sched_group_destroy(g);
}

UNIT_TEST(polls_drive_nothing_where_no_thread_looks_after_them)
{
	ranks_run(2, (char *[]){ "SLUICE_GOAL_THREAD=off", NULL }, without_a_thread, NULL);
}

/* ---- death ------------------------------------------------------------------------------- */

static struct sched_inst *open_calc(struct sched_group *g, uint64_t ns)
{
	plan_init(&plan);
	goal_add(&plan.build, &(struct goal_op){ .type = GOAL_CALC, .bytes = ns });
	return plan_open(&plan, g);
}

/* Rank 0 kills rank 1, which polls, at any point of its polls: nothing of rank 0 or 2 ends then, so
 * rank 1 changes nothing of theirs. Afterwards ranks 0 and 2 run schedules. */
static void dies_polling(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_inst *s = open_calc(g, 500000000), *later = open_calc(g, 1000000);

	CHECK_EQ(sched_run(s), 0);
	ranks_barrier(r);
	if (r->rank == 1) {
		poll_for(5000000);
		r->words[0] = 1;
		poll_for(10000000000);
	}
	while (!r->rank && !r->words[0])
		case_compute(10000);
	if (!r->rank)
		CHECK_EQ(kill(r->pids[1], SIGKILL), 0);
	CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
	for (int k = 0; k < 20; k++) {
		CHECK_EQ(sched_run(later), 0);
		CHECK_EQ(sched_wait(later, UINT64_MAX), 0);
	}
	_exit(0);
}

UNIT_TEST(a_rank_that_is_killed_while_it_polls_hangs_nobody)
{
	int status[3];

	ranks_run_any(3, (char *[]){ "SLUICE_LOG=none", NULL }, dies_polling, NULL, status);
	CHECK_EQ(status[0], 0);
	CHECK_EQ(status[1], 128 + SIGKILL);
	CHECK_EQ(status[2], 0);
}
