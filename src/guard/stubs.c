/* SPDX-License-Identifier: BSD-3-Clause */
/* For as long as signals.c, threads.c and dispatch.c are not there: no protection of system calls. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guard/private.h"

#define WEAK __attribute__((weak))

static __thread struct { uint32_t depth; uint64_t mask; bool in_fault; } self;
static struct sigaction was;

WEAK long system_call(long nr, ...)
{
	long a[6], ret;
	int error = errno;
	va_list more;

	va_start(more, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(more, long);
	va_end(more);
	ret = syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	ret = ret == -1 ? -errno : ret;
	errno = error;
	return ret;
}

static void mask(int how, uint64_t set, uint64_t *old) { system_call(SYS_rt_sigprocmask, (long)how, &set, old, 8L); }

WEAK void guard_enter(void) { if (!self.depth++) mask(SIG_BLOCK, ~0ull, &self.mask); }
WEAK void guard_leave(void) { if (!--self.depth) mask(SIG_SETMASK, self.mask, NULL); }
WEAK void guard_wait_begin(void) { uffd_waits(); }
WEAK void guard_wait_end(void) {}
WEAK bool guard_wait_interrupted(void) { return false; }
WEAK void guard_trust_begin(void) {}
WEAK void guard_trust_end(void) {}
WEAK bool guard_in_fault(void) { return self.in_fault; }

WEAK int signals_install(int signo, signals_handler *handler)
{
	struct sigaction a = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	sigfillset(&a.sa_mask);
	return sigaction(signo, &a, &was) ? -errno : 0;
}
WEAK void signals_uninstall(int signo) { sigaction(signo, &was, NULL); }
WEAK bool signals_are_ours(void) { return true; }
WEAK void signals_chain_sig(int signo, siginfo_t *si, void *ucontext)
{
	if (was.sa_flags & SA_SIGINFO)
		was.sa_sigaction(signo, si, ucontext);
	else
		sigaction(signo, &was, NULL);
}
WEAK void system_fault_begin_sig(struct system_fault *f, void *ucontext)
{
	(void)ucontext;
	f->saved_depth = self.depth++;
	f->saved_in_fault = self.in_fault;
	self.in_fault = true;
}
WEAK void system_fault_end_sig(const struct system_fault *f)
{
	self.depth = f->saved_depth;
	self.in_fault = f->saved_in_fault;
}
WEAK void system_with_stack_sig(void (*fn)(void *arg), void *arg, void *ucontext) { (void)ucontext; fn(arg); }
WEAK int threads_init(bool dispatch) { (void)dispatch; return 0; }
WEAK bool threads_are_covered(void) { return true; }
WEAK void threads_mark_ours(void) {}
WEAK void threads_after_fork_child(void) {}
WEAK int dispatch_probe(char *reason, size_t cap) { snprintf(reason, cap, "not built yet"); return base_opt.guard_kind == BASE_GUARD_AUTO ? -ENOSYS : 0; }
WEAK void dispatch_set(bool armed) { (void)armed; }
