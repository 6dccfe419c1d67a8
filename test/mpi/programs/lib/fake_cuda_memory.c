/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Device memory of the libcuda.so.1 of the tests: a memfd, at addresses that the CPU cannot read.
 * Each rule is one of NVIDIA's "CUDA Driver API" (function) unless another source is named:
 *
 *   a handle is that of a whole allocation, by its base                     cuIpcGetMemHandle
 *   memory of cuMemCreate has none           CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
 *   memory at the address of a freed allocation has another handle          cuIpcGetMemHandle
 *   and another id                                           CU_POINTER_ATTRIBUTE_BUFFER_ID
 *   the flag is required                                                    cuIpcOpenMemHandle
 *   the exporter cannot open its own handle                                 cuIpcOpenMemHandle
 *   opened again in the same context: the same address, one more reference  cuIpcOpenMemHandle
 *   one context opens handles of a device of a process, no other does       cuIpcOpenMemHandle
 *   what is open in place of freed memory stands in the way of what its
 *   owner allocates there                            OpenUCX, pull request 2738; as an error there
 *   to free memory that others have open, and what they do with it then, is undefined: here its
 *   owner may free it, but to copy from or to it ends the program           cuIpcOpenMemHandle
 *   imported memory is closed, not freed                                    cuIpcOpenMemHandle
 *
 * Stricter than the documents: memory with a copy that has not ended is not closed or freed.
 *
 * A host MPI without CUDA touches the memory with the CPU, which a program cannot do on a GPU. A
 * handler of SIGSEGV lets it do so, and fake_cuda_hide() tells the test that it has.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake_cuda.h"

enum { MEMORIES = 1024, PAGE = 4096, LAZY_PEER_ACCESS = 1 };
enum kind { NONE, OWN, OWN_VMM, IMPORTED };

/* The last page of the memfd; every process sees it. */
struct label { uint64_t id; int pid; _Atomic int is_freed; };

static struct memory {
	enum kind kind;
	uintptr_t device;
	size_t bytes, room; /* room: whole pages */
	char *real;
	int fd;
	struct label *label;
	struct context *context;
	uintptr_t base; /* imported: in its owner */
	int refs;
	_Atomic int is_touched; /* the CPU may touch it now */
} memories[MEMORIES];
struct handle { int pid, fd; uint64_t id; size_t bytes; uintptr_t base; char rest[32]; };
_Static_assert(sizeof(struct handle) == 64, "a CUipcMemHandle");

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static uint64_t last_id;
static _Atomic int touches;
/* The last address that was freed, for the next allocation of this size. */
static struct { uintptr_t at; size_t room; } hole;

int cuDeviceGet(int *out, int ordinal)
{
	*out = 0;
	return ordinal ? INVALID_VALUE : OK;
}

struct uuid { char bytes[16]; };

/* FAKE_CUDA_GPUS: so many GPUs, of which a process has one by its pid. */
int cuDeviceGetUuid_v2(struct uuid *out, int device)
{
	const char *gpus = getenv("FAKE_CUDA_GPUS");
	int rc = fake_begin("cuDeviceGetUuid");

	*out = (struct uuid){ "fake GPU" };
	out->bytes[15] = (char)(gpus ? getpid() % atoi(gpus) : 0);
	return device ? INVALID_VALUE : rc;
}

int cuDeviceGetName(char *out, int cap, int device)
{
	snprintf(out, (size_t)cap, "fake GPU of the tests");
	return device ? INVALID_VALUE : OK;
}

/* ---- touches of the CPU -------------------------------------------------------------------- */

static struct memory *find(uintptr_t p)
{
	for (struct memory *m = memories; m < memories + MEMORIES; m++)
		if (m->kind && p >= m->device && p < m->device + m->bytes)
			return m;
	return NULL;
}

/* As find(), while other threads make and free memory. */
static struct memory *find_safely(uintptr_t p)
{
	struct memory *m;

	pthread_mutex_lock(&lock);
	m = find(p);
	pthread_mutex_unlock(&lock);
	return m;
}

