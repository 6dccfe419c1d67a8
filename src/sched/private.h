/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of sched/ only. What lies in shared memory, and who writes it. */
#ifndef SLUICE_SCHED_PRIVATE_H
#define SLUICE_SCHED_PRIVATE_H

#include <pthread.h>

#include "sched/sched.h"
#include "xfer/xfer.h"

#define SCHED_RING 64u           /* messages on their way from one rank to another */
#define SCHED_INLINE_BYTES 32u   /* in the slot itself */
#define SCHED_EAGER_BYTES 4096u  /* in an eager record; more is copied once, from its place */
#define SCHED_PACK_BYTES 2048u   /* lists of shorter pieces of private memory are packed */
#define SCHED_EAGERS 32u         /* records, for each pair of ranks */
#define SCHED_STORE 64u          /* inline messages without a receive, for each pair of ranks */
#define SCHED_BUCKETS 256u
#define SCHED_JOBS 64u           /* a bit each */
#define SCHED_INSTS 16384u       /* open schedules of a rank */
#define SCHED_ABORTS 64u
#define SCHED_PUBLISH 16u        /* slots taken before the sender is told */
#define SCHED_TIMERS 16u         /* CPUs of a rank that CALC tells apart */

/* A place that all ranks can address: rank << 48 | offset in its arena. 0: none. */
typedef uint64_t sched_ref;
/* An operation of the engine's rank: (slot of its schedule + 1) << 32 | operation. 0: none. */
typedef uint64_t sched_opref;

struct sched_list { uint64_t head, tail; };

enum sched_kind { SCHED_INLINE = 1, SCHED_EAGER, SCHED_ANNOUNCED };

/* One message in a ring. Written by who drives the sender, complete with `seq` (release; acquire in
 * ring_peek). */
struct sched_slot {
	BASE_ALIGNED_LINE uint64_t ctx;
	sched_ref msg;
	uint64_t kind_bytes; /* enum sched_kind << 56 | bytes */
	uint32_t tag;
	_Atomic uint32_t seq; /* 1 + number of the message */
	char data[SCHED_INLINE_BYTES];
};

/*
 * A message that has been announced, or whose receive was not there. Filled by who drives the
 * sender (INLINE: the receiver), then only who drives the receiver touches it, until `busy` is 0
 * again (eager records; release, acquire in eager_get) or it was pushed to the sender's `ended`
 * (announced).
 */
struct sched_msg {
	BASE_ALIGNED_LINE sched_ref next, prev; /* of its bucket */
	sched_ref all_next, all_prev; /* of all that have no receive, in order of arrival */
	uint64_t ctx, bytes;
	uint32_t tag, src, kind;
	_Atomic uint32_t busy;
	/* announced: the send, and where its bytes are */
	sched_ref body, ended_next;
	uint64_t off;
	sched_opref op;
	uint32_t mem, segment, segment_count, reserved;
};

enum sched_state {
	SCHED_BLOCKED,   /* requirements are left */
	SCHED_READY,
	SCHED_BACKLOG,   /* send: no room in the ring */
	SCHED_POSTED,    /* receive: no message */
	SCHED_SENT,      /* send: announced, its receiver has not taken it yet */
	SCHED_WAITS_JOB, /* no job is free */
	SCHED_IN_JOB,
	SCHED_TIMER,
	SCHED_ENDED,
};

static inline uint64_t ctx_of(uint32_t channel, uint32_t run)
{
	return (uint64_t)channel << 32 | run;
}

/* How far an operation has come. Written by who drives its rank. */
struct sched_op {
	sched_opref next, prev; /* of the list that its state names */
	uint64_t post;          /* receive: in order of posting */
	sched_ref msg;          /* receive: what it takes; TIMER: until when, ns */
	uint32_t waits;         /* requirements not met */
	uint32_t send;          /* send: number of its message */
	uint8_t state, job;
};

/* How many runs a rank has started on a channel: in its arena, by who drives it. */
struct sched_runs { BASE_ALIGNED_LINE uint32_t count; };

enum run_phase { RUN_IDLE, RUN_GOING, RUN_DONE, RUN_FAILED };

