/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pending operations: the program's call has returned, data still moves.
 *
 *   linked -> touched, needed by a call, or reaped -> complete, guards released -> no references
 *          -> retired
 *
 * A spin lock guards the list; it is held for moments, with every signal blocked. A thread that
 * needs an operation takes a reference under the lock, and copies and waits without it: a signal
 * handler of the program may run while the thread waits, may touch the same memory, and may leave
 * by siglongjmp. The thread that retires an operation, outside fault handlers, releases its pins
 * and notes how long the program worked undisturbed.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rt/private.h"

_Atomic uint32_t rt_intercept_refs, rt_sync_refs, rt_pending;
_Atomic bool rt_expects_threads;

static struct pending pool[PENDING_MAX];
static struct pending *first, **last = &first; /* linked, oldest first */
static _Atomic uint32_t spin;

typedef bool pending_filter(const struct pending *, const void *arg);

enum { END_IS_NEAR_NS = 500000, STRANGER_WAITS_NS = 20000000 };
enum { REAP_AT_ONCE = 4, COST_NS = 15000 /* closing and opening pages, or one touch */ };

/* Blocks every signal until unlock(). */
static void lock(void)
{
	uint32_t tries = 0;

	sud_enter();
	while (atomic_exchange_explicit(&spin, 1,
					memory_order_acquire)) { /* partner: unlock */
		if (++tries % 64)
			os_cpu_relax();
		else
			sched_yield(); /* the holder may be on this CPU */
	}
}

static void unlock(void)
{
	atomic_store_explicit(&spin, 0, memory_order_release);
	sud_exit();
}

struct pending *pending_alloc(void)
{
	struct pending *p = NULL;

	lock();
	for (int i = 0; i < PENDING_MAX && !p; i++)
		if (!pool[i].in_use)
			p = &pool[i];
	if (p) {
		memset(p, 0, sizeof *p);
		p->in_use = true;
	}
	unlock();
	return p;
}

void pending_free(struct pending *p)
{
	lock();
	p->in_use = false;
	unlock();
}

void pending_link(struct pending *p)
{
	lock();
	*last = p;
	last = &p->next;
	intercept_count_up(&rt_pending);
	unlock();
}

static void unlink_locked(struct pending *p)
{
	struct pending **at = &first;

	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	if (last == &p->next)
		last = at;
	intercept_count_down(&rt_pending);
}

void pending_unref(struct pending *p)
{
	atomic_fetch_sub_explicit(&p->refs, 1, memory_order_release); /* partner: retire */
}

/* ---- the end of one ---------------------------------------------------------------------- */

static bool is_released(const struct pending *p)
{
	for (uint32_t i = 0; i < p->range_count; i++)
		if (guard_is_armed(&p->ranges[i]))
			return false;
	return true;
}

/* Releases every range of a completed operation. */
static void release_all(struct pending *p)
{
	for (uint32_t i = 0; i < p->range_count; i++)
		if (guard_is_armed(&p->ranges[i]))
			guard_release(&p->ranges[i], p->ranges[i].start, p->ranges[i].end);
}

static void learn(struct pending *p, uint64_t now)
{
	uint64_t touched = atomic_load_explicit(&p->touched_ns, memory_order_relaxed);
	uint64_t waited = atomic_load_explicit(&p->waited_ns, memory_order_relaxed);
	uint32_t touches = atomic_load_explicit(&p->touches, memory_order_relaxed);

	if (!touched)
		base_count(BASE_CTR_EARLY_UNSEEN, 1);
	else
		base_count(p->is_called ? BASE_CTR_EARLY_CALLED : BASE_CTR_EARLY_TOUCHED, 1);
	policy_site_learn(p->site,
		   policy_gain_ns((touched ? touched : now) - p->detached_ns, waited, p->copy_ns),
		   COST_NS * (1 + touches));
	trace_detached(p->trace, p->detached_ns, touched, waited, touches, p->is_called);
	base_log(BASE_LOG_DEBUG, "rt",
		 "%s: returned early, wanted after %.1f us (%u touches), then waited %.1f us",
		 exec_name(p->run), touched ? (double)(touched - p->detached_ns) / 1e3 : -1.0,
		 touches, (double)waited / 1e3);
}

/*
 * Retires an operation that is complete and has no references. Returns: true with the lock
 * released; false with the lock held. Context: not in fault handlers, as it logs.
 */
static bool retire_locked(struct pending *p)
{
	if (atomic_load_explicit(&p->refs, memory_order_acquire)) /* partner: pending_unref */
		return false;
	if (!exec_is_complete(p->run) || exec_is_in_channel(p->run))
		return false;
	release_all(p);
	unlink_locked(p);
	unlock();
	learn(p, os_now_ns());
	offload_count();
	for (int i = 0; i < 2; i++)
		region_release(&p->descs[i]);
	exec_end(p->run);
	pending_free(p);
	return true;
}

