/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SIGSEGV: a touch of guarded memory, or none of our business. All of this runs in signal context,
 * in any thread, interrupting anything; scripts/check_signal_safety.py checks what it calls.
 *
 * A fault can be late: another thread released the page after the access and before we looked. Then
 * the access works now, and we return to it. To tell this from a true protection error at an
 * address that was once guarded, each thread remembers after how many releases it last returned
 * like this: when none has happened since, the page cannot have been released after the fault.
 */
#include <ucontext.h>

#include "guard/private.h"

struct touch {
	uintptr_t addr;
	bool write, found;
};

/* Releases seen when this thread last returned to an access as late. 0: never. */
static __thread uint64_t late_at __attribute__((tls_model("initial-exec")));

#if defined(__x86_64__)
static bool is_write(const ucontext_t *c) { return c->uc_mcontext.gregs[REG_ERR] & 2; }
#else
static bool is_write(const ucontext_t *c) { return c != NULL; } /* not known: the stricter */
#endif

/* The kernel's word that an access was refused, by protection or because nothing is mapped. */
static bool is_access(const siginfo_t *si)
{
	return si->si_code == SEGV_ACCERR || si->si_code == SEGV_MAPERR;
}

static void touch_it(void *arg)
{
	struct touch *t = arg;

	t->found = guard_touch_sig(t->addr, 1, t->write);
}

static bool is_late(void)
{
	uint64_t releases = guard_release_count_sig();

	if (releases == late_at)
		return false;
	late_at = releases;
	return true;
}

void fault_segv_sig(int signo, siginfo_t *si, void *ucontext)
{
	struct touch t = { .addr = (uintptr_t)si->si_addr, .write = is_write(ucontext) };

	if (is_access(si) && guard_was_armed_sig(t.addr)) {
		struct sud_fault f;

		sud_fault_begin_sig(&f);
		sud_with_stack_sig(touch_it, &t, ucontext);
		sud_fault_end_sig(&f);
		if (t.found) {
			base_count(BASE_CTR_FAULTS, 1);
			return;
		}
		if (is_late())
			return;
	}
	sud_chain_sig(signo, si, ucontext);
}
