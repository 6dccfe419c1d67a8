/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads trace files, and trusts nothing in them: a process may have died in the middle of a
 * write. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "tool.h"
#include "trace/reasons.h"
#include "trace_data.h"

void *trace_alloc(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	if (!p) {
		tool_say("trace: out of memory");
		exit(TOOL_FAILED);
	}
	return p;
}

void *trace_add(void *array, size_t *count, size_t *cap, size_t bytes)
{
	char *all = *(char **)array;

	if (*count == *cap) {
		size_t more = *cap ? *cap * 2 : 64;
		char *grown = trace_alloc(more * bytes);

		if (all)
			memcpy(grown, all, *count * bytes);
		free(all);
		*(char **)array = all = grown;
		*cap = more;
	}
	return all + bytes * (*count)++;
}

/* ---- one file ---------------------------------------------------------------------------- */

const char *trace_text_of(const struct trace_process *p, uint16_t text)
{
	const struct trace_text *t = (const struct trace_text *)(p->base + TRACE_TEXTS_AT) + text;

	if (!text || text >= TRACE_TEXTS || !t->is_set || t->text[sizeof t->text - 1])
		return "";
	return t->text;
}

static const char *why_not(const struct trace_header *h, uint64_t bytes)
{
	if (bytes < TRACE_HEADER_BYTES)
		return "is too short for a trace";
	if (memcmp(h->magic, TRACE_MAGIC, sizeof h->magic))
		return "is no trace, or its process died while it created the file";
	if (h->version != TRACE_VERSION || h->header_bytes != TRACE_HEADER_BYTES)
		return "was written by another version of Sluice";
	if (h->first_ns > TRACE_NS_MOST || h->start_ns > TRACE_NS_MOST ||
	    h->start_realtime_ns > 4 * TRACE_NS_MOST)
		return "is damaged: its clocks are wrong";
	if (h->program[sizeof h->program - 1] || h->host[sizeof h->host - 1])
		return "is damaged: its names have no end";
	return NULL;
}

/* Returns: 0, or -errno after a message. */
static int map_file(const char *path, struct trace_process *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret = 0;
	const char *why;
	struct stat st;
	void *base;

	if (fd < 0 || fstat(fd, &st)) {
		ret = -errno;
		tool_say("trace: cannot read %s: %s", path, strerror(-ret));
		if (fd >= 0)
			close(fd);
		return ret;
	}
	base = st.st_size ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
	ret = base == MAP_FAILED ? -errno : 0;
	close(fd);
	why = ret ? strerror(-ret) : why_not(base, (uint64_t)st.st_size);
	if (why) {
		tool_say("trace: %s %s: ignored", path, why);
		return ret ? ret : -EINVAL;
	}
	out->path = strdup(path);
	out->header = base;
	out->base = base;
	out->bytes = (uint64_t)st.st_size;
	out->chunks = (uint32_t)base_min_u64(
		(out->bytes - TRACE_HEADER_BYTES) / TRACE_CHUNK_BYTES,
		base_min_u64(out->header->chunk_next, out->header->chunk_cap));
	return 0;
}

const char *trace_thread_name(const struct trace_process *p, uint32_t thread)
{
	for (uint32_t i = 0; i < p->chunks; i++) {
		const struct trace_chunk *c = trace_chunk_at(p, i);

		if (c->kind != TRACE_CHUNK_FREE && c->thread == thread &&
		    !c->name[sizeof c->name - 1])
			return c->name;
	}
	return "thread";
}

/* ---- records ----------------------------------------------------------------------------- */

static void add_copy(struct trace_data *d, uint32_t process, uint32_t thread,
		     const struct trace_record *r)
{
	const struct trace_process *p = &d->processes[process];
	struct trace_copied *c = TRACE_ADD(d, copies);

	*c = (struct trace_copied){
		.bytes = r->copy.bytes,
		.op = r->copy.op,
		.process = process,
		.thread = thread,
		.group = r->copy.group,
		.call = TRACE_NO_CALL,
		.unit = r->copy.unit,
		.src = r->copy.src,
		.dst = r->copy.dst,
		.by = r->copy.by,
		.mover = r->copy.mover,
		.more = r->copy.more,
	};
	if (!r->begin)
		return;
	c->begin_ns = trace_ns_of(d, p, r->begin);
	c->end_ns = trace_ns_of(d, p, r->end);
}

