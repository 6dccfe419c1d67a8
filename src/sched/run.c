/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting a run, looking at it, waiting for it. */
#include <errno.h>
#include <string.h>

#include "sched/private.h"

#define HOLD_POLLS 2000u       /* of the own engine under one claim, while nothing comes */
#define FAST_POLLS 200u        /* of them without a pause */
#define TESTS_A_LOOK 4096u     /* sched_test() calls between two looks at the peers */
#define HELP_EVERY 64u         /* polls without progress between two tries to drive others */

static uint32_t phase_of(const struct sched_inst *s)
{
	return atomic_load_explicit(&s->body->phase,
				    memory_order_acquire); /* partner: run_finish */
}

/* ---- start ------------------------------------------------------------------------------- */

static void reset(struct sched_inst *s)
{
	const struct goal_op *ops = goal_ops_const(s->block);
	uint32_t n = s->block->op_count;
	struct sched_body *b = s->body;

	for (uint32_t i = 0; i < n; i++) {
		s->ops[i].waits = ops[i].requires;
		s->ops[i].state = SCHED_BLOCKED;
	}
	atomic_store_explicit(&b->left, n, memory_order_relaxed);
	if (s->needs_clock)
		b->start_ns = os_now_ns();
	s->noticed = false;
	s->progress_ns = 0;
}

static void push_start(struct sched_driver *d, struct sched_inst *s)
{
	sched_opref head = atomic_load_explicit(&d->e->starts, memory_order_relaxed);

	atomic_store_explicit(&s->body->phase, RUN_GOING, memory_order_relaxed);
	do
		s->body->next_start = head;
	while (!atomic_compare_exchange_weak_explicit(&d->e->starts, &head, opref_of(s->slot, 0),
						      memory_order_release, memory_order_relaxed));
	/* partner: take_starts */
}

/* 0: it may be started now. */
static int prepare(struct sched_inst *s)
{
	const struct sched_driver *d = &s->group->drivers[s->rank];
	uint32_t phase = phase_of(s);

	if (phase == RUN_GOING)
		return -EBUSY;
	if (phase == RUN_FAILED)
		return s->body->error;
	if (base_unlikely(atomic_load_explicit(&d->e->broken, memory_order_relaxed)))
		return -EOWNERDEAD;
	if (!s->noticed)
		run_noticed(s);
	reset(s);
	return 0;
}

int sched_run(struct sched_inst *s)
{
	struct sched_driver *d = &s->group->drivers[s->rank];
	int ret = prepare(s);

	if (ret)
		return ret;
	push_start(d, s);
	engine_drive(d);
	return 0;
}

/* ---- end --------------------------------------------------------------------------------- */

void run_noticed(struct sched_inst *s)
{
	if (s->noticed)
		return;
	s->noticed = true;
	if (base_unlikely(s->times) && phase_of(s) == RUN_DONE)
		profile_run(s);
	if (base_unlikely(s->group->stages))
		stages_sweep(s->group);
}

static void tell_failure(const struct sched_inst *s)
{
	const struct sched_body *b = s->body;
	char op[32] = "";

	if (b->error_op != GOAL_NONE)
		snprintf(op, sizeof op, "operation %u of ", b->error_op);
	if (b->error == -EOWNERDEAD)
		base_log(BASE_LOG_ERROR, "sched",
			 "%s: rank %d (pid %d) of this group of %d has died; %srank %d depends on "
			 "it",
			 s->name, b->error_rank, node_pid(s->group->node, b->error_rank),
			 s->group->size, op, b->error_at);
	else if (b->error == -EPIPE)
		base_log(BASE_LOG_ERROR, "sched",
			 "%s: rank %d has left this group of %d; %srank %d depends on it", s->name,
			 b->error_rank, s->group->size, op, b->error_at);
	else
		base_log(BASE_LOG_ERROR, "sched", "%s: failed at %srank %d: %s (rank %d)", s->name,
			 op, b->error_at, strerror(-b->error), b->error_rank);
}

/* 1, or -errno; the run is over. */
static int result_of(struct sched_inst *s, uint32_t phase)
{
	bool first = !s->noticed;

	if (first && phase == RUN_FAILED) {
		tell_failure(s);
		trouble_settle(s->group);
	}
	run_noticed(s);
	return phase == RUN_FAILED ? s->body->error : 1;
}

