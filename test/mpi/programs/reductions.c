/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every reduction, in communicators of 2 ranks up to all: predefined operations on all kinds of
 * types, operations of the program (also ones that do not commute, and on types of its own), every
 * root, MPI_IN_PLACE. What must come out is computed here, in the order of ranks; floating point
 * adds small whole numbers, which is exact in any order.
 *
 * Run alone: mpiexec -n 3 sluice run reductions allreduce
 */
#include "adopt.h"

#include <complex.h>

enum { MOST = 20000, GUARD = 64 };

static MPI_Comm comm;
static int me, p;

/* ---- types ------------------------------------------------------------------------------- */

/* Affine maps, which do not commute: x -> a x + b, modulo 2^32. */
struct map { uint32_t a, b; };
struct at { double value; int index; };

static MPI_Datatype map_type;

struct type {
	const char *name;
	MPI_Datatype *type;
	size_t bytes;
	void (*fill)(void *at, int n, int seed);
};

#define NUMBERS(X)                                                                                 \
	X(char8, signed char)                                                                      \
	X(short16, short) X(int32, int) X(long64, long) X(u8, unsigned char)                       \
		X(u16, unsigned short) X(u32, unsigned) X(u64, unsigned long) X(f32, float)        \
			X(f64, double) X(ld, long double) X(cplx, double complex)

#define X(id, c_type)                                                        \
	static void fill_##id(void *at, int n, int seed)                      \
	{                                                                     \
		c_type *v = at;                                               \
		for (int i = 0; i < n; i++)                                   \
			v[i] = (c_type)((i * 7 + seed * 13) % 5 + 1);         \
	}
NUMBERS(X)
#undef X

static void fill_bool(void *at, int n, int seed)
{
	for (int i = 0; i < n; i++)
		((_Bool *)at)[i] = (i + seed) % 3;
}

static void fill_at(void *at, int n, int seed)
{
	struct at *v = at;

	memset(at, 0, (size_t)n * sizeof(*v));
	for (int i = 0; i < n; i++) {
		v[i].value = (i * 7 + seed * 13) % 5;
		v[i].index = seed;
	}
}

static void fill_map(void *at, int n, int seed)
{
	for (int i = 0; i < n; i++)
		((struct map *)at)[i] =
			(struct map){ (uint32_t)(i + seed) * 2 + 1, (uint32_t)(i * 3 + seed) };
}

static void compose(void *in, void *inout, int *n, MPI_Datatype *type)
{
	const struct map *f = in;
	struct map *g = inout;

	(void)type;
	for (int i = 0; i < *n; i++)
		g[i] = (struct map){ f[i].a * g[i].a, f[i].a * g[i].b + f[i].b };
}

static void add_doubles(void *in, void *inout, int *n, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *n; i++)
		((double *)inout)[i] += ((double *)in)[i];
}

/* ---- the expected ------------------------------------------------------------------------ */

static struct {
	const char *name;
	MPI_Datatype type;
	MPI_Op op;
	size_t bytes; /* of an element, with its gaps */
	int count;
	void (*fill)(void *, int, int);
} now;

/* Ranks first to last, in their order: into `out`. n elements from the first-th on. */
static void expect(char *out, int last, int first, int n)
{
	char *acc = check_alloc((size_t)(first + n) * now.bytes),
	     *next = check_alloc((size_t)(first + n) * now.bytes);

	now.fill(acc, first + n, 0);
	for (int r = 1; r <= last; r++) {
		char *swap;

		now.fill(next, first + n, r);
		MPI_Reduce_local(acc, next, first + n, now.type, now.op);
		swap = acc;
		acc = next;
		next = swap;
	}
	memcpy(out, acc + (size_t)first * now.bytes, (size_t)n * now.bytes);
	free(acc);
	free(next);
}

