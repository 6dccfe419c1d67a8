/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission of a collective, step by step: see coll_op.h.
 *
 * Local checks (a datatype that is not committed, a root out of range) precede
 * comm_state_connect(), which is collective. After it only facts that all ranks share decide.
 */
#include <errno.h>

#include "base/base.h"
#include "mpi/coll/coll_op.h"
#include "trace/reasons.h"
#include "trace/trace.h"

#define IS_EMPTY "the call moves no data"
#define SHORT_CALLS 256 /* of 2 us and more, and connecting takes 0.5 ms */
#define IS_UNCHECKED "the host MPI checks these arguments: they are unusual or wrong"

static bool has_root(enum coll kind)
{
	return (1u << kind) & (1u << COLL_BCAST | 1u << COLL_GATHER | 1u << COLL_GATHERV |
			       1u << COLL_SCATTER | 1u << COLL_SCATTERV | 1u << COLL_REDUCE);
}

/* ---- checks ------------------------------------------------------------------------------ */

/* Finds the communicator's state. Local. Returns: false: pass the call on, or, with *rc set, the
 * host MPI has already reported an error. */
static bool check_comm(struct coll_op *t, int *rc)
{
	const struct coll_args *args = &t->args;
	struct comm_state *cs;
	const char *why;

	if (args->comm == abi.comm_null)
		return trace_rejected(IS_UNCHECKED);
	*rc = comm_state_get(args->comm, &cs);
	why = *rc ? TRACE_WHY_NOT_SERVED : coll_comm_refusal(cs);
	if (why)
		return trace_rejected(why);
	if (has_root(args->kind) && (args->root < 0 || args->root >= cs->size))
		return trace_rejected(IS_UNCHECKED);
	t->cs = cs;
	t->is_root = cs->rank == args->root;
	return true;
}

/* Interprets MPI_IN_PLACE: see struct coll_call. */
static void resolve_in_place(struct coll_op *t)
{
	struct coll_args *args = &t->args;
	bool is_scatter = args->kind == COLL_SCATTER || args->kind == COLL_SCATTERV;

	t->in_place = (is_scatter ? args->recv.at : args->send.at) == abi.in_place &&
		      args->kind != COLL_BCAST && !coll_is_neighborhood(args->kind) &&
		      (!has_root(args->kind) || t->is_root);
	if (!t->in_place)
		return;
	if (coll_is_reduce(args->kind))
		args->send.at = args->recv.at;
	else if (args->kind >= COLL_ALLTOALL && args->kind <= COLL_ALLTOALLW)
		args->send = args->recv;
}

static bool is_nonblocking(const struct coll_gate *gate)
{
	return gate >= rt_gates[COLL_NONBLOCKING] &&
	       gate < rt_gates[COLL_NONBLOCKING] + COLL_COUNT;
}

/* Returns: whether the gate admits calls of this size. */
static bool gate_admits(const struct coll_gate *gate, uint64_t bytes)
{
	enum admission admission = policy_admit(gate, bytes);

	if (admission >= ADMIT_REUSED || coll_gate_is_short(gate, bytes))
		return true;
	if (admission == ADMIT_NOT_SMALL && bytes < base_opt.coll_threshold_bytes)
		return trace_rejected(TRACE_WHY_SMALL);
	return trace_rejected(is_nonblocking(gate) ? TRACE_WHY_REQUEST_SIZE : TRACE_WHY_SIZE);
}

bool coll_admit(struct coll_op *t, const struct coll_args *args, const struct coll_gate *gate,
		int *rc)
{
	const struct arg_buf *own = args_message(args);
	uint64_t own_bytes;

	*rc = 0;
	t->args = *args;
	/* before any question about the communicator */
	if (own && (own->count <= 0 || own->type == abi.datatype_null))
		return trace_rejected(own->count ? IS_UNCHECKED : IS_EMPTY);
	own_bytes = own ? types_bytes(own->type, own->count) : 0;
	if (own && !gate_admits(gate, own_bytes))
		return false;
	if (!check_comm(t, rc))
		return false;
	resolve_in_place(t);
	if (!bufrefs_init(t))
		return trace_rejected(IS_EMPTY);
	trace_bytes(t->bytes);
	if (!gate_admits(gate, t->bytes))
		return false;
	return (bufrefs_check(t) && (!coll_is_reduce(args->kind) || reduce_check(t))) ||
	       trace_rejected(IS_UNCHECKED);
}

/* ---- execution --------------------------------------------------------------------------- */

int coll_prepare(struct coll_op *t)
{
	int err;

	t->call = (struct coll_call){
		.kind = t->args.kind,
		.root = t->args.root,
		.in_place =
			t->in_place || t->has_root_mismatch, /* rt copies no own part */
		.bytes = t->bytes,
		.name = t->args.name,
		.site = t->args.caller,
	};
	err = bufrefs_open(t);
	if (!err && coll_is_reduce(t->args.kind))
		err = reduce_prepare(t);
	return err;
}

