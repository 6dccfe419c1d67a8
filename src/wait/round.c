/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The idle round: yield, nap. A nap is bounded, because the event may come from another node,
 * from a thread, or from a peer that wakes nobody. After a poll that took much longer than usual
 * the host MPI has found something, and the wait begins anew. Such a rank may move a long message
 * in parts, for which its peer waits in turn, so it spins in proportion to the part.
 */
#include <pthread.h>
#include <unistd.h>

#include "os/endpoint.h"
#include "wait/private.h"

#define SPIN_NS      4000u    /* shorter waits never nap */
#define SPIN_MAX_NS  200000u
#define SPIN_SHARE   4        /* of what the last poll took that found something */
#define YIELD_NS     500000u  /* instead, where a yield reaches the other ranks */
#define SWITCH_NS    5000000u /* where it is a function call: waking a sleeper costs many of them */
#define TEST_NS      1000000u /* tests without other work are a wait after that */
#define POLL_NS      1000u    /* a poll that found something takes longer, and 8 times the usual */
#define COLD_POLL_NS 10000u   /* the same with cold caches: after a nap, or a yield to others */
#define EMPTY_NS     16u      /* a poll of queues in memory that finds nothing takes about that */
#define LONGER       8
#define LONGER_SUM   2        /* the same of many polls, whose sum varies less */
#define COLD_POLLS   2
#define FIND_POLLS   3       /* MPICH completes a receive in the first to third after its message */
#define LONGER_EVERY 64       /* longer rounds, after which the usual length grows by 1 ns */
#define TEST_GAP_NS  100u     /* from one test to the next; the program works in longer ones */
#define GAP_READS    3        /* the same in reads of the clock, where they are slow */
#define TEST_EVERY   16       /* tests, of which one reads the clock */
#define TESTS_MIN    512      /* of a wait: TEST_NS may have been the time slices of others */
#define LONG_SHARE   8        /* of the gaps of a wait one may be longer, as caches are cold */
#define NAP_MIN_NS   60000u   /* the kernel's timers add 50 us */
#define NAP_MAX_NS   200000u
#define NAP_WOKEN_NS 1000000u /* where every rank wakes this one */
#define CLOCK_EVERY  64      /* rounds of a rank that switches */
#define THREADS_NS   10000000u /* since another thread's idle round */
#define NAP_SHARE    8        /* share of the time waited so far */

_Atomic int wait_mode_now;
__thread struct wait_thread *wait_thread __attribute__((tls_model("initial-exec")));

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

static bool is_one_session; /* of the ranks of this node, or ranks that switch */

static bool yields_reach(void) { return is_one_session || node_yields_reach(); }

/* Returns: for how long a wait yields before it naps. */
static uint64_t awake_ns(void)
{
	if (endpoint_self)
		return SWITCH_NS;
	return yields_reach() ? YIELD_NS : SPIN_NS;
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
	is_one_session = endpoint_self || getsid(0) != getpid();
	if (mode != WAIT_SPIN && !registered)
		registered = !pthread_atfork(NULL, NULL, after_fork_child);
	base_log(BASE_LOG_INFO, "wait", "%d ranks on %d CPUs of this node: waits are %s",
		 facts.local_ranks, facts.cpus, mode == WAIT_POLITE ? "polite" : "spinning");
	atomic_store_explicit(&wait_mode_now, mode, memory_order_relaxed);
	return mode;
}

/* The wait of a call begins, or begins anew after progress that took work_ns. */
static void begin(struct wait_thread *w, uint64_t now, uint64_t work_ns)
{
	uint64_t spin_ns = base_min_u64(SPIN_SHARE * work_ns, SPIN_MAX_NS);

	w->polled = FIND_POLLS; /* the first round yields, as the host MPI would */
	if (w->call != w->calls)
		w->awake_until_ns = now + awake_ns();
	else
		w->awake_until_ns = base_max_u64(w->awake_until_ns, now + spin_ns);
	w->since_ns = now;
	w->call = w->calls;
	w->polls = COLD_POLLS;
	w->yields = (struct node_yields){ 0 };
	if (w->is_armed)
		word_disarm(w, own_word());
}

