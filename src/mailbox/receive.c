/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "mailbox/mailbox.h"

/* Adds a message to the partial results, and combines those that have become neighbours. */
static int reduce_in(struct mailbox_read *r, const char *message, uint32_t bytes)
{
	const struct mailbox_reduce *f = r->reduce;
	uint32_t combines = f->is_prefix ? r->partial :
					   coll_combines_after((uint32_t)(r->end - r->first),
							       (uint32_t)(r->next - r->first));
	char *right = r->to + r->partial * r->stride;
	int ret = 0;

	memcpy(right, message, bytes);
	for (; combines && !ret; combines--, right -= r->stride, r->partial--) {
		ret = f->combine(f->ctx, right - r->stride, right, bytes);
		memcpy(right - r->stride, right, bytes);
	}
	r->partial++;
	return ret;
}

static int read_one(struct mailbox_read *r, const char *message, uint32_t message_bytes)
{
	uint64_t bytes = r->parts ? r->parts[r->next].bytes : r->bytes;
	uint64_t off = r->parts ? r->parts[r->next].off :
				  (uint64_t)(r->next - r->first) * r->stride;

	if (r->at > message_bytes || bytes > message_bytes - r->at)
		return -EREMOTEIO;
	if (!bytes)
		return 0;
	if (r->reduce)
		return reduce_in(r, message + r->at, (uint32_t)bytes);
	memcpy(r->to + off, message + r->at, bytes);
	return 0;
}

/* The first rank that finds all messages combines them, in the order in which each would. */
static int receive_shared(const struct mailbox *b, uint64_t n, struct mailbox_read *r)
{
	const void *result;
	uint32_t bytes;
	void *place;
	int ret;

	for (; r->next < r->end; r->next++) {
		if (!mailbox_peek(b, r->next, n, &bytes))
			return 0;
		if (bytes < r->bytes)
			return -EREMOTEIO;
	}
	result = mailbox_result(b, n, (uint32_t)r->bytes, &place);
	if (result) {
		memcpy(r->to, result, r->bytes);
		return 1;
	}
	r->next = r->first;
	r->is_shared = false;
	ret = mailbox_receive(b, n, r);
	if (ret > 0 && place) {
		memcpy(place, r->to, r->bytes);
		mailbox_publish(b, n);
	}
	return ret;
}

int mailbox_receive(const struct mailbox *b, uint64_t n, struct mailbox_read *r)
{
	if (r->is_shared)
		return receive_shared(b, n, r);
	for (; r->next < r->end; r->next++) {
		const char *message;
		uint32_t bytes;
		int ret;

		if (r->next == r->skip)
			continue;
		message = mailbox_peek(b, r->next, n, &bytes);
		if (!message)
			return 0;
		ret = read_one(r, message, bytes);
		if (ret)
			return ret;
	}
	return 1;
}
