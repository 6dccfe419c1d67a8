/* SPDX-License-Identifier: BSD-3-Clause */
/* Which libraries make memory that the CPU may not read suspicious: copies of a small library of
 * the C library's under the names of others. */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/os.h"
#include "unit.h"

static void load_as(const char *name)
{
	char folder[] = "/tmp/sluice-device.XXXXXX", path[128];
	void *small = dlopen("libutil.so.1", RTLD_NOW);
	struct link_map *map;
	struct stat st;
	int from, to;

	CHECK(small && !dlinfo(small, RTLD_DI_LINKMAP, &map) && mkdtemp(folder));
	snprintf(path, sizeof path, "%s/%s", folder, name);
	from = open(map->l_name, O_RDONLY);
	to = open(path, O_WRONLY | O_CREAT, 0700);
	CHECK(!fstat(from, &st) && sendfile(to, from, NULL, (size_t)st.st_size) == st.st_size);
	close(from);
	close(to);
	CHECK(dlopen(path, RTLD_NOW));
	unlink(path);
	rmdir(folder);
}

static bool suspects(void)
{
	static void *unreadable;

	if (!unreadable)
		unreadable = mmap(NULL, OS_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return os_is_device_memory(unreadable, OS_PAGE);
}

/* hwloc and UCX link these on machines without a device. */
static void load_linked_ones(void *arg)
{
	bool has_device = !access("/dev/kfd", F_OK) || !access("/dev/dxg", F_OK);

	(void)arg;
	CHECK(!suspects());
	load_as("libze_loader.so.1");
	CHECK(!suspects());
	load_as("libhsa-runtime64.so.1");
	CHECK_EQ(suspects(), has_device);
	CHECK(!os_gpu_is_loaded());
}

UNIT_TEST(a_runtime_that_is_only_linked_makes_no_memory_suspicious)
{
	CHECK_EQ(unit_fork(load_linked_ones, NULL), 0);
}

static void load_driver(void *name)
{
	load_as(name);
	CHECK(suspects());
	CHECK(!os_gpu_is_loaded()); /* none of its functions is there */
}

UNIT_TEST(a_driver_makes_memory_suspicious)
{
	CHECK_EQ(unit_fork(load_driver, (void *)"libze_intel_gpu.so.1"), 0);
	CHECK_EQ(unit_fork(load_driver, (void *)"libcuda.so.1"), 0);
}
