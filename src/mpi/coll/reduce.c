/* SPDX-License-Identifier: BSD-3-Clause */
/* What a reduction computes: by rt where it knows operation and type, else by the library, on
 * elements as the program sees them. */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "base/base.h"
#include "mpi/front/front.h"
#include "mpi/coll/take.h"
#include "trace/trace.h"

enum { LARGEST = 64 }; /* more bytes than any predefined datatype has */

/* ---- which operation, which type --------------------------------------------------------- */

#if defined(SLUICE_ABI_OMPI)

/* Handles are addresses; one that the library lacks is NULL. */
struct known { const char *symbol; int value; const void *handle; };

static struct known numbers[] = {
#define X(name, symbol, type) { symbol, type, NULL },
	ABI_NUMBERS(X)
#undef X
};
static struct known operations[] = {
#define X(name, symbol, op) { symbol, op, NULL },
	ABI_OPS(X)
#undef X
};

/* Looked up at first use. Idempotent: threads may do it at once. */
static int known_value(struct known *list, size_t n, const void *handle)
{
	char symbol[64];

	for (size_t i = 0; i < n; i++) {
		const void *known = __atomic_load_n(&list[i].handle, __ATOMIC_RELAXED);

		if (!known) {
			snprintf(symbol, sizeof(symbol), "ompi_mpi_%s", list[i].symbol);
			known = dlsym(RTLD_DEFAULT, symbol);
			if (!known) /* loaded for somebody alone */
				known = front_library_function(symbol);
			__atomic_store_n(&list[i].handle, known ? known : list, __ATOMIC_RELAXED);
		}
		if (known == handle)
			return list[i].value;
	}
	return -1;
}

static enum goal_dtype type_of(MPI_Datatype datatype)
{
	int type = known_value(numbers, BASE_ARRAY_LEN(numbers), datatype);

	return type < 0 ? GOAL_DTYPE_COUNT : (enum goal_dtype)type;
}

static enum goal_type op_of(MPI_Op op)
{
	int type = known_value(operations, BASE_ARRAY_LEN(operations), op);

	return type < 0 ? GOAL_NOP : (enum goal_type)type;
}

#else

static enum goal_dtype type_of(MPI_Datatype datatype)
{
	switch ((uintptr_t)datatype) {
#define X(name, handle, type) case handle: return type;
	ABI_NUMBERS(X)
#undef X
	default:
		return GOAL_DTYPE_COUNT;
	}
}

static enum goal_type op_of(MPI_Op op)
{
	switch ((uintptr_t)op) {
#define X(name, handle, value) case handle: return value;
	ABI_OPS(X)
#undef X
	default:
		return GOAL_NOP;
	}
}

#endif

/* Both, or neither: what MPI allows and rt computes. */
static void find_kernel(const struct taken *t, enum goal_type *out_op, enum goal_dtype *out_type)
{
	MPI_Datatype datatype = t->reduce.type;
	enum goal_type op = op_of(t->take.op);
	enum goal_dtype type = GOAL_DTYPE_COUNT;
	bool is_bits = op >= GOAL_AND;

	*out_op = GOAL_NOP;
	*out_type = GOAL_DTYPE_COUNT;
	if (op == GOAL_NOP || !abi_size_bound(datatype))
		return;
	type = is_bits && datatype == ABI_BYTE ? GOAL_U8 : type_of(datatype);
	if (type == GOAL_DTYPE_COUNT || (is_bits && type >= GOAL_F16) ||
	    t->reduce.element_bytes != goal_dtype_bytes(type)) /* Fortran's sizes may differ */
		return;
	*out_op = op;
	*out_type = type;
}

/* Does the library know how to apply a predefined operation to this? Asked by doing it, on nobody's
 * communicator. */
static bool is_known_to_library(const struct taken *t)
{
	_Alignas(16) char in[LARGEST] = { 0 }, out[LARGEST];
	MPI_Comm helper;
	int rc;

	if (!abi_size_bound(t->reduce.type) || scratch_comm(&helper))
		return false;
	inside++;
	rc = ON_SCRATCH_LOCKED(real.Allreduce(in, out, 1, t->reduce.type, t->take.op, helper));
	inside--;
	return !rc;
}

/* By MPI's rules all ranks give the same operation and the same datatype here. */
bool reduce_check(struct taken *t)
{
	const struct types_shape *shape = &t->recv.shape;

	if (!t->recv.is_there)
		shape = &t->send.shape;
	if (t->take.op == ABI_OP_NULL)
		return false;
	t->reduce = (struct reduce_args){ .op = t->take.op, .type = t->take.recv.type,
				       .element_bytes = (uint64_t)shape->size };
	if (!shape->in_order || shape->extent != shape->size)
		return trace_rejected("elements with gaps are computed by the library");
	if (!abi_is_predefined_op(t->take.op))
		return true;
	find_kernel(t, &t->reduce.known_op, &t->reduce.known_type);
	return t->reduce.known_op != GOAL_NOP || is_known_to_library(t);
}

/* ---- by the library ---------------------------------------------------------------------- */

static int combine(void *ctx, const void *in, void *inout, uint64_t count)
{
	const struct reduce_args *f = ctx;
	int rc = 0;

	inside++; /* the program's own function may call MPI */
	while (count && !rc) {
		uint64_t n = base_min_u64(count, INT_MAX);

		rc = real.Reduce_local(in, inout, (int)n, f->type, f->op);
		in = (const char *)in + n * f->element_bytes;
		inout = (char *)inout + n * f->element_bytes;
		count -= n;
	}
	inside--;
	return rc ? -EIO : 0;
}

int reduce_prepare(struct taken *t)
{
	struct coll_reduce *reduce = &t->call.reduce;
	int commutes = 1;

	*reduce = (struct coll_reduce){ .op = t->reduce.known_op,
				  .type = t->reduce.known_type,
				  .element_bytes = t->reduce.element_bytes,
				  .combine = combine,
				  .ctx = &t->reduce };
	if (!abi_is_predefined_op(t->take.op) && real.Op_commutative(t->take.op, &commutes))
		return -EIO;
	reduce->commutes = commutes;
	return 0;
}
