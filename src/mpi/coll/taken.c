/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A collective that may be taken, step by step: see take.h.
 *
 * Local checks (a datatype that is not committed, a root out of range) come before comm_state_connect(),
 * which is collective; after it only facts that all ranks share decide.
 */
#include <errno.h>

#include "base/base.h"
#include "mpi/front/front.h"
#include "mpi/hier.h"
#include "mpi/coll/take.h"
#include "trace/trace.h"

#define NOT_SERVED "Sluice does not serve its communicator (SLUICE_LOG=info tells why)"
#define IS_LARGE "the host MPI is faster with messages of this size"
#define IS_SMALL "below SLUICE_COLL_THRESHOLD"
#define IS_NEW                                                                                     \
	"it wins in buffers that are used again only, which these are not on all ranks so far"
#define FIRST_PASSED 2 /* calls before a communicator is connected for such a kind alone */
#define IS_WRONG "its arguments name nothing that can be moved"

static bool has_root(enum coll kind)
{
	return (1u << kind) & (1u << COLL_BCAST | 1u << COLL_GATHER | 1u << COLL_GATHERV |
			       1u << COLL_SCATTER | 1u << COLL_SCATTERV | 1u << COLL_REDUCE);
}

/* ---- looking ----------------------------------------------------------------------------- */

/* The communicator's state when it is one that we may serve. Local. False: pass on, or, with *rc
 * set, the library has reported an error already. */
static bool look_at_comm(struct taken *t, int *rc)
{
	const struct take *take = &t->take;
	struct comm_state *lc;

	if (take->comm == ABI_COMM_NULL)
		return trace_rejected(IS_WRONG);
	*rc = comm_state(take->comm, &lc);
	if (*rc || !lc || lc->is_inter || lc->size < 2 ||
	    (has_root(take->kind) && (take->root < 0 || take->root >= lc->size)))
		return trace_rejected("not inside a group of at least two ranks");
	if (lc->is_asked && !lc->rt && !lc->span)
		return trace_rejected(NOT_SERVED);
	t->lc = lc;
	t->is_root = lc->rank == take->root;
	return true;
}

/* Where MPI_IN_PLACE is allowed, and what it means: see struct coll_call. */
static void look_at_place(struct taken *t)
{
	struct take *take = &t->take;
	bool is_scatter = take->kind == COLL_SCATTER || take->kind == COLL_SCATTERV;

	t->in_place = (is_scatter ? take->recv.at : take->send.at) == ABI_IN_PLACE &&
		      take->kind != COLL_BCAST && !coll_is_neighborhood(take->kind) &&
		      (!has_root(take->kind) || t->is_root);
	if (!t->in_place)
		return;
	if (coll_is_reduce(take->kind))
		take->send.at = take->recv.at;
	else if (take->kind >= COLL_ALLTOALL && take->kind <= COLL_ALLTOALLW)
		take->send = take->recv;
}

/* Does the gate admit calls of this size? */
static bool is_admitted(const struct coll_gate *gate, uint64_t bytes)
{
	switch (policy_admit(gate, bytes)) {
	case ADMIT_NOT_SMALL:
		return trace_rejected(IS_SMALL);
	case ADMIT_NOT:
		return trace_rejected(IS_LARGE);
	default:
		return true;
	}
}

bool coll_admit(struct taken *t, const struct take *take, const struct coll_gate *gate, int *rc)
{
	const struct arg_buf *own = args_message(take);
	uint64_t own_bytes;

	*rc = 0;
	t->take = *take;
	/* before anybody is asked about the communicator */
	if (own && (own->count <= 0 || own->type == ABI_DATATYPE_NULL))
		return trace_rejected(IS_WRONG);
	own_bytes = own ? types_bytes(own->type, own->count) : 0;
	if (own && !is_admitted(gate, own_bytes))
		return false;
	if (!look_at_comm(t, rc))
		return false;
	look_at_place(t);
	if (!bufrefs_init(t))
		return trace_rejected(IS_WRONG);
	trace_bytes(t->bytes);
	if (!is_admitted(gate, t->bytes))
		return false;
	return (bufrefs_check(t) && (!coll_is_reduce(take->kind) || reduce_check(t))) ||
	       trace_rejected(IS_WRONG);
}

/* ---- doing ------------------------------------------------------------------------------- */

int coll_prepare(struct taken *t)
{
	int err;

	t->call = (struct coll_call){
		.kind = t->take.kind,
		.root = has_root(t->take.kind) ? t->take.root : -1,
		.in_place = t->in_place || t->is_odd, /* then nobody else puts it there */
		.bytes = t->bytes,
		.name = t->take.name,
		.site = t->take.caller,
	};
	err = bufrefs_open(t);
	if (!err && coll_is_reduce(t->take.kind))
		err = reduce_prepare(t);
	return err;
}

