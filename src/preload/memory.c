/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory functions: adopted memory behaves like the private memory that it replaced. Each hook
 * costs two loads and a compare while its range holds no region.
 *
 * Calls that the C library makes inside itself are not interposed. They matter only for memory that
 * went through free() or realloc(), which are.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "os/endpoint.h"
#include "preload/next.h"
#include "region/blocks.h"
#include "region/region.h"

#define LARGE_BLOCK_BYTES ((size_t)16 << 20)

/* glibc's own, until the next definition is resolved */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);

static struct {
	void (*free)(void *);
	void *(*malloc)(size_t);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
	void *(*memalign)(size_t, size_t);
	void *(*aligned_alloc)(size_t, size_t);
	int (*posix_memalign)(void **, size_t, size_t);
	void *(*mmap)(void *, size_t, int, int, int, off_t);
	int (*munmap)(void *, size_t);
	void *(*mremap)(void *, size_t, size_t, int, ...);
	int (*mprotect)(void *, size_t, int);
	int (*pkey_mprotect)(void *, size_t, int, int);
	int (*mlock)(const void *, size_t);
	int (*mlock2)(const void *, size_t, unsigned);
	int (*mlockall)(int);
	int (*brk)(void *);
	void *(*sbrk)(intptr_t);
	void *(*shmat)(int, const void *, int);
	int (*dlclose)(void *);
	ssize_t (*vmsplice)(int, const struct iovec *, size_t, unsigned);
	int (*setsockopt)(int, int, int, const void *, socklen_t);
} next;

/*
 * dlsym() itself, and constructors that run before ours, may call the allocator. Memory that is
 * freed meanwhile is leaked, as it may not come from glibc's malloc.
 */
static bool sizes_known; /* malloc_usable_size and free belong to one allocator */

static void *base_of(void *f)
{
	Dl_info info;

	return f && dladdr(f, &info) ? info.dli_fbase : NULL;
}

