/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fault: wraps another engine, sw if none is named, and injects failures. Each channel has a thread
 * that takes the copies one by one, hands them to a channel of the inner engine, which it polls,
 * and decides when and how each one ends.
 */
#include <errno.h>
#include <string.h>

#include "engine/fault/settings.h"
#include "engine/sw/sw.h" /* for its queue */

enum { FAULT_CHANNELS = 16, DRAIN_NS = 50000, POLL_NS = 20000 };
#define FAULT_SLOTS ((uint64_t)0xf) /* a shallow engine: full after four copies */

struct fault_chan {
	struct engine_chan base;
	struct engine_chan *inner;
	bool is_polled; /* the inner engine */
	struct fault_settings settings;
	struct sw_queue queue;
	struct engine_thread thread;
	_Atomic uint32_t wakes; /* futex; flush, retire and close add 1 */
	/* copies claimed whose done() has neither returned nor retired the channel */
	_Atomic uint32_t running;
	_Atomic bool stopping;
	bool in_use; /* under the lock */
	/* used by the thread only */
	uint64_t claimed;   /* copies taken so far */
	uint64_t free_ns; /* the injected bandwidth is used up until then */
	/* The copy inside the inner engine; ended: 1 when it has ended. */
	struct engine_copy part;
	_Atomic uint32_t ended;
	int result;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fault_chan chans[FAULT_CHANNELS];
/* The channel whose done() this thread executes. Initial-exec as in sw/pool.c. */
static _Thread_local struct fault_chan *inside __attribute__((tls_model("initial-exec")));

static void ring(struct fault_chan *ch)
{
	/* release: the caller's decision; partner: the acquire load in the thread */
	atomic_fetch_add_explicit(&ch->wakes, 1, memory_order_release);
	os_futex_wake(&ch->wakes, 1);
}

/* ---- the thread -------------------------------------------------------------------------- */

static bool is_closed(struct fault_chan *ch)
{
	return atomic_load_explicit(&ch->queue.free, memory_order_acquire) & SW_QUEUE_CLOSED;
}

/* Returns: 0, or -ECANCELED when the channel is retired first. */
static int wait_until(struct fault_chan *ch, uint64_t ns)
{
	for (;;) {
		uint32_t known = atomic_load_explicit(&ch->wakes, memory_order_acquire);
		uint64_t now = os_now_ns();

		if (is_closed(ch))
			return -ECANCELED;
		if (now >= ns)
			return 0;
		os_futex_wait(&ch->wakes, known, ns == OS_FOR_EVER ? ns : ns - now);
	}
}

static void part_done(struct engine_copy *c, int result)
{
	struct fault_chan *ch = c->arg;

	ch->result = result;
	/* release: the result; partner: copy_part */
	atomic_store_explicit(&ch->ended, 1, memory_order_release);
	os_futex_wake(&ch->ended, 1);
}

static int copy_part(struct fault_chan *ch, const struct engine_copy *c, size_t bytes)
{
	int rc;

	if (!bytes)
		return 0;
	ch->part =
		(struct engine_copy){ c->dst, c->src, bytes, part_done, ch, NULL, c->total_bytes };
	atomic_store_explicit(&ch->ended, 0, memory_order_relaxed);
	rc = engine_post(ch->inner, &ch->part);
	if (rc)
		return rc;
	engine_flush(ch->inner);
	while (!atomic_load_explicit(&ch->ended, memory_order_acquire))
		if (!ch->is_polled || !engine_poll(ch->inner))
			os_futex_wait(&ch->ended, 0, ch->is_polled ? POLL_NS : OS_FOR_EVER);
	return ch->result;
}

/* Executes one copy with the failures that the settings ask for. */
static int treat(struct fault_chan *ch, const struct engine_copy *c)
{
	const struct fault_settings *s = &ch->settings;
	uint64_t begin = base_max_u64(os_now_ns(), ch->free_ns);
	uint64_t nth = ++ch->claimed;
	bool halve = nth == s->short_nth;
	int rc;

	if (s->hang_nth && nth >= s->hang_nth)
		return wait_until(ch, OS_FOR_EVER);
	if (s->delay_us) {
		begin += s->delay_us * 1000;
		if (wait_until(ch, begin))
			return -ECANCELED;
	}
	if (nth == s->error_nth)
		return -EIO;
	rc = copy_part(ch, c, halve ? c->bytes / 2 : c->bytes);
	if (s->rate_bytes) {
		ch->free_ns = begin + (uint64_t)((double)c->bytes * 1e9 / (double)s->rate_bytes);
		if (wait_until(ch, ch->free_ns))
			return -ECANCELED;
	}
	return rc ? rc : halve ? -EIO : 0;
}

static void exit_done(struct fault_chan *ch)
{
	inside = NULL;
	/* release: the work of done(); partner: sw_queue_cancel */
	atomic_fetch_sub_explicit(&ch->running, 1, memory_order_release);
}

static void serve(struct fault_chan *ch, struct engine_copy *c, int slot)
{
	int result;

	atomic_fetch_add_explicit(&ch->running, 1, memory_order_relaxed);
	result = treat(ch, c);
	sw_queue_release(&ch->queue, slot);
	inside = ch;
	c->done(c, result);
	if (inside)
		exit_done(ch);
}

static void thread_main(void *arg)
{
	struct fault_chan *ch = arg;

	for (;;) {
		uint32_t known = atomic_load_explicit(&ch->wakes, memory_order_acquire);
		struct engine_copy *c;
		int slot;

		c = sw_queue_claim(&ch->queue, &slot);
		if (c)
			serve(ch, c, slot);
		else if (atomic_load_explicit(&ch->stopping, memory_order_relaxed))
			return;
		else
			os_futex_wait(&ch->wakes, known, OS_FOR_EVER);
	}
}

/* ---- channels ---------------------------------------------------------------------------- */

/* Returns: the inner engine, or NULL with the reason. */
static const struct engine_ops *settings_now(struct fault_settings *out, char *reason, size_t cap)
{
	const struct engine_ops *inner;

	if (fault_settings_parse(base_opt.engine_fault, out, reason, cap))
		return NULL;
	inner = engine_find(out->inner[0] ? out->inner : engine_sw.name);
	if (!inner || inner == &engine_fault) {
		snprintf(reason, cap,
			 "engine_fault: inner=%s is wrong: it takes the name of an engine",
			 out->inner);
		return NULL;
	}
	return inner;
}

static int fault_probe(char *reason, size_t cap)
{
	struct fault_settings s;
	const struct engine_ops *inner = settings_now(&s, reason, cap);

	return inner ? inner->probe(reason, cap) : -EINVAL;
}

static int fault_chan_count(int node)
{
	struct fault_settings s;
	char reason[256];
	const struct engine_ops *inner = settings_now(&s, reason, sizeof(reason));

	return inner ? inner->chan_count(node) : 0;
}

static int start(struct fault_chan *ch)
{
	int rc;

	ch->claimed = ch->free_ns = 0;
	atomic_store_explicit(&ch->stopping, false, memory_order_relaxed);
	atomic_store_explicit(&ch->running, 0, memory_order_relaxed);
	sw_queue_init(&ch->queue, FAULT_SLOTS);
	/* at normal priority, as it keeps time */
	rc = engine_thread_create("sluice-fault", NULL, thread_main, ch, &ch->thread);
	if (rc)
		sw_queue_close(&ch->queue);
	return rc;
}

static int open_locked(int node, int index, struct engine_chan **out)
{
	const struct engine_ops *inner;
	struct fault_chan *ch = NULL;
	struct engine_caps caps;
	char reason[256];
	int rc;

	for (int i = 0; i < FAULT_CHANNELS && !ch; i++)
		ch = chans[i].in_use ? NULL : &chans[i];
	if (!ch)
		return -ENOSPC;
	inner = settings_now(&ch->settings, reason, sizeof(reason));
	rc = inner ? inner->chan_open(node, index, &ch->inner) : -EINVAL;
	if (rc)
		return rc;
	inner->caps(ch->inner, &caps);
	ch->is_polled = caps.flags & ENGINE_POLLED;
	ch->base.ops = &engine_fault;
	rc = start(ch);
	if (rc) {
		inner->chan_close(ch->inner);
		return rc;
	}
	ch->in_use = true;
	*out = &ch->base;
	return 0;
}

static int fault_chan_open(int node, int index, struct engine_chan **out)
{
	int rc;

	pthread_mutex_lock(&lock);
	rc = open_locked(node, index, out);
	pthread_mutex_unlock(&lock);
	return rc;
}

static void fault_retire(struct engine_chan *base)
{
	struct fault_chan *ch = (struct fault_chan *)base;
	_Atomic uint32_t nobody_rings = 0;

	if (inside == ch)
		exit_done(ch);
	sw_queue_close(&ch->queue);
	ring(ch);
	while (!sw_queue_cancel(&ch->queue, FAULT_SLOTS, &ch->running))
		if (!engine_poll(ch->inner))
			os_futex_wait(&nobody_rings, 0, DRAIN_NS);
}

/* Gives back copies that the thread has not taken. */
static void fault_cancel(struct engine_chan *base, const void *from, size_t bytes)
{
	struct fault_chan *ch = (struct fault_chan *)base;
	struct engine_copy *c;
	int slot;

	while ((c = sw_queue_claim_in(&ch->queue, from, bytes, &slot))) {
		struct fault_chan *outer = inside;

		atomic_fetch_add_explicit(&ch->running, 1, memory_order_relaxed);
		sw_queue_release(&ch->queue, slot);
		inside = ch;
		c->done(c, -ECANCELED);
		if (inside)
			exit_done(ch);
		inside = outer;
	}
	ring(ch);
}

static void fault_chan_close(struct engine_chan *base)
{
	struct fault_chan *ch = (struct fault_chan *)base;

	fault_retire(base);
	atomic_store_explicit(&ch->stopping, true, memory_order_relaxed);
	ring(ch);
	pthread_join(ch->thread.handle, NULL);
	ch->inner->ops->chan_close(ch->inner);
	pthread_mutex_lock(&lock);
	ch->in_use = false;
	pthread_mutex_unlock(&lock);
}

static void fault_caps(const struct engine_chan *base, struct engine_caps *out)
{
	const struct fault_chan *ch = (const struct fault_chan *)base;

	ch->inner->ops->caps(ch->inner, out);
	out->flags &= ENGINE_USES_CPU; /* the thread polls */
	out->depth = (uint32_t)__builtin_popcountll(FAULT_SLOTS);
}

static int fault_memory(struct engine_chan *base, void *at, size_t bytes, uint32_t id)
{
	return engine_memory(((struct fault_chan *)base)->inner, at, bytes, id);
}

static int fault_post(struct engine_chan *base, struct engine_copy *c)
{
	return sw_queue_post(&((struct fault_chan *)base)->queue, c);
}

static void fault_flush(struct engine_chan *base) { ring((struct fault_chan *)base); }

/* Helps the inner engine. Returns 0, because the end of an inner copy is no end of a copy here. */
static int fault_poll(struct engine_chan *base)
{
	engine_poll(((struct fault_chan *)base)->inner);
	return 0;
}

static void fault_after_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	for (int i = 0; i < FAULT_CHANNELS; i++) {
		sw_queue_init(&chans[i].queue, SW_QUEUE_CLOSED);
		chans[i].in_use = false;
	}
}

const struct engine_ops engine_fault = {
	.name = "fault",
	.help = "another engine, broken as engine_fault says; for tests",
	.is_by_name = true,
	.probe = fault_probe,
	.chan_count = fault_chan_count,
	.chan_open = fault_chan_open,
	.chan_close = fault_chan_close,
	.caps = fault_caps,
	.memory = fault_memory,
	.post = fault_post,
	.flush = fault_flush,
	.poll = fault_poll,
	.cancel = fault_cancel,
	.retire = fault_retire,
	.after_fork_child = fault_after_fork_child,
};
