/* SPDX-License-Identifier: BSD-3-Clause */
/* The arena: one sparse memfd, a bitmap of its 2 MiB units, a pool of free units with pages. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "os/endpoint.h"
#include "region/private.h"

enum { PAST_MAX = 8, BITMAPS = 3, OWN_MAPPINGS_MAX = 16 };
enum { POOL_SHARE = 64 }; /* the pool takes at most such a part of os_memory_share_bytes() */

/* Adopted buffers leave such a part of the arena, and at most so much, to copies of other buffers,
 * without which a collective would fail. */
enum { RESERVE_SHARE = 4 };
#define RESERVE_BYTES ((uint64_t)1 << 30)

struct region_os region_os;

static struct {
	int fd;
	char *base;
	uint64_t bytes, units;
	uint64_t *used;      /* bitmap: unit is part of an extent */
	uint64_t *populated; /* bitmap: unit may have pages */
	uint64_t *huge;      /* bitmap: unit was made one huge page */
	uint64_t used_units, pooled_units, pool_most;
	uint64_t next;       /* no free unit below it */
	struct os_file file;
	char error[160];
} arena = { .fd = -1 };

/* Arenas of the processes that this one was forked from. */
static ino_t past[PAST_MAX];

/* region_add_mapping() */
static struct { uintptr_t start, end; } own_mappings[OWN_MAPPINGS_MAX];
static int own_mapping_count;

static bool bit_get(const uint64_t *map, uint64_t i) { return map[i / 64] >> (i % 64) & 1; }
static void bit_set(uint64_t *map, uint64_t i) { map[i / 64] |= 1ull << (i % 64); }
static void bit_clear(uint64_t *map, uint64_t i) { map[i / 64] &= ~(1ull << (i % 64)); }

static void os_resolve(void)
{
	if (region_os.mmap)
		return;
	region_os.munmap = dlsym(RTLD_NEXT, "munmap");
	region_os.madvise = dlsym(RTLD_NEXT, "madvise");
	region_os.mmap = dlsym(RTLD_NEXT, "mmap");
}

/* The program may have closed every descriptor, and opened another file under our number. */
int arena_fd_locked(void) { return os_file_is_at(&arena.file, arena.fd) ? arena.fd : -1; }
uint64_t arena_inode_locked(void) { return arena.file.inode; }

static int fail(int err, const char *what)
{
	snprintf(arena.error, sizeof arena.error, "%s: %s", what, strerror(err));
	base_log(BASE_LOG_INFO, "region", "no arena: %s", arena.error);
	return -err;
}

static uint32_t expected_arenas; /* 0: not said */

void region_expect_arenas(uint32_t count) { expected_arenas = count ? count : 1; }

/* Ranks that share an address space all map the arenas of all ranks of the node there. On x86-64 it
 * has 2^47 bytes, of which arenas get half. Returns: what is left for one. */
static uint64_t share_of_address_space(void)
{
	uint64_t of_node = base_job_local_size() > 0 ? (uint64_t)base_job_local_size()
						     : ENDPOINT_RANKS_MAX;
	uint64_t sharing = base_opt.endpoints > 0 ? (uint64_t)base_opt.endpoints
						  : ENDPOINT_RANKS_MAX;

	return (1ull << 46) / of_node / base_min_u64(sharing, of_node);
}

/* The arena fits the limits of this process: a memfd longer than RLIMIT_FSIZE raises SIGXFSZ, and
 * RLIMIT_AS counts the mappings of all peers' arenas too. They get an eighth of it, as a program
 * may need nearly all, and half of it in one that has its memory there (goal/). */
