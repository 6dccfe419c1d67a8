/* SPDX-License-Identifier: BSD-3-Clause */
/* Which kind of guard is chosen, with the reason; and the state after arming has failed. */
#include <dlfcn.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guard_case.h"

enum { PAGES = 200, AT = 290 };

struct chosen { const char *kind, *more, *expect, *reason; };

static void check_chosen(void *arg)
{
	const struct chosen *c = arg;
	static struct owner o;

	CHECK_EQ(guard_case_init(c->kind, c->more) == 0, strcmp(c->expect, "none") != 0);
	CHECK_STR(guard_kind_name(), c->expect);
	CHECK_HAS(guard_reason(), c->reason);
	CHECK_EQ(guard_is_ready(), strcmp(c->expect, "none") != 0);
	if (!guard_is_ready())
		return;
	owner_open(&o, PAGES, AT);
	owner_arm(&o, 0, PAGES, GUARD_NO_ACCESS);
	CHECK_EQ(load(o.p), owner_byte(0));
	CHECK_OWNER(&o, 0, PAGES);
}

static void check(const char *kind, const char *more, const char *expect, const char *reason)
{
	struct chosen c = { kind, more, expect, reason };

	CHECK_EQ(unit_fork(check_chosen, &c), 0);
}

static void try_dispatch(void *arg)
{
	(void)arg;
	_exit(guard_case_init("mprotect", NULL) ? 1 : 0);
}

static void need_dispatch(void)
{
	if (unit_fork(try_dispatch, NULL))
		unit_skip("no Syscall User Dispatch");
}

UNIT_TEST(page_tables_are_moved_where_signals_work)
{
	need_dispatch();
	check("auto", NULL, "mremap", "");
	check("auto", "SLUICE_TEST=fault=guard_uffd:all", "mremap", "");
}

struct traced { const char *kind; bool is_ready; };

/* The parent is the debugger. Nothing stops this process: it gets no signal. */
static void check_traced(void *arg)
{
	const struct traced *t = arg;

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		return; /* a debugger is here already */
	CHECK_EQ(guard_case_init(t->kind, NULL), 0);
	CHECK_EQ(guard_is_ready(), t->is_ready);
}

UNIT_TEST(memory_of_a_program_in_a_debugger_is_not_closed)
{
	struct traced by_default = { "auto", false }, by_wish = { "mprotect", true };

	need_dispatch();
	CHECK_EQ(unit_fork(check_traced, &by_default), 0);
	CHECK_EQ(unit_fork(check_traced, &by_wish), 0);
}

static void try_uffd(void *arg)
{
	(void)arg;
	_exit(guard_case_init("uffd", NULL) ? 1 : 0);
}

static void need_uffd(void)
{
	if (unit_fork(try_uffd, NULL))
		unit_skip("no userfaultfd for faults in the kernel");
}

UNIT_TEST(without_protection_of_system_calls_there_may_be_userfaultfd)
{
	need_uffd();
	check("auto", "SLUICE_TEST=fault=dispatch:all", "uffd", "mremap: ");
}

UNIT_TEST(without_moving_page_tables_memory_is_protected)
{
	need_dispatch();
	check("auto", "SLUICE_TEST=fault=guard_uffd:all,guard_mremap:all", "mprotect",
	      "mremap: page tables");
}

static void check_with_go(void *arg)
{
	char path[512] = "";
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 16);

	CHECK(n > 0);
	strcpy(strrchr(path, '/'), "/libgo.so");
	CHECK(dlopen(path, RTLD_NOW | RTLD_LOCAL));
	check_chosen(arg);
}

/* Its runtime blocks and unblocks signals where nobody sees it. */
UNIT_TEST(with_a_runtime_of_go_no_signals_are_used)
{
	struct chosen c = { "auto", "SLUICE_TEST=fault=guard_uffd:all", "none", "Go's runtime" };

	need_dispatch();
	CHECK_EQ(unit_fork(check_with_go, &c), 0);
}

UNIT_TEST(with_a_runtime_of_go_there_may_be_userfaultfd)
{
	struct chosen c = { "auto", NULL, "uffd", "mremap: Go's runtime" };

	need_uffd();
	CHECK_EQ(unit_fork(check_with_go, &c), 0);
}

UNIT_TEST(without_protection_of_system_calls_nothing_is_guarded)
{
	check("auto", "SLUICE_TEST=fault=guard_uffd:all,dispatch:all", "none", "mprotect: ");
	check("mremap", "SLUICE_TEST=fault=dispatch:all", "none", "mremap: ");
}

UNIT_TEST(a_kind_that_is_asked_for_is_not_replaced)
{
	check("uffd", "SLUICE_TEST=fault=guard_uffd:all", "none", "uffd: ");
	check("mremap", "SLUICE_TEST=fault=guard_mremap:all", "none", "mremap: ");
	check("none", NULL, "none", "SLUICE_GUARD_KIND");
}

UNIT_TEST(without_threads_there_is_no_userfaultfd)
{
	check("uffd", "SLUICE_TEST=fault=guard_thread:2", "none", "uffd: ");
}

static void as_nobody(void *arg)
{
	(void)arg;
	if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		unit_skip("cannot become another user");
	if (guard_case_init("auto", NULL))
		unit_skip(guard_reason());
	check_chosen(&(struct chosen){ "auto", NULL, guard_kind_name(), "" });
}

UNIT_TEST(users_without_privileges_have_a_guard) { CHECK_EQ(unit_fork(as_nobody, NULL), 0); }

