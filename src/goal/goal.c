/* SPDX-License-Identifier: BSD-3-Clause */
#include "goal/goal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NONE UINT32_MAX

size_t goal_block_bytes(uint32_t ops, uint32_t requirements)
{
	return sizeof(struct goal_block) + ops * sizeof(struct goal_op) + requirements * sizeof(uint32_t);
}

/* ---- building ------------------------------------------------------------------------------- */

void goal_build_init(struct goal_build *b, struct goal_op *ops, uint32_t op_cap, struct goal_edge *edges,
		     uint32_t edge_cap)
{
	*b = (struct goal_build){ .ops = ops, .edges = edges, .op_cap = op_cap, .edge_cap = edge_cap };
}

static uint32_t add(struct goal_build *b, const struct goal_op *op)
{
	if (b->op_count == b->op_cap) {
		b->error = b->error ? b->error : -ENOSPC;
		return NONE;
	}
	b->ops[b->op_count] = *op;
	return b->op_count++;
}

uint32_t goal_send(struct goal_build *b, uint32_t peer, uint32_t tag, uint32_t match, enum goal_mem mem,
		   uint64_t off, uint64_t bytes)
{
	return add(b, &(struct goal_op){ .type = GOAL_SEND, .peer = peer, .tag = tag, .match = match,
					 .mem = (uint16_t)mem, .off = off, .bytes = bytes });
}

uint32_t goal_recv(struct goal_build *b, uint32_t peer, uint32_t tag, enum goal_mem mem, uint64_t off,
		   uint64_t bytes)
{
	return add(b, &(struct goal_op){ .type = GOAL_RECV, .peer = peer, .tag = tag, .mem = (uint16_t)mem,
					 .off = off, .bytes = bytes });
}

uint32_t goal_copy(struct goal_build *b, enum goal_mem mem, uint64_t off, enum goal_mem src_mem,
		   uint64_t src_off, uint64_t bytes)
{
	return add(b, &(struct goal_op){ .type = GOAL_COPY, .mem = (uint16_t)mem, .off = off,
					 .src_mem = (uint16_t)src_mem, .src_off = src_off, .bytes = bytes });
}

void goal_requires(struct goal_build *b, uint32_t op, uint32_t before)
{
	if (op >= b->op_count || before >= b->op_count || b->edge_count == b->edge_cap) {
		b->error = b->error ? b->error : op < b->op_count && before < b->op_count ? -ENOSPC : -EINVAL;
		return;
	}
	if (b->ops[op].requires == UINT16_MAX) {
		b->error = b->error ? b->error : -ENOSPC;
		return;
	}
	b->edges[b->edge_count++] = (struct goal_edge){ before, op };
	b->ops[op].requires++;
}

/*
 * Give each operation its place: level by level, so that requirements always point forward. Builder
 * fields are used as work space: next = new index, next_count = requirements not yet placed.
 */
static int order(struct goal_build *b, uint32_t *out_ready)
{
	uint32_t placed = 0, before;

	for (uint32_t i = 0; i < b->op_count; i++) {
		b->ops[i].next = NONE;
		b->ops[i].next_count = b->ops[i].requires;
	}
	for (uint32_t level = 0; placed < b->op_count; level++) {
		before = placed;
		for (uint32_t i = 0; i < b->op_count; i++)
			if (b->ops[i].next == NONE && !b->ops[i].next_count)
				b->ops[i].next = placed++;
		if (placed == before)
			return -ELOOP;
		if (!level)
			*out_ready = placed;
		for (uint32_t e = 0; e < b->edge_count; e++) {
			uint32_t place = b->ops[b->edges[e].before].next;

			if (place >= before && place < placed)
				b->ops[b->edges[e].after].next_count--;
		}
	}
	return 0;
}

