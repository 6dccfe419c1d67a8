/* SPDX-License-Identifier: BSD-3-Clause */
/* Kinds of memory, many buffers, and what may not grow with them. */
#include "adopt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

static char in_bss[3 << 20];
static char in_data[1 << 20] = { 1 };

static void use(void *buf, size_t bytes, uint64_t seed)
{
	for (int i = 0; i < USES; i++)
		check_bcast(buf, bytes, i % size, MPI_COMM_WORLD, seed + i);
}

BEHAVIOUR(static_memory, 2)
{
	use(in_bss + 11, sizeof(in_bss) - 100, 1);
	use(in_data + 11, sizeof(in_data) - 100, 2);
	EXPECT(in_data[0] == 1);
}

BEHAVIOUR(stack_memory, 2)
{
	char here[600000];

	use(here, sizeof(here), 3);
}

static void *on_thread_stack(void *arg)
{
	char here[1 << 20];

	use(here, sizeof(here), 10 + *(int *)arg);
	return NULL;
}

/* Stacks that libc gives to the next thread, or unmaps. */
BEHAVIOUR(thread_stacks, 2)
{
	for (int i = 0; i < 30; i++) {
		pthread_t thread;

		pthread_create(&thread, NULL, on_thread_stack, &i);
		pthread_join(thread, NULL);
	}
}

BEHAVIOUR(shared_mapping_of_a_file, 2)
{
	size_t bytes = 1 << 20;
	char name[] = "/tmp/check-XXXXXX", *buf, *copy = check_alloc(bytes);
	int fd = mkstemp(name);

	unlink(name);
	EXPECT(!ftruncate(fd, (off_t)bytes));
	buf = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	use(buf, bytes, 20);
	check_bcast(buf, bytes, 0, MPI_COMM_WORLD, 30);
	EXPECT(pread(fd, copy, bytes, 0) == (ssize_t)bytes);
	check_same(copy, bytes, 30, "what is in the file");
	munmap(buf, bytes);
	close(fd);
	free(copy);
}

