/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does a yield run other ranks? Those of one session are in one group of the kernel's scheduler
 * (autogroup), where it does. Hydra gives each rank a session; then it depends on the kernel: two
 * processes of two sessions that hand a word over on one CPU need 1.2 yields each time on Linux
 * 6.18, and where the scheduler keeps a group until the end of its slice, thousands. So in some
 * waits the kernel's count of the thread's context switches is checked.
 */
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "node/private.h"
#include "os/endpoint.h"
#include "os/os.h"

enum {
	CHECK_EACH = 8,  /* waits, of which one is checked */
	YIELDS_MAX = 16, /* of such a wait, until it counts as in vain */
	REACH_MAX = 8,   /* waits in vain, after which yields are given up */
	REACH_STEP = 4,  /* that one not in vain makes up for */
};

static _Atomic int reach = REACH_MAX; /* hints of all threads */
static _Atomic uint32_t waits;

bool node_yields_reach(void)
{
	return atomic_load_explicit(&reach, memory_order_relaxed) > 0;
}

/* Waits on a CPU that has nobody else to run are in vain, too: then a nap costs the rank no more
 * than it did its peers. */
void yield_count(bool has_switched)
{
	int old = atomic_load_explicit(&reach, memory_order_relaxed);
	int now = has_switched ? old + REACH_STEP : old - 1;

	now = now < 0 ? 0 : now > REACH_MAX ? REACH_MAX : now;
	if (now != old)
		atomic_store_explicit(&reach, now, memory_order_relaxed);
}

/* Returns: of the thread, while it was ready to run. */
static uint32_t context_switches(void)
{
	struct rusage usage;

	return syscall(SYS_getrusage, RUSAGE_THREAD, &usage) ? 0 : (uint32_t)usage.ru_nivcsw;
}

static bool is_due(void)
{
	uint32_t n = atomic_load_explicit(&waits, memory_order_relaxed);

	atomic_store_explicit(&waits, n + 1, memory_order_relaxed);
	return n % CHECK_EACH == 0;
}

void node_yield(struct node_yields *y)
{
	if (endpoint_yield())
		return;
	if (y && !y->count++ && is_due()) {
		y->switches = context_switches();
		y->is_checked = true;
	}
	syscall(SYS_sched_yield); /* libc's name is ours, of preload/ */
	if (!y || !y->is_checked)
		return;
	if (context_switches() != y->switches)
		yield_count(true);
	else if (y->count >= YIELDS_MAX)
		yield_count(false);
	else
		return;
	y->is_checked = false;
}
