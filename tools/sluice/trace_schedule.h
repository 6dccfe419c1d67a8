/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace_schedule: the messages that a run recorded (trace/messages.h) as a GOAL program.
 *
 *   trace_messages.c   message files -> records; which communicators of different ranks are one
 *   trace_liballprof.c traces of liballprof -> the same records
 *   trace_schedule.c   records -> text: order of each thread, requests, tags
 *   trace_windows.c    one-sided operations -> what their targets do
 *   trace_expand.c     collectives -> the operations of a generator or of a user's schedule
 *
 * Ranks are written one after the other, each in one pass over its file. Memory is needed for
 * requests in flight, communicators and tags, and for one-sided operations, which are read before;
 * not for messages.
 */
#ifndef SLUICE_TOOL_TRACE_SCHEDULE_H
#define SLUICE_TOOL_TRACE_SCHEDULE_H

#include "goal.h"
#include "goal_pattern.h"
#include "trace/messages.h"

/* ---- trace_messages.c -------------------------------------------------------------------- */

struct messages_file {
	FILE *stream;
	char *path;
	struct messages_header header;
	struct lap *text; /* NULL; or the trace of liballprof that has the file */
};

/* Opens the message files of a folder, one for each rank. Returns: 0; -ENOENT: there is none;
 * -EINVAL after a message. */
int messages_open(const char *folder, struct messages_file **out, uint32_t *out_ranks);
void messages_close(struct messages_file *files, uint32_t ranks);

/* A receive from MPI_ANY_SOURCE, where the trace does not tell what came. */
#define MESSAGES_ANY (-2)

/* Goes to a rank's first record. Returns: 0 or -errno. */
int messages_restart(struct messages_file *f);
/* Reads a record; the payload stays valid until the next call. Returns: 1; 0 at the end; -EINVAL:
 * the file is damaged; -EIO: after a message. */
struct messages_payload { void *data; size_t cap; };
int messages_read(struct messages_file *f, struct messages_record *out,
		  struct messages_payload *payload);

/* Returns: the number of a pair, from 1 in the order of first use. Owner: of `all`, the caller. */
struct messages_number {
	uint64_t key[2];
	uint32_t number; /* 0: unused */
};
struct messages_numbers {
	struct messages_number *all;
	size_t count, cap;
};
uint32_t messages_number_of(struct messages_numbers *n, uint64_t a, uint64_t b);
/* Returns: 0 where the pair has none. */
uint32_t messages_number_known(struct messages_numbers *n, uint64_t a, uint64_t b);

/* Numbers that all ranks share: of communicators, and of tags by their communicator. */
struct messages_names;
struct messages_names *messages_names_create(void);
void messages_names_free(struct messages_names *n);
/* Names the next communicator of the rank with these members. is_first: the rank's first one. */
uint32_t messages_name_comm(struct messages_names *n, const int32_t *world, uint32_t count,
			    bool is_first);
/* turn: 0 for messages, else 1 + the number of the collective. */
uint32_t messages_name_tag(struct messages_names *n, uint32_t comm, uint32_t turn, uint32_t tag);

/* ---- trace_liballprof.c ------------------------------------------------------------------ */

/* As the functions above, for the traces of liballprof in a folder. One rank is read at a time. */
int liballprof_open(const char *folder, struct messages_file **out, uint32_t *out_ranks);
int liballprof_restart(struct messages_file *f);
int liballprof_read(struct messages_file *f, struct messages_record *out,
		    struct messages_payload *payload);
void liballprof_close(struct lap *l);
/* Returns: how many calls have completed requests that the trace does not name. */
uint64_t liballprof_unknown(const struct lap *l);

/* ---- trace_expand.c ---------------------------------------------------------------------- */

/* Schedules of collectives that the user chose: "allreduce=ring-allreduce", "bcast=my.goal". */
struct schedule_choice {
	const struct gen_pattern *pattern; /* NULL: the program, or the usual pattern */
	struct goal_input program;
	bool has_program;
};
struct schedule_choices {
	struct schedule_choice of[MESSAGES_COLLECTIVE_COUNT];
};
/* Returns: TOOL_DONE; or an exit code after a message. */
int schedule_choose(struct schedule_choices *c, const char *text);
void schedule_choices_free(struct schedule_choices *c);

struct schedule_comm {
	uint32_t name, rank, size; /* name: of messages_name_comm() */
	uint64_t turns;            /* collectives so far */
	int32_t *world;
};

/* ---- trace_schedule.c -------------------------------------------------------------------- */

struct schedule_out {
	FILE *file;
	struct messages_names *names;
	struct schedule_choices *choices;
	struct goal_maker maker;
	uint32_t ranks;            /* of the program: a multiple of the traced ones */
	uint64_t labels;           /* of this rank */
	uint32_t thread;
	struct {
		uint64_t messages, bytes, collectives, their_messages, their_bytes;
		uint64_t lost, unknown; /* unknown: completions, as of MPI_Test */
		uint64_t one_sided;
	} sums;
};

/*
 * Writes the program of a folder's messages; path: - is standard output. ranks: 0, or so many,
 * extrapolated from the traced ones: rank r does what rank r modulo theirs did. Communicators of
 * all ranks grow, so their collectives are of `ranks`; messages on them go to ranks at the same
 * distance. Smaller communicators are repeated. Returns: an exit code.
 */
int trace_schedule(const char *folder, const char *path, uint32_t ranks,
		   struct schedule_choices *choices);

/* Returns: the rank of the program that is `distance` traced ranks from one (`first` + `number`) of
 * `ranks` traced ones. is_all: on a communicator of all ranks, which keeps distances. */
int32_t schedule_rank_at(const struct schedule_out *o, uint32_t ranks, bool is_all, uint32_t first,
			 uint32_t number, int64_t distance);

/* ---- trace_windows.c --------------------------------------------------------------------- */

/* The one-sided operations of a run, by target. */
struct windows;
struct windows *windows_read(struct messages_file *files, uint32_t ranks);
void windows_free(struct windows *w);
/* Tag of what an origin's thread sends to a target, is_back: of the answers. Operations of one
 * thread arrive in their order, whatever their window. */
uint32_t windows_tag(struct messages_names *names, uint32_t thread, bool is_back);
/* Writes the receives and answers of a target, `first` + `number`, on a CPU of their own. */
void windows_write(const struct windows *w, struct schedule_out *o, uint32_t first, uint32_t number,
		   uint32_t cpu);

/* ---- trace_schedule.c: text -------------------------------------------------------------- */

/* Writes "l7: " and counts the label. Returns: the label. */
uint64_t schedule_label(struct schedule_out *o);
void schedule_requires(struct schedule_out *o, uint64_t op, uint64_t before);
/* Writes the operations of a collective. before(): writes what the operations that come first
 * require. Returns: the label of an operation that ends when the collective does; 0 after a
 * message. */
uint64_t schedule_expand(struct schedule_out *o, struct schedule_comm *comm,
			 const struct messages_record *r, const struct messages_part *parts,
			 void (*before)(void *ctx, uint64_t label), void *ctx);

#endif
