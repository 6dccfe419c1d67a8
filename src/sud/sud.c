/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Syscall User Dispatch: while memory is closed, a system call of the program raises SIGSYS. The
 * handler checks the memory that the call names, opens what is closed, and lets the call happen.
 *
 * The handler does not execute the call. A call that names no closed memory happens after the
 * handler's return, in the program's context, from code that is never dispatched (machine_pass).
 * After opening memory the handler has the program's instruction run again, and the call is checked
 * again.
 */
#include <errno.h>
#include <linux/prctl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "os/os.h"
#include "sud/calls.h"
#include "sud/machine.h"
#include "sud/private.h"

#ifndef SYS_USER_DISPATCH
#define SYS_USER_DISPATCH 2
#endif

#define IOVS_AT_A_TIME 16u
#define STRING_MAX 8192u
#define TIDY_EVERY 16u /* dispatched calls: each costs 1 us, tidy() 10 us */

const struct sud_ops *sud_ops;

/* CLOSED: [addr, addr + bytes) of struct access is closed. UNKNOWN: the call may access
 * anything. DONE: the handler has executed the call. */
enum verdict { CLEAR, CLOSED, UNKNOWN, DONE };

struct access {
	uintptr_t addr;
	size_t bytes;
	bool write;
};

static enum verdict check_range(struct access *a, uint64_t addr, uint64_t bytes, bool write)
{
	uint64_t end = addr + bytes < addr ? UINT64_MAX : addr + bytes;

	if (!sud_ops->overlaps(addr, end, write))
		return CLEAR;
	*a = (struct access){ addr, end - addr, write };
	return CLOSED;
}

/*
 * Copies a structure of the program, which may be unmapped. UNKNOWN: the kernel refused the copy; a
 * bad pointer is for the kernel to report to the program.
 */
static enum verdict fetch(struct access *a, void *out, uint64_t addr, size_t bytes)
{
	struct iovec to = { out, bytes }, from = { (void *)addr, bytes };
	enum verdict v = check_range(a, addr, bytes, false);

	if (v != CLEAR)
		return v;
	if (sud_syscall(SYS_process_vm_readv, sud_syscall(SYS_getpid), &to, 1L, &from, 1L, 0L) !=
	    (long)bytes)
		return UNKNOWN;
	return CLEAR;
}

static enum verdict check_iov(struct access *a, uint64_t addr, uint64_t count, bool write)
{
	struct iovec iov[IOVS_AT_A_TIME];
	enum verdict v = CLEAR;

	for (uint64_t at = 0; v == CLEAR && at < count && at < 1024 /* UIO_MAXIOV */;
	     at += IOVS_AT_A_TIME) {
		size_t n = base_min_u64(count - at, IOVS_AT_A_TIME);

		v = fetch(a, iov, addr + at * sizeof(iov[0]), n * sizeof(iov[0]));
		for (size_t i = 0; v == CLEAR && i < n; i++)
			v = check_range(a, (uintptr_t)iov[i].iov_base, iov[i].iov_len, write);
	}
	return v;
}

static enum verdict check_msg(struct access *a, uint64_t addr, bool write)
{
	struct msghdr h;
	enum verdict v = write ? check_range(a, addr, sizeof(h), true) : CLEAR;

	if (v == CLEAR)
		v = fetch(a, &h, addr, sizeof(h));
	if (v == CLEAR)
		v = check_range(a, (uintptr_t)h.msg_name, h.msg_name ? h.msg_namelen : 0, write);
	if (v == CLEAR)
		v = check_range(a, (uintptr_t)h.msg_control,
				h.msg_control ? h.msg_controllen : 0, write);
	if (v == CLEAR)
		v = check_iov(a, (uintptr_t)h.msg_iov, h.msg_iovlen, write);
	return v;
}

static enum verdict check_mmsg(struct access *a, uint64_t addr, uint64_t count, bool write)
{
	const size_t one = sizeof(struct mmsghdr);
	enum verdict v = check_range(a, addr, base_min_u64(count, 1024) * one, true); /* msg_len */

	for (uint64_t i = 0; v == CLEAR && i < count && i < 1024; i++)
		v = check_msg(a, addr + i * one, write);
	return v;
}

/* Page by page up to its end, as the memory behind it may be closed or unmapped. */
static enum verdict check_string(struct access *a, uint64_t addr)
{
	char part[256];
	uint64_t end = addr + STRING_MAX;

	if (!sud_ops->overlaps(addr, end, false))
		return CLEAR;
	while (addr < end) {
		size_t bytes = base_min_u64(sizeof(part), OS_PAGE - addr % OS_PAGE);
		enum verdict v = fetch(a, part, addr, bytes);

		if (v != CLEAR)
			return v;
		if (memchr(part, 0, bytes))
			break;
		addr += bytes;
	}
	return CLEAR;
}

static enum verdict check_sized(struct access *a, uint64_t addr, uint64_t size_addr)
{
	uint32_t bytes;
	enum verdict v;

