/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Any datatype, and different but matching types on different ranks. A layout is a type together
 * with a map: where element i of the signature lies. Data goes in and out by that map, so that what
 * Sluice and the MPI library do with the type is checked against a third opinion.
 */
#include "check.h"

enum { ELEMENTS = 120000 }; /* doubles in each message; divisible by all block sizes below */

struct layout {
	const char *name;
	MPI_Datatype type;
	int count;             /* of the type, for ELEMENTS doubles */
	size_t extent_doubles; /* room for the whole message */
	size_t (*place)(size_t i);
};

static size_t place_plain(size_t i)
{
	return i;
}
static size_t place_vector(size_t i)
{
	return i / 3 * 5 + i % 3;
}
static size_t place_resized(size_t i)
{
	return i * 2;
}
static size_t place_reversed(size_t i)
{
	return i ^ 1;
}
static size_t place_columns(size_t i)
{
	return (i % 300) * 400 + i / 300;
}
static size_t place_subarray(size_t i)
{
	return (i / 300 + 5) * 320 + i % 300 + 7;
}
static size_t place_indexed(size_t i)
{
	return i / 6 * 11 + (i % 6 < 2 ? i % 6 : i % 6 + 3);
}

static MPI_Datatype commit(MPI_Datatype t)
{
	MPI_Type_commit(&t);
	return t;
}

static MPI_Datatype make_contiguous(void)
{
	MPI_Datatype t;

	MPI_Type_contiguous(ELEMENTS / 4, MPI_DOUBLE, &t);
	return commit(t);
}

static MPI_Datatype make_vector(void)
{
	MPI_Datatype t;

	MPI_Type_vector(ELEMENTS / 3, 3, 5, MPI_DOUBLE, &t);
	return commit(t);
}

static MPI_Datatype make_resized(void)
{
	MPI_Datatype t;

	MPI_Type_create_resized(MPI_DOUBLE, 0, 2 * sizeof(double), &t);
	return commit(t);
}

/* Two doubles, the second in memory first: contiguous, but not in order. */
static MPI_Datatype make_reversed(void)
{
	int lengths[2] = { 1, 1 };
	MPI_Aint at[2] = { sizeof(double), 0 };
	MPI_Datatype types[2] = { MPI_DOUBLE, MPI_DOUBLE }, t;

	MPI_Type_create_struct(2, lengths, at, types, &t);
	return commit(t);
}

/* Columns of a matrix with 400 columns and 300 rows, one after the other. */
static MPI_Datatype make_columns(void)
{
	MPI_Datatype column, t;

	MPI_Type_vector(300, 1, 400, MPI_DOUBLE, &column);
	MPI_Type_create_resized(column, 0, sizeof(double), &t);
	MPI_Type_free(&column);
	return commit(t);
}

static MPI_Datatype make_subarray(void)
{
	int whole[2] = { 410, 320 }, part[2] = { 400, 300 }, start[2] = { 5, 7 };
	MPI_Datatype t;

	MPI_Type_create_subarray(2, whole, part, start, MPI_ORDER_C, MPI_DOUBLE, &t);
	return commit(t);
}

static MPI_Datatype make_indexed(void)
{
	int lengths[2] = { 2, 4 }, at[2] = { 0, 5 };
	MPI_Datatype part, t;

	MPI_Type_indexed(2, lengths, at, MPI_DOUBLE, &part);
	MPI_Type_create_resized(part, 0, 11 * sizeof(double), &t);
	MPI_Type_free(&part);
	return commit(t);
}

static struct layout layouts[8];
enum { LAYOUTS = 8 };

