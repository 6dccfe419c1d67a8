/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between pairs of ranks, from memory that is adopted, changed and freed meanwhile. */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20, ROUNDS = 12 };

/* Even ranks send first. The last rank of an odd number has no partner. */
static int partner(void)
{
	return rank % 2 ? rank - 1 : rank + 1 < size ? rank + 1 : MPI_PROC_NULL;
}

/* One message each way between a pair; what arrives is checked. */
static void exchange(void *send, void *recv, size_t bytes, uint64_t seed)
{
	int peer = partner();

	if (peer == MPI_PROC_NULL)
		return;
	check_fill(send, bytes, check_seed(seed, rank));
	memset(recv, 0, bytes);
	if (rank % 2 == 0)
		MPI_Send(send, (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
	MPI_Recv(recv, (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank % 2)
		MPI_Send(send, (int)bytes, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
	check_same(recv, bytes, check_seed(seed, peer), "message");
}

static void use(void *send, void *recv, size_t bytes, uint64_t seed)
{
	for (int i = 0; i < ROUNDS; i++)
		exchange(send, recv, bytes, seed + (uint64_t)i);
}

BEHAVIOUR(messages_of_all_sizes, 2)
{
	static const size_t sizes[] = { 0, 1, 4096, 8191, 8192, 65536, 65537, 300000, MIB,
					(4 << 20) + 13, 16 << 20 };

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		char *send = check_alloc(sizes[i] + 64), *recv = check_alloc(sizes[i] + 64);

		use(send + i, recv + 3 * i, sizes[i], 100 * i);
		free(send);
		free(recv);
	}
}

BEHAVIOUR(one_message_of_64_megabytes, 2)
{
	char *send = check_alloc(64 << 20), *recv = check_alloc(64 << 20);

	for (int i = 0; i < 3; i++)
		exchange(send, recv, 64 << 20, 7 + (uint64_t)i);
	free(send);
	free(recv);
}

/* Buffers of all kinds of calls that send, and parts of a buffer that is adopted. */
BEHAVIOUR(all_kinds_of_sends, 2)
{
	char *buf = check_alloc(2 * MIB), *recv = check_alloc(MIB);
	int peer = partner();
	MPI_Request r[2];

	for (int i = 0; i < 4 * ROUNDS && peer != MPI_PROC_NULL; i++) {
		char *send = buf + i % 5 * 4099;

		check_fill(send, MIB, check_seed(i, rank));
		MPI_Irecv(recv, MIB, MPI_BYTE, peer, i, MPI_COMM_WORLD, &r[0]);
		if (i % 4 == 3) /* the receive of a ready send has been posted */
			MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 99, NULL, 0, MPI_BYTE, peer, 99,
				     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (i % 4 == 0)
			MPI_Isend(send, MIB, MPI_BYTE, peer, i, MPI_COMM_WORLD, &r[1]);
		else if (i % 4 == 1)
			MPI_Issend(send, MIB, MPI_BYTE, peer, i, MPI_COMM_WORLD, &r[1]);
		else if (i % 4 == 2)
			MPI_Send_init(send, MIB, MPI_BYTE, peer, i, MPI_COMM_WORLD, &r[1]);
		else
			MPI_Irsend(send, MIB, MPI_BYTE, peer, i, MPI_COMM_WORLD, &r[1]);
		if (i % 4 == 2)
			MPI_Start(&r[1]);
		MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
		check_same(recv, MIB, check_seed(i, peer), "message");
		if (i % 4 == 2)
			MPI_Request_free(&r[1]);
	}
	free(buf);
	free(recv);
}

/* ---- nonblocking sends: each call that tells of their end ---------------------------------- */

static void finish(int kind, MPI_Request *r)
{
	int flag = 0, n = 0, at[2];

	switch (kind) {
	case 0: MPI_Wait(&r[0], MPI_STATUS_IGNORE); break;
	case 1: MPI_Waitany(2, r, &n, MPI_STATUS_IGNORE); break;
	case 2: MPI_Waitsome(2, r, &n, at, MPI_STATUSES_IGNORE); break;
	case 3: MPI_Waitall(2, r, MPI_STATUSES_IGNORE); break;
	case 4:
		while (!flag)
			MPI_Test(&r[0], &flag, MPI_STATUS_IGNORE);
		break;
	case 5:
		while (!flag)
			MPI_Testany(2, r, &n, &flag, MPI_STATUS_IGNORE);
		break;
	case 6:
		while (!n)
			MPI_Testsome(2, r, &n, at, MPI_STATUSES_IGNORE);
		break;
	case 7:
		while (!flag)
			MPI_Testall(2, r, &flag, MPI_STATUSES_IGNORE);
		break;
	case 8:
		while (!flag)
			MPI_Request_get_status(r[0], &flag, MPI_STATUS_IGNORE);
		break;
	case 9: MPI_Request_free(&r[0]); break; /* the answer tells of the end */
	}
}

/* r[0]: a send of 16 KiB. Its buffer changes as soon as it is complete. */
BEHAVIOUR(nonblocking_sends_in_all_ways, 2)
{
	enum { BYTES = 16 * KIB, KINDS = 10, TIMES = 60 };
	char *send = check_alloc(BYTES), *recv = check_alloc(BYTES);
	int peer = partner();

	for (int i = 0; i < KINDS * TIMES && peer != MPI_PROC_NULL; i++) {
		MPI_Request r[2] = { MPI_REQUEST_NULL, MPI_REQUEST_NULL }, in;

		MPI_Irecv(recv, BYTES, MPI_BYTE, peer, i, MPI_COMM_WORLD, &in);
		check_fill(send, BYTES, check_seed(i, rank));
		MPI_Isend(send, BYTES, MPI_BYTE, peer, i, MPI_COMM_WORLD, &r[0]);
		finish(i % KINDS, r);
		if (i % KINDS == 9) {
			MPI_Wait(&in, MPI_STATUS_IGNORE);
			check_same(recv, BYTES, check_seed(i, peer), "message");
			MPI_Sendrecv(NULL, 0, MPI_BYTE, peer, 999, NULL, 0, MPI_BYTE, peer, 999,
				     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			continue;
		}
		memset(send, 0xaa, BYTES);
		MPI_Wait(&in, MPI_STATUS_IGNORE);
		check_same(recv, BYTES, check_seed(i, peer), "message");
		MPI_Wait(&r[0], MPI_STATUS_IGNORE);
	}
	free(send);
	free(recv);
}

/* Open MPI with UCX gives sends that it has buffered one handle. The buffer of the first changes
 * when it is complete; then it is the begin of a longer message, in a page that no region holds. */
BEHAVIOUR(sends_with_one_handle, 2)
{
	static const int kinds[] = { 1 /* Waitany */, 2, 5, 6 };
	enum { BYTES = 16000, TIMES = 32 };
	char *send = check_alloc(2 * MIB), *recv = check_alloc(2 * MIB), other[5000] = "";
	char *at = send + (4096 - (uintptr_t)send % 4096) + 100;
	int peer = partner(), equal = 0;

	use(at, recv, MIB, 77);
	for (int i = 0; i < TIMES && peer != MPI_PROC_NULL; i++) {
		MPI_Request in[3], r[3];

		MPI_Irecv(recv + MIB, BYTES, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &in[0]);
		MPI_Irecv(recv + MIB + BYTES, BYTES, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &in[1]);
		MPI_Irecv(recv, MIB, MPI_BYTE, peer, 3, MPI_COMM_WORLD, &in[2]);
		check_fill(at, MIB, check_seed(i, rank));
		MPI_Isend(at, BYTES, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &r[0]);
		MPI_Isend(other, sizeof other, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &r[1]);
		equal += r[0] == r[1];
		finish(kinds[i % 4], r);
		MPI_Wait(&r[0], MPI_STATUS_IGNORE);
		check_fill(at, MIB, check_seed(i, rank + 100));
		MPI_Isend(at, MIB, MPI_BYTE, peer, 3, MPI_COMM_WORLD, &r[2]);
		MPI_Waitall(3, in, MPI_STATUSES_IGNORE);
		MPI_Waitall(3, r, MPI_STATUSES_IGNORE);
		check_same(recv, MIB, check_seed(i, peer + 100), "message");
	}
	check_note("%d pairs had one handle", equal);
	free(send);
	free(recv);
}

BEHAVIOUR(persistent_sends_of_16_kilobytes, 2)
{
	enum { BYTES = 16 * KIB, TIMES = 200 };
	char *send = check_alloc(BYTES), *recv = check_alloc(BYTES);
	int peer = partner();
	MPI_Request r[2];

	MPI_Recv_init(recv, BYTES, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &r[0]);
	MPI_Send_init(send, BYTES, MPI_BYTE, peer, 1, MPI_COMM_WORLD, &r[1]);
	for (int i = 0; i < TIMES && peer != MPI_PROC_NULL; i++) {
		check_fill(send, BYTES, check_seed(i, rank));
		MPI_Startall(2, r);
		MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
		memset(send, 0xaa, BYTES);
		check_same(recv, BYTES, check_seed(i, peer), "message");
	}
	MPI_Request_free(&r[0]);
	MPI_Request_free(&r[1]);
	free(send);
	free(recv);
}

BEHAVIOUR(messages_of_4_kilobytes, 2)
{
	char *send = check_alloc(4 * KIB), *recv = check_alloc(4 * KIB);

	for (uint64_t i = 0; i < 200; i++)
		exchange(send, recv, 4 * KIB, 2500 + i);
	free(send);
	free(recv);
}

BEHAVIOUR(sixteen_messages_at_once, 2)
{
	enum { AT_ONCE = 16 };
	char *send = check_alloc(AT_ONCE * 256 * KIB), *recv = check_alloc(AT_ONCE * 256 * KIB);
	MPI_Request r[2 * AT_ONCE];
	int peer = partner();

	for (int i = 0; i < ROUNDS && peer != MPI_PROC_NULL; i++) {
		check_fill(send, AT_ONCE * 256 * KIB, check_seed(i, rank));
		for (int k = 0; k < AT_ONCE; k++) {
			MPI_Irecv(recv + k * 256 * KIB, 256 * KIB, MPI_BYTE, peer, k,
				  MPI_COMM_WORLD, &r[k]);
			MPI_Isend(send + k * 256 * KIB, 256 * KIB, MPI_BYTE, peer, k,
				  MPI_COMM_WORLD, &r[AT_ONCE + k]);
		}
		MPI_Waitall(2 * AT_ONCE, r, MPI_STATUSES_IGNORE);
		check_same(recv, AT_ONCE * 256 * KIB, check_seed(i, peer), "16 messages");
	}
	free(send);
	free(recv);
}

/* Columns of a matrix: many short pieces, some of them in memory that is adopted. */
BEHAVIOUR(columns_of_a_matrix, 2)
{
	enum { N = 1024 };
	double *a = check_alloc(N * N * sizeof *a), *b = check_alloc(N * N * sizeof *b);
	int peer = partner();
	MPI_Datatype column;

	MPI_Type_vector(N, 4, N, MPI_DOUBLE, &column);
	MPI_Type_commit(&column);
	use(a, b, N * N * sizeof *a, 300);
	for (int i = 0; i < ROUNDS && peer != MPI_PROC_NULL; i++) {
		for (int k = 0; k < N * N; k++) {
			a[k] = rank * 1e8 + i * 1e7 + k;
			b[k] = -1;
		}
		MPI_Sendrecv(a + i, 1, column, peer, 2, b + i, 1, column, peer, 2, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		for (int k = 0; k < N * N; k++) {
			bool sent = k % N >= i && k % N < i + 4;

			EXPECT(b[k] == (sent ? peer * 1e8 + i * 1e7 + k : -1));
		}
	}
	MPI_Type_free(&column);
	free(a);
	free(b);
}

/* ---- memory that changes ------------------------------------------------------------------ */

BEHAVIOUR(buffers_that_are_freed_moved_and_protected, 2)
{
	char *recv = check_alloc(2 * MIB), *p;
	size_t bytes = MIB;

	for (int i = 0; i < ROUNDS; i++) {
		char *send = check_alloc(bytes);

		use(send, recv, bytes, 400 + 20 * (uint64_t)i);
		send = realloc(send, 2 * MIB);
		use(send, recv, 2 * MIB, 410 + 20 * (uint64_t)i);
		free(send);
	}
	p = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < ROUNDS; i++) {
		use(p, recv, MIB, 800 + 20 * (uint64_t)i);
		if (i % 3 == 0) {
			mprotect(p, MIB, PROT_READ);
			mprotect(p, MIB, PROT_READ | PROT_WRITE);
		} else if (i % 3 == 1) {
			mmap(p, MIB, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		} else {
			madvise(p, MIB, MADV_DONTNEED);
		}
	}
	munmap(p, 2 * MIB);
	free(recv);
}

/* The pages of a buffer that the program has unmapped are still in a pipe. */
BEHAVIOUR(a_pipe_keeps_the_bytes_of_an_unmapped_buffer, 2)
{
	enum { PIPED = 32 * KIB };
	char *recv = check_alloc(4 * MIB), piped[PIPED];
	int ends[2];

	EXPECT(!pipe(ends));
	for (int i = 0; i < 3; i++) {
		char *p[2];

		for (int k = 0; k < 2; k++) {
			p[k] = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			use(p[k], recv, 4 * MIB, 1200 + 40 * (uint64_t)i + 20 * (uint64_t)k);
			if (k == 0) {
				struct iovec v = { p[0] + 2 * MIB, PIPED };

				check_fill(p[0] + 2 * MIB, PIPED, 77);
				EXPECT(vmsplice(ends[1], &v, 1, 0) == PIPED);
				munmap(p[0], 4 * MIB);
			}
		}
		EXPECT(read(ends[0], piped, PIPED) == PIPED);
		check_same(piped, PIPED, 77, "pipe");
		munmap(p[1], 4 * MIB);
	}
	close(ends[0]);
	close(ends[1]);
	free(recv);
}

/* More buffers than regions may be. */
BEHAVIOUR(many_buffers_in_turn, 2)
{
	enum { BUFFERS = 24 };
	char *recv = check_alloc(MIB), *send[BUFFERS];

	for (int i = 0; i < BUFFERS; i++)
		send[i] = check_alloc(MIB);
	for (int i = 0; i < 8 * BUFFERS; i++)
		exchange(send[i % BUFFERS], recv, 256 * KIB, 1000 + (uint64_t)i);
	for (int i = 0; i < BUFFERS; i++)
		free(send[i]);
	free(recv);
}

/* The program forks and starts a process while messages are on their way. */
BEHAVIOUR(forks_under_way, 2)
{
	char *send = check_alloc(4 * MIB), *recv = check_alloc(4 * MIB);
	int peer = partner();
	MPI_Request r[2];

	for (int i = 0; i < ROUNDS && peer != MPI_PROC_NULL; i++) {
		pid_t child;

		use(send, recv, 4 * MIB, 1500 + 20 * (uint64_t)i);
		check_fill(send, 4 * MIB, check_seed(i, rank));
		MPI_Irecv(recv, 4 * MIB, MPI_BYTE, peer, 5, MPI_COMM_WORLD, &r[0]);
		MPI_Isend(send, 4 * MIB, MPI_BYTE, peer, 5, MPI_COMM_WORLD, &r[1]);
		child = fork();
		if (!child)
			_exit(0);
		waitpid(child, NULL, 0);
		MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
		check_same(recv, 4 * MIB, check_seed(i, peer), "message under way");
		if (i == 4)
			EXPECT(!system("true"));
		if (i == 2)
			i = ROUNDS - 3;
	}
	free(send);
	free(recv);
}

/* ---- random messages ---------------------------------------------------------------------- */

enum { SLOTS = 8, SLOT = 512 * KIB };

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

static long number_of(const char *name, long otherwise)
{
	const char *text = getenv(name);

	return text ? atol(text) : otherwise;
}

static size_t some_bytes(uint64_t *state)
{
	static const size_t sizes[] = { 1, 4096, 8192, 16384, 65536, 65537, 262144, SLOT };
	size_t most = sizes[next_random(state) % (sizeof sizes / sizeof sizes[0])];

	return next_random(state) % 2 ? most : 1 + next_random(state) % most;
}

static int start_send(uint64_t kind, char *p, size_t bytes, int to, int tag, MPI_Request *r)
{
	switch (kind % 4) {
	case 0: return MPI_Issend(p, (int)bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, r);
	case 1:
		MPI_Ssend_init(p, (int)bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, r);
		return MPI_Start(r);
	default: return MPI_Isend(p, (int)bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, r);
	}
}

/* Ends any of the sends, or all; a persistent one is freed. Returns: how many are left. */
static int end_sends(uint64_t how, MPI_Request *r, const bool *persistent)
{
	int at[SLOTS], n = 0, left = 0;

	if (how % 4 == 0)
		MPI_Waitany(SLOTS, r, at, MPI_STATUS_IGNORE), n = at[0] != MPI_UNDEFINED;
	else if (how % 4 == 1)
		MPI_Waitsome(SLOTS, r, &n, at, MPI_STATUSES_IGNORE);
	else if (how % 4 == 2)
		MPI_Testsome(SLOTS, r, &n, at, MPI_STATUSES_IGNORE);
	else
		MPI_Waitall(SLOTS, r, MPI_STATUSES_IGNORE);
	for (int i = 0; i < SLOTS; i++) {
		bool ended = how % 4 == 3;

		for (int k = 0; k < n && n != MPI_UNDEFINED; k++)
			ended |= at[k] == i;
		if (ended && persistent[i] && r[i] != MPI_REQUEST_NULL)
			MPI_Request_free(&r[i]);
		left += r[i] != MPI_REQUEST_NULL;
	}
	return left;
}

/* Rounds of up to 8 nonblocking messages each way, of all sizes, from buffers that are overwritten
 * as soon as they are sent and now and then freed; collectives in between. Both ranks of a pair
 * draw the same numbers. */
BEHAVIOUR(random_messages, 2)
{
	uint64_t state = (uint64_t)number_of("HARNESS_SEED", 1) * 77 + (uint64_t)(rank / 2);
	long steps = number_of("HARNESS_STEPS", 150);
	char *send = check_alloc(SLOTS * SLOT), *recv = check_alloc(SLOTS * SLOT);
	int peer = partner();

	for (long step = 0; step < steps; step++) {
		MPI_Request in[SLOTS], out[SLOTS];
		size_t bytes[SLOTS] = { 0 };
		bool persistent[SLOTS] = { false };
		int n = 1 + (int)(next_random(&state) % SLOTS), value = rank, sum = 0;
		uint64_t how;

		for (int i = 0; i < SLOTS; i++)
			in[i] = out[i] = MPI_REQUEST_NULL;
		for (int i = 0; i < n && peer != MPI_PROC_NULL; i++) {
			uint64_t kind = next_random(&state);

			bytes[i] = some_bytes(&state);
			persistent[i] = kind % 4 == 1;
			check_fill(send + i * SLOT, bytes[i], check_seed(step * SLOTS + i, rank));
			MPI_Irecv(recv + i * SLOT, SLOT, MPI_BYTE, peer, i, MPI_COMM_WORLD, &in[i]);
			start_send(kind, send + i * SLOT, bytes[i], peer, i, &out[i]);
		}
		how = next_random(&state);
		MPI_Waitall(SLOTS, in, MPI_STATUSES_IGNORE);
		while (end_sends(how, out, persistent))
			how += how % 4 == 2;
		memset(send, 0xaa, (size_t)n * SLOT);
		for (int i = 0; i < n && peer != MPI_PROC_NULL; i++)
			check_same(recv + i * SLOT, bytes[i], check_seed(step * SLOTS + i, peer),
				   "random message");
		if (next_random(&state) % 16 == 0) {
			free(send);
			send = check_alloc(SLOTS * SLOT);
		}
		if (step % 8 == 0)
			MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
		EXPECT(step % 8 || sum == size * (size - 1) / 2);
	}
	free(send);
	free(recv);
}

/* ---- calls that an error handler leaves ---------------------------------------------------- */

static jmp_buf before_the_call;

static void leave_the_call(MPI_Comm *comm, int *rc, ...) { longjmp(before_the_call, 1); }

/* Sends 64 KiB and receives more than it has room for. */
static void fail_by_truncation(MPI_Comm comm, char *send, char *recv, int peer, bool is_blocking)
{
	MPI_Request r[2];

	if (setjmp(before_the_call))
		return;
	if (is_blocking) {
		MPI_Sendrecv(send, 64 * KIB, MPI_BYTE, peer, 1, recv, 4, MPI_BYTE, peer, 1, comm,
			     MPI_STATUS_IGNORE);
	} else {
		MPI_Isend(send, 64 * KIB, MPI_BYTE, peer, 1, comm, &r[0]);
		MPI_Irecv(recv, 4, MPI_BYTE, peer, 1, comm, &r[1]);
		MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
	}
	EXPECT(!"the receive is truncated");
}

/* The first rank of a pair leaves calls by longjmp(), changes its buffer, and broadcasts it by the
 * host MPI, which reads it as it reads messages. */
BEHAVIOUR(calls_that_an_error_handler_leaves, 2)
{
	char *send = check_alloc(64 * KIB), *recv = check_alloc(64 * KIB);
	int peer = partner();
	MPI_Errhandler own;
	MPI_Comm pair;

	MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &pair);
	for (int i = 0; i < 4 * ROUNDS; i++)
		exchange(send, recv, 64 * KIB, 3000 + (uint64_t)i);
	MPI_Comm_create_errhandler(leave_the_call, &own);
	MPI_Comm_set_errhandler(pair, own);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, own); /* MPICH's MPI_Waitall asks this one */
	for (int i = 0; i < 4 * ROUNDS && peer != MPI_PROC_NULL; i++) {
		check_fill(send, 64 * KIB, check_seed(i, 0));
		if (rank % 2 == 0) {
			fail_by_truncation(pair, send, recv, 1, i % 2);
			check_fill(send, 64 * KIB, check_seed(i, 1));
		} else {
			MPI_Send(send, 64, MPI_BYTE, 0, 1, pair);
			MPI_Recv(recv, 64 * KIB, MPI_BYTE, 0, 1, pair, MPI_STATUS_IGNORE);
		}
		MPI_Bcast(send, 64 * KIB, MPI_BYTE, 0, pair);
		check_same(send, 64 * KIB, check_seed(i, 1), "broadcast");
	}
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	MPI_Errhandler_free(&own);
	MPI_Comm_free(&pair);
	free(send);
	free(recv);
}

/* ---- the program's own calls --------------------------------------------------------------- */

static bool read_fails(pid_t pid, const struct iovec *l, const struct iovec *r,
		       unsigned long flags, int err)
{
	return process_vm_readv(pid, l, 1, r, 1, flags) == -1 && errno == err;
}

BEHAVIOUR(own_calls_of_process_vm_readv, 2)
{
	char *send = check_alloc(MIB), *recv = check_alloc(MIB);
	struct { char *at; pid_t pid; } own = { send, getpid() }, other = { 0 };
	int peer = partner();

	use(send, recv, MIB, 2000);
	check_fill(send, MIB, check_seed(1, rank));
	if (peer != MPI_PROC_NULL) {
		struct iovec l = { recv, MIB }, r;

		MPI_Sendrecv(&own, sizeof own, MPI_BYTE, peer, 3, &other, sizeof other, MPI_BYTE,
			     peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		r = (struct iovec){ other.at, MIB };
		memset(recv, 0, MIB);
		if (process_vm_readv(other.pid, &l, 1, &r, 1, 0) == MIB) {
			check_same(recv, MIB, check_seed(1, peer), "the peer's memory");
			l.iov_base = (void *)8;
			EXPECT(read_fails(other.pid, &l, &r, 0, EFAULT));
			l.iov_base = recv;
			EXPECT(read_fails(other.pid, &l, &r, 1, EINVAL));
			r.iov_base = (void *)8;
			EXPECT(read_fails(other.pid, &l, &r, 0, EFAULT));
		}
	}
	MPI_Barrier(MPI_COMM_WORLD);
	free(send);
	free(recv);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
