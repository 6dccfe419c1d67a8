/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * copy_kernels: which copy kernel, by size, by where the bytes lie, and by how many copy. Two
 * processes, memory that both have mapped, no MPI. What doc/adr/0005-copy-kernels.md rests on.
 *
 * Process 1 receives. Before each copy the source is
 *   own    rewritten by those who will copy it, each its part
 *   other  rewritten by process 0 (what a broadcast finds); of two copiers, one owns it
 *   cold   flushed from all caches, like the destination
 * With one copier process 1 copies all; with two process 0 copies the second half. Then process 1
 * reads one byte of each page, and then the rest: stores that bypass the caches make this slow, so
 * the kernels are to be compared by the sum ("used"). On a busy machine look at P0.
 *
 *   copy_kernels [--calls N] [--pages huge|small] [--kernel NAME] [SIZE ...]
 */
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "os/os.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum residency { OWN, OTHER, COLD };
static const char *const residency_names[] = { "own", "other", "cold" };
static const char *const kernel_names[] = { "auto", "plain", "movsb", "nontemporal",
					    "interleaved" };

struct setup {
	struct bench b;
	int calls;
	bool huge;
	char *src, *dst;
	size_t room; /* of each */
};

struct cell {
	enum base_copy_kernel kernel;
	enum residency residency;
	int copiers;
	size_t bytes;
};

/* ---- one call ---------------------------------------------------------------------------- */

static void flush(const char *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i += BASE_CACHE_LINE)
		_mm_clflush(p + i);
	_mm_mfence();
}

/* The part of [0, bytes) that this process copies. */
static void part_of(const struct cell *c, int rank, size_t *at, size_t *bytes)
{
	size_t half = c->copiers == 1 ? c->bytes : base_round_down(c->bytes / 2, OS_PAGE);

	*at = rank == 1 ? 0 : half;
	*bytes = rank == 1 ? half : c->bytes - half;
}

static void prepare(struct setup *s, const struct cell *c, uint64_t call)
{
	size_t at, bytes;

	part_of(c, s->b.rank, &at, &bytes);
	if (c->residency == OWN && bytes)
		bench_fill(s->src + at, bytes, bench_seed(call, 0));
	bench_sync(&s->b);
	if (c->residency != OWN && s->b.rank == 0)
		bench_fill(s->src, c->bytes, bench_seed(call, 0));
	if (c->residency == COLD && s->b.rank == 0) {
		flush(s->src, c->bytes);
		flush(s->dst, c->bytes);
	}
}

struct times {
	uint64_t copy_ns, touch_ns, read_ns;
};

static uint64_t read_all(const char *p, size_t bytes)
{
	const uint64_t *words = (const uint64_t *)p;
	uint64_t sum = 0;

	for (size_t i = 0; i < bytes / 8; i++)
		sum += words[i];
	return sum;
}

/* Times are the receiver's: from the common start until all have copied, then its two reads. */
static struct times call_once(struct setup *s, const struct cell *c, uint64_t call)
{
	struct times t = { 0 };
	uint64_t begin, copied, touched;
	volatile uint64_t sink;
	size_t at, bytes;

	prepare(s, c, call);
	part_of(c, s->b.rank, &at, &bytes);
	begin = bench_start(&s->b);
	if (bytes)
		os_copy(s->dst + at, s->src + at, bytes, c->kernel);
	bench_sync(&s->b);
	if (s->b.rank == 1) {
		copied = bench_now_ns();
		sink = bench_touch(s->dst, c->bytes);
		touched = bench_now_ns();
		sink = read_all(s->dst, c->bytes);
		t.copy_ns = copied - begin;
		t.touch_ns = touched - copied;
		t.read_ns = bench_now_ns() - touched;
		(void)sink;
	}
	bench_sync(&s->b);
	return t;
}

/* ---- the table --------------------------------------------------------------------------- */

static struct bench_samples copy_samples, touch_samples, read_samples, used_samples;

static void print_cell(const struct cell *c)
{
	double best = bench_percentile_us(&copy_samples, 0),
	       copy = bench_percentile_us(&copy_samples, 50);
	double bytes = (double)c->bytes;

	printf("%-6s %d %9zu  %-11s %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f %8.1f\n",
	       residency_names[c->residency], c->copiers, c->bytes, kernel_names[c->kernel],
	       bytes / best / 1e3, bytes / copy / 1e3, best, copy,
	       bench_percentile_us(&touch_samples, 50), bench_percentile_us(&read_samples, 50),
	       bench_percentile_us(&used_samples, 0), bench_percentile_us(&used_samples, 50));
	fflush(stdout);
}

static void samples_add(struct bench_samples *to, uint64_t ns)
{
	to->ns[to->count++] = ns;
}

