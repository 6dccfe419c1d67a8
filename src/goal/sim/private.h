/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to sim/. Numbers are indices into arrays that move when they grow. */
#ifndef SLUICE_SIM_PRIVATE_H
#define SLUICE_SIM_PRIVATE_H

#include "goal/grow/grow.h"
#include "goal/sim/sim.h"

#define SIM_NONE 0u /* no element: element 0 of every array is unused */

static inline uint64_t sim_later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* ---- arrays that grow, with a list of free elements -------------------------------------- */

struct sim_pool {
	char *at;
	size_t element_bytes;
	/* free: first element of a list that is linked through the first word */
	uint32_t used, cap, free;
};
void sim_pool_init(struct sim_pool *p, size_t element_bytes);
void sim_pool_fini(struct sim_pool *p);
/* Returns: an element with undefined contents; SIM_NONE: no memory. */
uint32_t sim_pool_get(struct sim_pool *p);
void sim_pool_put(struct sim_pool *p, uint32_t index);
static inline void *sim_pool_at(const struct sim_pool *p, uint32_t index)
{
	return p->at + (size_t)index * p->element_bytes;
}

/* ---- hash tables: slots that begin with a key of 64 bits, 0: free ------------------------- */

struct sim_table {
	char *slots; /* NULL: no key yet */
	size_t slot_bytes;
	uint64_t mask, count;
};
void sim_table_init(struct sim_table *t, size_t slot_bytes);
void sim_table_fini(struct sim_table *t);
/* Returns: the slot of a key, whose other bytes are zero where it is new; NULL: no memory. */
void *sim_table_get(struct sim_table *t, uint64_t key, bool *out_new);
void sim_table_remove(struct sim_table *t, void *slot);
/* Returns: the slot after `slot` (NULL: the first), in no order; NULL: there is none. */
void *sim_table_next(const struct sim_table *t, const void *slot);
static inline void *sim_table_at(const struct sim_table *t, uint64_t i)
{
	return t->slots + i * t->slot_bytes;
}
static inline uint64_t sim_table_home(const struct sim_table *t, uint64_t key)
{
	return key * 0x9e3779b97f4a7c15u >> 32 & t->mask;
}
/* Returns: the slot of a key, or a free one. Context: the table has some key. */
static inline void *sim_table_find(const struct sim_table *t, uint64_t key)
{
	uint64_t i = sim_table_home(t, key), *slot;

	while (*(slot = sim_table_at(t, i)) && *slot != key)
		i = (i + 1) & t->mask;
	return slot;
}

/* ---- queue.c: events by time, then by number --------------------------------------------- */

enum sim_event_kind {
	SIM_EVENT_OP,
	SIM_EVENT_MESSAGE,
	/* card.c */
	SIM_EVENT_CARD,    /* the card may begin its part of an operation */
	SIM_EVENT_ARRIVAL, /* a put or get has arrived at the peer's card */
	SIM_EVENT_ANSWER,  /* the answer of a get has arrived */
	SIM_EVENT_COUNT,   /* op: 1 + counter, which is incremented */
};

struct sim_event {
	uint64_t time, seq; /* seq: order of creation; kept while the event waits */
	uint32_t rank, op;  /* a message: operation and rank of the sender */
	uint32_t from;      /* path record of what determined the time */
	uint8_t kind, cause;
	uint16_t reserved;
};

/*
 * A radix heap: bucket b > 0 holds the times whose highest bit that differs from `last` is bit b -
 * 1; bucket 0 the times equal to it. Time never decreases, so events move to lower buckets only,
 * and all moves are sequential. Within a bucket, events of equal time stay in the order in which
 * they were pushed, which is the order of seq except for events that waited: these lie in `late`
 * while their time is the current one.
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
	uint32_t read;            /* events popped from the first chunk of bucket 0 */
	uint64_t newest;          /* seq of the last event of bucket 0 */
	struct sim_event *late;   /* a binary heap by seq */
	uint32_t late_count, late_cap;
};
void sim_queue_init(struct sim_queue *q);
void sim_queue_fini(struct sim_queue *q);
int sim_queue_push(struct sim_queue *q, const struct sim_event *e);
/* Returns: 1 with the next event, 0 when there is none, -ENOMEM. */
int sim_queue_pop(struct sim_queue *q, struct sim_event *out);
/* Returns: an event that will be popped soon, or NULL. */
const struct sim_event *sim_queue_peek(const struct sim_queue *q, uint32_t ahead);

