/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures the cost of region/ to a program: the hooks of free(), the description of a buffer,
 * adoption and its ends, by size and by the buffer's position; how long other ranks wait meanwhile.
 * Prints one JSON object per line: the least and the median of many, in ns.
 *
 *   ninja bench/region_cost && bench/region_cost
 */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"
#include "region/region.h"

#define MIB ((size_t)1 << 20)
enum { ROUNDS = 41, BLOCKS = 64, BATCHES = 20000 };

extern void __libc_free(void *), *__libc_malloc(size_t);

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void report(const char *what, size_t bytes, const char *how, uint64_t *ns, int n, double per)
{
	qsort(ns, (size_t)n, sizeof *ns, by_value);
	printf("{\"what\": \"%s\", \"bytes\": %zu, \"how\": \"%s\", \"least_ns\": %.1f, "
	       "\"median_ns\": %.1f}\n",
	       what, bytes, how, (double)ns[0] / per, (double)ns[n / 2] / per);
}

/* ---- free() ------------------------------------------------------------------------------ */

static void measure_free(const char *how, void (*give)(void *), size_t bytes)
{
	static uint64_t ns[BATCHES];
	void *p[BLOCKS];

	for (int i = 0; i < BATCHES; i++) {
		uint64_t t;

		for (int k = 0; k < BLOCKS; k++)
			p[k] = malloc(bytes);
		t = bench_now_ns();
		for (int k = 0; k < BLOCKS; k++)
			give(p[k]);
		ns[i] = bench_now_ns() - t;
	}
	report("free", bytes, how, ns, BATCHES, BLOCKS);
}

/* As many times as 20 ms take. */
static void measure_malloc(const char *how, void *(*get)(size_t), void (*give)(void *),
			   size_t bytes)
{
	static uint64_t ns[BATCHES];
	int n = 0;

	for (uint64_t end = bench_now_ns() + 20000000; n < BATCHES && bench_now_ns() < end; n++) {
		uint64_t t = bench_now_ns();
		void *p[8];

		for (int k = 0; k < 8; k++)
			p[k] = get(bytes);
		for (int k = 0; k < 8; k++)
			give(p[k]);
		ns[n] = bench_now_ns() - t;
	}
	report("malloc and free", bytes, how, ns, n, 8);
}

/* ---- buffers ----------------------------------------------------------------------------- */

enum lie { AS_MALLOC, AT_PAGE, AT_HUGE, AT_HUGE_ADVISED, LIES };
static const char *const lies[] = { "malloc", "page-aligned", "2 MiB-aligned",
				    "2 MiB-aligned, MADV_HUGEPAGE" };

static char *buffer_get(size_t bytes, enum lie how)
{
	char *raw = mmap(NULL, bytes + 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	char *p = (char *)base_round_up((uintptr_t)raw, 2 * MIB);

	/* what malloc gives: 16 bytes into a page, anywhere modulo 2 MiB */
	if (how == AS_MALLOC)
		p += 1234 * 1024 / 4096 * 4096 + 16;
	if (how == AT_PAGE)
		p += 1234 * 1024 / 4096 * 4096;
	if (how == AT_HUGE_ADVISED)
		madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, 1, bytes);
	return p;
}

static void adopt(void *p, size_t bytes, struct region_desc *d)
{
	region_describe(p, bytes, REGION_FORCE, d);
	region_release(d);
	if (!(d->flags & REGION_DESC_MAPPED))
		fprintf(stderr, "not adopted: %s\n", region_refusal(p, bytes));
}

typedef void end_fn(uintptr_t, uintptr_t);

static void measure_adoption(size_t bytes, enum lie how, end_fn *end, const char *end_name)
{
	uint64_t adopt_ns[ROUNDS], end_ns[ROUNDS];
	char *p = buffer_get(bytes, how);
	struct region_desc d;

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t t = bench_now_ns();

		adopt(p, bytes, &d);
		adopt_ns[i] = bench_now_ns() - t;
		t = bench_now_ns();
		end((uintptr_t)p, (uintptr_t)p + bytes);
		end_ns[i] = bench_now_ns() - t;
		memset(p, i, bytes);
	}
	report("adopt", bytes, lies[how], adopt_ns, ROUNDS, 1);
	report(end_name, bytes, lies[how], end_ns, ROUNDS, 1);
}

/* A block of malloc that is a mapping of its own, adopted and freed; beside it the C library alone.
 */
static void measure_block(size_t bytes, bool whole)
{
	uint64_t adopt_ns[ROUNDS], end_ns[ROUNDS], plain_ns[ROUNDS];
	struct region_desc d;

	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	base_opt.region_whole = whole;
	for (int i = 0; i < ROUNDS; i++) {
		char *p = malloc(bytes), *q = malloc(bytes);
		uint64_t t;

		memset(p, i, bytes);
		memset(q, i, bytes);
		t = bench_now_ns();
		adopt(p, bytes, &d);
		adopt_ns[i] = bench_now_ns() - t;
		t = bench_now_ns();
		free(p);
		end_ns[i] = bench_now_ns() - t;
		t = bench_now_ns();
		free(q);
		plain_ns[i] = bench_now_ns() - t;
	}
	report("adopt", bytes, whole ? "block, whole" : "block, but its edges", adopt_ns, ROUNDS,
	       1);
	report("free of an adopted block", bytes, whole ? "whole" : "but its edges", end_ns, ROUNDS,
	       1);
	report("free of a block", bytes, "not adopted", plain_ns, ROUNDS, 1);
}

