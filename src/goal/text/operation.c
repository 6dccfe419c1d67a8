/* SPDX-License-Identifier: BSD-3-Clause */
/* Statements that are operations: "send 10b to 1 tag 0 from user0+4096". */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "private.h"

/* Parts of an operation that are given; each may be given once. */
enum {
	PART_PEER = 1,
	PART_TAG = 2,
	PART_CPU = 4,
	PART_NIC = 8,
	PART_MATCH = 16,
	PART_FROM = 32,
	PART_INTO = 64,
	/* one-sided operations */
	PART_COUNTER = 128,
	PART_WHEN = 256,
	PART_HEADER = 512,
	PART_PAYLOAD = 1024,
	PART_COMPLETION = 2048,
	PART_ALLOWED = 4096,
	PART_ONCE = 8192
};

static const struct {
	const char *word;
	unsigned bit;
} parts[] = {
	{ "to", PART_PEER },         { "from", PART_FROM },     { "into", PART_INTO },
	{ "tag", PART_TAG },         { "cpu", PART_CPU },       { "nic", PART_NIC },
	{ "match", PART_MATCH },     { "ct", PART_COUNTER },    { "when", PART_WHEN },
	{ "hh", PART_HEADER },       { "ph", PART_PAYLOAD },    { "ch", PART_COMPLETION },
	{ "allowed", PART_ALLOWED }, { "use_once", PART_ONCE },
};

/* LogGOPSim2's keyword for a function that another program simulates. */
static const char gem5[] = "calcgem5";

struct reading {
	struct text_parser *p;
	struct goal_op op;
	unsigned may, given;
	const struct text_token *word;
	uint64_t match;
	bool is_list;
	uint32_t number; /* label of the operation when its list made it be added early */
	uint32_t label;
};

/* ---- small parts ------------------------------------------------------------------------ */

bool text_expect_number(struct text_parser *p, const char *what, uint64_t max, uint64_t *out)
{
	const struct text_token *t = &p->lexer.token;

	if (t->kind != TEXT_NUMBER)
		return text_expected(p, what);
	if (t->overflow || t->number > max)
		return text_wrong(p, t, "'%.*s' is too large: at most %llu",
				  (int)base_min_u64(t->bytes, 40), t->start,
				  (unsigned long long)max);
	*out = t->number;
	text_next(&p->lexer);
	return true;
}

bool text_expect_bytes(struct text_parser *p, uint64_t *out)
{
	if (!text_expect_number(p, "a number of bytes such as '10b'", UINT64_MAX, out))
		return false;
	if (!text_is_word(&p->lexer.token, "b"))
		return text_expected(p, "'b' after the number of bytes");
	text_next(&p->lexer);
	return true;
}

static bool expect_mark(struct text_parser *p, char mark, const char *what)
{
	if (!text_is_mark(&p->lexer, mark))
		return text_expected(p, what);
	text_next(&p->lexer);
	return true;
}

/* txt2bin keeps 32 bits of a number; schedgen writes MPI's -1 as one of 64 bits. */
static bool is_minus_one(const struct text_token *t)
{
	return t->kind == TEXT_NUMBER && !t->overflow &&
	       (t->number == UINT32_MAX || t->number == UINT64_MAX);
}

/* A rank or a tag: "3"; "-1", also as an unsigned number, or "any" where that is allowed. */
static bool peer_or_tag(struct reading *r, bool any, const char *what, uint64_t max, uint32_t *out)
{
	struct text_parser *p = r->p;
	struct text_token first = p->lexer.token;
	char expected[32];
	uint64_t n = 0;

	if (text_is_word(&first, "any") || text_is_mark(&p->lexer, '-') || is_minus_one(&first)) {
		if (!any)
			return text_wrong(p, &first,
					  "'%s' names its %s: '%.*s' means any, which is for "
					  "receives and appends",
					  goal_op_words[r->op.type], what,
					  first.kind == TEXT_MARK ? 2 : (int)first.bytes,
					  first.kind == TEXT_MARK ? "-1" : first.start);
		text_next(&p->lexer);
		if (first.kind == TEXT_MARK &&
		    (p->lexer.token.kind != TEXT_NUMBER || p->lexer.token.number != 1))
			return text_expected(p, "'1': only -1 means any");
		if (first.kind == TEXT_MARK)
			text_next(&p->lexer);
		*out = GOAL_ANY;
		return true;
	}
	snprintf(expected, sizeof expected, "the number of a %s", what);
	if (!text_expect_number(p, expected, max, &n))
		return false;
	*out = (uint32_t)n;
	return true;
}

