/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The queue of a channel of `sw`, and its sleepers, in every interleaving: no item is lost or taken
 * twice, no wake-up is lost, nobody copies once a channel is retired. The functions are those of
 * engine/sw/queue.c and sleep.c; the models below use them as pool.c and sw.c do.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/sw/sw.h"
#include "unit.h"

/* The code under test, with its atomics as scheduling points. */
#include "interleave_atomics.h"
#define os_futex_wait(word, value, ns) il_futex_wait(word, value)
#define os_futex_wake(word, n)         il_futex_wake(word)
#define sw_queue_init       model_init
#define sw_queue_post       model_post
#define sw_queue_claim       model_take
#define sw_queue_claim_in   model_take_in
#define sw_queue_release    model_release
#define sw_queue_close      model_close
#define sw_queue_is_drained model_is_drained
#define sw_sleep_seek       model_seek
#define sw_sleep_found      model_found
#define sw_sleep_wake       model_wake
#define sw_sleep_begin      model_begin
#define sw_sleep_undo       model_undo
#define sw_sleep_rouse      model_rouse
#define sw_sleep_wait       model_wait
void sw_queue_init(struct sw_queue *q, uint64_t slots);
int sw_queue_post(struct sw_queue *q, struct engine_copy *c);
struct engine_copy *sw_queue_claim(struct sw_queue *q, int *out_slot);
struct engine_copy *sw_queue_claim_in(struct sw_queue *q, const void *from, size_t bytes,
				      int *out_slot);
void sw_queue_release(struct sw_queue *q, int slot);
void sw_queue_close(struct sw_queue *q);
bool sw_queue_is_drained(struct sw_queue *q, uint64_t slots);
void sw_sleep_seek(struct sw_sleep *s);
void sw_sleep_found(struct sw_sleep *s);
void sw_sleep_wake(struct sw_sleep *s, unsigned first);
void sw_sleep_begin(struct sw_sleep *s, unsigned worker);
void sw_sleep_undo(struct sw_sleep *s, unsigned worker);
void sw_sleep_rouse(struct sw_sleep *s, unsigned worker);
void sw_sleep_wait(struct sw_sleep *s, unsigned worker);
#include "engine/sw/queue.c"
#include "engine/sw/sleep.c"

enum { ITEMS = 4 };
enum {
	FAULT_NONE,
	FAULT_NO_SECOND_LOOK,  /* a worker sleeps without a second check */
	FAULT_NO_HANDOVER,     /* a worker that found work does not wake another for the rest */
	FAULT_SLOT_FIRST,      /* the slot is released before the item is read */
	FAULT_RUNNING_LATE,    /* a copy counts as running only after its slot is released */
	FAULT_CLOSE_BY_READY,  /* a channel counts as drained when nothing is ready */
	FAULT_NO_FLUSH,        /* who cancels wakes nobody for items that he has hidden */
};

static struct {
	int workers, posters, each; /* items of each poster */
	uint64_t slots;
	int fault;
	bool retire; /* true: the model of retiring; false: that of sleeping */
	bool cancels; /* somebody takes the first item back */
	bool long_copies; /* a worker never finishes its first copy */
} shape;

struct world {
	struct sw_queue q;
	struct sw_sleep sleep;
	_Atomic uint32_t running, stopping;
	_Atomic uint32_t ended;           /* items that have come back */
	_Atomic uint64_t contents[ITEMS]; /* written by the poster before it posts */
	/* not part of the protocol */
	uint8_t ends[ITEMS], taken[ITEMS], accepted[ITEMS], retired;
};
_Static_assert(sizeof(struct world) <= IL_SHARED_BYTES, "the model has so much room");

/* Items are numbers disguised as addresses. */
static struct engine_copy *item(int i) { return (struct engine_copy *)(uintptr_t)(16 * (i + 1)); }
static int number(const struct engine_copy *c) { return (int)((uintptr_t)c / 16) - 1; }

struct place {
	uint64_t phase, n;
};

/* The tester copies worlds with plain stores, so the initial state is set by hand. */
static void world_init(void *shared)
{
	struct world *w = shared;

	memset(w, 0, sizeof *w);
	memcpy(&w->q.free, &shape.slots, sizeof shape.slots);
}

