/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes of messages, and the check for small calls, by the datatype's handle or its known size;
 * counts and displacements of either width. */
#include "mpi/abi/abi.h"

struct sizes types_sizes;

uint64_t types_bytes(MPI_Datatype datatype, MPI_Count count)
{
	uint64_t bound = types_bound(datatype);
	MPI_Count size = bound ? (MPI_Count)types_known_size(datatype, bound) : 0, bytes;

	if (size && count > 0 && (uint64_t)count < TYPES_COUNT_END)
		return (uint64_t)(size * count);
	/* the host MPI says through the communicator's handler whether the type matters */
	if (count <= 0 || datatype == abi.datatype_null || host.Type_size_x(datatype, &size) ||
	    size <= 0 || __builtin_mul_overflow(size, count, &bytes))
		return 0;
	if (bound)
		sizes_learn(&types_sizes, (uintptr_t)datatype, (uint64_t)size);
	return bytes < INT64_MAX / 2 ? (uint64_t)bytes : 0;
}

bool types_is_small(MPI_Datatype datatype, uint64_t count, uint64_t threshold_bytes)
{
	uint64_t bound = types_bound(datatype), size;

	if (!bound || count >= TYPES_COUNT_END)
		return false;
	if (count * bound < threshold_bytes)
		return true;
	size = types_known_size(datatype, bound);
	return size && count * size < threshold_bytes;
}

bool types_is_passed(MPI_Datatype datatype, uint64_t count, const struct coll_gate *gate)
{
	uint64_t bound = types_bound(datatype), size;

	if (!bound || count >= TYPES_COUNT_END)
		return false;
	if (count * bound < gate->gate)
		return true;
	size = types_known_size(datatype, bound);
	return size && coll_gate_passes(gate, count * size);
}

MPI_Count list_get(struct list list, int i)
{
	if (list.width == sizeof(int))
		return ((const int *)list.at)[i];
	return ((const int64_t *)list.at)[i];
}
