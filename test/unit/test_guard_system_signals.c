/* SPDX-License-Identifier: BSD-3-Clause */
/* The program's own handlers of SIGSEGV beside the guard's. */
#include <setjmp.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "sud/private.h"
#include "system_case.h"

static char *const wild = (char *)0x1230; /* never mapped */

static sigjmp_buf back;
static volatile int handled;
static void *volatile seen_addr;
static volatile int seen_code;

static void note(int signo, siginfo_t *si, void *ucontext)
{
	handled++;
	seen_addr = si->si_addr;
	seen_code = si->si_code;
	siglongjmp(back, signo);
}

static void old_style(int signo)
{
	handled++;
	siglongjmp(back, signo);
}

static void set(int signo, void (*handler)(int, siginfo_t *, void *), int flags)
{
	struct sigaction a = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags };

	CHECK_EQ(sigaction(signo, &a, NULL), 0);
}

static void fault_and_recover(char *at)
{
	handled = 0;
	if (!sigsetjmp(back, 1)) {
		store(at, 1);
		CHECK(!"the store succeeded");
	}
	CHECK_EQ(handled, 1);
}

static void guard_works(void)
{
	struct owner *o = malloc(sizeof(*o)); /* known until the process ends */

	owner_open(o, 8, 0);
	owner_arm(o, 0, 8, GUARD_NO_ACCESS);
	CHECK_EQ(load(o->p + 5), owner_byte(5));
	CHECK_EQ(atomic_load(&o->touches), 1);
	CHECK_OWNER(o, 0, 8);
}

static void set_before(void)
{
	set(SIGSEGV, note, 0);
}

SYSTEM_TEST_AFTER(a_handler_set_before_gets_true_faults, set_before)
{
	for (int i = 0; i < 3; i++) {
		guard_works();
		fault_and_recover(wild + i);
		CHECK(seen_addr == wild + i);
		CHECK_EQ(seen_code, SEGV_MAPERR);
	}
}

SYSTEM_TEST(a_handler_set_after_gets_true_faults)
{
	char *p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	guard_works();
	set(SIGSEGV, note, 0);
	for (int i = 0; i < 3; i++) {
		fault_and_recover(p + i);
		CHECK(seen_addr == p + i);
		CHECK_EQ(seen_code, SEGV_ACCERR);
		guard_works();
	}
}

SYSTEM_TEST(an_old_style_handler_gets_true_faults)
{
	sighandler_t was = signal(SIGSEGV, old_style); /* a sanitizer's, or the default */

	fault_and_recover(wild);
	CHECK(signal(SIGSEGV, was) == old_style);
	CHECK(signal(SIGSEGV, was) == was);
	guard_works();
}

static void repair(int signo, siginfo_t *si, void *ucontext)
{
	uintptr_t page = base_round_down((uintptr_t)si->si_addr, PAGE);

	handled++;
	mprotect((void *)page, PAGE, PROT_READ | PROT_WRITE);
}

SYSTEM_TEST(a_handler_that_returns_restarts_the_access)
{
	char *p = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	set(SIGSEGV, repair, 0);
	handled = 0;
	for (int i = 1; i <= 3; i++) { /* it is not blocked once it has returned */
		store(p + 7, 42);
		CHECK_EQ(handled, i);
		CHECK_EQ(load(p + 7), 42);
		mprotect(p, PAGE, PROT_NONE);
	}
}

static void touch_in_handler(int signo, siginfo_t *si, void *ucontext)
{
	struct owner *o = *(struct owner *volatile *)&seen_addr;

	handled++;
	if (load(o->p) != owner_byte(0))
		handled = 100;
	siglongjmp(back, 1);
}

SYSTEM_TEST(a_handler_may_touch_guarded_memory)
{
	static struct owner o;

	owner_open(&o, 8, 0);
	owner_arm(&o, 0, 8, GUARD_NO_ACCESS);
	set(SIGSEGV, touch_in_handler, 0);
	seen_addr = &o;
	fault_and_recover(wild);
}

