/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a datatype to a layout: its constructors tell, from the inside to the outside, how blocks
 * repeat. An element of unknown construction whose packed form is its memory is one block, too.
 */
#include "mpi/abi/flatten.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
	DEPTH = 16,            /* constructors inside each other */
	INTS = 64, ADDRESSES = 32, COUNTS = 64, /* of a constructor; more have many blocks */
	PROBE_BYTES = 1 << 20, /* larger elements are not probed */
	PROBE_PASSES = 3,      /* bytes of an offset below PROBE_BYTES */
};

/* ---- is the packed form the memory itself? ----------------------------------------------- */

static bool probe_order(MPI_Datatype datatype, const struct types_shape *shape, MPI_Comm scratch,
			unsigned char *code, unsigned char *packed)
{
	/* packing preserves bytes: number the bytes, and read where each number comes out */
	struct pack pack = {
		.base = (void *)((uintptr_t)code - (uintptr_t)shape->true_lb),
		.datatype = datatype,
		.shape = *shape,
		.scratch = scratch,
	};

	for (int pass = 0; pass < PROBE_PASSES; pass++) {
		for (MPI_Count i = 0; i < shape->size; i++)
			code[i] = (unsigned char)(i >> (8 * pass));
		if (pack_elements(&pack, 0, 1, packed) ||
		    memcmp(code, packed, (size_t)shape->size))
			return false;
	}
	return true;
}

static bool is_in_order_by_probe(MPI_Datatype datatype, const struct types_shape *shape)
{
	unsigned char *code = malloc(2 * (size_t)shape->size);
	MPI_Comm scratch;
	bool in_order;

	if (!code)
		return false;
	in_order = !scratch_comm(&scratch) &&
		   probe_order(datatype, shape, scratch, code, code + shape->size);
	free(code);
	return in_order;
}

int types_measure(MPI_Datatype datatype, struct types_shape *out, MPI_Count *true_extent)
{
	MPI_Count lb;

	return host.Type_size_x(datatype, &out->size) ||
			       host.Type_get_extent_x(datatype, &lb, &out->extent) ||
			       host.Type_get_true_extent_x(datatype, &out->true_lb, true_extent)
		       ? -EIO
		       : 0;
}

/* ---- how a datatype was made ------------------------------------------------------------- */

struct contents {
	int combiner, ints[INTS];
	MPI_Count int_count, address_count, count_count, type_count;
	MPI_Aint addresses[ADDRESSES];
	MPI_Count counts[COUNTS]; /* of a constructor of large counts */
	MPI_Datatype old;
};

static bool has_large_functions(void)
{
	return host.Type_get_envelope_c && host.Type_get_contents_c;
}

/* The older functions refuse datatypes of large counts. */
static int envelope_get(MPI_Datatype datatype, struct contents *c)
{
	int n[3];

	c->count_count = 0;
	if (has_large_functions())
		return host.Type_get_envelope_c(datatype, &c->int_count, &c->address_count,
						&c->count_count, &c->type_count, &c->combiner)
			       ? -EIO
			       : 0;
	if (host.Type_get_envelope(datatype, &n[0], &n[1], &n[2], &c->combiner))
		return -EIO;
	c->int_count = n[0];
	c->address_count = n[1];
	c->type_count = n[2];
	return 0;
}

/* Asks about a constructor with one old datatype. old_put() must follow. */
static int contents_get(MPI_Datatype datatype, struct contents *c)
{
	c->old = NULL;
	if (c->type_count != 1 || c->int_count > INTS || c->address_count > ADDRESSES ||
	    c->count_count > COUNTS)
		return -ENOTSUP;
	if (has_large_functions())
		return host.Type_get_contents_c(datatype, c->int_count, c->address_count,
						c->count_count, 1, c->ints, c->addresses,
						c->counts, &c->old)
			       ? -EIO
			       : 0;
	return host.Type_get_contents(datatype, (int)c->int_count, (int)c->address_count, 1,
				      c->ints, c->addresses, &c->old)
		       ? -EIO
		       : 0;
}

/* Frees the datatype of contents_get(), except a predefined one. */
static void old_put(struct contents *c)
{
	struct contents old;

	if (!envelope_get(c->old, &old) && old.combiner != abi.combiner_named)
		host.Type_free(&c->old);
}

/* ---- constructors ------------------------------------------------------------------------ */

/* Adds count * stride to the base, and repeats: all numbers come from the program. */
static int move_base(struct layout *l, MPI_Count count, MPI_Count stride)
{
	int64_t by;

	return __builtin_mul_overflow(count, stride, &by) ||
			       __builtin_add_overflow(l->base, by, &l->base)
		       ? -ENOTSUP
		       : 0;
}

static int repeat(struct layout *l, MPI_Count count, MPI_Count stride)
{
	return count < 0 ? -ENOTSUP : layout_repeat(l, (uint64_t)count, stride);
}

/* Number i of a constructor, of either generation. */
static MPI_Count number(const struct contents *c, int i)
{
	return c->count_count ? c->counts[i] : c->ints[i];
}

static int apply_vector(const struct contents *c, MPI_Count extent, struct layout *l)
{
	bool is_bytes = c->combiner == abi.combiner_hvector;
	MPI_Count stride = is_bytes && !c->count_count ? c->addresses[0] : number(c, 2);
	int ret = repeat(l, number(c, 1), extent);

	if (!is_bytes && __builtin_mul_overflow(stride, extent, &stride))
		return -ENOTSUP;
	return ret ? ret : repeat(l, number(c, 0), stride);
}

