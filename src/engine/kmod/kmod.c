/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels of the kernel module. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "engine/kmod/kmod.h"

enum { CHANNELS = 8 };

static struct kmod_chan {
	struct engine_slots slots; /* first */
	struct kmod_device device;
} chans[CHANNELS];

/* ---- the device -------------------------------------------------------------------------- */

static struct kmod_device *device_of(struct engine_slots *s)
{
	return &((struct kmod_chan *)s)->device;
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
		.cookie = (uintptr_t)c,
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

	/* acquire: the result and the copied bytes; partner: the module */
	if (!atomic_load_explicit(state_of(s, slot), memory_order_acquire))
		return SLOT_NOT_ENDED;
	result = device_of(s)->records[slot].result;
	return result <= 0 ? result : -EIO;
}

static void kmod_cancel(struct engine_slots *s, const void *from, size_t bytes)
{
	kmod_cancel_range(device_of(s), (uintptr_t)from, bytes);
}

static bool kmod_end(struct engine_slots *s) { return kmod_close(device_of(s)); }

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

static struct engine_slots *chan(int i) { return i < CHANNELS ? &chans[i].slots : NULL; }

static int kmod_start(struct engine_slots *s, int node, int index, char *reason, size_t cap)
{
	struct sluice_info info;
	int fd = kmod_open(&info, reason, cap), number = 0, rc;

	if (fd < 0)
		return fd;
	if (index < 0 || index >= find_near(&info, node, index, &number)) {
		close(fd);
		return -EINVAL;
	}
	rc = kmod_attach(device_of(s), fd, number, reason, cap);
	if (rc)
		kmod_fini(device_of(s));
	/* the module cuts long copies, and refills the device */
	engine_slots_init(s, SW_DEPTH, device_of(s)->max_bytes);
	return rc;
}

static void kmod_stop(struct engine_slots *s, bool in_child)
{
	if (in_child)
		device_of(s)->records = NULL;
	kmod_fini(device_of(s));
}

static const struct engine_device_ops device = {
	.engine = &engine_kmod,
	.chan = chan,
	.open = kmod_start,
	.fini = kmod_stop,
	.fill = kmod_fill,
	.submit = kmod_submit_slots,
	.is_ended = kmod_is_ended,
	.result = kmod_result,
	.cancel = kmod_cancel,
	.close = kmod_end,
};

static void kmod_caps(const struct engine_chan *ch, struct engine_caps *out)
{
	engine_slots_caps(ch, out);
	if (((const struct kmod_chan *)ch)->device.flags & SLUICE_CHANNEL_ONLOAD)
		out->flags |= ENGINE_USES_CPU;
}

static int kmod_chan_open(int node, int index, struct engine_chan **out)
{
	return engine_slots_open(&device, node, index, out);
}

static int kmod_probe(char *reason, size_t cap)
{
	int rc = engine_slots_probe(&device, reason, cap);

	if (rc == -ENOMEM) {
		size_t n = strlen(reason);

		snprintf(reason + n, cap - n, " (pinned pages count against ulimit -l)");
	}
	return rc;
}

static void kmod_after_fork_child(void) { engine_slots_after_fork_child(&device); }

const struct engine_ops engine_kmod = {
	.name = "kmod",
	.help = "DMA channels of the kernel, by its module sluice",
	.is_by_name = true,
	.probe = kmod_probe,
	.chan_count = kmod_chan_count,
	.chan_open = kmod_chan_open,
	.chan_close = engine_slots_close,
	.caps = kmod_caps,
	.post = engine_slots_post,
	.flush = engine_slots_flush,
	.poll = engine_slots_poll,
	.cancel = engine_slots_cancel,
	.retire = engine_slots_retire,
	.after_fork_child = kmod_after_fork_child,
};
