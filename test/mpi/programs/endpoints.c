/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages, windows and ends of ranks, some of which share an address space. */
#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LARGEST (1 << 20)

static int global;
static char *out, *in;

static char letter(int from, int i) { return (char)(from * 31 + i * 7 + 1); }

/* Each rank sends to the next and receives from the one before, every byte checked. */
static void ring(int bytes)
{
	int next = (rank + 1) % size, before = (rank + size - 1) % size, wrong = 0;
	MPI_Status status;

	for (int i = 0; i < bytes; i++)
		out[i] = letter(rank, i);
	memset(in, 0, (size_t)bytes);
	MPI_Sendrecv(out, bytes, MPI_CHAR, next, 1, in, bytes, MPI_CHAR, before, MPI_ANY_TAG,
		     MPI_COMM_WORLD, &status);
	for (int i = 0; i < bytes; i++)
		wrong += in[i] != letter(before, i);
	EXPECT(!wrong && status.MPI_SOURCE == before && status.MPI_TAG == 1);
}

BEHAVIOUR(messages, 2)
{
	out = malloc(LARGEST);
	in = malloc(LARGEST);
	for (int bytes = 1; bytes <= LARGEST; bytes *= 4)
		ring(bytes);
	free(out);
	free(in);
}

BEHAVIOUR(own_globals, 2)
{
	int all[64] = { 0 };

	global += rank;
	MPI_Allgather(&global, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < size && i < 64; i++)
		EXPECT(all[i] == i);
}

BEHAVIOUR(windows, 2)
{
	int *base, value = rank + 1, next = (rank + 1) % size;
	MPI_Win win;

	MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
	*base = 0;
	MPI_Win_fence(0, win);
	MPI_Put(&value, 1, MPI_INT, next, 0, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	EXPECT(*base == (rank + size - 1) % size + 1);
	MPI_Win_free(&win);
}

BEHAVIOUR(processes, 2)
{
	int mine[2] = { getpid(), getppid() }, all[64][2];

	MPI_Allgather(mine, 2, MPI_INT, all, 2, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < size && i < 32; i++)
		for (int k = 0; k < i; k++)
			EXPECT(all[i][0] != all[k][0]);
	if (rank == 0) /* the parent of an image is its carrier */
		for (int i = 0; i < size; i++)
			check_note("parent %d", all[i][1]);
}

enum { PAGE = 4096, HOLE = 2 * PAGE }; /* two pages, and one without access */

typedef ssize_t reads(pid_t pid, const struct iovec *l, unsigned long ls, const struct iovec *r,
		      unsigned long rs);

/* Reads `bytes` from `from` of the peer in uneven pieces. Many barriers before: the rank that reads
 * runs where its processor is given to others, if they switch. */
static void read_piecewise(reads *read_by, pid_t pid, const char *from, long bytes, long expected)
{
	long first = bytes / 3, second = bytes / 2;
	struct iovec l[2] = { { in, (size_t)first }, { in + first, (size_t)(bytes - first) } };
	struct iovec r[2] = { { (char *)from, (size_t)second },
			      { (char *)from + second, (size_t)(bytes - second) } };
	long n, wrong = 0;

	for (int i = 0; i < 100; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	memset(in, 0, HOLE + PAGE);
	errno = 0;
	n = read_by(pid, l, 2, r, 2);
	if (n != expected || (n < 0 && errno != EFAULT))
		check_fail("%ld bytes: read %ld instead of %ld, errno %d", bytes, n, expected,
			   errno);
	for (long i = 0; i < n; i++)
		wrong += in[i] != from[i];
	for (long i = n < 0 ? 0 : n; i < HOLE + PAGE; i++)
		wrong += in[i] != 0;
	EXPECT(!wrong);
}

/* All of them at about the same time, without MPI_Finalize. */
BEHAVIOUR(ranks_exit_with_status_5, 2)
{
	MPI_Barrier(MPI_COMM_WORLD);
	_exit(5);
}

static volatile sig_atomic_t signals;

static void on_signal(int sig)
{
	(void)sig;
	signals++;
}

/* Rank 0 sends the launcher a signal. Returns: whether this rank has got one. */
static bool signal_launcher(int sig)
{
	time_t end = time(NULL) + 20;
	int there;

	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		kill((pid_t)check_env("LAUNCHER", 0), sig);
	while (!signals && time(NULL) < end)
		MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
	return signals > 0;
}

BEHAVIOUR(the_launcher_passes_a_signal_on, 2)
{
	signal(SIGUSR1, on_signal);
	EXPECT(signal_launcher(SIGUSR1));
	MPI_Barrier(MPI_COMM_WORLD);
	usleep(50000);
	check_note("%d", (int)signals);
	EXPECT(signals == 1);
}

BEHAVIOUR(the_launcher_is_told_to_end, 2) { signal_launcher(SIGTERM); }

/* Needs ranks of one address space: the bytes are compared there. */
BEHAVIOUR(reads_stop_where_nothing_is_mapped, 2)
{
	void *library = dlopen(getenv("HARNESS_READS"), RTLD_NOW);
	reads *read_by = library ? (reads *)dlsym(library, "library_reads") : NULL;
	struct { char *at; pid_t pid; } own, all[64];

	EXPECT(read_by);
	own.at = mmap(NULL, HOLE + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		      -1, 0);
	own.pid = getpid();
	for (int i = 0; i < HOLE; i++)
		own.at[i] = letter(rank, i) | 1;
	mprotect(own.at + HOLE, PAGE, PROT_NONE);
	in = malloc(HOLE + PAGE);
	MPI_Allgather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, MPI_COMM_WORLD);
	for (int round = 0; round < 20; round++) {
		const char *from = all[(rank + 1) % size].at;
		pid_t pid = all[(rank + 1) % size].pid;

		read_piecewise(read_by, pid, from, HOLE, HOLE);
		read_piecewise(read_by, pid, from + 5, 700, 700);
		read_piecewise(read_by, pid, from + 9, HOLE, HOLE - 9);
		read_piecewise(read_by, pid, from + HOLE - 1, 100, 1);
		read_piecewise(read_by, pid, from + HOLE, 100, -1);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	free(in);
}

/* After a failure the ranks number their calls differently. */
BEHAVIOUR(no_short_call_succeeds_after_one_that_ranks_disagree_about, 2)
{
	double one = 1, sum = 0;
	MPI_Comm comm;
	int error;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	for (int i = 0; i < 300; i++) /* it is connected then */
		MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
	error = rank ? MPI_Barrier(comm) : MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, comm);
	EXPECT(rank || error);
	EXPECT(MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, comm));
	MPI_Comm_free(&comm);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
