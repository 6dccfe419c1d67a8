/* SPDX-License-Identifier: BSD-3-Clause */
/* Who the neighbours of this rank are, in the order of the parts of a neighbourhood collective. */
#include <stdlib.h>

#include "base/base.h"
#include "mpi/coll/take.h"

enum { DIMS_MAX = 64 };

/* For each dimension the rank before this one, then the one after it, as senders and as receivers.
 */
static bool list_cart(MPI_Comm comm, int *sources, int *targets)
{
	int dims, before, after;

	if (real.Cartdim_get(comm, &dims))
		return false;
	for (int i = 0; i < dims; i++) {
		if (real.Cart_shift(comm, i, 1, &before, &after))
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
		  !real.Dist_graph_neighbors(comm, n, sources, weights, m, targets, weights + n);

	free(weights);
	return ok;
}

bool topology_neighbors(MPI_Comm comm, int *sources, int n, int *targets, int m)
{
	int kind, rank;

	if (real.Topo_test(comm, &kind) || real.Comm_rank(comm, &rank))
		return false;
	if (kind == ABI_CART)
		return list_cart(comm, sources, targets);
	if (kind == ABI_DIST_GRAPH)
		return list_dist_graph(comm, sources, n, targets, m);
	return kind == ABI_GRAPH && !real.Graph_neighbors(comm, rank, n, sources) &&
	       !real.Graph_neighbors(comm, rank, m, targets);
}

/* Where the ranks before and after this one are the same, libraries differ about what goes where.
 */
static bool is_cart_plain(MPI_Comm comm)
{
	int dims[DIMS_MAX], periods[DIMS_MAX], coords[DIMS_MAX], n;

	if (real.Cartdim_get(comm, &n) || n > DIMS_MAX ||
	    real.Cart_get(comm, n, dims, periods, coords))
		return false;
	for (int i = 0; i < n; i++)
		if (periods[i] && dims[i] < 3)
			return false;
	return true;
}

bool topology_is_served(MPI_Comm comm, int size)
{
	int kind, sources, targets;

	if (real.Topo_test(comm, &kind) || kind == ABI_UNDEFINED)
		return false;
	sources = members_count((uintptr_t)comm, FRONT_SOURCES);
	targets = members_count((uintptr_t)comm, FRONT_TARGETS);
	if (sources < 0 || targets < 0 || sources > size || targets > size)
		return false;
	return kind != ABI_CART || is_cart_plain(comm);
}
