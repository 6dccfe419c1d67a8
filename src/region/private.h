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

/*
 * Guards all state of this folder. While a thread holds it, its signals wait, and the hooks that it
 * runs into do nothing: other tools' functions are called under the lock, and may free memory of
 * their own. errno is afterwards what it was before. Only handlers of SIGSEGV, SIGSYS and the like
 * may run on top of a thread that holds it; they may call region_release(), nothing else.
 */
void region_lock(void), region_unlock(void);
extern _Atomic uint32_t region_version; /* odd while the lock is held; written under it */
/* Each side writes, then reads what the other writes. TSan knows no fences. */
static inline void region_fence(void)
{
#if !defined(__SANITIZE_THREAD__)
	atomic_thread_fence(memory_order_seq_cst);
#endif
}
bool region_is_locked_here(void); /* or cannot be taken: hooks have to do without */
void region_lock_init(void);      /* with region_os; idempotent */
void region_lock_reset(void);     /* in a forked child: nobody holds it */

/* ---- arena.c, all under the lock --------------------------------------------------------- */

int arena_extent_get_locked(uint64_t bytes, bool zeroed, struct region_extent *out);
void arena_extent_put_locked(const struct region_extent *e, bool keep_pages);
void arena_punch_locked(uint64_t offset, uint64_t bytes);
/* Whether all whole units in the range are huge pages: making them so again would stop every CPU.
 */
bool arena_is_huge_locked(uint64_t offset, uint64_t bytes);
void arena_set_huge_locked(uint64_t offset, uint64_t bytes);
int arena_fd_locked(void); /* -1 when the program has closed it */
uint64_t arena_inode_locked(void);
bool arena_is_inode(const struct os_vma *v, uint64_t inode); /* it maps that memfd */
bool arena_is_known(const struct os_vma *v); /* ours, or that of a process we were forked from */
bool arena_is_own_mapping_locked(const struct os_vma *v); /* mapped there by our own doing */
uint64_t arena_used_bytes_locked(void), arena_pool_bytes_locked(void);
void arena_empty_pool_locked(void);
void arena_after_fork_child(void); /* the child has no arena; it may make its own */

/* ---- rules.c: why memory may not be adopted; NULL when it may. Caller holds the lock. ---- */
/* What is known of the range from elsewhere. */
struct rules_known {
	bool is_block;  /* lies in a block of malloc's, so in no stack */
	bool is_static; /* rules_is_static() */
};
const char *rules_refusal_locked(uintptr_t start, uintptr_t end, const struct rules_known *known);
/* All of it is static data of one loaded object. Not under the lock: the loader's own lock is
 * taken, under which other threads may be freeing memory. */
bool rules_is_static(uintptr_t start, uintptr_t end);
/* The range is unmapped or replaced: what was said about it is void. */
void rules_forget_locked(uintptr_t start, uintptr_t end);
bool rules_locks_future_memory(
	void); /* mlockall(MCL_FUTURE): a window of memory would be populated */

/* ---- pages.c: the page work, no bookkeeping. 0 or -errno, upon which nothing has changed ---- */
/* *huge: its whole units are huge pages already; on success, whether they are now. */
int pages_adopt(uintptr_t start, uint64_t bytes, const struct region_extent *e, bool *huge);
/* A private mapping of the same pages. *out_copied: every page is this process's own by now. */
int pages_make_private(uintptr_t start, uint64_t bytes, uint64_t offset, int prot,
		       bool *out_copied);
int pages_make_fresh(uintptr_t start, uint64_t bytes, int prot);
/* Anonymous memory with the same contents, of a shared or a private mapping. */
int pages_copy_back(uintptr_t start, uint64_t bytes, uint64_t offset, int prot);
int pages_copy_anew(uintptr_t start, uint64_t bytes, int prot);

/* ---- seen.c: which buffers have earned adoption ------------------------------------------ */
/* It is used once more: often enough by now? is_spent: if so, it is adopted, and the count begins
 * again. */
bool reuse_count(uintptr_t start, uint64_t bytes, bool is_spent);
void reuse_forget(uintptr_t start); /* what lies there is another buffer now */
void reuse_note_lifetime(uintptr_t start, uint64_t uses); /* a region ended after so many uses */

/* ---- table.c ----------------------------------------------------------------------------- */

enum region_state {
	REGION_ADOPTING, /* being adopted by a thread that does not hold the lock; pinned */
	REGION_ACTIVE,
	REGION_RETURNED,
};

