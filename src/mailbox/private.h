/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of mailbox/ only. */
#ifndef SLUICE_MAILBOX_PRIVATE_H
#define SLUICE_MAILBOX_PRIVATE_H

#include "mailbox/mailbox.h"

struct mailbox_line {
	/* last ended number, all before it included; release, read acquire */
	BASE_ALIGNED_LINE _Atomic uint64_t ended;
	/* Valid in rank 0's line: number of ranks that wait for an end. */
	BASE_ALIGNED_LINE _Atomic uint32_t starved;
};

struct mailbox_record {
	BASE_ALIGNED_LINE _Atomic uint64_t number; /* release, read acquire */
	uint32_t bytes, unused;
	char message[MAILBOX_BYTES];
};

_Static_assert(sizeof(struct mailbox_record) == MAILBOX_RECORD_BYTES, "records lie side by side");

struct mailbox {
	struct node_group *group;
	uint64_t area_off;
	int rank, size;
	/* lanes that wait for an end (bit 0 without lanes); not 0: counted in rank 0's line */
	uint64_t starved;
	/* without lanes */
	uint64_t begun;      /* the last number begun */
	uint64_t ended;      /* this rank has ended all up to it */
	uint64_t ended_all;  /* every rank had ended all up to it, at the last check */
	uint32_t ended_here; /* bit n % MAILBOX_RECORDS: ended before an earlier one */
	/* with lanes */
	uint32_t lanes;
	uint64_t *turns_ended_all; /* by lane: turns that every rank had ended, at the last check */
};

static inline struct mailbox_line *mailbox_line_of(const struct mailbox *b, int rank)
{
	return (struct mailbox_line *)((char *)node_area(b->group, rank) + b->area_off);
}

/*
 * From here until mailbox_fed() of each such lane, a rank that ends a collective wakes the others.
 */
static inline void mailbox_starve(struct mailbox *b, uint32_t lane)
{
	uint64_t before = b->starved;

	b->starved |= 1ull << lane;
	if (before)
		return;
	atomic_fetch_add_explicit(&mailbox_line_of(b, 0)->starved, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* partner: mailbox_feed */
}

static inline void mailbox_fed(struct mailbox *b, uint32_t lane)
{
	if (base_likely(!(b->starved >> lane & 1)))
		return;
	b->starved &= ~(1ull << lane);
	if (!b->starved)
		atomic_fetch_sub_explicit(&mailbox_line_of(b, 0)->starved, 1, memory_order_relaxed);
}

/* One fence serves all wake-ups. */
static inline void mailbox_ring_others(const struct mailbox *b)
{
	int first = b->rank ? 0 : 1;

	node_wake(b->group, first);
	for (int k = first + 1; k < b->size; k++)
		if (k != b->rank)
			node_wake_relaxed(b->group, k);
}

/* Call after this rank has published an end. */
static inline void mailbox_feed(const struct mailbox *b)
{
	atomic_thread_fence(memory_order_seq_cst); /* partner: mailbox_starve */
	if (base_unlikely(
		    atomic_load_explicit(&mailbox_line_of(b, 0)->starved, memory_order_relaxed)))
		mailbox_ring_others(b);
}

/* ---- lanes.c ----------------------------------------------------------------------------- */

struct mailbox_record *mailbox_lane_record(const struct mailbox *b, int rank, uint64_t n);
/* mailbox_end() for a mailbox with lanes. */
void mailbox_end_turn(struct mailbox *b, uint64_t n);

#endif
