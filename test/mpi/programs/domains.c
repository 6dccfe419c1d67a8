/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sums that depend on how they are grouped: in two levels each group of neighbouring ranks is added
 * up first, in their order, then the groups are, in theirs. So it is on all ranks, each time, for
 * all kinds and wherever the memory is.
 *
 * EXPECTED_DOMAINS: how many groups.
 * Run alone: SLUICE_COLL_DOMAINS=2 EXPECTED_DOMAINS=2 mpiexec -n 4 sluice run domains
 */
#include "check.h"

enum { MOST = 120000, TIMES = 4 };

static float *send, *recv, *want;

/* From 1 to many thousands, with fractions: what is added when decides what is lost. */
static float brought(int r, int i)
{
	return (float)(1 << (r * 7 + i) % 17) + (float)(i % 11) * 0.37f;
}

/* Groups that would have one rank each are no groups. */
static float expected(int i, int groups)
{
	float sum = 0;

	groups = groups < size ? groups : 1;
	for (int g = 0, r = 0; g < groups; g++) {
		float part = brought(r, i);

		for (r++; r < size && r * groups / size == g; r++)
			part += brought(r, i);
		sum = g ? sum + part : part;
	}
	return sum;
}

static void begin(float *in, int n)
{
	for (int i = 0; i < n; i++)
		in[i] = brought(rank, i);
	memset(in == recv ? send : recv, 0x77, (size_t)n * sizeof(*recv));
}

static void see(const char *what, int first, int n)
{
	for (int i = 0; i < n; i++)
		if (memcmp(&recv[i], &want[first + i], sizeof(recv[0]))) {
			check_fail("%s of %d: element %d is %.9g, not %.9g", what, n, first + i,
				   (double)recv[i], (double)want[first + i]);
			return;
		}
}

static void each_kind(int n, bool in_place)
{
	float *in = in_place ? recv : send;

	begin(in, n);
	MPI_Allreduce(in_place ? MPI_IN_PLACE : in, recv, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	see("allreduce", 0, n);
	for (int root = 0; root < size; root++) {
		bool here = in_place && rank == root;

		begin(here ? recv : send, n);
		MPI_Reduce(here ? MPI_IN_PLACE : send, recv, n, MPI_FLOAT, MPI_SUM, root,
			   MPI_COMM_WORLD);
		if (rank == root)
			see("reduce", 0, n);
	}
}

static void scattered(int n, bool in_place)
{
	int counts[64], first = 0, left = n;

	for (int r = 0; r < size; r++) {
		counts[r] = r == size - 1 ? left : r % 3 * n / (2 * size);
		first += r < rank ? counts[r] : 0;
		left -= counts[r];
	}
	begin(in_place ? recv : send, n);
	MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : send, recv, counts, MPI_FLOAT, MPI_SUM,
			   MPI_COMM_WORLD);
	see("reduce_scatter", first, counts[rank]);
	n -= n % size;
	begin(in_place ? recv : send, n);
	MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : send, recv, n / size, MPI_FLOAT, MPI_SUM,
				 MPI_COMM_WORLD);
	see("reduce_scatter_block", rank * (n / size), n / size);
}

static void run_all(void (*each)(int n, bool in_place))
{
	static const int counts[] = { 5, 3000, MOST };
	int groups = (int)check_env("EXPECTED_DOMAINS", 0);

	if (!groups) {
		check_skip("how the library groups is not known");
		return;
	}
	send = check_alloc(MOST * sizeof(*send));
	recv = check_alloc(MOST * sizeof(*recv));
	want = check_alloc(MOST * sizeof(*want));
	for (int i = 0; i < MOST; i++)
		want[i] = expected(i, groups);
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		for (int k = 0; k < TIMES; k++)
			each(counts[i], k % 2);
	free(send);
	free(recv);
	free(want);
}

BEHAVIOUR(sums_of_groups, 2) { run_all(each_kind); }
BEHAVIOUR(scattered_sums_of_groups, 2) { run_all(scattered); }

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
