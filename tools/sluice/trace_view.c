/* SPDX-License-Identifier: BSD-3-Clause */
/* All data as events on tracks: a process has one track for the calls of each thread, and others
 * for what happens beside them. Events of a track do not overlap. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "trace_data.h"

#define DETACHED_TRACKS 8 /* of a process; more operations at a time overlap */

const char *const trace_kind_names[TRACE_SHOW_KINDS] = {
	"completed",      "returned early", "by the host MPI",   "moving after return",
	"touch",          "copy by a rank", "copy by a channel", "set-up",
	"GOAL operation", "started",        "pending",           "turns with other ranks",
};
const char *const trace_extra_names[TRACE_SHOW_KINDS] = {
	"",         "", "", "waited_ns", "offset",    "fragment",
	"fragment", "", "", "",          "waited_ns", "switches",
};

/* ---- strings ----------------------------------------------------------------------------- */

static uint64_t hash_of(const char *s)
{
	uint64_t h = base_hash(BASE_HASH_START, s, strlen(s));

	return h ^ h >> 32;
}

static void grow_slots(struct trace_view *v)
{
	size_t size = v->string_mask ? (v->string_mask + 1) * 4 : 256;

	free(v->string_slots);
	v->string_slots = trace_alloc(size * sizeof *v->string_slots);
	v->string_mask = size - 1;
	for (uint32_t i = 0; i < v->strings_count; i++) {
		uint64_t h = hash_of(v->strings[i]);

		while (v->string_slots[h & v->string_mask])
			h++;
		v->string_slots[h & v->string_mask] = i + 1;
	}
}

uint32_t trace_string(struct trace_view *v, const char *text)
{
	uint64_t h = hash_of(text);
	uint32_t found;

	if (v->strings_count * 2 >= v->string_mask)
		grow_slots(v);
	for (; (found = v->string_slots[h & v->string_mask]); h++)
		if (!strcmp(v->strings[found - 1], text))
			return found - 1;
	*TRACE_ADD(v, strings) = strdup(text);
	v->string_slots[h & v->string_mask] = (uint32_t)v->strings_count;
	return (uint32_t)v->strings_count - 1;
}

__attribute__((format(printf, 2, 3))) static uint32_t string_of(struct trace_view *v,
								const char *fmt, ...)
{
	char text[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof text, fmt, args);
	va_end(args);
	return trace_string(v, text);
}

/* ---- tracks ------------------------------------------------------------------------------ */

uint32_t trace_track_add(struct trace_view *v, uint32_t group, const char *process,
			 const char *name)
{
	struct trace_track *t;

	for (uint32_t i = (uint32_t)v->tracks_count; i-- > 0;)
		if (v->tracks[i].group == group && !strcmp(v->tracks[i].name, name))
			return i;
	t = TRACE_ADD(v, tracks);
	*t = (struct trace_track){ .process = strdup(process),
				   .name = strdup(name),
				   .group = group };
	return (uint32_t)v->tracks_count - 1;
}

bool trace_is_worker(const struct trace_header *h)
{
	const char *name = strrchr(h->program, '/');

	return h->rank < 0 && name && !strcmp(name, "/sluice-worker");
}

void trace_process_name(const struct trace_header *h, char *out, size_t cap)
{
	if (h->rank >= 0)
		snprintf(out, cap, "rank %d", h->rank);
	else if (trace_is_worker(h))
		snprintf(out, cap, "worker process");
	else
		snprintf(out, cap, "process %d without a rank", h->pid);
}

