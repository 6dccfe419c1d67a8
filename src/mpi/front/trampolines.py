# SPDX-License-Identifier: BSD-3-Clause
"""The trampolines, which are the exported names. x86-64 only.

A trampoline jumps through one of two slots: the first while no operation is pending and no request is
active (one relaxed load), else the second. Initially both lead to the resolver, which keeps all argument
registers and the stack as the caller left them.
"""

ENTRY = """
	.p2align 4
resolve_entry:			# stack: slot number, return address of the caller
	.cfi_startproc
	.cfi_def_cfa_offset 16
	subq	$192, %rsp
	.cfi_adjust_cfa_offset 192
	movups	%xmm0, (%rsp)
	movups	%xmm1, 16(%rsp)
	movups	%xmm2, 32(%rsp)
	movups	%xmm3, 48(%rsp)
	movups	%xmm4, 64(%rsp)
	movups	%xmm5, 80(%rsp)
	movups	%xmm6, 96(%rsp)
	movups	%xmm7, 112(%rsp)
	movq	%rdi, 128(%rsp)
	movq	%rsi, 136(%rsp)
	movq	%rdx, 144(%rsp)
	movq	%rcx, 152(%rsp)
	movq	%r8, 160(%rsp)
	movq	%r9, 168(%rsp)
	movq	%rax, 176(%rsp)
	movq	%r10, 184(%rsp)
	movq	192(%rsp), %rdi
	movq	200(%rsp), %rsi
	call	front_resolve
	movq	%rax, %r11
	movups	(%rsp), %xmm0
	movups	16(%rsp), %xmm1
	movups	32(%rsp), %xmm2
	movups	48(%rsp), %xmm3
	movups	64(%rsp), %xmm4
	movups	80(%rsp), %xmm5
	movups	96(%rsp), %xmm6
	movups	112(%rsp), %xmm7
	movq	128(%rsp), %rdi
	movq	136(%rsp), %rsi
	movq	144(%rsp), %rdx
	movq	152(%rsp), %rcx
	movq	160(%rsp), %r8
	movq	168(%rsp), %r9
	movq	176(%rsp), %rax
	movq	184(%rsp), %r10
	addq	$200, %rsp
	.cfi_adjust_cfa_offset -200
	jmp	*%r11
	.cfi_endproc
"""

FUNCTION = """
	.globl	{name}
	.type	{name}, @function
	.p2align 4
{name}:
.Lhere_{slot}:
	.cfi_startproc
	endbr64
	cmpl	$0, rt_intercept_refs(%rip)
	jne	1f
	jmp	*front_slots+8*{slot}(%rip)
1:	jmp	*front_slots+8*{pending}(%rip)
	.cfi_endproc
	.size	{name}, . - {name}
unresolved_{slot}:
	.cfi_startproc
	endbr64
	pushq	${slot}
	.cfi_adjust_cfa_offset 8
	jmp	resolve_entry
	.cfi_endproc
"""

# The resolver of an optional function, which the loader calls (exports.c).
CHOICE = """
	.globl	choose_{name}
	.hidden	choose_{name}
	.type	choose_{name}, @function
	.p2align 4
choose_{name}:
	.cfi_startproc
	endbr64
	leaq	.Lhere_{slot}(%rip), %rdi
	leaq	.Lname_{slot}(%rip), %rsi
	jmp	front_choose
	.cfi_endproc
	.size	choose_{name}, . - choose_{name}
"""

# The bare system call: exports.c runs before Sluice's mprotect() works.
PROTECT = """
	.globl	front_protect
	.hidden	front_protect
	.type	front_protect, @function
	.p2align 4
front_protect:
	.cfi_startproc
	endbr64
	movl	$10, %eax
	syscall
	ret
	.cfi_endproc
	.size	front_protect, . - front_protect
"""


def write(functions, head):
    names = [p + f.name for f in functions if f.exported for p in ("MPI_", "PMPI_")]
    optional = [f.is_optional for f in functions if f.exported for p in ("MPI_", "PMPI_")]
    out = [head]
    out.append('\t.text')
    out += [f'\t.hidden {name}' for name in ('front_resolve', 'front_slots', 'rt_intercept_refs',
                                               'front_choose')]
    out.append(ENTRY + PROTECT)
    out += [FUNCTION.format(name=name, slot=slot, pending=slot + len(names))
            for slot, name in enumerate(names)]
    out += [CHOICE.format(name=name, slot=slot) for slot, name in enumerate(names) if optional[slot]]
    out.append("\t.section .data.rel, \"aw\"\n\t.p2align 6\n\t.globl front_slots\n\t.hidden front_slots")
    out.append("front_slots:")
    out += [f"\t.quad\tunresolved_{slot}" for slot in range(len(names))] * 2
    out.append(f"\t.size front_slots, {16 * len(names)}")
    out.append("\t.section .rodata")
    out += [f".Lname_{slot}:\t.asciz \"{name}\"" for slot, name in enumerate(names) if optional[slot]]
    out.append("\t.section .note.GNU-stack, \"\"\n")
    return "\n".join(out)
