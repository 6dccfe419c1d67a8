/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where a program touches the buffer of a pending collective: inside its allocator, inside stdio,
 * with its own mutex held. Meanwhile the host MPI has a reduction whose operation, a function of
 * the program, wants the same lock. The root of the collective is late, so that the touch waits.
 *
 *   other ranks: Iallreduce posted, Bcast, touch ................. waits for the root
 *   root:        20 ms       Iallreduce posted   60 ms   Bcast
 *
 * note NAME: rank R: N of 4: the operation ran during N touches, where a lock of it would never
 * return. Needs SLUICE_COLL_NONBLOCKING=off: the reduction is the host MPI's.
 */
#include "early.h"

#include <pthread.h>
#include <stdatomic.h>

enum { TRIALS = 4, BYTES = 4 << 20 };

void *__libc_malloc(size_t bytes);

static struct {
	char *buf;
	FILE *stream;
	pthread_mutex_t mutex;
	_Atomic(const volatile char *)
		wanted; /* the allocator reads this byte with its lock held */
	_Atomic bool is_held;                  /* the lock of the place is held */
	_Atomic int intrusions;                /* the operation ran while it was */
	char got;
} inside = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* ---- the program's allocator ------------------------------------------------------------- */

void *malloc(size_t bytes)
{
	const volatile char *at = atomic_exchange(&inside.wanted, NULL);

	if (at) {
		pthread_mutex_lock(&inside.mutex);
		inside.got = *at;
		pthread_mutex_unlock(&inside.mutex);
	}
	return __libc_malloc(bytes);
}

/* ---- the program's operation ------------------------------------------------------------- */

static void add(void *in, void *inout, int *count, MPI_Datatype *type)
{
	(void)type;
	if (atomic_load(&inside.is_held))
		atomic_fetch_add(&inside.intrusions, 1);
	for (int i = 0; i < *count; i++)
		((int *)inout)[i] += ((int *)in)[i];
}

/* ---- where a buffer is touched ----------------------------------------------------------- */

static void in_malloc(const char *at)
{
	void *volatile block; /* the compiler keeps the call */

	atomic_store(&inside.wanted, at);
	block = malloc(100);
	free(block);
}

static void in_stdio(const char *at)
{
	char got = 0;

	rewind(inside.stream);
	EXPECT(fwrite(at, 1, 1, inside.stream) ==
	       1); /* a copy to the stream's buffer, under its lock */
	rewind(inside.stream);
	EXPECT(fread(&got, 1, 1, inside.stream) == 1);
	inside.got = got;
}

static void with_mutex(const char *at)
{
	pthread_mutex_lock(&inside.mutex);
	inside.got = *(const volatile char *)at;
	pthread_mutex_unlock(&inside.mutex);
}

/* ---- a trial ----------------------------------------------------------------------------- */

static void bcast(void)
{
	EXPECT(!MPI_Bcast(inside.buf, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD));
}

static void touch(void (*place)(const char *at), int value)
{
	atomic_store(&inside.is_held, true);
	place(inside.buf + BYTES / 2);
	atomic_store(&inside.is_held, false);
	if (inside.got != (char)value)
		check_fail("byte %d instead of %d", inside.got, value);
}

static bool trial(void (*place)(const char *at), MPI_Op op, int value)
{
	int one = 1, sum = 0, before = atomic_load(&inside.intrusions);
	MPI_Request request;

	memset(inside.buf, rank ? 0 : value, BYTES);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank)
		early_sleep_us(20000);
	EXPECT(!MPI_Iallreduce(&one, &sum, 1, MPI_INT, op, MPI_COMM_WORLD, &request));
	if (!rank)
		early_sleep_us(60000);
	bcast();
	if (rank)
		touch(place, value);
	EXPECT(!MPI_Wait(&request, MPI_STATUS_IGNORE));
	EXPECT(sum == size);
	for (int i = 0; i < BYTES; i += 997)
		EXPECT(inside.buf[i] == (char)value);
	return atomic_load(&inside.intrusions) > before;
}

static void trials(void (*place)(const char *at))
{
	int intruded = 0;
	MPI_Op op;

	if (!inside.buf)
		inside.buf = early_map(BYTES);
	inside.stream = tmpfile();
	EXPECT(inside.stream);
	EXPECT(!MPI_Op_create(add, 1, &op));
	for (int i = 0; i < 2; i++)
		bcast();
	for (int i = 0; i < TRIALS; i++)
		intruded += trial(place, op, i + 1);
	MPI_Op_free(&op);
	fclose(inside.stream);
	if (rank)
		check_note("%d of %d", intruded, TRIALS);
}

BEHAVIOUR(touch_in_malloc, 2)
{
	trials(in_malloc);
}

BEHAVIOUR(touch_in_stdio, 2)
{
	trials(in_stdio);
}

BEHAVIOUR(touch_with_a_mutex, 2)
{
	trials(with_mutex);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
