/* SPDX-License-Identifier: BSD-3-Clause */
/* The channels, and the ops table of the engine. */
#include <errno.h>
#include <string.h>

#include "engine/sw/sw.h"

/* pause between two checks while a channel drains: rare, and no wake-up comes */
enum { DRAIN_NS = 50000 };

/* Serialises opening and closing. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t bit_of(const struct sw_chan *ch) { return (uint64_t)1 << (ch - sw_chans); }

static int sw_probe(char *reason, size_t cap)
{
	static _Atomic bool tried;
	int rc;

	if (!engine_workers()) {
		snprintf(reason, cap, "no unused CPU for a worker");
		return -ENODEV;
	}
	if (atomic_load_explicit(&tried, memory_order_relaxed))
		return 0;
	rc = engine_thread_probe(reason, cap);
	if (!rc)
		atomic_store_explicit(&tried, true, memory_order_relaxed);
	return rc;
}

/* Any worker takes from any channel, so one process has as many channels as workers. */
static int sw_chan_count(int node)
{
	struct os_cpumask cpus;

	return engine_worker_cpus(node, &cpus) ? engine_workers() : 0;
}

static int open_locked(int node, int index, struct engine_chan **out)
{
	uint64_t open = atomic_load_explicit(&sw_open, memory_order_relaxed);
	struct sw_chan *ch;
	int rc;

	if (!~open)
		return -ENOSPC;
	if (!open) {
		rc = sw_pool_start(node, engine_workers());
		if (rc)
			return rc;
	}
	ch = &sw_chans[__builtin_ctzll(~open)];
	ch->base.ops = &engine_sw;
	ch->home = (uint32_t)(index % sw_pool_size());
	atomic_store_explicit(&ch->running, 0, memory_order_relaxed);
	sw_queue_init(&ch->queue, SW_QUEUE_SLOTS);
	/* release: the channel; partner: work_once */
	atomic_store_explicit(&sw_open, open | bit_of(ch), memory_order_release);
	*out = &ch->base;
	return 0;
}

static int sw_chan_open(int node, int index, struct engine_chan **out)
{
	int rc;

	if (index < 0 || index >= sw_chan_count(node))
		return -EINVAL;
	pthread_mutex_lock(&lock);
	rc = open_locked(node, index, out);
	pthread_mutex_unlock(&lock);
	return rc;
}

/* Waits until no copy of the channel runs and every done() but the caller's own has returned. */
static void drain(struct sw_chan *ch)
{
	_Atomic uint32_t nobody_rings = 0;

	sw_queue_close(&ch->queue);
	while (!sw_queue_cancel(&ch->queue, SW_QUEUE_SLOTS, &ch->running))
		if (!sw_pool_help(ch)) /* a worker may be displaced in the middle of a copy */
			os_futex_wait(&nobody_rings, 0, DRAIN_NS);
}

static void sw_retire(struct engine_chan *base)
{
	struct sw_chan *ch = (struct sw_chan *)base;

	sw_pool_exit(ch);
	drain(ch);
}

static void sw_cancel(struct engine_chan *base, const void *from, size_t bytes)
{
	struct sw_chan *ch = (struct sw_chan *)base;

	sw_pool_cancel(ch, from, bytes);
	sw_pool_flush(ch);
}

static void sw_chan_close(struct engine_chan *base)
{
	struct sw_chan *ch = (struct sw_chan *)base;
	uint64_t open;

	drain(ch);
	pthread_mutex_lock(&lock);
	open = atomic_load_explicit(&sw_open, memory_order_relaxed) & ~bit_of(ch);
	atomic_store_explicit(&sw_open, open, memory_order_relaxed);
	if (!open)
		sw_pool_stop();
	pthread_mutex_unlock(&lock);
}

static void sw_caps(const struct engine_chan *base, struct engine_caps *out)
{
	*out = (struct engine_caps){
		.flags = ENGINE_USES_CPU,
		.depth = SW_DEPTH,
		.max_copy_bytes = SIZE_MAX,
		.align_bytes = 1,
	};
}

static int sw_post(struct engine_chan *base, struct engine_copy *c)
{
	return sw_queue_post(&((struct sw_chan *)base)->queue, c);
}

static void sw_flush(struct engine_chan *base) { sw_pool_flush((struct sw_chan *)base); }

/* Copies end without polling; a thread that must wait executes one itself. */
static int sw_poll(struct engine_chan *base) { return sw_pool_help((struct sw_chan *)base); }

static void sw_after_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	atomic_store_explicit(&sw_open, 0, memory_order_relaxed);
	/* posts to a channel from before the fork fail */
	for (int i = 0; i < SW_CHANNELS; i++)
		sw_queue_init(&sw_chans[i].queue, SW_QUEUE_CLOSED);
	sw_pool_forget();
}

const struct engine_ops engine_sw = {
	.name = "sw",
	.help = "worker threads at idle priority on unused CPUs",
	.probe = sw_probe,
	.chan_count = sw_chan_count,
	.chan_open = sw_chan_open,
	.chan_close = sw_chan_close,
	.caps = sw_caps,
	.post = sw_post,
	.flush = sw_flush,
	.poll = sw_poll,
	.cancel = sw_cancel,
	.retire = sw_retire,
	.after_fork_child = sw_after_fork_child,
};
