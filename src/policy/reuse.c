/* SPDX-License-Identifier: BSD-3-Clause */
/* Admission of calls that gain in reused buffers and lose in new ones. */
#include "policy/policy.h"

#define SIZES_FROM 14 /* log2 of the smallest size with a class of its own */
#define UNKNOWN_BYTES ((uint64_t)64 << 10)
#define PASS_FIRST 4u /* three uses of a buffer earn adoption (SLUICE_REGION_ADOPT_AFTER) */
#define PASS_RARE  32u /* calls of less than a megabyte look more rarely from this interval on */
/* Longest intervals, and so the calls decided wrongly after a program changes: passed-on calls gain
 * nothing, admitted calls lose. */
#define PASS_MAX   64u
#define ADMIT_MAX  16u
/* Calls admitted without an answer. A program with more has no blocking calls, which would bring
 * the answer, and may have changed. */
#define DEFER_MAX  64u

int policy_size_class(uint64_t bytes)
{
	int power = 63 - __builtin_clzll(bytes ? bytes : UNKNOWN_BYTES);
	int class = power < SIZES_FROM ? 0 : power - SIZES_FROM;

	return class < POLICY_SIZE_CLASSES ? class : POLICY_SIZE_CLASSES - 1;
}

uint64_t policy_class_bytes(int size_class)
{
	return size_class ? (uint64_t)1 << (size_class + SIZES_FROM) : 1;
}

#define STRIDE_BYTES 20 /* log2 */

uint32_t policy_reuse_stride(const struct policy_reuse *r, int size_class)
{
	int bits = STRIDE_BYTES - SIZES_FROM - size_class;
	uint32_t interval = backoff_interval(&r->passing);

	if (bits < 1)
		return 1;
	return (((1u << bits) - 2) * base_max_u64(interval / PASS_RARE, 1)) | 1;
}

static struct backoff *backoff_of(struct policy_reuse *r)
{
	return r->is_admitted ? &r->admitting : &r->passing;
}

/* The last call of an interval asks. */
static void begin_interval(struct backoff *b, uint32_t interval)
{
	backoff_set(b, interval);
	backoff_skip(b, interval - 1);
}

enum policy_step policy_reuse_next(struct policy_reuse *r)
{
	if (!backoff_interval(&r->passing))
		begin_interval(&r->passing, PASS_FIRST);
	if (backoff_is_due(backoff_of(r)))
		return REUSE_ASK;
	return r->is_admitted ? REUSE_ADMIT : REUSE_PASS;
}

void policy_reuse_answer(struct policy_reuse *r, bool all_reuse)
{
	/* a question follows the first admitted call, to check early whether admission was right */
	uint32_t last = all_reuse && !r->is_admitted ? 0 : backoff_interval(
		all_reuse ? &r->admitting : &r->passing);

	r->is_admitted = all_reuse;
	r->is_asked = false;
	begin_interval(backoff_of(r), backoff_longer(last, 1, all_reuse ? ADMIT_MAX : PASS_MAX));
	atomic_store_explicit(&r->admitted, 0, memory_order_relaxed);
	atomic_store_explicit(&r->unmapped, 0, memory_order_relaxed);
}

void policy_reuse_defer(struct policy_reuse *r)
{
	backoff_skip(backoff_of(r), 0);
	if (!r->is_asked)
		r->deferred = 0;
	r->is_asked = true;
	if (++r->deferred > DEFER_MAX)
		r->is_admitted = false;
}

bool policy_reuse_was_right(const struct policy_reuse *r)
{
	return atomic_load_explicit(&r->unmapped, memory_order_relaxed) * 4u <=
	       atomic_load_explicit(&r->admitted, memory_order_relaxed);
}
