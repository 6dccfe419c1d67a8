/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs a command on a machine that refuses things, as containers and administrators do:
 *
 *   restrict [deny=SYSCALL]... [absent=SYSCALL]... [nofile=N] [fsize=BYTES] [as=BYTES]
 * [memlock=BYTES] [uid=N] -- command...
 *
 * deny: the call fails with EPERM; absent: with ENOSYS. Some names are of one use of a call only:
 * userfaultfd_device (what opening the device is good for), dispatch (Syscall User Dispatch).
 */
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ANY_USE = -1 };

static const struct {
	const char *name;
	int number;
	int argument; /* only with `value` as this argument */
	unsigned value;
} calls[] = {
	{ "process_vm_readv", SYS_process_vm_readv, ANY_USE, 0 },
	{ "process_vm_writev", SYS_process_vm_writev, ANY_USE, 0 },
	{ "memfd_create", SYS_memfd_create, ANY_USE, 0 },
	{ "pidfd_open", SYS_pidfd_open, ANY_USE, 0 },
	{ "socket", SYS_socket, ANY_USE, 0 },
	{ "madvise", SYS_madvise, ANY_USE, 0 },
	{ "ptrace", SYS_ptrace, ANY_USE, 0 },
	{ "mbind", SYS_mbind, ANY_USE, 0 },
	{ "kcmp", SYS_kcmp, ANY_USE, 0 },
	{ "pidfd_getfd", SYS_pidfd_getfd, ANY_USE, 0 },
	{ "userfaultfd", SYS_userfaultfd, ANY_USE, 0 },
	{ "userfaultfd_device", SYS_ioctl, 1, 0xaa00 }, /* USERFAULTFD_IOC_NEW */
	{ "dispatch", SYS_prctl, 0, 59 },               /* PR_SET_SYSCALL_USER_DISPATCH */
};

static void die(const char *what)
{
	fprintf(stderr, "restrict: %s: %s\n", what, strerror(errno));
	exit(111);
}

static void refuse(const char *name, int error)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		bool any = calls[i].argument == ANY_USE;
		unsigned at =
			offsetof(struct seccomp_data, args) + 8 * (any ? 0 : calls[i].argument);
		struct sock_filter code[] = {
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i].number, 0, 3),
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),
			BPF_JUMP(BPF_JMP | (any ? BPF_JGE : BPF_JEQ) | BPF_K,
				 any ? 0 : calls[i].value, 0, 1),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		};
		struct sock_fprog program = { 6, code };

		if (strcmp(calls[i].name, name))
			continue;
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
			die("seccomp");
		return;
	}
	errno = EINVAL;
	die(name);
}

static void limit(int what, const char *value)
{
	struct rlimit l = { strtoull(value, NULL, 10), strtoull(value, NULL, 10) };

	if (setrlimit(what, &l))
		die(value);
}

static void become(const char *uid)
{
	if (setgroups(0, NULL) || setgid((gid_t)atoi(uid)) || setuid((uid_t)atoi(uid)))
		die("uid");
}

int main(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		char *value = strchr(argv[i], '=');

		if (!value)
			break;
		*value++ = 0;
		if (!strcmp(argv[i], "deny"))
			refuse(value, EPERM);
		else if (!strcmp(argv[i], "absent"))
			refuse(value, ENOSYS);
		else if (!strcmp(argv[i], "nofile"))
			limit(RLIMIT_NOFILE, value);
		else if (!strcmp(argv[i], "fsize"))
			limit(RLIMIT_FSIZE, value);
		else if (!strcmp(argv[i], "as"))
			limit(RLIMIT_AS, value);
		else if (!strcmp(argv[i], "memlock"))
			limit(RLIMIT_MEMLOCK, value);
		else if (!strcmp(argv[i], "uid"))
			become(value);
	}
	if (i + 1 >= argc || strcmp(argv[i], "--")) {
		fprintf(stderr, "usage: restrict [what=value]... -- command...\n");
		return 2;
	}
	execvp(argv[i + 1], argv + i + 1);
	die(argv[i + 1]);
}
