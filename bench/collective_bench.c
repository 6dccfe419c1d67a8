/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * collective_bench: one launch of one MPI program that measures, and nothing else; bench/run
 * launches it with and without Sluice in turn and compares. An ordinary MPI program: no option says
 * which side it is on.
 *
 *   large   bcast, gather: one call a sample, in step, until the data has been used: after a
 *           broadcast each leaf reads one byte of each page; after a gather the root reads one byte
 *           of each page of all it received, and each sender writes one byte of each page of what
 * it sent. The owner rewrites its whole buffer before each call. A sample is the slowest rank's.
 *   call    call-bcast, call-gather: the call alone, as OSU's benchmarks time it: a barrier of the
 * MPI's own before each call, nobody looks at the data, which stays the same small   many calls a
 * sample, the root moving on each time, so that ranks cannot run ahead first   fresh buffers,
 * touched by their owner: the first use, and ten uses with the free maps    maps-bcast,
 * maps-gather: `buffers` of them, each used MAPS_USES times and freed: mappings and open
 * descriptors before and after others  memory (of a rank that passed small messages only), malloc
 * (allocator throughput)
 *
 * Each timed call's data is checked at the bytes that are read; warm-up calls and the last call are
 * checked in full and not timed. Results are JSON lines on stdout of rank 0.
 */
#include <mpi.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "job.h"

#define FIRST_USES      10
#define MAPS_USES       5
#define MAPS_WARMUP     50
#define BATCH_TARGET_NS 400000

struct options {
	const char *what;
	uint64_t sizes[JOB_MAX_LIST];
	int size_count;
	uint64_t budget_ns; /* timed part of one measurement */
	int warmup, min_calls, max_calls, buffers;
	bool pin, huge, read_all;
	int nice;
};

struct job {
	struct options opt;
	struct bench b;
	size_t bytes;
	void *send, *recv;
	uint64_t call; /* number of the call, the same on all ranks: seeds the contents */
	int batch;
	long switches; /* when the timed part began */
	struct bench_samples samples, tens;
};

struct measure {
	const char *name;
	void (*run)(struct job *j, const struct measure *m);
	uint64_t (*call)(struct job *j, bool full); /* large: one call, its time */
	void (*batch)(struct job *j);               /* small: j->batch calls */
	bool sized;
};

/*
 * A host MPI's own copies through process_vm_readv come by here (-rdynamic puts this before
 * libc's), so that the report can say "copies by CMA" from observation.
 */
static _Atomic uint64_t cma_calls;
__attribute__((visibility("default"))) ssize_t
process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nlocal,
		 const struct iovec *remote, unsigned long nremote, unsigned long flags)
{
	atomic_fetch_add_explicit(&cma_calls, 1, memory_order_relaxed);
	return syscall(SYS_process_vm_readv, pid, local, nlocal, remote, nremote, flags);
}

static uint64_t timed_begin(struct job *j)
{
	j->switches = job_lost_core();
	return bench_now_ns();
}

static void note_wrong(struct job *j, uint64_t wrong)
{
	if (wrong)
		atomic_fetch_add_explicit(&j->b.area->mismatches, wrong, memory_order_relaxed);
}

/* Read the received data, as the program would; use_expect() is the expected result. */
static uint64_t use(const struct job *j, const void *buf)
{
	return j->opt.read_all ? bench_read(buf, j->bytes) : bench_touch(buf, j->bytes);
}

static uint64_t use_expect(const struct job *j, uint64_t seed)
{
	return j->opt.read_all ? bench_read_expect(j->bytes, seed) : bench_expect(j->bytes, seed);
}

/* ---- large -------------------------------------------------------------------------------- */

