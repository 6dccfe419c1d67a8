/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every thread of the process, and whether its system calls are dispatched.
 *
 * Records lie in memory that is never freed: a thread that ends by a raw exit leaves a record
 * behind, not a dangling pointer.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/prctl.h>
#include <linux/stat.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sud/machine.h"
#include "sud/private.h"

#define CHUNK 128
#define NOT_BLOCKED BIT(SIGKILL) /* no mask has this */

__thread struct sud_local sud_local __attribute__((tls_model("initial-exec")));
static struct thread first_chunk[CHUNK];
static struct thread *all_threads; /* grows at its head */
static _Atomic uint32_t known_count;   /* all but THREAD_FREE; under the lock, as is the next */
static _Atomic uint32_t covered_count; /* THREAD_DISPATCHED, THREAD_OWN, THREAD_EXPECTED */
static _Atomic uint32_t lock_word;
_Atomic bool sud_is_required;
static _Atomic bool is_enabled; /* sud_enable_threads() was called; written under the lock */
static bool stays_on; /* under the lock: several threads close memory, so all stay dispatched */
static _Atomic uint32_t shared_selector; /* low byte */
static uint32_t own_count;         /* has_own_selector; under the lock */
static const char cookie;          /* its address identifies our signal */
static pthread_key_t at_exit_key;
static bool has_key;

/* ---- the lock: every signal of the holder is blocked ------------------------------------- */

static void spin_lock(void)
{
	uint32_t tries = 0;

	/* acquire: pairs with the release in spin_unlock() */
	while (atomic_exchange_explicit(&lock_word, 1, memory_order_acquire))
		if (++tries % 64 == 0)
			sud_syscall(SYS_sched_yield);
}

static void spin_unlock(void)
{
	/* release: pairs with the acquire in spin_lock() */
	atomic_store_explicit(&lock_word, 0, memory_order_release);
}

/*
 * Before sud_init() no handler of ours exists, and signals are not blocked. The signal that enables
 * a thread may then arrive while the thread holds the lock: enable_after_lock.
 */
static uint64_t lock(void)
{
	uint64_t all = ALL_SIGNALS, old = NOT_BLOCKED;

	sud_local.in_lock = true;
	atomic_signal_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&sud_is_required, memory_order_relaxed))
		sud_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, sizeof(old));
	spin_lock();
	return old;
}

static void send_enable(struct thread *t);

static void unlock(uint64_t old)
{
	spin_unlock();
	sud_local.in_lock = false;
	atomic_signal_fence(memory_order_seq_cst);
	if (old != NOT_BLOCKED)
		sud_syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, sizeof(old));
	if (base_unlikely(sud_local.enable_after_lock)) {
		sud_local.enable_after_lock = false;
		send_enable(sud_local.thread);
	}
}

/* ---- records ----------------------------------------------------------------------------- */

static bool is_covered(enum thread_state s)
{
	return s == THREAD_DISPATCHED || s == THREAD_OWN || s == THREAD_EXPECTED;
}

static void set_state(struct thread *t, enum thread_state s)
{
	uint32_t known = (uint32_t)(s != THREAD_FREE) - (uint32_t)(t->state != THREAD_FREE);
	uint32_t covered = (uint32_t)is_covered(s) - (uint32_t)is_covered(t->state);

	atomic_fetch_add_explicit(&known_count, known, memory_order_relaxed);
	atomic_fetch_add_explicit(&covered_count, covered, memory_order_relaxed);
	t->state = s;
}

static bool add_chunk(struct thread *chunk)
{
	for (int i = 0; i < CHUNK; i++) {
		chunk[i].next = all_threads;
		all_threads = &chunk[i];
	}
	return true;
}

