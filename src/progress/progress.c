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

enum progress_action progress_decide(const struct progress_facts *f)
{
	if (!f->work_ns)
		return PROGRESS_NOTHING; /* no partner has arrived */
	if (f->has_process && f->has_cpu)
		return f->polling ? PROGRESS_ANNOUNCE : wake_if_worth(f);
	if (!f->has_process && f->has_channel && (f->has_cpu || f->is_forced))
		return PROGRESS_FEED;
	return PROGRESS_NOTHING; /* no mover or no idle CPU: the ranks do it in their calls */
}

uint64_t progress_poll_ns(uint64_t poll_ns, uint64_t gap_ns, uint64_t max_ns)
{
	uint64_t enough;

	if (gap_ns <= poll_ns)
		return poll_ns;
	if (gap_ns > max_ns)
		return poll_ns / 2 < PROGRESS_POLL_MIN_NS ? 0 : poll_ns / 2;
	enough = gap_ns + gap_ns / 2;
	if (enough < PROGRESS_POLL_MIN_NS)
		enough = PROGRESS_POLL_MIN_NS;
	return enough < max_ns ? enough : max_ns;
}
