/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trace_job: the ranks of a job agree on one folder for their traces without communication, and the
 * last one to end makes the report.
 *
 *   folder/job.HOST   the job that writes here; a second job is refused
 *   folder/lock       a shared lock per traced process; the watcher that gets it exclusively, after
 *                     its process has ended, is the last one
 *
 * The program keeps its process, as under `sluice run`. A watcher in a session of its own waits for
 * the end of the process, so it makes the report also after a crash or Ctrl-C. It keeps stderr
 * open, whose closing launchers wait for.
 */
#ifndef SLUICE_TOOL_TRACE_JOB_H
#define SLUICE_TOOL_TRACE_JOB_H

#include <stddef.h>

/* Creates or finds the folder; "": a folder named after the job, whose name comes back. Returns: 0,
 * or an exit code after a message. Owner: the lock belongs to this process and its children. */
int trace_job_join(char *folder, size_t cap);
/* Forks the watcher, which calls report(folder) when this process has ended as the last one. */
int trace_job_watch(const char *folder, int (*report)(const char *folder));

#endif
