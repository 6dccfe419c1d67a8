/* SPDX-License-Identifier: BSD-3-Clause */
/* A screen of text, the same as JSON, and what to change. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "report.h"
#include "text.h"
#include "tool.h"
#include "trace/reasons.h"

enum {
	ROWS = 8,
	ADVICES = 5,
	WORTH_PERMILLE = 50, /* less of the run's time is not worth a change */
	SHORT_BYTES = 8 << 10, /* below it Sluice is not known to help */
};

struct advice {
	uint64_t permille;
	char text[768], set[64]; /* set: "SLUICE_COLL=vector:on"; "": nothing to set */
};

static uint64_t permille_of(uint64_t ns, uint64_t all)
{
	return all ? (uint64_t)((double)ns * 1000 / (double)all + 0.5) : 0;
}

/* Returns: the share of the time of all threads that call MPI, in thousandths. */
static uint64_t permille(const struct report *r, uint64_t ns)
{
	return permille_of(ns, r->threads_ns);
}

static const char *program_name(const struct report *r)
{
	return base_file_name(r->data->processes[0].header->program);
}

static uint64_t mean_bytes(const struct report_group *g)
{
	return g->calls ? g->bytes / g->calls : 0;
}

/* ---- advice ------------------------------------------------------------------------------ */

/* Writes "MPI_Alltoallw of 42 MiB (at a.py:14) are 27 % of the run". */
static void name_group(const struct report *r, const struct report_group *g, char *out, size_t cap)
{
	char bytes[32], caller[320] = "at ?", others[32] = "";
	unsigned more = report_more_places(g);

	trace_format_bytes(mean_bytes(g), bytes, sizeof bytes);
	if (report_place(g))
		trace_caller(report_place(g), caller, sizeof caller);
	if (more)
		snprintf(others, sizeof others, " and %u more place%s", more, more > 1 ? "s" : "");
	snprintf(out, cap, "%s%s%s (%s%s) are %" PRIu64 " %% of the run", g->function,
		 g->bytes ? " of " : "", g->bytes ? bytes : "", caller, others,
		 (permille(r, g->ns) + 5) / 10);
}

/* Reasons that need no other fact: the sentence, and the option to set. */
static const struct remedy {
	const char *why, *text, *set;
} remedies[] = {
	{ TRACE_WHY_VECTOR,
	  "ranks do not know each other's sizes, so Sluice does not try by itself",
	  "SLUICE_COLL=vector:on" },
	{ TRACE_WHY_EXCHANGE,
	  "ranks do not know each other's sizes, so Sluice does not try by itself",
	  "SLUICE_COLL=vector:on" },
	{ TRACE_WHY_OFF, "your SLUICE_COLL switches them off; without it Sluice decides", "" },
	{ TRACE_WHY_REQUEST_OFF, "your SLUICE_COLL switches them off; without it Sluice decides",
	  "" },
	{ TRACE_WHY_NEW,
	  "Sluice needs buffers that are used again: allocate them once, on every rank", "" },
	{ TRACE_WHY_NOT_SERVED,
	  "Sluice does not serve the communicator: SLUICE_LOG=info prints the reason", "" },
	{ TRACE_WHY_UNPAID,
	  "they were too few or too short to pay for shared memory; in a longer run Sluice "
	  "decides by trials",
	  "SLUICE_DECIDE=table" },
	{ TRACE_WHY_TIMED,
	  "most were trials against Sluice; in a longer run the faster one executes more",
	  "SLUICE_DECIDE=table" },
	{ TRACE_WHY_SLOWER, "Sluice has tried, and the host MPI was faster", "" },
	{ TRACE_WHY_FIXED, "the last bits depend on who computes, so Sluice does not try by itself",
	  "SLUICE_SUMS=any" },
};

static bool is_one_of(const char *why, const char *const *list)
{
	for (; *list; list++)
		if (!strcmp(why, *list))
			return true;
	return false;
}

