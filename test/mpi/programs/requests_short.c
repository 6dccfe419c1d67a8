/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short collectives of every kind, around the length up to which they need nobody's progress: each
 * rank gets what the standard says, in place and with gaps too, however many are in flight.
 */
#include <time.h>

#include "check.h"

enum { SHORT_BYTES = 2032, JOBS = 70 };
enum kind {
	BCAST,
	GATHER,
	SCATTER,
	ALLGATHER,
	ALLGATHERV,
	ALLTOALL,
	REDUCE,
	ALLREDUCE,
	REDUCE_SCATTER,
	REDUCE_SCATTER_BLOCK,
	SCAN,
	EXSCAN,
	KINDS
};

/* One of them: n numbers a part. */
struct job {
	enum kind kind;
	int number, root, n;
	bool in_place, blocks;
	int gap;               /* ints from one number to the next, moved kinds only; else 1 */
	int *send, *recv, *counts, *displs;
	MPI_Datatype type;
	MPI_Request request;
};

static bool is_reduce(enum kind kind) { return kind >= REDUCE; }

/* The i-th number for rank `to` (0: for all alike) that rank `from` brings. */
static int brought(const struct job *j, int from, int to, int i)
{
	return j->number * 7 + from * 100003 + to * 1009 + i;
}

static int sum_to(const struct job *j, int ranks, int to, int i)
{
	int sum = 0;

	for (int r = 0; r < ranks; r++)
		sum += brought(j, r, to, i);
	return sum;
}

static void put(const struct job *j, int *at, int part, int to)
{
	for (int i = 0; i < j->n; i++)
		at[(part * j->n + i) * j->gap] = brought(j, rank, to, i);
}

static void see(const struct job *j, const int *at, int part, int i, int want)
{
	int got = at[(part * j->n + i) * j->gap];

	if (got != want && !check_failed())
		check_fail("kind %d, %d numbers, root %d, in place %d, gap %d: number %d of part "
			   "%d is %d, not %d",
			   j->kind, j->n, j->root, j->in_place, j->gap, i, part, got, want);
}

static void prepare(struct job *j)
{
	size_t ints = (size_t)size * (size_t)j->n * (size_t)j->gap;
	bool parts = j->kind == SCATTER || j->kind == ALLTOALL || j->kind == REDUCE_SCATTER ||
		     j->kind == REDUCE_SCATTER_BLOCK;
	int *from;

	j->send = check_alloc(ints * sizeof(int));
	j->recv = check_alloc(ints * sizeof(int));
	j->counts = check_alloc((size_t)size * sizeof(int));
	j->displs = check_alloc((size_t)size * sizeof(int));
	for (int r = 0; r < size; r++) {
		j->counts[r] = j->n;
		j->displs[r] = r * j->n;
	}
	/* a broadcast's buffer is `send`; what is in place lies where it is received, or, of a
	 * scatter, sent from */
	from = j->in_place && j->kind != SCATTER ? j->recv : j->send;
	if (parts)
		for (int r = 0; r < size; r++)
			put(j, from, r, r);
	else if (j->kind != BCAST || rank == j->root)
		put(j, from, j->in_place && !is_reduce(j->kind) ? rank : 0, 0);
}