/* Adds the copies that a call's own record contains. */
static void add_moved(struct trace_data *d, uint32_t process, uint32_t thread,
		      const struct trace_record *r)
{
	struct trace_copied all = { .op = r->call.op,
				    .process = process,
				    .thread = thread,
				    .group = r->call.group,
				    .call = TRACE_NO_CALL,
				    .src = r->rank,
				    .dst = r->rank,
				    .by = r->rank };

	if (r->flags & TRACE_OWN_PART) {
		all.bytes = r->call.bytes;
		*TRACE_ADD(d, copies) = all;
	}
	*(r->flags & TRACE_TO_PEER ? &all.dst : &all.src) = r->call.peer;
	if (r->call.edges) {
		all.bytes = r->call.edges;
		all.mover = TRACE_EDGES;
		*TRACE_ADD(d, copies) = all;
	}
	if (!r->call.moved)
		return;
	all.bytes = r->call.moved;
	all.mover = r->call.mover;
	all.more = r->call.more;
	*TRACE_ADD(d, copies) = all;
}

static void add_call(struct trace_data *d, uint32_t process, uint32_t thread,
		     const struct trace_record *r)
{
	const struct trace_process *p = &d->processes[process];
	struct trace_call *c = TRACE_ADD(d, calls);

	*c = (struct trace_call){
		.begin_ns = trace_ns_of(d, p, r->begin),
		.end_ns = trace_ns_of(d, p, r->end),
		.bytes = r->call.bytes,
		.op = r->call.op,
		.process = process,
		.thread = thread,
		.id = r->call.id,
		.group = r->call.group,
		.place = trace_place_of_record(p, r->call.site),
		.why = r->call.why,
		.early_why = r->call.early_why,
		.rank = r->rank,
		.ranks = r->ranks,
		.root = r->root,
		.ops = r->call.ops,
		.outcome = r->call.outcome,
		.region = r->call.region,
		.is_root = r->flags & TRACE_IS_ROOT,
		.detached = TRACE_NO_CALL,
	};
	add_moved(d, process, thread, r);
}

/* Adds the next call of a row. Returns: false after the last one. */
static bool add_repeat(struct trace_data *d, uint32_t process, uint32_t thread,
		       const struct trace_record *alike, struct trace_record *call, uint64_t repeat)
{
	const struct trace_process *p = &d->processes[process];
	const struct trace_repeats *row = (const struct trace_repeats *)(alike + 1);
	uint64_t ticks = repeat % TRACE_REPEAT_MOST_TICKS, moved = repeat / TRACE_REPEAT_MOVED % 4;

	if (!(repeat & TRACE_REPEAT_IS_USED))
		return false;
	call->begin += repeat / TRACE_REPEAT_MOST_TICKS % TRACE_REPEAT_MOST_BEGIN;
	call->end = call->begin + ticks;
	call->call.op += repeat / (TRACE_REPEAT_MOST_TICKS * TRACE_REPEAT_MOST_BEGIN) %
			 TRACE_REPEAT_MOST_OPS;
	call->call.moved = moved ? row[moved - 1].moved : 0;
	call->call.more = moved ? row[moved - 1].more : 0;
	call->call.edges = repeat & TRACE_REPEAT_HAS_EDGES ? alike->call.edges : 0;
	add_call(d, process, thread, call);
	d->processes[process].records++;
	if (!(call->flags & TRACE_IS_COUNTED)) {
		struct trace_place *place = &d->places[d->calls[d->calls_count - 1].place];

		place->totals.calls++;
		place->totals.bytes += call->call.bytes;
		place->totals.admitted += call->call.outcome == TRACE_ADMITTED;
		place->in_call_ns += (uint64_t)((double)ticks * p->ns_per_tick);
	}
	return true;
}

static void add_row(struct trace_data *d, uint32_t process, uint32_t thread,
		    const struct trace_record *alike)
{
	const struct trace_repeats *row = (const struct trace_repeats *)(alike + 1);
	struct trace_record call = *alike;

	call.call.id = 0; /* nothing refers to them */
	for (uint32_t i = 0; i < TRACE_REPEAT_RECORDS && row[i].type == TRACE_REPEATS; i++)
		for (uint32_t k = 0; k < TRACE_REPEATS_PER_RECORD; k++)
			if (!add_repeat(d, process, thread, alike, &call, row[i].each[k]))
				return;
}

static void add_touch(struct trace_data *d, uint32_t process, const struct trace_record *r)
{
	const struct trace_process *p = &d->processes[process];
	struct trace_touch *t = TRACE_ADD(d, touches);

	*t = (struct trace_touch){
		.begin_ns = trace_since_start(d, p, r->begin),
		.end_ns = trace_since_start(d, p, r->end),
		.offset = r->touch.offset, .address = r->touch.address, .process = process,
		.thread = r->touch.thread, .is_write = r->flags & TRACE_IS_WRITE,
		.call = TRACE_NO_CALL, .caller = r->touch.caller, .id = r->touch.id,
	};
}

