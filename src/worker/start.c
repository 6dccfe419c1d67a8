/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starting the process:
 * - as by vfork(), so that no memory of the rank is copied or becomes private;
 * - as an orphan, through an intermediate process that exits, and as a child without an exit
 *   signal, so that the program's wait() and SIGCHLD see neither of them (exec restores the exit
 *   signal);
 * - with two descriptors of Sluice's and /dev/null as the standard ones, as a launcher waits until
 *   every copy of its pipes is closed;
 * - with every signal at its default action;
 * - without the rank's environment, which preloads Sluice.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/private.h"
#include "worker/worker_paths.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* Runs in this process's memory, on a stack that a sanitizer does not know. */
#define NOT_WATCHED __attribute__((no_sanitize("address", "thread", "undefined")))

enum {
	STACK_BYTES = 32 << 10,
	SIGNALS = 64,
	FD_ABOVE = 16,         /* above the descriptors that the process inherits */
	CLOSE_MAX = 65536,
	WAIT_CLONE = (int)0x80000000, /* __WCLONE */
};

typedef int clone_call(int (*fn)(void *), void *stack, int flags, void *arg, ...);

/* Data of the new process before exec, in the memory of this process, whose thread waits. */
struct birth {
	const char *path;
	int listener, page;
	clone_call *clone;
	int pid, error; /* results */
	char starter[16]; /* for people who list processes */
	_Alignas(64) char stack_between[STACK_BYTES];
	_Alignas(64) char stack[STACK_BYTES];
};

NOT_WATCHED static void set_mask(uint64_t mask, uint64_t *old)
{
	os_signal_mask(OS_MASK_SET, &mask, old);
}

NOT_WATCHED static void close_others(void)
{
	struct rlimit limit = { 0 };

	if (!syscall(SYS_close_range, WORKER_FD_PAGE + 1, UINT_MAX, 0))
		return;
	getrlimit(RLIMIT_NOFILE, &limit);
	for (unsigned fd = WORKER_FD_PAGE + 1; fd < base_min_u64(limit.rlim_cur, CLOSE_MAX); fd++)
		syscall(SYS_close, fd);
}

NOT_WATCHED static int arrange_descriptors(const struct birth *b)
{
	long null = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
	long listener = syscall(SYS_fcntl, b->listener, F_DUPFD, FD_ABOVE);
	long page = syscall(SYS_fcntl, b->page, F_DUPFD, FD_ABOVE);

	if (null < 0 || listener < 0 || page < 0)
		return errno;
	null = syscall(SYS_fcntl, null, F_DUPFD, FD_ABOVE);
	for (int fd = 0; fd <= 2; fd++)
		if (syscall(SYS_dup3, null, fd, 0) < 0)
			return errno;
	if (syscall(SYS_dup3, listener, WORKER_FD_LISTENER, 0) < 0 ||
	    syscall(SYS_dup3, page, WORKER_FD_PAGE, 0) < 0)
		return errno;
	close_others();
	return 0;
}

NOT_WATCHED static int be_born(void *arg)
{
	struct { void *handler; uint64_t flags; void *restorer; uint64_t mask; } by_default = { 0 };
	struct birth *b = arg;
	char *const argv[] = { "sluice-worker", b->starter, NULL };
	char *const envp[] = { NULL };

	for (int s = 1; s <= SIGNALS; s++) /* an ignored signal would stay ignored after exec */
		syscall(SYS_rt_sigaction, s, &by_default, NULL, sizeof(uint64_t));
	b->error = arrange_descriptors(b);
	if (!b->error) {
		set_mask(0, NULL);
		syscall(SYS_execve, b->path, argv, envp);
		b->error = errno;
	}
	syscall(SYS_exit, 127);
	return 127;
}

NOT_WATCHED static int be_between(void *arg)
{
	struct birth *b = arg;

	b->pid = b->clone(be_born, b->stack + STACK_BYTES, CLONE_VM | CLONE_VFORK, b);
	if (b->pid < 0)
		b->error = errno;
	syscall(SYS_exit, 0);
	return 0;
}

/* ---- finding the program ------------------------------------------------------------------- */

static int find_program(char *out, size_t cap, char *reason, size_t reason_cap)
{
	static const char *const places[] = { WORKER_FROM_LIB, WORKER_FROM_BIN, WORKER_FROM_BUILD };
	char folder[PATH_MAX];

	for (size_t i = 0; i < BASE_ARRAY_LEN(places) && !os_own_folder(folder, sizeof folder); i++)
		if (snprintf(out, cap, "%s/%s", folder, places[i]) < (int)cap && !access(out, X_OK))
			return 0;
	snprintf(reason, reason_cap, "sluice-worker does not exist or cannot be executed");
	return -ENOENT;
}

/* Returns: 0 with the path of the worker's program; -errno: none can be started. */
static int probe(char *out_path, size_t path_cap, char *reason, size_t cap)
{
	if (getauxval(AT_SECURE)) {
		snprintf(reason, cap, "this process has more privileges than its user");
		return -EPERM;
	}
	if (base_fault("worker_start")) {
		snprintf(reason, cap, "it cannot be started (injected)");
		return -EAGAIN;
	}
	return find_program(out_path, path_cap, reason, cap);
}

/* ---- starting ---------------------------------------------------------------------------- */

int worker_spawn(int listener, int page, char *reason, size_t cap)
{
	struct birth *b = NULL;
	char path[PATH_MAX];
	uint64_t before;
	int between, ret = probe(path, sizeof path, reason, cap);

	if (ret)
		return ret;
	if (posix_memalign((void **)&b, 64, sizeof *b)) {
		snprintf(reason, cap, "out of memory");
		return -ENOMEM;
	}
	/* libc's clone(): the guard's would treat the child as one of the program's */
	*b = (struct birth){ .path = path, .listener = listener, .page = page,
			     .clone = (clone_call *)dlsym(RTLD_NEXT, "clone") };
	snprintf(b->starter, sizeof b->starter, "%d", (int)getpid());
	/* no handler of the program may run in the child, in this process's memory */
	set_mask(~0ull, &before);
	between = b->clone(be_between, b->stack_between + STACK_BYTES, CLONE_VM | CLONE_VFORK, b);
	ret = between < 0 ? -errno : b->error ? -b->error : b->pid ? b->pid : -ECHILD;
	set_mask(before, NULL);
	while (between > 0 && syscall(SYS_wait4, between, NULL, WAIT_CLONE, NULL) < 0 &&
	       errno == EINTR)
		;
	if (ret != -ECHILD) /* else somebody has killed it: its child may still be on its stack */
		free(b);
	if (ret < 0)
		snprintf(reason, cap, "%s cannot be started: %s", path, strerror(-ret));
	return ret;
}
