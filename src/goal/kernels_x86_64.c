/* SPDX-License-Identifier: BSD-3-Clause */
#include "goal/kernels.h"

const struct goal_kernels *goal_kernels_for(enum goal_isa isa)
{
	return isa == GOAL_ISA_AVX512 ? &goal_kernels_avx512 :
	       isa == GOAL_ISA_AVX2   ? &goal_kernels_avx2 :
					&goal_kernels_base;
}
