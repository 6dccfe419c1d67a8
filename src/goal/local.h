/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Local operations compute dst[i] = a[i] op b[i], on any data type, at any alignment.
 *
 *   integers   wrap around; DIV, MAX and MIN distinguish signed and unsigned. DIV truncates towards
 *              0; x / 0 is 0, and the smallest number / -1 is the smallest number
 *   f32, f64   IEEE 754, in the rounding mode of the thread
 *   f16, bf16  computed as f32 from exact conversions, then rounded to nearest even (in the
 *              default rounding mode). For f16 that is the correctly rounded result
 *   MAX, MIN   of floating point: NaN when a or b is one (a's, when both are); -0 is less than +0.
 *              Neither depends on the order of a and b, except for which NaN
 *
 * Results are the same for each instruction set, at each alignment and length, from run to run,
 * except for the bits of a NaN that ADD, SUB, MUL and DIV make. Memory that another thread writes
 * to meanwhile gets undefined contents, and causes no fault.
 */
#ifndef SLUICE_GOAL_LOCAL_H
#define SLUICE_GOAL_LOCAL_H

#include "goal/goal.h"

/* In the order of enum os_simd. */
enum goal_isa { GOAL_ISA_BASE, GOAL_ISA_AVX2, GOAL_ISA_AVX512 };

/*
 * Computes an operation GOAL_ADD ... GOAL_XOR that goal_verify() accepts. bytes: a multiple of the
 * element's. dst may equal a or b or both; otherwise it overlaps neither. An instruction set that
 * was not built is replaced by the best one below it.
 */
void goal_local(enum goal_isa isa, uint32_t type, uint32_t dtype, void *dst, const void *a,
		const void *b, size_t bytes);

#endif
