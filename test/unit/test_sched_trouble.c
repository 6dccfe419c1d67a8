/* SPDX-License-Identifier: BSD-3-Clause */
/* Failures: ranks that die, sizes that differ, messages that never come, senders that never
 * stop. */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "region_stats.h"
#include "sched_case.h"

static char *const quiet[] = { "SLUICE_LOG=none", NULL };
static char *const loud[] = { NULL };

static struct plan plan; /* large: not on the stack */

static struct sched_inst *one_op(struct sched_group *g, uint8_t type, uint32_t peer, uint32_t tag,
				 void *buf, uint64_t bytes, uint32_t channel)
{
	plan_init(&plan);
	goal_add(
		&plan.build,
		&(struct goal_op){
			.type = type, .peer = peer, .tag = tag, .mem = GOAL_USER, .bytes = bytes });
	plan.buffers[0] = buf;
	plan.bytes[0] = bytes;
	plan.count = 1;
	plan.channel = channel;
	return plan_open(&plan, g);
}

/* ---- death ------------------------------------------------------------------------------- */

/* Rank 0 waits for 1, which waits for 2, which dies; the run of 3 and 4 goes on. */
static void chain_of_three(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	static char buf[8];
	struct sched_failure f;
	struct sched_inst *s;
	int ret;

	if (r->rank == 2)
		raise(SIGKILL);
	if (r->rank >= 3) {
		uint32_t other = 7 - (uint32_t)r->rank;

		plan_init(&plan);
		goal_send(&plan.build, other, 0, 0, GOAL_SCRATCH, 0, 0);
		goal_recv(&plan.build, other, 0, GOAL_SCRATCH, 0, 0);
		plan.channel = 1;
		s = plan_open(&plan, g);
		for (int k = 0; k < 100; k++) {
			CHECK_EQ(sched_run(s), 0);
			CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
			usleep(5000);
		}
		_exit(0);
	}
	plan_init(&plan);
	goal_recv(&plan.build, (uint32_t)r->rank + 1, 0, GOAL_USER, 0, 8);
	if (r->rank == 1) {
		goal_send(&plan.build, 0, 0, 0, GOAL_USER, 0, 8);
		goal_requires(&plan.build, 1, 0);
	}
	plan.buffers[0] = buf;
	plan.bytes[0] = 8;
	plan.count = 1;
	s = plan_open(&plan, g);
	CHECK_EQ(sched_run(s), 0);
	ret = sched_wait(s, UINT64_MAX);
	CHECK_EQ(ret, -EOWNERDEAD);
	sched_failure(s, &f);
	CHECK_EQ(f.rank, 2);
	CHECK_EQ(f.at_rank, 1);
	CHECK_EQ(f.op, 0);
	CHECK_EQ(sched_run(s), -EOWNERDEAD);
	CHECK_EQ(sched_close(s), 0);
	_exit(0);
}

UNIT_TEST(a_death_ends_what_depends_on_it_and_nothing_else)
{
	int status[5];

	ranks_run_any(5, quiet, chain_of_three, NULL, status);
	for (int i = 0; i < 5; i++)
		CHECK_EQ(status[i], i == 2 ? 128 + SIGKILL : 0);
}

UNIT_TEST(a_death_is_told_with_rank_and_operation)
{
	int status[5];

	ranks_run_any(5, loud, chain_of_three, NULL, status);
	CHECK_HAS(ranks_text, "rank 2 (pid ");
	CHECK_HAS(ranks_text, "has died; operation 0 of rank 1 depends on it");
}

/* All ranks exchange large and small messages; one is killed at a random moment; the runs of the
 * others end. */
static void all_to_all(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	static char buf[9 * 70000];
	struct sched_inst *s;
	int ret = 0;

	plan_init(&plan);
	for (int k = 0; k < r->size; k++) {
		goal_send(&plan.build, (uint32_t)k, 0, 0, GOAL_USER, 0, 70000);
		goal_recv(&plan.build, (uint32_t)k, 0, GOAL_USER, 70000 * (uint64_t)(k + 1), 70000);
		goal_send(&plan.build, (uint32_t)k, 1, 0, GOAL_USER, 0, 8);
		goal_recv(&plan.build, GOAL_ANY, 1, GOAL_USER, 70000 * (uint64_t)(k + 1), 8);
		goal_requires(&plan.build, 4 * (uint32_t)k + 3, 4 * (uint32_t)k + 1);
	}
	plan.buffers[0] = buf;
	plan.bytes[0] = sizeof buf;
	plan.count = 1;
	s = plan_open(&plan, g);
	atomic_fetch_add(&r->words[0], 1);
	while (!ret) {
		ret = sched_run(s);
		if (!ret)
			ret = sched_wait(s, UINT64_MAX);
	}
	CHECK_EQ(ret, -EOWNERDEAD);
	_exit(0);
}

