/* SPDX-License-Identifier: BSD-3-Clause */
/* Several threads and the buffer of a collective right after it; stacks of all kinds. */
#include "early.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { READERS = 8 };

struct part {
	pthread_t thread;
	struct trial *t;
	size_t from, to;
	int wrong;
};

static void start(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	int rc = pthread_create(thread, attr, run, arg);

	if (rc) {
		check_fail("pthread_create: %s", strerror(rc));
		MPI_Abort(MPI_COMM_WORLD, 3);
	}
}

static void *read_part(void *arg)
{
	struct part *p = arg;

	p->wrong = memcmp(p->t->buf + p->from, p->t->want + p->from, p->to - p->from) != 0;
	for (size_t at = p->from; at < p->to; at += 999)
		p->t->buf[at] = (char)~p->t->want[at];
	return NULL;
}

/* Started after the collective; each reads and writes its own part. */
static void read_by_threads(struct trial *t)
{
	struct part parts[READERS];

	for (int i = 0; i < READERS; i++) {
		parts[i] = (struct part){ .t = t, .from = t->bytes * (size_t)i / READERS,
					  .to = t->bytes * (size_t)(i + 1) / READERS };
		start(&parts[i].thread, NULL, read_part, &parts[i]);
	}
	for (int i = 0; i < READERS; i++) {
		pthread_join(parts[i].thread, NULL);
		EXPECT(!parts[i].wrong);
		for (size_t at = parts[i].from; at < parts[i].to; at += 999)
			t->want[at] = (char)~t->want[at];
	}
}

BEHAVIOUR(threads_started_afterwards, 2)
{
	early_trials(read_by_threads);
}

/* ---- threads that were there before ------------------------------------------------------ */

static struct {
	struct part parts[READERS];
	sem_t go, done;
	void (*work)(struct part *p);
	bool stop;
} pool;

static void *pool_run(void *arg)
{
	struct part *p = arg;

	for (;;) {
		while (sem_wait(&pool.go))
			;
		if (pool.stop)
			return NULL;
		pool.work(p);
		sem_post(&pool.done);
	}
}

static void *blocked_pool_run(void *arg)
{
	sigset_t all;

	sigfillset(&all);
	if (((struct part *)arg)->from % 2)
		pthread_sigmask(SIG_BLOCK, &all, NULL);
	else /* as the C library itself does where nobody sees it */
		syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, 8);
	return pool_run(arg);
}

static void pool_begin(void *(*run)(void *))
{
	sem_init(&pool.go, 0, 0);
	sem_init(&pool.done, 0, 0);
	pool.stop = false;
	for (size_t i = 0; i < READERS; i++) {
		pool.parts[i].from = i;
		start(&pool.parts[i].thread, NULL, run, &pool.parts[i]);
	}
	early_sleep_us(2000);
}

static void pool_end(void)
{
	pool.stop = true;
	for (int i = 0; i < READERS; i++)
		sem_post(&pool.go);
	for (int i = 0; i < READERS; i++)
		pthread_join(pool.parts[i].thread, NULL);
}

static void pool_work(struct trial *t, void (*work)(struct part *p))
{
	pool.work = work;
	for (int i = 0; i < READERS; i++) {
		pool.parts[i].t = t;
		pool.parts[i].wrong = 0;
		pool.parts[i].from = t->bytes * (size_t)i / READERS;
		pool.parts[i].to = t->bytes * (size_t)(i + 1) / READERS;
	}
	for (int i = 0; i < READERS; i++)
		sem_post(&pool.go);
	for (int i = 0; i < READERS; i++)
		while (sem_wait(&pool.done))
			;
	for (int i = 0; i < READERS; i++)
		if (pool.parts[i].wrong)
			check_fail("trial %d: thread %d: wrong (%d)", t->index, i,
				   pool.parts[i].wrong);
}

static void compare(struct part *p)
{
	p->wrong = memcmp(p->t->buf + p->from, p->t->want + p->from, p->to - p->from) != 0;
}

static void compare_everything(struct part *p)
{
	p->wrong = memcmp(p->t->buf, p->t->want, p->t->bytes) != 0;
}

