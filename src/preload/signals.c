/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Signals and threads: the program sees exactly what it has set, while SIGSEGV and SIGSYS stay ours
 * and unblocked. Until sud_init() every call passes unchanged, but for SIGSYS in masks.
 *
 * Where libc blocks every signal inside a function (making or signalling a thread, starting a
 * program) its system calls may not be dispatched: sud_allow_push().
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <threads.h>
#include <ucontext.h>

#include "guard/guard.h"
#include "preload/next.h"
#include "sud/program.h"

#define BIT(signo) ((uint64_t)1 << ((signo) - 1))

static struct {
	int (*sigaction)(int, const struct sigaction *, struct sigaction *);
	sighandler_t (*signal)(int, sighandler_t);
	sighandler_t (*sysv_signal)(int, sighandler_t);
	sighandler_t (*sigset)(int, sighandler_t);
	int (*sigignore)(int);
	int (*siginterrupt)(int, int);
	int (*sigprocmask)(int, const sigset_t *, sigset_t *);
	int (*pthread_sigmask)(int, const sigset_t *, sigset_t *);
	int (*sigblock)(int);
	int (*sigsetmask)(int);
	int (*sighold)(int);
	int (*sigrelse)(int);
	int (*sigpending)(sigset_t *);
	int (*sigsuspend)(const sigset_t *);
	int (*sigtimedwait)(const sigset_t *, siginfo_t *, const struct timespec *);
	int (*sigwaitinfo)(const sigset_t *, siginfo_t *);
	int (*sigwait)(const sigset_t *, int *);
	int (*ppoll)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
	int (*__ppoll_chk)(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *,
			   size_t);
	int (*pselect)(int, fd_set *, fd_set *, fd_set *, const struct timespec *,
		       const sigset_t *);
	int (*epoll_pwait)(int, struct epoll_event *, int, int, const sigset_t *);
	int (*epoll_pwait2)(int, struct epoll_event *, int, const struct timespec *,
			    const sigset_t *);
	int (*pthread_attr_setsigmask_np)(pthread_attr_t *, const sigset_t *);
	int (*pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
	int (*thrd_create)(thrd_t *, thrd_start_t, void *);
	int (*pthread_kill)(pthread_t, int);
	int (*pthread_sigqueue)(pthread_t, int, const union sigval);
	int (*pthread_cancel)(pthread_t);
	void (*siglongjmp)(sigjmp_buf, int) __attribute__((noreturn));
	void (*longjmp)(jmp_buf, int) __attribute__((noreturn));
	void (*_longjmp)(jmp_buf, int) __attribute__((noreturn));
	void (*__longjmp_chk)(jmp_buf, int) __attribute__((noreturn));
	int (*setcontext)(const ucontext_t *);
} next;

/* Functions that signal handlers may call; dlsym() takes locks. */
__attribute__((constructor)) static void resolve_early(void)
{
	(void)NEXT(sigaction);
	(void)NEXT(signal);
	(void)NEXT(sigprocmask);
	(void)NEXT(pthread_sigmask);
	(void)NEXT(sigsuspend);
	(void)NEXT(siglongjmp);
	(void)NEXT(longjmp);
	(void)NEXT(_longjmp);
	(void)NEXT(__longjmp_chk);
	(void)NEXT(setcontext);
	(void)NEXT(ppoll);
	(void)NEXT(pselect);
	(void)NEXT(pthread_kill);
}

/* ---- actions ----------------------------------------------------------------------------- */

static int as_libc(int ret)
{
	if (ret >= 0)
		return ret;
	errno = -ret;
	return -1;
}

EXPORT int sigaction(int signo, const struct sigaction *new, struct sigaction *old)
{
	struct sud_relay before;
	struct sigaction real;
	int ret;

	if (base_unlikely(sud_is_virtual(signo)))
		return as_libc(sud_action(signo, new, old));
	before = sud_relay_get(signo);
	if (new) {
		real = *new;
		sud_relay_set(signo, &real);
	}
	ret = NEXT(sigaction)(signo, new ? &real : NULL, old);
	if (ret && new)
		sud_relay_put(signo, &before);
	if (!ret && old)
		sud_relay_show(&before, old);
	return ret;
}

/* libc's older functions would set the kernel's action themselves. Once sud_relays() they are made
 * from sigaction(). */
static uint64_t interrupts; /* siginterrupt() */

static sighandler_t set_handler(int signo, sighandler_t handler, int flags)
{
	struct sigaction new = { .sa_handler = handler, .sa_flags = flags }, old;

	if (handler == SIG_ERR) {
		errno = EINVAL;
		return SIG_ERR;
	}
	if (flags & SA_RESTART)
		sigaddset(&new.sa_mask, signo);
	if (signo > 0 && interrupts & BIT(signo & 63))
		new.sa_flags &= ~SA_RESTART;
	return sigaction(signo, &new, &old) ? SIG_ERR : old.sa_handler;
}

EXPORT sighandler_t signal(int signo, sighandler_t handler)
{
	return sud_relays() ? set_handler(signo, handler, SA_RESTART)
				     : NEXT(signal)(signo, handler);
}

sighandler_t bsd_signal(int signo, sighandler_t handler); /* no header has it any more */

EXPORT sighandler_t bsd_signal(int signo, sighandler_t handler) { return signal(signo, handler); }

EXPORT sighandler_t ssignal(int signo, sighandler_t handler) { return signal(signo, handler); }

EXPORT sighandler_t sysv_signal(int signo, sighandler_t handler)
{
	return sud_relays() ? set_handler(signo, handler, SA_RESETHAND | SA_NODEFER) :
				       NEXT(sysv_signal)(signo, handler);
}

EXPORT sighandler_t __sysv_signal(int signo, sighandler_t handler)
{
	return sysv_signal(signo, handler);
}

EXPORT int sigignore(int signo)
{
	if (sud_relays())
		return set_handler(signo, SIG_IGN, 0) == SIG_ERR ? -1 : 0;
	return NEXT(sigignore)(signo);
}

EXPORT int siginterrupt(int signo, int on)
{
	struct sigaction a;

	if (signo > 0 && signo < 64)
		interrupts = on ? interrupts | BIT(signo) : interrupts & ~BIT(signo);
	if (!sud_relays())
		return NEXT(siginterrupt)(signo, on);
	if (sigaction(signo, NULL, &a))
		return -1;
	a.sa_flags = on ? a.sa_flags & ~SA_RESTART : a.sa_flags | SA_RESTART;
	return sigaction(signo, &a, NULL);
}

/* ---- masks ------------------------------------------------------------------------------- */

static int change_mask(int (*real)(int, const sigset_t *, sigset_t *), int how, const sigset_t *set,
		       sigset_t *old)
{
	uint64_t virtual = *sud_virtual_mask(),
		 ours = set ? sud_mask_from(set) & sud_unblockable() : 0;
	sigset_t without;
	int ret;

	if (base_likely(!virtual && !ours))
		return real(how, set, old);
	if (set) {
		without = *set;
		sud_mask_to(&without, sud_mask_from(set) & ~sud_unblockable());
	}
	ret = real(how, set ? &without : NULL, old);
	if (ret)
		return ret;
	if (old)
		sud_mask_to(old, sud_mask_from(old) | virtual);
	if (set)
		sud_mask_changed(how, ours);
	return 0;
}

EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	return change_mask(NEXT(sigprocmask), how, set, old);
}

EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	return change_mask(NEXT(pthread_sigmask), how, set, old);
}

/* A mask of the first 32 signals, with SIGSEGV and SIGSYS. */
static int old_mask_call(int how, uint32_t mask)
{
	sigset_t set, old;

	sigemptyset(&set);
	sud_mask_to(&set, mask);
	return sigprocmask(how, &set, &old) ? -1 : (int)sud_mask_from(&old);
}

EXPORT int sigblock(int mask) { return old_mask_call(SIG_BLOCK, (uint32_t)mask); }

EXPORT int sigsetmask(int mask) { return old_mask_call(SIG_SETMASK, (uint32_t)mask); }

static int hold(int how, int signo)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, signo);
	return sigprocmask(how, &set, NULL);
}

EXPORT int sighold(int signo)
{
	return signo == SIGSEGV || signo == SIGSYS ? hold(SIG_BLOCK, signo) : NEXT(sighold)(signo);
}

EXPORT int sigrelse(int signo)
{
	return signo == SIGSEGV || signo == SIGSYS ? hold(SIG_UNBLOCK, signo)
						   : NEXT(sigrelse)(signo);
}

EXPORT sighandler_t sigset(int signo, sighandler_t handler)
{
	sighandler_t before;
	bool was_held;
	sigset_t now;

	if (!sud_relays())
		return NEXT(sigset)(signo, handler);
	if (sigprocmask(SIG_BLOCK, NULL, &now))
		return SIG_ERR;
	was_held = sigismember(&now, signo) == 1;
	if (handler == SIG_HOLD) {
		struct sigaction a;

		if (sigaction(signo, NULL, &a))
			return SIG_ERR;
		hold(SIG_BLOCK, signo);
		return was_held ? SIG_HOLD : a.sa_handler;
	}
	before = set_handler(signo, handler, 0);
	hold(SIG_UNBLOCK, signo);
	return was_held && before != SIG_ERR ? SIG_HOLD : before;
}

