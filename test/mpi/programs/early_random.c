/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random operations against a model of plain MPI. All ranks draw the same steps from one seed, and
 * each keeps a model of every rank's memory, on which each step is done by plain loads and stores.
 *
 * HARNESS_SEED (printed), HARNESS_SECONDS, HARNESS_STEPS: see test/mpi/test_early.py.
 */
#include "early.h"

#include <pthread.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { RANKS_MOST = 4, BYTES = 1500000, COMMS = 4 };

static struct {
	char *at;                 /* this rank's memory, which MPI sees */
	char *model[RANKS_MOST];  /* what every rank's memory must hold */
	char *scratch;
	void *block;              /* of `at` */
	MPI_Comm comms[COMMS];
	uint64_t common;          /* the generator that all ranks share */
	uint64_t seed;
	size_t last, last_bytes;
	long step;
} w;

static uint64_t pick(uint64_t below) { return check_random(&w.common) % below; }

static void wrong(const char *what, size_t at)
{
	check_fail("seed %lu, step %ld: %s: byte %zu is %02x, not %02x", (unsigned long)w.seed,
		   w.step, what, at, (uint8_t)w.at[at], (uint8_t)w.model[rank][at]);
}

static bool look(size_t from, size_t bytes, const char *what)
{
	for (size_t i = from; i < from + bytes; i++) {
		size_t n = least(4096, from + bytes - i);

		if (!memcmp(w.at + i, w.model[rank] + i, n)) {
			i += n - 1;
			continue;
		}
		while (w.at[i] == w.model[rank][i])
			i++;
		wrong(what, i);
		return false;
	}
	return true;
}

static void place(size_t *from, size_t *bytes)
{
	uint64_t way = pick(6);

	if (way > 2) { /* the last place, or part of it */
		*bytes = pick(2) ? w.last_bytes : 1 + pick(w.last_bytes);
		*from = w.last + pick(w.last_bytes - *bytes + 1);
		return;
	}
	*bytes = !way ? 1 + pick(9000) : way == 1 ? 4096 * (1 + pick(100)) : 1 + pick(BYTES / 4);
	*from = pick(BYTES - *bytes + 1);
	if (!pick(3))
		*from &= ~(size_t)4095;
}

/* The next steps are likely to look here. */
static void remember(size_t from, size_t bytes)
{
	w.last = from;
	w.last_bytes = bytes;
}

/* ---- collectives and messages: all ranks ------------------------------------------------- */

static void a_bcast(void)
{
	MPI_Comm comm = w.comms[pick(COMMS)];
	int root = (int)pick(size);
	size_t from, bytes;

	place(&from, &bytes);
	if (pick(2))
		bytes = least(bytes + 100000, BYTES - from);
	MPI_Bcast(w.at + from, (int)bytes, MPI_BYTE, root, comm);
	remember(from, bytes);
	for (int r = 0; r < size; r++)
		if (r != root)
			memcpy(w.model[r] + from, w.model[root] + from, bytes);
}

/* One block a rank, at a place of its own in the second half, and all of them at the root's, in the
 * first: none of its own bytes but in place. */
struct blocks {
	MPI_Comm comm;
	int root;
	size_t piece, all, one[RANKS_MOST];
	bool in_place;
};

static struct blocks pick_blocks(void)
{
	struct blocks b = { .comm = w.comms[pick(COMMS)], .root = (int)pick(size) };

	b.piece = 1 + pick(BYTES / 4 / (size_t)size);
	b.all = pick(BYTES / 2 - b.piece * (size_t)size);
	b.in_place = pick(2);
	remember(b.all, b.piece * (size_t)size);
	for (int r = 0; r < size; r++)
		b.one[r] = BYTES / 2 + pick(BYTES / 2 - b.piece);
	return b;
}

static bool moves(const struct blocks *b, int r) { return r != b->root || !b->in_place; }

static void a_gather(void)
{
	struct blocks b = pick_blocks();

	if (rank == b.root)
		MPI_Gather(b.in_place ? MPI_IN_PLACE : w.at + b.one[rank], (int)b.piece, MPI_BYTE,
			   w.at + b.all, (int)b.piece, MPI_BYTE, b.root, b.comm);
	else
		MPI_Gather(w.at + b.one[rank], (int)b.piece, MPI_BYTE, NULL, 0, MPI_BYTE, b.root,
			   b.comm);
	for (int r = 0; r < size; r++)
		if (moves(&b, r))
			memcpy(w.model[b.root] + b.all + (size_t)r * b.piece, w.model[r] + b.one[r],
			       b.piece);
}

