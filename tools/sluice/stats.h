/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * stats: SLUICE_STATS=- under `sluice run`: one table of the counters of all ranks of this machine,
 * written when the last of them has ended (job.h). Each rank writes its counters to a folder.
 */
#ifndef SLUICE_TOOL_STATS_H
#define SLUICE_TOOL_STATS_H

/* Sets SLUICE_STATS for the program, where base_opt.stats asks for the table and a folder can be
 * made. Otherwise each rank writes a table of its own. */
void stats_prepare(void);

#endif
