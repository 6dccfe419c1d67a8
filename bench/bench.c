/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define LINE_BATCHES   7
#define LINE_TURNS     400
#define START_AHEAD_NS 1500
#define YIELDS         50

static int cpu_list[BENCH_MAX_RANKS], cpu_count; /* of bench_use_cpus(); 0: all */

uint64_t bench_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

int bench_cpus(void)
{
	return cpu_count ? cpu_count : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

void bench_use_cpus(const char *list)
{
	char *end = (char *)list;

	for (cpu_count = 0; *end && cpu_count < BENCH_MAX_RANKS; end += *end == ',') {
		cpu_list[cpu_count++] = (int)strtol(end, &end, 10);
		if (*end && *end != ',')
			return;
	}
}

/*
 * A rank without a core of its own gives its core up, and soon sleeps: where each rank is a session
 * of its own (MPICH's launcher) the scheduler groups them apart and sched_yield() does nothing.
 */
static void wait_crowded(struct bench_area *a, uint32_t gen, int yields)
{
	for (int i = 0; i < yields; i++) {
		if (atomic_load_explicit(&a->generation, memory_order_acquire) != gen)
			return;
		sched_yield();
	}
	while (atomic_load_explicit(&a->generation, memory_order_acquire) == gen)
		syscall(SYS_futex, &a->generation, FUTEX_WAIT, gen, NULL, NULL, 0);
}

void bench_sync(struct bench *b)
{
	struct bench_area *a = b->area;
	uint32_t gen = atomic_load_explicit(&a->generation, memory_order_acquire);
	uint32_t before = atomic_fetch_add_explicit(&a->arrived, 1, memory_order_acq_rel);

	if (before + 1 == (uint32_t)b->ranks) {
		atomic_store_explicit(&a->arrived, 0, memory_order_relaxed);
		atomic_store_explicit(&a->last_ns, bench_now_ns(), memory_order_relaxed);
		/* pairs with the acquire below: all that was written before is seen after */
		atomic_store_explicit(&a->generation, gen + 1, memory_order_release);
		if (b->crowded)
			syscall(SYS_futex, &a->generation, FUTEX_WAKE, BENCH_MAX_RANKS, NULL, NULL,
				0);
		return;
	}
	if (b->crowded)
		wait_crowded(a, gen, b->sleeps ? 0 : YIELDS);
	while (atomic_load_explicit(&a->generation, memory_order_acquire) == gen)
		__builtin_ia32_pause();
}

uint64_t bench_start(struct bench *b)
{
	uint64_t at;

	bench_sync(b);
	if (b->crowded)
		return bench_now_ns();
	if (b->rank == 0)
		atomic_store_explicit(&b->area->start_ns, bench_now_ns() + START_AHEAD_NS,
				      memory_order_release);
	bench_sync(b);
	at = atomic_load_explicit(&b->area->start_ns, memory_order_acquire);
	while (bench_now_ns() < at)
		;
	return at;
}

uint64_t bench_start_common(struct bench *b)
{
	if (!b->crowded)
		return bench_start(b);
	bench_sync(b);
	return atomic_load_explicit(&b->area->last_ns, memory_order_relaxed);
}

uint64_t bench_max(struct bench *b, uint64_t value)
{
	uint64_t max = 0;

	b->area->value[b->rank][0] = value;
	bench_sync(b);
	if (b->rank == 0)
		for (int r = 0; r < b->ranks; r++)
			if (b->area->value[r][0] > max)
				max = b->area->value[r][0];
	bench_sync(b);
	return max;
}

bool bench_agree(struct bench *b, bool mine)
{
	bool ours;

	if (b->rank == 0)
		atomic_store_explicit(&b->area->go_on, mine, memory_order_relaxed);
	bench_sync(b);
	ours = atomic_load_explicit(&b->area->go_on, memory_order_relaxed);
	bench_sync(b);
	return ours;
}

int bench_pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	cpu %= bench_cpus();
	CPU_SET(cpu_count ? cpu_list[cpu] : cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) ? -errno : 0;
}

/* One batch of turns; rank 0 serves odd numbers, rank 1 answers with even ones. */
static uint64_t line_batch(struct bench *b)
{
	_Atomic uint32_t *ball = &b->area->ball;
	uint64_t t0 = bench_now_ns();

	for (uint32_t turn = 0; turn < LINE_TURNS; turn++) {
		uint32_t wait = 2 * turn + (b->rank == 0 ? 2 : 1);

		if (b->rank == 0)
			atomic_store_explicit(ball, 2 * turn + 1, memory_order_release);
		while (atomic_load_explicit(ball, memory_order_acquire) != wait)
			;
		if (b->rank == 1)
			atomic_store_explicit(ball, wait + 1, memory_order_release);
	}
	return bench_now_ns() - t0;
}

static int compare_u64(const void *x, const void *y)
{
	uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;

	return (a > b) - (a < b);
}

/* Ranks that do not play must leave both cores alone, so they sleep until the players are done. */
static void line_wait_asleep(struct bench *b)
{
	while (atomic_load_explicit(&b->area->go_on, memory_order_acquire) != 2)
		usleep(200);
}

