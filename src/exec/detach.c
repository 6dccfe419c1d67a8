/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Detached runs: the call has returned, and a channel, a waiting rank, or a thread of this process
 * that touches the memory moves the remaining data. Only the queue of a detached run writes to the
 * run, so any number of threads and signal handlers may call these functions at once.
 */
#include "exec/private.h"

/* ---- may the call return? ---------------------------------------------------------------- */

int exec_settle(struct exec_run *r, enum exec_copy copy, bool all_come, uint64_t wait_ns)
{
	struct node_group *g = r->comm->group;
	uint64_t since_ns = 0;
	struct node_wait w = { 0 };
	enum run_need need;
	int ret;

	for (;;) {
		ret = r->kind->step(r, copy);
		need = r->remaining ? r->kind->need(r, all_come) : NOT_NEEDED;
		if (ret < 0 || !r->remaining || need == NEEDED_ALWAYS)
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
			copy = EXEC_COPY_ALL; /* a rank that must stay helps meanwhile */
		ret = wait_step(r, &w);
		if (ret)
			break;
	}
	node_wait_end(g, &w);
	slot_note_working(r);
	if (ret < 0)
		return ret;
	return !r->remaining ? EXEC_ENDED : need == NOT_NEEDED ? EXEC_MAY_DETACH : EXEC_NEEDED;
}

/* ---- the channel ------------------------------------------------------------------------- */

/* The view of operation i, for the queue. */
static struct xfer_view *view_at(void *arg, uint32_t i)
{
	struct exec_run *r = arg;
	struct exec_op *o = &r->ops[i];

	return o->state == EXEC_MATCHED && o->view.can_move && !transfer_is_claimed(&o->view)
		       ? &o->view
		       : NULL;
}

/* The queue calls it when it has got back all it could post. */
static void channel_idle(void *arg)
{
	struct exec_run *r = arg;

	r->drained(r->drained_arg);
	atomic_store_explicit(&r->in_channel, 0,
			      memory_order_release); /* partner: exec_is_in_channel */
}

/* One queue feeds the transfers of all operations. */
static void feed(struct exec_run *r)
{
	if (!xfer_queue_start(&r->queue, view_at, r->op_count, r->chan, r->depth, channel_idle, r))
		channel_idle(r);
}

static void view_again(struct exec_run *r, enum xfer_view_mode mode)
{
	for (uint32_t i = 0; i < r->op_count; i++) {
		struct exec_op *o = &r->ops[i];
		bool had_edges = o->state == EXEC_MATCHED && o->view.edges_done;
		int ret;

		if (o->state != EXEC_MATCHED)
			continue;
		ret = run_op(r, i)->type == OP_COPY ? match_copy(r, i, mode, &o->view) :
							match_op(r, i, mode, &o->view);
		o->view.edges_done |= had_edges;
		/*
		 * the peer has passed on: later checks find the operation complete; other errors
		 * show up again
		 */
		if (ret)
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
	feed(r);
}

void exec_stop_channel(struct exec_run *r) { xfer_queue_stop(&r->queue); }

void exec_restart_channel(struct exec_run *r)
{
	uint32_t none = 0;

	if (!r->chan || !xfer_queue_is_stopped(&r->queue))
		return;
	if (!atomic_compare_exchange_strong_explicit(&r->in_channel, &none, 1, memory_order_acquire,
						     memory_order_relaxed))
		return; /* the channel still holds fragments: a later touch starts it again */
	xfer_queue_init(&r->queue);
	feed(r);
}

bool exec_is_in_channel(const struct exec_run *r)
{
	return atomic_load_explicit(&r->in_channel,
				    memory_order_acquire); /* partner: channel_idle */
}

uint64_t exec_rescue(struct exec_run *r)
{
	uint64_t now = os_now_ns(), due;

	if (!exec_is_in_channel(r))
		return OS_FOR_EVER;
	xfer_queue_rescue(&r->queue, now);
	due = xfer_queue_due_ns(&r->queue);
	return due > now ? due - now : NODE_STUCK_NS;
}

/* ---- per kind of run -------------------------------------------------------------------- */

void exec_each_range(const struct exec_run *r, exec_visit *visit, void *arg)
{
	r->kind->each_range(r, visit, arg);
}

int exec_advance(struct exec_run *r) { return r->kind->advance(r); }

int exec_fetch(struct exec_run *r, uintptr_t start, uintptr_t end, bool *out_is_complete)
{
	return r->kind->fetch(r, start, end, out_is_complete);
}

unsigned exec_poll(struct exec_run *r, uintptr_t start, uintptr_t end, unsigned facts)
{
	return r->kind->poll(r, start, end, facts);
}

uint64_t exec_work_bytes(const struct exec_run *r) { return r->kind->work_bytes(r); }

/* ---- waiting for a detached run ---------------------------------------------------------- */

void call_peers(struct exec_run *r, struct node_wait *w)
{
	bool is_stuck = node_wait_is_stuck(w);

	for (uint32_t i = 0; is_stuck && i < r->op_count; i++)
		if (transfer_may_be_held(r, i)) /* the peer may be computing */
			node_wake_process(r->comm->group, (int)run_op(r, i)->peer);
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

/* Since when this partner only waits for this run; UINT64_MAX: not idle. */
static uint64_t waits_since_ns(const struct exec_run *r, int rank)
{
	struct exec_slot *s = slot_of(r->comm, rank, r->op);
	uint64_t since = slot_is_published(s, r->op)
				 ? atomic_load_explicit(&s->waits_since_ns, memory_order_relaxed)
				 : 0;

	return since ? since : UINT64_MAX;
}

/* The earliest time of any partner; UINT64_MAX: none waits. */
static uint64_t waited_since_ns(const struct exec_run *r)
{
	uint64_t first = UINT64_MAX;

	for (uint32_t i = 0; i < r->kind->peer_count(r); i++)
		if (r->kind->peer_at(r, i) >= 0)
			first = base_min_u64(first, waits_since_ns(r, r->kind->peer_at(r, i)));
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
	atomic_store_explicit(&r->slot->completed, r->op,
			      memory_order_release); /* partner: slot_is_complete */
	atomic_store_explicit(&r->has_ended, true, memory_order_release); /* partner: exec_begin */
}

uint64_t exec_tag(const struct exec_run *r) { return r->op & XFER_TAG_MASK; }

uint64_t exec_number(const struct exec_run *r) { return r->op; }

const char *exec_name(const struct exec_run *r) { return r->call.name; }
