/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libcuda.so.1 without a GPU: it knows registered memory, and a page that it registers stays
 * pinned in a pipe, as a GPU's pages are: fake_gpu_read() reads that page, whatever is mapped at
 * its address meanwhile. FAKE_CUDA_PAGEABLE=1: GPUs read all memory. FAKE_CUDA_BROKEN=1: calls
 * fail. Device memory: fake_cuda_memory.c; contexts and streams: fake_cuda_stream.c.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fake_cuda.h"

enum { RANGES = 64, PAGE = 4096, PAGEABLE_MEMORY_ACCESS = 88 };

static struct range { uintptr_t start, end; int pin[2]; } ranges[RANGES];
/* A memory hook inside a call of the driver would wait for it for ever. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int is_initialized;
unsigned fake_cuda_asked;

/* ---- calls of the program ----------------------------------------------------------------- */

static struct call {
	const char *name;
	int count, fails_at;
} calls[32];
static int owner_pid;

void fake_die(const char *what)
{
	fprintf(stderr, "fake CUDA: %s\n", what);
	abort();
}

static struct call *call_of(const char *name)
{
	struct call *c = calls;

	while (c->name && strcmp(c->name, name))
		c++;
	c->name = name;
	return c;
}

int fake_begin(const char *name)
{
	struct call *c;
	int rc;

	if (!is_initialized)
		return NOT_INITIALIZED;
	if (getpid() != owner_pid)
		fake_die("a forked child calls the driver"); /* "CUDA C++ Programming Guide" */
	pthread_mutex_lock(&lock);
	c = call_of(name);
	rc = ++c->count == c->fails_at ? UNKNOWN : OK;
	pthread_mutex_unlock(&lock);
	return rc;
}

int fake_cuda_calls(const char *name) { return call_of(name)->count; }

/* The n-th call from now fails. */
void fake_cuda_fail(const char *name, int n) { call_of(name)->fails_at = call_of(name)->count + n; }

int cuInit(unsigned flags)
{
	is_initialized = 1;
	owner_pid = getpid();
	fake_catch_touches();
	return OK;
}

/* ---- registered memory -------------------------------------------------------------------- */

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
	int rc, is_device;

	fake_cuda_asked++;
	if (!is_initialized || getenv("FAKE_CUDA_BROKEN"))
		return is_initialized ? UNKNOWN : NOT_INITIALIZED;
	rc = fake_begin("cuPointerGetAttributes");
	if (rc)
		return rc;
	pthread_mutex_lock(&lock);
	is_device = fake_device_attributes(count, attributes, values, address);
	for (unsigned i = 0; i < count && !is_device; i++)
		if (attributes[i] == MEMORY_TYPE)
			*(int *)values[i] = find(address) ? HOST : 0;
	pthread_mutex_unlock(&lock);
	return OK;
}

int cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
	return cuMemHostRegister(p, bytes, flags);
}

int cuMemAllocHost_v2(void **out, size_t bytes)
{
	*out = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return *out == MAP_FAILED ? UNKNOWN : cuMemHostRegister(*out, bytes, 0);
}

int cuMemFreeHost(void *p)
{
	struct range *r = find((uintptr_t)p);
	size_t bytes = r ? r->end - r->start : 0;

	return cuMemHostUnregister(p) || munmap(p, bytes);
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
