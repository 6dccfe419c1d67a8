/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <locale.h>

#include "base/base.h"
#include "unit.h"

static char problems[4096];

/* Loads with one or two entries (the second may be NULL). */
static int load(const char *a, const char *b)
{
	char *environ_block[] = { (char *)a, (char *)b, NULL };

	return base_options_load(environ_block, problems, sizeof(problems));
}

static int count_lines(const char *text)
{
	int lines = 0;

	for (; *text; text++)
		lines += *text == '\n';
	return lines;
}

UNIT_TEST(the_case_of_a_word_is_that_of_c_in_every_locale)
{
	/* from a folder of LOCPATH, where the system has none */
	if (!setlocale(LC_ALL, "tr_TR.ISO-8859-9"))
		setlocale(LC_ALL, "tr_TR.UTF-8");
	CHECK(base_is_word("SPIN", "spin") && base_is_word("", ""));
	CHECK(!base_is_word("spin", "spi") && !base_is_word("spi", "spin"));
	CHECK(!base_is_word("sp[n", "sp{n") && !base_is_word("\xfd", "I"));
	CHECK(base_alike("ALL:ON", "all:", 4) && !base_alike("all", "all:", 4));
	CHECK(base_alike("a", "b", 0));
	CHECK_EQ(load("SLUICE_WAIT=SPIN", NULL), 0);
	CHECK_STR(problems, "");
	setlocale(LC_ALL, "C");
}

UNIT_TEST(defaults_are_those_of_the_table)
{
	CHECK_EQ(load("HOME=/", NULL), 0);
	CHECK_STR(problems, "");
	CHECK(base_opt.enabled && base_opt.usable);
	CHECK_EQ(base_opt.coll_threshold_bytes, 64 << 10);
	CHECK_EQ(base_opt.region_kind, BASE_REGION_AUTO);
	CHECK_EQ(base_opt.region_adopt_after, -1);
	CHECK_STR(base_opt.decide, "measure");
	CHECK_EQ(base_opt.region_max, 1024);
	CHECK_EQ(base_opt.region_arena_bytes, (int64_t)64 << 30);
	CHECK_EQ(base_opt.region_pool_bytes, 64 << 20);
	CHECK_EQ(base_opt.node_spin_us, -1);
	CHECK_EQ(base_opt.log_level, BASE_LOG_ERROR);
	CHECK_STR(base_opt.node_name, "");
	CHECK_STR(base_opt.stats, "");
	CHECK_STR(base_opt.fault, "");
}

UNIT_TEST(every_option_prints_its_default_as_written)
{
	char text[128];

	CHECK_EQ(load(NULL, NULL), 0);
	for (size_t i = 0; i < base_option_count; i++) {
		const struct base_option *o = &base_option_table[i];

		CHECK_EQ(base_option_print(o, text, sizeof(text)), strlen(o->dflt));
		CHECK_STR(text, o->dflt);
		CHECK_EQ(o->source, BASE_SRC_DEFAULT);
		CHECK(o->help && o->help[0] && o->help[strlen(o->help) - 1] != '.');
	}
}

