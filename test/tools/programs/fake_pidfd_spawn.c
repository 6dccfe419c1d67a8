/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of glibc 2.39, by those that every libc has. */
#include <dlfcn.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

__typeof__(posix_spawn) pidfd_spawn, pidfd_spawnp;

static int spawn(const char *next, int *pidfd, const char *name,
		 const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
		 char *const argv[], char *const envp[])
{
	/* not libsluice.so's, which would do what is tested */
	__typeof__(&posix_spawn) real =
		(__typeof__(&posix_spawn))dlsym(dlopen("libc.so.6", RTLD_LAZY), next);
	pid_t pid;
	int rc = real(&pid, name, actions, attr, argv, envp);

	if (!rc)
		*pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	return rc;
}

int pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *actions,
		const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	return spawn("posix_spawn", pidfd, path, actions, attr, argv, envp);
}

int pidfd_spawnp(int *pidfd, const char *file, const posix_spawn_file_actions_t *actions,
		 const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	return spawn("posix_spawnp", pidfd, file, actions, attr, argv, envp);
}
