/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * idle_bench: what a program is disturbed by when nothing of it is pending. Broadcasts and gathers
 * first, so that everything exists that such calls bring into being; then it computes for a while,
 * then it sleeps for a while. Context switches of all threads of all ranks in each of the two, as
 * the kernel counts them; a voluntary switch is a wake-up.
 */
#include <mpi.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "job.h"

struct switches {
	long voluntary, forced;               /* of the calling thread */
	long others_voluntary, others_forced; /* of all other threads */
	long threads;
	double cpu_s;
};

static void add_thread(const char *tid, struct switches *s, bool mine)
{
	char path[320], line[128];
	long n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%s/status", tid);
	f = fopen(path, "r");
	s->threads++;
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
			*(mine ? &s->voluntary : &s->others_voluntary) += n;
		if (sscanf(line, "nonvoluntary_ctxt_switches: %ld", &n) == 1)
			*(mine ? &s->forced : &s->others_forced) += n;
	}
	if (f)
		fclose(f);
}

static struct switches count(void)
{
	struct switches s = { 0 };
	struct rusage u;
	long self = syscall(SYS_gettid);
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			add_thread(e->d_name, &s, atol(e->d_name) == self);
	if (dir)
		closedir(dir);
	getrusage(RUSAGE_SELF, &u);
	s.cpu_s = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
		  1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
	return s;
}

static void report(struct bench *b, const char *what, double seconds, struct switches x,
		   struct switches y)
{
	long mine[6] = { y.voluntary - x.voluntary,
			 y.forced - x.forced,
			 y.others_voluntary - x.others_voluntary,
			 y.others_forced - x.others_forced,
			 y.threads,
			 (long)(1e6 * (y.cpu_s - x.cpu_s)) };
	long all[6];

	MPI_Reduce(mine, all, 6, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (b->rank == 0)
		printf("{\"what\": \"%s\", \"who\": \"all\", \"bytes\": 0, \"ranks\": %d, "
		       "\"seconds\": %.2f, "
		       "\"voluntary\": %ld, \"forced\": %ld, \"others_voluntary\": %ld, "
		       "\"others_forced\": %ld, \"threads\": %ld, \"cpu_us\": %ld}\n",
		       what, b->ranks, seconds, all[0], all[1], all[2], all[3], all[4], all[5]);
}

static void collectives(const struct bench *b, char *send, char *recv, int bytes)
{
	for (int i = 0; i < 12; i++) {
		MPI_Bcast(send, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		usleep(1000);
		(void)bench_touch(send, (size_t)bytes);
		MPI_Gather(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		usleep(1000);
		bench_smear(send, (size_t)bytes, (unsigned char)i);
		if (b->rank == 0)
			(void)bench_touch(recv, (size_t)bytes * (size_t)b->ranks);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	usleep(200000); /* whoever lingers before it sleeps has gone to sleep */
}

static void idle(struct bench *b, double seconds, const char *when)
{
	uint64_t ns = (uint64_t)(1e9 * seconds);
	struct timespec nap = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
	struct switches x, y, z;
	char what[64];
	uint64_t end;

	MPI_Barrier(MPI_COMM_WORLD);
	x = count();
	end = bench_now_ns() + ns;
	while (bench_now_ns() < end)
		;
	y = count();
	nanosleep(&nap, NULL);
	z = count();
	snprintf(what, sizeof(what), "computes-%s", when);
	report(b, what, seconds, x, y);
	snprintf(what, sizeof(what), "sleeps-%s", when);
	report(b, what, seconds, y, z);
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	double seconds = 0.5;
	int bytes = 4 << 20, nice = 0;
	bool pin = false;
	char *send, *recv;
	const char *v;

	MPI_Init(&argc, &argv);
	for (int i = 1; i < argc; i++) {
		if ((v = job_value(argv[i], "ms")))
			seconds = atof(v) / 1000;
		else if ((v = job_value(argv[i], "nice")))
			nice = atoi(v);
		else if ((v = job_value(argv[i], "pin")))
			pin = atoi(v);
		else if ((v = job_value(argv[i], "shared")))
			b.crowded = atoi(v);
		else
			job_die("arguments: ms nice pin shared");
	}
	if (nice)
		job_set_nice(nice);
	job_open(&b);
	if (pin && !b.crowded)
		bench_pin(b.rank);
	job_print_run(&b, pin && !b.crowded);
	idle(&b, seconds, "before");
	send = job_memory((size_t)bytes);
	recv = job_memory((size_t)bytes * (size_t)b.ranks);
	memset(send, 1, (size_t)bytes);
	memset(recv, 1, (size_t)bytes * (size_t)b.ranks);
	collectives(&b, send, recv, bytes);
	idle(&b, seconds, "after");
	MPI_Finalize();
	return 0;
}
