/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sched_yield(): the idle round of most host MPIs, and usleep() of a few us: that of Intel MPI with
 * I_MPI_THREAD_YIELD=3. Calls of the program's own code stay what they are.
 */
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/endpoint.h"
#include "os/os.h"
#include "preload/next.h"
#include "wait/wait.h"

#define PLACES 16
#define IDLE_SLEEP_US 20

static struct {
	int (*sched_yield)(void);
	int (*usleep)(useconds_t);
} next;

/* Addresses of call sites, with a bit above the address space for those of a host MPI. */
#define OF_HOST ((uintptr_t)1 << 63)
static _Atomic uintptr_t places[PLACES];

/* The libraries of host MPIs, their plugins and transports. */
static const char *const host_libraries[] = { "libmpi", "libpmpi", "libopen-", "libpsm", "libuc",
					      "libfabric", "mca_", "libfastsockets", NULL };

/* Threads may look one call site up at the same time, with the same result. */
static bool is_host_call(const void *caller)
{
	uintptr_t at = (uintptr_t)caller;
	_Atomic uintptr_t *place = &places[(at ^ at >> 7) % PLACES];
	uintptr_t known = atomic_load_explicit(place, memory_order_relaxed);

	if ((known & ~OF_HOST) != at) {
		int is_host = os_object_is_named(caller, host_libraries);

		if (is_host < 0)
			return false; /* in a handler that interrupted the loader: asked again */
		known = at | (is_host ? OF_HOST : 0);
		atomic_store_explicit(place, known, memory_order_relaxed);
	}
	return known & OF_HOST;
}

/* Returns: whether the caller is a host MPI in an idle round, which is over now. */
static bool is_idle_round(const void *caller)
{
	return wait_mode() != WAIT_SPIN && is_host_call(caller) && wait_round();
}

__attribute__((constructor)) static void find_endpoint(void) { endpoint_find(); }

EXPORT int sched_yield(void)
{
	if (is_idle_round(__builtin_return_address(0)) || endpoint_yield())
		return 0;
	return NEXT(sched_yield)();
}

/* A rank on a worker asks its home, which takes microseconds, and MPICH asks once a message. */
EXPORT pid_t getpid(void)
{
	return endpoint_is_decoupled() ? endpoint_self->home_pid : (pid_t)syscall(SYS_getpid);
}

EXPORT int usleep(useconds_t us)
{
	if (us <= IDLE_SLEEP_US && is_idle_round(__builtin_return_address(0)))
		return 0;
	return NEXT(usleep)(us);
}
