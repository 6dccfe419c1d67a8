/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of rt/ only. */
#ifndef SLUICE_RT_PRIVATE_H
#define SLUICE_RT_PRIVATE_H

#include <pthread.h>

#include "mailbox/mailbox.h"
#include "coll/coll.h"
#include "engine/engine.h"
#include "exec/exec.h"
#include "goal/goal.h"
#include "guard/guard.h"
#include "node/node.h"
#include "progress/progress.h"
#include "region/region.h"
#include "policy/policy.h"
#include "rt/collective.h"
#include "rt/early.h"
#include "rt/rt.h"
#include "trace/trace.h"

struct rt_request;
struct requests_list { struct rt_request *first, *last; };
/* Of a communicator: requests.c. */
struct requests {
	pthread_mutex_t lock; /* protects the lists, and exec's calls for them */
	struct requests_list queued, active; /* in the order of their start */
	struct rt_request *in_call; /* that is being started; it may be over, and nobody's */
	struct exec_run *behind;    /* what had the place of the first that is queued, when that was
				       tried last */
	_Atomic uint32_t count; /* started, and not handed out */
	_Atomic uint32_t users; /* threads that look at it */
	bool is_busy; /* it is in the list of those that have some; under that one's lock */
};

/* Of a communicator of rt_comm_create_lanes(): request_lanes.c. */
struct lanes_word;
struct lanes {
	pthread_mutex_t lock;            /* protects `used` */
	uint32_t n;
	uint64_t used;                   /* a bit a lane */
	struct lanes_turns {
		uint64_t exec, mailbox;
	} turns[MAILBOX_LANES_MAX]; /* that were started in each */
	struct lanes_word *said;  /* by each rank, when one is to be taken: whoever has the
				     communicator can take part */
};


struct rt_comm {
	struct node_group *group;
	struct exec_comm *exec;
	struct mailbox *mailbox; /* of short requests */
	struct lanes *lanes; /* NULL: collectives are in the order of their start */
	bool prefer_vm;
	bool is_crowded; /* ranks share CPUs */
	bool takes_requests;
	bool thread_multiple;
	int worker_group; /* what the worker process calls this one; 0: it does not know it */
	void (*progress)(void *ctx); /* of struct node_oob */
	void *progress_ctx;
	/* work space for one schedule */
	struct goal_op *ops;
	struct goal_edge *edges;
	struct goal_block *block;
	size_t block_cap;
	struct coll_part *parts[2]; /* of what is sent, and received; by rank or neighbour */
	struct coll_domains domains; /* of memory: collectives of two levels */
	struct reduce_domains reduce_domains; /* the same */
	int *domain_words;
	uint64_t *starts;           /* of each rank's result in a reduction */
	/* packed forms of the send and the receive buffer */
	struct region_extent scratch[GOAL_MEMS - 1];
	struct region_extent parts_scratch; /* of reductions in two levels */
	struct requests requests;
	/* by kind, and by size in powers of two */
	struct policy_reuse reuse[COLL_COUNT][POLICY_SIZE_CLASSES];
	struct policy_reuse requests_reuse[COLL_COUNT][POLICY_SIZE_CLASSES];
	/* of the call that is being taken; NULL: it is taken in any case */
	struct policy_reuse *reuse_now;
	struct policy_reuse *request_reuse_now; /* of the request that is created next */
	bool requests_wait; /* any of requests_reuse does, and rt_intercept_ref() has been called for it */
};

/* What the trampolines look at, and what it is the sum of. */
static inline void intercept_count_up(_Atomic uint32_t *what)
{
	atomic_fetch_add_explicit(what, 1, memory_order_release);
	rt_intercept_ref();
}
static inline void intercept_count_down(_Atomic uint32_t *what)
{
	atomic_fetch_sub_explicit(what, 1, memory_order_release);
	rt_intercept_unref();
}

/* ---- requests.c -------------------------------------------------------------------------- */

/* 0 or -ENOMEM; destroyed() is due in any case. */
int requests_comm_created(struct rt_comm *c);
void requests_comm_destroyed(struct rt_comm *c);
/* Around a blocking collective: other threads do not step requests of this communicator meanwhile,
 * as both use what exec/ has once a communicator. This thread does, in its waits. */
void requests_enter_blocking(struct rt_comm *c);
void requests_leave_blocking(struct rt_comm *c);
/* Before a blocking collective begins: all that were started before it have begun. */
void requests_before_blocking(struct rt_comm *c);
/* exec_begin() has no slot: a step towards one, if a request has it. */
void requests_make_room(struct rt_comm *c);
/* Memory that is kept for the next ones is given back. */
void request_memory_fini(void);
/* A peer waits for what only this process can publish. A thread of ours. */
void requests_publish_queued(void);

/* ---- request_lanes.c --------------------------------------------------------------------- */

/* For a communicator whose exec there is. NULL: no memory. */
struct lanes *lanes_create(const struct rt_comm *c);
void lanes_destroy(struct lanes *l); /* NULL: nothing */

/* ---- pending operations: pending.c ------------------------------------------------------- */

#define PENDING_MAX 256 /* of a process; a call beyond it completes the oldest first */
#define PENDING_RANGES 2 /* guarded ranges of one: what it writes, what it reads */

/* An operation that has been returned from. Written by the thread that leaves; then under the lock.
 */
