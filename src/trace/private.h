/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of trace/ only. */
#ifndef SLUICE_TRACE_PRIVATE_H
#define SLUICE_TRACE_PRIVATE_H

#include "trace/trace.h"

/* The mapped file; set before trace_on, never unmapped: threads of the engine may be in a hook. */
struct trace_file {
	char *base;
	int fd;
};
extern struct trace_file trace_file;
extern bool trace_ticks_are_ns;

static inline struct trace_header *file_header(void)
{
	return (struct trace_header *)trace_file.base;
}
static inline struct trace_module *file_modules(void)
{
	return (void *)(trace_file.base + TRACE_MODULES_AT);
}
static inline struct trace_site *file_sites(void)
{
	return (void *)(trace_file.base + TRACE_SITES_AT);
}
static inline struct trace_text *file_texts(void)
{
	return (void *)(trace_file.base + TRACE_TEXTS_AT);
}
static inline struct trace_chunk *file_chunk(uint32_t i)
{
	return (void *)(trace_file.base + TRACE_HEADER_BYTES + (uint64_t)i * TRACE_CHUNK_BYTES);
}
static inline struct trace_record *chunk_records(struct trace_chunk *c)
{
	return (struct trace_record *)(c + 1);
}
static inline struct trace_totals *chunk_totals(struct trace_chunk *c)
{
	return (struct trace_totals *)(c + 1);
}

/* The same moment by both clocks. */
void file_read_clocks(uint64_t *out_ticks, uint64_t *out_ns);
/* file.c: 0 or -errno, told on stderr. */
int file_open(int rank);
/* A chunk whose pages are there: 1 + its index, or 0, the file is full or cannot grow.
 * Async-signal-safe. */
uint32_t file_take_chunk(enum trace_chunk_kind kind, uint32_t thread, uint32_t turn);
/* The chunk is used again, for the thread's records; what it held is counted as overwritten. */
void file_renew_chunk(struct trace_chunk *c, uint32_t turn);

/* record.c: a zeroed record of this thread's, to be given back filled; NULL: it is dropped (and
 * counted). Async-signal-safe. */
struct trace_record *record_begin(void);
void record_end(struct trace_record *r, enum trace_type type, uint8_t flags);
/* So many, one behind the other, when one is NULL so are all, which counts as one that is dropped.
 * Not in handlers. */
struct trace_record *record_begin_row(uint32_t records);
/* While it holds, nothing makes room for what a handler of this thread's writes. Returns what was.
 */
static inline bool record_hold(bool is_held)
{
	bool was_held = atomic_load_explicit(&trace_current.is_held, memory_order_relaxed);

	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&trace_current.is_held, is_held, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	return was_held;
}
uint32_t record_thread(void);
/* This thread's totals, one a site; NULL: there is no room. */
struct trace_totals *record_totals(void);

/* Adds calls, bytes, ticks, taken and early to the site's. */
void totals_add(uint16_t site, const struct trace_totals *more);
void totals_add_call(const struct trace_record *call);

/* repeats.c: calls that are like one another; not in handlers but where it is said. */
struct trace_recent *repeats_find(const char *name, const void *address, const void *frame,
				  uint16_t *out_site); /* never NULL */
/* True: the call has been written and counted; or there was no room, and it has been counted. */
bool repeats_add(struct trace_recent *p, const struct trace_record *r, const char *why,
		 const char *early_why);
/* r: in the file, which the place's next calls may be like. */
void repeats_follow(struct trace_recent *p, struct trace_record *r, const char *why,
		    const char *early_why);
/* What repeats_add() will look at. Async-signal-safe. */
void repeats_fetch(const struct trace_recent *p);
/* All rows of the thread end, since one of them may make room. Async-signal-safe. */
void repeats_end(void);

/*
 * callers.c, not in handlers. Where the program made the call that returns to `site`, which is
 * there or in a function of the MPI's; frame: of a function of ours that was called by it, further
 * down the stack, and has not returned. When it cannot be found: site.
 */
const void *caller_of(const void *site, const void *frame);
/* No: it is a function of the MPI's. */
bool caller_is_program(const void *site);

/*
 * texts.c: the index of the entry of a key, never 0, in a table whose entries 1 to count - 1 begin
 * with one; *out_new: it has been entered now, and is the caller's to fill. 0: the table is full.
 * Async-signal-safe.
 */
uint16_t key_enter(void *table, size_t entry_bytes, uint32_t count, uint64_t key, bool *out_new);
/* The same, 0 when it has not been entered. */
uint16_t key_find(void *table, size_t entry_bytes, uint32_t count, uint64_t key);
/* The index of a constant text, 0 when the table is full. Async-signal-safe. */
uint8_t text_index(const char *text);

/* sites.c: never fails; 0 is "not known". Not in signal handlers. */
uint16_t site_index(const char *name, const void *address);
/* Never 0. One place calls one function; two may share an address where calls are jumps. */
static inline uint64_t site_key(const char *name, const void *address)
{
	uint64_t key = (uintptr_t)address ^ (uint64_t)(uintptr_t)name << 20;

	return key + !key;
}

#endif
