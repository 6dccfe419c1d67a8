/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * machine_bench: what this machine can do at best, without MPI. Arguments as collective_bench's:
 * what=copy,line,wake,protect,guard sizes=64K,16M ms=20 nice=N.
 *
 *   copy     bytes a second that one core, and all that we may use at once, copy between buffers of
 *            their own, with the kernel that Sluice would choose
 *   line     a cache line's way to another core and back
 *   wake     from the wake-up of a process asleep on another core until it runs
 *   protect  mprotect(2): memory closed to the program, and opened again
 *   guard    the same by the guard that Sluice would choose, and the first touch of what is closed
 *
 * A JSON line for each; samples are the slowest process's.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "guard/guard.h"
#include "os/os.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#define HUGE_BYTES  (2ul << 20)
#define WARMUP      5
#define SHORT_CALLS 50
#define MAX_SIZES   16

struct job {
	struct bench b; /* of the process group that measures now */
	size_t sizes[MAX_SIZES];
	int size_count, nice;
	uint64_t budget_ns;
	const char *what;
	int cpus[BENCH_MAX_RANKS], cpu_count;
};

static struct bench_samples samples;

static void say(const char *what, const char *label, const char *timed, int movers, size_t bytes,
		const char *unit)
{
	bench_sort(&samples);
	printf("{\"what\": \"%s\", \"label\": \"%s\", \"timed\": \"%s\", \"movers\": %d, "
	       "\"bytes\": %zu, "
	       "\"unit\": \"%s\", \"better\": \"less\", \"p0\": %.4f, \"p50\": %.4f, \"p99\": "
	       "%.4f, "
	       "\"samples\": %d}\n",
	       what, label, timed, movers, bytes, unit, bench_percentile_us(&samples, 0),
	       bench_percentile_us(&samples, 50), bench_percentile_us(&samples, 99), samples.count);
	fflush(stdout);
	samples.count = 0;
}

static void add(uint64_t ns)
{
	if (samples.count < BENCH_MAX_CALLS)
		samples.ns[samples.count++] = ns;
}

static _Noreturn void die(const char *why)
{
	fprintf(stderr, "machine_bench: %s: %s\n", why, strerror(errno));
	exit(1);
}

static const char *bytes_text(size_t bytes, char out[32])
{
	snprintf(out, 32, bytes >> 20 ? "%zu MB" : "%zu KB",
		 bytes >> 20 ? bytes >> 20 : bytes >> 10);
	return out;
}

/* ---- processes --------------------------------------------------------------------------- */

static void *map_shared(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("shared memory");
	return p;
}