struct failure { const char *kind, *more; };

static void check_failure(void *arg)
{
	const struct failure *f = arg;
	static struct owner o;
	int maps;

	if (guard_case_init(f->kind, f->more))
		unit_skip(guard_reason());
	owner_open(&o, PAGES, AT);
	maps = guard_case_mappings();
	o.r.start = (uintptr_t)o.p;
	o.r.end = o.r.start + PAGES * PAGE;
	CHECK_EQ(guard_arm(&o.r), -ENOMEM);
	CHECK(!guard_is_armed(&o.r));
	CHECK(guard_lo >= guard_hi);
	CHECK_EQ(guard_case_mappings(), maps);
	for (size_t i = 0; i < PAGES; i++)
		CHECK_EQ(load(o.p + i * PAGE), 0xEE);
	store(o.p, 5);
	CHECK_EQ(o.arena[0], 5);
	CHECK_EQ(o.touches, 0);
	/* and the next one works */
	owner_arm(&o, 0, PAGES, GUARD_NO_ACCESS);
	CHECK_EQ(load(o.p), owner_byte(0));
}

/* Fails the n-th time, as the trials of guard_init() count too. */
UNIT_TEST(a_range_that_could_not_be_armed_is_the_programs)
{
	static struct failure all[] = {
		{ "mprotect", "SLUICE_TEST=fault=guard_arm:1" },
		{ "uffd", "SLUICE_TEST=fault=guard_arm:1" },
		{ "uffd", "SLUICE_TEST=fault=guard_uffd:3" },
		{ "uffd", "SLUICE_TEST=fault=guard_mremap:2" },
		{ "mremap", "SLUICE_TEST=fault=guard_mremap:2" },
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(all); i++)
		CHECK_EQ(unit_fork(check_failure, &all[i]), 0);
}

/* ---- from mremap to uffd ----------------------------------------------------------------- */

enum { ROUNDS = 200, WAITS = 20000 }; /* more than enough */

/* Arms a range, makes so many system calls, touches the range. */
static void guard_once(struct owner *o, int calls)
{
	owner_arm(o, 0, PAGES, GUARD_NO_ACCESS);
	for (int i = 0; i < calls; i++)
		syscall(SYS_getppid);
	CHECK_EQ(load(o->p + PAGE), owner_byte(PAGE));
	owner_settle(o);
}

static void begin_with_mremap(struct owner *o)
{
	CHECK_EQ(guard_case_init("auto", NULL), 0);
	CHECK_STR(guard_kind_name(), "mremap");
	owner_open(o, PAGES, AT);
}

static void make_many_calls(void *arg)
{
	static struct owner o, other;
	const int *calls = arg;

	begin_with_mremap(&o);
	owner_open(&other, PAGES, AT);
	owner_arm(&other, 0, PAGES, GUARD_NO_ACCESS);
	for (int i = 0; i < ROUNDS; i++) {
		CHECK(guard_is_ready());
		guard_once(&o, *calls);
	}
	CHECK_STR(guard_kind_name(), "mremap"); /* while anything is closed */
	CHECK_OWNER(&other, 0, PAGES);
	owner_settle(&other);
	for (int i = 0; i < ROUNDS; i++) {
		CHECK(guard_is_ready());
		guard_once(&o, *calls);
	}
	CHECK_STR(guard_kind_name(), *calls > 1 ? "uffd" : "mremap");
	CHECK_OWNER(&o, 0, PAGES);
}

UNIT_TEST(a_program_that_makes_many_system_calls_has_its_faults_served_by_threads)
{
	need_dispatch();
	need_uffd();
	CHECK_EQ(unit_fork(make_many_calls, &(int){ 50 }), 0);
	CHECK_EQ(unit_fork(make_many_calls, &(int){ 1 }), 0);
}

static int raw_thread(void *arg)
{
	while (!atomic_load((_Atomic int *)arg))
		syscall(SYS_sched_yield);
	syscall(SYS_exit, 0);
	return 0;
}

static void have_a_thread_that_nobody_told_us_of(void *arg)
{
	static char stack[64 << 10] __attribute__((aligned(16)));
	static _Atomic int end;
	static struct owner o;
	int waits = 0;

	(void)arg;
	begin_with_mremap(&o);
	CHECK(guard_is_ready());
	CHECK(clone(raw_thread, stack + sizeof stack,
		    CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
			    CLONE_SYSVSEM,
		    &end) > 0);
	CHECK(!guard_is_ready()); /* it may only be slow to answer */
	CHECK_STR(guard_kind_name(), "mremap");
	while (!guard_is_ready() && waits++ < WAITS)
		usleep(1000);
	CHECK_STR(guard_kind_name(), "uffd");
	guard_once(&o, 1);
	atomic_store(&end, 1);
}

UNIT_TEST(a_thread_out_of_reach_of_signals_has_its_faults_served_by_threads)
{
	need_dispatch();
	need_uffd();
	CHECK_EQ(unit_fork(have_a_thread_that_nobody_told_us_of, NULL), 0);
}

static void finish_with_both(void *arg)
{
	static struct owner o;

	(void)arg;
	begin_with_mremap(&o);
	guard_once(&o, 0);
	guard_fini();
	CHECK_STR(guard_kind_name(), "none");
	CHECK_EQ(guard_case_init("auto", NULL), 0);
	guard_once(&o, 0);
}

UNIT_TEST(after_the_end_all_begins_anew)
{
	need_dispatch();
	CHECK_EQ(unit_fork(finish_with_both, NULL), 0);
}
