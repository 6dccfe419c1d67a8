/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping and waking of wait/wake.c in every interleaving, without a time limit: no wake-up is
 * lost. Two threads of a process may sleep on its word. */
#include <string.h>

#include "unit.h"
#include "wait/private.h"

#include "interleave_atomics.h"
#define word_arm(w, word)       model_arm(w, word)
#define word_disarm(w, word)    model_disarm(w, word)
#define word_sleep(w, word, ns) model_sleep(w, word, ns)
#define word_hint(word)         model_hint(word)
#define word_wake(word)         model_wake(word)
#define os_futex_wait(word, expected, limit)                                                     \
	((void)(limit), il_futex_wait((void *)(word), (expected)), 0)
#define os_futex_wake(word, n) il_futex_wake((void *)(word))
static void model_arm(struct wait_thread *w, struct node_wake_word *word);
static void model_disarm(struct wait_thread *w, struct node_wake_word *word);
static bool model_sleep(struct wait_thread *w, struct node_wake_word *word, uint64_t ns);
void model_hint(struct node_wake_word *word);
static bool model_wake(struct node_wake_word *word);
#include "wait/wake.c"

enum { PROCESSES = 2, ITEMS = 2 };
static bool wakes_first, polls_never;

struct world {
	struct node_wake_word word[PROCESSES];
	_Atomic uint32_t item[3]; /* items that a thread has delivered */
};

struct place {
	struct wait_thread thread;
	uint32_t sent, seen;
};

static void deliver(struct world *w, int from, int to, uint32_t value)
{
	struct node_wake_word *word = &w->word[to];

	if (wakes_first)
		model_wake(word);
	atomic_store_explicit(&w->item[from], value, memory_order_release);
	if (!wakes_first)
		model_wake(word);
}

/* One idle round of a thread that waits for the items of another. */
static void poll(struct world *w, int process, int from, struct place *p)
{
	struct node_wake_word *word = &w->word[process];
	uint32_t now = polls_never && p->thread.is_armed ?
			       p->seen :
			       atomic_load_explicit(&w->item[from], memory_order_acquire);

	if (now != p->seen) {
		p->seen = now;
		if (p->thread.is_armed)
			model_disarm(&p->thread, word);
	} else if (p->thread.is_armed) {
		model_sleep(&p->thread, word, 0);
	} else {
		model_arm(&p->thread, word);
	}
}

/* Processes 0 and 1 answer each other. */
static bool answer_round(int t, void *shared, void *local)
{
	struct place *p = local;

	if (p->sent == p->seen + (t ? 0 : 1))
		poll(shared, t, 1 - t, p);
	else
		deliver(shared, t, 1 - t, ++p->sent);
	return p->seen < ITEMS || p->sent < ITEMS;
}

/* Threads 0 and 1 of process 0 wait for thread 2 of process 1. */
static bool threads_round(int t, void *shared, void *local)
{
	struct place *p = local;

	if (t == 2) {
		deliver(shared, 2, 0, ++p->sent);
		return false;
	}
	poll(shared, 0, 2, p);
	return p->seen < 1;
}

static void init(void *shared) { memset(shared, 0, sizeof(struct world)); }

static void nobody_sleeps(void *shared)
{
	struct world *w = shared;

	for (int i = 0; i < PROCESSES; i++)
		if (w->word[i].sleepers)
			il_fail("somebody counts as a sleeper");
}

static const char *explore(int threads, bool (*round)(int, void *, void *), unsigned mutation)
{
	const struct il_model m = {
		.threads = threads,
		.shared_bytes = sizeof(struct world),
		.local_bytes = sizeof(struct place),
		.mutation = mutation,
		.init = init,
		.round = round,
		.end = nobody_sleeps,
	};

	return il_violation(&m) ?: "";
}

UNIT_TEST(wake_ups_of_two_that_answer_each_other_arrive)
{
	CHECK_STR(explore(2, answer_round, 0), "");
}

UNIT_TEST(wake_ups_reach_every_thread)
{
	CHECK_STR(explore(3, threads_round, 0), "");
}

UNIT_TEST(wake_ups_without_fences_are_lost)
{
	CHECK_STR(explore(2, answer_round, IL_NO_FENCE), "deadlock");
}

UNIT_TEST(wake_ups_before_the_delivery_are_lost)
{
	wakes_first = true;
	CHECK_STR(explore(2, answer_round, 0), "deadlock");
	wakes_first = false;
}

UNIT_TEST(sleeping_without_a_last_poll_loses_wake_ups)
{
	polls_never = true;
	CHECK_STR(explore(2, answer_round, 0), "deadlock");
	polls_never = false;
}
