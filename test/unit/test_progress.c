/* SPDX-License-Identifier: BSD-3-Clause */
/* progress_decide(): one row per situation, and the invariants over all facts. */
#include "base/base.h"
#include "progress/progress.h"
#include "unit.h"

#define WAKE PROGRESS_WAKE_NS
#define LONG (2 * PROGRESS_LATENCY_NS)

static const struct {
	const char *situation;
	struct progress_facts f;
	enum progress_action want;
} situations[] = {
	{ "no partner has arrived: the last to arrive starts the transfer",
	  { .has_process = 1, .has_cpu = 1, .asleep = 1 },
	  PROGRESS_NOTHING },
	{ "a mover polls: even short work is announced",
	  { .work_ns = 1, .has_process = 1, .has_cpu = 1, .polling = 1 },
	  PROGRESS_ANNOUNCE },
	{ "one mover polls: the others go on sleeping",
	  { .work_ns = 1000 * LONG, .has_process = 1, .has_cpu = 1, .polling = 1,
	    .asleep = 3 },
	  PROGRESS_ANNOUNCE },
	{ "all sleep, and the work takes as long as a wake-up",
	  { .work_ns = WAKE, .has_process = 1, .has_cpu = 1, .asleep = 1 },
	  PROGRESS_WAKE },
	{ "... it takes less: the rank does it in its wait",
	  { .work_ns = WAKE - 1, .has_process = 1, .has_cpu = 1, .asleep = 1 },
	  PROGRESS_NOTHING },
	{ "... and the user forces movers",
	  { .work_ns = 1, .has_process = 1, .has_cpu = 1, .asleep = 1,
	    .is_forced = 1 },
	  PROGRESS_WAKE },
	{ "a waiting partner finishes before a mover runs",
	  { .work_ns = LONG - 1, .has_waiters = 1, .has_process = 1,
	    .has_cpu = 1, .asleep = 1 },
	  PROGRESS_NOTHING },
	{ "... it does not finish before",
	  { .work_ns = LONG, .has_waiters = 1, .has_process = 1, .has_cpu = 1,
	    .asleep = 1 },
	  PROGRESS_WAKE },
	{ "... but a mover polls",
	  { .work_ns = 1, .has_waiters = 1, .has_process = 1, .has_cpu = 1,
	    .polling = 1 },
	  PROGRESS_ANNOUNCE },
	{ "all movers are busy",
	  { .work_ns = WAKE, .has_process = 1, .has_cpu = 1 },
	  PROGRESS_ANNOUNCE },
	{ "no process, a channel, and a CPU for it",
	  { .work_ns = 1, .has_channel = 1, .has_cpu = 1 },
	  PROGRESS_FEED },
	{ "... and every CPU has a rank",
	  { .work_ns = LONG, .has_channel = 1 },
	  PROGRESS_NOTHING },
	{ "... and the user forces movers",
	  { .work_ns = LONG, .has_channel = 1, .is_forced = 1 },
	  PROGRESS_FEED },
	{ "a process and a channel: the process, which interrupts no rank",
	  { .work_ns = LONG, .has_process = 1, .has_channel = 1, .has_cpu = 1,
	    .asleep = 1 },
	  PROGRESS_WAKE },
	{ "no mover exists",
	  { .work_ns = LONG, .has_cpu = 1 },
	  PROGRESS_NOTHING },
};

UNIT_TEST(progress_disturbs_those_who_can_help_and_nobody_else)
{
	for (size_t i = 0; i < BASE_ARRAY_LEN(situations); i++) {
		enum progress_action action = progress_decide(&situations[i].f);

		if (action != situations[i].want)
			unit_fail(__FILE__, __LINE__, "%s: %d, not %d", situations[i].situation,
				  action, situations[i].want);
	}
}

/* ---- invariants over every combination of facts ------------------------------------------- */

static const uint64_t amounts[] = {
	0, 1, WAKE - 1, WAKE, LONG - 1, LONG, LONG + 1, UINT64_MAX
};
static const uint32_t threads[] = { 0, 1, 8 };

/* Decodes number n into facts, the last digit first. Returns: false when n exceeds all of them. */
static bool facts_of(uint64_t n, struct progress_facts *f)
{
#define DIGIT(values) ((values)[n % BASE_ARRAY_LEN(values)]); n /= BASE_ARRAY_LEN(values)
#define BIT() (n % 2); n /= 2
	f->work_ns = DIGIT(amounts);
	f->polling = DIGIT(threads);
	f->asleep = DIGIT(threads);
	f->has_waiters = BIT();
	f->has_process = BIT();
	f->has_channel = BIT();
	f->has_cpu = BIT();
	f->is_forced = BIT();
	return !n;
}

