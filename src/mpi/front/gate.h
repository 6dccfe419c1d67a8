/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gate: the first check of a collective while nothing is pending. A call too small to be executed
 * goes on to the host MPI, and every small message of a program pays for the gate. Gates that check
 * a datatype are therefore compiled once per ABI, behind the ABI's header: the ABI's facts are
 * constants here.
 */
#ifndef SLUICE_MPI_FRONT_GATE_H
#define SLUICE_MPI_FRONT_GATE_H

#include "mpi/abi/abi.h"
#include "mpi/front/front.h"

static const struct abi_predefined gate_facts = { ABI_PREDEFINED };

#ifdef ABI_SYMBOLS
#define GATE_TYPES abi.predefined.types
#else
#define GATE_TYPES gate_facts.types
#endif

/* As types_bound(). */
static inline uint64_t gate_bound(MPI_Datatype datatype)
{
	uintptr_t type = (uintptr_t)datatype;

	if (base_likely(abi_size_is_exact(&gate_facts, type)))
		return abi_exact_size(&gate_facts, type);
	return base_likely(abi_range_has(&GATE_TYPES[0], type)) ||
			       abi_range_has(&GATE_TYPES[1], type)
		       ? ABI_LARGEST_BYTES
		       : 0;
}

/* As types_is_small(), without a function call. */
static inline bool gate_is_small(MPI_Datatype datatype, uint64_t count, uint64_t threshold_bytes)
{
	uint64_t bound = gate_bound(datatype), size;

	if (!bound || count >= TYPES_COUNT_END)
		return false;
	if (base_likely(count * bound < threshold_bytes))
		return true;
	if (abi_size_is_exact(&gate_facts, (uintptr_t)datatype))
		return false;
	size = sizes_find(&types_sizes, (uintptr_t)datatype);
	return size && count * size < threshold_bytes;
}

/* As types_is_passed(), without a function call for small messages. */
static inline bool gate_is_passed(MPI_Datatype datatype, uint64_t count,
				  const struct coll_gate *gate)
{
	return base_likely(gate_is_small(datatype, count, gate->gate)) ||
	       types_is_passed(datatype, count, gate);
}

#include "gates.h"

#define X(name)                                                                                    \
	_Static_assert(                                                                            \
		__builtin_types_compatible_p(__typeof__(&wrap_##name), __typeof__(host.name)),     \
		"wrap_" #name " is not as functions.table says");
FRONT_COLLECTIVES(X)
#undef X

/* The gates, in the order of FRONT_COLLECTIVES. */
#define GATES(name) (void *)wrap_##name,

#endif
