/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * System calls that put their results into the buffer of a collective right after it, take their
 * arguments from it, or find addresses in it that lead on. Each is the first one in some trial.
 */
#include "early.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define DID(call)                                                                                  \
	do {                                                                                       \
		errno = 0;                                                                         \
		if ((long)(call) < 0)                                                              \
			check_fail("trial %d: %s: %s", t->index, #call, strerror(errno));          \
	} while (0)

/* `call` fills `bytes` at place `nr`; what it says is compared with what it says elsewhere. */
#define SAME_AS_ELSEWHERE(nr, type, p, call)                                                       \
	do {                                                                                       \
		type *p = early_at(t, nr), *in_buffer = p, elsewhere;                              \
		memset(&elsewhere, 0, sizeof(elsewhere));                                          \
		DID(call);                                                                         \
		early_keep(t, in_buffer, sizeof(type));                                            \
		p = &elsewhere;                                                                    \
		memcpy(p, in_buffer, sizeof(type));                                                \
		DID(call);                                                                         \
		early_same(t, in_buffer, &elsewhere, sizeof(type), #call);                         \
	} while (0)

/* ---- results ----------------------------------------------------------------------------- */

static void into_stat(struct trial *t)
{
	SAME_AS_ELSEWHERE(1, struct stat, p, stat("/", p));
}

static void into_fstat(struct trial *t)
{
	SAME_AS_ELSEWHERE(2, struct stat, p, fstat(1, p));
}

static void into_statx(struct trial *t)
{
	SAME_AS_ELSEWHERE(3, struct statx, p, statx(AT_FDCWD, "/", 0, STATX_BASIC_STATS, p));
}

static void into_uname(struct trial *t)
{
	SAME_AS_ELSEWHERE(4, struct utsname, p, uname(p));
}

static void into_rlimit(struct trial *t)
{
	SAME_AS_ELSEWHERE(5, struct rlimit, p, getrlimit(RLIMIT_NOFILE, p));
}

static void into_affinity(struct trial *t)
{
	SAME_AS_ELSEWHERE(6, cpu_set_t, p, sched_getaffinity(0, sizeof(*p), p));
}

static void into_sigaction(struct trial *t)
{
	SAME_AS_ELSEWHERE(7, struct sigaction, p, sigaction(SIGUSR2, NULL, p));
}

static void into_sigmask(struct trial *t)
{
	uint64_t *raw = early_at(t, 9), elsewhere = 0;

	SAME_AS_ELSEWHERE(8, sigset_t, p, sigprocmask(SIG_BLOCK, NULL, p));
	DID(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, raw, 8));
	early_keep(t, raw, 8);
	DID(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &elsewhere, 8));
	EXPECT(*raw == elsewhere);
}

static void into_ids(struct trial *t)
{
	uid_t *ids = early_at(t, 10);

	DID(getresuid(ids, ids + 1, ids + 2));
	EXPECT(ids[0] == getuid() && ids[1] == geteuid());
	early_keep(t, ids, 3 * sizeof(*ids));
}

BEHAVIOUR(calls_that_answer_with_a_structure, 2)
{
	static const trial_fn things[] = { into_stat,      into_fstat,   into_statx,
					   into_uname,     into_rlimit,  into_affinity,
					   into_sigaction, into_sigmask, into_ids };
	void all(struct trial *t) { EARLY_EACH(t, things); }

	early_trials(all);
}

static void into_getcwd(struct trial *t)
{
	char here[PAGE], *at = early_at(t, 11);

	EXPECT(getcwd(at, PAGE) == at);
	EXPECT(getcwd(here, PAGE) == here);
	early_same(t, at, here, strlen(here) + 1, "getcwd");
	memcpy(early_want(t, at), here, strlen(here) + 1);
}

static void into_readlink(struct trial *t)
{
	char here[PAGE], *at = early_at(t, 12);
	ssize_t n = readlink("/proc/self/exe", at, PAGE),
		m = readlink("/proc/self/exe", here, PAGE);

	EXPECT(n > 0 && n == m);
	if (n == m && n > 0) {
		early_same(t, at, here, (size_t)n, "readlink");
		memcpy(early_want(t, at), here, (size_t)n);
	}
}

static void into_getrandom(struct trial *t)
{
	char *at = early_at(t, 13), before[64];

	memcpy(before, early_want(t, at), sizeof(before));
	EXPECT(getrandom(at, sizeof(before), 0) == sizeof(before));
	EXPECT(memcmp(at, before, sizeof(before)));
	early_keep(t, at, sizeof(before));
}

