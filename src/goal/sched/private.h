/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to sched/: the layout of shared memory with the writer of each field, and the functions
 * of the files. "The driver" of a rank is the process that holds the claim of that rank's state. */
#ifndef SLUICE_SCHED_PRIVATE_H
#define SLUICE_SCHED_PRIVATE_H

#include <pthread.h>

#include "engine/engine.h"
#include "goal/sched/sched.h"
#include "goal/sched/thread.h"
#include "xfer/xfer.h"

#define SCHED_RING         64u /* slots of the ring from one rank to another */
#define SCHED_INLINE_BYTES 32u /* bytes of a message inside a slot */
/* bytes of a message in an eager record; longer ones are announced */
#define SCHED_EAGER_BYTES 4096u
/* lists of shorter pieces of private memory are packed by the sender */
#define SCHED_PACK_BYTES 2048u
#define SCHED_FLAT_BYTES 1024u /* of each message of a flat run, at most */
#define SCHED_EAGERS     32u /* eager records for each pair of ranks */
#define SCHED_STORE      64u /* unexpected inline messages for each pair */
/* lists of posted receives, and of unexpected messages: 256 << shift, more when they are long */
#define SCHED_BUCKETS     256u
#define SCHED_SHIFT_MAX   8u
#define SCHED_BUCKETS_MAX (SCHED_BUCKETS << SCHED_SHIFT_MAX)
#define SCHED_JOBS       64u          /* one bit each */
#define SCHED_INSTS 16384u       /* open schedules of a rank */
#define SCHED_ABORTS 64u
#define SCHED_PUBLISH    16u /* messages delivered before the sender learns of them */
#define SCHED_TIMERS     16u /* CPUs of a rank that CALC distinguishes */

/* A location that all ranks map: rank << 48 | offset in that rank's arena. 0: none. */
typedef uint64_t sched_ref;
/* An operation of a rank: (slot of its schedule + 1) << 32 | operation. 0: none. */
typedef uint64_t sched_opref;

struct sched_list { uint64_t head, tail; };

#define WATCHER_THREAD 0x80000000u
#define WATCHER_HOOK   0x40000000u

enum sched_kind { SCHED_INLINE = 1, SCHED_EAGER, SCHED_ANNOUNCED };

/* A message in a ring. Written by the sender's driver, which stores `seq` last (release; partner:
 * peek). */
struct sched_slot {
	BASE_ALIGNED_LINE uint64_t ctx;
	sched_ref msg;
	uint64_t kind_bytes; /* enum sched_kind << 56 | bytes */
	uint32_t tag;
	_Atomic uint32_t seq; /* 1 + number of the message in this ring */
	char data[SCHED_INLINE_BYTES];
};

/*
 * A message that is announced, eager, or unexpected. Filled by the sender's driver (INLINE: by the
 * receiver's). Then only the receiver's driver writes it, until it clears `busy` (eager; release,
 * acquire in eager_get) or pushes it to the sender's `ended` (announced).
 */
struct sched_msg {
	BASE_ALIGNED_LINE sched_ref next, prev; /* in its bucket */
	sched_ref all_next, all_prev;           /* in the list of all unexpected messages */
	uint64_t ctx, bytes;
	uint32_t tag, src, kind;
	_Atomic uint32_t busy;
	/* announced: the send, and where its bytes lie */
	sched_ref body, ended_next;
	uint64_t off;
	sched_opref op;
	uint32_t mem, segment, segment_count, reserved;
};

enum sched_op_state {
	OP_BLOCKED, /* requirements are not met */
	OP_READY,
	OP_BACKLOG,   /* send: the ring is full */
	OP_POSTED,    /* receive: no message has come */
	OP_SENT,      /* send: announced, not yet copied by the receiver */
	OP_WAITS_JOB, /* all jobs are in use */
	OP_IN_JOB,
	OP_TIMER,
	OP_ENDED,
};

static inline uint64_t ctx_of(uint32_t channel, uint32_t run)
{
	return (uint64_t)channel << 32 | run;
}

