/* SPDX-License-Identifier: BSD-3-Clause */
/* Sleeping on a word that other processes may share, hence never with FUTEX_PRIVATE_FLAG. */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/os.h"

int os_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	struct timespec timeout = {
		.tv_sec = (time_t)(timeout_ns / 1000000000u),
		.tv_nsec = (long)(timeout_ns % 1000000000u),
	};

	if (atomic_load_explicit(word, memory_order_acquire) != expected)
		return 0;
	if (!timeout_ns)
		return -ETIMEDOUT;
	if (!syscall(SYS_futex, word, FUTEX_WAIT, expected,
		     timeout_ns == OS_FOR_EVER ? NULL : &timeout, NULL, 0))
		return 0;
	return errno == EAGAIN ? 0 : -errno;
}

int os_futex_wake(_Atomic uint32_t *word, int n)
{
	long woken = syscall(SYS_futex, word, FUTEX_WAKE, n, NULL, NULL, 0);

	return woken < 0 ? -errno : (int)woken;
}