/* Returns: 0: the host MPI found nothing since the last idle round; else how long it took. */
static uint64_t found_ns(struct wait_thread *w, uint32_t polls, uint64_t now)
{
	uint64_t round_ns = now - w->round_at_ns;
	/* rounds of a probe may have one poll, and those of other calls many */
	uint64_t usual_ns = base_max_u64(w->round_ns, polls * EMPTY_NS);
	/* not where yields may run nobody: parts of an accumulate take 1 to 5 us to find */
	bool is_cold = w->polls < COLD_POLLS || is_one_session;
	uint64_t least_ns = is_cold ? COLD_POLL_NS : POLL_NS;
	uint64_t longer = polls > FIND_POLLS ? LONGER_SUM : LONGER;
	bool is_long = round_ns > base_max_u64(least_ns, longer * usual_ns);

	w->round_at_ns = now;
	/* Not the average: whoever moves a long message finds something in most rounds. */
	if (!w->round_ns || round_ns < w->round_ns)
		w->round_ns = round_ns;
	else if (!(++w->longer % LONGER_EVERY))
		w->round_ns++;
	return is_long ? round_ns : 0;
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
		w->round_at_ns = os_now_ns();
		return;
	}
	base_count(BASE_CTR_SLEEPS, 1);
	if (word_sleep(w, own_word(), ns)) { /* polls for a while: more may come */
		w->since_ns = os_now_ns();
		w->awake_until_ns = w->since_ns + awake_ns();
	}
	w->polls = w->polled = 0;
	w->round_at_ns = os_now_ns();
}

/* The next visit would cost many times what a further poll does. */
static void check_hint(struct wait_thread *w)
{
	uint32_t hints = atomic_load_explicit(&own_word()->hints, memory_order_acquire);

	if (hints != w->hints)
		w->hinted_polls = FIND_POLLS;
	w->hints = hints;
}

/*
 * Do several threads of this process wait at present? They take turns at a lock of the host MPI. A
 * thread that polls again without a yield, or several that are woken at once, meet there, and from
 * then on each poll of each of them sleeps and is woken. The host MPI's own waits avoid that.
 */
static bool are_threads_waiting(const struct wait_thread *w, uint64_t now)
{
	static _Atomic(const struct wait_thread *) last; /* hints */
	static _Atomic uint64_t until_ns;
	const struct wait_thread *other = atomic_load_explicit(&last, memory_order_relaxed);

	if (other != w) {
		atomic_store_explicit(&last, w, memory_order_relaxed);
		if (other)
			atomic_store_explicit(&until_ns, now + THREADS_NS, memory_order_relaxed);
	}
	return now < atomic_load_explicit(&until_ns, memory_order_relaxed);
}

bool wait_round(void) { return wait_round_after(1); }

bool wait_round_after(uint32_t polls)
{
	enum wait_mode mode = wait_mode();
	struct wait_thread *w;
	uint64_t now, found;

	w = mode == WAIT_SPIN ? NULL : self();
	if (!w)
		return false;
	if (w->is_testing)
		return !yields_reach(); /* the host MPI's own yield may let the sender run */
	if (w->hinted_polls) {
		w->hinted_polls--;
		return true;
	}
	/* the clock costs more than the switch: it is read when this rank waits for long */
	if (endpoint_self && ++w->switched % CLOCK_EVERY && endpoint_yield()) {
		check_hint(w);
		if (w->switched % CLOCK_EVERY == CLOCK_EVERY - 1)
			w->round_at_ns = os_now_ns(); /* for the next poll, without other ranks */
		return true;
	}
	now = os_now_ns();
	if (are_threads_waiting(w, now))
		return false;
	found = found_ns(w, polls, now);
	if (found || w->call != w->calls)
		begin(w, now, found);
	if (found || (w->polled += polls) < FIND_POLLS)
		return true;
	if (now < w->awake_until_ns) {
		node_yield(is_one_session ? NULL : &w->yields);
		w->polled = 0;
		w->round_at_ns = os_now_ns();
	} else if ((w->polls += polls) >= COLD_POLLS) {
		nap(w, now - w->since_ns);
	} /* else once more: the time of the first poll after a nap tells little */
	return true;
}

/* ---- calls of the program ------------------------------------------------------------------ */

static void call_begin(struct wait_thread *w, bool is_common)
{
	w->calls++;
	w->hinted_polls = 0;
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

int wait_call_end(int rc)
{
	if (wait_thread && wait_thread->is_armed)
		word_disarm(wait_thread, own_word()); /* the thread does not sleep */
	return rc;
}

int wait_call_end_for(int rc, int world_rank)
{
	wait_call_end(rc);
	if (wait_mode() == WAIT_POLITE)
		wait_wake(world_rank);
	return rc;
}

/* A gap contains one read of the clock, which takes a third of TEST_GAP_NS where it is fast. */
static bool is_long_gap(uint64_t since_ns)
{
	uint64_t now = os_now_ns(), gap_ns = now - since_ns;

	return gap_ns > TEST_GAP_NS && gap_ns > GAP_READS * (os_now_ns() - now);
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
	w->long_gaps += w->tested_at_ns && is_long_gap(w->tested_at_ns);
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
