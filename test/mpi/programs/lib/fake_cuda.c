/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libcuda.so.1 without a GPU: it knows registered memory, and a page that it registers stays
 * pinned in a pipe, as a GPU's pages are: fake_gpu_read() reads that page, whatever is mapped at
 * its address meanwhile. FAKE_CUDA_PAGEABLE=1: GPUs read all memory. FAKE_CUDA_BROKEN=1: calls
 * fail.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OK, INVALID_VALUE, NOT_INITIALIZED = 3, UNKNOWN = 999, RANGES = 64, PAGE = 4096 };
enum { MEMORY_TYPE = 2, HOST = 1, PAGEABLE_MEMORY_ACCESS = 88 };

static struct range { uintptr_t start, end; int pin[2]; } ranges[RANGES];
/* A memory hook inside a call of the driver would wait for it for ever. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int is_initialized;
unsigned fake_cuda_asked;

int cuInit(unsigned flags)
{
	is_initialized = 1;
	return OK;
}

int cuDeviceGetCount(int *out)
{
	*out = 1;
	return is_initialized ? OK : NOT_INITIALIZED;
}

int cuDeviceGetAttribute(int *out, int attribute, int device)
{
	*out = attribute == PAGEABLE_MEMORY_ACCESS && getenv("FAKE_CUDA_PAGEABLE");
	return device ? INVALID_VALUE : OK;
}

/* The range that holds `at`; NULL: none. Unused ranges hold 0. */
static struct range *find(uintptr_t at)
{
	for (struct range *r = ranges; r < ranges + RANGES; r++)
		if (at >= r->start && at < r->end)
			return r;
	return NULL;
}

int cuMemHostRegister(void *p, size_t bytes, unsigned flags)
{
	struct iovec page = { (void *)((uintptr_t)p & ~(uintptr_t)(PAGE - 1)), PAGE };
	struct range *r = ranges;

	pthread_mutex_lock(&lock);
	while (r->end)
		r++;
	*r = (struct range){ .start = (uintptr_t)p, .end = (uintptr_t)p + bytes };
	pthread_mutex_unlock(&lock);
	return pipe(r->pin) || vmsplice(r->pin[1], &page, 1, 0) != PAGE ? UNKNOWN : OK;
}

int cuMemHostUnregister(void *p)
{
	struct range *r = find((uintptr_t)p);

	if (!r)
		return INVALID_VALUE;
	close(r->pin[0]);
	close(r->pin[1]);
	*r = (struct range){ 0 };
	return OK;
}

int cuPointerGetAttributes(unsigned count, int *attributes, void **values, uint64_t address)
{
	fake_cuda_asked++;
	if (!is_initialized || getenv("FAKE_CUDA_BROKEN"))
		return is_initialized ? UNKNOWN : NOT_INITIALIZED;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < count; i++)
		*(int *)values[i] = attributes[i] == MEMORY_TYPE && find(address) ? HOST : 0;
	pthread_mutex_unlock(&lock);
	return OK;
}

/* Returns: the first byte of the page that was registered at p, as the GPU sees it; -1: none. */
int fake_gpu_read(void *p)
{
	struct range *r = find((uintptr_t)p);
	unsigned char page[PAGE];
	int copy[2], ret = -1;

	if (!r || pipe(copy))
		return -1;
	if (tee(r->pin[0], copy[1], PAGE, 0) == PAGE && read(copy[0], page, PAGE) == PAGE)
		ret = page[0];
	close(copy[0]);
	close(copy[1]);
	return ret;
}
