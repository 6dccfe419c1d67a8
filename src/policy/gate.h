/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gate: which calls Sluice admits, by collective and size.
 *
 *   options + figures of the host MPI  --policy_gates()-->  one struct coll_gate for each
 *                                      collective and form  --policy_admit()-->  enum admission
 *
 * A gate is written while Sluice starts and stops, and read by every call. All ranks of a job have
 * the same gates, so that they decide alike.
 */
#ifndef SLUICE_POLICY_GATE_H
#define SLUICE_POLICY_GATE_H

#include <stdio.h>

#include "base/base.h"
#include "coll/coll.h"

enum coll_form { COLL_BLOCKING, COLL_NONBLOCKING, COLL_FORMS };

/* Sizes are the bytes of one rank's message, which all ranks know. */
struct coll_gate {
	uint64_t gate;     /* smaller calls go to the host MPI without another check; 0: none do,
			      as while calls are traced. One load and one compare. */
	uint64_t from, to; /* sizes that may be admitted, both included; from UINT64_MAX: none */
	struct coll_hole {
		uint64_t from, to;
	} holes[2];        /* exceptions: sizes [from, to) are not admitted */
	/* sizes that are admitted in any buffers, both included; other sizes are admitted only
	 * while all ranks reuse their buffers */
	uint64_t always_from, always_to;
	uint64_t again;    /* nonblocking: the figures admit sizes from here on in reused buffers */
	uint64_t measured_from; /* trials decide from here on: policy_trial; UINT64_MAX: never */
	uint64_t short_end; /* smaller blocking calls are admitted where ranks take turns on a CPU;
			       0: none */
};

#define COLL_GATE_CLOSED                                                                           \
	{                                                                                          \
		.gate = UINT64_MAX, .from = UINT64_MAX, .always_from = UINT64_MAX,                 \
		.again = UINT64_MAX, .measured_from = UINT64_MAX                                   \
	}

static inline bool coll_gate_measures(const struct coll_gate *g, uint64_t bytes)
{
	return bytes >= g->measured_from;
}

static inline bool coll_gate_is_short(const struct coll_gate *g, uint64_t bytes)
{
	return base_unlikely(bytes < g->short_end);
}

static inline bool coll_gate_is_closed(const struct coll_gate *g)
{
	return g->from == UINT64_MAX && !g->short_end;
}

static inline bool coll_gate_in_holes(const struct coll_gate *g, uint64_t bytes)
{
	return (bytes >= g->holes[0].from && bytes < g->holes[0].to) ||
	       (bytes >= g->holes[1].from && bytes < g->holes[1].to);
}

/* Returns: whether the call goes to the host MPI without another check. */
static inline bool coll_gate_passes(const struct coll_gate *g, uint64_t bytes)
{
	return bytes < g->gate || (g->gate && coll_gate_in_holes(g, bytes));
}

enum admission {
	ADMIT_NOT_SMALL, /* below the least size */
	ADMIT_NOT,       /* another size for which the host MPI is faster */
	ADMIT_REUSED,    /* while all ranks reuse their buffers */
	ADMIT_ALWAYS,
};

static inline enum admission policy_admit(const struct coll_gate *g, uint64_t bytes)
{
	if (bytes < g->from)
		return ADMIT_NOT_SMALL;
	if (bytes > g->to || coll_gate_in_holes(g, bytes))
		return ADMIT_NOT;
	return bytes >= g->always_from && bytes <= g->always_to ? ADMIT_ALWAYS : ADMIT_REUSED;
}

/* Returns: whether the figures admit a nonblocking call, where no trial has told. */
static inline bool policy_figures_admit(const struct coll_gate *g, uint64_t bytes)
{
	return policy_admit(g, bytes) == ADMIT_ALWAYS || bytes >= g->again;
}

/* ---- what gates are made from ------------------------------------------------------------ */

/* The options that decide which calls are admitted. */
struct policy_options {
	int64_t modes[BASE_FAMILY_COUNT]; /* enum base_admit */
	uint64_t threshold_bytes;         /* SLUICE_COLL_THRESHOLD */
	bool hier;                        /* SLUICE_HIER */
	bool measures;                    /* SLUICE_DECIDE */
	bool switches;                    /* SLUICE_ENDPOINTS_SWITCH */
};

