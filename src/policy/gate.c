/* SPDX-License-Identifier: BSD-3-Clause */
#include "policy/gate.h"

#define NEVER   UINT64_MAX
#define ALL     UINT64_MAX
/* Trials begin at half of SLUICE_COLL_THRESHOLD, 32 KiB, and at a quarter for the collectives that
 * may gain there: host MPIs execute the others in 2 to 8 us, and to examine a call takes 0.1. */
#define TRIED_SHARE	  2
#define TRIED_SHARE_SHORT 4
#define TRIED_SHORT	  (1u << COLL_ALLTOALL | 1u << COLL_ALLREDUCE)
/* Over several nodes shorter messages lose more often than they win (ADR 27). */
#define HIER_LEAST_BYTES ((uint64_t)1 << 20)
/* Over several nodes an exchange costs two more copies and saves messages, which pays while a
 * message costs more than two copies. */
#define HIER_EXCHANGE_MAX_BYTES ((uint64_t)64 << 10)
/* Flat collectives poll each rank. Nobody has measured more ranks. */
#define REQUEST_RANKS_MAX 16
/* Creating a node group of two ranks takes 0.2 ms, the first of a process 0.7 ms, and its first
 * trial 0.3 ms. */
#define CONNECT_SHARE	     20u
#define CONNECT_THRESHOLD_NS (CONNECT_SHARE * 1000000u)
/* Without trials: so many short collectives, or a few of a megabyte. */
#define CONNECT_CALLS 256u
#define CONNECT_BYTES (16u << 10)
/* No host MPI executes a collective in less than FIXED_NS, or moves a byte in less than BYTE_PS. */
#define FIXED_NS 500u
#define BYTE_PS  80u
/* Short calls: longest message, and kinds where every rank knows how long it is. */
#define SHORT_BYTES ((uint64_t)8 << 10)
#define SHORT_KINDS                                                                                \
	(1u << COLL_BARRIER | 1u << COLL_BCAST | 1u << COLL_GATHER | 1u << COLL_SCATTER |          \
	 1u << COLL_ALLGATHER | 1u << COLL_ALLTOALL | 1u << COLL_REDUCE | 1u << COLL_ALLREDUCE |   \
	 1u << COLL_REDUCE_SCATTER_BLOCK | 1u << COLL_SCAN | 1u << COLL_EXSCAN)

static int64_t mode_of(const struct policy_options *o, enum coll kind)
{
	return o->modes[coll_family(kind)];
}

/* An option that asks for a kind asks for no trials. Exchanges with neighbours need agreements that
 * only an option pays for. */
static bool is_measured(const struct policy_options *o, enum coll kind)
{
	bool is_auto = mode_of(o, kind) == BASE_ADMIT_AUTO &&
		       (!coll_is_local(kind) || o->modes[BASE_FAMILY_VECTOR] == BASE_ADMIT_AUTO);

	return o->measures && is_auto && kind != COLL_BARRIER && kind < COLL_NEIGHBOR_ALLGATHER;
}

/* Least bytes of a blocking call that may be admitted. */
static uint64_t least_bytes(const struct policy_options *o, const struct policy_figures *f,
			    enum coll kind)
{
	int64_t mode = mode_of(o, kind);

	if (mode == BASE_ADMIT_OFF)
		return NEVER;
	/* inside a node barriers of the host MPI are as fast */
	if (kind == COLL_BARRIER)
		return o->hier && mode == BASE_ADMIT_ON ? 0 : NEVER;
	/* ranks share no size: all or nothing, and nothing unless trials or an option say so */
	if (coll_is_local(kind))
		return o->modes[BASE_FAMILY_VECTOR] == BASE_ADMIT_ON || is_measured(o, kind) ? 0
											    : NEVER;
	if (mode == BASE_ADMIT_ON)
		return o->threshold_bytes;
	if (is_measured(o, kind))
		return o->threshold_bytes /
		       (1u << kind & TRIED_SHORT ? TRIED_SHARE_SHORT : TRIED_SHARE);
	return base_max_u64(f->again, o->threshold_bytes);
}

static struct coll_gate blocking_gate(const struct policy_options *o,
				      const struct policy_figures *f, enum coll kind)
{
	uint64_t from = least_bytes(o, f, kind), always = from;

	if (!coll_is_local(kind) && kind != COLL_BARRIER && mode_of(o, kind) == BASE_ADMIT_AUTO)
		always = base_max_u64(f->always, o->threshold_bytes);
	return (struct coll_gate){ .from = from, .to = ALL, .always_from = always,
				   .always_to = ALL, .again = NEVER,
				   .measured_from = is_measured(o, kind) ? 0 : NEVER };
}

/* Below `from` the figures decide, from there on trials. */
static struct coll_gate with_trials(struct coll_gate g, const struct policy_sizes *s,
				    uint64_t from)
{
	g.measured_from = from;
	g.from = base_min_u64(s->from, from);
	g.to = ALL;
	g.holes[0].to = base_min_u64(s->not_to, from);
	if (s->from < from && s->to < from)
		g.holes[1] = (struct coll_hole){ s->to + 1, from };
	return g;
}