static void into_clock(struct trial *t)
{
	struct timespec *at = early_at(t, 14), raw;

	DID(clock_gettime(CLOCK_MONOTONIC, at)); /* without a system call, as a rule */
	early_keep(t, at, sizeof(*at));
	DID(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &raw));
	EXPECT(raw.tv_sec - at->tv_sec < 20);
	at = early_at(t, 15);
	DID(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, at));
	EXPECT(at->tv_sec - raw.tv_sec < 20);
	early_keep(t, at, sizeof(*at));
}

static void into_time_of_day(struct trial *t)
{
	struct timeval *at = early_at(t, 16);
	struct rusage *used = early_at(t, 17);
	struct sysinfo *info = early_at(t, 18);

	DID(gettimeofday(at, NULL));
	early_keep(t, at, sizeof(*at));
	DID(getrusage(RUSAGE_SELF, used));
	EXPECT(used->ru_maxrss > 0);
	early_keep(t, used, sizeof(*used));
	DID(sysinfo(info));
	EXPECT(info->totalram > 0);
	early_keep(t, info, sizeof(*info));
}

static void into_ioctl(struct trial *t)
{
	int *at = early_at(t, 19), fds[2];

	EXPECT(!pipe(fds) && write(fds[1], "abcde", 5) == 5);
	DID(ioctl(fds[0], FIONREAD, at));
	EXPECT(*at == 5);
	early_keep(t, at, sizeof(*at));
	close(fds[0]);
	close(fds[1]);
}

static void into_pipe(struct trial *t)
{
	int *at = early_at(t, 20);

	DID(pipe(at));
	early_keep(t, at, 2 * sizeof(*at));
	EXPECT(write(at[1], "x", 1) == 1);
	close(at[0]);
	close(at[1]);
}

static void into_getdents(struct trial *t)
{
	int fd = open("/proc/self", O_RDONLY | O_DIRECTORY);
	char *at = early_at(t, 21);
	long n = syscall(SYS_getdents64, fd, at, 2000);

	if (n <= 0)
		check_fail("getdents64: %ld %s", n, strerror(errno));
	else
		early_keep(t, at, 2000);
	close(fd);
}

BEHAVIOUR(calls_that_answer_into_the_buffer, 2)
{
	static const trial_fn things[] = { into_getcwd, into_readlink, into_getrandom, into_clock,
					   into_time_of_day, into_ioctl, into_pipe, into_getdents };
	void all(struct trial *t) { EARLY_EACH(t, things); }

	early_trials(all);
}

static void into_socket_options(struct trial *t)
{
	int fds[2], *at = early_at(t, 22);
	socklen_t *length = early_at(t, 23);

	EXPECT(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds));
	*length = sizeof(*at);
	DID(getsockopt(fds[0], SOL_SOCKET, SO_TYPE, at, length));
	EXPECT(*at == SOCK_STREAM && *length == sizeof(*at));
	early_keep(t, at, sizeof(*at));
	early_keep(t, length, sizeof(*length));
	close(fds[0]);
	close(fds[1]);
}

static void into_poll(struct trial *t)
{
	struct pollfd *at = early_at(t, 24);
	int fds[2];

	EXPECT(!pipe(fds) && write(fds[1], "a", 1) == 1);
	*at = (struct pollfd){ .fd = fds[0], .events = POLLIN };
	DID(poll(at, 1, 1000));
	EXPECT(at->revents == POLLIN);
	early_keep(t, at, sizeof(*at));
	close(fds[0]);
	close(fds[1]);
}

static void into_epoll(struct trial *t)
{
	struct epoll_event *at = early_at(t, 25), e = { .events = EPOLLIN, .data.u64 = 77 };
	int fd = epoll_create1(0), event = eventfd(1, 0);

	DID(epoll_ctl(fd, EPOLL_CTL_ADD, event, &e));
	EXPECT(epoll_wait(fd, at, 1, 1000) == 1);
	EXPECT(at->data.u64 == 77);
	early_keep(t, at, sizeof(*at));
	close(fd);
	close(event);
}

static void into_select(struct trial *t)
{
	fd_set *at = early_at(t, 26);
	int fds[2];

	EXPECT(!pipe(fds) && write(fds[1], "a", 1) == 1);
	FD_ZERO(at);
	FD_SET(fds[0], at);
	EXPECT(select(fds[0] + 1, at, NULL, NULL, NULL) == 1);
	EXPECT(FD_ISSET(fds[0], at));
	early_keep(t, at, sizeof(*at));
	close(fds[0]);
	close(fds[1]);
}

static void into_wait(struct trial *t)
{
	int *at = early_at(t, 27);
	pid_t child = fork();

	if (!child)
		_exit(7);
	EXPECT(waitpid(child, at, 0) == child);
	EXPECT(WIFEXITED(*at) && WEXITSTATUS(*at) == 7);
	early_keep(t, at, sizeof(*at));
}

