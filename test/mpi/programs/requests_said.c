/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Results of nonblocking collectives that a program sees: statuses in every form of completion,
 * among messages, null and inactive requests and requests of its own; errors of wrong calls, and
 * the request afterwards. test/mpi compares what is said with and without Sluice.
 *
 * Run alone: mpiexec -n 2 sluice run requests_said statuses_of_each_kind
 */
#include "check.h"

enum { COUNT = 40000, TAG = 7, HANDLES = 6 };

static int *out, *in, handled;

static void connect_comm(MPI_Comm comm)
{
	MPI_Request request;

	for (int i = 0; i < 2; i++) {
		MPI_Iallreduce(out, in, COUNT, MPI_INT, MPI_SUM, comm, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		MPI_Barrier(comm);
	}
}

static void begin(void)
{
	out = check_alloc((size_t)size * COUNT * sizeof(int));
	in = check_alloc((size_t)size * COUNT * sizeof(int));
	for (int i = 0; i < size * COUNT; i++)
		out[i] = in[i] = i;
	connect_comm(MPI_COMM_WORLD);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

static void end(void)
{
	MPI_Request request;

	EXPECT(MPI_Iallreduce(out, in, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request) ==
	       MPI_SUCCESS);
	EXPECT(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
	       in[COUNT - 1] == size * (COUNT - 1));
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
	free(out);
	free(in);
}

static MPI_Status fresh(void)
{
	MPI_Status s;

	memset(&s, 0, sizeof(s));
	s.MPI_SOURCE = s.MPI_TAG = s.MPI_ERROR = 4711;
	return s;
}

/* A status says only that a collective succeeded and was not cancelled: libraries may leave
 * anything in the rest. */
static void say_status(const char *what, const MPI_Status *s, bool is_message)
{
	int count = -1, elements = -1, cancelled = -1;

	MPI_Test_cancelled(s, &cancelled);
	if (!is_message) {
		EXPECT(s->MPI_ERROR == 4711 || s->MPI_ERROR == MPI_SUCCESS);
		check_say("%s: cancelled %d", what, cancelled);
		return;
	}
	MPI_Get_count(s, MPI_INT, &count);
	MPI_Get_elements(s, MPI_INT, &elements);
	check_say("%s: source %d, tag %d, error %d, count %d, elements %d, cancelled %d", what,
		  s->MPI_SOURCE, s->MPI_TAG, s->MPI_ERROR, count, elements, cancelled);
}

static int call(int kind, MPI_Request *r)
{
	MPI_Comm w = MPI_COMM_WORLD;
	int n = COUNT;

	switch (kind) {
	case 0: return MPI_Ibarrier(w, r);
	case 1: return MPI_Ibcast(in, n, MPI_INT, 0, w, r);
	case 2: return MPI_Igather(out, n, MPI_INT, in, n, MPI_INT, 0, w, r);
	case 3: return MPI_Iscatter(out, n, MPI_INT, in, n, MPI_INT, 0, w, r);
	case 4: return MPI_Iallgather(out, n, MPI_INT, in, n, MPI_INT, w, r);
	case 5: return MPI_Ialltoall(out, n, MPI_INT, in, n, MPI_INT, w, r);
	case 6: return MPI_Ireduce(out, in, n, MPI_INT, MPI_SUM, 0, w, r);
	case 7: return MPI_Iallreduce(out, in, n, MPI_INT, MPI_SUM, w, r);
	case 8: return MPI_Iscan(out, in, 10, MPI_INT, MPI_SUM, w, r);
	default: return MPI_Iexscan(out, in, 10, MPI_INT, MPI_SUM, w, r);
	}
}

BEHAVIOUR(statuses_of_each_kind, 1)
{
	begin();
	for (int kind = 0; kind < 10; kind++) {
		MPI_Status s = fresh();
		MPI_Request r;
		int flag = 0;

		call(kind, &r);
		while (!flag)
			MPI_Request_get_status(r, &flag, &s);
		say_status("asked", &s, false);
		EXPECT(r != MPI_REQUEST_NULL);
		s = fresh();
		MPI_Wait(&r, &s);
		say_status("waited", &s, false);
		EXPECT(r == MPI_REQUEST_NULL);
		call(kind, &r);
		s = fresh();
		for (flag = 0; !flag;)
			MPI_Test(&r, &flag, &s);
		say_status("tested", &s, false);
	}
	end();
}

static int query(void *extra, MPI_Status *s)
{
	MPI_Status_set_elements(s, MPI_INT, 3);
	MPI_Status_set_cancelled(s, 0);
	s->MPI_SOURCE = s->MPI_TAG = 5;
	return MPI_SUCCESS;
}

static int release(void *extra)
{
	handled++;
	return MPI_SUCCESS;
}

static int cancel(void *extra, int complete) { return MPI_SUCCESS; }

/* A collective, a message, none, an inactive one, one of the program's own, a collective. */
static void mixture(MPI_Request r[HANDLES])
{
	static int word;
	MPI_Request sent;

	call(7, &r[0]);
	MPI_Irecv(&word, 1, MPI_INT, rank, TAG, MPI_COMM_WORLD, &r[1]);
	MPI_Isend(&rank, 1, MPI_INT, rank, TAG, MPI_COMM_WORLD, &sent);
	MPI_Wait(&sent, MPI_STATUS_IGNORE);
	r[2] = MPI_REQUEST_NULL;
	MPI_Recv_init(&word, 1, MPI_INT, rank, TAG + 1, MPI_COMM_WORLD, &r[3]);
	MPI_Grequest_start(query, release, cancel, NULL, &r[4]);
	MPI_Grequest_complete(r[4]);
	call(1, &r[5]);
}

static void say_several(const char *what, MPI_Request r[HANDLES], const MPI_Status s[HANDLES])
{
	for (int i = 0; i < HANDLES; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s %d%s", what, i,
			 r[i] == MPI_REQUEST_NULL ? ", none left" : "");
		say_status(name, &s[i], i && i < HANDLES - 1);
	}
	EXPECT(r[3] != MPI_REQUEST_NULL);
	MPI_Request_free(&r[3]);
}

BEHAVIOUR(statuses_of_a_mixture, 1)
{
	MPI_Status s[HANDLES], one[HANDLES];
	MPI_Request r[HANDLES];
	int flag = 0, left, index, count, indices[HANDLES];

	begin();
	handled = 0;
	for (int form = 0; form < 6; form++) {
		for (int i = 0; i < HANDLES; i++)
			s[i] = fresh();
		mixture(r);
		if (form == 0)
			MPI_Waitall(HANDLES, r, s);
		for (flag = 0; form == 1 && !flag;)
			MPI_Testall(HANDLES, r, &flag, s);
		for (left = 4; form > 1 && left;) {
			for (int i = 0; i < HANDLES; i++)
				one[i] = fresh();
			flag = 1;
			count = 1;
			if (form == 2)
				MPI_Waitany(HANDLES, r, &index, one);
			else if (form == 3)
				MPI_Testany(HANDLES, r, &index, &flag, one);
			else if (form == 4)
				MPI_Waitsome(HANDLES, r, &count, indices, one);
			else
				MPI_Testsome(HANDLES, r, &count, indices, one);
			for (int k = 0; flag && k < count; k++, left--)
				s[form < 4 ? index : indices[k]] = one[k];
		}
		say_several((const char *[]){ "waitall", "testall", "waitany", "testany",
					      "waitsome", "testsome" }[form],
			    r, s);
	}
	s[0] = fresh();
	MPI_Waitany(HANDLES, r, &index, s);
	check_say("nothing left: index %d", index == MPI_UNDEFINED);
	say_status("nothing left", s, true);
	check_say("%d freed", handled);
	end();
}

static void count_error(MPI_Comm *comm, int *code, ...)
{
	(void)comm;
	(void)code;
	handled++;
}

/* The library writes the same value to the request of a wrong call. */
static void say_wrong(const char *what, int rc, MPI_Request *r)
{
	static MPI_Request untouched;

	check_say_error(what, rc);
	check_say("%s: request %s", what,
		  *r == untouched          ? "untouched"
		  : *r == MPI_REQUEST_NULL ? "null"
					   : "something");
	*r = untouched;
}

BEHAVIOUR(errors_of_wrong_calls, 2)
{
	MPI_Comm w = MPI_COMM_WORLD;
	MPI_Request r;
	MPI_Datatype pair;

	begin();
	memset(&r, 0, sizeof(r));
	MPI_Type_contiguous(2, MPI_INT, &pair);
	say_wrong("count of a broadcast", MPI_Ibcast(in, -1, MPI_INT, 0, w, &r), &r);
	say_wrong("root of a broadcast", MPI_Ibcast(in, COUNT, MPI_INT, size, w, &r), &r);
	say_wrong("type of a broadcast", MPI_Ibcast(in, COUNT, MPI_DATATYPE_NULL, 0, w, &r), &r);
	say_wrong("not committed", MPI_Ibcast(in, COUNT / 2, pair, 0, w, &r), &r);
	say_wrong("root of a gather",
		  MPI_Igather(out, COUNT, MPI_INT, in, COUNT, MPI_INT, -5, w, &r), &r);
	say_wrong("count of a gather", MPI_Igather(out, -2, MPI_INT, in, -2, MPI_INT, 0, w, &r),
		  &r);
	say_wrong("count of a scatter", MPI_Iscatter(out, -2, MPI_INT, in, -2, MPI_INT, 0, w, &r),
		  &r);
	say_wrong("count of an exchange", MPI_Ialltoall(out, -2, MPI_INT, in, -2, MPI_INT, w, &r),
		  &r);
	say_wrong("no operation", MPI_Iallreduce(out, in, COUNT, MPI_INT, MPI_OP_NULL, w, &r), &r);
	say_wrong("bits of reals", MPI_Iallreduce(out, in, COUNT / 2, MPI_DOUBLE, MPI_BXOR, w, &r),
		  &r);
	say_wrong("root of a reduction",
		  MPI_Ireduce(out, in, COUNT, MPI_INT, MPI_SUM, size + 1, w, &r), &r);
	say_wrong("no communicator",
		  MPI_Iallreduce(out, in, COUNT, MPI_INT, MPI_SUM, MPI_COMM_NULL, &r), &r);
	say_wrong("no communicator, barrier", MPI_Ibarrier(MPI_COMM_NULL, &r), &r);
	MPI_Type_free(&pair);
	end();
}

/* While some of ours are in flight. */
BEHAVIOUR(errors_beside_requests_in_flight, 2)
{
	MPI_Request r[2], wrong;
	MPI_Errhandler own;
	MPI_Comm dup;

	begin();
	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	connect_comm(dup);
	MPI_Comm_create_errhandler(count_error, &own);
	MPI_Comm_set_errhandler(dup, own);
	handled = 0;
	MPI_Iallreduce(out, in, COUNT, MPI_INT, MPI_SUM, dup, &r[0]);
	check_say_error("in flight", MPI_Ibcast(in, -1, MPI_INT, 0, dup, &wrong));
	check_say("handler called %d times", handled);
	check_say_error("count of a wait", MPI_Waitall(-1, r, MPI_STATUSES_IGNORE));
	check_say_error("in time", MPI_Wait(&r[0], MPI_STATUS_IGNORE));
	MPI_Errhandler_free(&own);
	MPI_Comm_free(&dup);
	end();
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
