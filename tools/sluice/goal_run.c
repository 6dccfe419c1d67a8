/* SPDX-License-Identifier: BSD-3-Clause */
/* sluice goal run: the command line, and the results of a run. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/base.h"
#include "goal.h"
#include "goal_execute.h"
#include "goal_sim.h"
#include "goal/text/text.h"

#define WARM_NS 200000000ull
#define TIMEOUT_MAX_MS 86400000

static const char help[] =
	"usage: sluice goal run FILE [-n N] [--verify] [--times K] [--params PARAMS]\n"
	"                       [--ops] [--replay] [--timeout MS] [--profile PREFIX] [--json]\n"
	"\n"
	"Runs a text or a compiled program, with all its ranks as processes of this\n"
	"machine. Under mpiexec each process is one rank. The command allocates the\n"
	"buffers and fills them with a pattern.\n"
	"\n"
	"  -n N, --ranks N   require a program of N ranks\n"
	"  --verify          compare the results with a sequential execution\n"
	"  --times K         run it K times, and print the median and 10 to 90 %\n"
	"  --params PARAMS   print what sluice goal sim predicts beside the times; PARAMS:\n"
	"                    sluice goal sim --measure --save PARAMS\n"
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

struct job {
	const char *file, *profile, *params;
	uint32_t ranks, timeout_ms;
	bool json, replay;
	uint64_t *traced;    /* ns of each traced rank; NULL: no --replay */
	uint64_t *predicted; /* ps of each rank; NULL: no --params */
	struct goal_execution x;
};

/* ---- results ----------------------------------------------------------------------------- */

static void print_ops(const struct job *j, uint32_t rank)
{
	const struct goal_block *b = j->x.reference.images[rank].block;
	char text[128];

	for (uint32_t i = 0; i < b->op_count; i++) {
		const struct sched_times *t = &j->x.times_of_ops[rank][i];

		text_print_op(b, i, text, sizeof text);
		if (j->json)
			printf("%s{\"op\": %u, \"text\": \"%s\", \"begin_ns\": %llu, \"end_ns\": "
			       "%llu}",
			       i ? ", " : "", i, text, (unsigned long long)t->begin_ns,
			       (unsigned long long)t->end_ns);
		else
			printf("  op %-5u %10.3f .. %10.3f us  %s\n", i, (double)t->begin_ns / 1e3,
			       (double)t->end_ns / 1e3, text);
	}
}

static const char *error_of(const struct goal_result *r)
{
	return r->error > 0 ? "wrong data" : r->error ? goal_why(r->error) : "";
}

static double us(uint64_t ns) { return (double)ns / 1e3; }

/* predicted_ps: 0: there is no prediction. */
static void print_durations(const struct job *j, const struct goal_durations *d,
			    uint64_t predicted_ps)
{
	if (j->json)
		printf("\"least_us\": %.3f, \"low_us\": %.3f, \"median_us\": %.3f, "
		       "\"high_us\": %.3f",
		       us(d->least), us(d->low), us(d->median), us(d->high));
	else if (j->x.times > 1)
		printf("median %.3f us, 10 to 90 %%: %.3f to %.3f", us(d->median), us(d->low),
		       us(d->high));
	else
		printf("%.3f us", us(d->median));
	if (predicted_ps)
		printf(j->json ? ", \"predicted_us\": %.3f" : ", predicted %.3f",
		       (double)predicted_ps / 1e6);
}

static void print_rank(const struct job *j, uint32_t rank)
{
	const struct goal_result *r = &j->x.results[rank];
	struct goal_durations d;

	if (goal_durations_of(&j->x, rank, &d))
		tool_say("goal run: no memory for the times of rank %u", rank);
	if (j->json)
		printf("{\"rank\": %u, \"runs\": %u, \"error\": \"%s\", ", rank, r->runs_done,
		       error_of(r));
	else if (r->runs_done)
		printf("rank %u: %u run%s, ", rank, r->runs_done, r->runs_done > 1 ? "s" : "");
	else
		printf("rank %u: no run has ended", rank);
	if (j->json || r->runs_done)
		print_durations(j, &d, j->predicted ? j->predicted[rank] : 0);
	if (!j->json && r->runs_done)
		printf("%s", r->error ? ", then failed" : j->x.verify ? ", data verified" : "");
	if (!j->json)
		putchar('\n');
	if (r->runs_done && j->traced)
		goal_replay_print(j->traced[rank], d.least, j->json);
	if (j->x.times_of_ops && (j->json || !r->error)) {
		printf(j->json ? ", \"ops\": [" : "");
		print_ops(j, rank);
		printf(j->json ? "]" : "");
	}
	printf(j->json ? "}" : "");
}

