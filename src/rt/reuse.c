/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls that win in buffers that are used again, and lose in such as are new in each call: taken while all ranks use
 * theirs again. Ranks count calls alike (policy_habit_next), and now and then agree on what they have seen: by a
 * reduction of one word, which lies in their slots and needs no memory of the arena. Nonblocking calls, which must not wait
 * for others, leave their questions to the next blocking one, and go on as before until then.
 */
#include <errno.h>

#include "rt/early.h"
#include "rt/private.h"
#include "rt/requests.h"
#include "rt/sides.h"

#define SIZES_FROM 16 /* log2 of the smallest size that is told from smaller ones */

static struct reuse *reuse_of(struct reuse (*table)[REUSE_SIZES], enum rt_kind kind, uint64_t bytes)
{
	int power = 63 - __builtin_clzll(bytes | 1), last = REUSE_SIZES - 1;
	int class = power < SIZES_FROM ? 0 : power - SIZES_FROM;

	return &table[kind][class < last ? class : last];
}

/* Is it mapped, or about to be? What has gaps is packed in any case. */
static bool is_used_again(const struct rt_side *side)
{
	if (!side->count || !side->buf.bytes)
		return true;
	return !side->buf.pack && region_is_used_again(side->buf.addr, side->buf.bytes);
}

/* Both sides count a use. */
static bool are_used_again(const struct rt_call *call)
{
	bool send = is_used_again(&call->send), recv = is_used_again(&call->recv);

	return send && recv;
}

/* Eight bytes that peers take from the slot, as the edges of a buffer without a whole page. */
static struct region_desc describe_word(uint64_t *word)
{
	return (struct region_desc){
		.addr = (uintptr_t)word, .bytes = sizeof *word, .head = sizeof *word, .flags = REGION_DESC_MAPPED
	};
}

/* What all ranks say: the bits that all have set. */
static int agree(struct rt_comm *c, const char *name, uint64_t mine, uint64_t *out)
{
	const struct exec_fold fold = {
		.kind = FOLD_ALLREDUCE, .type = GOAL_AND, .dtype = GOAL_U64, .count = 1, .element_bytes = sizeof mine,
	};
	const struct exec_call call = {
		.fold = &fold,
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
	requests_leave_blocking(c);
	host_call_end();
	return ret;
}

static int ask(struct rt_comm *c, struct reuse *u, const struct rt_call *call)
{
	uint64_t mine = call && are_used_again(call) && reuse_was_right(u), all = 0;
	int ret = agree(c, call ? call->name : "a question before a collective", mine, &all);

	if (ret)
		return ret;
	reuse_answer(u, all);
	base_count(BASE_CTR_REUSE_ASKED, 1);
	return all ? 1 : 0;
}

int rt_takes(struct rt_comm *c, enum rt_kind kind, uint64_t bytes, const struct rt_call *call)
{
	uint64_t again = 0, always = 0;
	struct reuse *u;

	c->reuse_now = NULL;
	if (c->is_crowded)
		policy_crowded_bytes(kind, c->host, node_size(c->group), &again, &always);
	if (bytes < again)
		return 0;
	if (bytes >= always && rt_takes_always(kind, bytes))
		return 1;
	u = reuse_of(c->reuse, kind, bytes);
	switch (policy_habit_next(&u->habit)) {
	case HABIT_PASS:
		if (call)
			are_used_again(call);
		return 0;
	case HABIT_TAKE:
		c->reuse_now = u;
		return 1;
	case HABIT_ASK:
		break;
	}
	return ask(c, u, call);
}

void reuse_note(struct rt_comm *c, bool is_mapped) { reuse_count(c->reuse_now, is_mapped); }

/* ---- nonblocking ---------------------------------------------------------------------------------------- */

#define DEFER_MAX 64u /* calls that are taken without an answer: then a program has no blocking ones, and may have changed */
#define QUESTIONS_MAX 64

static void leave_question(struct rt_comm *c, struct reuse *u)
{
	policy_habit_defer(&u->habit);
	if (!u->waits)
		u->deferred = 0;
	if (++u->deferred > DEFER_MAX)
		u->habit.is_taken = false;
	u->waits = true;
	if (!c->requests_wait)
		rt_watch();
	c->requests_wait = true;
}

bool rt_request_takes(struct rt_comm *c, enum rt_kind kind, uint64_t bytes, const struct rt_call *call)
{
	struct reuse *u = reuse_of(c->requests_reuse, kind, bytes);
	enum policy_step step;

	c->request_reuse_now = NULL;
	if (bytes < rt_request_again_bytes[kind])
		return false;
	step = policy_habit_next(&u->habit);
	if (step == HABIT_ASK)
		leave_question(c, u);
	if (u->habit.is_taken) {
		c->request_reuse_now = u;
		u->is_again = reuse_was_right(u);
	} else {
		u->is_again = call && are_used_again(call);
	}
	return u->habit.is_taken;
}

bool rt_requests_disagree(const struct rt_comm *c) { return c->requests_wait; }

void rt_requests_agree(struct rt_comm *c)
{
	struct reuse *all = c->requests_reuse[0], *asked[QUESTIONS_MAX];
	uint64_t mine = 0, common = 0;
	int n = 0;

	for (int i = 0; i < RT_KINDS * REUSE_SIZES && n < QUESTIONS_MAX; i++) {
		if (!all[i].waits)
			continue;
		mine |= (uint64_t)all[i].is_again << n;
		asked[n++] = &all[i];
	}
	if (agree(c, "a question before a collective", mine, &common))
		common = 0; /* a peer has died, and it has been said */
	for (int i = 0; i < n; i++) {
		reuse_answer(asked[i], common >> i & 1);
		asked[i]->waits = false;
	}
	base_count(BASE_CTR_REUSE_ASKED, 1);
	if (n < QUESTIONS_MAX)
		reuse_fini(c);
}

void reuse_fini(struct rt_comm *c)
{
	if (c->requests_wait)
		rt_unwatch();
	c->requests_wait = false;
}
