/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * goal: schedules as data. A schedule is what one rank does in a collective: operations (send,
 * receive, copy) and which of them must be finished before which. Pure: nothing here communicates,
 * waits, or knows an address.
 *
 *   struct goal_build --goal_compile--> block: one run of bytes without pointers
 *
 *   | goal_block | ops without requirements | other ops | adjacency: whom each op's end releases |
 *
 * Operations stand in an order in which requirements only point forward, so a cycle cannot be
 * written down at all.
 *
 * The block can be copied anywhere and interpreted by any process of the node group (exec/), which
 * checks it with goal_verify() when it did not make it itself. Memory is named by (space, offset):
 * the program's buffers are GOAL_USER + i, temporary memory is GOAL_SCRATCH. After Hoefler's Group
 * Operation Assembly Language; the text format and a public API are layered on this later.
 */
#ifndef SLUICE_GOAL_H
#define SLUICE_GOAL_H

#include <stddef.h>
#include <stdint.h>

#define GOAL_MAGIC 0x4c414f47u
#define GOAL_VERSION 1u

/* type, keyword in text, operands */
#define GOAL_OPS(X)                                                     \
	X(SEND, "send", "bytes at off of mem go to peer under tag")     \
	X(RECV, "recv", "bytes from peer under tag arrive at off of mem") \
	X(COPY, "copy", "bytes at src_off of src_mem go to off of mem, inside this rank")

enum goal_type {
#define X(id, word, help) GOAL_##id,
	GOAL_OPS(X)
#undef X
	GOAL_TYPES
};

enum goal_mem { GOAL_SCRATCH = 0, GOAL_USER = 1 }; /* GOAL_USER + i is the i-th user buffer */
#define GOAL_MEMS 3                                /* scratch and two user buffers */

struct goal_op {
	uint16_t type, mem;
	uint16_t src_mem;   /* copy */
	uint16_t requires;  /* number of operations that must end first */
	uint32_t peer, tag; /* send, recv; peer is a rank of the group */
	uint32_t match;     /* send: index of the peer's recv, a hint that exec verifies; recv: its number */
	uint32_t next, next_count; /* adjacency[next ..]: operations that require this one */
	uint32_t reserved;
	uint64_t off, src_off, bytes;
};

struct goal_block {
	uint32_t magic, version;
	uint32_t bytes;         /* of the whole block */
	uint32_t op_count, ready_count; /* ops [0, ready_count) require nothing */
	uint32_t recv_count;
	uint32_t adjacency_off, adjacency_count; /* uint32_t op indices, at this byte offset */
	uint64_t scratch_bytes;
};

static inline struct goal_op *goal_ops(struct goal_block *b) { return (struct goal_op *)(b + 1); }
static inline const struct goal_op *goal_ops_const(const struct goal_block *b)
{
	return (const struct goal_op *)(b + 1);
}
static inline const uint32_t *goal_adjacency(const struct goal_block *b)
{
	return (const uint32_t *)((const char *)b + b->adjacency_off);
}

/* Bytes of a block with so many operations and requirements. */
size_t goal_block_bytes(uint32_t ops, uint32_t requirements);

/* ---- building ------------------------------------------------------------------------------- */

struct goal_edge { uint32_t before, after; };
struct goal_build {
	struct goal_op *ops;
	struct goal_edge *edges;
	uint32_t op_count, op_cap, edge_count, edge_cap;
	uint64_t scratch_bytes;
	int error; /* first error, returned by goal_compile */
};

/* ops and edges: memory of the caller. */
void goal_build_init(struct goal_build *b, struct goal_op *ops, uint32_t op_cap, struct goal_edge *edges,
		     uint32_t edge_cap);
/* Each returns the operation's label for goal_requires(). */
uint32_t goal_send(struct goal_build *b, uint32_t peer, uint32_t tag, uint32_t match, enum goal_mem mem,
		   uint64_t off, uint64_t bytes);
uint32_t goal_recv(struct goal_build *b, uint32_t peer, uint32_t tag, enum goal_mem mem, uint64_t off,
		   uint64_t bytes);
uint32_t goal_copy(struct goal_build *b, enum goal_mem mem, uint64_t off, enum goal_mem src_mem,
		   uint64_t src_off, uint64_t bytes);
/* `op` starts when `before` has ended. */
void goal_requires(struct goal_build *b, uint32_t op, uint32_t before);
/* 0; -ENOSPC when `cap` or a table was too small; -ELOOP when requirements form a cycle. */
int goal_compile(struct goal_build *b, struct goal_block *out, size_t cap);

/* ---- using ------------------------------------------------------------------------------------ */

/*
 * Is this a block that cannot make an interpreter leave its memory, loop or wait for itself?
 * mem_bytes[GOAL_MEMS]: size of each space. 0 or -EINVAL (-ELOOP for a cycle).
 */
int goal_verify(const struct goal_block *b, size_t bytes, uint32_t ranks, const uint64_t *mem_bytes);

/* The block as text, one operation a line ("l0: send 4096b to 1 tag 0 from user0+0"), then
 * "l2 requires l0". snprintf-like. */
int goal_print(const struct goal_block *b, char *buf, size_t cap);

#endif
