/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SIGSEGV and SIGSYS: the kernel has our handlers, this file has the program's actions. What the
 * program sets and sees of these two signals (action, mask, pending) is virtual from
 * sud_init() on. SIGSYS is never blocked for real even before, so that
 * sud_enable_threads() reaches every thread.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "sud/machine.h"
#include "sud/private.h"

#define KERNEL_RESTORER 0x04000000ul
#define KERNEL_SIGNALS 64

/* The kernel's struct of rt_sigaction. */
struct action {
	void *handler;
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

/* Written under the lock. */
static struct virtual_signal {
	sud_handler *ours; /* NULL: not installed */
	struct action program;
} virtual_signals[2];
static _Atomic bool is_installed[2];
static _Atomic uint32_t lock_word;

/* State of this thread. */
static __thread struct {
	siginfo_t pending[2];  /* sent while the program blocks them */
	bool has_pending[2];
	uint32_t handlers;     /* of the program, called by us and not returned from */
	uint64_t outer_mask;   /* the virtual mask before the outermost of them */
} local __attribute__((tls_model("initial-exec")));

static int index_of(int signo) { return signo == SIGSEGV ? 0 : signo == SIGSYS ? 1 : -1; }

bool sud_is_virtual(int signo)
{
	int i = index_of(signo);

	return i >= 0 && atomic_load_explicit(&is_installed[i], memory_order_relaxed);
}

static long raw_action(int signo, const struct action *new, struct action *old)
{
	return sud_syscall(SYS_rt_sigaction, (long)signo, new, old, sizeof(uint64_t));
}

static uint64_t lock(void)
{
	uint64_t all = ~(uint64_t)0, old = 0;

	sud_syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &all, &old, sizeof(old));
	/* acquire: pairs with the release in unlock() */
	while (atomic_exchange_explicit(&lock_word, 1, memory_order_acquire))
		sud_syscall(SYS_sched_yield);
	return old;
}

static void unlock(uint64_t old)
{
	/* release: pairs with the acquire in lock() */
	atomic_store_explicit(&lock_word, 0, memory_order_release);
	sud_syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &old, NULL, sizeof(old));
}

/* ---- actions ----------------------------------------------------------------------------- */

static bool has_handler(const struct action *a)
{
	return a->handler != (void *)SIG_DFL && a->handler != (void *)SIG_IGN;
}

/*
 * Installs our handler so that it changes nothing for the program.
 *   mask              the program's: signals interrupt the same calls and go to the same threads
 *   SA_NODEFER        the signal itself is not blocked: a jump out of another handler on top of
 *                     ours would leave it blocked
 *   SA_ONSTACK        only if the program's handler has it: only then the alternate stack is known
 *                     to be large enough; after a stack overflow the program's handler decides.
 *                     Then every signal is blocked: the stack may have room for two frames only
 *   libc's cancellation signal is blocked: a thread that is cancelled in the handler would never
 *   release its locks. Disabling cancellation is not enough: glibc 2.36 obeys a request that was
 *   sent just before, and enabling it again then ends the thread without PTHREAD_CANCELED.
 */
static long set_ours(int signo, const struct virtual_signal *t)
{
	struct action a = { .handler = (void *)t->ours,
			    .flags = SA_SIGINFO | SA_NODEFER | KERNEL_RESTORER,
			    .restorer = sud_restorer,
			    .mask = BIT(LIBC_CANCEL) };

	if (has_handler(&t->program))
		a.flags |= t->program.flags & (SA_ONSTACK | SA_RESTART);
	if (a.flags & SA_ONSTACK)
		a.mask = ALL_SIGNALS & ~NEVER_BLOCKED;
	if (signo == SIGSYS)
		a.flags |= SA_RESTART;
	return raw_action(signo, &a, NULL);
}

/* Flags that relay() handles itself: it needs siginfo, and a deferred signal calls it twice. */
#define RELAY_FLAGS (SA_SIGINFO | (int)SA_RESETHAND)

