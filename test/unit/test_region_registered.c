/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the program registers with CUDA, over a libcuda.so.1 of the tests. */
#include <dlfcn.h>
#include <sys/wait.h>

#include "region_case.h"

enum { BYTES = 1 << 20 };

static struct {
	int (*init)(unsigned);
	int (*add)(void *, size_t, unsigned);
	int (*remove)(void *);
	int (*gpu_read)(void *);
	unsigned *asked;
} cuda;

static void *find(void *driver, const char *name)
{
	void *at = dlsym(driver, name);

	CHECK(at);
	return at;
}

/* Loads the driver, which lies beside the test program. */
static void load(void)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);
	void *driver, *at[4];

	CHECK(n > 0);
	while (path[n - 1] != '/')
		n--;
	strcpy(path + n, "libcuda.so.1");
	driver = dlopen(path, RTLD_NOW);
	CHECK(driver);
	at[0] = find(driver, "cuInit");
	at[1] = find(driver, "cuMemHostRegister");
	at[2] = find(driver, "cuMemHostUnregister");
	at[3] = find(driver, "fake_gpu_read");
	memcpy(&cuda, at, sizeof at);
	cuda.asked = find(driver, "fake_cuda_asked");
}

static void begin(void)
{
	load();
	cuda.init(0);
}

static void check_gpu_sees(char *p, int value)
{
	*(volatile char *)p = (char)value;
	CHECK_EQ(cuda.gpu_read(p), value);
}

static void fork_once(void)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
}

REGION_TEST(registered_memory_is_refused_until_it_is_unregistered)
{
	char *p = pages_get(BYTES);

	region_begin(NULL, NULL);
	begin();
	memset(p, 1, BYTES);
	CHECK(!cuda.add(p + BYTES / 2, PAGE, 0));
	CHECK_REFUSED(p, BYTES, "registered with a GPU");
	check_gpu_sees(p + BYTES / 2, 7);
	CHECK(!cuda.remove(p + BYTES / 2));
	ADOPT(p, BYTES);
}

REGION_TEST(memory_is_refused_while_the_cuda_driver_gives_no_clear_answer)
{
	char *p = pages_get(BYTES);

	setenv("FAKE_CUDA_BROKEN", "1", 1);
	region_begin(NULL, NULL);
	load();
	memset(p, 1, BYTES);
	ADOPT(p, BYTES / 2); /* not initialised: nothing is registered */
	cuda.init(0);
	CHECK_REFUSED(p + BYTES / 2, BYTES / 2, "registered with a GPU");
}

REGION_TEST(registered_memory_stays_adopted_over_fork)
{
	char *p = pages_get(BYTES);

	region_begin(NULL, NULL);
	begin();
	ADOPT(p, BYTES);
	CHECK(!cuda.add(p, BYTES, 0));
	check_gpu_sees(p, 1);
	fork_once();
	CHECK(is_shared(p));
	check_gpu_sees(p, 2);
	CHECK(!cuda.remove(p));
	fork_once();
	CHECK(!is_shared(p));
}

REGION_TEST(an_unregistered_region_is_returned_by_fork_where_cuda_is_loaded)
{
	char *p = pages_get(BYTES);

	region_begin(NULL, NULL);
	begin();
	ADOPT(p, BYTES);
	fork_once();
	CHECK(!is_shared(p) && *cuda.asked > 0);
}

/* The driver may have called mprotect() itself, so that it is not asked. */
REGION_TEST(a_region_stays_adopted_over_mprotect_where_cuda_is_loaded)
{
	char *p = pages_get(BYTES);
	unsigned asked;

	region_begin(NULL, NULL);
	begin();
	ADOPT(p, BYTES);
	CHECK(!cuda.add(p, BYTES, 0));
	asked = *cuda.asked;
	CHECK(!mprotect(p, PAGE, PROT_READ) && !mprotect(p, PAGE, PROT_READ | PROT_WRITE));
	CHECK_EQ(*cuda.asked, asked);
	CHECK(is_shared(p) && !adopts(p, BYTES));
	check_gpu_sees(p, 3);
	CHECK(!cuda.remove(p) && !munmap(p, BYTES));
	CHECK_EQ(active(), 0);
	reuse_the_arena(BYTES);
}

REGION_TEST(a_registered_region_is_not_evicted)
{
	char *p = pages_get(BYTES), *other = pages_get(BYTES);

	region_begin("SLUICE_TEST=region_max=1", NULL);
	begin();
	ADOPT(p, BYTES);
	CHECK(!cuda.add(p, BYTES, 0));
	CHECK(!adopts(other, BYTES) && is_adopted(p, BYTES));
	check_gpu_sees(p, 4);
	CHECK(!cuda.remove(p));
	fork_once(); /* asks again */
	ADOPT(other, BYTES);
}

REGION_TEST(registered_memory_that_is_unmapped_frees_its_part_of_the_arena)
{
	char *p = pages_get(BYTES);
	uint64_t before;

	region_begin(NULL, NULL);
	begin();
	before = arena_file_bytes();
	ADOPT(p, BYTES);
	CHECK(!cuda.add(p, BYTES, 0));
	CHECK(!mprotect(p, PAGE, PROT_READ)); /* keeps it */
	CHECK(!cuda.remove(p) && !munmap(p, BYTES));
	CHECK_EQ(active(), 0);
	region_fini();
	CHECK_EQ(arena_file_bytes(), before);
}
