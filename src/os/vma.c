/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queries of one mapping.
 *
 * One descriptor of /proc/self/maps stays open for the ioctl. It becomes wrong in two ways: fork
 * gives the child a descriptor of its parent's memory, and a program may close all descriptors and
 * open a file under the same number. So the cache lies in a page that fork wipes, and each use
 * compares the descriptor's inode.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/private.h"

/* The uapi of Linux 6.11; the headers of distributions are older. */
struct procmap_query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
	uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
	uint64_t vma_name_addr, build_id_addr;
};
_Static_assert(sizeof(struct procmap_query) == 104, "struct procmap_query is kernel ABI");
#define PROCMAP_QUERY _IOWR('f', 17, struct procmap_query)

/* for vma_flags and query_flags */
enum { VMA_READ = 1, VMA_WRITE = 2, VMA_EXEC = 4, VMA_SHARED = 8 };
enum { QUERY_OR_NEXT = 16 };

/* The uapi of Linux 6.7; of its categories, guard regions, 6.15. */
struct pm_scan_arg {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
_Static_assert(sizeof(struct pm_scan_arg) == 96, "struct pm_scan_arg is kernel ABI");
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
enum { PAGE_IS_HUGE = 1 << 6, PAGE_IS_GUARD = 1 << 8 };
/* madvise() */
enum { ADVICE_POPULATE_READ = 22, ADVICE_COLLAPSE = 25, ADVICE_GUARD_INSTALL = 102 };

enum { LOCK_TRIES = 10000 };

enum cache_state { CACHE_EMPTY, CACHE_OPEN, CACHE_UNSUPPORTED };

/* In a page of its own, which reads as zero in a forked child, lock included. */
struct cache {
	_Atomic uint32_t lock;
	enum cache_state state;
	int fd;
	struct os_file file;
};
static struct cache *_Atomic cache_page;

/* A copy of the descriptor that fork does not wipe, so that the child can close it. */
static struct cache inherited;

static struct cache *cache_create(void)
{
	struct cache *fresh, *other = NULL;
	/* raw system calls: region/ interposes mmap and calls os_vma_query() */
	long addr = syscall(SYS_mmap, NULL, OS_PAGE, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);

	if (addr == -1)
		return NULL;
	fresh = (struct cache *)addr;
	/* kernels without MADV_WIPEONFORK lack the ioctl too */
	if (syscall(SYS_madvise, fresh, OS_PAGE, MADV_WIPEONFORK))
		goto unmap;
	/* release: the new page; acquire: another thread's page, if that thread was first */
	if (atomic_compare_exchange_strong_explicit(&cache_page, &other, fresh,
						    memory_order_acq_rel, memory_order_acquire))
		return fresh;
unmap:
	syscall(SYS_munmap, fresh, OS_PAGE);
	return other;
}

static struct cache *cache_lock(void)
{
	struct cache *c = atomic_load_explicit(&cache_page, memory_order_acquire);

