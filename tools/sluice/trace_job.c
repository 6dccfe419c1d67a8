/* SPDX-License-Identifier: BSD-3-Clause */
#include "trace_job.h"

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

/* Returns: the process that started the ranks: the nearest ancestor that is no rank. */
static int launcher(void)
{
	const char *name = base_job_rank_name();
	int pid = getpid();

	while (name && pid > 1 && has_variable(pid, name))
		pid = parent_of(pid);
	return pid > 0 ? pid : getpid();
}

/* ---- the folder -------------------------------------------------------------------------- */

/* Rank 0 prints messages to the whole job. */
#define SAY_ONCE(...) (base_job_rank() > 0 ? (void)0 : tool_say(__VA_ARGS__))

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

int trace_job_join(char *folder, size_t cap)
{
	char path[PATH_MAX];
	int job = launcher(), ret;

	if (!folder[0])
		snprintf(folder, cap, "sluice-trace.%d", job);
	if (mkdir(folder, 0777) && errno != EEXIST) {
		SAY_ONCE("trace: cannot make the folder %s: %s", folder, strerror(errno));
		return TOOL_FAILED;
	}
	if (!realpath(folder, path) || strlen(path) >= cap) {
		SAY_ONCE("trace: cannot use the folder %s: %s", folder, strerror(errno));
		return TOOL_FAILED;
	}
	ret = claim(path, job);
	if (!ret)
		ret = lock_folder(path);
	if (ret == -EEXIST)
		SAY_ONCE("trace: %s holds the trace of another run; remove it or name another "
			 "folder with -o",
			 folder);
	else if (ret)
		SAY_ONCE("trace: cannot write in %s: %s", folder, strerror(-ret));
	strcpy(folder, path);
	return ret ? TOOL_FAILED : 0;
}

/* ---- the watcher ------------------------------------------------------------------------- */

static void wait_for(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	while (poll(&p, 1, -1) < 0 && errno == EINTR)
		;
}

static void detach_from_job(void)
{
	sigset_t none;

	setsid();
	prctl(PR_SET_NAME, "sluice-trace");
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
	detach_from_job();
	wait_for(pidfd);
	/* the shared lock is released first: of two processes that try at once one succeeds */
	if (flock(lock_fd, LOCK_EX | LOCK_NB))
		_exit(TOOL_DONE); /* another rank runs, or makes the report */
	_exit(report(folder));
}

int trace_job_watch(const char *folder, int (*report)(const char *folder))
{
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0), status;
	pid_t child = pidfd < 0 ? -1 : fork();

	if (child < 0) {
		SAY_ONCE("trace: cannot watch the program: %s; after it: sluice trace report %s",
			 strerror(errno), folder);
		return 0;
	}
	if (!child) { /* the watcher is an orphan, so that the program never waits for it */
		child = fork();
		if (!child)
			watch(pidfd, folder, report);
		_exit(child < 0);
	}
	close(pidfd);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return 0;
}
