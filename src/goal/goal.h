/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * goal: schedules as data. A schedule is what one rank does in a collective: operations (send,
 * receive, local operations) and which of them must have ended, or begun, before which. Pure:
 * nothing here communicates, waits, allocates, knows an address or needs a libc (memcpy and memset
 * are the only functions that it calls): a kernel module can build it.
 *
 *   struct goal_build --goal_compile--> block: one run of bytes without pointers, sluice-goal(5)
 *
 *   | goal_block | ops that require nothing | other ops | adjacency: ends, begins | segments |
 *
 * Operations stand in an order in which requirements only point forward, so a cycle cannot be
 * written down at all. The same graph gives the same bytes, in whatever order its requirements were
 * added. Several blocks, one a rank, make a program (program.h).
 *
 * The block can be copied anywhere and interpreted by any process that has checked it with
 * goal_verify() in memory that nobody else can change. Memory is named by (space, offset): the
 * program's buffers are GOAL_USER + i, temporary memory is GOAL_SCRATCH. After Hoefler's Group
 * Operation Assembly Language (ICPP 2009) and the binary form of its kernel-based interpreter
 * (EuroMPI 2011).
 *
 *   goal.h     blocks: reading, building, verifying    interp.h   counters: what may start now
 *   local.h    what a local operation computes         program.h  the blocks of all ranks
 */
#ifndef SLUICE_GOAL_GOAL_H
#define SLUICE_GOAL_GOAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GOAL_MAGIC 0x4c414f47u /* "GOAL" */
#define GOAL_VERSION 2u
#define GOAL_NONE UINT32_MAX   /* no operation */
#define GOAL_ANY UINT32_MAX    /* receive: from any rank; under any tag */
#define GOAL_RANKS_MAX 0x7fffffffu

/*
 * id, keyword of the text form, operands, one sentence. Operands: dst is (mem, off), a is (src_mem,
 * src_off), b is (src2_mem, src2_off) of struct goal_op; the memory of a send is (mem, off).
 */
#define GOAL_OPS(X)                                                                                \
	X(NOP, "nop", "", "nothing; ends at once")                                                 \
	X(SEND, "send", "mem bytes peer tag", "bytes at mem go to peer under tag")                 \
	X(RECV, "recv", "mem bytes peer tag", "bytes from peer under tag arrive at mem")           \
	X(COPY, "copy", "dst a bytes", "bytes at a go to dst, inside this rank")                   \
	X(CALC, "calc", "ns", "computes for so many nanoseconds")                                  \
	X(STAMP, "stamp", "dst", "the time in ns since the run began goes to dst, as u64")         \
	X(ADD, "add", "dst a b bytes", "dst[i] = a[i] + b[i]")                                     \
	X(SUB, "sub", "dst a b bytes", "dst[i] = a[i] - b[i]")                                     \
	X(MUL, "mul", "dst a b bytes", "dst[i] = a[i] * b[i]")                                     \
	X(DIV, "div", "dst a b bytes", "dst[i] = a[i] / b[i]; integers: 0 where b[i] is 0")        \
	X(MAX, "max", "dst a b bytes", "dst[i] = the larger of a[i] and b[i]")                     \
	X(MIN, "min", "dst a b bytes", "dst[i] = the smaller of a[i] and b[i]")                    \
	X(AND, "and", "dst a b bytes", "dst[i] = a[i] & b[i]; integers only")                      \
	X(OR, "or", "dst a b bytes", "dst[i] = a[i] | b[i]; integers only")                        \
	X(XOR, "xor", "dst a b bytes", "dst[i] = a[i] ^ b[i]; integers only")                      \
	X(PUT, "put", "bytes peer tag ct", "bytes go to memory that peer exposes under tag")       \
	X(GET, "get", "bytes peer tag ct", "bytes come from memory that peer exposes under tag")   \
	X(APPEND, "append", "bytes list peer tag ct", "exposes memory to puts and gets of peer")   \
	X(TPUT, "tput", "as put, when", "a put, once a counter has reached a value")               \
	X(TGET, "tget", "as get, when", "a get, once a counter has reached a value")               \
	X(TAPPEND, "tappend", "as append, when", "an append, once a counter has reached a value")  \
	X(TEST, "test", "when", "ends once a counter has reached a value")

enum goal_type {
#define X(id, word, operands, help) GOAL_##id,
	GOAL_OPS(X)
#undef X
	GOAL_TYPES
};

/* id, keyword of the text form, bytes of an element. local.h defines the results. */
#define GOAL_DTYPES(X)                                                                         \
	X(I8, "i8", 1) X(I16, "i16", 2) X(I32, "i32", 4) X(I64, "i64", 8)                      \
	X(U8, "u8", 1) X(U16, "u16", 2) X(U32, "u32", 4) X(U64, "u64", 8)                      \
	X(F16, "f16", 2) X(BF16, "bf16", 2) X(F32, "f32", 4) X(F64, "f64", 8)

enum goal_dtype {
#define X(id, word, bytes) GOAL_##id,
	GOAL_DTYPES(X)
#undef X
	GOAL_DTYPE_COUNT
};

