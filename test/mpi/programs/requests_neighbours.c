/* SPDX-License-Identifier: BSD-3-Clause */
/* Barriers and exchanges with neighbours as requests: on a ring, a grid with edges, and a graph. */
#include "check.h"

#include <sched.h>
#include <stdatomic.h>

enum { MOST = 8, WORDS = 20000 };

static MPI_Comm ring(void)
{
	MPI_Comm comm;

	MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &(int){ size > 2 }, 0, &comm);
	return comm;
}

/* Each sends to the next two, the second of which may be itself. */
static MPI_Comm graph(void)
{
	int sources[2] = { (rank + size - 1) % size, (rank + size - 2 % size) % size };
	int targets[2] = { (rank + 1) % size, (rank + 2) % size };
	MPI_Comm comm;

	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, sources, MPI_UNWEIGHTED, 2, targets,
				       MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
	return comm;
}

static void connect_comm(MPI_Comm comm)
{
	int one = 1, n = 0;
	MPI_Request r;

	MPI_Iallreduce(&one, &n, 1, MPI_INT, MPI_SUM, comm, &r);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	MPI_Barrier(comm);
}

/* The data of rank `from` for its target k. */
static int word(int from, int k, int i) { return from * 1000003 + k * 101 + i; }

enum form { ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW, FORMS };

struct sides {
	int *send, *recv, counts[MOST], displs[MOST], sent[MOST], sdispls[MOST];
	MPI_Aint rbytes[MOST], sbytes[MOST];
	MPI_Datatype types[MOST];
};

static void call(enum form form, struct sides *s, int n, MPI_Comm comm, MPI_Request *r)
{
	switch (form) {
	case ALLGATHER:
		MPI_Ineighbor_allgather(s->send, n, MPI_INT, s->recv, n, MPI_INT, comm, r);
		break;
	case ALLGATHERV:
		MPI_Ineighbor_allgatherv(s->send, n, MPI_INT, s->recv, s->counts, s->displs,
					 MPI_INT, comm, r);
		break;
	case ALLTOALL:
		MPI_Ineighbor_alltoall(s->send, n, MPI_INT, s->recv, n, MPI_INT, comm, r);
		break;
	case ALLTOALLV:
		MPI_Ineighbor_alltoallv(s->send, s->sent, s->sdispls, MPI_INT, s->recv, s->counts,
					s->displs, MPI_INT, comm, r);
		break;
	default:
		MPI_Ineighbor_alltoallw(s->send, s->sent, s->sbytes, s->types, s->recv, s->counts,
					s->rbytes, s->types, comm, r);
	}
}

/* sources[j] < 0: nobody. at[j]: which of its targets this rank is. */
static void exchange(MPI_Comm comm, const int *sources, const int *at, int n_in, int n_out)
{
	struct sides s;

	s.send = check_alloc(sizeof(int) * MOST * WORDS);
	s.recv = check_alloc(sizeof(int) * MOST * WORDS);
	for (int turn = 0; turn < 3 * FORMS; turn++) {
		enum form form = (enum form)(turn % FORMS);
		bool gathers = form <= ALLGATHERV;
		int n = turn < FORMS ? 3 : turn < 2 * FORMS ? 1500 : WORDS;
		MPI_Request r;

		for (int k = 0; k < MOST; k++) {
			s.counts[k] = s.sent[k] = n;
			s.displs[k] = s.sdispls[k] = k * n;
			s.rbytes[k] = s.sbytes[k] = (MPI_Aint)k * n * (MPI_Aint)sizeof(int);
			s.types[k] = MPI_INT;
		}
		memset(s.recv, 0xff, sizeof(int) * (size_t)(MOST * n));
		for (int k = 0; k < n_out; k++)
			for (int i = 0; i < n; i++)
				s.send[k * n + i] = word(rank, gathers ? 0 : k, i);
		call(form, &s, n, comm, &r);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
		for (int j = 0; j < n_in; j++)
			for (int i = 0; i < n; i++) {
				int want = sources[j] < 0
						   ? -1
						   : word(sources[j], gathers ? 0 : at[j], i);

				if (s.recv[j * n + i] == want)
					continue;
				check_fail(
					"form %d, %d words: word %d from source %d is %d, not %d",
					(int)form, n, i, j, s.recv[j * n + i], want);
				break;
			}
	}
	free(s.send);
	free(s.recv);
}

BEHAVIOUR(neighbours_on_a_line_or_a_ring_exchange, 1)
{
	MPI_Comm comm = ring();
	bool is_ring = size > 2;
	int sources[2] = { rank      ? rank - 1
			   : is_ring ? size - 1
				     : -1,
			   rank + 1 < size ? rank + 1
			   : is_ring       ? 0
					   : -1 };

	connect_comm(comm);
	exchange(comm, sources, (int[]){ 1, 0 }, 2, 2);
	MPI_Comm_free(&comm);
}

