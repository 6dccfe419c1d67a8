/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu LIBRARY HOW: broadcasts from memory of which the CUDA driver in LIBRARY knows. HOW:
 *   loaded      CUDA is initialised, and nothing is registered
 *   registered  the buffer is registered
 *   later       the buffer is registered after the first broadcasts, in which it is adopted
 *   kernels     kernels write what the root sends and read what arrives, in memory that is not
 *               registered: a GPU with access to pageable memory only
 *
 * LIBRARY is that of the tests, or a GPU's:
 *   mpiexec -n 2 sluice run --set EARLY=on --set STATS=- gpu libcuda.so.1 kernels
 */
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 4 << 20, ROUNDS = 8, STRIDE = 509, PAGEABLE_MEMORY_ACCESS = 88 };

/* A kernel of one thread: adds `add` to each STRIDE-th of `n` bytes, and stores their sum. */
static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
			  ".visible .entry touch(.param .u64 at, .param .u64 n, .param .u64 out,\n"
			  "                      .param .u64 add) {\n"
			  ".reg .pred %p; .reg .b64 %at, %end, %out, %add, %sum, %byte;\n"
			  "ld.param.u64 %at, [at]; ld.param.u64 %end, [n];\n"
			  "ld.param.u64 %out, [out]; ld.param.u64 %add, [add];\n"
			  "add.u64 %end, %at, %end; mov.u64 %sum, 0;\n"
			  "NEXT: setp.ge.u64 %p, %at, %end; @%p bra DONE;\n"
			  "ld.u8 %byte, [%at]; add.u64 %byte, %byte, %add;\n"
			  "setp.eq.u64 %p, %add, 0; @%p bra READ; st.u8 [%at], %byte;\n"
			  "READ: and.b64 %byte, %byte, 255; add.u64 %sum, %sum, %byte;\n"
			  "add.u64 %at, %at, 509; bra NEXT;\n"
			  "DONE: st.u64 [%out], %sum; ret; }\n";

static struct {
	int (*init)(unsigned);
	int (*host_register)(void *, size_t, unsigned);
	int (*fake_read)(void *);
	int (*context_create)(void **, unsigned, int);
	int (*alloc)(uint64_t *, size_t);
	int (*to_host)(void *, uint64_t, size_t);
	int (*host_pointer)(uint64_t *, void *, unsigned);
	int (*attribute)(int *, int, int);
	int (*module_load)(void **, const void *);
	int (*function_get)(void **, void *, const char *);
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
		      void *, void **, void **);
} cu;
static const char *const names[] = {
	"cuInit",
	"cuMemHostRegister",
	"fake_gpu_read",
	"cuCtxCreate_v2",
	"cuMemAlloc_v2",
	"cuMemcpyDtoH_v2",
	"cuMemHostGetDevicePointer_v2",
	"cuDeviceGetAttribute",
	"cuModuleLoadData",
	"cuModuleGetFunction",
	"cuLaunchKernel",
};
static void *function;
static uint64_t result;

static int load(const char *library)
{
	void *driver = dlopen(library, RTLD_NOW), *at[sizeof names / sizeof *names], *module;

	if (!driver)
		return !!fprintf(stderr, "%s\n", dlerror());
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		at[i] = dlsym(driver, names[i]);
	memcpy(&cu, at, sizeof cu);
	if (cu.init(0))
		return 1;
	return !cu.fake_read &&
	       (cu.context_create(&module, 0, 0) || cu.alloc(&result, sizeof result) ||
		cu.module_load(&module, ptx) || cu.function_get(&function, module, "touch"));
}

/* Returns: the sum; -1: the kernel failed. */
static int64_t run_kernel(uint64_t at, uint64_t n, uint64_t add)
{
	void *parameters[] = { &at, &n, &result, &add };
	int64_t sum = -1;

	if (cu.launch(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL) ||
	    cu.to_host(&sum, result, sizeof sum))
		return -1;
	return sum;
}

static int gpu_read(char *at)
{
	uint64_t device_at;

	if (cu.fake_read)
		return cu.fake_read(at);
	return cu.host_pointer(&device_at, at, 0) ? -1 : (int)run_kernel(device_at, 1, 0);
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

static int kernels(char *at, int rank)
{
	const int64_t touched = (BYTES + STRIDE - 1) / STRIDE;
	int reads_pageable = 0;

	if (cu.attribute(&reads_pageable, PAGEABLE_MEMORY_ACCESS, 0) || !reads_pageable)
		return !!fprintf(stderr, "this GPU does not access pageable memory\n");
	for (int i = 1; i <= 2 * ROUNDS; i++) {
		if (rank == i % 2 && run_kernel((uintptr_t)at, BYTES, 1) != i * touched)
			return 1;
		MPI_Bcast(at, BYTES, MPI_CHAR, i % 2, MPI_COMM_WORLD);
		if (run_kernel((uintptr_t)at, BYTES, 0) != i * touched || at[STRIDE] != i)
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
	char *at;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(at, 0, BYTES);
	failed = load(argv[1]);
	if (!failed && !strcmp(argv[2], "kernels"))
		failed = kernels(at, rank);
	else
		failed = failed ||
			 (!strcmp(argv[2], "registered") && cu.host_register(at, BYTES, 0)) ||
			 broadcasts(at, rank, 0) || (is_later && cu.host_register(at, BYTES, 0)) ||
			 broadcasts(at, rank, ROUNDS) ||
			 (strcmp(argv[2], "loaded") && gpu_is_wrong(at, is_later));
	if (failed)
		MPI_Abort(MPI_COMM_WORLD, 1);
	MPI_Barrier(MPI_COMM_WORLD);
	printf("ok gpu %d\n", rank);
	MPI_Finalize();
	return failed;
}
