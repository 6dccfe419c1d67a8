/* SPDX-License-Identifier: BSD-3-Clause */
/* The last poll of sched/hook.c in every interleaving with the progress thread that takes the watch
 * over and gives it up, and with a peer that makes something ready: either somebody does that, or
 * the hook is still the watcher, so that the thread will look. */
#include <sched.h>
#include <string.h>

#include "goal/sched/private.h"
#include "unit.h"

#include "interleave_atomics.h"

enum { HOOK = WATCHER_HOOK | 1 };

/* drives: the next round is a turn of drive_or_ask() */
struct place { bool polled, drives; };
static struct place *here;

struct world {
	struct sched_group group;
	_Atomic uint32_t word, claim, again, ready;
};
_Static_assert(sizeof(struct world) <= IL_SHARED_BYTES, "");

static struct world *world_of(struct sched_group *g) { return (struct world *)g; }

static bool try_claim(struct world *w)
{
	uint32_t none = 0;

	return atomic_compare_exchange_strong_explicit(&w->claim, &none, 1, memory_order_acquire,
						       memory_order_relaxed);
}

/* As state_drive(): what is ready is done under the claim. */
static bool drive_claimed(struct world *w)
{
	bool found;

	if (atomic_load_explicit(&w->again, memory_order_relaxed))
		atomic_fetch_and_explicit(&w->again, 0, memory_order_seq_cst);
	found = atomic_load_explicit(&w->ready, memory_order_acquire);
	if (found)
		atomic_store_explicit(&w->ready, 0, memory_order_relaxed);
	atomic_store_explicit(&w->claim, 0, memory_order_release);
	return found;
}

/* One turn of drive_or_ask() of watch.c. Returns: true when another follows. */
static bool drive_or_ask(struct world *w)
{
	if (!try_claim(w)) {
		atomic_fetch_or_explicit(&w->again, 1, memory_order_seq_cst);
		atomic_thread_fence(memory_order_seq_cst);
		return !atomic_load_explicit(&w->claim, memory_order_relaxed);
	}
	drive_claimed(w);
	atomic_thread_fence(memory_order_seq_cst);
	return atomic_load_explicit(&w->again, memory_order_relaxed);
}

static bool model_drive_each(struct sched_group *g)
{
	struct world *w = world_of(g);

	return !atomic_load_explicit(&w->claim, memory_order_relaxed) && try_claim(w) &&
	       drive_claimed(w);
}

static void model_drive_all(struct sched_group *g)
{
	struct world *w = world_of(g);

	atomic_thread_fence(memory_order_seq_cst);
	here->drives = !atomic_load_explicit(&w->word, memory_order_relaxed);
}

static void model_unwatch(struct sched_group *g, uint32_t who)
{
	uint32_t mine = who | 1;

	atomic_compare_exchange_strong_explicit(&world_of(g)->word, &mine, 0, memory_order_relaxed,
						memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
}

static bool model_watches(struct sched_group *g, uint32_t who)
{
	return atomic_load_explicit(&world_of(g)->word, memory_order_relaxed) == (who | 1);
}

#define state_drive_each            model_drive_each
#define state_drive_all             model_drive_all
#define state_unwatch               model_unwatch
#define state_watches               model_watches
#define state_watch(g, who)         false /* the thread, or nobody: a later poll would try again */
#define thread_guard(g)             true
#define state_has_starts(d)         true
#define state_has_computing_peers(g) true
#define os_now_ns()                 1000
#define hook_add                    model_hook_add
#define hook_remove                 model_hook_remove
#define hook_stop                  model_hook_stop
#define hook_ask                    model_hook_ask
#define sched_poll                  model_sched_poll
#define sched_ask                   model_sched_ask
void model_hook_add(struct sched_group *g), model_hook_remove(struct sched_group *g);
bool model_hook_stop(struct sched_group *g);
void model_hook_ask(void), model_sched_ask(int (*f)(void));
int model_sched_poll(void);
#include "goal/sched/hook.c"

static bool round_of(int t, void *shared, void *local)
{
	struct world *w = shared;
	here = local;
	if (here->drives)
		return here->drives = drive_or_ask(w);
	if (t == 0 && !here->polled) {
		model_drive_each(&w->group);
		return here->polled = true;
	}
	if (t == 0) {
		end_poll(&w->group, true);
	} else if (t == 1) { /* the hook has not polled for 20 us: its watch begins and ends */
		model_unwatch(&w->group, WATCHER_HOOK);
		model_drive_all(&w->group);
	} else {
		atomic_store_explicit(&w->ready, 1, memory_order_release);
		model_drive_all(&w->group);
	}
	return here->drives;
}

static void init(void *shared)
{
	struct world *w = shared;

	memset(w, 0, sizeof *w);
	w->group.hook.watches = 1;
	w->word = HOOK;
}

static void end_of(void *shared)
{
	struct world *w = shared;

	if (w->ready && w->word != HOOK)
		il_fail("lost");
}

static const char *explore(unsigned mutation)
{
	const struct il_model m = {
		.threads = 3,
		.shared_bytes = sizeof(struct world),
		.local_bytes = sizeof(struct place),
		.mutation = mutation,
		.init = init,
		.round = round_of,
		.end = end_of,
	};

	return il_violation(&m) ?: "";
}

UNIT_TEST(the_last_poll_of_a_hook_loses_nothing) { CHECK_STR(explore(0), ""); }

UNIT_TEST(without_fences_the_last_poll_of_a_hook_loses_work)
{
	CHECK_STR(explore(IL_NO_FENCE), "lost");
}
