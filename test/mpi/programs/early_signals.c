/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals of the program's own right after a collective: handlers, masks, timers, alternate stacks.
 */
#include "early.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

static sigjmp_buf back;
static volatile sig_atomic_t caught;
static siginfo_t info;
static struct trial *now; /* the trial whose buffer handlers touch */

static void jump(int sig, siginfo_t *i, void *context)
{
	caught++;
	info = *i;
	siglongjmp(back, 1);
}

static void count(int sig)
{
	caught++;
}

static void handle(int sig, void (*handler)(int, siginfo_t *, void *), int flags,
		   struct sigaction *old)
{
	struct sigaction a = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };

	if (sigaction(sig, &a, old))
		check_fail("sigaction: %s", strerror(errno));
}

static void handle_simply(int sig, void (*handler)(int), int flags, struct sigaction *old)
{
	struct sigaction a = { .sa_handler = handler, .sa_flags = flags };

	if (sigaction(sig, &a, old))
		check_fail("sigaction: %s", strerror(errno));
}

static volatile char *volatile nowhere;

/* A true fault at `at` comes to the program's handler with its own address and code. */
static void fault_at(volatile char *at, int code)
{
	caught = 0;
	if (!sigsetjmp(back, 1))
		*at = 1;
	EXPECT(caught == 1);
	EXPECT(info.si_signo == SIGSEGV && info.si_code == code && info.si_addr == (void *)at);
}

static void touch(struct trial *t, size_t at)
{
	volatile char *p = t->buf + at;

	if (*p != t->want[at])
		check_fail("trial %d: byte %zu is wrong", t->index, at);
	*p = (char)(t->want[at] + 1);
	*p = t->want[at];
}

/* ---- before MPI_Init --------------------------------------------------------------------- */

__attribute__((constructor)) static void before_the_mpi(void)
{
	struct sigaction a = { .sa_sigaction = jump, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &a, NULL);
}

static void faults_of_both_kinds(struct trial *t)
{
	if (t->index % 2)
		fault_at(nowhere, SEGV_MAPERR);
	caught = 0;
	touch(t, t->bytes / 2);
	EXPECT(!caught);
	fault_at(nowhere, SEGV_MAPERR);
	caught = 0;
	touch(t, t->bytes / 4);
	EXPECT(!caught);
}

BEHAVIOUR(handler_from_before_the_mpi, 2)
{
	early_trials(faults_of_both_kinds);
}

static void own_handler(struct trial *t)
{
	struct sigaction old, seen;

	handle(SIGSEGV, jump, 0, &old);
	EXPECT(!sigaction(SIGSEGV, NULL, &seen) && seen.sa_sigaction == jump);
	faults_of_both_kinds(t);
	EXPECT(!sigaction(SIGSEGV, &old, &seen) && seen.sa_sigaction == jump);
}

BEHAVIOUR(handler_installed_while_pending, 2)
{
	early_trials(own_handler);
}

static void jump_simply(int sig)
{
	caught++;
	siglongjmp(back, 1);
}

static void by_signal(struct trial *t)
{
	struct sigaction old;

	handle_simply(SIGSEGV, jump_simply, SA_NODEFER, &old);
	EXPECT(signal(SIGSEGV, jump_simply) == jump_simply);
	caught = 0;
	if (!sigsetjmp(back, 1))
		*nowhere = 1;
	EXPECT(caught == 1);
	touch(t, t->bytes / 2);
	EXPECT(caught == 1);
	EXPECT(signal(SIGSEGV, SIG_DFL) == jump_simply);
	touch(t, t->bytes / 3);
	EXPECT(signal(SIGSEGV, SIG_IGN) == SIG_DFL);
	touch(t, t->bytes / 5);
	sigaction(SIGSEGV, &old, NULL);
}

BEHAVIOUR(handlers_by_signal, 2)
{
	early_trials(by_signal);
}

static void once_only(struct trial *t)
{
	struct sigaction old, seen;

	handle(SIGSEGV, jump, SA_RESETHAND, &old);
	touch(t, t->bytes / 2); /* is no signal of the program's */
	fault_at(nowhere, SEGV_MAPERR);
	EXPECT(!sigaction(SIGSEGV, &old, &seen) && seen.sa_handler == SIG_DFL);
}

