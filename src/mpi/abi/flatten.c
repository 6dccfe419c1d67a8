/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * From a datatype to a type map: its constructors tell, from the inside to the outside, how blocks
 * repeat. A predefined datatype with gaps, or one of unknown construction, tells by packing one
 * element.
 */
#include "mpi/abi/flatten.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>

enum { DEPTH = 64 }; /* constructors inside each other */

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
	int combiner, *ints;
	MPI_Count int_count, address_count, count_count, type_count;
	MPI_Aint *addresses;
	MPI_Count *counts; /* of a constructor of large counts */
	void *types;       /* handles in the host MPI's form */
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

/* Asks about a constructor. contents_put() must follow success. */
static int contents_get(MPI_Datatype datatype, struct contents *c)
{
	size_t ints = (size_t)c->int_count, addresses = (size_t)c->address_count,
	       counts = (size_t)c->count_count, types = (size_t)c->type_count;
	int n[] = { (int)c->int_count, (int)c->address_count, (int)c->type_count }, rc;

	c->counts = calloc(counts + addresses + types + ints / 2 + 1, sizeof(int64_t));
	if (!c->counts)
		return -ENOMEM;
	c->addresses = (MPI_Aint *)(c->counts + counts);
	c->types = c->addresses + addresses;
	c->ints = (int *)((void **)c->types + types);
	if (has_large_functions())
		rc = host.Type_get_contents_c(datatype, c->int_count, c->address_count,
					      c->count_count, c->type_count, c->ints, c->addresses,
					      c->counts, c->types);
	else
		rc = host.Type_get_contents(datatype, n[0], n[1], n[2], c->ints, c->addresses,
					    c->types);
	if (rc)
		free(c->counts);
	return rc ? -EIO : 0;
}

/* Predefined datatypes, those of MPI_Type_create_f90_real and the like too, are made of no other,
 * and Open MPI ends a program that frees one. */
static void contents_put(struct contents *c)
{
	struct contents old;

	for (int i = 0; i < c->type_count; i++) {
		MPI_Datatype type = abi_handle_get(c->types, i);

		if (!envelope_get(type, &old) && old.type_count)
			host.Type_free(&type);
	}
	free(c->counts);
}

/* Number i of a constructor, of either generation. */
static MPI_Count number(const struct contents *c, int64_t i)
{
	return c->count_count ? c->counts[i] : c->ints[i];
}

/* ---- constructors of one datatype: they consume its type map ------------------------------ */

static struct typemap *fail(struct typemap *m)
{
	typemap_put(m);
	return NULL;
}

/* Moves by so many units. */
static struct typemap *move(struct typemap *m, MPI_Count n, MPI_Count unit)
{
	int64_t by;

	return __builtin_mul_overflow(n, unit, &by) ? fail(m) : typemap_move(m, by);
}

static struct typemap *repeat(struct typemap *m, MPI_Count count, MPI_Count stride)
{
	return count < 0 ? fail(m) : typemap_repeat(m, (uint64_t)count, stride);
}

static struct typemap *apply_vector(const struct contents *c, MPI_Count extent, struct typemap *m)
{
	bool is_bytes = c->combiner == abi.combiner_hvector;
	MPI_Count stride = is_bytes && !c->count_count ? c->addresses[0] : number(c, 2);

	if (!is_bytes && __builtin_mul_overflow(stride, extent, &stride))
		return fail(m);
	return repeat(repeat(m, number(c, 1), extent), number(c, 0), stride);
}

/* Sizes, subsizes and starts of all dimensions, by either generation. */
static struct typemap *apply_subarray(const struct contents *c, MPI_Count extent,
				      struct typemap *m)
{
	int n = c->ints[0], order = c->ints[c->count_count ? 1 : 3 * n + 1];
	int at = c->count_count ? 0 : 1;
	MPI_Count stride = extent;

	for (int k = 0; k < n; k++) {
		int i = at + (order == abi.order_c ? n - 1 - k : k);

		m = repeat(move(m, number(c, i + 2 * n), stride), number(c, i + n), stride);
		if (__builtin_mul_overflow(stride, number(c, i), &stride))
			return fail(m);
	}
	return m;
}

/* One dimension of a distributed array: of each `parts` blocks a process has number `part`. */
struct dimension { MPI_Count size, block, parts, part; };

static struct typemap *distribute(const struct dimension *d, MPI_Count stride, struct typemap *m)
{
	MPI_Count first, round, round_bytes, blocks = 0, rest;
	struct typemap *parts[2];

	if (__builtin_mul_overflow(d->part, d->block, &first) ||
	    __builtin_mul_overflow(d->parts, d->block, &round) ||
	    __builtin_mul_overflow(round, stride, &round_bytes) || round < 1)
		return fail(m);
	if (d->size - first >= d->block)
		blocks = (d->size - first - d->block) / round + 1;
	rest = d->size - first - blocks * round;
	rest = rest < 0 ? 0 : rest < d->block ? rest : d->block;
	parts[0] = repeat(repeat(typemap_get(m), d->block, stride), blocks, round_bytes);
	parts[0] = move(parts[0], first, stride);
	parts[1] = move(repeat(m, rest, stride), first + blocks * round, stride);
	return typemap_struct(2, parts);
}

