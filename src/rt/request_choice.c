/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Admission of nonblocking calls. Where admission depends on reuse of buffers (reuse.c), ranks
 * defer the question to the next blocking call, in which ranks may wait for each other. The last
 * answer holds until then.
 */
#include "rt/early.h"
#include "rt/private.h"
#include "rt/requests.h"

#define QUESTIONS_MAX 64

bool rt_request_suits(const struct rt_comm *c) { return c->takes_requests; }

uint32_t rt_connect_threshold(void)
{
	struct policy_options o = rt_policy_options();

	return policy_connect_threshold(&o);
}

static void leave_question(struct rt_comm *c, struct policy_reuse *u)
{
	policy_reuse_defer(u);
	if (!c->requests_wait)
		rt_intercept_ref();
	c->requests_wait = true;
}

bool rt_request_takes(struct rt_comm *c, enum coll kind, uint64_t bytes,
		      const struct coll_call *call)
{
	struct policy_reuse *u = &c->requests_reuse[kind][policy_size_class(bytes)];
	enum policy_step step;

	c->request_reuse_now = NULL;
	step = policy_reuse_next(u);
	if (step == REUSE_ASK)
		leave_question(c, u);
	if (u->is_admitted)
		c->request_reuse_now = u;
	u->would_agree = u->is_admitted || (call && reuse_is_seen(call));
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
	if (reuse_agree(c, "a question before a collective", mine, &common))
		common = 0; /* a peer has died, and a message is on stderr */
	for (int i = 0; i < n; i++)
		policy_reuse_answer(asked[i], common >> i & 1);
	base_count(BASE_CTR_REUSE_ASKED, 1);
	if (n < QUESTIONS_MAX)
		request_choice_fini(c);
}

void request_choice_fini(struct rt_comm *c)
{
	if (c->requests_wait)
		rt_intercept_unref();
	c->requests_wait = false;
}
