/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "board/board.h"

/* to = to op message; combine() has its result where its right operand was. */
static int fold_in(const struct board_fold *f, char *to, const char *message, uint32_t bytes)
{
	_Alignas(16) char right[BOARD_BYTES];
	int ret;

	memcpy(right, message, bytes);
	ret = f->combine(f->ctx, to, right, bytes);
	if (!ret)
		memcpy(to, right, bytes);
	return ret;
}

static int take_one(struct board_read *r, const char *message, uint32_t message_bytes)
{
	uint64_t bytes = r->parts ? r->parts[r->next].bytes : r->bytes;
	uint64_t off = r->parts ? r->parts[r->next].off :
		       r->fold	? 0 :
				  (uint64_t)(r->next - r->first) * r->stride;

	if (r->at > message_bytes || bytes > message_bytes - r->at)
		return -EREMOTEIO;
	if (!bytes)
		return 0;
	if (r->fold && r->next > r->first)
		return fold_in(r->fold, r->to, message + r->at, (uint32_t)bytes);
	memcpy(r->to + off, message + r->at, bytes);
	return 0;
}

int board_take(const struct board *b, uint64_t n, struct board_read *r)
{
	for (; r->next < r->end; r->next++) {
		const char *message;
		uint32_t bytes;
		int ret;

		if (r->next == r->skip)
			continue;
		message = board_look(b, r->next, n, &bytes);
		if (!message)
			return 0;
		ret = take_one(r, message, bytes);
		if (ret)
			return ret;
	}
	return 1;
}
