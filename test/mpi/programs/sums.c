/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bits of floating point reductions: equal in all calls of a loop, whatever moves the data. The
 * program says them. With HARNESS_ORDER=1 they must be the bits of the order that coll/coll.h
 * states.
 *
 * Run alone: mpiexec -n 4 sluice run sums allreduce
 */
#include "check.h"

enum { N = 20000, CALLS = 8, FLUSH_TO_ZERO = 0x8040 };

static double in[N], out[N], first[N];
static float in_f[N], out_f[N], first_f[N];

/* Sums of such numbers depend on the order in their last bits. */
static double value(int r, int i)
{
	uint64_t state = check_seed((uint64_t)r, (uint64_t)i);

	check_random(&state);
	return (double)(check_random(&state) >> 11) * (r % 2 ? 0x1p-53 : 0x1p-50) - 0.3;
}

static void add(void *from, void *to, int *n, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *n; i++)
		((double *)to)[i] += ((double *)from)[i];
}

static uint64_t hash(const void *p, size_t bytes)
{
	const unsigned char *c = p;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ c[i]) * 0x100000001b3u;
	return h;
}

/* The sum of element i, in the order of recursive doubling: q values, q a power of two, are added
 * as a balanced tree; the first ranks count as q values in pairs. */
static double sum_of_all(int i)
{
	double v[64];
	int q = 1, n = 0, pairs;

	while (2 * q <= size)
		q *= 2;
	pairs = size - q;
	for (int r = 0; r < size; r++, n++) {
		v[n] = value(r, i);
		if (r < 2 * pairs)
			v[n] += value(++r, i);
	}
	for (int step = 1; step < q; step *= 2)
		for (int k = 0; k < q; k += 2 * step)
			v[k] += v[k + step];
	return v[0];
}

/* The sum of ranks 0 to last, one after the other. */
static double sum_up_to(int last, int i)
{
	double sum = value(0, i);

	for (int r = 1; r <= last; r++)
		sum += value(r, i);
	return sum;
}

/* Elements [at, at + n) must be in `out`: all ranks' sum, or a prefix sum. */
static void check_order(int prefix, int at, int n)
{
	for (int i = 0; i < n && check_env("HARNESS_ORDER", 0); i++) {
		double sum = prefix < 0 ? sum_of_all(at + i) : sum_up_to(prefix, at + i);

		if (memcmp(&sum, &out[i], sizeof sum)) {
			check_fail("element %d: %a instead of %a", i, out[i], sum);
			return;
		}
	}
}

/* Runs the call again and again: n elements of `out` are this rank's result. */
static void repeat(void (*call)(void), int n)
{
	for (int i = 0; i < N; i++)
		in[i] = value(rank, i);
	for (int c = 0; c < CALLS; c++) {
		memset(out, 0, sizeof out);
		call();
		if (!c)
			memcpy(first, out, sizeof out);
		else if (memcmp(first, out, (size_t)n * sizeof out[0]))
			check_fail("call %d gives other bits than call 0", c);
	}
	check_say("%016llx", (unsigned long long)hash(out, (size_t)n * sizeof out[0]));
}

