/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank without MPI that gives its processor to others by sched_yield(). Arguments: what to do,
 * ranks, rounds, a file with counters that all ranks map. */
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MAX = 64, CALL_EVERY = 37, SIGNALS = 50 };

/* makes this program one that links an MPI library */
int PMPI_Switch_test(void);
int PMPI_Switch_test(void) { return 0; }

static struct shared {
	_Atomic uint32_t counter[RANKS_MAX];
	_Atomic int pid[RANKS_MAX];
	_Atomic int computing;
	_Atomic(void *) at[RANKS_MAX];
} *shared;
static int rank, ranks, rounds;
static __thread int local = 11;
static volatile sig_atomic_t signals, faults;
static _Atomic int taken;
static sigjmp_buf back;

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

static uint32_t reached(int other) { return atomic_load(&shared->counter[other]); }

/* All ranks have come so far. */
static void meet(void)
{
	uint32_t mine = atomic_fetch_add(&shared->counter[rank], 1) + 1;

	for (int r = 0; r < ranks; r++)
		while (reached(r) < mine)
			sched_yield();
}

/* Once: all have started, and have left their homes. */
static void meet_first(void)
{
	atomic_store(&shared->pid[rank], getpid());
	for (int i = 0; i < 200; i++)
		meet();
}

/* ---- what is a rank's own ------------------------------------------------------------------ */

typedef double vector __attribute__((vector_size(32)));

/* Registers, control words, TLS and errno over switches and over calls that go home. */
static int own_state(void)
{
	static const int modes[] = { FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO };
	vector v = { rank, rank + 1, rank + 2, rank + 3 }, w;

	fesetround(modes[rank % 4]);
	local += rank;
	meet_first();
	for (int i = 0; i < rounds; i++) {
		__asm__ volatile("" : "+x"(v));
		errno = 100 + rank;
		if (i % CALL_EVERY == rank) {
			long pid;

			/* a call from here, with a vector register live across it */
			__asm__ volatile("syscall"
					 : "=a"(pid), "+x"(v)
					 : "a"(SYS_getpid)
					 : "rcx", "r11", "memory");
			if (pid != shared->pid[rank])
				return fail("the process ID of another rank");
		}
		meet();
		w = (vector){ rank, rank + 1, rank + 2, rank + 3 };
		if (memcmp(&v, &w, sizeof v))
			return fail("a vector register changed");
		if (errno != 100 + rank || local != 11 + rank)
			return fail("errno or TLS of another rank");
		if (fegetround() != modes[rank % 4])
			return fail("the rounding mode of another rank");
		if (getpid() != shared->pid[rank])
			return fail("getpid() of another rank");
	}
	return 0;
}

/* ---- signals and faults -------------------------------------------------------------------- */

static void on_signal(int sig)
{
	(void)sig;
	signals += getpid() == shared->pid[rank];
}

/* Each rank sends signals to the next one, which runs on a worker most of the time. */
static int get_signals(void)
{
	double end;

	signal(SIGUSR1, on_signal);
	meet_first();
	for (int i = 0; i < SIGNALS; i++) {
		int before = signals;

		meet();
		kill(shared->pid[(rank + 1) % ranks], SIGUSR1);
		for (end = seconds() + 10; signals == before && seconds() < end;)
			sched_yield();
		if (signals != before + 1)
			return fail("a signal is lost or another rank's");
	}
	meet();
	return 0;
}

static void *take_signals(void *set)
{
	int sig;

	while (!sigwait(set, &sig))
		atomic_fetch_add(&taken, 1);
	return NULL;
}

/* Signals that the first thread blocks belong to the thread that waits for them. */
static int waits_for_signals(void)
{
	pthread_t id;
	sigset_t set;
	double end;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	if (pthread_create(&id, NULL, take_signals, &set))
		return fail("no thread");
	meet_first();
	for (int i = 0; i < SIGNALS; i++) {
		int before = atomic_load(&taken);

		meet();
		kill(shared->pid[(rank + 1) % ranks], SIGUSR1);
		for (end = seconds() + 10; atomic_load(&taken) == before && seconds() < end;)
			sched_yield();
		if (atomic_load(&taken) != before + 1)
			return fail("the thread did not get its signal");
		meet();
	}
	return 0;
}

/* A rank that makes no calls while it waits for its timer. */
static int computes_until_a_signal(void)
{
	const struct itimerval soon = { .it_value = { .tv_usec = 100000 } };
	double end;

	signal(SIGALRM, on_signal);
	meet_first();
	for (int i = 0; i < 5; i++) {
		int before = signals;

		setitimer(ITIMER_REAL, &soon, NULL);
		for (int k = 0; k < 100; k++)
			meet();
		for (end = seconds() + 10; signals == before && seconds() < end;)
			;
		if (signals != before + 1)
			return fail("the signal did not come");
		meet();
	}
	return 0;
}

static void on_fault(int sig, siginfo_t *si, void *context)
{
	(void)context;
	if (sig != SIGSEGV || si->si_addr == (void *)(long)(8 * (rank + 1)))
		faults++;
	if (sig != SIGTRAP)
		siglongjmp(back, 1);
}

static void raise_fault(int kind)
{
	volatile int zero = 0;

	if (kind == 0)
		*(volatile int *)(long)(8 * (rank + 1)) = 1;
	if (kind == 1)
		__asm__ volatile("ud2");
	if (kind == 2)
		zero = 7 / zero;
	if (kind == 3)
		__asm__ volatile("int3"); /* the program goes on behind it */
}

