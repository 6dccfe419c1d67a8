/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives that trials decide about: whatever each rank measures, all of them come to the same
 * for each call, or the job would hang, and the data is right.
 *
 * Run alone: SLUICE_DECIDE=measure mpiexec -n 3 sluice run decide one_kind
 */
#include "check.h"

#include <unistd.h>

enum { BYTES = 300000, CALLS = 100 };

static void bcast(char *buf, size_t bytes, int call)
{
	check_bcast(buf, bytes, call % size, MPI_COMM_WORLD, check_seed(call, 1));
}

static void alltoall(char *send, char *recv, size_t bytes, int call)
{
	for (int r = 0; r < size; r++)
		check_fill(send + (size_t)r * bytes, bytes, check_seed(call, rank * 100 + r));
	MPI_Alltoall(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
	for (int r = 0; r < size; r++)
		check_same(recv + (size_t)r * bytes, bytes, check_seed(call, r * 100 + rank),
			   "alltoall");
}

static void allreduce(char *send, char *recv, size_t bytes, int call)
{
	int n = (int)(bytes / sizeof(int)), *in = (int *)send, *out = (int *)recv;

	for (int i = 0; i < n; i++)
		in[i] = i * (rank + 1) + call;
	MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < n; i++)
		if (out[i] != i * (size * (size + 1) / 2) + call * size) {
			check_fail("call %d: element %d is %d", call, i, out[i]);
			return;
		}
}

/* Every rank gets another share of the vector. In each fourth call the input lies in the receive
 * buffer. */
static void reduce_scatter(char *send, char *recv, size_t bytes, int call)
{
	int counts[64], n = (int)(bytes / sizeof(int)), first = 0, *out = (int *)recv;
	bool in_place = call % 4 == 3;
	int *in = in_place ? out : (int *)send;

	for (int r = 0, rest = n; r < size; rest -= counts[r++])
		counts[r] = r < size - 1 ? rest / (2 + r) + 1 : rest;
	for (int r = 0; r < rank; r++)
		first += counts[r];
	for (int i = 0; i < n; i++)
		in[i] = i * (rank + 1) + call;
	MPI_Reduce_scatter(in_place ? MPI_IN_PLACE : in, out, counts, MPI_INT, MPI_SUM,
			   MPI_COMM_WORLD);
	for (int i = 0; i < counts[rank]; i++)
		if (out[i] != (first + i) * (size * (size + 1) / 2) + call * size) {
			check_fail("call %d: element %d is %d", call, i, out[i]);
			return;
		}
}

BEHAVIOUR(one_kind, 2)
{
	char *buf = check_alloc(BYTES);

	for (int i = 0; i < CALLS; i++)
		bcast(buf, BYTES, i);
	free(buf);
}

/* Trials of several classes begin while others run, and some never go on. */
BEHAVIOUR(many_kinds, 2)
{
	char *send = check_alloc((size_t)BYTES * size), *recv = check_alloc((size_t)BYTES * size);

	for (int i = 0; i < CALLS; i++) {
		size_t bytes = BYTES >> i % 3;

		if (i < 5)
			alltoall(send, recv, bytes, i);
		bcast(send, bytes, i);
		if (i % 2)
			allreduce(send, recv, bytes, i);
		check_gather(send, recv, bytes, i % size, MPI_COMM_WORLD, check_seed(i, 7));
	}
	free(send);
	free(recv);
}

BEHAVIOUR(late_and_slow_ranks, 2)
{
	char *send = check_alloc((size_t)BYTES * size), *recv = check_alloc((size_t)BYTES * size);

	for (int i = 0; i < CALLS / 4; i++) {
		if (rank == i % size)
			usleep(3000);
		alltoall(send, recv, BYTES, i);
		bcast(send, BYTES, i);
	}
	free(send);
	free(recv);
}

BEHAVIOUR(communicators_come_and_go, 2)
{
	char *send = check_alloc((size_t)BYTES * size), *recv = check_alloc((size_t)BYTES * size);
	MPI_Comm comm;

	for (int i = 0; i < 12; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		/* freed before, inside and after a trial */
		for (int k = 0; k < i; k++)
			check_gather(send, recv, BYTES, k % size, comm, check_seed(i, k));
		MPI_Comm_free(&comm);
	}
	free(send);
	free(recv);
}