	if (!addr || !size_addr)
		return CLEAR;
	v = check_range(a, size_addr, sizeof(bytes), true);
	if (v == CLEAR)
		v = fetch(a, &bytes, size_addr, sizeof(bytes));
	return v == CLEAR ? check_range(a, addr, bytes, true) : v;
}

/* A set of signals that the thread waits with: SIGSEGV and SIGSYS may not be blocked. */
static enum verdict check_set(struct access *a, uint64_t addr)
{
	uint64_t set;
	enum verdict v = addr ? fetch(a, &set, addr, sizeof(set)) : CLEAR;

	return v == CLEAR && addr && (set & sud_unblockable()) ? UNKNOWN : v;
}

static enum verdict check_use(struct access *a, const struct calls_use *u,
			    const struct machine_call *c)
{
	uint64_t addr = c->args[u->arg], count = u->count == CALLS_FIXED ? 1 : c->args[u->count],
		 bytes;
	bool overflows = __builtin_mul_overflow(count, (uint64_t)u->unit, &bytes);

	switch ((enum calls_kind)u->kind) {
	case CALLS_IN:
	case CALLS_OUT:
		return check_range(a, addr, overflows ? UINT64_MAX : bytes, u->kind == CALLS_OUT);
	case CALLS_STRING:
		return check_string(a, addr);
	case CALLS_SIZED_OUT:
		return check_sized(a, addr, c->args[u->count]);
	case CALLS_IOV_IN:
	case CALLS_IOV_OUT:
		return check_iov(a, addr, count, u->kind == CALLS_IOV_OUT);
	case CALLS_MSG_IN:
	case CALLS_MSG_OUT:
		return check_msg(a, addr, u->kind == CALLS_MSG_OUT);
	case CALLS_MMSG_IN:
	case CALLS_MMSG_OUT:
		return check_mmsg(a, addr, (uint32_t)count, u->kind == CALLS_MMSG_OUT);
	case CALLS_PAGES_IF:
		if (!(c->args[3] & u->unit))
			return CLEAR;
		return check_range(a, addr, base_round_up(count, OS_PAGE), true);
	case CALLS_PAGES:
		return check_range(a, addr, base_round_up(count, OS_PAGE), true);
	case CALLS_SET:
		return check_set(a, addr);
	case CALLS_BITS:
		return check_range(a, addr, ((uint32_t)count + 63) / 64 * 8, true);
	case CALLS_NOTHING:
		break;
	}
	return CLEAR;
}

static enum verdict check_call(struct access *a, const struct calls_entry *e,
				const struct machine_call *c)
{
	enum verdict v = CLEAR;

	for (int i = 0; v == CLEAR && i < CALLS_USES && e->uses[i].kind; i++)
		v = check_use(a, &e->uses[i], c);
	return v;
}

/*
 * rt_sigprocmask by a raw call, mostly libc's own: it is executed without our signals in the set.
 * The virtual mask does not change, as libc later restores the mask that it read here. The call is
 * executed in the handler, with the program's mask, and the new mask is copied into the interrupted
 * frame.
 */
static enum verdict change_mask(struct access *a, const struct machine_call *c, ucontext_t *uc)
{
	uint64_t set, now;
	enum verdict v;
	long ret;

	if (!c->args[1] || c->args[3] != sizeof(set))
		return CLEAR;
	v = fetch(a, &set, c->args[1], sizeof(set));
	if (v != CLEAR || !(set & sud_unblockable()))
		return v;
	set &= ~sud_unblockable();
	sud_syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &uc->uc_sigmask, NULL, sizeof(set));
	ret = sud_syscall(SYS_rt_sigprocmask, c->args[0], &set, c->args[2], sizeof(set));
	sud_syscall(SYS_rt_sigprocmask, (long)SIG_BLOCK, NULL, &now, sizeof(now));
	memcpy(&uc->uc_sigmask, &now, sizeof(now));
	machine_set_result(uc, ret);
	return DONE;
}

/*
 * The structures of requests of terminals, and of those common to all descriptors, have no
 * pointers. Sluice itself asks the kernel for mappings and pages as it adopts memory; all pending
 * operations would be completed.
 */
static enum verdict check_ioctl(struct access *a, const struct machine_call *c)
{
	uint64_t w[13]; /* struct procmap_query, 6.11, or the shorter struct pm_scan_arg, 6.7 */
	bool is_query = c->args[1] == _IOWR('f', 17, uint64_t[13]);
	enum verdict v;

	if ((c->args[1] & 0xff00) == 0x5400)
		return CLEAR;
	if (!is_query && c->args[1] != _IOWR('f', 16, uint64_t[12]))
		return UNKNOWN;
	v = fetch(a, w, c->args[2], is_query ? sizeof w : sizeof w - 8);
	if (v != CLEAR)
		return v;
	if (!is_query)
		return check_range(a, w[5], base_min_u64(w[6], UINT32_MAX) * 24, true);
	v = check_range(a, w[11], (uint32_t)w[10], true);
	return v == CLEAR ? check_range(a, w[12], w[10] >> 32, true) : v;
}