/* ---- posters ----------------------------------------------------------------------------- */

enum { POST, WAKE, AWAIT, ROUSE };

static bool all_ended(struct world *w)
{
	return atomic_load_explicit(&w->ended, memory_order_acquire) ==
	       (uint32_t)(shape.posters * shape.each);
}

static bool poster_round(int p, struct world *w, struct place *at)
{
	int i = p * shape.each + (int)at->n, rc;

	switch (at->phase) {
	case POST:
		atomic_store_explicit(&w->contents[i], (uint64_t)i + 1, memory_order_relaxed);
		rc = model_post(&w->q, item(i));
		if (rc == -EAGAIN)
			return true;
		if (il_turn())
			w->accepted[i] = !rc;
		at->n++;
		at->phase = WAKE;
		return true;
	case WAKE:
		model_wake(&w->sleep, 0);
		at->phase = (int)at->n < shape.each ? POST : AWAIT;
		return true;
	case AWAIT:
		if (p || shape.retire)
			return false;
		if (!all_ended(w))
			return true;
		/* the last channel of the process is closed */
		atomic_store_explicit(&w->stopping, 1, memory_order_relaxed);
		at->n = 0;
		at->phase = ROUSE;
		return true;
	}
	model_rouse(&w->sleep, (unsigned)at->n++);
	return (int)at->n < shape.workers;
}

/* ---- workers ----------------------------------------------------------------------------- */

enum { SEEK, LOOK_AGAIN, SLEEP, FOUND, COPY };

static void ends(struct world *w, int i)
{
	if (il_turn()) {
		if (w->ends[i]++)
			il_fail("an item has ended twice");
	}
	atomic_fetch_add_explicit(&w->ended, 1, memory_order_release);
}

static void copies(struct world *w, int i)
{
	if (il_turn()) {
		if (i < 0 || i >= ITEMS)
			il_fail("a slot holds no item");
		if (w->retired)
			il_fail("a copy is made for a channel that is retired");
		if (w->taken[i]++)
			il_fail("an item was taken twice");
	}
	if (il_load(&w->contents[i], sizeof w->contents[i]) != (uint64_t)i + 1)
		il_fail("an item was taken before it was written");
}

static void execute(struct world *w, struct engine_copy *c, int slot)
{
	int i = number(c);

	if (shape.fault == FAULT_SLOT_FIRST) {
		model_release(&w->q, slot);
		i = number((struct engine_copy *)atomic_load_explicit(&w->q.slots[slot],
								      memory_order_relaxed));
	}
	if (shape.fault != FAULT_RUNNING_LATE)
		atomic_fetch_add_explicit(&w->running, 1, memory_order_relaxed);
	copies(w, i);
	if (shape.fault != FAULT_SLOT_FIRST)
		model_release(&w->q, slot);
	if (shape.fault == FAULT_RUNNING_LATE)
		atomic_fetch_add_explicit(&w->running, 1, memory_order_relaxed);
	if (il_turn() && w->retired)
		il_fail("done() is called for a channel that is retired");
	ends(w, i);
	atomic_fetch_add_explicit(&w->running, -1, memory_order_release);
}

static bool is_ready(struct world *w)
{
	return atomic_load_explicit(&w->q.ready, memory_order_acquire);
}

static bool is_stopping(struct world *w)
{
	return atomic_load_explicit(&w->stopping, memory_order_relaxed);
}

