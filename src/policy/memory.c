/* SPDX-License-Identifier: BSD-3-Clause */
/* How peers reach a buffer, and at which rates. */
#include "policy/policy.h"

bool policy_prefer_vm(int64_t region_kind, const struct policy_group *g)
{
	uint64_t leaves = g->ranks > 1 ? (uint64_t)g->ranks - 1 : 1;

	if (region_kind == BASE_REGION_STAGED || !g->vm_ps)
		return false;
	/* Staging alternates between two ranks: at memory speed with a core for each rank, at one
	 * context switch per exchange without. One copy by the kernel is then faster (doc/adr). */
	if (region_kind == BASE_REGION_CMA || g->oversubscribed)
		return true;
	/* The receiver reads, and the sender, which serves all leaves, writes: 1 + 1/leaves movers
	 * copy at the kernel's speed. A staged byte takes the time of one copy, as the copies in
	 * and out overlap. */
	return g->vm_ps * leaves <= g->copy_ps * (leaves + 1);
}

void policy_copy_rates(const struct policy_group *g, uint32_t *out_private_ps,
		       uint32_t *out_mapped_ps)
{
	/* without process_vm_*, bytes are copied into staging memory and out of it */
	*out_private_ps = g->vm_ps ? g->vm_ps : 2 * g->copy_ps;
	*out_mapped_ps = g->copy_ps / 2;
}
