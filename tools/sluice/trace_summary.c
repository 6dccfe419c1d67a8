/* SPDX-License-Identifier: BSD-3-Clause */
/* The table: a line for each place in the program that calls MPI, then details, then what is
 * missing from the trace. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "text.h"
#include "tool.h"
#include "trace/reasons.h"
#include "trace_data.h"

#define DETAILS  12 /* places with details */
#define MESSAGES 20 /* places of messages */
#define REASONS 32

void trace_format_bytes(uint64_t bytes, char *out, size_t cap)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double n = (double)bytes;
	size_t u = 0;

	for (; n >= 1024 && u + 1 < BASE_ARRAY_LEN(units); u++)
		n /= 1024;
	snprintf(out, cap, n == (double)(uint64_t)n ? "%.0f %s" : "%.1f %s", n, units[u]);
}

void trace_format_ns(uint64_t ns, char *out, size_t cap)
{
	if (ns < 1000)
		snprintf(out, cap, "%" PRIu64 " ns", ns);
	else if (ns < 1000000)
		snprintf(out, cap, "%.1f us", (double)ns / 1e3);
	else if (ns < 1000000000)
		snprintf(out, cap, "%.1f ms", (double)ns / 1e6);
	else
		snprintf(out, cap, "%.2f s", (double)ns / 1e9);
}

static void format_gain(const struct trace_place *p, char *out, size_t cap)
{
	char text[32];
	bool lost = p->cost_ns > p->saved_ns;

	trace_format_ns(lost ? p->cost_ns - p->saved_ns : p->saved_ns - p->cost_ns, text,
			sizeof text);
	snprintf(out, cap, "%s%s",
		 !p->totals.early ? ""
		 : lost           ? "-"
				  : "+",
		 p->totals.early ? text : "-");
}

static unsigned percent(uint64_t part, uint64_t whole)
{
	return whole ? (unsigned)((part * 100 + whole / 2) / whole) : 0;
}

/* ---- the table --------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
	const struct trace_place *x = *(struct trace_place *const *)a,
				 *y = *(struct trace_place *const *)b;
	uint64_t tx = x->in_call_ns + x->sampled_ns + x->waited_ns,
		 ty = y->in_call_ns + y->sampled_ns + y->waited_ns;

	return (tx < ty) - (tx > ty);
}

/* Returns: the places that were called, the longest total time first. Owner: the caller. */
static struct trace_place **sorted_places(struct trace_place *places, size_t count,
					  size_t *out_count)
{
	struct trace_place **all = trace_alloc(count * sizeof *all);
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		if (places[i].totals.calls)
			all[n++] = &places[i];
	qsort(all, n, sizeof *all, by_time);
	*out_count = n;
	return all;
}

static void print_line(FILE *out, size_t number, const struct trace_place *p)
{
	char bytes[32], in_call[32], late[32], waited[32], gain[40];

	trace_format_bytes(p->totals.bytes, bytes, sizeof bytes);
	trace_format_ns(p->in_call_ns + p->sampled_ns, in_call, sizeof in_call);
	trace_format_ns(p->late_ns, late, sizeof late);
	trace_format_ns(p->waited_ns, waited, sizeof waited);
	format_gain(p, gain, sizeof gain);
	fprintf(out, "%3zu %10" PRIu64 " %10s %8u %8u %s%9s %9s %9s %9s  %s  %s\n", number,
		p->totals.calls, bytes, p->totals.admitted, p->totals.early,
		p->sampled_ns ? "~" : " ", in_call, p->has_late ? late : "-",
		p->totals.early || p->started ? waited : "-", gain, p->name, p->where);
}

/* ---- one place at length ----------------------------------------------------------------- */

struct reason {
	char text[3 * TRACE_TEXT_BYTES];
	uint64_t calls;
};

static void count_reason(struct reason *all, size_t *count, const char *what, const char *why,
			 uint64_t calls)
{
	char text[sizeof all->text];
	size_t i = 0;

	snprintf(text, sizeof text, "%s%s%s", what, *why ? ": " : "", why);
	while (i < *count && strcmp(all[i].text, text))
		i++;
	if (i == REASONS)
		return;
	if (i == *count) {
		strcpy(all[i].text, text);
		all[i].calls = 0;
		++*count;
	}
	all[i].calls += calls;
}

static int by_calls(const void *a, const void *b)
{
	uint64_t x = ((const struct reason *)a)->calls, y = ((const struct reason *)b)->calls;

	return (x < y) - (x > y);
}

