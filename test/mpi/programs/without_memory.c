/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank that cannot take part in a nonblocking collective (SLUICE_FAULT): all ranks get an error,
 * nobody waits for ever, and no later one succeeds: the ranks would number it differently. */
#include "check.h"

enum { N = 2000, MOST = 12 };

static bool sum_fails(const int *in, int *out, MPI_Comm comm)
{
	MPI_Request request = MPI_REQUEST_NULL;

	return MPI_Iallreduce(in, out, N, MPI_INT, MPI_SUM, comm, &request) ||
	       MPI_Wait(&request, MPI_STATUS_IGNORE);
}

BEHAVIOUR(all_are_told, 2)
{
	int *in = check_alloc(N * sizeof(int)), *out = check_alloc(N * sizeof(int)), told = 0;
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	for (int i = 0; i < N; i++)
		in[i] = i;
	for (int i = 0; i < 4; i++) /* it is connected then */
		MPI_Allreduce(in, out, N, MPI_INT, MPI_SUM, comm);
	for (int i = 0; i < MOST && !told; i++)
		told = sum_fails(in, out, comm);
	EXPECT(told);
	EXPECT(sum_fails(in, out, comm));
	MPI_Comm_free(&comm);
	free(in);
	free(out);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
