/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads a profile of GOAL schedules: trace-event JSON, an array of events or an object with
 * traceEvents. Complete events (ph X) go on tracks of their own, one per thread (tid: rank in its
 * group) of a process (pid), beside the tracks of that process; metadata events give names. ts is
 * in microseconds of CLOCK_MONOTONIC, or, if less than the beginning of this trace, relative to it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "tool.h"
#include "trace_data.h"

#define DEPTH_MAX 32
#define NAME_BYTES 160
#define PID_MAX 1e9

struct json {
	const char *at, *end;
	unsigned depth;
	bool is_wrong;
};

struct goal_event {
	char ph[4], name[NAME_BYTES], cat[NAME_BYTES], thread_name[NAME_BYTES];
	double ts, dur, pid, tid, bytes;
};

/* ---- JSON, as much of it as is needed ---------------------------------------------------- */

static char peek(struct json *j)
{
	while (j->at < j->end && strchr(" \t\r\n", *j->at))
		j->at++;
	return j->at < j->end ? *j->at : 0;
}

static bool accept(struct json *j, char c)
{
	if (peek(j) != c || !c)
		return false;
	j->at++;
	return true;
}

static void expect(struct json *j, char c) { j->is_wrong |= !accept(j, c); }

/* Reads a string, cut at cap; escapes other than \" \\ and \/ become '?'. */
static void read_string(struct json *j, char *out, size_t cap)
{
	size_t n = 0;

	expect(j, '"');
	while (!j->is_wrong && j->at < j->end && *j->at != '"') {
		char c = *j->at++;

		if (c == '\\' && j->at < j->end) {
			c = *j->at++;
			if (c == 'u')
				j->at += base_min_u64(4, (uint64_t)(j->end - j->at));
			if (!strchr("\"\\/", c))
				c = '?';
		}
		if (n + 1 < cap)
			out[n++] = c;
	}
	if (cap)
		out[n] = 0;
	j->is_wrong |= j->at >= j->end;
	j->at += j->at < j->end;
}

static double read_number(struct json *j)
{
	char text[64], *end;
	size_t n = 0;
	double value;

	peek(j);
	while (j->at < j->end && n + 1 < sizeof text && strchr("+-.0123456789eE", *j->at))
		text[n++] = *j->at++;
	text[n] = 0;
	value = strtod(text, &end);
	j->is_wrong |= !n || *end;
	return value;
}

static void skip(struct json *j);

/* Reads members or elements until `close`; one(j, key, arg) reads a value; key is "" in arrays. */
static void each(struct json *j, char open, char close,
		 void (*one)(struct json *, const char *, void *), void *arg)
{
	char key[64] = "";

	expect(j, open);
	if (++j->depth > DEPTH_MAX)
		j->is_wrong = true;
	if (!j->is_wrong && !accept(j, close)) {
		do {
			if (open == '{') {
				read_string(j, key, sizeof key);
				expect(j, ':');
			}
			if (!j->is_wrong)
				one(j, key, arg);
		} while (!j->is_wrong && accept(j, ','));
		expect(j, close);
	}
	j->depth--;
}

static void skip_one(struct json *j, const char *key, void *arg)
{
	(void)key, (void)arg;
	skip(j);
}

static void skip(struct json *j)
{
	char c = peek(j);

	if (c == '{')
		each(j, '{', '}', skip_one, NULL);
	else if (c == '[')
		each(j, '[', ']', skip_one, NULL);
	else if (c == '"')
		read_string(j, NULL, 0);
	else if (c && strchr("tfn", c))
		while (j->at < j->end && *j->at >= 'a' && *j->at <= 'z')
			j->at++;
	else
		read_number(j);
}

/* ---- events ------------------------------------------------------------------------------ */

static void read_arg(struct json *j, const char *key, void *arg)
{
	struct goal_event *e = arg;

	if (!strcmp(key, "bytes") && peek(j) != '"')
		e->bytes = read_number(j);
	else if (!strcmp(key, "name") && peek(j) == '"')
		read_string(j, e->thread_name, sizeof e->thread_name);
	else
		skip(j);
}

static void read_member(struct json *j, const char *key, void *arg)
{
	struct goal_event *e = arg;
	const struct { const char *key; char *text; size_t cap; double *number;
	} members[] = {
		{ "ph", e->ph, sizeof e->ph, NULL },
		{ "name", e->name, sizeof e->name, NULL },
		{ "cat", e->cat, sizeof e->cat, NULL },
		{ "ts", NULL, 0, &e->ts },
		{ "dur", NULL, 0, &e->dur },
		{ "pid", NULL, 0, &e->pid },
		{ "tid", NULL, 0, &e->tid },
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(members); i++) {
		if (strcmp(key, members[i].key) || (peek(j) == '"') != !!members[i].text)
			continue;
		if (members[i].text)
			read_string(j, members[i].text, members[i].cap);
		else
			*members[i].number = read_number(j);
		return;
	}
	if (!strcmp(key, "args") && peek(j) == '{')
		each(j, '{', '}', read_arg, e);
	else
		skip(j);
}

