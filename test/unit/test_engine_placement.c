/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of an engine, the channels of ranks, the CPUs of worker threads. */
#include <errno.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/private.h"
#include "unit.h"

static int load(const char *a, const char *b)
{
	char problems[512];
	char *env[] = { (char *)a, (char *)b, NULL };

	return base_options_load(env, problems, sizeof problems);
}

/* ---- which engine ------------------------------------------------------------------------ */

static const char *picked(const char *engine, char *reason, size_t cap)
{
	const struct engine_ops *e;

	base_opt.engine = engine;
	e = engine_pick(reason, cap);
	return e ? e->name : "";
}

UNIT_TEST(the_best_engine_that_works_is_picked)
{
	char reason[512];

	CHECK(!load("SLUICE_WORKERS=1", NULL));
	CHECK_STR(picked("auto", reason, sizeof reason), "sw");
	CHECK_STR(reason, "");
	CHECK_STR(picked("sw", reason, sizeof reason), "sw");
	CHECK_STR(picked("Fault", reason, sizeof reason), "fault");
}

UNIT_TEST(an_engine_that_is_not_picked_says_why)
{
	char reason[512];

	CHECK(!load("SLUICE_WORKERS=0", NULL));
	CHECK_STR(picked("auto", reason, sizeof reason), ""); /* the choice is not `fault` */
	CHECK_STR(reason, "sw: no unused CPU for a worker");
	CHECK_STR(picked("sw", reason, sizeof reason), "");
	CHECK_STR(reason, "sw: no unused CPU for a worker");
	CHECK_STR(picked("none", reason, sizeof reason), "");
	CHECK_STR(reason, "SLUICE_ENGINE=none");
}

UNIT_TEST(an_engine_of_a_tune_file_that_does_not_work_is_replaced)
{
	char reason[512];
	const struct engine_ops *e;

	CHECK(!load("SLUICE_WORKERS=1", "SLUICE_TEST=dsa_root=/nonexistent"));
	CHECK_STR(picked("dsa", reason, sizeof reason), "");
	CHECK(!base_option_tune("SLUICE_ENGINE", "dsa"));
	e = engine_pick(reason, sizeof reason);
	CHECK_STR(e ? e->name : "", "sw");
	CHECK_HAS(reason, "dsa: ");
	base_options_untune(false);
	CHECK(!load("SLUICE_ENGINE=dsa", "SLUICE_TEST=dsa_root=/nonexistent"));
	CHECK(!base_option_tune("SLUICE_ENGINE", "dsa")); /* the environment counts more */
	CHECK(!engine_pick(reason, sizeof reason));
	CHECK(!load(NULL, NULL));
}

UNIT_TEST(an_engine_without_threads_says_why)
{
	char reason[512];

	CHECK(!load("SLUICE_WORKERS=1", "SLUICE_TEST=fault=engine_thread:all"));
	CHECK_EQ(engine_thread_probe(reason, sizeof reason), -EAGAIN);
	CHECK_HAS(reason, "no thread can be created: ");
	CHECK(!load(NULL, NULL));
}

static const struct base_option *option(const char *name)
{
	for (size_t i = 0; i < base_option_count; i++)
		if (!strcmp(base_option_table[i].name, name))
			return &base_option_table[i];
	return NULL;
}

UNIT_TEST(the_option_knows_the_engines_of_the_registry)
{
	const struct base_option *o = option("SLUICE_ENGINE");
	int words = 0, engines = 0;
	char entry[64];

	for (; engine_registry[engines]; engines++) {
		snprintf(entry, sizeof entry, "SLUICE_ENGINE=%s", engine_registry[engines]->name);
		CHECK(!load(entry, NULL));
		CHECK(engine_find(base_opt.engine) == engine_registry[engines]);
	}
	while (o->choices[words])
		words++;
	CHECK_EQ(words, engines + 2); /* auto and none */
	CHECK_EQ(load("SLUICE_ENGINE=ws", NULL), -EINVAL);
	CHECK_EQ(load("SLUICE_ENGINE=", NULL), -EINVAL);
}

