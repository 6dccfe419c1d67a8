/* SPDX-License-Identifier: BSD-3-Clause */
/* System calls on guarded memory have their usual results, in the first and in another thread. */
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>

#include "system_case.h"

enum { PAGES = 16, AT = 3 * 4096 + 100, BYTES = 8192 };

/* Memory whose contents are complete only after a touch. */
static struct owner *arm_new(enum guard_access access)
{
	struct owner *o = malloc(sizeof(*o)); /* known until the process ends */

	owner_open(o, PAGES, 0);
	owner_arm(o, 0, PAGES, access);
	return o;
}

static void fill(char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)owner_byte(AT + i);
}

static void check_filled(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		CHECK_EQ((unsigned char)p[i], owner_byte(AT + i));
}

static int pipe_fds[2], pair[2], file;

static void open_all(void)
{
	CHECK_EQ(pipe(pipe_fds), 0);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	file = memfd_create("file", MFD_CLOEXEC);
	CHECK(file >= 0);
}

/* ---- the kernel reads -------------------------------------------------------------------- */

static ssize_t in_write(char *p) { return write(pipe_fds[1], p, BYTES); }
static ssize_t in_writev(char *p)
{
	struct iovec iov[3] = { { p, 100 }, { p + 100, 4000 }, { p + 4100, BYTES - 4100 } };

	return writev(pipe_fds[1], iov, 3);
}
static ssize_t in_send(char *p) { return send(pair[1], p, BYTES, 0); }
static ssize_t in_sendmsg(char *p)
{
	struct iovec iov = { p, BYTES };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };

	return sendmsg(pair[1], &h, 0);
}
static ssize_t in_sendmmsg(char *p)
{
	struct iovec iov[2] = { { p, 4096 }, { p + 4096, BYTES - 4096 } };
	struct mmsghdr h[2] = { { .msg_hdr = { .msg_iov = &iov[0], .msg_iovlen = 1 } },
				{ .msg_hdr = { .msg_iov = &iov[1], .msg_iovlen = 1 } } };

	return sendmmsg(pair[1], h, 2, 0) == 2 ? (ssize_t)h[0].msg_len + h[1].msg_len : -1;
}
static ssize_t in_pwrite(char *p) { return pwrite(file, p, BYTES, 0); }
static ssize_t in_pwritev(char *p)
{
	struct iovec iov = { p, BYTES };

	return pwritev(file, &iov, 1, 0);
}
static ssize_t in_fwrite(char *p)
{
	FILE *f = fdopen(dup(file), "w");
	ssize_t n = (ssize_t)fwrite(p, 1, BYTES, f);

	fclose(f);
	return n;
}
static ssize_t in_vmsplice(char *p)
{
	struct iovec iov = { p, BYTES };

	return vmsplice(pipe_fds[1], &iov, 1, 0);
}
static ssize_t in_process_vm(char *p)
{
	static char to[BYTES];
	struct iovec l = { to, BYTES }, r = { p, BYTES };
	ssize_t n = process_vm_readv(getpid(), &l, 1, &r, 1, 0);

	return n == BYTES ? pwrite(file, to, BYTES, 0) : n;
}

static const struct in_case {
	const char *name;
	ssize_t (*call)(char *p);
	int *from; /* where the bytes come out; NULL: the file */
} in_cases[] = {
	{ "write", in_write, &pipe_fds[0] },       { "writev", in_writev, &pipe_fds[0] },
	{ "send", in_send, &pair[0] },             { "sendmsg", in_sendmsg, &pair[0] },
	{ "sendmmsg", in_sendmmsg, &pair[0] },     { "pwrite", in_pwrite, NULL },
	{ "pwritev", in_pwritev, NULL },           { "fwrite", in_fwrite, NULL },
	{ "vmsplice", in_vmsplice, &pipe_fds[0] }, { "process_vm_readv", in_process_vm, NULL },
};

