/* SPDX-License-Identifier: BSD-3-Clause */
#include "report.h"

#include <errno.h>
#include <string.h>

#include "tool.h"

static const char help[] =
	"usage: sluice report [--host DIR] [--json] DIR\n"
	"\n"
	"Says on one screen whether Sluice helps a program: how much of its time the\n"
	"collectives take, by kind and size, waiting apart from moving; which of them\n"
	"Sluice executed, and what that gained; the time of messages and waits; and what\n"
	"to change. DIR is the folder of a trace.\n"
	"\n"
	"  --host DIR   the trace of another run in which the host MPI executed all:\n"
	"               its times are those to compare with\n"
	"  --json       the same for programs\n"
	"\n"
	"Examples:\n"
	"  mpiexec -n 4 sluice trace -o t1 ./app input.dat\n"
	"  sluice report t1\n"
	"  mpiexec -n 4 sluice trace --set COLL=all:off -o t0 ./app input.dat\n"
	"  sluice report --host t0 t1                   # with and without\n"
	"\n"
	"Exit code: 0 done, 1 no trace, or it cannot be read, 2 misuse.\n"
	"More: man sluice-report\n";

/* Returns: NULL after a message. */
static struct trace_data *read_folder(const char *folder)
{
	struct trace_data *d = trace_alloc(sizeof *d);
	int ret = trace_read(folder, d);

	if (ret == -ENODATA)
		tool_say("report: %s holds no trace: no process started MPI under `sluice trace` "
			 "there",
			 folder);
	else if (ret)
		tool_say("report: cannot read %s: %s", folder, strerror(-ret));
	if (ret)
		return NULL;
	trace_join(d);
	trace_symbols(d);
	return d;
}

static int report(const char *folder, const char *host_folder, bool is_json)
{
	struct trace_data *d = read_folder(folder), *host = NULL;
	struct report r;

	if (d && host_folder)
		host = read_folder(host_folder);
	if (!d || (host_folder && !host))
		return TOOL_FAILED;
	report_sum(d, host, &r);
	if (is_json)
		report_print_json(&r, stdout);
	else
		report_print(&r, stdout);
	return TOOL_DONE;
}

int tool_report(int argc, char **argv)
{
	const char *folder = NULL, *host = NULL, *value;
	bool is_json = false;

	for (char **arg = argv + 1; *arg; arg++) {
		if (!strcmp(*arg, "--help") || !strcmp(*arg, "-h")) {
			fputs(help, stdout);
			return TOOL_DONE;
		}
		if (!strcmp(*arg, "--json")) {
			is_json = true;
		} else if (tool_is_flag(*arg, "--host", &value)) {
			host = value ? value : *++arg;
			if (!host) {
				tool_say("report: --host takes the folder of a trace");
				return TOOL_MISUSE;
			}
		} else if (**arg != '-' && folder) {
			tool_say("report: one folder, or two runs to compare: sluice report %s "
				 "--host %s", folder, *arg);
			return TOOL_MISUSE;
		} else if (**arg == '-') {
			tool_say("report: there is no option '%s'; see: sluice report --help",
				 *arg);
			return TOOL_MISUSE;
		} else {
			folder = *arg;
		}
	}
	if (!folder) {
		tool_say("report: name the folder of a trace: sluice report t1");
		return TOOL_MISUSE;
	}
	return report(folder, host, is_json);
}
