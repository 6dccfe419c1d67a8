/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nonblocking collectives at random: of every kind and length, in buffers that are used again, new,
 * or shared, with and without gaps, among blocking ones and messages, on communicators that come
 * and go, completed in any way and order. Which collectives there are is alike on all ranks; all
 * else each decides for itself.
 *
 * HARNESS_SEED repeats a run, HARNESS_STEPS makes it longer. Run alone: mpiexec -n 2 sluice run
 * requests_random
 */
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

enum { FLIGHTS = 40, COMMS = 4, TAG = 9 };
#define LONGEST ((size_t)600 << 10)

enum kind {
	BCAST,
	GATHER,
	SCATTER,
	ALLGATHER,
	ALLTOALL,
	REDUCE,
	ALLREDUCE,
	REDUCE_SCATTER_BLOCK,
	SCAN,
	EXSCAN,
	BARRIER,
	MESSAGE,
	KINDS
};
enum home { AGAIN, NEW, SHARED, HOMES };

struct buf {
	uint32_t *at;
	void *block;
	size_t bytes; /* of the block, where it is a mapping */
	enum home home;
	int gap;      /* words from one number to the next */
};

struct flight {
	enum kind kind;
	int step, n, root, me, ranks;
	bool in_place, is_used;
	struct buf send, recv;
};

static struct flight flights[FLIGHTS];
static MPI_Request requests[FLIGHTS];
static char *again[FLIGHTS][2]; /* of each place's flights */
static MPI_Comm comms[COMMS];
static uint64_t common, luck;

static uint32_t common_below(uint32_t n) { return (uint32_t)(check_random(&common) % n); }
static uint32_t luck_below(uint32_t n) { return (uint32_t)(check_random(&luck) % n); }

/* The i-th number of what `from` has for `to`. */
static uint32_t word(const struct flight *f, int from, int to, int i)
{
	return (uint32_t)f->step * 2654435761u + (uint32_t)from * 40503u + (uint32_t)to * 97u +
	       (uint32_t)i;
}

static bool is_sum(enum kind kind) { return kind >= REDUCE && kind <= EXSCAN; }
static bool sends_to_each(enum kind kind)
{
	return kind == SCATTER || kind == ALLTOALL || kind == REDUCE_SCATTER_BLOCK;
}

/* ---- memory ------------------------------------------------------------------------------ */

static void buf_get(struct buf *b, int place, int side, size_t words, bool may_have_gaps)
{
	size_t bytes;

	b->gap = may_have_gaps && luck_below(4) == 0 ? 2 : 1;
	bytes = words * 4 * (size_t)b->gap + 64;
	b->home = luck_below(5) == 0 ? NEW : luck_below(8) == 0 ? SHARED : AGAIN;
	if (b->home == AGAIN && bytes > 4 * LONGEST)
		b->home = NEW;
	b->bytes = bytes;
	if (b->home == AGAIN)
		b->block = again[place][side];
	else if (b->home == NEW)
		b->block = check_alloc(bytes);
	else
		b->block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
				0);
	b->at = (uint32_t *)((char *)b->block + (b->home == AGAIN ? 0 : 4 * luck_below(16)));
}

static void buf_put(struct buf *b)
{
	if (b->home == NEW)
		free(b->block);
	else if (b->home == SHARED)
		munmap(b->block, b->bytes);
}

static uint32_t *number(const struct buf *b, int n, int part, int i)
{
	return &b->at[((size_t)part * (size_t)n + (size_t)i) * (size_t)b->gap];
}

static MPI_Datatype type_of(const struct buf *b)
{
	MPI_Datatype t;

	MPI_Type_create_resized(MPI_UINT32_T, 0, 4 * b->gap, &t);
	MPI_Type_commit(&t);
	return t;
}

/* ---- one of them ------------------------------------------------------------------------- */

static void fill(struct flight *f)
{
	const struct buf *b = f->in_place ? &f->recv : &f->send;
	int parts = sends_to_each(f->kind) ? f->ranks : 1;
	int first = f->in_place && f->kind == ALLGATHER ? f->me : 0;

	for (int p = 0; p < parts; p++)
		for (int i = 0; i < f->n; i++)
			*number(b, f->n, first + p, i) =
				f->kind == BCAST && f->me != f->root ? 1 : word(f, f->me, p, i);
	if (!f->in_place)
		for (int i = 0; i < f->n; i++)
			*number(&f->recv, f->n, 0, i) = 2;
}

static void call_moving(struct flight *f, MPI_Comm comm, MPI_Request *r)
{
	const void *send = f->in_place ? MPI_IN_PLACE : f->send.at;
	MPI_Datatype st = type_of(&f->send), rt = type_of(&f->recv);

	switch (f->kind) {
	case BCAST: MPI_Ibcast(f->send.at, f->n, st, f->root, comm, r); break;
	case GATHER:
		MPI_Igather(f->send.at, f->n, st, f->recv.at, f->n, rt, f->root, comm, r);
		break;
	case SCATTER:
		MPI_Iscatter(f->send.at, f->n, st, f->recv.at, f->n, rt, f->root, comm, r);
		break;
	case ALLGATHER: MPI_Iallgather(send, f->n, st, f->recv.at, f->n, rt, comm, r); break;
	default: MPI_Ialltoall(send, f->n, st, f->recv.at, f->n, rt, comm, r);
	}
	MPI_Type_free(&st);
	MPI_Type_free(&rt);
}

