/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/audit.h>
#include <string.h>
#include <sys/syscall.h>

#include "sud/machine.h"
#include "sud/sud.h"

#define PASS_BYTES 136u /* red zone and a return address: entry.S */
#define SYSCALL_BYTES 2u

void sud_pass(void);

bool machine_get_call(const siginfo_t *si, const ucontext_t *uc, struct machine_call *out)
{
	const greg_t *r = uc->uc_mcontext.gregs;

	out->nr = si->si_syscall;
	out->args[0] = (uint64_t)r[REG_RDI];
	out->args[1] = (uint64_t)r[REG_RSI];
	out->args[2] = (uint64_t)r[REG_RDX];
	out->args[3] = (uint64_t)r[REG_R10];
	out->args[4] = (uint64_t)r[REG_R8];
	out->args[5] = (uint64_t)r[REG_R9];
	return si->si_arch == AUDIT_ARCH_X86_64 && !(out->nr & 0x40000000 /* x32 */);
}

void machine_pass(ucontext_t *uc, const struct machine_call *call)
{
	greg_t *r = uc->uc_mcontext.gregs;
	uint64_t back = (uint64_t)r[REG_RIP];

	if (call->nr ==
	    SYS_rt_sigreturn) { /* takes its frame from the stack pointer, never returns */
		r[REG_RIP] = (greg_t)(uintptr_t)sud_restorer;
		return;
	}
	r[REG_RSP] -= PASS_BYTES;
	memcpy((void *)r[REG_RSP], &back, sizeof(back));
	r[REG_RIP] = (greg_t)(uintptr_t)sud_pass;
}

void machine_restart(ucontext_t *uc) { uc->uc_mcontext.gregs[REG_RIP] -= SYSCALL_BYTES; }

void machine_set_result(ucontext_t *uc, long result) { uc->uc_mcontext.gregs[REG_RAX] = result; }

void machine_undo_interruption(ucontext_t *uc)
{
	greg_t *r = uc->uc_mcontext.gregs;
	unsigned char code[7];
	uint32_t nr;

	/* mov $nr, %eax; syscall */
	if (r[REG_RAX] != -EINTR)
		return;
	memcpy(code, (const void *)(r[REG_RIP] - (greg_t)sizeof(code)), sizeof(code));
	if (code[0] != 0xb8 || code[5] != 0x0f || code[6] != 0x05)
		return;
	memcpy(&nr, code + 1, sizeof(nr));
	r[REG_RAX] = nr;
	r[REG_RIP] -= SYSCALL_BYTES;
}