/*
 * Actions of other signals, while SIGSYS is ours. Their masks contain neither of our signals, as
 * handlers may touch closed memory. relay() is called before each handler: the system calls of a
 * handler that interrupts the host MPI have to be dispatched, and no handler may run inside
 * sud_enter().
 */
static struct other {
	_Atomic(void *) handler; /* the program's, behind relay() */
	void *masked_by;         /* the handler in whose action ... */
	uint64_t hidden;         /* ... these were removed from the mask */
	int flags;               /* the program's RELAY_FLAGS */
} others[KERNEL_SIGNALS + 1];

/* Where two signals are pending, the kernel delivers SIGSYS first: the handler of the other one
 * runs on top of a frame in which the one of SIGSYS has not begun. */
static bool is_in_sigsys(uintptr_t ip)
{
	return ip >= (uintptr_t)machine_sigsys && ip < (uintptr_t)machine_sigsys_end;
}

static void relay(int signo, siginfo_t *si, void *ucontext)
{
	struct action dfl = { .handler = (void *)SIG_DFL };
	struct other *o = &others[signo];
	uint32_t depth;

	if (section_defer_sig(si, ucontext))
		return;
	if (sud_local.is_enabling || is_in_sigsys(machine_ip(ucontext)))
		sud_local.is_preceded = true;
	if (o->flags & (int)SA_RESETHAND)
		raw_action(signo, &dfl, NULL);
	depth = section_suspend();
	((sud_handler *)atomic_load_explicit(&o->handler, memory_order_relaxed))(signo, si,
										     ucontext);
	section_resume(depth);
}

static bool is_other(int signo)
{
	return signo >= 1 && signo <= KERNEL_SIGNALS && index_of(signo) < 0;
}

/* Puts relay() before a handler that was installed earlier. */
static void relay_existing(int signo)
{
	struct other *o = &others[signo];
	struct action a;

	if (!is_other(signo) || (signo >= 32 && signo < 34) /* libc's own */ ||
	    raw_action(signo, NULL, &a) || !has_handler(&a) || a.handler == (void *)relay)
		return;
	o->masked_by = a.handler;
	o->hidden |= a.mask & NEVER_BLOCKED;
	a.mask &= ~NEVER_BLOCKED;
	o->flags = (int)a.flags & RELAY_FLAGS;
	a.flags = (a.flags & ~(unsigned long)SA_RESETHAND) | SA_SIGINFO;
	atomic_store_explicit(&o->handler, a.handler, memory_order_relaxed);
	a.handler = (void *)relay;
	raw_action(signo, &a, NULL);
}

/* ---- libc's cancellation ----------------------------------------------------------------- */

static _Atomic(void *) libc_cancel; /* the handler behind relay_cancel() */
static _Atomic bool passes_cancellable;

/*
 * glibc 2.41 and newer cancel a thread only where the signal finds it in the code of its
 * cancellation points, but a dispatched call happens in ours: the thread goes back first. A call
 * that is not cancelled happens again.
 */
static void relay_cancel(int signo, siginfo_t *si, void *ucontext)
{
	machine_undo_pass(ucontext);
	machine_undo_interruption(ucontext);
	((sud_handler *)atomic_load_explicit(&libc_cancel, memory_order_relaxed))(signo, si,
										  ucontext);
}

/* Returns: whether libc's handler had no relay. libc installs it at the first pthread_cancel(). */
static bool relay_existing_cancel(void)
{
	uint64_t old = lock();
	struct action a;
	bool is_new = !raw_action(LIBC_CANCEL, NULL, &a) && has_handler(&a) &&
		      a.handler != (void *)relay_cancel;

	if (is_new) {
		atomic_store_explicit(&libc_cancel, a.handler, memory_order_relaxed);
		a.handler = (void *)relay_cancel;
		raw_action(LIBC_CANCEL, &a, NULL);
	}
	unlock(old);
	return is_new;
}

