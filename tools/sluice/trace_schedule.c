/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Records of a rank -> its operations, as text.
 *
 * Each thread is a chain on a CPU of its own. A blocking operation ends a link: the next operation
 * requires its end. A nonblocking one is a side branch: the next operation requires only that it
 * has begun, so messages of one tag keep their order. The computing after a wait requires what was
 * waited for.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace_data.h"
#include "trace_schedule.h"

struct labels {
	uint64_t *all;
	size_t count, cap;
};

struct request {
	struct request *next;
	uint32_t id, thread;
	uint64_t label;          /* 0: of a partitioned send that is not complete */
	struct labels ready;     /* what the parts of such a send require */
	struct messages_record posted; /* a receive that is not described yet; else type NOTHING */
};

struct thread {
	uint64_t ended, begun;   /* labels; 0: none. begun: nonblocking, after `ended` */
	struct labels waited;    /* what the next computing requires */
};

/* A one-sided operation that has not been waited for. */
struct pending {
	uint32_t comm;
	int32_t peer, channel;
	uint64_t label;
};

enum { BUCKETS = 4096 };

struct rank {
	struct schedule_out *out;
	uint32_t number, ranks;  /* as traced */
	uint32_t first;          /* number of the program's rank that traced rank 0 stands for */
	struct thread *threads;
	size_t threads_count, threads_cap;
	struct schedule_comm *comms;
	size_t comms_count, comms_cap;
	struct request *requests[BUCKETS];
	struct pending *pending;
	size_t pending_count, pending_cap;
	struct thread *now;      /* of the present record */
	uint64_t traced_ns;
	bool has_end;
};

uint64_t schedule_label(struct schedule_out *o)
{
	fprintf(o->file, "l%" PRIu64 ": ", ++o->labels);
	return o->labels;
}

void schedule_requires(struct schedule_out *o, uint64_t op, uint64_t before)
{
	fprintf(o->file, "l%" PRIu64 " requires l%" PRIu64 "\n", op, before);
}

/* ---- the chain --------------------------------------------------------------------------- */

/* Writes what an operation that comes next in its thread requires. */
static void follow(void *ctx, uint64_t label)
{
	struct rank *k = ctx;

	if (k->now->begun)
		fprintf(k->out->file, "l%" PRIu64 " irequires l%" PRIu64 "\n", label,
			k->now->begun);
	else if (k->now->ended)
		schedule_requires(k->out, label, k->now->ended);
}

static void add_label(struct labels *l, uint64_t label)
{
	*(uint64_t *)trace_add(&l->all, &l->count, &l->cap, sizeof *l->all) = label;
}

/* Writes that an operation requires all of these but one. */
static void requires_all(struct rank *k, uint64_t label, struct labels *l, uint64_t but)
{
	for (size_t i = 0; i < l->count; i++)
		if (l->all[i] != but)
			schedule_requires(k->out, label, l->all[i]);
	l->count = 0;
}

static void end_line(struct rank *k)
{
	if (k->out->thread)
		fprintf(k->out->file, " cpu %u", k->out->thread);
	fputc('\n', k->out->file);
}

static void blocking(struct rank *k, uint64_t label)
{
	k->now->ended = label;
	k->now->begun = 0;
}

static void compute(struct rank *k, uint64_t ns)
{
	struct thread *t = k->now;
	uint64_t label;

	if (!ns && !t->waited.count)
		return;
	label = schedule_label(k->out);
	fprintf(k->out->file, "calc %" PRIu64, ns);
	end_line(k);
	follow(k, label);
	requires_all(k, label, &t->waited, 0);
	blocking(k, label);
}

static void wait_for(struct rank *k, uint64_t label)
{
	add_label(&k->now->waited, label);
}

/* ---- messages ---------------------------------------------------------------------------- */

/* Neighbours in a ring stay neighbours. */
int32_t schedule_rank_at(const struct schedule_out *o, uint32_t ranks, bool is_all, uint32_t first,
			 uint32_t number, int64_t distance)
{
	int64_t all = o->ranks, half = ranks;

	if (is_all && 2 * distance > half)
		distance -= ranks;
	else if (is_all && 2 * distance < -half)
		distance += ranks;
	return (int32_t)((first + number + distance + all) % all);
}

