/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by threads.c (which threads there are) and trust.c (what one of them is doing).
 *
 * The kernel looks at one byte a thread, its selector. Threads that never enter the host MPI share
 * one, so that arming costs one store for all of them; the first sud_allow_push() of a thread
 * gives it its own. Such a selector is the low byte of a word that is only changed as a whole:
 *
 *   word = selector | WANTED * (something is armed) | TRUST * (depth of trust)
 *   selector == BLOCK  iff  WANTED and depth 0
 */
#ifndef SLUICE_GUARD_THREADS_H
#define SLUICE_GUARD_THREADS_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "guard/system.h"

#define SELECTOR_BLOCK 1u
#define SELECTOR_MASK  0xffu
#define WANTED         0x100u
#define TRUST          0x10000u

#define BIT(signo)  ((uint64_t)1 << ((signo) - 1))
#define ALL_SIGNALS (~(uint64_t)0)
/* Without libc's own two: setuid() waits until every thread has answered. */
#define PROGRAMS_SIGNALS (ALL_SIGNALS & ~(BIT(32) | BIT(33)))
#define NEVER_BLOCKED (BIT(SIGSEGV) | BIT(SIGSYS))

/* REACHED: its signals are as they should be, its calls pass unseen for now. */
enum state { FREE, EXPECTED, KNOWN, TOLD, REACHED, PROTECTED, OURS };

struct thread {
	_Atomic uint32_t word;
	enum state state;        /* under the lock, as all below */
	bool has_own_selector; /* the kernel looks at `word`; read by the thread itself without lock
				*/
	bool is_dispatched;      /* prctl done; the same */
	bool arms;               /* ranges, or would: only dispatched while something is armed */
	int tid;
	uintptr_t stack_low, stack_high; /* set before the thread runs the program's code */
	struct sud_start start;
	size_t stack_bytes;
	uint64_t virtual_mask;   /* of the creator, for the thread to inherit */
	struct thread *next;     /* all records, never taken out */
};

/* What belongs to one thread and is used by it, and by signals that interrupt it. */
struct sud_local {
	struct thread *thread;
	uint64_t mask;          /* to be in force when a section with signals blocked ends */
	uint64_t virtual_mask;
	volatile uint32_t enters; /* depth of sud_enter */
	int cancel_state;       /* to be restored by sud_exit */
	uint32_t waiting_trust; /* between wait_begin and wait_end */
	volatile bool in_fault, waiting;
	bool is_blocked;        /* by the kernel: sud_enter before sud_init */
	volatile bool has_deferred;
	siginfo_t deferred;     /* a signal that arrived in a section of ours */
	volatile bool in_lock, told_in_lock;
	bool ended;             /* its record is gone, and it must not make another */
};

extern __thread struct sud_local sud_local __attribute__((tls_model("initial-exec")));
extern _Atomic bool sud_is_required; /* sud_init was called */

/* Its depth of trust. */
static inline uint32_t thread_trust(const struct thread *t)
{
	return atomic_load_explicit(&t->word, memory_order_relaxed) / TRUST;
}

static inline uint32_t thread_word(uint32_t depth, bool wanted)
{
	return depth * TRUST | (wanted ? WANTED : 0) | (wanted && !depth ? SELECTOR_BLOCK : 0);
}

/* The record of this thread, made now when it has none: the program's first thread, or one that was
 * made behind our back. NULL without memory, and at the thread's end. */
struct thread *thread_self(void);
/* The kernel looks at this thread's word from now on; it is dispatched already. */
void thread_own_selector(struct thread *t);

#endif
