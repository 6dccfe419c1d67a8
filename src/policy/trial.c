/* SPDX-License-Identifier: BSD-3-Clause */
/* Trials: whether the host MPI or Sluice executes the calls of a class faster. */
#include "policy/policy.h"

/* Calls between trials: eight times as many after each trial with the same result. A thousand calls
 * of a class thus contain two trials, ten thousand three, and half of a trial's calls take the
 * slower way. */
#define INTERVAL_FIRST 128u
#define INTERVAL_MAX   65536u
#define INTERVAL_GROWS 8u
/* A trial takes at most 1/COST_SHARE of the time of the calls until the next one; after the first
 * trial, and one with another result, at most so many calls, as such a result may be wrong. */
#define COST_SHARE     100u
#define INTERVAL_DOUBT 2048u
#define AGREE_NS       16000u /* the two reductions that sum the costs */
/* Classes of shorter calls have their first trial after as many calls as have so many bytes. */
#define FIRST_BELOW ((uint64_t)64 << 10)
#define FIRST_BYTES ((uint64_t)16 << 20)
/* Sluice replaces the host MPI from this gain on, and the host MPI Sluice. */
#define GAIN_PERCENT 3u
/* How much faster Sluice gets by adoption: 2.0 to 2.6 times at 256 KiB, in reductions 3 to 4 (1 to
 * 2 where they are cut, doc/adr/0020-flat-collectives.md). */
#define MAPPED_SPEEDUP	      2u
#define MAPPED_SPEEDUP_REDUCE 3u

_Static_assert(POLICY_TRIAL_CALLS == 8, "the order of a trial");

/* H S S H S H H S: neither a drift nor a program that alternates between two sizes favours one. */
static enum policy_executor executor_of(uint32_t call)
{
	return __builtin_parity(call) ? BY_SLUICE : BY_HOST;
}

enum policy_trial_step policy_trial_next(struct policy_trial *t)
{
	uint32_t turn = t->calls / policy_trial_batch(t);

	if (t->is_running)
		return turn >= POLICY_TRIAL_CALLS	 ? TRIAL_JUDGE
		       : executor_of(turn) == BY_SLUICE ? TRIAL_SLUICE
							 : TRIAL_HOST;
	if (backoff_is_due(&t->next))
		return TRIAL_DUE;
	return t->is_for_sluice ? TRIAL_USE_SLUICE : TRIAL_USE_HOST;
}

bool policy_trial_passes(struct policy_trial *t)
{
	uint32_t remaining = atomic_load_explicit(&t->next.remaining, memory_order_relaxed);

	if (t->is_running || t->is_for_sluice || !remaining)
		return false;
	backoff_skip(&t->next, remaining - 1);
	return true;
}

uint64_t policy_trial_us(const struct policy_trial *t, enum policy_executor by, uint64_t bytes)
{
	uint64_t cost = by == BY_HOST ? t->host_cost : t->sluice_cost;

	return (uint64_t)((__uint128_t)cost * bytes / (1000u << 20));
}

uint64_t policy_trial_gain_us(const struct policy_trial *t, uint64_t bytes)
{
	uint64_t host = policy_trial_us(t, BY_HOST, bytes),
		 ours = policy_trial_us(t, BY_SLUICE, bytes);

	return t->is_for_sluice && ours < host ? host - ours : 0;
}

void policy_trial_init(struct policy_trial *t, int size_class)
{
	uint64_t above = policy_class_bytes(size_class + 1);

	t->needs_reuse = above <= FIRST_BELOW;
	if (t->needs_reuse)
		backoff_skip(&t->next, (uint32_t)(FIRST_BYTES / (above / 2)));
}

void policy_trial_begin(struct policy_trial *t)
{
	t->is_running = true;
	t->calls = 0;
}

void policy_trial_give_up(struct policy_trial *t)
{
	uint64_t interval = base_max_u64(INTERVAL_FIRST,
					 (uint64_t)backoff_interval(&t->next) * INTERVAL_GROWS);

	t->is_running = false;
	backoff_set(&t->next, (uint32_t)base_min_u64(interval, INTERVAL_MAX));
	backoff_skip(&t->next, backoff_interval(&t->next));
}

/* Returns: mean cost of the cheaper half of an executor's calls, in ns per MiB: a late scheduler or
 * an interrupt makes single calls dear. */
static uint64_t cost_of(const struct policy_trial_result *r, enum policy_executor by)
{
	uint64_t costs[POLICY_TRIAL_CALLS], sum = 0;
	int n = 0;

	for (uint32_t i = 0; i < POLICY_TRIAL_CALLS; i++) {
		uint64_t bytes = base_max_u64(r->bytes[i], 1), cost;
		int at = n++;

		if (executor_of(i) != by) {
			n--;
			continue;
		}
		cost = base_min_u64(r->cost_ns[i], UINT64_MAX >> 21) * (1u << 20) / bytes;
		for (; at && costs[at - 1] > cost; at--)
			costs[at] = costs[at - 1];
		costs[at] = cost;
	}
	for (int i = 0; i < n / 2; i++)
		sum += costs[i] / (uint64_t)(n / 2);
	return sum;
}

/* Exchanges of all sizes are one class. A trial with long and short ones says little. */
static bool is_comparable(const struct policy_trial_result *r)
{
	uint64_t least = r->bytes[0], most = r->bytes[0];

	for (uint32_t i = 1; i < POLICY_TRIAL_CALLS; i++) {
		least = base_min_u64(least, r->bytes[i]);
		most = base_max_u64(most, r->bytes[i]);
	}
	return most <= least * 4;
}