static void print_reasons(FILE *out, const struct trace_data *d, const struct trace_place *p)
{
	static const char *const what[] = {
		"by the host MPI", NULL,     "completed before it returned",
		"returned early",  "failed", "started, completed later"
	};
	struct reason all[REASONS];
	size_t count = 0;

	for (size_t i = 0; i < d->calls_count; i++) {
		const struct trace_call *c = &d->calls[i];
		const struct trace_process *process = &d->processes[c->process];

		char why[2 * TRACE_TEXT_BYTES];

		if (&d->places[c->place] != p || c->outcome >= BASE_ARRAY_LEN(what) ||
		    !what[c->outcome])
			continue;
		if (c->outcome == TRACE_BY_HOST)
			trace_reason(trace_text_of(process, c->why), p->name, why, sizeof why);
		else
			snprintf(why, sizeof why, "%s", trace_text_of(process, c->early_why));
		count_reason(all, &count, what[c->outcome], why, 1);
	}
	if (p->totals.small_calls) /* small calls are sampled */
		count_reason(all, &count, what[TRACE_BY_HOST], TRACE_WHY_SMALL,
			     p->totals.small_calls);
	qsort(all, count, sizeof *all, by_calls);
	for (size_t i = 0; i < count; i++)
		fprintf(out, "    %10" PRIu64 " x %s\n", all[i].calls, all[i].text);
}

/* A place calls one function, so it either starts requests or returns early. */
static void print_requests(FILE *out, const struct trace_place *p)
{
	char pending[32], waited[32];

	trace_format_ns(p->detached_ns / p->started, pending, sizeof pending);
	trace_format_ns(p->waited_ns / p->started, waited, sizeof waited);
	fprintf(out,
		"      after the call: pending for %s, of which the program waited %s (mean of "
		"%" PRIu64 ")\n",
		pending, waited, p->started);
}

static void print_detached(FILE *out, const struct trace_place *p)
{
	uint64_t ended = p->touched + p->called + p->unseen;
	char moving[32], waited[32], saved[32], cost[32];

	if (p->started)
		print_requests(out, p);
	if (!ended)
		return;
	trace_format_ns(p->detached_ns / ended, moving, sizeof moving);
	trace_format_ns(p->waited_ns / ended, waited, sizeof waited);
	trace_format_ns(p->saved_ns, saved, sizeof saved);
	trace_format_ns(p->cost_ns, cost, sizeof cost);
	fprintf(out,
		"      after returning: data moved for %s, the program waited %s (means); %" PRIu64
		" ended by a touch, %" PRIu64 " by a later call, %" PRIu64 " by themselves\n",
		moving, waited, p->touched, p->called, p->unseen);
	fprintf(out, "      early return saved %s and cost %s\n", saved, cost);
}

static void print_place(FILE *out, const struct trace_data *d, size_t number,
			const struct trace_place *p)
{
	uint64_t described = p->mapped + p->plain + p->packed;
	char caller[900];

	trace_caller(p, caller, sizeof caller);
	fprintf(out, "\n%3zu %s called %s, in %u %s\n", number, p->name, caller, p->processes,
		p->processes == 1 ? "process" : "processes");
	print_reasons(out, d, p);
	if (p->received)
		fprintf(out,
			"      received bytes: %u %% copied by the rank itself, %u %% by peers, "
			"%u %% by a channel or the worker\n",
			percent(p->own, p->received), percent(p->peers, p->received),
			percent(p->channel, p->received));
	if (described)
		fprintf(out,
			"      memory: mapped by peers %u %%, not mapped %u %%, packed %u %%\n",
			percent(p->mapped, described), percent(p->plain, described),
			percent(p->packed, described));
	if (p->adopted) {
		char bytes[32], ns[32];

		trace_format_bytes(p->adopted, bytes, sizeof bytes);
		trace_format_ns(p->adopt_ns, ns, sizeof ns);
		fprintf(out, "      adoption: %s became memory that ranks share, which took %s\n",
			bytes, ns);
	}
	print_detached(out, p);
}

/* ---- messages ---------------------------------------------------------------------------- */

static void print_message_line(FILE *out, const struct trace_place *p)
{
	char bytes[32], in_call[32], copying[32] = "-", copied[32] = "-", mapped[16] = "-";

	trace_format_bytes(p->totals.bytes, bytes, sizeof bytes);
	trace_format_ns(p->in_call_ns, in_call, sizeof in_call);
	if (p->totals.copies) {
		trace_format_ns(p->copying_ns, copying, sizeof copying);
		trace_format_bytes(p->totals.copied, copied, sizeof copied);
		snprintf(mapped, sizeof mapped, "%u %%",
			 percent(p->totals.served, p->totals.copied));
	}
	fprintf(out, "%14" PRIu64 " %10s %9s %9s %10s %7s  %s  %s\n", p->totals.calls,
		p->totals.bytes ? bytes : "-", in_call, copying, copied, mapped, p->name, p->where);
}

