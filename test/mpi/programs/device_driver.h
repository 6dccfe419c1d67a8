/* SPDX-License-Identifier: BSD-3-Clause */
/* The libcuda.so.1 of the tests, as device.c uses it. */
#ifndef DEVICE_DRIVER_H
#define DEVICE_DRIVER_H

#include <dlfcn.h>
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
static void *context;

static void load(void)
{
	void *driver = dlopen(getenv("FAKE_CUDA_LIBRARY"), RTLD_NOW),
	     *at[sizeof names / sizeof *names];

	if (!driver)
		exit(fprintf(stderr, "%s\n", dlerror()));
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		at[i] = dlsym(driver, names[i]);
	memcpy(&cu, at, sizeof cu);
	if (cu.init(0) || cu.context_create(&context, 0, 0))
		exit(1);
}

#endif
