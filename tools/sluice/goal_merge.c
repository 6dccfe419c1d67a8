/* SPDX-License-Identifier: BSD-3-Clause */
/* sluice goal merge: several programs become one, each on ranks of its own. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "goal.h"

#define JOBS_MAX 64

static const char merge_help[] =
	"usage: sluice goal merge FILE... [--placement P] [--ranks N] [--seed N] [-o OUT]\n"
	"\n"
	"Writes one program in which the ranks of several run side by side: jobs that\n"
	"share a machine, or one job that is placed otherwise. Comments at its beginning\n"
	"say which ranks are whose, in the order of their own numbers.\n"
	"\n"
	"  --placement P  packed: one job after the other (default); cyclic: a rank of\n"
	"                 each in turn; random\n"
	"  --ranks N      ranks of the machine; those left over do nothing\n"
	"  --seed N       another random placement (1)\n"
	"  -o OUT         write to OUT instead of standard output\n"
	"\n"
	"Examples:\n"
	"  sluice goal merge a.goal b.goal --placement random | sluice goal sim - --times\n"
	"  sluice goal merge a.goal --placement cyclic --ranks 64 -o spread.goal\n"
	"\n"
	"Exit code: 0 done; 1 a FILE is wrong, or OUT cannot be written; 2 misuse.\n"
	"More: man sluice-goal\n";

enum placement { PACKED, CYCLIC, RANDOM, PLACEMENTS };
static const char *const placements[] = { "packed", "cyclic", "random" };

struct merge {
	struct goal_input jobs[JOBS_MAX];
	const char *files[JOBS_MAX];
	uint32_t count, opened;
	enum placement placement;
	uint64_t ranks, seed; /* ranks: of the machine */
	const char *path;
	uint32_t *to[JOBS_MAX]; /* rank of the machine, by rank of the job */
	struct owner {
		uint32_t job, rank; /* job JOBS_MAX: none */
	} *owners;
};

/* ---- the command line -------------------------------------------------------------------- */

enum option { PLACEMENT, RANKS, SEED, OUT, HELP, H };
static const char *const names[] = { "--placement=", "--ranks=", "--seed=", "-o=",
				     "--help",	     "-h",	 NULL };

static int set_placement(struct merge *m, const char *name)
{
	for (int i = 0; i < PLACEMENTS; i++)
		if (!strcmp(placements[i], name)) {
			m->placement = (enum placement)i;
			return 0;
		}
	return -EINVAL;
}

static int set_option(struct merge *m, int option, const char *value)
{
	int rc = 0;

	if (option == OUT)
		m->path = value;
	else if (option == PLACEMENT)
		rc = set_placement(m, value);
	else if (option == SEED)
		rc = goal_parse_number(value, 0, UINT64_MAX, &m->seed);
	else
		rc = goal_parse_number(value, 1, GOAL_RANKS_MAX, &m->ranks);
	if (!rc)
		return TOOL_DONE;
	tool_say("goal merge: %.*s cannot be '%s'; see: sluice goal merge --help",
		 (int)strcspn(names[option], "="), names[option], value);
	return TOOL_MISUSE;
}

/* An exit code, or -1: go on. */
static int parse(struct merge *m, char **argv)
{
	const char *value;
	int at = 1, arg, ret = TOOL_DONE;

	while (!ret &&
	       (arg = goal_next_arg("merge", names, argv, &at, &value)) != GOAL_ARG_END) {
		if (arg == GOAL_ARG_WRONG)
			return TOOL_MISUSE;
		if (arg == HELP || arg == H) {
			fputs(merge_help, stdout);
			return TOOL_DONE;
		}
		if (arg != GOAL_ARG_WORD)
			ret = set_option(m, arg, value);
		else if (m->count++ < JOBS_MAX)
			m->files[m->count - 1] = value;
	}
	if (ret || (m->count && m->count <= JOBS_MAX))
		return ret ? ret : -1;
	tool_say("goal merge: %s; see: sluice goal merge --help",
		 m->count ? "more than 64 files" : "no FILE");
	return TOOL_MISUSE;
}

/* ---- placement --------------------------------------------------------------------------- */

static uint32_t ranks_of(const struct merge *m, uint32_t job)
{
	return m->jobs[job].program->ranks;
}

static void place(struct merge *m, uint32_t job, uint32_t rank, uint32_t at)
{
	m->to[job][rank] = at;
	m->owners[at] = (struct owner){ job, rank };
}

static void place_cyclic(struct merge *m)
{
	uint32_t at = 0;

	for (uint32_t rank = 0, placed = 1; placed; rank++) {
		placed = 0;
		for (uint32_t job = 0; job < m->count; job++)
			if (rank < ranks_of(m, job)) {
				place(m, job, rank, at++);
				placed++;
			}
	}
}

/* xorshift64* (Marsaglia 2003, Vigna 2016) */
static uint64_t draw(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1du;
}

