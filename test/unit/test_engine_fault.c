/* SPDX-License-Identifier: BSD-3-Clause */
/* The fault engine: its settings, and the failure that each injects at the n-th copy. */
#include <errno.h>
#include <unistd.h>

#include "engine/fault/settings.h"
#include "engine_case.h"
#include "unit.h"

UNIT_TEST(fault_settings_are_read)
{
	struct fault_settings s;
	char reason[256];

	CHECK(!fault_settings_parse("", &s, reason, sizeof reason));
	CHECK(!s.delay_us && !s.rate_bytes && !s.short_nth && !s.error_nth && !s.hang_nth);
	CHECK(!fault_settings_parse("delay=100,rate=1G,short=3,error=5,hang=9", &s, reason,
				    sizeof reason));
	CHECK_EQ(s.delay_us, 100);
	CHECK_EQ(s.rate_bytes, 1 << 30);
	CHECK_EQ(s.short_nth, 3);
	CHECK_EQ(s.error_nth, 5);
	CHECK_EQ(s.hang_nth, 9);
	CHECK(!fault_settings_parse("inner=late,error=1", &s, reason, sizeof reason));
	CHECK_STR(s.inner, "late");
	CHECK_EQ(s.error_nth, 1);
}

UNIT_TEST(wrong_fault_settings_are_one_clear_line)
{
	static const struct {
		const char *text, *reason;
	} cases[] = {
		{ "rate=fast",
		  "engine_fault: rate=fast is wrong: it takes bytes a second like 1G" },
		{ "delay=1,delay",
		  "engine_fault: delay= is wrong: it takes microseconds, at most 60000000" },
		{ "hang=0", "engine_fault: hang=0 is wrong: it takes the number of a copy" },
		{ "burn=1", "engine_fault: there is no burn; it takes inner, delay, rate, short, "
			    "error and hang" },
		{ "error=1,",
		  "engine_fault: there is no ; it takes inner, delay, rate, short, error "
		  "and hang" },
		{ "inner=fault",
		  "engine_fault: inner=fault is wrong: it takes the name of an engine" },
		{ "inner=gpu", "engine_fault: inner=gpu is wrong: it takes the name of an engine" },
	};
	struct engine_case e = { .ops = engine_find("fault"), .workers = 1 };

	for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		char reason[256] = "";
		struct engine_chan *ch = NULL;

		e.fault = cases[i].text;
		engine_case_options(&e, NULL);
		CHECK_EQ(e.ops->probe(reason, sizeof reason), -EINVAL);
		CHECK_STR(reason, cases[i].reason);
		CHECK_EQ(e.ops->chan_count(-1), 0);
		CHECK(e.ops->chan_open(-1, 0, &ch) < 0);
		CHECK(!ch);
	}
}

UNIT_TEST(fault_probe_tells_what_is_wrong_with_the_inner_engine)
{
	struct engine_case e = { .ops = engine_find("fault"), .fault = "delay=1", .workers = 0 };
	char reason[256] = "";

	engine_case_options(&e, NULL);
	CHECK_EQ(e.ops->probe(reason, sizeof reason), -ENODEV);
	CHECK_STR(reason, "no unused CPU for a worker");
}

/* ---- what it does ------------------------------------------------------------------------ */

enum { COPIES = 4, BYTES = 10000 };
static struct engine_job jobs[COPIES];

static struct engine_chan *begin(struct engine_case *e, const char *fault)
{
	*e = (struct engine_case){ .ops = engine_find("fault"), .fault = fault, .workers = 1 };
	engine_case_options(e, NULL);
	for (int i = 0; i < COPIES; i++)
		engine_job_make(&jobs[i], 0, 0, BYTES);
	return engine_case_open(e, 0);
}

static void end(struct engine_case *e, struct engine_chan *ch)
{
	engine_case_close(e, ch);
	for (int i = 0; i < COPIES; i++)
		engine_job_free(&jobs[i]);
}

/* The second of several copies, posted one after the other, fails. */
static void check_second(const char *fault, size_t written)
{
	struct engine_case e;
	struct engine_chan *ch = begin(&e, fault);

	for (int i = 0; i < COPIES; i++) {
		engine_job_post(&e, ch, &jobs[i]);
		engine_job_wait(&e, ch, &jobs[i]);
		CHECK_EQ(jobs[i].result, i == 1 ? -EIO : 0);
		if (i != 1)
			engine_job_check(&jobs[i]);
	}
	CHECK(!memcmp(jobs[1].dst, jobs[1].src, written));
	for (size_t k = written; k < BYTES; k++)
		CHECK(jobs[1].dst[k] == 0xaa);
	end(&e, ch);
}

UNIT_TEST(fault_error_fails_the_nth_copy) { check_second("error=2", 0); }

UNIT_TEST(fault_short_writes_half_of_the_nth_copy) { check_second("short=2", BYTES / 2); }

UNIT_TEST(fault_hang_ends_no_copy_from_the_nth_until_it_is_retired)
{
	struct engine_case e;
	struct engine_chan *ch = begin(&e, "hang=2");

	for (int i = 0; i < COPIES; i++)
		engine_job_post(&e, ch, &jobs[i]);
	engine_job_wait(&e, ch, &jobs[0]);
	CHECK_EQ(jobs[0].result, 0);
	usleep(20000);
	for (int i = 1; i < COPIES; i++)
		CHECK_EQ(jobs[i].ends, 0);
	e.ops->retire(ch);
	for (int i = 1; i < COPIES; i++) {
		CHECK_EQ(jobs[i].ends, 1);
		CHECK_EQ(jobs[i].result, -ECANCELED);
		for (size_t k = 0; k < BYTES; k++)
			CHECK(jobs[i].dst[k] == 0xaa);
	}
	end(&e, ch);
}

static uint64_t time_of_all(const char *fault)
{
	struct engine_case e;
	struct engine_chan *ch = begin(&e, fault);
	uint64_t begun = os_now_ns();

	for (int i = 0; i < COPIES; i++)
		engine_job_post(&e, ch, &jobs[i]);
	for (int i = 0; i < COPIES; i++) {
		engine_job_wait(&e, ch, &jobs[i]);
		engine_job_check(&jobs[i]);
	}
	begun = os_now_ns() - begun;
	end(&e, ch);
	return begun;
}

UNIT_TEST(fault_delay_holds_each_copy_back)
{
	uint64_t ns = time_of_all("delay=5000");

	CHECK(ns >= COPIES * 5000000ull);
	CHECK(ns < 2000000000ull);
}

UNIT_TEST(fault_rate_limits_the_bandwidth)
{
	uint64_t ns = time_of_all("rate=1000000");

	CHECK(ns >= COPIES * BYTES * 1000ull);
	CHECK(ns < 2000000000ull);
}

UNIT_TEST(fault_counts_copies_by_channel)
{
	check_second("error=2", 0);
	check_second("error=2", 0);
}
