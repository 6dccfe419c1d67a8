/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Syscall User Dispatch: while memory is guarded, a system call of the program becomes SIGSYS. Its
 * handler looks at what the call could meet, opens that, and lets the call happen.
 *
 * Nothing is executed in the handler. A call that meets nothing happens right after it, from an
 * allowed address (machine_pass), in the program's own context. All others are made possible and
 * then happen again from the start: looked at again, or not at all when nothing is guarded any
 * more.
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
#define TIDY_EVERY 16u /* system calls that are looked at: each costs 1 us, tidying up once 10 */

static const struct sud_ops *ops; /* set before SIGSYS is taken */

/* What a call meets. MET: [addr, addr + bytes) is guarded. */
enum verdict { CLEAR, MET, UNKNOWN };

struct meeting {
	uintptr_t addr;
	size_t bytes;
	bool write;
};

static enum verdict look(struct meeting *m, uint64_t addr, uint64_t bytes, bool write)
{
	uint64_t end = addr + bytes < addr ? UINT64_MAX : addr + bytes;

	if (!ops->overlaps(addr, end, write))
		return CLEAR;
	*m = (struct meeting){ addr, end - addr, write };
	return MET;
}

/*
 * A copy of what the program points to, whether that is mapped or not. CLEAR: it is there. MET:
 * first that. UNKNOWN: the kernel does not let us look, or it is a bad pointer, about which the
 * kernel is to complain itself.
 */
static enum verdict fetch(struct meeting *m, void *out, uint64_t addr, size_t bytes)
{
	struct iovec to = { out, bytes }, from = { (void *)addr, bytes };
	enum verdict v = look(m, addr, bytes, false);

	if (v != CLEAR)
		return v;
	if (sud_syscall(SYS_process_vm_readv, sud_syscall(SYS_getpid), &to, 1L, &from, 1L, 0L) !=
	    (long)bytes)
		return UNKNOWN;
	return CLEAR;
}

static enum verdict look_at_iov(struct meeting *m, uint64_t addr, uint64_t count, bool write)
{
	struct iovec iov[IOVS_AT_A_TIME];
	enum verdict v = CLEAR;

	for (uint64_t at = 0; v == CLEAR && at < count && at < 1024 /* UIO_MAXIOV */;
	     at += IOVS_AT_A_TIME) {
		size_t n = base_min_u64(count - at, IOVS_AT_A_TIME);

		v = fetch(m, iov, addr + at * sizeof(iov[0]), n * sizeof(iov[0]));
		for (size_t i = 0; v == CLEAR && i < n; i++)
			v = look(m, (uintptr_t)iov[i].iov_base, iov[i].iov_len, write);
	}
	return v;
}

static enum verdict look_at_msg(struct meeting *m, uint64_t addr, bool write)
{
	struct msghdr h;
	enum verdict v = write ? look(m, addr, sizeof(h), true) : CLEAR;

	if (v == CLEAR)
		v = fetch(m, &h, addr, sizeof(h));
	if (v == CLEAR)
		v = look(m, (uintptr_t)h.msg_name, h.msg_name ? h.msg_namelen : 0, write);
	if (v == CLEAR)
		v = look(m, (uintptr_t)h.msg_control, h.msg_control ? h.msg_controllen : 0, write);
	if (v == CLEAR)
		v = look_at_iov(m, (uintptr_t)h.msg_iov, h.msg_iovlen, write);
	return v;
}

static enum verdict look_at_mmsg(struct meeting *m, uint64_t addr, uint64_t count, bool write)
{
	const size_t one = sizeof(struct mmsghdr);
	enum verdict v = look(m, addr, base_min_u64(count, 1024) * one, true); /* msg_len */

	for (uint64_t i = 0; v == CLEAR && i < count && i < 1024; i++)
		v = look_at_msg(m, addr + i * one, write);
	return v;
}

/* To its end, page by page: what lies behind it may be anything. */
static enum verdict look_at_string(struct meeting *m, uint64_t addr)
{
	char part[256];
	uint64_t end = addr + STRING_MAX;

