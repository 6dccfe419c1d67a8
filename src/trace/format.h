/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The file that a traced process writes, one a process, in the byte order of its machine:
 *
 *   | struct trace_header | modules | sites | texts |  chunk 0 | chunk 1 | ...
 *
 * A chunk belongs to one thread and holds its records, or its totals: one a site. All of it is
 * mapped while the process lives, so what was written is there however the process ends: a record
 * counts when its type is not TRACE_NOTHING, which is written last. Times are ticks of the
 * processor's counter (or nanoseconds where it has none that can be trusted); pairs of ticks and
 * CLOCK_MONOTONIC nanoseconds in the header and in each chunk turn one into the other.
 *
 * A thread whose file is full overwrites its oldest chunk. Totals are never overwritten: sums over
 * a site are exact whatever was dropped.
 */
#ifndef SLUICE_TRACE_FORMAT_H
#define SLUICE_TRACE_FORMAT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_MAGIC "SluiceT\n"
#define TRACE_VERSION 3u
#define TRACE_CHUNK_BYTES (64u << 10)
#define TRACE_RECORD_BYTES 64u
#define TRACE_RECORDS_PER_CHUNK (TRACE_CHUNK_BYTES / TRACE_RECORD_BYTES - 1)
#define TRACE_MODULES 64u
#define TRACE_SITES TRACE_RECORDS_PER_CHUNK
#define TRACE_REPEATS_PER_RECORD 7u
#define TRACE_REPEAT_RECORDS 3u /* after a TRACE_TEMPLATE */
#define TRACE_ALWAYS_TIMED 128u /* small calls of a site in a thread that are timed and recorded each */
#define TRACE_TEXTS 256u
#define TRACE_TEXT_BYTES 128u

enum trace_state {
	TRACE_RUNNING, /* or ended without a word: killed, _exit */
	TRACE_ENDED,   /* MPI_Finalize */
};

struct trace_header {
	char magic[8];
	uint32_t version, header_bytes; /* all before chunk 0 */
	uint32_t chunk_cap;
	_Atomic uint32_t chunk_next;    /* may run beyond chunk_cap */
	int32_t rank, pid;
	uint32_t ticks_are_ns;
	_Atomic uint32_t state;         /* enum trace_state */
	_Atomic uint32_t error;         /* errno that ended the growth of the file */
	_Atomic uint32_t text_count, module_count;
	uint16_t engine, guard;         /* texts; 0 none */
	uint64_t first_ticks,
		first_ns; /* a moment before the start: with it, what a tick is can be told */
	uint64_t start_ticks, start_ns; /* CLOCK_MONOTONIC */
	uint64_t end_ticks, end_ns;     /* when TRACE_ENDED */
	uint64_t start_realtime_ns;
	_Atomic uint64_t dropped;       /* records for which there was no room */
	_Atomic uint64_t overwritten;   /* records whose chunk was used again */
	_Atomic uint64_t uncounted;     /* calls that are in no totals either */
	char program[256], host[64], made_by[32];
};

struct trace_module {
	uint64_t base;  /* load address: what to subtract from addresses */
	char path[248];
};

/* A place in the program that calls MPI. Index 0 is "not known". */
struct trace_site {
	_Atomic uint64_t key;    /* 0: not used */
	uint64_t address;        /* to which the call returns */
	_Atomic uint16_t module; /* 1 + index, 0 not known (yet) */
	uint16_t name;           /* text: "MPI_Bcast" */
	uint32_t reserved;
};

/* Sentences of the library's, by index; 0 is none. */
struct trace_text {
	_Atomic uint64_t key; /* its address in the process */
	_Atomic uint32_t is_set;
	char text[TRACE_TEXT_BYTES - 12];
};

enum trace_chunk_kind { TRACE_CHUNK_FREE, TRACE_CHUNK_RECORDS, TRACE_CHUNK_TOTALS };

struct trace_chunk {
	_Atomic uint32_t kind;
	uint32_t thread;         /* kernel's id */
	uint32_t turn;           /* of the thread's chunks, from 1: their order */
	uint32_t next;           /* 1 + the thread's following chunk; 0: the last */
	uint64_t ticks, ns;      /* the same moment */
	char name[16];           /* of the thread */
	uint64_t reserved[2];
};

/* What a thread did at one site, but for repeats that are not counted yet. Written by it alone. */
struct trace_totals {
	uint64_t calls, bytes;       /* all; bytes of one rank's message */
	uint64_t small_calls;        /* of them: below the threshold, and so the host MPI's */
	uint64_t small_bytes;
	uint64_t sampled,
		sampled_ticks; /* small ones beyond the first TRACE_ALWAYS_TIMED: those that were timed */
	uint64_t ticks;              /* in all other calls: each is timed */
	uint32_t taken, early;
};

enum trace_type {
	TRACE_NOTHING,
	TRACE_CALL,
	TRACE_COPY,
	TRACE_TOUCH,
	TRACE_DETACHED,
	TRACE_SPAN,
	TRACE_TEMPLATE, /* no call, but what those of the TRACE_REPEATS after it have in common; and
			when one before began */
	TRACE_REPEATS,
	TRACE_TYPES
};