/* An open schedule, in its owner's arena. */
struct sched_body {
	uint64_t bytes, id; /* id: never again used by this process */
	uint32_t mem_count, op_count, send_count, slot;
	uint32_t channel, padding;
	uint64_t block_off, segments_off, ops_off, msgs_off,
		times_off; /* from here; times_off 0: not kept */
	uint64_t block_bytes;
	sched_ref runs; /* of its channel, a struct sched_runs; 0: all runs are one context */
	/* by the owner, before a run */
	uint64_t start_ns;
	sched_opref next_start; /* of those that shall start */
	/* by who drives */
	BASE_ALIGNED_LINE _Atomic uint32_t
		phase; /* release: everything before; acquire by the owner */
	_Atomic uint32_t
		left; /* operations not ended; read by other threads of the rank, which only look */
	uint32_t prev_run, next_run;              /* slot + 1 */
	uint64_t ctx; /* since it was started */
	int32_t error, error_rank, error_at;
	uint32_t error_op;
	struct region_desc mem[];
};

/* One end of a copy: contiguous memory, or a list of pieces of a schedule's memory. */
struct sched_end {
	int32_t rank;        /* whose process has it at an address of its own */
	uint32_t slot;       /* its schedule; UINT32_MAX: a record, mapped by all */
	uint32_t mem;        /* contiguous: the space */
	bool mapped;         /* any process can address all of it */
	uint32_t segment, segment_count; /* a list */
	uint64_t off;        /* of byte 0 of contiguous memory in what desc describes */
	struct region_desc desc; /* contiguous */
	sched_ref body;      /* of a list */
};

/* A copy, or a local operation, cut into units as xfer_cut() says. */
struct sched_work {
	uint64_t bytes;
	uint32_t units;
	uint8_t type, dtype;
	struct sched_end dst, src, src2;
};

enum { STAGE_NO, STAGE_WANTED, STAGE_MAKING, STAGE_THERE };

/*
 * Work that anyone can take units of. Written by who drives the rank before it is opened; valid for
 * those who have claimed a unit, and until all are done. Who has not reads `brief` only, which says
 * whose it is.
 */
struct sched_job {
	struct xfer x; /* taken, done */
	_Atomic uint64_t brief; /* job_brief() */
	uint64_t tag;
	sched_opref op;
	struct sched_work work;
	_Atomic uint32_t stage; /* STAGE_..: the sender's process lays the bytes out in its arena */
	_Atomic int32_t error;    /* -errno: the run fails */
	uint64_t stage_off;       /* valid when STAGE_THERE (release, acquire) */
	_Atomic uint16_t owner[XFER_UNITS_MAX]; /* 1 + rank of who has claimed the unit */
};

/* What an engine knows about another rank. Written by who drives. */
struct sched_peer {
	BASE_ALIGNED_LINE uint32_t out_tail,
		out_seen; /* ring to it: next place; how far it has taken them */
	uint32_t inline_sent, inline_seen;
	uint32_t next_eager;
	uint32_t in_head, in_told,
		returned; /* ring from it: next place; what it was told; inline ones done with */
	sched_ref store_free;                /* records for inline messages from it */
	uint32_t store_used;                 /* those ever used */
	uint32_t gone;                   /* 1 + who is to blame: nothing comes from it any more */
	uint32_t aborts_seen, aborts_to; /* of its list; how many there are to look at */
	uint32_t lost;                   /* it failed so often that its list has forgotten some */
	uint32_t unrung; /* it was sent something, and may have fallen asleep meanwhile */
	struct sched_list backlog;           /* sends that found the ring full */
};

/* How far a rank has taken what another sent. Read by the sender now and then. */
struct sched_ends {
	BASE_ALIGNED_LINE _Atomic uint32_t head, returned;
};

struct sched_abort { uint64_t ctx; int32_t error, rank, at; uint32_t op; };

