/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of reduce/ only. */
#ifndef SLUICE_REDUCE_PRIVATE_H
#define SLUICE_REDUCE_PRIVATE_H

#include "reduce/reduce.h"

/* combine.c: elements [first, first + n) of all inputs, into all results; or of a step (NULL: there
 * is one level). 0 or -errno of the program's operation. */
int reduce_combine(struct reduce_view *v, const struct reduce_step *st, uint64_t first, uint64_t n);

/* move.c: for the trace and the counters, around the making of results: elements [first, first +
 * n). */
uint64_t reduce_trace_begin(const struct reduce_view *v, uint32_t slice, uint64_t n);
void reduce_count(struct reduce_view *v, uint32_t slice, uint32_t unit, uint64_t first, uint64_t n,
		uint64_t since);

#endif
