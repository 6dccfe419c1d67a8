/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stacks for handlers: a program's alternate stack may have 8 KiB, a thread's stack 16 KiB. Where
 * the stack has not certainly 64 KiB left, the function runs on a stack of this pool. It is always
 * given back, as no handler of the program runs on top of it and could jump away.
 */
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "sud/machine.h"
#include "sud/private.h"

#define STACK_BYTES ((size_t)128 << 10)
#define NEEDED_BYTES ((size_t)80 << 10)
#define POOL 8u
#define AUTODISARM (1u << 31) /* SS_AUTODISARM: the thread has no alternate stack in a handler */

static _Alignas(4096) char pool[POOL][STACK_BYTES]; /* pages only where used */
static _Atomic uint32_t in_use; /* a bit each */

static char *stack_get(void)
{
	uint32_t used = atomic_load_explicit(&in_use, memory_order_relaxed);
	int i;
	long p;

	while (used != (1u << POOL) - 1) {
		i = __builtin_ctz(~used);
		/* acquire: pairs with the release in stack_put() */
		if (atomic_compare_exchange_weak_explicit(&in_use, &used, used | 1u << i,
							  memory_order_acquire,
							  memory_order_relaxed))
			return pool[i];
	}
	p = sud_syscall(SYS_mmap, NULL, STACK_BYTES, (long)(PROT_READ | PROT_WRITE),
			(long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L, 0L);
	return p > 0 ? (char *)p : NULL;
}

static void stack_put(char *stack)
{
	size_t i = (size_t)(stack - pool[0]) / STACK_BYTES;

	if (stack < pool[0] || i >= POOL)
		sud_syscall(SYS_munmap, stack, STACK_BYTES);
	else
		/* release: pairs with the acquire in stack_get() */
		atomic_fetch_and_explicit(&in_use, ~(1u << i), memory_order_release);
}

struct call {
	void (*fn)(void *arg);
	void *arg;
	const ucontext_t *uc;
	bool is_moved; /* away from the alternate stack */
};

static const uint64_t all = ALL_SIGNALS & ~NEVER_BLOCKED;

static void set_mask(const uint64_t *mask)
{
	sud_syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, mask, NULL, sizeof(*mask));
}

/*
 * On another stack the kernel does not see that the alternate one is in use, and would put the
 * frame of another signal over that of our handler. So the thread has none meanwhile, and every
 * signal is blocked before and after. Not elsewhere: doc/adr/0010-syscall-user-dispatch.md, "Other
 * handlers". libc's for cancellation is blocked all the time (signals.c).
 */
static void call_it(void *arg)
{
	static const stack_t none = { .ss_flags = SS_DISABLE };
	struct call *c = arg;
	uint64_t mask;

	memcpy(&mask, &c->uc->uc_sigmask, sizeof(mask));
	mask |= BIT(LIBC_CANCEL);
	if (c->is_moved)
		sud_syscall(SYS_sigaltstack, &none, NULL);
	set_mask(&mask);
	c->fn(c->arg);
	if (!c->is_moved)
		return;
	set_mask(&all);
	sud_syscall(SYS_sigaltstack, &c->uc->uc_stack, NULL);
}

void sud_with_stack_sig(void (*fn)(void *arg), void *arg, void *ucontext)
{
	const ucontext_t *uc = ucontext;
	const stack_t *alternate = &uc->uc_stack;
	uintptr_t here = (uintptr_t)__builtin_frame_address(0), low = (uintptr_t)alternate->ss_sp;
	bool is_alternate = !(alternate->ss_flags & SS_DISABLE) && here >= low &&
			    here < low + alternate->ss_size;
	bool is_enough = is_alternate ? here - low >= NEEDED_BYTES
				      : thread_has_stack(here, NEEDED_BYTES);
	struct call c = { fn, arg, uc, false };
	struct sud_fault f;
	char *stack;

	sud_fault_begin_sig(&f);
	stack = is_enough ? NULL : stack_get();
	if (stack) {
		c.is_moved = is_alternate && !((uint32_t)alternate->ss_flags & AUTODISARM);
		if (c.is_moved)
			set_mask(&all);
		machine_call_on(call_it, &c, stack + STACK_BYTES);
		stack_put(stack);
	} else { /* enough, or no memory for more */
		call_it(&c);
	}
	sud_fault_end_sig(&f);
}
