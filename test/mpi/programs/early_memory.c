/* SPDX-License-Identifier: BSD-3-Clause */
/* A program changes the mapping of a buffer right after a collective. */
#include "early.h"

#include <dlfcn.h>
#include <malloc.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static void free_it(struct trial *t)
{
	char *again;

	free(t->block);
	again = check_alloc(t->block_bytes);
	check_fill(again, t->block_bytes, check_seed(1, rank));
	check_same(again, t->block_bytes, check_seed(1, rank), "a block after the free");
	early_sleep_us(500);
	check_same(again, t->block_bytes, check_seed(1, rank), "a block after the free, later");
	free(again);
	t->gone = true;
}

BEHAVIOUR(free_of_the_buffer, 2)
{
	early_trials_with(free_it, NULL, FRESH_HEAP);
	early_trials_with(free_it, NULL, WHOLE_BLOCK);
}

static void calloc_after_free(struct trial *t)
{
	char *again;

	free(t->block);
	again = calloc(1, t->block_bytes);
	early_sleep_us(500);
	check_zero(again, t->block_bytes, "calloc");
	free(again);
	t->gone = true;
}

BEHAVIOUR(calloc_after_the_free, 2)
{
	early_trials_with(calloc_after_free, NULL, FRESH_HEAP);
	early_trials_with(calloc_after_free, NULL, WHOLE_BLOCK);
}

static void realloc_it(struct trial *t)
{
	size_t to = t->index % 2 ? t->block_bytes * 2 : t->block_bytes / 2;
	size_t before = (size_t)(t->buf - (char *)t->block);
	char *again =
		t->index % 3 ? realloc(t->block, to) : reallocarray(t->block, to / 16 + 1, 16);

	early_same(t, again + before, t->want, least(to - before, t->bytes), "realloc");
	free(again);
	t->gone = true;
}

BEHAVIOUR(realloc_of_the_buffer, 2)
{
	early_trials_with(realloc_it, NULL, FRESH_HEAP);
	early_trials_with(realloc_it, NULL, WHOLE_BLOCK);
}