/* One round of a worker, as in worker_main(), with a polling time of zero. */
static bool worker_round(int k, struct world *w, struct place *at)
{
	struct engine_copy *c;
	int slot = 0;

	switch (at->phase) {
	case SEEK:
		c = model_take(&w->q, &slot);
		at->phase = LOOK_AGAIN;
		if (!c) {
			model_begin(&w->sleep, (unsigned)k);
			return true;
		}
		model_found(&w->sleep);
		if (shape.fault != FAULT_NO_HANDOVER && is_ready(w))
			model_wake(&w->sleep, (unsigned)(k + 1));
		at->n = (uint64_t)number(c) << 8 | (uint64_t)slot;
		at->phase = COPY;
		return true;
	case COPY:
		execute(w, item((int)(at->n >> 8)), (int)(at->n & 0xff));
		at->n = 0;
		at->phase = SEEK;
		if (shape.long_copies)
			return false;
		model_seek(&w->sleep);
		return true;
	case LOOK_AGAIN:
		at->phase = SEEK;
		if (shape.fault != FAULT_NO_SECOND_LOOK && (is_ready(w) || is_stopping(w)))
			model_undo(&w->sleep, (unsigned)k);
		else
			model_wait(&w->sleep, (unsigned)k);
		if (!is_stopping(w) || is_ready(w))
			return true;
		model_found(&w->sleep);
		return false;
	}
	return false;
}

/* Every worker begins as a seeker. */
static void seekers_init(void *shared)
{
	struct world *w = shared;
	uint64_t word = (uint64_t)shape.workers << SW_WORKERS;

	world_init(shared);
	memcpy(&w->sleep.word, &word, sizeof word);
}

/* ---- the one who cancels ----------------------------------------------------------------- */

/* As sw_cancel(). */
static bool canceller_round(struct world *w, struct place *at)
{
	struct engine_copy *c;
	int slot = 0;

	if (at->phase) {
		if (shape.fault != FAULT_NO_FLUSH && is_ready(w))
			model_wake(&w->sleep, 0);
		return false;
	}
	at->phase = 1;
	c = model_take_in(&w->q, item(0), 1, &slot);
	if (!c)
		return true;
	atomic_fetch_add_explicit(&w->running, 1, memory_order_relaxed);
	if (il_turn() && w->taken[number(c)]++)
		il_fail("an item was taken twice");
	if (il_turn() && number(c))
		il_fail("another item is cancelled");
	model_release(&w->q, slot);
	ends(w, number(c));
	atomic_fetch_add_explicit(&w->running, -1, memory_order_release);
	return true;
}

/* ---- the one who retires ----------------------------------------------------------------- */

static bool is_drained(struct world *w)
{
	if (shape.fault == FAULT_CLOSE_BY_READY)
		return !is_ready(w) && !atomic_load_explicit(&w->running, memory_order_acquire);
	return model_is_drained(&w->q, shape.slots) &&
	       !atomic_load_explicit(&w->running, memory_order_acquire);
}

static bool retirer_round(struct world *w, struct place *at)
{
	struct engine_copy *c;
	int slot = 0;

	if (!at->phase) {
		model_close(&w->q);
		at->phase = 1;
		return true;
	}
	c = model_take(&w->q, &slot);
	if (c) {
		if (il_turn())
			w->taken[number(c)]++;
		model_release(&w->q, slot);
		ends(w, number(c));
		return true;
	}
	if (!is_drained(w))
		return true;
	if (il_turn())
		w->retired = 1;
	return false;
}

/* A worker that only works; the other model covers sleeping. */
static bool plain_worker_round(struct world *w, struct place *at)
{
	struct engine_copy *c;
	int slot = 0;

	if (at->phase == COPY) {
		execute(w, item((int)(at->n >> 8)), (int)(at->n & 0xff));
		*at = (struct place){ 0 };
		return true;
	}
	if (il_learn(w->retired))
		return false;
	c = model_take(&w->q, &slot);
	if (!c)
		return true;
	at->n = (uint64_t)number(c) << 8 | (uint64_t)slot;
	at->phase = COPY;
	return true;
}

static bool world_round(int t, void *shared, void *local)
{
	if (t < shape.posters)
		return poster_round(t, shared, local);
	t -= shape.posters;
	if (shape.cancels && t == shape.workers + shape.retire)
		return canceller_round(shared, local);
	if (!shape.retire)
		return worker_round(t, shared, local);
	return t < shape.workers ? plain_worker_round(shared, local) : retirer_round(shared, local);
}

static void world_end(void *shared)
{
	struct world *w = shared;

	for (int i = 0; i < shape.posters * shape.each; i++)
		if (w->ends[i] != w->accepted[i])
			il_fail("not exactly the items that were accepted have ended");
	if (!shape.retire && w->sleep.word)
		il_fail("somebody counts as a seeker or a sleeper who is neither");
}

