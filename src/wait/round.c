/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The idle round: spin, yield, nap. A nap is bounded, because the event may come from another node,
 * from a thread, or from a peer that wakes nobody. After a round that took much longer than usual
 * the host MPI has found something, and the wait begins anew.
 */
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/endpoint.h"
#include "wait/private.h"

#define SPIN_NS      4000u    /* shorter waits cost no system call */
#define YIELD_NS     500000u  /* instead, where a yield reaches the other ranks */
#define STEPS_NS     5000000u /* instead, where others may need the next step of this rank */
#define SWITCH_NS    5000000u /* where it is a function call: waking a sleeper costs many of them */
#define TEST_NS      1000000u /* tests without other work are a wait after that */
#define GAP_NS       20000u   /* between two idle rounds: the thread has done something else */
#define POLL_NS      3000u    /* the same after a nap: a poll that found something */
#define TEST_GAP_NS  100u     /* from one test to the next; the program works in longer ones */
#define TEST_EVERY   16       /* tests, of which one reads the clock */
#define TESTS_MIN    512      /* of a wait: TEST_NS may have been the time slices of others */
#define LONG_SHARE   8        /* of the gaps of a wait one may be longer, as caches are cold */
#define NAP_MIN_NS   60000u   /* the kernel's timers add 50 us */
#define NAP_MAX_NS   200000u
#define NAP_WOKEN_NS 1000000u /* where every rank wakes this one */
#define CLOCK_EVERY  64      /* rounds of a rank that switches */
#define NAP_SHARE    8        /* share of the time waited so far */

_Atomic int wait_mode_now;
__thread struct wait_thread *wait_thread;

#define THREADS_MAX 1024 /* of the process's life; others wait as without Sluice */

static struct wait_thread threads[THREADS_MAX];
static _Atomic uint32_t thread_count;

/* Returns: NULL: there are too many threads. */
static struct wait_thread *self(void)
{
	uint32_t i;

	if (wait_thread || atomic_load_explicit(&thread_count, memory_order_relaxed) >= THREADS_MAX)
		return wait_thread;
	i = atomic_fetch_add_explicit(&thread_count, 1, memory_order_relaxed);
	if (i < THREADS_MAX)
		wait_thread = &threads[i];
	return wait_thread;
}

static bool yields; /* reach the other ranks */
static _Atomic bool has_steps; /* that no call shows: wait_steps_begin() */

/* Returns: for how long a wait yields before it naps. */
static uint64_t yield_ns(void)
{
	if (endpoint_self)
		return SWITCH_NS;
	if (atomic_load_explicit(&has_steps, memory_order_relaxed))
		return STEPS_NS;
	return yields ? YIELD_NS : 0;
}

static void after_fork_child(void)
{
	atomic_store_explicit(&wait_mode_now, WAIT_SPIN, memory_order_relaxed);
	wait_thread = NULL;
}

enum wait_mode wait_start(void)
{
	static bool registered;
	struct wait_facts facts;
	enum wait_mode mode;

	wait_facts_read(&facts);
	mode = wait_decide(&facts);
	/* Hydra gives each rank a session, hence a scheduling group (autogroup) of its own, where a
	 * yield has no rank to yield to. */
	yields = endpoint_self || getsid(0) != getpid();
	if (mode != WAIT_SPIN && !registered)
		registered = !pthread_atfork(NULL, NULL, after_fork_child);
	base_log(BASE_LOG_INFO, "wait", "%d ranks on %d CPUs of this node: waits are %s",
		 facts.local_ranks, facts.cpus, wait_mode_name(mode));
	atomic_store_explicit(&wait_mode_now, mode, memory_order_relaxed);
	return mode;
}

const char *wait_mode_name(enum wait_mode mode)
{
	static const char *const names[] = { "spinning", "polite" };

	return names[mode];
}

static void begin(struct wait_thread *w, uint64_t now)
{
	w->since_ns = now;
	w->call = w->calls;
	w->rounds = 0;
	if (w->is_armed)
		word_disarm(w, own_word());
}

/* Returns: whether the host MPI found nothing since the last idle round. */
static bool is_idle(struct wait_thread *w, uint64_t now)
{
	uint64_t round_ns = now - w->round_at_ns;
	bool is_long = round_ns > base_max_u64(w->has_napped ? POLL_NS : GAP_NS, 8 * w->round_ns);

	w->has_napped = false;
	w->round_at_ns = now;
	/* Grows slowly at most, to the rounds of a host MPI that polls by system calls. */
	w->round_ns += base_min_u64(round_ns, 4 * w->round_ns + 1000) / 8 - w->round_ns / 8;
	return w->call == w->calls && !is_long;
}

