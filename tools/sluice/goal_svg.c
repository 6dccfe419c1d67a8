/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes a self-contained SVG with light and dark colours and tooltips. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "goal_layout.h"

enum { W = LAYOUT_BOX_WIDTH, H = LAYOUT_BOX_HEIGHT };

static const char style[] =
	"<style>\n"
	"svg{--bg:#fff;--lane:#f4f6f8;--text:#1c2733;--mute:#5d6b7a;--edge:#8794a3;"
	"--wire:#1173c7;\n"
	"--send:#dcebfb;--send-l:#1173c7;--recv:#dff3e4;--recv-l:#23803c;--calc:#fdf0d3;"
	"--calc-l:#a86e00;\n"
	"--local:#eee5fa;--local-l:#7444b8;--other:#e9edf1;--other-l:#5d6b7a;--bad:#d1242f}\n"
	"@media (prefers-color-scheme:dark){svg{--bg:#11161c;--lane:#182029;--text:#e4eaf0;"
	"--mute:#93a1b0;\n"
	"--edge:#65727f;--wire:#58a6ff;--send:#12304f;--send-l:#58a6ff;--recv:#143822;"
	"--recv-l:#4cc26c;\n"
	"--calc:#40310f;--calc-l:#e0a83a;--local:#312350;--local-l:#b693f0;--other:#28323c;"
	"--other-l:#93a1b0;\n"
	"--bad:#ff7b72}}\n"
	"text{font-family:ui-sans-serif,system-ui,'DejaVu Sans',sans-serif;fill:var(--text)}\n"
	".bg{fill:var(--bg)}.lane{fill:var(--lane)}.head{font-size:13px;font-weight:600;"
	"text-anchor:middle}\n"
	".title{font-size:15px;font-weight:600}.key{font-size:11px;fill:var(--mute)}\n"
	".a{font-size:11px;font-weight:600;text-anchor:middle}\n"
	".b{font-size:10px;fill:var(--mute);text-anchor:middle}\n"
	"rect.op{stroke-width:1.25}\n"
	".send{fill:var(--send);stroke:var(--send-l)}.recv{fill:var(--recv);"
	"stroke:var(--recv-l)}\n"
	".calc{fill:var(--calc);stroke:var(--calc-l)}.local{fill:var(--local);"
	"stroke:var(--local-l)}\n"
	".other{fill:var(--other);stroke:var(--other-l)}\n"
	"rect.stuck{stroke:var(--bad);stroke-width:2;stroke-dasharray:5 3}\n"
	".req,.ireq,.wire{fill:none}.req,.ireq{stroke:var(--edge);stroke-width:1.25;"
	"marker-end:url(#e)}\n"
	".ireq{stroke-dasharray:4 3}.wire{stroke:var(--wire);stroke-width:1.5;"
	"marker-end:url(#w);opacity:.8}\n"
	".wait{fill:none;stroke:var(--bad);stroke-width:1.5;stroke-dasharray:2 3}\n"
	"g:hover>rect.op{stroke-width:2.5}path:hover{stroke-width:3;opacity:1}\n"
	".me{fill:var(--edge)}.mw{fill:var(--wire)}\n"
	"</style>\n"
	"<defs><marker id=\"e\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" "
	"markerHeight=\"6\" orient=\"auto\"><path class=\"me\" d=\"M0 0 8 4 0 8z\"/></marker>\n"
	"<marker id=\"w\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" "
	"markerHeight=\"6\" orient=\"auto\"><path class=\"mw\" d=\"M0 0 8 4 0 8z\"/></marker>"
	"</defs>\n";

/* Text of unknown origin: escapes what XML reserves, replaces what it forbids. */
static void put_text(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '<')
			fputs("&lt;", out);
		else if (*text == '>')
			fputs("&gt;", out);
		else if (*text == '&')
			fputs("&amp;", out);
		else
			fputc((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text, out);
	}
}

static const char *class_of(const struct goal_op *op)
{
	if (op->type == GOAL_SEND)
		return "send";
	if (op->type == GOAL_RECV)
		return "recv";
	if (op->type == GOAL_CALC)
		return "calc";
	return op->type == GOAL_COPY || goal_is_arithmetic(op) ? "local" : "other";
}

/* "12 us" */
static void put_ns(char *buf, size_t cap, uint64_t ns)
{
	static const char *const units[] = { "ns", "us", "ms", "s" };
	int unit = 0;
	double n = (double)ns;

	for (; n >= 1000 && unit < 3; unit++)
		n /= 1000;
	snprintf(buf, cap, "%.4g %s", n, units[unit]);
}