/* ---- shape.c: schedules, equal ones once ------------------------------------------------- */

struct sim_op {
	uint64_t bytes;      /* CALC: nanoseconds */
	uint32_t peer,
		/* peer: relative; GOAL_ANY. tag of a one-sided operation: index of its sim_side */
		tag;
	/* adjacency: operations that require the end, then those that require the beginning; these
	 * end where those of the next operation begin */
	uint32_t next;
	uint32_t next_count;
	uint32_t requires;
	uint16_t cpu, nic;
	uint8_t type, kind; /* enum goal_type, enum sim_kind */
	bool has_inext;     /* some operation requires the beginning */
	bool is_fresh;      /* inside a node: an operation that it requires writes what it reads */
} __attribute__((packed, aligned(4)));
_Static_assert(sizeof(struct sim_op) == 36, "most of the memory of schedules that differ");

/* Further fields of a one-sided operation. Schedules with one are not shared. */
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
/* Returns: the shape of this block; SIM_NONE with *error set. */
uint32_t sim_shape_of(struct sim_shapes *h, const struct sim_config *c, uint32_t rank,
		      const struct goal_block *b, int *error);

/* ---- a rank ------------------------------------------------------------------------------ */

/* Unexpected messages, or posted receives: one list while it is short, then bins by sender and
 * tag. */
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
	uint32_t rank, op;   /* operation of the sender */
	uint64_t end;        /* when the receiver's CPU had taken the message */
	uint32_t from, reserved;
};

struct sim_cpu {
	uint64_t free;
	uint32_t last;   /* path record of the last occupation */
	uint32_t number; /* sim_units_end() */
};
struct sim_nic {
	uint64_t free_send, free_recv;
	uint32_t last_send, last_recv;
};


/* A pair of CPU and NIC. A CPU's state is in its unit with NIC 0, a NIC's in that with CPU 0. */
struct sim_unit {
	struct sim_cpu cpu;
	struct sim_nic nic;
	/* line.c: events that wait, by enum sim_kind */
	uint64_t head_seq[3];
	uint32_t root[3], reserved;
};

struct sim_rank {
	uint32_t shape, remaining; /* operations that have not ended */
	struct sim_list posted, arrived;
	uint32_t made, reserved; /* numbers given to entries of both lists */
	struct sim_unit unit;    /* of CPU 0 and NIC 0 */
};

/* The other units, by rank, CPU and NIC. All are made before the simulation runs. */
struct sim_unit_slot {
	uint64_t key; /* rank << 32 | cpu << 16 | nic */
	struct sim_unit unit;
};

/* Element of a line. */
struct sim_waiter {
	uint32_t child, sibling;
	struct sim_event event;
};

/* Requirement counter of an operation while some requirements are met and some are not. */
struct sim_partial {
	uint64_t key;  /* rank << 32 | op, + 1 */
	uint64_t ready;
	uint32_t remaining, from;
};

/* An occupation of a CPU; of a received message: the sender's rank and operation. */
struct sim_record {
	uint64_t begin;
	uint32_t rank, op;
	uint32_t from;
	uint8_t kind, cause;
	uint16_t others; /* a message inside a node: sim_node_others() */
};
/* A ring. Numbers run from 1 to end - 1 and start again; end is a multiple of cap; 0 is no
 * record. */
struct sim_log {
	struct sim_record *records;
	uint32_t cap, end;
	uint32_t next, slot; /* next number; it goes to next % cap */
};

