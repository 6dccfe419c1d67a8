/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include "board/private.h"

_Static_assert(BOARD_RECORDS <= 8 * sizeof(uint32_t), "a bit for each that can be in flight");

static uint32_t bit_of(uint64_t n) { return 1u << n % BOARD_RECORDS; }

uint64_t board_area_bytes(void)
{
	return sizeof(struct board_line) + BOARD_RECORDS * sizeof(struct board_record);
}

static struct board_record *record_of(const struct board *b, int rank, uint64_t n)
{
	if (b->lanes)
		return board_lane_record(b, rank, n);
	return (struct board_record *)(board_line_of(b, rank) + 1) + n % BOARD_RECORDS;
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

void board_destroy(struct board *b)
{
	if (b)
		free(b->turns_ended_all);
	free(b);
}

static uint64_t ended_by_all(const struct board *b)
{
	uint64_t least = UINT64_MAX;

	for (int r = 0; r < b->size; r++) /* partner of acquire: board_end */
		least = base_min_u64(least, atomic_load_explicit(&board_line_of(b, r)->ended,
								 memory_order_acquire));
	return least;
}

static bool has_room(struct board *b, uint64_t n)
{
	if (n > b->ended_all + BOARD_RECORDS)
		b->ended_all = ended_by_all(b);
	return n <= b->ended_all + BOARD_RECORDS;
}

static bool has_room_at_last(struct board *b, uint64_t n)
{
	board_starve(b, 0);
	return has_room(b, n);
}

uint64_t board_begin(struct board *b)
{
	uint64_t n = b->begun + 1;

	if (base_unlikely(!has_room(b, n)) && !has_room_at_last(b, n))
		return 0;
	board_fed(b, 0);
	b->begun = n;
	return n;
}

void *board_record(const struct board *b, uint64_t n) { return record_of(b, b->rank, n)->message; }

void board_post(struct board *b, uint64_t n, uint32_t bytes)
{
	struct board_record *r = record_of(b, b->rank, n);

	r->bytes = bytes;
	atomic_store_explicit(&r->number, n, memory_order_release); /* partner: board_look */
	board_ring_others(b);
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
	if (b->lanes) {
		board_end_turn(b, n);
		return;
	}
	b->ended_here |= bit_of(n);
	if (n != b->ended + 1)
		return;
	while (b->ended_here & bit_of(b->ended + 1))
		b->ended_here &= ~bit_of(++b->ended);
	/* who writes a record again has seen that it was read. Partner: ended_by_all */
	atomic_store_explicit(&board_line_of(b, b->rank)->ended, b->ended, memory_order_release);
	board_feed(b);
}