/* Progress of an operation. Written by the driver. */
struct sched_op {
	sched_opref next, prev; /* in the list that `state` names */
	uint64_t post;          /* receive: number, in order of posting */
	sched_ref msg;          /* receive: its message; TIMER: when it ends, ns */
	uint32_t waits;         /* requirements that are not met */
	uint8_t state;
};

/* Number of runs that a rank has started on a channel. Written by the driver. */
struct sched_runs { BASE_ALIGNED_LINE uint32_t count; };

enum run_phase { RUN_IDLE, RUN_GOING, RUN_DONE, RUN_FAILED };

/* An open schedule, in its owner's arena. */
struct sched_body {
	uint64_t bytes, id; /* id: unique in the process */
	uint32_t mem_count, op_count, send_count, slot;
	uint32_t channel, padding;
	/* offsets from the body; times_off 0: no times */
	uint64_t block_off, segments_off, ops_off, msgs_off, times_off;
	uint64_t block_bytes;
	sched_ref runs; /* struct sched_runs of its channel; 0: all runs are one context */
	/* written by the owner before a run */
	uint64_t start_ns;
	sched_opref next_start; /* in the list of runs to start */
	/* written by the driver */
	/* release: the run's results; acquire by the owner */
	BASE_ALIGNED_LINE _Atomic uint32_t phase;
	/* operations not ended; other threads of the rank only read it */
	_Atomic uint32_t remaining;
	uint32_t prev_run, next_run;              /* slot + 1 */
	uint64_t ctx;                             /* set when the run starts */
	int32_t error, error_rank, error_at;
	uint32_t error_op;
	struct region_desc mem[];
};

/* One end of a transfer: contiguous memory or a list of pieces. */
struct sched_end {
	int32_t rank;                    /* the process that owns the memory */
	uint32_t slot;                   /* its schedule; UINT32_MAX: a record in the arena */
	uint32_t mem;                    /* contiguous: its space */
	bool mapped;                     /* every process maps all of it */
	uint32_t segment, segment_count; /* of a list */
	uint64_t off;                    /* contiguous: offset in desc */
	struct region_desc desc;         /* of contiguous memory */
	sched_ref body;      /* of a list */
};

/* A transfer or a local operation, cut into fragments by xfer_cut(). */
struct sched_work {
	uint64_t bytes;
	uint32_t units;
	uint8_t type, dtype;
	uint64_t stamp_ns; /* STAMP: what to write */
	struct sched_end dst, src, src2;
};

enum { STAGE_NO, STAGE_WANTED, STAGE_MAKING, STAGE_READY };

/*
 * Work of which any process may claim fragments. Written by the driver before the job is opened;
 * valid for processes that hold a claimed fragment. A process without one reads `brief` only.
 */
struct sched_job {
	struct xfer x;          /* claim words */
	_Atomic uint64_t brief; /* job_brief() */
	uint64_t tag;
	sched_opref op;
	struct sched_work work;
	_Atomic uint32_t stage;   /* enum above: does the sender's process pack the message? */
	_Atomic int32_t error;    /* -errno: the run fails */
	uint64_t stage_off;       /* valid when STAGE_READY (release, acquire) */
	_Atomic uint16_t owner[XFER_UNITS_MAX]; /* 1 + rank that claimed the fragment */
};

/* A rank's knowledge of another rank; the driver writes it. */
struct sched_peer {
	BASE_ALIGNED_LINE uint32_t out_tail,
		out_head; /* ring to it: next slot; the last `head` that was read */
	uint32_t inline_sent, inline_credits, next_eager;
	/* ring from it: next slot; last `head` published; inline records given back */
	uint32_t in_head, in_published, credits;
	sched_ref store_free; /* free records for inline messages */
	uint32_t store_used;  /* records used so far */
	uint32_t culprit; /* 1 + rank to blame when nothing more comes from this one; 0: alive */
	/* of its list: how many are handled, how many there are */
	uint32_t aborts_handled, aborts_count;
	uint32_t aborts_lost; /* its list has overwritten aborts that were not handled */
	uint32_t wake_due;    /* a message was sent and a full wake-up is still due */
	struct sched_list backlog;           /* sends that found the ring full */
};