/* seq_cst: this thread sees the handler of libc, or the one that cancels sees what is set here. */
void signals_cancellable_sig(void)
{
	if (!atomic_exchange_explicit(&passes_cancellable, true, memory_order_seq_cst))
		relay_existing_cancel();
}

/* libc's handler may have run already, without relay_cancel(). It cancels whoever gets the
 * signal. */
void sud_thread_cancelled(pthread_t thread)
{
	if (atomic_load_explicit(&passes_cancellable, memory_order_seq_cst) &&
	    relay_existing_cancel())
		thread_kill(thread, LIBC_CANCEL);
}

int sud_signal_install(int signo, sud_handler *handler)
{
	int i = index_of(signo);
	struct virtual_signal *t = &virtual_signals[i];
	struct action now;
	uint64_t old = lock();
	long ret = raw_action(signo, NULL, &now);

	if (!ret && now.handler != (void *)handler) {
		t->program = now;
		t->ours = handler;
		ret = set_ours(signo, t);
		atomic_store_explicit(&is_installed[i], !ret, memory_order_relaxed);
	}
	for (int s = 1; signo == SIGSYS && !ret && s <= KERNEL_SIGNALS; s++)
		relay_existing(s);
	unlock(old);
	return (int)ret;
}

void sud_signal_uninstall(int signo)
{
	int i = index_of(signo);
	uint64_t old = lock();

	if (virtual_signals[i].ours && !raw_action(signo, &virtual_signals[i].program, NULL)) {
		virtual_signals[i].ours = NULL;
		atomic_store_explicit(&is_installed[i], false, memory_order_relaxed);
	}
	unlock(old);
}

/* The program has replaced our handler by a raw call: its action becomes the virtual one. */
static bool install_again(int signo, struct virtual_signal *t)
{
	struct action now;
	bool ok = true;
	uint64_t old = lock();

	if (t->ours && !raw_action(signo, NULL, &now) && now.handler != (void *)t->ours) {
		t->program = now;
		ok = !set_ours(signo, t);
	}
	unlock(old);
	return ok;
}

bool sud_signals_are_ours(void)
{
	static const int signals[] = { SIGSEGV, SIGSYS };

	for (int i = 0; i < 2; i++) {
		struct action now;

		if (!atomic_load_explicit(&is_installed[i], memory_order_relaxed))
			continue;
		if (raw_action(signals[i], NULL, &now))
			return false;
		if (now.handler != (void *)virtual_signals[i].ours &&
		    !install_again(signals[i], &virtual_signals[i]))
			return false;
	}
	return true;
}

/* ---- chaining ---------------------------------------------------------------------------- */

static uint64_t *mask_of(ucontext_t *uc) { return (uint64_t *)&uc->uc_sigmask; }

static void send_again(int signo, siginfo_t *si)
{
	sud_syscall(SYS_rt_tgsigqueueinfo, sud_syscall(SYS_getpid), sud_syscall(SYS_gettid),
		    (long)signo, si);
}

/* The default action, after the handler's return. A fault happens again by itself; a sent signal is
 * sent again. */
static void default_action(int signo, siginfo_t *si)
{
	struct action dfl = { .handler = (void *)SIG_DFL };

	raw_action(signo, &dfl, NULL);
	if (signo != SIGSEGV || si->si_code <= 0)
		send_again(signo, si);
}

/* As the kernel would call it: with its mask; the handler may change the interrupted mask in uc. */
static void call_program(int signo, const struct action *a, siginfo_t *si, ucontext_t *uc)
{
	uint64_t *virtual = sud_virtual_mask(), mask;
	uint32_t depth;

	*mask_of(uc) |= *virtual;
	mask = *mask_of(uc) | a->mask | (a->flags & SA_NODEFER ? 0 : BIT(signo));
	if (!local.handlers++)
		local.outer_mask = *virtual;
	*virtual = mask & NEVER_BLOCKED;
	mask &= ~NEVER_BLOCKED;
	depth = section_suspend();
	sud_syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &mask, NULL, sizeof(mask));
	((sud_handler *)a->handler)(signo, si, uc);
	section_resume(depth);
	if (local.handlers)
		local.handlers--;
	*virtual = *mask_of(uc) & NEVER_BLOCKED;
	*mask_of(uc) &= ~NEVER_BLOCKED;
}

