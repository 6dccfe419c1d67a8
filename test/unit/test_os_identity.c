/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/os.h"
#include "unit.h"

UNIT_TEST(node_id_is_stable_and_can_be_named)
{
	uint64_t real;

	base_opt.node_name = "";
	real = os_node_id();
	CHECK(real == os_node_id());
	base_opt.node_name = "left";
	uint64_t left = os_node_id();
	base_opt.node_name = "right";
	uint64_t right = os_node_id();
	base_opt.node_name = "";
	CHECK(left != right && left != real && right != real);
	CHECK(real == os_node_id());
}

static void compare_node(void *arg)
{
	CHECK(os_node_id() == *(uint64_t *)arg);
}

UNIT_TEST(node_id_is_the_same_in_a_child)
{
	uint64_t id = os_node_id();

	CHECK_EQ(unit_fork(compare_node, &id), 0);
}

UNIT_TEST(process_start_tells_processes_apart)
{
	uint64_t mine = os_process_start(getpid());
	pid_t pid;

	CHECK(mine > 0);
	CHECK(mine == os_process_start(getpid()));
	pid = fork();
	if (!pid)
		_exit(0);
	CHECK(pid > 0);
	/* a zombie counts as dead */
	siginfo_t info;
	waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
	CHECK_EQ(os_process_start(pid), 0);
	waitpid(pid, NULL, 0);
	CHECK_EQ(os_process_start(pid), 0);
	CHECK_EQ(os_process_start(-1), 0);
}

static void start_in_namespace(void *arg)
{
	CHECK_EQ(os_process_start(getpid()), 0);
	CHECK_EQ(os_process_start(*(int *)arg), 0);
}

static void enter_namespace(void *arg)
{
	if (!unshare(CLONE_NEWUSER | CLONE_NEWPID))
		CHECK_EQ(unit_fork(start_in_namespace, arg), 0);
}

/* There /proc has other processes under the numbers of a new pid namespace. */
UNIT_TEST(process_start_is_unknown_where_proc_is_another_namespaces)
{
	int pid = getpid();

	CHECK_EQ(unit_fork(enter_namespace, &pid), 0);
}

UNIT_TEST(process_start_survives_a_nasty_name)
{
	uint64_t before = os_process_start(getpid());
	char name[17] = "";

	prctl(PR_GET_NAME, name);
	prctl(PR_SET_NAME, ") Z 1 2) (");
	uint64_t after = os_process_start(getpid());
	prctl(PR_SET_NAME, name);
	CHECK(after == before);
}

UNIT_TEST(random_numbers_differ)
{
	uint64_t a = os_random_u64(), b = os_random_u64();

	CHECK(a != b);
}

#define NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })

static int inside_the_loader(struct dl_phdr_info *info, size_t size, void *arg)
{
	*(int *)arg = os_object_is_named((void *)(uintptr_t)getpid, NAMES("libc."));
	return 1;
}

UNIT_TEST(the_object_that_holds_an_address_is_known_by_its_name)
{
	const void *in_libc = dlsym(RTLD_DEFAULT, "getppid");
	const void *own = (void *)(uintptr_t)inside_the_loader;
	int result = 0, local;

	CHECK_EQ(os_object_is_named(in_libc, NAMES("libm.", "libc.")), 1);
	CHECK_EQ(os_object_is_named(in_libc, NAMES("libm.", "ibc.", "/")), 0);
	CHECK_EQ(os_object_is_named(own, NAMES("libc.", "libm.")), 0);
	CHECK_EQ(os_object_is_named(&local, NAMES("")), 0);
	CHECK_EQ(os_objects_visit(inside_the_loader, &result), 1);
	CHECK_EQ(result, -EBUSY);
	CHECK_EQ(os_object_is_named(in_libc, NAMES("libc.")), 1);
}

UNIT_TEST(call_sites_are_remembered)
{
	const void *own = (void *)(uintptr_t)inside_the_loader;

	CHECK_EQ(os_is_host_mpi(own, false), -ENOENT);
	CHECK_EQ(os_is_host_mpi(own, true), 0);
	CHECK_EQ(os_is_host_mpi(own, false), 0);
}

static int other_parent(void) { return -5; }

static int has_own(struct dl_phdr_info *info, size_t size, void *arg)
{
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return 1 + os_has_import(arg, info->dlpi_addr,
						 (void *)(info->dlpi_addr +
							  info->dlpi_phdr[i].p_vaddr));
	return 0;
}

static int replace_own(struct dl_phdr_info *info, size_t size, void *arg)
{
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return os_replace_import(arg, info->dlpi_addr,
						 (void *)(info->dlpi_addr +
							  info->dlpi_phdr[i].p_vaddr));
	return 0;
}

/* The executable comes first; nothing has called the function before, so its entry is unbound. */
static int replace_in_executable(struct dl_phdr_info *info, size_t size, void *arg)
{
	return replace_own(info, size, arg) ? 1 : 2;
}

UNIT_TEST(an_import_of_one_library_is_replaced)
{
	struct os_import none = { "no_such_function", (void *)other_parent, (void *)getpid };
	struct os_import import = { "getpgrp", (void *)other_parent, NULL };
	pid_t own = getpgid(0);

	CHECK_EQ(os_objects_visit(has_own, (void *)(uintptr_t)none.name), 1);
	CHECK_EQ(os_objects_visit(has_own, (void *)(uintptr_t)import.name), 2);
	CHECK_EQ(os_objects_visit(replace_in_executable, &none), 2);
	import.next = dlsym(RTLD_NEXT, import.name);
	CHECK_EQ(os_objects_visit(replace_in_executable, &import), 1);
	CHECK_EQ(getpgrp(), -5);
	CHECK_EQ(((int (*)(void))import.next)(), own);
	CHECK_EQ(((int (*)(void))dlsym(RTLD_DEFAULT, "getpgrp"))(), own);
}