/* An entry of a card: an append, or the header of a message that the overflow list accepted. */
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
	uint64_t key, value; /* rank << 32 | 1 + number */
	uint32_t first, reserved;
};
struct sim_card {
	uint32_t first[3]; /* priority list, overflow list, headers */
};

/* A rank of a node. */
struct sim_neighbour {
	uint64_t copying_until; /* end of its last copy or local operation */
	uint64_t sent_until;    /* end of its last send that a receiver ended */
	uint32_t sent_last;     /* path record of that */
	uint64_t footprint;     /* of the node's first rank: bytes that all of its ranks touch */
};

/* noise.c: detours without overlaps. The last one ends the period. */
struct sim_detours {
	struct sim_detour_at {
		uint64_t begin, ps;
		uint64_t free; /* free time before it */
	} *at;
	uint32_t count; /* 0: no noise */
	bool is_cosched;
	uint64_t period, free, seed;
};

/* Messages in the order in which they came, for receives from anybody. */
struct sim_order {
	struct {
		uint32_t index, seq; /* index SIM_NONE: it has been received */
	} *at;
	uint32_t first, count, cap; /* all before `first` have been received */
	uint32_t received;
};

/* Bins of a long list. */
struct sim_bins {
	struct sim_order order; /* of unexpected messages */
	uint32_t mask;
	struct {
		uint32_t head, tail;
	} bin[]; /* mask + 1 of known sender and tag, then one of the rest */
};

struct sim {
	struct sim_config config;
	struct sim_queue queue;
	struct sim_shapes shapes;
	struct sim_rank *ranks;
	struct sim_table units;    /* of struct sim_unit_slot */
	uint32_t nothing;   /* the shape of a rank without operations */
	uint64_t seq;
	struct sim_pool posted, arrived, waiters;
	struct sim_bins **bins;
	uint32_t bins_count, bins_cap;
	struct sim_table partials; /* of struct sim_partial */
	struct sim_log log;
	struct sim_stats stats;
	struct sim_freed {
		uint32_t op, from;
		uint64_t ready;
	} *freed[2];
	uint32_t freed_count[2], freed_cap[2];
	struct sim_card *cards; /* by rank; allocated with the first one-sided operation */
	struct sim_table counters; /* of struct sim_counter */
	struct sim_pool entries, watchers;
	struct sim_neighbour *neighbours; /* by rank; NULL: there are no nodes */
	struct sim_detours detours;
	struct sim_matching *matching; /* by rank; NULL: not asked for */
};

static inline struct sim_rank *sim_rank_of(const struct sim *s, uint32_t rank)
{
	return s->ranks + rank;
}

/* ---- unit.c ------------------------------------------------------------------------------ */

/* Makes the units that the operations of a rank occupy, here and where their messages arrive.
 * Returns: 0 or -ENOMEM. */
int sim_units_add(struct sim *s, uint32_t rank, const struct goal_block *b);
struct sim_unit *sim_units_find(const struct sim *s, uint32_t rank, uint32_t cpu, uint32_t nic);
void sim_unit_init(struct sim_unit *u);
/* The simulation has ended: copies the CPU that ended last to that of the rank's own unit. */
void sim_units_end(struct sim *s);

