/* SPDX-License-Identifier: BSD-3-Clause */
/* The node of every rank, and the state of a communicator that spans nodes. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "hier/hier.h"

enum {
	WORLD_TAG = 0x51d, /* tags of MPI_Comm_create_group, not of messages */
	WIRE_TAG = 0x51e,
	SPANS_MAX = 256, /* host MPIs have few communicators (MPICH: 2048), and the program needs
			    them */
};

/* Facts of all ranks of the job. hier_bootstrap() writes them before other threads read. */
static struct {
	uint64_t *keys; /* node of each rank of MPI_COMM_WORLD; NULL: hier admits nothing */
} world;

static _Atomic int spans; /* number of communicators with hier state */

/* ---- the job ----------------------------------------------------------------------------- */

static const char *refusal(const struct rt_identity *all, int ranks)
{
	bool is_one = true;

	for (int r = 0; r < ranks; r++) {
		if (!all[r].agreed)
			return "Sluice is off on a rank";
		if (all[r].agreed != all[0].agreed)
			return "ranks have different SLUICE_ options or versions";
		is_one &= all[r].node == all[0].node;
	}
	return is_one ? "all ranks are on one node" : NULL;
}

static const struct multinode_ops hier_ops;

/* Owner: `world` owns keys from here on. */
static void set_world(const struct rt_identity *all, int ranks, uint64_t *keys)
{
	const char *why = refusal(all, ranks);

	if (why) {
		base_log(BASE_LOG_INFO, "mpi", "SLUICE_HIER: nothing to do: %s", why);
		free(keys);
		return;
	}
	for (int r = 0; r < ranks; r++)
		keys[r] = all[r].node;
	world.keys = keys;
	multinode = &hier_ops;
}

/* Returns: whether every rank has room. All ranks get the same answer. */
static bool all_have(bool room, MPI_Comm comm)
{
	unsigned char lacks = !room, any = 1;

	return !host.Allreduce(&lacks, &any, 1, abi.byte, abi.bor, comm) && !any;
}

void hier_bootstrap(void)
{
	struct rt_identity mine, *all;
	uint64_t *keys;
	int ranks = 0;
	MPI_Comm comm;

	if (!base_opt.hier || host.Comm_size(abi.comm_world, &ranks) || ranks < 2)
		return;
	bypass++;
	rt_identity(&mine);
	all = base_fault("hier_bootstrap") ? NULL : calloc((size_t)ranks, sizeof(*all));
	keys = malloc((size_t)ranks * sizeof(*keys));
	if (!scratch_copy_of(abi.comm_world, WORLD_TAG, &comm)) {
		if (all_have(all && keys, comm) &&
		    !host.Allgather(&mine, sizeof(mine), abi.byte, all, sizeof(mine), abi.byte,
				    comm)) {
			set_world(all, ranks, keys);
			keys = NULL;
		}
		host.Comm_free(&comm);
	}
	free(keys);
	free(all);
	bypass--;
}

/* Returns: node of each rank of a communicator; NULL: some rank is outside our world, or out of
 * memory. */
static uint64_t *keys_of(const struct comm_state *cs)
{
	size_t n = (size_t)cs->size;
	uint64_t *keys = malloc(n * sizeof(*keys));
	int *ranks = malloc(2 * n * sizeof(*ranks));
	MPI_Group group = NULL, of_world = NULL;
	bool ok = keys && ranks;

	for (size_t i = 0; ok && i < n; i++)
		ranks[i] = (int)i;
	if (ok && !host.Comm_group(cs->comm, &group)) {
		ok = !host.Comm_group(abi.comm_world, &of_world);
		if (ok) {
			ok = !host.Group_translate_ranks(group, cs->size, ranks, of_world,
							 ranks + n);
			host.Group_free(&of_world);
		}
		host.Group_free(&group);
	} else {
		ok = false;
	}
	for (size_t i = 0; ok && i < n; i++) {
		ok = ranks[n + i] != abi.undefined;
		keys[i] = ok ? world.keys[ranks[n + i]] : 0;
	}
	free(ranks);
	if (ok)
		return keys;
	free(keys);
	return NULL;
}

