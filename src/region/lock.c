/* SPDX-License-Identifier: BSD-3-Clause */
/* The lock of this folder; region_unlock() returns the regions that were doomed meanwhile. */
#include <errno.h>

#include "region/private.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* initial-exec: __tls_get_addr may call malloc, whose hook asks region_is_locked_here() */
static __thread bool locked_here __attribute__((tls_model("initial-exec")));
static __thread int errno_outside __attribute__((tls_model("initial-exec")));
static __thread uint64_t mask_outside __attribute__((tls_model("initial-exec")));

/*
 * A signal handler may call munmap() or mprotect(), or touch guarded memory: on top of the holder
 * of the lock it would deadlock. So signals are blocked, except those that the thread raises
 * itself: the guard uses SIGSEGV and SIGSYS, and a blocked fault kills the process.
 */
#define SIGNAL_BIT(n) (1ull << ((n) - 1))
enum { ILL = 4, TRAP = 5, ABRT = 6, BUS = 7, FPE = 8, SEGV = 11, SYS = 31 };

static void block_signals(void)
{
	uint64_t mask = ~(SIGNAL_BIT(ILL) | SIGNAL_BIT(TRAP) | SIGNAL_BIT(ABRT) | SIGNAL_BIT(BUS) |
			  SIGNAL_BIT(FPE) | SIGNAL_BIT(SEGV) | SIGNAL_BIT(SYS)), outside;

	os_signal_mask(OS_MASK_SET, &mask, &outside);
	mask_outside = outside;
}

static bool is_fresh_child(void);

void region_lock(void)
{
	int err = errno; /* the program's, which called free() or munmap() */

	block_signals();
	pthread_mutex_lock(&lock);
	locked_here = true;
	if (base_unlikely(is_fresh_child()))
		table_set_head_locked(NULL);
	errno_outside = err;
	/* a thread that pins without the lock sees the version, or this thread sees the pin;
	 * partner: peek_is_valid */
	atomic_fetch_add_explicit(&region_table.head->version, 1, memory_order_seq_cst);
	region_fence();
}

void region_unlock(void)
{
	uint64_t mask = mask_outside;
	int err = errno_outside;

	pins_return_doomed_locked();
	/* release, partner: peek_begin; a look-up with this version sees all changes */
	atomic_fetch_add_explicit(&region_table.head->version, 1, memory_order_release);
	locked_here = false;
	pthread_mutex_unlock(&lock);
	os_signal_mask(OS_MASK_SET, &mask, NULL);
	errno = err;
}

/*
 * A word that fork() zeroes. In a child, before our fork handler has run, the lock may be held by a
 * thread of the parent for ever, and the table may be half written; fork handlers of others run
 * first.
 */
static _Atomic uint32_t *at_home;

static bool is_fresh_child(void)
{
	return at_home && !atomic_load_explicit(at_home, memory_order_relaxed);
}
bool region_lock_notices_fork(void) { return at_home; }
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
		return; /* before Linux 4.14: other tools' fork handlers may then deadlock */
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
	table_set_head_locked(NULL);
}
