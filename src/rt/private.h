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
#include "rt/buffer.h"
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
	/* The run in the slot that the first queued request waits for, as of the last try. */
	struct exec_run *behind;
	_Atomic uint32_t count; /* requests started and not collected */
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
	struct lanes_word *words; /* [ranks] work space, so that allocation needs no memory */
};


/* Calls of one collective and one size class: blocking ones, or nonblocking ones. */
struct call_class {
	struct policy_reuse reuse;
	struct policy_trial trial;
	struct backoff looks; /* calls until one looks whether buffers are reused */
};

/* The running trial of a communicator. */
struct trial {
	struct call_class *of; /* NULL: none runs */
	uint32_t waiting;      /* calls of other classes whose trial is due meanwhile */
	uint64_t entered_ns;   /* begin of the present call */
	struct policy_trial_call *now; /* the present call, if it belongs to the trial */
	struct policy_trial_call calls[POLICY_TRIAL_CALLS];
};

/* The running trial of a communicator's nonblocking calls: request/trials.c. */
struct timed_request;
struct requests_trial {
	struct call_class *of; /* NULL: none runs */
	enum coll kind;
	uint64_t bytes;
	const char *name;
	uint32_t waiting;      /* calls of other classes whose trial is due meanwhile */
	uint32_t attempts;     /* to end it */
	uint32_t pending, deepest; /* requests of the trial at once: now, at most */
	uint64_t entered_ns;   /* begin of the present call */
	struct timed_request *now, *requests; /* the present call; all; NULL: no memory */
};

struct rt_comm {
	struct node_group *group;
	int size, rank; /* of the group */
	struct exec_comm *exec;
	struct mailbox *mailbox; /* small requests */
	struct lanes *lanes; /* NULL: collectives match in the order of their starts */
	uint64_t piece_most; /* bytes of one rank that a run may have to copy; equal on all ranks */
	bool prefer_vm;
	bool is_crowded; /* ranks share CPUs */
	bool admits_requests;
	bool switches; /* every rank is run by a scheduler of endpoints/, and none has libcuda */
	/* A rank had loaded libcuda when the communicator was made. Then trials admit calls only
	 * where all ranks agree: a buffer in memory of a GPU counts as new, and its call is passed
	 * on. */
	bool has_gpu;
	bool thread_multiple;
	struct device_room *device; /* NULL: collectives are on host memory only */
	int worker_group; /* number at the worker process; 0: not registered there */
	void (*progress)(void *ctx); /* of struct node_oob */
	void *progress_ctx;
	/* work space for one schedule */
	struct coll_part *parts[2]; /* sent, received; by rank or neighbor */
	uint64_t *starts;           /* first element of each rank's result in a reduction */
	/* copies of failed runs; see buffer_close() */
	struct region_extent failed_copies[COLL_BUFFERS * EXEC_SLOTS_MAX];
	_Atomic uint32_t failed_copy_count;
	struct requests requests;
	/* indexed by collective and size class */
	struct call_class classes[COLL_COUNT][POLICY_SIZE_CLASSES];
	struct call_class request_classes[COLL_COUNT][POLICY_SIZE_CLASSES];
	/* Reuse counters of the admitted call, and of the next request. NULL: admitted in any
	 * buffers. */
	struct policy_reuse *reuse_now, *request_reuse_now;
	bool packs_in_pieces; /* the admitted call, a reduction: ranks may have to pack */
	struct trial trial;
	struct requests_trial requests_trial;
	bool requests_wait; /* request_classes have an open question: an intercept reference */
};

/* Count one reason to intercept calls, in `what` and in rt_intercept_refs. */
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

/* Sets when the first trials are due. In trials.c. */
void trials_comm_created(struct rt_comm *c);

/* Returns: the error of a collective, for messages. In coll/run.c. */
const char *rt_error_text(int error);

/* ---- request/requests.c ------------------------------------------------------------------ */

/* Returns: 0 or -ENOMEM; requests_comm_destroyed() is due in any case. */
int requests_comm_created(struct rt_comm *c);
void requests_comm_destroyed(struct rt_comm *c);
/*
 * Enclose a blocking collective: other threads (the progress thread, and guard threads that wait
 * for a pending operation) do not progress requests of the communicator meanwhile, as exec/ serves
 * one thread at a time. The calling thread progresses them in waits.
 */
static inline void requests_enter_blocking(struct rt_comm *c)
{
	pthread_mutex_lock(&c->requests.lock);
}
static inline void requests_exit_blocking(struct rt_comm *c)
{
	pthread_mutex_unlock(&c->requests.lock);
}
void requests_publish_all(struct rt_comm *c);
/* Waits until every request that was started before is published. */
static inline void requests_before_blocking(struct rt_comm *c)
{
	if (base_unlikely(atomic_load_explicit(&c->requests.count, memory_order_relaxed)))
		requests_publish_all(c);
}
/* Progresses the request that holds the slot which exec_begin() needs. */
void requests_make_room(struct rt_comm *c);
/* Publishes queued requests when a peer waits for them, and moves the data of those in their way.
 * Context: the progress thread. */
