/* SPDX-License-Identifier: BSD-3-Clause */
#include "progress/progress.h"

static struct progress_choice choose(enum progress_action action, const char *reason)
{
	return (struct progress_choice){ action, reason };
}

/* By who would wake it: is it worth a thread more? */
static struct progress_choice wake_or_leave(const struct progress_facts *f)
{
	uint64_t worth_ns = f->has_waiters ? 2 * PROGRESS_LATENCY_NS : PROGRESS_WAKE_NS;

	if (!f->asleep)
		return choose(PROGRESS_ANNOUNCE, "all movers are at work, and will come to it");
	if (f->work_ns >= worth_ns || f->is_forced)
		return choose(PROGRESS_WAKE, "a mover that sleeps can do it meanwhile");
	return choose(PROGRESS_NOTHING,
		      f->has_waiters ? "ranks that wait for it are done before a mover has woken"
				     : "it takes less than to wake a mover for it");
}

static struct progress_choice for_leaver(const struct progress_facts *f)
{
	if (!f->work_ns)
		return choose(PROGRESS_NOTHING, "nothing can be moved yet: who comes last starts it");
	if (f->has_process && f->has_cpu)
		return f->looking ? choose(PROGRESS_ANNOUNCE, "a mover looks for work")
				  : wake_or_leave(f);
	if (!f->has_process && f->has_channel && (f->has_cpu || f->is_forced))
		return choose(PROGRESS_FEED, "a channel can do it meanwhile");
	return choose(PROGRESS_NOTHING, f->has_process || f->has_channel ?
					      "no CPU is idle: ranks do it in their calls" :
					      "there is no mover: ranks do it in their calls");
}

static struct progress_choice for_waiter(const struct progress_facts *f)
{
	if (f->late_ns)
		return choose(PROGRESS_LEND, "a mover has taken it, and does not get on");
	if (f->is_stuck && f->needs_peer)
		return choose(PROGRESS_WAKE_PEER,
			      "only another process can go on, which may be computing");
	return choose(PROGRESS_NOTHING, "others are at it, or have not come");
}

/* Movers run on idle CPUs only: where one runs, another can. */
static struct progress_choice for_sharer(const struct progress_facts *f)
{
	if (f->work_ns < PROGRESS_SHARE_NS || !f->asleep || f->looking)
		return choose(PROGRESS_NOTHING, "one mover is enough, or more are coming");
	return choose(PROGRESS_WAKE, "there is enough for one mover more");
}

static struct progress_choice for_mover(const struct progress_facts *f)
{
	if (f->work_ns)
		return choose(PROGRESS_CLAIM, "there is work");
	if (f->look_ns)
		return choose(PROGRESS_POLL, "the next work may come soon");
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