__attribute__((constructor(101), noinline)) static void resolve_allocator(void)
{
	static bool busy;
	void *f, *m, *home;

	if (busy || next.free)
		return;
	busy = true;
	next.realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
	next.calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
	m = dlsym(RTLD_NEXT, "malloc");
	f = dlsym(RTLD_NEXT, "free");
	home = base_of(f);
	sizes_known = home && home == base_of(dlsym(RTLD_DEFAULT, "malloc_usable_size"));
	blocks_are_known = sizes_known && home == base_of(m) &&
			   home == base_of(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"));
	next.malloc = (void *(*)(size_t))m;
	next.free = (void (*)(void *))f;
}

/* ---- allocator: blocks that may be adopted whole are signed (blocks.h) ------------------- */

static inline bool is_to_be_signed(size_t bytes)
{
	return base_unlikely(bytes >= BLOCK_SIGNED_MIN) && blocks_are_known && bytes <= PTRDIFF_MAX;
}

static void *signed_block(void *p, size_t bytes)
{
	if (!p)
		return NULL;
	block_sign(p, bytes);
	region_forget_uses((uintptr_t)p);
	return p;
}

EXPORT void *malloc(size_t bytes)
{
	if (base_unlikely(!next.malloc)) {
		resolve_allocator();
		if (!next.malloc)
			return __libc_malloc(bytes);
	}
	if (is_to_be_signed(bytes))
		return signed_block(next.malloc(bytes + BLOCK_SIGN_BYTES), bytes);
	return next.malloc(bytes);
}

EXPORT void *calloc(size_t n, size_t each)
{
	size_t bytes;

	if (base_unlikely(!next.calloc)) {
		resolve_allocator();
		if (!next.calloc)
			return __libc_calloc(n, each);
	}
	if (!__builtin_mul_overflow(n, each, &bytes) && is_to_be_signed(bytes))
		return signed_block(next.calloc(1, bytes + BLOCK_SIGN_BYTES), bytes);
	return next.calloc(n, each);
}

EXPORT void *memalign(size_t alignment, size_t bytes)
{
	if (is_to_be_signed(bytes))
		return signed_block(NEXT(memalign)(alignment, bytes + BLOCK_SIGN_BYTES), bytes);
	return NEXT(memalign)(alignment, bytes);
}

EXPORT void *aligned_alloc(size_t alignment, size_t bytes)
{
	if (is_to_be_signed(bytes))
		return signed_block(NEXT(aligned_alloc)(alignment, bytes + BLOCK_SIGN_BYTES),
				    bytes);
	return NEXT(aligned_alloc)(alignment, bytes);
}

EXPORT int posix_memalign(void **out, size_t alignment, size_t bytes)
{
	bool sign = is_to_be_signed(bytes);
	int ret = NEXT(posix_memalign)(out, alignment, sign ? bytes + BLOCK_SIGN_BYTES : bytes);

	if (!ret && sign)
		signed_block(*out, bytes);
	return ret;
}

/* Only a block with a whole page inside can hold a region. */
static size_t block_bytes(void *p)
{
	size_t bytes = sizes_known ? malloc_usable_size(p) : 0;

	return bytes >= OS_PAGE && region_may_touch((uintptr_t)p, (uintptr_t)p + bytes) ? bytes
											  : 0;
}

/* free() unmaps such a block, with its header, by a call inside the C library. */
static bool free_mapping(void *p)
{
	uintptr_t start, end;
	uint32_t ticket;

	if (!block_is_mapping(p, &start, &end) || !region_may_touch(start, end))
		return false;
	ticket = region_unmap_begin(start, end);
	next.free(p);
	region_unmap_end(ticket, start, end, true);
	return true;
}

EXPORT void free(void *p)
{
	if (base_unlikely(!next.free)) {
		resolve_allocator();
		if (!next.free)
			return;
	}
	if (region_may_be_in_block((uintptr_t)p) && p) {
		size_t bytes = block_bytes(p);

		if (bytes && free_mapping(p))
			return;
		if (bytes)
			region_drop((uintptr_t)p, (uintptr_t)p + bytes);
	}
	next.free(p);
}

/*
 * The allocator of a sanitizer stands before this one and unmaps blocks by raw system calls. A
 * block with closed pages has to be open before: opened later, it would replace what has been
 * mapped there meanwhile. Also called by realloc(), which copies the block afterwards.
 */
int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void *, size_t),
					      void (*)(const volatile void *))
	__attribute__((weak));
int __sanitizer_get_ownership(const volatile void *) __attribute__((weak));

static void at_sanitized_malloc(const volatile void *p, size_t bytes) {}

static void at_sanitized_free(const volatile void *p)
{
	/* else the sanitizer is about to report the address */
	if (region_may_be_in_block((uintptr_t)p) && __sanitizer_get_ownership(p))
		region_return_exclusive((uintptr_t)p,
					(uintptr_t)p + malloc_usable_size((void *)p));
}

__attribute__((constructor)) static void hook_sanitizer(void)
{
	if (__sanitizer_install_malloc_and_free_hooks)
		__sanitizer_install_malloc_and_free_hooks(at_sanitized_malloc, at_sanitized_free);
}

static uintptr_t page_end(const void *p, size_t bytes)
{
	return base_round_up((uintptr_t)p + bytes, OS_PAGE);
}

static size_t block_with_region(void *p)
{
	size_t bytes = p && region_may_be_in_block((uintptr_t)p) ? block_bytes(p) : 0;

	return bytes && region_overlaps((uintptr_t)p, (uintptr_t)p + bytes) ? bytes : 0;
}

/*
 * Without a region the C library moves the pages of a block that is a mapping of its own: a job may
 * have no memory for two copies of a large one. (Pages of the heap may have other blocks' data,
 * too, which other threads write.) Returns: false when the block has to be copied.
 */
static bool make_private(const void *p, size_t bytes)
{
	uintptr_t start, end;

	if (bytes < LARGE_BLOCK_BYTES || !block_is_mapping(p, &start, &end))
		return false;
	region_return_exclusive(start, end);
	return !region_overlaps(start, end);
}

