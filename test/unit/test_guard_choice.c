/* SPDX-License-Identifier: BSD-3-Clause */
/* Which kind of guard is chosen, and why not a better one; what is left when arming fails. */
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

UNIT_TEST(without_userfaultfd_page_tables_are_moved)
{
	need_dispatch();
	check("auto", "SLUICE_FAULT=guard_uffd:all", "steal", "uffd: userfaultfd");
}

UNIT_TEST(without_moving_page_tables_memory_is_protected)
{
	need_dispatch();
	check("auto", "SLUICE_FAULT=guard_uffd:all,guard_steal:all", "mprotect", "steal: page tables");
}

UNIT_TEST(without_protection_of_system_calls_nothing_is_guarded)
{
	check("auto", "SLUICE_FAULT=guard_uffd:all,dispatch:all", "none", "mprotect: ");
	check("steal", "SLUICE_FAULT=dispatch:all", "none", "steal: ");
}

UNIT_TEST(a_kind_that_is_asked_for_is_not_replaced)
{
	check("uffd", "SLUICE_FAULT=guard_uffd:all", "none", "uffd: ");
	check("steal", "SLUICE_FAULT=guard_steal:all", "none", "steal: ");
	check("none", NULL, "none", "SLUICE_GUARD_KIND");
}

UNIT_TEST(without_threads_there_is_no_userfaultfd)
{
	check("uffd", "SLUICE_FAULT=guard_thread:2", "none", "uffd: ");
}

static void as_nobody(void *arg)
{
	(void)arg;
	if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		unit_skip("cannot become another user");
	if (guard_case_init("auto", NULL))
		unit_skip(guard_reason());
	/* where the machine lets everybody handle kernel faults, there is no reason */
	CHECK(!strcmp(guard_kind_name(), "uffd") || strstr(guard_reason(), "Operation not permitted") != NULL);
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

/* The n-th time: the choice of the kind has its turns first. */
UNIT_TEST(a_range_that_could_not_be_armed_is_the_programs)
{
	static struct failure all[] = {
		{ "mprotect", "SLUICE_FAULT=guard_arm:1" },
		{ "uffd", "SLUICE_FAULT=guard_arm:1" },
		{ "uffd", "SLUICE_FAULT=guard_uffd:3" },
		{ "uffd", "SLUICE_FAULT=guard_steal:2" },
		{ "steal", "SLUICE_FAULT=guard_steal:2" },
	};

	for (size_t i = 0; i < BASE_ARRAY_LEN(all); i++)
		CHECK_EQ(unit_fork(check_failure, &all[i]), 0);
}
