/* SPDX-License-Identifier: BSD-3-Clause */
/* sluice goal run --replay: the times of the run from which a text was made, beside those of the
 * replay. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "goal.h"

uint64_t *goal_replay_read(const char *path, uint32_t ranks)
{
	uint64_t *traced = calloc(ranks, sizeof *traced), ns;
	FILE *file = fopen(path, "re");
	uint32_t rank, found = 0;
	char *line = NULL;
	size_t cap = 0;

	while (traced && file && getline(&line, &cap, file) > 0)
		if (sscanf(line, "// rank %" SCNu32 ": traced %" SCNu64 " ns", &rank, &ns) == 2 &&
		    rank < ranks && ns) {
			found += !traced[rank];
			traced[rank] = ns;
		}
	free(line);
	if (file)
		fclose(file);
	if (found == ranks)
		return traced;
	tool_say("goal run: --replay: %s was not made by sluice trace --goal, or from a run "
		 "without MPI_Finalize",
		 path);
	free(traced);
	return NULL;
}

void goal_replay_print(uint64_t traced_ns, uint64_t run_ns, bool json)
{
	double traced = (double)traced_ns / 1e3, ratio = (double)run_ns / (double)traced_ns;

	if (json)
		printf(", \"traced_us\": %.3f", traced);
	else
		printf("  traced %.3f us: the replay takes %.3f of it\n", traced, ratio);
}
