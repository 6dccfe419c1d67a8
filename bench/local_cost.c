/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures local operations of schedules against handwritten vector loops: the sum and the maximum
 * of floats, into separate memory and in place, both sides alternating on the same memory; then
 * every operation on every type; then the interpreter's cost for an operation that does nothing, in
 * schedules of several shapes. Prints one JSON object per line.
 *
 *   ninja bench/local_cost && bench/local_cost [--all]
 */
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"
#include "goal/interp.h"
#include "goal/local.h"
#include "os/os.h"

enum { TURNS = 61, NULLS = 1 << 16 };

typedef void loop(float *dst, const float *a, const float *b, size_t count);

/* count: a multiple of 64 */
#define LOOP_512(name, op)                                                                     \
	__attribute__((target("avx512f"))) static void name(float *dst, const float *a,        \
							    const float *b, size_t count)      \
	{                                                                                      \
		for (size_t i = 0; i < count; i += 64) {                                       \
			__m512 v[4];                                                           \
			for (int k = 0; k < 4; k++)                                            \
				v[k] = op(_mm512_loadu_ps(a + i + 16 * k),                     \
					  _mm512_loadu_ps(b + i + 16 * k));                    \
			for (int k = 0; k < 4; k++)                                            \
				_mm512_storeu_ps(dst + i + 16 * k, v[k]);                      \
		}                                                                              \
	}
#define LOOP_256(name, op)                                                                     \
	__attribute__((target("avx2"))) static void name(float *dst, const float *a,           \
							 const float *b, size_t count)         \
	{                                                                                      \
		for (size_t i = 0; i < count; i += 32) {                                       \
			__m256 v[4];                                                           \
			for (int k = 0; k < 4; k++)                                            \
				v[k] = op(_mm256_loadu_ps(a + i + 8 * k),                      \
					  _mm256_loadu_ps(b + i + 8 * k));                     \
			for (int k = 0; k < 4; k++)                                            \
				_mm256_storeu_ps(dst + i + 8 * k, v[k]);                       \
		}                                                                              \
	}
LOOP_512(hand_add_512, _mm512_add_ps)
LOOP_512(hand_max_512, _mm512_max_ps)
LOOP_256(hand_add_256, _mm256_add_ps)
LOOP_256(hand_max_256, _mm256_max_ps)

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static uint64_t *sorted(uint64_t *ns)
{
	qsort(ns, TURNS, sizeof *ns, by_value);
	return ns;
}

static float *buffer(size_t bytes)
{
	float *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		abort();
	for (size_t i = 0; i < bytes / sizeof *p; i++)
		p[i] = (float)(i % 1000) - 500;
	return p;
}

static void compare(const char *what, uint32_t type, loop *hand, size_t bytes, bool in_place)
{
	float *a = buffer(bytes), *b = buffer(bytes), *dst = in_place ? a : buffer(bytes);
	enum goal_isa isa = (enum goal_isa)os_simd();
	uint64_t ours[TURNS], theirs[TURNS], since;

	for (int i = 0; i < TURNS; i++) {
		since = bench_now_ns();
		goal_local(isa, type, GOAL_F32, dst, a, b, bytes);
		ours[i] = bench_now_ns() - since;
		since = bench_now_ns();
		hand(dst, a, b, bytes / sizeof *a);
		theirs[i] = bench_now_ns() - since;
	}
	sorted(ours);
	sorted(theirs);
	printf("{\"what\": \"%s\", \"in_place\": %s, \"bytes\": %zu, \"goal_us\": %.1f, "
	       "\"hand_us\": %.1f, "
	       "\"ratio_median\": %.3f, \"ratio_least\": %.3f, \"gb_s\": %.1f}\n",
	       what, in_place ? "true" : "false", bytes, (double)ours[TURNS / 2] / 1e3,
	       (double)theirs[TURNS / 2] / 1e3, (double)ours[TURNS / 2] / (double)theirs[TURNS / 2],
	       (double)ours[0] / (double)theirs[0], 3 * (double)bytes / (double)ours[TURNS / 2]);
	munmap(a, bytes);
	munmap(b, bytes);
	if (!in_place)
		munmap(dst, bytes);
}