BEHAVIOUR(handler_for_once, 2)
{
	early_trials(once_only);
}

/* A page beside the buffer that is the program's own affair. */
static void own_protection(struct trial *t)
{
	char *page = (char *)t->block + t->block_bytes - PAGE;

	EXPECT(!mprotect(page, PAGE, PROT_NONE));
	if (t->index % 2)
		touch(t, t->bytes / 2);
	fault_at(page + 5, SEGV_ACCERR);
	touch(t, t->bytes / 3);
	EXPECT(!mprotect(page, PAGE, PROT_READ | PROT_WRITE));
	page[5] = (char)(t->bytes % PAGE ? 0 : page[5]);
	set_canaries(t, t->index);
}

BEHAVIOUR(protected_page_of_the_program, 2)
{
	early_trials_with(own_protection, NULL, FRESH_MAP);
}

/* One thread frees the page that another has asked for: the handler makes the page accessible. */
static void *lazy_page;
static void give_page(int sig, siginfo_t *i, void *context)
{
	caught++;
	mprotect(lazy_page, PAGE, PROT_READ | PROT_WRITE);
	touch(now, now->bytes / 2);
}

static void paging_by_program(struct trial *t)
{
	struct sigaction old;

	lazy_page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	now = t;
	caught = 0;
	handle(SIGSEGV, give_page, t->index % 2 ? SA_NODEFER : 0, &old);
	*(volatile char *)lazy_page = 3;
	EXPECT(caught == 1 && *(char *)lazy_page == 3);
	munmap(lazy_page, PAGE);
	sigaction(SIGSEGV, &old, NULL);
}

BEHAVIOUR(handler_that_gives_pages_and_touches, 2)
{
	early_trials(paging_by_program);
}

static void sent_by_somebody(struct trial *t)
{
	struct sigaction old;

	handle_simply(SIGSEGV, count, 0, &old);
	caught = 0;
	raise(SIGSEGV);
	EXPECT(caught == 1);
	kill(getpid(), SIGSEGV);
	EXPECT(caught == 2);
	touch(t, t->bytes / 2);
	EXPECT(caught == 2);
	sigaction(SIGSEGV, &old, NULL);
	handle_simply(SIGSYS, count, 0, &old);
	raise(SIGSYS);
	EXPECT(caught == 3);
	sigaction(SIGSYS, &old, NULL);
}

BEHAVIOUR(signals_that_are_sent, 2)
{
	early_trials(sent_by_somebody);
}

static void child_crashes(struct trial *t)
{
	pid_t child = fork();
	int status = 0;

	if (!child) {
		signal(SIGSEGV, SIG_DFL);
		if (t->index % 2 && t->buf[7] != t->want[7])
			_exit(1);
		*nowhere = 1;
		_exit(2);
	}
	EXPECT(waitpid(child, &status, 0) == child);
	EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

BEHAVIOUR(child_that_crashes, 2)
{
	early_trials(child_crashes);
}

/* ---- masks ------------------------------------------------------------------------------- */

static void all_blocked(struct trial *t)
{
	sigset_t all, old, seen;

	sigfillset(&all);
	EXPECT(!(t->index % 2 ? sigprocmask : pthread_sigmask)(SIG_BLOCK, &all, &old));
	touch(t, t->bytes / 2);
	EXPECT(write(1, t->buf + t->bytes / 3, 0) == 0);
	EXPECT(!sigprocmask(SIG_SETMASK, &old, &seen));
	EXPECT(sigismember(&seen, SIGUSR1) && sigismember(&seen, SIGSEGV) &&
	       sigismember(&seen, SIGSYS));
}

BEHAVIOUR(all_signals_blocked, 2)
{
	early_trials(all_blocked);
}

static void kernel_blocked(struct trial *t)
{
	uint64_t all = ~0ull, old = 0;
	int fd = memfd_create("out", 0);

	EXPECT(!syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, 8));
	EXPECT(write(fd, t->buf, t->bytes) == (ssize_t)t->bytes);
	touch(t, t->bytes / 2);
	EXPECT(!syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, 8));
	EXPECT(syscall(SYS_rt_sigprocmask, SIG_SETMASK, 16, NULL, 8) == -1 && errno == EFAULT);
	EXPECT(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, 16, 8) == -1 && errno == EFAULT);
	close(fd);
}

