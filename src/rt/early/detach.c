/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Detaching: a collective returns while its data still moves.
 *
 *   detach_or_wait:  collect the situation -> policy_detach() -> settle -> detach, or wait
 *   detach:          bytes that no guard covers are in place -> guard armed -> movers notified
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rt/private.h"

/* ---- what to guard ----------------------------------------------------------------------- */

/* The memory that a run still reads, or still writes: the hull of its ranges, all in one buffer, of
 * which every byte belongs to the collective. */
struct hull {
	uintptr_t lo, hi;             /* all bytes */
	uintptr_t need_lo, need_hi;   /* bytes that must be guarded or in place: a sender's bytes
					 outside its mapped pages were published with its slot */
	uintptr_t guard_lo, guard_hi; /* whole pages that may be closed */
};
struct hulls { struct hull of[PENDING_RANGES]; }; /* [0] read, [1] written */

static void add_range(void *arg, const struct region_desc *d, uint64_t off, uint64_t bytes,
		      bool is_written)
{
	struct hull *h = &((struct hulls *)arg)->of[is_written];
	uintptr_t lo = d->addr + off, hi = lo + bytes;

	if (h->lo < h->hi) {
		lo = base_min_u64(h->lo, lo);
		hi = base_max_u64(h->hi, hi);
	}
	h->lo = lo;
	h->hi = hi;
	h->need_lo = is_written ? lo : base_max_u64(lo, d->addr + d->head);
	h->need_hi = is_written ? hi : base_min_u64(hi, d->addr + d->bytes - d->tail);
	if (!(d->flags & REGION_DESC_MAPPED))
		return;
	/* a page in which other bytes of the same buffer lie may be closed too */
	region_desc_pages(d, &h->guard_lo, &h->guard_hi);
	h->guard_lo = base_max_u64(h->guard_lo, base_round_down(lo, OS_PAGE));
	h->guard_hi = base_min_u64(h->guard_hi, base_round_up(hi, OS_PAGE));
}

/* A page that holds both sent and received bytes of one buffer is closed to reads, too. */
static void merge_shared_pages(struct hulls *hulls)
{
	struct hull *r = &hulls->of[0], *w = &hulls->of[1];

	if (r->guard_lo >= w->guard_hi || w->guard_lo >= r->guard_hi)
		return;
	*w = (struct hull){
		.lo = base_min_u64(r->lo, w->lo),
		.hi = base_max_u64(r->hi, w->hi),
		.need_lo = base_min_u64(r->need_lo, w->need_lo),
		.need_hi = base_max_u64(r->need_hi, w->need_hi),
		.guard_lo = base_min_u64(r->guard_lo, w->guard_lo),
		.guard_hi = base_max_u64(r->guard_hi, w->guard_hi),
	};
	*r = (struct hull){ 0 };
}

/* Are the bytes in place that no guard covers? */
static bool is_rest_in_place(struct exec_run *r, const struct hull *h)
{
	return (h->need_lo >= h->guard_lo || exec_is_range_complete(r, h->need_lo, h->guard_lo)) &&
	       (h->need_hi <= h->guard_hi || exec_is_range_complete(r, h->guard_hi, h->need_hi));
}

/*
 * Arms the guard over both hulls. Another thread may touch the first range while the second is
 * armed, so that *p is complete before. Returns: 0, or -errno when no range could be closed;
 * *out_all: every range is closed.
 */
static int arm_all(struct pending *p, const struct hulls *hulls, bool *out_all)
{
	uint32_t armed = 0;
	int ret = 0;

	for (int i = 0; i < PENDING_RANGES; i++) {
		const struct hull *h = &hulls->of[i];

		if (h->lo >= h->hi)
			continue;
		p->lo[i] = h->lo;
		p->hi[i] = h->hi;
		if (h->guard_lo < h->guard_hi)
			p->ranges[p->range_count++] = (struct guard_range){
				.start = h->guard_lo,
				.end = h->guard_hi,
				.access = i ? GUARD_NO_ACCESS : GUARD_READ_ONLY,
				.arg = p,
			};
	}
	while (armed < p->range_count && !ret) {
		ret = guard_arm(&p->ranges[armed]);
		armed += !ret;
	}
	*out_all = armed == p->range_count;
	return armed || *out_all ? 0 : ret;
}