static void into_lock(struct trial *t)
{
	struct flock *at = early_at(t, 28);
	int fd = memfd_create("lock", 0);

	*at = (struct flock){ .l_type = F_WRLCK, .l_whence = SEEK_SET };
	DID(fcntl(fd, F_GETLK, at));
	EXPECT(at->l_type == F_UNLCK);
	early_keep(t, at, sizeof(*at));
	close(fd);
}

BEHAVIOUR(calls_that_take_and_answer, 2)
{
	static const trial_fn things[] = { into_socket_options, into_poll, into_epoll, into_select,
					   into_wait, into_lock };
	void all(struct trial *t) { EARLY_EACH(t, things); }

	early_trials(all);
}

/* ---- arguments: in place before the collective, which brings the same ones --------------- */

enum { PATH_AT = 20003, LINK_AT = 50001, TIME_AT = 70000, POLL_AT = 90000, NAME_AT = 110000 };

static void put(struct trial *t, size_t at, const void *from, size_t n)
{
	memcpy(t->want + at, from, n);
}

static void prepare_arguments(struct trial *t)
{
	struct timespec ts = { 0, 1000 };
	struct pollfd p = { .fd = -1 };

	put(t, PATH_AT, "/proc/self/status", 18);
	put(t, LINK_AT, "/proc/self/exe", 15);
	put(t, TIME_AT, &ts, sizeof(ts));
	put(t, POLL_AT, &p, sizeof(p));
	put(t, NAME_AT, "thread", 7);
}

static void from_open(struct trial *t)
{
	int fd = open(t->buf + PATH_AT, O_RDONLY);

	DID(fd);
	close(fd);
	fd = openat(AT_FDCWD, t->buf + PATH_AT, O_RDONLY);
	DID(fd);
	close(fd);
}

static void from_fopen(struct trial *t)
{
	FILE *f = fopen(t->buf + PATH_AT, "r");

	EXPECT(f);
	if (f)
		fclose(f);
}

static void from_stat(struct trial *t)
{
	struct stat s;

	DID(stat(t->buf + PATH_AT, &s));
	DID(access(t->buf + PATH_AT, R_OK));
}

static void from_readlink(struct trial *t)
{
	char text[PAGE];

	DID(readlink(t->buf + LINK_AT, text, sizeof(text)));
}

static void from_nanosleep(struct trial *t)
{
	struct timespec ts;

	memcpy(&ts, t->want + TIME_AT, sizeof(ts));
	EXPECT(ts.tv_nsec == 1000);
	DID(nanosleep((struct timespec *)(t->buf + TIME_AT), NULL));
}

static void from_ppoll(struct trial *t)
{
	DID(ppoll((struct pollfd *)(t->buf + POLL_AT), 1, (struct timespec *)(t->buf + TIME_AT),
		  NULL));
	early_keep(t, t->buf + POLL_AT, sizeof(struct pollfd));
}

static void from_prctl(struct trial *t)
{
	char before[20] = "", name[20] = "";

	prctl(PR_GET_NAME, before);
	DID(prctl(PR_SET_NAME, t->buf + NAME_AT));
	DID(prctl(PR_GET_NAME, name));
	EXPECT(!strcmp(name, "thread"));
	prctl(PR_SET_NAME, before);
}

static void from_futex(struct trial *t)
{
	uint32_t *word = early_at(t, 29), value;

	memcpy(&value, early_want(t, word), 4);
	errno = 0;
	EXPECT(syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value + 1, NULL, NULL, 0) < 0);
	if (errno != EAGAIN) /* the word is not what it is said to be */
		check_fail("futex: %s", strerror(errno));
	errno = 0;
	EXPECT(syscall(SYS_futex, word, FUTEX_WAIT, value, t->buf + TIME_AT, NULL, 0) < 0);
	if (errno != ETIMEDOUT)
		check_fail("futex: %s", strerror(errno));
	DID(syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0));
}

BEHAVIOUR(calls_with_arguments_in_the_buffer, 2)
{
	static const trial_fn things[] = { from_open, from_fopen, from_stat, from_readlink,
					   from_nanosleep, from_ppoll, from_prctl, from_futex };
	void all(struct trial *t) { EARLY_EACH(t, things); }

	early_trials_with(all, prepare_arguments, 0);
}

/* ---- addresses that lead on -------------------------------------------------------------- */