/* No buffer is used twice, so none is adopted. */
BEHAVIOUR(new_buffers, 2)
{
	enum { SUMS = 64, SUM_BYTES = 1 << 20 };
	char *used[2 * CALLS];

	for (int i = 0; i < CALLS; i++) {
		char *send = used[2 * i] = check_alloc((size_t)BYTES * size),
		     *recv = used[2 * i + 1] = check_alloc((size_t)BYTES * size);

		alltoall(send, recv, BYTES, i);
	}
	for (int i = 0; i < 2 * CALLS; i++)
		free(used[i]);
	for (int i = 0; i < SUMS; i++) {
		char *send = used[2 * i] = check_alloc(SUM_BYTES),
		     *recv = used[2 * i + 1] = check_alloc(SUM_BYTES);

		allreduce(send, recv, SUM_BYTES, i);
	}
	for (int i = 0; i < 2 * SUMS; i++)
		free(used[i]);
}

static long shared_kb(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	long kb = 0;

	while (f && fgets(line, sizeof line, f))
		sscanf(line, "RssShmem: %ld", &kb);
	if (f)
		fclose(f);
	return kb;
}

/* Long sums are cut while buffers are new, whole while all ranks reuse theirs, and cut again. */
static void each_long_sum(void (*sum)(char *send, char *recv, size_t bytes, int call))
{
	enum { LONG = (8 << 20) + 8204, NEW = 5, REUSED = 14 };
	char *send, *recv;
	long before;

	MPI_Barrier(MPI_COMM_WORLD);
	before = shared_kb();
	for (int i = 0; i < 2 * NEW + REUSED; i++) {
		if (i <= NEW || i >= NEW + REUSED) {
			send = check_alloc(LONG);
			recv = check_alloc(LONG);
		}
		sum(send, recv, LONG - 4096 * (i % 3), i);
		if (i < NEW && shared_kb() - before > LONG >> 11)
			check_fail("call %d has taken %ld KB of shared memory", i,
				   shared_kb() - before);
		if (i < NEW || i >= NEW + REUSED - 1) {
			free(send);
			free(recv);
		}
	}
}

BEHAVIOUR(long_sums, 2) { each_long_sum(allreduce); }
BEHAVIOUR(long_scattered_sums, 2) { each_long_sum(reduce_scatter); }

/* 259 calls earn, by their lower bound, 1/32 of what connecting must be worth. */
BEHAVIOUR(few_short_ones, 2)
{
	enum { SHORT = 24 << 10, FEW = 300 };
	char *send = check_alloc((size_t)SHORT * size), *recv = check_alloc((size_t)SHORT * size);

	for (int i = 0; i < FEW; i++)
		alltoall(send, recv, SHORT, i);
	free(send);
	free(recv);
}

/* The first trials of short calls come later, and few of the calls look whether trials are due. */
BEHAVIOUR(short_ones, 2)
{
	enum { SHORT = 24 << 10 };
	char *send = check_alloc((size_t)SHORT * size), *recv = check_alloc((size_t)SHORT * size);

	for (int i = 0; i < 30 * CALLS; i++) {
		alltoall(send, recv, SHORT, i);
		if (i % 3 == 0)
			allreduce(send, recv, 2 * SHORT, i);
	}
	free(send);
	free(recv);
}

/* Each rank knows its own bytes of an exchange only. */
BEHAVIOUR(exchanges, 2)
{
	char *send = check_alloc((size_t)BYTES * size), *recv = check_alloc((size_t)BYTES * size);
	int *counts = check_alloc(4 * sizeof(int) * (size_t)size), *displs = counts + size;
	int *from = displs + size, *at = from + size;

	for (int i = 0; i < CALLS; i++) {
		for (int r = 0; r < size; r++) {
			/* some ranks send nothing, and the lengths change in the middle */
			counts[r] = rank == 1 ? 0 : BYTES / (r + 1) / (i < CALLS / 2 ? 1 : 100);
			from[r] = r == 1 ? 0 : BYTES / (rank + 1) / (i < CALLS / 2 ? 1 : 100);
			displs[r] = at[r] = r * BYTES;
			check_fill(send + displs[r], (size_t)counts[r],
				   check_seed(i, rank * 100 + r));
		}
		MPI_Alltoallv(send, counts, displs, MPI_BYTE, recv, from, at, MPI_BYTE,
			      MPI_COMM_WORLD);
		for (int r = 0; r < size; r++)
			check_same(recv + at[r], (size_t)from[r], check_seed(i, r * 100 + rank),
				   "exchange");
	}
	free(counts);
	free(send);
	free(recv);
}

