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

#define IDLE_SLEEP_US 20

static struct {
	int (*sched_yield)(void);
	int (*usleep)(useconds_t);
} next;

/* Returns: whether the caller is a host MPI in an idle round, which is over now. */
static bool is_idle_round(const void *caller)
{
	return wait_mode() != WAIT_SPIN && os_is_host_mpi(caller, true) > 0 && wait_round();
}

__attribute__((constructor)) static void find_endpoint(void) { endpoint_find(); }

EXPORT int sched_yield(void)
{
	if (is_idle_round(__builtin_return_address(0)) || endpoint_yield())
		return 0;
	return NEXT(sched_yield)();
}

EXPORT bool sluice_wait_round(void) { return wait_round(); }

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
