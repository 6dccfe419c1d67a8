/* SPDX-License-Identifier: BSD-3-Clause */
/* Touches by several threads, and from outside the process. */
#include <pthread.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "guard_case.h"

enum { THREADS = 4, PAGES = 600, AT = 400 };

/* Threads are made before the range is armed, as making one opens everything. */
struct worker {
	pthread_t thread;
	struct owner *o;
	int index, wrong;
	_Atomic bool go, done;
};

static void start(struct worker *w, int index, struct owner *o, void *(*fn)(void *))
{
	*w = (struct worker){ .o = o, .index = index };
	CHECK_EQ(pthread_create(&w->thread, NULL, fn, w), 0);
}

static void wait_for_go(struct worker *w)
{
	while (!atomic_load(&w->go))
		usleep(50);
}

static void finish(struct worker *w)
{
	CHECK_EQ(pthread_join(w->thread, NULL), 0);
	CHECK_EQ(w->wrong, 0);
}

static void *read_all(void *arg)
{
	struct worker *w = arg;

	wait_for_go(w);
	for (size_t n = 0; n < PAGES; n++) {
		size_t i = (n * 7 + (size_t)w->index * 13) % PAGES * PAGE + (size_t)w->index;

		w->wrong += load(w->o->p + i) != owner_byte(i);
	}
	atomic_store(&w->done, true);
	return NULL;
}

GUARD_TEST(four_threads_touch_at_once)
{
	enum { ROUNDS = 20 };
	static struct owner o;

	owner_open(&o, PAGES, AT);
	for (int round = 0; round < ROUNDS; round++) {
		struct worker w[THREADS];

		o.by_page = round & 1;
		for (int i = 0; i < THREADS; i++)
			start(&w[i], i, &o, read_all);
		owner_arm(&o, 0, PAGES, GUARD_NO_ACCESS);
		for (int i = 0; i < THREADS; i++)
			atomic_store(&w[i].go, true);
		for (int i = 0; i < THREADS; i++)
			finish(&w[i]);
		owner_settle(&o);
		CHECK(!guard_is_armed(&o.r));
		memset(o.p, 0xEE, PAGES * PAGE);
	}
}

/* A page is released between the access and the handler: over and over. */
static void *read_for_ever(void *arg)
{
	struct worker *w = arg;

	while (!atomic_load(&w->done))
		for (size_t i = 0; i < PAGES; i += 50)
			load(w->o->p + i * PAGE);
	return NULL;
}

GUARD_TEST(pages_that_are_released_under_an_access)
{
	enum { ROUNDS = 3000 };
	struct worker w[2];
	static struct owner o;

	owner_open(&o, PAGES, AT);
	for (int i = 0; i < 2; i++)
		start(&w[i], i, &o, read_for_ever);
	for (int round = 0; round < ROUNDS; round++) {
		owner_arm(&o, 0, PAGES, round & 1 ? GUARD_READ_ONLY : GUARD_NO_ACCESS);
		guard_release(&o.r, o.r.start, o.r.start + (uintptr_t)(round % PAGES) * PAGE);
		CHECK(owner_release_all(&o));
	}
	for (int i = 0; i < 2; i++) {
		atomic_store(&w[i].done, true);
		finish(&w[i]);
	}
	owner_settle(&o);
}

/* One thread waits for a root that does not come; the others do not wait. */
GUARD_TEST(a_touch_that_waits_stops_no_other)
{
	enum { WAITING = 5 };
	static struct owner late[WAITING], o;
	struct worker w[WAITING], other;

	owner_open(&o, PAGES, AT);
	start(&other, 0, &o, read_all);
	for (int i = 0; i < WAITING; i++)
		start(&w[i], i, &late[i], read_all);
	for (int i = 0; i < WAITING; i++) {
		owner_open(&late[i], PAGES, AT);
		atomic_store(&late[i].closed, true);
		owner_arm(&late[i], 0, PAGES, GUARD_NO_ACCESS);
	}
	owner_arm(&o, 0, PAGES, GUARD_NO_ACCESS);
	CHECK(guard_is_ready());
	for (int i = 0; i < WAITING; i++)
		atomic_store(&w[i].go, true);
	for (int i = 0; i < WAITING; i++)
		while (!atomic_load(&late[i].waiting))
			usleep(100);
	atomic_store(&other.go, true);
	finish(&other);
	for (int i = 0; i < WAITING; i++) {
		CHECK(!atomic_load(&w[i].done));
		atomic_store(&late[i].closed, false);
	}
	for (int i = 0; i < WAITING; i++)
		finish(&w[i]);
}

