// SPDX-License-Identifier: GPL-2.0
/*
 * softdma: a dmaengine provider that copies by a kthread a channel. For tests of its users; each
 * parameter is a habit of some real provider, and may be changed while the module is loaded.
 */
#include <linux/delay.h>
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/dmaengine.h>
#include <linux/highmem.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/platform_device.h>
#include <linux/slab.h>

#define CHANNELS_MAX 16

static unsigned int channels = 2;
module_param(channels, uint, 0444);
MODULE_PARM_DESC(channels, "Number of channels, 1 to 16");

static unsigned int align;
module_param(align, uint, 0444);
MODULE_PARM_DESC(align, "Alignment that copies need, as a power of two");

static unsigned int delay_us;
module_param(delay_us, uint, 0644);
MODULE_PARM_DESC(delay_us, "Time that a descriptor takes");

static unsigned int error_every;
module_param(error_every, uint, 0644);
MODULE_PARM_DESC(error_every, "Every n-th descriptor fails");

static unsigned int hang_every;
module_param(hang_every, uint, 0644);
MODULE_PARM_DESC(hang_every,
		 "Every n-th descriptor hangs its channel, until it is stopped or this is 0");

static unsigned int null_every;
module_param(null_every, uint, 0644);
MODULE_PARM_DESC(null_every, "Every n-th prep returns NULL");

static unsigned int room;
module_param(room, uint, 0644);
MODULE_PARM_DESC(room, "prep returns NULL while a channel holds so many; 0: it holds any number");

static unsigned int mb_s;
module_param(mb_s, uint, 0644);
MODULE_PARM_DESC(mb_s, "Bandwidth of a channel; 0: that of the CPU");

static bool lazy;
module_param(lazy, bool, 0644);
MODULE_PARM_DESC(lazy, "Issuing does nothing while the channel works: it must be told again");

static int node = NUMA_NO_NODE;
module_param(node, int, 0444);
MODULE_PARM_DESC(node, "NUMA node of the device");

static bool shared;
module_param(shared, bool, 0444);
MODULE_PARM_DESC(shared, "Channels are not private: the kernel's own users may share them");

static bool reorder;
module_param(reorder, bool, 0644);
MODULE_PARM_DESC(reorder, "Executes what is issued in the opposite order");

static bool silent;
module_param(silent, bool, 0644);
MODULE_PARM_DESC(silent, "Callbacks get no result, also for errors");

static bool no_terminate;
module_param(no_terminate, bool, 0444);
MODULE_PARM_DESC(no_terminate, "Channels cannot be stopped");

struct soft_desc {
	struct dma_async_tx_descriptor tx;
	struct list_head list;
	dma_addr_t dst, src;
	size_t bytes;
};

struct soft_chan {
	struct dma_chan dma;
	struct task_struct *thread;
	spinlock_t lock;
	struct list_head submitted, issued;
	wait_queue_head_t more;
	atomic_t held; /* descriptors between prep and end */
	bool is_hung, is_working;
	bool is_busy; /* also in the callback */
};

static struct dma_device engine;
static struct soft_chan chans[CHANNELS_MAX];
static struct platform_device *platform;
static atomic_t executed, prepared;

static struct soft_chan *chan_of(struct dma_chan *dma)
{
	return container_of(dma, struct soft_chan, dma);
}

static bool is_nth(unsigned int n, unsigned int every)
{
	return every && !(n % every);
}

/* ---- descriptors -------------------------------------------------------------------------- */

static dma_cookie_t soft_submit(struct dma_async_tx_descriptor *tx)
{
	struct soft_desc *d = container_of(tx, struct soft_desc, tx);
	struct soft_chan *ch = chan_of(tx->chan);
	dma_cookie_t cookie;

	spin_lock_bh(&ch->lock);
	cookie = ch->dma.cookie + 1;
	if (cookie < DMA_MIN_COOKIE)
		cookie = DMA_MIN_COOKIE;
	tx->cookie = ch->dma.cookie = cookie;
	list_add_tail(&d->list, &ch->submitted);
	spin_unlock_bh(&ch->lock);
	return cookie;
}

