/* SPDX-License-Identifier: BSD-3-Clause */
/* Environment variables of launchers and of the user's session. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/internal.h"

/* Returns: the first value from `least` on of these variables, or -1; *out_name: its variable, or
 * NULL. */
static int first_number(const char *const *names, size_t count, int64_t least,
			const char **out_name)
{
	int64_t number;

	for (size_t i = 0; i < count; i++) {
		const char *text = getenv(names[i]);

		*out_name = names[i];
		if (text && !base_parse_int(text, &number) && number >= least &&
		    number <= INT32_MAX)
			return (int)number;
	}
	*out_name = NULL;
	return -1;
}

static int job_rank(const char **out_name)
{
	static const char *const names[] = {
		"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK",
		"PALS_RANKID", "FLUX_TASK_RANK", "SLURM_PROCID",
	};

	return first_number(names, BASE_ARRAY_LEN(names), 0, out_name);
}

int base_job_rank(void)
{
	const char *name;

	return job_rank(&name);
}

const char *base_job_rank_name(void)
{
	const char *name;

	job_rank(&name);
	return name;
}

int base_job_node_rank(void)
{
	static const char *const names[] = {
		"MPI_LOCALRANKID",     "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK",
		"PALS_LOCAL_RANKID",   "FLUX_TASK_LOCAL_ID",         "SLURM_LOCALID",
	};
	const char *name;

	return first_number(names, BASE_ARRAY_LEN(names), 0, &name);
}

int base_job_size(const char **out_name)
{
	/* SLURM_NTASKS is that of the allocation; this one is srun's */
	static const char *const names[] = {
		"PMI_SIZE",	  "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE",
		"FLUX_JOB_SIZE", "SLURM_STEP_NUM_TASKS",
	};
	size_t first = getenv("PMI_SPAWNED") ? 1 : 0; /* PMI_SIZE is its parents' */

	return first_number(names + first, BASE_ARRAY_LEN(names) - first, 1, out_name);
}

int base_job_local_size(void)
{
	static const char *const names[] = {
		"MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE",
		"PALS_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE",
	};
	char number[16];
	int64_t size;

	for (size_t i = 0; i < BASE_ARRAY_LEN(names); i++) {
		const char *text = getenv(names[i]);

		if (!text)
			continue;
		/* Slurm: 8(x4),7; its largest number comes first, and a node with fewer is rare */
		snprintf(number, sizeof number, "%.*s", (int)strspn(text, "0123456789"), text);
		if (!base_parse_int(number, &size) && size > 0 && size <= INT32_MAX)
			return (int)size;
	}
	return -1;
}

bool base_job_preset(const char *name, const char *value)
{
	if (getenv(name))
		return false;
	setenv(name, value, 0);
	return true;
}

void base_job_unset(const char *name) { unsetenv(name); }

char *base_job_extract(const char *name)
{
	const char *value = getenv(name);
	char *copy = value ? strdup(value) : NULL;

	if (copy)
		unsetenv(name);
	return copy;
}

const char *base_job_identity(bool prefer_pmix, int *out_rank)
{
	/* variables of job and rank; each pair of one launcher, as jobs can be nested */
	static const char *const pairs[2][2] = {
		{ "PMI_FD", "PMI_RANK" },
		{ "PMIX_NAMESPACE", "PMIX_RANK" },
	};

	for (int i = 0; i < 2; i++) {
		const char *const *pair = pairs[prefer_pmix ? 1 - i : i];
		const char *job = getenv(pair[0]), *text = getenv(pair[1]);
		int64_t rank;

		if (!job || !text || base_parse_int(text, &rank) || rank < 0 || rank > INT32_MAX)
			continue;
		if (pair == pairs[0] && getenv("PMI_SPAWNED"))
			return NULL; /* shares its parents' name and ranks */
		*out_rank = (int)rank;
		return job;
	}
	return NULL;
}

int base_user_folder(char *out, size_t cap)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	int n;

	/* the XDG specification ignores paths that are not absolute */
	if (config && config[0] == '/')
		n = snprintf(out, cap, "%s/sluice", config);
	else if (home && home[0] == '/')
		n = snprintf(out, cap, "%s/.config/sluice", home);
	else
		return -ENOENT;
	return n >= 0 && (size_t)n < cap ? 0 : -ENAMETOOLONG;
}
