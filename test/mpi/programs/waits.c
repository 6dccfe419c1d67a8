/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every rank but 0 blocks in one kind of call, which rank 0 ends after computing. Each notes the
 * share of a CPU that it has used meanwhile, in percent, and the median time in us from the end by
 * rank 0 to its return.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { REPEATS_MAX = 100, TAG = 7, RELEASED = 9 };

static MPI_Win window;
static double memory[64];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double used(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

static void compute(double seconds)
{
	for (double end = now() + seconds; now() < end;)
		;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* wait() of the ranks that block; end(r) ends the wait of rank r, or, with r = 0, all of them. */
static void measure_any(void (*wait)(void), void (*end)(int), bool is_collective)
{
	int repeats = (int)check_env("REPEATS", 2);
	double hold = (double)check_env("HOLD_US", 25000) * 1e-6, span = 0, cpu = 0, released;
	double late[REPEATS_MAX];

	for (int i = 0; i < repeats && i < REPEATS_MAX; i++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank) {
			double start = now(), before = used(), returned;

			wait();
			returned = now();
			span += returned - start;
			cpu += used() - before;
			MPI_Recv(&released, 1, MPI_DOUBLE, 0, RELEASED, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
			late[i] = (returned - released) * 1e6;
			EXPECT(late[i] >= 0);
		} else {
			double at[64];

			compute(hold);
			for (int r = 1; r < size; r++) {
				at[r] = now();
				end(r);
			}
			at[0] = now();
			end(0); /* a collective: all ranks */
			for (int r = 1; r < size; r++)
				MPI_Send(&at[is_collective ? 0 : r], 1, MPI_DOUBLE, r,
					 RELEASED, MPI_COMM_WORLD);
		}
	}
	if (rank) {
		qsort(late, (size_t)repeats, sizeof *late, compare);
		check_note("cpu %.1f late %.0f", 100 * cpu / span, late[repeats / 2]);
	}
}

static void measure(void (*wait)(void), void (*end)(int)) { measure_any(wait, end, false); }

static double mail = 1;

static void send_one(int r)
{
	if (r)
		MPI_Send(&mail, 1, MPI_DOUBLE, r, TAG, MPI_COMM_WORLD);
}

static void receive(void)
{
	double got = 0;

	MPI_Recv(&got, 1, MPI_DOUBLE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	EXPECT(got == mail);
}

BEHAVIOUR(recv, 2) { measure(receive, send_one); }

static void wait_for_one(void)
{
	MPI_Request request;
	double got = 0;

	MPI_Irecv(&got, 1, MPI_DOUBLE, 0, TAG, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	EXPECT(got == mail);
}

BEHAVIOUR(wait, 2) { measure(wait_for_one, send_one); }

static void send_two(int r)
{
	send_one(r);
	if (r)
		MPI_Send(&mail, 1, MPI_DOUBLE, r, TAG + 1, MPI_COMM_WORLD);
}

static void wait_for_all(void)
{
	MPI_Request requests[2];
	double got[2] = { 0 };

	for (int i = 0; i < 2; i++)
		MPI_Irecv(&got[i], 1, MPI_DOUBLE, 0, TAG + i, MPI_COMM_WORLD, &requests[i]);
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	EXPECT(got[0] == mail && got[1] == mail);
}

BEHAVIOUR(waitall, 2) { measure(wait_for_all, send_two); }

static void wait_for_any(void)
{
	MPI_Request requests[2];
	double got[2] = { 0 };
	int index = -1;

	for (int i = 0; i < 2; i++)
		MPI_Irecv(&got[i], 1, MPI_DOUBLE, 0, TAG + i, MPI_COMM_WORLD, &requests[i]);
	MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
	EXPECT(index == 0 && got[0] == mail);
	MPI_Cancel(&requests[1]);
	MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
}

BEHAVIOUR(waitany, 2) { measure(wait_for_any, send_one); }

static void probe(void)
{
	MPI_Status status;

	MPI_Probe(0, TAG, MPI_COMM_WORLD, &status);
	EXPECT(status.MPI_TAG == TAG && status.MPI_SOURCE == 0);
	receive();
}

BEHAVIOUR(probe, 2) { measure(probe, send_one); }

static void probe_matched(void)
{
	MPI_Message message;
	double got = 0;

	MPI_Mprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
	MPI_Mrecv(&got, 1, MPI_DOUBLE, &message, MPI_STATUS_IGNORE);
	EXPECT(got == mail);
}

BEHAVIOUR(mprobe, 2) { measure(probe_matched, send_one); }

static void send_synchronously(void)
{
	MPI_Ssend(&mail, 1, MPI_DOUBLE, 0, TAG, MPI_COMM_WORLD);
}

static void receive_from(int r)
{
	double got = 0;

	if (r)
		MPI_Recv(&got, 1, MPI_DOUBLE, r, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

BEHAVIOUR(ssend, 2) { measure(send_synchronously, receive_from); }

static void test_until(void)
{
	MPI_Request request;
	double got = 0;
	int flag = 0;

	MPI_Irecv(&got, 1, MPI_DOUBLE, 0, TAG, MPI_COMM_WORLD, &request);
	while (!flag)
		MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
	EXPECT(got == mail);
}

BEHAVIOUR(test, 2) { measure(test_until, send_one); }

static void probe_until(void)
{
	int flag = 0;

	while (!flag)
		MPI_Iprobe(0, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
	receive();
}

BEHAVIOUR(iprobe, 2) { measure(probe_until, send_one); }

static void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }
static void barrier_end(int r)
{
	if (!r)
		barrier();
}

BEHAVIOUR(barrier, 2) { measure_any(barrier, barrier_end, true); }

static void allreduce(void)
{
	double sum = 0;

	MPI_Allreduce(&mail, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	EXPECT(sum == size);
}
static void allreduce_end(int r)
{
	if (!r)
		allreduce();
}

BEHAVIOUR(allreduce, 2) { measure_any(allreduce, allreduce_end, true); }

static void bcast(void)
{
	double got = rank ? 0 : mail;

	MPI_Bcast(&got, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
	EXPECT(got == mail);
}
static void bcast_end(int r)
{
	if (!r)
		bcast();
}

BEHAVIOUR(bcast, 2) { measure_any(bcast, bcast_end, true); }

static void fence(void) { MPI_Win_fence(0, window); }
static void fence_end(int r)
{
	if (!r)
		fence();
}

BEHAVIOUR(fence, 2)
{
	MPI_Win_create(memory, sizeof memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD,
		       &window);
	measure_any(fence, fence_end, true);
	MPI_Win_free(&window);
}

static volatile sig_atomic_t signals;
static void on_signal(int number) { signals += number != 0; }

/* Signals interrupt naps. */
BEHAVIOUR(signalled, 2)
{
	struct itimerval each = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &each, NULL);
	measure(receive, send_one);
	setitimer(ITIMER_REAL, &never, NULL);
	EXPECT(signals > 0);
}

static int pids[64];

static void send_to_the_stopped(int r)
{
	if (r == 1)
		kill(pids[1], SIGSTOP);
	send_one(r);
	if (!r) {
		usleep(5000); /* the message and its wake-up have come */
		kill(pids[1], SIGCONT);
	}
}

/* A sleeping rank is stopped when it gets its message, and later continued. */
BEHAVIOUR(stopped, 2)
{
	int own = (int)getpid();

	MPI_Allgather(&own, 1, MPI_INT, pids, 1, MPI_INT, MPI_COMM_WORLD);
	measure(receive, send_to_the_stopped);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}

/* The host MPI moves this message in parts through its own memory, so both ends wait in turn. All
 * ranks note how long it took, in ms. */
BEHAVIOUR(parts, 3)
{
	enum { ROWS = 4 << 20 };
	double *column = calloc(2 * ROWS, sizeof *column), start;
	MPI_Datatype type;

	MPI_Type_vector(ROWS, 1, 2, MPI_DOUBLE, &type);
	MPI_Type_commit(&type);
	for (int i = 0; !rank && i < ROWS; i++)
		column[2 * i] = i;
	MPI_Barrier(MPI_COMM_WORLD);
	start = now();
	if (rank == 0)
		MPI_Send(column, 1, type, 1, TAG, MPI_COMM_WORLD);
	else if (rank == 1)
		MPI_Recv(column, 1, type, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Barrier(MPI_COMM_WORLD);
	check_note("took %.1f", (now() - start) * 1e3);
	for (int i = 0; rank == 1 && i < ROWS; i++)
		if (column[2 * i] != i || column[2 * i + 1] != 0) {
			EXPECT(!"wrong element");
			break;
		}
	MPI_Type_free(&type);
	free(column);
}
