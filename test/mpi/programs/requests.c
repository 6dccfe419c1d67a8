/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nonblocking collectives as requests: every call that completes one, alone and among the library's
 * own requests, in any order, many at once, on communicators that come and go.
 */
#include "check.h"

#define BYTES ((size_t)200000 + 13)
#define TAG 3

/* A nonblocking broadcast on a communicator that is not connected yet is the library's; one
 * blocking collective later, the next is Sluice's. */
static void connect_comm(MPI_Comm comm)
{
	char *large = check_alloc((size_t)1 << 20);
	MPI_Request request;

	MPI_Ibcast(large, 1 << 20, MPI_BYTE, 0, comm, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Barrier(comm);
	free(large);
}

/* ---- one collective in flight, of any kind ----------------------------------------------- */

enum kind { BCAST, GATHER, SCATTER, ALLGATHER, ALLTOALL, ALLTOALLV, ALLREDUCE, SCAN, KINDS };

struct flight {
	enum kind kind;
	MPI_Comm comm;
	int root, me, ranks;
	size_t bytes; /* of one part */
	uint64_t seed;
	char *send, *recv;
	int *counts, *displs;
	MPI_Request request;
};

static uint64_t part_seed(const struct flight *f, int from, int to)
{
	return check_seed(f->seed, (uint64_t)from * 100 + (uint64_t)to);
}

static size_t place(const struct flight *f, int i) { return (size_t)i * f->bytes; }

/* The i-th number that rank `from` adds to a sum. */
static uint32_t addend(const struct flight *f, int from, size_t i)
{
	return (uint32_t)(f->seed * 31 + (uint64_t)from * 7 + i);
}

static void check_sums(const struct flight *f, int ranks)
{
	const uint32_t *sums = (const uint32_t *)f->recv;
	uint32_t wrong = 0;

	for (size_t i = 0; i < f->bytes / 4; i++) {
		uint32_t sum = 0;

		for (int from = 0; from < ranks; from++)
			sum += addend(f, from, i);
		wrong += sums[i] != sum;
	}
	if (wrong)
		check_fail("%u wrong sums of %zu", wrong, f->bytes / 4);
}

static void flight_fill(struct flight *f)
{
	bool is_root = f->me == f->root;

	if (f->kind >= ALLREDUCE) {
		for (size_t i = 0; i < f->bytes / 4; i++)
			((uint32_t *)f->send)[i] = addend(f, f->me, i);
		return;
	}
	if (f->kind == BCAST)
		check_fill(f->send, f->bytes, is_root ? part_seed(f, 0, 0) : 7);
	else if (f->kind == GATHER || f->kind == ALLGATHER)
		check_fill(f->send, f->bytes, part_seed(f, f->me, 0));
	for (int i = 0; i < f->ranks && f->kind >= SCATTER && f->kind != ALLGATHER; i++)
		check_fill(f->send + place(f, i), f->bytes,
			   part_seed(f, f->kind == SCATTER ? 0 : f->me, i));
}

static void flight_launch(struct flight *f)
{
	int n = (int)f->bytes;

	switch (f->kind) {
	case BCAST:
		MPI_Ibcast(f->send, n, MPI_BYTE, f->root, f->comm, &f->request);
		break;
	case GATHER:
		MPI_Igather(f->send, n, MPI_BYTE, f->recv, n, MPI_BYTE, f->root, f->comm,
			    &f->request);
		break;
	case SCATTER:
		MPI_Iscatter(f->send, n, MPI_BYTE, f->recv, n, MPI_BYTE, f->root, f->comm,
			     &f->request);
		break;
	case ALLGATHER:
		MPI_Iallgather(f->send, n, MPI_BYTE, f->recv, n, MPI_BYTE, f->comm, &f->request);
		break;
	case ALLTOALL:
		MPI_Ialltoall(f->send, n, MPI_BYTE, f->recv, n, MPI_BYTE, f->comm, &f->request);
		break;
	case ALLREDUCE:
		MPI_Iallreduce(f->send, f->recv, n / 4, MPI_UINT32_T, MPI_SUM, f->comm,
			       &f->request);
		break;
	case SCAN:
		MPI_Iscan(f->send, f->recv, n / 4, MPI_UINT32_T, MPI_SUM, f->comm, &f->request);
		break;
	default:
		MPI_Ialltoallv(f->send, f->counts, f->displs, MPI_BYTE, f->recv, f->counts,
			       f->displs, MPI_BYTE, f->comm, &f->request);
		break;
	}
}

static void flight_begin(struct flight *f, enum kind kind, MPI_Comm comm, int root, size_t bytes,
			 uint64_t seed)
{
	*f = (struct flight){ .kind = kind, .comm = comm, .bytes = bytes, .seed = seed };
	MPI_Comm_rank(comm, &f->me);
	MPI_Comm_size(comm, &f->ranks);
	f->root = root % f->ranks;
	f->send = check_alloc(bytes * (size_t)f->ranks);
	f->recv = check_alloc(bytes * (size_t)f->ranks);
	f->counts = check_alloc((size_t)f->ranks * sizeof(int));
	f->displs = check_alloc((size_t)f->ranks * sizeof(int));
	for (int i = 0; i < f->ranks; i++) {
		f->counts[i] = (int)bytes;
		f->displs[i] = (int)place(f, i);
	}
	flight_fill(f);
	flight_launch(f);
}

/* Its request is complete. */
static void flight_check(struct flight *f)
{
	bool is_root = f->me == f->root;

	if (f->kind == BCAST)
		check_same(f->send, f->bytes, part_seed(f, 0, 0), "broadcast");
	if (f->kind >= ALLREDUCE)
		check_sums(f, f->kind == SCAN ? f->me + 1 : f->ranks);
	if (f->kind == SCATTER)
		check_same(f->recv, f->bytes, part_seed(f, 0, f->me), "scatter");
	for (int i = 0; i < f->ranks; i++) {
		if (f->kind == ALLGATHER || (f->kind == GATHER && is_root))
			check_same(f->recv + place(f, i), f->bytes, part_seed(f, i, 0), "gather");
		if (f->kind == ALLTOALL || f->kind == ALLTOALLV)
			check_same(f->recv + place(f, i), f->bytes, part_seed(f, i, f->me),
				   "all to all");
	}
	EXPECT(f->request == MPI_REQUEST_NULL);
	free(f->send);
	free(f->recv);
	free(f->counts);
	free(f->displs);
}

/* ---- the calls that complete ------------------------------------------------------------- */

enum form { WAIT, WAITALL, WAITANY, WAITSOME, TEST, TESTALL, TESTANY, TESTSOME, GET_STATUS, FORMS };

/* Until all of them are complete, whatever the form. */
static void complete(enum form form, MPI_Request *requests, int n)
{
	int indices[64], left = n, count, flag, i;

	for (i = 0; form == WAIT && i < n; i++)
		MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
	for (i = 0; (form == TEST || form == GET_STATUS) && i < n; i++) {
		bool is_null = requests[i] == MPI_REQUEST_NULL;

		for (flag = 0; !flag;)
			if (form == TEST)
				MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
			else
				MPI_Request_get_status(requests[i], &flag, MPI_STATUS_IGNORE);
		if (form == GET_STATUS) {
			EXPECT(is_null || requests[i] != MPI_REQUEST_NULL);
			MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
		}
	}
	if (form == WAITALL)
		MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
	for (flag = 0; form == TESTALL && !flag;)
		MPI_Testall(n, requests, &flag, MPI_STATUSES_IGNORE);
	for (; (form == WAITANY || form == TESTANY) && left;) {
		flag = 1;
		if (form == WAITANY)
			MPI_Waitany(n, requests, &i, MPI_STATUS_IGNORE);
		else
			MPI_Testany(n, requests, &i, &flag, MPI_STATUS_IGNORE);
		left -= flag;
		if (flag)
			EXPECT(i >= 0 && i < n && requests[i] == MPI_REQUEST_NULL);
	}
	for (; (form == WAITSOME || form == TESTSOME) && left;) {
		if (form == WAITSOME)
			MPI_Waitsome(n, requests, &count, indices, MPI_STATUSES_IGNORE);
		else
			MPI_Testsome(n, requests, &count, indices, MPI_STATUSES_IGNORE);
		EXPECT(count != MPI_UNDEFINED && (form == TESTSOME || count > 0));
		left -= count > 0 ? count : 0;
	}
	for (i = 0; i < n; i++)
		EXPECT(requests[i] == MPI_REQUEST_NULL);
}

static void mix(enum form form, uint64_t seed)
{
	int next = (rank + 1) % size, last = (rank + size - 1) % size, n = 0;
	char out[64], in[64];
	struct flight flights[KINDS];
	MPI_Request requests[KINDS + 3];

	check_fill(out, sizeof(out), check_seed(seed, (uint64_t)rank));
	MPI_Irecv(in, sizeof(in), MPI_BYTE, last, TAG, MPI_COMM_WORLD, &requests[n++]);
	for (int k = 0; k < KINDS; k++) {
		flight_begin(&flights[k], k, MPI_COMM_WORLD, k, BYTES,
			     check_seed(seed, (uint64_t)k));
		requests[n++] = flights[k].request;
		if (k == 1)
			requests[n++] = MPI_REQUEST_NULL;
	}
	MPI_Isend(out, sizeof(out), MPI_BYTE, next, TAG, MPI_COMM_WORLD, &requests[n++]);
	if (form == WAITANY || form == TESTANY || form == WAITSOME || form == TESTSOME) {
		requests[2 + 1] =
			requests[--n]; /* no null request: the count must come out right */
	}
	complete(form, requests, n);
	check_same(in, sizeof(in), check_seed(seed, (uint64_t)last), "message");
	for (int k = 0; k < KINDS; k++) {
		flights[k].request = MPI_REQUEST_NULL;
		flight_check(&flights[k]);
	}
}

BEHAVIOUR(every_form_of_wait_and_test_completes_collectives_among_messages, 1)
{
	connect_comm(MPI_COMM_WORLD);
	for (int round = 0; round < 3; round++)
		for (int form = 0; form < FORMS; form++)
			mix(form, check_seed(11, (uint64_t)(round * FORMS + form)));
}

BEHAVIOUR(collectives_are_completed_in_any_order, 1)
{
	enum { N = 24 };
	struct flight flights[N];
	uint64_t state = 5; /* alike on all ranks, but for the order */

	connect_comm(MPI_COMM_WORLD);
	for (int round = 0; round < 4; round++) {
		uint64_t order = (uint64_t)rank * 77 + (uint64_t)round;

		for (int i = 0; i < N; i++)
			flight_begin(&flights[i], check_random(&state) % KINDS, MPI_COMM_WORLD, i,
				     1 + check_random(&state) % 100000,
				     check_seed((uint64_t)round, (uint64_t)i));
		for (int left = N; left; left--) {
			int i = (int)(check_random(&order) % (uint64_t)left);

			MPI_Wait(&flights[i].request, MPI_STATUS_IGNORE);
			flight_check(&flights[i]);
			flights[i] = flights[left - 1];
		}
	}
}

/* ---- what a status says ------------------------------------------------------------------ */

BEHAVIOUR(a_status_of_a_collective_is_not_cancelled, 1)
{
	MPI_Status status, statuses[2];
	MPI_Request both[2];
	struct flight f, g;
	int flag = -1;

	connect_comm(MPI_COMM_WORLD);
	flight_begin(&f, BCAST, MPI_COMM_WORLD, 0, BYTES, 1);
	status.MPI_ERROR = 4711;
	MPI_Wait(&f.request, &status);
	EXPECT(status.MPI_ERROR == 4711 || status.MPI_ERROR == MPI_SUCCESS);
	MPI_Test_cancelled(&status, &flag);
	EXPECT(!flag);
	flight_check(&f);

	flight_begin(&f, BCAST, MPI_COMM_WORLD, 0, BYTES, 2);
	flight_begin(&g, GATHER, MPI_COMM_WORLD, 0, BYTES, 3);
	both[0] = f.request;
	both[1] = g.request;
	EXPECT(MPI_Waitall(2, both, statuses) == MPI_SUCCESS);
	for (int i = 0; i < 2; i++) {
		MPI_Test_cancelled(&statuses[i], &flag);
		EXPECT(!flag);
	}
	f.request = g.request = MPI_REQUEST_NULL;
	flight_check(&f);
	flight_check(&g);
}

BEHAVIOUR(asking_for_the_status_of_several_moves_them, 2)
{
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
	enum { N = 3 };
	char *buf = check_alloc(N * BYTES);

	connect_comm(MPI_COMM_WORLD);
	for (int form = 0; form < 3; form++) {
		MPI_Request requests[N];
		int flag = 0, which[N], seen;

		for (int i = 0; i < N; i++) {
			check_fill(buf + (size_t)i * BYTES, BYTES,
				   rank ? 1 : check_seed((uint64_t)form, (uint64_t)i));
			MPI_Ibcast(buf + (size_t)i * BYTES, (int)BYTES, MPI_BYTE, 0, MPI_COMM_WORLD,
				   &requests[i]);
		}
		while (!flag) {
			if (form == 0)
				MPI_Request_get_status_all(N, requests, &flag, MPI_STATUSES_IGNORE);
			else if (form == 1)
				MPI_Request_get_status_any(N, requests, which, &flag,
							   MPI_STATUS_IGNORE);
			else if (!MPI_Request_get_status_some(N, requests, &seen, which,
							      MPI_STATUSES_IGNORE))
				flag = seen > 0;
		}
		MPI_Waitall(N, requests, MPI_STATUSES_IGNORE);
		for (int i = 0; i < N; i++)
			check_same(buf + (size_t)i * BYTES, BYTES,
				   check_seed((uint64_t)form, (uint64_t)i), "broadcast");
	}
	free(buf);
#else
	check_skip("this MPI is older than 4.1");
#endif
}

BEHAVIOUR(nothing_to_wait_for_is_said_as_always, 1)
{
	MPI_Request none[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL };
	int index = 0, flag = 0, count = 0, indices[2];
	struct flight f;

	connect_comm(MPI_COMM_WORLD);
	flight_begin(&f, BCAST, MPI_COMM_WORLD, 0, BYTES, 1);
	MPI_Waitany(2, none, &index, MPI_STATUS_IGNORE);
	EXPECT(index == MPI_UNDEFINED);
	MPI_Testany(2, none, &index, &flag, MPI_STATUS_IGNORE);
	EXPECT(flag && index == MPI_UNDEFINED);
	MPI_Waitsome(2, none, &count, indices, MPI_STATUSES_IGNORE);
	EXPECT(count == MPI_UNDEFINED);
	MPI_Testall(2, none, &flag, MPI_STATUSES_IGNORE);
	EXPECT(flag);
	MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE);
	MPI_Wait(&none[0], MPI_STATUS_IGNORE);
	MPI_Wait(&f.request, MPI_STATUS_IGNORE);
	flight_check(&f);
}

