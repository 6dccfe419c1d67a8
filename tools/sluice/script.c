/* SPDX-License-Identifier: BSD-3-Clause */
/* Verbs that execute a Python program installed with this one. Their help, which works without
 * Python, is in the files of the verbs. */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sluice_paths.h"
#include "tool.h"

/* Finds this program, and the script installed with it. */
static int find_script(const char *verb, char self[PATH_MAX], char out[PATH_MAX])
{
	char folder[PATH_MAX], path[PATH_MAX + 128];
	ssize_t n = readlink("/proc/self/exe", self, PATH_MAX - 1);

	if (n < 0)
		return -ENOENT;
	self[n] = '\0';
	strcpy(folder, self);
	snprintf(path, sizeof(path), "%s/" SLUICE_LIBEXEC_FROM_BIN "/%s/main.py", dirname(folder),
		 verb);
	return realpath(path, out) ? 0 : -ENOENT;
}

int tool_become_script(const char *verb, int argc, char **argv)
{
	char self[PATH_MAX], script[PATH_MAX];
	char **args;

	if (find_script(verb, self, script)) {
		tool_say("%s: its files are not installed with this program", verb);
		return TOOL_FAILED;
	}
	args = calloc((size_t)argc + 6, sizeof(*args));
	if (!args) {
		tool_say("%s: out of memory", verb);
		return TOOL_FAILED;
	}
	/* -I: the user's packages and variables change no measurement; -B: Python writes no files
	 * into the installation */
	memcpy(args, (char *[]){ "python3", "-I", "-B", script, self }, 5 * sizeof(*args));
	for (int i = 1; i < argc; i++)
		args[4 + i] = argv[i];
	execvp(args[0], args);
	if (errno == ENOENT)
		tool_say("%s: there is no python3 in PATH; it needs Python 3.9 or newer", verb);
	else
		tool_say("%s: cannot run python3: %s", verb, strerror(errno));
	free(args);
	return TOOL_FAILED;
}
