/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads a pattern, a text or a program into the simulator, and names its operations. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/base.h"
#include "goal_sim.h"

#define TELL_RANKS 0x3ffu

static int failed(const struct goal_sim *g, int error)
{
	if (error == -ECANCELED)
		tool_say("goal sim: interrupted");
	else
		tool_say("goal sim: %s: %s", g->o.pattern.pattern->name, goal_why(error));
	return TOOL_FAILED;
}

static int load_pattern(struct goal_sim *g)
{
	uint32_t ranks = g->o.pattern.params.ranks;
	const struct goal_block *block;
	struct goal_maker m = { NULL };
	int ret;

	g->config.ranks = ranks;
	g->config.relation = g->o.pattern.pattern->by_bits ? SIM_BY_BITS : SIM_BY_DISTANCE;
	ret = sim_create(&g->config, &g->sim);
	for (uint32_t r = 0; r < ranks && !ret; r++) {
		ret = goal_maker_block(&m, &g->o.pattern, r, &block);
		if (!ret)
			ret = sim_add(g->sim, r, block);
		if (!ret && !(r & TELL_RANKS) && goal_sim_progress(g, "generating", r, ranks))
			ret = -ECANCELED;
	}
	goal_maker_free(&m);
	return ret ? failed(g, ret) : TOOL_DONE;
}

static int begin(void *ctx, uint32_t ranks)
{
	struct goal_sim *g = ctx;

	g->config.ranks = ranks;
	return sim_create(&g->config, &g->sim);
}

static int add(void *ctx, uint32_t rank, const struct goal_block *block)
{
	struct goal_sim *g = ctx;

	if (!(rank & TELL_RANKS) && goal_sim_progress(g, "loading", rank, g->config.ranks))
		return -ECANCELED;
	return sim_add(g->sim, rank, block);
}

static int load_file(struct goal_sim *g)
{
	static const struct goalfile_calls calls = { begin, add };
	int ret = goal_input_stream(&g->input, "sim", g->o.file, &calls, g);

	goal_problems_print(&g->input.problems, g->input.name);
	return ret;
}

int goal_sim_load(struct goal_sim *g) { return g->o.file ? load_file(g) : load_pattern(g); }

/* ---- names ------------------------------------------------------------------------------- */

const char *goal_sim_label(const struct goal_sim *g, uint32_t rank, uint32_t op, uint64_t *line)
{
	const struct goal_places *places;

	*line = 0;
	if (!g->o.file || rank >= g->input.place_count || !g->input.places[rank].all)
		return NULL;
	places = &g->input.places[rank];
	*line = places->all[op].line;
	return places->all[op].label == TEXT_NO_LABEL ? NULL
						      : places->labels + places->all[op].label;
}

static int print_transfer(char *buf, size_t cap, const char *word, uint64_t bytes, const char *way,
			  uint32_t peer, uint32_t tag)
{
	char who[16] = "any", what[16] = "any";

	if (peer != GOAL_ANY)
		snprintf(who, sizeof who, "%" PRIu32, peer);
	if (tag != GOAL_ANY)
		snprintf(what, sizeof what, "%" PRIu32, tag);
	return snprintf(buf, cap, "%s %" PRIu64 "b %s %s tag %s", word, bytes, way, who, what);
}

static int print_op(uint8_t type, uint64_t bytes, uint32_t peer, uint32_t tag, char *buf,
		    size_t cap)
{
	if (type == GOAL_SEND)
		return print_transfer(buf, cap, "send", bytes, "to", peer, tag);
	if (type == GOAL_RECV)
		return print_transfer(buf, cap, "recv", bytes, "from", peer, tag);
	if (type == GOAL_NOP || type == GOAL_STAMP || type == GOAL_TEST)
		return snprintf(buf, cap, "%s", goal_op_words[type]);
	return snprintf(buf, cap, "%s %" PRIu64 "%s", goal_op_words[type], bytes,
			type == GOAL_CALC ? "" : "b");
}

int goal_sim_name(const struct goal_sim *g, uint32_t rank, uint32_t op, uint8_t type,
		  uint64_t bytes, uint32_t peer, uint32_t tag, char *buf, size_t cap)
{
	uint64_t line;
	const char *label = goal_sim_label(g, rank, op, &line);
	int used = 0;

	if (label)
		used = snprintf(buf, cap, "%.64s (line %" PRIu64 "): ", label, line);
	else if (line)
		used = snprintf(buf, cap, "line %" PRIu64 ": ", line);
	return used + print_op(type, bytes, peer, tag, buf + used,
			       (size_t)used < cap ? cap - (size_t)used : 0);
}