static const struct {
	const char *entry;
	const void *value;
	int64_t want;
	size_t bytes;
} sets[] = {
#define SET(entry, member, want) { entry, &base_opt.member, want, sizeof(base_opt.member) }
	SET("SLUICE=off", enabled, 0),
	SET("SLUICE_COLL_THRESHOLD=1", coll_threshold_bytes, 1),
	SET("SLUICE_COLL=bcast:off", coll_modes[BASE_FAMILY_BCAST], BASE_ADMIT_OFF),
	SET("SLUICE_COLL=gather:on", coll_modes[BASE_FAMILY_GATHER], BASE_ADMIT_ON),
	SET("SLUICE_COLL=scatter:on", coll_modes[BASE_FAMILY_SCATTER], BASE_ADMIT_ON),
	SET("SLUICE_COLL=allgather:on", coll_modes[BASE_FAMILY_ALLGATHER], BASE_ADMIT_ON),
	SET("SLUICE_COLL=alltoall:on", coll_modes[BASE_FAMILY_ALLTOALL], BASE_ADMIT_ON),
	SET("SLUICE_COLL=reduce:on", coll_modes[BASE_FAMILY_REDUCE], BASE_ADMIT_ON),
	SET("SLUICE_COLL=allreduce:on", coll_modes[BASE_FAMILY_ALLREDUCE], BASE_ADMIT_ON),
	SET("SLUICE_COLL=reduce_scatter:on", coll_modes[BASE_FAMILY_REDUCE_SCATTER],
	    BASE_ADMIT_ON),
	SET("SLUICE_COLL=scan:on", coll_modes[BASE_FAMILY_SCAN], BASE_ADMIT_ON),
	SET("SLUICE_COLL=barrier:on", coll_modes[BASE_FAMILY_BARRIER], BASE_ADMIT_ON),
	SET("SLUICE_COLL=neighbor:on", coll_modes[BASE_FAMILY_NEIGHBOR], BASE_ADMIT_ON),
	SET("SLUICE_COLL=vector:on", coll_modes[BASE_FAMILY_VECTOR], BASE_ADMIT_ON),
	SET("SLUICE_COLL=device:on", device, 1),
	SET("SLUICE_COLL=nonblocking:on", coll_modes[BASE_FAMILY_NONBLOCKING],
	    BASE_ADMIT_ON),
	SET("SLUICE_SUMS=host", sums, BASE_SUMS_HOST),
	SET("SLUICE_HIER=on", hier, 1),
	SET("SLUICE_TEST=hier_segment=64K", hier_segment_bytes, 64 << 10),
	SET("SLUICE_REGION_KIND=cma", region_kind, BASE_REGION_CMA),
	SET("SLUICE_REGION_ADOPT_AFTER=0", region_adopt_after, 0),
	SET("SLUICE_TEST=region_adopt_min=1M", region_adopt_min_bytes, 1 << 20),
	SET("SLUICE_TEST=region_max=16384", region_max, 16384),
	SET("SLUICE_REGION_ARENA=64M", region_arena_bytes, 64 << 20),
	SET("SLUICE_TEST=region_pool=0", region_pool_bytes, 0),
	SET("SLUICE_TEST=region_huge=FALSE", region_huge, 0),
	SET("SLUICE_TEST=region_whole=off", region_whole, 0),
	SET("SLUICE_TEST=xfer_fragment=128K", xfer_fragment_bytes, 128 << 10),
	SET("SLUICE_TEST=xfer_copy=nontemporal", xfer_copy, BASE_COPY_NONTEMPORAL),
	SET("SLUICE_TEST=xfer_past_cache=8M", xfer_past_cache_bytes, 8 << 20),
	SET("SLUICE_TEST=xfer_help=off", xfer_help, 0),
	SET("SLUICE_MESSAGES=off", messages, BASE_MESSAGES_OFF),
	SET("SLUICE_EARLY=off", early, BASE_EARLY_OFF),
	SET("SLUICE_EARLY_MIN=0", early_min_bytes, 0),
	SET("SLUICE_TEST=early_wait=60000000", early_wait_us, 60000000),
	SET("SLUICE_FAULT_PROGRESS=off", fault_progress, false),
	SET("SLUICE_GUARD_KIND=mprotect", guard_kind, BASE_GUARD_MPROTECT),
	SET("SLUICE_WAIT=polite", wait, BASE_WAIT_POLITE),
	SET("SLUICE_ENDPOINTS_SWITCH=user", endpoints_switch, BASE_SWITCH_USER),
	SET("SLUICE_WORKERS=48", engine_workers, 48),
	SET("SLUICE_TEST=engine_depth=1", engine_depth, 1),
	SET("SLUICE_TEST=engine_timeout=1", engine_timeout_ms, 1),
	SET("SLUICE_TRACE_LIMIT=4M", trace_limit_bytes, 4 << 20),
	SET("SLUICE_GOAL_TIMEOUT=1", goal_timeout_ms, 1),
	SET("SLUICE_GOAL_THREAD=off", goal_thread, 0),
	SET("SLUICE_WORKER_KIND=thread", worker_kind, BASE_WORKER_THREAD),
	SET("SLUICE_TEST=worker_poll=0", worker_poll_us, 0),
	SET("SLUICE_TEST=node_spin=1000000", node_spin_us, 1000000),
	SET("SLUICE_LOG=debug", log_level, BASE_LOG_DEBUG),
#undef SET
};