/* A communicator with one rank per node gains nothing from Sluice. */
static bool hier_spans(const struct comm_state *cs)
{
	uint64_t *keys = world.keys ? keys_of(cs) : NULL;
	struct hier_layout *l = keys ? hier_layout_create(keys, cs->size) : NULL;
	bool spans_nodes = l && l->nodes > 1 && l->nodes < l->ranks;

	hier_layout_destroy(l);
	free(keys);
	return spans_nodes;
}

/* ---- a communicator ---------------------------------------------------------------------- */

static int near_allgather(void *ctx, const void *in, size_t bytes, void *out)
{
	const struct hier_comm *s = ctx;
	int n = (int)bytes;

	return BYPASS(ON_SCRATCH(
		       host.Allgather(in, n, abi.byte, out, n, abi.byte, s->near)))
		       ? -EIO
		       : 0;
}

static int near_allreduce_min(void *ctx, int64_t in, int64_t *out)
{
	const struct hier_comm *s = ctx;
	int n = hier_node_size(s->layout, s->layout->node_of[s->cs->rank]);
	int64_t *all = malloc((size_t)n * sizeof(*all));
	int rc;

	if (!all)
		return -ENOMEM;
	rc = near_allgather(ctx, &in, sizeof(in), all);
	for (int i = 0; !rc && i < n; i++)
		in = all[i] < in ? all[i] : in;
	free(all);
	if (!rc)
		*out = in;
	return rc;
}

/* Makes the group of this node's ranks. Returns: 0 or -errno; nodes may differ in the result. */
static int connect_near(struct hier_comm *s)
{
	int rank = s->cs->rank, node = s->layout->node_of[rank];
	struct node_oob oob = {
		.ctx = s,
		.rank = s->layout->place[rank],
		.size = hier_node_size(s->layout, node),
		.allgather = near_allgather,
		.allreduce_min = near_allreduce_min,
		.progress = comm_state_progress,
		.thread_multiple = session_is_thread_multiple(),
	};
	int rc = ON_SCRATCH(host.Comm_split(s->wire, node, rank, &s->near));

	if (rc)
		return -EIO;
	/* without effect on failure: `near` has the error handler of `wire` */
	scratch_silence(s->near);
	rc = rt_comm_create(&oob, &s->local);
	host.Comm_free(&s->near);
	return rc ? rc : !s->local && oob.size > 1 ? -ENOTSUP : 0;
}

static bool all_agree(struct comm_state *cs, bool mine)
{
	int64_t all;

	return !comm_state_agree(cs, mine, &all) && all;
}

static struct hier_comm *hier_alloc(struct comm_state *cs)
{
	uint64_t *keys = keys_of(cs);
	struct hier_comm *s = calloc(1, sizeof(*s));

	if (s) {
		s->cs = cs;
		s->wire = abi.comm_null;
		s->layout = keys ? hier_layout_create(keys, cs->size) : NULL;
	}
	free(keys);
	if (s && s->layout)
		return s;
	free(s);
	return NULL;
}

/* Sizes the segments once each node has its group. All ranks get the same result. */
static bool set_segment(struct hier_comm *s)
{
	bool is_roomy = all_agree(s->cs, !s->local || !rt_comm_is_crowded(s->local));

	s->segment_bytes = base_opt.hier_segment_bytes ? base_opt.hier_segment_bytes
						       : hier_segment_bytes(!is_roomy);
	s->segment_bytes = base_max_u64(s->segment_bytes,
					(uint64_t)s->layout->ranks); /* at least a byte of each */
	s->dummy = malloc(s->segment_bytes);
	s->posts = calloc((size_t)s->layout->ranks * HIER_SLOTS, sizeof(*s->posts));
	return all_agree(s->cs, s->dummy && s->posts);
}

