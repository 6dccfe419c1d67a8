/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The requests of a communicator, and passes over all communicators that have some.
 *
 *   start: lock of the communicator -> queue -> begin(), as many as there is room for
 *   pass:  each active request a step -> complete: slot free -> the next of the queue
 *   complete: a list of the process, until rt_request_next_done()
 *
 * A pass takes the lock of a communicator only if it is free: its holder does the same.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "base/spin.h"
#include "rt/request/request.h"
#include "rt/coll/run.h"

#define GIVE_UP_NS 2000000000ull /* at the end of a communicator: time without progress */

_Atomic uint32_t rt_requests;

/* Communicators that have requests, unordered. */
static struct {
	struct base_spin lock;
	struct rt_comm **comms;
	int n, cap;
	int known; /* existing communicators; `comms` has room for each */
	_Atomic int count; /* n, readable without the lock */
} busy;

static struct {
	struct base_spin lock;
	struct rt_request *first, **last;
	_Atomic uint32_t n;
} done = { .last = &done.first };

/* ---- completed requests ------------------------------------------------------------------ */

static void put_done(struct rt_request *r, int result)
{
	r->state = REQUEST_COMPLETE;
	r->result = result;
	r->run = NULL;
	r->next = NULL;
	base_spin_lock(&done.lock);
	*done.last = r;
	done.last = &r->next;
	atomic_fetch_add_explicit(&done.n, 1,
				  memory_order_release); /* partner: rt_request_next_done */
	base_spin_unlock(&done.lock);
}

void *rt_request_next_done(int *out_result)
{
	struct rt_request *r;
	int ret;

	if (!atomic_load_explicit(&done.n, memory_order_acquire))
		return NULL;
	base_spin_lock(&done.lock);
	r = done.first;
	if (r) {
		done.first = r->next;
		if (!done.first)
			done.last = &done.first;
		atomic_fetch_sub_explicit(&done.n, 1, memory_order_relaxed);
	}
	base_spin_unlock(&done.lock);
	if (!r)
		return NULL;
	ret = r->ops->close(r, !r->result);
	*out_result = r->result ? r->result : ret;
	r->state = REQUEST_INACTIVE;
	atomic_fetch_sub_explicit(&r->comm->requests.count, 1,
				  memory_order_release); /* partner: busy_remove */
	atomic_fetch_sub_explicit(&rt_requests, 1, memory_order_release);
	return r->owner;
}

/* ---- communicators with requests --------------------------------------------------------- */

/* Makes room for one more. Returns: 0 or -ENOMEM. */
static int reserve_busy(void)
{
	bool is_short = base_fault("busy");
	int ret = is_short ? -ENOMEM : 0;

	base_spin_lock(&busy.lock);
	if (++busy.known > busy.cap && !is_short) {
		int cap = 2 * busy.known + 14;
		struct rt_comm **more = realloc(busy.comms, (size_t)cap * sizeof(*more));

		busy.comms = more ? more : busy.comms;
		busy.cap = more ? cap : busy.cap;
		ret = more ? 0 : -ENOMEM;
	}
	base_spin_unlock(&busy.lock);
	return ret;
}

static void unreserve_busy(void)
{
	base_spin_lock(&busy.lock);
	busy.known--;
	base_spin_unlock(&busy.lock);
}

static void busy_add(struct rt_comm *c)
{
	base_spin_lock(&busy.lock);
	if (!c->requests.is_busy) {
		busy.comms[busy.n++] = c;
		c->requests.is_busy = true;
		atomic_store_explicit(&busy.count, busy.n, memory_order_relaxed);
	}
	base_spin_unlock(&busy.lock);
}

static void busy_remove(struct rt_comm *c)
{
	base_spin_lock(&busy.lock);
	for (int i = 0; i < busy.n && c->requests.is_busy; i++) {
		if (busy.comms[i] != c)
			continue;
		busy.comms[i] = busy.comms[--busy.n];
		c->requests.is_busy = false;
		atomic_store_explicit(&busy.count, busy.n, memory_order_relaxed);
	}
	base_spin_unlock(&busy.lock);
}

