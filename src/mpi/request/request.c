/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: creation, completion, freeing. Their states: state.h. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mpi/request/request.h"
#include "trace/reasons.h"

enum { BUCKETS = 4096, UNUSED_MAX = 64 };

_Atomic uint32_t request_active_count, request_failed_count;

/* Requests by handle. The counts show empty buckets without the lock. */
static struct {
	struct base_spin lock;
	struct request *buckets[BUCKETS];
	_Atomic uint32_t counts[BUCKETS];
} table;

/* Memory for the next calls. */
static struct {
	struct base_spin lock;
	struct request *first;
	int n;
} unused;

struct request *request_get(struct request *fallback)
{
	bool is_short = base_fault("request");
	struct request *r;

	base_spin_lock(&unused.lock);
	r = is_short ? NULL : unused.first;
	if (r) {
		unused.first = r->next;
		unused.n--;
	}
	base_spin_unlock(&unused.lock);
	if (!r && !is_short)
		r = malloc(sizeof(*r));
	if (!r)
		r = fallback;
	/* coll_admit() writes `op` whole */
	r->next = NULL;
	r->handle = NULL;
	memset(&r->rt, 0, sizeof(*r) - offsetof(struct request, rt));
	r->is_on_stack = r == fallback;
	return r;
}

void request_put(struct request *r)
{
	if (r->is_on_stack)
		return;
	base_spin_lock(&unused.lock);
	if (unused.n < UNUSED_MAX) {
		r->next = unused.first;
		unused.first = r;
		unused.n++;
		r = NULL;
	}
	base_spin_unlock(&unused.lock);
	free(r);
}

/* ---- the table --------------------------------------------------------------------------- */

