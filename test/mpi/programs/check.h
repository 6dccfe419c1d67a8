/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The frame of MPI test programs. A program is a list of behaviours; each is run by all ranks of
 * MPI_COMM_WORLD and reported by rank 0 on stdout, one line each, which test/mpi reads:
 *
 *   ok NAME | skip NAME: why | fail NAME
 *   say NAME: rank R: TEXT        something that must be the same with and without Sluice
 *   note NAME: rank R: TEXT       something that the test wants to know
 *   # NAME: rank R: TEXT          why it failed
 *
 * Run alone:  mpiexec -n 3 sluice run build/test-programs/mpich/semantics any_root
 */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct behaviour {
	const char *name;
	int min_ranks;
	void (*run)(void);
	struct behaviour *next;
};

/* BEHAVIOUR(any_root, 2) { ... }: needs two ranks. The Python side finds this line by itself. */
#define BEHAVIOUR(name_, ranks_)                                                                   \
	static void behave_##name_(void);                                                          \
	static struct behaviour entry_##name_ = { #name_, ranks_, behave_##name_, NULL };          \
	__attribute__((constructor)) static void enter_##name_(void)                               \
	{                                                                                          \
		check_register(&entry_##name_);                                                    \
	}                                                                                          \
	static void behave_##name_(void)

extern int rank, size;

void check_register(struct behaviour *b);
/* Set MPI up with this thread level, run what argv names (or all), take MPI down. */
int check_main(int argc, char **argv, int thread_level);

/* The behaviour failed on this rank; it goes on, so that peers do not hang. */
void check_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool check_failed(void); /* on this rank, so far */
/* All ranks must come to the same decision. */
void check_skip(const char *why);
void check_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* ... the class and the text of what a call has returned, in one line. */
void check_say_error(const char *what, int rc);
void check_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define EXPECT(cond)                                                                               \
	do {                                                                                       \
		if (!(cond))                                                                       \
			check_fail("%s:%d: %s", __FILE__, __LINE__, #cond);                        \
	} while (0)

/* Bytes that depend on seed and position only, so that every rank knows what it must see. */
void check_fill(void *buf, size_t bytes, uint64_t seed);
/* False, and the behaviour has failed with the first wrong byte, when buf is not check_fill's. */
bool check_same(const void *buf, size_t bytes, uint64_t seed, const char *what);
bool check_zero(const void *buf, size_t bytes, const char *what);
static inline uint64_t check_seed(uint64_t a, uint64_t b)
{
	return a * 1000003u + b + 1;
}
uint64_t check_random(uint64_t *state);

void *check_alloc(size_t bytes); /* aborts the job when there is none */
/* A number from the environment, or dflt. */
long check_env(const char *name, long dflt);

/* Broadcast bytes of seed from root over comm and check them everywhere. */
void check_bcast(void *buf, size_t bytes, int root, MPI_Comm comm, uint64_t seed);
/* Every rank sends `bytes`; the root checks all. recv may be NULL away from the root. */
void check_gather(void *send, void *recv, size_t bytes, int root, MPI_Comm comm, uint64_t seed);

/* Is the library of this name, as it says itself? */
bool check_library(const char *name);
/* Does Sluice take whatever it can of what is nonblocking or persistent? Some libraries cannot bear
 * all of it. */
bool check_serves_requests(void);

/* Resources that must not grow. */
struct check_usage {
	long descriptors, mappings, threads, rss_kb;
};
void check_usage(struct check_usage *out);

#endif
