/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How regions end, by what the program does to its memory.
 *
 * The table may be out of date: a raw system call, or a call inside the C library, may have mapped
 * other memory where a region was. So each mapping is checked before it is changed (struct
 * mapping_walk), and mappings that are not the arena's are left alone.
 */
#include <errno.h>
#include <string.h>

#include "region/private.h"

static bool mapping_next(struct mapping_walk *w, struct mapping *out)
{
	const struct region *r = w->r;
	struct os_vma v;

	while (w->at < w->end) {
		int ret = os_vma_query_next((void *)w->at, &v);
		uint64_t offset = r->offset + (w->at - r->start);

		if (ret && ret != -ENOENT && r->state == REGION_ACTIVE) {
			/* without a descriptor for the query: assumed unchanged */
			*out = (struct mapping){ w->at, w->end, offset, PROT_READ | PROT_WRITE,
					       true };
			w->at = w->end;
			return true;
		}
		if (ret || v.start >= w->end)
			break;
		if (v.start > w->at) {
			w->missed = true;
			w->at = v.start;
			continue;
		}
		*out = (struct mapping){ w->at, base_min_u64(v.end, w->end), offset,
				       mapping_prot(&v), v.shared };
		w->at = out->end;
		if (arena_is_inode(&v, r->inode) && v.offset + (out->start - v.start) == offset)
			return true;
		w->missed = true;
	}
	w->missed |= w->at < w->end;
	return false;
}

bool ends_is_mapped(const struct region *r, uintptr_t start, uintptr_t end)
{
	struct mapping_walk w = { .r = r, .at = start, .end = end };
	struct mapping p;

	if (start <= base_round_up(r->first, OS_PAGE))
		w.at = r->start;
	if (end >= base_round_down(r->last, OS_PAGE))
		w.end = r->end;
	while (mapping_next(&w, &p))
		if (!p.shared)
			return false;
	return !w.missed;
}

static void note_missed(struct region *r)
{
	/* the missing pages may be mapped elsewhere: the extent is never used again */
	r->retired = true;
	region_table.lost = true;
	base_count(BASE_CTR_STALE, 1);
}

/*
 * Frees pages of a region that are private now. A peer may be reading them by system call: a
 * hole in a part of a huge page that somebody holds zeroes that part in place, while after a hole
 * of whole huge pages the holder still has its pages. The other parts are freed with the extent.
 */
static void punch_returned(uint64_t start, uint64_t end)
{
	if (region_table.is_read) {
		start = base_round_up(start, OS_HUGE);
		end = base_round_down(end, OS_HUGE);
	}
	if (start < end)
		arena_punch_locked(start, end - start);
}

/* May pages of r be freed while others are still copied? */
static pages_freed *freed_of(struct region *r, const struct mapping_walk *w)
{
	if (w->missed || r->retired)
		return NULL;
	r->is_emptied |= r->end - r->start > PAGES_PIECE_BYTES;
	return punch_returned;
}

int ends_make_private(struct region *r)
{
	struct mapping_walk w = { .r = r, .at = r->start, .end = r->end };
	struct mapping p;
	int ret = 0;

	if (r->state == REGION_RETURNED)
		return 0;
	while (mapping_next(&w, &p)) {
		bool copied = true;

		if (!p.shared)
			continue;
		ret = pages_make_private(p.start, p.end - p.start, p.offset, p.prot,
					 freed_of(r, &w), &copied);
		if (ret) /* second choice: correct unless another thread writes meanwhile */
			ret = pages_copy_back(p.start, p.end - p.start, p.offset, p.prot,
					      freed_of(r, &w));
		if (ret)
			goto still_shared;
		if (!copied)
			r->retired = true; /* pages without a copy are read from the extent */
	}
	if (w.missed)
		note_missed(r);
	if (!r->retired)
		punch_returned(r->offset, r->offset + (r->end - r->start));
	r->state = REGION_RETURNED;
	reuse_note_lifetime(base_round_up(r->first, OS_PAGE), r->end - r->start, pins_uses(r));
	base_count(BASE_CTR_UNADOPTED, 1);
	return 0;

still_shared:
	r->suspect = true;
	base_log(BASE_LOG_WARN, "region", "cannot make %zu adopted bytes private again: %s",
		 (size_t)(r->end - r->start), strerror(-ret));
	return ret;
}

__attribute__((cold)) static int make_anonymous(struct region *r, uintptr_t start, uintptr_t end)
{
	struct mapping_walk w = { .r = r, .at = start, .end = end };
	struct mapping p;

	while (mapping_next(&w, &p)) {
		uint64_t bytes = p.end - p.start;
		int ret = p.shared ? pages_copy_back(p.start, bytes, p.offset, p.prot,
						     freed_of(r, &w)) :
				     pages_copy_anew(p.start, bytes, p.prot);

		if (ret) {
			r->suspect = true;
			return ret;
		}
	}
	if (w.missed)
		note_missed(r);
	return 0;
}