/* Header and vector outside, contents inside; then all of it inside. */
static void message_inside(struct trial *t)
{
	struct iovec *iov = early_at(t, 30);
	struct msghdr *m = early_at(t, 31);
	char *data = early_at(t, 32), got[300];
	int fds[2];

	EXPECT(!socketpair(AF_UNIX, SOCK_DGRAM, 0, fds));
	*iov = (struct iovec){ data, sizeof(got) };
	*m = (struct msghdr){ .msg_iov = iov, .msg_iovlen = 1 };
	early_keep(t, iov, sizeof(*iov));
	EXPECT(sendmsg(fds[0], m, 0) == sizeof(got));
	EXPECT(recv(fds[1], got, sizeof(got), 0) == sizeof(got));
	early_same(t, got, early_want(t, data), sizeof(got), "sendmsg");
	memset(got, 44, sizeof(got));
	EXPECT(send(fds[1], got, sizeof(got), 0) == sizeof(got));
	EXPECT(recvmsg(fds[0], m, 0) == sizeof(got));
	memset(early_want(t, data), 44, sizeof(got));
	early_keep(t, m, sizeof(*m));
	close(fds[0]);
	close(fds[1]);
}

static void many_messages(struct trial *t)
{
	struct iovec iov[2] = { { early_at(t, 33), 500 }, { early_at(t, 34), 700 } };
	struct mmsghdr m[2] = { { .msg_hdr = { .msg_iov = iov, .msg_iovlen = 1 } },
				{ .msg_hdr = { .msg_iov = iov + 1, .msg_iovlen = 1 } } };
	char got[700];
	int fds[2];

	EXPECT(!socketpair(AF_UNIX, SOCK_DGRAM, 0, fds));
	EXPECT(sendmmsg(fds[0], m, 2, 0) == 2);
	for (int i = 0; i < 2; i++) {
		EXPECT(recv(fds[1], got, sizeof(got), 0) == (ssize_t)iov[i].iov_len);
		early_same(t, got, early_want(t, iov[i].iov_base), iov[i].iov_len, "sendmmsg");
		memset(got, 50 + i, sizeof(got));
		EXPECT(send(fds[1], got, iov[i].iov_len, 0) == (ssize_t)iov[i].iov_len);
	}
	EXPECT(recvmmsg(fds[0], m, 2, 0, NULL) == 2);
	for (int i = 0; i < 2; i++)
		memset(early_want(t, iov[i].iov_base), 50 + i, iov[i].iov_len);
	close(fds[0]);
	close(fds[1]);
}

static void own_memory(struct trial *t)
{
	char *from = early_at(t, 32), *to = early_at(t, 36), got[9000];
	struct iovec here = { got, sizeof(got) }, there = { from, sizeof(got) };

	if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) < 0 && errno == EPERM)
		return;
	EXPECT(process_vm_readv(getpid(), &here, 1, &there, 1, 0) == sizeof(got));
	early_same(t, got, early_want(t, from), sizeof(got), "process_vm_readv");
	there.iov_base = to;
	EXPECT(process_vm_writev(getpid(), &here, 1, &there, 1, 0) == sizeof(got));
	memcpy(early_want(t, to), got, sizeof(got));
}

static void one_buffer_to_another(struct trial *t)
{
	char *from = early_at(t, 37), *to = early_at(t, 38);
	ssize_t n = (ssize_t)least(t->bytes / 41 - 16, 30000);
	int fds[2];

	EXPECT(!pipe(fds));
	EXPECT(write(fds[1], from, (size_t)n) == n);
	EXPECT(read(fds[0], to, (size_t)n) == n);
	memcpy(early_want(t, to), early_want(t, from), (size_t)n);
	close(fds[0]);
	close(fds[1]);
}

BEHAVIOUR(calls_with_addresses_of_addresses, 2)
{
	static const trial_fn things[] = { message_inside, many_messages, own_memory,
					   one_buffer_to_another };
	void all(struct trial *t) { EARLY_EACH(t, things); }

	early_trials(all);
}

/* ---- calls that must still fail, and calls that have nothing to do with it --------------- */

/* The write goes into a pipe of the trial, not to stdout. Linux 6.12 (not 6.18) calls a pipe
 * readable after a write with EFAULT: a launcher that reads stdout then waits for more. */
static void wrong_calls(struct trial *t)
{
	int fds[2];

	errno = 0;
	EXPECT(read(-1, t->buf, 100) == -1 && errno == EBADF);
	EXPECT(!pipe(fds));
	errno = 0;
	EXPECT(write(fds[1], (void *)8, 100) == -1 && errno == EFAULT);
	close(fds[0]);
	close(fds[1]);
	errno = 0;
	EXPECT(open("/no/such/file", O_RDONLY) == -1 && errno == ENOENT);
	errno = 0;
	EXPECT(syscall(5000, t->buf, t->buf) == -1 && errno == ENOSYS);
}

BEHAVIOUR(calls_that_fail_as_ever, 2)
{
	early_trials(wrong_calls);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_FUNNELED);
}
