/* SPDX-License-Identifier: BSD-3-Clause */
/* Early return may not cost: growth over many collectives, wake-ups when nothing is under way,
 * and the time of a rank whose partner is late or computes. */
#include "early.h"

#include <dirent.h>
#include <malloc.h>
#include <signal.h>

enum {
	BUFFERS = 8,
	ROOM = 80000,
	MORE_THREADS =
		6, /* as many faults may be waited for at once, all that there will ever be */
};

static bool grown(const char *what, long before, long after, long allowed)
{
	if (after <= before + allowed)
		return false;
	check_fail("%s: %ld, then %ld", what, before, after);
	return true;
}

/* HARNESS_COUNT collectives of sizes around the threshold; every third is looked at. */
BEHAVIOUR(many_collectives, 2)
{
	long count = check_env("HARNESS_COUNT", 20000);
	struct check_usage before = { 0 }, after;
	uint64_t common = 11;
	char *bufs[BUFFERS], *all = check_alloc((size_t)size * ROOM);

	for (int i = 0; i < BUFFERS; i++)
		bufs[i] = check_alloc(ROOM);
	for (long i = 0; i < count; i++) {
		char *buf = bufs[check_random(&common) % BUFFERS];
		size_t bytes = 60000 + check_random(&common) % 12000;
		int root = (int)(check_random(&common) % (uint64_t)size);

		buf[0] = buf[bytes / 2] = (char)(rank == root ? i : -1);
		if (i % 5 == 4)
			MPI_Gather(buf, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, root,
				   MPI_COMM_WORLD);
		else
			MPI_Bcast(buf, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
		if (i % 3 == 0 && i % 5 != 4 && (buf[0] != (char)i || buf[bytes / 2] != (char)i)) {
			check_fail("collective %ld: wrong bytes", i);
			break;
		}
		if (i % 3 == 0 && i % 5 == 4 && rank == root &&
		    all[bytes * (size_t)root + bytes / 2] != (char)i)
			check_fail("collective %ld: wrong bytes", i);
		if (i == count / 10)
			check_usage(&before);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	check_usage(&after);
	grown("mappings", before.mappings, after.mappings, 30);
	grown("descriptors", before.descriptors, after.descriptors, 0);
	grown("threads", before.threads, after.threads, MORE_THREADS);
	grown("memory in KB", before.rss_kb, after.rss_kb, 20 * 1024);
	for (int i = 0; i < BUFFERS; i++)
		free(bufs[i]);
	free(all);
}

/* Each collective in a block of its own, freed with data under way. */
BEHAVIOUR(many_buffers_freed_meanwhile, 2)
{
	long count = check_env("HARNESS_COUNT", 20000) / 20;
	struct check_usage before = { 0 }, after;

	for (long i = 0; i < count; i++) {
		size_t bytes = 70000 + (size_t)(i * 977 % 300000);
		char *buf = check_alloc(bytes);

		buf[bytes - 1] = (char)i;
		MPI_Bcast(buf, (int)bytes, MPI_BYTE, (int)(i % size), MPI_COMM_WORLD);
		if (i % 4 == 0)
			EXPECT(buf[bytes - 1] == (char)i);
		free(buf);
		if (i == count / 5)
			check_usage(&before);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	check_usage(&after);
	grown("mappings", before.mappings, after.mappings, 60);
	grown("descriptors", before.descriptors, after.descriptors, 0);
	grown("threads", before.threads, after.threads, MORE_THREADS);
	grown("memory in KB", before.rss_kb, after.rss_kb, 100 * 1024);
}

/* Voluntary switches of all threads: how often something waited, that is, was woken. */
static long switches(void)
{
	char path[300], text[200];
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	long n, sum = 0;

	while (d && (e = readdir(d))) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
		f = e->d_name[0] == '.' ? NULL : fopen(path, "r");
		while (f && fgets(text, sizeof(text), f))
			if (sscanf(text, "voluntary_ctxt_switches: %ld", &n) == 1)
				sum += n;
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return sum;
}

static void compute(double seconds)
{
	static volatile double x = 1;
	double until = early_now() + seconds;

	while (early_now() < until)
		for (int i = 0; i < 20000; i++)
			x = x * 1.0000001 + 1e-9;
}

/* After some collectives, when their data is there: two seconds of computing. */
BEHAVIOUR(switches_when_nothing_is_under_way, 2)
{
	size_t bytes = 1 << 20;
	char *buf = adopted_heap(bytes, 3);
	long before;

	for (int i = 0; i < 30; i++)
		check_bcast(buf, bytes, i % size, MPI_COMM_WORLD, i);
	MPI_Barrier(MPI_COMM_WORLD);
	early_sleep_us(50000);
	before = switches();
	compute(2);
	check_note("%ld switches", switches() - before);
	free(buf);
}

static _Atomic int told;
static void tell(int sig)
{
	told++;
}

static pid_t begin_telling(void)
{
	struct sigaction a = { .sa_handler = tell, .sa_flags = SA_RESTART };
	pid_t root = getpid();

	sigaction(SIGRTMIN, &a, NULL);
	MPI_Bcast(&root, sizeof(root), MPI_BYTE, 0, MPI_COMM_WORLD);
	return root;
}

/* Until all others have told rank 0, or so many seconds have gone by. */
static bool all_have_told(double seconds)
{
	double until = early_now() + seconds;

	while (told < size - 1 && early_now() < until)
		compute(0.001);
	return told == size - 1;
}

/*
 * The root comes when all others have told it that their call has returned: one that waits for its
 * root never does. (How little time that costs is measured in bench/.)
 */
BEHAVIOUR(calls_return_before_their_root_comes, 2)
{
	enum { ROUNDS = 5 };
	size_t bytes = 1 << 20;
	int before = 0;
	pid_t root;
	char *buf;

	mallopt(M_MMAP_THRESHOLD, 128 << 10); /* as before the first free() */
	buf = adopted_heap(bytes, 4);
	root = begin_telling();
	for (int i = 0; i < ROUNDS; i++) {
		told = 0;
		if (!rank)
			check_fill(buf, bytes, i);
		else
			memset(buf, 0, bytes);
		MPI_Barrier(MPI_COMM_WORLD);
		if (!rank)
			before += all_have_told(5);
		MPI_Bcast(buf, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		if (rank)
			sigqueue(root, SIGRTMIN, (union sigval){ 0 });
		check_same(buf, bytes, i, "broadcast");
	}
	if (!rank)
		check_note("%d of %d", before, ROUNDS);
	free(buf);
}

/*
 * The root, who comes last and so gives the data to its channel, computes, without a call of MPI,
 * until all others have said that they have it; whatever becomes of the channel.
 */
BEHAVIOUR(computing_root_holds_nobody_up, 2)
{
	size_t bytes = 4 << 20;
	char *buf = check_alloc(
		bytes); /* adopted at its first use, or late: SLUICE_REGION_ADOPT_AFTER */
	pid_t root = begin_telling();

	for (int round = 0; round < 3; round++) {
		told = 0;
		if (!rank)
			check_fill(buf, bytes, round);
		else
			memset(buf, 0, bytes);
		MPI_Barrier(MPI_COMM_WORLD);
		if (!rank)
			early_sleep_us(30000);
		MPI_Bcast(buf, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		if (rank) {
			early_sleep_us(60000);
			check_same(buf, bytes, round, "broadcast");
			sigqueue(root, SIGRTMIN, (union sigval){ 0 });
			continue;
		}
		EXPECT(all_have_told(10));
	}
	free(buf);
}

/* The engine hangs: a touch waits for the time-out, then this CPU copies. */
BEHAVIOUR(touches_of_what_hangs, 2)
{
	size_t bytes = 256 << 10;
	uint64_t longest = 0;

	for (int round = 0; round < 6; round++) {
		char *buf = check_alloc(bytes);
		struct timespec from, to;
		uint64_t us;

		check_fill(buf, bytes, rank ? 0 : round);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Bcast(buf, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		if (rank) {
			early_sleep_us(5000);
			clock_gettime(CLOCK_MONOTONIC, &from);
			*(volatile char *)buf;
			clock_gettime(CLOCK_MONOTONIC, &to);
			us = (uint64_t)((to.tv_sec - from.tv_sec) * 1000000 +
					(to.tv_nsec - from.tv_nsec) / 1000);
			longest = us > longest ? us : longest;
			check_same(buf, bytes, round, "broadcast");
		} else {
			early_sleep_us(80000); /* the touch is the first that waits */
		}
		MPI_Barrier(MPI_COMM_WORLD);
		free(buf);
	}
	if (rank)
		check_note("%lu us", (unsigned long)longest);
}

static int open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* The channel of the root hangs, and the rank that waits for it calls the root for 10 ms only: the
 * root takes its copies back, and closes the queue, when the time-out is over. In some rounds the
 * other rank moves all by itself. */
BEHAVIOUR(root_that_was_called_looks_again, 2)
{
	size_t bytes = 4 << 20;
	char *buf = check_alloc(bytes);
	pid_t other = getpid();
	int closed = 0;

	MPI_Bcast(&other, sizeof(other), MPI_BYTE, 1, MPI_COMM_WORLD);
	for (int round = 0; round < 30 && !closed; round++) {
		check_fill(buf, bytes, rank ? 0 : round);
		MPI_Barrier(MPI_COMM_WORLD);
		if (!rank)
			early_sleep_us(30000);
		MPI_Bcast(buf, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		if (rank) {
			check_same(buf, bytes, round, "broadcast");
		} else {
			int before;

			early_sleep_us(10000);
			before = open_files();
			kill(other, SIGSTOP);
			early_sleep_us(150000);
			closed = open_files() < before;
			kill(other, SIGCONT);
		}
		MPI_Bcast(&closed, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	if (!rank)
		check_note("%d queues closed", closed);
	MPI_Barrier(MPI_COMM_WORLD);
	free(buf);
}

/* The device is slower than the time-out: the root's next call gives its queue up, and waits until
 * the device has ended what it holds. */
BEHAVIOUR(root_goes_on_after_it_has_closed_a_queue, 2)
{
	size_t bytes = 4 << 20;
	char *one = check_alloc(bytes), *two = check_alloc(bytes);

	check_fill(one, bytes, rank ? 0 : 1);
	check_fill(two, bytes, rank ? 0 : 2);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		early_sleep_us(30000);
	MPI_Bcast(one, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
	early_sleep_us(rank ? 300000 : 70000); /* nobody calls the root meanwhile */
	MPI_Bcast(two, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
	check_same(one, bytes, 1, "first broadcast");
	check_same(two, bytes, 2, "second broadcast");
	MPI_Barrier(MPI_COMM_WORLD);
	free(one);
	free(two);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
