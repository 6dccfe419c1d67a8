/* SPDX-License-Identifier: BSD-3-Clause */
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "os/os.h"
#include "tool.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static int lock_fd = -1;

/* ---- which job --------------------------------------------------------------------------- */

static int parent_of(int pid)
{
	char path[64], text[512];
	int parent = 0;
	char *end;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fgets(text, sizeof text, f) && (end = strrchr(text, ')')))
		sscanf(end, ") %*c %d", &parent);
	fclose(f);
	return parent;
}

/* Returns: true when the environment of the process has this variable and may be read. */
static bool has_variable(int pid, const char *name)
{
	size_t used = 0, cap = 1 << 20, length = strlen(name);
	char path[64], *text = malloc(cap);
	bool found = false;
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/environ", pid);
	fd = text ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (fd >= 0) {
		while (used < cap - 1 && (n = read(fd, text + used, cap - 1 - used)) > 0)
			used += (size_t)n;
		close(fd);
		text[used] = 0;
		for (char *v = text; v < text + used && !found; v += strlen(v) + 1)
			found = !strncmp(v, name, length) && v[length] == '=';
	}
	free(text);
	return found;
}

/* The nearest ancestor that is no rank. */
int job_launcher(void)
{
	const char *name = base_job_rank_name();
	int pid = getpid();

	while (name && pid > 1 && has_variable(pid, name))
		pid = parent_of(pid);
	return pid > 0 ? pid : getpid();
}

/* ---- the folder -------------------------------------------------------------------------- */

/* Returns: 0, -EEXIST (another job's folder) or -errno. */
static int claim(const char *folder, int job)
{
	char path[PATH_MAX], host[64] = "", mine[128], theirs[128] = "";
	int fd, ret = 0;
	ssize_t n;

	gethostname(host, sizeof host - 1);
	snprintf(path, sizeof path, "%s/job.%s", folder, host);
	snprintf(mine, sizeof mine, "%d started %llu\n", job,
		 (unsigned long long)os_process_start(job));
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX))
		ret = -errno;
	n = ret ? 0 : read(fd, theirs, sizeof theirs - 1);
	if (n < 0)
		ret = -errno;
	else if (n == 0 && !ret && write(fd, mine, strlen(mine)) < 0)
		ret = -errno;
	else if (n > 0 && strcmp(mine, theirs))
		ret = -EEXIST;
	close(fd);
	return ret;
}

static int lock_folder(const char *folder)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/lock", folder);
	lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (lock_fd < 0 || flock(lock_fd, LOCK_SH))
		return -errno;
	return 0;
}

int job_join(char *folder, size_t cap)
{
	char path[PATH_MAX];
	int ret;

	if ((mkdir(folder, 0777) && errno != EEXIST) || !realpath(folder, path))
		return -errno;
	if (strlen(path) >= cap)
		return -ENAMETOOLONG;
	ret = claim(path, job_launcher());
	if (!ret)
		ret = lock_folder(path);
	strcpy(folder, path);
	return ret;
}

/* ---- the watcher ------------------------------------------------------------------------- */

static void wait_for(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
}

/* A launcher sees by the end of its connections, such as MPICH's PMI_FD, that a rank has ended: the
 * watcher must not hold copies of them. Kernels before 5.9 have no close_range(). */
static void close_others(int pidfd)
{
	unsigned low = (unsigned)base_min_u64((unsigned)pidfd, (unsigned)lock_fd);
	unsigned high = (unsigned)base_max_u64((unsigned)pidfd, (unsigned)lock_fd);

	if (low > STDERR_FILENO + 1)
		syscall(SYS_close_range, STDERR_FILENO + 1, low - 1, 0);
	if (high > low + 1)
		syscall(SYS_close_range, low + 1, high - 1, 0);
	syscall(SYS_close_range, high + 1, ~0u, 0);
}

static void detach_from_job(int pidfd)
{
	sigset_t none;

	close_others(pidfd);
	setsid();
	prctl(PR_SET_NAME, "sluice-watch");
	for (int s = 1; s < NSIG; s++)
		signal(s, s == SIGHUP || s == SIGPIPE ? SIG_IGN : SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* a reader of the program's output waits for the program only */
	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	open("/dev/null", O_RDONLY);
	open("/dev/null", O_WRONLY);
}

static void watch(int pidfd, const char *folder, int (*report)(const char *folder))
{
	detach_from_job(pidfd);
	wait_for(pidfd);
	/* the shared lock is released first: of two processes that try at once one succeeds */
	if (flock(lock_fd, LOCK_EX | LOCK_NB))
		_exit(TOOL_DONE); /* another rank runs, or makes the report */
	_exit(report(folder));
}

int job_watch(const char *folder, int (*report)(const char *folder))
{
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0), status, ret = 0;
	pid_t child = pidfd < 0 ? -1 : fork();

	if (child < 0)
		ret = -errno;
	if (!child) { /* the watcher is an orphan, so that the program never waits for it */
		child = fork();
		if (!child)
			watch(pidfd, folder, report);
		_exit(child < 0);
	}
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (pidfd >= 0)
		close(pidfd);
	close(lock_fd); /* the watcher's */
	lock_fd = -1;
	return ret;
}
