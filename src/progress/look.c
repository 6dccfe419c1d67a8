/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long a mover looks for work before it sleeps. Looking costs a CPU that nobody wants; sleeping
 * costs the next collective a wake-up, and its copy the time until the mover runs. So it looks as
 * long as it would have had to for the last gap, with something to spare, when that is not more
 * than the most that is allowed; half as long after each gap that was too long for that; and in the
 * end not at all.
 */
#include "progress/progress.h"

uint64_t progress_poll_ns(uint64_t look_ns, uint64_t gap_ns, uint64_t max_ns)
{
	uint64_t enough;

	if (gap_ns <= look_ns)
		return look_ns;
	if (gap_ns > max_ns)
		return look_ns / 2 < PROGRESS_POLL_MIN_NS ? 0 : look_ns / 2;
	enough = gap_ns + gap_ns / 2;
	if (enough < PROGRESS_POLL_MIN_NS)
		enough = PROGRESS_POLL_MIN_NS;
	return enough < max_ns ? enough : max_ns;
}