/* The table's row must point at the member that its name says. */
UNIT_TEST(every_option_can_be_set)
{
	for (size_t i = 0; i < BASE_ARRAY_LEN(sets); i++) {
		int64_t got = 0;

		CHECK_EQ(load(sets[i].entry, NULL), 0);
		memcpy(&got, sets[i].value, sets[i].bytes);
		CHECK_EQ(got, sets[i].want);
	}
	CHECK_EQ(base_option_count, BASE_ARRAY_LEN(sets) + 12 + 3); /* twelve texts, three lists */
	CHECK_EQ(load(NULL, NULL), 0);
}

UNIT_TEST(every_text_option_can_be_set)
{
	CHECK_EQ(load("SLUICE_TEST=node_name=a", "SLUICE_STATS=/tmp/x"), 0);
	CHECK_STR(base_opt.node_name, "a");
	CHECK_STR(base_opt.stats, "/tmp/x");
	CHECK_EQ(load("SLUICE_ENGINE=sw", "SLUICE_WORKERS=@1-3"), 0);
	CHECK_STR(base_opt.engine, "sw");
	CHECK_STR(base_opt.engine_cpus, "1-3");
	CHECK_EQ(load("SLUICE_TEST=engine_fault=short=3", NULL), 0);
	CHECK_STR(base_opt.engine_fault, "short=3");
	CHECK_EQ(load("SLUICE_TEST=dsa_root=/tmp/machine", NULL), 0);
	CHECK_STR(base_opt.dsa_root, "/tmp/machine");
	CHECK_EQ(load("SLUICE_TRACE=/tmp", "SLUICE_GOAL_PROFILE=/tmp/p"), 0);
	CHECK_STR(base_opt.trace, "/tmp");
	CHECK_STR(base_opt.goal_profile, "/tmp/p");
	CHECK_EQ(load("SLUICE_TUNE=none", NULL), 0);
	CHECK_STR(base_opt.tune_file, "none");
	CHECK_EQ(load(NULL, NULL), 0);
}

UNIT_TEST(a_word_stands_for_a_number_below_the_range)
{
	CHECK_EQ(load("SLUICE_ENDPOINTS=4", NULL), 0);
	CHECK_EQ(base_opt.endpoints, 4);
	CHECK_EQ(load("SLUICE_ENDPOINTS=Off", NULL), 0);
	CHECK_EQ(base_opt.endpoints, 0);
	CHECK_EQ(load("SLUICE_ENDPOINTS=core", NULL), 0);
	CHECK_EQ(base_opt.endpoints, BASE_ENDPOINTS_CORE);
	CHECK_EQ(load("SLUICE_ENDPOINTS=L3", NULL), 0);
	CHECK_EQ(base_opt.endpoints, BASE_ENDPOINTS_L3);
	CHECK(load("SLUICE_ENDPOINTS=-1", NULL) < 0);
	CHECK(load("SLUICE_ENDPOINTS=0", NULL) < 0);
	CHECK(load("SLUICE_ENDPOINTS=65", NULL) < 0);
	CHECK_EQ(load(NULL, NULL), 0);
	CHECK_EQ(base_opt.endpoints, 0);
}

