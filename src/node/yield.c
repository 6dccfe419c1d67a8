/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Does a yield run other ranks? Those of one session are in one group of the kernel's scheduler
 * (autogroup), where it does. Hydra gives each rank a session; then it depends on the kernel: two
 * processes of two sessions that hand a word over on one CPU need 1.2 yields each time on Linux
 * 6.18, and where the scheduler keeps a group until the end of its slice, thousands. So the time of
 * the first yields of each wait tells.
 */
#include <sys/syscall.h>
#include <unistd.h>

#include "node/private.h"
#include "os/endpoint.h"
#include "os/os.h"

#define SWITCH_NS 800u /* a yield that has run somebody takes so long at least */

enum {
	SAMPLE = 16,    /* yields of a wait that are looked at */
	REACH_MAX = 64, /* waits in vain, after which yields are given up */
	REACH_STEP = 8, /* that one not in vain makes up for */
};

static _Atomic int reach = REACH_MAX; /* a hint of all threads */

bool node_yields_reach(void)
{
	return atomic_load_explicit(&reach, memory_order_relaxed) > 0;
}

/* Waits on a CPU that has nobody else to run are in vain, too: then a nap costs the rank no more
 * than it did its peers. */
static void count_wait(bool has_switched)
{
	int old = atomic_load_explicit(&reach, memory_order_relaxed);
	int now = has_switched ? old + REACH_STEP : old - 1;

	now = now < 0 ? 0 : now > REACH_MAX ? REACH_MAX : now;
	if (now != old)
		atomic_store_explicit(&reach, now, memory_order_relaxed);
}

void yield_count(uint32_t *yields, uint64_t ns)
{
	if (*yields >= SAMPLE)
		return;
	*yields = ns >= SWITCH_NS ? SAMPLE : *yields + 1;
	if (*yields == SAMPLE)
		count_wait(ns >= SWITCH_NS);
}

uint64_t node_yield(uint32_t *yields, uint64_t now)
{
	uint64_t end;

	if (!endpoint_yield())
		syscall(SYS_sched_yield); /* libc's name is ours, of preload/ */
	end = os_now_ns();
	yield_count(yields, end - now);
	return end;
}