/* ---- waiting for one --------------------------------------------------------------------- */

/*
 * The host MPI progresses only in its own calls, and the partner that this thread waits for may
 * itself wait for a message of this process. A waiting thread therefore lets the host MPI progress:
 *
 *   inside an MPI call of the program   always
 *   SLUICE_FAULT_PROGRESS=off           nowhere else; a call then returns early only after all
 *                                       partners have arrived (detach.c)
 *   MPI_THREAD_MULTIPLE                 always
 *   the thread that made the call,      after a long wait: the thread could still be inside the
 *   or a guard thread for it            call
 *   any other thread                    after STRANGER_WAITS_NS
 *
 * In the last two cases no other thread may be inside the host MPI: host_stand_in_try() (host.c).
 */
static void let_progress(const struct pending *p, const struct node_wait *w, bool in_call)
{
	if (!in_call && !base_opt.fault_progress)
		return;
	if (in_call || p->comm->thread_multiple) {
		exec_call_hooks(p->run, w);
		return;
	}
	if (!w->since_ns || !node_wait_is_long(w))
		return;
	if (guard_fault_tid() != p->owner_tid && os_now_ns() - w->since_ns < STRANGER_WAITS_NS)
		return;
	if (!host_stand_in_try())
		return;
	exec_call_hooks(p->run, w);
	host_stand_in_end();
}

static void give_up(const struct pending *p, int error)
{
	if (error == -EREMOTEIO)
		exec_explain(p->run);
	base_log(BASE_LOG_ERROR, "rt", "%s: failed after it had returned (%s); the job ends",
		 exec_name(p->run), rt_error_text(error));
	syscall(SYS_exit_group, 14); /* _exit() would complete pending operations */
}

/*
 * Waits until [lo, hi) is in place, copying too. Returns: false when a signal of the program is
 * pending: the fault handler has to return, and the touch faults again. Context: fault handlers
 * (every signal blocked), or a call of the program.
 */
static bool fetch(struct pending *p, uintptr_t lo, uintptr_t hi, bool in_call)
{
	bool is_complete = false;
	struct node_wait w = { 0 };

	while (!is_complete) {
		int ret = exec_fetch(p->run, lo, hi, &is_complete);

		if (ret > 0 || is_complete)
			continue;
		if (!ret) {
			exec_rescue(p->run);
			offload_check_worker(p->comm);
			if (!in_call && guard_wait_interrupted())
				break;
			let_progress(p, &w, in_call);
			guard_wait_begin();
			ret = exec_pause(p->run, &w);
			guard_wait_end();
		}
		if (ret < 0)
			give_up(p, ret);
	}
	exec_resume(p->run, &w);
	return is_complete;
}

/* Completes an operation and releases its ranges. The caller holds a reference. Returns: as
 * fetch(). */
static bool finish(struct pending *p, bool in_call)
{
	exec_stop_channel(p->run);
	if (!fetch(p, 0, UINTPTR_MAX, in_call))
		return false;
	release_all(p);
	return true;
}

static void note_need(struct pending *p, bool is_called, uint64_t now)
{
	uint64_t none = 0;

	if (atomic_compare_exchange_strong_explicit(&p->touched_ns, &none, now,
						    memory_order_relaxed, memory_order_relaxed))
		atomic_store_explicit(&p->is_called, is_called, memory_order_relaxed);
}

/* ---- the guard's callbacks --------------------------------------------------------------- */

static void on_hold(void *arg)
{
	struct pending *p = arg;

	atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
}

/*
 * Decides how much to fetch for a touch at addr. A touch fetches the whole buffer when that is
 * fast: the buffer is short or complete, or other movers will end before Sluice could serve the
 * next touch. Otherwise each touch fetches twice as much as the touch before: the first byte does
 * not wait for the last, and a sequential reader does not fault at each fragment. The unit is a
 * huge page, as the kernel maps a cut huge page by small pages.
 */
static void choose_part(struct pending *p, uintptr_t addr, size_t bytes,
			const struct guard_range *range, uintptr_t *lo, uintptr_t *hi)
{
	uint32_t touches = atomic_fetch_add_explicit(&p->touches, 1, memory_order_relaxed);
	uint64_t least = OS_HUGE << base_min_u64(touches, 20);

	*lo = range->start;
	*hi = range->end;
	/* a buffer of 4 MB touches a page more than 4 MB */
	if (base_round_down(range->end - range->start, OS_HUGE) <= 2 * least ||
	    exec_is_claimed(p->run))
		return;
	*lo = base_max_u64(*lo, base_round_down(addr, OS_HUGE));
	*hi = base_min_u64(*hi, base_round_up(base_max_u64(addr + bytes, addr + least), OS_HUGE));
}

