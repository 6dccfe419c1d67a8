/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * gpu_bench: collectives on memory of a GPU that the ranks share, under the host MPI that it is
 * compiled for. It needs libcuda.so.1 of the driver, and no header of CUDA.
 *
 *   gpu_bench how=staged|direct [sizes=64K,1M] [what=bcast,gather,scatter,allgather,alltoall]
 *
 *   staged   as programs do with an MPI that knows no GPUs: to host memory that is page-locked,
 *            the collective there, and back
 *   direct   the call gets the addresses on the GPU (SLUICE_COLL=device:on, or an MPI that can)
 *
 * A JSON line for each: the time until the last rank has the data on its GPU. Every byte of the
 * first and the last call is compared.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"
#include "job.h"

enum { TURNS = 21, WARMUP = 4, ROOT = 0 };
enum { BCAST, GATHER, SCATTER, ALLGATHER, ALLTOALL, KINDS };
static const char *const kinds[] = { "bcast", "gather", "scatter", "allgather", "alltoall" };

static struct {
	int (*init)(unsigned flags);
	int (*device_get)(int *out, int ordinal);
	int (*context_create)(void **out, unsigned flags, int device);
	int (*alloc)(device_ptr *out, size_t bytes);
	int (*free)(device_ptr p);
	int (*alloc_host)(void **out, size_t bytes);
	int (*free_host)(void *p);
	int (*to_device)(device_ptr dst, const void *src, size_t bytes);
	int (*to_host)(void *dst, device_ptr src, size_t bytes);
	int (*synchronize)(void);
} cu;
static const char *const names[] = {
	"cuInit",          "cuDeviceGet",       "cuCtxCreate_v2", "cuMemAlloc_v2",
	"cuMemFree_v2",    "cuMemAllocHost_v2", "cuMemFreeHost",  "cuMemcpyHtoD_v2",
	"cuMemcpyDtoH_v2", "cuCtxSynchronize",
};
_Static_assert(sizeof cu == sizeof names / sizeof names[0] * sizeof(void *), "one of each");

/* A rank's send and receive buffers, on the GPU and in page-locked host memory. */
struct buffers {
	size_t part, send_bytes, recv_bytes;
	device_ptr send, recv;
	char *host_send, *host_recv;
};

static struct bench b;
static bool is_staged;

static void must(int rc, const char *what)
{
	char why[64];

	snprintf(why, sizeof why, "%s: error %d", what, rc);
	if (rc)
		job_die(why);
}

static void load(void)
{
	void *functions[sizeof names / sizeof *names], *context;
	const char *why = cuda_load(names, sizeof names / sizeof *names, functions);
	int device = 0;

	if (why)
		job_die(why);
	memcpy(&cu, functions, sizeof cu);
	must(cu.init(0), "cuInit");
	must(cu.device_get(&device, 0), "cuDeviceGet");
	must(cu.context_create(&context, 0, device), "cuCtxCreate");
}

/* ---- buffers ----------------------------------------------------------------------------- */

static struct buffers buffers_get(int kind, size_t part)
{
	size_t all = part * (size_t)b.ranks;
	struct buffers x = { .part = part };

	x.send_bytes = kind == SCATTER || kind == ALLTOALL ? all : part;
	x.recv_bytes = kind == GATHER || kind == ALLGATHER || kind == ALLTOALL ? all : part;
	must(cu.alloc(&x.send, x.send_bytes) || cu.alloc(&x.recv, x.recv_bytes), "cuMemAlloc");
	must(cu.alloc_host((void **)&x.host_send, x.send_bytes) ||
		     cu.alloc_host((void **)&x.host_recv, x.recv_bytes),
	     "cuMemAllocHost");
	return x;
}

static void buffers_put(const struct buffers *x)
{
	must(cu.free(x->send) || cu.free(x->recv) || cu.free_host(x->host_send) ||
		     cu.free_host(x->host_recv),
	     "cuMemFree");
}

/* Part `to` of what rank `from` sends: all parts differ, and those of two calls. */
static uint64_t seed_of(uint64_t call, int from, int to)
{
	return bench_seed(call * 256 + (uint64_t)to, from);
}

static void fill(const struct buffers *x, uint64_t call)
{
	for (size_t at = 0; at < x->send_bytes; at += x->part)
		bench_fill(x->host_send + at, x->part, seed_of(call, b.rank, (int)(at / x->part)));
	must(cu.to_device(x->send, x->host_send, x->send_bytes), "a copy to the GPU");
	memset(x->host_recv, 0, x->recv_bytes);
	must(cu.to_device(x->recv, x->host_recv, x->recv_bytes), "a copy to the GPU");
	must(cu.synchronize(), "cuCtxSynchronize");
}

