/* SPDX-License-Identifier: BSD-3-Clause */
#define GOAL_KERNELS goal_kernels_base
#include "goal/kernels.inc"