static bool may_be_any(const struct goal_op *op)
{
	return op->type == GOAL_RECV || goal_is_append(op);
}

static bool peer(struct reading *r)
{
	struct text_token t = r->p->lexer.token;

	if (!peer_or_tag(r, may_be_any(&r->op), "rank", UINT64_MAX >> 33, &r->op.peer))
		return false;
	if (r->op.peer != GOAL_ANY && r->op.peer >= r->p->ranks)
		return text_wrong(r->p, &t, "there is no rank %u: num_ranks is %u", r->op.peer,
				  r->p->ranks);
	return true;
}

/* "scratch", "user3" */
static bool space(struct text_parser *p, uint16_t *out)
{
	const struct text_token *t = &p->lexer.token;
	uint32_t n = 0;

	if (text_is_word(t, "scratch")) {
		*out = GOAL_SCRATCH;
		text_next(&p->lexer);
		return true;
	}
	if (t->kind != TEXT_WORD || t->bytes < 5 || memcmp(t->start, "user", 4))
		return text_expected(p, "memory such as 'user0+4096' or 'scratch+0'");
	for (uint32_t i = 4; i < t->bytes; i++) {
		if (t->start[i] < '0' || t->start[i] > '9')
			return text_expected(p, "memory such as 'user0+4096' or 'scratch+0'");
		n = n >= GOAL_USERS_MAX ? n : n * 10 + (uint32_t)(t->start[i] - '0');
	}
	if (n >= GOAL_USERS_MAX)
		return text_wrong(p, t, "there are user0 to user%u", GOAL_USERS_MAX - 1);
	*out = (uint16_t)(GOAL_USER + n);
	text_next(&p->lexer);
	return true;
}

/* `bytes` at "user0+4096" */
static bool memory(struct text_parser *p, uint64_t bytes, uint16_t *out_mem, uint64_t *out_off)
{
	struct text_token t = p->lexer.token;

	*out_off = 0;
	if (!space(p, out_mem))
		return false;
	if (text_is_mark(&p->lexer, '+')) {
		text_next(&p->lexer);
		t = p->lexer.token;
		if (!text_expect_number(p, "an offset in bytes", UINT64_MAX, out_off))
			return false;
	}
	if (bytes > UINT64_MAX - *out_off)
		return text_wrong(p, &t, "%llu bytes at this offset go beyond 64 bits",
				  (unsigned long long)bytes);
	if (*out_mem == GOAL_SCRATCH)
		p->making.scratch_used = base_max_u64(p->making.scratch_used, *out_off + bytes);
	return true;
}

/* ---- lists ------------------------------------------------------------------------------ */

/* "[10b user0+0, 20b user0+100]". Adds the operation first: pieces belong to a label. */
static bool list(struct reading *r)
{
	struct text_parser *p = r->p;
	struct text_token first = *r->word;
	uint64_t total = r->op.bytes, bytes, off;
	uint16_t mem;

	r->is_list = true;
	r->op.mem = 0;
	r->op.bytes = 0;
	r->number = text_making_add(&p->making, &r->op, p->lexer.source.line_number, r->label);
	if (r->number == GOAL_NONE)
		return p->error = -ENOMEM, false;
	do {
		text_next(&p->lexer); /* '[' or ',' */
		if (!text_expect_bytes(p, &bytes) || !memory(p, bytes, &mem, &off))
			return false;
		if (text_making_piece(&p->making, r->number, mem, off, bytes))
			return p->error = -ENOMEM, false;
	} while (text_is_mark(&p->lexer, ','));
	if (!expect_mark(p, ']', "',' or ']'"))
		return false;
	r->op.bytes = total;
	if (p->making.build.error || p->making.build.ops[r->number].bytes != total)
		return text_wrong(p, &first, "the pieces of the list are %llu bytes, not %llu",
				  (unsigned long long)p->making.build.ops[r->number].bytes,
				  (unsigned long long)total);
	return true;
}

