# SPDX-License-Identifier: BSD-3-Clause
"""The trampolines: what the exported names are.

Each jumps through one of two slots: the first while nothing is pending or in flight (one relaxed load tells),
else the second. At first both lead to the resolver, which keeps all argument registers and the stack as
the caller left them.
"""

X86_64_ENTRY = """
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

X86_64_FUNCTION = """
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

# A slot is read with acquire: what the wrapper reads was written before the slot.
AARCH64_FUNCTION = """
	.globl	{name}
	.type	{name}, %function
	.p2align 4
{name}:
.Lhere_{slot}:
	.cfi_startproc
	hint	#34
	adrp	x16, rt_intercept_refs
	ldr	w16, [x16, :lo12:rt_intercept_refs]
	cbnz	w16, 1f
	adrp	x16, front_slots+8*{slot}
	add	x16, x16, :lo12:front_slots+8*{slot}
	ldar	x16, [x16]
	br	x16
1:	adrp	x16, front_slots+8*{pending}
	add	x16, x16, :lo12:front_slots+8*{pending}
	ldar	x16, [x16]
	br	x16
	.cfi_endproc
	.size	{name}, . - {name}
unresolved_{slot}:
	.cfi_startproc
	hint	#34
	mov	x17, #{slot}
	b	resolve_entry
	.cfi_endproc
"""

AARCH64_ENTRY = """
	.p2align 4
resolve_entry:			// x17: slot number, x30: return address of the caller
	.cfi_startproc
	stp	x29, x30, [sp, #-224]!
	.cfi_def_cfa_offset 224
	.cfi_offset 29, -224
	.cfi_offset 30, -216
	mov	x29, sp
	stp	x0, x1, [sp, #16]
	stp	x2, x3, [sp, #32]
	stp	x4, x5, [sp, #48]
	stp	x6, x7, [sp, #64]
	str	x8, [sp, #80]
	stp	q0, q1, [sp, #96]
	stp	q2, q3, [sp, #128]
	stp	q4, q5, [sp, #160]
	stp	q6, q7, [sp, #192]
	mov	x0, x17
	mov	x1, x30
	bl	front_resolve
	mov	x16, x0
	ldp	q6, q7, [sp, #192]
	ldp	q4, q5, [sp, #160]
	ldp	q2, q3, [sp, #128]
	ldp	q0, q1, [sp, #96]
	ldr	x8, [sp, #80]
	ldp	x6, x7, [sp, #64]
	ldp	x4, x5, [sp, #48]
	ldp	x2, x3, [sp, #32]
	ldp	x0, x1, [sp, #16]
	ldp	x29, x30, [sp], #224
	.cfi_def_cfa_offset 0
	br	x16
	.cfi_endproc
"""

# Of what is exported where the library has it: asked by the loader (exports.c).
X86_64_CHOICE = """
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

# The system call itself: mprotect() is ours too, and does not work yet when this is needed.
X86_64_PROTECT = """
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

AARCH64_PROTECT = """
	.globl	front_protect
	.hidden	front_protect
	.type	front_protect, %function
	.p2align 4
front_protect:
	.cfi_startproc
	hint	#34
	mov	x8, #226
	svc	#0
	ret
	.cfi_endproc
	.size	front_protect, . - front_protect
"""

AARCH64_CHOICE = """
	.globl	choose_{name}
	.hidden	choose_{name}
	.type	choose_{name}, %function
	.p2align 4
choose_{name}:
	.cfi_startproc
	hint	#34
	adrp	x0, .Lhere_{slot}
	add	x0, x0, :lo12:.Lhere_{slot}
	adrp	x1, .Lname_{slot}
	add	x1, x1, :lo12:.Lname_{slot}
	b	front_choose
	.cfi_endproc
	.size	choose_{name}, . - choose_{name}
"""


def write(functions, head):
    names = [p + f.name for f in functions if f.exported for p in ("MPI_", "PMPI_")]
    optional = [f.is_optional for f in functions if f.exported for p in ("MPI_", "PMPI_")]
    out = [head]
    for macro, fixed, function, choice in (
            ("__x86_64__", X86_64_ENTRY + X86_64_PROTECT, X86_64_FUNCTION, X86_64_CHOICE),
            ("__aarch64__", AARCH64_ENTRY + AARCH64_PROTECT, AARCH64_FUNCTION, AARCH64_CHOICE)):
        out.append(f"#ifdef {macro}\n\t.text")
        out += [f"\t.hidden {name}" for name in ("front_resolve", "front_slots", "rt_intercept_refs",
                                                 "front_choose")]
        out.append(fixed)
        out += [function.format(name=name, slot=slot, pending=slot + len(names))
                for slot, name in enumerate(names)]
        out += [choice.format(name=name, slot=slot) for slot, name in enumerate(names) if optional[slot]]
        out.append("#endif\n")
    out.append("\t.section .data.rel, \"aw\"\n\t.p2align 6\n\t.globl front_slots\n\t.hidden front_slots")
    out.append("front_slots:")
    out += [f"\t.quad\tunresolved_{slot}" for slot in range(len(names))] * 2
    out.append(f"\t.size front_slots, {16 * len(names)}")
    out.append("\t.section .rodata")
    out += [f".Lname_{slot}:\t.asciz \"{name}\"" for slot, name in enumerate(names) if optional[slot]]
    out.append("\t.section .note.GNU-stack, \"\"\n")
    return "\n".join(out)
