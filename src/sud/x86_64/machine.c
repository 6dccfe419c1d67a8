/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/audit.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "os/os.h"
#include "sud/machine.h"
#include "sud/sud.h"

#define PASS_BYTES 136u /* red zone and a return address: entry.S */
#define SYSCALL_BYTES 2u
#define CALL_BYTES 5u
#define FRAME_WORDS 16u
#define MAX_CALLEE_BYTES 256u
#define MAX_LIBC_BYTES 0x400000u
#define MAX_NUMBER 0xfffu

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

uintptr_t machine_ip(const ucontext_t *uc) { return (uintptr_t)uc->uc_mcontext.gregs[REG_RIP]; }

void machine_set_result(ucontext_t *uc, long result) { uc->uc_mcontext.gregs[REG_RAX] = result; }

/* Returns: whether `out` has `bytes` bytes from `at`; memory that is not there is no fault. */
static bool peek(uint64_t at, void *out, size_t bytes)
{
	struct iovec to = { out, bytes }, from = { (void *)at, bytes };

	return sud_syscall(SYS_process_vm_readv, sud_syscall(SYS_getpid), &to, 1L, &from, 1L, 0L) ==
	       (long)bytes;
}

/* Copies the instructions before `ip`. The page before that of `ip` need not be there. */
static bool code_before(uint64_t ip, unsigned char *out, size_t bytes)
{
	if (ip % OS_PAGE < bytes)
		return peek(ip - bytes, out, bytes);
	memcpy(out, (const void *)(ip - bytes), bytes);
	return true;
}

/* If `back` is where a direct call returns to: what it calls, else 0. */
static uint64_t callee_of(uint64_t back)
{
	unsigned char code[CALL_BYTES];
	int32_t distance;

	if (!peek(back - sizeof(code), code, sizeof(code)) || code[0] != 0xe8)
		return 0;
	memcpy(&distance, code + 1, sizeof(distance));
	return back + (uint64_t)(int64_t)distance;
}

/*
 * The number that glibc 2.41 and newer has given to __syscall_cancel_arch, which contains the
 * system call. It is the seventh argument, on the stack behind the return address, of the function
 * that calls __syscall_cancel_arch.
 */
static bool number_of_cancellable(uint64_t ip, uint64_t sp, uint64_t *nr)
{
	uint64_t word[FRAME_WORDS];

	if (!peek(sp, word, sizeof(word)) || ip - callee_of(word[0]) > MAX_CALLEE_BYTES)
		return false;
	for (size_t i = 1; i + 1 < FRAME_WORDS; i++)
		if (word[i] - ip + MAX_LIBC_BYTES < 2 * MAX_LIBC_BYTES &&
		    word[0] - callee_of(word[i]) <= MAX_CALLEE_BYTES) {
			*nr = word[i + 1];
			return true;
		}
	return false;
}

/* `syscall` of __syscall_cancel_arch before `ip`. */
static bool is_in_cancel_arch(uint64_t ip)
{
	static const unsigned char known[] = { 0x4c, 0x89, 0x5c, 0x24, 8, /* mov %r11, 8(%rsp) */
					       0x0f, 0x05 };
	unsigned char code[sizeof(known)];

	return code_before(ip, code, sizeof(code)) && !memcmp(code, known, sizeof(code));
}

/* The number of the system call before `ip`, whose instructions or callers tell it. */
static bool find_number(uint64_t ip, uint64_t sp, uint64_t *nr)
{
	unsigned char code[7];
	uint32_t number;

	if (!code_before(ip, code, sizeof(code)) || code[5] != 0x0f || code[6] != 0x05)
		return false; /* no syscall */
	if (code[0] == 0xb8) { /* mov $number, %eax */
		memcpy(&number, code + 1, sizeof(number));
		*nr = number;
		return true;
	}
	if (code[0] == 0x48 && code[1] == 0x8b && code[2] == 0x44 && code[3] == 0x24)
		return peek(sp + code[4], nr, sizeof(*nr)); /* mov n(%rsp), %rax */
	return is_in_cancel_arch(ip) && number_of_cancellable(ip, sp, nr);
}

bool machine_is_cancellation_point(const ucontext_t *uc)
{
	return is_in_cancel_arch(machine_ip(uc));
}

void machine_undo_pass(ucontext_t *uc)
{
	greg_t *r = uc->uc_mcontext.gregs, back;
	uint64_t done = (uint64_t)r[REG_RIP] - (uintptr_t)sud_pass;

	if (done && done != SYSCALL_BYTES)
		return;
	memcpy(&back, (const void *)r[REG_RSP], sizeof(back));
	r[REG_RIP] = done ? back : back - (greg_t)SYSCALL_BYTES;
	r[REG_RSP] += PASS_BYTES;
}

void machine_undo_interruption(ucontext_t *uc)
{
	greg_t *r = uc->uc_mcontext.gregs;
	uint64_t nr;

	if (r[REG_RAX] != -EINTR || !find_number((uint64_t)r[REG_RIP], (uint64_t)r[REG_RSP], &nr) ||
	    nr > MAX_NUMBER)
		return;
	r[REG_RAX] = (greg_t)nr;
	r[REG_RIP] -= SYSCALL_BYTES;
}
