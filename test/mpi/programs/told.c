/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs about which users are told something.
 *
 *   told bcast           broadcasts, right
 *   told device LIBRARY  broadcasts a mapping without read permission, with LIBRARY loaded
 *   told ends HOW        broadcasts; then rank 1 ends: abort, kill or exit
 *   told differs HOW     broadcasts; then rank 1 calls something else: HOW is kind, bytes, root,
 *                        request or parts
 */
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 1 << 20, ROUNDS = 8 };

static int rank, size;

static int broadcasts(char *at)
{
	for (int i = 0; i < ROUNDS; i++) {
		if (!rank)
			memset(at, 'a' + i, BYTES);
		MPI_Bcast(at, BYTES, MPI_CHAR, 0, MPI_COMM_WORLD);
		if (at[0] != 'a' + i || at[BYTES - 1] != 'a' + i)
			return 1;
	}
	return 0;
}

static int bcast(char **args)
{
	char *at = malloc(BYTES);
	int failed = broadcasts(at);

	if (args[0])
		((volatile char *)at)[BYTES] = 1; /* for a sanitizer */
	free(at);
	return failed;
}

static int device(char **args)
{
	/* x86-64 reads what it may write */
	char *at = mmap(NULL, BYTES, PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return !dlopen(args[0], RTLD_NOW) || at == MAP_FAILED || broadcasts(at);
}

static int ends(char **args)
{
	char *at = malloc(BYTES);
	int failed = broadcasts(at);

	free(at);
	if (rank != 1)
		return failed;
	if (!strcmp(args[0], "abort"))
		MPI_Abort(MPI_COMM_WORLD, 3);
	if (!strcmp(args[0], "kill"))
		raise(SIGKILL);
	_exit(3);
}

static int exchange(char *at, int bytes)
{
	int counts[2] = { bytes, bytes }, places[2] = { 0, BYTES / 2 };

	return MPI_Alltoallv(at, counts, places, MPI_CHAR, at + BYTES, counts, places, MPI_CHAR,
			     MPI_COMM_WORLD);
}

static int request_then_wait(char *at, int is_other)
{
	MPI_Request request;
	int failed = is_other ? MPI_Iallreduce(MPI_IN_PLACE, at, BYTES / 8, MPI_INT, MPI_MAX,
					       MPI_COMM_WORLD, &request)
			      : MPI_Ibcast(at, BYTES, MPI_CHAR, 0, MPI_COMM_WORLD, &request);

	return failed || MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static int differs(char **args)
{
	int failed, is_other = rank == 1, is_bytes = !strcmp(args[0], "bytes");
	char *at = calloc(2, BYTES);
	MPI_Comm others;

	MPI_Comm_dup(MPI_COMM_WORLD, &others);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	failed = broadcasts(at);
	if (failed)
		return failed;
	if (is_other && !strcmp(args[0], "kind"))
		failed = MPI_Allreduce(MPI_IN_PLACE, at, BYTES / 8, MPI_INT, MPI_MAX,
				       MPI_COMM_WORLD);
	else if (!strcmp(args[0], "parts"))
		failed = exchange(at, is_other ? BYTES / 4 : BYTES / 8);
	else if (!strcmp(args[0], "request"))
		failed = request_then_wait(at, is_other);
	else
		failed = MPI_Bcast(at, is_other && is_bytes ? BYTES + BYTES / 8 : BYTES, MPI_CHAR,
				   is_other && !is_bytes, MPI_COMM_WORLD);
	printf("rank %d gets %s\n", rank, failed ? "an error" : "none");
	MPI_Barrier(others);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(char **args);
} modes[] = { { "bcast", bcast }, { "device", device }, { "ends", ends },
	      { "differs", differs } };

int main(int argc, char **argv)
{
	int failed = 1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
		if (!strcmp(argv[1], modes[i].name))
			failed = modes[i].run(argv + 2);
	printf("%s told %d of %d\n", failed ? "not ok" : "ok", rank, size);
	MPI_Finalize();
	return failed;
}