BEHAVIOUR(neighbours_of_a_graph_exchange, 3)
{
	MPI_Comm comm = graph();

	connect_comm(comm);
	exchange(comm, (int[]){ (rank + size - 1) % size, (rank + size - 2) % size },
		 (int[]){ 0, 1 }, 2, 2);
	MPI_Comm_free(&comm);
}

/* The two first ranks exchange n words; the others have no neighbours, and name nothing. */
static void exchange_in_pairs(bool by_types, bool by_addresses, bool waits)
{
	int other = 1 - rank, n = rank < 2, count = WORDS, displ = 0, wrong = 0;
	int *send = check_alloc(sizeof(int) * WORDS), *recv = check_alloc(sizeof(int) * WORDS);
	void *from = by_addresses ? MPI_BOTTOM : send, *to = by_addresses ? MPI_BOTTOM : recv;
	int *counts = n ? &count : NULL, *displs = n ? &displ : NULL;
	MPI_Aint at[2] = { 0 };
	MPI_Datatype type = MPI_INT;
	MPI_Request r;
	MPI_Comm comm;

	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, n, &other, MPI_UNWEIGHTED, n, &other,
				       MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
	connect_comm(comm);
	if (by_addresses) {
		MPI_Get_address(send, &at[0]);
		MPI_Get_address(recv, &at[1]);
	}
	for (int i = 0; i < WORDS; i++)
		send[i] = word(rank, 0, i);
	if (!n)
		from = to = NULL;
	if (!by_types && waits)
		MPI_Neighbor_alltoallv(from, counts, displs, MPI_INT, to, counts, displs, MPI_INT,
				       comm);
	else if (!by_types)
		MPI_Ineighbor_alltoallv(from, counts, displs, MPI_INT, to, counts, displs, MPI_INT,
					comm, &r);
	else if (waits)
		MPI_Neighbor_alltoallw(from, counts, n ? &at[0] : NULL, n ? &type : NULL, to,
				       counts, n ? &at[1] : NULL, n ? &type : NULL, comm);
	else
		MPI_Ineighbor_alltoallw(from, counts, n ? &at[0] : NULL, n ? &type : NULL, to,
					counts, n ? &at[1] : NULL, n ? &type : NULL, comm, &r);
	if (!waits)
		MPI_Wait(&r, MPI_STATUS_IGNORE);
	for (int i = 0; n && i < WORDS; i++)
		wrong += recv[i] != word(other, 0, i);
	if (wrong)
		check_fail("%d of %d words are wrong", wrong, WORDS);
	/* the ranks still agree which call comes next */
	MPI_Allreduce(send, recv, WORDS, MPI_INT, MPI_SUM, comm);
	MPI_Comm_free(&comm);
	free(send);
	free(recv);
}

BEHAVIOUR(a_rank_without_neighbours_names_no_lists, 3)
{
	for (int form = 0; form < 4; form++)
		exchange_in_pairs(form & 1, false, form & 2);
}

/* Does the host MPI accept NULL as a buffer that no neighbour uses? On one rank it executes the
 * call. */
