/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kinds_bench: what a call of each blocking collective takes. One launch of one MPI program;
 * bench/kinds.py launches it with and without Sluice in turn and compares. An ordinary MPI program:
 * no option says which side it is on.
 *
 *   kinds_bench [what=bcast,scatter,...] [sizes=64K,1M] [memory=again,new,untouched] [ms=20]
 * [calls=9] [pin=1] [nice=N] [total=N]
 *
 *   again      the same buffers in each call
 *   new        malloc, both buffers written, the call, free
 *   untouched  the same, but nobody has written to the result's buffer before
 *
 * `sizes` are the bytes of one block: what a rank sends to each other (scatter, gather, allgather,
 * alltoall), or what each brings to a reduction. A sample begins when all ranks are there, and ends
 * when the slowest has read a byte of each page of its result; who brings something has written it
 * just before. Medians as JSON lines on stdout of rank 0.
 *
 *   total=1000  instead: the time of so many calls on a new communicator, in buffers that are used
 *               again; of large messages fewer calls
 *
 * The program reads a byte of each page of each result. Nothing separates the calls, as in a
 * program whose ranks keep step by the collective itself.
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"

enum memory { AGAIN, NEW, UNTOUCHED, MEMORIES };
static const char *const memory_names[MEMORIES] = { "again", "new", "untouched" };

struct buffers {
	char *send, *recv;
	size_t send_bytes, recv_bytes;
};

struct bench_job {
	struct bench b;
	size_t bytes; /* of a block */
	int count;    /* as MPI's argument, of bytes, or of floats of what is computed */
	MPI_Comm world; /* where the calls are made */
	MPI_Comm ring;
	int *counts, *starts; /* of blocks, for forms with lists */
};

/* The blocks sent and received; -1: one for each rank. `root`: only rank 0 has one of the two. */
struct kind {
	const char *name;
	int send, recv;
	enum { ALL, TO_ROOT, FROM_ROOT } root;
	void (*call)(const struct bench_job *j, const struct buffers *u);
};

/* ---- the collectives --------------------------------------------------------------------- */

#define KIND(id) static void call_##id(const struct bench_job *j, const struct buffers *u)
#define WORLD j->world
#define MOVED_MAX ((uint64_t)4 << 30) /* bytes in the calls of a total */

KIND(bcast) { MPI_Bcast(j->b.rank ? u->recv : u->send, j->count, MPI_BYTE, 0, WORLD); }
KIND(gather) { MPI_Gather(u->send, j->count, MPI_BYTE, u->recv, j->count, MPI_BYTE, 0, WORLD); }
KIND(scatter) { MPI_Scatter(u->send, j->count, MPI_BYTE, u->recv, j->count, MPI_BYTE, 0, WORLD); }
KIND(allgather) { MPI_Allgather(u->send, j->count, MPI_BYTE, u->recv, j->count, MPI_BYTE, WORLD); }
KIND(alltoall) { MPI_Alltoall(u->send, j->count, MPI_BYTE, u->recv, j->count, MPI_BYTE, WORLD); }
KIND(gatherv)
{
	MPI_Gatherv(u->send, j->count, MPI_BYTE, u->recv, j->counts, j->starts, MPI_BYTE, 0, WORLD);
}
KIND(scatterv)
{
	MPI_Scatterv(u->send, j->counts, j->starts, MPI_BYTE, u->recv, j->count, MPI_BYTE, 0,
		     WORLD);
}
KIND(allgatherv)
{
	MPI_Allgatherv(u->send, j->count, MPI_BYTE, u->recv, j->counts, j->starts, MPI_BYTE, WORLD);
}
KIND(alltoallv)
{
	MPI_Alltoallv(u->send, j->counts, j->starts, MPI_BYTE, u->recv, j->counts, j->starts,
		      MPI_BYTE, WORLD);
}
KIND(neighbor_allgather)
{
	MPI_Neighbor_allgather(u->send, j->count, MPI_BYTE, u->recv, j->count, MPI_BYTE, j->ring);
}
KIND(neighbor_alltoall)
{
	MPI_Neighbor_alltoall(u->send, j->count, MPI_BYTE, u->recv, j->count, MPI_BYTE, j->ring);
}
KIND(reduce) { MPI_Reduce(u->send, u->recv, j->count / 4, MPI_FLOAT, MPI_SUM, 0, WORLD); }
KIND(allreduce) { MPI_Allreduce(u->send, u->recv, j->count / 4, MPI_FLOAT, MPI_SUM, WORLD); }
KIND(scan) { MPI_Scan(u->send, u->recv, j->count / 4, MPI_FLOAT, MPI_SUM, WORLD); }
KIND(exscan) { MPI_Exscan(u->send, u->recv, j->count / 4, MPI_FLOAT, MPI_SUM, WORLD); }
KIND(reduce_scatter_block)
{
	MPI_Reduce_scatter_block(u->send, u->recv, j->count / 4 / j->b.ranks, MPI_FLOAT, MPI_SUM,
				 WORLD);
}
KIND(ibcast)
{
	MPI_Request r;

	MPI_Ibcast(j->b.rank ? u->recv : u->send, j->count, MPI_BYTE, 0, WORLD, &r);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
}
KIND(igather)
{
	MPI_Request r;

	MPI_Igather(u->send, j->count, MPI_BYTE, u->recv, j->count, MPI_BYTE, 0, WORLD, &r);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
}
KIND(ialltoall)
{
	MPI_Request r;

	MPI_Ialltoall(u->send, j->count, MPI_BYTE, u->recv, j->count, MPI_BYTE, WORLD, &r);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
}
KIND(iallreduce)
{
	MPI_Request r;

	MPI_Iallreduce(u->send, u->recv, j->count / 4, MPI_FLOAT, MPI_SUM, WORLD, &r);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
}
KIND(allreduce_max)
{
	MPI_Allreduce(u->send, u->recv, j->count / 8, MPI_DOUBLE, MPI_MAX, WORLD);
}

