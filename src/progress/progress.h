/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * progress: decides who should work on active collectives while the programs compute. A pure
 * function maps a few facts to an action; the caller collects the facts and carries out the action.
 *
 * Movers are the threads of the job's worker process (worker/) and the channel of this process
 * (engine/). They run at idle priority on CPUs that no rank of the job uses.
 *
 * A rank that waits needs no decision: it wakes a peer's process when nothing has moved for a
 * millisecond and only that process, which may be computing, can go on (exec/, rt/), and lends its
 * CPU to a mover whose copy is overdue (worker/).
 *
 * Invariants (test/unit/test_progress.c, over all facts):
 * - With nothing pending, nobody is woken or fed.
 * - With no idle CPU, no mover gets work, so that none displaces a rank that computes. The ranks do
 *   the work in their calls, as they would without movers.
 * - While a mover polls, no mover is woken. Nor is one woken for work that takes less than a
 *   wake-up costs, or that waiting ranks do anyway, unless it is long enough for one more mover.
 *
 * Threads: any, also in signal handlers. Cost: some nanoseconds, and only where something is
 * pending.
 * Never: allocates, reads a clock, makes a system call.
 */
#ifndef SLUICE_PROGRESS_H
#define SLUICE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* The facts that the caller can see. */
struct progress_facts {
	/* time that one mover needs for the work that movers can do now; 0: none */
	uint64_t work_ns;
	bool has_waiters; /* ranks with nothing else to do are working on it */
	bool has_process; /* the worker process lives and serves this communicator */
	bool has_channel;
	bool has_cpu;     /* some CPU is used by no rank */
	bool is_forced;   /* the user wants movers whatever they cost */
	uint32_t polling; /* threads of the worker process that poll for work */
	uint32_t asleep;  /* threads of the worker process that sleep */
};

enum progress_action {
	PROGRESS_NOTHING,  /* there is no work, or ranks do it in their calls */
	PROGRESS_ANNOUNCE, /* announce the work to movers that are awake */
	PROGRESS_WAKE,     /* announce the work and wake a mover */
	PROGRESS_FEED,     /* give the work to this process's channel */
};

/* For a rank that has published a collective and returns to its program. */
enum progress_action progress_decide(const struct progress_facts *f);

/* Measured thresholds. */
#define PROGRESS_WAKE_NS 10000u     /* cost of a futex wake for the waker */
#define PROGRESS_LATENCY_NS 50000u  /* time from the wake until the sleeper runs */
/* duration of a mover's first fragment that is worth a second mover */
#define PROGRESS_SHARE_NS 18000u
#define PROGRESS_POLL_MIN_NS 20000u /* polling for less saves nothing */

/* For a mover that has claimed one fragment, of work_ns, of several. Returns: whether it wakes
 * another mover. Movers run on idle CPUs only: where one runs, another can. */
static inline bool progress_shares(uint64_t work_ns, uint32_t polling, uint32_t asleep)
{
	/* one mover is enough for less; one that polls finds the work */
	return work_ns >= PROGRESS_SHARE_NS && asleep && !polling;
}

/*
 * How long a mover polls for work before it sleeps. Polling costs a CPU that nobody uses; sleeping
 * costs the next collective a wake-up and its latency. So a mover polls long enough for the last
 * gap between two collectives, plus half of it, if that is below the maximum; half as long after
 * each gap above the maximum; and in the end not at all.
 * poll_ns: the present value; gap_ns: the time from the end of the previous work to the next;
 * max_ns: the maximum. A pure function.
 */
uint64_t progress_poll_ns(uint64_t poll_ns, uint64_t gap_ns, uint64_t max_ns);

#endif
