/* SPDX-License-Identifier: BSD-3-Clause */
/* Layouts of collectives over several nodes: synthetic placements, all numbers of nodes and roots.
 */
#include "hier/layout.h"
#include "unit.h"

enum { NODES_MAX = 40 };

static void check_layout(const uint64_t *keys, int ranks, int nodes)
{
	struct hier_layout *l = hier_layout_create(keys, ranks);
	int seen = 0, lowest = -1;

	CHECK(l);
	CHECK_EQ(l->nodes, nodes);
	for (int n = 0; n < l->nodes; n++) {
		const int *members = hier_node_ranks(l, n);

		CHECK(members[0] > lowest); /* nodes are numbered by their lowest ranks */
		lowest = members[0];
		for (int i = 0; i < hier_node_size(l, n); i++, seen++) {
			CHECK(!i || members[i] > members[i - 1]);
			CHECK_EQ(l->node_of[members[i]], n);
			CHECK_EQ(l->place[members[i]], i);
			CHECK_EQ(keys[members[i]], keys[members[0]]);
		}
	}
	CHECK_EQ(seen, ranks);
	hier_layout_destroy(l);
}

UNIT_TEST(ranks_are_placed_by_node)
{
	check_layout((const uint64_t[]){ 9, 9, 9, 4, 4, 7 }, 6, 3);
}

UNIT_TEST(ranks_are_placed_round_robin)
{
	check_layout((const uint64_t[]){ 9, 4, 7, 9, 4, 7, 9 }, 7, 3);
}

UNIT_TEST(each_rank_is_alone)
{
	check_layout((const uint64_t[]){ 5, 4, 3, 2, 1 }, 5, 5);
}

UNIT_TEST(all_ranks_are_together)
{
	check_layout((const uint64_t[]){ 8, 8, 8 }, 3, 1);
}

UNIT_TEST(a_thousand_ranks_lie_anyhow)
{
	uint64_t keys[1000], seed = 12345;
	bool used[37] = { false };
	int nodes = 0;

	for (int i = 0; i < 1000; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		keys[i] = seed >> 33 & 1 ? seed % 37 : i % 37u;
		nodes += !used[keys[i]];
		used[keys[i]] = true;
	}
	check_layout(keys, 1000, nodes);
}

UNIT_TEST(a_root_acts_for_its_node_and_else_the_lowest_rank)
{
	struct hier_layout *l = hier_layout_create((const uint64_t[]){ 1, 2, 1, 2, 1 }, 5);

	CHECK(l);
	CHECK_EQ(hier_acting(l, 0, 4), 4);
	CHECK_EQ(hier_acting(l, 0, 3), 0);
	CHECK_EQ(hier_acting(l, 1, 3), 3);
	CHECK_EQ(hier_acting(l, 1, -1), 1);
	hier_layout_destroy(l);
}

/* Parents and children are each other's, and everyone is reached from the root. */
static void check_tree(int nodes, int root)
{
	struct hier_tree t[NODES_MAX];
	int farthest = 0;

	for (int n = 0; n < nodes; n++)
		hier_tree_of(nodes, root, n, &t[n]);
	CHECK_EQ(t[root].parent, -1);
	for (int n = 0; n < nodes; n++) {
		int at = n, depth = 0, times = 0;

		CHECK(t[n].child_count <= (nodes <= HIER_CHAIN_NODES ? 1 : HIER_CHILDREN));
		for (; at != root && depth <= nodes; depth++)
			at = t[at].parent;
		CHECK_EQ(at, root);
		farthest = depth > farthest ? depth : farthest;
		for (int i = 0; n != root && i < t[t[n].parent].child_count; i++)
			times += t[t[n].parent].children[i] == n;
		CHECK_EQ(times, n != root);
	}
	CHECK_EQ(hier_tree_depth(nodes), farthest);
}

UNIT_TEST(every_tree_reaches_every_node_once)
{
	for (int nodes = 1; nodes <= NODES_MAX; nodes++)
		for (int root = 0; root < nodes; root++)
			check_tree(nodes, root);
}

UNIT_TEST(few_nodes_are_a_chain_and_many_are_not)
{
	CHECK_EQ(hier_tree_depth(HIER_CHAIN_NODES), HIER_CHAIN_NODES - 1);
	CHECK(hier_tree_depth(NODES_MAX) <= 6);
}

UNIT_TEST(segments_make_up_the_message)
{
	static const uint64_t sizes[][3] = {
		/* message, segment, element */
		{ 1, 4096, 1 },         { 4096, 4096, 8 }, { 4104, 4096, 8 },
		{ 1 << 20, 65536, 16 }, { 999, 100, 9 },   { 60, 7, 12 },
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct hier_cut c = hier_cut(sizes[i][0], sizes[i][1], sizes[i][2]);
		uint64_t sum = 0;

		for (uint64_t k = 0; k < hier_count(&c); k++) {
			CHECK_EQ(sum, k * c.segment);
			CHECK(hier_length(&c, k) > 0);
			CHECK(hier_length(&c, k) <= sizes[i][1] || c.segment == sizes[i][2]);
			CHECK_EQ(c.segment % sizes[i][2], 0);
			sum += hier_length(&c, k);
		}
		CHECK_EQ(sum, sizes[i][0]);
	}
}

/* After all steps each node has had each other one's data, and passed on what it had. */
UNIT_TEST(units_of_a_node_make_up_a_segment_unless_they_are_short)
{
	CHECK_EQ(hier_unit_bytes(1 << 20, 1), 1 << 20);
	CHECK_EQ(hier_unit_bytes(1 << 20, 4), 1 << 18);
	CHECK_EQ(hier_unit_bytes(1 << 20, 100), HIER_UNIT_BYTES);
	CHECK_EQ(hier_unit_bytes(1 << 14, 1), 1 << 14);
	CHECK_EQ(hier_unit_bytes(1 << 14, 9), 1 << 14);
}

UNIT_TEST(a_ring_brings_everything_to_everyone)
{
	for (int nodes = 2; nodes <= NODES_MAX; nodes++) {
		for (int node = 0; node < nodes; node++) {
			bool has[NODES_MAX] = { false };
			int before = (node + nodes - 1) % nodes;

			has[node] = true;
			for (int step = 0; step < nodes - 1; step++) {
				int from = hier_ring_from(nodes, node, step);

				CHECK(!has[from]);
				has[from] = true;
				/* the one before it had that then: its own, or what it got a step
				 * ago */
				CHECK_EQ(from,
					 step ? hier_ring_from(nodes, before, step - 1) : before);
			}
		}
	}
}
