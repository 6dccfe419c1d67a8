/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank without MPI: what it knows of itself and of the others. First argument: what to do. */
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sluice/endpoints.h>

/* makes this program one that links an MPI library */
int PMPI_Endpoints_test(void);
int PMPI_Endpoints_test(void) { return 0; }

static int rank, ranks;
static struct offer {
	_Atomic int reads;
	int value;
} mine;

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int fail(const char *what)
{
	printf("%d: %s\n", rank, what);
	return 1;
}

/* Ranks write through each other's pointers. */
static int use_pointers(void)
{
	int here[64] = { 0 }, count, share = atoi(getenv("SHARE"));
	struct offer *other;
	double end = seconds() + 20;

	while ((count = sluice_endpoints_here(here, 64)) < share - 1 && seconds() < end)
		sluice_endpoints_yield();
	if (count != share - 1)
		return fail("not all ranks are here");
	if (sluice_endpoints_here(here, 0) != count || sluice_endpoints_here(NULL, 0) != count)
		return fail("the count depends on the room");
	mine.value = 100 + rank;
	sluice_endpoints_offer(&mine);
	if (share > 1 && sluice_endpoints_pointer(rank) != &mine)
		return fail("another pointer than its own");
	for (int i = 0; i < count; i++) {
		if (here[i] == rank || here[i] < 0 || here[i] >= ranks)
			return fail("a rank that cannot be here");
		while (!(other = sluice_endpoints_pointer(here[i])) && seconds() < end)
			sluice_endpoints_yield();
		if (!other || other == &mine || other->value != 100 + here[i])
			return fail("a wrong pointer");
		atomic_fetch_add(&other->reads, 1);
	}
	while (atomic_load(&mine.reads) < count && seconds() < end)
		sluice_endpoints_yield();
	if (atomic_load(&mine.reads) != count)
		return fail("others did not write");
	if (sluice_endpoints_pointer(ranks) || sluice_endpoints_pointer(-1))
		return fail("the pointer of a rank that does not exist");
	printf("%d: %d here\n", rank, count);
	fflush(stdout);
	if (!fork())
		_exit(sluice_endpoints_here(NULL, 0) || sluice_endpoints_pointer(here[0]));
	return wait(&count) < 0 || count ? fail("ranks are in the copy that a child has") : 0;
}

/* Rank 1 ends; the others notice. */
static int see_the_end(void)
{
	double end = seconds() + 20;

	sluice_endpoints_offer(&mine);
	while (!sluice_endpoints_pointer(1) && seconds() < end)
		sluice_endpoints_yield();
	if (!sluice_endpoints_pointer(1))
		return fail("rank 1 is not here");
	if (rank == 1) {
		usleep(100000);
		raise(SIGKILL);
	}
	while (sluice_endpoints_pointer(1) && seconds() < end)
		usleep(1000);
	return sluice_endpoints_pointer(1) ? fail("a rank that has ended is here") : 0;
}

static int print_names(void)
{
	char text[PATH_MAX] = "", own[64], part[4] = "", *real;
	ssize_t n = readlink("/proc/self/exe", text, sizeof text - 1);

	text[n > 0 ? n : 0] = '\0';
	printf("%s\n", text);
	snprintf(own, sizeof own, "/proc/%d/exe", getpid());
	memset(text, 0, sizeof text);
	printf("%zd %s\n", readlinkat(AT_FDCWD, own, text, sizeof text - 1), text);
	real = realpath("/proc/self/exe", NULL);
	printf("%s\n", real ? real : "-");
	free(real);
	printf("%s\n", realpath("/proc/thread-self/exe", text) ? text : "-");
	real = canonicalize_file_name("/proc/self/exe");
	printf("%s\n", real ? real : "-");
	free(real);
	n = readlink("/proc/self/exe", part, 3);
	printf("%zd %s\n", n, part);
	n = readlink("/proc/self/cwd", text, sizeof text - 1);
	text[n > 0 ? n : 0] = '\0';
	printf("%s\n", text);
	return 0;
}

/* Executes itself by the link, in three ways; the arguments and the environment count them. */
static int execute_self(char **argv)
{
	char *const next[] = { argv[0], argv[1], argv[2], (char *)"x", NULL };
	const char *part = getenv("PART");
	int pid, status;

	if (part && !strcmp(part, "2"))
		return 42;
	if (part && !strcmp(part, "1")) {
		setenv("PART", "2", 1);
		return execvp("/proc/self/exe", next);
	}
	setenv("PART", "1", 1);
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, next, environ))
		return 1;
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 42)
		return 2;
	return execv("/proc/self/exe", next);
}

/* Is nothing that can be written in the megabyte below the stack? */
static int has_guard(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	uintptr_t here = (uintptr_t)&f, low, high, last = 0;
	char mode[8], line[512];

	while (f && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%lx-%lx %7s", &low, &high, mode) != 3)
			return fail("an odd line in the maps");
		if (here >= low && here < high)
			return low - last >= 1 << 20 ? 0 : fail("memory just below the stack");
		if (mode[1] == 'w')
			last = high;
	}
	return fail("no stack in the maps");
}

/* ---- for debuggers -------------------------------------------------------------------------- */

static volatile int steps;

__attribute__((noinline)) static void step(int n)
{
	steps += n;
}

__attribute__((noinline)) static int work(void)
{
	printf("%d\n", getpid());
	fflush(stdout);
	for (;;) {
		step(1);
		for (int i = 0; i < 100; i++)
			sched_yield();
		usleep(1000);
	}
}

__attribute__((noinline)) static int spin(void)
{
	printf("%d\n", getpid());
	fflush(stdout);
	for (;;)
		steps++;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	rank = atoi(getenv("MPI_LOCALRANKID"));
	ranks = argc > 2 ? atoi(argv[2]) : 1;
	if (!strcmp(what, "pointers"))
		return use_pointers();
	if (!strcmp(what, "end"))
		return see_the_end();
	if (!strcmp(what, "work"))
		return work();
	if (!strcmp(what, "spin"))
		return spin();
	if (!strcmp(what, "system"))
		return system(argv[2]) >> 8;
	if (!strcmp(what, "again"))
		return execute_self(argv);
	if (!strcmp(what, "guard"))
		return has_guard();
	if (!strcmp(what, "nice"))
		return getpriority(PRIO_PROCESS, 0);
	if (!strcmp(what, "child") && !fork()) {
		printf("0: %d\n", getpid());
		fflush(stdout);
	}
	if (!strcmp(what, "alarm") || !strcmp(what, "child"))
		for (;;)
			pause();
	if (!strcmp(what, "names"))
		return print_names();
	return 99;
}
