/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * exec, posix_spawn, pidfd_spawn: a program that cannot reach an MPI does not inherit our entry in
 * LD_PRELOAD. Other entries stay.
 *
 *   program --execve(path, argv, env)--> here --(path, argv, env or a copy without us)--> libc
 *
 * Context: also between vfork() and exec, in the parent's memory: the copy of the environment lies
 * on the stack, and nothing shared is written. A copy that is too large for a stack is not made;
 * the program then inherits the preload, which is harmless.
 *
 * system(), popen() and wordexp() start a shell inside libc; shells inherit the preload.
 *
 * With --endpoints a program that links an MPI library is executed by way of bin/sluice, which
 * makes it a rank of the address space or executes it: the user's wrapper script stands between.
 */
#include <alloca.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guard/guard.h"
#include "node/node.h"
#include "os/endpoint.h"
#include "preload/next.h"
#include "preload/preload.h"

#define COPY_MAX_BYTES ((size_t)128 << 10)
#define ARGS_MAX       ((size_t)16 << 10)

static const char preload_name[] = "LD_PRELOAD=";

/* ---- next functions ----------------------------------------------------------------- */

typedef __typeof__(posix_spawn) spawner;
spawner pidfd_spawn, pidfd_spawnp;
int execveat(int folder, const char *path, char *const argv[], char *const env[], int flags);

static struct {
	__typeof__(&execve) execve;
	__typeof__(&execvpe) execvpe;
	__typeof__(&fexecve) fexecve;
	__typeof__(&execveat) execveat;
	spawner *posix_spawn, *posix_spawnp, *pidfd_spawn, *pidfd_spawnp;
} next;

/* Completes pending operations first; the new program inherits the program's own signal state. */
#define GUARDED(call)              \
	({                         \
		int ret_;          \
		guard_exec_begin(); \
		ret_ = (call);     \
		guard_exec_end();  \
		ret_;              \
	})

/* The program of this process ends, unless the call fails. */
#define REPLACED(call)             \
	({                         \
		int done_;         \
		node_exec_begin(); \
		done_ = GUARDED(call); \
		node_exec_failed(); \
		done_;             \
	})

/* Before the first fork: dlsym() takes locks. */
__attribute__((constructor, cold)) static void resolve_early(void)
{
	(void)NEXT(execve);
	(void)NEXT(execvpe);
	(void)NEXT(fexecve);
	(void)NEXT(execveat);
	(void)NEXT(posix_spawn);
	(void)NEXT(posix_spawnp);
	(void)NEXT(pidfd_spawn);
	(void)NEXT(pidfd_spawnp);
}

/* ---- the environment ---------------------------------------------------------------- */

/* Returns: bytes that env_without_us() needs; 0 when envp does not name us or the copy is too
 * large. */
__attribute__((cold)) static size_t env_copy_bytes(char *const *envp)
{
	size_t count = 0, value_bytes = 0, total;
	bool has_us = false;

	if (!envp)
		return 0;
	for (; envp[count]; count++) {
		if (strncmp(envp[count], preload_name, sizeof(preload_name) - 1))
			continue;
		value_bytes += strlen(envp[count]) + 1;
		has_us |= strstr(envp[count], PRELOAD_NAME) != NULL;
	}
	total = (count + 1) * sizeof(char *) + value_bytes;
	return has_us && total <= COPY_MAX_BYTES ? total : 0;
}

/* Makes the copy in `space` of env_copy_bytes(envp) bytes. */
__attribute__((cold)) static char *const *env_without_us(char *const *envp, void *space)
{
	char **copy = space, *text;
	size_t count = 0, n = 0;

	while (envp[count])
		count++;
	text = (char *)(copy + count + 1);
	for (size_t i = 0; i < count; i++) {
		size_t name_len = sizeof(preload_name) - 1;

		if (strncmp(envp[i], preload_name, name_len)) {
			copy[n++] = envp[i];
			continue;
		}
		memcpy(text, preload_name, name_len);
		if (!preload_without_sluice(envp[i] + name_len, text + name_len) || text[name_len])
			copy[n++] = text;
		text += strlen(text) + 1;
	}
	copy[n] = NULL;
	return copy;
}

