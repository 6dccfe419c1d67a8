/* SPDX-License-Identifier: BSD-3-Clause */
#include "hier/layout.h"

#include <stdlib.h>

static struct hier_layout *layout_alloc(int ranks)
{
	struct hier_layout *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	l->ranks = ranks;
	l->node_of = calloc((size_t)ranks, sizeof(*l->node_of));
	l->place = calloc((size_t)ranks, sizeof(*l->place));
	l->members = calloc((size_t)ranks, sizeof(*l->members));
	l->first = calloc((size_t)ranks + 1, sizeof(*l->first));
	if (l->node_of && l->place && l->members && l->first)
		return l;
	hier_layout_destroy(l);
	return NULL;
}

/* Sort order: by key, then by rank. The first rank of each key is the lowest rank of its node. */
struct keyed { uint64_t key; int rank; };

static int compare(const void *a, const void *b)
{
	const struct keyed *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->rank - y->rank;
}

static int find_nodes(struct hier_layout *l, const uint64_t *keys)
{
	struct keyed *sorted = malloc((size_t)l->ranks * sizeof(*sorted));
	int *lowest = l->place; /* `place` serves as scratch memory until place_members() */

	if (!sorted)
		return -1;
	for (int r = 0; r < l->ranks; r++)
		sorted[r] = (struct keyed){ keys[r], r };
	qsort(sorted, (size_t)l->ranks, sizeof(*sorted), compare);
	for (int i = 0; i < l->ranks; i++) {
		bool is_new = !i || sorted[i].key != sorted[i - 1].key;

		lowest[sorted[i].rank] = is_new ? sorted[i].rank : lowest[sorted[i - 1].rank];
	}
	free(sorted);
	for (int r = 0; r < l->ranks; r++)
		l->node_of[r] = lowest[r] == r ? l->nodes++ : l->node_of[lowest[r]];
	return 0;
}

static int place_members(struct hier_layout *l)
{
	int *placed = calloc((size_t)l->nodes, sizeof(*placed));

	if (!placed)
		return -1;
	for (int r = 0; r < l->ranks; r++)
		l->first[l->node_of[r] + 1]++;
	for (int n = 0; n < l->nodes; n++)
		l->first[n + 1] += l->first[n];
	for (int r = 0; r < l->ranks; r++) {
		int node = l->node_of[r];

		l->place[r] = placed[node]++;
		l->members[l->first[node] + l->place[r]] = r;
	}
	free(placed);
	return 0;
}

struct hier_layout *hier_layout_create(const uint64_t *keys, int ranks)
{
	struct hier_layout *l = layout_alloc(ranks);

	if (l && !find_nodes(l, keys) && !place_members(l))
		return l;
	hier_layout_destroy(l);
	return NULL;
}

void hier_layout_destroy(struct hier_layout *l)
{
	if (!l)
		return;
	free(l->node_of);
	free(l->place);
	free(l->members);
	free(l->first);
	free(l);
}

void hier_tree_of(int nodes, int root, int node, struct hier_tree *out)
{
	int arity = nodes <= HIER_CHAIN_NODES ? 1 : HIER_CHILDREN;
	int at = (node - root + nodes) % nodes; /* numbered from the root */

	*out = (struct hier_tree){ .parent = at ? ((at - 1) / arity + root) % nodes : -1 };
	for (int i = 1; i <= arity && arity * at + i < nodes; i++)
		out->children[out->child_count++] = (arity * at + i + root) % nodes;
}

int hier_tree_depth(int nodes)
{
	struct hier_tree t;
	int depth = 0;

	for (int node = nodes - 1; node; node = t.parent) {
		hier_tree_of(nodes, 0, node, &t);
		depth++;
	}
	return depth;
}

struct hier_cut hier_cut(uint64_t bytes, uint64_t wanted_bytes, uint64_t element_bytes)
{
	uint64_t elements = base_max_u64(wanted_bytes / element_bytes, 1);

	return (struct hier_cut){ bytes, elements * element_bytes };
}

uint64_t hier_unit_bytes(uint64_t segment_bytes, int node_size)
{
	return base_max_u64(segment_bytes / (uint64_t)node_size,
			    base_min_u64(segment_bytes, HIER_UNIT_BYTES));
}
