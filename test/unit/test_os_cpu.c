/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/os.h"
#include "unit.h"

UNIT_TEST(cpumask_is_the_affinity)
{
	struct os_cpumask mine, other = { { 0 } };
	cpu_set_t set;

	CHECK_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
	os_cpumask_self(&mine);
	CHECK_EQ(os_cpumask_count(&mine), CPU_COUNT(&set));
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		CHECK_EQ(mine.bits[cpu / 64] >> (cpu % 64) & 1, CPU_ISSET(cpu, &set) != 0);
	other.bits[OS_CPUMASK_WORDS - 1] = (uint64_t)1 << 63;
	os_cpumask_or(&other, &mine);
	os_cpumask_or(&other, &mine);
	CHECK_EQ(os_cpumask_count(&other), CPU_COUNT(&set) + 1);
}

UNIT_TEST(cpumasks_are_combined)
{
	struct os_cpumask m = { { 0xff } }, other = { { 0x0f } };

	m.bits[OS_CPUMASK_WORDS - 1] = 1;
	os_cpumask_remove(&m, &other);
	CHECK_EQ(m.bits[0], 0xf0);
	CHECK_EQ(os_cpumask_count(&m), 5);
	other.bits[0] = 0x30;
	os_cpumask_and(&m, &other);
	CHECK_EQ(m.bits[0], 0x30);
	CHECK_EQ(os_cpumask_count(&m), 2);
}

static void bind_to_one(void *arg)
{
	struct os_cpumask all, one = { { 0 } }, now;
	int word = 0;

	(void)arg;
	os_cpumask_self(&all);
	CHECK_EQ(os_cpumask_of(getpid(), &now), 0);
	CHECK(!memcmp(&now, &all, sizeof(now)));
	while (!all.bits[word])
		word++;
	one.bits[word] = all.bits[word] & -all.bits[word];
	CHECK_EQ(os_cpumask_apply(0, &one), 0);
	CHECK_EQ(os_cpumask_of(0, &now), 0);
	CHECK(!memcmp(&now, &one, sizeof(now)));
	CHECK_EQ(os_cpumask_apply(0, &(struct os_cpumask){ { 0 } }), -EINVAL);
	CHECK_EQ(os_cpumask_of(1 << 30, &now), -ESRCH);
}

UNIT_TEST(a_cpumask_is_applied_and_seen_from_outside) { CHECK_EQ(unit_fork(bind_to_one, NULL), 0); }

UNIT_TEST(nodes_have_cpus)
{
	struct os_cpumask all, sum = { { 0 } }, node;

	if (os_numa_node_cpus(0, &node))
		unit_skip("the system does not tell its memory nodes");
	for (int i = 0; i < os_numa_node_count(); i++)
		if (!os_numa_node_cpus(i, &node))
			os_cpumask_or(&sum, &node);
	os_cpumask_self(&all);
	os_cpumask_remove(&all, &sum);
	CHECK_EQ(os_cpumask_count(&all), 0); /* each CPU lies on a node */
	CHECK_EQ(os_numa_node_cpus(1 << 20, &node), -ENOENT);
}

UNIT_TEST(caches_are_ordered)
{
	CHECK_EQ(os_page_check(), 0);
	CHECK_EQ(os_llc_bytes(), os_llc_bytes());
	if (!os_llc_bytes() || !os_l2_bytes())
		unit_skip("the system does not tell its caches");
	CHECK(os_llc_bytes() >= os_l2_bytes());
	CHECK(os_l2_bytes() >= 64 << 10);
}

UNIT_TEST(pages_lie_on_a_node_that_exists)
{
	uint64_t bytes = 4 * OS_PAGE;
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int preferred, node;

	CHECK(p != MAP_FAILED);
	CHECK(os_numa_node_count() >= 1);
	preferred = os_prefer_node(p, bytes, 0);
	memset(p, 1, bytes);
	node = os_page_node(p + 5);
	munmap(p, bytes);
	/* containers may forbid both calls */
	CHECK(preferred == 0 || preferred == -EPERM || preferred == -ENOSYS);
	CHECK(node < os_numa_node_count());
	CHECK(node >= 0 || node == -EPERM || node == -ENOSYS);
	CHECK_EQ(os_prefer_node(p, bytes, -1), -EINVAL);
	CHECK_EQ(os_prefer_node(p, bytes, 1 << 20), -EINVAL);
}

UNIT_TEST(modes_of_floating_point_arithmetic_hold_until_they_are_restored)
{
	uint32_t start = __builtin_ia32_stmxcsr(), before;
	volatile double tiny = 0x1p-1060, tie = 0x1p-53;

	__builtin_ia32_ldmxcsr((start & ~0xe0bfu) | 0x40); /* subnormals are zero; no flags */
	CHECK_EQ(os_float_modes(), 0x40);
	before = os_float_modes_set(0x4000); /* upwards */
	CHECK(tiny + tiny > 0);
	CHECK(1 + tie > 1);
	CHECK_EQ(os_float_modes_set(before), 0x4000);
	CHECK(tiny + tiny == 0);
	CHECK(1 + tie == 1);
	CHECK(__builtin_ia32_stmxcsr() & 0x20); /* inexact: flags survive */
	__builtin_ia32_ldmxcsr(start);
}
