/* SPDX-License-Identifier: BSD-3-Clause */
/* The software engine: the effects of its worker threads on the rest of the machine. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/sw/sw.h"
#include "engine_case.h"
#include "unit.h"

static struct engine_chan *begin(struct engine_case *e, int workers)
{
	*e = (struct engine_case){ .ops = engine_find("sw"), .fault = "", .workers = workers };
	engine_case_options(e, NULL);
	return engine_case_open(e, 0);
}

/* ---- threads ----------------------------------------------------------------------------- */

/* Finds the thread ids of the workers. */
static int find_workers(int *tids, int cap)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *d;
	int n = 0;

	while (tasks && (d = readdir(tasks))) {
		char path[300], name[32] = "";
		FILE *comm;

		snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
		comm = d->d_name[0] == '.' ? NULL : fopen(path, "re");
		if (comm && fgets(name, sizeof name, comm) && !strcmp(name, "sluice-sw\n") &&
		    n < cap)
			tids[n++] = atoi(d->d_name);
		if (comm)
			fclose(comm);
	}
	if (tasks)
		closedir(tasks);
	return n;
}

/* Returns: a line of /proc/.../status, as hexadecimal. */
static uint64_t status_of(int tid, const char *key)
{
	char path[64], line[256];
	uint64_t value = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/self/task/%d/status", tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, key, strlen(key)))
			value = strtoull(line + strlen(key), NULL, 16);
	if (f)
		fclose(f);
	return value;
}

UNIT_TEST(sw_workers_run_when_nobody_else_does)
{
	struct engine_case e = { .ops = engine_find("sw"), .fault = "", .workers = 2 };
	struct engine_chan *ch;
	int tids[8], n, idle = 0;

	/* at idle priority, unlike the workers of the conformance suite */
	engine_case_options(&e, "SLUICE_TEST=fault=other:1");
	ch = engine_case_open(&e, 0);
	n = find_workers(tids, 8);
	for (int tries = 0; tries < 20000 && idle < 2; tries++) {
		usleep(1000);
		idle = 0;
		for (int i = 0; i < n; i++)
			idle += sched_getscheduler(tids[i]) == SCHED_IDLE ||
				getpriority(PRIO_PROCESS, (id_t)tids[i]) == 19;
	}
	engine_case_close(&e, ch);
	CHECK_EQ(n, 2);
	CHECK_EQ(idle, 2);
}

UNIT_TEST(sw_workers_take_no_signal_but_those_of_libc)
{
	struct engine_case e;
	struct engine_chan *ch = begin(&e, 1);
	int tid = 0, n = find_workers(&tid, 1);
	uint64_t blocked = status_of(tid, "SigBlk:");

	engine_case_close(&e, ch);
	CHECK_EQ(n, 1);
	/* KILL and STOP cannot be blocked; 32 and 33 are libc's */
	CHECK_EQ(~blocked, (1ull << 8) | (1ull << 18) | (1ull << 31) | (1ull << 32));
}

static void on_their_cpus(void *arg)
{
	struct os_cpumask all, one = { { 0 } };
	struct engine_case e = { .ops = engine_find("sw"), .fault = "", .workers = 2 };
	struct engine_chan *ch;
	cpu_set_t set;
	int tids[2];

	(void)arg;
	os_cpumask_self(&all);
	one.bits[0] = all.bits[0] & -all.bits[0];
	engine_set_cpus(&one, 1);
	engine_case_options(&e, NULL);
	ch = engine_case_open(&e, 0);
	CHECK_EQ(find_workers(tids, 2), 2);
	for (int i = 0; i < 2; i++) {
		CHECK(!sched_getaffinity(tids[i], sizeof set, &set));
		CHECK_EQ(CPU_COUNT(&set), 1);
		CHECK(CPU_ISSET(__builtin_ctzll(one.bits[0]), &set));
	}
	engine_case_close(&e, ch);
}

