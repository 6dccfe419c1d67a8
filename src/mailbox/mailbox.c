/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Records and their numbers. A mailbox without lanes is one lane of MAILBOX_RECORDS records. The
 * bits of a number, from the highest on: turn / records of a lane, lane, turn % records of a lane.
 * The last two are the place of its record.
 */
#include <errno.h>
#include <stdlib.h>

#include "mailbox/mailbox.h"

#define IS_POWER_OF_2(n) (!((n) & ((n) - 1)))
_Static_assert(IS_POWER_OF_2(MAILBOX_RECORDS) && IS_POWER_OF_2(MAILBOX_TURNS),
	       "numbers are made of bits");
_Static_assert(MAILBOX_RECORDS <= 8 * sizeof(uint32_t), "a bit for each that can be in flight");

struct mailbox_line {
	/* Valid in rank 0's line: number of ranks that wait for an end. */
	BASE_ALIGNED_LINE _Atomic uint32_t starved;
};

enum result { RESULT_NONE, RESULT_CLAIMED, RESULT_READY };

struct mailbox_record {
	BASE_ALIGNED_LINE _Atomic uint64_t number; /* release, read acquire */
	uint32_t bytes;
	_Atomic uint32_t result; /* of rank 0: enum result */
	char message[MAILBOX_BYTES];
};

_Static_assert(2 * MAILBOX_RESULT_BYTES <= MAILBOX_BYTES, "a message and a result");
_Static_assert(sizeof(struct mailbox_record) == MAILBOX_RECORD_BYTES, "records lie side by side");

struct mailbox_lane {
	uint64_t ended;      /* this rank has ended all turns up to it */
	uint64_t ended_all;  /* every rank had ended all turns up to it, at the last check */
	uint32_t ended_here; /* a bit per turn in flight: ended before an earlier one */
};

struct mailbox {
	struct node_group *group;
	uint64_t area_off;
	int rank, size;
	uint32_t lane_bits, turn_bits; /* in numbers */
	uint64_t begun;                /* without lanes: the last number begun */
	uint64_t starved; /* lanes that wait for an end; not 0: counted in rank 0's line */
	struct mailbox_lane *lanes;
};

/* ---- the layout of an area --------------------------------------------------------------- */

static struct mailbox_line *line_of(const struct mailbox *b, int rank)
{
	return (struct mailbox_line *)((char *)node_area(b->group, rank) + b->area_off);
}

/* By lane: a rank has ended all turns up to it; release, read acquire. */
static _Atomic uint64_t *ended_of(const struct mailbox *b, int rank)
{
	return (_Atomic uint64_t *)(line_of(b, rank) + 1);
}

static uint64_t ended_bytes(uint32_t lane_bits)
{
	return base_round_up(sizeof(uint64_t) << lane_bits, BASE_CACHE_LINE);
}

static struct mailbox_record *record_of(const struct mailbox *b, int rank, uint64_t n)
{
	uint64_t places = 1ull << (b->lane_bits + b->turn_bits);

	return (struct mailbox_record *)((char *)ended_of(b, rank) + ended_bytes(b->lane_bits)) +
	       (n & (places - 1));
}

static uint32_t lane_bits_of(uint32_t lanes)
{
	return lanes > 1 ? 32 - (uint32_t)__builtin_clz(lanes - 1) : 0;
}

static uint32_t turn_bits_of(uint32_t lanes)
{
	return (uint32_t)__builtin_ctz(lanes ? MAILBOX_TURNS : MAILBOX_RECORDS);
}

uint64_t mailbox_area_bytes(uint32_t lanes)
{
	return sizeof(struct mailbox_line) + ended_bytes(lane_bits_of(lanes)) +
	       (sizeof(struct mailbox_record) << (lane_bits_of(lanes) + turn_bits_of(lanes)));
}

int mailbox_create(struct node_group *g, uint64_t area_off, uint32_t lanes, struct mailbox **out)
{
	uint32_t bits = lane_bits_of(lanes);
	struct mailbox *b = calloc(1, sizeof *b + (sizeof *b->lanes << bits));

	if (!b)
		return -ENOMEM;
	*b = (struct mailbox){
		.group = g,
		.area_off = area_off,
		.rank = node_rank(g),
		.size = node_size(g),
		.lane_bits = bits,
		.turn_bits = turn_bits_of(lanes),
		.lanes = (struct mailbox_lane *)(b + 1),
	};
	*out = b;
	return 0;
}

void mailbox_destroy(struct mailbox *b) { free(b); }

/* ---- numbers ----------------------------------------------------------------------------- */

static uint64_t low_bits(uint64_t n, uint32_t bits) { return n & ((1ull << bits) - 1); }

static uint64_t number_of(const struct mailbox *b, uint32_t lane, uint64_t turn)
{
	return ((turn >> b->turn_bits << b->lane_bits | lane) << b->turn_bits) |
	       low_bits(turn, b->turn_bits);
}

static uint32_t lane_of(const struct mailbox *b, uint64_t n)
{
	return (uint32_t)low_bits(n >> b->turn_bits, b->lane_bits);
}

static uint64_t turn_of(const struct mailbox *b, uint64_t n)
{
	return n >> b->turn_bits >> b->lane_bits << b->turn_bits | low_bits(n, b->turn_bits);
}

