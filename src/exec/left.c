/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs that were left: the call has returned, and what is missing is moved by a channel, by any
 * rank that waits, or by whoever of this process touches the memory. Nothing of the run is written
 * here any more but by its queue: an operation whose peer has come since is matched anew by each
 * who looks, on its own stack. So any number of threads and signal handlers may be in here at once.
 */
#include <errno.h>
#include <string.h>

#include "exec/private.h"
#include "progress/progress.h"

/* ---- may it be left? --------------------------------------------------------------------- */

enum need { NOT_NEEDED, NEEDED_NOW, NEEDED_ALWAYS };

static enum need unmatched_need(const struct exec_run *r, const struct goal_op *op)
{
	struct xfer_end end = { r->call.desc[op->mem], op->off, r->comm->rank, NULL };
	bool may = op->type == GOAL_COPY ? false
		   : op->type == GOAL_SEND
			   ? xfer_sender_may_detach(&end, op->bytes, has_inline_edges(op))
			   : xfer_receiver_may_detach(&end, op->bytes);

	return may ? NOT_NEEDED : NEEDED_NOW;
}

static enum need matched_need(const struct goal_op *op, const struct exec_op *o)
{
	const struct xfer_plan *p = &o->view.plan;

	if (p->way != XFER_DIRECT)
		return NEEDED_ALWAYS;
	if (op->type == GOAL_COPY)
		return xfer_is_done(o->view.x, o->view.tag, p->total & ~xfer_bits(p->fragments))
			       ? NOT_NEEDED
			       : NEEDED_NOW;
	if (!xfer_needs_me(&o->view))
		return NOT_NEEDED;
	/* the receiver's edges are a matter of this moment; fragments that nobody else can copy are
	 * not */
	return op->type == GOAL_RECV && !o->view.edges_done ? NEEDED_NOW : NEEDED_ALWAYS;
}

static enum need run_need(const struct exec_run *r, bool all_come)
{
	enum need worst = NOT_NEEDED, n;

	if (r->is_reduce && r->reduce.shape.domains)
		return NEEDED_ALWAYS;
	if (r->is_reduce)
		return run_reduce_is_needed(r, all_come) ? NEEDED_NOW : NOT_NEEDED;
	for (uint32_t i = 0; i < r->block->op_count; i++) {
		const struct exec_op *o = &r->ops[i];

		if (o->state == EXEC_DONE)
			continue;
		if (o->state == EXEC_BLOCKED)
			return NEEDED_ALWAYS;
		n = o->state == EXEC_MATCHED ? matched_need(run_op(r, i), o) :
		    all_come		     ? NEEDED_NOW :
					       unmatched_need(r, run_op(r, i));
		if (n > worst)
			worst = n;
	}
	return worst;
}

int exec_settle(struct exec_run *r, enum exec_copy copy, bool all_come, uint64_t wait_ns)
{
	struct node_group *g = r->comm->group;
	uint64_t since_ns = 0;
	struct node_wait w;
	enum need need;
	int ret;

	node_wait_init(&w);
	for (;;) {
		ret = step_all(r, copy);
		need = r->left ? run_need(r, all_come) : NOT_NEEDED;
		if (ret < 0 || !r->left || need == NEEDED_ALWAYS)
			break;
		if (ret) {
			node_wait_progress(g, &w);
			since_ns = 0;
			continue;
		}
		if (need == NOT_NEEDED) {
			uint64_t now = wait_ns ? os_now_ns() : 0;

			since_ns = since_ns ? since_ns : now;
			if (now - since_ns >= wait_ns)
				break;
		}
		if (node_wait_is_long(&w))
			copy = EXEC_COPY_ALL; /* one that cannot leave yet helps meanwhile */
		ret = wait_step(r, &w);
		if (ret)
			break;
	}
	node_wait_end(g, &w);
	slot_note_working(r);
	if (ret < 0)
		return ret;
	return !r->left ? EXEC_ENDED : need == NOT_NEEDED ? EXEC_MAY_DETACH : EXEC_NEEDED;
}

