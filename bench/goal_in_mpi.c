/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures how far a schedule advances while one rank computes and the other waits inside MPI, by
 * the method of goal_overlap.c: rank 0 starts and waits in MPI_Recv (MPI_Barrier, MPI_Bcast) until
 * rank 1 has started, computed for twice the time of the schedule alone, and waited for its end.
 * The schedule is a chain of exchanges. Prints one JSON object a line: medians and quartiles of
 * rank 1.
 *
 *   mpicc -O2 bench/goal_in_mpi.c -o in_mpi $(pkg-config --cflags --libs sluice-goal)
 *   mpiexec -n 2 ./in_mpi
 */
#define _GNU_SOURCE
#include <sluice/goal_mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "quantile.h"

enum { ROUNDS = 101, WARMUP = 10, BYTES_MAX = 65536, AHEAD_NS = 20000 };
enum way { RECV, BARRIER, BCAST, WAYS };

static int rank;

static double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

__attribute__((noinline)) static void compute(uint64_t rounds)
{
	for (uint64_t i = 0; i < rounds; i++)
		__asm__ volatile("" : "+r"(i));
}

static void check(int ret)
{
	if (ret)
		MPI_Abort(MPI_COMM_WORLD, 1);
}

static struct sluice_goal_instance *open_chain(struct sluice_goal_group *g, int stages,
					       uint64_t bytes, void *memory)
{
	struct sluice_goal_buffer buffer = { memory, 2 * BYTES_MAX };
	struct sluice_goal_instance *i = NULL;
	struct sluice_goal_schedule *s = NULL;
	uint32_t peer = 1 - (uint32_t)rank;
	struct sluice_goal *goal = NULL;
	int before = -1;

	check(sluice_goal_create(0, &goal));
	for (int k = 0; k < stages; k++) {
		int send = sluice_goal_send(goal, sluice_goal_user(0, 0), bytes, peer, (uint32_t)k);
		int recv = sluice_goal_recv(goal, sluice_goal_user(0, BYTES_MAX), bytes, peer,
					    (uint32_t)k);

		if (before >= 0) {
			sluice_goal_requires(goal, send, before);
			sluice_goal_requires(goal, recv, before);
		}
		before = recv;
	}
	check(sluice_goal_compile(goal, 2, &s));
	sluice_goal_destroy(goal);
	check(sluice_goal_open(g, s, &buffer, 1, NULL, &i));
	sluice_goal_schedule_destroy(s);
	return i;
}

static double quartile(double *v, int number) { return bench_quantile(v, ROUNDS, 25 * number); }

static double alone_ns(struct sluice_goal_instance *i)
{
	double ns[ROUNDS];

	for (int k = 0; k < ROUNDS; k++) {
		double t0;

		MPI_Barrier(MPI_COMM_WORLD);
		t0 = now_ns();
		check(sluice_goal_execute(i, -1));
		ns[k] = now_ns() - t0;
	}
	return quartile(ns, 2);
}

static void meet(enum way way)
{
	char byte = 0;

	if (way == BARRIER)
		MPI_Barrier(MPI_COMM_WORLD);
	else if (way == BCAST)
		MPI_Bcast(&byte, 1, MPI_BYTE, 1, MPI_COMM_WORLD);
	else if (rank)
		MPI_Send(&byte, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
	else
		MPI_Recv(&byte, 1, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void measure(struct sluice_goal_instance *i, int stages, uint64_t bytes, enum way way,
		    double alone)
{
	static const char *const words[] = { "MPI_Recv", "MPI_Barrier", "MPI_Bcast" };
	double overlap[ROUNDS], wait[ROUNDS], loops[ROUNDS], per_round = 1e9;
	uint64_t rounds;

	for (int k = 0; k < 31; k++) {
		double t0 = now_ns(), ns;

		compute(100000);
		ns = (now_ns() - t0) / 1e5;
		per_round = ns < per_round ? ns : per_round;
	}
	rounds = (uint64_t)(2 * alone / per_round) + 1;
	for (int k = -WARMUP; k < ROUNDS; k++) {
		double t0, loop, t1;

		MPI_Barrier(MPI_COMM_WORLD);
		t0 = now_ns();
		if (rank) /* the other rank is there already */
			while (now_ns() - t0 < AHEAD_NS)
				;
		if (!rank) {
			check(sluice_goal_start(i));
			meet(way);
			check(sluice_goal_wait(i, -1));
			continue;
		}
		t0 = now_ns();
		compute(rounds);
		loop = now_ns() - t0;
		t0 = now_ns();
		check(sluice_goal_start(i));
		compute(rounds);
		t1 = now_ns();
		check(sluice_goal_wait(i, -1));
		if (k >= 0) {
			loops[k] = loop;
			wait[k] = now_ns() - t1;
			overlap[k] = 1 - (now_ns() - t0 - loop) / alone;
		}
		meet(way);
	}
	if (!rank)
		return;
	printf("{\"in\": \"%s\", \"stages\": %d, \"bytes\": %llu, \"alone_us\": %.1f, "
	       "\"compute_us\": %.1f, \"wait_us\": %.2f, \"overlap\": %.2f, \"quartiles\": "
	       "[%.2f, %.2f]}\n",
	       words[way], stages, (unsigned long long)bytes, alone / 1e3, quartile(loops, 2) / 1e3,
	       quartile(wait, 2) / 1e3, quartile(overlap, 2), quartile(overlap, 1),
	       quartile(overlap, 3));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const uint64_t bytes[] = { 8, 4096, BYTES_MAX };
	static const int stages[] = { 10, 50, 200 };
	struct sluice_goal_group *g;
	void *memory;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	check(sluice_goal_group_mpi(MPI_COMM_WORLD, &g));
	memory = sluice_goal_alloc(g, 2 * BYTES_MAX);
	check(!memory);
	memset(memory, 1, 2 * BYTES_MAX);
	for (int b = 0; b < 3; b++) {
		for (int s = 0; s < 3; s++) {
			struct sluice_goal_instance *i = open_chain(g, stages[s], bytes[b], memory);
			double alone = alone_ns(i);

			for (int way = 0; way < WAYS; way++)
				measure(i, stages[s], bytes[b], (enum way)way, alone);
			check(sluice_goal_close(i));
		}
	}
	sluice_goal_group_destroy(g);
	MPI_Finalize();
	return 0;
}
