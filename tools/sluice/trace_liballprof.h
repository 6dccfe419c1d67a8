/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace_liballprof: the traces of liballprof (LogGOPSim's tracer) as the records of
 * trace/messages.h. One text file a rank; a call is a line
 *
 *   NAME:BEGIN:ARGUMENT:...:END      times in microseconds
 *
 * A datatype is number,size,extent, a communicator handle,rank,size; a list of counts is an
 * address and the counts; requests, statuses and results are the addresses where they stand.
 *
 *   trace_liballprof.c        files, lines, communicators
 *   trace_liballprof_calls.c  a call -> records; requests
 *   trace_liballprof_match.c  which message a receive got, as a line tells only what it could get
 *
 * The ranks are read one after the other, three times: for the calls of MPI_Comm_split, for the
 * messages that are sent, for the records. 24 bytes are needed for each message.
 */
#ifndef SLUICE_TOOL_TRACE_LIBALLPROF_H
#define SLUICE_TOOL_TRACE_LIBALLPROF_H

#include "trace_data.h"
#include "trace_schedule.h"

enum { LAP_FIELDS = 24 };

/* A line, cut at its colons. is_bad: something that is needed is not there. */
struct lap_line {
	char *text;
	size_t cap;
	uint64_t number;
	const char *fields[LAP_FIELDS], *last;
	uint32_t count;
	bool is_bad;
};

/* Members in world ranks. world: NULL where they are not known. */
struct lap_group {
	int32_t *world;
	uint32_t rank, size;
};

/* A handle and its communicator: the number in the records, and the name that all ranks share. */
struct lap_comm {
	uint64_t handle;
	struct lap_group group;
	uint32_t number, name;
	bool is_freed;
};

/* A communicator that the rank has made. handle: 0 until the first use. */
struct lap_made {
	uint64_t address, handle;
	struct lap_group group;
};

/* A rank's call of MPI_Comm_split on a communicator of all ranks. */
struct lap_split {
	int64_t color, key, rank; /* rank: in that communicator */
	int32_t world;
};
struct lap_splits {
	TRACE_ARRAY(struct lap_split, calls);
};

struct lap_request {
	uint32_t id; /* 0: not active */
	bool is_persistent, is_cancelled;
	struct messages_record start, done;
};

struct lap_record {
	struct messages_record record;
	void *payload;
};

/* The rank that is read. */
struct lap_rank {
	uint32_t number;
	struct messages_file *file;
	struct lap_line line;
	double begun_us, ended_us; /* MPI_Init and the call before; < 0: not yet */
	double computed_us;
	bool is_mpich, has_pointers; /* kinds of handles */
	bool has_world;
	uint32_t last_id, comms_made, splits_met;
	TRACE_ARRAY(struct lap_comm, comms);
	TRACE_ARRAY(struct lap_made, made);
	TRACE_ARRAY(struct lap_request, requests);
	struct messages_numbers addresses; /* of requests */
	TRACE_ARRAY(struct lap_record, queue);
	size_t queue_at;
};

enum lap_pass { LAP_SPLITS, LAP_SENDS, LAP_RECORDS };

struct lap {
	struct messages_file *files;
	uint32_t ranks;
	enum lap_pass pass;
	struct lap_rank now;
	struct lap_splits *splits; /* [ranks] */
	struct messages_names *names;
	struct lap_sends *sends;
	uint64_t unknown; /* calls that have completed nobody knows what */
	struct messages_payload returned;
};

/* Returns: a number of a field; of a list, the i-th. */
int64_t lap_int(struct lap_line *l, uint32_t field, uint32_t i);
/* Returns: the communicator of a field; NULL: its members are not known. */
const struct lap_comm *lap_comm_of(struct lap *l, uint32_t field);
/* MPI_Comm_split, MPI_Comm_dup, MPI_Comm_free. */
void lap_comm_split(struct lap *l);
void lap_comm_dup(struct lap *l);
void lap_comm_free(struct lap *l);
/* payload: of malloc(); the queue takes it. */
void lap_put(struct lap *l, struct messages_record r, void *payload);

/* trace_liballprof_calls.c. Puts the records of the present line. */
void lap_call(struct lap *l);

/* ---- trace_liballprof_match.c ------------------------------------------------------------ */

struct lap_sends *lap_sends_create(void);
void lap_sends_free(struct lap_sends *s);
/* Notes a message of the present rank. */
void lap_send(struct lap *l, const struct lap_comm *c, const struct messages_record *r);
/* The rank receives its messages once more. */
void lap_sends_restart(struct lap *l, uint32_t rank);
/* r: a receive of the present rank; peer MESSAGES_ANY, tag -1: any. Fills in tag and bytes.
 * Returns: whether there is a message for it. */
bool lap_match(struct lap *l, const struct lap_comm *c, struct messages_record *r);

#endif
