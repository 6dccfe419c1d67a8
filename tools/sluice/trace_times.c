/* SPDX-License-Identifier: BSD-3-Clause */
/* Clocks of a trace, and for how long processes and threads lived. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "trace_data.h"

/* ---- time -------------------------------------------------------------------------------- */

/* Fits a line through the first and the last moment known by both clocks. */
static void find_rate(struct trace_process *p)
{
	const struct trace_header *h = p->header;
	uint64_t ticks = h->start_ticks, ns = h->start_ns;

	for (uint32_t i = 0; i < p->chunks; i++) {
		const struct trace_chunk *c = trace_chunk_at(p, i);

		if (c->kind != TRACE_CHUNK_FREE && c->ticks > ticks && c->ns > ns) {
			ticks = c->ticks;
			ns = c->ns;
		}
	}
	if (h->state == TRACE_ENDED && h->end_ticks > ticks && h->end_ns > ns) {
		ticks = h->end_ticks;
		ns = h->end_ns;
	}
	p->ns_per_tick = 1;
	if (!h->ticks_are_ns && ticks > h->first_ticks && ns > h->first_ns)
		p->ns_per_tick = (double)(ns - h->first_ns) / (double)(ticks - h->first_ticks);
	p->end_ns = ns;
}

/* CLOCK_MONOTONIC begins when a machine does. The time of day, which the machines of a cluster
 * share, says where the processes of other machines belong. */
static void align_machines(struct trace_data *d)
{
	const struct trace_header *ours = d->processes[0].header;

	for (size_t i = 0, k; i < d->processes_count; i++) {
		const struct trace_header *h = d->processes[i].header, *other;

		for (k = 0; strncmp(d->processes[k].header->host, h->host, sizeof h->host);)
			k++;
		other = d->processes[k].header;
		d->processes[i].shift_ns = other->start_realtime_ns - other->start_ns -
					   (ours->start_realtime_ns - ours->start_ns);
	}
}

uint64_t trace_since_start(const struct trace_data *d, const struct trace_process *p, uint64_t ns)
{
	int64_t since = (int64_t)(base_min_u64(ns, TRACE_NS_MOST) + p->shift_ns - d->start_ns);

	return since > 0 ? (uint64_t)since : 0;
}

uint64_t trace_ns_of(const struct trace_data *d, const struct trace_process *p, uint64_t ticks)
{
	const double most = (double)TRACE_NS_MOST;
	uint64_t first = p->header->first_ticks;
	double ns = ticks < first ? -(double)(first - ticks) : (double)(ticks - first);

	ns = ns * p->ns_per_tick;
	ns = ns < -most ? -most : ns < most ? ns : most;
	return trace_since_start(d, p, p->header->first_ns + (uint64_t)(int64_t)(ns + 0.5));
}

/* Time 0 is when the first process began. */
void trace_find_start(struct trace_data *d)
{
	for (size_t i = 0; i < d->processes_count; i++)
		find_rate(&d->processes[i]);
	align_machines(d);
	for (size_t i = 0; i < d->processes_count; i++) {
		const struct trace_process *p = &d->processes[i];

		if (p->header->start_ns + p->shift_ns >= d->start_ns)
			continue;
		d->start_ns = p->header->start_ns + p->shift_ns;
		d->start_realtime_ns = p->header->start_realtime_ns;
	}
}

/* ---- for how long ------------------------------------------------------------------------ */

struct thread { uint32_t id; uint64_t begin_ns, end_ns; };

/* Returns: the thread of this number; adds it when it is new. */
static struct thread *thread_of(struct thread **all, size_t *count, size_t *cap, uint32_t id,
				uint64_t begin_ns)
{
	struct thread *t;

	for (size_t i = *count; i-- > 0;)
		if ((*all)[i].id == id)
			return &(*all)[i];
	t = trace_add(all, count, cap, sizeof *t);
	*t = (struct thread){ id, begin_ns, begin_ns };
	return t;
}

static bool has_messages(const struct trace_process *p, const struct trace_chunk *c)
{
	const struct trace_totals *t = (const struct trace_totals *)(c + 1);

	for (uint32_t i = 0; c->kind == TRACE_CHUNK_TOTALS && i < TRACE_SITES; i++)
		if (t[i].calls && trace_is_of_messages(p, i))
			return true;
	return false;
}

/* Returns: the times of all threads that call MPI, each from its first call to its last. Of calls
 * of messages only the first is known. */
static uint64_t threads_ns(const struct trace_data *d, const struct trace_process *p,
			   size_t first_call)
{
	struct thread *all = NULL, *t;
	size_t count = 0, cap = 0;
	uint64_t sum = 0;

	for (uint32_t i = 0; i < p->chunks; i++) {
		const struct trace_chunk *c = trace_chunk_at(p, i);

		if (c->kind == TRACE_CHUNK_FREE)
			continue;
		t = thread_of(&all, &count, &cap, c->thread, trace_since_start(d, p, c->ns));
		if (has_messages(p, c))
			t->end_ns = base_max_u64(t->end_ns, p->end_ns);
	}
	for (size_t i = first_call; i < d->calls_count; i++) {
		const struct trace_call *c = &d->calls[i];

		t = thread_of(&all, &count, &cap, c->thread, c->begin_ns);
		t->begin_ns = base_min_u64(t->begin_ns, c->begin_ns);
		t->end_ns = base_max_u64(t->end_ns, c->end_ns);
	}
	for (size_t i = 0; i < count; i++)
		sum += all[i].end_ns - all[i].begin_ns;
	free(all);
	return sum;
}

/* A process that was killed lived at least until its last record. */
void trace_find_end(const struct trace_data *d, struct trace_process *p, size_t first_call)
{
	p->begin_ns = trace_since_start(d, p, p->header->start_ns);
	p->end_ns = base_max_u64(trace_since_start(d, p, p->end_ns), p->begin_ns);
	for (size_t i = first_call; i < d->calls_count; i++)
		p->end_ns = base_max_u64(p->end_ns, d->calls[i].end_ns);
	p->threads_ns = base_max_u64(p->end_ns - p->begin_ns, threads_ns(d, p, first_call));
}
