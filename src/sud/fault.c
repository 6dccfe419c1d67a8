/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The handler of SIGSEGV: serves a touch of closed memory, passes any other fault on to the
 * program. It interrupts any instruction of any thread; scripts/check_signal_safety.py follows all
 * that it calls. touch() may call host MPI functions from here: see guard.h.
 *
 * A fault can be late: another thread released the page between the access and the handler. Then
 * the access succeeds now, and the handler returns to it. A true protection error at an address
 * that was once guarded looks alike. So each thread remembers the count of openings at which it
 * last returned this way: while the count has not changed, no page was released after the fault.
 */
#include <ucontext.h>

#include "sud/private.h"

struct touch {
	uintptr_t addr;
	bool write, found;
};

/* The count of openings when this thread last returned to a late access. 1: none so far. */
static __thread uint64_t late_at __attribute__((tls_model("initial-exec"))) = 1;

static bool is_write(const ucontext_t *c) { return c->uc_mcontext.gregs[REG_ERR] & 2; }

/* The kernel refused an access: the page is protected, or not mapped. */
static bool is_access(const siginfo_t *si)
{
	return si->si_code == SEGV_ACCERR || si->si_code == SEGV_MAPERR;
}

static void touch_it(void *arg)
{
	struct touch *t = arg;

	t->found = sud_ops->touch(t->addr, 1, t->write);
}

static bool is_late(uintptr_t addr)
{
	uint64_t before = late_at;

	late_at = sud_ops->openings(addr);
	return late_at != before;
}

void sigsegv(int signo, siginfo_t *si, void *ucontext)
{
	struct touch t = { .addr = (uintptr_t)si->si_addr, .write = is_write(ucontext) };

	if (is_access(si) && sud_ops->openings(t.addr)) {
		sud_with_stack_sig(touch_it, &t, ucontext);
		if (t.found) {
			base_count(BASE_CTR_FAULTS, 1);
			return;
		}
		if (is_late(t.addr))
			return;
	}
	sud_chain_sig(signo, si, ucontext);
}
