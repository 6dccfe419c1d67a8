/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Nonblocking collectives on a communicator that spans nodes, where several threads use the host
 * MPI anyway (doc/adr/0030-more-collectives-over-nodes.md). A thread for each such communicator
 * executes the calls in their order, as blocking ones.
 *
 *   request.c   --hier_start()-->  queue  --the thread-->  done  --hier_next_done()-->  request.c
 *
 * The thread sleeps between two polls of its messages. A rank that waits for or tests a request
 * makes the thread poll at once. Blocking collectives wait until the thread is idle. guard/ and
 * region/ treat the thread as one of the program's: it touches the program's memory.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/base.h"
#include "hier/hier.h"

enum {
	EAGER_POLLS = 100,        /* polls after the last event before the thread sleeps */
	NAP_MIN_NS = 20000, NAP_MAX_NS = 500000,
	GIVE_UP_NAPS = 2000,      /* of 1 ms each, at the end, without a call that ends */
};

/* The program's threads handle the program's signals. This thread keeps signals that a thread
 * causes itself (SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS) and signals that libc sends
 * to all threads (32, 33). */
#define BIT(signal) ((uint64_t)1 << ((signal) - 1))
#define BLOCKED (~(BIT(4) | BIT(5) | BIT(7) | BIT(8) | BIT(11) | BIT(31) | BIT(32) | BIT(33)))

struct job {
	struct job *next;
	struct coll_op *op;
	void *owner;
	int err; /* of the preparation; after the call: its result */
};

struct jobs { struct job *first, **last; };

struct hier_thread {
	pthread_mutex_t lock;  /* protects all fields but the atomic ones */
	pthread_cond_t news;
	struct jobs queue;
	uint32_t ended;        /* number of calls that have ended */
	bool is_busy, is_ending;
	_Atomic bool is_cancelled;
	uint32_t known_hurries, polls;  /* of the thread alone */
};

static struct {
	pthread_mutex_t lock;
	struct jobs jobs;
	_Atomic uint32_t count;
} done = { .lock = PTHREAD_MUTEX_INITIALIZER, .jobs = { .last = &done.jobs.first } };

static _Atomic uint32_t hurries; /* counts requests to poll at once */

static void push(struct jobs *jobs, struct job *j)
{
	j->next = NULL;
	*jobs->last = j;
	jobs->last = &j->next;
}

static struct job *pop(struct jobs *jobs)
{
	struct job *j = jobs->first;

	if (j)
		jobs->first = j->next;
	if (j && !jobs->first)
		jobs->last = &jobs->first;
	return j;
}

/* ---- the thread -------------------------------------------------------------------------- */

static void nap(long ns)
{
	const struct timespec t = { 0, ns };

	nanosleep(&t, NULL);
}

bool hier_thread_pause(struct hier_thread *t, bool has_moved)
{
	uint32_t now = atomic_load_explicit(&hurries, memory_order_relaxed);

	if (has_moved || now != t->known_hurries)
		t->polls = 0;
	t->known_hurries = now;
	t->polls++;
	if (t->polls < EAGER_POLLS)
		sched_yield();
	else
		nap((long)base_min_u64((uint64_t)(t->polls - EAGER_POLLS) * 1000 + NAP_MIN_NS,
				       NAP_MAX_NS));
	return !atomic_load_explicit(&t->is_cancelled, memory_order_relaxed);
}

static void finish(struct job *j)
{
	pthread_mutex_lock(&done.lock);
	push(&done.jobs, j);
	atomic_fetch_add_explicit(&done.count, 1,
				  memory_order_release); /* partner: hier_next_done */
	pthread_mutex_unlock(&done.lock);
}

