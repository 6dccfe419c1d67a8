/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * region: memory of this process that the other ranks of a node group can address.
 *
 *   arena    one sparse memfd a process; peers map it once (node/), whole, at any address
 *   extent   a run of 2 MiB units of the arena: control segments, scratch memory, adopted buffers
 *   region   pages of the program that were replaced, in place, by pages of an extent: "adopted"
 *
 *      program's buffer   |..head..|############ middle ############|..tail..|
 *                                   whole pages, same addresses
 *      arena (memfd)      ---------|############ extent #############|--------   mapped by all
 * peers
 *
 * Only the middle (whole pages inside the buffer) is adopted; head and tail, less than a page each,
 * travel in the descriptor. A first or last page in which no other data of the program lies (a
 * block of malloc that is a mapping of its own, doc/adr/0014-whole-blocks.md) is adopted too, and
 * head or tail is 0. Only private anonymous memory and the static data of loaded objects is
 * adopted: never a shared mapping, a stack, locked, huge-page (hugetlbfs) or device memory.
 *
 * A region ends by what the program does to it (doc/adr/0003-adoption-and-its-ends.md):
 *   drop              its contents are dead (free, MADV_DONTNEED): anonymous memory again
 *   return            its contents live on and other threads may be writing (mprotect, mlock; fork
 *                     and eviction with threads): a private mapping of the same pages replaces the
 *                     shared one, and each page is copied on write; no store of another thread is
 *                     lost
 *   return_exclusive  its contents live on and only the caller may touch it (mremap; fork and
 *                     eviction without threads, where no peer reads messages): copied
 *                     back into anonymous memory, which merges with its neighbours
 *   unmap             the program unmaps or replaces it (munmap, mmap over it, mremap to it)
 *
 * Memory that the program has registered with CUDA is not adopted, as a GPU goes on with the old
 * pages. An adopted region whose memory is registered later stays adopted while it is registered.
 *
 *   region_init -> [region_describe ... region_release]* -> region_fini
 *
 * guard/ may close parts of pinned regions to the program: it changes their protection, or moves
 * their page tables away. So region/ neither changes nor checks the mapping of a pinned region,
 * except for the part that is being described, and never accesses it at the program's address.
 *
 *   arena.c    the arena, extents, the pool        table.c   describe, adopt
 *   pages.c    mmap and copies of adoption         rules.c   what may be adopted
 *   ends.c     how regions end                     reuse.c   which buffers are worth adopting
 *   pins.c     who uses a region                   peek.c    look-ups without the lock
 *   blocks.c   large blocks of malloc              evict.c    room for a new region
 *   registered.c  pages that a GPU accesses        fork.c lock.c
 *   preload/memory.c and advice.c call the functions that end regions.
 *
 * Threads: all calls are thread-safe. A lock is held while a region is made or ended, never while
 * data moves, and not for a look-up of a known buffer. The memory hooks may run in any thread and,
 * where the functions that they replace may, in signal handlers. region_release() may run on top of
 * anything, in handlers of SIGSEGV and SIGSYS too; nothing else may run in these handlers. A forked
 * child owns its memory privately and has no arena until it makes its own.
 */
#ifndef SLUICE_REGION_H
#define SLUICE_REGION_H

#include "base/base.h"
#include "os/os.h"

#define REGION_UNIT OS_HUGE /* extents are multiples of this, so that huge pages can back them */
/* No extent: the first unit of each arena, zero at first. Its first page is struct node_header. */
#define REGION_HEAD_BYTES REGION_UNIT
#define REGION_ARENA_NAME "sluice" /* of the memfd */
#define REGION_ARENA_LINK "/memfd:" REGION_ARENA_NAME " " /* how links in /proc/PID/fd begin */

/* ---- arena and extents -------------------------------------------------------------------- */

struct region_extent {
	uint64_t offset; /* in the arena, multiple of REGION_UNIT */
	uint64_t bytes;  /* multiple of REGION_UNIT */
};

/* How many arenas this process will map, its own included: under RLIMIT_AS they share half of the
 * limit. Without this call before region_init() those of the ranks of this node share an eighth. */
void region_expect_arenas(uint32_t count);
/* Creates the arena (memfd, mapped here). Idempotent. Returns: 0 or -errno; the reason is logged
 * once and stored for region_init_error(). */
__attribute__((cold)) int region_init(void);
const char *region_init_error(void); /* "" when none */
/* Frees the pool and ends adoption. Regions stay mapped, as the program goes on using its memory.
 * No transfer may be in flight. */
void region_fini(void);

int region_arena_fd(void);
uint64_t region_arena_bytes(void);
/* Maps an arena, this process's or a peer's, at a multiple of REGION_UNIT, so that huge pages can
 * back it. Returns: the address, NULL with errno. Context: after region_init(). */
