/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives as operations. MPI does not tell which algorithm a host MPI used, so each collective
 * becomes a usual algorithm for its size, or the one that the user chose.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "trace_data.h"
#include "trace_schedule.h"

/* Collectives of a communicator that may be in flight at once without sharing tags. */
enum { TURNS = 64, OP_BYTES = 512 };

static const char *const names[] = {
#define X(id, name) name,
	MESSAGES_COLLECTIVES(X)
#undef X
};

static const uint8_t collectives[MESSAGES_COLLECTIVE_COUNT] = {
	[MESSAGES_BARRIER] = GEN_BARRIER, [MESSAGES_BCAST] = GEN_BCAST,
	[MESSAGES_REDUCE] = GEN_REDUCE, [MESSAGES_ALLREDUCE] = GEN_ALLREDUCE,
	[MESSAGES_GATHER] = GEN_GATHER, [MESSAGES_SCATTER] = GEN_SCATTER,
	[MESSAGES_ALLGATHER] = GEN_ALLGATHER, [MESSAGES_ALLTOALL] = GEN_ALLTOALL,
	[MESSAGES_REDUCE_SCATTER] = GEN_REDUCE_SCATTER,
};

/* The usual algorithm up to a number of bytes. */
static const struct {
	uint8_t collective;
	uint64_t most_bytes;
	const char *pattern;
} usual[] = {
	{ MESSAGES_BARRIER, UINT64_MAX, "dissemination-barrier" },
	{ MESSAGES_BCAST, UINT64_MAX, "binomial-bcast" },
	{ MESSAGES_REDUCE, UINT64_MAX, "binomial-reduce" },
	{ MESSAGES_GATHER, UINT64_MAX, "binomial-gather" },
	{ MESSAGES_SCATTER, UINT64_MAX, "binomial-scatter" },
	{ MESSAGES_ALLREDUCE, 2048, "doubling-allreduce" },
	{ MESSAGES_ALLREDUCE, UINT64_MAX, "halving-allreduce" },
	{ MESSAGES_ALLGATHER, 32768, "bruck-allgather" },
	{ MESSAGES_ALLGATHER, UINT64_MAX, "ring-allgather" },
	{ MESSAGES_ALLTOALL, 256, "bruck-alltoall" },
	{ MESSAGES_ALLTOALL, 32768, "linear-alltoall" },
	{ MESSAGES_ALLTOALL, UINT64_MAX, "pairwise-alltoall" },
	{ MESSAGES_REDUCE_SCATTER, UINT64_MAX, "ring-reduce-scatter" },
};

static const struct gen_pattern *usual_pattern(const struct messages_record *r)
{
	for (size_t i = 0; i < BASE_ARRAY_LEN(usual); i++)
		if (usual[i].collective == r->collective && r->bytes <= usual[i].most_bytes)
			return gen_find(usual[i].pattern);
	return NULL;
}

/* ---- choices ----------------------------------------------------------------------------- */

int schedule_choose(struct schedule_choices *c, const char *text)
{
	const char *equals = strchr(text, '=');
	size_t len = equals ? (size_t)(equals - text) : 0;

	for (uint8_t i = 0; len && i < MESSAGES_SCAN; i++) {
		struct schedule_choice *choice = &c->of[i];

		if (strncmp(names[i], text, len) || names[i][len])
			continue;
		choice->pattern = gen_find(equals + 1);
		if (choice->pattern && choice->pattern->collective != collectives[i]) {
			tool_say("trace: %s is no pattern of %s; see: sluice goal gen --list",
				 equals + 1, names[i]);
			return TOOL_MISUSE;
		}
		if (choice->pattern)
			return TOOL_DONE;
		choice->has_program = !goal_input_need(&choice->program, "trace", equals + 1);
		return choice->has_program ? TOOL_DONE : TOOL_FAILED;
	}
	tool_say("trace: --use takes COLLECTIVE=PATTERN or COLLECTIVE=FILE, not '%s'", text);
	return TOOL_MISUSE;
}

void schedule_choices_free(struct schedule_choices *c)
{
	for (int i = 0; i < MESSAGES_COLLECTIVE_COUNT; i++)
		if (c->of[i].has_program)
			goal_input_close(&c->of[i].program);
}

/* Returns: this rank's side of the collective; NULL after a message. */
static const struct goal_block *block_of(struct schedule_out *o, const struct schedule_comm *comm,
					 const struct messages_record *r)
{
	const struct schedule_choice *choice = &o->choices->of[r->collective];
	const struct goal_block *block;
	struct goal_pattern g;
	const char *why;

	if (choice->has_program && choice->program.program->ranks == comm->size)
		return goal_program_block(choice->program.program, comm->rank);
	goal_pattern_init(&g);
	g.pattern = choice->pattern ? choice->pattern : usual_pattern(r);
	g.params.ranks = comm->size;
	g.params.root = (uint32_t)r->peer;
	g.params.bytes = r->bytes;
	if (gen_check(g.pattern, &g.params, &why)) {
		tool_say("trace: %s of %" PRIu64 " bytes: %s", names[r->collective], r->bytes, why);
		return NULL;
	}
	if (goal_maker_block(&o->maker, &g, comm->rank, &block)) {
		tool_say("trace: %s of %" PRIu64 " bytes needs too much memory",
			 names[r->collective], r->bytes);
		return NULL;
	}
	return block;
}

/* ---- operations -------------------------------------------------------------------------- */

