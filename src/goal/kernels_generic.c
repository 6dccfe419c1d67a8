/* SPDX-License-Identifier: BSD-3-Clause */
#include "goal/kernels.h"

const struct goal_kernels *goal_kernels_for(enum goal_isa isa) { return &goal_kernels_base; }
