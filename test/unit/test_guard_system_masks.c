/* SPDX-License-Identifier: BSD-3-Clause */
/* The program's view of its masks, while SIGSEGV and SIGSYS are never blocked for real. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "sud/private.h"
#include "system_case.h"


static unsigned long real_mask(void)
{
	unsigned long mask = 0;

	sud_syscall(SYS_rt_sigprocmask, (long)SIG_BLOCK, NULL, &mask, 8L);
	return mask;
}

static void check_real(void)
{
	CHECK_EQ(real_mask() & (BIT(SIGSEGV) | BIT(SIGSYS)), 0);
}

static struct owner *arm_new(void)
{
	struct owner *o = malloc(sizeof(*o)); /* known until the process ends */

	owner_open(o, 8, 0);
	owner_arm(o, 0, 8, GUARD_NO_ACCESS);
	return o;
}

static void check_touch(void)
{
	struct owner *o = arm_new();
	char line[64];

	CHECK_EQ(syscall(SYS_getppid), getppid()); /* dispatched */
	CHECK(snprintf(line, sizeof(line), "%d", load(o->p + 3)) > 0);
	CHECK_OWNER(o, 0, 8);
}

static void block_all(void)
{
	sigset_t all;

	sigfillset(&all);
	CHECK_EQ(sigprocmask(SIG_SETMASK, &all, NULL), 0);
	CHECK_EQ(real_mask() & BIT(SIGSYS), 0);
	CHECK(real_mask() & BIT(SIGUSR1));
}

SYSTEM_TEST_AFTER(a_mask_set_before_is_kept_for_the_program, block_all)
{
	sigset_t now;

	check_real();
	CHECK_EQ(pthread_sigmask(SIG_BLOCK, NULL, &now), 0);
	CHECK(sigismember(&now, SIGSEGV) && sigismember(&now, SIGUSR1));
	check_touch();
}

SYSTEM_TEST(masks_are_seen_as_they_were_set)
{
	sigset_t all, old, segv;

	sigfillset(&all);
	sigemptyset(&segv);
	sigaddset(&segv, SIGSEGV);
	CHECK_EQ(pthread_sigmask(SIG_SETMASK, &all, &old), 0);
	CHECK(!sigismember(&old, SIGSEGV) && !sigismember(&old, SIGSYS));
	check_real();
	check_touch();
	CHECK_EQ(sigprocmask(SIG_UNBLOCK, &segv, &old), 0);
	CHECK(sigismember(&old, SIGSEGV) && sigismember(&old, SIGSYS) &&
	      sigismember(&old, SIGUSR2));
	CHECK_EQ(sigprocmask(SIG_BLOCK, NULL, &old), 0);
	CHECK(!sigismember(&old, SIGSEGV) && sigismember(&old, SIGSYS));
	CHECK_EQ(sigprocmask(99, &segv, &old), -1);
	CHECK_EQ(errno, EINVAL);
	sigemptyset(&all);
	CHECK_EQ(sigprocmask(SIG_SETMASK, &all, &old), 0);
	CHECK_EQ(sigprocmask(SIG_SETMASK, NULL, &old), 0);
	CHECK(!sigismember(&old, SIGSYS));
}

SYSTEM_TEST(a_mask_set_by_number_is_virtual_too)
{
	unsigned long all = ~0ul, old = 0;

	CHECK_EQ(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, 8), 0);
	check_real();
	CHECK_EQ(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &old, 8), 0);
	CHECK(old & BIT(SIGSEGV));
	check_touch();
}

static long raw_call(long nr, long a, long b, long c, long d)
{
	register long r10 __asm__("r10") = d;

	__asm__ volatile("syscall"
			 : "+a"(nr)
			 : "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return nr;
}

SYSTEM_TEST(a_mask_set_by_an_instruction_while_guarded_spares_ours)
{
	struct owner *o = arm_new();
	unsigned long all = ~0ul, old = 0, now = 0;

	CHECK_EQ(raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&old, 8), 0);
	check_real();
	CHECK(real_mask() & BIT(SIGUSR1));
	CHECK_EQ(raw_call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old, (long)&now, 8), 0);
	CHECK(now & BIT(SIGUSR1));
	CHECK(!(real_mask() & BIT(SIGUSR1)));
	CHECK_EQ(raw_call(SYS_rt_sigprocmask, 99, (long)&all, 0, 8), -EINVAL);
	CHECK_EQ(raw_call(SYS_rt_sigprocmask, SIG_SETMASK, 16, 0, 8), -EFAULT);
	CHECK_EQ(load(o->p), owner_byte(0));
}