EXPORT int sigpending(sigset_t *set)
{
	int ret = NEXT(sigpending)(set);

	if (!ret && base_unlikely(sud_pending()))
		sud_mask_to(set, sud_mask_from(set) | sud_pending());
	return ret;
}

/* ---- calls that wait with a mask --------------------------------------------------------- */

static const sigset_t *without_ours(const sigset_t *set, sigset_t *room)
{
	if (!set || !(sud_mask_from(set) & sud_unblockable()))
		return set;
	*room = *set;
	sud_mask_to(room, sud_mask_from(set) & ~sud_unblockable());
	return room;
}

EXPORT int sigsuspend(const sigset_t *set)
{
	sigset_t room;

	return NEXT(sigsuspend)(without_ours(set, &room));
}

EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *set)
{
	sigset_t room;

	return NEXT(ppoll)(fds, n, timeout, without_ours(set, &room));
}

int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *set,
		size_t bytes);
EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *timeout,
		       const sigset_t *set, size_t bytes)
{
	sigset_t room;

	return NEXT(__ppoll_chk)(fds, n, timeout, without_ours(set, &room), bytes);
}

EXPORT int pselect(int n, fd_set *in, fd_set *out, fd_set *except, const struct timespec *timeout,
		   const sigset_t *set)
{
	sigset_t room;

	return NEXT(pselect)(n, in, out, except, timeout, without_ours(set, &room));
}

EXPORT int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout, const sigset_t *set)
{
	sigset_t room;

	return NEXT(epoll_pwait)(fd, events, n, timeout, without_ours(set, &room));
}

EXPORT int epoll_pwait2(int fd, struct epoll_event *events, int n, const struct timespec *timeout,
			const sigset_t *set)
{
	sigset_t room;

	if (!NEXT(epoll_pwait2)) { /* libc before 2.35 */
		errno = ENOSYS;
		return -1;
	}
	return NEXT(epoll_pwait2)(fd, events, n, timeout, without_ours(set, &room));
}

/* Takes a virtually pending signal first. */
static int get_pending(const sigset_t *set, siginfo_t *out)
{
	siginfo_t si;
	int signo;

	if (base_likely(!sud_pending()))
		return 0;
	signo = sud_pending_get(sud_mask_from(set), &si);
	if (signo && out)
		*out = si;
	return signo;
}

EXPORT int sigtimedwait(const sigset_t *set, siginfo_t *out, const struct timespec *timeout)
{
	int signo = get_pending(set, out);

	return signo ? signo : NEXT(sigtimedwait)(set, out, timeout);
}

EXPORT int sigwaitinfo(const sigset_t *set, siginfo_t *out)
{
	int signo = get_pending(set, out);

	return signo ? signo : NEXT(sigwaitinfo)(set, out);
}

EXPORT int sigwait(const sigset_t *set, int *out)
{
	int signo = get_pending(set, NULL);

	if (!signo)
		return NEXT(sigwait)(set, out);
	*out = signo;
	return 0;
}

/* ---- threads ----------------------------------------------------------------------------- */

EXPORT int pthread_attr_setsigmask_np(pthread_attr_t *attr, const sigset_t *set)
{
	sigset_t room;

	return NEXT(pthread_attr_setsigmask_np)(attr, without_ours(set, &room));
}

