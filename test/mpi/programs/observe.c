/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages and local calls on a buffer right after a collective on it. */
#include "observe.h"

#define SELF MPI_COMM_SELF

/* ---- one call that sends, one that receives ---------------------------------------------- */

static void check_other(size_t bytes, uint64_t seed)
{
	check_same(observe_other, bytes, seed, "what a call has read");
}

/* From elements of a type to bytes and back; the elements cover the buffer, in any order. */
static void send_typed(const void *at, int count, MPI_Datatype type, size_t bytes)
{
	MPI_Request request;

	MPI_Irecv(observe_other, (int)bytes, MPI_BYTE, 0, 1, SELF, &request);
	EXPECT(MPI_Send(at, count, type, 0, 1, SELF) == MPI_SUCCESS);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void receive_typed(void *at, int count, MPI_Datatype type, size_t bytes)
{
	MPI_Request request;

	MPI_Isend(observe_other, (int)bytes, MPI_BYTE, 0, 1, SELF, &request);
	EXPECT(MPI_Recv(at, count, type, 0, 1, SELF, MPI_STATUS_IGNORE) == MPI_SUCCESS);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void reads_send(char *buf, size_t bytes, uint64_t seed)
{
	send_typed(buf, (int)bytes, MPI_BYTE, bytes);
	check_other(bytes, seed);
}

static void writes_recv(char *buf, size_t bytes, uint64_t seed)
{
	check_fill(observe_other, bytes, seed);
	receive_typed(buf, (int)bytes, MPI_BYTE, bytes);
}

BEHAVIOUR(send_and_receive, 2)
{
	observe(reads_send, writes_recv);
}

BEHAVIOUR(receivers_write_at_once, 2)
{
	observe(NULL, writes_recv);
}

static void reads_isend(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Request requests[2];

	MPI_Isend(buf, (int)bytes, MPI_BYTE, 0, 1, SELF, &requests[0]);
	MPI_Irecv(observe_other, (int)bytes, MPI_BYTE, 0, 1, SELF, &requests[1]);
	MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	check_other(bytes, seed);
}

static void writes_irecv(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Request requests[2];
	int flag = 0;

	check_fill(observe_other, bytes, seed);
	MPI_Irecv(buf, (int)bytes, MPI_BYTE, 0, 1, SELF, &requests[0]);
	MPI_Issend(observe_other, (int)bytes, MPI_BYTE, 0, 1, SELF, &requests[1]);
	while (!flag)
		MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
}

BEHAVIOUR(nonblocking_messages, 2)
{
	observe(reads_isend, writes_irecv);
}

static void reads_sendrecv(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Sendrecv(buf, (int)bytes, MPI_BYTE, 0, 1, observe_other, (int)bytes, MPI_BYTE, 0, 1,
		     SELF, MPI_STATUS_IGNORE);
	check_other(bytes, seed);
}

static void writes_sendrecv(char *buf, size_t bytes, uint64_t seed)
{
	check_fill(observe_other, bytes, seed);
	MPI_Sendrecv(observe_other, (int)bytes, MPI_BYTE, 0, 1, buf, (int)bytes, MPI_BYTE, 0, 1,
		     SELF, MPI_STATUS_IGNORE);
}

BEHAVIOUR(exchange, 2)
{
	observe(reads_sendrecv, writes_sendrecv);
}

static void reads_replace(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Sendrecv_replace(buf, (int)bytes, MPI_BYTE, 0, 1, 0, 1, SELF, MPI_STATUS_IGNORE);
	check_same(buf, bytes, seed, "what was exchanged with itself");
}

BEHAVIOUR(exchange_in_place, 2)
{
	observe(reads_replace, writes_recv);
}

static void reads_bsend(char *buf, size_t bytes, uint64_t seed)
{
	size_t room = bytes + MPI_BSEND_OVERHEAD + 64;
	void *space = check_alloc(room), *at;
	int n;

	MPI_Buffer_attach(space, (int)room);
	MPI_Bsend(buf, (int)bytes, MPI_BYTE, 0, 1, SELF);
	MPI_Recv(observe_other, (int)bytes, MPI_BYTE, 0, 1, SELF, MPI_STATUS_IGNORE);
	MPI_Buffer_detach(&at, &n);
	free(space);
	check_other(bytes, seed);
}

static void writes_mrecv(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Request request;
	MPI_Message message;

	check_fill(observe_other, bytes, seed);
	MPI_Isend(observe_other, (int)bytes, MPI_BYTE, 0, 1, SELF, &request);
	MPI_Mprobe(0, 1, SELF, &message, MPI_STATUS_IGNORE);
	MPI_Mrecv(buf, (int)bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
}

BEHAVIOUR(buffered_and_matched, 2)
{
	observe(reads_bsend, writes_mrecv);
}

/* ---- persistent requests: named long before ---------------------------------------------- */

static MPI_Request persistent[2];
static char *persistent_at;

/* Made once for a buffer, when it is first seen. */
static void need_persistent(char *buf, size_t bytes)
{
	if (persistent_at == buf)
		return;
	if (persistent_at) {
		MPI_Request_free(&persistent[0]);
		MPI_Request_free(&persistent[1]);
	}
	MPI_Send_init(buf, (int)bytes, MPI_BYTE, 0, 1, SELF, &persistent[0]);
	MPI_Recv_init(buf, (int)bytes, MPI_BYTE, 0, 1, SELF, &persistent[1]);
	persistent_at = buf;
}

static void reads_start(char *buf, size_t bytes, uint64_t seed)
{
	need_persistent(buf, bytes);
	MPI_Start(&persistent[0]);
	MPI_Recv(observe_other, (int)bytes, MPI_BYTE, 0, 1, SELF, MPI_STATUS_IGNORE);
	MPI_Wait(&persistent[0], MPI_STATUS_IGNORE);
	check_other(bytes, seed);
}

static void writes_startall(char *buf, size_t bytes, uint64_t seed)
{
	check_fill(observe_other, bytes, seed);
	need_persistent(buf, bytes);
	MPI_Startall(1, &persistent[1]);
	MPI_Send(observe_other, (int)bytes, MPI_BYTE, 0, 1, SELF);
	MPI_Waitall(1, &persistent[1], MPI_STATUSES_IGNORE);
}

BEHAVIOUR(persistent_requests, 2)
{
	observe(reads_start, writes_startall);
	MPI_Request_free(&persistent[0]);
	MPI_Request_free(&persistent[1]);
	persistent_at = NULL;
}

/* ---- datatypes --------------------------------------------------------------------------- */

static void reads_bottom(char *buf, size_t bytes, uint64_t seed)
{
	int length = (int)bytes;
	MPI_Datatype type;
	MPI_Aint at;

	MPI_Get_address(buf, &at);
	MPI_Type_create_hindexed(1, &length, &at, MPI_BYTE, &type);
	MPI_Type_commit(&type);
	send_typed(MPI_BOTTOM, 1, type, bytes);
	MPI_Type_free(&type);
	check_other(bytes, seed);
}

static void writes_bottom(char *buf, size_t bytes, uint64_t seed)
{
	int length = (int)bytes;
	MPI_Datatype type;
	MPI_Aint at;

	check_fill(observe_other, bytes, seed);
	MPI_Get_address(buf, &at);
	MPI_Type_create_hindexed(1, &length, &at, MPI_BYTE, &type);
	MPI_Type_commit(&type);
	receive_typed(MPI_BOTTOM, 1, type, bytes);
	MPI_Type_free(&type);
}

BEHAVIOUR(absolute_addresses, 2)
{
	observe(reads_bottom, writes_bottom);
}

/* Elements of 64 bytes, the last first, by a negative stride. */
static void backwards(size_t bytes, MPI_Datatype *type)
{
	MPI_Type_create_hvector((int)(bytes / 64), 64, -64, MPI_BYTE, type);
	MPI_Type_commit(type);
}

static void turn(char *bytes_at, size_t bytes)
{
	char line[64];

	for (size_t i = 0, k = bytes - 64; i < k; i += 64, k -= 64) {
		memcpy(line, bytes_at + i, 64);
		memcpy(bytes_at + i, bytes_at + k, 64);
		memcpy(bytes_at + k, line, 64);
	}
}

static void reads_backwards(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Datatype type;

	backwards(bytes, &type);
	send_typed(buf + bytes - 64, 1, type, bytes);
	MPI_Type_free(&type);
	turn(observe_other, bytes);
	check_other(bytes, seed);
}

static void writes_backwards(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Datatype type;

	check_fill(observe_other, bytes, seed);
	turn(observe_other, bytes);
	backwards(bytes, &type);
	receive_typed(buf + bytes - 64, 1, type, bytes);
	MPI_Type_free(&type);
}

BEHAVIOUR(negative_strides, 2)
{
	observe(reads_backwards, writes_backwards);
}

/* An element that begins far before its bytes, in an extent of its own. */
static void shifted(MPI_Datatype *type)
{
	MPI_Aint at = 1 << 20;
	MPI_Datatype block;
	int length = 64;

	MPI_Type_create_hindexed(1, &length, &at, MPI_BYTE, &block);
	MPI_Type_create_resized(block, -4096, 64, type);
	MPI_Type_commit(type);
	MPI_Type_free(&block);
}

static void reads_shifted(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Datatype type;

	shifted(&type);
	send_typed(buf - (1 << 20), (int)(bytes / 64), type, bytes);
	MPI_Type_free(&type);
	check_other(bytes, seed);
}

static void writes_shifted(char *buf, size_t bytes, uint64_t seed)
{
	MPI_Datatype type;

	check_fill(observe_other, bytes, seed);
	shifted(&type);
	receive_typed(buf - (1 << 20), (int)(bytes / 64), type, bytes);
	MPI_Type_free(&type);
}

BEHAVIOUR(resized_elements, 2)
{
	observe(reads_shifted, writes_shifted);
}

/* ---- local calls ------------------------------------------------------------------------- */

static void reads_pack(char *buf, size_t bytes, uint64_t seed)
{
	int position = 0;

	MPI_Pack(buf, (int)bytes, MPI_BYTE, observe_other, (int)bytes, &position, SELF);
	check_other(bytes, seed);
}

static void writes_unpack(char *buf, size_t bytes, uint64_t seed)
{
	int position = 0;

	check_fill(observe_other, bytes, seed);
	MPI_Unpack(observe_other, (int)bytes, &position, buf, (int)bytes, MPI_BYTE, SELF);
}

BEHAVIOUR(pack_and_unpack, 2)
{
	observe(reads_pack, writes_unpack);
}

static void reads_unpack(char *buf, size_t bytes, uint64_t seed)
{
	int position = 0;

	MPI_Unpack(buf, (int)bytes, &position, observe_other, (int)bytes, MPI_BYTE, SELF);
	check_other(bytes, seed);
}

static void writes_pack(char *buf, size_t bytes, uint64_t seed)
{
	int position = 0;

	check_fill(observe_other, bytes, seed);
	MPI_Pack(observe_other, (int)bytes, MPI_BYTE, buf, (int)bytes, &position, SELF);
}

BEHAVIOUR(packed_buffers, 2)
{
	observe(reads_unpack, writes_pack);
}

static void reads_reduce_local(char *buf, size_t bytes, uint64_t seed)
{
	memset(observe_other, 0, bytes);
	MPI_Reduce_local(buf, observe_other, (int)bytes, MPI_BYTE, MPI_BOR);
	check_other(bytes, seed);
}


BEHAVIOUR(local_reduction, 2)
{
	observe(reads_reduce_local, NULL);
}

/* ---- while something else is pending ----------------------------------------------------- */

/* Requests on other memory, begun before a collective and ended after it. */
BEHAVIOUR(older_requests_end, 2)
{
	size_t n = OBSERVE_BYTES;
	char *buf = check_alloc(n), *out = check_alloc(n), *in = check_alloc(n);
	int to = (rank + 1) % size, from = (rank + size - 1) % size;
	MPI_Request requests[2];

	for (int round = 0; round < 6; round++) {
		check_fill(out, n, 900 + rank + 100 * round);
		check_fill(buf, n, rank ? 0 : 77 + round);
		MPI_Irecv(in, (int)n, MPI_BYTE, from, 5, MPI_COMM_WORLD, &requests[0]);
		MPI_Isend(out, (int)n, MPI_BYTE, to, 5, MPI_COMM_WORLD, &requests[1]);
		observe_late(round % 2 == !rank);
		MPI_Bcast(buf, (int)n, MPI_BYTE, 0, MPI_COMM_WORLD);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
		check_same(in, n, 900 + from + 100 * round, "an older message");
		check_same(buf, n, 77 + round, "broadcast");
	}
	free(buf);
	free(out);
	free(in);
}

/* Data just received goes on to another process, whose library may read it from here; what
 * comes back lands in a buffer that is being gathered from. */
BEHAVIOUR(forwarded_to_a_peer, 2)
{
	size_t n = OBSERVE_BYTES;
	char *buf = check_alloc(n), *all = check_alloc(n * size), *in = check_alloc(n);
	int to = (rank + 1) % size, from = (rank + size - 1) % size;
	MPI_Request requests[2];

	for (int round = 0; round < 8; round++) {
		int root = round % size;

		if (rank == root)
			check_fill(buf, n, 700 + round);
		observe_late((round / 2 % 2) == (rank == root));
		MPI_Bcast(buf, (int)n, MPI_BYTE, root, MPI_COMM_WORLD);
		MPI_Irecv(in, (int)n, MPI_BYTE, from, 7, MPI_COMM_WORLD, &requests[0]);
		MPI_Isend(buf, (int)n, MPI_BYTE, to, 7, MPI_COMM_WORLD, &requests[1]);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
		check_same(in, n, 700 + round, "forwarded");
		check_fill(in, n, 800 + rank);
		observe_late((round / 2 % 2) == (rank == root));
		MPI_Gather(buf, (int)n, MPI_BYTE, all, (int)n, MPI_BYTE, root, MPI_COMM_WORLD);
		MPI_Sendrecv(in, (int)n, MPI_BYTE, to, 7, buf, (int)n, MPI_BYTE, from, 7,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		check_same(buf, n, 800 + from, "received over what was gathered");
		for (int r = 0; rank == root && r < size; r++)
			check_same(all + r * n, n, 700 + round, "gathered");
	}
	free(in);
	free(all);
	free(buf);
}

/* A message that is sent from memory that is also being broadcast: both only read. */
BEHAVIOUR(sent_and_broadcast_at_once, 2)
{
	size_t n = OBSERVE_BYTES;
	char *buf = check_alloc(n), *in = check_alloc(n);
	MPI_Request request;

	for (int round = 0; round < 6; round++) {
		if (!rank)
			check_fill(buf, n, 500 + round);
		if (!rank)
			MPI_Isend(buf, (int)n, MPI_BYTE, 1, 6, MPI_COMM_WORLD, &request);
		observe_late(round % 2 == !rank);
		MPI_Bcast(buf, (int)n, MPI_BYTE, 0, MPI_COMM_WORLD);
		if (rank == 1)
			MPI_Recv(in, (int)n, MPI_BYTE, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (!rank)
			MPI_Wait(&request, MPI_STATUS_IGNORE);
		check_same(buf, n, 500 + round, "broadcast");
		if (rank == 1)
			check_same(in, n, 500 + round, "message");
	}
	free(buf);
	free(in);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
