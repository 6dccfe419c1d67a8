/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The trace file, one per traced process, in the byte order of its machine:
 *
 *   | struct trace_header | modules | sites | texts |  chunk 0 | chunk 1 | ...
 *
 * A chunk belongs to one thread and holds its records, or its totals, one for each site. The file
 * is mapped while the process lives, so it survives any end of the process. A record is valid when
 * its type, which is written last, is not TRACE_NOTHING. Times are ticks of the time-stamp counter,
 * or nanoseconds where the counter is not steady; pairs of ticks and CLOCK_MONOTONIC nanoseconds in
 * the header and in each chunk convert one into the other.
 *
 * A thread whose file is full overwrites its oldest chunk. Totals are never overwritten, so the
 * sums of a site are exact.
 */
#ifndef SLUICE_TRACE_FORMAT_H
#define SLUICE_TRACE_FORMAT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_MAGIC "SluiceT\n"
#define TRACE_VERSION 7u
#define TRACE_CHUNK_BYTES (64u << 10)
#define TRACE_RECORD_BYTES 64u
#define TRACE_RECORDS_PER_CHUNK (TRACE_CHUNK_BYTES / TRACE_RECORD_BYTES - 1)
#define TRACE_MODULES 64u
#define TRACE_SITES TRACE_RECORDS_PER_CHUNK
#define TRACE_REPEATS_PER_RECORD 7u
#define TRACE_REPEAT_RECORDS 3u /* after a TRACE_TEMPLATE */
/* small calls of a site in a thread that are all timed and recorded */
#define TRACE_ALWAYS_TIMED 128u
#define TRACE_TEXTS 256u
#define TRACE_TEXT_BYTES 128u

enum trace_state {
	TRACE_RUNNING, /* or killed, or ended by _exit */
	TRACE_ENDED,   /* MPI_Finalize */
};

struct trace_header {
	char magic[8];
	uint32_t version, header_bytes; /* bytes before chunk 0 */
	uint32_t chunk_cap;
	_Atomic uint32_t chunk_next;    /* may exceed chunk_cap */
	int32_t rank, pid;
	uint32_t ticks_are_ns;
	_Atomic uint32_t state;         /* enum trace_state */
	_Atomic uint32_t error;         /* errno that ended the growth of the file */
	_Atomic uint32_t text_count, module_count;
	uint16_t engine, guard;         /* indices of texts; 0: none */
	uint64_t first_ticks,
		first_ns; /* a moment before the start, to compute the length of a tick */
	uint64_t start_ticks, start_ns; /* CLOCK_MONOTONIC */
	uint64_t end_ticks, end_ns;     /* when TRACE_ENDED */
	uint64_t start_realtime_ns;
	_Atomic uint64_t dropped;       /* records without room */
	_Atomic uint64_t overwritten;   /* records in chunks that were overwritten */
	_Atomic uint64_t uncounted;     /* calls that are not in the totals either */
	char program[256], host[64], made_by[32];
	uint64_t cpu_us;                /* of all threads, from start to end; 0: unknown */
	uint64_t cpu_wait_us;           /* the main thread was ready to run and had no CPU */
	char endpoint[192];             /* who shares the address space, or why nobody; "": none */
	struct trace_turns {
		uint64_t switches, trips, handoffs, stays; /* os/endpoint.h */
	} turns;
};

struct trace_module {
	/* load address, to be subtracted from addresses. With TRACE_SOURCE_BASE the path is that of
	 * a source file, and the difference is a line. */
	uint64_t base;
	char path[248];
};
#define TRACE_SOURCE_BASE (1ull << 63)
#define TRACE_SOURCE_LINES ((1u << 20) - 1)

/* A place in the program that calls MPI. Index 0: unknown. */
struct trace_site {
	_Atomic uint64_t key;    /* 0: unused */
	uint64_t address;        /* return address of the call */
	_Atomic uint16_t module; /* 1 + index; 0: unknown */
	uint16_t name;           /* text: "MPI_Bcast" */
	_Atomic uint32_t is_message; /* a function of messages, see struct trace_totals */
};

/* Constant sentences of Sluice, by index; 0: none. */
struct trace_text {
	_Atomic uint64_t key; /* address in the process */
	_Atomic uint32_t is_set;
	char text[TRACE_TEXT_BYTES - 12];
};

