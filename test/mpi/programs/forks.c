/* SPDX-License-Identifier: BSD-3-Clause */
/* Children of a rank whose memory peers can address: they must see a snapshot, and be seen by
 * nobody. */
#include "adopt.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { BYTES = (2 << 20) + 100 };

/* Exit status of a child, -1 when it did not exit. */
static int status_of(pid_t child)
{
	int status = 0;

	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

static bool same(const char *buf, size_t bytes, uint64_t seed)
{
	char *want = malloc(bytes);
	bool equal;

	check_fill(want, bytes, seed);
	equal = !memcmp(want, buf, bytes);
	free(want);
	return equal;
}

static void tell(int fd)
{
	char byte = 1;

	if (write(fd, &byte, 1) != 1)
		_exit(90);
}

static void await(int fd)
{
	char byte;

	if (read(fd, &byte, 1) != 1)
		_exit(91);
}

BEHAVIOUR(fork_child_sees_a_snapshot, 2)
{
	char *buf = adopted_heap(BYTES, 1);
	int go[2];
	pid_t child;

	EXPECT(!pipe(go));
	child = fork();
	if (!child) {
		close(go[1]);
		await(go[0]); /* by now the parent has overwritten it and peers have sent to it */
		_exit(same(buf, BYTES, 1 + rank) ? 0 : 1);
	}
	check_fill(buf, BYTES, 100 + rank);
	MPI_Barrier(MPI_COMM_WORLD);
	check_same(buf, BYTES, 100 + rank, "the parent's own");
	for (int i = 0; i < USES; i++)
		check_bcast(buf, BYTES, i % size, MPI_COMM_WORLD, 200 + i);
	tell(go[1]);
	EXPECT(status_of(child) == 0);
	close(go[0]);
	close(go[1]);
	free(buf);
}

BEHAVIOUR(fork_childs_writes_stay_in_the_child, 2)
{
	char *buf = adopted_heap(BYTES, 2);
	int done[2];
	pid_t child;

	EXPECT(!pipe(done));
	child = fork();
	if (!child) {
		memset(buf, 0xee, BYTES);
		tell(done[1]);
		_exit(buf[BYTES / 2] == (char)0xee ? 0 : 1);
	}
	await(done[0]);
	check_same(buf, BYTES, 2 + rank, "the parent's, after the child wrote");
	if (rank == 1)
		check_fill(buf, BYTES, 3);
	EXPECT(MPI_Bcast(buf, BYTES, MPI_BYTE, 1, MPI_COMM_WORLD) == MPI_SUCCESS);
	check_same(buf, BYTES, 3, "broadcast after the child wrote");
	EXPECT(status_of(child) == 0);
	close(done[0]);
	close(done[1]);
	free(buf);
}

BEHAVIOUR(sealed_memory_is_not_shared_with_children, 2)
{
	size_t bytes = 4 << 20;
	char *buf = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid_t child;

	use_until_adopted(buf, bytes, 1);
	(void)syscall(462 /* mseal, Linux 6.10 */, buf, bytes, 0);
	child = fork();
	if (!child) {
		memset(buf, 7, bytes);
		_exit(0);
	}
	EXPECT(status_of(child) == 0);
	check_same(buf, bytes, 1 + (uint64_t)rank, "what a child has overwritten");
}

/* A child that lives on while its parent goes on with broadcasts, forks again, and frees. */
BEHAVIOUR(fork_many_times, 2)
{
	char *buf = adopted_heap(BYTES, 4);
	pid_t children[6];
	int go[2];

	EXPECT(!pipe(go));
	for (int i = 0; i < 6; i++) {
		check_bcast(buf, BYTES, i % size, MPI_COMM_WORLD, 300 + i);
		children[i] = fork();
		if (!children[i]) {
			await(go[0]);
			_exit(same(buf, BYTES, 300 + i) ? 0 : 1);
		}
	}
	free(buf);
	buf = adopted_heap(BYTES, 5);
	for (int i = 0; i < 6; i++)
		tell(go[1]);
	for (int i = 0; i < 6; i++)
		EXPECT(status_of(children[i]) == 0);
	check_same(buf, BYTES, 5 + rank, "the parent's");
	close(go[0]);
	close(go[1]);
	free(buf);
}

/* The child frees and allocates; its allocator must not reach the parent's pages. */
BEHAVIOUR(fork_child_uses_its_allocator, 2)
{
	char *buf = adopted_heap(BYTES, 6);
	pid_t child = fork();

	if (!child) {
		char *other;

		free(buf);
		other = calloc(1, BYTES);
		for (int i = 0; i < BYTES; i++)
			if (other[i])
				_exit(1);
		memset(other, 0x77, BYTES);
		free(other);
		_exit(0);
	}
	EXPECT(status_of(child) == 0);
	check_same(buf, BYTES, 6 + rank, "the parent's");
	check_bcast(buf, BYTES, 0, MPI_COMM_WORLD, 7);
	free(buf);
}

BEHAVIOUR(fork_child_that_exits_by_exit, 2)
{
	char *buf = adopted_heap(BYTES, 8);
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child)
		exit(7);
	EXPECT(status_of(child) == 7);
	check_same(buf, BYTES, 8 + rank, "the parent's");
	check_bcast(buf, BYTES, size - 1, MPI_COMM_WORLD, 9);
	free(buf);
}

