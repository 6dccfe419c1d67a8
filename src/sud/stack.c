/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stacks for handlers: a program's alternate stack may have 8 KiB, a thread's stack 16 KiB. Where
 * the stack has not certainly 64 KiB left, the function runs on a stack of this pool. It is always
 * given back, as no handler of the program runs on top of it and could jump away.
 */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "sud/machine.h"
#include "sud/private.h"

#define STACK_BYTES ((size_t)128 << 10)
#define NEEDED_BYTES ((size_t)80 << 10)
#define POOL 8u

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

void sud_with_stack_sig(void (*fn)(void *arg), void *arg, void *ucontext)
{
	const ucontext_t *uc = ucontext;
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	uintptr_t alternate = (uintptr_t)uc->uc_stack.ss_sp;
	char *stack = NULL;
	bool enough;

	if (!(uc->uc_stack.ss_flags & SS_DISABLE) && here >= alternate &&
	    here < alternate + uc->uc_stack.ss_size)
		enough = here - alternate >= NEEDED_BYTES;
	else
		enough = thread_has_stack(here, NEEDED_BYTES);
	if (!enough)
		stack = stack_get();
	if (!stack) { /* enough, or no memory for more */
		fn(arg);
		return;
	}
	machine_call_on(fn, arg, stack + STACK_BYTES);
	stack_put(stack);
}
