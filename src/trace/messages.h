/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The message file, one per rank, which `sluice trace --goal` asks for: what the rank told MPI to
 * send, receive and combine, and how long it computed in between. In the byte order of its machine:
 *
 *   | struct messages_header | record | payload of that record | record | ...
 *
 * A stream: mpi/record appends, trace_messages.c reads it once. A file without MESSAGES_END belongs
 * to a rank that did not reach MPI_Finalize.
 */
#ifndef SLUICE_TRACE_MESSAGES_H
#define SLUICE_TRACE_MESSAGES_H

#include <stdint.h>

#define MESSAGES_MAGIC "SluiceM\n"
#define MESSAGES_VERSION 2u
#define MESSAGES_SUFFIX ".messages"

struct messages_header {
	char magic[8];
	uint32_t version, record_bytes;
	int32_t rank, ranks; /* in MPI_COMM_WORLD */
	uint64_t reserved[5];
};

enum messages_type {
	MESSAGES_NOTHING,
	MESSAGES_COMM,      /* id: its number; payload: int32_t world ranks */
	MESSAGES_SEND,      /* blocking */
	MESSAGES_ISEND,     /* nonblocking; id 0: nobody waits for it (MPI_Bsend) */
	MESSAGES_RECV,      /* blocking, with the source, tag and bytes of its status */
	MESSAGES_IRECV,     /* nonblocking; its MESSAGES_DONE tells what came; -1: any */
	MESSAGES_COLL,      /* id 0: blocking; payload: struct messages_part */
	MESSAGES_DONE,      /* the program has learned that request `id` is complete */
	MESSAGES_CANCELLED, /* request `id` receives nothing */
	MESSAGES_LOST,      /* bytes: messages and collectives that could not be recorded */
	MESSAGES_END,       /* MPI_Finalize; bytes: ns since MPI_Init */
	MESSAGES_READY,     /* part of the partitioned send `id`; its MESSAGES_ISEND follows */
	MESSAGES_ONE_SIDED, /* bytes go to the peer; payload: a part, which comes back */
	MESSAGES_FLUSHED,   /* one-sided operations of window `count` to the peer (-1: all) */
	MESSAGES_TYPES
};

/* Collectives by what travels. The parts of MESSAGES_EXCHANGE stand in its payload. */
#define MESSAGES_COLLECTIVES(X)                                                                    \
	X(BARRIER, "barrier") X(BCAST, "bcast") X(REDUCE, "reduce") X(ALLREDUCE, "allreduce")      \
	X(GATHER, "gather") X(SCATTER, "scatter") X(ALLGATHER, "allgather")                        \
	X(ALLTOALL, "alltoall") X(REDUCE_SCATTER, "reduce-scatter") X(SCAN, "scan")                \
	X(EXSCAN, "exscan") X(EXCHANGE, "exchange")
enum messages_collective {
#define X(id, name) MESSAGES_##id,
	MESSAGES_COLLECTIVES(X)
#undef X
	MESSAGES_COLLECTIVE_COUNT
};

struct messages_record {
	uint8_t type, collective;
	uint16_t thread;      /* of the process, from 0 */
	uint32_t id;          /* of a request, from 1; 0: none */
	uint64_t computed_ns; /* outside MPI, since the thread's record before */
	uint32_t comm;
	int32_t peer;         /* world rank; of a collective: the root in its communicator */
	int32_t tag;          /* of a collective: 0, or the channel of a persistent one */
	uint32_t count;       /* elements of the payload; of a message: its channel */
	uint64_t bytes;       /* of a message, a block, or the vector of a reduction */
};

/* Channels keep apart what MPI matches apart. 0: messages by tag, collectives by order. The n-th
 * persistent collective or window of a communicator is channel n of it. The n-th partitioned
 * message between two ranks under a tag is channel MESSAGES_PARTITIONED + n; the synchronisation of
 * window n by MPI_Win_post and the like MESSAGES_SYNC + n. */
#define MESSAGES_PARTITIONED 0x40000000u
#define MESSAGES_SYNC        0x80000000u

struct messages_part {
	int32_t peer;         /* world rank */
	uint32_t is_recv;
	uint64_t bytes;
};

_Static_assert(sizeof(struct messages_header) == 64 && sizeof(struct messages_record) == 40 &&
		       sizeof(struct messages_part) == 16,
	       "the format of the file");

#endif
