/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Datatypes with gaps, nested at random, in memory that peers have mapped. A test compares the
 * result and every byte around it with what the host MPI's own function does with equal arguments.
 * Both ends of a message have different datatypes of one signature. HARNESS_TRIALS cases from
 * HARNESS_SEED on.
 *
 * Run alone: SLUICE_COLL=all:on SLUICE_REGION_KIND=arena mpiexec -n 3 sluice run typed
 */
#include "matrix_calls.h"

#include <sys/mman.h>

enum { AREA = 4 << 20, DEPTH = 3, TYPES_MAX = 64, SPAN_MAX = 1 << 16 };

static uint64_t common; /* the same on all ranks */
static uint64_t own;

static uint64_t pick(uint64_t *state, uint64_t below) { return check_random(state) % below; }

/* ---- datatypes --------------------------------------------------------------------------- */

static MPI_Datatype made[TYPES_MAX * RANKS_MAX];
static int made_count;

static MPI_Datatype keep(MPI_Datatype type)
{
	made[made_count++] = type;
	return type;
}

static void free_types(void)
{
	while (made_count)
		MPI_Type_free(&made[--made_count]);
}

/* The span of an element; strides beyond it keep elements apart. */
static MPI_Aint span_of(MPI_Datatype type)
{
	MPI_Aint low, span;

	MPI_Type_get_true_extent(type, &low, &span);
	return span;
}

static MPI_Aint extent_of(MPI_Datatype type)
{
	MPI_Aint low, extent;

	MPI_Type_get_extent(type, &low, &extent);
	return extent;
}

/* Resizes a type: its elements do not overlap, and have a gap between them or none. */
static MPI_Datatype spread(MPI_Datatype old)
{
	MPI_Datatype type;
	MPI_Aint span = span_of(old), gap = (MPI_Aint)pick(&own, 3) * (MPI_Aint)pick(&own, 9);

	MPI_Type_create_resized(old, 0, span + gap, &type);
	return keep(type);
}

