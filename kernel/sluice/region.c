// SPDX-License-Identifier: GPL-2.0
/*
 * Pinned ranges. A region is found by address, pinned at its first use, and kept when nobody uses
 * it. An MMU interval notifier marks it stale when the mapping changes; then no new job finds it,
 * and its pages are unpinned when the last job has ended.
 */
#include <linux/capability.h>
#include <linux/moduleparam.h>
#include <linux/sched/signal.h>

#include "sluice.h"

#define PIN_TRIES 16

static unsigned int cache_regions = 64;
module_param(cache_regions, uint, 0644);
MODULE_PARM_DESC(cache_regions, "Ranges that a process may keep pinned while it does not copy");

static unsigned long cache_pages = 65536;
module_param(cache_pages, ulong, 0644);
MODULE_PARM_DESC(cache_pages, "Pages that a process may keep pinned while it does not copy");

/* ---- memlock ------------------------------------------------------------------------------ */

static int charge(struct mm_struct *mm, unsigned long pages)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (atomic64_add_return(pages, &mm->pinned_vm) <= limit || capable(CAP_IPC_LOCK))
		return 0;
	atomic64_sub(pages, &mm->pinned_vm);
	return -ENOMEM;
}

static void uncharge(struct mm_struct *mm, unsigned long pages)
{
	atomic64_sub(pages, &mm->pinned_vm);
}

/* ---- notifier ----------------------------------------------------------------------------- */

static bool invalidate(struct mmu_interval_notifier *notifier, const struct mmu_notifier_range *range,
		       unsigned long seq)
{
	struct sluice_region *r = container_of(notifier, struct sluice_region, notifier);
	struct sluice_context *c = r->context;

	/* the same pages, with other rights or hints */
	if (range->event == MMU_NOTIFY_PROTECTION_VMA || range->event == MMU_NOTIFY_PROTECTION_PAGE ||
	    range->event == MMU_NOTIFY_SOFT_DIRTY)
		return true;
	spin_lock(&c->lock);
	mmu_interval_set_seq(notifier, seq);
	if (!r->stale)
		sluice_count(stale, 1);
	r->stale = true;
	if (!r->refs && !c->closing)
		queue_work(system_unbound_wq, &c->reap);
	spin_unlock(&c->lock);
	return true;
}

static const struct mmu_interval_notifier_ops notifier_ops = { .invalidate = invalidate };

/* ---- pinning ------------------------------------------------------------------------------ */

static void unpin(struct sluice_region *r, unsigned long count)
{
	unpin_user_pages_dirty_lock(r->pages, count, r->writable);
	sluice_count(unpins, count);
}

