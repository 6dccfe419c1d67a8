/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures a reduction (reduce/, exec/): the sum of floats of two ranks to both, by size, against
 * two threads with a loop of their own, each on a half: out0[i] = out1[i] = in0[i] + in1[i], with
 * plain and with streaming stores. Both sides alternate in one run. Prints one JSON object per
 * line.
 *
 *   ninja bench/reduce_cost && bench/reduce_cost [bytes ...]
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "exec/exec.h"
#include "goal/local.h"

enum { CALLS = 40, SIZES_MAX = 16 };
static const uint64_t usual[] = { 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20 };

/* Two ranks and their word to each other, for what the MPI lends while a group is made. */
static struct shared {
	_Atomic uint32_t come[2], loops[2];
	char said[2][4096];
	_Atomic int64_t value[2];
} *shared;
static int me;

static void meet(void)
{
	uint32_t turn = atomic_fetch_add(&shared->come[me], 1) + 1;

	while (atomic_load(&shared->come[!me]) < turn)
		os_cpu_relax();
}

static int allgather(void *ctx, const void *in, size_t bytes, void *out)
{
	(void)ctx;
	memcpy(shared->said[me], in, bytes);
	meet();
	memcpy(out, shared->said[0], bytes);
	memcpy((char *)out + bytes, shared->said[1], bytes);
	meet();
	return 0;
}

static int least(void *ctx, int64_t in, int64_t *out)
{
	(void)ctx;
	atomic_store(&shared->value[me], in);
	meet();
	*out = atomic_load(&shared->value[0]) < atomic_load(&shared->value[1])
		       ? atomic_load(&shared->value[0])
		       : atomic_load(&shared->value[1]);
	meet();
	return 0;
}

/* ---- the loop of one's own --------------------------------------------------------------- */

/* Both ranks' buffers as rank 0 sees them: it and a thread of the other rank's CPU, which here is
 * the other process, do a half each. */
struct buffers { float *in[2], *out[2]; };

static void loop(const struct buffers *b, uint64_t first, uint64_t end)
{
	const float *restrict x = b->in[0], *restrict y = b->in[1];
	float *restrict p = b->out[0], *restrict q = b->out[1];

	for (uint64_t i = first; i < end; i++)
		p[i] = q[i] = x[i] + y[i];
}

static void loop_past_caches(const struct buffers *b, uint64_t first, uint64_t end)
{
#if defined(__clang__) || !defined(__x86_64__)
	loop(b, first, end);
#else
	for (uint64_t i = first; i < end; i += 4) {
		float sum[4];

		for (int k = 0; k < 4; k++)
			sum[k] = b->in[0][i + (uint64_t)k] + b->in[1][i + (uint64_t)k];
		for (int r = 0; r < 2; r++) {
			long long low, high;

			memcpy(&low, sum, 8);
			memcpy(&high, sum + 2, 8);
			__builtin_ia32_movnti64((long long *)(void *)(b->out[r] + i), low);
			__builtin_ia32_movnti64((long long *)(void *)(b->out[r] + i + 2), high);
		}
	}
	__builtin_ia32_sfence();
#endif
}

/* ---- measuring --------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

enum { REDUCE, PLAIN, PAST, WAYS };
static const char *const names[WAYS] = { "reduce", "loop", "loop past the caches" };

static void once(struct exec_comm *e, int way, uint64_t bytes, const struct buffers *b,
		 const struct region_extent *mem)
{
	const struct exec_reduce f = { .kind = COLL_ALLREDUCE,
				     .type = GOAL_ADD,
				     .dtype = GOAL_F32,
				     .count = bytes / 4,
				     .element_bytes = 4 };
	struct exec_call call = { .reduce = &f,
				  .user = { b->in[me], b->out[me] },
				  .name = "reduce" };
	uint64_t half = bytes / 8;
	struct exec_run *r;

	if (way == REDUCE) {
		for (int i = 0; i < 2; i++)
			region_describe_extent(&mem[i], bytes, &call.desc[COLL_SEND + i]);
		if (exec_begin(e, &call, &r) || exec_wait(r))
			exit(1);
		return;
	}
	(way == PLAIN ? loop : loop_past_caches)(b, me ? half : 0, me ? bytes / 4 : half);
	meet();
}

static void measure(struct exec_comm *e, struct node_group *g, uint64_t bytes)
{
	static uint64_t ns[WAYS][CALLS];
	struct region_extent mem[2], all[4];
	struct buffers b;

	for (int i = 0; i < 2; i++)
		if (region_extent_get(bytes, false, &mem[i]))
			exit(1);
	allgather(NULL, mem, sizeof mem, all);
	for (int r = 0; r < 2; r++) {
		b.in[r] = node_map(g, r, all[2 * r].offset, bytes);
		b.out[r] = node_map(g, r, all[2 * r + 1].offset, bytes);
		os_populate(b.in[r], bytes);
		os_populate(b.out[r], bytes);
	}
	for (uint64_t i = 0; i < bytes / 4; i++)
		b.in[me][i] = (float)i;
	for (int call = -3; call < CALLS; call++) {
		for (int way = 0; way < WAYS; way++) {
			uint64_t since;

			meet();
			since = os_now_ns();
			once(e, way, bytes, &b, mem);
			if (call >= 0)
				ns[way][call] = os_now_ns() - since;
			if (b.out[me][bytes / 8] != 2 * b.in[me][bytes / 8])
				exit(2);
			meet();
			memset(b.out[me], 0,
			       bytes); /* as a program's would be: in its caches, if it fits */
		}
	}
	for (int way = 0; way < WAYS && !me; way++) {
		qsort(ns[way], CALLS, sizeof ns[way][0], by_value);
		printf("{\"way\": \"%s\", \"bytes\": %lu, \"least_us\": %.1f, \"median_us\": %.1f, "
		       "\"gb_s\": %.1f, "
		       "\"loop_to_this\": %.2f}\n",
		       names[way], (unsigned long)bytes, (double)ns[way][0] / 1e3,
		       (double)ns[way][CALLS / 2] / 1e3,
		       4.0 * (double)bytes / (double)ns[way][CALLS / 2],
		       (double)ns[PLAIN][CALLS / 2] / (double)ns[way][CALLS / 2]);
		fflush(stdout);
	}
}

static int run(int rank, int n, const uint64_t *sizes)
{
	const struct node_oob oob = { .rank = rank, .size = 2, .allgather = allgather,
				      .allreduce_min = least };
	struct os_cpumask cpu = { { 1ull << rank } };
	struct node_group *g;
	struct exec_comm *e;

	me = rank;
	os_cpumask_apply(0, &cpu);
	base_options_load(environ, NULL, 0);
	if (region_init() || node_group_create(&oob, exec_area_bytes(2, EXEC_SLOTS), &g) || !g ||
	    exec_create(g, EXEC_SLOTS, NULL, &e))
		return 1;
	for (int i = 0; i < n; i++)
		measure(e, g, sizes[i]);
	meet();
	exec_destroy(e);
	node_group_destroy(g);
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t sizes[SIZES_MAX];
	int n = 0, status = 0;
	pid_t child;

	for (; n + 1 < argc && n < SIZES_MAX; n++)
		sizes[n] = strtoull(argv[n + 1], NULL, 0);
	if (!n)
		memcpy(sizes, usual, sizeof usual), n = BASE_ARRAY_LEN(usual);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED)
		return 1;
	child = fork();
	if (!child)
		return run(1, n, sizes);
	if (child < 0 || run(0, n, sizes) || waitpid(child, &status, 0) != child)
		return 1;
	return status ? 1 : 0;
}