void exec_each_range(const struct exec_run *r, exec_visit *visit, void *arg)
{
	if (r->is_reduce)
		run_reduce_each_range(r, visit, arg);
	for (uint32_t i = 0; i < r->block->op_count; i++) {
		const struct goal_op *op = run_op(r, i);

		if (r->ops[i].state == EXEC_DONE)
			continue;
		visit(arg, &r->call.desc[op->mem], op->off, op->bytes, op->type != GOAL_SEND);
		if (op->type == GOAL_COPY)
			visit(arg, &r->call.desc[op->src_mem], op->src_off, op->bytes, false);
	}
}

/* ---- the channel ------------------------------------------------------------------------- */

static bool is_taken_up(const struct xfer_view *v)
{
	return xfer_is_all_claimed(v->x, v->tag, v->plan.units);
}

/* Called by the queue when it has posted and got back all it could: the next operation's turn. */
static void start_next(void *arg)
{
	struct exec_run *r = arg;
	uint32_t i;

	while (!atomic_load_explicit(&r->is_stopped,
				     memory_order_acquire)) { /* partner: exec_stop_channel */
		i = atomic_fetch_add_explicit(&r->next_queued, 1, memory_order_relaxed);
		if (i >= r->block->op_count)
			break;
		if (r->ops[i].state == EXEC_MATCHED && r->ops[i].view.can_move &&
		    !is_taken_up(&r->ops[i].view) &&
		    xfer_queue_start(&r->queue, &r->ops[i].view, r->chan, r->depth, start_next, r))
			return;
	}
	r->drained(r->drained_arg);
	atomic_store_explicit(&r->in_channel, 0,
			      memory_order_release); /* partner: exec_is_in_channel */
}

static void view_again(struct exec_run *r, enum xfer_view_mode mode)
{
	for (uint32_t i = 0; i < r->block->op_count; i++) {
		struct exec_op *o = &r->ops[i];
		bool had_edges = o->state == EXEC_MATCHED && o->view.edges_done;
		int ret;

		if (o->state != EXEC_MATCHED)
			continue;
		ret = run_op(r, i)->type == GOAL_COPY ? match_copy(r, i, mode, &o->view) :
							match_op(r, i, mode, &o->view);
		o->view.edges_done |= had_edges;
		if (ret) /* its peer has passed on: it will be found over; anything else is found
			    again */
			o->state = EXEC_ACTIVE;
	}
}

void exec_detach(struct exec_run *r)
{
	view_again(r, XFER_VIEW_ALIASED);
	r->reduce.mode = XFER_VIEW_ALIASED;
	xfer_queue_init(&r->queue);
}

void exec_reattach(struct exec_run *r)
{
	view_again(r, XFER_VIEW_NORMAL);
	r->reduce.mode = XFER_VIEW_NORMAL;
}

void exec_start_channel(struct exec_run *r, struct engine_chan *chan, uint32_t depth,
			void (*drained)(void *arg), void *arg)
{
	r->chan = chan;
	r->depth = depth;
	r->drained = drained;
	r->drained_arg = arg;
	atomic_store_explicit(&r->in_channel, 1, memory_order_release);
	start_next(r);
}

void exec_stop_channel(struct exec_run *r)
{
	if (atomic_exchange_explicit(&r->is_stopped, true,
				     memory_order_release)) /* partner: start_next */
		return;
	if (atomic_load_explicit(&r->in_channel, memory_order_acquire))
		xfer_queue_stop(&r->queue);
}

void exec_restart_channel(struct exec_run *r)
{
	uint32_t none = 0;

	if (!r->chan || !atomic_load_explicit(&r->is_stopped, memory_order_relaxed))
		return;
	if (!atomic_compare_exchange_strong_explicit(&r->in_channel, &none, 1, memory_order_acquire,
						     memory_order_relaxed))
		return; /* what is in it has not come back yet: a later touch will start it again */
	xfer_queue_init(&r->queue);
	atomic_store_explicit(&r->next_queued, 0, memory_order_relaxed);
	atomic_store_explicit(&r->is_stopped, false, memory_order_relaxed);
	start_next(r);
}

bool exec_is_in_channel(const struct exec_run *r)
{
	return atomic_load_explicit(&r->in_channel, memory_order_acquire); /* partner: start_next */
}

void exec_rescue(struct exec_run *r)
{
	if (exec_is_in_channel(r))
		xfer_queue_rescue(&r->queue, os_now_ns());
}