static void call(struct flight *f, MPI_Comm comm, MPI_Request *r)
{
	const void *send = f->in_place ? MPI_IN_PLACE : f->send.at;
	MPI_Datatype t = MPI_UINT32_T;
	int next = (f->me + 1) % f->ranks, last = (f->me + f->ranks - 1) % f->ranks;
	MPI_Request sent;

	switch (f->kind) {
	case REDUCE: MPI_Ireduce(f->send.at, f->recv.at, f->n, t, MPI_SUM, f->root, comm, r); break;
	case ALLREDUCE: MPI_Iallreduce(send, f->recv.at, f->n, t, MPI_SUM, comm, r); break;
	case REDUCE_SCATTER_BLOCK:
		MPI_Ireduce_scatter_block(send, f->recv.at, f->n, t, MPI_SUM, comm, r);
		break;
	case SCAN: MPI_Iscan(send, f->recv.at, f->n, t, MPI_SUM, comm, r); break;
	case EXSCAN: MPI_Iexscan(send, f->recv.at, f->n, t, MPI_SUM, comm, r); break;
	case BARRIER: MPI_Ibarrier(comm, r); break;
	case MESSAGE: /* short: what is sent is gone at once */
		MPI_Irecv(f->recv.at, f->n, t, last, TAG, comm, r);
		MPI_Isend(f->send.at, f->n, t, next, TAG, comm, &sent);
		MPI_Wait(&sent, MPI_STATUS_IGNORE);
		break;
	default: call_moving(f, comm, r);
	}
}

static uint32_t expected(const struct flight *f, int part, int i)
{
	int last = f->kind == SCAN     ? f->me
		   : f->kind == EXSCAN ? f->me - 1
				       : f->ranks - 1,
	    to = f->kind == REDUCE_SCATTER_BLOCK ? f->me : 0;
	uint32_t sum = 0;

	if (f->kind == BCAST)
		return word(f, f->root, 0, i);
	if (f->kind == SCATTER)
		return word(f, f->root, f->me, i);
	if (f->kind == MESSAGE)
		return word(f, (f->me + f->ranks - 1) % f->ranks, 0, i);
	if (!is_sum(f->kind))
		return word(f, part, f->kind == ALLTOALL ? f->me : 0, i);
	for (int r = 0; r <= last; r++)
		sum += word(f, r, to, i);
	return sum;
}

/* Its request is complete: its memory goes. */
static void finish(int place)
{
	struct flight *f = &flights[place];
	bool is_all = f->kind == ALLGATHER || f->kind == ALLTOALL ||
		      (f->kind == GATHER && f->me == f->root);
	bool is_mine = !(f->kind == REDUCE && f->me != f->root) && !(f->kind == EXSCAN && !f->me) &&
		       f->kind != BARRIER;
	const struct buf *b = f->kind == BCAST ? &f->send : &f->recv;
	int parts = is_all ? f->ranks : is_mine && f->kind != GATHER, wrong = 0;

	for (int p = 0; p < parts; p++)
		for (int i = 0; i < f->n; i++)
			wrong += *number(b, f->n, p, i) != expected(f, p, i);
	if (wrong)
		check_fail("step %d, kind %d of %d numbers on %d ranks, root %d, in place %d, "
			   "memory %d and %d, gaps %d and %d: %d wrong",
			   f->step, (int)f->kind, f->n, f->ranks, f->root, (int)f->in_place,
			   (int)f->send.home, (int)f->recv.home, f->send.gap, f->recv.gap, wrong);
	buf_put(&f->send);
	buf_put(&f->recv);
	f->is_used = false;
}

/* ---- completing -------------------------------------------------------------------------- */

/* Some of those in flight, or none; must: at least one, if there is any. */
static void complete(bool must)
{
	int indices[FLIGHTS], count = 0, flag = 0, i = (int)luck_below(FLIGHTS);
	MPI_Status statuses[FLIGHTS];

	switch (luck_below(7)) {
	case 0:
		MPI_Wait(&requests[i], statuses);
		flag = 1;
		break;
	case 1:
		MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
		break;
	case 2:
		MPI_Testany(FLIGHTS, requests, &i, &flag, statuses);
		break;
	case 3:
		MPI_Testsome(FLIGHTS, requests, &count, indices, statuses);
		break;
	case 4:
		MPI_Waitsome(FLIGHTS, requests, &count, indices, MPI_STATUSES_IGNORE);
		break;
	case 5:
		MPI_Request_get_status(requests[i], &flag, statuses);
		flag = 0;
		break;
	default:
		MPI_Waitany(FLIGHTS, requests, &i, MPI_STATUS_IGNORE);
		flag = 1;
	}
	if (flag && i >= 0 && i < FLIGHTS && flights[i].is_used)
		finish(i);
	else
		must &= !flag || i == MPI_UNDEFINED;
	for (int k = 0; k < count; k++)
		finish(indices[k]);
	if (must && !count && !flag) {
		MPI_Waitany(FLIGHTS, requests, &i, MPI_STATUS_IGNORE);
		if (i != MPI_UNDEFINED)
			finish(i);
	}
}

