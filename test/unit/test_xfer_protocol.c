/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Claiming and completing, every interleaving: a receiver that opens the same transfer for one
 * collective after the other, and movers that may be late by any number of steps, so that they hold
 * the tag of a collective that is over. The functions are those of xfer/protocol.c.
 */
#include <stdlib.h>
#include <string.h>

#include "unit.h"
#include "xfer/xfer.h"

/* The code under test, its atomics turned into scheduling points. */
static bool without_tags;
static bool tag_matches(uint64_t word, uint64_t tag)
{
	return without_tags || xfer_is_tag(word, tag);
}
#define xfer_is_tag tag_matches
#include "interleave_xfer.h"

enum { UNITS_MAX = 4, COLLECTIVES_MAX = 3, HALF_COPIED = 100 };
enum {
	FAULT_NONE,
	FAULT_OPEN_TAKEN_FIRST,
	FAULT_COMPLETE_EARLY,
	FAULT_REOPEN_EARLY,
	FAULT_TOTAL_WITHOUT_EDGES,
	FAULT_UNCLAIM_LATE
};

static struct {
	int movers, collectives;
	uint32_t fragments[COLLECTIVES_MAX + 1];
	int fault;
	bool bold;         /* helpers try tags that they have not seen published */
	bool shared_edges; /* are a unit that anyone can claim, not the receiver's own */
	bool marks;        /* the last mover says what it is about to claim */
	bool gives_back;   /* movers give the first unit that they claim of a transfer back, half
			      copied */
} shape;

struct world {
	struct xfer x;
	_Atomic uint64_t published;       /* collective whose descriptors are in the slot */
	_Atomic uint64_t intent;
	_Atomic uint64_t data[UNITS_MAX]; /* what is copied: the collective's number */
	/* ghosts, seen by the checks only */
	uint8_t open; /* collective the transfer is open for, 0 while it is being opened */
	uint8_t held;
	uint8_t owned[UNITS_MAX];
	uint8_t copied[COLLECTIVES_MAX + 1][UNITS_MAX];
	uint8_t completed[COLLECTIVES_MAX + 1];
};

enum { RECV_OPEN, RECV_EDGES, RECV_MOVE };
enum { MOVE_LOOK, MOVE_CLAIM, MOVE_WAIT };
struct place {
	uint64_t tag, phase, gave; /* gave: the last collective of which a unit was given back */
}; /* where a thread is in its work */

static void world_init(void *shared)
{
	struct world *w = shared;

	memset(w, 0, sizeof *w);
}

static uint64_t total_of(uint64_t tag)
{
	return xfer_bits(shape.fragments[tag] + (shape.fault == FAULT_TOTAL_WITHOUT_EDGES ? 0 : 1));
}

static uint32_t units_of(uint64_t tag)
{
	return shape.fragments[tag] + shape.shared_edges;
}

static void complete(struct world *w, uint64_t tag, uint32_t i)
{
	if (model_complete(&w->x, xfer_bit(i), total_of(tag)) && il_turn())
		w->completed[tag]++;
}

static void take(struct world *w, uint64_t tag, uint32_t i)
{
	if (!il_turn())
		return;
	if (w->open != tag)
		il_fail("a unit was claimed of a transfer that is over");
	if (i >= units_of(tag) || w->copied[tag][i] || w->owned[i]++)
		il_fail("a unit was claimed twice");
	w->held++;
}

static void let_go(struct world *w, uint32_t i)
{
	if (!il_turn())
		return;
	w->owned[i]--;
	w->held--;
}

static void copy(struct world *w, uint64_t tag, uint32_t i)
{
	atomic_store_explicit(&w->data[i], tag, memory_order_relaxed);
	if (il_turn())
		w->copied[tag][i]++;
	let_go(w, i);
}

static void give_back(struct world *w, uint32_t i)
{
	if (shape.fault == FAULT_UNCLAIM_LATE)
		model_unclaim(&w->x, i);
	atomic_store_explicit(&w->data[i], HALF_COPIED, memory_order_relaxed);
	let_go(w, i);
	if (shape.fault != FAULT_UNCLAIM_LATE)
		model_unclaim(&w->x, i);
}

/* One that may be killed at any moment: while its mark is there its last intent is a claim. */
static uint32_t claim_marked(struct world *w, uint64_t tag)
{
	uint32_t i = model_claim_marked(&w->x, tag, units_of(tag), &w->intent, tag << 6);

	if (i == XFER_NONE)
		return i;
	if (il_load(&w->intent, sizeof w->intent) != (tag << 6 | i) ||
	    !model_was_claimed(&w->x, tag, i))
		il_fail("its claim could not be told from others'");
	if (model_was_claimed(&w->x, tag, i))
		il_fail("a claim was taken for another's");
	return i;
}

