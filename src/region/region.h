/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * region: memory of this process that other ranks of the node group can address.
 *
 *   arena    one sparse memfd a process; peers map it once (node/), whole, at any address
 *   extent   a run of 2 MiB units of the arena: control segments, scratch memory, adopted buffers
 *   region   pages of the program that were replaced, in place, by pages of an extent ("adopted")
 *
 *      program's buffer   |..head..|############ middle ############|..tail..|
 *                                   whole pages, same addresses
 *      arena (memfd)      ---------|############ extent #############|--------   mapped by all
 * peers
 *
 * Only the middle (whole pages inside the buffer) is adopted; head and tail, less than a page each,
 * travel in the descriptor. Where nothing else of the program's lies in the first or last page (a
 * block of malloc that is a mapping of its own, doc/adr/0014) that page is adopted too, and head or
 * tail is 0. Only private anonymous memory and the static data of loaded objects is adopted: never
 * a shared mapping, a stack, locked, huge-page (hugetlbfs) or device memory.
 *
 * A region ends by what the program does to it (doc/adr/0003):
 *   drop       its contents are dead (free, MADV_DONTNEED): anonymous memory again
 *   keep       its contents live on and other threads may be writing (mprotect, mlock, fork and
 *              eviction with threads): a private mapping of the same pages replaces the shared one,
 *              each page is then copied on write; nothing a thread writes meanwhile is lost
 *   exclusive  its contents live on and only the caller may touch it (mremap, fork and eviction
 *              without threads): copied back into anonymous memory, one mapping with its neighbours
 *   leave      the program unmaps or replaces it (munmap, mmap over it, mremap to it)
 *
 * A guard (guard/) may close parts of pinned regions to the program: other protection, or the pages
 * moved away and something else in their place. So the mapping of a pinned region is neither
 * changed nor judged outside of what is being described, and nothing here touches it at the
 * program's address.
 *
 * Order of calls: region_init, then region_describe / region_release around each use.
 * Threads: all calls are thread-safe; a lock is held while a region is made or unmade, never while
 * data moves, and not at all where a buffer is known already. The memory hooks (interpose.c) may
 * run in any thread and, where their functions may, in signal handlers. region_release() may be
 * called on top of anything, by a handler of SIGSEGV or SIGSYS too; nothing else may run in a
 * signal handler. After fork the child owns its memory privately and has no arena until it makes
 * its own.
 */
#ifndef SLUICE_REGION_H
#define SLUICE_REGION_H

#include "base/base.h"
#include "os/os.h"

#define REGION_UNIT OS_HUGE /* extents are multiples of this, so that huge pages can back them */

/* ---- arena and extents -------------------------------------------------------------------- */

struct region_extent {
	uint64_t offset; /* in the arena, multiple of REGION_UNIT */
	uint64_t bytes;  /* multiple of REGION_UNIT */
};

/* Create the arena (memfd, mapped here). Idempotent, thread-safe. 0 or -errno; the reason is logged
 * once and kept for region_init_error(). */
int region_init(void);
const char *region_init_error(void); /* "" when none */
/* Give everything back that the program does not use any more. No transfer may be in flight.
 * Regions stay mapped: the program may go on using its memory. */
void region_fini(void);

int region_arena_fd(void);
uint64_t region_arena_bytes(void);
/* Map an arena, this process's or a peer's, at a multiple of REGION_UNIT, so that huge pages can
 * back it; NULL with errno. After region_init(). */
char *region_map_arena(int fd, uint64_t bytes);
void *region_arena_base(void); /* where this process sees offset 0 */

/* Reserve an extent of at least `bytes`; its pages are zero if `zeroed`, else whatever the pool
 * left. 0, -ENOSPC (arena full) or -errno. Owner: the caller, until region_extent_put(). */
int region_extent_get(uint64_t bytes, bool zeroed, struct region_extent *out);
/* Give an extent back. Its pages go to the pool while the pool has room, else to the system. */
void region_extent_put(const struct region_extent *e);

/* ---- descriptors ------------------------------------------------------------------------- */

#define REGION_DESC_MAPPED 1u /* the middle lies in the arena at arena_off */

/*
 * What peers need to address a buffer. Fixed width: it lies in shared memory. The owner may close
 * the pages that the mapped middle touches, all of them whole (region_desc_pages): no other bytes
 * of the program's lie in them.
 */
struct region_desc {
	uint64_t addr;      /* of byte 0 in the owner's address space (for process_vm_readv) */
	uint64_t bytes;
	uint64_t arena_off; /* of byte `head` */
	uint32_t head, tail; /* bytes outside the mapped middle; head + tail <= bytes */
	uint32_t flags;
	uint32_t id;        /* region number, differs for each adoption; 0 when not mapped */
};

/* The pages of a mapped buffer in its owner's address space that hold nothing but the buffer. */
static inline void region_desc_pages(const struct region_desc *d, uintptr_t *out_start,
				     uintptr_t *out_end)
{
	*out_start = base_round_down(d->addr + d->head, OS_PAGE);
	*out_end = base_round_up(d->addr + d->bytes - d->tail, OS_PAGE);
}

enum region_intent {
	REGION_USE,    /* count this use, adopt when the buffer has earned it */
	REGION_FORCE,  /* adopt now if it can be */
	REGION_LOOKUP, /* describe what is there, adopt nothing */
};

