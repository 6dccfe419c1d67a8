// SPDX-License-Identifier: GPL-2.0
/*
 * Channels of dmaengine, and the feeder of each: it cuts jobs into items, gives them to the device,
 * and ends jobs. Contexts that share a channel are served in turn, an item each.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/highmem.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "sluice.h"

#define STUCK_MS 1000

static unsigned int channels = 4;
module_param(channels, uint, 0444);
MODULE_PARM_DESC(channels, "Most DMA channels to take; they are held only while /dev/sluice is open");

static char *driver = "";
module_param(driver, charp, 0444);
MODULE_PARM_DESC(driver, "Take channels of this driver only (as in /sys/class/dma/*/device/driver)");

static unsigned int depth = 4;
module_param(depth, uint, 0444);
MODULE_PARM_DESC(depth, "Items that a device holds at a time, 1 to 32");

static unsigned int pages_per_item = 256;
module_param(pages_per_item, uint, 0444);
MODULE_PARM_DESC(pages_per_item, "Most contiguous pages that one descriptor copies");

/* Enough for two workers to share 256 KiB. */
#define ONLOAD_ITEM_BYTES ((size_t)128 << 10)

static DEFINE_MUTEX(lock); /* of the four below */
static struct sluice_channel *all[SLUICE_CHANNELS_MAX];
static unsigned int all_count, users;
static bool is_onload; /* no DMA channel was there for the first user */

/* ---- items -------------------------------------------------------------------------------- */

static struct device *device_of(const struct sluice_channel *ch)
{
	return ch->dma->device->dev;
}

void sluice_item_ended(struct sluice_item *item, bool failed)
{
	struct sluice_channel *ch = item->channel;

	atomic_inc(&ch->enders);
	item->failed = failed;
	/* release: `failed`; partner: reap */
	smp_store_release(&item->state, ITEM_ENDED);
	sluice_channel_kick(ch);
	/* release: the last use of the channel; partner: channel_free */
	atomic_dec_return_release(&ch->enders);
}

static void dma_ended(void *param, const struct dmaengine_result *result)
{
	sluice_count(callbacks, 1);
	/* some providers report no result */
	sluice_item_ended(param, result && result->result != DMA_TRANS_NOERROR);
}

static void unmap(struct sluice_item *item)
{
	struct device *dev;

	if (!item->channel->dma)
		return;
	dev = device_of(item->channel);
	dma_unmap_page(dev, item->src, item->bytes, DMA_TO_DEVICE);
	dma_unmap_page(dev, item->dst, item->bytes, DMA_FROM_DEVICE);
}

static void end_item(struct sluice_item *item)
{
	struct sluice_channel *ch = item->channel;
	struct sluice_job *job = item->job;

	unmap(item);
	if (item->failed && !job->result)
		job->result = -EIO;
	else if (!item->failed && ch->dma)
		sluice_count(dma_bytes, item->bytes);
	item->state = ITEM_FREE;
	ch->in_flight--;
	ch->progress = jiffies;
	if (!--job->items && job->next >= job->bytes)
		sluice_job_end(job);
}

/* Returns: the number of items that have ended. */
static int reap(struct sluice_channel *ch)
{
	int n = 0;

	for (unsigned int i = 0; i < ch->depth; i++)
		/* acquire: `failed`; partner: sluice_item_ended */
		if (smp_load_acquire(&ch->items[i].state) == ITEM_ENDED) {
			end_item(&ch->items[i]);
			n++;
		}
	return n;
}

static struct sluice_span span_at(const struct sluice_region *r, u64 address, u64 bytes)
{
	unsigned long i = (address - r->start) >> PAGE_SHIFT;
	struct sluice_span span = { r->pages[i], offset_in_page(address), 0 };
	unsigned long pfn = page_to_pfn(span.page);

	span.bytes = PAGE_SIZE - span.offset;
	while (span.bytes < bytes && ++i < r->count && page_to_pfn(r->pages[i]) == ++pfn)
		span.bytes += PAGE_SIZE;
	span.bytes = min_t(u64, span.bytes, bytes);
	return span;
}

static bool is_mapped(struct sluice_item *item)
{
	struct device *dev = device_of(item->channel);

	item->src = dma_map_page(dev, item->from.page, item->from.offset, item->bytes, DMA_TO_DEVICE);
	if (dma_mapping_error(dev, item->src))
		return false;
	item->dst = dma_map_page(dev, item->to.page, item->to.offset, item->bytes, DMA_FROM_DEVICE);
	if (!dma_mapping_error(dev, item->dst))
		return true;
	dma_unmap_page(dev, item->src, item->bytes, DMA_TO_DEVICE);
	return false;
}

