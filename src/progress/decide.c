/* SPDX-License-Identifier: BSD-3-Clause */
#include "progress/progress.h"

/* Wake a sleeping mover only if the work takes longer than the wake-up. */
static enum progress_action wake_if_worth(const struct progress_facts *f)
{
	uint64_t worth_ns = f->has_waiters ? 2 * PROGRESS_LATENCY_NS : PROGRESS_WAKE_NS;

	if (!f->asleep)
		return PROGRESS_ANNOUNCE; /* every mover is busy and will find it */
	/* less is done sooner, by the ranks that wait or by this one, than a mover wakes */
	return f->work_ns >= worth_ns || f->is_forced ? PROGRESS_WAKE : PROGRESS_NOTHING;
}

static enum progress_action for_leaver(const struct progress_facts *f)
{
	if (!f->work_ns)
		return PROGRESS_NOTHING; /* no partner has arrived */
	if (f->has_process && f->has_cpu)
		return f->polling ? PROGRESS_ANNOUNCE : wake_if_worth(f);
	if (!f->has_process && f->has_channel && (f->has_cpu || f->is_forced))
		return PROGRESS_FEED;
	return PROGRESS_NOTHING; /* no mover or no idle CPU: the ranks do it in their calls */
}

static enum progress_action for_waiter(const struct progress_facts *f)
{
	if (f->overdue_ns)
		return PROGRESS_LEND;
	if (f->is_stuck && f->needs_peer)
		return PROGRESS_WAKE_PEER; /* it may be computing */
	return PROGRESS_NOTHING; /* other ranks do it or have not arrived */
}

/* Movers run on idle CPUs only: where one runs, another can. */
static enum progress_action for_sharer(const struct progress_facts *f)
{
	if (f->work_ns < PROGRESS_SHARE_NS || !f->asleep || f->polling)
		return PROGRESS_NOTHING; /* one mover is enough, or another is polling */
	return PROGRESS_WAKE;
}

static enum progress_action for_mover(const struct progress_facts *f)
{
	if (f->work_ns)
		return PROGRESS_CLAIM;
	return f->poll_ns ? PROGRESS_POLL : PROGRESS_SLEEP; /* the next one may come soon */
}

enum progress_action progress_decide(const struct progress_facts *f)
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