double bench_line_ns(struct bench *b)
{
	uint64_t ns[LINE_BATCHES];
	cpu_set_t old;

	if (b->ranks < 2 || bench_cpus() < 2)
		return 0;
	bench_sync(b);
	if (b->rank < 2) {
		sched_getaffinity(0, sizeof(old), &old);
		bench_pin(b->rank);
		if (b->crowded)
			usleep(1000); /* let the others fall asleep */
		for (int i = 0; i < LINE_BATCHES; i++) {
			struct bench pair = { .area = b->area, .rank = b->rank, .ranks = 2 };

			if (b->rank == 0)
				atomic_store_explicit(&b->area->ball, 0, memory_order_relaxed);
			bench_sync(&pair);
			ns[i] = line_batch(b);
			bench_sync(&pair);
		}
		sched_setaffinity(0, sizeof(old), &old);
		if (b->rank == 0) {
			qsort(ns, LINE_BATCHES, sizeof(ns[0]), compare_u64);
			b->area->value[0][1] = ns[LINE_BATCHES / 2];
			atomic_store_explicit(&b->area->go_on, 2, memory_order_release);
		}
	} else {
		line_wait_asleep(b);
	}
	bench_sync(b);
	ns[0] = b->area->value[0][1];
	if (b->rank == 0)
		atomic_store_explicit(&b->area->go_on, 0, memory_order_relaxed);
	bench_sync(b);
	return (double)ns[0] / LINE_TURNS;
}

void bench_fill(void *buf, size_t bytes, uint64_t seed)
{
	uint64_t *w = buf;

	for (uint64_t i = 0; i < bytes / 8; i++)
		w[i] = bench_word(seed, i);
	for (size_t i = bytes / 8 * 8; i < bytes; i++)
		((unsigned char *)buf)[i] = (unsigned char)(seed + i);
}

uint64_t bench_check(const void *buf, size_t bytes, uint64_t seed)
{
	const uint64_t *w = buf;
	uint64_t wrong = 0;

	for (uint64_t i = 0; i < bytes / 8; i++)
		wrong += w[i] != bench_word(seed, i);
	for (size_t i = bytes / 8 * 8; i < bytes; i++)
		wrong += ((const unsigned char *)buf)[i] != (unsigned char)(seed + i);
	return wrong;
}

/* The word of page `page` that is touched; wanders so that pages do not share a cache set. */
static uint64_t touch_word(uint64_t page, uint64_t words)
{
	uint64_t w = page * (BENCH_PAGE / 8) + (page * 13) % (BENCH_PAGE / 8);

	return w < words ? w : words - 1;
}

uint64_t bench_touch(const void *buf, size_t bytes)
{
	const unsigned char *b = buf;
	uint64_t sum = 0;

	if (bytes < 8)
		return 0;
	for (uint64_t p = 0; p * BENCH_PAGE < bytes; p++)
		sum += *(const volatile unsigned char *)(b + 8 * touch_word(p, bytes / 8));
	return sum;
}

uint64_t bench_expect(size_t bytes, uint64_t seed)
{
	uint64_t sum = 0;

	if (bytes < 8)
		return 0;
	for (uint64_t p = 0; p * BENCH_PAGE < bytes; p++)
		sum += bench_word(seed, touch_word(p, bytes / 8)) & 0xff;
	return sum;
}

uint64_t bench_read(const void *buf, size_t bytes)
{
	const uint64_t *w = buf;
	uint64_t sum = 0;

	for (uint64_t i = 0; i < bytes / 8; i++)
		sum += w[i];
	return sum;
}

uint64_t bench_read_expect(size_t bytes, uint64_t seed)
{
	uint64_t n = bytes / 8;

	/* n * (n - 1) / 2 of the steps between words, and n times the first */
	return n * bench_word(seed, 0) + (n * (n - 1) / 2) * (bench_word(0, 1) - bench_word(0, 0));
}

void bench_smear(void *buf, size_t bytes, unsigned char byte)
{
	unsigned char *b = buf;

	for (uint64_t p = 0; bytes >= 8 && p * BENCH_PAGE < bytes; p++)
		*(volatile unsigned char *)(b + 8 * touch_word(p, bytes / 8)) = byte;
}

void bench_sort(struct bench_samples *s)
{
	qsort(s->ns, (size_t)s->count, sizeof(s->ns[0]), compare_u64);
}

double bench_percentile_us(const struct bench_samples *s, double percent)
{
	if (s->count == 0)
		return 0;
	return (double)s->ns[(int)(percent / 100 * (s->count - 1) + 0.5)] / 1000;
}

size_t bench_parse_bytes(const char *text, char **end)
{
	size_t n = strtoull(text, end, 10);

	switch (**end) {
	case 'G':
		n *= 1024; /* fall through */
	case 'M':
		n *= 1024; /* fall through */
	case 'K':
		n *= 1024;
		(*end)++;
	}
	return n;
}
