/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * vfork returns twice and clone on another stack: no frame of ours may lie between them and their
 * caller. Each calls a function that completes pending operations and returns the next definition,
 * and jumps there.
 */
	.macro lead_to name, next
	.globl \name
	.type \name, @function
\name:
	.cfi_startproc
	pushq %rdi
	pushq %rsi
	pushq %rdx
	pushq %rcx
	pushq %r8
	pushq %r9
	pushq %rax
	.cfi_def_cfa_offset 64
	call \next
	movq %rax, %r11
	popq %rax
	popq %r9
	popq %r8
	popq %rcx
	popq %rdx
	popq %rsi
	popq %rdi
	.cfi_def_cfa_offset 8
	jmp *%r11
	.cfi_endproc
	.size \name, . - \name
	.endm

	.text
	.hidden interpose_next_vfork, interpose_next_clone
	lead_to vfork, interpose_next_vfork
	lead_to clone, interpose_next_clone

	.section .note.GNU-stack, "", @progbits
