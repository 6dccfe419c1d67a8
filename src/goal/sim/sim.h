/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sim: when the operations of a program of schedules (goal/) would end on machines that nobody has,
 * in the LogGOPS model: a discrete-event simulation of one process that never communicates.
 *
 *   parameter   costs                                              on
 *   L           from the sender's NIC to the receiver's            the wire
 *   o           each send, and each receive                        the CPU
 *   O           each byte but the first of a send or receive       the CPU
 *   g           between two sends, and between two receives        the NIC
 *   G           each byte but the first of a message               the NIC; a receiver's CPU too
 *   S           a longer message ends at the sender when it has met its receive (rendezvous)
 *   C           each byte of a local operation (copy, add ...)     the CPU; 0 unless given
 *
 * The meaning of each, and what competes for what, is that of Hoefler, Schneider and Lumsdaine's
 * LogGOPSim (HPDC 2010); doc/goal-simulator.md gives it as formulas, and where sim/ differs: an
 * operation never begins before what it requires has ended, also when they are of different CPUs.
 *
 * Memory: equal schedules are kept once, peers being relative to the rank, so a program of a
 * million ranks costs what its different ranks cost, 128 bytes a rank, at most 400 for each further
 * pair of a CPU and a NIC that is used on a rank, and what is in flight. Time is kept in
 * picoseconds. Events of equal time happen in the order in which they were made, so a result never
 * depends on the machine.
 *
 *   sim_create -> sim_add for each rank -> sim_run -> sim_rank_end, sim_path ... -> sim_destroy
 *
 *   queue.c   events by time                    shape.c   equal schedules once
 *   match.c   messages and receives             run.c     what an event does
 *   unit.c    CPUs and NICs                     line.c    who waits for one
 *   path.c    what determined the end           params.c  parameters, presets
 *   stuck.c   what cannot go on                 card.c    one-sided operations
 *   node.c    messages inside a node            atlahs.c  the model of ATLAHS
 *   noise.c   OS noise
 *
 * Threads: a simulation belongs to one thread. Nothing here prints.
 */
#ifndef SLUICE_SIM_H
#define SLUICE_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "goal/goal.h"

#define SIM_PS_PER_NS 1000u
#define SIM_TIME_MAX (UINT64_MAX >> 2) /* 53 days in picoseconds */
#define SIM_FRACTION_BITS 20

/*
 * Inside a node. Ranks r with the same r / ranks share one; 0: there are no nodes, and the other
 * parameters hold for all messages. A message takes what was measured for its length, alone or
 * together with one to each other CPU; with n others under way, alone + n / (cpus - 1) of the
 * difference. A message of at most eager_bytes costs its sender and its receiver half of what its
 * bytes take; a longer one costs its receiver all, from when both are there.
 */
enum sim_node_column { SIM_NODE_ALONE, SIM_NODE_TOGETHER, SIM_NODE_COPY, SIM_NODE_ADD,
		       SIM_NODE_COLUMNS };
struct sim_node_row {
	uint64_t bytes;
	uint64_t ps[SIM_NODE_COLUMNS]; /* message alone, together; local copy; arithmetic */
};
#define SIM_NODE_ROWS_MAX 32
struct sim_node {
	uint32_t ranks, cpus;
	uint32_t row_count; /* 0: not known */
	uint64_t start_ps; /* until the first operations of a rank begin */
	uint64_t latency_ps, overhead_ps, eager_bytes;
	struct sim_node_row rows[SIM_NODE_ROWS_MAX]; /* by bytes */
};

/*
 * The costs of a received message. LogGOPSim: the CPU that its sender names, o and then O or G a
 * byte, from when its first byte arrives. ATLAHS's LogGOPSim: it arrives with its last byte, after
 * o + O + L + G; the CPU that its receive names pays g, then o, then O a byte, once it is received.
 */
enum sim_model { SIM_LOGGOPSIM, SIM_ATLAHS };