static MPI_Datatype subarray(MPI_Datatype old, int n)
{
	int sizes[3], subsizes[3] = { n, 1, 1 }, starts[3], dims = 1 + (int)pick(&own, 3);
	MPI_Datatype type;

	if (n % 2 == 0 && dims > 1) {
		subsizes[0] /= 2;
		subsizes[dims - 1] *= 2;
	}
	for (int i = 0; i < dims; i++) {
		starts[i] = (int)pick(&own, 3);
		sizes[i] = starts[i] + subsizes[i] + (int)pick(&own, 3);
	}
	MPI_Type_create_subarray(dims, sizes, subsizes, starts,
				 pick(&own, 2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, old, &type);
	return keep(type);
}

/* n elements in blocks of b at places of a list: at equal distances, or not. */
static MPI_Datatype list(MPI_Datatype old, int n, int b)
{
	int lengths[16], at[16], regular = (int)pick(&own, 2), next = 0;
	MPI_Aint bytes[16];
	MPI_Datatype type, olds[16];

	for (int i = 0; i < n / b; i++) {
		lengths[i] = b;
		at[i] = next;
		bytes[i] = next * extent_of(old);
		olds[i] = old;
		next += b + (regular ? 1 : (int)pick(&own, 4));
	}
	switch (pick(&own, 5)) {
	case 0:
		MPI_Type_indexed(n / b, lengths, at, old, &type);
		break;
	case 1:
		MPI_Type_create_hindexed(n / b, lengths, bytes, old, &type);
		break;
	case 2:
		MPI_Type_create_indexed_block(n / b, b, at, old, &type);
		break;
	case 3:
		MPI_Type_create_hindexed_block(n / b, b, bytes, old, &type);
		break;
	default:
		MPI_Type_create_struct(n / b, lengths, bytes, olds, &type);
	}
	return keep(type);
}

static MPI_Datatype vector(MPI_Datatype old, int n, int b)
{
	int stride = b + (int)pick(&own, 3);
	MPI_Aint bytes = stride * extent_of(old) + (MPI_Aint)pick(&own, 2) * 3;
	MPI_Datatype type;

	if (pick(&own, 3) == 0)
		bytes = -bytes;
	if (pick(&own, 2))
		MPI_Type_vector(n / b, b, pick(&own, 3) ? stride : -stride, old, &type);
	else
		MPI_Type_create_hvector(n / b, b, bytes, old, &type);
	return keep(type);
}

/* n elements of `old`, n below 16, in some constructor. */
static MPI_Datatype construct(MPI_Datatype old, int n)
{
	int b = n % 3 == 0 ? 3 : n % 2 == 0 ? 2 : 1;
	MPI_Datatype type;

	switch (pick(&own, 5)) {
	case 0:
		MPI_Type_contiguous(n, old, &type);
		return keep(type);
	case 1:
		return vector(old, n, b);
	case 2:
		return list(old, n, b);
	case 3:
		MPI_Type_dup(old, &type);
		return construct(keep(type), n);
	default:
		return subarray(old, n);
	}
}

/* factors[0] * factors[1] * ... elements of `base`, without gaps when these would get too long. */
static MPI_Datatype nest(MPI_Datatype base, const int *factors)
{
	MPI_Datatype type = base;
	int n = 1;

	for (int i = 0; i < DEPTH; i++) {
		type = construct(i ? spread(type) : type, factors[i]);
		n *= factors[i];
	}
	if (span_of(type) > SPAN_MAX) {
		MPI_Type_contiguous(n, base, &type);
		keep(type);
	}
	MPI_Type_commit(&type);
	made[made_count - 1] = type;
	return type;
}

/* ---- a case ------------------------------------------------------------------------------ */

static char *sent, *got, *want; /* the first two are adopted */

static char *map_area(void)
{
	char *p = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		MPI_Abort(MPI_COMM_WORLD, 4);
	return p;
}

/* Collectives of whole areas, which Sluice adopts. */
static void begin(void)
{
	common = (uint64_t)check_env("HARNESS_SEED", 1);
	own = common * 1000 + (uint64_t)rank;
	sent = map_area();
	got = map_area();
	want = map_area();
	host_find();
	for (int i = 0; i < 3; i++) {
		MPI_Bcast(sent, AREA, MPI_BYTE, 0, MPI_COMM_WORLD);
		MPI_Bcast(got, AREA, MPI_BYTE, 0, MPI_COMM_WORLD);
	}
}

static void end(void)
{
	munmap(sent, AREA);
	munmap(got, AREA);
	munmap(want, AREA);
}

/* The factors of the number of elements from one rank to another: the same on both. */
static void pick_factors(int from, int to, int trial, int *factors)
{
	uint64_t state = check_seed(check_seed((uint64_t)trial, (uint64_t)from), (uint64_t)to) +
			 (uint64_t)check_env("HARNESS_SEED", 1);

	for (int i = 0; i < DEPTH; i++)
		factors[i] = 1 + (int)pick(&state, 15);
}

/* Part k, with `count` elements of a random type, behind *at. */
static void add_part(struct list *l, int k, MPI_Datatype base, const int *factors, int count,
		     MPI_Aint *at)
{
	MPI_Aint low, span;

	l->types[k] = nest(base, factors);
	l->counts[k] = count;
	MPI_Type_get_true_extent(l->types[k], &low, &span);
	if (count > 1) { /* of a further level */
		MPI_Type_create_resized(l->types[k], 0, span + (MPI_Aint)pick(&own, 40),
					&l->types[k]);
		MPI_Type_commit(&l->types[k]);
		keep(l->types[k]);
		span *= 2 * count;
		span += 40 * count;
	}
	l->bytes[k] = (int)(*at - low);
	*at += span + (MPI_Aint)pick(&own, 100);
}

static MPI_Datatype pick_base(void)
{
	const MPI_Datatype bases[] = { MPI_CHAR, MPI_SHORT, MPI_INT, MPI_DOUBLE,
				       MPI_C_DOUBLE_COMPLEX };

	return bases[pick(&common, 5)];
}

/* Random parts for all partners. */
static void make_lists(struct call *c, int trial, MPI_Datatype base)
{
	MPI_Aint send_at = (MPI_Aint)pick(&own, 5000), recv_at = (MPI_Aint)pick(&own, 5000);
	uint64_t counts = pick(&common, 1u << 30);

	for (int k = 0; k < size; k++) {
		int factors[DEPTH];

		pick_factors(rank, k, trial, factors);
		add_part(&c->s, k, base, factors, (int)((counts + (uint64_t)(rank + k)) % 3),
			 &send_at);
		pick_factors(k, rank, trial, factors);
		add_part(&c->r, k, base, factors, (int)((counts + (uint64_t)(rank + k)) % 3),
			 &recv_at);
	}
	if (send_at > AREA || recv_at > AREA) {
		fprintf(stderr, "typed: the area is too small\n");
		MPI_Abort(MPI_COMM_WORLD, 5);
	}
}

static void compare(const char *what, int trial)
{
	for (size_t i = 0; i < AREA; i++)
		if (got[i] != want[i]) {
			check_fail("%s, case %d: byte %zu", what, trial, i);
			return;
		}
}

static void fill(int trial)
{
	check_fill(sent, AREA, check_seed((uint64_t)trial, (uint64_t)rank));
	check_fill(got, AREA, check_seed((uint64_t)trial + 100000, (uint64_t)rank));
	memcpy(want, got, AREA);
}

static int trials(int few) { return (int)check_env("HARNESS_TRIALS", few); }

/* ---- behaviours -------------------------------------------------------------------------- */

BEHAVIOUR(random_nested_types_go_from_layout_to_layout, 2)
{
	begin();
	for (int i = 0; i < trials(60); i++) {
		struct call c = { .send = sent, .recv = want, .comm = MPI_COMM_WORLD };

		make_lists(&c, i, pick_base());
		fill(i);
		call_host(Alltoallw, &c);
		MPI_Alltoallw(sent, c.s.counts, c.s.bytes, c.s.types, got, c.r.counts, c.r.bytes,
			      c.r.types, MPI_COMM_WORLD);
		compare("Alltoallw", i);
		free_types();
	}
	end();
}

BEHAVIOUR(types_freed_while_their_call_is_pending, 2)
{
	begin();
	for (int i = 0; i < trials(20); i++) {
		struct call c = { .send = sent, .recv = want, .comm = MPI_COMM_WORLD };
		MPI_Request request;

		make_lists(&c, i, pick_base());
		fill(i);
		call_host(Alltoallw, &c);
		MPI_Ialltoallw(sent, c.s.counts, c.s.bytes, c.s.types, got, c.r.counts, c.r.bytes,
			       c.r.types, MPI_COMM_WORLD, &request);
		free_types();
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		compare("Ialltoallw", i);
	}
	end();
}

BEHAVIOUR(random_nested_types_in_place, 2)
{
	begin();
	for (int i = 0; i < trials(20); i++) {
		struct call c = { .send = MPI_IN_PLACE, .recv = want, .comm = MPI_COMM_WORLD };
		MPI_Datatype base = pick_base();
		MPI_Aint at = 64;

		for (int k = 0; k < size; k++) {
			int factors[DEPTH];

			pick_factors(rank < k ? rank : k, rank < k ? k : rank, i, factors);
			add_part(&c.r, k, base, factors, 1, &at);
		}
		fill(i);
		call_host(Alltoallw, &c);
		MPI_Alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, got, c.r.counts, c.r.bytes,
			      c.r.types, MPI_COMM_WORLD);
		compare("Alltoallw in place", i);
		free_types();
	}
	end();
}

