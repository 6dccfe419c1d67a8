/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Measures the cost of guards, by kind, size, pages and position of the range, with this process
 * otherwise idle or a second thread running: arming, releasing, and an access: until touched()
 * begins (when the first useful byte could be copied) and until the access is done; beside the time
 * of mprotect(2). Prints a table; times in us, median (least).
 *
 *   ninja bench/guard_cost && nice -n -20 bench/guard_cost [kind]
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "guard/guard.h"

#define MIB ((size_t)1 << 20)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { ROUNDS = 101, ODD_PAGES = 309 };

enum { ARM, RELEASE, BOTH, CLOSE, OPEN, TO_HANDLER, TOUCH, PAGE_TOUCH, SERIES };
static const char *const titles[SERIES] = { "arm", "release", "both", "mprotect", "and back",
					     "to touched", "touch", "1 page" };
static uint64_t ns[SERIES][ROUNDS];

struct memory { char *p, *raw; size_t bytes, raw_bytes; };

static struct guard_range range;
static volatile uint64_t touched_at;
static volatile bool by_page;

static void hold(void *arg) { (void)arg; }

static void touched(void *arg, uintptr_t addr, size_t bytes, bool write)
{
	(void)arg;
	(void)bytes;
	(void)write;
	touched_at = bench_now_ns();
	if (by_page)
		guard_release(&range, addr / BENCH_PAGE * BENCH_PAGE,
			      addr / BENCH_PAGE * BENCH_PAGE + BENCH_PAGE);
	else
		guard_release(&range, range.start, range.end);
}

static void complete_all(void) {}
static const struct guard_ops ops = { .hold = hold,
				      .touched = touched,
				      .complete_all = complete_all };

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* As a region lies in the arena: place and offset equal modulo 2 MiB, another mapping of the same
 * pages. */
static bool memory_get(struct memory *m, size_t bytes, size_t odd_bytes, bool huge)
{
	size_t room = (bytes + odd_bytes + 4 * MIB) / (2 * MIB) * 2 * MIB;
	int fd = memfd_create("guard_cost", MFD_CLOEXEC);
	char *other, *base;
	bool ok;

	if (fd < 0 || ftruncate(fd, (off_t)room))
		return false;
	m->raw_bytes = 2 * (room + 2 * MIB);
	m->raw = mmap(NULL, m->raw_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		      -1, 0);
	base = (char *)base_round_up((uintptr_t)m->raw, 2 * MIB);
	other = base + room + 2 * MIB;
	mmap(other, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	memset(other, 1, room);
	ok = !huge || !madvise(other, room, MADV_COLLAPSE);
	m->p = base + odd_bytes;
	m->bytes = bytes;
	mmap(m->p, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd,
	     (off_t)odd_bytes);
	memset(m->p, 2, bytes);
	close(fd);
	return ok;
}

static void cycle(const struct memory *m, enum guard_access access, int round)
{
	uint64_t a, b, c;
	int prot = access == GUARD_READ_ONLY ? PROT_READ : PROT_NONE;
	volatile char *at = m->p + m->bytes / 2;

	range.access = access;
	a = bench_now_ns();
	if (guard_arm(&range))
		exit(1);
	b = bench_now_ns();
	guard_release(&range, range.start, range.end);
	c = bench_now_ns();
	ns[ARM][round] = b - a;
	ns[RELEASE][round] = c - b;
	ns[BOTH][round] = c - a;
	*at = 3;
	a = bench_now_ns();
	mprotect(m->p, m->bytes, prot);
	b = bench_now_ns();
	mprotect(m->p, m->bytes, PROT_READ | PROT_WRITE);
	c = bench_now_ns();
	ns[CLOSE][round] = b - a;
	ns[OPEN][round] = c - b;
	for (int page = 0; page < 2; page++) {
		by_page = page;
		guard_arm(&range);
		a = bench_now_ns();
		*at = 3;
		b = bench_now_ns();
		ns[page ? PAGE_TOUCH : TOUCH][round] = b - a;
		if (!page)
			ns[TO_HANDLER][round] = touched_at - a;
		guard_release(&range, range.start, range.end);
	}
	for (size_t i = 0; i < m->bytes; i += BENCH_PAGE)
		((volatile char *)m->p)[i] = 4;
}

static void measure(size_t bytes, bool odd, bool huge, enum guard_access access, const char *beside)
{
	struct memory m;

	if (!memory_get(&m, bytes, odd ? ODD_PAGES * BENCH_PAGE : 0, huge)) {
		printf("no huge pages here\n");
		return;
	}
	range = (struct guard_range){ .start = (uintptr_t)m.p, .end = (uintptr_t)m.p + bytes };
	for (int i = -3; i < ROUNDS; i++)
		cycle(&m, access, i < 0 ? 0 : i);
	printf("%-8s %-6s %6zuK %-5s %-8s %-9s", guard_kind_name(), beside, bytes >> 10,
	       huge ? "huge" : "small", odd ? "odd" : "aligned",
	       access == GUARD_READ_ONLY ? "read-only" : "no access");
	for (int i = 0; i < SERIES; i++) {
		qsort(ns[i], ROUNDS, sizeof ns[i][0], by_value);
		printf(" %6.1f (%5.1f)", (double)ns[i][ROUNDS / 2] / 1e3, (double)ns[i][0] / 1e3);
	}
	printf("\n");
	munmap(m.raw, m.raw_bytes);
}

static _Atomic bool stop;

static void *run_beside(void *arg)
{
	while (!atomic_load_explicit(&stop, memory_order_relaxed))
		;
	return arg;
}

static void measure_all(const char *beside)
{
	static const size_t sizes[] = { 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20 };

	for (int huge = 0; huge < 2; huge++)
		for (size_t i = 0; i < BASE_ARRAY_LEN(sizes); i++)
			for (int odd = 0; odd < 2; odd++)
				measure(sizes[i], odd, huge, GUARD_NO_ACCESS, beside);
	measure(16 << 20, true, false, GUARD_READ_ONLY, beside);
	measure(16 << 20, true, true, GUARD_READ_ONLY, beside);
}

static int measure_kind(const char *kind)
{
	char option[64], problems[256], *env[] = { option, NULL };
	pthread_t thread;

	snprintf(option, sizeof option, "SLUICE_GUARD_KIND=%s", kind);
	if (base_options_load(env, problems, sizeof problems)) {
		fprintf(stderr, "%s\n", problems);
		return 2;
	}
	if (guard_init(&ops) || !guard_is_ready()) {
		printf("%s: %s\n", kind, guard_reason());
		return 0;
	}
	measure_all("alone");
	if (pthread_create(&thread, NULL, run_beside, NULL))
		return 1;
	measure_all("beside");
	atomic_store(&stop, true);
	return pthread_join(thread, NULL) ? 1 : 0;
}

int main(int argc, char **argv)
{
	static const char *const kinds[] = { "uffd", "mremap", "mprotect" };

	printf("%-8s %-6s %7s %-5s %-8s %-9s", "kind", "thread", "bytes", "pages", "lies",
	       "access");
	for (int i = 0; i < SERIES; i++)
		printf(" %14s", titles[i]);
	printf("\n");
	for (size_t i = 0; i < BASE_ARRAY_LEN(kinds); i++) {
		int status = 0;
		pid_t pid;

		if (argc > 1 && strcmp(argv[1], kinds[i]))
			continue;
		fflush(stdout);
		pid = fork();
		if (!pid) {
			status = measure_kind(kinds[i]);
			fflush(stdout);
			_exit(status);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			return 1;
	}
	return 0;
}
