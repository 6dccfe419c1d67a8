/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The page: its own text (timeline/), and the events: common properties as JSON, each event as
 * base64 of numbers with seven bits per byte: begin relative to the previous event of the track,
 * duration, form (kind, label, detail, place: there are few), bytes, extra.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text.h"
#include "tool.h"
#include "trace_data.h"

extern const char timeline_before[], timeline_after[];

/* ---- forms ------------------------------------------------------------------------------- */

struct forms {
	const struct trace_event **all; /* one event of each form */
	size_t count, cap;
	uint32_t *slots, mask; /* by hash: 1 + form */
};

static bool is_same(const struct trace_event *a, const struct trace_event *b)
{
	return a->kind == b->kind && a->label == b->label && a->detail == b->detail &&
	       a->place == b->place;
}

static uint64_t hash_of(const struct trace_event *e)
{
	uint64_t h = ((uint64_t)e->label * 0x9e3779b97f4a7c15ull) ^
		     ((uint64_t)e->detail * 0xbf58476d1ce4e5b9ull) ^
		     ((uint64_t)e->place * 0x94d049bb133111ebull) ^ e->kind;

	return h ^ h >> 31;
}

static void put_slot(struct forms *f, uint32_t form)
{
	uint64_t h = hash_of(f->all[form]);

	while (f->slots[h & f->mask])
		h++;
	f->slots[h & f->mask] = form + 1;
}

static uint32_t form_of(struct forms *f, const struct trace_event *e)
{
	uint32_t found;

	if (!f->slots || f->count * 2 > f->mask) {
		f->mask = f->mask ? f->mask * 4 + 3 : 1023;
		free(f->slots);
		f->slots = trace_alloc(((size_t)f->mask + 1) * sizeof *f->slots);
		for (uint32_t i = 0; i < f->count; i++)
			put_slot(f, i);
	}
	for (uint64_t h = hash_of(e); (found = f->slots[h & f->mask]); h++)
		if (is_same(f->all[found - 1], e))
			return found - 1;
	*(const struct trace_event **)trace_add(&f->all, &f->count, &f->cap, sizeof *f->all) = e;
	put_slot(f, (uint32_t)f->count - 1);
	return (uint32_t)f->count - 1;
}

/* ---- events ------------------------------------------------------------------------------ */

struct encoder {
	FILE *out;
	uint32_t bits, count; /* bytes of an incomplete group of three */
};

static void put_base64(struct encoder *e, int padding)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (int i = 0; i < 4; i++)
		putc_unlocked(i > padding ? '=' : digits[e->bits >> (18 - 6 * i) & 63], e->out);
	e->bits = e->count = 0;
}

static void put_byte(struct encoder *e, uint8_t byte)
{
	e->bits |= (uint32_t)byte << (16 - 8 * e->count);
	if (++e->count == 3)
		put_base64(e, 3);
}

static void put_number(struct encoder *e, uint64_t n)
{
	for (; n > 127; n >>= 7)
		put_byte(e, (uint8_t)(n | 128));
	put_byte(e, (uint8_t)n);
}

static void put_events(struct encoder *e, const struct trace_view *v, struct forms *forms)
{
	uint64_t before = 0;

	for (size_t i = 0; i < v->events_count; i++) {
		const struct trace_event *event = &v->events[i];

		if (!i || event->track != event[-1].track)
			before = 0;
		put_number(e, event->begin_ns - before);
		put_number(e, event->dur_ns);
		put_number(e, form_of(forms, event));
		put_number(e, event->bytes);
		put_number(e, event->extra);
		before = event->begin_ns;
	}
	if (e->count)
		put_base64(e, (int)e->count);
}

/* ---- the rest as JSON -------------------------------------------------------------------- */

static void put_places(struct text_json *j, const struct trace_view *v)
{
	text_json_open(j, "places", '[');
	for (size_t i = 0; i < v->data->places_count; i++) {
		const struct trace_place *p = &v->data->places[i];

		text_json_open(j, NULL, '{');
		text_json_string(j, "name", p->name);
		text_json_string(j, "function", p->function);
		text_json_string(j, "where", p->where);
		text_json_uint(j, "calls", p->totals.calls);
		text_json_uint(j, "bytes", p->totals.bytes);
		text_json_uint(j, "admitted", p->totals.admitted);
		text_json_uint(j, "early", p->totals.early);
		text_json_uint(j, "started", p->started);
		text_json_uint(j, "in_call_ns", p->in_call_ns + p->sampled_ns);
		text_json_int(j, "late_ns", p->has_late ? (int64_t)p->late_ns : -1);
		text_json_uint(j, "waited_ns", p->waited_ns);
		text_json_uint(j, "saved_ns", p->saved_ns);
		text_json_uint(j, "cost_ns", p->cost_ns);
		text_json_uint(j, "adopted", p->adopted);
		text_json_uint(j, "adopt_ns", p->adopt_ns);
		text_json_uint(j, "own", p->own);
		text_json_uint(j, "peers", p->peers);
		text_json_uint(j, "channel", p->channel);
		text_json_close(j, '}');
	}
	text_json_close(j, ']');
}