static inline struct sim_unit *sim_unit_of(const struct sim *s, uint32_t rank, uint32_t cpu,
					   uint32_t nic)
{
	return cpu | nic ? sim_units_find(s, rank, cpu, nic) : &sim_rank_of(s, rank)->unit;
}
static inline struct sim_cpu *sim_cpu_of(const struct sim *s, uint32_t rank, uint32_t cpu)
{
	return &sim_unit_of(s, rank, cpu, 0)->cpu;
}
static inline struct sim_nic *sim_nic_of(const struct sim *s, uint32_t rank, uint32_t nic)
{
	return &sim_unit_of(s, rank, 0, nic)->nic;
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
/* Returns: the peer of an operation of this rank. */
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

/* Removes the first receive that this message matches. Returns: false: there is none. */
bool sim_match_posted(struct sim *s, uint32_t rank, uint32_t src, uint32_t tag,
		      struct sim_posted *out);
/* Removes the first message that this receive matches. Returns: false: there is none. */
bool sim_match_arrived(struct sim *s, uint32_t rank, const struct sim_op *recv,
		       struct sim_arrived *out);
int sim_post(struct sim *s, uint32_t rank, uint32_t op, uint32_t from);
/* Adds an unexpected message. */
int sim_arrive(struct sim *s, uint32_t rank, const struct sim_arrived *message);
void sim_bins_free(struct sim_bins *b);
/* Calls visit with the index of each element; in no order when there are bins. */
void sim_list_each(const struct sim *s, const struct sim_list *l, const struct sim_pool *pool,
		   void (*visit)(void *ctx, uint32_t index), void *ctx);

/* ---- line.c ------------------------------------------------------------------------------ */

/* Events of a kind that wait for the CPU or NIC of a unit. */
struct sim_line {
	struct sim_unit *unit;
	enum sim_kind kind;
};
static inline struct sim_line sim_line_of(const struct sim *s, uint32_t rank, enum sim_kind kind,
					  uint32_t cpu, uint32_t nic)
{
	return (struct sim_line){ sim_unit_of(s, rank, cpu, nic), kind };
}
/* Puts an event that cannot happen before `at` into its line. */
int sim_line_wait(struct sim *s, struct sim_line line, struct sim_event *e, uint64_t at);
/* The event has happened; the next of its line may happen at `at`. */
int sim_line_advance(struct sim *s, struct sim_line line, const struct sim_event *e, uint64_t at,
		     uint32_t from, enum sim_cause cause);

/* ---- partial.c --------------------------------------------------------------------------- */

/* Meets one of `requires` requirements at `ready`. Returns: 1: all are met, *ready and *from are
 * those of the last; 0: not all; -ENOMEM. */
int sim_partial_release(struct sim_table *partials, uint32_t rank, uint32_t op, uint32_t requires,
			uint64_t *ready, uint32_t *from);

/* ---- card.c ------------------------------------------------------------------------------ */

static inline bool sim_is_one_sided(const struct sim_op *op)
{
	return op->type >= GOAL_PUT && op->type <= GOAL_TEST;
}
/* The CPU finishes its part of a one-sided operation at `end`. */
int sim_card_begin(struct sim *s, uint32_t rank, uint32_t index, const struct sim_op *op,
		   uint64_t end, uint32_t from);
int sim_card_send(struct sim *s, struct sim_event *e);
int sim_card_arrival(struct sim *s, struct sim_event *e);
int sim_card_answer(struct sim *s, struct sim_event *e);
int sim_card_count(struct sim *s, const struct sim_event *e);
/* Calls visit for each operation that waits for a counter. */
void sim_cards_each(const struct sim *s, void (*visit)(void *ctx, uint32_t rank, uint32_t op),
		    void *ctx);
void sim_cards_fini(struct sim *s);

/* ---- path.c ------------------------------------------------------------------------------ */

/* The log has room for what `ops` operations write, in at most `bytes`. Returns: 0 or -ENOMEM. */
int sim_log_init(struct sim_log *l, size_t bytes, uint64_t ops);
void sim_log_fini(struct sim_log *l);
/* Returns: the number of the new record. */
static inline uint32_t sim_log_add(struct sim_log *l, enum sim_kind kind, const struct sim_event *e,
				   uint16_t others)
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
		.others = others,
	};
	l->next++;
	l->slot = l->slot + 1 == l->cap ? 0 : l->slot + 1;
	if (l->next == l->end)
		l->next = l->slot = 1;
	return number;
}

/* ---- params.c ---------------------------------------------------------------------------- */

