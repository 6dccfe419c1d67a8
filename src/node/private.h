/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the files of node/ only. */
#ifndef SLUICE_NODE_PRIVATE_H
#define SLUICE_NODE_PRIVATE_H

#include <sys/types.h>

#include "node/node.h"

#define NODE_VERSION 2u
#define NODE_PREMAP_SLOTS 64

/* A process we have met: one for each pid and arena, shared by all groups. */
struct node_peer {
	int pid;
	uint64_t start;     /* os_process_start() */
	uint64_t arena_id;  /* random, made with the arena */
	char *base;         /* its arena, mapped here */
	uint64_t bytes;
	int refs;
	uint32_t premapped[NODE_PREMAP_SLOTS]; /* region ids; relaxed, a lost entry costs time only
						*/
	struct node_peer *next;
};

/* What ranks tell each other first. */
struct node_hello {
	uint32_t version;
	int32_t error;         /* 0, or why this rank cannot take part (errno) */
	int32_t pid;
	uint32_t uid;
	int32_t session;       /* getsid(): tells whether a yield can reach the others */
	uint64_t node_id, start, arena_id, arena_bytes, options_hash, socket_id;
	uint64_t control_off;  /* rank 0: the control segment in its arena */
	struct os_cpumask cpus;
	int32_t memory_node, unused;
};

/* One a rank, at the beginning of the control segment. */
struct node_rank {
	BASE_ALIGNED_LINE _Atomic uint32_t sleeping; /* written by the rank, read by ringers */
	BASE_ALIGNED_LINE _Atomic uint32_t bell;     /* futex; written by ringers */
	BASE_ALIGNED_LINE _Atomic int32_t dead; /* rank 0's entry: poisoned group, 1 + dead rank */
	_Atomic uint32_t gone; /* rank 0's entry: ranks that have destroyed the group */
	uint64_t probe_addr;   /* trial: address of `probe_value` in that process */
	uint64_t probe_value;
	uint64_t area_addr;    /* trial: its user area, as that process sees it */
	uint64_t process_word_off; /* of its process's word for node_wake_process() in its arena; or NO_PROCESS_WORD */
	uint32_t vm_ns, copy_ns; /* rank 1's entry: what the trial measured */
	/* then one byte a peer: what the trial found, bit 0 read, bit 1 write (in node_group.reach)
	 */
};

struct node_group {
	int rank, size;
	uint32_t id;
	bool oversubscribed;
	struct os_cpumask cpus;
	uint32_t spin_ns, yield_ns;
	struct node_peer **peers;   /* by rank; own entry NULL */
	int *pids;
	int *memory_nodes;
	char *control;              /* here */
	struct region_extent extent; /* rank 0 only */
	struct node_rank *ranks;
	uint8_t *reach;             /* [size][size] in the control segment */
	uint64_t area_off, area_bytes;
	uint64_t control_bytes;
};

uint64_t node_arena_id(void); /* of this process; changes in a forked child */

/* group.c: where things lie in the control segment, and where that lies here. */
void group_layout(struct node_group *g, uint64_t area_bytes);
void group_set_control(struct node_group *g, char *control);

/* peers.c */
struct node_peer *peer_find(const struct node_hello *h); /* takes a reference, or NULL */
struct node_peer *peer_add(const struct node_hello *h, int fd, int *out_err);
void peer_put(struct node_peer *p);

/* exchange.c: give my arena to every rank that does not know it and get theirs; peers[] is filled.
 */
struct exchange { int fd; uint64_t id; };
int exchange_listen(struct exchange *x);
int exchange_run(struct exchange *x, const struct node_hello *all, int rank, int size,
		 struct node_peer **peers);
void exchange_close(struct exchange *x);

/* call.c: where the word of this process lies in its arena */
#define NO_PROCESS_WORD UINT64_MAX
uint64_t process_word(void);

#endif
