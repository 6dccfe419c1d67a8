/* SPDX-License-Identifier: BSD-3-Clause */
/* GOAL's public functions over MPI communicators. Linked with libsluice-goal. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sluice/goal_mpi.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static struct sluice_goal_group *make_group(MPI_Comm comm)
{
	struct sluice_goal_group *g = NULL;
	int ret = sluice_goal_group_mpi(comm, &g);

	if (ret)
		check_fail("no group: %s: %s", strerror(-ret), sluice_goal_refusal());
	return g;
}

/* A sum of every rank's vector on every rank, as a ring: n - 1 steps, each adds what has come. */
static struct sluice_goal_schedule *ring_sum(int me, int n, uint64_t count)
{
	struct sluice_goal_schedule *s = NULL;
	struct sluice_goal *g;
	uint64_t bytes = count * sizeof(double);
	int last = -1;

	if (sluice_goal_create(2 * bytes, &g))
		return NULL;
	for (int k = 0; k < n - 1; k++) {
		struct sluice_goal_place out =
			k ? sluice_goal_scratchpad(k % 2 ? 0 : bytes) : sluice_goal_user(0, 0);
		struct sluice_goal_place in = sluice_goal_scratchpad(k % 2 ? bytes : 0);
		int send = sluice_goal_send(g, out, bytes, (uint32_t)(me + 1) % (uint32_t)n, 7);
		int recv = sluice_goal_recv(g, in, bytes, (uint32_t)(me + n - 1) % (uint32_t)n, 7);
		int add = sluice_goal_local(
			g, SLUICE_GOAL_ADD, SLUICE_GOAL_F64, sluice_goal_user(1, 0),
			k ? sluice_goal_user(1, 0) : sluice_goal_user(0, 0), in, count);

		sluice_goal_requires(g, add, recv);
		if (last >= 0) {
			sluice_goal_requires(g, send, last);
			sluice_goal_requires(g, recv, last);
			sluice_goal_requires(g, add, last);
		}
		last = sluice_goal_nop(g);
		sluice_goal_requires(g, last, send);
		sluice_goal_requires(g, last, add);
	}
	if (sluice_goal_compile(g, (uint32_t)n, &s))
		check_fail("the schedule does not compile");
	sluice_goal_destroy(g);
	return s;
}

static void sum_over(MPI_Comm comm, uint64_t count)
{
	struct sluice_goal_group *g = make_group(comm);
	double *mine = malloc(count * sizeof *mine), *sum = calloc(count, sizeof *sum);
	struct sluice_goal_buffer buffers[2] = { { mine, count * sizeof *mine },
						 { sum, count * sizeof *sum } };
	struct sluice_goal_instance *i = NULL;
	struct sluice_goal_schedule *s;
	int me, n;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &n);
	s = g ? ring_sum(me, n, count) : NULL;
	if (!s || sluice_goal_open(g, s, buffers, 2, NULL, &i)) {
		check_fail("cannot open the schedule");
		return;
	}
	for (int run = 0; run < 3; run++) {
		for (uint64_t k = 0; k < count; k++)
			mine[k] = (double)(k % 1000) + me + run;
		EXPECT(!sluice_goal_start(i) && !sluice_goal_wait(i, -1));
		for (uint64_t k = 0; k < count; k += 97)
			EXPECT(sum[k] ==
			       n * (double)(k % 1000 + (uint64_t)run) + n * (n - 1) / 2.0);
	}
	EXPECT(sluice_goal_test(i) == 1);
	EXPECT(!sluice_goal_close(i));
	sluice_goal_schedule_destroy(s);
	sluice_goal_group_destroy(g);
	free(mine);
	free(sum);
}

BEHAVIOUR(goal_small_sum, 2) { sum_over(MPI_COMM_WORLD, 3); }
BEHAVIOUR(goal_large_sum, 2) { sum_over(MPI_COMM_WORLD, 200000); }

/* Half of the ranks each, at once, and collectives of MPI beside it. */
BEHAVIOUR(goal_on_halves, 4)
{
	MPI_Comm half;

	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
	sum_over(half, 5000);
	MPI_Comm_free(&half);
}