struct sched_engine {
	BASE_ALIGNED_LINE _Atomic uint32_t claim; /* 0, or 1 + rank of who drives */
	_Atomic uint32_t broken; /* 1 + rank of who died driving it */
	_Atomic uint32_t dead;   /* this rank's process has died */
	_Atomic uint32_t left;   /* this rank has left the group */
	BASE_ALIGNED_LINE _Atomic sched_opref
		starts; /* pushed by threads of the rank, taken by who drives */
	BASE_ALIGNED_LINE _Atomic sched_ref
		ended; /* announced sends whose bytes have been taken; by receivers */
	BASE_ALIGNED_LINE _Atomic uint64_t jobs;      /* open ones; by who drives; read by movers */
	_Atomic uint32_t trouble_seen;                /* of the group's `trouble` */
	_Atomic uint32_t abort_count;                 /* written behind aborts[] (release) */
	struct sched_abort aborts[SCHED_ABORTS];
	/* rank 0's: grows when somebody died or a run failed */
	BASE_ALIGNED_LINE _Atomic uint32_t trouble;
	/* from here on: who drives */
	BASE_ALIGNED_LINE uint64_t posts;
	uint64_t open_jobs;
	uint32_t runs, backlogged; /* runs: slot + 1 of the first; sends in a backlog */
	uint32_t unrung;           /* a peer is */
	struct sched_list ready, waits_job, timers, wild, all;
	uint64_t cpu_free_ns[SCHED_TIMERS];
	struct sched_list posted[SCHED_BUCKETS];
	struct sched_list early[SCHED_BUCKETS]; /* messages without a receive */
	struct sched_job job[SCHED_JOBS];
};

/* An eager record and an inline message that waits for its receive. */
struct sched_eager { struct sched_msg m; char data[SCHED_EAGER_BYTES]; };
struct sched_stored { struct sched_msg m; char data[SCHED_INLINE_BYTES]; };

/* ---- private to a process ---------------------------------------------------------------- */

/* Where this process sees a space of a schedule's memory: bytes [lo, hi) of it. */
struct sched_at { char *base; uint64_t lo, hi; };

struct sched_channel {
	uint32_t number;
	struct sched_runs *runs;
	struct sched_channel *next;
};

/* What this process has laid out for a receiver that could not reach it. */
struct sched_stage {
	struct sched_stage *next;
	void *memory;
	struct sched_job *job;
	uint64_t tag, bits;
};

/* A schedule as this process sees it, its own or a peer's. */
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
	struct goal_block *block; /* verified, where nobody else can change it */
	uint32_t mem_count;
	struct sched_at at[GOAL_SPACES_MAX];
	/* own ones only */
	char name[32];
	struct sched_channel *channel;
	unsigned flags;
	bool needs_clock;
	bool noticed; /* the end of the last run; what comes with it is done */
	uint64_t progress_ns; /* when waiting for it began to be without progress */
	uint32_t progress_left;
	void *memory, *scratch;
	struct sched_inst *next;
};

/* An engine as this process sees it. Constant, but for insts. */
struct sched_driver {
	struct sched_group *g;
	int rank;
	bool own, refused; /* refused: something in it does not verify: not driven from here */
	struct sched_engine *e;
	struct sched_peer *peers;
	struct sched_ends *ends;     /* by source */
	struct sched_slot *rings;    /* [source][SCHED_RING] */
	struct sched_stored *stores; /* [source][SCHED_STORE] */
	struct sched_eager *eagers;  /* [destination][SCHED_EAGERS] */
	/* [SCHED_INSTS]; a peer's under its claim, our own from open to close */
	_Atomic(struct sched_inst *) *insts;
	_Atomic uint64_t
		*directory; /* by slot: where the body is; by the owner, release, acquire */
};

struct sched_window { char *base; uint64_t bytes; };

struct sched_group {
	struct node_group *node;
	int rank, size;
	struct sched_window *windows;   /* by rank */
	struct sched_driver *drivers;   /* by rank */
	_Atomic uint32_t *trouble;
	bool use_vm;                    /* process_vm_* where the trial found that it works */
	uint64_t area_off;              /* of rank 0's area in its arena */
	uint64_t area_bytes;
	pthread_mutex_t lock;           /* pool, channels, instances */
	struct sched_pool *pool;
	struct sched_channel *channels;
	struct sched_inst *instances;   /* open ones of this process */
	struct sched_inst *zombies;     /* failed and closed: peers may still look at them */
	struct sched_stage *stages;
	uint64_t last_id;
	uint32_t next_slot;
	bool keep_times;
	_Atomic uint64_t checked_ns;    /* when peers were looked at last */
	_Atomic uint32_t tests;
	struct sched_profile *profile;
};

