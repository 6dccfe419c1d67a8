/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators that span nodes: ranks in other orders than the launcher's, threads, errors. Wants
 * several hosts (test/support/hosts.py), and runs on one, too.
 */
#include "check.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { COUNT = 30011 };

static int number(int from, int to, int i, int seed)
{
	return from * 100000 + to * 1000 + i % 997 + seed;
}

/* Collectives in which ranks receive different data. in: n; out: n of each rank. */
static void all_exchanges(MPI_Comm comm, int n, int seed, int *in, int *out)
{
	int me, p, *all;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &p);
	all = check_alloc(sizeof(*all) * (size_t)n * (size_t)p);
	for (int root = 0; root < p; root++) {
		for (int i = 0; i < n; i++)
			in[i] = number(me, root, i, seed);
		memset(out, 0, sizeof(*out) * (size_t)n * (size_t)p);
		MPI_Gather(in, n, MPI_INT, out, n, MPI_INT, root, comm);
		for (int i = 0; i < n * p && me == root && !check_failed(); i++)
			EXPECT(out[i] == number(i / n, root, i % n, seed));
		for (int i = 0; i < n * p; i++)
			all[i] = number(me, i / n, i % n, seed);
		MPI_Scatter(all, n, MPI_INT, in, n, MPI_INT, root, comm);
		for (int i = 0; i < n && !check_failed(); i++)
			EXPECT(in[i] == number(root, me, i, seed));
	}
	MPI_Alltoall(all, n, MPI_INT, out, n, MPI_INT, comm);
	for (int i = 0; i < n * p && !check_failed(); i++)
		EXPECT(out[i] == number(i / n, me, i % n, seed));
	MPI_Reduce_scatter_block(all, out, n, MPI_INT, MPI_SUM, comm);
	for (int i = 0; i < n && !check_failed(); i++)
		EXPECT(out[i] == 100000 * (p * (p - 1) / 2) + p * number(0, me, i, seed));
	free(all);
}

/* Each collective once, with every root; `seed` makes the data. */
static void all_kinds(MPI_Comm comm, int n, int seed)
{
	int me, p;
	int *in = check_alloc(sizeof(*in) * (size_t)n), *out;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &p);
	out = check_alloc(sizeof(*out) * (size_t)n * (size_t)p);
	for (int root = 0; root < p; root++)
		check_bcast(in, sizeof(*in) * (size_t)n, root, comm,
			    check_seed((uint64_t)seed, (uint64_t)root));
	for (int i = 0; i < n; i++)
		in[i] = me * 1000 + i + seed;
	MPI_Allreduce(in, out, n, MPI_INT, MPI_SUM, comm);
	for (int i = 0; i < n && !check_failed(); i++)
		EXPECT(out[i] == 1000 * (p * (p - 1) / 2) + p * (i + seed));
	for (int root = 0; root < p; root++) {
		memset(out, 0, sizeof(*out) * (size_t)n);
		MPI_Reduce(in, out, n, MPI_INT, MPI_MAX, root, comm);
		for (int i = 0; i < n && me == root && !check_failed(); i++)
			EXPECT(out[i] == 1000 * (p - 1) + i + seed);
	}
	MPI_Allgather(in, n, MPI_INT, out, n, MPI_INT, comm);
	for (int i = 0; i < n * p && !check_failed(); i++)
		EXPECT(out[i] == i / n * 1000 + i % n + seed);
	all_exchanges(comm, n, seed, in, out);
	free(in);
	free(out);
}

BEHAVIOUR(ranks_may_lie_in_any_order, 2)
{
	MPI_Comm comm;

	for (int order = 0; order < 3; order++) {
		int key = order == 0 ? -rank : order == 1 ? rank % 2 * 100 + rank : rank * 7 % size;

		MPI_Comm_split(MPI_COMM_WORLD, 0, key, &comm);
		all_kinds(comm, COUNT, order);
		MPI_Comm_free(&comm);
	}
}

