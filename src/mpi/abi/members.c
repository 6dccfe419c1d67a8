/* SPDX-License-Identifier: BSD-3-Clause */
/* The number of ranks of a collective, and the neighbours of a rank. */
#include <stdlib.h>

#include "mpi/abi/abi.h"

static int neighbours(MPI_Comm comm, enum members which)
{
	int kind, rank, n, sources, targets, weighted;

	if (host.Topo_test(comm, &kind))
		return -1;
	if (kind == abi.cart)
		return host.Cartdim_get(comm, &n) ? -1 : 2 * n;
	if (kind == abi.graph)
		return host.Comm_rank(comm, &rank) || host.Graph_neighbors_count(comm, rank, &n)
			       ? -1
			       : n;
	if (kind != abi.dist_graph ||
	    host.Dist_graph_neighbors_count(comm, &sources, &targets, &weighted))
		return -1;
	return which == MEMBERS_SOURCES ? sources : targets;
}

int members_count(MPI_Comm comm, enum members which)
{
	int inter, n;

	if (comm == abi.comm_null)
		return -1;
	if (which == MEMBERS_SOURCES || which == MEMBERS_TARGETS)
		return neighbours(comm, which);
	if (host.Comm_test_inter(comm, &inter))
		return -1;
	if (inter && which == MEMBERS_PEERS)
		return host.Comm_remote_size(comm, &n) ? -1 : n;
	return host.Comm_size(comm, &n) ? -1 : n;
}

/* An invalid communicator counts as the root: in doubt the arguments are significant. */
bool members_is_root(int root, MPI_Comm comm)
{
	int inter, rank;

	if (comm == abi.comm_null || host.Comm_test_inter(comm, &inter))
		return true;
	if (inter)
		return root == abi.root;
	return host.Comm_rank(comm, &rank) || rank == root;
}

/* ---- neighbours -------------------------------------------------------------------------- */

/* Lists for each dimension the rank before this one, then the rank after it, as senders and as
 * receivers. */
static bool list_cart(MPI_Comm comm, int *sources, int *targets)
{
	int dims, before, after;

	if (host.Cartdim_get(comm, &dims))
		return false;
	for (int i = 0; i < dims; i++) {
		if (host.Cart_shift(comm, i, 1, &before, &after))
			return false;
		sources[2 * i] = targets[2 * i] = before;
		sources[2 * i + 1] = targets[2 * i + 1] = after;
	}
	return true;
}

static bool list_dist_graph(MPI_Comm comm, int *sources, int n, int *targets, int m)
{
	int *weights = malloc(((size_t)n + (size_t)m + 1) * sizeof(*weights));
	bool ok = weights &&
		  !host.Dist_graph_neighbors(comm, n, sources, weights, m, targets, weights + n);

	free(weights);
	return ok;
}

bool topology_neighbors(MPI_Comm comm, int *sources, int n, int *targets, int m)
{
	int kind, rank;

	if (host.Topo_test(comm, &kind) || host.Comm_rank(comm, &rank))
		return false;
	if (kind == abi.cart)
		return list_cart(comm, sources, targets);
	if (kind == abi.dist_graph)
		return list_dist_graph(comm, sources, n, targets, m);
	return kind == abi.graph && !host.Graph_neighbors(comm, rank, n, sources) &&
	       !host.Graph_neighbors(comm, rank, m, targets);
}

/* Host MPIs order the parts of a pair of ranks that are neighbours more than once differently. */
static bool is_once(const int *ranks, int n, int i)
{
	for (int k = i + 1; k < n; k++)
		if (ranks[k] == ranks[i] && ranks[i] >= 0)
			return false;
	return true;
}

bool topology_is_served(MPI_Comm comm, int size)
{
	int sources = members_count(comm, MEMBERS_SOURCES);
	int targets = members_count(comm, MEMBERS_TARGETS);
	int *ranks;
	bool is;

	if (sources < 0 || targets < 0 || sources > size || targets > size)
		return false;
	ranks = malloc(2 * (size_t)size * sizeof(*ranks));
	is = ranks && topology_neighbors(comm, ranks, sources, ranks + size, targets);
	for (int i = 0; is && i < sources; i++)
		is = is_once(ranks, sources, i);
	free(ranks);
	return is;
}
