/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators by the thousand, and requests that nobody waits for: abandoned, freed, cancelled.
 * What a library makes of the last, which the standard forbids, test/mpi compares with and without
 * Sluice.
 *
 * HARNESS_COMMUNICATORS: how many of them.
 *
 * Run alone: mpiexec -n 2 sluice run lifetimes communicators_come_and_go
 */
#include "check.h"

#include <unistd.h>

enum { SHORT = 700, LONG = 90000, WARM = 40, PASSES = 4, KEPT_KB = 65536 };

static char *one, *all;

static void start(void)
{
	one = check_alloc(LONG);
	all = check_alloc((size_t)LONG * (size_t)size);
}

static void finish(void)
{
	free(one);
	free(all);
}

static int count_of(const char *name, int dflt) { return (int)check_env(name, dflt); }

/* ---- communicators ----------------------------------------------------------------------- */

/* Operations in flight on one communicator. */
struct use {
	MPI_Comm comm;
	MPI_Request requests[3];
	int sum[2], in, *from_all;
	char text[SHORT];
};

static void make_comm(struct use *u, int i)
{
	if (i % 2)
		MPI_Comm_dup(MPI_COMM_WORLD, &u->comm);
	else
		MPI_Comm_split(MPI_COMM_WORLD, 0, i % 4 ? rank : size - rank, &u->comm);
	MPI_Comm_rank(u->comm, &u->in);
	u->in += i;
}

static void begin_use(struct use *u, int i)
{
	int me;

	MPI_Comm_rank(u->comm, &me);
	u->from_all = check_alloc((size_t)size * sizeof(int));
	check_fill(u->text, SHORT, me ? 3 : check_seed(1, (uint64_t)i));
	MPI_Iallreduce(&u->in, u->sum, 1, MPI_INT, MPI_SUM, u->comm, &u->requests[0]);
	MPI_Ibcast(u->text, SHORT, MPI_BYTE, 0, u->comm, &u->requests[1]);
	MPI_Iallgather(&u->in, 1, MPI_INT, u->from_all, 1, MPI_INT, u->comm, &u->requests[2]);
}

static void use_blocking(struct use *u, int i)
{
	int me;

	MPI_Comm_rank(u->comm, &me);
	check_bcast(one, i % 3 ? SHORT : LONG, i % size, u->comm, check_seed(2, (uint64_t)i));
	check_gather(one, all, SHORT, i % size, u->comm, check_seed(3, (uint64_t)i));
	MPI_Allreduce(&u->in, &u->sum[1], 1, MPI_INT, MPI_SUM, u->comm);
	EXPECT(u->sum[1] == size * (size - 1) / 2 + size * i);
}

static void end_use(struct use *u, int i)
{
	MPI_Waitall(3, u->requests, MPI_STATUSES_IGNORE);
	EXPECT(u->sum[0] == size * (size - 1) / 2 + size * i);
	check_same(u->text, SHORT, check_seed(1, (uint64_t)i), "broadcast");
	for (int r = 0; r < size; r++)
		EXPECT(u->from_all[r] == r + i);
	free(u->from_all);
}

/* Some of what is taken for a communicator is kept for the next ones, and not everything the first
 * time. */
static void expect_no_growth(const struct check_usage *before, const struct check_usage *after,
			     int comms, long kept_kb)
{
	if (after->descriptors > before->descriptors || after->threads > before->threads)
		check_fail("%ld descriptors and %ld threads, there were %ld and %ld",
			   after->descriptors, after->threads, before->descriptors,
			   before->threads);
	if (after->mappings > before->mappings + 20)
		check_fail("%ld mappings, there were %ld", after->mappings, before->mappings);
	if (after->rss_kb > before->rss_kb + kept_kb + 4 * comms)
		check_fail("%ld KB, there were %ld", after->rss_kb, before->rss_kb);
}

/* All ranks have given back what goes when the last one has left a communicator. */
static void see_usage(struct check_usage *out)
{
	for (int i = 0; i < 2; i++)
		MPI_Barrier(MPI_COMM_WORLD);
	check_usage(out);
}

BEHAVIOUR(communicators_come_and_go, 2)
{
	int comms = count_of("HARNESS_COMMUNICATORS", 60);
	struct check_usage before, after;

	start();
	for (int i = 0; i < comms + WARM; i++) {
		struct use u;

		if (i == WARM)
			see_usage(&before);
		make_comm(&u, i);
		use_blocking(&u, i);
		begin_use(&u, i);
		use_blocking(&u, i);
		if (i % 3)
			MPI_Comm_free(&u.comm);
		end_use(&u, i);
		if (!(i % 3))
			MPI_Comm_free(&u.comm);
	}
	see_usage(&after);
	expect_no_growth(&before, &after, comms, KEPT_KB / 8);
	finish();
}

