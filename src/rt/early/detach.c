/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leaving a collective while its data is still moving: whether, with which memory guarded, and who
 * moves the rest. Before a call is left, everything is in place that cannot be guarded.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rt/private.h"

/* ---- what to guard ----------------------------------------------------------------------- */

/* What a run still reads or writes: the hull of its ranges of one kind, all in one buffer, of which
 * every byte belongs to the collective. */
struct hull {
	uintptr_t lo, hi;             /* every byte */
	uintptr_t need_lo,
		need_hi; /* those of them that must be guarded, or in place: a sender's bytes
			  * outside its mapped pages have been published with its slot */
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

/* One buffer of which a part is sent and others come: where the two meet in a page, it is not to be
 * read either. */
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

/* Bytes that no guard covers must be in place. */
static bool is_rest_in_place(struct exec_run *r, const struct hull *h)
{
	return (h->need_lo >= h->guard_lo || exec_is_there(r, h->need_lo, h->guard_lo)) &&
	       (h->need_hi <= h->guard_hi || exec_is_there(r, h->guard_hi, h->need_hi));
}

/*
 * A touch by another thread may come while the second is armed: all is written before the first.
 * -errno when none could be closed; *out_all: all could.
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

/* ---- leaving ----------------------------------------------------------------------------- */

/* Of this thread; a system call once. In a forked child nothing is left. */
static int own_tid(void)
{
	static __thread int tid;

	if (base_unlikely(!tid))
		tid = (int)syscall(SYS_gettid);
	return tid;
}

/* They are released when the operation is retired. */
static void move_descs(struct pending *p, const struct leave *l)
{
	for (int i = 0; i < 2; i++) {
		if (!l->descs[i])
			continue;
		p->descs[i] = *l->descs[i];
		*l->descs[i] = (struct region_desc){ 0 };
	}
}

/*
 * Must every partner have come before a call returns early? A partner that has not come may wait for
 * a message of this process. With several threads, another thread that would send that message may
 * wait for the operation; without progress in fault handlers, nobody sends it during a touch.
 */
static bool needs_all_partners(const struct rt_comm *c)
{
	return c->thread_multiple || !base_opt.rt_fault_progress;
}

/* 1: left, 0: not possible or not worth it, the caller waits; -errno. */
static int leave(struct rt_comm *c, struct exec_run *r, const struct leave *l,
		 struct policy_site *site,
		 enum progress_action progress)
{
	struct hulls hulls = { 0 };
	bool all = false;
	struct pending *p;
	int ret;

	exec_each_range(r, add_range, &hulls);
	merge_shared_pages(&hulls);
	for (int i = 0; i < PENDING_RANGES; i++) {
		if (hulls.of[i].lo >= hulls.of[i].hi)
			continue;
		while (!is_rest_in_place(r, &hulls.of[i])) {
			ret = exec_settle(r, EXEC_COPY_ALL, needs_all_partners(c), 0);
			if (ret != EXEC_MAY_LEAVE)
				return ret < 0 ? ret : 0;
			if (!exec_is_matched(r) || exec_is_over(r))
				return 0; /* a late partner, and bytes that cannot be guarded */
		}
	}
	/* from arming to leaving no handler of the program may run: it would wait for this thread
	 */
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
		p->copy_ns = exec_is_matched(r) ? copy_ns(l->copy_bytes) : 0;
		atomic_store_explicit(&p->refs, 1,
				      memory_order_relaxed); /* until it is all set up */
		exec_leave(r); /* a thread of the program's may touch what is closed at once */
		ret = arm_all(p, &hulls, &all);
	}
	if (ret) {
		if (p) {
			exec_stay(r);
			pending_free(p);
		}
		sud_exit();
		trace_early_reason("its memory could not be guarded");
		base_log(BASE_LOG_DEBUG, "rt", "%s: cannot guard its memory: %s", l->name,
			 strerror(-ret));
		return 0;
	}
	move_descs(p, l);
	pending_link(p);
	/* nobody retires it before the channel has it: a reference */
	if (progress == PROGRESS_FEED)
		offload_feed(r, p);
	pending_unref(p);
	sud_exit();
	if (!all) /* somebody may be waiting for the part that is closed: it ends as one that was
		     left */
		pending_complete_run(r);
	base_count(BASE_CTR_EARLY, 1);
	return 1;
}

