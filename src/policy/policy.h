/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * policy: the decisions of the runtime. A function reads its arguments and state of its caller,
 * never an option, a clock or another process, so that tables can test each decision and messages
 * can explain it. The caller passes options among the facts (scripts/layers: no base_opt here).
 *
 *   memory.c   how peers reach a buffer, and at which rates
 *   reuse.c    calls that gain in reused buffers only: admitted while all ranks reuse buffers
 *   trial.c    whether the host MPI or Sluice executes the calls of a class faster, by trials
 *   detach.c   whether a call returns before its data is complete, and whether that was worth it
 *   sites.c    the results of the last early returns of each call site
 *
 * Context: any thread, never a signal handler. Decisions that all ranks must share say so.
 */
#ifndef SLUICE_POLICY_H
#define SLUICE_POLICY_H

#include "base/backoff.h"
#include "coll/coll.h"
#include "region/region.h"

/* ---- memory ------------------------------------------------------------------------------ */

/* Facts that all ranks of a group share, measured when the group was created. */
struct policy_group {
	int ranks;
	bool oversubscribed;
	uint32_t vm_ps, copy_ps; /* a byte by process_vm_readv (0: not possible) and by memcpy */
};

/* Returns: whether unmapped memory travels by process_vm_* rather than by staging. Shared by all
 * ranks. */
bool policy_prefer_vm(int64_t region_kind, const struct policy_group *g);

/* Sets picoseconds per byte of a copy from or to memory that is not adopted, and from or to adopted
 * memory, which two ranks share. */
void policy_copy_rates(const struct policy_group *g, uint32_t *out_private_ps,
		       uint32_t *out_mapped_ps);

/* Returns: whether to adopt a buffer at once, after enough uses, or never. is_shared: another
 * thread or an incoming message may write between the buffer's parts. */
static inline enum region_intent policy_intent(int64_t region_kind, bool is_shared)
{
	if (is_shared)
		return REGION_LOOKUP;
	return region_kind == BASE_REGION_ARENA ? REGION_FORCE : REGION_USE;
}

/* As policy_intent() for a buffer that is packed while it is not adopted, and is not shared. */
static inline enum region_intent policy_intent_packed(int64_t region_kind)
{
	return region_kind == BASE_REGION_ARENA ? REGION_FORCE : REGION_USE_PACKED;
}

#define POLICY_PIECE_MAX ((uint64_t)256 << 20)
#define POLICY_PIECE_MIN ((uint64_t)1 << 20)
#define POLICY_PIECE_LEAST ((uint64_t)64 << 10) /* in a small arena */
/* Returns: bytes of one rank that one schedule moves. Longer messages are cut, which bounds scratch
 * memory. parts: ranks whose data one rank holds (1, or all of them in a gather). most:
 * policy_piece_most(). */
static inline uint64_t policy_piece_bytes(uint64_t bytes, int parts, uint64_t most)
{
	uint64_t max = base_max_u64(POLICY_PIECE_MAX / (uint64_t)parts, POLICY_PIECE_MIN);

	max = base_min_u64(max, base_max_u64(most / (uint64_t)parts, POLICY_PIECE_LEAST));
	return base_min_u64(bytes, max);
}

/* Returns: the most bytes of one rank that may have to be copied into an arena of this length. Of a
 * small arena adopted buffers, and the copies of other operations in flight, take the rest. */
static inline uint64_t policy_piece_most(uint64_t arena_bytes) { return arena_bytes / 16; }

/* Bytes of one rank that one run of a reduction combines while ranks do not reuse their buffers:
 * packed operands and results stay in the second-level cache, and take little new memory. */
#define POLICY_PIECE_PACKED ((uint64_t)512 << 10)

/* ---- reuse of buffers -------------------------------------------------------------------- */

/*
 * Calls of one collective and one size class on one communicator. All ranks count these calls
 * alike, and change between admitting and passing on only by a shared answer: do all ranks reuse
 * their buffers? A question costs a message each way, so questions become rare. Zeroed memory is
 * the initial state.
 */
struct policy_reuse {
	struct backoff passing, admitting; /* calls between questions, in either state */
	bool is_admitted;
	_Atomic uint16_t admitted; /* calls since the last question */
	_Atomic uint16_t unmapped; /* admitted calls in memory that peers had not mapped */
	/* nonblocking calls: the question waits for the next blocking call */
	bool is_asked;     /* the question waits */
	bool would_agree;  /* this rank's answer */
	uint16_t deferred; /* calls since the question waits */
};
enum policy_step { REUSE_PASS, REUSE_ADMIT, REUSE_ASK };
enum policy_step policy_reuse_next(struct policy_reuse *r);
/* Sets the shared answer to REUSE_ASK, for this call and for the following calls. */
void policy_reuse_answer(struct policy_reuse *r, bool all_reuse);
/* Defers REUSE_ASK where no rank can answer now: the state stays, and the next call asks again. */
void policy_reuse_defer(struct policy_reuse *r);
/* Counts an admitted call. r: NULL where the call was admitted in any buffers. */
static inline void policy_reuse_count(struct policy_reuse *r, bool is_mapped)
{
	if (!r)
		return;
	atomic_fetch_add_explicit(&r->admitted, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&r->unmapped, !is_mapped, memory_order_relaxed);
}
/* Returns: whether most calls admitted since the last question were in memory that peers had
 * mapped. */