static struct coll_gate nonblocking_gate(const struct policy_options *o,
					 const struct policy_figures *f, enum coll kind)
{
	const struct policy_sizes *s = &f->nonblocking;
	int64_t mode = o->modes[BASE_FAMILY_NONBLOCKING];
	struct coll_gate g = COLL_GATE_CLOSED;

	if (mode == BASE_ADMIT_OFF || mode_of(o, kind) == BASE_ADMIT_OFF)
		return g;
	if (mode == BASE_ADMIT_ON) {
		g.from = g.always_from = kind == COLL_BARRIER ? 0 : least_bytes(o, f, kind);
		g.to = g.always_to = ALL;
		return g;
	}
	g = (struct coll_gate){ .from = s->from, .to = s->to, .always_from = s->from,
				.always_to = s->to, .again = s->again,
				.measured_from = NEVER,
				.holes = { { s->not_from, s->not_to } } };
	if (is_measured(o, kind) && !coll_is_local(kind))
		return with_trials(g, s, o->threshold_bytes);
	if (s->again == NEVER)
		return g;
	g.to = ALL;
	if (s->from == NEVER)
		g.from = s->again;
	else
		g.holes[1] = (struct coll_hole){ s->to + 1, s->again };
	return g;
}

/* Where ranks take turns a host MPI's collective visits each rank several times (ADR 38).
 * from: calls from here on may be admitted anyhow. */
static uint64_t short_end(const struct policy_options *o, enum coll kind, uint64_t from)
{
	bool is_one = 1u << kind & SHORT_KINDS && mode_of(o, kind) != BASE_ADMIT_OFF;

	return o->switches && is_one ? base_min_u64(SHORT_BYTES + 1, from) : 0;
}

/* Tracing counts small calls too. The host MPI executes blocking barriers unless an option asks. */
static void open_gate(struct coll_gate *g, enum coll_form form, enum coll kind, bool is_traced)
{
	bool is_counted = is_traced && (form == COLL_NONBLOCKING || kind != COLL_BARRIER);

	g->gate = is_counted || g->short_end ? 0 : g->from;
}

void policy_gates(struct coll_gate gates[COLL_FORMS][COLL_COUNT], const struct policy_options *o,
		  const struct policy_figures figures[COLL_COUNT], bool is_traced)
{
	for (enum coll kind = 0; kind < COLL_COUNT; kind++) {
		gates[COLL_BLOCKING][kind] = blocking_gate(o, &figures[kind], kind);
		gates[COLL_BLOCKING][kind].short_end =
			short_end(o, kind, gates[COLL_BLOCKING][kind].from);
		gates[COLL_NONBLOCKING][kind] = nonblocking_gate(o, &figures[kind], kind);
		for (enum coll_form form = 0; form < COLL_FORMS; form++)
			open_gate(&gates[form][kind], form, kind, is_traced);
	}
}

void policy_gates_close(struct coll_gate gates[COLL_FORMS][COLL_COUNT], bool is_traced)
{
	for (enum coll_form form = 0; form < COLL_FORMS; form++)
		for (enum coll kind = 0; kind < COLL_COUNT; kind++) {
			gates[form][kind] = (struct coll_gate)COLL_GATE_CLOSED;
			open_gate(&gates[form][kind], form, kind, is_traced);
		}
}

void policy_crowded(const struct policy_options *o, const struct policy_figures *f, enum coll kind,
		    int ranks, uint64_t *out_again, uint64_t *out_always)
{
	uint64_t one = mode_of(o, kind) == BASE_ADMIT_AUTO ? o->threshold_bytes : 0;

	*out_again = f->crowded_again * one;
	*out_always = base_max_u64(f->crowded_always * one * (uint64_t)ranks, *out_again);
}

bool policy_admits_requests(const struct policy_options *o, int ranks, bool oversubscribed)
{
	return o->modes[BASE_FAMILY_NONBLOCKING] == BASE_ADMIT_ON ||
	       (!oversubscribed && ranks <= REQUEST_RANKS_MAX);
}

bool policy_admits_hier(const struct policy_options *o, enum coll kind, uint64_t bytes)
{
	bool is_on = mode_of(o, kind) == BASE_ADMIT_ON;

	switch (kind) {
	case COLL_BCAST:
	case COLL_ALLREDUCE:
	case COLL_REDUCE:
		return bytes >= HIER_LEAST_BYTES || is_on;
	case COLL_ALLTOALL:
		return bytes <= HIER_EXCHANGE_MAX_BYTES && is_on;
	case COLL_ALLGATHER:
	case COLL_ALLGATHERV:
	case COLL_GATHER:
	case COLL_SCATTER:
	case COLL_REDUCE_SCATTER:
	case COLL_REDUCE_SCATTER_BLOCK:
	case COLL_BARRIER:
		return is_on;
	default:
		return false;
	}
}

/* Returns: the least time that the host MPI can take for the call. */
static uint64_t host_ns(enum coll kind, uint64_t bytes, int ranks)
{
	bool is_for_each = coll_pattern(kind) >= COLL_GATHER && coll_pattern(kind) <= COLL_ALLTOALL;
	uint64_t moved = is_for_each ? bytes * (uint64_t)(ranks - 1) : bytes;

	return FIXED_NS + moved / 1000 * BYTE_PS;
}

uint64_t policy_connect_credit(const struct policy_options *o, enum coll kind, uint64_t bytes,
			       int ranks)
{
	uint64_t calls = 1;

	if (o->measures)
		return host_ns(kind, bytes, ranks);
	/* only an option admits local calls */
	if (!coll_is_local(kind))
		calls += base_min_u64(bytes / CONNECT_BYTES, CONNECT_CALLS);
	return calls * (CONNECT_THRESHOLD_NS / CONNECT_CALLS);
}

uint64_t policy_connect_threshold(const struct policy_options *o)
{
	return o->modes[BASE_FAMILY_NONBLOCKING] == BASE_ADMIT_ON ? 0 : CONNECT_THRESHOLD_NS;
}

bool policy_connect_pays(uint64_t host_ns, uint64_t price_ns)
{
	return host_ns / CONNECT_SHARE >= price_ns;
}
