/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages beside what else uses their memory: one-sided operations and partitioned messages
 * between buffers that are adopted, freed, forked and used again.
 *
 * All ranks draw the same operations from HARNESS_SEED, and each keeps what every window must hold.
 *
 * Run alone: HARNESS_SEED=7 HARNESS_STEPS=200 mpiexec -n 3 sluice run messages_others
 */
#include "check.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_MAX = 32 << 10 }; /* of a slot: what one rank may use of another one's window */

static uint64_t common; /* state of the generator of all ranks */

static uint64_t draw(uint64_t below) { return check_random(&common) % below; }

static uint64_t word_of(uint64_t step, int origin, int target, int k)
{
	return (step * 8191 + (uint64_t)(origin * 64 + target)) * 0x9e3779b97f4a7c15ull +
	       (uint64_t)k;
}

/* ---- memory ------------------------------------------------------------------------------- */

struct memory {
	char *at;
	size_t bytes;
	bool is_mapped;
};

static void memory_get(struct memory *m, size_t bytes)
{
	*m = (struct memory){ NULL, bytes, draw(2) };
	m->at = m->is_mapped ? mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
			     : check_alloc(bytes);
	memset(m->at, 0, bytes);
}

static void memory_put(struct memory *m)
{
	if (m->is_mapped)
		munmap(m->at, m->bytes);
	else
		free(m->at);
	m->at = NULL;
}

