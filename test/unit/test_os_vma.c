/* SPDX-License-Identifier: BSD-3-Clause */
/* Each kind of mapping is queried by the ioctl, where the kernel has it, and by text. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "os/os.h"
#include "os/private.h"
#include "unit.h"

/* The ioctl and the text must agree. */
static struct os_vma query(const void *addr)
{
	struct os_vma asked, read;

	CHECK_EQ(os_vma_query(addr, &asked), 0);
	CHECK_EQ(os_vma_scan((uintptr_t)addr, false, &read), 0);
	CHECK(asked.start == read.start && asked.end == read.end);
	CHECK(asked.offset == read.offset && asked.inode == read.inode);
	CHECK(asked.dev_major == read.dev_major && asked.dev_minor == read.dev_minor);
	CHECK_EQ(asked.read, read.read);
	CHECK_EQ(asked.write, read.write);
	CHECK_EQ(asked.exec, read.exec);
	CHECK_EQ(asked.shared, read.shared);
	CHECK_EQ(asked.page_bytes, read.page_bytes);
	CHECK_EQ(asked.is_stack, read.is_stack);
	CHECK_EQ(asked.is_special, read.is_special);
	CHECK(asked.start <= (uintptr_t)addr && (uintptr_t)addr < asked.end);
	return asked;
}

static char *map(uint64_t bytes, int prot, int flags, int fd, off_t offset)
{
	char *p = mmap(NULL, bytes, prot, flags, fd, offset);

	CHECK(p != MAP_FAILED);
	return p;
}

