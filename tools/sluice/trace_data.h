/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace_data: the data of `sluice trace report`.
 *
 *   trace_read.c       trace files -> struct trace_process (calls, copies, ends, touches)
 *   trace_times.c      their clocks, and for how long they lived
 *   trace_places.c     their sites -> places in the program
 *   trace_join.c       relations across processes: who moved whose bytes, what early return saved
 *   trace_late.c       what ranks waited for those that came later
 *   trace_view.c       everything as events on tracks
 *   trace_goal.c       a profile of GOAL schedules -> events on tracks of their own
 *   trace_symbols_*.c  return address -> function, file, line
 *   trace_reasons.c    why the host MPI executed a call, for people
 *   trace_summary.c    the table
 *   trace_chrome.c     JSON for Perfetto and Chrome
 *   trace_html.c       the timeline: a page that contains the events
 *
 * Times are nanoseconds since the first process began (CLOCK_MONOTONIC, common to all processes of
 * a machine; between machines by the time of day). Memory is held until the program ends.
 */
#ifndef SLUICE_TOOL_TRACE_DATA_H
#define SLUICE_TOOL_TRACE_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "trace/format.h"

#define TRACE_NO_CALL     UINT32_MAX
#define TRACE_OF_MESSAGES (1u << 31)

/* A place in the program, common to all processes. */
struct trace_place {
	const char *name;      /* "MPI_Bcast" */
	const char *module;    /* path; "": unknown */
	uint64_t offset;       /* in the module, of the instruction after the call; or a line */
	bool is_source;        /* module is a source file, offset a line */
	char *function;        /* "": unknown */
	char *where;           /* "file.c:12", or "module+0x123" */
	/* exact sums */
	struct trace_totals totals;
	uint32_t processes;    /* processes that called it */
	/* from records */
	uint64_t in_call_ns;   /* of the calls that were all timed */
	uint64_t sampled_ns;   /* of sampled small calls, scaled to all */
	struct trace_own {
		uint64_t calls, ns; /* of one process, of all its threads */
	} least, most;         /* of a process that called it: each member by itself */
	uint64_t received, own, peers, channel; /* bytes that its ranks received, by mover */
	uint64_t detached_ns, waited_ns, saved_ns, cost_ns;
	uint64_t touched, called, unseen; /* of detached operations */
	uint64_t started;        /* requests that were waited for or tested later */
	uint64_t mapped, plain, packed;   /* calls by kind of memory */
	uint64_t adopted, adopt_ns;       /* bytes and time of adoptions in its calls */
	/* joined: of in_call_ns, sampled_ns and waited_ns until the last rank came; an estimate */
	uint64_t late_ns;
	bool has_late;         /* it is known */
	bool is_alone;         /* all recorded calls are on communicators of one rank */
	uint64_t copying_ns;   /* of in_call_ns, in calls of messages */
};

struct trace_call {
	uint64_t begin_ns, end_ns, bytes, op;
	uint32_t process, thread, id, group, place;
	uint16_t why, early_why; /* texts of the process */
	uint16_t rank, ranks, root, ops;
	uint8_t outcome, region;
	bool is_root;
	/* joined: bytes of transfers to this rank, by mover; end of the last transfer (0:
	 * unknown) */
	uint64_t own, peers, channel, done_ns;
	uint32_t detached;           /* index of its end, or TRACE_NO_CALL */
	uint64_t late_ns;            /* joined: of its time, until the last rank came */
};

struct trace_copied {
	uint64_t begin_ns, end_ns, bytes, op;
	uint32_t process, thread, group, call; /* call: of the receiver */
	uint16_t unit, src, dst, by;
	uint8_t mover, more;
};

struct trace_detached {
	uint64_t begin_ns, end_ns, wanted_ns, waited_ns;
	uint32_t process, call, touches;
	uint32_t caller, id;     /* identify the call */
	uint64_t op;             /* of a request */
	uint32_t group;
	uint16_t rank, ranks;
	bool by_call;
	uint64_t saved_ns;
	uint64_t cost_ns;
};

struct trace_touch {
	uint64_t begin_ns, end_ns, offset, address;
	uint32_t process, thread, call;
	uint32_t caller, id;     /* identify the call */
	bool is_write;
};

