/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layout of a collective over several nodes. A pure computation on facts that all ranks share, so
 * that all ranks compute the same layout. hier.h describes who sends what.
 *
 *   node 0          node 1          node 2
 *   0 (acts)  ----> 2 (acts)  ----> 5 (acts)      between nodes: a tree of acting ranks
 *   1               3  4                          inside each: a collective, a segment later
 *
 * The root acts for its node; elsewhere the lowest rank acts. Nodes are numbered by their lowest
 * rank, in whatever order the launcher places ranks. Up to HIER_CHAIN_NODES nodes form a chain:
 * each link carries each byte once, and segments follow each other. More nodes form a binary tree,
 * because the latency of a chain grows with the number of nodes.
 *
 * Threads: a layout is constant once made. layout.h never waits or logs, and allocates in
 * hier_layout_create() only.
 */
#ifndef SLUICE_HIER_LAYOUT_H
#define SLUICE_HIER_LAYOUT_H

#include "base/base.h"

#define HIER_CHILDREN 2
#define HIER_CHAIN_NODES 4 /* the most nodes that form a chain */

/* Ranks of a communicator by node. */
struct hier_layout {
	int ranks, nodes;
	int *node_of; /* of a rank */
	int *place;   /* index of a rank on its node */
	int *first;   /* index in members of a node's first rank; [nodes]: end of members */
	int *members; /* ranks of node 0 in order, then ranks of node 1 ... */
};

/* Ranks with equal keys[rank] share a node. Returns: NULL when out of memory. Owner: the caller,
 * until hier_layout_destroy(). */
__attribute__((cold)) struct hier_layout *hier_layout_create(const uint64_t *keys, int ranks);
void hier_layout_destroy(struct hier_layout *l);

static inline int hier_node_size(const struct hier_layout *l, int node)
{
	return l->first[node + 1] - l->first[node];
}
static inline const int *hier_node_ranks(const struct hier_layout *l, int node)
{
	return l->members + l->first[node];
}
/* Returns: the acting rank of a node; root: -1 for a collective without root. */
static inline int hier_acting(const struct hier_layout *l, int node, int root)
{
	return root >= 0 && l->node_of[root] == node ? root : hier_node_ranks(l, node)[0];
}

/* Place of a node in the tree of `nodes` nodes under `root`. */
struct hier_tree {
	int parent; /* -1: the node is the root */
	int children[HIER_CHILDREN], child_count;
};
void hier_tree_of(int nodes, int root, int node, struct hier_tree *out);
/* Returns: number of links from the root to the farthest node. */
int hier_tree_depth(int nodes);

/* A message of `bytes` bytes in segments of `segment` bytes; the last one may be shorter. */
struct hier_cut { uint64_t bytes, segment; };
/* Size of a segment. Nothing overlaps the first and the last segment, so segments are small.
 * Ranks that share CPUs switch processes at each step inside the node, so their segments are
 * larger. */
static inline uint64_t hier_segment_bytes(bool is_crowded)
{
	return (uint64_t)(is_crowded ? 4 : 1) << 20;
}
/* Cuts at whole elements: at most wanted_bytes, but at least one element. */
struct hier_cut hier_cut(uint64_t bytes, uint64_t wanted_bytes, uint64_t element_bytes);
static inline uint64_t hier_count(const struct hier_cut *c)
{
	return base_divide_up(c->bytes, c->segment);
}
static inline uint64_t hier_length(const struct hier_cut *c, uint64_t k)
{
	return base_min_u64(c->bytes - k * c->segment, c->segment);
}

/*
 * Bytes of each rank's message that cross the network at a time, where each rank of a node has a
 * message of its own. The acting rank stages one such fragment per rank, about a segment in total.
 * Below HIER_UNIT_BYTES a message costs more than the copy of its bytes.
 */
#define HIER_UNIT_BYTES ((uint64_t)64 << 10)
uint64_t hier_unit_bytes(uint64_t segment_bytes, int node_size);

/* Ring: the node whose data `node` receives in `step` (0 to nodes - 2) from its predecessor. A
 * node first sends its own data, then forwards in each step the data that it received one step
 * before. */
static inline int hier_ring_from(int nodes, int node, int step)
{
	return (node + 2 * nodes - 1 - step) % nodes;
}

#endif