/* Returns: the rank of the program that a traced one stands for. */
static int32_t extrapolated(const struct rank *k, const struct schedule_comm *c, int32_t peer)
{
	if (peer == MESSAGES_ANY)
		return -1;
	if (peer < 0)
		return peer;
	return schedule_rank_at(k->out, k->ranks, c->size == k->out->ranks, k->first, k->number,
				(int64_t)peer - k->number);
}

static void put_transfer(struct rank *k, const struct messages_record *r, bool is_recv,
			 uint64_t label)
{
	struct schedule_out *o = k->out;
	const struct schedule_comm *comm = &k->comms[r->comm];

	fprintf(o->file, "l%" PRIu64 ": %s %" PRIu64 "b %s %d tag %u", label,
		is_recv ? "recv" : "send", r->bytes, is_recv ? "from" : "to",
		extrapolated(k, comm, r->peer),
		messages_name_tag(o->names, comm->name, r->count, (uint32_t)r->tag));
	end_line(k);
	o->sums.messages += !is_recv;
	o->sums.bytes += is_recv ? 0 : r->bytes;
}

static void put_blocking(struct rank *k, const struct messages_record *r)
{
	uint64_t label = ++k->out->labels;

	put_transfer(k, r, r->type == MESSAGES_RECV, label);
	follow(k, label);
	blocking(k, label);
}

static struct request **request_find(struct rank *k, uint32_t id)
{
	struct request **at = &k->requests[id % BUCKETS];

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	return at;
}

static struct request *request_add(struct rank *k, uint32_t id, uint64_t label)
{
	struct request *q = trace_alloc(sizeof *q), **bucket = &k->requests[id % BUCKETS];

	q->id = id;
	q->label = label;
	q->thread = k->out->thread;
	q->next = *bucket;
	*bucket = q;
	return q;
}

static void put_nonblocking(struct rank *k, const struct messages_record *r)
{
	uint64_t label = ++k->out->labels;
	struct request *q = r->id ? *request_find(k, r->id) : NULL;
	bool is_in_parts = q && !q->label;

	if (is_in_parts)
		q->label = label;
	else if (r->id)
		q = request_add(k, r->id, label);
	if (r->type == MESSAGES_IRECV && q && !r->count)
		q->posted = *r; /* what comes is known when it is complete */
	else
		put_transfer(k, r, r->type == MESSAGES_IRECV, label);
	follow(k, label);
	if (is_in_parts)
		requires_all(k, label, &q->ready, k->now->begun ? 0 : k->now->ended);
	k->now->begun = label;
}

/* A part of a partitioned send is ready when its thread has come here. */
static void put_ready(struct rank *k, const struct messages_record *r)
{
	struct request *q = *request_find(k, r->id);

	if (!q)
		q = request_add(k, r->id, 0);
	if (!q->label && k->now->ended &&
	    !(q->ready.count && q->ready.all[q->ready.count - 1] == k->now->ended))
		add_label(&q->ready, k->now->ended);
}

static void request_free(struct request *q)
{
	free(q->ready.all);
	free(q);
}

/* Writes a receive on the CPU of the thread that has posted it. */
static void put_received(struct rank *k, const struct request *q, const struct messages_record *r)
{
	uint32_t thread = k->out->thread;

	k->out->thread = q->thread;
	if (r && r->peer != -1 && r->tag >= 0) {
		put_transfer(k, r, true, q->label);
	} else {
		fprintf(k->out->file, "l%" PRIu64 ": calc 0", q->label);
		end_line(k);
	}
	k->out->thread = thread;
}

static void put_done(struct rank *k, const struct messages_record *r)
{
	struct request **at = request_find(k, r->id), *q = *at;

	if (!q || !q->label)
		return;
	if (q->posted.type)
		put_received(k, q, r->type == MESSAGES_DONE ? r : NULL);
	wait_for(k, q->label);
	*at = q->next;
	request_free(q);
}