static uint32_t bucket_of(MPI_Request handle)
{
	return (uint32_t)((uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u >> 40) % BUCKETS;
}

void request_enter(struct request *r)
{
	uint32_t b = bucket_of(r->handle);

	base_spin_lock(&table.lock);
	r->next = table.buckets[b];
	table.buckets[b] = r;
	atomic_fetch_add_explicit(&table.counts[b], 1, memory_order_release);
	base_spin_unlock(&table.lock);
}

static void drop_locked(struct request *r)
{
	uint32_t b = bucket_of(r->handle);
	struct request **at;

	for (at = &table.buckets[b]; *at && *at != r; at = &(*at)->next)
		;
	if (*at) {
		*at = r->next;
		atomic_fetch_sub_explicit(&table.counts[b], 1, memory_order_relaxed);
	}
}

/* Returns: whether the request is discarded, which the caller has to do. */
static bool change_locked(struct request *r, enum request_event event)
{
	r->state = request_next_state(r->state, event);
	if (r->state != REQUEST_DISCARDED)
		return false;
	drop_locked(r);
	return true;
}

static struct request *find_locked(MPI_Request handle)
{
	struct request *r = table.buckets[bucket_of(handle)];

	while (r && r->handle != handle)
		r = r->next;
	return r;
}

static bool is_none(MPI_Request handle)
{
	return !atomic_load_explicit(&table.counts[bucket_of(handle)], memory_order_acquire);
}

bool request_is_active(MPI_Request handle)
{
	struct request *r;
	bool is;

	if (is_none(handle))
		return false;
	base_spin_lock(&table.lock);
	r = find_locked(handle);
	is = r && request_state_is_active(r->state);
	base_spin_unlock(&table.lock);
	return is;
}

struct request *request_find_persistent(MPI_Request handle)
{
	struct request *r;

	if (!request_has_persistent() || is_none(handle))
		return NULL;
	base_spin_lock(&table.lock);
	r = find_locked(handle);
	base_spin_unlock(&table.lock);
	return r && r->tag ? r : NULL;
}

/* ---- completing -------------------------------------------------------------------------- */

static int query(void *extra, MPI_Status *status)
{
	abi_status_set(status, abi.any_source, abi.any_tag);
	return host.Status_set_elements(status, abi.byte, 0) ||
	       host.Status_set_cancelled(status, 0);
}

static int free_nothing(void *extra) { return 0; }
static int cancel_nothing(void *extra, int complete) { return 0; }

static void complete(struct request *r)
{
	if (r->tag) {
		persistent_complete(r->tag);
		return;
	}
	BYPASS(host.Grequest_complete(r->handle));
}

static void discard(struct request *r)
{
	if (r->tag)
		persistent_discard(r);
	comm_state_unref(r->op.cs);
	request_put(r);
}

/* The program has got an error. Until then calls on requests must be intercepted. */
static void note_fetched(void)
{
	atomic_fetch_sub_explicit(&request_failed_count, 1, memory_order_relaxed);
	rt_intercept_unref();
}

static void note_end(struct request *r)
{
	const struct trace_op op = r->rt ? rt_request_op(r->rt) : (struct trace_op){ 0 };
	struct trace_request trace;

	base_spin_lock(&table.lock); /* another thread may record a poll of the request */
	trace = r->trace;
	r->trace.since = 0;
	base_spin_unlock(&table.lock);
	trace_request_end(&trace, &op);
}

/* Discards a request that no other thread can find. */
static void forget(struct request *r)
{
	if (r->error)
		note_fetched();
	discard(r);
}

/* This thread has completed the host MPI's request. Returns: as change_locked(). */
static bool end_completing(struct request *r)
{
	bool is_discarded;

	base_spin_lock(&table.lock);
	is_discarded = !--r->completing && change_locked(r, REQUEST_COMPLETED);
	base_spin_unlock(&table.lock);
	return is_discarded;
}

/* Ends a turn of the request with rt's result. Calls on requests are intercepted for the caller:
 * that reason ends here, or when the program gets the error. The program's error handler comes
 * last, as it may leave the call by longjmp() or an exception. */
static void finish(struct request *r, int err)
{
	MPI_Comm comm = r->op.args.comm;
	bool is_discarded, has_error;

	if (trace_is_on())
		note_end(r);
	if (r->rt && !r->tag) {
		rt_request_destroy(r->rt);
		r->rt = NULL;
	}
	if (comm_state_is_freed(r->op.cs)) /* its handle is no longer valid */
		comm = abi.comm_self;
	/* the program ends without having waited: no error */
	err = err == -ECANCELED ? 0 : err;
	if (!r->tag)
		bufrefs_close(&r->op);
	err = coll_result(&r->op, err);
	base_spin_lock(&table.lock);
	is_discarded = change_locked(r, r->tag || err ? REQUEST_END : REQUEST_END_LAST);
	has_error = !is_discarded && err;
	r->error = has_error ? err : 0;
	r->completing += !is_discarded;
	if (has_error) /* whoever sees the end sees this */
		atomic_fetch_add_explicit(&request_failed_count, 1, memory_order_relaxed);
	base_spin_unlock(&table.lock);
	if (!has_error)
		rt_intercept_unref();
	atomic_fetch_sub_explicit(&request_active_count, 1,
				  memory_order_release); /* partner: see_ended() */
	/* another thread may now get the error or free the request; this thread discards it */
	complete(r);
	if (is_discarded || end_completing(r))
		forget(r);
	if (err)
		host.Comm_call_errhandler(comm, err);
}

void request_trace_poll(int count, const void *requests, bool is_begin)
{
	uint64_t now = trace_ticks();
	struct request *r;

	for (int i = 0; i < count; i++) {
		MPI_Request handle = abi_handle_get(requests, i);

		if (is_none(handle))
			continue;
		base_spin_lock(&table.lock);
		r = find_locked(handle);
		if (r && request_state_is_active(r->state)) {
			if (is_begin)
				trace_request_poll(&r->trace, now);
			else
				trace_request_poll_end(&r->trace, now);
		}
		base_spin_unlock(&table.lock);
	}
}

static struct request *next_done(int *out_err)
{
	struct request *r = rt_request_next_done(out_err);

	return r || !multinode ? r : multinode->next_done(out_err);
}

bool request_progress(void)
{
	bool any = rt_requests_progress();
	struct request *r;
	int err;

	while ((r = next_done(&err))) {
		finish(r, err);
		any = true;
	}
	return any;
}

static struct request *find_persistent_in(struct request *bucket)
{
	while (bucket && !bucket->tag)
		bucket = bucket->next;
	return bucket;
}

void request_stop_all(void)
{
	struct request *r;
	int err;

	while ((r = next_done(&err)))
		finish(r, err);
	for (int b = 0; b < BUCKETS && request_has_persistent(); b++) {
		while ((r = find_persistent_in(table.buckets[b]))) {
			drop_locked(r); /* no other thread calls MPI any more */
			discard(r);
		}
	}
}

int request_fetch_error(MPI_Request handle)
{
	struct request *r;
	bool is_discarded = false;
	int error = 0;

	if (is_none(handle))
		return 0;
	base_spin_lock(&table.lock);
	r = find_locked(handle);
	if (r && !request_state_is_active(r->state)) {
		error = r->error;
		r->error = 0;
		is_discarded = error && !r->tag && change_locked(r, REQUEST_FREE);
	}
	base_spin_unlock(&table.lock);
	if (error)
		note_fetched();
	if (is_discarded)
		discard(r);
	return error;
}

/* ---- starting ---------------------------------------------------------------------------- */

bool request_activate(struct request *r)
{
	bool was_active;

	base_spin_lock(&table.lock);
	was_active = request_state_is_active(r->state);
	change_locked(r, REQUEST_START);
	base_spin_unlock(&table.lock);
	if (!was_active)
		atomic_fetch_add_explicit(&request_active_count, 1, memory_order_relaxed);
	return !was_active;
}

void request_deactivate(struct request *r)
{
	base_spin_lock(&table.lock);
	change_locked(r, REQUEST_STOP);
	base_spin_unlock(&table.lock);
	atomic_fetch_sub_explicit(&request_active_count, 1, memory_order_release);
}

/* Starts the collective of a nonblocking request; err: result of its preparation. */
static void start(struct request *r, int err)
{
	struct rt_comm *c = r->op.cs->rt;

	atomic_fetch_add_explicit(&request_active_count, 1, memory_order_relaxed);
	if (r->op.cs->multinode) {
		err = multinode->start(&r->op, err, r);
		if (!err)
			return;
	} else {
		if (!err)
			err = rt_request_create(c, &r->op.call, r, &r->rt);
		if (!err) {
			rt_request_start(r->rt);
			return;
		}
		rt_abandon(c, r->op.args.name, err);
	}
	rt_intercept_ref();
	finish(r, err);
}

/* Only this rank can call the function, and it may be inside the host MPI until the other ranks
 * have progressed. */
bool request_can_run_detached(const struct request *r)
{
	return !coll_is_reduce(r->op.args.kind) || r->op.reduce.known_op != GOAL_NOP;
}

/* Prepares a call where rt looks at its buffers. Returns: whether rt admits it. */
static bool ask_rt(struct request *r)
{
	struct coll_op *op = &r->op;
	const struct rt_question question = {
		.kind = op->args.kind,
		.bytes = op->bytes,
		.root = op->args.root,
		.name = op->args.name,
		.is_fixed = !reduce_may_change(op),
	};
	bool looks = rt_request_needs_buffers(op->cs->rt, op->args.kind, op->bytes), is_admitted;
	int err = looks ? coll_prepare(op) : 0;
	bool is_prepared = looks && !err;

	if (err)
		bufrefs_close(op); /* coll_prepare() fails again where all ranks learn of it */
	is_admitted = rt_request_admit(op->cs->rt, &question, is_prepared ? &op->call : NULL);
	if (is_prepared && is_admitted)
		r->state = request_next_state(r->state, REQUEST_PREPARE);
	else if (is_prepared)
		bufrefs_close(op);
	return is_admitted;
}

static const char is_timed[] = TRACE_WHY_TIMED;

/* Decides by facts that all ranks share. Returns: why the host MPI executes the call; NULL: Sluice
 * does. */
static const char *refusal(struct request *r, const struct coll_gate *gate)
{
	struct comm_state *cs = r->op.cs;
	enum coll kind = r->op.args.kind;

	if (coll_is_neighborhood(kind) && cs->rt && !cs->has_neighbours)
		return "some neighbours are on another node";
	if (cs->multinode)
		return policy_figures_admit(gate, r->op.bytes) &&
				       multinode->admits_request(&r->op) &&
				       request_can_run_detached(r)
			       ? NULL
			       : "Sluice does not serve this collective over several nodes";
	if (!cs->rt) {
		comm_state_add_credit(cs, kind, r->op.bytes);
		cs->has_passed_inexact |= !reduce_may_change(&r->op);
		return "the ranks share no memory yet: the next blocking collective on this "
		       "communicator sets it up";
	}
	if (!rt_request_suits(cs->rt))
		return "ranks share CPUs, or there are too many ranks";
	if (!request_can_run_detached(r))
		return "only its own rank can call the user-defined reduction";
	if (!reduce_may_change(&r->op) &&
	    (cs->has_passed_inexact || policy_admit(gate, r->op.bytes) == ADMIT_REUSED))
		return TRACE_WHY_FIXED;
	if (reduce_may_change(&r->op) && rt_request_passes(cs->rt, kind, r->op.bytes))
		return TRACE_WHY_SLOWER;
	if (ask_rt(r))
		return NULL;
	return rt_request_is_timed(cs->rt)
		       ? is_timed
		       : "faster only in buffers that are used again, and no blocking "
			 "collective has agreed on it yet";
}

/* Sets *out, which the caller owns. Returns: false: the host MPI executes the call, or *rc is an
 * error. */
static bool admit(struct coll_args *args, struct request *fallback, struct request **out, int *rc)
{
	const struct coll_gate *gate = &rt_gates[COLL_NONBLOCKING][args->kind];
	struct request *r;
	const char *why;

	if (coll_gate_is_closed(gate))
		return false;
	r = request_get(fallback);
	if (coll_admit(&r->op, args, gate, rc)) {
		why = refusal(r, gate);
		if (!why) {
			*out = r;
			return true;
		}
		args->timed = why == is_timed ? r->op.cs->rt : NULL;
		trace_rejected(why);
	}
	request_put(r);
	return false;
}

/* Makes the host MPI's request. Returns: 0, or an error; unless there is no memory for the request,
 * the program's handler has got it. */
static int make_handle(struct request *r)
{
	if (r->is_on_stack)
		return abi.err_no_mem;
	return BYPASS(
		host.Grequest_start(query, free_nothing, cancel_nothing, NULL, &r->handle));
}

/* Gives up without a request, and tells the other ranks. */
static void abandon(struct request *r)
{
	if (r->op.cs->multinode)
		multinode->abandon(&r->op);
	else
		rt_abandon(r->op.cs->rt, r->op.args.name, -ENOMEM);
	if (r->state != REQUEST_NEW)
		coll_complete(&r->op, 0); /* closes the prepared buffers */
	request_put(r);
}

static bool begin(struct coll_args *args, void *request, int *rc)
{
	struct request *r, fallback;
	struct rt_comm *timed;
	MPI_Request handle;
	int err;

	*rc = 0;
	if (!request || !admit(args, &fallback, &r, rc)) {
		if (!coll_gate_is_closed(&rt_gates[COLL_NONBLOCKING][args->kind]))
			coll_count_decision(args->kind, false);
		return *rc;
	}
	timed = r->op.cs->rt && rt_request_is_timed(r->op.cs->rt) ? r->op.cs->rt : NULL;
	*rc = make_handle(r);
	if (*rc) {
		abandon(r);
		if (r == &fallback)
			host.Comm_call_errhandler(args->comm, *rc);
		return true;
	}
	handle = r->handle;
	abi_handle_set(request, 0, handle);
	comm_state_ref(r->op.cs);
	trace_request(&r->trace);
	err = r->state == REQUEST_NEW ? coll_prepare(&r->op) : 0;
	r->state = request_next_state(r->state, REQUEST_START);
	request_enter(r);
	start(r, err);
	if (timed)
		rt_request_started(timed, (uintptr_t)handle);
	coll_count_decision(args->kind, true);
	return true;
}

bool request_begin(struct coll_args *args, void *request, int *rc)
{
	if (coll_trace_begin(args, &rt_gates[COLL_NONBLOCKING][args->kind]) ||
	    !begin(args, request, rc))
		return false;
	coll_trace_end(args, *rc);
	return true;
}

int request_passed(const struct coll_args *args, const void *request, int rc)
{
	if (base_unlikely(args->timed))
		rt_request_started(args->timed,
				   rc ? 0 : (uintptr_t)abi_handle_get(request, 0));
	return coll_trace_end(args, rc);
}

/* ---- freeing, canceling ------------------------------------------------------------------ */

int request_Request_free(void *request)
{
	MPI_Request handle = request ? abi_handle_get(request, 0) : NULL;
	struct request *r = NULL;
	bool is_discarded = false;

	if (request && !is_none(handle)) {
		base_spin_lock(&table.lock);
		r = find_locked(handle);
		is_discarded = r && change_locked(r, REQUEST_FREE);
		base_spin_unlock(&table.lock);
	}
	if (is_discarded)
		forget(r);
	return host.Request_free(request);
}

/* Collectives cannot be canceled: the host MPI returns the same error for its own. */
int request_Cancel(void *request)
{
	if (!request || !request_is_active(abi_handle_get(request, 0)))
		return host.Cancel(request);
	host.Comm_call_errhandler(abi.comm_self, abi.err_cancel);
	return abi.err_cancel;
}
