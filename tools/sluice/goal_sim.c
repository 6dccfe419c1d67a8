/* SPDX-License-Identifier: BSD-3-Clause */
#include "goal_sim.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"

#define NODE_RANKS_MAX 1024 /* ranks of a node */

static const char help_head[] =
	"usage: sluice goal sim FILE [OPTION]...\n"
	"       sluice goal sim PATTERN -n N [-s SIZE] [OPTION]...\n"
	"       sluice goal sim --measure [FILE | PATTERN ...]\n"
	"\n"
	"Computes when each rank ends, in the LogGOPS model, for a text, a compiled\n"
	"program, or a pattern (sluice goal gen --list) of up to millions of ranks.\n"
	"\n"
	"  -L NS  -o NS  -g NS       latency; overhead and gap of a message (2500 1500 1000)\n"
	"  -G NS  -O NS  -C NS       of a byte: gap, overhead, local operations (6 0 0)\n"
	"  -S SIZE                   longer messages wait for their receive (65535)\n"
	"  --above 'SIZE NAME NS'    L, o, g, G or O of longer messages; up to 8 sizes\n"
	"  --model MODEL             who pays for a message: loggopsim or atlahs\n"
	"  --preset NAME             all these parameters:";
static const char help_middle[] =
	"\n"
	"  --measure                 measure messages inside this node\n"
	"  --node-ranks N            so many ranks share a node (1024 when it was measured)\n"
	"  --save OUT, --params FILE write the parameters to a file; read them from one\n"
	"  --noise FILE              OS noise: lines of a beginning and a duration, in ns\n"
	"  --noise-cosched           all ranks begin at the same place of it\n"
	"  --seed N                  other places (1); 0: the beginning\n"
	"\n"
	"  --times                   print when each rank ends, for any number of ranks\n"
	"  --path N                  print N steps of the critical path (16); 0: none\n"
	"  --path-memory SIZE        memory for the critical path (2G)\n"
	"  --matching OUT            write how receives and messages matched, by rank\n"
	"  --timeline OUT            write the work of each CPU, for ui.perfetto.dev\n"
	"  --timeline-ranks A-B      ranks in the timeline (0-63)\n"
	"  --json                    print JSON\n"
	"\n"
	"Options of a pattern:\n";
static const char help_tail[] =
	"\n"
	"Examples:\n"
	"  sluice goal sim dissemination-allreduce -n 1000000 -s 8\n"
	"  sluice goal sim sched.goal -L 900 -o 200 -G 0.04 --timeline out.json\n"
	"  sluice goal sim --measure ring-allreduce -n 64 -s 16M --type f32\n"
	"\n"
	"Exit code: 0 all ended; 1 a deadlock, a message without a receive, or a wrong\n"
	"FILE; 2 misuse. More: man sluice-goal-sim, doc/goal-simulator.md\n";

enum option {
	PRESET = GOAL_PATTERN_OPTION_COUNT,
	MODEL,
	ABOVE,
	L,
	LITTLE_O,
	G,
	BIG_G,
	BIG_O,
	S,
	C,
	MEASURE,
	SAVE,
	PARAMS,
	NODE_RANKS,
	NOISE,
	NOISE_COSCHED,
	SEED,
	MATCHING,
	TIMES,
	PATH,
	PATH_MEMORY,
	TIMELINE,
	TIMELINE_RANKS,
	JSON,
	HELP,
	H
};
static const char *const names[] = { GOAL_PATTERN_OPTIONS,
				     "--preset=",
				     "--model=",
				     "--above=",
				     "-L=",
				     "-o=",
				     "-g=",
				     "-G=",
				     "-O=",
				     "-S=",
				     "-C=",
				     "--measure",
				     "--save=",
				     "--params=",
				     "--node-ranks=",
				     "--noise=",
				     "--noise-cosched",
				     "--seed=",
				     "--matching=",
				     "--times",
				     "--path=",
				     "--path-memory=",
				     "--timeline=",
				     "--timeline-ranks=",
				     "--json",
				     "--help",
				     "-h",
				     NULL };

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int sig) { is_interrupted = sig; }

static int help(void)
{
	fputs(help_head, stdout);
	for (size_t i = 0; i < sim_preset_count; i++)
		printf("%s %s", i ? "," : "", sim_presets[i].name);
	fputs(help_middle, stdout);
	fputs(goal_pattern_help, stdout);
	fputs(help_tail, stdout);
	return TOOL_DONE;
}

/* ---- the command line -------------------------------------------------------------------- */

static int misuse(const char *what, const char *value)
{
	tool_say("goal sim: %s%s%s; see: sluice goal sim --help", what, value ? " " : "",
		 value ? value : "");
	return TOOL_MISUSE;
}

static int set_preset(struct goal_sim_options *o, const char *name)
{
	for (size_t i = 0; i < sim_preset_count; i++)
		if (!strcmp(sim_presets[i].name, name)) {
			const struct sim_params before = o->params;

			sim_params_from(&o->params, &sim_presets[i]);
			o->params.node = before.node;
			o->params.model = before.model;
			o->params_name = sim_presets[i].name;
			return TOOL_DONE;
		}
	return misuse("there is no preset", name);
}

