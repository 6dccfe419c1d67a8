/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every predefined datatype and some derived ones, every predefined operation and some of the
 * program's, and which goes with which. Contents are such that the result does not depend on the
 * order in which ranks are combined.
 */
#ifndef MATRIX_TYPES_H
#define MATRIX_TYPES_H

#include "check.h"

#include <complex.h>
#include <float.h>

enum class {
	C_INTEGER,
	FORTRAN_INTEGER,
	FLOATING,
	COMPLEX,
	LOGICAL,
	BYTES,
	MULTI,  /* the standard's groups of types */
	PAIR,   /* of a value and where it is */
	MAPS,   /* of the program: affine maps, which do not commute */
	SPACED, /* of the program: an int in twelve bytes */
	OTHER,  /* is moved only */
};
enum value { SIGNED, UNSIGNED, F32, F64, F80, BOOLEAN, NONE };

struct type {
	const char *name;
	MPI_Datatype type;
	enum class class;
	enum value value; /* what an element, or each part of a complex one, or a pair's first is */
	int width;        /* bytes of such a value */
	MPI_Aint lb, extent;
	int size;
};

enum { TYPES_MAX = 80 };
static struct type types[TYPES_MAX];
static int type_count;

static void add_type(const char *name, MPI_Datatype type, enum class class, enum value value,
		     int width)
{
	struct type *t = &types[type_count];
	MPI_Aint low, span;

	if (type == MPI_DATATYPE_NULL || MPI_Type_size(type, &(int){ 0 }) != MPI_SUCCESS)
		return; /* a library without Fortran */
	*t = (struct type){ name, type, class, value, width };
	MPI_Type_size(type, &t->size);
	MPI_Type_get_extent(type, &t->lb, &t->extent);
	MPI_Type_get_true_extent(type, &low, &span);
	if (low < t->lb)
		t->lb = low;
	if (!t->size && class != OTHER)
		return;
	type_count++;
}

static void add_integers(void)
{
	add_type("signed char", MPI_SIGNED_CHAR, C_INTEGER, SIGNED, 1);
	add_type("unsigned char", MPI_UNSIGNED_CHAR, C_INTEGER, UNSIGNED, 1);
	add_type("short", MPI_SHORT, C_INTEGER, SIGNED, 2);
	add_type("unsigned short", MPI_UNSIGNED_SHORT, C_INTEGER, UNSIGNED, 2);
	add_type("int", MPI_INT, C_INTEGER, SIGNED, 4);
	add_type("unsigned", MPI_UNSIGNED, C_INTEGER, UNSIGNED, 4);
	add_type("long", MPI_LONG, C_INTEGER, SIGNED, sizeof(long));
	add_type("unsigned long", MPI_UNSIGNED_LONG, C_INTEGER, UNSIGNED, sizeof(long));
	add_type("long long", MPI_LONG_LONG, C_INTEGER, SIGNED, 8);
	add_type("unsigned long long", MPI_UNSIGNED_LONG_LONG, C_INTEGER, UNSIGNED, 8);
	add_type("int8", MPI_INT8_T, C_INTEGER, SIGNED, 1);
	add_type("int16", MPI_INT16_T, C_INTEGER, SIGNED, 2);
	add_type("int32", MPI_INT32_T, C_INTEGER, SIGNED, 4);
	add_type("int64", MPI_INT64_T, C_INTEGER, SIGNED, 8);
	add_type("uint8", MPI_UINT8_T, C_INTEGER, UNSIGNED, 1);
	add_type("uint16", MPI_UINT16_T, C_INTEGER, UNSIGNED, 2);
	add_type("uint32", MPI_UINT32_T, C_INTEGER, UNSIGNED, 4);
	add_type("uint64", MPI_UINT64_T, C_INTEGER, UNSIGNED, 8);
	add_type("aint", MPI_AINT, MULTI, SIGNED, sizeof(MPI_Aint));
	add_type("offset", MPI_OFFSET, MULTI, SIGNED, sizeof(MPI_Offset));
	add_type("count", MPI_COUNT, MULTI, SIGNED, sizeof(MPI_Count));
	add_type("byte", MPI_BYTE, BYTES, UNSIGNED, 1);
	add_type("C bool", MPI_C_BOOL, LOGICAL, BOOLEAN, 1);
}

static void add_numbers(void)
{
	add_type("float", MPI_FLOAT, FLOATING, F32, 4);
	add_type("double", MPI_DOUBLE, FLOATING, F64, 8);
	add_type("long double", MPI_LONG_DOUBLE, FLOATING, F80, sizeof(long double));
	add_type("float complex", MPI_C_FLOAT_COMPLEX, COMPLEX, F32, 4);
	add_type("double complex", MPI_C_DOUBLE_COMPLEX, COMPLEX, F64, 8);
	add_type("long double complex", MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX, F80,
		 sizeof(long double));
	add_type("float and place", MPI_FLOAT_INT, PAIR, F32, 4);
	add_type("double and place", MPI_DOUBLE_INT, PAIR, F64, 8);
	add_type("long double and place", MPI_LONG_DOUBLE_INT, PAIR, F80, sizeof(long double));
	add_type("long and place", MPI_LONG_INT, PAIR, SIGNED, sizeof(long));
	add_type("short and place", MPI_SHORT_INT, PAIR, SIGNED, 2);
	add_type("int and place", MPI_2INT, PAIR, SIGNED, 4);
}

