/* SPDX-License-Identifier: BSD-3-Clause */
#include "policy/gate.h"

/* Open MPI adds most of a vector of these by instructions that saturate, and the rest by others. */
#define SATURATED (1u << GOAL_I8 | 1u << GOAL_I16 | 1u << GOAL_U8 | 1u << GOAL_U16)

bool policy_is_exact(const struct policy_reduction *r)
{
	if (!r->is_predefined)
		return r->ranks == 2 && !r->commutes;
	if (r->type < GOAL_F16)
		return r->op != GOAL_ADD || !(SATURATED >> r->type & 1);
	return r->ranks == 2 &&
	       (r->op == GOAL_ADD || (r->op == GOAL_MUL && r->type != GOAL_DTYPE_COUNT));
}

bool policy_leaves_to_host(enum base_sums sums, bool is_exact)
{
	return sums == BASE_SUMS_HOST && !is_exact;
}