/*
 * Describe [buf, buf+bytes) for peers. Never fails: at worst the descriptor has no
 * REGION_DESC_MAPPED. A mapped region is pinned (not evicted, not made private by fork) until
 * region_release(). Context: any thread; may take the region lock and, when it adopts,
 * milliseconds.
 */
void region_describe(const void *buf, uint64_t bytes, enum region_intent intent,
		     struct region_desc *out);
/*
 * Counts a use of [buf, buf+bytes) that is not described, and adopts nothing. True: it is adopted,
 * or has been used so often that region_describe() would adopt it. A hint, as what is mapped is not
 * looked at.
 */
bool region_is_reused(const void *buf, uint64_t bytes);
/* Unpin what region_describe() returned. */
void region_release(const struct region_desc *d);

/* Describe an extent (scratch memory): always mapped, nothing to release. */
void region_describe_extent(const struct region_extent *e, uint64_t bytes, struct region_desc *out);

/* ---- what the program does to its memory (called by the hooks, before the real call) ----- */

/*
 * fn(start, end): the program is about to change what lies there (0 to UINTPTR_MAX: it forks). It
 * is called by all of the functions below that end regions, before the lock is taken and before
 * anything is changed, when the range overlaps a region; it is then told all of these regions,
 * whole, as a part of one cannot be ended without the rest. fn may block, copy, give back guarded
 * pages and call region_release(). Afterwards no page of [start, end) may be guarded by this
 * thread's doing; what other threads pin in the meantime is pinned, and a pinned region's mapping
 * is left alone but for the part that the program's own call is about. Not called inside itself,
 * nor while this thread holds region's lock. NULL: nobody is told.
 */
void region_set_before_change(void (*fn)(uintptr_t start, uintptr_t end));
void region_before_change(uintptr_t start, uintptr_t end); /* calls it, as said above */

/* Range of addresses that contains every adopted page; lo >= hi when there is none. One relaxed
 * load each decides that a hook has nothing to do. Written under the lock. */
extern _Atomic uintptr_t region_lo, region_hi;
static inline bool region_may_touch(uintptr_t start, uintptr_t end)
{
	return base_unlikely(start < atomic_load_explicit(&region_hi, memory_order_relaxed) &&
			     end > atomic_load_explicit(&region_lo, memory_order_relaxed));
}

/* May a heap block that begins here contain a region? Its end is not known yet. */
static inline bool region_may_be_in_block(uintptr_t block)
{
	return base_unlikely(block < atomic_load_explicit(&region_hi, memory_order_relaxed));
}

void region_drop(uintptr_t start, uintptr_t end);      /* contents die, mapping must be anonymous */
void region_return(uintptr_t start, uintptr_t end);      /* contents live, threads may write */
/* Contents live, nobody else touches it: anonymous again, but for regions that reach beyond the
 * range and are in use there, or may be written by other threads. */
void region_return_exclusive(uintptr_t start, uintptr_t end);
void region_discard(uintptr_t start,
		    uintptr_t end); /* this range reads as zero from now on, the
				     * rest of its regions lives on (MADV_DONTNEED) */
bool region_overlaps(uintptr_t start, uintptr_t end);
/* An allocator has given this block out: uses of what was there before do not count any more. */
void region_forget_uses(uintptr_t block);
/* Something may have been unmapped unseen: every region's mapping is looked at before its next use,
 * also where looking is dear. */
void region_suspect_all(void);
/* Around a call that unmaps or replaces the range: region_unmap_begin before it, region_unmap_end with its
 * ticket after it. `done`: the call succeeded; otherwise everything is as it was. In between,
 * nothing that lies there is described, and its part of the arena is not used again. */
uint32_t region_unmap_begin(uintptr_t start, uintptr_t end);
void region_unmap_end(uint32_t ticket, uintptr_t start, uintptr_t end, bool done);
/* Never adopt pages of this range again (locked memory, RMA windows, special advice), until it is
 * unmapped. */
void region_exclude(uintptr_t start, uintptr_t end);
extern _Atomic bool region_has_excluded; /* so that unmapping has to say so */
/* No adoption from now on (mlockall). `future`: nor windows of memory, which would be populated. */
void region_exclude_all(bool future);
/* The calling thread is one of ours: it touches the program's memory through the arena only. Said
 * once, until it ends. Such threads leave a program without threads what it is (fork and eviction
 * are dearer with). */
void region_own_thread(void);
/* Arena pages mapped in [start, end) are there by our own doing (the guard's shadow): no lost
 * region, not to be locked, nothing of a child's. For ever; a few ranges only. 0 or -ENOSPC. */
int region_add_mapping(uintptr_t start, uintptr_t end);
/* This mapping is a window on an arena, whose pages come and go: not to be locked. */
bool region_is_arena_mapping(const struct os_vma *v);
/* Every byte is readable and private to this process, as far as the program knows. */
bool region_is_private_memory(uintptr_t start, uintptr_t end);

/* ---- for `sluice info`, tests ------------------------------------------------------------ */
struct region_stats {
	uint32_t active, zombies;  /* adopted now; made private by `keep` and not freed yet */
	uint64_t active_bytes, pool_bytes, arena_used_bytes;
};
void region_get_stats(struct region_stats *out);
/* Why [buf, buf+bytes) cannot be adopted, or NULL when it can. A constant sentence. */
const char *region_refusal(const void *buf, uint64_t bytes);

#endif
