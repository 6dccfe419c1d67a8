/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sluice trace: sluice run with a trace, and its report: a table, a timeline for a browser, JSON
 * for Perfetto. The last rank to end (job.h), or `sluice trace report`, makes the report from
 * the files of the ranks.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <dirent.h>
#include <unistd.h>

#include "base/base.h"
#include "job.h"
#include "run.h"
#include "tool.h"
#include "trace_data.h"
#include "trace_schedule.h"

static const char help[] =
	"usage: sluice trace [-o DIR] [--limit SIZE] [--goal FILE] PROGRAM [ARG]...\n"
	"       sluice trace report [--goal FILE]... DIR\n"
	"       sluice trace goal [--use COLLECTIVE=PATTERN]... [-o FILE] DIR\n"
	"\n"
	"Runs PROGRAM as sluice run does, and records how and why each collective was\n"
	"executed, and the time of messages. After the last rank has ended, DIR holds\n"
	"summary.txt, timeline.html (for a browser) and trace.json (for Perfetto), also\n"
	"of a program that crashed. The verb report writes them again.\n"
	"\n"
	"  -o DIR         folder to write to (default sluice-trace.<launcher's pid>)\n"
	"  --limit SIZE   maximum size of a rank's file (default 64M); a full file\n"
	"                 loses its oldest records. Sums over calls stay exact.\n"
	"  --goal FILE    record each message; FILE: the run as a GOAL program.\n"
	"                 With report: show this profile of GOAL schedules\n"
	"  --set, --mpi, --endpoints\n"
	"                 as for sluice run\n"
	"\n"
	"Examples:\n"
	"  mpiexec -n 4 sluice trace -o t1 ./app input.dat\n"
	"  sluice trace report t1\n"
	"  mpiexec -n 4 sluice trace -o t2 --goal app.goal -- python3 app.py\n"
	"\n"
	"Exit code: the program's; 1 DIR cannot be written, 2 misuse.\n"
	"More: man sluice-trace\n";

static const char goal_help[] =
	"usage: sluice trace goal [--use COLLECTIVE=PATTERN]... [--ranks N] [-o FILE] DIR\n"
	"\n"
	"Writes the run that sluice trace --goal recorded in DIR as a GOAL program, or one\n"
	"that liballprof recorded (pmpi-trace-rank-0.txt ...).\n"
	"\n"
	"  -o FILE        write to FILE instead of standard output\n"
	"  --use COLLECTIVE=PATTERN, --use COLLECTIVE=FILE\n"
	"                 the schedule of barrier, bcast, reduce, allreduce, gather,\n"
	"                 scatter, allgather, alltoall or reduce-scatter: a pattern of\n"
	"                 sluice goal gen --list, or a GOAL program of as many ranks as\n"
	"                 the communicator has\n"
	"  --ranks N      extrapolate to N ranks, a multiple of those that ran: each does\n"
	"                 what the ranks before did (weak scaling)\n"
	"\n"
	"Examples:\n"
	"  sluice trace goal -o app.goal t2\n"
	"  sluice trace goal --use allreduce=ring-allreduce -o ring.goal t2\n"
	"  sluice trace goal --ranks 64 t2 | sluice goal sim - --preset infiniband\n"
	"\n"
	"Exit code: 0 done; 1 DIR cannot be read or FILE not written; 2 misuse.\n"
	"More: man sluice-trace\n";

/* ---- the report -------------------------------------------------------------------------- */

static char *title_of(const struct trace_data *d)
{
	const char *name = base_file_name(d->processes[0].header->program);
	time_t at = (time_t)(d->start_realtime_ns / 1000000000u);
	char text[256], when[64] = "";
	struct tm tm;

	if (localtime_r(&at, &tm))
		strftime(when, sizeof when, ", %Y-%m-%d %H:%M:%S", &tm);
	snprintf(text, sizeof text, "%.80s, %zu %s%s", name, d->processes_count,
		 d->processes_count == 1 ? "process" : "processes", when);
	return strdup(text);
}

static void write_summary(const struct trace_view *v, FILE *out) { trace_summary(v->data, out); }

static const struct {
	const char *name;
	void (*write)(const struct trace_view *v, FILE *out);
} outputs[] = {
	{ "summary.txt", write_summary },
	{ "trace.json", trace_write_chrome },
	{ "timeline.html", trace_write_html },
};

/* Writes under another name first, so that nobody reads half a file. Returns: 0, or -errno after a
 * message. */
