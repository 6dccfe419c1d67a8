/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * node: the ranks of one communicator on this machine: discovery, the shared control segment,
 * access to each other's memory, liveness, sleeping and waking.
 *
 *   every rank present? -> hello (allgather) -> exchange of arenas (SCM_RIGHTS) -> probe copies
 *     -> agreement (allreduce)
 *
 * Every rank of the communicator calls node_group_create() inside the same collective; all get a
 * group or none does. The control segment is an extent of rank 0's arena, so a group costs no
 * descriptor and, for processes that know each other, no new mapping; nothing of it remains when
 * the processes are gone.
 *
 *   control segment: | struct node_rank [size] | user area of rank 0 | user area of rank 1 | ...
 *
 * Threads: different groups may be created and destroyed at the same time. All else is lock-free
 * and belongs to the one thread that is inside a collective of the communicator.
 */
#ifndef SLUICE_NODE_H
#define SLUICE_NODE_H

#include "base/base.h"
#include "os/os.h"
#include "region/region.h"

#define NODE_STUCK_NS 1000000ull         /* a wait without progress for this long calls peers */
#define NODE_CHECK_PEERS_NS 100000000ull /* interval at which a wait checks that peers live */

/* Functions of the host MPI over a communicator: collectives, each of which returns 0 or -errno
 * (-EIO for an error of the host MPI), and its progress. */
struct node_oob {
	void *ctx;
	int rank, size;
	int (*allgather)(void *ctx, const void *in, size_t bytes, void *out);
	int (*allreduce_min)(void *ctx, int64_t in, int64_t *out);
	/* Lets the host MPI progress; waiting ranks call it again and again. NULL: nothing to do.
	 * It may destroy communicators that the program has freed, and must not use ctx where the
	 * communicator is gone. Not used by node/. */
	void (*progress)(void *ctx);
	/* MPI_THREAD_MULTIPLE: any thread may call progress(). Otherwise only a thread inside an
	 * MPI call of the program may. */
	bool thread_multiple;
};

/* Announces this process to the others of the job, before MPI_Init. Does nothing when the launcher
 * does not identify the job. node_withdraw() reverts it (MPI_Finalize). */
__attribute__((cold)) void node_announce(bool prefer_pmix);
void node_withdraw(void);
/*
 * Looks for these ranks of the job on this machine, after MPI_Init. Returns: the index of the first
 * one that does not run Sluice with equal options, or -1 when all do or the job is unknown; equal
 * on all ranks asked. A rank that was found once is not looked for again.
 */
int node_first_absent(const int *job_ranks, int n);
/* Returns: the pid of a rank of the job on this machine; 0: elsewhere, without Sluice, or unknown.
 * Some system calls, and a lock. */
int node_job_process(int job_rank);

/* ---- what every process of the job publishes ---------------------------------------------- */

/*
 * The first page of each arena, from node_announce() on: so every rank of the job that runs Sluice
 * on this machine has one once MPI_Init has returned. Any process of the user maps it, without the
 * owner's help and without a node group; it also reaches the owner's regions by that mapping.
 */
struct node_header {
	_Atomic uint64_t magic; /* NODE_HEADER_MAGIC; stored last (release) */
	uint64_t version;
	int32_t pid, job_rank;
	uint64_t start, arena_id, arena_bytes, options_hash;
	/* The process has begun to execute another program: nothing in the arena holds any more. */
	_Atomic uint32_t has_ended;
	_Atomic uint64_t snapshots_off; /* in the arena: message/snapshot.c; 0: none */
	_Atomic uint64_t wake_words_off; /* in the arena; 0: another process of the job has them */
	/* Bytes of messages that peers read by system call; written by peers. */
	BASE_ALIGNED_LINE _Atomic uint64_t private_bytes;
	_Atomic uint64_t long_bytes, long_ns; /* of long messages among them, and their time */
	/* Time of a byte of messages by length (NODE_CLASS_MIN_LOG2): read by the kernel, and read
	 * from a copy of the owner's, ps; written by peers. 0: not measured. */
	BASE_ALIGNED_LINE _Atomic uint32_t kernel_ps[7];
	_Atomic uint32_t copy_ps[7];
	/* Memory that peers have read by system call, by number of the granule; written by
	 * peers. */
	BASE_ALIGNED_LINE _Atomic uint32_t granules[512];
};
#define NODE_CLASS_MIN_LOG2 12
#define NODE_GRANULE_SHIFT 16
static inline _Atomic uint32_t *node_granule(const struct node_header *h, uintptr_t number)
{
	return (_Atomic uint32_t *)&h->granules[(uint32_t)number * 0x9e3779b1u >> 23];
}
#define NODE_HEADER_MAGIC 0x31656369756c53ull

