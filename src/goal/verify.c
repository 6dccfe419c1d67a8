/* SPDX-License-Identifier: BSD-3-Clause */
/* Verifies a block. Nothing that a block says is used before it was checked. */
#include <errno.h>
#include <string.h>

#include "goal/goal.h"

static const uint8_t dtype_bytes[GOAL_DTYPE_COUNT] = {
#define X(id, word, bytes) bytes,
	GOAL_DTYPES(X)
#undef X
};

uint32_t goal_dtype_bytes(uint32_t dtype)
{
	return dtype < GOAL_DTYPE_COUNT ? dtype_bytes[dtype] : 0;
}

bool goal_dtype_is_float(uint32_t dtype) { return dtype >= GOAL_F16 && dtype <= GOAL_F64; }

/* The state of a verification. */
struct verify {
	const struct goal_block *block;
	const struct goal_limits *limits;
	uint32_t *released;        /* by operation: how often earlier operations release it */
	uint32_t nexts, inexts;    /* entries of the lists so far */
	uint32_t segments, recvs;  /* pieces so far */
};

static int verify_header(const struct goal_block *b, size_t bytes, const struct goal_limits *limits)
{
	if ((uintptr_t)b % _Alignof(struct goal_block) || bytes < sizeof *b ||
	    b->magic != GOAL_MAGIC || b->version != GOAL_VERSION || b->bytes > bytes ||
	    b->reserved[0] || b->reserved[1])
		return -EINVAL;
	/* operations can be counted in words of `work` */
	if (b->op_count > bytes / sizeof(struct goal_op) ||
	    goal_block_bytes(b->op_count, b->adjacency_count, b->segment_count) != b->bytes)
		return -EINVAL;
	if (b->ready_count > b->op_count || b->recv_count > b->op_count ||
	    b->user_count > GOAL_USERS_MAX || b->user_count >= limits->mems ||
	    b->scratch_bytes > limits->mem_bytes[GOAL_SCRATCH])
		return -EINVAL;
	return b->adjacency_count % 2 && goal_adjacency(b)[b->adjacency_count] ? -EINVAL : 0;
}

static int verify_range(const struct verify *v, uint32_t mem, uint64_t off, uint64_t bytes)
{
	uint64_t room;

	if (mem > v->block->user_count)
		return -EINVAL;
	room = mem == GOAL_SCRATCH ? v->block->scratch_bytes : v->limits->mem_bytes[mem];
	return off > room || bytes > room - off ? -EINVAL : 0;
}

/* The two ranges are equal or disjoint. The caller has checked that neither sum overflows. */
static bool is_same_or_apart(uint32_t mem_a, uint64_t a, uint32_t mem_b, uint64_t b, uint64_t bytes)
{
	return mem_a != mem_b || a == b || (a < b ? b - a : a - b) >= bytes;
}

static int verify_list(struct verify *v, const struct goal_op *op)
{
	const struct goal_segment *s = goal_segments(v->block) + v->segments;
	uint64_t sum = 0;

	if (op->mem || op->off || op->segment != v->segments ||
	    op->segment_count > v->block->segment_count - v->segments)
		return -EINVAL;
	for (uint32_t k = 0; k < op->segment_count; k++) {
		if (s[k].reserved || verify_range(v, s[k].mem, s[k].off, s[k].bytes) ||
		    s[k].bytes > UINT64_MAX - sum)
			return -EINVAL;
		sum += s[k].bytes;
	}
	v->segments += op->segment_count;
	return sum == op->bytes ? 0 : -EINVAL;
}

static int verify_transfer(struct verify *v, const struct goal_op *op)
{
	bool may_be_any = op->type == GOAL_RECV;

	if (op->dtype || (op->peer >= v->limits->ranks && !(may_be_any && op->peer == GOAL_ANY)))
		return -EINVAL;
	if (op->tag == GOAL_ANY && !may_be_any)
		return -EINVAL;
	if (op->type == GOAL_RECV) {
		if (op->match >= v->block->recv_count)
			return -EINVAL;
		v->recvs++;
	}
	if (op->segment_count)
		return verify_list(v, op);
	if (op->segment)
		return -EINVAL;
	if (op->mem == GOAL_NOWHERE)
		return v->limits->nowhere && !op->off ? 0 : -EINVAL;
	return verify_range(v, op->mem, op->off, op->bytes);
}

