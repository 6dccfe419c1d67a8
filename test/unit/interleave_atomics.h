/* SPDX-License-Identifier: BSD-3-Clause */
/* Include after all headers and before the C file under test: its atomics become scheduling points.
 */
#include "interleave.h"

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_or_explicit
#undef atomic_fetch_and_explicit
#undef atomic_compare_exchange_weak_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_thread_fence

#define atomic_load_explicit(p, o) ((__typeof__(+*(p)))il_load((const void *)(p), sizeof *(p)))
#define atomic_store_explicit(p, v, o)     il_store((void *)(p), sizeof *(p), (uint64_t)(v), (o))
#define atomic_fetch_add_explicit(p, v, o) il_add((void *)(p), sizeof *(p), (uint64_t)(v), (o))
#define atomic_fetch_or_explicit(p, v, o)  il_or((void *)(p), sizeof *(p), (uint64_t)(v), (o))
#define atomic_fetch_and_explicit(p, v, o) il_and((void *)(p), sizeof *(p), (uint64_t)(v), (o))
#define atomic_compare_exchange_weak_explicit(p, e, d, s, f)                                       \
	({                                                                                         \
		uint64_t il_want = (uint64_t) * (e);                                               \
		bool il_done = il_cas((void *)(p), sizeof *(p), &il_want, (uint64_t)(d), (s));     \
		*(e) = (__typeof__(*(e)))il_want;                                                  \
		il_done;                                                                           \
	})
#define atomic_compare_exchange_strong_explicit atomic_compare_exchange_weak_explicit
#define atomic_thread_fence(o)                  il_fence(o)
#define base_count(counter, n)                  ((void)(n))