/* "64 KiB" */
static void put_bytes(char *buf, size_t cap, uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	int unit = 0;
	double n = (double)bytes;

	for (; n >= 1024 && unit < 4; unit++)
		n /= 1024;
	snprintf(buf, cap, "%.4g %s", n, units[unit]);
}

/* Two short lines: "send 64K", "l5 to 3". */
static void describe(const struct goal_layout *l, const struct goal_node *n, char *first,
		     char *second, size_t cap)
{
	const struct goal_op *op = goal_layout_op(l, n);
	char size[32] = "", label[24], peer[24] = "";

	if (op->type == GOAL_CALC)
		put_ns(size, sizeof size, op->bytes);
	else if (op->type != GOAL_NOP && op->type != GOAL_STAMP)
		put_bytes(size, sizeof size, op->bytes);
	if (goal_is_transfer(op) && op->peer == GOAL_ANY)
		snprintf(peer, sizeof peer, "from any");
	else if (goal_is_transfer(op))
		snprintf(peer, sizeof peer, "%s %" PRIu32, op->type == GOAL_SEND ? "to" : "from",
			 op->peer);
	goal_layout_label(l, n, label, sizeof label);
	if (strlen(label) > (*peer ? 5u : 12u))
		label[*peer ? 5 : 12] = '\0';
	snprintf(first, cap, "%s%s%s", goal_op_words[op->type], *size ? " " : "", size);
	snprintf(second, cap, "%s%s%s", label, *label && *peer ? " " : "", peer);
}

static void put_node(const struct goal_layout *l, const struct goal_node *n, FILE *out)
{
	const struct goal_op *op = goal_layout_op(l, n);
	char what[300], first[80], second[80], label[80];
	bool stuck = goal_layout_is_stuck(l, n);

	text_print_op(goal_program_block(l->in->program, n->rank), n->place, what, sizeof what);
	goal_layout_label(l, n, label, sizeof label);
	describe(l, n, first, second, sizeof first);
	fprintf(out, "<g><title>rank %" PRIu32 " ", n->rank);
	put_text(out, label);
	fputs(*label ? ": " : "", out);
	put_text(out, what);
	if (l->in->places)
		fprintf(out, " (line %" PRIu64 ")", l->in->places[n->rank].all[n->place].line);
	fputs(!stuck ? ""
	      : op->type == GOAL_SEND && l->flow.state[n->op] == GOAL_FLOW_ENDED
		      ? " - never received"
		      : " - never ends",
	      out);
	fprintf(out,
		"</title><rect class=\"op %s%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
		"rx=\"5\"/>",
		class_of(op), stuck ? " stuck" : "", n->x, n->y, W, H);
	fprintf(out, "<text class=\"a\" x=\"%d\" y=\"%d\">", n->x + W / 2,
		n->y + (*second ? 14 : 20));
	put_text(out, first);
	if (*second) {
		fprintf(out, "</text><text class=\"b\" x=\"%d\" y=\"%d\">", n->x + W / 2,
			n->y + 26);
		put_text(out, second);
	}
	fputs("</text></g>\n", out);
}

/* ---- edges ------------------------------------------------------------------------------ */

struct drawing {
	const struct goal_layout *l;
	FILE *out;
};

/* A straight line downward; else a curve, vertical at both ends, around boxes of the same
 * column. */
static void put_requirement(void *ctx, const struct goal_node *from, const struct goal_node *to,
			    bool immediate)
{
	struct drawing *d = ctx;
	int x1 = from->x + 16, y1 = from->y + H, x2 = to->x + 16, y2 = to->y, bend = (y2 - y1) / 2;
	const char *class = immediate ? "ireq" : "req";

	if (bend > 40)
		bend = 40;
	if (x1 == x2 && to->level == from->level + 1 && to->row == 0 &&
	    from->row + 1 == d->l->level_rows[from->level])
		fprintf(d->out, "<path class=\"%s\" d=\"M%d %dV%d\"/>\n", class, x1, y1, y2);
	else if (x1 == x2)
		fprintf(d->out,
			"<path class=\"%s\" d=\"M%d %dC%d %d %d %d %d %dV%dC%d %d %d %d %d "
			"%d\"/>\n",
			class, x1, y1, x1, y1 + 10, x1 - 22, y1 + 4, x1 - 22, y1 + 18, y2 - 18,
			x1 - 22, y2 - 4, x2, y2 - 14, x2, y2);
	else
		fprintf(d->out, "<path class=\"%s\" d=\"M%d %dC%d %d %d %d %d %d\"/>\n", class, x1,
			y1, x1, y1 + bend, x2, y2 - bend, x2, y2);
}