/* ---- parts that may follow -------------------------------------------------------------- */

static bool transfer_memory(struct reading *r)
{
	if (text_is_mark(&r->p->lexer, '['))
		return list(r);
	return memory(r->p, r->op.bytes, &r->op.mem, &r->op.off);
}

static bool operands(struct reading *r)
{
	struct goal_op *op = &r->op;

	if (!memory(r->p, op->bytes, &op->src_mem, &op->src_off))
		return false;
	if (!goal_is_arithmetic(op))
		return true;
	return expect_mark(r->p, ',', "',' and the second operand") &&
	       memory(r->p, op->bytes, &op->src2_mem, &op->src2_off);
}

static bool counter(struct reading *r, uint32_t *out)
{
	uint64_t n = 0;

	if (!text_expect_number(r->p, "the number of a counter", GOAL_COUNTERS_MAX - 1, &n))
		return false;
	*out = 1 + (uint32_t)n;
	return true;
}

/* "9 reaches 1", "0 for 1" */
static bool when(struct reading *r, const char *until)
{
	const char *const words[] = { until, NULL };

	if (!counter(r, &r->op.when))
		return false;
	if (!text_is_word(&r->p->lexer.token, until))
		return text_expected_words(r->p, &r->p->lexer.token, words, NULL);
	text_next(&r->p->lexer);
	return text_expect_number(r->p, "the value of the counter", UINT64_MAX, &r->op.off);
}

static bool handler(struct reading *r, uint8_t *out)
{
	uint64_t n = 0;

	if (!text_expect_number(r->p, "the number of a handler", GOAL_HANDLERS_MAX - 1, &n))
		return false;
	*out = (uint8_t)(1 + n);
	return true;
}

static bool one_sided_part(struct reading *r, unsigned bit)
{
	switch (bit) {
	case PART_COUNTER:
		return counter(r, &r->op.counter);
	case PART_WHEN:
		return when(r, "reaches");
	case PART_HEADER:
		return handler(r, &r->op.handlers[0]);
	case PART_PAYLOAD:
		return handler(r, &r->op.handlers[1]);
	case PART_COMPLETION:
		return handler(r, &r->op.handlers[2]);
	case PART_ALLOWED:
		return peer(r);
	default: /* PART_ONCE */
		r->op.options |= GOAL_ONCE;
		return true;
	}
}

static bool part(struct reading *r, unsigned bit)
{
	struct goal_op *op = &r->op;
	uint64_t n = 0;

	switch (bit) {
	case PART_PEER:
		return peer(r);
	case PART_TAG:
		return peer_or_tag(r, may_be_any(op), "tag", GOAL_ANY - 1, &op->tag);
	case PART_CPU:
		if (!text_expect_number(r->p, "the number of a CPU", UINT16_MAX, &n))
			return false;
		op->cpu = (uint16_t)n;
		return true;
	case PART_NIC:
		if (!text_expect_number(r->p, "the number of a NIC", UINT16_MAX, &n))
			return false;
		op->nic = (uint16_t)n;
		return true;
	case PART_MATCH:
		return text_expect_number(r->p, "the number of a receive", UINT32_MAX, &r->match);
	case PART_FROM:
		return goal_is_transfer(op) ? transfer_memory(r) : operands(r);
	case PART_INTO:
		return goal_is_transfer(op) ? transfer_memory(r)
					    : memory(r->p, op->bytes, &op->mem, &op->off);
	default:
		return one_sided_part(r, bit);
	}
}

/* The words that are allowed here. */
static void still_possible(const struct reading *r, const char **out)
{
	for (size_t i = 0; i < BASE_ARRAY_LEN(parts); i++)
		if (parts[i].bit & r->may & ~r->given)
			*out++ = parts[i].word;
	*out = NULL;
}

static bool all_parts(struct reading *r)
{
	const char *possible[BASE_ARRAY_LEN(parts) + 1];
	struct text_lexer *l = &r->p->lexer;

	while (!text_at_end(l)) {
		size_t i = 0;

		while (i < BASE_ARRAY_LEN(parts) &&
		       (!(parts[i].bit & r->may) || !text_is_word(&l->token, parts[i].word)))
			i++;
		if (i == BASE_ARRAY_LEN(parts)) {
			still_possible(r, possible);
			return text_expected_words(r->p, &l->token, possible,
						   "the end of the line");
		}
		if (r->given & parts[i].bit)
			return text_wrong(r->p, &l->token, "a second '%s'", parts[i].word);
		r->given |= parts[i].bit;
		text_next(l);
		if (!part(r, parts[i].bit))
			return false;
	}
	return true;
}