/* The C library would move or resize the block by calls inside itself. */
static void *move_block(void *p, size_t old_bytes, size_t bytes)
{
	void *q;

	region_before_change((uintptr_t)p, (uintptr_t)p + old_bytes);
	q = malloc(bytes);
	if (!q)
		return NULL;
	memcpy(q, p, bytes < old_bytes ? bytes : old_bytes);
	free(p);
	return q;
}

EXPORT void *realloc(void *p, size_t bytes)
{
	size_t old_bytes = block_with_region(p);

	if (old_bytes && bytes && !make_private(p, old_bytes))
		return move_block(p, old_bytes, bytes);
	old_bytes = bytes ? 0 : old_bytes;
	if (old_bytes && blocks_are_known) {
		free(p);
		return NULL; /* like the C library's realloc(p, 0) */
	}
	if (old_bytes)
		region_drop((uintptr_t)p, (uintptr_t)p + old_bytes);
	if (base_unlikely(!next.realloc))
		resolve_allocator();
	if (base_unlikely(!next.realloc))
		return __libc_realloc(p, bytes);
	if (is_to_be_signed(bytes))
		return signed_block(next.realloc(p, bytes + BLOCK_SIGN_BYTES), bytes);
	return next.realloc(p, bytes);
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

/* ---- mappings ---------------------------------------------------------------------------- */

static bool touches(const void *p, size_t bytes)
{
	return region_may_touch(base_round_down((uintptr_t)p, OS_PAGE), page_end(p, bytes));
}

/* A call that unmaps or replaces a range. */
struct unmapping {
	uintptr_t start, end;
	uint32_t ticket;
};

static struct unmapping unmap_begin(const void *p, size_t bytes)
{
	struct unmapping l = { (uintptr_t)p, page_end(p, bytes), 0 };

	if (base_unlikely(touches(p, bytes) ||
			  atomic_load_explicit(&region_has_excluded, memory_order_relaxed)))
		l.ticket = region_unmap_begin(l.start, l.end);
	return l;
}

static void unmap_end(const struct unmapping *l, bool done)
{
	if (base_unlikely(l->ticket))
		region_unmap_end(l->ticket, l->start, l->end, done);
}

/* With names of their own: headers may define mmap as mmap64. */
EXPORT void *hook_mmap(void *, size_t, int, int, int, off_t) __asm__("mmap");
EXPORT void *hook_mmap64(void *, size_t, int, int, int, off_t) __asm__("mmap64");

EXPORT void *hook_mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	struct unmapping l = { 0 };
	void *p;

	if ((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) == MAP_FIXED)
		l = unmap_begin(addr, bytes);
	p = NEXT(mmap)(addr, bytes, prot, flags, fd, offset);
	unmap_end(&l, p != MAP_FAILED);
	if (base_unlikely(flags & MAP_LOCKED) && p != MAP_FAILED)
		region_exclude((uintptr_t)p, page_end(p, bytes));
	return p;
}

EXPORT void *hook_mmap64(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	return hook_mmap(addr, bytes, prot, flags, fd, offset);
}

EXPORT int munmap(void *addr, size_t bytes)
{
	struct unmapping l;
	int ret;

	l = unmap_begin(addr, bytes);
	ret = NEXT(munmap)(addr, bytes);
	unmap_end(&l, !ret);
	return ret;
}

/* Memory that held regions may consist of several mappings, which the kernel does not move
 * together; and a part of a pinned region may not be moved, as peers would not find it. So its
 * contents are copied. */
static void *move_mappings(void *addr, size_t old_bytes, size_t bytes, int flags, void *to)
{
	int fixed = flags & MREMAP_FIXED ? MAP_FIXED : 0;
	void *p;

	if (!(flags & MREMAP_MAYMOVE)) {
		errno = ENOMEM; /* as if there were no room to grow in place */
		return MAP_FAILED;
	}
	p = NEXT(mmap)(to, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1,
		       0);
	if (p == MAP_FAILED)
		return p;
	memcpy(p, addr, old_bytes < bytes ? old_bytes : bytes);
	NEXT(munmap)(addr, old_bytes);
	return p;
}

