/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * wait: what a thread does while the host MPI has nothing for it: spin, yield, sleep.
 *
 *   host MPI, blocked --idle round--> sched_yield() of preload/, or its progress function
 *                                          |                       (mpi/front/idle.c)
 *                                     wait_round()  spin: return at once; yield; nap on a futex
 *
 *   mode      polite: a node with more ranks than CPUs. A wait spins for microseconds, or yields
 *             for longer (round.c), then naps
 *             spin: a core for each rank. The host MPI waits as without Sluice
 *
 * A wait begins with a call of the program (wait_call_begin()), or with a poll of the host MPI that
 * found something: the time between two idle rounds of a thread is short and steady while it finds
 * nothing. Polite processes therefore intercept every call (mpi/front).
 *
 * A program that does nothing but test (MPI_Test, MPI_Iprobe) waits, too: wait_test_end(). Any
 * work between two tests ends such a wait.
 *
 * A process that has sent, or has taken part in a collective, wakes the ranks of its node that may
 * wait for that (wake.c). Naps are bounded, as not every event comes with a wake-up.
 *
 * Order of calls: wait_start() in MPI_Init; the rest afterwards, from any thread, not in signal
 * handlers. A forked child spins. Nothing here takes a lock or allocates.
 */
#ifndef SLUICE_WAIT_H
#define SLUICE_WAIT_H

#include "base/base.h"
#include "node/node.h"
#include "os/os.h"

enum wait_mode { WAIT_SPIN, WAIT_POLITE };

struct wait_facts {
	int64_t option;  /* SLUICE_WAIT: enum base_wait */
	int local_ranks; /* ranks of the job on this node; -1: unknown */
	int cpus;        /* CPUs for them; -1: unknown */
	bool switches;   /* the ranks give each other one processor: os/endpoint.h */
};
/* Returns: the mode that follows from the facts. */
enum wait_mode wait_decide(const struct wait_facts *facts);
/* Reads the facts from the options, the launcher's environment, the CPU masks of this process and
 * of its siblings, and the quota of its cgroups. */
__attribute__((cold)) void wait_facts_read(struct wait_facts *out);
/* Returns: CPUs of a quota, rounded up, from the text of a cgroup's cpu.max; -1: no quota. */
int wait_quota_cpus(const char *cpu_max);

/* Decides the mode of this process. Returns: the mode. */
__attribute__((cold)) enum wait_mode wait_start(void);

extern _Atomic int wait_mode_now; /* enum wait_mode */
static inline enum wait_mode wait_mode(void)
{
	return (enum wait_mode)atomic_load_explicit(&wait_mode_now, memory_order_relaxed);
}

/* One thread's present wait. */
struct wait_thread {
	uint64_t since_ns;    /* begin of the wait, or of its last progress */
	uint64_t awake_until_ns; /* spins or yields before it naps */
	uint64_t round_at_ns; /* the last idle round */
	uint64_t round_ns;    /* usual length of an idle round: near the least */
	uint32_t calls;       /* calls of the program */
	uint32_t call;        /* the call to which the other members belong */
	uint32_t polls;       /* since the last nap */
	uint32_t polled;      /* since the last yield */
	uint32_t longer;      /* rounds that were longer than round_ns */
	uint32_t switched;    /* rounds that ran other ranks */
	struct node_yields yields; /* of the wait */
	uint32_t hints;       /* the process's count of hints, seen last */
	uint32_t hinted_polls; /* without yield: a hint says that they find something */
	uint32_t wakes;       /* the process's wake word before the last poll */
	bool is_armed;        /* counts as a sleeper: the next idle round sleeps */
	bool is_testing;      /* inside a call that tests, which has no rounds of its own */
	bool may_wake_all;    /* the call has not woken the others yet */
	/* tests of the program, which wait_round() does not count */
	uint32_t tests;          /* in a row, without result */
	uint32_t long_gaps;      /* measured gaps that were longer than an empty loop's */
	uint64_t tests_since_ns; /* the first of them */
	uint64_t tested_at_ns;   /* the last one, if its gap is measured; 0: it is not */
};
/* NULL until the thread's first idle round. A pointer, as static TLS is scarce. */
extern __thread struct wait_thread *wait_thread __attribute__((tls_model("initial-exec")));

#define WAIT_ALL INT32_MIN

/* Once MPI knows the ranks of the job, and before node/ forgets them: lets this process wake them
 * and be woken. Context: no other thread is in MPI. */
__attribute__((cold)) void wait_connect(int world_rank, int world_size);
__attribute__((cold)) void wait_disconnect(void);
void wait_wake(int world_rank); /* by number in MPI_COMM_WORLD; WAIT_ALL */

/* Around each call of the program that may block. wait_call_end() returns rc. */
void wait_call_begin(void);
int wait_call_end(int rc);
/* As wait_call_begin(), of a call that any rank may wait for: it wakes all of them before it
 * sleeps. */
void wait_common_begin(void);
/* Ends a call that may have ended the waits of a rank of MPI_COMM_WORLD, or of WAIT_ALL; of nobody
 * for other values. Returns: rc. */
int wait_call_end_for(int rc, int world_rank);
/* Around each call that tests. found: its flag, which holds if rc is 0. Returns: rc. */
void wait_test_begin(void);
int wait_test_end(int rc, const int *found);

/* One idle round of the host MPI in this thread: spins, yields or naps. Returns: false in mode
 * spin, where the caller does what the host MPI asked for. */
bool wait_round(void);
/* As wait_round(), after several polls of the host MPI that found nothing. */
bool wait_round_after(uint32_t polls);

#endif