/* ---- signals that are sent while blocked ------------------------------------------------- */

static volatile int handled, value;

static void count(int signo, siginfo_t *si, void *ucontext)
{
	handled++;
	value = si->si_value.sival_int;
}

static void set(int signo, void (*handler)(int, siginfo_t *, void *), bool full_mask)
{
	struct sigaction a = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };

	if (full_mask)
		sigfillset(&a.sa_mask);
	CHECK_EQ(sigaction(signo, &a, NULL), 0);
}

static void block_segv(int how)
{
	sigset_t segv;

	sigemptyset(&segv);
	sigaddset(&segv, SIGSEGV);
	CHECK_EQ(sigprocmask(how, &segv, NULL), 0);
}

SYSTEM_TEST(a_signal_sent_while_blocked_waits)
{
	sigset_t pending;

	set(SIGSEGV, count, false);
	block_segv(SIG_BLOCK);
	handled = 0;
	CHECK_EQ(sigqueue(getpid(), SIGSEGV, (union sigval){ .sival_int = 17 }), 0);
	CHECK_EQ(handled, 0);
	CHECK_EQ(sigpending(&pending), 0);
	CHECK(sigismember(&pending, SIGSEGV));
	block_segv(SIG_UNBLOCK);
	CHECK_EQ(handled, 1);
	CHECK_EQ(value, 17);
	CHECK_EQ(sigpending(&pending), 0);
	CHECK(!sigismember(&pending, SIGSEGV));
}

SYSTEM_TEST(a_signal_sent_while_blocked_can_be_waited_for)
{
	sigset_t segv;
	siginfo_t si;
	int signo = 0;

	sigemptyset(&segv);
	sigaddset(&segv, SIGSEGV);
	block_segv(SIG_BLOCK);
	raise(SIGSEGV);
	CHECK_EQ(sigwait(&segv, &signo), 0);
	CHECK_EQ(signo, SIGSEGV);
	sigqueue(getpid(), SIGSEGV, (union sigval){ .sival_int = 5 });
	CHECK_EQ(sigwaitinfo(&segv, &si), SIGSEGV);
	CHECK_EQ(si.si_value.sival_int, 5);
	CHECK_EQ(sigtimedwait(&segv, &si, &(struct timespec){ 0, 1000 }), -1);
	CHECK_EQ(errno, EAGAIN);
}

/* ---- masks of handlers and of waits ------------------------------------------------------ */

static struct owner *handler_owner;

static void touch(int signo, siginfo_t *si, void *ucontext)
{
	char c = 0;
	int fds[2];

	handled++;
	if (pipe(fds) || write(fds[1], handler_owner->p + 9, 1) != 1 || read(fds[0], &c, 1) != 1 ||
	    (unsigned char)c != owner_byte(9))
		handled = 100;
	close(fds[0]);
	close(fds[1]);
}

static void set_full(void)
{
	set(SIGUSR1, touch, true);
}

SYSTEM_TEST_AFTER(a_handler_set_before_with_every_signal_blocked_may_touch, set_full)
{
	struct sigaction a;

	handler_owner = arm_new();
	handled = 0;
	raise(SIGUSR1);
	CHECK_EQ(handled, 1);
	CHECK_EQ(sigaction(SIGUSR1, NULL, &a), 0);
	CHECK(sigismember(&a.sa_mask, SIGSEGV) && sigismember(&a.sa_mask, SIGSYS));
}

SYSTEM_TEST(a_handler_with_every_signal_blocked_may_touch)
{
	set_full();
	handler_owner = arm_new();
	handled = 0;
	raise(SIGUSR1);
	CHECK_EQ(handled, 1);
}

static void set_touch(void)
{
	signal(SIGUSR1, (sighandler_t)(void *)touch);
	set(SIGUSR2, touch, false);
}

/* The handler interrupts allowed calls of the host MPI: its own calls are dispatched. */
SYSTEM_TEST_AFTER(a_handler_within_trusted_calls_may_touch, set_touch)
{
	handled = 0;
	for (int i = 0; i < 4; i++) {
		handler_owner = arm_new();
		sud_allow_push();
		sud_allow_push();
		raise(i % 2 ? SIGUSR1 : SIGUSR2);
		CHECK_EQ(handled, i + 1);
		sud_allow_pop();
		sud_allow_pop();
		if (i == 1)
			set_touch();
		CHECK(!guard_is_armed(&handler_owner->r));
	}
	handler_owner = arm_new();
	CHECK_EQ(write(open("/dev/null", O_WRONLY), handler_owner->p, 1), 1); /* dispatched again */
	CHECK(!guard_is_armed(&handler_owner->r));
}