static void write_out(struct part *p)
{
	size_t bytes = p->to - p->from;
	char *got = check_alloc(bytes);
	int fd = memfd_create("part", 0);

	if (write(fd, p->t->buf + p->from, bytes) != (ssize_t)bytes)
		p->wrong = errno ? errno : 1;
	else if (pread(fd, got, bytes, 0) != (ssize_t)bytes ||
		 memcmp(got, p->t->want + p->from, bytes))
		p->wrong = 1000;
	close(fd);
	free(got);
}

/* Half of them touch it, the others make system calls on it or on memory of their own. */
static void mixed(struct part *p)
{
	char own[2000];
	int fds[2];

	switch (p->from / (p->t->bytes / READERS) % 3) {
	case 0:
		compare(p);
		return;
	case 1:
		write_out(p);
		return;
	default:
		memset(own, 1, sizeof(own));
		if (pipe(fds))
			return;
		for (int i = 0; i < 200; i++)
			if (write(fds[1], own, sizeof(own)) != sizeof(own) ||
			    read(fds[0], own, sizeof(own)) != sizeof(own))
				p->wrong = 2000 + errno;
		close(fds[0]);
		close(fds[1]);
		compare(p);
	}
}

#define BY_POOL(name, run, work)                                                                   \
	static void pool_##name(struct trial *t) { pool_work(t, work); }                           \
	static void all_##name(void)                                                               \
	{                                                                                          \
		pool_begin(run);                                                                   \
		early_trials(pool_##name);                                                         \
		pool_end();                                                                        \
	}

BY_POOL(parts, pool_run, compare)
BEHAVIOUR(threads_read_their_parts, 2)
{
	all_parts();
}

BY_POOL(everything, pool_run, compare_everything)
BEHAVIOUR(threads_read_everything, 2)
{
	all_everything();
}

BY_POOL(files, pool_run, write_out)
BEHAVIOUR(threads_write_to_files, 2)
{
	all_files();
}

BY_POOL(mixed, pool_run, mixed)
BEHAVIOUR(threads_touch_and_call, 2)
{
	all_mixed();
}

BY_POOL(blocked, blocked_pool_run, mixed)
BEHAVIOUR(threads_with_all_signals_blocked, 2)
{
	all_blocked();
}

/* ---- threads that come and go ------------------------------------------------------------ */

static void *touch_at_exit(void *arg)
{
	struct part *p = arg;

	p->wrong += p->t->buf[p->from] != p->t->want[p->from];
	return NULL;
}

static void cleanup(void *arg)
{
	touch_at_exit(arg);
}

static void *ends_by_exit(void *arg)
{
	pthread_cleanup_push(cleanup, arg);
	pthread_exit(NULL);
	pthread_cleanup_pop(1);
	return NULL;
}

static void *waits_for_its_end(void *arg)
{
	char byte;
	int fds[2];

	if (pipe(fds))
		return NULL;
	pthread_cleanup_push(cleanup, arg);
	read(fds[0], &byte, 1);
	pthread_cleanup_pop(1);
	return NULL;
}

static void *is_cancelled_anywhere(void *arg)
{
	struct part *p = arg;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;)
		p->wrong |= 2 * (p->t->buf[p->to] != p->t->want[p->to]);
}

static void come_and_go(struct trial *t)
{
	void *(*const runs[])(void *) = { touch_at_exit, ends_by_exit, waits_for_its_end };
	struct part p = { .t = t, .from = t->bytes / 2, .to = t->bytes / 3 };

	for (int i = 0; i < 3; i++) {
		int which = (i + t->index) % 3;

		start(&p.thread, NULL, runs[which], &p);
		if (runs[which] == waits_for_its_end)
			pthread_cancel(p.thread);
		pthread_join(p.thread, NULL);
	}
	EXPECT(!p.wrong);
}

BEHAVIOUR(threads_end_and_are_cancelled, 2)
{
	early_trials(come_and_go);
}

static void cancel_anywhere(struct trial *t)
{
	struct part p = { .t = t, .to = t->bytes / 3 };

	start(&p.thread, NULL, is_cancelled_anywhere, &p);
	if (t->index % 2)
		early_sleep_us(400);
	pthread_cancel(p.thread);
	pthread_join(p.thread, NULL);
	EXPECT(!p.wrong);
}

BEHAVIOUR(threads_cancelled_while_they_touch, 2)
{
	early_trials(cancel_anywhere);
}