/* False when there is nothing to claim. */
static bool move_one(int t, struct world *w, struct place *p)
{
	uint32_t i = shape.marks && t == shape.movers ?
			     claim_marked(w, p->tag) :
			     model_claim(&w->x, p->tag, units_of(p->tag), (uint32_t)t);

	if (i == XFER_NONE)
		return false;
	take(w, p->tag, i);
	if (t && shape.gives_back && p->gave != p->tag) {
		give_back(w, i);
		p->gave = p->tag;
	} else if (shape.fault == FAULT_COMPLETE_EARLY) {
		complete(w, p->tag, i);
		copy(w, p->tag, i);
	} else {
		copy(w, p->tag, i);
		complete(w, p->tag, i);
	}
	return true;
}

static void open_taken_first(struct xfer *x, uint64_t tag)
{
	atomic_store_explicit(&x->claimed, xfer_word(tag, 0), memory_order_release);
	atomic_store_explicit(&x->done, xfer_word(tag, 0), memory_order_release);
}

static void open_transfer(struct world *w, uint64_t tag)
{
	if (il_turn()) {
		if (w->held)
			il_fail("a transfer was opened again while a unit was held");
		w->open = (uint8_t)tag;
	}
	if (shape.fault == FAULT_OPEN_TAKEN_FIRST)
		open_taken_first(&w->x, tag);
	else
		model_open(&w->x, tag);
	atomic_store_explicit(&w->published, tag, memory_order_release);
}

static void check_received(struct world *w, uint64_t tag)
{
	for (uint32_t i = 0; i < units_of(tag); i++) {
		if (il_load(&w->data[i], sizeof w->data[i]) != tag)
			il_fail("the total was reached and bytes were missing");
		if (il_learn(w->copied[tag][i]) != 1)
			il_fail("the total was reached and a unit was not copied");
	}
}

static bool is_over(struct world *w, uint64_t tag)
{
	if (shape.fault == FAULT_REOPEN_EARLY)
		return model_is_all_claimed(&w->x, tag, units_of(tag));
	return model_is_done(&w->x, tag, total_of(tag));
}

static bool receiver_round(struct world *w, struct place *p)
{
	switch (p->phase) {
	case RECV_OPEN:
		open_transfer(w, ++p->tag);
		p->phase = RECV_EDGES;
		return true;
	case RECV_EDGES:
		if (!shape.shared_edges)
			complete(w, p->tag, shape.fragments[p->tag]);
		p->phase = RECV_MOVE;
		return true;
	}
	if (move_one(0, w, p) || !is_over(w, p->tag))
		return true;
	check_received(w, p->tag);
	p->phase = RECV_OPEN;
	return (int)p->tag < shape.collectives;
}

/* Odd movers are senders, which wait for the end of the transfer; even ones are helpers. */
static bool mover_round(int t, struct world *w, struct place *p)
{
	uint64_t now;

	switch (p->phase) {
	case MOVE_LOOK:
		if (shape.bold) {
			p->tag++;
			p->phase = MOVE_CLAIM;
		}
		now = atomic_load_explicit(&w->published, memory_order_acquire);
		if (now > p->tag) {
			p->tag = now;
			p->phase = MOVE_CLAIM;
		}
		return true;
	case MOVE_CLAIM:
		if (!move_one(t, w, p) && (!shape.bold || il_learn(w->completed[p->tag])))
			p->phase = t % 2 && !shape.bold ? MOVE_WAIT : MOVE_LOOK;
		break;
	case MOVE_WAIT:
		if (!model_is_done(&w->x, p->tag, total_of(p->tag)))
			return true;
		p->phase = MOVE_LOOK;
		break;
	}
	return p->phase != MOVE_LOOK || (int)p->tag < shape.collectives;
}

static bool world_round(int t, void *shared, void *local)
{
	return t ? mover_round(t, shared, local) : receiver_round(shared, local);
}

static void world_end(void *shared)
{
	struct world *w = shared;

	for (int c = 1; c <= shape.collectives; c++)
		if (w->completed[c] != 1)
			il_fail("not exactly one mover was told that it completed the transfer");
}

static const char *explore(int movers, int collectives, unsigned mutation, int fault)
{
	const struct il_model m = {
		.threads = 1 + movers,
		.shared_bytes = sizeof(struct world),
		.local_bytes = sizeof(struct place),
		.mutation = mutation,
		.init = world_init,
		.round = world_round,
		.end = world_end,
	};

	shape.movers = movers;
	shape.collectives = collectives;
	shape.fault = fault;
	return il_violation(&m);
}

static void set_fragments(uint32_t first, uint32_t second, uint32_t third)
{
	shape.fragments[1] = first;
	shape.fragments[2] = second;
	shape.fragments[3] = third;
}

