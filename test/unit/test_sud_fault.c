/* SPDX-License-Identifier: BSD-3-Clause */
/* SIGSEGV of the program's own errors, in a process that guards memory. */
#include <setjmp.h>
#include <sys/resource.h>

#include "guard_case.h"

enum { PAGES = 300, AT = 3 };

static sigjmp_buf back;
static void *volatile seen_addr;
static volatile int seen_code, seen_signals;

static void jump_out(int signo, siginfo_t *si, void *ucontext)
{
	(void)signo;
	(void)ucontext;
	seen_addr = si->si_addr;
	seen_code = si->si_code;
	seen_signals++;
	siglongjmp(back, 1);
}

static void install(void)
{
	struct sigaction a = { .sa_sigaction = jump_out, .sa_flags = SA_SIGINFO };

	CHECK_EQ(sigaction(SIGSEGV, &a, NULL), 0);
}

/* The program's handler gets the program's error. */
static void check_refused(char *at, bool write, int code)
{
	seen_signals = 0;
	if (!sigsetjmp(back, 1)) {
		if (write)
			store(at, 1);
		else
			load(at);
	}
	CHECK_EQ(seen_signals, 1);
	CHECK(seen_addr == at);
	CHECK_EQ(seen_code, code);
}

GUARD_TEST_AFTER(an_error_of_the_program_reaches_its_handler, install)
{
	char *none = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static struct owner o;

	owner_open(&o, PAGES, AT);
	for (int i = 0; i < 3; i++) {
		owner_arm(&o, 0, PAGES, GUARD_NO_ACCESS);
		check_refused(none + 5, i & 1, SEGV_ACCERR);
		check_refused((char *)8, false, SEGV_MAPERR);
		CHECK(guard_is_armed(&o.r));
		/* having jumped out of a handler has left nothing blocked */
		CHECK_EQ(load(o.p + PAGE), owner_byte(PAGE));
		check_refused(none + 5, true, SEGV_ACCERR);
		CHECK_OWNER(&o, 0, PAGES);
		owner_settle(&o);
	}
}

/* Where memory was guarded once, an error is still an error. */
GUARD_TEST_AFTER(an_error_at_an_address_that_was_guarded, install)
{
	static struct owner o, other;

	owner_open(&o, PAGES, AT);
	owner_open(&other, PAGES, AT);
	for (int i = 0; i < 3; i++) {
		owner_arm(&o, 0, PAGES, GUARD_NO_ACCESS);
		owner_arm(&other, 0, PAGES, GUARD_NO_ACCESS);
		owner_finish(&o);
		CHECK(owner_release_all(&o));
		CHECK_EQ(mprotect(o.p + 7 * PAGE, PAGE, PROT_READ), 0);
		CHECK_EQ(load(o.p + 7 * PAGE), owner_byte(7 * PAGE));
		check_refused(o.p + 7 * PAGE + 3, true, SEGV_ACCERR);
		check_refused(o.p + 7 * PAGE + 3, true, SEGV_ACCERR);
		CHECK_EQ(mprotect(o.p + 7 * PAGE, PAGE, PROT_READ | PROT_WRITE), 0);
		store(o.p + 7 * PAGE, 1);
		CHECK_EQ(o.touches, 0);
		CHECK(owner_release_all(&other));
	}
}

GUARD_TEST_AFTER(a_sent_signal_reaches_the_programs_handler, install)
{
	static struct owner o;

	owner_open(&o, PAGES, AT);
	owner_arm(&o, 0, PAGES, GUARD_NO_ACCESS);
	seen_signals = 0;
	if (!sigsetjmp(back, 1))
		raise(SIGSEGV);
	CHECK_EQ(seen_signals, 1);
	CHECK_EQ(seen_code, SI_TKILL);
	CHECK_EQ(load(o.p), owner_byte(0));
}

/* The default action: the process ends by this signal. */
static void die(void)
{
	struct rlimit none = { 0, 0 };
	static struct owner o;

	setrlimit(RLIMIT_CORE, &none);
	owner_open(&o, PAGES, AT);
	owner_arm(&o, 0, PAGES, GUARD_NO_ACCESS);
	CHECK_EQ(load(o.p), owner_byte(0));
	store((char *)16, 1);
	_exit(1);
}

UNIT_TEST(an_error_that_nobody_handles_kills_uffd) { guard_case_dies("uffd", die); }
UNIT_TEST(an_error_that_nobody_handles_kills_mremap) { guard_case_dies("mremap", die); }
UNIT_TEST(an_error_that_nobody_handles_kills_mprotect) { guard_case_dies("mprotect", die); }

static volatile unsigned char in_handler;
static struct owner *handled;

static void touch_in_handler(int signo)
{
	(void)signo;
	in_handler = load(handled->p + 9 * PAGE);
}

GUARD_TEST(a_handler_of_the_program_touches)
{
	struct sigaction a = { .sa_handler = touch_in_handler, .sa_flags = SA_ONSTACK };
	stack_t stack = { .ss_size = 64 << 10 };
	static struct owner o;

	stack.ss_sp = mmap(NULL, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			   -1, 0);
	CHECK_EQ(sigaltstack(&stack, NULL), 0);
	CHECK_EQ(sigaction(SIGUSR1, &a, NULL), 0);
	handled = &o;
	owner_open(&o, PAGES, AT);
	for (int i = 0; i < 3; i++) {
		owner_arm(&o, 0, PAGES, GUARD_NO_ACCESS);
		in_handler = 0;
		raise(SIGUSR1);
		CHECK_EQ(in_handler, owner_byte(9 * PAGE));
		CHECK_EQ(o.touches, i + 1);
		CHECK_OWNER(&o, 0, PAGES);
		owner_settle(&o);
	}
}

GUARD_TEST(errno_survives_a_touch)
{
	volatile int *error = &errno;
	static struct owner o;

	owner_open(&o, PAGES, AT);
	owner_arm(&o, 0, PAGES, GUARD_NO_ACCESS);
	*error = EXDEV;
	load(o.p);
	CHECK_EQ(*error, EXDEV);
}