/* Times in picoseconds; costs of a byte in 2^-SIM_FRACTION_BITS picoseconds. */
#define SIM_COSTS 5
#define SIM_COSTS_NS 3 /* of these not of a byte */
struct sim_costs {
	union {
		struct {
			uint64_t latency_ps, overhead_ps, gap_ps; /* L, o, g */
			uint64_t gap_byte, overhead_byte;         /* G, O */
		};
		uint64_t all[SIM_COSTS];
	};
};
/* Costs of messages longer than above_bytes. */
#define SIM_AS_BELOW UINT64_MAX /* as of shorter messages */
#define SIM_CLASSES_MAX 8
struct sim_class {
	uint64_t above_bytes;
	struct sim_costs costs;
};
struct sim_params {
	struct sim_costs costs;
	uint64_t local_byte;  /* C */
	uint64_t eager_bytes; /* S: length of the longest eager message */
	struct sim_class classes[SIM_CLASSES_MAX]; /* [class_count], by above_bytes */
	uint32_t class_count;
	enum sim_model model;
	struct sim_node node; /* not with SIM_ATLAHS */
};

/* name, L o g (ns), G O C (ns a byte), S (bytes). The first is the default. */
struct sim_preset {
	const char *name;
	double latency_ns, overhead_ns, gap_ns, gap_byte_ns, overhead_byte_ns, local_byte_ns;
	uint64_t eager_bytes;
};
extern const struct sim_preset sim_presets[];
extern const size_t sim_preset_count;

void sim_params_from(struct sim_params *p, const struct sim_preset *preset);
/* Parses decimal nanoseconds ("2500", "0.04") as picoseconds, or as the cost of a byte. Returns: 0,
 * -EINVAL. */
int sim_parse_ns(const char *text, uint64_t *out_ps);
int sim_parse_byte_ns(const char *text, uint64_t *out_cost);
/* Adds a class, or finds that of above_bytes. Returns: NULL: there are SIM_CLASSES_MAX. */
struct sim_class *sim_class_add(struct sim_params *p, uint64_t above_bytes);
/* Returns: the cost of `bytes`, without the first one, as in every formula of the model. */
uint64_t sim_byte_cost(uint64_t cost, uint64_t bytes);

/* How peers are written in shapes, so that equal schedules have equal shapes. */
enum sim_relation {
	SIM_BY_DISTANCE, /* (peer - rank) mod ranks */
	SIM_BY_BITS,     /* peer xor rank */
};

enum sim_kind { SIM_SEND, SIM_RECEIVE, SIM_LOCAL };

/* An occupation of a CPU. */
struct sim_interval {
	enum sim_kind kind;
	uint32_t rank, op;           /* op: index in the rank's block; of a message, the sender's */
	uint32_t peer;               /* send: receiver; receive: sender */
	uint32_t tag;
	uint16_t cpu, nic;
	uint8_t type;                /* enum goal_type */
	uint64_t bytes;              /* CALC: nanoseconds */
	uint64_t begin_ps, end_ps;
};

/*
 * OS noise: a CPU that is occupied executes nothing of the operation in a detour, so it is occupied
 * for longer. The trace is repeated from the end of its last detour on. Each rank begins somewhere
 * in it, all its CPUs at the same place; is_cosched: all ranks; seed 0: at its beginning.
 */
struct sim_detour {
	uint64_t begin_ps, ps;
};
struct sim_noise {
	const struct sim_detour *detours; /* [count], in order; copied; count 0: no noise */
	size_t count;
	uint64_t seed;
	bool is_cosched;
};

struct sim_config {
	struct sim_params params;
	struct sim_noise noise;
	bool matching;               /* sim_matching_of() will be asked; not with SIM_ATLAHS */
	uint32_t ranks;
	enum sim_relation relation;
	size_t path_bytes;           /* bytes for the critical path; 0: it is not kept */
	/* Called for each interval of ranks [watch_first, watch_end), in order of beginnings within
	 * a rank. */
	void (*watch)(void *ctx, const struct sim_interval *interval);
	uint32_t watch_first, watch_end;
	/* Called from time to time; not 0 stops the simulation. */
	int (*progress)(void *ctx, uint64_t ops_done, uint64_t ops, uint64_t now_ps);
	void *ctx;
};

struct sim;

/* Returns: 0; -EINVAL: no ranks, or noise that is not in order or leaves no time; -ENOMEM. */
int sim_create(const struct sim_config *config, struct sim **out);
void sim_destroy(struct sim *s);
/*
 * Adds the schedule of a rank, which is copied; a rank without one does nothing. Returns: 0;
 * -EINVAL: a peer does not exist, or the rank has a schedule already; -ENOMEM.
 */
