/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and stop, and what happens besides calls: copies, touches, ends, spans. */
#include <pthread.h>
#include <unistd.h>

#include "trace/private.h"

bool trace_on;
bool trace_ticks_are_ns = true;

static void after_fork_child(void) { trace_on = false; }

void trace_start(int world_rank)
{
	static bool was_started;
	uint64_t first_ticks, first_ns;

	if (!base_opt.trace[0] || was_started)
		return;
	was_started = true;
	trace_ticks_are_ns = !host_has_steady_ticks();
	file_read_clocks(&first_ticks, &first_ns);
	if (file_open(world_rank))
		return;
	file_header()->first_ticks = first_ticks;
	file_header()->first_ns = first_ns;
	file_header()->ticks_are_ns = trace_ticks_are_ns;
	pthread_atfork(NULL, NULL, after_fork_child);
	trace_on = true;
}

void trace_stop(void)
{
	if (!trace_on)
		return;
	trace_on = false;
	file_read_clocks(&file_header()->end_ticks, &file_header()->end_ns);
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

/* Short copies come in rows, and time counts most there: those of one transfer share a record. */
static bool add_to_last(struct trace_record *last, const struct trace_copy *c)
{
	if (!last || last->begin || atomic_load_explicit(&last->type, memory_order_relaxed) != TRACE_COPY ||
	    last->copy.op != c->op || last->copy.group != c->group || last->copy.src != c->src ||
	    last->copy.dst != c->dst || last->copy.mover != c->mover || last->copy.more == UINT8_MAX)
		return false;
	last->copy.bytes += c->bytes;
	last->copy.more++;
	return true;
}

void trace_copied_on(uint64_t since, const struct trace_copy *c)
{
	static __thread struct trace_record *last __attribute__((tls_model("initial-exec")));
	uint64_t now = since ? trace_ticks() : 0;
	struct trace_record *r;

	if (!since && add_to_last(last, c))
		return;
	r = record_begin();
	last = r;
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

void trace_touched_on(struct trace_name call, uint64_t begin_ns, uintptr_t address, uintptr_t start, int thread,
		      bool is_write)
{
	struct trace_record *r = record_begin();

	if (!r)
		return;
	r->begin = begin_ns;
	r->end = host_now_ns();
	r->touch.address = address;
	r->touch.offset = address - start;
	r->touch.id = call.id;
	r->touch.caller = call.thread;
	r->touch.thread = (uint32_t)thread;
	record_end(r, TRACE_TOUCH, TRACE_IN_NS | (is_write ? TRACE_IS_WRITE : 0));
}

void trace_left_on(struct trace_name call, uint64_t left_ns, uint64_t wanted_ns, uint64_t waited_ns, uint32_t touches,
		   bool is_called)
{
	struct trace_record *r = record_begin();

	if (!r)
		return;
	r->begin = left_ns;
	r->end = host_now_ns();
	r->left.wanted_ns = wanted_ns;
	r->left.waited_ns = waited_ns;
	r->left.touches = touches;
	r->left.id = call.id;
	r->left.caller = call.thread;
	record_end(r, TRACE_LEFT, TRACE_IN_NS | (is_called ? TRACE_BY_CALL : 0));
}

void trace_span_on(const char *text, uint64_t begin_ns, uint64_t bytes)
{
	struct trace_record *r = record_begin();

	if (!r)
		return;
	r->begin = begin_ns;
	r->end = host_now_ns();
	r->span.bytes = bytes;
	r->span.text = text_index(text);
	record_end(r, TRACE_SPAN, TRACE_IN_NS);
}
