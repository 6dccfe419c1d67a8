/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <time.h>

#include "base/base.h"
#include "capture.h"
#include "unit.h"

static struct capture captured;

/* Waits for the next second of the log's clock, so that its limit is fresh. */
static void next_second(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	now.tv_sec++;
	now.tv_nsec = 1000000;
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &now, NULL);
}

static int count_lines(const char *text)
{
	int lines = 0;

	for (; *text; text++)
		lines += *text == '\n';
	return lines;
}

UNIT_TEST(log_says_rank_folder_and_cause)
{
	base_opt.log_level = BASE_LOG_ERROR;
	base_log_set_rank(3);
	capture_begin(&captured);
	errno = ENOMEM;
	base_log(BASE_LOG_ERROR, "region", "cannot adopt %d bytes: %m", 4096);
	CHECK_EQ(errno, ENOMEM);
	base_log_set_rank(-1);
	base_log(BASE_LOG_ERROR, "node", "no rank");
	base_log(BASE_LOG_WARN, "node", "not shown");
	base_log(BASE_LOG_NONE, "node", "never shown");
	capture_end(&captured);
	CHECK_STR(captured.text,
		  "sluice: rank 3: region: cannot adopt 4096 bytes: Cannot allocate memory\n"
		  "sluice: node: no rank\n");
}

UNIT_TEST(log_cuts_a_long_line)
{
	capture_begin(&captured);
	base_log(BASE_LOG_ERROR, "base", "%5000d", 1);
	capture_end(&captured);
	CHECK_EQ(strlen(captured.text), 1024);
	CHECK_EQ(captured.text[1023], '\n');
}

static time_t this_second(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* Each capture ends before its CHECK: a failure must reach the real stderr. */
UNIT_TEST(log_stops_a_flood_and_counts_it)
{
	char wanted[128];
	int shown;
	time_t second;

	base_log_set_rank(5);
	for (;;) {
		second = this_second();
		capture_begin(&captured);
		for (int i = 0; i < 100; i++)
			base_log(BASE_LOG_ERROR, "base", "line %d", i);
		capture_end(&captured);
		if (this_second() == second)
			break;
		/* the flood met two seconds: once more, with nothing left to tell */
		capture_begin(&captured);
		next_second();
		base_log(BASE_LOG_ERROR, "base", "again");
		capture_end(&captured);
	}
	/* the tests before may have used up a part of this second's lines */
	shown = count_lines(captured.text);
	capture_begin(&captured);
	next_second();
	base_log(BASE_LOG_ERROR, "base", "later");
	capture_end(&captured);
	base_log_set_rank(-1);
	CHECK(shown >= 10 && shown <= 20);
	snprintf(wanted, sizeof(wanted),
		 "sluice: rank 5: log: %d more lines not shown\nsluice: rank 5: base: later\n",
		 100 - shown);
	CHECK_STR(captured.text, wanted);
}
