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
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The next definitions after preload/'s in symbol order. region/ may not call our own hooks, which
 * take the lock, and may not bypass those of network libraries, which patch libc's functions. */
struct region_os {
	void *(*mmap)(void *, size_t, int, int, int, off_t);
	int (*munmap)(void *, size_t);
	int (*madvise)(void *, size_t, int);
};
extern struct region_os region_os;

/*
 * Guards all state of this folder. The holder's signals are blocked, except faults, and our hooks
 * do nothing in it: functions of other tools run under the lock and may free memory of their own.
 * errno does not change. Handlers of SIGSEGV and SIGSYS on top of the holder may call
 * region_release() only.
 */
void region_lock(void), region_unlock(void);
/* Both sides store, then load the other's word. TSan knows no fences. */
static inline void region_fence(void)
{
#if !defined(__SANITIZE_THREAD__)
	atomic_thread_fence(memory_order_seq_cst);
#endif
}
bool region_is_locked_here(void); /* or it cannot be taken in this process */
void region_lock_init(void);      /* with region_os; idempotent */
void region_lock_reset(void);     /* in a forked child: nobody holds it */
/* Does region_lock() notice that the process was forked, before our fork handler has run? */
bool region_lock_notices_fork(void);

/* ---- arena.c, all under the lock --------------------------------------------------------- */

int arena_extent_get_locked(uint64_t bytes, bool zeroed, struct region_extent *out);
bool arena_has_room_locked(uint64_t bytes); /* for an adopted buffer */
void arena_extent_put_locked(const struct region_extent *e, bool keep_pages);
void arena_punch_locked(uint64_t offset, uint64_t bytes);
/* Are all whole units of the range huge pages already? Collapsing them again interrupts every CPU.
 * */
bool arena_is_huge_locked(uint64_t offset, uint64_t bytes);
void arena_set_huge_locked(uint64_t offset, uint64_t bytes);
int arena_fd_locked(void); /* -1 when the program has closed it */
uint64_t arena_inode_locked(void);
bool arena_is_inode(const struct os_vma *v, uint64_t inode); /* it maps that memfd */
bool arena_is_known(const struct os_vma *v); /* ours, or that of a process we were forked from */
bool arena_is_own_mapping_locked(const struct os_vma *v); /* of region_add_mapping() */
uint64_t arena_used_bytes_locked(void), arena_pool_bytes_locked(void);
void arena_empty_pool_locked(void);
void arena_after_fork_child(void); /* the child has no arena; it may make its own */

/* ---- rules.c: why memory may not be adopted; NULL when it may. Caller holds the lock. ---- */
/* Facts about the range that are found without the lock. */
struct rules_known {
	bool is_block;  /* inside a block of malloc, so in no stack */
	bool is_static; /* rules_is_static() */
	bool is_registered; /* a GPU accesses a page below asked_end */
	uintptr_t asked_end;
	uint32_t victim; /* of evict_ask(); 0: not asked */
};
const char *rules_refusal_locked(uintptr_t start, uintptr_t end, const struct rules_known *known);
/* Is all of it static data of one loaded object? Context: without the lock, as it takes the
 * loader's lock, under which other threads may free memory. */
bool rules_is_static(uintptr_t start, uintptr_t end);
/* The range was unmapped or replaced: ends its exclusion. */
void rules_forget_locked(uintptr_t start, uintptr_t end);
bool rules_locks_future_memory(void); /* mlockall(MCL_FUTURE) */

/* ---- pages.c: mappings and copies, no bookkeeping. 0, or -errno and nothing has changed ---- */
/* *huge: in: its whole units are huge pages already; out: they are now. */
int pages_adopt(uintptr_t start, uint64_t bytes, const struct region_extent *e, bool *huge);
/*
 * For a copy of all pages of a long region a job may have no memory. So pages are copied by pieces,
 * and freed(start, end) may free those of a piece, by their offsets in the arena, before the next
 * one is copied. It is not called for the last piece. NULL: none are freed.
 */
#define PAGES_PIECE_BYTES ((uint64_t)4 << 20)
typedef void pages_freed(uint64_t start, uint64_t end);
/* A private mapping of the same pages. *out_copied: every page has been copied on write. */
int pages_make_private(uintptr_t start, uint64_t bytes, uint64_t offset, int prot,
		       pages_freed *freed, bool *out_copied);
