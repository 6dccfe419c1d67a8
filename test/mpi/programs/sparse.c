/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Counts, extents and displacements beyond 2^31, in memory of which almost no page is touched. The
 * data itself is small; memory between the elements must stay untouched, too.
 *
 * Run alone: mpiexec -n 2 sluice run sparse elements_far_apart
 */
#include "check.h"

#include <sys/mman.h>

enum { MOST_RANKS = 4, WORDS = 5000 };
static const size_t far = (size_t)3 << 30, room = (size_t)40 << 30;
static const size_t touched_most_kb = 64 << 10; /* by MPI and Sluice, beside the data */

static char *sparse_alloc(void)
{
	char *at = mmap(NULL, room, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at == MAP_FAILED) {
		check_fail("no address space");
		MPI_Abort(MPI_COMM_WORLD, 3);
	}
	return at;
}

static MPI_Datatype commit(MPI_Datatype t)
{
	MPI_Type_commit(&t);
	return t;
}

/* `words` doubles, and the next element far behind them. */
static MPI_Datatype make_far(int words)
{
	MPI_Datatype part, t;

	MPI_Type_contiguous(words, MPI_DOUBLE, &part);
	MPI_Type_create_resized(part, 0, (MPI_Aint)far, &t);
	MPI_Type_free(&part);
	return commit(t);
}

static double value(int from, int to, int i) { return from * 1e6 + to * 1e5 + i; }

static void put(char *at, int from, int to)
{
	for (int i = 0; i < WORDS; i++)
		((double *)at)[i] = value(from, to, i);
}

static void see(const char *at, int from, int to)
{
	for (int i = 0; i < WORDS && !check_failed(); i++)
		EXPECT(((const double *)at)[i] == value(from, to, i));
}

static void touched_little(const struct check_usage *before)
{
	struct check_usage now;

	check_usage(&now);
	if (now.rss_kb - before->rss_kb > (long)touched_most_kb)
		check_fail("%ld MB are touched", (now.rss_kb - before->rss_kb) >> 10);
}

static void run_far(MPI_Datatype t)
{
	char *out = sparse_alloc(), *in = sparse_alloc();
	struct check_usage before;

	check_usage(&before);
	for (int round = 0; round < 3; round++) {
		int root = round % size;

		for (int r = 0; r < size; r++)
			put(out + r * far, rank, r + round);
		MPI_Alltoall(out, 1, t, in, 1, t, MPI_COMM_WORLD);
		for (int r = 0; r < size; r++)
			see(in + r * far, r, rank + round);
		MPI_Gather(out + rank * far, 1, t, in, 1, t, root, MPI_COMM_WORLD);
		for (int r = 0; rank == root && r < size; r++)
			see(in + r * far, r, r + round);
		MPI_Bcast(out, size, t, root, MPI_COMM_WORLD);
		for (int r = 0; r < size; r++)
			see(out + r * far, root, r + round);
	}
	touched_little(&before);
	munmap(out, room);
	munmap(in, room);
}

BEHAVIOUR(elements_far_apart, 2)
{
	MPI_Datatype t = make_far(WORDS);

	run_far(t);
	MPI_Type_free(&t);
}

/* As one element with gaps, and the same bytes without gaps at the partner. */
BEHAVIOUR(blocks_far_apart, 2)
{
	char *at = sparse_alloc();
	struct check_usage before;
	MPI_Datatype t;

	MPI_Type_create_hvector(3, WORDS, (MPI_Aint)far, MPI_DOUBLE, &t);
	t = commit(t);
	check_usage(&before);
	for (int round = 0; round < 4; round++) {
		size_t spacing = rank ? WORDS * sizeof(double) : far;

		for (int i = 0; rank == round % 2 && i < 3; i++)
			put(at + i * spacing, round, i);
		MPI_Bcast(at, rank ? 3 * WORDS : 1, rank ? MPI_DOUBLE : t, round % 2,
			  MPI_COMM_WORLD);
		for (int i = 0; i < 3; i++)
			see(at + i * spacing, round, i);
	}
	touched_little(&before);
	MPI_Type_free(&t);
	munmap(at, room);
}

BEHAVIOUR(displacements_beyond_two_gib, 2)
{
#if MPI_VERSION < 4
	check_skip("this MPI has no large-count calls");
#else
	char *out = sparse_alloc(), *in = sparse_alloc();
	MPI_Count counts[MOST_RANKS];
	MPI_Aint displs[MOST_RANKS], bytes[MOST_RANKS];
	MPI_Datatype types[MOST_RANKS];
	struct check_usage before;

	check_usage(&before);
	for (int r = 0; r < size; r++) {
		counts[r] = WORDS;
		displs[r] = (MPI_Aint)((size - r) * far / sizeof(double));
		bytes[r] = (MPI_Aint)((size - r) * far);
		types[r] = MPI_DOUBLE;
	}
	for (int round = 0; round < 3; round++) {
		for (int r = 0; r < size; r++)
			put(out + bytes[r], rank, r + round);
		MPI_Alltoallv_c(out, counts, displs, MPI_DOUBLE, in, counts, displs, MPI_DOUBLE,
				MPI_COMM_WORLD);
		for (int r = 0; r < size; r++)
			see(in + bytes[r], r, rank + round);
		MPI_Allgatherv_c(out + bytes[0], WORDS, MPI_DOUBLE, in, counts, displs, MPI_DOUBLE,
				 MPI_COMM_WORLD);
		for (int r = 0; r < size; r++)
			see(in + bytes[r], r, round);
		MPI_Alltoallw_c(out, counts, bytes, types, in, counts, bytes, types,
				MPI_COMM_WORLD);
		for (int r = 0; r < size; r++)
			see(in + bytes[r], r, rank + round);
	}
	touched_little(&before);
	munmap(out, room);
	munmap(in, room);
#endif
}

BEHAVIOUR(elements_without_bytes_beyond_two_thousand_million, 2)
{
#if MPI_VERSION < 4
	check_skip("this MPI has no large-count calls");
#else
	const MPI_Count many = (MPI_Count)3000000000;
	MPI_Datatype nothing;
	int value = rank + 5, other;

	MPI_Type_contiguous(0, MPI_INT, &nothing);
	nothing = commit(nothing);
	for (int round = 0; round < 3; round++) {
		MPI_Bcast_c(&value, many, nothing, 0, MPI_COMM_WORLD);
		MPI_Allgather_c(&value, many, nothing, &other, many, nothing, MPI_COMM_WORLD);
		MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
		EXPECT(value == 5);
	}
	MPI_Type_free(&nothing);
#endif
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