/*
 * The environment for a program: envp, or a copy on the caller's stack. `keeps` is evaluated only
 * when envp names us. A macro, as alloca() has to be the caller's.
 */
#define ENV_FOR(envp, keeps)                                                                       \
	({                                                                                         \
		char *const *env_ = (envp);                                                        \
		size_t bytes_ = env_copy_bytes(env_);                                              \
		if (bytes_ && !(keeps))                                                            \
			env_ = env_without_us(env_, alloca(bytes_));                               \
		env_;                                                                              \
	})

__attribute__((cold)) static bool keeps_path(const char *path)
{
	int saved = errno;
	bool keeps = !path || preload_is_inherited(preload_target_of(path));

	errno = saved;
	return keeps;
}

/* PATH of this process, as libc's execvp takes it, not of the environment for the program. */
__attribute__((cold)) static const char *path_variable(void)
{
	for (char *const *e = environ; e && *e; e++)
		if (strncmp(*e, "PATH=", 5) == 0)
			return *e + 5;
	return NULL;
}

__attribute__((cold)) static bool keeps_file(const char *file)
{
	char path[PATH_MAX];
	int saved = errno;
	bool keeps = !file || preload_find_program(file, path_variable(), path, sizeof(path)) ||
		     keeps_path(path);

	errno = saved;
	return keeps;
}

__attribute__((cold)) static bool keeps_fd(int fd)
{
	int saved = errno;
	bool keeps = preload_is_inherited(preload_target_of_fd(fd, ""));

	errno = saved;
	return keeps;
}

/* ---- ranks behind wrapper scripts --------------------------------------------------- */

/*
 * Between vfork() and exec, where the C library's access() is ours as well. A debugger waits for
 * the program that it has asked for, in this process.
 */
__attribute__((cold)) static bool is_rank(const char *path)
{
	int saved = errno;
	bool is = !syscall(SYS_faccessat, AT_FDCWD, path, X_OK) &&
		  preload_target_of(path) == PRELOAD_TARGET_MPI && !os_is_traced();

	errno = saved;
	return is;
}

static const char *value_of(const char *entry, const char *name)
{
	size_t len = strlen(name);

	return strncmp(entry, name, len) || entry[len] != '=' ? NULL : entry + len + 1;
}

/* Returns: the path of bin/sluice in an entry of a wrapper's environment, or NULL. */
__attribute__((cold)) static const char *tool_of(const char *entry)
{
	const char *value = value_of(entry, ENDPOINT_VARIABLE);

	return value && *value == ENDPOINT_TOOL ? strchr(value, '/') : NULL;
}

/* With --endpoints this process is a wrapper whose programs may be ranks, if the environment says
 * so. Returns: bytes that tool_env() needs; 0: the program is executed as it is. */
__attribute__((cold))
static size_t tool_env_bytes(const char *path, char *const argv[], char *const envp[])
{
	size_t count = 0, bytes = 0;
	bool has_tool = false;

	if (!path || !argv || !argv[0])
		return 0;
	for (; envp && envp[count]; count++) {
		if (tool_of(envp[count])) {
			has_tool = true;
			bytes += strlen(envp[count]) + strlen(path) + 3;
		}
		if (value_of(envp[count], "LD_PRELOAD"))
			bytes += sizeof ENDPOINT_PRELOAD + strlen(envp[count]);
	}
	bytes += (count + 1) * sizeof(char *);
	return has_tool && bytes <= COPY_MAX_BYTES && is_rank(path) ? bytes : 0;
}

/* In `space` of tool_env_bytes() bytes: the environment for bin/sluice, which is to execute the
 * program and preloads nothing. */
