/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping and waking of sched/thread.c in every interleaving, without a time limit: no wake-up is
 * lost. */
#include <string.h>

#include "goal/sched/private.h"
#include "unit.h"

#include "interleave_atomics.h"
#define os_futex_wait(word, expected, limit)                                                       \
	il_futex_wait((void *)(word), ((void)(limit), expected))
#define os_futex_wake(word, n) il_futex_wake((void *)(word))
#define thread_wake            model_thread_wake
#define thread_stop            model_thread_stop
#define thread_count           model_thread_count
void model_thread_wake(struct sched_group *g), model_thread_stop(struct sched_group *g);
void model_thread_count(struct sched_group *g, uint32_t rounds);
#include "goal/sched/thread.c"

enum { WAKERS = 2, ITEMS = 2 };
static bool wakes_first, looks_first;

struct world {
	struct sched_thread thread;
	_Atomic uint32_t item[WAKERS]; /* made ready by a waker */
};

struct place {
	uint32_t done;
};

static uint32_t look(struct world *w)
{
	uint32_t n = 0;

	for (int i = 0; i < WAKERS; i++)
		n += atomic_load_explicit(&w->item[i], memory_order_acquire);
	return n;
}

/* Thread 0 sleeps when it finds nothing new; the others make items ready and wake it. */
static bool round_of(int t, void *shared, void *local)
{
	struct world *w = shared;
	struct place *p = local;
	uint32_t known, found;

	if (t) {
		p->done++;
		if (wakes_first)
			wake(&w->thread);
		atomic_store_explicit(&w->item[t - 1], p->done, memory_order_release);
		if (!wakes_first)
			wake(&w->thread);
		return p->done < ITEMS;
	}
	found = looks_first ? look(w) : 0;
	known = atomic_load_explicit(&w->thread.wakes, memory_order_acquire);
	if (!looks_first)
		found = look(w);
	if (found == p->done)
		sleep_until(&w->thread, known, 0);
	p->done = found;
	return found < WAKERS * ITEMS;
}

static void init(void *shared) { memset(shared, 0, sizeof(struct world)); }
static void end_of(void *shared) { (void)shared; }

static const char *explore(unsigned mutation)
{
	const struct il_model m = {
		.threads = 1 + WAKERS,
		.shared_bytes = sizeof(struct world),
		.local_bytes = sizeof(struct place),
		.mutation = mutation,
		.init = init,
		.round = round_of,
		.end = end_of,
	};

	return il_violation(&m) ?: "";
}

UNIT_TEST(wake_ups_of_the_progress_thread_arrive) { CHECK_STR(explore(0), ""); }

UNIT_TEST(wake_ups_before_the_work_is_ready_are_lost)
{
	wakes_first = true;
	CHECK_STR(explore(0), "deadlock");
	wakes_first = false;
}

UNIT_TEST(looking_before_wake_ups_are_counted_loses_some)
{
	looks_first = true;
	CHECK_STR(explore(0), "deadlock");
	looks_first = false;
}