UNIT_TEST(switches_take_the_usual_words)
{
	static const char *const on[] = { "SLUICE=on", "SLUICE=1", "SLUICE=yes", "SLUICE=true",
					  "SLUICE=ON" };
	static const char *const off[] = { "SLUICE=off", "SLUICE=0", "SLUICE=no", "SLUICE=false" };

	for (size_t i = 0; i < BASE_ARRAY_LEN(on); i++) {
		CHECK_EQ(load(on[i], NULL), 0);
		CHECK(base_opt.enabled);
	}
	for (size_t i = 0; i < BASE_ARRAY_LEN(off); i++) {
		CHECK_EQ(load(off[i], NULL), 0);
		CHECK(!base_opt.enabled && base_opt.usable);
	}
	CHECK_EQ(load("SLUICE=maybe", NULL), -EINVAL);
	CHECK_STR(problems, "SLUICE=maybe is wrong: it takes on or off\n");
}

UNIT_TEST(a_value_out_of_range_names_the_range)
{
	CHECK_EQ(load("SLUICE_TEST=region_max=16385", NULL), -EINVAL);
	CHECK(!base_opt.usable);
	CHECK_EQ(base_opt.region_max, 1024);
	CHECK_STR(problems, "region_max=16385 is wrong: it takes a whole number from 0 to "
			    "16384 regions\n");
	CHECK_EQ(load("SLUICE_REGION_ARENA=63M", NULL), -EINVAL);
	CHECK_HAS(problems, "from 64M to 4T");
	CHECK_EQ(load("SLUICE_COLL_THRESHOLD=0", NULL), -EINVAL);
	CHECK_HAS(problems, "at least 1");
	CHECK_EQ(load("SLUICE_COLL_THRESHOLD=9223372036854775808", NULL), -EINVAL);
	CHECK_EQ(load("SLUICE_TEST=node_spin=-2", NULL), -EINVAL);
	CHECK_HAS(problems, "from -1 to 1000000 us");
	CHECK_EQ(load("SLUICE_TEST=node_spin=", NULL), -EINVAL);
	CHECK_EQ(load("SLUICE_TEST=node_spin= 1", NULL), -EINVAL);
	CHECK_EQ(load("SLUICE_TEST=node_spin=1us", NULL), -EINVAL);
	CHECK_EQ(load("SLUICE_TEST=node_spin=99999999999999999999", NULL), -EINVAL);
}

UNIT_TEST(a_wrong_choice_lists_the_choices)
{
	CHECK_EQ(load("SLUICE_REGION_KIND=xpmem", NULL), -EINVAL);
	CHECK_STR(problems,
		  "SLUICE_REGION_KIND=xpmem is wrong: it takes auto, arena, cma or staged\n");
	CHECK_EQ(base_opt.region_kind, BASE_REGION_AUTO);
}

UNIT_TEST(an_unknown_option_is_told_the_nearest)
{
	CHECK_EQ(load("SLUICE_COLL_TRESHOLD=1", NULL), -EINVAL);
	CHECK_STR(problems,
		  "SLUICE_COLL_TRESHOLD is not an option; the nearest is SLUICE_COLL_THRESHOLD\n");
	CHECK_EQ(load("SLUICE_QQQQQQQQQQ=1", NULL), -EINVAL);
	CHECK_STR(problems,
		  "SLUICE_QQQQQQQQQQ is not an option, and no option has a similar name\n");
}

UNIT_TEST(names_that_only_begin_like_ours_are_not_ours)
{
	CHECK_EQ(load("SLUICEBOX=1", "XSLUICE_LOG=7"), 0);
	CHECK_EQ(load("SLUICE", "SLUICE_NOTHING"), 0); /* no '=': not a variable */
	CHECK_EQ(load("SLUIC=1", "SLUICe_X=1"), 0);
	CHECK_EQ(load("SLUICE_=1", NULL), -EINVAL);
}