static void add_fortran(void)
{
	add_type("INTEGER", MPI_INTEGER, FORTRAN_INTEGER, SIGNED, 4);
	add_type("REAL", MPI_REAL, FLOATING, F32, 4);
	add_type("DOUBLE PRECISION", MPI_DOUBLE_PRECISION, FLOATING, F64, 8);
	add_type("COMPLEX", MPI_COMPLEX, COMPLEX, F32, 4);
	add_type("DOUBLE COMPLEX", MPI_DOUBLE_COMPLEX, COMPLEX, F64, 8);
	add_type("LOGICAL", MPI_LOGICAL, LOGICAL, BOOLEAN, 4);
	add_type("INTEGER*1", MPI_INTEGER1, FORTRAN_INTEGER, SIGNED, 1);
	add_type("INTEGER*2", MPI_INTEGER2, FORTRAN_INTEGER, SIGNED, 2);
	add_type("INTEGER*4", MPI_INTEGER4, FORTRAN_INTEGER, SIGNED, 4);
	add_type("INTEGER*8", MPI_INTEGER8, FORTRAN_INTEGER, SIGNED, 8);
	add_type("REAL*4", MPI_REAL4, FLOATING, F32, 4);
	add_type("REAL*8", MPI_REAL8, FLOATING, F64, 8);
	add_type("CHARACTER", MPI_CHARACTER, OTHER, NONE, 1);
	add_type("2 INTEGER", MPI_2INTEGER, PAIR, SIGNED, 4);
}

static void add_derived(const char *name, MPI_Datatype type, enum class class)
{
	MPI_Type_commit(&type);
	add_type(name, type, class, NONE, 1);
}

static void add_all_types(void)
{
	int lengths[3] = { 2, 0, 3 }, at[3] = { 4, 1, 0 }, sizes[3] = { 3, 4, 5 },
	    sub[3] = { 2, 2, 3 }, starts[3] = { 1, 0, 2 };
	MPI_Datatype t, members[2] = { MPI_CHAR, MPI_DOUBLE };
	MPI_Aint places[2] = { 0, 8 };

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	add_integers();
	add_numbers();
	add_fortran();
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	add_type("char", MPI_CHAR, OTHER, NONE, 1);
	add_type("wide char", MPI_WCHAR, OTHER, NONE, 1);
	MPI_Type_contiguous(2, MPI_UNSIGNED, &t);
	add_derived("maps", t, MAPS);
	MPI_Type_create_resized(MPI_INT, 0, 12, &t);
	add_derived("spaced ints", t, SPACED);
	MPI_Type_vector(3, 2, 3, MPI_SHORT, &t);
	add_derived("vector", t, OTHER);
	MPI_Type_create_hvector(3, 1, -16, MPI_DOUBLE, &t);
	add_derived("vector backwards", t, OTHER);
	MPI_Type_indexed(3, lengths, at, MPI_INT, &t);
	add_derived("indexed", t, OTHER);
	MPI_Type_create_struct(2, (int[]){ 3, 1 }, places, members, &t);
	add_derived("structure", t, OTHER);
	MPI_Type_create_subarray(3, sizes, sub, starts, MPI_ORDER_FORTRAN, MPI_FLOAT, &t);
	add_derived("subarray", t, OTHER);
	MPI_Type_contiguous(0, MPI_INT, &t);
	add_derived("nothing", t, OTHER);
}

/* ---- operations -------------------------------------------------------------------------- */

struct operation {
	const char *name;
	MPI_Op op;
	unsigned classes; /* bits of enum class */
	enum fill { ANY_BITS, SMALL, TRUTHS, PAIRS } fill;
};

enum { OPERATIONS_MAX = 16 };
static struct operation operations[OPERATIONS_MAX];
static int operation_count;

struct map { uint32_t a, b; };

static void compose(void *in, void *inout, int *n, MPI_Datatype *type)
{
	const struct map *f = in;
	struct map *g = inout;

	(void)type;
	for (int i = 0; i < *n; i++)
		g[i] = (struct map){ f[i].a * g[i].a, f[i].a * g[i].b + f[i].b };
}

static void add_spaced(void *in, void *inout, int *n, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < 3 * *n; i += 3)
		((unsigned *)inout)[i] += ((unsigned *)in)[i];
}

static void add_operation(const char *name, MPI_Op op, unsigned classes, enum fill fill)
{
	operations[operation_count++] = (struct operation){ name, op, classes, fill };
}

