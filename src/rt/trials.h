/* SPDX-License-Identifier: BSD-3-Clause */
/* Trials, for the files of rt/ only. */
#ifndef SLUICE_RT_TRIALS_H
#define SLUICE_RT_TRIALS_H

#include "rt/private.h"

/* A call that a trial may measure; all but `call` is equal on all ranks. */
struct trials_call {
	enum coll kind;
	uint64_t bytes; /* of one rank's message; 0: unknown */
	int root;
	const char *name;
	uint32_t uses;  /* of its buffers, since the last look at calls of its class */
	struct call_class *of;
	const struct coll_call *call; /* NULL: this rank cannot prepare it */
};

/* Returns: 1 (Sluice executes the call), 0 (the host MPI) or -errno. Context: collective. */
int trials_admit(struct rt_comm *c, const struct trials_call *call);
/* Returns: whether Sluice may execute calls of the class in reused buffers only. Where the program
 * has loaded libcuda, each call is looked at: its buffers may be memory of a GPU. */
static inline bool trials_need_reuse(const struct rt_comm *c, const struct call_class *k)
{
	return c->has_gpu || k->trial.needs_reuse;
}
/* Returns: whether the class waits until all ranks reuse their buffers. Then rt_trial_passes() lets
 * few calls look. */
bool trials_wait(const struct rt_comm *c, const struct call_class *k);
/* Returns: whether the host MPI executes a call that trials measure without further questions. */
bool trials_pass(const struct rt_comm *c, struct call_class *k, uint64_t bytes);
/* Calls of other classes before a trial that does not go on is given up. */
#define TRIALS_WAITING_MAX 64
uint64_t trials_now_ns(void);
/* Reports the result of a trial to the counters, the log, the trace and learned.c. */
void trials_report(const struct rt_comm *c, enum coll_form form, const struct trials_call *call,
		   uint64_t begin_ns);
/* Counts an admitted call, and whether peers had its memory mapped. */
void trials_count(struct rt_comm *c, bool is_mapped);

/* ---- learned.c --------------------------------------------------------------------------- */

/* Keeps the result of a trial. */
void learned_note(enum coll_form form, enum coll kind, uint64_t bytes, bool is_for_sluice);
/* Writes figures[COLL_COUNT], as the trials have changed them, to a file for this host MPI. */
void learned_write(const char *path, const char *mpi, const struct policy_figures *figures);

/* ---- admit.c ----------------------------------------------------------------------------- */

/* Counts uses of both buffers. Returns: whether peers have mapped, or will map, both. */
bool admit_count_uses(const struct coll_call *call, uint32_t uses);
/* As trials_admit(), while all ranks reuse their buffers. */
int admit_reused(struct rt_comm *c, const struct trials_call *call);
/* Admits a call in any buffers. A long reduction is cut unless all ranks reuse theirs.
 * Returns: 1 or -errno. Context: collective. */
int admit_always(struct rt_comm *c, const struct trials_call *call);
/* Describes a few words that peers read in the slot, like the edges of a buffer without a whole
 * page: at most XFER_EDGE_BYTES. */
struct region_desc admit_describe_words(const uint64_t *words, uint64_t count);
/* Combines `count` words of all ranks by GOAL_AND, GOAL_MAX or GOAL_ADD. Returns: 0 or -errno.
 * Context: collective. */
int admit_agree(struct rt_comm *c, const char *name, enum goal_type op, uint64_t *mine,
		uint64_t *out, uint64_t count);

#endif