static void unmap_it(struct trial *t)
{
	char *again;

	EXPECT(!munmap(t->block, t->block_bytes));
	again = mmap(t->block, t->block_bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (again == MAP_FAILED) { /* somebody was quicker */
		t->gone = true;
		return;
	}
	check_zero(again, t->block_bytes, "pages mapped after munmap");
	early_sleep_us(500);
	check_zero(again, t->block_bytes, "pages mapped after munmap, later");
	munmap(again, t->block_bytes);
	t->gone = true;
}

BEHAVIOUR(munmap_of_the_buffer, 2)
{
	early_trials_with(unmap_it, NULL, FRESH_MAP);
}

static void unmap_part(struct trial *t)
{
	size_t at = t->block_bytes / 4 / PAGE * PAGE, hole = at;
	char *block = t->block;

	EXPECT(!munmap(block + at, hole));
	early_same(t, t->buf, t->want, at - PAGE, "below the hole");
	early_same(t, block + at + hole, t->want + at + hole - PAGE, t->bytes - at - hole + PAGE,
		   "above the hole");
	EXPECT(mmap(block + at, hole, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == block + at);
	check_zero(block + at, hole, "the hole");
	memset(t->want + at - PAGE, 0, hole);
}

BEHAVIOUR(munmap_of_a_part_of_it, 2)
{
	early_trials_with(unmap_part, NULL, FRESH_MAP);
}

static void map_over(struct trial *t)
{
	size_t at = t->block_bytes / 3 / PAGE * PAGE, bytes = 20 * PAGE;
	char *block = t->block;

	EXPECT(mmap(block + at, bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == block + at);
	memset(t->want + at - PAGE, 0, bytes);
	early_sleep_us(500);
}

BEHAVIOUR(mmap_over_a_part_of_it, 2)
{
	early_trials_with(map_over, NULL, FRESH_MAP);
}

static void remap_it(struct trial *t)
{
	char *moved = mremap(t->block, t->block_bytes, t->block_bytes * 2, MREMAP_MAYMOVE);

	if (moved == MAP_FAILED) {
		check_fail("mremap: %s", strerror(errno));
	} else {
		early_same(t, moved + PAGE, t->want, t->bytes, "mremap");
		check_zero(moved + t->block_bytes, t->block_bytes, "what mremap added");
		munmap(moved, t->block_bytes * 2);
	}
	t->gone = true;
}

BEHAVIOUR(mremap_of_the_buffer, 2)
{
	early_trials_with(remap_it, NULL, FRESH_MAP);
}

static void shrink_it(struct trial *t)
{
	size_t half = t->block_bytes / 2 / PAGE * PAGE;

	EXPECT(mremap(t->block, t->block_bytes, half, 0) == t->block);
	early_same(t, t->buf, t->want, half - PAGE, "what mremap left");
	munmap(t->block, half);
	t->gone = true;
}

BEHAVIOUR(mremap_to_less, 2)
{
	early_trials_with(shrink_it, NULL, FRESH_MAP);
}

static void discard_it(struct trial *t)
{
	size_t at = t->block_bytes / 3 / PAGE * PAGE,
	       bytes = t->index % 2 ? 30 * PAGE : t->block_bytes / 3 / PAGE * PAGE;
	char *block = t->block;

	EXPECT(!madvise(block + at, bytes, MADV_DONTNEED));
	check_zero(block + at, bytes, "MADV_DONTNEED");
	memset(t->want + at - PAGE, 0, bytes);
	early_sleep_us(300);
}

BEHAVIOUR(madvise_dontneed, 2)
{
	early_trials_with(discard_it, NULL, FRESH_MAP);
}

/* By number, as jemalloc does. */
static bool discard_oneself(char *at, size_t bytes)
{
	int self = (int)syscall(434 /* pidfd_open */, getpid(), 0);
	struct iovec v = { at, bytes };
	long done = syscall(440 /* process_madvise */, self, &v, 1L, (long)MADV_DONTNEED, 0L);

	close(self);
	return done == (long)bytes;
}

static void discard_it_oneself(struct trial *t)
{
	size_t at = t->block_bytes / 3 / PAGE * PAGE,
	       bytes = t->index % 2 ? 30 * PAGE : t->block_bytes / 3 / PAGE * PAGE;
	char *block = t->block;

	EXPECT(discard_oneself(block + at, bytes));
	check_zero(block + at, bytes, "process_madvise");
	memset(t->want + at - PAGE, 0, bytes);
}

BEHAVIOUR(process_madvise_of_oneself, 2)
{
	char *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool is_permitted = discard_oneself(page, PAGE);

	munmap(page, PAGE);
	if (is_permitted)
		early_trials_with(discard_it_oneself, NULL, FRESH_MAP);
	else
		check_skip("since Linux 6.13");
}

/* Each page may be lost or not until it is written. */
static void free_by_advice(struct trial *t)
{
	size_t at = t->block_bytes / 3 / PAGE * PAGE, bytes = 30 * PAGE;
	char *block = t->block;

	if (madvise(block + at, bytes, MADV_FREE))
		EXPECT(errno == EINVAL); /* not for every kind of memory */
	memset(block + at, 5, bytes);
	memset(t->want + at - PAGE, 5, bytes);
}

BEHAVIOUR(madvise_free, 2)
{
	early_trials_with(free_by_advice, NULL, FRESH_MAP);
}

static void advise(struct trial *t)
{
	static const int advices[] = { MADV_NORMAL, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_HUGEPAGE,
				       MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_POPULATE_READ,
				       MADV_POPULATE_WRITE, MADV_DODUMP };

	for (int i = 0; i < 9; i++) {
		int advice = advices[(i + t->index) % 9];

		if (madvise(t->block, t->block_bytes, advice) && errno != EINVAL)
			check_fail("madvise %d: %s", advice, strerror(errno));
	}
}

BEHAVIOUR(other_advice, 2)
{
	early_trials_with(advise, NULL, FRESH_MAP);
}

static void protect_it(struct trial *t)
{
	size_t at = t->block_bytes / 3 / PAGE * PAGE;
	char *block = t->block;

	EXPECT(!mprotect(block + at, 20 * PAGE, PROT_READ));
	early_same(t, t->buf, t->want, t->bytes, "read only memory");
	EXPECT(!mprotect(block + at, 20 * PAGE, PROT_NONE));
	EXPECT(!mprotect(block + at, 20 * PAGE, PROT_READ | PROT_WRITE));
	block[at + 3] = 1;
	t->want[at - PAGE + 3] = 1;
}

BEHAVIOUR(mprotect_of_the_buffer, 2)
{
	early_trials_with(protect_it, NULL, FRESH_MAP);
}

static void lock_it(struct trial *t)
{
	if (mlock(t->block, t->block_bytes))
		EXPECT(errno == ENOMEM || errno == EPERM);
	else
		EXPECT(!munlock(t->block, t->block_bytes));
}

BEHAVIOUR(mlock_of_the_buffer, 2)
{
	early_trials_with(lock_it, NULL, FRESH_MAP);
}

static void look_at_it(struct trial *t)
{
	unsigned char *there = check_alloc(t->block_bytes / PAGE);

	EXPECT(!mincore(t->block, t->block_bytes, there));
	EXPECT(malloc_usable_size(there) >= t->block_bytes / PAGE);
	if (msync(t->block, t->block_bytes, MS_SYNC))
		check_fail("msync: %s", strerror(errno));
	free(there);
}

BEHAVIOUR(mincore_and_msync, 2)
{
	early_trials_with(look_at_it, NULL, FRESH_MAP);
}

/* The memory of others comes and goes meanwhile. */
static void other_memory(struct trial *t)
{
	char *blocks[20];

	for (int i = 0; i < 20; i++) {
		blocks[i] = check_alloc((size_t)1000 << (i % 12));
		memset(blocks[i], i, (size_t)1000 << (i % 12));
	}
	for (int i = 0; i < 20; i++) {
		EXPECT(blocks[i][999] == i);
		free(blocks[i]);
	}
	malloc_trim(0);
	munmap(early_map(1 << 20), 1 << 20);
}

BEHAVIOUR(other_memory_comes_and_goes, 2)
{
	early_trials(other_memory);
}

static void load_a_library(struct trial *t)
{
	const char *path = getenv("HARNESS_LIBRARY");
	void *library = dlopen(path ? path : "libm.so.6", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		check_fail("%s", dlerror());
	else
		dlclose(library);
}

BEHAVIOUR(dlopen_and_dlclose, 2)
{
	early_trials(load_a_library);
}

/* ---- kinds of memory --------------------------------------------------------------------- */

static void touch_all(struct trial *t)
{
	uint64_t sum = 0;

	for (size_t at = early_random(t, PAGE); at < t->bytes; at += PAGE)
		sum += (uint8_t)t->buf[at];
	EXPECT(sum || !t->bytes);
}

static void trials_in(char *at, size_t bytes, int seed)
{
	for (int i = 0; i < 4; i++) {
		if (rank == i % size)
			check_fill(at, bytes, check_seed(seed, i));
		else
			memset(at, 0, bytes);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == i / 2 % size)
			early_sleep_us(1500);
		EXPECT(!MPI_Bcast(at, (int)bytes, MPI_BYTE, i % size, MPI_COMM_WORLD));
		check_same(at, bytes, check_seed(seed, i), "broadcast");
	}
}

BEHAVIOUR(on_the_stack, 2)
{
	char here[700000];

	trials_in(here, sizeof(here), 1);
}

BEHAVIOUR(shared_with_a_child, 2)
{
	size_t bytes = 3 << 20;
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	trials_in(at, bytes, 2);
	munmap(at, bytes);
}

BEHAVIOUR(a_mapped_file, 2)
{
	size_t bytes = 3 << 20;
	int fd = memfd_create("file", 0);
	char *at;

	EXPECT(!ftruncate(fd, (off_t)bytes));
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	trials_in(at, bytes, 3);
	munmap(at, bytes);
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	trials_in(at, bytes, 4);
	munmap(at, bytes);
	close(fd);
}

BEHAVIOUR(huge_tlb_pages, 2)
{
	size_t bytes = 4 << 20;
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	int none = at == MAP_FAILED, any = 0;

	MPI_Allreduce(&none, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (!any)
		trials_in(at, bytes, 5);
	else
		check_skip("no huge pages are reserved here");
	if (!none)
		munmap(at, bytes);
}

BEHAVIOUR(transparent_huge_pages, 2)
{
	size_t bytes = 8 << 20;
	char *at = aligned_alloc(2 << 20, bytes);

	madvise(at, bytes, MADV_HUGEPAGE);
	memset(at, 1, bytes);
	trials_in(at, bytes, 6);
	trials_in(at + 12345, bytes - 20000, 7);
	free(at);
}

BEHAVIOUR(memory_of_the_mpi, 2)
{
	size_t bytes = 3 << 20;
	char *at;

	MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &at);
	trials_in(at, bytes, 8);
	MPI_Free_mem(at);
}

/* As malloc() gives them to who has freed nothing yet: a mapping each, sixteen bytes behind whose
 * beginning the block lies. */
BEHAVIOUR(whole_block_of_the_heap, 2)
{
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	early_trials_with(touch_all, NULL, WHOLE_BLOCK);
}

/* In a loop, as programs do: allocated, filled by a broadcast, used, freed. */
BEHAVIOUR(buffers_that_live_for_one_call, 2)
{
	early_trials_with(touch_all, NULL, FRESH_HEAP);
	early_trials_with(touch_all, NULL, FRESH_MAP);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