static void a_scatter(void)
{
	struct blocks b = pick_blocks();

	MPI_Scatter(w.at + b.all, (int)b.piece, MPI_BYTE,
		    rank == b.root && b.in_place ? MPI_IN_PLACE : w.at + b.one[rank], (int)b.piece,
		    MPI_BYTE, b.root, b.comm);
	for (int r = 0; r < size; r++)
		if (moves(&b, r))
			memcpy(w.model[r] + b.one[r], w.model[b.root] + b.all + (size_t)r * b.piece,
			       b.piece);
}

/* Copies the data of all ranks before any of it is overwritten. */
static void keep(int r, size_t from, size_t bytes)
{
	memcpy(w.scratch + (size_t)r * bytes, w.model[r] + from, bytes);
}

static void an_allgather(void)
{
	MPI_Comm comm = w.comms[pick(COMMS)];
	size_t piece = 1 + pick(BYTES / 4 / (size_t)size), from[RANKS_MOST], to[RANKS_MOST];
	bool in_place = pick(2);

	for (int r = 0; r < size; r++) {
		to[r] = pick(BYTES / 2 - piece * (size_t)size);
		from[r] =
			in_place ? to[r] + (size_t)r * piece : BYTES / 2 + pick(BYTES / 2 - piece);
	}
	remember(to[0], piece * (size_t)size);
	MPI_Allgather(in_place ? MPI_IN_PLACE : w.at + from[rank], (int)piece, MPI_BYTE,
		      w.at + to[rank], (int)piece, MPI_BYTE, comm);
	for (int r = 0; r < size; r++)
		keep(r, from[r], piece);
	for (int r = 0; r < size; r++)
		memcpy(w.model[r] + to[r], w.scratch, piece * (size_t)size);
}

static void an_alltoall(void)
{
	MPI_Comm comm = w.comms[pick(COMMS)];
	size_t piece = 1 + pick(BYTES / 4 / (size_t)(size * size)), all = piece * (size_t)size;
	size_t from[RANKS_MOST], to[RANKS_MOST];
	bool in_place = !pick(4);

	for (int r = 0; r < size; r++) {
		to[r] = pick(BYTES / 2 - all);
		from[r] = in_place ? to[r] : BYTES / 2 + pick(BYTES / 2 - all);
	}
	remember(from[0], all);
	MPI_Alltoall(in_place ? MPI_IN_PLACE : w.at + from[rank], (int)piece, MPI_BYTE,
		     w.at + to[rank], (int)piece, MPI_BYTE, comm);
	for (int r = 0; r < size; r++)
		keep(r, from[r], all);
	for (int r = 0; r < size; r++)
		for (int k = 0; k < size; k++)
			memcpy(w.model[r] + to[r] + (size_t)k * piece,
			       w.scratch + (size_t)k * all + (size_t)r * piece, piece);
}

/* ---- the same, computed: bytes of ranks first to last ------------------------------------ */

static void combine(char *out, size_t first, size_t bytes, size_t stride, int last)
{
	memcpy(out, w.scratch + first, bytes);
	for (int r = 1; r <= last; r++)
		for (size_t i = 0; i < bytes; i++)
			out[i] ^= w.scratch[(size_t)r * stride + first + i];
}

static void a_reduction(void)
{
	enum { REDUCE, ALLREDUCE, SCAN, EXSCAN } kind = (int)pick(4);
	MPI_Comm comm = w.comms[pick(COMMS)];
	int root = (int)pick(size);
	size_t bytes = 1 + pick(BYTES / 4), from[RANKS_MOST], to[RANKS_MOST];
	bool in_place = pick(2);
	const void *send;

	for (int r = 0; r < size; r++) {
		to[r] = pick(BYTES / 2 - bytes);
		from[r] = in_place && (kind != REDUCE || r == root)
				  ? to[r]
				  : BYTES / 2 + pick(BYTES / 2 - bytes);
	}
	remember(to[0], bytes);
	send = from[rank] == to[rank] ? MPI_IN_PLACE : w.at + from[rank];
	if (kind == REDUCE)
		MPI_Reduce(send, w.at + to[rank], (int)bytes, MPI_BYTE, MPI_BXOR, root, comm);
	else
		(kind == ALLREDUCE ? MPI_Allreduce : kind == SCAN ? MPI_Scan : MPI_Exscan)
			(send, w.at + to[rank], (int)bytes, MPI_BYTE, MPI_BXOR, comm);
	for (int r = 0; r < size; r++)
		keep(r, from[r], bytes);
	for (int r = 0; r < size; r++)
		if (kind == REDUCE ? r == root : kind != EXSCAN || r)
			combine(w.model[r] + to[r], 0, bytes, bytes, kind == SCAN     ? r
				: kind == EXSCAN ? r - 1
						 : size - 1);
}

