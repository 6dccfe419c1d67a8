/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Persistent collectives: prepared once, started again and again.
 *
 * All that can fail on one rank is done before all ranks agree on a lane, in which the request's
 * turns meet whatever else is started before or after (rt/requests.h); no lane, or a rank that
 * failed: the request is the library's on all ranks.
 *
 * The program's handle is a persistent receive of no bytes, from this process, with a tag of its
 * own. It is active from MPI_Start until a message has come, which is sent when the collective is
 * over. So the library does what is asked of a persistent request, whether it is active or not.
 */
#include <errno.h>

#include "base/base.h"
#include "mpi/request/request.h"

enum { TAGS = 16384 /* every library has twice as many */ };

_Atomic uint32_t request_persistent;

/* ---- tags -------------------------------------------------------------------------------- */

static struct {
	struct base_spin lock;
	bool is_used[TAGS]; /* 0 is pack.c's */
	int last;
} tags;

/* 0: all are in use. */
static int tag_get(void)
{
	int tag = 0;

	base_spin_lock(&tags.lock);
	for (int i = 1; i < TAGS && !tag; i++) {
		tags.last = tags.last % (TAGS - 1) + 1;
		if (!tags.is_used[tags.last])
			tag = tags.last;
	}
	tags.is_used[tag] = true;
	base_spin_unlock(&tags.lock);
	return tag;
}

static void tag_put(int tag)
{
	base_spin_lock(&tags.lock);
	tags.is_used[tag] = false;
	base_spin_unlock(&tags.lock);
}

/* ---- the library's side ------------------------------------------------------------------ */

static int make_handle(struct request *r)
{
	MPI_Comm helper;
	int rc;

	r->tag = tag_get();
	if (!r->tag)
		return -ENOMEM;
	if (!scratch_comm(&helper)) {
		inside++;
		rc = ON_SCRATCH(real.Recv_init(NULL, 0, ABI_BYTE, 0, r->tag, helper, &r->handle));
		inside--;
		if (!rc)
			return 0;
	}
	tag_put(r->tag);
	r->tag = 0;
	return -EIO;
}

static void free_handle(struct request *r)
{
	if (!r->tag)
		return;
	inside++;
	real.Request_free(&r->handle);
	inside--;
	tag_put(r->tag);
	r->tag = 0;
}

void persistent_complete(int tag)
{
	MPI_Comm helper;

	if (scratch_comm(&helper))
		return;
	inside++;
	ON_SCRATCH_LOCKED(real.Send(NULL, 0, ABI_BYTE, 0, tag, helper));
	inside--;
}

/* ---- made and forgotten ------------------------------------------------------------------ */

/* May it be taken, by what all ranks know? *out is the caller's then. False: no, or *rc is an
 * error. */
static bool look(const struct take *take, struct request *spare, struct request **out, int *rc)
{
	struct request *r;
	struct comm_state *lc;

	if (coll_gate_is_closed(&rt_gates[COLL_NONBLOCKING][take->kind]))
		return false;
	r = request_get(spare);
	if (coll_admit(&r->taken, take, &rt_gates[COLL_NONBLOCKING][take->kind], rc)) {
		lc = r->taken.lc;
		if (comm_state_connect(lc) && (!coll_is_neighborhood(take->kind) || lc->has_neighbours) &&
		    rt_request_suits(lc->rt) && request_may_fly(r) && comm_state_connect_lanes(lc)) {
			*out = r;
			return true;
		}
	}
	request_put(r);
	return false;
}

/* All of this rank's part. 0 or -errno. */
static int make(struct request *r)
{
	int err = coll_prepare(&r->taken);

	if (!err && (r->is_spare || base_fault("persistent")))
		err = -ENOMEM;
	if (!err)
		err = request_hold_types(r);
	if (!err)
		err = rt_request_create(r->taken.lc->lanes, &r->taken.call, r, &r->rt);
	return err ? err : make_handle(r);
}

static void unmake(struct request *r)
{
	free_handle(r);
	if (r->rt)
		rt_request_destroy(r->rt);
	request_release_types(r);
	bufrefs_close(&r->taken);
	request_put(r);
}

bool request_init(const struct take *take, MPI_Request *request, int *rc)
{
	struct request *r, spare;
	struct rt_oob oob;
	int lane, err;

	*rc = 0;
	if (!request || !look(take, &spare, &r, rc)) {
		if (!coll_gate_is_closed(&rt_gates[COLL_NONBLOCKING][take->kind]))
			coll_count_decision(take->kind, false);
		return *rc;
	}
	oob = comm_state_oob(r->taken.lc);
	err = make(r);
	if (rt_lane_take(r->taken.lc->lanes, &oob, !err, &lane) || lane < 0) {
		unmake(r);
		coll_count_decision(take->kind, false);
		return false;
	}
	rt_request_set_lane(r->rt, lane);
	comm_state_ref(r->taken.lc);
	request_enter(r);
	persistent_buf_set((uintptr_t)r->handle, 0, 0); /* what it names is looked at when it is started */
	atomic_fetch_add_explicit(&request_persistent, 1, memory_order_relaxed);
	*request = r->handle;
	return true;
}

void persistent_discard(struct request *r)
{
	atomic_fetch_sub_explicit(&request_persistent, 1, memory_order_relaxed);
	rt_request_destroy(r->rt);
	request_release_types(r);
	bufrefs_close(&r->taken);
	tag_put(r->tag);
}

/* ---- started ----------------------------------------------------------------------------- */

static int refuse(const struct request *r, int code)
{
	real.Comm_call_errhandler(comm_state_is_freed(r->taken.lc) ? ABI_COMM_SELF : r->taken.take.comm,
				  code);
	return code;
}

static int start(struct request *r, MPI_Request *request)
{
	int rc;

	if (!request_take_off(r))
		return refuse(r, ABI_ERR_OTHER);
	inside++;
	rc = ON_SCRATCH(real.Start(request));
	inside--;
	if (rc) {
		request_land(r);
		return refuse(r, rc);
	}
	/* each start is a call of the place where it was made */
	trace_call_begin(r->taken.take.name, r->taken.take.caller, __builtin_frame_address(0));
	trace_bytes(r->taken.bytes);
	trace_request(&r->trace);
	rt_request_start(r->rt);
	coll_count_decision(r->taken.take.kind, true);
	return trace_call_end(0);
}

int request_Start(MPI_Request *request)
{
	struct request *r = request ? request_find_persistent(*request) : NULL;

	return r ? start(r, request) : real.Start(request);
}

int request_Startall(int count, MPI_Request requests[])
{
	bool any = false;
	int rc = 0;

	for (int i = 0; requests && i < count && !any; i++)
		any = request_find_persistent(requests[i]);
	if (!any)
		return real.Startall(count, requests);
	for (int i = 0; i < count && !rc; i++)
		rc = request_Start(&requests[i]);
	return rc;
}