static void fill_adjacency(const struct goal_build *b, struct goal_block *out)
{
	struct goal_op *ops = goal_ops(out);
	uint32_t *next = (uint32_t *)((char *)out + out->adjacency_off), at = 0;

	for (uint32_t e = 0; e < b->edge_count; e++)
		ops[b->ops[b->edges[e].before].next].next_count++;
	for (uint32_t i = 0; i < out->op_count; i++) {
		ops[i].next = at;
		at += ops[i].next_count;
		ops[i].next_count = 0;
	}
	for (uint32_t e = 0; e < b->edge_count; e++) {
		struct goal_op *from = &ops[b->ops[b->edges[e].before].next];

		next[from->next + from->next_count++] = b->ops[b->edges[e].after].next;
	}
}

int goal_compile(struct goal_build *b, struct goal_block *out, size_t cap)
{
	size_t bytes = goal_block_bytes(b->op_count, b->edge_count);
	uint32_t ready = 0, recvs = 0;
	int ret = b->error;

	if (!ret && (bytes > cap || bytes > UINT32_MAX))
		ret = -ENOSPC;
	if (!ret)
		ret = order(b, &ready);
	if (ret)
		return ret;
	*out = (struct goal_block){
		.magic = GOAL_MAGIC,
		.version = GOAL_VERSION,
		.bytes = (uint32_t)bytes,
		.op_count = b->op_count,
		.ready_count = ready,
		.adjacency_off = (uint32_t)(sizeof *out + b->op_count * sizeof(struct goal_op)),
		.adjacency_count = b->edge_count,
		.scratch_bytes = b->scratch_bytes,
	};
	for (uint32_t i = 0; i < b->op_count; i++) {
		struct goal_op *op = &goal_ops(out)[b->ops[i].next];

		*op = b->ops[i];
		op->next = op->next_count = 0;
		/* receives are numbered as they were added, which senders can know */
		if (op->type == GOAL_RECV)
			op->match = recvs++;
	}
	out->recv_count = recvs;
	fill_adjacency(b, out);
	return 0;
}

/* ---- using ------------------------------------------------------------------------------------ */

static int verify_range(const uint64_t *mem_bytes, uint16_t mem, uint64_t off, uint64_t bytes)
{
	if (mem >= GOAL_MEMS || off > mem_bytes[mem] || bytes > mem_bytes[mem] - off)
		return -EINVAL;
	return 0;
}

static int verify_op(const struct goal_block *b, uint32_t i, uint32_t ranks, const uint64_t *mem_bytes)
{
	const struct goal_op *op = &goal_ops_const(b)[i];
	const uint32_t *next = goal_adjacency(b);

	if (op->type >= GOAL_TYPES || (op->requires == 0) != (i < b->ready_count))
		return -EINVAL;
	if (op->type != GOAL_COPY && op->peer >= ranks)
		return -EINVAL;
	if (op->type == GOAL_RECV && op->match >= b->recv_count)
		return -EINVAL;
	if (verify_range(mem_bytes, op->mem, op->off, op->bytes))
		return -EINVAL;
	if (op->type == GOAL_COPY && verify_range(mem_bytes, op->src_mem, op->src_off, op->bytes))
		return -EINVAL;
	if (op->next > b->adjacency_count || op->next_count > b->adjacency_count - op->next)
		return -EINVAL;
	for (uint32_t k = 0; k < op->next_count; k++) {
		if (next[op->next + k] >= b->op_count)
			return -EINVAL;
		if (next[op->next + k] <= i) /* forward only: no cycle is possible */
			return -ELOOP;
	}
	return 0;
}

/* Each operation must be released exactly as often as it requires, or it never starts (or twice). */
static int verify_counts(const struct goal_block *b)
{
	const uint32_t *next = goal_adjacency(b);

	for (uint32_t i = 0; i < b->op_count; i++) {
		uint32_t n = 0;

		for (uint32_t k = 0; k < b->adjacency_count; k++)
			n += next[k] == i;
		if (n != goal_ops_const(b)[i].requires)
			return -EINVAL;
	}
	return 0;
}