enum { PART = 30000 /* ints of one rank */ };

/* Parts of equal length, as lists. */
struct lists { int counts[64], at[64], *send, *recv; };

static void lists_create(struct lists *l)
{
	for (int r = 0; r < size && r < 64; r++) {
		l->counts[r] = PART;
		l->at[r] = r * PART;
	}
	l->send = check_alloc((size_t)PART * size * sizeof(int));
	l->recv = check_alloc((size_t)PART * size * sizeof(int));
	for (int i = 0; i < PART * size; i++)
		l->send[i] = i + rank;
}

static void lists_free(struct lists *l)
{
	free(l->send);
	free(l->recv);
}

/* Element i of the result is factor * i + base. */
static void check_list(const struct lists *l, int n, int factor, int base)
{
	for (int i = 0; i < n; i++)
		if (l->recv[i] != factor * i + base) {
			check_fail("element %d is %d", i, l->recv[i]);
			return;
		}
}

BEHAVIOUR(allgatherv_alone, 2)
{
	struct lists l;

	lists_create(&l);
	for (int i = 0; i < CALLS; i++) {
		MPI_Allgatherv(l.send, PART, MPI_INT, l.recv, l.counts, l.at, MPI_INT,
			       MPI_COMM_WORLD);
		check_list(&l, PART, 1, 0);
	}
	lists_free(&l);
}

BEHAVIOUR(gatherv_alone, 2)
{
	struct lists l;

	lists_create(&l);
	for (int i = 0; i < CALLS; i++) {
		MPI_Gatherv(l.send, PART, MPI_INT, l.recv, l.counts, l.at, MPI_INT, 0,
			    MPI_COMM_WORLD);
		check_list(&l, rank ? 0 : PART, 1, 0);
	}
	lists_free(&l);
}

BEHAVIOUR(scatterv_alone, 2)
{
	struct lists l;

	lists_create(&l);
	for (int i = 0; i < CALLS; i++) {
		MPI_Scatterv(l.send, l.counts, l.at, MPI_INT, l.recv, PART, MPI_INT, 0,
			     MPI_COMM_WORLD);
		check_list(&l, PART, 1, rank * PART);
	}
	lists_free(&l);
}

