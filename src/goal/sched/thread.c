/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The progress thread of a process: drives the ranks of a group while all of them compute.
 *
 * It exists from its first wake-up on, and sleeps while it has nothing to do. Who wakes it:
 * - a call that gives up driving because it has taken long enough;
 * - a call that leaves a CALC, whose end nobody would notice (state_cover_timers());
 * - a call, now and then, when calls have driven for long: there may be a CPU that nobody uses.
 *
 * Once awake it drives all ranks until nothing is ready. Then it polls, as the watcher, as long as
 * the gaps between schedules suggest, and offers its CPU by sched_yield() meanwhile. A yield that
 * takes long says that somebody else needs the CPU, so the thread stops polling and sleeps. Its
 * priority is that of its process: a sleeper gets the CPU at once, for work of microseconds.
 *
 * Nothing depends on the thread but speed: calls do all that it leaves undone.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "goal/sched/private.h"
#include "progress/progress.h"

#define POLL_MAX_NS  2000000ull
#define YIELD_POLLS  16u   /* polls between two offers of the CPU */
#define NOTE_POLL_NS 10000u
#define OFFER_SHARE  32u   /* of the time: offers of a CPU that somebody takes */
#define MISLED_SHARE 4u    /* the same where the kernel told of a free CPU */
#define SWITCH_NS    1000u /* a yield that takes longer may have let somebody else run */
#define ROUNDS_MIN   64u   /* rounds of driving by calls before they wake the thread */
#define ROUNDS_LIMIT 1024u
#define RETRY_NS     100000u /* the state of a CALC that has ended is claimed */
#define STOP_NS      1000000000ull
#define GUARD_MIN_NS 100000u /* looks at a hook that watches */
#define GUARD_MAX_NS 400000u

/* ---- sleeping and waking ----------------------------------------------------------------- */

static void wake(struct sched_thread *t)
{
	uint32_t before = atomic_fetch_add_explicit(
		&t->wakes, 1, memory_order_seq_cst); /* partner: sleep_until */

	/* the first one since the thread has looked: one system call however many wake it */
	if (atomic_load_explicit(&t->slept_after, memory_order_relaxed) == before + 1)
		os_futex_wake(&t->wakes, 1);
}

/* known: `wakes` before the thread looked for work the last time. */
static void sleep_until(struct sched_thread *t, uint32_t known, uint64_t limit_ns)
{
	/* The kernel compares `wakes` behind a full fence: either the waker sees this, or the
	 * comparison sees the waker. Partner: wake. */
	atomic_store_explicit(&t->slept_after, known + 1, memory_order_relaxed);
	os_futex_wait(&t->wakes, known, limit_ns);
}

static bool is_stopping(const struct sched_thread *t)
{
	return atomic_load_explicit(&t->stop, memory_order_relaxed);
}

/* Returns: for how long the thread may sleep, as the hook of this process may stop polling. */
static uint64_t guard_ns(struct sched_group *g)
{
	struct sched_thread *t = &g->thread;

	if (!atomic_load_explicit(&t->guards, memory_order_relaxed))
		return OS_FOR_EVER;
	if (!state_watches(g, WATCHER_HOOK)) {
		t->guard_ns = 0;
		atomic_store_explicit(&t->guards, 0, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst); /* partner: thread_guard */
		if (!state_watches(g, WATCHER_HOOK))
			return OS_FOR_EVER;
		atomic_store_explicit(&t->guards, 1, memory_order_relaxed);
	}
	t->guard_ns = base_min_u64(base_max_u64(2 * t->guard_ns, GUARD_MIN_NS), GUARD_MAX_NS);
	return t->guard_ns;
}

/* Sleeps until it is woken, the first CALC ends, or the hook must be looked at. */
static void rest(struct sched_group *g, uint32_t known)
{
	uint64_t first = state_next_timer(g), now = first ? os_now_ns() : 0;
	uint64_t limit = !first ? OS_FOR_EVER : first > now ? first - now : RETRY_NS;

	atomic_store_explicit(g->covered_ns, first, memory_order_relaxed);
	limit = base_min_u64(limit, guard_ns(g));
	if (!is_stopping(&g->thread))
		sleep_until(&g->thread, known, limit);
}

/* ---- watching ---------------------------------------------------------------------------- */

/* Returns: how often this thread has left its CPU to another one. */
static long count_switches(void)
{
	struct rusage u;

	return getrusage(RUSAGE_THREAD, &u) ? 0 : u.ru_nvcsw + u.ru_nivcsw;
}

/* Do so many threads of the machine want a CPU that none of the group's need be free? */
static bool is_machine_busy(const struct sched_thread *t)
{
	char text[128];
	int running;

	return os_procfile_read("/proc/loadavg", text, sizeof text) <= 0 ||
	       sscanf(text, "%*s %*s %*s %d", &running) != 1 || running > t->cpus;
}