	if (!ops->overlaps(addr, end, false))
		return CLEAR;
	while (addr < end) {
		size_t bytes = base_min_u64(sizeof(part), OS_PAGE - addr % OS_PAGE);
		enum verdict v = fetch(m, part, addr, bytes);

		if (v != CLEAR)
			return v;
		if (memchr(part, 0, bytes))
			break;
		addr += bytes;
	}
	return CLEAR;
}

static enum verdict look_at_sized(struct meeting *m, uint64_t addr, uint64_t size_addr)
{
	uint32_t bytes;
	enum verdict v;

	if (!addr || !size_addr)
		return CLEAR;
	v = look(m, size_addr, sizeof(bytes), true);
	if (v == CLEAR)
		v = fetch(m, &bytes, size_addr, sizeof(bytes));
	return v == CLEAR ? look(m, addr, bytes, true) : v;
}

/* A set of signals that the thread is to wait with: our own may not be in it. */
static enum verdict look_at_set(struct meeting *m, uint64_t addr)
{
	uint64_t set;
	enum verdict v = addr ? fetch(m, &set, addr, sizeof(set)) : CLEAR;

	return v == CLEAR && addr && (set & sud_unblockable()) ? UNKNOWN : v;
}

static enum verdict look_at(struct meeting *m, const struct calls_use *u,
			    const struct machine_call *c)
{
	uint64_t addr = c->args[u->arg], count = u->count == CALLS_FIXED ? 1 : c->args[u->count],
		 bytes;
	bool overflows = __builtin_mul_overflow(count, (uint64_t)u->unit, &bytes);

	switch ((enum calls_kind)u->kind) {
	case CALLS_IN:
	case CALLS_OUT:
		return look(m, addr, overflows ? UINT64_MAX : bytes, u->kind == CALLS_OUT);
	case CALLS_STRING:
		return look_at_string(m, addr);
	case CALLS_SIZED_OUT:
		return look_at_sized(m, addr, c->args[u->count]);
	case CALLS_IOV_IN:
	case CALLS_IOV_OUT:
		return look_at_iov(m, addr, count, u->kind == CALLS_IOV_OUT);
	case CALLS_MSG_IN:
	case CALLS_MSG_OUT:
		return look_at_msg(m, addr, u->kind == CALLS_MSG_OUT);
	case CALLS_MMSG_IN:
	case CALLS_MMSG_OUT:
		return look_at_mmsg(m, addr, (uint32_t)count, u->kind == CALLS_MMSG_OUT);
	case CALLS_PAGES_IF:
		if (!(c->args[3] & u->unit))
			return CLEAR;
		return look(m, addr, base_round_up(count, OS_PAGE), true);
	case CALLS_PAGES:
		return look(m, addr, base_round_up(count, OS_PAGE), true);
	case CALLS_SET:
		return look_at_set(m, addr);
	case CALLS_BITS:
		return look(m, addr, ((uint32_t)count + 63) / 64 * 8, true);
	case CALLS_NOTHING:
		break;
	}
	return CLEAR;
}

static enum verdict look_at_all(struct meeting *m, const struct calls_entry *e,
				const struct machine_call *c)
{
	enum verdict v = CLEAR;

	for (int i = 0; v == CLEAR && i < CALLS_USES && e->uses[i].kind; i++)
		v = look_at(m, &e->uses[i], c);
	return v;
}

/*
 * rt_sigprocmask by a raw call, above all of libc's own: it gets what it wants, without our
 * signals. What the program believes to be blocked stays: libc restores what it read here before.
 * Executed here, where the mask is the program's, and carried over into the frame.
 */
static enum verdict change_mask(struct meeting *m, const struct machine_call *c, ucontext_t *uc)
{
	uint64_t set, now;
	enum verdict v;
	long ret;

	if (!c->args[1] || c->args[3] != sizeof(set))
		return CLEAR;
	v = fetch(m, &set, c->args[1], sizeof(set));
	if (v != CLEAR || !(set & sud_unblockable()))
		return v;
	set &= ~sud_unblockable();
	ret = sud_syscall(SYS_rt_sigprocmask, c->args[0], &set, c->args[2], sizeof(set));
	sud_syscall(SYS_rt_sigprocmask, (long)SIG_BLOCK, NULL, &now, sizeof(now));
	memcpy(&uc->uc_sigmask, &now, sizeof(now));
	machine_set_result(uc, ret);
	return MET; /* nothing is left to do */
}

