/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Trials of blocking calls (policy.h): the times of a trial's calls, and what all ranks conclude.
 *
 *   trials_admit()  --this rank's begin and end of each call-->  rt_trial_end()
 *   judge():        the last begin of each call over all ranks, then the sum of their costs
 *
 * A communicator runs one trial at a time.
 */
#include <stdio.h>

#include "rt/coll/run.h"
#include "rt/trials.h"


uint64_t trials_now_ns(void)
{
	return os_now_ns() + (base_fault("clock") ? 3600000000000u : 0);
}

static bool may_begin(struct trial *t)
{
	if (t->of && ++t->waiting <= TRIALS_WAITING_MAX)
		return false;
	if (t->of)
		t->of->trial.is_running = false;
	return true;
}

static bool begin(struct trial *t, struct call_class *k)
{
	if (!may_begin(t))
		return false;
	t->of = k;
	t->waiting = 0;
	policy_trial_begin(&k->trial);
	return true;
}

static uint64_t own_bytes(const struct coll_call *call, uint64_t bytes)
{
	return bytes || !call ? bytes : side_bytes(&call->send) + side_bytes(&call->recv);
}

static void begin_call(struct rt_comm *c, const struct trials_call *call, bool is_for_sluice)
{
	struct trial *t = &c->trial;

	t->now = &t->calls[t->of->trial.calls++];
	c->packs_in_pieces = !t->of->reuse.is_admitted;
	*t->now = (struct policy_trial_call){
		.begin_ns = is_for_sluice ? t->entered_ns : trials_now_ns(),
		.bytes = own_bytes(call->call, call->bytes),
		.is_root = c->rank == call->root,
		.is_of_sluice = is_for_sluice,
	};
}

/* ---- conclusion -------------------------------------------------------------------------- */

#define N POLICY_TRIAL_CALLS

/* Stores the time at which the last rank, and the root, entered each call. */
static int find_begins(struct rt_comm *c, uint64_t begins[2 * N])
{
	const struct policy_trial_call *calls = c->trial.calls;
	uint64_t mine[2 * N];

	for (uint32_t i = 0; i < N; i++) {
		mine[i] = calls[i].begin_ns;
		mine[N + i] = calls[i].is_root ? calls[i].begin_ns : 0;
	}
	return admit_agree(c, "a trial", GOAL_MAX, mine, begins, 2 * N);
}

static int add_up(struct rt_comm *c, enum coll kind, const uint64_t begins[2 * N],
		  struct policy_trial_result *out)
{
	struct policy_trial_result mine = { .ranks = 1, .computes = coll_is_reduce(kind) };

	for (uint32_t i = 0; i < N; i++) {
		const struct policy_trial_call *call = &c->trial.calls[i];

		mine.cost_ns[i] = policy_trial_cost(kind, call->is_root, call, begins[i],
						    begins[N + i]);
		mine.bytes[i] = call->bytes;
		mine.unmapped += call->is_unmapped;
		mine.without_clock |= !policy_trial_has_clock(kind, call, begins[i], begins[N + i]);
	}
	return admit_agree(c, "a trial", GOAL_ADD, (uint64_t *)&mine, (uint64_t *)out,
			   POLICY_TRIAL_WORDS);
}

#define TEXTS 64

/* The log and the trace get a sentence. The trace keeps it by its address. */
void trials_report(const struct rt_comm *c, enum coll_form form, const struct trials_call *call,
		   uint64_t begin_ns)
{
	static char texts[TEXTS][104];
	static _Atomic uint32_t count;
	const struct policy_trial *t = &call->of->trial;
	uint32_t n = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
	/* of exchanges only the rate is known */
	uint64_t bytes = call->bytes ? call->bytes : 1 << 20;
	char size[32], *text = texts[n % TEXTS];
	bool is_new = policy_trial_lost_in_new(t);

	base_count(BASE_CTR_TRIALS, 1);
	learned_note(form, call->kind, call->bytes, t->is_for_sluice);
	if (n >= TEXTS && trace_is_on())
		return trace_activity("a trial of the host MPI and Sluice", begin_ns, 0);
	base_format_bytes(bytes, size, sizeof size);
	snprintf(text, sizeof texts[0], "trial of %s, %s%s: host MPI %llu us, Sluice %llu us%s: %s",
		 call->name, call->bytes ? "" : "each ", size,
		 (unsigned long long)policy_trial_us(t, BY_HOST, bytes),
		 (unsigned long long)policy_trial_us(t, BY_SLUICE, bytes),
		 is_new ? " (new memory)" : "", t->is_for_sluice ? "Sluice" : "host MPI");
	trace_activity(text, begin_ns, 0);
	if (!c->rank)
		base_log(BASE_LOG_DEBUG, "rt", "%s; the next trial in %u calls%s", text,
			 backoff_interval(&t->next),
			 is_new ? ", or when all ranks reuse their buffers" : "");
}