static int write_output(const struct trace_view *v, const char *folder, size_t which)
{
	char path[PATH_MAX], temporary[PATH_MAX];
	int ret = 0;
	FILE *out;

	snprintf(path, sizeof path, "%s/%s", folder, outputs[which].name);
	snprintf(temporary, sizeof temporary, "%s/.%s.%d", folder, outputs[which].name, getpid());
	out = fopen(temporary, "we");
	if (!out) {
		ret = -errno;
	} else {
		outputs[which].write(v, out);
		errno = 0;
		if (fflush(out) || ferror(out))
			ret = errno ? -errno : -EIO;
		if (fclose(out) && !ret)
			ret = -errno;
		if (!ret && rename(temporary, path))
			ret = -errno;
		if (ret)
			unlink(temporary);
	}
	if (ret)
		tool_say("trace: cannot write %s: %s", path, strerror(-ret));
	return ret;
}

static bool is_goal_profile(const char *name)
{
	size_t n = strlen(name);

	return !strncmp(name, "goal", 4) && n > 5 && !strcmp(name + n - 5, ".json");
}

static int read_goals(struct trace_view *v, const char *folder, char *const *more, size_t count)
{
	DIR *dir = opendir(folder);
	char path[PATH_MAX];
	struct dirent *e;
	int ret = 0;

	while (dir && (e = readdir(dir))) {
		if (!is_goal_profile(e->d_name))
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
		ret |= trace_goal_read(v, path);
	}
	if (dir)
		closedir(dir);
	for (size_t i = 0; i < count; i++)
		ret |= trace_goal_read(v, more[i]);
	trace_view_sort(v);
	return ret;
}

static int make_report(const char *folder, char *const *goals, size_t goal_count, bool quiet)
{
	struct trace_data *d = trace_alloc(sizeof *d);
	struct trace_view *v = trace_alloc(sizeof *v);
	int ret = trace_read(folder, d);

	if (ret == -ENODATA) {
		tool_say("trace: %s holds no trace: no process started MPI under Sluice there",
			 folder);
		return TOOL_FAILED;
	}
	if (ret) {
		tool_say("trace: cannot read %s: %s", folder, strerror(-ret));
		return TOOL_FAILED;
	}
	trace_join(d);
	trace_symbols(d);
	trace_view(d, v);
	v->title = title_of(d);
	ret = read_goals(v, folder, goals, goal_count);
	for (size_t i = 0; i < BASE_ARRAY_LEN(outputs); i++)
		ret |= write_output(v, folder, i);
	if (!quiet)
		trace_summary(d, stdout);
	tool_say("trace: %s: %zu events in %s: summary.txt, timeline.html, trace.json; for advice: "
		 "sluice report %s",
		 v->title, v->events_count, folder, folder);
	return ret ? TOOL_FAILED : TOOL_DONE;
}

static char goal_path[PATH_MAX]; /* of --goal */

static int report_quietly(const char *folder)
{
	struct schedule_choices choices = { 0 };
	int ret = make_report(folder, NULL, 0, true);

	return goal_path[0] ? trace_schedule(folder, goal_path, 0, &choices) : ret;
}

static int goal_main(int argc, char **argv)
{
	static const char *const names[] = { "--use=", "-o=", "--output=", "--ranks=",
					     "--help", "-h", NULL };
	enum { USE, O, OUTPUT, RANKS };
	struct schedule_choices choices = { 0 };
	const char *value, *dir = NULL, *out = "-";
	int at = 1, arg, ret = TOOL_DONE;
	uint64_t ranks = 0;

	(void)argc;
	while (!ret && (arg = goal_next_arg("trace", names, argv, &at, &value)) != GOAL_ARG_END) {
		if (arg == USE) {
			ret = schedule_choose(&choices, value);
		} else if (arg == O || arg == OUTPUT) {
			out = value;
		} else if (arg == RANKS) {
			if (base_parse_bytes(value, &ranks) || !ranks || ranks > GOAL_RANKS_MAX) {
				tool_say("trace: --ranks takes a number of ranks, not '%s'", value);
				ret = TOOL_MISUSE;
			}
		} else if (arg == GOAL_ARG_WORD && !dir) {
			dir = value;
		} else if (arg < 0) {
			if (arg == GOAL_ARG_WORD)
				tool_say("trace: goal takes one folder, not '%s'", value);
			ret = TOOL_MISUSE;
		} else {
			fputs(goal_help, stdout);
			return TOOL_DONE;
		}
	}
	if (!ret && !dir) {
		tool_say("trace: goal takes the folder of a trace");
		ret = TOOL_MISUSE;
	}
	if (!ret)
		ret = trace_schedule(dir, out, (uint32_t)ranks, &choices);
	schedule_choices_free(&choices);
	return ret;
}

