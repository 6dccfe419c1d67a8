/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Threads of a process share a group: each runs schedules on a channel of its own. A thread that
 * waits drives the state of its rank for all, and copies for others. Under TSan only the protocol
 * orders accesses to the buffers.
 */
#include <pthread.h>

#include "ranks.h"
#include "sluice/goal.h"

enum { THREADS = 4, RUNS = 40, RANKS = 2 };

/* Inline, eager, copied in few fragments and in many: jobs with different numbers of fragments use
 * the same records. */
static const uint64_t elements[THREADS] = { 1, 300, 5000, 40000 };

struct one {
	struct sluice_goal_group *group;
	int number;
	pthread_t thread;
};

/* Sends to the right, receives from the left; user1 = user0 + the message. */
static struct sluice_goal_schedule *make(int rank, int ranks, uint64_t bytes)
{
	struct sluice_goal_schedule *s = NULL;
	struct sluice_goal *g = NULL;
	int recv, add;

	CHECK_EQ(sluice_goal_create(bytes, &g), 0);
	sluice_goal_send(g, sluice_goal_user(0, 0), bytes, (uint32_t)((rank + 1) % ranks), 5);
	recv = sluice_goal_recv(g, sluice_goal_scratchpad(0), bytes,
				(uint32_t)((rank + ranks - 1) % ranks), 5);
	add = sluice_goal_local(g, SLUICE_GOAL_ADD, SLUICE_GOAL_U64, sluice_goal_user(1, 0),
				sluice_goal_user(0, 0), sluice_goal_scratchpad(0), bytes / 8);
	sluice_goal_requires(g, add, recv);
	CHECK_EQ(sluice_goal_compile(g, (uint32_t)ranks, &s), 0);
	sluice_goal_destroy(g);
	return s;
}

static uint64_t value(int rank, int thread, int run, uint64_t i)
{
	return (uint64_t)rank * 1000003 + (uint64_t)thread * 7919 + (uint64_t)run * 31 + i;
}

static int finish(struct sluice_goal_instance *in, int way)
{
	int ret = way == 2 ? sluice_goal_execute(in, -1) : sluice_goal_start(in);

	if (way == 0 && !ret)
		ret = sluice_goal_wait(in, -1);
	while (way == 1 && !ret && (ret = sluice_goal_test(in)) == 0)
		;
	return way == 1 && ret == 1 ? 0 : ret;
}

static void *use(void *arg)
{
	struct one *o = arg;
	int rank = sluice_goal_group_rank(o->group), ranks = sluice_goal_group_size(o->group);
	int left = (rank + ranks - 1) % ranks;
	uint64_t n = elements[o->number], *from, *to;
	struct sluice_goal_options options = { .channel = 1 + (uint32_t)o->number };
	struct sluice_goal_instance *in = NULL;
	struct sluice_goal_schedule *s = make(rank, ranks, 8 * n);

	from = sluice_goal_alloc(o->group, 8 * n);
	to = sluice_goal_alloc(o->group, 8 * n);
	CHECK(from && to);
	CHECK_EQ(sluice_goal_open(o->group, s,
				  (struct sluice_goal_buffer[]){ { from, 8 * n }, { to, 8 * n } },
				  2, &options, &in),
		 0);
	sluice_goal_schedule_destroy(s);
	for (int run = 0; run < RUNS; run++) {
		for (uint64_t i = 0; i < n; i++)
			from[i] = value(rank, o->number, run, i);
		CHECK_EQ(finish(in, run % 3), 0);
		for (uint64_t i = 0; i < n; i++)
			if (to[i] !=
			    value(rank, o->number, run, i) + value(left, o->number, run, i))
				CHECK_EQ(to[i], value(rank, o->number, run, i) +
							value(left, o->number, run, i));
	}
	CHECK_EQ(sluice_goal_close(in), 0);
	sluice_goal_free(o->group, from);
	sluice_goal_free(o->group, to);
	return NULL;
}