struct trace_activity {
	uint64_t begin_ns, end_ns, bytes;
	uint32_t process, thread;
	uint16_t text;
};

struct trace_turn {
	uint64_t begin_ns, end_ns;
	uint32_t process, thread, switches, trips, handoffs, stays;
};

struct trace_process {
	char *path;
	const struct trace_header *header;
	const char *base;
	uint64_t bytes;
	uint32_t chunks;         /* in the file */
	uint64_t records;
	uint64_t shift_ns;       /* to be added to its CLOCK_MONOTONIC, modulo 2^64 */
	uint64_t begin_ns, end_ns; /* the first and the last known moment */
	uint64_t threads_ns;     /* of its threads that call MPI; at least end_ns - begin_ns */
	double ns_per_tick;
	char engine[TRACE_TEXT_BYTES], guard[TRACE_TEXT_BYTES];
	uint32_t *place_of_site; /* indexes in `places`; with TRACE_OF_MESSAGES in `messages` */
};

#define TRACE_ARRAY(type, name) type *name; size_t name##_count, name##_cap
struct trace_data {
	uint64_t start_ns;       /* CLOCK_MONOTONIC of processes[0]'s machine at time 0 */
	uint64_t start_realtime_ns;
	TRACE_ARRAY(struct trace_process, processes);
	TRACE_ARRAY(struct trace_place, places);   /* that call collectives */
	TRACE_ARRAY(struct trace_place, messages); /* that send, receive or wait: sums only */
	TRACE_ARRAY(struct trace_call, calls);
	TRACE_ARRAY(struct trace_copied, copies);
	TRACE_ARRAY(struct trace_detached, detached);
	TRACE_ARRAY(struct trace_touch, touches);
	TRACE_ARRAY(struct trace_activity, spans);
	TRACE_ARRAY(struct trace_turn, turns);
};

/* Said of a trace without places. */
#define TRACE_NO_CALLS                                                                             \
	"No call of a collective or a message was seen: the program made none, or it looks MPI's " \
	"functions up by dlsym, as ctypes and numba-mpi do, and calls the MPI library past Sluice."

/* Adds a zeroed element; ends the program when memory runs out. */
void *trace_add(void *array, size_t *count, size_t *cap, size_t bytes);
#define TRACE_ADD(d, name)                                                                         \
	((__typeof__((d)->name))trace_add(&(d)->name, &(d)->name##_count, &(d)->name##_cap,        \
					  sizeof *(d)->name))
void *trace_alloc(size_t bytes); /* zeroed; never NULL */

/* trace_times.c. Clocks of a damaged file may name any time: longer ones than 31 years are cut. */
#define TRACE_NS_MOST UINT64_C(1000000000000000000)
/* Finds time 0, once all processes are there, and how their clocks relate. */
void trace_find_start(struct trace_data *d);
uint64_t trace_since_start(const struct trace_data *d, const struct trace_process *p, uint64_t ns);
uint64_t trace_ns_of(const struct trace_data *d, const struct trace_process *p, uint64_t ticks);
/* Finds begin, end and threads_ns of a process whose calls are those from first_call on. */
void trace_find_end(const struct trace_data *d, struct trace_process *p, size_t first_call);

static inline const struct trace_chunk *trace_chunk_at(const struct trace_process *p, uint32_t i)
{
	return (const struct trace_chunk *)(p->base + TRACE_HEADER_BYTES +
					    (uint64_t)i * TRACE_CHUNK_BYTES);
}

/* trace_places.c: makes the places of a process's sites. */
void trace_places_read(struct trace_data *d, struct trace_process *p);
bool trace_is_of_messages(const struct trace_process *p, uint32_t site);
/* Returns: valid until the next trace_places_read(). */
struct trace_place *trace_place_of(struct trace_data *d, const struct trace_process *p,
				   uint32_t site);
/* Returns: the index in `places` of a record's site, which may be damaged. */
uint32_t trace_place_of_record(const struct trace_process *p, uint16_t site);

/* Reads all traces in the folder, with a message for each bad file. Returns: 0, -ENOENT (no trace)
 * or -errno. */
int trace_read(const char *folder, struct trace_data *out);
const char *trace_text_of(const struct trace_process *p, uint16_t text); /* "": none */
const char *trace_thread_name(const struct trace_process *p,
			      uint32_t thread); /* "thread": unknown */