static struct dma_async_tx_descriptor *soft_prep(struct dma_chan *dma, dma_addr_t dst, dma_addr_t src,
						 size_t bytes, unsigned long flags)
{
	size_t mask = ((size_t)1 << align) - 1;
	struct soft_desc *d;

	if (WARN_ON((dst | src | bytes) & mask))
		return NULL;
	if (is_nth(atomic_inc_return(&prepared), null_every) ||
	    (room && atomic_read(&chan_of(dma)->held) >= room))
		return NULL;
	d = kzalloc(sizeof(*d), GFP_KERNEL); /* may sleep, as bcm2835's */
	if (!d)
		return NULL;
	dma_async_tx_descriptor_init(&d->tx, dma);
	d->tx.flags = flags;
	d->tx.tx_submit = soft_submit;
	d->dst = dst;
	d->src = src;
	d->bytes = bytes;
	atomic_inc(&chan_of(dma)->held);
	return &d->tx;
}

static void soft_issue(struct dma_chan *dma)
{
	struct soft_chan *ch = chan_of(dma);

	spin_lock_bh(&ch->lock);
	if (!lazy || (!ch->is_working && list_empty(&ch->issued)))
		list_splice_tail_init(&ch->submitted, &ch->issued);
	spin_unlock_bh(&ch->lock);
	wake_up(&ch->more);
}

static enum dma_status soft_status(struct dma_chan *dma, dma_cookie_t cookie,
				   struct dma_tx_state *state)
{
	dma_set_tx_state(state, dma->completed_cookie, dma->cookie, 0);
	return reorder ? DMA_OUT_OF_ORDER :
			 dma_async_is_complete(cookie, dma->completed_cookie, dma->cookie);
}

/* ---- execution ---------------------------------------------------------------------------- */

static void copy(struct soft_desc *d)
{
	struct device *dev = &platform->dev;
	phys_addr_t dst = dma_to_phys(dev, d->dst), src = dma_to_phys(dev, d->src);

	for (size_t i = 0, n; i < d->bytes; i += n) {
		void *to = kmap_local_page(pfn_to_page(PHYS_PFN(dst + i)));
		void *from = kmap_local_page(pfn_to_page(PHYS_PFN(src + i)));

		n = min3(PAGE_SIZE - offset_in_page(dst + i), PAGE_SIZE - offset_in_page(src + i),
			 d->bytes - i);
		memcpy(to + offset_in_page(dst + i), from + offset_in_page(src + i), n);
		kunmap_local(from);
		kunmap_local(to);
		cond_resched();
	}
}

static void free_desc(struct soft_desc *d)
{
	atomic_dec(&chan_of(d->tx.chan)->held);
	kfree(d);
}

static void end_desc(struct soft_desc *d, enum dmaengine_tx_result result)
{
	struct dmaengine_result r = { .result = result };

	d->tx.chan->completed_cookie = d->tx.cookie;
	if (d->tx.callback_result)
		d->tx.callback_result(d->tx.callback_param, silent ? NULL : &r);
	else if (d->tx.callback)
		d->tx.callback(d->tx.callback_param);
	free_desc(d);
}

static bool is_hung(const struct soft_chan *ch)
{
	return READ_ONCE(ch->is_hung) && hang_every;
}

static struct soft_desc *take(struct soft_chan *ch)
{
	struct soft_desc *d = NULL;

	spin_lock_bh(&ch->lock);
	if (!is_hung(ch) && !list_empty(&ch->issued)) {
		d = reorder ? list_last_entry(&ch->issued, struct soft_desc, list) :
			      list_first_entry(&ch->issued, struct soft_desc, list);
		ch->is_hung = false;
		if (is_nth(atomic_inc_return(&executed), hang_every)) {
			ch->is_hung = true;
			d = NULL;
		} else {
			list_del(&d->list);
			ch->is_working = ch->is_busy = true;
		}
	}
	spin_unlock_bh(&ch->lock);
	return d;
}

static void pass_time(const struct soft_desc *d)
{
	unsigned int us = delay_us + (mb_s ? d->bytes / mb_s : 0);

	if (us)
		usleep_range(us, us + us / 8 + 1);
}

