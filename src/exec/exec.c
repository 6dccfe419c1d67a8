/* SPDX-License-Identifier: BSD-3-Clause */
/* Publishing a rank's side of a collective and stepping through it until it is done. */
#include "exec/exec.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "exec/private.h"

#define FIND_DEAD_NS 1000000000ull
#define GRACE_NS 2000000000ull

static uint32_t op_cap(int ranks) { return (uint32_t)ranks + 2; }

static uint64_t xfers_off(int ranks)
{
	return base_round_up(sizeof(struct exec_slot) + goal_block_bytes(op_cap(ranks), op_cap(ranks)),
			     BASE_CACHE_LINE);
}

static uint64_t started_off(int ranks) { return xfers_off(ranks) + (uint64_t)ranks * sizeof(struct xfer); }

static uint64_t slot_bytes(int ranks)
{
	return base_round_up(started_off(ranks) + op_cap(ranks) * sizeof(uint64_t), HOST_PAGE);
}

uint64_t exec_area_bytes(int ranks) { return EXEC_SLOTS * slot_bytes(ranks) + XFER_RING_BYTES; }

int exec_create(struct node_group *g, void (*progress)(void *), void *progress_ctx, struct exec_comm **out)
{
	struct exec_comm *e = calloc(1, sizeof *e);

	if (!e)
		return -ENOMEM;
	e->group = g;
	e->progress = progress;
	e->progress_ctx = progress_ctx;
	e->rank = node_rank(g);
	e->size = node_size(g);
	e->slot_bytes = slot_bytes(e->size);
	e->xfers_off = xfers_off(e->size);
	e->started_off = started_off(e->size);
	e->ring_off = EXEC_SLOTS * e->slot_bytes;
	e->op_cap = op_cap(e->size);
	e->ops = calloc(e->op_cap, sizeof *e->ops);
	e->help = calloc((size_t)e->size, sizeof *e->help);
	if (!e->ops || !e->help) {
		exec_destroy(e);
		return -ENOMEM;
	}
	*out = e;
	return 0;
}

void exec_destroy(struct exec_comm *e)
{
	if (!e)
		return;
	if (e->repair.bytes)
		region_extent_put(&e->repair);
	free(e->ops);
	free(e->help);
	free(e);
}

/* ---- beginning ------------------------------------------------------------------------------------ */

static bool sends_user(const struct goal_block *b)
{
	for (uint32_t i = 0; i < b->op_count; i++)
		if (goal_ops_const(b)[i].type == GOAL_SEND && has_inline_edges(&goal_ops_const(b)[i]))
			return true;
	return false;
}

static void ring_peers(struct exec_comm *e)
{
	for (uint32_t i = 0; i < e->block->op_count; i++)
		if (goal_ops_const(e->block)[i].type != GOAL_COPY)
			node_ring(e->group, (int)goal_ops_const(e->block)[i].peer);
}

static void publish(struct exec_comm *e, const struct exec_call *call)
{
	struct exec_slot *s = e->slot;

	/* a helper of long ago may still look at this slot: it is nobody's while it is rewritten */
	atomic_store_explicit(&s->op, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release); /* partner: the fence in match_view */
	/* programs repeat themselves: then the peers' cached copies of these lines stay valid */
	if (memcmp(slot_schedule(s), call->schedule, call->schedule->bytes))
		memcpy(slot_schedule(s), call->schedule, call->schedule->bytes);
	e->block = slot_schedule(s);
	memcpy(s->desc, call->desc, sizeof s->desc);
	s->prefer_vm = call->prefer_vm;
	s->has_edges = sends_user(e->block);
	if (s->has_edges)
		xfer_fill_edges(&s->desc[GOAL_USER], call->user[0], s->edges);
	atomic_store_explicit(&s->filled, xfer_word(e->op, 0), memory_order_relaxed);
	for (uint32_t i = 0; i < e->block->recv_count; i++)
		xfer_open(slot_xfer(e, s, i), e->op);
	atomic_store_explicit(&s->op, e->op, memory_order_release); /* partner: slot_is_published */
	ring_peers(e);
}