/* Returns: false when the device takes nothing now. */
static bool submit_dma(struct sluice_item *item)
{
	struct dma_chan *dma = item->channel->dma;
	struct dma_async_tx_descriptor *tx;

	/* every descriptor has a callback: engines that work out of order tell nothing by cookies */
	tx = dmaengine_prep_dma_memcpy(dma, item->dst, item->src, item->bytes,
				       DMA_PREP_INTERRUPT | DMA_CTRL_ACK);
	if (!tx)
		return false;
	tx->callback_result = dma_ended;
	tx->callback_param = item;
	item->state = ITEM_SUBMITTED;
	if (dma_submit_error(dmaengine_submit(tx))) {
		item->state = ITEM_FREE;
		return false;
	}
	sluice_count(descriptors, 1);
	return true;
}

static bool submit(struct sluice_item *item)
{
	if (item->channel->dma)
		return submit_dma(item);
	item->state = ITEM_SUBMITTED;
	sluice_onload_submit(item->channel->pool, item);
	return true;
}

/* ---- feeding ------------------------------------------------------------------------------ */

/* Copies up to `bytes` within one page on each side. Returns: the number of bytes. */
static size_t copy_by_cpu(const struct sluice_span *src, const struct sluice_span *dst)
{
	size_t n = min3(PAGE_SIZE - src->offset, PAGE_SIZE - dst->offset,
			min(src->bytes, dst->bytes));
	void *to = kmap_local_page(dst->page), *from = kmap_local_page(src->page);

	memcpy(to + dst->offset, from + src->offset, n);
	kunmap_local(from);
	kunmap_local(to);
	sluice_count(cpu_bytes, n);
	cond_resched();
	return n;
}

static struct sluice_item *free_item(struct sluice_channel *ch)
{
	for (unsigned int i = 0; i < ch->depth; i++)
		if (ch->items[i].state == ITEM_FREE)
			return &ch->items[i];
	return NULL;
}

/* The device's own demand; and where it is not coherent with the caches, no line may be written by the
 * device and by a CPU. */
static size_t align_of(const struct sluice_channel *ch)
{
	return ch->dma ? max_t(size_t, (size_t)1 << ch->dma->device->copy_align,
			       dma_get_cache_alignment()) :
			 1;
}

/* Feeds the next bytes of a job. Returns: how many; 0: the device takes nothing now. */
static size_t feed(struct sluice_channel *ch, struct sluice_job *job)
{
	u64 rest = min_t(u64, job->bytes - job->next, ch->item_bytes);
	struct sluice_span src = span_at(job->src, job->src_address + job->next, rest);
	struct sluice_span dst = span_at(job->dst, job->dst_address + job->next, rest);
	size_t align = align_of(ch), least = ch->dma ? L1_CACHE_BYTES : 1;
	struct sluice_item *item = free_item(ch);
	size_t n = min(src.bytes, dst.bytes);

	if (!item)
		return 0;
	/* a piece of less than a cache line would share its line with the next one's mapping */
	if (!IS_ALIGNED(src.offset | dst.offset, align) || n < max(align, least))
		return copy_by_cpu(&src, &dst);
	n = round_down(n, align);
	item->job = job;
	item->bytes = n;
	item->from = src;
	item->to = dst;
	if (ch->dma && !is_mapped(item))
		return copy_by_cpu(&src, &dst);
	if (!submit(item)) {
		unmap(item);
		/* a device that holds nothing and still refuses would never take it */
		return ch->in_flight ? 0 : copy_by_cpu(&src, &dst);
	}
	job->items++;
	if (!ch->in_flight++)
		ch->progress = jiffies;
	return n;
}

/* Takes the first job of the context whose turn it is. Returns: NULL: there is none. */
static struct sluice_job *next_job(struct sluice_channel *ch)
{
	struct sluice_context *c;
	struct sluice_job *job = NULL;

	spin_lock(&ch->lock);
	c = list_first_entry_or_null(&ch->contexts, struct sluice_context, list);
	if (c) {
		job = list_first_entry(&c->queue, struct sluice_job, list);
		list_move_tail(&c->list, &ch->contexts);
	}
	spin_unlock(&ch->lock);
	return job;
}