/* ---- looking and helping ----------------------------------------------------------------- */

/* How this process sees operation i. 0; -ESTALE: all of it is done; -EAGAIN: its peer is not there.
 */
static int view_of(struct exec_run *r, uint32_t i, struct xfer_view *out)
{
	if (r->ops[i].state == EXEC_DONE)
		return -ESTALE;
	if (r->ops[i].state != EXEC_MATCHED)
		return match_op(r, i, XFER_VIEW_ALIASED, out);
	*out = r->ops[i].view;
	return 0;
}

/* Where the program sees the bytes of operation i: where they go to or come from; of a copy inside
 * this rank, side 1 is where they come from. False: there is no such side. */
static bool local_range(const struct exec_run *r, uint32_t i, int side, uintptr_t *lo,
			uintptr_t *hi)
{
	const struct goal_op *op = run_op(r, i);

	if (side && op->type != GOAL_COPY)
		return false;
	*lo = side ? r->call.desc[op->src_mem].addr + op->src_off
		   : r->call.desc[op->mem].addr + op->off;
	*hi = *lo + op->bytes;
	return true;
}

static int advance_op(struct exec_run *r, uint32_t i, const uint64_t *offset)
{
	struct xfer_view v;
	int ret = view_of(r, i, &v);

	if (ret)
		return ret == -ESTALE || ret == -EAGAIN ? 0 : ret;
	return xfer_move(&v, offset ? xfer_fragment_of(&v.plan, *offset) : XFER_ANY);
}

int exec_advance(struct exec_run *r, uintptr_t want)
{
	uintptr_t lo, hi;
	int ret = 0;

	if (r->is_reduce)
		return run_reduce_advance(r, want);
	for (uint32_t i = 0; want && !ret && i < r->block->op_count; i++)
		for (int side = 0; side < 2 && !ret && local_range(r, i, side, &lo, &hi); side++)
			if (want >= lo && want < hi)
				ret = advance_op(r, i, &(uint64_t){ want - lo });
	for (uint32_t i = 0; !ret && i < r->block->op_count; i++)
		ret = advance_op(r, i, NULL);
	return ret;
}

static bool is_part_there(struct exec_run *r, uint32_t i, uint64_t at, uint64_t bytes)
{
	struct xfer_view v;
	int ret = view_of(r, i, &v);

	return ret == -ESTALE || (!ret && xfer_is_range_done(&v, at, bytes));
}

bool exec_is_range_complete(struct exec_run *r, uintptr_t start, uintptr_t end)
{
	uintptr_t lo, hi;

	if (r->is_reduce)
		return run_reduce_range_is_there(r, start, end);
	for (uint32_t i = 0; i < r->block->op_count; i++) {
		for (int side = 0; side < 2 && local_range(r, i, side, &lo, &hi); side++) {
			uintptr_t from = lo > start ? lo : start, to = hi < end ? hi : end;

			if (from < to && !is_part_there(r, i, from - lo, to - from))
				return false;
		}
	}
	return true;
}

static bool is_op_over(struct exec_run *r, uint32_t i)
{
	struct xfer_view v;
	int ret = view_of(r, i, &v);

	return ret == -ESTALE || (!ret && xfer_is_done(v.x, r->op, v.plan.total));
}

bool exec_is_complete(struct exec_run *r)
{
	if (r->is_reduce)
		return run_reduce_is_over(r);
	for (uint32_t i = 0; i < r->block->op_count; i++)
		if (!is_op_over(r, i))
			return false;
	return true;
}

bool exec_is_claimed(struct exec_run *r)
{
	if (r->is_reduce)
		return run_reduce_is_taken_up(r);
	for (uint32_t i = 0; i < r->block->op_count; i++) {
		struct xfer_view v;
		int ret = view_of(r, i, &v);

		if (ret != -ESTALE && (ret || !is_taken_up(&v)))
			return false;
	}
	return true;
}

bool exec_is_matched(struct exec_run *r)
{
	if (r->is_reduce)
		return run_reduce_is_matched(r);
	for (uint32_t i = 0; i < r->block->op_count; i++) {
		const struct goal_op *op = run_op(r, i);
		struct exec_slot *s =
			op->type == GOAL_COPY ? NULL : slot_of(r->comm, (int)op->peer, r->op);

		if (s && !slot_is_published(s, r->op) && !slot_has_passed(s, r->op))
			return false;
	}
	return true;
}

