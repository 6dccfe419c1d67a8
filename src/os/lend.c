/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lending a CPU. Another thread may displace an idle-priority thread for a second in the middle of
 * the very copy that a thread of normal priority waits for, and only root may raise the priority of
 * the displaced thread. But the waiting thread has a CPU, and lends it for a moment.
 */
#include <limits.h>

#include "os/os.h"

bool os_lend_cpu(struct os_lend *l, uint32_t ended, os_place *place, void *arg)
{
	struct os_cpumask here;

	if (!os_cpumask_here(&here))
		return false;
	/* seq_cst: either os_lend_end() sees this lender, or this thread sees the new count */
	atomic_fetch_add_explicit(&l->lenders, 1, memory_order_seq_cst);
	place(arg, &here);
	if (atomic_load_explicit(&l->ended, memory_order_seq_cst) == ended)
		os_futex_wait(&l->ended, ended, OS_LEND_NS);
	place(arg, NULL);
	atomic_fetch_sub_explicit(&l->lenders, 1, memory_order_relaxed);
	/* acquire: the bytes of the copy; partner: os_lend_end */
	return atomic_load_explicit(&l->ended, memory_order_acquire) != ended;
}

void os_lend_end(struct os_lend *l)
{
	atomic_fetch_add_explicit(&l->ended, 1, memory_order_seq_cst); /* partner: os_lend_cpu */
	if (atomic_load_explicit(&l->lenders, memory_order_seq_cst))
		os_futex_wake(&l->ended, INT_MAX);
}