static uint64_t limit_bytes(void)
{
	uint64_t bytes = base_opt.region_arena_bytes;
	int ranks = base_job_local_size();
	uint64_t arenas = expected_arenas ? expected_arenas : ranks > 0 ? (uint64_t)ranks : 8;
	struct rlimit r;

	if (!getrlimit(RLIMIT_FSIZE, &r) && r.rlim_cur != RLIM_INFINITY)
		bytes = base_min_u64(bytes, r.rlim_cur);
	if (!getrlimit(RLIMIT_AS, &r) && r.rlim_cur != RLIM_INFINITY)
		bytes = base_min_u64(bytes, r.rlim_cur / (expected_arenas ? 2 : 8) / arenas);
	if (base_opt.endpoints)
		bytes = base_min_u64(bytes, share_of_address_space());
	return base_round_down(bytes, REGION_UNIT);
}

static void *map_anonymous(uint64_t bytes)
{
	void *p = region_os.mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				 -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

char *region_map_arena(int fd, uint64_t bytes)
{
	char *raw, *base;

	if (rules_locks_future_memory()) { /* it would be populated */
		errno = EPERM;
		return NULL;
	}
	raw = region_os.mmap(NULL, bytes + REGION_UNIT, PROT_NONE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw == MAP_FAILED)
		return NULL;
	base = (char *)base_round_up((uintptr_t)raw, REGION_UNIT);
	if (region_os.mmap(base, bytes, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) == MAP_FAILED) {
		region_os.munmap(raw, bytes + REGION_UNIT);
		return NULL;
	}
	if (base > raw)
		region_os.munmap(raw, (size_t)(base - raw));
	region_os.munmap(base + bytes, (size_t)(raw + REGION_UNIT - base));
	/* children do not inherit it, and a core dump does not contain the memory of every rank */
	region_os.madvise(base, bytes, MADV_DONTFORK);
	region_os.madvise(base, bytes, MADV_DONTDUMP);
	return base;
}

static int arena_open(void)
{
	uint64_t bytes = limit_bytes(), words;
	int err;

	if (bytes < 8 * REGION_UNIT)
		return fail(EFBIG, "limits (ulimit -f, ulimit -v) leave less than 16 MiB for it");
	if (base_fault("memfd"))
		return fail(ENOSYS, "memfd_create (injected)");
	arena.fd = memfd_create(REGION_ARENA_NAME, MFD_CLOEXEC);
	if (arena.fd < 0)
		return fail(errno, "memfd_create");
	err = ftruncate(arena.fd, (off_t)bytes) ? errno : -os_file_of(arena.fd, &arena.file);
	if (err)
		goto close_fd;
	arena.units = bytes / REGION_UNIT;
	arena.pool_most = base_min_u64(base_opt.region_pool_bytes,
				       os_memory_share_bytes() / POOL_SHARE) / REGION_UNIT;
	words = (arena.units + 63) / 64;
	arena.used = map_anonymous(BITMAPS * words * 8);
	err = ENOMEM;
	if (!arena.used)
		goto close_fd;
	arena.populated = arena.used + words;
	arena.huge = arena.populated + words;
	arena.base = region_map_arena(arena.fd, bytes);
	if (!arena.base)
		goto unmap_bits;
	arena.bytes = bytes;
	bit_set(arena.used, 0); /* the head */
	arena.next = REGION_HEAD_BYTES / REGION_UNIT;
	if (region_lock_notices_fork())
		table_set_head_locked((struct region_head *)(arena.base + OS_PAGE));
	return 0;

unmap_bits:
	region_os.munmap(arena.used, BITMAPS * words * 8);
	arena.used = NULL;
close_fd:
	close(arena.fd);
	arena.fd = -1;
	return fail(err, "setting up the memfd");
}

int region_init(void)
{
	static bool atfork_done;
	int ret = 0;

	os_copy_prepare(); /* a fault handler may have to copy */
	region_lock();
	os_resolve();
	region_lock_init();
	if (rules_locks_future_memory()) {
		ret = fail(EPERM, "the program locks all its memory (mlockall), which would "
				  "populate the mappings of all arenas");
	} else if (arena.fd < 0) {
		ret = os_page_check();
		if (!ret)
			ret = arena_open();
		if (!ret && !atfork_done) {
			atfork_done = true;
			pthread_atfork(fork_prepare, fork_parent, fork_child);
		}
	}
	region_unlock();
	return ret;
}

const char *region_init_error(void) { return arena.error; }
int region_arena_fd(void) { return arena.fd; }
uint64_t region_arena_bytes(void) { return arena.bytes; }
void *region_arena_base(void) { return arena.base; }
uint64_t arena_used_bytes_locked(void) { return arena.used_units * REGION_UNIT; }
uint64_t arena_pool_bytes_locked(void) { return arena.pooled_units * REGION_UNIT; }

bool arena_is_inode(const struct os_vma *v, uint64_t inode)
{
	/* all memfds are files of one device */
	return inode && v->inode == inode && v->dev_major == major(arena.file.device) &&
	       v->dev_minor == minor(arena.file.device);
}

bool arena_is_known(const struct os_vma *v)
{
	for (int i = 0; i < PAST_MAX; i++)
		if (arena_is_inode(v, past[i]))
			return true;
	return arena_is_inode(v, arena.file.inode);
}

int region_add_mapping(uintptr_t start, uintptr_t end)
{
	int ret = -ENOSPC;

	region_lock();
	if (own_mapping_count < OWN_MAPPINGS_MAX) {
		own_mappings[own_mapping_count].start = start;
		own_mappings[own_mapping_count++].end = end;
		ret = 0;
	}
	region_unlock();
	return ret;
}

bool arena_is_own_mapping_locked(const struct os_vma *v)
{
	for (int i = 0; i < own_mapping_count; i++)
		if (v->start >= own_mappings[i].start && v->end <= own_mappings[i].end)
			return true;
	return false;
}

bool region_is_arena_mapping(const struct os_vma *v)
{
	bool ours;

	region_lock();
	ours = arena_is_own_mapping_locked(v);
	region_unlock();
	if (ours)
		return true;
	/* peers' arenas are mapped by node/; they have one length on all ranks */
	return v->shared && v->inode && arena.fd >= 0 && v->dev_major == major(arena.file.device) &&
	       v->dev_minor == minor(arena.file.device) &&
	       (v->inode == arena.file.inode || v->end - v->start == arena.bytes);
}

bool arena_is_huge_locked(uint64_t offset, uint64_t bytes)
{
	uint64_t first = base_round_up(offset, REGION_UNIT) / REGION_UNIT,
		 last = (offset + bytes) / REGION_UNIT;

	while (first < last && bit_get(arena.huge, first))
		first++;
	return first >= last;
}

void arena_set_huge_locked(uint64_t offset, uint64_t bytes)
{
	uint64_t last = (offset + bytes) / REGION_UNIT;

	for (uint64_t i = base_round_up(offset, REGION_UNIT) / REGION_UNIT; i < last; i++)
		bit_set(arena.huge, i);
}

/* The range reads as zero from now on. */
void arena_punch_locked(uint64_t offset, uint64_t bytes)
{
	for (uint64_t i = offset / REGION_UNIT; i * REGION_UNIT < offset + bytes; i++)
		bit_clear(arena.huge, i);
	/* raw: libc's is a cancellation point, which free() must not be */
	if (arena_fd_locked() >= 0 && !base_fault("punch") &&
	    !syscall(SYS_fallocate, arena.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
		     bytes))
		return;
	if (base_fault("remove") || region_os.madvise(arena.base + offset, bytes, MADV_REMOVE))
		memset(arena.base + offset, 0, bytes);
}

/* First fit from the lowest unit, as low units have pages. Returns: the unit or UINT64_MAX. */
static uint64_t find_run(uint64_t n)
{
	uint64_t run = 0;

	for (uint64_t i = arena.next; i < arena.units; i++) {
		if (run == 0 && i % 64 == 0 && arena.used[i / 64] == UINT64_MAX) {
			i += 63;
			continue;
		}
		run = bit_get(arena.used, i) ? 0 : run + 1;
		if (run == n)
			return i + 1 - n;
	}
	return UINT64_MAX;
}

bool arena_has_room_locked(uint64_t bytes)
{
	uint64_t reserve = base_min_u64(arena.units / RESERVE_SHARE, RESERVE_BYTES / REGION_UNIT);

	return arena.used_units + (bytes + REGION_UNIT - 1) / REGION_UNIT + reserve <= arena.units;
}

int arena_extent_get_locked(uint64_t bytes, bool zeroed, struct region_extent *out)
{
	uint64_t n = (bytes + REGION_UNIT - 1) / REGION_UNIT, first;

	if (arena.fd < 0 || !n)
		return -EINVAL;
	if (base_fault("extent") || n > arena.units)
		return -ENOSPC;
	first = find_run(n);
	if (first == UINT64_MAX)
		return -ENOSPC;
	for (uint64_t i = first; i < first + n; i++) {
		bit_set(arena.used, i);
		if (bit_get(arena.populated, i)) {
			arena.pooled_units--;
			if (zeroed)
				arena_punch_locked(i * REGION_UNIT, REGION_UNIT);
		}
	}
	if (first == arena.next)
		arena.next = first + n;
	arena.used_units += n;
	*out = (struct region_extent){ first * REGION_UNIT, n * REGION_UNIT };
	return 0;
}

static _Atomic bool pages_are_held;

void region_pages_are_held(void)
{
	atomic_store_explicit(&pages_are_held, true, memory_order_relaxed);
}

void arena_extent_put_locked(const struct region_extent *e, bool keep_pages)
{
	uint64_t first = e->offset / REGION_UNIT, n = e->bytes / REGION_UNIT;
	uint64_t room = atomic_load_explicit(&pages_are_held, memory_order_relaxed)
				? 0 : arena.pool_most;

	for (uint64_t i = first; i < first + n; i++) {
		bit_clear(arena.used, i);
		if (keep_pages && arena.pooled_units < room) {
			bit_set(arena.populated, i);
			arena.pooled_units++;
		} else {
			bit_clear(arena.populated, i);
			arena_punch_locked(i * REGION_UNIT, REGION_UNIT);
		}
	}
	arena.used_units -= n;
	if (first < arena.next)
		arena.next = first;
}

int region_extent_get(uint64_t bytes, bool zeroed, struct region_extent *out)
{
	int ret;

	region_lock();
	ret = arena_extent_get_locked(bytes, zeroed, out);
	region_unlock();
	return ret;
}

void region_extent_put(const struct region_extent *e)
{
	region_lock();
	arena_extent_put_locked(e, true);
	region_unlock();
}

void arena_empty_pool_locked(void)
{
	for (uint64_t i = 0; arena.pooled_units && i < arena.units; i++) {
		if (bit_get(arena.used, i) || !bit_get(arena.populated, i))
			continue;
		bit_clear(arena.populated, i);
		arena.pooled_units--;
		arena_punch_locked(i * REGION_UNIT, REGION_UNIT);
	}
}

void arena_after_fork_child(void)
{
	if (arena.fd < 0)
		return;
	memmove(&past[1], past, sizeof past - sizeof past[0]);
	past[0] = arena.file.inode;
	if (arena_fd_locked() >= 0)
		syscall(SYS_close, arena.fd);
	region_os.munmap(arena.used, BITMAPS * ((arena.units + 63) / 64) * 8);
	arena.fd = -1;
	arena.base = NULL; /* not inherited: MADV_DONTFORK */
	arena.bytes = arena.units = arena.used_units = arena.pooled_units = arena.next = 0;
	arena.used = arena.populated = arena.huge = NULL;
	arena.file.inode = 0;
}

void region_describe_extent(const struct region_extent *e, uint64_t bytes, struct region_desc *out)
{
	*out = (struct region_desc){
		.addr = (uintptr_t)arena.base + e->offset,
		.bytes = bytes,
		.arena_off = e->offset,
		.flags = REGION_DESC_MAPPED,
	};
}
