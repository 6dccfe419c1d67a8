/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * os: the machine: CPUs, time, futexes, pages, address-space queries, copy kernels. x86-64 Linux.
 *
 * State: only what is measured once (CPU features, cache sizes) and one descriptor (os_vma_query).
 * Threads: any thread may make any call. No call uses malloc.
 * Intrinsics and inline assembly are in arch.c and copy_vector.c.
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
#define OS_HUGE ((uint64_t)2 << 20)   /* huge page of a page-table level (PMD) */

int os_page_check(void); /* 0, or -ENOTSUP when the base page is not OS_PAGE */

/* ---- time and waiting -------------------------------------------------------------------- */
static inline uint64_t os_clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static inline uint64_t os_now_ns(void) { return os_clock_ns(CLOCK_MONOTONIC); }
/* CLOCK_MONOTONIC at the last tick of the kernel, at most 10 ms ago; cheaper to read. */
static inline uint64_t os_tick_ns(void) { return os_clock_ns(CLOCK_MONOTONIC_COARSE); }
/* The time-stamp counter, cheaper to read than the clock. os_has_steady_ticks(): it runs at one
 * rate on all CPUs, and the kernel itself keeps time by it. */
uint64_t os_ticks(void);
bool os_has_steady_ticks(void);
#define os_cpu_relax() __builtin_ia32_pause() /* between two polls of a spinning thread */
/*
 * Sleeps while *word == expected, at most timeout_ns (0: not at all; OS_FOR_EVER). The word may be
 * shared between processes. Returns: 0 (woken, or the value differs), -ETIMEDOUT or -EINTR.
 * Context: async-signal-safe.
 */
#define OS_FOR_EVER UINT64_MAX
int os_futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ns);
int os_futex_wake(_Atomic uint32_t *word, int n);

/*
 * TSan sees no order that another process makes: this one has used memory of a peer for the last
 * time, the peer uses it for something else and says so, and another thread here writes to it.
 * These two make that order. Without TSan they do nothing.
 */
#if defined(__SANITIZE_THREAD__)
extern _Atomic uint32_t os_peer_memory_order;
static inline void os_peer_memory_done(void)
{
	atomic_fetch_add_explicit(&os_peer_memory_order, 1, memory_order_release);
}
static inline void os_peer_memory_use(void)
{
	atomic_load_explicit(&os_peer_memory_order, memory_order_acquire);
}
#else
static inline void os_peer_memory_done(void) {}
static inline void os_peer_memory_use(void) {}
#endif

/* The widest vectors that this CPU and its kernel support. */
enum os_simd { OS_SIMD_BASE, OS_SIMD_AVX2, OS_SIMD_AVX512 };
enum os_simd os_simd(void);

/*
 * The modes of floating point arithmetic of a thread: rounding, and whether subnormals are zero.
 * Fault handlers start with the modes of a new process (0), and so does another process.
 * os_float_modes_set() changes neither masks nor flags of exceptions, and returns the modes before.
 * Context: async-signal-safe.
 */
uint32_t os_float_modes(void);
uint32_t os_float_modes_set(uint32_t modes);

/* ---- signals ------------------------------------------------------------------------------ */
enum { OS_MASK_UNBLOCK = 1, OS_MASK_SET = 2 };
/* As rt_sigprocmask(), by the system call itself: neither the program's wrappers nor those of
 * preload/ for sigprocmask() and syscall() see it. Context: async-signal-safe. */
void os_signal_mask(int how, const uint64_t *mask, uint64_t *old);

/* ---- CPUs --------------------------------------------------------------------------------- */
#define OS_CPUMASK_WORDS 32           /* 2048 CPUs */
struct os_cpumask { uint64_t bits[OS_CPUMASK_WORDS]; };
void os_cpumask_self(struct os_cpumask *out);      /* CPUs that this thread may use */
/* The CPU that runs this thread. Returns: false when it is unknown. Context: async-signal-safe. */
bool os_cpumask_here(struct os_cpumask *out);
/* CPUs that a process or thread may use. Returns: 0 or -errno. */
int os_cpumask_of(int tid, struct os_cpumask *out);
/* Binds thread `tid` (0: the calling one) to these CPUs. Returns: 0 or -errno. Context:
 * async-signal-safe. */
int os_cpumask_apply(int tid, const struct os_cpumask *m);
int os_cpumask_count(const struct os_cpumask *m);
void os_cpumask_or(struct os_cpumask *m, const struct os_cpumask *other);
void os_cpumask_and(struct os_cpumask *m, const struct os_cpumask *other);
void os_cpumask_remove(struct os_cpumask *m, const struct os_cpumask *other);
uint64_t os_llc_bytes(void);          /* last-level cache of this process, 0: unknown */
uint64_t os_l2_bytes(void);
int os_numa_node_count(void);         /* from sysfs; at least 1 */
int os_numa_node_cpus(int node, struct os_cpumask *out); /* 0 or -errno */
/* Returns: the first NUMA node that has one of these CPUs. */
int os_numa_node_of(const struct os_cpumask *cpus);
/* Returns: the NUMA node of the page at addr, or -errno. */
int os_page_node(const void *addr);
/* Sets `node` as the preferred one for pages of [addr, addr+bytes) that are not present yet.
 * Returns: 0 or -errno. */
