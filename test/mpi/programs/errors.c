/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Wrong calls must be reported exactly as the host MPI reports them: each rank says class and text,
 * and test/mpi compares what is said with and without Sluice. A call that is wrong on all ranks
 * only; what a program may expect after an error on some of them is nothing.
 */
#include "check.h"

enum { BYTES = 100000 };

static char *buf, *recv_buf;
static int handled;

static void start(void)
{
	buf = check_alloc(BYTES);
	recv_buf = check_alloc((size_t)BYTES * size);
	check_fill(buf, BYTES, 1);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

/* After errors the communicator still works. */
static void finish(void)
{
	check_bcast(buf, BYTES, 0, MPI_COMM_WORLD, 9);
	check_gather(buf, recv_buf, BYTES, size - 1, MPI_COMM_WORLD, 10);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	free(buf);
	free(recv_buf);
}

static int library_is(const char *name)
{
	char text[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	MPI_Get_library_version(text, &length);
	return strstr(text, name) != NULL;
}

BEHAVIOUR(wrong_root, 1)
{
	start();
	check_say_error("bcast root = size", MPI_Bcast(buf, BYTES, MPI_BYTE, size, MPI_COMM_WORLD));
	check_say_error("bcast root = -1", MPI_Bcast(buf, BYTES, MPI_BYTE, -1, MPI_COMM_WORLD));
	check_say_error("gather root = size", MPI_Gather(buf, BYTES, MPI_BYTE, recv_buf, BYTES,
							 MPI_BYTE, size, MPI_COMM_WORLD));
	check_say_error("gather root = -7",
		  MPI_Gather(buf, BYTES, MPI_BYTE, recv_buf, BYTES, MPI_BYTE, -7, MPI_COMM_WORLD));
	finish();
}

BEHAVIOUR(negative_count, 1)
{
	start();
	check_say_error("bcast", MPI_Bcast(buf, -1, MPI_BYTE, 0, MPI_COMM_WORLD));
	check_say_error("gather, send",
		  MPI_Gather(buf, -5, MPI_BYTE, recv_buf, -5, MPI_BYTE, 0, MPI_COMM_WORLD));
	finish();
}

BEHAVIOUR(null_type, 1)
{
	start();
	check_say_error("bcast", MPI_Bcast(buf, BYTES, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD));
	check_say_error("gather", MPI_Gather(buf, BYTES, MPI_DATATYPE_NULL, recv_buf, BYTES,
				       MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD));
	finish();
}

BEHAVIOUR(uncommitted_type, 1)
{
	MPI_Datatype t;

	start();
	MPI_Type_vector(BYTES / 20, 1, 2, MPI_BYTE, &t);
	check_say_error("bcast", MPI_Bcast(buf, 1, t, 0, MPI_COMM_WORLD));
	check_say_error("gather", MPI_Gather(buf, 1, t, recv_buf, 1, t, 0, MPI_COMM_WORLD));
	MPI_Type_free(&t);
	finish();
}

/* Reported through the handler of MPI_COMM_WORLD (MPI-3) or MPI_COMM_SELF (MPI-4). */
BEHAVIOUR(null_communicator, 1)
{
	start();
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	check_say_error("bcast", MPI_Bcast(buf, BYTES, MPI_BYTE, 0, MPI_COMM_NULL));
	check_say_error("gather",
		  MPI_Gather(buf, BYTES, MPI_BYTE, recv_buf, BYTES, MPI_BYTE, 0, MPI_COMM_NULL));
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
	finish();
}

/* Open MPI does not look at these; there they end in a crash, with and without Sluice. */
BEHAVIOUR(null_buffers, 2)
{
	if (library_is("Open MPI")) {
		check_skip("Open MPI does not check buffers");
		return;
	}
	start();
	check_say_error("bcast", MPI_Bcast(NULL, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD));
	check_say_error("gather",
		  MPI_Gather(NULL, BYTES, MPI_BYTE, recv_buf, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD));
	finish();
}

static void handler(MPI_Comm *comm, int *code, ...)
{
	(void)comm;
	(void)code;
	handled++;
}

BEHAVIOUR(own_error_handler_is_called_once, 1)
{
	MPI_Errhandler own;
	MPI_Comm dup;
	int rc;

	start();
	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	check_bcast(buf, BYTES, 0, dup, 3);
	MPI_Comm_create_errhandler(handler, &own);
	MPI_Comm_set_errhandler(dup, own);
	handled = 0;
	rc = MPI_Bcast(buf, BYTES, MPI_BYTE, size + 3, dup);
	check_say_error("bcast with handler", rc);
	EXPECT(handled == 1);
	rc = MPI_Gather(buf, -1, MPI_BYTE, recv_buf, -1, MPI_BYTE, 0, dup);
	check_say_error("gather with handler", rc);
	EXPECT(handled == 2);
	check_bcast(buf, BYTES, 0, dup, 4);
	EXPECT(handled == 2);
	MPI_Errhandler_free(&own);
	MPI_Comm_free(&dup);
	finish();
}

static void say_and_wait(const char *what, int rc, MPI_Request *request)
{
	check_say_error(what, rc);
	if (!rc)
		MPI_Wait(request, MPI_STATUS_IGNORE);
}

/* Messages of no elements may have no type where the host MPI says so; if it does not, the handler
 * of the communicator hears of it, and not that of MPI_COMM_WORLD, which ends the job. */
BEHAVIOUR(messages_without_type, 1)
{
	MPI_Request request;
	MPI_Comm dup;

	MPI_Comm_dup(MPI_COMM_WORLD, &dup);
	MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
	for (int n = 0; n < 6; n += 5) {
		check_say_error("send",
				MPI_Send(NULL, n, MPI_DATATYPE_NULL, MPI_PROC_NULL, 0, dup));
		check_say_error("ssend",
				MPI_Ssend(NULL, n, MPI_DATATYPE_NULL, MPI_PROC_NULL, 0, dup));
		say_and_wait("isend", MPI_Isend(NULL, n, MPI_DATATYPE_NULL, MPI_PROC_NULL, 0, dup,
						&request), &request);
		check_say_error("sendrecv",
				MPI_Sendrecv(NULL, n, MPI_DATATYPE_NULL, MPI_PROC_NULL, 0, NULL, 0,
					     MPI_BYTE, MPI_PROC_NULL, 0, dup, MPI_STATUS_IGNORE));
	}
	MPI_Comm_free(&dup);
}

/* Sluice changes neither error handlers nor attributes nor the thread level. */
BEHAVIOUR(what_a_program_can_ask_for, 1)
{
	int *value, flag, level, main_thread;
	MPI_Errhandler now;

	MPI_Comm_get_errhandler(MPI_COMM_WORLD, &now);
	EXPECT(now == MPI_ERRORS_ARE_FATAL);
	MPI_Query_thread(&level);
	MPI_Is_thread_main(&main_thread);
	check_say("thread level %d, main %d", level, main_thread);
	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag);
	check_say("tag bound %d", flag ? *value : -1);
	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &value, &flag);
	check_say("universe %d", flag);
}

int main(int argc, char **argv)
{
	/* The level that is asked for must be the level that is got, never a raised one. */
	long level = check_env("HARNESS_THREAD_LEVEL", 0);
	const int levels[] = { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
			       MPI_THREAD_MULTIPLE };

	return check_main(argc, argv, levels[level & 3]);
}
