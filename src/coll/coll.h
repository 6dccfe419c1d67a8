/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * coll: which schedule a collective is. Pure: builds goal/ schedules from ranks, root and sizes.
 *
 * Each function adds one rank's side. Offsets are relative to that rank's own buffers; only the byte
 * counts must agree between ranks. Send buffers are GOAL_USER + 0, receive buffers GOAL_USER + 1,
 * a broadcast's buffer is GOAL_USER + 0 on every rank.
 */
#ifndef SLUICE_COLL_H
#define SLUICE_COLL_H

#include "goal/goal.h"

#define COLL_SEND GOAL_USER
#define COLL_RECV (GOAL_USER + 1)

/* Operations (and requirements) that a rank's side of any collective here can have. */
static inline uint32_t coll_ops_max(int ranks) { return (uint32_t)ranks + 1; }

/* Flat tree: the root sends to each leaf. */
void coll_bcast(struct goal_build *b, int rank, int ranks, int root, uint64_t off, uint64_t bytes);

/* Flat tree, arrows turned: each leaf sends `bytes` at send_off; the root receives rank r's at
 * recv_off + r * recv_stride, and copies its own part unless it is in place. */
struct coll_gather_shape {
	uint64_t bytes;
	uint64_t send_off;
	uint64_t recv_off, recv_stride;
	int in_place; /* root: its part is where it belongs */
};
void coll_gather(struct goal_build *b, int rank, int ranks, int root, const struct coll_gather_shape *s);

#endif
