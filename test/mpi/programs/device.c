/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives on device memory, over a libcuda.so.1 of the tests (device_driver.h). The host MPI
 * touches that memory with the CPU, and the library counts it: so each call tells who executed it.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "device_driver.h"

enum { SMALL = 4096, LEAST = 65536, ODD = 65536 + 4660, LONG = 1 << 20 };

static uint64_t seeds;

static uintptr_t device_alloc(size_t bytes)
{
	uintptr_t p = 0;

	EXPECT(!cu.alloc(&p, bytes));
	return p;
}

static void fill(uintptr_t p, size_t bytes, uint64_t seed)
{
	char *host = check_alloc(bytes);

	check_fill(host, bytes, seed);
	EXPECT(!cu.to_device(p, host, bytes));
	free(host);
}

static void clear(uintptr_t p, size_t bytes)
{
	void *host = calloc(1, bytes);

	EXPECT(!cu.to_device(p, host, bytes));
	free(host);
}

static bool same(uintptr_t p, size_t bytes, uint64_t seed, const char *what)
{
	char *host = check_alloc(bytes);
	bool is;

	EXPECT(!cu.to_host(host, p, bytes));
	is = check_same(host, bytes, seed, what);
	free(host);
	return is;
}

/* ---- one call: who executed it? ------------------------------------------------------------ */

enum way { UNKNOWN, PULLED, PASSED };
static const char *const ways[] = { "unknown", "pulled", "passed" };
static int touches, copies;
static const char *const kinds[] = { "bcast", "gather", "scatter", "allgather", "alltoall" };
enum { BCAST, GATHER, SCATTER, ALLGATHER, ALLTOALL, KINDS };

static void begin(void)
{
	cu.hide();
	touches = 0;
	copies = cu.calls("cuMemcpyAsync");
}

/* Every rank tells what it saw. A copy on the GPU of one rank is one of all ranks, unless the CPU
 * has been there: then the host MPI was last. */
static enum way end(void)
{
	int mine[2], all[2];

	mine[0] = cu.hide() > 0;
	mine[1] = cu.calls("cuMemcpyAsync") > copies;
	MPI_Allreduce(mine, all, 2, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	return all[0] ? PASSED : all[1] ? PULLED : UNKNOWN;
}

static uint64_t part_seed(uint64_t seed, int from, int to)
{
	return check_seed(seed, (uint64_t)from * 64 + (uint64_t)to);
}

/* A collective on [send] and [recv], each with room for a part of every rank. Returns: who
 * executed it; the results are right. */
static enum way collective(int kind, uintptr_t send, uintptr_t recv, size_t bytes, int root,
			   bool in_place, MPI_Comm comm)
{
	int me, n, count = (int)bytes;
	uint64_t seed = ++seeds * 7;
	bool to_each = kind == SCATTER || kind == ALLTOALL, is_root;
	void *at = (void *)send, *to = (void *)recv;
	enum way way;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &n);
	is_root = me == root;
	clear(recv, bytes * (size_t)n);
	clear(send, bytes * (size_t)n);
	for (int r = 0; r < (to_each ? n : 1); r++)
		if ((kind != BCAST && kind != SCATTER) || is_root)
			fill(send + (uintptr_t)r * bytes, bytes,
			     part_seed(seed, me, to_each ? r : 0));
	if (in_place && (kind == GATHER ? is_root : kind == ALLGATHER)) {
		fill(recv + (uintptr_t)me * bytes, bytes, part_seed(seed, me, 0));
		at = MPI_IN_PLACE;
	}
	if (in_place && kind == SCATTER && is_root)
		to = MPI_IN_PLACE;
	begin();
	if (kind == BCAST)
		MPI_Bcast(at, count, MPI_BYTE, root, comm);
	else if (kind == GATHER)
		MPI_Gather(at, count, MPI_BYTE, to, count, MPI_BYTE, root, comm);
	else if (kind == SCATTER)
		MPI_Scatter(at, count, MPI_BYTE, to, count, MPI_BYTE, root, comm);
	else if (kind == ALLGATHER)
		MPI_Allgather(at, count, MPI_BYTE, to, count, MPI_BYTE, comm);
	else
		MPI_Alltoall(at, count, MPI_BYTE, to, count, MPI_BYTE, comm);
	way = end();
	if (kind == BCAST)
		same(send, bytes, part_seed(seed, root, 0), kinds[kind]);
	if (kind == SCATTER)
		same(to == MPI_IN_PLACE ? send + (uintptr_t)me * bytes : recv, bytes,
		     part_seed(seed, root, me), kinds[kind]);
	if (kind == ALLGATHER || kind == ALLTOALL || (kind == GATHER && is_root))
		for (int r = 0; r < n; r++)
			same(recv + (uintptr_t)r * bytes, bytes,
			     part_seed(seed, r, kind == ALLTOALL ? me : 0), kinds[kind]);
	return way;
}

