/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the files of sud/ only: records of threads, and what one thread is doing.
 *
 * The kernel reads one byte a thread, its selector, at each system call. Threads that never call
 * the host MPI share one selector, so that arming costs one store for all of them; the first
 * sud_allow_push() of a thread gives it its own. An own selector is the low byte of a word that is
 * only changed as a whole:
 *
 *   word = selector | ARMED * (memory is closed) | DEPTH * (depth of sud_allow_push)
 *   selector == BLOCK  iff  ARMED and depth 0
 */
#ifndef SLUICE_SUD_PRIVATE_H
#define SLUICE_SUD_PRIVATE_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "sud/program.h"
#include "sud/sud.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_OFF 0
#define PR_SYS_DISPATCH_ON 1
#endif

#define SELECTOR_BLOCK 1u
#define ARMED          0x100u
#define DEPTH          0x10000u

#define BIT(signo)  ((uint64_t)1 << ((signo) - 1))
#define ALL_SIGNALS (~(uint64_t)0)
/* Without libc's own two: setuid() waits until every thread has answered. */
#define PROGRAMS_SIGNALS (ALL_SIGNALS & ~(BIT(32) | BIT(33)))
#define NEVER_BLOCKED (BIT(SIGSEGV) | BIT(SIGSYS))
#define LIBC_CANCEL 32 /* glibc sends it to a thread that is to be cancelled */

enum thread_state {
	THREAD_FREE,
	THREAD_EXPECTED,   /* about to be made */
	THREAD_KNOWN,      /* not dispatched, and signals may not reach it */
	THREAD_SIGNALLED,  /* the signal that enables it is on its way */
	THREAD_REACHED,    /* its mask is right, its system calls are not dispatched */
	THREAD_DISPATCHED,
	THREAD_OWN,        /* Sluice's */
};

struct thread {
	_Atomic uint32_t word;
	enum thread_state state; /* under the lock, as all below */
	bool has_own_selector;   /* the kernel reads `word`; read by the thread without the lock */
	bool is_dispatched;      /* prctl done; likewise */
	bool arms;               /* closes memory: dispatched only while some is closed */
	int tid;
	pthread_t handle;
	uintptr_t stack_low, stack_high; /* set before the thread runs the program's code */
	struct sud_start start;
	size_t stack_bytes;
	uint64_t virtual_mask;   /* of the creator, for the thread to inherit */
	struct thread *next;     /* all records, never removed */
};

/* State of this thread, used by it and by handlers that interrupt it. */
struct sud_local {
	/* first: machine_sigsys. Inside the handler of the signal that enables the thread. */
	volatile uint32_t is_enabling;
	/* a handler of the program has run on top of that one */
	volatile uint32_t is_preceded;
	struct thread *thread;
	uint64_t mask;          /* in force again when a section with blocked signals ends */
	uint64_t virtual_mask;
	uint64_t enabled_mask; /* at the signal that enabled the thread, if it blocked ours; 0 */
	volatile uint32_t enters; /* depth of sud_enter() */
	int cancel_state;       /* restored by sud_exit() */
	uint32_t waiting_depth; /* of sud_allow_push(), between wait_begin and wait_end */
	volatile bool in_fault, waiting;
	bool is_blocked;        /* signals, by the kernel: sud_enter() before sud_init() */
	volatile bool has_deferred;
	siginfo_t deferred;     /* a signal that arrived in a section */
	volatile bool in_lock, enable_after_lock;
	bool has_ended;         /* its record is freed, and it may not get another */
};

_Static_assert(offsetof(struct sud_local, is_enabling) == 0, "machine_sigsys");
extern __thread struct sud_local sud_local __attribute__((tls_model("initial-exec")));
extern _Atomic bool sud_is_required; /* sud_init() was called */

static inline uint32_t thread_depth(const struct thread *t)
{
	return atomic_load_explicit(&t->word, memory_order_relaxed) / DEPTH;
}

