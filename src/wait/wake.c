/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleeping until a peer wakes this process. The wake words of the job's ranks on this node lie in
 * an array that all of them map (node/).
 *
 *   sleeper   reads the word, counts itself, polls once more, sleeps while the word is the same
 *   waker     has delivered; where it finds a sleeper it changes the word and wakes
 *
 * Their full fences are partners: either the sleeper's last poll finds what was delivered, or the
 * waker finds the sleeper.
 */
#include <limits.h>

#include "wait/private.h"

void word_arm(struct wait_thread *w, struct node_wake_word *word)
{
	w->wakes = atomic_load_explicit(&word->wakes, memory_order_acquire);
	atomic_fetch_add_explicit(&word->sleepers, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* partner: word_wake */
	w->is_armed = true;
}

void word_disarm(struct wait_thread *w, struct node_wake_word *word)
{
	atomic_fetch_add_explicit(&word->sleepers, (uint32_t)-1, memory_order_relaxed);
	w->is_armed = false;
}

bool word_sleep(struct wait_thread *w, struct node_wake_word *word, uint64_t ns)
{
	int rc = os_futex_wait(&word->wakes, w->wakes, ns);

	word_disarm(w, word);
	return !rc;
}

void word_hint(struct node_wake_word *word)
{
	uint32_t hints = atomic_load_explicit(&word->hints, memory_order_relaxed);

	atomic_store_explicit(&word->hints, hints + 1, memory_order_release);
}

bool word_wake(struct node_wake_word *word)
{
	atomic_thread_fence(memory_order_seq_cst); /* partner: word_arm */
	if (base_likely(!atomic_load_explicit(&word->sleepers, memory_order_relaxed)))
		return false;
	atomic_fetch_add_explicit(&word->wakes, 1, memory_order_release);
	os_futex_wake(&word->wakes, INT_MAX);
	return true;
}
