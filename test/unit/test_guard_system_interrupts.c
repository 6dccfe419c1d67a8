/* SPDX-License-Identifier: BSD-3-Clause */
/* Signals during system calls of a process with guarded memory. */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/wait.h>
#include <time.h>

#include "sud/private.h"
#include "system_case.h"

enum { PAGES = 16 };

static int pipe_fds[2];

/* Memory whose contents are complete only after a touch. */
static struct owner *arm_new(void)
{
	struct owner *o = malloc(sizeof(*o)); /* known until the process ends */

	owner_open(o, PAGES, 0);
	owner_arm(o, 0, PAGES, GUARD_NO_ACCESS);
	return o;
}

static struct owner *touched_in_handler;
static volatile int handled;

static void on_timer(int signo)
{
	int saved = errno;

	handled++;
	if (touched_in_handler && load(touched_in_handler->p + 11) != owner_byte(11))
		handled = 1000;
	write(pipe_fds[1], touched_in_handler ? touched_in_handler->p : "x", 1);
	errno = saved;
}

static void count_timer(int signo) { handled++; }

/* After `first_us`, and every `again_us`: the first signal may come before the awaited call. */
static void timer(void (*handler)(int), int flags, long first_us, long again_us)
{
	struct sigaction a = { .sa_handler = handler, .sa_flags = flags };
	struct itimerspec t = { .it_value = { 0, first_us * 1000 },
				.it_interval = { 0, again_us * 1000 } };
	struct sigevent e = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	timer_t id;

	CHECK_EQ(sigaction(SIGUSR1, &a, NULL), 0);
	CHECK_EQ(timer_create(CLOCK_MONOTONIC, &e, &id), 0);
	CHECK_EQ(timer_settime(id, 0, &t, NULL), 0);
}

SYSTEM_TEST(a_handler_touches_during_a_blocking_read)
{
	char c;

	CHECK_EQ(pipe(pipe_fds), 0);
	touched_in_handler = arm_new();
	timer(on_timer, SA_RESTART, 30000, 0);
	CHECK_EQ(read(pipe_fds[0], &c, 1), 1); /* written by the handler */
	CHECK_EQ(handled, 1);
	CHECK_EQ((unsigned char)c, owner_byte(0));
}

SYSTEM_TEST(a_call_is_interrupted_as_ever)
{
	char c;

	CHECK_EQ(pipe(pipe_fds), 0);
	arm_new();
	timer(count_timer, 0, 30000, 500000);
	CHECK_EQ(read(pipe_fds[0], &c, 1), -1);
	CHECK_EQ(errno, EINTR);
	CHECK(handled > 0);
}

SYSTEM_TEST(a_sleep_is_interrupted_as_ever)
{
	struct timespec t = { 15, 0 }, left = { 0, 0 };

	CHECK_EQ(pipe(pipe_fds), 0);
	arm_new();
	timer(count_timer, SA_RESTART, 30000, 500000);
	CHECK_EQ(nanosleep(&t, &left), -1);
	CHECK_EQ(errno, EINTR);
	CHECK(left.tv_sec > 0 && left.tv_sec < 15);
}

SYSTEM_TEST(a_stopped_call_goes_on)
{
	struct owner *o;
	pid_t parent = getpid(), child = fork();
	uint64_t t;

	if (!child) {
		usleep(50000);
		kill(parent, SIGSTOP);
		usleep(50000);
		kill(parent, SIGCONT);
		_exit(0);
	}
	o = arm_new();
	t = os_now_ns();
	CHECK_EQ(poll(NULL, 0, 300), 0);
	t = os_now_ns() - t;
	CHECK(t > 290000000 && t < 5000000000);
	CHECK(guard_is_armed(&o->r));
	CHECK_EQ(waitpid(child, NULL, 0), child);
}

static sigjmp_buf back;

static void jump(int signo)
{
	siglongjmp(back, 1);
}

SYSTEM_TEST(a_jump_out_of_a_blocking_call)
{
	struct owner *o;
	char c;

	CHECK_EQ(pipe(pipe_fds), 0);
	for (int i = 0; i < 20; i++) {
		o = arm_new();
		if (!sigsetjmp(back, 1)) {
			timer(jump, 0, 5000, 0);
			read(pipe_fds[0], &c, 1);
			CHECK(!"the read returned");
		}
		CHECK_EQ(write(pipe_fds[1], o->p, 1), 1);
		CHECK_EQ(read(pipe_fds[0], &c, 1), 1);
	}
}

/* The data is late; meanwhile a handler runs where the program was interrupted, and may jump. */
SYSTEM_TEST(a_handler_jumps_out_of_a_touch_that_waits)
{
	struct owner *o;
	int volatile rounds = 0;

	CHECK_EQ(pipe(pipe_fds), 0);
	o = arm_new();
	atomic_store(&o->closed, true);
	for (; rounds < 4; rounds++) {
		if (!sigsetjmp(back, 1)) {
			timer(jump, 0, 20000, 0);
			if (rounds % 2)
				load(o->p);
			else
				write(pipe_fds[1], o->p, 1);
			CHECK(!"the access succeeded");
		}
		CHECK_EQ(atomic_load(&o->held), 0);
		CHECK(!sud_local.in_fault);
	}
	atomic_store(&o->closed, false);
	CHECK_EQ(load(o->p), owner_byte(0));
}

static int to_reader[2], to_poller[2];
static _Atomic int ready;

/* Calls that are dispatched, as memory is closed. */
static void *read_for_ever(void *arg)
{
	char c;

	atomic_fetch_add(&ready, 1);
	CHECK_EQ(read(to_reader[0], &c, 1), 1);
	return NULL;
}

static void *poll_for_ever(void *arg)
{
	struct pollfd p = { .fd = to_poller[0], .events = POLLIN };

	atomic_fetch_add(&ready, 1);
	CHECK_EQ(poll(&p, 1, -1), 1);
	return NULL;
}

static void *join_soon(pthread_t t)
{
	struct timespec until;
	void *result = NULL;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 10;
	CHECK_EQ(pthread_timedjoin_np(t, &result, &until), 0);
	return result;
}

/* Only those that are cancelled end, before and after the first cancellation of the process. */
SYSTEM_TEST(a_thread_is_cancelled_in_a_dispatched_call)
{
	void *(*const bodies[])(void *) = { read_for_ever, poll_for_ever };
	pthread_t t[6];

	CHECK(!pipe(to_reader) && !pipe(to_poller));
	while (!guard_is_ready())
		usleep(1000);
	arm_new();
	atomic_store(&ready, 0);
	for (int i = 0; i < 6; i++)
		CHECK_EQ(pthread_create(&t[i], NULL, bodies[i % 2], NULL), 0);
	while (atomic_load(&ready) < 6)
		usleep(100);
	usleep(50000);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(pthread_cancel(t[i]), 0);
		CHECK(join_soon(t[i]) == PTHREAD_CANCELED);
	}
	usleep(50000);
	CHECK_EQ(write(to_reader[1], "x", 1) + write(to_poller[1], "x", 1), 2);
	CHECK(!join_soon(t[4]) && !join_soon(t[5]));
}
