/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels of the kernel module. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "engine/kmod/kmod.h"

enum { CHANNELS = 8 };

struct kmod_chan {
	struct engine_chan base;
	struct kmod_device device;
	struct engine_slots slots;
	bool in_use; /* under the lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct kmod_chan chans[CHANNELS];

/* ---- the device -------------------------------------------------------------------------- */

static struct kmod_device *device_of(struct engine_slots *s)
{
	struct kmod_chan *ch = (struct kmod_chan *)((char *)s - offsetof(struct kmod_chan, slots));

	return &ch->device;
}

/* The module writes records as this process's atomic stores would. */
static _Atomic uint32_t *state_of(struct engine_slots *s, int slot)
{
	return (_Atomic uint32_t *)&device_of(s)->records[slot].state;
}

static void kmod_fill(struct engine_slots *s, int slot, const struct engine_copy *c)
{
	device_of(s)->entries[slot] = (struct sluice_entry){
		.slot = (uint32_t)slot,
		.op = SLUICE_OP_COPY,
		.src = (uintptr_t)c->src,
		.dst = (uintptr_t)c->dst,
		.bytes = c->bytes,
	};
	/* the system call orders it before the module's store */
	atomic_store_explicit(state_of(s, slot), 0, memory_order_release);
}

static int kmod_submit_slots(struct engine_slots *s, uint64_t slots, uint64_t *out_accepted)
{
	return kmod_submit(device_of(s), slots, out_accepted);
}

static bool kmod_is_ended(struct engine_slots *s, int slot)
{
	return atomic_load_explicit(state_of(s, slot), memory_order_relaxed);
}

static int kmod_result(struct engine_slots *s, int slot, const struct engine_copy *c)
{
	int32_t result;

	(void)c;
	/* acquire: the result and the copied bytes; partner: the module */
	if (!atomic_load_explicit(state_of(s, slot), memory_order_acquire))
		return SLOT_NOT_ENDED;
	result = device_of(s)->records[slot].result;
	return result <= 0 ? result : -EIO;
}

static bool kmod_end(struct engine_slots *s) { return kmod_close(device_of(s)); }

static const struct engine_device_ops device_ops = {
	.name = "kmod",
	.fill = kmod_fill,
	.submit = kmod_submit_slots,
	.is_ended = kmod_is_ended,
	.result = kmod_result,
	.close = kmod_end,
};

/* ---- the functions of a channel ---------------------------------------------------------- */

static int kmod_post(struct engine_chan *base, struct engine_copy *c)
{
	struct kmod_chan *ch = (struct kmod_chan *)base;

	if (!c->bytes || c->bytes > ch->device.max_bytes)
		return -EINVAL;
	return engine_slots_post(&ch->slots, c);
}

static void kmod_flush(struct engine_chan *base)
{
	engine_slots_flush(&((struct kmod_chan *)base)->slots);
}

static int kmod_poll(struct engine_chan *base)
{
	return engine_slots_poll(&((struct kmod_chan *)base)->slots);
}

static void kmod_retire(struct engine_chan *base)
{
	engine_slots_retire(&((struct kmod_chan *)base)->slots);
}

static void kmod_caps(const struct engine_chan *base, struct engine_caps *out)
{
	const struct kmod_chan *ch = (const struct kmod_chan *)base;

	*out = (struct engine_caps){
		.flags = ENGINE_POLLED | ENGINE_AUTONOMOUS,
		.depth = SW_DEPTH,
		/* the module cuts, and refills the device */
		.piece_bytes = ch->device.max_bytes,
		.max_copy_bytes = ch->device.max_bytes,
		.align_bytes = 1,
	};
}

/* ---- opening ----------------------------------------------------------------------------- */

/* Finds the number of channel `index` of those near `node`. Returns: how many there are. */
static int find_near(const struct sluice_info *info, int node, int index, int *out)
{
	int near = 0;

	for (uint32_t i = 0; i < info->channels && i < SLUICE_CHANNELS_MAX; i++) {
		int at = info->node[i] < 0 || info->node[i] >= os_numa_node_count() ? 0
										    : info->node[i];

		if (node >= 0 && at != node)
			continue;
		if (near++ == index)
			*out = (int)i;
	}
	return near;
}

static int kmod_chan_count(int node)
{
	struct sluice_info info;
	char reason[200];
	int fd = kmod_open(&info, reason, sizeof(reason)), unused;

	if (fd < 0)
		return 0;
	close(fd);
	return find_near(&info, node, -1, &unused);
}

static int start(struct kmod_chan *ch, int fd, int number, char *reason, size_t cap)
{
	int rc = kmod_attach(&ch->device, fd, number, reason, cap);

	ch->base.ops = &engine_kmod;
	engine_slots_init(&ch->slots, &device_ops, SW_DEPTH);
	if (rc)
		kmod_fini(&ch->device);
	return rc;
}

static int open_channel(int node, int index, struct engine_chan **out, char *reason, size_t cap)
{
	struct kmod_chan *ch = NULL;
	struct sluice_info info;
	int fd = kmod_open(&info, reason, cap), number = 0, rc = -ENOSPC;

	if (fd < 0)
		return fd;
	if (index < 0 || index >= find_near(&info, node, index, &number)) {
		close(fd);
		return -EINVAL;
	}
	pthread_mutex_lock(&lock);
	for (int i = 0; i < CHANNELS && !ch; i++)
		ch = chans[i].in_use ? NULL : &chans[i];
	if (ch)
		rc = start(ch, fd, number, reason, cap);
	else
		close(fd);
	if (!rc) {
		ch->in_use = true;
		*out = &ch->base;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static int kmod_chan_open(int node, int index, struct engine_chan **out)
{
	char reason[200] = "";
	int rc = open_channel(node, index, out, reason, sizeof(reason));

	if (rc)
		base_log(BASE_LOG_INFO, "engine", "kmod: %s", reason);
	return rc;
}

static void kmod_chan_close(struct engine_chan *base)
{
	struct kmod_chan *ch = (struct kmod_chan *)base;

	kmod_retire(base);
	pthread_mutex_lock(&lock);
	kmod_fini(&ch->device);
	ch->in_use = false;
	pthread_mutex_unlock(&lock);
}

static int kmod_probe(char *reason, size_t cap)
{
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	struct engine_chan *ch;
	int rc;

	pthread_mutex_lock(&one_at_a_time);
	rc = open_channel(-1, 0, &ch, reason, cap);
	if (!rc) {
		rc = engine_slots_probe(ch, reason, cap);
		kmod_chan_close(ch);
	}
	pthread_mutex_unlock(&one_at_a_time);
	return rc;
}

/* The child's descriptor would keep the parent's close from ending its copies. */
static void kmod_after_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	for (int i = 0; i < CHANNELS; i++) {
		engine_slots_after_fork_child(&chans[i].slots);
		chans[i].device.records = NULL; /* they were not inherited */
		if (chans[i].in_use)
			kmod_fini(&chans[i].device);
		chans[i].in_use = false;
	}
}

const struct engine_ops engine_kmod = {
	.name = "kmod",
	.help = "DMA channels of the kernel, by its module sluice",
	.is_by_name = true,
	.probe = kmod_probe,
	.chan_count = kmod_chan_count,
	.chan_open = kmod_chan_open,
	.chan_close = kmod_chan_close,
	.caps = kmod_caps,
	.post = kmod_post,
	.flush = kmod_flush,
	.poll = kmod_poll,
	.retire = kmod_retire,
	.after_fork_child = kmod_after_fork_child,
};