BEHAVIOUR(private_mapping_of_a_file, 2)
{
	size_t bytes = 1 << 20;
	char name[] = "/tmp/check-XXXXXX", *buf, *copy = check_alloc(bytes);
	int fd = mkstemp(name);

	unlink(name);
	check_fill(copy, bytes, 40);
	EXPECT(write(fd, copy, bytes) == (ssize_t)bytes);
	buf = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	/* sent as it comes from the file, before anybody has touched it */
	EXPECT(MPI_Bcast(buf, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
	check_same(buf, bytes, 40, "the file's bytes");
	use(buf, bytes, 41);
	EXPECT(pread(fd, copy, bytes, 0) == (ssize_t)bytes);
	check_same(copy, bytes, 40, "the file itself");
	munmap(buf, bytes);
	close(fd);
	free(copy);
}

BEHAVIOUR(system_v_segment, 2)
{
	size_t bytes = 1 << 20;
	int id = shmget(IPC_PRIVATE, bytes, 0600);
	char *buf;

	if (id < 0) {
		check_skip("no System V shared memory here");
		return;
	}
	buf = shmat(id, NULL, 0);
	shmctl(id, IPC_RMID, NULL);
	use(buf, bytes, 50);
	shmdt(buf);
}

static long locked_kb(const void *addr)
{
	unsigned long start, end;
	char text[400];
	long kb = -1, inside = 0;
	FILE *f = fopen("/proc/self/smaps", "r");

	while (f && fgets(text, sizeof(text), f)) {
		if (sscanf(text, "%lx-%lx ", &start, &end) == 2)
			inside = (unsigned long)addr >= start && (unsigned long)addr < end;
		else if (inside)
			sscanf(text, "Locked: %ld", &kb);
	}
	if (f)
		fclose(f);
	return kb;
}

BEHAVIOUR(locked_memory_stays_locked, 2)
{
	size_t bytes = 1 << 20;
	char *buf = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int refused = mlock(buf, bytes) != 0, any = 0;

	MPI_Allreduce(&refused, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (any) {
		check_skip("mlock is refused");
		return;
	}
	use(buf, bytes, 60);
	EXPECT(locked_kb(buf + bytes / 2) > 0);
	munmap(buf, bytes);
}

static long huge_kb(const void *addr, const char *what)
{
	unsigned long start, end;
	char text[400], format[64];
	long kb = 0, inside = 0;
	FILE *f = fopen("/proc/self/smaps", "r");

	snprintf(format, sizeof(format), "%s: %%ld", what);
	while (f && fgets(text, sizeof(text), f)) {
		if (sscanf(text, "%lx-%lx ", &start, &end) == 2)
			inside = (unsigned long)addr >= start && (unsigned long)addr < end;
		else if (inside)
			sscanf(text, format, &kb);
	}
	if (f)
		fclose(f);
	return kb;
}

BEHAVIOUR(huge_pages_are_kept, 2)
{
	size_t bytes = 16 << 20;
	char *buf = aligned_alloc(2 << 20, bytes);
	int none, any = 0;

	madvise(buf, bytes, MADV_HUGEPAGE);
	memset(buf, 1, bytes);
	none = huge_kb(buf + bytes / 2, "AnonHugePages") < 8 << 10;
	MPI_Allreduce(&none, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
	if (any) {
		check_skip("no transparent huge pages here");
		free(buf);
		return;
	}
	use(buf, bytes, 70);
	MPI_Barrier(MPI_COMM_WORLD); /* nothing is pending, and so nothing guarded, any more */
	if (huge_kb(buf + bytes / 2, "AnonHugePages") + huge_kb(buf + bytes / 2, "ShmemPmdMapped") <
	    8 << 10)
		check_fail("the pages of a huge buffer are small now");
	free(buf);
}

BEHAVIOUR(memory_of_mpi, 2)
{
	size_t bytes = 1 << 20;
	char *buf;

	for (int i = 0; i < 4; i++) {
		MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &buf);
		use(buf, bytes, 80 + i);
		MPI_Free_mem(buf);
	}
}

/* A window over a buffer that has been used for broadcasts, and broadcasts during its life. */
BEHAVIOUR(windows_over_used_buffers, 2)
{
	size_t bytes = 1 << 20;
	char *buf = adopted_heap(bytes, 90), *mine = check_alloc(bytes);
	int next = (rank + 1) % size, previous = (rank + size - 1) % size;
	MPI_Win win;

	MPI_Win_create(buf, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	for (int i = 0; i < 4; i++) {
		check_fill(mine, bytes, check_seed(i, rank));
		MPI_Win_fence(0, win);
		MPI_Put(mine, (int)bytes, MPI_BYTE, next, 0, (int)bytes, MPI_BYTE, win);
		MPI_Win_fence(0, win);
		check_same(buf, bytes, check_seed(i, previous), "put by a peer");
		use(mine, bytes, 91);
		use(buf, bytes, 92);
	}
	MPI_Win_free(&win);
	use(buf, bytes, 93);
	free(buf);
	free(mine);
}

BEHAVIOUR(shared_windows, 2)
{
	MPI_Aint bytes = 1 << 20, got;
	MPI_Comm node;
	MPI_Win win;
	char *mine, *first;
	int unit;

	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
	MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, node, &mine, &win);
	MPI_Win_shared_query(win, 0, &got, &unit, &first);
	use(mine, (size_t)bytes, 100);
	MPI_Win_fence(0, win);
	if (rank == 0)
		check_fill(mine, (size_t)bytes, 101);
	MPI_Win_fence(0, win);
	check_same(first, (size_t)bytes, 101, "the first rank's part");
	MPI_Win_free(&win);
	MPI_Comm_free(&node);
}

/* Receives that are posted into a buffer before it is adopted land in it afterwards. */
BEHAVIOUR(receives_posted_before_adoption, 2)
{
	size_t half = 400000;
	char *buf = check_alloc(2 * half), *out = check_alloc(half);
	int next = (rank + 1) % size, previous = (rank + size - 1) % size;

	for (int i = 0; i < 3; i++) {
		MPI_Request request;

		MPI_Irecv(buf + half, (int)half, MPI_BYTE, previous, 3, MPI_COMM_WORLD, &request);
		use(buf, half, 110 + i);
		check_fill(out, half, check_seed(i, rank));
		MPI_Send(out, (int)half, MPI_BYTE, next, 3, MPI_COMM_WORLD);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		check_same(buf + half, half, check_seed(i, previous), "received");
		free(buf);
		buf = check_alloc(2 * half);
	}
	free(buf);
	free(out);
}

/* Like a program that never uses a buffer twice. HARNESS_BUFFERS of them. */
BEHAVIOUR(many_different_buffers, 2)
{
	long count = check_env("HARNESS_BUFFERS", 3000);
	struct check_usage before, after;
	uint64_t state = 5;

	memset(&before, 0, sizeof(before));
	for (long i = 0; i < count; i++) {
		size_t bytes = 65536 + check_random(&state) % 200000;
		char *buf = check_alloc(bytes);

		for (int k = 0; k <= i % 3; k++) {
			buf[0] = (char)i;
			buf[bytes - 1] = (char)(i + 1);
			MPI_Bcast(buf, (int)bytes, MPI_BYTE, (int)(i % size), MPI_COMM_WORLD);
			EXPECT(buf[0] == (char)i && buf[bytes - 1] == (char)(i + 1));
		}
		free(buf);
		if (i == count / 10)
			check_usage(&before);
	}
	check_usage(&after);
	if (after.mappings > before.mappings + 40)
		check_fail("mappings %ld, then %ld", before.mappings, after.mappings);
	if (after.descriptors > before.descriptors)
		check_fail("descriptors %ld, then %ld", before.descriptors, after.descriptors);
	if (after.threads > before.threads)
		check_fail("threads %ld, then %ld", before.threads, after.threads);
	if (after.rss_kb > before.rss_kb + 100 * 1024)
		check_fail("memory %ld KB, then %ld KB", before.rss_kb, after.rss_kb);
}

/* More live buffers than may be adopted at a time. */
BEHAVIOUR(many_buffers_at_once, 2)
{
	enum { COUNT = 1500, BYTES = 70000 };
	char **bufs = check_alloc(COUNT * sizeof(*bufs));
	struct check_usage before, after;

	check_usage(&before);
	for (int i = 0; i < COUNT; i++)
		bufs[i] = check_alloc(BYTES);
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < COUNT; i++) {
			check_fill(bufs[i], BYTES, check_seed(i, rank));
			EXPECT(MPI_Bcast(bufs[i], BYTES, MPI_BYTE, i % size, MPI_COMM_WORLD) ==
			       MPI_SUCCESS);
		}
	for (int i = 0; i < COUNT; i++) {
		check_same(bufs[i], BYTES, check_seed(i, i % size), "one of many");
		free(bufs[i]);
	}
	free(bufs);
	check_usage(&after);
	if (after.mappings > before.mappings + 60)
		check_fail("mappings %ld, then %ld", before.mappings, after.mappings);
	if (after.descriptors > before.descriptors + 8)
		check_fail("descriptors %ld, then %ld", before.descriptors, after.descriptors);
}

/* A library's static memory, unmapped by dlclose without any call that a preload could see. */
/* Returns: the memory of this process's arena; 0 without Sluice. */
static uint64_t arena_bytes(void)
{
	struct stat st;
	uint64_t bytes = 0;

	for (int fd = 0; fd < 256; fd++) {
		char path[64], target[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, target, sizeof(target) - 1) > 0 &&
		    strstr(target, "memfd:sluice") && !fstat(fd, &st))
			bytes += (uint64_t)st.st_blocks * 512;
	}
	return bytes;
}

BEHAVIOUR(library_that_is_closed, 2)
{
	const char *path = getenv("HARNESS_LIBRARY");
	uint64_t before = 0;

	if (!path) {
		check_skip("HARNESS_LIBRARY is not set");
		return;
	}
	for (int i = 0; i < 8; i++) {
		void *library = dlopen(path, RTLD_NOW);
		char *area = library ? dlsym(library, "library_area") : NULL;

		if (!area) {
			check_fail("%s", dlerror());
			return;
		}
		check_zero(area, 2 << 20, "a fresh library's memory");
		use(area, 2 << 20, 120 + i);
		dlclose(library);
		if (i == 1)
			before = arena_bytes();
	}
	EXPECT(arena_bytes() < before + (4 << 20));
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