static int set_ranks(struct goal_sim_options *o, const char *value)
{
	char *end;
	unsigned long first = strtoul(value, &end, 10), last = first;

	if (end != value && *end == '-')
		last = strtoul(end + 1, &end, 10);
	if (end == value || *end || last < first || last >= GOAL_RANKS_MAX)
		return misuse("--timeline-ranks is like 0-63, not", value);
	o->timeline_first = (uint32_t)first;
	o->timeline_end = (uint32_t)last + 1;
	return TOOL_DONE;
}

static int set_source(struct goal_sim_options *o, const char *word)
{
	if (o->file || o->pattern.pattern)
		return misuse("one file or pattern only, not also", word);
	o->pattern.pattern = strchr(word, '/') ? NULL : gen_find(word);
	if (!o->pattern.pattern)
		o->file = word;
	return TOOL_DONE;
}

static int set_model(struct sim_params *p, const char *name)
{
	if (strcmp(name, "loggopsim") && strcmp(name, "atlahs"))
		return -EINVAL;
	p->model = name[0] == 'a' ? SIM_ATLAHS : SIM_LOGGOPSIM;
	return 0;
}

/* Checks options whose value may be wrong. Returns: 0 or -errno. */
static int set_value(struct goal_sim_options *o, int option, const char *value)
{
	if (option == PATH)
		return base_parse_bytes(value, &o->path_steps);
	if (option == PATH_MEMORY)
		return base_parse_bytes(value, &o->path_bytes);
	if (option == ABOVE)
		return goal_params_above(&o->params, value);
	if (option == MODEL)
		return set_model(&o->params, value);
	if (option == NODE_RANKS)
		return goal_parse_number(value, 1, NODE_RANKS_MAX, &o->node_ranks);
	if (option == SEED)
		return goal_parse_number(value, 0, UINT64_MAX, &o->noise.seed);
	return goal_params_set(&o->params, names[option][1], value);
}

static int set_option(struct goal_sim_options *o, int option, const char *value)
{
	switch (option) {
	case PRESET:
		return set_preset(o, value);
	case PARAMS:
		o->params_name = o->node_name = value;
		return goal_params_load(value, &o->params);
	case TIMELINE_RANKS:
		return set_ranks(o, value);
	case MEASURE:
		o->measure = true;
		return TOOL_DONE;
	case JSON:
		o->json = true;
		return TOOL_DONE;
	case TIMES:
		o->times = true;
		return TOOL_DONE;
	case NOISE:
		o->noise_path = value;
		return TOOL_DONE;
	case NOISE_COSCHED:
		o->noise.is_cosched = true;
		return TOOL_DONE;
	case MATCHING:
		o->matching = value;
		return TOOL_DONE;
	case SAVE:
		o->save = value;
		return TOOL_DONE;
	case TIMELINE:
		o->timeline = value;
		return TOOL_DONE;
	}
	if (!set_value(o, option, value))
		return TOOL_DONE;
	tool_say("goal sim: %.*s cannot be '%s'; see: sluice goal sim --help",
		 (int)strcspn(names[option], "="), names[option], value);
	return TOOL_MISUSE;
}

/* A quarter of the free memory, at most 2 GiB. */
static uint64_t default_path_bytes(void)
{
	long pages = sysconf(_SC_AVPHYS_PAGES);

	return base_min_u64(2ull << 30,
			    pages > 0 ? (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) / 4 : 0);
}

/* An exit code, or -1: go on. */
static int parse(struct goal_sim_options *o, char **argv)
{
	const char *value;
	int at = 1, arg, ret = TOOL_DONE;

	*o = (struct goal_sim_options){ .timeline_end = 64,
					.path_steps = 16,
					.noise = { .seed = 1 },
					.path_bytes = default_path_bytes() };
	goal_pattern_init(&o->pattern);
	set_preset(o, sim_presets[0].name);
	while (!ret && (arg = goal_next_arg("sim", names, argv, &at, &value)) != GOAL_ARG_END) {
		if (arg == GOAL_ARG_WRONG)
			return TOOL_MISUSE;
		if (arg == HELP || arg == H)
			return help();
		if (arg == GOAL_ARG_WORD)
			ret = set_source(o, value);
		else if (arg < GOAL_PATTERN_OPTION_COUNT)
			ret = goal_pattern_option(&o->pattern, "sim", arg, value);
		else
			ret = set_option(o, arg, value);
	}
	if (ret)
		return ret;
	if (!o->file && !o->pattern.pattern && !o->measure)
		return misuse("no FILE or PATTERN", NULL);
	if (o->file && o->pattern.has_options && access(o->file, F_OK) && strcmp(o->file, "-")) {
		goal_pattern_unknown("sim", o->file);
		return TOOL_MISUSE;
	}
	if (o->file && o->pattern.has_options)
		return misuse("-n, -s and other options of patterns do not apply to", o->file);
	return o->pattern.pattern && goal_pattern_check(&o->pattern, "sim") ? TOOL_MISUSE : -1;
}