static void add_pending(int i, const siginfo_t *si)
{
	if (!local.has_pending[i])
		local.pending[i] = *si;
	local.has_pending[i] = true;
}

/*
 * Does the program block this signal? A thread that was enabled inside a handler of the program had
 * the handler's mask, and has another one since that handler returned.
 */
static bool blocks(int signo, uint64_t mask)
{
	if (sud_local.enabled_mask & ~mask & ~NEVER_BLOCKED)
		sud_local.virtual_mask = sud_local.enabled_mask = 0;
	return sud_local.virtual_mask & BIT(signo);
}

void sud_chain_sig(int signo, siginfo_t *si, void *ucontext)
{
	int i = index_of(signo);
	bool is_blocked = blocks(signo, *mask_of(ucontext)), forced = si->si_code > 0;
	uint64_t old = lock();
	struct action a = virtual_signals[i].program;

	if (!is_blocked && has_handler(&a) && (a.flags & SA_RESETHAND))
		virtual_signals[i].program.handler = (void *)SIG_DFL;
	unlock(old);
	if (is_blocked && !forced)
		add_pending(i, si);
	else if (is_blocked || a.handler == (void *)SIG_DFL || (forced && !has_handler(&a)))
		default_action(signo, si);
	else if (has_handler(&a))
		call_program(signo, &a, si, ucontext);
}

/* ---- program.h: actions and masks -------------------------------------------------------- */

uint64_t sud_unblockable(void)
{
	return BIT(SIGSYS) |
	       (atomic_load_explicit(&is_installed[0], memory_order_relaxed) ? BIT(SIGSEGV) : 0);
}

static void to_user(const struct action *a, struct sigaction *out)
{
	memset(out, 0, sizeof(*out));
	out->sa_sigaction = (sud_handler *)a->handler;
	out->sa_flags = (int)a->flags; /* libc shows its restorer as well */
	out->sa_restorer = a->restorer;
	sud_mask_to(&out->sa_mask, a->mask);
}

static void to_kernel(const struct sigaction *sa, struct action *out)
{
	*out = (struct action){ .handler = (void *)sa->sa_sigaction,
				.flags = (unsigned)sa->sa_flags | KERNEL_RESTORER,
				.restorer = sud_restorer,
				.mask = sud_mask_from(&sa->sa_mask) &
					~(BIT(SIGKILL) | BIT(SIGSTOP)) };
}

int sud_action(int signo, const struct sigaction *new, struct sigaction *old_out)
{
	int i = index_of(signo);
	struct virtual_signal *t = &virtual_signals[i];
	struct action wanted, before;
	long ret = 0;
	uint64_t old;

	if (new)
		to_kernel(new, &wanted);
	old = lock();
	before = t->program;
	if (new && sud_is_vforked()) {
		ret = raw_action(signo, &wanted, NULL);
	} else if (new) {
		t->program = wanted;
		ret = set_ours(signo, t);
	}
	unlock(old);
	if (old_out)
		to_user(&before, old_out);
	if (new && wanted.handler == (void *)SIG_IGN)
		local.has_pending[i] = false;
	return (int)ret;
}

struct sud_relay sud_relay_get(int signo)
{
	const struct other *o = &others[is_other(signo) ? signo : 0];

	return (struct sud_relay){ atomic_load_explicit(&o->handler, memory_order_relaxed),
				       o->masked_by, o->hidden, o->flags };
}

void sud_relay_put(int signo, const struct sud_relay *from)
{
	if (!is_other(signo))
		return;
	others[signo].masked_by = from->masked_by;
	others[signo].hidden = from->hidden;
	others[signo].flags = from->flags;
	atomic_store_explicit(&others[signo].handler, from->handler, memory_order_relaxed);
}

