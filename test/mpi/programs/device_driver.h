/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The libcuda.so.1 that FAKE_CUDA_LIBRARY names, as device.c uses it. That of the tests counts and
 * fails; that of a GPU does not, and a program that uses it only checks the data:
 *
 *   FAKE_CUDA_LIBRARY=libcuda.so.1 mpiexec -n 2 sluice run \
 *     --set COLL=bcast:on,gather:on,scatter:on,allgather:on,alltoall:on,device:on \
 *     --set STATS=- device each_collective freed_and_allocated_again threads
 */
#ifndef DEVICE_DRIVER_H
#define DEVICE_DRIVER_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	int (*init)(unsigned);
	int (*context_create)(void **, unsigned, int);
	int (*context_set)(void *);
	int (*alloc)(uintptr_t *, size_t);
	int (*alloc_vmm)(uintptr_t *, size_t);
	int (*free)(uintptr_t);
	int (*to_device)(uintptr_t, const void *, size_t);
	int (*to_host)(void *, uintptr_t, size_t);
	int (*on_device)(uintptr_t, uintptr_t, size_t);
	int (*calls)(const char *);
	void (*fail)(const char *, int);
	int (*hide)(void);
	int (*open)(void);
	void (*capture)(int);
} cu;
static const char *const names[] = {
	"cuInit",          "cuCtxCreate_v2",      "cuCtxSetCurrent",
	"cuMemAlloc_v2",   "fake_cuda_alloc_vmm", "cuMemFree_v2",
	"cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2",     "cuMemcpyDtoD_v2",
	"fake_cuda_calls", "fake_cuda_fail",      "fake_cuda_hide",
	"fake_cuda_open",  "fake_cuda_capture",
};
enum { FIRST_FAKE = 9 }; /* and alloc_vmm */
static void *context;
static bool is_gpu;

static int no_alloc(uintptr_t *out, size_t bytes) { return 1; }
static int no_calls(const char *name) { return 0; }
static void no_fail(const char *name, int n) { return; }
static int no_count(void) { return 0; }
static void no_capture(int is) { return; }

static void load(void)
{
	void *driver = dlopen(getenv("FAKE_CUDA_LIBRARY"), RTLD_NOW),
	     *at[sizeof names / sizeof *names];

	if (!driver)
		exit(fprintf(stderr, "%s\n", dlerror()));
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		at[i] = dlsym(driver, names[i]);
	memcpy(&cu, at, sizeof cu);
	is_gpu = !at[FIRST_FAKE] || getenv("FAKE_CUDA_IS_GPU");
	if (is_gpu) {
		cu.alloc_vmm = no_alloc;
		cu.calls = no_calls;
		cu.fail = no_fail;
		cu.hide = cu.open = no_count;
		cu.capture = no_capture;
	}
	if (cu.init(0) || cu.context_create(&context, 0, 0))
		exit(1);
}

#endif
