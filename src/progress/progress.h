/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * progress: who should be working now. Collectives go on while the programs compute; whether
 * anybody has to be disturbed for that, and who, is one pure function of a few facts. It knows
 * nobody: who asks says what it sees, and does what it is told.
 *
 *   who asks           when                                          what it may be told
 *   PROGRESS_DETACHER    a rank has published its side of something,    leave it, tell or wake a
 * mover, feed the channel and goes back to its program PROGRESS_WAITER    a rank waits in a call,
 * and has moved nothing  leave it, call a process, lend its CPU PROGRESS_SHARER    a mover has
 * taken one piece of several         leave it, wake another mover PROGRESS_MOVER     a mover has
 * nothing in its hands               take, look for a while, sleep until told
 *
 * Movers are those that are no ranks: the threads of the job's worker process (worker/), and the
 * channel of this process (engine/). They run at idle priority on CPUs that no rank of the job
 * uses.
 *
 * What always holds (test/unit/test_progress.c, over all facts):
 * - Nothing is pending: nobody is woken, told, called, fed or lent a CPU; movers sleep without
 * time-outs once the short time is over in which they look by themselves.
 * - No CPU is idle: no mover is given anything, so that none displaces a rank that computes. The
 * ranks do the work in their calls, as they would without movers.
 * - Somebody already looks for work: nobody is woken. Nor is anybody for work that takes less than
 * a wake-up costs, or that ranks which wait for it do anyway, unless it is long enough for one
 * more.
 * - Nobody is called but by a rank that has waited in vain for long, for what only the called
 * process can do.
 *
 * Pure: no memory, no clock, no system call; any thread, signal handlers too. What it costs: some
 * nanoseconds, and only where something is pending.
 */
#ifndef SLUICE_PROGRESS_H
#define SLUICE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum progress_asker { PROGRESS_DETACHER, PROGRESS_WAITER, PROGRESS_SHARER, PROGRESS_MOVER };

/* As far as who asks can see; what means nothing to it is zero. */
struct progress_facts {
	enum progress_asker asker;
	/* the work */
	uint64_t work_ns; /* what one mover would take for what movers can take now; 0: there is
			     nothing */
	bool has_waiters; /* ranks that have nothing to do but wait for it are doing it (LEAVER) */
	bool needs_peer;   /* what is waited for may go on in another process only, which may be
			     computing (WAITER) */
	uint64_t late_ns; /* for how long a mover should have been done with what it took; 0: none
			     is late (WAITER) */
	/* those who could do it */
	bool has_process;    /* the worker process serves this communicator, and lives */
	bool has_channel;
	bool has_cpu;        /* some CPU is not used by any rank */
	bool is_forced;      /* the user wants them to do it, worth it or not */
	uint32_t looking;    /* threads of the worker process that look for work by themselves */
	uint32_t asleep;     /* ... that have to be woken */
	/* the wait */
	bool is_stuck;       /* nothing has moved for a millisecond (WAITER) */
	uint64_t look_ns;    /* for how long it may look for work before it sleeps (MOVER):
				progress_poll_ns() */
};

enum progress_action {
	PROGRESS_NOTHING, /* nobody is disturbed: it is nothing, it is being done, or ranks do it in
			   their calls */
	PROGRESS_ANNOUNCE,  /* what there is to do is announced to movers that are awake */
	PROGRESS_WAKE,  /* ... to one that sleeps */
	PROGRESS_FEED,  /* this process's channel gets it */
	PROGRESS_WAKE_PEER,  /* the process that alone can go on */
	PROGRESS_LEND,  /* the asker's CPU to the mover that is late, for a moment */
	PROGRESS_CLAIM,  /* a piece of it, now */
	PROGRESS_POLL,  /* for work, look_ns long */
	PROGRESS_SLEEP, /* until told */
};

struct progress_choice {
	enum progress_action action;
	const char *reason; /* a sentence without an end */
};

struct progress_choice progress_decide(const struct progress_facts *f);

/* Will somebody who is no rank do it? */
static inline bool progress_has_mover(enum progress_action a)
{
	return a == PROGRESS_ANNOUNCE || a == PROGRESS_WAKE || a == PROGRESS_FEED;
}

/* What the decision turns on. */
#define PROGRESS_WAKE_NS 10000u     /* what waking a sleeper takes who wakes it */
#define PROGRESS_LATENCY_NS 50000u  /* ... and how long it takes until that runs */
#define PROGRESS_SHARE_NS 18000u    /* a mover's first piece of what is worth a second one */
#define PROGRESS_POLL_MIN_NS 20000u /* to look for less saves nothing */

/*
 * How long a mover looks for work after it has done what it found, when it was ready to look for
 * look_ns after the last, and the next came gap_ns after that. Pure.
 */
uint64_t progress_poll_ns(uint64_t look_ns, uint64_t gap_ns, uint64_t max_ns);

#endif