/* Receives that the program never waited for: what they were posted with, if that is enough. */
static void end_requests(struct rank *k)
{
	for (size_t i = 0; i < BUCKETS; i++)
		for (struct request *q = k->requests[i], *next; q; q = next) {
			next = q->next;
			if (q->posted.type)
				put_received(k, q, &q->posted);
			request_free(q);
		}
}

/* ---- one-sided operations ---------------------------------------------------------------- */

static uint64_t put_side(struct rank *k, int32_t peer, uint64_t bytes, bool is_back)
{
	struct schedule_out *o = k->out;
	uint64_t label = schedule_label(o);

	fprintf(o->file, "%s %" PRIu64 "b %s %d tag %u", is_back ? "recv" : "send", bytes,
		is_back ? "from" : "to", peer, windows_tag(o->names, o->thread, is_back));
	end_line(k);
	follow(k, label);
	k->now->begun = label;
	o->sums.messages += !is_back;
	o->sums.bytes += is_back ? 0 : bytes;
	return label;
}

static void put_one_sided(struct rank *k, const struct messages_record *r,
			  const struct messages_part *part)
{
	int32_t peer = extrapolated(k, &k->comms[r->comm], r->peer);
	struct pending *p;
	uint64_t label = put_side(k, peer, r->bytes, false);

	if (r->count)
		label = put_side(k, peer, part->bytes, true);
	if (r->id)
		request_add(k, r->id, label);
	p = trace_add(&k->pending, &k->pending_count, &k->pending_cap, sizeof *p);
	*p = (struct pending){ r->comm, r->peer, r->tag, label };
	k->out->sums.one_sided++;
}

static void put_flushed(struct rank *k, const struct messages_record *r)
{
	size_t n = 0;

	for (size_t i = 0; i < k->pending_count; i++) {
		const struct pending p = k->pending[i];

		if (p.comm == r->comm && p.channel == (int32_t)r->count &&
		    (r->peer < 0 || p.peer == r->peer))
			wait_for(k, p.label);
		else
			k->pending[n++] = p;
	}
	k->pending_count = n;
}

/* ---- communicators, collectives ---------------------------------------------------------- */

/* Returns: the members of a communicator in the program, which the caller frees. */
static int32_t *members_of(const struct rank *k, const int32_t *world, uint32_t count,
			   uint32_t *size)
{
	uint32_t all = k->out->ranks, first = k->first;
	int32_t *members;

	*size = count;
	if (count == k->ranks) {
		*size = all;
		first = 0;
	}
	members = trace_alloc(*size * sizeof *members);
	for (uint32_t i = 0; i < *size; i++)
		members[i] = world[i % count] < 0 ? world[i % count]
						  : world[i % count] +
							    (int32_t)(first + i / count * count);
	return members;
}

static int add_comm(struct rank *k, const struct messages_record *r, const int32_t *world)
{
	int32_t me = (int32_t)(k->first + k->number);
	struct schedule_comm *c;

	if (r->id != k->comms_count || !r->count)
		return -EINVAL;
	for (uint32_t i = 0; i < r->count; i++)
		if (world[i] >= (int32_t)k->ranks)
			return -EINVAL;
	c = trace_add(&k->comms, &k->comms_count, &k->comms_cap, sizeof *k->comms);
	c->world = members_of(k, world, r->count, &c->size);
	c->name = messages_name_comm(k->out->names, c->world, c->size, !r->id);
	while (c->rank + 1 < c->size && c->world[c->rank] != me)
		c->rank++;
	return 0;
}

static int put_collective(struct rank *k, const struct messages_record *r,
			  struct messages_part *parts)
{
	struct schedule_comm *c = &k->comms[r->comm];
	uint64_t label;

	for (uint32_t i = 0; i < c->size; i++)
		if (c->world[i] < 0)
			return -EINVAL;
	for (uint32_t i = 0; i < r->count; i++)
		if (parts[i].peer < 0 || parts[i].peer >= (int32_t)k->ranks)
			return -EINVAL;
	for (uint32_t i = 0; i < r->count; i++)
		parts[i].peer = extrapolated(k, c, parts[i].peer);
	if (r->peer < 0 || (uint32_t)r->peer >= c->size || r->tag < 0)
		return -EINVAL;
	label = schedule_expand(k->out, c, r, parts, follow, k);
	if (!label)
		return -EIO; /* has been reported */
	if (r->id)
		request_add(k, r->id, label);
	else
		blocking(k, label);
	return 0;
}

