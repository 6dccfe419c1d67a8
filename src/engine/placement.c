/* SPDX-License-Identifier: BSD-3-Clause */
/* Which channel a rank gets, and on which CPUs worker threads run. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/private.h"

enum { WORKERS_DEFAULT_MAX = 4 }; /* memory bandwidth limits more of them */

/* ---- channels of ranks ------------------------------------------------------------------- */

/* Returns: `node`, or the nearest node number that has channels (the lower of two), or -1. A rank
 * bound to no node counts as one of node 0. */
static int serving_node(int node, int nodes, const int *channels)
{
	if (node >= nodes)
		node = nodes - 1;
	if (node < 0)
		node = 0;
	for (int distance = 0; distance < nodes; distance++) {
		int below = node - distance, above = node + distance;

		if (below >= 0 && channels[below] > 0)
			return below;
		if (above >= 0 && above < nodes && channels[above] > 0)
			return above;
	}
	return -1;
}

int engine_deal(int rank, int ranks, const int *node_of_rank, int nodes, const int *channels,
		int *out_node, int *out_index)
{
	int mine, before = 0;

	if (rank < 0 || rank >= ranks)
		return -EINVAL;
	mine = serving_node(node_of_rank[rank], nodes, channels);
	if (mine < 0)
		return -ENODEV;
	for (int r = 0; r < rank; r++)
		before += serving_node(node_of_rank[r], nodes, channels) == mine;
	*out_node = mine;
	*out_index = before % channels[mine];
	return 0;
}

/* ---- spare CPUs -------------------------------------------------------------------------- */

/*
 * The CPUs that the launcher may use, as launchers are not bound. Only a parent of the same user
 * counts: another parent is a daemon or the init of a container and knows nothing of this job's
 * share.
 */
static void launcher_cpus(struct os_cpumask *out)
{
	char path[32];
	struct stat st;
	pid_t parent = getppid();

	memset(out, 0, sizeof(*out));
	snprintf(path, sizeof(path), "/proc/%d", (int)parent);
	if (parent <= 1 || stat(path, &st) || st.st_uid != geteuid())
		return;
	if (os_cpumask_of((int)parent, out))
		memset(out, 0, sizeof(*out));
}

int engine_unused_of(const struct os_cpumask *launcher, const struct os_cpumask *used, int ranks,
		    struct os_cpumask *out)
{
	int unbound = os_cpumask_count(used) - ranks;

	*out = *launcher;
	os_cpumask_remove(out, used);
	if (os_cpumask_count(out))
		return os_cpumask_count(out);
	if (unbound <= 0)
		return 0;
	*out = *used;
	return unbound;
}

int engine_unused_cpus(const struct os_cpumask *rank_cpus_union, int ranks,
		      struct os_cpumask *out)
{
	struct os_cpumask launcher;

	if (base_opt.engine_cpus[0] &&
	    !base_parse_cpus(base_opt.engine_cpus, out->bits, OS_CPUMASK_WORDS))
		return os_cpumask_count(out);
	launcher_cpus(&launcher);
	return engine_unused_of(&launcher, rank_cpus_union, ranks, out);
}

/* ---- workers of this process ------------------------------------------------------------- */

static struct os_cpumask worker_cpus;
static int worker_share = -1; /* -1: engine_set_cpus() was not called */

void engine_set_cpus(const struct os_cpumask *cpus, int count)
{
	worker_cpus = *cpus;
	worker_share = count;
}

int engine_workers(void)
{
	if (base_opt.engine_workers >= 0)
		return (int)base_opt.engine_workers;
	if (worker_share < 0)
		return 1;
	return worker_share < WORKERS_DEFAULT_MAX ? worker_share : WORKERS_DEFAULT_MAX;
}

bool engine_worker_cpus(int node, struct os_cpumask *out)
{
	struct os_cpumask near;

	*out = worker_cpus;
	/* no CPU is spare, or engine_set_cpus() was not called, but the user asks for workers */
	if (!os_cpumask_count(out))
		os_cpumask_self(out);
	if (node < 0 || os_numa_node_count() == 1)
		return node <= 0;
	if (os_numa_node_cpus(node, &near))
		return false;
	os_cpumask_and(out, &near);
	return os_cpumask_count(out) > 0;
}
