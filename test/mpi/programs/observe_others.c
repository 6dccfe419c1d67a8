/* SPDX-License-Identifier: BSD-3-Clause */
/* Windows, files and the ends of things, right after a collective. */
#include "observe.h"

#define SELF MPI_COMM_SELF

static void check_other(size_t bytes, uint64_t seed)
{
	check_same(observe_other, bytes, seed, "what a call has read");
}

/* ---- windows ----------------------------------------------------------------------------- */

/* Open MPI 4 has no windows of one process over memory of the program's. */
static bool has_windows(void)
{
	int mine, all;
	MPI_Win win;

	MPI_Comm_set_errhandler(SELF, MPI_ERRORS_RETURN);
	mine = MPI_Win_create(&mine, sizeof(mine), 1, MPI_INFO_NULL, SELF, &win) == MPI_SUCCESS;
	if (mine)
		MPI_Win_free(&win);
	MPI_Comm_set_errhandler(SELF, MPI_ERRORS_ARE_FATAL);
	MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	if (!all)
		check_skip("this MPI refuses such windows");
	return all;
}

static void reads_put(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Win win;

	MPI_Win_create(observe_other, (MPI_Aint)bytes, 1, MPI_INFO_NULL, SELF, &win);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
	MPI_Put(buf, (int)bytes, MPI_BYTE, 0, 0, (int)bytes, MPI_BYTE, win);
	MPI_Win_unlock(0, win);
	MPI_Win_free(&win);
	check_other(bytes, seed);
}

static void writes_get(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Win win;

	check_fill(observe_other, bytes, seed);
	MPI_Win_create(observe_other, (MPI_Aint)bytes, 1, MPI_INFO_NULL, SELF, &win);
	MPI_Win_fence(0, win);
	MPI_Get(buf, (int)bytes, MPI_BYTE, 0, 0, (int)bytes, MPI_BYTE, win);
	MPI_Win_fence(0, win);
	MPI_Win_free(&win);
}

BEHAVIOUR(put_and_get, 2)
{
	if (has_windows())
		observe(reads_put, writes_get);
}

static void reads_accumulate(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Win win;
	void *base;

	MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, SELF, &base, &win);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
	MPI_Accumulate(buf, (int)bytes, MPI_BYTE, 0, 0, (int)bytes, MPI_BYTE, MPI_REPLACE, win);
	MPI_Win_flush(0, win);
	MPI_Get(observe_other, (int)bytes, MPI_BYTE, 0, 0, (int)bytes, MPI_BYTE, win);
	MPI_Win_unlock(0, win);
	MPI_Win_free(&win);
	check_other(bytes, seed);
}

BEHAVIOUR(accumulate, 2)
{
	observe(reads_accumulate, NULL);
}

/* The buffer itself becomes a window while it is pending. */
static void reads_window(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Win win;

	MPI_Win_create(buf, (MPI_Aint)bytes, 1, MPI_INFO_NULL, SELF, &win);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	MPI_Get(observe_other, (int)bytes, MPI_BYTE, 0, 0, (int)bytes, MPI_BYTE, win);
	MPI_Win_unlock(0, win);
	MPI_Win_free(&win);
	check_other(bytes, seed);
}

static void writes_window(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Win win;

	check_fill(observe_other, bytes, seed);
	MPI_Win_create(buf, (MPI_Aint)bytes, 1, MPI_INFO_NULL, SELF, &win);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
	MPI_Put(observe_other, (int)bytes, MPI_BYTE, 0, 0, (int)bytes, MPI_BYTE, win);
	MPI_Win_unlock(0, win);
	MPI_Win_free(&win);
}

BEHAVIOUR(the_buffer_becomes_a_window, 2)
{
	if (has_windows())
		observe(reads_window, writes_window);
}