static uint64_t call_bcast(struct job *j, bool full)
{
	uint64_t seed = bench_seed(++j->call, 0), sum = 0, t0, ns;

	if (j->b.rank == 0)
		bench_fill(j->send, j->bytes, seed);
	t0 = bench_start(&j->b);
	MPI_Bcast(j->send, (int)j->bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
	if (j->b.rank)
		sum = use(j, j->send);
	ns = bench_now_ns() - t0;
	if (j->b.rank) {
		note_wrong(j, sum != use_expect(j, seed));
		if (full)
			note_wrong(j, bench_check(j->send, j->bytes, seed));
	}
	return bench_max(&j->b, ns);
}

static uint64_t call_gather(struct job *j, bool full)
{
	uint64_t sum[BENCH_MAX_RANKS], t0, ns;
	char *block;

	bench_fill(j->send, j->bytes, bench_seed(++j->call, j->b.rank));
	t0 = bench_start(&j->b);
	MPI_Gather(j->send, (int)j->bytes, MPI_BYTE, j->recv, (int)j->bytes, MPI_BYTE, 0,
		   MPI_COMM_WORLD);
	if (j->b.rank == 0)
		for (int r = 0; r < j->b.ranks; r++)
			sum[r] = use(j, (char *)j->recv + j->bytes * r);
	bench_smear(j->send, j->bytes, 0xA5);
	ns = bench_now_ns() - t0;
	for (int r = 0; j->b.rank == 0 && r < j->b.ranks; r++) {
		uint64_t seed = bench_seed(j->call, r);

		block = (char *)j->recv + j->bytes * r;
		note_wrong(j, sum[r] != use_expect(j, seed));
		if (full)
			note_wrong(j, bench_check(block, j->bytes, seed));
	}
	return bench_max(&j->b, ns);
}

/* As OSU's: what was received is looked at only when `full`, outside the time. */
static uint64_t call_bcast_alone(struct job *j, bool full)
{
	uint64_t seed = bench_seed(1, 0), t0, ns;

	if (full && j->b.rank == 0)
		bench_fill(j->send, j->bytes, seed);
	else if (full)
		memset(j->send, 0, j->bytes);
	MPI_Barrier(MPI_COMM_WORLD);
	t0 = bench_now_ns();
	MPI_Bcast(j->send, (int)j->bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
	ns = bench_now_ns() - t0;
	if (full && j->b.rank)
		note_wrong(j, bench_check(j->send, j->bytes, seed));
	return bench_max(&j->b, ns);
}

static uint64_t call_gather_alone(struct job *j, bool full)
{
	uint64_t t0, ns;

	if (full)
		bench_fill(j->send, j->bytes, bench_seed(1, j->b.rank));
	if (full && j->b.rank == 0)
		memset(j->recv, 0, j->bytes * (size_t)j->b.ranks);
	MPI_Barrier(MPI_COMM_WORLD);
	t0 = bench_now_ns();
	MPI_Gather(j->send, (int)j->bytes, MPI_BYTE, j->recv, (int)j->bytes, MPI_BYTE, 0,
		   MPI_COMM_WORLD);
	ns = bench_now_ns() - t0;
	for (int r = 0; full && j->b.rank == 0 && r < j->b.ranks; r++)
		note_wrong(j,
			   bench_check((char *)j->recv + j->bytes * r, j->bytes, bench_seed(1, r)));
	return bench_max(&j->b, ns);
}

static void buffers_get(struct job *j)
{
	size_t recv_bytes = j->b.rank == 0 ? j->bytes * (size_t)j->b.ranks : 0;

	j->send = job_buffer(j->opt.huge, j->bytes);
	j->recv = job_buffer(j->opt.huge, recv_bytes);
}

static void buffers_put(struct job *j)
{
	free(j->send);
	free(j->recv);
}

static void samples_add(struct job *j, struct bench_samples *s, uint64_t ns)
{
	if (j->b.rank == 0)
		s->ns[s->count++] = ns;
}

static void print_result(struct job *j, const char *what, struct bench_samples *s, int per_sample,
			 int warmup, const double line[2])
{
	uint64_t wrong = atomic_load(&j->b.area->mismatches);
	uint64_t cma = bench_max(&j->b, atomic_exchange(&cma_calls, 0));
	uint64_t lost = bench_max(&j->b, (uint64_t)(job_lost_core() - j->switches));

	if (j->b.rank)
		return;
	bench_sort(s);
	printf("{\"what\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"samples\": %d, "
	       "\"calls_per_sample\": %d, \"warmup\": %d, \"p0_us\": %.4f, \"p50_us\": %.4f, "
	       "\"p99_us\": %.4f, \"line_before_ns\": %.1f, \"line_after_ns\": %.1f, "
	       "\"mismatches\": %llu, \"cma_calls\": %llu, \"lost_core\": %llu}\n",
	       what, j->bytes, j->b.ranks, s->count, per_sample, warmup,
	       bench_percentile_us(s, 0) / per_sample, bench_percentile_us(s, 50) / per_sample,
	       bench_percentile_us(s, 99) / per_sample, line[0], line[1], (unsigned long long)wrong,
	       (unsigned long long)cma, (unsigned long long)lost);
	fflush(stdout);
	s->count = 0;
	atomic_store(&j->b.area->mismatches, 0);
}

/* Rank 0 knows the samples and the clock; all ranks learn whether there is one more call. */
static bool one_more(struct job *j, int done, uint64_t since_ns)
{
	const struct options *o = &j->opt;
	bool more = done < o->min_calls ||
		    (done < o->max_calls && bench_now_ns() - since_ns < o->budget_ns);

	return bench_agree(&j->b, more);
}

static int warm_up(struct job *j, const struct measure *m)
{
	uint64_t since = bench_now_ns();
	int done = 0;

	while (bench_agree(&j->b, done < 1 || (done < j->opt.warmup &&
					       bench_now_ns() - since < 4 * j->opt.budget_ns))) {
		/* full checks pull the leaf's copy through its cache: the last few go without */
		m->call(j, done < j->opt.warmup / 2);
		done++;
	}
	return done;
}

static void run_large(struct job *j, const struct measure *m)
{
	double line[2];
	uint64_t since;
	int warmup;

	buffers_get(j);
	warmup = warm_up(j, m);
	line[0] = bench_line_ns(&j->b);
	since = timed_begin(j);
	for (int done = 0; one_more(j, done, since); done++)
		samples_add(j, &j->samples, m->call(j, false));
	line[1] = bench_line_ns(&j->b);
	m->call(j, true);
	print_result(j, m->name, &j->samples, 1, warmup, line);
	buffers_put(j);
}

static void run_first(struct job *j, const struct measure *m)
{
	char name[64];
	double line[2];
	uint64_t since, ns, sum, t0;

	line[0] = bench_line_ns(&j->b);
	since = timed_begin(j);
	for (int done = 0; one_more(j, done, since); done++) {
		buffers_get(j);
		sum = 0;
		for (int use = 0; use < FIRST_USES; use++) {
			ns = m->call(j, false);
			if (use == 0)
				samples_add(j, &j->samples, ns);
			sum += ns;
		}
		t0 = bench_start(&j->b);
		buffers_put(j);
		sum += bench_max(&j->b, bench_now_ns() - t0);
		samples_add(j, &j->tens, sum);
	}
	line[1] = bench_line_ns(&j->b);
	print_result(j, m->name, &j->samples, 1, 0, line);
	snprintf(name, sizeof(name), "%s-%d", m->name, FIRST_USES);
	print_result(j, name, &j->tens, 1, 0, line);
}

/* ---- small, and calls that are not taken ------------------------------------------------- */

static void batch_bcast(struct job *j)
{
	for (int i = 0; i < j->batch; i++)
		MPI_Bcast(j->send, (int)j->bytes, MPI_BYTE, i % j->b.ranks, MPI_COMM_WORLD);
}

static void batch_gather(struct job *j)
{
	for (int i = 0; i < j->batch; i++)
		MPI_Gather(j->send, (int)j->bytes, MPI_BYTE, j->recv, (int)j->bytes, MPI_BYTE,
			   i % j->b.ranks, MPI_COMM_WORLD);
}

static void batch_allreduce(struct job *j)
{
	for (int i = 0; i < j->batch; i++)
		MPI_Allreduce(j->send, j->recv, (int)(j->bytes / 8), MPI_DOUBLE, MPI_SUM,
			      MPI_COMM_WORLD);
}

static void batch_sendrecv(struct job *j)
{
	int n = (int)j->bytes, peer = 1 - j->b.rank;

	if (j->b.rank > 1)
		return;
	for (int i = 0; i < j->batch; i++) {
		if (j->b.rank == 0)
			MPI_Send(j->send, n, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
		MPI_Recv(j->recv, n, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (j->b.rank == 1)
			MPI_Send(j->send, n, MPI_BYTE, peer, 1, MPI_COMM_WORLD);
	}
}

static void batch_barrier(struct job *j)
{
	for (int i = 0; i < j->batch; i++)
		MPI_Barrier(MPI_COMM_WORLD);
}

static uint64_t time_batch(struct job *j, const struct measure *m)
{
	uint64_t t0 = bench_start(&j->b);

	m->batch(j);
	return bench_max(&j->b, bench_now_ns() - t0);
}

static void run_small(struct job *j, const struct measure *m)
{
	size_t recv_bytes = j->bytes * (size_t)j->b.ranks; /* every rank is a root */
	double line[2];
	uint64_t since, ns;
	int warmup = 0;

	j->send = job_memory(j->bytes);
	j->recv = job_memory(recv_bytes);
	memset(j->send, 0, j->bytes);
	memset(j->recv, 0, recv_bytes);
	/* the batch doubles until even its fastest run of three is long enough for the clock */
	for (j->batch = 1; j->batch < 4096; j->batch *= 2) {
		uint64_t fastest = UINT64_MAX;

		for (int i = 0; i < 3; i++, warmup += j->batch) {
			ns = time_batch(j, m);
			fastest = ns < fastest ? ns : fastest;
		}
		if (bench_agree(&j->b, fastest >= BATCH_TARGET_NS / 2))
			break;
	}
	line[0] = bench_line_ns(&j->b);
	since = timed_begin(j);
	for (int done = 0; one_more(j, done, since); done++)
		samples_add(j, &j->samples, time_batch(j, m));
	line[1] = bench_line_ns(&j->b);
	print_result(j, m->name, &j->samples, j->batch, warmup, line);
	buffers_put(j);
}

/* ---- memory and allocator ---------------------------------------------------------------- */

/* The sum of the lines of a /proc file that begin with `key`, in KiB. */
static long proc_kib(const char *path, const char *key)
{
	char line[256];
	long sum = 0, kib;
	FILE *f = fopen(path, "r");

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)) && sscanf(line, "%*[^:]: %ld", &kib) == 1)
			sum += kib;
	if (f)
		fclose(f);
	return sum;
}

static void run_memory(struct job *j, const struct measure *m)
{
	char buf[1024] = { 0 }, out[1024 * BENCH_MAX_RANKS];
	uint64_t rss, own;

	for (int i = 0; i < 100; i++) {
		MPI_Bcast(buf, sizeof(buf), MPI_BYTE, i % j->b.ranks, MPI_COMM_WORLD);
		MPI_Gather(buf, sizeof(buf), MPI_BYTE, out, sizeof(buf), MPI_BYTE, 0,
			   MPI_COMM_WORLD);
		MPI_Allreduce(buf, out, 8, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	}
	rss = bench_max(&j->b, (uint64_t)proc_kib("/proc/self/status", "VmRSS"));
	own = bench_max(&j->b, (uint64_t)proc_kib("/proc/self/smaps_rollup", "Private_"));
	if (j->b.rank == 0)
		printf("{\"what\": \"%s\", \"ranks\": %d, "
		       "\"rss_kib\": %llu, \"private_kib\": %llu}\n",
		       m->name, j->b.ranks, (unsigned long long)rss, (unsigned long long)own);
}

static void use_buffer(struct job *j, const struct measure *m, bool keep)
{
	uint64_t t0 = bench_now_ns();

	buffers_get(j);
	for (int i = 0; i < MAPS_USES; i++)
		m->call(j, false);
	buffers_put(j);
	if (keep && j->samples.count < BENCH_MAX_CALLS)
		samples_add(j, &j->samples, (bench_now_ns() - t0) / MAPS_USES);
}

static void run_maps(struct job *j, const struct measure *m)
{
	uint64_t maps[2], files[2], wrong;

	for (int i = -MAPS_WARMUP; i <= j->opt.buffers; i++) {
		if (i == 0 || i == j->opt.buffers) {
			maps[i > 0] = bench_max(&j->b, job_count_lines("/proc/self/maps"));
			files[i > 0] = bench_max(&j->b, job_count_entries("/proc/self/fd"));
		}
		if (i < j->opt.buffers)
			use_buffer(j, m, i >= 0);
	}
	wrong = atomic_exchange(&j->b.area->mismatches, 0);
	if (j->b.rank)
		return;
	bench_sort(&j->samples);
	printf("{\"what\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"buffers\": %d, \"p0_us\": "
	       "%.4f, "
	       "\"p50_us\": %.4f, \"p99_us\": %.4f, \"maps_before\": %llu, \"maps_after\": %llu, "
	       "\"descriptors_before\": %llu, \"descriptors_after\": %llu, \"mismatches\": %llu}\n",
	       m->name, j->bytes, j->b.ranks, j->opt.buffers, bench_percentile_us(&j->samples, 0),
	       bench_percentile_us(&j->samples, 50), bench_percentile_us(&j->samples, 99),
	       (unsigned long long)maps[0], (unsigned long long)maps[1],
	       (unsigned long long)files[0], (unsigned long long)files[1],
	       (unsigned long long)wrong);
	fflush(stdout);
	j->samples.count = 0;
}

/* A slot is freed and allocated again, in an order without pattern. */
static void run_malloc(struct job *j, const struct measure *m)
{
	enum { SLOTS = 64, OPS = 512 };
	void *slot[SLOTS] = { 0 };
	double line[2];
	uint64_t since, t0, turn = 1;

	line[0] = bench_line_ns(&j->b);
	since = timed_begin(j);
	for (int done = 0; one_more(j, done, since); done++) {
		t0 = bench_start(&j->b);
		for (int i = 0; i < OPS; i++) {
			turn = turn * 6364136223846793005ull + 1442695040888963407ull;
			free(slot[turn >> 58]);
			slot[turn >> 58] = job_memory(j->bytes);
			*(volatile char *)slot[turn >> 58] = 1;
		}
		samples_add(j, &j->samples, bench_max(&j->b, bench_now_ns() - t0));
	}
	line[1] = bench_line_ns(&j->b);
	print_result(j, m->name, &j->samples, OPS, 0, line);
	for (int i = 0; i < SLOTS; i++)
		free(slot[i]);
}

/* ---- what to run ------------------------------------------------------------------------- */

static const struct measure measures[] = {
	{ "bcast", run_large, call_bcast, NULL, true },
	{ "gather", run_large, call_gather, NULL, true },
	{ "call-bcast", run_large, call_bcast_alone, NULL, true },
	{ "call-gather", run_large, call_gather_alone, NULL, true },
	{ "maps-bcast", run_maps, call_bcast, NULL, true },
	{ "maps-gather", run_maps, call_gather, NULL, true },
	{ "first-bcast", run_first, call_bcast, NULL, true },
	{ "first-gather", run_first, call_gather, NULL, true },
	{ "small-bcast", run_small, NULL, batch_bcast, true },
	{ "small-gather", run_small, NULL, batch_gather, true },
	{ "allreduce", run_small, NULL, batch_allreduce, true },
	{ "sendrecv", run_small, NULL, batch_sendrecv, true },
	{ "barrier", run_small, NULL, batch_barrier, false },
	{ "malloc", run_malloc, NULL, NULL, true },
	{ "memory", run_memory, NULL, NULL, false },
};

static void run_measure(struct job *j, const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(measures) / sizeof(measures[0]); i++) {
		const struct measure *m = &measures[i];

		if (strlen(m->name) != len || strncmp(m->name, name, len))
			continue;
		for (int s = 0; s < (m->sized ? j->opt.size_count : 1); s++) {
			j->bytes = m->sized ? j->opt.sizes[s] : 0;
			m->run(j, m);
		}
		return;
	}
	job_die("unknown measurement");
}

static void parse(struct options *o, int argc, char **argv)
{
	*o = (struct options){ .what = "",
			       .budget_ns = 100000000,
			       .warmup = 10,
			       .min_calls = 5,
			       .max_calls = 2000,
			       .buffers = 1000 };
	for (int i = 1; i < argc; i++) {
		const char *value = strchr(argv[i], '=');

		value = value ? value + 1 : "";
		if (!strncmp(argv[i], "what=", 5))
			o->what = value;
		else if (!strncmp(argv[i], "sizes=", 6))
			o->size_count = job_parse_list(o->sizes, value);
		else if (!strncmp(argv[i], "ms=", 3))
			o->budget_ns = strtoull(value, NULL, 10) * 1000000;
		else if (!strncmp(argv[i], "warmup=", 7))
			o->warmup = atoi(value);
		else if (!strncmp(argv[i], "min=", 4))
			o->min_calls = atoi(value);
		else if (!strncmp(argv[i], "max=", 4))
			o->max_calls = atoi(value);
		else if (!strncmp(argv[i], "buffers=", 8))
			o->buffers = atoi(value);
		else if (!strncmp(argv[i], "pin=", 4))
			o->pin = atoi(value);
		else if (!strncmp(argv[i], "nice=", 5))
			o->nice = atoi(value);
		else if (!strncmp(argv[i], "use=", 4))
			o->read_all = !strcmp(value, "all");
		else if (!strncmp(argv[i], "pages=", 6))
			o->huge = !strcmp(value, "huge");
		else
			job_die("arguments: what= sizes= ms= warmup= min= max= buffers= pin= "
				"pages= use= nice=");
	}
	if (o->max_calls > BENCH_MAX_CALLS)
		o->max_calls = BENCH_MAX_CALLS;
}

int main(int argc, char **argv)
{
	static struct job j;

	MPI_Init(&argc, &argv);
	parse(&j.opt, argc, argv);
	if (!strcmp(j.opt.what, "hello")) {
		MPI_Finalize();
		return 0;
	}
	if (j.opt.nice)
		job_set_nice(j.opt.nice);
	job_open(&j.b);
	if (j.opt.pin && !j.b.crowded)
		bench_pin(j.b.rank);
	job_print_run(&j.b, j.opt.pin && !j.b.crowded);
	for (const char *w = j.opt.what; *w; w += strcspn(w, ","), w += *w == ',')
		run_measure(&j, w, strcspn(w, ","));
	MPI_Finalize();
	return 0;
}
