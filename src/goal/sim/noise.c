/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * OS noise. A trace of detours, intervals in which a CPU executes something else, is repeated for
 * all time; each rank begins somewhere in it. The free time before each detour is kept, so an end
 * is found by two binary searches, however long the operation.
 */
#include <errno.h>
#include <stdlib.h>

#include "private.h"

static uint64_t end_of(const struct sim_detours *d, uint32_t i)
{
	return d->at[i].begin + d->at[i].ps;
}

/* Detours that overlap become one. Returns: how many remain; 0: they are not in order. */
static uint32_t fill(struct sim_detours *d, const struct sim_noise *noise)
{
	uint64_t busy = 0;
	uint32_t n = 0;

	for (size_t i = 0; i < noise->count; i++) {
		const struct sim_detour *from = &noise->detours[i];
		uint64_t end = from->begin_ps + from->ps;

		if (from->begin_ps > SIM_TIME_MAX || from->ps > SIM_TIME_MAX ||
		    (i && from->begin_ps < from[-1].begin_ps))
			return 0;
		if (n && from->begin_ps <= end_of(d, n - 1)) {
			if (end > end_of(d, n - 1)) {
				busy += end - end_of(d, n - 1);
				d->at[n - 1].ps = end - d->at[n - 1].begin;
			}
			continue;
		}
		d->at[n++] = (struct sim_detour_at){ .begin = from->begin_ps,
						     .ps = from->ps,
						     .free = from->begin_ps - busy };
		busy += from->ps;
	}
	return n;
}

int sim_detours_init(struct sim_detours *d, const struct sim_noise *noise)
{
	*d = (struct sim_detours){ .seed = noise->seed, .is_cosched = noise->is_cosched };
	if (!noise->count)
		return 0;
	if (noise->count > UINT32_MAX)
		return -EINVAL;
	d->at = calloc(noise->count, sizeof(*d->at));
	if (!d->at)
		return -ENOMEM;
	d->count = fill(d, noise);
	if (d->count) {
		d->period = end_of(d, d->count - 1);
		d->free = d->at[d->count - 1].free;
	}
	return d->count && d->free ? 0 : -EINVAL;
}

void sim_detours_fini(struct sim_detours *d) { free(d->at); }

/* Where in the trace a rank begins. The mixing is that of SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t offset_of(const struct sim_detours *d, uint32_t rank)
{
	uint64_t x = d->seed + (d->is_cosched ? 0 : (rank + 1ull) * 0x9e3779b97f4a7c15u);

	if (!d->seed)
		return 0;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	x ^= x >> 31;
	return (uint64_t)((unsigned __int128)x * d->period >> 64);
}

/* Returns: how many detours begin before `time` of the trace, or before so much free time. */
static inline uint32_t begun_before(const struct sim_detours *d, uint64_t time, bool is_free)
{
	uint32_t low = 0, high = d->count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if ((is_free ? d->at[middle].free : d->at[middle].begin) < time)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Returns: the free time before `time` of the trace. */
static uint64_t free_before(const struct sim_detours *d, uint64_t time)
{
	uint32_t i = begun_before(d, time + 1, false);

	if (!i)
		return time;
	i--;
	return time < end_of(d, i) ? d->at[i].free : time - (end_of(d, i) - d->at[i].free);
}

uint64_t sim_busy_until(const struct sim *s, uint32_t rank, uint64_t begin, uint64_t cost)
{
	const struct sim_detours *d = &s->detours;
	uint64_t time, free_ps, periods;
	unsigned __int128 end;
	uint32_t i;

	if (!d->count || !cost)
		return begin + cost;
	time = (begin + offset_of(d, rank)) % d->period;
	free_ps = free_before(d, time) + cost;
	/* the last detour ends a period, so an operation that fills one ends before it */
	periods = (free_ps - 1) / d->free;
	free_ps -= periods * d->free;
	i = begun_before(d, free_ps, true);
	end = (unsigned __int128)periods * d->period + free_ps +
	      (i ? end_of(d, i - 1) - d->at[i - 1].free : 0) - time + begin;
	return end > 2 * SIM_TIME_MAX ? 2 * SIM_TIME_MAX : (uint64_t)end;
}

uint64_t sim_occupy(struct sim *s, uint32_t rank, uint64_t begin, uint64_t cost)
{
	uint64_t end = sim_busy_until(s, rank, begin, cost);

	s->stats.noise_ps += end - begin - cost;
	return end;
}
