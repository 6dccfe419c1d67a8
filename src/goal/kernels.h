/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to goal/: the kernels of local operations, one table for each instruction set. */
#ifndef SLUICE_GOAL_KERNELS_H
#define SLUICE_GOAL_KERNELS_H

#include "goal/local.h"

typedef void goal_kernel(void *dst, const void *a, const void *b, size_t count);

/* By type - GOAL_ADD and data type; NULL: no such operation. */
struct goal_kernels { goal_kernel *of[GOAL_XOR + 1 - GOAL_ADD][GOAL_DTYPE_COUNT]; };

extern const struct goal_kernels goal_kernels_base, goal_kernels_avx2, goal_kernels_avx512;

/* Returns: the table for an instruction set that was built, at most `isa`. */
const struct goal_kernels *goal_kernels_for(enum goal_isa isa);

#endif
