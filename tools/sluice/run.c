/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sluice run: sets the options in the environment, puts libsluice.so first in LD_PRELOAD and
 * executes the program in the same process, so signals, exit codes and job control need no
 * forwarding. It prints only warnings and errors.
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/base.h"
#include "endpoints/endpoints.h"
#include "preload/preload.h"
#include "mpi_find.h"
#include "run.h"
#include "stats.h"
#include "tool.h"
#include "topology.h"
#include "wait/wait.h"

static const char help[] =
	"usage: sluice run [--mpi PATH] [--set NAME=VALUE]... [--endpoints=N] [--]\n"
	"                  PROGRAM [ARG]...\n"
	"\n"
	"Runs PROGRAM under Sluice, in the same process: signals and exit code are the\n"
	"program's. Stands after the launcher, in front of the program.\n"
	"\n"
	"  --set NAME=VALUE  set an option, with or without SLUICE_ in its name\n"
	"                    (sluice info lists them)\n"
	"  --endpoints=N     N ranks of a node share an address space (Linux processes\n"
	"                    that run the unmodified program); core, as many as there\n"
	"                    are for each CPU; l3, for each last-level cache; off, none,\n"
	"                    the default\n"
	"  --mpi PATH        use the MPI library at PATH, or of the installation at\n"
	"                    PATH: its folder comes first in LD_LIBRARY_PATH\n"
	"\n"
	"Examples:\n"
	"  mpiexec -n 4 sluice run ./app input.dat\n"
	"  mpiexec -n 4 sluice run --set COLL_THRESHOLD=1M python3 app.py\n"
	"  srun -n 16 sluice run --mpi /opt/mpich ./app\n"
	"  SLUICE=off mpiexec -n 4 sluice run ./app      # without Sluice, to compare\n"
	"\n"
	"Exit code: the program's; 2 misuse, 126 PROGRAM cannot be executed, 127 it does\n"
	"not exist. A wrong option prints one line, and PROGRAM runs without Sluice.\n"
	"More: man sluice-run\n";

static const struct run_verb *verb;

/* Problems with the options, one per line, which rank 0 prints; the program then runs plain. */
static char problems[4096];

__attribute__((format(printf, 1, 2))) static void add_problem(const char *fmt, ...)
{
	size_t used = strlen(problems);
	va_list args;

	va_start(args, fmt);
	vsnprintf(problems + used, sizeof(problems) - used, fmt, args);
	va_end(args);
	used = strlen(problems);
	if (used + 1 < sizeof(problems)) {
		problems[used] = '\n';
		problems[used + 1] = '\0';
	}
}

static void report_problems(const char *program)
{
	char *line, *rest = problems;

	if (base_job_rank() > 0)
		return;
	while ((line = strsep(&rest, "\n")) && *line)
		tool_say("%s: %s%s%s%s", verb->name, line, *rest ? "" : " (running ",
			 *rest ? "" : program, *rest ? "" : " without Sluice)");
}

/* ---- arguments ---------------------------------------------------------------------- */

struct run_args {
	const char *mpi;
	char **program; /* NULL: no program on the command line */
	char **value;   /* the last word that was the value of the option before it; or NULL */
	bool wants_help;
};

/* COLL_THRESHOLD=1M, coll_threshold=1M and SLUICE_COLL_THRESHOLD=1M are equivalent. */
static void apply_setting(const char *setting)
{
	const char *equals = setting ? strchr(setting, '=') : NULL;
	char name[64] = "";
	size_t used = 0;

	if (!equals || equals == setting) {
		add_problem("--set takes NAME=VALUE, not '%s'", setting ? setting : "");
		return;
	}
	if (strncasecmp(setting, "SLUICE", 6) || !strchr("_=", setting[6]))
		used = (size_t)snprintf(name, sizeof(name), "SLUICE_");
	for (const char *c = setting; c < equals && used + 1 < sizeof(name); c++)
		name[used++] = (char)toupper((unsigned char)*c);
	name[used] = '\0';
	setenv(name, equals + 1, 1);
}

