/* SPDX-License-Identifier: GPL-2.0 */
/* What src/goal uses of C11's header; the kernel has none. */
#ifndef _SHIM_STDATOMIC_H
#define _SHIM_STDATOMIC_H

#define memory_order_relaxed __ATOMIC_RELAXED
#define memory_order_acquire __ATOMIC_ACQUIRE
#define memory_order_release __ATOMIC_RELEASE
#define memory_order_acq_rel __ATOMIC_ACQ_REL

#ifdef __clang__
#define atomic_load_explicit(p, o) __c11_atomic_load(p, o)
#define atomic_store_explicit(p, v, o) __c11_atomic_store(p, v, o)
#define atomic_fetch_add_explicit(p, v, o) __c11_atomic_fetch_add(p, v, o)
#define atomic_compare_exchange_weak_explicit(p, e, v, s, f) \
	__c11_atomic_compare_exchange_weak(p, e, v, s, f)
#else
#define atomic_load_explicit(p, o) __atomic_load_n(p, o)
#define atomic_store_explicit(p, v, o) __atomic_store_n(p, v, o)
#define atomic_fetch_add_explicit(p, v, o) __atomic_fetch_add(p, v, o)
#define atomic_compare_exchange_weak_explicit(p, e, v, s, f) \
	__atomic_compare_exchange_n(p, e, v, true, s, f)
#endif

#endif
