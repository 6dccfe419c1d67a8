/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "goal/program.h"

int goal_program_verify_header(const struct goal_program *p, uint64_t bytes)
{
	if ((uintptr_t)p % _Alignof(struct goal_program) || bytes < sizeof *p ||
	    p->magic != GOAL_PROGRAM_MAGIC || p->version != GOAL_PROGRAM_VERSION ||
	    p->bytes > bytes || p->reserved[0] || p->reserved[1] || p->reserved[2] || !p->ranks ||
	    p->ranks > GOAL_RANKS_MAX || !p->block_count)
		return -EINVAL;
	if (p->offsets_off % GOAL_PROGRAM_ALIGN || p->offsets_off < sizeof *p ||
	    p->offsets_off > p->bytes ||
	    goal_program_tables_bytes(p->block_count, p->ranks) != p->bytes - p->offsets_off)
		return -EINVAL;
	/* the work space must exist before it is used */
	return p->most_ops > p->bytes / sizeof(struct goal_op) ? -EINVAL : 0;
}

/* Verifies the block between `from` and `end`, where the next block begins. */
static int verify_block(const struct goal_program *p, uint64_t from, uint64_t end, uint32_t *work)
{
	const struct goal_block *b = (const struct goal_block *)((const char *)p + from);
	uint64_t mem_bytes[GOAL_SPACES_MAX];
	const struct goal_limits limits = { p->ranks, GOAL_SPACES_MAX, mem_bytes, true };
	int ret;

	if (end <= from || end > p->offsets_off || end - from < sizeof *b ||
	    b->op_count > p->most_ops)
		return -EINVAL;
	for (uint32_t i = 0; i < GOAL_SPACES_MAX; i++)
		mem_bytes[i] = UINT64_MAX;
	ret = goal_verify(b, end - from, &limits, work);
	if (ret)
		return ret;
	if (goal_program_align(b->bytes) != end - from)
		return -EINVAL;
	for (uint64_t i = b->bytes; i < end - from; i++)
		if (((const char *)b)[i])
			return -EINVAL;
	return 0;
}

/* Blocks fill the space up to the tables without overlap: none is verified twice. */
int goal_program_verify(const struct goal_program *p, uint64_t bytes, uint32_t *work,
			uint32_t *out_block)
{
	uint64_t from = sizeof *p, end;
	int ret = goal_program_verify_header(p, bytes);

	*out_block = GOAL_NONE;
	if (ret)
		return ret;
	if (goal_program_offsets(p)[0] != from)
		return -EINVAL;
	for (uint32_t i = 0; i < p->block_count; i++, from = end) {
		end = i + 1 < p->block_count ? goal_program_offsets(p)[i + 1] : p->offsets_off;
		ret = verify_block(p, from, end, work);
		if (ret) {
			*out_block = i;
			return ret;
		}
	}
	for (uint32_t r = 0; r < p->ranks; r++)
		if (goal_program_numbers(p)[r] >= p->block_count)
			return -EINVAL;
	return p->ranks % 2 && goal_program_numbers(p)[p->ranks] ? -EINVAL : 0;
}