static bool accepts_null_as_buffer(void)
{
	int none = 0, rc;
	MPI_Comm comm;

	MPI_Dist_graph_create_adjacent(MPI_COMM_SELF, 0, &none, MPI_UNWEIGHTED, 0, &none,
				       MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	rc = MPI_Neighbor_allgather(NULL, 1, MPI_INT, NULL, 1, MPI_INT, comm);
	MPI_Comm_free(&comm);
	return rc == MPI_SUCCESS;
}

/* All ranks send to the first one, or the first one sends to all. The others name one buffer. */
static void exchange_with_first(bool to_first, enum form form, bool waits)
{
	int all[MOST], first = 0, n_in = 1, n_out = 1, wrong = 0;
	int *many = check_alloc(sizeof(int) * WORDS * MOST);
	int *one = check_alloc(sizeof(int) * WORDS);
	int *send, *recv;
	MPI_Comm comm;
	MPI_Request r;

	for (int i = 0; i < size; i++)
		all[i] = i;
	*(to_first ? &n_in : &n_out) = rank ? 0 : size;
	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, n_in, to_first ? all : &first,
				       MPI_UNWEIGHTED, n_out, to_first ? &first : all,
				       MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
	connect_comm(comm);
	send = !n_out ? NULL : to_first ? one : many;
	recv = !n_in ? NULL : to_first ? many : one;
	for (int k = 0; k < (form == ALLGATHER ? n_out > 0 : n_out); k++)
		for (int i = 0; i < WORDS; i++)
			send[k * WORDS + i] = word(rank, k, i);
	if (form == ALLGATHER && waits)
		MPI_Neighbor_allgather(send, WORDS, MPI_INT, recv, WORDS, MPI_INT, comm);
	else if (form == ALLGATHER)
		MPI_Ineighbor_allgather(send, WORDS, MPI_INT, recv, WORDS, MPI_INT, comm, &r);
	else if (waits)
		MPI_Neighbor_alltoall(send, WORDS, MPI_INT, recv, WORDS, MPI_INT, comm);
	else
		MPI_Ineighbor_alltoall(send, WORDS, MPI_INT, recv, WORDS, MPI_INT, comm, &r);
	if (!waits)
		MPI_Wait(&r, MPI_STATUS_IGNORE);
	for (int k = 0; k < n_in; k++)
		for (int i = 0; i < WORDS; i++)
			wrong += recv[k * WORDS + i] !=
				 word(to_first ? k : 0,
				      to_first || form == ALLGATHER ? 0 : rank, i);
	if (wrong)
		check_fail("%d words are wrong", wrong);
	/* the ranks still agree which call comes next */
	MPI_Allreduce(one, many, WORDS, MPI_INT, MPI_SUM, comm);
	MPI_Comm_free(&comm);
	free(many);
	free(one);
}

BEHAVIOUR(a_rank_without_neighbours_names_no_buffer, 2)
{
	if (!accepts_null_as_buffer()) {
		check_skip("the host MPI wants a buffer");
		return;
	}
	for (int i = 0; i < 8; i++)
		exchange_with_first(i & 1, i & 2 ? ALLGATHER : ALLTOALL, i & 4);
}

/* Host MPIs exchange two parts for one rank in their order, or in the reverse order. Sluice
 * does as they do: the first call on a communicator is always the host MPI's. */
static void exchange_twice_a_pair(MPI_Comm comm)
{
	int send[2] = { word(rank, 0, 0), word(rank, 1, 0) }, recv[2][2] = { { 0 } };
	MPI_Request r;

	for (int i = 0; i < 2; i++) {
		MPI_Ineighbor_alltoall(send, 1, MPI_INT, recv[i], 1, MPI_INT, comm, &r);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
		if (!i)
			connect_comm(comm);
	}
	for (int k = 0; rank < 2 && k < 2; k++)
		if (recv[0][k] != recv[1][k])
			check_fail("part %d was %d, then %d", k, recv[0][k], recv[1][k]);
	MPI_Comm_free(&comm);
}

BEHAVIOUR(parts_of_a_pair_keep_their_order, 2)
{
	int other[2] = { 1 - rank, 1 - rank }, n = rank < 2 ? 2 : 0;
	MPI_Comm comm;

	MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, n, other, MPI_UNWEIGHTED, n, other,
				       MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &comm);
	exchange_twice_a_pair(comm);
	MPI_Cart_create(MPI_COMM_WORLD, 1, &(int){ 2 }, &(int){ 1 }, 0, &comm);
	if (comm != MPI_COMM_NULL)
		exchange_twice_a_pair(comm);
}

/* One rank gives addresses as displacements, its neighbour a buffer. */
BEHAVIOUR(displacements_are_addresses, 2)
{
	exchange_in_pairs(true, !rank, true);
	exchange_in_pairs(true, !rank, false);
}

struct page { _Atomic int came; };

BEHAVIOUR(no_barrier_ends_before_all_have_come, 1)
{
	enum { ROUNDS = 200 };
	struct page *page;
	MPI_Aint bytes;
	MPI_Win window;
	int unit;

	MPI_Win_allocate_shared(rank ? 0 : sizeof(*page), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &page,
				&window);
	MPI_Win_shared_query(window, 0, &bytes, &unit, &page);
	if (!rank)
		*page = (struct page){ 0 };
	MPI_Barrier(MPI_COMM_WORLD);
	connect_comm(MPI_COMM_WORLD);
	for (int i = 1; i <= ROUNDS; i++) {
		int flag = 0;
		MPI_Request r;

		atomic_fetch_add(&page->came, 1);
		MPI_Ibarrier(MPI_COMM_WORLD, &r);
		while (i % 2 && !flag)
			MPI_Test(&r, &flag, MPI_STATUS_IGNORE);
		if (i % 2 == 0)
			MPI_Wait(&r, MPI_STATUS_IGNORE);
		if (atomic_load(&page->came) < i * size)
			check_fail("barrier %d has ended when %d had come", i,
				   atomic_load(&page->came));
	}
	MPI_Win_free(&window);
}

/* A rank that has come to many need not come back for the others to pass. */
BEHAVIOUR(barriers_are_passed_while_a_rank_computes, 1)
{
	enum { AHEAD = 20 };
	MPI_Request r[AHEAD];

	connect_comm(MPI_COMM_WORLD);
	for (int i = 0; i < AHEAD; i++)
		MPI_Ibarrier(MPI_COMM_WORLD, &r[i]);
	for (int i = AHEAD; i-- > 0;)
		MPI_Wait(&r[i], MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