static const struct kind kinds[] = {
	{ "bcast", 1, 1, FROM_ROOT, call_bcast },
	{ "gather", 1, -1, TO_ROOT, call_gather },
	{ "scatter", -1, 1, FROM_ROOT, call_scatter },
	{ "allgather", 1, -1, ALL, call_allgather },
	{ "alltoall", -1, -1, ALL, call_alltoall },
	{ "reduce", 1, 1, TO_ROOT, call_reduce },
	{ "allreduce", 1, 1, ALL, call_allreduce },
	{ "reduce_scatter_block", 1, 1, ALL, call_reduce_scatter_block },
	{ "scan", 1, 1, ALL, call_scan },
	{ "exscan", 1, 1, ALL, call_exscan },
	{ "allreduce_max", 1, 1, ALL, call_allreduce_max },
	{ "ibcast", 1, 1, FROM_ROOT, call_ibcast },
	{ "igather", 1, -1, TO_ROOT, call_igather },
	{ "ialltoall", -1, -1, ALL, call_ialltoall },
	{ "iallreduce", 1, 1, ALL, call_iallreduce },
	{ "gatherv", 1, -1, TO_ROOT, call_gatherv },
	{ "scatterv", -1, 1, FROM_ROOT, call_scatterv },
	{ "allgatherv", 1, -1, ALL, call_allgatherv },
	{ "alltoallv", -1, -1, ALL, call_alltoallv },
	{ "neighbor_allgather", 1, 2, ALL, call_neighbor_allgather },
	{ "neighbor_alltoall", 2, 2, ALL, call_neighbor_alltoall },
};

/* ---- buffers ----------------------------------------------------------------------------- */

static void get(const struct bench_job *j, const struct kind *k, enum memory memory,
		struct buffers *u)
{
	bool sends = k->root != FROM_ROOT || !j->b.rank, gets = k->root != TO_ROOT || !j->b.rank;

	if (!strcmp(k->name, "bcast") || !strcmp(k->name, "ibcast"))
		gets = j->b.rank;
	u->send_bytes = sends ? j->bytes * (size_t)(k->send < 0 ? j->b.ranks : k->send) : 0;
	u->recv_bytes = gets ? j->bytes * (size_t)(k->recv < 0 ? j->b.ranks : k->recv) : 0;
	if (!strcmp(k->name, "exscan") && !j->b.rank) /* rank 0 has the buffer, but gets nothing */
		u->recv_bytes = 4;
	u->send = malloc(u->send_bytes + 1);
	u->recv = malloc(j->bytes * (size_t)(k->recv < 0 ? j->b.ranks : k->recv) + 1);
	if (!u->send || !u->recv)
		job_die("no memory");
	if (memory != UNTOUCHED)
		memset(u->recv, 1, u->recv_bytes);
}

static void put(struct buffers *u)
{
	free(u->send);
	free(u->recv);
}

/* ---- measuring --------------------------------------------------------------------------- */

static uint64_t sample(struct bench_job *j, const struct kind *k, enum memory memory,
		       struct buffers *u)
{
	static volatile uint64_t sink;
	uint64_t t0, ns;

	if (memory != AGAIN)
		get(j, k, memory, u);
	memset(u->send, 0, u->send_bytes);
	t0 = bench_start(&j->b);
	k->call(j, u);
	sink += bench_touch(u->recv, u->recv_bytes);
	ns = bench_now_ns() - t0;
	if (memory != AGAIN)
		put(u);
	return bench_max(&j->b, ns);
}

