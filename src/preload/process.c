/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Functions that end the process, start others, or make system calls by number; exec and
 * posix_spawn are in exec.c. fork() is not interposed: region/ and sud/ have fork handlers
 * (pthread_atfork).
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <wordexp.h>

#include "guard/guard.h"
#include "message/message.h"
#include "os/os.h"
#include "preload/next.h"
#include "region/region.h"

#ifndef SYS_mseal /* Linux 6.10 */
#define SYS_mseal 462
#endif
int mseal(void *addr, size_t bytes, unsigned long flags);

static struct {
	int (*system)(const char *);
	FILE *(*popen)(const char *, const char *);
	int (*wordexp)(const char *, wordexp_t *, int);
	void (*exit)(int) __attribute__((noreturn));
	void (*_exit)(int) __attribute__((noreturn));
	void (*quick_exit)(int) __attribute__((noreturn));
	void (*abort)(void) __attribute__((noreturn));
	long (*syscall)(long, long, long, long, long, long, long);
} next;

EXPORT int system(const char *command)
{
	int ret;

	guard_exec_begin();
	ret = NEXT(system)(command);
	guard_exec_end();
	return ret;
}

EXPORT FILE *popen(const char *command, const char *mode)
{
	FILE *f;

	guard_exec_begin();
	f = NEXT(popen)(command, mode);
	guard_exec_end();
	return f;
}

EXPORT int wordexp(const char *words, wordexp_t *out, int flags)
{
	int ret;

	guard_exec_begin();
	ret = NEXT(wordexp)(words, out, flags);
	guard_exec_end();
	return ret;
}

EXPORT void exit(int status)
{
	guard_complete();
	NEXT(exit)(status);
}

EXPORT void _exit(int status)
{
	guard_complete();
	NEXT(_exit)(status);
}

EXPORT void _Exit(int status) { _exit(status); }

EXPORT void quick_exit(int status)
{
	guard_complete();
	NEXT(quick_exit)(status);
}

/* A handler of SIGABRT may jump out of abort(). */
EXPORT void abort(void)
{
	guard_complete();
	NEXT(abort)();
}

/* ---- by number --------------------------------------------------------------------------- */

/* With six arguments: the kernel ignores those that a call does not have. */
EXPORT long hook_syscall(long, long, long, long, long, long, long) __asm__("syscall");

static ssize_t read_by_number(pid_t pid, const struct iovec *local, unsigned long locals,
			      const struct iovec *remote, unsigned long remotes,
			      unsigned long flags)
{
	return NEXT(syscall)(SYS_process_vm_readv, pid, (long)local, (long)locals, (long)remote,
			     (long)remotes, (long)flags);
}

/* Is there no mask at this address? The kernel has the call then, and refuses it. */
__attribute__((noinline)) static bool is_unmapped(const uint64_t *at)
{
	uint64_t mask;

	return at && os_read_memory(at, &mask, sizeof mask) == -EFAULT;
}

__attribute__((noinline)) static long mask_by_number(int how, const uint64_t *set, uint64_t *old)
{
	sigset_t in = { { set ? *set : 0 } }, out;
	int ret = sigprocmask(how, set ? &in : NULL, &out);

	if (!ret && old)
		*old = out.__val[0];
	return ret;
}

/* A sealed mapping cannot be replaced: a region in it could not end when the process forks. */
EXPORT int mseal(void *addr, size_t bytes, unsigned long flags)
{
	region_exclude((uintptr_t)addr, base_round_up((uintptr_t)addr + bytes, OS_PAGE));
	return (int)NEXT(syscall)(SYS_mseal, (long)addr, (long)bytes, (long)flags, 0, 0, 0);
}

EXPORT long hook_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	uint64_t *set = (uint64_t *)b, *old = (uint64_t *)c;

	if (base_unlikely(nr == SYS_rt_sigprocmask && d == 8) && !is_unmapped(set) &&
	    !is_unmapped(old))
		return mask_by_number((int)a, set, old);
	if (base_unlikely(nr == SYS_process_vm_readv) &&
	    message_is_served(__builtin_return_address(0))) {
		struct message_read r = { (pid_t)a, (const struct iovec *)b, (unsigned long)c,
					  (const struct iovec *)d, (unsigned long)e,
					  (unsigned long)f, read_by_number };

		return message_read(&r);
	}
	if (base_unlikely(nr == SYS_process_madvise))
		return process_madvise((int)a, (const struct iovec *)b, (size_t)c, (int)d,
				       (unsigned)e);
	if (base_unlikely(nr == SYS_mseal))
		return mseal((void *)a, (size_t)b, (unsigned long)c);
	return NEXT(syscall)(nr, a, b, c, d, e, f);
}

/* ---- vfork and clone, which return twice or on another stack: x86_64/process.S ----------- */

void *interpose_next_vfork(void);
void *interpose_next_clone(void);

static void *next_vfork, *next_clone;

/* Before main(): dlsym() takes locks. */
__attribute__((constructor)) static void resolve_early(void)
{
	preload_next(&next_vfork, "vfork");
	preload_next(&next_clone, "clone");
	(void)NEXT(_exit);
	(void)NEXT(syscall);
}

void *interpose_next_vfork(void)
{
	guard_complete();
	return preload_next(&next_vfork, "vfork");
}

void *interpose_next_clone(void)
{
	guard_complete();
	return preload_next(&next_clone, "clone");
}