__attribute__((cold))
static char *const *tool_env(const char *path, char *const envp[], void *space,
			     const char **out_tool)
{
	size_t count = 0;
	char **copy = space, *text;

	while (envp[count])
		count++;
	text = (char *)(copy + count + 1);
	for (size_t i = 0; i < count; i++) {
		const char *tool = tool_of(envp[i]), *id = envp[i] + sizeof ENDPOINT_VARIABLE + 1;
		const char *preload = value_of(envp[i], "LD_PRELOAD");

		copy[i] = tool || preload ? text : envp[i];
		if (tool) {
			*out_tool = tool;
			text = stpcpy(text, ENDPOINT_VARIABLE "=>");
			text = mempcpy(text, id, (size_t)(tool - id));
			*text++ = ' ';
			text = stpcpy(text, path) + 1;
		} else if (preload) {
			text = stpcpy(stpcpy(text, ENDPOINT_PRELOAD "="), preload) + 1;
		}
	}
	copy[count] = NULL;
	return copy;
}

/* Returns: 0 with the path that would be executed, or -errno. */
__attribute__((cold))
static int find_rank(const char *file, char *const envp[], char path[PATH_MAX])
{
	int saved = errno, rc = -ENOENT;

	for (; file && envp && *envp && rc; envp++)
		if (tool_of(*envp))
			rc = preload_find_program(file, path_variable(), path, PATH_MAX);
	errno = saved;
	return rc;
}

/* Evaluates `call` with the tool and the environment for it, in place of a rank's program.
 * Returns: its result; `failed` where the program is no rank. A macro, as alloca() has to be the
 * caller's. */
#define BY_TOOL(path, argv, envp, failed, call)                                                    \
	({                                                                                         \
		size_t size_ = tool_env_bytes(path, argv, envp);                                   \
		const char *tool = NULL;                                                           \
		char *const *env = size_ ? tool_env(path, envp, alloca(size_), &tool) : NULL;      \
		env ? (call) : (failed);                                                           \
	})

/* ---- hooks -------------------------------------------------------------------------- */

/* The kernel would execute the carrier by the link /proc/self/exe. */
static const char *executed(const char *path)
{
	const char *program = endpoint_program_at(path);

	return program ? program : path;
}

__attribute__((cold)) static int run_path(const char *path, char *const argv[], char *const envp[])
{
	path = executed(path);
	/* returns only where the tool cannot be executed */
	(void)BY_TOOL(path, argv, envp, 0, REPLACED(NEXT(execve)(tool, argv, env)));
	return REPLACED(NEXT(execve)(path, argv, ENV_FOR(envp, keeps_path(path))));
}

__attribute__((cold)) static int run_file(const char *file, char *const argv[], char *const envp[])
{
	char path[PATH_MAX];

	file = executed(file);
	if (!find_rank(file, envp, path))
		(void)BY_TOOL(path, argv, envp, 0, REPLACED(NEXT(execve)(tool, argv, env)));
	return REPLACED(NEXT(execvpe)(file, argv, ENV_FOR(envp, keeps_file(file))));
}

EXPORT int execve(const char *path, char *const argv[], char *const envp[])
{
	return run_path(path, argv, envp);
}

EXPORT int execv(const char *path, char *const argv[]) { return run_path(path, argv, environ); }

EXPORT int execvpe(const char *file, char *const argv[], char *const envp[])
{
	return run_file(file, argv, envp);
}

EXPORT int execvp(const char *file, char *const argv[]) { return run_file(file, argv, environ); }

EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
	return REPLACED(NEXT(fexecve)(fd, argv, ENV_FOR(envp, keeps_fd(fd))));
}

/* Checks descriptors and paths relative to the working directory; other programs inherit the
 * preload. */
__attribute__((cold)) static bool keeps_at(int dir_fd, const char *path, int flags)
{
	if (path && !path[0] && (flags & AT_EMPTY_PATH))
		return keeps_fd(dir_fd);
	return !path || (path[0] != '/' && dir_fd != AT_FDCWD) || keeps_path(path);
}

