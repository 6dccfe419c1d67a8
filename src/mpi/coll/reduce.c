/* SPDX-License-Identifier: BSD-3-Clause */
/* Operation and datatype of a reduction. rt computes known ones; the host MPI computes the
 * others, on elements in the layout of the program. */
#include <errno.h>
#include <limits.h>

#include "base/base.h"
#include "mpi/coll/coll_op.h"
#include "os/os.h"
#include "trace/reasons.h"
#include "trace/trace.h"

enum { LARGEST = 64 }; /* bytes; no predefined datatype is larger */

/* ---- operation and datatype --------------------------------------------------------------- */

/* Returns: rt's value of a handle; negative: unknown. */
static int known_value(const struct abi_known *known, size_t n, const void *handle)
{
	for (size_t i = 0; i < n; i++)
		if (known[i].handle == (uintptr_t)handle)
			return known[i].value;
	return -1;
}

static enum goal_dtype type_of(MPI_Datatype datatype)
{
	int type = known_value(abi.numbers, abi.number_count, datatype);

	return type < 0 ? GOAL_DTYPE_COUNT : (enum goal_dtype)type;
}

static enum goal_type op_of(MPI_Op op)
{
	int type = known_value(abi.ops, abi.op_count, op);

	return type < 0 ? GOAL_NOP : (enum goal_type)type;
}

/* Finds the pair that MPI allows and rt computes, or neither. */
static void find_kernel(const struct coll_op *t, enum goal_type *out_op, enum goal_dtype *out_type)
{
	MPI_Datatype datatype = t->reduce.type;
	enum goal_type op = op_of(t->args.op);
	enum goal_dtype type = GOAL_DTYPE_COUNT;
	bool is_bits = op >= GOAL_AND;

	*out_op = GOAL_NOP;
	*out_type = GOAL_DTYPE_COUNT;
	if (op == GOAL_NOP || !types_bound(datatype))
		return;
	type = is_bits && datatype == abi.byte ? GOAL_U8 : type_of(datatype);
	if (type == GOAL_DTYPE_COUNT || (is_bits && type >= GOAL_F16) ||
	    t->reduce.element_bytes != goal_dtype_bytes(type)) /* Fortran's sizes may differ */
		return;
	*out_op = op;
	*out_type = type;
}

/* Asks the host MPI, by a reduction on the scratch communicator, whether it applies a predefined
 * operation to the datatype. */
static bool is_known_to_library(const struct coll_op *t)
{
	_Alignas(16) char in[LARGEST] = { 0 }, out[LARGEST];
	MPI_Comm scratch;

	return types_bound(t->reduce.type) && !scratch_comm(&scratch) &&
	       !ON_SCRATCH_LOCKED(
		       host.Allreduce(in, out, 1, t->reduce.type, t->args.op, scratch));
}

static bool is_predefined(const struct coll_op *t)
{
	return abi_is_predefined_op(&abi.predefined, (uintptr_t)t->args.op);
}

static bool is_exact(const struct coll_op *t)
{
	const struct reduce_args *r = &t->reduce;
	struct policy_reduction facts = {
		.ranks = t->cs->size,
		.is_predefined = is_predefined(t),
		.op = op_of(t->args.op),
		.type = r->known_op != GOAL_NOP ? r->known_type : type_of(r->type),
	};
	int commutes = 1;

	if (!facts.is_predefined && facts.ranks == 2)
		host.Op_commutative(t->args.op, &commutes);
	facts.commutes = commutes;
	return policy_is_exact(&facts);
}

static enum reduce_change find_change(MPI_Op op, MPI_Datatype datatype, int ranks)
{
	const struct policy_reduction facts = {
		.ranks = ranks,
		.is_predefined = true,
		.op = op_of(op),
		.type = type_of(datatype),
	};

	if (facts.type == GOAL_DTYPE_COUNT ||
	    !abi_is_predefined_op(&abi.predefined, (uintptr_t)op))
		return REDUCE_UNKNOWN;
	return policy_is_exact(&facts) ? REDUCE_CHANGES : REDUCE_STAYS;
}

enum reduce_change reduce_change_of(const struct coll_args *args, int ranks)
{
	/* handles of predefined objects stay what they are */
	static __thread struct {
		MPI_Op op;
		MPI_Datatype type;
		int ranks;
		enum reduce_change result; /* REDUCE_UNKNOWN: empty */
	} last;
	MPI_Datatype type = args->recv.type;

	if (base_opt.sums == BASE_SUMS_ANY)
		return REDUCE_CHANGES;
	if (!last.result || last.op != args->op || last.type != type || last.ranks != ranks) {
		last.result = find_change(args->op, type, ranks);
		last.op = args->op;
		last.type = type;
		last.ranks = ranks;
	}
	return last.result;
}

/* Finds who can compute the reduction. */
static bool is_computable(struct coll_op *t)
{
	if (!is_predefined(t))
		return true;
	find_kernel(t, &t->reduce.known_op, &t->reduce.known_type);
	return t->reduce.known_op != GOAL_NOP || is_known_to_library(t);
}

/* MPI requires that all ranks give equal operations and datatypes. */
bool reduce_check(struct coll_op *t)
{
	const struct types_shape *shape = &t->recv.shape;

	if (!t->recv.is_used)
		shape = &t->send.shape;
	if (t->args.op == abi.op_null)
		return false;
	t->reduce = (struct reduce_args){ .op = t->args.op, .type = t->args.recv.type,
				       .element_bytes = (uint64_t)shape->size };
	/* the operation of the program finds an element at its address plus true_lb */
	if (!shape->in_order || shape->extent != shape->size || shape->true_lb)
		return trace_rejected("the reduction's elements have gaps");
	if (!is_computable(t))
		return false;
	t->reduce.is_exact = is_exact(t);
	return !policy_leaves_to_host(base_opt.sums, t->reduce.is_exact) ||
	       trace_rejected(TRACE_WHY_HOST);
}

/* ---- computed by the host MPI ------------------------------------------------------------ */

static int combine(void *ctx, const void *in, void *inout, uint64_t count)
{
	const struct reduce_args *f = ctx;
	int rc = 0;

	bypass++; /* the program's operation may call MPI */
	while (count && !rc) {
		uint64_t n = base_min_u64(count, INT_MAX);

		rc = host.Reduce_local(in, inout, (int)n, f->type, f->op);
		in = (const char *)in + n * f->element_bytes;
		inout = (char *)inout + n * f->element_bytes;
		count -= n;
	}
	bypass--;
	return rc ? -EIO : 0;
}

int reduce_prepare(struct coll_op *t)
{
	struct coll_reduce *reduce = &t->call.reduce;
	int commutes = 1;

	*reduce = (struct coll_reduce){ .op = t->reduce.known_op,
				  .type = t->reduce.known_type,
				  .element_bytes = t->reduce.element_bytes,
				  .combine = combine,
				  .ctx = &t->reduce,
				  .float_modes = os_float_modes() };
	if (!is_predefined(t) &&
	    host.Op_commutative(t->args.op, &commutes))
		return -EIO;
	reduce->commutes = commutes;
	return 0;
}