static void touched(int sig, siginfo_t *info, void *context)
{
	struct memory *m = find((uintptr_t)info->si_addr);

	if (!m || mprotect((void *)m->device, m->room, PROT_READ | PROT_WRITE)) {
		signal(sig, SIG_DFL);
		return;
	}
	m->is_touched = 1;
	touches++;
}

void fake_catch_touches(void)
{
	struct sigaction a = { .sa_sigaction = touched, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &a, NULL);
}

/* Returns: how often the CPU has come to device memory since the last call. */
int fake_cuda_hide(void)
{
	for (struct memory *m = memories; m < memories + MEMORIES; m++)
		if (m->kind && m->is_touched) {
			m->is_touched = 0;
			mprotect((void *)m->device, m->room, PROT_NONE);
		}
	return atomic_exchange(&touches, 0);
}

/* ---- memory -------------------------------------------------------------------------------- */

char *fake_real(uintptr_t p, size_t bytes, int allows_host)
{
	struct memory *m = find_safely(p);

	if (!m)
		return allows_host ? (char *)p : NULL;
	if (m->label->is_freed)
		fake_die("a copy from or to memory that its owner has freed");
	return p + bytes <= m->device + m->bytes ? m->real + (p - m->device) : NULL;
}

/* Stores an attribute in as many bytes as the driver writes. */
static void store(int attribute, void *out, const struct memory *m)
{
	switch (attribute) {
	case CONTEXT:
		*(struct context **)out = m->context;
		break;
	case MEMORY_TYPE:
		*(unsigned *)out = DEVICE;
		break;
	case BUFFER_ID:
		*(unsigned long long *)out = m->label->id;
		break;
	case IS_LEGACY_IPC_CAPABLE:
		*(_Bool *)out = m->kind == OWN;
		break;
	case RANGE_START:
		*(uintptr_t *)out = m->device;
		break;
	case RANGE_SIZE:
		*(size_t *)out = m->bytes;
		break;
	default:
		fake_die("an attribute that is not simulated");
	}
}

int fake_device_attributes(unsigned count, int *attributes, void **values, uint64_t address)
{
	struct memory *m = find_safely(address);

	for (unsigned i = 0; i < count && m; i++)
		store(attributes[i], values[i], m);
	return m != NULL;
}

static int map(struct memory *m, size_t bytes, int fd)
{
	size_t room = (bytes + PAGE - 1) / PAGE * PAGE;
	int fixed = m->kind != IMPORTED && hole.room == room ? MAP_FIXED : 0;
	void *device = mmap(fixed ? (void *)hole.at : NULL, room, PROT_NONE, MAP_SHARED | fixed, fd,
			    0);

	if (fixed)
		hole.room = 0;
	m->real = mmap(NULL, room + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m->real == MAP_FAILED || device == MAP_FAILED)
		return MAP_FAILED_;
	m->device = (uintptr_t)device;
	m->bytes = bytes;
	m->room = room;
	m->fd = fd;
	m->label = (struct label *)(m->real + room);
	m->context = fake_current();
	m->refs = 1;
	return OK;
}

