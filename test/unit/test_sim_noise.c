/* SPDX-License-Identifier: BSD-3-Clause */
/* OS noise against a walk through its trace; counts of matching against lists searched by hand. */
#include <errno.h>
#include <stdlib.h>

#include "sim_case.h"

enum { DETOURS = 6 };
static struct sim_case one;

static struct sim_params loggopsim(void) { return sim_case_params(2500, 1500, 1000, 6, 0, 65535); }
static uint64_t end_ns(uint32_t rank) { return sim_rank_end(one.sim, rank) / SIM_PS_PER_NS; }

static void set_noise(const struct sim_detour *detours, size_t count, uint64_t seed)
{
	one.config.noise =
		(struct sim_noise){ .detours = detours, .count = count, .seed = seed };
}

/* One rank computes first and then second, on one CPU. */
static uint64_t end_of_two(uint64_t first_ns, uint64_t second_ns)
{
	struct sim_params p = loggopsim();
	uint64_t end;
	uint32_t op;

	sim_case_begin(&one, 1, &p);
	op = sim_case_calc(&one, first_ns, 0);
	goal_requires(&one.build, sim_case_calc(&one, second_ns, 0), op);
	sim_case_rank(&one, 0);
	CHECK_EQ(sim_run(one.sim), 0);
	end = end_ns(0);
	sim_case_end(&one);
	return end;
}

UNIT_TEST(a_detour_prolongs_what_it_interrupts_and_the_trace_is_repeated)
{
	const struct sim_detour detours[] = { { 50000, 10000 }, { 200000, 0 } };

	set_noise(detours, 2, 0);
	CHECK_EQ(end_of_two(50, 0), 50);
	CHECK_EQ(end_of_two(51, 0), 61);
	CHECK_EQ(end_of_two(100, 0), 110);
	CHECK_EQ(end_of_two(50, 1), 61); /* the second begins in the detour */
	CHECK_EQ(end_of_two(190, 0), 200);
	CHECK_EQ(end_of_two(500, 0), 530);
	CHECK_EQ(end_of_two(500, 200), 740);
	set_noise(NULL, 0, 0);
}

/* Returns: when `cost` has been spent from `begin` on, by counting picoseconds. */
static uint64_t walk(const struct sim_detour *detours, uint64_t begin, uint64_t cost)
{
	uint64_t period = 0, now = begin;

	for (int i = 0; i < DETOURS; i++) {
		uint64_t end = detours[i].begin_ps + detours[i].ps;

		period = end > period ? end : period;
	}
	for (; cost; now++) {
		bool is_free = true;

		for (int i = 0; i < DETOURS; i++)
			is_free &= now % period < detours[i].begin_ps ||
				   now % period >= detours[i].begin_ps + detours[i].ps;
		cost -= is_free;
	}
	return now;
}

/* Overlapping and empty ones, too. The costs are of a byte, so they have any number of ps. */
UNIT_TEST(random_noise_is_that_of_a_walk_through_the_trace)
{
	struct sim_params p = loggopsim();

	srand(7);
	for (int round = 0; round < 2000; round++) {
		struct sim_detour detours[DETOURS];
		uint64_t at = 0, cost[2] = { (uint64_t)rand() % 300, (uint64_t)rand() % 900 };
		struct goal_op op = { .type = GOAL_COPY };
		uint32_t first;

		for (int i = 0; i < DETOURS; i++) {
			at += (uint64_t)rand() % 40 + (i == 0);
			detours[i] = (struct sim_detour){ at, (uint64_t)rand() % 30 };
		}
		p.local_byte = 1 << SIM_FRACTION_BITS;
		set_noise(detours, DETOURS, 0);
		sim_case_begin(&one, 1, &p);
		op.bytes = cost[0];
		first = goal_add(&one.build, &op);
		op.bytes = cost[1];
		goal_requires(&one.build, goal_add(&one.build, &op), first);
		sim_case_rank(&one, 0);
		CHECK_EQ(sim_run(one.sim), 0);
		CHECK_EQ(sim_rank_end(one.sim, 0),
			 walk(detours, walk(detours, 0, cost[0]), cost[1]));
		sim_case_end(&one);
	}
	set_noise(NULL, 0, 0);
}

