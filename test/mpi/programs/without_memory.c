/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank that cannot take part in a nonblocking collective (SLUICE_FAULT): all ranks get an error,
 * nobody waits for ever, and no later one succeeds: the ranks would number it differently. */
#include "check.h"

#include <setjmp.h>
#include <unistd.h>

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

/* A message to oneself. Returns: of the receive into so many bytes. */
static MPI_Request message(int bytes, MPI_Comm comm)
{
	static char sent[8], received[8];
	MPI_Request in, out;

	MPI_Irecv(received, bytes, MPI_BYTE, 0, 0, comm, &in);
	MPI_Isend(sent, sizeof sent, MPI_BYTE, 0, 0, comm, &out);
	MPI_Wait(&out, MPI_STATUS_IGNORE);
	return in;
}

/* One call for a failed collective and a failed message: both errors, and neither is another
 * request's later. */
BEHAVIOUR(beside_the_error_of_a_message, 2)
{
	int *in = check_alloc(N * sizeof(int)), *out = check_alloc(N * sizeof(int));
	MPI_Status status[2];
	MPI_Comm comm, own;
	int failed = 0, rc;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_dup(MPI_COMM_SELF, &own);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	for (int i = 0; i < 4; i++)
		MPI_Allreduce(in, out, N, MPI_INT, MPI_SUM, comm);
	for (int i = 0; i < MOST && !failed; i++) {
		MPI_Request r[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };

		rc = MPI_Iallreduce(in, out, N, MPI_INT, MPI_SUM, comm, &r[0]);
		r[1] = message(4, own);
		status[0].MPI_ERROR = status[1].MPI_ERROR = MPI_SUCCESS;
		EXPECT(MPI_Waitall(2, r, status) == MPI_ERR_IN_STATUS);
		EXPECT(r[0] == MPI_REQUEST_NULL && r[1] == MPI_REQUEST_NULL);
		EXPECT(status[1].MPI_ERROR != MPI_SUCCESS);
		failed = rc || status[0].MPI_ERROR;
	}
	EXPECT(failed);
	for (int i = 0; i < 8; i++) {
		MPI_Request r = message(8, own);

		EXPECT(MPI_Wait(&r, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	}
	MPI_Comm_free(&own);
	MPI_Comm_free(&comm);
	free(in);
	free(out);
}

static jmp_buf out_of_call;

static void leave(MPI_Comm *comm, int *code, ...)
{
	(void)comm;
	(void)code;
	longjmp(out_of_call, 1);
}

/* As an exception of C++ does. The request has ended then, and the other ranks know. */
BEHAVIOUR(after_a_handler_that_leaves_the_call, 2)
{
	static MPI_Request request;
	static int *in, *out, i;
	MPI_Errhandler own;
	MPI_Comm comm;

	in = check_alloc(N * sizeof(int));
	out = check_alloc(N * sizeof(int));
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	for (i = 0; i < 4; i++)
		MPI_Allreduce(in, out, N, MPI_INT, MPI_SUM, comm);
	MPI_Comm_create_errhandler(leave, &own);
	MPI_Comm_set_errhandler(comm, own);
	for (i = 0; i < MOST && !setjmp(out_of_call); i++) {
		request = MPI_REQUEST_NULL; /* stays so where the call itself fails */
		MPI_Iallreduce(in, out, N, MPI_INT, MPI_SUM, comm, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	EXPECT(i < MOST);
	alarm(60);
	if (request != MPI_REQUEST_NULL)
		EXPECT(MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS);
	EXPECT(request == MPI_REQUEST_NULL);
	alarm(0);
	MPI_Errhandler_free(&own);
	MPI_Comm_free(&comm);
	free(in);
	free(out);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
