/* SPDX-License-Identifier: BSD-3-Clause */
#include "goal_execute.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "node/node.h"
#include "region/region.h"
#include "tool.h"

#define MEMORY_MAX (1ull << 30) /* of a rank */
#define JOIN_NS (30ull * 1000000000)
/* A rank that waits for others to begin polls so often before it sleeps, unless ranks share CPUs:
 * one that sleeps begins its run later than the others. */
#define BARRIER_POLLS 200000u

/* ---- one rank ---------------------------------------------------------------------------- */

/* All ranks begin a run together. */
static void barrier(struct goal_execution *x, uint32_t number, bool shares_cpus)
{
	uint32_t polls = shares_cpus ? 64 : BARRIER_POLLS;

	if (!x->arrived)
		return;
	atomic_fetch_add(x->arrived, 1);
	for (uint32_t n = 0; atomic_load(x->arrived) < number * x->program->ranks; n++) {
		os_cpu_relax();
		if (n % polls == polls - 1)
			usleep(20);
	}
}

/* A rank's memory while it runs. */
struct memory {
	const struct goal_image *image;
	const unsigned char *first; /* its contents before a run */
	void *space[GOAL_SPACES_MAX];
};

static void write_first(const struct memory *m, uint32_t space, uint64_t off, uint64_t bytes)
{
	if (bytes)
		memcpy((char *)m->space[space] + off, m->first + m->image->offset[space] + off,
		       bytes);
}

static void write_all(const struct memory *m)
{
	for (uint32_t k = 0; k <= m->image->block->user_count; k++)
		write_first(m, k, 0, m->image->bytes[k]);
}

/* The kernel may begin all ranks on one CPU, and leave them there for a quarter of a second. */
static void go_to_cpu(const cpu_set_t *allowed, uint32_t number)
{
	cpu_set_t own;

	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, allowed) || number--)
			continue;
		CPU_ZERO(&own);
		CPU_SET(cpu, &own);
		sched_setaffinity(0, sizeof own, &own);
		return;
	}
}

/* A rank has a CPU of its own then, if there are enough, and its memory is awake. */
static void warm_up(const struct goal_execution *x, uint32_t rank, const struct memory *m)
{
	uint64_t until = os_now_ns() + x->warm_ns;
	cpu_set_t allowed;
	bool is_free = x->arrived && !sched_getaffinity(0, sizeof allowed, &allowed);

	if (is_free)
		go_to_cpu(&allowed, rank % (uint32_t)CPU_COUNT(&allowed));
	while (os_now_ns() < until)
		write_all(m);
	if (is_free)
		sched_setaffinity(0, sizeof allowed, &allowed);
}

/* Writes what operations read, as an application has just computed what it sends. */
static void write_sources(const struct memory *m)
{
	const struct goal_block *b = m->image->block;

	for (uint32_t i = 0; i < b->op_count; i++) {
		const struct goal_op *op = &goal_ops_const(b)[i];
		const struct goal_segment *l = goal_segments(b) + op->segment;

		if (op->type == GOAL_SEND && !op->segment_count)
			write_first(m, op->mem, op->off, op->bytes);
		for (uint32_t k = 0; op->type == GOAL_SEND && k < op->segment_count; k++)
			write_first(m, l[k].mem, l[k].off, l[k].bytes);
		if (op->type != GOAL_COPY && !goal_is_arithmetic(op))
			continue;
		write_first(m, op->src_mem, op->src_off, op->bytes);
		if (op->type != GOAL_COPY)
			write_first(m, op->src2_mem, op->src2_off, op->bytes);
	}
}

static int check_memory(struct goal_execution *x, uint32_t rank, const struct memory *m)
{
	struct goal_result *r = &x->results[rank];

	for (uint32_t k = 0; k <= m->image->block->user_count; k++) {
		const unsigned char *is = m->space[k],
				    *expected = m->image->memory + m->image->offset[k];

		if (!m->image->bytes[k] || !memcmp(is, expected, m->image->bytes[k]))
			continue;
		r->wrong_mem = k;
		while (is[r->wrong_off] == expected[r->wrong_off])
			r->wrong_off++;
		return 1;
	}
	return 0;
}

static bool shares_cpus_with_others(const struct goal_execution *x)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof set, &set) || CPU_COUNT(&set) < (int)x->program->ranks;
}

