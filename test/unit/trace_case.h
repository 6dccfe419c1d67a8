/* SPDX-License-Identifier: BSD-3-Clause */
/* Fixture of the trace's tests: a child writes a trace, as a process starts its trace only once. */
#ifndef SLUICE_UNIT_TRACE_CASE_H
#define SLUICE_UNIT_TRACE_CASE_H

#include "trace/trace.h"

/* Returns: the file of a child that has run body(), mapped in this process. */
const char *trace_case_run(void (*body)(void), uint64_t limit_bytes);
/* One call of MPI_Bcast that the host MPI executes. */
void trace_case_call(uint64_t bytes);
/* The copies of a file, in order. Returns: their number. */
int trace_case_copies(const char *base, struct trace_record *out, int cap);

static inline const struct trace_header *trace_case_header(const char *base)
{
	return (const struct trace_header *)base;
}

static inline const struct trace_chunk *trace_case_chunk(const char *base, uint32_t i)
{
	return (const struct trace_chunk *)(base + TRACE_HEADER_BYTES +
					    (uint64_t)i * TRACE_CHUNK_BYTES);
}

#endif
