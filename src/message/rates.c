/* SPDX-License-Identifier: BSD-3-Clause */
/* Times of messages by length: what the kernel needs, and what copies take at both ends. */
#include "message/private.h"
#include "node/node.h"
#include "os/os.h"

#define GOLDEN_RATIO 0x9e3779b9u /* times 2^32 */

enum { TIMED_EACH = 4, RATE_PS_MAX = 4000, NOISE = 8, SLOWLY = 8 };

int rate_class(uint64_t bytes)
{
	int log2 = 63 - __builtin_clzll(bytes | 1) - NODE_CLASS_MIN_LOG2;

	return log2 < 0 ? 0 : log2 < RATE_CLASSES ? log2 : RATE_CLASSES - 1;
}

bool rate_chooses(_Atomic uint32_t *events, uint32_t each)
{
	uint32_t n = atomic_load_explicit(events, memory_order_relaxed) + 1;

	atomic_store_explicit(events, n, memory_order_relaxed); /* a hint */
	return n * GOLDEN_RATIO < UINT32_MAX / each;
}

uint64_t rate_begin(_Atomic uint32_t *messages)
{
	return rate_chooses(messages, TIMED_EACH) ? os_now_ns() : 0;
}

void rate_end(_Atomic uint32_t *rates, uint64_t bytes, uint64_t begin_ns)
{
	_Atomic uint32_t *rate = &rates[rate_class(bytes)];
	uint64_t old = atomic_load_explicit(rate, memory_order_relaxed), now, apart;

	if (!begin_ns)
		return;
	/* A thread may lose its CPU meanwhile, or find its cache cold: a shorter time counts at
	 * once, a longer one slowly. */
	now = base_min_u64((os_now_ns() - begin_ns) * 1000 / bytes,
			   old ? 2 * old : RATE_PS_MAX);
	apart = now > old ? now - old : old - now;
	if (old && apart < old / NOISE)
		return;
	if (old && now > old)
		now = old + apart / SLOWLY;
	atomic_store_explicit(rate, (uint32_t)base_max_u64(now, 1), memory_order_relaxed);
}