/* Replaces SIM_AS_BELOW. */
void sim_classes_fill(struct sim_params *p);
/* Returns: the costs of a message of this length. */
static inline const struct sim_costs *sim_costs_of(const struct sim *s, uint64_t bytes)
{
	const struct sim_params *p = &s->config.params;
	const struct sim_costs *costs = &p->costs;

	for (uint32_t i = 0; i < p->class_count && bytes > p->classes[i].above_bytes; i++)
		costs = &p->classes[i].costs;
	return costs;
}

/* ---- run.c ------------------------------------------------------------------------------- */

/* An operation ended or began at `ready`; sim_push_freed() makes events of those that may follow.
 * side: 0 for the rank itself, 1 for the sender of a rendezvous. */
int sim_release(struct sim *s, unsigned side, uint32_t rank, const struct sim_op *op, bool ended,
		uint64_t ready, uint32_t from);
int sim_end_op(struct sim *s, unsigned side, uint32_t rank, const struct sim_op *op,
	       uint64_t ready, uint32_t from);
int sim_push_freed(struct sim *s, unsigned side, uint32_t rank);
/* As sim_push_freed(), for a receiver and its sender; the lower rank first. */
int sim_push_both(struct sim *s, uint32_t rank, uint32_t sender);
void sim_watch(struct sim *s, enum sim_kind kind, uint32_t rank, const struct sim_event *e,
	       uint32_t peer, const struct sim_op *op, uint64_t end);

/* A test has ended: its CPU waited until `now`. */
int sim_end_test(struct sim *s, uint32_t rank, const struct sim_op *op, uint64_t now,
		 uint32_t from);
/* Returns: how long an operation of `rank` occupies the CPU: that of its peer for SIM_RECEIVE.
 * others: sim_node_others() of that. */
uint64_t sim_cost(const struct sim *s, enum sim_kind kind, uint32_t rank, const struct sim_op *op,
		  uint16_t others);

/* ---- atlahs.c ---------------------------------------------------------------------------- */

int sim_atlahs_receive(struct sim *s, struct sim_event *e);
int sim_atlahs_message(struct sim *s, struct sim_event *e);

/* ---- noise.c ----------------------------------------------------------------------------- */

/* Returns: 0, -EINVAL, -ENOMEM. */
int sim_detours_init(struct sim_detours *d, const struct sim_noise *noise);
void sim_detours_fini(struct sim_detours *d);
/* Returns: when a CPU that begins something at `begin` has spent `cost` on it. */
uint64_t sim_busy_until(const struct sim *s, uint32_t rank, uint64_t begin, uint64_t cost);
/* As sim_busy_until(), and counts the noise. */
uint64_t sim_occupy(struct sim *s, uint32_t rank, uint64_t begin, uint64_t cost);

/* ---- node.c ------------------------------------------------------------------------------ */

#define SIM_NODE_ANNOUNCED UINT16_MAX /* it is too long to be copied before it is received */
/* Are both ranks in one node? */
bool sim_is_node(const struct sim *s, uint32_t rank, uint32_t peer);
/* Does a send end when its CPU has finished it? Otherwise it waits for the receive. */
static inline bool sim_is_eager(const struct sim *s, const struct sim_op *op, bool is_node)
{
	const struct sim_params *p = &s->config.params;

	return op->bytes <= (is_node ? p->node.eager_bytes : p->eager_bytes);
}
/* Each returns how long the CPU is occupied, in picoseconds. rank: one of the node. */
uint64_t sim_node_send(const struct sim *s, uint64_t bytes);
uint64_t sim_node_receive(const struct sim *s, uint32_t rank, const struct sim_op *send,
			  uint16_t others);
uint64_t sim_node_local(const struct sim *s, uint32_t rank, const struct sim_op *op);
/* Counts the memory that a rank of a node touches. */
void sim_node_add(struct sim *s, uint32_t rank, const struct goal_block *b);
/* Returns: how many other ranks of the node are copying. */
uint16_t sim_node_others(const struct sim *s, uint32_t rank, uint64_t now);

#endif
