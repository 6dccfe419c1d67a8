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

#define QUESTIONS_MAX 64

/* Returns: whether peers have mapped, or will map, the buffer. Types with gaps are packed. */
static bool is_reused(const struct coll_side *side)
{
	if (!side->count || !side->buf.bytes)
		return true;
	return !side->buf.pack &&
	       region_is_reused(side->buf.addr, side->buf.bytes,
				policy_intent(base_opt.region_kind, side->buf.is_shared));
}

/* Counts a use of both buffers. Returns: whether peers have mapped, or will map, both. */
static bool count_use(const struct coll_call *call)
{
	bool send = is_reused(&call->send), recv = is_reused(&call->recv);

	return send && recv;
}

/* ---- agreement --------------------------------------------------------------------------- */

/* Describes eight bytes that peers read in the slot, like the edges of a buffer without a whole
 * page. */
static struct region_desc describe_word(uint64_t *word)
{
	return (struct region_desc){ .addr = (uintptr_t)word,
				     .bytes = sizeof *word,
				     .head = sizeof *word,
				     .flags = REGION_DESC_MAPPED };
}

/* Stores in *out the bits that all ranks have set. Returns: 0 or -errno. Context: collective. */
static int agree(struct rt_comm *c, const char *name, uint64_t mine, uint64_t *out)
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

	runs_enter(c);
	ret = run_begin(c, &call, &r);
	if (!ret)
		ret = exec_wait(r);
	runs_exit(c);
	return ret;
}

static const char *const question = "a question before a collective";

/* ---- blocking calls ---------------------------------------------------------------------- */

static int ask(struct rt_comm *c, struct policy_reuse *u, const struct coll_call *call)
{
	uint64_t mine = call && count_use(call) && policy_reuse_was_right(u), all = 0;
	int ret = agree(c, call ? call->name : question, mine, &all);

	if (ret)
		return ret;
	policy_reuse_answer(u, all);
	base_count(BASE_CTR_REUSE_ASKED, 1);
	return all ? 1 : 0;
}

int rt_admit(struct rt_comm *c, enum coll kind, uint64_t bytes, const struct coll_call *call)
{
	const struct coll_gate *gate = &rt_gates[COLL_BLOCKING][kind];
	uint64_t again = 0, always = 0;
	struct policy_reuse *u;

	c->reuse_now = NULL;
	if (c->is_crowded)
		rt_crowded(kind, c->size, &again, &always);
	if (bytes < again)
		return 0;
	if (bytes >= always && policy_admit(gate, bytes) == ADMIT_ALWAYS)
		return 1;
	u = &c->reuse[kind][policy_size_class(bytes)];
	switch (policy_reuse_next(u)) {
	case REUSE_PASS:
		if (call)
			count_use(call);
		return 0;
	case REUSE_ADMIT:
		c->reuse_now = u;
		return 1;
	case REUSE_ASK:
		break;
	}
	return ask(c, u, call);
}

/* ---- nonblocking calls ------------------------------------------------------------------- */

bool rt_request_suits(const struct rt_comm *c) { return c->admits_requests; }

uint32_t rt_connect_threshold(void)
{
	struct policy_options o = rt_policy_options();

	return policy_connect_threshold(&o);
}

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
	u->would_agree = u->is_admitted || (call && count_use(call));
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
	if (agree(c, question, mine, &common))
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
