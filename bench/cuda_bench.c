/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * cuda_bench: what Sluice would have of a GPU, for people who have one; `bench/run cuda` compiles
 * and launches it. It needs libcuda.so.1 of the driver, and no header of CUDA. A JSON line for
 * each:
 *
 *   cuda_bench [quick] [processes=1,2,4]
 *
 *   device     do GPUs read pageable memory (then no guard holds them)?
 *   host       copies to and from the GPU, by kind of memory: malloc's, registered, an arena's
 *              (memfd), an arena's that is registered; and what registration costs
 *   bounce     host memory to host memory by way of the GPU, without a core, beside memcpy
 *   peer       processes that share the GPU: the cost of opening another one's device memory (IPC),
 *              and a copy from it by all of them at once
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "cuda.h"

enum { TURNS = 15, LIST_MAX = 16, ATTRIBUTE_PAGEABLE = 88, IPC_BYTES = 64, LAZY_PEER_ACCESS = 1 };

struct ipc_handle {
	char bytes[IPC_BYTES];
};

static struct {
	int (*init)(unsigned flags);
	int (*device_get)(int *out, int ordinal);
	int (*device_attribute)(int *out, int attribute, int device);
	int (*device_name)(char *out, int cap, int device);
	int (*context_create)(void **out, unsigned flags, int device);
	int (*alloc)(device_ptr *out, size_t bytes);
	int (*free)(device_ptr p);
	int (*to_device)(device_ptr dst, const void *src, size_t bytes);
	int (*to_host)(void *dst, device_ptr src, size_t bytes);
	int (*on_device)(device_ptr dst, device_ptr src, size_t bytes);
	int (*synchronize)(void);
	int (*host_register)(void *p, size_t bytes, unsigned flags);
	int (*host_unregister)(void *p);
	int (*ipc_get)(struct ipc_handle *out, device_ptr p);
	int (*ipc_open)(device_ptr *out, struct ipc_handle h, unsigned flags);
	int (*ipc_close)(device_ptr p);
} cu;

/* In the order of `cu`: the driver's own names, as its header defines them. */
static const char *const names[] = {
	"cuInit",
	"cuDeviceGet",
	"cuDeviceGetAttribute",
	"cuDeviceGetName",
	"cuCtxCreate_v2",
	"cuMemAlloc_v2",
	"cuMemFree_v2",
	"cuMemcpyHtoD_v2",
	"cuMemcpyDtoH_v2",
	"cuMemcpyDtoD_v2",
	"cuCtxSynchronize",
	"cuMemHostRegister_v2",
	"cuMemHostUnregister",
	"cuIpcGetMemHandle",
	"cuIpcOpenMemHandle_v2",
	"cuIpcCloseMemHandle",
};
_Static_assert(sizeof cu == sizeof names / sizeof names[0] * sizeof(void *), "one of each");

static size_t sizes[] = { 64 << 10, 1 << 20, 16 << 20, 64 << 20 };
static int size_count = 4;

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, "cuda_bench: %s: %s\n", what, why);
	exit(1);
}

/* Ends the program when a call of the driver fails. */
static void must(int rc, const char *what)
{
	char why[32];

	snprintf(why, sizeof why, "error %d", rc);
	if (rc)
		die(what, why);
}

/* ---- the driver -------------------------------------------------------------------------- */

static void load(void)
{
	void *functions[sizeof names / sizeof *names];
	const char *why = cuda_load(names, sizeof names / sizeof *names, functions);

	if (why)
		die("libcuda.so.1", why);
	memcpy(&cu, functions, sizeof cu);
}

static void open_device(bool says)
{
	int device, reads = 0;
	char name[64] = "";
	void *context;

	must(cu.init(0), "cuInit (is there a GPU?)");
	must(cu.device_get(&device, 0), "cuDeviceGet");
	must(cu.context_create(&context, 0, device), "cuCtxCreate");
	must(cu.device_attribute(&reads, ATTRIBUTE_PAGEABLE, device), "cuDeviceGetAttribute");
	must(cu.device_name(name, sizeof name, device), "cuDeviceGetName");
	if (says)
		printf("{\"what\": \"device\", \"name\": \"%s\", \"reads_pageable\": %d}\n", name,
		       reads);
}

/* ---- times ------------------------------------------------------------------------------- */

static struct bench_samples samples;