static void run_in_cases(void)
{
	static char got[BYTES];

	for (size_t i = 0; i < BASE_ARRAY_LEN(in_cases); i++) {
		struct owner *o = arm_new(GUARD_NO_ACCESS);
		ssize_t n = in_cases[i].call(o->p + AT);

		if (n != BYTES)
			unit_fail(__FILE__, __LINE__, "%s: %zd %s", in_cases[i].name, n,
				  strerror(errno));
		memset(got, 0, BYTES);
		n = in_cases[i].from ? recv(*in_cases[i].from, got, BYTES, MSG_WAITALL)
				     : pread(file, got, BYTES, 0);
		if (n < 0)
			n = read(*in_cases[i].from, got, BYTES);
		CHECK_EQ(n, BYTES);
		check_filled(got, BYTES);
		CHECK(atomic_load(&o->touches) > 0);
	}
}

/* ---- the kernel writes ------------------------------------------------------------------- */

static ssize_t out_read(char *p) { return read(pipe_fds[0], p, BYTES); }
static ssize_t out_readv(char *p)
{
	struct iovec iov[2] = { { p, 5000 }, { p + 5000, BYTES - 5000 } };

	return readv(pipe_fds[0], iov, 2);
}
static ssize_t out_recv(char *p) { return recv(pair[0], p, BYTES, 0); }
static ssize_t out_recvmsg(char *p)
{
	struct iovec iov = { p, BYTES };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };

	return recvmsg(pair[0], &h, 0);
}
static ssize_t out_recvmmsg(char *p)
{
	struct iovec iov = { p, BYTES };
	struct mmsghdr h = { .msg_hdr = { .msg_iov = &iov, .msg_iovlen = 1 } };

	return recvmmsg(pair[0], &h, 1, 0, NULL) == 1 ? (ssize_t)h.msg_len : -1;
}
static ssize_t out_pread(char *p) { return pread(file, p, BYTES, 0); }
static ssize_t out_preadv(char *p)
{
	struct iovec iov = { p, BYTES };

	return preadv(file, &iov, 1, 0);
}
static ssize_t out_fread(char *p)
{
	FILE *f = fdopen(dup(file), "r");
	ssize_t n;

	rewind(f);
	n = (ssize_t)fread(p, 1, BYTES, f);
	fclose(f);
	return n;
}

static const struct out_case {
	const char *name;
	ssize_t (*call)(char *p);
	int *to;
} out_cases[] = {
	{ "read", out_read, &pipe_fds[1] },  { "readv", out_readv, &pipe_fds[1] },
	{ "recv", out_recv, &pair[1] },      { "recvmsg", out_recvmsg, &pair[1] },
	{ "recvmmsg", out_recvmmsg, &pair[1] }, { "pread", out_pread, NULL },
	{ "preadv", out_preadv, NULL },      { "fread", out_fread, NULL },
};

static void run_out_cases(void)
{
	static char sent[BYTES];

	fill(sent, BYTES);
	for (size_t i = 0; i < BASE_ARRAY_LEN(out_cases); i++) {
		/* the owner's bytes differ: the kernel's have to be written last */
		struct owner *o = arm_new(i % 2 ? GUARD_NO_ACCESS : GUARD_READ_ONLY);
		ssize_t n;

		n = out_cases[i].to ? write(*out_cases[i].to, sent, BYTES)
				    : pwrite(file, sent, BYTES, 0);
		CHECK_EQ(n, BYTES);
		n = out_cases[i].call(o->p + AT - 50);
		if (n != BYTES)
			unit_fail(__FILE__, __LINE__, "%s: %zd %s", out_cases[i].name, n,
				  strerror(errno));
		check_filled(o->p + AT - 50, BYTES);
	}
}

/* ---- structures and strings -------------------------------------------------------------- */

