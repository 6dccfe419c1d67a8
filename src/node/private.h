/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to node/. */
#ifndef SLUICE_NODE_PRIVATE_H
#define SLUICE_NODE_PRIVATE_H

#include <sys/types.h>

#include "node/node.h"

#define NODE_VERSION 10u
#define NODE_PREMAP_SLOTS 64

/* A known process: one entry for each pid and arena, shared by all groups. */
struct node_peer {
	int pid;
	uint64_t start;     /* os_process_start() */
	uint64_t arena_id;  /* random, made with the arena */
	char *base;         /* address of its arena in this process */
	uint64_t bytes;
	int refs;
	/* An exchange has sent this process's arena there, too; without one (directory.c) the peer
	 * may not know it. */
	_Atomic bool is_mutual;
	/* region ids; relaxed, a lost entry costs time only */
	uint32_t premapped[NODE_PREMAP_SLOTS];
	struct node_peer *next;
};

/* The first message of each rank. */
struct node_hello {
	uint32_t version;
	int32_t error;         /* 0, or the errno that keeps this rank out */
	int32_t pid;
	uint32_t uid;
	int32_t session;       /* getsid(): whether a yield can reach the others */
	uint64_t node_id, start, arena_id, arena_bytes, options_hash, socket_id;
	uint64_t control_off;  /* rank 0: offset of the control segment in its arena */
	struct os_cpumask cpus;
	int32_t memory_node;
	int32_t has_rates;     /* this process has measured node_rank.rates */
};

/* One per rank, at the beginning of the control segment. */
struct node_rank {
	BASE_ALIGNED_LINE _Atomic uint32_t sleeping; /* written by the rank, read by its wakers */
	BASE_ALIGNED_LINE _Atomic uint32_t wakes;    /* futex; wakers add 1 */
	/* rank 0's entry: 0, or 1 + the dead rank of a poisoned group */
	BASE_ALIGNED_LINE _Atomic int32_t dead;
	_Atomic uint32_t destroyed; /* rank 0's entry: ranks that have destroyed the group */
	uint64_t probe_addr;   /* address of `probe_value` in that process */
	uint64_t probe_value;
	uint64_t area_addr;    /* address of its user area in that process */
	/* offset of the process's wake word in its arena, or NO_PROCESS_WORD */
	uint64_t process_word_off;
	struct node_rates rates; /* rank 1's entry, as the probe measured; new_ps: rank 0's entry */
	/* One byte per peer follows: results of the probe, bit 0 read, bit 1 write
	 * (node_group.reach). */
};

/* A rank as this process sees it. */
struct node_place {
	int pid, memory_node;
	char *arena; /* address in this process */
	uint64_t arena_bytes;
	bool shares_memory; /* an image in this address space (endpoints/) */
};

struct node_group {
	int rank, size;
	uint32_t id;
	bool oversubscribed;
	struct os_cpumask cpus;
	uint32_t spin_ns, yield_ns;
	bool is_one_session; /* or no matter: yields run the other ranks */
	struct node_peer **peers;   /* by rank; own entry NULL */
	struct node_place *places;  /* by rank */
	char *control;              /* address in this process */
	struct region_extent extent; /* rank 0 only */
	struct node_rank *ranks;
	uint8_t *reach;             /* [size][size] in the control segment */
	uint64_t area_off, area_bytes;
	uint64_t control_bytes;
};

uint64_t node_arena_id(void); /* of this process; changes in a forked child */

/* Returns: a group with its arrays zeroed, or NULL without memory. */
struct node_group *group_alloc(int rank, int size);
/* Puts the peers back and frees the group, but not its control segment. */
void group_drop(struct node_group *g);

/* group.c: layout of the control segment, and its address in this process. */
void group_layout(struct node_group *g, uint64_t area_bytes);
void group_set_control(struct node_group *g, char *control);

/* peers.c */
struct node_peer *peer_find(const struct node_hello *h); /* takes a reference; or NULL */
struct node_peer *peer_add(const struct node_hello *h, int fd, int *out_err);
void peer_put(struct node_peer *p);
struct node_peer *peer_find_process(int pid, uint64_t start); /* takes a reference; or NULL */

/* directory.c */
/* Fills this process's header. Returns: false: it has no arena. */
bool directory_publish(int job_rank);
void directory_open_wake_words(void); /* of the job, in the arena of this process */
void directory_clear(void);           /* puts every peer back */

/* exchange.c: sends this rank's arena to every rank that does not know it, and fills peers[]. */
struct exchange { int fd; uint64_t id; };
int exchange_listen(struct exchange *x);
int exchange_run(struct exchange *x, const struct node_hello *all, int rank, int size,
		 struct node_peer **peers);
void exchange_close(struct exchange *x);

/* process_wake.c: offset of this process's wake word in its arena. */
#define NO_PROCESS_WORD UINT64_MAX
uint64_t process_word(void);

/* yield.c: one more wait has been checked. */
void yield_count(bool has_switched);

#endif