/* Nonblocking calls need, on every rank, a thread that may call the host MPI. */
static void set_thread(struct hier_comm *s)
{
	bool is_asked =
		/* equal on all ranks */
		base_opt.coll_modes[BASE_FAMILY_NONBLOCKING] == BASE_ADMIT_ON;

	if (!is_asked ||
	    all_agree(s->cs, session_is_thread_multiple() && !hier_thread_create(&s->thread)))
		return;
	hier_thread_end(s->thread);
	s->thread = NULL;
	base_log(BASE_LOG_INFO, "mpi",
		 "nonblocking collectives over several nodes go to the host MPI: %s",
		 session_is_thread_multiple() ? "a rank has no progress thread"
					      : "MPI_THREAD_MULTIPLE is not provided");
}

static void explain(const struct hier_comm *s, const struct comm_state *cs)
{
	const struct hier_layout *l;
	int node;

	if (!s) {
		base_count(BASE_CTR_GROUPS_REFUSED, 1);
		base_log(BASE_LOG_INFO, "mpi",
			 "communicator of %d ranks on several nodes goes to the host MPI",
			 cs->size);
		return;
	}
	l = s->layout;
	node = l->node_of[cs->rank];
	base_count(BASE_CTR_HIER_COMMS, 1);
	base_log(BASE_LOG_INFO, "mpi",
		 "communicator of %d ranks spans %d nodes: %d here (node %d), led by its rank %d",
		 cs->size, l->nodes, hier_node_size(l, node), node, hier_acting(l, node, -1));
}

static void hier_destroy(struct hier_comm *s);

__attribute__((cold)) static struct hier_comm *hier_create(struct comm_state *cs)
{
	bool has_room = atomic_fetch_add_explicit(&spans, 1, memory_order_relaxed) < SPANS_MAX;
	struct hier_comm *s = hier_alloc(cs);
	bool ok = all_agree(cs, has_room && s);

	if (ok) /* an error before all ranks have it would reach the program */
		ok = all_agree(cs, !scratch_copy_of(cs->comm, WIRE_TAG, &s->wire) &&
				   !scratch_silence(s->wire));
	if (ok)
		ok = all_agree(cs, !connect_near(s)) && set_segment(s);
	if (ok)
		set_thread(s);
	if (!s)
		atomic_fetch_sub_explicit(&spans, 1, memory_order_relaxed);
	if (s && !ok) {
		hier_destroy(s);
		s = NULL;
	}
	explain(s, cs);
	return s;
}

static void hier_close(struct hier_comm *s)
{
	if (!s)
		return;
	hier_thread_end(s->thread);
	rt_comm_destroy(s->local);
	s->thread = NULL;
	s->local = NULL;
}

static void hier_destroy(struct hier_comm *s)
{
	if (!s)
		return;
	hier_close(s);
	bypass++;
	if (s->wire != abi.comm_null)
		host.Comm_free(&s->wire);
	bypass--;
	if (!s->has_failed) { /* after a failure the host MPI may still use these buffers */
		free(s->staging);
		free(s->dummy);
		free(s->posts);
	}
	hier_layout_destroy(s->layout);
	free(s);
	atomic_fetch_sub_explicit(&spans, 1, memory_order_relaxed);
}

char *hier_staging(struct hier_comm *s, uint64_t bytes)
{
	if (s->staging_bytes < bytes) {
		free(s->staging);
		s->staging = malloc(bytes);
		s->staging_bytes = s->staging ? bytes : 0;
	}
	return s->staging;
}

static const struct multinode_ops hier_ops = {
	.spans = hier_spans,
	.create = hier_create,
	.close = hier_close,
	.destroy = hier_destroy,
	.end = hier_end,
	.execute = hier_serve,
	.admits_request = hier_admits_request,
	.start = hier_start,
	.abandon = hier_give_up,
	.next_done = hier_next_done,
};