/* group.c */
sched_ref area_ref(const struct sched_group *g, const void *p); /* of something in a rank's area */
uint64_t sched_area_bytes(int size);

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

/* NULL: outside of every arena. */
static inline void *ref_at(const struct sched_group *g, sched_ref ref, uint64_t bytes)
{
	uint64_t rank = ref >> 48, off = ref & ((1ull << 48) - 1);

	if (base_unlikely(rank >= (uint64_t)g->size || off > g->windows[rank].bytes ||
			  bytes > g->windows[rank].bytes - off))
		return NULL;
	return g->windows[rank].base + off;
}
static inline sched_ref ref_of(int rank, uint64_t off) { return (uint64_t)rank << 48 | off; }
static inline sched_opref opref_of(uint32_t slot, uint32_t op)
{
	return ((uint64_t)slot + 1) << 32 | op;
}

/* pool.c: memory in this process's arena, in pieces of cache lines */
struct sched_pool *pool_create(void);
void *pool_get(struct sched_pool *p, uint64_t bytes); /* NULL: none left */
void pool_put(struct sched_pool *p, void *memory);
/* Gives the arena everything back. */
void pool_destroy(struct sched_pool *p);

/* instance.c */
struct sched_inst *inst_see(struct sched_driver *d, uint32_t slot, struct sched_inst *seen);
/* Under the claim. NULL: it is not what it says it is. */
static inline struct sched_inst *inst_at(struct sched_driver *d, uint32_t slot)
{
	struct sched_inst *s;

	if (base_unlikely(slot >= SCHED_INSTS))
		return NULL;
	s = atomic_load_explicit(&d->insts[slot], memory_order_acquire);
	return base_likely(d->own) ? s : inst_see(d, slot, s);
}
/* Operation of a reference; NULL with *s NULL when it is not one. Under the claim. */
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
/* Where this process sees bytes [off, off + n) of a space; NULL: it does not. */
static inline char *inst_addr(const struct sched_inst *s, uint32_t mem, uint64_t off, uint64_t n)
{
	const struct sched_at *a = &s->at[mem];

	return a->base && off >= a->lo && off + n <= a->hi ? a->base + off : NULL;
}
void inst_free(struct sched_inst *s);
/* Memory of sched_alloc(), which every rank maps. */
static inline bool is_arena_memory(const void *p, uint64_t bytes)
{
	uint64_t off = (uint64_t)((const char *)p - (char *)region_arena_base());

	return off < region_arena_bytes() && bytes <= region_arena_bytes() - off;
}

/* lists.c: of operations of the driven engine, and of messages */
void list_push(struct sched_driver *d, struct sched_list *l, sched_opref ref, struct sched_op *op);
void list_remove(struct sched_driver *d, struct sched_list *l, sched_opref ref,
		 struct sched_op *op);
sched_opref list_pop(struct sched_driver *d, struct sched_list *l);

/* match.c */
uint32_t match_hash(uint64_t ctx, uint32_t src, uint32_t tag);
void match_post(struct sched_driver *d, struct sched_inst *s, uint32_t i);
void match_unpost(struct sched_driver *d, struct sched_inst *s, uint32_t i);
/* The receive that takes such a message, taken off the list; 0: none. */
sched_opref match_find(struct sched_driver *d, uint64_t ctx, uint32_t src, uint32_t tag);
/* The message that such a receive takes, taken off the list; NULL: none. */
struct sched_msg *match_take(struct sched_driver *d, uint64_t ctx, const struct goal_op *recv,
			     sched_ref *out);
void match_keep(struct sched_driver *d, struct sched_msg *m, sched_ref ref);
/* Forget what has come from src in this context. */
void match_drop(struct sched_driver *d, uint64_t ctx, uint32_t src);

