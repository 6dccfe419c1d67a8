/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs of a schedule: start, test, wait, cancel. */
#include <errno.h>
#include <string.h>

#include "goal/sched/private.h"

#define HOLD_POLLS      500u  /* polls of the own state under one claim without progress */
#define FAST_POLLS      200u  /* the first of these, without a pause */
#define TESTS_PER_CHECK 4096u /* calls of sched_test() between two checks for dead peers */
#define HELP_EVERY      64u   /* polls without progress between two attempts to drive other ranks */
#define WATCH_POLLS     16u   /* polls without progress before this process drives other ranks */
#define STUCK_LINES     16u   /* lines about a run that makes no progress; base_log() writes 20 */

static uint32_t phase_of(const struct sched_inst *s)
{
	return atomic_load_explicit(&s->body->phase,
				    memory_order_acquire); /* partner: run_finish */
}

/* ---- start ------------------------------------------------------------------------------- */

static void push_start(struct sched_driver *d, struct sched_inst *s)
{
	sched_opref head = 0; /* not read first: a driver has its line, which is fetched once so */

	atomic_store_explicit(&s->body->phase, RUN_GOING, memory_order_relaxed);
	do
		s->body->next_start = head;
	while (!atomic_compare_exchange_weak_explicit(&d->st->starts, &head, opref_of(s->slot, 0),
						      memory_order_release, memory_order_relaxed));
	/* partner: pop_starts */
}

/* Returns: 0 when the schedule may be started. */
static int prepare(struct sched_inst *s)
{
	const struct sched_driver *d = &s->group->drivers[s->rank];
	uint32_t phase = phase_of(s);

	if (phase == RUN_GOING)
		return -EBUSY;
	if (phase == RUN_FAILED)
		return s->body->error;
	if (base_unlikely(atomic_load_explicit(&d->st->broken, memory_order_relaxed)))
		return -EOWNERDEAD;
	hook_stop(s->group);
	if (!s->finalized)
		run_finalize(s);
	if (s->needs_clock)
		s->body->start_ns = os_now_ns();
	s->finalized = false;
	s->progress_ns = 0;
	return 0;
}

/* Does the watcher start the run? It has the state of this rank in its cache when it has driven
 * the last one. Memory that it does not map is sent faster by this process. */
static bool is_for_watcher(const struct sched_driver *d, const struct sched_inst *s)
{
	if (!s->is_mapped || atomic_load_explicit(&d->st->refused, memory_order_relaxed))
		return false;
	atomic_thread_fence(memory_order_seq_cst); /* partner: state_unwatch */
	return state_is_watched(s->group);
}

/*
 * Starts a flat run. The rank does not count as computing: nothing waits for its receives but the
 * program's wait. Returns: false when a watcher drives all ranks, or somebody this one.
 */
static bool start_flat(struct sched_driver *d, struct sched_inst *s)
{
	struct sched_group *g = d->g;
	bool is_full;

	if (state_is_watched(g) || !state_try_claim(d))
		return false;
	atomic_store_explicit(&s->body->phase, RUN_GOING, memory_order_relaxed);
	state_start_run(d, s);
	state_wake_peers(d);
	is_full = d->st->backlogged;
	state_release(d);
	atomic_thread_fence(memory_order_seq_cst); /* partners: ask_holder, state_set_computing */
	if (base_unlikely(is_full || atomic_load_explicit(&d->st->again, memory_order_relaxed)) ||
	    state_has_computing_peers(g))
		state_drive_all(g);
	return true;
}

int sched_run(struct sched_inst *s)
{
	struct sched_driver *d = &s->group->drivers[s->rank];
	int ret = prepare(s);

	if (ret)
		return ret;
	hook_ask();
	if (!atomic_load_explicit(s->group->detached, memory_order_relaxed))
		atomic_store_explicit(s->group->detached, 1, memory_order_relaxed);
	if (s->is_flat && start_flat(d, s))
		return 0;
	push_start(d, s);
	state_set_computing(s->group);
	if (is_for_watcher(d, s))
		return 0;
	state_drive(d);
	state_drive_all(s->group);
	return 0;
}

/* ---- end --------------------------------------------------------------------------------- */

void run_finalize(struct sched_inst *s)
{
	if (s->finalized)
		return;
	s->finalized = true;
	if (base_unlikely(s->times) && phase_of(s) == RUN_DONE)
		profile_run(s);
	if (base_unlikely(atomic_load_explicit(&s->group->stages, memory_order_relaxed)))
		stages_sweep(s->group);
}