static int free_place(void)
{
	for (;;) {
		for (int i = 0, at = (int)luck_below(FLIGHTS); i < FLIGHTS; i++)
			if (!flights[(at + i) % FLIGHTS].is_used)
				return (at + i) % FLIGHTS;
		complete(true);
	}
}

static void complete_all(void)
{
	MPI_Waitall(FLIGHTS, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < FLIGHTS; i++)
		if (flights[i].is_used)
			finish(i);
}

/* ---- steps ------------------------------------------------------------------------------- */

static int length(enum kind kind, int ranks)
{
	uint32_t class = common_below(10);
	size_t bytes = class < 4   ? common_below(2000)
		       : class < 7 ? common_below(20000)
				   : (128u << 10) + common_below(400u << 10);
	bool is_cut = (sends_to_each(kind) || kind == GATHER || kind == ALLGATHER) && ranks > 3;

	return kind == MESSAGE ? 16 : (int)(bytes / 4 / (is_cut ? 2 : 1)) + 1;
}

static void launch(int step, MPI_Comm comm)
{
	struct flight f = { .kind = (enum kind)common_below(KINDS), .step = step, .is_used = true };
	int ranks, place = free_place();
	bool has_gaps;

	MPI_Comm_rank(comm, &f.me);
	MPI_Comm_size(comm, &ranks);
	f.ranks = ranks;
	f.root = (int)common_below((uint32_t)ranks);
	f.n = length(f.kind, ranks);
	f.in_place = (f.kind == ALLGATHER || f.kind == ALLTOALL || is_sum(f.kind)) &&
		     f.kind != REDUCE && common_below(3) == 0;
	has_gaps = f.kind <= ALLTOALL;
	buf_get(&f.send, place, 0, (size_t)f.n * (size_t)ranks, has_gaps);
	buf_get(&f.recv, place, 1, (size_t)f.n * (size_t)ranks, has_gaps);
	fill(&f);
	flights[place] = f;
	call(&flights[place], comm, &requests[place]);
}

static void block(MPI_Comm comm, int step)
{
	int in = step, out = -1, ranks;
	static char *large;

	MPI_Comm_size(comm, &ranks);
	large = large ? large : check_alloc(LONGEST);
	switch (common_below(4)) {
	case 0:
		MPI_Barrier(comm);
		break;
	case 1:
		MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm);
		EXPECT(out == ranks * step);
		break;
	case 2:
		check_bcast(large, 1 + common_below(LONGEST), (int)common_below((uint32_t)ranks),
			    comm, (uint64_t)step);
		break;
	default:
		MPI_Bcast(&in, 1, MPI_INT, (int)common_below((uint32_t)ranks), comm);
		EXPECT(in == step);
	}
}

/* Open MPI loses what is in flight on a communicator that is freed. */
static bool frees_too_early(void)
{
	char text[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	MPI_Get_library_version(text, &length);
	return strstr(text, "Open MPI") != NULL;
}

/* Another one in its place, while what is in flight on the old one goes on. */
static void renew(int c)
{
	MPI_Comm old = comms[c];

	if (frees_too_early())
		complete_all();
	if (common_below(2))
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]);
	else
		MPI_Comm_split(MPI_COMM_WORLD, common_below(3) ? 0 : rank % 2,
			       common_below(2) ? -rank : rank, &comms[c]);
	MPI_Comm_free(&old);
}

BEHAVIOUR(at_random, 1)
{
	int steps = (int)check_env("HARNESS_STEPS", 400);
	long seed = check_env("HARNESS_SEED", 1);

	common = check_seed((uint64_t)seed, 17);
	luck = check_seed((uint64_t)seed, 1000 + (uint64_t)rank);
	for (int i = 0; i < FLIGHTS; i++) {
		requests[i] = MPI_REQUEST_NULL;
		for (int side = 0; side < 2; side++)
			again[i][side] = check_alloc(4 * LONGEST);
	}
	for (int c = 0; c < COMMS; c++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]);
	for (int step = 0; step < steps; step++) {
		MPI_Comm comm = comms[common_below(COMMS)];
		uint32_t what = common_below(100);

		if (what < 70)
			launch(step, comm);
		else if (what < 88)
			block(comm, step);
		else if (what < 91)
			renew((int)common_below(COMMS));
		for (uint32_t k = luck_below(3); k; k--)
			complete(false);
		if (luck_below(20) == 0)
			usleep(luck_below(2000));
	}
	complete_all();
	for (int c = 0; c < COMMS; c++)
		MPI_Comm_free(&comms[c]);
	for (int i = 0; i < 2 * FLIGHTS; i++)
		free(again[i / 2][i % 2]);
}

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