static void unqueue(struct sluice_channel *ch, struct sluice_job *job)
{
	struct sluice_context *c = job->context;

	spin_lock(&ch->lock);
	list_del_init(&job->list);
	if (list_empty(&c->queue))
		list_del_init(&c->list);
	spin_unlock(&ch->lock);
}

/* Returns: false when the device is full or nothing is queued. */
static bool feed_one(struct sluice_channel *ch)
{
	struct sluice_job *job = next_job(ch);
	size_t n;

	if (!job)
		return false;
	n = feed(ch, job);
	if (!n)
		return false;
	job->next += n;
	if (job->next < job->bytes)
		return true;
	unqueue(ch, job);
	if (!job->items)
		sluice_job_end(job);
	return true;
}

static struct sluice_job *next_cancelled(struct sluice_channel *ch)
{
	struct sluice_context *c;
	struct sluice_job *job;

	list_for_each_entry(c, &ch->contexts, list)
		list_for_each_entry(job, &c->queue, list)
			if (job->cancelled)
				return job;
	return NULL;
}

/* Ends cancelled jobs, or leaves their end to their items in the device. */
static void end_cancelled(struct sluice_channel *ch)
{
	for (;;) {
		struct sluice_job *job;

		spin_lock(&ch->lock);
		job = next_cancelled(ch);
		spin_unlock(&ch->lock);
		if (!job)
			return;
		if (!job->result)
			job->result = -ECANCELED;
		job->next = job->bytes;
		sluice_count(cancelled, 1);
		unqueue(ch, job);
		if (!job->items)
			sluice_job_end(job);
	}
}

/* ---- a device that hangs ------------------------------------------------------------------ */

/* Stops a device that has ended nothing for long while somebody waits for its end. Many cannot be
 * stopped: then the waiting goes on, as the device may still write. */
static void check_stuck(struct sluice_channel *ch)
{
	int rc;

	if (!ch->dma || !ch->in_flight || !atomic_read(&ch->retiring) ||
	    time_before(jiffies, ch->progress + msecs_to_jiffies(STUCK_MS)))
		return;
	rc = dmaengine_terminate_sync(ch->dma);
	if (!ch->is_stuck_told)
		pr_notice("sluice: %s has ended nothing for %d ms: %s\n", dma_chan_name(ch->dma), STUCK_MS,
			  rc ? "it cannot be stopped, waiting" : "stopped");
	ch->is_stuck_told = true;
	if (rc) {
		ch->progress = jiffies;
		return;
	}
	reap(ch);
	for (unsigned int i = 0; i < ch->depth; i++)
		if (ch->items[i].state == ITEM_SUBMITTED) {
			ch->items[i].failed = true;
			end_item(&ch->items[i]);
		}
}

/* ---- the feeder --------------------------------------------------------------------------- */

static int feeder(void *arg)
{
	struct sluice_channel *ch = arg;

	for (;;) {
		bool is_fed = false;

		/* acquire: what the kick was for; partner: sluice_channel_kick */
		atomic_xchg(&ch->kick, 0);
		reap(ch);
		end_cancelled(ch);
		while (!atomic_read(&ch->kick) && feed_one(ch))
			is_fed = true;
		/* also after each end: some providers start nothing by themselves */
		if (ch->dma && (is_fed || ch->in_flight))
			dma_async_issue_pending(ch->dma);
		check_stuck(ch);
		set_current_state(TASK_IDLE);
		if (kthread_should_stop())
			break;
		if (!atomic_read(&ch->kick))
			schedule_timeout(ch->in_flight ? msecs_to_jiffies(STUCK_MS / 4) :
							 MAX_SCHEDULE_TIMEOUT);
		__set_current_state(TASK_RUNNING);
	}
	__set_current_state(TASK_RUNNING);
	return 0;
}

void sluice_channel_kick(struct sluice_channel *ch)
{
	atomic_set_release(&ch->kick, 1);
	wake_up_process(ch->feeder);
}

/* ---- channels ----------------------------------------------------------------------------- */

static const char *driver_of(const struct dma_chan *dma)
{
	return dev_driver_string(dma->device->dev);
}

static bool is_wanted(struct dma_chan *dma, void *unused)
{
	return !driver[0] || !strcmp(driver, driver_of(dma));
}

static bool take_dma(struct sluice_channel *ch)
{
	dma_cap_mask_t mask;

	dma_cap_zero(mask);
	dma_cap_set(DMA_MEMCPY, mask);
	ch->dma = dma_request_channel(mask, is_wanted, NULL);
	if (!ch->dma)
		return false;
	ch->depth = depth;
	/* a bounce buffer is small */
	ch->item_bytes = min_t(size_t, (size_t)pages_per_item << PAGE_SHIFT,
			       dma_max_mapping_size(device_of(ch)) & PAGE_MASK);
	return true;
}