/* No other thread accesses the contents. */
int ends_make_anonymous(uint32_t at)
{
	struct region *r = &region_table.head->at[at];
	int ret = make_anonymous(r, r->start, r->end);

	if (!ret)
		table_remove(at);
	return ret;
}

/* Maps fresh memory in place of r's pages in [start, end). */
__attribute__((cold)) static int make_fresh(struct region *r, uintptr_t start, uintptr_t end)
{
	struct mapping_walk w = { .r = r, .at = start, .end = end };
	struct mapping p;

	while (mapping_next(&w, &p)) {
		int ret = pages_make_fresh(p.start, p.end - p.start, p.prot);

		if (ret) {
			r->suspect = true;
			return ret;
		}
	}
	if (w.missed && r->state == REGION_ACTIVE)
		note_missed(r);
	return 0;
}

__attribute__((cold)) void ends_unmapped(uint32_t at, uintptr_t start, uintptr_t end)
{
	struct region *r = &region_table.head->at[at];
	uint64_t below = start > r->start ? start - r->start : 0;
	uint64_t above = r->end > end ? r->end - end : 0;

	if (!below && !above) {
		table_remove(at);
		return;
	}
	/* The table keeps both remaining parts of a private region, whose pages in the extent may
	 * hold its former contents; of a pinned region it keeps one, and the other is shared until
	 * this process forks. */
	if (below && above) {
		if (r->state == REGION_RETURNED && region_table.head->n + 1 < TABLE_MAX) {
			struct region upper = *r;

			r->is_split = upper.is_split = true;
			upper.id = 0;
			upper.offset += end - r->start;
			upper.start = upper.first = end;
			r->end = r->last = r->whole_end = r->whole_last = start;
			table_insert(&upper);
			return;
		}
		r->retired = true;
		region_table.lost |= r->state == REGION_ACTIVE;
	}
	if (below >= above) {
		r->end = r->last = r->whole_end = r->whole_last = start;
	} else {
		r->offset += end - r->start;
		r->start = r->first = end;
	}
	table_publish_bounds();
}

/* ---- what the hooks report --------------------------------------------------------------- */

/* Another thread is about to unmap r: changing it could hit the memory that is mapped there next.
 * Or a collective is adopting it, during which the program may not change the buffer. */
static bool is_busy(const struct region *r)
{
	return r->state == REGION_ADOPTING || (r->ticket && r->state == REGION_ACTIVE);
}

/* Makes r private, now or when its last pin is released: peers access the pages of a pinned region,
 * and it may be guarded. */
static int make_private_unpinned(struct region *r)
{
	return pins_doom_locked(r) ? -EBUSY : ends_make_private(r);
}

static void visit_drop(uint32_t at, uintptr_t start, uintptr_t end)
{
	struct region *r = &region_table.head->at[at];

	if (is_busy(r))
		return;
	if (r->start < start || r->end > end)
		make_private_unpinned(r); /* a part of it lives on */
	else if (!make_fresh(r, r->start, r->end))
		table_remove(at);
}

static void visit_return(uint32_t at, uintptr_t start, uintptr_t end)
{
	struct region *r = &region_table.head->at[at];

	if (!is_busy(r) || pins_of(r))
		make_private_unpinned(r);
}

static void visit_exclusive(uint32_t at, uintptr_t start, uintptr_t end)
{
	struct region *r = &region_table.head->at[at];

	if (is_busy(r) || pins_doom_locked(r))
		return;
	start = base_max_u64(start, r->start);
	end = base_min_u64(end, r->end);
	/* the caller has the range to itself, not the rest of the region */
	if ((r->start < start || r->end > end) && !table_is_unread()) {
		if (!ends_make_private(r) && !make_anonymous(r, start, end))
			ends_unmapped(at, start, end);
	} else {
		ends_make_anonymous(at);
	}
}

static void visit_discard(uint32_t at, uintptr_t start, uintptr_t end)
{
	struct region *r = &region_table.head->at[at];
	uintptr_t a = base_max_u64(start, r->start), b = base_min_u64(end, r->end);
	int ret;

	if (is_busy(r))
		return;
	if (a == r->start && b == r->end) {
		visit_drop(at, start, end);
		return;
	}
	ret = make_private_unpinned(r);
	if (!ret)
		make_fresh(r, a, b);
	else if (ret == -EBUSY) /* the rest is pinned: this part stays shared, and reads as zero */
		arena_punch_locked(r->offset + (a - r->start), b - a);
}