static void allreduce(void)
{
	MPI_Allreduce(in, out, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

BEHAVIOUR(allreduce, 2)
{
	repeat(allreduce, N);
	check_order(-1, 0, N);
}

static void in_place(void)
{
	memcpy(out, in, sizeof out);
	MPI_Allreduce(MPI_IN_PLACE, out, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

BEHAVIOUR(allreduce_in_place, 2)
{
	repeat(in_place, N);
	check_order(-1, 0, N);
}

static void reduce(void)
{
	MPI_Reduce(in, out, N, MPI_DOUBLE, MPI_SUM, size - 1, MPI_COMM_WORLD);
}

BEHAVIOUR(reduce, 2)
{
	repeat(reduce, rank == size - 1 ? N : 0);
	check_order(-1, 0, rank == size - 1 ? N : 0);
}

static void scatter(void)
{
	MPI_Reduce_scatter_block(in, out, N / size, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

BEHAVIOUR(reduce_scatter_block, 2)
{
	repeat(scatter, N / size);
	check_order(-1, rank * (N / size), N / size);
}

static void scan(void) { MPI_Scan(in, out, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }

BEHAVIOUR(scan, 2)
{
	repeat(scan, N);
	check_order(rank, 0, N);
}

static MPI_Request request;
static int count;

static void iallreduce(void)
{
	MPI_Iallreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

BEHAVIOUR(iallreduce, 2)
{
	count = N;
	repeat(iallreduce, N);
	check_order(-1, 0, N);
}

BEHAVIOUR(iallreduce_short, 2)
{
	count = 40;
	repeat(iallreduce, count);
	check_order(-1, 0, count);
}

static void iscan(void)
{
	MPI_Iscan(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Barrier(MPI_COMM_WORLD); /* connects the communicator */
}

BEHAVIOUR(iscan, 2)
{
	count = N;
	repeat(iscan, N);
	check_order(rank, 0, N);
}

static MPI_Op own;

static void by_own(void) { MPI_Allreduce(in, out, N, MPI_DOUBLE, own, MPI_COMM_WORLD); }

BEHAVIOUR(operation_of_the_program, 2)
{
	MPI_Op_create(add, 1, &own);
	repeat(by_own, N);
	MPI_Op_free(&own);
}

/* Zero for the program: its processor modes say so, wherever the sum is computed. */
BEHAVIOUR(subnormal_numbers, 2)
{
	unsigned csr = __builtin_ia32_stmxcsr();
	int wrong = 0;

	__builtin_ia32_ldmxcsr(csr | FLUSH_TO_ZERO);
	for (int i = 0; i < N; i++)
		in[i] = 0x1p-1060;
	for (int c = 0; c < CALLS; c++) {
		MPI_Request r;

		memset(out, 1, sizeof out);
		MPI_Allreduce(in, out, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < N; i++)
			wrong += memcmp(&out[i], &(double){ 0 }, sizeof out[i]) != 0;
		memset(out, 1, sizeof out);
		MPI_Iallreduce(in, out, 40, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &r);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
		for (int i = 0; i < 40; i++)
			wrong += memcmp(&out[i], &(double){ 0 }, sizeof out[i]) != 0;
	}
	__builtin_ia32_ldmxcsr(csr);
	if (wrong)
		check_fail("%d sums are not zero", wrong);
}

/* MPI does not say which NaN, or which zero, a maximum is. */
static void largest(void)
{
	for (int i = 0; i < N; i += 3)
		in[i] = i % 2 ? 0.0 * (rank % 2 ? -1 : 1) : rank == 1 ? 0.0 / 0.0 : rank;
	MPI_Allreduce(in, out, N, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

BEHAVIOUR(maximum, 2) { repeat(largest, N); }

BEHAVIOUR(floats, 2)
{
	for (int i = 0; i < N; i++)
		in_f[i] = (float)value(rank, i);
	for (int c = 0; c < CALLS; c++) {
		MPI_Allreduce(in_f, c ? out_f : first_f, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		EXPECT(!c || !memcmp(out_f, first_f, sizeof out_f));
	}
	check_say("%016llx", (unsigned long long)hash(out_f, sizeof out_f));
}

BEHAVIOUR(whole_numbers, 2)
{
	static long from[N], to[N];

	for (int c = 0; c < CALLS; c++) {
		for (int i = 0; i < N; i++)
			from[i] = (long)i * rank + c;
		MPI_Allreduce(from, to, N, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
	}
	check_say("%016llx", (unsigned long long)hash(to, sizeof to));
}

/* Each sum overflows. */
BEHAVIOUR(short_whole_numbers, 2)
{
	static short from[N], to[N], kept[N];

	for (int i = 0; i < N; i++)
		from[i] = (short)(30000 - i % 7);
	for (int c = 0; c < 5 * CALLS; c++) {
		MPI_Allreduce(from, c ? to : kept, N, MPI_SHORT, MPI_SUM, MPI_COMM_WORLD);
		if (c && !check_failed() && memcmp(kept, to, sizeof to))
			check_fail("call %d gives other bits than call 0", c);
	}
	check_say("%016llx", (unsigned long long)hash(to, sizeof to));
}

/* Both kinds of calls have one size. The choice for the whole numbers may change meanwhile. */
BEHAVIOUR(beside_whole_numbers, 2)
{
	enum { LONG = 3 * N };
	double *from = check_alloc(LONG * sizeof *from), *to = check_alloc(LONG * sizeof *to),
	       *kept = check_alloc(LONG * sizeof *kept);
	long *a = check_alloc(LONG * sizeof *a), *b = check_alloc(LONG * sizeof *b);

	memset(a, 0, LONG * sizeof *a);
	for (int i = 0; i < LONG; i++)
		from[i] = value(rank, i);
	for (int c = 0; c < 5 * CALLS; c++) {
		MPI_Scan(a, b, LONG, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
		MPI_Scan(from, c ? to : kept, LONG, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		if (c && !check_failed() && memcmp(kept, to, LONG * sizeof *to))
			check_fail("call %d gives other bits than call 0", c);
	}
	free(from);
	free(to);
	free(kept);
	free(a);
	free(b);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
