/* SPDX-License-Identifier: BSD-3-Clause */
/* Schedules in 40 bytes an operation. Ranks whose schedules differ only by the rank's number share
 * one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "private.h"

void sim_shapes_init(struct sim_shapes *h)
{
	*h = (struct sim_shapes){ .table = NULL };
	sim_pool_init(&h->shapes, sizeof(struct sim_shape));
}

void sim_shapes_fini(struct sim_shapes *h)
{
	sim_pool_fini(&h->shapes);
	free(h->ops);
	free(h->sides);
	free(h->edges);
	free(h->table);
}

static int reserve(void **at, uint64_t *cap, uint64_t need, size_t element_bytes)
{
	uint64_t wanted = *cap ? *cap : 1024;
	void *moved;

	if (need <= *cap)
		return 0;
	while (wanted < need)
		wanted *= 2;
	moved = realloc(*at, wanted * element_bytes);
	if (!moved)
		return -ENOMEM;
	*at = moved;
	*cap = wanted;
	return 0;
}

static uint32_t relative(const struct sim_config *c, uint32_t rank, uint32_t peer)
{
	if (c->relation == SIM_BY_BITS)
		return peer ^ rank;
	return peer >= rank ? peer - rank : peer + (c->ranks - rank);
}

static int convert_one_sided(struct sim_shapes *h, const struct sim_config *c, uint32_t rank,
			     const struct goal_op *op, struct sim_op *out)
{
	if (h->side_count == UINT32_MAX ||
	    reserve((void **)&h->sides, &h->side_cap, h->side_count + 1, sizeof(*h->sides)))
		return -ENOMEM;
	h->sides[h->side_count] =
		(struct sim_side){ op->off, op->counter, op->when, op->tag, op->options };
	out->tag = (uint32_t)h->side_count++;
	out->peer = op->peer;
	if (goal_is_append(op) && op->peer == GOAL_ANY)
		return 0;
	if (op->peer >= c->ranks)
		return -EINVAL;
	out->peer = relative(c, rank, op->peer);
	return 0;
}

static int convert(struct sim_shapes *h, const struct sim_config *c, uint32_t rank,
		   const struct goal_op *op, uint32_t next, struct sim_op *out)
{
	*out = (struct sim_op){
		.bytes = op->bytes,
		.next = next,
		.next_count = op->next_count,
		.has_inext = op->inext_count,
		.requires = op->requires,
		.cpu = op->cpu,
		.nic = op->nic,
		.type = op->type,
		.kind = SIM_LOCAL,
	};
	if (goal_is_one_sided(op))
		return convert_one_sided(h, c, rank, op, out);
	if (!goal_is_transfer(op))
		return 0;
	out->kind = op->type == GOAL_SEND ? SIM_SEND : SIM_RECEIVE;
	out->tag = op->tag;
	out->peer = op->peer;
	if (op->type == GOAL_RECV && op->peer == GOAL_ANY)
		return 0;
	if (op->peer >= c->ranks)
		return -EINVAL;
	out->peer = relative(c, rank, op->peer);
	return 0;
}

static bool begins_in(const struct goal_op *w, uint32_t mem, uint64_t off)
{
	return w->mem == mem && off - w->off < w->bytes;
}

/* Does operation r read what operation w wrote? Lists of segments are not looked at. */
static bool reads_result(const struct goal_op *r, const struct goal_op *w)
{
	bool is_sum = goal_is_arithmetic(r);

	if (w->type == GOAL_RECV ? w->segment_count
				 : w->type != GOAL_COPY && !goal_is_arithmetic(w))
		return false;
	if (r->type == GOAL_SEND)
		return !r->segment_count && begins_in(w, r->mem, r->off);
	return ((r->type == GOAL_COPY || is_sum) && begins_in(w, r->src_mem, r->src_off)) ||
	       (is_sum && begins_in(w, r->src2_mem, r->src2_off));
}

/* ops: of the block, as converted. */
static void mark_fresh(const struct goal_block *b, struct sim_op *ops)
{
	const struct goal_op *op = goal_ops_const(b);

	for (uint32_t i = 0; i < b->op_count; i++)
		for (uint32_t k = 0; k < op[i].next_count; k++) {
			uint32_t next = goal_adjacency(b)[op[i].next + k];

			ops[next].is_fresh |= reads_result(op + next, op + i);
		}
}

