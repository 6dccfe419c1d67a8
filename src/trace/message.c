/* SPDX-License-Identifier: BSD-3-Clause */
/* Time in calls that send, receive or wait for messages. They are many: only sums are kept. */
#include "trace/private.h"

static uint16_t site_of(const char *name, const void *address, const void *frame)
{
	_Atomic uint32_t *is_message;
	uint16_t site;

	if (!caller_is_program(address))
		address = caller_of(address, frame);
	site = site_index(name, address);
	is_message = &file_sites()[site].is_message;
	if (base_unlikely(site && !atomic_load_explicit(is_message, memory_order_relaxed)))
		atomic_store_explicit(is_message, 1, memory_order_relaxed);
	return site;
}

uint64_t trace_message_begin(const char *name, const void *site, const void *frame, uint64_t bytes)
{
	struct trace_totals *t;
	uint16_t index;

	if (trace_current.depth ||
	    (trace_current.message && (uintptr_t)trace_current.message_frame > (uintptr_t)frame))
		return 0;
	t = record_totals();
	index = t ? site_of(name, site, frame) : 0;
	if (!index) { /* the sums of site 0 are those of collectives */
		atomic_fetch_add_explicit(&file_header()->uncounted, 1, memory_order_relaxed);
		return 0;
	}
	trace_current.message = t + index;
	trace_current.message_frame = frame;
	trace_current.message->calls++;
	trace_current.message->bytes += bytes;
	return trace_ticks();
}

void trace_message_end(uint64_t since)
{
	uint64_t now = trace_ticks();

	if (trace_current.message)
		trace_current.message->ticks += now - since;
	trace_current.message = NULL;
}

void trace_message_copied_on(uint64_t since, int64_t result, uint64_t served)
{
	struct trace_totals *t = trace_current.message;

	if (!t || result < 0)
		return;
	t->copies++;
	t->copied += (uint64_t)result;
	t->served += served;
	t->copied_ticks += trace_ticks() - since;
}