static struct typemap *apply_darray(const struct contents *c, MPI_Count extent, struct typemap *m)
{
	int n = c->ints[2];
	const int *kinds = c->ints + (c->count_count ? 3 : 3 + n), *args = kinds + n,
		  *parts = args + n;
	MPI_Count stride = extent, all;

	for (int k = 0; k < n; k++) {
		int i = parts[n] == abi.order_c ? n - 1 - k : k, after = 1;
		struct dimension d = { .size = c->count_count ? c->counts[i] : c->ints[3 + i],
				       .parts = parts[i] };

		for (int j = i + 1; j < n; j++)
			after *= parts[j];
		d.part = c->ints[1] / after % parts[i];
		all = kinds[i] == abi.distribute_cyclic ? 1 : (d.size + d.parts - 1) / d.parts;
		d.block = args[i] == abi.distribute_dflt_darg ? all : args[i];
		if (kinds[i] == abi.distribute_none)
			d = (struct dimension){ d.size, d.size, 1, 0 };
		m = distribute(&d, stride, m);
		if (__builtin_mul_overflow(stride, d.size, &stride))
			return fail(m);
	}
	return m;
}

/* Block i of a list: its elements and its place in bytes. */
static bool list_block(const struct contents *c, int64_t i, MPI_Count extent,
		       struct typemap_run *out)
{
	bool is_block = c->combiner == abi.combiner_indexed_block ||
			c->combiner == abi.combiner_hindexed_block;
	MPI_Count n = number(c, 0), count = number(c, is_block ? 1 : 1 + i), at;

	if (c->combiner == abi.combiner_indexed || c->combiner == abi.combiner_indexed_block) {
		at = number(c, is_block ? 2 + i : 1 + n + i);
		if (__builtin_mul_overflow(at, extent, &at))
			return false;
	} else {
		at = c->count_count ? c->counts[is_block ? 2 + i : 1 + n + i] : c->addresses[i];
	}
	*out = (struct typemap_run){ (uint64_t)count, at };
	return count >= 0;
}

static struct typemap *apply_list(const struct contents *c, MPI_Count extent, struct typemap *m)
{
	MPI_Count n = number(c, 0);
	struct typemap_run *runs = n < 0 ? NULL : malloc((size_t)(n + 1) * sizeof(*runs));
	bool is_ok = runs;

	for (MPI_Count i = 0; is_ok && i < n; i++)
		is_ok = list_block(c, i, extent, &runs[i]);
	m = is_ok ? typemap_runs((size_t)n, runs, m, extent) : fail(m);
	free(runs);
	return m;
}

static bool is_list(const struct contents *c)
{
	return c->combiner == abi.combiner_indexed || c->combiner == abi.combiner_hindexed ||
	       c->combiner == abi.combiner_indexed_block ||
	       c->combiner == abi.combiner_hindexed_block || c->combiner == abi.combiner_struct;
}

static bool is_known(const struct contents *c)
{
	return is_list(c) || c->combiner == abi.combiner_dup ||
	       c->combiner == abi.combiner_resized || c->combiner == abi.combiner_contiguous ||
	       c->combiner == abi.combiner_vector || c->combiner == abi.combiner_hvector ||
	       c->combiner == abi.combiner_subarray || c->combiner == abi.combiner_darray;
}

static struct typemap *apply(const struct contents *c, MPI_Count extent, struct typemap *m)
{
	if (c->combiner == abi.combiner_contiguous)
		return repeat(m, number(c, 0), extent);
	if (c->combiner == abi.combiner_vector || c->combiner == abi.combiner_hvector)
		return apply_vector(c, extent, m);
	if (c->combiner == abi.combiner_subarray)
		return apply_subarray(c, extent, m);
	if (c->combiner == abi.combiner_darray)
		return apply_darray(c, extent, m);
	return is_list(c) ? apply_list(c, extent, m) : m;
}

/* ---- packed to learn --------------------------------------------------------------------- */

/* Packing preserves bytes: numbers the bytes of an element, and reads where each number comes
 * out. */
static bool learn_places(MPI_Datatype datatype, const struct types_shape *shape, MPI_Count hull,
			 uint64_t *places)
{
	unsigned char *code = malloc((size_t)(hull + shape->size)), *packed;
	void *base = (void *)((uintptr_t)code - (uintptr_t)shape->true_lb);
	bool is_ok = code && shape->size <= INT_MAX;
	MPI_Comm scratch;

	packed = code + hull;
	for (int bit = 0; is_ok && bit < 64 && (hull - 1) >> bit; bit += 8) {
		int at = 0;

		for (MPI_Count i = 0; i < hull; i++)
			code[i] = (unsigned char)(i >> bit);
		is_ok = !scratch_comm(&scratch) &&
			!ON_SCRATCH(host.Pack(base, 1, datatype, packed, (int)shape->size, &at,
					      scratch));
		for (MPI_Count i = 0; is_ok && i < shape->size; i++)
			places[i] |= (uint64_t)packed[i] << bit;
	}
	free(code);
	return is_ok;
}