/* ---- many -------------------------------------------------------------------------------- */

BEHAVIOUR(thousands_are_in_flight, 1)
{
	int n = (int)check_env("CHECK_REQUESTS", 2000);
	MPI_Request *requests = check_alloc((size_t)n * sizeof(*requests));
	size_t bytes = 300;
	char *all = check_alloc((size_t)n * bytes);

	connect_comm(MPI_COMM_WORLD);
	for (int i = 0; i < n; i++) {
		check_fill(all + (size_t)i * bytes, bytes,
			   rank == i % size ? check_seed(9, (uint64_t)i) : 5);
		MPI_Ibcast(all + (size_t)i * bytes, (int)bytes, MPI_BYTE, i % size, MPI_COMM_WORLD,
			   &requests[i]);
	}
	MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < n && !check_failed(); i++)
		check_same(all + (size_t)i * bytes, bytes, check_seed(9, (uint64_t)i), "broadcast");
	free(all);
	free(requests);
}

/* Rank 0 sleeps in a call of the library's while others need what it has not published yet. */
BEHAVIOUR(a_rank_that_receives_a_message_does_not_hold_up_its_queue, 2)
{
	enum { N = 200 };
	struct flight *flights = check_alloc(N * sizeof(*flights));
	int word = 0;

	connect_comm(MPI_COMM_WORLD);
	for (int i = 0; i < N; i++)
		flight_begin(&flights[i], BCAST, MPI_COMM_WORLD, 0, 5000, (uint64_t)i);
	if (!rank)
		MPI_Recv(&word, 1, MPI_INT, size - 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < N; i++) {
		MPI_Wait(&flights[i].request, MPI_STATUS_IGNORE);
		flight_check(&flights[i]);
	}
	if (rank == size - 1)
		MPI_Send(&word, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	free(flights);
}

BEHAVIOUR(a_wait_lets_large_messages_move, 2)
{
	size_t bytes = (size_t)24 << 20;
	char *message = check_alloc(bytes);
	MPI_Request request = MPI_REQUEST_NULL;
	struct flight f;

	connect_comm(MPI_COMM_WORLD);
	if (!rank) {
		check_fill(message, bytes, 6);
		MPI_Isend(message, (int)bytes, MPI_BYTE, size - 1, TAG, MPI_COMM_WORLD, &request);
	} else if (rank == size - 1) {
		MPI_Recv(message, (int)bytes, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check_same(message, bytes, 6, "message");
	}
	flight_begin(&f, ALLTOALL, MPI_COMM_WORLD, 0, BYTES, 4);
	MPI_Wait(&f.request, MPI_STATUS_IGNORE);
	flight_check(&f);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	free(message);
}

/* ---- communicators ----------------------------------------------------------------------- */

BEHAVIOUR(blocking_and_nonblocking_collectives_on_several_communicators, 1)
{
	enum { COMMS = 4, N = 40 };
	MPI_Comm comms[COMMS];
	struct flight flights[N];
	char *buf = check_alloc(BYTES), *all = check_alloc(BYTES * (size_t)size);
	uint64_t state = 3;

	for (int c = 0; c < COMMS; c++) {
		if (c % 2)
			MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &comms[c]);
		else
			MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]);
		connect_comm(comms[c]);
	}
	for (int i = 0; i < N; i++) {
		flight_begin(&flights[i], check_random(&state) % KINDS,
			     comms[check_random(&state) % COMMS], i,
			     1 + check_random(&state) % BYTES, (uint64_t)i);
		if (i % 3 == 0)
			check_bcast(buf, 1 + check_random(&state) % BYTES, i % size,
				    comms[check_random(&state) % COMMS], (uint64_t)i);
		if (i % 5 == 0)
			check_gather(buf, all, 1 + check_random(&state) % BYTES, 0, MPI_COMM_WORLD,
				     (uint64_t)i);
	}
	for (int i = N - 1; i >= 0; i--) {
		MPI_Wait(&flights[i].request, MPI_STATUS_IGNORE);
		flight_check(&flights[i]);
	}
	for (int c = 0; c < COMMS; c++)
		MPI_Comm_free(&comms[c]);
	free(buf);
	free(all);
}

