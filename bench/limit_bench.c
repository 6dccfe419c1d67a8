/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * limit_bench: what this machine can do at best for a broadcast or a gather of two ranks. Two
 * processes, no MPI: all buffers lie in memory that both have mapped (huge pages where the kernel
 * gives them), the owner rewrites the source before each call, and then both copy one half, with
 * nothing to agree about but when to begin and when all is done. Then the data is used in the same
 * way as in collective_bench.
 *
 * bcast:  one source (process 0's), one destination; each copies half of it.
 * gather: two sources (one each), one destination of twice the size; each copies its own block.
 *
 * A JSON line for each size and copy kernel: memcpy, rep movsb, non-temporal stores.
 */
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define HUGE_BYTES (2ul << 20)
#define WARMUP     10

struct limit {
	struct bench b;
	size_t bytes;
	bool read_all;
	uint64_t call;
	char *source[2], *dest;
	void (*copy)(void *dst, const void *src, size_t bytes);
};

/* ---- copy kernels ------------------------------------------------------------------------- */

static void copy_plain(void *dst, const void *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}

static void copy_movsb(void *dst, const void *src, size_t bytes)
{
	__asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(bytes) : : "memory");
}

/* Buffers are page-aligned and halves are multiples of 32 or handled by memcpy at the end. */
__attribute__((target("avx2"))) static void copy_nontemporal(void *dst, const void *src,
							     size_t bytes)
{
	size_t blocks = ((uintptr_t)dst % 32) ? 0 : bytes / 128;
	const __m256i *s = src;
	__m256i *d = dst;

	for (size_t i = 0; i < blocks; i++, s += 4, d += 4) {
		__m256i a = _mm256_loadu_si256(s), b = _mm256_loadu_si256(s + 1);
		__m256i c = _mm256_loadu_si256(s + 2), e = _mm256_loadu_si256(s + 3);

		_mm256_stream_si256(d, a);
		_mm256_stream_si256(d + 1, b);
		_mm256_stream_si256(d + 2, c);
		_mm256_stream_si256(d + 3, e);
	}
	_mm_sfence();
	memcpy(d, s, bytes - blocks * 128);
}

static const struct kernel {
	const char *name;
	void (*copy)(void *dst, const void *src, size_t bytes);
} kernels[] = {
	{ "memcpy", copy_plain },
	{ "movsb", copy_movsb },
	{ "nontemporal", copy_nontemporal },
};

/* As in collective_bench: one byte of each page, or all; and what must be found. */
static uint64_t use(const struct limit *l, const char *buf)
{
	return l->read_all ? bench_read(buf, l->bytes) : bench_touch(buf, l->bytes);
}

static uint64_t use_expect(const struct limit *l, uint64_t seed)
{
	return l->read_all ? bench_read_expect(l->bytes, seed) : bench_expect(l->bytes, seed);
}

/* ---- the two collectives ----------------------------------------------------------------- */

static uint64_t call_bcast(struct limit *l)
{
	uint64_t seed = bench_seed(++l->call, 0), t0, ns;
	size_t half = l->bytes / 2 / 64 * 64;

	if (l->b.rank == 0)
		bench_fill(l->source[0], l->bytes, seed);
	t0 = bench_start(&l->b);
	if (l->b.rank == 0)
		l->copy(l->dest, l->source[0], half);
	else
		l->copy(l->dest + half, l->source[0] + half, l->bytes - half);
	bench_sync(&l->b);
	if (l->b.rank == 1 && use(l, l->dest) != use_expect(l, seed))
		l->b.area->mismatches++;
	ns = bench_now_ns() - t0;
	return bench_max(&l->b, ns);
}

static uint64_t call_gather(struct limit *l)
{
	uint64_t t0, ns, sum[2] = { 0, 0 };

	bench_fill(l->source[l->b.rank], l->bytes, bench_seed(++l->call, l->b.rank));
	t0 = bench_start(&l->b);
	l->copy(l->dest + l->bytes * (size_t)l->b.rank, l->source[l->b.rank], l->bytes);
	bench_sync(&l->b);
	for (int r = 0; l->b.rank == 0 && r < 2; r++)
		sum[r] = use(l, l->dest + l->bytes * r);
	bench_smear(l->source[l->b.rank], l->bytes, 0xA5);
	ns = bench_now_ns() - t0;
	for (int r = 0; l->b.rank == 0 && r < 2; r++)
		l->b.area->mismatches += sum[r] != use_expect(l, bench_seed(l->call, r));
	return bench_max(&l->b, ns);
}

