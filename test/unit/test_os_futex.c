/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/os.h"
#include "unit.h"

UNIT_TEST(futex_returns_when_the_value_differs)
{
	_Atomic uint32_t word = 1;

	CHECK_EQ(os_futex_wait(&word, 2, 1000000000), 0);
	CHECK_EQ(os_futex_wait(&word, 2, 0), 0);
}

UNIT_TEST(futex_times_out)
{
	_Atomic uint32_t word = 1;
	uint64_t begin = os_now_ns(), took;

	CHECK_EQ(os_futex_wait(&word, 1, 0), -ETIMEDOUT);
	CHECK_EQ(os_futex_wait(&word, 1, 5000000), -ETIMEDOUT);
	took = os_now_ns() - begin;
	CHECK(took >= 5000000);
	CHECK_EQ(os_futex_wake(&word, 1), 0);
}

static void *wake_later(void *word)
{
	usleep(5000);
	atomic_store((_Atomic uint32_t *)word, 1);
	os_futex_wake(word, 1);
	return NULL;
}

UNIT_TEST(futex_waits_for_ever)
{
	_Atomic uint32_t word = 0;
	pthread_t thread;
	int rc = 0;

	CHECK(!pthread_create(&thread, NULL, wake_later, &word));
	while (!atomic_load(&word) && !rc)
		rc = os_futex_wait(&word, 0, OS_FOR_EVER);
	pthread_join(thread, NULL);
	CHECK_EQ(rc, 0);
}

/* The words lie in memory shared by two processes: a private futex would never wake. */
UNIT_TEST(futex_wakes_another_process)
{
	_Atomic uint32_t *words =
		mmap(NULL, OS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = -1, woken = 0;
	pid_t pid;

	CHECK(words != MAP_FAILED);
	pid = fork();
	if (!pid) {
		atomic_store(&words[1], 1);
		_exit(os_futex_wait(&words[0], 0, 5000000000u) ? 1 : 0);
	}
	CHECK(pid > 0);
	for (uint64_t end = os_now_ns() + 5000000000u; !woken && os_now_ns() < end;) {
		woken = atomic_load(&words[1]) ? os_futex_wake(&words[0], 1) : 0;
		usleep(100);
	}
	waitpid(pid, &status, 0);
	munmap(words, OS_PAGE);
	CHECK_EQ(woken, 1);
	CHECK_EQ(status, 0);
}