uint32_t requests_busy_count(void)
{
	return (uint32_t)atomic_load_explicit(&busy.count, memory_order_relaxed);
}

struct rt_comm *requests_busy_get(int i)
{
	struct rt_comm *c = NULL;

	if (i >= atomic_load_explicit(&busy.count, memory_order_relaxed))
		return NULL;
	base_spin_lock(&busy.lock);
	if (i < busy.n) {
		c = busy.comms[i];
		atomic_fetch_add_explicit(&c->requests.users, 1, memory_order_relaxed);
	}
	base_spin_unlock(&busy.lock);
	return c;
}

void requests_busy_put(struct rt_comm *c)
{
	atomic_fetch_sub_explicit(&c->requests.users, 1,
				  memory_order_release); /* partner: requests_comm_destroyed */
}

/* ---- one communicator, under its lock ---------------------------------------------------- */

static void append(struct requests_list *l, struct rt_request *r)
{
	r->next = NULL;
	*(l->first ? &l->last->next : &l->first) = r;
	l->last = r;
}

static struct rt_request *pop_first(struct requests_list *l)
{
	struct rt_request *r = l->first;

	l->first = r->next;
	return r;
}

/* The communicator is of no more use to Sluice. */
static void fail_all_locked(struct rt_comm *c, int ret, const char *name)
{
	rt_abandon(c, name, ret);
	while (c->requests.active.first)
		put_done(pop_first(&c->requests.active), ret);
	while (c->requests.queued.first)
		put_done(pop_first(&c->requests.queued), ret);
	busy_remove(c);
}

/* Publishes as many queued requests as there is room for; every lane has room of its own. When one
 * fails, every request of the communicator does. */
static void begin_queued_locked(struct rt_comm *c)
{
	struct requests_list rest = c->requests.queued;
	const char *name = "";
	struct rt_request *r;
	bool ended;
	int ret = 0;

	c->requests.queued = (struct requests_list){ 0 };
	while ((r = rest.first)) {
		name = r->call->name;
		ret = r->ops->begin(r);
		if (ret == -EBUSY && c->lanes) {
			append(&c->requests.queued, pop_first(&rest));
			continue;
		}
		if (ret)
			break;
		pop_first(&rest);
		r->state = REQUEST_ACTIVE;
		do
			ret = r->ops->step(r, EXEC_COPY_NOTHING, &ended);
		while (ret > 0 && !ended);
		if (ended) {
			put_done(r, ret);
		} else {
			append(&c->requests.active, r);
			if (r->ops->active)
				r->ops->active(r);
		}
		if (ret < 0)
			break;
	}
	while (rest.first)
		append(&c->requests.queued, pop_first(&rest));
	if (ret < 0 && ret != -EBUSY)
		fail_all_locked(c, ret, name);
}

/* Makes a step of every active request. Those before a queued one are in its way, and may need this
 * rank: all of their data moves. Returns: 1 something moved, 0, or -errno when all have failed. */
static int step_all_locked(struct rt_comm *c, enum exec_copy copy)
{
	bool is_crowded = c->requests.queued.first;
	struct requests_list old = c->requests.active;
	const char *name = "";
	int any = 0, ret = 0;
	bool ended = false;

	c->requests.active = (struct requests_list){ 0 };
	while (old.first) {
		struct rt_request *r = pop_first(&old);

		if (ret >= 0) {
			name = r->call->name;
			ret = r->ops->step(r,
					   is_crowded && r->ops->way == REQUEST_BY_EXEC
						   ? EXEC_COPY_ALL
						   : copy,
					   &ended);
			any |= ret > 0 || ended;
		}
		if (ended || ret < 0)
			put_done(r, ret < 0 ? ret : 0);
		else
			append(&c->requests.active, r);
	}
	if (ret < 0)
		fail_all_locked(c, ret, name);
	return ret < 0 ? ret : any;
}

/*
 * Requests may be queued behind a call that returned early on all ranks, so that no rank waits for
 * that call. A rank that waits for a later request does some of its work; the progress thread does
 * all it can. Returns: true when something moved.
 */
