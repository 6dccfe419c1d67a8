/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sluice goal run: runs a program with all its ranks as processes of this machine, forked here or
 * started by mpiexec. Results lie in memory that the ranks share with the first process.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "goal.h"
#include "goal_reference.h"
#include "goal/sched/sched.h"
#include "goal/text/text.h"
#include "node/node.h"
#include "region/region.h"

#define RANKS_MAX 256u
#define MEMORY_MAX (1ull << 30) /* of a rank */
#define RUNS_MAX 100000
#define TIMEOUT_MAX_MS 86400000
#define JOIN_NS (30ull * 1000000000)

static const char help[] =
	"usage: sluice goal run FILE [-n N] [--verify] [--times K] [--ops] [--replay]\n"
	"                       [--timeout MS] [--profile PREFIX] [--json]\n"
	"\n"
	"Runs a text or a compiled program, with all its ranks as processes of this\n"
	"machine. Under mpiexec each process is one rank. The command allocates the\n"
	"buffers and fills them with a pattern.\n"
	"\n"
	"  -n N, --ranks N   require a program of N ranks\n"
	"  --verify          compare the results with a sequential execution\n"
	"  --times K         run it K times\n"
	"  --ops             print when each operation of the last run began and ended\n"
	"  --replay          compare with the times of the run that was traced\n"
	"  --timeout MS      end a run without progress for MS milliseconds, and print the\n"
	"                    operations that it waits for\n"
	"  --profile PREFIX  write the times of all operations to PREFIX.RANK.PID.json\n"
	"  --json            print JSON\n"
	"\n"
	"Examples:\n"
	"  sluice goal run allreduce.goal --verify\n"
	"  mpiexec -n 4 sluice goal run barrier.goal --times 1000\n"
	"\n"
	"Exit code: 0 done; 1 a run failed or its results are wrong; 2 misuse.\n"
	"More: man sluice-goal\n";

struct options {
	const char *file, *profile;
	uint32_t ranks, times, timeout_ms;
	bool verify, ops, json, replay;
};

/* One rank's results, in shared memory. */
struct result {
	int error;              /* 0, -errno, or 1: memory is wrong */
	int ended_by;           /* signal that killed it; 0: none, or this tool's own */
	uint32_t wrong_mem;
	uint64_t wrong_off;
	uint64_t runs_done, least_ns, sum_ns;
	char refusal[200];      /* why the ranks cannot form a group */
};

struct job {
	struct options o;
	const struct goal_program *program;
	uint64_t *traced;             /* ns of each traced rank; NULL: no --replay */
	struct goal_reference reference;
	struct result *results;       /* by rank */
	struct sched_times **times;   /* by rank, of the last run; NULL: not asked for */
	_Atomic uint32_t *arrived;    /* at the start of a run; NULL: ranks of mpiexec */
	char group[48];
};

/* ---- one rank ---------------------------------------------------------------------------- */

/* All ranks begin a run together. */
static void barrier(struct job *j, uint32_t number)
{
	if (!j->arrived)
		return;
	atomic_fetch_add(j->arrived, 1);
	for (uint32_t spins = 0; atomic_load(j->arrived) < number * j->program->ranks; spins++)
		if (spins % 64 == 63)
			usleep(20);
}

static int check_memory(struct job *j, uint32_t rank, const struct sched_inst *s,
			void *const *buffers)
{
	const struct goal_image *m = &j->reference.images[rank];
	struct result *r = &j->results[rank];

	for (uint32_t k = 0; k <= m->block->user_count; k++) {
		const unsigned char *is = k ? buffers[k - 1] : sched_scratch(s),
				    *expected = m->memory + m->offset[k];

		if (!m->bytes[k] || !memcmp(is, expected, m->bytes[k]))
			continue;
		r->wrong_mem = k;
		while (is[r->wrong_off] == expected[r->wrong_off])
			r->wrong_off++;
		return 1;
	}
	return 0;
}

