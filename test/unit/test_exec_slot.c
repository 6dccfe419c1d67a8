/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A slot that is used again, every interleaving: the steps of publish() in exec/exec.c and of
 * match_view() in exec/match.c, with claiming by the functions of xfer/protocol.c. A helper that is
 * late by a whole turn of the slots must not mix what it reads of two collectives and claim by it.
 */
#include <stdlib.h>
#include <string.h>

#include "unit.h"
#include "xfer/xfer.h"

#include "interleave_xfer.h"

enum { COLLECTIVES = 2 };
static const uint32_t fragments[COLLECTIVES + 1] = { 0, 1, 2 };
static bool without_invalidation, without_second_look;

struct world {
	struct xfer x;
	_Atomic uint64_t op, schedule,
		desc; /* of the slot; schedule and desc are two of its many words */
};

struct place {
	uint64_t tag, phase;
};
enum { PHASE_BEGIN, PHASE_MOVE };

static void world_init(void *shared)
{
	*(struct world *)shared = (struct world){ 0 };
}

static void publish(struct world *w, uint64_t tag)
{
	if (!without_invalidation) {
		atomic_store_explicit(&w->op, 0, memory_order_relaxed);
		atomic_thread_fence(memory_order_release);
	}
	atomic_store_explicit(&w->schedule, tag, memory_order_relaxed);
	atomic_store_explicit(&w->desc, tag, memory_order_relaxed);
	model_open(&w->x, tag);
	atomic_store_explicit(&w->op, tag, memory_order_release);
}

static void move(struct world *w, uint64_t tag, uint64_t schedule, uint64_t desc)
{
	uint32_t i = model_claim(&w->x, tag, fragments[schedule], 0);

	if (i == XFER_NONE)
		return;
	if (schedule != tag || desc != tag)
		il_fail("a fragment was claimed by what belongs to another collective");
	model_complete(&w->x, xfer_bit(i), xfer_bits(fragments[tag] + 1));
}

static bool receiver_round(struct world *w, struct place *p)
{
	if (p->phase == PHASE_BEGIN) {
		publish(w, ++p->tag);
		model_complete(&w->x, xfer_bit(fragments[p->tag]),
			       xfer_bits(fragments[p->tag] + 1));
		p->phase = PHASE_MOVE;
		return true;
	}
	move(w, p->tag, p->tag, p->tag);
	if (!model_is_done(&w->x, p->tag, xfer_bits(fragments[p->tag] + 1)))
		return true;
	p->phase = PHASE_BEGIN;
	return p->tag < COLLECTIVES;
}

/* In collective number p->tag; goes on to the next whenever it likes, as its own part may be over.
 */
static bool helper_round(struct world *w, struct place *p)
{
	uint64_t schedule, desc;

	if (p->phase == PHASE_BEGIN) {
		p->tag++;
		p->phase = PHASE_MOVE;
	}
	if (atomic_load_explicit(&w->op, memory_order_acquire) == p->tag) {
		schedule = atomic_load_explicit(&w->schedule, memory_order_relaxed);
		desc = atomic_load_explicit(&w->desc, memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		if (without_second_look ||
		    atomic_load_explicit(&w->op, memory_order_relaxed) == p->tag)
			move(w, p->tag, schedule, desc);
	}
	p->phase = PHASE_BEGIN;
	return p->tag < COLLECTIVES;
}

static bool world_round(int t, void *shared, void *local)
{
	return t ? helper_round(shared, local) : receiver_round(shared, local);
}

static const char *explore(unsigned mutation)
{
	const struct il_model m = {
		.threads = 2,
		.shared_bytes = sizeof(struct world),
		.local_bytes = sizeof(struct place),
		.mutation = mutation,
		.init = world_init,
		.round = world_round,
	};

	return il_violation(&m);
}

UNIT_TEST(slot_used_again_holds_in_every_interleaving)
{
	CHECK_STR(explore(0) ?: "", "");
}

UNIT_TEST(slot_without_fence_is_caught)
{
	CHECK(explore(IL_NO_FENCE));
}

UNIT_TEST(slot_that_is_not_invalidated_is_caught)
{
	const char *violation;

	without_invalidation = true;
	violation = explore(0);
	without_invalidation = false;
	CHECK(violation);
}

UNIT_TEST(slot_that_is_not_looked_at_again_is_caught)
{
	const char *violation;

	without_second_look = true;
	violation = explore(0);
	without_second_look = false;
	CHECK(violation);
}
