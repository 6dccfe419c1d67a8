/* SPDX-License-Identifier: BSD-3-Clause */
#include "goal/kernels.h"

void goal_local(enum goal_isa isa, uint32_t type, uint32_t dtype, void *dst, const void *a,
		const void *b, size_t bytes)
{
	goal_kernels_for(isa)->of[type - GOAL_ADD][dtype](dst, a, b,
							  bytes / goal_dtype_bytes(dtype));
}