/* The rank comes from shared memory. */
static int pid_of(const struct sched_group *g, int rank)
{
	return rank >= 0 && rank < g->size ? node_pid(g->node, rank) : 0;
}

static void log_failure(const struct sched_inst *s)
{
	const struct sched_body *b = s->body;
	char op[32] = "";

	if (b->error_op != GOAL_NONE)
		snprintf(op, sizeof op, "operation %u of ", b->error_op);
	if (b->error == -EOWNERDEAD)
		base_log(BASE_LOG_ERROR, "sched",
			 "%s: rank %d (pid %d) of this group of %d has died; %srank %d depends on "
			 "it",
			 s->name, b->error_rank, pid_of(s->group, b->error_rank),
			 s->group->size, op, b->error_at);
	else if (b->error == -EPIPE)
		base_log(BASE_LOG_ERROR, "sched",
			 "%s: rank %d has left this group of %d; %srank %d depends on it", s->name,
			 b->error_rank, s->group->size, op, b->error_at);
	else
		base_log(BASE_LOG_ERROR, "sched", "%s: failed at %srank %d: %s (rank %d)", s->name,
			 op, b->error_at, strerror(-b->error), b->error_rank);
}

/* The result of a run that has ended: 1 or -errno. */
static int result_of(struct sched_inst *s, uint32_t phase)
{
	bool first = !s->finalized;

	if (first && phase == RUN_FAILED) {
		log_failure(s);
		trouble_settle(s->group);
	}
	run_finalize(s);
	return phase == RUN_FAILED ? s->body->error : 1;
}

/* ---- testing ----------------------------------------------------------------------------- */

/* Makes progress for this rank; when there is none to make, for others. */
static bool make_progress(struct sched_group *g, bool others)
{
	bool progress = state_drive(&g->drivers[g->rank]);

	progress |= job_work(g, g->rank);
	for (int k = 1; !progress && k < g->size; k++)
		progress = job_work(g, (g->rank + k) % g->size);
	if (others)
		progress |= state_drive_others(g);
	return progress;
}

int sched_test(struct sched_inst *s)
{
	struct sched_group *g = s->group;
	uint32_t phase = phase_of(s), tests;

	if (phase == RUN_GOING) {
		hook_stop(g);
		make_progress(g, false);
		state_drive_all(g);
		tests = atomic_fetch_add_explicit(&g->tests, 1, memory_order_relaxed);
		if (tests % TESTS_PER_CHECK == TESTS_PER_CHECK - 1)
			trouble_check_peers(g);
		phase = phase_of(s);
	}
	return phase == RUN_GOING ? 0 : result_of(s, phase);
}

/* ---- waiting ----------------------------------------------------------------------------- */

/* Has another rank open jobs? Each call asks one rank, in turn. */
static bool peer_has_jobs(const struct sched_group *g, uint32_t n)
{
	int other = g->size > 1 ? (g->rank + 1 + (int)(n % (uint32_t)(g->size - 1))) % g->size
				: g->rank;

	return atomic_load_explicit(&g->drivers[other].st->jobs, memory_order_relaxed);
}

/* The part of a waiting process in driving other ranks. */
struct duty {
	bool watches; /* this process is the watcher */
	bool useful;  /* another rank had something to do: look at once after each step */
	bool sleeps;  /* this process is about to sleep and must not become the watcher */
	bool stays;   /* without runs, this rank does not count as computing after the call */
};

/* Drives other ranks when that is this process's duty. Returns: true when something was done. */
static bool attend(struct sched_group *g, struct duty *duty)
{
	duty->watches = duty->watches || (!duty->sleeps && state_watch(g, 0));
	duty->useful = duty->watches && state_drive_others(g);
	return duty->useful;
}

static void end_duty(struct sched_group *g, struct duty *duty)
{
	if (duty->watches)
		state_unwatch(g, 0);
	duty->watches = duty->useful = false;
}

/* Polls the own state under the claim that the caller took, and releases it. Returns: true when
 * something was done. */