/* How far a rank has consumed the ring from another rank. Read by the sender. */
struct sched_ends {
	BASE_ALIGNED_LINE _Atomic uint32_t head, credits;
};

struct sched_abort { uint64_t ctx; int32_t error, rank, at; uint32_t op; };

struct sched_state {
	BASE_ALIGNED_LINE _Atomic uint32_t claim; /* 0, or 1 + rank of the driver */
	/* in one line, as who looks for work reads all three; runs that have begun: slot + 1 of the
	 * first, written by the driver; runs to start: threads of the rank push, the driver pops */
	_Atomic uint32_t runs;
	_Atomic sched_opref starts;
	_Atomic uint32_t changing; /* another rank's process changes the state under its claim */
	/* when the first CALC ends, ns; 0: none; written by the driver */
	_Atomic uint64_t timer_ns;
	/* seldom written: in every process's cache. broken: 1 + rank that died while it drove */
	BASE_ALIGNED_LINE _Atomic uint32_t broken;
	_Atomic uint32_t dead;     /* the rank's process has died */
	_Atomic uint32_t departed; /* the rank has left the group */
	_Atomic uint32_t refused;  /* some process does not drive the rank, see sched_driver */
	BASE_ALIGNED_LINE _Atomic uint32_t computing; /* others drive it, see watch.c */
	BASE_ALIGNED_LINE _Atomic sched_ref
		ended; /* announced sends that receivers have copied: pushed by receivers */
	BASE_ALIGNED_LINE _Atomic uint64_t jobs; /* open jobs: written by the driver, read by all */
	_Atomic uint32_t trouble_handled; /* value of the group's `trouble` that was handled last */
	_Atomic uint32_t abort_count;     /* written after aborts[] (release) */
	struct sched_abort aborts[SCHED_ABORTS];
	/* in rank 0's state only: incremented at each death and each failed run */
	BASE_ALIGNED_LINE _Atomic uint32_t trouble;
	/* in rank 0's state only: a rank has used sched_run(), so ranks may compute meanwhile */
	_Atomic uint32_t detached;
	/* in rank 0's state only: 1 + rank of who drives all ranks, | WATCHER_THREAD or
	 * WATCHER_HOOK; 0: none */
	BASE_ALIGNED_LINE _Atomic uint32_t watcher;
	/* set by a process that found the claim taken: the holder looks again after its release */
	_Atomic uint32_t again;
	/* in rank 0's state only: when the progress thread or the hook that watches polled last */
	_Atomic uint64_t watched_ns;
	/* in rank 0's state only: a progress thread wakes then and drives all ranks; a time that
	 * has passed: none does */
	_Atomic uint64_t covered_ns;
	/* from here on only the driver reads and writes */
	BASE_ALIGNED_LINE uint64_t posts;
	uint64_t open_jobs;
	uint32_t backlogged; /* sends in backlogs */
	uint32_t wake_due;         /* wake_due of some peer is set */
	struct sched_list ready, waits_job, timers, posted_any, unexpected;
	uint64_t cpu_free_ns[SCHED_TIMERS];
	uint32_t bucket_shift;                   /* SCHED_BUCKETS << bucket_shift are in use */
	uint32_t posted_count, unexpected_count; /* in the following lists */
	struct sched_list posted[SCHED_BUCKETS_MAX];
	struct sched_list unexpected_bucket[SCHED_BUCKETS_MAX]; /* unexpected messages by hash */
	struct sched_job job[SCHED_JOBS];
};

/* An eager record; a record for an unexpected inline message. */
struct sched_eager { struct sched_msg m; char data[SCHED_EAGER_BYTES]; };
struct sched_stored { struct sched_msg m; char data[SCHED_INLINE_BYTES]; };

/* ---- private to a process ---------------------------------------------------------------- */

/* Where this process maps a space of a schedule's memory: bytes [lo, hi) of it. */
struct sched_space {
	char *base;
	uint64_t lo, hi;
};

struct sched_channel { uint32_t number; struct sched_runs *runs; struct sched_channel *next; };