/* Do n elements agree? What lies between the members of a pair is nobody's. */
static bool is_same(const char *a, const char *b, int n)
{
	if (now.fill != fill_at)
		return !memcmp(a, b, (size_t)n * now.bytes);
	for (int i = 0; i < n; i++) {
		const struct at *x = (const void *)a, *y = (const void *)b;

		if (x[i].value != y[i].value || x[i].index != y[i].index)
			return false;
	}
	return true;
}

static void see(const char *got, int last, int first, int n, const char *what)
{
	char *want = check_alloc((size_t)n * now.bytes + 1);

	if (n)
		expect(want, last, first, n);
	if (now.fill == fill_ld) /* ten bytes of sixteen are the number */
		for (int i = 0; i < n; i++) {
			if (((const long double *)(const void *)got)[i] !=
			    ((long double *)(void *)want)[i])
				check_fail("%s of %s, %d ranks: element %d", what, now.name, p, i);
		}
	else if (!is_same(got, want, n))
		check_fail("%s of %s, %d elements, %d ranks: wrong", what, now.name, n, p);
	for (int i = 0; i < GUARD; i++)
		if (got[(size_t)n * now.bytes + (size_t)i] != 0x5a) {
			check_fail("%s of %s: wrote beyond its end", what, now.name);
			break;
		}
	free(want);
}

/* ---- one call each ----------------------------------------------------------------------- */

static char *send, *recv;
enum how { PLAIN, IN_PLACE, HOWS };

/* Buffers of n elements to send, m to receive into. */
static void begin(enum how how, int n, int m)
{
	memset(send, 0x33, (size_t)n * now.bytes + GUARD);
	memset(recv, 0x5a, (size_t)(n > m ? n : m) * now.bytes + GUARD);
	now.fill(how == IN_PLACE ? recv : send, n, me);
}

static const void *what_is_sent(enum how how) { return how == IN_PLACE ? MPI_IN_PLACE : send; }

static void each_allreduce(enum how how)
{
	begin(how, now.count, now.count);
	MPI_Allreduce(what_is_sent(how), recv, now.count, now.type, now.op, comm);
	see(recv, p - 1, 0, now.count, "allreduce");
}

static void each_reduce(enum how how)
{
	for (int root = 0; root < p; root++) {
		enum how mine = me == root ? how : PLAIN;

		begin(mine, now.count, now.count);
		MPI_Reduce(what_is_sent(mine), recv, now.count, now.type, now.op, root, comm);
		if (me == root)
			see(recv, p - 1, 0, now.count, "reduce");
	}
}

static void each_scan(enum how how)
{
	begin(how, now.count, now.count);
	MPI_Scan(what_is_sent(how), recv, now.count, now.type, now.op, comm);
	see(recv, me, 0, now.count, "scan");
}

static void each_exscan(enum how how)
{
	begin(how, now.count, now.count);
	MPI_Exscan(what_is_sent(how), recv, now.count, now.type, now.op, comm);
	if (me)
		see(recv, me - 1, 0, now.count, "exscan");
}

/* The first rank may name any memory: other ranks must not get hold of it. */
static void exscan_of_nobodys(enum how how)
{
	size_t bytes = (size_t)now.count * now.bytes;
	char *nobodys = check_alloc(bytes + GUARD);

	begin(PLAIN, now.count, now.count);
	memset(nobodys, 0x5a, bytes + GUARD);
	MPI_Exscan(send, me ? recv : nobodys, now.count, now.type, now.op, comm);
	if (me)
		see(recv, me - 1, 0, now.count, "exscan");
	else if (how == PLAIN && is_adopted(nobodys, bytes))
		check_fail("%zu bytes that the first rank does not get were adopted", bytes);
	free(nobodys);
}

static void each_reduce_scatter_block(enum how how)
{
	int part = now.count / p + 1;

	begin(how, part * p, part);
	MPI_Reduce_scatter_block(what_is_sent(how), recv, part, now.type, now.op, comm);
	if (how == IN_PLACE) /* the rest is not defined */
		memset(recv + (size_t)part * now.bytes, 0x5a, GUARD);
	see(recv, p - 1, me * part, part, "reduce_scatter_block");
}