static void print_messages(FILE *out, const struct trace_data *d)
{
	size_t count;
	struct trace_place **places = sorted_places(d->messages, d->messages_count, &count);

	if (count) {
		fprintf(out,
			"\nMessages, and waiting for requests\n"
			"%14s %10s %9s %9s %10s %7s  %s\n",
			"calls", "bytes", "in calls", "copying", "copied", "mapped", "call site");
		for (size_t i = 0; i < count && i < MESSAGES; i++)
			print_message_line(out, places[i]);
		if (count > MESSAGES)
			fprintf(out, "%zu more call sites take less time\n", count - MESSAGES);
		fputs("bytes: of the buffers that were sent, or in which a message was expected. "
		      "copying: of the time in calls, this rank copied data from the memory of "
		      "other ranks; otherwise it waited for them, or the MPI library worked. "
		      "mapped: of the copied bytes, those that needed no system call.\n",
		      out);
	}
	free(places);
}

/* ---- processes --------------------------------------------------------------------------- */

static void print_process(FILE *out, const struct trace_process *p)
{
	const struct trace_header *h = p->header;

	char name[64], cpu[32];

	trace_process_name(h, name, sizeof name);
	fprintf(out, "  %s (pid %d on %s): %" PRIu64 " records", name, h->pid, h->host, p->records);
	trace_format_ns(h->cpu_us * 1000, cpu, sizeof cpu);
	if (h->cpu_us)
		fprintf(out, ", %s of CPU time", cpu);
	trace_format_ns(h->cpu_wait_us * 1000, cpu, sizeof cpu);
	if (h->cpu_wait_us)
		fprintf(out, ", %s waiting for a CPU", cpu);
	if (*p->engine)
		fprintf(out, ", engine %s", p->engine);
	if (*p->guard)
		fprintf(out, ", guard %s", p->guard);
	if (*h->endpoint)
		fprintf(out, "; %.*s", (int)sizeof h->endpoint - 1, h->endpoint);
	if (h->turns.switches || h->turns.trips)
		fprintf(out,
			"; %" PRIu64 " switches, %" PRIu64 " trips home, %" PRIu64
			" hand-offs, %" PRIu64 " stays",
			h->turns.switches, h->turns.trips, h->turns.handoffs, h->turns.stays);
	if (h->state != TRACE_ENDED && !trace_is_worker(h))
		fputs("; ENDED WITHOUT MPI_Finalize: its records until then are shown", out);
	if (h->overwritten)
		fprintf(out, "; %" PRIu64 " old records were overwritten (SLUICE_TRACE_LIMIT)",
			h->overwritten);
	if (h->dropped)
		fprintf(out, "; %" PRIu64 " records were dropped", h->dropped);
	if (h->uncounted)
		fprintf(out, "; %" PRIu64 " calls are missing from the sums", h->uncounted);
	if (h->error)
		fprintf(out, "; writing ended: %s", strerror((int)h->error));
	fputc('\n', out);
}

void trace_summary(const struct trace_data *d, FILE *out)
{
	struct trace_place **places;
	uint64_t end = 0;
	size_t count;
	char text[32];

	for (size_t i = 0; i < d->processes_count; i++)
		end = base_max_u64(end, d->processes[i].end_ns);
	trace_format_ns(end, text, sizeof text);
	fprintf(out, "%s, %zu %s, %s\n", d->processes[0].header->program, d->processes_count,
		d->processes_count == 1 ? "process" : "processes", text);
	for (size_t i = 0; i < d->processes_count; i++)
		print_process(out, &d->processes[i]);
	places = sorted_places(d->places, d->places_count, &count);
	if (!count && !d->messages_count)
		fputs("\n" TRACE_NO_CALLS "\n", out);
	fprintf(out, "\n%3s %10s %10s %8s %8s %10s %9s %9s %9s  %s\n", "", "calls", "bytes",
		"admitted", "early", "in calls", "late", "waited", "gain", "call site");
	for (size_t i = 0; i < count; i++)
		print_line(out, i + 1, places[i]);
	fputs("bytes: of one rank's message, summed over calls. late: of the times in calls and "
	      "waited, until the last rank came (an estimate). waited: at touches and in later "
	      "calls such as MPI_Wait. gain: what early return saved, less its cost (man "
	      "sluice-trace). ~: extrapolated from a sample of the small calls.\n",
	      out);
	for (size_t i = 0; i < count && i < DETAILS; i++)
		print_place(out, d, i + 1, places[i]);
	if (count > DETAILS)
		fprintf(out, "\n%zu more call sites are in trace.json\n", count - DETAILS);
	free(places);
	print_messages(out, d);
}
