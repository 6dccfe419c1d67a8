/* SPDX-License-Identifier: BSD-3-Clause */
/* Agreement on the worker process of the job while a communicator is created: who starts it, and
 * whether all ranks are attached. */
#include <stdlib.h>
#include <string.h>

#include "rt/private.h"
#include "rt/requests.h"
#include "worker/worker.h"

enum { WORKERS_MAX = 4 }; /* more threads do not copy faster: memory is the limit */

/* The first allgather. */
struct offer {
	uint32_t may;  /* this rank may attach to a worker process */
	uint32_t asks; /* this communicator may have work for one */
	struct worker_ticket ticket; /* of the worker process of this rank; zero: none */
};

/* The last allgather. */
struct result { int32_t attached, group; };

/* Can this communicator have work for the worker process? To open the guard takes 0.3 ms, so that
 * comes last. */
static bool may_have_work(const struct rt_comm *c)
{
	bool any = false;

	for (int kind = 0; kind < COLL_COUNT && c->admits_requests; kind++)
		any |= !coll_gate_is_closed(&rt_gates[COLL_NONBLOCKING][kind]);
	return any || (base_opt.early != BASE_EARLY_OFF && !pending_init());
}

static bool may_use_process(void)
{
	const char *engine = base_opt.engine;

	return base_opt.worker_kind != BASE_WORKER_THREAD &&
	       (!engine[0] || base_is_word(engine, "auto") || base_is_word(engine, "sw"));
}

static int unused_cpus(const struct rt_comm *c, struct os_cpumask *out)
{
	struct os_cpumask ranks_cpus;
	int count;

	node_cpus(c->group, &ranks_cpus);
	count = engine_unused_cpus(&ranks_cpus, c->size, out);
	if (!count && !c->rank)
		base_log(BASE_LOG_INFO, "rt", "no worker process: no unused CPU");
	return count;
}

/* ---- starting ---------------------------------------------------------------------------- */

/* Leaves *out zero when the job gets no worker process. Context: rank 0. */
static void start(const struct rt_comm *c, struct worker_ticket *out)
{
	struct worker_setup setup;
	char reason[256] = "";
	int cpus;

	*out = (struct worker_ticket){ 0 };
	cpus = unused_cpus(c, &setup.cpus);
	setup.threads = cpus < WORKERS_MAX ? cpus : WORKERS_MAX;
	if (base_opt.engine_workers >= 0)
		setup.threads = (int)base_opt.engine_workers;
	if (!setup.threads)
		base_log(BASE_LOG_INFO, "rt", "no worker process: SLUICE_WORKERS=0");
	if (!cpus || !setup.threads)
		return;
	/* the guard does not check the system calls of worker_start() */
	sud_allow_push();
	if (worker_start(&setup, out, reason, sizeof reason))
		base_log(base_opt.worker_kind == BASE_WORKER_PROCESS ? BASE_LOG_WARN
								     : BASE_LOG_INFO,
			 "rt", "no worker process: %s", reason);
	sud_allow_pop();
}

/* *out: the worker process of the first rank that has one; zero: none. Returns: whether the
 * communicator gets a worker process. */
static bool choose(const struct offer *all, int size, struct worker_ticket *out)
{
	bool is_asked = false;

	*out = (struct worker_ticket){ 0 };
	for (int r = 0; r < size; r++) {
		is_asked |= all[r].asks;
		if (!all[r].may)
			return false;
		if (all[r].ticket.key && !out->key)
			*out = all[r].ticket;
	}
	return is_asked;
}

/* Returns: 0 with *out, zero without a worker process; or -errno. Context: collective. */
static int agree_on_one(struct rt_comm *c, const struct node_oob *oob, struct offer *all,
			struct worker_ticket *out)
{
	struct offer mine = { .may = may_use_process() };
	struct os_cpumask unused;
	int ret;

	mine.asks = mine.may && unused_cpus(c, &unused) && may_have_work(c);
	worker_current(&mine.ticket);
	ret = oob->allgather(oob->ctx, &mine, sizeof mine, all);
	if (ret || !choose(all, oob->size, out)) {
		*out = (struct worker_ticket){ 0 };
		return ret;
	}
	if (out->key)
		return 0;
	mine.ticket = (struct worker_ticket){ 0 };
	if (!oob->rank)
		start(c, &mine.ticket);
	ret = oob->allgather(oob->ctx, &mine, sizeof mine, all);
	*out = all[0].ticket;
	return ret;
}

/* ---- attaching --------------------------------------------------------------------------- */

static struct result attach(const struct rt_comm *c, const struct worker_ticket *t)
{
	struct result r = { 0 };
	int ret;

	sud_allow_push();
	ret = worker_attach(t);
	r.attached = !ret;
	if (!ret && !c->rank) {
		ret = worker_group_open(c->group);
		r.group = ret > 0 ? ret : 0;
	}
	sud_allow_pop();
	if (ret < 0)
		base_log(BASE_LOG_INFO, "rt", "not attached to the worker process: %s",
			 strerror(-ret));
	return r;
}

int worker_setup_comm(struct rt_comm *c, const struct node_oob *oob)
{
	struct offer *all = base_fault("offers") ? NULL : calloc((size_t)oob->size, sizeof *all);
	struct result mine = { 0 }, *results = calloc((size_t)oob->size, sizeof *results);
	struct worker_ticket ticket = { 0 };
	int64_t can_all = 0;
	int ret = oob->allreduce_min(oob->ctx, all && results, &can_all);

	if (!ret && can_all)
		ret = agree_on_one(c, oob, all, &ticket);
	if (ret || !ticket.key)
		goto out;
	mine = attach(c, &ticket);
	ret = oob->allgather(oob->ctx, &mine, sizeof mine, results);
	if (ret)
		goto out;
	c->worker_group = results[0].group;
	for (int r = 0; r < oob->size; r++)
		if (!results[r].attached)
			c->worker_group = 0;
	if (mine.group && !c->worker_group)
		worker_group_close(mine.group, oob->size);
	else if (mine.group)
		base_log(BASE_LOG_INFO, "rt", "worker process %d serves a communicator of %d ranks",
			 worker_pid(), oob->size);
out:
	free(all);
	free(results);
	return ret;
}

void worker_setup_comm_destroyed(struct rt_comm *c)
{
	if (c->worker_group)
		worker_group_close(c->worker_group, 1);
}
