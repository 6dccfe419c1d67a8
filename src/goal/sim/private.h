/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of sim/ share. All numbers are indices into arrays that may move when they grow.
 */
#ifndef SLUICE_SIM_PRIVATE_H
#define SLUICE_SIM_PRIVATE_H

#include "goal/sim/sim.h"

#define SIM_NONE 0u /* index of nothing: element 0 of every array is unused */

/* ---- arrays that grow, with a list of free elements -------------------------------------- */

struct sim_pool {
	char *at;
	size_t element_bytes;
	uint32_t used, cap, free; /* free: first of a list linked through the first word */
};
void sim_pool_init(struct sim_pool *p, size_t element_bytes);
void sim_pool_fini(struct sim_pool *p);
/* An element, its contents undefined; SIM_NONE: no memory. */
uint32_t sim_pool_get(struct sim_pool *p);
void sim_pool_put(struct sim_pool *p, uint32_t index);
static inline void *sim_pool_at(const struct sim_pool *p, uint32_t index)
{
	return p->at + (size_t)index * p->element_bytes;
}

/* ---- queue.c: events by time, then by number --------------------------------------------- */

enum sim_event_kind {
	SIM_EVENT_OP,
	SIM_EVENT_MESSAGE,
	/* card.c */
	SIM_EVENT_CARD,    /* the card may do its part of an operation */
	SIM_EVENT_ARRIVAL, /* a put or get at the peer's card */
	SIM_EVENT_ANSWER,  /* what a get has fetched */
	SIM_EVENT_COUNT,   /* op: 1 + counter, which grows */
};

struct sim_event {
	uint64_t time, seq; /* seq: given when it was made, kept while it waits */
	uint32_t rank, op;  /* a message: of the sender */
	uint32_t from;      /* path record of what determined the time */
	uint8_t kind, cause;
	uint16_t reserved;
};

/*
 * A radix heap: bucket b > 0 holds the times whose highest bit that differs from `last` is bit b -
 * 1; bucket 0 those equal to it. Time never goes back, so an event moves to lower buckets only, and
 * all moves are sequential. Within a bucket events of equal time stay in the order in which they
 * were pushed, which is that of seq but for those that had waited: they lie in `late` while their
 * time is the current one.
 */
#define SIM_CHUNK_EVENTS 127
#define SIM_BUCKETS 65
struct sim_queue {
	uint64_t last;
	uint64_t count;
	struct sim_pool chunks;
	struct {
		uint32_t head, tail;
	} bucket[SIM_BUCKETS];
	uint64_t filled;          /* bit b - 1: bucket b has events */
	uint32_t read;            /* events taken from the first chunk of bucket 0 */
	uint64_t newest;          /* seq of the last event of bucket 0 */
	struct sim_event *late;   /* a binary heap by seq */
	uint32_t late_count, late_cap;
};
void sim_queue_init(struct sim_queue *q);
void sim_queue_fini(struct sim_queue *q);
int sim_queue_push(struct sim_queue *q, const struct sim_event *e);
/* 1 with the next event, 0 when there is none, -ENOMEM. */
int sim_queue_pop(struct sim_queue *q, struct sim_event *out);
/* An event that will be popped soon, or NULL. */
const struct sim_event *sim_queue_peek(const struct sim_queue *q, uint32_t ahead);

/* ---- shape.c: schedules, equal ones once ------------------------------------------------- */

struct sim_op {
	uint64_t bytes;      /* CALC: nanoseconds */
	uint32_t peer,
		tag;   /* peer: relative; GOAL_ANY. tag of a one-sided operation: its sim_side */
	uint32_t next; /* adjacency: first those that wait for the end, then those for the begin */
	uint32_t next_count, inext_count;
	uint32_t requires;
	uint16_t cpu, nic;
	uint8_t type, kind;  /* enum goal_type, enum sim_kind */
	uint16_t reserved;
};

/* What else a one-sided operation says. Schedules with any are not shared. */
struct sim_side {
	uint64_t value;
	uint32_t counter, when, tag; /* as in struct goal_op */
	uint8_t options;
};

struct sim_shape {
	uint64_t hash;
	uint64_t first_op, first_edge;
	uint32_t op_count, ready_count, edge_count;
	uint32_t chain; /* next shape of the same hash bucket */
};

struct sim_shapes {
	struct sim_pool shapes;
	struct sim_op *ops;
	uint32_t *edges;
	struct sim_side *sides;
	uint64_t op_count, op_cap, edge_count, edge_cap, side_count, side_cap;
	uint32_t *table; /* hash buckets */
	uint32_t table_size;
};
void sim_shapes_init(struct sim_shapes *h);
void sim_shapes_fini(struct sim_shapes *h);
/* The shape of this block; SIM_NONE with *error set. */
uint32_t sim_shape_of(struct sim_shapes *h, const struct sim_config *c, uint32_t rank,
		      const struct goal_block *b, int *error);

