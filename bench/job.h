/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job: what the measuring programs that call MPI share: arguments, the area that all ranks map, the
 * priority they run with, and whether somebody else had the cores meanwhile.
 *
 *   watch   run time and time spent waiting for a core, of every thread of this process, from
 *           /proc/self/task/N/schedstat: a sample is kept only when nobody else ran in it
 *   raise   threads that only want idle cores never find one while other work runs on this machine.
 *           Where a core is to stand for an idle one they get the ranks' high priority in its
 * stead: no rank runs there, and everybody else makes room as if there were nobody.
 *
 * Ordinary MPI programs use this: nothing here knows which side of a comparison it is on.
 */
#ifndef SLUICE_BENCH_JOB_H
#define SLUICE_BENCH_JOB_H

#include "bench.h"

#define JOB_MAX_LIST    32
#define JOB_MAX_THREADS 32

/* Print why, end all ranks. */
_Noreturn void job_die(const char *why);
void *job_memory(size_t bytes);
/* A buffer as programs get it, populated; with `huge`, as numpy gets its own from 4 MB on. */
void *job_buffer(bool huge, size_t bytes);
/* "64K,1M" into out[]; the number of values. Dies when it cannot be read. */
int job_parse_list(uint64_t out[JOB_MAX_LIST], const char *text);
/* The value of an argument "name=value"; NULL when it is another argument. */
const char *job_value(const char *argument, const char *name);

/* After MPI_Init: rank, ranks, and rank 0's memory as everybody's area. b->crowded becomes true
 * with more ranks than cores; true before, it stays so. Collective. */
void job_open(struct bench *b);
/* `bytes` of memory that all ranks map, filled by nobody. Collective. */
void *job_share(struct bench *b, size_t bytes);
/* The line that says which MPI this is. Rank 0 prints it. */
void job_print_run(const struct bench *b, bool pinned);
/* Sorts t. Returns: the median; 0 of no values. */
double job_median(double *t, int n);
void job_set_nice(int value);
/* How often this process lost its core. */
long job_lost_core(void);
uint64_t job_count_lines(const char *path);
uint64_t job_count_entries(const char *folder);

/* CPU times of the threads that existed at job_watch_open(). */
struct job_cpu {
	uint64_t run_ns, delay_ns;                 /* the thread that called it */
	uint64_t workers_run_ns, workers_delay_ns; /* all others together */
};
struct job_watch {
	int count; /* threads; the caller is the first */
	int fds[JOB_MAX_THREADS];
};
/* `raise`: the other threads get the priority that the ranks have; see the head. */
void job_watch_open(struct job_watch *w, bool raise);
void job_watch_close(struct job_watch *w);
void job_watch_read(const struct job_watch *w, struct job_cpu *out);

/*
 * One sample: job_begin ... job_say, by every rank, then bench_sync; then any rank may ask.
 * job_begin returns the instant at which the last rank was there. In area->value[rank][]:
 */
enum {
	JOB_SAYS_NS = 2,
	JOB_SAYS_RUN,
	JOB_SAYS_DELAY,
	JOB_SAYS_THEIR_RUN,
	JOB_SAYS_THEIR_DELAY,
	JOB_SAYS_LAST
};
uint64_t job_begin(struct bench *b, const struct job_watch *w, struct job_cpu *before);
void job_say(struct bench *b, const struct job_watch *w, const struct job_cpu *before, uint64_t ns);
/*
 * Did somebody else have a core in a sample of `ns`? Ranks that share a core wait for each other
 * and never longer than the others run; a rank with a core of its own does not wait. Workers wait
 * where no core is free for them, and where one is (`shared`) they do not, but for being woken.
 */
bool job_is_disturbed(const struct bench *b, bool shared, uint64_t ns);

/* Computation: units are rows of a product of two 64 x 64 matrices. job_unit_ns: what a unit takes
 * when nobody disturbs; all ranks call it, one after the other computes, all learn the slowest's.
 */
void job_compute_init(void);
void job_compute(uint64_t units);
double job_unit_ns(struct bench *b);

#endif
