/* SPDX-License-Identifier: BSD-3-Clause */
/* The lock of this folder, and what was put off until it is given back. */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "region/private.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* not by __tls_get_addr, which may call malloc: hooks ask */
static __thread bool locked_here __attribute__((tls_model("initial-exec")));
static __thread int errno_outside __attribute__((tls_model("initial-exec")));
static __thread uint64_t mask_outside __attribute__((tls_model("initial-exec")));

_Atomic uint32_t region_version;

/*
 * A signal handler may call munmap() or mprotect(), or touch guarded memory: on top of a thread
 * that holds the lock it would wait for itself. So signals wait, but for those that a thread raises
 * by what it does: the guard may live on SIGSEGV and SIGSYS, and the others would kill.
 */
#define SIGNAL_BIT(n) (1ull << ((n) - 1))
enum { SET_MASK = 2, ILL = 4, TRAP = 5, ABRT = 6, BUS = 7, FPE = 8, SEGV = 11, SYS = 31 };

static void block_signals(void)
{
	uint64_t mask = ~(SIGNAL_BIT(ILL) | SIGNAL_BIT(TRAP) | SIGNAL_BIT(ABRT) | SIGNAL_BIT(BUS) |
			  SIGNAL_BIT(FPE) | SIGNAL_BIT(SEGV) | SIGNAL_BIT(SYS)), outside;

	syscall(SYS_rt_sigprocmask, SET_MASK, &mask, &outside, sizeof mask);
	mask_outside = outside;
}

void region_lock(void)
{
	int err = errno; /* of a program that called free() or munmap() */

	block_signals();
	pthread_mutex_lock(&lock);
	locked_here = true;
	errno_outside = err;
	/* whoever pins without the lock sees the version, or we see the pin (partner:
	 * peek_is_valid) */
	atomic_fetch_add_explicit(&region_version, 1, memory_order_seq_cst);
	region_fence();
}

void region_unlock(void)
{
	uint64_t mask = mask_outside;
	int err = errno_outside;

	pins_return_doomed_locked();
	/* release, partner: peek_begin; what it reads is what we have written */
	atomic_fetch_add_explicit(&region_version, 1, memory_order_release);
	locked_here = false;
	pthread_mutex_unlock(&lock);
	syscall(SYS_rt_sigprocmask, SET_MASK, &mask, NULL, sizeof mask);
	errno = err;
}

/*
 * A word that fork() empties. In a child that our handler has not come to yet, another thread of
 * the parent may have the lock for ever, and the table may be half written; handlers of others run
 * before ours.
 */
static _Atomic uint32_t *at_home;

static bool is_fresh_child(void)
{
	return at_home && !atomic_load_explicit(at_home, memory_order_relaxed);
}
bool region_is_locked_here(void) { return locked_here || is_fresh_child(); }

void region_lock_init(void)
{
	void *p;

	if (at_home)
		return;
	p = region_os.mmap(NULL, OS_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			   0);
	if (p == MAP_FAILED || region_os.madvise(p, OS_PAGE, MADV_WIPEONFORK)) {
		if (p != MAP_FAILED)
			region_os.munmap(p, OS_PAGE);
		return; /* before Linux 4.14: the danger remains */
	}
	*(_Atomic uint32_t *)p = 1;
	at_home = p;
}

void region_lock_reset(void)
{
	if (at_home)
		atomic_store_explicit(at_home, 1, memory_order_relaxed);
	locked_here = false;
	pthread_mutex_init(&lock, NULL);
	atomic_store_explicit(&region_version, 0, memory_order_relaxed);
}