static void on_touched(void *arg, uintptr_t addr, size_t bytes, bool write)
{
	struct pending *p = arg;
	uint64_t now = os_now_ns();
	uintptr_t start = addr;

	note_need(p, false, now);
	exec_stop_channel(p->run);
	for (uint32_t i = 0; i < p->range_count; i++) {
		struct guard_range *range = &p->ranges[i];
		uintptr_t lo, hi;

		if (addr >= range->end || addr + bytes <= range->start || !guard_is_armed(range))
			continue;
		start = range->start;
		choose_part(p, addr > range->start ? addr : range->start, bytes, range, &lo, &hi);
		if (!fetch(p, lo, hi, false))
			continue; /* a signal of the program is pending; the touch faults again */
		guard_release(range, lo > range->start ? lo : range->start,
			      hi < range->end ? hi : range->end);
	}
	if (exec_is_complete(p->run))
		release_all(p);
	else
		exec_restart_channel(p->run);
	atomic_fetch_add_explicit(&p->waited_ns, os_now_ns() - now, memory_order_relaxed);
	trace_touch(p->trace, now, addr, start, guard_fault_tid(), write);
	pending_unref(p);
}

/*
 * Mostly in a thread of the engine: the mover that copies last opens the pages, on an idle CPU,
 * without a fault of the program. The mover waits for a moment while others hold claims. The thread
 * that detaches does not wait; it comes here where the channel has nothing to copy.
 */
void pending_channel_idle(void *arg)
{
	struct pending *p = arg;
	bool may_wait = syscall(SYS_gettid) != p->owner_tid;
	uint64_t until = 0;

	while (!exec_is_complete(p->run)) {
		if (!may_wait || !exec_is_claimed(p->run) ||
		    atomic_load_explicit(&p->touched_ns, memory_order_relaxed))
			return;
		if (!until)
			until = os_now_ns() + END_IS_NEAR_NS;
		else if (os_now_ns() > until)
			return;
		os_cpu_relax();
	}
	release_all(p);
}

/* Returns: the first operation that matches and is not complete, with a reference; or NULL. */
static struct pending *find(pending_filter *is_match, const void *arg)
{
	struct pending *p;

	lock();
	for (p = first; p; p = p->next)
		if (is_match(p, arg) && !(is_released(p) && exec_is_complete(p->run)))
			break;
	if (p)
		atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
	unlock();
	return p;
}

static bool is_any(const struct pending *p, const void *arg) { return true; }

static void finish_all(pending_filter *is_match, const void *arg, bool in_call)
{
	struct pending *p;
	bool more = true;

	while (more && (p = find(is_match, arg))) {
		uint64_t now = os_now_ns();

		note_need(p, true, now);
		more = finish(p, in_call);
		atomic_fetch_add_explicit(&p->waited_ns, os_now_ns() - now, memory_order_relaxed);
		pending_unref(p);
	}
}

/* Context: fault handlers. Completes every operation, retires none. */
static void on_complete_all(void) { finish_all(is_any, NULL, false); }

static bool is_closed_and_complete(const struct pending *p, const void *arg)
{
	return !is_released(p) && exec_is_complete(p->run);
}

/* Releases an operation that the worker process has completed and that the program has not touched:
 * the worker process cannot open pages. Context: handlers of Sluice. */
static void on_tidy(void)
{
	struct pending *p = find(is_closed_and_complete, NULL);

	if (!p)
		return;
	release_all(p);
	pending_unref(p);
}

static const struct guard_ops callbacks = { on_hold, on_touched, on_complete_all, on_tidy };

/* ---- calls that need an operation complete ----------------------------------------------- */

/* Rescues the first `at_most`, without the lock: a rescue copies, and may wait for a device for
 * seconds. Returns: as exec_rescue(), the least of all. */
static uint64_t rescue(int at_most)
{
	struct pending *held[PENDING_MAX];
	uint64_t again_ns = OS_FOR_EVER;
	uint32_t count = 0;

	lock();
	for (struct pending *p = first; p && at_most--; p = p->next) {
		if (!exec_is_in_channel(p->run))
			continue;
		atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
		held[count++] = p;
	}
	unlock();
	sud_enter(); /* as in complete() */
	while (count--) {
		again_ns = base_min_u64(again_ns, exec_rescue(held[count]->run));
		pending_unref(held[count]);
	}
	sud_exit();
	return again_ns;
}

uint64_t pending_rescue_all(void) { return rescue(PENDING_MAX); }

/* Retires at most `at_most` matching operations, except those that other threads use. Returns: true
 * when one was retired. */