static void explain(const struct leave *l, const struct policy_detach_choice *choice)
{
	static const char *const words[] = { "completes before it returns", "returns early",
					     "returns early if a partner is late" };

	base_log(BASE_LOG_DEBUG, "rt", "%s of %llu bytes%s %s: %s", l->name,
		 (unsigned long long)l->bytes, l->is_root ? " (root)" : "", words[choice->how],
		 choice->reason);
}

/* Who would do what takes so long? */
static void add_movers(struct rt_comm *c, const struct leave *l, struct policy_detach_facts *f,
			    struct progress_facts *p)
{
	*p = (struct progress_facts){ .asker = PROGRESS_DETACHER,
				      .work_ns = f->copy_ns,
				      .has_waiters = f->waited_ns };
	offload_facts(c, l->movers, p);
	f->has_process = p->has_process;
	f->has_mover = progress_has_mover(progress_decide(p).action);
	p->is_forced = f->mode == BASE_EARLY_ON;
}

/* Only when they have come it is known that what some ranks bring is where they get the result. */
static bool is_for_ranks_only(struct exec_run *r, const struct leave *l)
{
	return l->movers == DETACH_TO_WORKER && exec_is_matched(r) && !exec_work_bytes(r) &&
	       !exec_is_taken_up(r);
}

/* Asked last: from the first time on system calls are dearer. */
static bool is_guard_ready(struct policy_detach_facts *f, struct policy_detach_choice *choice)
{
	f->guard_is_ready = guard_is_ready();
	if (!f->guard_is_ready) {
		guard_cancel_ready();
		policy_detach(f, choice);
		trace_early_reason(choice->reason);
	}
	return f->guard_is_ready;
}

int detach_or_wait(struct rt_comm *c, struct exec_run *r, const struct leave *l, bool *out_detached)
{
	struct policy_detach_facts f = { .mode = base_opt.rt_early,
					.wait_us = base_opt.rt_early_wait_us,
					.bytes = l->bytes,
					.min_bytes = base_opt.rt_early_min_bytes,
					.guard_is_ready = true };
	struct policy_detach_choice choice;
	enum progress_action progress;
	struct progress_facts movers;
	struct policy_site *site;
	int ret;

	*out_detached = false;
	if (f.mode == BASE_EARLY_OFF || f.bytes < f.min_bytes) {
		trace_early_reason(f.mode == BASE_EARLY_OFF ? "SLUICE_EARLY is off" :
						       "shorter than SLUICE_EARLY_MIN");
		return exec_wait(r);
	}
	site = policy_site(l->site, l->is_root, l->bytes);
	f.shares_cpus = node_is_oversubscribed(c->group);
	f.copy_ns = copy_ns(l->copy_bytes);
	f.partner_copy_ns = copy_ns(l->partner_copy_bytes);
	f.waited_ns = exec_waited_for_ns(r);
	add_movers(c, l, &f, &movers);
	f.site_may_try = f.mode == BASE_EARLY_ON || policy_site_may_try(site);
	policy_detach(&f, &choice);
	trace_early_reason(choice.reason);
	if (base_opt.log_level >= BASE_LOG_DEBUG)
		explain(l, &choice);
	if (choice.how == DETACH_NEVER ||
	    (choice.how == DETACH_NOW && !is_guard_ready(&f, &choice))) {
		base_count(BASE_CTR_EARLY_NOT, 1);
		return exec_wait(r);
	}
	ret = exec_settle(r,
			  choice.how == DETACH_IF_LATE ? EXEC_COPY_ALL
			  : f.has_mover             ? EXEC_COPY_NOTHING
						    : EXEC_COPY_OWN,
			  needs_all_partners(c), choice.wait_ns);
	if (ret == EXEC_MAY_LEAVE && f.has_process && f.mode != BASE_EARLY_ON &&
	    is_for_ranks_only(r, l)) {
		trace_early_reason("the worker process cannot do what a rank gets in place");
	} else if (ret == EXEC_MAY_LEAVE &&
		   (choice.how == DETACH_NOW || is_guard_ready(&f, &choice))) {
		/* it may begin while this rank closes its memory */
		progress = offload_announce(c, r, &movers);
		ret = leave(c, r, l, site, progress);
		if (ret > 0) {
			trace_mark_early();
			*out_detached = true;
			return 0;
		}
	}
	if (choice.how == DETACH_NOW || ret == EXEC_MAY_LEAVE)
		guard_cancel_ready();
	/* an error is found again, and handled, by waiting */
	return exec_wait(r);
}
