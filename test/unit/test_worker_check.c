/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of a rank that waits for the worker process, by a page of the test's own. */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "worker/private.h"

static void count_reclaims(void *arg, uint64_t name, bool is_intent)
{
	(void)name, (void)is_intent;
	++*(int *)arg;
}

/* The claim of a dead worker stays, and the number of its thread is now another process's. */
UNIT_TEST(worker_that_is_dead_is_lent_no_cpu)
{
	static struct worker_page page = { .threads = 1 };
	int gone = fork(), other = gone ? fork() : -1, reclaims = 0;
	struct os_cpumask here;
	cpu_set_t before, after;

	if (!gone)
		_exit(0);
	while (!other)
		pause();
	CHECK_EQ(waitpid(gone, NULL, 0), gone);
	CHECK_EQ(sched_getaffinity(other, sizeof before, &before), 0);
	CHECK(os_cpumask_here(&here));
	page.cpus = here; /* to which a thread returns that has been lent a CPU */
	atomic_store(&page.pid, gone);
	atomic_store(&page.state, WORKER_RUNS);
	atomic_store(&page.thread[0].tid, (uint32_t)other);
	atomic_store(&page.thread[0].claim, UINT64_C(1) << 54);
	atomic_store(&worker_page, &page);
	for (int i = 0; i < 3; i++)
		worker_check(1, count_reclaims, &reclaims);
	atomic_store(&worker_page, NULL);
	CHECK_EQ(sched_getaffinity(other, sizeof after, &after), 0);
	CHECK(CPU_EQUAL(&before, &after));
	CHECK_EQ(atomic_load(&page.state), WORKER_DEAD);
	CHECK_EQ(reclaims, 1);
	kill(other, SIGKILL);
	CHECK_EQ(waitpid(other, NULL, 0), other);
}
