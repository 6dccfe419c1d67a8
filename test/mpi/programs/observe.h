/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls right after a collective on a buffer of that collective. What the collective moves may be
 * still on its way; the call must see, or leave, what it would after a collective that has ended.
 *
 *   BEHAVIOUR(pack_and_unpack, 2) { observe(reads_pack, writes_unpack); }
 *
 * reads(buf, bytes, seed) hands the buffer to MPI, which must find check_fill(seed) there;
 * writes(buf, bytes, seed) has MPI put check_fill(seed) there. Both concern this rank alone.
 */
#ifndef OBSERVE_H
#define OBSERVE_H

#include "check.h"

#include <unistd.h>

enum { OBSERVE_BYTES = (1 << 20) + 4160, OBSERVE_LATE_US = 3000 };

typedef void observe_call(char *buf, size_t bytes, uint64_t seed);

/* Memory of this rank's own, for the other side of what the calls do. */
static char *observe_other;
static MPI_Comm observe_comms[2]; /* MPI_COMM_WORLD and a copy */
static uint64_t observe_seed = 1;

static inline void observe_late(bool is_late)
{
	if (is_late)
		usleep(OBSERVE_LATE_US);
}

/* Receivers read at once, the root writes at once; then the receivers write as well. */
static inline void observe_bcast(char *buf, MPI_Comm comm, int root, bool root_is_late,
				 observe_call *reads, observe_call *writes)
{
	uint64_t seed = observe_seed += 4;
	size_t n = OBSERVE_BYTES;

	if (rank == root)
		check_fill(buf, n, seed);
	else
		memset(buf, 0, n);
	observe_late(root_is_late == (rank == root));
	EXPECT(MPI_Bcast(buf, (int)n, MPI_BYTE, root, comm) == MPI_SUCCESS);
	if (rank == root && writes) {
		writes(buf, n, seed + 1);
		check_same(buf, n, seed + 1, "what the root's call left");
	} else if (reads) {
		reads(buf, n, seed);
		check_same(buf, n, seed, "broadcast");
	} else {
		writes(buf, n, seed + 2);
		check_same(buf, n, seed + 2, "what the receiver's call left");
	}
}

/* The root reads at once, the senders write at once. */
static inline void observe_gather(char *buf, MPI_Comm comm, int root, bool root_is_late,
				  observe_call *reads, observe_call *writes)
{
	uint64_t seed = observe_seed += size + 1;
	size_t n = OBSERVE_BYTES;
	char *mine = buf + (rank == root ? (size_t)rank * n : 0);

	if (rank == root)
		memset(buf, 0, n * size);
	check_fill(mine, n, seed + rank);
	observe_late(root_is_late == (rank == root));
	EXPECT(MPI_Gather(rank == root ? MPI_IN_PLACE : mine, (int)n, MPI_BYTE, buf, (int)n,
			  MPI_BYTE, root, comm) == MPI_SUCCESS);
	if (rank != root && writes) {
		writes(mine, n, seed + size);
		check_same(mine, n, seed + size, "what the sender's call left");
	}
	for (int r = 0; rank == root && r < size; r++) {
		if (reads)
			reads(buf + (size_t)r * n, n, seed + r);
		check_same(buf + (size_t)r * n, n, seed + r, "gather");
	}
}

/* Either may be NULL: there is no such call. */
static inline void observe(observe_call *reads, observe_call *writes)
{
	char *buf = check_alloc((size_t)OBSERVE_BYTES * size);

	observe_other = check_alloc(OBSERVE_BYTES);
	observe_comms[0] = MPI_COMM_WORLD;
	MPI_Comm_dup(MPI_COMM_WORLD, &observe_comms[1]);
	for (int round = 0; round < 8; round++) {
		int root = round / 4 % size;

		observe_bcast(buf, observe_comms[round % 2], root, round / 2 % 2, reads, writes);
		observe_gather(buf, observe_comms[round % 2], root, round / 2 % 2, reads, writes);
	}
	MPI_Comm_free(&observe_comms[1]);
	free(observe_other);
	free(buf);
}

#endif
