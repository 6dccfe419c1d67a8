/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * progress: decides who should work on active collectives while the programs compute. One pure
 * function maps a few facts to an action; the caller collects the facts and carries out the action.
 *
 *   caller             when                                     possible actions
 *   PROGRESS_DETACHER  a rank has published a collective and    nothing, announce it, wake a mover,
 *                      returns to its program                   feed the channel
 *   PROGRESS_WAITER    a rank waits in a call and has moved     nothing, wake a peer's process,
 *                      nothing                                  lend its CPU
 *   PROGRESS_SHARER    a mover has claimed one fragment of      nothing, wake another mover
 *                      several
 *   PROGRESS_MOVER     a mover has nothing to do                claim, poll for a while, sleep
 *
 * Movers are the threads of the job's worker process (worker/) and the channel of this process
 * (engine/). They run at idle priority on CPUs that no rank of the job uses.
 *
 * Invariants (test/unit/test_progress.c, over all facts):
 * - With nothing pending, nobody is woken, fed or lent a CPU, and movers sleep without a time-out
 *   once their polling time is over.
 * - With no idle CPU, no mover gets work, so that none displaces a rank that computes. The ranks do
 *   the work in their calls, as they would without movers.
 * - While a mover polls, no mover is woken. Nor is one woken for work that takes less than a
 *   wake-up costs, or that waiting ranks do anyway, unless it is long enough for one more mover.
 * - A peer's process is woken only by a rank that has waited in vain for long, for work that only
 *   that process can do.
 *
 * Threads: any, also in signal handlers. Cost: some nanoseconds, and only where something is
 * pending.
 * Never: allocates, reads a clock, makes a system call.
 */
#ifndef SLUICE_PROGRESS_H
#define SLUICE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum progress_asker { PROGRESS_DETACHER, PROGRESS_WAITER, PROGRESS_SHARER, PROGRESS_MOVER };

/* The facts that the caller can see; facts without a meaning for it are zero. */
struct progress_facts {
	enum progress_asker asker;
	/* The work. */
	/* time that one mover needs for the work that movers can do now; 0: none */
	uint64_t work_ns;
	bool has_waiters; /* DETACHER: ranks with nothing else to do are working on it */
	bool needs_peer;   /* WAITER: only another process, which may be computing, can go on */
	uint64_t overdue_ns; /* WAITER: how long a mover's copy is overdue; 0: not at all */
	/* The movers. */
	bool has_process;    /* the worker process lives and serves this communicator */
	bool has_channel;
	bool has_cpu;        /* some CPU is used by no rank */
	bool is_forced;      /* the user wants movers whatever they cost */
	uint32_t polling;    /* threads of the worker process that poll for work */
	uint32_t asleep;     /* threads of the worker process that sleep */
	/* The wait. */
	bool is_stuck;       /* WAITER: nothing has moved for a millisecond */
	uint64_t poll_ns; /* MOVER: how long it may poll before it sleeps, see progress_poll_ns() */
};

enum progress_action {
	PROGRESS_NOTHING, /* there is no work, or others do it, or ranks do it in their calls */
	PROGRESS_ANNOUNCE,  /* announce the work to movers that are awake */
	PROGRESS_WAKE,  /* announce the work and wake a mover */
	PROGRESS_FEED,  /* give the work to this process's channel */
	PROGRESS_WAKE_PEER,  /* wake the process that alone can go on */
	PROGRESS_LEND,  /* lend this CPU to the overdue mover for a moment */
	PROGRESS_CLAIM,  /* claim a fragment now */
	PROGRESS_POLL,  /* poll for work, poll_ns long */
	PROGRESS_SLEEP, /* sleep until woken */
};

enum progress_action progress_decide(const struct progress_facts *f);

/* Returns: true when a mover will do the work. */
static inline bool progress_has_mover(enum progress_action a)
{
	return a == PROGRESS_ANNOUNCE || a == PROGRESS_WAKE || a == PROGRESS_FEED;
}

/* Measured thresholds. */
#define PROGRESS_WAKE_NS 10000u     /* cost of a futex wake for the waker */
#define PROGRESS_LATENCY_NS 50000u  /* time from the wake until the sleeper runs */
/* duration of a mover's first fragment that is worth a second mover */
#define PROGRESS_SHARE_NS 18000u
#define PROGRESS_POLL_MIN_NS 20000u /* polling for less saves nothing */

/* Returns: how long a mover polls for work after its last. poll_ns: the present value; gap_ns: the
 * time from the end of the previous work to the next; max_ns: the maximum. A pure function. */
uint64_t progress_poll_ns(uint64_t poll_ns, uint64_t gap_ns, uint64_t max_ns);

#endif
