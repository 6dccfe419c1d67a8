/* SPDX-License-Identifier: BSD-3-Clause */
/* What of the signal machinery differs between processors. Private to guard/. One folder a
 * processor. */
#ifndef SLUICE_SUD_MACHINE_H
#define SLUICE_SUD_MACHINE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The program's registers at an interrupted or refused system call, within a signal's ucontext. */
struct machine_call {
	long nr;
	uint64_t args[6];
};

/* Code whose system calls the kernel always lets pass. */
extern const char sud_range_start[], sud_range_end[];
void sud_restorer(void); /* a signal handler's return */

void machine_call_on(void (*fn)(void *arg), void *arg, void *stack_top);

/* The refused call. False: it is not one of the native calls (another ABI's numbers). */
bool machine_get_call(const siginfo_t *si, const ucontext_t *uc, struct machine_call *out);
/* After the handler's return ... the call happens, undisturbed. */
void machine_pass(ucontext_t *uc, const struct machine_call *call);
/* ... the program's own instruction is executed again, and looked at again. */
void machine_restart(ucontext_t *uc);
/* ... the call appears to have returned this. */
void machine_set_result(ucontext_t *uc, long result);
/* A signal of ours has ended a call that the kernel does not restart by itself (poll, nanosleep):
 * have it begin again where its number can be told from the instructions before it. */
void machine_undo_interruption(ucontext_t *uc);

#endif
