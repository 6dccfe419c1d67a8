/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "sluice/sluice.h"
#include "sluice_paths.h"
#include "os/endpoint.h"
#include "os/os.h"
#include "preload/preload.h"
#include "run.h"
#include "tool.h"

static const char help[] =
	"usage: sluice VERB [ARGUMENT]...\n"
	"\n"
	"Makes the collectives of unmodified MPI programs faster inside a node.\n"
	"\n"
	"  run      run a program under Sluice: mpiexec ... sluice run ./app\n"
	"  info     show what works on this machine, why the rest does not, all options\n"
	"  check    say what Sluice can do for a program, without running it\n"
	"  trace    run a program and show how and why each collective was executed\n"
	"  report   say whether Sluice helps a traced program, and what to change\n"
	"  bench    measure this machine: the plain MPI and Sluice in turn\n"
	"  tune     find the values that suit this machine; programs read them\n"
	"  goal     check, print, compile, draw, simulate and run schedules in files\n"
	"\n"
	"  sluice VERB --help, sluice --help, sluice --version\n"
	"\n"
	"Examples:\n"
	"  mpiexec -n 4 sluice run ./app input.dat\n"
	"  mpiexec -n 4 sluice run --set COLL_THRESHOLD=1M python3 app.py\n"
	"  SLUICE=off mpiexec -n 4 sluice run ./app     # without Sluice, to compare\n"
	"  sluice info                                  # why not?\n"
	"\n"
	"Options are environment variables, SLUICE_...; `sluice info` lists them.\n"
	"More: man sluice\n";

static const struct {
	const char *name;
	int (*main)(int argc, char **argv);
} verbs[] = {
	{ "run", tool_run },
	{ "info", tool_info },
	{ "check", tool_check },
	{ "trace", tool_trace },
	{ "report", tool_report },
	{ "bench", tool_bench },
	{ "tune", tool_tune },
	{ "goal", tool_goal },
};

void tool_say(const char *fmt, ...)
{
	char line[PATH_MAX + 512] = "sluice: ";
	size_t used = strlen(line), room = sizeof(line) - used - 1;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(line + used, room, fmt, args);
	va_end(args);
	if (n < 0)
		return;
	used += base_min_u64((uint64_t)n, room - 1);
	line[used++] = '\n';
	if (write(STDERR_FILENO, line, used) < 0)
		return; /* stderr is closed */
}

bool tool_is_flag(const char *arg, const char *name, const char **value)
{
	size_t len = strlen(name);

	if (strncmp(arg, name, len) || (arg[len] && arg[len] != '='))
		return false;
	*value = arg[len] ? arg + len + 1 : NULL;
	return true;
}

int tool_find_preload(char *out, size_t cap)
{
	/* relative to the folder of this program: installed, then in the build tree */
	static const char *const places[] = { SLUICE_LIB_FROM_BIN, SLUICE_LIB_FROM_BUILD };
	char self[PATH_MAX], path[PATH_MAX * 2], real[PATH_MAX];

	if (os_own_folder(self, sizeof(self)))
		return -ENOENT;
	for (size_t i = 0; i < BASE_ARRAY_LEN(places); i++) {
		snprintf(path, sizeof(path), "%s/%s/" PRELOAD_NAME, self, places[i]);
		if (realpath(path, real) && access(real, R_OK) == 0 && strlen(real) < cap) {
			strcpy(out, real);
			return 0;
		}
	}
	return -ENOENT;
}

static int unknown_verb(const char *word)
{
	const char *names[BASE_ARRAY_LEN(verbs) + 2] = { "--help", "--version" };
	const char *nearest;

	for (size_t i = 0; i < BASE_ARRAY_LEN(verbs); i++)
		names[i + 2] = verbs[i].name;
	nearest = tool_nearest(word, names, BASE_ARRAY_LEN(names));
	if (nearest)
		tool_say("there is no verb '%s'; did you mean '%s'? See: sluice --help", word,
			 nearest);
	else
		tool_say("there is no verb '%s'; see: sluice --help", word);
	return TOOL_MISUSE;
}

/* Output that does not arrive (full disk, closed pipe) is a failure. */
static int flushed(int code)
{
	if (fflush(stdout) || ferror(stdout)) {
		tool_say("cannot write: %s", strerror(errno));
		return code ? code : TOOL_FAILED;
	}
	return code;
}

int main(int argc, char **argv)
{
	const char *wrapped = getenv(ENDPOINT_VARIABLE);

	if (wrapped && *wrapped == ENDPOINT_PROGRAM)
		return run_wrapped(wrapped + 1, argv);
	if (argc < 2) {
		fputs(help, stderr);
		return TOOL_MISUSE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0) {
		fputs(help, stdout);
		return flushed(TOOL_DONE);
	}
	if (strcmp(argv[1], "--version") == 0) {
		puts("sluice " SLUICE_VERSION);
		return flushed(TOOL_DONE);
	}
	for (size_t i = 0; i < BASE_ARRAY_LEN(verbs); i++)
		if (strcmp(argv[1], verbs[i].name) == 0)
			return flushed(verbs[i].main(argc - 1, argv + 1));
	return unknown_verb(argv[1]);
}
