/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The targets of one-sided operations. Only origins record them, so all files are read before the
 * first rank is written. A target has one more CPU for them, which stands for a network card or a
 * progress thread. The CPU receives what each thread of an origin sends, in its order, and answers.
 * Nothing that the target's program does requires this.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "trace_data.h"
#include "trace_schedule.h"

struct operation {
	uint32_t origin;
	uint16_t thread;
	bool is_all;          /* on a communicator of all ranks */
	bool has_back;
	uint64_t bytes, back;
};

struct target {
	struct operation *all;
	size_t count, cap;
};

struct windows {
	uint32_t ranks;
	struct target *targets; /* [ranks] */
};

/* The last operations of an origin's thread. */
struct last {
	uint64_t received, answered;
};

/* Stops where a file is damaged, which is reported when the rank is written. */
static void read_rank(struct windows *w, struct messages_file *f)
{
	struct messages_payload payload = { NULL };
	struct messages_record r;
	bool *is_all = NULL;
	size_t comms = 0, cap = 0;

	while (messages_read(f, &r, &payload) > 0) {
		const struct messages_part *part = payload.data;
		struct target *t;

		if (r.type == MESSAGES_COMM)
			*(bool *)trace_add(&is_all, &comms, &cap, sizeof *is_all) =
				r.count == w->ranks;
		if (r.type != MESSAGES_ONE_SIDED)
			continue;
		if (r.comm >= comms || r.peer < 0 || (uint32_t)r.peer >= w->ranks || r.count > 1)
			break;
		t = &w->targets[r.peer];
		*(struct operation *)trace_add(&t->all, &t->count, &t->cap, sizeof *t->all) =
			(struct operation){ (uint32_t)f->header.rank, r.thread, is_all[r.comm],
					    r.count, r.bytes, r.count ? part->bytes : 0 };
	}
	free(payload.data);
	free(is_all);
}

struct windows *windows_read(struct messages_file *files, uint32_t ranks)
{
	struct windows *w = trace_alloc(sizeof *w);

	w->ranks = ranks;
	w->targets = trace_alloc(ranks * sizeof *w->targets);
	for (uint32_t i = 0; i < ranks; i++)
		if (!files[i].text && !messages_restart(&files[i]))
			read_rank(w, &files[i]);
	return w;
}

void windows_free(struct windows *w)
{
	for (uint32_t i = 0; i < w->ranks; i++)
		free(w->targets[i].all);
	free(w->targets);
	free(w);
}

uint32_t windows_tag(struct messages_names *names, uint32_t thread, bool is_back)
{
	return messages_name_tag(names, 0, 1, 2 * thread + is_back);
}

static uint64_t put(struct schedule_out *o, bool is_recv, uint64_t bytes, int32_t peer,
		    uint32_t thread, uint32_t cpu)
{
	uint64_t label = schedule_label(o);

	fprintf(o->file, "%s %" PRIu64 "b %s %d tag %u cpu %u\n", is_recv ? "recv" : "send", bytes,
		is_recv ? "from" : "to", peer, windows_tag(o->names, thread, !is_recv), cpu);
	o->sums.messages += !is_recv;
	o->sums.bytes += is_recv ? 0 : bytes;
	return label;
}

static void put_operation(struct schedule_out *o, const struct operation *op, int32_t origin,
			  uint32_t cpu, struct last *last)
{
	uint64_t label = put(o, true, op->bytes, origin, op->thread, cpu);

	if (last->received)
		schedule_requires(o, label, last->received);
	last->received = label;
	if (!op->has_back)
		return;
	label = put(o, false, op->back, origin, op->thread, cpu);
	schedule_requires(o, label, last->received);
	if (last->answered)
		fprintf(o->file, "l%" PRIu64 " irequires l%" PRIu64 "\n", label, last->answered);
	last->answered = label;
}

void windows_write(const struct windows *w, struct schedule_out *o, uint32_t first, uint32_t number,
		   uint32_t cpu)
{
	const struct target *t = &w->targets[number];
	struct messages_numbers threads = { NULL };
	struct last *last = NULL;
	size_t count = 0, cap = 0;

	for (size_t i = 0; i < t->count; i++) {
		const struct operation *op = &t->all[i];
		size_t n = messages_number_of(&threads, op->origin, op->thread);

		while (count < n)
			trace_add(&last, &count, &cap, sizeof *last);
		/* as far from the target as the target is from it, in the other direction */
		put_operation(o, op,
			      schedule_rank_at(o, w->ranks, op->is_all, first, number,
					       (int64_t)op->origin - number),
			      cpu, &last[n - 1]);
	}
	free(threads.all);
	free(last);
}
