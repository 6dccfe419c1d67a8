/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * More collectives are in flight than can be published at once, and a rank is not in a call of its
 * requests: whoever waits for them, or tests them, gets them, also where other communicators, calls
 * that were returned from early, or the program's datatypes stand between. Each of these programs
 * is right, and ends with every MPI.
 *
 * Run alone: mpiexec -n 2 sluice run requests_held_up short_reductions
 */
#include <unistd.h>

#include "check.h"

enum { N = 200, TAG = 5, SHORT = 100, LONG = 5000, GAP = 3, LARGE = 1 << 20 };

/* n numbers of each rank: a broadcast from rank `root`, or a sum. */
struct job {
	int number, n, root, gap;
	bool is_sum;
	int *in, *out;
	MPI_Request request;
};

static MPI_Datatype spaced;

static void begin(void)
{
	MPI_Type_create_resized(MPI_INT, 0, GAP * sizeof(int), &spaced);
	MPI_Type_commit(&spaced);
}

static void end(void)
{
	MPI_Type_free(&spaced);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Nonblocking calls are Sluice's where a blocking one was before. */
static void connect_comm(MPI_Comm comm)
{
	char byte = 0;
	MPI_Request request;

	MPI_Ibcast(&byte, 1, MPI_BYTE, 0, comm, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Barrier(comm);
}

static int brought(const struct job *j, int from, int i)
{
	return j->number * 1009 + from * 31 + i;
}

static void start(struct job *j, MPI_Comm comm)
{
	int me;

	MPI_Comm_rank(comm, &me);
	j->in = check_alloc((size_t)j->n * (size_t)j->gap * sizeof(int));
	j->out = check_alloc((size_t)j->n * sizeof(int));
	for (int i = 0; i < j->n; i++)
		j->in[i * j->gap] = j->is_sum || me == j->root ? brought(j, me, i) : -1;
	if (j->is_sum)
		MPI_Iallreduce(j->in, j->out, j->n, MPI_INT, MPI_SUM, comm, &j->request);
	else
		MPI_Ibcast(j->in, j->n, j->gap > 1 ? spaced : MPI_INT, j->root, comm, &j->request);
}

/* Its request is complete. */
static void verify(struct job *j, int ranks)
{
	int wrong = 0;

	for (int i = 0; i < j->n; i++) {
		int want = j->is_sum ? 0 : brought(j, j->root, i);

		for (int r = 0; r < ranks && j->is_sum; r++)
			want += brought(j, r, i);
		wrong += (j->is_sum ? j->out[i] : j->in[i * j->gap]) != want;
	}
	if (wrong)
		check_fail("collective %d: %d of %d numbers are wrong", j->number, wrong, j->n);
	free(j->in);
	free(j->out);
}

static void start_all(struct job *jobs, int n, struct job like, MPI_Comm comm)
{
	int ranks;

	MPI_Comm_size(comm, &ranks);
	for (int k = 0; k < n; k++) {
		jobs[k] = like;
		jobs[k].number = k;
		jobs[k].root = k % ranks;
		start(&jobs[k], comm);
	}
}

enum form { WAIT, TEST, TESTALL, TESTANY, TESTSOME, GET_STATUS, FORMS };

static void complete(enum form form, MPI_Request *requests, int n)
{
	int flag = 0, left = n, count, index, indices[N];

	for (int i = 0; (form == TEST || form == GET_STATUS) && i < n; i++)
		for (flag = 0; !flag;)
			if (form == TEST)
				MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
			else
				MPI_Request_get_status(requests[i], &flag, MPI_STATUS_IGNORE);
	for (flag = 0; form == TESTALL && !flag;)
		MPI_Testall(n, requests, &flag, MPI_STATUSES_IGNORE);
	while (form == TESTANY && left) {
		MPI_Testany(n, requests, &index, &flag, MPI_STATUS_IGNORE);
		left -= flag;
	}
	while (form == TESTSOME && left) {
		MPI_Testsome(n, requests, &count, indices, MPI_STATUSES_IGNORE);
		left -= count;
	}
	MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
}

static void end_all(struct job *jobs, int n, enum form form, MPI_Comm comm)
{
	MPI_Request requests[N];
	int ranks;

	MPI_Comm_size(comm, &ranks);
	for (int k = 0; k < n; k++)
		requests[k] = jobs[k].request;
	complete(form, requests, n);
	for (int k = 0; k < n; k++)
		verify(&jobs[k], ranks);
}

/* Rank 0 sleeps in a call of the library's until the last rank has got them all. */
static void receive_before_they_end(struct job like, enum form form)
{
	struct job *jobs = check_alloc(N * sizeof(*jobs));
	int word = 0;

	connect_comm(MPI_COMM_WORLD);
	start_all(jobs, N, like, MPI_COMM_WORLD);
	if (!rank)
		MPI_Recv(&word, 1, MPI_INT, size - 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	end_all(jobs, N, form, MPI_COMM_WORLD);
	if (rank == size - 1)
		MPI_Send(&word, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
	free(jobs);
}

static void each_of(struct job like)
{
	begin();
	for (int form = 0; form < FORMS; form++)
		receive_before_they_end(like, form);
	end();
}

BEHAVIOUR(short_broadcasts, 2) { each_of((struct job){ .n = SHORT, .gap = 1 }); }
BEHAVIOUR(short_broadcasts_with_gaps, 2) { each_of((struct job){ .n = SHORT, .gap = GAP }); }
BEHAVIOUR(short_reductions, 2) { each_of((struct job){ .n = SHORT, .gap = 1, .is_sum = true }); }
BEHAVIOUR(long_broadcasts, 2) { each_of((struct job){ .n = LONG, .gap = 1 }); }
BEHAVIOUR(long_broadcasts_with_gaps, 2) { each_of((struct job){ .n = LONG, .gap = GAP }); }
BEHAVIOUR(long_reductions, 2) { each_of((struct job){ .n = LONG, .gap = 1, .is_sum = true }); }

/* Each rank sends to itself, too, and all but the last sleep in a call of the library's. */
BEHAVIOUR(exchanges, 2)
{
	enum { MANY = 40 };
	size_t bytes = (size_t)size * LONG * sizeof(int);
	int *in[MANY], *out[MANY], word = 0, last = size - 1, wrong = 0;
	MPI_Request requests[MANY];

	connect_comm(MPI_COMM_WORLD);
	for (int k = 0; k < MANY; k++) {
		in[k] = check_alloc(bytes);
		out[k] = check_alloc(bytes);
		for (int i = 0; i < size * LONG; i++)
			in[k][i] = (k * size + rank) * size * LONG + i;
		MPI_Ialltoall(in[k], LONG, MPI_INT, out[k], LONG, MPI_INT, MPI_COMM_WORLD,
			      &requests[k]);
	}
	if (rank < last)
		MPI_Recv(&word, 1, MPI_INT, last, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
	for (int to = 0; rank == last && to < last; to++)
		MPI_Send(&word, 1, MPI_INT, to, TAG, MPI_COMM_WORLD);
	for (int k = 0; k < MANY; k++) {
		for (int i = 0; i < size * LONG; i++)
			wrong += out[k][i] != (k * size + i / LONG) * size * LONG + rank * LONG +
						      i % LONG;
		free(in[k]);
		free(out[k]);
	}
	if (wrong)
		check_fail("%d numbers are wrong", wrong);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 0 has something in flight with rank 2, too, which comes last, and is no member where rank 1
 * has to go on. */
BEHAVIOUR(with_another_communicator, 3)
{
	struct job *jobs = check_alloc(N * sizeof(*jobs));
	MPI_Request early = MPI_REQUEST_NULL;
	MPI_Comm one, other;
	int word = 0;

	begin();
	MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &one);
	MPI_Comm_split(MPI_COMM_WORLD, rank == 0 || rank == 2 ? 0 : MPI_UNDEFINED, rank, &other);
	for (int form = 0; form < FORMS; form++) {
		if (one != MPI_COMM_NULL)
			connect_comm(one);
		if (other != MPI_COMM_NULL)
			connect_comm(other);
		if (rank == 0)
			MPI_Ibarrier(other, &early);
		if (rank < 2)
			start_all(jobs, N, (struct job){ .n = LONG, .gap = 1 }, one);
		if (rank == 1 || rank == 2)
			MPI_Recv(&word, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank < 2)
			end_all(jobs, N, form, one);
		for (int to = 1; rank == 0 && to < 3; to++)
			MPI_Send(&word, 1, MPI_INT, to, TAG, MPI_COMM_WORLD);
		if (rank == 2)
			MPI_Ibarrier(other, &early);
		MPI_Wait(&early, MPI_STATUS_IGNORE);
	}
	if (one != MPI_COMM_NULL)
		MPI_Comm_free(&one);
	if (other != MPI_COMM_NULL)
		MPI_Comm_free(&other);
	end();
	free(jobs);
}

/* Rank 0 may have returned from a broadcast before the others have come, and then calls no
 * collective any more. */
BEHAVIOUR(behind_a_call_that_may_have_been_left, 2)
{
	struct job *jobs = check_alloc(N * sizeof(*jobs));
	char *large = check_alloc(LARGE);
	int word = 0;

	begin();
	check_bcast(large, LARGE, 0, MPI_COMM_WORLD, 1);
	connect_comm(MPI_COMM_WORLD);
	check_fill(large, LARGE, rank ? 1 : 2);
	if (rank)
		usleep(50000);
	MPI_Bcast(large, LARGE, MPI_BYTE, 0, MPI_COMM_WORLD);
	start_all(jobs, N, (struct job){ .n = LONG, .gap = 1 }, MPI_COMM_WORLD);
	if (!rank)
		MPI_Recv(&word, 1, MPI_INT, size - 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	end_all(jobs, N, WAIT, MPI_COMM_WORLD);
	if (rank == size - 1)
		MPI_Send(&word, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
	check_same(large, LARGE, 2, "broadcast");
	end();
	free(large);
	free(jobs);
}

/*
 * Rank 0 waits in vain for rank 1, which is late for it as it is in a blocking collective for which
 * the last rank is late: what is done for those that wait does not get in the way of that.
 */
BEHAVIOUR(beside_blocking_collectives, 3)
{
	enum { FEW = 20, ROUNDS = 15 };
	struct job *jobs = check_alloc(N * sizeof(*jobs));
	char *own = check_alloc(LARGE), *all = check_alloc((size_t)size * LARGE);
	MPI_Request request = MPI_REQUEST_NULL;
	MPI_Comm other;

	begin();
	MPI_Comm_dup(MPI_COMM_WORLD, &other);
	connect_comm(MPI_COMM_WORLD);
	connect_comm(other);
	start_all(jobs, N, (struct job){ .n = LONG, .gap = 1 }, MPI_COMM_WORLD);
	end_all(jobs, N, WAIT, MPI_COMM_WORLD);
	for (int round = 0; round < ROUNDS; round++) {
		if (rank == size - 1)
			usleep(5000);
		start_all(jobs, FEW, (struct job){ .n = LONG, .gap = 1 }, MPI_COMM_WORLD);
		check_gather(own, all, LARGE, 1, MPI_COMM_WORLD, (uint64_t)round);
		MPI_Ibarrier(other, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		end_all(jobs, FEW, WAIT, MPI_COMM_WORLD);
	}
	MPI_Comm_free(&other);
	end();
	free(own);
	free(all);
	free(jobs);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
