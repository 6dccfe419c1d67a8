/* SPDX-License-Identifier: BSD-3-Clause */
/* See blocks.h. The layout of glibc's header is known to debuggers, and unchanged since 2001. */
#include "region/blocks.h"

#include <string.h>

#include "region/private.h"

bool blocks_are_known;

/* Right before the user's bytes. */
struct header {
	size_t before; /* in a mapping: bytes from its start to this header (memalign) */
	size_t size;   /* of the chunk, this header included; low bits: flags */
};
enum { FLAG_USED_BELOW = 1, FLAG_MAPPED = 2, FLAG_OTHER_ARENA = 4, FLAGS = 7 };

struct sign { uint64_t bytes, word; };
_Static_assert(sizeof(struct sign) == BLOCK_SIGN_BYTES, "the bytes that hooks add");

static uint64_t sign_word(uintptr_t user, uint64_t bytes)
{
	return (user ^ bytes * 0x9e3779b97f4a7c15ull) * 0xd1342543de82ef95ull ^
	       0x736c756963650a00ull;
}

static bool is_mapping(uintptr_t user, const struct header *h, uintptr_t *out_start,
		       uintptr_t *out_end)
{
	uintptr_t chunk = user - sizeof *h, end;

	if ((h->size & FLAGS) != FLAG_MAPPED || h->before > chunk ||
	    __builtin_add_overflow(chunk, h->size & ~(size_t)FLAGS, &end) ||
	    end < user + sizeof(struct sign))
		return false;
	*out_start = chunk - h->before;
	*out_end = end;
	return *out_start % OS_PAGE == 0 && end % OS_PAGE == 0;
}

bool block_is_mapping(const void *p, uintptr_t *out_start, uintptr_t *out_end)
{
	const struct header *h = (const struct header *)p - 1;

	return blocks_are_known && is_mapping((uintptr_t)p, h, out_start, out_end);
}

static struct sign *sign_of(uintptr_t end) { return (struct sign *)(end - sizeof(struct sign)); }

void block_sign(void *p, size_t bytes)
{
	uintptr_t start, end;

	if (block_is_mapping(p, &start, &end) && bytes <= end - sizeof(struct sign) - (uintptr_t)p)
		*sign_of(end) = (struct sign){ bytes, sign_word((uintptr_t)p, bytes) };
}

/*
 * Copies memory of the program, or adopted memory: reading it has no effect. The pages of [buf,
 * end) belong to the call that describes them; another thread may unmap or guard any other page.
 */
static bool read_at(uintptr_t a, void *out, size_t bytes, uintptr_t buf, uintptr_t end)
{
	struct os_vma v;

	if (os_vma_query((void *)a, &v) || !v.read || !v.write || v.is_special ||
	    a + bytes > v.end || (v.shared && !arena_is_known(&v)))
		return false;
	if (a < base_round_down(buf, OS_PAGE) || a + bytes > base_round_up(end, OS_PAGE))
		return !os_read_memory((void *)a, out, bytes);
	memcpy(out, (void *)a, bytes);
	return true;
}

bool block_begins_at(uintptr_t buf, uint64_t bytes, uint64_t *out_bytes)
{
	uintptr_t start, end, header = buf - sizeof(struct header);
	struct header h;
	struct sign s;

	if (!blocks_are_known || buf % sizeof h ||
	    !read_at(header, &h, sizeof h, buf, buf + bytes) ||
	    !is_mapping(buf, &h, &start, &end) || bytes > end - buf ||
	    !read_at((uintptr_t)sign_of(end), &s, sizeof s, buf, buf + bytes) ||
	    s.word != sign_word(buf, s.bytes) || s.bytes < bytes)
		return false;
	*out_bytes = s.bytes;
	return true;
}
