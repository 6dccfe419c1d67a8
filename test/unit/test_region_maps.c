/* SPDX-License-Identifier: BSD-3-Clause */
/* munmap, mmap, mremap and brk on mappings with adopted memory. */
#include <sys/shm.h>
#include <sys/syscall.h>

#include "region_case.h"

enum { RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

REGION_TEST(munmap_of_the_whole_frees_the_region)
{
	struct region_desc d;
	char *p;

	region_begin("SLUICE_TEST=region_pool=0", NULL);
	p = middle_adopted(&d);
	CHECK_EQ(munmap(p, 4 * MIB), 0);
	CHECK_EQ(active(), 0);
	CHECK(!is_mapped(p + 2 * MIB));
	CHECK_EQ(arena_file_bytes(), 0);
}

static void munmap_part(size_t from, size_t to)
{
	char *p = middle_adopted(NULL);
	uint32_t before = active();

	CHECK_EQ(munmap(p + from, to - from), 0);
	CHECK_EQ(active(), before - 1);
	CHECK(!is_mapped(p + from) && !is_mapped(p + to - PAGE));
	check_middle(p, 0, from);
	check_middle(p, to, 4 * MIB);
	CHECK(!is_shared(p + MIB) && !is_shared(p + 3 * MIB - PAGE));
	reuse_the_arena(2 * MIB);
	check_middle(p, 0, from);
	check_middle(p, to, 4 * MIB);
	/* what is mapped there next is the program's own, whatever the region was */
	CHECK(mmap(p + from, to - from, RW, ANON | MAP_FIXED, -1, 0) == p + from);
	CHECK_ZERO(p + from, to - from);
	memset(p + from, 9, to - from);
	check_middle(p, 0, from);
	check_middle(p, to, 4 * MIB);
	munmap(p, 4 * MIB);
}

REGION_TEST(munmap_of_a_part_keeps_the_rest)
{
	region_begin(NULL, NULL);
	munmap_part(0, 2 * MIB);                       /* the beginning */
	munmap_part(MIB + 512 * KIB, 2 * MIB);         /* inside */
	munmap_part(2 * MIB, 4 * MIB);                 /* the end */
	munmap_part(MIB, MIB + PAGE);                  /* first page */
	munmap_part(3 * MIB - PAGE, 3 * MIB);          /* last page */
	munmap_part(MIB, 3 * MIB);                     /* all of it, nothing else */
}

REGION_TEST(a_munmap_that_fails_changes_nothing)
{
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	errno = 0;
	CHECK_EQ(munmap(p + 1, 4 * MIB - 1), -1);
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(munmap(p + MIB, 0), -1);
	reuse_the_arena(2 * MIB);
	check_middle(p, 0, 4 * MIB);
	CHECK(is_adopted(p + MIB, 2 * MIB));
}

REGION_TEST(mmap_fixed_over_the_whole_replaces_the_region)
{
	struct region_desc d;
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(&d);
	CHECK(mmap(p, 4 * MIB, RW, ANON | MAP_FIXED, -1, 0) == p);
	CHECK_EQ(active(), 0);
	CHECK_ZERO(p, 4 * MIB);
	memset(peer_view(&d), 1, 2 * MIB);
	CHECK_ZERO(p, 4 * MIB);
}

REGION_TEST(mmap_fixed_over_a_part_keeps_the_rest)
{
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	CHECK(mmap(p + 2 * MIB, 2 * MIB, RW, ANON | MAP_FIXED, -1, 0) == p + 2 * MIB);
	CHECK_ZERO(p + 2 * MIB, 2 * MIB);
	check_middle(p, 0, 2 * MIB);
	reuse_the_arena(2 * MIB);
	check_middle(p, 0, 2 * MIB);
	CHECK_ZERO(p + 2 * MIB, 2 * MIB);
	/* MAP_FIXED_NOREPLACE replaces nothing */
	p = middle_adopted(NULL);
	CHECK(mmap(p + MIB, MIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED);
	CHECK(is_adopted(p + MIB, 2 * MIB));
}

REGION_TEST(an_mmap_that_fails_changes_nothing)
{
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	CHECK(mmap(p, 4 * MIB, RW, MAP_PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED);
	CHECK_EQ(errno, EBADF);
	reuse_the_arena(2 * MIB);
	check_middle(p, 0, 4 * MIB);
	/* still ours to give back */
	CHECK_EQ(munmap(p, 4 * MIB), 0);
	CHECK_EQ(active(), 1);
}

/* The program's own shared mapping now lies where a part of a region was. */
REGION_TEST(a_mapping_in_the_place_of_a_part_is_the_programs_alone)
{
	int fd = memfd_create("other", MFD_CLOEXEC);
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	CHECK_EQ(ftruncate(fd, 2 * MIB), 0);
	CHECK(mmap(p + 2 * MIB, 2 * MIB, RW, MAP_SHARED | MAP_FIXED, fd, 0) == p + 2 * MIB);
	memset(p + 2 * MIB, 7, 2 * MIB);
	CHECK_EQ(madvise(p + 2 * MIB, MIB, MADV_DONTNEED), 0); /* of a file: it is read again */
	CHECK_EQ(p[2 * MIB], 7);
	CHECK_EQ(madvise(p, 4 * MIB, MADV_DONTNEED), 0);
	CHECK_EQ(p[3 * MIB], 7);
	CHECK_ZERO(p, 2 * MIB);
	region_return((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	region_return_exclusive((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	p[2 * MIB] = 8;
	CHECK_EQ(*(char *)mmap(NULL, PAGE, RW, MAP_SHARED, fd, 0), 8);
	close(fd);
}

/* ---- mremap ------------------------------------------------------------------------------ */

REGION_TEST(mremap_of_a_larger_mapping_moves_all_of_it)
{
	char *p, *q;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	q = mremap(p, 4 * MIB, 64 * MIB, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED);
	check_middle(q, 0, 4 * MIB);
	CHECK_ZERO(q + 4 * MIB, 60 * MIB);
	CHECK_EQ(active(), 0);
	CHECK(!is_shared(q + 2 * MIB));
	reuse_the_arena(2 * MIB);
	check_middle(q, 0, 4 * MIB);
}

REGION_TEST(mremap_of_a_large_region_moves_all_of_it)
{
	char *p, *q;

	region_begin(NULL, NULL);
	p = pages_get_aligned(16 * MIB, 2 * MIB);
	fill(p, 16 * MIB, 2);
	ADOPT(p + PAGE,
	      16 * MIB - 2 * PAGE); /* huge pages come back as huge pages, in one mapping */
	q = mremap(p, 16 * MIB, 64 * MIB, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED);
	CHECK_FILLED(q, 16 * MIB, 2);
}

REGION_TEST(mremap_of_private_leftovers_moves_all_of_it)
{
	char *p, *q;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	region_return((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	q = mremap(p, 4 * MIB, 64 * MIB, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED);
	check_middle(q, 0, 4 * MIB);
	reuse_the_arena(2 * MIB);
	check_middle(q, 0, 4 * MIB);
}

REGION_TEST(mremap_of_advised_memory_moves_all_of_it)
{
	char *p, *q;

	region_begin(NULL, NULL);
	p = pages_get_aligned(4 * MIB, 2 * MIB);
	madvise(p, 4 * MIB, MADV_HUGEPAGE); /* a flag that its replacement lacks */
	fill(p, 4 * MIB, 1);
	ADOPT(p + MIB, 2 * MIB);
	q = mremap(p, 4 * MIB, 64 * MIB, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED);
	check_middle(q, 0, 4 * MIB);
}

REGION_TEST(mremap_grows_in_place_where_there_is_room)
{
	char *p, *q;

	region_begin(NULL, NULL);
	p = mmap(NULL, 16 * MIB, RW, ANON, -1, 0);
	munmap(p + 4 * MIB, 12 * MIB);
	fill(p, 4 * MIB, 1);
	ADOPT(p, 4 * MIB);
	q = mremap(p, 4 * MIB, 8 * MIB, 0);
	CHECK(q == p);
	check_middle(p, 0, 4 * MIB);
	CHECK_ZERO(p + 4 * MIB, 4 * MIB);
	/* and fails where there is none */
	CHECK(mmap(p + 8 * MIB, PAGE, PROT_NONE, ANON | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED);
	ADOPT(p, 4 * MIB);
	CHECK(mremap(p, 8 * MIB, 9 * MIB, 0) == MAP_FAILED);
	CHECK_EQ(errno, ENOMEM);
	check_middle(p, 0, 4 * MIB);
}

REGION_TEST(mremap_shrinks)
{
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	CHECK(mremap(p, 4 * MIB, 2 * MIB, 0) == p);
	CHECK(!is_mapped(p + 2 * MIB));
	check_middle(p, 0, 2 * MIB);
	reuse_the_arena(2 * MIB);
	check_middle(p, 0, 2 * MIB);
}

REGION_TEST(mremap_that_unmaps_nothing_leaves_zeros)
{
	static const size_t ends[][2] = { { 0, 4 * MIB }, { MIB, 3 * MIB }, { 0, 2 * MIB },
					  { 2 * MIB, 4 * MIB } };

	region_begin(NULL, NULL);
	region_set_read_by_peers();
	for (size_t i = 0; i < BASE_ARRAY_LEN(ends); i++) {
		size_t from = ends[i][0], bytes = ends[i][1] - from;
		char *p = middle_adopted(NULL), *q, *all = pages_get(4 * MIB);

		memcpy(all, p, 4 * MIB);
		q = mremap(p + from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
		if (q == MAP_FAILED)
			unit_skip("the kernel has no MREMAP_DONTUNMAP");
		CHECK(q != p + from && !memcmp(q, all + from, bytes));
		CHECK_ZERO(p + from, bytes);
		check_middle(p, 0, from);
		check_middle(p, from + bytes, 4 * MIB);
		munmap(p, 4 * MIB);
		munmap(q, bytes);
		munmap(all, 4 * MIB);
	}
}

REGION_TEST(mremap_onto_a_region_replaces_it)
{
	char *p, *q = pages_get_aligned(4 * MIB, 2 * MIB);

	region_begin(NULL, NULL);
	fill(q, 4 * MIB, 5);
	p = middle_adopted(NULL);
	CHECK(mremap(q, 4 * MIB, 4 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p);
	CHECK_FILLED(p, 4 * MIB, 5);
	CHECK_EQ(active(), 0);
	reuse_the_arena(2 * MIB);
	CHECK_FILLED(p, 4 * MIB, 5);
	CHECK(!is_mapped(q));
}

REGION_TEST(an_mremap_that_fails_changes_nothing)
{
	char *p, *q;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	q = pages_get(4 * MIB);
	CHECK(mremap(q + 1, 4 * MIB, 4 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, p) == MAP_FAILED);
	CHECK_EQ(errno, EINVAL);
	reuse_the_arena(2 * MIB);
	check_middle(p, 0, 4 * MIB);
	CHECK(mremap(p + 1, MIB, 2 * MIB, MREMAP_MAYMOVE) == MAP_FAILED);
	check_middle(p, 0, 4 * MIB);
}

/* ---- the heap's end ---------------------------------------------------------------------- */

REGION_TEST(an_mremap_over_a_hole_fails_as_ever)
{
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	munmap(p + 3 * MIB, MIB / 2);
	errno = 0;
	CHECK(mremap(p + 2 * MIB, 2 * MIB, 4 * MIB, MREMAP_MAYMOVE) == MAP_FAILED);
	CHECK_EQ(errno, EFAULT);
	check_middle(p, 0, 3 * MIB);
}

REGION_TEST(brk_and_sbrk_give_their_memory_back)
{
	char *p, *low;

	region_begin("SLUICE_TEST=region_pool=0", NULL);
	low = sbrk(0);
	p = (char *)base_round_up((uintptr_t)low, PAGE);
	CHECK(sbrk(p + 4 * MIB - low) == low);
	fill(p, 4 * MIB, 1);
	ADOPT(p, 4 * MIB);
	CHECK(sbrk(-(intptr_t)MIB) != (void *)-1);
	CHECK_EQ(active(), 0);
	check_middle(p, 0, 3 * MIB);
	reuse_the_arena(4 * MIB);
	check_middle(p, 0, 3 * MIB);
	CHECK(sbrk(MIB) != (void *)-1);
	CHECK_ZERO(p + 3 * MIB, MIB);
	ADOPT(p + MIB, 3 * MIB);
	CHECK_EQ(brk(p), 0);
	CHECK(!is_mapped(p));
	CHECK_EQ(active(), 1);
	CHECK(sbrk(4 * MIB) != (void *)-1);
	CHECK_ZERO(p, 4 * MIB);
}

/* ---- changes without a hook -------------------------------------------------------------- */

static void behind_our_back(void (*change)(char *p))
{
	char *p = middle_adopted(NULL);

	change(p);
	CHECK(!is_adopted(p + MIB, 2 * MIB));
	memset(p + MIB, 6, 2 * MIB);
	reuse_the_arena(2 * MIB);
	for (size_t i = MIB; i < 3 * MIB; i++)
		CHECK(p[i] == 6);
	ADOPT(p + MIB, 2 * MIB);
	for (size_t i = MIB; i < 3 * MIB; i++)
		CHECK(p[i] == 6);
	/* every shared part is private before it is given away */
	region_return((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	for (char *a = p; a < p + 4 * MIB; a += PAGE)
		CHECK(!is_shared(a));
}

static void raw_replace(char *p)
{
	syscall(SYS_mmap, p, 4 * MIB, RW, ANON | MAP_FIXED, -1, 0l);
}

static void raw_replace_part(char *p)
{
	syscall(SYS_mmap, p + 2 * MIB, PAGE, RW, ANON | MAP_FIXED, -1, 0l);
}

static void raw_unmap_and_map(char *p)
{
	syscall(SYS_munmap, p + MIB, 2 * MIB);
	CHECK(mmap(p + MIB, 2 * MIB, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == p + MIB);
}

REGION_TEST(changes_by_raw_system_calls_are_noticed)
{
	if (!os_vma_query_is_cheap())
		unit_skip("this kernel cannot be asked about a mapping");
	region_begin(NULL, NULL);
	behind_our_back(raw_replace);
	behind_our_back(raw_replace_part);
	behind_our_back(raw_unmap_and_map);
}

static void check_read_only(const char *p)
{
	struct os_vma v;

	CHECK_EQ(os_vma_query(p, &v), 0);
	CHECK(v.read && !v.write && !v.shared);
}

REGION_TEST(protection_set_unseen_stays)
{
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	syscall(SYS_mprotect, p + 2 * MIB, MIB, PROT_READ);
	region_return((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	check_read_only(p + 2 * MIB);
	check_middle(p, 0, 4 * MIB);
	region_return_exclusive((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	check_read_only(p + 2 * MIB);
	check_middle(p, 0, 4 * MIB);
	p = middle_adopted(NULL);
	syscall(SYS_mprotect, p + 2 * MIB, MIB, PROT_READ);
	region_return_exclusive((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	check_read_only(p + 2 * MIB);
	check_middle(p, 0, 4 * MIB);
}

/* The program's own shared file lies there now; whatever ends a region leaves it alone. */
REGION_TEST(a_file_mapped_unseen_is_left_alone)
{
	void (*const ends[])(uintptr_t, uintptr_t) = { region_drop, region_return,
						       region_return_exclusive,
						       region_discard };
	int fd = memfd_create("mine", MFD_CLOEXEC);
	long got;

	region_begin(NULL, NULL);
	CHECK_EQ(ftruncate(fd, 2 * MIB), 0);
	for (unsigned i = 0; i < BASE_ARRAY_LEN(ends); i++) {
		char *p = middle_adopted(NULL), *file;

		got = syscall(SYS_mmap, p + MIB, 2 * MIB, RW, MAP_SHARED | MAP_FIXED, fd, 0l);
		CHECK(got == (long)(p + MIB));
		memset(p + MIB, 5, 2 * MIB);
		ends[i]((uintptr_t)p, (uintptr_t)p + 4 * MIB);
		CHECK_EQ(p[MIB], 5);
		file = mmap(NULL, PAGE, RW, MAP_SHARED, fd, MIB);
		file[0] = 6;
		CHECK_EQ(p[2 * MIB], 6);
	}
	close(fd);
}

/* The parts of a region that is cut in the middle stay private memory, also when the C library
 * discards one without a hook and the arena is reused. */
REGION_TEST(a_forgotten_rest_never_shows_others_data)
{
	char *p;

	region_begin("SLUICE_REGION_ARENA=64M", NULL);
	p = middle_adopted(NULL);
	CHECK_EQ(munmap(p + 2 * MIB, MIB / 2), 0); /* the rest above is the smaller one */
	CHECK_EQ(munmap(p, 2 * MIB), 0);
	for (int i = 0; i < 8; i++)
		reuse_the_arena(2 * MIB);
	check_middle(p, 2 * MIB + MIB / 2, 4 * MIB);
	syscall(SYS_madvise, p + 2 * MIB + MIB / 2, MIB / 2, MADV_DONTNEED);
	CHECK_ZERO(p + 2 * MIB + MIB / 2, MIB / 2);
}

REGION_TEST(both_rests_are_emptied_and_leave_nothing)
{
	uint64_t before;

	region_begin("SLUICE_TEST=region_pool=0", NULL);
	region_set_read_by_peers();
	before = arena_file_bytes();
	for (size_t at = MIB; at < 4 * MIB; at += MIB) {
		char *p = middle_adopted(NULL);

		CHECK_EQ(munmap(p + at, MIB / 2), 0);
		check_middle(p, 0, at);
		CHECK_EQ(madvise(p, at, MADV_DONTNEED), 0);
		CHECK_ZERO(p, at);
		check_middle(p, at + MIB / 2, 4 * MIB);
		CHECK_EQ(madvise(p + at + MIB / 2, 7 * MIB / 2 - at, MADV_DONTNEED), 0);
		CHECK_ZERO(p + at + MIB / 2, 7 * MIB / 2 - at);
		munmap(p, 4 * MIB);
		CHECK_EQ(arena_file_bytes(), before);
	}
}

REGION_TEST(a_remembered_rest_can_be_made_anonymous)
{
	char *p;

	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	CHECK_EQ(munmap(p, 2 * MIB), 0);
	region_return_exclusive((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	CHECK(is_anonymous(p + 2 * MIB) && is_anonymous(p + 3 * MIB - PAGE));
	check_middle(p, 2 * MIB, 4 * MIB);
	p = middle_adopted(NULL);
	CHECK_EQ(munmap(p + 2 * MIB, 2 * MIB), 0);
	region_return_exclusive((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	CHECK(is_anonymous(p + MIB) && is_anonymous(p + 2 * MIB - PAGE));
	check_middle(p, 0, 2 * MIB);
}

REGION_TEST(a_region_unmapped_unseen_can_be_dropped)
{
	char *p;

	if (!os_vma_query_is_cheap())
		unit_skip("this kernel cannot be asked about a mapping");
	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	syscall(SYS_munmap, p, 4 * MIB);
	region_drop((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	CHECK(!is_mapped(p + 2 * MIB)); /* nothing is mapped where the program has nothing */
	p = middle_adopted(NULL);
	syscall(SYS_munmap, p, 4 * MIB);
	region_return((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	CHECK(!is_mapped(p + 2 * MIB));
	p = middle_adopted(NULL);
	syscall(SYS_munmap, p, 4 * MIB);
	region_return_exclusive((uintptr_t)p, (uintptr_t)p + 4 * MIB);
	CHECK(!is_mapped(p + 2 * MIB));
}

REGION_TEST(shmat_over_a_region_replaces_it)
{
	int id = shmget(IPC_PRIVATE, 2 * MIB, IPC_CREAT | 0600);
	char *p;

	if (id < 0)
		unit_skip("no System V shared memory here");
	region_begin(NULL, NULL);
	p = middle_adopted(NULL);
	CHECK(shmat(id, p + MIB, SHM_REMAP) == p + MIB);
	shmctl(id, IPC_RMID, NULL);
	CHECK_EQ(active(), 0);
	memset(p + MIB, 2, 2 * MIB);
	reuse_the_arena(2 * MIB);
	CHECK_EQ(p[2 * MIB], 2);
	CHECK_EQ(shmdt(p + MIB), 0);
}