static void expect_way(enum way expected, enum way way, const char *what, size_t bytes)
{
	if (way != expected && !is_gpu)
		check_fail("%s of %zu bytes: %s, not %s", what, bytes, ways[way], ways[expected]);
}

static void all_kinds(enum way expected, uintptr_t send, uintptr_t recv, size_t bytes,
		      MPI_Comm comm)
{
	for (int kind = 0; kind < KINDS; kind++)
		expect_way(expected, collective(kind, send, recv, bytes, 0, false, comm),
			   kinds[kind], bytes);
}

/* ---- what is pulled ------------------------------------------------------------------------ */

BEHAVIOUR(each_collective, 2)
{
	const size_t sizes[] = { LEAST, ODD, LONG };
	uintptr_t send = device_alloc(LONG * (size_t)size),
		  recv = device_alloc(LONG * (size_t)size);

	for (int i = 0; i < 3; i++)
		for (int root = 0; root < size; root++)
			for (int kind = 0; kind < KINDS; kind++)
				for (int in_place = 0;
				     in_place < (kind == BCAST || kind == ALLTOALL ? 1 : 2);
				     in_place++)
					expect_way(PULLED,
						   collective(kind, send, recv, sizes[i], root,
							      in_place, MPI_COMM_WORLD),
						   kinds[kind], sizes[i]);
	cu.free(send);
	cu.free(recv);
}

BEHAVIOUR(parts_of_an_allocation, 2)
{
	uintptr_t all = device_alloc(4 * (LONG + 333) * (size_t)size);

	all_kinds(PULLED, all + 77, all + 2 * LONG * (size_t)size + 5, ODD, MPI_COMM_WORLD);
	cu.free(all);
}

BEHAVIOUR(other_communicators, 2)
{
	uintptr_t send = device_alloc(LEAST * (size_t)size),
		  recv = device_alloc(LEAST * (size_t)size);
	MPI_Comm dup, turned;

	all_kinds(PULLED, send, recv, LEAST, MPI_COMM_WORLD);
	for (int i = 0; i < 3; i++) {
		MPI_Comm_dup(MPI_COMM_WORLD, &dup);
		MPI_Comm_split(MPI_COMM_WORLD, 0, size - rank, &turned);
		all_kinds(PULLED, send, recv, LEAST, dup);
		all_kinds(PULLED, send, recv, LEAST, turned);
		MPI_Comm_free(&dup);
		MPI_Comm_free(&turned);
	}
	cu.free(send);
	cu.free(recv);
}

BEHAVIOUR(an_allocation_is_opened_once, 2)
{
	uintptr_t send = device_alloc(LEAST * (size_t)size),
		  recv = device_alloc(LEAST * (size_t)size);
	int before;

	all_kinds(PULLED, send, recv, LEAST, MPI_COMM_WORLD);
	before = cu.calls("cuIpcOpenMemHandle");
	for (int i = 0; i < 5; i++)
		all_kinds(PULLED, send, recv, LEAST, MPI_COMM_WORLD);
	EXPECT(cu.calls("cuIpcOpenMemHandle") == before);
	cu.free(send);
	cu.free(recv);
}

/* The next allocation has the address of the last. */
BEHAVIOUR(freed_and_allocated_again, 2)
{
	uintptr_t recv = device_alloc(LONG * (size_t)size), send, last = 0;
	int again = 0;

	for (int i = 0; i < 12; i++) {
		send = device_alloc(LEAST * (size_t)size);
		again += send == last;
		last = send;
		all_kinds(PULLED, send, recv, LEAST, MPI_COMM_WORLD);
		EXPECT(!cu.free(send));
	}
	EXPECT(again > 5 || is_gpu);
	cu.free(recv);
}