static void begin(struct exec_comm *e, const struct exec_call *call)
{
	e->op++;
	e->call = call;
	e->slot = slot_of(e, e->rank, e->op);
	e->stage_src = NULL;
	e->next_help = (uint32_t)e->rank + 1; /* not everybody helps the same first */
	publish(e, call);
	e->left = e->block->op_count;
	for (uint32_t i = 0; i < e->block->op_count; i++) {
		e->ops[i].waits = goal_ops_const(e->block)[i].requires;
		e->ops[i].state = e->ops[i].waits ? EXEC_BLOCKED : EXEC_ACTIVE;
		e->ops[i].staged = false;
	}
	for (int r = 0; r < e->size; r++)
		e->help[r].state = HELP_UNKNOWN;
}

/* ---- waiting --------------------------------------------------------------------------------------- */

static int report_dead(struct exec_comm *e, int dead)
{
	bool alive = dead == e->rank || !node_is_dead(e->group, dead);

	e->told = true;
	base_log(BASE_LOG_ERROR, "exec", "%s: rank %d (pid %d) of this communicator of %d ranks %s", e->call->name, dead,
		 node_pid(e->group, dead), e->size, alive ? "could not take part" : "has died");
	return alive ? -EIO : -EOWNERDEAD;
}

void exec_abandon(struct exec_comm *e, int error)
{
	e->error = error;
	node_poison(e->group, e->rank);
}

/* The culprit has done its part of this collective, so that it may end well: others get time for that.
 * Not for ever: a second rank may have failed, whom nobody names. */
static bool may_end_well(struct exec_comm *e, int culprit)
{
	uint64_t now = host_now_ns();

	if (!e->give_up_ns)
		e->give_up_ns = now + GRACE_NS;
	return now < e->give_up_ns && slot_is_over(slot_of(e, culprit, e->op), e->op);
}

static int check_peers(struct exec_comm *e)
{
	int dead = node_poisoned(e->group);

	if (dead >= 0 && may_end_well(e, dead))
		dead = -1;
	for (int r = 0; dead < 0 && r < e->size; r++)
		if (!slot_is_over(slot_of(e, r, e->op), e->op) && node_is_dead(e->group, r))
			dead = r;
	if (dead < 0)
		return 0;
	node_poison(e->group, dead);
	/* another rank may have found the first to die, reported it and died itself meanwhile */
	return report_dead(e, node_poisoned(e->group));
}

/* A copy has failed because its other end is gone, which takes a moment to be visible. */
static int find_dead(struct exec_comm *e)
{
	uint64_t give_up = host_now_ns() + FIND_DEAD_NS;
	int ret;

	do {
		ret = check_peers(e);
		if (!ret)
			sched_yield();
	} while (!ret && host_now_ns() < give_up);
	return ret ? ret : -EIO;
}

/* Nothing to do here: let the MPI progress (a peer may wait for a message of ours), then wait. */
static int wait_step(struct exec_comm *e, struct node_wait *w)
{
	if (e->progress && node_wait_is_long(w))
		e->progress(e->progress_ctx);
	return node_wait(e->group, w) ? check_peers(e) : 0;
}

static int step_all(struct exec_comm *e)
{
	int progress = 0, ret;

	for (uint32_t i = 0; i < e->block->op_count; i++) {
		ret = step_op(e, i);
		if (ret < 0)
			return ret;
		progress |= ret;
	}
	ret = step_stage(e);
	return ret < 0 ? ret : progress | ret;
}

static int run(struct exec_comm *e)
{
	bool help = base_opt.xfer_help && e->size > 2;
	struct node_wait w;
	int ret = 0;

	node_wait_init(&w);
	while (e->left) {
		ret = step_all(e);
		if (!ret && help)
			ret = step_help(e);
		if (ret < 0)
			break;
		if (ret) {
			node_wait_progress(e->group, &w);
			continue;
		}
		ret = wait_step(e, &w);
		if (ret)
			break;
	}
	node_wait_end(e->group, &w);
	return ret < 0 ? ret : 0;
}

int exec_run(struct exec_comm *e, const struct exec_call *call)
{
	int ret = e->error;

	if (ret)
		return ret;
	if (call->schedule->op_count > e->op_cap || call->schedule->adjacency_count > e->op_cap ||
	    call->schedule->recv_count > (uint32_t)e->size)
		return -E2BIG;
	begin(e, call);
	ret = run(e);
	if (!ret)
		atomic_store_explicit(&e->slot->over, e->op, memory_order_release); /* partner: slot_is_over */
	if (ret == -EOWNERDEAD && !e->told)
		ret = find_dead(e);
	e->error = ret;
	return ret;
}