static bool is_better(uint64_t cost, uint64_t than)
{
	return (__uint128_t)cost * 100 < (__uint128_t)than * (100 - GAIN_PERCENT);
}

/* In memory that peers had not mapped Sluice may lose and win later, unless adoption, which is
 * dear, promises no gain. */
static bool may_win_when_mapped(const struct policy_trial *t, const struct policy_trial_result *r)
{
	return is_better(t->sluice_cost / (r->computes ? MAPPED_SPEEDUP_REDUCE : MAPPED_SPEEDUP),
			 t->host_cost);
}

/* Returns: the calls, of the faster executor, that take COST_SHARE times as long as the trial took
 * in excess. */
static uint32_t calls_paying(const struct policy_trial *t, const struct policy_trial_result *r)
{
	uint64_t bytes = r->bytes[0] / base_max_u64(r->ranks, 1);
	uint64_t best = base_min_u64(t->host_cost, t->sluice_cost);
	uint64_t worst = base_max_u64(t->host_cost, t->sluice_cost);
	__uint128_t excess = (__uint128_t)(worst - best) * bytes / 1024 * (POLICY_TRIAL_CALLS / 2);
	__uint128_t call = base_max_u64((uint64_t)((__uint128_t)best * bytes / 1024), 1);
	__uint128_t calls = (excess + 1024 * AGREE_NS) * COST_SHARE / call *
			    policy_trial_batch(t);

	return calls < INTERVAL_MAX ? (uint32_t)calls : INTERVAL_MAX;
}

void policy_trial_judge(struct policy_trial *t, const struct policy_trial_result *r)
{
	bool was_for_sluice = t->is_for_sluice, is_first = !backoff_interval(&t->next);
	uint32_t interval = backoff_interval(&t->next), paying;

	t->is_running = false;
	t->host_cost = cost_of(r, BY_HOST);
	t->sluice_cost = cost_of(r, BY_SLUICE);
	if (r->without_clock)
		t->is_for_sluice = true; /* as the figures of the host MPI say */
	else if (!is_comparable(r))
		t->is_for_sluice = false;
	else if (was_for_sluice)
		t->is_for_sluice = !is_better(t->host_cost, t->sluice_cost);
	else
		t->is_for_sluice = is_better(t->sluice_cost, t->host_cost);
	if (r->unmapped)
		t->wins_in_new = t->is_for_sluice && !r->without_clock;
	t->needs_reuse = t->is_for_sluice ? !t->wins_in_new
					  : r->unmapped && may_win_when_mapped(t, r);
	paying = calls_paying(t, r);
	if (is_first || was_for_sluice != t->is_for_sluice)
		interval = (uint32_t)base_max_u64(INTERVAL_FIRST,
						  base_min_u64(paying, INTERVAL_DOUBT));
	else
		interval = (uint32_t)base_min_u64(
			base_max_u64((uint64_t)interval * INTERVAL_GROWS, paying), INTERVAL_MAX);
	backoff_set(&t->next, interval);
	backoff_skip(&t->next, policy_trial_lost_in_new(t) ? 0 : interval);
}

/* ---- cost of a call ---------------------------------------------------------------------- */

static bool flows_from_root(enum coll kind)
{
	return kind == COLL_BCAST || coll_pattern(kind) == COLL_SCATTER;
}

static bool flows_to_root(enum coll kind)
{
	return kind == COLL_REDUCE || coll_pattern(kind) == COLL_GATHER;
}

/* Returns: when the rank could have left at the earliest. */
static uint64_t free_at(enum coll kind, bool is_root, const struct policy_trial_call *call,
			uint64_t last_begin_ns, uint64_t root_begin_ns)
{
	if (flows_from_root(kind))
		return base_max_u64(root_begin_ns, call->begin_ns);
	return flows_to_root(kind) && !is_root ? call->begin_ns : last_begin_ns;
}

uint64_t policy_trial_cost(enum coll kind, bool is_root, const struct policy_trial_call *call,
			   uint64_t last_begin_ns, uint64_t root_begin_ns)
{
	uint64_t since = free_at(kind, is_root, call, last_begin_ns, root_begin_ns);

	return call->end_ns > since ? call->end_ns - since : 0;
}

uint64_t policy_trial_request_cost(enum coll kind, bool is_root,
				   const struct policy_trial_call *call, uint64_t last_begin_ns,
				   uint64_t root_begin_ns)
{
	uint64_t since = free_at(kind, is_root, call, last_begin_ns, root_begin_ns);
	uint64_t range = call->end_ns - call->polled_at_ns, counted = range;

	if (since > call->polled_at_ns)
		counted = call->end_ns > since ? call->end_ns - since : 0;
	if (!range)
		return call->start_ns;
	return call->start_ns + (uint64_t)((__uint128_t)call->polled_ns * counted / range);
}

bool policy_trial_has_clock(enum coll kind, const struct policy_trial_call *call,
			    uint64_t last_begin_ns, uint64_t root_begin_ns)
{
	/* a rank may leave before others enter: to the root, or where it waits for none */
	if (flows_to_root(kind) || kind == COLL_SCAN || kind == COLL_EXSCAN || coll_is_local(kind))
		return true;
	return call->end_ns >= (flows_from_root(kind) ? root_begin_ns : last_begin_ns);
}
