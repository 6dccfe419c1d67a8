/* SPDX-License-Identifier: BSD-3-Clause */
/* Children that are started right after a collective, and see or are given its buffer. */
#include "early.h"

#include <sched.h>
#include <spawn.h>
#include <sys/uio.h>
#include <sys/wait.h>

extern char **environ;

/* Exit status of a child, 1000 + its signal, -1 when neither. */
static int status_of(pid_t child)
{
	int status = 0;

	if (child < 0 || waitpid(child, &status, 0) != child)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void expect_status(struct trial *t, pid_t child, int want, const char *how)
{
	int got = status_of(child);

	if (got != want)
		check_fail("trial %d: %s: the child ended with %d, not %d", t->index, how, got,
			   want);
}

static void child_reads(struct trial *t)
{
	pid_t child = fork();

	if (!child)
		_exit(memcmp(t->buf, t->want, t->bytes) ? 1 : 0);
	expect_status(t, child, 0, "a child that reads");
}

BEHAVIOUR(fork_and_read_in_the_child, 2)
{
	early_trials(child_reads);
}

static void child_writes(struct trial *t)
{
	pid_t child = fork();

	if (!child) {
		memset(t->buf, 0xcc, t->bytes);
		early_sleep_us(300);
		for (size_t i = 0; i < t->bytes; i += 61)
			if (t->buf[i] != (char)0xcc)
				_exit(1);
		_exit(0);
	}
	early_same(t, t->buf, t->want, t->bytes, "in the parent");
	expect_status(t, child, 0, "a child that writes");
}

BEHAVIOUR(fork_and_write_in_the_child, 2)
{
	early_trials(child_writes);
}

static void parent_writes(struct trial *t)
{
	int go[2];
	pid_t child;
	char byte;

	EXPECT(!pipe(go));
	child = fork();
	if (!child)
		_exit(read(go[0], &byte, 1) == 1 && !memcmp(t->buf, t->want, t->bytes) ? 0 : 1);
	memset(t->buf, 0xdd, t->bytes);
	EXPECT(write(go[1], "x", 1) == 1);
	expect_status(t, child, 0, "a child whose parent writes");
	memset(t->want, 0xdd, t->bytes);
	close(go[0]);
	close(go[1]);
}

BEHAVIOUR(fork_and_write_in_the_parent, 2)
{
	early_trials(parent_writes);
}

static void child_writes_out(struct trial *t)
{
	int fd = memfd_create("out", 0);
	char *got = check_alloc(t->bytes);
	pid_t child = fork();

	if (!child)
		_exit(write(fd, t->buf, t->bytes) == (ssize_t)t->bytes ? 0 : 1);
	expect_status(t, child, 0, "a child that calls write");
	EXPECT(pread(fd, got, t->bytes, 0) == (ssize_t)t->bytes);
	early_same(t, got, t->want, t->bytes, "written by the child");
	free(got);
	close(fd);
}

BEHAVIOUR(fork_and_write_to_a_file, 2)
{
	early_trials(child_writes_out);
}

/* Nobody in the child or the parent looks at the buffer for a while. */
static void child_exits(struct trial *t)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child) {
		if (t->index % 2)
			exit(5);
		_exit(5);
	}
	expect_status(t, child, 5, "a child that exits");
}

BEHAVIOUR(fork_and_exit, 2)
{
	early_trials(child_exits);
}

static void grandchild(struct trial *t)
{
	pid_t child = fork();

	if (!child) {
		pid_t next = fork();

		if (!next)
			_exit(memcmp(t->buf, t->want, t->bytes) ? 1 : 0);
		_exit(status_of(next));
	}
	expect_status(t, child, 0, "a grandchild");
}

BEHAVIOUR(grandchildren_read, 2)
{
	early_trials(grandchild);
}

/* ---- other programs, their arguments in the buffer --------------------------------------- */

enum { SHELL_AT = 20001, FLAG_AT = 40002, WORDS_AT = 60003, VECTOR_AT = 80000 };

static void prepare_words(struct trial *t)
{
	memcpy(t->want + SHELL_AT, "/bin/sh", 8);
	memcpy(t->want + FLAG_AT, "-c", 3);
	memcpy(t->want + WORDS_AT, "exit 9", 7);
}

/* The words of argv lie in the buffer, and the vector itself in every second trial. */
static char **words(struct trial *t, char **elsewhere)
{
	char **argv = elsewhere;

	if (t->index % 2) {
		argv = (char **)(((uintptr_t)t->buf + VECTOR_AT) & ~(uintptr_t)7);
		memset(argv, 0, 4 * sizeof(*argv));
	}
	argv[0] = t->buf + SHELL_AT;
	argv[1] = t->buf + FLAG_AT;
	argv[2] = t->buf + WORDS_AT;
	argv[3] = NULL;
	if (argv != elsewhere)
		early_keep(t, argv, 4 * sizeof(*argv));
	return argv;
}

static void by_exec(struct trial *t)
{
	char *own[4], **argv = words(t, own);
	pid_t child = fork();

	if (!child) {
		execve(t->buf + SHELL_AT, argv, environ);
		_exit(99);
	}
	expect_status(t, child, 9, "execve");
}

BEHAVIOUR(fork_and_exec, 2)
{
	early_trials_with(by_exec, prepare_words, 0);
}