static void put_wire(const struct goal_layout *l, const struct goal_node *send, FILE *out)
{
	const struct goal_node *recv = &l->nodes[send->partner];
	int x1 = send->x + W / 2 + 10, x2 = recv->x + W / 2 + 10, y1 = send->y + H, y2 = recv->y;
	char size[32];

	/* a receive that began before its send stands above it */
	if (recv->level <= send->level) {
		x1 = send->x + (recv->x > send->x ? W : 0);
		x2 = recv->x + (recv->x > send->x ? 0 : W);
		y1 -= H / 2;
		y2 += H / 2;
	}
	put_bytes(size, sizeof size, goal_layout_op(l, send)->bytes);
	fprintf(out,
		"<path class=\"wire\" d=\"M%d %dL%d %d\"><title>%s from rank %" PRIu32
		" to rank %" PRIu32 ", tag %" PRIu32 "</title></path>\n",
		x1, y1, x2, y2, size, send->rank, recv->rank, goal_layout_op(l, send)->tag);
}

/* A line from an operation that never ends to what it waits for. */
static void put_wait(const struct goal_layout *l, const struct goal_node *n, FILE *out)
{
	const struct goal_node *to;

	if (l->flow.state[n->op] != GOAL_FLOW_BEGUN)
		return;
	to = goal_layout_node(l, l->flow.why[n->op]);
	if (to)
		fprintf(out,
			"<path class=\"wait\" d=\"M%d %dL%d %d\"><title>waits for "
			"it</title></path>\n",
			n->x + W / 2 + 10, n->y + H, to->x + W / 2 + 10, to->y);
}

/* ---- the whole -------------------------------------------------------------------------- */

static void put_lanes(const struct goal_layout *l, int height, FILE *out)
{
	for (uint32_t i = 0; i < l->lane_count; i++) {
		const struct goal_lane *lane = &l->lanes[i];

		if (i % 2 == 0)
			fprintf(out,
				"<rect class=\"lane\" x=\"%d\" y=\"%d\" width=\"%d\" "
				"height=\"%d\"/>\n",
				lane->x, LAYOUT_TOP - 36, lane->width, height - LAYOUT_TOP + 28);
		fprintf(out, "<text class=\"head\" x=\"%d\" y=\"%d\">rank %" PRIu32 "</text>\n",
			lane->x + lane->width / 2, LAYOUT_TOP - 18, lane->rank);
	}
}

static void put_title(const struct goal_layout *l, FILE *out)
{
	const char *slash = strrchr(l->in->name, '/');

	fprintf(out, "<text class=\"title\" x=\"%d\" y=\"22\">", LAYOUT_MARGIN);
	put_text(out, slash && slash[1] ? slash + 1 : l->in->name);
	fprintf(out, "</text>\n<text class=\"key\" x=\"%d\" y=\"38\">", LAYOUT_MARGIN);
	if (l->lane_count < l->in->program->ranks)
		fprintf(out, "%" PRIu32 " of ", l->lane_count);
	fprintf(out,
		"%" PRIu32 " ranks, %" PRIu32
		" operations; grey: requires, dashed: irequires, blue: messages%s"
		"</text>\n",
		l->in->program->ranks, l->node_count,
		l->flow.ended < l->flow.op_count ? ", red: never ends" : "");
}

void goal_svg_write(const struct goal_layout *l, FILE *out)
{
	struct drawing d = { l, out };
	int width = (int)base_max_u64((uint64_t)l->width, 480);
	int height = (int)base_max_u64((uint64_t)l->height, LAYOUT_TOP + 40);

	fprintf(out,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg "
		"xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
		"height=\"%d\" viewBox=\"0 0 %d %d\">\n",
		width, height, width, height);
	fputs(style, out);
	fprintf(out, "<rect class=\"bg\" width=\"%d\" height=\"%d\"/>\n", width, height);
	put_lanes(l, height, out);
	put_title(l, out);
	goal_layout_edges(l, put_requirement, &d);
	for (uint32_t n = 0; n < l->node_count; n++)
		if (l->nodes[n].partner != GOAL_NONE &&
		    goal_layout_op(l, &l->nodes[n])->type == GOAL_SEND)
			put_wire(l, &l->nodes[n], out);
	for (uint32_t n = 0; n < l->node_count; n++)
		put_wait(l, &l->nodes[n], out);
	for (uint32_t n = 0; n < l->node_count; n++)
		put_node(l, &l->nodes[n], out);
	fputs("</svg>\n", out);
}