enum trace_outcome {
	TRACE_BY_HOST, /* the host MPI did it */
	TRACE_SMALL,  /* likewise, and it was too small to be looked at; one of many */
	TRACE_ADMITTED,  /* done when it returned */
	TRACE_EARLY,  /* returned while its data was moving */
	TRACE_FAILED,
	TRACE_STARTED, /* a nonblocking one, or a persistent one at its start: a TRACE_DETACHED tells its
			end */
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

#define TRACE_IN_NS 1u    /* flags: begin and end are CLOCK_MONOTONIC nanoseconds */
#define TRACE_IS_ROOT 2u  /* of a call */
#define TRACE_IS_WRITE 4u /* of a touch */
#define TRACE_BY_CALL 8u  /* of what was left: an MPI call wanted it, not a touch */
#define TRACE_OWN_PART                                                                             \
	16u /* of a call: its rank copied `bytes` from itself to itself, which was not timed */
#define TRACE_IS_COUNTED 64u /* of a TRACE_TEMPLATE: its repeats are in the totals */
#define TRACE_TO_PEER 32u /* of a call: what it moved went to the peer, not came from there */

/* Instead of ranks: of what is combined, as many bytes for each rank that gets them. */
#define TRACE_FROM_ALL 0xffffu          /* src: what all ranks bring */
#define TRACE_TO_EACH 0xfffeu           /* dst: each rank of the group */
#define TRACE_TO_EACH_BUT_FIRST 0xfffdu /* ... but rank 0 */
/* In `op`: the collective is one of the group's mailbox, whose numbers are others. */
#define TRACE_ON_MAILBOX (1ull << 63)

struct trace_record {
	uint64_t begin, end; /* 0, 0: it was counted, not timed */
	union {
		struct {
			uint64_t bytes;
			uint64_t op;        /* number of the collective in its group */
			uint32_t id;        /* of this thread's calls; LEFT and TOUCH name it */
			uint32_t group; /* node group, the same number in all its ranks; 0 none */
			uint32_t moved; /* bytes that its rank copied in it, by `mover`, from or to
					   `peer`, untimed */
			uint16_t site;
			uint16_t ops;       /* collectives in the group, from `op` on */
			uint16_t peer;      /* rank in the group */
			uint8_t why, early_why; /* texts */
			uint8_t outcome : 3, region : 2, mover : 3;
			uint8_t more;       /* further fragments that are in `moved` */
			uint16_t edges;     /* bytes likewise, by TRACE_EDGES */
		} call;
		struct {
			uint64_t bytes, op;
			uint32_t group;
			uint16_t unit, src, dst,
				by; /* ranks in the group; by: not of TRACE_WORKER's */
			uint8_t mover;
			uint8_t more; /* further fragments, not timed, that are in `bytes` too */
		} copy;
		struct {
			uint64_t offset; /* from the first guarded byte */
			uint64_t address;
			uint32_t id, thread; /* the call; whose access */
			uint32_t caller;     /* thread of the call */
		} touch;
		struct {
			uint64_t wanted; /* as `begin`; 0: nobody wanted it before its end */
			uint64_t waited; /* so long the program, since */
			uint64_t op; /* of a TRACE_STARTED: which collective it was, as in a call; 0:
					of none */
			uint32_t id, touches; /* touches: or calls that waited or tested */
			uint32_t caller;    /* thread of the call */
			uint32_t group;
		} left; /* begin: the call returned, or the collective was begun in it; end: it was
			   retired */
		struct {
			uint64_t bytes;
			uint16_t text;
		} span;
	};
	uint8_t flags;
	_Atomic uint8_t type; /* enum trace_type; release, by a reader of a live file acquire */
	uint16_t rank, ranks,
		root; /* of a call, and of the end of one that was begun: in the group */
};

/*
 * Calls of one site that are like one another, as in a loop, in 8 bytes each: what was written
 * first comes first, 0 is none. The call before the first one is the TRACE_TEMPLATE's, which is not in
 * the row.
 */
struct trace_repeats {
	_Atomic uint64_t each[TRACE_REPEATS_PER_RECORD];
	uint8_t flags;
	_Atomic uint8_t type;
	uint8_t more; /* with `moved`, as in a call's record: what some of the row's calls have
			 moved, each record's others */
	uint8_t reserved;
	uint32_t moved; /* 0: none yet */
};
#define TRACE_REPEAT_IS_USED (1ull << 63)
#define TRACE_REPEAT_MOVED                                                                         \
	(1ull << 61) /* times 1 + the index of the row's record that says what; 0 nothing */
#define TRACE_REPEAT_HAS_EDGES (1ull << 60) /* as the TRACE_TEMPLATE says */
/* From the lowest bits on: how long it took, and since the call before: ticks between the begins,
 * collectives of the group. */
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