/* The range is a part of a region that peers use or other threads may write to. */
static void *move_part(void *addr, size_t old_bytes, size_t bytes, int flags, void *to)
{
	uintptr_t start = (uintptr_t)addr, end = page_end(addr, old_bytes),
		  new_end = page_end(addr, bytes);
	struct unmapping l;
	void *p;

	if (bytes && new_end <= end && !(flags & ~MREMAP_MAYMOVE))
		return new_end < end && munmap((void *)new_end, end - new_end) ? MAP_FAILED : addr;
	if (flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED) || !bytes ||
	    !region_is_private_memory(start, end)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	l = unmap_begin(addr, old_bytes);
	p = move_mappings(addr, old_bytes, bytes, flags, to);
	unmap_end(&l, p != MAP_FAILED);
	return p;
}

static void *remap(void *addr, size_t old_bytes, size_t bytes, int flags, void *to)
{
	bool had_region = touches(addr, old_bytes ? old_bytes : 1);
	uintptr_t start = (uintptr_t)addr, end = page_end(addr, old_bytes ? old_bytes : 1);
	int known = MREMAP_MAYMOVE | MREMAP_FIXED;
	struct unmapping l;
	void *p;

	if (had_region) {
		region_return_exclusive(start, end);
		if (region_overlaps(start, end) && start % OS_PAGE == 0)
			return move_part(addr, old_bytes, bytes, flags, to);
	}
	end = page_end(addr, old_bytes);
	l = unmap_begin(addr, old_bytes); /* for its exclusion, when it moves */
	p = NEXT(mremap)(addr, old_bytes, bytes, flags, to);
	if (p == MAP_FAILED && errno == EFAULT && had_region && !(flags & ~known) && start < end) {
		if (region_is_private_memory(start, end))
			p = move_mappings(addr, old_bytes, bytes, flags, to);
		else
			errno = EFAULT; /* region_is_private_memory() may have changed it */
	}
	unmap_end(&l, p != MAP_FAILED && p != addr);
	return p;
}

EXPORT void *mremap(void *addr, size_t old_bytes, size_t bytes, int flags, ...)
{
	struct unmapping l = { 0 };
	void *to = NULL, *p;

	if (flags & MREMAP_FIXED) {
		va_list ap;

		va_start(ap, flags);
		to = va_arg(ap, void *);
		va_end(ap);
		l = unmap_begin(to, bytes);
	}
	p = remap(addr, old_bytes, bytes, flags, to);
	unmap_end(&l, p != MAP_FAILED);
	return p;
}

EXPORT int mprotect(void *addr, size_t bytes, int prot)
{
	if (touches(addr, bytes))
		region_return((uintptr_t)addr, page_end(addr, bytes));
	return NEXT(mprotect)(addr, bytes, prot);
}

EXPORT int pkey_mprotect(void *addr, size_t bytes, int prot, int key)
{
	if (touches(addr, bytes))
		region_return((uintptr_t)addr, page_end(addr, bytes));
	return NEXT(pkey_mprotect)(addr, bytes, prot, key);
}

EXPORT void *shmat(int id, const void *addr, int flags)
{
	struct unmapping l = { 0 };
	struct shmid_ds ds;
	void *p;

	if (addr && (flags & SHM_REMAP) && !shmctl(id, IPC_STAT, &ds))
		l = unmap_begin(addr, ds.shm_segsz);
	p = NEXT(shmat)(id, addr, flags);
	unmap_end(&l, p != (void *)-1);
	return p;
}

/* ---- locked memory: its pages may not be replaced ---------------------------------------- */

EXPORT int mlock(const void *addr, size_t bytes)
{
	region_exclude((uintptr_t)addr, page_end(addr, bytes));
	return NEXT(mlock)(addr, bytes);
}