UNIT_TEST(a_wrong_engine_option_is_one_clear_line)
{
	char *env[] = { "SLUICE_ENGINE=gpu", "SLUICE_WORKERS=@1-", NULL };
	char problems[512];

	CHECK_EQ(base_options_load(env, problems, sizeof problems), -EINVAL);
	CHECK_STR(problems, "SLUICE_ENGINE=gpu is wrong: it takes auto, none, dsa, kmod, sw or "
			    "fault\n"
			    "SLUICE_WORKERS=@1- is wrong: it takes auto or a number, and @ with "
			    "a list of CPUs, like 2@1,4-7\n");
	CHECK(!base_opt.usable);
	CHECK(!load(NULL, NULL));
}

/* ---- lists of CPUs ----------------------------------------------------------------------- */

UNIT_TEST(lists_of_cpus_are_read)
{
	static const struct {
		const char *text;
		int rc;
		uint64_t first, second;
	} cases[] = {
		{ "", 0, 0, 0 },          { "0", 0, 1, 0 },
		{ "1,4-7", 0, 0xf2, 0 },  { "63-65", 0, (uint64_t)1 << 63, 3 },
		{ "3,3,2-3", 0, 0xc, 0 }, { "127", 0, 0, (uint64_t)1 << 63 },
		{ ",", -EINVAL, 0, 0 },   { "1,", -EINVAL, 0, 0 },
		{ "4-", -EINVAL, 0, 0 },  { "7-4", -EINVAL, 0, 0 },
		{ "a", -EINVAL, 0, 0 },   { "1 ", -EINVAL, 0, 0 },
		{ "-1", -EINVAL, 0, 0 },  { "1-2-3", -EINVAL, 0, 0 },
		{ "128", -EINVAL, 0, 0 }, { "99999999999999999999", -EINVAL, 0, 0 },
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		uint64_t bits[2];
		int rc = base_parse_cpus(cases[i].text, bits, 2);

		CHECK_EQ(rc, cases[i].rc);
		if (rc)
			continue;
		CHECK_EQ(bits[0], cases[i].first);
		CHECK_EQ(bits[1], cases[i].second);
	}
	CHECK_EQ(base_parse_cpus("2047", NULL, 0), 0);
	CHECK_EQ(base_parse_cpus("2048", NULL, 0), -EINVAL);
}

/* ---- channels of ranks ------------------------------------------------------------------- */

UNIT_TEST(channels_are_dealt_per_node_round_robin)
{
	static const struct {
		int nodes, channels[4], ranks, node_of_rank[8], want[8][2];
	} cases[] = {
		/* one node, fewer channels than ranks */
		{ 1, { 2 }, 5, { 0 }, { { 0, 0 }, { 0, 1 }, { 0, 0 }, { 0, 1 }, { 0, 0 } } },
		/* each node's own channels, in order of rank */
		{ 2,
		  { 2, 3 },
		  6,
		  { 0, 1, 0, 1, 1, 1 },
		  { { 0, 0 }, { 1, 0 }, { 0, 1 }, { 1, 1 }, { 1, 2 }, { 1, 0 } } },
		/* a node without channels shares its neighbour's */
		{ 3, { 2, 0, 0 }, 4, { 0, 1, 2, 0 }, { { 0, 0 }, { 0, 1 }, { 0, 0 }, { 0, 1 } } },
		/* the nearer node; of two equally near ones the lower */
		{ 4,
		  { 0, 1, 0, 1 },
		  4,
		  { 0, 1, 2, 3 },
		  { { 1, 0 }, { 1, 0 }, { 1, 0 }, { 3, 0 } } },
		/* ranks without a node, and on a node beyond the last */
		{ 2, { 1, 1 }, 3, { -1, 5, 1 }, { { 0, 0 }, { 1, 0 }, { 1, 0 } } },
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++)
		for (int r = 0; r < cases[i].ranks; r++) {
			int node = -9, index = -9;

			CHECK_EQ(engine_deal(r, cases[i].ranks, cases[i].node_of_rank,
					     cases[i].nodes, cases[i].channels, &node, &index),
				 0);
			CHECK_EQ(node, cases[i].want[r][0]);
			CHECK_EQ(index, cases[i].want[r][1]);
		}
}

UNIT_TEST(no_channel_is_dealt_where_there_is_none)
{
	static const int nodes[] = { 0, 1 }, channels[] = { 0, 0 };
	int node = -9, index = -9;

	CHECK_EQ(engine_deal(1, 2, nodes, 2, channels, &node, &index), -ENODEV);
	CHECK_EQ(engine_deal(0, 2, nodes, 0, channels, &node, &index), -ENODEV);
	CHECK_EQ(engine_deal(2, 2, nodes, 2, channels, &node, &index), -EINVAL);
	CHECK(node == -9 && index == -9);
}