static ssize_t get_getcwd(char *p) { return getcwd(p, 4096) ? 0 : -1; }
static ssize_t get_stat(char *p) { return stat("/", (struct stat *)p); }
static ssize_t get_uname(char *p) { return uname((struct utsname *)p); }
static ssize_t get_getrandom(char *p)
{
	return syscall(SYS_getrandom, p, BYTES, 0) == BYTES ? 0 : -1;
}
static ssize_t get_rusage(char *p) { return getrusage(RUSAGE_SELF, (struct rusage *)p); }
static ssize_t get_rlimit(char *p) { return getrlimit(RLIMIT_NOFILE, (struct rlimit *)p); }
static ssize_t get_pipe(char *p)
{
	return pipe((int *)p) || close(((int *)p)[0]) || close(((int *)p)[1]);
}
static ssize_t get_fionread(char *p) { return ioctl(pipe_fds[0], FIONREAD, p); }
/* The name of a mapping, which the kernel writes through a pointer in the request's structure. */
static ssize_t get_mapping(char *p)
{
	uint64_t query[13] = { sizeof query, 0, (uintptr_t)stdin, 0, 0, 0, 0, 0, 0, 0,
			       128, (uintptr_t)p };
	int fd = open("/proc/self/maps", O_RDONLY),
	    ret = ioctl(fd, _IOWR('f', 17, uint64_t[13]), query);

	close(fd);
	if (ret && errno == ENOTTY) /* before Linux 6.11 */
		return *(volatile char *)p * 0;
	return ret || *p != '/';
}
static ssize_t get_pages(char *p)
{
	uintptr_t page = base_round_down((uintptr_t)stdin, PAGE);
	uint64_t scan[12] = { sizeof scan, 0, page, page + PAGE, 0, (uintptr_t)p, 1, 0, 0, 8, 0,
			      8 /* PAGE_IS_PRESENT */ };
	int fd = open("/proc/self/pagemap", O_RDONLY),
	    ret = ioctl(fd, _IOWR('f', 16, uint64_t[12]), scan);

	close(fd);
	if (ret < 0 && errno == ENOTTY) /* before Linux 6.7 */
		return *(volatile char *)p * 0;
	return ret != 1 || *(uint64_t *)p != page;
}
static ssize_t get_sockname(char *p)
{
	*(socklen_t *)(p + 4096) = 100;
	return getsockname(pair[0], (struct sockaddr *)p, (socklen_t *)(p + 4096));
}
static ssize_t get_sockopt(char *p)
{
	socklen_t n = 4;

	return getsockopt(pair[0], SOL_SOCKET, SO_TYPE, p, &n) || *(int *)p != SOCK_STREAM;
}
static ssize_t get_poll(char *p)
{
	struct pollfd *f = (struct pollfd *)p;

	return syscall(SYS_poll, f, 100, 0) < 0 ? -1 : 0;
}
static ssize_t get_epoll(char *p)
{
	int fd = epoll_create1(0), ret;
	struct epoll_event e = { .events = EPOLLOUT, .data.u32 = 77 };

	epoll_ctl(fd, EPOLL_CTL_ADD, pipe_fds[1], &e);
	ret = epoll_wait(fd, (struct epoll_event *)p, 10, 1000) != 1 ||
	      ((struct epoll_event *)p)->data.u32 != 77;
	close(fd);
	return ret;
}
static ssize_t get_select(char *p)
{
	struct timeval t = { 0, 0 };

	return syscall(SYS_select, 64, p, p + 4096, NULL, &t) < 0 && errno == EFAULT ? -1 : 0;
}
static ssize_t get_time(char *p) { return syscall(SYS_clock_gettime, CLOCK_REALTIME, p); }
static ssize_t get_affinity(char *p)
{
	return syscall(SYS_sched_getaffinity, 0, 128, p) > 0 ? 0 : -1;
}
static ssize_t get_itimer(char *p) { return getitimer(ITIMER_PROF, (struct itimerval *)p); }
static ssize_t get_mask(char *p) { return syscall(SYS_rt_sigprocmask, 0, NULL, p, 8); }
static ssize_t get_futex(char *p)
{
	long ret = syscall(SYS_futex, p, FUTEX_WAIT, 1, NULL, NULL, 0);

	return ret == -1 && errno == EAGAIN ? 0 : -1;
}
static ssize_t get_nanosleep(char *p)
{
	long ret = syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, p, NULL);

	return ret == -1 && errno == EINVAL ? 0 : -1; /* the owner's bytes are no time */
}
static ssize_t get_path(char *p)
{
	struct stat st;

	return stat(p, &st) == -1 && errno != EFAULT ? 0 : -1;
}
static ssize_t get_iovec(char *p)
{
	return writev(pipe_fds[1], (struct iovec *)p, 1) == -1 && errno != EBADF ? 0 : -1;
}
static ssize_t get_unknown(char *p)
{
	return syscall(SYS_capget, p, NULL);
} /* asks for its version */
static ssize_t get_mincore(char *p)
{
	char v[2];

	return mincore((void *)base_round_down((uintptr_t)p, PAGE), PAGE, (void *)v);
}
static ssize_t get_mprotect(char *p)
{
	return syscall(SYS_mprotect, base_round_down((uintptr_t)p, PAGE), PAGE,
		       PROT_READ | PROT_WRITE);
}
static ssize_t get_madvise(char *p)
{
	return syscall(SYS_madvise, base_round_down((uintptr_t)p, PAGE), PAGE, MADV_NORMAL);
}