/* Thread 0: none. */
/* what: a constant. Caches the last results, as most events are on few tracks. */
static uint32_t track_of(struct trace_view *v, uint32_t process, const char *what, uint32_t thread)
{
	static struct { const char *what; uint32_t process, thread, track; } last[16];
	const struct trace_process *p = &v->data->processes[process];
	uint32_t at = (process * 5 + thread * 3 + (uint32_t)(uintptr_t)what) % BASE_ARRAY_LEN(last);
	char owner[64], name[96];

	if (last[at].what == what && last[at].process == process && last[at].thread == thread)
		return last[at].track;
	trace_process_name(p->header, owner, sizeof owner);
	if (thread && thread != (uint32_t)p->header->pid)
		snprintf(name, sizeof name, "%s, %s %u", what, trace_thread_name(p, thread),
			 thread);
	else
		snprintf(name, sizeof name, "%s", what);
	last[at].what = what;
	last[at].process = process;
	last[at].thread = thread;
	last[at].track = trace_track_add(v, process, owner, name);
	return last[at].track;
}

void trace_event_add(struct trace_view *v, const struct trace_event *e)
{
	*TRACE_ADD(v, events) = *e;
	v->end_ns = base_max_u64(v->end_ns, e->begin_ns + e->dur_ns);
}

/* ---- events ------------------------------------------------------------------------------ */

static uint32_t call_detail(struct trace_view *v, const struct trace_call *c)
{
	static const char *const regions[] = { "", "mapped memory", "memory not mapped", "packed" };
	const struct trace_process *p = &v->data->processes[c->process];
	const char *early = trace_text_of(p, c->early_why);
	char why[2 * TRACE_TEXT_BYTES];

	if (c->outcome == TRACE_FAILED)
		return trace_string(v, "failed");
	if (c->outcome < TRACE_ADMITTED) {
		trace_reason(trace_text_of(p, c->why), v->data->places[c->place].name, why,
			     sizeof why);
		return string_of(v, "by the host MPI: %s", why);
	}
	if (c->outcome == TRACE_STARTED)
		return string_of(v, "%s%s", c->is_root ? "root, " : "", regions[c->region % 4]);
	return string_of(v, "%s%s%s%s%s", c->is_root ? "root, " : "", regions[c->region % 4],
			 c->outcome == TRACE_EARLY ? ", returned early: "
			 : *early                  ? ", completed: "
						   : "",
			 early, c->ops > 1 ? ", in segments" : "");
}

static void add_calls(struct trace_view *v)
{
	for (size_t i = 0; i < v->data->calls_count; i++) {
		const struct trace_call *c = &v->data->calls[i];
		struct trace_event e = {
			.begin_ns = c->begin_ns,
			.dur_ns = c->end_ns - c->begin_ns,
			.bytes = c->bytes,
			.track = track_of(v, c->process, "calls", c->thread),
			.label = trace_string(v, v->data->places[c->place].name),
			.detail = call_detail(v, c),
			.place = c->place + 1,
			.kind = c->outcome == TRACE_STARTED ? TRACE_SHOW_BEGUN :
				c->outcome == TRACE_EARLY ? TRACE_SHOW_EARLY :
				c->outcome == TRACE_ADMITTED ? TRACE_SHOW_CALL :
							    TRACE_SHOW_PASSED,
		};

		trace_event_add(v, &e);
	}
}

/* Several operations may be pending: each goes on the first free track. */
static uint32_t free_track(struct trace_view *v, const struct trace_detached *l,
			   uint64_t *free_from)
{
	static const char *const names[DETACHED_TRACKS] = {
		"moving after return",     "moving after return (2)", "moving after return (3)",
		"moving after return (4)", "moving after return (5)", "moving after return (6)",
		"moving after return (7)", "moving after return (8)",
	};
	uint64_t *from = &free_from[l->process * DETACHED_TRACKS];
	uint32_t k = 0;

	while (k < DETACHED_TRACKS - 1 && from[k] > l->begin_ns)
		k++;
	from[k] = l->end_ns;
	return track_of(v, l->process, names[k], 0);
}

static int by_begin(const void *a, const void *b)
{
	uint64_t x = ((const struct trace_detached *)a)->begin_ns,
		 y = ((const struct trace_detached *)b)->begin_ns;

	return (x > y) - (x < y);
}

