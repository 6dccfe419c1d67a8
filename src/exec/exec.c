/* SPDX-License-Identifier: BSD-3-Clause */
/* Publishing a rank's side of a collective and stepping it to its end. */
#include "exec/exec.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "exec/private.h"
#include "trace/trace.h"

#define FIND_DEAD_NS 1000000000ull
#define GRACE_NS 2000000000ull

static uint64_t starts_off(int ranks)
{
	return sizeof(struct exec_slot) + ops_max(ranks) * sizeof(struct slot_op);
}

static uint64_t xfers_off(int ranks)
{
	return base_round_up(starts_off(ranks) + ((uint64_t)ranks + 1) * sizeof(uint64_t),
			     BASE_CACHE_LINE);
}

static uint64_t edges_off(int ranks)
{
	return xfers_off(ranks) + ((uint64_t)recvs_max(ranks) + 1) * sizeof(struct xfer);
}

static uint64_t layouts_off(int ranks) { return edges_off(ranks) + 4 * XFER_EDGE_BYTES; }

static uint64_t slot_bytes(int ranks)
{
	return base_round_up(layouts_off(ranks) + layouts_max(ranks) * sizeof(struct layout),
			     OS_PAGE);
}

uint64_t exec_area_bytes(int ranks, uint32_t slots)
{
	return slots * slot_bytes(ranks) + XFER_RING_BYTES;
}

/* Agrees with the other processes of the group: slots 0 takes what its rank 0 has set. */
static void agree_on_slots(struct exec_comm *e, uint32_t slots)
{
	_Atomic uint32_t *shared = &((struct exec_slot *)e->area)->slots;

	if (!slots)
		slots = atomic_load_explicit(shared, memory_order_relaxed);
	e->slots = slots && slots <= EXEC_SLOTS_MAX ? slots : EXEC_SLOTS;
	if (!e->rank)
		atomic_store_explicit(shared, e->slots, memory_order_relaxed);
	e->ring_off = e->slots * e->slot_bytes;
	if (base_fault("slots"))
		e->slots = EXEC_SLOTS;
}

int exec_create(struct node_group *g, uint32_t slots, const struct exec_waiter_hooks *hooks,
		struct exec_comm **out)
{
	struct exec_comm *e = calloc(1, sizeof *e);

	if (!e)
		return -ENOMEM;
	e->group = g;
	if (hooks)
		e->hooks = *hooks;
	e->rank = node_rank(g);
	e->size = node_size(g);
	e->group_id = node_id(g);
	e->area = node_area(g, 0);
	e->area_bytes = (uint64_t)((char *)node_area(g, 1) - e->area);
	e->slot_bytes = slot_bytes(e->size);
	e->starts_off = starts_off(e->size);
	e->xfers_off = xfers_off(e->size);
	e->edges_off = edges_off(e->size);
	e->layouts_off = layouts_off(e->size);
	e->op_cap = ops_max(e->size);
	e->recv_cap = recvs_max(e->size);
	agree_on_slots(e, slots);
	e->help = calloc((size_t)e->size, sizeof *e->help);
	if (!e->help) {
		exec_destroy(e);
		return -ENOMEM;
	}
	*out = e;
	return 0;
}

void exec_destroy(struct exec_comm *e)
{
	struct exec_run *next;

	if (!e)
		return;
	if (e->repair.bytes)
		region_extent_put(&e->repair);
	for (uint32_t i = 0; i < EXEC_SLOTS_MAX; i++)
		free(e->in_slot[i]);
	for (struct exec_run *r = e->free_runs; r; r = next) {
		next = r->next_free;
		free(r);
	}
	free(e->help);
	free(e->room.at);
	free(e);
}

uint32_t exec_slots(const struct exec_comm *e) { return e->slots; }

/* ---- beginning --------------------------------------------------------------------------- */

static void wake_peers(struct exec_run *r)
{
	for (uint32_t i = 0; i < r->kind->peer_count(r); i++)
		if (r->kind->peer_at(r, i) >= 0)
			node_wake(r->comm->group, r->kind->peer_at(r, i));
}