/* o of the sender is interrupted, so the message leaves later; the path says so. */
UNIT_TEST(noise_at_a_sender_delays_its_message)
{
	const struct sim_detour detours[] = { { 1000000, 700000 }, { 1000000000, 0 } };
	struct sim_params p = loggopsim();
	struct sim_path_sum sum;
	struct sim_stats stats;

	set_noise(detours, 2, 0);
	one.config.path_bytes = 1 << 16;
	sim_case_begin(&one, 2, &p);
	goal_send(&one.build, 1, 0, 0, GOAL_NOWHERE, 0, 1);
	sim_case_rank(&one, 0);
	goal_recv(&one.build, 0, 0, GOAL_NOWHERE, 0, 1);
	sim_case_rank(&one, 1);
	CHECK_EQ(sim_run(one.sim), 0);
	CHECK_EQ(end_ns(0), 1500 + 700);
	CHECK_EQ(end_ns(1), 1500 + 700 + 2500 + 1500);
	sim_path(one.sim, NULL, NULL, &sum);
	sim_get_stats(one.sim, &stats);
	CHECK_EQ(sum.noise_ps, 700000);
	CHECK_EQ(stats.noise_ps, 700000);
	CHECK_EQ(sum.noise_ps + sum.latency_ps + sum.overhead_ps, sum.total_ps);
	sim_case_end(&one);
	one.config.path_bytes = 0;
	set_noise(NULL, 0, 0);
}

static int create(const struct sim_detour *detours, size_t count)
{
	struct sim_config c = { .params = loggopsim(),
				.ranks = 1,
				.noise = { .detours = detours, .count = count } };
	struct sim *s = NULL;
	int rc = sim_create(&c, &s);

	if (!rc)
		sim_destroy(s);
	return rc;
}

UNIT_TEST(noise_without_order_or_without_free_time_is_refused)
{
	const struct sim_detour backwards[] = { { 20, 1 }, { 10, 1 } };
	const struct sim_detour full[] = { { 0, 10 }, { 10, 10 } };
	const struct sim_detour huge[] = { { SIM_TIME_MAX, 1 }, { SIM_TIME_MAX + 1, 1 } };

	CHECK_EQ(create(backwards, 2), -EINVAL);
	CHECK_EQ(create(full, 2), -EINVAL);
	CHECK_EQ(create(huge, 2), -EINVAL);
	CHECK_EQ(create(full, 0), 0);
}

static void send_tag(uint32_t tag)
{
	goal_send(&one.build, 1, tag, 0, GOAL_NOWHERE, 0, 1);
}

static void recv_tag(uint32_t tag, uint32_t after)
{
	uint32_t op = goal_recv(&one.build, 0, tag, GOAL_NOWHERE, 0, 1);

	if (after != GOAL_NONE)
		goal_requires(&one.build, op, after);
}

/* Receives of tags 1 to 100 are posted; messages come with 100, 99, 98. Then messages of tags 200
 * to 240 come while CPU 1 computes, and the last is received. */
UNIT_TEST(searches_count_the_elements_that_a_list_would_compare)
{
	struct sim_params p = loggopsim();
	const struct sim_matching *m;
	struct sim_stats stats;
	uint32_t computing;

	one.config.matching = true;
	sim_case_begin(&one, 2, &p);
	for (uint32_t tag = 100; tag > 97; tag--)
		send_tag(tag);
	for (uint32_t tag = 200; tag <= 240; tag++)
		send_tag(tag);
	sim_case_rank(&one, 0);
	for (uint32_t tag = 1; tag <= 100; tag++)
		recv_tag(tag, GOAL_NONE);
	computing = sim_case_calc(&one, 1000000, 1);
	recv_tag(240, computing);
	sim_case_rank(&one, 1);
	CHECK_EQ(sim_run(one.sim), -EDEADLK);
	m = sim_matching_of(one.sim, 1);
	CHECK_EQ(m->posted.hits, 3);
	CHECK_EQ(m->posted.misses, 41);
	CHECK_EQ(m->posted.compared_most, 100);
	CHECK_EQ(m->posted.compared, 100 + 99 + 98 + 41 * 97);
	CHECK_EQ(m->posted.length_most, 100);
	CHECK_EQ(m->unexpected.hits, 1);
	CHECK_EQ(m->unexpected.misses, 100);
	CHECK_EQ(m->unexpected.compared, 41);
	CHECK_EQ(m->unexpected.length_most, 41);
	CHECK_EQ(sim_matching_of(one.sim, 0)->posted.hits, 0);
	sim_get_stats(one.sim, &stats);
	CHECK_EQ(stats.unexpected, 41);
	sim_case_end(&one);
	one.config.matching = false;
	sim_case_begin(&one, 2, &p);
	CHECK(sim_matching_of(one.sim, 0) == NULL);
	sim_case_end(&one);
}
