/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * goal_flow: what a program does, without time. Every operation that may start does, in the order
 * in which it became free; messages meet as MPI's rules say, first come first served. What has not
 * ended when nothing can start any more waits for ever.
 *
 *   goal_flow_run -> goal_flow_explain -> ... -> goal_flow_free
 *
 * The outcome is one of possibly several: where a receive takes any source or tag, and where
 * several receives of the same messages may start in either order, another order may end
 * differently.
 */
#ifndef SLUICE_TOOL_GOAL_FLOW_H
#define SLUICE_TOOL_GOAL_FLOW_H

#include "goal/program.h"

enum goal_flow_state { GOAL_FLOW_WAITS, GOAL_FLOW_BEGUN, GOAL_FLOW_ENDED };

/* Messages to dst from src under tag without a receive, or receives without a message; src and tag
 * of receives may be GOAL_ANY. Lists of operations are linked by goal_flow.link. */
struct goal_flow_class {
	uint32_t dst, src, tag;
	uint32_t posted, posted_last, arrived, arrived_last;
};

/* Operations are numbered through the whole program: first[rank] + index in the rank's block. */
struct goal_flow {
	const struct goal_program *program;
	bool rendezvous; /* sends are not buffered: a send ends when its receive has begun */
	uint32_t op_count;
	uint32_t *first;   /* [ranks + 1] */
	uint32_t *rank;    /* of each operation */
	uint32_t *remaining; /* requirements that are not met */
	uint32_t *partner; /* partner of a send or receive; GOAL_NONE */
	uint32_t *order;   /* order of beginnings */
	uint8_t *state;
	uint32_t ended;           /* operations */
	uint64_t messages, bytes; /* messages that matched */
	uint32_t any_count;       /* receives that take any source or any tag */

	uint32_t *queue, *link;   /* list of operations that may start; see goal_flow_class */
	/* messages to a rank that receives from any source, in order of arrival; NULL: no rank
	 * does */
	uint32_t *before, *after;
	uint32_t *rank_first, *rank_last; /* of those lists */
	uint8_t *wildcards;               /* [ranks]: kinds of wildcards in use */
	struct goal_flow_class *classes;
	uint32_t *slots, mask, class_count, class_cap;
	uint32_t queue_head, queue_tail, began;
	uint32_t *why; /* goal_flow_explain() */
};

/* Executes a program. Returns: 0; -ENOMEM; -EOVERFLOW: too many operations to number. */
int goal_flow_run(struct goal_flow *f, const struct goal_program *p, bool rendezvous);
void goal_flow_free(struct goal_flow *f);
/*
 * After a run that did not end: why[op] is what operation op waits for: an operation that it
 * requires, or a send or receive that could be its partner; GOAL_NONE: there is none. Returns: 0 or
 * -ENOMEM.
 */
int goal_flow_explain(struct goal_flow *f);

const struct goal_op *goal_flow_op(const struct goal_flow *f, uint32_t op, uint32_t *out_rank);

#endif