static bool grow(void)
{
	long p;

	if (!all_threads)
		return add_chunk(first_chunk);
	p = sud_syscall(SYS_mmap, NULL, sizeof(first_chunk), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return p > 0 && add_chunk((struct thread *)p);
}

static struct thread *record_get(void)
{
	for (int tries = 0; tries < 2; tries++) {
		for (struct thread *t = all_threads; t; t = t->next)
			if (t->state == THREAD_FREE)
				return t;
		if (!grow())
			break;
	}
	return NULL;
}

static void set_own_selector(struct thread *t, bool own)
{
	own_count += (uint32_t)own - (uint32_t)t->has_own_selector;
	t->has_own_selector = own;
}

static void record_reset(struct thread *t, enum thread_state s)
{
	set_state(t, s);
	atomic_store_explicit(&t->word, 0, memory_order_relaxed);
	set_own_selector(t, false);
	t->is_dispatched = t->arms = false;
	t->tid = 0;
}

/* ---- dispatch of one thread -------------------------------------------------------------- */

static int switch_on(struct thread *t, bool own)
{
	void *selector = own ? (void *)&t->word : (void *)&shared_selector;
	long ret = sud_syscall(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON,
			       sud_range_start, sud_range_end - sud_range_start, selector);

	if (ret)
		return (int)ret;
	set_own_selector(t, own);
	t->is_dispatched = true;
	return 0;
}

static void switch_off(struct thread *t)
{
	if (t->is_dispatched)
		sud_syscall(SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
	set_own_selector(t, false);
	t->is_dispatched = false;
}

/* Under the lock. */
static int switch_on_own(struct thread *t)
{
	bool wanted = atomic_load_explicit(&shared_selector, memory_order_relaxed);

	atomic_store_explicit(&t->word, thread_word(thread_depth(t), wanted), memory_order_relaxed);
	return switch_on(t, true);
}

/* Under the lock: this thread's calls are dispatched from now on, or after sud_enable_threads(). */
static void dispatch_self(struct thread *t)
{
	if (t->state == THREAD_OWN || t->state == THREAD_DISPATCHED)
		return;
	if (!atomic_load_explicit(&is_enabled, memory_order_relaxed))
		set_state(t, THREAD_REACHED);
	else if (!(thread_depth(t) ? switch_on_own(t) : switch_on(t, false)))
		set_state(t, THREAD_DISPATCHED);
	else
		set_state(t, THREAD_KNOWN);
}

void thread_own_selector(struct thread *t)
{
	uint64_t old = lock();

	switch_on_own(t); /* succeeded before: cannot fail */
	unlock(old);
}

/* Under the lock, when all memory is open: stops dispatching this thread, which calls
 * sud_enable_self() before it closes memory again. */
static void disable_self(struct thread *t)
{
	if (!t || t->state != THREAD_DISPATCHED || !t->arms || stays_on)
		return;
	switch_off(t);
	set_state(t, THREAD_REACHED);
}

void sud_set_armed(bool armed)
{
	uint32_t remaining;

	sud_local.in_lock = true; /* as lock(), without system calls */
	atomic_signal_fence(memory_order_seq_cst);
	spin_lock();
	if (!armed)
		disable_self(sud_local.thread);
	remaining = own_count;
	atomic_store_explicit(&shared_selector, armed ? SELECTOR_BLOCK : 0, memory_order_relaxed);
	for (struct thread *t = all_threads; t && remaining; t = t->next) {
		uint32_t now, next;

		if (!t->has_own_selector)
			continue;
		remaining--;
		now = atomic_load_explicit(&t->word, memory_order_relaxed);
		do {
			next = thread_word(now / DEPTH, armed);
		} while (!atomic_compare_exchange_weak_explicit(&t->word, &now, next,
								memory_order_relaxed,
								memory_order_relaxed));
	}
	unlock(NOT_BLOCKED);
}

/* ---- registration ------------------------------------------------------------------------ */

static void note_stack(struct thread *t, size_t bytes)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	t->stack_high = here + (64u << 10);
	t->stack_low = here - bytes + (64u << 10); /* thread-local data lie above */
}

static size_t main_stack_bytes(void)
{
	struct rlimit64 {
		uint64_t now, max;
	} l = { 0, 0 };

	if (sud_syscall(SYS_prlimit64, 0, RLIMIT_STACK, NULL, &l) || l.now > (8u << 20))
		return 8u << 20;
	return l.now;
}

/* Acts in the last round of destructors, as other destructors may make calls that have to be
 * dispatched. */
static void at_thread_exit(void *round)
{
	uintptr_t n = (uintptr_t)round;
	struct thread *t = sud_local.thread;
	uint64_t old;

	if (n < PTHREAD_DESTRUCTOR_ITERATIONS) {
		pthread_setspecific(at_exit_key, (void *)(n + 1));
		return;
	}
	if (!t)
		return;
	old = lock();
	sud_local.thread = NULL;
	sud_local.has_ended = true;
	switch_off(t); /* libc ends a thread with every signal blocked */
	record_reset(t, THREAD_FREE);
	unlock(old);
}

static void make_key(void) { has_key = !pthread_key_create(&at_exit_key, at_thread_exit); }

static void enter_record(struct thread *t)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	uint64_t old;

	pthread_once(&once, make_key);
	if (has_key)
		pthread_setspecific(at_exit_key, (void *)1);
	t->tid = (int)sud_syscall(SYS_gettid);
	t->handle = pthread_self();
	old = lock();
	sud_local.thread = t;
	set_state(t, THREAD_KNOWN);
	if (atomic_load_explicit(&sud_is_required, memory_order_relaxed))
		dispatch_self(t);
	unlock(old);
}