static int run_times(struct job *j, uint32_t rank, struct sched_inst *s, void *const *buffers)
{
	const struct goal_image *m = &j->reference.images[rank];
	struct result *r = &j->results[rank];
	unsigned char *first = malloc(m->all + 1);
	int ret = first ? 0 : -ENOMEM;

	if (first)
		goal_reference_fill(m, rank, first);
	for (uint32_t k = 0; k < j->o.times && !ret; k++) {
		uint64_t began, ns;

		if (m->bytes[0])
			memcpy(sched_scratch(s), first + m->offset[0], m->bytes[0]);
		for (uint32_t b = 0; b < m->block->user_count; b++)
			memcpy(buffers[b], first + m->offset[b + 1], m->bytes[b + 1]);
		barrier(j, k + 1);
		began = os_now_ns();
		ret = sched_run(s);
		if (!ret)
			ret = sched_wait(s, UINT64_MAX);
		ns = os_now_ns() - began;
		if (ret)
			break;
		r->runs_done++;
		r->sum_ns += ns;
		r->least_ns = k ? base_min_u64(r->least_ns, ns) : ns;
		if (j->o.verify)
			ret = check_memory(j, rank, s, buffers);
	}
	free(first);
	if (!ret && j->times && j->times[rank] && sched_times(s))
		memcpy(j->times[rank], sched_times(s), m->block->op_count * sizeof **j->times);
	return ret;
}

static int join_and_run(struct job *j, uint32_t rank)
{
	const struct goal_image *m = &j->reference.images[rank];
	void *buffers[GOAL_USERS_MAX] = { NULL };
	struct sched_open o = { .block = m->block,
				.block_bytes = m->block->bytes,
				.buffers = buffers,
				.buffer_bytes = m->bytes + 1,
				.buffer_count = m->block->user_count,
				.name = "goal run" };
	struct sched_group *g;
	struct sched_inst *s;
	int ret;

	base_log_set_rank((int)rank);
	region_expect_arenas(j->program->ranks);
	ret = sched_join(j->group, (int)rank, (int)j->program->ranks, JOIN_NS, &g);
	if (ret)
		return ret;
	if (j->o.ops)
		sched_keep_times(g, true);
	for (uint32_t b = 0; b < o.buffer_count && !ret; b++) {
		buffers[b] = sched_alloc(g, m->bytes[b + 1] + 1);
		ret = buffers[b] ? 0 : -ENOMEM;
	}
	if (!ret)
		ret = sched_open(g, &o, &s);
	if (!ret)
		ret = run_times(j, rank, s, buffers);
	j->results[rank].error = ret;
	sched_group_destroy(g);
	return ret;
}

/* Returns: whether the rank failed; its result says why. */
static bool be_rank(struct job *j, uint32_t rank)
{
	struct result *r = &j->results[rank];

	r->error = join_and_run(j, rank);
	if (r->error == -ENOTSUP)
		snprintf(r->refusal, sizeof r->refusal, "%s", node_refusal());
	return r->error;
}

/* ---- results ----------------------------------------------------------------------------- */

static void print_ops(const struct job *j, uint32_t rank)
{
	const struct goal_block *b = j->reference.images[rank].block;
	char text[128];

	for (uint32_t i = 0; i < b->op_count; i++) {
		const struct sched_times *t = &j->times[rank][i];

		text_print_op(b, i, text, sizeof text);
		if (j->o.json)
			printf("%s{\"op\": %u, \"text\": \"%s\", \"begin_ns\": %llu, \"end_ns\": "
			       "%llu}",
			       i ? ", " : "", i, text, (unsigned long long)t->begin_ns,
			       (unsigned long long)t->end_ns);
		else
			printf("  op %-5u %10.3f .. %10.3f us  %s\n", i, (double)t->begin_ns / 1e3,
			       (double)t->end_ns / 1e3, text);
	}
}