/* More threads than serve faults wait for one range; or one thread does, again and again. */
GUARD_TEST(many_that_wait_for_one_range_stop_no_other)
{
	enum { WAITING = 12 };
	static struct owner late, o;
	struct worker w[WAITING], other;

	owner_open(&o, PAGES, AT);
	owner_open(&late, PAGES, AT);
	late.by_page = true;
	start(&other, 0, &o, read_all);
	for (int i = 0; i < WAITING; i++)
		start(&w[i], i, &late, read_all);
	atomic_store(&late.closed, true);
	owner_arm(&late, 0, PAGES, GUARD_NO_ACCESS);
	owner_arm(&o, 0, PAGES, GUARD_NO_ACCESS);
	for (int i = 0; i < WAITING; i++)
		atomic_store(&w[i].go, true);
	while (!atomic_load(&late.waiting))
		usleep(100);
	usleep(20000);
	atomic_store(&other.go, true);
	finish(&other);
	for (int i = 0; i < WAITING; i++)
		CHECK(!atomic_load(&w[i].done));
	atomic_store(&late.closed, false);
	for (int i = 0; i < WAITING; i++)
		finish(&w[i]);
	owner_settle(&late);
}

static void *read_one(void *arg)
{
	struct worker *w = arg;
	size_t i = (size_t)w->index * 10 * PAGE;

	wait_for_go(w);
	w->wrong = load(w->o->p + i) != owner_byte(i);
	return NULL;
}

/* Each fault is served, although one thread alone waits for the range. */
GUARD_TEST(all_that_wait_for_one_range_go_on)
{
	enum { WAITING = 12 };
	static struct owner late;
	struct worker w[WAITING];

	owner_open(&late, PAGES, AT);
	late.by_page = true;
	for (int i = 0; i < WAITING; i++)
		start(&w[i], i, &late, read_one);
	atomic_store(&late.closed, true);
	owner_arm(&late, 0, PAGES, GUARD_NO_ACCESS);
	for (int i = 0; i < WAITING; i++)
		atomic_store(&w[i].go, true);
	while (!atomic_load(&late.waiting))
		usleep(100);
	usleep(20000);
	atomic_store(&late.closed, false);
	for (int i = 0; i < WAITING; i++)
		finish(&w[i]);
	owner_settle(&late);
	CHECK_EQ(late.r.armed_pages, PAGES - WAITING);
	CHECK(owner_release_all(&late));
}

enum { TICKS = 40, TICK_TOUCHES = 20 };
static struct owner *ticking_late, *ticking_other;
static _Atomic int ticks;

static void on_tick(int signo)
{
	(void)signo;
	if (atomic_fetch_add(&ticks, 1) == TICK_TOUCHES)
		load(ticking_other->p);
}

static void *tick(void *arg)
{
	struct worker *w = arg;

	while (atomic_load(&ticks) < TICKS) {
		usleep(1000);
		if (atomic_load(&ticking_late->waiting))
			pthread_kill(*(pthread_t *)w->o, SIGUSR1);
	}
	atomic_store(&ticking_late->closed, false);
	return NULL;
}

