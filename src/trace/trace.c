/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and stop; records other than calls: copies, touches, ends, spans. */
#include <pthread.h>
#include <stdio.h>

#include "os/endpoint.h"
#include "os/os.h"
#include "trace/private.h"

bool trace_on;
bool trace_ticks_are_ns = true;
static uint64_t start_cpu_us, start_cpu_wait_us;

static void after_fork_child(void) { trace_on = false; }

/* ---- ranks that share an address space (endpoints/) -------------------------------------- */

enum { TURN_TICKS = 1 << 18 }; /* some 100 us: one record for so long */

static struct trace_turns noted; /* written by the rank's first thread */
static uint64_t turns_since;

static void turns_start(void)
{
	struct trace_header *h = file_header();
	const struct endpoint_space *space = endpoint_space;
	uint32_t count = space ? atomic_load_explicit(&space->count, memory_order_relaxed) : 0;
	size_t used = 0, cap = sizeof h->endpoint;

	if (endpoint_refusal)
		snprintf(h->endpoint, cap, "stays a process: %s", endpoint_refusal);
	for (uint32_t i = 0; i < count && used + 1 < cap; i++)
		used += (size_t)snprintf(h->endpoint + used, cap - used, "%s %d",
					 i ? "," : "shares its address space: ranks",
					 space->rank[i].rank);
	turns_since = trace_ticks();
}

void turns_note(uint64_t now, bool is_last)
{
	const struct endpoint *e = endpoint_self;
	struct trace_record *r;

	if (base_likely(!e) || record_thread() != (uint32_t)e->home_pid)
		return;
	if (e->switches == noted.switches && e->trips == noted.trips) {
		turns_since = now;
		return;
	}
	if (now - turns_since < TURN_TICKS && !is_last)
		return;
	r = record_begin();
	if (r) {
		r->begin = turns_since;
		r->end = now;
		r->turn.switches = (uint32_t)(e->switches - noted.switches);
		r->turn.trips = (uint32_t)(e->trips - noted.trips);
		r->turn.handoffs = (uint32_t)(e->handoffs - noted.handoffs);
		r->turn.stays = (uint32_t)(e->stays - noted.stays);
		record_end(r, TRACE_TURN, 0);
	}
	noted = (struct trace_turns){ e->switches, e->trips, e->handoffs, e->stays };
	file_header()->turns = noted;
	turns_since = now;
}

/* ---- start and stop ---------------------------------------------------------------------- */

/* Returns: for how long the main thread was ready to run and had no CPU; 0: not known. */
static uint64_t cpu_wait_us(void)
{
	unsigned long long ns = 0;
	char text[64];

	if (os_procfile_read("/proc/self/schedstat", text, sizeof text) > 0)
		sscanf(text, "%*u %llu", &ns);
	return ns / 1000;
}

void trace_start(int world_rank)
{
	static bool was_started;
	uint64_t first_ticks, first_ns;

	if (!base_opt.trace[0] || was_started)
		return;
	was_started = true;
	trace_ticks_are_ns = !os_has_steady_ticks();
	file_read_clocks(&first_ticks, &first_ns);
	if (file_open(world_rank))
		return;
	file_header()->first_ticks = first_ticks;
	file_header()->first_ns = first_ns;
	file_header()->ticks_are_ns = trace_ticks_are_ns;
	pthread_atfork(NULL, NULL, after_fork_child);
	start_cpu_us = base_cpu_us();
	start_cpu_wait_us = cpu_wait_us();
	turns_start();
	trace_on = true;
}

void trace_stop(void)
{
	if (!trace_on)
		return;
	turns_note(trace_ticks(), true);
	trace_on = false;
	file_read_clocks(&file_header()->end_ticks, &file_header()->end_ns);
	file_header()->cpu_us = base_cpu_us() - start_cpu_us;
	file_header()->cpu_wait_us = cpu_wait_us() - start_cpu_wait_us;
	atomic_store_explicit(&file_header()->state, TRACE_ENDED, memory_order_release);
}

void trace_engine(const char *name)
{
	if (trace_is_on())
		file_header()->engine = text_index(name);
}

void trace_guard(const char *name)
{
	if (trace_is_on())
		file_header()->guard = text_index(name);
}

/* ---- copies ------------------------------------------------------------------------------ */

/* Short copies are many, and their cost matters most: those of one transfer share a record. */
static bool add_to_last(struct trace_record *last, const struct trace_copy *c)
{
	if (!last || last->begin ||
	    atomic_load_explicit(&last->type, memory_order_relaxed) != TRACE_COPY ||
	    last->copy.op != c->op || last->copy.group != c->group || last->copy.src != c->src ||
	    last->copy.dst != c->dst || last->copy.mover != c->mover ||
	    last->copy.more == UINT8_MAX)
		return false;
	last->copy.bytes += c->bytes;
	last->copy.more++;
	return true;
}

/* A call's record has one peer and one direction. */
static bool is_of_peer(struct trace_record *r, const struct trace_copy *c)
{
	bool is_to_peer = c->dst != r->rank;
	int peer = is_to_peer ? c->dst : c->src;

	/* a reduction reads the contributions of all ranks */
	if (is_to_peer && c->src != r->rank && c->src != TRACE_FROM_ALL)
		return false;
	if (r->call.moved || r->call.edges)
		return r->call.peer == peer && !(r->flags & TRACE_TO_PEER) == !is_to_peer;
	r->flags |= is_to_peer ? TRACE_TO_PEER : 0;
	r->call.peer = (uint16_t)peer;
	return true;
}

