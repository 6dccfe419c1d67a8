/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of the program. Each gets a record, except small ones, which are counted. */
#include "trace/private.h"
#include "trace/reasons.h"

/* After TRACE_ALWAYS_TIMED small calls of a site in a thread, one in this many is recorded. */
enum { OF_MANY = 64, OF_VERY_MANY = 1024, VERY_MANY = 65536 };

__thread struct trace_current trace_current __attribute__((tls_model("initial-exec")));
static __thread uint32_t call_id __attribute__((tls_model("initial-exec")));

uint64_t trace_ticks(void) { return trace_ticks_are_ns ? os_now_ns() : os_ticks(); }

void trace_call_begin_on(const char *name, const void *site, const void *frame)
{
	struct trace_current *c = &trace_current;

	if (base_unlikely(c->depth)) {
		c->depth = (uintptr_t)c->frame <= (uintptr_t)frame ? 0 : c->depth + 1;
		if (c->depth)
			return;
	}
	c->frame = frame;
	c->record = (struct trace_record){ 0 };
	c->recent = repeats_find(name, site, frame, &c->record.call.site);
	c->record.call.id = ++call_id;
	c->why = c->early_why = NULL;
	c->is_early = c->is_begun = false;
	c->record.begin = trace_ticks();
	/* a handler's copies belong to a call that has begun, or to none */
	atomic_signal_fence(memory_order_seq_cst);
	c->depth = 1;
}

static void write_call(struct trace_current *c, bool is_usual)
{
	struct trace_record *r;

	c->record.call.why = text_index(c->why);
	c->record.call.early_why = text_index(c->early_why);
	totals_add_call(&c->record);
	r = record_begin();
	if (!r)
		return;
	*r = c->record;
	record_end(r, TRACE_CALL, c->record.flags);
	if (is_usual)
		repeats_follow(c->recent, r, c->why, c->early_why);
}

void trace_call_end_on(int rc)
{
	struct trace_current *c = &trace_current;
	bool is_usual = !rc && !c->is_early && !c->is_begun && c->record.call.ops < 2;

	if (!c->depth || --c->depth)
		return;
	atomic_signal_fence(memory_order_seq_cst);
	c->record.end = trace_ticks();
	if (c->row.of)
		trace_row_end_on(c->record.end);
	turns_note(c->record.end, false);
	if (rc)
		c->record.call.outcome = TRACE_FAILED;
	else if (c->is_early)
		c->record.call.outcome = TRACE_EARLY;
	else if (c->is_begun)
		c->record.call.outcome = TRACE_STARTED;
	if (!is_usual || !repeats_add(c->recent, &c->record, c->why, c->early_why))
		write_call(c, is_usual);
}

struct trace_name trace_call_name_on(void)
{
	return (struct trace_name){ trace_current.record.call.id, record_thread() };
}

/* ---- small calls ------------------------------------------------------------------------- */

static bool is_recorded(uint64_t n)
{
	return n < TRACE_ALWAYS_TIMED || n % (n < VERY_MANY ? OF_MANY : OF_VERY_MANY) == 0;
}

static uint64_t size_of_type(uintptr_t type, uint64_t (*size_of)(uintptr_t type))
{
	static __thread uintptr_t known __attribute__((tls_model("initial-exec")));
	static __thread uint64_t size __attribute__((tls_model("initial-exec")));

	if (base_unlikely(known != type)) {
		size = size_of(type);
		known = type;
	}
	return size;
}

uint64_t trace_small_begin(const char *name, const void *site, const void *frame, uint64_t count,
			   uintptr_t type, uint64_t (*size_of)(uintptr_t type))
{
	uint64_t bytes = count * size_of_type(type, size_of);
	struct trace_totals *t = record_totals();
	uint16_t index;

	if (trace_current.depth)
		return 0;
	if (base_unlikely(!t)) {
		atomic_fetch_add_explicit(&file_header()->uncounted, 1, memory_order_relaxed);
		return 0;
	}
	repeats_find(name, site, frame, &index);
	t += index;
	t->calls++;
	t->bytes += bytes;
	t->small_bytes += bytes;
	if (base_likely(!is_recorded(t->small_calls++)))
		return 0;
	trace_current.record.call.bytes = bytes;
	trace_current.record.call.site = index;
	return trace_ticks();
}

void trace_small_end(uint64_t since)
{
	uint64_t now = trace_ticks();
	uint16_t index = trace_current.record.call.site;
	struct trace_totals *t = record_totals();
	struct trace_record *r = record_begin();

	turns_note(now, false);
	t += index;
	if (t->small_calls <= TRACE_ALWAYS_TIMED) {
		t->ticks += now - since;
	} else {
		t->sampled++;
		t->sampled_ticks += now - since;
	}
	if (!r)
		return;
	r->begin = since;
	r->end = now;
	r->call.bytes = trace_current.record.call.bytes;
	r->call.id = ++call_id;
	r->call.site = index;
	r->call.outcome = TRACE_SMALL;
	r->call.why = text_index(TRACE_WHY_SMALL);
	record_end(r, TRACE_CALL, 0);
}