/* ---- ranks ------------------------------------------------------------------------------- */

/* Does a message need a peer or a tag that the record does not have? */
static bool has_no_peer(const struct messages_record *r)
{
	switch (r->type) {
	case MESSAGES_SEND:
	case MESSAGES_ISEND:
		return r->peer < 0 || r->tag < 0;
	case MESSAGES_RECV:
		return r->peer < MESSAGES_ANY || r->peer == -1 || r->tag < 0;
	case MESSAGES_ONE_SIDED:
		return r->peer < 0 || r->count > 1;
	case MESSAGES_IRECV: /* of any tag until it is complete, see put_nonblocking() */
	case MESSAGES_DONE:
		return r->peer < MESSAGES_ANY ||
		       (r->peer != -1 && r->tag < 0 &&
			(r->type == MESSAGES_DONE || !r->id || r->count));
	default:
		return false;
	}
}

static int put_record(struct rank *k, const struct messages_record *r, void *payload)
{
	while (k->threads_count <= r->thread)
		trace_add(&k->threads, &k->threads_count, &k->threads_cap, sizeof *k->threads);
	k->now = &k->threads[r->thread];
	k->out->thread = r->thread;
	if (r->type == MESSAGES_COMM)
		return add_comm(k, r, payload);
	if (r->comm >= k->comms_count || r->peer >= (int32_t)k->ranks || has_no_peer(r))
		return -EINVAL;
	/* a wait gives its completions one after the other */
	if (r->computed_ns || (r->type != MESSAGES_DONE && r->type != MESSAGES_CANCELLED))
		compute(k, r->computed_ns);
	switch (r->type) {
	case MESSAGES_SEND:
	case MESSAGES_RECV:
		put_blocking(k, r);
		break;
	case MESSAGES_ISEND:
	case MESSAGES_IRECV:
		put_nonblocking(k, r);
		break;
	case MESSAGES_COLL:
		return put_collective(k, r, payload);
	case MESSAGES_DONE:
	case MESSAGES_CANCELLED:
		put_done(k, r);
		break;
	case MESSAGES_READY:
		put_ready(k, r);
		break;
	case MESSAGES_ONE_SIDED:
		put_one_sided(k, r, payload);
		break;
	case MESSAGES_FLUSHED:
		put_flushed(k, r);
		break;
	case MESSAGES_LOST:
		k->out->sums.lost += r->bytes;
		break;
	case MESSAGES_END:
		k->has_end = true;
		k->traced_ns = r->bytes;
		break;
	}
	return 0;
}

static void rank_free(struct rank *k)
{
	for (size_t i = 0; i < k->comms_count; i++)
		free(k->comms[i].world);
	for (size_t i = 0; i < k->threads_count; i++)
		free(k->threads[i].waited.all);
	free(k->comms);
	free(k->pending);
	free(k->threads);
	free(k);
}

/* first: number of the program's rank that traced rank 0 stands for. */
static int put_rank(struct schedule_out *o, struct messages_file *f, const struct windows *w,
		    uint32_t first)
{
	struct rank *k = trace_alloc(sizeof *k);
	struct messages_payload payload = { NULL };
	struct messages_record r;
	int ret;

	*k = (struct rank){ .out = o, .number = (uint32_t)f->header.rank,
			    .ranks = (uint32_t)f->header.ranks, .first = first };
	o->labels = 0;
	fprintf(o->file, "\nrank %u {\n", first + k->number);
	while ((ret = messages_read(f, &r, &payload)) > 0)
		if ((ret = put_record(k, &r, payload.data)))
			break;
	o->thread = 0;
	end_requests(k);
	/* a CPU after those of the threads, or that of the last one */
	windows_write(w, o, first, k->number,
		      (uint32_t)(k->threads_count > UINT16_MAX ? UINT16_MAX : k->threads_count));
	if (!o->labels)
		fputs("calc 0\n", o->file);
	fputs("}\n", o->file);
	if (k->has_end)
		fprintf(o->file, "// rank %u: traced %" PRIu64 " ns\n", first + k->number,
			k->traced_ns);
	else if (!ret && !first)
		tool_say("trace: rank %u did not reach MPI_Finalize: its last messages may be "
			 "missing", k->number);
	if (ret == -EINVAL)
		tool_say("trace: %s is damaged", f->path);
	free(payload.data);
	rank_free(k);
	return ret;
}

