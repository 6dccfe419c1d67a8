/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What stands between guard/ and the system: raw calls, the two signals, threads, dispatched calls.
 * Private to guard/. Who defines what:
 *
 *   signals.c      signals_*: SIGSEGV and SIGSYS, and what the program believes about signals
 *   threads.c      threads_*, sud_enter ... sud_in_fault: every thread and its selector
 *   dispatch.c     dispatch_*: Syscall User Dispatch (dispatch_none.c where the machine has none)
 *   interpose.c    the program's calls (libsluice.so only)
 *   arch/ *.S      sud_syscall, the restorer, the stubs: the range that dispatch always allows
 *
 * Order:  sud_probe -> sud_signal_install(SIGSEGV) -> sud_init -> sud_enable_threads ->
 *         [sud_signals_are_ours, sud_covers_threads -> sud_set_armed(true) ... sud_set_armed(false)]*
 */
#ifndef SLUICE_GUARD_SYSTEM_H
#define SLUICE_GUARD_SYSTEM_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- raw calls --------------------------------------------------------------------------- */

/* One system call from the range that is never dispatched. The kernel's answer: -errno on failure;
 * errno is left alone. Context: anywhere. */
long sud_syscall(long nr, ...);

/* ---- signals ----------------------------------------------------------------------------- */

typedef void sud_handler(int signo, siginfo_t *si, void *ucontext);

/*
 * Take SIGSEGV or SIGSYS. The handler runs with the program's mask, on the alternate stack only
 * where the program's own handler would. What the program had set is kept, and from now on virtual.
 * Idempotent. 0 or -errno. Not in signal handlers.
 */
int sud_signal_install(int signo, sud_handler *handler);
/* The program's action is the real one again. */
void sud_signal_uninstall(int signo);
/* Our handlers are in place; if somebody has replaced one by a raw call it is taken over again, and
 * chained to. One system call a signal. False: that failed. */
bool sud_signals_are_ours(void);
/*
 * This signal is not ours: do what would have happened without us. Calls the program's handler
 * (with its mask, on this stack), or returns so that the signal strikes again with its default
 * action, or keeps a sent signal that the program blocks. May not return (siglongjmp). Call it last
 * in the handler, outside system_fault_begin/end.
 */
void sud_chain_sig(int signo, siginfo_t *si, void *ucontext);

/*
 * For interpose.c: what the program asks for. Nothing here makes the call itself, but
 * sud_action.
 */
uint64_t sud_unblockable(void);  /* bits to take out of every mask that the kernel gets */
bool sud_is_virtual(int signo);    /* its action is answered by sud_action: 0 or -errno */
int sud_action(int signo, const struct sigaction *new, struct sigaction *old);
/*
 * Of another signal: what the kernel has instead of what the program set. get before the call; set
 * changes the action that the kernel gets; put takes that back when the kernel refused it; show
 * changes what the kernel says into what the program had set.
 */
struct sud_relay {
	void *handler, *hid;
	uint64_t bits;
	int flags;
};
struct sud_relay sud_relay_get(int signo);
void sud_relay_set(int signo, struct sigaction *sa);
void sud_relay_put(int signo, const struct sud_relay *from);
void sud_relay_show(const struct sud_relay *o, struct sigaction *sa);
bool sud_relays(
	void); /* libc's own ways to the kernel's table are closed: all by sigaction() */
void sud_mask_changed(int how, uint64_t set); /* after the kernel's has */
uint64_t sud_pending(void); /* sent to this thread and virtually blocked */
int sud_pending_take(uint64_t set, siginfo_t *out); /* one of them, or 0 */
void signals_jumped(bool mask_comes_back); /* the program leaves a handler by longjmp */
/* Before exec, and after one that failed: a new program inherits what is blocked and ignored. */
void signals_exec_mask(bool begin);

/* ---- a fault: SIGSEGV of ours, from its recognition to its end --------------------------- */

struct sud_fault {
	uint32_t saved_enters, saved_trust;
	int saved_errno;
	bool saved_in_fault, saved_waiting;
};

/*
 * Brackets the part of a signal handler that may run touched(): no handler of the program runs
 * meanwhile, this thread's calls pass undisturbed, sud_in_fault() is true, errno comes back.
 * Nests.
 */
