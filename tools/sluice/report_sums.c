/* SPDX-License-Identifier: BSD-3-Clause */
/* From calls to groups. */
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

/* Returns: NULL: there is none. */
static struct report_group *group_find(const struct report *r, const struct trace_place *p,
				       uint8_t size_class)
{
	char name[sizeof r->groups->function];

	function_name(p, name, sizeof name);
	for (size_t i = 0; i < r->groups_count; i++)
		if (r->groups[i].size_class == size_class && !strcmp(r->groups[i].function, name))
			return &r->groups[i];
	return NULL;
}

static struct report_group *group_of(struct report *r, const struct trace_place *p,
				     uint8_t size_class)
{
	struct report_group *g = group_find(r, p, size_class);

	if (g)
		return g;
	g = TRACE_ADD(r, groups);
	function_name(p, g->function, sizeof g->function);
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

/* Compilers copy calls: the same line may have several addresses. */
static bool is_same(const struct trace_place *a, const struct trace_place *b)
{
	return a == b || (*a->function && !strcmp(a->function, b->function) &&
			  !strcmp(a->where, b->where));
}

static void add_place(struct report_group *g, const struct trace_place *p, uint64_t ns)
{
	size_t i = 0;

	while (i < g->places_count && !is_same(g->places[i].place, p))
		i++;
	if (i == g->places_count)
		TRACE_ADD(g, places)->place = p;
	g->places[i].ns += ns;
}

/* ---- calls ------------------------------------------------------------------------------- */

static bool is_counted(const struct trace_call *c)
{
	return c->outcome != TRACE_SMALL && c->outcome != TRACE_FAILED;
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

/* Recorded calls of a place; short calls are not among them. */
struct known { uint64_t calls, bytes, admitted, ns, late_ns; };

/* Adds the recorded calls. known: their sums by place. */
static void add_calls(struct report *r, const struct trace_data *d, struct known *known)
{
	for (size_t i = 0; i < d->calls_count; i++) {
		const struct trace_call *c = &d->calls[i];
		const struct trace_place *p = &d->places[c->place];
		bool is_host = c->outcome == TRACE_BY_HOST;
		uint64_t ns = trace_duration(d, c);
		struct report_group *g;

		if (c->outcome == TRACE_SMALL)
			continue;
		known[c->place].calls++;
		known[c->place].bytes += c->bytes;
		known[c->place].admitted += !is_host;
		known[c->place].ns += c->end_ns - c->begin_ns;
		known[c->place].late_ns += c->late_ns;
		if (!is_counted(c))
			continue;
		g = group_of(r, p, class_of(c->bytes));
		g->calls++;
		g->admitted += !is_host;
		g->bytes += c->bytes;
		g->ns += ns;
		g->waiting_ns += c->late_ns;
		if (is_host)
			add_reason(g, trace_text_of(&d->processes[c->process], c->why), ns);
		else
			r->sluice_ns += ns;
		if (!is_host || (!r->has_host_run && !trace_is_alone(d, c)))
			add_time(g, is_host, ns - c->late_ns);
		add_place(g, p, ns);
	}
}

/* Adds calls whose records were overwritten, by the exact sums of their place: as if each had their
 * mean bytes, and shares of waiting and of Sluice's calls as those that are left. */
static void add_lost(struct report *r, const struct trace_place *p, const struct known *k,
		     uint64_t calls, uint64_t ns)
{
	uint64_t bytes = p->totals.bytes - p->totals.small_bytes;
	uint64_t admitted = p->totals.admitted;
	struct report_group *g;

	bytes -= base_min_u64(bytes, k->bytes);
	admitted -= base_min_u64(admitted, k->admitted);
	admitted = base_min_u64(admitted, calls);
	g = group_of(r, p, class_of(bytes / calls));
	g->calls += calls;
	g->admitted += admitted;
	g->bytes += bytes;
	g->ns += ns;
	g->waiting_ns += k->ns ? (uint64_t)((double)k->late_ns / (double)k->ns * (double)ns) : 0;
	r->sluice_ns += (uint64_t)((double)ns * (double)admitted / (double)calls);
	r->lost += calls;
	add_place(g, p, ns);
}

/* Returns: of `ns` that the recorded calls of a place leave, the time of the lost ones. */
static uint64_t lost_ns(const struct trace_place *p, const struct known *k, uint64_t calls,
			uint64_t ns)
{
	uint64_t small = base_min_u64(ns, p->sampled_ns);
	double each = k->calls ? (double)k->ns / (double)k->calls : 0;

	if (!calls || !p->totals.small_calls)
		return calls ? ns : 0;
	return k->calls ? base_min_u64(ns, (uint64_t)(each * (double)calls)) : ns - small;
}

/* Adds what the totals have beyond the records: small calls, and those whose records were
 * overwritten. */
static void add_small(struct report *r, const struct trace_data *d, const struct known *known)
{
	for (size_t i = 0; i < d->places_count; i++) {
		const struct trace_place *p = &d->places[i];
		uint64_t ns = p->in_call_ns + p->sampled_ns, lost = p->totals.calls, of_lost;
		struct report_group *g;

		r->adopted += p->adopted;
		r->adopt_ns += p->adopt_ns;
		ns -= base_min_u64(ns, known[i].ns);
		lost -= base_min_u64(lost, p->totals.small_calls + known[i].calls);
		of_lost = lost_ns(p, &known[i], lost, ns);
		if (lost)
			add_lost(r, p, &known[i], lost, of_lost);
		if (!p->totals.small_calls)
			continue;
		ns -= of_lost;
		g = group_of(r, p, REPORT_SMALL);
		g->calls += p->totals.small_calls;
		g->bytes += p->totals.small_bytes;
		g->ns += ns;
		g->waiting_ns += base_min_u64(ns, p->late_ns - known[i].late_ns);
		add_reason(g, TRACE_WHY_SMALL, ns);
		add_place(g, p, ns);
	}
}

static void add_messages(struct report_messages *m, const struct trace_data *d)
{
	for (size_t i = 0; i < d->messages_count; i++) {
		const struct trace_place *p = &d->messages[i];

		m->calls += p->totals.calls;
		m->bytes += p->totals.bytes;
		m->copied += p->totals.copied;
		m->served += p->totals.served;
		m->ns += p->in_call_ns;
		m->copying_ns += p->copying_ns;
		if (!m->place || p->in_call_ns > m->place->in_call_ns)
			m->place = p;
	}
}

static int by_time(const void *a, const void *b)
{
	const struct report_group *x = a, *y = b;

	return (x->ns < y->ns) - (x->ns > y->ns);
}

/* Returns: whether the program's own run tells that a place of the host's run has one rank; the
 * host's run does not, where SLUICE_COLL is off. */
static bool is_alone_at(const struct trace_data *d, const struct trace_place *p)
{
	for (size_t i = 0; i < d->places_count; i++) {
		const struct trace_place *own = &d->places[i];

		if (own->is_alone && own->offset == p->offset && !strcmp(own->name, p->name) &&
		    !strcmp(own->module, p->module))
			return true;
	}
	return false;
}

static int by_share(const void *a, const void *b)
{
	const struct report_share *x = a, *y = b;

	return (x->ns < y->ns) - (x->ns > y->ns);
}

static void add_host_run(struct report *r, const struct trace_data *host)
{
	for (size_t i = 0; i < host->calls_count; i++) {
		const struct trace_call *c = &host->calls[i];
		struct report_group *g =
			group_find(r, &host->places[c->place], class_of(c->bytes));

		if (g && c->outcome == TRACE_BY_HOST && !trace_is_alone(host, c) &&
		    !is_alone_at(r->data, &host->places[c->place]))
			add_time(g, true, trace_duration(host, c) - c->late_ns);
	}
}

void report_sum(const struct trace_data *d, const struct trace_data *host, struct report *out)
{
	struct known *known = trace_alloc((d->places_count + 1) * sizeof *known);
	bool is_cpu_known = true;

	*out = (struct report){ .data = d, .has_host_run = host };
	for (size_t i = 0; i < d->processes_count; i++) {
		const struct trace_process *p = &d->processes[i];

		out->cpu_ns += p->header->cpu_us * 1000;
		is_cpu_known &= p->header->cpu_us > 0;
		if (trace_is_worker(p->header))
			continue;
		out->ranks++;
		out->cpu_wait_ns += p->header->cpu_wait_us * 1000;
		out->wall_ns = base_max_u64(out->wall_ns, p->end_ns);
		out->ranks_ns += p->end_ns - p->begin_ns;
		out->threads_ns += p->threads_ns;
		out->unfinished += p->header->state != TRACE_ENDED;
	}
	if (!is_cpu_known)
		out->cpu_ns = 0;
	add_calls(out, d, known);
	add_small(out, d, known);
	add_messages(&out->messages, d);
	free(known);
	if (host)
		add_host_run(out, host);
	for (size_t i = 0; i < out->groups_count; i++) {
		const struct report_group *g = &out->groups[i];

		if (g->places_count)
			qsort(g->places, g->places_count, sizeof *g->places, by_share);
		out->ns += g->ns;
		out->waiting_ns += g->waiting_ns;
		out->calls += g->calls;
		out->admitted += g->admitted;
	}
	if (out->groups_count)
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

const struct trace_place *report_place(const struct report_group *g)
{
	return g->places_count ? g->places->place : NULL;
}

unsigned report_more_places(const struct report_group *g)
{
	unsigned n = 0;

	for (size_t i = 1; i < g->places_count; i++)
		n += g->places[i].ns * 4 >= g->places->ns;
	return n;
}

const char *report_reason(const struct report_group *g)
{
	const struct report_reason *most = &g->reasons[0];

	for (size_t i = 1; i < BASE_ARRAY_LEN(g->reasons); i++)
		if (g->reasons[i].ns > most->ns)
			most = &g->reasons[i];
	return most->why ? most->why : "";
}
