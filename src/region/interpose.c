/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory calls of the program, watched so that adopted memory behaves like the private memory it
 * replaced. Compiled into libsluice.so only. Each hook costs two loads and a compare while its range
 * holds no region. The real function is the next one in symbol order, so that other tools' hooks and
 * other allocators keep working.
 *
 * Not seen: calls that the C library makes inside itself. They matter only for memory that went
 * through free() or realloc() first, which are seen here.
 */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include "region/region.h"

#define EXPORT __attribute__((visibility("default")))

/* glibc's own, for the moment before the next free() is known (dlsym may free) */
extern void __libc_free(void *);
extern void *__libc_realloc(void *, size_t);

static struct {
	void (*free)(void *);
	void *(*realloc)(void *, size_t);
	void *(*reallocarray)(void *, size_t, size_t);
	void *(*mmap)(void *, size_t, int, int, int, off_t);
	int (*munmap)(void *, size_t);
	void *(*mremap)(void *, size_t, size_t, int, ...);
	int (*madvise)(void *, size_t, int);
	int (*mprotect)(void *, size_t, int);
	int (*pkey_mprotect)(void *, size_t, int, int);
	int (*mlock)(const void *, size_t);
	int (*mlock2)(const void *, size_t, unsigned);
	int (*mlockall)(int);
	int (*brk)(void *);
	void *(*sbrk)(intptr_t);
	void *(*shmat)(int, const void *, int);
} next;

