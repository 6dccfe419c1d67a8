/* SPDX-License-Identifier: BSD-3-Clause */
/* sluice tune: becomes tools/tune/main.py. */
#include <string.h>

#include "tool.h"

static const char help[] =
	"usage: sluice tune [--quick] [--dry-run] [--json] [-n RANKS] [--mpi PATH]\n"
	"                   [--launcher COMMAND] [--alike] [-o FILE]\n"
	"\n"
	"Measures this machine with its MPI in under two minutes, and writes a file of\n"
	"values that programs under `sluice run` read. The file contains a value only if\n"
	"it was better than the default with confidence. `sluice info` shows the values\n"
	"in force. Run it on a quiet machine.\n"
	"\n"
	"  --quick             try fewer sizes and values, in under 40 seconds\n"
	"  --dry-run           print the file instead of writing it\n"
	"  --json              print JSON and no progress\n"
	"  -n, --ranks N,...   numbers of ranks (default: 2, and all CPUs up to 16)\n"
	"  --mpi PATH          MPI library or its installation (default: the first found)\n"
	"  --launcher COMMAND  command that starts ranks, without -n N (default: mpiexec)\n"
	"  --alike             write the file for all machines of this kind\n"
	"  -o FILE             write to FILE instead of a file in ~/.config/sluice\n"
	"\n"
	"Examples:\n"
	"  sluice tune\n"
	"  sluice tune --quick --dry-run\n"
	"More: man sluice-tune\n";

int tool_tune(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			fputs(help, stdout);
			return TOOL_DONE;
		}
	}
	return tool_become_script("tune", argc, argv);
}
