/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sluice check PROGRAM: what Sluice can do for it, without running it. ld.so lists the libraries
 * that the program would load, as for ldd(1), so LD_LIBRARY_PATH counts as it would in a job.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "endpoints/endpoints.h"
#include "mpi_find.h"
#include "preload/preload.h"
#include "run.h"
#include "text.h"
#include "tool.h"

static const char help[] =
	"usage: sluice check [--json] PROGRAM\n"
	"       sluice check [--json] dsa|kmod|sw\n"
	"\n"
	"Says what Sluice can do for a program, and why not, without running it:\n"
	"whether Sluice takes part, which MPI library the program would load here, and\n"
	"whether its ranks could share an address space (sluice run --endpoints).\n"
	"The name of a copy engine: tries it on this machine, compares every byte, and\n"
	"measures it beside this CPU; takes seconds. (A program of this name: ./dsa)\n"
	"\n"
	"  --json    print JSON\n"
	"\n"
	"Examples:\n"
	"  sluice check ./app\n"
	"  sluice check python3\n"
	"  sluice check dsa\n"
	"\n"
	"Exit code: 0 Sluice takes part, or the engine works; 1 the program would run\n"
	"without it, or the engine is absent or wrong; 2 misuse; 126 not executable;\n"
	"127 no such program. More: man sluice-check\n";

struct finding {
	const char *name;
	bool yes;
	char why[PATH_MAX + 256];
};

enum { SLUICE, MPI, SANITIZER, ENDPOINTS, FINDINGS };

/* ---- the MPI library ----------------------------------------------------------------------- */

/* Has ld.so list the program's libraries. Returns: its output, or NULL. */
static FILE *list_libraries(const char *program, const char *loader, pid_t *out_pid)
{
	char *argv[] = { (char *)loader, (char *)program, NULL };
	posix_spawn_file_actions_t actions;
	FILE *out = NULL;
	int fd[2], rc;

	if (pipe(fd))
		return NULL;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addclose(&actions, fd[0]);
	posix_spawn_file_actions_addclose(&actions, fd[1]);
	unsetenv("LD_PRELOAD");
	setenv("LD_TRACE_LOADED_OBJECTS", "1", 1);
	rc = posix_spawn(out_pid, loader, &actions, NULL, argv, environ);
	unsetenv("LD_TRACE_LOADED_OBJECTS");
	posix_spawn_file_actions_destroy(&actions);
	close(fd[1]);
	if (!rc)
		out = fdopen(fd[0], "r");
	if (!out)
		close(fd[0]);
	if (!rc && !out)
		waitpid(*out_pid, NULL, 0);
	return out;
}

/* Does the line name an MPI library: "libmpi.so.40 => /usr/lib/libmpi.so.40 (0x7f...)"? */
static bool is_mpi_line(char *line, struct mpi_found *m)
{
	char *path = strchr(line, '/'), *end = strstr(line, " (0x");

	if (!path)
		return false;
	if (end)
		*end = '\0';
	return mpi_find_examine(path, m);
}

/* Returns: true when the program links an MPI library; m->path is "" when ld.so does not find it.
 */
static bool find_mpi(const char *program, const char *loader, struct mpi_found *m)
{
	char line[PATH_MAX + 256];
	bool found = false;
	pid_t pid;
	FILE *in = list_libraries(program, loader, &pid);

	*m->path = '\0';
	if (!in)
		return false;
	while (fgets(line, sizeof line, in)) {
		char *missing = strstr(line, "=> not found");

		if (!found && missing && strstr(line, "libmpi"))
			found = true;
		else if (!*m->path && is_mpi_line(line, m))
			found = true;
	}
	fclose(in);
	waitpid(pid, NULL, 0);
	return found;
}

static void check_mpi(const char *path, enum preload_target kind, struct finding *f)
{
	static struct mpi_found m; /* 8 KiB: too large for the stack */
	char loader[PATH_MAX];

	if (kind != PRELOAD_TARGET_MPI) {
		snprintf(f->why, sizeof f->why, "%s", kind == PRELOAD_TARGET_MAY ?
			 "not linked; the program may load one while it runs" :
			 "neither linked nor loaded by any function of the program");
	} else if (!preload_find_loader(path, loader, sizeof loader) ||
		   !find_mpi(path, loader, &m)) {
		snprintf(f->why, sizeof f->why, "ld.so cannot list the program's libraries");
	} else if (!*m.path) {
		snprintf(f->why, sizeof f->why,
			 "ld.so does not find it; set LD_LIBRARY_PATH, or: sluice run --mpi PATH");
	} else if (m.refusal) {
		snprintf(f->why, sizeof f->why, "%s: %s", m.path, m.refusal);
	} else {
		mpi_find_version(&m);
		f->yes = true;
		snprintf(f->why, sizeof f->why, "%s (%s)", m.path,
			 *m.version ? m.version : mpi_find_abi_name(m.abi));
	}
}

/* ---- the program ---------------------------------------------------------------------------- */

