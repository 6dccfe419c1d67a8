/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Persistent collectives: every kind, started again and again with other contents, in an order of
 * each rank's own, among the library's persistent messages, more of them than there are places,
 * freed with and before what they were made of.
 */
#include "check.h"

#include <unistd.h>

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)

enum kind {
	BARRIER,
	BCAST,
	GATHER,
	GATHERV,
	SCATTER,
	SCATTERV,
	ALLGATHER,
	ALLGATHERV,
	ALLTOALL,
	ALLTOALLV,
	ALLTOALLW,
	REDUCE,
	ALLREDUCE,
	SCAN,
	EXSCAN,
	REDUCE_SCATTER,
	REDUCE_SCATTER_BLOCK,
	NEIGHBOR_ALLGATHER,
	NEIGHBOR_ALLGATHERV,
	NEIGHBOR_ALLTOALL,
	NEIGHBOR_ALLTOALLV,
	NEIGHBOR_ALLTOALLW,
	KINDS
};

enum { MOST = 8, TURNS = 5 };

struct job {
	enum kind kind;
	int n, root;
	MPI_Comm comm;
	bool in_place;
	MPI_Op op;
	int *send, *recv, *want, counts[MOST], displs[MOST], bytes[MOST];
	MPI_Aint far_bytes[MOST];
	MPI_Datatype types[MOST];
};

static size_t words(const struct job *j) { return (size_t)j->n * MOST; }

static bool is_root_place(const struct job *j) { return j->in_place && rank == j->root; }

/* Persistent (request is not NULL) or blocking, into `recv`. */
#define ONE(Name, ...)                                                                             \
	(request ? MPI_##Name##_init(__VA_ARGS__, j->comm, MPI_INFO_NULL, request)                 \
		 : MPI_##Name(__VA_ARGS__, j->comm))

static void call(struct job *j, int *send, int *recv, MPI_Request *request)
{
	const void *from = j->in_place ? MPI_IN_PLACE : (void *)send;
	const void *at_root = is_root_place(j) ? MPI_IN_PLACE : (void *)send;
	void *to_root = is_root_place(j) ? MPI_IN_PLACE : (void *)recv;
	int n = j->n, root = j->root;

	switch (j->kind) {
	case BARRIER:
		if (request)
			MPI_Barrier_init(j->comm, MPI_INFO_NULL, request);
		else
			MPI_Barrier(j->comm);
		break;
	case BCAST: ONE(Bcast, recv, n, MPI_INT, root); break;
	case GATHER: ONE(Gather, at_root, n, MPI_INT, recv, n, MPI_INT, root); break;
	case GATHERV:
		ONE(Gatherv, at_root, j->counts[rank], MPI_INT, recv, j->counts, j->displs, MPI_INT,
		    root);
		break;
	case SCATTER: ONE(Scatter, send, n, MPI_INT, to_root, n, MPI_INT, root); break;
	case SCATTERV:
		ONE(Scatterv, send, j->counts, j->displs, MPI_INT, to_root, j->counts[rank],
		    MPI_INT, root);
		break;
	case ALLGATHER: ONE(Allgather, from, n, MPI_INT, recv, n, MPI_INT); break;
	case ALLGATHERV:
		ONE(Allgatherv, from, j->counts[rank], MPI_INT, recv, j->counts, j->displs,
		    MPI_INT);
		break;
	case ALLTOALL: ONE(Alltoall, from, n, MPI_INT, recv, n, MPI_INT); break;
	case ALLTOALLV:
		ONE(Alltoallv, send, j->counts, j->displs, MPI_INT, recv, j->counts, j->displs,
		    MPI_INT);
		break;
	case ALLTOALLW:
		ONE(Alltoallw, send, j->counts, j->bytes, j->types, recv, j->counts, j->bytes,
		    j->types);
		break;
	case REDUCE: ONE(Reduce, at_root, recv, n, MPI_INT, j->op, root); break;
	case ALLREDUCE: ONE(Allreduce, from, recv, n, MPI_INT, j->op); break;
	case SCAN: ONE(Scan, from, recv, n, MPI_INT, j->op); break;
	case EXSCAN: ONE(Exscan, from, recv, n, MPI_INT, j->op); break;
	case REDUCE_SCATTER: ONE(Reduce_scatter, from, recv, j->counts, MPI_INT, j->op); break;
	case REDUCE_SCATTER_BLOCK: ONE(Reduce_scatter_block, from, recv, n, MPI_INT, j->op); break;
	case NEIGHBOR_ALLGATHER: ONE(Neighbor_allgather, send, n, MPI_INT, recv, n, MPI_INT); break;
	case NEIGHBOR_ALLGATHERV:
		ONE(Neighbor_allgatherv, send, n, MPI_INT, recv, j->counts, j->displs, MPI_INT);
		break;
	case NEIGHBOR_ALLTOALL: ONE(Neighbor_alltoall, send, n, MPI_INT, recv, n, MPI_INT); break;
	case NEIGHBOR_ALLTOALLV:
		ONE(Neighbor_alltoallv, send, j->counts, j->displs, MPI_INT, recv, j->counts,
		    j->displs, MPI_INT);
		break;
	default:
		ONE(Neighbor_alltoallw, send, j->counts, j->far_bytes, j->types, recv, j->counts,
		    j->far_bytes, j->types);
	}
}

static MPI_Comm ring(void)
{
	MPI_Comm comm;

	MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &(int){ 1 }, 0, &comm);
	return comm;
}

