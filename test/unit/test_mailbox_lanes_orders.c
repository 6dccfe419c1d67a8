/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A mailbox with two lanes of one record each, every interleaving of a rank that posts in both and
 * one that reads them in an order of its own: nobody reads what belongs to another turn or lane,
 * and nobody sleeps for ever, neither for a message nor for room in one lane while there is some in
 * the other.
 */
#include <stdlib.h>
#include <string.h>

#define MAILBOX_RECORDS      2u
#define MAILBOX_RECORD_BYTES 64u
#define MAILBOX_TURNS        1u
#define MAILBOX_RESULT_BYTES 16u
#include "interleave_mailbox.h"
#define mailbox_area_bytes        laned_area_bytes
#define mailbox_create            laned_create
#define mailbox_destroy           laned_destroy
#define mailbox_begin             laned_begin
#define mailbox_begin_turn        laned_begin_turn
#define mailbox_record            laned_record
#define mailbox_post              laned_post
#define mailbox_peek              laned_look
#define mailbox_end               laned_end
#define mailbox_result            laned_result
#define mailbox_publish           laned_publish
enum { LANES = 2, TURNS = 2 };
#include "mailbox/mailbox.c"

struct area {
	struct mailbox_line line;
	BASE_ALIGNED_LINE _Atomic uint64_t ended[LANES];
	struct mailbox_record records[LANES];
};
struct world {
	struct area area[RANKS];
	_Atomic uint32_t bell[RANKS];
};
static struct world *world;

static void *world_area(int rank) { return &world->area[rank]; }

static void world_ring(int rank)
{
	atomic_fetch_add_explicit(&world->bell[rank], 1, memory_order_release);
	il_futex_wake(&world->bell[rank]);
}

enum phase { TRY, HEAR, SLEEP };
struct place {
	struct mailbox b;
	struct mailbox_lane lanes[LANES];
	uint64_t done[LANES], n; /* n: the reader's, begun and not read yet */
	enum phase phase;
	uint32_t bell, lane;
	bool has_heard;
};

static uint64_t message_of(uint32_t lane, uint64_t turn) { return turn * 10 + lane; }

/* The poster writes a lane's next turn, if there is room. */
static void post(struct place *p)
{
	uint64_t turn = p->done[p->lane] + 1,
		 n = turn > TURNS ? 0 : laned_begin_turn(&p->b, p->lane, turn);

	if (n) {
		atomic_store_explicit((_Atomic uint64_t *)laned_record(&p->b, n),
				      message_of(p->lane, turn), memory_order_relaxed);
		laned_post(&p->b, n, sizeof(uint64_t));
		laned_end(&p->b, n);
		p->done[p->lane] = turn;
	}
	/* as what waits its turn behind others is tried in each pass, and another pass is made
	 * before a sleep only where something has come in */
	if (++p->lane < LANES)
		return;
	p->lane = 0;
	p->phase = p->has_heard ? SLEEP : HEAR;
}

/* The reader reads one lane after the other, the last first. */
static void read_one(struct place *p)
{
	uint32_t lane = LANES - 1 - p->lane, bytes;
	uint64_t turn = p->done[lane] + 1;
	const _Atomic uint64_t *m;

	if (!p->n)
		p->n = laned_begin_turn(&p->b, lane, turn);
	m = p->n ? laned_look(&p->b, 0, p->n, &bytes) : NULL;
	if (!m) {
		p->phase = p->has_heard ? SLEEP : HEAR;
		return;
	}
	if (atomic_load_explicit(m, memory_order_relaxed) != message_of(lane, turn))
		il_fail("a message belongs to another turn or lane");
	laned_end(&p->b, p->n);
	p->n = 0;
	p->done[lane] = turn;
	p->lane = (p->lane + 1) % LANES;
	p->has_heard = false;
}

static bool is_through(const struct place *p)
{
	for (int i = 0; i < LANES; i++)
		if (p->done[i] < TURNS)
			return false;
	return true;
}

static bool world_round(int t, void *shared, void *local)
{
	struct place *p = local;

	world = shared;
	p->b.rank = t;
	p->b.size = RANKS;
	p->b.lane_bits = lane_bits_of(LANES);
	p->b.turn_bits = turn_bits_of(LANES);
	p->b.lanes = p->lanes;
	switch (p->phase) {
	case HEAR: /* once more is looked after that */
		p->bell = atomic_load_explicit(&world->bell[t], memory_order_acquire);
		p->has_heard = true;
		p->phase = TRY;
		break;
	case SLEEP:
		il_futex_wait(&world->bell[t], p->bell);
		p->has_heard = false;
		p->phase = TRY;
		break;
	case TRY:
		t ? read_one(p) : post(p);
		break;
	}
	p->b.lanes = NULL; /* the place is not always the same */
	return !is_through(p);
}

static void world_init(void *shared) { memset(shared, 0, sizeof(struct world)); }

static const char *explore(unsigned mutation)
{
	const struct il_model m = {
		.threads = RANKS,
		.shared_bytes = sizeof(struct world),
		.local_bytes = sizeof(struct place),
		.mutation = mutation,
		.init = world_init,
		.round = world_round,
	};

	_Static_assert(sizeof(struct world) <= IL_SHARED_BYTES &&
			       sizeof(struct place) <= IL_LOCAL_BYTES,
		       "it has room");
	return il_violation(&m);
}

UNIT_TEST(lanes_hold_in_every_interleaving) { CHECK_STR(explore(0) ?: "", ""); }
UNIT_TEST(lanes_without_release_are_caught) { CHECK(explore(IL_NO_RELEASE)); }
UNIT_TEST(lanes_without_fences_are_caught) { CHECK(explore(IL_NO_FENCE)); }
