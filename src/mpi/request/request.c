/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Requests: creation, completion, freeing. Under table.lock a request is in one of these states:
 *
 *   is_active is_completing   state        leaves it by
 *   0         0               inactive     start (persistent); freeing. A nonblocking one that has
 *                                          failed stays here until the program gets its error
 *   1         0               active       finish()
 *   0         1               completing   finish(), once the host MPI's request is complete
 *   1         1               active again while the thread that completed its last turn is not
 *                                          through (persistent)
 *
 * is_freed: the program has freed it before it was inactive; who ends the last state discards it.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mpi/request/request.h"

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

struct request *request_get(struct request *spare)
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
		r = spare;
	/* coll_admit() writes `op` whole */
	r->next = NULL;
	r->handle = NULL;
	memset(&r->rt, 0, sizeof(*r) - offsetof(struct request, rt));
	r->is_on_stack = r == spare;
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
	is = r && r->is_active;
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
	bypass++;
	host.Grequest_complete(r->handle);
	bypass--;
}

static void discard(struct request *r)
{
	if (r->tag)
		persistent_discard(r);
	comm_state_unref(r->op.cs);
	request_put(r);
}

/* Until the program gets the error, calls on requests must be intercepted. */
static void note_failed(int more)
{
	if (more > 0)
		rt_intercept_ref();
	atomic_fetch_add_explicit(&request_failed_count, (uint32_t)more, memory_order_relaxed);
	if (more < 0)
		rt_intercept_unref();
}

static void note_end(struct request *r)
{
	const struct trace_op op = r->rt ? rt_request_op(r->rt) : (struct trace_op){ 0 };
	struct trace_request told;

	base_spin_lock(&table.lock); /* another thread may record a poll of it */
	told = r->trace;
	r->trace.since = 0;
	base_spin_unlock(&table.lock);
	trace_request_end(&told, &op);
}

/* Discards a request that no other thread can find. */
static void forget(struct request *r)
{
	if (r->error)
		note_failed(-1);
	discard(r);
}

/* The host MPI's request is complete, too. Returns: has the program freed it meanwhile, or got its
 * error? */
static bool is_end_last(struct request *r)
{
	bool is;

	base_spin_lock(&table.lock);
	r->is_completing = false;
	is = r->is_freed;
	if (is)
		drop_locked(r);
	base_spin_unlock(&table.lock);
	return is;
}

/* The collective has ended with this result. */
static void finish(struct request *r, int err)
{
	bool is_last;

	if (trace_is_on())
		note_end(r);
	if (r->rt && !r->tag) {
		rt_request_destroy(r->rt);
		r->rt = NULL;
	}
	if (comm_state_is_freed(r->op.cs)) /* its handle is no longer valid */
		r->op.args.comm = abi.comm_self;
	/* the program ends without having waited: no error */
	err = err == -ECANCELED ? 0 : err;
	err = r->tag ? coll_complete_turn(&r->op, err) : coll_complete(&r->op, err);
	if (!r->tag)
		request_release_types(r);
	base_spin_lock(&table.lock);
	r->is_active = false;
	is_last = r->is_freed || (!r->tag && !err);
	r->is_completing = !is_last;
	r->error = is_last ? 0 : err;
	if (is_last)
		drop_locked(r);
	base_spin_unlock(&table.lock);
	if (!is_last && err)
		note_failed(1);
	atomic_fetch_sub_explicit(&request_active_count, 1,
				  memory_order_release); /* partner: see_ended() */
	/* from here on another thread may get its error or free it; this one discards it */
	complete(r);
	if (is_last || is_end_last(r))
		forget(r);
}

