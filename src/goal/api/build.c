/* SPDX-License-Identifier: BSD-3-Clause */
/* Building schedules, in tables that grow. */
#include <errno.h>
#include <stdlib.h>

#include "goal/api/api.h"
#include "goal/grow/grow.h"

struct sluice_goal {
	struct goal_build build;
	int error; /* first error */
};

/* The public numbers equal the block's: nothing is translated. */
#define SAME(name) _Static_assert((int)SLUICE_GOAL_##name == (int)GOAL_##name, #name)
#define SAME_OPERATION(name)                                                                       \
	_Static_assert((int)SLUICE_GOAL_##name == GOAL_##name - GOAL_ADD, #name)
#define X(id, word, bytes) SAME(id);
GOAL_DTYPES(X)
#undef X
SAME(USER);
SAME_OPERATION(ADD);
SAME_OPERATION(SUB);
SAME_OPERATION(MUL);
SAME_OPERATION(DIV);
SAME_OPERATION(MAX);
SAME_OPERATION(MIN);
SAME_OPERATION(AND);
SAME_OPERATION(OR);
SAME_OPERATION(XOR);
_Static_assert((int)SLUICE_GOAL_SCRATCHPAD == (int)GOAL_SCRATCH &&
		       SLUICE_GOAL_USERS_MAX == GOAL_USERS_MAX && SLUICE_GOAL_ANY == GOAL_ANY,
	       "public numbers");

API_EXPORT int sluice_goal_create(uint64_t scratchpad_bytes, struct sluice_goal **out)
{
	struct sluice_goal *g = calloc(1, sizeof *g);

	if (!g)
		return -ENOMEM;
	g->build.scratch_bytes = scratchpad_bytes;
	*out = g;
	return 0;
}

API_EXPORT void sluice_goal_destroy(struct sluice_goal *g)
{
	if (!g)
		return;
	free(g->build.ops);
	free(g->build.edges);
	free(g->build.segments);
	free(g);
}

static int fail(struct sluice_goal *g, int error)
{
	if (!g->error)
		g->error = error;
	return error;
}

/* Makes room for `more` elements in an array of *cap elements that holds count. Returns: 0,
 * -ENOSPC, -ENOMEM. */
static int grow(void *array, size_t element, uint32_t count, uint32_t more, uint32_t *cap)
{
	uint64_t needed = (uint64_t)count + more;

	return needed > INT32_MAX ? -ENOSPC : goal_grow(array, cap, needed, element);
}

/*
 * Verifies a schedule of this operation alone, in the largest possible group. For an operation with
 * a list: once with each piece.
 */
static int check(const struct sluice_goal *g, const struct goal_op *op)
{
	struct {
		struct goal_block block;
		struct goal_op op;
	} out;
	uint64_t mem_bytes[GOAL_SPACES_MAX];
	struct goal_limits limits = { GOAL_RANKS_MAX, GOAL_SPACES_MAX, mem_bytes, false };
	struct goal_build b;
	struct goal_op room;
	uint32_t work[2];
	int ret;

	for (uint32_t i = 0; i < GOAL_SPACES_MAX; i++)
		mem_bytes[i] = UINT64_MAX;
	goal_build_init(&b, &room, 1, NULL, 0);
	b.scratch_bytes = g->build.scratch_bytes;
	goal_add(&b, op);
	ret = goal_compile(&b, &out.block, sizeof out);
	return ret ? ret : goal_verify(&out.block, sizeof out, &limits, work);
}

static int add(struct sluice_goal *g, const struct goal_op *op)
{
	struct goal_build *b = &g->build;
	int ret = check(g, op);

	if (!ret)
		ret = grow(&b->ops, sizeof *b->ops, b->op_count, 1, &b->op_cap);
	return ret ? fail(g, ret) : (int)goal_add(b, op);
}

/* A space has 16 bits in an operation, 32 in the public structure. */
static uint16_t space_of(struct sluice_goal_place p)
{
	return p.space < GOAL_SPACES_MAX ? (uint16_t)p.space : GOAL_NOWHERE;
}

static int transfer(struct sluice_goal *g, uint8_t type, struct sluice_goal_place place,
		    uint64_t bytes, uint32_t peer, uint32_t tag)
{
	return add(g, &(struct goal_op){ .type = type,
					 .mem = space_of(place),
					 .off = place.offset,
					 .bytes = bytes,
					 .peer = peer,
					 .tag = tag });
}

API_EXPORT int sluice_goal_send(struct sluice_goal *g, struct sluice_goal_place from,
				uint64_t bytes, uint32_t peer, uint32_t tag)
{
	return transfer(g, GOAL_SEND, from, bytes, peer, tag);
}

API_EXPORT int sluice_goal_recv(struct sluice_goal *g, struct sluice_goal_place to, uint64_t bytes,
				uint32_t peer, uint32_t tag)
{
	return transfer(g, GOAL_RECV, to, bytes, peer, tag);
}

static int check_pieces(struct sluice_goal *g, const struct sluice_goal_piece *pieces,
			uint32_t count)
{
	uint64_t sum = 0;

	for (uint32_t k = 0; k < count; k++) {
		struct goal_op one = { .type = GOAL_SEND, .mem = space_of(pieces[k].place),
				       .off = pieces[k].place.offset, .bytes = pieces[k].bytes };

		if (check(g, &one) || pieces[k].bytes > UINT64_MAX - sum)
			return -EINVAL;
		sum += pieces[k].bytes;
	}
	return 0;
}

static int transfer_list(struct sluice_goal *g, uint8_t type,
			 const struct sluice_goal_piece *pieces, uint32_t count, uint32_t peer,
			 uint32_t tag)
{
	struct goal_build *b = &g->build;
	int ret = check_pieces(g, pieces, count), label;

	if (!ret)
		ret = grow(&b->segments, sizeof *b->segments, b->segment_count, count,
			   &b->segment_cap);
	if (ret)
		return fail(g, ret);
	label = transfer(g, type, (struct sluice_goal_place){ 0, GOAL_SCRATCH }, 0, peer, tag);
	for (uint32_t k = 0; label >= 0 && k < count; k++)
		goal_segment(b, (uint32_t)label, space_of(pieces[k].place), pieces[k].place.offset,
			     pieces[k].bytes);
	return label;
}

API_EXPORT int sluice_goal_sendv(struct sluice_goal *g, const struct sluice_goal_piece *pieces,
				 uint32_t count, uint32_t peer, uint32_t tag)
{
	return transfer_list(g, GOAL_SEND, pieces, count, peer, tag);
}

API_EXPORT int sluice_goal_recvv(struct sluice_goal *g, const struct sluice_goal_piece *pieces,
				 uint32_t count, uint32_t peer, uint32_t tag)
{
	return transfer_list(g, GOAL_RECV, pieces, count, peer, tag);
}

API_EXPORT int sluice_goal_copy(struct sluice_goal *g, struct sluice_goal_place dst,
				struct sluice_goal_place from, uint64_t bytes)
{
	return add(g, &(struct goal_op){ .type = GOAL_COPY,
					 .mem = space_of(dst),
					 .off = dst.offset,
					 .src_mem = space_of(from),
					 .src_off = from.offset,
					 .bytes = bytes });
}

API_EXPORT int sluice_goal_local(struct sluice_goal *g, enum sluice_goal_operation operation,
				 enum sluice_goal_type type, struct sluice_goal_place dst,
				 struct sluice_goal_place a, struct sluice_goal_place b,
				 uint64_t count)
{
	uint32_t element = goal_dtype_bytes((uint32_t)type);

	if ((uint32_t)operation > SLUICE_GOAL_XOR || !element || count > UINT64_MAX / element)
		return fail(g, -EINVAL);
	return add(g, &(struct goal_op){ .type = (uint8_t)(GOAL_ADD + operation),
					 .dtype = (uint8_t)type,
					 .mem = space_of(dst),
					 .off = dst.offset,
					 .src_mem = space_of(a),
					 .src_off = a.offset,
					 .src2_mem = space_of(b),
					 .src2_off = b.offset,
					 .bytes = count * element });
}

API_EXPORT int sluice_goal_calc(struct sluice_goal *g, uint64_t ns)
{
	return add(g, &(struct goal_op){ .type = GOAL_CALC, .bytes = ns });
}

API_EXPORT int sluice_goal_stamp(struct sluice_goal *g, struct sluice_goal_place dst)
{
	return add(g, &(struct goal_op){ .type = GOAL_STAMP,
					 .mem = space_of(dst),
					 .off = dst.offset,
					 .bytes = sizeof(uint64_t) });
}

API_EXPORT int sluice_goal_nop(struct sluice_goal *g)
{
	return add(g, &(struct goal_op){ .type = GOAL_NOP });
}

static int require(struct sluice_goal *g, int op, int before, bool immediate)
{
	struct goal_build *b = &g->build;
	int ret = op < 0 || before < 0 || (uint32_t)op >= b->op_count ||
				  (uint32_t)before >= b->op_count
			  ? -EINVAL
			  : 0;

	if (!ret)
		ret = grow(&b->edges, sizeof *b->edges, b->edge_count, 1, &b->edge_cap);
	if (ret)
		return fail(g, ret);
	(immediate ? goal_irequires : goal_requires)(b, (uint32_t)op, (uint32_t)before);
	return 0;
}

API_EXPORT int sluice_goal_requires(struct sluice_goal *g, int op, int before)
{
	return require(g, op, before, false);
}

API_EXPORT int sluice_goal_irequires(struct sluice_goal *g, int op, int before)
{
	return require(g, op, before, true);
}

API_EXPORT int sluice_goal_compile(struct sluice_goal *g, uint32_t ranks,
				   struct sluice_goal_schedule **out)
{
	const struct goal_build *b = &g->build;
	uint64_t bytes = goal_block_bytes(b->op_count, b->edge_count, b->segment_count);
	struct goal_block *block;
	int ret;

	if (g->error)
		return g->error;
	block = malloc(bytes);
	if (!block)
		return -ENOMEM;
	ret = goal_compile(&g->build, block, bytes);
	if (!ret)
		ret = api_schedule(block, bytes, ranks, out);
	if (ret)
		free(block);
	return ret;
}