/* ---- detaching --------------------------------------------------------------------------- */

/* Cached: a system call once per thread. A forked child has no pending operation. */
static int own_tid(void)
{
	static __thread int tid;

	if (base_unlikely(!tid))
		tid = (int)syscall(SYS_gettid);
	return tid;
}

/* Hands the descriptors to the operation, which releases them when it is retired. */
static void move_descs(struct pending *p, const struct detach *d)
{
	for (int i = 0; i < 2; i++) {
		if (!d->descs[i])
			continue;
		p->descs[i] = *d->descs[i];
		*d->descs[i] = (struct region_desc){ 0 };
	}
}

/*
 * Must every partner have come before a call returns early? A partner that has not come may wait
 * for a message of this process. With several threads, another thread that would send that message
 * may wait for the operation; without progress in fault handlers, nobody sends it during a touch.
 */
static bool needs_all_partners(const struct rt_comm *c)
{
	return c->thread_multiple || !base_opt.fault_progress ||
	       atomic_load_explicit(&rt_expects_threads, memory_order_relaxed);
}

/* Tells the trace what kept a call that was to return early, from the result of exec_settle(). */
static void explain_stay(int settled)
{
	trace_early_reason(settled == EXEC_NEEDED ? "peers do not map all of its memory" :
			   settled == EXEC_ENDED  ? "its data was in place by then" :
			   "a partner is late, and its memory shares a page with other data");
}

/*
 * Waits until the bytes are in place that no guard can cover. Returns: 1 they are; 0 the caller has
 * to wait: a partner is late; -errno.
 */
static int settle_rest(struct rt_comm *c, struct exec_run *r, const struct hulls *hulls)
{
	for (int i = 0; i < PENDING_RANGES; i++) {
		if (hulls->of[i].lo >= hulls->of[i].hi)
			continue;
		while (!is_rest_in_place(r, &hulls->of[i])) {
			int ret = exec_settle(r, EXEC_COPY_ALL, needs_all_partners(c), 0);

			if (ret < 0)
				return ret;
			if (ret != EXEC_MAY_DETACH || !exec_is_matched(r) || exec_is_complete(r)) {
				explain_stay(ret == EXEC_MAY_DETACH && exec_is_complete(r)
						     ? EXEC_ENDED
						     : ret);
				return 0;
			}
		}
	}
	return 1;
}

static int refuse(const struct detach *d, int error)
{
	trace_early_reason("the buffer could not be guarded");
	base_log(BASE_LOG_DEBUG, "rt", "%s: cannot guard its memory: %s", d->name,
		 strerror(-error));
	return 0;
}

/* Returns: 1 detached; 0 not possible, the caller waits; -errno. */
static int detach(struct rt_comm *c, struct exec_run *r, const struct detach *d,
		  struct policy_site *site, enum progress_action progress)
{
	struct hulls hulls = { 0 };
	bool all = false;
	struct pending *p;
	int ret;

	exec_each_range(r, add_range, &hulls);
	merge_shared_pages(&hulls);
	ret = settle_rest(c, r, &hulls);
	if (ret <= 0)
		return ret;
	/* a handler of the program that touches the memory would wait for this thread */
	sud_enter();
	p = pending_alloc();
	ret = -ENOSPC;
	if (p) {
		p->run = r;
		p->comm = c;
		p->site = site;
		p->owner_tid = own_tid();
		p->trace = trace_call_name();
		p->detached_ns = os_now_ns();
		p->copy_ns = exec_is_matched(r) ? os_copy_ns(d->copy_bytes) : 0;
		atomic_store_explicit(&p->refs, 1, memory_order_relaxed); /* of this thread */
		exec_detach(r); /* before arming: another thread may touch closed memory at once */
		ret = arm_all(p, &hulls, &all);
	}
	if (ret) {
		if (p) {
			exec_reattach(r);
			pending_free(p);
		}
		sud_exit();
		return refuse(d, ret);
	}
	move_descs(p, d);
	pending_link(p);
	/* the reference keeps the operation until its channel has the transfers */
	if (progress == PROGRESS_FEED)
		offload_feed(r, p);
	pending_unref(p);
	sud_exit();
	if (!all) /* a thread may wait for the closed part: complete it as a pending operation */
		pending_complete_run(r);
	base_count(BASE_CTR_EARLY, 1);
	return 1;
}