static void add_all_operations(void)
{
	const unsigned integers = 1u << C_INTEGER | 1u << FORTRAN_INTEGER | 1u << MULTI,
		       ordered = integers | 1u << FLOATING;
	const unsigned truths = 1u << C_INTEGER | 1u << LOGICAL, bits = integers | 1u << BYTES;
	MPI_Op op;

	add_operation("MAX", MPI_MAX, ordered, ANY_BITS);
	add_operation("MIN", MPI_MIN, ordered, ANY_BITS);
	add_operation("SUM", MPI_SUM, ordered | 1u << COMPLEX, SMALL);
	add_operation("PROD", MPI_PROD, ordered | 1u << COMPLEX, SMALL);
	add_operation("LAND", MPI_LAND, truths, TRUTHS);
	add_operation("LOR", MPI_LOR, truths, TRUTHS);
	add_operation("LXOR", MPI_LXOR, truths, TRUTHS);
	add_operation("BAND", MPI_BAND, bits, ANY_BITS);
	add_operation("BOR", MPI_BOR, bits, ANY_BITS);
	add_operation("BXOR", MPI_BXOR, bits, ANY_BITS);
	add_operation("MINLOC", MPI_MINLOC, 1u << PAIR, PAIRS);
	add_operation("MAXLOC", MPI_MAXLOC, 1u << PAIR, PAIRS);
	MPI_Op_create(compose, 0, &op);
	add_operation("compose", op, 1u << MAPS, ANY_BITS);
	MPI_Op_create(add_spaced, 1, &op);
	add_operation("add", op, 1u << SPACED, ANY_BITS);
}

static void free_types_and_operations(void)
{
	for (int i = 0; i < type_count; i++)
		if (types[i].value == NONE && types[i].type != MPI_CHAR &&
		    types[i].type != MPI_WCHAR && types[i].type != MPI_CHARACTER)
			MPI_Type_free(&types[i].type);
	for (int i = 0; i < 2; i++)
		MPI_Op_free(&operations[operation_count - 1 - i].op);
	type_count = operation_count = 0;
}

/* ---- contents ---------------------------------------------------------------------------- */

static void put_value(char *at, const struct type *t, long v)
{
	switch (t->value) {
	case F32:
		*(float *)(void *)at = (float)v;
		break;
	case F64:
		*(double *)(void *)at = (double)v;
		break;
	case F80:
		*(long double *)(void *)at = (long double)v;
		break;
	default:
		memcpy(at, &v, (size_t)t->width); /* little endian */
	}
}

static bool is_float(const struct type *t) { return t->value >= F32 && t->value <= F80; }

/* One element for a reduction. */
static void put_element(char *at, const struct type *t, enum fill fill, int who, uint64_t random)
{
	long small = 1 + (long)(random % 4);

	if (t->class == COMPLEX) {
		put_value(at, t, 1 + (long)(random & 1));
		put_value(at + t->width, t, 1 + (long)(random >> 1 & 1));
	} else if (fill == PAIRS) {
		put_value(at, t, small);
		memcpy(at + t->extent -
			       (t->value == F80 ? t->width
				: t->width > 4  ? 8
						: 4),
		       &who, sizeof(who));
	} else if (fill == TRUTHS) {
		put_value(at, t, t->value == BOOLEAN ? (random % 8) != 0 : (long)(random % 8));
	} else if (fill == ANY_BITS && is_float(t)) {
		put_value(at, t, (long)(random % 2000) - 999);
	} else if (fill == ANY_BITS) {
		if (t->class == MULTI)
			random >>= 1; /* Open MPI's MPI_OFFSET is unsigned */
		memcpy(at, &random,
		       (size_t)t->size < sizeof(random) ? (size_t)t->size : sizeof(random));
	} else {
		put_value(at, t, small);
	}
}

/* Products of complex numbers may be zero, with either sign. */
static void clear_sign_of_zero(char *at, const struct type *t)
{
	for (int k = 0; k < 2; k++, at += t->width)
		if (t->value == F32)
			*(float *)(void *)at += 0.0f;
		else if (t->value == F64)
			*(double *)(void *)at += 0.0;
		else
			*(long double *)(void *)at += 0.0L;
}

/* Bytes of an element that belong to no member or are not defined. Intel MPI stores to bytes
 * between the members. */
static void clear_undefined(char *at, const struct type *t, bool is_combined)
{
	int values = t->class == COMPLEX ? 2 : 1;

	if (t->class == COMPLEX && is_combined)
		clear_sign_of_zero(at, t);
	if (t->class == SPACED && is_combined)
		memset(at + 4, 0, 8);

	for (int k = 0; t->value == F80 && LDBL_MANT_DIG == 64 && k < values; k++)
		memset(at + k * t->width + 10, 0, (size_t)t->width - 10);
	if (t->class != PAIR)
		return;
	if (t->value == F80)
		memset(at + t->width + 4, 0, (size_t)(t->extent - t->width - 4));
	else if (t->width == 2)
		memset(at + 2, 0, 2);
	else if (t->width == 8)
		memset(at + 12, 0, 4);
}

#endif
