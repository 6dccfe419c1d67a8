/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace_job: the ranks of a job find one folder for their traces without speaking to each other,
 * and the last of them to end makes the report.
 *
 *   folder/job.HOST   which job writes here: a second one is refused
 *   folder/lock       a shared lock for each process that is traced; who can take it for itself
 * alone when its process has ended was the last
 *
 * The program keeps its process, as under `sluice run`. A watcher, in a session of its own, waits
 * for its end, and so makes the report also after crashes and ctrl-C. It holds stderr open, for
 * which launchers wait before they end.
 */
#ifndef SLUICE_TOOL_TRACE_JOB_H
#define SLUICE_TOOL_TRACE_JOB_H

#include <stddef.h>

/* Make or find the folder, "" for one that is named after the job; its name comes back. 0 or an
 * exit code, told. Owner: the lock belongs to this process and to its children. */
int trace_job_join(char *folder, size_t cap);
/* Fork the watcher: it calls report(folder) when this process has ended, if it was the last. */
int trace_job_watch(const char *folder, int (*report)(const char *folder));

#endif