SYSTEM_TEST(handlers_are_shown_as_they_were_set)
{
	struct sigaction a = { .sa_handler = SIG_IGN }, old;

	CHECK(signal(SIGUSR1, (sighandler_t)(void *)touch) == SIG_DFL);
	CHECK(signal(SIGUSR1, SIG_IGN) == (sighandler_t)(void *)touch);
	CHECK(signal(SIGUSR1, (sighandler_t)(void *)count) == SIG_IGN);
	CHECK(sysv_signal(SIGUSR1, SIG_DFL) == (sighandler_t)(void *)count);
	CHECK(signal(SIGUSR1, (sighandler_t)(void *)count) == SIG_DFL);
	CHECK_EQ(sigaction(SIGKILL, &a, NULL), -1);
	CHECK_EQ(errno, EINVAL);
	CHECK_EQ(sigaction(SIGUSR1, &a, &old), 0);
	a = old;
	CHECK(a.sa_handler == (sighandler_t)(void *)count && (a.sa_flags & SA_RESTART));
	CHECK(sigismember(&a.sa_mask, SIGUSR1));
	CHECK(signal(0, SIG_IGN) == SIG_ERR && signal(99, SIG_IGN) == SIG_ERR);
}

static pthread_t sender_of;

static void *send_usr1(void *arg)
{
	usleep(20000);
	pthread_kill(sender_of, SIGUSR1);
	return NULL;
}

/* A wait with everything blocked but SIGUSR1, whose handler touches guarded memory. */
static void wait_with(int (*wait)(const sigset_t *))
{
	sigset_t but_one, one;
	pthread_t t;

	set(SIGUSR1, touch, true);
	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	sigprocmask(SIG_BLOCK, &one, NULL); /* until it is waited for */
	sigfillset(&but_one);
	sigdelset(&but_one, SIGUSR1);
	sender_of = pthread_self();
	CHECK_EQ(pthread_create(&t, NULL, send_usr1, NULL), 0);
	handler_owner = arm_new();
	handled = 0;
	CHECK_EQ(wait(&but_one), -1);
	CHECK_EQ(errno, EINTR);
	CHECK_EQ(handled, 1);
	CHECK_EQ(pthread_join(t, NULL), 0);
}

static int wait_ppoll(const sigset_t *set)
{
	return ppoll(NULL, 0, &(struct timespec){ 10, 0 }, set);
}

static int wait_pselect(const sigset_t *set)
{
	return pselect(0, NULL, NULL, NULL, &(struct timespec){ 10, 0 }, set);
}

static int wait_epoll(const sigset_t *set)
{
	int fd = epoll_create1(0), ret, saved;
	struct epoll_event e;

	ret = epoll_pwait(fd, &e, 1, 10000, set);
	saved = errno;
	close(fd);
	errno = saved;
	return ret;
}

static int wait_raw_ppoll(const sigset_t *set)
{
	struct timespec t = { 10, 0 };

	return (int)syscall(SYS_ppoll, NULL, 0, &t, set, 8);
}

SYSTEM_TEST(sigsuspend_spares_ours) { wait_with(sigsuspend); }
SYSTEM_TEST(ppoll_spares_ours) { wait_with(wait_ppoll); }
SYSTEM_TEST(pselect_spares_ours) { wait_with(wait_pselect); }
SYSTEM_TEST(epoll_pwait_spares_ours) { wait_with(wait_epoll); }
SYSTEM_TEST(ppoll_by_number_spares_ours) { wait_with(wait_raw_ppoll); }

/* ---- jumps ------------------------------------------------------------------------------- */

static sigjmp_buf back;

static void jump(int signo, siginfo_t *si, void *ucontext)
{
	handled++;
	siglongjmp(back, 1);
}

SYSTEM_TEST(a_jump_out_of_the_handler_unblocks_as_it_should)
{
	sigset_t now;

	set(SIGSEGV, jump, true);
	for (handled = 0; handled < 3;)
		if (!sigsetjmp(back, 1))
			store((char *)0x1230, 1);
	CHECK_EQ(sigprocmask(SIG_BLOCK, NULL, &now), 0);
	CHECK(!sigismember(&now, SIGSEGV) && !sigismember(&now, SIGUSR1));
	check_touch();
}