/* Returns: the header of this process; NULL: it has announced nothing, or has forked since. */
struct node_header *node_header_self(void);
/* Around exec: the arena ends with the program. Does nothing between vfork() and exec. Context:
 * async-signal-safe. */
void node_exec_begin(void), node_exec_failed(void);
/*
 * Returns: the header of a process of this machine; NULL: it does not run Sluice with equal
 * options, or its arena cannot be opened. The address is valid until node_fini(). Context: any
 * thread inside MPI; a look-up in a table without locks, for a stranger too. The first call for a
 * process that may search takes some 120 us; a process without a header is looked for again after
 * longer and longer intervals. may_search: else NULL for a process that was not found before.
 */
struct node_header *node_header_of(int pid, bool may_search);

/* Polite waiting: one for each rank of the job on this machine. */
struct node_wake_word {
	BASE_ALIGNED_LINE _Atomic uint32_t wakes; /* futex; wakers add 1 */
	BASE_ALIGNED_LINE _Atomic uint32_t sleepers; /* threads of the rank that sleep on it */
	_Atomic uint32_t hints; /* changes when a peer that takes turns may have ended a wait */
	_Atomic int32_t owner;  /* 0: nobody; else 1 + its number in MPI_COMM_WORLD */
};
#define NODE_WAKE_WORDS 1024
/*
 * Returns: an array of NODE_WAKE_WORDS, the same for all processes of the job on this machine, in
 * the arena of the one that announced itself first; NULL: it is unknown, or has withdrawn. After
 * MPI_Init; valid until node_fini(). Takes as long as the first node_header_of() of a process.
 */
__attribute__((cold)) struct node_wake_word *node_wake_words(void);

struct node_group; /* see the accessors below */

/*
 * Creates a node group; collective. area_bytes: size of each rank's user area (zeroed,
 * page-aligned, shared). Returns: 0 with *out; 0 with *out NULL when the ranks cannot form a group
 * (all agree; the reason is logged at level info); or -errno when a collective of `oob` fails.
 * Owner: the caller, until node_group_destroy().
 */
int node_group_create(const struct node_oob *oob, uint64_t area_bytes, struct node_group **out);
/* Returns: the reason of the last NULL from node_group_create() in this process, or "". Context:
 * one thread at a time. */
const char *node_refusal(void);
/* Returns: the error of a rank (-errno) that is this reason, or 0: it is another. */
int node_refusal_error(void);
/* Not collective. No peer may be inside an operation of the group. */
void node_group_destroy(struct node_group *g);
/* Forgets all peers (end of MPI). All groups must be destroyed before. */
void node_fini(void);

/* Identifies the group, equal on all its ranks; never 0. */
uint32_t node_id(const struct node_group *g);
int node_rank(const struct node_group *g);
int node_size(const struct node_group *g);
int node_pid(const struct node_group *g, int rank);
void *node_area(const struct node_group *g, int rank); /* user area of a rank */
/* Returns: the NUMA node on which a rank runs, as that rank reported it; equal on every rank. */
int node_memory_node(const struct node_group *g, int rank);
void node_cpus(const struct node_group *g,
	       struct os_cpumask *out);                /* union over all ranks */
bool node_is_oversubscribed(const struct node_group *g); /* fewer CPUs than ranks */

/* Returns: the length of the shortest arena; the same on all ranks. */
uint64_t node_arena_bytes(const struct node_group *g);
/* Returns: the address of [off, off+bytes) of a rank's arena in this process, or NULL when the
 * range exceeds the arena. */
void *node_map(const struct node_group *g, int rank, uint64_t off, uint64_t bytes);
/* Populates the page tables of a region that peers write often, once per region. id:
 * region_desc.id. */
void node_premap(const struct node_group *g, int rank, uint32_t id, void *addr, uint64_t bytes);

/* The probe's results, equal on every rank: `reader` can process_vm_readv from `owner`; `writer`
 * can process_vm_writev to `owner`. */
bool node_can_read(const struct node_group *g, int reader, int owner);
bool node_can_write(const struct node_group *g, int writer, int owner);

/* The probe's rates between ranks 0 and 1, equal on every rank, in picoseconds a byte. */
struct node_rates {
	uint32_t vm_ps;   /* process_vm_readv; 0: it fails */
	uint32_t copy_ps; /* memcpy between mapped buffers */
	uint32_t new_ps;  /* the first touch of memory; 0: not measured */
};
struct node_rates node_probe_rates(const struct node_group *g);

