/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that region/ takes: a job has little more than its program needs. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "region_case.h"
#include "region_stats.h"

enum { LONG = 80 << 20, SLACK = 2 << 20 };

/* The most bytes of the arena and of populated private memory at a time. */
static struct {
	int (*madvise)(void *, size_t, int);
	uint64_t populated, most;
} watched;

static int watch(void *addr, size_t bytes, int advice)
{
	int ret = watched.madvise(addr, bytes, advice);
	char *base = region_arena_base();

	if (advice == MADV_POPULATE_WRITE &&
	    ((char *)addr < base || (char *)addr >= base + region_arena_bytes()))
		watched.populated += bytes;
	watched.most = base_max_u64(watched.most, arena_file_bytes() + watched.populated);
	return ret;
}

static char *long_region(void)
{
	char *p = pages_get(LONG);

	fill(p, LONG, 1);
	ADOPT(p, LONG);
	CHECK(arena_file_bytes() >= LONG);
	watched.madvise = region_os.madvise;
	region_os.madvise = watch;
	return p;
}

static void fork_case(bool is_read)
{
	char *p;
	pid_t pid;
	int status;

	region_begin(NULL, NULL);
	if (is_read)
		region_set_read_by_peers();
	p = long_region();
	pid = fork();
	if (!pid)
		_exit(0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(watched.populated >= LONG - SLACK);
	CHECK(watched.most <= LONG + PAGES_PIECE_BYTES + SLACK);
	CHECK(!is_shared(p));
	CHECK_FILLED(p, LONG, 1);
	CHECK(arena_file_bytes() <= PAGES_PIECE_BYTES + SLACK);
}

REGION_TEST(fork_needs_no_second_copy_of_a_long_region) { fork_case(false); }
REGION_TEST(fork_needs_no_second_copy_of_a_region_that_peers_read) { fork_case(true); }

REGION_TEST(a_region_that_moves_needs_no_second_copy)
{
	char *p;

	region_begin(NULL, NULL);
	p = long_region();
	p = mremap(p, LONG, LONG + 64 * MIB, MREMAP_MAYMOVE);
	CHECK(p != MAP_FAILED);
	CHECK(watched.most <= LONG + PAGES_PIECE_BYTES + SLACK);
	CHECK_FILLED(p, LONG, 1);
	/* one mapping, as before */
	CHECK(mremap(p, LONG + 64 * MIB, LONG + 128 * MIB, MREMAP_MAYMOVE) != MAP_FAILED);
}

REGION_TEST(the_pool_is_a_small_part_of_the_memory_of_a_rank)
{
	uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * PAGE;
	struct region_stats s;
	char ranks[24], *p;

	/* 512 MiB for a rank */
	snprintf(ranks, sizeof ranks, "%" PRIu64, (all + 512 * MIB - 1) / (512 * MIB));
	CHECK_EQ(setenv("MPI_LOCALNRANKS", ranks, 1), 0);
	region_begin(NULL, NULL);
	p = pages_get(LONG);
	fill(p, LONG, 1);
	ADOPT(p, LONG);
	munmap(p, LONG);
	region_get_stats(&s);
	CHECK(s.pool_bytes <= 8 * MIB);
	CHECK(arena_file_bytes() <= 8 * MIB + SLACK);
}

REGION_TEST(arenas_of_many_ranks_take_little_of_a_limited_address_space)
{
	struct rlimit r = { 16 * 1024 * MIB, 16 * 1024 * MIB };

	CHECK_EQ(setenv("MPI_LOCALNRANKS", "16", 1), 0);
	CHECK_EQ(setrlimit(RLIMIT_AS, &r), 0);
	region_begin("SLUICE_REGION_ARENA=64G", NULL);
	CHECK(16 * region_arena_bytes() <= 2 * 1024 * MIB);
	ADOPT(pages_get(MIB), MIB);
}

static uint64_t address_space(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	CHECK(f && fscanf(f, "%lu", &pages) == 1);
	fclose(f);
	return pages * PAGE;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* whose realloc() copies */
REGION_TEST(realloc_needs_no_second_copy_of_a_large_block)
{
	struct rlimit few;
	char *p;

	region_begin(NULL, NULL);
	p = block_get(LONG);
	fill(p, LONG, 2);
	ADOPT(p, LONG);
	few.rlim_cur = few.rlim_max = address_space() + LONG / 2;
	CHECK_EQ(setrlimit(RLIMIT_AS, &few), 0);
	p = realloc(p, LONG + 16 * MIB);
	CHECK(p);
	CHECK_FILLED(p, LONG, 2);
	CHECK(!is_shared(p + PAGE) && active() == 0);
	p = realloc(p, 17 * MIB);
	CHECK(p);
	free(p);
}
#endif
