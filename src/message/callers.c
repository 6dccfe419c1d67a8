/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether a call of process_vm_readv() is served. */
#include "message/private.h"
#include "os/os.h"

enum { EARLY = 8 }; /* a caller is looked up at each so many calls of unknown ones */

/* To know a caller takes as long as to read some 64 KB: its first calls are the kernel's. */
static bool is_too_early(void)
{
	static _Atomic uint32_t calls;

	return message_is_by_cost() &&
	       atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) % EARLY != EARLY - 1;
}

bool message_is_served(const void *caller)
{
	int is_host;

	if (!atomic_load_explicit(&message_is_on, memory_order_relaxed))
		return false;
	is_host = os_is_host_mpi(caller, false);
	if (base_unlikely(is_host < 0) && !is_too_early())
		is_host = os_is_host_mpi(caller, true);
	return is_host > 0;
}