/* Copies between this process and addresses of a peer. Returns: 0, -EOWNERDEAD when the peer is
 * gone, or -errno. The memory of a peer in this address space (endpoints/) outlives that peer; an
 * address without memory is a fault there. */
int node_vm_read(const struct node_group *g, int owner, void *dst, uint64_t src_addr,
		 uint64_t bytes);
int node_vm_write(const struct node_group *g, int owner, uint64_t dst_addr, const void *src,
		  uint64_t bytes);

/* ---- waiting ----------------------------------------------------------------------------- */

/* The yields of one wait, zeroed at its begin. */
struct node_yields { uint32_t count, switches; bool is_checked; };

/*
 * The state of one wait, zeroed at its begin. A rank polls for work, and when there is none calls
 * node_wait(), which spins, then yields, then sleeps. Whoever fulfils a condition that a rank may
 * wait for publishes it with a release store, then calls node_wake().
 */
struct node_wait {
	uint64_t since_ns, checked_ns, called_ns;
	struct node_yields yields;
	uint32_t idle, wakes;
	bool armed;
};
/* Returns: true now and then once the wait has lasted some microseconds. */
bool node_wait_is_long(const struct node_wait *w);
/* Restarts the wait with spinning, after progress. */
void node_wait_progress(struct node_group *g, struct node_wait *w);
/* Before node_wait(), where the caller has polled for microseconds since the last step: the step
 * reads the clock, which short steps do now and then. */
void node_wait_polled(struct node_wait *w);
/* One step of waiting. Returns: 0, or 1 when the caller should check that its peers live (every 100
 * ms). */
int node_wait(struct node_group *g, struct node_wait *w);
void node_wait_end(struct node_group *g, struct node_wait *w);
void node_wake(struct node_group *g, int rank);
/* node_wake() without a fence: misses a rank that falls asleep at this moment, so a node_wake()
 * must follow soon. */
void node_wake_relaxed(struct node_group *g, int rank);

/* yield.c. y: of a wait of ranks of several sessions; NULL: of one. */
void node_yield(struct node_yields *y);
/* Have yields of ranks of several sessions run others lately? */
bool node_yields_reach(void);

/* Returns: true about once a millisecond once nothing has happened for a millisecond. */
bool node_wait_is_stuck(struct node_wait *w);
/*
 * Wakes the thread of a rank's process that sleeps in node_wait_process_wake(), for work that only
 * that process can do while its rank computes. Context: async-signal-safe. node_wait_process_wake()
 * takes *known == 0 first. Returns: 0, also when nobody has called for timeout_ns; or -ENOENT when
 * this process has no wake word (no group yet, or no memory for it).
 */
void node_wake_process(struct node_group *g, int rank);
int node_wait_process_wake(uint32_t *known, uint64_t timeout_ns);

/* Returns: true when the peer has exited or been killed (a zombie counts). A few system calls. */
bool node_is_dead(const struct node_group *g, int rank);

/* As node_is_dead(), for any process of this user. start: os_process_start(), 0: unknown. */
bool node_process_is_dead(int pid, uint64_t start);
/* Faster, but takes a later process with the same pid for it. */
bool node_process_has_exited(int pid);

/* Reports a dead peer to all ranks; then every wait of the group ends. */
void node_poison(struct node_group *g, int dead_rank);
/* Returns: the dead rank, or -1. */
int node_poisoned(const struct node_group *g);

/* ---- a process that is no rank (worker/) ------------------------------------------------- */

/* Messages of fixed width: a process with its arena; the place of a group's control segment. */
struct node_member { int32_t pid, unused; uint64_t start, arena_id, arena_bytes; };
struct node_outline { uint64_t control_off, area_bytes; uint32_t size, id; };
int node_self(struct node_member *out); /* 0, or -errno: no arena */
void node_outline(const struct node_group *g, struct node_outline *out,
		  struct node_member *members);
/* Maps the arena of a rank; the caller may close its descriptor. Returns: 0 or -errno. */
int node_observe_arena(const struct node_member *m, int fd);
void node_forget_arena(
	const struct node_member *m); /* node_fini() unmaps it once no group uses it */
/*
 * Opens a group as its ranks see it, with rank -1: for areas, mappings and wake-ups. Returns: 0,
 * -ENOENT when an arena is missing, or -errno. Owner: the caller, until node_observe_end(); until
 * then no rank may free the control segment.
 */
int node_observe(const struct node_outline *o, const struct node_member *members,
		 struct node_group **out);
void node_observe_end(struct node_group *g);

#endif