static void print_rank(const struct job *j, uint32_t rank)
{
	const struct result *r = &j->results[rank];
	double least = (double)r->least_ns / 1e3,
	       mean = r->runs_done ? (double)r->sum_ns / 1e3 / (double)r->runs_done : 0;

	if (j->o.json) {
		printf("{\"rank\": %u, \"runs\": %llu, \"error\": \"%s\", \"least_us\": %.3f, "
		       "\"mean_us\": %.3f",
		       rank, (unsigned long long)r->runs_done,
		       r->error > 0 ? "wrong data"
		       : r->error   ? strerror(-r->error)
				    : "",
		       least, mean);
		if (j->traced)
			goal_replay_print(j->traced[rank], r->least_ns, true);
		if (j->times) {
			printf(", \"ops\": [");
			print_ops(j, rank);
			printf("]");
		}
		printf("}");
		return;
	}
	if (r->runs_done)
		printf("rank %u: %llu runs, least %.3f us, mean %.3f us%s\n", rank,
		       (unsigned long long)r->runs_done, least, mean,
		       r->error      ? ", then failed"
		       : j->o.verify ? ", data verified"
				     : "");
	else
		printf("rank %u: no run has ended\n", rank);
	if (r->runs_done && j->traced)
		goal_replay_print(j->traced[rank], r->least_ns, false);
	if (j->times && !r->error)
		print_ops(j, rank);
}

static void print_all(const struct job *j, uint32_t first, uint32_t end)
{
	if (j->o.json)
		printf("{\"ranks\": %u, \"times\": %u, \"verified\": %s, \"results\": [",
		       j->program->ranks, j->o.times, j->o.verify ? "true" : "false");
	for (uint32_t r = first; r < end; r++) {
		if (j->o.json && r > first)
			printf(", ");
		print_rank(j, r);
	}
	if (j->o.json)
		printf("]}\n");
	fflush(stdout);
}

/* Did this rank fail because another one did? */
static bool is_consequence(int error)
{
	return error == -EPIPE || error == -EOWNERDEAD || error == -ECONNRESET;
}

static void print_no_memory(uint32_t rank)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
		tool_say("goal run: rank %u: out of memory", rank);
	else
		tool_say("goal run: rank %u: out of memory: ulimit -v allows %llu KiB of "
			 "address space",
			 rank, (unsigned long long)limit.rlim_cur >> 10);
}

static void print_failure(uint32_t rank, const struct result *r)
{
	if (r->error > 0)
		tool_say("goal run: rank %u: wrong data at byte %llu of %s %u, in run %llu", rank,
			 (unsigned long long)r->wrong_off, r->wrong_mem ? "buffer" : "scratch",
			 r->wrong_mem ? r->wrong_mem - 1 : 0, (unsigned long long)r->runs_done);
	else if (r->error == -ENOMEM)
		print_no_memory(rank);
	else if (r->ended_by)
		tool_say("goal run: rank %u was killed by signal %d", rank, r->ended_by);
	else if (r->error == -ENOTSUP)
		tool_say("goal run: rank %u: %s", rank, r->refusal);
	else if (r->error == -ECHILD)
		tool_say("goal run: rank %u ended without a result", rank);
	else
		tool_say("goal run: rank %u: %s", rank, strerror(-r->error));
}

/* Causes come before their consequences. */
static int print_failures(const struct job *j, uint32_t first, uint32_t end)
{
	int ret = TOOL_DONE;

	for (int consequences = 0; consequences < 2; consequences++)
		for (uint32_t r = first; r < end; r++) {
			const struct result *res = &j->results[r];

			if (!res->error || is_consequence(res->error) != consequences)
				continue;
			ret = TOOL_FAILED;
			print_failure(r, res);
		}
	return ret;
}

/* ---- ranks of our own -------------------------------------------------------------------- */