/* The broadcast is one of the send buffer. */
static void check(const struct buffers *x, int kind, uint64_t call)
{
	device_ptr at = kind == BCAST ? x->send : x->recv;
	size_t bytes = kind == BCAST ? x->part : x->recv_bytes;
	bool is_rooted = kind == BCAST || kind == SCATTER;

	if (kind == GATHER && b.rank != ROOT)
		return;
	must(cu.to_host(x->host_recv, at, bytes), "a copy from the GPU");
	for (size_t i = 0; i < bytes / x->part; i++)
		if (bench_check(x->host_recv + i * x->part, x->part,
				seed_of(call, is_rooted ? ROOT : (int)i,
					kind == SCATTER || kind == ALLTOALL ? b.rank : 0)))
			job_die("a wrong byte");
}

/* ---- one call ---------------------------------------------------------------------------- */

static void collective(int kind, void *send, void *recv, int n)
{
	if (kind == BCAST)
		MPI_Bcast(send, n, MPI_BYTE, ROOT, MPI_COMM_WORLD);
	else if (kind == GATHER)
		MPI_Gather(send, n, MPI_BYTE, recv, n, MPI_BYTE, ROOT, MPI_COMM_WORLD);
	else if (kind == SCATTER)
		MPI_Scatter(send, n, MPI_BYTE, recv, n, MPI_BYTE, ROOT, MPI_COMM_WORLD);
	else if (kind == ALLGATHER)
		MPI_Allgather(send, n, MPI_BYTE, recv, n, MPI_BYTE, MPI_COMM_WORLD);
	else
		MPI_Alltoall(send, n, MPI_BYTE, recv, n, MPI_BYTE, MPI_COMM_WORLD);
}

static void call_staged(const struct buffers *x, int kind)
{
	bool is_root = b.rank == ROOT;
	bool sends = is_root || (kind != BCAST && kind != SCATTER);
	bool receives = kind == BCAST ? !is_root : is_root || kind != GATHER;
	device_ptr to = kind == BCAST ? x->send : x->recv;

	if (sends)
		must(cu.to_host(x->host_send, x->send, x->send_bytes), "a copy from the GPU");
	collective(kind, x->host_send, x->host_recv, (int)x->part);
	if (receives)
		must(cu.to_device(to, kind == BCAST ? x->host_send : x->host_recv,
				  kind == BCAST ? x->part : x->recv_bytes),
		     "a copy to the GPU");
	must(cu.synchronize(), "cuCtxSynchronize");
}

static uint64_t timed_call(const struct buffers *x, int kind)
{
	uint64_t begin_ns = bench_start_common(&b);

	if (is_staged)
		call_staged(x, kind);
	else
		collective(kind, (void *)x->send, (void *)x->recv, (int)x->part);
	return bench_max(&b, bench_now_ns() - begin_ns);
}

static void measure(int kind, size_t part)
{
	struct buffers x = buffers_get(kind, part);
	const uint64_t last = WARMUP + TURNS - 1;
	static struct bench_samples samples;

	samples.count = 0;
	for (uint64_t i = 0; i <= last; i++) {
		bool is_checked = !i || i == last;
		uint64_t ns;

		if (is_checked)
			fill(&x, i);
		ns = timed_call(&x, kind);
		if (i >= WARMUP)
			samples.ns[samples.count++] = ns;
		if (is_checked)
			check(&x, kind, i);
	}
	buffers_put(&x);
	bench_sort(&samples);
	if (!b.rank)
		printf("{\"what\": \"%s\", \"how\": \"%s\", \"ranks\": %d, \"bytes\": %zu, "
		       "\"us\": %.1f, \"p0_us\": %.1f, \"p90_us\": %.1f}\n",
		       kinds[kind], is_staged ? "staged" : "direct", b.ranks, part,
		       bench_percentile_us(&samples, 50), bench_percentile_us(&samples, 0),
		       bench_percentile_us(&samples, 90));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	uint64_t sizes[JOB_MAX_LIST] = { 64 << 10, 1 << 20, 16 << 20 };
	const char *what = "bcast,gather,scatter,allgather,alltoall", *how = "", *value;
	int count = 3;

	MPI_Init(&argc, &argv);
	job_open(&b);
	for (int i = 1; i < argc; i++) {
		if ((value = job_value(argv[i], "how")))
			how = value;
		else if ((value = job_value(argv[i], "what")))
			what = value;
		else if ((value = job_value(argv[i], "sizes")))
			count = job_parse_list(sizes, value);
		else
			job_die(argv[i]);
	}
	is_staged = !strcmp(how, "staged");
	if (!is_staged && strcmp(how, "direct"))
		job_die("how=staged or how=direct");
	load();
	for (int kind = 0; kind < KINDS; kind++)
		for (int i = 0; strstr(what, kinds[kind]) && i < count; i++)
			measure(kind, sizes[i]);
	MPI_Finalize();
	return 0;
}