/* Calls that machine_pass cannot make: unknown ones, and those that share or change the stack. */
static bool must_happen_in_place(const struct machine_call *c)
{
	return c->nr < 0 || c->nr == SYS_vfork || c->nr == SYS_clone || c->nr == SYS_clone3;
}

/*
 * Opens the closed memory; then the call is checked again. After complete_all() it is not: other
 * threads may close memory again and again, which does not concern this call.
 */
static void open_for_call(const struct access *a, const struct machine_call *c, ucontext_t *uc)
{
	bool again = true;

	if (a)
		sud_ops->touch(a->addr, a->bytes, a->write);
	else
		sud_ops->complete_all();
	if (!a)
		again = must_happen_in_place(c) || sud_wait_interrupted();
	if (again)
		machine_restart(uc);
	else
		machine_pass(uc, c);
}

struct opening {
	const struct access *a;
	const struct machine_call *c;
	ucontext_t *uc;
};

static void open_on_stack(void *arg)
{
	struct opening *o = arg;

	open_for_call(o->a, o->c, o->uc);
}

static void open_and_restart(const struct access *a, const struct machine_call *c, ucontext_t *uc)
{
	struct opening o = { a, c, uc };

	sud_with_stack_sig(open_on_stack, &o, uc);
}

static void tidy_on_stack(void *arg)
{
	sud_ops->tidy();
}

static const struct calls_entry *entry_of(const struct machine_call *c)
{
	static const struct calls_entry unknown = { CALLS_COMPLETE, { { 0 } } };

	return c->nr >= 0 && c->nr < calls_count ? &calls_table[c->nr] : &unknown;
}

static void handle_call(const siginfo_t *si, ucontext_t *uc)
{
	static _Atomic uint32_t dispatched_calls;
	struct machine_call c;
	const struct calls_entry *e;
	struct access a;
	enum verdict v;

	if (!machine_get_call(si, uc, &c))
		c.nr = -1;
	if (c.nr == SYS_restart_syscall) {
		/* a sleep that began before memory was closed goes on after SIGCONT; the kernel
		 * forgets it when this handler returns */
		machine_set_result(uc, -EINTR);
		machine_undo_interruption(uc);
		return;
	}
	if (machine_is_cancellation_point(uc))
		signals_cancellable_sig();
	e = entry_of(&c);
	base_count(BASE_CTR_DISPATCHED, 1);
	v = e->how == CALLS_COMPLETE ? UNKNOWN : check_call(&a, e, &c);
	if (v == CLEAR && e->how == CALLS_IOCTL)
		v = check_ioctl(&a, &c);
	if (v == CLEAR && e->how == CALLS_ACTION && c.args[1] && sud_is_virtual((int)c.args[0]))
		v = UNKNOWN; /* sud_signals_are_ours() will notice the new action */
	if (v == CLEAR && e->how == CALLS_MASK) {
		v = change_mask(&a, &c, uc);
		if (v == DONE)
			return;
	}
	if (v == CLEAR &&
	    atomic_fetch_add_explicit(&dispatched_calls, 1, memory_order_relaxed) % TIDY_EVERY ==
		    TIDY_EVERY - 1)
		sud_with_stack_sig(tidy_on_stack, NULL, uc);
	if (v == CLEAR)
		machine_pass(uc, &c);
	else
		open_and_restart(v == CLOSED ? &a : NULL, &c, uc);
}

void sigsys(int signo, siginfo_t *si, void *ucontext)
{
	if (si->si_code == SYS_USER_DISPATCH) {
		if (!sud_local.is_enabling)
			sud_local.is_preceded = false;
		handle_call(si, ucontext);
	} else if (!thread_enable_sig(si, ucontext)) {
		sud_local.is_enabling = sud_local.is_preceded = false;
		sud_chain_sig(signo, si, ucontext);
	}
}

int sud_probe(char *reason, size_t cap)
{
	static _Atomic uint32_t selector; /* 0: every call passes */
	long ret =
		sud_syscall(SYS_prctl, (long)PR_SET_SYSCALL_USER_DISPATCH, (long)PR_SYS_DISPATCH_ON,
			    sud_range_start, sud_range_end - sud_range_start, &selector);

	if (base_fault("dispatch"))
		ret = -EINVAL;
	if (!ret)
		ret = sud_syscall(SYS_prctl, (long)PR_SET_SYSCALL_USER_DISPATCH,
				  (long)PR_SYS_DISPATCH_OFF, 0L, 0L, 0L);
	if (ret == -EINVAL)
		snprintf(reason, cap, "the kernel has no Syscall User Dispatch (Linux 5.11)");
	else if (ret)
		snprintf(reason, cap, "Syscall User Dispatch is refused: %s", strerror((int)-ret));
	return (int)ret;
}