EXPORT int execveat(int dir_fd, const char *path, char *const argv[], char *const envp[], int flags)
{
	char *const *env = ENV_FOR(envp, keeps_at(dir_fd, path, flags));

	if (!NEXT(execveat)) /* libc before 2.34 */
		return (int)syscall(SYS_execveat, dir_fd, path, argv, env, flags);
	return REPLACED(NEXT(execveat)(dir_fd, path, argv, env, flags));
}

/* Spawns by path, or searches for `name` where `by_file` is given. *out: a pid or a pidfd. */
__attribute__((cold))
static int spawn(spawner *by_path, spawner *by_file, int *out, const char *name,
		 const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
		 char *const argv[], char *const envp[])
{
	char found[PATH_MAX];
	const char *path = name = executed(name);

	if (!by_path) /* a newer libc's function */
		return ENOSYS;
	if (by_file)
		path = find_rank(name, envp, found) ? NULL : found;
	if (!BY_TOOL(path, argv, envp, -1, GUARDED(by_path(out, tool, actions, attr, argv, env))))
		return 0;
	return GUARDED((by_file ? by_file : by_path)(
		out, name, actions, attr, argv,
		ENV_FOR(envp, by_file ? keeps_file(name) : keeps_path(name))));
}

EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
		       const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	return spawn(NEXT(posix_spawn), NULL, pid, path, actions, attr, argv, envp);
}

EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
			const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	return spawn(NEXT(posix_spawn), NEXT(posix_spawnp), pid, file, actions, attr, argv, envp);
}

/* glibc 2.39; spawn.h of older ones does not declare them. */
EXPORT int pidfd_spawn(int *pidfd, const char *path, const posix_spawn_file_actions_t *actions,
		       const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	return spawn(NEXT(pidfd_spawn), NULL, pidfd, path, actions, attr, argv, envp);
}

EXPORT int pidfd_spawnp(int *pidfd, const char *file, const posix_spawn_file_actions_t *actions,
			const posix_spawnattr_t *attr, char *const argv[], char *const envp[])
{
	return spawn(NEXT(pidfd_spawn), NEXT(pidfd_spawnp), pidfd, file, actions, attr, argv, envp);
}

/* ---- execl, execlp, execle: the arguments become an array on the stack -------------- */

/* Returns: how many arguments, with the NULL; 0 when they are too many for a stack. */
__attribute__((cold)) static size_t count_args(va_list args)
{
	size_t n = 2; /* the named one and the NULL */

	while (va_arg(args, char *))
		if (++n > ARGS_MAX)
			return 0;
	return n;
}

__attribute__((cold)) static void fill_args(char **argv, const char *first, va_list args)
{
	*argv = (char *)first;
	while (*argv++)
		*argv = va_arg(args, char *);
}

/* Declares argv in a variadic function. libc's headers declare `first` as not NULL. */
#define COLLECT_ARGS(argv, first)                                                                  \
	va_list args_;                                                                             \
	size_t argc_;                                                                              \
	char **argv;                                                                               \
	va_start(args_, first);                                                                    \
	argc_ = count_args(args_);                                                                 \
	va_end(args_);                                                                             \
	if (!argc_) {                                                                              \
		errno = E2BIG;                                                                     \
		return -1;                                                                         \
	}                                                                                          \
	argv = alloca(argc_ * sizeof(*argv));                                                      \
	va_start(args_, first);                                                                    \
	fill_args(argv, first, args_);                                                             \
	va_end(args_)

EXPORT int execl(const char *path, const char *arg, ...)
{
	COLLECT_ARGS(argv, arg);
	return run_path(path, argv, environ);
}

EXPORT int execlp(const char *file, const char *arg, ...)
{
	COLLECT_ARGS(argv, arg);
	return run_file(file, argv, environ);
}

EXPORT int execle(const char *path, const char *arg, ...)
{
	char *const *envp;

	COLLECT_ARGS(argv, arg);
	/* a va_list that another function has used may only be ended: read the arguments again */
	va_start(args_, arg);
	for (size_t i = 1; i < argc_; i++)
		(void)va_arg(args_, char *);
	envp = va_arg(args_, char *const *);
	va_end(args_);
	return run_path(path, argv, envp);
}
