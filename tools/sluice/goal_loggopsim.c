/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes programs as LogGOPSim and ATLAHS read them: as text for txt2bin, and as the binary that
 * txt2bin makes (goal/file/loggopsim.c describes it). Both know sends, receives and calc only:
 * memory is left out, and local operations become a calc of 0 ns, as they cost nothing there.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "goal.h"

enum { SEND = 1, RECV = 2, CALC = 3, RECORD = 39, COOKIE = 8, HEAD = 6, JUMP = 16 };
#define NUMBER_MAX 255 /* of a cpu or nic; txt2bin takes others modulo 256 */

static uint64_t size_of(const struct goal_op *op)
{
	return goal_is_transfer(op) || op->type == GOAL_CALC ? op->bytes : 0;
}

/* ---- what cannot be written -------------------------------------------------------------- */

static const char *refusal(const struct goal_op *op)
{
	if (goal_is_one_sided(op))
		return "one-sided operations are not known there";
	if (op->cpu > NUMBER_MAX || op->nic > NUMBER_MAX)
		return "cpu and nic are at most 255 there";
	return NULL;
}

static int check(const struct goal_program *p, const char *verb)
{
	for (uint32_t rank = 0; rank < p->ranks; rank++) {
		const struct goal_block *b = goal_program_block(p, rank);

		for (uint32_t i = 0; i < b->op_count; i++) {
			const char *why = refusal(&goal_ops_const(b)[i]);
			char what[120];

			if (!why)
				continue;
			text_print_op(b, i, what, sizeof what);
			tool_say("goal %s: --loggopsim: rank %u: '%s': %s", verb, rank, what, why);
			return TOOL_FAILED;
		}
	}
	return TOOL_DONE;
}

/* ---- text -------------------------------------------------------------------------------- */

static void print_op(const struct goal_op *op, uint32_t i, FILE *out)
{
	if (goal_is_transfer(op))
		fprintf(out, "l%u: %s %" PRIu64 "b %s %u tag %u", i,
			op->type == GOAL_SEND ? "send" : "recv", op->bytes,
			op->type == GOAL_SEND ? "to" : "from", op->peer, op->tag);
	else
		fprintf(out, "l%u: calc %" PRIu64, i, size_of(op));
	if (op->cpu)
		fprintf(out, " cpu %u", op->cpu);
	if (op->nic)
		fprintf(out, " nic %u", op->nic);
	fputc('\n', out);
}

static void print_rank(const struct goal_block *b, uint32_t rank, FILE *out)
{
	const uint32_t *adjacency = goal_adjacency(b);

	fprintf(out, "\nrank %u {\n", rank);
	for (uint32_t i = 0; i < b->op_count; i++)
		print_op(&goal_ops_const(b)[i], i, out);
	for (uint32_t i = 0; i < b->op_count; i++) {
		const struct goal_op *op = &goal_ops_const(b)[i];

		for (uint32_t k = 0; k < op->next_count; k++)
			fprintf(out, "l%u requires l%u\n", adjacency[op->next + k], i);
		for (uint32_t k = 0; k < op->inext_count; k++)
			fprintf(out, "l%u irequires l%u\n", adjacency[op->inext + k], i);
	}
	fprintf(out, "}\n");
}

int goal_loggopsim_print(const struct goal_program *p, FILE *out)
{
	int ret = check(p, "print");

	if (ret)
		return ret;
	fprintf(out, "num_ranks %u\n", p->ranks);
	for (uint32_t rank = 0; rank < p->ranks; rank++)
		print_rank(goal_program_block(p, rank), rank, out);
	return TOOL_DONE;
}

/* ---- binary ------------------------------------------------------------------------------ */

static void put(FILE *out, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		fputc((int)(value >> 8 * i & 255), out);
}

static uint64_t edges_of(const struct goal_block *b)
{
	uint64_t edges = 0;

	for (uint32_t i = 0; i < b->op_count; i++)
		edges += (uint64_t)goal_ops_const(b)[i].next_count +
			 goal_ops_const(b)[i].inext_count;
	return edges;
}

static uint64_t rank_bytes(const struct goal_block *b)
{
	return 8 + 4 * (uint64_t)b->ready_count + RECORD * (uint64_t)b->op_count + 4 * edges_of(b);
}

static void put_op(FILE *out, const struct goal_op *op, uint32_t *edges)
{
	bool is_transfer = goal_is_transfer(op);

	put(out, op->requires, 4);
	put(out, op->type == GOAL_SEND ? SEND : op->type == GOAL_RECV ? RECV : CALC, 1);
	put(out, is_transfer ? op->peer : 0, 4);
	put(out, size_of(op), 8);
	put(out, is_transfer ? op->tag : 0, 4);
	put(out, op->cpu, 1);
	put(out, op->nic, 1);
	put(out, op->next_count, 4);
	put(out, *edges, 4);
	put(out, op->inext_count, 4);
	put(out, *edges + op->next_count, 4);
	*edges += op->next_count + op->inext_count;
}

static void put_rank(FILE *out, const struct goal_block *b)
{
	const uint32_t *adjacency = goal_adjacency(b);
	uint32_t edges = 0;

	put(out, b->op_count, 4);
	put(out, b->ready_count, 4);
	for (uint32_t i = 0; i < b->ready_count; i++)
		put(out, i, 4);
	for (uint32_t i = 0; i < b->op_count; i++)
		put_op(out, &goal_ops_const(b)[i], &edges);
	for (uint32_t i = 0; i < b->op_count; i++) {
		const struct goal_op *op = &goal_ops_const(b)[i];

		for (uint32_t k = 0; k < op->next_count; k++)
			put(out, adjacency[op->next + k], 4);
		for (uint32_t k = 0; k < op->inext_count; k++)
			put(out, adjacency[op->inext + k], 4);
	}
}

static void put_head(FILE *out, const struct goal_program *p)
{
	uint64_t at = HEAD + JUMP * (uint64_t)p->ranks;
	unsigned cpu = 0, nic = 0;

	for (uint32_t rank = 0; rank < p->ranks; rank++) {
		const struct goal_block *b = goal_program_block(p, rank);

		for (uint32_t i = 0; i < b->op_count; i++) {
			const struct goal_op *op = &goal_ops_const(b)[i];

			cpu = op->cpu > cpu ? op->cpu : cpu;
			nic = op->nic > nic ? op->nic : nic;
		}
	}
	put(out, GOALFILE_LOGGOPSIM, COOKIE);
	put(out, p->ranks, 4);
	put(out, cpu, 1);
	put(out, nic, 1);
	for (uint32_t rank = 0; rank < p->ranks; rank++) {
		put(out, at, 8);
		at += rank_bytes(goal_program_block(p, rank));
		put(out, at, 8);
	}
}

int goal_loggopsim_write(const struct goal_program *p, FILE *out)
{
	int ret = check(p, "compile");

	if (ret)
		return ret;
	put_head(out, p);
	for (uint32_t rank = 0; rank < p->ranks; rank++)
		put_rank(out, goal_program_block(p, rank));
	return TOOL_DONE;
}