static void killer(struct ranks *r)
{
	const unsigned *after_us = r->arg;
	struct ranks less;

	ranks_channel(r, 1, (1u << (r->size - 1)) - 1, &less);
	if (r->rank < r->size - 1)
		all_to_all(&less);
	while (atomic_load(&less.words[0]) < (uint64_t)less.size)
		usleep(1000);
	usleep(*after_us);
	kill(r->pids[1], SIGKILL);
	_exit(0);
}

UNIT_TEST(ranks_killed_at_random_moments_hang_nobody)
{
	uint64_t random = 5;

	for (int i = 0; i < 3; i++) {
		unsigned after_us = (unsigned)ranks_below(&random, 20000);
		int status[5];

		ranks_run_any(5, quiet, killer, &after_us, status);
		for (int k = 0; k < 5; k++)
			CHECK_EQ(status[k], k == 1 ? 128 + SIGKILL : 0);
	}
}

/* Rank 2 is killed while it drives all ranks. A wait of rank 0 notices; then rank 1 executes what
 * its message makes ready on rank 0. */
static void watcher_dies(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	uint64_t began = os_now_ns(), elapsed;
	struct sched_inst *s;
	char *buf;

	sched_keep_times(g, true);
	buf = sched_alloc(g, 8);
	CHECK(buf);
	s = one_op(g, r->rank == 1 ? GOAL_SEND : GOAL_RECV, !r->rank, 7, buf, 8,
		   r->rank == 2 ? 9 : 0);
	if (r->rank != 1)
		CHECK_EQ(sched_run(s), 0);
	ranks_barrier(r);
	if (r->rank == 2)
		sched_wait(s, UINT64_MAX);
	if (!r->rank) {
		usleep(20000);
		kill(r->pids[2], SIGKILL);
		CHECK_EQ(sched_wait(s, 300000000), -ETIMEDOUT);
		atomic_store(&r->words[0], 1);
	}
	while (!atomic_load(&r->words[r->rank ? 0 : 1]))
		usleep(1000);
	if (r->rank) {
		CHECK_EQ(sched_execute(s, UINT64_MAX), 0);
		atomic_store(&r->words[1], 1);
	} else {
		elapsed = os_now_ns() - began;
		CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
		CHECK(sched_times(s)[0].end_ns < elapsed);
	}
	sched_group_destroy(g);
}

UNIT_TEST(the_death_of_the_rank_that_drives_the_others_loses_nothing)
{
	static char *const options[] = { "SLUICE_LOG=none", "SLUICE_NODE_SPIN=1000000", NULL };
	int status[3];

	ranks_run_any(3, options, watcher_dies, NULL, status);
	CHECK_EQ(status[0], 0);
	CHECK_EQ(status[1], 0);
	CHECK_EQ(status[2], 128 + SIGKILL);
}

/* ---- sizes and messages that do not come ------------------------------------------------- */

static void sizes_differ(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	static const uint64_t sent[] = { 8, 500, 5000 };
	static char buf[8192];

	for (uint32_t k = 0; k < 3; k++) {
		struct sched_inst *s =
			one_op(g, r->rank ? GOAL_RECV : GOAL_SEND, 1 - (uint32_t)r->rank, 0, buf,
			       sent[k] + (r->rank ? 4 : 0), k);
		int ret = sched_run(s);

		if (!ret)
			ret = sched_wait(s, UINT64_MAX);
		/* a short send ends long before its receive is posted */
		CHECK(ret == -EREMOTEIO || (!r->rank && !ret && sent[k] < 1024));
		sched_close(s);
		ranks_barrier(r);
	}
	sched_group_destroy(g);
}

UNIT_TEST(sizes_that_differ_are_an_error) { ranks_run(2, quiet, sizes_differ, NULL); }

