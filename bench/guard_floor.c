/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The least that returning early can cost here, by system calls alone: nothing of Sluice runs.
 *
 *   ring    a worker on another CPU, which spins, is told          (asleep: it is woken)
 *   close   mremap(MREMAP_DONTUNMAP) of the buffer, mprotect of what stays
 *   fault   from the access until a SIGSEGV handler runs
 *   open    mremap back
 *   return  from the handler to the access
 *   read    one byte a page, which the worker has written: more than with pages that nobody moved
 *
 * hot: again and again. cold: between two rounds another process has the core, and writes as much
 * as the buffer, as a rank does that shares it. The sum is what is added to the computation behind
 * which a collective hides; 15 % of what the collective takes is allowed. Medians in us; a table.
 *
 *   ninja bench/guard_floor && nice -n -20 bench/guard_floor
 */
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#define MIB ((size_t)1 << 20)

enum { ROUNDS = 201, ODD_PAGES = 309, SIZES = 5 };
enum { RING, CLOSE, FAULT, OPEN, RETURN, READ, SUM, SERIES };
static const char *const titles[SERIES] = { "ring",   "close", "fault", "open",
					    "return", "read",  "sum" };

struct shared {
	_Alignas(128) _Atomic uint32_t bell, served; /* futex; the worker's answer */
	_Alignas(128) _Atomic uint32_t sleeps;       /* the worker sleeps between two */
	_Alignas(128) _Atomic uint64_t off, bytes;   /* what it is to write */
};

static struct shared *shared;
static char *program, *shadow, *arena;
static size_t bytes;
static uint64_t handler_ns, opened_ns, ns[SERIES][ROUNDS];
static int to_rival[2], from_rival[2];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void move(char *to, char *from)
{
	if (mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) ==
	    MAP_FAILED)
		die("mremap");
}

static void on_fault(int signo)
{
	(void)signo;
	handler_ns = bench_now_ns();
	move(program, shadow);
	opened_ns = bench_now_ns();
}

/* ---- the other processes ------------------------------------------------------------------- */

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof set, &set))
		die("sched_setaffinity");
}

/* On the other CPU: writes the buffer through the arena whenever the bell rings. */
static void work(int cpu)
{
	uint32_t seen = 0;

	pin(cpu);
	for (;;) {
		while (atomic_load(&shared->bell) == seen)
			if (atomic_load(&shared->sleeps))
				syscall(SYS_futex, &shared->bell, FUTEX_WAIT, seen, NULL, NULL, 0);
		seen = atomic_load(&shared->bell);
		memset(arena + shared->off, (int)seen, shared->bytes);
		atomic_store(&shared->served, seen);
	}
}

/* On this CPU: has it for as long as writing so much takes. */
static void rival(void)
{
	static char own[16 * MIB];
	size_t want;

	while (read(to_rival[0], &want, sizeof want) == sizeof want) {
		memset(own, 1, want);
		if (write(from_rival[1], &want, sizeof want) != sizeof want)
			break;
	}
	_exit(0);
}

static void let_rival_run(void)
{
	size_t want = bytes;

	if (write(to_rival[1], &want, sizeof want) != sizeof want ||
	    read(from_rival[0], &want, sizeof want) != sizeof want)
		die("the other process");
}

static void start(void (*fn)(void))
{
	pid_t pid = fork();

	if (pid < 0)
		die("fork");
	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fn();
}

static int other_cpu;
static void worker_main(void) { work(other_cpu); }

/* ---- measuring ----------------------------------------------------------------------------- */

static void ring(bool asleep)
{
	atomic_fetch_add(&shared->bell, 1);
	if (asleep)
		syscall(SYS_futex, &shared->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void wait_until_served(void)
{
	while (atomic_load(&shared->served) != atomic_load(&shared->bell))
		__builtin_ia32_pause();
}

static void cycle(int round, bool cold, bool asleep)
{
	uint64_t t[6], warm;

	if (asleep)
		usleep(200);
	if (cold)
		let_rival_run();
	t[0] = bench_now_ns();
	ring(asleep);
	t[1] = bench_now_ns();
	move(shadow, program);
	if (mprotect(program, bytes, PROT_NONE))
		die("mprotect");
	t[2] = bench_now_ns();
	wait_until_served();
	t[3] = bench_now_ns();
	*(volatile char *)program = 3;
	t[4] = bench_now_ns();
	bench_touch(program, bytes);
	t[5] = bench_now_ns();
	/* the same lines, written again by the worker, with the pages where they were */
	ring(asleep);
	wait_until_served();
	warm = bench_now_ns();
	bench_touch(program, bytes);
	warm = bench_now_ns() - warm;
	ns[RING][round] = t[1] - t[0];
	ns[CLOSE][round] = t[2] - t[1];
	ns[FAULT][round] = handler_ns - t[3];
	ns[OPEN][round] = opened_ns - handler_ns;
	ns[RETURN][round] = t[4] - opened_ns;
	ns[READ][round] = t[5] - t[4] > warm ? t[5] - t[4] - warm : 0;
	ns[SUM][round] = t[2] - t[0] + (t[4] - t[3]) + ns[READ][round];
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void measure(bool odd, bool cold, bool asleep)
{
	atomic_store(&shared->sleeps, asleep);
	ring(true);
	wait_until_served();
	for (int i = -3; i < ROUNDS; i++)
		cycle(i < 0 ? 0 : i, cold, asleep);
	printf("%5zu MB %-8s %-5s %-8s", bytes / MIB, odd ? "odd" : "aligned",
	       cold ? "cold" : "hot", asleep ? "asleep" : "spins");
	for (int s = 0; s < SERIES; s++) {
		qsort(ns[s], ROUNDS, sizeof ns[s][0], by_value);
		printf(" %7.1f", (double)ns[s][ROUNDS / 2] / 1e3);
	}
	printf("\n");
}

/* As a region lies in the arena: addresses, shadow and offset equal modulo 2 MiB. */
static void lay_out(char *base, size_t room, int fd, size_t off)
{
	program = base + off;
	shadow = base + room + off;
	shared->off = off;
	shared->bytes = bytes;
	if (mmap(program, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd,
		 (off_t)off) == MAP_FAILED)
		die("mmap");
}

int main(void)
{
	size_t room = 18 * MIB;
	int fd = memfd_create("guard_floor", MFD_CLOEXEC);
	char *base;

	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (fd < 0 || ftruncate(fd, (off_t)room) || shared == MAP_FAILED || pipe(to_rival) ||
	    pipe(from_rival))
		die("memory");
	arena = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	base = mmap(NULL, 3 * room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	base += -(uintptr_t)base % (2 * MIB);
	memset(arena, 1, room);
	other_cpu = sched_getcpu() ? 0 : 1;
	pin(!other_cpu);
	start(worker_main);
	start(rival);
	signal(SIGSEGV, on_fault);
	printf("%8s %-8s %-5s %-8s", "bytes", "lies", "core", "worker");
	for (int s = 0; s < SERIES; s++)
		printf(" %7s", titles[s]);
	printf("\n");
	for (int i = 0; i < SIZES; i++)
		for (int odd = 1; odd >= 0; odd--) {
			bytes = MIB << i;
			lay_out(base, room, fd, odd ? ODD_PAGES * BENCH_PAGE : 0);
			for (int cold = 0; cold < 2; cold++)
				measure(odd, cold, false);
			measure(odd, true, true);
		}
	return 0;
}
