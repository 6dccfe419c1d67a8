/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "job.h"

#define ORDER         64     /* of the matrices */
#define UNIT_BATCH    64     /* units that are timed at once */
#define WOKEN_LATE_NS 80000 /* a worker that waits longer for its core did not find it idle */

void job_die(const char *why)
{
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, why);
	MPI_Abort(MPI_COMM_WORLD, 2);
	exit(2);
}

void *job_memory(size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);

	if (!p)
		job_die("out of memory");
	return p;
}

void *job_buffer(bool huge, size_t bytes)
{
	char *p = job_memory(bytes);
	uintptr_t begin = ((uintptr_t)p + BENCH_PAGE - 1) / BENCH_PAGE * BENCH_PAGE;

	if (huge && bytes >= (4u << 20))
		madvise((void *)begin, bytes - BENCH_PAGE, MADV_HUGEPAGE);
	memset(p, 1, bytes);
	return p;
}

int job_parse_list(uint64_t out[JOB_MAX_LIST], const char *text)
{
	char *end = (char *)text;
	int count = 0;

	while (*end && count < JOB_MAX_LIST) {
		out[count++] = bench_parse_bytes(end, &end);
		if (*end == ',')
			end++;
		else if (*end)
			job_die("lists look like 64K,1M");
	}
	return count;
}

const char *job_value(const char *argument, const char *name)
{
	size_t len = strlen(name);

	return !strncmp(argument, name, len) && argument[len] == '=' ? argument + len + 1 : NULL;
}

/* Ranks of another machine cannot map rank 0's memory, and must not find a process of the same
 * number. */
static void check_machine(const struct bench *b)
{
	char mine[64] = "", first[64];
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && read(fd, mine, sizeof(mine) - 1) < 0)
		mine[0] = 0;
	if (fd >= 0)
		close(fd);
	memcpy(first, mine, sizeof(first));
	MPI_Bcast(first, sizeof(first), MPI_BYTE, 0, MPI_COMM_WORLD);
	if (b->rank && strcmp(first, mine))
		job_die("the ranks are on different machines; this measures one");
}

/* Rank 0's memfd becomes everybody's. Not MPI's memory: the MPI under test must not be what keeps
 * the ranks in step. */
void *job_share(struct bench *b, size_t bytes)
{
	long where[2] = { getpid(), -1 };
	char path[64];
	void *p;
	int fd = -1;

	if (b->rank == 0) {
		fd = memfd_create("bench", 0);
		if (fd < 0 || ftruncate(fd, (off_t)bytes))
			job_die("no shared memory");
		where[1] = fd;
	}
	MPI_Bcast(where, sizeof(where), MPI_BYTE, 0, MPI_COMM_WORLD);
	if (b->rank) {
		snprintf(path, sizeof(path), "/proc/%ld/fd/%ld", where[0], where[1]);
		fd = open(path, O_RDWR);
		if (fd < 0)
			job_die("ranks cannot open rank 0's shared memory");
	}
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		job_die("no shared memory");
	MPI_Barrier(MPI_COMM_WORLD);
	close(fd);
	return p;
}

void job_open(struct bench *b)
{
	MPI_Comm_rank(MPI_COMM_WORLD, &b->rank);
	MPI_Comm_size(MPI_COMM_WORLD, &b->ranks);
	if (b->ranks > BENCH_MAX_RANKS)
		job_die("too many ranks");
	check_machine(b);
	b->crowded |= b->ranks > bench_cpus();
	b->area = job_share(b, sizeof(struct bench_area));
	bench_sync(b);
}

void job_print_run(const struct bench *b, bool pinned)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
	int len;

	MPI_Get_library_version(version, &len);
	version[strcspn(version, "\r\n\"")] = 0;
	for (char *c = version; *c; c++)
		if ((unsigned char)*c < ' ' || *c == '\\')
			*c = ' '; /* Debian's MPICH has a tab there */
	if (b->rank == 0)
		printf("{\"what\": \"run\", \"mpi\": \"%s\", \"ranks\": %d, \"pinned\": %d}\n",
		       version, b->ranks, pinned);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double job_median(double *t, int n)
{
	qsort(t, (size_t)n, sizeof(*t), by_value);
	return n ? t[n / 2] : 0;
}

