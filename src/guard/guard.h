/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * guard: ranges of the program's memory that it may not touch yet, on any thread, and what happens
 * when it does. Only memory of adopted regions (region/) is guarded: its pages have a second
 * address in the arena, through which movers copy, so a guard never stops a mover.
 *
 *   guard_init(ops)  ->  guard_arm(range) ... touched(): ... guard_release(range) ... guard_release
 *
 *   kind       how the range is closed                     who hears of a touch, and of a system
 * call uffd       page tables moved away (mremap), the empty  threads of ours read the userfaultfd;
 * works mapping registered with userfaultfd         for kernel accesses too: needs privilege steal
 * page tables moved away, the empty mapping   SIGSEGV; Syscall User Dispatch PROT_NONE or
 * PROT_READ; where that takes less time, like mprotect mprotect   PROT_NONE, or PROT_READ for
 * senders         SIGSEGV; Syscall User Dispatch Chosen by trial, or by SLUICE_GUARD_KIND: steal,
 * and uffd instead as soon as the program makes many system calls while something is closed, or has
 * a thread that signals do not reach (doc/adr/0025). Where no system call protection works there is
 * no guard.
 *
 * Senders' ranges (GUARD_READ_ONLY) stay readable, by peers' process_vm_readv too, with `steal` and
 * `mprotect`; with uffd before Linux 6.4 reads wait. Ranges never overlap.
 *
 * Only the page tables move: what stays at the program's address is a mapping of the same file, to
 * which nothing but access is missing, so that opening it can fall back to giving access back.
 *
 * Files: guard.c (ranges), choice.c (which kind), steal.c mprotect.c uffd.c (one kind each),
 * fault.c (SIGSEGV), signals.c (the program's handlers and masks, chaining), dispatch.c (system
 * calls), threads.c (which threads exist, their selectors), interpose.c (functions exported by
 * libsluice.so).
 *
 * Threads: all calls from any thread, also inside touched(). arm and release take a spin lock with
 * no handler of the program running; they are async-signal-safe in the sense that a signal handler
 * may call them. None allocates memory. After fork the child has no armed range (rt completes
 * everything before).
 */
#ifndef SLUICE_GUARD_H
#define SLUICE_GUARD_H

#include "base/base.h"
#include "os/os.h"
#include "sud/sud.h"

enum guard_access { GUARD_NO_ACCESS, GUARD_READ_ONLY };

/* One armed range; the owner's memory, embedded in what it guards. Whole pages. */
struct guard_range {
	uintptr_t start, end;
	enum guard_access access;
	void *arg;      /* the owner's: what touched() gets */
	/* the guard's own */
	_Atomic uint32_t armed_pages;  /* 0: not armed; written under the guard's lock */
	uint64_t slot;                 /* its place among all ranges: of its bits, of its shadow */
	uintptr_t shadow;              /* steal, uffd: where its page tables are; 0: mprotect */
	uint64_t *released; /* a bit for each page, from the 2 MiB border below start on */
	struct guard_range *next, *next_slot;
};

/* What the owner of ranges gives, once. */
struct guard_ops {
	/* Under the guard's lock, before touched(arg): the owner counts a reference, nothing else.
	 */
	void (*hold)(void *arg);
	/*
	 * The program touched addr (or a system call is about to touch [addr, addr + bytes)). Has
	 * to release at least those pages before it returns, or to return because
	 * guard_wait_interrupted(), which it asks whenever it waits for others; drops the reference
	 * of hold(). Context: the thread that touched, in a signal handler or before a system call,
	 * or the uffd thread; no handler of the program runs, on a stack of at least 64 KiB.
	 */
	void (*touched)(void *arg, uintptr_t addr, size_t bytes, bool write);
	/* The process is about to do something that could show the state of things (fork, exec,
	 * exit, an unknown system call): nothing may be armed when this returns. Same context. */
	void (*complete_all)(void);
	/*
	 * Now and then while system calls are looked at because something is armed: what need not
	 * be any more is to be released. Waits for nothing. Same context. May be NULL.
	 */
	void (*tidy)(void);
};

/* Choose a kind by trial and install what it needs. Idempotent, thread-safe; 0 or -errno. Not in
 * signal handlers. ops must live for ever. */
int guard_init(const struct guard_ops *ops);
const char *guard_kind_name(void); /* "uffd", "steal", "mprotect", "none" */
const char *guard_reason(void);    /* why it is not a better one; "" */
/* Everything is given back that can be: no range is armed. */
void guard_fini(void);

/* After guard_init(): where mappings of the arena lie that belong to no region, empty or with the
 * tables of closed ranges. Empty range: there are none. */
void guard_shadows(uintptr_t *out_start, uintptr_t *out_end);
/* May ranges be armed now? False when a thread exists that is not protected, or a foreign handler
 * could not be chained; then calls complete before they return. Cheap (one system call when nothing
 * changed). System calls of this thread begin to be looked at, which costs each 0.08 us until what
 * is armed is released, or guard_cancel_ready(): to be asked last. */
bool guard_is_ready(void);
/* It was asked, and nothing is armed by this thread after all. */
void guard_cancel_ready(void);
/*
 * 0, or -errno and nothing has changed. Requires guard_is_ready(), r->start .. r->arg set, r not
 * armed, no overlap, and one mapping of the arena, readable and writable, on all of it
 * (region_describe() has looked).
 */
int guard_arm(struct guard_range *r);
/*
 * The pages that lie wholly in [start, end) are the program's again; those that are already are
 * left alone. Returns true when no page of r is armed any more; then r may be freed. When the
 * system refuses to open a part (too many mappings) that part stays armed until all the rest of r
 * is released; when it refuses the whole, the process is aborted with a message.
 */
bool guard_release(struct guard_range *r, uintptr_t start, uintptr_t end);
static inline bool guard_is_armed(const struct guard_range *r)
{
	return atomic_load_explicit(&r->armed_pages, memory_order_acquire);
}

/* Lowest and highest armed address (lo >= hi: none); one relaxed load each. */
extern _Atomic uintptr_t guard_lo, guard_hi;
static inline bool guard_may_touch(uintptr_t start, uintptr_t end)
{
	return base_unlikely(start < atomic_load_explicit(&guard_hi, memory_order_relaxed) &&
			     end > atomic_load_explicit(&guard_lo, memory_order_relaxed));
}

/* Inside sud_enter(): handlers of the program may run between begin and end. Inside touched() they
 * may not, as a handler may siglongjmp: each wait is short (a millisecond) there, and between two
 * waits guard_wait_interrupted() is asked. */
void guard_wait_begin(void);
static inline void guard_wait_end(void) { sud_wait_end(); }
/*
 * Inside touched() and complete_all(), called by the guard: a signal of the program waits for this
 * thread. The owner drops the reference of hold() and returns at once, with pages still armed; the
 * program's handler then runs where the program was interrupted, and the access happens again.
 * Returns: false outside of faults. No system call.
 */
static inline bool guard_wait_interrupted(void) { return sud_wait_interrupted(); }

/* ---- for preload/ ------------------------------------------------------------------------ */

/* The process is about to do something that could show the state of its memory: completes every
 * operation. */
void guard_complete(void);
/* The C library is about to write to [start, end) with every signal blocked, or a thread to have its
 * stack there: opens the range. */
void guard_open(uintptr_t start, uintptr_t end);
/* Around exec and posix_spawn: guard_complete() and sud_exec_begin(), sud_exec_end(). */
void guard_exec_begin(void);
void guard_exec_end(void);

/* Inside touched(): the thread whose access waits; elsewhere this thread. */
int guard_fault_tid(void);

#endif
