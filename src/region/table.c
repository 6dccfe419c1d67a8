/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The regions of this process, sorted by address, never overlapping.
 *
 *   (nothing) --adopt--> ACTIVE --keep--> ZOMBIE --drop/forget--> (nothing)
 *                          |                ^ private pages; the extent's offsets stay reserved,
 *                          +--drop/forget/exclusive--> (nothing)   as the mapping still names them
 */
#include <errno.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include "region/private.h"

enum region_state { REGION_ACTIVE, REGION_ZOMBIE };

struct region {
	uintptr_t start, end;
	uint64_t offset; /* in the arena, of start */
	struct region_extent extent;
	uint64_t uses, last_use;
	uint32_t id, pins;
	enum region_state state;
	bool retired; /* pages may still be reached through the extent: never reuse it */
};

#define TABLE_MAX 16384 /* the range of SLUICE_REGION_MAX */
#define BLOCK_PIECES_MAX 64
#define RECENT_USES 32  /* a region used within so many uses of all is left alone by its neighbours */
_Atomic uintptr_t region_lo = UINTPTR_MAX, region_hi, region_floor = UINTPTR_MAX;
static struct region *table; /* TABLE_MAX entries of address space, touched as used */
static uint32_t table_n, table_next_id = 1;
static uint64_t table_clock;
static bool table_off;       /* after region_fini: nothing new is adopted */
static int table_forks;      /* threads that are forking now: nothing new is adopted */