/* A message that this process has packed for a receiver that could not reach its bytes. */
struct sched_stage {
	struct sched_stage *next;
	void *memory;
	struct sched_job *job;
	uint64_t tag, bits;
};

/* A schedule as this process maps it, its own or a peer's. */
struct sched_inst {
	struct sched_group *group;
	int rank;
	uint32_t slot;
	uint64_t id;
	sched_ref ref;
	struct sched_body *body;
	struct sched_op *ops;
	struct sched_msg *msgs;
	struct sched_times *times;
	struct sched_runs *runs; /* NULL: SCHED_STREAM */
	struct goal_block *block; /* private and verified; match of a send: index of its message */
	uint32_t mem_count;
	struct sched_space at[GOAL_SPACES_MAX];
	/* of this process's schedules only: */
	char name[32];
	struct sched_channel *channel;
	unsigned flags;
	bool needs_clock;
	bool sends_long;      /* some send is copied in several fragments */
	bool is_flat;         /* short messages only, and none waits for another operation */
	bool is_mapped;       /* every process maps all of its memory */
	bool finalized;       /* run_finalize() has handled the end of the last run */
	uint64_t progress_ns; /* when `remaining` changed last */
	uint32_t progress_remaining;
	void *scratch;
	struct sched_inst *next;
};

/* A rank's state as this process maps it. Constant but for insts. */
struct sched_driver {
	struct sched_group *g;
	int rank;
	/* refused: a schedule of it did not verify, this process does not drive it */
	bool own, refused;
	struct sched_state *st;
	struct sched_peer *peers;
	struct sched_ends *ends;     /* by source */
	struct sched_slot *rings;    /* [source][SCHED_RING] */
	struct sched_stored *stores; /* [source][SCHED_STORE] */
	struct sched_eager *eagers;  /* [destination][SCHED_EAGERS] */
	/* [SCHED_INSTS]; a peer's: under its claim; the own: from open to close */
	_Atomic(struct sched_inst *) *insts;
	_Atomic uint64_t
		*directory; /* [SCHED_INSTS]: the bodies; written by the owner, release, acquire */
};

struct sched_mapping { char *base; uint64_t bytes; };

struct sched_group {
	struct node_group *node;
	int rank, size;
	struct sched_mapping *mappings; /* by rank */
	struct sched_driver *drivers;   /* by rank */
	_Atomic uint32_t *trouble, *watcher, *detached; /* of rank 0's state */
	_Atomic uint64_t *watched_ns, *covered_ns;
	bool use_vm;                    /* process_vm_readv() and process_vm_writev() may be used */
	pthread_mutex_t lock; /* guards pool, channels, instances */
	struct sched_pool *pool;
	struct sched_channel *channels;
	struct sched_inst *instances;   /* open ones of this process */
	struct sched_inst *zombies;     /* failed and closed; peers may still refer to them */
	_Atomic(struct sched_stage *) stages; /* written under the lock */
	uint64_t last_id;
	uint32_t next_slot;
	bool keep_times;
	_Atomic uint64_t checked_ns; /* when peers were last checked for death */
	_Atomic uint32_t tests;
	struct sched_profile *profile;
	struct sched_thread thread;
	struct sched_hook hook;
};

/* group.c */
sched_ref area_ref(const struct sched_group *g, const void *p); /* of an address in a rank's area */

static inline struct sched_ends *ends_of(const struct sched_group *g, int rank, int src)
{
	return g->drivers[rank].ends + src;
}
static inline struct sched_slot *ring_of(const struct sched_group *g, int dst, int src)
{
	return g->drivers[dst].rings + (uint32_t)src * SCHED_RING;
}
static inline struct sched_stored *store_of(const struct sched_group *g, int rank, int src)
{
	return g->drivers[rank].stores + (uint32_t)src * SCHED_STORE;
}
static inline struct sched_eager *eagers_of(const struct sched_group *g, int src, int dst)
{
	return g->drivers[src].eagers + (uint32_t)dst * SCHED_EAGERS;
}