char *region_map_arena(int fd, uint64_t bytes);
void *region_arena_base(void); /* where this process sees offset 0 */

/* Reserves an extent of at least `bytes`; its pages are zero if `zeroed`, else of any contents.
 * Returns: 0, -ENOSPC (arena full) or -errno. Owner: the caller, until region_extent_put(). */
int region_extent_get(uint64_t bytes, bool zeroed, struct region_extent *out);
/* Frees an extent. Its pages go to the pool while the pool has room, else to the system. */
void region_extent_put(const struct region_extent *e);

/* ---- descriptors ------------------------------------------------------------------------- */

#define REGION_DESC_MAPPED 1u /* the middle lies in the arena at arena_off */

/*
 * Addresses a buffer for peers. Fixed width: it lies in shared memory. The owner may close all
 * pages of the mapped middle (region_desc_pages), as no other data of the program lies in them.
 */
struct region_desc {
	uint64_t addr;      /* of byte 0 in the owner's address space (for process_vm_readv) */
	uint64_t bytes;
	uint64_t arena_off; /* of byte `head` */
	uint32_t head, tail; /* bytes outside the mapped middle; head + tail <= bytes */
	uint32_t flags;
	uint32_t id;        /* number of the adoption; 0 when not mapped */
};

/* The pages of a mapped buffer in its owner's address space that hold nothing but the buffer. */
static inline void region_desc_pages(const struct region_desc *d, uintptr_t *out_start,
				     uintptr_t *out_end)
{
	*out_start = base_round_down(d->addr + d->head, OS_PAGE);
	*out_end = base_round_up(d->addr + d->bytes - d->tail, OS_PAGE);
}

enum region_intent {
	REGION_USE,    /* count this use, adopt what the uses have earned (reuse.c) */
	REGION_USE_PACKED, /* the same; while the buffer is not adopted, each use packs it */
	REGION_USE_SENT, /* as REGION_USE, for a message: its receiver counts no use */
	REGION_FORCE,  /* adopt now if that is possible */
	REGION_LOOKUP, /* adopt nothing */
};

/*
 * Describes [buf, buf+bytes) for peers. Never fails: at worst the descriptor has no
 * REGION_DESC_MAPPED. A mapped region is pinned (not evicted, not returned by fork) until
 * region_release(). Context: any thread; may sleep; milliseconds when it adopts.
 */
void region_describe(const void *buf, uint64_t bytes, enum region_intent intent,
		     struct region_desc *out);
/*
 * Counts uses of [buf, buf+bytes). Where the cost decides about adoption, adopts what the uses
 * have earned and returns whether all of the buffer is adopted. With a fixed number of uses, adopts
 * nothing and returns whether the buffer is adopted or region_describe() would adopt it. A hint:
 * the mapping is not checked. Context: as region_describe().
 */
bool region_is_reused(const void *buf, uint64_t bytes, enum region_intent intent, uint32_t uses);
/* Sets the time that peers need per byte of a buffer that is not adopted, and of one that is, in
 * picoseconds. */
void region_set_copy_rates(uint32_t private_ps_per_byte, uint32_t mapped_ps_per_byte);
/* Sets the first of them, and the second so that their ratio stays. */
void region_set_private_rate(uint32_t ps_per_byte);
/* Sets the price of adopting a byte until the first adoption, in picoseconds. */
void region_expect_price(uint32_t ps_per_byte);
/* Sets the time of calls per byte that they move, of buffers with gaps that are not adopted, in
 * picoseconds; 0: unknown. */
void region_set_packed_rate(uint32_t ps_per_byte);
/* Counts time that the program has saved by Sluice: half of it may be spent on adoption. */
void region_earn(uint64_t saved_ns);
/* Unpins the region of a descriptor of region_describe(). */
void region_release(const struct region_desc *d);

/* Describes an extent (scratch memory): always mapped, never released. */
void region_describe_extent(const struct region_extent *e, uint64_t bytes, struct region_desc *out);

/* ---- regions of a peer -------------------------------------------------------------------- */

/*
 * A process that maps the arena of another one reads that one's regions without its help, and
 * without pins, so a killed reader leaves nothing and the owner waits for nobody. The owner changes
 * the mapping of a region, and uses its pages for something else, only while the version of its
 * table is odd or after the region's entry has changed (ends.c, under the lock). So:
 *
 *   region_peer_find() -> copy from arena + arena_off -> region_peer_has(): the copy is right
 *                                                        else: it may be anything
 */