/* One type for all parts, on one side only, on the other or on both. */
BEHAVIOUR(one_type_for_all_parts, 2)
{
	begin();
	for (int i = 0; i < trials(30); i++) {
		static const enum kind kinds[] = { Bcast,  Gather,    Scatter,
						   Allgather, Alltoall };
		int factors[DEPTH], n = 1;
		MPI_Datatype base = pick_base(), type, s, r;
		int root = (int)pick(&common, (uint64_t)size);

		for (int k = 0; k < DEPTH; k++)
			n *= factors[k] = 1 + (int)pick(&common, 12);
		type = spread(nest(base, factors));
		MPI_Type_commit(&type);
		made[made_count - 1] = type;
		s = i % 3 == 1 ? base : type;
		r = i % 3 == 2 ? base : type;
		for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
			int sc = i % 3 == 1 ? n : 1, rc = i % 3 == 2 ? n : 1;
			char *in = sent + AREA / 2, *out = got + AREA / 2, *ref = want + AREA / 2;

			fill(i);
			switch (kinds[k]) {
			case Bcast:
				host.Bcast(ref, rc, r, root, MPI_COMM_WORLD);
				MPI_Bcast(out, rc, r, root, MPI_COMM_WORLD);
				break;
			case Gather:
				host.Gather(in, sc, s, ref, rc, r, root, MPI_COMM_WORLD);
				MPI_Gather(in, sc, s, out, rc, r, root, MPI_COMM_WORLD);
				break;
			case Scatter:
				host.Scatter(in, sc, s, ref, rc, r, root, MPI_COMM_WORLD);
				MPI_Scatter(in, sc, s, out, rc, r, root, MPI_COMM_WORLD);
				break;
			case Allgather:
				host.Allgather(in, sc, s, ref, rc, r, MPI_COMM_WORLD);
				MPI_Allgather(in, sc, s, out, rc, r, MPI_COMM_WORLD);
				break;
			default:
				host.Alltoall(in, sc, s, ref, rc, r, MPI_COMM_WORLD);
				MPI_Alltoall(in, sc, s, out, rc, r, MPI_COMM_WORLD);
			}
			compare(kind_name(kinds[k]), i);
		}
		free_types();
	}
	end();
}