static int run_times(struct goal_execution *x, uint32_t rank, struct sched_inst *s,
		     const struct memory *m)
{
	struct goal_result *r = &x->results[rank];
	struct goal_interval *intervals = x->intervals + (x->arrived ? (size_t)rank * x->times : 0);
	bool shares_cpus = shares_cpus_with_others(x);
	int ret = 0;

	if (x->warm_ns)
		warm_up(x, rank, m);
	for (uint32_t k = 0; k < x->times && !ret; k++) {
		if (!k || x->verify)
			write_all(m);
		else
			write_sources(m);
		barrier(x, k + 1, shares_cpus);
		intervals[k].begin_ns = os_now_ns();
		ret = sched_execute(s, UINT64_MAX);
		intervals[k].end_ns = os_now_ns();
		if (ret)
			break;
		r->runs_done++;
		if (x->verify)
			ret = check_memory(x, rank, m);
	}
	if (!ret && x->times_of_ops && x->times_of_ops[rank] && sched_times(s))
		memcpy(x->times_of_ops[rank], sched_times(s),
		       m->image->block->op_count * sizeof **x->times_of_ops);
	return ret;
}

/* Runs the open schedule on memory that is made here. */
static int run_on(struct goal_execution *x, uint32_t rank, struct sched_inst *s,
		  struct memory *m)
{
	unsigned char *first = malloc(m->image->all + 1);
	int ret = first ? 0 : -ENOMEM;

	m->first = first;
	m->space[0] = sched_scratch(s);
	if (first)
		goal_reference_fill(m->image, rank, first);
	if (!ret)
		ret = run_times(x, rank, s, m);
	free(first);
	return ret;
}

static int join_and_run(struct goal_execution *x, uint32_t rank)
{
	const struct goal_image *m = &x->reference.images[rank];
	struct memory memory = { .image = m };
	struct sched_open o = { .block = m->block,
				.block_bytes = m->block->bytes,
				.buffers = memory.space + 1,
				.buffer_bytes = m->bytes + 1,
				.buffer_count = m->block->user_count,
				.name = "goal run" };
	struct sched_group *g;
	struct sched_inst *s;
	int ret;

	base_log_set_rank((int)rank);
	region_expect_arenas(x->program->ranks);
	ret = sched_join(x->group, (int)rank, (int)x->program->ranks, JOIN_NS, &g);
	if (ret)
		return ret;
	if (x->ops)
		sched_keep_times(g, true);
	for (uint32_t b = 0; b < o.buffer_count && !ret; b++) {
		memory.space[b + 1] = sched_alloc(g, m->bytes[b + 1] + 1);
		ret = memory.space[b + 1] ? 0 : -ENOMEM;
	}
	if (!ret)
		ret = sched_open(g, &o, &s);
	if (!ret)
		ret = run_on(x, rank, s, &memory);
	x->results[rank].error = ret;
	sched_group_destroy(g);
	return ret;
}

/* Returns: whether the rank failed; its result says why. */
static bool be_rank(struct goal_execution *x, uint32_t rank)
{
	struct goal_result *r = &x->results[rank];

	r->error = join_and_run(x, rank);
	if (r->error == -ENOTSUP && node_refusal_error() == -ENOMEM)
		r->error = -ENOMEM; /* for the memory of all ranks, which each maps */
	if (r->error == -ENOTSUP)
		snprintf(r->refusal, sizeof r->refusal, "%s", node_refusal());
	return r->error;
}

/* ---- ranks of our own -------------------------------------------------------------------- */

