/* SPDX-License-Identifier: BSD-3-Clause */
/* The sessions model: no MPI_Init, twice in a row. Prints "ok sessions". */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if MPI_VERSION >= 4
static int one_session(int round)
{
	enum { BYTES = 500000 };
	MPI_Session session;
	MPI_Group group;
	MPI_Comm comm;
	int rank, size, bad = 0, all = 0;
	char *buf = malloc(BYTES), *recv;

	if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session))
		return 77;
	MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
	MPI_Comm_create_from_group(group, "check", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	recv = malloc((size_t)BYTES * size);
	for (int i = 0; i < 6; i++) {
		memset(buf, rank == i % size ? 10 * round + i : 0, BYTES);
		MPI_Bcast(buf, BYTES, MPI_BYTE, i % size, comm);
		for (int k = 0; k < BYTES; k++)
			bad += buf[k] != 10 * round + i;
		memset(buf, 50 + rank, BYTES);
		MPI_Gather(buf, BYTES, MPI_BYTE, recv, BYTES, MPI_BYTE, 0, comm);
		for (int k = 0; !rank && k < BYTES * size; k++)
			bad += recv[k] != 50 + k / BYTES;
	}
	MPI_Allreduce(&bad, &all, 1, MPI_INT, MPI_SUM, comm);
	if (!rank && round)
		printf("%s sessions\n", all ? "fail" : "ok");
	MPI_Group_free(&group);
	MPI_Comm_free(&comm);
	MPI_Session_finalize(&session);
	free(buf);
	free(recv);
	return all != 0;
}
#endif

int main(void)
{
#if MPI_VERSION >= 4
	int rc = one_session(0);

	return rc ? rc : one_session(1);
#else
	puts("skip sessions: this MPI has none");
	return 0;
#endif
}