static void publish(struct exec_run *r)
{
	const struct exec_call *call = &r->call;
	struct exec_slot *s = r->slot;

	/* a late helper may still read this slot: the slot is invalid while it is rewritten */
	atomic_store_explicit(&s->op, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release); /* partner: the fence in slot_is_still */
	memcpy(s->desc, call->desc, sizeof s->desc);
	s->prefer_vm = call->prefer_vm;
	s->is_nonblocking = call->is_nonblocking;
	s->origin = call->origin;
	s->is_reduce = !!call->reduce;
	r->kind->publish(r);
	atomic_store_explicit(&s->filled, xfer_word(r->op, 0), memory_order_relaxed);
	atomic_store_explicit(&s->waits_since_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&s->op, r->op, memory_order_release); /* partner: slot_is_published */
	/*
	 * The later of two ranks sees the earlier: each publishes, then reads. Partner: the same
	 * fence of the peer.
	 */
	atomic_thread_fence(memory_order_seq_cst);
	wake_peers(r);
}

static struct exec_run *run_get(struct exec_comm *e)
{
	struct exec_run *r = e->free_runs;

	if (r) {
		e->free_runs = r->next_free;
		return r;
	}
	return aligned_alloc(
		BASE_CACHE_LINE,
		base_round_up(sizeof *r + e->op_cap * sizeof r->ops[0], BASE_CACHE_LINE));
}

static uint64_t number_of(const struct exec_comm *e, const struct exec_call *call)
{
	return call->number ? call->number : e->op + 1;
}

/* Free the run: its slot is complete. */
static void run_retire(struct exec_run *r)
{
	struct exec_comm *e = r->comm;

	e->in_slot[r->op % e->slots] = NULL;
	r->next_free = e->free_runs;
	e->free_runs = r;
}

/* Leaves the operations uninitialised: publishing needs only their number. */
static void run_reset(struct exec_run *r, struct exec_comm *e, const struct exec_call *call)
{
	memset(r, 0, offsetof(struct exec_run, queue));
	memset((char *)r + offsetof(struct exec_run, in_channel), 0,
	       sizeof *r - offsetof(struct exec_run, in_channel));
	r->comm = e;
	r->call = *call;
	r->op = number_of(e, call);
	r->slot = slot_of(e, e->rank, r->op);
	r->kind = call->reduce ? &reduction_ops : &transfers_ops;
	r->next_help = (uint32_t)e->rank + 1; /* ranks begin to help at different peers */
}

static bool is_too_big(const struct exec_comm *e, const struct exec_call *call)
{
	const struct exec_shape *s = call->shape;

	return s && ((uint32_t)(s->source_count + s->target_count) > e->op_cap ||
		     (uint32_t)s->source_count > e->recv_cap);
}

int exec_error(const struct exec_comm *e)
{
	return atomic_load_explicit(&e->error, memory_order_relaxed);
}

int exec_begin(struct exec_comm *e, const struct exec_call *call, struct exec_run **out)
{
	int ret = exec_error(e);
	struct exec_run **place = &e->in_slot[number_of(e, call) % e->slots], *r;

	if (ret)
		return ret;
	if (is_too_big(e, call))
		return -E2BIG;
	if (*place && !atomic_load_explicit(&(*place)->has_ended,
					    memory_order_acquire)) { /* partner: exec_end */
		*out = *place;
		return -EBUSY;
	}
	if (*place)
		run_retire(*place);
	r = run_get(e);
	if (!r)
		return -ENOMEM;
	run_reset(r, e, call);
	ret = call->reduce ? reduction_begin(r) : 0;
	if (ret) {
		r->next_free = e->free_runs;
		e->free_runs = r;
		return ret;
	}
	e->op = base_max_u64(e->op, r->op);
	*place = r;
	/* the caller of a nonblocking run may have returned to the program */
	if (!call->is_nonblocking)
		trace_op(e->group_id, r->op, e->rank, e->size);
	publish(r);
	*out = r;
	return 0;
}

/* ---- failures ---------------------------------------------------------------------------- */

static int report_dead(struct exec_run *r, int dead)
{
	struct exec_comm *e = r->comm;
	bool alive = dead == e->rank || !node_is_dead(e->group, dead);

	if (!atomic_exchange_explicit(&e->is_reported, true, memory_order_relaxed) &&
	    !(alive && is_explained(e)))
		base_log(BASE_LOG_ERROR, "exec",
			 "%s: rank %d (pid %d) of this communicator of %d ranks %s", r->call.name,
			 dead, node_pid(e->group, dead), e->size,
			 alive ? "could not take part" : "has died");
	return alive ? -EIO : -EOWNERDEAD;
}