int sim_add(struct sim *s, uint32_t rank, const struct goal_block *block);
/*
 * Runs the simulation. Returns: 0: all operations have ended and all messages were received;
 * -EDEADLK: some have not, see sim_stuck(); -ECANCELED: progress() stopped it; -EOVERFLOW: longer
 * than SIM_TIME_MAX; -ENOMEM.
 */
int sim_run(struct sim *s);

struct sim_stats {
	uint64_t ops, ops_done, messages, message_bytes, rendezvous, events;
	uint64_t now_ps, end_ps;      /* of the last event; of the last rank */
	uint32_t last_rank;           /* the lowest rank that ends last */
	uint32_t shapes;              /* different schedules */
	uint64_t unexpected;          /* unexpected messages */
	/* most unexpected messages at one time at one rank */
	uint32_t unexpected_most, unexpected_rank;
	uint64_t unexpected_ps;       /* sum of the times until they were received */
	uint64_t lost;                /* puts and gets that matched no entry */
	uint64_t noise_ps;            /* time that OS noise added to operations, of all CPUs */
};
void sim_get_stats(const struct sim *s, struct sim_stats *out);
/* Returns: when the rank's last operation ended. Context: after sim_run(). */
uint64_t sim_rank_end(const struct sim *s, uint32_t rank);

/* A list as an MPI library without hashing would search it, from its beginning. */
struct sim_matching_list {
	uint64_t hits, misses;  /* searches that found something; that did not */
	uint64_t compared;      /* elements compared, those that were found included */
	uint32_t compared_most; /* in one search */
	uint32_t length_most;
};
struct sim_matching {
	struct sim_matching_list posted;     /* receives, searched for each message */
	struct sim_matching_list unexpected; /* messages, searched for each receive */
};
/* Returns: counts of a rank; NULL: not asked for. Context: after sim_run(). */
const struct sim_matching *sim_matching_of(const struct sim *s, uint32_t rank);

/* ---- the critical path ------------------------------------------------------------------- */

enum sim_cause {
	SIM_FIRST,      /* nothing: it began at time 0 */
	SIM_REQUIRED,   /* the end of an operation that it, or its receive, requires */
	SIM_CPU,        /* the CPU became free */
	SIM_NIC,        /* the NIC was ready for another message */
	SIM_WIRE,       /* the message arrived */
};

struct sim_step {
	enum sim_kind kind;
	enum sim_cause cause;
	uint32_t rank, op, peer; /* as in struct sim_interval */
	uint32_t tag;
	uint8_t type;            /* enum goal_type */
	uint64_t bytes;          /* CALC: nanoseconds */
	uint64_t begin_ps, end_ps;
};

/* Attribution of the time on the path. */
struct sim_path_sum {
	uint64_t total_ps;
	uint64_t latency_ps, overhead_ps, overhead_byte_ps; /* L; o; O */
	uint64_t gap_ps, byte_ps;                           /* g; G */
	uint64_t local_ps, other_ps; /* calc and local operations; idle time */
	uint64_t noise_ps;
	uint64_t before_ps;  /* time before the part that was kept */
	uint64_t steps, messages;
};

/*
 * Follows the critical path from the end of the last rank back to the beginning, or as far as
 * records go: calls visit for each step, last first. sum may be NULL. Does nothing when no path was
 * kept.
 */
void sim_path(const struct sim *s, void (*visit)(void *ctx, const struct sim_step *step), void *ctx,
	      struct sim_path_sum *sum);

/* ---- what is stuck ----------------------------------------------------------------------- */

enum sim_stuck_kind {
	SIM_STUCK_RECEIVE,    /* receive: posted, no message came */
	SIM_STUCK_SEND,       /* rendezvous send: no receive came */
	SIM_STUCK_MESSAGE,    /* message: received by nobody */
	SIM_STUCK_REQUIRES,   /* some requirements are met, not all */
	SIM_STUCK_COUNTER,    /* its counter did not reach the value */
};
struct sim_stuck {
	enum sim_stuck_kind kind;
	uint32_t rank, op; /* of a message: the sender's */
	uint32_t peer, tag;
	uint8_t type;      /* enum goal_type */
	uint64_t bytes;
};
/* Calls visit for each operation or message that is stuck, by rank; those that wait for a
 * counter come last; without memory those with requirements, in any order, before them. Operations
 * none of whose requirements is met are left out. Context: after
 * sim_run(). */
void sim_stuck(const struct sim *s, void (*visit)(void *ctx, const struct sim_stuck *what),
	       void *ctx);

#endif
