/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * bench: what the measuring programs share: a page that all ranks map, a start in step, the
 * distance of two cores, contents that can be checked, and percentiles.
 *
 *   area   one shared mapping of the ranks of one measurement (memfd, not MPI: the MPI under test
 *          must not be what keeps the ranks in step)
 *   sync   a spinning barrier; bench_start() then lets all ranks begin at one common instant
 *   line   the cache-line ping-pong between ranks 0 and 1, there and back, in ns
 *   fill   contents that depend on who wrote them and when; any word can be predicted
 *
 * Nothing here calls MPI.
 */
#ifndef SLUICE_BENCH_H
#define SLUICE_BENCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifndef __x86_64__
#define __builtin_ia32_pause() __asm__ volatile("" ::: "memory") /* the name is x86's */
#endif

#define BENCH_MAX_RANKS 256
#define BENCH_MAX_CALLS 20000
#define BENCH_PAGE      4096

struct bench_area {
	_Alignas(128) _Atomic uint32_t arrived;            /* written by every rank */
	_Alignas(128) _Atomic uint32_t generation;         /* written by the last to arrive */
	_Alignas(128) _Atomic uint64_t start_ns;           /* written by rank 0 */
	_Alignas(128) _Atomic uint64_t last_ns;            /* written by the last to arrive */
	_Alignas(128) _Atomic uint32_t go_on;              /* written by rank 0: one more call? */
	_Alignas(128) _Atomic uint32_t ball;               /* the line of the ping-pong */
	_Alignas(128) _Atomic uint64_t mismatches;         /* contents that were not as expected */
	_Alignas(128) uint64_t value[BENCH_MAX_RANKS][16]; /* a line pair a rank, written by it */
};

struct bench {
	struct bench_area *area;
	int rank, ranks;
	bool crowded; /* more ranks than cores: waiting must yield */
	bool sleeps;  /* crowded: who waits sleeps at once, so that the others have the core */
};

/* The samples of one measurement, kept by rank 0; the order of sampling is not kept. */
struct bench_samples {
	int count;
	uint64_t ns[BENCH_MAX_CALLS];
};

uint64_t bench_now_ns(void);
int bench_cpus(void);

/* Wait for all ranks. */
void bench_sync(struct bench *b);
/* Wait for all ranks and return the instant at which this rank began. With a core for every rank it
 * is the same instant on all of them. */
uint64_t bench_start(struct bench *b);
/*
 * Like bench_start(), but the instant is common to all ranks also when they share cores: the
 * arrival of the last rank.
 */
uint64_t bench_start_common(struct bench *b);
/* All ranks give a value; rank 0 receives the largest, the others 0. Every rank waits. */
uint64_t bench_max(struct bench *b, uint64_t value);
/* Rank 0 decides, all ranks learn it. */
bool bench_agree(struct bench *b, bool mine);

/* There and back between ranks 0 and 1, ns; 0 with one rank. The ranks are put on two cores for it
 * and get their affinity back. All ranks call it; the same result on all. */
double bench_line_ns(struct bench *b);
/* The CPUs that the job may use, like "0,2,4", where they are not all of the machine's from 0 on.
 */
void bench_use_cpus(const char *list);
/* Put the calling process on the cpu-th of those. 0 or -errno. */
int bench_pin(int cpu);

/* Contents: word i of a buffer filled with `seed`. */
static inline uint64_t bench_word(uint64_t seed, uint64_t i)
{
	return seed + i * 0x9E3779B97F4A7C15ull;
}
static inline uint64_t bench_seed(uint64_t call, int rank)
{
	return (call * BENCH_MAX_RANKS + (uint64_t)rank + 1) * 0xD1B54A32D192ED03ull;
}
void bench_fill(void *buf, size_t bytes, uint64_t seed);
/* Number of words that are not as bench_fill() would leave them. */
uint64_t bench_check(const void *buf, size_t bytes, uint64_t seed);
/* Read (write) one byte of each page; a different line in each page. bench_expect() is what
 * bench_touch() returns on a buffer filled with `seed`, found without memory. */
uint64_t bench_touch(const void *buf, size_t bytes);
uint64_t bench_expect(size_t bytes, uint64_t seed);
/* Like bench_touch() and bench_expect(), for reading every word. */
uint64_t bench_read(const void *buf, size_t bytes);
uint64_t bench_read_expect(size_t bytes, uint64_t seed);
void bench_smear(void *buf, size_t bytes, unsigned char byte);

void bench_sort(struct bench_samples *s);
/* `percent` of a sorted set, in us. */
double bench_percentile_us(const struct bench_samples *s, double percent);
/* "64K" or "1M" or "100"; 0 when it cannot be read. */
size_t bench_parse_bytes(const char *text, char **end);

#endif