void exec_abandon(struct exec_comm *e, int error)
{
	e->error = error;
	node_poison(e->group, e->rank);
}

/*
 * The failed rank has done its part of this collective, so the collective may still end well: the
 * other ranks get time for that. The time is limited because a second rank may have failed
 * unnoticed.
 */
static bool may_end_well(struct exec_run *r, int culprit)
{
	uint64_t now = os_now_ns();

	if (!r->give_up_ns)
		r->give_up_ns = now + GRACE_NS;
	return now < r->give_up_ns && slot_is_complete(slot_of(r->comm, culprit, r->op), r->op);
}

int check_peers(struct exec_run *r)
{
	struct exec_comm *e = r->comm;
	int dead = node_poisoned(e->group);

	if (dead >= 0 && may_end_well(r, dead))
		dead = -1;
	for (int k = 0; dead < 0 && k < e->size; k++)
		if (!slot_is_complete(slot_of(e, k, r->op), r->op) && node_is_dead(e->group, k))
			dead = k;
	if (dead < 0)
		return 0;
	node_poison(e->group, dead);
	/* the rank that found the death first may have reported it and died since */
	return report_dead(r, node_poisoned(e->group));
}

/* A copy has failed because its other end died; the death takes a moment to be visible. */
static int find_dead(struct exec_run *r)
{
	uint64_t give_up = os_now_ns() + FIND_DEAD_NS;
	int ret;

	do {
		ret = check_peers(r);
		if (!ret)
			sched_yield();
	} while (!ret && os_now_ns() < give_up);
	return ret ? ret : -EIO;
}

/* ---- waiting ----------------------------------------------------------------------------- */

void exec_call_hooks(struct exec_run *r, const struct node_wait *w)
{
	const struct exec_waiter_hooks *h = &r->comm->hooks;

	if (!node_wait_is_long(w))
		return;
	if (h->check_worker)
		h->check_worker(h->ctx);
	if (h->advance_requests)
		h->advance_requests(h->ctx);
	if (h->progress_host)
		h->progress_host(h->ctx);
}

/* Calls the hooks (a peer may wait for a message of this rank), then waits. */
int wait_step(struct exec_run *r, struct node_wait *w)
{
	struct exec_comm *e = r->comm;

	slot_note_waiting(r, w);
	exec_call_hooks(r, w);
	call_peers(r, w);
	return node_wait(e->group, w) ? check_peers(r) : 0;
}

static int run_to_end(struct exec_run *r)
{
	struct exec_comm *e = r->comm;
	struct node_wait w = { 0 };
	int ret = 0;

	while (r->remaining) {
		ret = r->kind->step(r, EXEC_COPY_ALL);
		if (!ret)
			ret = r->kind->help(r);
		if (ret < 0)
			break;
		if (ret) {
			node_wait_progress(e->group, &w);
			continue;
		}
		ret = wait_step(r, &w);
		if (ret)
			break;
	}
	node_wait_end(e->group, &w);
	return ret < 0 ? ret : 0;
}

/* The run has ended or failed: free it. */
static int finish(struct exec_run *r, int ret)
{
	struct exec_comm *e = r->comm;

	if (!ret)
		atomic_store_explicit(&r->slot->completed, r->op,
				      memory_order_release); /* partner: slot_is_complete */
	if (ret == -EOWNERDEAD && !e->is_reported)
		ret = find_dead(r);
	if (ret == -EREMOTEIO)
		exec_explain(r);
	if (ret)
		e->error = ret;
	run_retire(r);
	return ret;
}

int exec_wait(struct exec_run *r) { return finish(r, run_to_end(r)); }

int exec_step(struct exec_run *r, enum exec_copy copy, bool *out_ended)
{
	int ret = r->kind->step(r, copy);

	if (!ret && r->remaining && copy == EXEC_COPY_ALL)
		ret = r->kind->help(r);
	*out_ended = ret < 0 || !r->remaining;
	if (!*out_ended)
		return ret;
	slot_note_working(r);
	return finish(r, ret < 0 ? ret : 0);
}

int exec_check(struct exec_run *r)
{
	int ret = check_peers(r);

	return ret ? finish(r, ret) : 0;
}
