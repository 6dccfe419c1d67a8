/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A program changes memory that peers can address, and must see afterwards what it would
 * see if Sluice were not there. Each behaviour is one rule of adoption.
 */
#include "adopt.h"

#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const size_t sizes[] = { 100000, 1 << 20, (5 << 20) + 777 };
enum { SIZES = 3 };

static char *map_pages(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		MPI_Abort(MPI_COMM_WORLD, 3);
	return p;
}

static void barrier(void)
{
	MPI_Barrier(MPI_COMM_WORLD);
}

/* A block got after the free belongs to its rank alone. */
BEHAVIOUR(malloc_after_free_is_private, 2)
{
	for (int s = 0; s < SIZES; s++) {
		char *buf = adopted_heap(sizes[s], 1);

		free(buf);
		buf = check_alloc(sizes[s]);
		check_fill(buf, sizes[s], 50 + rank);
		barrier();
		check_same(buf, sizes[s], 50 + rank, "new block");
		barrier();
		free(buf);
	}
}

BEHAVIOUR(calloc_after_free_is_zero, 2)
{
	for (int s = 0; s < SIZES; s++) {
		for (int i = 0; i < 4; i++) {
			char *buf = adopted_heap(sizes[s], 2 + i), *again;

			free(buf);
			again = calloc(1, sizes[s]);
			check_zero(again, sizes[s], "calloc");
			check_fill(again, sizes[s], 60 + rank);
			barrier();
			check_same(again, sizes[s], 60 + rank, "calloc's block");
			free(again);
		}
	}
}

BEHAVIOUR(realloc_keeps_contents, 2)
{
	for (int s = 0; s < SIZES; s++) {
		size_t bytes = sizes[s];
		char *buf = adopted_heap(bytes, 3);

		buf = realloc(buf, bytes * 3);
		check_same(buf, bytes, 3 + rank, "grown");
		check_bcast(buf, bytes * 3, 0, MPI_COMM_WORLD, 5);
		use_until_adopted(buf, bytes * 3, 6);
		buf = realloc(buf, bytes / 3);
		check_same(buf, bytes / 3, 6 + rank, "shrunk");
		use_until_adopted(buf, bytes / 3, 7);
		buf = reallocarray(buf, bytes, 2);
		check_same(buf, bytes / 3, 7 + rank, "reallocarray");
		EXPECT(realloc(buf, 0) == NULL);
	}
}

BEHAVIOUR(aligned_blocks, 2)
{
	for (int s = 0; s < SIZES; s++) {
		void *buf = NULL;

		EXPECT(!posix_memalign(&buf, 4096, sizes[s]));
		use_until_adopted(buf, sizes[s], 4);
		check_same(buf, sizes[s], 4 + rank, "posix_memalign");
		free(buf);
		buf = aligned_alloc(2 << 20, 4 << 20);
		use_until_adopted(buf, 4 << 20, 4);
		check_same(buf, 4 << 20, 4 + rank, "aligned_alloc");
		free(buf);
	}
}

