/* SPDX-License-Identifier: BSD-3-Clause */
/* Compiles labels and requirements, given in any order, to a block. */
#include <errno.h>
#include <string.h>

#include "goal/goal.h"

void goal_build_init(struct goal_build *b, struct goal_op *ops, uint32_t op_cap,
		     struct goal_edge *edges, uint32_t edge_cap)
{
	*b = (struct goal_build){
		.ops = ops, .edges = edges, .op_cap = op_cap, .edge_cap = edge_cap
	};
}

static void fail(struct goal_build *b, int error)
{
	if (!b->error)
		b->error = error;
}

uint32_t goal_add(struct goal_build *b, const struct goal_op *op)
{
	struct goal_op *to = &b->ops[b->op_count];

	if (b->op_count == b->op_cap || b->op_count == GOAL_NONE) {
		fail(b, -ENOSPC);
		return GOAL_NONE;
	}
	*to = *op;
	to->requires = to->next = to->next_count = to->inext = to->inext_count = 0;
	if (goal_is_transfer(op))
		to->segment = to->segment_count = 0;
	/* receives are numbered in the order of their labels: senders can compute the number */
	if (op->type == GOAL_RECV)
		to->match = b->recv_count++;
	return b->op_count++;
}

uint32_t goal_send(struct goal_build *b, uint32_t peer, uint32_t tag, uint32_t match, uint16_t mem,
		   uint64_t off, uint64_t bytes)
{
	return goal_add(b, &(struct goal_op){ .type = GOAL_SEND,
					      .peer = peer,
					      .tag = tag,
					      .match = match,
					      .mem = mem,
					      .off = off,
					      .bytes = bytes });
}

uint32_t goal_recv(struct goal_build *b, uint32_t peer, uint32_t tag, uint16_t mem, uint64_t off,
		   uint64_t bytes)
{
	return goal_add(b, &(struct goal_op){ .type = GOAL_RECV,
					      .peer = peer,
					      .tag = tag,
					      .mem = mem,
					      .off = off,
					      .bytes = bytes });
}

uint32_t goal_copy(struct goal_build *b, uint16_t mem, uint64_t off, uint16_t src_mem,
		   uint64_t src_off, uint64_t bytes)
{
	return goal_add(b, &(struct goal_op){ .type = GOAL_COPY,
					      .mem = mem,
					      .off = off,
					      .src_mem = src_mem,
					      .src_off = src_off,
					      .bytes = bytes });
}

void goal_segment(struct goal_build *b, uint32_t label, uint16_t mem, uint64_t off, uint64_t bytes)
{
	struct goal_op *op = &b->ops[label];

	if (label >= b->op_count || !goal_is_transfer(op) || op->mem || op->off) {
		fail(b, -EINVAL);
		return;
	}
	if (b->segment_count == b->segment_cap) {
		fail(b, -ENOSPC);
		return;
	}
	if (!op->segment_count)
		op->segment = b->segment_count;
	if (op->segment + op->segment_count != b->segment_count || bytes > UINT64_MAX - op->bytes ||
	    (!op->segment_count && op->bytes)) {
		fail(b, -EINVAL);
		return;
	}
	b->segments[b->segment_count++] =
		(struct goal_segment){ .off = off, .bytes = bytes, .mem = mem };
	op->segment_count++;
	op->bytes += bytes;
}

static void add_edge(struct goal_build *b, struct goal_edge edge)
{
	if (edge.after >= b->op_count || edge.before >= b->op_count) {
		fail(b, -EINVAL);
		return;
	}
	if (b->edge_count == b->edge_cap || b->edge_count == UINT32_MAX) {
		fail(b, -ENOSPC);
		return;
	}
	b->edges[b->edge_count++] = edge;
	b->ops[edge.after].requires++;
}

void goal_requires(struct goal_build *b, uint32_t op, uint32_t before)
{
	add_edge(b, (struct goal_edge){ before, op, false });
}

void goal_irequires(struct goal_build *b, uint32_t op, uint32_t before)
{
	add_edge(b, (struct goal_edge){ before, op, true });
}