static void make_layouts(void)
{
	struct layout all[LAYOUTS] = {
		{ "basic", MPI_DOUBLE, ELEMENTS, ELEMENTS, place_plain },
		{ "contiguous", make_contiguous(), 4, ELEMENTS, place_plain },
		{ "vector", make_vector(), 1, ELEMENTS / 3 * 5, place_vector },
		{ "resized", make_resized(), ELEMENTS, 2 * ELEMENTS, place_resized },
		{ "reversed struct", make_reversed(), ELEMENTS / 2, ELEMENTS, place_reversed },
		{ "columns", make_columns(), 400, ELEMENTS, place_columns },
		{ "subarray", make_subarray(), 1, 410 * 320, place_subarray },
		{ "indexed", make_indexed(), ELEMENTS / 6, ELEMENTS / 6 * 11, place_indexed },
	};

	memcpy(layouts, all, sizeof(all));
}

static void free_layouts(void)
{
	for (int i = 1; i < LAYOUTS; i++)
		MPI_Type_free(&layouts[i].type);
}

static double value(size_t i, uint64_t seed)
{
	return (double)(i * 3 + seed * 1000003);
}

static double *room(const struct layout *l, int copies)
{
	return check_alloc(sizeof(double) * l->extent_doubles * copies);
}

static void blank(const struct layout *l, double *at)
{
	for (size_t i = 0; i < l->extent_doubles; i++)
		at[i] = -1.0;
}

static void put(const struct layout *l, double *at, uint64_t seed)
{
	blank(l, at);
	for (size_t i = 0; i < ELEMENTS; i++)
		at[l->place(i)] = value(i, seed);
}

/* Elements right, and as many untouched doubles as there are gaps. */
static void look(const struct layout *l, const double *at, uint64_t seed, const char *what)
{
	size_t untouched = 0;

	for (size_t i = 0; i < ELEMENTS; i++) {
		if (at[l->place(i)] == value(i, seed))
			continue;
		check_fail("%s, %s: element %zu is %g, not %g", what, l->name, i, at[l->place(i)],
			   value(i, seed));
		return;
	}
	for (size_t i = 0; i < l->extent_doubles; i++)
		untouched += at[i] == -1.0;
	if (untouched != l->extent_doubles - ELEMENTS)
		check_fail("%s, %s: %zu doubles in the gaps changed", what, l->name,
			   l->extent_doubles - ELEMENTS - untouched);
}

static void bcast_layouts(int mine, int root, uint64_t seed)
{
	const struct layout *l = &layouts[mine];
	double *buf = room(l, 1);

	for (int again = 0; again < 3; again++) {
		if (rank == root)
			put(l, buf, seed + again);
		else
			blank(l, buf);
		EXPECT(MPI_Bcast(buf, l->count, l->type, root, MPI_COMM_WORLD) == MPI_SUCCESS);
		look(l, buf, seed + again, "broadcast");
	}
	free(buf);
}

BEHAVIOUR(bcast_any_type, 1)
{
	make_layouts();
	for (int i = 0; i < LAYOUTS; i++)
		bcast_layouts(i, i % size, 10 * i);
	free_layouts();
}

BEHAVIOUR(bcast_types_that_match_but_differ, 2)
{
	make_layouts();
	for (int i = 0; i < LAYOUTS; i++)
		bcast_layouts((i + rank) % LAYOUTS, i % size, 100 + 10 * i);
	for (int i = 1; i < LAYOUTS; i++)
		bcast_layouts(rank == 0 ? i : 0, 0, 500 + 10 * i);
	for (int i = 1; i < LAYOUTS; i++)
		bcast_layouts(rank == 0 ? 0 : i, 0, 900 + 10 * i);
	free_layouts();
}