/* Counts that all ranks and neighbours agree on: of each pair, and of each rank where that is asked
 * for. */
static void job_open(struct job *j, enum kind kind, int n, MPI_Comm comm)
{
	*j = (struct job){
		.kind = kind, .n = n, .comm = comm, .op = MPI_SUM, .root = (kind + n) % size
	};
	for (int i = 0; i < MOST; i++) {
		bool by_rank = kind == GATHERV || kind == SCATTERV || kind == ALLGATHERV ||
			       kind == REDUCE_SCATTER;

		j->counts[i] = by_rank ? n - (i % 2 && n > 1) : n;
		j->displs[i] = i * n;
		j->bytes[i] = 4 * i * n;
		j->far_bytes[i] = 4 * i * n;
		j->types[i] = MPI_INT;
	}
	j->send = check_alloc(words(j) * 4);
	j->recv = check_alloc(words(j) * 4);
	j->want = check_alloc(words(j) * 4);
}

static void job_close(struct job *j)
{
	free(j->send);
	free(j->recv);
	free(j->want);
}

/* Other contents in each turn; what is wanted is known from the blocking form. */
static void job_fill(struct job *j, int turn)
{
	for (size_t i = 0; i < words(j); i++) {
		j->send[i] =
			(int)(i * 7 + (size_t)rank * 1000 + (size_t)turn * 13 + (size_t)j->kind);
		j->recv[i] = (int)(i * 5 + (size_t)rank * 333 + (size_t)turn * 17);
		j->want[i] = j->recv[i];
	}
	call(j, j->send, j->want, NULL);
}

static void job_check(const struct job *j, int turn)
{
	for (size_t i = 0; i < words(j); i++)
		if (j->recv[i] != j->want[i]) {
			check_fail("kind %d, %d words%s, turn %d: word %zu is %d, not %d", j->kind,
				   j->n, j->in_place ? " in place" : "", turn, i, j->recv[i],
				   j->want[i]);
			return;
		}
}

static bool has_place(enum kind kind)
{
	return kind >= GATHER && kind <= REDUCE_SCATTER_BLOCK && kind != ALLTOALLV &&
	       kind != ALLTOALLW;
}