static struct typemap *join_places(const uint64_t *places, MPI_Count n)
{
	const struct layout byte = layout_block(0, 1);
	struct typemap_run *runs = malloc((size_t)n * sizeof(*runs));
	struct typemap *m = NULL;

	for (MPI_Count i = 0; runs && i < n; i++)
		runs[i] = (struct typemap_run){ 1, (int64_t)places[i] };
	if (runs)
		m = typemap_runs((size_t)n, runs, typemap_create(&byte), 1);
	free(runs);
	return m;
}

/* An inner datatype may not be committed, and some host MPIs refuse to pack it. */
static struct typemap *learn(MPI_Datatype datatype, const struct types_shape *shape,
			     MPI_Count hull)
{
	uint64_t *places = calloc((size_t)shape->size, sizeof(*places));
	struct typemap *m = NULL;
	MPI_Datatype own = NULL;

	if (!places || host.Type_dup(datatype, &own))
		goto free_places;
	if (!host.Type_commit(&own) && learn_places(own, shape, hull, places))
		m = typemap_move(join_places(places, shape->size), shape->true_lb);
	host.Type_free(&own);
free_places:
	free(places);
	return m;
}

/* ---- recursion --------------------------------------------------------------------------- */

static struct typemap *flatten_at(MPI_Datatype datatype, int depth);

static struct typemap *flatten_one(const struct contents *c, int depth)
{
	MPI_Datatype old = abi_handle_get(c->types, 0);
	MPI_Count lb, extent;

	return host.Type_get_extent_x(old, &lb, &extent) ?
		       NULL :
		       apply(c, extent, flatten_at(old, depth + 1));
}

/* Flattens each datatype once where equal ones follow each other. */
static struct typemap *flatten_several(const struct contents *c, int depth)
{
	MPI_Count n = number(c, 0), lb, extent = 0;
	struct typemap **parts = calloc((size_t)n + 1, sizeof(struct typemap *)), *old = NULL;
	MPI_Datatype last = NULL, type;
	struct typemap_run run;

	for (MPI_Count i = 0; parts && i < n; i++) {
		type = abi_handle_get(c->types, (int)i);
		if (!i || type != last) {
			typemap_put(old);
			old = host.Type_get_extent_x(type, &lb, &extent)
				      ? NULL
				      : flatten_at(type, depth + 1);
		}
		last = type;
		if (list_block(c, i, extent, &run))
			parts[i] = typemap_move(
				typemap_repeat(typemap_get(old), run.count, extent), run.base);
	}
	typemap_put(old);
	old = parts ? typemap_struct((size_t)n, parts) : NULL;
	free(parts);
	return old;
}

static bool is_one_type(const struct contents *c)
{
	for (int i = 1; i < c->type_count; i++)
		if (abi_handle_get(c->types, i) != abi_handle_get(c->types, 0))
			return false;
	return c->type_count > 0;
}

static struct typemap *flatten_made(MPI_Datatype datatype, struct contents *c, int depth)
{
	struct typemap *m;

	if (depth >= DEPTH || !is_known(c) || contents_get(datatype, c))
		return NULL;
	m = is_one_type(c) ? flatten_one(c, depth) : flatten_several(c, depth);
	contents_put(c);
	return m;
}

static struct typemap *flatten_at(MPI_Datatype datatype, int depth)
{
	struct types_shape shape;
	struct layout block;
	struct contents c;
	struct typemap *m = NULL;
	MPI_Count hull;

	if (types_measure(datatype, &shape, &hull) || envelope_get(datatype, &c))
		return NULL;
	block = layout_block(shape.size ? shape.true_lb : 0, (uint64_t)shape.size);
	if (!shape.size || (!c.type_count && shape.size == hull)) /* predefined, Fortran's too */
		return typemap_create(&block);
	if (c.type_count)
		m = flatten_made(datatype, &c, depth);
	if (m && typemap_bytes(m) == (uint64_t)shape.size)
		return m;
	typemap_put(m);
	return learn(datatype, &shape, hull);
}

int flatten(MPI_Datatype datatype, struct types_shape *out)
{
	struct typemap *m = flatten_at(datatype, 0);
	int64_t hi;

	if (!m)
		return -ENOMEM;
	out->has_layout = typemap_layout(m);
	if (out->size)
		typemap_bounds(m, &out->true_lb, &hi);
	if (out->has_layout)
		out->layout = *typemap_layout(m);
	out->map = out->has_layout ? NULL : typemap_get(m);
	out->in_order = out->has_layout && !out->layout.level_count;
	typemap_put(m);
	return 0;
}