BEHAVIOUR(a_communicator_is_freed_while_its_collectives_are_in_flight, 1)
{
	enum { N = 6 };
	struct flight flights[N];

	for (int round = 0; round < 5; round++) {
		MPI_Comm comm;

		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		connect_comm(comm);
		for (int i = 0; i < N; i++)
			flight_begin(&flights[i], i % KINDS, comm, i, BYTES, (uint64_t)i);
		MPI_Comm_free(&comm);
		for (int i = 0; i < N; i++) {
			MPI_Wait(&flights[i].request, MPI_STATUS_IGNORE);
			flight_check(&flights[i]);
		}
	}
}

/* ---- datatypes --------------------------------------------------------------------------- */

BEHAVIOUR(a_datatype_with_gaps_may_be_freed_at_once, 1)
{
	enum { N = 30000 };
	int *buf = check_alloc(3 * N * sizeof(int));
	MPI_Datatype every_third;
	MPI_Request request;

	connect_comm(MPI_COMM_WORLD);
	for (int round = 0; round < 5; round++) {
		int root = round % size;

		for (int i = 0; i < 3 * N; i++)
			buf[i] = rank == root ? i + round : -1;
		MPI_Type_vector(N, 1, 3, MPI_INT, &every_third);
		MPI_Type_commit(&every_third);
		MPI_Ibcast(buf, 1, every_third, root, MPI_COMM_WORLD, &request);
		MPI_Type_free(&every_third);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		for (int i = 0; i < 3 * N && !check_failed(); i++)
			EXPECT(buf[i] == (rank == root || i % 3 == 0 ? i + round : -1));
	}
	free(buf);
}