static bool help_before_locked(struct rt_comm *c, bool is_called)
{
	struct exec_run *run = c->requests.queued.first ? c->requests.behind : NULL;
	struct pending *p = run && rt_has_pending() ? pending_ref_run(run) : NULL;
	int ret, any = 0;

	if (!p)
		return false;
	sud_enter(); /* no handler of the program interrupts the copy of a claimed fragment */
	do {
		ret = exec_advance(run); /* a later call finds the error again */
		any |= ret > 0;
	} while (ret > 0 && is_called);
	sud_exit();
	pending_unref(p);
	return any;
}

static bool pass_locked(struct rt_comm *c, enum exec_copy copy)
{
	int ret = step_all_locked(c, copy);

	if (ret >= 0)
		begin_queued_locked(c);
	if (ret >= 0 && help_before_locked(c, copy == EXEC_COPY_NOTHING)) {
		begin_queued_locked(c);
		ret = 1;
	}
	if (!c->requests.active.first && !c->requests.queued.first)
		busy_remove(c);
	return ret; /* after an error: every request has ended */
}

/* ---- passes ------------------------------------------------------------------------------ */

static bool pass_all(enum exec_copy copy)
{
	struct rt_comm *c;
	bool any = false;

	if (!atomic_load_explicit(&busy.count, memory_order_relaxed))
		return false;
	for (int i = 0; (c = requests_busy_get(i)); i++) {
		if (!pthread_mutex_trylock(&c->requests.lock)) {
			any |= pass_locked(c, copy);
			pthread_mutex_unlock(&c->requests.lock);
		}
		requests_busy_put(c);
	}
	return any;
}

bool rt_requests_progress(void) { return pass_all(EXEC_COPY_ALL); }

void requests_publish_queued(void) { pass_all(EXEC_COPY_NOTHING); }

/* The list of the first request that is active, or, where there is none, queued. */
static struct requests_list *stuck_ones(struct rt_comm *c)
{
	return c->requests.active.first	  ? &c->requests.active
	       : c->requests.queued.first ? &c->requests.queued
					  : NULL;
}

void requests_check_peers(struct rt_comm *c)
{
	struct requests_list *l;
	struct rt_request *r;
	int ret = 0;

	if (pthread_mutex_trylock(&c->requests.lock))
		return;
	l = stuck_ones(c);
	if (l) {
		r = l->first;
		ret = r->ops->check(r);
	}
	if (ret) {
		const char *name = r->call->name;

		put_done(pop_first(l), ret);
		fail_all_locked(c, ret, name);
	}
	pthread_mutex_unlock(&c->requests.lock);
}

/* ---- starting ---------------------------------------------------------------------------- */

/* Without the lock, a published request may be completed and freed at any time. */
static bool is_queued_last(const struct rt_comm *c, const struct rt_request *r)
{
	return c->requests.queued.first && c->requests.queued.last == r;
}

/* A peer that waits for a queued request wakes this process by node_wake_process(). */
static void queue(struct rt_request *r)
{
	struct rt_comm *c = r->comm;
	const char *name = r->call->name;
	int ret = 0;

	pthread_mutex_lock(&c->requests.lock);
	c->requests.in_call = r;
	r->state = REQUEST_QUEUED;
	append(&c->requests.queued, r);
	busy_add(c);
	begin_queued_locked(c);
	c->requests.in_call = NULL;
	if (is_queued_last(c, r) && r->ops->queued)
		ret = r->ops->queued(r);
	if (ret)
		fail_all_locked(c, ret, name);
	else if (!c->requests.active.first && !c->requests.queued.first)
		busy_remove(c);
	else if (c->requests.queued.first)
		progress_thread_start();
	pthread_mutex_unlock(&c->requests.lock);
}

void rt_request_start(struct rt_request *r)
{
	struct rt_comm *c = r->comm;
	int ret;

	call_enter(r->call);
	request_next_turn(r);
	atomic_fetch_add_explicit(&c->requests.count, 1, memory_order_relaxed);
	intercept_count_up(&rt_requests);
	ret = r->ops->open ? r->ops->open(r) : 0;
	trace_admitted(buffers_region(&r->buffers), r->call->root,
		       c->rank == r->call->root);
	if (!ret && !run_own_part_fits(r->call, c->rank))
		ret = -EREMOTEIO;
	if (!ret) {
		queue(r);
	} else {
		pthread_mutex_lock(&c->requests.lock);
		fail_all_locked(c, ret, r->call->name);
		put_done(r, ret);
		pthread_mutex_unlock(&c->requests.lock);
	}
	call_exit();
}

