/* SPDX-License-Identifier: BSD-3-Clause */
/* Every thread is protected, however it was made, and leaves no record behind. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>

#include "sud/private.h"
#include "system_case.h"

static struct owner *arm_new(void)
{
	struct owner *o = malloc(sizeof(*o)); /* known until the process ends */

	owner_open(o, 8, 0);
	owner_arm(o, 0, 8, GUARD_NO_ACCESS);
	return o;
}

static _Atomic(struct owner *) shared;
static _Atomic int ready, go, correct;

/* By the CPU, or by the kernel on behalf of a call. */
static void *use_shared(void *by_call)
{
	struct owner *o;
	int fds[2];
	char c = 0;

	if (pipe(fds))
		return NULL;
	atomic_fetch_add(&ready, 1);
	while (!atomic_load(&go))
		usleep(50);
	o = atomic_load(&shared);
	if (by_call) {
		if (write(fds[1], o->p + 3, 1) != 1 || read(fds[0], &c, 1) != 1)
			return NULL;
	} else {
		c = (char)load(o->p + 3);
	}
	if ((unsigned char)c == owner_byte(3))
		atomic_fetch_add(&correct, 1);
	close(fds[0]);
	close(fds[1]);
	return NULL;
}

enum { THREADS = 8 };

static pthread_t threads[THREADS];

/* One in `of` of them by a call. */
static void start_threads(long of)
{
	for (long i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, use_shared,
					(void *)(long)(i % of == of - 1)),
			 0);
	while (atomic_load(&ready) < THREADS)
		usleep(100);
}

/* The threads answer when they get a CPU. */
static void wait_until_ready(void)
{
	for (int i = 0; i < 10000 && !guard_is_ready(); i++)
		usleep(1000);
	CHECK(guard_is_ready());
}

static void let_go(void)
{
	wait_until_ready();
	atomic_store(&shared, arm_new());
	atomic_store(&go, 1);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(threads[i], NULL), 0);
	CHECK_EQ(atomic_load(&correct), THREADS);
	wait_until_ready();
}

SYSTEM_TEST(threads_started_afterwards)
{
	start_threads(2);
	let_go();
}

/* guard_case checks that the guard is ready at once; these threads are made just before, and
 * answer. */