/* cpu: 1 + the number of the CPU to leave. */
static void vacate_cpu(const struct os_cpumask *mask, uint32_t cpu)
{
	struct os_cpumask others = *mask;

	if (cpu > OS_CPUMASK_WORDS * 64 || (uint32_t)sched_getcpu() + 1 != cpu)
		return;
	others.bits[(cpu - 1) / 64] &= ~(1ull << (cpu - 1) % 64);
	if (os_cpumask_count(&others) && !os_cpumask_apply(0, &others))
		os_cpumask_apply(0, mask);
}

/* Once for each wake-up: off the CPU of the rank that woke this thread. The kernel may have chosen
 * that one although another is idle, and the rank takes it back at the next tick. */
static void vacate_wakers_cpu(struct sched_thread *t)
{
	uint32_t cpu = atomic_load_explicit(&t->waker_cpu, memory_order_relaxed);

	if (!cpu)
		return;
	atomic_store_explicit(&t->waker_cpu, 0, memory_order_relaxed);
	vacate_cpu(&t->mask, cpu);
}

/*
 * Offers the CPU to others. Returns: false when somebody took it: the kernel then runs this thread
 * after milliseconds, whoever waits for it. So no offer follows for a multiple of that time, unless
 * the machine says that a CPU is free, and has not been wrong the last time.
 */
static bool offer_cpu(struct sched_thread *t, long *switches)
{
	uint64_t began = os_now_ns(), ended;
	bool early = began < t->offer_ns;
	long before = *switches;

	if (early && (t->misled || is_machine_busy(t)))
		return false;
	sched_yield();
	ended = os_now_ns();
	/* an interrupt takes as long as a switch there and back */
	if (ended - began > SWITCH_NS)
		*switches = count_switches();
	if (*switches == before) {
		t->offer_ns = 0;
		return true;
	}
	t->misled = early;
	t->offer_ns = ended + (early ? MISLED_SHARE : OFFER_SHARE) * (ended - began);
	return false;
}

/* The first offer after work tells whether a CPU is free for such work. */
static void note_cpu(struct sched_thread *t, bool is_free)
{
	atomic_store_explicit(&t->found_cpu, is_free, memory_order_relaxed);
	if (is_free)
		atomic_store_explicit(&t->rounds_max, ROUNDS_MIN, memory_order_relaxed);
}

static void note_work(struct sched_thread *t, uint64_t now)
{
	if (t->worked_ns)
		t->poll_ns = progress_poll_ns(t->poll_ns, now - t->worked_ns, POLL_MAX_NS);
	t->worked_ns = now;
}

/* Tells that this thread has its CPU. Seldom, so that who asks finds the line in its cache. */
static void note_poll(struct sched_group *g, uint64_t now)
{
	if (now - atomic_load_explicit(g->watched_ns, memory_order_relaxed) > NOTE_POLL_NS)
		atomic_store_explicit(g->watched_ns, now, memory_order_relaxed);
}

/* Drives all ranks, and polls for more. */
static void watch(struct sched_group *g)
{
	struct sched_thread *t = &g->thread;
	uint64_t now = os_now_ns();
	long switches = count_switches();
	uint32_t idle = 0;
	bool is_alone = true;

	note_work(t, now); /* there was some for the waker */
	do {
		note_poll(g, now);
		if (state_drive_each(g)) {
			idle = 0;
			now = os_now_ns();
			note_work(t, now);
			continue;
		}
		if (idle % YIELD_POLLS == 0) {
			is_alone = offer_cpu(t, &switches);
			if (!idle)
				note_cpu(t, is_alone);
		}
		idle++;
		os_cpu_relax();
		now = os_now_ns();
	} while (is_alone && state_watches(g, WATCHER_THREAD) && !is_stopping(t) &&
		 now - t->worked_ns <= t->poll_ns);
	state_unwatch(g, WATCHER_THREAD);
}

/* ---- the thread -------------------------------------------------------------------------- */

/* Faults are not blocked: another library may have closed a page of the program's memory and opens
 * it in its handler. */
static void unblock_faults(void)
{
	enum { ILL = 4, TRAP = 5, BUS = 7, FPE = 8, SEGV = 11, SYS = 31 };
	const uint64_t faults = 1ull << (ILL - 1) | 1ull << (TRAP - 1) | 1ull << (BUS - 1) |
				1ull << (FPE - 1) | 1ull << (SEGV - 1) | 1ull << (SYS - 1);

	os_signal_mask(OS_MASK_UNBLOCK, &faults, NULL);
}

static void thread_main(void *arg)
{
	struct sched_group *g = arg;
	struct sched_thread *t = &g->thread;
	uint32_t known, rounds;

	unblock_faults();
	prctl(PR_SET_TIMERSLACK, 1ul);
	node_cpus(g->node, &t->mask);
	t->cpus = os_cpumask_count(&t->mask);
	os_cpumask_apply(0, &t->mask); /* may fail: the CPUs of the creator will do */
	while (!is_stopping(t)) {
		known = atomic_load_explicit(&t->wakes, memory_order_acquire); /* partner: wake */
		vacate_wakers_cpu(t);
		if (state_watch(g, WATCHER_THREAD))
			watch(g);
		while (!is_stopping(t) && state_drive_until(g, STOP_NS, &rounds))
			;
		rest(g, known);
	}
	atomic_store_explicit(&t->ended, 1, memory_order_release); /* partner: end */
	os_futex_wake(&t->ended, 1);
}

