/* SPDX-License-Identifier: BSD-3-Clause */
/* More than INT_MAX bytes in one call: by MPI_Bcast_c, by large types, as the sum of a gather, and
 * in one message. */
#include "check.h"

#include <limits.h>

static const size_t huge = (size_t)INT_MAX + 5000001;

/* Sparse marks, so that checking 2 GiB takes seconds. */
static void mark(unsigned char *buf, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes; i += 65521)
		buf[i] = (unsigned char)(i / 65521 * 7 + seed);
	buf[bytes - 1] = (unsigned char)seed;
}

static void marked(const unsigned char *buf, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes - 1; i += 65521)
		if (buf[i] != (unsigned char)(i / 65521 * 7 + seed)) {
			check_fail("byte %zu of %zu", i, bytes);
			return;
		}
	EXPECT(buf[bytes - 1] == (unsigned char)seed);
}

BEHAVIOUR(large_type, 2)
{
	int block = 1 << 20, count = (int)(huge / (size_t)block);
	size_t bytes = (size_t)block * (size_t)count;
	unsigned char *buf = check_alloc(bytes);
	MPI_Datatype t;

	MPI_Type_contiguous(block, MPI_BYTE, &t);
	MPI_Type_commit(&t);
	for (int root = 0; root < 2; root++) {
		if (rank == root)
			mark(buf, bytes, 3 + (unsigned)root);
		EXPECT(MPI_Bcast(buf, count, t, root, MPI_COMM_WORLD) == MPI_SUCCESS);
		marked(buf, bytes, 3 + (unsigned)root);
	}
	MPI_Type_free(&t);
	free(buf);
}

BEHAVIOUR(large_count, 2)
{
#if MPI_VERSION < 4
	check_skip("this MPI has no large-count calls");
#else
	unsigned char *buf = check_alloc(huge);

	for (int root = 0; root < 2; root++) {
		if (rank == root)
			mark(buf, huge, 5 + (unsigned)root);
		EXPECT(MPI_Bcast_c(buf, (MPI_Count)huge, MPI_BYTE, root, MPI_COMM_WORLD) ==
		       MPI_SUCCESS);
		marked(buf, huge, 5 + (unsigned)root);
	}
	free(buf);
#endif
}

/* The kernel moves 2 GiB less a page at a time. */
BEHAVIOUR(large_message, 2)
{
	int block = 1 << 20, count = (int)(huge / (size_t)block);
	size_t bytes = (size_t)block * (size_t)count;
	unsigned char *buf = check_alloc(bytes);
	MPI_Datatype t;

	MPI_Type_contiguous(block, MPI_BYTE, &t);
	MPI_Type_commit(&t);
	for (unsigned i = 0; i < 3; i++) {
		if (rank == 0) {
			mark(buf, bytes, i);
			MPI_Send(buf, count, t, 1, 1, MPI_COMM_WORLD);
		} else if (rank == 1) {
			MPI_Recv(buf, count, t, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			marked(buf, bytes, i);
		}
	}
	MPI_Type_free(&t);
	free(buf);
}

BEHAVIOUR(large_gather, 2)
{
	size_t bytes = huge / 2 + 1000;
	unsigned char *send = check_alloc(bytes), *recv = NULL;

	if (rank == 0)
		recv = check_alloc(bytes * (size_t)size);
	mark(send, bytes, (unsigned)rank);
	EXPECT(MPI_Gather(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, 0,
			  MPI_COMM_WORLD) == MPI_SUCCESS);
	for (int r = 0; recv && r < size; r++)
		marked(recv + (size_t)r * bytes, bytes, (unsigned)r);
	free(send);
	free(recv);
}

BEHAVIOUR(large_alltoallv, 2)
{
#if MPI_VERSION < 4
	check_skip("this MPI has no large-count calls");
#else
	MPI_Count sent[2] = { 0 }, received[2] = { 0 };
	MPI_Aint displs[2] = { 0 };
	unsigned char *buf = check_alloc(huge), other = 0;
	MPI_Comm two;

	MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, rank, &two);
	for (int from = 0; rank < 2 && from < 2; from++) {
		if (rank == from)
			mark(buf, huge, 9 + (unsigned)from);
		sent[1 - from] = rank == from ? (MPI_Count)huge : 0;
		received[from] = rank == from ? 0 : (MPI_Count)huge;
		sent[from] = received[1 - from] = 0;
		MPI_Alltoallv_c(rank == from ? buf : &other, sent, displs, MPI_BYTE,
				rank == from ? &other : buf, received, displs, MPI_BYTE, two);
		marked(buf, huge, 9 + (unsigned)from);
	}
	if (rank < 2)
		MPI_Comm_free(&two);
	free(buf);
#endif
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
