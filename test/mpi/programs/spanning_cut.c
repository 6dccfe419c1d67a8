/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A network that breaks in the middle: spanning_cut KIND BYTES READY. Collectives without end over
 * a communicator whose errors are returned; rank 0 makes the file READY when the first has ended. A
 * rank that gets an error says so and goes. KIND: bcast, allreduce, gather, iallreduce; or
 * "finite-allreduce": 60 of them, each checked; or "killed-allreduce": the last rank is killed in
 * one of them.
 */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static int run(MPI_Comm comm, const char *kind, int n, int *in, int *out, int me, int round)
{
	MPI_Request request;
	int rc, p;

	MPI_Comm_size(comm, &p);
	for (int i = 0; i < n; i++)
		in[i] = me + i + round;
	if (!strcmp(kind, "bcast"))
		return MPI_Bcast(in, n, MPI_INT, round % p, comm);
	if (!strcmp(kind, "gather"))
		return MPI_Gather(in, n, MPI_INT, out, n, MPI_INT, round % p, comm);
	if (!strcmp(kind, "iallreduce")) {
		rc = MPI_Iallreduce(in, out, n, MPI_INT, MPI_SUM, comm, &request);
		return rc ? rc : MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	rc = MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, comm);
	for (int i = 0; !rc && i < n; i++) {
		if (out[i] == p * (p - 1) / 2 + p * (i + round))
			continue;
		printf("wrong: rank %d round %d element %d is %d\n", me, round, i, out[i]);
		MPI_Abort(comm, 9);
	}
	return rc;
}

static void *kill_soon(void *arg)
{
	(void)arg;
	usleep(30000);
	kill(getpid(), SIGKILL);
	return NULL;
}

static void start_kill(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, kill_soon, NULL))
		kill(getpid(), SIGKILL);
}

int main(int argc, char **argv)
{
	bool is_finite = argc > 1 && !strncmp(argv[1], "finite-", 7),
	     is_killed = argc > 1 && !strncmp(argv[1], "killed-", 7);
	int me, p, got, rc = 0, n = argc > 2 ? atoi(argv[2]) / (int)sizeof(int) : 0, length = 0;
	char text[MPI_MAX_ERROR_STRING] = "";
	MPI_Comm comm;
	int *in, *out;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &got);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &p);
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	in = malloc((size_t)n * sizeof(*in) + 1);
	out = malloc((size_t)n * (size_t)p * sizeof(*out) + 1);
	for (int round = 0; !rc && !(is_finite && round == 60); round++) {
		if (is_killed && round == 1 && me == p - 1)
			start_kill();
		rc = run(comm, is_finite || is_killed ? argv[1] + 7 : argv[1], n, in, out, me,
			 round);
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