UNIT_TEST(vma_knows_anonymous_memory)
{
	/* a hole before and after, so that the kernel merges nothing */
	char *p = map(6 * OS_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct os_vma v;

	munmap(p, OS_PAGE);
	munmap(p + 5 * OS_PAGE, OS_PAGE);
	mprotect(p + 2 * OS_PAGE, 2 * OS_PAGE, PROT_READ | PROT_WRITE);
	v = query(p + 2 * OS_PAGE + 5);
	CHECK_EQ(v.start, (uintptr_t)p + 2 * OS_PAGE);
	CHECK_EQ(v.end, (uintptr_t)p + 4 * OS_PAGE);
	CHECK(v.read && v.write && !v.exec && !v.shared && !v.inode);
	CHECK(!v.is_stack && !v.is_special);
	CHECK_EQ(v.page_bytes, OS_PAGE);
	v = query(p + 4 * OS_PAGE - 1);
	CHECK_EQ(v.start, (uintptr_t)p + 2 * OS_PAGE);
	v = query(p + OS_PAGE);
	CHECK(!v.read && !v.write);
	CHECK_EQ(os_vma_query(p + 5 * OS_PAGE, &v), -ENOENT);
	CHECK_EQ(os_vma_scan((uintptr_t)p + 5 * OS_PAGE, false, &v), -ENOENT);
	munmap(p, 6 * OS_PAGE);
}

UNIT_TEST(vma_knows_that_nothing_is_mapped)
{
	struct os_vma v = { .inode = 77 };

	CHECK_EQ(os_vma_query(NULL, &v), -ENOENT);
	CHECK_EQ(os_vma_scan(0, false, &v), -ENOENT);
	CHECK_EQ(os_vma_query((void *)0x7fffffffe000, &v), -ENOENT);
	CHECK_EQ(v.inode, 77); /* outputs are written on success only */
}

UNIT_TEST(vma_next_is_the_first_mapping_above_a_hole)
{
	char *p = map(4 * OS_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct os_vma asked, read;

	mprotect(p + 2 * OS_PAGE, OS_PAGE, PROT_READ);
	munmap(p, 2 * OS_PAGE);
	for (uint64_t at = 0; at < 3 * OS_PAGE; at += OS_PAGE) {
		CHECK_EQ(os_vma_query_next(p + at, &asked), 0);
		CHECK_EQ(os_vma_scan((uintptr_t)p + at, true, &read), 0);
		CHECK_EQ(asked.start, (uintptr_t)p + 2 * OS_PAGE);
		CHECK_EQ(asked.end, (uintptr_t)p + 3 * OS_PAGE);
		CHECK(read.start == asked.start && read.end == asked.end);
		CHECK(asked.read && read.read && !asked.is_special && !read.is_special);
	}
	munmap(p, 4 * OS_PAGE);
	CHECK_EQ(os_vma_query_next((void *)~(uintptr_t)0xfff, &asked), -ENOENT);
	CHECK_EQ(os_vma_scan(~(uintptr_t)0xfff, true, &read), -ENOENT);
}

UNIT_TEST(vma_knows_shared_and_private_files)
{
	int fd = memfd_create("unit", MFD_CLOEXEC);
	struct stat st;
	struct os_vma v;
	char *p;

	CHECK(fd >= 0 && !ftruncate(fd, 8 * OS_PAGE) && !fstat(fd, &st));
	p = map(2 * OS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 3 * OS_PAGE);
	v = query(p + OS_PAGE);
	munmap(p, 2 * OS_PAGE);
	CHECK(v.shared && v.write && v.inode == st.st_ino);
	CHECK_EQ(v.offset, 3 * OS_PAGE);
	CHECK_EQ(v.dev_major, major(st.st_dev));
	CHECK_EQ(v.dev_minor, minor(st.st_dev));
	CHECK_EQ(v.page_bytes, OS_PAGE);
	p = map(2 * OS_PAGE, PROT_READ, MAP_PRIVATE, fd, OS_PAGE);
	v = query(p);
	munmap(p, 2 * OS_PAGE);
	close(fd);
	CHECK(!v.shared && !v.write && v.inode == st.st_ino);
	CHECK_EQ(v.offset, OS_PAGE);
}

UNIT_TEST(vma_knows_shared_anonymous_memory)
{
	char *p = map(OS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct os_vma v = query(p);

	munmap(p, OS_PAGE);
	CHECK(v.shared && v.inode && !v.is_special);
}

UNIT_TEST(vma_knows_code_and_static_data)
{
	static int data = 1;
	struct os_vma v = query((const void *)(uintptr_t)query);

	CHECK(v.exec && v.inode && !v.write);
	v = query(&data);
	CHECK(v.write && !v.exec && !v.shared && !v.is_special);
}

UNIT_TEST(vma_knows_the_heap)
{
	struct os_vma v;
	void *p = sbrk(0);

	if (os_vma_query((char *)p - 1, &v))
		unit_skip("there is no heap");
	v = query((char *)p - 1);
	CHECK(!v.is_special && !v.is_stack && v.write && !v.inode);
}

UNIT_TEST(vma_knows_the_stack)
{
	int here = 0;
	struct os_vma v = query(&here);

	CHECK(v.is_stack && v.write && !v.inode);
}

UNIT_TEST(vma_knows_what_the_kernel_mapped)
{
	const void *vdso = (const void *)getauxval(AT_SYSINFO_EHDR);

	if (!vdso)
		unit_skip("there is no vdso");
	struct os_vma v = query(vdso);
	CHECK(v.is_special && !v.is_stack && !v.inode);
}

UNIT_TEST(vma_knows_huge_pages)
{
	char *p = mmap(NULL, OS_HUGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		unit_skip("this kernel gives no hugetlb mappings");
	struct os_vma v = query(p); /* never touched: no free huge page is needed */
	munmap(p, OS_HUGE);
	CHECK_EQ(v.page_bytes, OS_HUGE);
	CHECK(v.inode);
}

UNIT_TEST(vma_text_knows_the_page_size_of_aligned_files)
{
	int fd = memfd_create("unit", MFD_CLOEXEC);
	char *hole = map(2 * OS_HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *p = (char *)base_round_up((uintptr_t)hole, OS_HUGE);
	struct os_vma v;

	CHECK(fd >= 0 && !ftruncate(fd, (off_t)OS_HUGE));
	CHECK(mmap(p, OS_HUGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) == p);
	close(fd);
	CHECK_EQ(os_vma_scan((uintptr_t)p, false, &v), 0); /* reads smaps */
	munmap(hole, 2 * OS_HUGE);
	CHECK_EQ(v.page_bytes, OS_PAGE);
}

/* One mapping exists only in the child, another only in the parent. */
static void child_sees_itself(void *arg)
{
	char *parents = arg;
	struct os_vma v;
	char *p;

	munmap(parents, 4 * OS_PAGE);
	CHECK_EQ(os_vma_query(parents, &v), -ENOENT);
	p = map(OS_PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	v = query(p);
	CHECK(v.shared && v.read && !v.write);
	/* a grandchild */
	if (parents) {
		munmap(p, OS_PAGE);
		CHECK_EQ(unit_fork(child_sees_itself, NULL), 0);
	}
}

UNIT_TEST(vma_answers_for_the_child_after_fork)
{
	char *p = map(4 * OS_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	query(p);
	CHECK_EQ(unit_fork(child_sees_itself, p), 0);
	query(p);
	munmap(p, 4 * OS_PAGE);
}

static int count_fds(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void child_has_no_more_fds(void *arg)
{
	int here = 0;

	query(&here);
	CHECK_EQ(count_fds(), *(int *)arg);
}

UNIT_TEST(vma_leaks_no_descriptor_into_a_child)
{
	int here = 0, before;

	query(&here);
	before = count_fds();
	CHECK_EQ(unit_fork(child_has_no_more_fds, &before), 0);
}

static void all_fds_closed(void *arg)
{
	int here = 0, zero;

	query(&here);
	for (int fd = 0; fd < 1024; fd++)
		if (fd != STDOUT_FILENO)
			close(fd);
	CHECK(query(&here).is_stack);
	zero = open("/dev/null", O_RDONLY);
	CHECK_EQ(zero, 0); /* the numbers of the standard streams stay free for the program */
	CHECK(query(&here).is_stack);
}

UNIT_TEST(vma_survives_a_program_that_closes_everything)
{
	CHECK_EQ(unit_fork(all_fds_closed, NULL), 0);
}

/* The descriptor number now refers to the maps of another process: without the check its answers
 * would be wrong, not errors. */
static void fds_replaced(void *arg)
{
	char path[64], *p;
	struct os_vma v;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)getppid());
	query(path);
	for (int fd = 3; fd < 64; fd++)
		close(fd);
	while (open(path, O_RDONLY | O_CLOEXEC) < 63)
		;
	munmap(arg, OS_PAGE);
	CHECK_EQ(os_vma_query(arg, &v), -ENOENT);
	p = map(OS_PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(query(p).shared);
	for (int fd = 3; fd < 63; fd++)
		CHECK(fcntl(fd, F_GETFD) >= 0); /* the program's descriptor must stay open */
}

UNIT_TEST(vma_is_not_fooled_by_a_reused_descriptor)
{
	char *p = map(OS_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK_EQ(unit_fork(fds_replaced, p), 0);
	munmap(p, OS_PAGE);
}

static void *query_many(void *arg)
{
	struct os_vma v;
	uintptr_t wrong = 0;

	for (int i = 0; i < 2000; i++)
		wrong += os_vma_query(arg, &v) || v.start > (uintptr_t)arg ||
			 v.end <= (uintptr_t)arg;
	return (void *)wrong;
}

UNIT_TEST(vma_may_be_asked_by_many_threads)
{
	pthread_t threads[4];
	uintptr_t wrong = 0;

	for (int i = 0; i < 4; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, query_many, &wrong), 0);
	for (int i = 0; i < 4; i++) {
		void *result;

		pthread_join(threads[i], &result);
		wrong += (uintptr_t)result;
	}
	CHECK_EQ(wrong, 0);
}
