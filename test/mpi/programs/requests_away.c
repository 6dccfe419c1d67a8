/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank that has called, and computes for as long as it likes, is needed by nobody: the others'
 * collectives end meanwhile. With an MPI that progresses in calls only this would never end: it is
 * for Sluice, with requests taken.
 */
#include "check.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sched.h>
#include <sys/syscall.h>

#define MAX_BYTES ((size_t)1 << 20)

static const size_t sizes[] = { 8, 1800, 5000, 70008, MAX_BYTES - 40 };
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

enum kind {
	BCAST,
	GATHER,
	SCATTER,
	ALLGATHER,
	ALLTOALL,
	ALLTOALL_IN_PLACE,
	ALLREDUCE,
	ALLREDUCE_IN_PLACE,
	SCAN,
	REDUCE_SCATTER_BLOCK,
	KINDS
};

/* Not the MPI's messages: they would need the rank that is away. */
struct page { _Atomic int called, ended; };

static struct page *page;
static MPI_Win window;
static int turn; /* as the page counts */
static char *send, *recv; /* as they come from the heap, and not at the beginnings of pages */

static void begin(void)
{
	MPI_Aint bytes;
	int unit;
	char *large = check_alloc(MAX_BYTES);

	MPI_Win_allocate_shared(rank ? 0 : sizeof(*page), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &page,
				&window);
	MPI_Win_shared_query(window, 0, &bytes, &unit, &page);
	if (!rank)
		*page = (struct page){ 0 };
	turn = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	send = (char *)check_alloc(MAX_BYTES * (size_t)size + 64) + 24;
	recv = (char *)check_alloc(MAX_BYTES * (size_t)size + 64) + 40;
	/* a communicator is served from its first large blocking collective on */
	for (int i = 0; i < 2; i++)
		MPI_Bcast(large, (int)MAX_BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
	free(large);
}

static void end(void)
{
	free(send - 24);
	free(recv - 40);
	MPI_Win_free(&window);
}

static uint32_t word(int from, size_t i) { return (uint32_t)from * 1000003u + (uint32_t)i * 31u; }

static void fill(uint32_t *at, int from, size_t first, size_t bytes)
{
	for (size_t i = 0; i < bytes / 4; i++)
		at[i] = word(from, first + i);
}

static void call(enum kind kind, int n, MPI_Request *r)
{
	MPI_Comm comm = MPI_COMM_WORLD;

	switch (kind) {
	case BCAST: MPI_Ibcast(send, n, MPI_BYTE, 0, comm, r); break;
	case GATHER: MPI_Igather(send, n, MPI_BYTE, recv, n, MPI_BYTE, 0, comm, r); break;
	case SCATTER: MPI_Iscatter(send, n, MPI_BYTE, recv, n, MPI_BYTE, 0, comm, r); break;
	case ALLGATHER: MPI_Iallgather(send, n, MPI_BYTE, recv, n, MPI_BYTE, comm, r); break;
	case ALLTOALL: MPI_Ialltoall(send, n, MPI_BYTE, recv, n, MPI_BYTE, comm, r); break;
	case ALLTOALL_IN_PLACE:
		MPI_Ialltoall(MPI_IN_PLACE, n, MPI_BYTE, recv, n, MPI_BYTE, comm, r);
		break;
	case ALLREDUCE: MPI_Iallreduce(send, recv, n / 4, MPI_UINT32_T, MPI_SUM, comm, r); break;
	case ALLREDUCE_IN_PLACE:
		MPI_Iallreduce(MPI_IN_PLACE, recv, n / 4, MPI_UINT32_T, MPI_SUM, comm, r);
		break;
	case SCAN: MPI_Iscan(send, recv, n / 4, MPI_UINT32_T, MPI_SUM, comm, r); break;
	default: MPI_Ireduce_scatter_block(send, recv, n / 4, MPI_UINT32_T, MPI_SUM, comm, r);
	}
}

/* Everything that a rank could send is there, whoever gets it. */
static void prepare(enum kind kind, size_t n)
{
	int of_all = kind == SCATTER || kind == ALLTOALL || kind == ALLTOALL_IN_PLACE ||
		     kind == REDUCE_SCATTER_BLOCK;
	bool in_place = kind == ALLTOALL_IN_PLACE || kind == ALLREDUCE_IN_PLACE;

	memset(recv, 1, n * (size_t)size);
	fill((uint32_t *)(in_place ? recv : send), kind == BCAST && rank ? 99 : rank, 0,
	     of_all ? n * (size_t)size : n);
}

/* The i-th word of what came from rank `from`, or of the sum of the first so many. */
static uint32_t expected(enum kind kind, int from, size_t i, size_t words)
{
	size_t mine = (size_t)rank * words;
	uint32_t sum = 0;

	if (kind == SCATTER || kind == ALLTOALL || kind == ALLTOALL_IN_PLACE)
		return word(from, mine + i);
	if (kind < ALLREDUCE)
		return word(from, i);
	for (int r = 0; r < (kind == SCAN ? rank + 1 : size); r++)
		sum += word(r, i + (kind == REDUCE_SCATTER_BLOCK ? mine : 0));
	return sum;
}

static void check(enum kind kind, size_t n)
{
	int parts = kind == GATHER                                   ? (rank ? 0 : size)
		    : kind >= ALLGATHER && kind <= ALLTOALL_IN_PLACE ? size
								     : 1;
	const uint32_t *at = (const uint32_t *)(kind == BCAST ? send : recv);

	for (int from = 0; from < parts; from++)
		for (size_t i = 0; i < n / 4; i++)
			if (at[(size_t)from * (n / 4) + i] != expected(kind, from, i, n / 4)) {
				check_fail("kind %d, %zu bytes: word %zu of part %d is wrong",
					   (int)kind, n, i, from);
				return;
			}
}

static void until(_Atomic int *what, int value)
{
	while (atomic_load(what) < value)
		sched_yield();
}

static void one(enum kind kind, size_t n, int away)
{
	MPI_Request r;

	turn++;
	prepare(kind, n);
	if (rank != away)
		until(&page->called, turn);
	call(kind, (int)n, &r);
	if (rank == away) {
		atomic_store(&page->called, turn);
		until(&page->ended, turn * (size - 1));
	}
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	if (rank != away)
		atomic_fetch_add(&page->ended, 1);
	check(kind, n);
}

BEHAVIOUR(a_rank_that_has_called_is_needed_by_nobody, 2)
{
	begin();
	for (int kind = 0; kind < KINDS; kind++)
		for (int s = 0; s < SIZES; s++)
			for (int away = 0; away < size; away += size > 2 ? size - 1 : 1)
				one((enum kind)kind, sizes[s] / 8 * 8, away);
	end();
}

/* ---- nothing is pending ------------------------------------------------------------------ */

/* How often the other threads of this process have waited for something, that is, were woken. */
static long switches_of_others(void)
{
	char path[300], line[128], self[32];
	DIR *dir = opendir("/proc/self/task");
	struct dirent *e;
	long n, sum = 0;

	snprintf(self, sizeof(self), "%ld", (long)syscall(SYS_gettid));
	while (dir && (e = readdir(dir))) {
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
		f = e->d_name[0] == '.' || !strcmp(e->d_name, self) ? NULL : fopen(path, "r");
		while (f && fgets(line, sizeof(line), f))
			if (sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1)
				sum += n;
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return sum;
}

static long switches_while_computing(long turns)
{
	static volatile double x = 1;
	long before = switches_of_others();

	for (long i = 0; i < turns; i++)
		x = x * 1.0000001 + 1e-9;
	return switches_of_others() - before;
}

/* Whoever looks for work for a while before it sleeps has to find its way there first; then nobody
 * wakes, for however long. */
BEHAVIOUR(computing_with_nothing_pending_wakes_no_thread, 2)
{
	enum { TRIES = 2000, SOME = 2000000, MANY = 50000000 };
	int tries = 0;

	begin();
	for (int kind = 0; kind < KINDS; kind++)
		one((enum kind)kind, sizes[SIZES - 1] / 8 * 8, 0);
	MPI_Barrier(MPI_COMM_WORLD);
	while (switches_while_computing(SOME) && tries < TRIES)
		tries++;
	if (tries == TRIES)
		check_fail("threads do not come to rest");
	else if (switches_while_computing(MANY))
		check_fail("a thread was woken although nothing was pending");
	end();
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