/* ---- a rank ------------------------------------------------------------------------------ */

/* Messages that wait for a receive, or receives that wait for a message: one list while it is
 * short, then many by sender and tag. */
struct sim_list {
	uint32_t head, tail;
	uint32_t count;
	uint32_t bins; /* SIM_NONE: one list */
};

struct sim_posted {      /* a receive */
	uint32_t next, op;
	uint32_t seq, from;
};
struct sim_arrived {     /* a message */
	uint32_t next, seq;
	uint32_t rank, op;   /* the sender's */
	uint64_t end;        /* when the receiver's CPU was done with it */
	uint32_t from, reserved;
};

struct sim_cpu {
	uint64_t free;
	uint32_t last, reserved; /* path record of what kept it busy */
};
struct sim_nic {
	uint64_t free_send, free_recv;
	uint32_t last_send, last_recv;
};

struct sim_rank {
	uint32_t shape, left;   /* operations that have not ended */
	struct sim_list posted, arrived;
	uint32_t made, reserved; /* numbers of entries of both lists */
	/* then: sim_cpu[cpus], sim_nic[nics], head_seq[lines], root[lines] */
};

/* Waiting for a CPU or NIC: lines of (kind, cpu, nic). */
struct sim_waiter {
	uint32_t child, sibling;
	struct sim_event event;
};

/* A requirement counter of an operation with several, while some are met and not all. */
struct sim_partial {
	uint64_t key;  /* rank << 32 | op, + 1; 0: free */
	uint64_t ready;
	uint32_t left, from;
};
struct sim_partials {
	struct sim_partial *slots;
	uint32_t mask, count;
};

/* Something that kept a CPU busy; of a message received: the sender's rank and operation. */
struct sim_record {
	uint64_t begin;
	uint32_t rank, op;
	uint32_t from;
	uint8_t kind, cause;
	uint16_t reserved;
};
/* A ring. Numbers go from 1 to end - 1 and begin again; end is a multiple of cap, and 0 is none. */
struct sim_log {
	struct sim_record *records;
	uint32_t cap, end;
	uint32_t next, slot; /* next number to give, and where it goes: next % cap */
};

/* Of cards: an append, or the header of what an overflow list let in. */
struct sim_entry {
	uint32_t next, peer, tag, counter;
	uint8_t options;
};
/* An operation that waits for its counter. */
struct sim_watcher {
	uint32_t next, op;
	uint64_t value, ready;
};
struct sim_counter {
	uint64_t key, value; /* rank << 32 | 1 + number; 0: free */
	uint32_t first, reserved;
};
struct sim_card {
	uint32_t first[3]; /* priority list, overflow list, headers */
};

/* Bins of a long list. */
struct sim_bins {
	uint32_t mask;
	struct {
		uint32_t head, tail;
	} bin[]; /* mask + 1 of known sender and tag, then one of the rest */
};

struct sim {
	struct sim_config config;
	struct sim_queue queue;
	struct sim_shapes shapes;
	char *ranks;
	size_t rank_bytes, cpu_off, nic_off, seq_off, root_off;
	uint32_t lines;
	uint32_t nothing;   /* the shape of a rank without operations */
	uint64_t seq;
	struct sim_pool posted, arrived, waiters;
	struct sim_bins **bins;
	uint32_t bins_count, bins_cap;
	struct sim_partials partials;
	struct sim_log log;
	struct sim_stats stats;
	struct sim_freed {
		uint32_t op, from;
		uint64_t ready;
	} *freed[2];
	uint32_t freed_count[2], freed_cap[2];
	struct sim_card *cards; /* by rank, once there is a one-sided operation */
	struct sim_counter *counters;
	uint32_t counter_mask, counter_count;
	struct sim_pool entries, watchers;
	int error;
};

static inline struct sim_rank *sim_rank_of(const struct sim *s, uint32_t rank)
{
	return (struct sim_rank *)(s->ranks + (size_t)rank * s->rank_bytes);
}
static inline struct sim_cpu *sim_cpu_of(const struct sim *s, struct sim_rank *r, uint32_t cpu)
{
	return (struct sim_cpu *)((char *)r + s->cpu_off) + cpu;
}
static inline struct sim_nic *sim_nic_of(const struct sim *s, struct sim_rank *r, uint32_t nic)
{
	return (struct sim_nic *)((char *)r + s->nic_off) + nic;
}
static inline const struct sim_shape *sim_shape_at(const struct sim *s, const struct sim_rank *r)
{
	return sim_pool_at(&s->shapes.shapes, r->shape);
}
static inline const struct sim_op *sim_op_of(const struct sim *s, const struct sim_rank *r,
					     uint32_t op)
{
	return s->shapes.ops + sim_shape_at(s, r)->first_op + op;
}
/* The peer of an operation of this rank. */
static inline uint32_t sim_peer(const struct sim *s, uint32_t rank, const struct sim_op *op)
{
	uint64_t sum;

	if (op->peer == GOAL_ANY)
		return GOAL_ANY;
	if (s->config.relation == SIM_BY_BITS)
		return rank ^ op->peer;
	sum = (uint64_t)rank + op->peer;
	return (uint32_t)(sum >= s->config.ranks ? sum - s->config.ranks : sum);
}