void sud_relay_set(int signo, struct sigaction *sa)
{
	uint64_t mask = sud_mask_from(&sa->sa_mask), hidden = mask & sud_unblockable();
	struct sud_relay o = sud_relay_get(signo);
	struct action a = { .handler = (void *)sa->sa_sigaction };
	bool relays = sud_is_virtual(SIGSYS) && has_handler(&a) && a.handler != (void *)relay &&
		      !sud_is_vforked();

	if (!is_other(signo) || (!hidden && !o.hidden && !relays))
		return;
	sud_mask_to(&sa->sa_mask, mask & ~hidden);
	o.masked_by = a.handler;
	o.hidden = hidden;
	if (relays) {
		o.handler = a.handler;
		o.flags = sa->sa_flags & RELAY_FLAGS;
		sa->sa_sigaction = relay;
		sa->sa_flags = (sa->sa_flags & ~RELAY_FLAGS) | SA_SIGINFO;
	}
	sud_relay_put(signo, &o);
}

void sud_relay_show(const struct sud_relay *o, struct sigaction *sa)
{
	if (sa->sa_sigaction == relay) {
		sa->sa_sigaction = (sud_handler *)o->handler;
		sa->sa_flags = (sa->sa_flags & ~RELAY_FLAGS) | o->flags;
	}
	if (o->hidden && o->masked_by == (void *)sa->sa_sigaction)
		sud_mask_to(&sa->sa_mask, sud_mask_from(&sa->sa_mask) | o->hidden);
}

bool sud_relays(void) { return sud_is_virtual(SIGSYS); }

static uint64_t changed_mask(int how, uint64_t before, uint64_t set)
{
	if (how == SIG_BLOCK)
		return before | set;
	return how == SIG_UNBLOCK ? before & ~set : set;
}

void sud_mask_changed(int how, uint64_t set)
{
	uint64_t *virtual = sud_virtual_mask(), before = *virtual;

	set = changed_mask(how, before, set & sud_unblockable());
	if (set == before || sud_is_vforked())
		return;
	*virtual = set;
	sud_local.enabled_mask = 0;
	for (int i = 0; i < 2; i++) {
		int signo = i ? SIGSYS : SIGSEGV;

		if (local.has_pending[i] && !(*virtual & BIT(signo))) {
			local.has_pending[i] = false;
			send_again(signo, &local.pending[i]);
		}
	}
}

uint64_t sud_pending(void)
{
	return (local.has_pending[0] ? BIT(SIGSEGV) : 0) | (local.has_pending[1] ? BIT(SIGSYS) : 0);
}

int sud_pending_get(uint64_t set, siginfo_t *out)
{
	for (int i = 0; i < 2; i++)
		if (local.has_pending[i] && (set & BIT(i ? SIGSYS : SIGSEGV))) {
			*out = local.pending[i];
			local.has_pending[i] = false;
			return i ? SIGSYS : SIGSEGV;
		}
	return 0;
}

void sud_jumped(bool restores_mask)
{
	if (base_unlikely(local.handlers)) {
		local.handlers = 0;
		if (restores_mask)
			*sud_virtual_mask() = local.outer_mask;
	}
	sud_local.is_enabling = sud_local.is_preceded = false;
	section_reset();
}

/* ---- exec -------------------------------------------------------------------------------- */

void signals_exec_mask(bool begin)
{
	static const int signals[] = { SIGSEGV, SIGSYS };
	uint64_t real = *sud_virtual_mask();

	for (int i = 0; i < 2; i++) {
		struct action ign = { .handler = (void *)SIG_IGN };

		if (!sud_is_virtual(signals[i]) ||
		    virtual_signals[i].program.handler != (void *)SIG_IGN)
			continue;
		if (begin)
			raw_action(signals[i], &ign, NULL);
		else
			set_ours(signals[i], &virtual_signals[i]);
	}
	if (real)
		sud_syscall(SYS_rt_sigprocmask, (long)(begin ? SIG_BLOCK : SIG_UNBLOCK), &real,
			    NULL, sizeof(real));
}