BEHAVIOUR(mmap_after_munmap_is_zero_and_private, 2)
{
	for (int s = 0; s < SIZES; s++) {
		char *buf = map_pages(sizes[s]), *again;

		use_until_adopted(buf, sizes[s], 8);
		EXPECT(!munmap(buf, sizes[s]));
		again = mmap(buf, sizes[s], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
		check_zero(again, sizes[s], "mapped again");
		check_fill(again, sizes[s], 70 + rank);
		barrier();
		check_same(again, sizes[s], 70 + rank, "mapped again");
		use_until_adopted(again, sizes[s], 9);
		munmap(again, sizes[s]);
	}
}

BEHAVIOUR(munmap_of_a_part, 2)
{
	size_t bytes = 4 << 20, hole = 1 << 20;
	char *buf = map_pages(bytes);

	use_until_adopted(buf, bytes, 10);
	EXPECT(!munmap(buf + hole, hole));
	check_same(buf, hole, 10 + rank, "before the hole");
	EXPECT(mmap(buf + hole, hole, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == buf + hole);
	check_zero(buf + hole, hole, "the hole, mapped again");
	use_until_adopted(buf, bytes, 11);
	check_same(buf, bytes, 11 + rank, "the whole, used again");
	munmap(buf, bytes);
}

BEHAVIOUR(mmap_fixed_over_it, 2)
{
	size_t bytes = 4 << 20, part = 1 << 20;
	char *buf = map_pages(bytes), *copy = check_alloc(bytes);

	use_until_adopted(buf, bytes, 12);
	memcpy(copy, buf, bytes);
	EXPECT(mmap(buf + part, part, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == buf + part);
	EXPECT(!memcmp(buf, copy, part));
	check_zero(buf + part, part, "mapped over");
	EXPECT(!memcmp(buf + 2 * part, copy + 2 * part, bytes - 2 * part));
	check_fill(buf + part, part, 80 + rank);
	barrier();
	check_same(buf + part, part, 80 + rank, "mapped over, written");
	check_bcast(buf, bytes, 1, MPI_COMM_WORLD, 13);
	munmap(buf, bytes);
	free(copy);
}

BEHAVIOUR(mremap_moves_grows_shrinks, 2)
{
	size_t bytes = 3 << 20;
	char *buf = map_pages(bytes), *place = map_pages(2 * bytes);

	use_until_adopted(buf, bytes, 14);
	buf = mremap(buf, bytes, 2 * bytes, MREMAP_MAYMOVE);
	EXPECT(buf != MAP_FAILED);
	check_same(buf, bytes, 14 + rank, "grown");
	check_zero(buf + bytes, bytes, "the new part");
	use_until_adopted(buf, 2 * bytes, 15);
	buf = mremap(buf, 2 * bytes, bytes, 0);
	check_same(buf, bytes, 15 + rank, "shrunk");
	use_until_adopted(buf, bytes, 16);
	buf = mremap(buf, bytes, 2 * bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place);
	EXPECT(buf == place);
	check_same(buf, bytes, 16 + rank, "moved");
	use_until_adopted(buf, 2 * bytes, 17);
	check_same(buf, 2 * bytes, 17 + rank, "moved and used");
	munmap(buf, 2 * bytes);
}

BEHAVIOUR(madvise_dontneed_gives_zeros, 2)
{
	size_t bytes = 4 << 20, part = 1 << 20;
	char *buf = map_pages(bytes), *copy = check_alloc(bytes);

	use_until_adopted(buf, bytes, 18);
	memcpy(copy, buf, bytes);
	EXPECT(!madvise(buf + part, part, MADV_DONTNEED));
	check_zero(buf + part, part, "advised away");
	EXPECT(!memcmp(buf, copy, part));
	EXPECT(!memcmp(buf + 2 * part, copy + 2 * part, bytes - 2 * part));
	use_until_adopted(buf, bytes, 19);
	EXPECT(!madvise(buf, bytes, MADV_DONTNEED));
	check_zero(buf, bytes, "all of it advised away");
	check_bcast(buf, bytes, 0, MPI_COMM_WORLD, 20);
	munmap(buf, bytes);
	free(copy);
}

BEHAVIOUR(madvise_free_gives_zeros_or_data, 2)
{
	size_t bytes = 2 << 20;
	char *buf = map_pages(bytes);

	use_until_adopted(buf, bytes, 21);
	EXPECT(!madvise(buf, bytes, MADV_FREE));
	for (size_t i = 0; i < bytes; i += 4096)
		buf[i] = (char)rank;
	for (size_t i = 0; i < bytes; i += 4096)
		EXPECT(buf[i] == (char)rank);
	munmap(buf, bytes);
}

static sigjmp_buf jump;
static void on_segv(int sig)
{
	(void)sig;
	siglongjmp(jump, 1);
}

static bool write_faults(volatile char *at)
{
	struct sigaction new = { .sa_handler = on_segv }, old;
	bool faulted = true;

	sigaction(SIGSEGV, &new, &old);
	if (!sigsetjmp(jump, 1)) {
		*at = 1;
		faulted = false;
	}
	sigaction(SIGSEGV, &old, NULL);
	return faulted;
}

BEHAVIOUR(mprotect_is_obeyed, 2)
{
	size_t bytes = 2 << 20;
	char *buf = map_pages(bytes);

	use_until_adopted(buf, bytes, 22);
	EXPECT(!mprotect(buf, bytes, PROT_READ));
	check_same(buf, bytes, 22 + rank, "read only");
	EXPECT(write_faults(buf + 4096));
	EXPECT(!mprotect(buf, bytes, PROT_NONE));
	EXPECT(write_faults(buf + 8192));
	EXPECT(!mprotect(buf, bytes, PROT_READ | PROT_WRITE));
	check_same(buf, bytes, 22 + rank, "readable and writable again");
	/* a root may send what it cannot write */
	if (rank == 0)
		check_fill(buf, bytes, 23);
	EXPECT(!mprotect(buf, bytes, rank == 0 ? PROT_READ : PROT_READ | PROT_WRITE));
	for (int i = 0; i < USES; i++)
		EXPECT(MPI_Bcast(buf, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
	check_same(buf, bytes, 23, "from read-only memory");
	munmap(buf, bytes);
}

/* Blocks of the brk heap; trimming gives their pages back to the kernel. */
BEHAVIOUR(heap_that_is_trimmed, 2)
{
	size_t bytes = 3 << 20;

	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	for (int i = 0; i < 4; i++) {
		char *buf = adopted_heap(bytes, 24 + i), *again;

		free(buf);
		malloc_trim(0);
		again = calloc(1, bytes);
		check_zero(again, bytes, "calloc from the trimmed heap");
		check_fill(again, bytes, 90 + rank);
		barrier();
		check_same(again, bytes, 90 + rank, "after the trim");
		free(again);
	}
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	mallopt(M_TRIM_THRESHOLD, 128 << 10);
}

BEHAVIOUR(sbrk_down_and_up_gives_zeros, 2)
{
	size_t bytes = 2 << 20;
	char *buf = sbrk((intptr_t)bytes), *again;

	if (buf == (void *)-1) {
		check_skip("sbrk is refused");
		return;
	}
	use_until_adopted(buf, bytes, 30);
	if (sbrk(0) != buf + bytes) { /* malloc has moved it meanwhile */
		barrier();
		return;
	}
	EXPECT(sbrk(-(intptr_t)bytes) != (void *)-1);
	again = sbrk((intptr_t)bytes);
	EXPECT(again == buf);
	check_zero(again, bytes, "sbrk again");
	check_fill(again, bytes, 31 + rank);
	barrier();
	check_same(again, bytes, 31 + rank, "sbrk again");
	check_bcast(again, bytes, 0, MPI_COMM_WORLD, 32);
	sbrk(-(intptr_t)bytes);
}

/* System calls work on shared pages as on any others. */
BEHAVIOUR(read_and_write_calls, 2)
{
	size_t bytes = 1 << 20;
	char *buf = adopted_heap(bytes, 33), name[] = "/tmp/check-XXXXXX";
	int fd = mkstemp(name);

	unlink(name);
	EXPECT(write(fd, buf, bytes) == (ssize_t)bytes);
	memset(buf, 0, bytes);
	EXPECT(pread(fd, buf, bytes, 0) == (ssize_t)bytes);
	check_same(buf, bytes, 33 + rank, "read back");
	close(fd);
	free(buf);
}

/* ---- the program's own syscall() ----------------------------------------------------------- */

static _Atomic unsigned masks_by_number;

long syscall(long nr, ...)
{
	register long d __asm__("r10"), e __asm__("r8"), f __asm__("r9");
	long a, b, c, ret;
	va_list args;

	va_start(args, nr);
	a = va_arg(args, long);
	b = va_arg(args, long);
	c = va_arg(args, long);
	d = va_arg(args, long);
	e = va_arg(args, long);
	f = va_arg(args, long);
	va_end(args);
	masks_by_number += nr == SYS_rt_sigprocmask;
	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(d), "r"(e), "r"(f)
			 : "rcx", "r11", "memory");
	if (ret < 0 && ret >= -4095) {
		errno = (int)-ret;
		return -1;
	}
	return ret;
}

/* Sluice blocks signals often, in free() and munmap() too. Its own syscall() checks the addresses
 * of a mask by ten system calls, and a program's may do anything. */
BEHAVIOUR(sluice_does_not_block_signals_by_the_programs_syscall, 2)
{
	free(adopted_heap(1 << 20, 40));
	EXPECT(masks_by_number == 0);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