static bool retire_all(pending_filter *is_match, const void *arg, int at_most)
{
	struct pending *p, *next;
	bool any = false;

	rescue(at_most); /* a peer may wait for fragments of a hung channel */
	lock();
	for (p = first; p && at_most--; p = next) {
		next = p->next;
		if (!is_match(p, arg) || !retire_locked(p))
			continue;
		any = true;
		lock(); /* the list may have changed meanwhile */
		next = first;
	}
	unlock();
	return any;
}

struct interval { uintptr_t lo, hi; };

static bool is_overlapping(const struct pending *p, const void *arg)
{
	const struct interval *range = arg;

	for (int i = 0; i < 2; i++)
		if (p->lo[i] < range->hi && p->hi[i] > range->lo)
			return true;
	for (uint32_t i = 0; i < p->range_count; i++)
		if (p->ranges[i].start < range->hi && p->ranges[i].end > range->lo)
			return true;
	return false;
}

static void complete(pending_filter *is_match, const void *arg, bool in_call)
{
	sud_enter(); /* no handler of the program interrupts the copy of a claimed fragment */
	finish_all(is_match, arg, in_call);
	retire_all(is_match, arg, PENDING_MAX);
	sud_exit();
}

void rt_complete_range(const void *addr, uint64_t bytes)
{
	struct interval range = { (uintptr_t)addr, (uintptr_t)addr + bytes };

	if (!rt_has_pending() || !bytes)
		return;
	if (range.hi < range.lo)
		range.hi = UINTPTR_MAX;
	complete(is_overlapping, &range, true);
}

void rt_complete_all(void)
{
	if (rt_has_pending())
		complete(is_any, NULL, true);
}

void rt_reap(void)
{
	if (rt_has_pending())
		retire_all(is_any, NULL, REAP_AT_ONCE);
}

static bool is_of_comm(const struct pending *p, const void *arg) { return p->comm == arg; }

static bool is_of_run(const struct pending *p, const void *arg) { return p->run == arg; }

struct pending *pending_ref_run(struct exec_run *r) { return find(is_of_run, r); }

bool pending_retire_run(struct exec_run *r)
{
	return rt_has_pending() && retire_all(is_of_run, r, PENDING_MAX);
}

/* Repeats until none is left: another thread may hold a reference for a moment. */
static void complete_for_good(pending_filter *is_match, const void *arg, bool in_call)
{
	bool any = true;

	while (any) {
		complete(is_match, arg, in_call);
		any = false;
		lock();
		for (struct pending *p = first; p; p = p->next)
			any |= is_match(p, arg);
		unlock();
		if (any)
			sched_yield();
	}
}

void pending_complete_comm(struct rt_comm *c) { complete_for_good(is_of_comm, c, true); }

void pending_complete_run(struct exec_run *r) { complete_for_good(is_of_run, r, true); }

/* ---- the process ------------------------------------------------------------------------- */

/* The hook of region/: the program is about to unmap or replace this memory. */
static void before_change(uintptr_t start, uintptr_t end)
{
	struct interval range = { start, end };

	if (rt_has_pending())
		complete_for_good(is_overlapping, &range, false); /* any thread may free memory */
}

static void before_fork(void)
{
	if (rt_has_pending())
		complete_for_good(is_any, NULL, false);
}

static void after_fork_child(void)
{
	memset(pool, 0, sizeof pool); /* nothing was pending */
	first = NULL;
	last = &first;
	atomic_store_explicit(&rt_intercept_refs, 0, memory_order_relaxed);
	atomic_store_explicit(&rt_sync_refs, 0, memory_order_relaxed);
	atomic_store_explicit(&rt_pending, 0, memory_order_relaxed);
	atomic_store_explicit(&spin, 0, memory_order_relaxed);
	engine_after_fork_child();
}

static int init_result = 1;

static void init_once(void)
{
	uintptr_t shadow_start, shadow_end;

	init_result = guard_init(&callbacks);
	if (init_result) {
		base_log(BASE_LOG_INFO, "rt", "calls do not return early: %s", guard_reason());
		return;
	}
	base_log(BASE_LOG_INFO, "rt", "calls may return early; memory is guarded by %s%s%s",
		 guard_kind_name(), guard_reason()[0] ? ": " : "", guard_reason());
	trace_guard(guard_kind_name());
	guard_shadows(&shadow_start, &shadow_end);
	if (shadow_start < shadow_end && region_add_mapping(shadow_start, shadow_end))
		base_log(BASE_LOG_WARN, "rt", "no room for the mapping of the guard's shadow");
	region_set_before_change(before_change);
	/* registered after the handlers of region/, so that these run first */
	pthread_atfork(before_fork, NULL, after_fork_child);
}

int pending_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, init_once);
	return init_result;
}