UNIT_TEST(sw_workers_stay_on_their_cpus)
{
	struct os_cpumask all;

	os_cpumask_self(&all);
	if (!all.bits[0])
		unit_skip("needs one of the first 64 CPUs");
#ifdef __SANITIZE_THREAD__
	unit_skip("this sanitizer has no threads in a forked child");
#endif
	CHECK_EQ(unit_fork(on_their_cpus, NULL), 0);
}

/* ---- ending them ------------------------------------------------------------------------- */

static _Atomic bool hog_ends;

static void *hog(void *cpus)
{
	CHECK(!os_cpumask_apply(0, cpus));
	while (!atomic_load_explicit(&hog_ends, memory_order_relaxed))
		;
	return NULL;
}

/* Returns: how many of twenty ends took no longer than a thread with a CPU needs. */
static int quick_ends(const struct engine_case *e)
{
	int quick = 0;

	for (int i = 0; i < 20; i++) {
		struct engine_chan *ch;
		uint64_t begun;

		CHECK(!e->ops->chan_open(-1, 0, &ch));
		begun = os_now_ns();
		e->ops->chan_close(ch);
		quick += os_now_ns() - begun < 1000000;
	}
	return quick;
}

/* Idle workers on a CPU that a busy thread uses; this thread runs on another one. */
static void end_displaced(void *arg)
{
	struct engine_case e = { .ops = engine_find("sw"), .fault = "", .workers = 2 };
	struct os_cpumask near, far;
	uint64_t give_up = os_now_ns() + 15000000000u;
	pthread_t thread;
	int quick = 0;

	(void)arg;
	os_cpumask_self(&far);
	near = (struct os_cpumask){ { far.bits[0] & -far.bits[0] } };
	far = (struct os_cpumask){ { far.bits[0] & ~near.bits[0] } };
	far.bits[0] &= -far.bits[0];
	engine_case_options(&e, "SLUICE_TEST=fault=other:1");
	engine_set_cpus(&far, 2);
	CHECK(!os_cpumask_apply(0, &near));
	CHECK(!pthread_create(&thread, NULL, hog, &far));
	while (quick < 18 && os_now_ns() < give_up) /* the machine may be busy */
		quick = quick_ends(&e);
	atomic_store_explicit(&hog_ends, true, memory_order_relaxed);
	pthread_join(thread, NULL);
	CHECK(quick >= 18);
}

UNIT_TEST(sw_ends_at_once_although_its_cpus_are_busy)
{
	struct os_cpumask all;

	os_cpumask_self(&all);
	if (!(all.bits[0] & (all.bits[0] - 1)))
		unit_skip("needs two of the first 64 CPUs");
#ifdef __SANITIZE_THREAD__
	unit_skip("this sanitizer has no threads in a forked child");
#endif
	CHECK_EQ(unit_fork(end_displaced, NULL), 0);
}

/* ---- the guard's view -------------------------------------------------------------------- */

static _Atomic int started;
static _Atomic int started_by;

static void count_start(void)
{
	atomic_fetch_add(&started, 1);
	atomic_store(&started_by, (int)syscall(SYS_gettid));
}

UNIT_TEST(engine_threads_report_before_their_channel_is_open)
{
	struct engine_case e;
	struct engine_chan *ch;
	int tid = 0, now;

	engine_thread_started = count_start;
	ch = begin(&e, 1);
	now = atomic_load(&started);
	find_workers(&tid, 1);
	engine_thread_started = NULL;
	engine_case_close(&e, ch);
	CHECK_EQ(now, 1);
	CHECK_EQ(started_by, tid); /* this thread executed the copy itself */
}

/* ---- who copies -------------------------------------------------------------------------- */

static _Atomic int done_by[3];
static _Atomic uint32_t gate;

static void note_and_wait(struct engine_job *j)
{
	atomic_store(&done_by[(intptr_t)j->arg], (int)syscall(SYS_gettid));
	while (!atomic_load(&gate))
		usleep(100);
}

