/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages to a rank that is stopped again and again, anywhere, so also while it reads. Their
 * sender goes on meanwhile: when the reader continues, other bytes lie where it reads.
 */
#include "check.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t is_over;

static void end(int sig) { is_over = 1; }

/* Stops this rank again and again. */
static pid_t start_stopper(void)
{
	pid_t parent = getpid(), child = fork();

	if (!child)
		signal(SIGTERM, end);
	for (unsigned i = 0; !child && !is_over && getppid() == parent; i++) {
		usleep(100 + i * 77 % 1000);
		kill(parent, SIGSTOP);
		usleep(i % 2 ? 500 : 5000);
		kill(parent, SIGCONT);
	}
	if (!child)
		_exit(0);
	return child;
}

/* A stopper that was killed could leave this rank stopped. */
static void end_stopper(pid_t child)
{
	kill(child, SIGTERM);
	waitpid(child, NULL, 0);
}

/* ---- regions ------------------------------------------------------------------------------- */

enum { LONG = 1 << 20, HUGE = 2 << 20, USES = 9, LONG_TIMES = 120 };

static char *map_pages(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		MPI_Abort(MPI_COMM_WORLD, 1);
	return p;
}

/* Ends the buffer's region, and gives it another one by uses. */
static void change_region(char *buf)
{
	EXPECT(!mprotect(buf, LONG, PROT_READ));
	EXPECT(!mprotect(buf, LONG, PROT_READ | PROT_WRITE));
	for (int i = 0; i < USES; i++)
		MPI_Send(buf, LONG, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
}

/* Is the message read in the time that a peer needs which is not stopped? */
static bool is_done_soon(MPI_Request *r)
{
	double begin = MPI_Wtime();
	int done = 0;

	while (!done && MPI_Wtime() < begin + 3e-4)
		MPI_Test(r, &done, MPI_STATUS_IGNORE);
	return done;
}

/* Between huge pages all regions would have their own part of each of the arena's. */
static void send_and_change(int peer)
{
	char *mapped = map_pages(4 * HUGE);
	char *buf = mapped + HUGE - (uintptr_t)mapped % HUGE, *other = buf + HUGE;

	check_fill(other, LONG, 77);
	for (int i = 0; i < LONG_TIMES; i++) {
		MPI_Request r;

		check_fill(buf, LONG, check_seed(i, peer));
		MPI_Isend(buf, LONG, MPI_BYTE, peer, i, MPI_COMM_WORLD, &r);
		while (!is_done_soon(&r)) {
			change_region(buf);
			change_region(other); /* gets the pages that the message had */
		}
	}
	EXPECT(!munmap(mapped, 4 * HUGE));
}

/* Even ranks send, odd ones are stopped. */
BEHAVIOUR(long_messages_to_a_rank_that_is_stopped, 2)
{
	char *recv = check_alloc(LONG);
	pid_t stopper;

	if (rank % 2 == 0 && rank + 1 < size)
		send_and_change(rank + 1);
	if (rank % 2 == 0)
		goto end;
	stopper = start_stopper();
	for (int i = 0; i < LONG_TIMES; i++) {
		memset(recv, 0, LONG);
		MPI_Recv(recv, LONG, MPI_BYTE, rank - 1, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check_same(recv, LONG, check_seed(i, rank), "message");
	}
	end_stopper(stopper);
end:
	free(recv);
}

/* ---- copies -------------------------------------------------------------------------------- */

enum { SHORT = 60000, MANY = 8, SHORT_TIMES = 400, AGAIN = 4 };

static void isend_all(char *buf, int to, MPI_Request *r)
{
	for (int k = 0; k < MANY; k++)
		MPI_Isend(buf + k * SHORT, SHORT, MPI_BYTE, to, k, MPI_COMM_WORLD, &r[k]);
}

/* Sends messages to both; while the first has not read them yet, the second gets others. */
static void send_to_both(int stopped, int other)
{
	char *both = check_alloc(MANY * SHORT), *own = check_alloc(MANY * SHORT);
	MPI_Request r[MANY], r_other[MANY];

	for (int i = 0; i < SHORT_TIMES; i++) {
		check_fill(both, MANY * SHORT, check_seed(i, 0));
		isend_all(both, other, r_other);
		isend_all(both, stopped, r);
		MPI_Waitall(MANY, r_other, MPI_STATUSES_IGNORE);
		for (int k = 0; k < AGAIN; k++) {
			check_fill(own, MANY * SHORT, check_seed(i, k + 1));
			isend_all(own, other, r_other);
			MPI_Waitall(MANY, r_other, MPI_STATUSES_IGNORE);
		}
		MPI_Waitall(MANY, r, MPI_STATUSES_IGNORE);
	}
	free(both);
	free(own);
}

static void receive_all(char *recv, uint64_t seed)
{
	MPI_Request r[MANY];

	memset(recv, 0, MANY * SHORT);
	for (int k = 0; k < MANY; k++)
		MPI_Irecv(recv + k * SHORT, SHORT, MPI_BYTE, 0, k, MPI_COMM_WORLD, &r[k]);
	MPI_Waitall(MANY, r, MPI_STATUSES_IGNORE);
	check_same(recv, MANY * SHORT, seed, "messages");
}

BEHAVIOUR(short_messages_to_a_rank_that_is_stopped, 3)
{
	char *recv = check_alloc(MANY * SHORT);
	pid_t stopper = rank == 1 ? start_stopper() : 0;

	if (rank == 0)
		send_to_both(1, 2);
	for (int i = 0; i < SHORT_TIMES && (rank == 1 || rank == 2); i++) {
		receive_all(recv, check_seed(i, 0));
		for (int k = 0; k < AGAIN && rank == 2; k++)
			receive_all(recv, check_seed(i, k + 1));
	}
	if (stopper)
		end_stopper(stopper);
	free(recv);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
