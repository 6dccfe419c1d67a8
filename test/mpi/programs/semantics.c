/* SPDX-License-Identifier: BSD-3-Clause */
/* Broadcast and gather as MPI defines them: roots, sizes, counts, places, communicators. */
#include "check.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

static const size_t sizes[] = { 1, 7, 4096, 65535, 65536, 100001, 1 << 20, (3 << 20) + 13 };
#define SIZES   (sizeof(sizes) / sizeof(sizes[0]))
#define LARGEST ((size_t)(3 << 20) + 13)

BEHAVIOUR(bcast_any_root, 1)
{
	char *buf = check_alloc(LARGEST);

	for (size_t i = 0; i < SIZES; i++)
		for (int root = 0; root < size; root++)
			check_bcast(buf, sizes[i], root, MPI_COMM_WORLD, check_seed(i, root));
	free(buf);
}

BEHAVIOUR(gather_any_root, 1)
{
	char *send = check_alloc(LARGEST), *recv = check_alloc(LARGEST * size);

	for (size_t i = 0; i < SIZES; i++)
		for (int root = 0; root < size; root++)
			check_gather(send, recv, sizes[i], root, MPI_COMM_WORLD,
				     check_seed(i, root));
	free(send);
	free(recv);
}

/* One buffer often, its owner writing between calls: the case for adoption. */
BEHAVIOUR(same_buffer_many_times, 2)
{
	size_t bytes = 1500001;
	char *buf = check_alloc(bytes), *recv = check_alloc(bytes * size);

	for (int i = 0; i < 12; i++) {
		check_bcast(buf, bytes, i % size, MPI_COMM_WORLD, 100 + i);
		check_gather(buf, recv, bytes, (i + 1) % size, MPI_COMM_WORLD, 200 + i);
	}
	free(buf);
	free(recv);
}

/* Parts of one block, at odd places, overlapping those of earlier calls. */
BEHAVIOUR(parts_of_one_block, 2)
{
	size_t whole = 8 << 20;
	uint64_t state = 42;
	char *buf = check_alloc(whole);

	for (int i = 0; i < 40; i++) {
		size_t at = check_random(&state) % (whole / 2);
		size_t bytes = 1 + check_random(&state) % (whole - at - 1);

		check_bcast(buf + at, bytes, i % size, MPI_COMM_WORLD, 300 + i);
	}
	free(buf);
}

/* Nothing outside the buffer may change on any rank. */
BEHAVIOUR(bytes_around_the_buffer_stay, 2)
{
	size_t bytes = 300000, pad = 5000;
	unsigned char *buf = check_alloc(bytes + 2 * pad);

	for (int i = 0; i < 8; i++) {
		memset(buf, 0x5a + rank, bytes + 2 * pad);
		check_bcast(buf + pad, bytes, i % size, MPI_COMM_WORLD, 400 + i);
		for (size_t k = 0; k < pad; k++) {
			EXPECT(buf[k] == 0x5a + rank);
			EXPECT(buf[pad + bytes + k] == 0x5a + rank);
		}
	}
	free(buf);
}

