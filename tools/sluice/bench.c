/* SPDX-License-Identifier: BSD-3-Clause */
/* sluice bench: executes tools/bench/main.py, which is installed with the measuring programs in
 * libexec/sluice/bench. This file prints the help and the message that Python is missing. */
#include <string.h>

#include "tool.h"

static const char help[] =
	"usage: sluice bench [SCENARIO]... [--quick | --time MINUTES] [-n RANKS]\n"
	"                    [--mpi PATH] [--launcher COMMAND] [--sides LIST] [-o FILE]\n"
	"       sluice bench compare A.json B.json [--all] [--json] [--html FILE]\n"
	"\n"
	"Measures this machine with the plain MPI, with Sluice, and with Sluice returning\n"
	"early, in turn. Prints a table, and writes FILE.json and FILE.html (a page with\n"
	"plots). Ctrl-C ends the run and keeps the results so far.\n"
	"\n"
	"  --quick             measure less, in under a minute\n"
	"  --time MINUTES      stop after this time (default: about half an hour)\n"
	"  -n, --ranks N,...   numbers of ranks (default: by scenario and CPUs)\n"
	"  --mpi PATH          MPI library or its installation (default: the first found)\n"
	"  --launcher COMMAND  command that starts ranks, without -n N (default: mpiexec)\n"
	"  --sides LIST        some of plain,blocking,early,early-thread\n"
	"  -o FILE.json        default sluice-bench-DATE.json; - prints JSON, no table\n"
	"  --list              list the scenarios; SCENARIO may also be a file NAME.ini\n"
	"\n"
	"Examples:\n"
	"  sluice bench --quick\n"
	"  sluice bench latency overlap -o before.json\n"
	"More: man sluice-bench\n";

int tool_bench(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			fputs(help, stdout);
			return TOOL_DONE;
		}
	}
	return tool_become_script("bench", argc, argv);
}