static int verify_copy(const struct verify *v, const struct goal_op *op)
{
	if (op->dtype || op->src2_mem || op->src2_off ||
	    verify_range(v, op->mem, op->off, op->bytes) ||
	    verify_range(v, op->src_mem, op->src_off, op->bytes))
		return -EINVAL;
	return is_same_or_apart(op->mem, op->off, op->src_mem, op->src_off, op->bytes) ? 0
										       : -EINVAL;
}

static int verify_arithmetic(const struct verify *v, const struct goal_op *op)
{
	uint32_t element = goal_dtype_bytes(op->dtype);

	if (!element || op->bytes % element ||
	    (op->type >= GOAL_AND && goal_dtype_is_float(op->dtype)))
		return -EINVAL;
	if (verify_range(v, op->mem, op->off, op->bytes) ||
	    verify_range(v, op->src_mem, op->src_off, op->bytes) ||
	    verify_range(v, op->src2_mem, op->src2_off, op->bytes))
		return -EINVAL;
	return is_same_or_apart(op->mem, op->off, op->src_mem, op->src_off, op->bytes) &&
			       is_same_or_apart(op->mem, op->off, op->src2_mem, op->src2_off,
						op->bytes)
		       ? 0
		       : -EINVAL;
}

static bool are_handlers(const struct goal_op *op)
{
	for (uint32_t i = 0; i < sizeof op->handlers; i++)
		if (op->handlers[i] > GOAL_HANDLERS_MAX)
			return false;
	return true;
}

static int verify_one_sided(const struct verify *v, const struct goal_op *op)
{
	bool append = goal_is_append(op), test = op->type == GOAL_TEST;

	if (op->mem != GOAL_NOWHERE || !v->limits->nowhere || op->dtype)
		return -EINVAL;
	if (goal_is_triggered(op) ? !op->when : op->when || op->off)
		return -EINVAL;
	if (append ? op->options & ~(GOAL_ONCE | GOAL_OVERFLOW) || !op->counter : op->segment_count)
		return -EINVAL;
	if (op->counter > GOAL_COUNTERS_MAX || op->when > GOAL_COUNTERS_MAX ||
	    (append && !are_handlers(op)))
		return -EINVAL;
	if (test)
		return op->bytes || op->peer || op->tag || op->counter ? -EINVAL : 0;
	if (op->peer >= v->limits->ranks && !(append && op->peer == GOAL_ANY))
		return -EINVAL;
	return op->tag == GOAL_ANY && !append ? -EINVAL : 0;
}

static int verify_operands(struct verify *v, const struct goal_op *op)
{
	if (goal_is_transfer(op))
		return verify_transfer(v, op);
	if (op->type == GOAL_COPY)
		return verify_copy(v, op);
	if (goal_is_arithmetic(op))
		return verify_arithmetic(v, op);
	if (goal_is_one_sided(op))
		return verify_one_sided(v, op);
	if (op->dtype || op->src_mem || op->src2_mem || op->src_off || op->src2_off)
		return -EINVAL;
	if (op->type == GOAL_STAMP)
		return op->bytes == sizeof(uint64_t) ? verify_range(v, op->mem, op->off, op->bytes)
						     : -EINVAL;
	if (op->type > GOAL_STAMP || op->mem || op->off)
		return -EINVAL;
	return op->type == GOAL_NOP && op->bytes ? -EINVAL : 0;
}

