/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From calls to groups. All ranks call a place equally often, where nothing else is known: then the
 * n-th calls of all ranks at a place belong together. The shortest of them is that of the rank that
 * came last, and takes as long as the work; the others also waited for that rank.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "report.h"
#include "trace/reasons.h"

enum { SAMPLES = 3 }; /* fewer times of a group say nothing */

/* ---- groups ------------------------------------------------------------------------------ */

static uint8_t class_of(uint64_t bytes)
{
	return bytes ? (uint8_t)(63 - __builtin_clzll(bytes)) : 0;
}

/* The functions for long counts, MPI_Bcast_c, are those without the suffix. */
static void function_name(const struct trace_place *p, char *out, size_t cap)
{
	size_t n = strlen(p->name);

	n -= n > 2 && !strcmp(p->name + n - 2, "_c") ? 2 : 0;
	snprintf(out, cap, "%.*s", (int)n, p->name);
}

static struct report_group *group_of(struct report *r, const struct trace_place *p,
				     uint8_t size_class)
{
	struct report_group *g;
	char name[sizeof g->function];

	function_name(p, name, sizeof name);
	for (size_t i = 0; i < r->groups_count; i++)
		if (r->groups[i].size_class == size_class && !strcmp(r->groups[i].function, name))
			return &r->groups[i];
	g = TRACE_ADD(r, groups);
	strcpy(g->function, name);
	g->size_class = size_class;
	return g;
}

static void add_reason(struct report_group *g, const char *why, uint64_t ns)
{
	for (size_t i = 0; i < BASE_ARRAY_LEN(g->reasons); i++) {
		if (g->reasons[i].why && strcmp(g->reasons[i].why, why))
			continue;
		g->reasons[i].why = why;
		g->reasons[i].ns += ns;
		return;
	}
}

static void add_place(struct report_group *g, const struct trace_place *p, uint64_t ns)
{
	if (ns <= g->place_ns)
		return;
	g->place_ns = ns;
	g->place = p;
}

/* ---- calls ------------------------------------------------------------------------------- */

struct ordered {
	const struct trace_data *data;
	const struct trace_call **calls; /* by place, process and time */
	uint64_t *least;                 /* the shortest of the calls that belong together */
	size_t count;
};