static int report_main(char **arg)
{
	char **goals = trace_alloc(64 * sizeof *goals);
	const char *folder = NULL, *value;
	size_t goal_count = 0;

	for (; *arg; arg++) {
		if (!strcmp(*arg, "--help") || !strcmp(*arg, "-h")) {
			fputs(help, stdout);
			return TOOL_DONE;
		}
		if (tool_is_flag(*arg, "--goal", &value)) {
			value = value ? value : *++arg;
			if (!value || goal_count == 64) {
				tool_say("trace: --goal takes a file, at most 64 times");
				return TOOL_MISUSE;
			}
			goals[goal_count++] = (char *)(uintptr_t)value;
		} else if (**arg == '-' || folder) {
			tool_say("trace: report takes one folder and --goal FILE, not '%s'", *arg);
			return TOOL_MISUSE;
		} else {
			folder = *arg;
		}
	}
	if (!folder) {
		tool_say("trace: report takes the folder of a trace");
		return TOOL_MISUSE;
	}
	return make_report(folder, goals, goal_count, false);
}

/* ---- the run ----------------------------------------------------------------------------- */

/* Rank 0 prints messages to the whole job. */
#define SAY_ONCE(...) (base_job_rank() > 0 ? (void)0 : tool_say(__VA_ARGS__))

static char folder[PATH_MAX];
static bool is_misused;

/* The watcher may run in another folder. */
static void set_goal(const char *path)
{
	char here[PATH_MAX];
	int n = -1;

	if (*path == '/')
		n = snprintf(goal_path, sizeof goal_path, "%s", path);
	else if (*path && getcwd(here, sizeof here))
		n = snprintf(goal_path, sizeof goal_path, "%s/%s", here, path);
	is_misused |= n < 0 || (size_t)n >= sizeof goal_path;
}

/* Returns: 0, or -errno: the file cannot be written after the run. Creates nothing. */
static int check_goal(void)
{
	char *slash = strrchr(goal_path, '/'), dir[PATH_MAX];
	struct stat st;

	if (!goal_path[0])
		return 0;
	if (!stat(goal_path, &st))
		return S_ISDIR(st.st_mode) ? -EISDIR : access(goal_path, W_OK) ? -errno : 0;
	snprintf(dir, sizeof dir, "%.*s/", (int)(slash - goal_path), goal_path);
	return access(dir, W_OK | X_OK) ? -errno : 0;
}

static const char *record_library(void)
{
	return goal_path[0] ? "libsluice-record.so" : "libsluice-profile.so";
}

static int own_flag(char **arg)
{
	const char *value = NULL;
	bool is_limit = tool_is_flag(*arg, "--limit", &value);
	bool is_goal = tool_is_flag(*arg, "--goal", &value);

	if (!is_limit && !is_goal && strcmp(*arg, "-o") && !tool_is_flag(*arg, "--output", &value))
		return 0;
	if (!value && !arg[1]) {
		is_misused = true;
		return 1;
	}
	if (is_limit)
		setenv("SLUICE_TRACE_LIMIT", value ? value : arg[1], 1);
	else if (is_goal)
		set_goal(value ? value : arg[1]);
	else
		snprintf(folder, sizeof folder, "%s", value ? value : arg[1]);
	return value ? 1 : 2;
}

static int prepare(bool has_library)
{
	char goals[PATH_MAX + 8];
	int rc;

	if (is_misused) {
		tool_say("trace: -o takes a folder, --limit a size, --goal a file");
		return TOOL_MISUSE;
	}
	if (!has_library) {
		SAY_ONCE("trace: the program runs without Sluice: nothing is traced");
		return 0;
	}
	rc = check_goal();
	if (rc) {
		SAY_ONCE("trace: --goal cannot write %s: %s", goal_path, strerror(-rc));
		return TOOL_FAILED;
	}
	if (!folder[0])
		snprintf(folder, sizeof folder, "sluice-trace.%d", job_launcher());
	rc = job_join(folder, sizeof folder);
	if (rc == -EEXIST)
		SAY_ONCE("trace: %s holds the trace of another run; remove it or name another "
			 "folder with -o",
			 folder);
	else if (rc)
		SAY_ONCE("trace: cannot use the folder %s: %s", folder, strerror(-rc));
	if (rc)
		return TOOL_FAILED;
	setenv("SLUICE_TRACE", folder, 1);
	snprintf(goals, sizeof goals, "%s/goal", folder);
	setenv("SLUICE_GOAL_PROFILE", goals, 0);
	rc = job_watch(folder, report_quietly);
	if (rc)
		SAY_ONCE("trace: cannot watch the program: %s; after it: sluice trace report %s",
			 strerror(-rc), folder);
	return 0;
}

int tool_trace(int argc, char **argv)
{
	static const char *const flags[] = {
		"--output", "--limit", "--goal", "--set", "--mpi", "--endpoints",
		"--help", NULL
	};
	static const struct run_verb trace = {
		.name = "trace",
		.help = help,
		.flags = flags,
		.own_flag = own_flag,
		.prepare = prepare,
		.before = record_library,
	};

	if (argc > 1 && !strcmp(argv[1], "report"))
		return report_main(argv + 2);
	if (argc > 1 && !strcmp(argv[1], "goal"))
		return goal_main(argc - 1, argv + 1);
	return run_program(&trace, argv);
}