static int soft_thread(void *arg)
{
	struct soft_chan *ch = arg;
	struct soft_desc *d;

	while (!kthread_should_stop()) {
		bool fails;

		/* nobody wakes it when hang_every is 0 again */
		wait_event_idle_timeout(ch->more, kthread_should_stop() ||
					(!is_hung(ch) && !list_empty_careful(&ch->issued)),
					READ_ONCE(ch->is_hung) ? HZ / 10 : MAX_SCHEDULE_TIMEOUT);
		d = take(ch);
		if (!d)
			continue;
		fails = is_nth(atomic_read(&executed), error_every);
		pass_time(d);
		if (!fails)
			copy(d);
		spin_lock_bh(&ch->lock);
		ch->is_working = false;
		spin_unlock_bh(&ch->lock);
		end_desc(d, fails ? DMA_TRANS_WRITE_FAILED : DMA_TRANS_NOERROR);
		spin_lock_bh(&ch->lock);
		ch->is_busy = false;
		spin_unlock_bh(&ch->lock);
		wake_up(&ch->more);
	}
	return 0;
}

/* ---- stopping ----------------------------------------------------------------------------- */

static int soft_terminate(struct dma_chan *dma)
{
	struct soft_chan *ch = chan_of(dma);
	struct soft_desc *d, *next;
	LIST_HEAD(all);

	spin_lock_bh(&ch->lock);
	list_splice_tail_init(&ch->submitted, &all);
	list_splice_tail_init(&ch->issued, &all);
	ch->is_hung = false;
	spin_unlock_bh(&ch->lock);
	list_for_each_entry_safe(d, next, &all, list)
		free_desc(d);
	return 0;
}

static void soft_synchronize(struct dma_chan *dma)
{
	struct soft_chan *ch = chan_of(dma);

	wait_event_idle(ch->more, !READ_ONCE(ch->is_busy));
}

static int soft_alloc(struct dma_chan *dma)
{
	return 1;
}

static void soft_free(struct dma_chan *dma)
{
	soft_terminate(dma);
	soft_synchronize(dma);
}

/* ---- the module --------------------------------------------------------------------------- */

static void stop_threads(void)
{
	for (unsigned int i = 0; i < channels; i++)
		if (!IS_ERR_OR_NULL(chans[i].thread))
			kthread_stop(chans[i].thread);
}

static int start_threads(void)
{
	for (unsigned int i = 0; i < channels; i++) {
		struct soft_chan *ch = &chans[i];

		spin_lock_init(&ch->lock);
		INIT_LIST_HEAD(&ch->submitted);
		INIT_LIST_HEAD(&ch->issued);
		init_waitqueue_head(&ch->more);
		ch->dma.device = &engine;
		ch->dma.cookie = ch->dma.completed_cookie = DMA_MIN_COOKIE;
		list_add_tail(&ch->dma.device_node, &engine.channels);
		ch->thread = kthread_run(soft_thread, ch, "softdma-%u", i);
		if (IS_ERR(ch->thread))
			return PTR_ERR(ch->thread);
	}
	return 0;
}

static int __init soft_probe(struct platform_device *p)
{
	int rc = dma_set_mask_and_coherent(&p->dev, DMA_BIT_MASK(64));

	if (rc)
		return rc;
	set_dev_node(&p->dev, node);
	platform = p;
	channels = clamp(channels, 1u, (unsigned int)CHANNELS_MAX);
	dma_cap_set(DMA_MEMCPY, engine.cap_mask);
	if (!shared)
		dma_cap_set(DMA_PRIVATE, engine.cap_mask);
	engine.dev = &p->dev;
	engine.copy_align = align;
	engine.device_alloc_chan_resources = soft_alloc;
	engine.device_free_chan_resources = soft_free;
	engine.device_prep_dma_memcpy = soft_prep;
	engine.device_issue_pending = soft_issue;
	engine.device_tx_status = soft_status;
	if (!no_terminate)
		engine.device_terminate_all = soft_terminate;
	engine.device_synchronize = soft_synchronize;
	INIT_LIST_HEAD(&engine.channels);
	rc = start_threads();
	if (!rc)
		rc = dma_async_device_register(&engine);
	if (rc)
		stop_threads();
	return rc;
}

static struct platform_driver soft_driver = { .driver = { .name = "softdma" } };

static int __init soft_init(void)
{
	return PTR_ERR_OR_ZERO(platform_create_bundle(&soft_driver, soft_probe, NULL, 0, NULL, 0));
}

static void __exit soft_exit(void)
{
	dma_async_device_unregister(&engine);
	stop_threads();
	platform_device_unregister(platform);
	platform_driver_unregister(&soft_driver);
}

module_init(soft_init);
module_exit(soft_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Software dmaengine provider for tests");
