/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes trace events for Perfetto and Chrome: a process for each rank, a thread for each CPU, an
 * arrow for each message. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "goal_sim.h"

#define EVENTS_MAX 1000000u /* about 200 MB, the most that a viewer takes */

struct goal_timeline {
	FILE *out;
	uint64_t count, omitted;
	const char *comma;
};

int goal_timeline_open(struct goal_sim *g)
{
	struct goal_timeline *t = calloc(1, sizeof *t);

	if (t)
		t->out = fopen(g->o.timeline, "we");
	if (!t || !t->out) {
		tool_say("goal sim: cannot write %s: %s", g->o.timeline, strerror(errno));
		free(t);
		return TOOL_FAILED;
	}
	t->comma = "";
	fputs("{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n", t->out);
	g->timeline = t;
	return TOOL_DONE;
}

/* Chrome's unit: microseconds. */
static void put_time(FILE *out, const char *key, uint64_t ps)
{
	fprintf(out, ", \"%s\": %" PRIu64 ".%06" PRIu64, key, ps / 1000000, ps % 1000000);
}

static void begin_event(struct goal_timeline *t, const char *phase, const struct sim_interval *s,
			uint64_t ps)
{
	fprintf(t->out, "%s{\"ph\": \"%s\", \"pid\": %" PRIu32 ", \"tid\": %u", t->comma, phase,
		s->rank, s->cpu);
	put_time(t->out, "ts", ps);
	t->comma = ",\n";
	t->count++;
}

/* Labels are words: no character needs a backslash. */
static void put_interval(struct goal_sim *g, const struct sim_interval *s)
{
	static const char *const words[] = {
		[SIM_SEND] = "send", [SIM_RECEIVE] = "receive", [SIM_LOCAL] = "local"
	};
	struct goal_timeline *t = g->timeline;
	bool is_receive = s->kind == SIM_RECEIVE;
	char name[160];

	goal_sim_name(g, is_receive ? s->peer : s->rank, s->op, s->type, s->bytes,
		      is_receive ? s->rank : s->peer, s->tag, name, sizeof name);
	begin_event(t, "X", s, s->begin_ps);
	put_time(t->out, "dur", s->end_ps - s->begin_ps);
	if (is_receive)
		fprintf(t->out,
			", \"name\": \"receive from %" PRIu32 "\", \"args\": {\"of\": \"%s\"}",
			s->peer, name);
	else
		fprintf(t->out, ", \"name\": \"%s\"", name);
	fprintf(t->out, ", \"cat\": \"%s\"}", words[s->kind]);
}

static void put_arrow(struct goal_sim *g, const struct sim_interval *s)
{
	bool is_send = s->kind == SIM_SEND;

	begin_event(g->timeline, is_send ? "s" : "f", s, s->begin_ps);
	fprintf(g->timeline->out,
		", \"id\": \"%" PRIu32 ".%" PRIu32
		"\", \"name\": \"message\", \"cat\": \"message\"%s}",
		is_send ? s->rank : s->peer, s->op, is_send ? "" : ", \"bp\": \"e\"");
}

void goal_timeline_interval(struct goal_sim *g, const struct sim_interval *s)
{
	struct goal_timeline *t = g->timeline;
	bool is_inside = s->peer >= g->o.timeline_first && s->peer < g->o.timeline_end;

	if (t->count >= EVENTS_MAX) {
		t->omitted++;
		return;
	}
	put_interval(g, s);
	if (s->kind != SIM_LOCAL && is_inside)
		put_arrow(g, s);
}

int goal_timeline_close(struct goal_sim *g)
{
	struct goal_timeline *t = g->timeline;
	uint32_t end = g->o.timeline_end < g->config.ranks ? g->o.timeline_end : g->config.ranks;
	int failed;

	for (uint32_t r = g->o.timeline_first; r < end && r - g->o.timeline_first < EVENTS_MAX;
	     r++) {
		fprintf(t->out,
			"%s{\"ph\": \"M\", \"pid\": %" PRIu32 ", \"name\": \"process_name\", ",
			t->comma, r);
		fprintf(t->out, "\"args\": {\"name\": \"rank %" PRIu32 "\"}}", r);
		t->comma = ",\n";
	}
	fputs("\n]}\n", t->out);
	failed = ferror(t->out);
	failed |= fclose(t->out);
	if (failed)
		tool_say("goal sim: cannot write %s: %s", g->o.timeline,
			 strerror(errno ? errno : EIO));
	if (t->omitted)
		tool_say("goal sim: %s holds the first %u events, %" PRIu64
			 " intervals were omitted; choose fewer ranks with --timeline-ranks",
			 g->o.timeline, EVENTS_MAX, t->omitted);
	free(t);
	g->timeline = NULL;
	return failed ? TOOL_FAILED : TOOL_DONE;
}
