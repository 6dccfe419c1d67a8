/* SPDX-License-Identifier: BSD-3-Clause */
/* The check for small calls, by the datatype's handle or its known size. */
#include "mpi/abi/abi.h"

struct sizes types_sizes;

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