static void by_vfork(struct trial *t)
{
	char *own[4], **argv = own;
	pid_t child;

	own[0] = t->buf + SHELL_AT;
	own[1] = t->buf + FLAG_AT;
	own[2] = t->buf + WORDS_AT;
	own[3] = NULL;
	child = vfork();
	if (!child) {
		execve(t->buf + SHELL_AT, argv, environ);
		_exit(99);
	}
	expect_status(t, child, 9, "vfork and execve");
}

BEHAVIOUR(vfork_and_exec, 2)
{
	early_trials_with(by_vfork, prepare_words, 0);
}

static void by_spawn(struct trial *t)
{
	char *own[4], **argv = words(t, own);
	pid_t child = -1;
	int rc = posix_spawn(&child, t->buf + SHELL_AT, NULL, NULL, argv, environ);

	if (rc)
		check_fail("posix_spawn: %s", strerror(rc));
	expect_status(t, child, 9, "posix_spawn");
}

BEHAVIOUR(posix_spawn_of_words_in_it, 2)
{
	early_trials_with(by_spawn, prepare_words, 0);
}

static void by_spawn_first(struct trial *t)
{
	char *own[4] = { t->buf + SHELL_AT, t->buf + FLAG_AT, t->buf + WORDS_AT, NULL };
	pid_t child = -1;
	int rc = posix_spawnp(&child, "sh", NULL, NULL, own, environ);

	if (rc)
		check_fail("posix_spawnp: %s", strerror(rc));
	expect_status(t, child, 9, "posix_spawnp");
}

BEHAVIOUR(posix_spawn_untouched, 2)
{
	early_trials_with(by_spawn_first, prepare_words, 0);
}

static void by_system(struct trial *t)
{
	int status = system(t->buf + WORDS_AT);

	if (!WIFEXITED(status) || WEXITSTATUS(status) != 9)
		check_fail("trial %d: system() gave %x", t->index, (unsigned)status);
}

BEHAVIOUR(system_of_words_in_it, 2)
{
	early_trials_with(by_system, prepare_words, 0);
}

static void by_popen(struct trial *t)
{
	FILE *f = popen("cat >/dev/null; exit 8", "w");
	int status;

	EXPECT(f && fwrite(t->buf, 1, t->bytes, f) == t->bytes);
	status = f ? pclose(f) : -1;
	EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 8);
	f = popen("echo hello", "r");
	EXPECT(f && fgets(t->buf + WORDS_AT, 100, f));
	memcpy(t->want + WORDS_AT, "hello\n", 7);
	if (f)
		pclose(f);
}

BEHAVIOUR(popen_from_it_and_into_it, 2)
{
	early_trials(by_popen);
}

/* A program that has the buffer on its standard input. */
static void count_bytes(struct trial *t)
{
	int in[2], out[2];
	char text[40] = "";
	pid_t child;

	EXPECT(!pipe(in) && !pipe(out));
	child = fork();
	if (!child) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[0]);
		close(in[1]);
		close(out[0]);
		close(out[1]);
		execlp("wc", "wc", "-c", NULL);
		_exit(99);
	}
	close(in[0]);
	close(out[1]);
	for (size_t done = 0; done < t->bytes;) {
		ssize_t n = write(in[1], t->buf + done, t->bytes - done);

		if (n <= 0) {
			check_fail("write to a child: %s", strerror(errno));
			break;
		}
		done += (size_t)n;
	}
	close(in[1]);
	EXPECT(read(out[0], text, sizeof(text) - 1) > 0);
	EXPECT((size_t)atol(text) == t->bytes);
	close(out[0]);
	expect_status(t, child, 0, "wc");
}

BEHAVIOUR(piped_to_another_program, 2)
{
	early_trials(count_bytes);
}

/* ---- clones ------------------------------------------------------------------------------ */

static int clone_main(void *arg)
{
	struct trial *t = arg;

	return memcmp(t->buf, t->want, t->bytes) ? 1 : 0;
}

static void by_clone(struct trial *t)
{
	static char stack[65536] __attribute__((aligned(16)));
	pid_t child = clone(clone_main, stack + sizeof(stack), SIGCHLD, t);

	expect_status(t, child, 0, "clone()");
}

BEHAVIOUR(clone_without_shared_memory, 2)
{
	early_trials(by_clone);
}

/* ---- another process looks into this one (only userfaultfd lets it wait) ----------------- */

static void others_look(struct trial *t)
{
	struct iovec mine, there = { t->buf, t->bytes };
	pid_t parent = getpid(), child;
	int go[2], ready[2];
	char byte = 0;

	EXPECT(!pipe(go) && !pipe(ready));
	child = fork();
	if (!child) {
		char *got = early_map(t->bytes);

		mine = (struct iovec){ got, t->bytes };
		if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1)
			_exit(2);
		_exit(process_vm_readv(parent, &mine, 1, &there, 1, 0) == (ssize_t)t->bytes &&
		      !memcmp(got, t->want, t->bytes) ? 0 : 1);
	}
	EXPECT(read(ready[0], &byte, 1) == 1);
	/* by now the child runs; what it is to see comes with another collective */
	if (t->receiver && !t->gather)
		memset(t->buf, 0xee, t->bytes);
	early_collective(t, MPI_COMM_WORLD);
	EXPECT(write(go[1], &byte, 1) == 1);
	expect_status(t, child, 0, "another process that reads");
	close(go[0]);
	close(go[1]);
	close(ready[0]);
	close(ready[1]);
}

BEHAVIOUR(read_by_another_process, 2)
{
	if (!check_env("HARNESS_FOREIGN", 1)) {
		check_skip("this guard cannot let other processes wait");
		return;
	}
	early_trials(others_look);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