/* ---- whether ----------------------------------------------------------------------------- */

/*
 * May the pages of the buffer be closed? The program may use the bytes between the parts, for a
 * message that arrives, say. Parts in another order than that of the ranks count as gaps, and so do
 * all parts with layouts.
 */
static bool may_be_closed(const struct buffer *b)
{
	uint64_t end = 0;

	for (int i = 0; i < b->side->count; i++) {
		const struct coll_part *p = &b->side->parts[i];

		if (p->bytes && p->off > end)
			return false;
		end = p->bytes ? base_max_u64(end, p->off + p->bytes) : end;
	}
	return !buffer_is_copy(b) && !b->is_typed;
}

struct detach detach_describe(const struct rt_comm *c, const struct coll_call *call,
			      const struct buffers *b, bool in_one_run)
{
	uint64_t sent = side_bytes(&call->send), received = side_bytes(&call->recv),
		 bytes = base_max_u64(sent, received);
	const struct coll_side *larger = received >= sent ? &call->recv : &call->send;

	return (struct detach){
		.name = call->name,
		.site = call->site,
		.is_root = c->rank == call->root,
		.bytes = bytes,
		.copy_bytes = bytes,
		.partner_copy_bytes = larger->count ? bytes / (uint64_t)larger->count : 0,
		/* a trial takes the whole time of its calls */
		.is_allowed = in_one_run && !c->trial.now && may_be_closed(&b->send) &&
			      may_be_closed(&b->recv),
	};
}

/* All facts that decide how a call ends, and the decision. */
struct situation {
	struct policy_detach_facts facts;
	struct progress_facts movers;
	struct policy_site *site;
	struct policy_detach_choice choice;
};

static bool is_forced(const struct situation *s) { return s->facts.mode == BASE_EARLY_ON; }

/* Facts about the run, then about movers, then about the call site. */
static void situation_collect(struct rt_comm *c, struct exec_run *r, const struct detach *d,
			      struct situation *s)
{
	struct policy_detach_facts *f = &s->facts;

	f->shares_cpus = c->is_crowded;
	f->copy_ns = os_copy_ns(d->copy_bytes);
	f->partner_copy_ns = os_copy_ns(d->partner_copy_bytes);
	f->waited_ns = exec_waited_for_ns(r);
	s->movers = (struct progress_facts){ .work_ns = f->copy_ns, .has_waiters = f->waited_ns };
	offload_facts(c, d->movers, &s->movers);
	f->has_process = s->movers.has_process;
	f->has_mover = progress_decide(&s->movers) != PROGRESS_NOTHING;
	s->movers.is_forced = is_forced(s);
	s->site = policy_site(d->site, d->is_root, d->bytes);
	f->site_may_try = is_forced(s) || policy_site_may_try(s->site);
}

static void situation_decide(const struct detach *d, struct situation *s)
{
	static const char *const words[] = { "completes before it returns", "returns early",
					     "returns early if a partner is late" };

	policy_detach(&s->facts, &s->choice);
	trace_early_reason(s->choice.reason);
	if (base_opt.log_level >= BASE_LOG_DEBUG)
		base_log(BASE_LOG_DEBUG, "rt", "%s of %llu bytes%s %s: %s", d->name,
			 (unsigned long long)d->bytes, d->is_root ? " (root)" : "",
			 words[s->choice.how], s->choice.reason);
}

/* Collects the last fact late: to open a guard takes 0.3 ms, and once it is ready, system calls of
 * the program cost more. */
