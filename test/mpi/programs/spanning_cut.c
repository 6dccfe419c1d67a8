/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A network that breaks in the middle: spanning_cut KIND BYTES READY. Collectives without end over a communicator whose
 * errors are returned; rank 0 makes the file READY when the first has ended. A rank that gets an error says so and goes.
 * KIND: bcast, allreduce; or "finite-allreduce": 60 of them, each checked.
 */
#include "check.h"

#include <fcntl.h>
#include <unistd.h>

static int run(MPI_Comm comm, const char *kind, int n, int *in, int *out, int me, int round)
{
	int rc, p;

	MPI_Comm_size(comm, &p);
	for (int i = 0; i < n; i++)
		in[i] = me + i + round;
	if (!strcmp(kind, "bcast"))
		return MPI_Bcast(in, n, MPI_INT, round % p, comm);
	rc = MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, comm);
	for (int i = 0; !rc && i < n; i++) {
		if (out[i] == p * (p - 1) / 2 + p * (i + round))
			continue;
		printf("wrong: rank %d round %d element %d is %d\n", me, round, i, out[i]);
		MPI_Abort(comm, 9);
	}
	return rc;
}

int main(int argc, char **argv)
{
	bool is_finite = argc > 1 && !strncmp(argv[1], "finite-", 7);
	int me, rc = 0, n = argc > 2 ? atoi(argv[2]) / (int)sizeof(int) : 0, length = 0;
	char text[MPI_MAX_ERROR_STRING] = "";
	MPI_Comm comm;
	int *in, *out;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	in = malloc((size_t)n * sizeof(*in) + 1);
	out = malloc((size_t)n * sizeof(*out) + 1);
	for (int round = 0; !rc && !(is_finite && round == 60); round++) {
		rc = run(comm, is_finite ? argv[1] + 7 : argv[1], n, in, out, me, round);
		if (!rc && !round && !me)
			close(open(argv[3], O_CREAT | O_WRONLY, 0600));
	}
	if (rc) {
		MPI_Error_string(rc, text, &length);
		printf("error: rank %d: %s\n", me, text);
		fflush(stdout);
		_exit(3);
	}
	printf("ok: rank %d\n", me);
	free(in);
	free(out);
	MPI_Comm_free(&comm);
	return MPI_Finalize();
}