static size_t stack_bytes_of(const pthread_attr_t *attr)
{
	static _Atomic size_t usual;
	size_t bytes = atomic_load_explicit(&usual, memory_order_relaxed);
	pthread_attr_t dflt;

	if (attr)
		return pthread_attr_getstacksize(attr, &bytes) ? 0 : bytes;
	if (!bytes && !pthread_getattr_default_np(&dflt)) {
		pthread_attr_getstacksize(&dflt, &bytes);
		pthread_attr_destroy(&dflt);
		atomic_store_explicit(&usual, bytes, memory_order_relaxed);
	}
	return bytes;
}

/* The program's stack for a thread may lie in closed memory, where not even a handler could run. */
static void open_stack(const pthread_attr_t *attr)
{
	void *low;
	size_t bytes;

	if (attr && !pthread_attr_getstack(attr, &low, &bytes) && low)
		guard_open((uintptr_t)low, (uintptr_t)low + bytes);
}

static void *run_posix(void *thread)
{
	struct sud_start s = sud_thread_begin(thread);

	return ((void *(*)(void *))s.fn)(s.arg);
}

static int run_c11(void *thread)
{
	struct sud_start s = sud_thread_begin(thread);

	return ((thrd_start_t)s.fn)(s.arg);
}

EXPORT int pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *),
			  void *arg)
{
	struct sud_start s = { (void *)fn, arg };
	struct thread *t = sud_thread_expect(&s, stack_bytes_of(attr));
	int ret;

	open_stack(attr);
	guard_open((uintptr_t)out, (uintptr_t)(out + 1));
	sud_allow_push();
	ret = t ? NEXT(pthread_create)(out, attr, run_posix, t) :
		  NEXT(pthread_create)(out, attr, fn, arg);
	sud_allow_pop();
	if (ret)
		sud_thread_abandon(t);
	return ret;
}

EXPORT int thrd_create(thrd_t *out, thrd_start_t fn, void *arg)
{
	struct sud_start s = { (void *)fn, arg };
	struct thread *t = sud_thread_expect(&s, stack_bytes_of(NULL));
	int ret;

	guard_open((uintptr_t)out, (uintptr_t)(out + 1));
	sud_allow_push();
	ret = t ? NEXT(thrd_create)(out, run_c11, t) : NEXT(thrd_create)(out, fn, arg);
	sud_allow_pop();
	if (ret != thrd_success)
		sud_thread_abandon(t);
	return ret;
}

#define ALLOWED(call)                \
	({                           \
		int ret_;            \
		sud_allow_push(); \
		ret_ = (call);       \
		sud_allow_pop();   \
		ret_;                \
	})

EXPORT int pthread_kill(pthread_t thread, int signo)
{
	/* to itself: the program's handler runs inside the call, and may jump out */
	if (pthread_equal(thread, pthread_self()))
		return NEXT(pthread_kill)(thread, signo);
	return ALLOWED(NEXT(pthread_kill)(thread, signo));
}

EXPORT int pthread_sigqueue(pthread_t thread, int signo, const union sigval value)
{
	if (pthread_equal(thread, pthread_self()))
		return NEXT(pthread_sigqueue)(thread, signo, value);
	return ALLOWED(NEXT(pthread_sigqueue)(thread, signo, value));
}

EXPORT int pthread_cancel(pthread_t thread)
{
	int ret;

	if (pthread_equal(thread, pthread_self()))
		return NEXT(pthread_cancel)(thread);
	ret = ALLOWED(NEXT(pthread_cancel)(thread));
	sud_thread_cancelled(thread);
	return ret;
}

/* ---- jumps, which may leave a handler ---------------------------------------------------- */

static void jumped(const struct __jmp_buf_tag *env) { sud_jumped(env->__mask_was_saved); }

EXPORT void siglongjmp(sigjmp_buf env, int value)
{
	jumped(env);
	NEXT(siglongjmp)(env, value);
}

EXPORT void longjmp(jmp_buf env, int value)
{
	jumped(env);
	NEXT(longjmp)(env, value);
}

EXPORT void _longjmp(jmp_buf env, int value)
{
	jumped(env);
	NEXT(_longjmp)(env, value);
}

void __longjmp_chk(jmp_buf env, int value) __attribute__((noreturn));
EXPORT void __longjmp_chk(jmp_buf env, int value)
{
	jumped(env);
	NEXT(__longjmp_chk)(env, value);
}

/* swapcontext() is not interposed, as it returns. */
EXPORT int setcontext(const ucontext_t *to)
{
	sud_jumped(true);
	return NEXT(setcontext)(to);
}