BEHAVIOUR(all_signals_blocked_by_a_plain_system_call, 2)
{
	early_trials(kernel_blocked);
}

/* Blocked before the collective and during it. */
BEHAVIOUR(all_signals_blocked_all_the_time, 2)
{
	sigset_t all, old;

	sigfillset(&all);
	EXPECT(!sigprocmask(SIG_BLOCK, &all, &old));
	early_trials(all_blocked);
	EXPECT(!sigprocmask(SIG_SETMASK, &old, NULL));
}

static void touch_in_handler(int sig)
{
	caught++;
	touch(now, now->bytes / 2);
	touch(now, now->bytes / 7);
}

/* A handler during which everything is blocked. */
static void masked_handler(struct trial *t)
{
	struct sigaction a = { .sa_handler = touch_in_handler }, old;

	sigfillset(&a.sa_mask);
	now = t;
	caught = 0;
	EXPECT(!sigaction(SIGUSR1, &a, &old));
	raise(SIGUSR1);
	EXPECT(caught == 1);
	EXPECT(!sigaction(SIGUSR1, &old, NULL));
}

BEHAVIOUR(handler_with_all_signals_blocked, 2)
{
	early_trials(masked_handler);
}

static void waits_for_signals(struct trial *t)
{
	struct signalfd_siginfo *at = early_at(t, 5);
	siginfo_t *got = early_at(t, 6);
	sigset_t one, old, wait;
	struct sigaction before;
	int fd;

	handle_simply(SIGUSR1, count, 0, &before);
	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	sigprocmask(SIG_BLOCK, &one, &old);
	fd = signalfd(-1, &one, 0);
	raise(SIGUSR1);
	EXPECT(read(fd, at, sizeof(*at)) == sizeof(*at) && at->ssi_signo == SIGUSR1);
	early_keep(t, at, sizeof(*at));
	raise(SIGUSR1);
	EXPECT(sigwaitinfo(&one, got) == SIGUSR1);
	early_keep(t, got, sizeof(*got));
	caught = 0;
	raise(SIGUSR1);
	sigfillset(&wait);
	sigdelset(&wait, SIGUSR1);
	EXPECT(sigsuspend(&wait) == -1 && errno == EINTR && caught == 1);
	sigprocmask(SIG_SETMASK, &old, NULL);
	sigaction(SIGUSR1, &before, NULL);
	close(fd);
}

BEHAVIOUR(waits_for_signals, 2)
{
	early_trials(waits_for_signals);
}

/* ---- timers ------------------------------------------------------------------------------ */