void request_trace_poll(int count, const void *requests, bool asks)
{
	uint64_t now = trace_ticks();
	struct request *r;

	for (int i = 0; i < count; i++) {
		MPI_Request handle = abi_handle_get(requests, i);

		if (is_none(handle))
			continue;
		base_spin_lock(&table.lock);
		r = find_locked(handle);
		if (r && r->is_active && asks)
			trace_request_poll(&r->trace, now);
		else if (r && r->is_active)
			trace_request_poll_end(&r->trace, now);
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

int request_take_error(MPI_Request handle)
{
	struct request *r;
	bool is_last = false;
	int error = 0;

	if (is_none(handle))
		return 0;
	base_spin_lock(&table.lock);
	r = find_locked(handle);
	if (r && !r->is_active) {
		error = r->error;
		r->error = 0;
		r->is_freed |= error && !r->tag;
		is_last = error && !r->tag && !r->is_completing;
	}
	if (is_last)
		drop_locked(r);
	base_spin_unlock(&table.lock);
	if (error)
		note_failed(-1);
	if (is_last)
		discard(r);
	return error;
}

/* ---- starting ---------------------------------------------------------------------------- */

bool request_activate(struct request *r)
{
	bool was;

	base_spin_lock(&table.lock);
	was = r->is_active;
	r->is_active = true;
	base_spin_unlock(&table.lock);
	if (!was)
		atomic_fetch_add_explicit(&request_active_count, 1, memory_order_relaxed);
	return !was;
}

void request_deactivate(struct request *r)
{
	base_spin_lock(&table.lock);
	r->is_active = false;
	base_spin_unlock(&table.lock);
	atomic_fetch_sub_explicit(&request_active_count, 1, memory_order_release);
}

/* Starts the collective; the host MPI's request is active. */
static void activate(struct request *r)
{
	struct rt_comm *c = r->op.cs->rt;
	int err = r->is_prepared ? 0 : coll_prepare(&r->op);

	r->is_active = true;
	atomic_fetch_add_explicit(&request_active_count, 1, memory_order_relaxed);
	if (!err)
		err = request_hold_types(r);
	if (r->op.cs->multinode) {
		err = multinode->start(&r->op, err, r);
		if (err)
			finish(r, err);
		return;
	}
	if (!err)
		err = rt_request_create(c, &r->op.call, r, &r->rt);
	if (!err) {
		rt_request_start(r->rt);
		return;
	}
	rt_abandon(c, &r->op.call, err);
	finish(r, err);
}

/*
 * A reduction that rt cannot compute needs calls of this rank, which may be in a call of the host
 * MPI until the other ranks have gone on: it is left to the host MPI.
 */
bool request_can_run_detached(const struct request *r)
{
	return !coll_is_reduce(r->op.args.kind) || r->op.reduce.known_op != GOAL_NOP;
}

/* May a collective be executed that Sluice executes in reused buffers only? */
static bool is_used_again(struct request *r)
{
	enum coll kind = r->op.args.kind;
	uint64_t bytes = r->op.bytes;
	int err = r->is_prepared ? 0 : coll_prepare(&r->op);
	bool takes;

	if (err)
		bufrefs_close(
			&r->op); /* the same failure comes again, where all ranks learn of it */
	r->is_prepared |= !err;
	takes = rt_request_admit(r->op.cs->rt, kind, bytes, err ? NULL : &r->op.call);
	if (!takes && r->is_prepared)
		bufrefs_close(&r->op);
	return takes;
}

/* May it be executed, by what all ranks know? Sets *out, which the caller owns. False: no, or *rc
 * is an error. */
static bool admit(const struct coll_args *args, struct request *spare, struct request **out,
		  int *rc)
{
	struct request *r;

	if (coll_gate_is_closed(&rt_gates[COLL_NONBLOCKING][args->kind]))
		return false;
	r = request_get(spare);
	if (coll_admit(&r->op, args, &rt_gates[COLL_NONBLOCKING][args->kind], rc)) {
		if (coll_is_neighborhood(args->kind) && r->op.cs->rt &&
		    !r->op.cs->has_neighbours) {
			trace_rejected("its neighbours are not all of its ranks' node");
		} else if (r->op.cs->multinode) {
			*out = multinode->admits_request(&r->op) && request_can_run_detached(r)
				       ? r
				       : NULL;
			if (*out)
				return true;
			trace_rejected("it is not one of those that are served over several nodes");
		} else if (!r->op.cs->rt) {
			trace_rejected("its communicator has not been connected: the next blocking "
				     "collective does it");
			comm_state_add_credit(r->op.cs,
					      policy_connect_credit(args->kind, r->op.bytes));
		} else if (!rt_request_suits(r->op.cs->rt)) {
			trace_rejected("its ranks share CPUs, or are many");
		} else if (!request_can_run_detached(r)) {
			trace_rejected(
				"it computes with a function that only its own rank could call");
		} else if (policy_admit(&rt_gates[COLL_NONBLOCKING][args->kind],
					r->op.bytes) == ADMIT_REUSED &&
			   !is_used_again(r)) {
			trace_rejected(
				"it wins in buffers that are used again only, on which ranks "
				"agree in blocking collectives");
		} else {
			*out = r;
			return true;
		}
	}
	request_put(r);
	return false;
}

/* The host MPI's request. Returns: 0, or an error that the program's handler has got. */
static int make_handle(struct request *r)
{
	int rc;

	if (r->is_on_stack) {
		host.Comm_call_errhandler(r->op.args.comm, abi.err_no_mem);
		return abi.err_no_mem;
	}
	bypass++;
	rc = host.Grequest_start(query, free_nothing, cancel_nothing, NULL, &r->handle);
	bypass--;
	return rc;
}

/* There is no request: gives up, and tells the other ranks. */
static void abandon(struct request *r)
{
	const struct coll_call named = { .kind = r->op.args.kind, .name = r->op.args.name };

	if (r->op.cs->multinode)
		multinode->abandon(&r->op);
	else
		rt_abandon(r->op.cs->rt, &named, -ENOMEM);
	if (r->is_prepared)
		coll_complete(&r->op, 0); /* gives back what was prepared */
	request_put(r);
}

/* Returns: is it so small that it is the host MPI's? */
static bool trace_begin(struct coll_args *args)
{
	const struct arg_buf *own = args_message(args);

	return traced_begin(&args->traced, args->name, args->caller,
			    own ? own->type : abi.datatype_null, own ? own->count : 0,
			    rt_gates[COLL_NONBLOCKING][args->kind].from);
}

static bool begin(const struct coll_args *args, void *request, int *rc)
{
	struct request *r, spare;

	*rc = 0;
	if (!request || !admit(args, &spare, &r, rc)) {
		if (!coll_gate_is_closed(&rt_gates[COLL_NONBLOCKING][args->kind]))
			coll_count_decision(args->kind, false);
		return *rc;
	}
	*rc = make_handle(r);
	if (*rc) {
		abandon(r);
		return true;
	}
	abi_handle_set(request, 0, r->handle);
	comm_state_ref(r->op.cs);
	trace_request(&r->trace);
	request_enter(r);
	activate(r);
	coll_count_decision(args->kind, true);
	return true;
}

bool request_begin(struct coll_args *args, void *request, int *rc)
{
	if (trace_begin(args) || !begin(args, request, rc))
		return false;
	traced_end(&args->traced, *rc);
	return true;
}

/* ---- freeing, canceling ------------------------------------------------------------------ */

int request_Request_free(void *request)
{
	MPI_Request handle = request ? abi_handle_get(request, 0) : NULL;
	struct request *r = NULL;
	bool is_over = false;

	if (request && !is_none(handle)) {
		base_spin_lock(&table.lock);
		r = find_locked(handle);
		if (r) {
			r->is_freed = true;
			is_over = !r->is_active && !r->is_completing;
		}
		if (is_over)
			drop_locked(r);
		base_spin_unlock(&table.lock);
	}
	if (is_over)
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