/* Converts a time of this record to nanoseconds since the start. */
static uint64_t when(const struct trace_data *d, uint32_t process, const struct trace_record *r,
		     uint64_t time)
{
	const struct trace_process *p = &d->processes[process];

	return r->flags & TRACE_IN_NS ? trace_since_start(d, p, time) : trace_ns_of(d, p, time);
}

static void add_detached_record(struct trace_data *d, uint32_t process,
				const struct trace_record *r)
{
	struct trace_detached *l = TRACE_ADD(d, detached);

	*l = (struct trace_detached){
		.begin_ns = when(d, process, r, r->begin),
		.end_ns = when(d, process, r, r->end),
		.wanted_ns = r->detached.wanted ? when(d, process, r, r->detached.wanted) : 0,
		.waited_ns = when(d, process, r, r->begin + r->detached.waited) -
			     when(d, process, r, r->begin),
		.process = process,
		.touches = r->detached.touches,
		.by_call = r->flags & TRACE_BY_CALL,
		.call = TRACE_NO_CALL,
		.caller = r->detached.caller,
		.id = r->detached.id,
		.op = r->detached.op,
		.group = r->detached.group,
		.rank = r->rank,
		.ranks = r->ranks,
	};
}

static void add_activity(struct trace_data *d, uint32_t process, uint32_t thread,
		     const struct trace_record *r)
{
	const struct trace_process *p = &d->processes[process];
	struct trace_place *place = &d->places[trace_place_of_record(p, r->activity.site)];
	struct trace_activity *s = TRACE_ADD(d, spans);

	*s = (struct trace_activity){ trace_since_start(d, p, r->begin),
				  trace_since_start(d, p, r->end),
				  r->activity.bytes,
				  process,
				  thread,
				  r->activity.text };
	if (strcmp(trace_text_of(p, r->activity.text), TRACE_ADOPTION))
		return;
	place->adopted += r->activity.bytes;
	place->adopt_ns += r->end - r->begin;
}

static void add_turn(struct trace_data *d, uint32_t process, uint32_t thread,
		     const struct trace_record *r)
{
	*TRACE_ADD(d, turns) = (struct trace_turn){
		.begin_ns = trace_ns_of(d, &d->processes[process], r->begin),
		.end_ns = trace_ns_of(d, &d->processes[process], r->end),
		.process = process,
		.thread = thread,
		.switches = r->turn.switches,
		.trips = r->turn.trips,
		.handoffs = r->turn.handoffs,
		.stays = r->turn.stays,
	};
}

static void read_records(struct trace_data *d, uint32_t process, const struct trace_chunk *c)
{
	const struct trace_record *r = (const struct trace_record *)(c + 1);

	for (uint32_t i = 0; i < TRACE_RECORDS_PER_CHUNK; i++, r++) {
		if (r->type == TRACE_NOTHING || r->type >= TRACE_REPEATS || r->end < r->begin)
			continue;
		if (r->type == TRACE_TEMPLATE) {
			if (i + TRACE_REPEAT_RECORDS < TRACE_RECORDS_PER_CHUNK)
				add_row(d, process, c->thread, r);
			continue;
		}
		d->processes[process].records++;
		if (r->type == TRACE_CALL)
			add_call(d, process, c->thread, r);
		else if (r->type == TRACE_COPY)
			add_copy(d, process, c->thread, r);
		else if (r->type == TRACE_TOUCH)
			add_touch(d, process, r);
		else if (r->type == TRACE_DETACHED)
			add_detached_record(d, process, r);
		else if (r->type == TRACE_TURN)
			add_turn(d, process, c->thread, r);
		else
			add_activity(d, process, c->thread, r);
	}
}

static uint64_t ns_long(const struct trace_process *p, uint64_t ticks)
{
	double ns = (double)ticks * p->ns_per_tick;

	return ns < (double)TRACE_NS_MOST ? (uint64_t)ns : TRACE_NS_MOST;
}

/* Returns: the time of all small calls of a site, as far as a sample of them was timed. */
static uint64_t sampled_long(const struct trace_process *p, const struct trace_totals *t)
{
	double many = (double)t->small_calls - TRACE_ALWAYS_TIMED, ns;

	if (!t->sampled || many < 0)
		return 0;
	ns = (double)ns_long(p, t->sampled_ticks) / (double)t->sampled * many;
	return ns < (double)TRACE_NS_MOST ? (uint64_t)ns : TRACE_NS_MOST;
}

/* Returns: the factor of sampled times. A call that lost its CPU, and happened to be in the sample,
 * stands for many: then the sample says more than the thread had time for. */
