/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * pieces: a collective of which mpi/ says when which piece runs, because something goes on between
 * them: a segment that has to cross a network first.
 *
 *   rt_pieces_begin() -> rt_pieces_run() ... -> rt_pieces_end()
 *
 * The buffers are described once, so that they are adopted as wholes. What ranks of a node send
 * each other in any pattern goes the same way: rt_exchanges_begin(). Several of one communicator
 * may be open at a time, and their pieces mixed, in the same order on all ranks. Pieces complete
 * before they return. Threads: as the calls of one communicator.
 */
#ifndef SLUICE_RT_PIECES_H
#define SLUICE_RT_PIECES_H

#include "rt/collective.h"

struct rt_pieces;

/* A broadcast or a reduction to a root; buffers without gaps. longest_bytes: of a piece. Local. 0
 * or -errno. */
int rt_pieces_begin(struct rt_comm *c, const struct coll_call *call, uint64_t longest_bytes,
		    struct rt_pieces **out);
/* Collective: `bytes` of each rank's message, which begin `send_at` bytes into this rank's send
 * buffer and recv_at into its receive buffer (a broadcast has the first only). 0 or -errno, as
 * rt_collective(); then rt_abandon() is due. */
int rt_pieces_run(struct rt_pieces *p, uint64_t send_at, uint64_t recv_at, uint64_t bytes);
void rt_pieces_end(struct rt_pieces *p); /* NULL: nothing happens */

/* One exchange: parts of the send buffer for targets, parts of the receive buffer from sources. The
 * k-th part to a rank is the k-th that this rank receives from here. At most as many of each as
 * there are ranks; a rank may have none. */
struct rt_exchange {
	const int *targets, *sources;
	const struct coll_part *sent, *received;
	int target_count, source_count;
};
/*
 * As rt_pieces_begin(), for exchanges. call: its name, site, and a buffer on each side (bytes 0:
 * none), in which parts will lie; longest_bytes: of all parts of one side in one piece.
 */
int rt_exchanges_begin(struct rt_comm *c, const struct coll_call *call, uint64_t longest_bytes,
		       struct rt_pieces **out);
/* Collective; else as rt_pieces_run(). */
int rt_exchanges_run(struct rt_pieces *p, const struct rt_exchange *x);

#endif