int rt_request_create(struct rt_comm *c, const struct coll_call *call, void *owner,
		      struct rt_request **out)
{
	struct rt_request *r = calloc(1, sizeof(*r));
	int ret;

	if (!r)
		return -ENOMEM;
	*r = (struct rt_request){ .ops = request_is_small(c, call) ? &request_small
								   : &request_large,
				  .comm = c,
				  .call = call,
				  .owner = owner,
				  .lane = -1,
				  .reuse = c->request_reuse_now };
	c->request_reuse_now = NULL;
	ret = r->ops->create ? r->ops->create(r) : 0;
	if (ret) {
		free(r);
		return ret;
	}
	*out = r;
	return 0;
}

void rt_request_destroy(struct rt_request *r)
{
	request_free_lane(r);
	if (r->ops->destroy)
		r->ops->destroy(r);
	free(r);
}

/* ---- blocking calls, and the end --------------------------------------------------------- */

/* Makes progress until `until` is true, or nothing has moved for give_up_ns (0: for ever).
 * Returns: the last value of `until`. */
static bool progress_until(struct rt_comm *c, bool (*until)(const struct rt_comm *),
			   uint64_t give_up_ns)
{
	struct rt_nap nap = { 0 };
	uint64_t moved = os_now_ns();
	bool ended;

	for (;;) {
		bool any = rt_requests_progress();

		pthread_mutex_lock(&c->requests.lock);
		ended = until(c);
		pthread_mutex_unlock(&c->requests.lock);
		if (ended || (give_up_ns && !any && os_now_ns() - moved > give_up_ns))
			break;
		if (any) {
			moved = os_now_ns();
			rt_requests_woke(&nap);
		} else {
			rt_requests_nap(&nap);
		}
	}
	rt_requests_woke(&nap);
	return ended;
}

static bool is_all_begun(const struct rt_comm *c) { return !c->requests.queued.first; }

static bool is_all_complete(const struct rt_comm *c)
{
	return !c->requests.queued.first && !c->requests.active.first;
}

void requests_publish_all(struct rt_comm *c) { progress_until(c, is_all_begun, 0); }

void requests_make_room(struct rt_comm *c)
{
	struct rt_nap nap = { 0 };

	if (!atomic_load_explicit(&c->requests.count, memory_order_relaxed))
		return;
	if (!rt_requests_progress())
		rt_requests_nap(&nap);
	rt_requests_woke(&nap);
}

int requests_comm_created(struct rt_comm *c)
{
	pthread_mutexattr_t attr;

	/* recursive: the holder steps requests while it waits in a blocking collective */
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&c->requests.lock, &attr);
	pthread_mutexattr_destroy(&attr);
	return reserve_busy();
}

void rt_requests_end(struct rt_comm *c)
{
	if (!atomic_load_explicit(&c->requests.count, memory_order_relaxed) ||
	    progress_until(c, is_all_complete, GIVE_UP_NS))
		return;
	pthread_mutex_lock(&c->requests.lock);
	fail_all_locked(c, -ECANCELED, "a collective that others have not started");
	pthread_mutex_unlock(&c->requests.lock);
}

struct trace_op rt_request_op(const struct rt_request *r)
{
	const struct node_group *g = r->comm->group;

	if (!r->traced_op)
		return (struct trace_op){ 0 };
	return (struct trace_op){ r->traced_op, node_id(g), (uint16_t)node_rank(g),
				  (uint16_t)node_size(g) };
}

void requests_comm_destroyed(struct rt_comm *c)
{
	busy_remove(c);
	while (atomic_load_explicit(&c->requests.users,
				    memory_order_acquire)) /* partner: requests_busy_put */
		sched_yield();
	unreserve_busy();
	pthread_mutex_destroy(&c->requests.lock);
}
