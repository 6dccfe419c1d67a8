/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gate: what a collective runs through while nothing is pending. A call too small to be executed
 * goes on to the host MPI, and what that costs is what every small message of a program pays.
 * So this alone is compiled once per ABI, behind the ABI's header: its facts are constants here.
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

	if (abi_size_is_exact(&gate_facts, type))
		return abi_exact_size(&gate_facts, type);
	return abi_range_has(&GATE_TYPES[0], type) || abi_range_has(&GATE_TYPES[1], type)
		       ? ABI_LARGEST_BYTES
		       : 0;
}

/* Without the size that is known of a handle. */
static inline bool gate_is_below(MPI_Datatype datatype, uint64_t count, uint64_t from)
{
	uint64_t bound = gate_bound(datatype);

	return base_likely(bound && count < (uint64_t)1 << 40 && count * bound < from);
}

static inline bool gate_is_small(MPI_Datatype datatype, uint64_t count, uint64_t threshold_bytes)
{
	return gate_is_below(datatype, count, threshold_bytes) ||
	       types_is_small(datatype, count, threshold_bytes);
}

static inline bool gate_is_passed(MPI_Datatype datatype, uint64_t count,
				  const struct rt_window *gate)
{
	return gate_is_below(datatype, count, gate->from) || types_is_passed(datatype, count, gate);
}

#include "gates.h"

#define X(name)                                                                                    \
	_Static_assert(                                                                            \
		__builtin_types_compatible_p(__typeof__(&wrap_##name), __typeof__(host.name)),     \
		"wrap_" #name " is not as functions.table says");
FRONT_TAKEN(X)
#undef X

/* The gates, in the order of FRONT_TAKEN. */
#define GATES(name) (void *)wrap_##name,

#endif
