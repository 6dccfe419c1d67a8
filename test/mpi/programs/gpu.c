/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu LIBRARY HOW: broadcasts from memory of which the CUDA driver in LIBRARY knows. HOW:
 *   loaded      CUDA is initialised, and nothing is registered
 *   registered  the buffer is registered
 *   later       the buffer is registered after the first broadcasts, in which it is adopted
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 4 << 20, ROUNDS = 8 };

static int (*cu_init)(unsigned), (*cu_register)(void *, size_t, unsigned), (*gpu_read)(void *);

static void *find(void *driver, const char *name, void *out)
{
	void *at = dlsym(driver, name);

	memcpy(out, &at, sizeof at);
	return at;
}

static int broadcasts(char *at, int rank, int first)
{
	for (int i = first; i < first + ROUNDS; i++) {
		if (!rank)
			memset(at, 'a' + i, BYTES);
		MPI_Bcast(at, BYTES, MPI_CHAR, 0, MPI_COMM_WORLD);
		if (at[0] != 'a' + i || at[BYTES - 1] != 'a' + i)
			return 1;
	}
	return 0;
}

/* Does the GPU still read the page that is mapped? Private pages would be copied on write after a
 * fork: a pipe pins less than a GPU. */
static int gpu_is_wrong(char *at, int forks)
{
	pid_t pid = forks ? fork() : 1;

	if (!pid)
		_exit(0);
	if (forks)
		waitpid(pid, NULL, 0);
	at[0]++;
	return gpu_read(at) != at[0];
}

int main(int argc, char **argv)
{
	int rank, failed, is_later = !strcmp(argv[2], "later");
	void *driver = dlopen(argv[1], RTLD_NOW);
	char *at;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(at, 0, BYTES);
	failed = !driver || !find(driver, "cuInit", &cu_init) ||
		 !find(driver, "cuMemHostRegister", &cu_register) ||
		 !find(driver, "fake_gpu_read", &gpu_read) || cu_init(0) ||
		 (!strcmp(argv[2], "registered") && cu_register(at, BYTES, 0)) ||
		 broadcasts(at, rank, 0) || (is_later && cu_register(at, BYTES, 0)) ||
		 broadcasts(at, rank, ROUNDS) ||
		 (strcmp(argv[2], "loaded") && gpu_is_wrong(at, is_later));
	MPI_Barrier(MPI_COMM_WORLD);
	if (!failed)
		printf("ok gpu %d\n", rank);
	MPI_Finalize();
	return failed;
}
