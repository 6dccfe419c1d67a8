/* SPDX-License-Identifier: BSD-3-Clause */
/* A board with lanes. The numbers of a lane's turns lead to its own records, in turn. */
#include <errno.h>
#include <stdlib.h>

#include "board/private.h"

static uint64_t number_of(const struct board *b, uint32_t lane, uint64_t turn)
{
	return (turn / BOARD_TURNS * b->lanes + lane) * BOARD_TURNS + turn % BOARD_TURNS;
}

static uint32_t lane_of(const struct board *b, uint64_t n)
{
	return (uint32_t)(n / BOARD_TURNS % b->lanes);
}

static uint64_t turn_of(const struct board *b, uint64_t n)
{
	return n / BOARD_TURNS / b->lanes * BOARD_TURNS + n % BOARD_TURNS;
}

/* By lane: the last turn that a rank has ended; release, read acquire. */
static _Atomic uint64_t *ended_of(const struct board *b, int rank)
{
	return (_Atomic uint64_t *)(board_line_of(b, rank) + 1);
}

static uint64_t ended_bytes(uint32_t lanes)
{
	return base_round_up(lanes * sizeof(uint64_t), BASE_CACHE_LINE);
}

struct board_record *board_lane_record(const struct board *b, int rank, uint64_t n)
{
	return (struct board_record *)((char *)ended_of(b, rank) + ended_bytes(b->lanes)) +
	       n % (b->lanes * BOARD_TURNS);
}

uint64_t board_lanes_area_bytes(uint32_t lanes)
{
	return sizeof(struct board_line) + ended_bytes(lanes) +
	       lanes * BOARD_TURNS * sizeof(struct board_record);
}

int board_create_lanes(struct node_group *g, uint64_t area_off, uint32_t lanes, struct board **out)
{
	uint64_t *ended = calloc(lanes, sizeof *ended);
	int ret = ended ? board_create(g, area_off, out) : -ENOMEM;

	if (ret) {
		free(ended);
		return ret;
	}
	(*out)->lanes = lanes;
	(*out)->turns_ended_all = ended;
	return 0;
}

static bool has_room(struct board *b, uint32_t lane, uint64_t turn)
{
	uint64_t *ended = &b->turns_ended_all[lane], least = UINT64_MAX;

	if (turn <= *ended + BOARD_TURNS)
		return true;
	for (int r = 0; r < b->size; r++) /* partner of acquire: board_end_turn */
		least = base_min_u64(
			least, atomic_load_explicit(&ended_of(b, r)[lane], memory_order_acquire));
	*ended = least;
	return turn <= least + BOARD_TURNS;
}

uint64_t board_begin_turn(struct board *b, uint32_t lane, uint64_t turn)
{
	if (base_unlikely(!has_room(b, lane, turn))) {
		board_starve(b, lane);
		if (!has_room(b, lane, turn))
			return 0;
	}
	board_fed(b, lane);
	return number_of(b, lane, turn);
}

void board_end_turn(struct board *b, uint64_t n)
{
	/* who writes a record again has seen that it was read. Partner: has_room */
	atomic_store_explicit(&ended_of(b, b->rank)[lane_of(b, n)], turn_of(b, n),
			      memory_order_release);
	board_feed(b);
}