/* Returns: NULL when the bytes lie outside that rank's arena. */
static inline void *arena_at(const struct sched_group *g, int rank, uint64_t off, uint64_t bytes)
{
	if (base_unlikely((uint32_t)rank >= (uint32_t)g->size || off > g->mappings[rank].bytes ||
			  bytes > g->mappings[rank].bytes - off))
		return NULL;
	return g->mappings[rank].base + off;
}
static inline int ref_rank(sched_ref ref) { return (int)(ref >> 48); }
static inline uint64_t ref_off(sched_ref ref) { return ref & ((1ull << 48) - 1); }
static inline sched_ref ref_of(int rank, uint64_t off) { return (uint64_t)rank << 48 | off; }
/* Returns: a struct, which begins a cache line; NULL when it does not or is outside its arena. */
static inline void *ref_at(const struct sched_group *g, sched_ref ref, uint64_t bytes)
{
	if (base_unlikely(ref % BASE_CACHE_LINE))
		return NULL;
	return arena_at(g, ref_rank(ref), ref_off(ref), bytes);
}
static inline sched_opref opref_of(uint32_t slot, uint32_t op)
{
	return ((uint64_t)slot + 1) << 32 | op;
}

/* pool.c: memory of this process's arena, in multiples of a cache line */
struct sched_pool *pool_create(void);
void *pool_get(struct sched_pool *p, uint64_t bytes); /* NULL: the arena is full */
void pool_put(struct sched_pool *p, void *memory);
/* Gives every extent back to the arena. */
void pool_destroy(struct sched_pool *p);

/* instance.c */
struct sched_inst *inst_map_peer(struct sched_driver *d, uint32_t slot, struct sched_inst *known);
/* Returns: the schedule in a slot; NULL when it does not verify. Context: under the claim. */
static inline struct sched_inst *inst_at(struct sched_driver *d, uint32_t slot)
{
	struct sched_inst *s;

	if (base_unlikely(slot >= SCHED_INSTS))
		return NULL;
	s = atomic_load_explicit(&d->insts[slot], memory_order_acquire);
	if (base_likely(d->own) ||
	    (s && s->ref == atomic_load_explicit(&d->directory[slot], memory_order_acquire) &&
	     s->id == s->body->id)) /* partner: sched_open */
		return s;
	return inst_map_peer(d, slot, s);
}
/* Returns: the operation of a reference; NULL, with *s NULL, when the reference is not valid.
 * Context: under the claim. */
static inline struct sched_op *op_at(struct sched_driver *d, sched_opref ref, struct sched_inst **s)
{
	struct sched_inst *i = inst_at(d, (uint32_t)(ref >> 32) - 1);

	*s = i;
	if (base_unlikely(!i || (uint32_t)ref >= i->block->op_count)) {
		*s = NULL;
		return NULL;
	}
	return &i->ops[(uint32_t)ref];
}
static inline const struct goal_op *inst_goal(const struct sched_inst *s, uint32_t i)
{
	return &goal_ops_const(s->block)[i];
}
/* Returns: where this process maps bytes [off, off + n) of a space; NULL when it does not. */
static inline char *inst_addr(const struct sched_inst *s, uint32_t mem, uint64_t off, uint64_t n)
{
	const struct sched_space *a = &s->at[mem];

	return a->base && off >= a->lo && off <= a->hi && n <= a->hi - off ? a->base + off : NULL;
}
void inst_free(struct sched_inst *s);
void inst_refuse(struct sched_driver *d); /* this process does not drive that rank */
/* Memory of sched_alloc(), which every rank maps. */
static inline bool is_arena_memory(const void *p, uint64_t bytes)
{
	uint64_t off = (uint64_t)((const char *)p - (char *)region_arena_base());

	return off < region_arena_bytes() && bytes <= region_arena_bytes() - off;
}

/* lists.c: lists of operations of one rank */
void list_push(struct sched_driver *d, struct sched_list *l, sched_opref ref, struct sched_op *op);
void list_remove(struct sched_driver *d, struct sched_list *l, struct sched_op *op);
sched_opref list_pop(struct sched_driver *d, struct sched_list *l);