/* Keywords, NULL behind the last. In user space only. */
extern const char *const goal_op_words[GOAL_TYPES + 1];
extern const char *const goal_dtype_words[GOAL_DTYPE_COUNT + 1];

enum goal_space {
	GOAL_SCRATCH = 0,
	GOAL_USER = 1,         /* GOAL_USER + i is the i-th user buffer */
	GOAL_NOWHERE = 0xffff, /* no memory is named: texts often give a length without a place */
};
/* Options of an append: accepts one message; belongs to the overflow list, behind the priority
 * list. */
#define GOAL_ONCE 1u
#define GOAL_OVERFLOW 2u
#define GOAL_COUNTERS_MAX (UINT32_MAX - 1)
#define GOAL_HANDLERS_MAX 254u
#define GOAL_USERS_MAX 64
#define GOAL_SPACES_MAX (1 + GOAL_USERS_MAX)
#define GOAL_MEMS 3 /* scratch and two user buffers */

/* A piece of the list of a send or receive. */
struct goal_segment {
	uint64_t off, bytes;
	uint32_t mem;      /* a space, never GOAL_NOWHERE */
	uint32_t reserved; /* 0 */
};

/*
 * An operation: one cache line. Fields that its type does not use are 0. The type tells which
 * member of a union is valid; check it before reading peer or src_off.
 */
struct goal_op {
	uint8_t type, dtype; /* dtype: arithmetic and bit operations */
	uint16_t mem;        /* space of dst, or of the bytes to send; 0 when there is a list */
	uint32_t requires;   /* number of operations that must end, or begin, before */
	uint32_t next, next_count;   /* adjacency[next ..]: operations that require its end */
	/* adjacency[inext ..]: operations that require its beginning */
	uint32_t inext, inext_count;
	uint16_t cpu, nic; /* CPU and NIC of the rank, for the simulator */
	union {
		struct {
			uint16_t src_mem, src2_mem; /* local operations: spaces of a and b */
		};
		uint32_t segment_count; /* send, recv: number of pieces; 0: memory is (mem, off) */
		struct {
			uint8_t options;     /* append: GOAL_ONCE, GOAL_OVERFLOW */
			/* append: 1 + counter of headers, payloads, completions; 0: none */
			uint8_t handlers[3];
		};
	};
	uint64_t off;
	uint64_t bytes; /* length of dst or of the whole list; CALC: nanoseconds; STAMP: 8 */
	union {
		struct {
			uint32_t peer, tag; /* send, recv: a rank of the group; recv: or GOAL_ANY */
			/* recv: its number. send: number of the peer's recv, a hint */
			uint32_t match;
			uint32_t segment; /* segments[segment ..]: the list */
		};
		struct {
			uint64_t src_off, src2_off; /* local operations: a, b */
		};
		struct {
			uint32_t one_sided[2]; /* peer, tag: as above; append: or GOAL_ANY */
			/* 1 + counter that is incremented at completion, for an append at each
			 * message. 1 + counter whose value `off` starts it. 0: none */
			uint32_t counter, when;
		};
	};
};

struct goal_block {
	uint32_t magic, version;
	uint64_t bytes;                 /* of the whole block */
	uint32_t op_count, ready_count; /* ops [0, ready_count) require nothing */
	uint32_t recv_count;
	uint32_t adjacency_count; /* uint32_t op indices, behind the ops, padded to 8 bytes */
	uint32_t segment_count;   /* struct goal_segment, behind the adjacency */
	uint32_t user_count;      /* every user buffer that is named is below it */
	uint64_t scratch_bytes;
	uint64_t reserved[2]; /* 0 */
};

_Static_assert(sizeof(struct goal_op) == 64 && sizeof(struct goal_block) == 64 &&
		       sizeof(struct goal_segment) == 24,
	       "sluice-goal(5)");

static inline struct goal_op *goal_ops(struct goal_block *b) { return (struct goal_op *)(b + 1); }
static inline const struct goal_op *goal_ops_const(const struct goal_block *b)
{
	return (const struct goal_op *)(b + 1);
}
static inline const uint32_t *goal_adjacency(const struct goal_block *b)
{
	return (const uint32_t *)(goal_ops_const(b) + b->op_count);
}
static inline const struct goal_segment *goal_segments(const struct goal_block *b)
{
	return (const struct goal_segment *)(goal_adjacency(b) + b->adjacency_count +
					     b->adjacency_count % 2);
}

static inline bool goal_is_transfer(const struct goal_op *op)
{
	return op->type == GOAL_SEND || op->type == GOAL_RECV;
}
/* dst = a op b, on elements of dtype */
static inline bool goal_is_arithmetic(const struct goal_op *op)
{
	return op->type >= GOAL_ADD && op->type <= GOAL_XOR;
}
/* Operations that a network card completes by itself, for programs that are checked and simulated.
 * Their memory is GOAL_NOWHERE: a block with one does not verify where it would have to run. */
