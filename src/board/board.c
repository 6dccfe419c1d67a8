/* SPDX-License-Identifier: BSD-3-Clause */
#include "board/board.h"

#include <errno.h>
#include <stdlib.h>

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
	uint64_t begun;      /* the last number given */
	uint64_t ended;      /* all up to this are, by this rank */
	uint64_t ended_all;  /* ... by every rank, when somebody looked last */
	uint32_t ended_here; /* bit n % BOARD_RECORDS: ended, though one before is not */
	bool is_starved;     /* counted in `starved` */
};

_Static_assert(BOARD_RECORDS <= 8 * sizeof(uint32_t), "a bit for each that can be in flight");

static uint32_t bit_of(uint64_t n) { return 1u << n % BOARD_RECORDS; }

uint64_t board_area_bytes(void) { return sizeof(struct board_line) + BOARD_RECORDS * sizeof(struct board_record); }

static struct board_line *line_of(const struct board *b, int rank)
{
	return (struct board_line *)((char *)node_area(b->group, rank) + b->area_off);
}

static struct board_record *record_of(const struct board *b, int rank, uint64_t n)
{
	return (struct board_record *)(line_of(b, rank) + 1) + n % BOARD_RECORDS;
}

int board_create(struct node_group *g, uint64_t area_off, struct board **out)
{
	struct board *b = calloc(1, sizeof *b);

	if (!b)
		return -ENOMEM;
	b->group = g;
	b->area_off = area_off;
	b->rank = node_rank(g);
	b->size = node_size(g);
	*out = b;
	return 0;
}

void board_destroy(struct board *b) { free(b); }

static uint64_t ended_by_all(const struct board *b)
{
	uint64_t least = UINT64_MAX;

	for (int r = 0; r < b->size; r++) /* partner of acquire: board_end */
		least = base_min_u64(least, atomic_load_explicit(&line_of(b, r)->ended, memory_order_acquire));
	return least;
}

static bool has_room(struct board *b, uint64_t n)
{
	if (n > b->ended_all + BOARD_RECORDS)
		b->ended_all = ended_by_all(b);
	return n <= b->ended_all + BOARD_RECORDS;
}

/* From here on who ends something wakes the others. */
static bool has_room_at_last(struct board *b, uint64_t n)
{
	_Atomic uint32_t *starved = &line_of(b, 0)->starved;

	if (!b->is_starved) {
		atomic_fetch_add_explicit(starved, 1, memory_order_relaxed);
		b->is_starved = true;
		atomic_thread_fence(memory_order_seq_cst); /* partner: board_end */
	}
	if (!has_room(b, n))
		return false;
	atomic_fetch_sub_explicit(starved, 1, memory_order_relaxed);
	b->is_starved = false;
	return true;
}

uint64_t board_begin(struct board *b)
{
	uint64_t n = b->begun + 1;

	if (base_unlikely(!has_room(b, n)) && !has_room_at_last(b, n))
		return 0;
	b->begun = n;
	return n;
}

void *board_record(const struct board *b, uint64_t n) { return record_of(b, b->rank, n)->message; }

/* One fence is enough for all of them. */
static void ring_others(const struct board *b)
{
	int first = b->rank ? 0 : 1;

	node_ring(b->group, first);
	for (int k = first + 1; k < b->size; k++)
		if (k != b->rank)
			node_ring_soon(b->group, k);
}

void board_post(struct board *b, uint64_t n, uint32_t bytes)
{
	struct board_record *r = record_of(b, b->rank, n);

	r->bytes = bytes;
	atomic_store_explicit(&r->number, n, memory_order_release); /* partner: board_look */
	ring_others(b);
}

const void *board_look(const struct board *b, int rank, uint64_t n, uint32_t *out_bytes)
{
	const struct board_record *r = record_of(b, rank, n);

	if (atomic_load_explicit(&r->number, memory_order_acquire) != n) /* partner: board_post */
		return NULL;
	*out_bytes = (uint32_t)base_min_u64(r->bytes, BOARD_BYTES);
	return r->message;
}

void board_end(struct board *b, uint64_t n)
{
	b->ended_here |= bit_of(n);
	if (n != b->ended + 1)
		return;
	while (b->ended_here & bit_of(b->ended + 1))
		b->ended_here &= ~bit_of(++b->ended);
	/* who writes a record again has seen that it was read. Partner: ended_by_all */
	atomic_store_explicit(&line_of(b, b->rank)->ended, b->ended, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst); /* partner: has_room_at_last */
	if (base_unlikely(atomic_load_explicit(&line_of(b, 0)->starved, memory_order_relaxed)))
		ring_others(b);
}
