/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compares one exchange of 8 bytes between two ranks: MPI_Irecv, MPI_Isend and MPI_Waitall; a
 * schedule that is started and waited for at once; the same executed. The three alternate. With the
 * argument "never" no schedule is started. Prints the medians of rank 0 in us, and the ratios'
 * medians with 10 and 90 %.
 *
 *   mpicc -O2 bench/goal_exchange.c -o exchange $(pkg-config --cflags --libs sluice-goal)
 *   mpiexec -n 2 ./exchange
 */
#define _GNU_SOURCE
#include <sched.h>
#include <sluice/goal_mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quantile.h"

enum { EXCHANGES = 2000, ROUNDS = 41, WARMUP = 3, BYTES = 8, AT = 64 };
enum way { BY_MPI, STARTED, EXECUTED, WAYS };

static struct sluice_goal_instance *instance;
static int rank, peer;

static void exchange(enum way way)
{
	static char memory[2 * AT];
	MPI_Request both[2];
	int ret = 0;

	if (way == BY_MPI) {
		MPI_Irecv(memory + AT, BYTES, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &both[0]);
		MPI_Isend(memory, BYTES, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &both[1]);
		MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
	} else if (way == STARTED) {
		ret = sluice_goal_start(instance);
		if (!ret)
			ret = sluice_goal_wait(instance, -1);
	} else {
		ret = sluice_goal_execute(instance, -1);
	}
	if (ret)
		MPI_Abort(MPI_COMM_WORLD, 1);
}

static void open_exchange(struct sluice_goal_group *g)
{
	struct sluice_goal_buffer buffer = { sluice_goal_alloc(g, 2 * AT), 2 * AT };
	struct sluice_goal_schedule *s = NULL;
	struct sluice_goal *goal = NULL;

	sluice_goal_create(0, &goal);
	sluice_goal_recv(goal, sluice_goal_user(0, AT), BYTES, (uint32_t)peer, 0);
	sluice_goal_send(goal, sluice_goal_user(0, 0), BYTES, (uint32_t)peer, 0);
	if (sluice_goal_compile(goal, 2, &s) ||
	    sluice_goal_open(g, s, &buffer, 1, NULL, &instance))
		MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Leaves v, whose values belong to rounds. */
static double quantile(const double *v, int percent)
{
	double sorted[ROUNDS];

	memcpy(sorted, v, sizeof sorted);
	return bench_quantile(sorted, ROUNDS, percent);
}

static void print_ratio(const char *name, const double *mpi, const double *other)
{
	double ratio[ROUNDS];

	for (int r = 0; r < ROUNDS; r++)
		ratio[r] = mpi[r] / other[r];
	printf("%s %.3f us, MPI takes %.2f (%.2f to %.2f) times as long\n", name,
	       quantile(other, 50), quantile(ratio, 50), quantile(ratio, 10), quantile(ratio, 90));
}

int main(int argc, char **argv)
{
	bool never = argc > 1 && !strcmp(argv[1], "never");
	static double us[WAYS][ROUNDS];
	struct sluice_goal_group *g;
	cpu_set_t cpu;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	peer = 1 - rank;
	CPU_ZERO(&cpu);
	CPU_SET(rank, &cpu);
	sched_setaffinity(0, sizeof cpu, &cpu);
	if (sluice_goal_group_mpi(MPI_COMM_WORLD, &g))
		MPI_Abort(MPI_COMM_WORLD, 1);
	open_exchange(g);
	for (int r = -WARMUP; r < ROUNDS; r++) {
		for (enum way w = 0; w < WAYS; w++) {
			double began;

			if (w == STARTED && never)
				continue;
			MPI_Barrier(MPI_COMM_WORLD);
			began = MPI_Wtime();
			for (int i = 0; i < EXCHANGES; i++)
				exchange(w);
			if (r >= 0)
				us[w][r] = (MPI_Wtime() - began) / EXCHANGES * 1e6;
		}
	}
	if (!rank) {
		printf("MPI %.3f us\n", quantile(us[BY_MPI], 50));
		if (!never)
			print_ratio("start and wait", us[BY_MPI], us[STARTED]);
		print_ratio("execute", us[BY_MPI], us[EXECUTED]);
	}
	sluice_goal_close(instance);
	sluice_goal_group_destroy(g);
	MPI_Finalize();
	return 0;
}
