/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics of matching: a table with a line for each rank, and their sums. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/base.h"
#include "goal_sim.h"

static void put_list(FILE *out, const struct sim_matching_list *l)
{
	fprintf(out, "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%" PRIu32 "\t%" PRIu32, l->hits,
		l->misses, l->compared, l->compared_most, l->length_most);
}

int goal_matching_write(const struct goal_sim *g)
{
	static const char *const lists[] = { "posted", "unexpected" };
	FILE *out = fopen(g->o.matching, "we");
	bool is_failed;

	if (out) {
		fputs("rank", out);
		for (int i = 0; i < 2; i++)
			fprintf(out,
				"\t%s_hits\t%s_misses\t%s_compared\t%s_compared_most\t%s_most",
				lists[i], lists[i], lists[i], lists[i], lists[i]);
		fputc('\n', out);
		for (uint32_t r = 0; r < g->config.ranks; r++) {
			const struct sim_matching *m = sim_matching_of(g->sim, r);

			fprintf(out, "%" PRIu32, r);
			put_list(out, &m->posted);
			put_list(out, &m->unexpected);
			fputc('\n', out);
		}
	}
	is_failed = !out || ferror(out);
	if (out && fclose(out))
		is_failed = true;
	if (is_failed)
		tool_say("goal sim: cannot write %s: %s", g->o.matching, strerror(errno));
	return is_failed ? TOOL_FAILED : TOOL_DONE;
}

static void add_list(struct sim_matching_list *sum, const struct sim_matching_list *l)
{
	sum->hits += l->hits;
	sum->misses += l->misses;
	sum->compared += l->compared;
	if (l->compared_most > sum->compared_most)
		sum->compared_most = l->compared_most;
	if (l->length_most > sum->length_most)
		sum->length_most = l->length_most;
}

struct sim_matching goal_matching_sum(const struct goal_sim *g)
{
	struct sim_matching sum = { .posted = { 0 } };

	for (uint32_t r = 0; r < g->config.ranks; r++) {
		add_list(&sum.posted, &sim_matching_of(g->sim, r)->posted);
		add_list(&sum.unexpected, &sim_matching_of(g->sim, r)->unexpected);
	}
	return sum;
}