static void thread_free(struct hier_thread *t)
{
	pthread_cond_destroy(&t->news);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* The communicator may be freed as soon as the program has its last request. */
static void *thread_main(void *arg)
{
	struct hier_thread *t = arg;
	struct job *j;

	prctl(PR_SET_NAME, "sluice-hier");
	pthread_mutex_lock(&t->lock);
	while (!t->is_ending) {
		j = pop(&t->queue);
		if (!j) {
			pthread_cond_wait(&t->news, &t->lock);
			continue;
		}
		t->is_busy = true;
		pthread_mutex_unlock(&t->lock);
		t->polls = 0;
		j->err = hier_work(j->op, j->err, t);
		pthread_mutex_lock(&t->lock);
		t->is_busy = false;
		t->ended++;
		finish(j);
	}
	pthread_mutex_unlock(&t->lock);
	thread_free(t);
	return NULL;
}

static int create(void *(*run)(void *), void *arg)
{
	uint64_t blocked = BLOCKED, before;
	pthread_t thread;
	int rc;

	/* a thread inherits its creator's signal mask */
	os_signal_mask(OS_MASK_SET, &blocked, &before);
	rc = pthread_create(&thread, NULL, run, arg);
	os_signal_mask(OS_MASK_SET, &before, NULL);
	if (!rc)
		pthread_detach(thread);
	return -rc;
}

int hier_thread_create(struct hier_thread **out)
{
	struct hier_thread *t = calloc(1, sizeof(*t));
	int ret;

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->news, NULL);
	t->queue.last = &t->queue.first;
	ret = base_fault("hier_thread") ? -EAGAIN : create(thread_main, t);
	if (ret)
		thread_free(t);
	else
		*out = t;
	return ret;
}

void hier_thread_end(struct hier_thread *t)
{
	if (!t)
		return;
	pthread_mutex_lock(&t->lock);
	t->is_ending = true;
	pthread_cond_signal(&t->news);
	pthread_mutex_unlock(&t->lock);
}

/* ---- waiting for all of them ------------------------------------------------------------- */

static bool is_idle(struct hier_thread *t, uint32_t *out_ended)
{
	bool is;

	pthread_mutex_lock(&t->lock);
	is = !t->is_busy && !t->queue.first;
	*out_ended = t->ended;
	pthread_mutex_unlock(&t->lock);
	return is;
}

void hier_wait_idle(struct hier_comm *s)
{
	uint32_t ended;

	while (s->thread && !is_idle(s->thread, &ended)) {
		atomic_fetch_add_explicit(&hurries, 1, memory_order_relaxed);
		if (rt_has_requests())
			rt_requests_progress();
		sched_yield();
	}
}

bool hier_end(struct hier_comm *s)
{
	uint32_t ended = 0, before = 0;

	for (int naps = 0; s->thread && !is_idle(s->thread, &ended); naps++) {
		atomic_fetch_add_explicit(&hurries, 1, memory_order_relaxed);
		if (ended != before)
			naps = 0;
		before = ended;
		if (naps == GIVE_UP_NAPS)
			atomic_store_explicit(&s->thread->is_cancelled, true, memory_order_relaxed);
		if (naps == 2 * GIVE_UP_NAPS)
			return false;
		nap(1000000);
	}
	return true;
}

/* ---- requests ---------------------------------------------------------------------------- */

bool hier_admits_request(const struct coll_op *t)
{
	return t->cs->multinode->thread && hier_suits(t);
}

int hier_give_up(struct coll_op *t)
{
	t->call = (struct coll_call){ .kind = t->args.kind,
				    .root = t->args.root,
				    .name = t->args.name };
	hier_wait_idle(t->cs->multinode);
	return hier_work(t, -ENOMEM, NULL);
}

int hier_start(struct coll_op *t, int err, void *owner)
{
	struct hier_thread *thread = t->cs->multinode->thread;
	struct job *j = base_fault("hier_start") ? NULL : malloc(sizeof(*j));

	if (!j)
		return hier_give_up(t);
	*j = (struct job){ .op = t, .owner = owner, .err = err };
	rt_intercept_ref();
	pthread_mutex_lock(&thread->lock);
	push(&thread->queue, j);
	pthread_cond_signal(&thread->news);
	pthread_mutex_unlock(&thread->lock);
	return 0;
}

void *hier_next_done(int *out_result)
{
	struct job *j;
	void *owner;

	atomic_fetch_add_explicit(&hurries, 1, memory_order_relaxed);
	if (!atomic_load_explicit(&done.count, memory_order_acquire))
		return NULL;
	pthread_mutex_lock(&done.lock);
	j = pop(&done.jobs);
	if (j)
		atomic_fetch_sub_explicit(&done.count, 1, memory_order_relaxed);
	pthread_mutex_unlock(&done.lock);
	if (!j)
		return NULL;
	*out_result = j->err;
	owner = j->owner;
	free(j);
	return owner;
}
