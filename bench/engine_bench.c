/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * engine_bench: the figures of a copy engine that `sluice check` leaves out, for people who have
 * the hardware; `bench/run dsa` and `bench/run kmod` launch it. A JSON line for each.
 *
 *   engine_bench ENGINE [what=tables,copy,ranks] [sizes=64K,1M] [processes=1,2,4] [ms=200]
 *
 *   tables   mprotect and mremap of so many bytes, before the engine is opened and while it is: a
 *            device that uses the page tables of the process makes changes of them dearer
 *   copy     one copy at a time (alone), or a transfer cut into pieces of which the channel holds
 *            as many as it can (full), as a part of a transfer that fits the cache or that does
 * not; beside it this CPU's own copy, in turn ranks    processes of their own that share the
 * engine's channels, as ranks do: what all of them and the slowest one copy
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../tools/sluice/check.h"
#include "bench.h"

enum { LIST_MAX = 16, WARM_UP = 2, CALLS_MAX = 2000, FULL_PIECES = 8 };
#define FULL_LEAST ((size_t)64 << 10)
#define PAST_CACHE ((size_t)1 << 40) /* the length of a transfer that no cache holds */

static struct {
	const struct engine_ops *ops;
	const char *what;
	size_t sizes[LIST_MAX], processes[LIST_MAX];
	int size_count, process_count;
	uint64_t budget_ns;
} opt = { .what = "tables,copy,ranks", .budget_ns = 200000000 };

static struct engine_chan *chan;
static struct engine_caps caps;
static struct check_copy *copies; /* [caps.depth] */
static struct bench_samples by_engine, by_cpu;

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, "engine_bench: %s: %s\n", what, why);
	exit(1);
}

/* ---- arguments --------------------------------------------------------------------------- */

static int read_list(const char *text, size_t out[LIST_MAX])
{
	int n = 0;

	while (n < LIST_MAX && *text) {
		char *end;
		size_t value = strtoull(text, &end, 10);

		if (end == text || !value)
			die(text, "no list of numbers");
		value <<= *end == 'K' ? 10 : *end == 'M' ? 20 : 0;
		out[n++] = value;
		end += *end == 'K' || *end == 'M';
		text = end + (*end == ',');
		if (end == text && *end)
			die(text, "no list of numbers");
	}
	return n;
}

static void read_argument(const char *a)
{
	const char *value = strchr(a, '=');

	value = value ? value + 1 : "";
	if (!strncmp(a, "what=", 5))
		opt.what = value;
	else if (!strncmp(a, "sizes=", 6))
		opt.size_count = read_list(value, opt.sizes);
	else if (!strncmp(a, "processes=", 10))
		opt.process_count = read_list(value, opt.processes);
	else if (!strncmp(a, "ms=", 3))
		opt.budget_ns = strtoull(value, NULL, 10) * 1000000;
	else
		die(a, "no such argument");
}

/* ---- the engine -------------------------------------------------------------------------- */

/* Opens the channel of process number `rank`. */
static void open_channel(int rank)
{
	char reason[600] = "";
	int rc = opt.ops->probe(reason, sizeof reason), count;

	if (rc)
		die(opt.ops->name, *reason ? reason : strerror(-rc));
	count = opt.ops->chan_count(-1);
	rc = count > 0 ? opt.ops->chan_open(-1, rank % count, &chan) : -ENODEV;
	if (rc)
		die(opt.ops->name, strerror(-rc));
	opt.ops->caps(chan, &caps);
	copies = calloc(caps.depth, sizeof *copies);
	if (!copies)
		die("memory", strerror(errno));
}

/* Memory as an arena's: shared, present, announced. */
static char *memory(size_t bytes)
{
	char *p = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		die("memory", strerror(errno));
	memset(p, 1, 2 * bytes);
	if (engine_memory(chan, p, 2 * bytes, 0))
		die("memory", "the engine cannot copy it");
	return p;
}

static size_t piece_of(size_t bytes) { return base_max_u64(FULL_LEAST, bytes / FULL_PIECES); }

static void copy(char *p, size_t bytes, size_t fragment, size_t total)
{
	int rc = check_copy(chan, copies, p + bytes, p, bytes, fragment, total);

	if (rc)
		die("a copy failed", strerror(-rc));
}

/* ---- tables ------------------------------------------------------------------------------ */

static void measure_tables(void)
{
	struct check_tables closed[LIST_MAX], open;

	for (int i = 0; i < opt.size_count; i++)
		check_tables(opt.sizes[i], &closed[i]);
	open_channel(0);
	for (int i = 0; i < opt.size_count; i++) {
		check_tables(opt.sizes[i], &open);
		printf("{\"what\": \"tables\", \"bytes\": %zu, \"mprotect_closed_ns\": %llu, "
		       "\"mprotect_open_ns\": %llu, \"mremap_closed_ns\": %llu, "
		       "\"mremap_open_ns\": %llu}\n",
		       opt.sizes[i], (unsigned long long)closed[i].mprotect_ns,
		       (unsigned long long)open.mprotect_ns,
		       (unsigned long long)closed[i].mremap_ns, (unsigned long long)open.mremap_ns);
	}
	fflush(stdout);
}

/* ---- one process ------------------------------------------------------------------------- */

static void say_copy(size_t bytes, bool is_full, bool to_cache)
{
	bench_sort(&by_engine);
	bench_sort(&by_cpu);
	printf("{\"what\": \"copy\", \"bytes\": %zu, \"how\": \"%s\", \"to\": \"%s\", "
	       "\"engine_us\": %.3f, \"engine_p0_us\": %.3f, \"engine_p90_us\": %.3f, "
	       "\"cpu_us\": %.3f, \"cpu_p0_us\": %.3f, \"cpu_p90_us\": %.3f, \"samples\": %d}\n",
	       bytes, is_full ? "full" : "alone", to_cache ? "cache" : "memory",
	       bench_percentile_us(&by_engine, 50), bench_percentile_us(&by_engine, 0),
	       bench_percentile_us(&by_engine, 90), bench_percentile_us(&by_cpu, 50),
	       bench_percentile_us(&by_cpu, 0), bench_percentile_us(&by_cpu, 90), by_engine.count);
	fflush(stdout);
}