/* Reports an unknown flag. Returns: true when its value seems to be the next word. */
static bool unknown_flag(const char *flag)
{
	char word[32], all[256] = "";
	const char *nearest;
	size_t count = 0;

	snprintf(word, sizeof(word), "%.*s", (int)strcspn(flag, "="), flag);
	for (; verb->flags[count]; count++) {
		const char *before = !count ? "" : verb->flags[count + 1] ? ", " : " and ";

		strcat(strcat(all, before), verb->flags[count]);
	}
	nearest = tool_nearest(word, verb->flags, count);
	if (!nearest) {
		add_problem("there is no option '%s'; there are %s", word, all);
		return false;
	}
	add_problem("there is no option '%s'; the nearest is %s", word, nearest);
	return strcmp(nearest, "--help") && !strchr(flag, '=');
}

static void parse_args(char **arg, struct run_args *out)
{
	const char *value;
	int words;

	*out = (struct run_args){ 0 };
	for (arg++; *arg && (*arg)[0] == '-' && (*arg)[1]; arg++) {
		if (strcmp(*arg, "--") == 0) {
			arg++;
			break;
		}
		if (strcmp(*arg, "--help") == 0 || strcmp(*arg, "-h") == 0) {
			out->wants_help = true;
			return;
		}
		words = verb->own_flag ? verb->own_flag(arg) : 0;
		if (words) {
			arg += words - 1;
			out->value = words > 1 ? arg : out->value;
			continue;
		}
		if (tool_is_flag(*arg, "--set", &value)) {
			apply_setting(value ? value : arg[1]);
		} else if (tool_is_flag(*arg, "--endpoints", &value)) {
			setenv("SLUICE_ENDPOINTS", value ? value : arg[1] ? arg[1] : "", 1);
		} else if (tool_is_flag(*arg, "--mpi", &value)) {
			out->mpi = value ? value : arg[1] ? arg[1] : "";
		} else {
			value = unknown_flag(*arg) ? NULL : "";
		}
		if (!value && arg[1])
			out->value = ++arg;
	}
	out->program = *arg ? arg : NULL;
}

/* ---- environment -------------------------------------------------------------------- */

/* Sets NAME=first:old, or NAME=first where NAME was unset. */
static void prepend_env(const char *name, const char *first, const char *old)
{
	size_t bytes = strlen(first) + (old ? strlen(old) : 0) + 2;
	char *value = malloc(bytes);

	if (!value) {
		add_problem("out of memory");
		return;
	}
	snprintf(value, bytes, "%s%s%s", first, old && *old ? ":" : "", old ? old : "");
	setenv(name, value, 1);
	free(value);
}

static int use_mpi(const char *path)
{
	char folder[PATH_MAX];
	int rc = mpi_find_folder(path, folder, sizeof(folder));

	if (rc == 0) {
		prepend_env("LD_LIBRARY_PATH", folder, getenv("LD_LIBRARY_PATH"));
		return TOOL_DONE;
	}
	if (base_job_rank() > 0)
		return TOOL_MISUSE;
	if (rc == -EINVAL)
		tool_say("%s: --mpi %s: no MPI library (none there exports PMPI_Bcast)", verb->name,
			 path);
	else if (rc == -ENOEXEC)
		tool_say("%s: --mpi %s: not a shared library for this machine", verb->name, path);
	else
		tool_say("%s: --mpi %s: %s", verb->name, path, strerror(-rc));
	return TOOL_MISUSE;
}

/* Appends an entry to a value of LD_PRELOAD in a buffer that has room for it. */
static void add_entry(char *value, const char *entry, size_t len)
{
	size_t used = strlen(value);

	snprintf(value + used, len + 2, "%s%.*s", used ? ":" : "", (int)len, entry);
}

/* Appends the entries of `old`: those of sanitizers, or all others. */
static void add_entries(char *value, const char *old, bool of_sanitizers)
{
	for (size_t len; *old; old += len + !!old[len]) {
		len = strcspn(old, ": ");
		if (len && preload_is_sanitizer(old, len) == of_sanitizers)
			add_entry(value, old, len);
	}
}

/* Appends a library of the folder that `library` is in. */
static void add_beside(char *value, const char *library, const char *name)
{
	char path[PATH_MAX];
	int folder = (int)(strrchr(library, '/') - library);
	int n = snprintf(path, sizeof path, "%.*s/%s", folder, library, name);

	if (n > 0 && (size_t)n < sizeof path)
		add_entry(value, path, (size_t)n);
}