static void visit_unmap_begin(uint32_t at, uintptr_t start, uintptr_t end)
{
	struct region *r = &region_table.head->at[at];

	if (is_busy(r))
		return;
	/* a part that lives on as a shared mapping is checked at its next use */
	if (r->start < start || r->end > end) {
		int ret = make_private_unpinned(r);

		if (ret && ret != -EBUSY)
			return;
	}
	r->ticket = region_table.next_ticket;
}

static void (*_Atomic before_change)(uintptr_t start, uintptr_t end);

void region_set_before_change(void (*fn)(uintptr_t start, uintptr_t end))
{
	atomic_store_explicit(&before_change, fn,
			      memory_order_release); /* partner: region_before_change */
}

/* Widens the range to whole regions. Returns: false when it overlaps none. */
static bool widen_locked(uintptr_t *start, uintptr_t *end)
{
	uint32_t first = table_find(*start), last = table_find(*end);

	if (last < region_table.head->n && region_table.head->at[last].start < *end)
		last++;
	if (first >= last)
		return false;
	*start = base_min_u64(*start, region_table.head->at[first].start);
	*end = base_max_u64(*end, region_table.head->at[last - 1].end);
	return true;
}

void region_before_change(uintptr_t start, uintptr_t end)
{
	static __thread bool is_running __attribute__((tls_model("initial-exec")));
	void (*fn)(uintptr_t, uintptr_t) =
		atomic_load_explicit(&before_change, memory_order_acquire);
	bool any;
	int err;

	if (!fn || is_running || start >= end || region_is_locked_here() ||
	    !peek_overlaps(start, end))
		return;
	region_lock();
	any = widen_locked(&start, &end);
	region_unlock();
	if (!any)
		return;
	is_running = true;
	err = errno; /* of free(), which does not change it */
	fn(start, end);
	errno = err;
	is_running = false;
}

static void visit_range(uintptr_t start, uintptr_t end, table_visit *visit,
			enum registered_cause cause)
{
	if (start >= end || region_is_locked_here() || !peek_overlaps(start, end))
		return;
	region_before_change(start, end);
	registered_ask(start, end, cause);
	region_lock();
	table_each_overlap(start, end, visit);
	region_unlock();
}

void region_drop(uintptr_t start, uintptr_t end)
{
	visit_range(start, end, visit_drop, REGISTERED_DIES);
}

void region_return(uintptr_t start, uintptr_t end)
{
	visit_range(start, end, visit_return, REGISTERED_HOOK);
}

void region_return_exclusive(uintptr_t start, uintptr_t end)
{
	visit_range(start, end, visit_exclusive, REGISTERED_HOOK);
}

void region_discard(uintptr_t start, uintptr_t end)
{
	visit_range(start, end, visit_discard, REGISTERED_DIES);
}

uint32_t region_unmap_begin(uintptr_t start, uintptr_t end)
{
	uint32_t ticket;

	if (start >= end || region_is_locked_here() ||
	    (!peek_overlaps(start, end) &&
	     !atomic_load_explicit(&region_has_excluded, memory_order_relaxed)))
		return 0;
	region_before_change(start, end);
	registered_ask(start, end, REGISTERED_DIES);
	region_lock();
	if (!++region_table.next_ticket)
		region_table.next_ticket = 1;
	ticket = region_table.next_ticket;
	table_each_overlap(start, end, visit_unmap_begin);
	region_unlock();
	return ticket;
}

void region_unmap_end(uint32_t ticket, uintptr_t start, uintptr_t end, bool done)
{
	if (!ticket)
		return;
	region_lock();
	if (done)
		rules_forget_locked(start, end);
	for (uint32_t i = table_find(end); i != UINT32_MAX; i--) {
		struct region *r = &region_table.head->at[i];

		if (i >= region_table.head->n || r->start >= end)
			continue;
		if (r->end <= start)
			break;
		if (r->ticket != ticket)
			continue;
		r->ticket = 0;
		if (done)
			ends_unmapped(i, start, end);
		else if (r->state == REGION_ACTIVE &&
			 (pins_of(r) || !ends_is_mapped(r, r->start, r->end)))
			make_private_unpinned(r); /* a failed mmap may have unmapped a part */
	}
	region_unlock();
}

/* Was it unmapped with its object? No program moves static data. */
static bool is_closed(const struct region *r)
{
	struct mapping_walk w = { .r = r, .at = r->start, .end = r->end };
	struct mapping p;

	return r->is_static && !pins_of(r) && !r->ticket && !mapping_next(&w, &p);
}

__attribute__((cold)) void region_suspect_all(void)
{
	if (region_is_locked_here())
		return;
	region_lock();
	for (uint32_t i = region_table.head->n; i-- > 0;) {
		region_table.head->at[i].suspect = true;
		if (is_closed(&region_table.head->at[i]))
			table_remove(i);
	}
	region_unlock();
}
