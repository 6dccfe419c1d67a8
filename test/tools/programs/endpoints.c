/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank without MPI: says what a process must have of its own. First argument: what to do. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 2000

/* makes this program one that links an MPI library */
int PMPI_Endpoints_test(void);
int PMPI_Endpoints_test(void) { return 0; }

static int global = 7, zero;
static __thread int local = 11;
static __thread char large[1 << 16];
static int rank;

static int chosen(void) { return 42; }
static void *choose(void) { return (void *)chosen; }
int by_ifunc(void) __attribute__((ifunc("choose")));

static void at_exit(void) { printf("%d: exit handler, global %d\n", rank, global); }

static void *thread(void *arg)
{
	local += 100;
	return local == 111 ? arg : NULL;
}

/* Storms of malloc(), free() and sbrk() beside those of other ranks. */
static int storm(void)
{
	char *blocks[64] = { 0 };

	for (int i = 0; i < ROUNDS; i++) {
		int slot = i % 64;
		size_t bytes = (size_t)((i * 7919) % 300000) + 1;

		if (blocks[slot] && blocks[slot][0] != (char)rank)
			return 1;
		free(blocks[slot]);
		blocks[slot] = malloc(bytes);
		memset(blocks[slot], rank, bytes);
		if (i % 100 == 0 && sbrk(1 << 20) != (void *)-1)
			return 2;
		if (i % 50 == 0)
			sched_yield();
	}
	return 0;
}

static int own_state(const char *plugin)
{
	pthread_t id;
	void *result, *handle;
	int *counter;

	global += rank;
	local += 0;
	large[rank] = 1;
	for (int i = 0; i < ROUNDS / 10; i++) {
		errno = rank;
		sched_yield();
		if (errno != rank || global != 7 + rank || zero || local != 11)
			return 1;
	}
	if (pthread_create(&id, NULL, thread, &id) || pthread_join(id, &result) || result != &id)
		return 2;
	if (by_ifunc() != 42 || !getauxval(AT_RANDOM))
		return 3;
	handle = dlopen(plugin, RTLD_NOW);
	if (!handle)
		return fprintf(stderr, "%s\n", dlerror()), 4;
	counter = dlsym(handle, "counter");
	*counter += rank;
	return *counter == 100 + rank ? storm() : 5;
}

static void describe(int argc, char **argv)
{
	char folder[4096], name[32] = "";
	struct rlimit files;
	cpu_set_t cpus;
	mode_t mask = umask(0);
	FILE *f = fopen("/proc/thread-self/comm", "r");

	sched_getaffinity(0, sizeof cpus, &cpus);
	getrlimit(RLIMIT_NOFILE, &files);
	if (f && fscanf(f, "%31s", name) == 1)
		fclose(f);
	printf("%d: %s", rank, argv[0]);
	for (int i = 1; i < argc; i++)
		printf(" <%s>", argv[i]);
	printf(" in %s mask %03o files %lu cpus %d name %s mine %s\n",
	       getcwd(folder, sizeof folder), (unsigned)mask,
	       (unsigned long)files.rlim_cur, CPU_COUNT(&cpus), name,
	       getenv("MINE") ? getenv("MINE") : "-");
}

static void deep(int n)
{
	volatile char page[4096];

	page[0] = (char)n;
	deep(n + 1);
	page[1] = page[0];
}

static void on_signal(int sig)
{
	char text[] = "0: signal\n";

	text[0] = (char)('0' + rank);
	(void)!write(1, text, sizeof text - 1);
	_exit(sig == SIGUSR1 ? 33 : 34);
}

static int forks(void)
{
	int status, pid = fork();

	if (!pid) {
		global = 99;
		_exit(5);
	}
	if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 5 || global != 7)
		return 1;
	status = system("exit 6");
	if (WEXITSTATUS(status) != 6)
		return 2;
	/* a child of another rank is not ours */
	return wait(NULL) == -1 && errno == ECHILD ? 0 : 3;
}

static int ends(const char *what)
{
	if (!strcmp(what, "abort"))
		abort();
	if (!strcmp(what, "segv"))
		*(volatile int *)8 = 1;
	if (!strcmp(what, "deep"))
		deep(0);
	if (!strcmp(what, "_exit"))
		_exit(20 + rank);
	if (!strcmp(what, "quick"))
		quick_exit(20 + rank);
	if (!strcmp(what, "pause") || !strcmp(what, "yield")) {
		printf("%d: %d\n", rank, getpid());
		fflush(stdout);
		for (int i = 1; !strcmp(what, "yield"); i++)
			if (i % 1000000 == 0 && getppid() == 1) /* a system call goes home */
				return 98;
			else
				sched_yield();
		for (;;)
			pause();
	}
	return 99;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	rank = atoi(getenv("MPI_LOCALRANKID"));
	atexit(at_exit);
	if (!strcmp(what, "space")) { /* equal for all images of one address space */
		FILE *maps = fopen("/proc/self/maps", "r");
		char line[512];
		int loaders = 0;

		usleep(300000);
		while (fgets(line, sizeof line, maps))
			loaders += strstr(line, "/ld-linux") && strstr(line, "r-xp");
		printf("%d: loaders %d\n", rank, loaders);
		usleep(300000);
		return 0;
	}
	if (!strcmp(what, "state"))
		return own_state(argv[2]);
	if (!strcmp(what, "describe"))
		return describe(argc, argv), rank;
	if (!strcmp(what, "forks"))
		return forks();
	if (!strcmp(what, "copy")) { /* stdin to stdout, and descriptor 7 to its end */
		char c;

		while (read(0, &c, 1) == 1)
			(void)!write(1, &c, 1);
		return dprintf(7, "%d: seven\n", rank) > 0 ? 0 : 1;
	}
	if (!strcmp(what, "signal")) {
		signal(SIGUSR1, on_signal);
		return ends(argc > 2 ? argv[2] : "pause");
	}
	return ends(argc > 2 && atoi(argv[2]) != rank ? "pause" : what);
}
