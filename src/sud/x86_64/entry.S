/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The code whose system calls are never dispatched (sud_range_start .. sud_range_end), and the
 * change of stacks. See machine.h.
 */
	.text
	.p2align 6
	.globl sud_range_start, sud_range_end
	.hidden sud_range_start, sud_range_end
sud_range_start:

	.globl sud_syscall
	.hidden sud_syscall
	.type sud_syscall, @function
sud_syscall:
	.cfi_startproc
	movq %rdi, %rax
	movq %rsi, %rdi
	movq %rdx, %rsi
	movq %rcx, %rdx
	movq %r8, %r10
	movq %r9, %r8
	movq 8(%rsp), %r9
	syscall
	ret
	.cfi_endproc
	.size sud_syscall, . - sud_syscall

/*
 * The handler's return enters here instead of the program's `syscall`, with the program's
 * registers, the stack pointer PASS_BYTES lower (beyond the red zone), and the program's return
 * address on the stack. So a blocking call waits in the program's own context, where the kernel
 * handles signals, restarts and jumps out of handlers. rcx is free, as `syscall` overwrites it.
 */
	.globl sud_pass
	.hidden sud_pass
	.type sud_pass, @function
sud_pass:
	.cfi_startproc
	.cfi_def_cfa %rsp, 136
	.cfi_offset %rip, -136
	syscall
	movq (%rsp), %rcx
	.cfi_register %rip, %rcx
	leaq 136(%rsp), %rsp
	.cfi_def_cfa_offset 0
	jmp *%rcx
	.cfi_endproc
	.size sud_pass, . - sud_pass

/* Debuggers and unwinders recognise a signal frame by these bytes, if no unwind information covers
 * them. */
	nop
	.globl sud_restorer
	.hidden sud_restorer
	.type sud_restorer, @function
sud_restorer:
	movq $15, %rax
	syscall
	ud2
	.size sud_restorer, . - sud_restorer

sud_range_end:

/*
 * The handler of SIGSYS. Unless the signal is a dispatched call (si_code 2), sud_local.is_enabling
 * is set before any other instruction that relay() could not tell by its address.
 */
	.globl machine_sigsys, machine_sigsys_end
	.hidden machine_sigsys, machine_sigsys_end
	.type machine_sigsys, @function
machine_sigsys:
	.cfi_startproc
	cmpl $2, 8(%rsi)
	je 1f
	movq sud_local@gottpoff(%rip), %rax
	movl $1, %fs:(%rax)
1:	jmp sigsys
	.cfi_endproc
machine_sigsys_end:
	.size machine_sigsys, . - machine_sigsys

/* void machine_call_on(void (*fn)(void *), void *arg, void *stack_top) */
	.globl machine_call_on
	.hidden machine_call_on
	.type machine_call_on, @function
machine_call_on:
	.cfi_startproc
	pushq %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp, -16
	movq %rsp, %rbp
	.cfi_def_cfa_register %rbp
	movq %rdx, %rsp
	movq %rdi, %rax
	movq %rsi, %rdi
	call *%rax
	leave
	.cfi_def_cfa %rsp, 8
	ret
	.cfi_endproc
	.size machine_call_on, . - machine_call_on

	.section .note.GNU-stack, "", @progbits
