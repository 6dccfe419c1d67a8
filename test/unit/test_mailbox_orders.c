/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mailbox with two records, every interleaving of two ranks that exchange numbers through it, or
 * of which one only reads: nobody reads what belongs to another collective, and nobody sleeps for
 * ever, neither for a message nor for room.
 */
#include <stdlib.h>
#include <string.h>

#define MAILBOX_RECORDS      2u
#define MAILBOX_RECORD_BYTES 64u
#define MAILBOX_TURNS        2u
#define MAILBOX_RESULT_BYTES 16u
#include "interleave_mailbox.h"
#define mailbox_area_bytes        model_area_bytes
#define mailbox_create            model_create
#define mailbox_destroy           model_destroy
#define mailbox_begin             model_begin
#define mailbox_begin_turn        model_begin_turn
#define mailbox_record            model_record
#define mailbox_post              model_post
#define mailbox_peek              model_look
#define mailbox_end               model_end
#define mailbox_result            model_result
#define mailbox_publish           model_publish
enum { COLLECTIVES = 4 };
#include "mailbox/mailbox.c"

struct world {
	struct {
		struct mailbox_line line;
		BASE_ALIGNED_LINE _Atomic uint64_t ended;
		struct mailbox_record records[MAILBOX_RECORDS];
	} area[RANKS];
	_Atomic uint32_t bell[RANKS];
};
static struct world *world;
static bool is_one_way; /* rank 0 only posts, rank 1 only reads */

static void *world_area(int rank) { return &world->area[rank]; }

static void world_ring(int rank)
{
	atomic_fetch_add_explicit(&world->bell[rank], 1, memory_order_release);
	il_futex_wake(&world->bell[rank]);
}

enum phase { BEGIN, LOOK, WAIT };
struct place {
	struct mailbox b;
	struct mailbox_lane lane;
	uint64_t n;
	enum phase phase, back;
	uint32_t bell;
};

static uint64_t message_of(int rank, uint64_t n) { return n * 10 + (uint64_t)rank; }

/* Looks once more after it has read its bell, then sleeps until it rings. */
static void pause_at(struct place *p, int t, enum phase phase)
{
	if (p->back == phase && p->phase == WAIT) {
		il_futex_wait(&world->bell[t], p->bell);
		p->phase = phase;
		p->back = BEGIN + 100;
		return;
	}
	p->bell = atomic_load_explicit(&world->bell[t], memory_order_acquire);
	p->phase = WAIT;
	p->back = phase;
}

static void begin(struct place *p, int t)
{
	uint64_t n = model_begin(&p->b);

	if (!n) {
		pause_at(p, t, BEGIN);
		return;
	}
	p->n = n;
	p->phase = LOOK;
	if (is_one_way && t)
		return;
	atomic_store_explicit((_Atomic uint64_t *)model_record(&p->b, n), message_of(t, n),
			      memory_order_relaxed);
	model_post(&p->b, n, sizeof(uint64_t));
	if (!is_one_way)
		return;
	model_end(&p->b, n);
	p->phase = BEGIN;
}

/* Both ranks have found both messages: one of them may combine for both. */
static void share(struct place *p)
{
	void *place;
	const _Atomic uint64_t *result =
		model_result(&p->b, p->n, sizeof(uint64_t), &place);

	if (result && atomic_load_explicit(result, memory_order_relaxed) != p->n * 1000)
		il_fail("a result belongs to another collective");
	if (!place)
		return;
	atomic_store_explicit((_Atomic uint64_t *)place, p->n * 1000, memory_order_relaxed);
	model_publish(&p->b, p->n);
}

static void look(struct place *p, int t)
{
	uint32_t bytes;
	const _Atomic uint64_t *m = model_look(&p->b, !t, p->n, &bytes);

	if (!m) {
		pause_at(p, t, LOOK);
		return;
	}
	if (atomic_load_explicit(m, memory_order_relaxed) != message_of(!t, p->n))
		il_fail("a message belongs to another collective");
	if (!is_one_way)
		share(p);
	model_end(&p->b, p->n);
	p->phase = BEGIN;
}

static bool world_round(int t, void *shared, void *local)
{
	struct place *p = local;
	enum phase now = p->phase == WAIT ? p->back : p->phase;

	world = shared;
	p->b.rank = t;
	p->b.size = RANKS;
	p->b.turn_bits = turn_bits_of(0);
	p->b.lanes = &p->lane;
	if (now == BEGIN)
		begin(p, t);
	else
		look(p, t);
	p->b.lanes = NULL; /* the place is not always the same */
	return p->phase != BEGIN || p->n < COLLECTIVES;
}

static void world_init(void *shared) { memset(shared, 0, sizeof(struct world)); }

static const char *explore(bool one_way, unsigned mutation)
{
	const struct il_model m = {
		.threads = RANKS,
		.shared_bytes = sizeof(struct world),
		.local_bytes = sizeof(struct place),
		.mutation = mutation,
		.init = world_init,
		.round = world_round,
	};

	is_one_way = one_way;
	return il_violation(&m);
}

UNIT_TEST(mailbox_holds_in_every_interleaving)
{
	CHECK_STR(explore(false, 0) ?: "", "");
	CHECK_STR(explore(true, 0) ?: "", "");
}

UNIT_TEST(mailbox_without_release_is_caught) { CHECK(explore(false, IL_NO_RELEASE)); }
UNIT_TEST(mailbox_without_fences_is_caught) { CHECK(explore(true, IL_NO_FENCE)); }
