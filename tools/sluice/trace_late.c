/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting for ranks that come late, apart from the work of a collective. All ranks call a place
 * equally often, where nothing else is known: then the n-th calls of all ranks at a place belong
 * together. The shortest of them is that of the rank that came last, and takes as long as the work;
 * the others also waited for that rank. On a communicator of one rank nobody is late.
 *
 * Of small calls only sums are known, one for each rank: what a rank spent beyond the rank with the
 * least is waiting. More is, where not always the same rank comes last.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "trace/reasons.h"
#include "trace_data.h"

struct ordered {
	struct trace_data *data;
	struct trace_call **calls; /* by place, process and time */
	size_t count;
};

uint64_t trace_duration(const struct trace_data *d, const struct trace_call *c)
{
	uint64_t later = c->detached == TRACE_NO_CALL ? 0 : d->detached[c->detached].waited_ns;

	return c->end_ns - c->begin_ns + later;
}

bool trace_is_alone(const struct trace_data *d, const struct trace_call *c)
{
	return c->outcome == TRACE_BY_HOST &&
	       !strcmp(trace_text_of(&d->processes[c->process], c->why), TRACE_WHY_ALONE);
}

static int by_place(const void *a, const void *b)
{
	const struct trace_call *x = *(struct trace_call *const *)a,
				*y = *(struct trace_call *const *)b;

	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;
	if (x->process != y->process)
		return x->process < y->process ? -1 : 1;
	return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Compares the calls [from, to) of a place, `each` of every process. */
static void compare(struct ordered *o, size_t from, size_t to, size_t each)
{
	for (size_t n = 0; n < each; n++) {
		uint64_t least = UINT64_MAX;

		for (size_t i = from + n; i < to; i += each)
			least = base_min_u64(least, trace_duration(o->data, o->calls[i]));
		for (size_t i = from + n; i < to; i += each)
			o->calls[i]->late_ns = trace_duration(o->data, o->calls[i]) - least;
	}
	o->data->places[o->calls[from]->place].has_late = each && to - from > each;
}

/* Returns: calls of each process in [from, to); 0: they differ. */
static size_t calls_of_each(const struct ordered *o, size_t from, size_t to)
{
	size_t each = 0, start = from;

	for (size_t i = from; i < to; i++) {
		if (i + 1 < to && o->calls[i + 1]->process == o->calls[i]->process)
			continue;
		if (each && each != i + 1 - start)
			return 0;
		each = i + 1 - start;
		start = i + 1;
	}
	return each;
}

static void compare_calls(struct trace_data *d)
{
	struct ordered o = { .data = d };

	o.calls = trace_alloc((d->calls_count + 1) * sizeof *o.calls);
	for (size_t i = 0; i < d->calls_count; i++)
		if (trace_is_alone(d, &d->calls[i]))
			d->places[d->calls[i].place].has_late = true;
		else if (d->calls[i].outcome != TRACE_SMALL && d->calls[i].outcome != TRACE_FAILED)
			o.calls[o.count++] = &d->calls[i];
	qsort(o.calls, o.count, sizeof *o.calls, by_place);
	for (size_t from = 0, to; from < o.count; from = to) {
		for (to = from; to < o.count && o.calls[to]->place == o.calls[from]->place;)
			to++;
		compare(&o, from, to, calls_of_each(&o, from, to));
	}
	free(o.calls);
}

static void find_alone(struct trace_data *d)
{
	for (size_t i = 0; i < d->calls_count; i++)
		d->places[d->calls[i].place].is_alone = true;
	for (size_t i = 0; i < d->calls_count; i++)
		d->places[d->calls[i].place].is_alone &= trace_is_alone(d, &d->calls[i]);
}

void trace_late(struct trace_data *d)
{
	find_alone(d);
	compare_calls(d);
	for (size_t i = 0; i < d->places_count; i++) {
		struct trace_place *p = &d->places[i];

		if (p->processes < 2 || p->least.calls != p->most.calls ||
		    p->totals.small_calls != p->totals.calls)
			continue;
		p->late_ns = p->in_call_ns + p->sampled_ns - p->processes * p->least.ns;
		p->has_late = true;
	}
	for (size_t i = 0; i < d->calls_count; i++)
		d->places[d->calls[i].place].late_ns += d->calls[i].late_ns;
}