/* The source is written before each copy, as a program does, and the sum of the copy is read
 * afterwards. */
static uint64_t timed(char *p, size_t bytes, bool by_cpu_, size_t fragment, size_t total)
{
	volatile uint64_t sink;
	uint64_t begin_ns;

	memset(p, (int)bench_now_ns(), bytes);
	begin_ns = bench_now_ns();
	if (by_cpu_)
		os_copy(p + bytes, p, bytes, os_copy_pick(bytes, total));
	else
		copy(p, bytes, fragment, total);
	sink = bench_read(p + bytes, bytes);
	(void)sink;
	return bench_now_ns() - begin_ns;
}

static void measure_copy(size_t bytes, bool is_full, bool to_cache)
{
	size_t total = to_cache ? bytes : PAST_CACHE, fragment = is_full ? piece_of(bytes) : bytes;
	uint64_t until = bench_now_ns() + opt.budget_ns;
	char *p = memory(bytes);

	by_engine.count = by_cpu.count = 0;
	for (int i = 0; i < CALLS_MAX && (i < WARM_UP + 5 || bench_now_ns() < until); i++) {
		uint64_t engine_ns = timed(p, bytes, false, fragment, total);
		uint64_t cpu_ns = timed(p, bytes, true, fragment, total);

		if (i < WARM_UP)
			continue;
		by_engine.ns[by_engine.count++] = engine_ns;
		by_cpu.ns[by_cpu.count++] = cpu_ns;
	}
	say_copy(bytes, is_full, to_cache);
	munmap(p, 2 * bytes);
}

static void measure_copies(void)
{
	if (!chan)
		open_channel(0);
	for (int i = 0; i < opt.size_count; i++)
		for (int how = 0; how < 4; how++)
			measure_copy(opt.sizes[i], how & 1, !(how & 2));
}

/* ---- many processes ---------------------------------------------------------------------- */

/* Written by each process in bench.area->value[rank]. */
enum { MOVED_BYTES, TOOK_NS };

static void copy_for_a_while(struct bench *b, size_t bytes)
{
	uint64_t moved = 0, begin_ns, end_ns;
	char *p;

	open_channel(b->rank);
	p = memory(bytes);
	for (int i = 0; i < WARM_UP; i++)
		copy(p, bytes, piece_of(bytes), bytes);
	begin_ns = bench_start_common(b);
	do {
		copy(p, bytes, piece_of(bytes), bytes);
		moved += bytes;
		end_ns = bench_now_ns();
	} while (end_ns - begin_ns < opt.budget_ns);
	b->area->value[b->rank][MOVED_BYTES] = moved;
	b->area->value[b->rank][TOOK_NS] = end_ns - begin_ns;
	opt.ops->chan_close(chan);
}

static void start(struct bench *b, int rank, size_t bytes)
{
	pid_t parent = getpid(), pid = fork();

	if (pid < 0)
		die("fork", strerror(errno));
	if (pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	b->rank = rank;
	copy_for_a_while(b, bytes);
	_exit(0);
}

static void measure_ranks(int n, size_t bytes)
{
	struct bench b = { .ranks = n, .crowded = n > bench_cpus() };
	double all = 0, least = 0;
	int status, failed = 0;

	b.area = mmap(NULL, sizeof *b.area, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (b.area == MAP_FAILED)
		die("memory", strerror(errno));
	fflush(stdout);
	for (int r = 0; r < n; r++)
		start(&b, r, bytes);
	/* others would wait for one that has failed */
	while (!failed && wait(&status) > 0)
		failed = status;
	if (failed)
		die("ranks", "a process failed");
	for (int r = 0; r < n; r++) {
		double rate =
			(double)b.area->value[r][MOVED_BYTES] / (double)b.area->value[r][TOOK_NS];

		all += rate;
		least = r && least < rate ? least : rate;
	}
	printf("{\"what\": \"ranks\", \"processes\": %d, \"bytes\": %zu, \"all_gb_s\": %.3f, "
	       "\"least_gb_s\": %.3f}\n",
	       n, bytes, all, least);
	munmap(b.area, sizeof *b.area);
}

/* ---- the whole --------------------------------------------------------------------------- */

/* First of all, as the engine must not be open when this process forks. */
static void measure_all_ranks(void)
{
	for (int i = 0; i < opt.process_count; i++)
		for (int k = 0; k < opt.size_count; k++)
			measure_ranks((int)base_min_u64(opt.processes[i], BENCH_MAX_RANKS),
				      opt.sizes[k]);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char problems[2048];

	if (argc < 2 || !(opt.ops = engine_find(argv[1])))
		die(argc < 2 ? "engine_bench" : argv[1], "no such engine");
	opt.size_count = read_list("64K,256K,1M,4M,16M", opt.sizes);
	opt.process_count = read_list("1,2,4", opt.processes);
	for (int i = 2; i < argc; i++)
		read_argument(argv[i]);
	if (base_options_load(NULL, problems, sizeof problems))
		die("options", problems);
	if (strstr(opt.what, "ranks"))
		measure_all_ranks();
	if (strstr(opt.what, "tables"))
		measure_tables();
	if (strstr(opt.what, "copy"))
		measure_copies();
	if (chan)
		opt.ops->chan_close(chan);
	return 0;
}
