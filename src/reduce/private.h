/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of reduce/ only. */
#ifndef SLUICE_REDUCE_PRIVATE_H
#define SLUICE_REDUCE_PRIVATE_H

#include "reduce/reduce.h"

/*
 * combine.c: combine elements [first, first + n) of all inputs into all results. Returns: 0, or
 * -errno of the program's operation.
 */
int reduce_combine(struct reduce_view *v, uint64_t first, uint64_t n);

#endif