static void put_processes(struct text_json *j, const struct trace_view *v)
{
	text_json_open(j, "processes", '[');
	for (size_t i = 0; i < v->data->processes_count; i++) {
		const struct trace_header *h = v->data->processes[i].header;
		char name[64];

		trace_process_name(h, name, sizeof name);
		text_json_open(j, NULL, '{');
		text_json_string(j, "name", name);
		text_json_int(j, "pid", h->pid);
		text_json_string(j, "host", h->host);
		text_json_uint(j, "records", v->data->processes[i].records);
		text_json_uint(j, "overwritten", h->overwritten);
		text_json_uint(j, "dropped", h->dropped + h->uncounted);
		text_json_bool(j, "ended", h->state == TRACE_ENDED || trace_is_worker(h));
		text_json_close(j, '}');
	}
	text_json_close(j, ']');
}

static void put_tracks(struct text_json *j, const struct trace_view *v)
{
	size_t at = 0;

	text_json_open(j, "tracks", '[');
	for (uint32_t i = 0; i < v->tracks_count; i++) {
		size_t first = at;

		while (at < v->events_count && v->events[at].track == i)
			at++;
		text_json_open(j, NULL, '{');
		text_json_string(j, "process", v->tracks[i].process);
		text_json_string(j, "name", v->tracks[i].name);
		text_json_uint(j, "group", v->tracks[i].group);
		text_json_uint(j, "events", at - first);
		text_json_close(j, '}');
	}
	text_json_close(j, ']');
}

static void put_words(struct text_json *j, const char *key, const char *const *words, size_t count)
{
	text_json_open(j, key, '[');
	for (size_t i = 0; i < count; i++)
		text_json_string(j, NULL, words[i]);
	text_json_close(j, ']');
}

static void put_meta(FILE *out, const struct trace_view *v, const struct forms *forms)
{
	struct text_json j = { .out = out };

	text_json_open(&j, NULL, '{');
	text_json_string(&j, "title", v->title);
	text_json_string(&j, "program", v->data->processes[0].header->program);
	text_json_uint(&j, "end", v->end_ns);
	put_words(&j, "kinds", trace_kind_names, TRACE_SHOW_KINDS);
	put_words(&j, "extras", trace_extra_names, TRACE_SHOW_KINDS);
	put_words(&j, "strings", (const char *const *)v->strings, v->strings_count);
	put_places(&j, v);
	put_processes(&j, v);
	put_tracks(&j, v);
	text_json_open(&j, "forms", '[');
	for (size_t i = 0; i < forms->count; i++) {
		text_json_open(&j, NULL, '[');
		text_json_uint(&j, NULL, forms->all[i]->kind);
		text_json_uint(&j, NULL, forms->all[i]->label);
		text_json_uint(&j, NULL, forms->all[i]->detail);
		text_json_uint(&j, NULL, forms->all[i]->place);
		text_json_close(&j, ']');
	}
	text_json_close(&j, ']');
	text_json_close(&j, '}');
}

/* Escapes what would end the <script> element; in JSON < occurs in strings only. */
static void put_escaped(FILE *out, const char *json, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		if (json[i] == '<')
			fputs("\\u003c", out);
		else
			putc_unlocked(json[i], out);
	}
}

void trace_write_html(const struct trace_view *v, FILE *out)
{
	struct encoder e = { .out = out };
	struct forms forms = { 0 };
	char *json = NULL;
	size_t bytes = 0;
	FILE *memory;

	fputs(timeline_before, out);
	fputs("<script id=\"events\" type=\"text/plain\">", out);
	put_events(&e, v, &forms);
	fputs("</script>\n<script id=\"meta\" type=\"application/json\">", out);
	memory = open_memstream(&json, &bytes);
	if (!memory) {
		tool_say("trace: out of memory");
		exit(TOOL_FAILED);
	}
	put_meta(memory, v, &forms);
	fclose(memory);
	put_escaped(out, json, bytes);
	fputs("</script>\n", out);
	fputs(timeline_after, out);
	free(json);
	free(forms.all);
	free(forms.slots);
}