/* match.c */
void match_post(struct sched_driver *d, struct sched_inst *s, uint32_t i);
void match_unpost(struct sched_driver *d, struct sched_inst *s, uint32_t i);
/* Removes and returns the posted receive that matches a message; 0: none. */
sched_opref match_receive(struct sched_driver *d, uint64_t ctx, uint32_t src, uint32_t tag);
/* Removes and returns the unexpected message that matches a receive; NULL: none. */
struct sched_msg *match_message(struct sched_driver *d, uint64_t ctx, const struct goal_op *recv,
				sched_ref *out);
void match_add_unexpected(struct sched_driver *d, struct sched_msg *m, sched_ref ref);
/* Drops unexpected messages of a source in a context. */
void match_drop(struct sched_driver *d, uint64_t ctx, uint32_t src);

/* ring.c */
bool ring_has_room(struct sched_driver *d, uint32_t dst);
/* Only when the ring has room. Afterwards the send has ended or is OP_SENT. */
void ring_send(struct sched_driver *d, struct sched_inst *s, uint32_t i);
bool ring_poll(struct sched_driver *d);
/* Has a message come that ring_poll() would deliver? Context: under the claim. */
bool ring_has_message(struct sched_driver *d);
/* Gives a message back to its sender after its bytes were copied. */
void msg_release(struct sched_driver *d, struct sched_msg *m, sched_ref ref);

/* drive.c */
bool state_try_claim(struct sched_driver *d);
void state_release(struct sched_driver *d);
/* Does all that can be done now. Returns: true when something was done. Context: under the
 * claim. */
bool state_step(struct sched_driver *d);
void state_wake_peers(struct sched_driver *d);
/* Ends announced sends whose receivers have copied the bytes. */
bool state_end_sends(struct sched_driver *d);
/* Starts a run at once. Context: under the claim. */
void state_start_run(struct sched_driver *d, struct sched_inst *s);
/* Claims the state and calls state_step(). Returns: true when something was done. */
bool state_drive(struct sched_driver *d);
/* One step under the claim that the caller took, which this releases. Returns: false when this
 * process cannot drive the rank. */
bool state_drive_claimed(struct sched_driver *d, bool *progress);
static inline bool state_has_starts(const struct sched_driver *d)
{
	return atomic_load_explicit(&d->st->starts, memory_order_relaxed);
}
uint64_t run_time(const struct sched_inst *s); /* ns since the run began */
void op_ended(struct sched_driver *d, struct sched_inst *s, uint32_t i);
/* Completes a receive with its message, at once or by a job. */
void op_receive(struct sched_driver *d, struct sched_inst *s, uint32_t i, struct sched_msg *m,
		sched_ref ref);
void run_finish(struct sched_driver *d, struct sched_inst *s, enum run_phase phase);

/* watch.c */
/* Drives every other rank that has runs. Returns: true when something was done. */
bool state_drive_others(struct sched_group *g);
/*
 * Called by a thread that goes back to its program: executes what is ready of any rank and what
 * follows from it, unless a watcher does. `again` of a state hands that duty to a process that
 * holds the state's claim. What takes longer is left to the progress thread.
 */
void state_drive_all(struct sched_group *g);
/* Has others drive a rank, or this rank when it has runs, while it is in no call. */
void state_mark_computing(struct sched_driver *d);
void state_set_computing(struct sched_group *g);
void state_clear_computing(struct sched_group *g); /* they need not when it has none */
bool state_has_computing_peers(const struct sched_group *g);
/* As state_drive_all(), without the progress thread, for limit_ns at most. rounds: turns that found
 * something to do. Returns: true when it gave up. */
bool state_drive_until(struct sched_group *g, uint64_t limit_ns, uint32_t *rounds);
/* One turn of a watcher over all ranks, and a fragment of each one's jobs. Returns: 0: nothing was
 * done; DROVE; COPIED: a fragment, too. */
enum { DROVE = 1, COPIED };
int state_drive_each(struct sched_group *g);
/* Makes this process, its progress thread (WATCHER_THREAD), or its wait elsewhere (WATCHER_HOOK),
 * the watcher unless there is one that
 * has its CPU. Returns: true when it became the watcher; the caller calls state_unwatch() before it
 * sleeps or returns. */
