/* SPDX-License-Identifier: BSD-3-Clause */
/* While a rank waits in a collective its other messages must move on: a peer may come to the
 * collective only after one of them has arrived. Wrong here is a hang. */
#include "check.h"

#define MESSAGE ((size_t)24 << 20) /* needs both sides: no MPI buffers as much */
#define ROUNDS 3

static char *message, *small;
static size_t small_bytes;

static void begin(void)
{
	small_bytes = (size_t)1 << 20;
	message = check_alloc(MESSAGE);
	small = check_alloc(small_bytes);
}

static void end(void)
{
	free(message);
	free(small);
}

BEHAVIOUR(a_send_started_before_a_broadcast_arrives, 2)
{
	begin();
	for (int i = 0; i < ROUNDS; i++) {
		MPI_Request request = MPI_REQUEST_NULL;

		if (rank == 0) {
			check_fill(message, MESSAGE, check_seed(1, i));
			MPI_Isend(message, (int)MESSAGE, MPI_BYTE, size - 1, 5, MPI_COMM_WORLD,
				  &request);
		} else if (rank == size - 1) {
			MPI_Recv(message, (int)MESSAGE, MPI_BYTE, 0, 5, MPI_COMM_WORLD,
				 MPI_STATUS_IGNORE);
			check_same(message, MESSAGE, check_seed(1, i), "message");
		}
		check_bcast(small, small_bytes, size - 1, MPI_COMM_WORLD, check_seed(2, i));
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	end();
}

BEHAVIOUR(a_receive_posted_before_a_gather_takes_its_message, 2)
{
	char *all;

	begin();
	all = check_alloc(small_bytes * (size_t)size);
	for (int i = 0; i < ROUNDS; i++) {
		MPI_Request request = MPI_REQUEST_NULL;

		if (rank == 0) {
			MPI_Irecv(message, (int)MESSAGE, MPI_BYTE, size - 1, 5, MPI_COMM_WORLD,
				  &request);
		} else if (rank == size - 1) {
			check_fill(message, MESSAGE, check_seed(3, i));
			MPI_Send(message, (int)MESSAGE, MPI_BYTE, 0, 5, MPI_COMM_WORLD);
		}
		check_gather(small, all, small_bytes, 0, MPI_COMM_WORLD, check_seed(4, i));
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		if (rank == 0)
			check_same(message, MESSAGE, check_seed(3, i), "message");
	}
	free(all);
	end();
}

BEHAVIOUR(a_window_can_be_locked_while_its_owner_waits_in_a_broadcast, 2)
{
	long *shared = check_alloc(sizeof(*shared)), one = 1, expected = 20;
	MPI_Win win;

	begin();
	*shared = 0;
	MPI_Win_create(shared, sizeof(*shared), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	if (rank == size - 1) {
		for (int i = 0; i < expected; i++) {
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
			MPI_Accumulate(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, win);
			MPI_Win_unlock(0, win);
		}
	}
	check_bcast(small, small_bytes, size - 1, MPI_COMM_WORLD, 7);
	MPI_Win_free(&win);
	if (rank == 0)
		EXPECT(*shared == expected);
	free(shared);
	end();
}

/* Messages that wait to be received must not hide the others from the library. */
BEHAVIOUR(unexpected_messages_do_not_stop_progress, 2)
{
	MPI_Request request = MPI_REQUEST_NULL;
	int token = 3;

	begin();
	if (rank == 0) {
		check_fill(message, MESSAGE, 11);
		MPI_Isend(message, (int)MESSAGE, MPI_BYTE, size - 1, 5, MPI_COMM_WORLD, &request);
	} else if (rank == size - 1) {
		MPI_Send(&token, 1, MPI_INT, 0, 6, MPI_COMM_WORLD);
		MPI_Send(&token, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
		MPI_Recv(message, (int)MESSAGE, MPI_BYTE, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check_same(message, MESSAGE, 11, "message");
	}
	check_bcast(small, small_bytes, size - 1, MPI_COMM_WORLD, 12);
	if (rank == 0) {
		MPI_Recv(&token, 1, MPI_INT, size - 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Recv(&token, 1, MPI_INT, size - 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	end();
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
