/* SPDX-License-Identifier: BSD-3-Clause */
/* A collective in MPI_Finalize, which returns early, and a freed communicator whose last message
 * ends meanwhile. Prints "ok finalize". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BYTES = 2 << 20, TIMES = 4, LATE_US = 300000, LATER_US = 100000 };

static MPI_Comm comm;
static char *data;

static int broadcast(MPI_Comm self, int keyval, void *value, void *extra)
{
	MPI_Bcast(data, BYTES, MPI_BYTE, 0, comm);
	return MPI_SUCCESS;
}

int main(void)
{
	MPI_Comm freed;
	MPI_Request request;
	char *message;
	int rank, keyval;

	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	data = calloc(1, BYTES);
	message = calloc(1, BYTES);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_dup(MPI_COMM_WORLD, &freed);
	MPI_Bcast(message, BYTES, MPI_BYTE, 0, freed);
	for (int i = 0; i < TIMES; i++)
		MPI_Bcast(data, BYTES, MPI_BYTE, 0, comm);
	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, broadcast, &keyval, NULL);
	MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
	if (rank == 1) {
		MPI_Issend(message, BYTES, MPI_BYTE, 0, 0, freed, &request);
		MPI_Request_free(&request);
	} else if (!rank) {
		MPI_Irecv(message, BYTES, MPI_BYTE, 1, 0, freed, &request);
	}
	MPI_Comm_free(&freed);
	if (!rank) { /* rank 1 is in MPI_Finalize when its message is read */
		usleep(LATE_US);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		usleep(LATER_US);
	}
	MPI_Finalize();
	if (!rank)
		puts("ok finalize");
	return 0;
}
