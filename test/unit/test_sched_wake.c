/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping and waking of sched/thread.c in every interleaving, without a time limit: no wake-up is
 * lost. And how often it offers its CPU. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "goal/sched/private.h"
#include "unit.h"

#include "interleave_atomics.h"
#define os_futex_wait(word, expected, limit)                                                       \
	il_futex_wait((void *)(word), ((void)(limit), expected))
#define os_futex_wake(word, n) il_futex_wake((void *)(word))
/* A clock that only yields advance. */
static uint64_t model_ns, yield_ns;
static int yields, switches_per_yield;
static uint64_t model_now(void) { return model_ns; }
static int model_yield(void)
{
	yields++;
	model_ns += yield_ns;
	return 0;
}
static int model_rusage(int who, struct rusage *u)
{
	(void)who;
	*u = (struct rusage){ .ru_nvcsw = yields * switches_per_yield };
	return 0;
}
static int running; /* threads, as /proc/loadavg tells; -1: it cannot be read */
static int model_read(char *text, size_t bytes)
{
	return running < 0 ? -ENOENT
			   : snprintf(text, bytes, "0.10 0.20 0.30 %d/200 4711\n", running);
}
static _Atomic uint32_t *hook_word; /* of the world: the hook of this process watches */
#define state_watches(g, who)                                                                      \
	((void)(g), (void)(who), atomic_load_explicit(hook_word, memory_order_relaxed))
static uint32_t here, left; /* the thread's CPU; how often it was forced to leave it */
static int model_apply(const struct os_cpumask *m)
{
	if (m->bits[here / 64] >> here % 64 & 1)
		return 0;
	left++;
	here = (uint32_t)__builtin_ctzll(m->bits[0]);
	return 0;
}
#define sched_getcpu() ((int)here)
#define os_cpumask_apply(thread, m) ((void)(thread), model_apply(m))
#define os_procfile_read(path, text, bytes) model_read(text, bytes)
#define os_now_ns              model_now
#define sched_yield            model_yield
#define getrusage              model_rusage
#define thread_wake            model_thread_wake
#define thread_stop            model_thread_stop
#define thread_count           model_thread_count
#define thread_guard           model_thread_guard
void model_thread_wake(struct sched_group *g), model_thread_stop(struct sched_group *g);
void model_thread_count(struct sched_group *g, uint32_t rounds);
bool model_thread_guard(struct sched_group *g);
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

/* ---- the thread looks after a hook -------------------------------------------------------- */

static bool guards_first;

struct guard_world {
	struct sched_group group;
	_Atomic uint32_t hook;
};
_Static_assert(sizeof(struct guard_world) <= IL_SHARED_BYTES, "");

/* Thread 0 is the progress thread, and ends once it has seen that the hook watches. Thread 1 polls,
 * becomes the watcher, and stops without a word; it has done so before, so the thread may be about
 * to look after it no more. */
static bool guard_round(int t, void *shared, void *local)
{
	struct guard_world *w = shared;
	struct sched_thread *thread = &w->group.thread;
	uint32_t known;

	(void)local;
	hook_word = &w->hook;
	if (t) {
		if (guards_first)
			thread_guard(&w->group);
		atomic_store_explicit(&w->hook, 1, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst); /* as a compare-and-swap */
		if (!guards_first)
			thread_guard(&w->group);
		return false;
	}
	known = atomic_load_explicit(&thread->wakes, memory_order_acquire);
	if (guard_ns(&w->group) != OS_FOR_EVER)
		return !atomic_load_explicit(&w->hook, memory_order_relaxed);
	sleep_until(thread, known, OS_FOR_EVER);
	return true;
}

static uint32_t guards_before;

static void guard_init(void *shared)
{
	struct guard_world *w = shared;

	memset(w, 0, sizeof *w);
	w->group.thread.exists = 1;
	w->group.thread.guards = guards_before;
}

static const char *explore_guard(unsigned mutation)
{
	const struct il_model m = {
		.threads = 2,
		.shared_bytes = sizeof(struct guard_world),
		.mutation = mutation,
		.init = guard_init,
		.round = guard_round,
	};

	return il_violation(&m) ?: "";
}