static void measure_describe(size_t bytes)
{
	enum { TIMES = 20000 };
	static uint64_t ns[TIMES];
	char *p = buffer_get(bytes, AS_MALLOC);
	struct region_desc d;

	adopt(p, bytes, &d);
	for (int i = 0; i < TIMES; i++) {
		uint64_t t = bench_now_ns();

		adopt(p, bytes, &d);
		ns[i] = bench_now_ns() - t;
	}
	report("describe", bytes, "adopted", ns, TIMES, 1);
}

/* As a call does: owner writes the buffer, a peer copies it from the arena to a buffer of its own.
 */
static void measure_use(size_t bytes, enum lie how)
{
	uint64_t ns[ROUNDS * 4];
	char *p = buffer_get(bytes, how), *q = buffer_get(bytes, how);
	struct region_desc from, to;

	adopt(p, bytes, &from);
	adopt(q, bytes, &to);
	for (int i = 0; i < ROUNDS * 4; i++) {
		char *base = region_arena_base();
		uint64_t t;

		memset(p, i, bytes);
		t = bench_now_ns();
		os_copy(base + to.arena_off, base + from.arena_off, bytes - from.head - from.tail,
			  os_copy_pick(bytes, bytes));
		ns[i] = bench_now_ns() - t;
	}
	report("copy", bytes, lies[how], ns, ROUNDS * 4, 1);
}

/* ---- waiting for the lock ---------------------------------------------------------------- */

enum { LONG_WAIT_NS = 300000 };

static struct { _Atomic bool stop; uint64_t waits, sum_ns, n; } waiting;

static void *free_all_the_time(void *arg)
{
	while (!atomic_load(&waiting.stop)) {
		uint64_t t = bench_now_ns();

		region_drop(4096, 8192); /* all that free() of a block without a region does */
		t = bench_now_ns() - t;
		waiting.waits += t > LONG_WAIT_NS;
		waiting.sum_ns += t;
		waiting.n++;
	}
	return arg;
}

static void measure_waiting(size_t bytes, bool adopting)
{
	uint64_t end = bench_now_ns() + 2000000000u, adoptions = 0;
	pthread_t t;
	char *p = buffer_get(bytes, AS_MALLOC);
	char *low = buffer_get(MIB, AS_MALLOC); /* below and above everything that is unmapped */
	struct region_desc d;

	waiting.stop = false;
	waiting.waits = waiting.sum_ns = waiting.n = 0;
	adopt(p, bytes, &d);
	adopt(low, MIB, &d);
	pthread_create(&t, NULL, free_all_the_time, NULL);
	while (bench_now_ns() < end) {
		if (!adopting) {
			memset(p, 1, bytes);
			continue;
		}
		region_drop((uintptr_t)p, (uintptr_t)p + bytes);
		memset(p, 1, bytes);
		adopt(p, bytes, &d);
		adoptions++;
	}
	atomic_store(&waiting.stop, true);
	pthread_join(t, NULL);
	printf("{\"what\": \"free by another thread\", \"bytes\": %zu, \"how\": \"%s\", "
	       "\"adoptions\": %llu, "
	       "\"over_300_us\": %llu, \"mean_ns\": %.1f}\n",
	       bytes, adopting ? "while one adopts and drops" : "while one writes",
	       (unsigned long long)adoptions, (unsigned long long)waiting.waits,
	       (double)waiting.sum_ns / (double)waiting.n);
}

static void prefer_us(void)
{
	FILE *f = fopen("/proc/self/autogroup", "w");

	setsid();
	if (f) {
		fputs("-20", f);
		fclose(f);
	}
	if (nice(-20) == -1)
		return;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20 };
	static char after[] = "SLUICE_REGION_ADOPT_AFTER=0", *env[] = { after, NULL, NULL };
	char problems[256], *pool = argc > 1 ? argv[1] : NULL;
	struct region_desc d;

	env[1] = pool; /* for example SLUICE_REGION_POOL=1G */
	prefer_us();
	if (base_options_load(env, problems, sizeof problems) || region_init()) {
		fprintf(stderr, "%s%s\n", problems, region_init_error());
		return 1;
	}
	for (size_t bytes = 24; bytes <= 100000; bytes *= 16) {
		measure_free("C library", __libc_free, bytes);
		measure_free("no region", free, bytes);
	}
	for (size_t bytes = 24; bytes <= 2 * MIB; bytes *= 8) {
		measure_malloc("C library", __libc_malloc, __libc_free, bytes);
		measure_malloc("hooks", malloc, free, bytes);
	}
	adopt(buffer_get(MIB, AS_MALLOC), MIB, &d);
	adopt(buffer_get(MIB, AS_MALLOC), MIB, &d);
	for (size_t bytes = 24; bytes <= 100000; bytes *= 16)
		measure_free("two regions above", free, bytes);
	measure_describe(MIB);
	for (size_t i = 0; i < BASE_ARRAY_LEN(sizes); i++) {
		for (int how = 0; how < LIES; how++) {
			measure_adoption(sizes[i], how, region_drop, "drop");
			measure_use(sizes[i], how);
		}
		measure_block(sizes[i], true);
		measure_block(sizes[i], false);
		measure_adoption(sizes[i], AS_MALLOC, region_return, "keep");
		measure_adoption(sizes[i], AS_MALLOC, region_return_exclusive, "exclusive");
	}
	measure_waiting(16 * MIB, false);
	measure_waiting(16 * MIB, true);
	return 0;
}