static void add_detached(struct trace_view *v)
{
	const struct trace_data *d = v->data;
	uint64_t *free_from = trace_alloc(d->processes_count * DETACHED_TRACKS * sizeof *free_from);
	struct trace_detached *sorted = trace_alloc(d->detached_count * sizeof *sorted);

	if (d->detached_count)
		memcpy(sorted, d->detached, d->detached_count * sizeof *sorted);
	qsort(sorted, d->detached_count, sizeof *sorted, by_begin);
	for (size_t i = 0; i < d->detached_count; i++) {
		const struct trace_detached *l = &sorted[i];
		const struct trace_call *c = l->call == TRACE_NO_CALL ? NULL : &d->calls[l->call];
		bool is_request = c && c->outcome == TRACE_STARTED;
		struct trace_event e = {
			.begin_ns = l->begin_ns,
			.dur_ns = l->end_ns - l->begin_ns,
			.bytes = c ? c->bytes : 0,
			.extra = l->waited_ns,
			.track = free_track(v, l, free_from),
			.label = trace_string(v, c ? d->places[c->place].name : "collective"),
			.detail = trace_string(
				v, is_request      ? (l->wanted_ns ? "waited for or tested"
								   : "completed by itself")
				   : !l->wanted_ns ? "completed by itself"
				   : l->by_call    ? "completed by a later call"
						   : "completed by a touch"),
			.place = c ? c->place + 1 : 0,
			.kind = is_request ? TRACE_SHOW_PENDING : TRACE_SHOW_MOVING,
		};

		trace_event_add(v, &e);
	}
	free(sorted);
	free(free_from);
}

static void add_touches(struct trace_view *v)
{
	for (size_t i = 0; i < v->data->touches_count; i++) {
		const struct trace_touch *t = &v->data->touches[i];
		const struct trace_call *c =
			t->call == TRACE_NO_CALL ? NULL : &v->data->calls[t->call];
		struct trace_event e = {
			.begin_ns = t->begin_ns,
			.dur_ns = t->end_ns - t->begin_ns,
			.bytes = c ? c->bytes : 0,
			.extra = t->offset,
			.track = track_of(v, t->process, "waits at touches", t->thread),
			.label = trace_string(v, t->is_write ? "write" : "touch"),
			.detail = trace_string(v, c ? v->data->places[c->place].name : ""),
			.place = c ? c->place + 1 : 0,
			.kind = TRACE_SHOW_TOUCH,
		};

		trace_event_add(v, &e);
	}
}

static uint32_t copy_label(struct trace_view *v, const struct trace_copied *c)
{
	if (c->src != TRACE_FROM_ALL)
		return string_of(v, "%u to %u", c->src, c->dst);
	if (c->dst == TRACE_TO_EACH || c->dst == TRACE_TO_EACH_BUT_FIRST)
		return trace_string(v, "all to all");
	return string_of(v, "all to %u", c->dst);
}

static void add_copies(struct trace_view *v)
{
	static const char *const movers[] = { "by a CPU", "by a channel",
					      "edge bytes", "staged",
					      "by the worker process" };

	for (size_t i = 0; i < v->data->copies_count; i++) {
		const struct trace_copied *c = &v->data->copies[i];
		bool by_channel = c->mover == TRACE_CHANNEL;
		struct trace_event e = {
			.begin_ns = c->begin_ns,
			.dur_ns = c->end_ns - c->begin_ns,
			.bytes = c->bytes,
			.extra = c->unit,
			.label = copy_label(v, c),
			.detail = trace_string(v, movers[c->mover % BASE_ARRAY_LEN(movers)]),
			.place = c->call == TRACE_NO_CALL ? 0 : v->data->calls[c->call].place + 1,
			.kind = by_channel || c->mover == TRACE_WORKER ? TRACE_SHOW_CHANNEL
								       : TRACE_SHOW_COPY,
		};

		if (!c->end_ns)
			continue; /* counted, not timed */
		e.track = by_channel ? track_of(v, c->process, "channel", 0) :
				       track_of(v, c->process, "copies", c->thread);
		trace_event_add(v, &e);
	}
}