BEHAVIOUR(reduce_scatter_alone, 2)
{
	struct lists l;

	lists_create(&l);
	for (int i = 0; i < CALLS; i++) {
		MPI_Reduce_scatter(l.send, l.recv, l.counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		check_list(&l, PART, size, rank * PART * size + size * (size - 1) / 2);
	}
	lists_free(&l);
}

BEHAVIOUR(reduce_scatter_block_alone, 2)
{
	struct lists l;

	lists_create(&l);
	for (int i = 0; i < CALLS; i++) {
		MPI_Reduce_scatter_block(l.send, l.recv, PART, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		check_list(&l, PART, size, rank * PART * size + size * (size - 1) / 2);
	}
	lists_free(&l);
}

/* ---- nonblocking calls ------------------------------------------------------------------- */

enum { DEEP = 4 };

/* Calls at once, and the kind of call that completes them. */
struct flight { MPI_Request requests[DEEP]; char *bufs[DEEP]; int n; };

static void flight_create(struct flight *f, int n)
{
	*f = (struct flight){ .n = n };
	for (int i = 0; i < n; i++)
		f->bufs[i] = check_alloc(BYTES);
}

static void flight_free(struct flight *f)
{
	for (int i = 0; i < f->n; i++)
		free(f->bufs[i]);
}

static int root_of(int round, int i) { return (round + i) % size; }

static void flight_start(struct flight *f, int round, MPI_Comm comm)
{
	for (int i = 0; i < f->n; i++) {
		uint64_t own = rank == root_of(round, i) ? 0 : 1000;

		check_fill(f->bufs[i], BYTES, check_seed(round, i) + own);
		MPI_Ibcast(f->bufs[i], BYTES, MPI_BYTE, root_of(round, i), comm, &f->requests[i]);
	}
}

static void flight_check(struct flight *f, int round)
{
	for (int i = 0; i < f->n; i++) {
		EXPECT(f->requests[i] == MPI_REQUEST_NULL);
		check_same(f->bufs[i], BYTES, check_seed(round, i), "ibcast");
	}
}

static void flight_waitall(struct flight *f, int round)
{
	MPI_Waitall(f->n, f->requests, MPI_STATUSES_IGNORE);
	flight_check(f, round);
}

/* Every call that can complete a request, in turn. */
static void flight_poll(struct flight *f, int round, int way)
{
	int n = 0, is_done = 0, at[DEEP], i;

	switch (way % 7) {
	case 0:
		for (i = 0; i < f->n; i++)
			for (is_done = 0; !is_done;)
				MPI_Test(&f->requests[i], &is_done, MPI_STATUS_IGNORE);
		break;
	case 1:
		while (!is_done)
			MPI_Testall(f->n, f->requests, &is_done, MPI_STATUSES_IGNORE);
		break;
	case 2:
		for (int k = 0; k < f->n; k++)
			MPI_Waitany(f->n, f->requests, &i, MPI_STATUS_IGNORE);
		break;
	case 3:
		for (int k = 0; k < f->n; k += n)
			MPI_Waitsome(f->n, f->requests, &n, at, MPI_STATUSES_IGNORE);
		break;
	case 4:
		for (int k = 0; k < f->n; k += n)
			MPI_Testsome(f->n, f->requests, &n, at, MPI_STATUSES_IGNORE);
		break;
	case 5:
		for (int k = 0; k < f->n; k += is_done)
			MPI_Testany(f->n, f->requests, &i, &is_done, MPI_STATUS_IGNORE);
		break;
	default:
		for (i = 0; i < f->n; i++)
			MPI_Wait(&f->requests[i], MPI_STATUS_IGNORE);
	}
	flight_check(f, round);
}

/* The ranks can agree at blocking collectives. */
static void meet(void)
{
	int one = 1, sum;

	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	EXPECT(sum == size);
}

/* n requests are active at a time. polled: each rank completes them by other calls. */
static void requests_in_a_row(int n, bool polled)
{
	struct flight f;

	flight_create(&f, n);
	for (int i = 0; i < CALLS; i++) {
		flight_start(&f, i, MPI_COMM_WORLD);
		if (polled)
			flight_poll(&f, i, i + rank);
		else
			flight_waitall(&f, i);
		if (i % 4 == 3)
			meet();
	}
	flight_free(&f);
}

BEHAVIOUR(requests_one_by_one, 2) { requests_in_a_row(1, false); }
BEHAVIOUR(requests_at_once, 2) { requests_in_a_row(3, false); }
BEHAVIOUR(requests_polled, 2) { requests_in_a_row(2, true); }

/* Whenever the ranks can agree, a request is active, and blocking calls have trials, too. */
BEHAVIOUR(requests_across_blocking_calls, 2)
{
	char *buf = check_alloc(BYTES);
	struct flight f;

	flight_create(&f, 1);
	for (int i = 0; i < CALLS; i++) {
		flight_start(&f, i, MPI_COMM_WORLD);
		meet();
		bcast(buf, BYTES, i);
		flight_waitall(&f, i);
	}
	flight_free(&f);
	free(buf);
}

/* One rank is late, and a rank's calls of another size complete meanwhile. */
BEHAVIOUR(requests_of_late_ranks, 2)
{
	struct flight f;

	flight_create(&f, 2);
	for (int i = 0; i < CALLS / 2; i++) {
		if (rank == i % size)
			usleep(1000);
		flight_start(&f, i, MPI_COMM_WORLD);
		flight_poll(&f, i, i);
		if (i % 3 == 0)
			meet();
	}
	flight_free(&f);
}

BEHAVIOUR(requests_of_freed_communicators, 2)
{
	struct flight f;
	MPI_Comm comm;
	int one = 1, sum;

	flight_create(&f, 2);
	for (int i = 0; i < 12; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
		for (int k = 0; k < i; k++) { /* freed before, inside and after a trial */
			if (k)
				flight_waitall(&f, k - 1);
			if (k % 4 == 1)
				MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
			flight_start(&f, k, comm);
		}
		MPI_Comm_free(&comm);
		if (i)
			flight_waitall(&f, i - 1);
	}
	flight_free(&f);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
