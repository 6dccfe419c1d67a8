// SPDX-License-Identifier: GPL-2.0
/* Schedules: the sources of user space (src/goal), which need no C library. */
#include "goal/interp.c"
#include "goal/local.c"
#include "goal/verify.c"
#include "goal/kernels_generic.c"