/* ---- spare CPUs -------------------------------------------------------------------------- */

UNIT_TEST(spare_cpus_are_those_that_the_job_leaves)
{
	static const struct {
		uint64_t launcher, used;
		int ranks, spare;
		uint64_t mask;
	} cases[] = {
		{ 0xff, 0x0f, 4, 4, 0xf0 }, /* ranks bound to the lower half */
		{ 0xff, 0xff, 8, 0, 0 },    /* every CPU has a rank */
		{ 0xff, 0xff, 6, 2, 0xff }, /* unbound ranks: two CPUs are idle at any time */
		{ 0x03, 0x03, 1, 1, 0x03 },
		{ 0x03, 0x01, 2, 1, 0x02 }, /* two ranks on one CPU, the other is idle */
		{ 0x00, 0x0f, 2, 2, 0x0f }, /* the launcher's CPUs are unknown */
		{ 0x00, 0x03, 4, 0, 0 },    /* more ranks than CPUs */
		{ 0x01, 0x06, 2, 1, 0x01 }, /* the launcher's CPUs are disjoint from the job's */
		/* two CPUs per rank: CPUs outside the job come before idle ones inside */
		{ 0xff, 0x3f, 3, 2, 0xc0 },
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		struct os_cpumask launcher = { { cases[i].launcher } },
				    used = { { cases[i].used } }, out;
		int spare = engine_unused_of(&launcher, &used, cases[i].ranks, &out);

		CHECK_EQ(spare, cases[i].spare);
		if (spare)
			CHECK_EQ(out.bits[0], cases[i].mask);
	}
}

UNIT_TEST(the_user_says_which_cpus_are_spare)
{
	struct os_cpumask used = { { 0xff } }, out;

	CHECK(!load("SLUICE_WORKERS=@1,70", NULL));
	CHECK_EQ(engine_unused_cpus(&used, 8, &out), 2);
	CHECK_EQ(out.bits[0], 2);
	CHECK_EQ(out.bits[1], 1 << 6);
	CHECK(!load(NULL, NULL));
}

/* A child that is bound to one CPU finds the others through its unbound parent. */
static void bound_child(void *arg)
{
	struct os_cpumask own = { { 0 } }, all, out;

	(void)arg;
	os_cpumask_self(&all);
	for (int cpu = 0; !own.bits[0]; cpu++)
		own.bits[0] = all.bits[0] & ((uint64_t)1 << cpu);
	CHECK(!os_cpumask_apply(0, &own));
	CHECK_EQ(engine_unused_cpus(&own, 1, &out), os_cpumask_count(&all) - 1);
	CHECK(!(out.bits[0] & own.bits[0]));
	CHECK_EQ(engine_unused_cpus(&own, 7, &out), os_cpumask_count(&all) - 1);
}

UNIT_TEST(the_launcher_tells_which_cpus_the_job_has)
{
	struct os_cpumask all;

	os_cpumask_self(&all);
	if (os_cpumask_count(&all) < 2 || os_cpumask_count(&all) > 64)
		unit_skip("needs 2 to 64 CPUs");
	CHECK(!load(NULL, NULL));
	CHECK_EQ(unit_fork(bound_child, NULL), 0);
}

static void workers_by_share(void *arg)
{
	struct os_cpumask cpus = { { 1 } }, out;

	(void)arg;
	CHECK(!load(NULL, NULL));
	CHECK_EQ(engine_workers(), 1); /* engine_set_cpus() was not called */
	engine_set_cpus(&cpus, 0);
	CHECK_EQ(engine_workers(), 0);
	engine_set_cpus(&cpus, 3);
	CHECK_EQ(engine_workers(), 3);
	engine_set_cpus(&cpus, 100);
	CHECK_EQ(engine_workers(), 4);
	CHECK(engine_worker_cpus(-1, &out));
	CHECK_EQ(out.bits[0], 1);
	CHECK(!engine_worker_cpus(1000, &out)); /* no such NUMA node */
	CHECK(!load("SLUICE_WORKERS=2", NULL));
	CHECK_EQ(engine_workers(), 2);
}

UNIT_TEST(workers_are_as_many_as_cpus_are_spare) { CHECK_EQ(unit_fork(workers_by_share, NULL), 0); }
