/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random programs on 2 to 9 ranks against a sequential reference, several in flight, with random
 * delays. A failing program is reduced before it is reported. Seed and number: UNIT_SCHED_SEED,
 * UNIT_SCHED_PROGRAMS.
 */
#include <unistd.h>

#include "sched_program.h"

static char *const no_options[] = { "SLUICE_GOAL_TIMEOUT=3000", NULL };
static char *const cma[] = { "SLUICE_REGION_KIND=cma", "SLUICE_GOAL_TIMEOUT=3000", NULL };
static char *const staged[] = { "SLUICE_REGION_KIND=staged", "SLUICE_GOAL_TIMEOUT=3000", NULL };

enum { IN_FLIGHT = 3, RUNS = 2 };

struct job {
	uint64_t seed;
	int programs;
	const struct program *only; /* shrinking: this one, alone */
};

/* One program with its memory, on a rank. */
struct instance {
	struct program program;
	struct sched_inst *s;
	unsigned char *buffer;
	bool of_group;
};

static uint64_t cells_bytes(const struct program *p) { return (uint64_t)PROGRAM_CELLS * p->cell; }

static void set_memory(const struct program *p, uint64_t number, int rank, unsigned char *cells)
{
	case_fill(cells, cells_bytes(p), number * 16 + (uint64_t)rank);
}

static void open_program(struct ranks *r, struct sched_group *g, struct instance *in,
			 uint64_t *random)
{
	static struct plan plan;
	uint64_t half = cells_bytes(&in->program) / 2;

	in->of_group = ranks_below(random, 2);
	in->buffer = in->of_group ? sched_alloc(g, half) : malloc(half);
	CHECK(in->buffer != NULL);
	program_plan(&in->program, r->rank, &plan);
	plan.buffers[0] = in->buffer;
	plan.bytes[0] = half;
	plan.count = 1;
	in->s = plan_open(&plan, g);
}

static void start_program(struct ranks *r, struct instance *in, uint64_t number, uint64_t *random)
{
	uint64_t half = cells_bytes(&in->program) / 2;
	unsigned char *cells = malloc(2 * half);

	if (!ranks_below(random, 6))
		usleep((useconds_t)ranks_below(random, 300));
	set_memory(&in->program, number, r->rank, cells);
	memcpy(sched_scratch(in->s), cells, half);
	memcpy(in->buffer, cells + half, half);
	free(cells);
	CHECK_EQ(sched_run(in->s), 0);
}

static bool is_right(struct ranks *r, const struct instance *in, uint64_t number)
{
	uint64_t bytes = cells_bytes(&in->program);
	unsigned char *memory[PROGRAM_RANKS];
	bool right;

	for (int k = 0; k < r->size; k++) {
		memory[k] = malloc(bytes);
		set_memory(&in->program, number, k, memory[k]);
	}
	program_execute(&in->program, memory);
	right = !memcmp(memory[r->rank], sched_scratch(in->s), bytes / 2) &&
		!memcmp(memory[r->rank] + bytes / 2, in->buffer, bytes / 2);
	for (int k = 0; k < r->size; k++)
		free(memory[k]);
	return right;
}

static void finish_program(struct ranks *r, struct instance *in, uint64_t number, uint64_t *random)
{
	if (!ranks_below(random, 3))
		usleep((useconds_t)ranks_below(random, 300));
	if (ranks_below(random, 2)) {
		CHECK_EQ(sched_wait(in->s, UINT64_MAX), 0);
	} else {
		int ret;

		while (!(ret = sched_test(in->s)))
			;
		CHECK_EQ(ret, 1);
	}
	CHECK(is_right(r, in, number));
}

static void batch(struct ranks *r, struct sched_group *g, uint64_t seed, const struct program *only,
		  uint64_t *local)
{
	static struct instance in[IN_FLIGHT];
	int n = only ? 1 : IN_FLIGHT;

	for (int k = 0; k < n; k++) {
		in[k].program.ranks = r->size;
		if (only)
			in[k].program = *only;
		else
			program_random(&in[k].program, &seed);
		open_program(r, g, &in[k], local);
	}
	for (int run = 0; run < RUNS; run++) {
		for (int k = 0; k < n; k++)
			start_program(r, &in[k], (uint64_t)(run * n + k), local);
		for (int k = n; k-- > 0;)
			finish_program(r, &in[k], (uint64_t)(run * n + k), local);
	}
	for (int k = 0; k < n; k++) {
		CHECK_EQ(sched_close(in[k].s), 0);
		if (in[k].of_group)
			sched_free(g, in[k].buffer);
		else
			free(in[k].buffer);
	}
}

static void random_programs(struct ranks *r)
{
	const struct job *job = r->arg;
	uint64_t seed = job->seed, local = seed + 1 + (uint64_t)r->rank;
	struct sched_group *g = case_group(r);

	for (int i = 0; i < job->programs; i++) {
		uint64_t each = ranks_random(&seed);

		atomic_store(&r->words[0], each);
		batch(r, g, each, job->only, &local);
		ranks_barrier(r); /* words[0] names the program that failed */
	}
	sched_group_destroy(g);
}

static bool passes(int ranks, char *const *options, struct job *job)
{
	int status[RANKS_MAX];

	ranks_run_any(ranks, options, random_programs, job, status);
	for (int i = 0; i < ranks; i++)
		if (status[i])
			return false;
	return true;
}

/* Removes steps while the program still fails. */
static void shrink(struct program *p, char *const *options)
{
	for (int chunk = p->steps / 2; chunk > 0; chunk /= 2) {
		for (int at = 0; at + chunk <= p->steps;) {
			struct program less = *p;
			struct job job = { 1, 10, &less };

			memmove(&less.step[at], &less.step[at + chunk],
				sizeof less.step[0] * (size_t)(p->steps - at - chunk));
			less.steps -= chunk;
			if (less.steps && !passes(p->ranks, options, &job))
				*p = less;
			else
				at += chunk;
		}
	}
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static void try_programs(int ranks, char *const *options, int programs)
{
	uint64_t seed = setting("UNIT_SCHED_SEED", 17);
	struct job job = { seed, (int)setting("UNIT_SCHED_PROGRAMS", (uint64_t)programs), NULL };
	struct program p = { .ranks = ranks };

	if (passes(ranks, options, &job))
		return;
	printf("%s", ranks_text);
	/* runs the programs of the batch one by one to find the failing one */
	for (int i = 0; i < job.programs; i++) {
		uint64_t each = ranks_random(&seed);

		for (int k = 0; k < IN_FLIGHT; k++) {
			struct job alone = { 1, 10, &p };

			program_random(&p, &each);
			if (passes(ranks, options, &alone))
				continue;
			shrink(&p, options);
			program_print(&p);
			unit_fail(__FILE__, __LINE__, "wrong: the program above");
		}
	}
	unit_fail(__FILE__, __LINE__,
		  "wrong, but no program fails alone; seed %" PRIu64 ", %d ranks", job.seed, ranks);
}

UNIT_TEST(random_programs_of_two_ranks) { try_programs(2, no_options, 40); }
UNIT_TEST(random_programs_of_three_ranks) { try_programs(3, no_options, 20); }
UNIT_TEST(random_programs_of_five_ranks) { try_programs(5, no_options, 8); }
UNIT_TEST(random_programs_of_nine_ranks) { try_programs(9, no_options, 3); }
UNIT_TEST(random_programs_by_system_calls) { try_programs(3, cma, 10); }
UNIT_TEST(random_programs_by_staging) { try_programs(3, staged, 10); }