struct pending {
	struct guard_range ranges[PENDING_RANGES];
	uint32_t range_count;
	struct exec_run *run;
	struct rt_comm *comm;
	struct region_desc descs[2]; /* to be released */
	uintptr_t lo[2], hi[2];      /* the program's buffers, every byte */
	int owner_tid;               /* who may call the host MPI, were it not touching memory */
	struct policy_site *site;
	struct trace_name trace;     /* the call, for the trace */
	uint64_t detached_ns;            /* when the call returned */
	uint64_t copy_ns; /* what the rest would have taken this rank; 0: a partner had not come */
	_Atomic uint64_t touched_ns; /* when somebody wanted it; 0: nobody yet */
	_Atomic uint32_t touches;
	_Atomic uint64_t waited_ns;  /* what the program has waited since */
	_Atomic bool is_called;      /* a later call wanted it, not a touch */
	_Atomic uint32_t refs;       /* threads that look at it; under the lock from zero */
	bool in_use;
	struct pending *next;
};

/* Enter/leave the lock: every signal blocked. */
void pending_lock(void);
void pending_unlock(void);
/* NULL: all are in use. */
struct pending *pending_alloc(void);
void pending_free(struct pending *p); /* was not linked */
void pending_link(struct pending *p);     /* it is pending from here on */
void pending_unref(struct pending *p);   /* one reference less */
/* All of the communicator, in any state; none is left. */
void pending_complete_comm(struct rt_comm *c);
/* The one whose run this is; waits until it is retired. */
void pending_complete_run(struct exec_run *r);
/* The one whose run this is, if it is over. False: it is not, or there is none. */
bool pending_retire_run(struct exec_run *r);
/* ... if it is not, with a reference; NULL: there is none. */
struct pending *pending_ref_run(struct exec_run *r);
/* Around a collective of ours in which the host MPI may be called. */
void host_call_begin(void), host_call_end(void);
/* What channels of this process hold is taken further, or back when they hang; for peers. A thread
 * of ours. */
void pending_rescue_all(void);
/* attendant.c: the thread that does so when a peer calls; from the first call on, which comes when
 * there is a channel and a group, or a queue of requests. */
void progress_thread_start(void);
/* A thread of ours: what the others must know. */
void progress_thread_own(void);
/* The channel has done what it could for this one: exec_leave()'s callback. */
void pending_channel_idle(void *arg);
int pending_init(void); /* the guard, the hooks; once a process; 0 or -errno */

/* Where ranks share CPUs: see policy_crowded(). */
void rt_crowded(enum coll kind, int ranks, uint64_t *out_again, uint64_t *out_always);

/* ---- reuse.c ----------------------------------------------------------------------------- */

/* Are both of its sides mapped, or about to be? Both count a use. */
bool reuse_is_seen(const struct coll_call *call);
/* Collective: the bits that all ranks have set. 0 or -errno. */
int reuse_agree(struct rt_comm *c, const char *name, uint64_t mine, uint64_t *out);

/* Of the collective that rt_takes() has said yes to: could peers reach both of its sides where they
 * are? */
void reuse_note(struct rt_comm *c, bool is_mapped);
/* request_choice.c: no question is left. */
void request_choice_fini(struct rt_comm *c);

/* ---- leave.c: may this call return early, and doing it ----------------------------------- */

/* Who can do what is left when no rank waits for it. */
enum detach_movers {
	DETACH_TO_ANY,     /* the worker process, or a channel */
	DETACH_TO_WORKER, /* what is computed, channels do not */
	DETACH_TO_RANKS,   /* what only ranks may */
};

struct leave {
	const char *name;
	const void *site;
	bool is_root;
	uint64_t bytes;  /* that this rank sends or receives in all */
	uint64_t copy_bytes; /* to copy so many takes as long as all of its part */
	uint64_t partner_copy_bytes; /* ... as what it has to do with one other rank */
	enum detach_movers movers;
	struct region_desc *descs[2]; /* released by the pending operation, if there is one */
};
/* Ends the run, early or not: 0 and *out_detached tells which, or -errno. */
int detach_or_wait(struct rt_comm *c, struct exec_run *r, const struct leave *l, bool *out_detached);

/* ---- movers.c: who moves what no rank waits for ------------------------------------------ */

#define COPY_BYTES_PER_NS 14 /* one core of today, from memory to memory */
static inline uint64_t copy_ns(uint64_t bytes)
{
	return (bytes + COPY_BYTES_PER_NS - 1) / COPY_BYTES_PER_NS;
}

void offload_open(struct rt_comm *c);
/* Who could do what is left on this communicator, and what they are at: has_process to asleep of
 * *f. */
void offload_facts(struct rt_comm *c, enum detach_movers to, struct progress_facts *f);
/* This rank goes away from the run; the worker process has been told, if that was the decision,
 * which is returned. */
enum progress_action offload_announce(struct rt_comm *c, const struct exec_run *r,
				 struct progress_facts *f);
/* PROGRESS_FEED: the run has been left, as p. */
void offload_feed(struct exec_run *r, struct pending *p);

/* ---- workers.c: the worker process of the job -------------------------------------------- */

/* Collective, as rt_comm_create(): start or find it, attach, make the group known. Returns 0, also
 * when there is none, or -errno when the oob calls fail. */
int worker_setup_comm(struct rt_comm *c, const struct node_oob *oob);
void worker_setup_comm_destroyed(struct rt_comm *c);
/* Does it serve this communicator, and live? */
bool worker_setup_serves(const struct rt_comm *c);
/* A rank waits: see worker_check(). Async-signal-safe. */
void worker_setup_check(struct rt_comm *c);
/* exec's callback for ranks that wait; arg: the communicator. */
void waiter_progress(void *arg);
/* What it has moved for this process goes into the counters. */
void worker_setup_count(void);

#endif
