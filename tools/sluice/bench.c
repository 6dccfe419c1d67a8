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
	"Measures this machine with its MPI: plain, with Sluice, and with Sluice\n"
	"returning early, in turn. No program is needed. A table goes to stdout, all to\n"
	"FILE.json, a page with plots to FILE.html. Ctrl-C keeps what was measured.\n"
	"\n"
	"  --quick             less of everything, in under a minute\n"
	"  --time MINUTES      end after so long; all takes about half an hour\n"
	"  -n, --ranks N,...   numbers of ranks (default: by scenario and CPUs)\n"
	"  --mpi PATH          the MPI library, or its installation (default: the first)\n"
	"  --launcher COMMAND  what starts ranks, before -n N (default: its mpiexec)\n"
	"  --sides LIST        of plain,blocking,early,early-thread\n"
	"  -o FILE.json        default sluice-bench-DATE.json; - is stdout, no table\n"
	"  --list              the scenarios; a file of one's own NAME.ini is one too\n"
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
