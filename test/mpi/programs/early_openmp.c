/* SPDX-License-Identifier: BSD-3-Clause */
/* OpenMP over the buffer of a collective right after it. Built with -fopenmp. */
#include "early.h"

#include <omp.h>

static uint64_t sum_of(const char *at, size_t bytes)
{
	uint64_t sum = 0;

#pragma omp parallel for schedule(static) reduction(+ : sum)
	for (size_t i = 0; i < bytes; i += 64)
		sum += (uint8_t)at[i] * (i / 64 + 1);
	return sum;
}

static void reduce_it(struct trial *t)
{
	EXPECT(sum_of(t->buf, t->bytes) == sum_of(t->want, t->bytes));
}

BEHAVIOUR(parallel_sum, 2)
{
	early_trials(reduce_it);
}

static void scale_it(struct trial *t)
{
#pragma omp parallel for schedule(dynamic, 2000)
	for (size_t i = 0; i < t->bytes; i++)
		t->buf[i] = (char)(t->buf[i] * 3 + 1);
	for (size_t i = 0; i < t->bytes; i++)
		t->want[i] = (char)(t->want[i] * 3 + 1);
}

BEHAVIOUR(parallel_update, 2)
{
	early_trials(scale_it);
}

static void tasks(struct trial *t)
{
	int wrong = 0;

#pragma omp parallel
#pragma omp single
	for (int i = 0; i < 32; i++) {
#pragma omp task shared(wrong)
		{
			size_t at = t->bytes / 32 * (size_t)i;

			if (memcmp(t->buf + at, t->want + at, t->bytes / 32))
#pragma omp atomic
				wrong++;
		}
	}
	EXPECT(!wrong);
}

BEHAVIOUR(tasks_on_it, 2)
{
	early_trials(tasks);
}

/* Parallel regions that do not look at it, which wait for each other by futexes. */
static void beside_it(struct trial *t)
{
	static double work[64][2000];
	double sum = 0;

	for (int round = 0; round < 5; round++) {
#pragma omp parallel for
		for (int i = 0; i < 64; i++)
			for (int k = 0; k < 2000; k++)
				work[i][k] += i * k;
#pragma omp barrier
	}
	for (int i = 0; i < 64; i++)
		sum += work[i][7];
	EXPECT(sum > 0);
}

BEHAVIOUR(parallel_work_beside_it, 2)
{
	early_trials(beside_it);
}

/* Every thread has a part of a collective under way when the team begins. */
static void more_threads(struct trial *t)
{
	int wrong = 0;

#pragma omp parallel num_threads(2 + t->index % 7) reduction(+ : wrong)
	{
		int n = omp_get_num_threads(), me = omp_get_thread_num();
		size_t from = t->bytes * (size_t)me / (size_t)n,
		       to = t->bytes * (size_t)(me + 1) / (size_t)n;

		wrong += memcmp(t->buf + from, t->want + from, to - from) != 0;
	}
	EXPECT(!wrong);
}

BEHAVIOUR(teams_of_all_sizes, 2)
{
	early_trials(more_threads);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_FUNNELED);
}