BEHAVIOUR(few_allocations_stay_open, 2)
{
	enum { MANY = 150, MOST = 128 };
	uintptr_t at[MANY], recv = device_alloc(LEAST * (size_t)size);
	int opened;

	for (int round = 0; round < 2; round++) {
		opened = cu.calls("cuIpcOpenMemHandle");
		for (int i = 0; i < MANY; i++) {
			if (!round)
				at[i] = device_alloc(LEAST);
			begin();
			MPI_Allgather((void *)at[i], LEAST, MPI_BYTE, (void *)recv, LEAST, MPI_BYTE,
				      MPI_COMM_WORLD);
			expect_way(PULLED, end(), "allgather", LEAST);
			EXPECT(cu.open() <= MOST);
		}
		/* rank 0 copies for all */
		EXPECT(cu.calls("cuIpcOpenMemHandle") > opened || rank || is_gpu);
	}
	for (int i = 0; i < MANY; i++)
		cu.free(at[i]);
	cu.free(recv);
}

/* The program does not wait for its copy in the default stream, and needs not: see cuMemcpy. */
BEHAVIOUR(default_stream_goes_first, 2)
{
	uintptr_t from = device_alloc(LEAST), send = device_alloc(LEAST);

	for (int i = 0; i < 5; i++) {
		fill(from, LEAST, (uint64_t)i);
		clear(send, LEAST);
		begin();
		if (!rank)
			cu.on_device(send, from, LEAST);
		MPI_Bcast((void *)send, LEAST, MPI_BYTE, 0, MPI_COMM_WORLD);
		expect_way(PULLED, end(), "bcast", LEAST);
		same(send, LEAST, (uint64_t)i, "what the default stream has copied");
	}
	cu.free(from);
	cu.free(send);
}

/* The owner's call must not return before the others have read its buffer. */
BEHAVIOUR(buffers_are_free_after_the_call, 2)
{
	uintptr_t send = device_alloc(LONG * (size_t)size),
		  recv = device_alloc(LONG * (size_t)size);

	for (int i = 0; i < 10; i++) {
		fill(send, LONG, check_seed(3, (uint64_t)rank));
		begin();
		MPI_Allgather((void *)send, LONG, MPI_BYTE, (void *)recv, LONG, MPI_BYTE,
			      MPI_COMM_WORLD);
		clear(send, LONG);
		expect_way(PULLED, end(), "allgather", LONG);
		for (int r = 0; r < size; r++)
			same(recv + (uintptr_t)r * LONG, LONG, check_seed(3, (uint64_t)r),
			     "a part");
	}
	cu.free(send);
	cu.free(recv);
}

/* Each thread has a communicator and buffers of its own; all share what is open, and the stream. */
static void *thread(void *arg)
{
	enum { ROUNDS = 20 };
	MPI_Comm comm = *(MPI_Comm *)arg;
	uintptr_t recv = 0, send = 0;
	long wrong = 0;

	cu.context_set(context);
	cu.alloc(&recv, LEAST * (size_t)size);
	for (int i = 0; i < ROUNDS; i++) {
		char *host = check_alloc(LEAST * (size_t)size);

		memset(host, i + rank, LEAST);
		wrong += cu.alloc(&send, LEAST) || cu.to_device(send, host, LEAST);
		MPI_Allgather((void *)send, LEAST, MPI_BYTE, (void *)recv, LEAST, MPI_BYTE, comm);
		wrong += cu.free(send) || cu.to_host(host, recv, LEAST * (size_t)size);
		for (int at = 0; at < LEAST * size; at++)
			wrong += host[at] != i + at / LEAST;
		free(host);
	}
	cu.free(recv);
	return (void *)wrong;
}

BEHAVIOUR(threads, 2)
{
	enum { THREADS = 3 };
	MPI_Comm comms[THREADS];
	pthread_t threads[THREADS];
	void *wrong;

	for (int i = 0; i < THREADS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	begin();
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, thread, &comms[i]);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &wrong);
		EXPECT(!wrong);
	}
	expect_way(PULLED, end(), "allgather", LEAST);
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_free(&comms[i]);
}

BEHAVIOUR(fork_between_calls, 2)
{
	uintptr_t send = device_alloc(LEAST * (size_t)size),
		  recv = device_alloc(LEAST * (size_t)size);
	int status = -1;
	pid_t pid;

	for (int i = 0; i < 3; i++) {
		all_kinds(PULLED, send, recv, LEAST, MPI_COMM_WORLD);
		pid = fork();
		if (!pid) {
			void *p = malloc(LONG);

			memset(p, 1, LONG);
			free(p);
			_exit(0);
		}
		EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	}
	cu.free(send);
	cu.free(recv);
}

/* ---- what is left to the host MPI ---------------------------------------------------------- */

