/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Movers for work that no rank waits for: the worker process of the job, or the channel of this
 * process at a copy engine. Their state is a fact for progress/, which decides who is woken.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rt/private.h"
#include "worker/worker.h"

/* ---- the worker process ------------------------------------------------------------------ */

/* Does a live worker process serve this communicator? */
static bool has_worker(const struct rt_comm *c) { return c->worker_group && worker_is_alive(); }

static void reclaim(void *arg, uint64_t name, bool is_intent)
{
	struct rt_comm *c = arg;

	exec_reclaim(c->exec, name, is_intent);
}

void offload_check_worker(struct rt_comm *c)
{
	if (c->worker_group)
		worker_check(c->worker_group, reclaim, c);
}

void offload_count(void)
{
	uint64_t bytes = worker_bytes();

	if (bytes)
		base_count(BASE_CTR_BYTES_ENGINE, bytes);
}

/* ---- this process's channel -------------------------------------------------------------- */

static struct {
	pthread_mutex_t lock;
	bool tried;
	_Atomic(struct engine_chan *) chan;
	uint32_t depth;
	bool has_cpu; /* or the channel needs none */
} mover = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Ranks of a NUMA node share its channels. Returns: 0 with the channel of this rank, or -errno. */
static int deal_channel(const struct engine_ops *engine, const struct node_group *g, int *out_node,
			int *out_index)
{
	int ranks = node_size(g), nodes = os_numa_node_count(), ret = -ENOMEM;
	int *node_of_rank = calloc((size_t)ranks, sizeof(int)),
	    *channels = calloc((size_t)nodes, sizeof(int));

	for (int r = 0; node_of_rank && r < ranks; r++)
		node_of_rank[r] = node_memory_node(g, r);
	for (int node = 0; channels && node < nodes; node++)
		channels[node] = engine->chan_count(node);
	if (node_of_rank && channels)
		ret = engine_deal(node_rank(g), ranks, node_of_rank, nodes, channels, out_node,
				  out_index);
	free(node_of_rank);
	free(channels);
	return ret;
}

static void open_channel_locked(const struct rt_comm *c)
{
	struct os_cpumask ranks_cpus, unused;
	const struct engine_ops *engine;
	struct engine_chan *chan;
	struct engine_caps caps;
	char reason[160] = "";
	int count, node, index, ret;

	node_cpus(c->group, &ranks_cpus);
	count = engine_unused_cpus(&ranks_cpus, c->size, &unused);
	engine_thread_started = progress_thread_own;
	/* all ranks share the unused CPUs: each has its part of them as workers */
	engine_set_cpus(
		&unused,
		count ? (int)base_max_u64(1, (uint64_t)count / (uint64_t)c->size) : 0);
	engine = engine_pick(reason, sizeof reason);
	if (!engine) {
		base_log(BASE_LOG_INFO, "rt", "no copy engine: %s", reason);
		return;
	}
	if (pending_init())
		return;
	ret = deal_channel(engine, c->group, &node, &index);
	if (!ret)
		ret = engine->chan_open(node, index, &chan);
	if (ret) {
		base_log(BASE_LOG_INFO, "rt", "no channel of engine %s: %s", engine->name,
			 strerror(-ret));
		return;
	}
	trace_engine(engine->name);
	engine->caps(chan, &caps);
	/* an autonomous channel gets all fragments at once: nobody may come to post the next */
	mover.depth = caps.flags & ENGINE_AUTONOMOUS
			      ? caps.depth
			      : (uint32_t)base_min_u64((uint64_t)base_opt.engine_depth, caps.depth);
	mover.has_cpu = !(caps.flags & ENGINE_USES_CPU) || count > 0;
	atomic_store_explicit(&mover.chan, chan, memory_order_release); /* partner: channel() */
	base_log(BASE_LOG_INFO, "rt", "copy engine %s, %d unused CPUs", engine->name, count);
	progress_thread_start();
}

/* The group of the first communicator decides. A process opens no channel while the worker process
 * serves it. */
void offload_open(struct rt_comm *c)
{
	if (base_opt.early == BASE_EARLY_OFF || has_worker(c))
		return;
	pthread_mutex_lock(&mover.lock);
	if (!mover.tried)
		open_channel_locked(c);
	mover.tried = true;
	pthread_mutex_unlock(&mover.lock);
}

static struct engine_chan *channel(void)
{
	return atomic_load_explicit(&mover.chan, memory_order_acquire);
}

/* ---- choosing a mover -------------------------------------------------------------------- */

void offload_facts(struct rt_comm *c, enum detach_movers to, struct progress_facts *f)
{
	if (to != DETACH_TO_RANKS && has_worker(c)) {
		worker_facts(f);
		return;
	}
	if (base_unlikely(c->worker_group && !has_worker(c)))
		offload_open(c);
	f->has_channel = to == DETACH_TO_ANY && channel();
	f->has_cpu = f->has_channel && mover.has_cpu;
}

enum progress_action offload_announce(struct rt_comm *c, const struct exec_run *r,
				 struct progress_facts *f)
{
	enum progress_action action;

	f->work_ns = os_copy_ns(exec_work_bytes(r));
	action = progress_decide(f);
	if (action == PROGRESS_ANNOUNCE || action == PROGRESS_WAKE)
		worker_announce(c->worker_group, exec_tag(r));
	return action;
}

void offload_feed(struct exec_run *r, struct pending *p)
{
	exec_start_channel(r, channel(), mover.depth, pending_channel_idle, p);
}
