/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * report: does Sluice help this program? The data of `sluice report`.
 *
 *   report.c        the verb
 *   report_sums.c   trace data -> calls of one function and size class together
 *   report_print.c  a screen of text, JSON, advice
 *
 * Times are sums over the ranks.
 */
#ifndef SLUICE_TOOL_REPORT_H
#define SLUICE_TOOL_REPORT_H

#include "trace_data.h"

/* Calls below SLUICE_COLL_THRESHOLD, of all sizes together. */
#define REPORT_SMALL 255u

/* The time of a group's calls at one place. */
struct report_share {
	const struct trace_place *place;
	uint64_t ns;
};

/* Calls of one function whose messages have at least half the bytes of the longest. */
struct report_group {
	char function[48];
	uint8_t size_class;       /* logarithm of the bytes, or REPORT_SMALL */
	uint64_t calls, admitted, bytes;
	uint64_t ns;              /* in the calls, and waiting for their data later */
	uint64_t waiting_ns;      /* of it: until the last rank came; an estimate */
	uint64_t adopted, adopt_ns;
	TRACE_ARRAY(struct report_share, places); /* once summed, the longest time first */
	TRACE_ARRAY(uint64_t, sluice); /* times of one call that Sluice executed */
	TRACE_ARRAY(uint64_t, host);   /* ... that the host MPI executed, perhaps in another run */
	struct report_reason {
		const char *why;  /* text of the trace */
		uint64_t ns;
	} reasons[8];             /* why the host MPI executed calls */
};

struct report {
	const struct trace_data *data;
	unsigned ranks;           /* processes without the worker */
	unsigned unfinished;      /* of them, that ended without MPI_Finalize */
	uint64_t wall_ns;
	uint64_t ranks_ns, threads_ns; /* of all ranks, and of their threads that call MPI */
	uint64_t cpu_ns;          /* of all processes, the worker too; 0: not known of all */
	uint64_t cpu_wait_ns;     /* ranks were ready to run and had no CPU */
	uint64_t ns, waiting_ns, sluice_ns, calls, admitted, adopted, adopt_ns;
	uint64_t lost;            /* of the calls: their records were overwritten */
	TRACE_ARRAY(struct report_group, groups); /* the longest time first */
	/* calls that send, receive or wait for messages: their time, what of it copied, the copied
	 * bytes, and those from mapped memory */
	struct report_messages {
		uint64_t calls, bytes, ns, copying_ns, copied, served;
		const struct trace_place *place; /* the one with the longest time */
	} messages;
	bool has_host_run;        /* times of the host MPI come from a second trace */
};

/* Fills *out. host: a trace of the same program executed by the host MPI alone; NULL: none. */
void report_sum(const struct trace_data *d, const struct trace_data *host, struct report *out);
/* Returns: median of the times; 0: too few are known. Sorts them. */
uint64_t report_median(uint64_t *times, size_t count);
/* Returns: the time that Sluice saved in the group; negative: lost. *known: both times are. */
int64_t report_gain(struct report_group *g, bool *known);
/* Returns: the place with the longest time; NULL: unknown. */
const struct trace_place *report_place(const struct report_group *g);
/* Returns: how many other places have at least a quarter of its time. */
unsigned report_more_places(const struct report_group *g);
/* Returns: the main reason of the host MPI's calls, or "". */
const char *report_reason(const struct report_group *g);

void report_print(struct report *r, FILE *out);
void report_print_json(struct report *r, FILE *out);

#endif
