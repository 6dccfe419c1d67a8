/* SPDX-License-Identifier: BSD-3-Clause */
#include "stats.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "job.h"
#include "os/os.h"
#include "tool.h"

struct sums {
	uint64_t sum[BASE_CTR_COUNT], least[BASE_CTR_COUNT], most[BASE_CTR_COUNT];
	int ranks, started; /* ranks that have written; all */
};

/* ---- after the last rank ----------------------------------------------------------------- */

/* Adds a file as the library writes it: a counter on each line. */
static void add_file(struct sums *s, FILE *f)
{
	uint64_t values[BASE_CTR_COUNT] = { 0 }, value;
	char line[256], name[64];

	while (fgets(line, sizeof line, f)) {
		if (sscanf(line, " \"%63[^\"]\": %" SCNu64, name, &value) != 2)
			continue;
		for (int c = 0; c < BASE_CTR_COUNT; c++)
			if (!strcmp(name, base_counter_texts[c].name))
				values[c] = value;
	}
	for (int c = 0; c < BASE_CTR_COUNT; c++) {
		s->sum[c] += values[c];
		s->least[c] = s->ranks ? base_min_u64(s->least[c], values[c]) : values[c];
		s->most[c] = base_max_u64(s->most[c], values[c]);
	}
	s->ranks++;
}

/* Reads and removes the files of the folder. */
static void collect(const char *folder, struct sums *s)
{
	DIR *dir = opendir(folder);
	char path[PATH_MAX + NAME_MAX];
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		size_t n = strlen(e->d_name);
		FILE *f;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
		s->started += !strncmp(e->d_name, "started.", 8);
		f = n > 5 && !strcmp(e->d_name + n - 5, ".json") ? fopen(path, "re") : NULL;
		if (f) {
			add_file(s, f);
			fclose(f);
		}
		unlink(path);
	}
	if (dir)
		closedir(dir);
	rmdir(folder);
}

static void print(FILE *out, const struct sums *s)
{
	int lost = s->started - s->ranks;
	bool is_empty = true;
	char host[64] = "";

	gethostname(host, sizeof host - 1);
	fprintf(out, "sluice: counters of %d %s on %s", s->ranks,
		s->ranks == 1 ? "rank" : "ranks", host);
	if (lost > 0)
		fprintf(out, "; %d ended without MPI_Finalize", lost);
	fprintf(out, "\n  %-23s %16s %14s %14s\n", "counter", "sum of ranks", "least", "most");
	for (int c = 0; c < BASE_CTR_COUNT; c++) {
		if (!s->sum[c])
			continue;
		is_empty = false;
		fprintf(out, "  %-23s %16" PRIu64 " %14" PRIu64 " %14" PRIu64 "  %s\n",
			base_counter_texts[c].name, s->sum[c], s->least[c], s->most[c],
			base_counter_texts[c].help);
	}
	if (is_empty)
		fputs("  (all are zero)\n", out);
}

static int report(const char *folder)
{
	struct sums s = { .ranks = 0 };
	size_t bytes = 0;
	char *text = NULL;
	FILE *out;

	collect(folder, &s);
	if (!s.ranks) {
		if (s.started > 1)
			tool_say("run: no counters: no process has reached MPI_Finalize "
				 "under Sluice");
		return TOOL_DONE;
	}
	out = open_memstream(&text, &bytes);
	if (!out)
		return TOOL_FAILED;
	print(out, &s);
	fclose(out);
	/* one write, as the launcher writes to the same file */
	return write(STDERR_FILENO, text, bytes) < 0 ? TOOL_FAILED : TOOL_DONE;
}

/* ---- before the program ------------------------------------------------------------------ */

/* A folder in TMPDIR that nobody else can write to. Returns: false: none. */
static bool make_folder(char *folder, size_t cap)
{
	const char *tmp = getenv("TMPDIR");
	char host[64] = "";
	int job = job_launcher();
	struct stat st;

	gethostname(host, sizeof host - 1);
	snprintf(folder, cap, "%s/sluice-stats.%s.%d.%" PRIu64, tmp && *tmp ? tmp : "/tmp", host,
		 job, os_process_start(job));
	mkdir(folder, 0700);
	return !lstat(folder, &st) && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH));
}

void stats_prepare(void)
{
	char folder[PATH_MAX], path[PATH_MAX + 32];
	int rank = base_job_rank();
	FILE *f;

	if (strcmp(base_opt.stats, "-") || !make_folder(folder, sizeof folder) ||
	    job_join(folder, sizeof folder))
		return;
	snprintf(path, sizeof path, "%s/started.%d", folder, rank < 0 ? (int)getpid() : rank);
	f = fopen(path, "we");
	if (f)
		fclose(f);
	snprintf(path, sizeof path, "%s/rank", folder);
	if (!job_watch(folder, report))
		setenv("SLUICE_STATS", path, 1);
}
