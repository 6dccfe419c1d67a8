/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sluice goal check: mistakes of a text, then of the program: messages without receive, receives
 * without message, sizes that differ, deadlocks. The program is executed without time, first with
 * all messages buffered, then with none (goal_flow.c).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "goal.h"
#include "goal_flow.h"
#include "text.h"

static const char help[] =
	"usage: sluice goal check [--json] [--strict] FILE...\n"
	"\n"
	"Reports mistakes with file, line and operations: errors in the text, receives\n"
	"without a message, messages without a receive, sizes that differ, deadlocks. A\n"
	"deadlock that occurs only when messages are not buffered is a warning. FILE is\n"
	"a text or a compiled program; - is standard input.\n"
	"\n"
	"  --strict  treat warnings as mistakes\n"
	"  --json    print JSON\n"
	"\n"
	"Examples:\n"
	"  sluice goal check text.goal\n"
	"  echo 'num_ranks 1; rank 0 { l1: calc 5 }' | sluice goal check --json -\n"
	"\n"
	"Exit code: 0 no mistake; 1 a mistake, or FILE cannot be read; 2 misuse.\n"
	"More: man sluice-goal\n";

/* mistakes of one kind that are listed; operations of a deadlock that are shown */
enum { SHOWN = 10, CYCLE_SHOWN = 24 };

struct check {
	struct goal_input in;
	struct goal_flow flow;
	uint64_t operations, messages, bytes, any_count, one_sided;
	uint64_t hidden; /* mistakes that are not listed */
	bool warns;      /* problems found now are warnings */
	bool failed;     /* a mistake was found */
	bool is_file;    /* the file could be read */
};

/* ---- names of operations ---------------------------------------------------------------- */

static const struct text_place *place_of(const struct check *c, uint32_t rank, uint32_t i)
{
	return c->in.places ? &c->in.places[rank].all[i] : NULL;
}

static uint64_t line_of(const struct check *c, uint32_t op)
{
	uint32_t rank = c->flow.rank[op];
	const struct text_place *place = place_of(c, rank, op - c->flow.first[rank]);

	return place ? place->line : 0;
}

/* "rank 2 receive l5 (recv 10b from 1 tag 3), line 9" */
static char *name_of(const struct check *c, uint32_t op, bool with_line)
{
	uint32_t rank = c->flow.rank[op], i = op - c->flow.first[rank];
	const struct text_place *place = place_of(c, rank, i);
	char what[200], line[40] = "", label[60] = "";
	char *name;

	text_print_op(goal_program_block(c->flow.program, rank), i, what, sizeof what);
	if (!place)
		snprintf(label, sizeof label, "l%" PRIu32 ": ", i);
	else if (place->label != TEXT_NO_LABEL)
		snprintf(label, sizeof label, "%.50s: ", c->in.places[rank].labels + place->label);
	if (place && with_line)
		snprintf(line, sizeof line, " (line %" PRIu64 ")", place->line);
	if (asprintf(&name, "rank %" PRIu32 " '%s%s'%s", rank, label, what, line) < 0)
		return NULL;
	return name;
}

/* ---- what is wrong ---------------------------------------------------------------------- */

/* fmt has one %s, the operation. Returns: true when the problem was listed. */
static bool report(struct check *c, uint32_t *count, uint32_t op, const char *fmt)
{
	char *name;

	c->failed |= !c->warns;
	if (++*count > SHOWN) {
		c->hidden++;
		return false;
	}
	name = name_of(c, op, false);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	goal_problem_add(&c->in.problems, line_of(c, op), fmt, name ? name : "?");
#pragma GCC diagnostic pop
	free(name);
	return true;
}

