/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a mover polls for work before it sleeps. Polling costs a CPU that nobody uses; sleeping
 * costs the next collective a wake-up and its latency. So a mover polls long enough for the last
 * gap between two collectives, plus half of it, if that is below the maximum; half as long after
 * each gap above the maximum; and in the end not at all.
 */
#include "progress/progress.h"

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