struct late {
	char *at;
	_Atomic int go, has_read;
};

static void *reads_once(void *arg)
{
	struct late *l = arg;

	while (!atomic_load(&l->go))
		; /* no cancellation point */
	atomic_store(&l->has_read, 1 + (*(volatile char *)l->at == 7));
	for (;;)
		pause();
	return NULL;
}

/* The root is so late that the touch looks whether it lives. */
BEHAVIOUR(a_touch_is_no_cancellation_point, 2)
{
	const int bytes = 4 << 20;
	char *buf = early_map((size_t)bytes);

	for (int i = 0; i < 3; i++) {
		struct late l = { .at = buf + bytes / 2 };
		pthread_t thread;

		memset(buf, rank == 1 ? 7 : 0, (size_t)bytes);
		MPI_Barrier(MPI_COMM_WORLD);
		start(&thread, NULL, reads_once, &l);
		pthread_cancel(thread);
		if (rank == 1)
			early_sleep_us(300000);
		EXPECT(!MPI_Bcast(buf, bytes, MPI_BYTE, 1, MPI_COMM_WORLD));
		atomic_store(&l.go, 1);
		pthread_join(thread, NULL);
		EXPECT(atomic_load(&l.has_read) == 2);
	}
	munmap(buf, (size_t)bytes);
}

/* A signal then comes without what was sent with it. */
BEHAVIOUR(threads_beyond_the_limit_of_queued_signals, 2)
{
	const int bytes = 4 << 20;
	char *buf = early_map((size_t)bytes);
	struct late l = { .at = buf + bytes / 2 };
	struct rlimit old;
	pthread_t thread;

	start(&thread, NULL, reads_once, &l);
	EXPECT(!getrlimit(RLIMIT_SIGPENDING, &old));
	EXPECT(!setrlimit(RLIMIT_SIGPENDING, &(struct rlimit){ 0, old.rlim_max }));
	for (int i = 0; i < 3; i++) {
		memset(buf, rank == 1 ? 7 : 0, (size_t)bytes);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 1)
			early_sleep_us(2000);
		EXPECT(!MPI_Bcast(buf, bytes, MPI_BYTE, 1, MPI_COMM_WORLD));
	}
	atomic_store(&l.go, 1);
	while (!atomic_load(&l.has_read))
		sched_yield();
	EXPECT(atomic_load(&l.has_read) == 2);
	EXPECT(!setrlimit(RLIMIT_SIGPENDING, &old));
	pthread_cancel(thread);
	pthread_join(thread, NULL);
	munmap(buf, (size_t)bytes);
}

static void small_thread(struct trial *t)
{
	struct part p = { .t = t, .from = t->bytes / 2 };
	pthread_attr_t attr;
	sigset_t all;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, PTHREAD_STACK_MIN + 4096);
	sigfillset(&all);
	if (t->index % 2)
		pthread_attr_setsigmask_np(&attr, &all);
	start(&p.thread, &attr, touch_at_exit, &p);
	pthread_join(p.thread, NULL);
	pthread_attr_destroy(&attr);
	EXPECT(!p.wrong);
}

BEHAVIOUR(threads_with_small_stacks, 2)
{
	early_trials(small_thread);
}

static sem_t notified;
static void notify(union sigval v)
{
	struct part *p = v.sival_ptr;

	write_out(p);
	sem_post(&notified);
}

/* The C library makes threads of its own. */
static void by_notification(struct trial *t)
{
	struct part p = { .t = t, .from = t->bytes / 3, .to = t->bytes / 2 };
	struct sigevent e = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = notify,
			      .sigev_value.sival_ptr = &p };
	struct itimerspec soon = { .it_value.tv_nsec = 1000 };
	timer_t timer;

	sem_init(&notified, 0, 0);
	EXPECT(!timer_create(CLOCK_MONOTONIC, &e, &timer));
	EXPECT(!timer_settime(timer, 0, &soon, NULL));
	while (sem_wait(&notified))
		;
	timer_delete(timer);
	if (p.wrong)
		check_fail("trial %d: in the timer's thread: %d", t->index, p.wrong);
}

BEHAVIOUR(threads_of_the_c_library, 2)
{
	early_trials(by_notification);
}

