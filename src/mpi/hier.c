/* SPDX-License-Identifier: BSD-3-Clause */
/* Who is where, and what is kept with a communicator that spans nodes. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "mpi/hier.h"

enum {
	MEET_TAG = 0x51d, /* of MPI_Comm_create_group, which is not for messages */
	WIRE_TAG = 0x51e,
	SPANS_MAX = 256, /* libraries have few communicators (MPICH: 2048), and the program needs
			    them */
};

/* What all ranks of the job have said. Written by hier_meet(), before other threads look. */
static struct {
	uint64_t *keys; /* of the node of each rank of MPI_COMM_WORLD; NULL: none is served */
} world;

static _Atomic int spans; /* there are */

static void note_error(MPI_Comm *comm, int *code, ...)
{
	scratch_error = *code;
}

/* Errors come as results, on every library. */
static int silence(MPI_Comm comm)
{
	MPI_Errhandler errhandler;
	int rc = real.Comm_create_errhandler(note_error, &errhandler);

	if (rc)
		return rc;
	rc = real.Comm_set_errhandler(comm, errhandler);
	real.Errhandler_free(&errhandler);
	return rc;
}

/* A communicator of the same ranks that has no attributes. 0 or an MPI error. */
static int copy_of(MPI_Comm comm, int tag, MPI_Comm *out)
{
	MPI_Group group;
	int rc = real.Comm_group(comm, &group);

	if (rc)
		return rc;
	/* between ranks that run Sluice only: unlike other ways it would leave one that does not
	 * alone */
	rc = real.Comm_create_group(comm, group, tag, out);
	real.Group_free(&group);
	return rc;
}

/* ---- the job ----------------------------------------------------------------------------- */

static const char *refusal(const struct rt_identity *all, int ranks)
{
	bool is_one = true;

	for (int r = 0; r < ranks; r++) {
		if (!all[r].agreed)
			return "Sluice is off on a rank";
		if (all[r].agreed != all[0].agreed)
			return "its ranks have different SLUICE_ options or versions";
		is_one &= all[r].node == all[0].node;
	}
	return is_one ? "all ranks are on one node" : NULL;
}

/* keys: room for them, which is ours from now on. */
static void keep_world(const struct rt_identity *all, int ranks, uint64_t *keys)
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
}

/* The same on all ranks: each has room for what all say. */
static bool all_have(bool room, MPI_Comm comm)
{
	unsigned char lacks = !room, any = 1;

	return !real.Allreduce(&lacks, &any, 1, ABI_BYTE, ABI_BOR, comm) && !any;
}

void hier_meet(void)
{
	struct rt_identity mine, *all;
	uint64_t *keys;
	int ranks = 0;
	MPI_Comm comm;

	if (!base_opt.hier || real.Comm_size(ABI_COMM_WORLD, &ranks) || ranks < 2)
		return;
	inside++;
	rt_identity(&mine);
	all = base_fault("hier_meet") ? NULL : calloc((size_t)ranks, sizeof(*all));
	keys = malloc((size_t)ranks * sizeof(*keys));
	if (!copy_of(ABI_COMM_WORLD, MEET_TAG, &comm)) {
		if (all_have(all && keys, comm) &&
		    !real.Allgather(&mine, sizeof(mine), ABI_BYTE, all, sizeof(mine), ABI_BYTE,
				    comm)) {
			keep_world(all, ranks, keys);
			keys = NULL;
		}
		real.Comm_free(&comm);
	}
	free(keys);
	free(all);
	inside--;
}

/* The node of each rank of a communicator; NULL: some are not of our world, or there is no memory.
 */
static uint64_t *keys_of(const struct comm_state *lc)
{
	size_t n = (size_t)lc->size;
	uint64_t *keys = malloc(n * sizeof(*keys));
	int *ranks = malloc(2 * n * sizeof(*ranks));
	MPI_Group group, of_world;
	bool ok = keys && ranks;

	for (size_t i = 0; ok && i < n; i++)
		ranks[i] = (int)i;
	if (ok && !real.Comm_group(lc->comm, &group)) {
		ok = !real.Comm_group(ABI_COMM_WORLD, &of_world);
		if (ok) {
			ok = !real.Group_translate_ranks(group, lc->size, ranks, of_world,
							 ranks + n);
			real.Group_free(&of_world);
		}
		real.Group_free(&group);
	} else {
		ok = false;
	}
	for (size_t i = 0; ok && i < n; i++) {
		ok = ranks[n + i] != ABI_UNDEFINED;
		keys[i] = ok ? world.keys[ranks[n + i]] : 0;
	}
	free(ranks);
	if (ok)
		return keys;
	free(keys);
	return NULL;
}

/* Where each rank has a node to itself there is nothing that Sluice could do better. */
bool hier_spans(const struct comm_state *lc)
{
	uint64_t *keys = world.keys ? keys_of(lc) : NULL;
	struct hier_layout *l = keys ? hier_layout_create(keys, lc->size) : NULL;
	bool spans_nodes = l && l->nodes > 1 && l->nodes < l->ranks;

	hier_layout_destroy(l);
	free(keys);
	return spans_nodes;
}

/* ---- a communicator ---------------------------------------------------------------------- */

static int near_allgather(void *ctx, const void *in, size_t bytes, void *out)
{
	const struct spanning *s = ctx;
	int rc;

	inside++;
	rc = ON_SCRATCH(
		real.Allgather(in, (int)bytes, ABI_BYTE, out, (int)bytes, ABI_BYTE, s->near));
	inside--;
	return rc ? -EIO : 0;
}

