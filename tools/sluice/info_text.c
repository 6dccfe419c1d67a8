/* SPDX-License-Identifier: BSD-3-Clause */
/* sluice info: tables for people. */
#include <string.h>
#include <unistd.h>

#include "info.h"
#include "sluice/sluice.h"
#include "text.h"

/* "on", "64K"; an empty text is shown as "" so that its column is not empty. */
static const char *shown(const char *text)
{
	return *text ? text : "\"\"";
}

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
	puts(base_opt.usable ? "\nOld names in the environment"
			     : "\nWrong in the environment; programs run without Sluice");
	info_each_problem(info, print_problem, NULL);
}

static void print_mpis(const struct info *info)
{
	struct text_table t = { 0 };

	printf("\nMPI libraries\n");
	if (!info->mpis.count) {
		puts("  none found next to mpiexec, mpicc and python3 in PATH, in LD_LIBRARY_PATH\n"
		     "  or in the linker cache; sluice run --mpi PATH names one");
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

	printf("\nAccess between processes, and early return (each tried just now)\n");
	for (size_t i = 0; i < TRIAL_COUNT; i++) {
		const struct trial *r = &info->trials[i];
		char speed[64] = "";

		if (r->gbps > 0)
			snprintf(speed, sizeof(speed), " (%.*f GB/s)", r->gbps < 10, r->gbps);
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

/* A NUMA node's channels of each engine: "node 0: sw 1; node 1: sw 1, dsa 4". */
static void channels_text(const struct trial_early *e, char *out, size_t cap)
{
	size_t used = 0;

	out[0] = '\0';
	for (int node = 0; node < e->nodes; node++) {
		used = strlen(out);
		snprintf(out + used, cap - used, "%snode %d:", node ? "; " : "", node);
		for (size_t i = 0, listed = 0; i < e->engine_count; i++) {
			used = strlen(out);
			if (e->engines[i].works && strcmp(e->engines[i].name, "fault"))
				snprintf(out + used, cap - used, "%s %s %d", listed++ ? "," : "",
					 e->engines[i].name, e->engines[i].channels[node]);
		}
		used = strlen(out);
		if (out[used - 1] == ':')
			snprintf(out + used, cap - used, " none");
	}
}

static void print_nodes(void)
{
	struct info_nodes lines[INFO_NODES];
	struct text_table t = { 0 };

	printf("\nCommunicators over several nodes\n");
	info_nodes(lines);
	for (size_t i = 0; i < INFO_NODES; i++)
		text_table_row(&t, lines[i].what, lines[i].is_served ? "yes" : "no", lines[i].how,
			       NULL);
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
	info_waiting(info, text, sizeof(text));
	text_table_row(&t, "waiting", text, NULL);
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
	text_table_row(&t, "copy kernels", info_kernel_names(), NULL);
	channels_text(&info->early, text, sizeof(text));
	text_table_row(&t, "channels", text, NULL);
	info_device_memory(text, sizeof(text));
	text_table_row(&t, "device memory", text, NULL);
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
}

static void add_ways(struct text_table *t, const char *head, const struct trial_way *ways,
		     size_t count, const char *chosen)
{
	for (size_t i = 0; i < count; i++) {
		const struct trial_way *w = &ways[i];
		bool is_chosen = chosen && !strcmp(chosen, w->name);

		text_table_row(t, i ? "" : head, w->name,
			       !w->works   ? "no"
			       : is_chosen ? "yes, used"
					   : "yes",
			       w->what, NULL);
		if (!w->works)
			text_table_row(t, "", "", "", w->reason, NULL);
		if (w->remedy)
			text_table_row(t, "", "", "", w->remedy, NULL);
	}
}

static void print_early(const struct info *info)
{
	const struct trial_early *e = &info->early;
	struct text_table t = { 0 };

	printf("\nEarly return: mechanisms (each tried just now)\n");
	if (!e->is_complete)
		puts("  a trial ended without a result");
	add_ways(&t, "guards", e->guards, e->guard_count, e->guard);
	add_ways(&t, "system calls", e->calls, e->call_count, NULL);
	add_ways(&t, "engines", e->engines, e->engine_count, e->engine);
	add_ways(&t, "workers", e->workers, e->worker_count, NULL);
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
}

/* Libraries of one MPI, for several ABIs, read the same file. */
static bool is_repeated(const struct info *info, size_t of)
{
	const char *version = info->tuned[of].mpi->version;

	for (size_t i = 0; i < of; i++)
		if (version[0] && !strcmp(info->tuned[i].mpi->version, version))
			return true;
	return false;
}

static void print_tuned(const struct info *info)
{
	struct text_table t = { 0 };
	char text[PATH_MAX + 512];

	printf("\nTuned values (sluice tune)\n");
	for (size_t i = 0; i < info->tuned_count; i++) {
		const struct info_tuned *u = &info->tuned[i];

		if (is_repeated(info, i))
			continue;
		switch (u->found.state) {
		case TUNE_IN_FORCE:
			snprintf(text, sizeof(text), "%d value%s of %s", u->found.values,
				 u->found.values == 1 ? "" : "s", u->found.path);
			break;
		case TUNE_REFUSED:
			snprintf(text, sizeof(text), "%s: %s", u->found.path, u->found.reason);
			break;
		case TUNE_OFF:
			snprintf(text, sizeof(text), "%s", u->found.reason);
			break;
		case TUNE_ABSENT:
			snprintf(text, sizeof(text), "sluice tune would write %s",
				 u->own[0] ? u->own : "a file");
			break;
		}
		text_table_row(&t, u->mpi->version[0] ? u->mpi->version : u->mpi->path,
			       info_tune_state(u->found.state), text, NULL);
	}
	text_table_row(&t, "figures of host MPIs",
		       access(info->figures, R_OK) ? "missing" : "in force", info->figures, NULL);
	if (!info->tuned_count)
		puts("  no MPI library is found that values could apply to");
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
}

static void print_group(const struct info *info, enum base_group group)
{
	struct text_table t = { 0 };
	char value[512];

	if (group == BASE_GROUP_TUNE && info->tuned_count &&
	    info->tuned[0].found.state == TUNE_IN_FORCE)
		printf("\n%s, as with %s\n", base_group_title(group),
		       info->tuned[0].mpi->version);
	else
		printf("\n%s\n", base_group_title(group));
	text_table_row(&t, "name", "value", "default", "unit", "source", "meaning", NULL);
	for (size_t i = 0; i < base_option_count; i++) {
		const struct base_option *o = &base_option_table[i];

		if (o->group != group)
			continue;
		base_option_print(o, value, sizeof(value));
		text_table_row(&t, o->name, shown(value), shown(o->dflt), o->unit,
			       base_option_source_name(o->source), o->help, NULL);
	}
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
}

static void print_options(const struct info *info)
{
	static const enum base_group groups[] = { BASE_GROUP_USE, BASE_GROUP_MEMORY,
						  BASE_GROUP_MOVERS, BASE_GROUP_OUTPUT,
						  BASE_GROUP_TUNE };

	for (size_t i = 0; i < BASE_ARRAY_LEN(groups); i++)
		print_group(info, groups[i]);
}

void info_text(const struct info *info)
{
	print_summary(info);
	print_mpis(info);
	print_trials(info);
	print_early(info);
	print_nodes();
	print_topology(info);
	print_tuned(info);
	print_options(info);
}
