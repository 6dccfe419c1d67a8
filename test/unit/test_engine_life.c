/* SPDX-License-Identifier: BSD-3-Clause */
/* The conformance suite, continued: opening, closing, fork, exit and idleness of every engine. */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine_case.h"
#include "unit.h"

static void close_at_once(struct engine_case *e)
{
	static struct engine_job j;

	for (int i = 0; i < 100; i++) {
		struct engine_chan *ch = engine_case_open(e, 0);

		engine_job_make(&j, 0, 0, 64);
		engine_job_post(e, ch, &j);
		engine_job_wait(e, ch, &j); /* its done() may not have returned */
		engine_case_close(e, ch);
		engine_job_free(&j);
	}
}

UNIT_TEST(engine_closes_right_after_the_last_end) { engine_case_each(close_at_once, 0); }

static void two_channels(struct engine_case *e)
{
	struct engine_chan *a = engine_case_open(e, 0), *b = engine_case_open(e, 1);

	engine_case_close(e, a);
	engine_case_close(e, b);
}

static void leaves_nothing(struct engine_case *e)
{
	int mappings;

	for (int i = 0; i < 3;
	     i++) /* libc caches the stacks of earlier threads */
		two_channels(e);
	mappings = unit_count_mappings();
	for (int i = 0; i < 20; i++)
		two_channels(e);
	CHECK(unit_count_mappings() <=
	      mappings + 1); /* two adjacent stacks may be one mapping or two */
}

UNIT_TEST(engine_leaves_nothing_behind) { engine_case_each(leaves_nothing, 0); }

static void in_child(void *arg)
{
	struct engine_case *e = arg;
	static struct engine_job j;
	struct engine_chan *ch;

	engine_after_fork_child();
	engine_job_make(&j, 0, 0, 100 * KIB);
	CHECK(engine_post(e->ch, &j.c)); /* the parent's channel */
	ch = engine_case_open(e, 0);
	engine_job_post(e, ch, &j);
	engine_job_wait(e, ch, &j);
	engine_job_check(&j);
	exit(0); /* while a worker sleeps */
}

static void forks(struct engine_case *e)
{
	static struct engine_job j;

	e->ch = engine_case_open(e, 0);
	engine_job_make(&j, 0, 0, MIB);
	engine_job_post(e, e->ch, &j);
	CHECK_EQ(unit_fork(in_child, e), 0);
	engine_job_wait(e, e->ch, &j);
	engine_job_check(&j);
	engine_case_close(e, e->ch);
	engine_job_free(&j);
}

UNIT_TEST(engine_is_forgotten_by_a_forked_child) { engine_case_each(forks, ENGINE_CASE_FORKS); }

static void exits_busy(void *arg)
{
	struct engine_case *e = arg;
	static struct engine_job jobs[4];
	struct engine_chan *ch;

	engine_after_fork_child();
	ch = engine_case_open(e, 0);
	for (int i = 0; i < 4; i++) {
		engine_job_make(&jobs[i], 0, 0,
				base_min_u64(4 * MIB, e->caps.max_copy_bytes));
		engine_job_post(e, ch, &jobs[i]);
	}
	exit(0);
}

static void exit_while_copying(struct engine_case *e) { CHECK_EQ(unit_fork(exits_busy, e), 0); }

UNIT_TEST(engine_does_not_hinder_exit) { engine_case_each(exit_while_copying, ENGINE_CASE_FORKS); }

static void idle(struct engine_case *e)
{
	static struct engine_job j;
	struct engine_chan *ch = engine_case_open(e, 0);
	uint64_t before;

	engine_job_make(&j, 0, 0, 64);
	engine_job_post(e, ch, &j);
	engine_job_wait(e, ch, &j);
	engine_job_free(&j);
	engine_case_settle(); /* workers seek for a moment, and start at idle priority */
	before = engine_case_switches();
	usleep(300000);
	CHECK_EQ(engine_case_switches() - before, 0);
	engine_case_close(e, ch);
}

UNIT_TEST(engine_does_not_wake_up_without_work) { engine_case_each(idle, 0); }

static void without_threads(struct engine_case *e)
{
	static struct engine_job j;
	int opened = 0;

	for (int n = 1; n <= 6; n++) {
		struct engine_chan *ch = NULL;
		char text[64];
		int rc;

		snprintf(text, sizeof text, "SLUICE_TEST=fault=engine_idle:all,engine_thread:%d",
			 n);
		engine_case_options(e, text);
		rc = e->ops->chan_open(-1, 0, &ch);
		if (rc) {
			CHECK_EQ(rc, -EAGAIN);
			CHECK(!ch);
			continue;
		}
		opened++;
		engine_job_make(&j, 0, 0, 64);
		engine_job_post(e, ch, &j);
		engine_job_wait(e, ch, &j);
		engine_job_free(&j);
		engine_case_close(e, ch);
	}
	engine_case_options(e, NULL);
	CHECK(opened > 0);
}

UNIT_TEST(engine_opens_or_fails_cleanly_when_threads_cannot_be_created)
{
	engine_case_each(without_threads, 0);
}
