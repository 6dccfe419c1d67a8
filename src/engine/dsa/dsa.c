/* SPDX-License-Identifier: BSD-3-Clause */
/* Channels of DSA: an opened work queue each. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "engine/dsa/dsa.h"
#include "engine/slots.h"

enum {
	CHANNELS = 8,
	TRIES = 3, /* submissions of a copy that meets the same missing page */
	ANNOUNCED = 64,
};

static struct dsa_chan {
	struct engine_slots slots; /* first */
	struct dsa_portal portal;
	uint8_t tries[DSA_SLOTS];
	_Atomic uint32_t announced[ANNOUNCED]; /* regions whose pages were made present here */
} chans[CHANNELS];
_Atomic uint64_t dsa_partial_copies;

static struct dsa_chan *chan_of(struct engine_slots *s) { return (struct dsa_chan *)s; }

/* ---- the device -------------------------------------------------------------------------- */

static void fill_rest(struct dsa_chan *ch, int slot, const struct engine_copy *c, size_t done)
{
	uint64_t total = base_max_u64(c->total_bytes, c->bytes);
	/* as sw: the reader finds short transfers in the cache */
	bool to_cache = !os_copy_is_past_cache(2 * total);

	dsa_portal_fill(&ch->portal, slot,
			&(struct dsa_desc){
				.flags_and_opcode = (uint32_t)DSA_MEMMOVE << 24 | DSA_RECORD_VALID |
						    DSA_RECORD_ASKED |
						    (to_cache ? DSA_TO_CACHE : 0),
				.src = (uintptr_t)c->src + done,
				.dst = (uintptr_t)c->dst + done,
				.bytes = (uint32_t)(c->bytes - done),
			});
}

static void dsa_fill(struct engine_slots *s, int slot, const struct engine_copy *c)
{
	chan_of(s)->tries[slot] = 0;
	fill_rest(chan_of(s), slot, c, 0);
}

static int dsa_submit(struct engine_slots *s, uint64_t slots, uint64_t *out_accepted)
{
	return dsa_portal_submit(&chan_of(s)->portal, slots, out_accepted);
}

/* A page was not present. Returns: false when the copy has failed. */
static bool is_resumed(struct dsa_chan *ch, int slot, const struct engine_copy *c)
{
	const struct dsa_record *r = &ch->portal.memory->records[slot];
	struct dsa_desc *d = &ch->portal.memory->descs[slot];
	size_t at = d->src - (uintptr_t)c->src + r->bytes;

	atomic_fetch_add_explicit(&dsa_partial_copies, 1, memory_order_relaxed);
	if (r->bytes)
		ch->tries[slot] = 0;
	if (at >= c->bytes || ++ch->tries[slot] > TRIES)
		return false;
	os_populate((char *)(uintptr_t)c->src + at, c->bytes - at);
	os_populate((char *)c->dst + at, c->bytes - at);
	fill_rest(ch, slot, c, at);
	return true;
}

static bool dsa_is_ended(struct engine_slots *s, int slot)
{
	const struct dsa_record *r = &chan_of(s)->portal.memory->records[slot];

	return atomic_load_explicit(&r->status, memory_order_relaxed);
}

static int dsa_result(struct engine_slots *s, int slot, const struct engine_copy *c)
{
	struct dsa_chan *ch = chan_of(s);
	const struct dsa_record *r = &ch->portal.memory->records[slot];
	/* acquire: the copied bytes; partner: the device */
	uint8_t status = atomic_load_explicit(&r->status, memory_order_acquire) & DSA_STATUS_MASK;

	switch (status) {
	case 0:
		return SLOT_NOT_ENDED;
	case DSA_ENDED_WELL:
		return 0;
	case DSA_PAGE_FAULT:
		return is_resumed(ch, slot, c) ? SLOT_AGAIN : -EFAULT;
	}
	base_log(BASE_LOG_WARN, "engine", "dsa: a copy of %u bytes has status 0x%x",
		 ch->portal.memory->descs[slot].bytes, status);
	return -EIO;
}