UNIT_TEST(distance_counts_each_edit_once)
{
	CHECK_EQ(base_edit_distance("", ""), 0);
	CHECK_EQ(base_edit_distance("", "abc"), 3);
	CHECK_EQ(base_edit_distance("abc", "abc"), 0);
	CHECK_EQ(base_edit_distance("abc", "abxc"), 1);
	CHECK_EQ(base_edit_distance("abxc", "abc"), 1);
	CHECK_EQ(base_edit_distance("abc", "axc"), 1);
	CHECK_EQ(base_edit_distance("abc", "acb"), 1);
	CHECK_EQ(base_edit_distance("abcd", "badc"), 2);
	CHECK_EQ(base_edit_distance("kitten", "sitting"), 3);
}

UNIT_TEST(nearest_counts_insertions_deletions_and_swaps)
{
	CHECK_STR(base_option_nearest("SLUICE_LGO"), "SLUICE_LOG");
	CHECK_STR(base_option_nearest("SLUICE_STAT"), "SLUICE_STATS");
	CHECK_STR(base_option_nearest("SLUICE_STTAS"), "SLUICE_STATS");
	CHECK_STR(base_option_nearest("SLUICE_REGION_ADOPT_AFTRE"), "SLUICE_REGION_ADOPT_AFTER");
	CHECK_STR(base_option_nearest("SLUICE_WORKRES"), "SLUICE_WORKERS");
	CHECK(!base_option_nearest("SLUICE_MPI_LIBRARY_PATH"));
	CHECK(!base_option_nearest("PATH"));
}

UNIT_TEST(nearest_forgives_a_missing_folder)
{
	CHECK_STR(base_option_nearest("SLUICE_THRESHOLD"), "SLUICE_COLL_THRESHOLD");
	CHECK_STR(base_option_nearest("SLUICE_TRESHOLD"), "SLUICE_COLL_THRESHOLD");
	CHECK_STR(base_option_nearest("SLUICE_ADOPT_AFTER"), "SLUICE_REGION_ADOPT_AFTER");
	CHECK_STR(base_option_nearest("SLUICE_ADOPT_AFTER"), "SLUICE_REGION_ADOPT_AFTER");
}

UNIT_TEST(nearest_survives_a_very_long_name)
{
	char name[2000];

	memset(name, 'A', sizeof(name));
	memcpy(name, "SLUICE_", 7);
	name[sizeof(name) - 1] = 0;
	CHECK(!base_option_nearest(name));
	name[sizeof(name) - 2] = '=';
	CHECK_EQ(load(name, NULL), -EINVAL);
	CHECK_EQ(count_lines(problems), 1);
}

UNIT_TEST(every_problem_is_one_line_cut_at_a_line)
{
	char *environ_block[] = { "SLUICE_LOG=loud", "SLUICE_COLL=bcast:2",
				  "SLUICE_BOGUS_NAME=", NULL };
	char small[150];

	CHECK_EQ(base_options_load(environ_block, problems, sizeof(problems)), -EINVAL);
	CHECK_EQ(count_lines(problems), 3);
	memset(small, 'x', sizeof(small));
	CHECK_EQ(base_options_load(environ_block, small, 100), -EINVAL);
	CHECK_EQ(count_lines(small), 1);
	CHECK(!strncmp(small, problems, strlen(small)));
	/* a shorter line after the one that did not fit must not slip in */
	environ_block[1] = "SLUICE_COLL_QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ=1";
	environ_block[2] = "SLUICE=2";
	CHECK_EQ(base_options_load(environ_block, small, sizeof(small)), -EINVAL);
	CHECK_EQ(count_lines(small), 1);
	CHECK_HAS(small, "SLUICE_LOG=loud");
	small[0] = 'y';
	CHECK_EQ(base_options_load(environ_block, small, 0), -EINVAL);
	CHECK_EQ(small[0], 'y');
	CHECK_EQ(load(NULL, NULL), 0);
}

UNIT_TEST(values_do_not_hang_on_the_environment)
{
	char entry[] = "SLUICE_TEST=node_name=left";

	CHECK_EQ(load(entry, NULL), 0);
	memset(entry, 0, sizeof(entry));
	CHECK_STR(base_opt.node_name, "left");
	CHECK_EQ(load(NULL, NULL), 0);
	CHECK_STR(base_opt.node_name, "");
}

