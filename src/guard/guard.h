/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * guard: closes ranges of the program's memory to the program, on all threads, until the owner of
 * the range (rt/) has what the program would read there.
 *
 * HOST MPI FUNCTIONS MAY RUN INSIDE A FAULT HANDLER. touched() and complete_all() of struct
 * guard_ops run in the handler of SIGSEGV or SIGSYS, on top of any instruction of the program:
 * inside malloc(), inside stdio, while the program holds its own locks.
 *   When     A partner of the operation is late, and the wait in the handler has gone from spinning
 *            to sleeping. Then rt/early/pending.c calls the host MPI's MPI_Test through the
 *            progress callback: in the thread that made the MPI call, in any other thread after 20
 *            ms while no thread is inside the host MPI; with MPI_THREAD_MULTIPLE in every thread.
 *   Why      The partner may itself wait for a message that this rank has sent and that moves only
 *            inside host MPI functions. Without progress both would wait for ever.
 *   Danger   The host MPI may allocate memory, take its own locks, and call functions that the
 *            program has registered (reduction operations, request and error callbacks). A callback
 *            that needs a lock or an allocator that the interrupted code holds waits for ever.
 *   Switch   SLUICE_FAULT_PROGRESS=off forbids it. Then a call returns early only when all
 *            partners have come, as nobody could make progress for a late one.
 *
 * Only memory of adopted regions (region/) is guarded: its pages have a second address in the
 * arena, through which movers copy, so a guard never stops a mover.
 *
 *   guard_init(ops) -> [guard_is_ready -> guard_arm(range) ... touched() ... guard_release(range)]*
 *
 *   program    |....|######|....|     ###: closed; an access calls touched()
 *   arena      -----|######|-----     the same pages, open to every mover
 *
 * A range is closed by one kind for the process, chosen by trial or by SLUICE_GUARD_KIND:
 *
 *   mremap     page tables moved away by mremap, the empty mapping protected; protected with its
 *              tables where that is faster. SIGSEGV, and Syscall User Dispatch for system calls.
 *   uffd       page tables moved away, the empty mapping registered with userfaultfd. Threads of
 *              ours serve the faults, of system calls too. Needs privilege.
 *   mprotect   PROT_NONE, or PROT_READ for senders. SIGSEGV and Syscall User Dispatch.
 *
 * mremap is tried first. uffd replaces it as soon as the program makes many system calls while
 * memory is closed, or has a thread that signals do not reach (doc/adr/0025-signals-or-threads.md).
 * Where neither Syscall User Dispatch nor userfaultfd works there is no guard.
 *
 * Ranges of senders (GUARD_READ_ONLY) stay readable, by process_vm_readv of peers too, with mremap
 * and mprotect; with uffd before Linux 6.4 reads wait. Ranges never overlap.
 *
 * Only page tables move. The mapping at the program's address stays, of the same file, so that
 * opening it can always fall back to giving access back.
 *
 *   guard.c     the armed ranges, under one lock
 *   choice.c    which kind; init and fini
 *   shadow.c    moving page tables away and back; for mremap.c and uffd.c
 *   mremap.c mprotect.c uffd.c   one kind each
 *
 * Threads: any thread may call anything, also inside touched(). guard_arm() and guard_release()
 * take a spin lock with handlers of the program deferred, so signal handlers may call them. No
 * function allocates memory. A forked child has no armed range: rt/ completes every operation
 * before the fork.
 */
#ifndef SLUICE_GUARD_H
#define SLUICE_GUARD_H

#include "base/base.h"
#include "os/os.h"
#include "sud/sud.h"

enum guard_access { GUARD_NO_ACCESS, GUARD_READ_ONLY };

/* One armed range of whole pages. Owner: the caller, who embeds it in what it guards. */
struct guard_range {
	uintptr_t start, end;
	enum guard_access access;
	void *arg;      /* the owner's argument of hold() and touched() */
	/* the guard's own */
	_Atomic uint32_t armed_pages;  /* 0: not armed; written under the guard's lock */
	uint64_t slot;                 /* offset among all ranges: of the bits, of the shadow */
	uintptr_t shadow;              /* address of the moved page tables; 0: none moved */
	uint64_t *released; /* a bit for each page, from the 2 MiB border below start on */
	struct guard_range *next, *next_slot;
};

