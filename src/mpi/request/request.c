/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests: made, completed, freed. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mpi/request/request.h"
#include "mpi/hier.h"

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
	/* coll_admit() writes `taken` whole */
	r->next = NULL;
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
	inside++;
	for (int i = 0; i < n && !ret; i++) {
		MPI_Datatype *own = &r->types[r->type_count];

		if (!side->parts[i].bytes || abi_size_bound(packs[i].datatype))
			continue;
		ret = real.Type_dup(packs[i].datatype, own) ? -EIO : 0;
		if (!ret)
			packs[i].datatype = r->types[r->type_count++];
	}
	inside--;
	return ret;
}

int request_hold_types(struct request *r)
{
	int ret = hold_side(r, &r->taken.send, &r->taken.call.send);

	return ret ? ret : hold_side(r, &r->taken.recv, &r->taken.call.recv);
}

void request_release_types(struct request *r)
{
	inside++;
	while (r->type_count)
		real.Type_free(&r->types[--r->type_count]);
	inside--;
	free(r->types);
	r->types = NULL;
}

/* ---- completing -------------------------------------------------------------------------- */

static int query(void *extra, MPI_Status *status)
{
	abi_status_set(status, ABI_ANY_SOURCE, ABI_ANY_TAG);
	return real.Status_set_elements(status, ABI_BYTE, 0) ||
	       real.Status_set_cancelled(status, 0);
}

static int free_nothing(void *extra) { return 0; }
static int cancel_nothing(void *extra, int complete) { return 0; }

static void complete(struct request *r)
{
	if (r->tag) {
		persistent_complete(r->tag);
		return;
	}
	inside++;
	real.Grequest_complete(r->handle);
	inside--;
}

static void discard(struct request *r)
{
	if (r->tag)
		persistent_discard(r);
	comm_state_unref(r->taken.lc);
	request_put(r);
}