/* ---- compiling --------------------------------------------------------------------------- */

/*
 * The memory of the block serves as work space until the block is written: three words an operation
 * fit into its record, a word a requirement into the adjacency. In the builder's records `next`
 * becomes an operation's index in the block, `inext` its level (the longest path to it),
 * `next_count` the requirements that are not counted yet.
 */
struct work {
	uint32_t *starts; /* [ops + 1]: first successor of each operation */
	uint32_t *queue;  /* [ops]; later the number of operations on each level */
	uint32_t *after;  /* [edges]: successors */
};

static void sum_up(uint32_t *counts, uint32_t n)
{
	uint32_t at = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t count = counts[i];

		counts[i] = at;
		at += count;
	}
}

static void list_successors(const struct goal_build *b, struct work *w)
{
	memset(w->starts, 0, ((size_t)b->op_count + 1) * sizeof *w->starts);
	for (uint32_t e = 0; e < b->edge_count; e++)
		w->starts[b->edges[e].before]++;
	sum_up(w->starts, b->op_count + 1);
	for (uint32_t e = 0; e < b->edge_count; e++)
		w->after[w->starts[b->edges[e].before]++] = b->edges[e].after;
	/* the loop above has advanced each start to the next one's */
	memmove(w->starts + 1, w->starts, (size_t)b->op_count * sizeof *w->starts);
	w->starts[0] = 0;
}

/* Computes levels in topological order. */
static int find_levels(struct goal_build *b, struct work *w)
{
	uint32_t head = 0, tail = 0;

	for (uint32_t i = 0; i < b->op_count; i++) {
		b->ops[i].next_count = b->ops[i].requires;
		b->ops[i].inext = 0;
		if (!b->ops[i].requires)
			w->queue[tail++] = i;
	}
	while (head < tail) {
		uint32_t i = w->queue[head++], level = b->ops[i].inext + 1;

		for (uint32_t k = w->starts[i]; k < w->starts[i + 1]; k++) {
			struct goal_op *op = &b->ops[w->after[k]];

			if (op->inext < level)
				op->inext = level;
			if (!--op->next_count)
				w->queue[tail++] = w->after[k];
		}
	}
	return tail == b->op_count ? 0 : -ELOOP;
}

/* Orders operations by level, then by label. Returns: the number on the first level. */
static uint32_t give_places(struct goal_build *b, struct work *w)
{
	uint32_t *levels = w->queue, ready;

	memset(levels, 0, (size_t)b->op_count * sizeof *levels);
	for (uint32_t i = 0; i < b->op_count; i++)
		levels[b->ops[i].inext]++;
	ready = b->op_count ? levels[0] : 0;
	sum_up(levels, b->op_count);
	for (uint32_t i = 0; i < b->op_count; i++)
		b->ops[i].next = levels[b->ops[i].inext]++;
	return ready;
}

static int order(struct goal_build *b, struct goal_block *out, uint32_t *out_ready)
{
	uint32_t *words = (uint32_t *)goal_ops(out);
	struct work w = { words, words + b->op_count + 1,
			  words + (size_t)b->op_count * sizeof(struct goal_op) / 4 };
	int ret;

	if (!b->op_count) {
		*out_ready = 0;
		return 0;
	}
	list_successors(b, &w);
	ret = find_levels(b, &w);
	if (!ret)
		*out_ready = give_places(b, &w);
	return ret;
}

static void sift(uint32_t *v, uint32_t at, uint32_t n)
{
	for (uint32_t child = 2 * at + 1; child < n && child > at; at = child, child = 2 * at + 1) {
		uint32_t high = v[at];

		child += child + 1 < n && v[child + 1] > v[child];
		if (v[child] <= high)
			return;
		v[at] = v[child];
		v[child] = high;
	}
}

