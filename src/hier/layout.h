/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * span: how a collective over several nodes is laid out. Pure: from facts that all ranks have, so
 * that all come to the same. Who communicates, and with what, is hier/hier.h.
 *
 *   node 0          node 1          node 2
 *   0 (acts)  ----> 2 (acts)  ----> 5 (acts)      between nodes: a tree of those that act for their
 * nodes 1               3  4                          inside each: the node's own collective, a
 * segment later
 *
 * The root acts for its node, elsewhere the lowest rank does. Nodes are numbered by their lowest
 * ranks, whatever order the launcher has put ranks on them. The tree is a chain while there are few
 * nodes: each link then carries each byte once, and segments follow each other through it; with
 * more nodes it is binary, as what a chain takes until the last node has the first segment grows
 * with their number.
 *
 * Threads: everything is const once made. Never: waits, logs, allocates but in
 * hier_layout_create().
 */
#ifndef SLUICE_HIER_LAYOUT_H
#define SLUICE_HIER_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#define SPAN_CHILDREN 2
#define SPAN_CHAIN_NODES 4 /* so many are a chain */

/* Ranks of a communicator by node. */
struct hier_layout {
	int ranks, nodes;
	int *node_of; /* of a rank */
	int *place;   /* of a rank, among those of its node */
	int *first;   /* of a node, in members; [nodes] is their end */
	int *members; /* ranks of node 0, in order, then those of node 1 ... */
};

/* keys[rank]: equal for ranks of one node. NULL: no memory. Owner: the caller, until
 * hier_layout_destroy(). */
struct hier_layout *hier_layout_create(const uint64_t *keys, int ranks);
void hier_layout_destroy(struct hier_layout *l);

static inline int hier_node_size(const struct hier_layout *l, int node)
{
	return l->first[node + 1] - l->first[node];
}
static inline const int *hier_node_ranks(const struct hier_layout *l, int node)
{
	return l->members + l->first[node];
}
/* The rank that acts for a node; root: -1 when there is none. */
static inline int hier_acting(const struct hier_layout *l, int node, int root)
{
	return root >= 0 && l->node_of[root] == node ? root : hier_node_ranks(l, node)[0];
}

/* A node's place in the tree of `nodes` nodes whose root is `root`. */
struct hier_tree {
	int parent; /* -1: it is the root */
	int children[SPAN_CHILDREN], child_count;
};
void hier_tree_of(int nodes, int root, int node, struct hier_tree *out);
/* Links from the root to the farthest node. */
int hier_tree_depth(int nodes);

/* A message cut in segments of `segment` bytes but for the last; `at` and bytes of the k-th. */
struct hier_cut { uint64_t bytes, segment; };
/* What crosses the network at a time: little enough that the first and the last segment, which
 * nothing overlaps, do not count; and each step inside a node is a meeting of its ranks, where they
 * share CPUs a switch of processes. */
static inline uint64_t hier_segment_bytes(bool is_crowded)
{
	return (uint64_t)(is_crowded ? 4 : 1) << 20;
}
/* Never more than wanted_bytes, but at least one element; whole elements. */
struct hier_cut hier_cut(uint64_t bytes, uint64_t wanted_bytes, uint64_t element_bytes);
static inline uint64_t hier_count(const struct hier_cut *c)
{
	return (c->bytes + c->segment - 1) / c->segment;
}
static inline uint64_t hier_length(const struct hier_cut *c, uint64_t k)
{
	uint64_t rest = c->bytes - k * c->segment;

	return rest < c->segment ? rest : c->segment;
}

/*
 * Where each rank of a node has a message of its own that crosses the network: so much of each at a
 * time. Together about a segment, as a rank in between has to hold them; but what is cut too small
 * costs more to send than to copy.
 */
#define SPAN_UNIT_BYTES ((uint64_t)64 << 10)
uint64_t hier_unit_bytes(uint64_t segment_bytes, int node_size);

/* In a ring: the node whose data this one receives in a step from the one before it. Steps: 0 to
 * nodes - 2. What it sends on is what it received a step before; in step 0 its own. */
static inline int hier_ring_from(int nodes, int node, int step)
{
	return (node + 2 * nodes - 1 - step) % nodes;
}

#endif