enum trace_chunk_kind { TRACE_CHUNK_FREE, TRACE_CHUNK_RECORDS, TRACE_CHUNK_TOTALS };

struct trace_chunk {
	_Atomic uint32_t kind;
	uint32_t thread;         /* the kernel's thread id */
	uint32_t turn;           /* position in the thread's chunks, from 1 */
	uint32_t next;           /* 1 + the next chunk of the thread; 0: the last one */
	uint64_t ticks, ns;      /* the same moment by both clocks */
	char name[16];           /* name of the thread */
	uint64_t reserved[2];
};

/* The sums of one thread at one site, without repeats that are not counted yet. Written by that
 * thread. */
struct trace_totals {
	uint64_t calls, bytes;       /* of all calls; bytes of one rank's message */
	union {
		struct { /* of collectives */
			/* calls below the threshold, which the host MPI executes */
			uint64_t small_calls, small_bytes;
			/* timed small calls beyond the first TRACE_ALWAYS_TIMED */
			uint64_t sampled, sampled_ticks;
		};
		struct { /* of messages: what the rank copied in the calls from other ranks */
			uint64_t copies, copied, copied_ticks;
			uint64_t served; /* bytes of `copied` from mapped memory */
		};
	};
	uint64_t ticks;              /* of all other calls, each of which is timed */
	uint32_t admitted, early;
};

enum trace_type {
	TRACE_NOTHING,
	TRACE_CALL,
	TRACE_COPY,
	TRACE_TOUCH,
	TRACE_DETACHED,
	TRACE_ACTIVITY,
	TRACE_TURN,
	/* properties that the calls in the following TRACE_REPEATS share, and the begin of the call
	 * before them */
	TRACE_TEMPLATE,
	TRACE_REPEATS
};

enum trace_outcome {
	TRACE_BY_HOST, /* executed by the host MPI */
	TRACE_SMALL,  /* executed by the host MPI, below the threshold; a sample */
	TRACE_ADMITTED,  /* complete when it returned */
	TRACE_EARLY,  /* detached: returned while its data was moving */
	TRACE_FAILED,
	TRACE_STARTED, /* nonblocking or persistent; a TRACE_DETACHED record reports its end */
};

enum trace_region {
	TRACE_REGION_NONE,
	TRACE_REGION_MAPPED,
	TRACE_REGION_PLAIN,
	TRACE_REGION_PACKED
};

enum trace_mover {
	TRACE_CPU,
	TRACE_CHANNEL,
	TRACE_EDGES,
	TRACE_STAGE,
	TRACE_WORKER
}; /* at most 8 */

#define TRACE_IN_NS 1u    /* flag: begin and end are CLOCK_MONOTONIC nanoseconds */
#define TRACE_IS_ROOT 2u  /* of a call */
#define TRACE_IS_WRITE 4u /* of a touch */
#define TRACE_BY_CALL 8u  /* of a detached operation: an MPI call ended it, not a touch */
#define TRACE_OWN_PART                                                                             \
	16u /* of a call: its rank copied `bytes` to itself, untimed */
#define TRACE_IS_COUNTED 64u /* of a TRACE_TEMPLATE: the totals contain its repeats */
#define TRACE_TO_PEER 32u /* of a call: the rank copied to the peer, not from it */

/* In place of ranks, for reductions, with as many bytes for each receiving rank. */
#define TRACE_FROM_ALL 0xffffu          /* src: the contributions of all ranks */
#define TRACE_TO_EACH 0xfffeu           /* dst: each rank of the group */
#define TRACE_TO_EACH_BUT_FIRST 0xfffdu /* dst: each rank but rank 0 */
/* In `op`: the collective ran over the group's mailbox, which counts its own collectives. */
#define TRACE_ON_MAILBOX (1ull << 63)

