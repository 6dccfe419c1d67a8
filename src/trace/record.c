/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The records of a thread, in a chain of chunks whose oldest is reused when the file is full. A
 * signal handler may interrupt its own thread here: an atomic addition claims the place of a
 * record, and a handler that interrupts a change of chunks drops its record.
 */
#include <sys/syscall.h>
#include <unistd.h>

#include "trace/private.h"

struct ring {
	struct trace_chunk *chunk;  /* the current chunk */
	_Atomic uint32_t used;      /* claimed records; may exceed the chunk */
	struct trace_chunk *oldest;
	struct trace_totals *totals;
	uint32_t thread, turn;
	_Atomic bool is_changing;
	bool is_refused;            /* there was no chunk for this thread */
};
static __thread struct ring ring __attribute__((tls_model("initial-exec")));

uint32_t record_thread(void)
{
	if (base_unlikely(!ring.thread))
		ring.thread = (uint32_t)syscall(SYS_gettid);
	return ring.thread;
}

static void add_chunk(void)
{
	uint32_t i = file_claim_chunk(TRACE_CHUNK_RECORDS, record_thread(), ring.turn + 1);
	struct trace_chunk *c;

	if (i) {
		c = file_chunk(i - 1);
		if (ring.chunk)
			ring.chunk->next = i;
		else
			ring.oldest = c;
	} else if (ring.oldest) {
		c = ring.oldest;
		repeats_end();
		if (c != ring.chunk) {
			ring.oldest = file_chunk(c->next - 1);
			ring.chunk->next = 1 + (uint32_t)(((char *)c - (char *)file_chunk(0)) /
							  TRACE_CHUNK_BYTES);
		}
		file_renew_chunk(c, ring.turn + 1);
	} else {
		ring.is_refused = true;
		return;
	}
	ring.turn++;
	ring.chunk = c;
	atomic_store_explicit(&ring.used, 0, memory_order_relaxed);
}

static struct trace_record *drop(void)
{
	atomic_fetch_add_explicit(&file_header()->dropped, 1, memory_order_relaxed);
	return NULL;
}

/* is_held: overwrite no record */
static struct trace_record *claim(uint32_t records, bool is_held)
{
	uint32_t i;

	if (base_unlikely(ring.is_refused ||
			  atomic_load_explicit(&ring.is_changing, memory_order_relaxed)))
		return drop();
	i = ring.chunk ? atomic_fetch_add_explicit(&ring.used, records, memory_order_relaxed)
		       : TRACE_RECORDS_PER_CHUNK;
	if (base_unlikely(i + records > TRACE_RECORDS_PER_CHUNK)) {
		if (is_held)
			return drop();
		/* read by handlers of this thread only */
		atomic_store_explicit(&ring.is_changing, true, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
		add_chunk();
		atomic_signal_fence(memory_order_seq_cst);
		atomic_store_explicit(&ring.is_changing, false, memory_order_relaxed);
		if (ring.is_refused)
			return drop();
		i = atomic_fetch_add_explicit(&ring.used, records, memory_order_relaxed);
		if (i + records > TRACE_RECORDS_PER_CHUNK)
			return drop();
	}
	return &chunk_records(ring.chunk)[i];
}

struct trace_record *record_begin(void)
{
	return claim(1, atomic_load_explicit(&trace_current.is_held, memory_order_relaxed));
}

struct trace_record *record_begin_row(uint32_t records) { return claim(records, false); }

void record_end(struct trace_record *r, enum trace_type type, uint8_t flags)
{
	r->flags = flags;
	atomic_store_explicit(&r->type, (uint8_t)type,
			      memory_order_release); /* partner: the reader of the file */
}

struct trace_totals *record_totals(void)
{
	uint32_t i;

	if (base_likely(ring.totals))
		return ring.totals;
	if (ring.is_refused)
		return NULL;
	i = file_claim_chunk(TRACE_CHUNK_TOTALS, record_thread(), 0);
	if (i)
		ring.totals = chunk_totals(file_chunk(i - 1));
	return ring.totals;
}

void totals_add(uint16_t site, const struct trace_totals *more)
{
	struct trace_totals *t = record_totals();
	bool was_held = record_hold(true);

	if (t) {
		t += site;
		t->calls += more->calls;
		t->bytes += more->bytes;
		t->ticks += more->ticks;
		t->admitted += more->admitted;
		t->early += more->early;
	} else {
		atomic_fetch_add_explicit(&file_header()->uncounted, more->calls,
					  memory_order_relaxed);
	}
	record_hold(was_held);
}

void totals_add_call(const struct trace_record *r)
{
	totals_add(r->call.site, &(struct trace_totals){ .calls = 1,
							 .bytes = r->call.bytes,
							 .ticks = r->end - r->begin,
							 .admitted =
								 r->call.outcome >= TRACE_ADMITTED,
							 .early = r->call.outcome == TRACE_EARLY });
}
