/* SPDX-License-Identifier: BSD-3-Clause */
/* sluice tune: becomes tools/tune/main.py. */
#include <string.h>

#include "tool.h"

static const char help[] =
	"usage: sluice tune [--quick] [--dry-run] [--json] [-n RANKS] [--mpi PATH]\n"
	"                   [--launcher COMMAND] [--alike] [-o FILE]\n"
	"\n"
	"Measures this machine with its MPI in under two minutes, and writes a file of\n"
	"values that programs under `sluice run` find by themselves. A value gets there\n"
	"only when it was better than the default with confidence; `sluice info` shows\n"
	"what is in force. Best on a quiet machine.\n"
	"\n"
	"  --quick             fewer sizes and values, in under 40 seconds\n"
	"  --dry-run           write nothing; show the file\n"
	"  --json              show what was found for programs, no progress\n"
	"  -n, --ranks N,...   numbers of ranks (default: 2, and all CPUs up to 16)\n"
	"  --mpi PATH          the MPI library, or its installation (default: the first)\n"
	"  --launcher COMMAND  what starts ranks, before -n N (default: its mpiexec)\n"
	"  --alike             for all machines of this kind, not only this one\n"
	"  -o FILE             instead of a file in ~/.config/sluice\n"
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
