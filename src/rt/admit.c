/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission of calls that gain in reused buffers and lose in new ones: admitted while all ranks
 * reuse their buffers. Ranks count calls alike (policy_reuse_next) and sometimes agree, by a
 * reduction of one word. The word lies in the slots and needs no arena memory.
 *
 * A nonblocking call must not wait for other ranks. Its question is deferred to the next blocking
 * call, and the last answer holds until then.
 */
#include <errno.h>

#include "rt/coll/run.h"
#include "rt/early.h"
#include "rt/requests.h"
#include "rt/trials.h"

#define QUESTIONS_MAX 64

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

/* Counts uses of both buffers. Returns: whether peers have mapped, or will map, both. */
static bool count_uses(const struct coll_call *call, uint32_t uses)
{
	bool send = is_reused(&call->send, uses), recv = is_reused(&call->recv, uses);

	return send && recv;
}

/* ---- agreement --------------------------------------------------------------------------- */

/* Describes a few words that peers read in the slot, like the edges of a buffer without a whole
 * page. */
static struct region_desc describe_words(uint64_t *words, uint64_t count)
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
		.desc = { [COLL_SEND] = describe_words(mine, count),
			  [COLL_RECV] = describe_words(out, count) },
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

static const char *const question = "a question before a collective";

/* ---- blocking calls ---------------------------------------------------------------------- */

static int ask(struct rt_comm *c, struct policy_reuse *u, const struct trials_call *call)
{
	uint64_t mine = call->call && count_uses(call->call, call->uses) &&
			policy_reuse_was_right(u), all = 0;
	int ret = admit_agree(c, call->call ? call->name : question, GOAL_AND, &mine, &all, 1);

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
			count_uses(call->call, call->uses);
		return 0;
	case REUSE_ADMIT:
		c->reuse_now = u;
		return 1;
	case REUSE_ASK:
		break;
	}
	return ask(c, u, call);
}

int rt_admit(struct rt_comm *c, const struct rt_question *q, const struct coll_call *call)
{
	const struct coll_gate *gate = &rt_gates[COLL_BLOCKING][q->kind];
	struct trials_call t = { .kind = q->kind, .bytes = q->bytes, .root = q->root,
				 .name = q->name, .uses = 1, .call = call };
	int size_class = policy_size_class(q->bytes);
	uint64_t again = 0, always = 0;

	c->reuse_now = NULL;
	c->trial.now = NULL;
	if (c->is_crowded)
		rt_crowded(q->kind, c->size, &again, &always);
	if (q->bytes < again)
		return 0;
	t.is_always = q->bytes >= always && policy_admit(gate, q->bytes) == ADMIT_ALWAYS;
	t.of = &c->classes[q->kind][size_class];
	if (gate->is_measured && !q->is_fixed) {
		if (trials_wait(t.of, t.is_always))
			t.uses = policy_reuse_stride(&t.of->reuse, size_class);
		return trials_admit(c, &t);
	}
	if (t.is_always)
		return 1;
	return q->is_fixed ? 0 : admit_reused(c, &t);
}

/* ---- nonblocking calls ------------------------------------------------------------------- */

bool rt_request_suits(const struct rt_comm *c) { return c->admits_requests; }

static void defer_question(struct rt_comm *c, struct policy_reuse *u)
{
	policy_reuse_defer(u);
	if (!c->requests_wait)
		rt_intercept_ref();
	c->requests_wait = true;
}

bool rt_request_admit(struct rt_comm *c, enum coll kind, uint64_t bytes,
		      const struct coll_call *call)
{
	struct policy_reuse *u = &c->requests_reuse[kind][policy_size_class(bytes)];

	c->request_reuse_now = NULL;
	if (policy_reuse_next(u) == REUSE_ASK)
		defer_question(c, u);
	if (u->is_admitted)
		c->request_reuse_now = u;
	u->would_agree = u->is_admitted || (call && count_uses(call, 1));
	/* wrong admissions also count after calls that were passed on while no answer came */
	u->would_agree &= policy_reuse_was_right(u);
	return u->is_admitted;
}

bool rt_requests_disagree(const struct rt_comm *c) { return c->requests_wait; }

void rt_requests_agree(struct rt_comm *c)
{
	struct policy_reuse *all = c->requests_reuse[0], *asked[QUESTIONS_MAX];
	uint64_t mine = 0, common = 0;
	int n = 0;

	for (int i = 0; i < COLL_COUNT * POLICY_SIZE_CLASSES && n < QUESTIONS_MAX; i++) {
		if (!all[i].is_asked)
			continue;
		mine |= (uint64_t)all[i].would_agree << n;
		asked[n++] = &all[i];
	}
	if (admit_agree(c, question, GOAL_AND, &mine, &common, 1))
		common = 0; /* a peer has died, and a message is on stderr */
	for (int i = 0; i < n; i++)
		policy_reuse_answer(asked[i], common >> i & 1);
	base_count(BASE_CTR_REUSE_ASKED, 1);
	if (n < QUESTIONS_MAX)
		admit_comm_destroyed(c);
}

void admit_comm_destroyed(struct rt_comm *c)
{
	if (c->requests_wait)
		rt_intercept_unref();
	c->requests_wait = false;
}