/* ---- running ----------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int goal_sim_progress(struct goal_sim *g, const char *what, uint64_t done, uint64_t all)
{
	const uint64_t second = 1000000000u;
	uint64_t now;

	if (!g->is_terminal)
		return is_interrupted != 0;
	now = now_ns();
	if (now - g->began_ns > 2 * second && now - g->printed_ns > second / 2) {
		double remaining =
			(double)(now - g->began_ns) / 1e9 * ((double)all / (double)(done + 1) - 1);

		fprintf(stderr, "\r%s: %.0f %%", what, 100.0 * (double)done / (double)all);
		if (done >= all / 50) /* a rate of the first second would be a guess */
			fprintf(stderr, ", %.0f s left", remaining);
		fputs("\033[K", stderr);
		g->printed_ns = now;
	}
	return is_interrupted != 0;
}

static void begin_progress(struct goal_sim *g)
{
	g->began_ns = now_ns();
	g->printed_ns = 0;
}

static void end_progress(struct goal_sim *g)
{
	if (g->printed_ns)
		fputs("\r\033[K", stderr);
}

static int on_progress(void *ctx, uint64_t done, uint64_t all, uint64_t now_ps)
{
	return goal_sim_progress(ctx, "simulating", done, all);
}

static void on_interval(void *ctx, const struct sim_interval *interval)
{
	goal_timeline_interval(ctx, interval);
}

/* Ctrl-C prints the results so far. A second one ends the program. */
static void watch_interrupts(void)
{
	struct sigaction a = { .sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND };

	sigemptyset(&a.sa_mask);
	sigaction(SIGINT, &a, NULL);
}

static int print_result(struct goal_sim *g)
{
	switch (g->result) {
	case 0:
		return TOOL_DONE;
	case -EDEADLK:
		goal_sim_print_stuck(g);
		return TOOL_FAILED;
	case -ECANCELED:
		tool_say("goal sim: interrupted; the results so far follow");
		return TOOL_FAILED;
	case -EOVERFLOW:
		tool_say("goal sim: the schedule exceeds the 53 days of simulated time");
		return TOOL_FAILED;
	default:
		tool_say("goal sim: %s", goal_why(g->result));
		return TOOL_FAILED;
	}
}

static int simulate(struct goal_sim *g)
{
	int ret;

	g->config.params = g->o.params;
	g->config.noise = g->o.noise;
	g->config.matching = g->o.matching;
	g->config.path_bytes = g->o.path_bytes;
	g->config.progress = on_progress;
	g->config.ctx = g;
	watch_interrupts();
	begin_progress(g);
	ret = goal_sim_load(g);
	end_progress(g);
	if (ret)
		return ret;
	begin_progress(g);
	g->result = sim_run(g->sim);
	end_progress(g);
	ret = print_result(g);
	if (g->o.json)
		goal_sim_json(g);
	else
		goal_sim_report(g);
	return g->o.matching && goal_matching_write(g) ? TOOL_FAILED : ret;
}

static int simulate_source(struct goal_sim *g)
{
	int ret = g->o.noise_path ? goal_noise_load(&g->o) : TOOL_DONE, closed = TOOL_DONE;

	if (!ret && g->o.timeline) {
		g->config.watch = on_interval;
		g->config.watch_first = g->o.timeline_first;
		g->config.watch_end = g->o.timeline_end;
		ret = goal_timeline_open(g);
	}
	if (!ret)
		ret = simulate(g);
	if (g->timeline)
		closed = goal_timeline_close(g);
	sim_destroy(g->sim);
	if (g->o.file)
		goal_input_close(&g->input);
	free((void *)g->o.noise.detours);
	return ret ? ret : closed;
}

/* Nodes are simulated when their parameters are known. */
static int check_together(struct goal_sim_options *o)
{
	if (o->noise.is_cosched && !o->noise_path)
		return misuse("--noise-cosched needs --noise FILE", NULL);
	if (o->matching && o->params.model == SIM_ATLAHS)
		return misuse("--matching counts in the model loggopsim only", NULL);
	if (o->node_ranks && !o->params.node.row_count)
		return misuse("--node-ranks needs --measure or the --params of a node", NULL);
	if (o->params.node.row_count && o->params.model == SIM_ATLAHS)
		return misuse("--model atlahs has no nodes: use it without --measure and --params "
			      "of a node",
			      NULL);
	if (o->params.node.row_count)
		o->params.node.ranks =
			o->node_ranks ? (uint32_t)o->node_ranks : NODE_RANKS_MAX;
	return TOOL_DONE;
}

int goal_sim_main(int argc, char **argv)
{
	struct goal_sim g = { .result = 0 };
	int ret = parse(&g.o, argv);

	if (ret >= 0)
		return ret;
	ret = TOOL_DONE;
	g.is_terminal = isatty(STDERR_FILENO);
	begin_progress(&g);
	if (g.o.measure)
		ret = goal_params_measure(&g);
	end_progress(&g);
	if (!ret)
		ret = check_together(&g.o);
	if (!ret && g.o.save)
		ret = goal_params_save(g.o.save, &g.o.params);
	if (!ret && (g.o.file || g.o.pattern.pattern))
		ret = simulate_source(&g);
	return ret;
}