struct thread *sud_thread_expect(const struct sud_start *start, size_t stack_bytes)
{
	uint64_t old = lock();
	struct thread *t = record_get();

	if (t) {
		record_reset(t, THREAD_EXPECTED);
		t->start = *start;
		t->stack_bytes = stack_bytes;
		t->stack_low = t->stack_high = 0;
		t->virtual_mask = sud_local.virtual_mask;
	}
	unlock(old);
	return t;
}

void sud_thread_abandon(struct thread *t)
{
	uint64_t old;

	if (!t)
		return;
	old = lock();
	record_reset(t, THREAD_FREE);
	unlock(old);
}

/* SIGSEGV and SIGSYS that the thread's attributes have blocked are unblocked, and blocked
 * virtually. */
static void make_mask_virtual(void)
{
	uint64_t never = NEVER_BLOCKED, old = 0;

	sud_syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &never, &old, sizeof(old));
	sud_local.virtual_mask |= old & NEVER_BLOCKED;
}

struct sud_start sud_thread_begin(struct thread *t)
{
	struct sud_start start = t->start;
	bool was_required = atomic_load_explicit(&sud_is_required, memory_order_relaxed);

	sud_local.virtual_mask = t->virtual_mask;
	if (t->stack_bytes >= (256u << 10))
		note_stack(t, t->stack_bytes);
	if (was_required)
		make_mask_virtual();
	enter_record(t);
	if (!was_required && atomic_load_explicit(&sud_is_required, memory_order_relaxed))
		make_mask_virtual();
	return start;
}

struct thread *thread_self(void)
{
	struct thread *t = sud_local.thread;

	if (base_likely(t) || sud_local.has_ended)
		return t;
	t = sud_thread_expect(&(struct sud_start){ NULL, NULL }, 0);
	if (!t)
		return NULL;
	if (sud_syscall(SYS_gettid) == sud_syscall(SYS_getpid))
		note_stack(t, main_stack_bytes());
	enter_record(t);
	return t;
}

bool sud_is_own_thread(void) { return sud_local.thread && sud_local.thread->state == THREAD_OWN; }

void sud_own_thread(void)
{
	uint64_t programs = PROGRAMS_SIGNALS, old;
	struct thread *t = thread_self();

	if (!t)
		return;
	old = lock();
	switch_off(t);
	set_state(t, THREAD_OWN);
	unlock(old);
	sud_syscall(SYS_rt_sigprocmask, SIG_BLOCK, &programs, NULL, sizeof(programs));
}

/* ---- all threads ------------------------------------------------------------------------- */

/* No other thread exists in the child; one may have held the lock in the parent. */
static void after_fork_child(void)
{
	atomic_store_explicit(&lock_word, 0, memory_order_relaxed);
	atomic_store_explicit(&shared_selector, 0, memory_order_relaxed);
	atomic_store_explicit(&sud_is_required, false, memory_order_relaxed);
	atomic_store_explicit(&is_enabled, false, memory_order_relaxed);
	stays_on = false;
	for (struct thread *t = all_threads; t; t = t->next)
		record_reset(t, t == sud_local.thread ? THREAD_KNOWN
							: THREAD_FREE); /* dispatch ends at fork */
	atomic_store_explicit(&known_count, sud_local.thread ? 1 : 0, memory_order_relaxed);
	atomic_store_explicit(&covered_count, 0, memory_order_relaxed);
	if (sud_local.thread)
		sud_local.thread->tid = (int)sud_syscall(SYS_gettid);
}

/* Registers the program's first thread, before any other thread. */
__attribute__((constructor)) static void register_first(void)
{
	thread_self();
	pthread_atfork(sud_allow_push, sud_allow_pop, after_fork_child);
}

static void send_enable(struct thread *t)
{
	siginfo_t si;
	long pid = sud_syscall(SYS_getpid);

	memset(&si, 0, sizeof(si));
	si.si_signo = SIGSYS;
	si.si_code = SI_QUEUE;
	si.si_pid = (int)pid;
	si.si_value.sival_ptr = (void *)&cookie;
	sud_syscall(SYS_rt_tgsigqueueinfo, pid, (long)t->tid, (long)SIGSYS, &si);
}

void thread_kill(pthread_t handle, int signo)
{
	uint64_t old = lock();
	long pid = sud_syscall(SYS_getpid);

	for (struct thread *t = all_threads; t; t = t->next)
		if (t->state == THREAD_DISPATCHED && pthread_equal(t->handle, handle))
			sud_syscall(SYS_tgkill, pid, (long)t->tid, (long)signo);
	unlock(old);
}

