/* SPDX-License-Identifier: BSD-3-Clause */
/* See blocks.h. The layout of glibc's header is known to debuggers, and unchanged from 2001
 * to 2.42; 2.43 moved the end of a mapping. */
#include "region/blocks.h"

#include <string.h>

#include "region/private.h"

bool blocks_are_known;

/* Right before the user's bytes. */
struct header {
	size_t before; /* in a mapping: bytes from its start to this header (memalign) */
	size_t size;   /* of the chunk, this header included; low bits: flags */
};
/* In glibc 2.43 and newer a header's length follows the chunk in its mapping, and the program has
 * the first half of that, as between chunks of a heap. */
enum { BEHIND = sizeof(struct header), BEHIND_OF_PROGRAM = BEHIND / 2 };
enum { FLAG_USED_BELOW = 1, FLAG_MAPPED = 2, FLAG_OTHER_ARENA = 4, FLAGS = 7 };

struct sign { uint64_t bytes, word; };
_Static_assert(sizeof(struct sign) == BLOCK_SIGN_BYTES, "the bytes that hooks add");

static uint64_t sign_word(uintptr_t user, uint64_t bytes)
{
	return (user ^ bytes * 0x9e3779b97f4a7c15ull) * 0xd1342543de82ef95ull ^
	       0x736c756963650a00ull;
}

struct block {
	uintptr_t start, end, sign;
};

static bool is_mapping(uintptr_t user, const struct header *h, struct block *out)
{
	uintptr_t chunk = user - sizeof *h, last;

	if ((h->size & FLAGS) != FLAG_MAPPED || h->before > chunk ||
	    __builtin_add_overflow(chunk, h->size & ~(size_t)FLAGS, &last) ||
	    last < user + sizeof(struct sign) || last > UINTPTR_MAX - BEHIND)
		return false;
	out->start = chunk - h->before;
	out->end = last;
	out->sign = last - sizeof(struct sign);
	if (last % OS_PAGE) {
		out->end += BEHIND;
		out->sign += BEHIND_OF_PROGRAM;
	}
	return out->start % OS_PAGE == 0 && out->end % OS_PAGE == 0;
}

static bool find_mapping(const void *p, struct block *out)
{
	return blocks_are_known && is_mapping((uintptr_t)p, (const struct header *)p - 1, out);
}

bool block_is_mapping(const void *p, uintptr_t *out_start, uintptr_t *out_end)
{
	struct block m;

	if (!find_mapping(p, &m))
		return false;
	*out_start = m.start;
	*out_end = m.end;
	return true;
}

void block_sign(void *p, size_t bytes)
{
	struct block m;

	if (find_mapping(p, &m) && bytes <= m.sign - (uintptr_t)p)
		*(struct sign *)m.sign = (struct sign){ bytes, sign_word((uintptr_t)p, bytes) };
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
	uintptr_t header = buf - sizeof(struct header);
	struct block m;
	struct header h;
	struct sign s;

	if (!blocks_are_known || buf % sizeof h ||
	    !read_at(header, &h, sizeof h, buf, buf + bytes) ||
	    !is_mapping(buf, &h, &m) || bytes > m.end - buf ||
	    !read_at(m.sign, &s, sizeof s, buf, buf + bytes) ||
	    s.word != sign_word(buf, s.bytes) || s.bytes < bytes)
		return false;
	*out_bytes = s.bytes;
	return true;
}