static void never_sent(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	static char buf[8];
	struct sched_inst *s = one_op(g, GOAL_RECV, 1 - (uint32_t)r->rank, 7, buf, 8, 0);
	char text[256];

	CHECK_EQ(sched_run(s), 0);
	CHECK_EQ(sched_close(s), -EBUSY);
	CHECK_EQ(sched_run(s), -EBUSY);
	CHECK_EQ(sched_wait(s, 1000000), -ETIMEDOUT);
	CHECK(sched_stuck(s, text, sizeof text) > 0);
	CHECK_HAS(text, "op 0: recv 8b from");
	CHECK_HAS(text, "tag 7: no message");
	ranks_barrier(r);
	CHECK_EQ(sched_wait(s, UINT64_MAX),
		 -ETIMEDOUT); /* by SLUICE_GOAL_TIMEOUT, at one of them */
	CHECK_EQ(sched_test(s), -ETIMEDOUT);
	CHECK_EQ(sched_close(s), 0);
	sched_group_destroy(g);
}

UNIT_TEST(a_receive_that_nobody_sends_to_is_named)
{
	static char *const options[] = { "SLUICE_GOAL_TIMEOUT=200", NULL };

	ranks_run(2, options, never_sent, NULL);
	CHECK_HAS(ranks_text, "recv 8b from 1 tag 7: no message");
	CHECK_HAS(ranks_text, "recv 8b from 0 tag 7: no message");
}

/* 36 receives wait, and one that requires them does not wait yet. */
static void many_never_sent(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct sched_inst *s;

	plan_init(&plan);
	for (uint32_t i = 0; i < 36; i++)
		goal_recv(&plan.build, 0, i, GOAL_SCRATCH, 0, 0);
	goal_requires(&plan.build, goal_recv(&plan.build, 0, 36, GOAL_SCRATCH, 0, 0), 0);
	s = plan_open(&plan, g);
	CHECK_EQ(sched_execute(s, UINT64_MAX), -ETIMEDOUT);
	sched_group_destroy(g);
}

UNIT_TEST(operations_that_are_not_named_are_counted)
{
	static char *const options[] = { "SLUICE_GOAL_TIMEOUT=200", NULL };

	ranks_run(1, options, many_never_sent, NULL);
	CHECK_HAS(ranks_text, "op 15: recv 0b from 0 tag 15: no message\n");
	CHECK_HAS(ranks_text, "waits: and 20 more\n");
	CHECK(!strstr(ranks_text, "op 16:"));
}

static void canceled(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	static char buf[8];
	struct sched_inst *s = one_op(g, GOAL_RECV, 1 - (uint32_t)r->rank, 7, buf, 8, 0);

	CHECK_EQ(sched_run(s), 0);
	if (!r->rank)
		CHECK_EQ(sched_cancel(s), 0);
	CHECK_EQ(sched_wait(s, UINT64_MAX), -ECANCELED);
	sched_group_destroy(g);
}

UNIT_TEST(a_canceled_run_ends_where_it_is_waited_for) { ranks_run(2, quiet, canceled, NULL); }

/* ---- a sender that never stops ----------------------------------------------------------- */

static uint64_t arena_bytes_used(void)
{
	struct region_stats s;

	region_get_stats(&s);
	return s.arena_used_bytes;
}

/* Rank 0 starts sends in a row and waits only when it must. */
static void runaway(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	enum { INSTS = 300, MESSAGES = 3000 };
	struct sched_inst *s[INSTS];
	static char buf[512];
	uint64_t used;
	uint32_t busy = 0;

	for (uint32_t i = 0; i < INSTS; i++) {
		plan_init(&plan);
		plan.flags = SCHED_STREAM;
		goal_add(&plan.build, &(struct goal_op){ .type = r->rank ? GOAL_RECV : GOAL_SEND,
							 .peer = 1 - (uint32_t)r->rank,
							 .mem = GOAL_USER,
							 .bytes = i % 3 ? 500 : 16 });
		plan.buffers[0] = buf;
		plan.bytes[0] = sizeof buf;
		plan.count = 1;
		s[i] = plan_open(&plan, g);
	}
	used = arena_bytes_used();
	if (r->rank)
		usleep(100000); /* the sender runs into its limits */
	for (uint32_t k = 0; k < MESSAGES; k++) {
		while (sched_run(s[k % INSTS]) == -EBUSY) {
			busy++;
			CHECK_EQ(sched_wait(s[k % INSTS], UINT64_MAX), 0);
		}
		if (r->rank)
			CHECK_EQ(sched_wait(s[k % INSTS], UINT64_MAX), 0);
	}
	for (uint32_t i = 0; i < INSTS; i++)
		CHECK_EQ(sched_wait(s[i], UINT64_MAX), 0);
	CHECK(r->rank || busy);
	CHECK_EQ(arena_bytes_used(), used);
	sched_group_destroy(g);
}

UNIT_TEST(a_sender_that_never_stops_needs_no_memory) { ranks_run(2, loud, runaway, NULL); }