static const char *explore(int workers, int posters, int each, int slots, int fault,
			   unsigned mutation)
{
	static struct il_result r;
	struct il_model m = {
		.threads = workers + posters + shape.retire + shape.cancels,
		.shared_bytes = sizeof(struct world),
		.local_bytes = sizeof(struct place),
		.mutation = mutation,
		.init = shape.retire ? world_init : seekers_init,
		.round = world_round,
		.end = world_end,
	};

	shape.workers = workers;
	shape.posters = posters;
	shape.each = each;
	shape.slots = ((uint64_t)1 << slots) - 1;
	shape.fault = fault;
	il_explore(&m, &r);
	if (getenv("INTERLEAVE_SHOW"))
		printf("  %d workers, %d posters of %d, %d slots: %" PRIu64 " states: %s %s\n",
		       workers, posters, each, slots, r.states, r.violation ?: "holds", r.order);
	return r.violation ?: "";
}

UNIT_TEST(sw_wakes_somebody_for_each_item)
{
	shape.retire = false;
	CHECK_STR(explore(1, 1, 2, 2, FAULT_NONE, 0), "");
	CHECK_STR(explore(1, 1, 2, 1, FAULT_NONE, 0), "");
	CHECK_STR(explore(1, 2, 1, 1, FAULT_NONE, 0), "");
}

UNIT_TEST(sw_without_a_second_look_before_sleep_is_caught)
{
	shape.retire = false;
	CHECK(*explore(1, 1, 1, 1, FAULT_NO_SECOND_LOOK, 0));
}

UNIT_TEST(sw_wakes_another_for_what_is_left)
{
	const char *with, *without;

	shape.retire = false;
	shape.long_copies = true;
	with = explore(2, 1, 2, 2, FAULT_NONE, 0);
	without = explore(2, 1, 2, 2, FAULT_NO_HANDOVER, 0);
	shape.long_copies = false;
	CHECK_STR(with, "");
	CHECK(*without);
}

UNIT_TEST(sw_without_release_is_caught)
{
	shape.retire = false;
	CHECK(*explore(1, 1, 1, 1, FAULT_NONE, IL_NO_RELEASE));
}

UNIT_TEST(sw_queue_whose_claims_do_not_compare_is_caught)
{
	shape.retire = false;
	CHECK(*explore(1, 2, 1, 2, FAULT_NONE, IL_BLIND_CAS));
}

UNIT_TEST(sw_queue_that_gives_slots_back_too_early_is_caught)
{
	shape.retire = false;
	CHECK(*explore(1, 1, 2, 1, FAULT_SLOT_FIRST, 0));
}

UNIT_TEST(sw_retires_in_every_interleaving)
{
	shape.retire = true;
	CHECK_STR(explore(1, 1, 2, 1, FAULT_NONE, 0), "");
	CHECK_STR(explore(1, 1, 2, 2, FAULT_NONE, 0), "");
	CHECK_STR(explore(2, 1, 1, 1, FAULT_NONE, 0), "");
	CHECK_STR(explore(0, 2, 1, 1, FAULT_NONE, 0), "");
	shape.retire = false;
}

UNIT_TEST(sw_cancels_in_every_interleaving)
{
	const char *without;

	shape.cancels = true;
	CHECK_STR(explore(1, 1, 2, 1, FAULT_NONE, 0), "");
	without = explore(1, 1, 2, 1, FAULT_NO_FLUSH, 0);
	shape.retire = true;
	CHECK_STR(explore(1, 1, 1, 1, FAULT_NONE, 0), "");
	CHECK_STR(explore(0, 1, 2, 1, FAULT_NONE, 0), "");
	shape.retire = shape.cancels = false;
	CHECK(*without);
}

UNIT_TEST(sw_that_forgets_copies_which_begin_is_caught)
{
	shape.retire = true;
	CHECK(*explore(1, 1, 1, 1, FAULT_RUNNING_LATE, 0));
	CHECK(*explore(1, 1, 1, 1, FAULT_CLOSE_BY_READY, 0));
	shape.retire = false;
}
