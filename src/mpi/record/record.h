/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi/record: libsluice-record.so, which `sluice trace --goal` preloads before libsluice.so. Writes
 * a rank's messages and collectives, and the computing between them, to its message file
 * (trace/messages.h). Without --goal libsluice-profile.so is loaded in its place (profile.h).
 *
 *   program -> MPI_Send (ours) -> MPI_Send (libsluice.so) -> host MPI
 *
 *   recorders.h     the wrappers, made from functions.table (recorders.py)
 *   record.c        start and stop, threads, the file
 *   comms.c         communicators: world ranks of their members
 *   messages.c      sends, receives, requests
 *   persistent.c    persistent and partitioned requests
 *   windows.c       one-sided operations
 *   collectives.c   what a rank sends and receives in a collective
 *   optional.c      functions that are exported only where the host MPI has them
 *   profile.c       the time of calls of messages, in both libraries
 *   profilers.c     the wrappers of libsluice-profile.so
 *
 * A wrapper calls record_enter(), the next library's function, a hook below, and record_exit().
 * MPI_X and PMPI_X are both wrapped, because Fortran bindings call one of them; calls that come
 * from inside a recorded call are not recorded again.
 *
 * Context of all hooks: between record_enter() and record_exit(), any thread, not in signal
 * handlers. One lock serialises them. Handles are canonical (abi.h). Never changes a call's
 * arguments, but for statuses that the program ignores.
 */
#ifndef SLUICE_MPI_RECORD_H
#define SLUICE_MPI_RECORD_H

#include <stdatomic.h>

#include "coll/coll.h"
#include "mpi/abi/abi.h"
#include "trace/messages.h"

/* Returns: false when this call is not recorded. */
bool record_enter(void);
void record_exit(void);
/* Finds the next library's function. Returns: NULL when there is none. */
void *record_next(_Atomic(void *) *known, const char *name);

/* Finds a function of the host MPI. Returns: NULL when it has none. */
void *record_host_function(const char *name);

void record_start(void); /* after MPI_Init */
void record_stop(void);  /* before MPI_Finalize */

/* ---- communicators ----------------------------------------------------------------------- */

struct record_comm {
	struct record_comm *next;
	MPI_Comm handle;
	uint32_t number;
	bool is_inter;
	int rank, size;  /* size: of the group that ranks of messages belong to */
	int32_t *world;  /* [size] world ranks; negative: a process of another MPI_COMM_WORLD */
	uint32_t channels; /* persistent collectives and windows so far */
};
void record_comms_start(void);
/* comm: a handle in the program's memory. */
void record_comm_made(const void *comm);
void record_comm_freed(const void *comm);
/* Finds or makes the entry. Returns: NULL when the host MPI cannot describe it. Context: locked. */
struct record_comm *record_comm_of(MPI_Comm comm);
/* Returns: the world rank of a rank, or a negative number. */
int32_t record_world_rank(const struct record_comm *comm, int rank);
/* Returns: the world ranks of a group, which the caller frees; NULL: unknown. */
int32_t *record_group(MPI_Group group, int *out_count);

/* ---- the file ---------------------------------------------------------------------------- */

void record_lock(void);
void record_unlock(void);
/* Appends a record and its payload; sets thread and computed_ns. Context: locked. */
void record_put(struct messages_record *r, const void *payload, size_t bytes);
void record_lost(void); /* counts what cannot be recorded. Context: locked */

/* ---- messages ---------------------------------------------------------------------------- */

#define RECORD_STATUS_BYTES 64
/* Returns: status, or room (RECORD_STATUS_BYTES) where the program ignores it. */
MPI_Status *record_status(MPI_Status *status, void *room);
/* As record_status(), for an array; record_statuses_free() frees what this allocated. */
MPI_Status *record_statuses(MPI_Status *statuses, int count);
void record_statuses_free(MPI_Status *used, MPI_Status *statuses);

/* Before a call that receives, and whether it has received, also where it fails. */
void record_clear(MPI_Status *status);
bool record_came(const MPI_Status *status);

/* Copies handles before a call changes them. Returns: NULL without memory or requests. Owner: the
 * caller, who passes the copy to record_done() or frees it. */
void **record_handles(int count, const void *requests);

/* request: NULL for a blocking call. A buffered send is complete at once. */
void record_send(MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
		 const void *request);