/* From the beginning to the end of the last rank. */
static void print_sum(const struct job *j)
{
	uint64_t predicted = 0;
	struct goal_durations d;

	for (uint32_t r = 0; j->predicted && r < j->x.program->ranks; r++)
		predicted = base_max_u64(predicted, j->predicted[r]);
	if (goal_durations_all(&j->x, &d) || !d.high)
		return;
	printf(j->json ? ", \"all\": {" : "all ranks: ");
	print_durations(j, &d, predicted);
	printf(j->json ? "}" : "\n");
}

static void print_all(const struct job *j, uint32_t first, uint32_t end)
{
	if (j->json)
		printf("{\"ranks\": %u, \"times\": %u, \"verified\": %s, \"results\": [",
		       j->x.program->ranks, j->x.times, j->x.verify ? "true" : "false");
	for (uint32_t r = first; r < end; r++) {
		if (j->json && r > first)
			printf(", ");
		print_rank(j, r);
	}
	printf(j->json ? "]" : "");
	if (end - first > 1 && j->x.times > 1)
		print_sum(j);
	printf(j->json ? "}\n" : "");
	fflush(stdout);
}

static void print_failure(uint32_t rank, const struct goal_result *r)
{
	if (r->error > 0)
		tool_say("goal run: rank %u: wrong data at byte %llu of %s %u, in run %llu", rank,
			 (unsigned long long)r->wrong_off, r->wrong_mem ? "buffer" : "scratch",
			 r->wrong_mem ? r->wrong_mem - 1 : 0, (unsigned long long)r->runs_done);
	else if (r->ended_by)
		tool_say("goal run: rank %u was killed by signal %d", rank, r->ended_by);
	else if (r->error == -ENOTSUP)
		tool_say("goal run: rank %u: %s", rank, r->refusal);
	else if (r->error == -ECHILD)
		tool_say("goal run: rank %u ended without a result", rank);
	else
		tool_say("goal run: rank %u: %s", rank, goal_why(r->error));
}

/* Causes come before their consequences. */
static int print_failures(const struct goal_execution *x, uint32_t first, uint32_t end)
{
	int ret = TOOL_DONE;

	for (int consequences = 0; consequences < 2; consequences++)
		for (uint32_t r = first; r < end; r++) {
			const struct goal_result *res = &x->results[r];

			if (!res->error || goal_is_consequence(res->error) != consequences)
				continue;
			ret = TOOL_FAILED;
			print_failure(r, res);
		}
	return ret;
}

/* ---- running ----------------------------------------------------------------------------- */

static int run_forked(struct job *j)
{
	uint32_t n = j->x.program->ranks, rank = 0;
	int ret = goal_execute_all(&j->x, &rank);

	if (ret) {
		tool_say("goal run: cannot start rank %u: %s", rank, goal_why(ret));
		return TOOL_FAILED;
	}
	print_all(j, 0, n);
	return print_failures(&j->x, 0, n);
}

static int run_as_rank(struct job *j, uint32_t rank)
{
	if (rank >= j->x.program->ranks)
		return TOOL_DONE;
	if (goal_execute_rank(&j->x, rank)) {
		tool_say("goal run: no memory");
		return TOOL_FAILED;
	}
	print_all(j, rank, rank + 1);
	return print_failures(&j->x, rank, rank + 1);
}

/* ---- command line ------------------------------------------------------------------------ */

static int parse_number(const char *option, const char *value, uint32_t max, uint32_t *out)
{
	uint64_t n;

	if (goal_parse_number(value, 1, max, &n)) {
		tool_say("goal run: %s takes a number from 1 to %u, not '%s'", option, max, value);
		return TOOL_MISUSE;
	}
	*out = (uint32_t)n;
	return -1;
}