UNIT_TEST(a_string_that_is_too_long_is_refused)
{
	static char entry[8192];

	memset(entry, 'a', sizeof(entry) - 1);
	memcpy(entry, "SLUICE_STATS=", 13);
	CHECK_EQ(load(entry, NULL), -EINVAL);
	CHECK_STR(base_opt.stats, "");
	CHECK_EQ(count_lines(problems), 1);
	CHECK_EQ(load(NULL, NULL), 0);
}

UNIT_TEST(sources_are_remembered)
{
	CHECK_EQ(load("SLUICE_LOG=error", NULL), 0); /* the default, but said */
	for (size_t i = 0; i < base_option_count; i++)
		CHECK_EQ(base_option_table[i].source == BASE_SRC_ENV,
			 !strcmp(base_option_table[i].name, "SLUICE_LOG"));
	CHECK_EQ(load(NULL, NULL), 0);
}

UNIT_TEST(a_list_sets_several_values)
{
	const struct base_option *coll = NULL, *test = NULL, *workers = NULL;
	char text[256];

	CHECK_EQ(load("SLUICE_COLL=bcast:on,gather:off",
		      "SLUICE_TEST=region_max=4,fault=memfd:1,cma:all,engine_fault=delay=5,rate=1M,"
		      "node_spin=0"), 0);
	CHECK_EQ(base_opt.coll_modes[BASE_FAMILY_BCAST], BASE_ADMIT_ON);
	CHECK_EQ(base_opt.coll_modes[BASE_FAMILY_GATHER], BASE_ADMIT_OFF);
	CHECK_EQ(base_opt.region_max, 4);
	CHECK_EQ(base_opt.node_spin_us, 0);
	CHECK_STR(base_opt.fault, "memfd:1,cma:all");
	CHECK_STR(base_opt.engine_fault, "delay=5,rate=1M");
	for (size_t i = 0; i < base_option_count; i++) {
		const struct base_option *o = &base_option_table[i];

		coll = strcmp(o->name, "SLUICE_COLL") ? coll : o;
		test = strcmp(o->name, "SLUICE_TEST") ? test : o;
		workers = strcmp(o->name, "SLUICE_WORKERS") ? workers : o;
	}
	base_option_print(coll, text, sizeof(text));
	CHECK_STR(text, "bcast:on,gather:off");
	base_option_print(test, text, sizeof(text));
	CHECK_HAS(text, "region_max=4,");
	CHECK_EQ(load("SLUICE_WORKERS=2@1,4-7", "SLUICE_COLL=auto"), 0);
	CHECK_EQ(base_opt.engine_workers, 2);
	CHECK_STR(base_opt.engine_cpus, "1,4-7");
	base_option_print(workers, text, sizeof(text));
	CHECK_STR(text, "2@1,4-7");
	CHECK_EQ(load("SLUICE_WORKERS=@3", NULL), 0);
	CHECK_EQ(base_opt.engine_workers, -1);
	CHECK_STR(base_opt.engine_cpus, "3");
	CHECK_EQ(load(NULL, NULL), 0);
}

UNIT_TEST(all_sets_every_collective_and_later_names_count_more)
{
	CHECK_EQ(load("SLUICE_COLL=all:off,bcast:on", NULL), 0);
	for (int i = 0; i < BASE_FAMILY_COUNT; i++)
		CHECK_EQ(base_opt.coll_modes[i],
			 i == BASE_FAMILY_BCAST ? BASE_ADMIT_ON : BASE_ADMIT_OFF);
	CHECK_EQ(load("SLUICE_COLL=all:on", NULL), 0);
	CHECK(!base_opt.device);
	CHECK_EQ(load(NULL, NULL), 0);
}

