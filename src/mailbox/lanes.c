/* SPDX-License-Identifier: BSD-3-Clause */
/* A mailbox with lanes: each lane has MAILBOX_TURNS records, reused in turn. */
#include <errno.h>
#include <stdlib.h>

#include "mailbox/private.h"

static uint64_t number_of(const struct mailbox *b, uint32_t lane, uint64_t turn)
{
	return (turn / MAILBOX_TURNS * b->lanes + lane) * MAILBOX_TURNS + turn % MAILBOX_TURNS;
}

static uint32_t lane_of(const struct mailbox *b, uint64_t n)
{
	return (uint32_t)(n / MAILBOX_TURNS % b->lanes);
}

static uint64_t turn_of(const struct mailbox *b, uint64_t n)
{
	return n / MAILBOX_TURNS / b->lanes * MAILBOX_TURNS + n % MAILBOX_TURNS;
}

/* The last turn that a rank has ended, by lane; release, read acquire. */
static _Atomic uint64_t *ended_of(const struct mailbox *b, int rank)
{
	return (_Atomic uint64_t *)(mailbox_line_of(b, rank) + 1);
}

static uint64_t ended_bytes(uint32_t lanes)
{
	return base_round_up(lanes * sizeof(uint64_t), BASE_CACHE_LINE);
}

struct mailbox_record *mailbox_lane_record(const struct mailbox *b, int rank, uint64_t n)
{
	return (struct mailbox_record *)((char *)ended_of(b, rank) + ended_bytes(b->lanes)) +
	       n % (b->lanes * MAILBOX_TURNS);
}

uint64_t mailbox_lanes_area_bytes(uint32_t lanes)
{
	return sizeof(struct mailbox_line) + ended_bytes(lanes) +
	       lanes * MAILBOX_TURNS * sizeof(struct mailbox_record);
}

int mailbox_create_lanes(struct node_group *g, uint64_t area_off, uint32_t lanes,
			 struct mailbox **out)
{
	uint64_t *ended = calloc(lanes, sizeof *ended);
	int ret = ended ? mailbox_create(g, area_off, out) : -ENOMEM;

	if (ret) {
		free(ended);
		return ret;
	}
	(*out)->lanes = lanes;
	(*out)->turns_ended_all = ended;
	return 0;
}

static bool has_room(struct mailbox *b, uint32_t lane, uint64_t turn)
{
	uint64_t *ended = &b->turns_ended_all[lane], least = UINT64_MAX;

	if (turn <= *ended + MAILBOX_TURNS)
		return true;
	for (int r = 0; r < b->size; r++) /* partner of acquire: mailbox_end_turn */
		least = base_min_u64(
			least, atomic_load_explicit(&ended_of(b, r)[lane], memory_order_acquire));
	*ended = least;
	return turn <= least + MAILBOX_TURNS;
}

uint64_t mailbox_begin_turn(struct mailbox *b, uint32_t lane, uint64_t turn)
{
	if (base_unlikely(!has_room(b, lane, turn))) {
		mailbox_starve(b, lane);
		if (!has_room(b, lane, turn))
			return 0;
	}
	mailbox_fed(b, lane);
	return number_of(b, lane, turn);
}

void mailbox_end_turn(struct mailbox *b, uint64_t n)
{
	/* the next writer of the record has seen that it was read. Partner: has_room */
	atomic_store_explicit(&ended_of(b, b->rank)[lane_of(b, n)], turn_of(b, n),
			      memory_order_release);
	mailbox_feed(b);
}