/* ---- operations ------------------------------------------------------------------------- */

static bool transfer(struct reading *r)
{
	struct text_lexer *l = &r->p->lexer;
	const char *const to_or_from[] = { r->op.type == GOAL_SEND ? "to" : "from", NULL };

	if (!text_expect_bytes(r->p, &r->op.bytes))
		return false;
	r->op.mem = GOAL_NOWHERE;
	if (!text_is_word(&l->token, to_or_from[0]))
		return text_expected_words(r->p, &l->token, to_or_from, NULL);
	text_next(l);
	if (!peer(r))
		return false;
	r->may = PART_TAG | PART_CPU | PART_NIC | PART_MATCH |
		 (r->op.type == GOAL_SEND ? PART_FROM : PART_INTO);
	return all_parts(r);
}

/* dst equals an operand or overlaps none. */
static bool cuts(const struct goal_op *op, uint16_t mem, uint64_t off)
{
	return mem == op->mem && off != op->off && op->bytes &&
	       (off > op->off ? off - op->off : op->off - off) < op->bytes;
}

static bool dtype(struct reading *r)
{
	struct text_lexer *l = &r->p->lexer;
	uint8_t i = 0;

	while (i < GOAL_DTYPE_COUNT && !text_is_word(&l->token, goal_dtype_words[i]))
		i++;
	if (i == GOAL_DTYPE_COUNT)
		return text_expected_words(r->p, &l->token, goal_dtype_words, NULL);
	if (goal_dtype_is_float(i) && r->op.type >= GOAL_AND)
		return text_wrong(r->p, &l->token, "'%s' is for integers",
				  goal_op_words[r->op.type]);
	r->op.dtype = i;
	text_next(l);
	return true;
}

static bool local(struct reading *r)
{
	struct goal_op *op = &r->op;
	struct text_token size;

	if (goal_is_arithmetic(op) && !dtype(r))
		return false;
	size = r->p->lexer.token;
	if (!text_expect_bytes(r->p, &op->bytes))
		return false;
	if (goal_is_arithmetic(op) && op->bytes % goal_dtype_bytes(op->dtype))
		return text_wrong(r->p, &size, "not a whole number of %s: each has %u bytes",
				  goal_dtype_words[op->dtype], goal_dtype_bytes(op->dtype));
	r->may = PART_FROM | PART_INTO | PART_CPU | PART_NIC;
	if (!all_parts(r))
		return false;
	if ((r->given & (PART_FROM | PART_INTO)) != (PART_FROM | PART_INTO))
		return text_wrong(r->p, &r->p->lexer.token, "expected '%s' and memory",
				  r->given & PART_FROM ? "into" : "from");
	if (cuts(op, op->src_mem, op->src_off) ||
	    (goal_is_arithmetic(op) && cuts(op, op->src2_mem, op->src2_off)))
		return text_wrong(r->p, r->word, "the result overlaps an operand in part");
	return true;
}

static bool stamp(struct reading *r)
{
	r->op.bytes = 8;
	r->may = PART_INTO | PART_CPU | PART_NIC;
	if (!all_parts(r))
		return false;
	if (!(r->given & PART_INTO))
		return text_wrong(r->p, &r->p->lexer.token, "expected 'into' and memory");
	return true;
}

/* ---- one-sided operations ---------------------------------------------------------------- */

static bool list_of_append(struct reading *r)
{
	static const char *const lists[] = { "priority_list", "overflow_list", NULL };
	struct text_lexer *l = &r->p->lexer;

	if (text_is_word(&l->token, lists[1]))
		r->op.options |= GOAL_OVERFLOW;
	else if (!text_is_word(&l->token, lists[0]))
		return text_expected_words(r->p, &l->token, lists, NULL);
	text_next(l);
	return true;
}