static void start_before(void)
{
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* as libraries do for their helpers */
	/* not by the test's own call: the first touch comes from a thread with blocked signals */
	start_threads(THREADS + 1);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void hold(void *arg) {}
static void touched(void *arg, uintptr_t addr, size_t bytes, bool write)
{
	struct owner *o = arg;

	owner_finish(o);
	owner_release_all(o);
}
static void complete_all(void)
{
	struct owner *o = atomic_load(&shared);

	if (o && guard_is_armed(&o->r))
		touched(o, 0, 0, true);
}

/* As guard_case, but the guard becomes ready when the threads have answered. */
static void init_here(void)
{
	static const struct guard_ops ops = { hold, touched, complete_all, NULL };
	char option[] = "SLUICE_GUARD_KIND=mremap", arena[] = "SLUICE_REGION_ARENA=1G";
	char problems[64];
	char *env[] = { option, arena, NULL };

	alarm(20);
	base_options_load(env, problems, sizeof(problems));
	if (guard_init(&ops))
		unit_skip(guard_reason());
}

static void be_alone(void)
{
	if (guard_case_has_other_threads())
		unit_skip("a thread that a sanitizer made cannot be protected");
}

static void body_before(void *arg)
{
	be_alone();
	start_before();
	init_here();
	let_go();
}

UNIT_TEST(threads_started_before_with_every_signal_blocked)
{
	CHECK_EQ(unit_fork(body_before, NULL), 0);
}

static void body_between(void *arg)
{
	struct owner o;

	be_alone();
	init_here();
	start_threads(2);
	usleep(20000);
	CHECK(!sud_is_enabled());
	owner_open(&o, 8, 0);
	o.r.start = (uintptr_t)o.p;
	o.r.end = o.r.start + 8 * PAGE;
	CHECK_EQ(guard_arm(&o.r), -EAGAIN);
	wait_until_ready();
	CHECK(sud_is_enabled());
	let_go();
}

/* Threads that are made between guard_init() and the first range. */
UNIT_TEST(nothing_is_looked_at_before_the_first_range)
{
	CHECK_EQ(unit_fork(body_between, NULL), 0);
}

/* Reads the remaining pages by a system call. */
static void read_by_call(struct owner *o)
{
	int fds[2];
	char c = 0;

	CHECK(!pipe(fds) && write(fds[1], o->p + 3, 1) == 1 && read(fds[0], &c, 1) == 1);
	CHECK_EQ((unsigned char)c, owner_byte(3));
	close(fds[0]);
	close(fds[1]);
}

static bool am_dispatched(void) { return thread_self()->is_dispatched; }

static void *arm_here(void *arg)
{
	read_by_call(arm_new());
	return am_dispatched() ? arg : NULL;
}

SYSTEM_TEST(who_arms_is_only_looked_at_while_something_is_armed)
{
	struct owner *first, *second;
	pthread_t thread;
	void *was;

	for (int i = 0; i < 50; i++) {
		wait_until_ready();
		first = arm_new();
		second = arm_new();
		CHECK(am_dispatched());
		read_by_call(first);
		CHECK(am_dispatched());
		read_by_call(second);
		CHECK(!am_dispatched());
	}
	CHECK(guard_is_ready() && am_dispatched());
	guard_cancel_ready();
	CHECK(!am_dispatched());
	CHECK(guard_is_ready());
	first = arm_new();
	guard_cancel_ready();
	CHECK(am_dispatched());
	read_by_call(first);
	/* with several arming threads each would need a signal again and again */
	CHECK_EQ(pthread_create(&thread, NULL, arm_here, &first), 0);
	CHECK_EQ(pthread_join(thread, &was), 0);
	CHECK(was);
	CHECK(am_dispatched());
	wait_until_ready();
	read_by_call(arm_new());
	CHECK(am_dispatched());
}

static _Atomic int interrupted;
static sem_t sem;

/* Waits of the kinds that a signal ends even with SA_RESTART. */
static void *sleep_long(void *arg)
{
	struct timespec t = { 0, 300000000 };

	atomic_fetch_add(&ready, 1);
	if (nanosleep(&t, NULL))
		atomic_fetch_add(&interrupted, 1);
	if (usleep(200000))
		atomic_fetch_add(&interrupted, 1);
	return NULL;
}

static void *wait_for_sem(void *arg)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 15;
	atomic_fetch_add(&ready, 1);
	if (sem_timedwait(&sem, &t))
		atomic_fetch_add(&interrupted, 1);
	return NULL;
}

/* A system call as the cancellation points of glibc 2.41 and newer make it: the number is on the
 * stack of the caller of the function with the instruction. */
long call_cancellable(long a1, long a2, long a3, long a4, long a5, long a6, long nr);
__asm__(".text\n"
	"call_arch:\n" /* (anything, nr, a1, a2, a3, a4, a5, a6) */
	"	mov %rdi, %r11\n"
	"	mov %rsi, %rax\n"
	"	mov %rdx, %rdi\n"
	"	mov %rcx, %rsi\n"
	"	mov %r8, %rdx\n"
	"	mov %r9, %r10\n"
	"	mov 8(%rsp), %r8\n"
	"	mov 16(%rsp), %r9\n"
	"	mov %r11, 8(%rsp)\n"
	"	syscall\n"
	"	ret\n"
	".globl call_cancellable\n"
	"call_cancellable:\n"
	"	push %rbx\n"
	"	mov %rsp, %rbx\n"
	"	push %r9\n"
	"	mov %rcx, %r9\n"
	"	mov %rsi, %rcx\n"
	"	push %r8\n"
	"	mov 0x20(%rsp), %rsi\n"
	"	mov %rdx, %r8\n"
	"	mov %rdi, %rdx\n"
	"	mov %rbx, %rdi\n"
	"	call call_arch\n"
	"	pop %rcx\n"
	"	pop %rsi\n"
	"	pop %rbx\n"
	"	ret\n");

static void *poll_as_newer_libc(void *arg)
{
	atomic_fetch_add(&ready, 1);
	if (call_cancellable(0, 0, 300, 0, 0, 0, SYS_poll))
		atomic_fetch_add(&interrupted, 1);
	return NULL;
}

