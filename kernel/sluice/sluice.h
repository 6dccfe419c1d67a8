/* SPDX-License-Identifier: GPL-2.0 */
/*
 * sluice.ko: offers DMA channels to Sluice in user space. include/uapi/sluice_kmod.h is the
 * interface.
 *
 *   main.c     the device, its calls, counters
 *   context.c  a context: one open file, bound to an address space and a channel; its jobs
 *   region.c   pinned ranges of a context
 *   channel.c  channels of dmaengine; the feeder, a kthread a channel
 *
 *   ENTER -> job (a slot) + two regions -> queue of the context -> feeder cuts items of at most
 *   pages_per_item contiguous pages, `depth` of them with the device -> callback wakes the feeder
 *   -> last item of a job: record written, regions given back to the cache
 *
 * Providers differ in what prep, submit and callbacks may do, so only the feeder calls them: prep
 * may sleep there, and a callback does nothing but mark its item.
 *
 * Locks: context->enter (mutex: calls of user space) > mmap_lock > channel->lock > context->lock
 * (spinlocks; the MMU notifier takes the last one only).
 */
#ifndef _SLUICE_H
#define _SLUICE_H

#include <linux/atomic.h>
#include <linux/dmaengine.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "../include/uapi/sluice_kmod.h"

#define SLUICE_MAX_BYTES ((u64)4 << 20) /* of one copy */
#define SLUICE_DEPTH_MAX 32

/* ---- counters ----------------------------------------------------------------------------- */

struct sluice_counters {
	atomic64_t pins, unpins, regions, hits, stale, evicted, enters, copies, cancelled;
	atomic64_t descriptors, callbacks, dma_bytes, cpu_bytes, contexts;
};
extern struct sluice_counters sluice_counters;
#define sluice_count(name, n) atomic64_add(n, &sluice_counters.name)

/* ---- region.c ----------------------------------------------------------------------------- */

/* A range whose pages are pinned. Owner: its context. */
struct sluice_region {
	struct mmu_interval_notifier notifier;
	struct list_head list;  /* of the context, most recently used first; under its lock */
	struct sluice_context *context;
	unsigned long start;    /* page aligned */
	unsigned long count;    /* pages */
	unsigned int refs;      /* jobs; under the context's lock */
	bool writable, stale;   /* stale: the mapping has changed */
	struct page **pages;
};

/*
 * Finds or pins the pages of a range, and takes a reference.
 * Returns: the region or an ERR_PTR. Context: process that owns the context, under `enter`; sleeps.
 */
struct sluice_region *sluice_region_get(struct sluice_context *c, u64 address, u64 bytes,
					bool writable);
/* Gives a reference back; the pages stay pinned if the mapping is unchanged. Context: any thread. */
void sluice_region_put(struct sluice_region *r);
/* Unpins regions without references that overlap; those in use become stale. Context: sleeps. */
void sluice_region_drop(struct sluice_context *c, u64 address, u64 bytes);
/* Work: unpins stale regions without references. */
void sluice_region_reap(struct work_struct *work);
/* Unpins everything. Context: no job is left; sleeps. */
void sluice_region_fini(struct sluice_context *c);

/* ---- context.c ---------------------------------------------------------------------------- */

/* One accepted entry. Fields: the feeder's while it is listed; `cancelled` under channel->lock. */
struct sluice_job {
	struct list_head list;  /* of context->queue until its last item is with the device */
	struct sluice_context *context;
	struct sluice_region *src, *dst;
	u64 src_address, dst_address, bytes, cookie;
	u64 next;               /* bytes that items were made for */
	unsigned int items;     /* with the device */
	int result;
	bool in_use, cancelled;
};

struct sluice_context {
	struct mm_struct *mm;   /* of the opener; counted by mmgrab */
	struct mutex enter;
	spinlock_t lock;        /* regions */
	struct list_head regions;
	unsigned int region_count;
	unsigned long pages;    /* pinned */
	bool closing;           /* nobody queues `reap` any more; under the lock */
	bool retired;           /* under `enter` */
	struct work_struct reap, fini;
	unsigned int channels;  /* that ATTACH may name */
	struct sluice_channel *channel; /* NULL before ATTACH */
	struct list_head list;  /* of channel->contexts, while queue is not empty */
	struct list_head queue; /* jobs to be fed; under channel->lock */
	unsigned int busy;      /* jobs in use; under channel->lock */
	wait_queue_head_t idle; /* busy is 0 */
	struct sluice_record *records; /* a page that user space maps */
	struct sluice_job jobs[SLUICE_SLOTS];
};

struct sluice_context *sluice_context_new(void);
int sluice_context_attach(struct sluice_context *c, struct sluice_attach *a);
/* Accepts entries in order. Returns: 0, or -errno of the first that is refused. */
int sluice_context_enter(struct sluice_context *c, struct sluice_enter *e);
/* Cancels what the device has not begun, of jobs with cookies in [from, from + bytes). */
void sluice_context_cancel(struct sluice_context *c, u64 from, u64 bytes);
/* Returns: 0, or -ERESTARTSYS when the process is being killed. */
int sluice_context_retire(struct sluice_context *c);
/* Ends the context when its last job has ended; does not wait for it. */
void sluice_context_close(struct sluice_context *c);
/* Waits for the end of all closed contexts. Context: module exit. */
void sluice_context_exit(void);
int sluice_context_init(void);

/* ---- channel.c ---------------------------------------------------------------------------- */

enum sluice_item_state { ITEM_FREE, ITEM_SUBMITTED, ITEM_ENDED };

/* One descriptor of the device. Owner: the feeder; the callback stores `failed` and `state`. */
struct sluice_item {
	struct sluice_channel *channel;
	struct sluice_job *job;
	dma_addr_t src, dst;
	size_t bytes;
	bool failed;
	int state;
};

struct sluice_channel {
	struct dma_chan *dma;
	struct task_struct *feeder;
	spinlock_t lock;
	struct list_head contexts; /* with queued jobs, in turn; under the lock */
	atomic_t kick;             /* something has changed since the feeder looked */
	size_t item_bytes;         /* most bytes of an item */
	unsigned int in_flight;    /* the feeder's */
	unsigned long progress;    /* jiffies of the last end; the feeder's */
	bool is_stuck_told;
	atomic_t retiring;         /* contexts that wait: a device that hangs is to be stopped */
	struct sluice_item items[SLUICE_DEPTH_MAX];
};

/*
 * Takes channels of dmaengine for the first user; each get needs a put, the last of which gives
 * them back. Returns: their number; 0: there is none. Context: sleeps.
 */
unsigned int sluice_channels_get(void);
void sluice_channels_put(void);
/* Context: between get and put; index below their number. */
struct sluice_channel *sluice_channel(unsigned int index);
int sluice_channel_node(const struct sluice_channel *ch);
void sluice_channel_describe(const struct sluice_channel *ch, struct sluice_attach *a);
void sluice_channel_driver(const struct sluice_channel *ch, char *out, size_t cap);
void sluice_channel_kick(struct sluice_channel *ch);

/* context.c, for the feeder: the job's last item has ended, or none was made. */
void sluice_job_end(struct sluice_job *job);

#endif