static int verify_numbers(const struct goal_block *b)
{
	const struct goal_op *ops = goal_ops_const(b);
	uint32_t recvs = 0;

	for (uint32_t i = 0; i < b->op_count; i++) {
		if (ops[i].type != GOAL_RECV)
			continue;
		recvs++;
		for (uint32_t j = 0; j < i; j++)
			if (ops[j].type == GOAL_RECV && ops[j].match == ops[i].match)
				return -EINVAL;
	}
	return recvs == b->recv_count ? 0 : -EINVAL;
}

int goal_verify(const struct goal_block *b, size_t bytes, uint32_t ranks, const uint64_t *mem_bytes)
{
	uint32_t end = 0;
	int ret = 0;

	if (bytes < sizeof *b || b->magic != GOAL_MAGIC || b->version != GOAL_VERSION || b->bytes > bytes)
		return -EINVAL;
	if (b->op_count > bytes / sizeof(struct goal_op) || b->adjacency_count > bytes / sizeof(uint32_t) ||
	    b->adjacency_off != sizeof *b + b->op_count * sizeof(struct goal_op) ||
	    goal_block_bytes(b->op_count, b->adjacency_count) != b->bytes || b->ready_count > b->op_count ||
	    b->scratch_bytes > mem_bytes[GOAL_SCRATCH])
		return -EINVAL;
	for (uint32_t i = 0; i < b->op_count && !ret; i++) {
		const struct goal_op *op = &goal_ops_const(b)[i];

		/* lists lie one after the other, so that no entry is shared or left out */
		if (op->next != end)
			return -EINVAL;
		end += op->next_count;
		ret = verify_op(b, i, ranks, mem_bytes);
	}
	if (!ret && end != b->adjacency_count)
		ret = -EINVAL;
	if (!ret)
		ret = verify_counts(b);
	return ret ? ret : verify_numbers(b);
}

static int print_mem(char *buf, size_t cap, uint16_t mem, uint64_t off)
{
	if (mem == GOAL_SCRATCH)
		return snprintf(buf, cap, "scratch+%llu", (unsigned long long)off);
	return snprintf(buf, cap, "user%u+%llu", (unsigned)(mem - GOAL_USER), (unsigned long long)off);
}

static const char *const words[GOAL_TYPES] = {
#define X(id, word, help) word,
	GOAL_OPS(X)
#undef X
};

static int print_op(char *buf, size_t cap, uint32_t i, const struct goal_op *op)
{
	char to[64], from[64];

	print_mem(to, sizeof to, op->mem, op->off);
	print_mem(from, sizeof from, op->src_mem, op->src_off);
	if (op->type == GOAL_COPY)
		return snprintf(buf, cap, "l%u: copy %llub from %s to %s\n", i, (unsigned long long)op->bytes,
				from, to);
	return snprintf(buf, cap, "l%u: %s %llub %s %u tag %u %s %s\n", i, words[op->type],
			(unsigned long long)op->bytes, op->type == GOAL_SEND ? "to" : "from", op->peer, op->tag,
			op->type == GOAL_SEND ? "out of" : "into", to);
}

int goal_print(const struct goal_block *b, char *buf, size_t cap)
{
	const struct goal_op *ops = goal_ops_const(b);
	size_t n = 0;

#define ROOM (n < cap ? cap - n : 0)
#define AT (n < cap ? buf + n : NULL)
	for (uint32_t i = 0; i < b->op_count; i++)
		n += (size_t)print_op(AT, ROOM, i, &ops[i]);
	for (uint32_t i = 0; i < b->op_count; i++)
		for (uint32_t k = 0; k < ops[i].next_count; k++)
			n += (size_t)snprintf(AT, ROOM, "l%u requires l%u\n",
					      goal_adjacency(b)[ops[i].next + k], i);
#undef ROOM
#undef AT
	return (int)n;
}
