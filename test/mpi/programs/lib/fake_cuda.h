/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of the libcuda.so.1 of the tests, and declared again by programs that use it:
 * they find its functions by dlsym(). */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

/* Numbers of the CUDA driver API: CUresult, CUpointer_attribute, CUmemorytype. */
enum {
	OK,
	INVALID_VALUE,
	NOT_INITIALIZED = 3,
	INVALID_CONTEXT = 201,
	MAP_FAILED_ = 205,
	ALREADY_MAPPED = 208,
	INVALID_HANDLE = 400,
	CAPTURE_IMPLICIT = 906,
	UNKNOWN = 999,
};
enum {
	CONTEXT = 1,
	MEMORY_TYPE = 2,
	BUFFER_ID = 7,
	IS_LEGACY_IPC_CAPABLE = 10,
	RANGE_START = 11,
	RANGE_SIZE = 12,
	HOST = 1,
	DEVICE = 2,
};

/* Each function of the driver begins with it. Returns: an error that the test has asked for. */
int fake_begin(const char *name);
/* The program breaks a rule: ends it. */
_Noreturn void fake_die(const char *what);

/* ---- fake_cuda_memory.c ------------------------------------------------------------------- */

void fake_catch_touches(void);
/* Returns: 0: no device memory. */
int fake_device_attributes(unsigned count, int *attributes, void **values, uint64_t address);
/* Returns: the bytes behind [p, p + bytes) as the GPU sees them; NULL: no memory of the GPU, nor of
 * the CPU where that is allowed. */
char *fake_real(uintptr_t p, size_t bytes, int allows_host);

/* ---- fake_cuda_stream.c ------------------------------------------------------------------- */

struct context;
/* Returns: the context of the calling thread, or NULL. */
struct context *fake_current(void);
/* Does a copy that has not ended use the memory? */
int fake_is_busy(uintptr_t p, size_t bytes);

#endif