UNIT_TEST(a_mistake_in_a_list_is_one_clear_line)
{
	CHECK_EQ(load("SLUICE_COLL=bcats:on", NULL), -EINVAL);
	CHECK_STR(problems,
		  "SLUICE_COLL: bcats is not one of its names; the nearest is bcast\n");
	CHECK_EQ(load("SLUICE_COLL=bcast:maybe", NULL), -EINVAL);
	CHECK_STR(problems, "bcast=maybe is wrong: it takes auto, on or off\n");
	CHECK_EQ(load("SLUICE_COLL=on", NULL), -EINVAL);
	CHECK_STR(problems, "SLUICE_COLL=on is wrong: it takes a list like "
			    "bcast:on,gather:off,scan:auto, or all:off\n");
	CHECK_EQ(load("SLUICE_COLL=all:maybe", NULL), -EINVAL);
	CHECK_STR(problems, "bcast=maybe is wrong: it takes auto, on or off\n");
	CHECK_EQ(load("SLUICE_TEST=node_spni=4", NULL), -EINVAL);
	CHECK_STR(problems,
		  "SLUICE_TEST: node_spni is not one of its names; the nearest is node_spin\n");
	CHECK_EQ(load("SLUICE_WORKERS=many", NULL), -EINVAL);
	CHECK_HAS(problems, "SLUICE_WORKERS=many is wrong: it takes auto or a number");
	CHECK_EQ(load("SLUICE_WORKERS=2@x", NULL), -EINVAL);
	CHECK_HAS(problems, "SLUICE_WORKERS=2@x is wrong");
	CHECK_EQ(load(NULL, NULL), 0);
}

#define OLD "SLUICE_" /* apart, so that a rename of names leaves these alone */
UNIT_TEST(old_names_work_and_are_told_the_new_ones)
{
	static const struct {
		const char *old, *says;
	} cases[] = {
		{ OLD "SPAN=on", "SLUICE_HIER=on" },
		{ OLD "RT_EARLY=off", "SLUICE_EARLY=off" },
		{ OLD "COLL_ALLREDUCE=off", "SLUICE_COLL=allreduce:off" },
		{ OLD "ENGINE_WORKERS=2", "SLUICE_WORKERS=2" },
		{ OLD "ENGINE_CPUS=1,4-7", "SLUICE_WORKERS=@1,4-7" },
		{ OLD "XFER_FRAGMENT=4K", "\"xfer_fragment = 4K\" in a tune file" },
		{ OLD "FAULT=memfd:1", "SLUICE_TEST=fault=memfd:1" },
	};
	char line[256];

	for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		CHECK_EQ(load(cases[i].old, NULL), 0);
		CHECK_EQ(count_lines(problems), 1);
		snprintf(line, sizeof(line), "sluice: %.*s is an old name; the next version takes "
			 "%s", (int)strcspn(cases[i].old, "="), cases[i].old, cases[i].says);
		CHECK_HAS(problems, line);
	}
	CHECK_EQ(load(OLD "XFER_FRAGMENT=4K", OLD "SPAN=on"), 0);
	CHECK_EQ(base_opt.xfer_fragment_bytes, 4096);
	CHECK(base_opt.hier && base_opt.usable);
	CHECK_EQ(load(OLD "RT_EARLY=never", NULL), -EINVAL);
	CHECK_STR(problems, "SLUICE_EARLY=never is wrong: it takes auto, on or off\n");
	CHECK_EQ(load(NULL, NULL), 0);
}

UNIT_TEST(an_old_value_works_and_says_its_new_name)
{
	CHECK_EQ(load("SLUICE_GUARD_KIND=steal", NULL), 0);
	CHECK_EQ(base_opt.guard_kind, BASE_GUARD_MREMAP);
	CHECK(base_opt.usable);
	CHECK_STR(problems, "sluice: SLUICE_GUARD_KIND=steal is an old value; the next version "
			    "takes SLUICE_GUARD_KIND=mremap only\n");
	CHECK_EQ(load(NULL, NULL), 0);
	CHECK_EQ(base_option_tune("SLUICE_GUARD_KIND", "Steal"), 0);
	CHECK_EQ(base_opt.guard_kind, BASE_GUARD_MREMAP);
	CHECK_EQ(load("SLUICE_GUARD_KIND=borrow", NULL), -EINVAL);
	CHECK_STR(problems, "SLUICE_GUARD_KIND=borrow is wrong: it takes auto, uffd, mremap, "
			    "mprotect or none\n");
	CHECK_EQ(load(NULL, NULL), 0);
}