static void *map_shared(uint64_t bytes)
{
	void *p = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int prepare_results(struct job *j)
{
	uint32_t n = j->program->ranks;

	j->results = map_shared(n * sizeof *j->results);
	j->arrived = map_shared(sizeof *j->arrived);
	if (!j->results || !j->arrived)
		return -ENOMEM;
	if (!j->o.ops)
		return 0;
	j->times = calloc(n, sizeof *j->times);
	for (uint32_t r = 0; j->times && r < n; r++) {
		j->times[r] =
			map_shared(j->reference.images[r].block->op_count * sizeof **j->times);
		if (!j->times[r])
			return -ENOMEM;
	}
	return j->times ? 0 : -ENOMEM;
}

static void end_all(const pid_t *pids, uint32_t n)
{
	for (uint32_t r = 0; r < n; r++)
		if (pids[r] > 0)
			kill(pids[r], SIGKILL);
}

/* A rank that could not store its result. */
static void note_end(struct result *r, int status)
{
	if (WIFSIGNALED(status)) {
		r->ended_by = WTERMSIG(status);
		r->error = -EINTR;
	} else if (!r->error) {
		r->error = -ECHILD;
	}
}

static int run_forked(struct job *j)
{
	pid_t pids[RANKS_MAX] = { 0 };
	uint32_t n = j->program->ranks, alive = n;
	pid_t parent = getpid(), pid;
	bool is_ending = false; /* this tool ends the other ranks */
	int status;

	snprintf(j->group, sizeof j->group, "run-%d-%llx", (int)parent,
		 (unsigned long long)os_random_u64());
	fflush(stdout);
	for (uint32_t r = 0; r < n; r++) {
		pids[r] = fork();
		if (pids[r] < 0) {
			tool_say("goal run: cannot start rank %u: %s", r, strerror(errno));
			end_all(pids, r);
			return TOOL_FAILED;
		}
		if (pids[r])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(TOOL_FAILED);
		_exit(be_rank(j, r) ? TOOL_FAILED : TOOL_DONE);
	}
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
		note_end(&j->results[r], status);
		if (atomic_load(j->arrived) < n) {
			/* a rank that waits for others to begin looks at nothing else */
			is_ending = true;
			end_all(pids, n);
		}
	}
	print_all(j, 0, n);
	return print_failures(j, 0, n);
}

/* ---- ranks of mpiexec -------------------------------------------------------------------- */

static int run_as_rank(struct job *j, uint32_t rank)
{
	const struct goal_image *m = &j->reference.images[rank];

	if (rank >= j->program->ranks)
		return TOOL_DONE;
	/* the launcher's process on this machine is the parent of all */
	snprintf(j->group, sizeof j->group, "job-%d", (int)getppid());
	j->results = calloc(j->program->ranks, sizeof *j->results);
	if (j->o.ops) {
		j->times = calloc(j->program->ranks, sizeof *j->times);
		if (j->times)
			j->times[rank] = calloc(m->block->op_count + 1, sizeof **j->times);
	}
	if (!j->results || (j->o.ops && (!j->times || !j->times[rank]))) {
		tool_say("goal run: no memory");
		return TOOL_FAILED;
	}
	be_rank(j, rank);
	print_all(j, rank, rank + 1);
	return print_failures(j, rank, rank + 1);
}

/* ---- command line ------------------------------------------------------------------------ */

static int parse_number(const char *option, const char *value, uint32_t max, uint32_t *out)
{
	char *end;
	unsigned long n = strtoul(value, &end, 10);

	if (*end || end == value || n < 1 || n > max) {
		tool_say("goal run: %s takes a number from 1 to %u, not '%s'", option, max, value);
		return TOOL_MISUSE;
	}
	*out = (uint32_t)n;
	return -1;
}

/* An exit code, or -1: go on. */
static int parse(struct options *o, char **argv)
{
	static const char *const names[] = { "--help", "-h",     "-n=",        "--ranks=",
					     "--verify", "--times=", "--ops",      "--json",
					     "--timeout=", "--profile=", "--replay", NULL };
	const char *value;
	int at = 1, arg, ret = -1;

	*o = (struct options){ .times = 1 };
	while (ret < 0 && (arg = goal_next_arg("run", names, argv, &at, &value)) != GOAL_ARG_END) {
		if (arg == GOAL_ARG_WRONG)
			return TOOL_MISUSE;
		if (arg == 0 || arg == 1) {
			fputs(help, stdout);
			return TOOL_DONE;
		}
		if (arg == 2 || arg == 3)
			ret = parse_number("-n", value, RANKS_MAX, &o->ranks);
		else if (arg == 5)
			ret = parse_number("--times", value, RUNS_MAX, &o->times);
		else if (arg == 8)
			ret = parse_number("--timeout", value, TIMEOUT_MAX_MS, &o->timeout_ms);
		else if (arg == 9)
			o->profile = value;
		else if (arg == GOAL_ARG_WORD && o->file)
			ret = (tool_say("goal run: one file only, not also '%s'", value),
			       TOOL_MISUSE);
		else if (arg == GOAL_ARG_WORD)
			o->file = value;
		o->verify |= arg == 4;
		o->ops |= arg == 6;
		o->json |= arg == 7;
		o->replay |= arg == 10;
	}
	if (ret < 0 && !o->file) {
		tool_say("goal run: no FILE; see: sluice goal run --help");
		return TOOL_MISUSE;
	}
	return ret;
}