/* ---- looking ----------------------------------------------------------------------------- */

/* Whatever this process can do for its own rank, and then for others. */
static bool work_some(struct sched_group *g, bool others)
{
	bool progress = engine_drive(&g->drivers[g->rank]);

	progress |= move_some(g, g->rank);
	for (int k = 1; !progress && k < g->size; k++)
		progress = move_some(g, (g->rank + k) % g->size);
	for (int k = 1; !progress && others && k < g->size; k++)
		progress = engine_drive(&g->drivers[(g->rank + k) % g->size]);
	return progress;
}

int sched_test(struct sched_inst *s)
{
	struct sched_group *g = s->group;
	uint32_t phase = phase_of(s);

	if (phase == RUN_GOING) {
		work_some(g, false);
		if (atomic_fetch_add_explicit(&g->tests, 1, memory_order_relaxed) % TESTS_A_LOOK ==
		    TESTS_A_LOOK - 1)
			trouble_look(g);
		phase = phase_of(s);
	}
	return phase == RUN_GOING ? 0 : result_of(s, phase);
}

/* ---- waiting ----------------------------------------------------------------------------- */

/* Has another rank work that this process could perhaps take a piece of? Asked again and again, of
 * one after the other. */
static bool others_have_jobs(const struct sched_group *g, uint32_t n)
{
	int other = g->size > 1 ? (g->rank + 1 + (int)(n % (uint32_t)(g->size - 1))) % g->size
				: g->rank;

	return atomic_load_explicit(&g->drivers[other].e->jobs, memory_order_relaxed);
}

/* Poll the own engine for a while, under one claim, which is given back. True: something was done.
 */
static bool hold(struct sched_inst *s, struct sched_driver *d)
{
	uint32_t polls = node_is_oversubscribed(d->g->node) ? 1 : HOLD_POLLS;
	bool progress = false;

	for (uint32_t n = 0; phase_of(s) == RUN_GOING && n < polls; n++) {
		if (engine_step(d)) {
			progress = true;
			n = 0;
		}
		if (phase_of(s) != RUN_GOING || d->e->open_jobs)
			break;
		if (n < FAST_POLLS)
			continue;
		/* what this rank has announced is copied by two, if the sender does not stand by */
		if (others_have_jobs(d->g, n))
			break;
		engine_ring_all(d);
		os_cpu_relax();
	}
	/* A run that went through has met peers that were awake; one that fell asleep in the very
	 * moment in which it was looked at naps for a millisecond at most. */
	if (phase_of(s) == RUN_GOING)
		engine_ring_all(d);
	engine_release(d);
	return progress;
}

/* Nothing has moved in this run for as long as the user allows. */
static void give_up(struct sched_inst *s)
{
	struct sched_driver *d = &s->group->drivers[s->rank];

	base_log(BASE_LOG_ERROR, "sched", "%s: no progress for %lld ms", s->name,
		 (long long)base_opt.goal_timeout_ms);
	if (!engine_try_claim(d))
		return;
	engine_step(d); /* it may not have been started yet */
	run_fail(d, s,
		 &(struct sched_abort){ s->body->ctx, -ETIMEDOUT, s->rank, s->rank, GOAL_NONE });
	engine_release(d);
}

/* What a run waits for, a line each. */
void run_tell_stuck(const struct sched_inst *s)
{
	char text[2048], *line = text, *end;

	sched_stuck(s, text, sizeof text);
	for (; (end = strchr(line, '\n')) != NULL; line = end + 1)
		base_log(BASE_LOG_ERROR, "sched", "waits: %.*s", (int)(end - line), line);
}

static void check_progress(struct sched_inst *s, uint64_t now)
{
	uint32_t left = atomic_load_explicit(&s->body->left, memory_order_relaxed);

	if (!s->progress_ns || left != s->progress_left) {
		s->progress_ns = now;
		s->progress_left = left;
	} else if (base_opt.goal_timeout_ms &&
		   now - s->progress_ns > (uint64_t)base_opt.goal_timeout_ms * 1000000) {
		give_up(s);
	}
}