/* Returns: 0; the notifier saw no change since before the pages were looked up. */
static int pin(struct sluice_region *r)
{
	unsigned int flags = FOLL_LONGTERM | (r->writable ? FOLL_WRITE : 0);
	struct sluice_context *c = r->context;
	bool changed;

	for (int i = 0; i < PIN_TRIES; i++) {
		unsigned long seq = mmu_interval_read_begin(&r->notifier);
		long n = pin_user_pages_fast(r->start, r->count, flags, r->pages);

		if (n > 0)
			sluice_count(pins, n);
		if (n > 0 && n < r->count)
			unpin(r, n);
		if (n < (long)r->count)
			return n < 0 ? n : -EFAULT;
		spin_lock(&c->lock);
		changed = mmu_interval_read_retry(&r->notifier, seq);
		if (!changed) {
			r->stale = false;
			r->refs = 1;
			list_add(&r->list, &c->regions);
			c->region_count++;
			c->pages += r->count;
		}
		spin_unlock(&c->lock);
		if (!changed)
			return 0;
		unpin(r, r->count);
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return -EAGAIN;
}

static void free_region(struct sluice_region *r)
{
	kvfree(r->pages);
	kfree(r);
}

/* Ends a region that is no longer listed. */
static void destroy(struct sluice_region *r)
{
	mmu_interval_notifier_remove(&r->notifier);
	unpin(r, r->count);
	uncharge(r->context->mm, r->count);
	free_region(r);
}

static void unlist(struct sluice_region *r, struct list_head *to)
{
	lockdep_assert_held(&r->context->lock);
	list_move(&r->list, to);
	r->context->region_count--;
	r->context->pages -= r->count;
}

static void destroy_all(struct list_head *regions)
{
	struct sluice_region *r, *next;

	list_for_each_entry_safe(r, next, regions, list)
		destroy(r);
}

/* Gives up the least recently used regions until there is room for `pages` more. */
static void make_room(struct sluice_context *c, unsigned long pages)
{
	struct sluice_region *r, *next;
	LIST_HEAD(out);

	spin_lock(&c->lock);
	list_for_each_entry_safe_reverse(r, next, &c->regions, list) {
		if (c->region_count < cache_regions && c->pages + pages <= cache_pages)
			break;
		if (r->refs)
			continue;
		unlist(r, &out);
		sluice_count(evicted, 1);
	}
	spin_unlock(&c->lock);
	destroy_all(&out);
}

static struct sluice_region *make(struct sluice_context *c, unsigned long start,
				  unsigned long count, bool writable)
{
	struct sluice_region *r = kzalloc(sizeof(*r), GFP_KERNEL_ACCOUNT);
	int rc = -ENOMEM;

	if (!r)
		return ERR_PTR(-ENOMEM);
	r->context = c;
	r->start = start;
	r->count = count;
	r->writable = writable;
	INIT_LIST_HEAD(&r->list);
	r->pages = kvmalloc_array(count, sizeof(*r->pages), GFP_KERNEL_ACCOUNT);
	if (!r->pages)
		goto fail;
	make_room(c, count);
	rc = charge(c->mm, count);
	if (rc) { /* what is kept without need counts, too */
		sluice_region_drop(c, 0, U64_MAX);
		rc = charge(c->mm, count);
	}
	if (rc)
		goto fail;
	rc = mmu_interval_notifier_insert(&r->notifier, c->mm, start, count << PAGE_SHIFT,
					  &notifier_ops);
	if (rc)
		goto fail_charged;
	rc = pin(r);
	if (rc)
		goto fail_inserted;
	sluice_count(regions, 1);
	return r;
fail_inserted:
	mmu_interval_notifier_remove(&r->notifier);
fail_charged:
	uncharge(c->mm, count);
fail:
	free_region(r);
	return ERR_PTR(rc);
}

struct sluice_region *sluice_region_get(struct sluice_context *c, u64 address, u64 bytes,
					bool writable)
{
	unsigned long start = address & PAGE_MASK;
	unsigned long count = (PAGE_ALIGN(address + bytes) - start) >> PAGE_SHIFT;
	unsigned long end = start + (count << PAGE_SHIFT);
	struct sluice_region *r;

	spin_lock(&c->lock);
	list_for_each_entry(r, &c->regions, list) {
		if (r->stale || start < r->start || end > r->start + (r->count << PAGE_SHIFT) ||
		    (writable && !r->writable))
			continue;
		r->refs++;
		list_move(&r->list, &c->regions);
		spin_unlock(&c->lock);
		sluice_count(hits, 1);
		return r;
	}
	spin_unlock(&c->lock);
	return make(c, start, count, writable);
}

/* ---- ends --------------------------------------------------------------------------------- */

void sluice_region_put(struct sluice_region *r)
{
	struct sluice_context *c = r->context;

	spin_lock(&c->lock);
	if (!--r->refs && r->stale && !c->closing)
		queue_work(system_unbound_wq, &c->reap);
	spin_unlock(&c->lock);
}

void sluice_region_drop(struct sluice_context *c, u64 address, u64 bytes)
{
	u64 end = bytes > U64_MAX - address ? U64_MAX : address + bytes;
	struct sluice_region *r, *next;
	LIST_HEAD(out);

	spin_lock(&c->lock);
	list_for_each_entry_safe(r, next, &c->regions, list) {
		if (r->start >= end || r->start + (r->count << PAGE_SHIFT) <= address)
			continue;
		if (r->refs)
			r->stale = true;
		else
			unlist(r, &out);
	}
	spin_unlock(&c->lock);
	destroy_all(&out);
}

void sluice_region_reap(struct work_struct *work)
{
	struct sluice_context *c = container_of(work, struct sluice_context, reap);
	struct sluice_region *r, *next;
	LIST_HEAD(out);

	spin_lock(&c->lock);
	list_for_each_entry_safe(r, next, &c->regions, list)
		if (r->stale && !r->refs)
			unlist(r, &out);
	spin_unlock(&c->lock);
	destroy_all(&out);
}

void sluice_region_fini(struct sluice_context *c)
{
	spin_lock(&c->lock);
	c->closing = true;
	spin_unlock(&c->lock);
	cancel_work_sync(&c->reap);
	sluice_region_drop(c, 0, U64_MAX);
	WARN_ON(c->region_count || c->pages);
}