/* The first operation that only a network card could do, told. */
static bool has_one_sided(const struct goal_program *p)
{
	for (uint32_t rank = 0; rank < p->ranks; rank++) {
		const struct goal_block *b = goal_program_block(p, rank);

		for (uint32_t i = 0; i < b->op_count; i++) {
			char what[120];

			if (!goal_is_one_sided(&goal_ops_const(b)[i]))
				continue;
			text_print_op(b, i, what, sizeof what);
			tool_say("goal run: rank %u: '%s' is one-sided and cannot be run here; "
				 "see: sluice goal sim", rank, what);
			return true;
		}
	}
	return false;
}

/* Check the program, and compute the reference, before anything runs. */
static int prepare(struct job *j)
{
	uint32_t n = j->program->ranks;
	int ret;

	if (j->o.ranks && j->o.ranks != n) {
		tool_say("goal run: the program is one of %u ranks, not of %u", n, j->o.ranks);
		return TOOL_FAILED;
	}
	if (n > RANKS_MAX) {
		tool_say("goal run: %u ranks are too many to run on one machine; see: sluice goal "
			 "sim", n);
		return TOOL_FAILED;
	}
	if (has_one_sided(j->program))
		return TOOL_FAILED;
	ret = goal_reference_make(&j->reference, j->program, MEMORY_MAX);
	if (ret) {
		tool_say("goal run: %s", ret == -E2BIG
						 ? "a rank would need more than 1 GiB of memory"
						 : strerror(-ret));
		return TOOL_FAILED;
	}
	if (!j->o.verify)
		return TOOL_DONE;
	ret = goal_reference_execute(&j->reference);
	if (ret) {
		tool_say("goal run: %s", strerror(-ret));
		return TOOL_FAILED;
	}
	if (!j->reference.is_certain || j->reference.stuck) {
		tool_say(j->reference.stuck
				 ? "goal run: the program does not end; see: sluice goal check"
				 : "goal run: its data cannot be verified: it takes stamps, or "
				   "receives from any "
				   "rank or under any tag");
		return TOOL_FAILED;
	}
	return TOOL_DONE;
}

int goal_run_main(int argc, char **argv)
{
	struct job j = { 0 };
	struct goal_input in;
	char problems[1024];
	int ret = parse(&j.o, argv), rank;

	(void)argc;
	if (ret >= 0)
		return ret;
	if (base_options_load(NULL, problems, sizeof problems)) {
		tool_say("goal run: %s", problems);
		return TOOL_FAILED;
	}
	if (j.o.timeout_ms)
		base_opt.goal_timeout_ms = j.o.timeout_ms;
	if (j.o.profile)
		base_opt.goal_profile = j.o.profile;
	ret = goal_input_need(&in, "run", j.o.file);
	if (ret)
		return ret;
	j.program = in.program;
	ret = prepare(&j);
	if (!ret && j.o.replay && !(j.traced = goal_replay_read(j.o.file, j.program->ranks)))
		ret = TOOL_FAILED;
	rank = base_job_rank();
	if (!ret && rank >= 0)
		ret = run_as_rank(&j, (uint32_t)rank);
	else if (!ret && prepare_results(&j))
		ret = (tool_say("goal run: no memory"), TOOL_FAILED);
	else if (!ret)
		ret = run_forked(&j);
	free(j.traced);
	goal_reference_free(&j.reference);
	goal_input_close(&in);
	return ret;
}
