/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of board/ only. */
#ifndef SLUICE_BOARD_PRIVATE_H
#define SLUICE_BOARD_PRIVATE_H

#include "board/board.h"

struct board_line {
	BASE_ALIGNED_LINE _Atomic uint64_t ended; /* this and all before; release, read acquire */
	/* Rank 0's only: so many ranks wait until others have ended something. */
	BASE_ALIGNED_LINE _Atomic uint32_t starved;
};

struct board_record {
	BASE_ALIGNED_LINE _Atomic uint64_t number; /* release, read acquire */
	uint32_t bytes, unused;
	char message[BOARD_BYTES];
};

_Static_assert(sizeof(struct board_record) == BOARD_RECORD_BYTES, "records lie side by side");

struct board {
	struct node_group *group;
	uint64_t area_off;
	int rank, size;
	uint64_t starved; /* a bit a lane (without lanes bit 0); any: counted in `starved` of rank
			     0's line */
	/* without lanes */
	uint64_t begun;      /* the last number given */
	uint64_t ended;      /* all up to this are, by this rank */
	uint64_t ended_all;  /* ... by every rank, when somebody looked last */
	uint32_t ended_here; /* bit n % BOARD_RECORDS: ended, though one before is not */
	/* with lanes */
	uint32_t lanes;
	uint64_t *turns_ended_all; /* by lane: turns that every rank had ended, when somebody looked
				      last */
};

static inline struct board_line *board_line_of(const struct board *b, int rank)
{
	return (struct board_line *)((char *)node_area(b->group, rank) + b->area_off);
}

/* Who ends something wakes the others from here on, until board_fed() of each lane that starves. */
static inline void board_starve(struct board *b, uint32_t lane)
{
	uint64_t before = b->starved;

	b->starved |= 1ull << lane;
	if (before)
		return;
	atomic_fetch_add_explicit(&board_line_of(b, 0)->starved, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* partner: board_feed */
}

static inline void board_fed(struct board *b, uint32_t lane)
{
	if (base_likely(!(b->starved >> lane & 1)))
		return;
	b->starved &= ~(1ull << lane);
	if (!b->starved)
		atomic_fetch_sub_explicit(&board_line_of(b, 0)->starved, 1, memory_order_relaxed);
}

/* One fence is enough for all of them. */
static inline void board_ring_others(const struct board *b)
{
	int first = b->rank ? 0 : 1;

	node_ring(b->group, first);
	for (int k = first + 1; k < b->size; k++)
		if (k != b->rank)
			node_ring_soon(b->group, k);
}

/* This rank has ended something, and said so. */
static inline void board_feed(const struct board *b)
{
	atomic_thread_fence(memory_order_seq_cst); /* partner: board_starve */
	if (base_unlikely(
		    atomic_load_explicit(&board_line_of(b, 0)->starved, memory_order_relaxed)))
		board_ring_others(b);
}

/* ---- lanes.c ----------------------------------------------------------------------------- */

struct board_record *board_lane_record(const struct board *b, int rank, uint64_t n);
/* board_end() of a board with lanes. */
void board_end_turn(struct board *b, uint64_t n);

#endif