static void take_pool(struct sluice_channel *ch, struct sluice_pool *pool)
{
	ch->pool = pool;
	/* two a worker, so that none waits for the feeder */
	ch->depth = min(2 * sluice_onload_workers(pool), (unsigned int)SLUICE_DEPTH_MAX);
	ch->item_bytes = min_t(size_t, (size_t)pages_per_item << PAGE_SHIFT, ONLOAD_ITEM_BYTES);
}

/* pool: NULL: a DMA channel. */
static struct sluice_channel *channel_new(struct sluice_pool *pool)
{
	struct sluice_channel *ch = kzalloc(sizeof(*ch), GFP_KERNEL);

	if (!ch)
		return NULL;
	if (pool)
		take_pool(ch, pool);
	else if (!take_dma(ch))
		goto fail;
	spin_lock_init(&ch->lock);
	INIT_LIST_HEAD(&ch->contexts);
	for (unsigned int i = 0; i < SLUICE_DEPTH_MAX; i++)
		ch->items[i].channel = ch;
	ch->feeder = kthread_create_on_node(feeder, ch, sluice_channel_node(ch), "sluice-%s",
					    ch->dma ? dma_chan_name(ch->dma) : "feeder");
	if (IS_ERR(ch->feeder))
		goto fail_dma;
	wake_up_process(ch->feeder);
	return ch;
fail_dma:
	if (ch->dma)
		dma_release_channel(ch->dma);
fail:
	kfree(ch);
	return NULL;
}

static void channel_free(struct sluice_channel *ch)
{
	/* the last callback may not have returned; acquire; partner: sluice_item_ended */
	while (atomic_read_acquire(&ch->enders))
		usleep_range(50, 100);
	kthread_stop(ch->feeder);
	if (ch->dma) {
		dmaengine_synchronize(ch->dma);
		dma_release_channel(ch->dma);
	}
	kfree(ch);
}

static bool add_channel(struct sluice_pool *pool)
{
	all[all_count] = channel_new(pool);
	if (!all[all_count])
		return false;
	all_count++;
	return true;
}

static void add_pools(void)
{
	unsigned int n = sluice_onload_start();

	for (unsigned int i = 0; i < n; i++)
		if (!add_channel(sluice_onload_pool(i)))
			break;
	is_onload = all_count;
	if (n && !is_onload)
		sluice_onload_stop();
}

unsigned int sluice_channels_get(void)
{
	unsigned int n;

	mutex_lock(&lock);
	depth = clamp(depth, 1u, (unsigned int)SLUICE_DEPTH_MAX);
	pages_per_item = max(pages_per_item, 1u);
	users++;
	while (!is_onload && all_count < min(channels, (unsigned int)SLUICE_CHANNELS_MAX))
		if (!add_channel(NULL))
			break;
	if (!all_count)
		add_pools();
	n = all_count;
	mutex_unlock(&lock);
	return n;
}

void sluice_channels_put(void)
{
	mutex_lock(&lock);
	if (!--users) {
		while (all_count)
			channel_free(all[--all_count]);
		if (is_onload)
			sluice_onload_stop();
		is_onload = false;
	}
	mutex_unlock(&lock);
}

struct sluice_channel *sluice_channel(unsigned int index)
{
	return all[index];
}

int sluice_channel_node(const struct sluice_channel *ch)
{
	return ch->dma ? dev_to_node(device_of(ch)) : sluice_onload_node(ch->pool);
}

void sluice_channel_driver(const struct sluice_channel *ch, char *out, size_t cap)
{
	strscpy(out, ch->dma ? driver_of(ch->dma) : "onload", cap);
}

void sluice_channel_describe(const struct sluice_channel *ch, struct sluice_attach *a)
{
	a->flags = ch->dma ? 0 : SLUICE_CHANNEL_ONLOAD;
	a->node = sluice_channel_node(ch);
	a->depth = ch->depth;
	a->item_bytes = min_t(u64, ch->item_bytes, SLUICE_MAX_BYTES);
	a->max_bytes = SLUICE_MAX_BYTES;
	if (ch->dma)
		strscpy(a->name, dma_chan_name(ch->dma), sizeof(a->name));
	else
		snprintf(a->name, sizeof(a->name), "onload-%d", sluice_channel_node(ch));
}
