/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * When a communicator is connected where trials decide: once that costs a small part of the time
 * of its calls so far (policy_connect_credit()).
 *
 * Ranks share the sizes of most collectives, and so count alike. Host MPIs take several times the
 * lower bound: each rank times some of its calls, and when the bound has reached 1/32 of the
 * threshold, and each time that it has grown by half, the ranks agree through the host MPI whether
 * the times of all pay. Of an exchange each rank knows only its own bytes: after 8, 32, 128, ... of
 * them the ranks agree likewise.
 */
#include "mpi/coll/coll_op.h"
#include "trace/reasons.h"

#define FIRST_PASSED 2 /* calls of such a collective alone before a communicator is connected */
#define FIRST_QUESTION 8u
#define NEXT_QUESTION  4u
#define FIRST_PRICE_QUESTION 32u
#define TIMED_EVERY	16u /* calls, of which one is timed */

/* ---- times of the host MPI ------------------------------------------------------------------ */

/* Begins to time the call, which the host MPI executes. */
static void time_some(struct coll_args *args, struct comm_state *cs, uint64_t bytes)
{
	if (cs->timed_calls++ % TIMED_EVERY)
		return;
	cs->timed_credit = policy_connect_credit(&rt_options, args->kind, bytes, cs->size);
	cs->timed_since_ns = os_now_ns();
	args->unpaid = cs;
}

void coll_time_passed(struct comm_state *cs)
{
	uint64_t ns = os_now_ns() - cs->timed_since_ns;
	uint64_t percent;

	if (base_fault("slow_host"))
		ns += 1000000000;
	percent = base_max_u64(ns * 100 / base_max_u64(cs->timed_credit, 1), 1);
	if (!cs->host_percent || percent < cs->host_percent)
		cs->host_percent = percent;
}

/* Equal on all ranks. */
static bool is_price_question_due(const struct comm_state *cs)
{
	uint64_t due = base_max_u64(cs->next_price_question,
				    policy_connect_threshold(&rt_options) / FIRST_PRICE_QUESTION);

	return rt_options.measures && cs->connect_credit > due;
}

/* Returns: whether the times that all ranks took pay. A rank that often waits for late partners
 * overestimates the host MPI, the last one does not. Collective. */
static bool times_pay(struct comm_state *cs)
{
	int64_t mine, all = 0;

	if (!is_price_question_due(cs))
		return false;
	cs->next_price_question = cs->connect_credit + cs->connect_credit / 2;
	mine = policy_connect_pays(cs->connect_credit / 100 * cs->host_percent,
				   comm_state_price_ns(cs));
	return !comm_state_ask(cs, mine, &all) && all;
}

/* ---- exchanges ----------------------------------------------------------------------------- */

static bool is_question_due(struct comm_state *cs)
{
	uint32_t due = base_max_u64(cs->next_question, FIRST_QUESTION);

	if (++cs->exchanges < due)
		return false;
	cs->next_question = due * NEXT_QUESTION;
	return true;
}

static const char *exchange_passes(struct comm_state *cs, enum coll kind)
{
	if (!cs->is_decided && !is_question_due(cs))
		return TRACE_WHY_UNPAID;
	return cs->rt && rt_trial_passes(cs->rt, kind, 0) ? TRACE_WHY_EXCHANGE : NULL;
}

/* Collective. */
static bool exchanges_pay(struct coll_op *t)
{
	const struct policy_options *o = &rt_options;
	uint64_t credit = policy_connect_credit(o, t->args.kind, args_own_bytes(&t->args), 2);
	int64_t threshold = (int64_t)(policy_connect_threshold(o) / t->cs->exchanges), rest = 0;

	return !comm_state_ask(t->cs, threshold - (int64_t)base_min_u64(credit, INT64_MAX),
				 &rest) && rest < 0;
}

/* ---- all collectives ----------------------------------------------------------------------- */

