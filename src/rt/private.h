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
/* The requests of a communicator: request/requests.c. */
struct requests {
	pthread_mutex_t lock; /* protects the lists, and the calls of exec/ for them */
	struct requests_list queued, active; /* in the order of their starts */
	/* The request inside rt_request_start(). It may already be completed and freed. */
	struct rt_request *in_call;
	/* Run in the slot for which the first queued request waits, as of the last try. */
	struct exec_run *behind;
	_Atomic uint32_t count; /* started and not collected */
	_Atomic uint32_t users; /* threads between requests_busy_get() and requests_busy_put() */
	bool is_busy;           /* in the list of communicators with requests; under its lock */
};

/* The lanes of a communicator of rt_comm_create_lanes(): request/lanes.c. */
struct lanes_word;
struct lanes {
	pthread_mutex_t lock; /* protects `used` */
	uint32_t n;
	uint64_t used;        /* one bit per lane */
	struct lanes_turns {
		uint64_t by[2]; /* starts so far, by enum request_way */
	} turns[MAILBOX_LANES_MAX];
	struct lanes_word *words; /* [ranks] work space of an allocation: it must not need memory */
};


struct rt_comm {
	struct node_group *group;
	struct exec_comm *exec;
	struct mailbox *mailbox; /* small requests */
	struct lanes *lanes; /* NULL: collectives match in the order of their starts */
	bool prefer_vm;
	bool is_crowded; /* ranks share CPUs */
	bool takes_requests;
	bool thread_multiple;
	int worker_group; /* number at the worker process; 0: not registered there */
	void (*progress)(void *ctx); /* of struct node_oob */
	void *progress_ctx;
	/* work space for one schedule */
	struct coll_flat_op *ops;
	struct coll_part *parts[2]; /* sent, received; by rank or neighbor */
	uint64_t *starts;           /* first element of each rank's result in a reduction */
	/* packed forms of the send and the receive buffer */
	struct region_extent scratch[COLL_BUFFERS];
	struct requests requests;
	/* by kind, and by size in powers of two */
	struct policy_reuse reuse[COLL_COUNT][POLICY_SIZE_CLASSES];
	struct policy_reuse requests_reuse[COLL_COUNT][POLICY_SIZE_CLASSES];
	/* Reuse counters of the admitted call, and of the request that is created next. NULL:
	 * admitted whatever buffers it uses. */
	struct policy_reuse *reuse_now, *request_reuse_now;
	bool requests_wait; /* requests_reuse has an open question; holds an intercept reference */
};

/* A counter of one reason to intercept calls, and rt_intercept_refs. */
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

/* ---- request/requests.c ------------------------------------------------------------------ */

/* Returns: 0 or -ENOMEM; requests_comm_destroyed() is due in any case. */
int requests_comm_created(struct rt_comm *c);
void requests_comm_destroyed(struct rt_comm *c);
/* Around a blocking collective: keeps other threads from stepping requests of the communicator, as
 * exec/ serves one thread at a time. The calling thread steps them in its waits. */
void requests_enter_blocking(struct rt_comm *c);
void requests_exit_blocking(struct rt_comm *c);
/* Waits until every request that was started before is published. */
void requests_before_blocking(struct rt_comm *c);
/* exec_begin() found no slot: makes a step towards one, if a request holds it. */
void requests_make_room(struct rt_comm *c);
/* Gives back the memory that is kept for the next requests. */
void request_memory_fini(void);
/* A peer waits for a collective that only this process can publish: publishes what is queued.
 * Context: the progress thread. */
void requests_publish_queued(void);

/* ---- request/lanes.c --------------------------------------------------------------------- */

/* Needs c->exec. Returns: NULL without memory. */
struct lanes *lanes_create(const struct rt_comm *c);
void lanes_destroy(struct lanes *l); /* NULL: nothing */

/* ---- early/pending.c --------------------------------------------------------------------- */

#define PENDING_MAX 256  /* per process; a call beyond completes before it returns */
#define PENDING_RANGES 2 /* guarded ranges of one: read by the run, written by the run */

/* A detached operation. Written by the thread that detaches; after pending_link() under the lock.
 */
struct pending {
	struct guard_range ranges[PENDING_RANGES];
	uint32_t range_count;
	struct exec_run *run;
	struct rt_comm *comm;
	struct region_desc descs[2]; /* released when the operation is retired */
	uintptr_t lo[2], hi[2];      /* the program's buffers, all bytes */
	int owner_tid;               /* the thread that made the call */
	struct policy_site *site;
	struct trace_name trace;
	uint64_t detached_ns;
	uint64_t copy_ns;            /* of this rank's remaining work; 0: a partner had not come */
	_Atomic uint64_t touched_ns; /* first touch or call that needs the data; 0: none yet */
	_Atomic uint32_t touches;
	_Atomic uint64_t waited_ns;  /* by the program, since */
	_Atomic bool is_called;      /* a call needed the data first, not a touch */
	_Atomic uint32_t refs;       /* threads that use it; leaves zero under the lock only */
	bool in_use;
	struct pending *next;
};

