/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission of nonblocking calls, by reuse of buffers and by trials (policy.h). A nonblocking call
 * must not wait for other ranks: all questions to them are deferred to the next blocking collective
 * of the communicator, and the last answers hold until then.
 *
 *   rt_request_admit()  -->  rt_request_started()  -->  rt_poll_add(), rt_poll_end()
 *   begin of the call        its request exists         the program tests it or waits for it
 *
 *   rt_requests_agree()      at a blocking collective: sums the costs of a trial whose calls have
 *                            ended on every rank
 *
 * A trial charges a call with the time inside MPI: of the call, and of the calls that test or wait
 * for its request, host MPI's or Sluice's alike. A call for several timed requests counts for each
 * of them in equal shares. Where a program has several requests of the class at once, the trial is
 * repeated with as many calls of one executor in a row. A communicator runs one trial of
 * nonblocking calls at a time. A request that nobody completes in sight ends the trial without a
 * result.
 *
 * Threads: a communicator's calls start in one thread at a time; any thread may poll.
 */
#include <stdlib.h>
#include <string.h>

#include "base/spin.h"
#include "rt/requests.h"
#include "rt/trials.h"

#define ATTEMPTS_MAX 4  /* blocking collectives at which a trial tries to end */
#define BATCH_MAX    8u
#define QUESTIONS_MAX 64
#define N POLICY_TRIAL_CALLS

static const char *const question = "a question before a collective";

/* ---- timed requests ---------------------------------------------------------------------- */

struct timed_request {
	struct policy_trial_call call;
	bool is_complete;
};

/* Requests of all running trials that are not complete. */
static struct {
	struct base_spin lock; /* also protects the records of running trials */
	struct timed {
		uintptr_t handle;
		uint32_t serial;
		struct requests_trial *trial;
		struct timed_request *request;
	} of[N * BATCH_MAX];
	uint32_t n, serial;
} timed;

_Atomic uint64_t rt_timed_handles;

static uint64_t bit_of(uintptr_t handle)
{
	return 1ull << ((uint64_t)handle * 0x9e3779b97f4a7c15u >> 58);
}

static void update_handles_locked(void)
{
	uint64_t bits = 0;

	for (uint32_t i = 0; i < timed.n; i++)
		bits |= bit_of(timed.of[i].handle);
	atomic_store_explicit(&rt_timed_handles, bits, memory_order_relaxed);
}

static void remove_locked(uint32_t i)
{
	timed.of[i] = timed.of[--timed.n];
	update_handles_locked();
}

void rt_request_started(struct rt_comm *c, uintptr_t handle)
{
	struct requests_trial *t = &c->requests_trial;
	struct timed_request *r = t->now;

	t->now = NULL;
	r->call.start_ns = trials_now_ns() - r->call.begin_ns;
	base_spin_lock(&timed.lock);
	if (handle && timed.n < BASE_ARRAY_LEN(timed.of)) {
		timed.of[timed.n++] = (struct timed){ handle, ++timed.serial, t, r };
		t->pending++;
		update_handles_locked();
	}
	base_spin_unlock(&timed.lock);
}

static bool has_polled(const struct rt_poll *p, uint32_t serial)
{
	for (int i = 0; i < p->n; i++)
		if (p->of[i].serial == serial)
			return true;
	return false;
}

void rt_poll_add(struct rt_poll *p, int index, uintptr_t handle)
{
	if (!(atomic_load_explicit(&rt_timed_handles, memory_order_relaxed) & bit_of(handle)) ||
	    p->n == RT_POLL_MAX)
		return;
	base_spin_lock(&timed.lock);
	for (uint32_t i = 0; i < timed.n; i++) {
		const struct timed *t = &timed.of[i];

		/* a host MPI may give equal handles to several complete requests */
		if (t->handle == handle && !has_polled(p, t->serial)) {
			p->begin_ns = p->n ? p->begin_ns : trials_now_ns();
			p->of[p->n].index = index;
			p->of[p->n].handle = handle;
			p->of[p->n++].serial = t->serial;
			break;
		}
	}
	base_spin_unlock(&timed.lock);
}

static void note_poll_locked(uint32_t i, uint64_t begin_ns, uint64_t end_ns, uint64_t share_ns,
			     bool is_complete)
{
	struct timed_request *r = timed.of[i].request;

	if (!r->call.polled_at_ns)
		r->call.polled_at_ns = begin_ns;
	r->call.polled_ns += share_ns;
	r->call.end_ns = end_ns;
	if (!is_complete)
		return;
	if (base_fault(r->call.is_of_sluice ? "slow_sluice" : "slow_host"))
		r->call.start_ns += 1000000000;
	r->is_complete = true;
	timed.of[i].trial->pending--;
	remove_locked(i);
}

