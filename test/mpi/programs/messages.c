/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages between pairs of ranks, from memory that is adopted, changed and freed meanwhile. */
#include "check.h"

#include <errno.h>
#include <fcntl.h>
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
