/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The mailbox's code over a world of the test's own, for the exploration of interleavings: to be
 * included before mailbox/mailbox.c. MAILBOX_RECORDS and what belongs to it are defined before. The
 * test defines world_area() and world_ring().
 */
#ifndef SLUICE_UNIT_INTERLEAVE_MAILBOX_H
#define SLUICE_UNIT_INTERLEAVE_MAILBOX_H

#include "unit.h"

#include "base/base.h"
#include "node/node.h"
#include "interleave_atomics.h"
#undef atomic_fetch_sub_explicit
#define atomic_fetch_sub_explicit(p, v, o) il_add((void *)(p), sizeof *(p), (uint64_t)-(v), (o))

static void *world_area(int rank);
static void world_ring(int rank);
#define node_area(g, rank)      world_area(rank)
#define node_wake(g, rank)      (atomic_thread_fence(memory_order_seq_cst), world_ring(rank))
#define node_wake_relaxed(g, rank) world_ring(rank)
#define node_rank(g)            0
#define node_size(g)            RANKS

enum { RANKS = 2 };

#endif
