/* SPDX-License-Identifier: BSD-3-Clause */
/* Rank 0 comes 4 ms late to each of some short collectives. With an argument each rank computes
 * for 4 ms before. */
#include <mpi.h>
#include <time.h>
#include <unistd.h>

static void compute(void)
{
	clock_t until = clock() + CLOCKS_PER_SEC / 250;

	while (clock() < until)
		continue;
}

int main(int argc, char **argv)
{
	int one = 1, sum, rank;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; i < 20; i++) {
		if (argc > 1)
			compute();
		else if (!rank)
			usleep(4000);
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	}
	MPI_Finalize();
	return sum != 2;
}