int sched_wait(struct sched_inst *s, uint64_t timeout_ns)
{
	struct sched_group *g = s->group;
	struct sched_driver *d = &g->drivers[s->rank];
	uint64_t give_up_ns = 0, now;
	struct node_wait w;
	uint32_t idle = 0;
	bool works = false;
	int ret = 0;

	node_wait_init(&w);
	while (!ret && phase_of(s) == RUN_GOING) {
		/* not between two pieces of others' work */
		bool progress = !works && engine_try_claim(d) && hold(s, d);

		if (phase_of(s) != RUN_GOING)
			break;
		works = work_some(g, ++idle % HELP_EVERY == 0 || w.armed);
		progress |= works;
		if (progress) {
			node_wait_progress(g->node, &w);
			continue;
		}
		if (node_wait(g->node, &w))
			trouble_look(g);
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
	if (ret)
		return ret;
	ret = result_of(s, phase_of(s));
	return ret > 0 ? 0 : ret;
}

/*
 * Nothing stands between the first message and looking for the answer that would wait for the
 * message to have reached the other core: neither a fence nor an atomic read-modify-write.
 */
int sched_execute(struct sched_inst *s, uint64_t timeout_ns)
{
	struct sched_driver *d = &s->group->drivers[s->rank];
	int ret = prepare(s);

	if (ret)
		return ret;
	if (engine_try_claim(d)) {
		atomic_store_explicit(&s->body->phase, RUN_GOING, memory_order_relaxed);
		engine_start(d, s);
		hold(s, d);
	} else {
		push_start(d, s);
	}
	if (base_likely(phase_of(s) == RUN_DONE)) {
		run_noticed(s);
		return 0;
	}
	return sched_wait(s, timeout_ns);
}

int sched_cancel(struct sched_inst *s)
{
	struct sched_driver *d = &s->group->drivers[s->rank];

	while (phase_of(s) == RUN_GOING) {
		if (!engine_try_claim(d)) {
			trouble_look(s->group);
			continue;
		}
		engine_step(d); /* it may not have been started yet */
		run_fail(d, s,
			 &(struct sched_abort){ s->body->ctx, -ECANCELED, s->rank, s->rank,
						GOAL_NONE });
		engine_release(d);
	}
	return phase_of(s) == RUN_FAILED ? 0 : -EALREADY;
}

/* ---- questions --------------------------------------------------------------------------- */

void sched_failure(const struct sched_inst *s, struct sched_failure *out)
{
	const struct sched_body *b = s->body;

	*out = (struct sched_failure){ b->error, b->error_rank, b->error_at, b->error_op };
}

static size_t say_rank(char *buf, size_t cap, uint32_t n)
{
	return (size_t)(n == GOAL_ANY ? snprintf(buf, cap, "any") : snprintf(buf, cap, "%u", n));
}

size_t sched_stuck(const struct sched_inst *s, char *buf, size_t cap)
{
	static const char *const words[] = {
#define X(id, word, operands, help) word,
		GOAL_OPS(X)
#undef X
	};
	static const char *const states[] = { "",           "may start",    "ring full",
					      "no message", "not received", "no job free",
					      "copying",    "computing",    "" };
	size_t n = 0;

	if (cap)
		buf[0] = 0;
	for (uint32_t i = 0; i < s->block->op_count; i++) {
		const struct goal_op *op = inst_goal(s, i);
		uint8_t state = s->ops[i].state;
		char peer[16], tag[16];

		if (state == SCHED_BLOCKED || state >= SCHED_ENDED)
			continue;
		say_rank(peer, sizeof peer, op->peer);
		say_rank(tag, sizeof tag, op->tag);
		n += (size_t)snprintf(
			n < cap ? buf + n : NULL, n < cap ? cap - n : 0,
			goal_is_transfer(op) ? "rank %d op %u: %s %llub %s %s tag %s: %s\n"
					     : "rank %d op %u: %s\n",
			s->rank, i, words[op->type], (unsigned long long)op->bytes,
			op->type == GOAL_SEND ? "to" : "from", peer, tag, states[state]);
	}
	return n;
}

const struct sched_times *sched_times(const struct sched_inst *s) { return s->times; }