UNIT_TEST(people_set_at_most_26_options)
{
	int people = 0;

	for (size_t i = 0; i < base_option_count; i++)
		people += base_option_table[i].group <= BASE_GROUP_OUTPUT;
	CHECK(people <= 26);
}

UNIT_TEST(hash_covers_what_ranks_share_and_nothing_else)
{
	uint64_t plain;

	CHECK_EQ(load(NULL, NULL), 0);
	plain = base_options_hash();
	CHECK_EQ(load("SLUICE_COLL_THRESHOLD=65536", NULL), 0); /* the same, said otherwise */
	CHECK(base_options_hash() == plain);
	CHECK_EQ(load("SLUICE_LOG=info", "SLUICE_TEST=node_name=b"), 0);
	CHECK(base_options_hash() == plain);
	CHECK_EQ(load("SLUICE_COLL_THRESHOLD=65537", NULL), 0);
	CHECK(base_options_hash() != plain);
	CHECK_EQ(load("SLUICE_COLL=gather:off", NULL), 0);
	CHECK(base_options_hash() != plain);
	CHECK_EQ(load(NULL, NULL), 0);
}

UNIT_TEST(job_rank_comes_from_the_launcher)
{
	static const char *const names[] = { "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
					     "SLURM_PROCID" };

	for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++)
		unsetenv(names[i]);
	CHECK_EQ(base_job_rank(), -1);
	for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
		setenv(names[i], "17", 1);
		CHECK_EQ(base_job_rank(), 17);
		setenv(names[i], "x", 1);
		CHECK_EQ(base_job_rank(), -1);
		unsetenv(names[i]);
	}
}

UNIT_TEST(a_tuned_value_counts_less_than_the_environment)
{
	CHECK_EQ(load("SLUICE_COLL_THRESHOLD=1M", NULL), 0);
	CHECK_EQ(base_option_tune("SLUICE_COLL_THRESHOLD", "32K"), 0);
	CHECK_EQ(base_opt.coll_threshold_bytes, 1 << 20);
	CHECK_EQ(base_option_tune("xfer_fragment", "32K"), 0);
	CHECK_EQ(base_option_tune(OLD "XFER_COPY", "plain"), 0);
	CHECK_EQ(base_opt.xfer_fragment_bytes, 32 << 10);
	CHECK_EQ(base_opt.xfer_copy, BASE_COPY_PLAIN);
	CHECK_EQ(base_option_tune("xfer_copy", "fast"), -EINVAL);
	CHECK_EQ(base_opt.xfer_copy, BASE_COPY_PLAIN);
	CHECK_EQ(base_option_tune("SLUICE_LOG", "debug"), -EPERM);
	CHECK_EQ(base_option_tune("fault", "x:1"), -EPERM);
	CHECK_EQ(base_option_tune("bcast", "off"), -EPERM);
	CHECK_EQ(base_option_tune("SLUICE_WORKERS", "3"), 0);
	CHECK_EQ(base_opt.engine_workers, 3);
	CHECK_EQ(base_option_tune("SLUICE_NOTHING", "1"), -ENOENT);
	base_options_untune(true);
	CHECK_EQ(base_opt.xfer_fragment_bytes, 0);
	CHECK_EQ(base_opt.xfer_copy, BASE_COPY_PLAIN);
	base_options_untune(false);
	CHECK_EQ(base_opt.xfer_copy, BASE_COPY_AUTO);
	CHECK_EQ(base_opt.engine_workers, -1);
	CHECK_EQ(base_opt.coll_threshold_bytes, 1 << 20);
	CHECK_EQ(load(NULL, NULL), 0);
}
