/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers between two ranks: every kind of message, every kind of memory. */
#include <sys/resource.h>
#include <unistd.h>

#include "sched_case.h"

static char *const no_options[] = { NULL };
static char *const staged[] = { "SLUICE_REGION_KIND=staged", NULL };
static char *const cma[] = { "SLUICE_REGION_KIND=cma", NULL };

enum memory { OF_PROGRAM, OF_GROUP };

static void *get_memory(struct sched_group *g, enum memory kind, uint64_t bytes)
{
	void *p = kind == OF_GROUP ? sched_alloc(g, bytes) : malloc(bytes);

	CHECK(p != NULL);
	return p;
}

static void put_memory(struct sched_group *g, enum memory kind, void *p)
{
	if (kind == OF_GROUP)
		sched_free(g, p);
	else
		free(p);
}

static void exchange(struct sched_group *g, enum memory kind, uint64_t bytes, int runs)
{
	uint32_t other = 1 - (uint32_t)sched_rank(g);
	char *buf = get_memory(g, kind, 2 * bytes + 64);
	static struct plan p;
	struct sched_inst *s;

	plan_init(&p);
	goal_send(&p.build, other, 3, 0, GOAL_USER, 0, bytes);
	goal_recv(&p.build, other, 3, GOAL_USER, bytes, bytes);
	p.buffers[0] = buf;
	p.bytes[0] = 2 * bytes + 64;
	p.count = 1;
	s = plan_open(&p, g);
	for (int k = 0; k < runs; k++) {
		case_fill(buf, bytes, (uint64_t)(2 * k + sched_rank(g)));
		memset(buf + bytes, 0xee, bytes + 64);
		CHECK_EQ(sched_run(s), 0);
		CHECK_EQ(sched_wait(s, UINT64_MAX), 0);
		CHECK_EQ(case_wrong(buf + bytes, bytes, 2 * (uint64_t)k + other), -1);
		CHECK((unsigned char)buf[2 * bytes] == 0xee);
	}
	CHECK_EQ(sched_close(s), 0);
	put_memory(g, kind, buf);
}

static const uint64_t sizes[] = { 0,    1,    8,     32,    33,     100,     1024,
				  1025, 5000, 65536, 70001, 300000, 3u << 20 };

static void all_sizes(struct ranks *r)
{
	struct sched_group *g = case_group(r);

	for (size_t i = 0; i < BASE_ARRAY_LEN(sizes); i++)
		for (int kind = OF_PROGRAM; kind <= OF_GROUP; kind++)
			exchange(g, (enum memory)kind, sizes[i], 5);
	sched_group_destroy(g);
}

UNIT_TEST(messages_of_all_sizes_arrive)
{
	ranks_run(2, no_options, all_sizes, NULL);
}

UNIT_TEST(messages_arrive_by_system_calls)
{
	ranks_run(2, cma, all_sizes, NULL);
}

UNIT_TEST(messages_arrive_by_staging)
{
	ranks_run(2, staged, all_sizes, NULL);
}

/* Returns: the CPU time that this process has used, in ms. */
static int64_t used_ms(void)
{
	struct rusage u;

	CHECK_EQ(getrusage(RUSAGE_SELF, &u), 0);
	return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 +
	       (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

/* Returns: the CPU time of so many exchanges of 8 bytes, in ms. */
static int64_t exchanges_ms(struct sched_group *g, int count)
{
	uint32_t other = 1 - (uint32_t)sched_rank(g);
	static uint64_t memory[2];
	static struct plan p;
	struct sched_inst *s;
	int64_t before;

	plan_init(&p);
	goal_send(&p.build, other, 0, 0, GOAL_USER, 0, 8);
	goal_recv(&p.build, other, 0, GOAL_USER, 8, 8);
	p.buffers[0] = memory;
	p.bytes[0] = sizeof memory;
	p.count = 1;
	s = plan_open(&p, g);
	before = used_ms();
	for (int k = 0; k < count; k++)
		CHECK_EQ(sched_execute(s, UINT64_MAX), 0);
	before = used_ms() - before;
	CHECK_EQ(sched_close(s), 0);
	return before;
}

/* The kernel may leave both ranks on one CPU although the group has others. The harness, which
 * wakes now and then, would take that CPU from the rank that waits. */
static void on_one_cpu(struct ranks *r)
{
	struct sched_group *g = case_group(r);
	struct os_cpumask all, one = { 0 }, others;
	int64_t used;

	os_cpumask_self(&all);
	for (int i = 0; i < OS_CPUMASK_WORDS && !os_cpumask_count(&one); i++)
		one.bits[i] = all.bits[i] & -all.bits[i];
	others = all;
	os_cpumask_remove(&others, &one);
	if (os_cpumask_count(&others))
		os_cpumask_apply(getppid(), &others);
	CHECK_EQ(os_cpumask_apply(0, &one), 0);
	used = exchanges_ms(g, 200);
	os_cpumask_apply(getppid(), &all);
	CHECK(used < 150);
	sched_group_destroy(g);
}

/* A rank that polls until the kernel takes its CPU uses 2 ms in each exchange, 400 in all. */
UNIT_TEST(a_rank_that_waits_gives_its_cpu_to_the_rank_that_it_waits_for)
{
	ranks_run(2, no_options, on_one_cpu, NULL);
}