#define CASE(name) { #name, get_##name }
static const struct get_case {
	const char *name;
	ssize_t (*call)(char *p);
} get_cases[] = {
	CASE(getcwd),    CASE(stat),      CASE(uname),     CASE(getrandom), CASE(rusage),
	CASE(rlimit),    CASE(pipe),      CASE(fionread),  CASE(mapping),   CASE(pages),
	CASE(sockname),  CASE(sockopt),   CASE(poll),      CASE(epoll),     CASE(select),
	CASE(time),      CASE(affinity),  CASE(itimer),    CASE(mask),      CASE(futex),
	CASE(nanosleep), CASE(path),      CASE(iovec),     CASE(unknown),   CASE(mincore),
	CASE(mprotect),  CASE(madvise),
};

static void run_get_cases(void)
{
	for (size_t i = 0; i < BASE_ARRAY_LEN(get_cases); i++) {
		struct owner *o = arm_new(GUARD_NO_ACCESS);
		ssize_t ret = get_cases[i].call(o->p + AT + 4 /* aligned */);

		if (ret)
			unit_fail(__FILE__, __LINE__, "%s: %zd %s", get_cases[i].name, ret,
				  strerror(errno));
		CHECK(!guard_is_armed(&o->r));
		CHECK_EQ((unsigned char)o->p[AT - 1], owner_byte(AT - 1));
	}
}

static void *in_thread(void *fn)
{
	((void (*)(void))fn)();
	return NULL;
}

static void here_and_there(void (*fn)(void))
{
	pthread_t t;

	open_all();
	fn();
	CHECK_EQ(pthread_create(&t, NULL, in_thread, (void *)fn), 0);
	CHECK_EQ(pthread_join(t, NULL), 0);
	CHECK(atomic_load(&base_counters[BASE_CTR_DISPATCHED]) > 0);
}

SYSTEM_TEST(the_kernel_reads_guarded_memory) { here_and_there(run_in_cases); }
SYSTEM_TEST(the_kernel_writes_guarded_memory) { here_and_there(run_out_cases); }
SYSTEM_TEST(structures_and_strings_in_guarded_memory) { here_and_there(run_get_cases); }

/* ---- what completes nothing -------------------------------------------------------------- */

SYSTEM_TEST(calls_beside_guarded_memory_complete_nothing)
{
	struct owner *o;
	char here[64];
	struct os_vma v;
	struct stat st;
	void *p;

	open_all();
	o = arm_new(GUARD_NO_ACCESS);
	CHECK_EQ(os_vma_query(&open_all, &v), 0);
	CHECK_EQ(write(pipe_fds[1], "abc", 3), 3);
	CHECK_EQ(read(pipe_fds[0], here, 3), 3);
	CHECK(!memcmp(here, "abc", 3));
	CHECK_EQ(stat("/", &st), 0);
	CHECK(getcwd(here, sizeof(here)) != NULL);
	CHECK_EQ(syscall(SYS_futex, here, FUTEX_WAKE, 1, NULL, NULL, 0), 0);
	p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK_EQ(munmap(p, 1 << 20), 0);
	usleep(100);
	sched_yield();
	CHECK_EQ(syscall(SYS_restart_syscall), -1); /* as the kernel makes after SIGCONT */
	free(malloc(10 << 20));
	/* the pages on both sides are of the same mapping, and free */
	CHECK_EQ(pwrite(file, o->p - PAGE, PAGE, 0), (ssize_t)PAGE);
	CHECK_EQ(pwrite(file, o->p + PAGES * PAGE, PAGE, 0), (ssize_t)PAGE);
	CHECK_EQ(atomic_load(&o->touches), 0);
	CHECK(guard_is_armed(&o->r));
}

