/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/host.h"
#include "unit.h"

UNIT_TEST(cpumask_is_the_affinity)
{
	struct host_cpumask mine, other = { { 0 } };
	cpu_set_t set;

	CHECK_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
	host_cpumask_self(&mine);
	CHECK_EQ(host_cpumask_count(&mine), CPU_COUNT(&set));
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		CHECK_EQ(mine.bits[cpu / 64] >> (cpu % 64) & 1, CPU_ISSET(cpu, &set) != 0);
	other.bits[HOST_CPUMASK_WORDS - 1] = (uint64_t)1 << 63;
	host_cpumask_or(&other, &mine);
	host_cpumask_or(&other, &mine);
	CHECK_EQ(host_cpumask_count(&other), CPU_COUNT(&set) + 1);
}

UNIT_TEST(cpumasks_are_combined)
{
	struct host_cpumask m = { { 0xff } }, other = { { 0x0f } };

	m.bits[HOST_CPUMASK_WORDS - 1] = 1;
	host_cpumask_remove(&m, &other);
	CHECK_EQ(m.bits[0], 0xf0);
	CHECK_EQ(host_cpumask_count(&m), 5);
	other.bits[0] = 0x30;
	host_cpumask_and(&m, &other);
	CHECK_EQ(m.bits[0], 0x30);
	CHECK_EQ(host_cpumask_count(&m), 2);
}

static void bind_to_one(void *arg)
{
	struct host_cpumask all, one = { { 0 } }, now;
	int word = 0;

	(void)arg;
	host_cpumask_self(&all);
	CHECK_EQ(host_cpumask_of(getpid(), &now), 0);
	CHECK(!memcmp(&now, &all, sizeof(now)));
	while (!all.bits[word])
		word++;
	one.bits[word] = all.bits[word] & -all.bits[word];
	CHECK_EQ(host_cpumask_apply(&one), 0);
	CHECK_EQ(host_cpumask_of(0, &now), 0);
	CHECK(!memcmp(&now, &one, sizeof(now)));
	CHECK_EQ(host_cpumask_apply(&(struct host_cpumask){ { 0 } }), -EINVAL);
	CHECK_EQ(host_cpumask_of(1 << 30, &now), -ESRCH);
}

UNIT_TEST(a_cpumask_is_applied_and_seen_from_outside) { CHECK_EQ(unit_fork(bind_to_one, NULL), 0); }

UNIT_TEST(nodes_have_cpus)
{
	struct host_cpumask all, sum = { { 0 } }, node;

	if (host_numa_node_cpus(0, &node))
		unit_skip("the system does not tell its memory nodes");
	for (int i = 0; i < host_numa_node_count(); i++)
		if (!host_numa_node_cpus(i, &node))
			host_cpumask_or(&sum, &node);
	host_cpumask_self(&all);
	host_cpumask_remove(&all, &sum);
	CHECK_EQ(host_cpumask_count(&all), 0); /* each CPU lies on a node */
	CHECK_EQ(host_numa_node_cpus(1 << 20, &node), -ENOENT);
}

UNIT_TEST(caches_are_ordered)
{
	CHECK_EQ(host_page_check(), 0);
	CHECK_EQ(host_llc_bytes(), host_llc_bytes());
	if (!host_llc_bytes() || !host_l2_bytes())
		unit_skip("the system does not tell its caches");
	CHECK(host_llc_bytes() >= host_l2_bytes());
	CHECK(host_l2_bytes() >= 64 << 10);
}

UNIT_TEST(pages_lie_on_a_node_that_exists)
{
	uint64_t bytes = 4 * HOST_PAGE;
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int preferred, node;

	CHECK(p != MAP_FAILED);
	CHECK(host_numa_node_count() >= 1);
	preferred = host_prefer_node(p, bytes, 0);
	memset(p, 1, bytes);
	node = host_page_node(p + 5);
	munmap(p, bytes);
	/* containers may forbid both calls */
	CHECK(preferred == 0 || preferred == -EPERM || preferred == -ENOSYS);
	CHECK(node < host_numa_node_count());
	CHECK(node >= 0 || node == -EPERM || node == -ENOSYS);
	CHECK_EQ(host_prefer_node(p, bytes, -1), -EINVAL);
	CHECK_EQ(host_prefer_node(p, bytes, 1 << 20), -EINVAL);
}