static void use_cpu(const struct job *j, int number)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(j->cpus[number % j->cpu_count], &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* `n` processes, each on a core of its own, this one among them, run `work`. */
static void together(struct job *j, int n, void (*work)(struct job *j))
{
	pid_t parent = getpid();
	int status, failed = 0;

	j->b = (struct bench){ .area = map_shared(sizeof(struct bench_area)), .ranks = n };
	fflush(stdout);
	for (int r = 1; r < n; r++) {
		pid_t pid = fork();

		if (pid < 0)
			die("fork");
		if (pid)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		j->b.rank = r;
		use_cpu(j, r);
		work(j);
		_exit(0);
	}
	use_cpu(j, 0);
	work(j);
	while (wait(&status) > 0)
		failed |= status;
	munmap(j->b.area, sizeof(struct bench_area));
	if (failed)
		exit(1);
}

/* ---- copies ------------------------------------------------------------------------------ */

static char *buffer(size_t bytes)
{
	size_t room = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
	char *p = aligned_alloc(HUGE_BYTES, room);

	if (!p)
		die("memory");
	madvise(p, room, MADV_HUGEPAGE); /* best effort */
	memset(p, 1, room);
	return p;
}

/* P0 is the slowest here, of the bytes a second: so it is told as the greatest. */
static void say_copy(const struct job *j, size_t bytes)
{
	char size[32];
	double gb = (double)bytes * j->b.ranks / 1000;

	bench_sort(&samples);
	printf("{\"what\": \"copy by %s\", \"label\": \"copy of %s by %s\", \"timed\": \"copy\", "
	       "\"movers\": %d, \"bytes\": %zu, \"unit\": \"GB/s\", \"better\": \"more\", \"p0\": "
	       "%.4f, "
	       "\"p50\": %.4f, \"p99\": %.4f, \"samples\": %d}\n",
	       j->b.ranks == 1 ? "one core" : "all cores", bytes_text(bytes, size),
	       j->b.ranks == 1 ? "one core" : "each of all cores at once", j->b.ranks, bytes,
	       gb / bench_percentile_us(&samples, 0), gb / bench_percentile_us(&samples, 50),
	       gb / bench_percentile_us(&samples, 99), samples.count);
	fflush(stdout);
	samples.count = 0;
}

static void copy_size(struct job *j, size_t bytes)
{
	char *src = buffer(bytes), *dst = buffer(bytes);
	uint64_t since = bench_now_ns(), t0, ns;

	for (int i = -WARMUP;
	     bench_agree(&j->b, i < WARMUP || bench_now_ns() - since < j->budget_ns); i++) {
		t0 = bench_start(&j->b);
		os_copy(dst, src, bytes, BASE_COPY_AUTO);
		ns = bench_max(&j->b, bench_now_ns() - t0);
		if (j->b.rank == 0 && i >= 0)
			add(ns);
	}
	if (j->b.rank == 0)
		say_copy(j, bytes);
	free(src);
	free(dst);
}

static void copy_all(struct job *j)
{
	for (int i = 0; i < j->size_count; i++)
		copy_size(j, j->sizes[i]);
}

static void run_copy(struct job *j)
{
	int all = j->cpu_count;

	together(j, 1, copy_all);
	if (all > 1)
		together(j, all, copy_all);
}

/* ---- from core to core ------------------------------------------------------------------- */

static void line_work(struct job *j)
{
	for (int i = 0; i < WARMUP; i++) {
		double ns = bench_line_ns(&j->b);

		if (j->b.rank == 0)
			add((uint64_t)(ns * 1000)); /* printed as thousandths */
	}
	if (j->b.rank == 0)
		say("line", "a cache line to another core and back", "cost", 2, 0, "ns");
}

/* Process 1 sleeps on `ball`; process 0 lets it, then wakes it. */
static void wake_once(struct job *j, bool keep)
{
	_Atomic uint32_t *word = &j->b.area->ball;
	uint64_t *line = j->b.area->value[1];

	atomic_store_explicit(word, 0, memory_order_relaxed);
	bench_sync(&j->b);
	if (j->b.rank == 0) {
		usleep(2000);
		j->b.area->value[0][1] = bench_now_ns();
		atomic_store_explicit(word, 1,
				      memory_order_release); /* pairs with the load below */
		syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
	} else {
		while (!atomic_load_explicit(word, memory_order_acquire))
			syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
		line[1] = bench_now_ns();
	}
	bench_sync(&j->b);
	if (keep && j->b.rank == 0)
		add(line[1] - j->b.area->value[0][1]);
}

static void wake_work(struct job *j)
{
	for (int i = -WARMUP; i < SHORT_CALLS; i++)
		wake_once(j, i >= 0);
	if (j->b.rank == 0)
		say("wake", "wake a process that sleeps on another core, until it runs", "cost", 2,
		    0, "us");
}

static void run_line(struct job *j)
{
	if (j->cpu_count > 1)
		together(j, 2, line_work);
}

static void run_wake(struct job *j)
{
	if (j->cpu_count > 1)
		together(j, 2, wake_work);
}

/* ---- closing memory ---------------------------------------------------------------------- */

/* As an adopted buffer lies: twice mapped, place and offset equal modulo 2 MiB. */
static char *adopted(size_t bytes)
{
	size_t room = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
	int fd = memfd_create("machine_bench", MFD_CLOEXEC);
	char *raw = mmap(NULL, 2 * room + HUGE_BYTES, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *p = (char *)(((uintptr_t)raw + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);

	if (fd < 0 || raw == MAP_FAILED || ftruncate(fd, (off_t)room) ||
	    mmap(p, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		die("memory");
	memset(p, 1, room);
	madvise(p, room, MADV_COLLAPSE); /* best effort */
	close(fd);
	return p;
}

static void protect_work(struct job *j)
{
	char label[96], size[32];

	for (int s = 0; s < j->size_count; s++) {
		size_t bytes = j->sizes[s];
		char *p = adopted(bytes);

		for (int i = -WARMUP; i < SHORT_CALLS; i++) {
			uint64_t t0 = bench_now_ns();

			if (mprotect(p, bytes, PROT_NONE) ||
			    mprotect(p, bytes, PROT_READ | PROT_WRITE))
				die("mprotect");
			if (i >= 0)
				add(bench_now_ns() - t0);
			memset(p, 2, bytes);
		}
		snprintf(label, sizeof(label), "close %s and open it, by mprotect",
			 bytes_text(bytes, size));
		say("protect", label, "cost", 1, bytes, "us");
	}
}

static struct guard_range range;
static void hold(void *arg) { (void)arg; }
static void complete_all(void) {}
static void touched(void *arg, uintptr_t addr, size_t bytes, bool write)
{
	(void)arg;
	(void)addr;
	(void)bytes;
	(void)write;
	guard_release(&range, range.start, range.end);
}
static const struct guard_ops ops = { .hold = hold,
				      .touched = touched,
				      .complete_all = complete_all };

static void guard_size(size_t bytes)
{
	char *p = adopted(bytes), label[96], size[32];

	range = (struct guard_range){ .start = (uintptr_t)p, .end = (uintptr_t)p + bytes };
	for (int touch = 0; touch < 2; touch++) {
		for (int i = -WARMUP; i < SHORT_CALLS; i++) {
			uint64_t t0 = bench_now_ns();

			if (guard_arm(&range))
				die("guard");
			if (touch)
				t0 = bench_now_ns();
			if (touch)
				*(volatile char *)(p + bytes / 2) = 3;
			guard_release(&range, range.start, range.end);
			if (i >= 0)
				add(bench_now_ns() - t0);
			memset(p, 2, bytes);
		}
		snprintf(label, sizeof(label), touch ? "first touch of %s that are closed, by %s" :
						       "close %s and open it, by %s",
			 bytes_text(bytes, size), guard_kind_name());
		say(touch ? "touch" : "guard", label, "cost", 1, bytes, "us");
	}
}

static void guard_work(struct job *j)
{
	char problems[256];

	if (base_options_load(NULL, problems, sizeof(problems)))
		fprintf(stderr, "machine_bench: %s\n", problems);
	if (guard_init(&ops) || !guard_is_ready())
		return; /* sluice info says why */
	for (int s = 0; s < j->size_count; s++)
		if (j->sizes[s] >= BENCH_PAGE)
			guard_size(j->sizes[s]);
}

/* In a process of its own: it changes handlers and starts threads. */
static void run_guard(struct job *j)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		guard_work(j);
		fflush(stdout);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
		die("the guard's process");
}

static void run_protect(struct job *j)
{
	protect_work(j);
}

/* ---- arguments --------------------------------------------------------------------------- */

static const struct {
	const char *name;
	void (*run)(struct job *j);
} measures[] = {
	{ "copy", run_copy }, { "line", run_line },   { "wake", run_wake },
	{ "protect", run_protect }, { "guard", run_guard },
};

static bool has_name(const char *list, const char *name)
{
	const char *at = strstr(list, name);
	size_t len = strlen(name);

	return at && (at == list || at[-1] == ',') && (at[len] == ',' || !at[len]);
}

static int parse(struct job *j, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value++)
			return -EINVAL;
		if (!strncmp(argv[i], "what=", 5))
			j->what = value;
		else if (!strncmp(argv[i], "ms=", 3))
			j->budget_ns = strtoull(value, NULL, 10) * 1000000;
		else if (!strncmp(argv[i], "nice=", 5))
			j->nice = atoi(value);
		else if (strncmp(argv[i], "sizes=", 6))
			return -EINVAL;
		else
			while (*value && j->size_count < MAX_SIZES) {
				j->sizes[j->size_count++] = bench_parse_bytes(value, &value);
				if (*value && *value++ != ',')
					return -EINVAL;
			}
	}
	return 0;
}

int main(int argc, char **argv)
{
	static struct job j = { .what = "", .budget_ns = 20000000 };
	cpu_set_t set;

	if (parse(&j, argc, argv)) {
		fprintf(stderr, "machine_bench: arguments: what= sizes= ms= nice=\n");
		return 2;
	}
	if (j.nice)
		setpriority(PRIO_PROCESS, 0, j.nice);
	sched_getaffinity(0, sizeof(set), &set);
	for (int cpu = 0; cpu < CPU_SETSIZE && j.cpu_count < BENCH_MAX_RANKS; cpu++)
		if (CPU_ISSET(cpu, &set))
			j.cpus[j.cpu_count++] = cpu;
	os_copy_prepare();
	for (size_t m = 0; m < sizeof(measures) / sizeof(measures[0]); m++)
		if (has_name(j.what, measures[m].name))
			measures[m].run(&j);
	return 0;
}