/* Removes Sluice's entries, then adds one, unless the program runs plain. The runtime of a
 * sanitizer, which the user preloads or the program at `path` links, refuses any other place than
 * the first. */
static void set_preload(const char *before, const char *library, const char *path)
{
	const char *old = getenv("LD_PRELOAD");
	char sanitizer[NAME_MAX] = "";
	size_t room = (old ? strlen(old) : 0) + 1;
	char *rest = calloc(1, room), *value = calloc(1, room + sizeof sanitizer + 2 * PATH_MAX);

	if (!rest || !value) {
		add_problem("out of memory");
	} else if (library) {
		if (old)
			preload_without_sluice(old, rest);
		add_entries(value, rest, true);
		if (!*value && preload_find_sanitizer(path, sanitizer, sizeof sanitizer))
			add_entry(value, sanitizer, strlen(sanitizer));
		if (before)
			add_beside(value, library, before);
		add_entry(value, library, strlen(library));
		add_entries(value, rest, false);
		setenv("LD_PRELOAD", value, 1);
	} else if (old && preload_without_sluice(old, rest)) {
		if (*rest)
			setenv("LD_PRELOAD", rest, 1);
		else
			unsetenv("LD_PRELOAD");
	}
	free(rest);
	free(value);
}

const char *run_refusal(const char *path, enum preload_target kind)
{
	struct stat st;

	if (kind == PRELOAD_TARGET_STATIC)
		return "is statically linked: nothing can be preloaded into it";
	if (kind == PRELOAD_TARGET_FOREIGN)
		return "is for another architecture or another C library";
	if (stat(path, &st))
		return NULL;
	if (((st.st_mode & S_ISUID) && st.st_uid != getuid()) ||
	    ((st.st_mode & S_ISGID) && st.st_gid != getgid()))
		return "is set-user-ID or set-group-ID: nothing can be preloaded into it";
	if (getuid() && getxattr(path, "security.capability", NULL, 0) > 0)
		return "has file capabilities: nothing can be preloaded into it";
	return NULL;
}

/* DMTCP, and MANA which is built on it, restore memory that peers would no longer share. Returns:
 * the sign that the program will run under one of them, or NULL. */
static const char *checkpointer(const char *program)
{
	static const char *const launchers[] = { "dmtcp_launch", "dmtcp_checkpoint", "mana_launch",
						 "mana_start_coordinator" };
	const char *preload = getenv("LD_PRELOAD"), *name = base_file_name(program);

	for (size_t i = 0; i < BASE_ARRAY_LEN(launchers); i++)
		if (!strcmp(name, launchers[i]))
			return launchers[i];
	/* set by the launchers themselves; users set other variables that begin with DMTCP_ */
	if (getenv("DMTCP_HIJACK_LIBS"))
		return "DMTCP_HIJACK_LIBS is set";
	if (getenv("DMTCP_VIRTUAL_PID"))
		return "DMTCP_VIRTUAL_PID is set";
	if (preload && (strstr(preload, "libdmtcp") || strstr(preload, "libmana")))
		return "LD_PRELOAD names its library";
	return NULL;
}

/* Returns: the library to preload, or NULL when the program runs plain. */
static const char *choose_preload(const char *path, enum preload_target kind,
				  char library[PATH_MAX])
{
	const char *refusal;
	char loaded[2048];

	if (base_options_load(NULL, loaded, sizeof(loaded)))
		for (char *rest = loaded, *line; (line = strsep(&rest, "\n")) && *line;)
			add_problem("%s", line);
	if (problems[0] || !base_opt.enabled)
		return NULL;
	refusal = checkpointer(path);
	if (refusal) {
		add_problem("DMTCP or MANA checkpoints this program (%s)", refusal);
		return NULL;
	}
	refusal = run_refusal(path, kind);
	if (refusal) {
		add_problem("%s %s", path, refusal);
		return NULL;
	}
	if (tool_find_preload(library, PATH_MAX)) {
		add_problem("cannot find " PRELOAD_NAME
			    ", which is installed with this program");
		return NULL;
	}
	if (strpbrk(library, ": ")) {
		add_problem("cannot preload %s: LD_PRELOAD takes no blanks or colons in a name",
			    library);
		return NULL;
	}
	return library;
}