/* Starts the nonblocking form, or executes the blocking one. */
#define CALL(blocking, nonblocking, ...)                                                           \
	(j->blocks ? MPI_##blocking(__VA_ARGS__, MPI_COMM_WORLD)                                   \
		   : MPI_##nonblocking(__VA_ARGS__, MPI_COMM_WORLD, &j->request))

static void start_moving(struct job *j)
{
	const void *send = j->in_place ? MPI_IN_PLACE : j->send;
	MPI_Datatype t = j->type;

	switch (j->kind) {
	case BCAST:
		CALL(Bcast, Ibcast, j->send, j->n, t, j->root);
		break;
	case GATHER:
		CALL(Gather, Igather, rank == j->root ? send : j->send, j->n, t, j->recv, j->n, t,
		     j->root);
		break;
	case SCATTER:
		CALL(Scatter, Iscatter, j->send, j->n, t,
		     rank == j->root && j->in_place ? MPI_IN_PLACE : j->recv, j->n, t, j->root);
		break;
	case ALLGATHER:
		CALL(Allgather, Iallgather, send, j->n, t, j->recv, j->n, t);
		break;
	case ALLGATHERV:
		CALL(Allgatherv, Iallgatherv, send, j->n, t, j->recv, j->counts, j->displs, t);
		break;
	default:
		CALL(Alltoall, Ialltoall, send, j->n, t, j->recv, j->n, t);
	}
}

static void start_reducing(struct job *j)
{
	const void *send = j->in_place ? MPI_IN_PLACE : j->send;

	switch (j->kind) {
	case REDUCE:
		CALL(Reduce, Ireduce,
		     rank == j->root ? send
		     : j->in_place   ? j->recv
				     : j->send,
		     j->recv, j->n, MPI_INT, MPI_SUM, j->root);
		break;
	case ALLREDUCE:
		CALL(Allreduce, Iallreduce, send, j->recv, j->n, MPI_INT, MPI_SUM);
		break;
	case REDUCE_SCATTER:
		CALL(Reduce_scatter, Ireduce_scatter, send, j->recv, j->counts, MPI_INT, MPI_SUM);
		break;
	case REDUCE_SCATTER_BLOCK:
		CALL(Reduce_scatter_block, Ireduce_scatter_block, send, j->recv, j->n, MPI_INT,
		     MPI_SUM);
		break;
	case SCAN:
		CALL(Scan, Iscan, send, j->recv, j->n, MPI_INT, MPI_SUM);
		break;
	default:
		CALL(Exscan, Iexscan, send, j->recv, j->n, MPI_INT, MPI_SUM);
	}
}

static void verify_moved(const struct job *j)
{
	bool is_all = j->kind == ALLGATHER || j->kind == ALLGATHERV || j->kind == ALLTOALL ||
		      (j->kind == GATHER && rank == j->root);

	for (int i = 0; i < j->n; i++) {
		if (j->kind == BCAST)
			see(j, j->send, 0, i, brought(j, j->root, 0, i));
		if (j->kind == SCATTER && !(rank == j->root && j->in_place))
			see(j, j->recv, 0, i, brought(j, j->root, rank, i));
		for (int r = 0; is_all && r < size; r++)
			see(j, j->recv, r, i, brought(j, r, j->kind == ALLTOALL ? rank : 0, i));
	}
}

static void verify_reduced(const struct job *j)
{
	bool is_scattered = j->kind == REDUCE_SCATTER || j->kind == REDUCE_SCATTER_BLOCK;
	int ranks = j->kind == SCAN ? rank + 1 : j->kind == EXSCAN ? rank : size;

	if ((j->kind == REDUCE && rank != j->root) || !ranks)
		return;
	for (int i = 0; i < j->n; i++)
		see(j, j->recv, 0, i, sum_to(j, ranks, is_scattered ? rank : 0, i));
}

static void start(struct job *j)
{
	prepare(j);
	j->request = MPI_REQUEST_NULL;
	if (is_reduce(j->kind))
		start_reducing(j);
	else
		start_moving(j);
}

static void end(struct job *j)
{
	MPI_Wait(&j->request, MPI_STATUS_IGNORE);
	if (is_reduce(j->kind))
		verify_reduced(j);
	else
		verify_moved(j);
	free(j->send);
	free(j->recv);
	free(j->counts);
	free(j->displs);
}

/* Nonblocking calls are Sluice's where a blocking one was before. */
static void connect_comm(void)
{
	char byte = 0;
	MPI_Request request;

	MPI_Ibcast(&byte, 1, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void each(enum kind kind)
{
	int most = SHORT_BYTES / (int)sizeof(int),
	    lengths[] = { 1, 7, most / size, most / size + 1, most, most + 1 };
	MPI_Datatype spaced;

	connect_comm();
	MPI_Type_create_resized(MPI_INT, 0, 3 * sizeof(int), &spaced);
	MPI_Type_commit(&spaced);
	for (unsigned how = 0; how < 4 * sizeof(lengths) / sizeof(lengths[0]); how++)
		for (int root = 0; root < size; root++) {
			struct job j = { .kind = kind,
					 .number = (int)how,
					 .root = root,
					 .n = lengths[how / 4],
					 .in_place = how % 2 && kind != BCAST,
					 .gap = how / 2 % 2 && !is_reduce(kind) ? 3 : 1 };

			/* in place means something at the root only, there */
			if ((kind == GATHER || kind == REDUCE) && rank != root)
				j.in_place = false;
			j.type = j.gap > 1 ? spaced : MPI_INT;
			start(&j);
			end(&j);
		}
	MPI_Type_free(&spaced);
}

BEHAVIOUR(short_broadcasts, 1) { each(BCAST); }
BEHAVIOUR(short_gathers, 1) { each(GATHER); }
BEHAVIOUR(short_scatters, 1) { each(SCATTER); }
BEHAVIOUR(short_allgathers, 1) { each(ALLGATHER); }
BEHAVIOUR(short_allgathervs, 1) { each(ALLGATHERV); }
BEHAVIOUR(short_alltoalls, 1) { each(ALLTOALL); }
BEHAVIOUR(short_reduces, 1) { each(REDUCE); }
BEHAVIOUR(short_allreduces, 1) { each(ALLREDUCE); }
BEHAVIOUR(short_reduce_scatters, 1) { each(REDUCE_SCATTER); }
BEHAVIOUR(short_reduce_scatter_blocks, 1) { each(REDUCE_SCATTER_BLOCK); }
BEHAVIOUR(short_scans, 1) { each(SCAN); }
BEHAVIOUR(short_exscans, 1) { each(EXSCAN); }

/* More than a mailbox has records for, of all kinds, ended last one first. */
BEHAVIOUR(many_short_ones_end_backwards, 1)
{
	struct job *jobs = check_alloc(JOBS * sizeof(*jobs));

	connect_comm();
	for (int k = 0; k < JOBS; k++) {
		jobs[k] = (struct job){ .kind = (enum kind)(k % KINDS),
					.number = k,
					.root = k % size,
					.n = 1 + k,
					.gap = 1,
					.type = MPI_INT };
		start(&jobs[k]);
	}
	for (int k = JOBS - 1; k >= 0; k--)
		end(&jobs[k]);
	free(jobs);
}

/* All kinds and lengths: most are short, some are long. */
BEHAVIOUR(thousands_of_all_kinds_are_in_flight, 1)
{
	int n = (int)check_env("CHECK_REQUESTS", 2000);
	struct job *jobs = check_alloc((size_t)n * sizeof(*jobs));
	MPI_Request *requests = check_alloc((size_t)n * sizeof(*requests));

	connect_comm();
	for (int k = 0; k < n; k++) {
		jobs[k] = (struct job){ .kind = (enum kind)(k * 7 % KINDS),
					.number = k,
					.root = k % size,
					.n = k % 40 ? 1 + k % 9 : 900,
					.gap = 1,
					.type = MPI_INT };
		start(&jobs[k]);
		requests[k] = jobs[k].request;
	}
	MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
	for (int k = 0; k < n; k++) {
		EXPECT(requests[k] == MPI_REQUEST_NULL);
		jobs[k].request = MPI_REQUEST_NULL;
		end(&jobs[k]);
	}
	free(requests);
	free(jobs);
}

/* Blocking ones of all kinds, with nonblocking ones and a message in flight around each. */
BEHAVIOUR(short_ones_that_block, 1)
{
	int most = 2 * SHORT_BYTES, from = (rank + size - 1) % size, got = 0;
	struct job before;
	MPI_Request message[2];

	for (int k = 0; k < (int)check_env("CHECK_CALLS", 2000); k++) {
		struct job j = { .kind = (enum kind)(k % KINDS),
				 .number = k,
				 .root = k / KINDS % size,
				 .n = k % 5 ? 1 + k % 9 : most / (int)sizeof(int) / (1 + k % 3),
				 .in_place = k / 3 % 2 && k % KINDS != BCAST,
				 .gap = 1,
				 .blocks = true,
				 .type = MPI_INT };

		if ((j.kind == GATHER || j.kind == REDUCE) && rank != j.root)
			j.in_place = false;
		before = (struct job){ .kind = (enum kind)(k * 5 % KINDS),
				       .number = -k,
				       .root = k % size,
				       .n = 3,
				       .gap = 1,
				       .type = MPI_INT };
		MPI_Irecv(&got, 1, MPI_INT, from, k, MPI_COMM_WORLD, &message[0]);
		if (k % 4 == 1)
			start(&before);
		if (k % 7 == 2)
			MPI_Barrier(MPI_COMM_WORLD);
		start(&j);
		MPI_Isend(&k, 1, MPI_INT, (rank + 1) % size, k, MPI_COMM_WORLD, &message[1]);
		end(&j);
		if (k % 4 == 1)
			end(&before);
		MPI_Waitall(2, message, MPI_STATUSES_IGNORE);
		EXPECT(got == k);
	}
}

/* MPI_Wtime() need not be the same clock in all ranks. */
static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* No rank leaves a barrier before the last has entered it. */
BEHAVIOUR(barriers_hold_every_rank, 2)
{
	for (int k = 0; k < 600; k++) {
		double entered, left, last;

		if (k % size == rank)
			for (volatile int spin = 0; spin < 2000; spin++)
				;
		entered = now();
		MPI_Barrier(MPI_COMM_WORLD);
		left = now();
		MPI_Allreduce(&entered, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
		if (left < last)
			check_fail("a rank left barrier %d %g s before another entered", k,
				   last - left);
	}
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