/* Nearly all lists are sorted already; others by their heap. */
static void sort(uint32_t *v, uint32_t n)
{
	uint32_t sorted = 1;

	while (sorted < n && v[sorted - 1] <= v[sorted])
		sorted++;
	if (sorted >= n)
		return;
	for (uint32_t i = n / 2; i-- > 0;)
		sift(v, i, n);
	for (uint32_t end = n - 1; end > 0; end--) {
		uint32_t high = v[0];

		v[0] = v[end];
		v[end] = high;
		sift(v, 0, end);
	}
}

static void fill_adjacency(const struct goal_build *b, struct goal_block *out)
{
	struct goal_op *ops = goal_ops(out);
	uint32_t *list = (uint32_t *)(ops + out->op_count), at = 0;

	for (uint32_t e = 0; e < b->edge_count; e++) {
		struct goal_op *from = &ops[b->ops[b->edges[e].before].next];

		*(b->edges[e].immediate ? &from->inext_count : &from->next_count) += 1;
	}
	for (uint32_t i = 0; i < out->op_count; at += ops[i++].next_count)
		ops[i].next = at;
	for (uint32_t i = 0; i < out->op_count; at += ops[i++].inext_count)
		ops[i].inext = at;
	/* next and inext advance to the ends of their lists, then go back */
	for (uint32_t e = 0; e < b->edge_count; e++) {
		struct goal_op *from = &ops[b->ops[b->edges[e].before].next];
		uint32_t *to = b->edges[e].immediate ? &from->inext : &from->next;

		list[(*to)++] = b->ops[b->edges[e].after].next;
	}
	for (uint32_t i = 0; i < out->op_count; i++) {
		ops[i].next -= ops[i].next_count;
		ops[i].inext -= ops[i].inext_count;
		sort(list + ops[i].next, ops[i].next_count);
		sort(list + ops[i].inext, ops[i].inext_count);
	}
	if (b->edge_count % 2)
		list[b->edge_count] = 0;
}

static void name_user(struct goal_block *out, uint32_t mem)
{
	if (mem != GOAL_NOWHERE && mem > out->user_count)
		out->user_count = mem;
}

/* Lists of pieces are in the order of their operations. */
static void fill_segments(const struct goal_build *b, struct goal_block *out)
{
	struct goal_segment *to = (struct goal_segment *)(uintptr_t)goal_segments(out);
	struct goal_op *ops = goal_ops(out);
	uint32_t at = 0;

	for (uint32_t i = 0; i < out->op_count; i++) {
		struct goal_op *op = &ops[i];

		name_user(out, op->mem);
		if (goal_is_one_sided(op))
			continue;
		if (!goal_is_transfer(op)) {
			name_user(out, op->src_mem);
			name_user(out, op->src2_mem);
			continue;
		}
		for (uint32_t k = 0; k < op->segment_count; k++) {
			to[at + k] = b->segments[op->segment + k];
			name_user(out, to[at + k].mem);
		}
		op->segment = op->segment_count ? at : 0;
		at += op->segment_count;
	}
}

int goal_compile(struct goal_build *b, struct goal_block *out, size_t cap)
{
	uint64_t bytes = goal_block_bytes(b->op_count, b->edge_count, b->segment_count);
	uint32_t ready = 0;
	int ret = b->error;

	if (!ret && bytes > cap)
		ret = -ENOSPC;
	if (!ret)
		ret = order(b, out, &ready);
	if (ret)
		return ret;
	*out = (struct goal_block){
		.magic = GOAL_MAGIC,
		.version = GOAL_VERSION,
		.bytes = bytes,
		.op_count = b->op_count,
		.ready_count = ready,
		.recv_count = b->recv_count,
		.adjacency_count = b->edge_count,
		.segment_count = b->segment_count,
		.scratch_bytes = b->scratch_bytes,
	};
	for (uint32_t i = 0; i < b->op_count; i++) {
		struct goal_op *op = &goal_ops(out)[b->ops[i].next];

		*op = b->ops[i];
		op->next = op->next_count = op->inext = op->inext_count = 0;
	}
	fill_adjacency(b, out);
	fill_segments(b, out);
	return 0;
}
