/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the conformance suite runs on: engines in their settings, and copies that check themselves.
 *
 *   engine_case_each(f, what)  f with each engine of the registry that works here
 *   engine_job                 a copy with its own memory, one pad before and behind
 */
#ifndef SLUICE_UNIT_ENGINE_CASE_H
#define SLUICE_UNIT_ENGINE_CASE_H

#include "engine/engine.h"

enum {
	ENGINE_CASE_BAD = 1,   /* also with settings of `fault` in which copies fail or hang */
	ENGINE_CASE_FORKS = 2, /* f forks: not where a sanitizer has no threads after it */
};

struct engine_case {
	const struct engine_ops *ops;
	const char *fault;      /* engine_fault */
	int workers;
	struct engine_caps caps;
	struct engine_chan *ch; /* the test's own */
};

void engine_case_each(void (*f)(struct engine_case *e), unsigned what);
/* The case's options, and one more ("NAME=value") unless it is NULL. */
void engine_case_options(const struct engine_case *e, const char *more);
struct engine_chan *engine_case_open(struct engine_case *e, int index);
void engine_case_close(struct engine_case *e, struct engine_chan *ch);
/* Lets an engine that must be polled notice ends. */
void engine_case_poll(struct engine_case *e, struct engine_chan *ch);
/* Until all threads of engines in this process sleep. */
void engine_case_settle(void);
/* How often they have gone to sleep, in sum. */
uint64_t engine_case_switches(void);

struct engine_job {
	struct engine_copy c;
	uint8_t *dst;
	const uint8_t *src;
	void (*then)(struct engine_job *j); /* at the end of done(); may be NULL */
	void *arg;
	int result;
	_Atomic int ends; /* calls of done() */
	uint8_t *memory;
};

/* dst and src lie `to` and `from` bytes behind the begin of a line. */
void engine_job_make(struct engine_job *j, size_t to, size_t from, size_t bytes);
/* Posts and flushes; waits where the channel is full. Fails when done() runs inside of
 * engine_post(). */
void engine_job_post(struct engine_case *e, struct engine_chan *ch, struct engine_job *j);
void engine_job_wait(struct engine_case *e, struct engine_chan *ch, struct engine_job *j);
void engine_job_wait_any(struct engine_case *e, struct engine_chan **chans, int n,
			 struct engine_job *j);
/* Its bytes are in place and nothing beside them was written. */
void engine_job_check(const struct engine_job *j);
void engine_job_free(struct engine_job *j);

#endif
