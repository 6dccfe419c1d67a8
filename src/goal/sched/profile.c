/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SLUICE_GOAL_PROFILE=prefix: the times of all operations of all runs, in PREFIX.RANK.PID.json,
 * which Chrome and Perfetto show: one track for each rank, one event for each operation, runs above
 * them. Times are of CLOCK_MONOTONIC, so files of several processes of a machine can be shown
 * together. Events are kept in memory until the rank leaves the group; beyond PROFILE_EVENTS_MAX
 * runs are only counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "goal/grow/grow.h"
#include "goal/sched/private.h"

#define PROFILE_EVENTS_MAX (1u << 20) /* 32 MiB */

struct sched_event {
	uint64_t begin_ns, end_ns, bytes;
	uint32_t op, peer;
	uint8_t type;
};

struct sched_profile {
	struct sched_event *events;
	uint32_t count, cap;
	uint64_t lost; /* runs that were not recorded */
};

static struct sched_event *make_room(struct sched_profile *p, uint32_t more)
{
	if (more > PROFILE_EVENTS_MAX - p->count ||
	    goal_grow(&p->events, &p->cap, (uint64_t)p->count + more, sizeof *p->events))
		return NULL;
	return p->events + p->count;
}

void profile_run(struct sched_inst *s)
{
	struct sched_group *g = s->group;
	uint64_t start = s->body->start_ns, end = start;
	struct sched_event *e;
	uint32_t n = s->block->op_count;

	if (!base_opt.goal_profile[0])
		return;
	pthread_mutex_lock(&g->lock);
	if (!g->profile)
		g->profile = calloc(1, sizeof *g->profile);
	e = g->profile ? make_room(g->profile, n + 1) : NULL;
	for (uint32_t i = 0; e && i < n; i++) {
		const struct goal_op *op = inst_goal(s, i);

		e[i + 1] = (struct sched_event){ start + s->times[i].begin_ns,
						 start + s->times[i].end_ns,
						 op->bytes,
						 i,
						 goal_is_transfer(op) ? op->peer : GOAL_NONE,
						 op->type };
		end = base_max_u64(end, e[i + 1].end_ns);
	}
	if (e) {
		e[0] = (struct sched_event){ start, end, 0, s->slot, GOAL_NONE, GOAL_TYPES };
		g->profile->count += n + 1;
	} else if (g->profile) {
		g->profile->lost++;
	}
	pthread_mutex_unlock(&g->lock);
}

static void write_event(FILE *f, const struct sched_group *g, const struct sched_event *e)
{
	bool is_run = e->type == GOAL_TYPES;

	fprintf(f,
		",\n{\"name\": \"%s\", \"cat\": \"goal\", \"ph\": \"X\", \"pid\": %d, \"tid\": %d, "
		"\"ts\": %.3f, \"dur\": %.3f, "
		"\"args\": {\"%s\": %u, \"bytes\": %llu",
		is_run ? "run" : goal_op_words[e->type], (int)getpid(), g->rank,
		(double)e->begin_ns / 1e3, (double)(e->end_ns - e->begin_ns) / 1e3,
		is_run ? "schedule" : "op", e->op, (unsigned long long)e->bytes);
	if (e->peer != GOAL_NONE)
		fprintf(f, ", \"peer\": %u", e->peer);
	fprintf(f, "}}");
}

static int write_file(const struct sched_group *g, const char *path)
{
	FILE *f = fopen(path, "we");
	int err = 0;

	if (!f)
		return -errno;
	fprintf(f,
		"{\"displayTimeUnit\": \"ns\", \"otherData\": {\"clock\": \"monotonic\", "
		"\"lost_runs\": %llu}, "
		"\"traceEvents\": [\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": %d, "
		"\"tid\": %d, "
		"\"args\": {\"name\": \"rank %d\"}}",
		(unsigned long long)g->profile->lost, (int)getpid(), g->rank, g->rank);
	for (uint32_t i = 0; i < g->profile->count; i++)
		write_event(f, g, &g->profile->events[i]);
	fprintf(f, "\n]}\n");
	if (ferror(f))
		err = -EIO;
	if (fclose(f) && !err)
		err = -errno;
	return err;
}

void profile_write(struct sched_group *g)
{
	char path[4096];
	int ret;

	if (!g->profile)
		return;
	snprintf(path, sizeof path, "%s.%d.%d.json", base_opt.goal_profile, g->rank, (int)getpid());
	ret = write_file(g, path);
	if (ret)
		base_log(BASE_LOG_ERROR, "sched", "cannot write the profile %s: %s", path,
			 strerror(-ret));
	free(g->profile->events);
	free(g->profile);
	g->profile = NULL;
}
