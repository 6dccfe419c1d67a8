/* SPDX-License-Identifier: BSD-3-Clause */
/* Handlers of SIGSEGV and SIGSYS: how one is installed, runs, and passes a signal on. For guard/.
 * */
#ifndef SLUICE_SUD_HANDLER_H
#define SLUICE_SUD_HANDLER_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- signals of ours --------------------------------------------------------------------- */

typedef void sud_handler(int signo, siginfo_t *si, void *ucontext);

/*
 * Installs a handler of SIGSEGV or SIGSYS. The handler runs with the program's mask, and on the
 * alternate stack only where the program's own handler would. The program's action is kept and is
 * virtual from now on. Idempotent. Returns: 0 or -errno. Context: not in signal handlers.
 */
int sud_signal_install(int signo, sud_handler *handler);
/* Installs the program's action again. */
void sud_signal_uninstall(int signo);
/* Checks that both handlers are in place. A handler that the program has installed by a raw system
 * call becomes the program's action, and ours is installed again. One system call a signal.
 * Returns: false when that failed. */
bool sud_signals_are_ours(void);
/*
 * Does what this signal would have done without us: calls the program's handler with its mask, on
 * this stack; or returns so that the signal strikes again with the default action; or keeps a sent
 * signal that the program blocks. To be called last in a handler, outside sud_fault_begin_sig() ..
 * sud_fault_end_sig(). May not return (siglongjmp).
 */
void sud_chain_sig(int signo, siginfo_t *si, void *ucontext);

/* ---- faults ------------------------------------------------------------------------------ */

struct sud_fault {
	uint32_t saved_enters, saved_allowed;
	int saved_errno;
	bool saved_in_fault, saved_waiting;
};

/*
 * Bracket the part of a handler that may run the owner's functions: handlers of the program are
 * deferred, this thread's system calls pass, and errno is restored at the end. Nest.
 */
void sud_fault_begin_sig(struct sud_fault *f);
void sud_fault_end_sig(const struct sud_fault *f);
/* Calls fn(arg) with at least 64 KiB of stack: on this stack where that is certain, else on one of
 * a pool. Inside a sud_fault or sud_enter(). Debuggers can unwind through it. */
void sud_with_stack_sig(void (*fn)(void *arg), void *arg, void *ucontext);

#endif