int pages_make_fresh(uintptr_t start, uint64_t bytes, int prot);
/* Anonymous memory with the same contents, in place of a shared (back) or private (anew) mapping.
 * */
int pages_copy_back(uintptr_t start, uint64_t bytes, uint64_t offset, int prot,
		    pages_freed *freed);
int pages_copy_anew(uintptr_t start, uint64_t bytes, int prot);

/* ---- reuse.c: which buffers are worth adopting ------------------------------------------- */
/* Does the cost of adoption decide, rather than a fixed number of uses? */
static inline bool reuse_is_by_cost(void) { return base_opt.region_adopt_after < 0; }
/*
 * Counts uses of a buffer, whose first `adopted` bytes are adopted. Returns: how many of the
 * other bytes to adopt now. is_spent: with a fixed number of uses, counting starts again after it.
 */
uint64_t reuse_count(uintptr_t start, uint64_t bytes, uint64_t adopted, enum region_intent intent,
		     uint32_t uses, bool is_spent);
/* Adopting `bytes` of the buffer at `start` took so long. */
void reuse_pay(uintptr_t start, uint64_t bytes, uint64_t ns);
void reuse_forget(uintptr_t start); /* another buffer lies there now */
/* A region ended after `uses` uses; 0: it was never complete. */
void reuse_note_lifetime(uintptr_t start, uint64_t bytes, uint64_t uses);

/* ---- table.c ----------------------------------------------------------------------------- */

enum region_state {
	REGION_ADOPTING, /* a thread adopts it without the lock; pinned */
	REGION_ACTIVE,
	REGION_RETURNED, /* private; the mapping still names the extent, which stays reserved */
};

struct region {
	uintptr_t start, end;
	uintptr_t first, last; /* the program's data; outside it only an allocator's (blocks.h) */
	/* the end and the last byte that it grows to, piece by piece; `end` and `last` when
	 * complete */
	uintptr_t whole_end, whole_last;
	uint64_t offset; /* in the arena, of start */
	uint64_t inode;  /* of the arena; in a forked child, of its parent's */
	struct region_extent extent;
	uint32_t id; /* the slot of its pins; 0: it has none */
	uint32_t ticket; /* of region_unmap_begin(); 0: no call is about to unmap it */
	uint8_t state; /* enum region_state */
	bool is_static; /* data of a loaded object */
	bool retired; /* pages may still be reached through the extent: never reuse it */
	bool suspect; /* an operation failed: check its mapping at each use */
	bool has_gpu_pin; /* registered.c holds a pin */
	bool is_split; /* another entry may have the same extent */
	bool is_emptied; /* pages of its extent were freed while it ended */
};

#define TABLE_MAX 16384 /* the range of SLUICE_REGION_MAX */

/*
 * The table that look-ups without the lock read, those of peers too. It lies in the head of the
 * arena, behind struct node_header. A forked child does not map the arena: its head is private.
 */
struct region_head {
	_Atomic uint64_t version; /* odd while the lock is held; written under it */
	uint32_t n;
	struct region at[TABLE_MAX]; /* sorted by address, never overlapping */
};
_Static_assert(OS_PAGE + sizeof(struct region_head) <= REGION_HEAD_BYTES, "one unit");

struct region_table {
	struct region_head *head; /* changes under the lock, and leaves the old version odd */
	uint32_t next_ticket, last_id; /* wrap around, and are never 0 */
	bool has_pins;
	bool off;   /* after region_fini(): no more adoption */
	int forks;  /* threads that are forking now: no adoption, no pins */
	bool is_read; /* region_set_read_by_peers() */
	bool lost;  /* pages of a region may be mapped at addresses that the table does not have */
};
extern struct region_table region_table;

/* Moves the regions to a head of zeros; NULL: forgets them, in a forked child. */
void table_set_head_locked(struct region_head *head);
uint32_t table_find(uintptr_t addr); /* first region that ends above addr */
void table_insert(const struct region *r);
void table_remove(uint32_t at); /* frees its extent, unless retired */
void table_publish_bounds(void);
bool table_is_alone(void); /* no other thread can write to the program's memory */
bool table_is_unread(void); /* and no peer reads it */
void table_forget_threads(void); /* in a forked child */
typedef void table_visit(uint32_t at, uintptr_t start, uintptr_t end);
/* From the highest address down; visit may remove the entry. */
void table_each_overlap(uintptr_t start, uintptr_t end, table_visit *visit);