static void turns(enum kind kind, int n, bool in_place, MPI_Comm comm)
{
	MPI_Request request;
	struct job j;

	job_open(&j, kind, n, comm);
	j.in_place = in_place;
	call(&j, j.send, j.recv, &request);
	for (int turn = 0; turn < TURNS; turn++) {
		job_fill(&j, turn);
		MPI_Start(&request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		EXPECT(request != MPI_REQUEST_NULL);
		job_check(&j, turn);
	}
	MPI_Request_free(&request);
	EXPECT(request == MPI_REQUEST_NULL);
	job_close(&j);
}

BEHAVIOUR(every_kind_is_started_again, 1)
{
	static const int sizes[] = { 1, 700, 30000 };
	MPI_Comm comm;

	if (size == 1 && check_library("Intel")) {
		check_skip("Intel MPI's persistent gather of one rank on such a communicator moves "
			   "nothing, without Sluice too");
		return;
	}
	comm = ring();
	for (int kind = 0; kind < (size < 3 ? NEIGHBOR_ALLGATHER : KINDS);
	     kind++) /* two neighbours that are one: libraries differ */
		for (int i = 0; i < 3; i++) {
			turns((enum kind)kind, sizes[i], false, comm);
			if (has_place((enum kind)kind))
				turns((enum kind)kind, sizes[i], true, comm);
		}
	MPI_Comm_free(&comm);
}

/* ---- several at once --------------------------------------------------------------------- */

enum { TOGETHER = 6 };
static const enum kind together[TOGETHER] = { BCAST, ALLREDUCE, ALLTOALL, GATHER, BARRIER, SCAN };

static uint32_t next_random(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

static void shuffle(int *order, int n, uint32_t *state)
{
	for (int i = n - 1; i > 0; i--) {
		int k = (int)((next_random(state) >> 8) % (uint32_t)(i + 1)), kept = order[i];

		order[i] = order[k];
		order[k] = kept;
	}
}

/* Started one by one in an order of each rank's own, and waited for in another. */
BEHAVIOUR(each_rank_has_its_own_order, 2)
{
	uint32_t state = 99 + (uint32_t)rank * 7919;
	MPI_Request requests[TOGETHER];
	struct job jobs[TOGETHER];
	int order[TOGETHER];

	for (int i = 0; i < TOGETHER; i++) {
		order[i] = i;
		job_open(&jobs[i], together[i], i % 2 ? 40 : 9000, MPI_COMM_WORLD);
		call(&jobs[i], jobs[i].send, jobs[i].recv, &requests[i]);
	}
	for (int turn = 0; turn < 40; turn++) {
		for (int i = 0; i < TOGETHER; i++)
			job_fill(&jobs[i], turn);
		shuffle(order, TOGETHER, &state);
		for (int i = 0; i < TOGETHER; i++)
			MPI_Start(&requests[order[i]]);
		shuffle(order, TOGETHER, &state);
		for (int i = 0; i < TOGETHER; i++)
			MPI_Wait(&requests[order[i]], MPI_STATUS_IGNORE);
		for (int i = 0; i < TOGETHER; i++)
			job_check(&jobs[i], turn);
	}
	for (int i = 0; i < TOGETHER; i++) {
		MPI_Request_free(&requests[i]);
		job_close(&jobs[i]);
	}
}

/* Started together with persistent messages, and completed by every call that there is. */
BEHAVIOUR(among_persistent_messages, 2)
{
	enum { ALL = TOGETHER + 2 };
	int out = rank, in = -1, done, flag, indices[ALL];
	MPI_Request requests[ALL];
	struct job jobs[TOGETHER];

	for (int i = 0; i < TOGETHER; i++) {
		job_open(&jobs[i], together[i], i % 2 ? 9000 : 40, MPI_COMM_WORLD);
		call(&jobs[i], jobs[i].send, jobs[i].recv, &requests[i]);
	}
	MPI_Send_init(&out, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD, &requests[TOGETHER]);
	MPI_Recv_init(&in, 1, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD,
		      &requests[TOGETHER + 1]);
	for (int turn = 0; turn < 16; turn++) {
		for (int i = 0; i < TOGETHER; i++)
			job_fill(&jobs[i], turn);
		out = rank + turn * 100;
		MPI_Startall(ALL, requests);
		switch (turn % 4) {
		case 0:
			MPI_Waitall(ALL, requests, MPI_STATUSES_IGNORE);
			break;
		case 1:
			for (int i = 0; i < ALL; i++)
				MPI_Waitany(ALL, requests, &done, MPI_STATUS_IGNORE);
			MPI_Waitany(ALL, requests, &done, MPI_STATUS_IGNORE);
			EXPECT(done == MPI_UNDEFINED); /* none is active */
			break;
		case 2:
			for (int left = ALL; left; left -= done)
				MPI_Waitsome(ALL, requests, &done, indices, MPI_STATUSES_IGNORE);
			break;
		default:
			/* MPICH 5's ends the program, without Sluice too, where requests of its own
			 * are not complete */
			for (flag = check_library("MPICH") && !check_serves_requests(); !flag;)
				MPI_Testall(ALL, requests, &flag, MPI_STATUSES_IGNORE);
			for (int i = 0; i < ALL; i++)
				for (flag = 0; !flag;)
					MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
		}
		EXPECT(in == (rank + size - 1) % size + turn * 100);
		for (int i = 0; i < TOGETHER; i++)
			job_check(&jobs[i], turn);
	}
	for (int i = 0; i < ALL; i++)
		MPI_Request_free(&requests[i]);
	for (int i = 0; i < TOGETHER; i++)
		job_close(&jobs[i]);
}

/* A request that has not been started is complete and stays. */
BEHAVIOUR(inactive_ones_are_complete, 1)
{
	int value = 0, flag = 0, index = 0;
	MPI_Request request;
	MPI_Status status;

	MPI_Bcast_init(&value, 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
	for (int turn = 0; turn < 3; turn++) {
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		MPI_Test(&request, &flag, &status);
		EXPECT(flag);
		MPI_Get_count(&status, MPI_INT, &index);
		EXPECT(!index);
		MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
		EXPECT(flag && request != MPI_REQUEST_NULL);
		value = rank ? -1 : turn;
		MPI_Start(&request);
		for (flag = 0; !flag;)
			MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		EXPECT(value == turn);
	}
	MPI_Request_free(&request);
}

/* More than there are places for, all active, each rank's in its own order; the places are used
 * again. */
BEHAVIOUR(very_many, 2)
{
	enum { MANY = 1000 };
	MPI_Request *requests = check_alloc(MANY * sizeof(MPI_Request));
	int *values = check_alloc(MANY * sizeof(int));

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < MANY; i++)
			MPI_Bcast_init(&values[i], 1, MPI_INT, i % size, MPI_COMM_WORLD,
				       MPI_INFO_NULL, &requests[i]);
		for (int turn = 0; turn < 3; turn++) {
			for (int i = 0; i < MANY; i++)
				values[i] = rank == i % size ? i + turn : -1;
			for (int i = 0; i < MANY; i++)
				MPI_Start(&requests[rank % 2 ? MANY - 1 - i : i]);
			MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
			for (int i = 0; i < MANY; i++)
				EXPECT(values[i] == i + turn);
		}
		for (int i = 0; i < MANY; i++)
			MPI_Request_free(&requests[i]);
	}
	free(requests);
	free(values);
}

/* A root that need not wait is turns ahead of the others, and each turn keeps what it sent. */
BEHAVIOUR(a_root_is_ahead, 2)
{
	MPI_Request requests[2];
	int values[2] = { 0 };

	for (int i = 0; i < 2; i++)
		MPI_Bcast_init(&values[i], 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL,
			       &requests[i]);
	for (int turn = 0; turn < 60; turn++) {
		int i = turn % 2;

		if (rank && turn % 10 == 0)
			usleep(2000);
		values[i] = rank ? -1 : turn;
		MPI_Start(&requests[i]);
		MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
		EXPECT(values[i] == turn);
	}
	for (int i = 0; i < 2; i++)
		MPI_Request_free(&requests[i]);
}

/* ---- what they were made of, and their end ----------------------------------------------- */

BEHAVIOUR(outlive_their_datatype_and_communicator, 2)
{
	enum { N = 5000 };
	MPI_Datatype holes;
	MPI_Request request;
	MPI_Comm comm;
	int *at;

	if (check_library("Open MPI") && !check_serves_requests()) {
		check_skip("Open MPI's own do not outlive their communicator");
		return;
	}
	at = check_alloc(2 * N * sizeof(int));
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Type_vector(N, 1, 2, MPI_INT, &holes);
	MPI_Type_commit(&holes);
	MPI_Bcast_init(at, 1, holes, 0, comm, MPI_INFO_NULL, &request);
	MPI_Type_free(&holes);
	MPI_Comm_free(&comm);
	for (int turn = 0; turn < TURNS; turn++) {
		bool right = true;

		for (int i = 0; i < 2 * N; i++)
			at[i] = rank ? -1 : i + turn;
		MPI_Start(&request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		for (int i = 0; i < 2 * N - 1; i++)
			right &= at[i] == (rank && i % 2 ? -1 : i + turn);
		EXPECT(right);
	}
	MPI_Request_free(&request);
	free(at);
}

static void second(void *in, void *inout, int *n, MPI_Datatype *type)
{
	(void)in, (void)inout, (void)n, (void)type; /* a op b = b: not commutative */
}

BEHAVIOUR(by_an_operation_of_the_program, 1)
{
	MPI_Request request;
	struct job j;

	job_open(&j, ALLREDUCE, 3000, MPI_COMM_WORLD);
	MPI_Op_create(second, 0, &j.op);
	call(&j, j.send, j.recv, &request);
	for (int turn = 0; turn < TURNS; turn++) {
		job_fill(&j, turn);
		MPI_Start(&request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		job_check(&j, turn);
	}
	MPI_Request_free(&request);
	MPI_Op_free(&j.op);
	job_close(&j);
}


int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }

#else

BEHAVIOUR(every_kind_is_started_again, 1) { check_skip("this MPI has no persistent collectives"); }

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }

#endif