static void measure(struct bench_job *j, const struct kind *k, enum memory memory,
		    uint64_t budget_ns, int least)
{
	static struct bench_samples s;
	struct buffers u = { 0 };
	uint64_t since;
	int done = 0, warmup = 8;

	if (memory == AGAIN)
		get(j, k, memory, &u);
	for (int i = 0; i < warmup; i++)
		sample(j, k, memory, &u);
	since = bench_now_ns();
	for (s.count = 0;
	     bench_agree(&j->b, done < least || (done < 400 && bench_now_ns() - since < budget_ns));
	     done++) {
		uint64_t ns = sample(j, k, memory, &u);

		if (!j->b.rank)
			s.ns[s.count++] = ns;
	}
	if (memory == AGAIN)
		put(&u);
	if (j->b.rank)
		return;
	bench_sort(&s);
	printf("{\"what\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"memory\": \"%s\", \"samples\": "
	       "%d, \"p0_us\": %.2f, "
	       "\"p50_us\": %.2f}\n",
	       k->name, j->bytes, j->b.ranks, memory_names[memory], s.count,
	       bench_percentile_us(&s, 0), bench_percentile_us(&s, 50));
	fflush(stdout);
}

static void measure_total(struct bench_job *j, const struct kind *k, uint64_t calls)
{
	static volatile uint64_t sink;
	struct buffers u = { 0 };
	uint64_t ns;

	get(j, k, AGAIN, &u);
	memset(u.send, 0, u.send_bytes);
	if (calls * j->bytes * (uint64_t)j->b.ranks > MOVED_MAX)
		calls = MOVED_MAX / (j->bytes * (uint64_t)j->b.ranks);
	MPI_Comm_dup(MPI_COMM_WORLD, &j->world);
	ns = bench_start(&j->b);
	for (uint64_t i = 0; i < calls; i++) {
		k->call(j, &u);
		sink += bench_touch(u.recv, u.recv_bytes);
	}
	ns = bench_max(&j->b, bench_now_ns() - ns);
	MPI_Comm_free(&j->world);
	put(&u);
	if (j->b.rank)
		return;
	printf("{\"what\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"calls\": %llu, \"total_us\": "
	       "%.1f}\n", k->name, j->bytes, j->b.ranks, (unsigned long long)calls,
	       (double)ns / 1000);
	fflush(stdout);
}

static bool has(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; p && *p; p = strchr(p, ','), p = p ? p + 1 : p)
		if (!strncmp(p, word, n) && (p[n] == ',' || !p[n]))
			return true;
	return !list;
}

static void set_bytes(struct bench_job *j, uint64_t bytes)
{
	j->bytes = bytes;
	j->count = (int)bytes;
	for (int r = 0; r < j->b.ranks; r++) {
		j->counts[r] = (int)bytes;
		j->starts[r] = (int)bytes * r;
	}
}

static void open_job(struct bench_job *j)
{
	int one = 1;

	job_open(&j->b);
	j->world = MPI_COMM_WORLD;
	MPI_Cart_create(MPI_COMM_WORLD, 1, &j->b.ranks, &one, 0, &j->ring);
	j->counts = calloc((size_t)j->b.ranks, sizeof *j->counts);
	j->starts = calloc((size_t)j->b.ranks, sizeof *j->starts);
	if (!j->counts || !j->starts)
		job_die("no memory");
}

int main(int argc, char **argv)
{
	const char *what = NULL, *memory = NULL, *v;
	uint64_t sizes[JOB_MAX_LIST] = { 1 << 20 }, budget_ns = 20000000, total = 0;
	int size_count = 1, calls = 9, pin = 0;
	struct bench_job j = { 0 };

	MPI_Init(&argc, &argv);
	for (int i = 1; i < argc; i++) {
		if ((v = job_value(argv[i], "what")))
			what = v;
		else if ((v = job_value(argv[i], "memory")))
			memory = v;
		else if ((v = job_value(argv[i], "sizes")))
			size_count = job_parse_list(sizes, v);
		else if ((v = job_value(argv[i], "ms")))
			budget_ns = strtoull(v, NULL, 10) * 1000000;
		else if ((v = job_value(argv[i], "calls")))
			calls = atoi(v);
		else if ((v = job_value(argv[i], "total")))
			total = strtoull(v, NULL, 10);
		else if ((v = job_value(argv[i], "pin")))
			pin = atoi(v);
		else if ((v = job_value(argv[i], "nice")))
			job_set_nice(atoi(v));
		else
			job_die("unknown argument");
	}
	open_job(&j);
	if (pin && bench_pin(j.b.rank % bench_cpus()))
		job_die("cannot pin");
	for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
		for (int s = 0; has(what, kinds[k].name) && s < size_count; s++) {
			set_bytes(&j, sizes[s]);
			if (total)
				measure_total(&j, &kinds[k], total);
			for (int m = 0; m < MEMORIES && !total; m++)
				if (has(memory, memory_names[m]))
					measure(&j, &kinds[k], (enum memory)m, budget_ns, calls);
		}
	MPI_Comm_free(&j.ring);
	MPI_Finalize();
	return 0;
}
