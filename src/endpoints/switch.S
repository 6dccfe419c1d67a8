/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Changes of stacks between ranks, workers and homes. A rank that does not run has on its stack
 *
 *   sp -> mxcsr (4 bytes), x87 control word (2), 2 bytes free, r15 r14 r13 r12 rbx rbp,
 *         return address
 *
 * struct endpoint: 0 sp, 8 fs, 16 worker. struct endpoint_worker: 0 word of the owner, 8 its value
 * when the scheduler is free, 16 top of the worker's own stack.
 */
	.text

	.macro SAVE
	pushq %rbp
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbp, 0
	pushq %rbx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rbx, 0
	pushq %r12
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r12, 0
	pushq %r13
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r13, 0
	pushq %r14
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r14, 0
	pushq %r15
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %r15, 0
	subq $8, %rsp
	.cfi_adjust_cfa_offset 8
	stmxcsr (%rsp)
	fnstcw 4(%rsp)
	movq %rsp, (%rdi)
	.endm

	.macro RESTORE
	fldcw 4(%rsp)
	ldmxcsr (%rsp)
	addq $8, %rsp
	.cfi_adjust_cfa_offset -8
	popq %r15
	.cfi_adjust_cfa_offset -8
	popq %r14
	.cfi_adjust_cfa_offset -8
	popq %r13
	.cfi_adjust_cfa_offset -8
	popq %r12
	.cfi_adjust_cfa_offset -8
	popq %rbx
	.cfi_adjust_cfa_offset -8
	popq %rbp
	.cfi_adjust_cfa_offset -8
	ret
	.endm

/* void switch_out(struct endpoint *self): on a worker; returns when the rank runs again. */
	.p2align 4
	.globl switch_out
	.hidden switch_out
	.type switch_out, @function
switch_out:
	.cfi_startproc
	SAVE
	movq %rdi, %rbx
	call switch_pick		/* next, self, or NULL */
	cmpq %rbx, %rax
	je 1f
	testq %rax, %rax
	jz 2f
	movq (%rax), %rsp
	movq 8(%rax), %rdx
	wrfsbase %rdx
	movq 16(%rax), %rdx
	movq (%rdx), %rcx		/* the old stack is free: so is the scheduler */
	movq 8(%rdx), %rdx
	movq %rdx, (%rcx)
1:
	.cfi_remember_state
	RESTORE
2:
	.cfi_restore_state
	movq %rbx, %rdi
	movq 16(%rbx), %rsi
	movq 16(%rsi), %rsp
	xorl %ebp, %ebp
	call switch_part		/* does not return */
	ud2
	.cfi_endproc
	.size switch_out, . - switch_out

/* void switch_decouple(struct endpoint *self, void *home_stack): at home; returns on a worker, or
 * at home again. */
	.p2align 4
	.globl switch_decouple
	.hidden switch_decouple
	.type switch_decouple, @function
switch_decouple:
	.cfi_startproc
	SAVE
	movq %rsi, %rsp
	movq %rdi, %rbx
	xorl %ebp, %ebp
	call switch_home		/* NULL: continue after the call; else a signal frame */
	testq %rax, %rax
	jnz 1f
	movq (%rbx), %rsp
	.cfi_remember_state
	RESTORE
1:
	.cfi_restore_state
	movq %rax, %rsp
	movl $15, %eax			/* rt_sigreturn */
	syscall
	ud2
	.cfi_endproc
	.size switch_decouple, . - switch_decouple

/* void switch_enter(struct endpoint *next): from the worker's own stack. */
	.p2align 4
	.globl switch_enter
	.hidden switch_enter
	.type switch_enter, @function
switch_enter:
	.cfi_startproc
	movq (%rdi), %rsp
	movq 8(%rdi), %rdx
	wrfsbase %rdx
	movq 16(%rdi), %rdx
	movq (%rdx), %rcx
	movq 8(%rdx), %rdx
	movq %rdx, (%rcx)
	.cfi_def_cfa_offset 64
	RESTORE
	.cfi_endproc
	.size switch_enter, . - switch_enter

/* void switch_restart(struct endpoint_worker *w): the worker's loop anew, on its own stack. */
	.p2align 4
	.globl switch_restart
	.hidden switch_restart
	.type switch_restart, @function
switch_restart:
	.cfi_startproc
	movq 16(%rdi), %rsp
	xorl %ebp, %ebp
	call switch_loop
	ud2
	.cfi_endproc
	.size switch_restart, . - switch_restart

/*
 * size_t switch_copy(void *to, const void *from, size_t bytes): the handler of a fault in a block
 * goes on with single bytes; of one there, behind them, with what is left in rcx. Blocks, because
 * rep movsb copies 2 GB/s where `to` lies some bytes behind `from` within a page (Zen 3).
 */
	.p2align 4
	.globl switch_copy, switch_copy_blocks, switch_copy_bytes, switch_copy_ends
	.hidden switch_copy, switch_copy_blocks, switch_copy_bytes, switch_copy_ends
	.type switch_copy, @function
switch_copy:
	.cfi_startproc
	movq %rdx, %rcx
	cmpq $64, %rcx
	jb switch_copy_bytes
	.p2align 4
switch_copy_blocks:
	movups (%rsi), %xmm0
	movups 16(%rsi), %xmm1
	movups 32(%rsi), %xmm2
	movups 48(%rsi), %xmm3
	movups %xmm0, (%rdi)
	movups %xmm1, 16(%rdi)
	movups %xmm2, 32(%rdi)
	movups %xmm3, 48(%rdi)
	addq $64, %rsi
	addq $64, %rdi
	subq $64, %rcx
	cmpq $64, %rcx
	jae switch_copy_blocks
switch_copy_bytes:
	rep movsb
switch_copy_ends:
	movq %rcx, %rax
	ret
	.cfi_endproc
	.size switch_copy, . - switch_copy

	.section .note.GNU-stack, "", @progbits
