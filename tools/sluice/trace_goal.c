/* SPDX-License-Identifier: BSD-3-Clause */
#include "trace_data.h"
int trace_goal_read(struct trace_view *v, const char *path) { (void)v, (void)path; return 0; }