/* In place of the mapping its address stays taken: the next one of this size gets it. */
static void unmap(struct memory *m)
{
	if (fake_is_busy(m->device, m->bytes))
		fake_die("memory is freed or closed while a copy uses it");
	mmap((void *)m->device, m->room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (m->kind != IMPORTED) {
		hole.at = m->device;
		hole.room = m->room;
	}
	munmap(m->real, m->room + PAGE);
	close(m->fd);
	*m = (struct memory){ 0 };
}

static struct memory *unused(void)
{
	struct memory *m = memories;

	while (m->kind)
		m++;
	return m;
}

static int allocate(uintptr_t *out, size_t bytes, enum kind kind)
{
	size_t room = (bytes + PAGE - 1) / PAGE * PAGE;
	int fd = memfd_create("fake GPU", MFD_CLOEXEC), rc;
	struct memory *m;

	if (!fake_current())
		return INVALID_CONTEXT;
	if (fd < 0 || ftruncate(fd, (off_t)(room + PAGE)))
		return UNKNOWN;
	pthread_mutex_lock(&lock);
	m = unused();
	m->kind = kind;
	rc = map(m, bytes, fd);
	if (!rc) {
		m->label->id = ++last_id;
		m->label->pid = getpid();
		*out = m->device;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

int cuMemAlloc_v2(uintptr_t *out, size_t bytes)
{
	return allocate(out, bytes, OWN);
}

/* As cuMemCreate() and cuMemMap(), or cuMemAllocAsync(). */
int fake_cuda_alloc_vmm(uintptr_t *out, size_t bytes)
{
	return allocate(out, bytes, OWN_VMM);
}

int cuMemFree_v2(uintptr_t p)
{
	struct memory *m;
	int rc = INVALID_VALUE;

	pthread_mutex_lock(&lock);
	m = find_safely(p);
	if (m && m->device == p && m->kind != IMPORTED) {
		m->label->is_freed = 1;
		unmap(m);
		rc = OK;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

/* ---- other processes ----------------------------------------------------------------------- */

int cuIpcGetMemHandle(struct handle *out, uintptr_t p)
{
	int rc = fake_begin("cuIpcGetMemHandle");
	struct memory *m = find_safely(p);

	if (rc || !fake_current())
		return rc ? rc : INVALID_CONTEXT;
	if (!m || m->device != p || m->kind != OWN)
		return INVALID_VALUE;
	*out = (struct handle){ getpid(), m->fd, m->label->id, m->bytes, p, "" };
	return OK;
}

/* Returns: why the handle cannot be opened; OK with *out: it is open already, or NULL. */
static int check_open(const struct handle *h, struct memory **out)
{
	*out = NULL;
	for (struct memory *m = memories; m < memories + MEMORIES; m++) {
		if (m->kind != IMPORTED || m->label->pid != h->pid)
			continue;
		if (m->context != fake_current())
			return INVALID_CONTEXT;
		if (m->label->id == h->id)
			*out = m;
		else if (m->base < h->base + h->bytes && h->base < m->base + m->bytes)
			return ALREADY_MAPPED;
	}
	return OK;
}

static int import(const struct handle *h, uintptr_t *out)
{
	char path[64];
	int fd, rc;
	struct memory *m;

	snprintf(path, sizeof path, "/proc/%d/fd/%d", h->pid, h->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return MAP_FAILED_;
	m = unused();
	m->kind = IMPORTED;
	rc = map(m, h->bytes, fd);
	if (rc || m->label->id != h->id || m->label->pid != h->pid) {
		m->kind = NONE;
		return rc ? rc : INVALID_HANDLE;
	}
	m->base = h->base;
	*out = m->device;
	return OK;
}

int cuIpcOpenMemHandle_v2(uintptr_t *out, struct handle h, unsigned flags)
{
	int rc = fake_begin("cuIpcOpenMemHandle");
	struct memory *m;

	if (rc || !fake_current())
		return rc ? rc : INVALID_CONTEXT;
	if (flags != LAZY_PEER_ACCESS)
		return INVALID_VALUE;
	if (h.pid == getpid())
		return INVALID_CONTEXT;
	pthread_mutex_lock(&lock);
	rc = check_open(&h, &m);
	if (!rc && m) {
		m->refs++;
		*out = m->device;
	} else if (!rc) {
		rc = import(&h, out);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

int cuIpcCloseMemHandle(uintptr_t p)
{
	int rc = fake_begin("cuIpcCloseMemHandle");
	struct memory *m = find_safely(p);

	if (rc || !fake_current())
		return rc ? rc : INVALID_CONTEXT;
	if (!m || m->kind != IMPORTED || m->device != p || m->context != fake_current())
		return INVALID_VALUE;
	pthread_mutex_lock(&lock);
	if (!--m->refs)
		unmap(m);
	pthread_mutex_unlock(&lock);
	return OK;
}

/* Returns: how many allocations of other processes are open. */
int fake_cuda_open(void)
{
	int n = 0;

	for (struct memory *m = memories; m < memories + MEMORIES; m++)
		n += m->kind == IMPORTED;
	return n;
}