static void use_many(struct use *uses, int comms)
{
	for (int i = 0; i < comms; i++)
		make_comm(&uses[i], i);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < comms; i++)
			begin_use(&uses[i], i);
		for (int i = 0; i < comms; i++)
			use_blocking(&uses[i], i);
		for (int i = comms - 1; i >= 0; i--)
			end_use(&uses[i], i);
	}
}

BEHAVIOUR(communicators_are_there_at_once, 2)
{
	int comms = count_of("HARNESS_COMMUNICATORS", 60);
	struct use *uses = check_alloc((size_t)comms * sizeof(*uses));
	struct check_usage before, during, after;

	start();
	for (int pass = 0; pass < PASSES; pass++) {
		if (pass == PASSES / 2)
			see_usage(&before);
		use_many(uses, comms);
		check_usage(&during);
		for (int i = 0; i < comms; i++)
			MPI_Comm_free(&uses[i].comm);
	}
	see_usage(&after);
	/* what all of them took may go back a pass later, but not twice as much */
	expect_no_growth(&before, &after, comms, KEPT_KB + 300l * comms);
	check_note("%d communicators: %ld descriptors, %ld mappings, %ld KB more", comms,
		   during.descriptors - after.descriptors, during.mappings - after.mappings,
		   during.rss_kb - after.rss_kb);
	free(uses);
	finish();
}

/* ---- what nobody waits for --------------------------------------------------------------- */

static void connect_world(void)
{
	for (int i = 0; i < 8; i++)
		check_bcast(one, LONG, i % size, MPI_COMM_WORLD, (uint64_t)i);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void say_class(const char *what, int rc)
{
	int class = -1;

	MPI_Error_class(rc, &class);
	check_say("%s: class %d", what, class);
}

/* The communicator goes on to work. */
static void expect_working(void)
{
	for (int i = 0; i < 4; i++)
		check_bcast(one, LONG, i % size, MPI_COMM_WORLD, check_seed(9, (uint64_t)i));
	check_gather(one, all, LONG, 0, MPI_COMM_WORLD, 10);
}

/* Others wait for theirs, and get what the one brings that has let its own go. */
BEHAVIOUR(a_collective_is_freed_while_it_is_active, 2)
{
	start();
	connect_world();
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int i = 0; i < 20; i++) {
		int bytes = i % 2 ? SHORT : LONG, rc;
		MPI_Request request;
		char *text = check_alloc((size_t)bytes);

		check_fill(text, (size_t)bytes, rank ? 5 : check_seed(4, (uint64_t)i));
		MPI_Ibcast(text, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
		if (!rank) {
			rc = MPI_Request_free(&request);
			if (i < 2)
				say_class("free", rc);
			if (!rc)
				EXPECT(request == MPI_REQUEST_NULL);
			else
				MPI_Wait(&request, MPI_STATUS_IGNORE);
		} else {
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		}
		MPI_Barrier(MPI_COMM_WORLD);
		check_same(text, (size_t)bytes, check_seed(4, (uint64_t)i), "broadcast");
		free(text);
	}
	expect_working();
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	finish();
}

BEHAVIOUR(a_collective_cannot_be_cancelled, 2)
{
	MPI_Request request;
	MPI_Status status;
	int flag = -1;

	start();
	connect_world();
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	for (int i = 0; i < 2; i++) {
		int bytes = i % 2 ? SHORT : LONG;

		check_fill(one, (size_t)bytes, rank ? 5 : check_seed(6, (uint64_t)i));
		MPI_Ibcast(one, bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
		say_class("cancel", MPI_Cancel(&request));
		EXPECT(request != MPI_REQUEST_NULL);
		MPI_Wait(&request, &status);
		MPI_Test_cancelled(&status, &flag);
		EXPECT(!flag);
		check_same(one, (size_t)bytes, check_seed(6, (uint64_t)i), "broadcast");
	}
	expect_working();
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
	finish();
}

/* Has to be the last: their memory stays. Some have ended, some need what nobody brings before
 * MPI_Finalize. */
BEHAVIOUR(collectives_are_abandoned_at_the_end, 2)
{
	enum { N = 30 };
	static MPI_Request requests[N];
	static int in[N], out[N];
	char *kept = check_alloc((size_t)N * LONG);

	start();
	connect_world();
	for (int i = 0; i < N; i++) {
		int bytes = i % 2 ? SHORT : LONG;

		if (i % 3)
			MPI_Ibcast(kept + (size_t)i * LONG, bytes, MPI_BYTE, i % size,
				   MPI_COMM_WORLD, &requests[i]);
		else
			MPI_Iallreduce(&in[i], &out[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
				       &requests[i]);
	}
	finish();
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