static void every_operation(size_t bytes)
{
	static const char *const types[] = {
#define X(id, word, operands, help) word,
		GOAL_OPS(X)
#undef X
	}, *const dtypes[] = {
#define X(id, word, bytes) word,
		GOAL_DTYPES(X)
#undef X
	};
	float *a = buffer(bytes), *b = buffer(bytes);
	uint64_t ns[TURNS], since;

	for (uint32_t type = GOAL_ADD; type <= GOAL_XOR; type++) {
		for (uint32_t dtype = 0; dtype < GOAL_DTYPE_COUNT; dtype++) {
			if (type >= GOAL_AND && goal_dtype_is_float(dtype))
				continue;
			for (int i = 0; i < TURNS; i++) {
				since = bench_now_ns();
				goal_local((enum goal_isa)os_simd(), type, dtype, a, a, b, bytes);
				ns[i] = bench_now_ns() - since;
			}
			printf("{\"what\": \"%s\", \"type\": \"%s\", \"bytes\": %zu, "
			       "\"median_gb_s\": %.1f}\n",
			       types[type], dtypes[dtype], bytes,
			       3 * (double)bytes / (double)sorted(ns)[TURNS / 2]);
		}
	}
	munmap(a, bytes);
	munmap(b, bytes);
}

enum shape { CHAIN, ALL_AT_ONCE, LADDER };

/* Operation i of a ladder requires both of the rung before. */
static void null_operations(const char *what, enum shape shape)
{
	size_t bytes = goal_block_bytes(NULLS, 2 * NULLS, 0);
	struct goal_op *ops = calloc(NULLS, sizeof *ops);
	struct goal_edge *edges = malloc(2 * NULLS * sizeof *edges);
	struct goal_block *block = malloc(bytes);
	struct goal_state *state = malloc(goal_state_bytes(NULLS));
	uint64_t ns[TURNS], since;
	struct goal_build b;
	uint32_t op;

	if (!ops || !edges || !block || !state)
		abort();
	goal_build_init(&b, ops, NULLS, edges, 2 * NULLS);
	for (uint32_t i = 0; i < NULLS; i++) {
		goal_add(&b, &(struct goal_op){ .type = GOAL_NOP });
		if (shape == CHAIN && i)
			goal_requires(&b, i, i - 1);
		for (uint32_t k = 0; shape == LADDER && i > 1 && k < 2; k++)
			goal_requires(&b, i, i / 2 * 2 - 2 + k);
	}
	if (goal_compile(&b, block, bytes))
		abort();
	for (int i = 0; i < TURNS; i++) {
		goal_state_init(block, state);
		since = bench_now_ns();
		while ((op = goal_claim(block, state)) != GOAL_NONE) {
			goal_begin(block, state, op);
			goal_end(block, state, op);
		}
		ns[i] = bench_now_ns() - since;
		if (!goal_is_complete(state))
			abort();
	}
	printf("{\"what\": \"null operation\", \"shape\": \"%s\", \"least_ns\": %.1f, "
	       "\"median_ns\": %.1f}\n",
	       what, (double)sorted(ns)[0] / NULLS, (double)ns[TURNS / 2] / NULLS);
	free(ops);
	free(edges);
	free(block);
	free(state);
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 1 << 14, 1 << 20, 1 << 24 };
	bool wide = os_simd() == OS_SIMD_AVX512;

	if (os_simd() == OS_SIMD_BASE) {
		fprintf(stderr, "this CPU has no AVX2: nothing to compare with\n");
		return 1;
	}
	for (int i = 0; i < 3; i++) {
		for (int in_place = 0; in_place < 2; in_place++) {
			compare("sum, AVX2", GOAL_ADD, hand_add_256, sizes[i], in_place);
			compare("max, AVX2", GOAL_MAX, hand_max_256, sizes[i], in_place);
			if (wide)
				compare("sum, AVX-512", GOAL_ADD, hand_add_512, sizes[i], in_place);
			if (wide)
				compare("max, AVX-512", GOAL_MAX, hand_max_512, sizes[i], in_place);
		}
	}
	null_operations("one after the other", CHAIN);
	null_operations("all at once", ALL_AT_ONCE);
	null_operations("two after two", LADDER);
	if (argc > 1 && !strcmp(argv[1], "--all"))
		every_operation(1 << 20);
	return 0;
}
