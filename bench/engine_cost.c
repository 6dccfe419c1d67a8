/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures the cost and the gain of a copy engine: a post, with workers that seek and that sleep;
 * the time until a small copy has ended; bandwidth by fragment size and by workers against a plain
 * copy; how soon a program can read data that the engine has copied, by copy kernel. The program
 * runs on the first CPU, the workers on the second (two of them on both). Prints one JSON object
 * per line: the least and the median of many.
 *
 *   ninja bench/engine_cost && bench/engine_cost [--normal] [engine]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"
#include "engine/engine.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
enum { CALLS = 400, BIG_CALLS = 15, COPIES = 1024 };

static const struct engine_ops *ops;
static const char *engine = "sw";

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void report(const char *what, const char *how, size_t bytes, uint64_t *ns, int n)
{
	qsort(ns, (size_t)n, sizeof *ns, by_value);
	printf("{\"what\": \"%s\", \"how\": \"%s\", \"bytes\": %zu, \"least_us\": %.2f, "
	       "\"median_us\": %.2f",
	       what, how, bytes, (double)ns[0] / 1e3, (double)ns[n / 2] / 1e3);
	if (bytes >= 64 * KIB)
		printf(", \"best_gb_s\": %.1f, \"median_gb_s\": %.1f",
		       (double)bytes / (double)ns[0], (double)bytes / (double)ns[n / 2]);
	printf("}\n");
	fflush(stdout);
}

/* On a machine that does other things too: workers at normal priority, which are not to be
 * displaced. */
static bool normal;

/* ---- channels ---------------------------------------------------------------------------- */

static struct engine_chan *open_with(int workers, const char *kernel, unsigned cpus_mask)
{
	struct os_cpumask cpus = { { cpus_mask } };
	char first[64], second[64], problems[256], reason[256];
	char *env[] = { first, second, normal ? "SLUICE_TEST=fault=engine_idle:all" : NULL, NULL };
	struct engine_chan *ch;

	snprintf(first, sizeof first, "SLUICE_WORKERS=%d", workers);
	snprintf(second, sizeof second, "SLUICE_TEST=xfer_copy=%s", kernel);
	if (base_options_load(env, problems, sizeof problems)) {
		fprintf(stderr, "engine_cost: %s", problems);
		exit(2);
	}
	engine_set_cpus(&cpus, workers);
	ops = engine_find(engine);
	if (!ops || ops->probe(reason, sizeof reason) || ops->chan_open(-1, 0, &ch)) {
		fprintf(stderr, "engine_cost: no engine %s\n", engine);
		exit(1);
	}
	return ch;
}

/* A transfer of fragments of which `depth` are in the channel: the end of one posts the next. */
struct transfer {
	struct engine_chan *ch;
	char *dst;
	const char *src;
	size_t bytes, fragment;
	_Atomic size_t next;  /* offset of the next fragment */
	_Atomic size_t ended; /* bytes */
	struct engine_copy copies[COPIES];
};
static struct transfer transfer;

static void fragment_done(struct engine_copy *c, int result);

static void post_at(struct transfer *t, size_t at)
{
	struct engine_copy *c = &t->copies[at / t->fragment];

	*c = (struct engine_copy){
		.dst = t->dst + at,
		.src = t->src + at,
		.bytes = base_min_u64(t->fragment, t->bytes - at),
		.done = fragment_done,
		.arg = t,
		.total_bytes = t->bytes,
	};
	if (engine_post(t->ch, c))
		abort();
}

static void fragment_done(struct engine_copy *c, int result)
{
	struct transfer *t = c->arg;
	size_t bytes = c->bytes, at = atomic_fetch_add(&t->next, t->fragment);

	if (result)
		abort();
	if (at < t->bytes) {
		post_at(t, at);
		engine_flush(t->ch);
	}
	atomic_fetch_add(&t->ended, bytes);
}

static void transfer_run(struct engine_chan *ch, char *dst, const char *src, size_t bytes,
			 size_t fragment, int depth)
{
	struct transfer *t = &transfer;

	t->ch = ch;
	t->dst = dst;
	t->src = src;
	t->bytes = bytes;
	t->fragment = fragment;
	atomic_store(&t->next, 0);
	atomic_store(&t->ended, 0);
	for (int i = 0; i < depth; i++) {
		size_t at = atomic_fetch_add(&t->next, fragment);

		if (at < bytes)
			post_at(t, at);
	}
	engine_flush(ch);
	while (atomic_load(&t->ended) < bytes)
		os_cpu_relax();
}

/* ---- what a post costs ------------------------------------------------------------------- */

static _Atomic uint64_t ended_ns;

static void note_end(struct engine_copy *c, int result)
{
	(void)c;
	(void)result;
	atomic_store(&ended_ns, bench_now_ns());
}