const char *coll_comm_refusal(const struct comm_state *cs)
{
	if (!cs || (cs->is_decided && !cs->rt && !cs->multinode))
		return TRACE_WHY_NOT_SERVED;
	if (cs->is_inter)
		return TRACE_WHY_INTER;
	return cs->size < 2 ? TRACE_WHY_ALONE : NULL;
}

/* Returns: the side whose size is the same on all ranks, or NULL: it takes all counts to know. */
static const struct arg_buf *shared_side(const struct coll_args *args, const struct comm_state *cs)
{
	bool is_root = cs->rank == args->root;

	if (args->kind == COLL_GATHER)
		return is_root ? &args->recv : &args->send;
	if (args->kind == COLL_SCATTER)
		return is_root ? &args->send : &args->recv;
	return args_message(args);
}

static bool may_change_early(const struct coll_args *args, const struct comm_state *cs)
{
	return !coll_is_reduce(args->kind) || reduce_change_of(args, cs->size) == REDUCE_CHANGES;
}

bool coll_asks_early(const struct coll_args *args, const struct comm_state *cs)
{
	return coll_is_local(args->kind) ||
	       (shared_side(args, cs) && may_change_early(args, cs));
}

/* The trials of a class say nothing about reductions whose bits must not change. */
static const char *passes_fixed(const struct coll_args *args, const struct comm_state *cs,
				enum admission admission)
{
	return reduce_change_of(args, cs->size) == REDUCE_STAYS && admission != ADMIT_ALWAYS
		       ? TRACE_WHY_FIXED
		       : NULL;
}

const char *coll_passes_early(struct coll_args *args, int *rc)
{
	const struct coll_gate *gate = &rt_gates[COLL_BLOCKING][args->kind];
	const struct arg_buf *side;
	enum admission admission;
	struct comm_state *cs;
	const char *why;
	uint64_t bytes;

	if (gate->measured_from == UINT64_MAX || args->comm == abi.comm_null)
		return NULL;
	*rc = comm_state_find(args->comm, &cs);
	why = *rc ? TRACE_WHY_NOT_SERVED : coll_comm_refusal(cs);
	if (why)
		return why;
	if (coll_is_local(args->kind))
		return exchange_passes(cs, args->kind);
	side = shared_side(args, cs);
	if (!side || side->count <= 0 || side->type == abi.datatype_null)
		return NULL;
	bytes = types_bytes(side->type, side->count);
	admission = policy_admit(gate, bytes);
	if (admission < ADMIT_REUSED)
		return NULL;
	if (cs->multinode)
		return admission == ADMIT_ALWAYS ? NULL : TRACE_WHY_NEW;
	if (!may_change_early(args, cs))
		return passes_fixed(args, cs, admission);
	if (rt_device_is_asked(args->kind, bytes))
		return NULL; /* the trials are asked after the ranks */
	if (!cs->rt && (comm_state_pay(cs, args->kind, bytes) || is_price_question_due(cs)))
		return NULL;
	if (!cs->rt) {
		time_some(args, cs, bytes);
		return TRACE_WHY_UNPAID;
	}
	return rt_trial_passes(cs->rt, args->kind, bytes) ? TRACE_WHY_SLOWER : NULL;
}

const char *coll_delays_connecting(struct coll_op *t)
{
	const struct coll_gate *gate = &rt_gates[COLL_BLOCKING][t->args.kind];
	bool is_always = policy_admit(gate, t->bytes) == ADMIT_ALWAYS, pays;

	if (t->cs->is_decided || rt_device_is_asked(t->args.kind, t->bytes))
		return NULL;
	if (!is_always && !reduce_may_change(t))
		return TRACE_WHY_FIXED;
	if (!coll_gate_measures(gate, t->bytes) || !reduce_may_change(t))
		return !is_always && t->cs->passed_calls++ < FIRST_PASSED ? TRACE_WHY_FIRST : NULL;
	pays = coll_is_local(t->args.kind) ? exchanges_pay(t)
					   : comm_state_pay(t->cs, t->args.kind, t->bytes) ||
						     times_pay(t->cs);
	return pays ? NULL : TRACE_WHY_UNPAID;
}