/* A launcher may have put this process into a session of its own, and sessions share the machine
 * evenly (autogroup) whatever their processes' niceness is; so both are set. Best effort. */
void job_set_nice(int value)
{
	FILE *f = fopen("/proc/self/autogroup", "w");

	if (f) {
		fprintf(f, "%d", value);
		fclose(f);
	}
	setpriority(PRIO_PROCESS, 0, value);
}

long job_lost_core(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return u.ru_nivcsw;
}

uint64_t job_count_lines(const char *path)
{
	FILE *f = fopen(path, "r");
	uint64_t lines = 0;
	int c;

	while (f && (c = getc(f)) != EOF)
		lines += c == '\n';
	if (f)
		fclose(f);
	return lines;
}

uint64_t job_count_entries(const char *path)
{
	DIR *dir = opendir(path);
	uint64_t n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static void watch_add(struct job_watch *w, long pid, long tid)
{
	char path[64];
	int fd;

	if (w->count == JOB_MAX_THREADS)
		return;
	snprintf(path, sizeof(path), "/proc/%ld/task/%ld/schedstat", pid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		w->fds[w->count++] = fd;
}

/* Above every ordinary process; they sleep most of the time. */
static void raise_thread(long tid)
{
	struct sched_param lowest = { .sched_priority = sched_get_priority_min(SCHED_FIFO) };

	if (sched_setscheduler((pid_t)tid, SCHED_FIFO, &lowest))
		job_die("threads cannot be given a real-time priority");
}

static void watch_threads(struct job_watch *w, long pid, bool raise)
{
	long self = syscall(SYS_gettid), tid;
	struct dirent *e;
	char path[32];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%ld/task", pid);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		tid = atol(e->d_name);
		if (tid <= 0 || tid == self)
			continue;
		watch_add(w, pid, tid);
		if (raise)
			raise_thread(tid);
	}
	if (dir)
		closedir(dir);
}

/* Is this the worker process that Sluice has started from here? It says so in its arguments. */
static bool is_our_worker(long pid)
{
	char path[32], text[64] = "";
	size_t name;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%ld/cmdline", pid);
	f = fopen(path, "r");
	if (!f)
		return false;
	if (!fread(text, 1, sizeof(text) - 2, f))
		text[0] = 0;
	fclose(f);
	name = strlen(text);
	return strstr(text, "sluice-worker") && atol(text + name + 1) == getpid();
}

void job_watch_open(struct job_watch *w, bool raise)
{
	DIR *dir = opendir("/proc");
	struct dirent *e;

	w->count = 0;
	watch_add(w, getpid(), syscall(SYS_gettid));
	watch_threads(w, getpid(), raise);
	while (dir && (e = readdir(dir)))
		if (atol(e->d_name) > 0 && is_our_worker(atol(e->d_name)))
			watch_threads(w, atol(e->d_name), raise);
	if (dir)
		closedir(dir);
}

void job_watch_close(struct job_watch *w)
{
	while (w->count)
		close(w->fds[--w->count]);
}

void job_watch_read(const struct job_watch *w, struct job_cpu *out)
{
	unsigned long long run, delay;
	struct timespec own;
	char text[96];
	ssize_t n;

	*out = (struct job_cpu){ 0 };
	for (int i = 0; i < w->count; i++) {
		n = pread(w->fds[i], text, sizeof(text) - 1, 0);
		text[n > 0 ? n : 0] = 0;
		if (sscanf(text, "%llu %llu", &run, &delay) != 2)
			continue;
		*(i ? &out->workers_delay_ns : &out->delay_ns) += delay;
		out->workers_run_ns += i ? run : 0; /* exact: they sleep */
	}
	/* the kernel's figure in schedstat is as old as the last tick */
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &own);
	out->run_ns = (uint64_t)own.tv_sec * 1000000000ull + (uint64_t)own.tv_nsec;
}

