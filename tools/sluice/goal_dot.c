/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes Graphviz: a cluster for each rank. */
#include <inttypes.h>

#include "goal_layout.h"

/* Escapes text inside quotes. */
static void put_text(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		fputc((unsigned char)*text < ' ' ? '?' : *text, out);
	}
}

static void put_node(const struct goal_layout *l, const struct goal_node *n, FILE *out)
{
	char what[300], label[80];

	text_print_op(goal_program_block(l->in->program, n->rank), n->place, what, sizeof what);
	goal_layout_label(l, n, label, sizeof label);
	fprintf(out, "\t\tr%" PRIu32 "_%" PRIu32 " [label=\"", n->rank, n->place);
	put_text(out, label);
	fputs(*label ? ": " : "", out);
	put_text(out, what);
	fprintf(out, "\"%s];\n", goal_layout_is_stuck(l, n) ? ", color=red, style=dashed" : "");
}

static void put_requirement(void *ctx, const struct goal_node *from, const struct goal_node *to,
			    bool immediate)
{
	FILE *out = ctx;

	fprintf(out, "\tr%" PRIu32 "_%" PRIu32 " -> r%" PRIu32 "_%" PRIu32 "%s;\n", from->rank,
		from->place, to->rank, to->place, immediate ? " [style=dashed]" : "");
}

void goal_dot_write(const struct goal_layout *l, FILE *out)
{
	fputs("digraph goal {\n\tnode [shape=box, fontsize=10];\n", out);
	for (uint32_t i = 0; i < l->lane_count; i++) {
		const struct goal_lane *lane = &l->lanes[i];

		fprintf(out, "\tsubgraph cluster_%" PRIu32 " {\n\t\tlabel=\"rank %" PRIu32 "\";\n",
			lane->rank, lane->rank);
		for (uint32_t k = 0; k < lane->count; k++)
			put_node(l, &l->nodes[lane->first + k], out);
		fputs("\t}\n", out);
	}
	goal_layout_edges(l, put_requirement, out);
	for (uint32_t n = 0; n < l->node_count; n++) {
		const struct goal_node *send = &l->nodes[n], *recv;

		if (send->partner == GOAL_NONE || goal_layout_op(l, send)->type != GOAL_SEND)
			continue;
		recv = &l->nodes[send->partner];
		fprintf(out,
			"\tr%" PRIu32 "_%" PRIu32 " -> r%" PRIu32 "_%" PRIu32 " [color=blue];\n",
			send->rank, send->place, recv->rank, recv->place);
	}
	fputs("}\n", out);
}