static void body_sleepers(void *arg)
{
	be_alone();
	sem_init(&sem, 0, 0);
	CHECK_EQ(pthread_create(&threads[0], NULL, sleep_long, NULL), 0);
	CHECK_EQ(pthread_create(&threads[1], NULL, wait_for_sem, NULL), 0);
	CHECK_EQ(pthread_create(&threads[2], NULL, poll_as_newer_libc, NULL), 0);
	while (atomic_load(&ready) < 3)
		usleep(100);
	usleep(20000);
	init_here();
	wait_until_ready();
	sem_post(&sem);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(atomic_load(&interrupted), 0);
}

UNIT_TEST(threads_that_sleep_are_not_woken)
{
	CHECK_EQ(unit_fork(body_sleepers, NULL), 0);
}

static int to_sleeper[2];

static void *poll_long(void *arg)
{
	struct pollfd p = { .fd = to_sleeper[0], .events = POLLIN };

	atomic_fetch_add(&ready, 1);
	if (poll(&p, 1, -1) != 1)
		atomic_fetch_add(&interrupted, 1);
	return NULL;
}

/* Threads that sleep since before memory was closed, in a process that is stopped while it is. */
SYSTEM_TEST(a_stop_wakes_no_thread_that_sleeps)
{
	pid_t parent = getpid(), child = fork();

	if (!child) {
		usleep(100000);
		kill(parent, SIGSTOP);
		usleep(50000);
		kill(parent, SIGCONT);
		_exit(0);
	}
	CHECK_EQ(pipe(to_sleeper), 0);
	CHECK_EQ(pthread_create(&threads[0], NULL, sleep_long, NULL), 0);
	CHECK_EQ(pthread_create(&threads[1], NULL, poll_long, NULL), 0);
	while (atomic_load(&ready) < 2)
		usleep(100);
	usleep(20000);
	wait_until_ready();
	arm_new();
	CHECK_EQ(waitpid(child, NULL, 0), child);
	usleep(20000);
	CHECK_EQ(write(to_sleeper[1], "x", 1), 1);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	CHECK_EQ(atomic_load(&interrupted), 0);
}

static void *do_nothing(void *arg)
{
	char name[16];

	syscall(SYS_prctl, 16 /* PR_GET_NAME */, name);
	return arg;
}

SYSTEM_TEST(a_hundred_threads_leave_nothing)
{
	pthread_t t[100];
	int before;

	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 100; i++)
			CHECK_EQ(pthread_create(&t[i], NULL, do_nothing, NULL), 0);
		for (int i = 0; i < 100; i++)
			CHECK_EQ(pthread_join(t[i], NULL), 0);
		wait_until_ready();
		if (!round)
			before = unit_count_mappings();
	}
	CHECK(unit_count_mappings() <= before + 20); /* a sanitizer keeps some */
}

static int c11_thread(void *arg)
{
	use_shared(arg);
	return 5;
}

SYSTEM_TEST(threads_of_the_language)
{
	thrd_t t;
	int result = 0;

	CHECK_EQ(thrd_create(&t, c11_thread, (void *)1), thrd_success);
	while (!atomic_load(&ready))
		usleep(100);
	wait_until_ready();
	atomic_store(&shared, arm_new());
	atomic_store(&go, 1);
	CHECK_EQ(thrd_join(t, &result), thrd_success);
	CHECK_EQ(result, 5);
	CHECK_EQ(atomic_load(&correct), 1);
}

static void *create_many(void *arg)
{
	for (int i = 0; i < 300; i++) {
		pthread_t t;

		if (pthread_create(&t, NULL, do_nothing, NULL) || pthread_join(t, NULL))
			return (void *)1;
		pthread_kill(pthread_self(), 0);
	}
	return NULL;
}

/* Libc blocks every signal while it makes a thread: arming at that moment may not kill the process.
 * */
SYSTEM_TEST(threads_are_made_while_memory_is_guarded)
{
	pthread_t t[2];
	void *bad;
	int rounds = 0;

	for (int i = 0; i < 2; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, create_many, NULL), 0);
	while (rounds < 200) {
		struct owner *o = arm_new();

		sched_yield();
		CHECK_EQ(load(o->p), owner_byte(0));
		owner_settle(o);
		munmap(o->p - PAGE, 10 * PAGE);
		munmap(o->arena - PAGE, 10 * PAGE);
		close(o->fd);
		rounds++;
	}
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(pthread_join(t[i], &bad), 0);
		CHECK(!bad);
	}
	wait_until_ready();
}