static int table_ready(void)
{
	if (table)
		return 0;
	table = region_os.mmap(NULL, TABLE_MAX * sizeof *table, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (table == MAP_FAILED)
		table = NULL;
	return table ? 0 : -ENOMEM;
}

/* Index of the first region that ends above `addr`. */
static uint32_t table_find(uintptr_t addr)
{
	uint32_t lo = 0, hi = table_n;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (table[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void publish_bounds(void)
{
	uintptr_t lo = table_n ? table[0].start : UINTPTR_MAX;
	uintptr_t hi = table_n ? table[table_n - 1].end : 0;

	atomic_store_explicit(&region_lo, lo, memory_order_relaxed);
	atomic_store_explicit(&region_hi, hi, memory_order_relaxed);
	if (!table_n)
		atomic_store_explicit(&region_floor, UINTPTR_MAX, memory_order_relaxed);
}

/* A heap block is one mapping, cut in pieces where regions lie in it: walk down to where it begins. */
static void lower_floor(uintptr_t start)
{
	uintptr_t floor = start;
	struct host_vma v;

	for (int i = 0; floor && !host_vma_query((void *)(floor - (i > 0)), &v); i++) {
		bool ours = v.inode && arena_is_inode(&v);

		if (i > 0 && (v.end != floor || !v.read || !v.write || (!ours && (v.shared || v.inode))))
			break;
		floor = i == BLOCK_PIECES_MAX ? 0 : v.start;
	}
	if (floor < atomic_load_explicit(&region_floor, memory_order_relaxed))
		atomic_store_explicit(&region_floor, floor, memory_order_relaxed);
}

static void table_insert(uint32_t at, const struct region *r)
{
	memmove(&table[at + 1], &table[at], (table_n - at) * sizeof *table);
	table[at] = *r;
	table_n++;
	publish_bounds();
}

static void table_remove(uint32_t at)
{
	struct region *r = &table[at];

	if (r->state == REGION_ACTIVE) {
		seen_lifetime_locked(r->start, r->uses);
		base_count(BASE_CTR_UNADOPTED, 1);
	}
	if (!r->retired)
		arena_extent_put_locked(&r->extent, r->state == REGION_ACTIVE);
	table_n--;
	memmove(&table[at], &table[at + 1], (table_n - at) * sizeof *table);
	publish_bounds();
}

static void make_zombie(struct region *r)
{
	int ret;

	if (r->state == REGION_ZOMBIE)
		return;
	ret = pages_make_private(r->start, r->end - r->start, r->offset);
	if (ret) {
		/* not all pages are copied: those left are read from the extent until they are */
		base_log(BASE_LOG_WARN, "region", "memory given back is not fully copied: %s", strerror(-ret));
		r->retired = true;
	} else {
		arena_punch_locked(r->offset, r->end - r->start);
	}
	r->state = REGION_ZOMBIE;
	seen_lifetime_locked(r->start, r->uses);
	base_count(BASE_CTR_UNADOPTED, 1);
}

/* Is every page of the region still the one we put there? Costs a system call; only where cheap. */
static bool is_intact(const struct region *r)
{
	struct host_vma v;

	for (uintptr_t a = r->start; a < r->end; a = v.end)
		if (host_vma_query((void *)a, &v) || !arena_is_mapping(&v, a, r->offset + (a - r->start)))
			return false;
	return true;
}

/* Someone changed the mapping behind our back. Whatever is still mapped stays the program's memory,
 * so its offsets are never used again. */
static void forget_stale(uint32_t at)
{
	base_count(BASE_CTR_STALE, 1);
	table[at].retired = true;
	table_remove(at);
}

/* ---- making regions ------------------------------------------------------------------------- */

static void each_overlap(uintptr_t start, uintptr_t end, void (*visit)(uint32_t at, uintptr_t, uintptr_t))
{
	/* from the top down, as visit may remove the entry it is given */
	for (uint32_t i = table_n; i-- > 0;) {
		if (table[i].end <= start)
			break;
		if (table[i].start < end)
			visit(i, start, end);
	}
}

/* May a region come to lie on [start, end)? Not on one in use, nor partly on one that was used lately:
 * two buffers that overlap would chase each other. */
static bool is_contended(uintptr_t start, uintptr_t end)
{
	for (uint32_t i = table_find(start); i < table_n && table[i].start < end; i++) {
		const struct region *r = &table[i];
		bool partly = r->start < start || r->end > end;

		if (r->pins || (r->state == REGION_ACTIVE && partly && table_clock - r->last_use < RECENT_USES))
			return true;
	}
	return false;
}

static bool make_room(void)
{
	uint32_t victim = UINT32_MAX;

	if (table_n < (uint64_t)base_opt.region_max)
		return true;
	for (uint32_t i = 0; i < table_n; i++)
		if (table[i].state == REGION_ACTIVE && !table[i].pins &&
		    (victim == UINT32_MAX || table[i].last_use < table[victim].last_use))
			victim = i;
	if (victim == UINT32_MAX || !__libc_single_threaded)
		return false; /* a zombie would still be a mapping: nothing gained */
	base_count(BASE_CTR_EVICTED, 1);
	if (pages_copy_back(table[victim].start, table[victim].end - table[victim].start, table[victim].offset))
		return false;
	table_remove(victim);
	return true;
}

static void visit_zombify(uint32_t at, uintptr_t start, uintptr_t end) { make_zombie(&table[at]); }

/*
 * A new mapping replaces [start, end). Zombies inside go; of those partly inside the larger rest is
 * remembered. A rest that is not is no harm: its extent is never used again and its pages are holes,
 * so it behaves like the anonymous memory it was.
 */
static void visit_replaced(uint32_t at, uintptr_t start, uintptr_t end)
{
	struct region *r = &table[at];
	uint64_t below = start > r->start ? start - r->start : 0;
	uint64_t above = r->end > end ? r->end - end : 0;

	if (!below && !above) {
		table_remove(at);
		return;
	}
	r->retired = true;
	if (below >= above) {
		r->end = start;
	} else {
		r->offset += end - r->start;
		r->start = end;
	}
	publish_bounds();
}

static struct region *adopt_locked(uintptr_t start, uintptr_t end)
{
	struct region r = { .start = start, .end = end, .state = REGION_ACTIVE };
	const char *why;
	int ret;

	if (is_contended(start, end))
		goto refused;
	each_overlap(start, end, visit_zombify);
	why = rules_refusal_locked(start, end);
	if (why || !make_room()) {
		base_log(BASE_LOG_DEBUG, "region", "not adopted: %s", why ? why : "too many regions");
		goto refused;
	}
	ret = arena_extent_get_locked(start % REGION_UNIT + (end - start), false, &r.extent);
	if (ret)
		goto refused;
	lower_floor(start);
	ret = pages_adopt(start, end - start, &r.extent);
	if (ret) {
		base_log(BASE_LOG_INFO, "region", "cannot adopt %zu bytes: %s", (size_t)(end - start), strerror(-ret));
		arena_extent_put_locked(&r.extent, false);
		goto refused;
	}
	each_overlap(start, end, visit_replaced);
	r.offset = r.extent.offset + start % REGION_UNIT;
	r.id = table_next_id++;
	table_insert(table_find(start), &r);
	base_count(BASE_CTR_ADOPTED, 1);
	return &table[table_find(start)];
refused:
	base_count(BASE_CTR_ADOPT_REFUSED, 1);
	seen_lifetime_locked(start, 0);
	return NULL;
}

/* The region that holds [start, end) whole, verified, or NULL. */
static struct region *lookup_locked(uintptr_t start, uintptr_t end)
{
	uint32_t i;

	if (!table_n)
		return NULL;
	i = table_find(start);
	if (i == table_n || table[i].start > start || table[i].end < end || table[i].state != REGION_ACTIVE)
		return NULL;
	if (host_vma_query_is_cheap() && !is_intact(&table[i])) {
		forget_stale(i);
		return NULL;
	}
	return &table[i];
}

void region_describe(const void *buf, uint64_t bytes, enum region_intent intent, struct region_desc *out)
{
	uintptr_t start = base_round_up((uintptr_t)buf, HOST_PAGE);
	uintptr_t end = base_round_down((uintptr_t)buf + bytes, HOST_PAGE);
	bool may = base_opt.region_kind == BASE_REGION_AUTO || base_opt.region_kind == BASE_REGION_ARENA;
	struct region *r = NULL;

	*out = (struct region_desc){ .addr = (uintptr_t)buf, .bytes = bytes };
	if (!may || start >= end || end - start < HOST_PAGE)
		return;
	pthread_mutex_lock(&region_lock);
	if (region_arena_fd() >= 0 && !table_ready()) {
		r = lookup_locked(start, end);
		if (!r && intent != REGION_LOOKUP && !table_off && !table_forks && bytes >= base_opt.region_adopt_min_bytes &&
		    (intent == REGION_FORCE || seen_earned_locked(start, end - start)))
			r = adopt_locked(start, end);
	}
	if (r) {
		r->uses++;
		r->pins++;
		r->last_use = ++table_clock;
		out->arena_off = r->offset + (start - r->start);
		out->head = (uint32_t)(start - (uintptr_t)buf);
		out->tail = (uint32_t)((uintptr_t)buf + bytes - end);
		out->flags = REGION_DESC_MAPPED;
		out->id = r->id;
	}
	pthread_mutex_unlock(&region_lock);
}

void region_release(const struct region_desc *d)
{
	uint32_t i;

	if (!d->id)
		return;
	pthread_mutex_lock(&region_lock);
	i = table_find(d->addr + d->head);
	if (i < table_n && table[i].id == d->id && table[i].pins)
		table[i].pins--;
	pthread_mutex_unlock(&region_lock);
}

/* ---- what the program does to its memory ------------------------------------------------------ */

static void visit_drop(uint32_t at, uintptr_t start, uintptr_t end)
{
	struct region *r = &table[at];

	if (r->start < start || r->end > end) {
		make_zombie(r); /* part of it lives on */
		return;
	}
	if (r->state == REGION_ACTIVE && host_vma_query_is_cheap() && !is_intact(r)) {
		forget_stale(at);
		return;
	}
	if (pages_make_fresh(r->start, r->end - r->start))
		r->retired = true; /* out of mappings: the pages stay as they are */
	table_remove(at);
}

static void visit_forget(uint32_t at, uintptr_t start, uintptr_t end)
{
	struct region *r = &table[at];

	if (r->start >= start && r->end <= end) {
		table_remove(at);
		return;
	}
	make_zombie(r);
	r->retired = true; /* later regions may come to lie in the part that goes */
}

static void visit_keep(uint32_t at, uintptr_t start, uintptr_t end)
{
	if (table[at].state == REGION_ACTIVE && host_vma_query_is_cheap() && !is_intact(&table[at]))
		forget_stale(at);
	else
		make_zombie(&table[at]);
}

static void visit_exclusive(uint32_t at, uintptr_t start, uintptr_t end)
{
	struct region *r = &table[at];
	int ret;

	if (r->state == REGION_ZOMBIE)
		return; /* private already, though a mapping of its own */
	if (host_vma_query_is_cheap() && !is_intact(r)) {
		forget_stale(at);
		return;
	}
	ret = pages_copy_back(r->start, r->end - r->start, r->offset);
	if (ret)
		r->retired = true;
	table_remove(at);
}

static void visit_discard(uint32_t at, uintptr_t start, uintptr_t end)
{
	struct region *r = &table[at];
	uintptr_t a = base_max_u64(start, r->start), b = base_min_u64(end, r->end);

	if (a == r->start && b == r->end) {
		visit_drop(at, start, end);
		return;
	}
	make_zombie(r);
	if (pages_make_fresh(a, b - a))
		memset((void *)a, 0, b - a);
	r->retired = true;
}

static void visit_range(uintptr_t start, uintptr_t end, void (*visit)(uint32_t, uintptr_t, uintptr_t))
{
	pthread_mutex_lock(&region_lock);
	if (table)
		each_overlap(start, end, visit);
	pthread_mutex_unlock(&region_lock);
}

void region_drop(uintptr_t start, uintptr_t end) { visit_range(start, end, visit_drop); }
void region_forget(uintptr_t start, uintptr_t end) { visit_range(start, end, visit_forget); }
void region_keep(uintptr_t start, uintptr_t end) { visit_range(start, end, visit_keep); }
void region_exclusive(uintptr_t start, uintptr_t end) { visit_range(start, end, visit_exclusive); }
void region_discard(uintptr_t start, uintptr_t end) { visit_range(start, end, visit_discard); }

bool region_overlaps(uintptr_t start, uintptr_t end)
{
	uint32_t i;
	bool ret;

	pthread_mutex_lock(&region_lock);
	i = table ? table_find(start) : 0;
	ret = i < table_n && table[i].start < end;
	pthread_mutex_unlock(&region_lock);
	return ret;
}

/* ---- fork, end, questions ----------------------------------------------------------------------- */

static bool has_pins(void)
{
	for (uint32_t i = 0; i < table_n; i++)
		if (table[i].pins)
			return true;
	return false;
}

/* The child must see the memory as it is now, and neither may see what the other writes later: make
 * everything private first. Memory that a transfer of another thread uses just now is waited for. */
void table_before_fork(void)
{
	pthread_mutex_lock(&region_lock);
	for (int i = 0; i < 10000 && table_n && has_pins(); i++) {
		pthread_mutex_unlock(&region_lock);
		usleep(1000);
		pthread_mutex_lock(&region_lock);
	}
	for (uint32_t i = table_n; i-- > 0;) {
		struct region *r = &table[i];

		if (r->state != REGION_ACTIVE || r->pins)
			continue;
		if (__libc_single_threaded)
			visit_exclusive(i, r->start, r->end);
		else
			visit_keep(i, r->start, r->end);
	}
	table_forks++;
	/* not held across the fork: handlers of others may free memory meanwhile */
	pthread_mutex_unlock(&region_lock);
}

void table_after_fork_parent(void)
{
	pthread_mutex_lock(&region_lock);
	table_forks--;
	pthread_mutex_unlock(&region_lock);
}

void table_after_fork_child(void)
{
	pthread_mutex_init(&region_lock, NULL);
	table_n = 0;
	table_forks = 0;
	publish_bounds();
	arena_after_fork_child();
}

void region_fini(void)
{
	pthread_mutex_lock(&region_lock);
	table_off = true;
	arena_empty_pool_locked();
	pthread_mutex_unlock(&region_lock);
}

void region_get_stats(struct region_stats *out)
{
	struct region_stats s = { 0 };

	pthread_mutex_lock(&region_lock);
	for (uint32_t i = 0; i < table_n; i++) {
		if (table[i].state == REGION_ZOMBIE) {
			s.zombies++;
			continue;
		}
		s.active++;
		s.active_bytes += table[i].end - table[i].start;
	}
	s.pool_bytes = arena_pool_bytes_locked();
	s.arena_used_bytes = arena_used_bytes_locked();
	pthread_mutex_unlock(&region_lock);
	*out = s;
}

const char *region_refusal(const void *buf, uint64_t bytes)
{
	uintptr_t start = base_round_up((uintptr_t)buf, HOST_PAGE);
	uintptr_t end = base_round_down((uintptr_t)buf + bytes, HOST_PAGE);
	const char *why;

	if (start >= end)
		return "it holds no whole page";
	pthread_mutex_lock(&region_lock);
	why = rules_refusal_locked(start, end);
	pthread_mutex_unlock(&region_lock);
	return why;
}