static inline bool goal_is_one_sided(const struct goal_op *op)
{
	return op->type >= GOAL_PUT && op->type <= GOAL_TEST;
}
static inline bool goal_is_append(const struct goal_op *op)
{
	return op->type == GOAL_APPEND || op->type == GOAL_TAPPEND;
}
/* Does the operation wait for a counter? */
static inline bool goal_is_triggered(const struct goal_op *op)
{
	return op->type >= GOAL_TPUT && op->type <= GOAL_TEST;
}
/* Returns: bytes of an element; 0 when there is no such type. */
uint32_t goal_dtype_bytes(uint32_t dtype);
bool goal_dtype_is_float(uint32_t dtype);

/* Returns: bytes of a block with these numbers of operations, requirements and segments. */
static inline uint64_t goal_block_bytes(uint32_t ops, uint32_t requirements, uint32_t segments)
{
	return sizeof(struct goal_block) + (uint64_t)ops * sizeof(struct goal_op) +
	       ((uint64_t)requirements + requirements % 2) * sizeof(uint32_t) +
	       (uint64_t)segments * sizeof(struct goal_segment);
}

/* ---- building ---------------------------------------------------------------------------- */

struct goal_edge {
	uint32_t before, after; /* labels */
	bool immediate;         /* `after` requires the beginning of `before` only */
};

/* A schedule under construction. Owner: the caller, who may enlarge the tables between two
 * calls. */
struct goal_build {
	struct goal_op *ops;
	struct goal_edge *edges;
	struct goal_segment *segments;
	uint32_t op_count, op_cap, edge_count, edge_cap, segment_count, segment_cap;
	uint32_t recv_count;
	uint64_t scratch_bytes;
	int error; /* first error; goal_compile() returns it */
};

/* Without lists of pieces; for these set b->segments and b->segment_cap. */
void goal_build_init(struct goal_build *b, struct goal_op *ops, uint32_t op_cap,
		     struct goal_edge *edges, uint32_t edge_cap);
/*
 * Adds an operation by its record. Later calls set requires, next, inext and the list; match of a
 * receive is its number. goal_verify() checks the operation itself. Returns: its label, counted
 * from 0; GOAL_NONE without room.
 */
uint32_t goal_add(struct goal_build *b, const struct goal_op *op);
uint32_t goal_send(struct goal_build *b, uint32_t peer, uint32_t tag, uint32_t match, uint16_t mem,
		   uint64_t off, uint64_t bytes);
uint32_t goal_recv(struct goal_build *b, uint32_t peer, uint32_t tag, uint16_t mem, uint64_t off,
		   uint64_t bytes);
uint32_t goal_copy(struct goal_build *b, uint16_t mem, uint64_t off, uint16_t src_mem,
		   uint64_t src_off, uint64_t bytes);
/*
 * Adds a piece to the list of send or receive `label`, whose mem, off and bytes were 0 when it was
 * added. The pieces of one list are added in a row.
 */
void goal_segment(struct goal_build *b, uint32_t label, uint16_t mem, uint64_t off, uint64_t bytes);
/* `op` starts after `before` has ended. */
void goal_requires(struct goal_build *b, uint32_t op, uint32_t before);
/* `op` starts after `before` has begun. */
void goal_irequires(struct goal_build *b, uint32_t op, uint32_t before);
/*
 * Compiles in time proportional to operations and requirements. out: aligned to 8 bytes. The build
 * can be extended and compiled again; until then b->ops[label].next is the index of that operation
 * in the block. Returns: 0; -ENOSPC: `cap` or a table is too small; -ELOOP: requirements form a
 * cycle; -EINVAL: no such label, or a list that was not added in a row.
 */
int goal_compile(struct goal_build *b, struct goal_block *out, size_t cap);

/* ---- verifying --------------------------------------------------------------------------- */

/* The resources of the place where a block is to run. */
struct goal_limits {
	uint32_t ranks;            /* at most GOAL_RANKS_MAX */
	uint32_t mems;             /* spaces: scratch and mems - 1 user buffers */
	/* [mems]; UINT64_MAX where the size is not known yet, see goal_extents() */
	const uint64_t *mem_bytes;
	bool nowhere;              /* may sends and receives name no memory? */
};

/*
 * Verifies that a block cannot make an interpreter leave its memory, loop, or wait for itself. b:
 * any bytes. work: [bytes / sizeof(struct goal_op)]. Takes time proportional to the block. An
 * accepted block has these properties: every index is inside; every operation is released exactly
 * as often as it requires, and all end; sums do not overflow; memory is inside its space; dst of a
 * local operation equals one of its operands or overlaps none (within a space: buffers of the
 * program that overlap each other give undefined contents, never an access outside them). Operands
 * have any alignment. Returns: 0 or -EINVAL.
 */
__attribute__((cold))
int goal_verify(const struct goal_block *b, size_t bytes, const struct goal_limits *limits,
		uint32_t *work);
/* Computes how much of each space the operations of a verified block name, and how much of each the
 * block needs: it may state more scratch memory. out_bytes: [GOAL_SPACES_MAX]. */
void goal_named(const struct goal_block *b, uint64_t *out_bytes);
void goal_extents(const struct goal_block *b, uint64_t *out_bytes);

#endif