static void a_scattered_reduction(void)
{
	MPI_Comm comm = w.comms[pick(COMMS)];
	size_t piece = 1 + pick(BYTES / 4 / (size_t)size), all = piece * (size_t)size,
	       from[RANKS_MOST], to[RANKS_MOST];

	for (int r = 0; r < size; r++) {
		to[r] = pick(BYTES / 2 - piece);
		from[r] = BYTES / 2 + pick(BYTES / 2 - all);
	}
	remember(from[0], all);
	MPI_Reduce_scatter_block(w.at + from[rank], w.at + to[rank], (int)piece, MPI_BYTE, MPI_BXOR,
				 comm);
	for (int r = 0; r < size; r++)
		keep(r, from[r], all);
	for (int r = 0; r < size; r++)
		combine(w.model[r] + to[r], (size_t)r * piece, piece, all, size - 1);
}

/* Blocks with gaps, broadcast as such by some and as whole bytes by the others. */
static void a_strided_bcast(void)
{
	int blocks = 1 + (int)pick(60), root = (int)pick(size);
	size_t block = 1 + pick(5000), stride = block + pick(3000), from[RANKS_MOST];
	bool gaps[RANKS_MOST];
	MPI_Datatype t;

	for (int r = 0; r < size; r++) {
		gaps[r] = pick(2);
		from[r] = pick(BYTES - (size_t)blocks * stride);
	}
	MPI_Type_vector(blocks, (int)block, (int)stride, MPI_BYTE, &t);
	MPI_Type_commit(&t);
	if (gaps[rank])
		MPI_Bcast(w.at + from[rank], 1, t, root, MPI_COMM_WORLD);
	else
		MPI_Bcast(w.at + from[rank], (int)((size_t)blocks * block), MPI_BYTE, root,
			  MPI_COMM_WORLD);
	for (int b = 0; b < blocks; b++) {
		char *data = w.scratch + (size_t)b * block;

		memcpy(data, w.model[root] + from[root] + (size_t)b * (gaps[root] ? stride : block),
		       block);
	}
	for (int r = 0; r < size; r++)
		for (int b = 0; b < blocks && r != root; b++)
			memcpy(w.model[r] + from[r] + (size_t)b * (gaps[r] ? stride : block),
			       w.scratch + (size_t)b * block, block);
	MPI_Type_free(&t);
}