static inline uint32_t thread_word(uint32_t depth, bool armed)
{
	return depth * DEPTH | (armed ? ARMED : 0) | (armed && !depth ? SELECTOR_BLOCK : 0);
}

/* ---- threads.c --------------------------------------------------------------------------- */

/* Returns: this thread's record, made now when it has none (the program's first thread, or a thread
 * that was made by a raw call); NULL without memory, and at the thread's end. */
struct thread *thread_self(void);
/* The kernel reads this thread's own word from now on; the thread is dispatched already. */
void thread_own_selector(struct thread *t);
/* Handles the signal by which sud_enable_threads() reaches a thread. Returns: false when it was
 * another; else every signal is blocked until the handler returns. Context: SIGSYS's handler. */
bool thread_enable_sig(const siginfo_t *si, void *ucontext);
/* Sends a signal to a thread, if its calls are dispatched. */
void thread_kill(pthread_t handle, int signo);
/* Is there certainly this much stack below `here`? */
bool thread_has_stack(uintptr_t here, size_t bytes);

/* ---- signals.c: handlers of SIGSEGV and SIGSYS ------------------------------------------- */

typedef void sud_handler(int signo, siginfo_t *si, void *ucontext);

/*
 * Installs a handler of SIGSEGV or SIGSYS. The handler runs with the program's mask, and on the
 * alternate stack only where the program's own handler would. The program's action is kept and is
 * virtual from now on. Idempotent. Returns: 0 or -errno. Context: not in signal handlers.
 */
int sud_signal_install(int signo, sud_handler *handler);
/* Installs the program's action again. */
void sud_signal_uninstall(int signo);
/*
 * Does what this signal would have done without us: calls the program's handler with its mask, on
 * this stack; or returns so that the signal strikes again with the default action; or keeps a sent
 * signal that the program blocks. To be called last in a handler, outside sud_fault_begin_sig() ..
 * sud_fault_end_sig(). May not return (siglongjmp).
 */
void sud_chain_sig(int signo, siginfo_t *si, void *ucontext);

/* ---- sections.c, stack.c: faults --------------------------------------------------------- */

struct sud_fault {
	uint32_t saved_enters, saved_allowed;
	int saved_errno;
	bool saved_in_fault, saved_waiting;
	int cancel_state, cancel_type; /* before */
};

/*
 * Bracket the part of a handler that may run the owner's functions: handlers of the program are
 * deferred, this thread's system calls pass, no cancellation point acts, and errno is restored at
 * the end. Nest. The end may not return: a thread with asynchronous cancellation ends there.
 */
void sud_fault_begin_sig(struct sud_fault *f);
void sud_fault_end_sig(const struct sud_fault *f);
/* Calls fn(arg) within a sud_fault, with the interrupted mask and at least 64 KiB of stack: on this
 * stack where that is certain, else on one of a pool. After an alternate stack that was too small
 * every signal is blocked until the handler returns. Debuggers can unwind through it. */
void sud_with_stack_sig(void (*fn)(void *arg), void *arg, void *ucontext);

/* ---- sections.c -------------------------------------------------------------------------- */

/* A signal of the program has come inside a section: keeps it until the section ends.
 * Returns: false outside sections. */
bool section_defer_sig(const siginfo_t *si, void *ucontext);
/* A handler of the program runs on top of allowed calls: its own calls are dispatched. */
uint32_t section_suspend(void);
void section_resume(uint32_t depth);
/* Ends every section of this thread: sud_jumped(). */
void section_reset(void);

/* ---- signals.c, sud.c, fault.c ----------------------------------------------------------- */

/* A cancellation point's call is about to happen elsewhere. Context: SIGSYS's handler. */
void signals_cancellable_sig(void);
/* sud_exec_begin() / end(): what a new program inherits. */
void signals_exec_mask(bool begin);
extern const struct sud_ops *sud_ops; /* set before both signals are taken */
/* Handlers of SIGSYS and SIGSEGV. */
sud_handler sigsys, sigsegv;

#endif
