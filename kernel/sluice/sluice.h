/* SPDX-License-Identifier: GPL-2.0 */
/*
 * sluice.ko: offers DMA channels to Sluice in user space. include/uapi/sluice_kmod.h is the
 * interface.
 *
 *   main.c     the device, its calls, counters
 *   context.c  a context: one open file, bound to an address space and a channel; its jobs
 *   region.c   pinned ranges of a context
 *   channel.c  channels of dmaengine; the feeder, a kthread a channel
 *   onload.c   kernel threads that copy where there is no DMA channel
 *   group.c    groups of ranks, and the workers that execute their schedules (run.h)
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
	atomic64_t descriptors, callbacks, dma_bytes, cpu_bytes, contexts, runs, messages;
	atomic64_t onload_bytes;
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
	bool cancelled;
};

struct sluice_context {
	struct mm_struct *mm;   /* of the opener; counted by mmgrab */
	struct mutex enter;
	spinlock_t lock;        /* regions, slots */
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
	u64 busy;               /* slots in use; under the lock */
	wait_queue_head_t idle; /* busy is 0 */
	struct run_group *group; /* NULL before JOIN */
	u32 rank;
	struct run *runs[SLUICE_SLOTS]; /* under the lock */
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

/* A range within one page or within pages that follow each other. */
struct sluice_span {
	struct page *page;
	size_t offset, bytes;
};

/*
 * One descriptor of the device, or one piece of work of a pool. Owner: the feeder, but between
 * submission and end; sluice_item_ended() stores `failed` and `state`.
 */
struct sluice_item {
	struct list_head list;  /* of a deque (onload.c) */
	struct sluice_channel *channel;
	struct sluice_job *job;
	struct sluice_span from, to;
	dma_addr_t src, dst;    /* DMA only */
	size_t bytes;
	bool failed;
	int state;
};

struct sluice_channel {
	struct dma_chan *dma;      /* NULL: `pool` copies */
	struct sluice_pool *pool;
	unsigned int depth;        /* most items that the device or pool holds */
	struct task_struct *feeder;
	spinlock_t lock;
	struct list_head contexts; /* with queued jobs, in turn; under the lock */
	atomic_t enders;           /* threads and interrupts in sluice_item_ended() */
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
/* The device or a worker has ended an item. Context: any, also interrupts. */
void sluice_item_ended(struct sluice_item *item, bool failed);

/* ---- onload.c ----------------------------------------------------------------------------- */

/* Starts the workers of all nodes. Returns: the number of pools. Context: sleeps. */
unsigned int sluice_onload_start(void);
/* Context: no item is left; sleeps. */
void sluice_onload_stop(void);
struct sluice_pool *sluice_onload_pool(unsigned int index);
int sluice_onload_node(const struct sluice_pool *p);
unsigned int sluice_onload_workers(const struct sluice_pool *p);
void sluice_onload_submit(struct sluice_pool *p, struct sluice_item *item);

/* ---- group.c; calls of user space, under context->enter ------------------------------------ */

/* Returns: a descriptor, or -errno. */
int sluice_group_create(const struct sluice_group *arg);
int sluice_group_join(struct sluice_context *c, const struct sluice_join *arg);
int sluice_run_start(struct sluice_context *c, const struct sluice_run *arg);
/* As sluice_context_cancel(). The runs end soon afterwards. */
void sluice_run_cancel(struct sluice_context *c, u64 from, u64 bytes);
/* The context has no run any more. */
void sluice_group_leave(struct sluice_context *c);
int sluice_group_init(void);
/* Context: all contexts have ended. */
void sluice_group_exit(void);

/* context.c, for the feeder: the job's last item has ended, or none was made. */
void sluice_job_end(struct sluice_job *job);
/* Takes a slot. Returns: false: it is in use. */
bool sluice_slot_claim(struct sluice_context *c, unsigned int slot);
/* Writes the record of a slot and gives it back. The context may be gone afterwards. */
void sluice_slot_end(struct sluice_context *c, unsigned int slot, int result);

#endif