/* ---- pins.c: who uses a region; region_release() takes no lock --------------------------- */
size_t pins_bytes(void);
void pins_init_locked(void *memory);       /* that many bytes of zero, whole pages */
uint32_t pins_open_locked(void);           /* returns the number of a new region without pins */
void pins_close_locked(uint32_t id);
/* Returns: false when the region is doomed or has ended. Without the lock only for peek_region(),
 * which checks again. */
bool pins_add(uint32_t id);
void pins_release(uint32_t id);
void pins_note_use(uint32_t id);
uint64_t pins_uses(const struct region *r);
uint64_t pins_last_use(const struct region *r); /* on pins_clock() */
uint64_t pins_clock(void);                 /* uses of all regions so far */
bool pins_drop(uint32_t id);               /* returns true for the last pin of a doomed region */
uint32_t pins_of(const struct region *r);
/* The region is returned when its last pin is released. Returns: false when it has none. */
bool pins_doom_locked(struct region *r);
bool pins_is_doomed(const struct region *r);
void pins_return_doomed_locked(void);      /* returns doomed regions without pins */
void pins_reset_locked(void);

/* ---- registered.c: regions that a GPU accesses ------------------------------------------- */
enum registered_cause {
	REGISTERED_ASK,  /* regions may be returned */
	REGISTERED_DIES, /* the contents of the range die */
	/* a memory hook, which the CUDA driver may have called: the driver is not asked, and every
	 * region is kept; so are regions of which only a part dies */
	REGISTERED_HOOK,
};
/* Pins the regions of the range that a GPU accesses, and unpins those that no GPU accesses any
 * more. Does nothing in programs that do not use CUDA. Context: without the lock. */
void registered_ask(uintptr_t start, uintptr_t end, enum registered_cause cause);

/* ---- evict.c ----------------------------------------------------------------------------- */
/* Asks whether a GPU accesses the region that would be evicted next. Returns: its number; where
 * there is room, a number that no region has. Context: without the lock. */
uint32_t evict_ask(void);
/*
 * Evicts the least recently used region when there are SLUICE_REGION_MAX. Where other threads may
 * write to it, it becomes a returned region until the program frees it; there are at most
 * SLUICE_REGION_MAX of those too. may_evict: the only candidate; 0: any.
 * Returns: whether there is room for a region.
 */
bool evict_make_room_locked(uint32_t may_evict);

/* ---- peek.c: look-ups without the lock --------------------------------------------------- */

/* Returns: false when certainly no region overlaps the range. */
bool peek_overlaps(uintptr_t start, uintptr_t end);
/* Does one region hold all of the range? A hint: the mapping is not checked. */
bool peek_covers(uintptr_t start, uintptr_t end);
/* Bytes of the range that one region holds from `start` on. A hint. */
uint64_t peek_prefix(uintptr_t start, uintptr_t end);
/* Finds and pins the region that holds all of the range. Returns: false: look it up with the lock.
 * */
bool peek_region(uintptr_t start, uintptr_t end, struct region *out);

/* ---- ends.c ------------------------------------------------------------------------------ */

/* Walks the mappings of a region, of which the program may have changed some without a hook. */
struct mapping_walk {
	const struct region *r;
	uintptr_t at, end;
	bool missed; /* a part maps another file, or nothing, or is unknown */
};
struct mapping {
	uintptr_t start, end;
	uint64_t offset;
	int prot;
	bool shared;
};
static inline int mapping_prot(const struct os_vma *v)
{
	return (v->read ? PROT_READ : 0) | (v->write ? PROT_WRITE : 0) | (v->exec ? PROT_EXEC : 0);
}

/* Is [start, end) of r, with the edge pages that belong to it, still a shared mapping of its pages?
 * */
bool ends_is_mapped(const struct region *r, uintptr_t start, uintptr_t end);
/* Both return 0, or -errno and nothing has changed. The second removes the region. */
int ends_make_private(struct region *r);
int ends_make_anonymous(uint32_t at);
/* [start, end) maps other memory now. */
void ends_unmapped(uint32_t at, uintptr_t start, uintptr_t end);

void fork_prepare(void), fork_parent(void), fork_child(void); /* fork.c */

#endif