int os_prefer_node(void *addr, uint64_t bytes, int node);

/* ---- lending a CPU to a displaced thread ------------------------------------------------- */
#define OS_LEND_NS 200000u /* longer than a context switch and one copy */

/* The number of copies that some idle-priority threads have done. May lie in shared memory. */
struct os_lend {
	_Atomic uint32_t ended;   /* futex; written by the copying threads */
	_Atomic uint32_t lenders; /* threads inside os_lend_cpu() */
};
/* Binds the copying threads to `cpus`, or (NULL) to their own CPUs again. */
typedef void os_place(void *arg, const struct os_cpumask *cpus);
/*
 * Binds the copying threads to the caller's CPU until a copy ends, at most OS_LEND_NS. ended:
 * l->ended, read before the caller found the copy unfinished. Returns: true when a copy has ended.
 * Context: async-signal-safe; sleeps.
 */
bool os_lend_cpu(struct os_lend *l, uint32_t ended, os_place *place, void *arg);
/* Reports the end of a copy; by the copying thread. Context: async-signal-safe. */
void os_lend_end(struct os_lend *l);

/* ---- identity ------------------------------------------------------------------------------ */
/* Returns: a hash that is equal for processes which can share memory and abstract sockets: same
 * boot_id, host name, pid and network namespace. SLUICE_NODE_NAME replaces them. */
uint64_t os_node_id(void);
/* Reads a small kernel file. Returns: the length (the text is zero-terminated and cut at cap - 1),
 * or -errno. */
int os_procfile_read(const char *path, char *buf, size_t cap);
/* Does another process trace this one by ptrace (gdb, strace, ltrace)? Context:
 * async-signal-safe. */
__attribute__((cold)) bool os_is_traced(void);
/* Returns: the start time of a process in clock ticks since boot, or 0 when it does not exist or is
 * a zombie, or /proc is of another pid namespace. Pid and start time identify a process. */
uint64_t os_process_start(int pid);

/* The file of a descriptor. A program may close descriptors that it does not know, and get the
 * number for a file of its own. Context: async-signal-safe. */
struct os_file { uint64_t device, inode; };
int os_file_of(int fd, struct os_file *out); /* Returns: 0 or -errno. */
bool os_file_is_at(const struct os_file *file, int fd);

uint64_t os_random_u64(void);
/* Writes the folder of the file that contains this code, libsluice.so or the program, with links
 * resolved. Returns: 0, -ENOENT or -ENAMETOOLONG. */
int os_own_folder(char *out, size_t cap);

/* Writes this kind of machine as text, equal on equal machines and from boot to boot: processor,
 * number of CPUs and NUMA nodes. Returns: the length, as snprintf. */
int os_machine_text(char *out, size_t cap);

/* Writes "file+0x1234", the place in a file that a process of the same user has loaded at the
 * address. Returns: false: unknown. No malloc. */
bool os_place_of(int pid, uintptr_t address, char *out, size_t cap);