#define NEXT(name)                                                          \
	do {                                                                \
		if (base_unlikely(!next.name))                              \
			next.name = (__typeof__(next.name))dlsym(RTLD_NEXT, #name); \
	} while (0)

/* free and realloc are resolved before main, when no other thread runs: dlsym may call them. */
__attribute__((constructor(101))) static void resolve_allocator(void)
{
	void (*f)(void *) = (void (*)(void *))dlsym(RTLD_NEXT, "free");
	void *(*r)(void *, size_t) = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");

	NEXT(reallocarray);
	next.realloc = r;
	next.free = f;
}

/* ---- allocator ------------------------------------------------------------------------------ */

/* Only a block with a whole page inside can hold a region. */
static void __attribute__((noinline)) free_block(void *p)
{
	size_t bytes = malloc_usable_size(p);
	int saved = errno;

	if (bytes >= HOST_PAGE && region_may_touch((uintptr_t)p, (uintptr_t)p + bytes))
		region_drop((uintptr_t)p, (uintptr_t)p + bytes);
	errno = saved;
}

EXPORT void free(void *p)
{
	if (region_may_be_in_block((uintptr_t)p))
		free_block(p);
	if (base_unlikely(!next.free)) {
		__libc_free(p);
		return;
	}
	next.free(p);
}

static bool block_has_region(void *p, size_t *out_bytes)
{
	if (!region_may_be_in_block((uintptr_t)p))
		return false;
	*out_bytes = malloc_usable_size(p);
	return *out_bytes >= HOST_PAGE && region_overlaps((uintptr_t)p, (uintptr_t)p + *out_bytes);
}

/* The C library would move or resize the block with system calls that we do not see. */
static void *move_block(void *p, size_t old_bytes, size_t bytes)
{
	void *q = malloc(bytes);

	if (!q)
		return NULL;
	memcpy(q, p, bytes < old_bytes ? bytes : old_bytes);
	free(p);
	return q;
}

EXPORT void *realloc(void *p, size_t bytes)
{
	size_t old_bytes;

	if (bytes && block_has_region(p, &old_bytes))
		return move_block(p, old_bytes, bytes);
	if (p && !bytes && block_has_region(p, &old_bytes))
		region_drop((uintptr_t)p, (uintptr_t)p + old_bytes);
	return next.realloc ? next.realloc(p, bytes) : __libc_realloc(p, bytes);
}

EXPORT void *reallocarray(void *p, size_t n, size_t bytes)
{
	size_t total;

	if (__builtin_mul_overflow(n, bytes, &total)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(p, total);
}

/* ---- mappings -------------------------------------------------------------------------------- */

static uintptr_t page_end(const void *p, size_t bytes)
{
	return base_round_up((uintptr_t)p + bytes, HOST_PAGE);
}

static bool touches(const void *p, size_t bytes)
{
	return region_may_touch(base_round_down((uintptr_t)p, HOST_PAGE), page_end(p, bytes));
}

/* Under names of their own: the headers may already have made one of these names the other. */
EXPORT void *hook_mmap(void *, size_t, int, int, int, off_t) __asm__("mmap");
EXPORT void *hook_mmap64(void *, size_t, int, int, int, off_t) __asm__("mmap64");

EXPORT void *hook_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	NEXT(mmap);
	if ((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == MAP_FIXED && touches(addr, bytes))
		region_forget((uintptr_t)addr, page_end(addr, bytes));
	return next.mmap(addr, bytes, prot, flags, fd, offset);
}

EXPORT void *hook_mmap64(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	return hook_mmap(addr, bytes, prot, flags, fd, offset);
}

EXPORT int munmap(void *addr, size_t bytes)
{
	NEXT(munmap);
	if (touches(addr, bytes))
		region_forget((uintptr_t)addr, page_end(addr, bytes));
	return next.munmap(addr, bytes);
}

EXPORT void *mremap(void *addr, size_t old_bytes, size_t bytes, int flags, ...)
{
	void *to = NULL;

	NEXT(mremap);
	if (flags & MREMAP_FIXED) {
		va_list ap;

		va_start(ap, flags);
		to = va_arg(ap, void *);
		va_end(ap);
		if (touches(to, bytes))
			region_forget((uintptr_t)to, page_end(to, bytes));
	}
	if (touches(addr, old_bytes ? old_bytes : 1))
		region_exclusive((uintptr_t)addr, page_end(addr, old_bytes ? old_bytes : 1));
	return next.mremap(addr, old_bytes, bytes, flags, to);
}

EXPORT int madvise(void *addr, size_t bytes, int advice)
{
	NEXT(madvise);
	if (touches(addr, bytes)) {
		uintptr_t start = (uintptr_t)addr, end = page_end(addr, bytes);

		switch (advice) {
		case MADV_NORMAL:
		case MADV_RANDOM:
		case MADV_SEQUENTIAL:
		case MADV_WILLNEED:
		case MADV_HUGEPAGE:
		case MADV_NOHUGEPAGE:
			break;
		case MADV_DONTNEED:
		case MADV_FREE:
			/* zero from now on; for MADV_FREE that is one of the allowed outcomes */
			region_discard(start, end);
			break;
		default: /* DONTFORK, WIPEONFORK, MERGEABLE, HWPOISON ...: meant for private memory */
			region_keep_out(start, end);
		}
	}
	return next.madvise(addr, bytes, advice);
}

EXPORT int mprotect(void *addr, size_t bytes, int prot)
{
	NEXT(mprotect);
	if (touches(addr, bytes))
		region_keep((uintptr_t)addr, page_end(addr, bytes));
	return next.mprotect(addr, bytes, prot);
}

EXPORT int pkey_mprotect(void *addr, size_t bytes, int prot, int key)
{
	NEXT(pkey_mprotect);
	if (touches(addr, bytes))
		region_keep((uintptr_t)addr, page_end(addr, bytes));
	return next.pkey_mprotect(addr, bytes, prot, key);
}

EXPORT void *shmat(int id, const void *addr, int flags)
{
	NEXT(shmat);
	if (addr && (flags & SHM_REMAP)) {
		struct shmid_ds ds;

		if (!shmctl(id, IPC_STAT, &ds) && touches(addr, ds.shm_segsz))
			region_forget((uintptr_t)addr, page_end(addr, ds.shm_segsz));
	}
	return next.shmat(id, addr, flags);
}

/* ---- locked memory: pages that must stay the very pages they are ------------------------------- */

EXPORT int mlock(const void *addr, size_t bytes)
{
	NEXT(mlock);
	region_keep_out((uintptr_t)addr, page_end(addr, bytes));
	return next.mlock(addr, bytes);
}

EXPORT int mlock2(const void *addr, size_t bytes, unsigned flags)
{
	NEXT(mlock2);
	region_keep_out((uintptr_t)addr, page_end(addr, bytes));
	return next.mlock2(addr, bytes, flags);
}

EXPORT int mlockall(int flags)
{
	NEXT(mlockall);
	region_keep_out_all();
	return next.mlockall(flags);
}

/* ---- the heap's end ---------------------------------------------------------------------------- */

EXPORT int brk(void *addr)
{
	uintptr_t now;

	NEXT(brk);
	NEXT(sbrk);
	now = (uintptr_t)next.sbrk(0);
	if ((uintptr_t)addr < now && region_may_touch((uintptr_t)addr, now))
		region_forget(base_round_up((uintptr_t)addr, HOST_PAGE), base_round_up(now, HOST_PAGE));
	return next.brk(addr);
}

EXPORT void *sbrk(intptr_t delta)
{
	NEXT(sbrk);
	if (delta < 0) {
		uintptr_t now = (uintptr_t)next.sbrk(0), to = now + (uintptr_t)delta;

		if (region_may_touch(to, now))
			region_forget(base_round_up(to, HOST_PAGE), base_round_up(now, HOST_PAGE));
	}
	return next.sbrk(delta);
}
