/* SPDX-License-Identifier: BSD-3-Clause */
/* How worker threads sleep without a lost wake-up, described in sw.h and proven by
 * test/unit/test_engine_queue.c. */
#include "engine/sw/sw.h"

#define ASLEEP_MASK (((uint64_t)1 << SW_WORKERS) - 1)
#define ONE_SEEKER ((uint64_t)1 << SW_WORKERS)

/* Every operation on the word is an acquire-release read-modify-write: of two of them, the later
 * one sees what its partner did before the earlier one. */

void sw_sleep_seek(struct sw_sleep *s)
{
	atomic_fetch_add_explicit(&s->word, ONE_SEEKER, memory_order_acq_rel);
}

void sw_sleep_found(struct sw_sleep *s)
{
	atomic_fetch_add_explicit(&s->word, -ONE_SEEKER, memory_order_acq_rel);
}

static void ring(struct sw_sleep *s, unsigned worker)
{
	atomic_fetch_add_explicit(&s->wakes[worker], 1, memory_order_release);
	os_futex_wake(&s->wakes[worker], 1);
}

void sw_sleep_wake(struct sw_sleep *s, unsigned first)
{
	uint64_t word = atomic_fetch_add_explicit(&s->word, 0, memory_order_acq_rel);
	unsigned who;

	do {
		uint64_t asleep = word & ASLEEP_MASK, after = asleep >> first << first;

		if (word >= ONE_SEEKER || !asleep)
			return;
		who = (unsigned)__builtin_ctzll(after ? after : asleep);
		/* the woken worker counts as a seeker from here on, so that a second post wakes
		 * nobody */
	} while (!atomic_compare_exchange_weak_explicit(
		&s->word, &word, (word & ~((uint64_t)1 << who)) + ONE_SEEKER, memory_order_acq_rel,
		memory_order_acquire));
	ring(s, who);
}

void sw_sleep_begin(struct sw_sleep *s, unsigned worker)
{
	/* its bit is clear: no carry */
	atomic_fetch_add_explicit(&s->word, ((uint64_t)1 << worker) - ONE_SEEKER,
				  memory_order_acq_rel);
}

/* Turns a sleeper into a seeker. Returns: false when another thread has done so. */
static bool stir(struct sw_sleep *s, unsigned worker)
{
	uint64_t word = atomic_fetch_add_explicit(&s->word, 0, memory_order_acq_rel);

	do {
		if (!(word >> worker & 1))
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
		&s->word, &word, (word & ~((uint64_t)1 << worker)) + ONE_SEEKER,
		memory_order_acq_rel, memory_order_acquire));
	return true;
}

void sw_sleep_undo(struct sw_sleep *s, unsigned worker) { stir(s, worker); }

void sw_sleep_rouse(struct sw_sleep *s, unsigned worker)
{
	if (stir(s, worker))
		ring(s, worker);
}

void sw_sleep_wait(struct sw_sleep *s, unsigned worker)
{
	for (;;) {
		uint32_t known = atomic_load_explicit(&s->wakes[worker], memory_order_acquire);

		/* A late wake-up, for a sleep that was undone, costs one more turn of this loop.
		 * acquire: the work that the waker published; partner: ring */
		if (!(atomic_load_explicit(&s->word, memory_order_acquire) >> worker & 1))
			return;
		os_futex_wait(&s->wakes[worker], known, OS_FOR_EVER);
	}
}