/* ---- match.c ----------------------------------------------------------------------------- */

/* Take the first receive that this message matches. False: there is none. */
bool sim_match_posted(struct sim *s, uint32_t rank, uint32_t src, uint32_t tag,
		      struct sim_posted *out);
/* Take the first message that this receive matches. */
bool sim_match_arrived(struct sim *s, uint32_t rank, const struct sim_op *recv,
		       struct sim_arrived *out);
int sim_post(struct sim *s, uint32_t rank, uint32_t op, uint32_t from);
int sim_arrive(struct sim *s, uint32_t rank, const struct sim_arrived *message);
/* Calls visit with the index of each element, in no order when there are bins. */
void sim_list_each(const struct sim *s, const struct sim_list *l, const struct sim_pool *pool,
		   void (*visit)(void *ctx, uint32_t index), void *ctx);

/* ---- line.c ------------------------------------------------------------------------------ */

/* The event cannot happen before `at`: it stands in line. */
int sim_line_wait(struct sim *s, uint32_t rank, uint32_t line, struct sim_event *e, uint64_t at);
/* It has happened; who stands next may happen at `at`. */
int sim_line_advance(struct sim *s, uint32_t rank, uint32_t line, const struct sim_event *e,
		     uint64_t at, uint32_t from, enum sim_cause cause);
static inline uint32_t sim_line_of(const struct sim *s, enum sim_kind kind, uint32_t cpu,
				   uint32_t nic)
{
	return (uint32_t)kind + 3 * (cpu * s->config.nics + nic);
}

/* ---- partial.c --------------------------------------------------------------------------- */

/* One of `requires` requirements of the operation is met at `ready`. 1: all are, *ready and *from
 * are those of the last; 0: not yet; -ENOMEM. */
int sim_partial_meet(struct sim_partials *p, uint32_t rank, uint32_t op, uint32_t requires,
		     uint64_t *ready, uint32_t *from);
void sim_partials_fini(struct sim_partials *p);

/* ---- card.c ------------------------------------------------------------------------------ */

static inline bool sim_is_one_sided(const struct sim_op *op)
{
	return op->type >= GOAL_PUT && op->type <= GOAL_TEST;
}
/* The CPU's part of a one-sided operation ends at `end`. */
int sim_card_begin(struct sim *s, uint32_t rank, uint32_t index, const struct sim_op *op,
		   uint64_t end, uint32_t from);
int sim_card_send(struct sim *s, struct sim_event *e);
int sim_card_arrival(struct sim *s, struct sim_event *e);
int sim_card_answer(struct sim *s, struct sim_event *e);
int sim_card_count(struct sim *s, const struct sim_event *e);
/* Operations that wait for a counter. */
void sim_cards_each(const struct sim *s, void (*visit)(void *ctx, uint32_t rank, uint32_t op),
		    void *ctx);
void sim_cards_fini(struct sim *s);

/* ---- path.c ------------------------------------------------------------------------------ */

int sim_log_init(struct sim_log *l, size_t bytes);
void sim_log_fini(struct sim_log *l);
/* The number of the new record. */
static inline uint32_t sim_log_add(struct sim_log *l, enum sim_kind kind, const struct sim_event *e)
{
	uint32_t number = l->next;

	if (!l->cap)
		return 0;
	l->records[l->slot] = (struct sim_record){
		.begin = e->time,
		.rank = e->rank,
		.op = e->op,
		.from = e->from,
		.kind = (uint8_t)kind,
		.cause = e->cause,
	};
	l->next++;
	l->slot = l->slot + 1 == l->cap ? 0 : l->slot + 1;
	if (l->next == l->end)
		l->next = l->slot = 1;
	return number;
}

/* ---- run.c ------------------------------------------------------------------------------- */

/* A test has come to its end: its CPU waited until `now`. */
int sim_end_test(struct sim *s, uint32_t rank, const struct sim_op *op, uint64_t now,
		 uint32_t from);
/* How long the operation keeps the CPU. */
uint64_t sim_cost(const struct sim *s, enum sim_kind kind, const struct sim_op *op);

#endif