bool policy_reuse_was_right(const struct policy_reuse *r);

#define POLICY_SIZE_CLASSES 14
/* Returns: the size class of a call, 0 to POLICY_SIZE_CLASSES - 1: powers of two from 16 KiB on;
 * 0 bytes, an unknown size, count as 64 KiB. */
int policy_size_class(uint64_t bytes);
/* Returns: the least size of a class. */
uint64_t policy_class_bytes(int size_class);
/*
 * Returns: n, where every n-th call of the class looks whether buffers are reused: one in a
 * megabyte, and fewer after answers that they are not. To look costs a microsecond, which is much
 * for a call of 16 KiB. Odd, as programs use two or four buffers in turn.
 */
uint32_t policy_reuse_stride(const struct policy_reuse *r, int size_class);

/* ---- trials ------------------------------------------------------------------------------ */

/*
 * A class of calls: one collective and one size class on one communicator. In a trial the host MPI
 * and Sluice execute POLICY_TRIAL_CALLS calls in turn, each rank keeps the times, and then all
 * ranks sum the costs and draw the same conclusion. Until the next trial the faster of the two
 * executes the calls. Trials become rare while their results agree, and the rarer the dearer they
 * are, so that their cost is bounded: with n calls about 4 log8(n / 16) take the slower way. All
 * ranks count calls alike. Zeroed memory is the initial state: a trial is due.
 *
 * The method is that of STAR-MPI (Faraj, Yuan, Lowenthal, ICS 2006): measure, select, and measure
 * again.
 */
#define POLICY_TRIAL_CALLS 8u

enum policy_executor { BY_HOST, BY_SLUICE };
struct policy_trial {
	struct backoff next; /* calls until the next trial */
	uint32_t calls;      /* of the running trial so far; the caller counts them */
	uint32_t batch;      /* calls of one executor in a row; 0: one */
	bool is_running;
	bool is_for_sluice;  /* result of the last trial */
	/* Sluice is tried, and used, only while all ranks reuse their buffers: it lost in memory
	 * that peers had not mapped, or was not tried there */
	bool needs_reuse;
	bool wins_in_new; /* the last trial in such memory was for Sluice */
	uint64_t host_cost, sluice_cost; /* of the last trial: mean over ranks, in ns per MiB */
};
enum policy_trial_step {
	TRIAL_USE_HOST,   /* the host MPI was faster */
	TRIAL_USE_SLUICE,
	TRIAL_DUE,        /* policy_trial_begin() may follow */
	TRIAL_HOST,       /* the trial runs: the host MPI executes this call, its times are taken */
	TRIAL_SLUICE,
	TRIAL_JUDGE,      /* all calls of the trial have ended: policy_trial_judge() must follow */
};
enum policy_trial_step policy_trial_next(struct policy_trial *t);
void policy_trial_begin(struct policy_trial *t);
static inline uint32_t policy_trial_batch(const struct policy_trial *t)
{
	return t->batch ? t->batch : 1;
}
/* Returns: whether Sluice lost the last trial in memory that peers had not mapped. */
static inline bool policy_trial_lost_in_new(const struct policy_trial *t)
{
	return t->needs_reuse && !t->is_for_sluice;
}
/*
 * Delays the first trial of a class of short calls, which would cost more than the calls before.
 * It also waits until all ranks reuse their buffers: below 64 KiB Sluice gains in no others.
 */
void policy_trial_init(struct policy_trial *t, int size_class);
/* Returns: true, and counts the call, where policy_trial_next() would return TRIAL_USE_HOST. */
bool policy_trial_passes(struct policy_trial *t);
/* Returns: mean time of an executor in the last trial, for `bytes` bytes of one rank's message. */
uint64_t policy_trial_us(const struct policy_trial *t, enum policy_executor by, uint64_t bytes);

/* Returns: the time that Sluice saves in a call with `bytes` bytes of one rank's message, by the
 * last trial; 0 where it has lost that. */
uint64_t policy_trial_gain_us(const struct policy_trial *t, uint64_t bytes);

/* One call of a trial on one rank. Of a nonblocking call `end` is the end of the call that
 * completed its request. */
