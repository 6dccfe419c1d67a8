/* SPDX-License-Identifier: BSD-3-Clause */
/* Sluice's own threads inside the program. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/private.h"

enum { STACK_BYTES = 256 << 10 }; /* untouched pages cost nothing; done() runs on it */

/* Every signal but the two by which libc carries setuid() and cancellation to all threads: setuid()
 * would wait for ever for a thread that blocks them. */
#define ALL_BUT_LIBC (~(((uint64_t)1 << (32 - 1)) | ((uint64_t)1 << (33 - 1))))

void (*engine_thread_started)(void);

struct start {
	const char *name;
	const struct os_cpumask *cpus;
	void (*run)(void *arg);
	void *arg;
	int tid;                /* written by the new thread */
	_Atomic uint32_t begun; /* 1: the new thread has copied *this */
};

static int try_lower(void)
{
	struct sched_param none = { 0 };

	if (base_fault("engine_idle"))
		return -EPERM;
	if (!sched_setscheduler(0, SCHED_IDLE, &none))
		return 0;
	return setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 19) ? -errno : 0;
}

static void lower_priority(void)
{
	int rc = try_lower();

	if (rc)
		base_log(BASE_LOG_INFO, "engine", "a worker runs at normal priority: %s",
			 strerror(-rc));
}

static void settle_in(const struct start *s)
{
	int rc = s->cpus ? os_cpumask_apply(0, s->cpus) : 0;

	prctl(PR_SET_NAME, s->name);
	if (rc)
		base_log(BASE_LOG_INFO, "engine", "a worker cannot choose its CPUs: %s",
			 strerror(-rc));
}

static void *thread_main(void *arg)
{
	struct start *s = arg;
	void (*run)(void *arg) = s->run;
	void *its = s->arg;
	bool is_worker = s->cpus;

	if (engine_thread_started)
		engine_thread_started();
	settle_in(s);
	s->tid = (int)syscall(SYS_gettid);
	/* release: tid, and the reads of *s; partner: engine_thread_create */
	atomic_store_explicit(&s->begun, 1, memory_order_release);
	os_futex_wake(&s->begun, 1);
	if (is_worker)
		/* last: on a busy CPU the creator would wait long for an idle-priority thread */
		lower_priority();
	run(its);
	return NULL;
}

static int create(pthread_t *out, const pthread_attr_t *attr, struct start *s)
{
	uint64_t all = ALL_BUT_LIBC, before;
	int rc;

	/* a new thread inherits the mask of its creator */
	os_signal_mask(OS_MASK_SET, &all, &before);
	rc = pthread_create(out, attr, thread_main, s);
	os_signal_mask(OS_MASK_SET, &before, NULL);
	return -rc;
}

int engine_thread_create(const char *name, const struct os_cpumask *cpus, void (*run)(void *arg),
			 void *arg, struct engine_thread *out)
{
	struct start s = { .name = name, .cpus = cpus, .run = run, .arg = arg };
	pthread_attr_t attr;
	int rc;

	if (base_fault("engine_thread"))
		return -EAGAIN;
	if (pthread_attr_init(&attr))
		return -ENOMEM;
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	rc = create(&out->handle, &attr, &s);
	pthread_attr_destroy(&attr);
	if (rc == -EINVAL) /* the program's thread-local data do not fit on this stack */
		rc = create(&out->handle, NULL, &s);
	if (rc)
		return rc;
	while (!atomic_load_explicit(&s.begun, memory_order_acquire))
		os_futex_wait(&s.begun, 0, OS_FOR_EVER);
	out->tid = s.tid;
	return 0;
}

static void do_nothing(void *arg) { (void)arg; }

int engine_thread_probe(char *reason, size_t cap)
{
	struct engine_thread thread;
	int rc = engine_thread_create("sluice-probe", NULL, do_nothing, NULL, &thread);

	if (rc)
		snprintf(reason, cap, "no thread can be created: %s", strerror(-rc));
	else
		pthread_join(thread.handle, NULL);
	return rc;
}