static bool poll_claimed(struct sched_inst *s, struct sched_driver *d, struct duty *duty)
{
	uint32_t polls = node_is_oversubscribed(d->g->node) ? 1 : HOLD_POLLS;
	bool progress = false;

	for (uint32_t n = 0; phase_of(s) == RUN_GOING && n < polls; n++) {
		if (state_step(d)) {
			progress = true;
			n = 0;
		}
		if (phase_of(s) != RUN_GOING || d->st->open_jobs)
			break;
		if (duty->useful || n % WATCH_POLLS == WATCH_POLLS - 1)
			progress |= attend(d->g, duty);
		/* The owner and a peer copy together. Who sends nothing long does not look at once:
		 * it would take the line away in which the peer is about to write. */
		if (s->sends_long && n % WATCH_POLLS == WATCH_POLLS - 1 &&
		    peer_has_jobs(d->g, n / WATCH_POLLS))
			break;
		if (n < FAST_POLLS && !duty->useful)
			continue;
		if (peer_has_jobs(d->g, n))
			break;
		state_wake_peers(d);
		os_cpu_relax();
	}
	/* A run that ended has exchanged messages with peers that were awake. A peer that fell
	 * asleep at that moment sleeps for a millisecond at most. */
	if (phase_of(s) == RUN_GOING)
		state_wake_peers(d);
	state_release(d);
	return progress;
}

/* The run made no progress for SLUICE_GOAL_TIMEOUT. */
static void time_out(struct sched_inst *s)
{
	struct sched_driver *d = &s->group->drivers[s->rank];

	base_log(BASE_LOG_ERROR, "sched", "%s: no progress for %lld ms", s->name,
		 (long long)base_opt.goal_timeout_ms);
	if (!state_try_claim(d))
		return;
	state_step(d); /* the run may not have been started yet */
	run_fail(d, s,
		 &(struct sched_abort){ s->body->ctx, -ETIMEDOUT, s->rank, s->rank, GOAL_NONE });
	state_release(d);
}

static void check_progress(struct sched_inst *s, uint64_t now)
{
	uint32_t remaining = atomic_load_explicit(&s->body->remaining, memory_order_relaxed);

	if (!s->progress_ns || remaining != s->progress_remaining) {
		s->progress_ns = now;
		s->progress_remaining = remaining;
	} else if (base_opt.goal_timeout_ms &&
		   now - s->progress_ns > (uint64_t)base_opt.goal_timeout_ms * 1000000) {
		time_out(s);
	}
}

static int wait_on_duty(struct sched_inst *s, uint64_t timeout_ns, struct duty *duty)
{
	struct sched_group *g = s->group;
	struct sched_driver *d = &g->drivers[s->rank];
	uint64_t give_up_ns = 0, now;
	struct node_wait w = { 0 };
	uint32_t idle = 0;
	bool works = false;
	int ret = 0;

	while (!ret && phase_of(s) == RUN_GOING) {
		/* not while this process executes others' jobs */
		bool polled = !works && state_try_claim(d);
		bool progress = polled && poll_claimed(s, d, duty);

		if (phase_of(s) != RUN_GOING)
			break;
		works = make_progress(g, ++idle % HELP_EVERY == 0 || w.armed || duty->watches);
		progress |= works;
		if (polled) /* for as long as node_wait() spins */
			node_wait_polled(&w);
		if (progress) {
			node_wait_progress(g->node, &w);
		} else if (node_wait(g->node, &w)) {
			trouble_check_peers(g);
		}
		duty->sleeps = w.armed; /* after the next step */
		if (w.armed) {
			end_duty(g, duty);
			if (atomic_load_explicit(g->detached, memory_order_relaxed)) {
				state_set_computing(g);
				state_cover_timers(g);
			}
		}
		if (idle % HELP_EVERY)
			continue;
		now = os_now_ns();
		check_progress(s, now);
		if (!give_up_ns)
			give_up_ns = timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX;
		if (now > give_up_ns)
			ret = -ETIMEDOUT;
	}
	node_wait_end(g->node, &w);
	return ret;
}

/* Ends a wait: others execute what this process leaves behind. */
static int finish_wait(struct sched_inst *s, int ret, struct duty *duty)
{
	struct sched_group *g = s->group;

	end_duty(g, duty);
	if (!ret)
		ret = result_of(s, phase_of(s));
	if (duty->stays)
		state_clear_computing(g);
	state_drive_all(g);
	return ret > 0 ? 0 : ret;
}