/* The test counts these. */
BEHAVIOUR(each_kind_once, 2)
{
	enum { N = 3000 };
	int *in = check_alloc(N * sizeof(*in) * (size_t)size),
	    *out = check_alloc(N * sizeof(*out) * (size_t)size);
	int counts[64];

	for (int i = 0; i < N * size; i++)
		in[i] = i;
	for (int r = 0; r < size; r++)
		counts[r] = N - r;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Bcast(in, N, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Gather(in, N, MPI_INT, out, N, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Scatter(in, N, MPI_INT, out, N, MPI_INT, 0, MPI_COMM_WORLD);
	MPI_Allgather(in, N, MPI_INT, out, N, MPI_INT, MPI_COMM_WORLD);
	MPI_Alltoall(in, N, MPI_INT, out, N, MPI_INT, MPI_COMM_WORLD);
	MPI_Reduce(in, out, N, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	MPI_Allreduce(in, out, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	MPI_Reduce_scatter_block(in, out, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	free(in);
	free(out);
}

/* Each rank in turn is late and creates a file in $SPANNING_FOLDER, which all hosts share. */
BEHAVIOUR(barriers_wait_for_all, 2)
{
	const char *folder = getenv("SPANNING_FOLDER");
	char path[4096];

	for (int late = 0; late < size; late++) {
		snprintf(path, sizeof(path), "%s/%d", folder, late);
		if (rank == late) {
			usleep(30000);
			close(open(path, O_CREAT | O_WRONLY, 0600));
		}
		MPI_Barrier(MPI_COMM_WORLD);
		if (access(path, F_OK))
			check_fail("barrier %d ended before rank %d had come", late, late);
	}
}

/* Segments pass through a staging buffer, as the type has gaps. A late rank receives none of them
 * for a while; later segments must not overwrite those that wait. Needs segments too long for the
 * eager buffers of the host MPI. */
BEHAVIOUR(who_is_late_gets_what_was_sent, 2)
{
	enum { BLOCKS = 1 << 18, STRIDE = 3 };
	int *at = check_alloc(sizeof(*at) * BLOCKS * STRIDE);
	MPI_Datatype gaps;

	MPI_Type_vector(BLOCKS, 2, STRIDE, MPI_INT, &gaps);
	MPI_Type_commit(&gaps);
	for (int late = 1; late < size; late++) {
		for (int i = 0; i < BLOCKS * STRIDE; i++)
			at[i] = rank ? -1 : i * 3 + late;
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == late)
			usleep(150000);
		MPI_Bcast(at, 1, gaps, 0, MPI_COMM_WORLD);
		for (int i = 0; i < BLOCKS * STRIDE && !check_failed(); i++)
			EXPECT(at[i] == (rank && i % STRIDE == 2 ? -1 : i * 3 + late));
	}
	MPI_Type_free(&gaps);
	free(at);
}

BEHAVIOUR(some_ranks_only, 3)
{
	MPI_Comm comm;

	for (int without = 0; without < size; without++) {
		MPI_Comm_split(MPI_COMM_WORLD, rank == without ? MPI_UNDEFINED : 0, rank, &comm);
		if (comm == MPI_COMM_NULL)
			continue;
		all_kinds(comm, 1000, without);
		MPI_Comm_free(&comm);
	}
}

/* Messages around the sizes of a segment, of the largest all-to-all part, and of a few bytes. */
BEHAVIOUR(lengths_around_those_at_which_messages_are_cut, 2)
{
	static const int lengths[] = { 1, 2, 1365, 4095, 4096, 4097, 16383, 16384, 16385 };

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++)
		all_kinds(MPI_COMM_WORLD, lengths[i], (int)i);
}

BEHAVIOUR(few_bytes, 2) { all_kinds(MPI_COMM_WORLD, 40, 3); }
static void add_ints(void *in, void *inout, int *n, MPI_Datatype *type)
{
	int bytes;

	MPI_Type_size(*type, &bytes);
	for (int i = 0; i < *n * (bytes / (int)sizeof(int)); i++)
		((int *)inout)[i] += ((const int *)in)[i];
}

/* Reductions are cut between elements; elements shorter and longer than a segment. */
BEHAVIOUR(elements_that_do_not_divide_segments, 2)
{
	static const int ints[] = { 3, 1000, 4095, 5000 };
	enum { ELEMENTS = 23, MOST = ELEMENTS * 5000 };
	int *in = check_alloc(MOST * sizeof(*in) * (size_t)size),
	    *out = check_alloc(MOST * sizeof(*out));
	MPI_Op add;

	MPI_Op_create(add_ints, 1, &add);
	for (int i = 0; i < MOST * size; i++)
		in[i] = rank + i;
	for (int k = 0; k < 4; k++) {
		int n = ELEMENTS * ints[k];
		MPI_Datatype type;

		MPI_Type_contiguous(ints[k], MPI_INT, &type);
		MPI_Type_commit(&type);
		memset(out, 0, MOST * sizeof(*out));
		MPI_Allreduce(in, out, ELEMENTS, type, add, MPI_COMM_WORLD);
		for (int i = 0; i < n && !check_failed(); i++)
			EXPECT(out[i] == size * (size - 1) / 2 + size * i);
		MPI_Reduce(in, out, ELEMENTS, type, add, k % size, MPI_COMM_WORLD);
		for (int i = 0; i < n && rank == k % size && !check_failed(); i++)
			EXPECT(out[i] == size * (size - 1) / 2 + size * i);
		MPI_Reduce_scatter_block(in, out, ELEMENTS, type, add, MPI_COMM_WORLD);
		for (int i = 0; i < n && !check_failed(); i++)
			EXPECT(out[i] == size * (size - 1) / 2 + size * (rank * n + i));
		MPI_Type_free(&type);
	}
	MPI_Op_free(&add);
	free(in);
	free(out);
}

/* More communicators than are served at a time: freed ones make room. */
BEHAVIOUR(communicators_come_and_go, 2)
{
	int sum, one = 1;

	for (int i = 0; i < 300; i++) {
		MPI_Comm comm;

		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
		EXPECT(sum == size);
		MPI_Comm_free(&comm);
	}
}

static void *in_a_thread(void *arg)
{
	for (int i = 0; i < 4; i++)
		all_kinds(*(MPI_Comm *)arg, 5000, i);
	return NULL;
}

/* Three of them, or the reason why not. */
static void run_threads(void *(*first)(void *), void *(*other)(void *))
{
	enum { THREADS = 3 };
	pthread_t threads[THREADS];
	MPI_Comm comms[THREADS];
	int provided;

	MPI_Query_thread(&provided);
	if (provided < MPI_THREAD_MULTIPLE) {
		check_skip("MPI_THREAD_MULTIPLE is not provided");
		return;
	}
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, i ? other : first, &comms[i]);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		MPI_Comm_free(&comms[i]);
	}
}

BEHAVIOUR(threads_with_communicators_of_their_own, 2) { run_threads(in_a_thread, in_a_thread); }

/* Numbers whose sum depends on the order: told, so that two runs can be compared. */
BEHAVIOUR(floats_are_the_same_everywhere, 2)
{
	double *in = check_alloc(COUNT * sizeof(*in)), *out = check_alloc(COUNT * sizeof(*out));
	uint64_t state = (uint64_t)rank + 99, hash = 0, lowest, highest;

	for (int i = 0; i < COUNT; i++)
		in[i] = (double)(int64_t)check_random(&state) /
			(double)(1 + check_random(&state) % 1000000);
	for (int round = 0; round < 3; round++) {
		MPI_Allreduce(in, out, COUNT, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
		for (int i = 0; i < COUNT; i++) {
			uint64_t bits;

			memcpy(&bits, &out[i], sizeof(bits));
			hash = (hash ^ bits) * 1099511628211u;
		}
		MPI_Allreduce(&hash, &lowest, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
		MPI_Allreduce(&hash, &highest, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
		EXPECT(lowest == highest);
	}
	if (!rank)
		check_note("%016llx", (unsigned long long)hash);
	free(in);
	free(out);
}

/* ---- nonblocking ------------------------------------------------------------------------- */

/* Several in flight, their ends asked for in every way, beside messages of the program's own. */
static void wait_in_some_way(int way, int n, MPI_Request *requests)
{
	int done[16], count, flag = 0, index;

	switch (way) {
	case 0:
		MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
		break;
	case 1:
		for (int i = n - 1; i >= 0; i--)
			MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
		break;
	case 2:
		for (int i = 0; i < n; i++)
			MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE);
		break;
	case 3:
		for (int left = n; left > 0; left -= count)
			MPI_Waitsome(n, requests, &count, done, MPI_STATUSES_IGNORE);
		break;
	case 4:
		while (!flag)
			MPI_Testall(n, requests, &flag, MPI_STATUSES_IGNORE);
		break;
	default:
		for (int i = 0; i < n; i++)
			for (flag = 0; !flag;)
				MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
		break;
	}
	for (int i = 0; i < n; i++)
		EXPECT(requests[i] == MPI_REQUEST_NULL);
}

/* Checks a result that is equal on each rank but for the place of `me`. */
static void start_and_see(MPI_Comm comm, int way, int n)
{
	enum { REQUESTS = 9 };
	int me, p, own, other, root, *buf[2 * REQUESTS];
	MPI_Request q[REQUESTS];

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &p);
	root = way % p;
	for (int b = 0; b < 2 * REQUESTS; b++) {
		buf[b] = check_alloc(sizeof(int) * (size_t)n * (size_t)p);
		for (int i = 0; i < n * p; i++)
			buf[b][i] = number(me, b, i, way);
	}
	MPI_Ibcast(buf[0], n, MPI_INT, root, comm, &q[0]);
	MPI_Iallreduce(buf[2], buf[3], n, MPI_INT, MPI_SUM, comm, &q[1]);
	MPI_Irecv(&other, 1, MPI_INT, (me + p - 1) % p, 7, comm, &q[2]);
	MPI_Ibarrier(comm, &q[3]);
	MPI_Ireduce(buf[4], buf[5], n, MPI_INT, MPI_MAX, root, comm, &q[4]);
	MPI_Iallgather(buf[6], n, MPI_INT, buf[7], n, MPI_INT, comm, &q[5]);
	MPI_Igather(buf[8], n, MPI_INT, buf[9], n, MPI_INT, root, comm, &q[6]);
	MPI_Ialltoall(buf[10], n, MPI_INT, buf[11], n, MPI_INT, comm, &q[7]);
	own = me + way;
	MPI_Isend(&own, 1, MPI_INT, (me + 1) % p, 7, comm, &q[8]);
	wait_in_some_way(way, REQUESTS, q);
	EXPECT(other == (me + p - 1) % p + way);
	for (int i = 0; i < n && !check_failed(); i++) {
		EXPECT(buf[0][i] == number(root, 0, i, way));
		EXPECT(buf[3][i] == 100000 * (p * (p - 1) / 2) + p * number(0, 2, i, way));
		EXPECT(me != root || buf[5][i] == number(p - 1, 4, i, way));
	}
	for (int i = 0; i < n * p && !check_failed(); i++) {
		EXPECT(buf[7][i] == number(i / n, 6, i % n, way));
		EXPECT(me != root || buf[9][i] == number(i / n, 8, i % n, way));
		EXPECT(buf[11][i] == number(i / n, 10, me * n + i % n, way));
	}
	for (int b = 0; b < 2 * REQUESTS; b++)
		free(buf[b]);
}

static void *requests_in_a_thread(void *arg)
{
	MPI_Comm comm = *(MPI_Comm *)arg;
	int one = 1, sum;

	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm); /* connects the communicator */
	for (int way = 0; way < 6; way++)
		start_and_see(comm, way, 1500);
	return NULL;
}

/* Each in an order of its own; whoever asks may complete what another waits for. */
BEHAVIOUR(threads_with_requests_on_communicators_of_their_own, 2)
{
	run_threads(in_a_thread, requests_in_a_thread);
}

/* All forms, then a blocking one; on communicators that are freed while requests are active. */
BEHAVIOUR(requests_over_nodes, 2)
{
	MPI_Comm comm;
	int sum, one = 1, provided;

	MPI_Query_thread(&provided);
	check_note("%d", provided == MPI_THREAD_MULTIPLE);
	for (int way = 0; way < 6; way++) {
		MPI_Comm_split(MPI_COMM_WORLD, 0, way % 2 ? rank * 7 % size : -rank, &comm);
		MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm); /* connects it */
		start_and_see(comm, way, 3000);
		MPI_Comm_free(&comm);
	}
}