static void a_message(void)
{
	int from = (int)pick(size), to = (from + 1 + (int)pick(size - 1)) % size;
	size_t at, bytes, there;
	int how = (int)pick(3);

	place(&at, &bytes);
	there = pick(BYTES - bytes);
	if (rank == from && how == 0)
		MPI_Send(w.at + at, (int)bytes, MPI_BYTE, to, 5, MPI_COMM_WORLD);
	if (rank == from && how == 1)
		MPI_Ssend(w.at + at, (int)bytes, MPI_BYTE, to, 5, MPI_COMM_WORLD);
	if (rank == from && how == 2) {
		MPI_Request r;

		MPI_Isend(w.at + at, (int)bytes, MPI_BYTE, to, 5, MPI_COMM_WORLD, &r);
		MPI_Wait(&r, MPI_STATUS_IGNORE);
	}
	if (rank == to)
		MPI_Recv(w.at + there, (int)bytes, MPI_BYTE, from, 5, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
	memcpy(w.model[to] + there, w.model[from] + at, bytes);
}

static void a_new_communicator(void)
{
	int i = 1 + (int)pick(COMMS - 1);

	MPI_Comm_free(&w.comms[i]);
	MPI_Comm_dup(w.comms[pick(i)], &w.comms[i]);
}

static void a_barrier(void) { MPI_Barrier(w.comms[pick(COMMS)]); }

/* ---- one rank alone: `who` is drawn by all, and its model is kept by all ----------------- */

static void a_look(int who)
{
	size_t from, bytes;

	place(&from, &bytes);
	if (rank == who)
		look(from, bytes, "load");
}

static void a_few_loads(int who)
{
	for (int i = 0; i < 20; i++) {
		size_t at = w.last + pick(w.last_bytes);

		if (rank == who && w.at[at] != w.model[rank][at])
			wrong("load", at);
	}
}

static void a_store(int who)
{
	uint64_t seed = pick(1 << 30);
	size_t from, bytes;

	place(&from, &bytes);
	if (rank == who)
		check_fill(w.at + from, bytes, seed);
	check_fill(w.model[who] + from, bytes, seed);
}

static void a_write(int who)
{
	size_t from, bytes;
	int fd;

	place(&from, &bytes);
	if (rank != who)
		return;
	fd = memfd_create("random", 0);
	if (write(fd, w.at + from, bytes) != (ssize_t)bytes)
		check_fail("seed %lu, step %ld: write: %s", (unsigned long)w.seed, w.step,
			   strerror(errno));
	else if (pread(fd, w.scratch, bytes, 0) != (ssize_t)bytes ||
		 memcmp(w.scratch, w.model[rank] + from, bytes))
		check_fail("seed %lu, step %ld: written bytes", (unsigned long)w.seed, w.step);
	close(fd);
}

static void a_read(int who)
{
	uint64_t seed = pick(1 << 30);
	size_t from, bytes;
	int fd;

	place(&from, &bytes);
	check_fill(w.model[who] + from, bytes, seed);
	if (rank != who)
		return;
	fd = memfd_create("random", 0);
	if (write(fd, w.model[who] + from, bytes) != (ssize_t)bytes ||
	    pread(fd, w.at + from, bytes, 0) != (ssize_t)bytes)
		check_fail("seed %lu, step %ld: read: %s", (unsigned long)w.seed, w.step,
			   strerror(errno));
	close(fd);
}

static void a_pipe(int who)
{
	size_t from = pick(BYTES - 40000), to = pick(BYTES - 40000), bytes = 1 + pick(40000);
	int fds[2];

	if (rank == who && !pipe(fds)) {
		struct iovec out[2] = { { w.at + from, bytes / 2 },
					{ w.at + from + bytes / 2, bytes - bytes / 2 } };

		EXPECT(writev(fds[1], out, 2) == (ssize_t)bytes);
		EXPECT(read(fds[0], w.at + to, bytes) == (ssize_t)bytes);
		close(fds[0]);
		close(fds[1]);
	}
	memmove(w.scratch, w.model[who] + from, bytes);
	memcpy(w.model[who] + to, w.scratch, bytes);
}

static void a_move(int who)
{
	size_t from, bytes, to;

	place(&from, &bytes);
	to = pick(BYTES - bytes);
	if (rank == who)
		memmove(w.at + to, w.at + from, bytes);
	memmove(w.model[who] + to, w.model[who] + from, bytes);
}

static void a_child(int who)
{
	uint64_t how = pick(3);
	size_t from, bytes;
	int status = -1;
	pid_t child;

	place(&from, &bytes);
	if (rank != who)
		return;
	child = fork();
	if (!child) {
		if (how == 1)
			memset(w.at + from, 9, bytes);
		_exit(how != 1 && memcmp(w.at + from, w.model[rank] + from, bytes) ? 1 : 0);
	}
	if (how == 2)
		look(from, bytes, "beside a child");
	if (waitpid(child, &status, 0) != child || status)
		check_fail("seed %lu, step %ld: a child ended with %x", (unsigned long)w.seed,
			   w.step, (unsigned)status);
}

struct part {
	pthread_t thread;
	size_t from, bytes;
	bool same;
};

static void *look_at_part(void *arg)
{
	struct part *p = arg;

	p->same = !memcmp(w.at + p->from, w.model[rank] + p->from, p->bytes);
	return NULL;
}

static void some_threads(int who)
{
	struct part parts[3];

	for (int i = 0; i < 3; i++)
		place(&parts[i].from, &parts[i].bytes);
	if (rank != who)
		return;
	for (int i = 0; i < 3; i++)
		pthread_create(&parts[i].thread, NULL, look_at_part, &parts[i]);
	for (int i = 0; i < 3; i++) {
		pthread_join(parts[i].thread, NULL);
		if (!parts[i].same)
			check_fail("seed %lu, step %ld: in thread %d", (unsigned long)w.seed,
				   w.step, i);
	}
}

/* The memory moves: another block, or another mapping. */
static void a_new_block(int who)
{
	uint64_t how = pick(4);

	if (rank != who)
		return;
	if (how == 0 || how == 1) {
		char *next = malloc(BYTES + 5000);

		memcpy(next + 50 * how, w.at, BYTES);
		free(w.block);
		w.block = next;
		w.at = next + 50 * how;
	} else if (w.at == w.block) {
		w.block = w.at = realloc(w.block, BYTES + 4096 * how);
	} else {
		free(w.block);
		w.block = w.at = calloc(1, BYTES + 4096);
		memcpy(w.at, w.model[rank], BYTES);
	}
}

static void a_discard(int who)
{
	size_t from = pick(BYTES / 2), bytes = pick(BYTES / 2);

	if (rank == who) {
		uintptr_t lo = ((uintptr_t)w.at + from + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
		uintptr_t hi = ((uintptr_t)w.at + from + bytes) & ~(uintptr_t)(PAGE - 1);

		if (lo < hi)
			madvise((void *)lo, hi - lo, MADV_DONTNEED);
		memset(w.at + from, 0, bytes);
	}
	memset(w.model[who] + from, 0, bytes);
}

static void a_delay(int who)
{
	long us = (long)pick(3000);

	if (rank == who)
		early_sleep_us(us);
}

/* ---- */

static void one_step(void)
{
	static void (*const together[])(void) = {
		a_bcast,         a_bcast,     a_bcast,     a_gather,          a_scatter,
		an_allgather,    an_alltoall, a_reduction, a_reduction,       a_scattered_reduction,
		a_strided_bcast, a_message,   a_barrier,   a_new_communicator
	};
	static void (*const often[])(int) = { a_look, a_few_loads, a_few_loads, a_store, a_write,
					      a_read, a_pipe,      a_move,      a_delay };
	static void (*const seldom[])(int) = { a_child, some_threads, a_new_block, a_discard };

	if (pick(2)) {
		together[pick(sizeof(together) / sizeof(together[0]))]();
	} else if (pick(8)) {
		uint64_t which = pick(sizeof(often) / sizeof(often[0]));

		often[which]((int)pick(size));
	} else {
		uint64_t which = pick(sizeof(seldom) / sizeof(seldom[0]));

		seldom[which]((int)pick(size));
	}
}

static void begin_all(void)
{
	for (int r = 0; r < size; r++) {
		w.model[r] = early_map(BYTES);
		check_fill(w.model[r], BYTES, check_seed(w.seed, r));
	}
	remember(0, BYTES / 2);
	w.scratch = early_map(BYTES);
	w.block = w.at = check_alloc(BYTES);
	memcpy(w.at, w.model[rank], BYTES);
	w.comms[0] = MPI_COMM_WORLD;
	for (int i = 1; i < COMMS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &w.comms[i]);
}

static void end_all(void)
{
	look(0, BYTES, "at the end");
	for (int i = 1; i < COMMS; i++)
		MPI_Comm_free(&w.comms[i]);
	for (int r = 0; r < size; r++)
		munmap(w.model[r], BYTES);
	munmap(w.scratch, BYTES);
	free(w.block);
}

/* Rounds of 200 steps, each from a seed of its own, until the time is over. */
BEHAVIOUR(random_operations, 2)
{
	long seconds = check_env("HARNESS_SECONDS", 0), steps = check_env("HARNESS_STEPS", 200);
	uint64_t seed = (uint64_t)check_env("HARNESS_SEED", 1);
	double until = early_now() + (double)seconds;
	int more = size <= RANKS_MOST, mine;
	long rounds = 0;

	for (long round = 0; more; round++) {
		w.seed = w.common = seed + (uint64_t)round;
		w.common *= 1000003;
		if (!rank && !(round % 50)) {
			printf("seed %lu\n", (unsigned long)w.seed);
			fflush(stdout);
		}
		begin_all();
		for (w.step = 0; w.step < steps; w.step++)
			one_step();
		end_all();
		rounds++;
		mine = early_now() < until && !check_failed();
		MPI_Allreduce(&mine, &more, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	}
	check_note("%ld rounds", rounds);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_FUNNELED);
}
