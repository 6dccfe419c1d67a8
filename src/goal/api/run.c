/* SPDX-License-Identifier: BSD-3-Clause */
/* Public functions for groups and open schedules, made of sched/. */
#include <errno.h>
#include <pthread.h>

#include "goal/api/api.h"
#include "base/base.h"
#include "node/node.h"
#include "goal/sched/sched.h"

_Static_assert((int)SLUICE_GOAL_STREAM == (int)SCHED_STREAM, "public numbers");

static struct sched_group *inner(struct sluice_goal_group *g) { return (struct sched_group *)g; }
static struct sched_inst *inst(struct sluice_goal_instance *i) { return (struct sched_inst *)i; }

/* libsluice-goal.so reads its options when the program makes its first group. */
static void load_options(void)
{
	char problems[1024];

	if (!base_opt.usable && base_options_load(NULL, problems, sizeof problems))
		base_log(BASE_LOG_ERROR, "goal", "%s", problems);
}

static void load_options_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load_options);
}

/* ---- groups ------------------------------------------------------------------------------ */

static int gather(void *ctx, const void *in, size_t bytes, void *out)
{
	const struct sluice_goal_oob *oob = ctx;

	return oob->allgather(oob->ctx, in, bytes, out);
}

static int reduce(void *ctx, int64_t in, int64_t *out)
{
	const struct sluice_goal_oob *oob = ctx;

	return oob->allreduce_min(oob->ctx, in, out);
}

API_EXPORT int sluice_goal_group_create(const struct sluice_goal_oob *oob,
					struct sluice_goal_group **out)
{
	struct sluice_goal_oob mine = *oob;
	struct node_oob node = { .ctx = &mine, .rank = oob->rank, .size = oob->size,
				 .allgather = gather, .allreduce_min = reduce };
	struct sched_group *g = NULL;
	int ret;

	load_options_once();
	ret = sched_group_create(&node, &g);
	if (g)
		api_poll_in_mpi();
	*out = (struct sluice_goal_group *)g;
	return !ret && !g ? -ENOTSUP : ret;
}

API_EXPORT int sluice_goal_group_join(const char *name, int rank, int size, int timeout_ms,
				      struct sluice_goal_group **out)
{
	struct sched_group *g = NULL;
	int ret;

	load_options_once();
	if (base_log_rank() < 0)
		base_log_set_rank(rank);
	ret = sched_join(name, rank, size,
			 timeout_ms < 0 ? UINT64_MAX : (uint64_t)timeout_ms * 1000000, &g);
	*out = (struct sluice_goal_group *)g;
	return ret;
}

API_EXPORT int sluice_goal_progress(void) { return sched_poll(); }
API_EXPORT void sluice_goal_ask(int (*ask)(void)) { sched_ask(ask); }

API_EXPORT const char *sluice_goal_refusal(void) { return node_refusal(); }
API_EXPORT void sluice_goal_group_destroy(struct sluice_goal_group *g)
{
	sched_group_destroy(inner(g));
}
API_EXPORT int sluice_goal_group_rank(const struct sluice_goal_group *g)
{
	return sched_rank((const struct sched_group *)g);
}
API_EXPORT int sluice_goal_group_size(const struct sluice_goal_group *g)
{
	return sched_size((const struct sched_group *)g);
}
API_EXPORT void *sluice_goal_alloc(struct sluice_goal_group *g, uint64_t bytes)
{
	return sched_alloc(inner(g), bytes);
}
API_EXPORT void sluice_goal_free(struct sluice_goal_group *g, void *memory)
{
	sched_free(inner(g), memory);
}

/* ---- schedules --------------------------------------------------------------------------- */

API_EXPORT int sluice_goal_open(struct sluice_goal_group *g, const struct sluice_goal_schedule *s,
				const struct sluice_goal_buffer *buffers, uint32_t count,
				const struct sluice_goal_options *options,
				struct sluice_goal_instance **out)
{
	void *memory[SLUICE_GOAL_USERS_MAX];
	uint64_t bytes[SLUICE_GOAL_USERS_MAX];
	struct sched_open o = { .block = s->block,
				.block_bytes = s->block->bytes,
				.buffers = memory,
				.buffer_bytes = bytes,
				.buffer_count = count };
	struct sched_inst *i = NULL;
	int ret;

	if (count > SLUICE_GOAL_USERS_MAX || s->ranks != (uint32_t)sched_size(inner(g)))
		return -EINVAL;
	for (uint32_t k = 0; k < count; k++) {
		if (!buffers[k].memory && buffers[k].bytes)
			return -EINVAL;
		memory[k] = buffers[k].memory;
		bytes[k] = buffers[k].bytes;
	}
	if (options) {
		o.channel = options->channel;
		o.flags = options->flags;
		o.name = options->name;
	}
	if (o.flags & ~(unsigned)SCHED_STREAM)
		return -EINVAL;
	ret = sched_open(inner(g), &o, &i);
	if (!ret)
		*out = (struct sluice_goal_instance *)i;
	return ret;
}

API_EXPORT int sluice_goal_start(struct sluice_goal_instance *i) { return sched_run(inst(i)); }

API_EXPORT int sluice_goal_run(struct sluice_goal_group *g, const struct sluice_goal_schedule *s,
			       const struct sluice_goal_buffer *buffers, uint32_t count,
			       struct sluice_goal_instance **out)
{
	struct sluice_goal_instance *i;
	int ret = sluice_goal_open(g, s, buffers, count, NULL, &i);

	if (ret)
		return ret;
	ret = sluice_goal_start(i);
	if (ret)
		sluice_goal_close(i);
	else
		*out = i;
	return ret;
}

API_EXPORT int sluice_goal_test(struct sluice_goal_instance *i) { return sched_test(inst(i)); }

API_EXPORT int sluice_goal_wait(struct sluice_goal_instance *i, int timeout_ms)
{
	return sched_wait(inst(i), timeout_ms < 0 ? UINT64_MAX : (uint64_t)timeout_ms * 1000000);
}

API_EXPORT int sluice_goal_execute(struct sluice_goal_instance *i, int timeout_ms)
{
	return sched_execute(inst(i), timeout_ms < 0 ? UINT64_MAX : (uint64_t)timeout_ms * 1000000);
}

API_EXPORT int sluice_goal_cancel(struct sluice_goal_instance *i) { return sched_cancel(inst(i)); }
API_EXPORT int sluice_goal_close(struct sluice_goal_instance *i) { return sched_close(inst(i)); }

API_EXPORT void sluice_goal_failure(const struct sluice_goal_instance *i,
				    struct sluice_goal_failure *out)
{
	struct sched_failure f;

	sched_failure((const struct sched_inst *)i, &f);
	*out = (struct sluice_goal_failure){ f.error, f.rank, f.at_rank, f.op };
}

API_EXPORT uint64_t sluice_goal_stuck(const struct sluice_goal_instance *i, char *buf, uint64_t cap)
{
	return sched_stuck((const struct sched_inst *)i, buf, cap);
}
