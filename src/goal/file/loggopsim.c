/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The binary form of LogGOPSim, which txt2bin writes: numbers without padding, little-endian.
 *
 *   8       4223; 2342: LogGOPSim has used the file up (--save-mem)
 *   4 1 1   ranks; largest cpu; largest nic
 *   8 8     of each rank: begin and end of its schedule, counted from the number of ranks
 *
 * A schedule: 4 operations, 4 of them that require nothing, 4 each their numbers, then
 *
 *   4 1 4   of each operation: requirements; 1 send, 2 receive, 3 calc; peer
 *   8 4 1 1 bytes or ns; tag; cpu; nic
 *   4 4 4 4 operations that require its end: how many, where; the same for its beginning
 *   4       numbers of operations, to which these point
 */
#include <errno.h>
#include <stdlib.h>

#include "goal/file/goalfile.h"

enum { SEND = 1, RECV = 2, CALC = 3, RECORD = 39, COOKIE = 8, HEAD = 6, JUMP = 16 };

struct source {
	const unsigned char *ops, *lists;
	uint32_t op_count, edge_count, ranks;
};

static uint32_t get32(const unsigned char *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get64(const unsigned char *p) { return get32(p) | (uint64_t)get32(p + 4) << 32; }

uint64_t goalfile_loggopsim_cookie(const void *data, size_t bytes)
{
	uint64_t cookie = bytes >= COOKIE ? get64(data) : 0;

	return cookie == GOALFILE_LOGGOPSIM || cookie == GOALFILE_LOGGOPSIM_USED ? cookie : 0;
}

/* Finds the parts of a rank's schedule. Returns: 0 or -EINVAL. */
static int find_parts(const unsigned char *at, uint64_t bytes, struct source *out)
{
	uint64_t off = 8, edges = 0;

	if (bytes < off)
		return -EINVAL;
	out->op_count = get32(at);
	off += 4 * (uint64_t)get32(at + 4);
	if (out->op_count > INT32_MAX || off + RECORD * (uint64_t)out->op_count > bytes)
		return -EINVAL;
	out->ops = at + off;
	out->lists = out->ops + RECORD * (uint64_t)out->op_count;
	bytes = (bytes - off - RECORD * (uint64_t)out->op_count) / 4;
	if (bytes > INT32_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < out->op_count; i++) {
		const unsigned char *op = out->ops + RECORD * (uint64_t)i + 23;

		for (int k = 0; k < 2; k++, op += 8) {
			uint64_t count = get32(op);

			if (count && get32(op + 4) + count > bytes)
				return -EINVAL;
			edges += count;
		}
	}
	out->edge_count = (uint32_t)edges;
	return edges > bytes ? -EINVAL : 0; /* each entry belongs to one list */
}

static int add_op(struct goal_build *b, const unsigned char *p, uint32_t ranks)
{
	static const uint8_t types[] = { [SEND] = GOAL_SEND, [RECV] = GOAL_RECV,
					 [CALC] = GOAL_CALC };
	struct goal_op op = { .bytes = get64(p + 9), .cpu = p[21], .nic = p[22] };

	if (p[4] < SEND || p[4] > CALC)
		return -EINVAL;
	op.type = types[p[4]];
	if (op.type != GOAL_CALC) {
		bool any = op.type == GOAL_RECV;

		op.mem = GOAL_NOWHERE;
		op.peer = get32(p + 5);
		op.tag = get32(p + 17);
		if ((op.peer >= ranks && !(any && op.peer == GOAL_ANY)) ||
		    (op.tag == GOAL_ANY && !any))
			return -EINVAL;
	}
	return goal_add(b, &op) == GOAL_NONE ? -ENOMEM : 0;
}

static int add_edges(struct goal_build *b, const struct source *s, uint32_t i)
{
	const unsigned char *op = s->ops + RECORD * (uint64_t)i + 23;

	for (int k = 0; k < 2; k++, op += 8)
		for (uint32_t n = 0; n < get32(op); n++) {
			uint32_t to = get32(s->lists + 4 * ((uint64_t)get32(op + 4) + n));

			if (to >= s->op_count)
				return -EINVAL;
			if (k)
				goal_irequires(b, to, i);
			else
				goal_requires(b, to, i);
		}
	return 0;
}

/* Compiles a rank. Returns: the block, which the caller frees; NULL with *error. */
static struct goal_block *compile(const struct source *s, int *error)
{
	uint64_t bytes = goal_block_bytes(s->op_count, s->edge_count, 0);
	struct goal_op *ops = malloc((s->op_count + 1ull) * sizeof *ops);
	struct goal_edge *edges = malloc((s->edge_count + 1ull) * sizeof *edges);
	struct goal_block *block = malloc(bytes);
	struct goal_build b;
	int ret = ops && edges && block ? 0 : -ENOMEM;

	goal_build_init(&b, ops, s->op_count, edges, s->edge_count);
	for (uint32_t i = 0; i < s->op_count && !ret; i++)
		ret = add_op(&b, s->ops + RECORD * (uint64_t)i, s->ranks);
	for (uint32_t i = 0; i < s->op_count && !ret; i++)
		ret = add_edges(&b, s, i);
	if (!ret)
		ret = goal_compile(&b, block, bytes);
	free(ops);
	free(edges);
	*error = ret;
	if (!ret)
		return block;
	free(block);
	return NULL;
}

int goalfile_loggopsim_read(const void *data, size_t bytes, const struct goalfile_calls *calls,
			    void *ctx, uint32_t *out_rank)
{
	const unsigned char *base = (const unsigned char *)data + COOKIE;
	uint64_t all = 0; /* bytes of the schedules: none is of two ranks */
	struct source s;
	int ret;

	*out_rank = GOAL_NONE;
	if (goalfile_loggopsim_cookie(data, bytes) != GOALFILE_LOGGOPSIM || bytes < COOKIE + HEAD)
		return -EINVAL;
	bytes -= COOKIE;
	s.ranks = get32(base);
	if (!s.ranks || s.ranks > GOAL_RANKS_MAX || HEAD + JUMP * (uint64_t)s.ranks > bytes)
		return -EINVAL;
	ret = calls->begin(ctx, s.ranks);
	for (uint32_t rank = 0; rank < s.ranks && !ret; rank++) {
		const unsigned char *jump = base + HEAD + JUMP * (uint64_t)rank;
		uint64_t from = get64(jump), to = get64(jump + 8);
		struct goal_block *block;

		*out_rank = rank;
		if (from > to || to > bytes || to - from > bytes - all)
			return -EINVAL;
		all += to - from;
		ret = find_parts(base + from, to - from, &s);
		block = ret ? NULL : compile(&s, &ret);
		if (block)
			ret = calls->add(ctx, rank, block);
		free(block);
	}
	return ret;
}
