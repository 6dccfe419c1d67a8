/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sluice info: what works on this machine, what does not and why. Everything is collected first,
 * then printed as text or as JSON: the two have the same content.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/base.h"
#include "host/host.h"
#include "sluice/sluice.h"
#include "mpi_find.h"
#include "text.h"
#include "tool.h"
#include "topology.h"
#include "trial.h"

static const char help[] =
	"usage: sluice info [--json]\n"
	"\n"
	"Shows what Sluice finds on this machine, what does not work and why, and all\n"
	"options with their values and where these come from. Needs no MPI program; what\n"
	"can be tried is tried.\n"
	"\n"
	"  --json    the same for programs\n"
	"\n"
	"Examples:\n"
	"  sluice info\n"
	"  SLUICE_LOG=info sluice info --json\n"
	"\n"
	"Exit code: 0 done; 1 an option in the environment is wrong, so that programs\n"
	"run plain; 2 misuse. More: man sluice-info\n";

struct info {
	char library[PATH_MAX]; /* "" not found */
	char problems[4096];    /* lines */
	char kernel[2 * 65 + 2];
	struct mpi_list mpis;
	struct trial trials[TRIAL_COUNT];
	struct topology topology;
	int topology_error;
};

static int collect(struct info *out)
{
	struct utsname u;

	base_options_load(NULL, out->problems, sizeof(out->problems));
	if (tool_find_preload(out->library, sizeof(out->library)))
		out->library[0] = '\0';
	if (uname(&u) == 0)
		snprintf(out->kernel, sizeof(out->kernel), "%s %s", u.sysname, u.release);
	if (mpi_find_all(&out->mpis))
		return -ENOMEM;
	for (size_t i = 0; i < out->mpis.count; i++)
		if (!out->mpis.found[i].refusal)
			mpi_find_version(&out->mpis.found[i]);
	trial_run_all(out->trials);
	out->topology_error = topology_read(&out->topology);
	return 0;
}

/* Calls visit for each line of info->problems. */
static void for_each_problem(const struct info *info, void (*visit)(void *ctx, const char *line),
			     void *ctx)
{
	char *copy = strdup(info->problems), *rest = copy, *line;

	while ((line = strsep(&rest, "\n")) && *line)
		visit(ctx, line);
	free(copy);
}

static const char *kernel_names(void)
{
	static char text[64];

	snprintf(text, sizeof(text), "plain%s%s%s", host_copy_has(BASE_COPY_MOVSB) ? ", movsb" : "",
		 host_copy_has(BASE_COPY_NONTEMPORAL) ? ", nontemporal" : "",
		 host_copy_has(BASE_COPY_INTERLEAVED) ? ", interleaved" : "");
	return text;
}

/* "on", "64K"; an empty text is shown as "" so that its column is not empty. */
static const char *shown(const char *text)
{
	return *text ? text : "\"\"";
}

/* ---- text --------------------------------------------------------------------------- */

static void print_problem(void *ctx, const char *line)
{
	(void)ctx;
	printf("  %s\n", line);
}

static void print_summary(const struct info *info)
{
	struct text_table t = { 0 };

	printf("Sluice " SLUICE_VERSION "\n");
	text_table_row(&t, "library", info->library[0] ? info->library : "not found", NULL);
	text_table_row(&t, "kernel", info->kernel, NULL);
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
	if (!info->problems[0])
		return;
	printf("\nWrong in the environment (programs run plain until it is mended)\n");
	for_each_problem(info, print_problem, NULL);
}

static void print_mpis(const struct info *info)
{
	struct text_table t = { 0 };

	printf("\nMPI libraries\n");
	if (!info->mpis.count) {
		puts("  none found beside mpiexec, mpicc and python3 in PATH, in LD_LIBRARY_PATH\n"
		     "  or in the linker cache; sluice run --mpi PATH names another");
		return;
	}
	text_table_row(&t, "library", "version", "ABI", "found by", "served", NULL);
	for (size_t i = 0; i < info->mpis.count; i++) {
		const struct mpi_found *m = &info->mpis.found[i];
		char served[128];

		snprintf(served, sizeof(served), "%s%s", m->refusal ? "no: " : "yes",
			 m->refusal ? m->refusal : "");
		text_table_row(&t, m->path, m->version[0] ? m->version : "unknown",
			       m->refusal ? "?" : mpi_find_abi_name(m->abi), m->how, served, NULL);
	}
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
}

