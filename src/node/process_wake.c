/* SPDX-License-Identifier: BSD-3-Clause */
/* Waking a process whose ranks compute. The wake word lies in the arena of the process, one for all
 * its communicators; peers read its offset in the control segment. */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "node/private.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(_Atomic uint32_t *) word;
static uint64_t word_off;
static int word_pid; /* a forked child has another arena */

uint64_t process_word(void)
{
	struct region_extent e;

	pthread_mutex_lock(&lock);
	if (word_pid != getpid()) {
		word_pid = getpid();
		word_off = NO_PROCESS_WORD;
		atomic_store_explicit(&word, NULL, memory_order_relaxed);
		if (!region_extent_get(OS_PAGE, true, &e)) {
			word_off = e.offset;
			/* release: the page; partner: node_wait_process_wake */
			atomic_store_explicit(&word,
					      (void *)((char *)region_arena_base() + e.offset),
					      memory_order_release);
		}
	}
	pthread_mutex_unlock(&lock);
	return word_off;
}

void node_wake_process(struct node_group *g, int rank)
{
	_Atomic uint32_t *theirs;

	if (rank == g->rank)
		return;
	theirs = node_map(g, rank, g->ranks[rank].process_word_off, sizeof *theirs);
	if (!theirs)
		return;
	/* release: what the caller has published; partner: node_wait_process_wake */
	atomic_fetch_add_explicit(theirs, 1, memory_order_release);
	os_futex_wake(theirs, 1);
}

int node_wait_process_wake(uint32_t *known, uint64_t timeout_ns)
{
	_Atomic uint32_t *mine =
		atomic_load_explicit(&word, memory_order_acquire); /* partner: process_word */
	uint32_t now;

	if (!mine)
		return -ENOENT;
	while ((now = atomic_load_explicit(mine, memory_order_acquire)) ==
	       *known) /* partner: node_wake_process */
		if (os_futex_wait(mine, now, timeout_ns) == -ETIMEDOUT)
			break;
	*known = now;
	return 0;
}