void requests_publish_queued(void);

/* ---- request/lanes.c --------------------------------------------------------------------- */

/* Needs c->exec. Returns: NULL without memory. */
struct lanes *lanes_create(const struct rt_comm *c);
void lanes_destroy(struct lanes *l); /* NULL: nothing */

/* ---- early/pending.c --------------------------------------------------------------------- */

#define PENDING_MAX 256  /* per process; further calls complete before they return */
#define PENDING_RANGES 2 /* guarded ranges per operation: the run reads one and writes one */

/* A detached operation. The detaching thread writes it before pending_link(); the lock protects it
 * afterwards. */
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
	uint64_t copy_ns;            /* of this rank's remaining work; 0: a partner was missing */
	_Atomic uint64_t touched_ns; /* first touch or call that needs the data; 0: none yet */
	_Atomic uint32_t touches;
	_Atomic uint64_t waited_ns;  /* time that the program waited since */
	_Atomic bool is_called;      /* a call needed the data before any touch */
	_Atomic uint32_t refs;       /* threads that use it; leaves 0 under the lock only */
	bool in_use;
	struct pending *next;
};

/* Returns: an operation that is not linked, or NULL when all are in use. */
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
/* Progresses the work of this process's channels, and reclaims the work of hung channels.
 * Returns: as exec_rescue(). Context: the progress thread. */
uint64_t pending_rescue_all(void);
/* Callback of exec_detach(): the channel can do no more for the operation. */
void pending_channel_idle(void *arg);
/* Sets up the guard and the hooks, once per process. Returns: 0 or -errno. */
int pending_init(void);

/* policy_crowded() with the options and figures in force. */
void rt_crowded(enum coll kind, int ranks, uint64_t *out_again, uint64_t *out_always);

/* ---- early/host.c: who is inside the host MPI -------------------------------------------- */

/* Enclose a collective that may call the host MPI. */
void host_call_begin(void), host_call_end(void);
/* Enclose a call of the host MPI by a thread that waits outside MPI calls.
 * Returns: false while another thread is inside. Context: async-signal-safe. */
bool host_stand_in_try(void);
void host_stand_in_end(void);

/* ---- request/trials.c -------------------------------------------------------------------- */

/* Drops the open questions and the trial of a communicator. */
void requests_trials_end(struct rt_comm *c);

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
	uint64_t bytes;              /* bytes that this rank sends or receives */
	uint64_t copy_bytes;         /* copy cost of this rank's share, as bytes of a plain copy */
	uint64_t partner_copy_bytes; /* copy cost of the share of one partner */
	enum detach_movers movers;
	struct region_desc *descs[2]; /* released by the pending operation, if there is one */
	bool is_allowed;
};
/*
 * Describes a call whose buffers are open. in_one_run: the call is not cut. A run may detach only
 * then, and in place, and where the collective covers every byte of each buffer.
 */
struct detach detach_describe(const struct rt_comm *c, const struct coll_call *call,
			      const struct buffers *b, bool in_one_run);
/* Detaches the run or waits until it completes. Returns: 0 or -errno. */
int detach_or_wait(struct rt_comm *c, struct exec_run *r, const struct detach *d);

/* ---- offload/ ---------------------------------------------------------------------------- */

/* Reclaims fragments that a dead worker process has claimed. Context: a rank that waits;
 * async-signal-safe. */
void offload_check_worker(struct rt_comm *c);
/* Adds the bytes that the worker process has moved for this process to the counters. */
void offload_count(void);
/* Opens the channel of this process, for the first communicator that can use it. */
void offload_open(struct rt_comm *c);
/* Sets has_process ... asleep of *f: the movers that could finish work of this communicator. */
void offload_facts(struct rt_comm *c, enum detach_movers to, struct progress_facts *f);
/* Decides which mover continues a run that this rank leaves, and announces the run to the worker
 * process if that is the mover. Returns: the decision. */
enum progress_action offload_announce(struct rt_comm *c, const struct exec_run *r,
				      struct progress_facts *f);
/* After PROGRESS_FEED: gives the detached run to the channel. */
void offload_feed(struct exec_run *r, struct pending *p);
/* Starts the thread that serves calls of peers (offload/progress_thread.c), once per process. The
 * first channel or the first queued request needs it. */
void progress_thread_start(void);
/* Marks the calling thread as one of Sluice's. */
void progress_thread_own(void);

/* ---- coll/device.c ----------------------------------------------------------------------- */

/* Allocates c->device under SLUICE_COLL=device:on. Returns: 0 or -ENOMEM. */
int device_room_create(struct rt_comm *c);

/* ---- comm/worker_setup.c: the worker process of the job ---------------------------------- */

/* Starts or finds the worker process, attaches to it, and registers the group.
 * Returns: 0, also without a worker process; -errno when a function of oob fails.
 * Context: collective. */
int worker_setup_comm(struct rt_comm *c, const struct node_oob *oob);
void worker_setup_comm_destroyed(struct rt_comm *c);

#endif
