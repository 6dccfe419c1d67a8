/* SPDX-License-Identifier: BSD-3-Clause */
#include "progress/progress.h"

static struct progress_choice choose(enum progress_action action, const char *reason)
{
	return (struct progress_choice){ action, reason };
}

/* Wake a sleeping mover only if the work takes longer than the wake-up. */
static struct progress_choice wake_if_worth(const struct progress_facts *f)
{
	uint64_t worth_ns = f->has_waiters ? 2 * PROGRESS_LATENCY_NS : PROGRESS_WAKE_NS;

	if (!f->asleep)
		return choose(PROGRESS_ANNOUNCE, "every mover is busy and will find it");
	if (f->work_ns >= worth_ns || f->is_forced)
		return choose(PROGRESS_WAKE, "a sleeping mover can do it");
	return choose(PROGRESS_NOTHING,
		      f->has_waiters ? "the waiting ranks finish before a mover wakes"
				     : "the work takes less than a wake-up");
}

static struct progress_choice for_leaver(const struct progress_facts *f)
{
	if (!f->work_ns)
		return choose(PROGRESS_NOTHING, "no partner has arrived");
	if (f->has_process && f->has_cpu)
		return f->polling ? choose(PROGRESS_ANNOUNCE, "a mover polls for work")
				  : wake_if_worth(f);
	if (!f->has_process && f->has_channel && (f->has_cpu || f->is_forced))
		return choose(PROGRESS_FEED, "a channel can do it");
	return choose(PROGRESS_NOTHING, f->has_process || f->has_channel ?
					      "no CPU is idle: the ranks do it in their calls" :
					      "there is no mover: the ranks do it in their calls");
}

static struct progress_choice for_waiter(const struct progress_facts *f)
{
	if (f->overdue_ns)
		return choose(PROGRESS_LEND, "a mover is overdue");
	if (f->is_stuck && f->needs_peer)
		return choose(PROGRESS_WAKE_PEER, "only a process that may be computing can go on");
	return choose(PROGRESS_NOTHING, "other ranks do it or have not arrived");
}

/* Movers run on idle CPUs only: where one runs, another can. */
static struct progress_choice for_sharer(const struct progress_facts *f)
{
	if (f->work_ns < PROGRESS_SHARE_NS || !f->asleep || f->polling)
		return choose(PROGRESS_NOTHING, "one mover is enough, or another is polling");
	return choose(PROGRESS_WAKE, "the work is enough for another mover");
}

static struct progress_choice for_mover(const struct progress_facts *f)
{
	if (f->work_ns)
		return choose(PROGRESS_CLAIM, "there is work");
	if (f->poll_ns)
		return choose(PROGRESS_POLL, "the next collective may come soon");
	return choose(PROGRESS_SLEEP, "nothing is pending");
}

struct progress_choice progress_decide(const struct progress_facts *f)
{
	switch (f->asker) {
	case PROGRESS_DETACHER:
		return for_leaver(f);
	case PROGRESS_WAITER:
		return for_waiter(f);
	case PROGRESS_SHARER:
		return for_sharer(f);
	case PROGRESS_MOVER:
		break;
	}
	return for_mover(f);
}