SYSTEM_TEST(reading_what_is_sent_completes_nothing)
{
	struct owner *o;

	open_all();
	o = arm_new(GUARD_READ_ONLY);
	CHECK_EQ(pwrite(file, o->p, PAGES * PAGE, 0), (ssize_t)(PAGES * PAGE));
	CHECK_EQ(atomic_load(&o->touches), 0);
	CHECK_EQ(pread(file, o->p, 10, 0), 10);
	CHECK_EQ(atomic_load(&o->touches), 1);
}

SYSTEM_TEST(bad_pointers_are_still_bad)
{
	char *wild = (char *)0x1230;
	struct owner *o;

	open_all();
	o = arm_new(GUARD_NO_ACCESS);
	errno = 0;
	CHECK(write(pipe_fds[1], wild, 10) == -1 && errno == EFAULT);
	errno = 0;
	CHECK(writev(pipe_fds[1], (struct iovec *)wild, 1) == -1 && errno == EFAULT);
	errno = 0;
	CHECK(syscall(SYS_recvmsg, pair[0], wild, MSG_DONTWAIT) == -1 && errno == EFAULT);
	errno = 0;
	CHECK(syscall(SYS_openat, AT_FDCWD, wild, O_RDONLY) == -1 && errno == EFAULT);
	errno = 0;
	CHECK(write(999, o->p, 10) == -1 && errno == EBADF);
	errno = 0;
	CHECK(syscall(9999) == -1 && errno == ENOSYS);
}

/* Code that a program has generated, without a page before it: nothing there may be read. */
SYSTEM_TEST(a_call_in_the_first_instruction_of_a_mapping_happens)
{
	static const unsigned char code[] = { 0x0f, 0x05, 0xc3 }; /* syscall; ret */
	char *p = mmap(NULL, 2 * OS_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	long ret = SYS_getppid;

	CHECK(p != MAP_FAILED);
	memcpy(p + OS_PAGE, code, sizeof(code));
	CHECK_EQ(mprotect(p + OS_PAGE, OS_PAGE, PROT_READ | PROT_EXEC), 0);
	CHECK_EQ(munmap(p, OS_PAGE), 0);
	arm_new(GUARD_NO_ACCESS);
	__asm__ volatile("call *%1" : "+a"(ret) : "r"(p + OS_PAGE) : "rcx", "r11", "memory");
	CHECK_EQ(ret, getppid());
}

/* ---- cost -------------------------------------------------------------------------------- */

/* The best of many short rounds, as the machine has other load. */
static double ns_per_call(void)
{
	enum { CALLS = 200, ROUNDS = 200 };
	uint64_t best = UINT64_MAX;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t t = os_now_ns();

		for (int i = 0; i < CALLS; i++)
			syscall(SYS_getppid);
		best = base_min_u64(best, os_now_ns() - t);
	}
	return (double)best / CALLS;
}

SYSTEM_TEST(what_it_costs_is_bounded)
{
	double idle = ns_per_call(), armed;
	struct owner *o = arm_new(GUARD_NO_ACCESS);

	armed = ns_per_call();
	printf("  a call: %.0f ns, %.0f ns with closed memory\n", idle, armed);
	CHECK(armed < 20000);
	CHECK(guard_is_armed(&o->r));
	CHECK_EQ(load(o->p), owner_byte(0));
	CHECK(ns_per_call() < armed); /* and not when all memory is open again */
}
