/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * spin: a lock for a few loads and stores, at half the cost of an uncontended mutex. A waiter polls
 * a few times and then sleeps for a moment, so that a holder of a lower priority gets the core. A
 * holder calls nothing that may wait. Zeroed memory is the initial state: unlocked.
 */
#ifndef SLUICE_BASE_SPIN_H
#define SLUICE_BASE_SPIN_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

struct base_spin { _Atomic uint32_t locked; };

enum { BASE_SPIN_POLLS = 100, BASE_SPIN_NAP_NS = 20000 };

static inline void base_spin_lock(struct base_spin *s)
{
	/* pairs with the release in base_spin_unlock() */
	while (__builtin_expect(atomic_exchange_explicit(&s->locked, 1, memory_order_acquire), 0)) {
		uint32_t polls = 0;

		while (atomic_load_explicit(&s->locked, memory_order_relaxed))
			if (++polls > BASE_SPIN_POLLS)
				nanosleep(&(struct timespec){ .tv_nsec = BASE_SPIN_NAP_NS }, NULL);
	}
}

static inline void base_spin_unlock(struct base_spin *s)
{
	atomic_store_explicit(&s->locked, 0, memory_order_release);
}

#endif