static bool dsa_end(struct engine_slots *s)
{
	if (atomic_load_explicit(&s->submitted, memory_order_relaxed))
		base_log(BASE_LOG_WARN, "engine",
			 "process %d closes a DSA queue that has not ended its copies, and waits "
			 "for it",
			 (int)getpid());
	return dsa_portal_close(&chan_of(s)->portal);
}

static int dsa_memory(struct engine_chan *base, void *at, size_t bytes, uint32_t id)
{
	struct dsa_chan *ch = (struct dsa_chan *)base;
	_Atomic uint32_t *known = &ch->announced[id % ANNOUNCED];

	/* a lost entry costs only time */
	if (id && atomic_exchange_explicit(known, id, memory_order_relaxed) == id)
		return 0;
	os_populate(at, bytes);
	return 0;
}

/* ---- opening ----------------------------------------------------------------------------- */

static bool is_near(const struct dsa_queue *q, int node)
{
	int at = q->node < 0 || q->node >= os_numa_node_count() ? 0 : q->node;

	return node < 0 || at == node;
}

/* Finds queue `index` of those near `node`. Returns: their number. */
static int find_near(int node, int index, struct dsa_queue *out, char *reason, size_t cap)
{
	struct dsa_queue all[DSA_QUEUES_MAX];
	int count = dsa_find(all, DSA_QUEUES_MAX, reason, cap), near = 0;

	for (int i = 0; i < count; i++) {
		if (!is_near(&all[i], node))
			continue;
		if (near == index)
			*out = all[i];
		near++;
	}
	return near;
}

static int dsa_chan_count(int node)
{
	struct dsa_queue q;
	char reason[200];

	return find_near(node, -1, &q, reason, sizeof(reason));
}

static struct engine_slots *chan(int i) { return i < CHANNELS ? &chans[i].slots : NULL; }

static int dsa_start(struct engine_slots *s, int node, int index, char *reason, size_t cap)
{
	struct dsa_chan *ch = chan_of(s);
	struct dsa_queue q;
	int near = find_near(node, index, &q, reason, cap), fd, rc;

	if (!near)
		return -ENODEV;
	if (index < 0 || index >= near)
		return -EINVAL;
	fd = dsa_open(&q, reason, cap);
	if (fd < 0)
		return fd;
	memset(ch->announced, 0, sizeof(ch->announced));
	rc = dsa_portal_init(&ch->portal, fd);
	if (rc) {
		snprintf(reason, cap, "no memory for records: %s", strerror(-rc));
		dsa_portal_fini(&ch->portal);
		return rc;
	}
	engine_slots_init(s, q.size, q.max_bytes);
	return 0;
}

static void dsa_stop(struct engine_slots *s, bool in_child)
{
	if (in_child)
		chan_of(s)->portal.memory = NULL;
	dsa_portal_fini(&chan_of(s)->portal);
}

static const struct engine_device_ops device = {
	.engine = &engine_dsa,
	.chan = chan,
	.open = dsa_start,
	.fini = dsa_stop,
	.fill = dsa_fill,
	.submit = dsa_submit,
	.is_ended = dsa_is_ended,
	.result = dsa_result,
	.close = dsa_end,
};

static int dsa_chan_open(int node, int index, struct engine_chan **out)
{
	return engine_slots_open(&device, node, index, out);
}

static int dsa_probe(char *reason, size_t cap) { return engine_slots_probe(&device, reason, cap); }
static void dsa_after_fork_child(void) { engine_slots_after_fork_child(&device); }

const struct engine_ops engine_dsa = {
	.name = "dsa",
	.help = "Intel DSA: work queues of type user, by write()",
	.is_by_name = true,
	.probe = dsa_probe,
	.chan_count = dsa_chan_count,
	.chan_open = dsa_chan_open,
	.chan_close = engine_slots_close,
	.caps = engine_slots_caps,
	.memory = dsa_memory,
	.post = engine_slots_post,
	.flush = engine_slots_flush,
	.poll = engine_slots_poll,
	.cancel = engine_slots_cancel,
	.retire = engine_slots_retire,
	.after_fork_child = dsa_after_fork_child,
};