BEHAVIOUR(zero_counts, 1)
{
	char byte = 7;

	EXPECT(MPI_Bcast(NULL, 0, MPI_BYTE, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
	EXPECT(MPI_Bcast(&byte, 0, MPI_DOUBLE, size - 1, MPI_COMM_WORLD) == MPI_SUCCESS);
	EXPECT(MPI_Gather(NULL, 0, MPI_BYTE, NULL, 0, MPI_BYTE, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
	EXPECT(MPI_Gather(&byte, 0, MPI_INT, &byte, 0, MPI_INT, size - 1, MPI_COMM_WORLD) ==
	       MPI_SUCCESS);
	EXPECT(byte == 7);
}

BEHAVIOUR(gather_in_place, 1)
{
	size_t bytes = 400003;
	char *send = check_alloc(bytes), *recv = check_alloc(bytes * size);

	for (int i = 0; i < 8; i++) {
		int root = i % size;

		memset(recv, 0, bytes * size);
		check_fill(send, bytes, check_seed(i, rank));
		check_fill(recv + rank * bytes, bytes, check_seed(i, rank));
		EXPECT(MPI_Gather(rank == root ? MPI_IN_PLACE : send, (int)bytes, MPI_BYTE, recv,
				  (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD) == MPI_SUCCESS);
		for (int r = 0; rank == root && r < size; r++)
			check_same(recv + r * bytes, bytes, check_seed(i, r), "in place");
	}
	free(send);
	free(recv);
}

/* At the root, count and type of MPI_IN_PLACE's send side are ignored, whatever stands there. */
BEHAVIOUR(gather_in_place_ignores_send_arguments, 2)
{
	size_t bytes = 200000;
	char *send = check_alloc(bytes), *recv = check_alloc(bytes * size);

	check_fill(send, bytes, check_seed(1, rank));
	check_fill(recv + rank * bytes, bytes, check_seed(1, rank));
	if (rank == 0)
		EXPECT(MPI_Gather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, recv, (int)bytes, MPI_BYTE, 0,
				  MPI_COMM_WORLD) == MPI_SUCCESS);
	else
		EXPECT(MPI_Gather(send, (int)bytes, MPI_BYTE, NULL, -7, MPI_DATATYPE_NULL, 0,
				  MPI_COMM_WORLD) == MPI_SUCCESS);
	for (int r = 0; rank == 0 && r < size; r++)
		check_same(recv + r * bytes, bytes, check_seed(1, r), "ignored arguments");
	free(send);
	free(recv);
}

static char bottom_area[700001];

BEHAVIOUR(mpi_bottom, 1)
{
	MPI_Datatype absolute;
	MPI_Aint at[2];
	int lengths[2] = { 300000, 200000 };

	MPI_Get_address(bottom_area, &at[0]);
	MPI_Get_address(bottom_area + 400001, &at[1]);
	MPI_Type_create_hindexed(2, lengths, at, MPI_BYTE, &absolute);
	MPI_Type_commit(&absolute);
	for (int root = 0; root < size; root++) {
		memset(bottom_area, 0, sizeof(bottom_area));
		if (rank == root) {
			check_fill(bottom_area, 300000, 7 + root);
			check_fill(bottom_area + 400001, 200000, 8 + root);
		}
		EXPECT(MPI_Bcast(MPI_BOTTOM, 1, absolute, root, MPI_COMM_WORLD) == MPI_SUCCESS);
		check_same(bottom_area, 300000, 7 + root, "first block");
		check_same(bottom_area + 400001, 200000, 8 + root, "second block");
		check_zero(bottom_area + 300000, 100001, "between the blocks");
	}
	MPI_Type_free(&absolute);
}

BEHAVIOUR(comm_self, 1)
{
	size_t bytes = 500000;
	char *buf = check_alloc(bytes), *recv = check_alloc(bytes);

	check_bcast(buf, bytes, 0, MPI_COMM_SELF, 5 + rank);
	check_gather(buf, recv, bytes, 0, MPI_COMM_SELF, 6 + rank);
	free(buf);
	free(recv);
}

static void use_comm(MPI_Comm comm, char *buf, char *recv, size_t bytes, uint64_t seed)
{
	int n;

	MPI_Comm_size(comm, &n);
	for (int root = 0; root < n; root++) {
		check_bcast(buf, bytes, root, comm, seed + root);
		check_gather(buf, recv, bytes, root, comm, seed + 50 + root);
	}
}

BEHAVIOUR(split_dup_free, 2)
{
	size_t bytes = 250007;
	char *buf = check_alloc(bytes), *recv = check_alloc(bytes * size);

	for (int i = 0; i < 3; i++) {
		MPI_Comm dup, half, reversed, dup_of_half;

		MPI_Comm_dup(MPI_COMM_WORLD, &dup);
		MPI_Comm_split(dup, rank % 2, rank, &half);
		MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &reversed);
		use_comm(dup, buf, recv, bytes, 1000 + i);
		use_comm(half, buf, recv, bytes, 2000 + i + 10 * (rank % 2));
		MPI_Comm_dup(half, &dup_of_half);
		MPI_Comm_free(&half);
		use_comm(dup_of_half, buf, recv, bytes, 3000 + i + 10 * (rank % 2));
		use_comm(reversed, buf, recv, bytes, 4000 + i);
		MPI_Comm_free(&dup);
		use_comm(reversed, buf, recv, bytes, 5000 + i);
		MPI_Comm_free(&reversed);
		MPI_Comm_free(&dup_of_half);
	}
	free(buf);
	free(recv);
}

BEHAVIOUR(communicator_of_some_ranks_only, 2)
{
	size_t bytes = 250007;
	char *buf = check_alloc(bytes), *recv = check_alloc(bytes * size);
	MPI_Comm some;

	MPI_Comm_split(MPI_COMM_WORLD, rank ? 1 : MPI_UNDEFINED, rank, &some);
	if (some != MPI_COMM_NULL) {
		use_comm(some, buf, recv, bytes, 77);
		MPI_Comm_free(&some);
	}
	use_comm(MPI_COMM_WORLD, buf, recv, bytes, 78);
	free(buf);
	free(recv);
}

/* Many communicators one after the other and at once: what is kept for each must go with it. */
BEHAVIOUR(many_communicators, 2)
{
	enum { TOGETHER = 8, ROUNDS = 5 };
	size_t bytes = 70000;
	char *buf = check_alloc(bytes), *recv = check_alloc(bytes * size);
	MPI_Comm comms[TOGETHER];
	struct check_usage before, after;

	for (int round = 0; round < ROUNDS; round++) {
		if (round == 1)
			check_usage(&before);
		for (int i = 0; i < TOGETHER; i++)
			MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
		for (int i = 0; i < TOGETHER; i++)
			use_comm(comms[i], buf, recv, bytes, 10 * round + i);
		for (int i = 0; i < TOGETHER; i++)
			MPI_Comm_free(&comms[i]);
	}
	check_usage(&after);
	if (after.descriptors > before.descriptors + 1)
		check_fail("descriptors %ld, then %ld", before.descriptors, after.descriptors);
	if (after.mappings > before.mappings + 8)
		check_fail("mappings %ld, then %ld", before.mappings, after.mappings);
	free(buf);
	free(recv);
}

BEHAVIOUR(inter_communicator, 2)
{
	size_t bytes = 300000;
	char *buf = check_alloc(bytes), *recv = check_alloc(bytes * size);
	int low = rank < size / 2, remote, root;
	MPI_Comm half, inter;

	MPI_Comm_split(MPI_COMM_WORLD, low, rank, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? size / 2 : 0, 99, &inter);
	MPI_Comm_remote_size(inter, &remote);
	/* the first of the low half sends to all of the high half */
	root = !low ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
	memset(buf, 0, bytes);
	if (root == MPI_ROOT)
		check_fill(buf, bytes, 11);
	EXPECT(MPI_Bcast(buf, (int)bytes, MPI_BYTE, root, inter) == MPI_SUCCESS);
	if (!low || root == MPI_ROOT)
		check_same(buf, bytes, 11, "inter-communicator broadcast");
	else
		check_zero(buf, bytes, "not part of the broadcast");
	check_fill(buf, bytes, check_seed(12, rank));
	EXPECT(MPI_Gather(buf, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, root, inter) ==
	       MPI_SUCCESS);
	for (int r = 0; root == MPI_ROOT && r < remote; r++)
		check_same(recv + r * bytes, bytes, check_seed(12, size / 2 + r), "inter gather");
	MPI_Comm_free(&inter);
	MPI_Comm_free(&half);
	free(buf);
	free(recv);
}

/* Other traffic under way on the same communicator must not be disturbed, nor disturb. */
BEHAVIOUR(between_pending_receives, 2)
{
	size_t bytes = 200000;
	char *buf = check_alloc(bytes), *in = check_alloc(bytes), *out = check_alloc(bytes);
	MPI_Request pending[2];

	for (int i = 0; i < 6; i++) {
		MPI_Irecv(in, (int)bytes, MPI_BYTE, (rank + size - 1) % size, 5, MPI_COMM_WORLD,
			  &pending[0]);
		check_bcast(buf, bytes, i % size, MPI_COMM_WORLD, 30 + i);
		check_fill(out, bytes, check_seed(i, rank));
		MPI_Isend(out, (int)bytes, MPI_BYTE, (rank + 1) % size, 5, MPI_COMM_WORLD,
			  &pending[1]);
		check_bcast(buf, bytes, (i + 1) % size, MPI_COMM_WORLD, 60 + i);
		MPI_Waitall(2, pending, MPI_STATUSES_IGNORE);
		check_same(in, bytes, check_seed(i, (rank + size - 1) % size), "receive");
	}
	free(buf);
	free(in);
	free(out);
}

/* A rank may be late by far; the others sleep or wait, and nothing is lost. */
BEHAVIOUR(late_ranks, 2)
{
	size_t bytes = 500000;
	char *buf = check_alloc(bytes), *recv = check_alloc(bytes * size);

	for (int late = 0; late < size; late++) {
		if (rank == late)
			for (double t = MPI_Wtime(); MPI_Wtime() - t < 0.15;)
				;
		check_bcast(buf, bytes, 0, MPI_COMM_WORLD, 90 + late);
		check_gather(buf, recv, bytes, 0, MPI_COMM_WORLD, 95 + late);
	}
	free(buf);
	free(recv);
}

/* No barrier is promised: the root goes on to the next call while others are in this one. */
BEHAVIOUR(back_to_back, 2)
{
	size_t bytes = 80000;
	char *buf = check_alloc(bytes);

	for (int i = 0; i < 200; i++) {
		if (rank == i % size)
			check_fill(buf, bytes, i);
		MPI_Bcast(buf, (int)bytes, MPI_BYTE, i % size, MPI_COMM_WORLD);
		check_same(buf, bytes, i, "back to back");
	}
	free(buf);
}

BEHAVIOUR(large_count_calls, 1)
{
#if MPI_VERSION < 4
	check_skip("this MPI has no large-count calls");
#else
	MPI_Count bytes = 1300001;
	char *buf = check_alloc(bytes), *recv = check_alloc(bytes * size);

	for (int root = 0; root < size; root++) {
		memset(buf, 0, bytes);
		if (rank == root)
			check_fill(buf, bytes, 17);
		EXPECT(MPI_Bcast_c(buf, bytes, MPI_BYTE, root, MPI_COMM_WORLD) == MPI_SUCCESS);
		check_same(buf, bytes, 17, "MPI_Bcast_c");
		check_fill(buf, bytes, check_seed(18, rank));
		EXPECT(MPI_Gather_c(buf, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, root,
				    MPI_COMM_WORLD) == MPI_SUCCESS);
		for (int r = 0; rank == root && r < size; r++)
			check_same(recv + r * bytes, bytes, check_seed(18, r), "MPI_Gather_c");
	}
	free(buf);
	free(recv);
#endif
}

/* Making a group needs descriptors. One rank that has none must not leave the others waiting for
 * it. */
BEHAVIOUR(a_rank_without_descriptors_delays_nobody, 2)
{
	size_t bytes = (size_t)256 << 10;
	struct rlimit limit, low;
	char *buf = check_alloc(bytes);
	int fds[256], n = 0;
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	getrlimit(RLIMIT_NOFILE, &limit);
	low = limit;
	low.rlim_cur = 200;
	if (rank == size - 1 && !setrlimit(RLIMIT_NOFILE, &low))
		while (n < 256 && (fds[n] = open("/dev/null", O_RDONLY)) >= 0)
			n++;
	check_bcast(buf, bytes, 0, comm, 21);
	check_bcast(buf, bytes, size - 1, comm, 22);
	while (n)
		close(fds[--n]);
	setrlimit(RLIMIT_NOFILE, &limit);
	MPI_Comm_free(&comm);
	free(buf);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