struct policy_trial_call {
	uint64_t begin_ns, end_ns;
	uint64_t start_ns; /* nonblocking: time in the call that started it, */
	uint64_t polled_at_ns, polled_ns; /* first test or wait; time in all of them */
	uint64_t bytes; /* of this rank */
	bool is_root, is_of_sluice, is_unmapped;
};
/*
 * Returns: the time that the call took from this rank. It begins when the rank could have left at
 * the earliest: when the last rank has entered, or, where data flows from the root, the root.
 * Waiting for late partners is thus no cost, but waiting without need is.
 */
uint64_t policy_trial_cost(enum coll kind, bool is_root, const struct policy_trial_call *call,
			   uint64_t last_begin_ns, uint64_t root_begin_ns);
/*
 * As policy_trial_cost(), for a nonblocking call: the time inside MPI. The computation between
 * start and completion is no cost. Time in calls that test or wait is spread evenly from the first
 * of them to the end; the part before the rank could have completed is no cost.
 */
uint64_t policy_trial_request_cost(enum coll kind, bool is_root,
				   const struct policy_trial_call *call, uint64_t last_begin_ns,
				   uint64_t root_begin_ns);
/* Returns: false where clocks of ranks cannot be compared: this rank left before another came. */
bool policy_trial_has_clock(enum coll kind, const struct policy_trial_call *call,
			    uint64_t last_begin_ns, uint64_t root_begin_ns);

/* Words of one rank; their sums over all ranks, which all of them have alike. */
struct policy_trial_result {
	uint64_t cost_ns[POLICY_TRIAL_CALLS], bytes[POLICY_TRIAL_CALLS];
	uint64_t ranks;         /* each adds 1 */
	uint64_t unmapped;      /* calls of Sluice in memory that peers had not mapped */
	uint64_t computes;      /* not 0: a reduction */
	uint64_t without_clock; /* not 0: no common clock; the figures of the host MPI decide */
};
#define POLICY_TRIAL_WORDS (sizeof(struct policy_trial_result) / sizeof(uint64_t))
/* Ends a trial without a result: the last result holds, and the next trial comes late. */
void policy_trial_give_up(struct policy_trial *t);
void policy_trial_judge(struct policy_trial *t, const struct policy_trial_result *r);

/* ---- early return ------------------------------------------------------------------------ */

enum policy_detach {
	DETACH_NEVER,   /* complete before returning */
	DETACH_NOW,     /* return as soon as nothing needs this rank */
	DETACH_IF_LATE, /* copy like the others, return when a partner keeps this rank waiting */
};

struct policy_detach_facts {
	int64_t mode;            /* enum base_early */
	int64_t wait_us;         /* how long to wait for a late partner; -1: decide */
	uint64_t bytes, min_bytes;
	bool guard_is_ready;
	bool has_mover;          /* a channel, and a CPU for it if it needs one */
	bool has_process;        /* the worker process, which rarely needs to be woken */
	bool shares_cpus;        /* fewer CPUs than ranks: waiting lets another rank run */
	bool site_may_try;       /* the last early returns of the call site were worth it */
	uint64_t copy_ns;        /* estimated time to copy everything: the most that can be won */
	uint64_t waited_ns;      /* since when a partner only waits for this rank */
	uint64_t partner_copy_ns; /* estimated time for that partner to copy its share alone */
};
struct policy_detach_choice {
	enum policy_detach how;
	uint64_t wait_ns;
	const char *reason; /* a sentence for the trace and the log */
};
/* Context: each rank decides for itself. */
void policy_detach(const struct policy_detach_facts *f, struct policy_detach_choice *out);
/*
 * Returns: the time that an early return has saved; nothing where a worker had no CPU of its own
 * and the program copied. free_ns: the program computed before it needed the data; waited_ns: the
 * program then waited; copy_ns: the call without the early return, 0: unknown (a partner was late).
 */
uint64_t policy_gain_ns(uint64_t free_ns, uint64_t waited_ns, uint64_t copy_ns);
/* free_ns: time from the return until a caller needed the data or the operation completed; cost_ns:
 * guarding and the fault. */
bool policy_was_worth(uint64_t free_ns, uint64_t cost_ns);

/* ---- call sites -------------------------------------------------------------------------- */

struct policy_site {
	_Atomic uintptr_t key;
	struct backoff backoff; /* calls that complete before they return, until the next try */
};
/* Returns: the record of calls from `address` of about this size. Never NULL; sites may share one
 * when there are more than the table holds. */
struct policy_site *policy_site(const void *address, bool is_root, uint64_t bytes);
bool policy_site_may_try(struct policy_site *s);
/* Records an early return: the program computed undisturbed for free_ns and paid cost_ns. */
void policy_site_learn(struct policy_site *s, uint64_t free_ns, uint64_t cost_ns);

#endif