struct region_range {
	uintptr_t start, end; /* the region, in its owner's address space */
	uint64_t arena_off;   /* of start */
	uint64_t version;
	uint32_t id;
};
/*
 * Finds the region of the owner that holds addr. Returns: whether it can be read. Otherwise no
 * region can be read below out->start, unless that is below addr. arena: where the peer's arena is
 * mapped here. Context: any; no lock.
 */
bool region_peer_find(const void *arena, uintptr_t addr, struct region_range *out);
/* Returns: a number that changes whenever the owner's regions do. */
uint64_t region_peer_version(const void *arena);
/* Has [start, end) of its owner been part of this region without a break since region_peer_find()?
 * */
bool region_peer_has(const void *arena, const struct region_range *s, uintptr_t start,
		     uintptr_t end);

/* ---- what the program does to its memory (called by the hooks, before the real call) ----- */

/*
 * fn(start, end): the program is about to change the mappings of this range (0 to UINTPTR_MAX: it
 * forks). All functions below that end regions call fn first when their range overlaps a region,
 * without the lock, with the range widened to whole regions, as a region ends as a whole. fn may
 * block, copy, release guarded pages and call region_release(). Afterwards this thread guards no
 * page of the range. Regions that other threads pin meanwhile stay as they are, except for the part
 * that the program's own call is about. fn is not called inside fn, nor with region's lock held.
 * NULL: none.
 */
void region_set_before_change(void (*fn)(uintptr_t start, uintptr_t end));
void region_before_change(uintptr_t start, uintptr_t end); /* calls fn */
/* Does a region hold this byte? A hint; asks the kernel nothing. */
bool region_may_hold(uintptr_t addr);

/* Bounds of all adopted pages; lo >= hi when there is none. With one relaxed load each a hook finds
 * that it has nothing to do. Written under the lock. */
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

/*
 * Peers may read memory of this process by system call at any moment, as a message is on its way:
 * fork and eviction, of which the program does not know, make regions private by `return` from now
 * on, and never by `return_exclusive`, during which the pages read as zero for a moment.
 */
void region_set_read_by_peers(void);

/* The contents die. */
void region_drop(uintptr_t start, uintptr_t end);
/* The contents live on, other threads may write to them. */
void region_return(uintptr_t start, uintptr_t end);
/* The contents live on, no other thread accesses the range: anonymous memory again, except regions
 * that reach beyond the range and are pinned, or may be written by other threads there. */
void region_return_exclusive(uintptr_t start, uintptr_t end);
/* The range reads as zero from now on, the rest of its regions lives on (MADV_DONTNEED). */
void region_discard(uintptr_t start, uintptr_t end);
bool region_overlaps(uintptr_t start, uintptr_t end);
/* An allocator has returned this block: earlier uses of its address do not count any more. */
void region_forget_uses(uintptr_t block);
/* Regions may have been unmapped without a hook (dlclose): every region's mapping is checked before
 * its next use, also where the check is slow. */
void region_suspect_all(void);
/* Around a call that unmaps or replaces the range. `done`: the call succeeded; otherwise nothing
 * has changed. In between no buffer of the range is described, and its part of the arena is not
 * used again. Returns: a ticket for region_unmap_end(); 0: nothing to do. */
uint32_t region_unmap_begin(uintptr_t start, uintptr_t end);
void region_unmap_end(uint32_t ticket, uintptr_t start, uintptr_t end, bool done);
/* No page of the range is adopted (locked memory, RMA windows, special advice) until it is
 * unmapped. */
void region_exclude(uintptr_t start, uintptr_t end);
extern _Atomic bool region_has_excluded; /* so unmapping has to be reported */
/* No page is adopted from now on (mlockall). `future`: nor is an arena made, as mapping it would
 * populate it. */
void region_exclude_all(bool future);
/* From now on the kernel may hold pages of the program that it has unmapped (vmsplice,
 * MSG_ZEROCOPY): pages of regions that end are given back and never used again. */
void region_pages_are_held(void);
/* The calling thread is Sluice's until it ends: it accesses the program's memory through the arena
 * only. It does not count as a thread of the program, with which fork and eviction are slower. */
void region_own_thread(void);
/* Arena pages mapped in [start, end) are Sluice's own (the guard's shadow): they belong to no
 * region, are not locked and not inherited. For ever; a few ranges only. Returns: 0 or -ENOSPC. */
int region_add_mapping(uintptr_t start, uintptr_t end);
/* Is this a mapping of an arena by Sluice? It may not be locked: its holes would be populated. */
bool region_is_arena_mapping(const struct os_vma *v);
/* Is every byte readable, writable and private to this process, as far as the program knows? */
bool region_is_private_memory(uintptr_t start, uintptr_t end);

/* Returns: why [buf, buf+bytes) cannot be adopted, a constant sentence; NULL when it can. For
 * tests. */
const char *region_refusal(const void *buf, uint64_t bytes);

#endif