/* Exchanges each place with one of those before it (Fisher and Yates). */
static void shuffle(struct merge *m)
{
	uint64_t state = (m->seed + 1) * 0x9e3779b97f4a7c15u | 1;

	for (uint32_t i = (uint32_t)m->ranks - 1; i > 0; i--) {
		uint32_t k = (uint32_t)((unsigned __int128)draw(&state) * (i + 1ull) >> 64);
		struct owner a = m->owners[i];

		m->owners[i] = m->owners[k];
		m->owners[k] = a;
	}
	for (uint32_t i = 0; i < m->ranks; i++)
		if (m->owners[i].job < JOBS_MAX)
			m->to[m->owners[i].job][m->owners[i].rank] = i;
}

static int place_all(struct merge *m)
{
	uint64_t sum = 0;
	uint32_t at = 0;

	for (uint32_t job = 0; job < m->count; job++)
		sum += ranks_of(m, job);
	if (!m->ranks)
		m->ranks = sum;
	if (sum > m->ranks || sum > GOAL_RANKS_MAX) {
		tool_say("goal merge: %" PRIu64 " ranks do not fit on %" PRIu64, sum,
			 base_min_u64(m->ranks, GOAL_RANKS_MAX));
		return TOOL_FAILED;
	}
	m->owners = calloc(m->ranks, sizeof *m->owners);
	for (uint32_t job = 0; job < m->count && m->owners; job++) {
		m->to[job] = calloc(ranks_of(m, job), sizeof *m->to[job]);
		if (!m->to[job])
			break;
	}
	if (!m->owners || !m->to[m->count - 1]) {
		tool_say("goal merge: %s", goal_why(-ENOMEM));
		return TOOL_FAILED;
	}
	for (uint64_t i = 0; i < m->ranks; i++)
		m->owners[i].job = JOBS_MAX;
	if (m->placement == CYCLIC)
		place_cyclic(m);
	for (uint32_t job = 0; job < m->count && m->placement != CYCLIC; job++)
		for (uint32_t rank = 0; rank < ranks_of(m, job); rank++)
			place(m, job, rank, at++);
	if (m->placement == RANDOM)
		shuffle(m);
	return TOOL_DONE;
}

/* ---- writing ----------------------------------------------------------------------------- */

/* "// a.goal: ranks 0-3,8": consecutive ranks as a range. */
static void print_job(const struct merge *m, uint32_t job, FILE *out)
{
	const uint32_t *to = m->to[job];

	fputs("// ", out);
	for (const char *c = m->files[job]; *c; c++)
		fputc(*c == '\n' ? '?' : *c, out);
	fputs(": ranks ", out);
	for (uint32_t r = 0, first; r < ranks_of(m, job); r++) {
		fprintf(out, "%s%" PRIu32, r ? "," : "", to[r]);
		for (first = r; r + 1 < ranks_of(m, job) && to[r + 1] == to[r] + 1;)
			r++;
		if (r > first)
			fprintf(out, "-%" PRIu32, to[r]);
	}
	fputc('\n', out);
}

static int print_rank(const struct merge *m, uint32_t at, FILE *out)
{
	const struct owner *o = &m->owners[at];
	const struct goal_block *block;
	struct goal_block *copy;
	struct goal_op *ops;
	int rc;

	if (o->job == JOBS_MAX)
		return fprintf(out, "\nrank %" PRIu32 " {\n}\n", at) < 0 ? -EIO : 0;
	block = goal_program_block(m->jobs[o->job].program, o->rank);
	copy = malloc(block->bytes);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, block, block->bytes);
	ops = goal_ops(copy);
	for (uint32_t i = 0; i < copy->op_count; i++) {
		bool has_peer = goal_is_transfer(&ops[i]) ||
				(goal_is_one_sided(&ops[i]) && ops[i].type != GOAL_TEST);

		if (has_peer && ops[i].peer != GOAL_ANY)
			ops[i].peer = m->to[o->job][ops[i].peer];
	}
	rc = text_print(at, copy, goal_write_text, out);
	free(copy);
	return rc;
}

static int print_all(const struct merge *m)
{
	bool is_file = m->path && strcmp(m->path, "-");
	FILE *out = is_file ? fopen(m->path, "we") : stdout;
	int rc = out ? 0 : -errno;

	for (uint32_t job = 0; job < m->count && !rc; job++)
		print_job(m, job, out);
	if (!rc)
		rc = text_print_head((uint32_t)m->ranks, goal_write_text, out);
	for (uint32_t at = 0; at < m->ranks && !rc; at++)
		rc = print_rank(m, at, out);
	errno = 0;
	if (out && (is_file ? fclose(out) : fflush(out)) && !rc)
		rc = errno ? -errno : -EIO;
	if (rc)
		tool_say("goal merge: cannot write %s: %s", is_file ? m->path : "standard output",
			 goal_why(rc));
	return rc ? TOOL_FAILED : TOOL_DONE;
}

int goal_merge_main(int argc, char **argv)
{
	struct merge m = { .seed = 1 };
	int ret = parse(&m, argv);

	if (ret >= 0)
		return ret;
	for (ret = TOOL_DONE; m.opened < m.count && !ret; m.opened += !ret)
		ret = goal_input_need(&m.jobs[m.opened], "merge", m.files[m.opened]);
	if (!ret)
		ret = place_all(&m);
	if (!ret)
		ret = print_all(&m);
	for (uint32_t job = 0; job < m.opened; job++) {
		goal_input_close(&m.jobs[job]);
		free(m.to[job]);
	}
	free(m.owners);
	return ret;
}
