/* SPDX-License-Identifier: BSD-3-Clause */
/* The events as trace-event JSON for Perfetto and Chrome's about:tracing, one event per line. */
#include <inttypes.h>
#include <stdio.h>

#include "text.h"
#include "trace_data.h"

/* Microseconds, exact to the nanosecond. */
static void put_us(FILE *out, const char *key, uint64_t ns)
{
	fprintf(out, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

static void put_text(FILE *out, const char *key, const char *text)
{
	fprintf(out, "\"%s\":", key);
	text_json_quote(out, text);
}

static void put_meta(FILE *out, const char *what, uint32_t pid, uint32_t tid, const char *name)
{
	fprintf(out, ",\n{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%u,\"tid\":%u,\"args\":{", what, pid,
		tid);
	put_text(out, "name", name);
	fputs("}}", out);
}

static void put_event(FILE *out, const struct trace_view *v, const struct trace_event *e)
{
	const struct trace_place *place = e->place ? &v->data->places[e->place - 1] : NULL;

	fprintf(out, ",\n{\"ph\":\"X\",\"pid\":%u,\"tid\":%u", v->tracks[e->track].group, e->track);
	put_us(out, "ts", e->begin_ns);
	put_us(out, "dur", e->dur_ns);
	fputs(",", out);
	put_text(out, "name", v->strings[e->label]);
	fputs(",", out);
	put_text(out, "cat", trace_kind_names[e->kind]);
	fprintf(out, ",\"args\":{\"bytes\":%" PRIu64, e->bytes);
	if (e->detail) {
		fputs(",", out);
		put_text(out, "why", v->strings[e->detail]);
	}
	if (trace_extra_names[e->kind][0])
		fprintf(out, ",\"%s\":%" PRIu64, trace_extra_names[e->kind], e->extra);
	if (place) {
		fputs(",", out);
		put_text(out, "function", place->function);
		fputs(",", out);
		put_text(out, "where", place->where);
	}
	fputs("}}", out);
}

void trace_write_chrome(const struct trace_view *v, FILE *out)
{
	/* every later line begins with a comma */
	fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
	      "{\"ph\":\"M\",\"name\":\"trace_name\",\"pid\":0,\"tid\":0,\"args\":{",
	      out);
	put_text(out, "name", v->title);
	fputs("}}", out);
	for (uint32_t i = 0; i < v->tracks_count; i++) {
		if (!i || v->tracks[i].group != v->tracks[i - 1].group)
			put_meta(out, "process_name", v->tracks[i].group, 0, v->tracks[i].process);
		put_meta(out, "thread_name", v->tracks[i].group, i, v->tracks[i].name);
	}
	for (size_t i = 0; i < v->events_count; i++)
		put_event(out, v, &v->events[i]);
	fputs("\n]}\n", out);
}
