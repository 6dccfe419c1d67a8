/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of cuda/ only. */
#ifndef SLUICE_CUDA_PRIVATE_H
#define SLUICE_CUDA_PRIVATE_H

#include <stddef.h>

#include "cuda/cuda.h"

struct cuda_handle {
	char bytes[CUDA_HANDLE_BYTES];
};

/* Functions of the driver, in the order of their names in driver.c. They return 0 or an error. */
struct cuda_driver {
	int (*context_current)(void **out);
	int (*context_id)(void *context, unsigned long long *out);
	int (*pointer_attributes)(unsigned count, int *attributes, void **values, uint64_t address);
	int (*ipc_get)(struct cuda_handle *out, uint64_t base);
	int (*ipc_open)(uint64_t *out, struct cuda_handle h, unsigned flags);
	int (*ipc_close)(uint64_t address);
	int (*stream_create)(void **out, unsigned flags);
	int (*stream_is_capturing)(void *stream, int *out);
	int (*stream_wait)(void *stream);
	int (*copy)(uint64_t dst, uint64_t src, size_t bytes, void *stream);
	int (*device_current)(int *out);
	int (*device_uuid)(struct cuda_gpu *out, int device);
};
extern struct cuda_driver cuda_driver; /* valid after cuda_begin() */

/* Is the context of the first call current? */
bool cuda_is_current(void);

#endif
