/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a verified block of one rank alone, with the library's own interpreter and local operations,
 * in buffers of exactly the size that was verified: a sanitizer sees whatever is outside. Sends are
 * read, receives are written.
 */
#ifndef SLUICE_TEST_GOAL_RUN_H
#define SLUICE_TEST_GOAL_RUN_H

#include <stdlib.h>
#include <string.h>

#include "goal/interp.h"
#include "goal/local.h"

enum { GOAL_RUN_MEMS = 3 };

struct goal_run {
	const struct goal_block *block;
	char *mem[GOAL_RUN_MEMS];
	uint64_t sum; /* of what was sent, so that it is read */
};

static inline void goal_run_touch(struct goal_run *r, bool write, uint32_t mem, uint64_t off,
				  uint64_t bytes)
{
	if (write && bytes)
		memset(r->mem[mem] + off, 7, bytes);
	for (uint64_t i = 0; !write && i < bytes; i++)
		r->sum += (unsigned char)r->mem[mem][off + i];
}

static inline void goal_run_transfer(struct goal_run *r, const struct goal_op *op)
{
	const struct goal_segment *s = goal_segments(r->block) + op->segment;
	bool write = op->type == GOAL_RECV;

	if (op->mem == GOAL_NOWHERE)
		return;
	if (!op->segment_count)
		goal_run_touch(r, write, op->mem, op->off, op->bytes);
	for (uint32_t k = 0; k < op->segment_count; k++)
		goal_run_touch(r, write, s[k].mem, s[k].off, s[k].bytes);
}

static inline void goal_run_op(struct goal_run *r, const struct goal_op *op)
{
	if (goal_is_transfer(op))
		goal_run_transfer(r, op);
	else if (op->type == GOAL_COPY && op->bytes)
		memmove(r->mem[op->mem] + op->off, r->mem[op->src_mem] + op->src_off, op->bytes);
	else if (op->type == GOAL_STAMP)
		memset(r->mem[op->mem] + op->off, 1, op->bytes);
	else if (goal_is_arithmetic(op))
		goal_local(GOAL_ISA_BASE, op->type, op->dtype, r->mem[op->mem] + op->off,
			   r->mem[op->src_mem] + op->src_off, r->mem[op->src2_mem] + op->src2_off,
			   op->bytes);
}

/* Returns: NULL, or the mistake. mem_bytes: [GOAL_RUN_MEMS], as verified. */
static inline const char *goal_run(const struct goal_block *b, const uint64_t *mem_bytes)
{
	struct goal_state *s = malloc(goal_state_bytes(b->op_count));
	struct goal_run r = { .block = b };
	uint32_t op, count = 0, overs = 0;
	bool has_all = s;

	for (int i = 0; i < GOAL_RUN_MEMS; i++) {
		uint64_t bytes = i == GOAL_SCRATCH ? b->scratch_bytes : mem_bytes[i];

		r.mem[i] = calloc(1, bytes ? bytes : 1);
		has_all = has_all && r.mem[i];
	}
	if (!has_all)
		abort();
	goal_state_init(b, s);
	while ((op = goal_claim(b, s)) != GOAL_NONE && count++ < b->op_count) {
		goal_begin(b, s, op);
		goal_run_op(&r, &goal_ops_const(b)[op]);
		overs += goal_end(b, s, op);
	}
	free(s);
	for (int i = 0; i < GOAL_RUN_MEMS; i++)
		free(r.mem[i]);
	return count == b->op_count && overs == (count != 0) ? NULL
							     : "a schedule that does not end";
}

#endif