/* ---- local sockets ------------------------------------------------------------------------ */
struct sockaddr_un;
/* Writes an abstract name. Returns: the length of the address. */
uint32_t os_socket_name(struct sockaddr_un *out, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Listens at an abstract name. type: SOCK_SEQPACKET or SOCK_STREAM, and SOCK_NONBLOCK. Returns: the
 * socket or -errno. */
int os_socket_listen(int type, const struct sockaddr_un *name, uint32_t name_bytes);
/* Connects to a SOCK_SEQPACKET socket that process `pid` has made. flags: 0 or SOCK_NONBLOCK.
 * Returns: the connection or -errno; -EPERM: another process listens at the name. */
int os_socket_connect(int flags, const struct sockaddr_un *name, uint32_t name_bytes, int pid);
/* Returns: the pid of the process that has made the other end, as this process's PID namespace has
 * it; -EPERM when it is not of this process's effective user; or another -errno. */
int os_socket_peer(int fd);
/* Sends one message with a descriptor (-1: none). Returns: 0 or -errno. */
int os_socket_send(int fd, const void *m, size_t bytes, int passed_fd);
/* Waits at most timeout_ms for a message. Returns: its bytes, with *out_fd (-1: none); 0 when the
 * other end has closed; or -errno. Owner: the caller closes *out_fd. */
int64_t os_socket_receive(int fd, void *m, size_t cap, int timeout_ms, int *out_fd);

/* ---- address space ----------------------------------------------------------------------- */
struct os_vma {
	uint64_t start, end;    /* the mapping */
	uint64_t offset;        /* file offset of start */
	uint64_t inode;         /* 0: anonymous */
	uint32_t dev_major, dev_minor;
	bool read, write, exec, shared;
	uint64_t page_bytes;    /* 4096, or the size of hugetlbfs pages; 0: unknown */
	bool is_stack;          /* the main thread's [stack] */
	bool is_special;        /* [vdso], [vvar], [vsyscall] and other kernel mappings */
};
/*
 * Queries the mapping that covers addr, by PROCMAP_QUERY (Linux 6.11) or by reading
 * /proc/self/maps. Returns: 0, -ENOENT (nothing is mapped) or -errno (-ENOSYS: no /proc). Keeps one
 * close-on-exec descriptor; works after fork and in programs that close all descriptors. No malloc,
 * no cancellation point. Context: not in signal handlers.
 */
int os_vma_query(const void *addr, struct os_vma *out);
/* As os_vma_query(); where nothing is mapped at addr, queries the next mapping above. */
int os_vma_query_next(const void *addr, struct os_vma *out);
/* Visits every mapping in ascending order until `visit` returns false. page_bytes may be 0.
 * Returns: 0 or -errno. */
typedef bool os_vma_visit(const struct os_vma *v, void *arg);
int os_vma_each(os_vma_visit *visit, void *arg);
/* Returns: true when os_vma_query() uses the ioctl; then cached regions are verified at each
 * use. */
bool os_vma_query_is_cheap(void);
/*
 * Does the range hold pages that may not be touched although their mapping may be
 * (MADV_GUARD_INSTALL, Linux 6.13)? No mapping shows them. start and end: whole pages. Where the
 * kernel has guard regions and cannot list them, this makes the pages of the range present.
 * Context: as os_vma_query().
 */
bool os_has_guard_region(uintptr_t start, uintptr_t end);
/* Does the range of anonymous memory hold a huge page? Before Linux 6.7: might it, as all memory
 * gets them (transparent_hugepage/enabled: always)? Context: as os_vma_query(). */
bool os_has_huge_page(uintptr_t start, uintptr_t end);
/* Returns: whether the kernel has MADV_COLLAPSE (Linux 6.1). Context: async-signal-safe. */
bool os_can_collapse(void);
/*
 * Copies memory that may be inaccessible, or that another thread may unmap meanwhile; at most
 * PIPE_BUF bytes. Returns: 0 or -errno (-EFAULT: it is not readable; -EMFILE). Context:
 * async-signal-safe; no cancellation point.
 */
int os_read_memory(const void *at, void *out, size_t bytes);

/* Populates the page tables of a shared mapping for writing (Linux 5.14; no effect on older
 * kernels). Context: async-signal-safe; a raw system call that no hook sees. */
void os_populate(void *addr, uint64_t bytes);

/* Finds the cgroup of a controller ("": version 2) in /proc/self/cgroup. Returns: name or NULL. */
const char *os_cgroup_of(const char *text, const char *controller, size_t *out_len);
/* Returns: the least value(folder) of this process's cgroup and of those above it, in version 1 and
 * version 2. A value that a folder does not have is UINT64_MAX. */
uint64_t os_cgroup_least(const char *controller, uint64_t (*value)(const char *folder));
/* Returns: the limit of memory in the folder of a cgroup, of version 2 or 1; UINT64_MAX: none. */
uint64_t os_memory_limit_in(const char *folder);
/* Returns: memory for each rank of this node, by the machine and by half of what the limits of
 * cgroups allow. Reads files in the first call. */
uint64_t os_memory_share_bytes(void);

/* dl_iterate_phdr(), for calls that a signal handler may interrupt in which a memory hook runs.
 * Returns: what it returns; -EBUSY inside such a handler. */
struct dl_phdr_info;
int os_objects_visit(int (*visit)(struct dl_phdr_info *info, size_t size, void *arg), void *arg);

/* A function that a loaded library calls through its procedure linkage table. */
struct os_import {
	const char *name;
	void *by;   /* called in its place */
	void *next; /* the function. Given: where no call has bound the entry yet; NULL: unknown */
};
/*
 * Replaces the import of one library, which is loaded at `base` and has its dynamic section at
 * `dynamic`. `next` is written before. Returns: false: the library does not call it so, the
 * function is not known, or it is replaced already. Context: the library stays loaded.
 */
__attribute__((cold))
bool os_replace_import(struct os_import *import, uintptr_t base, const void *dynamic);
/* Does a library, as above, call this function through its procedure linkage table? */
__attribute__((cold)) bool os_has_import(const char *name, uintptr_t base, const void *dynamic);

/* wait_round() of libsluice.so, for another library that a host MPI calls instead of sched_yield().
 * NULL: libsluice.so is not loaded. */
__attribute__((weak, visibility("default"))) bool sluice_wait_round(void);

/* Does the file of the loaded object that holds addr have a name that begins with one of these?
 * names: ends with NULL. Unlike dladdr() it searches no symbols. Returns: 0, 1, or -EBUSY as
 * os_objects_visit(). */
int os_object_is_named(const void *addr, const char *const *names);

/* Does this call site lie in a library of a host MPI, its plugins and transports included? Call
 * sites are remembered; the first look takes some 10 us. Returns: 0, 1, -ENOENT without
 * may_search, or as os_object_is_named(). */
int os_is_host_mpi(const void *caller, bool may_search);

/*
 * Tells memory of an accelerator, which the CPU cannot load from, from the CPU's own. Such
 * addresses exist only where the runtime of a device is loaded. Context: may read /proc; not in
 * signal handlers.
 */
bool os_is_device_memory(const void *addr, uint64_t bytes);
/*
 * Is a page of [start, end) registered with CUDA (cudaHostRegister, cuMemHostRegister)? A GPU then
 * accesses these very pages, whatever is mapped there later. One call of the CUDA driver a page.
 * Returns: false where the program has not loaded libcuda. Context: calls the CUDA driver, so not
 * in signal handlers, nor with a lock that a memory hook takes.
 */
bool os_gpu_is_registered(uintptr_t start, uintptr_t end);
/*
 * Does a GPU read memory that is not registered, through page faults of its own? No guard is known
 * to hold it. Returns and Context: as os_gpu_is_registered().
 */
bool os_gpu_reads_pageable(void);
/* Has the program loaded libcuda? Asks the loader only. Context: any; in a signal handler that
 * interrupted the loader's answer to Sluice the answer is the one before. */
bool os_gpu_is_loaded(void);
/* Looks up functions of the CUDA driver where the program has loaded it, and keeps it loaded.
 * Returns: false: it has not, or one is missing. Context: as os_gpu_is_loaded(). */
bool os_gpu_find(const char *const *names, int count, void **out);

/* ---- copying ------------------------------------------------------------------------------ */
/* Copies with this kernel; BASE_COPY_AUTO: os_copy_pick(bytes, bytes). Any alignment; the buffers
 * must not overlap. A later releasing store orders all stores, the non-temporal ones too. */
void os_copy(void *dst, const void *src, size_t bytes, enum base_copy_kernel kernel);
/* Copies without string instructions, which libc's memcpy uses: these take up to seven times as
 * long where another core has just written the source. */
void os_copy_vector(void *dst, const void *src, size_t bytes);
/* Copies `rows` rows of `bytes` bytes; strides: from the begin of a row to the next, in bytes. The
 * kernel is that of the whole transfer: short rows are copied in the way that suits their length.
 * Ordered as os_copy(). */
void os_copy_rows(void *dst, int64_t dst_stride, const void *src, int64_t src_stride, size_t bytes,
		  uint64_t rows, enum base_copy_kernel kernel);
/* Copies a matrix of elements of 4, 8 or 16 bytes: element (row, column) lies at
 * row * src_stride + column * bytes, and goes to column * dst_stride + row * bytes. */
void os_copy_transposed(void *dst, int64_t dst_stride, const void *src, int64_t src_stride,
			size_t bytes, uint64_t rows, uint64_t columns);
/*
 * Returns: the kernel for one fragment of a transfer of total_bytes (over all destinations), never
 * AUTO. Follows the measurements in doc/adr/0005-copy-kernels.md, SLUICE_XFER_COPY and
 * SLUICE_XFER_PAST_CACHE. fragment_bytes == total_bytes: a copy inside one process.
 */
enum base_copy_kernel os_copy_pick(uint64_t fragment_bytes, uint64_t total_bytes);
/* Does data of so many bytes, all sources and destinations together, go past the caches? */
bool os_copy_is_past_cache(uint64_t total_bytes);
bool os_copy_has(enum base_copy_kernel kernel); /* this CPU runs it */
/*
 * Assumed speed of one core's copy from memory to memory. The thresholds of policy/detach.c and of
 * progress/ were measured in times by this figure: whoever measures it here has to measure them
 * again. (node_probe_times() gives 4 to 6 bytes/ns where this holds: it includes page faults.)
 */
#define OS_COPY_BYTES_PER_NS 14
static inline uint64_t os_copy_ns(uint64_t bytes)
{
	return (bytes + OS_COPY_BYTES_PER_NS - 1) / OS_COPY_BYTES_PER_NS;
}
/* Measures the CPU and its caches; afterwards the functions above are async-signal-safe. */
void os_copy_prepare(void);

#endif
