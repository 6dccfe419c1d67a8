/* SPDX-License-Identifier: BSD-3-Clause */
/* The system calls of x86-64, in groups. */
#include <sys/mman.h>
#include <sys/syscall.h>

#include "sud/calls.h"

/* Newer than the headers of old systems. */
#define NR_epoll_pwait2  441
#define NR_openat2       437
#define NR_faccessat2    439
#define NR_pidfd_open    434
#define NR_pidfd_getfd   438
#define NR_close_range   436
#define NR_fchmodat2     452

#define ONE(kind, a, bytes)      { CALLS_##kind, a, CALLS_FIXED, bytes }
#define MANY(kind, a, n, bytes)  { CALLS_##kind, a, n, bytes }
#define IN(a, n)      MANY(IN, a, n, 1)
#define OUT(a, n)     MANY(OUT, a, n, 1)
#define IN_B(a, b)    ONE(IN, a, b)
#define OUT_B(a, b)   ONE(OUT, a, b)
#define STR(a)        ONE(STRING, a, 0)
#define PAGES(a, n)   MANY(PAGES, a, n, 1)
#define SET(a)        ONE(SET, a, 8)
#define PASS(...)     { CALLS_PASS, { __VA_ARGS__ } }
#define HARMLESS      { CALLS_PASS, { { 0 } } }
#define NAME(call, a) [SYS_##call] = PASS(STR(a))
#define AREA(call)    [SYS_##call] = PASS(PAGES(0, 1))
#define NONE(call)    [SYS_##call] = HARMLESS /* no memory of the caller */

