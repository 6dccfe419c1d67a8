/* SPDX-License-Identifier: BSD-3-Clause */
/* A processor without Syscall User Dispatch: nothing is guarded by signals there. */
#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

#include "guard/machine.h"
#include "guard/system.h"

const char sud_range_start[1], sud_range_end[1];

void sud_restorer(void)
{
}

long sud_syscall(long nr, ...)
{
	int saved = errno;
	long a[6], ret;
	va_list args;

	va_start(args, nr);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	ret = syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (ret < 0)
		ret = -errno;
	errno = saved;
	return ret;
}

void machine_call_on(void (*fn)(void *arg), void *arg, void *stack_top)
{
	(void)stack_top;
	fn(arg);
}

bool machine_get_call(const siginfo_t *si, const ucontext_t *uc, struct machine_call *out)
{
	return false;
}

void machine_pass(ucontext_t *uc, const struct machine_call *call)
{
}

void machine_restart(ucontext_t *uc)
{
}

void machine_set_result(ucontext_t *uc, long result)
{
}

void machine_undo_interruption(ucontext_t *uc)
{
}
