/* SPDX-License-Identifier: BSD-3-Clause */
/* sluice info --json */
#include <string.h>
#include <unistd.h>

#include "info.h"
#include "sluice/sluice.h"
#include "text.h"

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
	char waiting[128], device[128];

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
	info_waiting(info, waiting, sizeof(waiting));
	text_json_string(j, "waiting", waiting);
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
	text_json_string(j, "copy_kernels", info_kernel_names());
	info_device_memory(device, sizeof(device));
	text_json_string(j, "device_memory", device);
	text_json_close(j, '}');
}

static void json_options(struct text_json *j)
{
	static const char *const types[] = {
		[BASE_OPT_BOOL] = "bool", [BASE_OPT_BYTES] = "bytes",   [BASE_OPT_INT] = "int",
		[BASE_OPT_ENUM] = "enum", [BASE_OPT_STRING] = "string", [BASE_OPT_LIST] = "list",
	};
	char value[512], accepted[256];

	text_json_open(j, "options", '[');
	for (size_t i = 0; i < base_option_count; i++) {
		const struct base_option *o = &base_option_table[i];

		if (o->group > BASE_GROUP_OUTPUT && o->group != BASE_GROUP_TUNE)
			continue; /* its list has it */
		base_option_print(o, value, sizeof(value));
		text_json_open(j, NULL, '{');
		text_json_string(j, "name", o->name);
		text_json_string(j, "group", base_group_title(o->group));
		text_json_string(j, "value", value);
		text_json_string(j, "default", o->dflt);
		text_json_string(j, "source", base_option_source_name(o->source));
		text_json_string(j, "type", types[o->type]);
		text_json_string(j, "unit", o->unit);
		base_option_describe(o, accepted, sizeof(accepted));
		text_json_string(j, "accepts", accepted);
		text_json_string(j, "meaning", o->help);
		text_json_close(j, '}');
	}
	text_json_close(j, ']');
}

/* nodes: how many of the channels are told; 0: none are. */
static void json_ways(struct text_json *j, const char *key, const struct trial_way *ways,
		      size_t count, const char *chosen, int nodes)
{
	text_json_open(j, key, '[');
	for (size_t i = 0; i < count; i++) {
		const struct trial_way *w = &ways[i];

		text_json_open(j, NULL, '{');
		text_json_string(j, "name", w->name);
		text_json_string(j, "what", w->what);
		text_json_bool(j, "works", w->works);
		text_json_string(j, "reason", w->works ? NULL : w->reason);
		text_json_string(j, "remedy", w->remedy);
		if (chosen)
			text_json_bool(j, "chosen", !strcmp(chosen, w->name));
		if (nodes)
			text_json_open(j, "channels", '[');
		for (int n = 0; n < nodes; n++)
			text_json_int(j, NULL, w->channels[n]);
		if (nodes)
			text_json_close(j, ']');
		text_json_close(j, '}');
	}
	text_json_close(j, ']');
}

static void json_early(struct text_json *j, const struct info *info)
{
	const struct trial_early *e = &info->early;

	json_ways(j, "guards", e->guards, e->guard_count, e->guard, 0);
	json_ways(j, "system_calls", e->calls, e->call_count, NULL, 0);
	json_ways(j, "engines", e->engines, e->engine_count, e->engine, e->nodes);
	json_ways(j, "workers", e->workers, e->worker_count, NULL, 0);
	text_json_int(j, "unused_cpus", e->unused_cpus);
}

static void json_nodes(struct text_json *j)
{
	struct info_nodes lines[INFO_NODES];

	info_nodes(lines);
	text_json_open(j, "nodes", '[');
	for (size_t i = 0; i < INFO_NODES; i++) {
		text_json_open(j, NULL, '{');
		text_json_string(j, "collectives", lines[i].what);
		text_json_bool(j, "served", lines[i].is_served);
		text_json_string(j, "how", lines[i].how);
		text_json_close(j, '}');
	}
	text_json_close(j, ']');
}

static void json_tuned(struct text_json *j, const struct info *info)
{
	text_json_open(j, "tuned", '[');
	for (size_t i = 0; i < info->tuned_count; i++) {
		const struct info_tuned *t = &info->tuned[i];

		text_json_open(j, NULL, '{');
		text_json_string(j, "library", t->mpi->path);
		text_json_string(j, "mpi", t->mpi->version);
		text_json_string(j, "state", info_tune_state(t->found.state));
		text_json_string(j, "file", t->found.path[0] ? t->found.path : NULL);
		text_json_string(j, "reason", t->found.reason[0] ? t->found.reason : NULL);
		text_json_int(j, "values", t->found.values);
		text_json_string(j, "writes", t->own[0] ? t->own : NULL);
		text_json_string(j, "writes_alike", t->alike[0] ? t->alike : NULL);
		text_json_close(j, '}');
	}
	text_json_close(j, ']');
}

void info_json(const struct info *info)
{
	struct text_json j = { .out = stdout };

	text_json_open(&j, NULL, '{');
	text_json_string(&j, "version", SLUICE_VERSION);
	text_json_string(&j, "library", info->library[0] ? info->library : NULL);
	text_json_string(&j, "kernel", info->kernel);
	text_json_string(&j, "host", info->host);
	text_json_string(&j, "kind_of_machine", info->machine);
	text_json_string(&j, "figures", access(info->figures, R_OK) ? NULL : info->figures);
	text_json_open(&j, "problems", '[');
	if (!base_opt.usable)
		info_each_problem(info, json_problem, &j);
	text_json_close(&j, ']');
	text_json_open(&j, "old_names", '[');
	if (base_opt.usable)
		info_each_problem(info, json_problem, &j);
	text_json_close(&j, ']');
	json_mpis(&j, info);
	json_trials(&j, info);
	json_early(&j, info);
	json_nodes(&j);
	json_topology(&j, info);
	json_tuned(&j, info);
	json_options(&j);
	text_json_close(&j, '}');
}
