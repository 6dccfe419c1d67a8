/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to trace/. */
#ifndef SLUICE_TRACE_PRIVATE_H
#define SLUICE_TRACE_PRIVATE_H

#include "trace/trace.h"

/* The mapped file. Set before trace_on and never unmapped, as engine threads may be inside a
 * hook. */
struct trace_file {
	char *base;
	int fd;
	struct os_file file; /* of fd: the program may have closed it */
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

/* Reads both clocks at the same moment. */
void file_read_clocks(uint64_t *out_ticks, uint64_t *out_ns);
/* file.c. Returns: 0 or -errno, with a message on stderr. */
int file_open(int rank);
/* Returns: 1 + the index of a chunk whose blocks are allocated, or 0 when the file is full or
 * cannot grow. Context: async-signal-safe. */
uint32_t file_claim_chunk(enum trace_chunk_kind kind, uint32_t thread, uint32_t turn);
/* Reuses a chunk for the thread's records, and counts its records as overwritten. */
void file_renew_chunk(struct trace_chunk *c, uint32_t turn);

/* trace.c: the turns since the last record of them, at the end of a call. Context: as
 * record_begin(). */
void turns_note(uint64_t now, bool is_last);

/* record.c. Returns: a zeroed record of this thread, for record_end(), or NULL: dropped and
 * counted. Context: async-signal-safe. */
struct trace_record *record_begin(void);
void record_end(struct trace_record *r, enum trace_type type, uint8_t flags);
/* Returns: adjacent records, or NULL, which counts as one dropped record. Context: not in signal
 * handlers. */
struct trace_record *record_begin_row(uint32_t records);
/* While held, a signal handler of this thread overwrites no record. Returns: the previous state. */
static inline bool record_hold(bool is_held)
{
	bool was_held = atomic_load_explicit(&trace_current.is_held, memory_order_relaxed);

	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&trace_current.is_held, is_held, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	return was_held;
}
uint32_t record_thread(void);
/* Returns: this thread's totals, one per site, or NULL when there is no room. */
struct trace_totals *record_totals(void);

/* Adds calls, bytes, ticks, admitted and early to the totals of a site. */
void totals_add(uint16_t site, const struct trace_totals *more);
void totals_add_call(const struct trace_record *call);

/* repeats.c: calls with the same properties. Context: not in signal handlers, unless stated.
 * Returns: never NULL. */
struct trace_recent *repeats_find(const char *name, const void *address, const void *frame,
				  uint16_t *out_site);
/* Returns: true when the call has been written and counted, or counted because there was no
 * room. */
bool repeats_add(struct trace_recent *p, const struct trace_record *r, const char *why,
		 const char *early_why);
/* Sets the record `r` in the file as the model for the next calls of this place. */
void repeats_follow(struct trace_recent *p, struct trace_record *r, const char *why,
		    const char *early_why);
/* Prefetches the memory that repeats_add() reads. Context: async-signal-safe. */
void repeats_fetch(const struct trace_recent *p);
/* Ends all rows of the thread, as one may be overwritten. Context: async-signal-safe. */
void repeats_end(void);

/*
 * callers.c. Finds the place in the program behind a call that returns to `site`, which may lie in
 * the MPI library. frame: of a function of Sluice further down the stack that has not returned.
 * Returns: the address, or `site` when it is unknown. Context: not in signal handlers.
 */
const void *caller_of(const void *site, const void *frame);
/* Returns: false for an address in the MPI library, or where Python's interpreter calls it. */
bool caller_is_program(const void *site);

/* python.c. Returns: whether Python's interpreter is in this process. */
bool python_find(void);
/* Finds the present line of the thread's Python program. Returns: a trace_module's base plus the
 * line; NULL: unknown. Context: after python_find(); not in signal handlers. */
const void *python_caller(void);
/* Returns: the file of the thread's last python_caller(). */
const char *python_last_path(void);

/*
 * texts.c. Finds or enters a key in a table whose entries 1 to count - 1 begin with the key.
 * Returns: its index, or 0 when the table is full. *out_new: the entry is new, and the caller fills
 * it; NULL: enters nothing, and returns 0 for a key that is not there. Context: async-signal-safe.
 */
uint16_t key_find(void *table, size_t entry_bytes, uint32_t count, uint64_t key, bool *out_new);
/* Returns: the index of a constant text, or 0 when the table is full. Context:
 * async-signal-safe. */
uint8_t text_index(const char *text);

/* sites.c. Returns: the index of a site; 0: unknown. Context: not in signal handlers. */
uint16_t site_index(const char *name, const void *address);
/* Returns: a key of a site, never 0. Two functions may share an address where calls are jumps. */
static inline uint64_t site_key(const char *name, const void *address)
{
	uint64_t key = (uintptr_t)address ^ (uint64_t)(uintptr_t)name << 20;

	return key + !key;
}

#endif