/* The parts that an operation must have. */
static bool has_parts(struct reading *r, unsigned needed)
{
	for (size_t i = 0; i < BASE_ARRAY_LEN(parts); i++)
		if (parts[i].bit & needed & ~r->given)
			return text_wrong(r->p, &r->p->lexer.token, "expected '%s'", parts[i].word);
	return true;
}

/* "put 200b to 1 ct 0 tag 10", "get 8b from 2 ...", "append 1b to priority_list allowed 0 ct 0 ..."
 */
static bool one_sided(struct reading *r)
{
	struct text_lexer *l = &r->p->lexer;
	bool get = r->op.type == GOAL_GET || r->op.type == GOAL_TGET,
	     append = goal_is_append(&r->op);
	const char *const to_or_from[] = { get ? "from" : "to", NULL };
	unsigned needed = (append ? PART_ALLOWED | PART_COUNTER : 0) |
			  (goal_is_triggered(&r->op) ? PART_WHEN : 0);

	if (!text_expect_bytes(r->p, &r->op.bytes))
		return false;
	if (!text_is_word(&l->token, to_or_from[0]))
		return text_expected_words(r->p, &l->token, to_or_from, NULL);
	text_next(l);
	if (!(append ? list_of_append(r) : peer(r)))
		return false;
	r->may = needed | PART_COUNTER | PART_TAG | PART_CPU | PART_NIC;
	if (append)
		r->may |= PART_HEADER | PART_PAYLOAD | PART_COMPLETION | PART_ONCE;
	return all_parts(r) && has_parts(r, needed);
}

/* "test 0 for 1" */
static bool test(struct reading *r)
{
	r->may = PART_CPU | PART_NIC;
	return when(r, "for") && all_parts(r);
}

static bool by_type(struct reading *r)
{
	r->op.mem = goal_is_one_sided(&r->op) ? GOAL_NOWHERE : 0;
	switch (r->op.type) {
	case GOAL_SEND:
	case GOAL_RECV:
		return transfer(r);
	case GOAL_CALC:
		r->may = PART_CPU | PART_NIC;
		return text_expect_number(r->p, "a number of nanoseconds", UINT64_MAX,
					  &r->op.bytes) &&
		       all_parts(r);
	case GOAL_NOP:
		r->may = PART_CPU | PART_NIC;
		return all_parts(r);
	case GOAL_STAMP:
		return stamp(r);
	case GOAL_TEST:
		return test(r);
	default:
		return goal_is_one_sided(&r->op) ? one_sided(r) : local(r);
	}
}

bool text_is_operation(const struct text_token *word)
{
	for (uint8_t i = 0; i < GOAL_TYPES; i++)
		if (text_is_word(word, goal_op_words[i]))
			return true;
	return text_is_word(word, gem5);
}

static bool find_type(struct reading *r)
{
	for (uint8_t i = 0; i < GOAL_TYPES; i++)
		if (text_is_word(r->word, goal_op_words[i])) {
			r->op.type = i;
			return true;
		}
	if (text_is_word(r->word, gem5))
		return text_wrong(r->p, r->word,
				  "'%s' runs in the processor simulator of LogGOPSim2, which "
				  "Sluice does not have",
				  gem5);
	return text_unknown(r->p, r->word, goal_op_words);
}

bool text_operation(struct text_parser *p, const struct text_token *word, uint32_t label)
{
	struct reading r = { .p = p, .word = word, .number = GOAL_NONE, .label = label };

	if (!find_type(&r) || !by_type(&r))
		return false;
	if (r.op.type == GOAL_SEND && r.given & PART_MATCH)
		r.op.match = (uint32_t)r.match;
	if (r.is_list) {
		struct goal_op *op = &p->making.build.ops[r.number];

		/* fields that were parsed after the list */
		op->cpu = r.op.cpu;
		op->nic = r.op.nic;
		op->tag = r.op.tag;
		if (op->type == GOAL_SEND)
			op->match = r.op.match;
	} else {
		r.number = text_making_add(&p->making, &r.op, p->lexer.source.line_number, label);
	}
	if (r.number == GOAL_NONE || (r.op.type == GOAL_RECV && r.given & PART_MATCH &&
				      text_making_number(&p->making, r.number, (uint32_t)r.match)))
		return p->error = -ENOMEM, false;
	return true;
}
