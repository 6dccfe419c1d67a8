/* SPDX-License-Identifier: BSD-3-Clause */
/* The processor's part of Syscall User Dispatch; defined in x86_64/. Private to sud/. */
#ifndef SLUICE_SUD_MACHINE_H
#define SLUICE_SUD_MACHINE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A dispatched system call: the program's registers in a signal's ucontext. */
struct machine_call {
	long nr;
	uint64_t args[6];
};

/* Calls fn(arg) on another stack. */
void machine_call_on(void (*fn)(void *arg), void *arg, void *stack_top);

/* Reads the dispatched call. Returns: false when it has another ABI's number. */
bool machine_get_call(const siginfo_t *si, const ucontext_t *uc, struct machine_call *out);
/* After the handler's return the call happens, without being dispatched again. */
void machine_pass(ucontext_t *uc, const struct machine_call *call);
/* After the handler's return the program's instruction runs again, and is dispatched again. */
void machine_restart(ucontext_t *uc);
/* The handler of SIGSYS: marks, at an address below the second one, whether it is to enable the
 * thread, and continues in sigsys(). */
void machine_sigsys(int signo, siginfo_t *si, void *ucontext);
extern const char machine_sigsys_end[];
/* Returns: the interrupted instruction. */
uintptr_t machine_ip(const ucontext_t *uc);
/* After the handler's return the call appears to have returned `result`. */
void machine_set_result(ucontext_t *uc, long result);
/* Is this a cancellation point of glibc 2.41 or newer, which cancels threads only there? */
bool machine_is_cancellation_point(const ucontext_t *uc);
/* A thread that machine_pass() has sent to its call, and that has not got further: goes back to the
 * program's instruction. A call that has not returned happens there, and is dispatched again. */
void machine_undo_pass(ucontext_t *uc);
/* A signal of ours has interrupted a call that the kernel does not restart (poll, nanosleep):
 * restarts it, where the instructions before it tell its number. */
void machine_undo_interruption(ucontext_t *uc);

#endif