/* Writes what admits the calls of a group that the host MPI executes. Returns: the sentence. */
static const char *advise_host(const struct report_group *g, char *set, size_t cap)
{
	static const char *const kind[] = { TRACE_WHY_SIZE, TRACE_WHY_KIND, NULL };
	static const char *const request[] = { TRACE_WHY_REQUEST_SIZE, TRACE_WHY_REQUEST_KIND,
					       NULL };
	const char *why = report_reason(g);
	uint64_t threshold = 1;

	for (size_t i = 0; i < BASE_ARRAY_LEN(remedies); i++)
		if (!strcmp(why, remedies[i].why)) {
			snprintf(set, cap, "%s", remedies[i].set);
			return remedies[i].text;
		}
	if (is_one_of(why, kind) || is_one_of(why, request)) {
		snprintf(set, cap, "SLUICE_COLL=%s:on",
			 is_one_of(why, request) ? "nonblocking" : trace_family(g->function));
		return "the host MPI was faster where Sluice was measured; your machine may "
		       "differ";
	}
	if (!strcmp(why, TRACE_WHY_SMALL) && mean_bytes(g) >= SHORT_BYTES) {
		while (threshold * 2 <= mean_bytes(g))
			threshold *= 2;
		base_format_bytes(threshold, set + snprintf(set, cap, "SLUICE_COLL_THRESHOLD="),
				  cap - strlen("SLUICE_COLL_THRESHOLD=") - 1);
		return "they are below the threshold";
	}
	if (!strcmp(why, TRACE_WHY_SMALL))
		return "messages this short are left to the host MPI; their time is latency, and "
		       "waiting for late ranks";
	return NULL;
}

/* Returns: whether ranks were without a CPU for so long that most of a wait may come from that. */
static bool may_lack_cpus(const struct report *r, uint64_t ns)
{
	return r->cpu_wait_ns * 2 > ns;
}

/* Returns: whether there is something to say about the group. */
static bool advise(struct report *r, struct report_group *g, struct advice *out)
{
	char name[256], why[2 * TRACE_TEXT_BYTES];
	bool is_host = g->admitted * 2 < g->calls, known;
	int64_t gain = report_gain(g, &known);
	const char *text = NULL;

	*out = (struct advice){ .permille = permille(r, g->ns) };
	if (out->permille < WORTH_PERMILLE)
		return false;
	if (g->waiting_ns * 2 > g->ns) {
		text = may_lack_cpus(r, g->ns) ?
			       "most of it is waiting for late ranks, which may have had no CPU" :
			       "most of it is waiting for late ranks: a more even distribution of "
			       "work would help, and no MPI library";
	} else if (is_host) {
		text = advise_host(g, out->set, sizeof out->set);
		if (!text) {
			trace_reason(report_reason(g), g->function, why, sizeof why);
			text = why;
		}
	} else if (known && gain < 0 && (uint64_t)-gain * 20 > g->ns) {
		snprintf(out->set, sizeof out->set, "SLUICE_COLL=%s:off",
			 trace_family(g->function));
		text = "the host MPI was faster in this program";
	}
	name_group(r, g, name, sizeof name);
	if (text)
		snprintf(out->text, sizeof out->text, "%s: %s%s%s", name, text,
			 *out->set ? "; try " : "", out->set);
	return text;
}

static void advise_adoption(const struct report *r, struct advice *out)
{
	char bytes[32];

	trace_format_bytes(r->adopted, bytes, sizeof bytes);
	*out = (struct advice){ .permille = permille(r, r->adopt_ns) };
	snprintf(out->text, sizeof out->text,
		 "adoption of %s is %" PRIu64 " %% of the run: each buffer pays it once, so "
		 "programs that use their buffers longer pay less",
		 bytes, (out->permille + 5) / 10);
}

static void advise_cpus(const struct report *r, struct advice *out)
{
	*out = (struct advice){ .permille = permille_of(r->cpu_wait_ns, r->ranks_ns) };
	snprintf(out->text, sizeof out->text,
		 "for %" PRIu64 " %% of the time the ranks were ready to run and had no CPU: other "
		 "programs use the CPUs, there are more ranks than CPUs, or several ranks are "
		 "bound to one (see top, and taskset -cp PID)",
		 (out->permille + 5) / 10);
}

/* Returns: whether there is something to say about messages. */
static bool advise_messages(const struct report *r, struct advice *out)
{
	const struct report_messages *m = &r->messages;
	const char *text = NULL;
	char caller[320];

	*out = (struct advice){ .permille = permille(r, m->ns) };
	if (out->permille < WORTH_PERMILLE)
		return false;
	if (m->copying_ns * 4 < m->ns)
		text = may_lack_cpus(r, m->ns) ?
			       "little of it is copying, so they wait for late ranks, which may "
			       "have had no CPU, or are short" :
			       "little of it is copying, so they wait for late ranks, or are "
			       "short: a more even distribution of work, or fewer and longer "
			       "messages would help";
	else if (m->served * 2 < m->copied)
		text = "the kernel copies most of their data: Sluice needs buffers that are used "
		       "again, and SLUICE_MESSAGES must not be off";
	if (!text)
		return false;
	trace_caller(m->place, caller, sizeof caller);
	snprintf(out->text, sizeof out->text,
		 "messages (most time in %s called %s) are %" PRIu64 " %% of the run: %s",
		 m->place->name, caller, (out->permille + 5) / 10, text);
	return true;
}

