/* SPDX-License-Identifier: BSD-3-Clause */
/* info: what `sluice info` has found, collected by info.c and printed by info_text.c or
 * info_json.c: the two have the same content. */
#ifndef SLUICE_TOOL_INFO_H
#define SLUICE_TOOL_INFO_H

#include "base/base.h"
#include "mpi_find.h"
#include "topology.h"
#include "trial.h"
#include "tune/tune.h"
#include "wait/wait.h"

/* The tune file entry that applies to programs of a host MPI. */
struct info_tuned {
	const struct mpi_found *mpi;
	struct tune_result found;
	char own[PATH_MAX + 256],
		alike[PATH_MAX + 256]; /* where `sluice tune` writes; "": no home */
};

struct info {
	char library[PATH_MAX]; /* "" not found */
	char problems[4096];    /* lines */
	char kernel[2 * 65 + 2];
	char host[65], machine[512]; /* as tune files name them */
	char figures[PATH_MAX];      /* the file of the figures of host MPIs */
	struct mpi_list mpis;
	struct info_tuned
		*tuned; /* of the MPIs that are served; the first one's values are in force */
	size_t tuned_count;
	struct trial trials[TRIAL_COUNT];
	struct trial_early early;
	struct topology topology;
	int topology_error;
	struct wait_facts waiting; /* as a rank that is started here would find them */
};

/* images.c: the ranks that share the address space of a process, or the lines that give gdb their
 * symbols. Returns: an exit code, after a message. */
int info_images(int pid, bool for_gdb);

void info_text(const struct info *info);
void info_json(const struct info *info);

/* Calls visit for each line of info->problems. */
void info_each_problem(const struct info *info, void (*visit)(void *ctx, const char *line),
		       void *ctx);
const char *info_kernel_names(void);
/* Sluice's behaviour on communicators that span nodes, under the current options. */
enum { INFO_NODES = 4 };
struct info_nodes {
	const char *what;
	bool is_served;
	const char *how;
};
void info_nodes(struct info_nodes out[INFO_NODES]);
const char *info_tune_state(enum tune_state state);
/* How collectives on memory of GPUs are executed here. */
void info_device_memory(char *out, size_t cap);
/* How ranks wait that are started here. */
void info_waiting(const struct info *info, char *out, size_t cap);

#endif