bool thread_enable_sig(const siginfo_t *si, void *ucontext)
{
	ucontext_t *uc = ucontext;
	uint64_t *mask = (uint64_t *)&uc->uc_sigmask;
	struct thread *t = sud_local.thread;
	bool is_alone;
	/* beyond RLIMIT_SIGPENDING a signal comes without its value, as if from process 0 */
	bool is_bare = si->si_code == SI_USER && !si->si_pid && t && t->state == THREAD_SIGNALLED;

	if (!is_bare && (si->si_code != SI_QUEUE || si->si_value.sival_ptr != (void *)&cookie))
		return false;
	if (!t || sud_local.in_lock) {
		sud_local.enable_after_lock = t != NULL;
		sud_local.is_enabling = sud_local.is_preceded = false;
		return true;
	}
	lock();
	sud_local.virtual_mask |= *mask & NEVER_BLOCKED;
	sud_local.enabled_mask = *mask & NEVER_BLOCKED ? *mask : 0;
	*mask &= ~NEVER_BLOCKED;
	dispatch_self(t);
	/* A handler on top of this one may be what a call waits for that both signals have ended:
	 * it fails with EINTR then. None comes from here on. */
	is_alone = !sud_local.is_preceded;
	sud_local.is_enabling = sud_local.is_preceded = false;
	unlock(ALL_SIGNALS & ~NEVER_BLOCKED);
	if (is_alone)
		machine_undo_interruption(uc);
	return true;
}

/* Under the lock: this thread at once, the others when the signal reaches them. */
static void dispatch_all(struct thread *self)
{
	dispatch_self(self);
	for (struct thread *t = all_threads; t; t = t->next)
		if ((t->state == THREAD_KNOWN || t->state == THREAD_REACHED) && t != self) {
			stays_on |= t->arms;
			set_state(t, THREAD_SIGNALLED); /* first: the handler reads it */
			send_enable(t);
		}
}

int sud_init(const struct sud_ops *ops)
{
	struct thread *self = thread_self();
	uint64_t old;
	int ret;

	if (!self)
		return -ENOMEM;
	sud_ops = ops;
	ret = sud_signal_install(SIGSEGV, sigsegv);
	if (!ret)
		ret = sud_signal_install(SIGSYS, machine_sigsys);
	if (ret)
		return ret;
	old = lock();
	atomic_store_explicit(&sud_is_required, true, memory_order_relaxed);
	dispatch_self(self);
	unlock(old);
	make_mask_virtual();
	return self->state == THREAD_KNOWN ? -ENOSYS : 0;
}

void sud_fini(void) { sud_signal_uninstall(SIGSEGV); }

bool sud_is_enabled(void) { return atomic_load_explicit(&is_enabled, memory_order_relaxed); }

static bool is_every_known_covered(void)
{
	return atomic_load_explicit(&known_count, memory_order_relaxed) ==
	       atomic_load_explicit(&covered_count, memory_order_relaxed);
}

void sud_enable_threads(void)
{
	struct thread *self = thread_self();
	uint64_t old;

	if (!self || (sud_is_enabled() && self->arms && is_every_known_covered()))
		return;
	old = lock();
	atomic_store_explicit(&is_enabled, true, memory_order_relaxed);
	self->arms = true;
	dispatch_all(self);
	unlock(old);
}

bool sud_enable_self(void)
{
	struct thread *self = thread_self();
	uint64_t old;
	bool may;

	if (!self || !sud_is_enabled())
		return false;
	if (base_likely(self->arms && self->is_dispatched && is_every_known_covered()))
		return true;
	old = lock(); /* a thread that begins is counted consistently under the lock only */
	self->arms = true;
	dispatch_self(self);
	may = is_every_known_covered();
	unlock(old);
	return may;
}

/* Returns: how many threads the process has, by the links of its directory of threads. */
static uint32_t count_by_kernel(void)
{
	struct statx sx;

	if (sud_syscall(SYS_statx, AT_FDCWD, "/proc/self/task", 0, STATX_NLINK, &sx))
		return UINT32_MAX;
	return sx.stx_nlink - 2;
}

bool sud_covers_threads(void)
{
	uint32_t known;

	if (!atomic_load_explicit(&sud_is_required, memory_order_relaxed))
		return true;
	thread_self(); /* registers this thread when it was unknown */
	known = atomic_load_explicit(&known_count, memory_order_relaxed);
	return is_every_known_covered() && count_by_kernel() <= known;
}

uint64_t *sud_virtual_mask(void) { return &sud_local.virtual_mask; }

bool thread_has_stack(uintptr_t here, size_t bytes)
{
	const struct thread *t = sud_local.thread;

	return t && here <= t->stack_high && here >= t->stack_low + bytes;
}