/* Least sizes for which Sluice is faster than the host MPI; host-mpi.tune describes the fields. */
struct policy_figures {
	uint64_t again, always;
	uint64_t crowded_again, crowded_always; /* times SLUICE_COLL_THRESHOLD */
	struct policy_sizes {
		uint64_t from, to, not_from, not_to, again;
	} nonblocking;
};

/* Sets the figures for a host MPI without a file: large calls in reused buffers. */
void policy_figures_init(struct policy_figures figures[COLL_COUNT]);
/* Resets the figures before the lines of a file. */
void policy_figures_begin(struct policy_figures figures[COLL_COUNT]);
/* Sets the figure of one line: "bcast.again", "128K". Returns: 0, -ENOENT (name) or -EINVAL. */
int policy_figures_set(struct policy_figures figures[COLL_COUNT], const char *name,
		       const char *value);
/* Writes the figures as lines of a file. */
__attribute__((cold))
void policy_figures_print(const struct policy_figures figures[COLL_COUNT], FILE *out);
/* Returns: a hash over all figures, on which ranks must agree. */
uint64_t policy_figures_hash(const struct policy_figures figures[COLL_COUNT]);

/* Fills the gates of all collectives. is_traced: gates check, and so count, small calls. */
__attribute__((cold))
void policy_gates(struct coll_gate gates[COLL_FORMS][COLL_COUNT], const struct policy_options *o,
		  const struct policy_figures figures[COLL_COUNT], bool is_traced);
/* Closes all gates: Sluice admits no further call. */
void policy_gates_close(struct coll_gate gates[COLL_FORMS][COLL_COUNT], bool is_traced);

/*
 * Sets the least sizes where ranks share CPUs. Sluice passes on calls below *out_again, and calls
 * below *out_always unless all ranks reuse their buffers. 0: the sizes of the gate hold.
 */
void policy_crowded(const struct policy_options *o, const struct policy_figures *f, enum coll kind,
		    int ranks, uint64_t *out_again, uint64_t *out_always);

/* Returns: whether nonblocking calls of a communicator may be admitted. */
bool policy_admits_requests(const struct policy_options *o, int ranks, bool oversubscribed);

/* Returns: whether Sluice admits the collective and size over several nodes. */
bool policy_admits_hier(const struct policy_options *o, enum coll kind, uint64_t bytes);

/* ---- the bits of reductions --------------------------------------------------------------- */

/* A reduction. Equal on all ranks. */
struct policy_reduction {
	int ranks;
	bool is_predefined;    /* the operation */
	bool commutes;         /* an operation of the program */
	enum goal_type op;     /* GOAL_NOP: none that rt computes */
	enum goal_dtype type;  /* GOAL_DTYPE_COUNT: unknown, for example complex */
};

/*
 * Returns: whether Sluice and the host MPI compute equal bits, in whatever order and grouping they
 * combine the ranks:
 *
 *   integers, predefined operation      always: sums and products wrap, the rest has no order; but
 *                                       no sums of 8 and 16 bits, which Open MPI saturates
 *   floating point sums and products    two ranks: both compute a op b. If several operands are
 *                                       NaN, the result is one of them; MPI does not say which
 *   floating point MIN and MAX          never: the host MPI's result depends on the order if an
 *                                       operand is NaN, or for zeros of both signs
 *   operations of the program           two ranks, and the operation does not commute
 *
 * A product of an unknown type may be complex. Complex products need not commute to the last bit.
 */
bool policy_is_exact(const struct policy_reduction *r);
/* Returns: whether SLUICE_SUMS leaves the reduction to the host MPI. */
bool policy_leaves_to_host(enum base_sums sums, bool is_exact);

/* ---- connecting a communicator ----------------------------------------------------------- */

/*
 * A communicator whose calls would be admitted earns credit with each, in nanoseconds, and is
 * connected when its credit exceeds the threshold. All ranks count alike. Where trials decide, the
 * credit is the least time of the call in the host MPI, and connecting costs at most 1/20 of it.
 */
uint64_t policy_connect_credit(const struct policy_options *o, enum coll kind, uint64_t bytes,
			       int ranks);
uint64_t policy_connect_threshold(const struct policy_options *o);
/* Returns: whether calls that have taken host_ns pay for connecting, which takes price_ns. */
bool policy_connect_pays(uint64_t host_ns, uint64_t price_ns);

#endif