struct region {
	uintptr_t start, end;
	uintptr_t first,
		last;    /* the program's bytes in it; otherwise only an allocator's (blocks.h) */
	uint64_t offset; /* in the arena, of start */
	uint64_t inode;  /* of the arena; in a forked child, of its parent's */
	struct region_extent extent;
	uint32_t id; /* the slot of its pins; 0: nobody can have any */
	uint32_t ticket; /* of region_unmap_begin(): about to be unmapped or replaced; 0: is not */
	enum region_state state;
	bool retired; /* pages may still be reached through the extent: never reuse it */
	bool suspect; /* something failed: look at its mapping at each use */
};

#define TABLE_MAX 16384 /* the range of SLUICE_REGION_MAX */

struct region_table {
	struct region *at; /* sorted by address, never overlapping; TABLE_MAX of address space */
	uint32_t n, next_ticket;
	uint32_t overlaps; /* a result of table_each_overlap */
	bool off;   /* after region_fini: nothing new is adopted */
	int forks;  /* threads that are forking now: nothing is adopted or pinned */
	bool lost;  /* pages of a region may be mapped where the table does not know */
};
extern struct region_table region_table;

uint32_t table_find(uintptr_t addr); /* first region that ends above addr */
void table_insert(const struct region *r);
void table_remove(uint32_t at); /* its extent goes back, unless retired */
void table_publish_bounds(void);
bool table_is_alone(void); /* no other thread can write to the program's memory */
void table_forget_threads(void); /* in a forked child */
typedef void table_visit(uint32_t at, uintptr_t start, uintptr_t end);
/* From the top down; visit may remove the entry it is given. */
void table_each_overlap(uintptr_t start, uintptr_t end, table_visit *visit);

/* ---- pins.c: who uses a region; region_release() takes no lock --------------------------- */
size_t pins_bytes(void);
void pins_init_locked(void *memory);       /* that many bytes of zero, whole pages */
uint32_t pins_open_locked(void);           /* the number of a new region, which nobody uses yet */
void pins_close_locked(uint32_t id);
/* False: it is doomed, or another by now. Without the lock only by peek_region, which looks again.
 */
bool pins_add(uint32_t id);
void pins_release(uint32_t id);
void pins_note_use(uint32_t id);
uint64_t pins_uses(const struct region *r),
	pins_last_use(const struct region *r); /* of all uses so far */
uint64_t pins_clock(void);                     /* this was the last */
bool pins_drop(uint32_t id);               /* true: that was the last, of a doomed region */
uint32_t pins_of(const struct region *r);
bool pins_doom_locked(struct region *r);   /* it becomes private when its last user has released it;
					    * false: it has none */
bool pins_is_doomed(const struct region *r);
void pins_return_doomed_locked(void);             /* what was doomed and has been released */
void pins_reset_locked(void);

/* ---- peek.c: questions that are asked often, without the lock ---------------------------- */

/* False: certainly no region overlaps the range, that the program knows of. */
bool peek_overlaps(uintptr_t start, uintptr_t end);
/* A hint: one region, which may be mapped no more, holds all of it. */
bool peek_covers(uintptr_t start, uintptr_t end);
/* The region that holds the range whole, pinned, or false: ask again with the lock. */
bool peek_region(uintptr_t start, uintptr_t end, struct region *out);

/* ---- ends.c ------------------------------------------------------------------------------ */

/* A run of mappings of a region, looked at one by one: the program may have changed some unseen. */
struct mapping_walk {
	const struct region *r;
	uintptr_t at, end;
	bool missed; /* something else is mapped there, or nothing, or it cannot be known */
};
struct piece {
	uintptr_t start, end;
	uint64_t offset;
	int prot;
	bool shared;
};
bool mapping_next(struct mapping_walk *w, struct piece *out);

/* [start, end) of it, and edge pages that come with it, are still a shared mapping of its pages. */
bool ends_is_mapped(const struct region *r, uintptr_t start, uintptr_t end);
int ends_make_private(struct region *r);           /* 0, or -errno: it is as it was */
int ends_make_anonymous(uint32_t at); /* 0 and it is gone, or -errno: it is as it was */
void ends_unmapped(uint32_t at, uintptr_t start, uintptr_t end); /* other memory lies there now */

void fork_prepare(void), fork_parent(void), fork_child(void); /* fork.c */

#endif