/* Returns: ranks of an address space by the option; 0: unknown. Each rank of the node comes to the
 * same number, unless the launcher has bound them to different numbers of CPUs. */
static int group_ranks(const struct wait_facts *facts)
{
	struct topology machine;
	int parts = facts->cpus, a_cache;

	if (base_opt.endpoints > 0)
		return (int)base_opt.endpoints;
	if (facts->local_ranks <= 0 || facts->cpus <= 0)
		return 0;
	if (base_opt.endpoints == BASE_ENDPOINTS_L3) {
		a_cache = topology_read(&machine) || !machine.cache_count ? 0
				: (int)machine.caches[0].pus;
		parts = a_cache ? (facts->cpus + a_cache - 1) / a_cache : 1;
	}
	return (facts->local_ranks + parts - 1) / parts;
}

/* Returns: the group's share of the CPUs of the node's ranks. */
static int group_cpus(const struct wait_facts *facts, int ranks)
{
	int share = facts->local_ranks > 0 ? facts->cpus * ranks / facts->local_ranks : 1;

	return share < 1 ? 1 : share;
}

/* Why the rank stays a process, for the trace; or how the programs that it executes can join. */
static void tell_library(enum preload_target kind, int launcher, const char *reason)
{
	char text[PATH_MAX + 32], self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	if (base_job_node_rank() >= 0 && n > 0 &&
	    (kind == PRELOAD_TARGET_MAY || kind == PRELOAD_TARGET_UNKNOWN))
		snprintf(text, sizeof text, "%c%d%.*s", ENDPOINT_TOOL, launcher, (int)n, self);
	else
		snprintf(text, sizeof text, "%c%s", ENDPOINT_REASON, reason);
	setenv(ENDPOINT_VARIABLE, text, 1);
}

/* set_preload() has put the sanitizer of a program there, too. */
static bool preloads_sanitizer(void)
{
	const char *entry = getenv("LD_PRELOAD");

	for (size_t len; entry && *entry; entry += len + !!entry[len]) {
		len = strcspn(entry, ": ");
		if (len && preload_is_sanitizer(entry, len))
			return true;
	}
	return false;
}

/* The rank joins the address space of its group. Returns when it has to stay a process. */
static void join_endpoints(char **argv, const char *path, enum preload_target kind, int launcher)
{
	struct wait_facts facts;
	struct endpoints_program program = { .path = path, .argv = argv,
					     .node_rank = base_job_node_rank(),
					     .rank = base_job_rank(),
					     .launcher = launcher,
					     .job = getenv("PMIX_NAMESPACE"),
					     .switches = base_opt.endpoints_switch ==
							 BASE_SWITCH_USER };
	char reason[256];

	unsetenv(ENDPOINT_VARIABLE); /* of a wrapper around this command */
	wait_facts_read(&facts);
	program.ranks = group_ranks(&facts);
	program.cpus = group_cpus(&facts, program.ranks);
	/* the other data store of PMIx maps a segment at one address, the same in all ranks */
	if (getenv("PMIX_NAMESPACE"))
		setenv("PMIX_MCA_gds", "hash", 1);
	if (program.node_rank < 0) {
		snprintf(reason, sizeof reason, "no launcher has started it");
	} else if (!program.ranks) {
		snprintf(reason, sizeof reason, "the number of ranks of this node is unknown");
	} else if (kind != PRELOAD_TARGET_MPI && kind != PRELOAD_TARGET_PLAIN) {
		snprintf(reason, sizeof reason, "%s links no MPI library%s", path,
			 kind == PRELOAD_TARGET_MAY ? "; a program that it executes may share"
						    : "");
	} else if (preloads_sanitizer()) {
		snprintf(reason, sizeof reason, "a sanitizer needs its address space");
	} else {
		program.envp = environ; /* setenv() has moved it */
		endpoints_join(&program, reason, sizeof reason);
	}
	base_log(BASE_LOG_INFO, "endpoints", "this rank stays a process: %s", reason);
	tell_library(kind, program.launcher, reason);
}

