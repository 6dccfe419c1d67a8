/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exec_by HOW PROGRAM [ARGUMENT]: runs `PROGRAM ARGUMENT` by the function HOW. With "vfork:HOW" in
 * a vfork child, after which the parent's environment must be as it was.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* fake_pidfd_spawn.c, as libc has them from glibc 2.39 on only */
__typeof__(posix_spawn) pidfd_spawn, pidfd_spawnp;

static int spawn_pidfd(const char *how, char **argv)
{
	int pidfd, rc = strcmp(how, "pidfd_spawn") == 0
				? pidfd_spawn(&pidfd, argv[0], NULL, NULL, argv, environ)
				: pidfd_spawnp(&pidfd, argv[0], NULL, NULL, argv, environ);
	siginfo_t si;

	if (rc || waitid(P_PIDFD, (id_t)pidfd, &si, WEXITED))
		return 99;
	return si.si_code == CLD_EXITED ? si.si_status : 98;
}

static int spawn(const char *how, char **argv)
{
	pid_t pid;
	int status;
	int rc = strcmp(how, "posix_spawn") == 0
			 ? posix_spawn(&pid, argv[0], NULL, NULL, argv, environ)
			 : posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);

	if (rc || waitpid(pid, &status, 0) != pid)
		return 99;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

static int exec_by(const char *how, char **argv)
{
	const char *file = argv[0], *arg = argv[1];

	if (strcmp(how, "execve") == 0)
		execve(file, argv, environ);
	else if (strcmp(how, "execv") == 0)
		execv(file, argv);
	else if (strcmp(how, "execvp") == 0)
		execvp(file, argv);
	else if (strcmp(how, "execvpe") == 0)
		execvpe(file, argv, environ);
	else if (strcmp(how, "execl") == 0)
		execl(file, argv[0], arg, (char *)NULL);
	else if (strcmp(how, "execlp") == 0)
		execlp(file, argv[0], arg, (char *)NULL);
	else if (strcmp(how, "execle") == 0)
		execle(file, argv[0], arg, (char *)NULL, environ);
	else if (strcmp(how, "fexecve") == 0)
		fexecve(open(file, O_RDONLY | O_CLOEXEC), argv, environ);
	else if (strcmp(how, "execveat") == 0)
		execveat(AT_FDCWD, file, argv, environ, 0);
	else if (strncmp(how, "posix_spawn", 11) == 0)
		return spawn(how, argv);
	else if (strncmp(how, "pidfd_spawn", 11) == 0)
		return spawn_pidfd(how, argv);
	fprintf(stderr, "%s %s: %s\n", how, file, strerror(errno));
	return errno == ENOENT ? 127 : 97;
}

int main(int argc, char **argv)
{
	char before[4096], *now;
	int status;
	pid_t pid;

	if (argc < 3)
		return 2;
	if (strncmp(argv[1], "vfork:", 6))
		return exec_by(argv[1], argv + 2);
	now = getenv("LD_PRELOAD");
	snprintf(before, sizeof(before), "%s", now ? now : "");
	pid = vfork();
	if (pid == 0)
		_exit(exec_by(argv[1] + 6, argv + 2));
	if (waitpid(pid, &status, 0) != pid)
		return 96;
	now = getenv("LD_PRELOAD");
	if (strcmp(before, now ? now : ""))
		return 95;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 94;
}
