/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that need each other while one of them keeps the processor: spins, polls, sleeps, jumps. */
#include "check.h"

#include <setjmp.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { US = 1000, MS = 1000 * US };

static long long now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL * MS + t.tv_nsec;
}

static void compute(long ns)
{
	static volatile double x = 2;

	for (long long end = now_ns() + ns; now_ns() < end;)
		x = 1 / x + 1;
}

/* Returns: memory of rank 0 that all ranks load and store. */
static _Atomic long long *shared_words(int words, MPI_Win *win)
{
	_Atomic long long *own;
	MPI_Aint bytes = rank ? 0 : words * (int)sizeof *own;
	int unit;

	MPI_Win_allocate_shared(bytes, sizeof *own, MPI_INFO_NULL, MPI_COMM_WORLD, &own, win);
	MPI_Win_shared_query(*win, 0, &bytes, &unit, &own);
	if (rank == 0)
		for (int i = 0; i < words; i++)
			atomic_init(&own[i], 0);
	MPI_Barrier(MPI_COMM_WORLD);
	return own;
}

/* Nobody calls MPI while a rank waits, so only time takes the processor from it. Barriers before:
 * ranks that switch run on a worker then, and not on kernel threads of their own. */
BEHAVIOUR(ranks_spin_on_a_flag_in_a_window, 2)
{
	const long rounds = check_env("CHECK_ROUNDS", 20);
	MPI_Win win;
	_Atomic long long *turn = shared_words(1, &win);

	for (int i = 0; i < 300; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	for (long i = 0; i < rounds; i++) {
		while (atomic_load(turn) != i * size + rank)
			;
		atomic_fetch_add(turn, 1);
	}
	MPI_Win_free(&win);
}

BEHAVIOUR(ranks_compute_and_test, 2)
{
	const int next = (rank + 1) % size, before = (rank + size - 1) % size, n = 4000;
	int out[4000], in[4000], wrong = 0;

	for (int round = 0; round < 100; round++) {
		MPI_Request request[2];
		int done = 0;

		for (int i = 0; i < n; i++)
			out[i] = rank * 7919 + round + i;
		MPI_Irecv(in, n, MPI_INT, before, round, MPI_COMM_WORLD, &request[0]);
		MPI_Isend(out, n, MPI_INT, next, round, MPI_COMM_WORLD, &request[1]);
		while (!done) {
			compute(20 * US);
			MPI_Testall(2, request, &done, MPI_STATUSES_IGNORE);
		}
		for (int i = 0; i < n; i++)
			wrong += in[i] != before * 7919 + round + i;
	}
	EXPECT(!wrong);
}

/* Rank 0 looks for requests of anybody, of any length, and answers. */
BEHAVIOUR(a_server_that_probes, 2)
{
	enum { REQUESTS = 100, LONGEST = 20000 };
	static char text[LONGEST];
	int left = (size - 1) * REQUESTS, bytes, there;
	MPI_Status status;

	while (rank == 0 && left) {
		MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, &status);
		if (!there)
			continue;
		MPI_Get_count(&status, MPI_CHAR, &bytes);
		MPI_Recv(text, bytes, MPI_CHAR, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
		MPI_Send(&bytes, 1, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD);
		left--;
	}
	for (int i = 0; rank && i < REQUESTS; i++) {
		int sent = (i * 397 + rank * 31) % LONGEST, answer = -1;

		MPI_Send(text, sent, MPI_CHAR, 0, i, MPI_COMM_WORLD);
		MPI_Recv(&answer, 1, MPI_INT, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		EXPECT(answer == sent);
	}
}

BEHAVIOUR(many_barriers, 2)
{
	const long calls = check_env("CHECK_BARRIERS", 2000);
	MPI_Win win;
	_Atomic long long *arrived = shared_words(1, &win);

	for (long i = 1; i <= calls; i++) {
		atomic_fetch_add(arrived, 1);
		MPI_Barrier(MPI_COMM_WORLD);
		if (atomic_load(arrived) < i * size) {
			check_fail("barrier %ld let this rank through early", i);
			break;
		}
	}
	MPI_Win_free(&win);
}

/* How long after rank 0 has begun to sleep does rank 1, which waited for its message, go on? */
BEHAVIOUR(others_go_on_while_a_rank_sleeps, 2)
{
	const struct timespec sleep = { .tv_nsec = 30 * MS };
	MPI_Win win;
	_Atomic long long *times = shared_words(2, &win);
	long long longest = 0;

	for (int i = 0; i < 20; i++) {
		int message = i;

		if (rank == 0) {
			MPI_Send(&message, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
			atomic_store(&times[0], now_ns());
			nanosleep(&sleep, NULL);
		} else if (rank == 1) {
			MPI_Recv(&message, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			atomic_store(&times[1], now_ns());
		}
		MPI_Barrier(MPI_COMM_WORLD);
		if (times[1] - times[0] > longest)
			longest = times[1] - times[0];
		MPI_Barrier(MPI_COMM_WORLD);
	}
	if (rank == 0)
		check_note("%lld us", longest / US);
	MPI_Win_free(&win);
}

static jmp_buf back;

static void pass_on(int value)
{
	const int next = (rank + 1) % size, before = (rank + size - 1) % size;
	int received;

	MPI_Sendrecv(&value, 1, MPI_INT, next, 5, &received, 1, MPI_INT, before, 5, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
	longjmp(back, received + 1);
}

BEHAVIOUR(ranks_jump_out_of_functions_that_communicate, 2)
{
	const int before = (rank + size - 1) % size;

	for (volatile int round = 0; round < 200; round++) {
		int received = setjmp(back);

		if (!received)
			pass_on(rank * 1000 + round);
		EXPECT(received == before * 1000 + round + 1);
	}
}

static int twice(int x) { return 2 * x; }
static int thrice(int x) { return 3 * x; }
static int (*resolve(void))(int) { return getenv("PATH") ? thrice : twice; }
int chosen(int x) __attribute__((ifunc("resolve")));

/* IFUNC: the loader calls the resolver before the program's constructors. */
BEHAVIOUR(functions_that_the_loader_chooses, 1) { EXPECT(chosen(7) == 14 || chosen(7) == 21); }

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