/* An exit code, or -1: go on. */
static int parse(struct job *o, char **argv)
{
	static const char *const names[] = { "--help", "-h",     "-n=",        "--ranks=",
					     "--verify", "--times=", "--ops",      "--json",
					     "--timeout=", "--profile=", "--replay",
					     "--params=", NULL };
	const char *value;
	int at = 1, arg, ret = -1;

	*o = (struct job){ .x.times = 1 };
	while (ret < 0 && (arg = goal_next_arg("run", names, argv, &at, &value)) != GOAL_ARG_END) {
		if (arg == GOAL_ARG_WRONG)
			return TOOL_MISUSE;
		if (arg == 0 || arg == 1) {
			fputs(help, stdout);
			return TOOL_DONE;
		}
		if (arg == 2 || arg == 3)
			ret = parse_number("-n", value, GOAL_EXECUTE_RANKS_MAX, &o->ranks);
		else if (arg == 5)
			ret = parse_number("--times", value, GOAL_EXECUTE_TIMES_MAX, &o->x.times);
		else if (arg == 8)
			ret = parse_number("--timeout", value, TIMEOUT_MAX_MS, &o->timeout_ms);
		else if (arg == 9)
			o->profile = value;
		else if (arg == 11)
			o->params = value;
		else if (arg == GOAL_ARG_WORD && o->file)
			ret = (tool_say("goal run: one file only, not also '%s'", value),
			       TOOL_MISUSE);
		else if (arg == GOAL_ARG_WORD)
			o->file = value;
		o->x.verify |= arg == 4;
		o->x.ops |= arg == 6;
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
	uint32_t n = j->x.program->ranks;
	int ret;

	if (j->ranks && j->ranks != n) {
		tool_say("goal run: the program is one of %u ranks, not of %u", n, j->ranks);
		return TOOL_FAILED;
	}
	if (n > GOAL_EXECUTE_RANKS_MAX) {
		tool_say("goal run: %u ranks are too many to run on one machine; see: sluice goal "
			 "sim", n);
		return TOOL_FAILED;
	}
	if (has_one_sided(j->x.program))
		return TOOL_FAILED;
	j->x.warm_ns = j->x.times > 1 ? WARM_NS : 0;
	ret = goal_execution_prepare(&j->x);
	if (ret) {
		tool_say("goal run: %s", ret == -E2BIG
						 ? "a rank would need more than 1 GiB of memory"
						 : goal_why(ret));
		return TOOL_FAILED;
	}
	if (!j->x.verify)
		return TOOL_DONE;
	ret = goal_reference_execute(&j->x.reference);
	if (ret) {
		tool_say("goal run: %s", goal_why(ret));
		return TOOL_FAILED;
	}
	if (!j->x.reference.is_certain || j->x.reference.stuck) {
		tool_say(j->x.reference.stuck
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
	int ret = parse(&j, argv), rank;

	(void)argc;
	if (ret >= 0)
		return ret;
	if (base_options_load(NULL, problems, sizeof problems)) {
		tool_say("goal run: %s", problems);
		return TOOL_FAILED;
	}
	if (j.timeout_ms)
		base_opt.goal_timeout_ms = j.timeout_ms;
	if (j.profile)
		base_opt.goal_profile = j.profile;
	ret = goal_input_need(&in, "run", j.file);
	if (ret)
		return ret;
	j.x.program = in.program;
	ret = prepare(&j);
	if (!ret && j.replay && !(j.traced = goal_replay_read(j.file, j.x.program->ranks)))
		ret = TOOL_FAILED;
	if (!ret && j.params)
		ret = goal_predict(j.params, j.x.program, &j.predicted);
	rank = base_job_rank();
	if (!ret && rank >= 0)
		ret = run_as_rank(&j, (uint32_t)rank);
	else if (!ret)
		ret = run_forked(&j);
	free(j.traced);
	free(j.predicted);
	goal_execution_free(&j.x);
	goal_input_close(&in);
	return ret;
}