/* preload/exec.c has had this program executed in place of the one that its caller named, with the
 * caller's arguments: the program of a wrapper script is a rank. */
int run_wrapped(const char *program, char **argv)
{
	const char *preload = getenv(ENDPOINT_PRELOAD);
	char *text = strdup(program), *path, problems_here[4096];
	int launcher;
	enum preload_target kind;

	unsetenv(ENDPOINT_VARIABLE);
	if (preload)
		setenv("LD_PRELOAD", preload, 1);
	unsetenv(ENDPOINT_PRELOAD);
	if (!text)
		return TOOL_FAILED;
	launcher = (int)strtol(text, &path, 10);
	path += *path == ' ';
	kind = preload_target_of(path);
	base_options_load(NULL, problems_here, sizeof problems_here);
	if (base_opt.usable && base_opt.enabled && base_opt.endpoints && !run_refusal(path, kind))
		join_endpoints(argv, path, kind, launcher);
	execv(path, argv);
	tool_say("run: cannot execute %s: %s", path, strerror(errno));
	return errno == ENOENT ? TOOL_NOT_FOUND : TOOL_CANNOT_EXECUTE;
}

/* ---- the program -------------------------------------------------------------------- */

static int cannot_execute(const char *program, const char *path, int error)
{
	/* execve returns ENOENT also when the interpreter of an existing program is missing */
	if (error == ENOENT && *path && access(path, F_OK) == 0) {
		tool_say("%s: cannot execute %s: its interpreter does not exist", verb->name,
			 program);
		return TOOL_CANNOT_EXECUTE;
	}
	tool_say("%s: cannot execute %s: %s", verb->name, program, strerror(error));
	return error == ENOENT ? TOOL_NOT_FOUND : TOOL_CANNOT_EXECUTE;
}

static void tell_problems(void)
{
	for (char *rest = problems, *line; (line = strsep(&rest, "\n")) && *line;)
		tool_say("%s: %s", verb->name, line);
}

int run_program(const struct run_verb *v, char **argv)
{
	char path[PATH_MAX] = "", library[PATH_MAX];
	const char *preload;
	struct run_args args;
	enum preload_target kind;
	int rc;

	verb = v;
	parse_args(argv, &args);
	if (args.wants_help) {
		fputs(v->help, stdout);
		return TOOL_DONE;
	}
	if (!args.program) {
		tell_problems();
		if (args.value && !args.value[1])
			tool_say("%s: no program: %s is the value of %s; write: mpiexec -n 4 "
				 "sluice %s ./app",
				 verb->name, args.value[0], args.value[-1], verb->name);
		else
			tool_say("%s: no program; write: mpiexec -n 4 sluice %s ./app", verb->name,
				 verb->name);
		return TOOL_MISUSE;
	}
	rc = preload_find_program(args.program[0], getenv("PATH"), path, sizeof(path));
	if (rc) {
		tell_problems(); /* the word may be the value of an unknown flag */
		return cannot_execute(args.program[0], "", -rc);
	}
	kind = preload_target_of(path);
	if (kind == PRELOAD_TARGET_LAUNCHER) {
		tool_say("%s: %s is a launcher; write: mpiexec -n 4 sluice %s ./app", verb->name,
			 args.program[0], verb->name);
		return TOOL_MISUSE;
	}
	if (args.mpi && (rc = use_mpi(args.mpi)))
		return rc;
	preload = choose_preload(path, kind, library);
	if (verb->prepare && (rc = verb->prepare(preload)))
		return rc;
	if (preload)
		stats_prepare();
	set_preload(verb->before ? verb->before() : NULL, preload, path);
	report_problems(args.program[0]);
	if (preload && base_opt.endpoints)
		join_endpoints(args.program, path, kind, endpoints_launcher());
	execvp(args.program[0], args.program);
	return cannot_execute(args.program[0], path, errno);
}

int tool_run(int argc, char **argv)
{
	static const char *const flags[] = { "--set", "--mpi", "--endpoints", "--help", NULL };
	static const struct run_verb run = { .name = "run", .help = help, .flags = flags };

	return run_program(&run, argv);
}