void sud_fault_begin_sig(struct sud_fault *f);
void sud_fault_end_sig(const struct sud_fault *f);
/*
 * fn(arg) with at least 64 KiB of stack: on this one where that is certain, else on one of a pool.
 * Inside a sud_fault or sud_enter(). Debuggers see through it.
 */
void sud_with_stack_sig(void (*fn)(void *arg), void *arg, void *ucontext);

/* ---- threads ----------------------------------------------------------------------------- */

/*
 * From now on every thread that is made is to be reachable: with SIGSEGV and SIGSYS unblocked, when
 * `dispatch` (else nothing happens). Takes SIGSYS. Idempotent. 0 or -errno. Not in signal handlers.
 */
int sud_init(bool dispatch);
/*
 * Then, before anything is armed: all threads are, and their system calls are dispatched. Those
 * that exist are told by a signal and follow when it reaches them. Dispatch costs each system call
 * 0.08 us also while nothing is armed: so a thread that arms ranges is only dispatched while there
 * are some, unless others do so, too. Again when threads are not covered. Not in signal handlers.
 */
void sud_enable_threads(void);
bool sud_is_enabled(void);
/* This thread arms the first range: it is dispatched from now on. False: another one is not,
 * sud_enable_threads() is to be called. */
bool sud_enable_self(void);
/* Is every thread of the process protected, or ours? About 1 us (one system call). */
bool sud_covers_threads(void);
/* This thread belongs to Sluice: it never touches guarded memory and needs no protection, and no
 * signal of the program's is delivered to it. */
void sud_own_thread(void);
bool sud_is_own_thread(void);
/* The program is about to do what could show the state of things: nothing is armed afterwards. */
void guard_complete(void);
/* sud_set_armed's part. */
void threads_store_armed(bool armed);

/* The signal by which sud_enable_threads tells a thread; true when it was that. Context: SIGSYS's
 * handler. */
bool thread_enable_sig(const siginfo_t *si, void *ucontext);

/*
 * For pthread_create and its like. sud_thread_expect: before the thread exists; NULL when there is no
 * memory (the thread is then not protected, and found by counting). Then one of: sud_thread_begin in
 * the new thread, which says what it is to run; sud_thread_abandon when there is none. The thread
 * unregisters itself at its end.
 */
struct thread;
struct sud_start {
	void *fn, *arg;
};
struct thread *sud_thread_expect(const struct sud_start *start, size_t stack_bytes);
void sud_thread_abandon(struct thread *t);
struct sud_start sud_thread_begin(struct thread *t);
/* libc is about to write here with every signal blocked, or a thread to have its stack here. */
void guard_open(uintptr_t start, uintptr_t end);

/* The program jumps out of wherever it is (longjmp): whatever of ours was under way is not any
 * more. */
void threads_jumped(void);
/* Is there certainly this much stack below? */
bool thread_has_stack(uintptr_t here, size_t bytes);

/* A signal has come whose handler must not run here: it is kept for later. */
bool thread_defer_sig(const siginfo_t *si, void *ucontext);
/* A handler of the program in the midst of trusted calls: it is not trusted. */
uint32_t sud_allow_suspend(void);
void sud_allow_resume(uint32_t depth);

/* Between vfork and exec this is another process in the same memory: what is known of the thread,
 * and of the program's signals, is the parent's. */
bool sud_is_vforked(void);

/* What the program believes to be blocked in this thread: bits of SIGSEGV and SIGSYS, which never
 * are. */
uint64_t *sud_virtual_mask(void);

/* ---- dispatched system calls ------------------------------------------------------------- */

/* Does the kernel offer it here, tried for real in this thread? 0, or -errno with a sentence. */
int sud_probe(char *reason, size_t cap);
int sud_install(void); /* sud_init's part: takes SIGSYS. 0 or -errno */
/* Something is armed / nothing is any more: every thread's system calls are looked at, or pass.
 * Called by guard.c at these transitions, with its lock held, inside sud_enter(). No system call.
 */
void sud_set_armed(bool armed);

/*
 * What dispatch.c needs of guard.c is in private.h: guard_overlaps_sig, guard_touch_sig,
 * guard_complete_all_sig. touched() may have returned with pages still armed, because a signal of
 * the program waits (guard_wait_interrupted()): both handlers then return, so that the signal is
 * delivered where the program was and the access happens again. So nobody loops until a range is
 * open, and nobody takes a range that is still armed after touched() for an error.
 */

#endif
