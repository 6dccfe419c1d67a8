/* SPDX-License-Identifier: BSD-3-Clause */
/* Communicators: everything that belongs to one, created and destroyed by all ranks alike. */
#include <errno.h>
#include <stdlib.h>

#include "os/endpoint.h"
#include "rt/private.h"
#include "rt/requests.h"
#include "rt/rt.h"

/* The ranks agree on the least of what each of them says. */
enum {
	LACKS_MEMORY,
	HAS_GPU, /* the program has loaded libcuda */
	HAS_NONE,
	IS_SWITCHED, /* a scheduler of endpoints/ runs it */
};

static struct rt_comm *comm_alloc(int size)
{
	struct rt_comm *c = calloc(1, sizeof *c);
	int ret;

	if (!c)
		return NULL;
	ret = requests_comm_created(c);
	trials_comm_created(c);
	for (int i = 0; i < 2; i++)
		c->parts[i] = calloc(2 * (size_t)size, sizeof *c->parts[i]);
	c->starts = calloc((size_t)size + 1, sizeof *c->starts);
	if (!ret && c->parts[0] && c->parts[1] && c->starts)
		return c;
	rt_comm_destroy(c);
	return NULL;
}

/* Decides how peers reach memory that is not adopted, and tells region/ what adoption would save.
 */
static bool prefers_vm(const struct node_group *g)
{
	struct policy_group p = { .ranks = node_size(g),
				  .oversubscribed = node_is_oversubscribed(g) };
	/* trials and messages tell more about later uses */
	static _Atomic bool are_rates_set;
	struct node_rates rates = node_probe_rates(g);
	uint32_t private_ps, mapped_ps;

	p.vm_ps = rates.vm_ps;
	p.copy_ps = rates.copy_ps;
	policy_copy_rates(&p, &private_ps, &mapped_ps);
	if (!atomic_exchange_explicit(&are_rates_set, true, memory_order_relaxed)) {
		region_set_copy_rates(private_ps, mapped_ps);
		if (rates.new_ps)
			region_expect_price(rates.new_ps + rates.copy_ps);
	}
	return policy_prefer_vm(base_opt.region_kind, &p);
}

/* A lane of persistent requests is a slot. */
static uint32_t slots_of(uint32_t lanes) { return lanes ? EXEC_SLOTS_MAX : EXEC_SLOTS; }

/* Memory of a rank that peers map: slots of collectives, then its mailbox. */
static uint64_t area_bytes(int ranks, uint32_t lanes)
{
	return exec_area_bytes(ranks, slots_of(lanes)) + mailbox_area_bytes(lanes);
}

static int create_mailbox(struct rt_comm *c, int ranks, uint32_t lanes)
{
	c->lanes = lanes ? lanes_create(c) : NULL;
	if (lanes && !c->lanes)
		return -ENOMEM;
	return mailbox_create(c->group, exec_area_bytes(ranks, slots_of(lanes)), lanes,
			      &c->mailbox);
}

static void check_worker(void *c) { offload_check_worker(c); }

static void advance_requests(void *c) { rt_requests_progress(); }

static void progress_host(void *arg)
{
	struct rt_comm *c = arg;

	c->progress(c->progress_ctx);
}

static int create_exec(struct rt_comm *c, uint32_t lanes)
{
	const struct exec_waiter_hooks hooks = {
		.check_worker = check_worker,
		.advance_requests = advance_requests,
		.progress_host = c->progress ? progress_host : NULL,
		.ctx = c,
	};

	return exec_create(c->group, slots_of(lanes), &hooks, &c->exec);
}

static int create(const struct node_oob *oob, uint32_t lanes, struct rt_comm **out)
{
	struct node_group *g = NULL;
	uint64_t begin_ns = trace_activity_begin();
	struct rt_comm *c;
	int64_t least;
	int ret;

	*out = NULL;
	if (oob->size < 2)
		return 0;
	ret = node_group_create(oob, area_bytes(oob->size, lanes), &g);
	if (ret || !g)
		return ret;
	c = comm_alloc(oob->size);
	if (c) {
		c->group = g;
		c->size = node_size(g);
		c->rank = node_rank(g);
		c->progress = oob->progress;
		c->progress_ctx = oob->ctx;
		if (create_exec(c, lanes) || create_mailbox(c, oob->size, lanes) ||
		    device_room_create(c)) {
			c->group = NULL;
			rt_comm_destroy(c);
			c = NULL;
		}
	}
	/* one rank without memory must not leave the others waiting for it later */
	ret = oob->allreduce_min(oob->ctx,
				 !c                   ? LACKS_MEMORY
				 : os_gpu_is_loaded() ? HAS_GPU
				 : endpoint_self      ? IS_SWITCHED
						      : HAS_NONE,
				 &least);
	if (ret || least == LACKS_MEMORY) {
		if (!c)
			node_group_destroy(g);
		rt_comm_destroy(c);
		return ret;
	}
	c->switches = least == IS_SWITCHED;
	c->has_gpu = least == HAS_GPU;
	c->prefer_vm = prefers_vm(g);
	c->piece_most = policy_piece_most(node_arena_bytes(g));
	c->is_crowded = node_is_oversubscribed(g);
	c->admits_requests = policy_admits_requests(&rt_options, node_size(g), c->is_crowded);
	c->thread_multiple = oob->thread_multiple;
	ret = worker_setup_comm(c, oob);
	offload_open(c);
	trace_activity("a group of ranks is made", begin_ns, 0);
	*out = c;
	return ret;
}

int rt_comm_create(const struct node_oob *oob, struct rt_comm **out) { return create(oob, 0, out); }

int rt_comm_create_lanes(const struct node_oob *oob, struct rt_comm **out)
{
	return create(oob, MAILBOX_LANES_MAX, out);
}

bool rt_comm_is_crowded(const struct rt_comm *c)
{
	return c->is_crowded;
}

void rt_comm_destroy(struct rt_comm *c)
{
	if (!c)
		return;
	pending_complete_comm(c);
	requests_comm_destroyed(c);
	requests_trials_end(c);
	worker_setup_comm_destroyed(c);
	for (size_t i = 0; i < BASE_ARRAY_LEN(c->failed_copies); i++)
		if (c->failed_copies[i].bytes)
			region_extent_put(&c->failed_copies[i]);
	mailbox_destroy(c->mailbox);
	exec_destroy(c->exec);
	if (c->group)
		node_group_destroy(c->group);
	free(c->parts[0]);
	free(c->parts[1]);
	free(c->starts);
	free(c->device);
	lanes_destroy(c->lanes);
	free(c);
}
