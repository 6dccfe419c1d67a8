// SPDX-License-Identifier: GPL-2.0
/* Local operations of schedules. Compiled with vector registers where run.c may use them. */
#include "goal/kernels_base.c"