GUARD_TEST(handlers_run_while_a_touch_waits)
{
	static struct owner late, o;
	struct sigaction a = { .sa_handler = on_tick };
	pthread_t self = pthread_self();
	struct worker w;

	CHECK_EQ(sigaction(SIGUSR1, &a, NULL), 0);
	ticking_late = &late;
	ticking_other = &o;
	owner_open(&o, PAGES, AT);
	owner_open(&late, PAGES, AT);
	start(&w, 0, (struct owner *)&self, tick);
	atomic_store(&late.closed, true);
	owner_arm(&late, 0, PAGES, GUARD_NO_ACCESS);
	owner_arm(&o, 0, PAGES, GUARD_NO_ACCESS);
	CHECK_EQ(load(late.p + 3 * PAGE), owner_byte(3 * PAGE));
	finish(&w);
	CHECK(ticks >= TICKS);
	CHECK_EQ(o.touches, 1);
	CHECK_OWNER(&late, 0, PAGES);
}

static void *tick_for_a_while(void *arg)
{
	struct worker *w = arg;

	while (!atomic_load(&ticking_late->waiting))
		usleep(100);
	for (int i = 0; i < TICKS; i++) {
		usleep(1000);
		pthread_kill(*(pthread_t *)w->o, SIGUSR1);
	}
	atomic_store(&ticking_late->closed, false);
	return NULL;
}

static void count_tick(int signo)
{
	(void)signo;
	atomic_fetch_add(&ticks, 1);
}

/* The kernel may keep the signals until the call is over (uffd), or they interrupt it before it
 * begins. */
GUARD_TEST(signals_while_a_system_call_waits)
{
	static char text[2 * PAGE];
	static struct owner late;
	struct sigaction a = { .sa_handler = count_tick, .sa_flags = SA_RESTART };
	pthread_t self = pthread_self();
	struct worker w;
	int ends[2];

	CHECK_EQ(sigaction(SIGUSR1, &a, NULL), 0);
	CHECK_EQ(pipe(ends), 0);
	memset(text, 'x', sizeof text);
	CHECK_EQ(write(ends[1], text, sizeof text), sizeof text);
	ticking_late = &late;
	owner_open(&late, PAGES, AT);
	start(&w, 0, (struct owner *)&self, tick_for_a_while);
	atomic_store(&late.closed, true);
	owner_arm(&late, 0, PAGES, GUARD_NO_ACCESS);
	CHECK_EQ(read(ends[0], late.p + PAGE, sizeof text), sizeof text);
	finish(&w);
	CHECK(ticks > 0);
	CHECK(!memcmp(late.p + PAGE, text, sizeof text));
	CHECK_OWNER(&late, 3, PAGES - 3);
	close(ends[0]);
	close(ends[1]);
}

/* Two threads wait for the same page. */
GUARD_TEST(several_wait_for_one_page)
{
	struct worker w[THREADS];
	static struct owner o;

	owner_open(&o, PAGES, AT);
	for (int i = 0; i < THREADS; i++)
		start(&w[i], 0, &o, read_all);
	atomic_store(&o.closed, true);
	owner_arm(&o, 0, PAGES, GUARD_NO_ACCESS);
	for (int i = 0; i < THREADS; i++)
		atomic_store(&w[i].go, true);
	while (!atomic_load(&o.waiting))
		usleep(100);
	usleep(2000);
	atomic_store(&o.closed, false);
	for (int i = 0; i < THREADS; i++)
		finish(&w[i]);
}

struct peer { pid_t owner; char *at; unsigned char expect; };

static void peer_reads(void *arg)
{
	struct peer *peer = arg;
	unsigned char got = 0;
	struct iovec mine = { &got, 1 }, theirs = { peer->at, 1 };

	CHECK_EQ(process_vm_readv(peer->owner, &mine, 1, &theirs, 1, 0), 1);
	CHECK_EQ(got, peer->expect);
}

GUARD_TEST(peers_read_senders_pages)
{
	static struct owner o;
	struct peer peer = { .owner = getpid(), .expect = 0xEE };
	int status;
	pid_t pid;

	owner_open(&o, PAGES, AT);
	peer.at = o.p + 300 * PAGE;
	pid = unit_spawn(peer_reads,
			 &peer); /* before: a child of an armed process is not ours to think of */
	owner_arm(&o, 0, PAGES, GUARD_READ_ONLY);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK(owner_release_all(&o));
}
