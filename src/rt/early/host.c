/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Exclusion inside the host MPI. Without MPI_THREAD_MULTIPLE one thread may be there: a thread in
 * an MPI call of the program, or a stand-in, which lets the host MPI progress while it waits in a
 * fault handler.
 */
#include <sched.h>

#include "rt/private.h"

static _Atomic uint32_t calls;    /* threads between host_call_begin() and host_call_end() */
static _Atomic uint32_t stand_in; /* 1: a stand-in is inside */

bool host_stand_in_try(void)
{
	if (atomic_exchange_explicit(&stand_in, 1,
				     memory_order_seq_cst)) /* partner: host_call_begin */
		return false;
	if (!atomic_load_explicit(&calls, memory_order_seq_cst))
		return true;
	atomic_store_explicit(&stand_in, 0, memory_order_release);
	return false;
}

void host_stand_in_end(void) { atomic_store_explicit(&stand_in, 0, memory_order_release); }

/* The wait is short: a stand-in makes one step of the host MPI. */
void host_call_begin(void)
{
	atomic_fetch_add_explicit(&calls, 1, memory_order_seq_cst); /* partner: host_stand_in_try */
	while (base_unlikely(atomic_load_explicit(&stand_in, memory_order_seq_cst)))
		sched_yield();
}

void host_call_end(void) { atomic_fetch_sub_explicit(&calls, 1, memory_order_release); }

void rt_host_begin(void)
{
	host_call_begin();
	sud_allow_push();
}

void rt_host_end(void)
{
	sud_allow_pop();
	host_call_end();
}