/* Turns rt's result into the program's. */
static int code_of(int err)
{
	return !err		   ? 0
	       : err == -EREMOTEIO ? abi.err_truncate
	       : err == -ENOMEM	   ? abi.err_no_mem
				   : abi.err_other;
}

/* Sluice has executed the other ranks' parts. The host MPI copies the root's part of the gather. */
static int copy_mismatched(const struct coll_op *t)
{
	const struct arg_buf *send = &t->args.send, *recv = &t->args.recv;
	MPI_Count at = t->args.root * recv->count * t->recv.shape.extent;
	MPI_Comm scratch;

	if (scratch_comm(&scratch))
		return abi.err_other;
	return ON_SCRATCH_LOCKED(OR_NARROW(Gather_c)(send->at, send->count, send->type,
						     (char *)recv->at + at, recv->count,
						     recv->type, 0, scratch));
}

int coll_result(const struct coll_op *t, int err)
{
	return !err && t->has_root_mismatch ? copy_mismatched(t) : code_of(err);
}

int coll_complete(struct coll_op *t, int err)
{
	int rc;

	bufrefs_close(t);
	rc = coll_result(t, err);
	if (rc)
		host.Comm_call_errhandler(t->args.comm, rc);
	return rc;
}

void coll_count_decision(enum coll kind, bool is_admitted)
{
	static const enum base_counter counters[2][COLL_COUNT] = {
		{
#define X(id, pattern, family, is_local) BASE_CTR_##family##_PASSED,
			COLL_LIST(X)
#undef X
		},
		{
#define X(id, pattern, family, is_local) BASE_CTR_##family##_ADMITTED,
			COLL_LIST(X)
#undef X
		},
	};

	base_count(counters[is_admitted][kind], 1);
}

/* Returns: 1: executed; 0: the host MPI executes the call; -errno. */
static int prepare_and_run(struct coll_op *t)
{
	const struct rt_question question = {
		.kind = t->args.kind,
		.bytes = t->bytes,
		.root = t->args.root,
		.name = t->args.name,
		.is_fixed = !reduce_may_change(t),
	};
	int err, ret;

	rt_trial_enter(t->cs->rt);
	err = coll_prepare(t);
	ret = rt_admit(t->cs->rt, &question, err ? NULL : &t->call);
	if (!ret)
		return 0;
	err = ret < 0 ? ret : err;
	if (!err)
		err = rt_collective(t->cs->rt, &t->call);
	else
		rt_abandon(t->cs->rt, t->args.name, err);
	return err ? err : 1;
}

/* Executes a call whose ranks take turns on a CPU. SHORT_CALLS of them pay for the connection;
 * sums whose bits must not change within a run have no other way than ours. Returns: as run(). */
static bool run_short(struct coll_op *t, int *rc)
{
	struct comm_state *cs = t->cs;
	int err;

	if (!cs->is_decided && reduce_may_change(t) && ++cs->short_calls < SHORT_CALLS)
		return trace_rejected(TRACE_WHY_UNPAID);
	comm_state_connect(cs);
	if (!cs->rt || !rt_suits_short(cs->rt, t->args.kind, t->bytes))
		return trace_rejected(t->args.kind == COLL_BARRIER ? TRACE_WHY_BARRIER
								   : TRACE_WHY_SMALL);
	err = coll_prepare(t);
	if (err)
		rt_abandon(cs->rt, t->args.name, err);
	else
		err = rt_collective_short(cs->rt, &t->call);
	*rc = coll_complete(t, err);
	coll_count_decision(t->args.kind, true);
	return true;
}

/* Returns: whether the call is decided: executed, with *rc, or, with *why, passed on. */
static bool is_on_device(struct coll_op *t, int *rc, const char **why)
{
	int ret;

	*why = NULL;
	if (!rt_device_is_asked(t->args.kind, t->bytes))
		return false;
	ret = coll_on_device(t);
	if (ret == RT_DEVICE_NONE)
		return false;
	if (ret == RT_DEVICE_PASSED) {
		*why = TRACE_WHY_DEVICE;
		return true;
	}
	*rc = coll_complete(t, ret < 0 ? ret : 0);
	coll_count_decision(t->args.kind, true);
	return true;
}