struct trace_record {
	uint64_t begin, end; /* 0, 0: counted, not timed */
	union {
		struct {
			uint64_t bytes;
			uint64_t op;        /* number of the collective in its group */
			/* counts the thread's calls; TRACE_DETACHED and TRACE_TOUCH refer to it */
			uint32_t id;
			uint32_t group; /* equal in all ranks of the node group; 0: none */
			/* bytes that this rank copied in the call, by `mover`, from or to `peer`,
			 * untimed */
			uint32_t moved;
			uint16_t site;
			uint16_t ops;       /* number of collectives in the group, from `op` on */
			uint16_t peer;      /* rank in the group */
			uint8_t why, early_why; /* indices of texts */
			uint8_t outcome : 3, region : 2, mover : 3;
			uint8_t more;       /* further fragments in `moved` */
			uint16_t edges;     /* bytes by TRACE_EDGES */
		} call;
		struct {
			uint64_t bytes, op;
			uint32_t group;
			uint16_t unit, src, dst,
				by; /* ranks in the group; TRACE_WORKER has no `by` */
			uint8_t mover;
			uint8_t more; /* further untimed fragments in `bytes` */
		} copy;
		struct {
			uint64_t offset; /* from the first guarded byte */
			uint64_t address;
			uint32_t id, thread; /* call; thread that touched */
			uint32_t caller;     /* thread of the call */
		} touch;
		struct {
			uint64_t wanted; /* as `begin`; 0: nothing waited for it */
			uint64_t waited; /* time that the program waited from `wanted` on */
			uint64_t op; /* of a TRACE_STARTED: number of the collective; 0: none */
			uint32_t id, touches; /* touches; or calls that waited or tested */
			uint32_t caller;    /* thread of the call */
			uint32_t group;
		/* begin: the call returned, or the request started; end: it was retired */
		} detached;
		struct {
			uint64_t bytes;
			uint16_t text, site; /* site: of the call that contains it; 0: none */
		} activity;
		/* what a rank that takes turns with others (endpoints/) did meanwhile */
		struct {
			uint32_t switches, trips, handoffs, stays;
		} turn;
	};
	uint8_t flags;
	_Atomic uint8_t type; /* enum trace_type; release, acquire by a reader of a live file */
	uint16_t rank, ranks,
		root; /* of a call and of the end of a request, in the group */
};

/* Calls of one site with the same properties, as in a loop, in 8 bytes each, in order; 0: none. The
 * TRACE_TEMPLATE holds the call before the first one. */
struct trace_repeats {
	_Atomic uint64_t each[TRACE_REPEATS_PER_RECORD];
	uint8_t flags;
	_Atomic uint8_t type;
	/* fragments of `moved`, as in a call's record; each record of the row has its own
	 * `moved` */
	uint8_t more;
	uint8_t reserved;
	uint32_t moved; /* 0: unused */
};
#define TRACE_REPEAT_IS_USED (1ull << 63)
#define TRACE_REPEAT_MOVED                                                                         \
	(1ull << 61) /* times 1 + the index of the row's record with its `moved`; 0: none */
#define TRACE_REPEAT_HAS_EDGES (1ull << 60) /* as in the TRACE_TEMPLATE */
/* Fields from the lowest bits up: duration, ticks since the previous begin, and collectives of the
 * group since then. */
#define TRACE_REPEAT_MOST_TICKS (1ull << 24)
#define TRACE_REPEAT_MOST_BEGIN (1ull << 28)
#define TRACE_REPEAT_MOST_OPS (1ull << 8)
_Static_assert(sizeof(struct trace_chunk) == TRACE_RECORD_BYTES,
	       "a chunk's head is one record long");
_Static_assert(sizeof(struct trace_totals) == TRACE_RECORD_BYTES, "totals are as long as records");
_Static_assert(sizeof(struct trace_record) == TRACE_RECORD_BYTES, "see TRACE_RECORD_BYTES");
_Static_assert(sizeof(struct trace_repeats) == TRACE_RECORD_BYTES, "so are repeats");
_Static_assert(offsetof(struct trace_repeats, type) == offsetof(struct trace_record, type),
	       "one type for both");
_Static_assert(TRACE_TEXTS <= 256, "a text is named by a byte");
_Static_assert(sizeof(struct trace_text) == TRACE_TEXT_BYTES, "see TRACE_TEXT_BYTES");

#define TRACE_MODULES_AT 4096u
#define TRACE_SITES_AT (TRACE_MODULES_AT + TRACE_MODULES * (uint32_t)sizeof(struct trace_module))
#define TRACE_TEXTS_AT (TRACE_SITES_AT + (TRACE_SITES + 1) * (uint32_t)sizeof(struct trace_site))
#define TRACE_HEADER_BYTES                                                                         \
	((TRACE_TEXTS_AT + TRACE_TEXTS * TRACE_TEXT_BYTES + TRACE_CHUNK_BYTES - 1) /               \
	 TRACE_CHUNK_BYTES * TRACE_CHUNK_BYTES)

#endif
