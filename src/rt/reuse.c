/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission of calls that gain in reused buffers and lose in new ones: admitted while all ranks
 * reuse their buffers. Ranks count calls alike (policy_reuse_next) and sometimes agree, by a
 * reduction of one word. The word lies in the slots and needs no arena memory.
 */
#include <errno.h>

#include "rt/private.h"
#include "rt/coll/sides.h"

/* Returns: whether peers have mapped, or will map, the buffer. Types with gaps are packed. */
static bool is_used_again(const struct coll_side *side)
{
	if (!side->count || !side->buf.bytes)
		return true;
	return !side->buf.pack &&
	       region_is_reused(side->buf.addr, side->buf.bytes,
			       policy_intent(base_opt.region_kind, side->buf.is_shared));
}

bool reuse_is_seen(const struct coll_call *call)
{
	bool send = is_used_again(&call->send), recv = is_used_again(&call->recv);

	return send && recv;
}

/* Describes eight bytes that peers read in the slot, like the edges of a buffer without a whole
 * page. */
static struct region_desc describe_word(uint64_t *word)
{
	return (struct region_desc){ .addr = (uintptr_t)word,
				     .bytes = sizeof *word,
				     .head = sizeof *word,
				     .flags = REGION_DESC_MAPPED };
}

int reuse_agree(struct rt_comm *c, const char *name, uint64_t mine, uint64_t *out)
{
	const struct exec_reduce reduce = {
		.kind = COLL_ALLREDUCE,
		.type = GOAL_AND,
		.dtype = GOAL_U64,
		.count = 1,
		.element_bytes = sizeof mine,
	};
	const struct exec_call call = {
		.reduce = &reduce,
		.user = { &mine, out },
		.desc = { [COLL_SEND] = describe_word(&mine), [COLL_RECV] = describe_word(out) },
		.name = name,
	};
	struct exec_run *r;
	int ret;

	host_call_begin();
	requests_enter_blocking(c);
	ret = run_begin(c, &call, &r);
	if (!ret)
		ret = exec_wait(r);
	requests_exit_blocking(c);
	host_call_end();
	return ret;
}

static int ask(struct rt_comm *c, struct policy_reuse *u, const struct coll_call *call)
{
	uint64_t mine = call && reuse_is_seen(call) && policy_reuse_was_right(u), all = 0;
	int ret = reuse_agree(c, call ? call->name : "a question before a collective", mine, &all);

	if (ret)
		return ret;
	policy_reuse_answer(u, all);
	base_count(BASE_CTR_REUSE_ASKED, 1);
	return all ? 1 : 0;
}

int rt_takes(struct rt_comm *c, enum coll kind, uint64_t bytes, const struct coll_call *call)
{
	const struct coll_gate *gate = &rt_gates[COLL_BLOCKING][kind];
	uint64_t again = 0, always = 0;
	struct policy_reuse *u;

	c->reuse_now = NULL;
	if (c->is_crowded)
		rt_crowded(kind, node_size(c->group), &again, &always);
	if (bytes < again)
		return 0;
	if (bytes >= always && policy_admit(gate, bytes) == ADMIT_ALWAYS)
		return 1;
	u = &c->reuse[kind][policy_size_class(bytes)];
	switch (policy_reuse_next(u)) {
	case REUSE_PASS:
		if (call)
			reuse_is_seen(call);
		return 0;
	case REUSE_ADMIT:
		c->reuse_now = u;
		return 1;
	case REUSE_ASK:
		break;
	}
	return ask(c, u, call);
}

void reuse_note(struct rt_comm *c, bool is_mapped) { policy_reuse_count(c->reuse_now, is_mapped); }