BEHAVIOUR(goal_beside_mpi, 2)
{
	struct sluice_goal_group *g = make_group(MPI_COMM_WORLD);
	uint64_t bytes = 1 << 20;
	char *memory = g ? sluice_goal_alloc(g, bytes) : NULL;
	struct sluice_goal_buffer buffer = { memory, bytes };
	char *other = malloc(bytes);
	struct sluice_goal_schedule *s = NULL;
	struct sluice_goal_instance *i = NULL;
	struct sluice_goal *b = NULL;

	EXPECT(memory && !sluice_goal_create(0, &b));
	for (int r = 1; b && r < size; r++) {
		if (!rank)
			sluice_goal_send(b, sluice_goal_user(0, 0), bytes, (uint32_t)r, 0);
		else if (rank == r)
			sluice_goal_recv(b, sluice_goal_user(0, 0), bytes, 0, 0);
	}
	EXPECT(!sluice_goal_compile(b, (uint32_t)size, &s));
	memset(memory, rank ? 0 : 9, bytes);
	EXPECT(!sluice_goal_run(g, s, &buffer, 1, &i));
	memset(other, rank ? 0 : 5, bytes);
	MPI_Bcast(other, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
	EXPECT(!sluice_goal_wait(i, -1));
	EXPECT(memory[0] == 9 && memory[bytes - 1] == 9 && other[0] == 5 && other[bytes - 1] == 5);
	sluice_goal_schedule_destroy(s);
	sluice_goal_destroy(b);
	sluice_goal_group_destroy(g);
	free(other);
}

/* A collective of MPI may have returned while peers still write its buffer: a schedule that reads
 * the buffer then sends what the collective delivers. */
BEHAVIOUR(goal_after_mpi, 2)
{
	struct sluice_goal_group *g = make_group(MPI_COMM_WORLD);
	uint32_t next = (uint32_t)(rank + 1) % (uint32_t)size;
	uint32_t last = (uint32_t)(rank + size - 1) % (uint32_t)size;
	uint64_t bytes = 4 << 20;
	char *whole = malloc(bytes), *got = calloc(1, bytes);
	struct sluice_goal_buffer buffers[2] = { { whole, bytes }, { got, bytes } };
	struct sluice_goal_schedule *s = NULL;
	struct sluice_goal_instance *i = NULL;
	struct sluice_goal *b = NULL;

	EXPECT(g && !sluice_goal_create(0, &b));
	sluice_goal_send(b, sluice_goal_user(0, 0), bytes, next, 0);
	sluice_goal_recv(b, sluice_goal_user(1, 0), bytes, last, 0);
	EXPECT(!sluice_goal_compile(b, (uint32_t)size, &s));
	EXPECT(!sluice_goal_open(g, s, buffers, 2, NULL, &i));
	for (int run = 1; i && run < 10; run++) {
		memset(whole, rank ? 0 : run, bytes);
		MPI_Bcast(whole, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		EXPECT(!sluice_goal_start(i) && !sluice_goal_wait(i, -1));
		for (uint64_t k = 0; k < bytes; k += 509)
			EXPECT(got[k] == run);
	}
	sluice_goal_schedule_destroy(s);
	sluice_goal_destroy(b);
	sluice_goal_group_destroy(g);
	free(whole);
	free(got);
}

/* ---- threads ----------------------------------------------------------------------------- */

enum { THREADS = 3, THREAD_RUNS = 50 };

struct one {
	struct sluice_goal_group *group;
	uint32_t number;
	uint64_t count;
	int wrong;
	pthread_t thread;
};

/* Started, looked at now and then, and read when it is there, on a channel of the thread's own. */
static void *sum_again_and_again(void *arg)
{
	struct one *o = arg;
	int me = sluice_goal_group_rank(o->group), n = sluice_goal_group_size(o->group), ret;
	double *mine = malloc(o->count * sizeof *mine), *sum = calloc(o->count, sizeof *sum);
	struct sluice_goal_buffer buffers[2] = { { mine, o->count * sizeof *mine },
						 { sum, o->count * sizeof *sum } };
	struct sluice_goal_options options = { .channel = 1 + o->number };
	struct sluice_goal_schedule *s = ring_sum(me, n, o->count);
	struct sluice_goal_instance *i = NULL;

	o->wrong = !s || sluice_goal_open(o->group, s, buffers, 2, &options, &i);
	for (int run = 0; !o->wrong && run < THREAD_RUNS; run++) {
		double all = n * (double)run + n * (n - 1) / 2.0;

		for (uint64_t k = 0; k < o->count; k++)
			mine[k] = me + run;
		ret = sluice_goal_start(i);
		while (!ret && (ret = sluice_goal_test(i)) == 0)
			sched_yield();
		o->wrong = ret != 1 || sum[0] != all || sum[o->count - 1] != all;
	}
	if (i)
		sluice_goal_close(i);
	sluice_goal_schedule_destroy(s);
	free(mine);
	free(sum);
	return NULL;
}

BEHAVIOUR(goal_in_threads_beside_mpi, 2)
{
	static const uint64_t counts[THREADS] = { 1, 60, 3000 };
	struct sluice_goal_group *g = make_group(MPI_COMM_WORLD);
	struct one all[THREADS];
	int mine, sum;

	if (!g)
		return;
	for (uint32_t t = 0; t < THREADS; t++) {
		all[t] = (struct one){ .group = g, .number = t, .count = counts[t] };
		EXPECT(!pthread_create(&all[t].thread, NULL, sum_again_and_again, &all[t]));
	}
	for (mine = 0; mine < THREAD_RUNS; mine++) {
		MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		EXPECT(sum == size * mine);
	}
	for (uint32_t t = 0; t < THREADS; t++)
		EXPECT(!pthread_join(all[t].thread, NULL) && !all[t].wrong);
	sluice_goal_group_destroy(g);
}

/* ---- waits in MPI ------------------------------------------------------------------------ */

/* Each rank sends to the next in turn, `stages` times, and rank 1 writes the time in the end. */
static struct sluice_goal_instance *open_turns(struct sluice_goal_group *g, char *memory,
					       uint64_t bytes, int stages)
{
	struct sluice_goal_buffer buffer = { memory, bytes };
	struct sluice_goal_schedule *s = NULL;
	struct sluice_goal_instance *i = NULL;
	struct sluice_goal *b = NULL;
	int last = -1, op;

	EXPECT(!sluice_goal_create(0, &b));
	for (int k = 0; k < stages; k++) {
		uint32_t from = (uint32_t)(k % size), to = (uint32_t)((k + 1) % size);

		if ((uint32_t)rank != from && (uint32_t)rank != to)
			continue;
		op = (uint32_t)rank == from
			     ? sluice_goal_send(b, sluice_goal_user(0, 8), 8, to, (uint32_t)k)
			     : sluice_goal_recv(b, sluice_goal_user(0, 8), 8, from, (uint32_t)k);
		if (last >= 0)
			sluice_goal_requires(b, op, last);
		last = op;
	}
	if (rank == 1) {
		op = sluice_goal_stamp(b, sluice_goal_user(0, 0));
		sluice_goal_requires(b, op, last);
	}
	EXPECT(!sluice_goal_compile(b, (uint32_t)size, &s) &&
	       !sluice_goal_open(g, s, &buffer, 1, NULL, &i));
	sluice_goal_schedule_destroy(s);
	sluice_goal_destroy(b);
	return i;
}

/* All but rank 1 wait in MPI, which calls no function of GOAL but while it waits, until rank 1,
 * which computes, sees that its part of the schedule has ended. The last group is not destroyed
 * before MPI_Finalize, which ends all the same. */
BEHAVIOUR(goal_while_ranks_wait_in_mpi, 2)
{
	struct sluice_goal_group *g = make_group(MPI_COMM_WORLD);
	char *memory = g ? sluice_goal_alloc(g, 16) : NULL;
	_Atomic uint64_t *stamp = (_Atomic uint64_t *)memory;
	struct sluice_goal_instance *i = open_turns(g, memory, 16, 100 * size);

	for (int run = 0; i && run < 100; run++) {
		double limit = MPI_Wtime() + 20;

		*stamp = 0;
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 1)
			usleep(run % 10 * 20);
		EXPECT(!sluice_goal_start(i));
		while (rank == 1 && !*stamp && MPI_Wtime() < limit)
			;
		EXPECT(rank != 1 || *stamp);
		MPI_Barrier(MPI_COMM_WORLD);
		EXPECT(!sluice_goal_wait(i, -1));
	}
}

enum { STARTS = 50, TRIES = 200 };

/* Rank 0 waits in meet() when rank 1 starts: the start leaves the schedule, which it would execute
 * otherwise, to rank 0, and the schedule ends soon while rank 1 computes. */
static void check_is_left_to_wait(void (*meet)(void))
{
	struct sluice_goal_group *g = size == 2 ? make_group(MPI_COMM_WORLD) : NULL;
	char *memory = g ? sluice_goal_alloc(g, 16) : NULL;
	_Atomic uint64_t *stamp = (_Atomic uint64_t *)memory;
	struct sluice_goal_instance *i = g ? open_turns(g, memory, 16, 100 * size) : NULL;
	int left = 0;

	/* nearly all of the starts in one of the tries: the machine may have other work */
	for (int k = 0; i && k < TRIES && left < STARTS * 9 / 10; k++) {
		left = 0;
		for (int run = 0; run < STARTS; run++) {
			double since;
			bool is_left;

			*stamp = 0;
			MPI_Barrier(MPI_COMM_WORLD);
			usleep(rank * 100);
			since = MPI_Wtime();
			EXPECT(!sluice_goal_start(i));
			is_left = !*stamp;
			while (rank == 1 && !*stamp && MPI_Wtime() < since + 20)
				;
			left += is_left && MPI_Wtime() < since + 500e-6;
			meet();
			EXPECT(!sluice_goal_wait(i, -1));
		}
		MPI_Bcast(&left, 1, MPI_INT, 1, MPI_COMM_WORLD);
	}
	if (size == 2 && left < STARTS * 9 / 10)
		check_fail("%d of %d schedules were left to the rank that waits", left, STARTS);
	if (g)
		sluice_goal_group_destroy(g);
}

static void meet_in_barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

static void meet_in_recv(void)
{
	if (rank)
		MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
	else
		MPI_Recv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void meet_in_waitany(void)
{
	MPI_Request requests[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
	int index = -1;

	if (rank) {
		MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
		return;
	}
	MPI_Irecv(NULL, 0, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &requests[1]);
	EXPECT(!MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE) && index == 1);
}

static void meet_in_probe(void)
{
	if (!rank)
		MPI_Probe(1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	meet_in_recv();
}

BEHAVIOUR(goal_is_left_to_barrier, 2) { check_is_left_to_wait(meet_in_barrier); }
BEHAVIOUR(goal_is_left_to_recv, 2) { check_is_left_to_wait(meet_in_recv); }
BEHAVIOUR(goal_is_left_to_waitany, 2) { check_is_left_to_wait(meet_in_waitany); }
BEHAVIOUR(goal_is_left_to_probe, 2) { check_is_left_to_wait(meet_in_probe); }

static double cpu_seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

/* Notes the share of a CPU that waits in MPI use while nothing is pending in the group. */
BEHAVIOUR(goal_leaves_waits_alone, 2)
{
	struct sluice_goal_group *g = make_group(MPI_COMM_WORLD);
	double cpu = 0, span = 0;

	for (int k = 0; k < 5; k++) {
		double began, cpu_began;

		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 1)
			usleep(20000);
		began = MPI_Wtime();
		cpu_began = cpu_seconds();
		if (rank < 2)
			meet_in_recv();
		cpu += cpu_seconds() - cpu_began;
		span += MPI_Wtime() - began;
	}
	if (!rank)
		check_note("cpu %.1f", 100 * cpu / span);
	if (g)
		sluice_goal_group_destroy(g);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_FUNNELED);
}
