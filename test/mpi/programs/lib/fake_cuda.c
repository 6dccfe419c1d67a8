/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A libcuda.so.1 without a GPU: it knows registered memory, and a page that it registers stays
 * pinned in a pipe, as a GPU's pages are: fake_gpu_read() reads that page, whatever is mapped at
 * its address meanwhile. Device memory is a memfd, at addresses that only this library can read;
 * another process opens it by the number of its descriptor. FAKE_CUDA_PAGEABLE=1: GPUs read all
 * memory. FAKE_CUDA_BROKEN=1: calls fail.
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

int cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags)
{
	return cuMemHostRegister(p, bytes, flags);
}

/* ---- device memory ----------------------------------------------------------------------- */

static struct memory { uintptr_t device; size_t bytes; char *real; int fd; } memories[RANGES];
struct handle { int pid, fd; size_t bytes; char rest[48]; }; /* a CUipcMemHandle */

int cuDeviceGet(int *out, int ordinal) { return *out = 0, ordinal ? INVALID_VALUE : OK; }
int cuDeviceGetName(char *out, int cap, int device)
{
	snprintf(out, (size_t)cap, "fake GPU of the tests");
	return device ? INVALID_VALUE : OK;
}
int cuCtxCreate_v2(void **out, unsigned flags, int device)
{
	*out = memories;
	return is_initialized ? OK : NOT_INITIALIZED;
}
int cuCtxSynchronize(void) { return OK; }

/* Returns: the bytes behind [p, p + bytes); NULL: no device memory. */
static char *real(uintptr_t p, size_t bytes)
{
	for (struct memory *m = memories; m < memories + RANGES; m++)
		if (m->device && p >= m->device && p + bytes <= m->device + m->bytes)
			return m->real + (p - m->device);
	return NULL;
}

static int memory_add(uintptr_t *out, size_t bytes, int fd)
{
	struct memory *m = memories;

	while (m->device)
		m++;
	*m = (struct memory){ .bytes = bytes, .fd = fd };
	m->real = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	m->device = (uintptr_t)mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*out = m->device;
	return fd < 0 || m->real == MAP_FAILED ? UNKNOWN : OK;
}

int cuMemAlloc_v2(uintptr_t *out, size_t bytes)
{
	int fd = memfd_create("fake GPU", MFD_CLOEXEC);

	return ftruncate(fd, (off_t)bytes) ? UNKNOWN : memory_add(out, bytes, fd);
}

int cuMemFree_v2(uintptr_t p)
{
	for (struct memory *m = memories; m < memories + RANGES; m++) {
		if (m->device != p)
			continue;
		munmap(m->real, m->bytes);
		munmap((void *)m->device, m->bytes);
		close(m->fd);
		*m = (struct memory){ 0 };
		return OK;
	}
	return INVALID_VALUE;
}

static int copy(char *dst, const char *src, size_t bytes)
{
	return dst && src ? (memcpy(dst, src, bytes), OK) : INVALID_VALUE;
}
int cuMemcpyHtoD_v2(uintptr_t dst, const void *src, size_t bytes)
{
	return copy(real(dst, bytes), src, bytes);
}
int cuMemcpyDtoH_v2(void *dst, uintptr_t src, size_t bytes)
{
	return copy(dst, real(src, bytes), bytes);
}
int cuMemcpyDtoD_v2(uintptr_t dst, uintptr_t src, size_t bytes)
{
	return copy(real(dst, bytes), real(src, bytes), bytes);
}

int cuIpcGetMemHandle(struct handle *out, uintptr_t p)
{
	for (struct memory *m = memories; m < memories + RANGES; m++)
		if (m->device == p)
			return *out = (struct handle){ getpid(), m->fd, m->bytes, "" }, OK;
	return INVALID_VALUE;
}
int cuIpcOpenMemHandle_v2(uintptr_t *out, struct handle h, unsigned flags)
{
	char path[64];

	if (h.pid == getpid())
		return INVALID_VALUE; /* a process opens the memory of others only */
	snprintf(path, sizeof path, "/proc/%d/fd/%d", h.pid, h.fd);
	return memory_add(out, h.bytes, open(path, O_RDWR | O_CLOEXEC));
}
int cuIpcCloseMemHandle(uintptr_t p) { return cuMemFree_v2(p); }

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