static void add_note(struct check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_note(struct check *c, const char *fmt, ...)
{
	struct goal_problem *p = &c->in.problems.all[c->in.problems.count - 1];
	char *note, *all;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vasprintf(&note, fmt, args);
	va_end(args);
	if (n < 0)
		return;
	if (asprintf(&all, "%s%s\n", p->notes ? p->notes : "", note) >= 0) {
		free(p->notes);
		p->notes = all;
	}
	free(note);
}

static uint64_t count_one_sided(const struct goal_flow *f)
{
	uint64_t count = 0;
	uint32_t rank;

	for (uint32_t op = 0; op < f->op_count; op++)
		count += goal_is_one_sided(goal_flow_op(f, op, &rank));
	return count;
}

static void check_sizes(struct check *c)
{
	const struct goal_flow *f = &c->flow;
	uint32_t listed = 0;

	for (uint32_t op = 0; op < f->op_count; op++) {
		uint32_t rank, from;
		const struct goal_op *recv = goal_flow_op(f, op, &rank), *send;
		char *name;

		if (recv->type != GOAL_RECV || f->partner[op] == GOAL_NONE)
			continue;
		send = goal_flow_op(f, f->partner[op], &from);
		if (send->bytes == recv->bytes ||
		    !report(c, &listed, op, "%s gets a message of another size"))
			continue;
		name = name_of(c, f->partner[op], true);
		add_note(c, "%s sends %" PRIu64 " bytes, not %" PRIu64, name ? name : "?",
			 send->bytes, recv->bytes);
		free(name);
	}
}

static void check_unreceived(struct check *c)
{
	const struct goal_flow *f = &c->flow;
	uint32_t listed = 0;

	for (uint32_t op = 0; op < f->op_count; op++) {
		uint32_t rank;

		if (f->state[op] == GOAL_FLOW_ENDED && f->partner[op] == GOAL_NONE &&
		    goal_flow_op(f, op, &rank)->type == GOAL_SEND)
			report(c, &listed, op, "no rank receives what %s sends");
	}
}

/* Follows why[] from `op` until an operation comes again. */
static void report_cycle(struct check *c, uint32_t op, uint32_t *listed)
{
	const struct goal_flow *f = &c->flow;
	uint32_t at = op, shown = 0;

	if (!report(c, listed, op,
		    f->rendezvous
			    ? "warning: deadlock unless messages are buffered: %s waits for itself"
			    : "deadlock: %s waits for itself"))
		return;
	do {
		char *name = name_of(c, at, true);
		uint32_t next = f->why[at], rank;
		const struct goal_op *o = goal_flow_op(f, at, &rank);
		const char *why = f->state[at] == GOAL_FLOW_WAITS ? "requires"
				  : o->type == GOAL_SEND          ? "waits for the receive"
								  : "waits for the send";

		if (shown++ < CYCLE_SHOWN)
			add_note(c, "%s %s", name ? name : "?", why);
		free(name);
		at = next;
	} while (at != op);
	if (shown > CYCLE_SHOWN)
		add_note(c, "... and %" PRIu32 " more ...", shown - CYCLE_SHOWN);
	add_note(c, "back to the first operation");
}

/* Follows why[] from each operation to the cause: an operation without a partner, or a cycle. */
static int check_stuck(struct check *c)
{
	struct goal_flow *f = &c->flow;
	uint32_t *mark, cycles = 0, absent = 0;

	if (goal_flow_explain(f))
		return -ENOMEM;
	mark = calloc(f->op_count + 1ull, sizeof *mark);
	if (!mark)
		return -ENOMEM;
	for (uint32_t op = 0; op < f->op_count; op++) {
		uint32_t at = op;

		if (f->state[op] == GOAL_FLOW_ENDED)
			continue;
		while (at != GOAL_NONE && !mark[at]) {
			mark[at] = op + 1;
			if (f->why[at] == GOAL_NONE)
				report(c, &absent, at,
				       f->rendezvous ? "no rank receives what %s sends"
						     : "%s waits for ever: no rank sends to it");
			at = f->why[at];
		}
		if (at != GOAL_NONE && mark[at] == op + 1)
			report_cycle(c, at, &cycles);
	}
	free(mark);
	return 0;
}

/* ---- a file ----------------------------------------------------------------------------- */

static int execute(struct check *c, bool rendezvous)
{
	int ret = goal_flow_run(&c->flow, c->in.program, rendezvous);

	if (ret)
		return ret;
	if (!rendezvous) {
		c->operations = c->flow.op_count;
		c->messages = c->flow.messages;
		c->bytes = c->flow.bytes;
		c->any_count = c->flow.any_count;
		c->one_sided = count_one_sided(&c->flow);
		check_sizes(c);
		check_unreceived(c);
	}
	if (c->flow.ended < c->flow.op_count)
		ret = check_stuck(c);
	goal_flow_free(&c->flow);
	return ret;
}

/* Returns: 0; TOOL_FAILED after a message: the file cannot be read. */
static int check_file(struct check *c, const char *path, bool strict)
{
	int ret;

	*c = (struct check){ 0 };
	ret = goal_input_open(&c->in, "check", path, true);
	c->is_file = !ret || c->in.problems.count;
	c->failed = ret;
	if (ret)
		return c->is_file ? 0 : ret;
	ret = execute(c, false);
	c->warns = !strict;
	/* a mistake with all messages buffered is one without buffers, too */
	if (!ret && !c->in.problems.count)
		ret = execute(c, true);
	if (!ret)
		return 0;
	c->is_file = false;
	c->failed = true;
	return goal_input_refuse(&c->in, "check", "%s", goal_why(ret));
}

static void print_result(const struct check *c)
{
	goal_problems_print(&c->in.problems, c->in.name);
	if (c->hidden)
		fprintf(stderr, "%s: %" PRIu64 " more like these\n", c->in.name, c->hidden);
	if (c->failed)
		return;
	printf("%s: %" PRIu32 " ranks, %" PRIu64 " operations, %" PRIu64 " messages, %" PRIu64
	       " bytes: no mistakes\n",
	       c->in.name, c->in.program->ranks, c->operations, c->messages, c->bytes);
	if (c->any_count)
		printf("%s: %" PRIu64 " receives take any source or tag: only one order of their "
				      "messages was tried\n",
		       c->in.name, c->any_count);
	if (c->one_sided)
		printf("%s: %" PRIu64 " one-sided operations: only sluice goal sim checks their "
		       "entries and counters\n",
		       c->in.name, c->one_sided);
}

static void json_notes(struct text_json *j, const char *notes)
{
	char *copy = strdup(notes ? notes : ""), *rest = copy, *line;

	text_json_open(j, "notes", '[');
	while ((line = strsep(&rest, "\n")) && *line)
		text_json_string(j, NULL, line);
	text_json_close(j, ']');
	free(copy);
}

static void json_result(struct text_json *j, const struct check *c)
{
	text_json_open(j, NULL, '{');
	text_json_string(j, "file", c->in.name);
	text_json_bool(j, "ok", !c->failed);
	if (c->in.program) {
		text_json_uint(j, "ranks", c->in.program->ranks);
		text_json_uint(j, "operations", c->operations);
		text_json_uint(j, "messages", c->messages);
		text_json_uint(j, "bytes", c->bytes);
		text_json_uint(j, "receives_from_any", c->any_count);
		text_json_uint(j, "one_sided", c->one_sided);
	}
	text_json_open(j, "problems", '[');
	for (size_t i = 0; i < c->in.problems.count; i++) {
		const struct goal_problem *p = &c->in.problems.all[i];

		text_json_open(j, NULL, '{');
		text_json_uint(j, "line", p->line);
		text_json_uint(j, "column", p->column);
		text_json_string(j, "message", p->message);
		text_json_string(j, "text", p->text);
		json_notes(j, p->notes);
		text_json_close(j, '}');
	}
	text_json_close(j, ']');
	text_json_uint(j, "problems_not_listed", c->hidden);
	text_json_close(j, '}');
}

static int check_files(const char *const *files, size_t count, bool strict, bool json)
{
	struct text_json j = { .out = stdout };
	int ret = TOOL_DONE;

	if (json)
		text_json_open(&j, NULL, '[');
	for (size_t i = 0; i < count; i++) {
		struct check c;

		if (check_file(&c, files[i], strict) || c.failed)
			ret = TOOL_FAILED;
		if (c.in.why)
			goal_problem_add(&c.in.problems, 0, "%s", c.in.why);
		if (json)
			json_result(&j, &c);
		else if (c.is_file)
			print_result(&c);
		goal_input_close(&c.in);
	}
	if (json)
		text_json_close(&j, ']');
	return ret;
}

int goal_check_main(int argc, char **argv)
{
	static const char *const names[] = { "--help", "-h", "--json", "--strict", NULL };
	const char **files = malloc((size_t)argc * sizeof *files), *value;
	bool json = false, strict = false;
	size_t count = 0;
	int at = 1, arg, ret = TOOL_MISUSE;

	while (files && (arg = goal_next_arg("check", names, argv, &at, &value)) != GOAL_ARG_END) {
		if (arg == GOAL_ARG_WRONG)
			goto out;
		if (arg == 0 || arg == 1) {
			fputs(help, stdout);
			ret = TOOL_DONE;
			goto out;
		}
		json |= arg == 2;
		strict |= arg == 3;
		if (arg == GOAL_ARG_WORD)
			files[count++] = value;
	}
	if (count)
		ret = check_files(files, count, strict, json);
	else
		tool_say("goal check: no FILE; see: sluice goal check --help");
out:
	free(files);
	return ret;
}