/* ring.c */
bool ring_has_room(struct sched_driver *d, uint32_t dst);
/* When there is room. The send has ended, or its state is SENT. */
void ring_send(struct sched_driver *d, struct sched_inst *s, uint32_t i);
bool ring_poll(struct sched_driver *d);
/* A message's bytes were taken. */
void msg_release(struct sched_driver *d, struct sched_msg *m, sched_ref ref);

/* engine.c */
bool engine_try_claim(struct sched_driver *d);
void engine_release(struct sched_driver *d);
/* Everything that can be done now, under the claim. */
bool engine_step(struct sched_driver *d);
void engine_ring_all(struct sched_driver *d);
bool engine_take_ended(struct sched_driver *d); /* announced sends whose receivers have the bytes */
/* Begin a run at once, under the claim. */
void engine_start(struct sched_driver *d, struct sched_inst *s);
/* engine_step under a claim of its own. False: nothing was done. */
bool engine_drive(struct sched_driver *d);
void op_ready(struct sched_driver *d, struct sched_inst *s, uint32_t i);
void op_ended(struct sched_driver *d, struct sched_inst *s, uint32_t i);
/* A receive and its message have met. */
void op_receive(struct sched_driver *d, struct sched_inst *s, uint32_t i, struct sched_msg *m,
		sched_ref ref);
void run_finish(struct sched_driver *d, struct sched_inst *s, enum run_phase phase);

/*
 * What a mover has to know before it claims a unit: the tag that all this belongs to, how many
 * units there are, whose memory the ends are, and whether everybody has it mapped.
 */
struct sched_brief {
	uint64_t tag;
	uint32_t units;
	int dst, src;
	bool dst_mapped, src_mapped;
};

/* job.c */
static inline uint64_t job_brief(uint64_t tag, const struct sched_work *w)
{
	/* a local operation's three places are one rank's */
	bool operands = w->type == GOAL_RECV || (w->src.mapped && w->src2.mapped && w->dst.mapped);

	return tag << 40 | (uint64_t)w->units << 34 | (uint64_t)(uint16_t)w->dst.rank << 18 |
	       (uint64_t)(uint16_t)w->src.rank << 2 | (uint64_t)(operands && w->dst.mapped) << 1 |
	       (operands && w->src.mapped);
}
void job_for_recv(struct sched_driver *d, struct sched_inst *s, uint32_t i, struct sched_msg *m);
void job_for_local(struct sched_driver *d, struct sched_inst *s, uint32_t i);
bool job_reap(struct sched_driver *d);
/* Nobody may take units of the jobs of this run any more; waits for those who have, and live. */
void job_cancel(struct sched_driver *d, const struct sched_inst *s);
/* Is a unit of it in the hands of a process that has died? */
bool job_is_orphan(struct sched_driver *d, const struct sched_inst *s, int dead);

/* move.c */
/* Take a unit of a job of this rank's engine, if there is one that this process can do. True: one
 * is done. */
bool move_some(struct sched_group *g, int rank);
uint64_t work_bits(const struct sched_work *w);
/* Could this process do it at once? */
bool work_is_here(const struct sched_group *g, const struct sched_work *w);
/* Bytes [at, at + n) of it. 0 or -errno. */
int work_do(struct sched_group *g, const struct sched_work *w, uint64_t at, uint64_t n);
/* Free what was laid out for receivers that have it by now. */
void stages_sweep(struct sched_group *g);

/* run.c: what the end of a run brings with it in its own process; once */
void run_noticed(struct sched_inst *s);
void run_tell_stuck(const struct sched_inst *s);

/* profile.c: a finished run; everything kept goes to SLUICE_GOAL_PROFILE */
void profile_run(struct sched_inst *s);
void profile_write(struct sched_group *g);

/* trouble.c */
void trouble_handle(struct sched_driver *d);
/* The run ends with an error here, and wherever it is waited for. */
void run_fail(struct sched_driver *d, struct sched_inst *s, const struct sched_abort *why);
/* A send or receive that has just started, after somebody has died or failed: can it still end?
 * True: no, its run has failed. */
bool trouble_check_op(struct sched_driver *d, struct sched_inst *s, uint32_t i);
/* Look whether everybody lives. */
void trouble_look(struct sched_group *g);
/* A failed run's memory is the program's again when this returns. */
void trouble_settle(struct sched_group *g);

#endif
