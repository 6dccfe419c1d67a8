/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node: the ranks of one communicator that share this machine: who they are, the shared control
 * segment, how each can reach the others' memory, who is still alive, and sleeping and waking.
 *
 *    memory there? -> hello (allgather) -> exchange of arenas (SCM_RIGHTS) -> trial copies ->
 * agreement (allreduce)
 *
 * Every rank of the communicator calls node_group_create() inside the same collective; all get a
 * group or all get none. The control segment is an extent of rank 0's arena, so a group costs no
 * descriptor and, for processes that know each other already, no new mapping; nothing of it is left
 * when the processes are gone, however they went.
 *
 *    control segment: | struct node_rank [size] | user area of rank 0 | user area of rank 1 | ...
 *
 * Threads: creation and destruction of different groups may run at the same time. The rest is
 * lock-free and belongs to the one thread that is inside a collective of that communicator.
 */
#ifndef SLUICE_NODE_H
#define SLUICE_NODE_H

#include "base/base.h"
#include "os/os.h"
#include "region/region.h"

/* Collective helpers that the caller lends for creation; see rt_oob. 0 or -errno. */
struct node_oob {
	void *ctx;
	int rank, size;
	int (*allgather)(void *ctx, const void *in, size_t bytes, void *out);
	int (*allreduce_min)(void *ctx, int64_t in, int64_t *out);
};

/*
 * Before MPI_Init: let the other processes of the job find this one. Does nothing when the launcher
 * does not identify the job. node_withdraw() takes it back (MPI_Finalize).
 */
void node_announce(bool prefer_pmix);
void node_withdraw(void);
/* After MPI_Init: index of the first of these ranks (of the job) that does not run Sluice on this
 * machine with our options; -1: all do, or nobody can tell. The same answer on every rank asked. */
int node_first_absent(const int *job_ranks, int n);

struct node_group; /* opaque but for the accessors below */

/*
 * Collective. area_bytes: size of each rank's user area (zeroed, page-aligned, shared).
 * Returns 0 with *out set, or 0 with *out NULL when the ranks do not form one node group or cannot
 * reach each other (all ranks agree; the reason is logged at info level), or -errno when the oob
 * calls fail.
 * Owner: the caller, until node_group_destroy().
 */
int node_group_create(const struct node_oob *oob, uint64_t area_bytes, struct node_group **out);
/* Why the last node_group_create() of this process gave NULL; "" before. For one thread at a time.
 */
const char *node_refusal(void);
/* Not collective. No peer may be inside an operation of this group. */
void node_group_destroy(struct node_group *g);
/* Forget all peers (end of MPI). All groups must be destroyed. */
void node_fini(void);

/* Names the group, alike on all its ranks; never 0. */
uint32_t node_id(const struct node_group *g);
int node_rank(const struct node_group *g);
int node_size(const struct node_group *g);
int node_pid(const struct node_group *g, int rank);
void *node_area(const struct node_group *g, int rank); /* user area of a rank */
/* The memory node (NUMA) on which a rank runs, as it said itself: the same answer on every rank. */
int node_memory_node(const struct node_group *g, int rank);
void node_cpus(const struct node_group *g,
	       struct os_cpumask *out);                /* those that any rank may use */
bool node_is_oversubscribed(const struct node_group *g); /* fewer CPUs than ranks */

/* Where this process sees [off, off+bytes) of rank's arena; NULL when that is outside of it. */
void *node_map(const struct node_group *g, int rank, uint64_t off, uint64_t bytes);
/* Have the pages of a region that peers write often mapped here before they are touched one by one.
 * id: region_desc.id, remembered so that it is done once. */
void node_premap(const struct node_group *g, int rank, uint32_t id, void *addr, uint64_t bytes);

/* Found by trial at creation: can `reader` process_vm_readv from `owner` / `writer`
 * process_vm_writev to `owner`? The same answer on every rank. */
bool node_can_read(const struct node_group *g, int reader, int owner);
bool node_can_write(const struct node_group *g, int writer, int owner);

/* What the trial measured between ranks 0 and 1, the same on every rank: nanoseconds for 64 KiB by
 * process_vm_readv (0: does not work) and by memcpy between mapped buffers. */
void node_probe_times(const struct node_group *g, uint32_t *out_vm_ns, uint32_t *out_copy_ns);