int sched_wait(struct sched_inst *s, uint64_t timeout_ns)
{
	struct duty duty = { .stays = s->is_flat };

	hook_stop(s->group);
	if (!s->is_flat) /* else it ends in some polls, or this process watches after these */
		duty.watches = phase_of(s) == RUN_GOING && state_watch(s->group, 0);
	return finish_wait(s, wait_on_duty(s, timeout_ns, &duty), &duty);
}

/*
 * Between the first message and polling for the reply there is neither a fence nor an atomic
 * read-modify-write: either would wait until the message has reached the other core.
 */
int sched_execute(struct sched_inst *s, uint64_t timeout_ns)
{
	struct sched_driver *d = &s->group->drivers[s->rank];
	struct duty duty = { .stays = true };
	int ret = prepare(s);

	if (ret)
		return ret;
	if (state_try_claim(d)) {
		atomic_store_explicit(&s->body->phase, RUN_GOING, memory_order_relaxed);
		state_start_run(d, s);
		poll_claimed(s, d, &duty);
	} else {
		push_start(d, s);
	}
	if (base_unlikely(phase_of(s) != RUN_DONE))
		ret = wait_on_duty(s, timeout_ns, &duty);
	return finish_wait(s, ret, &duty);
}

int sched_cancel(struct sched_inst *s)
{
	struct sched_driver *d = &s->group->drivers[s->rank];

	if (phase_of(s) != RUN_GOING)
		return -EALREADY;
	while (phase_of(s) == RUN_GOING) {
		if (!state_try_claim(d)) {
			trouble_check_peers(s->group);
			continue;
		}
		state_step(d); /* the run may not have been started yet */
		run_fail(d, s,
			 &(struct sched_abort){ s->body->ctx, -ECANCELED, s->rank, s->rank,
						GOAL_NONE });
		state_release(d);
	}
	state_drive_all(s->group);
	return phase_of(s) == RUN_FAILED ? 0 : -EALREADY;
}

/* ---- questions --------------------------------------------------------------------------- */

void sched_failure(const struct sched_inst *s, struct sched_failure *out)
{
	const struct sched_body *b = s->body;

	*out = (struct sched_failure){ b->error, b->error_rank, b->error_at, b->error_op };
}

static size_t print_rank(char *buf, size_t cap, uint32_t n)
{
	return (size_t)(n == GOAL_ANY ? snprintf(buf, cap, "any") : snprintf(buf, cap, "%u", n));
}

/* Describes operation i. Returns: as snprintf(); 0: it waits for nothing. */
static size_t print_stuck(const struct sched_inst *s, uint32_t i, char *buf, size_t cap)
{
	static const char *const states[] = { "",           "may start",    "ring full",
					      "no message", "not received", "no job free",
					      "copying",    "computing",    "" };
	const struct goal_op *op = inst_goal(s, i);
	uint8_t state = s->ops[i].state;
	char peer[16], tag[16];

	if (state == OP_BLOCKED || state >= OP_ENDED)
		return 0;
	print_rank(peer, sizeof peer, op->peer);
	print_rank(tag, sizeof tag, op->tag);
	return (size_t)snprintf(buf, cap,
				goal_is_transfer(op) ? "rank %d op %u: %s %llub %s %s tag %s: %s\n"
						     : "rank %d op %u: %s\n",
				s->rank, i, goal_op_words[op->type], (unsigned long long)op->bytes,
				op->type == GOAL_SEND ? "to" : "from", peer, tag, states[state]);
}

size_t sched_stuck(const struct sched_inst *s, char *buf, size_t cap)
{
	size_t n = 0;

	if (cap)
		buf[0] = 0;
	for (uint32_t i = 0; i < s->block->op_count; i++)
		n += print_stuck(s, i, n < cap ? buf + n : NULL, n < cap ? cap - n : 0);
	return n;
}

void run_log_stuck(const struct sched_inst *s)
{
	uint32_t count = 0;
	char line[128];

	for (uint32_t i = 0; i < s->block->op_count; i++) {
		size_t n = print_stuck(s, i, line, sizeof line);

		if (n && count++ < STUCK_LINES)
			base_log(BASE_LOG_ERROR, "sched", "waits: %.*s", (int)n - 1, line);
	}
	if (count > STUCK_LINES)
		base_log(BASE_LOG_ERROR, "sched", "waits: and %u more", count - STUCK_LINES);
}

const struct sched_times *sched_times(const struct sched_inst *s) { return s->times; }