void exec_progress_host(struct exec_run *r, const struct node_wait *w)
{
	if (r->comm->progress && node_wait_is_long(w))
		r->comm->progress(r->comm->progress_ctx);
}

/*
 * Everything is claimed, and not all of it in place: by a mover that is busy, or by a channel of
 * the other end's, of which nobody but its own process may take it back, as it may still write.
 * Should that process compute, it is called.
 */
static bool may_be_held(struct exec_run *r, uint32_t i)
{
	struct xfer_view v;

	return run_op(r, i)->type != GOAL_COPY && !view_of(r, i, &v) && v.plan.way == XFER_DIRECT &&
	       is_taken_up(&v) && !xfer_is_done(v.x, r->op, v.plan.total);
}

void call_peers(struct exec_run *r, struct node_wait *w)
{
	struct progress_facts f = { .asker = PROGRESS_WAITER, .is_stuck = node_wait_is_stuck(w) };

	for (uint32_t i = 0; f.is_stuck && i < r->block->op_count; i++) {
		f.needs_peer = may_be_held(r, i);
		if (progress_decide(&f).action == PROGRESS_WAKE_PEER)
			node_wake_process(r->comm->group, (int)run_op(r, i)->peer);
	}
}

int exec_pause(struct exec_run *r, struct node_wait *w)
{
	struct exec_comm *e = r->comm;
	int ret;

	call_peers(r, w);
	slot_note_waiting(r, w);
	ret = node_wait(e->group, w) ? check_peers(r) : 0;
	if (ret)
		atomic_store_explicit(&e->error, ret, memory_order_relaxed);
	return ret;
}

void exec_resume(struct exec_run *r, struct node_wait *w)
{
	node_wait_end(r->comm->group, w);
	slot_note_working(r);
}

/* Since when this partner does; UINT64_MAX: not so. */
static uint64_t waits_since_ns(const struct exec_run *r, int rank)
{
	struct exec_slot *s = slot_of(r->comm, rank, r->op);
	uint64_t since = slot_is_published(s, r->op)
				 ? atomic_load_explicit(&s->waits_since_ns, memory_order_relaxed)
				 : 0;

	return since ? since : UINT64_MAX;
}

/* ... any of them, the first; UINT64_MAX: none. */
static uint64_t waited_since_ns(const struct exec_run *r)
{
	uint64_t first = UINT64_MAX;

	for (int k = 0; r->is_reduce && k < r->comm->size; k++)
		if (k != r->comm->rank)
			first = base_min_u64(first, waits_since_ns(r, k));
	for (uint32_t i = 0; i < r->block->op_count; i++)
		if (run_op(r, i)->type != GOAL_COPY)
			first = base_min_u64(first, waits_since_ns(r, (int)run_op(r, i)->peer));
	return first;
}

bool exec_is_waited_for(const struct exec_run *r) { return waited_since_ns(r) != UINT64_MAX; }

uint64_t exec_waited_for_ns(const struct exec_run *r)
{
	uint64_t first = waited_since_ns(r), now;

	if (first == UINT64_MAX)
		return 0;
	now = os_now_ns();
	return now > first ? now - first : 0;
}

void exec_end(struct exec_run *r)
{
	atomic_store_explicit(&r->slot->over, r->op,
			      memory_order_release); /* partner: slot_is_complete */
	atomic_store_explicit(&r->has_ended, true, memory_order_release); /* partner: exec_begin */
}

uint64_t exec_work_bytes(const struct exec_run *r)
{
	uint64_t bytes = 0;

	if (r->is_reduce)
		return run_reduce_work_bytes(r);
	for (uint32_t i = 0; i < r->block->op_count; i++) {
		const struct exec_op *o = &r->ops[i];

		if (o->state == EXEC_MATCHED && o->view.plan.others_move && !is_taken_up(&o->view))
			bytes += o->view.plan.bytes;
	}
	return bytes;
}

uint64_t exec_tag(const struct exec_run *r) { return r->op & XFER_TAG_MASK; }

uint64_t exec_number(const struct exec_run *r) { return r->op; }

const char *exec_name(const struct exec_run *r) { return r->call.name; }