static uint64_t put_transfer(struct schedule_out *o, bool is_recv, uint64_t bytes, int32_t peer,
			     uint32_t tag)
{
	uint64_t label = schedule_label(o);

	fprintf(o->file, "%s %" PRIu64 "b %s %d tag %u", is_recv ? "recv" : "send", bytes,
		is_recv ? "from" : "to", peer, tag);
	if (o->thread)
		fprintf(o->file, " cpu %u", o->thread);
	o->sums.their_messages += !is_recv;
	o->sums.their_bytes += is_recv ? 0 : bytes;
	return label;
}

static void end_line(struct schedule_out *o) { fputc('\n', o->file); }

static void put_memory(struct schedule_out *o, const struct goal_op *op)
{
	if (op->segment_count || op->mem == GOAL_NOWHERE)
		return;
	fprintf(o->file, op->type == GOAL_RECV ? " into " : " from ");
	if (op->mem == GOAL_SCRATCH)
		fprintf(o->file, "scratch+%" PRIu64, op->off);
	else
		fprintf(o->file, "user%d+%" PRIu64, op->mem - GOAL_USER, op->off);
}

static void put_op(struct schedule_out *o, const struct schedule_comm *comm, uint32_t turn,
		   const struct goal_block *b, uint32_t i)
{
	const struct goal_op *op = &goal_ops_const(b)[i];
	char text[OP_BYTES];

	if (!goal_is_transfer(op)) {
		text_print_op(b, i, text, sizeof text);
		schedule_label(o);
		fputs(text, o->file);
		if (o->thread)
			fprintf(o->file, " cpu %u", o->thread);
	} else {
		put_transfer(o, op->type == GOAL_RECV, op->bytes, comm->world[op->peer],
			     messages_name_tag(o->names, comm->name, turn, op->tag));
		put_memory(o, op);
	}
	end_line(o);
}

static uint64_t put_end(struct schedule_out *o)
{
	uint64_t end = schedule_label(o);

	fputs("calc 0", o->file);
	if (o->thread)
		fprintf(o->file, " cpu %u", o->thread);
	end_line(o);
	return end;
}

/* Writes the operations of a block, then their requirements. Returns: the label of its end. */
static uint64_t put_block(struct schedule_out *o, const struct schedule_comm *comm, uint32_t turn,
			  const struct goal_block *b, void (*before)(void *, uint64_t), void *ctx)
{
	uint64_t first = o->labels + 1, end;

	for (uint32_t i = 0; i < b->op_count; i++)
		put_op(o, comm, turn, b, i);
	end = put_end(o);
	for (uint32_t i = 0; i < b->op_count; i++) {
		const struct goal_op *op = &goal_ops_const(b)[i];

		if (i < b->ready_count)
			before(ctx, first + i);
		for (uint32_t j = 0; j < op->next_count; j++)
			schedule_requires(o, first + goal_adjacency(b)[op->next + j], first + i);
		for (uint32_t j = 0; j < op->inext_count; j++)
			fprintf(o->file, "l%" PRIu64 " irequires l%" PRIu64 "\n",
				first + goal_adjacency(b)[op->inext + j], first + i);
		if (!op->next_count)
			schedule_requires(o, end, first + i);
	}
	if (!b->op_count)
		before(ctx, end);
	return end;
}

static uint64_t put_exchange(struct schedule_out *o, const struct schedule_comm *comm,
			     uint32_t turn, const struct messages_record *r,
			     const struct messages_part *parts, void (*before)(void *, uint64_t),
			     void *ctx)
{
	uint32_t tag = messages_name_tag(o->names, comm->name, turn, 0);
	uint64_t first = o->labels + 1, end;

	for (uint32_t i = 0; i < r->count; i++) {
		put_transfer(o, parts[i].is_recv, parts[i].bytes, parts[i].peer, tag);
		end_line(o);
	}
	end = put_end(o);
	for (uint32_t i = 0; i < r->count; i++) {
		before(ctx, first + i);
		schedule_requires(o, end, first + i);
	}
	if (!r->count)
		before(ctx, end);
	return end;
}

/* A prefix sum: from the rank before, then to the rank after. */
static uint64_t put_scan(struct schedule_out *o, const struct schedule_comm *comm, uint32_t turn,
			 const struct messages_record *r, void (*before)(void *, uint64_t),
			 void *ctx)
{
	uint32_t tag = messages_name_tag(o->names, comm->name, turn, 0);
	uint64_t in = 0, out = 0, end;

	if (comm->rank) {
		in = put_transfer(o, true, r->bytes, comm->world[comm->rank - 1], tag);
		end_line(o);
	}
	if (comm->rank + 1 < comm->size) {
		out = put_transfer(o, false, r->bytes, comm->world[comm->rank + 1], tag);
		end_line(o);
	}
	end = put_end(o);
	if (in)
		before(ctx, in);
	if (in && out)
		schedule_requires(o, out, in);
	else if (out)
		before(ctx, out);
	if (in || out)
		schedule_requires(o, end, out ? out : in);
	else
		before(ctx, end);
	return end;
}

uint64_t schedule_expand(struct schedule_out *o, struct schedule_comm *comm,
			 const struct messages_record *r, const struct messages_part *parts,
			 void (*before)(void *ctx, uint64_t label), void *ctx)
{
	uint32_t turn = r->tag ? TURNS + (uint32_t)r->tag : 1 + (uint32_t)(comm->turns++ % TURNS);
	const struct goal_block *block;

	o->sums.collectives++;
	if (r->collective == MESSAGES_EXCHANGE)
		return put_exchange(o, comm, turn, r, parts, before, ctx);
	if (r->collective == MESSAGES_SCAN || r->collective == MESSAGES_EXSCAN)
		return put_scan(o, comm, turn, r, before, ctx);
	block = block_of(o, comm, r);
	return block ? put_block(o, comm, turn, block, before, ctx) : 0;
}