void rt_poll_end(struct rt_poll *p, int i, bool is_complete)
{
	if (!p->end_ns)
		p->end_ns = trials_now_ns();
	base_spin_lock(&timed.lock);
	for (uint32_t k = 0; k < timed.n; k++)
		if (timed.of[k].serial == p->of[i].serial) {
			note_poll_locked(k, p->begin_ns, p->end_ns,
					 (p->end_ns - p->begin_ns) / (uint64_t)p->n, is_complete);
			break;
		}
	base_spin_unlock(&timed.lock);
}

/* ---- the trial --------------------------------------------------------------------------- */

static bool is_full(const struct policy_trial *t)
{
	return t->is_running && t->calls >= N * policy_trial_batch(t);
}

static bool trial_is_full(const struct rt_comm *c)
{
	return c->requests_trial.of && is_full(&c->requests_trial.of->trial);
}

/* Frees the resources of the running trial. */
static void end(struct rt_comm *c)
{
	struct requests_trial *t = &c->requests_trial;

	base_spin_lock(&timed.lock);
	for (uint32_t i = timed.n; i-- > 0;)
		if (timed.of[i].trial == t)
			timed.of[i] = timed.of[--timed.n];
	update_handles_locked();
	base_spin_unlock(&timed.lock);
	t->of->trial.is_running = false;
	free(t->requests);
	*t = (struct requests_trial){ 0 };
	rt_sync_unref();
}

static bool begin(struct rt_comm *c, struct call_class *k)
{
	struct requests_trial *t = &c->requests_trial;

	if (t->of && (trial_is_full(c) || ++t->waiting <= TRIALS_WAITING_MAX))
		return false;
	if (t->of)
		end(c);
	policy_trial_begin(&k->trial);
	t->of = k;
	/* without memory the trial has no result */
	t->requests = calloc(N * policy_trial_batch(&k->trial), sizeof *t->requests);
	t->entered_ns = trials_now_ns();
	rt_sync_ref();
	return true;
}

static void begin_call(struct rt_comm *c, const struct rt_question *q, bool is_for_sluice)
{
	struct requests_trial *t = &c->requests_trial;
	uint32_t i = t->of->trial.calls++;

	t->kind = q->kind;
	t->bytes = q->bytes;
	t->name = q->name;
	base_spin_lock(&timed.lock);
	t->deepest = (uint32_t)base_max_u64(t->deepest, t->pending + 1);
	base_spin_unlock(&timed.lock);
	t->now = t->requests ? &t->requests[i] : NULL;
	if (t->now)
		t->now->call = (struct policy_trial_call){
			.begin_ns = is_for_sluice ? t->entered_ns : trials_now_ns(),
			.bytes = q->bytes,
			.is_root = c->rank == q->root,
			.is_of_sluice = is_for_sluice,
			.is_unmapped = is_for_sluice && !t->of->reuse.is_admitted,
		};
}

/* ---- conclusion -------------------------------------------------------------------------- */

/* The first words of the first agreement; maxima over the ranks. */
enum { INCOMPLETE, DEEPEST, BEGINS };

/* Another thread may complete requests meanwhile. */
static bool is_incomplete(const struct requests_trial *t, uint32_t calls)
{
	bool is = !t->requests;

	base_spin_lock(&timed.lock);
	for (uint32_t i = 0; !is && i < calls; i++)
		is = !t->requests[i].is_complete;
	base_spin_unlock(&timed.lock);
	return is;
}

/* Stores the times at which the last rank, and the root, began each call: begins[batch][2 * N]. */
static int find_begins(struct rt_comm *c, uint64_t *begins, uint64_t facts[BEGINS])
{
	const struct requests_trial *t = &c->requests_trial;
	uint32_t batch = policy_trial_batch(&t->of->trial);
	uint64_t mine[BEGINS + 2 * N] = { is_incomplete(t, N * batch), t->deepest };
	uint64_t all[BEGINS + 2 * N];
	int ret = 0;

	for (uint32_t g = 0; !ret && g < batch; g++) {
		for (uint32_t i = 0; t->requests && i < N; i++) {
			const struct policy_trial_call *call = &t->requests[g * N + i].call;

			mine[BEGINS + i] = call->begin_ns;
			mine[BEGINS + N + i] = call->is_root ? call->begin_ns : 0;
		}
		ret = admit_agree(c, "a trial", GOAL_MAX, mine, all, BEGINS + 2 * N);
		memcpy(begins + g * 2 * N, all + BEGINS, 2 * N * sizeof *all);
		memcpy(facts, all, BEGINS * sizeof *all);
		if (facts[INCOMPLETE])
			break;
	}
	return ret;
}