BEHAVIOUR(blocking_ones_come_after_requests, 2)
{
	enum { N = 5000 };
	int *in = check_alloc(N * sizeof(*in)), *out = check_alloc(N * sizeof(*out)),
	    *more = check_alloc(N * sizeof(*more));
	MPI_Request request;
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < N; i++)
			in[i] = rank + i + round;
		MPI_Barrier(comm);
		MPI_Iallreduce(in, out, N, MPI_INT, MPI_SUM, comm, &request);
		if (rank == round % size)
			usleep(2000);
		MPI_Allreduce(in, more, N, MPI_INT, MPI_MAX, comm);
		for (int i = 0; i < N && !check_failed(); i++)
			EXPECT(more[i] == size - 1 + i + round);
		if (round == 4)
			MPI_Comm_free(&comm);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		for (int i = 0; i < N && !check_failed(); i++)
			EXPECT(out[i] == size * (size - 1) / 2 + size * (i + round));
	}
	free(in);
	free(out);
	free(more);
}

/* A rank waits for another rank that is inside a call of the host MPI: no rank hangs. */
BEHAVIOUR(requests_move_while_others_are_in_the_library, 2)
{
	enum { N = 200000 };
	int *at = check_alloc(N * sizeof(*at)), token = 1;
	MPI_Request request;

	for (int root = 0; root < size; root++) {
		memset(at, rank == root ? 7 : 0, N * sizeof(*at));
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Ibcast(at, N, MPI_INT, root, MPI_COMM_WORLD, &request);
		if (rank) /* waits in the library for who waits for this */
			MPI_Recv(&token, 1, MPI_INT, rank - 1, 3, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		if (rank + 1 < size)
			MPI_Send(&token, 1, MPI_INT, rank + 1, 3, MPI_COMM_WORLD);
		EXPECT(at[0] == 0x07070707 && at[N - 1] == 0x07070707);
	}
	free(at);
}

/* ---- what must not grow ------------------------------------------------------------------ */

/* SPANNING_TURNS of everything, once and again: the second time in the memory of the first. */
BEHAVIOUR(nothing_grows, 2)
{
	long turns = check_env("SPANNING_TURNS", 12);
	struct check_usage before = { 0 }, after;

	for (int round = 0; round < 2; round++) {
		check_usage(&before);
		for (long i = 0; i < turns; i++) {
			all_kinds(MPI_COMM_WORLD, 700, (int)(i % 50));
			start_and_see(MPI_COMM_WORLD, (int)(i % 6), 300);
		}
	}
	check_usage(&after);
	if (after.descriptors > before.descriptors + 2 || after.threads > before.threads ||
	    after.rss_kb > before.rss_kb + 2048)
		check_fail("%ld descriptors, %ld threads, %ld KiB were %ld, %ld, %ld",
			   after.descriptors, after.threads, after.rss_kb, before.descriptors,
			   before.threads, before.rss_kb);
}

/* Not only when the next one is made. */
BEHAVIOUR(threads_go_with_their_communicators, 2)
{
	struct check_usage before, after;
	int one = 1, sum, provided;
	MPI_Request request;
	MPI_Comm comm;

	MPI_Query_thread(&provided);
	for (int i = 0; i < 2; i++) {
		check_usage(&before);
		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		MPI_Barrier(comm); /* connects the communicator */
		MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
		check_usage(&after);
		EXPECT(provided < MPI_THREAD_MULTIPLE || after.threads > before.threads);
		MPI_Comm_free(&comm);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		for (int ms = 0; ms < 20000 && after.threads > before.threads; ms += 10) {
			usleep(10000);
			check_usage(&after);
		}
		EXPECT(after.threads <= before.threads);
	}
}

/* ---- errors ------------------------------------------------------------------------------ */

/* An injected failure makes one rank fail in the middle: all ranks get an error, none hangs. */
static void expect_errors(const char *kind)
{
	int *in = check_alloc(COUNT * sizeof(*in)),
	    *out = check_alloc(COUNT * sizeof(*out) * (size_t)size), rc;
	int *all = check_alloc(COUNT * sizeof(*all) * (size_t)size);
	MPI_Comm comm;

	memset(out, 0, COUNT * sizeof(*out) * (size_t)size);
	memset(in, 0, COUNT * sizeof(*in));
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	if (!strcmp(kind, "bcast"))
		rc = MPI_Bcast(in, COUNT, MPI_INT, 0, comm);
	else if (!strcmp(kind, "allreduce"))
		rc = MPI_Allreduce(in, out, COUNT, MPI_INT, MPI_SUM, comm);
	else if (!strcmp(kind, "gather"))
		rc = MPI_Gather(in, COUNT, MPI_INT, out, COUNT, MPI_INT, 0, comm);
	else if (!strcmp(kind, "scatter"))
		rc = MPI_Scatter(out, COUNT, MPI_INT, in, COUNT, MPI_INT, 0, comm);
	else if (!strcmp(kind, "alltoall"))
		rc = MPI_Alltoall(out, 3000, MPI_INT, all, 3000, MPI_INT, comm);
	else if (!strcmp(kind, "reduce_scatter"))
		rc = MPI_Reduce_scatter_block(out, in, COUNT, MPI_INT, MPI_SUM, comm);
	else if (!strcmp(kind, "barrier"))
		rc = MPI_Barrier(comm);
	else
		rc = MPI_Allgather(in, COUNT, MPI_INT, out, COUNT, MPI_INT, comm);
	check_note("%d", rc != 0);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Comm_free(&comm);
	free(in);
	free(out);
	free(all);
}

/* An active request fails on one rank while others are queued: all of them complete. */
BEHAVIOUR(failed_requests, 2)
{
	enum { REQUESTS = 4 };
	int *at[2 * REQUESTS], rc, sum, one = 1, errors = 0;
	MPI_Request q[REQUESTS];
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm); /* connects the communicator */
	for (int i = 0; i < 2 * REQUESTS; i++) {
		at[i] = check_alloc(COUNT * sizeof(int));
		memset(at[i], 0, COUNT * sizeof(int));
	}
	for (int i = 0; i < REQUESTS; i++) {
		rc = i % 2 ? MPI_Ibcast(at[i], COUNT, MPI_INT, i % size, comm, &q[i])
			   : MPI_Iallreduce(at[i], at[REQUESTS + i], COUNT, MPI_INT, MPI_SUM, comm,
					    &q[i]);
		EXPECT(!rc);
	}
	for (int i = 0; i < REQUESTS; i++) {
		errors += MPI_Wait(&q[i], MPI_STATUS_IGNORE) != 0;
		EXPECT(q[i] == MPI_REQUEST_NULL);
	}
	check_note("%d", errors);
	MPI_Bcast(at[0], COUNT, MPI_INT, 0, comm);
	MPI_Comm_free(&comm);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < 2 * REQUESTS; i++)
		free(at[i]);
}

BEHAVIOUR(failed_bcast, 2) { expect_errors("bcast"); }
BEHAVIOUR(failed_allreduce, 2) { expect_errors("allreduce"); }
BEHAVIOUR(failed_allgather, 2) { expect_errors("allgather"); }
BEHAVIOUR(failed_gather, 2) { expect_errors("gather"); }
BEHAVIOUR(failed_scatter, 2) { expect_errors("scatter"); }
BEHAVIOUR(failed_alltoall, 2) { expect_errors("alltoall"); }
BEHAVIOUR(failed_reduce_scatter, 2) { expect_errors("reduce_scatter"); }
BEHAVIOUR(failed_barrier, 2) { expect_errors("barrier"); }

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_MULTIPLE);
}
