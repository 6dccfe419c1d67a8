/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of fold/ only. */
#ifndef SLUICE_FOLD_PRIVATE_H
#define SLUICE_FOLD_PRIVATE_H

#include "fold/fold.h"

/* combine.c: elements [first, first + n) of all inputs, into all results; or of a step (NULL: there
 * is one level). 0 or -errno of the program's operation. */
int fold_combine(struct fold_view *v, const struct fold_step *st, uint64_t first, uint64_t n);

/* move.c: for the trace and the counters, around the making of results: elements [first, first +
 * n). */
uint64_t fold_trace_begin(const struct fold_view *v, uint32_t slice, uint64_t n);
void fold_count(struct fold_view *v, uint32_t slice, uint32_t unit, uint64_t first, uint64_t n,
		uint64_t since);

#endif