static const struct shape {
	const char *name;
	uint64_t (*call)(struct limit *l);
} shapes[] = {
	{ "limit-bcast", call_bcast },
	{ "limit-gather", call_gather },
};

/* ---- measuring --------------------------------------------------------------------------- */

static void measure(struct limit *l, const struct shape *s, const struct kernel *k,
		    uint64_t budget_ns)
{
	static struct bench_samples samples;
	double line[2];
	uint64_t since, ns;

	l->copy = k->copy;
	samples.count = 0;
	for (int i = 0; i < WARMUP; i++)
		s->call(l);
	line[0] = bench_line_ns(&l->b);
	since = bench_now_ns();
	while (bench_agree(&l->b, samples.count < 5 || (samples.count < BENCH_MAX_CALLS &&
							bench_now_ns() - since < budget_ns))) {
		ns = s->call(l);
		samples.ns[samples.count++] = ns;
	}
	line[1] = bench_line_ns(&l->b);
	if (l->b.rank)
		return;
	bench_sort(&samples);
	printf("{\"what\": \"%s\", \"kernel\": \"%s\", \"bytes\": %zu, \"ranks\": 2, \"samples\": "
	       "%d, "
	       "\"calls_per_sample\": 1, \"warmup\": %d, \"p0_us\": %.4f, \"p50_us\": %.4f, "
	       "\"p99_us\": %.4f, \"line_before_ns\": %.1f, \"line_after_ns\": %.1f, "
	       "\"mismatches\": %llu}\n",
	       s->name, k->name, l->bytes, samples.count, WARMUP, bench_percentile_us(&samples, 0),
	       bench_percentile_us(&samples, 50), bench_percentile_us(&samples, 99), line[0],
	       line[1], (unsigned long long)l->b.area->mismatches);
	fflush(stdout);
	l->b.area->mismatches = 0;
}

/* One mapping, aligned for huge pages; every page is there before the first call. */
static char *map_shared(size_t bytes)
{
	size_t length = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
	int fd = memfd_create("limit_bench", 0);
	char *hole, *p;

	hole = mmap(NULL, length + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	p = (char *)(((uintptr_t)hole + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
	if (fd < 0 || ftruncate(fd, (off_t)length) || hole == MAP_FAILED ||
	    mmap(p, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		perror("limit_bench: shared memory");
		exit(1);
	}
	memset(p, 0, length);
	madvise(p, length, MADV_COLLAPSE); /* best effort */
	close(fd);
	return p;
}

static bool has_name(const char *list, const char *name)
{
	const char *at = strstr(list, name);

	return at && (at == list || at[-1] == ',') &&
	       (at[strlen(name)] == ',' || !at[strlen(name)]);
}

static int work(struct limit *l, const char *what, const char *sizes, uint64_t budget_ns)
{
	char *end = (char *)sizes;

	bench_pin(l->b.rank);
	while (*end) {
		l->bytes = bench_parse_bytes(end, &end);
		if (*end == ',')
			end++;
		for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
			for (size_t k = 0; k < sizeof(kernels) / sizeof(kernels[0]); k++)
				if (has_name(what, shapes[s].name))
					measure(l, &shapes[s], &kernels[k], budget_ns);
	}
	return 0;
}

int main(int argc, char **argv)
{
	size_t largest = 0;
	struct limit l = { .b = { .ranks = 2, .crowded = bench_cpus() < 2 } };
	int status = 0;
	char *end;
	pid_t child;

	if (argc != 4 && argc != 5) {
		fprintf(stderr,
			"usage: limit_bench limit-bcast,limit-gather SIZES MILLISECONDS [all]\n");
		return 2;
	}
	for (end = argv[2]; *end; end += *end == ',') {
		size_t bytes = bench_parse_bytes(end, &end);

		if (*end && *end != ',')
			return 2;
		largest = bytes > largest ? bytes : largest;
	}
	l.read_all = argc == 5 && !strcmp(argv[4], "all");
	l.b.area = (struct bench_area *)map_shared(sizeof(struct bench_area));
	l.source[0] = map_shared(largest);
	l.source[1] = map_shared(largest);
	l.dest = map_shared(2 * largest);
	child = fork();
	if (child < 0)
		return 1;
	l.b.rank = child == 0;
	work(&l, argv[1], argv[2], strtoull(argv[3], NULL, 10) * 1000000);
	if (child)
		waitpid(child, &status, 0);
	return status != 0;
}
