/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include "mailbox/private.h"

_Static_assert(MAILBOX_RECORDS <= 8 * sizeof(uint32_t), "a bit for each that can be in flight");

static uint32_t bit_of(uint64_t n) { return 1u << n % MAILBOX_RECORDS; }

uint64_t mailbox_area_bytes(void)
{
	return sizeof(struct mailbox_line) + MAILBOX_RECORDS * sizeof(struct mailbox_record);
}

static struct mailbox_record *record_of(const struct mailbox *b, int rank, uint64_t n)
{
	if (b->lanes)
		return mailbox_lane_record(b, rank, n);
	return (struct mailbox_record *)(mailbox_line_of(b, rank) + 1) + n % MAILBOX_RECORDS;
}

int mailbox_create(struct node_group *g, uint64_t area_off, struct mailbox **out)
{
	struct mailbox *b = calloc(1, sizeof *b);

	if (!b)
		return -ENOMEM;
	b->group = g;
	b->area_off = area_off;
	b->rank = node_rank(g);
	b->size = node_size(g);
	*out = b;
	return 0;
}

void mailbox_destroy(struct mailbox *b)
{
	if (b)
		free(b->turns_ended_all);
	free(b);
}

static uint64_t ended_by_all(const struct mailbox *b)
{
	uint64_t least = UINT64_MAX;

	for (int r = 0; r < b->size; r++) /* partner of acquire: mailbox_end */
		least = base_min_u64(least, atomic_load_explicit(&mailbox_line_of(b, r)->ended,
								 memory_order_acquire));
	return least;
}

static bool has_room(struct mailbox *b, uint64_t n)
{
	if (n > b->ended_all + MAILBOX_RECORDS)
		b->ended_all = ended_by_all(b);
	return n <= b->ended_all + MAILBOX_RECORDS;
}

static bool has_room_at_last(struct mailbox *b, uint64_t n)
{
	mailbox_starve(b, 0);
	return has_room(b, n);
}

uint64_t mailbox_begin(struct mailbox *b)
{
	uint64_t n = b->begun + 1;

	if (base_unlikely(!has_room(b, n)) && !has_room_at_last(b, n))
		return 0;
	mailbox_fed(b, 0);
	b->begun = n;
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
	atomic_store_explicit(&r->number, n, memory_order_release); /* partner: mailbox_peek */
	mailbox_ring_others(b);
}

const void *mailbox_peek(const struct mailbox *b, int rank, uint64_t n, uint32_t *out_bytes)
{
	const struct mailbox_record *r = record_of(b, rank, n);

	if (atomic_load_explicit(&r->number, memory_order_acquire) != n) /* partner: mailbox_post */
		return NULL;
	*out_bytes = (uint32_t)base_min_u64(r->bytes, MAILBOX_BYTES);
	return r->message;
}

void mailbox_end(struct mailbox *b, uint64_t n)
{
	if (b->lanes) {
		mailbox_end_turn(b, n);
		return;
	}
	b->ended_here |= bit_of(n);
	if (n != b->ended + 1)
		return;
	while (b->ended_here & bit_of(b->ended + 1))
		b->ended_here &= ~bit_of(++b->ended);
	/* the next writer of the record has seen that it was read. Partner: ended_by_all */
	atomic_store_explicit(&mailbox_line_of(b, b->rank)->ended, b->ended, memory_order_release);
	mailbox_feed(b);
}