/* ---- its life ---------------------------------------------------------------------------- */

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sched_group *list; /* groups with a thread */

/* Returns: false when the thread does not end in time. */
static bool end(struct sched_thread *t)
{
	uint64_t give_up_ns = os_now_ns() + STOP_NS;

	atomic_store_explicit(&t->stop, 1, memory_order_relaxed);
	wake(t);
	while (!atomic_load_explicit(&t->ended, memory_order_acquire)) { /* partner: thread_main */
		if (os_now_ns() > give_up_ns)
			return false;
		os_futex_wait(&t->ended, 0, STOP_NS / 100);
	}
	pthread_join(t->handle.handle, NULL);
	return true;
}

/* A process that ends while its thread changes the state of another rank breaks that state. So
 * exit() ends the threads first. It may be called by a signal handler: nothing here waits for what
 * the interrupted thread may hold. */
static void end_all(void)
{
	if (pthread_mutex_trylock(&list_lock))
		return;
	for (struct sched_group *g = list; g; g = g->thread.next)
		if (g->thread.pid == getpid())
			end(&g->thread);
	list = NULL;
	pthread_mutex_unlock(&list_lock);
}

static void create_locked(struct sched_group *g)
{
	static bool is_registered;
	struct sched_thread *t = &g->thread;
	int ret;

	if (atomic_load_explicit(&t->is_refused, memory_order_relaxed) ||
	    atomic_load_explicit(&t->exists, memory_order_relaxed))
		return;
	if (!is_registered)
		is_registered = !atexit(end_all);
	atomic_store_explicit(&t->rounds_max, ROUNDS_MIN, memory_order_relaxed);
	t->pid = getpid();
	ret = is_registered ? engine_thread_create("sluice-goal", NULL, thread_main, g, &t->handle)
			    : -ENOMEM;
	if (ret) {
		base_log(BASE_LOG_INFO, "sched", "no progress thread: %s", strerror(-ret));
		atomic_store_explicit(&t->is_refused, 1, memory_order_relaxed);
		return;
	}
	t->next = list;
	list = g;
	atomic_store_explicit(&t->exists, 1, memory_order_release); /* partner: thread_wake */
}

void thread_wake(struct sched_group *g)
{
	struct sched_thread *t = &g->thread;

	if (base_unlikely(!atomic_load_explicit(&t->exists, memory_order_acquire))) {
		if (!base_opt.goal_thread ||
		    atomic_load_explicit(&t->is_refused, memory_order_relaxed))
			return;
		pthread_mutex_lock(&list_lock);
		create_locked(g);
		pthread_mutex_unlock(&list_lock);
	} else {
		atomic_store_explicit(&t->waker_cpu, (uint32_t)sched_getcpu() + 1,
				      memory_order_relaxed);
		wake(t);
	}
}

bool thread_guard(struct sched_group *g)
{
	struct sched_thread *t = &g->thread;

	if (base_unlikely(!atomic_load_explicit(&t->exists, memory_order_acquire))) {
		/* in a wait of another library: nothing here waits */
		if (!base_opt.goal_thread || pthread_mutex_trylock(&list_lock))
			return false;
		create_locked(g);
		pthread_mutex_unlock(&list_lock);
		if (!atomic_load_explicit(&t->exists, memory_order_acquire))
			return false;
	}
	atomic_thread_fence(memory_order_seq_cst); /* partner: guard_ns */
	if (!atomic_load_explicit(&t->guards, memory_order_relaxed)) {
		atomic_store_explicit(&t->guards, 1, memory_order_relaxed);
		wake(t);
	}
	return true;
}

void thread_count(struct sched_group *g, uint32_t rounds)
{
	struct sched_thread *t = &g->thread;
	uint32_t max = atomic_load_explicit(&t->rounds_max, memory_order_relaxed);

	/* a lost count does no harm */
	rounds += atomic_load_explicit(&t->rounds, memory_order_relaxed);
	atomic_store_explicit(&t->rounds, rounds, memory_order_relaxed);
	if (base_likely(rounds < base_max_u64(max, ROUNDS_MIN)))
		return;
	atomic_store_explicit(&t->rounds, 0, memory_order_relaxed);
	if (max < ROUNDS_LIMIT) /* until it finds a CPU */
		atomic_store_explicit(&t->rounds_max, max * 2, memory_order_relaxed);
	thread_wake(g);
}

void thread_stop(struct sched_group *g)
{
	struct sched_thread *t = &g->thread;

	atomic_store_explicit(&t->is_refused, 1, memory_order_relaxed);
	if (!atomic_load_explicit(&t->exists, memory_order_acquire) || t->pid != getpid())
		return;
	pthread_mutex_lock(&list_lock);
	for (struct sched_group **link = &list; *link; link = &(*link)->thread.next) {
		if (*link != g)
			continue;
		*link = t->next;
		while (!end(t))
			;
		break;
	}
	pthread_mutex_unlock(&list_lock);
}