/* Sends memory around a ring. Returns: what the left neighbour has sent. */
static char *passed_on(const void *buf, size_t bytes, int times)
{
	static char in[(WORDS_MAX * 8) * 16];

	for (int i = 0; i < times; i++)
		MPI_Sendrecv(buf, (int)bytes, MPI_BYTE, (rank + 1) % size, 1, in, (int)bytes,
			     MPI_BYTE, (rank + size - 1) % size, 1, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
	return in;
}

static void fork_one(void)
{
	pid_t child = fork();

	if (!child)
		_exit(0);
	waitpid(child, NULL, 0);
}

/* ---- windows ------------------------------------------------------------------------------ */

enum kind { CREATED, ALLOCATED, DYNAMIC, SHARED, KINDS };

struct window {
	enum kind kind;
	MPI_Win win;
	int slot;             /* words; the window has one slot for each rank */
	struct memory memory; /* CREATED, DYNAMIC */
	uint64_t *at;
	MPI_Aint base[16];   /* of each rank's: 0 if not DYNAMIC */
	uint64_t *model[16]; /* what each rank's must hold */
};

static void window_make(struct window *w)
{
	static const int slots[] = { 1, 60, 1000, 8 << 10, WORDS_MAX };
	int slot = slots[draw(5)];
	size_t bytes = (size_t)(slot * size) * 8;
	MPI_Aint own = 0;

	*w = (struct window){ .kind = draw(KINDS), .slot = slot };
	memory_get(&w->memory, bytes);
	w->at = (void *)w->memory.at;
	if (w->kind == CREATED) {
		MPI_Win_create(w->at, (MPI_Aint)bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &w->win);
	} else if (w->kind == DYNAMIC) {
		MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &w->win);
		MPI_Win_attach(w->win, w->at, (MPI_Aint)bytes);
		MPI_Get_address(w->at, &own);
	} else if (w->kind == ALLOCATED) {
		MPI_Win_allocate((MPI_Aint)bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &w->at,
				 &w->win);
	} else {
		MPI_Win_allocate_shared((MPI_Aint)bytes, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &w->at,
					&w->win);
	}
	MPI_Allgather(&own, 1, MPI_AINT, w->base, 1, MPI_AINT, MPI_COMM_WORLD);
	memset(w->at, 0, bytes);
	for (int r = 0; r < size; r++)
		w->model[r] = calloc(1, bytes);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void window_free(struct window *w)
{
	if (w->kind == DYNAMIC)
		MPI_Win_detach(w->win, w->at);
	MPI_Win_free(&w->win);
	memory_put(&w->memory);
	for (int r = 0; r < size; r++)
		free(w->model[r]);
}

/* ---- one epoch ---------------------------------------------------------------------------- */

enum { OPS = 2 }; /* of an origin at a target: one in each half of the slot */
enum op { PUT, GET, SUM, GET_SUM, FETCH, NO_OP, OP_KINDS };

struct operation {
	enum op op;
	int at, n, stride; /* words in the window */
	int in;            /* first word in the origin's memory */
};

static struct operation draw_operation(const struct window *w, int origin_slot, int half)
{
	int most = w->slot / OPS, n = most ? 1 + (int)draw(draw(2) ? 8 : (uint64_t)most) : 0;
	struct operation o = { .op = draw(OP_KINDS), .stride = 1 + !draw(4) };

	n = n > most ? most : n;
	if (o.op > GET)
		o.stride = 1;
	o.n = o.op == FETCH ? n > 0 : n / o.stride;
	o.at = origin_slot * w->slot + half * most +
	       (int)draw((uint64_t)(most - o.n * o.stride + 1));
	o.in = half * most;
	if (!o.n)
		o.op = NO_OP;
	return o;
}

static void start(const struct window *w, int target, const struct operation *o, uint64_t *out,
		  uint64_t *in)
{
	MPI_Aint at = w->kind == DYNAMIC ? w->base[target] + o->at * 8 : o->at;
	MPI_Datatype type;

	MPI_Type_vector(o->n, 1, o->stride, MPI_UINT64_T, &type);
	MPI_Type_commit(&type);
	switch (o->op) {
	case PUT:
		MPI_Put(out, o->n, MPI_UINT64_T, target, at, 1, type, w->win);
		break;
	case GET:
		MPI_Get(in, o->n, MPI_UINT64_T, target, at, 1, type, w->win);
		break;
	case SUM:
		MPI_Accumulate(out, o->n, MPI_UINT64_T, target, at, o->n, MPI_UINT64_T, MPI_SUM,
			       w->win);
		break;
	case GET_SUM:
		MPI_Get_accumulate(out, o->n, MPI_UINT64_T, in, o->n, MPI_UINT64_T, target, at,
				   o->n, MPI_UINT64_T, MPI_SUM, w->win);
		break;
	case FETCH:
		MPI_Fetch_and_op(out, in, MPI_UINT64_T, target, at, MPI_SUM, w->win);
		break;
	default:
		break;
	}
	MPI_Type_free(&type);
}

/* Applies the operation to the model. expected: what the origin must get. */
static void apply(const struct window *w, int target, const struct operation *o,
		  const uint64_t *out, uint64_t *expected)
{
	for (int k = 0; o->op != NO_OP && k < o->n; k++) {
		uint64_t *p = &w->model[target][o->at + k * o->stride];

		if (o->op != PUT && o->op != SUM)
			expected[k] = *p;
		if (o->op == PUT)
			*p = out[k];
		else if (o->op != GET)
			*p += out[k];
	}
}

/* From here to epoch_end() the ranks operate on each other's windows. */
static void epoch_begin(const struct window *w, int how, MPI_Group all)
{
	if (how == 0) {
		MPI_Win_fence(0, w->win);
	} else if (how == 1) {
		MPI_Win_lock_all(0, w->win);
	} else if (how == 2) {
		MPI_Win_post(all, 0, w->win);
		MPI_Win_start(all, 0, w->win);
	}
}

static void epoch_end(const struct window *w, int how)
{
	if (how == 0) {
		MPI_Win_fence(0, w->win);
	} else if (how == 1) {
		MPI_Win_unlock_all(w->win);
	} else if (how == 2) {
		MPI_Win_complete(w->win);
		MPI_Win_wait(w->win);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, w->win); /* the program loads its own window */
	MPI_Win_unlock(rank, w->win);
}

struct buffers {
	struct memory out, in;
}; /* as long as a window */

/* Two operations of an origin at a target, in different words. */
static void operate(const struct window *w, uint64_t step, int origin, int target,
		    const struct buffers *b, uint64_t *expected)
{
	static uint64_t sent[WORDS_MAX], ignored[WORDS_MAX];
	int first = target * w->slot;

	for (int half = 0; half < OPS; half++) {
		struct operation o = draw_operation(w, origin, half);
		int at = first + o.in;

		for (int k = 0; k < o.n; k++)
			sent[k] = word_of(step, origin, target, o.in + k);
		if (origin == rank && o.op != NO_OP)
			start(w, target, &o, (uint64_t *)(void *)b->out.at + at,
			      (uint64_t *)(void *)b->in.at + at);
		apply(w, target, &o, sent, origin == rank ? expected + at : ignored);
	}
}

static void epoch(const struct window *w, uint64_t step, MPI_Group all, const struct buffers *b)
{
	size_t bytes = (size_t)(w->slot * size) * 8;
	uint64_t *expected = calloc(1, bytes), *out = (void *)b->out.at;
	int how = (int)draw(4); /* 3: each target locked by itself */

	memset(b->in.at, 0, bytes);
	for (int k = 0; k < w->slot * size; k++)
		out[k] = word_of(step, rank, k / w->slot, k % w->slot);
	epoch_begin(w, how, all);
	for (int origin = 0; origin < size; origin++)
		for (int target = 0; target < size; target++) {
			int lock = draw(2) ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE;

			if (how == 3 && origin == rank)
				MPI_Win_lock(lock, target, 0, w->win);
			operate(w, step, origin, target, b, expected);
			if (how == 3 && origin == rank)
				MPI_Win_unlock(target, w->win);
		}
	epoch_end(w, how);
	if (memcmp(b->in.at, expected, bytes))
		check_fail("step %lu: what this rank got by an epoch of kind %d at a window of "
			   "kind %d",
			   (unsigned long)step, how, (int)w->kind);
	free(expected);
}

/* ---- the sequence ------------------------------------------------------------------------- */

/* Windows and buffers are read by peers and by collectives: they are adopted. */
static void share(const struct window *w, const struct buffers *b)
{
	size_t bytes = (size_t)(w->slot * size) * 8;
	int left = (rank + size - 1) % size, root = (int)draw((uint64_t)size);
	char *in = passed_on(w->at, bytes, 2);

	if (memcmp(in, w->model[left], bytes))
		check_fail("a message from a window of kind %d", (int)w->kind);
	passed_on(b->out.at, bytes, 2);
	if (rank == root)
		memcpy(in, w->at, bytes);
	MPI_Bcast(rank == root ? (void *)w->at : in, (int)bytes, MPI_BYTE, root, MPI_COMM_WORLD);
	if (memcmp(in, w->model[root], bytes))
		check_fail("a broadcast of a window of kind %d", (int)w->kind);
}

BEHAVIOUR(random_one_sided, 2)
{
	enum { WINDOWS = 4 };
	long steps = check_env("HARNESS_STEPS", 60);
	struct window w[WINDOWS];
	struct buffers b;
	MPI_Group all;

	common = (uint64_t)check_env("HARNESS_SEED", 1) << 20;
	MPI_Comm_group(MPI_COMM_WORLD, &all);
	for (int i = 0; i < WINDOWS; i++)
		window_make(&w[i]);
	memory_get(&b.out, (size_t)(WORDS_MAX * size) * 8);
	memory_get(&b.in, (size_t)(WORDS_MAX * size) * 8);
	for (long step = 0; step < steps; step++) {
		struct window *now = &w[draw(WINDOWS)];
		uint64_t what = draw(12);

		epoch(now, (uint64_t)step, all, &b);
		if (memcmp(now->at, now->model[rank], (size_t)(now->slot * size) * 8))
			check_fail("step %ld: a window of kind %d", step, (int)now->kind);
		if (what < 5)
			share(now, &b);
		MPI_Barrier(MPI_COMM_WORLD); /* the others may still have loaded this window */
		if (what == 5)
			fork_one();
		if (what == 6 || what == 7) {
			window_free(now);
			window_make(now);
		}
		if (what == 8) {
			memory_put(&b.out);
			memory_put(&b.in);
			memory_get(&b.out, (size_t)(WORDS_MAX * size) * 8);
			memory_get(&b.in, (size_t)(WORDS_MAX * size) * 8);
		}
	}
	for (int i = 0; i < WINDOWS; i++)
		window_free(&w[i]);
	memory_put(&b.out);
	memory_put(&b.in);
	MPI_Group_free(&all);
}

/* ---- partitioned messages ----------------------------------------------------------------- */

#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)

#ifdef OMPI_MAJOR_VERSION
enum { IS_OPENMPI = true };
#else
enum { IS_OPENMPI = false };
#endif
enum { PIECES = 16, STARTS = 4 };

/* Readies the partitions in a random order, one by one, as a range or as a list. */
static void ready(MPI_Request r, int parts)
{
	int order[PIECES], how = (int)draw(3);

	for (int i = 0; i < parts; i++) {
		int k = (int)draw((uint64_t)i + 1);

		order[i] = order[k];
		order[k] = i;
	}
	if (how == 0)
		MPI_Pready_range(0, parts - 1, r);
	else if (how == 1)
		MPI_Pready_list(parts, order, r);
	for (int i = 0; how == 2 && i < parts; i++)
		MPI_Pready(order[i], r);
}

static void partitioned_round(struct memory *out, struct memory *in, size_t piece, uint64_t step)
{
	int to = (rank + 1) % size, from = (rank + size - 1) % size;
	int parts = 1 << draw(5), in_parts = 1 << draw(5),
	    looked_at = (int)draw((uint64_t)in_parts);
	size_t bytes = piece * PIECES, of_part = bytes / (size_t)in_parts;
	MPI_Request r[2];

	MPI_Psend_init(out->at, parts, (MPI_Count)(bytes / (size_t)parts), MPI_BYTE, to, 1,
		       MPI_COMM_WORLD, MPI_INFO_NULL, &r[0]);
	MPI_Precv_init(in->at, in_parts, (MPI_Count)of_part, MPI_BYTE, from, 1, MPI_COMM_WORLD,
		       MPI_INFO_NULL, &r[1]);
	for (uint64_t i = 0; i < STARTS; i++) {
		MPI_Startall(2, r);
		check_fill(out->at, bytes, check_seed(step * STARTS + i, (uint64_t)rank));
		ready(r[0], parts);
		/* Open MPI 5.0 never tells of a partition that the sender has cut differently */
		for (int arrived = 0; !arrived && i % 2 && (parts == in_parts || !IS_OPENMPI);)
			MPI_Parrived(r[1], looked_at, &arrived);
		MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
		memset(out->at, 0xaa, bytes);
		check_same(in->at, bytes, check_seed(step * STARTS + i, (uint64_t)from),
			   "partitioned message");
		memset(in->at, 0xbb, bytes);
	}
	MPI_Request_free(&r[0]);
	MPI_Request_free(&r[1]);
}

static void partitioned(void)
{
	static const size_t pieces[] = { 1, 512, 4099, 16 << 10, 64 << 10, 128 << 10 };
	long steps = check_env("HARNESS_STEPS", 40);
	struct memory out, in;

	common = (uint64_t)check_env("HARNESS_SEED", 1) << 20;
	memory_get(&out, PIECES * (128 << 10));
	memory_get(&in, PIECES * (128 << 10));
	for (long step = 0; step < steps; step++) {
		size_t piece = pieces[draw(6)];
		uint64_t what = draw(6);

		if (what < 3)
			passed_on(out.at, piece * PIECES, 2);
		if (what == 3) {
			memory_put(&out);
			memory_get(&out, PIECES * (128 << 10));
		}
		if (what == 4)
			fork_one();
		partitioned_round(&out, &in, piece, (uint64_t)step);
	}
	memory_put(&out);
	memory_put(&in);
}

#else

static void partitioned(void) { check_skip("this MPI has none"); }

#endif

BEHAVIOUR(random_partitioned_messages, 2) { partitioned(); }

int main(int argc, char **argv) { return check_main(argc, argv, MPI_THREAD_SINGLE); }