SYSTEM_TEST(what_was_set_is_what_is_shown)
{
	struct sigaction a = { .sa_sigaction = note,
			       .sa_flags = SA_SIGINFO | SA_RESTART | SA_NODEFER };
	struct sigaction old;

	CHECK_EQ(sigaction(SIGSYS, NULL, &old), 0);
	CHECK(old.sa_handler == SIG_DFL);
	sigaddset(&a.sa_mask, SIGUSR1);
	sigaddset(&a.sa_mask, SIGSYS);
	for (int signo = SIGUSR2; signo; signo = signo == SIGUSR2   ? SIGSEGV
						 : signo == SIGSEGV ? SIGSYS
								    : 0) {
		CHECK_EQ(sigaction(signo, &a, NULL), 0);
		CHECK_EQ(sigaction(signo, NULL, &old), 0);
		CHECK(old.sa_sigaction == note);
		CHECK_EQ(old.sa_flags & ~0x04000000 /* libc's */,
			 SA_SIGINFO | SA_RESTART | SA_NODEFER);
		CHECK(sigismember(&old.sa_mask, SIGUSR1) && sigismember(&old.sa_mask, SIGSYS));
		CHECK(!sigismember(&old.sa_mask, SIGSEGV));
	}
	guard_works();
}

/* ---- ends -------------------------------------------------------------------------------- */

static void body_default(void)
{
	guard_works();
	store(wild, 1);
}

UNIT_TEST(a_true_fault_without_a_handler_is_fatal)
{
	guard_case_dies("mremap", body_default);
}

static void body_ignored(void)
{
	signal(SIGSEGV, SIG_IGN);
	raise(SIGSEGV); /* this may be ignored */
	guard_works();
	store(wild, 1); /* this may not */
}

UNIT_TEST(a_true_fault_that_is_ignored_is_fatal)
{
	guard_case_dies("mremap", body_ignored);
}

static void body_blocked(void)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	signal(SIGSEGV, old_style);
	if (!sigsetjmp(back, 1))
		store(wild, 1);
	_exit(3);
}

UNIT_TEST(a_true_fault_that_is_blocked_is_fatal)
{
	guard_case_dies("mremap", body_blocked);
}

static void fault_again(int signo, siginfo_t *si, void *ucontext)
{
	if (handled++)
		_exit(3);
	store(wild, 1);
}

static void body_nested(void)
{
	set(SIGSEGV, fault_again, 0);
	store(wild, 1);
}

UNIT_TEST(a_fault_in_the_handler_is_fatal)
{
	guard_case_dies("mremap", body_nested);
}

static void body_sent(void)
{
	guard_works();
	kill(getpid(), SIGSEGV);
	for (;;)
		pause();
}

UNIT_TEST(a_sent_signal_without_a_handler_is_fatal)
{
	guard_case_dies("mremap", body_sent);
}

static void fault_deeper(int signo, siginfo_t *si, void *ucontext)
{
	if (++handled == 2)
		siglongjmp(back, 1);
	store(wild, 1);
}

SYSTEM_TEST(a_handler_without_defer_nests)
{
	set(SIGSEGV, fault_deeper, SA_NODEFER);
	handled = 0;
	if (!sigsetjmp(back, 1))
		store(wild, 1);
	CHECK_EQ(handled, 2);
}

static void body_reset(void)
{
	set(SIGSEGV, note, SA_RESETHAND);
	fault_and_recover(wild);
	guard_works();
	store(wild, 1);
	_exit(3);
}

UNIT_TEST(a_handler_for_once_is_one_for_once)
{
	guard_case_dies("mremap", body_reset);
}

/* ---- stacks ------------------------------------------------------------------------------ */

static char small[12 << 10];

static void set_small_stack(void)
{
	stack_t s = { .ss_sp = small, .ss_size = sizeof(small) };

	CHECK_EQ(sigaltstack(&s, NULL), 0);
	set(SIGSEGV, note, SA_ONSTACK);
}

static int overflow(int n)
{
	volatile char room[4096];

	room[0] = (char)n;
	return n > 0 ? overflow(n + 1) + room[0] : room[0];
}

SYSTEM_TEST(a_stack_that_overflows_reaches_its_handler)
{
	set_small_stack();
	handled = 0;
	if (!sigsetjmp(back, 1))
		overflow(1);
	CHECK_EQ(handled, 1);
	guard_works();
}

SYSTEM_TEST_AFTER(the_guard_needs_little_of_an_alternate_stack, set_small_stack)
{
	guard_works();
	fault_and_recover(wild);
}

static struct owner late_owner;
static pthread_t toucher;
static volatile int counted;

static void count(int signo, siginfo_t *si, void *ucontext) { counted++; }

/* A signal for the thread that waits in its touch. */
static void *signal_it(void *arg)
{
	while (!atomic_load(&late_owner.waiting))
		usleep(100);
	pthread_kill(toucher, SIGUSR1);
	usleep(2000);
	atomic_store(&late_owner.closed, false);
	return arg;
}