static void *map_shared(uint64_t bytes)
{
	void *p = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int map_results(struct goal_execution *x)
{
	uint32_t n = x->program->ranks;

	x->results = map_shared(n * sizeof *x->results);
	x->intervals = map_shared((uint64_t)n * x->times * sizeof *x->intervals);
	x->arrived = map_shared(sizeof *x->arrived);
	if (!x->results || !x->intervals || !x->arrived)
		return -ENOMEM;
	if (!x->ops)
		return 0;
	x->times_of_ops = calloc(n, sizeof *x->times_of_ops);
	for (uint32_t r = 0; x->times_of_ops && r < n; r++) {
		x->times_of_ops[r] = map_shared(x->reference.images[r].block->op_count *
						sizeof **x->times_of_ops);
		if (!x->times_of_ops[r])
			return -ENOMEM;
	}
	return x->times_of_ops ? 0 : -ENOMEM;
}

static void end_all(const pid_t *pids, uint32_t n)
{
	for (uint32_t r = 0; r < n; r++)
		if (pids[r] > 0)
			kill(pids[r], SIGKILL);
}

/* A rank that could not store its result. */
static void note_end(struct goal_result *r, int status)
{
	if (WIFSIGNALED(status)) {
		r->ended_by = WTERMSIG(status);
		r->error = -EINTR;
	} else if (!r->error) {
		r->error = -ECHILD;
	}
}

bool goal_is_consequence(int error)
{
	return error == -EPIPE || error == -EOWNERDEAD || error == -ECONNRESET;
}

static void wait_for_all(struct goal_execution *x, pid_t *pids)
{
	uint32_t n = x->program->ranks, alive = n;
	bool is_ending = false; /* this tool ends the other ranks */
	pid_t pid;
	int status;

	while (alive && (pid = wait(&status)) > 0) {
		uint32_t r = 0;

		while (r < n && pids[r] != pid)
			r++;
		if (r == n)
			continue;
		alive--;
		pids[r] = 0;
		if (!status || is_ending)
			continue;
		note_end(&x->results[r], status);
		/* a rank that dies closes its connections before it can be waited for: its own end
		 * is the cause to be told, and is still to come */
		if (goal_is_consequence(x->results[r].error))
			continue;
		if (atomic_load(x->arrived) < n) {
			/* a rank that waits for others to begin looks at nothing else */
			is_ending = true;
			end_all(pids, n);
		}
	}
}

int goal_execute_all(struct goal_execution *x, uint32_t *out_rank)
{
	pid_t pids[GOAL_EXECUTE_RANKS_MAX] = { 0 }, parent = getpid();

	if (map_results(x))
		return -ENOMEM;
	snprintf(x->group, sizeof x->group, "run-%d-%llx", (int)parent,
		 (unsigned long long)os_random_u64());
	fflush(stdout);
	for (uint32_t r = 0; r < x->program->ranks; r++) {
		pids[r] = fork();
		if (pids[r] < 0) {
			int error = errno;

			end_all(pids, r);
			*out_rank = r;
			return -error;
		}
		if (pids[r])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(TOOL_FAILED);
		_exit(be_rank(x, r) ? TOOL_FAILED : TOOL_DONE);
	}
	wait_for_all(x, pids);
	return 0;
}

/* ---- ranks of mpiexec -------------------------------------------------------------------- */

int goal_execute_rank(struct goal_execution *x, uint32_t rank)
{
	const struct goal_image *m = &x->reference.images[rank];

	/* the launcher's process on this machine is the parent of all */
	snprintf(x->group, sizeof x->group, "job-%d", (int)getppid());
	x->results = calloc(x->program->ranks, sizeof *x->results);
	x->intervals = calloc(x->times, sizeof *x->intervals);
	if (!x->results || !x->intervals)
		return -ENOMEM;
	if (x->ops) {
		x->times_of_ops = calloc(x->program->ranks, sizeof *x->times_of_ops);
		if (!x->times_of_ops)
			return -ENOMEM;
		x->times_of_ops[rank] = calloc(m->block->op_count + 1, sizeof **x->times_of_ops);
		if (!x->times_of_ops[rank])
			return -ENOMEM;
	}
	be_rank(x, rank);
	return 0;
}

int goal_execution_prepare(struct goal_execution *x)
{
	return goal_reference_make(&x->reference, x->program, MEMORY_MAX);
}

void goal_execution_free(struct goal_execution *x)
{
	uint32_t n = x->program ? x->program->ranks : 0;

	goal_reference_free(&x->reference);
	if (x->arrived) {
		munmap(x->results, n * sizeof *x->results + 1);
		munmap(x->intervals, (uint64_t)n * x->times * sizeof *x->intervals + 1);
		munmap(x->arrived, sizeof *x->arrived + 1);
	}
}

/* ---- durations --------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* first, end: ranks whose last end is that of the run. */
static int durations(const struct goal_execution *x, uint32_t first, uint32_t end,
		     struct goal_durations *out)
{
	uint32_t ranks = x->arrived ? x->program->ranks : 1, runs = UINT32_MAX;
	uint64_t *ns;

	*out = (struct goal_durations){ 0 };
	for (uint32_t r = first; r < end; r++)
		runs = (uint32_t)base_min_u64(runs, x->results[r].runs_done);
	if (runs <= x->warm)
		return 0;
	runs -= x->warm;
	ns = malloc(runs * sizeof *ns);
	if (!ns)
		return -ENOMEM;
	for (uint32_t k = 0; k < runs; k++) {
		const struct goal_interval *run = x->intervals + x->warm + k;
		uint64_t began = 0, ended = 0;

		for (uint32_t r = 0; r < ranks; r++)
			began = base_max_u64(began, run[(size_t)r * x->times].begin_ns);
		for (uint32_t r = x->arrived ? first : 0; r < (x->arrived ? end : 1); r++)
			ended = base_max_u64(ended, run[(size_t)r * x->times].end_ns);
		ns[k] = ended > began ? ended - began : 0;
	}
	qsort(ns, runs, sizeof *ns, by_size);
	*out = (struct goal_durations){ ns[0], ns[runs / 10], ns[runs / 2],
					ns[(uint64_t)runs * 9 / 10] };
	free(ns);
	return 0;
}

int goal_durations_of(const struct goal_execution *x, uint32_t rank, struct goal_durations *out)
{
	return durations(x, rank, rank + 1, out);
}

int goal_durations_all(const struct goal_execution *x, struct goal_durations *out)
{
	return durations(x, 0, x->program->ranks, out);
}