static void every_us(int us, int sig_flags, void (*handler)(int))
{
	struct itimerval every = { { us / 1000000, us % 1000000 }, { us / 1000000, us % 1000000 } };
	struct sigaction a = { .sa_handler = handler, .sa_flags = sig_flags };

	sigaction(SIGALRM, &a, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
}

static void once_after_us(int us, void (*handler)(int))
{
	struct itimerval once = { { 0, 0 }, { us / 1000000, us % 1000000 } };
	struct sigaction a = { .sa_handler = handler };

	sigaction(SIGALRM, &a, NULL);
	setitimer(ITIMER_REAL, &once, NULL);
}

static void stop_timer(void)
{
	struct itimerval never = { { 0, 0 }, { 0, 0 } };

	setitimer(ITIMER_REAL, &never, NULL);
	signal(SIGALRM, SIG_IGN);
}

static volatile sig_atomic_t may_look;
static void look_by_timer(int sig)
{
	caught++;
	if (may_look && now->buf[now->bytes / 2] != now->want[now->bytes / 2])
		check_fail("a handler has seen a wrong byte");
}

static void timed(struct trial *t)
{
	char byte;
	int fds[2];

	now = t;
	may_look = 1;
	for (size_t i = 0; i < t->bytes; i += 1021)
		touch(t, i);
	EXPECT(!pipe(fds));
	errno = 0;
	EXPECT(read(fds[0], &byte, 1) == -1 && errno == EINTR);
	errno = 0;
	EXPECT(usleep(100000) == -1 && errno == EINTR);
	may_look = 0;
	close(fds[0]);
	close(fds[1]);
}

BEHAVIOUR(timer_whose_handler_reads_the_buffer, 2)
{
	every_us(1000, 0, look_by_timer);
	caught = 0;
	early_trials(timed);
	stop_timer();
	EXPECT(caught > 5);
}

static void restarted(struct trial *t)
{
	char *at = early_at(t, 3);
	int fds[2];
	pid_t child;

	now = t;
	may_look = t->index % 2;
	EXPECT(!pipe(fds));
	child = fork();
	if (!child) {
		early_sleep_us(4000);
		_exit(write(fds[1], "0123456789", 10) == 10 ? 0 : 1);
	}
	EXPECT(read(fds[0], at, 10) == 10);
	memcpy(early_want(t, at), "0123456789", 10);
	while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	may_look = 0;
	close(fds[0]);
	close(fds[1]);
}

BEHAVIOUR(timer_with_restarted_calls, 2)
{
	every_us(1000, SA_RESTART, look_by_timer);
	early_trials(restarted);
	stop_timer();
}

static pid_t late_root;
static void count_and_tell(int sig)
{
	if (++caught == 10)
		sigqueue(late_root, SIGRTMIN, (union sigval){ 0 });
}

static _Atomic int have_told;
static void told(int sig)
{
	have_told++;
}

/* As late as it takes for all others to have got ten signals; when they get none, ten seconds. */
static void be_late(void)
{
	double until = early_now() + 10;

	while (have_told < size - 1 && early_now() < until)
		early_sleep_us(1000);
	have_told = 0;
}

/* The program's signals arrive while it waits for data that a late rank has. */
BEHAVIOUR(signals_arrive_while_waiting, 2)
{
	size_t bytes = 2 << 20;
	char *buf = adopted_heap(bytes, 1);
	struct sigaction old;

	handle_simply(SIGRTMIN, told, SA_RESTART, &old);
	late_root = getpid();
	MPI_Bcast(&late_root, sizeof(late_root), MPI_BYTE, 0, MPI_COMM_WORLD);
	for (int round = 0; round < 3; round++) {
		if (!rank)
			check_fill(buf, bytes, 100 + round);
		else
			memset(buf, 0, bytes);
		MPI_Barrier(MPI_COMM_WORLD);
		caught = 0;
		if (rank)
			every_us(2000, SA_RESTART, count_and_tell);
		else
			be_late();
		MPI_Bcast(buf, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		check_same(buf, bytes, 100 + round, "broadcast");
		EXPECT(!rank || caught >= 10);
		if (rank)
			stop_timer();
	}
	sigaction(SIGRTMIN, &old, NULL);
	free(buf);
}

static void leave(int sig)
{
	caught++;
	siglongjmp(back, 1);
}

/* A handler that never returns to where the program waited. */
BEHAVIOUR(jump_out_of_a_wait, 2)
{
	size_t bytes = 2 << 20;
	char *buf = adopted_heap(bytes, 1);

	for (int round = 0; round < 4; round++) {
		if (!rank)
			check_fill(buf, bytes, 100 + round);
		else
			memset(buf, 0, bytes);
		MPI_Barrier(MPI_COMM_WORLD);
		if (!rank)
			early_sleep_us(30000);
		MPI_Bcast(buf, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
		caught = 0;
		if (!sigsetjmp(back, 1)) {
			once_after_us(5000, leave);
			for (;;) /* computes, until its time is over */
				check_same(buf, bytes, 100 + round, "broadcast");
		}
		stop_timer();
		EXPECT(caught == 1);
		check_same(buf, bytes, 100 + round, "after the jump");
		memset(buf, round, bytes);
	}
	free(buf);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SINGLE);
}