bool state_watch(struct sched_group *g, uint32_t thread);
bool state_watches(const struct sched_group *g, uint32_t thread); /* is it still the watcher? */
void state_unwatch(struct sched_group *g, uint32_t thread);
/* Is there a watcher that has its CPU? */
bool state_is_watched(const struct sched_group *g);
/* Returns: when the first CALC of any rank ends; 0: there is none. */
uint64_t state_next_timer(const struct sched_group *g);
/* Leaves the end of a CALC to the progress thread unless one wakes for it. Called before this
 * thread sleeps or goes back to its program. */
void state_cover_timers(struct sched_group *g);

/* The facts about a job that a process needs before it claims a fragment, packed into one word. */
struct sched_brief {
	uint64_t tag;
	uint32_t units;
	int dst, src;
	bool dst_mapped, src_mapped;
};

/* job.c */
static inline uint64_t job_brief(uint64_t tag, const struct sched_work *w)
{
	/* the operands of a local operation belong to one rank */
	bool operands = w->type == GOAL_RECV || (w->src.mapped && w->src2.mapped && w->dst.mapped);

	return tag << 40 | (uint64_t)w->units << 34 | (uint64_t)(uint16_t)w->dst.rank << 18 |
	       (uint64_t)(uint16_t)w->src.rank << 2 | (uint64_t)(operands && w->dst.mapped) << 1 |
	       (operands && w->src.mapped);
}
/* Returns: in how many fragments a job of this length is cut. */
uint32_t job_fragments(uint64_t bytes);
void job_for_recv(struct sched_driver *d, struct sched_inst *s, uint32_t i, struct sched_msg *m);
void job_for_local(struct sched_driver *d, struct sched_inst *s, uint32_t i);
bool job_reap(struct sched_driver *d);
/* Ends the jobs of a run. Waits for living processes that hold fragments. */
void job_cancel(struct sched_driver *d, const struct sched_inst *s);
/* Does a process that has died hold a fragment of the run's jobs? */
bool job_is_orphan(struct sched_driver *d, const struct sched_inst *s, int dead);

/* move.c */
/* Claims and executes a fragment of a job of a rank. Returns: true when one was executed. */
bool job_work(struct sched_group *g, int rank);
uint64_t work_bits(const struct sched_work *w);
/* Returns: the pieces of an end that a body describes; NULL when they lie outside its arena. */
static inline const struct goal_segment *
segments_at(const struct sched_group *g, const struct sched_body *b, const struct sched_end *e)
{
	uint64_t each = sizeof(struct goal_segment), off = b->segments_off + e->segment * each;

	return arena_at(g, ref_rank(e->body), ref_off(e->body) + off, e->segment_count * each);
}
/* Does this process map both ends? */
bool work_is_here(const struct sched_group *g, const struct sched_work *w);
/* Executes bytes [at, at + n). Returns: 0 or -errno. */
int work_do(struct sched_group *g, const struct sched_work *w, uint64_t at, uint64_t n);
/* Frees packed messages that receivers have copied. */
void stages_sweep(struct sched_group *g);

/* run.c: run_finalize() handles the end of a run in its owner's process, once */
void run_finalize(struct sched_inst *s);
/* Logs the operations that a run waits for, one a line, or how many more there are. */
void run_log_stuck(const struct sched_inst *s);

/* profile.c: records a finished run; writes all records to SLUICE_GOAL_PROFILE */
void profile_run(struct sched_inst *s);
void profile_write(struct sched_group *g);

/* trouble.c */
void trouble_handle(struct sched_driver *d);
/* Ends a run with an error, on this rank and on every rank that depends on it. */
void run_fail(struct sched_driver *d, struct sched_inst *s, const struct sched_abort *why);
/* Fails the run of an operation whose peer has died or failed. Returns: true when the run has
 * failed. */
bool trouble_check_op(struct sched_driver *d, struct sched_inst *s, uint32_t i);
/* Checks whether peers live, at most every 100 ms. */
void trouble_check_peers(struct sched_group *g);
/* Waits until no peer uses the memory of failed runs. */
void trouble_settle(struct sched_group *g);

#endif