void trace_join(struct trace_data *d);
/* Returns: the time of a call, and of waiting for its data later. */
uint64_t trace_duration(const struct trace_data *d, const struct trace_call *c);
/* Returns: whether the call's communicator has one rank; false also where it is not known. */
bool trace_is_alone(const struct trace_data *d, const struct trace_call *c);
/* Estimates what ranks waited for others: late_ns of calls and places. Part of trace_join(). */
void trace_late(struct trace_data *d);

/* trace_reasons.c. Returns: the collective's name in SLUICE_COLL; "": none. */
const char *trace_family(const char *function);
/* Writes why the host MPI executed calls of `function`. why: text of a trace. */
void trace_reason(const char *why, const char *function, char *out, size_t cap);

/* Fills function and where of every place. */
void trace_symbols(struct trace_data *d);
/* Writes "at file.py:12", or "by function (file.c:12)" where the function is known. */
void trace_caller(const struct trace_place *p, char *out, size_t cap);
/* Implemented by one of trace_symbols_*.c. function and where are "" when unknown. */
struct trace_symbol { char function[256], where[256]; };
void trace_symbol_find(const char *module, uint64_t offset, struct trace_symbol *out);
/* For them: sets function from the name of a symbol, a C++ name as the source writes it. */
void trace_symbol_name(struct trace_symbol *out, const char *name);

/* ---- what is shown ----------------------------------------------------------------------- */

enum trace_kind { /* of an event; names in trace_view.c */
		  TRACE_SHOW_CALL,
		  TRACE_SHOW_EARLY,
		  TRACE_SHOW_PASSED,
		  TRACE_SHOW_MOVING,
		  TRACE_SHOW_TOUCH,
		  TRACE_SHOW_COPY,
		  TRACE_SHOW_CHANNEL,
		  TRACE_SHOW_SETUP,
		  TRACE_SHOW_GOAL,
		  TRACE_SHOW_BEGUN,
		  TRACE_SHOW_PENDING,
		  TRACE_SHOW_TURN,
		  TRACE_SHOW_KINDS
};

struct trace_event {
	uint64_t begin_ns, dur_ns, bytes;
	uint64_t extra;                /* meaning by kind: trace_extra_names; mostly 0 */
	uint32_t track, label, detail; /* strings of the view */
	uint32_t place;                /* 1 + index of a place; 0: none */
	uint8_t kind;
};

struct trace_track {
	char *process; /* "rank 0" */
	char *name;    /* "calls" */
	uint32_t group;/* its process, from 0 */
	uint32_t id;   /* order of creation */
};

struct trace_view {
	TRACE_ARRAY(struct trace_event, events); /* by track, then by begin */
	TRACE_ARRAY(struct trace_track, tracks);
	TRACE_ARRAY(char *, strings); /* [0] is "" */
	uint32_t *string_slots;       /* by hash: 1 + index */
	size_t string_mask;
	const struct trace_data *data;
	char *title;
	uint64_t end_ns;
};
extern const char *const trace_kind_names[TRACE_SHOW_KINDS];
extern const char *const trace_extra_names[TRACE_SHOW_KINDS]; /* "": none */
uint32_t trace_string(struct trace_view *v, const char *text);
/* Writes "rank 3", or another name of the process. */
void trace_process_name(const struct trace_header *h, char *out, size_t cap);
bool trace_is_worker(const struct trace_header *h);
void trace_view(const struct trace_data *d, struct trace_view *out);
/* Sorts the view, once, when all events are there. */
void trace_view_sort(struct trace_view *v);
uint32_t trace_track_add(struct trace_view *v, uint32_t group, const char *process,
			 const char *name);
void trace_event_add(struct trace_view *v, const struct trace_event *e);
/* Adds the events of a profile. Returns: 0, or -errno after a message. */
int trace_goal_read(struct trace_view *v, const char *path);

/* Write "1.5 MiB" and "2.5 ms". */
void trace_format_bytes(uint64_t bytes, char *out, size_t cap);
void trace_format_ns(uint64_t ns, char *out, size_t cap);

/* Writers; the caller checks the file for errors. */
void trace_summary(const struct trace_data *d, FILE *out);
void trace_write_chrome(const struct trace_view *v, FILE *out);
void trace_write_html(const struct trace_view *v, FILE *out);

#endif
