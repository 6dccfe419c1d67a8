/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Programs about which users are told something.
 *
 *   told bcast           broadcasts, right
 *   told device LIBRARY  broadcasts a mapping without read permission, with LIBRARY loaded
 *   told ends HOW        broadcasts; then rank 1 ends: abort, kill or exit
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

static const struct {
	const char *name;
	int (*run)(char **args);
} modes[] = { { "bcast", bcast }, { "device", device }, { "ends", ends } };

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