const struct calls_entry calls_table[] = {
	/* bytes in and out */
	[SYS_read] = PASS(OUT(1, 2)),
	[SYS_write] = PASS(IN(1, 2)),
	[SYS_pread64] = PASS(OUT(1, 2)),
	[SYS_pwrite64] = PASS(IN(1, 2)),
	[SYS_readv] = PASS(MANY(IOV_OUT, 1, 2, 0)),
	[SYS_writev] = PASS(MANY(IOV_IN, 1, 2, 0)),
	[SYS_preadv] = PASS(MANY(IOV_OUT, 1, 2, 0)),
	[SYS_pwritev] = PASS(MANY(IOV_IN, 1, 2, 0)),
	[SYS_preadv2] = PASS(MANY(IOV_OUT, 1, 2, 0)),
	[SYS_pwritev2] = PASS(MANY(IOV_IN, 1, 2, 0)),
	[SYS_sendfile] = PASS(OUT_B(2, 8)),
	[SYS_splice] = PASS(OUT_B(1, 8), OUT_B(3, 8)),
	[SYS_vmsplice] = PASS(MANY(IOV_OUT, 1, 2, 0)), /* either way, by the descriptor */
	[SYS_copy_file_range] = PASS(OUT_B(1, 8), OUT_B(3, 8)),
	[SYS_getrandom] = PASS(OUT(0, 1)),
	[SYS_process_vm_readv] = PASS(MANY(IOV_OUT, 1, 2, 0), MANY(IOV_IN, 3, 4, 0)),
	[SYS_process_vm_writev] = PASS(MANY(IOV_IN, 1, 2, 0), MANY(IOV_OUT, 3, 4, 0)),
	NONE(tee),

	/* sockets */
	[SYS_connect] = PASS(IN(1, 2)),
	[SYS_accept] = PASS(MANY(SIZED_OUT, 1, 2, 0)),
	[SYS_accept4] = PASS(MANY(SIZED_OUT, 1, 2, 0)),
	[SYS_sendto] = PASS(IN(1, 2), IN(4, 5)),
	[SYS_recvfrom] = PASS(OUT(1, 2), MANY(SIZED_OUT, 4, 5, 0)),
	[SYS_sendmsg] = PASS(ONE(MSG_IN, 1, 0)),
	[SYS_recvmsg] = PASS(ONE(MSG_OUT, 1, 0)),
	[SYS_sendmmsg] = PASS(MANY(MMSG_IN, 1, 2, 0)),
	[SYS_recvmmsg] = PASS(MANY(MMSG_OUT, 1, 2, 0), OUT_B(4, 16)),
	[SYS_bind] = PASS(IN(1, 2)),
	[SYS_getsockname] = PASS(MANY(SIZED_OUT, 1, 2, 0)),
	[SYS_getpeername] = PASS(MANY(SIZED_OUT, 1, 2, 0)),
	[SYS_socketpair] = PASS(OUT_B(3, 8)),
	[SYS_setsockopt] = PASS(IN(3, 4)),
	[SYS_getsockopt] = PASS(MANY(SIZED_OUT, 3, 4, 0)),
	NONE(socket), NONE(shutdown), NONE(listen),

	/* waiting */
	[SYS_poll] = PASS(MANY(OUT, 0, 1, 8)),
	[SYS_ppoll] = PASS(MANY(OUT, 0, 1, 8), OUT_B(2, 16), SET(3)),
	[SYS_select] =
		PASS(MANY(BITS, 1, 0, 0), MANY(BITS, 2, 0, 0), MANY(BITS, 3, 0, 0), OUT_B(4, 16)),
	[SYS_pselect6] = PASS(MANY(BITS, 1, 0, 0), MANY(BITS, 2, 0, 0), MANY(BITS, 3, 0, 0),
			      OUT_B(4, 16), IN_B(5, 16)),
	[SYS_epoll_ctl] = PASS(IN_B(3, 12)),
	[SYS_epoll_wait] = PASS(MANY(OUT, 1, 2, 12)),
	[SYS_epoll_pwait] = PASS(MANY(OUT, 1, 2, 12), SET(4)),
	[NR_epoll_pwait2] = PASS(MANY(OUT, 1, 2, 12), IN_B(3, 16), SET(4)),
	[SYS_futex] =
		PASS(OUT_B(0, 4), IN_B(3, 16), OUT_B(4, 4)), /* 3 may be a count: no address then */
	[SYS_nanosleep] = PASS(IN_B(0, 16), OUT_B(1, 16)),
	[SYS_clock_nanosleep] = PASS(IN_B(2, 16), OUT_B(3, 16)),
	[SYS_wait4] = PASS(OUT_B(1, 4), OUT_B(3, 144)),
	[SYS_waitid] = PASS(OUT_B(2, 128), OUT_B(4, 144)),
	[SYS_semop] = PASS(MANY(IN, 1, 2, 6)),
	[SYS_semtimedop] = PASS(MANY(IN, 1, 2, 6), IN_B(3, 16)),
	[SYS_msgsnd] = PASS(IN_B(1, 8), IN(1, 2), IN_B(1, 4096)),
	[SYS_msgrcv] = PASS(OUT_B(1, 8), OUT(1, 2), OUT_B(1, 4096)),
	[SYS_mq_open] = PASS(STR(0), IN_B(3, 64)),
	[SYS_mq_timedsend] = PASS(IN(1, 2), IN_B(4, 16)),
	[SYS_mq_timedreceive] = PASS(OUT(1, 2), OUT_B(3, 4), IN_B(4, 16)),
	[SYS_mq_getsetattr] = PASS(IN_B(1, 64), OUT_B(2, 64)),
	NAME(mq_unlink, 0),
	NONE(epoll_create), NONE(epoll_create1), NONE(eventfd), NONE(eventfd2), NONE(pause),
	NONE(sched_yield), NONE(semget), NONE(msgget),

	/* signals */
	[SYS_rt_sigaction] = { CALLS_ACTION, { IN_B(1, 32), OUT_B(2, 32) } },
	[SYS_rt_sigprocmask] = { CALLS_MASK, { IN_B(1, 8), OUT_B(2, 8) } },
	[SYS_rt_sigpending] = PASS(OUT(0, 1)),
	[SYS_rt_sigtimedwait] = PASS(IN_B(0, 8), OUT_B(1, 128), IN_B(2, 16)),
	[SYS_rt_sigqueueinfo] = PASS(IN_B(2, 128)),
	[SYS_rt_tgsigqueueinfo] = PASS(IN_B(3, 128)),
	[SYS_rt_sigsuspend] = PASS(SET(0)),
	[SYS_sigaltstack] = PASS(IN_B(0, 24), OUT_B(1, 24)),
	[SYS_signalfd] = PASS(IN_B(1, 8)),
	[SYS_signalfd4] = PASS(IN_B(1, 8)),
	[SYS_getitimer] = PASS(OUT_B(1, 32)),
	[SYS_setitimer] = PASS(IN_B(1, 32), OUT_B(2, 32)),
	[SYS_timer_create] = PASS(IN_B(1, 64), OUT_B(2, 4)),
	[SYS_timer_settime] = PASS(IN_B(2, 32), OUT_B(3, 32)),
	[SYS_timer_gettime] = PASS(OUT_B(1, 32)),
	[SYS_timerfd_settime] = PASS(IN_B(2, 32), OUT_B(3, 32)),
	[SYS_timerfd_gettime] = PASS(OUT_B(1, 32)),
	[SYS_pidfd_send_signal] = PASS(IN_B(2, 128)),
	NONE(rt_sigreturn), NONE(kill), NONE(tkill), NONE(tgkill), NONE(alarm),
	NONE(timer_getoverrun), NONE(timer_delete), NONE(timerfd_create),

	/* files by name */
	[NR_openat2] = PASS(STR(1), IN(2, 3)),
	[SYS_stat] = PASS(STR(0), OUT_B(1, 144)),
	[SYS_lstat] = PASS(STR(0), OUT_B(1, 144)),
	[SYS_newfstatat] = PASS(STR(1), OUT_B(2, 144)),
	[SYS_statx] = PASS(STR(1), OUT_B(4, 256)),
	[SYS_statfs] = PASS(STR(0), OUT_B(1, 120)),
	[NR_faccessat2] = PASS(STR(1)),
	[SYS_rename] = PASS(STR(0), STR(1)),
	[SYS_renameat] = PASS(STR(1), STR(3)),
	[SYS_renameat2] = PASS(STR(1), STR(3)),
	[SYS_link] = PASS(STR(0), STR(1)),
	[SYS_linkat] = PASS(STR(1), STR(3)),
	[SYS_symlink] = PASS(STR(0), STR(1)),
	[SYS_symlinkat] = PASS(STR(0), STR(2)),
	[SYS_readlink] = PASS(STR(0), OUT(1, 2)),
	[SYS_readlinkat] = PASS(STR(1), OUT(2, 3)),
	[NR_fchmodat2] = PASS(STR(1)),
	[SYS_utime] = PASS(STR(0), IN_B(1, 16)),
	[SYS_utimes] = PASS(STR(0), IN_B(1, 32)),
	[SYS_futimesat] = PASS(STR(1), IN_B(2, 32)),
	[SYS_utimensat] = PASS(STR(1), IN_B(2, 32)),
	[SYS_setxattr] = PASS(STR(0), STR(1), IN(2, 3)),
	[SYS_lsetxattr] = PASS(STR(0), STR(1), IN(2, 3)),
	[SYS_fsetxattr] = PASS(STR(1), IN(2, 3)),
	[SYS_getxattr] = PASS(STR(0), STR(1), OUT(2, 3)),
	[SYS_lgetxattr] = PASS(STR(0), STR(1), OUT(2, 3)),
	[SYS_fgetxattr] = PASS(STR(1), OUT(2, 3)),
	[SYS_listxattr] = PASS(STR(0), OUT(1, 2)),
	[SYS_llistxattr] = PASS(STR(0), OUT(1, 2)),
	[SYS_flistxattr] = PASS(OUT(1, 2)),
	[SYS_removexattr] = PASS(STR(0), STR(1)),
	NAME(open, 0), NAME(creat, 0), NAME(access, 0), NAME(truncate, 0), NAME(chdir, 0),
	NAME(mkdir, 0), NAME(rmdir, 0), NAME(unlink, 0), NAME(chmod, 0), NAME(chown, 0),
	NAME(lchown, 0), NAME(mknod, 0), NAME(memfd_create, 0),
	NAME(openat, 1), NAME(faccessat, 1), NAME(mkdirat, 1), NAME(unlinkat, 1), NAME(fchmodat, 1),
	NAME(fchownat, 1), NAME(mknodat, 1), NAME(inotify_add_watch, 1),

	/* descriptors */
	[NR_close_range] = HARMLESS,
	[SYS_fstat] = PASS(OUT_B(1, 144)),
	[SYS_fstatfs] = PASS(OUT_B(1, 120)),
	[SYS_pipe] = PASS(OUT_B(0, 8)),
	[SYS_pipe2] = PASS(OUT_B(0, 8)),
	[SYS_fcntl] = PASS(OUT_B(2, 32)), /* may be a number: no address then */
	[SYS_ioctl] = { CALLS_IOCTL, { OUT_B(2, 256) } },
	[SYS_getdents] = PASS(OUT(1, 2)),
	[SYS_getdents64] = PASS(OUT(1, 2)),
	[SYS_getcwd] = PASS(OUT(0, 1)),
	[NR_pidfd_open] = HARMLESS,
	[NR_pidfd_getfd] = HARMLESS,
	NONE(close), NONE(lseek), NONE(dup), NONE(dup2), NONE(dup3), NONE(flock), NONE(fsync),
	NONE(fdatasync), NONE(sync), NONE(syncfs), NONE(sync_file_range), NONE(ftruncate),
	NONE(fallocate), NONE(fadvise64), NONE(readahead), NONE(fchdir), NONE(fchmod), NONE(fchown),
	NONE(umask), NONE(inotify_init), NONE(inotify_init1), NONE(inotify_rm_watch),

	/* address space */
	[SYS_mmap] = PASS({ CALLS_PAGES_IF, 0, 1, MAP_FIXED }),
	[SYS_mremap] = PASS(PAGES(0, 1), { CALLS_PAGES_IF, 4, 2, MREMAP_FIXED }),
	[SYS_mincore] = PASS(PAGES(0, 1), OUT(2, 1)), /* its vector is shorter */
	[SYS_mbind] = PASS(PAGES(0, 1), IN_B(3, 1024)),
	[SYS_brk] = HARMLESS, /* the heap's end: its memory was freed before */
	AREA(munmap), AREA(mprotect), AREA(pkey_mprotect), AREA(madvise), AREA(msync), AREA(mlock),
	AREA(mlock2), AREA(munlock),
	NONE(pkey_alloc), NONE(pkey_free),

	/* who, when, how much */
	[SYS_exit] = HARMLESS, /* of one thread */
	[SYS_getresuid] = PASS(OUT_B(0, 4), OUT_B(1, 4), OUT_B(2, 4)),
	[SYS_getresgid] = PASS(OUT_B(0, 4), OUT_B(1, 4), OUT_B(2, 4)),
	[SYS_getgroups] = PASS(MANY(OUT, 1, 0, 4)),
	[SYS_uname] = PASS(OUT_B(0, 390)),
	[SYS_sysinfo] = PASS(OUT_B(0, 112)),
	[SYS_times] = PASS(OUT_B(0, 32)),
	[SYS_time] = PASS(OUT_B(0, 8)),
	[SYS_gettimeofday] = PASS(OUT_B(0, 16), OUT_B(1, 8)),
	[SYS_clock_gettime] = PASS(OUT_B(1, 16)),
	[SYS_clock_getres] = PASS(OUT_B(1, 16)),
	[SYS_getrusage] = PASS(OUT_B(1, 144)),
	[SYS_getrlimit] = PASS(OUT_B(1, 16)),
	[SYS_setrlimit] = PASS(IN_B(1, 16)),
	[SYS_prlimit64] = PASS(IN_B(2, 16), OUT_B(3, 16)),
	[SYS_getcpu] = PASS(OUT_B(0, 4), OUT_B(1, 4)),
	[SYS_sched_getaffinity] = PASS(OUT(2, 1)),
	[SYS_sched_setaffinity] = PASS(IN(2, 1)),
	[SYS_sched_getparam] = PASS(OUT_B(1, 4)),
	[SYS_sched_setparam] = PASS(IN_B(1, 4)),
	[SYS_sched_setscheduler] = PASS(IN_B(2, 4)),
	[SYS_get_mempolicy] = PASS(OUT_B(0, 4), OUT_B(1, 1024)),
	[SYS_arch_prctl] = PASS(OUT_B(1, 8)),
	[SYS_prctl] = PASS(OUT_B(1, 4096), OUT_B(2, 4096), OUT_B(3, 4096), OUT_B(4, 4096)),
	[SYS_get_robust_list] = PASS(OUT_B(1, 8), OUT_B(2, 8)),
	NONE(getpid), NONE(getppid), NONE(gettid), NONE(getuid), NONE(geteuid), NONE(getgid),
	NONE(getegid), NONE(getpgid), NONE(getpgrp), NONE(getsid), NONE(setpgid), NONE(setsid),
	NONE(getpriority), NONE(setpriority), NONE(sched_getscheduler),
	NONE(sched_get_priority_max), NONE(sched_get_priority_min), NONE(set_tid_address),
	NONE(set_robust_list), NONE(membarrier), NONE(rseq),
};

const long calls_count = sizeof(calls_table) / sizeof(calls_table[0]);