static void say(const char *what, const char *how, const char *memory, size_t bytes)
{
	bench_sort(&samples);
	printf("{\"what\": \"%s\", \"how\": \"%s\", \"memory\": \"%s\", \"bytes\": %zu, "
	       "\"us\": %.2f, \"p0_us\": %.2f, \"p90_us\": %.2f, \"gb_s\": %.3f}\n",
	       what, how, memory, bytes, bench_percentile_us(&samples, 50),
	       bench_percentile_us(&samples, 0), bench_percentile_us(&samples, 90),
	       (double)bytes / 1e3 / bench_percentile_us(&samples, 50));
	fflush(stdout);
	samples.count = 0;
}

static void add(uint64_t begin_ns) { samples.ns[samples.count++] = bench_now_ns() - begin_ns; }

/* ---- host memory ------------------------------------------------------------------------- */

static char *memory_get(bool is_arena, size_t bytes)
{
	int fd = is_arena ? memfd_create("cuda_bench", MFD_CLOEXEC) : -1;
	char *p;

	if (is_arena && (fd < 0 || ftruncate(fd, (off_t)bytes)))
		die("memfd", strerror(errno));
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		 is_arena ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	if (p == MAP_FAILED)
		die("memory", strerror(errno));
	if (is_arena)
		close(fd);
	memset(p, 1, bytes);
	return p;
}

/* Compares what arrives with what was sent. */
static void measure_host(size_t bytes, bool is_arena, bool is_registered)
{
	const char *memory = is_arena        ? is_registered ? "arena, registered" : "arena"
			     : is_registered ? "private, registered"
					     : "private";
	char *p = memory_get(is_arena, bytes);
	device_ptr d;

	must(cu.alloc(&d, bytes), "cuMemAlloc");
	if (is_registered) {
		uint64_t begin_ns = bench_now_ns();

		must(cu.host_register(p, bytes, 0), "cuMemHostRegister");
		add(begin_ns);
		say("host", "register", memory, bytes);
	}
	for (int way = 0; way < 2; way++) {
		for (int i = 0; i < TURNS; i++) {
			uint64_t begin_ns;

			memset(p, way ? 0 : i + 1, bytes);
			begin_ns = bench_now_ns();
			must(way ? cu.to_host(p, d, bytes) : cu.to_device(d, p, bytes), "a copy");
			must(cu.synchronize(), "cuCtxSynchronize");
			add(begin_ns);
			if (way && (p[0] != TURNS || p[bytes - 1] != TURNS))
				die(memory, "a wrong byte");
		}
		say("host", way ? "from the GPU" : "to the GPU", memory, bytes);
	}
	if (is_registered)
		must(cu.host_unregister(p), "cuMemHostUnregister");
	must(cu.free(d), "cuMemFree");
	munmap(p, bytes);
}

static void measure_bounce(size_t bytes)
{
	char *src = memory_get(true, bytes), *dst = memory_get(true, bytes);
	device_ptr d;

	must(cu.alloc(&d, bytes), "cuMemAlloc");
	must(cu.host_register(src, bytes, 0) || cu.host_register(dst, bytes, 0),
	     "cuMemHostRegister");
	for (int by_cpu = 0; by_cpu < 2; by_cpu++) {
		for (int i = 0; i < TURNS; i++) {
			uint64_t begin_ns;

			memset(src, i + 1, bytes);
			begin_ns = bench_now_ns();
			if (by_cpu)
				memcpy(dst, src, bytes);
			else
				must(cu.to_device(d, src, bytes) || cu.to_host(dst, d, bytes),
				     "a copy");
			must(cu.synchronize(), "cuCtxSynchronize");
			add(begin_ns);
			if (memcmp(dst, src, bytes))
				die("bounce", "a wrong byte");
		}
		say("bounce", by_cpu ? "memcpy" : "by way of the GPU", "arena, registered", bytes);
	}
	must(cu.host_unregister(src) || cu.host_unregister(dst), "cuMemHostUnregister");
	must(cu.free(d), "cuMemFree");
	munmap(src, bytes);
	munmap(dst, bytes);
}

/* ---- processes that share the GPU -------------------------------------------------------- */

/* In the shared page: the owner's handle, and what each process measured. */
enum { OPEN_NS = 8, PULL_NS }; /* bench_max() uses the first */

