/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sluice info: what works on this machine, what does not and why. Everything is collected first,
 * then printed as text or as JSON: the two have the same content.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/base.h"
#include "os/os.h"
#include "goal.h"
#include "info.h"
#include "tool.h"

static const char help[] =
	"usage: sluice info [--json]\n"
	"       sluice info --pid P [--gdb]\n"
	"\n"
	"Shows what Sluice can use on this machine, the reason for each \"no\", and every\n"
	"option with its value and the source of the value. Tries each mechanism; needs\n"
	"no MPI program.\n"
	"\n"
	"  --json    print JSON\n"
	"  --pid P   show the ranks that share the address space of process P instead\n"
	"            (sluice run --endpoints)\n"
	"  --gdb     print gdb's commands for the symbols of P, a rank; of all ranks if\n"
	"            P is their parent, sluice-carrier\n"
	"\n"
	"Examples:\n"
	"  sluice info\n"
	"  SLUICE_LOG=info sluice info --json\n"
	"\n"
	"Exit code: 0 done; 1 an option in the environment is wrong, so that programs\n"
	"run without Sluice; 2 misuse. More: man sluice-info\n";

void info_nodes(struct info_nodes out[INFO_NODES])
{
	bool any = base_opt.hier,
	     requests = any && base_opt.coll_modes[BASE_FAMILY_NONBLOCKING] == BASE_ADMIT_ON;

	out[0] = (struct info_nodes){
		"Bcast, Reduce, Allreduce", any,
		any ? "1 MB and more; with SLUICE_COLL=kind:on, SLUICE_COLL_THRESHOLD and more"
		    : "by the host MPI; SLUICE_HIER=on if every rank of the job runs Sluice"
	};
	out[1] = (struct info_nodes){
		"Barrier, Gather, Scatter, Allgather, Alltoall, Reduce_scatter", any,
		"with SLUICE_COLL=kind:on; Alltoall up to 64 KB for each rank"
	};
	out[2] = (struct info_nodes){ "nonblocking forms of the above", requests,
				      requests ? "with MPI_THREAD_MULTIPLE, by a progress thread; "
						 "else by the host MPI"
					       : "by the host MPI; SLUICE_COLL=nonblocking:on, "
						 "see sluice(7)" };
	out[3] = (struct info_nodes){ "others: Scan, Gatherv, Alltoallv, neighbours, persistent",
				      false, "by the host MPI" };
}

void info_waiting(const struct info *info, char *out, size_t cap)
{
	const struct wait_facts *f = &info->waiting;
	bool is_polite = wait_decide(f) == WAIT_POLITE;
	const char *how = is_polite ? "blocked ranks give their CPUs away"
				    : "blocked ranks wait as the MPI library does";

	if (f->option != BASE_WAIT_AUTO)
		snprintf(out, cap, "%s (SLUICE_WAIT)", how);
	else if (f->local_ranks > 0)
		snprintf(out, cap, "%s: %d %s, CPUs for %d", how, f->local_ranks,
			 f->local_ranks == 1 ? "rank" : "ranks", f->cpus);
	else
		snprintf(out, cap, "blocked ranks give their CPUs away in jobs of more than %d "
			 "ranks on this node", f->cpus);
}

void info_device_memory(char *out, size_t cap)
{
	void *driver = base_opt.device ? dlopen("libcuda.so.1", RTLD_LAZY) : NULL;

	if (driver)
		dlclose(driver);
	if (!base_opt.device)
		snprintf(out, cap, "by the host MPI (SLUICE_COLL=device:off)");
	else if (!driver)
		snprintf(out, cap, "by the host MPI: there is no libcuda.so.1 here");
	else
		snprintf(out, cap,
			 "copies of the GPUs inside a node, in programs that use CUDA "
			 "(experimental)");
}

const char *info_tune_state(enum tune_state state)
{
	static const char *const names[] = { "none", "off", "in force", "refused" };

	return names[state];
}

/* Where `sluice tune` writes for this MPI. */
static void find_places(const struct mpi_found *m, struct info_tuned *t)
{
	char folder[PATH_MAX], name[256];

	if (tune_folder(0, folder, sizeof(folder)))
		return;
	tune_file_name(m->version, false, name, sizeof(name));
	snprintf(t->own, sizeof(t->own), "%s/%s", folder, name);
	tune_file_name(m->version, true, name, sizeof(name));
	snprintf(t->alike, sizeof(t->alike), "%s/%s", folder, name);
}

