/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine_late.h"

#include <errno.h>
#include <string.h>

#include "engine/sw/sw.h" /* for its queue */

enum { CHANNELS = 16, DRAIN_NS = 50000 };

struct late_chan {
	struct engine_chan base;
	bool in_use; /* under the lock */
	struct sw_queue queue;
	struct engine_copy *_Atomic copies[SW_DEPTH]; /* of submitted slots */
	_Atomic uint64_t submitted, ended; /* slots with the device; slots to reap */
	_Atomic uint32_t wakes;            /* futex of the device */
	_Atomic uint32_t running;          /* calls of done() */
	_Atomic bool stopping;
	struct engine_thread device;
};

size_t engine_late_piece_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct late_chan chans[CHANNELS];
static _Atomic uint64_t copied;
static _Atomic unsigned submissions;
static _Thread_local struct late_chan *inside; /* whose done() this thread executes */

uint64_t engine_late_copied(void) { return atomic_load(&copied); }
unsigned engine_late_submissions(void) { return atomic_load(&submissions); }

/* ---- the device -------------------------------------------------------------------------- */

static void device_copy(struct late_chan *ch, int slot)
{
	struct engine_copy *c = atomic_load(&ch->copies[slot]);

	memcpy(c->dst, c->src, c->bytes);
	atomic_fetch_add(&copied, c->bytes);
	atomic_fetch_or(&ch->ended, (uint64_t)1 << slot);
}

static void device_main(void *arg)
{
	struct late_chan *ch = arg;

	for (;;) {
		uint32_t known = atomic_load(&ch->wakes);
		/* first, as late_poll() clears it last: what is reaped meanwhile is not new */
		uint64_t ended = atomic_load(&ch->ended);
		uint64_t work = atomic_load(&ch->submitted) & ~ended;

		if (work) {
			device_copy(ch, 63 - __builtin_clzll(work)); /* out of order */
		} else if (atomic_load(&ch->stopping)) {
			return;
		} else {
			os_futex_wait(&ch->wakes, known, OS_FOR_EVER);
		}
	}
}

static void wake(struct late_chan *ch)
{
	atomic_fetch_add(&ch->wakes, 1);
	os_futex_wake(&ch->wakes, 1);
}

/* ---- channels ---------------------------------------------------------------------------- */

static int late_probe(char *reason, size_t cap) { return engine_thread_probe(reason, cap); }
static int late_chan_count(int node) { return node <= 0 ? 4 : 0; }

static int late_chan_open(int node, int index, struct engine_chan **out)
{
	struct late_chan *ch = NULL;
	int rc;

	(void)node, (void)index;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < CHANNELS && !ch; i++)
		ch = chans[i].in_use ? NULL : &chans[i];
	rc = ch ? 0 : -ENOSPC;
	if (ch) {
		memset(ch, 0, sizeof(*ch));
		ch->base.ops = &engine_late;
		sw_queue_init(&ch->queue, SW_QUEUE_SLOTS);
		rc = engine_thread_create("sluice-late", NULL, device_main, ch, &ch->device);
		ch->in_use = !rc;
		*out = rc ? NULL : &ch->base;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static int late_post(struct engine_chan *base, struct engine_copy *c)
{
	return sw_queue_post(&((struct late_chan *)base)->queue, c);
}

static void late_flush(struct engine_chan *base)
{
	struct late_chan *ch = (struct late_chan *)base;
	struct engine_copy *c;
	uint64_t slots = 0;
	int slot;

	while ((c = sw_queue_claim(&ch->queue, &slot))) {
		atomic_store(&ch->copies[slot], c);
		slots |= (uint64_t)1 << slot;
	}
	if (!slots)
		return;
	atomic_fetch_add(&submissions, 1);
	atomic_fetch_or(&ch->submitted, slots);
	wake(ch);
}

static void exit_done(struct late_chan *ch)
{
	inside = NULL;
	atomic_fetch_sub(&ch->running, 1);
}

static int late_poll(struct engine_chan *base)
{
	struct late_chan *ch = (struct late_chan *)base;
	struct late_chan *outer = inside;
	int reaped = 0;

	for (uint64_t ended; (ended = atomic_load(&ch->ended));) {
		uint64_t bit = ended & -ended;
		int slot = __builtin_ctzll(ended);
		struct engine_copy *c;

		/* `submitted` first, so that the device does not copy it */
		atomic_fetch_add(&ch->running, 1);
		c = atomic_load(&ch->copies[slot]);
		if (!(atomic_fetch_and(&ch->submitted, ~bit) & bit)) {
			atomic_fetch_sub(&ch->running, 1); /* another thread reaps it */
			continue;
		}
		atomic_fetch_and(&ch->ended, ~bit);
		sw_queue_release(&ch->queue, slot);
		inside = ch;
		c->done(c, 0);
		if (inside)
			exit_done(ch);
		inside = outer;
		reaped++;
	}
	return reaped;
}

static void late_retire(struct engine_chan *base)
{
	struct late_chan *ch = (struct late_chan *)base;
	_Atomic uint32_t nobody = 0;

	if (inside == ch)
		exit_done(ch);
	sw_queue_close(&ch->queue);
	while (!sw_queue_cancel(&ch->queue, SW_QUEUE_SLOTS, &ch->running))
		if (!late_poll(base))
			os_futex_wait(&nobody, 0, DRAIN_NS);
}

static void late_chan_close(struct engine_chan *base)
{
	struct late_chan *ch = (struct late_chan *)base;

	late_retire(base);
	atomic_store(&ch->stopping, true);
	wake(ch);
	pthread_join(ch->device.handle, NULL);
	pthread_mutex_lock(&lock);
	ch->in_use = false;
	pthread_mutex_unlock(&lock);
}

static void late_caps(const struct engine_chan *base, struct engine_caps *out)
{
	(void)base;
	*out = (struct engine_caps){ .flags = ENGINE_POLLED | ENGINE_AUTONOMOUS,
				     .depth = SW_DEPTH,
				     .piece_bytes = engine_late_piece_bytes,
				     .max_copy_bytes = SIZE_MAX,
				     .align_bytes = 1 };
}

static void late_after_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	for (int i = 0; i < CHANNELS; i++) {
		sw_queue_init(&chans[i].queue, SW_QUEUE_CLOSED);
		chans[i].in_use = false;
	}
}

const struct engine_ops engine_late = {
	.name = "late",
	.help = "a device that goes on alone",
	.probe = late_probe,
	.chan_count = late_chan_count,
	.chan_open = late_chan_open,
	.chan_close = late_chan_close,
	.caps = late_caps,
	.post = late_post,
	.flush = late_flush,
	.poll = late_poll,
	.retire = late_retire,
	.after_fork_child = late_after_fork_child,
};

void engine_late_add(void) { engine_of_test = &engine_late; }