static bool is_guard_ready(struct situation *s)
{
	s->facts.guard_is_ready = !pending_init() && guard_is_ready();
	if (!s->facts.guard_is_ready) {
		guard_cancel_ready();
		policy_detach(&s->facts, &s->choice);
		trace_early_reason(s->choice.reason);
	}
	return s->facts.guard_is_ready;
}

/* A partner reduces in place, which is known once all partners have published. */
static bool is_for_ranks_only(struct exec_run *r, const struct detach *d, const struct situation *s)
{
	return s->facts.has_process && !is_forced(s) && d->movers == DETACH_TO_WORKER &&
	       exec_is_matched(r) && !exec_work_bytes(r) && !exec_is_claimed(r);
}

/* Returns: why GPUs forbid to close the memory of a run, or NULL. Guards stop CPUs only. */
static const char *gpu_refusal(const struct exec_run *r)
{
	struct hulls hulls = { 0 };

	if (os_gpu_reads_pageable())
		return "a GPU reads the program's memory, and no guard can hold it";
	exec_each_range(r, add_range, &hulls);
	for (int i = 0; i < PENDING_RANGES; i++)
		if (os_gpu_is_registered(hulls.of[i].lo, hulls.of[i].hi))
			return "the buffer is registered with a GPU, which no guard can hold";
	return NULL;
}

/* The run may detach. Returns: as detach(). */
static int try_detach(struct rt_comm *c, struct exec_run *r, const struct detach *d,
		      struct situation *s)
{
	enum progress_action progress;

	if (is_for_ranks_only(r, d, s)) {
		trace_early_reason("the worker process cannot produce a result in place");
		return 0;
	}
	if (s->choice.how != DETACH_NOW && !is_guard_ready(s))
		return 0;
	/* movers may begin while this rank closes its memory */
	progress = offload_announce(c, r, &s->movers);
	return detach(c, r, d, s->site, progress);
}

int detach_or_wait(struct rt_comm *c, struct exec_run *r, const struct detach *d)
{
	struct situation s = { .facts = { .mode = base_opt.early,
					  .wait_us = base_opt.early_wait_us,
					  .bytes = d->bytes,
					  .min_bytes = base_opt.early_min_bytes,
					  .guard_is_ready = true } };
	const char *gpu;
	int ret;

	if (s.facts.mode == BASE_EARLY_OFF || d->bytes < s.facts.min_bytes) {
		trace_early_reason(s.facts.mode == BASE_EARLY_OFF
					   ? "SLUICE_EARLY is off"
					   : "shorter than SLUICE_EARLY_MIN");
		return exec_wait(r);
	}
	gpu = base_unlikely(os_gpu_is_loaded()) ? gpu_refusal(r) : NULL;
	if (gpu) {
		trace_early_reason(gpu);
		base_log(BASE_LOG_DEBUG, "rt", "%s completes before it returns: %s", d->name, gpu);
		base_count(BASE_CTR_EARLY_NOT, 1);
		return exec_wait(r);
	}
	situation_collect(c, r, d, &s);
	situation_decide(d, &s);
	if (s.choice.how == DETACH_NEVER || (s.choice.how == DETACH_NOW && !is_guard_ready(&s))) {
		base_count(BASE_CTR_EARLY_NOT, 1);
		return exec_wait(r);
	}
	ret = exec_settle(r,
			  s.choice.how == DETACH_IF_LATE ? EXEC_COPY_ALL
			  : s.facts.has_mover		 ? EXEC_COPY_NOTHING
							 : EXEC_COPY_OWN,
			  needs_all_partners(c), s.choice.wait_ns);
	if (ret == EXEC_MAY_DETACH && try_detach(c, r, d, &s) > 0) {
		trace_mark_early();
		return 0;
	}
	if (ret == EXEC_NEEDED || (ret == EXEC_ENDED && s.choice.how == DETACH_NOW))
		explain_stay(ret);
	if (s.choice.how == DETACH_NOW || ret == EXEC_MAY_DETACH)
		guard_cancel_ready();
	return exec_wait(r); /* finds an error again, and handles it */
}
