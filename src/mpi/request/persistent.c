/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Persistent collectives: prepared once, started many times.
 *
 * Each rank does everything that can fail before all ranks agree on a lane (rt/requests.h). Without
 * a lane, or if a rank failed, the request is the host MPI's on all ranks.
 *
 * The program's handle is a persistent receive of no bytes from this process, with its own tag. It
 * is active from MPI_Start until an empty message arrives, which is sent when the collective has
 * ended. So the host MPI handles every call on the request, active or not.
 */
#include <errno.h>

#include "base/base.h"
#include "mpi/request/persistent_bufs.h"
#include "mpi/request/request.h"

enum { TAGS = 16384 /* every host MPI has twice as many */ };

_Atomic uint32_t request_persistent_count;

/* ---- tags -------------------------------------------------------------------------------- */

static struct {
	struct base_spin lock;
	bool is_used[TAGS]; /* 0: no tag */
	int last;
} tags;

/* Returns: 0 when all are in use. */
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

/* ---- the host MPI's request -------------------------------------------------------------- */

static int make_handle(struct request *r)
{
	MPI_Comm scratch;

	r->tag = tag_get();
	if (!r->tag)
		return -ENOMEM;
	if (!scratch_comm(&scratch) &&
	    !BYPASS(ON_SCRATCH(
		    host.Recv_init(NULL, 0, abi.byte, 0, r->tag, scratch, &r->handle))))
		return 0;
	tag_put(r->tag);
	r->tag = 0;
	return -EIO;
}

static void free_handle(struct request *r)
{
	if (!r->tag)
		return;
	BYPASS(host.Request_free(&r->handle));
	tag_put(r->tag);
	r->tag = 0;
}

void persistent_complete(int tag)
{
	MPI_Comm scratch;

	if (!scratch_comm(&scratch))
		ON_SCRATCH_LOCKED(host.Send(NULL, 0, abi.byte, 0, tag, scratch));
}

/* ---- creation, freeing ------------------------------------------------------------------- */

/* Decides by facts that all ranks share. Sets *out, which the caller owns. Returns: false: the host
 * MPI makes the request, or *rc is an error. */
static bool admit(const struct coll_args *args, struct request *fallback, struct request **out,
		  int *rc)
{
	struct request *r;
	struct comm_state *cs;

	if (coll_gate_is_closed(&rt_gates[COLL_NONBLOCKING][args->kind]))
		return false;
	r = request_get(fallback);
	if (coll_admit(&r->op, args, &rt_gates[COLL_NONBLOCKING][args->kind], rc)) {
		cs = r->op.cs;
		if (comm_state_connect(cs) &&
		    (!coll_is_neighborhood(args->kind) || cs->has_neighbours) &&
		    rt_persistent_suits(cs->rt, args->kind, r->op.bytes) &&
		    request_can_run_detached(r) &&
		    comm_state_connect_lanes(cs)) {
			*out = r;
			return true;
		}
	}
	request_put(r);
	return false;
}

/* Does everything of this rank that can fail. Returns: 0 or -errno. */
static int make(struct request *r)
{
	int err = coll_prepare(&r->op);

	if (!err && (r->is_on_stack || base_fault("persistent")))
		err = -ENOMEM;
	if (!err)
		err = rt_request_create(r->op.cs->lanes, &r->op.call, r, &r->rt);
	return err ? err : make_handle(r);
}

static void unmake(struct request *r)
{
	free_handle(r);
	if (r->rt)
		rt_request_destroy(r->rt);
	bufrefs_close(&r->op);
	request_put(r);
}

bool request_init(const struct coll_args *args, void *request, int *rc)
{
	struct request *r, fallback;
	struct node_oob oob;
	int lane, err;

	*rc = 0;
	if (!request || !admit(args, &fallback, &r, rc)) {
		if (!coll_gate_is_closed(&rt_gates[COLL_NONBLOCKING][args->kind]))
			coll_count_decision(args->kind, false);
		return *rc;
	}
	oob = comm_state_oob(r->op.cs);
	err = make(r);
	if (rt_lane_allocate(r->op.cs->lanes, &oob, !err, &lane) || lane < 0) {
		unmake(r);
		coll_count_decision(args->kind, false);
		return false;
	}
	rt_request_set_lane(r->rt, lane);
	r->state = request_next_state(r->state, REQUEST_PREPARE);
	comm_state_ref(r->op.cs);
	request_enter(r);
	persistent_buf_set((uintptr_t)r->handle, 0, 0, 0); /* each start completes its buffers */
	atomic_fetch_add_explicit(&request_persistent_count, 1, memory_order_relaxed);
	abi_handle_set(request, 0, r->handle);
	return true;
}

void persistent_discard(struct request *r)
{
	atomic_fetch_sub_explicit(&request_persistent_count, 1, memory_order_relaxed);
	rt_request_destroy(r->rt);
	bufrefs_close(&r->op);
	tag_put(r->tag);
}

/* ---- starting ---------------------------------------------------------------------------- */

static int refuse(const struct request *r, int code)
{
	host.Comm_call_errhandler(comm_state_is_freed(r->op.cs) ? abi.comm_self : r->op.args.comm,
				  code);
	return code;
}

static int start(struct request *r, void *request)
{
	int rc;

	if (!request_activate(r))
		return refuse(r, abi.err_other);
	rc = BYPASS(ON_SCRATCH(host.Start(request)));
	if (rc) {
		request_deactivate(r);
		return refuse(r, rc);
	}
	/* for the trace, each start is a call of the site that created it */
	trace_call_begin(r->op.args.name, r->op.args.caller, __builtin_frame_address(0));
	trace_bytes(r->op.bytes);
	trace_request(&r->trace);
	rt_request_start(r->rt);
	coll_count_decision(r->op.args.kind, true);
	return trace_call_end(0);
}

int request_Start(void *request)
{
	struct request *r = request ? request_find_persistent(abi_handle_get(request, 0)) : NULL;

	return r ? start(r, request) : host.Start(request);
}

int request_Startall(int count, void *requests)
{
	bool any = false;
	int rc = 0;

	for (int i = 0; requests && i < count && !any; i++)
		any = request_find_persistent(abi_handle_get(requests, i));
	if (!any)
		return host.Startall(count, requests);
	for (int i = 0; i < count && !rc; i++)
		rc = request_Start(abi_handle_at(requests, i));
	return rc;
}
