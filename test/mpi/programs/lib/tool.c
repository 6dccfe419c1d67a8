/* SPDX-License-Identifier: BSD-3-Clause */
/* A PMPI tool as profilers are: counts broadcasts and gathers, tells at the end. */
#include <mpi.h>
#include <stdio.h>

static int bcasts, gathers;

int MPI_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
	bcasts++;
	return PMPI_Bcast(buf, count, type, root, comm);
}

int MPI_Gather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
	       MPI_Datatype recv_type, int root, MPI_Comm comm)
{
	gathers++;
	return PMPI_Gather(send, send_count, send_type, recv, recv_count, recv_type, root, comm);
}

int MPI_Finalize(void)
{
	fprintf(stderr, "tool: %d broadcasts, %d gathers\n", bcasts, gathers);
	return PMPI_Finalize();
}