static int get_faults(void)
{
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGILL, &action, NULL);
	sigaction(SIGFPE, &action, NULL);
	sigaction(SIGTRAP, &action, NULL);
	meet_first();
	for (int i = 0; i < rounds; i++) {
		if (!sigsetjmp(back, 1))
			raise_fault(i % 4);
		meet();
	}
	return faults == rounds ? 0 : fail("faults went to another rank");
}

/* ---- processors ---------------------------------------------------------------------------- */

static void spin_for(double s)
{
	for (double end = seconds() + s; seconds() < end;)
		;
}

/* Rank 0 computes, or sleeps in the kernel; the others go on meanwhile: at once where they get a
 * CPU, and on a busy machine before it would end by itself. */
static int others_go_on(int computes)
{
	const struct timespec sleep = { .tv_nsec = 300000000 }, limit = { .tv_sec = 20 };
	_Atomic uint32_t *gone = &shared->counter[RANKS_MAX - 1];
	uint32_t before;
	double began;

	meet_first();
	if (!rank) {
		began = seconds();
		if (computes) {
			spin_for(0.3);
			while (!atomic_load(gone) && seconds() < began + (double)limit.tv_sec)
				;
		} else {
			syscall(SYS_nanosleep, &sleep, NULL);
			if (seconds() - began < 0.29)
				return fail("slept too briefly");
			syscall(SYS_futex, gone, FUTEX_WAIT, 0, &limit, NULL, 0);
		}
		printf("0: others %s\n", atomic_load(gone) ? "went on" : "waited");
		atomic_store(&shared->counter[RANKS_MAX - 2], 1);
	} else {
		before = reached(rank);
		while (reached(rank) < before + 1000) {
			atomic_fetch_add(&shared->counter[rank], 1);
			for (int r = 1; r < ranks; r++)
				while (reached(r) < reached(rank))
					sched_yield();
		}
		atomic_fetch_add(gone, 1);
		syscall(SYS_futex, gone, FUTEX_WAKE, 1, NULL, NULL, 0);
		while (!atomic_load(&shared->counter[RANKS_MAX - 2]))
			sched_yield();
	}
	return 0;
}

/* Bursts shorter than a time slice; do two ranks compute at a time? On a busy machine there is
 * seldom a CPU for that, so all go on until each has seen it, for at most `rounds` bursts. */
static int bursts(void)
{
	_Atomic uint32_t *seen = &shared->counter[RANKS_MAX - 1];
	bool together = false;

	meet_first();
	for (int i = 0; i < rounds && (int)atomic_load(seen) < ranks; i++) {
		bool before = together;

		atomic_fetch_add(&shared->computing, 1);
		for (double end = seconds() + 0.002; seconds() < end;)
			together |= atomic_load(&shared->computing) > 1;
		atomic_fetch_sub(&shared->computing, 1);
		atomic_fetch_add(seen, together && !before);
		sched_yield();
	}
	printf("%d: %s\n", rank, together ? "together" : "in turn");
	return 0;
}

static void *beside(void *arg)
{
	for (int i = 0; i < 1000; i++)
		sched_yield();
	local = 5;
	return local == 5 ? arg : NULL;
}

/* Threads, children and programs of a rank that switches. */
static int has_threads_and_children(void)
{
	pthread_t id;
	void *got;
	int status, pid;

	meet_first();
	for (int i = 0; i < 5; i++) {
		if (pthread_create(&id, NULL, beside, &id))
			return fail("no thread");
		meet();
		if (pthread_join(id, &got) || got != &id || local != 11)
			return fail("a thread went wrong");
		pid = fork();
		if (!pid) {
			for (int y = 0; y < 100; y++)
				sched_yield();
			_exit(getpid() == shared->pid[rank] ? 1 : 10 + rank);
		}
		meet();
		if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 10 + rank)
			return fail("a child went wrong");
		status = system("exit 6");
		if (WEXITSTATUS(status) != 6)
			return fail("system() went wrong");
		meet();
	}
	return 0;
}

/* Rank 1 ends by itself; the others see that it does not come any more. */
static int ends(const char *how)
{
	meet_first();
	if (rank == 1) {
		if (!strcmp(how, "segv"))
			*(volatile int *)8 = 1;
		if (!strcmp(how, "exit"))
			exit(21);
		if (!strcmp(how, "spin")) {
			atomic_store(&shared->counter[RANKS_MAX - 1], 1);
			for (;;)
				local++;
		}
		if (!strcmp(how, "exec"))
			execl("/bin/sh", "sh", "-c", "exit 22", (char *)NULL);
		return fail("did not end");
	}
	if (!strcmp(how, "spin") && !rank) {
		while (!atomic_load(&shared->counter[RANKS_MAX - 1]))
			sched_yield();
		spin_for(0.02);
		kill(shared->pid[1], SIGKILL);
	}
	for (double end = seconds() + 0.3; seconds() < end;)
		sched_yield();
	printf("%d: goes on\n", rank);
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 4 ? argv[1] : "";
	int fd;

	rank = atoi(getenv("MPI_LOCALRANKID"));
	ranks = atoi(argv[2]);
	rounds = atoi(argv[3]);
	fd = open(argv[4], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, sizeof *shared))
		return fail("no file");
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		return fail("no memory");
	if (!strcmp(what, "state"))
		return own_state();
	if (!strcmp(what, "signals"))
		return get_signals();
	if (!strcmp(what, "sigwait"))
		return waits_for_signals();
	if (!strcmp(what, "timer"))
		return computes_until_a_signal();
	if (!strcmp(what, "faults"))
		return get_faults();
	if (!strcmp(what, "computes") || !strcmp(what, "sleeps"))
		return others_go_on(*what == 'c');
	if (!strcmp(what, "bursts"))
		return bursts();
	if (!strcmp(what, "threads"))
		return has_threads_and_children();
	return ends(what);
}