void record_bsend(MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Comm comm);
void record_recv(const MPI_Status *status, MPI_Comm comm);
void record_irecv(MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
		  const void *request);
void record_sendrecv(MPI_Count count, MPI_Datatype type, int dest, int tag,
		     const MPI_Status *status, MPI_Comm comm);
void record_isendrecv(MPI_Count count, MPI_Datatype type, int dest, int tag, MPI_Count recv_count,
		      MPI_Datatype recv_type, int source, int recv_tag, MPI_Comm comm,
		      const void *request);
void record_probed(const void *message, MPI_Comm comm);
/* message: the handle before the call. */
void record_mrecv(void *message, const MPI_Status *status);
void record_imrecv(void *message, MPI_Count count, MPI_Datatype type, const void *request);
/* type: of the record that each start of the request puts, MESSAGES_ISEND or MESSAGES_IRECV. */
void record_init(uint8_t type, MPI_Count count, MPI_Datatype datatype, int peer, int tag,
		 MPI_Comm comm, const void *request);
void record_partitioned_init(uint8_t type, int partitions, MPI_Count count, MPI_Datatype datatype,
			     int peer, int tag, MPI_Comm comm, const void *request);
/* `partitions` of a started send are ready. */
void record_ready(int partitions, MPI_Request request);
void record_started(int count, const void *requests);
void record_freed(void **handles);
/* The requests at `indices` (NULL: the first `done`) of the copied handles are complete, with a
 * status each. Frees the copy. */
void record_done(void **handles, int done, const int *indices, const MPI_Status *statuses);

/* A call has failed: those of the copied handles that are no longer among the requests are
 * complete. Frees the copy; NULL: it has not failed. */
void record_failed(void **handles, int count, const void *requests);

enum record_kind { RECORD_SEND, RECORD_RECV, RECORD_OTHER };
struct record_request {
	struct record_request *next;
	const void *handle;
	uint32_t id;        /* 0: a persistent request that is not started */
	uint32_t also;      /* of MPI_Isendrecv: id of the send; 0: none */
	bool is_persistent;
	bool has_no_status; /* the host MPI does not tell what came */
	enum record_kind kind;
	MPI_Comm comm;
	struct messages_record start; /* of a persistent request, or one without a status */
	struct messages_part *parts;  /* of a persistent collective: the payload of `start` */
	int partitions, missing;      /* of a partitioned send: in all; not ready yet */
};
/* Add and find requests; add: NULL without memory. Context: locked. */
struct record_request *record_request_add(const void *request, enum record_kind kind);
struct record_request **record_request_find(const void *handle);
/* Returns: the id of a new request of MPI; 0 without memory. Context: locked. */
uint32_t record_request_id(const void *request, enum record_kind kind);
uint32_t record_next_id(void); /* Context: locked */
/* Describes a message in world ranks. Returns: false for MPI_PROC_NULL, or when it is lost.
 * Context: locked. */
bool record_message_init(struct messages_record *r, uint8_t type, MPI_Comm comm, int peer, int tag,
			 uint64_t bytes);
uint64_t record_bytes(MPI_Count count, MPI_Datatype type);

/* ---- one-sided operations ---------------------------------------------------------------- */

void record_win_made(MPI_Comm comm, const void *win);
void record_win_freed(const void *win);
/* bytes: what goes to the target; back: what comes back, -1: nothing. request: NULL without. */
void record_rma(MPI_Win win, int target, uint64_t bytes, int64_t back, const void *request);
/* The operations to a target (-1: to all) have ended, is_remote: there, too. */
void record_flush(MPI_Win win, int target, bool is_remote);
void record_fence(MPI_Win win);
void record_win_post(MPI_Group group, MPI_Win win);
void record_win_start(MPI_Group group, MPI_Win win);
void record_win_complete(MPI_Win win);
void record_win_wait(MPI_Win win);

/* ---- collectives ------------------------------------------------------------------------- */

struct record_side {
	const void *at;
	MPI_Count count;     /* of one part, where there are no counts */
	struct list counts;
	MPI_Datatype type;
	const void *types;   /* one for each count; NULL: `type` */
};
struct record_coll {
	enum coll kind;
	MPI_Comm comm;
	int root;
	struct record_side send, recv;
	const void *request; /* NULL: blocking */
	bool is_persistent;
};
void record_coll(const struct record_coll *call);

#endif
