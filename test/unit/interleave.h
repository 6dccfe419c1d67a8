/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every interleaving of a few threads that run real code, step by step.
 *
 * A test compiles the code under test with "interleave_atomics.h", which turns its atomic
 * operations into scheduling points. il_explore() then visits every state that any order of these
 * points leads to, each once, and finds
 *   - il_fail() in any of them,
 *   - deadlock: nobody can go on and not all are finished,
 *   - livelock: a state from which no order whatever leads to the end.
 *
 * Memory is weaker than sequentially consistent: each thread's stores wait in a buffer and become
 * visible later, in any order (a release store after those before it, stores to one place in
 * order). A fence and an atomic read-modify-write wait for the buffer as far as their order
 * demands. Loads are not reordered; what acquire is for is not checked here.
 *
 * How a thread goes back to where it was: its body runs again from the beginning of its round, with
 * the results of its earlier points fed to it from a log, up to the next point. So a body must
 * depend on nothing but its arguments and the points, and should return (a new round begins) as
 * often as its whole state fits `local`: fewer states are then told apart.
 */
#ifndef SLUICE_UNIT_INTERLEAVE_H
#define SLUICE_UNIT_INTERLEAVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IL_THREADS = 4, IL_SHARED_BYTES = 1024, IL_LOCAL_BYTES = 256, IL_LOG = 32, IL_BUFFER = 8 };

/* Mutations of the code under test, with which the test must fail. */
enum {
	IL_NO_RELEASE = 1, /* release stores and read-modify-writes are relaxed */
	IL_NO_FENCE = 2,   /* fences do nothing */
	IL_BLIND_CAS = 4,  /* compare-and-swap does not compare */
};

struct il_model {
	int threads;
	size_t shared_bytes, local_bytes;
	unsigned mutation;
	void (*init)(void *shared);
	/* One round of thread t. Returns true when another is to follow, false when it is finished.
	 */
	bool (*round)(int t, void *shared, void *local);
	/* All threads are finished: il_fail() when something is wrong. May be NULL. */
	void (*end)(void *shared);
};

struct il_result {
	const char *violation; /* NULL: none */
	char order[256]; /* the threads' numbers, step by step, that lead there; b: a store lands */
	uint64_t states, steps;
};

/* Context: one at a time. */
void il_explore(const struct il_model *m, struct il_result *out);
/* Explores the model. Returns: its violation; INTERLEAVE_SHOW in the environment prints all. */
const char *il_violation(const struct il_model *m);

/* ---- inside a round ---------------------------------------------------------------------- */

/* A scheduling point: true when the step is really taken, so that ghost variables may be changed.
 */
bool il_turn(void);
/* Ends the exploration: this must never happen. */
void il_fail(const char *what);
/* Like il_turn(), with a value that the thread learns; `now` is evaluated by the caller each time.
 */
uint64_t il_learn(uint64_t now);
void il_futex_wait(void *word, uint32_t expected); /* no time-out: a lost wake-up is a deadlock */
void il_futex_wake(void *word);

uint64_t il_load(const void *p, size_t size);
void il_store(void *p, size_t size, uint64_t value, memory_order order);
uint64_t il_add(void *p, size_t size, uint64_t value, memory_order order);
uint64_t il_or(void *p, size_t size, uint64_t value, memory_order order);
uint64_t il_and(void *p, size_t size, uint64_t value, memory_order order);
bool il_cas(void *p, size_t size, uint64_t *expected, uint64_t desired, memory_order order);
void il_fence(memory_order order);

#endif