/* The receive side of a gather places block r at r * count * extent, which may interleave. */
static void gather_layouts(int mine, int roots, int root, uint64_t seed)
{
	const struct layout *s = &layouts[mine], *d = &layouts[roots];
	double *send = room(s, 1), *recv = rank == root ? room(d, size + 1) : NULL;
	MPI_Aint lower, extent;

	MPI_Type_get_extent(d->type, &lower, &extent);
	put(s, send, check_seed(seed, rank));
	for (int r = 0; recv && r < size; r++)
		blank(d, (double *)((char *)recv + r * d->count * extent));
	EXPECT(MPI_Gather(send, s->count, s->type, recv, d->count, d->type, root, MPI_COMM_WORLD) ==
	       MPI_SUCCESS);
	for (int r = 0; recv && r < size; r++) {
		double *block = (double *)((char *)recv + r * d->count * extent);

		for (size_t i = 0; i < ELEMENTS; i++) {
			if (block[d->place(i)] == value(i, check_seed(seed, r)))
				continue;
			check_fail("gather %s to %s: block %d, element %zu", s->name, d->name, r,
				   i);
			break;
		}
	}
	look(s, send, check_seed(seed, rank), "sender's own");
	free(send);
	free(recv);
}

BEHAVIOUR(gather_any_type, 1)
{
	make_layouts();
	for (int i = 0; i < LAYOUTS; i++)
		if (layouts[i].place != place_columns)
			gather_layouts(i, i, i % size, 20 * i);
	free_layouts();
}

BEHAVIOUR(gather_types_that_match_but_differ, 2)
{
	make_layouts();
	for (int i = 0; i < LAYOUTS; i++)
		if (layouts[i].place != place_columns)
			gather_layouts((i + 1 + rank) % LAYOUTS, i, i % size, 700 + 20 * i);
	free_layouts();
}

struct mixed {
	char c;
	double d;
	short s;
	int i[3];
};

BEHAVIOUR(struct_of_mixed_members, 2)
{
	enum { COUNT = 20000 };
	int lengths[4] = { 1, 1, 1, 3 };
	MPI_Aint at[4] = { offsetof(struct mixed, c), offsetof(struct mixed, d),
			   offsetof(struct mixed, s), offsetof(struct mixed, i) };
	MPI_Datatype types[4] = { MPI_CHAR, MPI_DOUBLE, MPI_SHORT, MPI_INT }, packed, t;
	struct mixed *buf = check_alloc(COUNT * sizeof(*buf));

	MPI_Type_create_struct(4, lengths, at, types, &packed);
	MPI_Type_create_resized(packed, 0, sizeof(struct mixed), &t);
	MPI_Type_commit(&t);
	memset(buf, 0, COUNT * sizeof(*buf));
	for (int k = 0; rank == 1 && k < COUNT; k++)
		buf[k] = (struct mixed){ (char)k, k * 0.5, (short)(k * 7), { k, -k, k ^ 5 } };
	EXPECT(MPI_Bcast(buf, COUNT, t, 1, MPI_COMM_WORLD) == MPI_SUCCESS);
	for (int k = 0; k < COUNT; k++)
		if (buf[k].c != (char)k || buf[k].d != k * 0.5 || buf[k].s != (short)(k * 7) ||
		    buf[k].i[0] != k || buf[k].i[1] != -k || buf[k].i[2] != (k ^ 5)) {
			check_fail("element %d", k);
			break;
		}
	MPI_Type_free(&t);
	MPI_Type_free(&packed);
	free(buf);
}