UNIT_TEST(the_thread_looks_after_every_hook_that_watches)
{
	for (guards_before = 0; guards_before < 2; guards_before++)
		CHECK_STR(explore_guard(0), "");
}

UNIT_TEST(a_hook_that_watches_after_it_has_told_the_thread_is_forgotten)
{
	guards_before = guards_first = true;
	CHECK_STR(explore_guard(0), "deadlock");
	guards_first = false;
}

UNIT_TEST(without_fences_a_hook_is_forgotten)
{
	guards_before = true;
	CHECK_STR(explore_guard(IL_NO_FENCE), "deadlock");
}

/* ---- its CPU ----------------------------------------------------------------------------- */

static void woken_on(uint32_t cpu, uint32_t waker_cpu, uint64_t mask)
{
	here = cpu;
	left = 0;
	vacate_cpu(&(struct os_cpumask){ { mask } }, waker_cpu + 1);
}

UNIT_TEST(a_thread_leaves_the_cpu_of_its_waker)
{
	woken_on(0, 0, 3);
	CHECK_EQ(left, 1);
	CHECK_EQ(here, 1);
}

UNIT_TEST(a_thread_stays_on_another_cpu_and_on_the_only_one)
{
	woken_on(1, 0, 3);
	CHECK_EQ(left, 0);
	woken_on(0, 0, 1);
	CHECK_EQ(left, 0);
}

/* ---- offers of the CPU ------------------------------------------------------------------- */

enum { MODEL_OFFERS = 1000, STEP_NS = 10000 };

/* Offers the CPU every 10 us. Returns: how often somebody took it. */
static int offer_often(void)
{
	struct sched_thread t = { .cpus = 2 };
	long switches = 0;
	int taken = 0;

	model_ns = STEP_NS;
	yields = 0;
	for (int i = 0; i < MODEL_OFFERS; i++, model_ns += STEP_NS)
		taken += !offer_cpu(&t, &switches);
	return taken;
}

UNIT_TEST(a_free_cpu_is_offered_each_time)
{
	yield_ns = 5000; /* an interrupt, not a switch */
	switches_per_yield = 0;
	CHECK_EQ(offer_often(), 0);
	CHECK_EQ(yields, MODEL_OFFERS);
}

/* A yield that lets somebody else run keeps the thread from its CPU for 3 ms. */
UNIT_TEST(a_thread_whose_cpu_is_taken_spends_little_time_on_offers)
{
	yield_ns = 3000000;
	switches_per_yield = 1;
	running = 3;
	CHECK_EQ(offer_often(), MODEL_OFFERS); /* it sleeps after each */
	CHECK_EQ(yields, 1);
	CHECK(model_ns < yield_ns + (MODEL_OFFERS + 2) * STEP_NS);
}

/* A CPU is free which the thread does not get. */
UNIT_TEST(a_thread_that_was_misled_waits_before_the_next_offer)
{
	yield_ns = 3000000;
	switches_per_yield = 1;
	running = 1;
	offer_often();
	CHECK_EQ(yields, 2);
}

UNIT_TEST(a_cpu_that_becomes_free_is_found_at_once)
{
	struct sched_thread t = { .cpus = 2 };
	long switches = 0;

	yield_ns = 3000000;
	switches_per_yield = 1;
	running = 3;
	yields = 0;
	CHECK(!offer_cpu(&t, &switches));
	CHECK(!offer_cpu(&t, &switches));
	CHECK_EQ(yields, 1);

	running = 2;
	yield_ns = 500;
	CHECK(offer_cpu(&t, &switches));
	running = 3; /* from now on the yields tell */
	CHECK(offer_cpu(&t, &switches));
	CHECK_EQ(yields, 3);
}

UNIT_TEST(a_machine_that_does_not_tell_of_free_cpus_counts_as_busy)
{
	yield_ns = 3000000;
	switches_per_yield = 1;
	running = -1;
	offer_often();
	CHECK_EQ(yields, 1);
}

UNIT_TEST(a_cpu_is_offered_again_after_a_while)
{
	yield_ns = 20000;
	switches_per_yield = 1;
	running = 3;
	offer_often();
	CHECK(yields >= 10 && yields <= 20); /* one in 32 times 20 us, and the last */
}