static void use_in_threads(struct ranks *r)
{
	struct sluice_goal_oob oob = { r->oob.ctx, r->rank, r->size, NULL, r->oob.allreduce_min };
	struct one all[THREADS] = { { 0 } };
	struct sluice_goal_group *g = NULL;

	oob.allgather = (int (*)(void *, const void *, uint64_t, void *))r->oob.allgather;
	CHECK_EQ(sluice_goal_group_create(&oob, &g), 0);
	for (int t = 0; t < THREADS; t++) {
		all[t] = (struct one){ .group = g, .number = t };
		CHECK_EQ(pthread_create(&all[t].thread, NULL, use, &all[t]), 0);
	}
	for (int t = 0; t < THREADS; t++)
		CHECK_EQ(pthread_join(all[t].thread, NULL), 0);
	sluice_goal_group_destroy(g);
}

UNIT_TEST(threads_of_a_process_run_schedules_in_one_group)
{
	ranks_run(1, (char *[]){ NULL }, use_in_threads, NULL);
	/* TSan sees one process; here another process may drive or copy between two threads of this
	 * one */
#ifndef __SANITIZE_THREAD__
	ranks_run(RANKS, (char *[]){ NULL }, use_in_threads, NULL);
#endif
}

/* Runs of one channel are numbered by the order of their starts, in whichever thread. */
static void *start_many(void *arg)
{
	struct one *o = arg;

	for (int run = 0; run < RUNS; run++) {
		struct sluice_goal_options options = { .channel = 9 };
		struct sluice_goal_schedule *s = NULL;
		struct sluice_goal_instance *in = NULL;
		struct sluice_goal *g = NULL;

		CHECK_EQ(sluice_goal_create(8, &g), 0);
		sluice_goal_nop(g);
		CHECK_EQ(sluice_goal_compile(g, RANKS, &s), 0);
		sluice_goal_destroy(g);
		CHECK_EQ(sluice_goal_open(o->group, s, NULL, 0, &options, &in), 0);
		CHECK_EQ(finish(in, run % 3), 0);
		CHECK_EQ(sluice_goal_close(in), 0);
		sluice_goal_schedule_destroy(s);
	}
	return NULL;
}

/* The other rank starts as many runs on the channel as both threads together: all meet. */
static void count_runs(struct ranks *r)
{
	struct sluice_goal_oob oob = { r->oob.ctx, r->rank, r->size, NULL, r->oob.allreduce_min };
	struct one all[2] = { { 0 } };
	struct sluice_goal_options options = { .channel = 9 };
	struct sluice_goal_schedule *s = make(r->rank, r->size, 8);
	struct sluice_goal_instance *in = NULL;
	uint64_t from = 7, to = 0;

	oob.allgather = (int (*)(void *, const void *, uint64_t, void *))r->oob.allgather;
	CHECK_EQ(sluice_goal_group_create(&oob, &all[0].group), 0);
	all[1].group = all[0].group;
	for (int t = 0; t < 2; t++)
		CHECK_EQ(pthread_create(&all[t].thread, NULL, start_many, &all[t]), 0);
	for (int t = 0; t < 2; t++)
		CHECK_EQ(pthread_join(all[t].thread, NULL), 0);
	CHECK_EQ(sluice_goal_open(all[0].group, s,
				  (struct sluice_goal_buffer[]){ { &from, 8 }, { &to, 8 } }, 2,
				  &options, &in),
		 0);
	/* a lost number would be waited for without end */
	CHECK_EQ(sluice_goal_execute(in, 20000), 0);
	CHECK_EQ(to, 14);
	CHECK_EQ(sluice_goal_close(in), 0);
	sluice_goal_schedule_destroy(s);
	sluice_goal_group_destroy(all[0].group);
}

UNIT_TEST(starts_on_one_channel_are_counted_whichever_thread_makes_them)
{
	ranks_run(RANKS, (char *[]){ NULL }, count_runs, NULL);
}