static void add_spans(struct trace_view *v)
{
	for (size_t i = 0; i < v->data->spans_count; i++) {
		const struct trace_activity *s = &v->data->spans[i];
		struct trace_event e = {
			.begin_ns = s->begin_ns,
			.dur_ns = s->end_ns - s->begin_ns,
			.bytes = s->bytes,
			.track = track_of(v, s->process, "set-up", s->thread),
			.label = trace_string(
				v, trace_text_of(&v->data->processes[s->process], s->text)),
			.kind = TRACE_SHOW_SETUP,
		};

		trace_event_add(v, &e);
	}
}

static void add_turns(struct trace_view *v)
{
	for (size_t i = 0; i < v->data->turns_count; i++) {
		const struct trace_turn *t = &v->data->turns[i];
		struct trace_event e = {
			.begin_ns = t->begin_ns,
			.dur_ns = t->end_ns - t->begin_ns,
			.extra = t->switches,
			.track = track_of(v, t->process, "turns", t->thread),
			.label = trace_string(v, t->handoffs
							 ? "kept the CPU: others went on beside it"
						 : t->trips ? "went home"
							    : "took turns"),
			.detail = string_of(v, "%u trips home, %u hand-offs, %u stays", t->trips,
					    t->handoffs, t->stays),
			.kind = TRACE_SHOW_TURN,
		};

		trace_event_add(v, &e);
	}
}

static int by_track(const void *a, const void *b)
{
	const struct trace_event *x = a, *y = b;

	if (x->track != y->track)
		return x->track < y->track ? -1 : 1;
	return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Orders processes, and the tracks of each by importance. */
static int by_process(const void *a, const void *b)
{
	const struct trace_track *x = a, *y = b;

	if (x->group != y->group)
		return x->group < y->group ? -1 : 1;
	return (x->id > y->id) - (x->id < y->id);
}

static void sort_tracks(struct trace_view *v)
{
	uint32_t *now = trace_alloc(v->tracks_count * sizeof *now);

	for (uint32_t i = 0; i < v->tracks_count; i++)
		v->tracks[i].id = i;
	qsort(v->tracks, v->tracks_count, sizeof *v->tracks, by_process);
	for (uint32_t i = 0; i < v->tracks_count; i++)
		now[v->tracks[i].id] = i;
	for (size_t i = 0; i < v->events_count; i++)
		v->events[i].track = now[v->events[i].track];
	free(now);
}

/* A channel holds several copies but executes one: each begins when the previous one has ended. */
void trace_view_sort(struct trace_view *v)
{
	uint64_t free_from = 0;

	sort_tracks(v);
	if (v->events_count)
		qsort(v->events, v->events_count, sizeof *v->events, by_track);
	for (size_t i = 0; i < v->events_count; i++) {
		struct trace_event *e = &v->events[i];
		uint64_t end = e->begin_ns + e->dur_ns;

		if (e->kind != TRACE_SHOW_CHANNEL)
			continue;
		if (i && e[-1].track == e->track && e->begin_ns < free_from) {
			e->begin_ns = base_min_u64(free_from, end);
			e->dur_ns = end - e->begin_ns;
		}
		free_from = end;
	}
}

void trace_view(const struct trace_data *d, struct trace_view *out)
{
	*out = (struct trace_view){ .data = d };
	trace_string(out, "");
	/* tracks of a process are in order of first use */
	for (uint32_t p = 0; p < d->processes_count; p++)
		track_of(out, p, "calls", (uint32_t)d->processes[p].header->pid);
	add_calls(out);
	add_detached(out);
	add_touches(out);
	add_copies(out);
	add_spans(out);
	add_turns(out);
	for (size_t i = 0; i < d->processes_count; i++)
		out->end_ns = base_max_u64(out->end_ns, d->processes[i].end_ns);
}
