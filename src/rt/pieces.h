/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pieces: collectives that the caller runs piece by piece. A piece runs when its segment has
 * crossed the network.
 *
 *   rt_pieces_begin() -> rt_pieces_run() ... -> rt_pieces_end()
 *
 * rt_pieces_begin() describes whole buffers, so that Sluice adopts whole buffers.
 * rt_exchanges_begin() does so for exchanges of any pattern within a node. Several objects of one
 * communicator may be open at a time; all ranks run pieces in one order. A piece completes before
 * it returns. Context: as calls on one communicator.
 */
#ifndef SLUICE_RT_PIECES_H
#define SLUICE_RT_PIECES_H

#include "rt/collective.h"

struct rt_pieces;

/* Opens a broadcast or a reduction to a root, in buffers without gaps. longest_bytes: the longest
 * piece. Returns: 0 or -errno. Context: local. */
int rt_pieces_begin(struct rt_comm *c, const struct coll_call *call, uint64_t longest_bytes,
		    struct rt_pieces **out);
/* Runs `bytes` bytes of each rank's message, at offset send_at of this rank's send buffer and at
 * recv_at of its receive buffer (a broadcast has a send buffer only).
 * Returns: 0 or -errno as rt_collective(); the caller then calls rt_abandon(). Context: collective.
 */
int rt_pieces_run(struct rt_pieces *p, uint64_t send_at, uint64_t recv_at, uint64_t bytes);
void rt_pieces_end(struct rt_pieces *p); /* NULL: nothing happens */

/* One exchange: parts of the send buffer for targets, parts of the receive buffer from sources. A
 * rank receives the k-th part for it as its k-th part from the sender. There are at most as many
 * targets, and as many sources, as ranks. */
struct rt_exchange {
	const int *targets, *sources;
	const struct coll_part *sent, *received;
	int target_count, source_count;
};
/*
 * rt_pieces_begin() for exchanges. call: name, site, and a buffer on each side (bytes 0: none) that
 * contains the parts; longest_bytes: the parts of one side in one piece together.
 */
int rt_exchanges_begin(struct rt_comm *c, const struct coll_call *call, uint64_t longest_bytes,
		       struct rt_pieces **out);
/* rt_pieces_run() for an exchange. */
int rt_exchanges_run(struct rt_pieces *p, const struct rt_exchange *x);

#endif