static void *touch_for_ever(void *arg)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;)
		if (load(((struct owner *)arg)->p + 7) != owner_byte(7))
			abort();
}

/* Cancelled anywhere, the thread leaves no lock and no reference behind. */
SYSTEM_TEST(a_thread_is_cancelled_while_it_touches)
{
	struct owner *o = malloc(sizeof(*o)); /* known until the process ends */

	owner_open(o, 64, 0);
	o->by_page = true;
	for (int i = 0; i < 100; i++) {
		pthread_t t;
		void *result;

		owner_arm(o, 0, 64, GUARD_NO_ACCESS);
		CHECK_EQ(pthread_create(&t, NULL, touch_for_ever, o), 0);
		usleep((unsigned)i * 3);
		CHECK_EQ(pthread_cancel(t), 0);
		CHECK_EQ(pthread_join(t, &result), 0);
		CHECK(result == PTHREAD_CANCELED);
		CHECK_EQ(atomic_load(&o->held), 0);
		CHECK_EQ(load(o->p + 63 * PAGE), owner_byte(63 * PAGE));
		owner_finish(o);
		CHECK(owner_release_all(o));
	}
	wait_until_ready();
}

static void *touch_while_cancelled(void *arg)
{
	struct owner *o = arg;

	pthread_cancel(pthread_self());
	CHECK_EQ(load(o->p + 7), owner_byte(7));
	CHECK_EQ(syscall(SYS_getrandom, o->p + 9 * PAGE, 8L, 0L), 8);
	atomic_store(&ready, 1);
	pthread_testcancel();
	return NULL;
}

/* The host MPI's functions, which a fault handler calls, may be cancellation points. */
SYSTEM_TEST(a_touch_is_no_cancellation_point)
{
	struct owner *o = malloc(sizeof(*o));
	pthread_t t;
	void *result;

	owner_open(o, 64, 0);
	o->by_page = o->has_cancel_point = true;
	owner_arm(o, 0, 64, GUARD_NO_ACCESS);
	atomic_store(&ready, 0);
	CHECK_EQ(pthread_create(&t, NULL, touch_while_cancelled, o), 0);
	CHECK_EQ(pthread_join(t, &result), 0);
	CHECK(result == PTHREAD_CANCELED);
	CHECK(atomic_load(&ready));
	CHECK_EQ(atomic_load(&o->held), 0);
}

static int raw_thread(void *arg)
{
	while (!atomic_load((_Atomic int *)arg))
		syscall(SYS_sched_yield);
	syscall(SYS_exit, 0);
	return 0;
}

SYSTEM_TEST(a_thread_that_nobody_told_us_of_is_noticed)
{
	static char stack[64 << 10] __attribute__((aligned(16)));
	static _Atomic int end;

	CHECK(guard_is_ready());
	CHECK(clone(raw_thread, stack + sizeof(stack),
		    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
			    CLONE_SYSVSEM,
		    &end) > 0);
	CHECK(!guard_is_ready());
	atomic_store(&end, 1);
	wait_until_ready();
}

SYSTEM_TEST(trusted_calls_are_not_looked_at)
{
	uint64_t before;

	arm_new();
	syscall(SYS_getppid);
	before = atomic_load(&base_counters[BASE_CTR_DISPATCHED]);
	CHECK(before > 0);
	sud_allow_push();
	sud_allow_push();
	syscall(SYS_getppid);
	sud_allow_pop();
	syscall(SYS_getppid);
	CHECK_EQ(atomic_load(&base_counters[BASE_CTR_DISPATCHED]), before);
	sud_allow_pop();
	syscall(SYS_getppid);
	CHECK_EQ(atomic_load(&base_counters[BASE_CTR_DISPATCHED]), before + 1);
	sud_enter();
	sud_enter();
	syscall(SYS_getppid);
	sud_exit();
	sud_exit();
	CHECK_EQ(atomic_load(&base_counters[BASE_CTR_DISPATCHED]), before + 1);
}
