/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A random sequence of broadcasts and gathers: sizes, roots, types, kinds of memory, blocks that
 * come and go in between. All ranks draw the same sequence from HARNESS_SEED (printed), and each
 * draws what is its own business (kind of memory, offsets, frees) from a second generator.
 *
 * Run alone: HARNESS_SEED=7 HARNESS_STEPS=200 mpiexec -n 3 sluice run random_ops
 */
#include "check.h"

#include <sys/mman.h>

enum { BLOCKS = 6, MOST = 4 << 20 };

enum memory { HEAP, MAPPED, STATIC, STACK, SHARED, KINDS };

struct block {
	enum memory kind;
	char *at;
	size_t bytes;
};

static char static_area[MOST + 8192];
static struct block blocks[BLOCKS];
static uint64_t common, own;

static uint64_t pick(uint64_t *state, uint64_t below)
{
	return check_random(state) % below;
}

static size_t pick_size(void)
{
	switch (pick(&common, 4)) {
	case 0:
		return 1 + pick(&common, 5000);
	case 1:
		return 60000 + pick(&common, 20000);
	case 2:
		return 4096 * (1 + pick(&common, 500));
	default:
		return 1 + pick(&common, MOST);
	}
}

static void block_free(struct block *b)
{
	if (b->kind == HEAP)
		free(b->at);
	else if (b->kind == MAPPED || b->kind == SHARED)
		munmap(b->at, b->bytes);
	b->at = NULL;
}

static void block_make(struct block *b, enum memory kind)
{
	*b = (struct block){ .kind = kind, .bytes = MOST + 8192 };
	if (kind == HEAP)
		b->at = check_alloc(b->bytes);
	else if (kind == STATIC)
		b->at = static_area;
	else
		b->at = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE,
			     MAP_ANONYMOUS | (kind == SHARED ? MAP_SHARED : MAP_PRIVATE), -1, 0);
	if (b->at == MAP_FAILED)
		MPI_Abort(MPI_COMM_WORLD, 3);
}

/* A change to one of the rank's blocks between two calls. */
static void disturb(void)
{
	struct block *b = &blocks[pick(&own, BLOCKS)];
	static const enum memory any[] = { HEAP, HEAP, MAPPED, SHARED };

	switch (pick(&own, 6)) {
	case 0:
		if (b->kind != STATIC) {
			block_free(b);
			block_make(b, any[pick(&own, 4)]);
		}
		break;
	case 1:
		if (b->kind == HEAP) {
			check_fill(b->at, 100000, 77);
			b->at = realloc(b->at, b->bytes + 4096 * pick(&own, 300));
			check_same(b->at, 100000, 77, "realloc");
		}
		break;
	case 2:
		if (b->kind == MAPPED) {
			check_fill(b->at, b->bytes, 78);
			madvise(b->at, b->bytes, MADV_DONTNEED);
			check_zero(b->at, b->bytes, "madvise");
		}
		break;
	default:
		break;
	}
}

static char *place(size_t bytes)
{
	struct block *b = &blocks[pick(&own, BLOCKS)];

	return b->at + pick(&own, b->bytes - bytes + 1);
}

static void random_bcast(uint64_t step)
{
	char on_stack[80000], *buf;
	size_t bytes = pick_size();
	int root = (int)pick(&common, size);

	buf = bytes <= sizeof(on_stack) && pick(&own, 2) ? on_stack : place(bytes);
	check_bcast(buf, bytes, root, MPI_COMM_WORLD, step);
}

/* Equal bytes as a strided type on some ranks and contiguous ones on others. */
static void random_strided_bcast(uint64_t step)
{
	size_t words = 1 + pick(&common, MOST / 24);
	int root = (int)pick(&common, size), strided = (int)pick(&own, 2);
	uint64_t *buf = check_alloc(words * 8 * (strided ? 2 : 1)), *plain = check_alloc(words * 8);
	MPI_Datatype t;

	check_fill(plain, words * 8, step);
	MPI_Type_vector((int)words, 1, strided ? 2 : 1, MPI_UINT64_T, &t);
	MPI_Type_commit(&t);
	for (size_t i = 0; i < words; i++)
		buf[i * (strided ? 2 : 1)] = rank == root ? plain[i] : 0;
	MPI_Bcast(buf, 1, t, root, MPI_COMM_WORLD);
	for (size_t i = 0; i < words; i++)
		if (buf[i * (strided ? 2 : 1)] != plain[i]) {
			check_fail("step %lu: word %zu of %zu", (unsigned long)step, i, words);
			break;
		}
	MPI_Type_free(&t);
	free(buf);
	free(plain);
}

static void random_gather(uint64_t step)
{
	size_t bytes = 1 + pick_size() / 2;
	int root = (int)pick(&common, size);
	char *recv = rank == root ? check_alloc(bytes * size) : NULL;

	check_gather(place(bytes), recv, bytes, root, MPI_COMM_WORLD, step);
	free(recv);
}

BEHAVIOUR(random_sequence, 1)
{
	long steps = check_env("HARNESS_STEPS", 60), seed = check_env("HARNESS_SEED", 1);

	common = (uint64_t)seed << 20;
	own = common + ((uint64_t)(rank + 1) << 50);
	for (int i = 0; i < BLOCKS; i++)
		block_make(&blocks[i], i == 0 ? STATIC : i % 2 ? HEAP : i % 4 ? MAPPED : SHARED);
	for (long step = 0; step < steps; step++) {
		uint64_t what = pick(&common, 10);

		disturb();
		if (what < 5)
			random_bcast(step);
		else if (what < 7)
			random_strided_bcast(step);
		else
			random_gather(step);
	}
	for (int i = 0; i < BLOCKS; i++)
		block_free(&blocks[i]);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