static void print_trials(const struct info *info)
{
	struct text_table t = { 0 };

	printf("\nMemory between processes, and early return (tried just now)\n");
	for (size_t i = 0; i < TRIAL_COUNT; i++) {
		const struct trial *r = &info->trials[i];
		char speed[64] = "";

		if (r->gbps > 0)
			snprintf(speed, sizeof(speed), " (%.0f GB/s)", r->gbps);
		if (r->works) {
			char what[256];

			snprintf(what, sizeof(what), "%s%s", r->what, speed);
			text_table_row(&t, r->name, "yes", what, NULL);
			if (r->note[0])
				text_table_row(&t, "", "", r->note, NULL);
			continue;
		}
		text_table_row(&t, r->name, "no", r->what, NULL);
		text_table_row(&t, "", "", r->reason, NULL);
		if (r->remedy)
			text_table_row(&t, "", "", r->remedy, NULL);
	}
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
}

static void print_topology(const struct info *info)
{
	const struct topology *m = &info->topology;
	struct text_table t = { 0 };
	char text[512], bytes[32];

	printf("\nMachine (%s)\n", m->source);
	if (info->topology_error) {
		printf("  cannot be read: %s\n", strerror(-info->topology_error));
		return;
	}
	if (m->cpu[0])
		text_table_row(&t, "CPU", m->cpu, NULL);
	snprintf(text, sizeof(text), "packages %u, NUMA nodes %u, cores %u, hardware threads %u",
		 m->packages, m->numa_nodes, m->cores, m->pus);
	text_table_row(&t, "counts", text, NULL);
	snprintf(text, sizeof(text), "%s (%u hardware threads)", m->allowed, m->allowed_pus);
	text_table_row(&t, "allowed here", text, NULL);
	snprintf(text, sizeof(text), "%.1f GiB", (double)m->memory_bytes / (1 << 30));
	text_table_row(&t, "memory", text, NULL);
	for (size_t i = 0; i < m->cache_count; i++) {
		const struct topology_cache *c = &m->caches[i];

		base_format_bytes(c->bytes, bytes, sizeof(bytes));
		if (c->count)
			snprintf(text, sizeof(text), "%u x %s, shared by %u", c->count, bytes,
				 c->pus);
		else
			snprintf(text, sizeof(text), "%s", bytes);
		text_table_row(&t, c->name, text, NULL);
	}
	text_table_row(&t, "copy kernels", kernel_names(), NULL);
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
}

static void print_options(void)
{
	struct text_table t = { 0 };
	char value[512];

	printf("\nOptions (environment variables)\n");
	text_table_row(&t, "name", "value", "default", "unit", "source", "meaning", NULL);
	for (size_t i = 0; i < base_option_count; i++) {
		const struct base_option *o = &base_option_table[i];

		base_option_print(o, value, sizeof(value));
		text_table_row(&t, o->name, shown(value), shown(o->dflt), o->unit,
			       o->source == BASE_SRC_ENV ? "environment" : "default", o->help,
			       NULL);
	}
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
}

/* ---- JSON --------------------------------------------------------------------------- */

static void json_problem(void *ctx, const char *line)
{
	text_json_string(ctx, NULL, line);
}

static void json_mpis(struct text_json *j, const struct info *info)
{
	text_json_open(j, "mpis", '[');
	for (size_t i = 0; i < info->mpis.count; i++) {
		const struct mpi_found *m = &info->mpis.found[i];

		text_json_open(j, NULL, '{');
		text_json_string(j, "library", m->path);
		text_json_string(j, "version", m->version[0] ? m->version : NULL);
		text_json_string(j, "abi", m->refusal ? NULL : mpi_find_abi_name(m->abi));
		text_json_bool(j, "served", !m->refusal);
		text_json_string(j, "reason", m->refusal);
		text_json_string(j, "found_by", m->how);
		text_json_close(j, '}');
	}
	text_json_close(j, ']');
}

