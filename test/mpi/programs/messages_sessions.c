/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_THREAD_MULTIPLE by a session, after MPI_Init without: threads that send at once by
 * nonblocking sends, from buffers of their own, which change as soon as the send is complete. */
#include "check.h"

#include <pthread.h>

enum { THREADS = 3, ROUNDS = 50, SENDS = 6, BYTES = 200100 };

static uint64_t seed_of(int index, int round, int i)
{
	return check_seed((uint64_t)((index * ROUNDS + round) * SENDS + i), 1);
}

static void *work(void *arg)
{
	const int index = (int)(intptr_t)arg;
	char *memory = check_alloc(SENDS * BYTES + 100), *bufs = memory + 100;
	MPI_Request requests[SENDS];

	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < SENDS; i++) {
			char *buf = bufs + i * BYTES;

			if (rank) {
				check_fill(buf, BYTES, seed_of(index, round, i));
				MPI_Isend(buf, BYTES, MPI_BYTE, 0, index, MPI_COMM_WORLD,
					  &requests[i]);
			} else {
				MPI_Irecv(buf, BYTES, MPI_BYTE, 1, index, MPI_COMM_WORLD,
					  &requests[i]);
			}
		}
		for (int i = 0; i < SENDS; i++) {
			MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
			if (rank)
				memset(bufs + i * BYTES, -1, BYTES);
			else
				check_same(bufs + i * BYTES, BYTES, seed_of(index, round, i),
					   "message");
		}
	}
	free(memory);
	return NULL;
}

BEHAVIOUR(threads_of_a_session_send_at_once, 2)
{
	char level[MPI_MAX_INFO_VAL + 1] = "";
	MPI_Session session = MPI_SESSION_NULL;
	pthread_t threads[THREADS];
	MPI_Info asked, info;
	int found = 0;

	MPI_Info_create(&asked);
	MPI_Info_set(asked, "thread_level", "MPI_THREAD_MULTIPLE");
	MPI_Session_init(asked, MPI_ERRORS_RETURN, &session);
	MPI_Session_get_info(session, &info);
	MPI_Info_get(info, "thread_level", MPI_MAX_INFO_VAL, level, &found);
	if (!strcmp(level, "MPI_THREAD_MULTIPLE")) {
		for (int i = 0; i < THREADS; i++)
			pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i);
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
	} else {
		check_skip("the session does not provide MPI_THREAD_MULTIPLE");
	}
	MPI_Info_free(&info);
	MPI_Info_free(&asked);
	MPI_Session_finalize(&session);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