/* ---- the program ------------------------------------------------------------------------- */

static int put_ranks(struct schedule_out *o, struct messages_file *files, uint32_t ranks)
{
	struct windows *w = windows_read(files, ranks);
	int ret = 0;

	fprintf(o->file, "// made by sluice trace --goal\n");
	if (o->ranks > ranks)
		fprintf(o->file, "// extrapolated from %u ranks\n", ranks);
	fprintf(o->file, "num_ranks %u\n", o->ranks);
	for (uint32_t r = 0; r < o->ranks && !ret; r++) {
		struct messages_file *f = &files[r % ranks];

		ret = messages_restart(f);
		if (!ret)
			ret = put_rank(o, f, w, r / ranks * ranks);
	}
	windows_free(w);
	errno = 0;
	if (!ret && (fflush(o->file) || ferror(o->file)))
		ret = errno ? -errno : -EIO;
	return ret;
}

/* Says what was written, and what could not be. */
static void tell(const struct schedule_out *o, const char *path)
{
	tool_say("trace: %s: %u ranks, %" PRIu64 " messages, %" PRIu64 " bytes; %" PRIu64
		 " calls of collectives: %" PRIu64 " messages, %" PRIu64 " bytes",
		 path, o->ranks, o->sums.messages, o->sums.bytes, o->sums.collectives,
		 o->sums.their_messages, o->sums.their_bytes);
	if (o->sums.one_sided)
		tool_say("trace: %" PRIu64 " one-sided operations are messages to another CPU of "
			 "their targets", o->sums.one_sided);
	if (o->sums.lost)
		tool_say("trace: %" PRIu64 " messages or collectives are missing; man sluice-trace "
			 "says which", o->sums.lost);
	if (o->sums.unknown)
		tool_say("trace: what %" PRIu64 " calls of MPI_Waitany, MPI_Test and the like have "
			 "completed is not in the trace: nothing waits for it", o->sums.unknown);
}

int trace_schedule(const char *folder, const char *path, uint32_t extrapolate,
		   struct schedule_choices *choices)
{
	bool is_stdout = !strcmp(path, "-");
	struct schedule_out o = { .choices = choices, .names = messages_names_create() };
	struct messages_file *files = NULL;
	uint32_t ranks = 0;
	struct stat st;
	int ret = messages_open(folder, &files, &ranks);

	if (ret == -ENOENT)
		tool_say("trace: %s holds no messages: was the program run with --goal?", folder);
	o.ranks = extrapolate ? extrapolate : ranks;
	if (!ret && (o.ranks % ranks || o.ranks > GOAL_RANKS_MAX)) {
		tool_say("trace: %u ranks cannot be extrapolated from the %u of %s: take a "
			 "multiple", extrapolate, ranks, folder);
		messages_close(files, ranks);
		ret = -EINVAL;
	}
	if (!ret && !(o.file = is_stdout ? stdout : fopen(path, "we"))) {
		tool_say("trace: cannot write %s: %s", path, strerror(errno));
		ret = -EINVAL;
	} else if (!ret) {
		ret = put_ranks(&o, files, ranks);
		if (!is_stdout && fclose(o.file) && !ret)
			ret = -errno;
		if (ret && ret != -EINVAL && ret != -EIO)
			tool_say("trace: cannot write %s: %s", path, strerror(-ret));
		if (ret && !is_stdout && !stat(path, &st) && S_ISREG(st.st_mode))
			unlink(path); /* half a program */
		o.sums.unknown = files->text ? liballprof_unknown(files->text) : 0;
		messages_close(files, ranks);
	}
	if (!ret)
		tell(&o, path);
	messages_names_free(o.names);
	goal_maker_free(&o.maker);
	return ret ? TOOL_FAILED : TOOL_DONE;
}
