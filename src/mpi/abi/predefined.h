/* SPDX-License-Identifier: BSD-3-Clause */
/* Recognition of an ABI's predefined datatypes and operations by handle. Handles are numbers
 * here: pointers, or integers of 32 bits whose upper half is zero. */
#ifndef SLUICE_MPI_ABI_PREDEFINED_H
#define SLUICE_MPI_ABI_PREDEFINED_H

#include <stdbool.h>
#include <stdint.h>

#define ABI_LARGEST_BYTES 32 /* the largest predefined datatype */

struct abi_range { uintptr_t start, bytes; };

struct abi_predefined {
	/* A datatype with these bits carries its size: (handle >> shift) & size_bits, or the power
	 * of two of that. */
	uintptr_t sized_mask, sized_value;
	uintptr_t size_bits;
	uint8_t shift;
	bool is_log2;
	/* The other predefined handles. */
	struct abi_range types[2], ops[2];
};

static inline bool abi_range_has(const struct abi_range *r, uintptr_t value)
{
	return value - r->start < r->bytes;
}

/* Returns: whether the bound is the exact size. */
static inline bool abi_size_is_exact(const struct abi_predefined *p, uintptr_t type)
{
	return (type & p->sized_mask) == p->sized_value;
}

/* Returns: size of a datatype whose handle carries it. */
static inline uint64_t abi_exact_size(const struct abi_predefined *p, uintptr_t type)
{
	uint64_t size = type >> p->shift & p->size_bits;

	return p->is_log2 ? (uint64_t)1 << size : size;
}

/* Returns: an upper bound of the size of a predefined datatype; 0: the handle does not tell. The
 * upper half of an integer may be undefined. */
static inline uint64_t abi_size_bound(const struct abi_predefined *p, uintptr_t type)
{
	if (abi_size_is_exact(p, type))
		return abi_exact_size(p, type);
	return abi_range_has(&p->types[0], type) || abi_range_has(&p->types[1], type)
		       ? ABI_LARGEST_BYTES
		       : 0;
}

static inline bool abi_is_predefined_op(const struct abi_predefined *p, uintptr_t op)
{
	return abi_range_has(&p->ops[0], op) || abi_range_has(&p->ops[1], op);
}

#endif
