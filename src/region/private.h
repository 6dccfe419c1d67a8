/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of region/ only. */
#ifndef SLUICE_REGION_PRIVATE_H
#define SLUICE_REGION_PRIVATE_H

#include <pthread.h>
#include <sys/mman.h>
#include <sys/types.h>

#include "region/region.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The next mmap family after ours in symbol order. region must not call its own hooks (they take
 * the lock), and must not bypass those of network libraries, which patch libc's functions. */
struct region_os {
	void *(*mmap)(void *, size_t, int, int, int, off_t);
	int (*munmap)(void *, size_t);
	int (*madvise)(void *, size_t, int);
};
extern struct region_os region_os;

extern pthread_mutex_t region_lock; /* guards all of arena.c's and table.c's state */

/* arena.c, all under the lock */
int arena_extent_get_locked(uint64_t bytes, bool zeroed, struct region_extent *out);
void arena_extent_put_locked(const struct region_extent *e, bool keep_pages);
void arena_punch_locked(uint64_t offset, uint64_t bytes);
bool arena_is_inode(const struct host_vma *v); /* it maps our memfd, anywhere */
bool arena_is_mapping(const struct host_vma *v, uint64_t addr, uint64_t offset);
uint64_t arena_used_bytes_locked(void), arena_pool_bytes_locked(void);
void arena_empty_pool_locked(void);
void arena_after_fork_child(void); /* the child has no arena; it may make its own */

/* rules.c: why memory may not be adopted; NULL when it may. Caller holds the lock. */
const char *rules_refusal_locked(uintptr_t start, uintptr_t end);

/* pages.c: the page work, no bookkeeping */
int pages_adopt(uintptr_t start, uint64_t bytes, const struct region_extent *e);
int pages_make_private(uintptr_t start, uint64_t bytes, uint64_t offset); /* 0: all pages copied */
int pages_copy_back(uintptr_t start, uint64_t bytes, uint64_t offset);
int pages_make_fresh(uintptr_t start, uint64_t bytes);

/* seen.c: which buffers have earned adoption */
bool seen_earned_locked(uintptr_t start, uint64_t bytes);
void seen_lifetime_locked(uintptr_t start, uint64_t uses); /* a region ended after so many uses */

void table_before_fork(void);
void table_after_fork_parent(void);
void table_after_fork_child(void);

#endif