static int add_up(struct rt_comm *c, const uint64_t *begins, struct policy_trial_result *out)
{
	const struct requests_trial *t = &c->requests_trial;
	uint32_t batch = policy_trial_batch(&t->of->trial);
	struct policy_trial_result mine = { .ranks = 1 };

	for (uint32_t i = 0; i < N * batch; i++) {
		const struct policy_trial_call *call = &t->requests[i].call;
		const uint64_t *at = begins + i / N * 2 * N + i % N;

		mine.cost_ns[i / batch] += policy_trial_request_cost(t->kind, call->is_root, call,
								     at[0], at[N]);
		mine.bytes[i / batch] += call->bytes;
		mine.unmapped += call->is_unmapped;
		mine.without_clock |= !policy_trial_has_clock(t->kind, call, at[0], at[N]);
	}
	return admit_agree(c, "a trial", GOAL_ADD, (uint64_t *)&mine, (uint64_t *)out,
			   POLICY_TRIAL_WORDS);
}

/* Ends the trial without a result. */
static void give_up(struct rt_comm *c)
{
	struct policy_trial *t = &c->requests_trial.of->trial;

	end(c);
	policy_trial_give_up(t);
}

static void conclude(struct rt_comm *c, const struct policy_trial_result *sums, uint64_t begin_ns)
{
	const struct requests_trial *t = &c->requests_trial;
	const struct trials_call call = { .kind = t->kind, .bytes = t->bytes, .name = t->name,
					  .of = t->of };

	end(c);
	policy_trial_judge(&call.of->trial, sums);
	if (sums->without_clock)
		call.of->trial.is_for_sluice = false;
	trials_report(c, COLL_NONBLOCKING, &call, begin_ns);
}

/* Collective. All ranks have counted the calls of the trial alike. */
static void judge(struct rt_comm *c)
{
	uint64_t begins[BATCH_MAX * 2 * N], facts[BEGINS] = { 0 };
	uint64_t begin_ns = trace_activity_begin();
	struct requests_trial *t = &c->requests_trial;
	struct policy_trial *trial = &t->of->trial;
	struct policy_trial_result sums;

	if (find_begins(c, begins, facts))
		return give_up(c);
	if (facts[INCOMPLETE]) {
		if (++t->attempts == ATTEMPTS_MAX)
			give_up(c);
		return;
	}
	if (facts[DEEPEST] > BATCH_MAX)
		return give_up(c);
	if (facts[DEEPEST] > policy_trial_batch(trial)) {
		end(c);
		trial->batch = (uint32_t)facts[DEEPEST];
		return;
	}
	if (add_up(c, begins, &sums))
		return give_up(c);
	conclude(c, &sums, begin_ns);
}

/* ---- questions --------------------------------------------------------------------------- */

static void defer_question(struct rt_comm *c, struct policy_reuse *u)
{
	policy_reuse_defer(u);
	if (!c->requests_wait)
		rt_sync_ref();
	c->requests_wait = true;
}

static bool admits_reused(struct rt_comm *c, struct call_class *k, const struct coll_call *call,
			  uint32_t uses)
{
	struct policy_reuse *u = &k->reuse;

	if (policy_reuse_next(u) == REUSE_ASK)
		defer_question(c, u);
	if (u->is_admitted)
		c->request_reuse_now = u;
	u->would_agree = u->is_admitted || (call && admit_count_uses(call, uses));
	/* wrong admissions also count after calls that were passed on while no answer came */
	u->would_agree &= policy_reuse_was_right(u);
	return u->is_admitted;
}

bool rt_requests_disagree(const struct rt_comm *c)
{
	return c->requests_wait || trial_is_full(c);
}

static void agree_on_reuse(struct rt_comm *c)
{
	struct call_class *all = c->request_classes[0];
	struct policy_reuse *asked[QUESTIONS_MAX];
	uint64_t mine = 0, common = 0;
	int n = 0;

	for (int i = 0; i < COLL_COUNT * POLICY_SIZE_CLASSES && n < QUESTIONS_MAX; i++) {
		if (!all[i].reuse.is_asked)
			continue;
		mine |= (uint64_t)all[i].reuse.would_agree << n;
		asked[n++] = &all[i].reuse;
	}
	if (admit_agree(c, question, GOAL_AND, &mine, &common, 1))
		common = 0; /* a peer has died, and a message is on stderr */
	for (int i = 0; i < n; i++)
		policy_reuse_answer(asked[i], common >> i & 1);
	base_count(BASE_CTR_REUSE_ASKED, 1);
	if (n < QUESTIONS_MAX) {
		rt_sync_unref();
		c->requests_wait = false;
	}
}