/* Until the program has heard of it, the calls that tell it must be looked at. */
static void note_failed(int more)
{
	if (more > 0)
		rt_watch();
	atomic_fetch_add_explicit(&request_failed, (uint32_t)more, memory_order_relaxed);
	if (more < 0)
		rt_unwatch();
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
	if (comm_state_is_freed(r->taken.lc)) /* whose handle is nobody's any more */
		r->taken.take.comm = ABI_COMM_SELF;
	/* where the program ends, and has never waited for it, nobody is to be told */
	err = err == -ECANCELED ? 0 : err;
	err = r->tag ? coll_complete_turn(&r->taken, err) : coll_complete(&r->taken, err);
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

void request_asked_on(int count, const MPI_Request requests[], bool asks)
{
	uint64_t now = trace_ticks();
	struct request *r;

	for (int i = 0; i < count; i++) {
		if (is_none(requests[i]))
			continue;
		base_spin_lock(&table.lock);
		r = find_locked(requests[i]);
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

	return r ? r : hier_next_done(out_err);
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
	struct rt_comm *c = r->taken.lc->rt;
	int err = r->is_prepared ? 0 : coll_prepare(&r->taken);

	r->is_flying = true;
	atomic_fetch_add_explicit(&request_flying, 1, memory_order_relaxed);
	if (!err)
		err = request_hold_types(r);
	if (r->taken.lc->span) {
		err = hier_start(&r->taken, err, r);
		if (err)
			finish(r, err);
		return;
	}
	if (!err)
		err = rt_request_create(c, &r->taken.call, r, &r->rt);
	if (!err) {
		rt_request_start(r->rt);
		return;
	}
	rt_abandon(c, &r->taken.call, err);
	finish(r, err);
}

/*
 * What combines by a function of the program's, or of the library's, is the library's: it would
 * need calls of this rank, which may be in a call of the library's until the others have gone on.
 */
bool request_may_fly(const struct request *r)
{
	return !coll_is_reduce(r->taken.take.kind) || r->taken.reduce.known_op != GOAL_NOP;
}

/* Of those that are taken in buffers that are used again only. */
static bool is_used_again(struct request *r)
{
	enum coll kind = r->taken.take.kind;
	uint64_t bytes = r->taken.bytes;
	int err = r->is_prepared ? 0 : coll_prepare(&r->taken);
	bool takes;

	if (err)
		bufrefs_close(&r->taken); /* it is found again, and told to the others */
	r->is_prepared |= !err;
	takes = rt_request_takes(r->taken.lc->rt, kind, bytes, err ? NULL : &r->taken.call);
	if (!takes && r->is_prepared)
		bufrefs_close(&r->taken);
	return takes;
}

/* May it be taken, by what all ranks know? *out is the caller's then. False: no, or *rc is an
 * error. */
static bool look(const struct take *take, struct request *spare, struct request **out, int *rc)
{
	struct request *r;

	if (coll_gate_is_closed(&rt_gates[COLL_NONBLOCKING][take->kind]))
		return false;
	r = request_get(spare);
	if (coll_admit(&r->taken, take, &rt_gates[COLL_NONBLOCKING][take->kind], rc)) {
		if (coll_is_neighborhood(take->kind) && r->taken.lc->rt &&
		    !r->taken.lc->has_neighbours) {
			trace_rejected("its neighbours are not all of its ranks' node");
		} else if (r->taken.lc->span) {
			*out = hier_takes_requests(&r->taken) && request_may_fly(r) ? r : NULL;
			if (*out)
				return true;
			trace_rejected("it is not one of those that are served over several nodes");
		} else if (!r->taken.lc->rt) {
			trace_rejected("its communicator has not been connected: the next blocking "
				     "collective does it");
			comm_state_add_credit(r->taken.lc, policy_connect_credit(take->kind, r->taken.bytes));
		} else if (!rt_request_suits(r->taken.lc->rt)) {
			trace_rejected("its ranks share CPUs, or are many");
		} else if (!request_may_fly(r)) {
			trace_rejected(
				"it computes with a function that only its own rank could call");
		} else if (policy_admit(&rt_gates[COLL_NONBLOCKING][take->kind],
					r->taken.bytes) == ADMIT_REUSED &&
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
		real.Comm_call_errhandler(r->taken.take.comm, ABI_ERR_NO_MEM);
		return ABI_ERR_NO_MEM;
	}
	inside++;
	rc = real.Grequest_start(query, free_nothing, cancel_nothing, NULL, &r->handle);
	inside--;
	return rc;
}

/* There is none. The others hear of it. */
static void abandon(struct request *r)
{
	const struct coll_call named = { .kind = r->taken.take.kind, .name = r->taken.take.name };

	if (r->taken.lc->span)
		hier_give_up(&r->taken);
	else
		rt_abandon(r->taken.lc->rt, &named, -ENOMEM);
	if (r->is_prepared)
		coll_complete(&r->taken, 0); /* gives back what was prepared */
	request_put(r);
}

/* True: it is so small that it is the library's. */
static bool trace_begin(struct take *take)
{
	const struct arg_buf *own = args_message(take);

	return traced_begin(&take->traced, take->name, take->caller,
			    own ? own->type : ABI_DATATYPE_NULL, own ? own->count : 0,
			    rt_gates[COLL_NONBLOCKING][take->kind].from);
}

static bool begin(const struct take *take, MPI_Request *request, int *rc)
{
	struct request *r, spare;

	*rc = 0;
	if (!request || !look(take, &spare, &r, rc)) {
		if (!coll_gate_is_closed(&rt_gates[COLL_NONBLOCKING][take->kind]))
			coll_count_decision(take->kind, false);
		return *rc;
	}
	*rc = make_handle(r);
	if (*rc) {
		abandon(r);
		return true;
	}
	*request = r->handle;
	comm_state_ref(r->taken.lc);
	trace_request(&r->trace);
	request_enter(r);
	fly(r);
	coll_count_decision(take->kind, true);
	return true;
}

bool request_begin(struct take *take, MPI_Request *request, int *rc)
{
	if (trace_begin(take) || !begin(take, request, rc))
		return false;
	traced_end(&take->traced, *rc);
	return true;
}

/* ---- freeing, canceling ------------------------------------------------------------------ */

int request_Request_free(MPI_Request *request)
{
	struct request *r = NULL;
	bool is_over = false;

	if (request && !is_none(*request)) {
		base_spin_lock(&table.lock);
		r = find_locked(*request);
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
	return real.Request_free(request);
}

/* MPI has no way to take back a collective: the library says the same of its own. */
int request_Cancel(MPI_Request *request)
{
	if (!request || !request_is_there(*request))
		return real.Cancel(request);
	real.Comm_call_errhandler(ABI_COMM_SELF, ABI_ERR_CANCEL);
	return ABI_ERR_CANCEL;
}
