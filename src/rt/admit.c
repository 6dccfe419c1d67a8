/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission of calls that gain in reused buffers and lose in new ones: admitted while all ranks
 * reuse their buffers. Ranks count calls alike (policy_reuse_next) and sometimes agree, by a
 * reduction of one word. The word lies in the slots and needs no arena memory.
 *
 * A nonblocking call must not wait for other ranks. Its question is deferred to the next blocking
 * call, and the last answer holds until then (request/trials.c).
 */
#include "rt/coll/run.h"
#include "rt/trials.h"

/* Returns: whether peers have mapped, or will map, the buffer. A buffer with gaps is packed unless
 * its parts have layouts and leave no gap together. */
static bool is_reused(const struct coll_side *side, uint32_t uses)
{
	const struct coll_buf *buf = &side->buf;

	if (!side->count || !buf->bytes)
		return true;
	if (buf->pack)
		return buf->layouts && !buf->is_shared &&
		       region_is_reused(buf->hull, buf->hull_bytes,
					policy_intent_packed(base_opt.region_kind), uses);
	return region_is_reused(buf->addr, buf->bytes,
				policy_intent(base_opt.region_kind, buf->is_shared), uses);
}

bool admit_count_uses(const struct coll_call *call, uint32_t uses)
{
	bool send = is_reused(&call->send, uses), recv = is_reused(&call->recv, uses);

	return send && recv;
}

/* ---- agreement --------------------------------------------------------------------------- */

struct region_desc admit_describe_words(const uint64_t *words, uint64_t count)
{
	uint32_t bytes = (uint32_t)(count * sizeof *words);

	return (struct region_desc){ .addr = (uintptr_t)words,
				     .bytes = bytes,
				     .head = bytes,
				     .flags = REGION_DESC_MAPPED };
}

int admit_agree(struct rt_comm *c, const char *name, enum goal_type op, uint64_t *mine,
		uint64_t *out, uint64_t count)
{
	const struct exec_reduce reduce = {
		.kind = COLL_ALLREDUCE,
		.type = op,
		.dtype = GOAL_U64,
		.count = count,
		.element_bytes = sizeof *mine,
	};
	const struct exec_call call = {
		.reduce = &reduce,
		.user = { mine, out },
		.desc = { [COLL_SEND] = admit_describe_words(mine, count),
			  [COLL_RECV] = admit_describe_words(out, count) },
		.name = name,
	};
	struct exec_run *r;
	int ret;

	runs_enter(c);
	ret = run_begin(c, &call, &r);
	if (!ret)
		ret = exec_wait(r);
	runs_exit(c);
	return ret;
}

/* ---- blocking calls ---------------------------------------------------------------------- */

static int ask(struct rt_comm *c, struct policy_reuse *u, const struct trials_call *call)
{
	uint64_t mine = call->call && admit_count_uses(call->call, call->uses) &&
			policy_reuse_was_right(u), all = 0;
	int ret = admit_agree(c, call->name, GOAL_AND, &mine, &all, 1);

	if (ret)
		return ret;
	policy_reuse_answer(u, all);
	base_count(BASE_CTR_REUSE_ASKED, 1);
	return all ? 1 : 0;
}

int admit_reused(struct rt_comm *c, const struct trials_call *call)
{
	struct policy_reuse *u = &call->of->reuse;

	switch (policy_reuse_next(u)) {
	case REUSE_PASS:
		if (call->call)
			admit_count_uses(call->call, call->uses);
		return 0;
	case REUSE_ADMIT:
		c->reuse_now = u;
		return 1;
	case REUSE_ASK:
		break;
	}
	return ask(c, u, call);
}

int admit_always(struct rt_comm *c, const struct trials_call *call)
{
	struct policy_reuse *u = &call->of->reuse;
	bool is_scatter = coll_pattern(call->kind) == COLL_REDUCE_SCATTER;
	uint64_t vector = is_scatter ? call->bytes * (uint64_t)c->size : call->bytes;
	struct trials_call t = *call;
	int ret;

	if (!coll_is_reduce(call->kind) || vector <= POLICY_PIECE_PACKED)
		return 1;
	t.uses = 0; /* the call itself will count one */
	ret = backoff_interval(&u->passing) ? admit_reused(c, &t) : ask(c, u, &t);
	c->packs_in_pieces = !ret;
	return ret < 0 ? ret : 1;
}

int rt_admit(struct rt_comm *c, const struct rt_question *q, const struct coll_call *call)
{
	const struct coll_gate *gate = &rt_gates[COLL_BLOCKING][q->kind];
	struct trials_call t = { .kind = q->kind, .bytes = q->bytes, .root = q->root,
				 .name = q->name, .uses = 1, .call = call };
	int size_class = policy_size_class(q->bytes);
	uint64_t again = 0, always = 0;

	c->reuse_now = NULL;
	c->packs_in_pieces = false;
	c->trial.now = NULL;
	if (c->is_crowded)
		rt_crowded(q->kind, c->size, &again, &always);
	if (q->bytes < again)
		return 0;
	t.of = &c->classes[q->kind][size_class];
	if (coll_gate_measures(gate, q->bytes) && !q->is_fixed) {
		if (trials_wait(c, t.of))
			t.uses = policy_reuse_stride(&t.of->reuse, size_class);
		return trials_admit(c, &t);
	}
	if (q->bytes >= always && policy_admit(gate, q->bytes) == ADMIT_ALWAYS)
		return admit_always(c, &t);
	return q->is_fixed ? 0 : admit_reused(c, &t);
}