/* Returns: how many. */
static size_t find_advice(struct report *r, struct advice out[ADVICES])
{
	size_t n = 0;

	if (permille_of(r->cpu_wait_ns, r->ranks_ns) >= WORTH_PERMILLE)
		advise_cpus(r, &out[n++]);
	for (size_t i = 0; i < r->groups_count && n < ADVICES - 2; i++)
		n += advise(r, &r->groups[i], &out[n]);
	n += advise_messages(r, &out[n]);
	if (permille(r, r->adopt_ns) >= WORTH_PERMILLE)
		advise_adoption(r, &out[n++]);
	return n;
}

/* Returns: what to conclude where nothing is to be changed. */
static const char *conclusion(const struct report *r)
{
	if (permille(r, r->ns) < WORTH_PERMILLE && permille(r, r->messages.ns) < WORTH_PERMILLE)
		return "nothing: collectives and messages take too little of the time";
	if (permille(r, r->ns) < WORTH_PERMILLE)
		return "nothing was found";
	return r->admitted ? "nothing was found" : "nothing was found; Sluice executed no call";
}

/* ---- text -------------------------------------------------------------------------------- */

static unsigned percent_of(uint64_t part, uint64_t whole)
{
	return whole ? (unsigned)((double)part * 100 / (double)whole + 0.5) : 0;
}

static void format_signed(int64_t ns, char *out, size_t cap)
{
	*out = ns < 0 ? '-' : '+';
	trace_format_ns((uint64_t)(ns < 0 ? -ns : ns), out + 1, cap - 1);
}

static void print_row(const struct report *r, struct report_group *g, FILE *out)
{
	char each[32] = "-", ours[32] = "-", host[32] = "-", gained[32] = "-";
	uint64_t a = report_median(g->sluice, g->sluice_count),
		 b = report_median(g->host, g->host_count);
	bool known;
	int64_t gain = report_gain(g, &known);

	if (g->bytes)
		trace_format_bytes(mean_bytes(g), each, sizeof each);
	if (a)
		trace_format_ns(a, ours, sizeof ours);
	if (b)
		trace_format_ns(b, host, sizeof host);
	if (known)
		format_signed(gain, gained, sizeof gained);
	fprintf(out, "%4" PRIu64 " %% %6u %% %9" PRIu64 " %10s %6u %% %9s %9s %9s  %s%s\n",
		(permille(r, g->ns) + 5) / 10, percent_of(g->waiting_ns, g->ns), g->calls, each,
		percent_of(g->admitted, g->calls), ours, host, gained, g->function,
		g->size_class == REPORT_SMALL ? ", short" : "");
}

static void print_messages(const struct report *r, FILE *out)
{
	const struct report_messages *m = &r->messages;
	unsigned in = (unsigned)permille(r, m->ns), copying = (unsigned)permille(r, m->copying_ns);
	char copied[32];

	if (!m->calls)
		return;
	trace_format_bytes(m->copied, copied, sizeof copied);
	fprintf(out,
		"Messages, and waiting for requests, take %u.%u %%: %u.%u %% copying, the rest "
		"waiting for other ranks, or in the\nMPI library.",
		in / 10, in % 10, copying / 10, copying % 10);
	if (m->copied)
		fprintf(out, " Ranks copied %s from each other, %u %% of it without a system call.",
			copied, percent_of(m->served, m->copied));
	fputs("\n\n", out);
}

void report_print(struct report *r, FILE *out)
{
	struct advice advice[ADVICES];
	size_t n = find_advice(r, advice);
	unsigned in = (unsigned)permille(r, r->ns), waiting = (unsigned)permille(r, r->waiting_ns);
	char wall[32], cpu[32];

	trace_format_ns(r->wall_ns, wall, sizeof wall);
	trace_format_ns(r->cpu_ns, cpu, sizeof cpu);
	fprintf(out, "%s: %u %s, %s%s%s%s. Collectives take %u.%u %% of the time: ",
		program_name(r), r->ranks, r->ranks == 1 ? "rank" : "ranks", wall,
		r->cpu_ns ? ", " : "", r->cpu_ns ? cpu : "", r->cpu_ns ? " of CPU time" : "",
		in / 10, in % 10);
	fprintf(out,
		"%u.%u %% until the last rank has called, the rest moving, computing and "
		"sleeping.\n",
		waiting / 10, waiting % 10);
	fprintf(out,
		"Sluice executed %" PRIu64 " of %" PRIu64 " calls, with %u %% of that time.\n",
		r->admitted, r->calls, percent_of(r->sluice_ns, r->ns));
	if (!r->calls && !r->messages.calls)
		fputs(TRACE_NO_CALLS "\n", out);
	if (r->unfinished)
		fprintf(out, "%u %s ended without MPI_Finalize: these are the calls until then.\n",
			r->unfinished, r->unfinished == 1 ? "rank" : "ranks");
	if (r->lost)
		fprintf(out,
			"The files had no room for the records of %" PRIu64 " calls (sluice trace "
			"--limit): the lines are estimates.\n",
			r->lost);
	fputc('\n', out);
	print_messages(r, out);
	fprintf(out, "%6s %8s %9s %10s %8s %9s %9s %9s  %s\n", "of run", "waiting", "calls",
		"bytes each", "Sluice's", "a call", "host's", "gained", "collective");
	for (size_t i = 0; i < r->groups_count && i < ROWS; i++)
		if (permille(r, r->groups[i].ns) || i < 3)
			print_row(r, &r->groups[i], out);
	fputs("a call, host's: median times by Sluice and by the host MPI, where both were "
	      "measured\n\nWhat to change:\n", out);
	for (size_t i = 0; i < n; i++)
		fprintf(out, "- %s\n", advice[i].text);
	if (!n)
		fprintf(out, "- %s\n", conclusion(r));
}