static int shares_memory(void *arg)
{
	struct part *p = arg;

	write_out(p);
	return 0;
}

static void by_clone(struct trial *t)
{
	struct part p = { .t = t, .from = t->bytes / 3, .to = t->bytes / 2 };
	size_t bytes = 256 << 10;
	char *stack = early_map(bytes);
	pid_t child = clone(shares_memory, stack + bytes, CLONE_VM | SIGCHLD, &p);
	int status;

	EXPECT(waitpid(child, &status, 0) == child);
	EXPECT(WIFEXITED(status) && !WEXITSTATUS(status) && !p.wrong);
	munmap(stack, bytes);
}

BEHAVIOUR(clone_with_shared_memory, 2)
{
	early_trials(by_clone);
}

/* ---- a thread that makes the collective -------------------------------------------------- */

static void *collective_of_thread(void *arg)
{
	struct trial *t = arg;

	memset(t->buf, 0, t->receiver && !t->gather ? t->bytes : 0);
	early_collective(t, MPI_COMM_WORLD);
	return NULL;
}

static void by_another_thread(struct trial *t)
{
	pthread_t thread;

	start(&thread, NULL, collective_of_thread, t);
	pthread_join(thread, NULL);
}

BEHAVIOUR(the_calling_thread_has_ended, 2)
{
	int provided;

	MPI_Query_thread(&provided);
	if (provided < MPI_THREAD_SERIALIZED)
		check_skip("MPI_THREAD_SERIALIZED is not provided");
	else
		early_trials(by_another_thread);
}

/* ---- stacks ------------------------------------------------------------------------------ */

static sigjmp_buf back;
static struct trial *now;
static volatile sig_atomic_t caught;

static void on_alternate_stack(int sig, siginfo_t *i, void *context)
{
	caught++;
	if (now->buf[now->bytes / 2] != now->want[now->bytes / 2])
		check_fail("a handler on its own stack has seen a wrong byte");
	siglongjmp(back, 1);
}

__attribute__((noinline)) static int deeper(volatile char *above)
{
	volatile char here[4096];

	here[0] = above[0];
	return deeper(here) + here[0];
}

static void overflow(struct trial *t)
{
	static char area[65536];
	stack_t stack = { .ss_sp = area, .ss_size = sizeof(area) }, old;
	struct sigaction a = { .sa_sigaction = on_alternate_stack,
			       .sa_flags = SA_SIGINFO | SA_ONSTACK };
	struct sigaction before;
	volatile char start = 1;

	now = t;
	caught = 0;
	EXPECT(!sigaltstack(&stack, &old));
	EXPECT(!sigaction(SIGSEGV, &a, &before));
	if (t->index % 2)
		EXPECT(t->buf[t->bytes / 5] == t->want[t->bytes / 5]);
	if (!sigsetjmp(back, 1))
		deeper(&start);
	EXPECT(caught == 1);
	EXPECT(t->buf[t->bytes / 3] == t->want[t->bytes / 3]);
	EXPECT(!sigaction(SIGSEGV, &before, NULL));
	EXPECT(!sigaltstack(&old, NULL));
}

BEHAVIOUR(stack_overflow_caught_on_another_stack, 2)
{
	early_trials(overflow);
}

static void touch_simply(int sig)
{
	caught++;
	if (now->buf[now->bytes / 2] != now->want[now->bytes / 2])
		check_fail("a handler on a small stack has seen a wrong byte");
}

static void small_alternate_stack(struct trial *t)
{
	static char area[16384];
	stack_t stack = { .ss_sp = area, .ss_size = sizeof(area) }, old;
	struct sigaction a = { .sa_handler = touch_simply, .sa_flags = SA_ONSTACK }, before;

	now = t;
	caught = 0;
	EXPECT(!sigaltstack(&stack, &old));
	EXPECT(!sigaction(SIGUSR1, &a, &before));
	raise(SIGUSR1);
	EXPECT(caught == 1);
	EXPECT(!sigaction(SIGUSR1, &before, NULL));
	EXPECT(!sigaltstack(&old, NULL));
}

BEHAVIOUR(handler_on_a_small_stack, 2)
{
	early_trials(small_alternate_stack);
}

int main(int argc, char **argv)
{
	return check_main(argc, argv, MPI_THREAD_SERIALIZED);
}