/* What rt says, as the program is to see it: through the communicator's error handler. */
static int conclude(MPI_Comm comm, int err)
{
	int code = err == -EREMOTEIO ? ABI_ERR_TRUNCATE
		   : err == -ENOMEM  ? ABI_ERR_NO_MEM
				     : ABI_ERR_OTHER;

	if (!err)
		return 0;
	real.Comm_call_errhandler(comm, code);
	return code;
}

/* The others are served; the library puts the root's part of a gather, and says what it thinks of
 * it. */
static int conclude_odd(const struct taken *t)
{
	const struct arg_buf *send = &t->take.send, *recv = &t->take.recv;
	MPI_Count at = t->take.root * recv->count * t->recv.shape.extent;
	MPI_Comm helper;
	int rc;

	if (scratch_comm(&helper))
		return conclude(t->take.comm, -EIO);
	inside++;
	rc = ON_SCRATCH_LOCKED(OR_NARROW(Gather_c)(send->at, send->count, send->type,
						   (char *)recv->at + at, recv->count, recv->type,
						   0, helper));
	inside--;
	if (rc)
		real.Comm_call_errhandler(t->take.comm, rc);
	return rc;
}

static int conclude_both(const struct taken *t, int err, int sides)
{
	if (!err)
		err = sides;
	return !err && t->is_odd ? conclude_odd(t) : conclude(t->take.comm, err);
}

int coll_complete(struct taken *t, int err) { return conclude_both(t, err, bufrefs_close(t)); }

int coll_complete_turn(struct taken *t, int err) { return conclude_both(t, err, bufrefs_flush(t)); }

void coll_count_decision(enum coll kind, bool is_taken)
{
	static const enum base_counter counters[2][COLL_COUNT] = {
		{
#define X(id, pattern, family, is_local) BASE_CTR_##family##_PASSED,
			COLL_LIST(X)
#undef X
		},
		{
#define X(id, pattern, family, is_local) BASE_CTR_##family##_TAKEN,
			COLL_LIST(X)
#undef X
		},
	};

	base_count(counters[is_taken][kind], 1);
}

/* What only buffers that are used again would make faster: a program may never call it twice. */
static bool is_too_early(struct taken *t)
{
	return !t->lc->is_asked && policy_admit(&rt_gates[COLL_BLOCKING][t->take.kind], t->bytes) != ADMIT_ALWAYS &&
	       t->lc->passed++ < FIRST_PASSED;
}

/* 1; 0: it is the library's after all; -errno. */
static int prepare_and_run(struct taken *t)
{
	int err = coll_prepare(t), ret;

	ret = rt_takes(t->lc->rt, t->take.kind, t->bytes, err ? NULL : &t->call);
	if (!ret)
		return 0;
	err = ret < 0 ? ret : err;
	if (!err)
		err = rt_collective(t->lc->rt, &t->call);
	else
		rt_abandon(t->lc->rt, &t->call, err);
	return err ? err : 1;
}

static bool run(struct take *take, int *rc)
{
	const struct coll_gate *gate = &rt_gates[COLL_BLOCKING][take->kind];
	struct taken t;
	int ret;

	if (!coll_admit(&t, take, gate, rc))
		return *rc;
	if (is_too_early(&t))
		return trace_rejected(IS_NEW);
	comm_state_connect(t.lc);
	if (t.lc->span && policy_admit(gate, t.bytes) != ADMIT_ALWAYS)
		return trace_rejected(IS_NEW);
	if (t.lc->span)
		return hier_serve(&t, rc) && (coll_count_decision(take->kind, true), true);
	if (!t.lc->rt || take->kind == COLL_BARRIER ||
	    (coll_is_neighborhood(take->kind) && !t.lc->has_neighbours))
		return trace_rejected(NOT_SERVED);
	ret = prepare_and_run(&t);
	if (!ret) {
		bufrefs_close(&t);
		return trace_rejected(IS_NEW);
	}
	*rc = coll_complete(&t, ret < 0 ? ret : 0);
	coll_count_decision(take->kind, true);
	return true;
}

bool coll_execute(struct take *take, int *rc)
{
	const struct coll_gate *gate = &rt_gates[COLL_BLOCKING][take->kind];
	const struct arg_buf *own = args_message(take);
	bool is_small = own ? traced_begin(&take->traced, take->name, take->caller, own->type,
					   own->count, gate->from)
			    : traced_begin(&take->traced, take->name, take->caller,
					   ABI_DATATYPE_NULL, 0, gate->from);

	if (is_small || coll_gate_is_closed(gate))
		return false;
	*rc = 0;
	if (run(take, rc)) {
		traced_end(&take->traced, *rc);
		return true;
	}
	coll_count_decision(take->kind, false);
	return false;
}

int coll_passed(const struct take *take, int rc)
{
	if (base_unlikely(take->traced.is_call) && trace_is_on() &&
	    !trace_current.record.call.bytes)
		trace_bytes(args_message_bytes(take)); /* it was passed on before anybody asked */
	return traced_end(&take->traced, rc);
}