static ucontext_t context;

static void jump_to_context(int signo, siginfo_t *si, void *ucontext)
{
	handled++;
	setcontext(&context);
}

SYSTEM_TEST(a_context_set_in_the_handler_unblocks_as_it_should)
{
	set(SIGSEGV, jump_to_context, true);
	handled = 0;
	getcontext(&context);
	if (handled < 3)
		store((char *)0x1230, 1);
	CHECK_EQ(handled, 3);
	check_touch();
}

/* ---- a thread that is enabled inside a handler ------------------------------------------- */

static pthread_t waiter;
static sem_t arrived;
static atomic_int woken, may_go, caught;

static void wake(int signo, siginfo_t *si, void *ucontext) { atomic_fetch_add(&woken, 1); }

static void wait_until_woken(int signo, siginfo_t *si, void *ucontext)
{
	sigset_t all;

	sigfillset(&all);
	sigdelset(&all, SIGUSR2);
	sem_post(&arrived);
	while (!atomic_load(&woken))
		sigsuspend(&all);
}

static void leave_fault(int signo, siginfo_t *si, void *ucontext)
{
	atomic_fetch_add(&caught, 1);
	siglongjmp(back, 1);
}

/* A collector of garbage stops threads so. SIGSYS is unblocked in the call that waits. */
static void *wait_in_handler(void *arg)
{
	raise(SIGUSR1);
	while (!atomic_load(&may_go))
		usleep(100);
	if (!sigsetjmp(back, 1))
		store((char *)0x1230, 1);
	return arg;
}

static void begin_waiting(void)
{
	set(SIGUSR1, wait_until_woken, true);
	set(SIGUSR2, wake, false);
	set(SIGSEGV, leave_fault, false);
	sem_init(&arrived, 0, 0);
	CHECK_EQ(pthread_create(&waiter, NULL, wait_in_handler, NULL), 0);
	sem_wait(&arrived);
}

SYSTEM_TEST_AFTER(the_mask_of_a_handler_ends_with_it, begin_waiting)
{
	for (int i = 0; i < 1000 && !guard_is_ready(); i++)
		usleep(1000);
	CHECK(guard_is_ready()); /* the thread has answered, inside its handler */
	pthread_kill(waiter, SIGUSR2);
	atomic_store(&may_go, 1);
	pthread_join(waiter, NULL);
	CHECK_EQ(caught, 1);
}

static atomic_int results;

/* Both signals are pending when it begins to wait: their handlers run one on top of the other. */
static void *wait_with_both(void *arg)
{
	uint64_t all = ~(uint64_t)0;
	sigset_t none;

	sigemptyset(&none);
	sud_syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &all, NULL, 8L);
	sem_post(&arrived);
	while (!atomic_load(&may_go))
		sud_syscall(SYS_sched_yield);
	if (sigsuspend(&none) == -1 && errno == EINTR)
		atomic_fetch_add(&results, atomic_load(&woken));
	return arg;
}

static void begin_blocked(void)
{
	set(SIGUSR2, wake, false);
	sem_init(&arrived, 0, 0);
	CHECK_EQ(pthread_create(&waiter, NULL, wait_with_both, NULL), 0);
	sem_wait(&arrived);
}

static void two_signals(void *arg)
{
	begin_blocked();
	CHECK_EQ(guard_case_init("mremap", NULL), 0);
	CHECK(!guard_is_ready()); /* the signal that enables the thread is pending */
	pthread_kill(waiter, SIGUSR2);
	atomic_store(&may_go, 1);
	for (int i = 0; i < 2000 && !atomic_load(&results); i++)
		usleep(1000);
	CHECK_EQ(results, 1);
	pthread_join(waiter, NULL);
	CHECK(guard_is_ready());
}

UNIT_TEST(a_wait_that_two_signals_end_ends) { CHECK_EQ(unit_fork(two_signals, NULL), 0); }

/* ---- jumps ------------------------------------------------------------------------------- */

static void body_without_mask(void)
{
	set(SIGSEGV, jump, false);
	handled = 0;
	if (!sigsetjmp(back, 0) || handled < 2)
		store((char *)0x1230, 1);
	_exit(3);
}

UNIT_TEST(a_jump_that_leaves_it_blocked_makes_the_next_fault_fatal)
{
	guard_case_dies("mremap", body_without_mask);
}