UNIT_TEST(protocol_holds_in_every_interleaving)
{
	set_fragments(2, 3, 0);
	CHECK_STR(explore(1, 2, 0, FAULT_NONE) ?: "", "");
	set_fragments(3, 2, 0);
	CHECK_STR(explore(1, 2, 0, FAULT_NONE) ?: "", "");
	set_fragments(1, 3, 2);
	CHECK_STR(explore(1, 3, 0, FAULT_NONE) ?: "", "");
	set_fragments(2, 2, 0);
	CHECK_STR(explore(2, 2, 0, FAULT_NONE) ?: "", "");
}

static const char *explore_with(bool shared_edges, bool gives_back, int movers, unsigned mutation,
				int fault)
{
	const char *violation;

	shape.shared_edges = shared_edges;
	shape.gives_back = gives_back;
	violation = explore(movers, 2, mutation, fault);
	shape.shared_edges = shape.gives_back = false;
	return violation;
}

UNIT_TEST(protocol_with_edges_for_everybody_holds_in_every_interleaving)
{
	set_fragments(1, 2, 0);
	CHECK_STR(explore_with(true, false, 1, 0, FAULT_NONE) ?: "", "");
	set_fragments(1, 1, 0);
	CHECK_STR(explore_with(true, false, 2, 0, FAULT_NONE) ?: "", "");
}

UNIT_TEST(protocol_with_units_given_back_holds_in_every_interleaving)
{
	set_fragments(2, 1, 0);
	CHECK_STR(explore_with(true, true, 1, 0, FAULT_NONE) ?: "", "");
	set_fragments(1, 1, 0);
	CHECK_STR(explore_with(false, true, 2, 0, FAULT_NONE) ?: "", "");
}

UNIT_TEST(protocol_with_a_mover_that_marks_its_claims_holds_in_every_interleaving)
{
	const char *violation[3];

	shape.marks = true;
	set_fragments(2, 3, 0);
	violation[0] = explore(1, 2, 0, FAULT_NONE);
	set_fragments(1, 2, 0);
	violation[1] = explore(2, 2, 0, FAULT_NONE);
	violation[2] = explore(1, 2, IL_BLIND_CAS, FAULT_NONE);
	shape.marks = false;
	CHECK_STR(violation[0] ?: "", "");
	CHECK_STR(violation[1] ?: "", "");
	CHECK(violation[2]);
}

/* The order of the stores in xfer_open: it alone must do, whatever else is published. */
UNIT_TEST(protocol_holds_for_helpers_that_do_not_wait_for_the_slot)
{
	const char *violation;

	set_fragments(2, 3, 0);
	shape.bold = true;
	violation = explore(1, 2, 0, FAULT_NONE);
	shape.bold = false;
	CHECK_STR(violation ?: "", "");
}

UNIT_TEST(protocol_without_release_stores_is_caught)
{
	set_fragments(2, 3, 0);
	CHECK(explore(1, 2, IL_NO_RELEASE, FAULT_NONE));
}

UNIT_TEST(protocol_with_a_claim_that_does_not_compare_is_caught)
{
	set_fragments(2, 3, 0);
	CHECK(explore(1, 2, IL_BLIND_CAS, FAULT_NONE));
}

UNIT_TEST(protocol_without_tags_is_caught)
{
	const char *violation;

	set_fragments(2, 3, 0);
	without_tags = true;
	violation = explore(1, 2, 0, FAULT_NONE);
	without_tags = false;
	CHECK(violation);
}

UNIT_TEST(protocol_that_opens_claims_first_is_caught)
{
	const char *violation;

	set_fragments(2, 3, 0);
	shape.bold = true;
	violation = explore(1, 2, 0, FAULT_OPEN_TAKEN_FIRST);
	shape.bold = false;
	CHECK(violation);
}

UNIT_TEST(protocol_that_completes_before_it_copies_is_caught)
{
	set_fragments(2, 3, 0);
	CHECK(explore(1, 2, 0, FAULT_COMPLETE_EARLY));
}

UNIT_TEST(protocol_that_reopens_when_all_is_claimed_is_caught)
{
	set_fragments(2, 3, 0);
	CHECK(explore(1, 2, 0, FAULT_REOPEN_EARLY));
}

UNIT_TEST(protocol_whose_total_leaves_out_the_edges_is_caught)
{
	set_fragments(1, 1, 0);
	CHECK(explore_with(true, false, 1, 0, FAULT_TOTAL_WITHOUT_EDGES));
}

UNIT_TEST(protocol_that_gives_a_unit_back_before_it_lets_go_is_caught)
{
	set_fragments(1, 1, 0);
	CHECK(explore_with(false, true, 1, 0, FAULT_UNCLAIM_LATE));
}

UNIT_TEST(protocol_that_gives_back_without_release_is_caught)
{
	set_fragments(1, 1, 0);
	CHECK(explore_with(false, true, 1, IL_NO_RELEASE, FAULT_NONE));
}