static bool run(struct coll_args *args, int *rc)
{
	const struct coll_gate *gate = &rt_gates[COLL_BLOCKING][args->kind];
	struct coll_op t;
	const char *why;
	int ret;

	if (!coll_admit(&t, args, gate, rc))
		return *rc;
	if (coll_gate_is_short(gate, t.bytes))
		return run_short(&t, rc);
	why = coll_delays_connecting(&t);
	if (why)
		return trace_rejected(why);
	comm_state_connect(t.cs);
	if (t.cs->multinode && policy_admit(gate, t.bytes) != ADMIT_ALWAYS)
		return trace_rejected(TRACE_WHY_NEW);
	if (t.cs->multinode)
		return multinode->execute(&t, rc) && (coll_count_decision(args->kind, true), true);
	if (args->kind == COLL_BARRIER)
		return trace_rejected(TRACE_WHY_BARRIER);
	if (!t.cs->rt || (coll_is_neighborhood(args->kind) && !t.cs->has_neighbours))
		return trace_rejected(TRACE_WHY_NOT_SERVED);
	if (is_on_device(&t, rc, &why))
		return why ? trace_rejected(why) : true;
	if (!(coll_asks_early(args, t.cs) && !rt_device_is_asked(args->kind, t.bytes)) &&
	    reduce_may_change(&t) && rt_trial_passes(t.cs->rt, args->kind, t.bytes))
		return trace_rejected(TRACE_WHY_SLOWER);
	ret = prepare_and_run(&t);
	if (!ret) {
		bufrefs_close(&t);
		args->timed = rt_trial_is_timed(t.cs->rt) ? t.cs->rt : NULL;
		return trace_rejected(!reduce_may_change(&t) ? TRACE_WHY_FIXED
				      : args->timed	      ? TRACE_WHY_TIMED
							      : TRACE_WHY_NEW);
	}
	*rc = coll_complete(&t, ret < 0 ? ret : 0);
	rt_trial_end(t.cs->rt);
	coll_count_decision(args->kind, true);
	return true;
}

/* ---- trace ------------------------------------------------------------------------------- */

static uint64_t size_of(uintptr_t type)
{
	return types_bytes((MPI_Datatype)type, 1);
}

/* Returns: why a closed gate is closed. */
static const char *closed_reason(enum coll kind, bool is_request)
{
	if (base_opt.coll_modes[coll_family(kind)] == BASE_ADMIT_OFF)
		return TRACE_WHY_OFF;
	if (is_request)
		return base_opt.coll_modes[BASE_FAMILY_NONBLOCKING] == BASE_ADMIT_OFF
			       ? TRACE_WHY_REQUEST_OFF
			       : TRACE_WHY_REQUEST_KIND;
	if (kind == COLL_BARRIER)
		return TRACE_WHY_BARRIER;
	return coll_is_local(kind) ? TRACE_WHY_VECTOR : TRACE_WHY_KIND;
}

bool coll_trace_begin(struct coll_args *args, const struct coll_gate *gate)
{
	const struct arg_buf *own = trace_is_on() ? args_message(args) : NULL;
	bool is_off = coll_gate_is_closed(gate);

	if (!trace_is_on())
		return false;
	if (!is_off && !gate->short_end && own && own->count > 0 &&
	    types_is_small(own->type, (uint64_t)own->count,
			   base_min_u64(gate->from, base_opt.coll_threshold_bytes))) {
		args->traced_since = trace_small_begin(args->name, args->caller,
						       __builtin_frame_address(0),
						       (uint64_t)own->count, (uintptr_t)own->type,
						       size_of);
		return true;
	}
	args->is_traced = true;
	trace_call_begin(args->name, args->caller, __builtin_frame_address(0));
	if (is_off)
		trace_rejected(closed_reason(args->kind, is_nonblocking(gate)));
	return false;
}

int coll_trace_end(const struct coll_args *args, int rc)
{
	if (base_unlikely(args->is_traced)) {
		if (!rc && trace_needs_bytes())
			trace_bytes(args_own_bytes(args));
		return trace_call_end(rc);
	}
	if (base_unlikely(args->traced_since))
		trace_small_end(args->traced_since);
	return rc;
}

/* ---- the whole of a blocking call ---------------------------------------------------------- */

bool coll_execute(struct coll_args *args, int *rc)
{
	const struct coll_gate *gate = &rt_gates[COLL_BLOCKING][args->kind];
	const char *why;

	if (coll_trace_begin(args, gate) || coll_gate_is_closed(gate))
		return false;
	*rc = 0;
	why = coll_passes_early(args, rc);
	if (why ? trace_rejected(why) || *rc : run(args, rc)) {
		coll_trace_end(args, *rc);
		return true;
	}
	coll_count_decision(args->kind, false);
	return false;
}

int coll_passed(const struct coll_args *args, int rc)
{
	if (base_unlikely(args->timed))
		rt_trial_end(args->timed);
	if (base_unlikely(args->unpaid))
		coll_time_passed(args->unpaid);
	return coll_trace_end(args, rc);
}
