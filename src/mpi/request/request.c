/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: made, completed, freed. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mpi/request/request.h"

enum { BUCKETS = 4096, UNUSED_MAX = 64 };

_Atomic uint32_t request_flying, request_failed;

/* By handle. A bucket that is empty is known without the lock. */
static struct {
	struct base_spin lock;
	struct request *buckets[BUCKETS];
	_Atomic uint32_t counts[BUCKETS];
} table;

/* Some that wait for the next call. */
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
	r->is_spare = r == spare;
	return r;
}

void request_put(struct request *r)
{
	if (r->is_spare)
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

bool request_is_there(MPI_Request handle)
{
	struct request *r;
	bool is;

	if (is_none(handle))
		return false;
	base_spin_lock(&table.lock);
	r = find_locked(handle);
	is = r && r->is_flying;
	base_spin_unlock(&table.lock);
	return is;
}

struct request *request_find_persistent(MPI_Request handle)
{
	struct request *r;

	if (!request_is_any_persistent() || is_none(handle))
		return NULL;
	base_spin_lock(&table.lock);
	r = find_locked(handle);
	base_spin_unlock(&table.lock);
	return r && r->tag ? r : NULL;
}

/* ---- what the program may free before the end -------------------------------------------- */

/* The datatypes of what is packed get names of our own. */
static int hold_side(struct request *r, struct bufref *s, const struct coll_side *side)
{
	int n = s->packs.of ? s->packs.n : 1, ret = 0;
	struct pack *packs = s->packs.of ? s->packs.of : &s->pack;
	MPI_Datatype *more;

	if (!side->buf.pack)
		return 0;
	more = realloc(r->types, (size_t)(r->type_count + n) * sizeof(*more));
	if (!more)
		return -ENOMEM;
	r->types = more;
	bypass++;
	for (int i = 0; i < n && !ret; i++) {
		MPI_Datatype *own = &r->types[r->type_count];

		if (!side->parts[i].bytes || types_bound(packs[i].datatype))
			continue;
		*own = NULL;
		ret = host.Type_dup(packs[i].datatype, own) ? -EIO : 0;
		if (!ret)
			packs[i].datatype = r->types[r->type_count++];
	}
	bypass--;
	return ret;
}

int request_hold_types(struct request *r)
{
	int ret = hold_side(r, &r->op.send, &r->op.call.send);

	return ret ? ret : hold_side(r, &r->op.recv, &r->op.call.recv);
}

void request_release_types(struct request *r)
{
	bypass++;
	while (r->type_count)
		host.Type_free(&r->types[--r->type_count]);
	bypass--;
	free(r->types);
	r->types = NULL;
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

/* Until the program has heard of it, the calls that tell it must be looked at. */
static void note_failed(int more)
{
	if (more > 0)
		rt_intercept_ref();
	atomic_fetch_add_explicit(&request_failed, (uint32_t)more, memory_order_relaxed);
	if (more < 0)
		rt_intercept_unref();
}

static void note_end(struct request *r)
{
	const struct trace_op op = r->rt ? rt_request_op(r->rt) : (struct trace_op){ 0 };
	struct trace_request told;

	base_spin_lock(&table.lock); /* another thread may be asking for it */
	told = r->trace;
	r->trace.since = 0;
	base_spin_unlock(&table.lock);
	trace_request_end(&told, &op);
}

/* Nobody else has it any more. */
static void forget(struct request *r)
{
	if (r->error)
		note_failed(-1);
	discard(r);
}

/* The library's is complete, too. True: meanwhile the program has freed it, or heard of its error.
 */
static bool is_end_last(struct request *r)
{
	bool is;

	base_spin_lock(&table.lock);
	r->is_ending = false;
	is = r->is_freed;
	if (is)
		drop_locked(r);
	base_spin_unlock(&table.lock);
	return is;
}

/* It is over, with this result. */
static void finish(struct request *r, int err)
{
	bool is_last;

	if (trace_is_on())
		note_end(r);
	if (r->rt && !r->tag) {
		rt_request_destroy(r->rt);
		r->rt = NULL;
	}
	if (comm_state_is_freed(r->op.cs)) /* whose handle is nobody's any more */
		r->op.args.comm = abi.comm_self;
	/* where the program ends, and has never waited for it, nobody is to be told */
	err = err == -ECANCELED ? 0 : err;
	err = r->tag ? coll_complete_turn(&r->op, err) : coll_complete(&r->op, err);
	if (!r->tag)
		request_release_types(r);
	base_spin_lock(&table.lock);
	r->is_flying = false;
	is_last = r->is_freed || (!r->tag && !err);
	r->is_ending = !is_last;
	r->error = is_last ? 0 : err;
	if (is_last)
		drop_locked(r);
	base_spin_unlock(&table.lock);
	if (!is_last && err)
		note_failed(1);
	atomic_fetch_sub_explicit(&request_flying, 1,
				  memory_order_release); /* partner: see_ended() */
	/* from here on another thread may hear of its error, or free it, and leaves the rest to us
	 */
	complete(r);
	if (is_last || is_end_last(r))
		forget(r);
}

void request_asked_on(int count, const void *requests, bool asks)
{
	uint64_t now = trace_ticks();
	struct request *r;

	for (int i = 0; i < count; i++) {
		MPI_Request handle = abi_handle_get(requests, i);

		if (is_none(handle))
			continue;
		base_spin_lock(&table.lock);
		r = find_locked(handle);
		if (r && r->is_flying && asks)
			trace_request_poll(&r->trace, now);
		else if (r && r->is_flying)
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
	for (int b = 0; b < BUCKETS && request_is_any_persistent(); b++) {
		while ((r = find_persistent_in(table.buckets[b]))) {
			drop_locked(r); /* no other thread is in here any more */
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
	if (r && !r->is_flying) {
		error = r->error;
		r->error = 0;
		r->is_freed |= error && !r->tag;
		is_last = error && !r->tag && !r->is_ending;
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

bool request_take_off(struct request *r)
{
	bool was;

	base_spin_lock(&table.lock);
	was = r->is_flying;
	r->is_flying = true;
	base_spin_unlock(&table.lock);
	if (!was)
		atomic_fetch_add_explicit(&request_flying, 1, memory_order_relaxed);
	return !was;
}

void request_land(struct request *r)
{
	base_spin_lock(&table.lock);
	r->is_flying = false;
	base_spin_unlock(&table.lock);
	atomic_fetch_sub_explicit(&request_flying, 1, memory_order_release);
}

/* Its library's request is active. */
static void fly(struct request *r)
{
	struct rt_comm *c = r->op.cs->rt;
	int err = r->is_prepared ? 0 : coll_prepare(&r->op);

	r->is_flying = true;
	atomic_fetch_add_explicit(&request_flying, 1, memory_order_relaxed);
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
 * What combines by a function of the program's, or of the library's, is the library's: it would
 * need calls of this rank, which may be in a call of the library's until the others have gone on.
 */
bool request_may_fly(const struct request *r)
{
	return !coll_is_reduce(r->op.args.kind) || r->op.reduce.known_op != GOAL_NOP;
}

/* Of those that are taken in buffers that are used again only. */
static bool is_used_again(struct request *r)
{
	enum coll kind = r->op.args.kind;
	uint64_t bytes = r->op.bytes;
	int err = r->is_prepared ? 0 : coll_prepare(&r->op);
	bool takes;

	if (err)
		bufrefs_close(&r->op); /* it is found again, and told to the others */
	r->is_prepared |= !err;
	takes = rt_request_takes(r->op.cs->rt, kind, bytes, err ? NULL : &r->op.call);
	if (!takes && r->is_prepared)
		bufrefs_close(&r->op);
	return takes;
}

/* May it be taken, by what all ranks know? *out is the caller's then. False: no, or *rc is an
 * error. */
static bool look(const struct coll_args *args, struct request *spare, struct request **out, int *rc)
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
			*out = multinode->admits_request(&r->op) && request_may_fly(r) ? r : NULL;
			if (*out)
				return true;
			trace_rejected("it is not one of those that are served over several nodes");
		} else if (!r->op.cs->rt) {
			trace_rejected("its communicator has not been connected: the next blocking "
				     "collective does it");
			comm_state_add_credit(r->op.cs, policy_connect_credit(args->kind, r->op.bytes));
		} else if (!rt_request_suits(r->op.cs->rt)) {
			trace_rejected("its ranks share CPUs, or are many");
		} else if (!request_may_fly(r)) {
			trace_rejected(
				"it computes with a function that only its own rank could call");
		} else if (policy_admit(&rt_gates[COLL_NONBLOCKING][args->kind],
					r->op.bytes) == ADMIT_REUSED &&
			   !is_used_again(r)) {
			trace_rejected("it wins in buffers that are used again only, on which ranks "
				     "agree in blocking collectives");
		} else {
			*out = r;
			return true;
		}
	}
	request_put(r);
	return false;
}

/* The library's request for it. 0, or an error that has been told. */
static int make_handle(struct request *r)
{
	int rc;

	if (r->is_spare) {
		host.Comm_call_errhandler(r->op.args.comm, abi.err_no_mem);
		return abi.err_no_mem;
	}
	bypass++;
	rc = host.Grequest_start(query, free_nothing, cancel_nothing, NULL, &r->handle);
	bypass--;
	return rc;
}

/* There is none. The others hear of it. */
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

/* True: it is so small that it is the library's. */
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
	if (!request || !look(args, &spare, &r, rc)) {
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
	fly(r);
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
			is_over = !r->is_flying && !r->is_ending;
		}
		if (is_over)
			drop_locked(r);
		base_spin_unlock(&table.lock);
	}
	if (is_over)
		forget(r);
	return host.Request_free(request);
}

/* MPI has no way to take back a collective: the library says the same of its own. */
int request_Cancel(void *request)
{
	if (!request || !request_is_there(abi_handle_get(request, 0)))
		return host.Cancel(request);
	host.Comm_call_errhandler(abi.comm_self, abi.err_cancel);
	return abi.err_cancel;
}
