/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of a program with broadcasts under way, in the way that argv[1] says. The test compares
 * exit status and output with those of the same program without Sluice. Prints "ok MODE", or what
 * is wrong.
 */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLICES = 10, SLICE = 700001 };

static char *area;
static int rank, size, broken;
static const char *mode;

static uint8_t byte_at(int slice, size_t i)
{
	return (uint8_t)(i * 7 + i / 4096 * 13 + (size_t)slice);
}

static void fill(int slice)
{
	for (size_t i = 0; i < SLICE; i++)
		area[(size_t)slice * SLICE + i] = (char)byte_at(slice, i);
}

static void look(const char *when)
{
	for (int s = 0; s < SLICES; s++)
		for (size_t i = 0; i < SLICE; i++)
			if ((uint8_t)area[(size_t)s * SLICE + i] != byte_at(s, i)) {
				printf("rank %d: %s: slice %d, byte %zu\n", rank, when, s, i);
				broken = 1;
				break;
			}
}

static void say_ok(void)
{
	if (!broken) {
		printf("ok %s %d\n", mode, rank);
		fflush(stdout);
	}
}

static void at_exit(void)
{
	look("at exit");
	say_ok();
}

/* Ten broadcasts, the last of them with a late root; nothing has been touched when it returns. */
static void begin_transfers(void)
{
	for (int warm = 0; warm < 3; warm++)
		for (int s = 0; s < SLICES; s++)
			MPI_Bcast(area + (size_t)s * SLICE, SLICE, MPI_BYTE, 0, MPI_COMM_WORLD);
	for (int s = 0; s < SLICES; s++) {
		memset(area + (size_t)s * SLICE, 0, SLICE);
		if (!rank)
			fill(s);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		usleep(3000);
	for (int s = 0; s < SLICES; s++)
		MPI_Bcast(area + (size_t)s * SLICE, SLICE, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static void *end_of_thread(void *arg)
{
	exit(*(int *)arg);
}

static void crash(int how)
{
	static volatile char *volatile nowhere;

	if (how == SIGSEGV)
		*nowhere = 1;
	else if (how == SIGABRT)
		abort();
	else
		raise(how);
	pause();
}

static void end_by_signal(void)
{
	static const struct { const char *name; int sig; } signals[] = {
		{ "segv", SIGSEGV }, { "abort", SIGABRT }, { "term", SIGTERM }, { "kill", SIGKILL },
		{ "bus", SIGBUS }, { "sys", SIGSYS },
	};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (!strcmp(mode, signals[i].name))
			crash(signals[i].sig);
}

static void end_in_child(void)
{
	int status = 0, code = 4;
	pthread_t thread;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		pthread_create(&thread, NULL, end_of_thread, &code);
		pause();
	}
	waitpid(child, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 4)
		broken = 1;
	look("after the child");
}

int main(int argc, char **argv)
{
	static int code = 6;
	pthread_t thread;

	mode = argc > 1 ? argv[1] : "finalize";
	alarm(60);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	area = malloc((size_t)SLICES * SLICE);
	begin_transfers();
	if (!strcmp(mode, "exit")) {
		atexit(at_exit);
		exit(0);
	}
	if (!strcmp(mode, "exit_code")) {
		atexit(at_exit);
		return 7;
	}
	if (!strcmp(mode, "_exit"))
		_exit(0);
	if (!strcmp(mode, "quick_exit")) {
		at_quick_exit(at_exit);
		quick_exit(3);
	}
	if (!strcmp(mode, "thread_exit")) {
		atexit(at_exit);
		pthread_create(&thread, NULL, end_of_thread, &code);
		pause();
	}
	if (!strcmp(mode, "exec")) {
		execl("/bin/echo", "echo", "ok", mode, "0", NULL);
		_exit(99);
	}
	if (!strcmp(mode, "mpi_abort"))
		MPI_Abort(MPI_COMM_WORLD, 5);
	end_by_signal();
	if (!strcmp(mode, "child"))
		end_in_child();
	MPI_Finalize();
	look("after MPI_Finalize");
	say_ok();
	if (!strcmp(mode, "late_free"))
		free(area);
	return broken;
}