/*
 * Sleeps at its second call in a row; the host MPI polls in between, so that no wake-up is lost. A
 * process that sleeps inside a collective has sent before, perhaps to a rank that sleeps.
 */
static void nap(struct wait_thread *w, uint64_t waited_ns)
{
	uint64_t most_ns = has_all_peers() ? NAP_WOKEN_NS : NAP_MAX_NS;
	uint64_t ns = base_min_u64(base_max_u64(waited_ns / NAP_SHARE, NAP_MIN_NS), most_ns);

	if (!w->is_armed) {
		word_arm(w, own_word());
		if (w->may_wake_all)
			wait_wake(WAIT_ALL);
		w->may_wake_all = false;
		return;
	}
	base_count(BASE_CTR_SLEEPS, 1);
	if (word_sleep(w, own_word(), ns))
		w->since_ns = os_now_ns(); /* polls for a while: more may come */
	w->has_napped = true;
	w->round_at_ns = os_now_ns();
}

void wait_disarm(void) { word_disarm(wait_thread, own_word()); }

bool wait_round(void)
{
	enum wait_mode mode = wait_mode();
	struct wait_thread *w;
	uint64_t now, waited_ns;

	w = mode == WAIT_SPIN ? NULL : self();
	if (!w)
		return false;
	if (w->is_testing)
		return !yields; /* the host MPI's own yield may let the sender run */
	/* the clock costs more than the switch: it is read when this rank waits for long */
	if (endpoint_self && ++w->switched % CLOCK_EVERY && endpoint_yield())
		return true;
	now = os_now_ns();
	if (!is_idle(w, now)) {
		begin(w, now);
		return true;
	}
	waited_ns = now - w->since_ns;
	if (waited_ns < yield_ns()) {
		if (!endpoint_yield())
			syscall(SYS_sched_yield); /* libc's name is ours, of preload/ */
		w->round_at_ns = os_now_ns();
	} else if (waited_ns < SPIN_NS) {
		os_cpu_relax();
	} else {
		nap(w, waited_ns);
	}
	return true;
}

/* ---- calls of the program ------------------------------------------------------------------ */

static void call_begin(struct wait_thread *w, bool is_common)
{
	w->calls++;
	w->may_wake_all = is_common;
	w->is_testing = false; /* an error handler may have left a test by longjmp() */
	w->tests = w->long_gaps = 0;
}

void wait_call_begin(void)
{
	if (wait_thread)
		call_begin(wait_thread, false);
}

void wait_common_begin(void)
{
	if (wait_thread)
		call_begin(wait_thread, true);
}

void wait_steps_begin(void)
{
	atomic_store_explicit(&has_steps, true, memory_order_relaxed);
	wait_common_begin();
}

int wait_call_end(int rc)
{
	if (wait_thread && wait_thread->is_armed)
		wait_disarm();
	return rc;
}

int wait_call_end_for(int rc, int world_rank)
{
	wait_call_end(rc);
	if (wait_mode() == WAIT_POLITE)
		wait_wake(world_rank);
	return rc;
}

void wait_test_begin(void)
{
	struct wait_thread *w;

	w = wait_mode() == WAIT_POLITE ? self() : NULL;
	if (!w)
		return;
	w->calls++;
	w->may_wake_all = false;
	w->is_testing = true;
	w->long_gaps += w->tested_at_ns && os_now_ns() - w->tested_at_ns > TEST_GAP_NS;
	w->tested_at_ns = 0;
}

/*
 * Tests are a wait when nothing was found for TEST_NS and the gaps between them are those of an
 * empty loop. A program that works between its tests must never sleep, however short its work is:
 * it may not be waiting at all.
 */
static bool tests_are_wait(const struct wait_thread *w, uint64_t now)
{
	return w->tests > TESTS_MIN && w->long_gaps <= w->tests / TEST_EVERY / LONG_SHARE &&
	       now - w->tests_since_ns > (endpoint_self ? SWITCH_NS : TEST_NS);
}

int wait_test_end(int rc, const int *found)
{
	struct wait_thread *w = wait_thread;
	uint64_t now;

	if (!w || !w->is_testing)
		return rc;
	w->is_testing = false;
	if (rc || *found) {
		w->tests = w->long_gaps = 0;
		return wait_call_end(rc);
	}
	endpoint_yield();
	if (++w->tests % TEST_EVERY != 1 && !w->is_armed)
		return rc;
	now = os_now_ns();
	if (w->tests == 1)
		w->tests_since_ns = now;
	if (tests_are_wait(w, now)) {
		nap(w, now - w->tests_since_ns);
		return rc;
	}
	w->tested_at_ns = now;
	return wait_call_end(rc);
}
