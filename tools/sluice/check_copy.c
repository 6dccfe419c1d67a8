/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies by a channel of an engine, waited for. */
#include <errno.h>

#include "check.h"

enum { LIMIT_NS = 2000000000, NAP_NS = 20000 };

static void done(struct engine_copy *c, int result)
{
	struct check_copy *copy = c->arg;

	copy->result = result;
	/* release: the result; partner: has_ended */
	atomic_fetch_add_explicit(&copy->ends, 1, memory_order_release);
}

static bool has_ended(struct check_copy *c)
{
	return atomic_load_explicit(&c->ends, memory_order_acquire); /* partner: done */
}

int check_post(struct engine_chan *ch, struct check_copy *c, char *dst, const char *src,
	       size_t bytes, size_t total)
{
	c->c = (struct engine_copy){ dst, src, bytes, done, c, NULL, total };
	atomic_store_explicit(&c->ends, 0, memory_order_relaxed);
	return engine_post(ch, &c->c);
}

int check_wait(struct engine_chan *ch, struct check_copy *copies, size_t n)
{
	uint64_t until = os_now_ns() + LIMIT_NS;
	_Atomic uint32_t nobody = 0;

	for (size_t i = 0; i < n; i++) {
		for (uint32_t polls = 0; !has_ended(&copies[i]); polls++) {
			if (engine_poll(ch))
				polls = 0;
			else if (polls > 1000)
				os_futex_wait(&nobody, 0, NAP_NS);
			if (os_now_ns() < until)
				continue;
			ch->ops->retire(ch);
			return -ETIME;
		}
	}
	return 0;
}

int check_result(const struct check_copy *copies, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (copies[i].result)
			return copies[i].result;
	return 0;
}

int check_copy(struct engine_chan *ch, struct check_copy *copies, char *dst, const char *src,
	       size_t bytes, size_t fragment, size_t total)
{
	struct engine_caps caps;
	size_t at = 0;

	ch->ops->caps(ch, &caps);
	fragment = base_min_u64(fragment, caps.max_copy_bytes);
	while (at < bytes) {
		size_t n = 0;
		int rc = 0;

		for (; at < bytes && n < caps.depth && !rc; n++) {
			size_t part = base_min_u64(fragment, bytes - at);

			rc = check_post(ch, &copies[n], dst + at, src + at, part, total);
			at += rc ? 0 : part;
			n -= rc != 0;
		}
		if (rc && (rc != -EAGAIN || !n))
			return rc;
		engine_flush(ch);
		rc = check_wait(ch, copies, n);
		rc = rc ? rc : check_result(copies, n);
		if (rc)
			return rc;
	}
	return 0;
}