static bool add_fragment(struct trace_record *r, const struct trace_copy *c)
{
	if (c->mover == TRACE_EDGES) {
		if (r->call.edges || c->bytes > UINT16_MAX)
			return false;
		r->call.edges = (uint16_t)c->bytes;
		return true;
	}
	if (r->call.moved && (r->call.mover != c->mover || r->call.more == UINT8_MAX))
		return false;
	if (c->bytes > UINT32_MAX - r->call.moved)
		return false;
	r->call.more += !!r->call.moved;
	r->call.mover = c->mover;
	r->call.moved += (uint32_t)c->bytes;
	return true;
}

/* Copies of a rank in its call, with one peer and with itself, go into the call's record. */
static bool add_to_call(const struct trace_copy *c)
{
	struct trace_record *r = &trace_current.record;

	if (!trace_current.depth || r->call.ops != 1 || c->op != r->call.op ||
	    c->group != r->call.group || c->by != r->rank)
		return false;
	repeats_fetch(trace_current.recent);
	if (c->src != c->dst)
		return c->bytes && is_of_peer(r, c) && add_fragment(r, c);
	if (c->bytes != r->call.bytes || r->flags & TRACE_OWN_PART)
		return false;
	r->flags |= TRACE_OWN_PART;
	return true;
}

void trace_row_end_on(uint64_t now)
{
	if (trace_current.row.of && trace_current.row.has_followers)
		trace_current.row.record->end = now ? now : trace_ticks();
	trace_current.row.of = NULL;
}

uint64_t trace_row_begin_on(const void *row, uint64_t op)
{
	uint64_t now = trace_ticks();

	if (atomic_load_explicit(&trace_current.is_changing, memory_order_relaxed))
		return now; /* belongs to no row */
	trace_row_end_on(now);
	trace_current.row.record = NULL;
	trace_current.row.has_followers = false;
	trace_current.row.op = op;
	trace_current.row.of = row;
	return now;
}

static bool is_in_row(const struct trace_copy *c)
{
	return c->row && trace_current.row.of == c->row && trace_current.row.op == c->op;
}

/* Returns: false when the copy needs a record of its own. */
static bool add_to_row(const struct trace_copy *c)
{
	struct trace_record *r = trace_current.row.record;

	if (!is_in_row(c) || !r || r->copy.more == UINT8_MAX || r->copy.mover != c->mover)
		return false;
	trace_current.row.has_followers = true;
	r->copy.bytes += c->bytes;
	r->copy.more++;
	if (c->is_last)
		trace_row_end_on(0);
	return true;
}

/* Returns: true when an earlier record has taken the copy. */
static bool add_to_earlier(uint64_t since, const struct trace_copy *c)
{
	bool is_added;

	if (since > TRACE_FOLLOWS ||
	    atomic_load_explicit(&trace_current.is_changing, memory_order_relaxed))
		return false;
	/* read by handlers of this thread only */
	atomic_store_explicit(&trace_current.is_changing, true, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	is_added =
		since ? add_to_row(c) : add_to_call(c) || add_to_last(trace_current.last_copy, c);
	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&trace_current.is_changing, false, memory_order_relaxed);
	return is_added;
}

void trace_copied_on(uint64_t since, const struct trace_copy *c)
{
	uint64_t now = since > TRACE_FOLLOWS ? trace_ticks() : 0;
	struct trace_record *r;

	if (add_to_earlier(since, c))
		return;
	if (!now)
		since = 0;
	r = record_begin();
	trace_current.last_copy = r;
	if (now && is_in_row(c)) {
		trace_current.row.record = r;
		if (c->is_last || !r)
			trace_current.row.of = NULL;
	}
	if (!r)
		return;
	r->begin = since;
	r->end = now;
	r->copy.bytes = c->bytes;
	r->copy.op = c->op;
	r->copy.group = c->group;
	r->copy.unit = (uint16_t)c->unit;
	r->copy.src = (uint16_t)c->src;
	r->copy.dst = (uint16_t)c->dst;
	r->copy.by = (uint16_t)c->by;
	r->copy.mover = (uint8_t)c->mover;
	record_end(r, TRACE_COPY, 0);
}

void trace_touch_on(struct trace_name call, uint64_t begin_ns, uintptr_t address, uintptr_t start,
		      int thread, bool is_write)
{
	struct trace_record *r = record_begin();

	trace_row_end_on(0);
	if (!r)
		return;
	r->begin = begin_ns;
	r->end = os_now_ns();
	r->touch.address = address;
	r->touch.offset = address - start;
	r->touch.id = call.id;
	r->touch.caller = call.thread;
	r->touch.thread = (uint32_t)thread;
	record_end(r, TRACE_TOUCH, TRACE_IN_NS | (is_write ? TRACE_IS_WRITE : 0));
}

void trace_detached_on(struct trace_name call, uint64_t detached_ns, uint64_t wanted_ns,
		       uint64_t waited_ns, uint32_t touches, bool is_called)
{
	struct trace_record *r = record_begin();

	if (!r)
		return;
	r->begin = detached_ns;
	r->end = os_now_ns();
	r->detached.wanted = wanted_ns;
	r->detached.waited = waited_ns;
	r->detached.touches = touches;
	r->detached.id = call.id;
	r->detached.caller = call.thread;
	record_end(r, TRACE_DETACHED, TRACE_IN_NS | (is_called ? TRACE_BY_CALL : 0));
}

void trace_activity_on(const char *text, uint64_t begin_ns, uint64_t bytes)
{
	struct trace_record *r = record_begin();

	if (!r)
		return;
	r->begin = begin_ns;
	r->end = os_now_ns();
	r->activity.bytes = bytes;
	r->activity.text = text_index(text);
	r->activity.site = trace_current.depth ? trace_current.record.call.site : 0;
	record_end(r, TRACE_ACTIVITY, TRACE_IN_NS);
}
