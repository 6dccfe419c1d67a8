/* SPDX-License-Identifier: BSD-3-Clause */
#include "engine/slots.h"

#include <errno.h>
#include <string.h>

enum { DRAIN_NS = 50000, PROBE_BYTES = 4096, PROBE_NS = 1000000000 };

/* The slots whose done() this thread executes. Initial-exec as in sw/pool.c. */
static _Thread_local struct engine_slots *inside __attribute__((tls_model("initial-exec")));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of in_use, in all channels */

static struct engine_slots *slots_of(struct engine_chan *ch) { return (struct engine_slots *)ch; }

/* ---- opening ----------------------------------------------------------------------------- */

void engine_slots_init(struct engine_slots *s, uint32_t depth, uint64_t max_bytes)
{
	s->all = ((uint64_t)1 << base_min_u64(depth, SW_DEPTH)) - 1;
	s->max_bytes = max_bytes;
	sw_queue_init(&s->queue, s->all);
}

static int open_channel(const struct engine_device_ops *ops, int node, int index,
			struct engine_chan **out, char *reason, size_t cap)
{
	struct engine_slots *s;
	int rc = -ENOSPC;

	snprintf(reason, cap, "all channels of this process are open");
	pthread_mutex_lock(&lock);
	for (int i = 0; (s = ops->chan(i)) && s->in_use; i++)
		;
	if (s) {
		memset(s, 0, sizeof(*s));
		s->base.ops = ops->engine;
		s->ops = ops;
		rc = ops->open(s, node, index, reason, cap);
	}
	if (!rc) {
		s->in_use = true;
		*out = &s->base;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

int engine_slots_open(const struct engine_device_ops *ops, int node, int index,
		      struct engine_chan **out)
{
	char reason[600] = "";
	int rc = open_channel(ops, node, index, out, reason, sizeof(reason));

	if (rc)
		base_log(BASE_LOG_INFO, "engine", "%s: %s", ops->engine->name, reason);
	return rc;
}

void engine_slots_close(struct engine_chan *ch)
{
	struct engine_slots *s = slots_of(ch);

	engine_slots_retire(ch);
	pthread_mutex_lock(&lock);
	s->ops->fini(s, false);
	s->in_use = false;
	pthread_mutex_unlock(&lock);
}

/* The child's descriptor would keep the parent's close() from waiting for the device. */
void engine_slots_after_fork_child(const struct engine_device_ops *ops)
{
	struct engine_slots *s;

	pthread_mutex_init(&lock, NULL);
	for (int i = 0; (s = ops->chan(i)); i++) {
		sw_queue_init(&s->queue, SW_QUEUE_CLOSED);
		atomic_store_explicit(&s->closing, true, memory_order_relaxed);
		s->submitted = s->waiting = s->failed = 0;
		if (s->in_use)
			ops->fini(s, true);
		s->in_use = false;
	}
}

void engine_slots_caps(const struct engine_chan *ch, struct engine_caps *out)
{
	const struct engine_slots *s = (const struct engine_slots *)ch;

	*out = (struct engine_caps){
		.flags = ENGINE_POLLED | ENGINE_AUTONOMOUS,
		.depth = (uint32_t)__builtin_popcountll(s->all),
		/* one descriptor a fragment, where the device allows: nobody submits a second one
		 */
		.piece_bytes = s->max_bytes,
		.max_copy_bytes = s->max_bytes,
		.align_bytes = 1,
	};
}

int engine_slots_post(struct engine_chan *ch, struct engine_copy *c)
{
	struct engine_slots *s = slots_of(ch);

	if (!c->bytes || c->bytes > s->max_bytes)
		return -EINVAL;
	return sw_queue_post(&s->queue, c);
}

/* ---- submission -------------------------------------------------------------------------- */

/* Returns: false when the channel is being retired. Otherwise submit_end() must follow. */
static bool submit_begin(struct engine_slots *s)
{
	/* seq_cst, as the load: either retire sees this thread, or this thread sees retire */
	atomic_fetch_add_explicit(&s->submitters, 1, memory_order_seq_cst);
	if (!atomic_load_explicit(&s->closing, memory_order_seq_cst))
		return true;
	atomic_fetch_sub_explicit(&s->submitters, 1, memory_order_release);
	return false;
}

static void submit_end(struct engine_slots *s)
{
	/* release: the use of the device; partner: engine_slots_retire */
	atomic_fetch_sub_explicit(&s->submitters, 1, memory_order_release);
}

/* Submits the slots, which are the caller's. Those that the device does not accept wait. */
static void submit(struct engine_slots *s, uint64_t slots)
{
	uint64_t accepted, rest;
	int rc;

	if (!slots)
		return;
	rc = s->ops->submit(s, slots, &accepted);
	/* release: the descriptors; partner: reap */
	atomic_fetch_or_explicit(&s->submitted, accepted, memory_order_release);
	rest = slots & ~accepted;
	if (!rest)
		return;
	if (rc == -EAGAIN) {
		atomic_fetch_or_explicit(&s->waiting, rest, memory_order_release);
		return;
	}
	base_log(BASE_LOG_INFO, "engine", "%s: copies are refused: error %d", s->base.ops->name,
		 -rc);
	atomic_fetch_or_explicit(&s->failed, rest, memory_order_release);
}

void engine_slots_flush(struct engine_chan *ch)
{
	struct engine_slots *s = slots_of(ch);
	struct engine_copy *c;
	uint64_t slots;
	int slot;

	if (!submit_begin(s))
		return;
	/* acquire: descriptors that other threads filled in; partner: the stores of `waiting` */
	slots = atomic_exchange_explicit(&s->waiting, 0, memory_order_acquire);
	while ((c = sw_queue_claim(&s->queue, &slot))) {
		atomic_store_explicit(&s->copies[slot], c, memory_order_relaxed);
		s->ops->fill(s, slot, c);
		slots |= (uint64_t)1 << slot;
	}
	submit(s, slots);
	submit_end(s);
}

/* ---- ends -------------------------------------------------------------------------------- */

static void exit_done(struct engine_slots *s)
{
	inside = NULL;
	/* release: the work of done(); partner: sw_queue_cancel */
	atomic_fetch_sub_explicit(&s->running, 1, memory_order_release);
}

/* Gives the copy of a slot back. The caller has taken the slot's bit and counts in `running`. */
static void end_copy(struct engine_slots *s, int slot, int result)
{
	struct engine_copy *c = atomic_load_explicit(&s->copies[slot], memory_order_relaxed);
	struct engine_slots *outer = inside;

	sw_queue_release(&s->queue, slot);
	inside = s;
	c->done(c, result);
	if (inside)
		exit_done(s);
	inside = outer;
}

/* The result of a slot whose bit the caller has taken. */
static int result_of(struct engine_slots *s, int slot)
{
	return s->ops->result(s, slot,
			      atomic_load_explicit(&s->copies[slot], memory_order_relaxed));
}

/* Takes the slot's bit if the device has ended it. Returns: true when its copy has come back. */
static bool reap(struct engine_slots *s, int slot)
{
	uint64_t bit = (uint64_t)1 << slot;
	int result;

	if (!s->ops->is_ended(s, slot))
		return false;
	atomic_fetch_add_explicit(&s->running, 1, memory_order_relaxed);
	if (!(atomic_fetch_and_explicit(&s->submitted, ~bit, memory_order_acq_rel) & bit))
		goto not_mine;
	/* again: the slot may have been used for another copy meanwhile */
	result = result_of(s, slot);
	if (result == SLOT_AGAIN && atomic_load_explicit(&s->closing, memory_order_relaxed))
		result = -ECANCELED; /* and not submitted again */
	if (result > 0) {
		/* release: the descriptor; partner: reap, engine_slots_flush */
		atomic_fetch_or_explicit(result == SLOT_AGAIN ? &s->waiting : &s->submitted, bit,
					 memory_order_release);
		goto not_mine;
	}
	end_copy(s, slot, result);
	return true;
not_mine:
	atomic_fetch_sub_explicit(&s->running, 1, memory_order_release);
	return false;
}

/* Gives back the copies of `mask`, whatever it is. */
static int end_all(struct engine_slots *s, _Atomic uint64_t *mask, int result)
{
	int n = 0;

	for (uint64_t all; (all = atomic_load_explicit(mask, memory_order_relaxed)); n++) {
		uint64_t bit = all & -all;

		atomic_fetch_add_explicit(&s->running, 1, memory_order_relaxed);
		if (atomic_fetch_and_explicit(mask, ~bit, memory_order_acquire) & bit)
			end_copy(s, __builtin_ctzll(bit), result);
		else
			atomic_fetch_sub_explicit(&s->running, 1, memory_order_release);
	}
	return n;
}

static int reap_all(struct engine_slots *s)
{
	uint64_t all = atomic_load_explicit(&s->submitted, memory_order_acquire);
	int n = 0;

	for (; all; all &= all - 1)
		n += reap(s, __builtin_ctzll(all));
	return n + end_all(s, &s->failed, -EIO);
}

int engine_slots_poll(struct engine_chan *ch)
{
	struct engine_slots *s = slots_of(ch);
	int n = reap_all(s);

	if (atomic_load_explicit(&s->waiting, memory_order_relaxed))
		engine_slots_flush(ch);
	return n;
}

static bool lies_in(struct engine_slots *s, int slot, const void *from, size_t bytes)
{
	return (uintptr_t)atomic_load_explicit(&s->copies[slot], memory_order_relaxed) -
		       (uintptr_t)from <
	       bytes;
}

/* The slots of `mask` whose copies lie in [from, from + bytes). */
static uint64_t slots_in(struct engine_slots *s, const _Atomic uint64_t *mask, const void *from,
			 size_t bytes)
{
	uint64_t all = atomic_load_explicit(mask, memory_order_acquire), in = 0;

	for (; all; all &= all - 1)
		if (lies_in(s, __builtin_ctzll(all), from, bytes))
			in |= all & -all;
	return in;
}

/* Gives back copies that wait for the device. */
static void cancel_waiting(struct engine_slots *s, const void *from, size_t bytes)
{
	uint64_t in = slots_in(s, &s->waiting, from, bytes);

	for (; in; in &= in - 1) {
		uint64_t bit = in & -in;
		int slot = __builtin_ctzll(bit);

		atomic_fetch_add_explicit(&s->running, 1, memory_order_relaxed);
		/* another thread may have submitted it, and others may have used the slot since */
		if (!(atomic_fetch_and_explicit(&s->waiting, ~bit, memory_order_acquire) & bit))
			atomic_fetch_sub_explicit(&s->running, 1, memory_order_release);
		else if (lies_in(s, slot, from, bytes))
			end_copy(s, slot, -ECANCELED);
		else {
			atomic_fetch_or_explicit(&s->waiting, bit, memory_order_release);
			atomic_fetch_sub_explicit(&s->running, 1, memory_order_release);
		}
	}
}

void engine_slots_cancel(struct engine_chan *ch, const void *from, size_t bytes)
{
	struct engine_slots *s = slots_of(ch);
	struct engine_copy *c;
	int slot;

	while ((c = sw_queue_claim_in(&s->queue, from, bytes, &slot))) {
		atomic_fetch_add_explicit(&s->running, 1, memory_order_relaxed);
		atomic_store_explicit(&s->copies[slot], c, memory_order_relaxed);
		end_copy(s, slot, -ECANCELED);
	}
	cancel_waiting(s, from, bytes);
	if (s->ops->cancel && slots_in(s, &s->submitted, from, bytes) && submit_begin(s)) {
		s->ops->cancel(s, from, bytes);
		submit_end(s);
	}
	engine_slots_flush(ch);
}

void engine_slots_retire(struct engine_chan *ch)
{
	struct engine_slots *s = slots_of(ch);
	_Atomic uint32_t nobody = 0;

	if (inside == s)
		exit_done(s);
	atomic_store_explicit(&s->closing, true, memory_order_seq_cst); /* partner: submit_begin */
	sw_queue_close(&s->queue);
	while (atomic_load_explicit(&s->submitters, memory_order_seq_cst))
		os_futex_wait(&nobody, 0, DRAIN_NS);
	reap_all(s);
	if (s->ops->close(s))
		/* release: all that the device wrote; partner: below, in another thread */
		atomic_store_explicit(&s->closed, true, memory_order_release);
	for (;;) {
		reap_all(s);
		end_all(s, &s->waiting, -ECANCELED);
		if (atomic_load_explicit(&s->closed, memory_order_acquire))
			end_all(s, &s->submitted, -ECANCELED);
		if (sw_queue_cancel(&s->queue, s->all, &s->running))
			break;
		os_futex_wait(&nobody, 0, DRAIN_NS);
	}
}

/* ---- probe ------------------------------------------------------------------------------- */

static void probe_done(struct engine_copy *c, int result) { *(int *)c->arg = result; }

/* Returns: 0, or -errno with the reason. */
static int copy_page(struct engine_chan *ch, char *reason, size_t cap)
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
		engine_slots_retire(ch);
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

int engine_slots_probe(const struct engine_device_ops *ops, char *reason, size_t cap)
{
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	struct engine_chan *ch;
	int rc;

	pthread_mutex_lock(&one_at_a_time);
	rc = open_channel(ops, -1, 0, &ch, reason, cap);
	if (!rc) {
		rc = copy_page(ch, reason, cap);
		engine_slots_close(ch);
	}
	pthread_mutex_unlock(&one_at_a_time);
	return rc;
}
