// SPDX-License-Identifier: BSD-3-Clause
// A C++ program: containers as buffers, exceptions, destructors, static objects. Prints "ok plus".
#include <mpi.h>

#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <vector>

static std::vector<double> at_exit(300000, 1.0); // destroyed after MPI_Finalize

static void use(int rank, int size)
{
	for (int round = 0; round < 8; round++) {
		std::vector<double> data(150000 + 1000 * round);
		int root = round % size;

		if (rank == root)
			std::iota(data.begin(), data.end(), round);
		MPI_Bcast(data.data(), (int)data.size(), MPI_DOUBLE, root, MPI_COMM_WORLD);
		for (size_t i = 0; i < data.size(); i++)
			if (data[i] != (double)i + round)
				throw std::runtime_error("broadcast");
		data.resize(data.size() * 2, 0.0);
		MPI_Bcast(at_exit.data(), (int)at_exit.size(), MPI_DOUBLE, root, MPI_COMM_WORLD);

		std::vector<double> mine(100000, rank + 0.5), all(rank == root ? 100000 * size : 0);
		MPI_Gather(mine.data(), 100000, MPI_DOUBLE, all.data(), 100000, MPI_DOUBLE, root,
			   MPI_COMM_WORLD);
		for (size_t i = 0; i < all.size(); i++)
			if (all[i] != (double)(i / 100000) + 0.5)
				throw std::runtime_error("gather");
	}
}

int main(int argc, char **argv)
{
	int rank, size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	try {
		use(rank, size);
	} catch (const std::exception &e) {
		std::printf("fail plus: %s\n", e.what());
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	if (!rank)
		std::printf("ok plus\n");
	MPI_Finalize();
	return 0;
}