static void check_sluice(const char *path, enum preload_target kind, struct finding *f)
{
	const char *refusal = run_refusal(path, kind);
	char library[PATH_MAX];

	if (kind == PRELOAD_TARGET_LAUNCHER)
		refusal = "is a launcher; check the program that it starts";
	else if (!refusal && kind == PRELOAD_TARGET_PLAIN)
		refusal = "cannot call MPI";
	else if (!refusal && tool_find_preload(library, sizeof library))
		refusal = "runs without Sluice: " PRELOAD_NAME " is not installed with this tool";
	f->yes = !refusal;
	if (refusal)
		snprintf(f->why, sizeof f->why, "the program %s", refusal);
	else
		snprintf(f->why, sizeof f->why, "%s", kind == PRELOAD_TARGET_MPI ?
			 "takes part: mpiexec -n 4 sluice run PROGRAM" :
			 "takes part once the program loads an MPI library");
}

static void check_endpoints(const char *path, enum preload_target kind,
			    struct finding found[FINDINGS])
{
	struct finding *f = &found[ENDPOINTS];
	const char *refusal = kind == PRELOAD_TARGET_MPI ? run_refusal(path, kind)
			    : kind == PRELOAD_TARGET_MAY ? "links no MPI library; one that it "
							   "executes may share"
							 : "links no MPI library";

	if (refusal) {
		snprintf(f->why, sizeof f->why, "the program %s", refusal);
		return;
	}
	if (found[SANITIZER].yes)
		snprintf(f->why, sizeof f->why, "a sanitizer needs its address space");
	else
		f->yes = endpoints_check(path, f->why, sizeof f->why);
	if (f->yes)
		snprintf(f->why, sizeof f->why, "ranks can share an address space: "
						"sluice run --endpoints=N");
}

static void check_all(const char *path, struct finding found[FINDINGS])
{
	enum preload_target kind = preload_target_of(path);
	char name[NAME_MAX];

	check_sluice(path, kind, &found[SLUICE]);
	check_mpi(path, kind, &found[MPI]);
	found[SANITIZER].yes = preload_find_sanitizer(path, name, sizeof name);
	snprintf(found[SANITIZER].why, sizeof found[SANITIZER].why, "%s%s",
		 found[SANITIZER].yes ? name : "linked to none",
		 found[SANITIZER].yes ? ", which sluice run preloads first" : "");
	check_endpoints(path, kind, found);
}

static void print_text(const char *path, const struct finding found[FINDINGS])
{
	struct text_table t = { 0 };

	puts(path);
	for (int i = 0; i < FINDINGS; i++)
		text_table_row(&t, found[i].name, found[i].yes ? "yes" : "no", found[i].why, NULL);
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
}

static void print_json(const char *path, const struct finding found[FINDINGS])
{
	struct text_json j = { .out = stdout };

	text_json_open(&j, NULL, '{');
	text_json_string(&j, "program", path);
	for (int i = 0; i < FINDINGS; i++) {
		text_json_open(&j, found[i].name, '{');
		text_json_bool(&j, "yes", found[i].yes);
		text_json_string(&j, "why", found[i].why);
		text_json_close(&j, '}');
	}
	text_json_close(&j, '}');
	putchar('\n');
}

/* execve() of such a script fails, with an error that names the script. */
static bool interpreter_is_absent(const char *path)
{
	char line[PATH_MAX], *name = line + 2;
	FILE *in = fopen(path, "re");
	bool is_script = in && fgets(line, sizeof line, in) && !strncmp(line, "#!", 2);

	if (in)
		fclose(in);
	if (!is_script)
		return false;
	name += strspn(name, " \t");
	name[strcspn(name, " \t\n")] = '\0';
	return *name && access(name, F_OK);
}

int tool_check(int argc, char **argv)
{
	static struct finding found[FINDINGS] = {
		[SLUICE] = { .name = "sluice" },
		[MPI] = { .name = "mpi" },
		[SANITIZER] = { .name = "sanitizer" },
		[ENDPOINTS] = { .name = "endpoints" },
	};
	bool json = argc > 1 && !strcmp(argv[1], "--json");
	char path[PATH_MAX];
	int rc;

	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		fputs(help, stdout);
		return TOOL_DONE;
	}
	if (argc != 2 + json || *argv[1 + json] == '-') {
		tool_say("check: one program is needed; write: sluice check [--json] ./app");
		return TOOL_MISUSE;
	}
	if (engine_find(argv[1 + json]))
		return check_engine(engine_find(argv[1 + json]), json);
	rc = preload_find_program(argv[1 + json], getenv("PATH"), path, sizeof path);
	if (rc) {
		tool_say("check: cannot execute %s: %s", argv[1 + json], strerror(-rc));
		return rc == -ENOENT ? TOOL_NOT_FOUND : TOOL_CANNOT_EXECUTE;
	}
	if (interpreter_is_absent(path)) {
		tool_say("check: cannot execute %s: its interpreter does not exist",
			 argv[1 + json]);
		return TOOL_CANNOT_EXECUTE;
	}
	check_all(path, found);
	(json ? print_json : print_text)(path, found);
	return found[SLUICE].yes ? TOOL_DONE : TOOL_FAILED;
}
