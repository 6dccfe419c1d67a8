/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sud: the program's system calls and signals while some of its memory is closed.
 *
 * An access by the program to closed memory raises SIGSEGV. A system call with an address of closed
 * memory raises nothing: the kernel returns EFAULT. So Syscall User Dispatch (Linux 5.11) has each
 * system call of the program raise SIGSYS while memory is closed; the handler compares the call's
 * arguments with the closed memory, has it opened, and lets the call happen. Both signals belong to
 * this folder from then on, and the program sees of them what it has set itself.
 *
 *   program --access---> kernel --SIGSEGV--> fault.c --touch()--> guard/
 *   program --syscall--> kernel --SIGSYS---> sud.c --overlaps() touch()--> guard/
 *                            <-- call, from an address that is never dispatched --
 *
 *   sud_probe -> sud_init(ops) -> sud_enable_threads ->
 *     [sud_signals_are_ours, sud_covers_threads -> sud_enable_self, sud_set_armed(true) ...
 *      sud_set_armed(false)]* -> sud_fini
 *
 *   fault.c      the handler of SIGSEGV
 *   sud.c        the handler of SIGSYS: which memory a system call names (calls.h), what follows
 *   threads.c    every thread of the process, and whether its system calls are dispatched
 *   sections.c   sections of one thread: allowed calls, deferred signals, faults
 *   signals.c    the program's actions, masks and pending signals of SIGSEGV and SIGSYS
 *   stack.c      stacks for handlers
 *   x86_64/      raw system calls, the range of code that is never dispatched, registers
 *   program.h    what preload/ calls when the program changes signals or makes threads
 *
 * sud/ knows no armed range: guard/ gives the functions of struct sud_ops.
 *
 * Signals: functions that end in _sig run in handlers of SIGSEGV and SIGSYS;
 * scripts/check_signal_safety.py follows all that they call. Nothing allocates memory.
 *
 * sud/ never executes a system call of the program inside a handler, except rt_sigprocmask, which
 * has to change the interrupted frame.
 */
#ifndef SLUICE_SUD_H
#define SLUICE_SUD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One system call from the range that is never dispatched. errno is left alone.
 * Returns: the kernel's answer, -errno on failure. Context: anywhere. */
long sud_syscall(long nr, ...);
extern const char sud_range_start[], sud_range_end[]; /* that range */
void sud_restorer(void); /* a signal handler's return, in that range */

/* ---- set-up ------------------------------------------------------------------------------ */

/* Functions of the owner of closed memory (guard/). All run in signal handlers. */
struct sud_ops {
	/* Is a byte of [start, end) closed for this kind of access? */
	bool (*overlaps)(uintptr_t start, uintptr_t end, bool write);
	/* Opens what is closed of [start, start + bytes). May return with pages still closed when
	 * sud_wait_interrupted(): the call then happens again after the program's handler. */
	bool (*touch)(uintptr_t start, size_t bytes, bool write);
	/* Opens everything: the call could show the state of any memory. Same exception. */
	void (*complete_all)(void);
	/* Opens what is complete already; called at every 16th dispatched system call. */
	void (*tidy)(void);
	/* Returns: 0 when no memory at addr was ever closed; else 1 and the number of openings so
	 * far. A handler that finds nothing closed sees the opening of that page. */
	uint64_t (*openings)(uintptr_t addr);
};

/* Tries Syscall User Dispatch in this thread. Returns: 0, or -errno with a sentence. */
int sud_probe(char *reason, size_t cap);
/*
 * Takes SIGSEGV and SIGSYS, and has both unblocked in this thread and in every thread that is made
 * from now on. Idempotent. Returns: 0 or -errno. Context: not in signal handlers.
 * Owner: ops has to live for ever.
 */
int sud_init(const struct sud_ops *ops);
/* Installs the program's action of SIGSEGV again; no memory is closed any more. */
void sud_fini(void);
/* Checks that both handlers are in place. A handler that the program has installed by a raw system
 * call becomes the program's action, and ours is installed again. One system call a signal.
 * Returns: false when that failed. */
bool sud_signals_are_ours(void);

/* ---- threads ----------------------------------------------------------------------------- */

/*
 * Has the system calls of all threads dispatched, before memory is closed. Threads that exist get a
 * signal and follow when it reaches them. Dispatch costs each system call 0.08 us also while no
 * memory is closed; so a thread that closes memory is dispatched only while some is closed, unless
 * several threads do. To be called again when sud_covers_threads() is false.
 * Context: not in signal handlers.
 */
void sud_enable_threads(void);
bool sud_is_enabled(void); /* sud_enable_threads() was called */
/* Has this thread's system calls dispatched, before it closes the first memory.
 * Returns: false when another thread is not covered: call sud_enable_threads(). */
bool sud_enable_self(void);
/* Is every thread of the process dispatched or Sluice's own? About 1 us (one system call). */
bool sud_covers_threads(void);
/* The first memory is about to be closed; or all of it is open again. No system call but for this
 * thread's own dispatch. Context: inside sud_enter(), with the owner's lock. */
void sud_set_armed(bool armed);
/* This thread is one of Sluice's: it never touches closed memory, its system calls are never
 * dispatched, and no signal of the program is delivered to it. */
void sud_own_thread(void);
bool sud_is_own_thread(void);
/* Is this a vfork child, which runs in the parent's memory until exec? */
bool sud_is_vforked(void);

/* ---- sections of this thread ------------------------------------------------------------- */

/* Between push and pop this thread's system calls are Sluice's or the host MPI's: they cannot name
 * closed memory and pass without SIGSYS. Nest; no system call after the first. */
void sud_allow_push(void);
void sud_allow_pop(void);
/* Between enter and exit handlers of the program are deferred in this thread, and its system calls
 * pass: for critical sections. Nest. Not needed in the owner's functions. */
void sud_enter(void);
void sud_exit(void);
/* Inside sud_enter(): the program's handlers may run between begin and end. Nothing changes inside
 * a fault, where a handler could siglongjmp over us. */
void sud_wait_begin(void);
void sud_wait_end(void);
/* Inside a fault: a signal of the program is deferred. Returns false outside faults. No system
 * call. */
bool sud_wait_interrupted(void);
/* Around exec and posix_spawn: the new program inherits the mask and the ignored signals that this
 * program believes to have. Also between vfork and exec. */
void sud_exec_begin(void);
void sud_exec_end(void);

#endif
