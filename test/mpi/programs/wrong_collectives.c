/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wrong collectives, on all ranks alike: each rank says class and text of the error, and test/mpi
 * compares what is said with and without Sluice. Afterwards the communicator still works.
 *
 * Run alone: mpiexec -n 2 sluice run wrong_collectives reductions
 */
#include "check.h"

enum { COUNT = 5000 };

static int *out, *in, counts[64], displs[64];

static void start(void)
{
	out = check_alloc((size_t)size * COUNT * sizeof(int));
	in = check_alloc((size_t)size * COUNT * sizeof(int));
	for (int i = 0; i < size * COUNT; i++)
		out[i] = i;
	for (int r = 0; r < size; r++) {
		counts[r] = COUNT;
		displs[r] = r * COUNT;
	}
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

static void finish(void)
{
	EXPECT(MPI_Allreduce(out, in, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
	EXPECT(in[COUNT - 1] == size * (COUNT - 1));
	EXPECT(MPI_Alltoall(out, COUNT, MPI_INT, in, COUNT, MPI_INT, MPI_COMM_WORLD) ==
	       MPI_SUCCESS);
	EXPECT(in[(size - 1) * COUNT] == rank * COUNT);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
	free(out);
	free(in);
}

BEHAVIOUR(reductions, 2)
{
	MPI_Comm w = MPI_COMM_WORLD;
	MPI_Datatype pair;

	start();
	MPI_Type_contiguous(2, MPI_INT, &pair);
	check_say_error("no operation", MPI_Allreduce(out, in, COUNT, MPI_INT, MPI_OP_NULL, w));
	check_say_error("not committed", MPI_Scan(out, in, COUNT / 2, pair, MPI_SUM, w));
	check_say_error("bits of reals",
			MPI_Allreduce(out, in, COUNT / 2, MPI_DOUBLE, MPI_BXOR, w));
	check_say_error("places of integers", MPI_Exscan(out, in, COUNT, MPI_INT, MPI_MINLOC, w));
	check_say_error("root", MPI_Reduce(out, in, COUNT, MPI_INT, MPI_SUM, size, w));
	check_say_error("no communicator",
			MPI_Allreduce(out, in, COUNT, MPI_INT, MPI_SUM, MPI_COMM_NULL));
	counts[size - 1] = -1;
	check_say_error("negative part", MPI_Reduce_scatter(out, in, counts, MPI_INT, MPI_SUM, w));
	MPI_Type_free(&pair);
	finish();
}

BEHAVIOUR(exchanges, 2)
{
	MPI_Comm w = MPI_COMM_WORLD;
	MPI_Datatype pair;

	start();
	MPI_Type_contiguous(2, MPI_INT, &pair);
	check_say_error("scatter root",
			MPI_Scatter(out, COUNT, MPI_INT, in, COUNT, MPI_INT, -9, w));
	check_say_error("scatter count", MPI_Scatter(out, -1, MPI_INT, in, -1, MPI_INT, 0, w));
	check_say_error("allgather type", MPI_Allgather(out, COUNT, MPI_DATATYPE_NULL, in, COUNT,
							MPI_DATATYPE_NULL, w));
	check_say_error("alltoall not committed",
			MPI_Alltoall(out, COUNT / 2, pair, in, COUNT / 2, pair, w));
	check_say_error("alltoall count", MPI_Alltoall(out, -3, MPI_INT, in, -3, MPI_INT, w));
	counts[0] = -2;
	check_say_error("gatherv part",
			MPI_Gatherv(out, -2, MPI_INT, in, counts, displs, MPI_INT, 0, w));
	check_say_error("allgatherv part",
			MPI_Allgatherv(out, COUNT, MPI_INT, in, counts, displs, MPI_INT, w));
	check_say_error("alltoallv part", MPI_Alltoallv(out, counts, displs, MPI_INT, in, counts,
							displs, MPI_INT, w));
	MPI_Type_free(&pair);
	finish();
}

/* Some libraries refuse a buffer that is both, others do as they are told. */
BEHAVIOUR(one_buffer_for_both, 2)
{
	start();
	check_say_error("allreduce",
			MPI_Allreduce(out, out, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
	check_say_error("scan", MPI_Scan(out, out, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
	check_say_error("exscan", MPI_Exscan(in, in, COUNT, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
	finish();
}

/* The rank's own part of one buffer for both: of the root alone where only its call is wrong. */
BEHAVIOUR(own_part_in_both_buffers, 2)
{
	MPI_Comm w = MPI_COMM_WORLD;
	int *own, last = size - 1, code;
	MPI_Datatype types[64];

	start();
	own = out + rank * COUNT;
	for (int r = 0; r < size; r++)
		types[r] = MPI_INT;
	code = MPI_Allgather(own, COUNT, MPI_INT, out, COUNT, MPI_INT, w);
	check_say_error("allgather", code);
	check_say_error("allgatherv",
			MPI_Allgatherv(own, COUNT, MPI_INT, out, counts, displs, MPI_INT, w));
	check_say_error("alltoall", MPI_Alltoall(in, COUNT, MPI_INT, in, COUNT, MPI_INT, w));
	check_say_error("alltoallv", MPI_Alltoallv(in, counts, displs, MPI_INT, in, counts, displs,
						   MPI_INT, w));
	for (int r = 0; r < size; r++)
		displs[r] *= (int)sizeof(int);
	check_say_error("alltoallw",
			MPI_Alltoallw(in, counts, displs, types, in, counts, displs, types, w));
	for (int r = 0; r < size; r++)
		displs[r] = r * COUNT;
	if (code && rank == last) { /* without the check the root would wait */
		check_say_error("gather", MPI_Gather(own, COUNT, MPI_INT, out, COUNT, MPI_INT, last,
						     w));
		check_say_error("gatherv", MPI_Gatherv(own, COUNT, MPI_INT, out, counts, displs,
						       MPI_INT, last, w));
		check_say_error("scatter", MPI_Scatter(out, COUNT, MPI_INT, own, COUNT, MPI_INT,
						       last, w));
		check_say_error("scatterv", MPI_Scatterv(out, counts, displs, MPI_INT, own, COUNT,
							 MPI_INT, last, w));
	}
	finish();
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