static void each_reduce_scatter(enum how how)
{
	int counts[64], first = 0, n = 0;

	for (int r = 0; r < p; r++) {
		counts[r] = (r + 1) % 3 * (now.count / p + 1);
		first += r < me ? counts[r] : 0;
		n += counts[r];
	}
	begin(how, n, counts[me]);
	MPI_Reduce_scatter(what_is_sent(how), recv, counts, now.type, now.op, comm);
	if (how == IN_PLACE)
		memset(recv + (size_t)counts[me] * now.bytes, 0x5a, GUARD);
	see(recv, p - 1, first, counts[me], "reduce_scatter");
}

/* ---- all of it --------------------------------------------------------------------------- */

static void run_one(void (*each)(enum how), const char *name, MPI_Datatype type, MPI_Op op,
		    size_t bytes, void (*fill)(void *, int, int))
{
	static const int counts[] = { 1, 37, 2500, MOST / 2 };

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		now = (__typeof__(now)){ name, type, op, bytes, counts[i], fill };
		for (int how = 0; how < HOWS; how++)
			each(how);
	}
}

static void run_types(void (*each)(enum how))
{
	MPI_Op composed, added;

	MPI_Op_create(compose, 0, &composed);
	MPI_Op_create(add_doubles, 1, &added);
	run_one(each, "int sum", MPI_INT, MPI_SUM, 4, fill_int32);
	run_one(each, "short max", MPI_SHORT, MPI_MAX, 2, fill_short16);
	run_one(each, "signed char min", MPI_SIGNED_CHAR, MPI_MIN, 1, fill_char8);
	run_one(each, "long product", MPI_LONG, MPI_PROD, 8, fill_long64);
	run_one(each, "unsigned char and", MPI_UNSIGNED_CHAR, MPI_BAND, 1, fill_u8);
	run_one(each, "byte or", MPI_BYTE, MPI_BOR, 1, fill_u8);
	run_one(each, "unsigned short xor", MPI_UNSIGNED_SHORT, MPI_BXOR, 2, fill_u16);
	run_one(each, "unsigned logical and", MPI_UNSIGNED, MPI_LAND, 4, fill_u32);
	run_one(each, "unsigned long max", MPI_UNSIGNED_LONG, MPI_MAX, 8, fill_u64);
	run_one(each, "float sum", MPI_FLOAT, MPI_SUM, 4, fill_f32);
	run_one(each, "double sum", MPI_DOUBLE, MPI_SUM, 8, fill_f64);
	run_one(each, "double min", MPI_DOUBLE, MPI_MIN, 8, fill_f64);
	run_one(each, "long double sum", MPI_LONG_DOUBLE, MPI_SUM, sizeof(long double), fill_ld);
	run_one(each, "complex sum", MPI_C_DOUBLE_COMPLEX, MPI_SUM, 16, fill_cplx);
	run_one(each, "bool logical or", MPI_C_BOOL, MPI_LOR, 1, fill_bool);
	run_one(each, "double and place, minimum", MPI_DOUBLE_INT, MPI_MINLOC, sizeof(struct at),
		fill_at);
	run_one(each, "maps", map_type, composed, sizeof(struct map), fill_map);
	run_one(each, "doubles added", MPI_DOUBLE, added, 8, fill_f64);
	MPI_Op_free(&composed);
	MPI_Op_free(&added);
}

static void run_all(void (*each)(enum how))
{
	MPI_Type_contiguous(2, MPI_UNSIGNED, &map_type);
	MPI_Type_commit(&map_type);
	send = check_alloc(MOST * 3 * 16 + GUARD);
	recv = check_alloc(MOST * 3 * 16 + GUARD);
	for (p = 2; p <= size; p++) {
		MPI_Comm_split(MPI_COMM_WORLD, rank < p ? 0 : MPI_UNDEFINED, rank, &comm);
		if (rank >= p)
			continue;
		MPI_Comm_rank(comm, &me);
		run_types(each);
		MPI_Comm_free(&comm);
	}
	free(send);
	free(recv);
	MPI_Type_free(&map_type);
}