static double sample_share(const struct trace_process *p, const struct trace_totals *t)
{
	uint64_t rest = p->end_ns - p->begin_ns, sampled = 0;

	for (uint32_t i = 0; i < TRACE_SITES; i++, t++) {
		rest -= base_min_u64(rest, ns_long(p, t->ticks));
		if (!trace_is_of_messages(p, i))
			sampled += sampled_long(p, t);
	}
	return sampled > rest ? (double)rest / (double)sampled : 1;
}

static void add_messages(struct trace_place *place, const struct trace_process *p,
			 const struct trace_totals *t)
{
	struct trace_totals *sum = &place->totals;

	sum->calls += t->calls;
	sum->bytes += t->bytes;
	sum->copies += t->copies;
	sum->copied += t->copied;
	sum->served += t->served;
	place->in_call_ns += ns_long(p, t->ticks);
	place->copying_ns += ns_long(p, t->copied_ticks);
}

/* own: of this process, by place. */
static void read_totals(struct trace_data *d, const struct trace_process *p,
			const struct trace_chunk *c, struct trace_own *own)
{
	const struct trace_totals *t = (const struct trace_totals *)(c + 1);
	double share = sample_share(p, t);

	for (uint32_t i = 0; i < TRACE_SITES; i++, t++) {
		struct trace_place *place = trace_place_of(d, p, i);
		struct trace_totals *sum = &place->totals;
		uint64_t ns = ns_long(p, t->ticks), sampled_ns;

		if (trace_is_of_messages(p, i))
			add_messages(place, p, t);
		if (!t->calls || trace_is_of_messages(p, i))
			continue;
		sum->calls += t->calls;
		sum->bytes += t->bytes;
		sum->small_calls += t->small_calls;
		sum->small_bytes += t->small_bytes;
		sum->admitted += t->admitted;
		sum->early += t->early;
		sampled_ns = (uint64_t)((double)sampled_long(p, t) * share);
		place->in_call_ns += ns;
		place->sampled_ns += sampled_ns;
		own[p->place_of_site[i]].calls += t->calls;
		own[p->place_of_site[i]].ns += ns + sampled_ns;
	}
}

static void add_process(struct trace_place *p, const struct trace_own *own)
{
	if (!own->calls)
		return;
	if (!p->processes++)
		p->least = *own;
	p->least.calls = base_min_u64(p->least.calls, own->calls);
	p->least.ns = base_min_u64(p->least.ns, own->ns);
	p->most.calls = base_max_u64(p->most.calls, own->calls);
	p->most.ns = base_max_u64(p->most.ns, own->ns);
}

static void read_process(struct trace_data *d, uint32_t process)
{
	struct trace_process *p = &d->processes[process];
	size_t first_call = d->calls_count;
	struct trace_own *own;

	trace_places_read(d, p);
	own = trace_alloc(d->places_count * sizeof *own);
	snprintf(p->engine, sizeof p->engine, "%s", trace_text_of(p, p->header->engine));
	snprintf(p->guard, sizeof p->guard, "%s", trace_text_of(p, p->header->guard));
	for (uint32_t i = 0; i < p->chunks; i++)
		if (trace_chunk_at(p, i)->kind == TRACE_CHUNK_RECORDS)
			read_records(d, process, trace_chunk_at(p, i));
	trace_find_end(d, p, first_call);
	for (uint32_t i = 0; i < p->chunks; i++)
		if (trace_chunk_at(p, i)->kind == TRACE_CHUNK_TOTALS)
			read_totals(d, p, trace_chunk_at(p, i), own);
	for (size_t i = 0; i < d->places_count; i++)
		add_process(&d->places[i], &own[i]);
	free(own);
}

/* ---- the folder -------------------------------------------------------------------------- */

static int by_rank(const void *a, const void *b)
{
	const struct trace_header *x = ((const struct trace_process *)a)->header;
	const struct trace_header *y = ((const struct trace_process *)b)->header;

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return (x->start_ns > y->start_ns) - (x->start_ns < y->start_ns);
}

static bool is_trace_name(const char *name)
{
	const char *end = strrchr(name, '.');

	return end && !strcmp(end, ".sluice");
}

int trace_read(const char *folder, struct trace_data *out)
{
	DIR *dir = opendir(folder);
	struct dirent *e;
	char path[4096];

	*out = (struct trace_data){ .start_ns = UINT64_MAX };
	if (!dir)
		return -errno;
	while ((e = readdir(dir))) {
		struct trace_process p = { 0 };

		if (!is_trace_name(e->d_name))
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
		if (!map_file(path, &p))
			*TRACE_ADD(out, processes) = p;
	}
	closedir(dir);
	if (!out->processes_count)
		return -ENODATA;
	qsort(out->processes, out->processes_count, sizeof *out->processes, by_rank);
	trace_find_start(out);
	for (size_t i = 0; i < out->processes_count; i++)
		read_process(out, (uint32_t)i);
	return 0;
}