/* Tracks of the profile by pid and tid. */
struct names { struct { double pid, tid; uint32_t track; } all[1024]; size_t count; };

struct reading {
	struct trace_view *v;
	struct names names;
	uint64_t events;
};

/* Finds the group of a process; a process of the trace has one already. */
static uint32_t group_of(const struct reading *r, double pid, char *process, size_t cap)
{
	const struct trace_data *d = r->v->data;

	snprintf(process, cap, "process %.0f", pid);
	for (uint32_t i = 0; i < d->processes_count; i++)
		if (d->processes[i].header->pid == (int32_t)pid)
			return i;
	return (uint32_t)d->processes_count + (uint32_t)pid;
}

static uint32_t track_of(struct reading *r, const struct goal_event *e)
{
	char name[NAME_BYTES + 32], process[64];
	struct names *n = &r->names;
	uint32_t group;

	for (size_t i = 0; i < n->count; i++)
		if (n->all[i].pid == e->pid && n->all[i].tid == e->tid)
			return n->all[i].track;
	group = group_of(r, e->pid, process, sizeof process);
	if (!strcmp(e->ph, "M") && e->thread_name[0])
		snprintf(name, sizeof name, "GOAL, %s", e->thread_name);
	else
		snprintf(name, sizeof name, "GOAL, %.0f", e->tid);
	if (n->count == BASE_ARRAY_LEN(n->all))
		return n->all[0].track;
	n->all[n->count].pid = e->pid;
	n->all[n->count].tid = e->tid;
	n->all[n->count].track = trace_track_add(r->v, group, process, name);
	return n->all[n->count++].track;
}

static void read_event(struct json *j, const char *key, void *arg)
{
	struct reading *r = arg;
	struct goal_event e = { .ts = -1 };
	double start_us = (double)r->v->data->start_ns / 1e3;
	struct trace_event out;

	(void)key;
	each(j, '{', '}', read_member, &e);
	if (j->is_wrong || e.pid < 0 || e.pid > PID_MAX)
		return;
	if (!strcmp(e.ph, "M") && !strcmp(e.name, "thread_name"))
		track_of(r, &e);
	if (strcmp(e.ph, "X") || e.ts < 0 || e.dur < 0 || e.ts > 1e15 || e.dur > 1e15)
		return;
	out = (struct trace_event){
		.begin_ns = (uint64_t)((e.ts >= start_us ? e.ts - start_us : e.ts) * 1e3 + 0.5),
		.dur_ns = (uint64_t)(e.dur * 1e3 + 0.5),
		.bytes = e.bytes > 0 ? (uint64_t)e.bytes : 0,
		.track = track_of(r, &e),
		.label = trace_string(r->v, e.name),
		.detail = trace_string(r->v, e.cat),
		.kind = TRACE_SHOW_GOAL,
	};
	trace_event_add(r->v, &out);
	r->events++;
}

static void read_top(struct json *j, const char *key, void *arg)
{
	if (!strcmp(key, "traceEvents") && peek(j) == '[')
		each(j, '[', ']', read_event, arg);
	else
		skip(j);
}

/* Returns: the contents, or NULL after a message. Owner: the caller. */
static char *read_file(const char *path, size_t *out_bytes)
{
	FILE *f = fopen(path, "re");
	size_t cap = 1 << 16, n;
	char *text = malloc(cap);

	*out_bytes = 0;
	while (f && text && (n = fread(text + *out_bytes, 1, cap - *out_bytes, f)) > 0) {
		*out_bytes += n;
		if (*out_bytes == cap)
			text = realloc(text, cap *= 2);
	}
	if (!f || !text || ferror(f)) {
		tool_say("trace: cannot read %s: %s", path, strerror(errno));
		free(text);
		text = NULL;
	}
	if (f)
		fclose(f);
	return text;
}

int trace_goal_read(struct trace_view *v, const char *path)
{
	struct reading *r = trace_alloc(sizeof *r);
	size_t bytes;
	char *text = read_file(path, &bytes);
	struct json j = { .at = text, .end = text ? text + bytes : NULL };

	r->v = v;
	if (!text) {
		free(r);
		return -EIO;
	}
	if (peek(&j) == '[')
		each(&j, '[', ']', read_event, r);
	else
		each(&j, '{', '}', read_top, r);
	if (j.is_wrong)
		tool_say("trace: %s is no trace-event JSON (byte %td); %" PRIu64
			 " events of it are shown",
			 path, j.at - text, r->events);
	free(text);
	free(r);
	return j.is_wrong ? -EINVAL : 0;
}
