/* SPDX-License-Identifier: BSD-3-Clause */
/* Time in calls that send, receive or wait for messages. They are many: only sums are kept. */
#include "trace/private.h"

enum { RECENT = 16 };

/* The present call of this thread. */
static __thread struct {
	struct trace_totals *of; /* NULL: none */
	const void *frame;       /* a call begun below it was left by longjmp() */
} present __attribute__((tls_model("initial-exec")));

static __thread struct {
	uint64_t key;
	uint16_t site;
} recent[RECENT] __attribute__((tls_model("initial-exec")));

static uint16_t site_of(const char *name, const void *address, const void *frame)
{
	uint64_t key;
	uint32_t i;

	if (!caller_is_program(address))
		address = caller_of(address, frame);
	key = site_key(name, address);
	i = (uint32_t)(key >> 2 ^ key >> 6) % RECENT;
	if (base_unlikely(recent[i].key != key)) {
		recent[i].site = site_index(name, address);
		recent[i].key = key;
		if (recent[i].site)
			atomic_store_explicit(&file_sites()[recent[i].site].is_message, 1,
					      memory_order_relaxed);
	}
	return recent[i].site;
}

uint64_t trace_message_begin(const char *name, const void *site, const void *frame, uint64_t count,
			     uintptr_t type, uint64_t (*size_of)(uintptr_t type))
{
	struct trace_totals *t;
	uint16_t index;

	if (!trace_is_on() || trace_current.depth ||
	    (present.of && (uintptr_t)present.frame > (uintptr_t)frame))
		return 0;
	t = record_totals();
	index = t ? site_of(name, site, frame) : 0;
	if (!index) { /* the sums of site 0 are those of collectives */
		atomic_fetch_add_explicit(&file_header()->uncounted, 1, memory_order_relaxed);
		return 0;
	}
	present.of = t + index;
	present.frame = frame;
	present.of->calls++;
	present.of->bytes += count ? count * size_of_type(type, size_of) : 0;
	return trace_ticks();
}

void trace_message_end(uint64_t since)
{
	uint64_t now = trace_ticks();

	if (present.of)
		present.of->ticks += now - since;
	present.of = NULL;
}

void trace_message_copied_on(uint64_t since, int64_t result, uint64_t served)
{
	struct trace_totals *t = present.of;

	if (!t || result < 0)
		return;
	t->copies++;
	t->copied += (uint64_t)result;
	t->served += served;
	t->copied_ticks += trace_ticks() - since;
}