static void measure_posts(const char *how, unsigned pause_us)
{
	static uint64_t post[CALLS], flush[CALLS], end[CALLS];
	struct engine_chan *ch = open_with(1, "auto", 2);
	char from[64] = "", to[64];
	struct engine_copy c = { .dst = to, .src = from, .bytes = sizeof to, .done = note_end };

	for (int i = 0; i < CALLS; i++) {
		uint64_t a, b, d;

		if (pause_us)
			usleep(pause_us);
		else
			for (a = bench_now_ns(); bench_now_ns() < a + 3000;)
				;
		atomic_store(&ended_ns, 0);
		a = bench_now_ns();
		if (engine_post(ch, &c))
			abort();
		b = bench_now_ns();
		engine_flush(ch);
		d = bench_now_ns();
		while (!atomic_load(&ended_ns))
			os_cpu_relax();
		post[i] = b - a;
		flush[i] = d - b;
		end[i] = atomic_load(&ended_ns) - a;
	}
	ops->chan_close(ch);
	report("post", how, 64, post, CALLS);
	report("flush", how, 64, flush, CALLS);
	report("until it has ended", how, 64, end, CALLS);
}

/* ---- bandwidth --------------------------------------------------------------------------- */

static char *room(size_t bytes)
{
	char *raw = mmap(NULL, bytes + 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	char *p = (char *)base_round_up((uintptr_t)raw, 2 * MIB);

	if (raw == MAP_FAILED)
		exit(1);
	madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, 1, bytes);
	return p;
}

static void measure_bandwidth(char *dst, char *src, size_t bytes, size_t fragment, int workers,
			      int depth)
{
	struct engine_chan *ch = open_with(workers, "auto", workers > 1 ? 3 : 2);
	uint64_t ns[BIG_CALLS];
	char how[64];

	for (int i = 0; i < BIG_CALLS; i++) {
		memset(src, i, bytes);
		ns[i] = bench_now_ns();
		transfer_run(ch, dst, src, bytes, fragment, depth);
		ns[i] = bench_now_ns() - ns[i];
	}
	ops->chan_close(ch);
	snprintf(how, sizeof how, "%d workers, fragments of %zu KiB, depth %d", workers,
		 fragment / KIB, depth);
	report("copy", how, bytes, ns, BIG_CALLS);
}

static void measure_own(char *dst, char *src, size_t bytes)
{
	uint64_t ns[BIG_CALLS];

	for (int i = 0; i < BIG_CALLS; i++) {
		memset(src, i, bytes);
		ns[i] = bench_now_ns();
		os_copy(dst, src, bytes, BASE_COPY_AUTO);
		ns[i] = bench_now_ns() - ns[i];
	}
	report("copy", "by the program", bytes, ns, BIG_CALLS);
}

/* Until the program has read all of it: what counts when the copy was not hidden. And the reading
 * alone: what counts when it was. */
static void measure_use(char *dst, char *src, size_t bytes, const char *kernel)
{
	struct engine_chan *ch = open_with(1, kernel, 2);
	uint64_t all[BIG_CALLS], reading[BIG_CALLS];
	volatile uint64_t sink;

	for (int i = 0; i < BIG_CALLS; i++) {
		uint64_t begun, copied;

		bench_read(dst, bytes); /* a buffer that the program works with */
		memset(src, i, bytes);
		begun = bench_now_ns();
		transfer_run(ch, dst, src, bytes, 256 * KIB, 2);
		copied = bench_now_ns();
		sink = bench_read(dst, bytes);
		all[i] = bench_now_ns() - begun;
		reading[i] = bench_now_ns() - copied;
		(void)sink;
	}
	ops->chan_close(ch);
	report("copy and read", kernel, bytes, all, BIG_CALLS);
	report("read", kernel, bytes, reading, BIG_CALLS);
}

int main(int argc, char **argv)
{
	static const char *const kernels[] = { "plain", "movsb", "nontemporal", "interleaved" };
	static const size_t sizes[] = { 1 * MIB, 4 * MIB, 16 * MIB, 64 * MIB };
	char *src = room(64 * MIB), *dst = room(64 * MIB);

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--normal"))
			normal = true;
		else
			engine = argv[i];
	}
	bench_pin(0);
	printf("{\"cpus\": %d, \"llc_bytes\": %llu, \"engine\": \"%s\"}\n", bench_cpus(),
	       (unsigned long long)os_llc_bytes(), engine);
	measure_posts("a worker seeks", 0);
	measure_posts("the worker sleeps", 1000);
	for (size_t s = 0; s < BASE_ARRAY_LEN(sizes); s++) {
		measure_own(dst, src, sizes[s]);
		for (size_t fragment = 64 * KIB; fragment <= MIB; fragment *= 4) {
			measure_bandwidth(dst, src, sizes[s], fragment, 1, 1);
			measure_bandwidth(dst, src, sizes[s], fragment, 1, 2);
			measure_bandwidth(dst, src, sizes[s], fragment, 2, 2);
		}
		for (size_t k = 0; k < BASE_ARRAY_LEN(kernels); k++)
			if (os_copy_has((enum base_copy_kernel)(BASE_COPY_PLAIN + k)))
				measure_use(dst, src, sizes[s], kernels[k]);
	}
	return 0;
}
