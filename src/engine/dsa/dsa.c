/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Channels of DSA. A slot goes
 *
 *   free --post--> ready --flush--> submitted --the device ends it, poll--> done(), free
 *                             |          ^
 *                             v          | poll
 *                          waiting ------+    the queue was full, or pages were missing
 *
 * Each step is one atomic operation on a mask, so that any thread and signal handler may take it.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "engine/dsa/dsa.h"
#include "engine/sw/sw.h" /* for its queue */

enum {
	CHANNELS = 8,
	DRAIN_NS = 50000,
	TRIES = 3,          /* submissions of a copy that meets missing pages */
	PROBE_BYTES = 4096,
	PROBE_NS = 1000000000,
	ANNOUNCED = 64,
};

struct dsa_chan {
	struct engine_chan base;
	struct dsa_portal portal;
	struct sw_queue queue;
	_Atomic uint64_t submitted, waiting, failed; /* masks of slots */
	struct engine_copy *_Atomic copies[DSA_SLOTS]; /* of slots that are not free */
	uint8_t tries[DSA_SLOTS];
	_Atomic uint32_t submitters; /* threads that may use the portal */
	_Atomic uint32_t running;    /* calls of done() */
	_Atomic bool closing, closed; /* retire() has begun; the device writes nothing any more */
	_Atomic uint32_t announced[ANNOUNCED]; /* regions whose pages were made present here */
	uint64_t max_bytes, slots;
	bool in_use; /* under the lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct dsa_chan chans[CHANNELS];
_Atomic uint64_t dsa_partial_copies;
/* The channel whose done() this thread executes. Initial-exec as in sw/pool.c. */
static _Thread_local struct dsa_chan *inside __attribute__((tls_model("initial-exec")));

/* ---- submission -------------------------------------------------------------------------- */

static void fill(struct dsa_chan *ch, int slot, struct engine_copy *c, size_t done)
{
	uint64_t total = base_max_u64(c->total_bytes, c->bytes);
	/* as sw: the reader finds short transfers in the cache */
	bool to_cache = !os_copy_is_past_cache(2 * total);

	dsa_portal_fill(&ch->portal, slot,
			&(struct dsa_desc){
				.flags_and_opcode = (uint32_t)DSA_MEMMOVE << 24 |
						    DSA_RECORD_VALID | DSA_RECORD_ASKED |
						    (to_cache ? DSA_TO_CACHE : 0),
				.src = (uintptr_t)c->src + done,
				.dst = (uintptr_t)c->dst + done,
				.bytes = (uint32_t)(c->bytes - done),
			});
}

/* Returns: false when the channel is being retired. Otherwise submit_end() must follow. */
static bool submit_begin(struct dsa_chan *ch)
{
	/* seq_cst, as the load: either retire() sees this thread, or this thread sees retire() */
	atomic_fetch_add_explicit(&ch->submitters, 1, memory_order_seq_cst);
	if (!atomic_load_explicit(&ch->closing, memory_order_seq_cst))
		return true;
	atomic_fetch_sub_explicit(&ch->submitters, 1, memory_order_release);
	return false;
}

static void submit_end(struct dsa_chan *ch)
{
	/* release: the use of the portal; partner: dsa_retire */
	atomic_fetch_sub_explicit(&ch->submitters, 1, memory_order_release);
}

/* Submits the slots, which are the caller's. Those that the queue does not accept wait. */
static void submit(struct dsa_chan *ch, uint64_t slots)
{
	uint64_t accepted, rest;
	int rc;

	if (!slots)
		return;
	rc = dsa_portal_submit(&ch->portal, slots, &accepted);
	/* release: the descriptors; partner: reap */
	atomic_fetch_or_explicit(&ch->submitted, accepted, memory_order_release);
	rest = slots & ~accepted;
	if (!rest)
		return;
	if (rc == -EAGAIN) {
		atomic_fetch_or_explicit(&ch->waiting, rest, memory_order_release);
		return;
	}
	base_log(BASE_LOG_INFO, "engine", "dsa: descriptors are refused: error %d", -rc);
	atomic_fetch_or_explicit(&ch->failed, rest, memory_order_release);
}

/* Submits all that is posted or waits. */
static void submit_all(struct dsa_chan *ch)
{
	struct engine_copy *c;
	uint64_t slots;
	int slot;

	if (!submit_begin(ch))
		return;
	/* acquire: descriptors that other threads filled in; partner: the stores of `waiting` */
	slots = atomic_exchange_explicit(&ch->waiting, 0, memory_order_acquire);
	while ((c = sw_queue_claim(&ch->queue, &slot))) {
		atomic_store_explicit(&ch->copies[slot], c, memory_order_relaxed);
		ch->tries[slot] = 0;
		fill(ch, slot, c, 0);
		slots |= (uint64_t)1 << slot;
	}
	submit(ch, slots);
	submit_end(ch);
}

/* ---- ends -------------------------------------------------------------------------------- */

static void exit_done(struct dsa_chan *ch)
{
	inside = NULL;
	/* release: the work of done(); partner: sw_queue_cancel */
	atomic_fetch_sub_explicit(&ch->running, 1, memory_order_release);
}

/* Gives the copy of a slot back. The caller has taken the slot's bit and counts in `running`. */
static void end_copy(struct dsa_chan *ch, int slot, int result)
{
	struct engine_copy *c = atomic_load_explicit(&ch->copies[slot], memory_order_relaxed);
	struct dsa_chan *outer = inside;

	sw_queue_release(&ch->queue, slot);
	inside = ch;
	c->done(c, result);
	if (inside)
		exit_done(ch);
	inside = outer;
}

/* A page was not present. Returns: true when the rest of the copy waits. */
static bool is_resumed(struct dsa_chan *ch, int slot, const struct dsa_record *r)
{
	struct engine_copy *c = atomic_load_explicit(&ch->copies[slot], memory_order_relaxed);
	struct dsa_desc *d = &ch->portal.memory->descs[slot];
	size_t at = d->src - (uintptr_t)c->src + r->bytes;

	atomic_fetch_add_explicit(&dsa_partial_copies, 1, memory_order_relaxed);
	if (atomic_load_explicit(&ch->closing, memory_order_relaxed) || at >= c->bytes ||
	    ++ch->tries[slot] > TRIES)
		return false;
	os_populate((char *)(uintptr_t)c->src + at, c->bytes - at);
	os_populate((char *)c->dst + at, c->bytes - at);
	fill(ch, slot, c, at);
	/* release: the descriptor; partner: submit_all */
	atomic_fetch_or_explicit(&ch->waiting, (uint64_t)1 << slot, memory_order_release);
	return true;
}

/* Takes the slot's bit if the device has ended it. Returns: true when its copy has come back. */
static bool reap(struct dsa_chan *ch, int slot)
{
	const struct dsa_record *r = &ch->portal.memory->records[slot];
	uint64_t bit = (uint64_t)1 << slot;
	uint8_t status;

	if (!atomic_load_explicit(&r->status, memory_order_relaxed))
		return false;
	atomic_fetch_add_explicit(&ch->running, 1, memory_order_relaxed);
	if (!(atomic_fetch_and_explicit(&ch->submitted, ~bit, memory_order_acq_rel) & bit))
		goto not_mine;
	/* again: the slot may have been used for another copy meanwhile. acquire: the copied bytes;
	 * partner: the device */
	status = atomic_load_explicit(&r->status, memory_order_acquire) & DSA_STATUS_MASK;
	if (!status) {
		atomic_fetch_or_explicit(&ch->submitted, bit, memory_order_release);
		goto not_mine;
	}
	if (status == DSA_PAGE_FAULT && is_resumed(ch, slot, r))
		goto not_mine;
	if (status != DSA_ENDED_WELL && status != DSA_PAGE_FAULT)
		base_log(BASE_LOG_WARN, "engine", "dsa: a copy of %u bytes has status 0x%x",
			 ch->portal.memory->descs[slot].bytes, status);
	end_copy(ch, slot,
		 status == DSA_ENDED_WELL   ? 0
		 : status == DSA_PAGE_FAULT ? -EFAULT
					    : -EIO);
	return true;
not_mine:
	atomic_fetch_sub_explicit(&ch->running, 1, memory_order_release);
	return false;
}

/* Gives back the copies of `mask`, whatever it is. */
static int end_all(struct dsa_chan *ch, _Atomic uint64_t *mask, int result)
{
	int n = 0;

	for (uint64_t all; (all = atomic_load_explicit(mask, memory_order_relaxed)); n++) {
		uint64_t bit = all & -all;

		atomic_fetch_add_explicit(&ch->running, 1, memory_order_relaxed);
		if (atomic_fetch_and_explicit(mask, ~bit, memory_order_acquire) & bit)
			end_copy(ch, __builtin_ctzll(bit), result);
		else
			atomic_fetch_sub_explicit(&ch->running, 1, memory_order_release);
	}
	return n;
}

static int reap_all(struct dsa_chan *ch)
{
	uint64_t all = atomic_load_explicit(&ch->submitted, memory_order_acquire);
	int n = 0;

	for (; all; all &= all - 1)
		n += reap(ch, __builtin_ctzll(all));
	return n + end_all(ch, &ch->failed, -EIO);
}

/* ---- the functions of a channel ---------------------------------------------------------- */

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

static int dsa_post(struct engine_chan *base, struct engine_copy *c)
{
	struct dsa_chan *ch = (struct dsa_chan *)base;

	if (!c->bytes || c->bytes > ch->max_bytes)
		return -EINVAL;
	return sw_queue_post(&ch->queue, c);
}

static void dsa_flush(struct engine_chan *base) { submit_all((struct dsa_chan *)base); }

static int dsa_poll(struct engine_chan *base)
{
	struct dsa_chan *ch = (struct dsa_chan *)base;
	int n = reap_all(ch);

	if (atomic_load_explicit(&ch->waiting, memory_order_relaxed))
		submit_all(ch);
	return n;
}

static void dsa_retire(struct engine_chan *base)
{
	struct dsa_chan *ch = (struct dsa_chan *)base;
	_Atomic uint32_t nobody = 0;

	if (inside == ch)
		exit_done(ch);
	atomic_store_explicit(&ch->closing, true, memory_order_seq_cst); /* partner: submit_begin */
	sw_queue_close(&ch->queue);
	while (atomic_load_explicit(&ch->submitters, memory_order_seq_cst))
		os_futex_wait(&nobody, 0, DRAIN_NS);
	reap_all(ch);
	if (atomic_load_explicit(&ch->submitted, memory_order_relaxed))
		base_log(BASE_LOG_WARN, "engine",
			 "process %d closes a DSA queue that has not ended its copies, and waits "
			 "for it",
			 (int)getpid());
	if (dsa_portal_close(&ch->portal))
		/* release: all that the device wrote; partner: below, in another thread */
		atomic_store_explicit(&ch->closed, true, memory_order_release);
	for (;;) {
		reap_all(ch);
		end_all(ch, &ch->waiting, -ECANCELED);
		if (atomic_load_explicit(&ch->closed, memory_order_acquire))
			end_all(ch, &ch->submitted, -ECANCELED);
		if (sw_queue_cancel(&ch->queue, ch->slots, &ch->running))
			break;
		os_futex_wait(&nobody, 0, DRAIN_NS);
	}
}

static void dsa_caps(const struct engine_chan *base, struct engine_caps *out)
{
	const struct dsa_chan *ch = (const struct dsa_chan *)base;

	*out = (struct engine_caps){
		.flags = ENGINE_POLLED | ENGINE_AUTONOMOUS,
		.depth = (uint32_t)__builtin_popcountll(ch->slots),
		/* one descriptor a fragment, where the queue allows: nobody submits a second one */
		.piece_bytes = ch->max_bytes,
		.max_copy_bytes = ch->max_bytes,
		.align_bytes = 1,
	};
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

static int start(struct dsa_chan *ch, const struct dsa_queue *q, char *reason, size_t cap)
{
	uint64_t depth = base_min_u64(q->size, DSA_SLOTS);
	int fd = dsa_open(q, reason, cap), rc;

	if (fd < 0)
		return fd;
	memset(ch, 0, sizeof(*ch));
	ch->base.ops = &engine_dsa;
	ch->max_bytes = q->max_bytes;
	ch->slots = ((uint64_t)1 << depth) - 1;
	rc = dsa_portal_init(&ch->portal, fd);
	if (rc) {
		snprintf(reason, cap, "no memory for records: %s", strerror(-rc));
		dsa_portal_fini(&ch->portal);
		return rc;
	}
	sw_queue_init(&ch->queue, ch->slots);
	return 0;
}

static int open_channel(int node, int index, struct engine_chan **out, char *reason, size_t cap)
{
	struct dsa_chan *ch = NULL;
	struct dsa_queue q;
	int rc = -ENOSPC, near = find_near(node, index, &q, reason, cap);

	if (!near)
		return -ENODEV;
	if (index < 0 || index >= near)
		return -EINVAL;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < CHANNELS && !ch; i++)
		ch = chans[i].in_use ? NULL : &chans[i];
	if (ch)
		rc = start(ch, &q, reason, cap);
	if (!rc) {
		ch->in_use = true;
		*out = &ch->base;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static int dsa_chan_open(int node, int index, struct engine_chan **out)
{
	char reason[600] = "";
	int rc = open_channel(node, index, out, reason, sizeof(reason));

	if (rc)
		base_log(BASE_LOG_INFO, "engine", "dsa: %s", reason);
	return rc;
}

static void dsa_chan_close(struct engine_chan *base)
{
	struct dsa_chan *ch = (struct dsa_chan *)base;

	dsa_retire(base);
	pthread_mutex_lock(&lock);
	dsa_portal_fini(&ch->portal);
	ch->in_use = false;
	pthread_mutex_unlock(&lock);
}

/* ---- probe ------------------------------------------------------------------------------- */

static void probe_done(struct engine_copy *c, int result) { *(int *)c->arg = result; }

/* Copies a page. Returns: 0, or -errno with the reason. */
static int probe_copy(struct engine_chan *ch, char *reason, size_t cap)
{
	enum { NOT_ENDED = 1 };
	static char from[PROBE_BYTES], to[PROBE_BYTES];
	int result = NOT_ENDED;
	struct engine_copy c = { to, from, PROBE_BYTES, probe_done, &result, NULL, 0 };
	uint64_t until = os_now_ns() + PROBE_NS;
	_Atomic uint32_t nobody = 0;

	memset(from, 'd', sizeof(from));
	memset(to, 0, sizeof(to));
	engine_post(ch, &c);
	engine_flush(ch);
	while (!engine_poll(ch) && os_now_ns() < until)
		os_futex_wait(&nobody, 0, DRAIN_NS);
	if (result == NOT_ENDED) {
		dsa_retire(ch);
		snprintf(reason, cap, "a copy of a page did not end in %d ms",
			 (int)(PROBE_NS / 1000000));
		return -ETIME;
	}
	if (!result && memcmp(from, to, sizeof(to)))
		result = -EIO;
	if (result)
		snprintf(reason, cap, "a copy of a page failed: %s", strerror(-result));
	return result;
}

static int dsa_probe(char *reason, size_t cap)
{
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	struct engine_chan *ch;
	int rc;

	pthread_mutex_lock(&one_at_a_time);
	rc = open_channel(-1, 0, &ch, reason, cap);
	if (!rc) {
		rc = probe_copy(ch, reason, cap);
		dsa_chan_close(ch);
	}
	pthread_mutex_unlock(&one_at_a_time);
	return rc;
}

/* The child's descriptor would keep the parent's close() from waiting for the device. */
static void dsa_after_fork_child(void)
{
	pthread_mutex_init(&lock, NULL);
	for (int i = 0; i < CHANNELS; i++) {
		sw_queue_init(&chans[i].queue, SW_QUEUE_CLOSED);
		atomic_store_explicit(&chans[i].closing, true, memory_order_relaxed);
		chans[i].submitted = chans[i].waiting = chans[i].failed = 0;
		if (chans[i].in_use)
			dsa_portal_close(&chans[i].portal);
		chans[i].portal.memory = NULL; /* it was not inherited */
		chans[i].in_use = false;
	}
}

const struct engine_ops engine_dsa = {
	.name = "dsa",
	.help = "Intel DSA: work queues of type user, by write()",
	.is_by_name = true,
	.probe = dsa_probe,
	.chan_count = dsa_chan_count,
	.chan_open = dsa_chan_open,
	.chan_close = dsa_chan_close,
	.caps = dsa_caps,
	.memory = dsa_memory,
	.post = dsa_post,
	.flush = dsa_flush,
	.poll = dsa_poll,
	.retire = dsa_retire,
	.after_fork_child = dsa_after_fork_child,
};