/* Copy between this process and a peer's addresses. 0, -EOWNERDEAD when the peer is gone, -errno.
 */
int node_vm_read(const struct node_group *g, int owner, void *dst, uint64_t src_addr,
		 uint64_t bytes);
int node_vm_write(const struct node_group *g, int owner, uint64_t dst_addr, const void *src,
		  uint64_t bytes);

/* ---- waiting ----------------------------------------------------------------------------- */

/*
 * A rank waits in steps: it looks for work, and when there is none calls node_wait(), which spins,
 * then yields, then sleeps on this rank's doorbell. Whoever makes something true that a rank may
 * wait for calls node_wake() after publishing it with a release store.
 */
struct node_wait {
	uint64_t since_ns, checked_ns, called_ns;
	uint32_t idle, bell;
	bool armed;
};
static inline void node_wait_init(struct node_wait *w) { *w = (struct node_wait){ 0 }; }
/* Has this wait lasted for some microseconds? True now and then while it goes on. */
bool node_wait_is_long(const struct node_wait *w);
/* Progress was made: begin again with spinning. */
void node_wait_progress(struct node_group *g, struct node_wait *w);
/* Nothing to do. Returns 0, or 1 when peers should be checked for life (about every 100 ms). */
int node_wait(struct node_group *g, struct node_wait *w);
void node_wait_end(struct node_group *g, struct node_wait *w);
void node_wake(struct node_group *g, int rank);
/* The same at once and without waiting for the caller's stores: misses a rank that falls asleep in
 * this very moment, so node_wake() has to follow before long. */
void node_wake_relaxed(struct node_group *g, int rank);

/* Has nothing happened for a millisecond? True about once a millisecond while it goes on. */
bool node_wait_is_stuck(struct node_wait *w);
/*
 * A rank that computes does not look at its doorbell. Who is stuck for what only that rank's
 * process can do calls it, and a thread there, which sleeps in node_wait_process_wake() until then, does
 * it. Nobody there: nothing happens. Async-signal-safe. node_wait_process_wake: *seen is 0 before the
 * first; returns 0, or -ENOENT when this process has no word (no group yet, or no memory for it).
 */
void node_wake_process(struct node_group *g, int rank);
int node_wait_process_wake(uint32_t *seen);

/* Has this peer exited or been killed (also as a zombie)? A few system calls. */
bool node_is_dead(const struct node_group *g, int rank);

/* The same of any process of this user; start: os_process_start(), 0: not known. */
bool node_process_is_dead(int pid, uint64_t start);

/* A rank that found a dead peer says so to all; then every wait of the group ends. */
void node_poison(struct node_group *g, int dead_rank);
/* The dead rank, or -1. */
int node_poisoned(const struct node_group *g);

/* ---- a process that is no rank (worker/) ------------------------------------------------- */

/* A process with its arena, and where a group's control segment lies: as messages, of fixed width.
 */
struct node_member { int32_t pid, unused; uint64_t start, arena_id, arena_bytes; };
struct node_outline { uint64_t control_off, area_bytes; uint32_t size, id; };
int node_self(struct node_member *out); /* 0, or -errno: no arena */
void node_outline(const struct node_group *g, struct node_outline *out,
		  struct node_member *members);
/* In the other process: keep this arena mapped (its descriptor may be closed); 0 or -errno. */
int node_observe_arena(const struct node_member *m, int fd);
void node_forget_arena(
	const struct node_member *m); /* unmapped by node_fini() when no group has it */
/*
 * A group as its ranks see it, but with rank -1: for the area of a rank, for mapping what is in
 * their arenas, and for ringing. 0, -ENOENT when an arena is missing, or -errno. Owner: the caller,
 * until node_observe_end(), before which no rank may give the control segment back.
 */
int node_observe(const struct node_outline *o, const struct node_member *members,
		 struct node_group **out);
void node_observe_end(struct node_group *g);

/* ---- for `sluice info`: the same trial between two fresh processes ----------------------- */
struct node_probe {
	char arena[160];     /* "" works, else the reason it does not */
	char vm_read[160], vm_write[160];
	double vm_read_gbps, arena_gbps;
};
/* Forks twice; 0, or -errno when the trial itself failed (out has the reason). Context: no threads.
 */
int node_probe_pair(struct node_probe *out);

#endif
