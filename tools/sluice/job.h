/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * job: the ranks of a job agree on a folder without communication, and the last one to end makes a
 * report of the files that they left there: `sluice trace`, and counters (stats.c).
 *
 *   folder/job.HOST   the job that writes here; a second job is refused
 *   folder/lock       a shared lock per watched process; the watcher that gets it exclusively,
 *                     after its process has ended, is the last one
 *
 * The program keeps its process, as under `sluice run`. A watcher in a session of its own waits for
 * the end of the process, so it makes the report also after a crash or Ctrl-C. It keeps stderr
 * open, whose closing launchers wait for.
 */
#ifndef SLUICE_TOOL_JOB_H
#define SLUICE_TOOL_JOB_H

#include <stddef.h>

/* Returns: the process that started the ranks. */
int job_launcher(void);
/* Creates or finds the folder, whose absolute path comes back. Returns: 0, -EEXIST (the folder of
 * another run) or -errno. Owner: the lock belongs to this process until job_watch(). */
int job_join(char *folder, size_t cap);
/* Forks the watcher, which calls report(folder) when this process has ended as the last one.
 * Returns: 0 or -errno. */
int job_watch(const char *folder, int (*report)(const char *folder));

#endif
