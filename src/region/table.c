/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The regions of this process, sorted by address, never overlapping.
 *
 *   (nothing) --adopt--> ACTIVE --return--> RETURNED --drop, unmap--> (nothing)
 *                          |                  ^ private pages; the extent's offsets stay reserved,
 *                          |                    as the mapping still names them
 *                          +--drop, return_exclusive, unmap--> (nothing)
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#if __GLIBC_PREREQ(2, 32)
#include <sys/single_threaded.h>
#else
static const char __libc_single_threaded;
#endif

#include "region/blocks.h"
#include "region/private.h"

/* A buffer, and the whole pages inside it. */
struct buffer { uintptr_t start, end, in_start, in_end; };

#define WHOLE UINT64_MAX /* bytes to adopt: all that remain, and the edge pages */
#define RECENT_USES 32 /* a region with a use among the last 32 of all is not replaced partly */

_Atomic uintptr_t region_lo = UINTPTR_MAX, region_hi;
static struct region_head private_head;
struct region_table region_table = { .head = &private_head };

static int table_ready(void)
{
	char *p;

	if (region_table.has_pins)
		return 0;
	p = region_os.mmap(NULL, pins_bytes(), PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	pins_init_locked(p);
	region_table.has_pins = true;
	return 0;
}

void table_set_head_locked(struct region_head *head)
{
	struct region_head *old = region_table.head;

	if (!head) {
		private_head.n = 0;
		atomic_store_explicit(&private_head.version, 0, memory_order_relaxed);
		region_table.head = &private_head;
		return;
	}
	memcpy(head->at, old->at, old->n * sizeof *head->at);
	head->n = old->n;
	/* release: the regions; the old version stays odd: readers of the old head lock */
	atomic_store_explicit(&head->version, atomic_load(&old->version), memory_order_release);
	region_table.head = head;
}

uint32_t table_find(uintptr_t addr)
{
	uint32_t lo = 0, hi = region_table.head->n;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (region_table.head->at[mid].end <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

void table_publish_bounds(void)
{
	const struct region *at = region_table.head->at;
	uint32_t n = region_table.head->n;

	atomic_store_explicit(&region_lo, n ? at[0].start : UINTPTR_MAX, memory_order_relaxed);
	atomic_store_explicit(&region_hi, n ? at[n - 1].end : 0, memory_order_relaxed);
}

void table_insert(const struct region *r)
{
	uint32_t at = table_find(r->start);
	struct region *to = &region_table.head->at[at];

	memmove(to + 1, to, (region_table.head->n - at) * sizeof *to);
	*to = *r;
	region_table.head->n++;
	table_publish_bounds();
}

/* Returns: whether the extent of an entry that goes can be used again. Others may have it, too. */
static bool is_extent_free(const struct region *r)
{
	bool is_free = !r->retired && !pins_of(r); /* otherwise peers may still write to it */
	bool is_last = true;

	for (uint32_t i = 0; r->is_split && i < region_table.head->n; i++) {
		struct region *other = &region_table.head->at[i];

		if (other == r || other->extent.offset != r->extent.offset)
			continue;
		other->retired |= !is_free;
		is_last = false;
	}
	return is_free && is_last;
}

void table_remove(uint32_t at)
{
	struct region *r = &region_table.head->at[at];

	if (r->state == REGION_ACTIVE) {
		reuse_note_lifetime(base_round_up(r->first, OS_PAGE), r->end - r->start,
				    pins_uses(r));
		base_count(BASE_CTR_UNADOPTED, 1);
	}
	if (is_extent_free(r))
		arena_extent_put_locked(&r->extent,
					r->state == REGION_ACTIVE && !r->is_emptied);
	pins_close_locked(r->id);
	region_table.head->n--;
	memmove(r, r + 1, (region_table.head->n - at) * sizeof *r);
	table_publish_bounds();
}

void table_each_overlap(uintptr_t start, uintptr_t end, table_visit *visit)
{
	uint32_t first = table_find(start), i = table_find(end);

	if (i < region_table.head->n && region_table.head->at[i].start < end)
		i++;
	while (i-- > first)
		visit(i, start, end);
}

static _Atomic uint32_t own_threads;
static pthread_key_t own_key;

/* Runs while the kernel still counts the thread: own_threads never exceeds the real number. */
static void own_thread_ends(void *arg)
{
	atomic_fetch_sub_explicit(&own_threads, 1, memory_order_seq_cst);
}
static void own_key_create(void) { pthread_key_create(&own_key, own_thread_ends); }

void region_own_thread(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (!pthread_once(&once, own_key_create) && !pthread_getspecific(own_key) &&
	    !pthread_setspecific(own_key, &own_threads))
		atomic_fetch_add_explicit(&own_threads, 1, memory_order_seq_cst);
}

void table_forget_threads(void) { atomic_store_explicit(&own_threads, 0, memory_order_relaxed); }

bool table_is_alone(void)
{
	uint32_t ours = atomic_load_explicit(&own_threads, memory_order_seq_cst);
	struct stat st;

	/* the C library has never made a thread; or the directory's links: threads and two more */
	if (__libc_single_threaded)
		return true;
	return !stat("/proc/self/task", &st) && st.st_nlink == 3 + ours &&
	       ours == atomic_load_explicit(&own_threads,
					    memory_order_seq_cst); /* no thread of ours has ended */
}

bool table_is_unread(void) { return !region_table.is_read && table_is_alone(); }

void region_set_read_by_peers(void)
{
	region_lock();
	region_table.is_read = true;
	region_unlock();
}

/* The active region that holds all of [start, end), with its mapping checked; or NULL. */
static struct region *lookup_locked(uintptr_t start, uintptr_t end)
{
	uint32_t i = table_find(start);
	struct region *r = &region_table.head->at[i];

	if (i == region_table.head->n || r->start > start || r->end < end ||
	    r->state != REGION_ACTIVE || r->ticket || pins_is_doomed(r))
		return NULL;
	/* Only [start, end) is checked: other parts may be guarded. A change there is found when
	 * they are described, or when the region ends. */
	if ((r->suspect || os_vma_query_is_cheap()) && !ends_is_mapped(r, start, end)) {
		r->suspect = true;
		if (!pins_doom_locked(r))
			ends_make_private(r); /* the program has mapped over a part unnoticed */
		return NULL;
	}
	return r;
}

/* ---- making regions ---------------------------------------------------------------------- */

/* Does [start, end) overlap a pinned region, or partly a region that was used recently? Adopting it
 * would make two overlapping buffers replace each other in turn. */
static bool is_contended(uintptr_t start, uintptr_t end)
{
	const struct region_head *head = region_table.head;

	for (uint32_t i = table_find(start); i < head->n && head->at[i].start < end; i++) {
		const struct region *r = &head->at[i];
		bool partly = r->start < start || r->end > end;

		if (pins_of(r) || (r->state == REGION_ACTIVE && partly &&
				pins_clock() - pins_last_use(r) < RECENT_USES))
			return true;
	}
	return false;
}

static void visit_private(uint32_t at, uintptr_t start, uintptr_t end)
{
	if (!region_table.head->at[at].ticket)
		ends_make_private(&region_table.head->at[at]);
}

static bool overlaps_locked(uintptr_t start, uintptr_t end)
{
	uint32_t i = table_find(start);

	return i < region_table.head->n && region_table.head->at[i].start < end;
}

/*
 * The slow part, without the lock: r is in the table, pinned, and not described to anyone. When r
 * replaces returned regions the lock is held, as these stay in the table until r is complete.
 */
static int fill_locked(struct region *r)
{
	bool huge = arena_is_huge_locked(r->offset, r->end - r->start);
	struct region *made;
	bool doomed;
	int ret;

	r->inode = arena_inode_locked();
	if (overlaps_locked(r->start, r->end)) {
		ret = pages_adopt(r->start, r->end - r->start, &r->extent, &huge);
		if (!ret) {
			if (huge)
				arena_set_huge_locked(r->offset, r->end - r->start);
			table_each_overlap(r->start, r->end, ends_unmapped);
			table_insert(r);
		}
		return ret;
	}
	r->state = REGION_ADOPTING;
	pins_add(r->id);
	table_insert(r);
	region_unlock();
	ret = pages_adopt(r->start, r->end - r->start, &r->extent, &huge);
	region_lock();
	made = &region_table.head->at[table_find(r->start)]; /* pinned, so it is still there */
	doomed = pins_drop(r->id);
	if (ret) {
		made->retired = true; /* the caller frees the extent */
		table_remove(table_find(r->start));
		return ret;
	}
	if (huge)
		arena_set_huge_locked(r->offset, r->end - r->start);
	made->state = REGION_ACTIVE;
	if (doomed)
		ends_make_private(made);
	return 0;
}

/*
 * The pages to adopt: those inside the buffer; its first page too, when the buffer begins where a
 * block with a mapping of its own begins, and its last page when the buffer reaches to the block's
 * end. Never a page with other data of the program, to which another thread may write while the
 * page is copied and replaced. Buffers below the size of early returns keep their edges: adopting
 * them gains nothing, and two ranks copy fragments that begin 16 bytes into a page slower (256 KB:
 * 10 us instead of 8).
 */
static struct region choose_pages(const struct buffer *b)
{
	struct region r = { .start = b->in_start,
			    .first = b->in_start,
			    .whole_end = b->in_end,
			    .whole_last = b->in_end,
			    .state = REGION_ACTIVE };
	uint64_t owned;

	if (base_opt.region_whole && b->end - b->start >= base_opt.early_min_bytes &&
	    block_begins_at(b->start, b->end - b->start, &owned)) {
		r.start = base_round_down(b->start, OS_PAGE);
		r.first = b->start;
		if (owned == b->end - b->start) {
			r.whole_end = base_round_up(b->end, OS_PAGE);
			r.whole_last = b->end;
		}
	}
	r.end = r.whole_end;
	r.last = r.whole_last;
	return r;
}

static struct rules_known known_facts(const struct buffer *b, const struct region *r)
{
	return (struct rules_known){ .is_block = r->start < b->in_start || r->end > b->in_end,
				     .is_static = rules_is_static(r->start, r->end),
				     .asked_end = UINTPTR_MAX };
}

/* Ends r after about `bytes` more than it has, where a huge page ends, or where the buffer does. */
static void extend(struct region *r, uintptr_t from, uint64_t bytes)
{
	uintptr_t end = bytes < r->whole_end - from ? base_round_down(from + bytes, OS_HUGE) : from;

	if (end <= from) {
		r->end = r->whole_end;
		r->last = r->whole_last;
	} else {
		r->end = r->last = end;
	}
}

/* Asks about GPUs: for all of r when none of it is adopted, else for the next `bytes` bytes. */
static void know_registered(const struct buffer *b, const struct region *r, uint64_t bytes,
			    struct rules_known *known)
{
	uint64_t prefix = peek_prefix(b->in_start, b->in_end);
	struct region next = *r;

	if (base_likely(!os_gpu_is_loaded()))
		return;
	if (prefix)
		extend(&next, b->in_start + prefix, bytes);
	registered_ask(r->start, next.end, REGISTERED_ASK);
	known->is_registered =
		os_gpu_is_registered(prefix ? b->in_start + prefix : r->start, next.end);
	known->asked_end = next.end;
	known->victim = evict_ask();
}

/* The region of the first part of the pages that `whole` describes, or NULL. */
static struct region *find_part(const struct region *whole)
{
	struct region *r = &region_table.head->at[table_find(whole->start)];

	if (r == &region_table.head->at[region_table.head->n] || r->start != whole->start ||
	    r->first != whole->first || r->whole_end != whole->whole_end ||
	    r->end == r->whole_end || r->state != REGION_ACTIVE || r->ticket || r->retired ||
	    pins_is_doomed(r))
		return NULL;
	return r;
}

/*
 * Adopts the next `bytes` bytes of a buffer of which r holds the first part. The lock is held, as r
 * must not end meanwhile: the caller limits `bytes` to some milliseconds' work.
 */
static int grow_locked(struct region *r, uint64_t bytes, const struct rules_known *known)
{
	struct region more = *r;
	struct region_extent e = { .offset = r->offset + (r->end - r->start) -
					     r->end % REGION_UNIT };
	uint64_t offset = r->offset + (r->end - r->start);
	bool huge;
	int ret;

	extend(&more, r->end, bytes);
	if (overlaps_locked(r->end, more.end) || rules_refusal_locked(r->end, more.end, known))
		return -EBUSY;
	huge = arena_is_huge_locked(offset, more.end - r->end);
	ret = pages_adopt(r->end, more.end - r->end, &e, &huge);
	if (ret)
		return ret;
	if (huge)
		arena_set_huge_locked(offset, more.end - r->end);
	r->end = more.end;
	r->last = more.last;
	table_publish_bounds();
	return 0;
}

/* Adopts about `bytes` bytes more of b. Returns: its region; NULL while that holds a part of b. */
static struct region *adopt_locked(const struct buffer *b, uint64_t bytes)
{
	uint64_t begin_ns = os_now_ns(), before = 0;
	struct rules_known known;
	struct region r, *found, *part;
	const char *why = NULL;
	uintptr_t start, end;
	int ret;

	region_unlock(); /* reads memory that may be guarded, and takes other locks */
	r = choose_pages(b);
	known = known_facts(b, &r);
	know_registered(b, &r, bytes, &known);
	region_lock();
	start = r.start;
	end = r.end;
	found = lookup_locked(b->in_start, b->in_end);
	if (found || region_table.forks) /* another thread was faster */
		return found;
	part = find_part(&r);
	if (part) {
		before = part->end - part->start;
		if (grow_locked(part, bytes, &known))
			goto refused;
		reuse_pay(b->in_start, part->end - part->start - before, os_now_ns() - begin_ns);
		return lookup_locked(b->in_start, b->in_end);
	}
	if (is_contended(start, end))
		goto refused;
	table_each_overlap(start, end, visit_private);
	why = rules_refusal_locked(start, end, &known);
	if (!why && !evict_make_room_locked(known.victim))
		why = "too many regions";
	if (why) {
		base_log(BASE_LOG_DEBUG, "region", "not adopted: %s", why);
		goto refused;
	}
	if (!arena_has_room_locked(start % REGION_UNIT + (end - start)) ||
	    arena_extent_get_locked(start % REGION_UNIT + (end - start), false, &r.extent))
		goto refused;
	extend(&r, start, bytes);
	r.offset = r.extent.offset + start % REGION_UNIT;
	r.is_static = known.is_static;
	r.id = pins_open_locked();
	ret = fill_locked(&r);
	if (ret) {
		pins_close_locked(r.id);
		base_log(BASE_LOG_INFO, "region", "cannot adopt %zu bytes: %s",
			 (size_t)(r.end - r.start),
			 ret == -EOPNOTSUPP ? "it would lose its huge pages" : strerror(-ret));
		arena_extent_put_locked(&r.extent, false);
		goto refused;
	}
	base_count(BASE_CTR_ADOPTED, 1);
	reuse_pay(b->in_start, r.end - r.start, os_now_ns() - begin_ns);
	return lookup_locked(b->in_start, b->in_end);
refused:
	base_count(BASE_CTR_ADOPT_REFUSED, 1);
	reuse_note_lifetime(b->in_start, end - start, 0);
	return NULL;
}

/* Counts uses of a buffer that is not adopted. Returns: how many bytes of it to adopt now. */
static uint64_t bytes_earned(const struct buffer *b, enum region_intent intent, uint32_t uses,
			     bool is_spent)
{
	uint64_t bytes = b->in_end - b->in_start, adopted, earned;

	if (intent == REGION_LOOKUP || b->end - b->start < base_opt.region_adopt_min_bytes)
		return 0;
	if (intent == REGION_FORCE)
		return WHOLE;
	adopted = peek_prefix(b->in_start, b->in_end);
	earned = reuse_count(b->in_start, bytes, adopted, intent, uses, is_spent);
	return adopted + earned >= bytes ? WHOLE : earned;
}

/* The region of all of the buffer, or NULL. to_adopt: bytes of the buffer to adopt now. */
static struct region *obtain_locked(const struct buffer *b, uint64_t to_adopt)
{
	struct region *r;

	if (region_arena_fd() < 0 || table_ready() || region_table.forks)
		return NULL;
	r = lookup_locked(b->in_start, b->in_end);
	return r || !to_adopt || region_table.off ? r : adopt_locked(b, to_adopt);
}

/* Returns: false when the buffer is not mapped. */
static bool describe_locked(const struct buffer *b, uint64_t to_adopt, struct region *out)
{
	struct region *r = obtain_locked(b, to_adopt);

	if (!r || !pins_add(r->id))
		return false;
	*out = *r;
	return true;
}

static struct buffer buffer_of(const void *buf, uint64_t bytes)
{
	uintptr_t start = (uintptr_t)buf, end = start + bytes;

	return (struct buffer){ start, end, base_round_up(start, OS_PAGE),
			       base_round_down(end, OS_PAGE) };
}

/* Does the buffer hold pages that may be adopted? */
static bool has_pages(const struct buffer *b)
{
	return b->in_start < b->in_end && (base_opt.region_kind == BASE_REGION_AUTO ||
					   base_opt.region_kind == BASE_REGION_ARENA);
}

void region_describe(const void *buf, uint64_t bytes, enum region_intent intent,
		     struct region_desc *out)
{
	struct buffer b = buffer_of(buf, bytes);
	uint64_t to_adopt;
	struct region r;
	bool mapped;

	*out = (struct region_desc){ .addr = (uintptr_t)buf, .bytes = bytes };
	if (!has_pages(&b))
		return;
	mapped = peek_region(b.in_start, b.in_end, &r);
	if (!mapped) {
		to_adopt = bytes_earned(&b, intent, 1, true);
		if (!to_adopt && !peek_overlaps(b.in_start, b.in_end))
			return;
		region_lock();
		mapped = describe_locked(&b, to_adopt, &r);
		region_unlock();
	}
	if (!mapped)
		return;
	pins_note_use(r.id);
	/* the first and last page of the buffer too, where they were adopted */
	if (b.start == r.first)
		b.in_start = b.start;
	if (b.end >= r.last && b.end <= r.end)
		b.in_end = b.end;
	out->arena_off = r.offset + (b.in_start - r.start);
	out->head = (uint32_t)(b.in_start - b.start);
	out->tail = (uint32_t)(b.end - b.in_end);
	out->flags = REGION_DESC_MAPPED;
	out->id = r.id;
}

bool region_is_reused(const void *buf, uint64_t bytes, enum region_intent intent, uint32_t uses)
{
	struct buffer b = buffer_of(buf, bytes);
	uint64_t earned;

	if (!has_pages(&b) || bytes < base_opt.region_adopt_min_bytes)
		return false;
	if (peek_covers(b.in_start, b.in_end))
		return true;
	earned = bytes_earned(&b, reuse_is_by_cost() ? intent : REGION_USE, uses, false);
	if (!earned || intent == REGION_FORCE || !reuse_is_by_cost())
		return earned;
	region_lock();
	obtain_locked(&b, earned);
	region_unlock();
	return peek_covers(b.in_start, b.in_end);
}

void region_forget_uses(uintptr_t block) { reuse_forget(base_round_up(block, OS_PAGE)); }

bool region_overlaps(uintptr_t start, uintptr_t end)
{
	bool ret;

	if (region_is_locked_here() || !peek_overlaps(start, end))
		return false;
	region_lock();
	ret = overlaps_locked(start, end);
	region_unlock();
	return ret;
}

/* ---- end, questions ---------------------------------------------------------------------- */

void region_fini(void)
{
	region_lock();
	region_table.off = true;
	arena_empty_pool_locked();
	region_unlock();
}

const char *region_refusal(const void *buf, uint64_t bytes)
{
	struct buffer b = buffer_of(buf, bytes);
	struct rules_known known;
	struct region r;
	const char *why;

	if (b.in_start >= b.in_end)
		return "it holds no whole page";
	r = choose_pages(&b);
	known = known_facts(&b, &r);
	know_registered(&b, &r, WHOLE, &known);
	region_lock();
	why = rules_refusal_locked(r.start, r.end, &known);
	region_unlock();
	return why;
}
