/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/os.h"
#include "unit.h"

static bool cgroup_is(const char *text, const char *controller, const char *wanted)
{
	size_t len = 0;
	const char *found = os_cgroup_of(text, controller, &len);

	return wanted ? found && len == strlen(wanted) && !strncmp(found, wanted, len) : !found;
}

UNIT_TEST(cgroups_are_found_by_their_controller)
{
	static const char v1[] = "12:cpuset:/set\n11:cpu,cpuacct:/docker/ab\n1:name=x:/init\n",
			  hybrid[] = "4:cpuacct,cpu:/a:b/c\n0::/user.slice\n", v2[] = "0::/\n";

	CHECK(cgroup_is(v1, "cpu", "/docker/ab"));
	CHECK(cgroup_is(v1, "cpuacct", "/docker/ab"));
	CHECK(cgroup_is(v1, "", NULL));
	CHECK(cgroup_is(hybrid, "cpu", "/a:b/c"));
	CHECK(cgroup_is(hybrid, "", "/user.slice"));
	CHECK(cgroup_is(v2, "", "/"));
	CHECK(cgroup_is(v2, "cpu", NULL));
	CHECK(cgroup_is("12:cpuset", "cpuset", NULL));
	CHECK(cgroup_is("", "", NULL));
}

static void write_file(const char *folder, const char *name, const char *text)
{
	char path[96];
	int fd;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

UNIT_TEST(a_cgroup_limits_memory_by_either_version)
{
	static const char *const names[] = { "memory.max", "memory.high", "memory.limit_in_bytes" };
	char folder[] = "/tmp/sluice-cgroup-XXXXXX", path[96];

	CHECK(mkdtemp(folder));
	CHECK(os_memory_limit_in(folder) == UINT64_MAX);
	write_file(folder, "memory.max", "max\n");
	write_file(folder, "memory.high", "max\n");
	CHECK(os_memory_limit_in(folder) == UINT64_MAX);
	write_file(folder, "memory.max", "1073741824\n");
	CHECK_EQ(os_memory_limit_in(folder), 1073741824);
	write_file(folder, "memory.high", "536870912\n");
	CHECK_EQ(os_memory_limit_in(folder), 536870912);
	write_file(folder, "memory.limit_in_bytes", "268435456\n");
	CHECK_EQ(os_memory_limit_in(folder), 268435456);
	for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
		snprintf(path, sizeof path, "%s/%s", folder, names[i]);
		unlink(path);
	}
	rmdir(folder);
}

static uint64_t levels;
static uint64_t count_levels(const char *folder)
{
	struct stat st;

	levels += !stat(folder, &st);
	return !strcmp(folder, "/sys/fs/cgroup") ? 7 : UINT64_MAX;
}

UNIT_TEST(the_least_value_of_all_levels_counts)
{
	if (access("/proc/self/cgroup", R_OK) || access("/sys/fs/cgroup", X_OK))
		unit_skip("no cgroups are mounted here");
	os_cgroup_least("memory", count_levels);
	CHECK(levels >= 1);
}

UNIT_TEST(a_rank_has_a_share_of_the_memory)
{
	uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * OS_PAGE, share = os_memory_share_bytes();

	CHECK(share >= 1 && share <= all);
	CHECK_EQ(os_memory_share_bytes(), share);
}