static uint32_t bit_of(const struct mailbox *b, uint64_t turn)
{
	return 1u << low_bits(turn, b->turn_bits);
}

/* ---- waking ------------------------------------------------------------------------------ */

/* One fence serves all wake-ups. */
static void wake_others(const struct mailbox *b)
{
	int first = b->rank ? 0 : 1;

	node_wake(b->group, first);
	for (int k = first + 1; k < b->size; k++)
		if (k != b->rank)
			node_wake_relaxed(b->group, k);
}

/* From here until fed() of each such lane, a rank that ends a collective wakes the others. */
static void starve(struct mailbox *b, uint32_t lane)
{
	uint64_t before = b->starved;

	b->starved |= 1ull << lane;
	if (before)
		return;
	atomic_fetch_add_explicit(&line_of(b, 0)->starved, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* partner: feed */
}

static void fed(struct mailbox *b, uint32_t lane)
{
	if (base_likely(!(b->starved >> lane & 1)))
		return;
	b->starved &= ~(1ull << lane);
	if (!b->starved)
		atomic_fetch_sub_explicit(&line_of(b, 0)->starved, 1, memory_order_relaxed);
}

/* Call after this rank has published an end. */
static void feed(const struct mailbox *b)
{
	atomic_thread_fence(memory_order_seq_cst); /* partner: starve */
	if (base_unlikely(atomic_load_explicit(&line_of(b, 0)->starved, memory_order_relaxed)))
		wake_others(b);
}

/* ---- beginning, posting, ending ---------------------------------------------------------- */

static bool has_room(struct mailbox *b, uint32_t lane, uint64_t turn)
{
	uint64_t least = UINT64_MAX, room = 1ull << b->turn_bits;

	if (base_likely(turn <= b->lanes[lane].ended_all + room))
		return true;
	for (int r = 0; r < b->size; r++) /* partner of acquire: mailbox_end */
		least = base_min_u64(
			least, atomic_load_explicit(&ended_of(b, r)[lane], memory_order_acquire));
	b->lanes[lane].ended_all = least;
	return turn <= least + room;
}

uint64_t mailbox_begin_turn(struct mailbox *b, uint32_t lane, uint64_t turn)
{
	if (base_unlikely(!has_room(b, lane, turn))) {
		starve(b, lane);
		if (!has_room(b, lane, turn))
			return 0;
	}
	fed(b, lane);
	return number_of(b, lane, turn);
}

uint64_t mailbox_begin(struct mailbox *b)
{
	uint64_t n = mailbox_begin_turn(b, 0, b->begun + 1);

	b->begun += n != 0;
	return n;
}

void *mailbox_record(const struct mailbox *b, uint64_t n)
{
	return record_of(b, b->rank, n)->message;
}

void mailbox_post(struct mailbox *b, uint64_t n, uint32_t bytes)
{
	struct mailbox_record *r = record_of(b, b->rank, n);

	r->bytes = bytes;
	atomic_store_explicit(&r->result, RESULT_NONE, memory_order_relaxed);
	atomic_store_explicit(&r->number, n, memory_order_release); /* partner: mailbox_peek */
	wake_others(b);
}

const void *mailbox_peek(const struct mailbox *b, int rank, uint64_t n, uint32_t *out_bytes)
{
	const struct mailbox_record *r = record_of(b, rank, n);

	if (atomic_load_explicit(&r->number, memory_order_acquire) != n) /* partner: mailbox_post */
		return NULL;
	*out_bytes = (uint32_t)base_min_u64(r->bytes, MAILBOX_BYTES);
	return r->message;
}

/* It lies behind rank 0's message, and as long as that. */
const void *mailbox_result(const struct mailbox *b, uint64_t n, uint32_t bytes, void **out_place)
{
	struct mailbox_record *r = record_of(b, 0, n);
	char *place = r->message + MAILBOX_RESULT_BYTES;
	uint32_t state = atomic_load_explicit(&r->result, memory_order_acquire);

	*out_place = NULL;
	if (r->bytes != bytes || bytes > MAILBOX_RESULT_BYTES)
		return NULL;
	if (state == RESULT_READY) /* partner: mailbox_publish */
		return place;
	if (state == RESULT_NONE &&
	    atomic_compare_exchange_strong_explicit(&r->result, &state, RESULT_CLAIMED,
						    memory_order_relaxed, memory_order_relaxed))
		*out_place = place;
	return NULL;
}

void mailbox_publish(const struct mailbox *b, uint64_t n)
{
	atomic_store_explicit(&record_of(b, 0, n)->result, RESULT_READY, memory_order_release);
}

void mailbox_end(struct mailbox *b, uint64_t n)
{
	uint32_t lane = lane_of(b, n);
	struct mailbox_lane *l = &b->lanes[lane];

	l->ended_here |= bit_of(b, turn_of(b, n));
	if (turn_of(b, n) != l->ended + 1)
		return;
	while (l->ended_here & bit_of(b, l->ended + 1))
		l->ended_here &= ~bit_of(b, ++l->ended);
	/* the next writer of the record has seen that it was read. Partner: has_room */
	atomic_store_explicit(&ended_of(b, b->rank)[lane], l->ended, memory_order_release);
	feed(b);
}