BEHAVIOUR(short_calls_are_passed, 2)
{
	uintptr_t send = device_alloc(LEAST * (size_t)size),
		  recv = device_alloc(LEAST * (size_t)size);
	int before = cu.calls("cuIpcGetMemHandle");

	expect_way(PASSED, collective(BCAST, send, recv, SMALL, 0, false, MPI_COMM_WORLD), "bcast",
		   SMALL);
	EXPECT(cu.calls("cuIpcGetMemHandle") == before);
	cu.free(send);
	cu.free(recv);
}

BEHAVIOUR(host_memory_asks_no_driver, 2)
{
	char *at = check_alloc(LONG);
	int before = cu.calls("cuCtxGetCurrent");

	for (int i = 0; i < 8; i++)
		check_bcast(at, LONG, i % size, MPI_COMM_WORLD, (uint64_t)i);
	EXPECT(cu.calls("cuCtxGetCurrent") == before);
	free(at);
}

BEHAVIOUR(one_rank_in_host_memory, 2)
{
	char *host = check_alloc(LONG);
	uintptr_t send = device_alloc(LONG);

	for (int i = 0; i < 2 * size; i++) {
		uintptr_t at = rank == i % size ? (uintptr_t)host : send;

		if (!rank)
			fill(at, LONG, (uint64_t)i);
		begin();
		MPI_Bcast((void *)at, LONG, MPI_BYTE, 0, MPI_COMM_WORLD);
		expect_way(PASSED, end(), "bcast", LONG);
		same(at, LONG, (uint64_t)i, "bcast");
	}
	cu.free(send);
	free(host);
}

/* Its ranks have one buffer here, the other there. */
BEHAVIOUR(receive_in_host_memory, 2)
{
	char *host = check_alloc(LEAST * (size_t)size);
	uintptr_t send = device_alloc(LEAST);

	fill(send, LEAST, check_seed(1, (uint64_t)rank));
	begin();
	MPI_Allgather((void *)send, LEAST, MPI_BYTE, host, LEAST, MPI_BYTE, MPI_COMM_WORLD);
	expect_way(PASSED, end(), "allgather", LEAST);
	for (int r = 0; r < size; r++)
		check_same(host + r * LEAST, LEAST, check_seed(1, (uint64_t)r), "allgather");
	cu.free(send);
	free(host);
}

BEHAVIOUR(memory_without_a_handle, 2)
{
	uintptr_t send = device_alloc(LEAST * (size_t)size),
		  recv = device_alloc(LEAST * (size_t)size), vmm = 0;

	EXPECT(!cu.alloc_vmm(&vmm, LEAST * (size_t)size));
	for (int r = 0; r < size; r++) {
		expect_way(r ? PULLED : PASSED,
			   collective(BCAST, rank == r ? vmm : send, recv, LEAST, 0, false,
				      MPI_COMM_WORLD),
			   "bcast", LEAST);
		expect_way(PASSED,
			   collective(ALLGATHER, rank == r ? vmm : send, recv, LEAST, 0, false,
				      MPI_COMM_WORLD),
			   "allgather", LEAST);
		expect_way(PULLED,
			   collective(ALLGATHER, send, rank == r ? vmm : recv, LEAST, 0, false,
				      MPI_COMM_WORLD),
			   "allgather to it", LEAST);
	}
	cu.free(send);
	cu.free(recv);
	cu.free(vmm);
}

BEHAVIOUR(types_with_gaps, 2)
{
	uintptr_t at = device_alloc(LONG);
	char *host = check_alloc(LONG);
	MPI_Datatype gaps;

	MPI_Type_vector(LEAST / 64, 64, 128, MPI_BYTE, &gaps);
	MPI_Type_commit(&gaps);
	clear(at, LONG);
	if (!rank)
		fill(at, LONG, 5);
	begin();
	MPI_Bcast((void *)at, 2, gaps, 0, MPI_COMM_WORLD);
	expect_way(PASSED, end(), "bcast", 2 * LEAST);
	cu.to_host(host, at, LONG);
	if (rank)
		EXPECT(host[64] == 0 && host[128 + 64] == 0);
	MPI_Type_free(&gaps);
	cu.free(at);
	free(host);
}

/* A wrong program: what this rank sends to itself does not fit. */
BEHAVIOUR(sides_that_differ, 2)
{
	uintptr_t send = device_alloc(LEAST), recv = device_alloc(LEAST * (size_t)size);
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
	fill(send, LEAST, 3);
	begin();
	MPI_Allgather((void *)send, LEAST - 64, MPI_BYTE, (void *)recv, LEAST, MPI_BYTE, comm);
	expect_way(PASSED, end(), "allgather", LEAST);
	MPI_Comm_free(&comm);
	cu.free(send);
	cu.free(recv);
}