/* Requests of terminals and the common ones of all descriptors: no structure of theirs has
 * pointers. */
static bool is_plain_ioctl(uint64_t request)
{
	return (request & 0xff00) == 0x5400;
}

/* Made otherwise than machine_pass makes it, or on another stack, or sharing this one. */
static bool must_happen_in_place(const struct machine_call *c)
{
	return c->nr < 0 || c->nr == SYS_vfork || c->nr == SYS_clone || c->nr == SYS_clone3;
}

/*
 * Have the way cleared; then the call happens again. Not if it had everything completed: other
 * threads may go on to guard something, which it does not concern.
 */
static void make_way(const struct meeting *m, const struct machine_call *c, ucontext_t *uc)
{
	struct sud_fault f;
	bool again = true;

	sud_fault_begin_sig(&f);
	if (m)
		ops->touch(m->addr, m->bytes, m->write);
	else
		ops->complete_all();
	if (!m)
		again = must_happen_in_place(c) || sud_wait_interrupted();
	sud_fault_end_sig(&f);
	if (again)
		machine_restart(uc);
	else
		machine_pass(uc, c);
}

struct way {
	const struct meeting *m;
	const struct machine_call *c;
	ucontext_t *uc;
};

static void make_way_on_stack(void *arg)
{
	struct way *w = arg;

	make_way(w->m, w->c, w->uc);
}

static void clear_way(const struct meeting *m, const struct machine_call *c, ucontext_t *uc)
{
	struct way w = { m, c, uc };

	sud_with_stack_sig(make_way_on_stack, &w, uc);
}

static void tidy_on_stack(void *arg)
{
	struct sud_fault f;

	(void)arg;
	sud_fault_begin_sig(&f);
	ops->tidy();
	sud_fault_end_sig(&f);
}

static const struct calls_entry *entry_of(const struct machine_call *c)
{
	static const struct calls_entry unknown = { CALLS_COMPLETE, { { 0 } } };

	return c->nr >= 0 && c->nr < calls_count ? &calls_table[c->nr] : &unknown;
}

static void dispatched(const siginfo_t *si, ucontext_t *uc)
{
	static _Atomic uint32_t looked;
	struct machine_call c;
	const struct calls_entry *e;
	struct meeting m;
	enum verdict v;

	if (!machine_get_call(si, uc, &c))
		c.nr = -1;
	e = entry_of(&c);
	base_count(BASE_CTR_DISPATCHED, 1);
	v = e->how == CALLS_COMPLETE ? UNKNOWN : look_at_all(&m, e, &c);
	if (v == CLEAR && e->how == CALLS_IOCTL && !is_plain_ioctl(c.args[1]))
		v = UNKNOWN;
	if (v == CLEAR && e->how == CALLS_ACTION && c.args[1] && sud_is_virtual((int)c.args[0]))
		v = UNKNOWN; /* sud_signals_are_ours() will see it */
	if (v == CLEAR && e->how == CALLS_MASK) {
		v = change_mask(&m, &c, uc);
		if (v == MET)
			return;
	}
	if (v == CLEAR &&
	    atomic_fetch_add_explicit(&looked, 1, memory_order_relaxed) % TIDY_EVERY ==
		    TIDY_EVERY - 1)
		sud_with_stack_sig(tidy_on_stack, NULL, uc);
	if (v == CLEAR)
		machine_pass(uc, &c);
	else
		clear_way(v == MET ? &m : NULL, &c, uc);
}

static void sigsys(int signo, siginfo_t *si, void *ucontext)
{
	if (si->si_code == SYS_USER_DISPATCH)
		dispatched(si, ucontext);
	else if (!thread_enable_sig(si, ucontext))
		sud_chain_sig(signo, si, ucontext);
}

int dispatch_install(const struct sud_ops *given)
{
	ops = given;
	return sud_signal_install(SIGSYS, sigsys);
}

int sud_probe(char *reason, size_t cap)
{
	static _Atomic uint32_t selector; /* lets everything pass */
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