/* Work before the measurement, such as filling buffers, does not count as waiting for a core. */
uint64_t job_begin(struct bench *b, const struct job_watch *w, struct job_cpu *before)
{
	bench_sync(b);
	job_watch_read(w, before);
	return bench_start_common(b);
}

void job_say(struct bench *b, const struct job_watch *w, const struct job_cpu *before, uint64_t ns)
{
	uint64_t *line = b->area->value[b->rank];
	struct job_cpu after;

	job_watch_read(w, &after);
	line[JOB_SAYS_NS] = ns;
	line[JOB_SAYS_RUN] = after.run_ns - before->run_ns;
	line[JOB_SAYS_DELAY] = after.delay_ns - before->delay_ns;
	line[JOB_SAYS_THEIR_RUN] = after.workers_run_ns - before->workers_run_ns;
	line[JOB_SAYS_THEIR_DELAY] = after.workers_delay_ns - before->workers_delay_ns;
}

bool job_is_disturbed(const struct bench *b, bool shared, uint64_t ns)
{
	uint64_t run = 0, delay = 0, most = 0, their_run = 0, their_delay = 0;

	for (int r = 0; r < b->ranks; r++) {
		const uint64_t *line = b->area->value[r];

		run += line[JOB_SAYS_RUN];
		delay += line[JOB_SAYS_DELAY];
		most = line[JOB_SAYS_DELAY] > most ? line[JOB_SAYS_DELAY] : most;
		their_run += line[JOB_SAYS_THEIR_RUN];
		their_delay += line[JOB_SAYS_THEIR_DELAY];
	}
	if (!shared)
		return most > ns / 30 + 5000;
	return delay > run + ns / 20 + 20000 || their_delay > their_run + WOKEN_LATE_NS + ns / 20;
}

/* ---- computation --------------------------------------------------------------------------- */

static double matrix_a[ORDER][ORDER], matrix_b[ORDER][ORDER], matrix_c[ORDER][ORDER];

void job_compute_init(void)
{
	for (int i = 0; i < ORDER; i++)
		for (int k = 0; k < ORDER; k++) {
			matrix_a[i][k] = 1.0 / (1 + i + k);
			matrix_b[i][k] = i == k ? 1.5 : 0.25;
		}
}

__attribute__((noinline)) void job_compute(uint64_t units)
{
	for (uint64_t u = 0; u < units; u++) {
		double *c = matrix_c[u % ORDER];

		memset(c, 0, sizeof(matrix_c[0]));
		for (int k = 0; k < ORDER; k++)
			for (int i = 0; i < ORDER; i++)
				c[i] += matrix_a[u % ORDER][k] * matrix_b[k][i];
		__asm__ volatile("" ::"r"(c) : "memory"); /* the product counts as needed */
	}
}

/* The fastest of some. */
double job_unit_ns(struct bench *b)
{
	uint64_t fastest = UINT64_MAX, t0, ns;

	for (int turn = 0; turn < b->ranks; turn++) {
		bench_sync(b);
		for (int i = 0; turn == b->rank && i < 200; i++) {
			t0 = bench_now_ns();
			job_compute(UNIT_BATCH);
			ns = bench_now_ns() - t0;
			fastest = ns < fastest ? ns : fastest;
		}
	}
	b->area->value[b->rank][JOB_SAYS_NS] = fastest;
	bench_sync(b);
	for (int r = 0; r < b->ranks; r++) {
		ns = b->area->value[r][JOB_SAYS_NS];
		fastest = ns > fastest ? ns : fastest;
	}
	bench_sync(b);
	return (double)fastest / UNIT_BATCH;
}