/* The first MPI that is served is what a program gets that says nothing else: its values stay in
 * force. */
static int collect_tuned(struct info *out)
{
	out->tuned = calloc(out->mpis.count + 1, sizeof(*out->tuned));
	if (!out->tuned)
		return -ENOMEM;
	for (size_t i = 0; i < out->mpis.count; i++) {
		struct info_tuned *t = &out->tuned[out->tuned_count];

		if (out->mpis.found[i].refusal)
			continue;
		t->mpi = &out->mpis.found[i];
		tune_load(t->mpi->version, &t->found);
		find_places(t->mpi, t);
		out->tuned_count++;
	}
	if (out->tuned_count)
		tune_load(out->tuned[0].mpi->version, &out->tuned[0].found);
	return 0;
}

static int collect(struct info *out)
{
	struct utsname u;

	base_options_load(NULL, out->problems, sizeof(out->problems));
	if (tool_find_preload(out->library, sizeof(out->library)))
		out->library[0] = '\0';
	if (uname(&u) == 0) {
		snprintf(out->kernel, sizeof(out->kernel), "%s %s", u.sysname, u.release);
		snprintf(out->host, sizeof(out->host), "%s", u.nodename);
	}
	os_machine_text(out->machine, sizeof(out->machine));
	tune_shipped_path(out->figures, sizeof(out->figures));
	if (mpi_find_all(&out->mpis))
		return -ENOMEM;
	for (size_t i = 0; i < out->mpis.count; i++)
		if (!out->mpis.found[i].refusal)
			mpi_find_version(&out->mpis.found[i]);
	if (collect_tuned(out))
		return -ENOMEM;
	trial_run_all(out->trials, &out->early);
	out->topology_error = topology_read(&out->topology);
	wait_facts_read(&out->waiting);
	return 0;
}

/* Calls visit for each line of info->problems. */
void info_each_problem(const struct info *info, void (*visit)(void *ctx, const char *line),
		       void *ctx)
{
	char *copy = strdup(info->problems), *rest = copy, *line;

	while ((line = strsep(&rest, "\n")) && *line)
		visit(ctx, line);
	free(copy);
}

const char *info_kernel_names(void)
{
	static char text[64];

	snprintf(text, sizeof(text), "plain%s%s%s", os_copy_has(BASE_COPY_MOVSB) ? ", movsb" : "",
		 os_copy_has(BASE_COPY_NONTEMPORAL) ? ", nontemporal" : "",
		 os_copy_has(BASE_COPY_INTERLEAVED) ? ", interleaved" : "");
	return text;
}

int tool_info(int argc, char **argv)
{
	static const char *const flags[] = { "--json", "--pid", "--gdb", "--help" };
	static struct info info; /* large, and used once */
	bool json = false, gdb = false;
	const char *value, *pid = NULL;
	uint64_t number;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			fputs(help, stdout);
			return TOOL_DONE;
		}
		if (tool_is_flag(argv[i], "--pid", &value)) {
			pid = value ? value : i + 1 < argc ? argv[++i] : "";
			continue;
		}
		if (!strcmp(argv[i], "--gdb")) {
			gdb = true;
			continue;
		}
		if (strcmp(argv[i], "--json")) {
			const char *nearest = tool_nearest(argv[i], flags, BASE_ARRAY_LEN(flags));

			tool_say("info: there is no option '%s'; %s%s", argv[i],
				 nearest ? "the nearest is " : "see: sluice info --help",
				 nearest ? nearest : "");
			return TOOL_MISUSE;
		}
		json = true;
	}
	if (pid && goal_parse_number(pid, 1, INT_MAX, &number)) {
		tool_say("info: --pid takes a process ID, not '%s'", pid);
		return TOOL_MISUSE;
	}
	if ((gdb && !pid) || (json && pid)) {
		tool_say("info: %s", gdb && !pid ? "--gdb needs --pid" : "--pid prints no JSON");
		return TOOL_MISUSE;
	}
	if (pid)
		return info_images((int)number, gdb);
	if (collect(&info)) {
		tool_say("info: out of memory");
		return TOOL_FAILED;
	}
	(json ? info_json : info_text)(&info);
	free(info.tuned);
	free(info.mpis.found);
	return base_opt.usable ? TOOL_DONE : TOOL_FAILED;
}
