/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sluice bench: becomes tools/bench/main.py, which is installed with the measuring programs in
 * libexec/sluice/bench. Here is what must work without Python: the help, and saying that it is missing.
 */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "sluice_paths.h"
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

/* This program, and the script that is installed with it. */
static int find_script(char self[PATH_MAX], char out[PATH_MAX])
{
	char folder[PATH_MAX], path[PATH_MAX + 128];
	ssize_t n = readlink("/proc/self/exe", self, PATH_MAX - 1);

	if (n < 0)
		return -ENOENT;
	self[n] = '\0';
	strcpy(folder, self);
	snprintf(path, sizeof(path), "%s/" SLUICE_BENCH_FROM_BIN "/main.py", dirname(folder));
	return realpath(path, out) ? 0 : -ENOENT;
}

static int become(char **args)
{
	execvp(args[0], args);
	if (errno == ENOENT)
		tool_say("bench: there is no python3 in PATH; it needs Python 3.9 or newer");
	else
		tool_say("bench: cannot run python3: %s", strerror(errno));
	return TOOL_FAILED;
}

int tool_bench(int argc, char **argv)
{
	char self[PATH_MAX], script[PATH_MAX];
	char **args;
	int code;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			fputs(help, stdout);
			return TOOL_DONE;
		}
	}
	if (find_script(self, script)) {
		tool_say("bench: its files are not installed with this program");
		return TOOL_FAILED;
	}
	args = calloc((size_t)argc + 6, sizeof *args);
	if (!args) {
		tool_say("bench: out of memory");
		return TOOL_FAILED;
	}
	/* -I: neither the user's packages nor variables change what is measured; -B: no files are written
	 * where the tool is installed */
	memcpy(args, (char *[]){ "python3", "-I", "-B", script, self }, 5 * sizeof *args);
	for (int i = 1; i < argc; i++)
		args[4 + i] = argv[i];
	code = become(args);
	free(args);
	return code;
}