static void touch_and_get_signal(int flags)
{
	pthread_t other;

	set(SIGUSR1, count, flags);
	toucher = pthread_self();
	owner_open(&late_owner, 8, 0);
	atomic_store(&late_owner.closed, true);
	CHECK_EQ(pthread_create(&other, NULL, signal_it, NULL), 0);
	owner_arm(&late_owner, 0, 8, GUARD_NO_ACCESS);
	CHECK_EQ(load(late_owner.p + 5), owner_byte(5));
	CHECK_EQ(pthread_join(other, NULL), 0);
	CHECK_EQ(counted, 1);
	CHECK_OWNER(&late_owner, 0, 8);
}

/* The touch has left the alternate stack for a larger one, and the kernel must not put the frame of
 * the other signal where the handler of the touch began. */
SYSTEM_TEST_AFTER(a_signal_during_a_touch_spares_the_alternate_stack, set_small_stack)
{
	stack_t now;

	touch_and_get_signal(SA_ONSTACK);
	CHECK_EQ(sigaltstack(NULL, &now), 0);
	CHECK(now.ss_sp == small && now.ss_size == sizeof(small) && !now.ss_flags);
	guard_works();
}

/* Room for the kernel's frames of two signals. The program's own need one. */
static void set_smallest_stack(void)
{
	stack_t s = { .ss_sp = small };

	s.ss_size = 2 * getauxval(AT_MINSIGSTKSZ) + 2048;
	CHECK(s.ss_size <= sizeof(small));
	CHECK_EQ(sigaltstack(&s, NULL), 0);
	set(SIGSEGV, note, SA_ONSTACK);
	set(SIGALRM, count, SA_ONSTACK | SA_RESTART);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* frames are larger */
SYSTEM_TEST_AFTER(signals_and_touches_need_two_frames_of_an_alternate_stack, set_smallest_stack)
{
	const struct itimerval often = { { 0, 20 }, { 0, 20 } }, never = { { 0, 0 }, { 0, 0 } };

	CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
	for (int i = 0; i < 300; i++)
		guard_works();
	CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
	CHECK(counted > 0);
}
#endif

static volatile uintptr_t highest, lowest;

static void use_stack(void *arg)
{
	volatile char room[64 << 10];

	for (size_t i = 0; i < sizeof(room); i += 512)
		room[i] = 1;
	lowest = (uintptr_t)&room[0];
	highest = lowest + sizeof(room);
}

static void on_small_stack(int signo, siginfo_t *si, void *ucontext)
{
	sud_with_stack_sig(use_stack, NULL, ucontext);
}

SYSTEM_TEST(work_has_64_kib_of_stack_wherever_it_starts)
{
	uintptr_t start = (uintptr_t)small, end = start + sizeof(small);
	char here;

	set_small_stack();
	set(SIGUSR1, on_small_stack, SA_ONSTACK);
	memset(small, 0, 512);
	for (int i = 0; i < 20; i++) {
		raise(SIGUSR1);
		CHECK(highest && (highest < start || lowest >= end));
		for (int b = 0; b < 512; b++)
			CHECK_EQ(small[b], 0); /* the small one did not overflow */
	}
	set(SIGUSR1, on_small_stack, 0);
	raise(SIGUSR1);
	CHECK((uintptr_t)&here - lowest < (1u << 20)); /* on this one */
}

/* ---- handlers that were installed by raw calls ------------------------------------------- */

struct kernel_action {
	void *handler;
	unsigned long flags;
	void *restorer;
	unsigned long mask;
};

SYSTEM_TEST(a_handler_set_by_a_raw_call_is_chained_to)
{
	struct sigaction ours;
	struct kernel_action a, was;

	set(SIGUSR1, note, 0); /* libc's restorer */
	CHECK_EQ(sud_syscall(SYS_rt_sigaction, (long)SIGUSR1, NULL, &a, 8L), 0);
	a.handler = (void *)note;
	CHECK_EQ(sud_syscall(SYS_rt_sigaction, (long)SIGSEGV, &a, &was, 8L), 0);
	CHECK(was.handler != (void *)note);
	CHECK(guard_is_ready());
	CHECK_EQ(sigaction(SIGSEGV, NULL, &ours), 0);
	CHECK(ours.sa_sigaction == note);
	guard_works();
	fault_and_recover(wild);
}