static void pull(struct bench *b, const struct ipc_handle *handle, size_t bytes)
{
	uint64_t begin_ns, least = UINT64_MAX;
	device_ptr theirs, mine;

	must(cu.alloc(&mine, bytes), "cuMemAlloc");
	bench_sync(b); /* the owner has its handle */
	begin_ns = bench_now_ns();
	must(cu.ipc_open(&theirs, *handle, LAZY_PEER_ACCESS), "cuIpcOpenMemHandle");
	b->area->value[b->rank][OPEN_NS] = bench_now_ns() - begin_ns;
	for (int i = 0; i < TURNS; i++) {
		begin_ns = bench_start_common(b);
		must(cu.on_device(mine, theirs, bytes), "cuMemcpyDtoD");
		must(cu.synchronize(), "cuCtxSynchronize");
		begin_ns = bench_max(b, bench_now_ns() - begin_ns);
		least = begin_ns && begin_ns < least ? begin_ns : least;
	}
	b->area->value[b->rank][PULL_NS] = least;
	must(cu.ipc_close(theirs) || cu.free(mine), "cuIpcCloseMemHandle");
}

/* The owner of the memory, rank `ranks`: it only waits. */
static void own(struct bench *b, struct ipc_handle *handle, size_t bytes, int end)
{
	device_ptr d;
	char byte;

	must(cu.alloc(&d, bytes), "cuMemAlloc");
	must(cu.ipc_get(handle, d), "cuIpcGetMemHandle");
	b->area->value[b->ranks][0] = 1;
	while (read(end, &byte, 1) > 0)
		;
	must(cu.free(d), "cuMemFree");
}

static pid_t start(struct bench *b, int rank, struct ipc_handle *handle, size_t bytes, int pipe_[2])
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		die("fork", strerror(errno));
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* the others would wait for one that has failed */
	if (getppid() != parent)
		_exit(1);
	b->rank = rank;
	close(pipe_[1]);
	open_device(false);
	if (rank == b->ranks)
		own(b, handle, bytes, pipe_[0]);
	else
		pull(b, handle, bytes);
	_exit(0);
}

static void measure_peers(int n, size_t bytes)
{
	size_t room = sizeof(struct bench_area) + sizeof(struct ipc_handle);
	struct bench_area *area =
		mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct bench b = { .area = area, .ranks = n, .crowded = n > bench_cpus() };
	struct ipc_handle *handle = (struct ipc_handle *)(area + 1);
	int end[2], status, failed = 0;
	pid_t owner;

	if (area == MAP_FAILED || pipe(end))
		die("memory", strerror(errno));
	fflush(stdout);
	owner = start(&b, n, handle, bytes, end);
	while (!*(volatile uint64_t *)&area->value[n][0] && waitpid(owner, &status, WNOHANG) == 0)
		usleep(1000);
	if (!area->value[n][0])
		die("peer", "the owner of the memory failed");
	for (int r = 0; r < n; r++)
		start(&b, r, handle, bytes, end);
	for (int r = 0; r < n && !failed; r++)
		failed = wait(&status) > 0 ? status : 1;
	close(end[0]);
	close(end[1]); /* the owner ends */
	if (failed)
		die("peer", "a process failed");
	waitpid(owner, &status, 0);
	printf("{\"what\": \"peer\", \"processes\": %d, \"bytes\": %zu, \"open_us\": %.2f, "
	       "\"pull_p0_us\": %.2f, \"all_gb_s\": %.3f}\n",
	       n, bytes, (double)area->value[0][OPEN_NS] / 1e3,
	       (double)area->value[0][PULL_NS] / 1e3,
	       (double)bytes * n / (double)area->value[0][PULL_NS]);
	munmap(area, room);
}

/* ---- the whole --------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
	const char *processes = "1,2,4";

	load();
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "quick"))
			size_count = 2;
		else if (!strncmp(argv[i], "processes=", 10))
			processes = argv[i] + 10;
		else
			die(argv[i], "no such argument");
	}
	/* before this process has a context: a driver does not survive fork */
	for (char *end; *processes; processes = end + (*end == ',')) {
		long n = strtol(processes, &end, 10);

		if (end == processes || n < 1 || n >= BENCH_MAX_RANKS)
			die(processes, "no list of numbers");
		for (int i = 0; i < size_count; i++)
			measure_peers((int)n, sizes[i]);
	}
	open_device(true);
	for (int i = 0; i < size_count; i++) {
		for (int kind = 0; kind < 4; kind++)
			measure_host(sizes[i], kind & 2, kind & 1);
		measure_bounce(sizes[i]);
	}
	return 0;
}