BEHAVIOUR(alltoall_in_place, 2)
{
	uintptr_t at = device_alloc(LEAST * (size_t)size);

	for (int r = 0; r < size; r++)
		fill(at + (uintptr_t)r * LEAST, LEAST, part_seed(9, rank, r));
	begin();
	MPI_Alltoall(MPI_IN_PLACE, 0, MPI_BYTE, (void *)at, LEAST, MPI_BYTE, MPI_COMM_WORLD);
	expect_way(PASSED, end(), "alltoall", LEAST);
	for (int r = 0; r < size; r++)
		same(at + (uintptr_t)r * LEAST, LEAST, part_seed(9, r, rank), "alltoall in place");
	cu.free(at);
}

BEHAVIOUR(other_contexts, 2)
{
	uintptr_t send = device_alloc(LEAST * (size_t)size),
		  recv = device_alloc(LEAST * (size_t)size);
	uintptr_t theirs = 0;
	void *second = NULL;

	all_kinds(PULLED, send, recv, LEAST, MPI_COMM_WORLD);
	if (rank == size - 1)
		cu.context_create(&second, 0, 0); /* it is current now */
	all_kinds(PASSED, send, recv, LEAST, MPI_COMM_WORLD);
	if (second)
		theirs = device_alloc(LEAST * (size_t)size);
	all_kinds(PASSED, second ? theirs : send, recv, LEAST, MPI_COMM_WORLD);
	expect_way(PASSED,
		   collective(BCAST, second ? theirs : send, recv, LEAST, 0, false, MPI_COMM_WORLD),
		   "bcast in another context", LEAST);
	cu.free(theirs);
	if (rank == size - 1)
		cu.context_set(NULL);
	all_kinds(PASSED, send, recv, LEAST, MPI_COMM_WORLD);
	cu.context_set(context);
	all_kinds(PULLED, send, recv, LEAST, MPI_COMM_WORLD);
	cu.free(send);
	cu.free(recv);
}

BEHAVIOUR(capture_of_a_graph_goes_on, 2)
{
	uintptr_t send = device_alloc(LEAST * (size_t)size),
		  recv = device_alloc(LEAST * (size_t)size);

	cu.capture(rank == size - 1);
	all_kinds(PASSED, send, recv, LEAST, MPI_COMM_WORLD);
	cu.capture(0);
	all_kinds(PULLED, send, recv, LEAST, MPI_COMM_WORLD);
	cu.free(send);
	cu.free(recv);
}

/* ---- failures ------------------------------------------------------------------------------ */

/*
 * FAKE_CUDA_FAIL=FUNCTION: on each rank in turn a later call of it fails, from call
 * FAKE_CUDA_FAIL_FIRST on. All ranks go the same way, or they would hang, and the data is right.
 */
BEHAVIOUR(failures, 2)
{
	const char *function = getenv("FAKE_CUDA_FAIL");
	int first = (int)check_env("FAKE_CUDA_FAIL_FIRST", 1), passed = 0;
	uintptr_t send, recv;

	for (int i = 0; function && i < 3 * size; i++) {
		if (rank == i % size)
			cu.fail(function, first + i);
		send = device_alloc(LEAST * (size_t)size);
		recv = device_alloc(LEAST * (size_t)size);
		for (int kind = 0; kind < KINDS; kind++)
			passed += collective(kind, send, recv, LEAST, i % size, false,
					     MPI_COMM_WORLD) == PASSED;
		cu.free(send);
		cu.free(recv);
	}
	check_note("passed %d", passed);
}

/* ---- ends ---------------------------------------------------------------------------------- */

BEHAVIOUR(killed, 2)
{
	uintptr_t at = device_alloc(LEAST);

	if (!getenv("FAKE_CUDA_KILL"))
		return;
	for (int i = 0;; i++) {
		if (i == 20 && rank == size - 1)
			raise(SIGKILL);
		MPI_Bcast((void *)at, LEAST, MPI_BYTE, i % size, MPI_COMM_WORLD);
	}
}

int main(int argc, char **argv)
{
	int ret;

	load();
	ret = check_main(argc, argv, MPI_THREAD_MULTIPLE);
	if (cu.open() && !getenv("FAKE_CUDA_FAIL"))
		ret = !!fprintf(stderr, "%d allocations are open after MPI_Finalize\n", cu.open());
	return ret;
}
