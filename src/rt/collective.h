/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * collective: blocking collectives. struct coll_call describes the arguments of one rank.
 *
 *   mpi/ --struct coll_call--> rt_collective()   blocking; may return early (rt/early.h)
 *
 * Ranks admit a call by facts that all of them share. rt_collective() handles memory that cannot be
 * mapped and types with gaps.
 */
#ifndef SLUICE_RT_COLLECTIVE_H
#define SLUICE_RT_COLLECTIVE_H

#include "coll/coll.h"
#include "policy/gate.h"
#include "rt/rt.h"

/* The gates decide by size which calls are admitted. */
extern struct coll_gate rt_gates[COLL_FORMS][COLL_COUNT];
/* The options in force, from which the gates are made; written at the start. */
extern struct policy_options rt_options;

/* The facts of a call that all ranks share. */
struct rt_question {
	enum coll kind;
	uint64_t bytes;   /* of one rank's message; 0: unknown */
	int root;         /* -1: none */
	const char *name; /* "MPI_Bcast"; static */
	bool is_fixed;    /* equal calls must be executed alike during the whole run */
};
/*
 * Decides whether rt_collective() or the host MPI executes a call. All ranks decide alike, by kind
 * and size, by trials, and by whether ranks reuse their buffers. `call`: NULL where this rank
 * cannot prepare the call.
 * Returns: 1 (rt_collective()), 0 (host MPI), or -errno as rt_collective().
 * Context: collective.
 */
int rt_admit(struct rt_comm *c, const struct rt_question *q, const struct coll_call *call);
/*
 * Collectives on memory of GPUs (SLUICE_COLL=device:on): the ranks say where their buffers lie;
 * the GPU of each rank copies what the rank receives.
 *
 *   rt_device_is_asked()  ->  rt_device_collective()  ->  RT_DEVICE_NONE: rt_admit() ...
 */
enum rt_memory { RT_MEMORY_HOST, RT_MEMORY_DEVICE, RT_MEMORY_OTHER };
enum rt_device { RT_DEVICE_NONE, RT_DEVICE_DONE, RT_DEVICE_PASSED };
/* Returns: whether a call may be on memory of GPUs; the same on every rank. Then
 * rt_device_collective() must follow, on a communicator that is connected for it. */
bool rt_device_is_asked(enum coll kind, uint64_t bytes);
/*
 * Executes a call whose buffers, addr and bytes of both sides, lie on the GPU on every rank.
 * memory: RT_MEMORY_OTHER: this rank's buffers have gaps, or lie in several kinds of memory.
 * Returns: RT_DEVICE_DONE; RT_DEVICE_PASSED: the host MPI executes the call; RT_DEVICE_NONE: no
 * rank has a buffer on a GPU; or -errno as rt_collective(). The same on every rank.
 * Context: collective.
 */
int rt_device_collective(struct rt_comm *c, const struct coll_call *call, enum rt_memory memory);
/* Returns: whether the host MPI executes the call, which has been faster in the last trial. Then
 * rt_admit() must not follow. */
bool rt_trial_passes(struct rt_comm *c, enum coll kind, uint64_t bytes);
/* Take the begin and the end of the call for the trial that runs, if any. */
void rt_trial_enter(struct rt_comm *c);
void rt_trial_end(struct rt_comm *c);
/* Returns: whether rt_trial_end() is due after the call. */
bool rt_trial_is_timed(const struct rt_comm *c);
/*
 * Executes the call.
 * Returns: 0; -EOWNERDEAD when a peer died (a message is on stderr); -EREMOTEIO when peers disagree
 * about a byte count; another -errno when the data is undefined.
 * Context: collective.
 */
int rt_collective(struct rt_comm *c, const struct coll_call *call);
/*
 * Executes a short call through the mailbox, where every rank of the communicator takes turns with
 * others on a CPU: each rank runs twice in a call, and a host MPI visits it several times.
 * Returns: as rt_collective(). Context: collective, after rt_suits_short(), which is the same on
 * all ranks.
 */
bool rt_suits_short(const struct rt_comm *c, enum coll kind, uint64_t bytes);
int rt_collective_short(struct rt_comm *c, const struct coll_call *call);
/* Withdraws this rank from an admitted call: the other ranks get an error instead of a hang. */
void rt_abandon(struct rt_comm *c, const char *name, int error);

#endif
