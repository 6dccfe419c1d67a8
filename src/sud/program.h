/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The program's signals and threads, as preload/ reports them. The program's SIGSEGV and
 * SIGSYS are virtual: its actions, masks and pending signals of these two are kept here, while the
 * kernel has ours. Until sud_init() everything passes unchanged, but for SIGSYS in masks.
 *
 * No function here makes the program's call itself, except sud_action().
 */
#ifndef SLUICE_SUD_PROGRAM_H
#define SLUICE_SUD_PROGRAM_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- actions ----------------------------------------------------------------------------- */

/* Is this signal's action virtual? Then sud_action() answers sigaction(). */
bool sud_is_virtual(int signo);
/* Returns: 0 or -errno. */
int sud_action(int signo, const struct sigaction *new, struct sigaction *old);

/*
 * The action of another signal, as far as the kernel's differs from the program's. While SIGSYS is
 * ours each handler of the program is called by a relay, which defers it in critical sections.
 * Around the real sigaction(): get before it; set changes the action that the kernel gets; put
 * undoes that when the kernel refused; show changes the kernel's answer into what the program had
 * set.
 */
struct sud_relay {
	void *handler, *masked_by;
	uint64_t hidden;
	int flags;
};
struct sud_relay sud_relay_get(int signo);
void sud_relay_set(int signo, struct sigaction *sa);
void sud_relay_put(int signo, const struct sud_relay *from);
void sud_relay_show(const struct sud_relay *o, struct sigaction *sa);
/* All actions have to be set by sigaction(): libc's other ways to the kernel would remove a relay.
 * */
bool sud_relays(void);

/* ---- masks ------------------------------------------------------------------------------- */

/* The first 64 signals of a set, as the kernel's mask. */
static inline uint64_t sud_mask_from(const sigset_t *set)
{
	uint64_t mask;

	memcpy(&mask, set, sizeof(mask));
	return mask;
}

static inline void sud_mask_to(sigset_t *set, uint64_t mask) { memcpy(set, &mask, sizeof(mask)); }

/* Returns: the signals that no mask of the kernel may contain. */
uint64_t sud_unblockable(void);
/* Returns: which of them the program has blocked in this thread. */
uint64_t *sud_virtual_mask(void);
/* The kernel's mask was changed by sigprocmask(how, set). */
void sud_mask_changed(int how, uint64_t set);
/* Returns: signals that were sent to this thread and are virtually blocked. */
uint64_t sud_pending(void);
/* Takes one of them that is in `set`. Returns: its number, 0 when there is none. */
int sud_pending_get(uint64_t set, siginfo_t *out);

/* ---- threads ----------------------------------------------------------------------------- */

struct thread;
struct sud_start {
	void *fn, *arg;
};
/*
 * Before a thread is made. Returns: its record; NULL without memory, when the thread is not
 * dispatched and sud_covers_threads() is false while it lives. Then either sud_thread_begin() in
 * the new thread, or sud_thread_abandon() when there is none. A thread that ends frees its record.
 */
struct thread *sud_thread_expect(const struct sud_start *start, size_t stack_bytes);
void sud_thread_abandon(struct thread *t);
/* Returns: what the thread is to run. */
struct sud_start sud_thread_begin(struct thread *t);
/* The program has cancelled a thread. */
void sud_thread_cancelled(pthread_t thread);
/* The program leaves this stack by longjmp: ends whatever of ours was under way on it. */
void sud_jumped(bool restores_mask);

#endif