/* ---- JSON -------------------------------------------------------------------------------- */

static void put_group(struct text_json *j, const struct report *r, struct report_group *g)
{
	char why[2 * TRACE_TEXT_BYTES];
	bool known;
	int64_t gain = report_gain(g, &known);

	text_json_open(j, NULL, '{');
	text_json_string(j, "function", g->function);
	text_json_bool(j, "is_short", g->size_class == REPORT_SMALL);
	text_json_uint(j, "calls", g->calls);
	text_json_uint(j, "admitted", g->admitted);
	text_json_uint(j, "bytes", g->bytes);
	text_json_uint(j, "ns", g->ns);
	text_json_uint(j, "waiting_ns", g->waiting_ns);
	text_json_uint(j, "permille", permille(r, g->ns));
	text_json_uint(j, "sluice_call_ns", report_median(g->sluice, g->sluice_count));
	text_json_uint(j, "host_call_ns", report_median(g->host, g->host_count));
	if (known)
		text_json_int(j, "gained_ns", gain);
	text_json_string(j, "where", report_place(g) ? report_place(g)->where : NULL);
	trace_reason(report_reason(g), g->function, why, sizeof why);
	text_json_string(j, "why_host", g->admitted < g->calls ? why : NULL);
	text_json_close(j, '}');
}

void report_print_json(struct report *r, FILE *out)
{
	struct text_json j = { .out = out };
	struct advice advice[ADVICES];
	size_t n = find_advice(r, advice);

	text_json_open(&j, NULL, '{');
	text_json_string(&j, "program", r->data->processes[0].header->program);
	text_json_uint(&j, "ranks", r->ranks);
	text_json_uint(&j, "unfinished", r->unfinished);
	text_json_uint(&j, "wall_ns", r->wall_ns);
	text_json_uint(&j, "threads_ns", r->threads_ns);
	text_json_uint(&j, "cpu_ns", r->cpu_ns);
	text_json_uint(&j, "cpu_wait_ns", r->cpu_wait_ns);
	text_json_uint(&j, "collectives_ns", r->ns);
	text_json_uint(&j, "waiting_ns", r->waiting_ns);
	text_json_uint(&j, "sluice_ns", r->sluice_ns);
	text_json_uint(&j, "calls", r->calls);
	text_json_uint(&j, "admitted", r->admitted);
	text_json_uint(&j, "lost", r->lost);
	text_json_uint(&j, "adopted", r->adopted);
	text_json_uint(&j, "adopt_ns", r->adopt_ns);
	text_json_open(&j, "messages", '{');
	text_json_uint(&j, "calls", r->messages.calls);
	text_json_uint(&j, "bytes", r->messages.bytes);
	text_json_uint(&j, "ns", r->messages.ns);
	text_json_uint(&j, "copying_ns", r->messages.copying_ns);
	text_json_uint(&j, "copied", r->messages.copied);
	text_json_uint(&j, "mapped", r->messages.served);
	text_json_close(&j, '}');
	text_json_open(&j, "groups", '[');
	for (size_t i = 0; i < r->groups_count; i++)
		put_group(&j, r, &r->groups[i]);
	text_json_close(&j, ']');
	text_json_open(&j, "advice", '[');
	for (size_t i = 0; i < n; i++) {
		text_json_open(&j, NULL, '{');
		text_json_uint(&j, "permille", advice[i].permille);
		text_json_string(&j, "text", advice[i].text);
		text_json_string(&j, "set", *advice[i].set ? advice[i].set : NULL);
		text_json_close(&j, '}');
	}
	text_json_close(&j, ']');
	text_json_close(&j, '}');
	fputc('\n', out);
}
