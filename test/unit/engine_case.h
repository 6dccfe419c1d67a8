/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fixture of the conformance suite: engines with settings, and copies that check themselves.
 *
 *   engine_case_each(f, what)  calls f with each working engine of the registry, with `late`, and
 *                              with `fault` around each of them
 *   engine_job                 a copy with its own memory, padded on both sides
 */
#ifndef SLUICE_UNIT_ENGINE_CASE_H
#define SLUICE_UNIT_ENGINE_CASE_H

#include "engine/engine.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum {
	ENGINE_CASE_BAD = 1,   /* also settings of `fault` with which copies fail or hang */
	/* f forks: skipped where a sanitizer supports no threads after fork */
	ENGINE_CASE_FORKS = 2,
};

struct engine_case {
	const struct engine_ops *ops;
	const char *fault;      /* engine_fault */
	int workers;
	struct engine_caps caps;
	struct engine_chan *ch; /* opened by the test */
};

void engine_case_each(void (*f)(struct engine_case *e), unsigned what);
/* Sets the options of the case, and one more ("NAME=value") unless NULL. */
void engine_case_options(const struct engine_case *e, const char *more);
struct engine_chan *engine_case_open(struct engine_case *e, int index);
void engine_case_close(struct engine_case *e, struct engine_chan *ch);
/* Polls an engine that must be polled. */
void engine_case_poll(struct engine_case *e, struct engine_chan *ch);
/* Waits until all engine threads of this process sleep. */
void engine_case_settle(void);
/* Returns: the sum of their voluntary context switches. */
uint64_t engine_case_switches(void);

struct engine_job {
	struct engine_copy c;
	uint8_t *dst;
	const uint8_t *src;
	void (*then)(struct engine_job *j); /* called at the end of done(); may be NULL */
	void *arg;
	int result;
	_Atomic int ends; /* calls of done() */
	uint8_t *memory;
};

/* dst and src lie `to` and `from` bytes after the beginning of a cache line. */
void engine_job_make(struct engine_job *j, size_t to, size_t from, size_t bytes);
/* Posts and flushes; waits while the channel is full. Fails when done() runs inside
 * engine_post(). */
void engine_job_post(struct engine_case *e, struct engine_chan *ch, struct engine_job *j);
void engine_job_wait(struct engine_case *e, struct engine_chan *ch, struct engine_job *j);
void engine_job_wait_any(struct engine_case *e, struct engine_chan **chans, int n,
			 struct engine_job *j);
/* Waits without a poll until the bytes are in place. */
void engine_job_arrive(struct engine_case *e, const struct engine_job *j);
/* Checks that the bytes are in place and the padding is intact. */
void engine_job_check(const struct engine_job *j);
void engine_job_free(struct engine_job *j);

#endif