BEHAVIOUR(what_belongs_to_a_rank_may_be_in_place, 1)
{
	size_t bytes = BYTES;
	char *all = check_alloc(bytes * (size_t)size), *own = check_alloc(bytes);
	MPI_Request request;
	int n = (int)bytes;

	connect_comm(MPI_COMM_WORLD);
	check_fill(all + (size_t)rank * bytes, bytes, check_seed(1, (uint64_t)rank));
	MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n, MPI_BYTE, MPI_COMM_WORLD,
		       &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	for (int i = 0; i < size; i++)
		check_same(all + (size_t)i * bytes, bytes, check_seed(1, (uint64_t)i), "allgather");
	for (int i = 0; i < size; i++)
		check_fill(all + (size_t)i * bytes, bytes, check_seed((uint64_t)rank, (uint64_t)i));
	MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n, MPI_BYTE, MPI_COMM_WORLD,
		      &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	for (int i = 0; i < size; i++)
		check_same(all + (size_t)i * bytes, bytes, check_seed((uint64_t)i, (uint64_t)rank),
			   "all to all");
	check_fill(own, bytes, check_seed(2, (uint64_t)rank));
	memcpy(all, own, bytes);
	MPI_Igather(rank ? own : MPI_IN_PLACE, n, MPI_BYTE, all, n, MPI_BYTE, 0, MPI_COMM_WORLD,
		    &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	for (int i = 0; !rank && i < size; i++)
		check_same(all + (size_t)i * bytes, bytes, check_seed(2, (uint64_t)i), "gather");
	MPI_Iscatter(all, n, MPI_BYTE, rank ? own : MPI_IN_PLACE, n, MPI_BYTE, 0, MPI_COMM_WORLD,
		     &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	check_same(rank ? own : all, bytes, check_seed(2, (uint64_t)rank), "scatter");
	free(all);
	free(own);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