static void check(const struct progress_facts *f, enum progress_action a, const char **out_broken)
{
#define HOLDS(condition, what) \
	do { \
		if (!(condition)) \
			*out_broken = what; \
	} while (0)
	HOLDS(f->work_ns || a == PROGRESS_NOTHING, "nothing is pending, and somebody is disturbed");
	HOLDS(a != PROGRESS_WAKE || (f->asleep && !f->polling),
	      "who does not sleep is woken, or beside one that looks");
	HOLDS(a != PROGRESS_WAKE || f->work_ns >= PROGRESS_WAKE_NS || f->is_forced,
	      "a wake-up for less than it takes");
	HOLDS(f->has_cpu || f->is_forced || a == PROGRESS_NOTHING,
	      "no CPU is idle, and a mover would displace a rank");
	HOLDS(f->has_process || f->has_channel || a == PROGRESS_NOTHING,
	      "nobody is there");
	HOLDS((a != PROGRESS_WAKE && a != PROGRESS_ANNOUNCE) || f->has_process,
	      "no process is there");
	HOLDS(a != PROGRESS_FEED || (f->has_channel && !f->has_process),
	      "no channel, or one beside the process");
}

UNIT_TEST(progress_never_disturbs_in_vain)
{
	struct progress_facts f;
	uint64_t n = 0;

	do {
		const char *broken = NULL;
		enum progress_action action;
		bool more = facts_of(n, &f);

		if (!more)
			break;
		action = progress_decide(&f);
		check(&f, action, &broken);
		if (broken)
			unit_fail(__FILE__, __LINE__, "facts %" PRIu64 ": %s (action %d)", n,
				  broken, action);
	} while (++n);
	CHECK_EQ(n, 8 * 3 * 3 * 32); /* all of them */
}

/* With more work, or one more polling mover, no mover gets less. */
UNIT_TEST(progress_gives_away_no_less_when_there_is_more_to_do)
{
	struct progress_facts f, more;

	for (uint64_t n = 0; facts_of(n, &f); n++) {
		if (progress_decide(&f) == PROGRESS_NOTHING)
			continue;
		more = f;
		for (size_t i = 0; i < BASE_ARRAY_LEN(amounts); i++) {
			more.work_ns = amounts[i];
			if (amounts[i] >= f.work_ns &&
			    progress_decide(&more) == PROGRESS_NOTHING)
				unit_fail(__FILE__, __LINE__, "facts %" PRIu64 ", amount %zu", n,
					  i);
		}
	}
}

/* ---- movers -------------------------------------------------------------------------------- */

UNIT_TEST(movers_share_long_work_with_those_that_sleep)
{
	CHECK(progress_shares(PROGRESS_SHARE_NS, 0, 1));
	CHECK(!progress_shares(PROGRESS_SHARE_NS - 1, 0, 1)); /* little work */
	CHECK(!progress_shares(LONG, 1, 1)); /* one polls */
	CHECK(!progress_shares(LONG, 0, 0)); /* none sleeps */
}

/* ---- how long movers look ---------------------------------------------------------------- */

UNIT_TEST(movers_look_for_gaps_that_they_may_cover_and_give_up_on_others)
{
	static const struct { uint64_t look, gap, max, next; } table[] = {
		{ 0, 100000, 5000000, 150000 },       /* the last gap and half of it */
		{ 0, 1000, 5000000, PROGRESS_POLL_MIN_NS },
		{ 0, 4900000, 5000000, 5000000 },     /* never longer than the maximum */
		{ 150000, 100000, 5000000, 150000 },  /* the work came while it polled */
		{ 150000, 200000, 5000000, 300000 },
		{ 5000000, 5000001, 5000000, 2500000 }, /* too long: half as long the next time */
		{ 2500000, 1000000000, 5000000, 1250000 },
		{ 30000, 1000000000, 5000000, 0 },    /* in the end not at all */
		{ 0, 1000000000, 5000000, 0 },
		{ 0, 10, 0, 0 },                      /* polling is off */
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(table); i++)
		CHECK_EQ(progress_poll_ns(table[i].look, table[i].gap, table[i].max),
			 table[i].next);
}

UNIT_TEST(movers_of_an_idle_program_sleep_after_a_few_gaps)
{
	uint64_t look = 5000000, all = 0;

	for (int i = 0; i < 20; i++) {
		all += look;
		look = progress_poll_ns(look, 3600 * 1000000000ull, 5000000);
	}
	CHECK_EQ(look, 0);
	CHECK(all < 10000000);
}
