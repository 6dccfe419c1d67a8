/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "mailbox/mailbox.h"

/* to = to op message. combine() stores its result in its right operand. */
static int reduce_in(const struct mailbox_reduce *f, char *to, const char *message, uint32_t bytes)
{
	_Alignas(16) char right[MAILBOX_BYTES];
	int ret;

	memcpy(right, message, bytes);
	ret = f->combine(f->ctx, to, right, bytes);
	if (!ret)
		memcpy(to, right, bytes);
	return ret;
}

static int read_one(struct mailbox_read *r, const char *message, uint32_t message_bytes)
{
	uint64_t bytes = r->parts ? r->parts[r->next].bytes : r->bytes;
	uint64_t off = r->parts ? r->parts[r->next].off :
		       r->reduce	? 0 :
				  (uint64_t)(r->next - r->first) * r->stride;

	if (r->at > message_bytes || bytes > message_bytes - r->at)
		return -EREMOTEIO;
	if (!bytes)
		return 0;
	if (r->reduce && r->next > r->first)
		return reduce_in(r->reduce, r->to, message + r->at, (uint32_t)bytes);
	memcpy(r->to + off, message + r->at, bytes);
	return 0;
}

int mailbox_receive(const struct mailbox *b, uint64_t n, struct mailbox_read *r)
{
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
