/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "private.h"

/* Figures for kinds of machines. For one machine there are `--measure` and -L -o ... */
const struct sim_preset sim_presets[] = {
	/* what LogGOPSim takes without options: an InfiniBand cluster of 2010 */
	{ "loggopsim", 2500, 1500, 1000, 6, 0, 0, 65535 },
	/* 200 Gbit/s, large fat tree */
	{ "infiniband", 1500, 250, 20, 0.04, 0.005, 0.05, 16384 },
	/* 100 Gbit/s, kernel sockets */
	{ "ethernet", 12000, 2500, 600, 0.08, 0.06, 0.05, 65536 },
	/* two cores of one machine */
	{ "shm", 100, 60, 40, 0.03, 0.03, 0.03, 8192 },
};
const size_t sim_preset_count = sizeof(sim_presets) / sizeof(sim_presets[0]);

static uint64_t ps_of(double ns) { return (uint64_t)(ns * SIM_PS_PER_NS + 0.5); }

static uint64_t cost_of(double ns)
{
	return (uint64_t)(ns * SIM_PS_PER_NS * (1 << SIM_FRACTION_BITS) + 0.5);
}

void sim_params_from(struct sim_params *p, const struct sim_preset *preset)
{
	*p = (struct sim_params){
		.costs = { .latency_ps = ps_of(preset->latency_ns),
			   .overhead_ps = ps_of(preset->overhead_ns),
			   .gap_ps = ps_of(preset->gap_ns),
			   .gap_byte = cost_of(preset->gap_byte_ns),
			   .overhead_byte = cost_of(preset->overhead_byte_ns) },
		.local_byte = cost_of(preset->local_byte_ns),
		.eager_bytes = preset->eager_bytes,
	};
}

struct sim_class *sim_class_add(struct sim_params *p, uint64_t above_bytes)
{
	uint32_t at = 0;

	while (at < p->class_count && p->classes[at].above_bytes < above_bytes)
		at++;
	if (at < p->class_count && p->classes[at].above_bytes == above_bytes)
		return &p->classes[at];
	if (p->class_count == SIM_CLASSES_MAX)
		return NULL;
	memmove(p->classes + at + 1, p->classes + at,
		(p->class_count - at) * sizeof(p->classes[0]));
	p->class_count++;
	p->classes[at].above_bytes = above_bytes;
	memset(&p->classes[at].costs, 0xff, sizeof(struct sim_costs)); /* SIM_AS_BELOW */
	return &p->classes[at];
}

void sim_classes_fill(struct sim_params *p)
{
	const struct sim_costs *below = &p->costs;

	for (uint32_t i = 0; i < p->class_count; i++) {
		struct sim_costs *c = &p->classes[i].costs;

		for (int k = 0; k < SIM_COSTS; k++)
			if (c->all[k] == SIM_AS_BELOW)
				c->all[k] = below->all[k];
		below = c;
	}
}

static int parse(const char *text, double most, double *out)
{
	char *end;
	double ns = strtod(text, &end);

	if (end == text || *end || !(ns >= 0) || ns > most)
		return -EINVAL;
	*out = ns;
	return 0;
}

int sim_parse_ns(const char *text, uint64_t *out_ps)
{
	double ns;
	int rc = parse(text, 1e12, &ns);

	if (!rc)
		*out_ps = ps_of(ns);
	return rc;
}

int sim_parse_byte_ns(const char *text, uint64_t *out_cost)
{
	double ns;
	int rc = parse(text, 1e6, &ns);

	if (!rc)
		*out_cost = cost_of(ns);
	return rc;
}

uint64_t sim_byte_cost(uint64_t cost, uint64_t bytes)
{
	unsigned __int128 sum =
		(unsigned __int128)cost * (bytes ? bytes - 1 : 0) >> SIM_FRACTION_BITS;

	return sum > SIM_TIME_MAX ? SIM_TIME_MAX : (uint64_t)sum;
}