/* Pairs have a gap at the end (double and int) which must not carry data. */
BEHAVIOUR(pair_types, 2)
{
	enum { COUNT = 30000 };
	struct pair {
		double value;
		int index;
	};
	struct pair *buf = check_alloc(COUNT * sizeof(*buf));

	memset(buf, rank == 0 ? 0x11 : 0x22, COUNT * sizeof(*buf));
	for (int k = 0; rank == 0 && k < COUNT; k++) {
		buf[k].value = k * 1.25;
		buf[k].index = -k;
	}
	EXPECT(MPI_Bcast(buf, COUNT, MPI_DOUBLE_INT, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
	for (int k = 0; k < COUNT; k++) {
		EXPECT(buf[k].value == k * 1.25 && buf[k].index == -k);
		EXPECT(((unsigned char *)&buf[k])[12] == (rank == 0 ? 0x11 : 0x22));
	}
	free(buf);
}

/* Pairs with a gap in the middle. */
BEHAVIOUR(pairs_with_a_gap_inside, 2)
{
	enum { COUNT = 30000 };
	struct pair { short value; int index; };
	struct pair *buf = check_alloc(COUNT * sizeof(*buf));

	memset(buf, rank == 0 ? 0x11 : 0x22, COUNT * sizeof(*buf));
	for (int k = 0; rank == 0 && k < COUNT; k++) {
		buf[k].value = (short)(k * 3);
		buf[k].index = -k;
	}
	EXPECT(MPI_Bcast(buf, COUNT, MPI_SHORT_INT, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
	for (int k = 0; k < COUNT; k++)
		EXPECT(buf[k].value == (short)(k * 3) && buf[k].index == -k);
	free(buf);
}

/* Predefined datatypes that have no name, as Fortran's selected_real_kind() asks for: nobody may
 * free them, and each request for one gives the same one. */
BEHAVIOUR(members_of_a_chosen_precision, 2)
{
	enum { COUNT = 20000 };
	struct { double d; int i; float z[2]; } *buf = check_alloc(COUNT * sizeof(*buf));
	int lengths[3] = { 1, 1, 1 };
	MPI_Aint at[3] = { 0, 8, 12 };
	MPI_Datatype members[3], inner, t;

	for (int again = 0; again < 3; again++) {
		MPI_Type_create_f90_real(15, 300, &members[0]);
		MPI_Type_create_f90_integer(9, &members[1]);
		MPI_Type_create_f90_complex(6, 30, &members[2]);
		MPI_Type_create_struct(3, lengths, at, members, &inner);
		MPI_Type_create_resized(inner, 0, sizeof(*buf), &t);
		MPI_Type_free(&inner);
		MPI_Type_commit(&t);
		memset(buf, 0, COUNT * sizeof(*buf));
		for (int k = 0; rank == 1 && k < COUNT; k++) {
			buf[k].d = k + again;
			buf[k].i = -k;
			buf[k].z[1] = again;
		}
		EXPECT(MPI_Bcast(buf, COUNT, t, 1, MPI_COMM_WORLD) == MPI_SUCCESS);
		for (int k = 0; k < COUNT; k++)
			EXPECT(buf[k].d == k + again && buf[k].i == -k && buf[k].z[1] == again);
		MPI_Type_free(&t);
		EXPECT(MPI_Bcast(buf, COUNT, members[0], 0, MPI_COMM_WORLD) == MPI_SUCCESS);
	}
	free(buf);
}

/* ---- distributed arrays ------------------------------------------------------------------ */

enum { DIMS = 3, GRID = 2 /* processes in each dimension */ };

struct distribution { int sizes[DIMS], kinds[DIMS], args[DIMS], grid[DIMS], order; };

/* The process that has index i of dimension d. */
static int owner(const struct distribution *a, int d, int i)
{
	int block = a->args[d], p = a->grid[d];

	if (a->kinds[d] == MPI_DISTRIBUTE_NONE)
		return 0;
	if (block == MPI_DISTRIBUTE_DFLT_DARG)
		block = a->kinds[d] == MPI_DISTRIBUTE_BLOCK ? (a->sizes[d] + p - 1) / p : 1;
	return i / block % p;
}

/* Stores the places of the elements of a process, in the order of the type map. Returns: their
 * number. */
static int darray_places(const struct distribution *a, int process, int *places)
{
	bool is_c = a->order == MPI_ORDER_C;
	int last = is_c ? DIMS - 1 : 0, first = DIMS - 1 - last, n = 0, i[DIMS];

	for (i[first] = 0; i[first] < a->sizes[first]; i[first]++)
		for (i[1] = 0; i[1] < a->sizes[1]; i[1]++)
			for (i[last] = 0; i[last] < a->sizes[last]; i[last]++) {
				int at = (owner(a, 0, i[0]) * a->grid[1] + owner(a, 1, i[1])) *
						 a->grid[2] + owner(a, 2, i[2]);

				if (at == process)
					places[n++] = (i[first] * a->sizes[1] + i[1]) *
							      a->sizes[last] + i[last];
			}
	return n;
}

/* Sends a process's part of the array to ranks that receive it without gaps, and back. */
static void exchange_darray(const struct distribution *a, int process, const char *what)
{
	int all = a->sizes[0] * a->sizes[1] * a->sizes[2], *places = check_alloc(all * sizeof(int)),
	    n = darray_places(a, process, places), parts = a->grid[0] * a->grid[1] * a->grid[2];
	double *array = check_alloc(all * sizeof(double));
	double *part = check_alloc(all * sizeof(double));
	MPI_Datatype t;

	MPI_Type_create_darray(parts, process, DIMS, a->sizes, a->kinds, a->args, a->grid, a->order,
			       MPI_DOUBLE, &t);
	MPI_Type_commit(&t);
	for (int i = 0; i < all; i++)
		array[i] = rank ? -1 : i;
	if (rank)
		MPI_Bcast(part, n, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	else
		MPI_Bcast(array, 1, t, 0, MPI_COMM_WORLD);
	for (int i = 0; rank && i < n; i++) {
		if (part[i] != places[i])
			check_fail("%s: element %d is %g, not %d", what, i, part[i], places[i]);
		part[i] += 0.5;
	}
	if (rank)
		MPI_Bcast(part, n, MPI_DOUBLE, 1, MPI_COMM_WORLD);
	else
		MPI_Bcast(array, 1, t, 1, MPI_COMM_WORLD);
	for (int i = 0; !rank && i < n; i++)
		array[places[i]] -= 0.5;
	for (int i = 0; !rank && i < all; i++)
		EXPECT(array[i] == i);
	MPI_Type_free(&t);
	free(places);
	free(array);
	free(part);
}

BEHAVIOUR(distributed_arrays, 2)
{
	static const int block = MPI_DISTRIBUTE_BLOCK, cyclic = MPI_DISTRIBUTE_CYCLIC,
			 none = MPI_DISTRIBUTE_NONE, dflt = MPI_DISTRIBUTE_DFLT_DARG;
	const struct distribution all[] = {
		{ { 60, 50, 40 }, { block, block, block }, { dflt, dflt, dflt }, { 2, 2, 2 },
		  MPI_ORDER_C },
		{ { 61, 47, 43 }, { block, cyclic, none }, { dflt, 3, dflt }, { 2, 3, 1 },
		  MPI_ORDER_C },
		{ { 61, 47, 43 }, { cyclic, cyclic, block }, { 4, dflt, 22 }, { 3, 2, 2 },
		  MPI_ORDER_FORTRAN },
		{ { 40, 50, 60 }, { none, cyclic, cyclic }, { dflt, 7, 25 }, { 1, 4, 2 },
		  MPI_ORDER_FORTRAN },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		const int *g = all[i].grid;
		char what[64];

		for (int process = 0; process < g[0] * g[1] * g[2]; process++) {
			snprintf(what, sizeof(what), "array %zu, process %d", i, process);
			exchange_darray(&all[i], process, what);
		}
	}
}

/* ---- lists that nothing repeats ---------------------------------------------------------- */

BEHAVIOUR(a_long_irregular_list, 2)
{
	enum { BLOCKS = 100000 };
	int *lengths = check_alloc(BLOCKS * sizeof(int)), *at = check_alloc(BLOCKS * sizeof(int));
	int end = 0, n = 0;
	int *buf, *part;
	MPI_Datatype t;

	for (int i = 0; i < BLOCKS; i++) {
		lengths[i] = (int)(check_seed(5, i) % 4);
		at[i] = end + (int)(check_seed(6, i) % 3);
		end = at[i] + lengths[i];
		n += lengths[i];
	}
	buf = check_alloc((size_t)end * sizeof(int));
	part = check_alloc((size_t)n * sizeof(int));
	for (int i = 0; i < end; i++)
		buf[i] = rank ? -1 : i;
	MPI_Type_indexed(BLOCKS, lengths, at, MPI_INT, &t);
	MPI_Type_commit(&t);
	if (rank == 1)
		MPI_Bcast(part, n, MPI_INT, 0, MPI_COMM_WORLD);
	else
		MPI_Bcast(buf, 1, t, 0, MPI_COMM_WORLD);
	for (int i = 0, k = 0; i < BLOCKS; i++)
		for (int j = 0; j < lengths[i]; j++, k++)
			EXPECT((rank == 1 ? part[k] : buf[at[i] + j]) == at[i] + j);
	for (int i = 0; i + 1 < BLOCKS && rank > 1; i++)
		for (int j = at[i] + lengths[i]; j < at[i + 1]; j++)
			EXPECT(buf[j] == -1);
	MPI_Type_free(&t);
	free(lengths);
	free(at);
	free(buf);
	free(part);
}

/* A type whose data lies before the buffer's address, and one with a true lower bound. */
BEHAVIOUR(negative_and_shifted_lower_bounds, 2)
{
	enum { BLOCK = 100000 };
	int length = BLOCK;
	MPI_Aint at[2] = { -(MPI_Aint)BLOCK, 5000 };
	char *buf = check_alloc(3 * BLOCK);

	for (int k = 0; k < 2; k++) {
		MPI_Datatype t;

		MPI_Type_create_hindexed(1, &length, &at[k], MPI_BYTE, &t);
		MPI_Type_commit(&t);
		memset(buf, 0, 3 * BLOCK);
		if (rank == 0)
			check_fill(buf + BLOCK + at[k], BLOCK, 5 + k);
		EXPECT(MPI_Bcast(buf + BLOCK, 1, t, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
		check_same(buf + BLOCK + at[k], BLOCK, 5 + k, "shifted");
		check_zero(buf + BLOCK + at[k] + BLOCK, BLOCK - (k ? at[k] : 0), "after it");
		MPI_Type_free(&t);
	}
	free(buf);
}

/* Types of different basic size describe the same bytes on each side of a byte broadcast. */
BEHAVIOUR(sizes_in_other_units, 2)
{
	size_t bytes = 240000;
	char *buf = check_alloc(bytes);
	MPI_Datatype ten;

	MPI_Type_contiguous(10, MPI_BYTE, &ten);
	MPI_Type_commit(&ten);
	for (int i = 0; i < 6; i++) {
		memset(buf, 0, bytes);
		if (rank == i % size)
			check_fill(buf, bytes, i);
		if (rank % 2)
			EXPECT(MPI_Bcast(buf, (int)bytes / 10, ten, i % size, MPI_COMM_WORLD) ==
			       MPI_SUCCESS);
		else
			EXPECT(MPI_Bcast(buf, (int)bytes, MPI_BYTE, i % size, MPI_COMM_WORLD) ==
			       MPI_SUCCESS);
		check_same(buf, bytes, i, "other units");
	}
	MPI_Type_free(&ten);
	free(buf);
}

/* A type freed right after the call, and another made that may get its handle. */
BEHAVIOUR(handles_that_are_used_again, 2)
{
	double *buf = check_alloc(4 * ELEMENTS * sizeof(double));

	for (int stride = 2; stride < 5; stride++) {
		MPI_Datatype t;

		MPI_Type_vector(ELEMENTS / 2, 1, stride, MPI_DOUBLE, &t);
		MPI_Type_commit(&t);
		for (size_t i = 0; i < 4 * ELEMENTS; i++)
			buf[i] = rank == 0 ? (double)i : -1.0;
		EXPECT(MPI_Bcast(buf, 1, t, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
		for (size_t i = 0; i < ELEMENTS / 2 * (size_t)stride - (size_t)stride; i++)
			if (buf[i] != (rank == 0 || i % stride == 0 ? (double)i : -1.0)) {
				check_fail("stride %d, element %zu is %g", stride, i, buf[i]);
				break;
			}
		MPI_Type_free(&t);
	}
	free(buf);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