EXPORT int mlock2(const void *addr, size_t bytes, unsigned flags)
{
	region_exclude((uintptr_t)addr, page_end(addr, bytes));
	return NEXT(mlock2)(addr, bytes, flags);
}

struct locking { unsigned how; bool failed; };

/* Locks one mapping, except those of arenas: their holes would be populated. */
static bool lock_one(const struct os_vma *v, void *arg)
{
	struct locking *l = arg;
	const void *start = (const void *)v->start;
	size_t bytes = v->end - v->start;

	if (region_is_arena_mapping(v) || v->is_special ||
	    !(l->how ? NEXT(mlock2)(start, bytes, l->how) : NEXT(mlock)(start, bytes)))
		return true;
	/* memory that cannot be locked at all (a device's) is no failure */
	l->failed = errno != EINVAL && (v->read || v->write);
	return !l->failed;
}

EXPORT int mlockall(int flags)
{
	struct locking l = { flags & MCL_ONFAULT ? MLOCK_ONFAULT : 0, false };

	region_exclude_all(flags & MCL_FUTURE);
	if (region_arena_fd() < 0 || !(flags & MCL_CURRENT))
		return NEXT(mlockall)(flags);
	/* the kernel refuses MCL_ONFAULT alone */
	if (flags & ~(MCL_CURRENT | MCL_ONFAULT) && NEXT(mlockall)(flags & ~MCL_CURRENT))
		return -1;
	if (os_vma_each(lock_one, &l)) {
		errno = EAGAIN; /* some or all of the memory could not be locked */
		return -1;
	}
	return l.failed ? -1 : 0;
}

/* ---- pages that a pipe or a socket holds ------------------------------------------------- */

EXPORT ssize_t vmsplice(int pipe, const struct iovec *v, size_t n, unsigned flags)
{
	region_pages_are_held();
	return NEXT(vmsplice)(pipe, v, n, flags);
}

EXPORT int setsockopt(int socket, int level, int name, const void *value, socklen_t bytes)
{
	if (level == SOL_SOCKET && name == SO_ZEROCOPY)
		region_pages_are_held();
	return NEXT(setsockopt)(socket, level, name, value, bytes);
}

/* ---- dlclose: the loader unmaps static data by calls inside itself ----------------------- */

EXPORT int dlclose(void *library)
{
	int ret;

	region_before_change(0, UINTPTR_MAX); /* the range is not known */
	ret = NEXT(dlclose)(library);
	region_suspect_all();
	return ret;
}

/* ---- the end of the heap ----------------------------------------------------------------- */

__attribute__((noinline)) static struct unmapping unmap_begin_above(uintptr_t to, uintptr_t now)
{
	if (to >= now)
		return (struct unmapping){ 0 };
	to = base_round_up(to, OS_PAGE);
	return unmap_begin((void *)to, base_round_up(now, OS_PAGE) - to);
}

/* Ranks of one address space have one break, which the carrier has fenced from above. What one gave
 * back, each C library would give out once more. */
static bool break_stays(void)
{
	if (base_likely(!endpoint_image))
		return false;
	errno = ENOMEM;
	return true;
}

EXPORT int brk(void *addr)
{
	struct unmapping l;
	int ret;

	if (break_stays())
		return -1;
	l = unmap_begin_above((uintptr_t)addr, (uintptr_t)NEXT(sbrk)(0));
	ret = NEXT(brk)(addr);
	unmap_end(&l, !ret);
	return ret;
}

EXPORT void *sbrk(intptr_t delta)
{
	struct unmapping l = { 0 };
	uintptr_t now;
	void *p;

	if (delta && break_stays())
		return (void *)-1;
	if (delta < 0) {
		now = (uintptr_t)NEXT(sbrk)(0);
		l = unmap_begin_above(now + (uintptr_t)delta, now);
	}
	p = NEXT(sbrk)(delta);
	unmap_end(&l, p != (void *)-1);
	return p;
}
