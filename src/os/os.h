/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * host: the machine under us: CPUs, time, futexes, pages, address-space queries, copy kernels.
 *
 * Thin and stateless but for what is measured once (CPU features, cache sizes). All calls are
 * thread-safe. Intrinsics and inline assembly live in host/arch. No call allocates by
 * malloc.
 */
#ifndef SLUICE_OS_H
#define SLUICE_OS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/base.h"

#define OS_PAGE ((uint64_t)4096)      /* base page; os_page_check() refuses other kernels */
#define OS_HUGE ((uint64_t)2 << 20)   /* PMD-sized huge page */

int os_page_check(void); /* 0, or -ENOTSUP when the base page is not OS_PAGE */

/* ---- time and waiting -------------------------------------------------------------------- */
static inline uint64_t os_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
/* The processor's counter, cheaper to read than the clock. Steady: it runs alike on all CPUs at one
 * rate, and the kernel believes so too (it keeps its own time by it); asked once. */
uint64_t os_ticks(void);
bool os_has_steady_ticks(void);
void os_cpu_relax(void);             /* pause */
/* Sleep while *word == expected, at most timeout_ns (0: do not wait; OS_FOR_EVER). Works across
 * processes.
 * Returns 0 (woken or value differs), -ETIMEDOUT, -EINTR. */
#define OS_FOR_EVER UINT64_MAX
int os_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);
int os_futex_wake(_Atomic uint32_t *word, int n);

/* The widest vectors that this CPU and its kernel run. */
enum os_simd { OS_SIMD_BASE, OS_SIMD_AVX2, OS_SIMD_AVX512 };
enum os_simd os_simd(void);

/* ---- CPUs --------------------------------------------------------------------------------- */
#define OS_CPUMASK_WORDS 32           /* 2048 CPUs */
struct os_cpumask { uint64_t bits[OS_CPUMASK_WORDS]; };
void os_cpumask_self(struct os_cpumask *out);      /* CPUs this thread may run on */
/* The one that it runs on now; false: not known. Async-signal-safe. */
bool os_cpumask_here(struct os_cpumask *out);
/* CPUs that process or thread `tid` may run on. 0 or -errno. */
int os_cpumask_of(int tid, struct os_cpumask *out);
/* From now on this thread runs on these. 0 or -errno. */
int os_cpumask_apply(const struct os_cpumask *m);
int os_cpumask_count(const struct os_cpumask *m);
void os_cpumask_or(struct os_cpumask *m, const struct os_cpumask *other);
void os_cpumask_and(struct os_cpumask *m, const struct os_cpumask *other);
void os_cpumask_remove(struct os_cpumask *m, const struct os_cpumask *other);
uint64_t os_llc_bytes(void);          /* last-level cache this process can use, 0 unknown */
uint64_t os_l2_bytes(void);
int os_numa_node_count(void);         /* from sysfs; at least 1 */
int os_numa_node_cpus(int node, struct os_cpumask *out); /* 0 or -errno */
/* The first node on one of whose CPUs one may run who has this mask: that of a process that is
 * bound to a node. */
int os_numa_node_of(const struct os_cpumask *cpus);
/* NUMA node of the page at addr, or -errno. */
int os_page_node(const void *addr);
/* Prefer `node` for pages of [addr, addr+bytes) not yet present. */
int os_prefer_node(void *addr, uint64_t bytes, int node);

/* ---- identity ------------------------------------------------------------------------------ */
/* Hash that is equal for processes that share kernel boot, pid namespace and IPC reach
 * (boot_id, pid namespace, network namespace for abstract sockets), or of SLUICE_NODE_NAME. */
uint64_t os_node_id(void);
/* Start time of process pid in clock ticks since boot (stat field 22), 0 when it does not exist
 * or is a zombie. Identifies a process together with its pid. */
uint64_t os_process_start(int pid);
uint64_t os_random_u64(void);

/* This kind of machine in words that are equal on equal ones and stay so from start to start: its
 * processor, how many CPUs are on, NUMA nodes. Returns snprintf's length. Reads /proc/cpuinfo. */
int os_machine_text(char *out, size_t cap);

/* ---- address space ----------------------------------------------------------------------- */
struct os_vma {
	uint64_t start, end;    /* mapping that covers the address */
	uint64_t offset;        /* file offset of start */
	uint64_t inode;         /* 0: anonymous */
	uint32_t dev_major, dev_minor;
	bool read, write, exec, shared;
	uint64_t page_bytes;    /* 4096, or the huge page size for hugetlbfs; 0 unknown */
	bool is_stack;          /* main thread's [stack] */
	bool is_special;        /* [vdso] [vvar] [vsyscall] and other bracketed kernel mappings */
};
/* Query the mapping that covers addr: PROCMAP_QUERY (Linux 6.11) where it works, else a scan of
 * /proc/self/maps. Returns 0, -ENOENT (nothing mapped there) or -errno (-ENOSYS: there is no
 * /proc). Keeps one close-on-exec descriptor; right also after fork and in programs that close all
 * descriptors. No malloc, no cancellation point. Context: not in signal handlers. */
int os_vma_query(const void *addr, struct os_vma *out);
/* The same, but where nothing is mapped at addr, the first mapping above. */
int os_vma_query_next(const void *addr, struct os_vma *out);
/* Every mapping, from the lowest up, until visit returns false; it may change the one it is given.
 * page_bytes may be 0 here. 0 or -errno. */
typedef bool os_vma_visit(const struct os_vma *v, void *arg);
int os_vma_each(os_vma_visit *visit, void *arg);
/* True when os_vma_query is cheap (the ioctl): then cached regions are verified at each use. */
bool os_vma_query_is_cheap(void);

/* Have the page tables of a shared mapping filled, for writing, where the kernel can (Linux 5.14).
 * A raw call, which no hook sees: async-signal-safe. */
void os_populate(void *addr, uint64_t bytes);

/*
 * Tells memory of an accelerator, which the CPU cannot load from, from the CPU's own. Such addresses
 * exist only where the runtime of a device is loaded.
 * Context: may read /proc; not in signal handlers.
 */
bool os_is_device_memory(const void *addr, uint64_t bytes);

/* ---- copying ------------------------------------------------------------------------------ */
/* Copy with the given kernel; AUTO means os_copy_pick(bytes, bytes). Any alignment, no overlap.
 * All stores are ordered before a releasing one that follows, the non-temporal ones too. */
void os_copy(void *dst, const void *src, size_t bytes, enum base_copy_kernel kernel);
/* The kernel for one fragment of a transfer whose whole size is total_bytes (all destinations), as
 * measured in bench/ (doc/adr/0005-copy-kernels.md); honours SLUICE_XFER_COPY and
 * SLUICE_XFER_PAST_CACHE. fragment == total means a copy that this process makes alone, for itself.
 * Never returns AUTO. */
enum base_copy_kernel os_copy_pick(uint64_t fragment_bytes, uint64_t total_bytes);
bool os_copy_has(enum base_copy_kernel kernel); /* this CPU can run it */
/* Measure now what is measured once: from then on the three above are async-signal-safe. */
void os_copy_prepare(void);

#endif