BEHAVIOUR(grandchildren, 2)
{
	char *buf = adopted_heap(BYTES, 10);
	pid_t child = fork();

	if (!child) {
		pid_t grandchild;

		memset(buf, 1, BYTES);
		grandchild = fork();
		if (!grandchild) {
			bool ok = buf[0] == 1 && buf[BYTES - 1] == 1;

			memset(buf, 2, BYTES);
			_exit(ok ? 0 : 1);
		}
		if (status_of(grandchild))
			_exit(2);
		_exit(buf[BYTES / 2] == 1 ? 0 : 3);
	}
	EXPECT(status_of(child) == 0);
	check_same(buf, BYTES, 10 + rank, "the parent's");
	free(buf);
}

/* A user's shared mapping stays shared: a child sees what is broadcast into it later. */
BEHAVIOUR(shared_mapping_stays_shared, 2)
{
	char *buf = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int go[2];
	pid_t child;

	for (int i = 0; i < USES; i++)
		check_bcast(buf, BYTES, i % size, MPI_COMM_WORLD, 400 + i);
	EXPECT(!pipe(go));
	child = fork();
	if (!child) {
		await(go[0]);
		_exit(same(buf, BYTES, 500) ? 0 : 1);
	}
	check_bcast(buf, BYTES, 1, MPI_COMM_WORLD, 500);
	tell(go[1]);
	EXPECT(status_of(child) == 0);
	close(go[0]);
	close(go[1]);
	munmap(buf, BYTES);
}

static void still_works(char *buf, uint64_t seed)
{
	check_same(buf, BYTES, seed + rank, "the parent's");
	check_bcast(buf, BYTES, 0, MPI_COMM_WORLD, 600);
	check_fill(buf, BYTES, seed + rank);
}

BEHAVIOUR(exec_in_many_ways, 2)
{
	char *buf = adopted_heap(BYTES, 11), line[64] = "";
	char *const argv[] = { "sh", "-c", "exit 5", NULL };
	pid_t child;
	FILE *f;

	child = fork();
	if (!child) {
		execv("/bin/sh", argv);
		_exit(99);
	}
	EXPECT(status_of(child) == 5);
	still_works(buf, 11);
	child = vfork();
	if (!child) {
		execve("/bin/sh", argv, environ);
		_exit(99);
	}
	EXPECT(status_of(child) == 5);
	still_works(buf, 11);
	EXPECT(!posix_spawn(&child, "/bin/sh", NULL, NULL, argv, environ));
	EXPECT(status_of(child) == 5);
	EXPECT(!posix_spawnp(&child, "sh", NULL, NULL, argv, environ));
	EXPECT(status_of(child) == 5);
	still_works(buf, 11);
	EXPECT(WEXITSTATUS(system("exit 6")) == 6);
	f = popen("echo hello", "r");
	EXPECT(f && fgets(line, sizeof(line), f) && !strcmp(line, "hello\n"));
	if (f)
		pclose(f);
	still_works(buf, 11);
	free(buf);
}

/* Programs that a rank starts must not inherit descriptors of Sluice's memory. */
BEHAVIOUR(exec_inherits_no_descriptors, 2)
{
	char *buf = adopted_heap(BYTES, 12), text[256] = "";
	FILE *f = popen(
		"for f in /proc/self/fd/*; do readlink $f; done | grep -c -i -E 'memfd|sluice'",
		"r");

	EXPECT(f && fgets(text, sizeof(text), f));
	EXPECT(atoi(text) == 0);
	if (f)
		pclose(f);
	free(buf);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
