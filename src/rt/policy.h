/* SPDX-License-Identifier: BSD-3-Clause */
/* policy: the decisions of the runtime as pure functions of plain facts, so that tables can test
 * them and messages can explain them. */
#ifndef SLUICE_RT_POLICY_H
#define SLUICE_RT_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "region/region.h"
#include "rt/collective.h"

/* What ranks have in common and measured when their group was made. */
struct policy_group {
	int ranks;
	bool oversubscribed;
	uint32_t vm_ns, copy_ns; /* 64 KiB by process_vm_readv (0: not possible) and by memcpy */
};

/* Smallest message of a kind that may be taken, by the options and by what was measured;
 * UINT64_MAX: none is. */
uint64_t policy_threshold_bytes(enum coll kind);
enum policy_host { HOST_OTHER, HOST_MPICH, HOST_OPEN_MPI };
/* By what the library says of itself; "": not known. */
enum policy_host policy_host_of(const char *library_version);
/* From here on it is taken whatever memory the buffers are; below, when the ranks use theirs again.
 * UINT64_MAX: never for its size alone. */
uint64_t policy_always_bytes(enum coll kind, enum policy_host host);
/*
 * Where ranks share CPUs calls of some kinds have to be larger: smaller ones are passed on, and
 * those below *out_always, too, unless the ranks use their buffers again. 0: no larger than
 * elsewhere.
 */
void policy_crowded_bytes(enum coll kind, enum policy_host host, int ranks, uint64_t *out_again,
			  uint64_t *out_always);

/*
 * Calls of one kind, about one size, on one communicator: are they taken? All ranks count them
 * alike, and change their mind only by an answer that they have in common: do all of them use their
 * buffers again? Asking costs a message each way, so it is done more and more seldom. Zeroed memory
 * is the beginning.
 */
struct policy_habit {
	uint16_t left; /* calls until the next question, and with it */
	uint16_t pass, take; /* calls between questions while they are passed on, and taken */
	bool is_taken;
};
enum policy_step { HABIT_PASS, HABIT_TAKE, HABIT_ASK };
enum policy_step policy_habit_next(struct policy_habit *h);
/* After HABIT_ASK: from now on, and with this call, they are taken, or not. */
void policy_habit_answer(struct policy_habit *h, bool all_use_again);
/* After HABIT_ASK: it cannot be answered now. This call is as those before it, the question comes
 * again with the next. */
void policy_habit_defer(struct policy_habit *h);

/* What is taken of nonblocking forms: between two sizes, from UINT64_MAX: none, but for those in
 * [not_from, not_to), and from a size on in buffers that are used again, UINT64_MAX: none. All
 * ranks of a job come to the same. */
struct policy_window { uint64_t from, to, again, not_from, not_to; };
struct policy_window policy_request_window(enum coll kind, enum policy_host host);
/* ... on a communicator of such ranks. */
bool policy_request_suits(const struct policy_group *g);

/* Should memory that is not mapped (yet) travel by process_vm_* rather than by staging? The same on
 * every rank: made from options that agree and from facts of the whole group. */
bool policy_prefer_vm(int64_t region_kind, const struct policy_group *g);

/* Of which memory domain a rank is. domains: SLUICE_COLL_DOMAINS. */
int policy_domain(int64_t domains, int rank, int ranks, int memory_node);

/* How a buffer is described: adopt at once, when it has earned it, or not. is_shared: other bytes
 * lie in it, which a thread or a message that comes in may write to while it is copied and
 * replaced. */
enum region_intent policy_intent(int64_t region_kind, bool is_shared);

/* Bytes of one rank that one schedule moves; longer messages are cut in equal pieces, which bounds
 * scratch memory. `parts`: how many ranks' data one rank holds (1, or all for gather). */
uint64_t policy_piece_bytes(uint64_t bytes, int parts);

/* ---- returning early --------------------------------------------------------------------- */

enum policy_early {
	EARLY_NO,    /* complete before returning */
	EARLY_NOW,   /* leave as soon as nothing needs this rank */
	EARLY_LATER, /* copy like the others, leave when they keep this rank waiting */
};

struct policy_early_facts {
	int64_t mode;            /* enum base_early */
	int64_t wait_us;         /* SLUICE_RT_EARLY_WAIT; -1: decide */
	uint64_t bytes, min_bytes;
	bool guard_is_ready;
	bool has_mover;          /* a channel, and a CPU for it if it needs one */
	bool has_process; /* ... the worker process, which does not have to be woken mostly */
	bool shares_cpus;        /* fewer CPUs than ranks: who waits lets another rank run */
	bool site_may_try;       /* the last tries from there were worth it */
	uint64_t copy_ns;        /* what copying it all takes, roughly: the most that can be won */
	uint64_t waited_ns; /* how long a partner has had nothing to do but wait for this rank */
	uint64_t partner_copy_ns; /* what copying its share takes that partner, alone */
};
struct policy_early_choice {
	enum policy_early how;
	uint64_t wait_ns;
	const char *reason;      /* a sentence */
};
/* Local: ranks need not come to the same. */
void policy_early(const struct policy_early_facts *f, struct policy_early_choice *out);
/*
 * What an early return has won: the program worked for free_ns until it wanted the data, and then
 * waited for waited_ns; copy_ns: what the call would have taken instead, 0 when nobody knows, as a
 * partner was late. A worker whose CPU was not free after all, so that the program had to copy,
 * wins nothing.
 */
uint64_t policy_gain_ns(uint64_t free_ns, uint64_t waited_ns, uint64_t copy_ns);
/* Was it worth it? free_ns: from the return until somebody wanted the data (or it was all there);
 * cost_ns: guarding, the touch. */
bool policy_was_worth(uint64_t free_ns, uint64_t cost_ns);

#endif