static int near_allreduce_min(void *ctx, int64_t in, int64_t *out)
{
	const struct spanning *s = ctx;
	int n = hier_node_size(s->layout, s->layout->node_of[s->lc->rank]);
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

static void progress(void *ctx)
{
	struct spanning *s = ctx;

	comm_state_progress(s->lc);
}

/* The group of this node's ranks. 0 or -errno; on one node it may fail, and not on another. */
static int connect_near(struct spanning *s)
{
	int rank = s->lc->rank, node = s->layout->node_of[rank];
	struct rt_oob oob = {
		.ctx = s,
		.rank = s->layout->place[rank],
		.size = hier_node_size(s->layout, node),
		.allgather = near_allgather,
		.allreduce_min = near_allreduce_min,
		.progress = s->lc->has_pending ? progress : NULL,
		.thread_multiple = session_is_thread_multiple(),
	};
	int rc = ON_SCRATCH(real.Comm_split(s->wire, node, rank, &s->near));

	if (rc)
		return -EIO;
	silence(s->near); /* if it cannot be: it has wire's error handler */
	rc = rt_comm_create(&oob, &s->local);
	real.Comm_free(&s->near);
	return rc ? rc : !s->local && oob.size > 1 ? -ENOTSUP : 0;
}

static bool all_say(struct comm_state *lc, bool mine)
{
	int64_t all;

	return !comm_state_agree(lc, mine, &all) && all;
}

static struct spanning *hier_alloc(struct comm_state *lc)
{
	uint64_t *keys = keys_of(lc);
	struct spanning *s = calloc(1, sizeof(*s));

	if (s) {
		s->lc = lc;
		s->wire = ABI_COMM_NULL;
		s->layout = keys ? hier_layout_create(keys, lc->size) : NULL;
	}
	free(keys);
	if (s && s->layout)
		return s;
	free(s);
	return NULL;
}

/* Once each node has its group. The same on all ranks. */
static bool set_segment(struct spanning *s)
{
	bool is_roomy = all_say(s->lc, !s->local || !rt_comm_is_crowded(s->local));

	s->segment_bytes = base_opt.hier_segment_bytes ? base_opt.hier_segment_bytes
						       : hier_segment_bytes(!is_roomy);
	s->segment_bytes = base_max_u64(s->segment_bytes,
					(uint64_t)s->layout->ranks); /* a byte of each, at least */
	s->spare = malloc(s->segment_bytes);
	s->posts = calloc((size_t)s->layout->ranks * SPAN_SLOTS, sizeof(*s->posts));
	return all_say(s->lc, s->spare && s->posts);
}

/* Nonblocking ones need a thread that may call the library, on every rank. */
static void set_thread(struct spanning *s)
{
	bool is_asked =
		base_opt.coll_take[BASE_FAMILY_NONBLOCKING] == BASE_TAKE_ON; /* the same everywhere */

	if (!is_asked || all_say(s->lc, session_is_thread_multiple() && !hier_thread_create(&s->thread)))
		return;
	hier_thread_end(s->thread);
	s->thread = NULL;
	base_log(BASE_LOG_INFO, "mpi",
		 "nonblocking collectives over several nodes are left to the MPI: %s",
		 session_is_thread_multiple() ? "a rank has no thread for them"
				    : "MPI_THREAD_MULTIPLE is not provided");
}

static void explain(const struct spanning *s, const struct comm_state *lc)
{
	const struct hier_layout *l;
	int node;

	if (!s) {
		base_count(BASE_CTR_GROUPS_REFUSED, 1);
		base_log(BASE_LOG_INFO, "mpi",
			 "communicator of %d ranks on several nodes is left to the MPI", lc->size);
		return;
	}
	l = s->layout;
	node = l->node_of[lc->rank];
	base_count(BASE_CTR_SPANS, 1);
	base_log(BASE_LOG_INFO, "mpi",
		 "communicator of %d ranks spans %d nodes: %d here (node %d), led by its rank %d",
		 lc->size, l->nodes, hier_node_size(l, node), node, hier_acting(l, node, -1));
}

struct spanning *hier_create(struct comm_state *lc)
{
	bool has_room = atomic_fetch_add_explicit(&spans, 1, memory_order_relaxed) < SPANS_MAX;
	struct spanning *s = hier_alloc(lc);
	bool ok = all_say(lc, has_room && s);

	if (ok) /* an error before all have it would be the program's */
		ok = all_say(lc, !copy_of(lc->comm, WIRE_TAG, &s->wire) && !silence(s->wire));
	if (ok)
		ok = all_say(lc, !connect_near(s)) && set_segment(s);
	if (ok)
		set_thread(s);
	if (!s)
		atomic_fetch_sub_explicit(&spans, 1, memory_order_relaxed);
	if (s && !ok) {
		hier_destroy(s);
		s = NULL;
	}
	explain(s, lc);
	return s;
}

void hier_close(struct spanning *s)
{
	if (!s)
		return;
	hier_thread_end(s->thread);
	rt_comm_destroy(s->local);
	s->thread = NULL;
	s->local = NULL;
}

void hier_destroy(struct spanning *s)
{
	if (!s)
		return;
	hier_close(s);
	inside++;
	if (s->wire != ABI_COMM_NULL)
		real.Comm_free(&s->wire);
	inside--;
	if (!s->has_failed) { /* else the library may still use them */
		free(s->window);
		free(s->spare);
		free(s->posts);
	}
	hier_layout_destroy(s->layout);
	free(s);
	atomic_fetch_sub_explicit(&spans, 1, memory_order_relaxed);
}

char *hier_window(struct spanning *s, uint64_t bytes)
{
	if (s->window_bytes < bytes) {
		free(s->window);
		s->window = malloc(bytes);
		s->window_bytes = s->window ? bytes : 0;
	}
	return s->window;
}