/* Appends the operations of a block, not yet counted. */
static int append(struct sim_shapes *h, const struct sim_config *c, uint32_t rank,
		  const struct goal_block *b, struct sim_shape *out)
{
	const struct goal_op *op = goal_ops_const(b);
	const uint32_t *adjacency = goal_adjacency(b);
	uint64_t edge = h->edge_count;
	int rc;

	*out = (struct sim_shape){ .first_op = h->op_count,
				   .first_edge = h->edge_count,
				   .op_count = b->op_count,
				   .ready_count = b->ready_count,
				   .edge_count = b->adjacency_count };
	if (reserve((void **)&h->ops, &h->op_cap, h->op_count + b->op_count, sizeof(*h->ops)) ||
	    reserve((void **)&h->edges, &h->edge_cap, h->edge_count + b->adjacency_count,
		    sizeof(*h->edges)))
		return -ENOMEM;
	for (uint32_t i = 0; i < b->op_count; i++, op++) {
		rc = convert(h, c, rank, op, (uint32_t)(edge - h->edge_count),
			     &h->ops[h->op_count + i]);
		if (rc)
			return rc;
		for (uint32_t k = 0; k < op->next_count; k++)
			h->edges[edge++] = adjacency[op->next + k];
		for (uint32_t k = 0; k < op->inext_count; k++)
			h->edges[edge++] = adjacency[op->inext + k];
	}
	if (c->params.node.ranks)
		mark_fresh(b, h->ops + h->op_count);
	return 0;
}

static uint64_t mix(uint64_t hash, const void *data, size_t bytes)
{
	const char *at = data;
	uint64_t word;

	for (; bytes >= sizeof(word); bytes -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
		hash ^= hash >> 29;
	}
	for (word = 0; bytes; bytes--)
		word = word << 8 | (unsigned char)*at++;
	hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
	return hash ^ hash >> 32;
}

static struct sim_shape *shape_at(const struct sim_shapes *h, uint32_t i)
{
	return sim_pool_at(&h->shapes, i);
}

static bool same_bytes(const void *a, const void *b, size_t bytes)
{
	return !bytes || memcmp(a, b, bytes) == 0;
}

static bool equal(const struct sim_shapes *h, const struct sim_shape *a, const struct sim_shape *b)
{
	return a->hash == b->hash && a->op_count == b->op_count &&
	       a->ready_count == b->ready_count && a->edge_count == b->edge_count &&
	       same_bytes(h->ops + a->first_op, h->ops + b->first_op,
			  a->op_count * sizeof(*h->ops)) &&
	       same_bytes(h->edges + a->first_edge, h->edges + b->first_edge,
			  a->edge_count * sizeof(*h->edges));
}

static uint32_t find(const struct sim_shapes *h, const struct sim_shape *shape)
{
	uint32_t i = h->table[shape->hash & (h->table_size - 1)];

	while (i && !equal(h, shape_at(h, i), shape))
		i = shape_at(h, i)->chain;
	return i;
}

static int grow_table(struct sim_shapes *h)
{
	uint32_t size = h->table_size ? h->table_size * 4 : 256;
	uint32_t *table = calloc(size, sizeof(*table));

	if (!table)
		return -ENOMEM;
	for (uint32_t i = 1; i < h->shapes.used; i++) {
		struct sim_shape *s = shape_at(h, i);

		s->chain = table[s->hash & (size - 1)];
		table[s->hash & (size - 1)] = i;
	}
	free(h->table);
	h->table = table;
	h->table_size = size;
	return 0;
}

uint32_t sim_shape_of(struct sim_shapes *h, const struct sim_config *c, uint32_t rank,
		      const struct goal_block *b, int *error)
{
	struct sim_shape shape;
	uint32_t i;

	*error = append(h, c, rank, b, &shape);
	if (*error)
		return SIM_NONE;
	*error = -ENOMEM;
	if (h->shapes.used >= h->table_size && grow_table(h))
		return SIM_NONE;
	shape.hash = mix(b->op_count, h->ops + shape.first_op, b->op_count * sizeof(*h->ops));
	shape.hash =
		mix(shape.hash, h->edges + shape.first_edge, shape.edge_count * sizeof(*h->edges));
	i = find(h, &shape);
	if (!i) {
		i = sim_pool_get(&h->shapes);
		if (!i)
			return SIM_NONE;
		h->op_count += shape.op_count;
		h->edge_count += shape.edge_count;
		shape.chain = h->table[shape.hash & (h->table_size - 1)];
		h->table[shape.hash & (h->table_size - 1)] = i;
		*shape_at(h, i) = shape;
	}
	*error = 0;
	return i;
}