/* Sizes, subsizes and starts of all dimensions, by either generation. */
static int apply_subarray(const struct contents *c, MPI_Count extent, struct layout *l)
{
	int n = c->ints[0], order, at = c->count_count ? 0 : 1, ret = 0;
	MPI_Count stride = extent;

	if (n < 1 || n > INTS / 3 - 1)
		return -ENOTSUP;
	order = c->ints[c->count_count ? 1 : 3 * n + 1];
	for (int k = 0; k < n && !ret; k++) {
		int i = at + (order == abi.order_c ? n - 1 - k : k);

		ret = move_base(l, number(c, i + 2 * n), stride);
		ret = ret ? ret : repeat(l, number(c, i + n), stride);
		if (__builtin_mul_overflow(stride, number(c, i), &stride))
			ret = -ENOTSUP;
	}
	return ret;
}

/* Block i of a list: its elements and its place in bytes. */
static int list_block(const struct contents *c, int i, MPI_Count extent, MPI_Count *out_count,
		      MPI_Count *out_at)
{
	bool is_large = c->count_count;
	int n = (int)number(c, 0);

	if (c->combiner == abi.combiner_indexed_block || c->combiner == abi.combiner_hindexed_block)
		*out_count = number(c, 1);
	else
		*out_count = number(c, 1 + i);
	if (c->combiner == abi.combiner_indexed || c->combiner == abi.combiner_indexed_block) {
		*out_at = number(c, c->combiner == abi.combiner_indexed ? 1 + n + i : 2 + i);
		return __builtin_mul_overflow(*out_at, extent, out_at) ? -ENOTSUP : 0;
	}
	*out_at = !is_large ? c->addresses[i] :
		  c->counts[c->combiner == abi.combiner_hindexed_block ? 2 + i : 1 + n + i];
	return 0;
}

/* A list of equal blocks at equal distances, often of one block. */
static int apply_list(const struct contents *c, MPI_Count extent, struct layout *l)
{
	MPI_Count n = number(c, 0), first, first_at, count, at, step = 0;
	int ret;

	if (n < 1 || n > COUNTS / 2)
		return -ENOTSUP;
	ret = list_block(c, 0, extent, &first, &first_at);
	for (int i = 1; i < n && !ret; i++) {
		ret = list_block(c, i, extent, &count, &at);
		if (i == 1)
			step = at - first_at;
		if (count != first || at - first_at != i * step)
			return -ENOTSUP;
	}
	ret = ret ? ret : move_base(l, 1, first_at);
	ret = ret ? ret : repeat(l, first, extent);
	return ret ? ret : repeat(l, n, step);
}

static int apply(const struct contents *c, MPI_Count extent, struct layout *l)
{
	if (c->combiner == abi.combiner_dup || c->combiner == abi.combiner_resized)
		return 0;
	if (c->combiner == abi.combiner_contiguous)
		return repeat(l, number(c, 0), extent);
	if (c->combiner == abi.combiner_vector || c->combiner == abi.combiner_hvector)
		return apply_vector(c, extent, l);
	if (c->combiner == abi.combiner_subarray)
		return apply_subarray(c, extent, l);
	if (c->combiner == abi.combiner_indexed || c->combiner == abi.combiner_hindexed ||
	    c->combiner == abi.combiner_indexed_block ||
	    c->combiner == abi.combiner_hindexed_block)
		return apply_list(c, extent, l);
	/* one old datatype: a list of one block */
	return c->combiner == abi.combiner_struct ? apply_list(c, extent, l) : -ENOTSUP;
}

/* ---- recursion --------------------------------------------------------------------------- */

static int flatten_at(MPI_Datatype datatype, int depth, struct layout *out);

static int flatten_made(MPI_Datatype datatype, struct contents *c, int depth, struct layout *out)
{
	struct types_shape old;
	MPI_Count true_extent;
	int ret = depth < DEPTH ? contents_get(datatype, c) : -ENOTSUP;

	if (ret)
		return ret;
	ret = types_measure(c->old, &old, &true_extent);
	ret = ret ? ret : flatten_at(c->old, depth + 1, out);
	ret = ret ? ret : apply(c, old.extent, out);
	old_put(c);
	return ret;
}

/* Does the layout agree with all that the host MPI tells about the datatype? */
static bool is_consistent(const struct layout *l, const struct types_shape *shape,
			  MPI_Count true_extent)
{
	int64_t lo, hi;

	return layout_bytes(l) == (uint64_t)shape->size &&
	       (!shape->size || (!layout_bounds(l, &lo, &hi) && lo == shape->true_lb &&
				 hi - lo == true_extent));
}

static int flatten_at(MPI_Datatype datatype, int depth, struct layout *out)
{
	struct types_shape shape;
	struct contents c;
	MPI_Count true_extent;
	int ret = types_measure(datatype, &shape, &true_extent);

	ret = ret ? ret : envelope_get(datatype, &c);
	if (ret)
		return ret;
	*out = layout_block(shape.true_lb, (uint64_t)shape.size);
	if (c.combiner == abi.combiner_named && shape.size == true_extent)
		return 0;
	ret = flatten_made(datatype, &c, depth, out);
	if (!ret && is_consistent(out, &shape, true_extent))
		return 0;
	/* an inner datatype may not be committed, and some host MPIs refuse to pack it */
	*out = layout_block(shape.true_lb, (uint64_t)shape.size);
	return shape.size == true_extent && shape.size && shape.size <= PROBE_BYTES &&
			       is_in_order_by_probe(datatype, &shape)
		       ? 0
		       : -ENOTSUP;
}

int flatten(MPI_Datatype datatype, struct layout *out) { return flatten_at(datatype, 0, out); }
