/* SPDX-License-Identifier: BSD-3-Clause */
#define GOAL_KERNELS goal_kernels_avx2
#include "goal/kernels.inc"