/* A peer looks into this rank's window, into which this rank has copied what it was just sent. */
BEHAVIOUR(data_goes_on_through_a_window, 2)
{
	size_t n = OBSERVE_BYTES;
	char *buf = check_alloc(n), *got = check_alloc(n);
	MPI_Win win;
	void *base;

	MPI_Win_allocate((MPI_Aint)n, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
	for (int round = 0; round < 6; round++) {
		if (!rank)
			check_fill(buf, n, 60 + round);
		observe_late(round % 2 == !rank);
		MPI_Bcast(buf, (int)n, MPI_BYTE, 0, MPI_COMM_WORLD);
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
		MPI_Put(buf, (int)n, MPI_BYTE, rank, 0, (int)n, MPI_BYTE, win);
		MPI_Win_unlock(rank, win);
		MPI_Barrier(MPI_COMM_WORLD);
		MPI_Win_lock(MPI_LOCK_SHARED, (rank + 1) % size, 0, win);
		MPI_Get(got, (int)n, MPI_BYTE, (rank + 1) % size, 0, (int)n, MPI_BYTE, win);
		MPI_Win_unlock((rank + 1) % size, win);
		check_same(got, n, 60 + round, "what the neighbour was sent");
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Win_free(&win);
	free(got);
	free(buf);
}

/* ---- files ------------------------------------------------------------------------------- */

static char file_name[64];

static void open_file(MPI_File *file)
{
	snprintf(file_name, sizeof(file_name), "/tmp/observe-%d", (int)getpid());
	MPI_File_open(SELF, file_name, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE,
		      MPI_INFO_NULL, file);
}

static void reads_write_at(char *buf, size_t bytes, uint64_t seed)
{
	MPI_File file;

	open_file(&file);
	EXPECT(MPI_File_write_at(file, 0, buf, (int)bytes, MPI_BYTE, MPI_STATUS_IGNORE) ==
	       MPI_SUCCESS);
	EXPECT(MPI_File_read_at(file, 0, observe_other, (int)bytes, MPI_BYTE, MPI_STATUS_IGNORE) ==
	       MPI_SUCCESS);
	MPI_File_close(&file);
	check_other(bytes, seed);
}

static void writes_read(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Request request;
	MPI_File file;

	check_fill(observe_other, bytes, seed);
	open_file(&file);
	EXPECT(MPI_File_write(file, observe_other, (int)bytes, MPI_BYTE, MPI_STATUS_IGNORE) ==
	       MPI_SUCCESS);
	EXPECT(MPI_File_iread_at(file, 0, buf, (int)bytes, MPI_BYTE, &request) == MPI_SUCCESS);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_File_close(&file);
}

BEHAVIOUR(files, 2)
{
	observe(reads_write_at, writes_read);
}

static void reads_write_all(char *buf, size_t bytes, uint64_t seed)
{
	MPI_File file;

	open_file(&file);
	MPI_File_write_at_all_begin(file, 0, buf, (int)bytes, MPI_BYTE);
	MPI_File_write_at_all_end(file, buf, MPI_STATUS_IGNORE);
	MPI_File_read_at_all(file, 0, observe_other, (int)bytes, MPI_BYTE, MPI_STATUS_IGNORE);
	MPI_File_close(&file);
	check_other(bytes, seed);
}

BEHAVIOUR(collective_files, 2)
{
	observe(reads_write_all, NULL);
}

/* ---- synchronisation, ends --------------------------------------------------------------- */

static void with_barrier(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Barrier(MPI_COMM_SELF);
	check_same(buf, bytes, seed, "after a barrier");
}

BEHAVIOUR(barrier, 2)
{
	observe(with_barrier, NULL);
}

/* The communicator goes while operations on it are pending; the buffer stays. */
static void free_while_pending(int (*end)(MPI_Comm *))
{
	size_t n = OBSERVE_BYTES;
	char *buf = check_alloc(n);

	for (int round = 0; round < 8; round++) {
		MPI_Comm comm;

		MPI_Comm_dup(MPI_COMM_WORLD, &comm);
		if (!rank)
			check_fill(buf, n, 80 + round);
		else
			memset(buf, 0, n);
		observe_late(round % 2 == !rank);
		MPI_Bcast(buf, (int)n, MPI_BYTE, 0, comm);
		if (round % 4 / 2)
			observe_late(!rank);
		EXPECT(end(&comm) == MPI_SUCCESS);
		EXPECT(comm == MPI_COMM_NULL);
		check_same(buf, n, 80 + round, "after its communicator has gone");
	}
	free(buf);
}

BEHAVIOUR(communicators_are_freed, 2)
{
	free_while_pending(MPI_Comm_free);
}

BEHAVIOUR(communicators_are_disconnected, 2)
{
	free_while_pending(MPI_Comm_disconnect);
}

/* A call of the library's own is made with nothing of the program's: it must not complete anything,
 * and not be disturbed. The data is looked at last. */
BEHAVIOUR(calls_without_buffers, 2)
{
	size_t n = OBSERVE_BYTES;
	char *buf = check_alloc(n);

	for (int round = 0; round < 6; round++) {
		MPI_Request request = MPI_REQUEST_NULL;
		MPI_Comm comm;
		int flag;

		if (!rank)
			check_fill(buf, n, 30 + round);
		observe_late(round % 2 == !rank);
		MPI_Bcast(buf, (int)n, MPI_BYTE, 0, MPI_COMM_WORLD);
		MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
		MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm);
		MPI_Comm_free(&comm);
		check_same(buf, n, 30 + round, "broadcast");
	}
	free(buf);
}

/* The end of the program comes while something is pending. */
static char *last_buffer;

static int look_again(MPI_Comm comm, int keyval, void *value, void *extra)
{
	check_same(last_buffer, OBSERVE_BYTES, 99, "in MPI_Finalize");
	return MPI_SUCCESS;
}

BEHAVIOUR(finalize, 2)
{
	int keyval;

	last_buffer = check_alloc(OBSERVE_BYTES); /* until the end */
	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, look_again, &keyval, NULL);
	MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
	for (int round = 0; round < 4; round++) {
		if (!rank)
			check_fill(last_buffer, OBSERVE_BYTES, 99);
		else
			memset(last_buffer, 0, OBSERVE_BYTES);
		observe_late(rank == 0);
		MPI_Bcast(last_buffer, OBSERVE_BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
	}
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