/* Context: any thread; every signal is blocked while the lock is held. */
void pending_lock(void);
void pending_unlock(void);
/* Returns: an operation that is not linked; NULL: all are in use. */
struct pending *pending_alloc(void);
void pending_free(struct pending *p); /* not linked */
void pending_link(struct pending *p);
void pending_unref(struct pending *p);
/* Completes and retires every operation of the communicator. */
void pending_complete_comm(struct rt_comm *c);
/* Completes and retires the operation of the run. */
void pending_complete_run(struct exec_run *r);
/* Retires the operation of the run, if it is complete. Returns: true when it did. */
bool pending_retire_run(struct exec_run *r);
/* Returns: the operation of the run, if it is not complete, with a reference; or NULL. */
struct pending *pending_ref_run(struct exec_run *r);
/* Advances, or takes back from hung channels, what channels of this process hold.
 * Context: the progress thread. */
void pending_rescue_all(void);
/* The callback of exec_detach(): the channel has done what it could for the operation. */
void pending_channel_idle(void *arg);
/* Sets up the guard and the hooks, once per process. Returns: 0 or -errno. */
int pending_init(void);

/* Where ranks share CPUs: see policy_crowded(). */
void rt_crowded(enum coll kind, int ranks, uint64_t *out_again, uint64_t *out_always);

/* ---- early/host.c: who is inside the host MPI -------------------------------------------- */

/* Around a collective in which the host MPI may be called. */
void host_call_begin(void), host_call_end(void);
/* A thread that waits outside MPI calls may call the host MPI between these. Returns: false while
 * another thread is inside. Async-signal-safe. */
bool host_stand_in_try(void);
void host_stand_in_end(void);

/* ---- reuse.c ----------------------------------------------------------------------------- */

/* Counts a use of both buffers. Returns: true when both are mapped, or will be. */
bool reuse_is_seen(const struct coll_call *call);
/* Collective. *out: the bits that all ranks have set. Returns: 0 or -errno. */
int reuse_agree(struct rt_comm *c, const char *name, uint64_t mine, uint64_t *out);
/* After rt_takes() admitted a call: notes whether peers could reach both buffers in place. */
void reuse_note(struct rt_comm *c, bool is_mapped);
/* request_choice.c: drops open questions. */
void request_choice_fini(struct rt_comm *c);

/* ---- early/detach.c ---------------------------------------------------------------------- */

/* The movers that can finish a detached collective while no rank waits for it. */
enum detach_movers {
	DETACH_TO_ANY,    /* the worker process, or a channel */
	DETACH_TO_WORKER, /* reductions: channels do not compute */
	DETACH_TO_RANKS,
};

struct detach {
	const char *name;
	const void *site;
	bool is_root;
	uint64_t bytes;              /* that this rank sends or receives */
	uint64_t copy_bytes;         /* copy cost of this rank's share, as bytes of a plain copy */
	uint64_t partner_copy_bytes; /* copy cost of the share of one partner */
	enum detach_movers movers;
	struct region_desc *descs[2]; /* the pending operation releases them, if there is one */
};
/* Ends the run, early or not. Returns: 0 with *out_detached, or -errno. */
int detach_or_wait(struct rt_comm *c, struct exec_run *r, const struct detach *d,
		   bool *out_detached);

/* ---- offload/ ---------------------------------------------------------------------------- */

/* Returns: the time in which one core copies so many bytes. */
static inline uint64_t copy_ns(uint64_t bytes)
{
	return (bytes + OS_COPY_BYTES_PER_NS - 1) / OS_COPY_BYTES_PER_NS;
}

/* Opens the channel of this process, for the first communicator that can use it. */
void offload_open(struct rt_comm *c);
/* Sets has_process ... asleep of *f: who could finish work of this communicator. */
void offload_facts(struct rt_comm *c, enum detach_movers to, struct progress_facts *f);
/* This rank stops working on the run: decides who goes on, and announces the run to the worker
 * process if that does. Returns: the decision. */
enum progress_action offload_announce(struct rt_comm *c, const struct exec_run *r,
				      struct progress_facts *f);
/* After PROGRESS_FEED: gives the detached run to the channel. */
void offload_feed(struct exec_run *r, struct pending *p);
/* Starts the thread that serves calls of peers (offload/progress_thread.c), once per process: with
 * the first channel, or the first request that is queued. */
void progress_thread_start(void);
/* Marks the calling thread as one of Sluice's. */
void progress_thread_own(void);

/* ---- comm/worker_setup.c: the worker process of the job ---------------------------------- */

/* Collective: starts or finds the worker process, attaches, registers the group. Returns: 0, also
 * without a worker process; or -errno when a function of oob fails. */
int worker_setup_comm(struct rt_comm *c, const struct node_oob *oob);
void worker_setup_comm_destroyed(struct rt_comm *c);
/* Does the worker process live, and serve this communicator? */
bool worker_setup_serves(const struct rt_comm *c);
/* A rank waits: takes back what a dead worker process has claimed. Async-signal-safe. */
void worker_setup_check(struct rt_comm *c);
/* The callback of exec/ for ranks that wait; arg: the communicator. Checks the worker process,
 * makes a pass over the requests, and lets the host MPI progress. */
void waiter_progress(void *arg);
/* Adds what the worker process has moved for this process to the counters. */
void worker_setup_count(void);

#endif
