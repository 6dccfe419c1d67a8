/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that copy, replace or end the process complete every operation first. */
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <wordexp.h>

#include "sud/private.h"
#include "system_case.h"

enum { PAGES = 4 };

static struct owner *arm_new(void)
{
	struct owner *o = malloc(sizeof(*o)); /* known until the process ends */

	owner_open(o, PAGES, 0);
	owner_arm(o, 0, PAGES, GUARD_NO_ACCESS);
	return o;
}

static int status_of(pid_t child)
{
	int status = 0;

	CHECK_EQ(waitpid(child, &status, 0), child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Checks completeness through the arena's mapping, without a touch. */
static bool is_complete(const struct owner *o)
{
	for (size_t i = 0; i < PAGES * PAGE; i++)
		if ((unsigned char)o->arena[i] != owner_byte(i))
			return false;
	return !guard_is_armed(&o->r);
}

SYSTEM_TEST(a_vforked_child_finds_the_data)
{
	struct owner *o = arm_new();
	pid_t child = vfork();

	if (!child) {
		if (!is_complete(o))
			_exit(1);
		execl("/bin/sh", "sh", "-c", "exit 7", NULL);
		_exit(2);
	}
	CHECK_EQ(status_of(child), 7);
	CHECK(guard_is_ready());
	o = arm_new();
	CHECK_EQ(load(o->p), owner_byte(0));
}

static void nothing(int signo)
{
}

SYSTEM_TEST(what_a_vforked_child_sets_is_its_own)
{
	struct sigaction a;
	sigset_t set, now;
	pid_t child;

	sigemptyset(&set);
	sigaddset(&set, SIGSEGV);
	signal(SIGSEGV, nothing);
	sigprocmask(SIG_BLOCK, &set, NULL);
	child = vfork();
	if (!child) {
		for (int signo = 1; signo < 32; signo++)
			signal(signo, SIG_DFL);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		raise(SIGSEGV);
		_exit(1);
	}
	CHECK_EQ(status_of(child), 128 + SIGSEGV);
	CHECK_EQ(sigaction(SIGSEGV, NULL, &a), 0);
	CHECK(a.sa_handler == nothing);
	sigprocmask(SIG_BLOCK, NULL, &now);
	CHECK(sigismember(&now, SIGSEGV));
	CHECK_EQ(load(arm_new()->p), owner_byte(0));
}

static int child_fn(void *arg)
{
	return is_complete(arg) ? 7 : 1;
}

SYSTEM_TEST(a_cloned_child_finds_the_data)
{
	static char stack[64 << 10] __attribute__((aligned(16)));
	struct owner *o = arm_new();

	CHECK_EQ(status_of(clone(child_fn, stack + sizeof(stack), SIGCHLD, o)), 7);
	o = arm_new();
	CHECK_EQ(status_of(clone(child_fn, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD,
				 o)),
		 7);
}

SYSTEM_TEST(a_child_of_a_raw_call_finds_the_data)
{
	struct owner *o = arm_new();
	pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);

	if (!child)
		syscall(SYS_exit_group, is_complete(o) ? 7 : 1);
	CHECK_EQ(status_of(child), 7);
}

SYSTEM_TEST(spawned_programs)
{
	struct owner *o = arm_new();
	char *argv[] = { o->p, o->p + 10, o->p + 20, NULL };
	pid_t child;
	FILE *f;
	int n = 0;

	memcpy(o->p, "sh", 3);
	memcpy(o->p + 10, "-c", 3);
	memcpy(o->p + 20, "exit 7", 7);
	owner_arm(o, 1, 1, GUARD_NO_ACCESS);
	CHECK_EQ(posix_spawn(&child, "/bin/sh", NULL, NULL, argv, environ), 0);
	CHECK_EQ(status_of(child), 7);
	arm_new();
	CHECK_EQ(WEXITSTATUS(system("exit 5")), 5);
	arm_new();
	f = popen("echo 42", "r");
	CHECK(f != NULL);
	CHECK_EQ(fscanf(f, "%d", &n), 1);
	CHECK_EQ(n, 42);
	CHECK_EQ(pclose(f), 0);
}

/* The C library starts it with all signals blocked: a dispatched call would end the process. */
SYSTEM_TEST(no_call_of_a_function_that_starts_a_shell_is_dispatched)
{
	uint64_t before;
	wordexp_t words;

	arm_new();
	before = atomic_load(&base_counters[BASE_CTR_DISPATCHED]);
	CHECK_EQ(wordexp("$(echo 4 2)", &words, 0), 0);
	CHECK_EQ(atomic_load(&base_counters[BASE_CTR_DISPATCHED]), before);
	CHECK_EQ(words.we_wordc, 2);
	CHECK_STR(words.we_wordv[1], "2");
	wordfree(&words);
}

/* A shell or grep would change mask and ignored signals itself. */
static void body_exec(void *fd)
{
	char *argv[] = { (char[]){ "cat" }, (char[]){ "/proc/self/status" }, NULL };
	sigset_t set;

	/* inherited from a shell, nohup or Python */
	signal(SIGHUP, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	/* ignored and blocked as far as this program knows: the next one has to inherit it */
	signal(SIGSEGV, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGSYS);
	sigprocmask(SIG_BLOCK, &set, NULL);
	CHECK_EQ(execve("/does/not/exist", argv, environ), -1);
	CHECK_EQ(errno, ENOENT);
	dup2(*(int *)fd, 1);
	execvp("cat", argv);
	_exit(3);
}

SYSTEM_TEST(a_program_that_is_executed_inherits_what_was_believed)
{
	static char status[8192];
	int fd = memfd_create("status", MFD_CLOEXEC);

	CHECK_EQ(unit_fork(body_exec, &fd), 0);
	CHECK(pread(fd, status, sizeof(status) - 1, 0) > 0);
	CHECK_HAS(status, "SigBlk:\t0000000040000000\n");
	CHECK_HAS(status, "SigIgn:\t0000000000000400\n");
}

/* ---- ends -------------------------------------------------------------------------------- */

enum { NO_GUARD = 77 };

static void end_and_check(void (*end)(void), int status)
{
	struct owner *o = malloc(sizeof(*o));
	int ended;

	/* the data are seen by the peer, which maps the same memory */
	owner_open(o, PAGES, 0);
	memset(o->arena, 0, PAGES * PAGE);
	ended = status_of(unit_spawn((void (*)(void *))end, o));
	close(o->fd);
	if (ended == NO_GUARD)
		unit_skip("memory cannot be guarded by mremap");
	CHECK_EQ(ended, status);
	for (size_t i = 0; i < PAGES * PAGE; i++)
		CHECK_EQ((unsigned char)o->arena[i], owner_byte(i));
}

static struct owner *end_owner;
static const struct guard_ops *end_ops(void);

static void end_hold(void *arg) {}
static void end_touched(void *arg, uintptr_t addr, size_t bytes, bool write) {}
static void end_complete(void)
{
	if (!end_owner || !guard_is_armed(&end_owner->r))
		return;
	owner_finish(end_owner);
	owner_release_all(end_owner);
}

static const struct guard_ops *end_ops(void)
{
	static const struct guard_ops ops = { end_hold, end_touched, end_complete, NULL };

	return &ops;
}

static void arm_in_child(void *arg)
{
	char option[] = "SLUICE_GUARD_KIND=mremap", arena[] = "SLUICE_REGION_ARENA=1G";
	char problems[64];
	char *env[] = { option, arena, NULL };

	base_options_load(env, problems, sizeof(problems));
	if (guard_init(end_ops()) || !guard_is_ready())
		_exit(NO_GUARD);
	end_owner = arg;
	owner_arm(end_owner, 0, PAGES, GUARD_NO_ACCESS);
}

#define END(name, call)                       \
	static void end_by_##name(void *arg) \
	{                                    \
		arm_in_child(arg);           \
		call;                        \
	}

END(exit, exit(7))
END(_exit, _exit(7))
END(quick_exit, quick_exit(7))
END(abort, abort())
END(raw, syscall(SYS_exit_group, 7))
END(exec, execl("/bin/sh", "sh", "-c", "exit 7", NULL))

UNIT_TEST(the_data_are_there_after_exit) { end_and_check((void (*)(void))end_by_exit, 7); }
UNIT_TEST(the_data_are_there_after__exit) { end_and_check((void (*)(void))end_by__exit, 7); }
UNIT_TEST(the_data_are_there_after_quick_exit)
{
	end_and_check((void (*)(void))end_by_quick_exit, 7);
}
UNIT_TEST(the_data_are_there_after_abort)
{
	end_and_check((void (*)(void))end_by_abort, 128 + SIGABRT);
}
UNIT_TEST(the_data_are_there_after_exit_group) { end_and_check((void (*)(void))end_by_raw, 7); }
UNIT_TEST(the_data_are_there_after_exec) { end_and_check((void (*)(void))end_by_exec, 7); }