void rt_requests_agree(struct rt_comm *c)
{
	if (c->requests_wait)
		agree_on_reuse(c);
	if (trial_is_full(c))
		judge(c);
}

void requests_trials_end(struct rt_comm *c)
{
	if (c->requests_wait)
		rt_sync_unref();
	c->requests_wait = false;
	if (c->requests_trial.of)
		end(c);
}

/* ---- calls ------------------------------------------------------------------------------- */

bool rt_request_suits(const struct rt_comm *c) { return c->admits_requests; }

static struct call_class *class_of(struct rt_comm *c, enum coll kind, uint64_t bytes)
{
	return &c->request_classes[kind][policy_size_class(bytes)];
}

static bool is_measured(enum coll kind, uint64_t bytes)
{
	return coll_gate_measures(&rt_gates[COLL_NONBLOCKING][kind], bytes);
}

bool rt_request_passes(struct rt_comm *c, enum coll kind, uint64_t bytes)
{
	struct call_class *k = class_of(c, kind, bytes);

	return is_measured(kind, bytes) &&
	       ((is_full(&k->trial) && !k->trial.is_for_sluice) || trials_pass(c, k, bytes));
}

bool rt_request_needs_buffers(struct rt_comm *c, enum coll kind, uint64_t bytes)
{
	if (c->requests_trial.of)
		c->requests_trial.entered_ns = trials_now_ns();
	if (!is_measured(kind, bytes))
		return policy_admit(&rt_gates[COLL_NONBLOCKING][kind], bytes) != ADMIT_ALWAYS;
	return trials_need_reuse(c, class_of(c, kind, bytes));
}

static bool trial_admits(struct rt_comm *c, const struct rt_question *q,
			 const struct coll_call *call)
{
	struct call_class *k = class_of(c, q->kind, q->bytes);
	bool needs_reuse = trials_need_reuse(c, k);
	uint32_t uses = trials_wait(c, k) ? policy_reuse_stride(&k->reuse,
								policy_size_class(q->bytes))
					  : 1;
	struct policy_trial *t = &k->trial;

	for (;;) {
		enum policy_trial_step step = policy_trial_next(t);

		switch (step) {
		case TRIAL_USE_HOST:
			return false;
		case TRIAL_USE_SLUICE:
		case TRIAL_JUDGE:
			return t->is_for_sluice &&
			       (!needs_reuse || admits_reused(c, k, call, uses));
		case TRIAL_HOST:
		case TRIAL_SLUICE:
			begin_call(c, q, step == TRIAL_SLUICE);
			return step == TRIAL_SLUICE;
		case TRIAL_DUE:
			if (needs_reuse && !admits_reused(c, k, call, uses))
				return false;
			if (!begin(c, k))
				return t->is_for_sluice;
			c->request_reuse_now = NULL;
			break;
		}
	}
}

bool rt_request_admit(struct rt_comm *c, const struct rt_question *q, const struct coll_call *call)
{
	struct call_class *k = class_of(c, q->kind, q->bytes);

	c->request_reuse_now = NULL;
	c->requests_trial.now = NULL;
	if (q->bytes > c->piece_most) /* a request is not cut */
		return false;
	if (is_measured(q->kind, q->bytes) && !q->is_fixed)
		return trial_admits(c, q, call);
	return policy_admit(&rt_gates[COLL_NONBLOCKING][q->kind], q->bytes) == ADMIT_ALWAYS ||
	       admits_reused(c, k, call, 1);
}

bool rt_request_is_timed(const struct rt_comm *c) { return c->requests_trial.now; }

bool rt_persistent_suits(const struct rt_comm *c, enum coll kind, uint64_t bytes)
{
	const struct policy_trial *t =
		&c->request_classes[kind][policy_size_class(bytes)].trial;

	if (!c->admits_requests || bytes > c->piece_most)
		return false;
	return is_measured(kind, bytes) && backoff_interval(&t->next)
		       ? t->is_for_sluice
		       : policy_figures_admit(&rt_gates[COLL_NONBLOCKING][kind], bytes);
}