/* The owner's functions. They run in signal handlers: see the head of this file. */
struct guard_ops {
	/* Takes a reference for the touched() that follows. Context: under the guard's lock. */
	void (*hold)(void *arg);
	/*
	 * The program has touched addr, or a system call is about to touch [addr, addr + bytes).
	 * Releases at least those pages before it returns, unless guard_wait_interrupted(), which
	 * it asks whenever it waits for others; drops the reference of hold().
	 * Context: in the handler of SIGSEGV or SIGSYS of the thread that touched, or in a thread
	 * that serves userfaultfd; handlers of the program are deferred; at least 64 KiB of stack.
	 */
	void (*touched)(void *arg, uintptr_t addr, size_t bytes, bool write);
	/* The process is about to show the state of all its memory (fork, exec, exit, an unknown
	 * system call): releases every range, with the same exception. Context: as touched(). */
	void (*complete_all)(void);
	/* Releases ranges that are complete. May not wait. Called at every 16th dispatched system
	 * call. May be NULL. Context: as touched(). */
	void (*tidy)(void);
};

/* Chooses a kind by trial and installs what it needs. Idempotent. Returns: 0 or -errno.
 * Context: any thread, not in signal handlers. Owner: ops has to live for ever. */
__attribute__((cold)) int guard_init(const struct guard_ops *ops);
const char *guard_kind_name(void); /* "mremap", "uffd", "mprotect", "none" */
const char *guard_reason(void);    /* why kinds that were tried before do not work; "" */
/* Gives back all that can be given back. No range may be armed. */
void guard_fini(void);

/* After guard_init(): the range of addresses where page tables of closed ranges lie; empty when the
 * kind moves none. Mappings of the arena in it belong to no region. */
void guard_shadows(uintptr_t *out_start, uintptr_t *out_end);
/*
 * May ranges be armed now? To be asked last before guard_arm(): from here on this thread's system
 * calls are dispatched, 0.08 us each, until its last range is released or guard_cancel_ready().
 * Returns: false when a thread is not protected, the program's handler could not be chained, or a
 * debugger traces the process; the caller then completes its operation before it returns. Usually
 * one system call.
 */
bool guard_is_ready(void);
/* This thread has asked guard_is_ready() and arms nothing. */
void guard_cancel_ready(void);
/*
 * Closes [r->start, r->end). Requires guard_is_ready(); start .. arg set; r not armed; no overlap;
 * one readable and writable mapping of the arena on all of it (region_describe() has checked).
 * Returns: 0, or -errno and nothing has changed.
 */
int guard_arm(struct guard_range *r);
/*
 * Opens the pages that lie wholly in [start, end), as far as they are closed. When the kernel
 * refuses a part (too many mappings) that part stays closed until all the rest of r is released;
 * when it refuses the whole, the process ends with a message.
 * Returns: true when no page of r is closed any more; then r may be freed.
 */
bool guard_release(struct guard_range *r, uintptr_t start, uintptr_t end);
static inline bool guard_is_armed(const struct guard_range *r)
{
	return atomic_load_explicit(&r->armed_pages, memory_order_acquire);
}

/* Lowest and highest closed address (lo >= hi: none); one relaxed load each. */
extern _Atomic uintptr_t guard_lo, guard_hi;
static inline bool guard_may_touch(uintptr_t start, uintptr_t end)
{
	return base_unlikely(start < atomic_load_explicit(&guard_hi, memory_order_relaxed) &&
			     end > atomic_load_explicit(&guard_lo, memory_order_relaxed));
}

/* Inside sud_enter(): handlers of the program may run between begin and end. Inside touched() they
 * may not, as a handler could siglongjmp over it: there each wait lasts at most a millisecond, and
 * the owner asks guard_wait_interrupted() between two waits. */
void guard_wait_begin(void);
static inline void guard_wait_end(void) { sud_wait_end(); }
/*
 * Inside touched() and complete_all(): a signal of the program waits for this thread. The owner
 * drops the reference of hold() and returns at once, with pages still closed. The program's handler
 * then runs where the program was interrupted, and the access happens again.
 * Returns: false outside of faults. No system call.
 */
static inline bool guard_wait_interrupted(void) { return sud_wait_interrupted(); }
/* Returns: inside touched() the thread whose access waits; elsewhere this thread. */
int guard_fault_tid(void);

/* ---- for preload/ ------------------------------------------------------------------------ */

/* The process is about to show the state of all its memory: calls complete_all(). */
void guard_complete(void);
/* The C library is about to write to [start, end) with every signal blocked, or a thread to have
 * its stack there: opens the range. */
void guard_open(uintptr_t start, uintptr_t end);
/* Around exec and posix_spawn: guard_complete(), then sud_exec_begin() and sud_exec_end(). */
void guard_exec_begin(void);
void guard_exec_end(void);

#endif
