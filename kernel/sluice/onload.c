// SPDX-License-Identifier: GPL-2.0
/*
 * On-load workers: kernel threads that copy where there is no DMA channel. Off by default, as they
 * take time of CPUs that no job is charged for.
 *
 *   context  the pools of all NUMA nodes with CPUs
 *   pool     the workers of a node; each pool is a channel
 *   worker   a kthread on the CPUs of its node; sleeps on the wait queue of its pool
 *   item     struct sluice_item: what to copy
 *   deque    one a worker: the owner takes what came first, others steal what came last
 *
 * An item goes to the pool of the node where its destination lies, whichever channel it came by.
 */
#include <linux/highmem.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/topology.h>

#include "sluice.h"

static unsigned int workers;
module_param(workers, uint, 0444);
MODULE_PARM_DESC(workers, "Kernel threads a NUMA node that copy where no DMA channel can be had; 0: none");

#define WORKERS_MAX 16

struct onload_worker {
	struct sluice_pool *pool;
	struct task_struct *task;
	spinlock_t lock;
	struct list_head deque; /* items; under the lock */
};

struct sluice_pool {
	int node;
	wait_queue_head_t wait;
	atomic_t turn;
	unsigned int count;
	struct onload_worker workers[WORKERS_MAX];
};

/* Written while no item exists. */
static struct sluice_pool *pools[SLUICE_CHANNELS_MAX];
static unsigned int pool_count;

/* ---- items -------------------------------------------------------------------------------- */

static struct page *page_of(const struct sluice_span *s, size_t at)
{
	return pfn_to_page(page_to_pfn(s->page) + ((s->offset + at) >> PAGE_SHIFT));
}

static void execute(struct sluice_item *item)
{
	for (size_t at = 0, n; at < item->bytes; at += n) {
		size_t to_at = offset_in_page(item->to.offset + at);
		size_t from_at = offset_in_page(item->from.offset + at);
		u8 *to = kmap_local_page(page_of(&item->to, at));
		u8 *from = kmap_local_page(page_of(&item->from, at));

		n = min3(PAGE_SIZE - to_at, PAGE_SIZE - from_at, item->bytes - at);
		memcpy(to + to_at, from + from_at, n);
		kunmap_local(from);
		kunmap_local(to);
		cond_resched();
	}
	sluice_count(onload_bytes, item->bytes);
	sluice_item_ended(item, false);
}

/* ---- deques ------------------------------------------------------------------------------- */

static struct sluice_item *take_from(struct onload_worker *w, bool first)
{
	struct sluice_item *item;

	spin_lock(&w->lock);
	item = first ? list_first_entry_or_null(&w->deque, struct sluice_item, list) :
	       list_empty(&w->deque) ? NULL :
				       list_last_entry(&w->deque, struct sluice_item, list);
	if (item)
		list_del(&item->list);
	spin_unlock(&w->lock);
	return item;
}

static struct sluice_item *steal(struct sluice_pool *p)
{
	struct sluice_item *item = NULL;

	for (unsigned int i = 0; i < p->count && !item; i++)
		item = take_from(&p->workers[i], false);
	return item;
}

/* Its own work first, then its node's, then what other nodes have. */
static struct sluice_item *take(struct onload_worker *w)
{
	struct sluice_item *item = take_from(w, true);

	item = item ?: steal(w->pool);
	for (unsigned int i = 0; i < pool_count && !item; i++)
		item = steal(pools[i]);
	return item;
}

static struct sluice_pool *pool_near(int node, struct sluice_pool *otherwise)
{
	for (unsigned int i = 0; i < pool_count; i++)
		if (pools[i]->node == node)
			return pools[i];
	return otherwise;
}

void sluice_onload_submit(struct sluice_pool *p, struct sluice_item *item)
{
	struct onload_worker *w;

	p = pool_near(page_to_nid(item->to.page), p);
	w = &p->workers[(unsigned int)atomic_inc_return(&p->turn) % p->count];
	spin_lock(&w->lock);
	list_add_tail(&item->list, &w->deque);
	spin_unlock(&w->lock);
	wake_up(&p->wait);
}

/* ---- workers ------------------------------------------------------------------------------ */

static int work(void *arg)
{
	struct onload_worker *w = arg;
	struct sluice_item *item;

	for (;;) {
		item = NULL;
		wait_event_idle_exclusive(w->pool->wait, (item = take(w)) || kthread_should_stop());
		if (!item)
			return 0;
		execute(item);
	}
}

static struct sluice_pool *pool_new(int node)
{
	struct sluice_pool *p = kzalloc_node(sizeof(*p), GFP_KERNEL, node);

	if (!p)
		return NULL;
	p->node = node;
	init_waitqueue_head(&p->wait);
	for (; p->count < min(workers, (unsigned int)WORKERS_MAX); p->count++) {
		struct onload_worker *w = &p->workers[p->count];

		w->pool = p;
		spin_lock_init(&w->lock);
		INIT_LIST_HEAD(&w->deque);
		w->task = kthread_create_on_node(work, w, node, "sluice-onload-%d/%u", node,
						 p->count);
		if (IS_ERR(w->task))
			break;
		set_cpus_allowed_ptr(w->task, cpumask_of_node(node));
		set_user_nice(w->task, MAX_NICE); /* ranks that compute come first */
	}
	if (p->count)
		return p;
	kfree(p);
	return NULL;
}

unsigned int sluice_onload_start(void)
{
	int node;

	if (!workers)
		return 0;
	for_each_node_with_cpus(node) {
		if (pool_count == SLUICE_CHANNELS_MAX)
			break;
		pools[pool_count] = pool_new(node);
		if (pools[pool_count])
			pool_count++;
	}
	/* not before all pools are there: workers look at the others */
	for (unsigned int i = 0; i < pool_count; i++)
		for (unsigned int k = 0; k < pools[i]->count; k++)
			wake_up_process(pools[i]->workers[k].task);
	return pool_count;
}

void sluice_onload_stop(void)
{
	unsigned int n = pool_count;

	/* nothing is queued: workers may stop looking at other pools in any order */
	for (unsigned int i = 0; i < n; i++)
		for (unsigned int k = 0; k < pools[i]->count; k++)
			kthread_stop(pools[i]->workers[k].task);
	pool_count = 0;
	for (unsigned int i = 0; i < n; i++)
		kfree(pools[i]);
}

struct sluice_pool *sluice_onload_pool(unsigned int index)
{
	return pools[index];
}

int sluice_onload_node(const struct sluice_pool *p)
{
	return p->node;
}

unsigned int sluice_onload_workers(const struct sluice_pool *p)
{
	return p->count;
}
