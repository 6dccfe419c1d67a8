/* SPDX-License-Identifier: BSD-3-Clause */
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/host.h"
#include "unit.h"

UNIT_TEST(node_id_is_stable_and_can_be_named)
{
	uint64_t real;

	base_opt.node_name = "";
	real = host_node_id();
	CHECK(real == host_node_id());
	base_opt.node_name = "left";
	uint64_t left = host_node_id();
	base_opt.node_name = "right";
	uint64_t right = host_node_id();
	base_opt.node_name = "";
	CHECK(left != right && left != real && right != real);
	CHECK(real == host_node_id());
}

static void compare_node(void *arg)
{
	CHECK(host_node_id() == *(uint64_t *)arg);
}

UNIT_TEST(node_id_is_the_same_in_a_child)
{
	uint64_t id = host_node_id();

	CHECK_EQ(unit_fork(compare_node, &id), 0);
}

UNIT_TEST(process_start_tells_processes_apart)
{
	uint64_t mine = host_process_start(getpid());
	pid_t pid;

	CHECK(mine > 0);
	CHECK(mine == host_process_start(getpid()));
	pid = fork();
	if (!pid)
		_exit(0);
	CHECK(pid > 0);
	/* a zombie counts as gone */
	siginfo_t info;
	waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
	CHECK_EQ(host_process_start(pid), 0);
	waitpid(pid, NULL, 0);
	CHECK_EQ(host_process_start(pid), 0);
	CHECK_EQ(host_process_start(-1), 0);
}

UNIT_TEST(process_start_survives_a_nasty_name)
{
	uint64_t before = host_process_start(getpid());
	char name[17] = "";

	prctl(PR_GET_NAME, name);
	prctl(PR_SET_NAME, ") Z 1 2) (");
	uint64_t after = host_process_start(getpid());
	prctl(PR_SET_NAME, name);
	CHECK(after == before);
}

UNIT_TEST(random_numbers_differ)
{
	uint64_t a = host_random_u64(), b = host_random_u64();

	CHECK(a != b);
}