/* Checks the list of operations that operation i releases; `at`: end of the list before. */
static int verify_releases(struct verify *v, uint32_t i, uint32_t next, uint32_t count,
			   uint32_t *at)
{
	const uint32_t *list = goal_adjacency(v->block) + next;

	/* lists follow one another: no entry is shared or left over */
	if (next != *at || count > v->block->adjacency_count - next)
		return -EINVAL;
	for (uint32_t k = 0; k < count; k++) {
		if (list[k] <= i ||
		    list[k] >= v->block->op_count) /* forward only, so there is no cycle */
			return -EINVAL;
		v->released[list[k]]++;
	}
	*at += count;
	return 0;
}

static int verify_op(struct verify *v, uint32_t i)
{
	const struct goal_op *op = &goal_ops_const(v->block)[i];
	int ret;

	/* Released exactly as often as it requires; all operations that release it come before it
	 * and are counted. Otherwise it would start never or twice. */
	if (op->requires != v->released[i] || (op->requires == 0) != (i < v->block->ready_count))
		return -EINVAL;
	ret = verify_operands(v, op);
	if (!ret)
		ret = verify_releases(v, i, op->next, op->next_count, &v->nexts);
	return ret ? ret : verify_releases(v, i, op->inext, op->inext_count, &v->inexts);
}

/* Receives have the numbers 0 ... recv_count - 1, each once. */
static int verify_numbers(const struct verify *v)
{
	const struct goal_op *ops = goal_ops_const(v->block);
	uint32_t *used = v->released;

	if (v->recvs != v->block->recv_count)
		return -EINVAL;
	memset(used, 0, (size_t)v->recvs * sizeof *used);
	for (uint32_t i = 0; i < v->block->op_count; i++)
		if (ops[i].type == GOAL_RECV && used[ops[i].match]++)
			return -EINVAL;
	return 0;
}

int goal_verify(const struct goal_block *b, size_t bytes, const struct goal_limits *limits,
		uint32_t *work)
{
	struct verify v = { .block = b, .limits = limits, .released = work };
	int ret = verify_header(b, bytes, limits);

	if (ret)
		return ret;
	/* lists of beginnings come behind all lists of ends */
	for (uint32_t i = 0; i < b->op_count; i++) {
		if (goal_ops_const(b)[i].next_count > b->adjacency_count - v.inexts)
			return -EINVAL;
		v.inexts += goal_ops_const(b)[i].next_count;
	}
	memset(work, 0, (size_t)b->op_count * sizeof *work);
	for (uint32_t i = 0; i < b->op_count && !ret; i++)
		ret = verify_op(&v, i);
	if (!ret && (v.inexts != b->adjacency_count || v.segments != b->segment_count))
		ret = -EINVAL;
	return ret ? ret : verify_numbers(&v);
}

/* ---- what a verified block names --------------------------------------------------------- */

static void extend(uint64_t *extents, uint32_t mem, uint64_t end)
{
	if (mem != GOAL_NOWHERE && end > extents[mem])
		extents[mem] = end;
}

void goal_named(const struct goal_block *b, uint64_t *out_bytes)
{
	const struct goal_segment *s = goal_segments(b);

	memset(out_bytes, 0, GOAL_SPACES_MAX * sizeof *out_bytes);
	for (uint32_t i = 0; i < b->op_count; i++) {
		const struct goal_op *op = &goal_ops_const(b)[i];

		if (op->type == GOAL_CALC || (goal_is_transfer(op) && op->segment_count))
			continue;
		extend(out_bytes, op->mem, op->off + op->bytes);
		if (op->type == GOAL_COPY || goal_is_arithmetic(op))
			extend(out_bytes, op->src_mem, op->src_off + op->bytes);
		if (goal_is_arithmetic(op))
			extend(out_bytes, op->src2_mem, op->src2_off + op->bytes);
	}
	for (uint32_t k = 0; k < b->segment_count; k++)
		extend(out_bytes, s[k].mem, s[k].off + s[k].bytes);
}

void goal_extents(const struct goal_block *b, uint64_t *out_bytes)
{
	goal_named(b, out_bytes);
	out_bytes[GOAL_SCRATCH] = b->scratch_bytes; /* at least as much as is named */
}