UNIT_TEST(sw_spreads_one_channel_over_its_workers)
{
	static struct engine_job jobs[3];
	struct engine_case e;
	struct engine_chan *ch = begin(&e, 3);

	atomic_store(&gate, 0);
	for (int i = 0; i < 3; i++) {
		atomic_store(&done_by[i], 0);
		engine_job_make(&jobs[i], 0, 0, 100);
		jobs[i].then = note_and_wait;
		jobs[i].arg = (void *)(intptr_t)i;
		CHECK_EQ(engine_post(ch, &jobs[i].c), 0);
	}
	engine_flush(ch); /* one call: each woken worker wakes the next */
	for (int tries = 0; tries < 20000; tries++) {
		if (atomic_load(&done_by[0]) && atomic_load(&done_by[1]) &&
		    atomic_load(&done_by[2]))
			break;
		usleep(1000);
	}
	atomic_store(&gate, 1);
	for (int i = 0; i < 3; i++) {
		engine_job_wait(&e, ch, &jobs[i]);
		engine_job_free(&jobs[i]);
	}
	engine_case_close(&e, ch);
	CHECK(done_by[0] != done_by[1] && done_by[1] != done_by[2] && done_by[0] != done_by[2]);
	CHECK(done_by[0] && done_by[1] && done_by[2]);
}

UNIT_TEST(sw_poll_does_what_is_queued)
{
	static struct engine_job stuck, j;
	struct engine_case e;
	struct engine_chan *ch = begin(&e, 1);

	atomic_store(&gate, 0);
	atomic_store(&done_by[0], 0);
	atomic_store(&done_by[1], 0);
	engine_job_make(&stuck, 0, 0, 100);
	stuck.then = note_and_wait;
	engine_job_post(&e, ch, &stuck);
	while (!atomic_load(&done_by[0]))
		usleep(100);
	engine_job_make(&j, 0, 0, 100);
	engine_job_post(&e, ch, &j); /* the only worker is busy */
	CHECK_EQ(engine_poll(ch), 1);
	CHECK_EQ(j.ends, 1);
	engine_job_check(&j);
	CHECK_EQ(engine_poll(ch), 0);
	atomic_store(&gate, 1);
	engine_job_wait(&e, ch, &stuck);
	engine_case_close(&e, ch);
	engine_job_free(&j);
	engine_job_free(&stuck);
}

/* Two channels, one of which is kept full: copies of the other do not wait for it. */
struct flood {
	struct engine_chan *ch;
	struct engine_job jobs[8];
	_Atomic int stop;
};

static void again(struct engine_job *j)
{
	struct flood *f = j->arg;

	if (atomic_load(&f->stop))
		return;
	atomic_fetch_sub(&j->ends, 1);
	engine_post(f->ch, &j->c);
}

UNIT_TEST(sw_serves_each_channel_in_its_turn)
{
	static struct flood f;
	static struct engine_job j;
	struct engine_case e;
	struct engine_chan *other = begin(&e, 1);

	f.ch = engine_case_open(&e, 0);
	for (int i = 0; i < 8; i++) {
		engine_job_make(&f.jobs[i], 0, 0, 20000);
		f.jobs[i].then = again;
		f.jobs[i].arg = &f;
		CHECK_EQ(engine_post(f.ch, &f.jobs[i].c), 0);
	}
	engine_flush(f.ch);
	for (int i = 0; i < 20; i++) {
		engine_job_make(&j, 0, 0, 100);
		engine_job_post(&e, other, &j);
		engine_job_wait(&e, other, &j);
		engine_job_free(&j);
	}
	atomic_store(&f.stop, 1);
	engine_case_close(&e, f.ch);
	engine_case_close(&e, other);
	for (int i = 0; i < 8; i++)
		engine_job_free(&f.jobs[i]);
}

UNIT_TEST(sw_has_a_limit_of_channels)
{
	struct engine_case e;
	struct engine_chan *chans[SW_CHANNELS + 1];
	int n = 0, rc = 0;

	chans[n++] = begin(&e, 1);
	while (n <= SW_CHANNELS && !(rc = e.ops->chan_open(-1, 0, &chans[n])))
		n++;
	while (n)
		engine_case_close(&e, chans[--n]);
	CHECK_EQ(rc, -ENOSPC);
}