static int by_place(const void *a, const void *b)
{
	const struct trace_call *x = *(const struct trace_call *const *)a,
				*y = *(const struct trace_call *const *)b;

	if (x->place != y->place)
		return x->place < y->place ? -1 : 1;
	if (x->process != y->process)
		return x->process < y->process ? -1 : 1;
	return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

static uint64_t duration(const struct trace_data *d, const struct trace_call *c)
{
	uint64_t later = c->detached == TRACE_NO_CALL ? 0 : d->detached[c->detached].waited_ns;

	return c->end_ns - c->begin_ns + later;
}

/* Sets the least times of the calls [from, to) of a place, `each` of every process. */
static void set_least(struct ordered *o, size_t from, size_t to, size_t each)
{
	for (size_t n = 0; n < each; n++) {
		uint64_t least = UINT64_MAX;

		for (size_t i = from + n; i < to; i += each)
			least = base_min_u64(least, duration(o->data, o->calls[i]));
		for (size_t i = from + n; i < to; i += each)
			o->least[i] = least;
	}
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

static void order(const struct trace_data *d, struct ordered *o)
{
	*o = (struct ordered){ .data = d };
	o->calls = trace_alloc((d->calls_count + 1) * sizeof *o->calls);
	o->least = trace_alloc((d->calls_count + 1) * sizeof *o->least);
	for (size_t i = 0; i < d->calls_count; i++)
		if (d->calls[i].outcome != TRACE_SMALL && d->calls[i].outcome != TRACE_FAILED)
			o->calls[o->count++] = &d->calls[i];
	qsort(o->calls, o->count, sizeof *o->calls, by_place);
	for (size_t from = 0, to; from < o->count; from = to) {
		size_t each;

		for (to = from; to < o->count && o->calls[to]->place == o->calls[from]->place;)
			to++;
		each = calls_of_each(o, from, to);
		for (size_t i = from; i < to && !each; i++)
			o->least[i] = duration(d, o->calls[i]);
		set_least(o, from, to, each);
	}
}

/* The time of a nonblocking call says nothing, as the program waits for it later. */
static void add_time(struct report_group *g, bool is_host, uint64_t ns)
{
	if (g->function[4] == 'I' && g->function[5] >= 'a')
		return;
	if (is_host)
		*TRACE_ADD(g, host) = ns;
	else
		*TRACE_ADD(g, sluice) = ns;
}

/* ---- the whole --------------------------------------------------------------------------- */

/* Adds the recorded calls. known_ns: their time by place. */
static void add_calls(struct report *r, const struct ordered *o, uint64_t *known_ns)
{
	const struct trace_data *d = o->data;

	for (size_t i = 0; i < o->count; i++) {
		const struct trace_call *c = o->calls[i];
		const struct trace_place *p = &d->places[c->place];
		struct report_group *g = group_of(r, p, class_of(c->bytes));
		bool is_host = c->outcome == TRACE_BY_HOST;
		uint64_t ns = duration(d, c);

		g->calls++;
		g->admitted += !is_host;
		g->bytes += c->bytes;
		g->ns += ns;
		g->waiting_ns += ns - o->least[i];
		known_ns[c->place] += c->end_ns - c->begin_ns;
		if (is_host)
			add_reason(g, trace_text_of(&d->processes[c->process], c->why), ns);
		else
			r->sluice_ns += ns;
		if (!is_host || !r->has_host_run)
			add_time(g, is_host, o->least[i]);
		add_place(g, p, p->in_call_ns);
	}
}

/* Adds what the totals have beyond the records: the small calls. */
static void add_small(struct report *r, const struct trace_data *d, const uint64_t *known_ns)
{
	for (size_t i = 0; i < d->places_count; i++) {
		const struct trace_place *p = &d->places[i];
		uint64_t ns = p->in_call_ns + p->sampled_ns;
		struct report_group *g;

		r->adopted += p->adopted;
		r->adopt_ns += p->adopt_ns;
		if (!p->totals.small_calls)
			continue;
		ns -= base_min_u64(ns, known_ns[i]);
		g = group_of(r, p, REPORT_SMALL);
		g->calls += p->totals.small_calls;
		g->bytes += p->totals.small_bytes;
		g->ns += ns;
		add_reason(g, TRACE_WHY_SMALL, ns);
		add_place(g, p, ns);
	}
}

static int by_time(const void *a, const void *b)
{
	const struct report_group *x = a, *y = b;

	return (x->ns < y->ns) - (x->ns > y->ns);
}

static void add_host_run(struct report *r, const struct trace_data *host)
{
	struct ordered o;

	order(host, &o);
	for (size_t i = 0; i < o.count; i++) {
		const struct trace_call *c = o.calls[i];

		if (c->outcome == TRACE_BY_HOST)
			add_time(group_of(r, &host->places[c->place], class_of(c->bytes)), true,
				 o.least[i]);
	}
}

void report_sum(const struct trace_data *d, const struct trace_data *host, struct report *out)
{
	uint64_t *known_ns = trace_alloc((d->places_count + 1) * sizeof *known_ns);
	struct ordered o;

	*out = (struct report){ .data = d, .has_host_run = host };
	for (size_t i = 0; i < d->processes_count; i++) {
		const struct trace_process *p = &d->processes[i];

		if (trace_is_worker(p->header))
			continue;
		out->ranks++;
		out->wall_ns = base_max_u64(out->wall_ns, p->end_ns - d->start_ns);
	}
	for (size_t i = 0; i < d->calls_count; i++) /* of ranks that were killed, too */
		out->wall_ns = base_max_u64(out->wall_ns, d->calls[i].end_ns);
	order(d, &o);
	add_calls(out, &o, known_ns);
	add_small(out, d, known_ns);
	if (host)
		add_host_run(out, host);
	for (size_t i = 0; i < out->groups_count; i++) {
		const struct report_group *g = &out->groups[i];

		out->ns += g->ns;
		out->waiting_ns += g->waiting_ns;
		out->calls += g->calls;
		out->admitted += g->admitted;
	}
	qsort(out->groups, out->groups_count, sizeof *out->groups, by_time);
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

uint64_t report_median(uint64_t *times, size_t count)
{
	if (count < SAMPLES)
		return 0;
	qsort(times, count, sizeof *times, by_value);
	return times[count / 2];
}

int64_t report_gain(struct report_group *g, bool *known)
{
	uint64_t host = report_median(g->host, g->host_count),
		 sluice = report_median(g->sluice, g->sluice_count);

	*known = host && sluice && g->admitted;
	return *known ? ((int64_t)host - (int64_t)sluice) * (int64_t)g->admitted : 0;
}

const char *report_reason(const struct report_group *g)
{
	const struct report_reason *most = &g->reasons[0];

	for (size_t i = 1; i < BASE_ARRAY_LEN(g->reasons); i++)
		if (g->reasons[i].ns > most->ns)
			most = &g->reasons[i];
	return most->why ? most->why : "";
}