	if (!c)
		c = cache_create();
	/* The lock is held for a microsecond. A signal handler on top of its owner gives up and
	 * reads the file. acquire: partner: cache_unlock */
	for (int i = 0; c && atomic_exchange_explicit(&c->lock, 1, memory_order_acquire); i++) {
		if (i == LOCK_TRIES)
			return NULL;
		sched_yield();
	}
	return c;
}

static void cache_unlock(struct cache *c)
{
	atomic_store_explicit(&c->lock, 0, memory_order_release);
}

static int cache_open(struct cache *c)
{
	int fd;

	if (c->state == CACHE_EMPTY && inherited.state == CACHE_OPEN &&
	    os_file_is_at(&inherited.file, inherited.fd))
		syscall(SYS_close, inherited.fd);
	inherited.state = c->state = CACHE_EMPTY;
	fd = os_vma_open("maps");
	if (fd < 0)
		return fd;
	if (os_file_of(fd, &c->file)) {
		syscall(SYS_close, fd);
		return -EIO;
	}
	c->fd = fd;
	c->state = CACHE_OPEN;
	inherited = *c;
	return 0;
}

/* One query. Returns: 0 or -errno; -ENOTTY when the kernel lacks the ioctl. */
static int cache_ask(struct cache *c, struct procmap_query *q)
{
	if (c->state == CACHE_UNSUPPORTED)
		return -ENOTTY;
	if (c->state != CACHE_OPEN || !os_file_is_at(&c->file, c->fd)) {
		int rc = cache_open(c);

		if (rc)
			return rc;
	}
	if (!syscall(SYS_ioctl, c->fd, PROCMAP_QUERY, q))
		return 0;
	if (errno == ENOENT)
		return -ENOENT;
	/* ENOTTY before Linux 6.11, EPERM or ENOSYS by a seccomp filter: permanent */
	syscall(SYS_close, c->fd);
	inherited.state = CACHE_EMPTY;
	c->state = CACHE_UNSUPPORTED;
	return -ENOTTY;
}

static void name_fill(struct cache *c, uint64_t addr, struct os_vma *v)
{
	char name[128] = "";
	struct procmap_query q = {
		.size = sizeof(q),
		.query_addr = addr,
		.vma_name_size = sizeof(name),
		.vma_name_addr = (uintptr_t)name,
	};

	if (!syscall(SYS_ioctl, c->fd, PROCMAP_QUERY, &q) && q.vma_name_size)
		os_vma_classify(v, name);
}

static int query_ioctl(struct cache *c, uint64_t addr, bool or_next, struct os_vma *out)
{
	struct procmap_query q = {
		.size = sizeof(q),
		.query_flags = or_next ? QUERY_OR_NEXT : 0,
		.query_addr = addr,
	};
	int rc = cache_ask(c, &q);

	if (rc)
		return rc;
	*out = (struct os_vma){
		.start = q.vma_start,
		.end = q.vma_end,
		.offset = q.vma_offset,
		.inode = q.inode,
		.dev_major = q.dev_major,
		.dev_minor = q.dev_minor,
		.read = q.vma_flags & VMA_READ,
		.write = q.vma_flags & VMA_WRITE,
		.exec = q.vma_flags & VMA_EXEC,
		.shared = q.vma_flags & VMA_SHARED,
		.page_bytes = q.vma_page_size,
	};
	/* only mappings without a file have the names in question, and names of files cost more */
	if (!q.inode)
		name_fill(c, q.vma_start, out);
	return 0;
}

static int query(uint64_t addr, bool or_next, struct os_vma *out)
{
	struct cache *c = cache_lock();
	int rc = -ENOTTY;

	if (c) {
		rc = query_ioctl(c, addr, or_next, out);
		cache_unlock(c);
	}
	if (rc != -ENOTTY)
		return rc;
	return os_vma_scan(addr, or_next, out);
}

int os_vma_query(const void *addr, struct os_vma *out)
{
	return query((uintptr_t)addr, false, out);
}

int os_vma_query_next(const void *addr, struct os_vma *out)
{
	return query((uintptr_t)addr, true, out);
}

int os_vma_each(os_vma_visit *visit, void *arg)
{
	struct os_vma v;
	uint64_t at = 0;
	int rc = 0;

	if (!os_vma_query_is_cheap())
		return os_vma_scan_each(0, visit, arg);
	do {
		rc = query(at, true, &v);
		at = v.end;
	} while (!rc && visit(&v, arg));
	return rc == -ENOENT ? 0 : rc;
}

bool os_vma_query_is_cheap(void)
{
	struct os_vma v;
	struct cache *c = cache_lock();
	int rc = -ENOTTY;

	if (c) {
		/* called at each use of a buffer: the first result is remembered */
		rc = c->state == CACHE_OPEN ? 0 :
		     query_ioctl(c, (uintptr_t)&os_vma_query_is_cheap, false, &v);
		cache_unlock(c);
	}
	return !rc;
}

/* ---- kinds of pages ---------------------------------------------------------------------- */

/* Has a page of the range this category? Returns: 1 or 0; -errno: the kernel cannot tell. */
static int scan_pages(uintptr_t start, uintptr_t end, uint64_t category)
{
	uint64_t found[3]; /* start, end, categories of a range */
	struct pm_scan_arg q = {
		.size = sizeof(q),
		.start = start,
		.end = end,
		.vec = (uintptr_t)found,
		.vec_len = 1,
		.max_pages = 1,
		.category_mask = category,
		.return_mask = category,
	};
	int fd = os_vma_open("pagemap"), rc;

	if (fd < 0)
		return fd;
	rc = (int)syscall(SYS_ioctl, fd, PAGEMAP_SCAN, &q);
	rc = rc < 0 ? -errno : rc > 0;
	syscall(SYS_close, fd);
	return rc;
}

/* The kernel checks advice first, even of no bytes. */
static bool knows_advice(int advice) { return !syscall(SYS_madvise, NULL, 0, advice); }

bool os_has_guard_region(uintptr_t start, uintptr_t end)
{
	int rc;

	if (start >= end || !knows_advice(ADVICE_GUARD_INSTALL))
		return false;
	rc = scan_pages(start, end, PAGE_IS_GUARD);
	if (rc >= 0)
		return rc;
	/* Linux 6.13 and 6.14, or no /proc */
	return syscall(SYS_madvise, start, end - start, ADVICE_POPULATE_READ) && errno == EFAULT;
}

bool os_can_collapse(void) { return knows_advice(ADVICE_COLLAPSE); }

__attribute__((cold)) bool os_has_huge_page(uintptr_t start, uintptr_t end)
{
	static const char always[] = "[always]";
	char mode[sizeof always];
	int rc = scan_pages(start, end, PAGE_IS_HUGE);

	if (rc >= 0)
		return rc;
	return os_procfile_read("/sys/kernel/mm/transparent_hugepage/enabled", mode,
				sizeof mode) > 0 && !strcmp(mode, always);
}

/* ---- memory that may vanish -------------------------------------------------------------- */

/* By a pipe: containers may refuse process_vm_readv(). */
int os_read_memory(const void *at, void *out, size_t bytes)
{
	int fd[2], rc = 0;

	if (syscall(SYS_pipe2, fd, O_CLOEXEC))
		return -errno;
	if (syscall(SYS_write, fd[1], at, bytes) != (ssize_t)bytes)
		rc = errno == EFAULT ? -EFAULT : -EIO;
	else if (syscall(SYS_read, fd[0], out, bytes) != (ssize_t)bytes)
		rc = -EIO;
	syscall(SYS_close, fd[0]);
	syscall(SYS_close, fd[1]);
	return rc;
}