static void exchange(bool is_nonblocking, const void *from, const int *from_at,
		     const MPI_Datatype *from_types, void *to, const int *to_at,
		     const MPI_Datatype *to_types)
{
	MPI_Request request;
	int counts[RANKS_MAX];

	for (int k = 0; k < size; k++)
		counts[k] = 1;
	if (!is_nonblocking) {
		MPI_Alltoallw(from, counts, from_at, from_types, to, counts, to_at, to_types,
			      MPI_COMM_WORLD);
		return;
	}
	MPI_Ialltoallw(from, counts, from_at, from_types, to, counts, to_at, to_types,
		       MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* The columns of a matrix, as an FFT exchanges them: together the parts leave no gap, so that
 * Sluice adopts the arrays by these calls alone. */
static void exchange_columns(bool is_nonblocking)
{
	enum { N = 600 };
	int sizes[2] = { N / size, N }, sub[2] = { N / size, N / size }, starts[2] = { 0 };
	size_t bytes = (size_t)sizes[0] * N * sizeof(double);
	double *a = check_alloc(bytes), *b = check_alloc(bytes);
	int at[RANKS_MAX];
	MPI_Datatype columns[RANKS_MAX], rows[RANKS_MAX];

	if (N % size)
		check_skip("the matrix has no such number of parts");
	for (int k = 0; k < size; k++) {
		starts[0] = 0;
		starts[1] = k * sub[1];
		MPI_Type_create_subarray(2, sizes, sub, starts, MPI_ORDER_C, MPI_DOUBLE,
					 &columns[k]);
		MPI_Type_commit(&columns[k]);
		MPI_Type_contiguous(sub[0] * sub[1], MPI_DOUBLE, &rows[k]);
		MPI_Type_commit(&rows[k]);
		at[k] = (int)(k * sub[0] * sub[1] * (int)sizeof(double));
	}
	MPI_Bcast(a, N, MPI_DOUBLE, 0, MPI_COMM_WORLD); /* connects the communicator */
	for (int turn = 0; turn < 6 && N % size == 0; turn++) {
		for (int i = 0; i < sizes[0] * N; i++)
			a[i] = rank * sizes[0] * N + i + turn;
		memset(b, 0, bytes);
		exchange(is_nonblocking, a, (int[RANKS_MAX]){ 0 }, columns, b, at, rows);
		for (int i = 0; i < N; i++)
			for (int j = 0; j < sub[1]; j++)
				if (b[i * sub[1] + j] != i * N + rank * sub[1] + j + turn)
					check_fail("row %d, column %d", i, j);
		memset(a, 0, bytes);
		exchange(is_nonblocking, b, at, rows, a, (int[RANKS_MAX]){ 0 }, columns);
		for (int i = 0; i < sizes[0] * N; i++)
			if (a[i] != rank * sizes[0] * N + i + turn)
				check_fail("element %d", i);
	}
	for (int k = 0; k < size; k++) {
		MPI_Type_free(&columns[k]);
		MPI_Type_free(&rows[k]);
	}
	free(a);
	free(b);
}

BEHAVIOUR(columns_become_rows, 2) { exchange_columns(false); }
BEHAVIOUR(columns_become_rows_by_requests, 2) { exchange_columns(true); }

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
