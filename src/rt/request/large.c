/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests by exec/: every rank publishes its side in a slot, and waiting ranks move the data. */
#include <errno.h>

#include "rt/request/request.h"

/* The worker process only: channels serve calls that returned early. */
static void announce(struct rt_request *r)
{
	struct progress_facts f = { .asker = PROGRESS_DETACHER };

	f.has_waiters = exec_is_waited_for(r->run);
	offload_facts(r->comm, DETACH_TO_WORKER, &f);
	offload_announce(r->comm, r->run, &f);
}

static int begin(struct rt_request *r)
{
	/* an allgather in place has one buffer only */
	struct request_side *send =
		r->call->in_place && request_is_allgather(r) ? &r->recv : &r->send;
	struct exec_run *run;
	struct exec_reduce reduce;
	struct exec_shape shape;
	struct exec_call call = {
		.shape = request_is_reduce(r) ? NULL : &shape,
		.reduce = request_is_reduce(r) ? &reduce : NULL,
		.user = { send->addr, r->recv.addr },
		.desc = { [COLL_SEND] = send->desc, [COLL_RECV] = r->recv.desc },
		.prefer_vm = r->comm->prefer_vm,
		.is_nonblocking = true,
		.number = request_number(r),
		.name = r->call->name,
	};
	int ret;

	if (call.reduce)
		request_reduce(r, &reduce);
	else
		request_shape(r, &shape);
	ret = exec_begin(r->comm->exec, &call, &run);
	if (ret == -EBUSY && pending_retire_run(run)) /* of a call that returned early */
		ret = exec_begin(r->comm->exec, &call, &run);
	r->comm->requests.behind = ret == -EBUSY ? run : NULL;
	if (ret)
		return ret;
	r->run = run;
	request_set_traced(r, exec_number(run));
	return 0;
}

static int step(struct rt_request *r, enum exec_copy copy, bool *out_ended)
{
	return exec_step(r->run, copy, out_ended);
}

static int check(struct rt_request *r)
{
	return r->state == REQUEST_ACTIVE ? exec_check(r->run) : 0;
}

const struct request_ops request_large = {
	.way = REQUEST_BY_EXEC,
	.create = request_make_starts,
	.destroy = request_free_starts,
	.open = request_open,
	.begin = begin,
	.active = announce,
	.step = step,
	.check = check,
	.close = request_close,
};