static void json_trials(struct text_json *j, const struct info *info)
{
	text_json_open(j, "trials", '[');
	for (size_t i = 0; i < TRIAL_COUNT; i++) {
		const struct trial *r = &info->trials[i];

		text_json_open(j, NULL, '{');
		text_json_string(j, "name", r->name);
		text_json_string(j, "what", r->what);
		text_json_bool(j, "works", r->works);
		text_json_string(j, "reason", r->works ? NULL : r->reason);
		text_json_string(j, "remedy", r->remedy);
		if (r->works && r->note[0])
			text_json_string(j, "note", r->note);
		if (r->gbps > 0)
			text_json_uint(j, "mb_per_s", (uint64_t)(r->gbps * 1000));
		text_json_close(j, '}');
	}
	text_json_close(j, ']');
}

static void json_topology(struct text_json *j, const struct info *info)
{
	const struct topology *m = &info->topology;

	text_json_open(j, "machine", '{');
	text_json_string(j, "source", m->source);
	text_json_string(j, "error", info->topology_error ? strerror(-info->topology_error) : NULL);
	text_json_string(j, "cpu", m->cpu);
	text_json_uint(j, "packages", m->packages);
	text_json_uint(j, "numa_nodes", m->numa_nodes);
	text_json_uint(j, "cores", m->cores);
	text_json_uint(j, "pus", m->pus);
	text_json_uint(j, "allowed_pus", m->allowed_pus);
	text_json_string(j, "allowed", m->allowed);
	text_json_uint(j, "memory_bytes", m->memory_bytes);
	text_json_open(j, "caches", '[');
	for (size_t i = 0; i < m->cache_count; i++) {
		text_json_open(j, NULL, '{');
		text_json_string(j, "name", m->caches[i].name);
		text_json_uint(j, "count", m->caches[i].count);
		text_json_uint(j, "pus", m->caches[i].pus);
		text_json_uint(j, "bytes", m->caches[i].bytes);
		text_json_close(j, '}');
	}
	text_json_close(j, ']');
	text_json_string(j, "copy_kernels", kernel_names());
	text_json_close(j, '}');
}

static void json_options(struct text_json *j)
{
	static const char *const types[] = {
		[BASE_OPT_BOOL] = "bool", [BASE_OPT_BYTES] = "bytes",   [BASE_OPT_INT] = "int",
		[BASE_OPT_ENUM] = "enum", [BASE_OPT_STRING] = "string",
	};
	char value[512], takes[256];

	text_json_open(j, "options", '[');
	for (size_t i = 0; i < base_option_count; i++) {
		const struct base_option *o = &base_option_table[i];

		base_option_print(o, value, sizeof(value));
		text_json_open(j, NULL, '{');
		text_json_string(j, "name", o->name);
		text_json_string(j, "value", value);
		text_json_string(j, "default", o->dflt);
		text_json_string(j, "source",
				 o->source == BASE_SRC_ENV ? "environment" : "default");
		text_json_string(j, "type", types[o->type]);
		text_json_string(j, "unit", o->unit);
		base_option_describe(o, takes, sizeof(takes));
		text_json_string(j, "takes", takes);
		text_json_string(j, "meaning", o->help);
		text_json_close(j, '}');
	}
	text_json_close(j, ']');
}

static void print_json(const struct info *info)
{
	struct text_json j = { .out = stdout };

	text_json_open(&j, NULL, '{');
	text_json_string(&j, "version", SLUICE_VERSION);
	text_json_string(&j, "library", info->library[0] ? info->library : NULL);
	text_json_string(&j, "kernel", info->kernel);
	text_json_open(&j, "problems", '[');
	for_each_problem(info, json_problem, &j);
	text_json_close(&j, ']');
	json_mpis(&j, info);
	json_trials(&j, info);
	json_topology(&j, info);
	json_options(&j);
	text_json_close(&j, '}');
}

int tool_info(int argc, char **argv)
{
	static const char *const flags[] = { "--json", "--help" };
	static struct info info; /* large, and used once */
	bool json = false;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			fputs(help, stdout);
			return TOOL_DONE;
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
	if (collect(&info)) {
		tool_say("info: out of memory");
		return TOOL_FAILED;
	}
	if (json) {
		print_json(&info);
	} else {
		print_summary(&info);
		print_mpis(&info);
		print_trials(&info);
		print_topology(&info);
		print_options();
	}
	free(info.mpis.found);
	return info.problems[0] ? TOOL_FAILED : TOOL_DONE;
}