/* Tells region/ what such calls take while their buffers are not adopted: the host MPI executes
 * most of them. A reduction computes, too. */
static void note_rate(const struct trials_call *call)
{
	const struct coll_call *own = call->call;
	uint64_t us, moved;
	uint32_t ps;

	if (!own || coll_is_reduce(call->kind))
		return;
	moved = base_max_u64(side_bytes(&own->send), side_bytes(&own->recv));
	us = policy_trial_us(&call->of->trial, BY_HOST, own_bytes(own, call->bytes));
	if (!moved || !us)
		return;
	ps = (uint32_t)base_min_u64(us * 1000000 / moved, 1000000);
	if (own->send.buf.layouts || own->recv.buf.layouts)
		region_set_packed_rate(ps);
	else
		region_set_private_rate(ps);
}

static int judge(struct rt_comm *c, const struct trials_call *call)
{
	struct policy_trial_result sums;
	uint64_t begins[2 * N], begin_ns = trace_activity_begin();
	int ret = find_begins(c, begins);

	if (!ret)
		ret = add_up(c, call->kind, begins, &sums);
	c->trial.of = NULL;
	if (ret)
		return ret;
	policy_trial_judge(&call->of->trial, &sums);
	note_rate(call);
	trials_report(c, COLL_BLOCKING, call, begin_ns);
	return 0;
}

/* ---- calls ------------------------------------------------------------------------------- */

bool trials_wait(const struct rt_comm *c, const struct call_class *k)
{
	return !k->trial.is_running && !k->reuse.is_admitted && trials_need_reuse(c, k);
}

bool trials_pass(const struct rt_comm *c, struct call_class *k, uint64_t bytes)
{
	if (policy_trial_passes(&k->trial))
		return true;
	if (!trials_wait(c, k))
		return false;
	if (!backoff_is_due(&k->looks))
		return true;
	backoff_skip(&k->looks, policy_reuse_stride(&k->reuse, policy_size_class(bytes)) - 1);
	return false;
}

bool rt_trial_passes(struct rt_comm *c, enum coll kind, uint64_t bytes)
{
	return coll_gate_measures(&rt_gates[COLL_BLOCKING][kind], bytes) &&
	       trials_pass(c, &c->classes[kind][policy_size_class(bytes)], bytes);
}

void trials_comm_created(struct rt_comm *c)
{
	for (int kind = 0; kind < COLL_COUNT; kind++)
		for (int i = 0; i < POLICY_SIZE_CLASSES; i++) {
			policy_trial_init(&c->classes[kind][i].trial, i);
			c->request_classes[kind][i].trial.needs_reuse =
				coll_is_reduce((enum coll)kind);
		}
}

void rt_trial_enter(struct rt_comm *c)
{
	if (c->trial.of)
		c->trial.entered_ns = trials_now_ns();
}

bool rt_trial_is_timed(const struct rt_comm *c) { return c->trial.now; }

void rt_trial_end(struct rt_comm *c)
{
	if (!c->trial.now)
		return;
	c->trial.now->end_ns = trials_now_ns();
	if (base_fault(c->trial.now->is_of_sluice ? "slow_sluice" : "slow_host"))
		c->trial.now->end_ns += 1000000000;
	c->trial.now = NULL;
}

void trials_count(struct rt_comm *c, bool is_mapped)
{
	policy_reuse_count(c->reuse_now, is_mapped);
	if (c->trial.now)
		c->trial.now->is_unmapped = !is_mapped;
}

/* The time that Sluice saves may pay for adoption. */
static int use_sluice(struct rt_comm *c, const struct trials_call *call)
{
	int ret = trials_need_reuse(c, call->of) ? admit_reused(c, call) :
						    admit_always(c, call);

	if (ret > 0)
		region_earn(policy_trial_gain_us(&call->of->trial,
						 own_bytes(call->call, call->bytes)) * 1000);
	return ret;
}

int trials_admit(struct rt_comm *c, const struct trials_call *call)
{
	struct policy_trial *t = &call->of->trial;
	int ret;

	for (;;) {
		enum policy_trial_step step = policy_trial_next(t);

		switch (step) {
		case TRIAL_USE_HOST:
			return 0;
		case TRIAL_JUDGE:
			ret = judge(c, call);
			if (ret)
				return ret;
			break;
		case TRIAL_HOST:
		case TRIAL_SLUICE:
			begin_call(c, call, step == TRIAL_SLUICE);
			return step == TRIAL_SLUICE;
		case TRIAL_USE_SLUICE:
			return use_sluice(c, call);
		case TRIAL_DUE:
			ret = trials_need_reuse(c, call->of) ? admit_reused(c, call) : 1;
			if (ret <= 0 || !begin(&c->trial, call->of))
				return ret <= 0 ? ret : t->is_for_sluice;
			c->trial.entered_ns = trials_now_ns();
			break;
		}
	}
}
