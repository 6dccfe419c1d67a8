/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sched_yield(): the idle round of most host MPIs. A call of the program's own code stays a yield.
 */
#include <sched.h>
#include <string.h>

#include "preload/next.h"
#include "wait/wait.h"

#define PLACES 16

static struct {
	int (*sched_yield)(void);
} next;

/* Call sites of sched_yield(): address with bit 0 set: of a host MPI. x86-64 return addresses need no
 * alignment, so the bit lies above the address. */
#define OF_HOST ((uintptr_t)1 << 63)
static _Atomic uintptr_t places[PLACES];

/* Is this file a library of a host MPI? Its plugins and transports included. */
static bool is_host_library(const char *path)
{
	static const char *const names[] = { "libmpi", "libpmpi", "libopen-", "libpsm", "libuc",
					     "libfabric", "mca_", "libfastsockets" };
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++)
		if (!strncmp(name, names[i], strlen(names[i])))
			return true;
	return false;
}

/* Threads may look one call site up at the same time, with the same result. */
static bool is_host_call(const void *caller)
{
	uintptr_t at = (uintptr_t)caller;
	_Atomic uintptr_t *place = &places[(at ^ at >> 7) % PLACES];
	uintptr_t known = atomic_load_explicit(place, memory_order_relaxed);
	Dl_info info;

	if ((known & ~OF_HOST) != at) {
		known = at;
		if (dladdr(caller, &info) && info.dli_fname && is_host_library(info.dli_fname))
			known |= OF_HOST;
		atomic_store_explicit(place, known, memory_order_relaxed);
	}
	return known & OF_HOST;
}

EXPORT int sched_yield(void)
{
	if (wait_mode() != WAIT_SPIN && is_host_call(__builtin_return_address(0)) && wait_round())
		return 0;
	return NEXT(sched_yield)();
}