static void measure(struct setup *s, const struct cell *c)
{
	copy_samples.count = touch_samples.count = read_samples.count = used_samples.count = 0;
	for (int call = -2; call < s->calls; call++) {
		struct times t = call_once(s, c, (uint64_t)(call + 2));

		if (call < 0)
			continue;
		samples_add(&copy_samples, t.copy_ns);
		samples_add(&touch_samples, t.touch_ns);
		samples_add(&read_samples, t.read_ns);
		samples_add(&used_samples, t.copy_ns + t.touch_ns + t.read_ns);
	}
	bench_sort(&copy_samples);
	bench_sort(&touch_samples);
	bench_sort(&read_samples);
	bench_sort(&used_samples);
	if (s->b.rank == 1)
		print_cell(c);
}

/* Memory that both map: huge where asked for and possible, present, and warm in the receiver. */
static char *make_buffer(size_t room, bool huge)
{
	char *hole = mmap(NULL, room + OS_HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *p = (char *)base_round_up((uintptr_t)hole, OS_HUGE);
	int fd = memfd_create("copy_kernels", MFD_CLOEXEC);

	if (hole == MAP_FAILED || fd < 0 || ftruncate(fd, (off_t)room) ||
	    mmap(p, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		perror("copy_kernels: memory");
		exit(1);
	}
	close(fd);
	memset(p, 1, room);
	if (huge && madvise(p, room, MADV_COLLAPSE))
		fprintf(stderr, "copy_kernels: no huge pages: %m\n");
	return p;
}

static void measure_size(struct setup *s, size_t bytes, int only_kernel)
{
	for (enum residency r = OWN; r <= COLD; r++)
		for (int copiers = 1; copiers <= 2; copiers++)
			for (int kernel = BASE_COPY_PLAIN; kernel < BASE_COPY_KERNELS; kernel++) {
				struct cell c = { kernel, r, copiers, bytes };

				if ((only_kernel < 0 || only_kernel == kernel) &&
				    os_copy_has(kernel))
					measure(s, &c);
			}
}

static void print_head(const struct setup *s)
{
	printf("# %d CPUs, L2 %llu KiB, last level %llu KiB, %s pages, %d calls\n", bench_cpus(),
	       (unsigned long long)os_l2_bytes() >> 10,
	       (unsigned long long)os_llc_bytes() >> 10, s->huge ? "huge" : "small", s->calls);
	printf("%-6s %s %9s  %-11s %17s %17s %8s %8s %17s\n", "# src", "n", "bytes", "kernel",
	       "GB/s P0      P50", "copy us P0    P50", "touch", "read", "used us P0    P50");
	fflush(stdout);
}

static int run(struct setup *s, const size_t *sizes, int count, int only_kernel)
{
	double line;

	bench_pin(s->b.rank);
	line = bench_line_ns(&s->b);
	if (s->b.rank == 1) {
		print_head(s);
		printf("# cache line there and back before: %.0f ns\n", line);
	}
	for (int i = 0; i < count; i++)
		measure_size(s, sizes[i], only_kernel);
	line = bench_line_ns(&s->b);
	if (s->b.rank == 1)
		printf("# cache line there and back after: %.0f ns\n", line);
	return 0;
}

static int kernel_of(const char *name)
{
	for (int k = BASE_COPY_PLAIN; k < BASE_COPY_KERNELS; k++)
		if (!strcmp(name, kernel_names[k]))
			return k;
	return -1;
}

int main(int argc, char **argv)
{
	size_t sizes[32] = { 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20 };
	struct setup s = { .b = { .ranks = 2 }, .calls = 31, .huge = true, .room = 0 };
	int count = 7, given = 0, kernel = -1, status = 0;
	pid_t child;
	char *end;

	for (int i = 1; i < argc; i++) {
		if (i + 1 < argc && !strcmp(argv[i], "--calls"))
			s.calls = atoi(argv[++i]);
		else if (i + 1 < argc && !strcmp(argv[i], "--pages"))
			s.huge = !strcmp(argv[++i], "huge");
		else if (i + 1 < argc && !strcmp(argv[i], "--kernel"))
			kernel = kernel_of(argv[++i]);
		else if (given < 32 && (sizes[given] = bench_parse_bytes(argv[i], &end)) && !*end)
			count = ++given;
		else
			return fprintf(stderr, "copy_kernels: cannot read \"%s\"\n", argv[i]), 2;
	}
	for (int i = 0; i < count; i++)
		s.room = base_max_u64(s.room, base_round_up(sizes[i], OS_HUGE));
	s.b.area = mmap(NULL, sizeof(*s.b.area), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	s.src = make_buffer(s.room, s.huge);
	s.dst = make_buffer(s.room, s.huge);
	child = fork();
	s.b.rank = child ? 1 : 0;
	run(&s, sizes, count, kernel);
	if (child)
		waitpid(child, &status, 0);
	return status != 0;
}