BEHAVIOUR(allreduce, 2) { run_all(each_allreduce); }
BEHAVIOUR(reduce, 2) { run_all(each_reduce); }
BEHAVIOUR(scan, 2) { run_all(each_scan); }
BEHAVIOUR(exscan, 2) { run_all(each_exscan); }
BEHAVIOUR(exscan_leaves_alone_what_its_first_rank_names, 2) { run_all(exscan_of_nobodys); }
BEHAVIOUR(reduce_scatter_block, 2) { run_all(each_reduce_scatter_block); }
BEHAVIOUR(reduce_scatter, 2) { run_all(each_reduce_scatter); }

/* A rank that receives nothing names no buffer: a matter of that rank alone, of which others know
 * nothing. */
BEHAVIOUR(reduce_scatter_to_all_but_one, 2)
{
	enum { EACH = 9000 };
	int *in = check_alloc(sizeof(*in) * EACH * (size_t)size),
	    *out = check_alloc(sizeof(*out) * EACH), counts[64];
	MPI_Request request;

	for (int i = 0; i < EACH * size; i++)
		in[i] = rank + i;
	for (int none = 0; none < size; none++) {
		int first = EACH * (rank - (none < rank));

		for (int r = 0; r < size; r++)
			counts[r] = r == none ? 0 : EACH;
		for (int is_later = 0; is_later < 2; is_later++) {
			memset(out, 0, sizeof(*out) * EACH);
			if (is_later) {
				MPI_Ireduce_scatter(in, rank == none ? NULL : out, counts, MPI_INT,
						    MPI_SUM, MPI_COMM_WORLD, &request);
				MPI_Wait(&request, MPI_STATUS_IGNORE);
			} else {
				MPI_Reduce_scatter(in, rank == none ? NULL : out, counts, MPI_INT,
						   MPI_SUM, MPI_COMM_WORLD);
			}
			for (int i = 0; i < EACH && rank != none && !check_failed(); i++)
				EXPECT(out[i] == size * (size - 1) / 2 + size * (first + i));
		}
	}
	free(in);
	free(out);
}

static void add_second_pair(void *in, void *inout, int *n, MPI_Datatype *type)
{
	const unsigned *from = in;
	unsigned *to = inout;

	(void)type;
	for (int i = 0; i < *n; i++)
		for (int k = 2 * i + 2; k < 2 * i + 4; k++)
			to[k] += from[k];
}

/* Elements without gaps that lie behind the address by which they are known. */
BEHAVIOUR(operation_of_the_program_on_displaced_elements, 2)
{
	enum { COUNT = 3000 };
	static unsigned in[2 * COUNT + 2], out[2 * COUNT + 2];
	MPI_Datatype pair, displaced;
	MPI_Op add;

	MPI_Type_contiguous(2, MPI_UNSIGNED, &pair);
	MPI_Type_create_indexed_block(1, 1, (int[]){ 1 }, pair, &displaced);
	MPI_Type_commit(&displaced);
	MPI_Op_create(add_second_pair, 1, &add);
	for (int i = 0; i < 2 * COUNT + 2; i++)
		in[i] = (unsigned)(i + rank);
	MPI_Allreduce(in, out, COUNT, displaced, add, MPI_COMM_WORLD);
	EXPECT(!out[0] && !out[1]);
	for (int i = 2; i < 2 * COUNT + 2 && !check_failed(); i++)
		EXPECT(out[i] == (unsigned)(size * i + size * (size - 1) / 2));
	MPI_Op_free(&add);
	MPI_Type_free(&displaced);
	MPI_Type_free(&pair);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
