/* SPDX-License-Identifier: BSD-3-Clause */
/* The traces of liballprof: files, lines, communicators. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "trace_liballprof.h"

#define MOST_US    1e16

/* ---- lines ------------------------------------------------------------------------------- */

int64_t lap_int(struct lap_line *l, uint32_t field, uint32_t i)
{
	const char *at = field < l->count ? l->fields[field] : "";
	char *end;
	int64_t n;

	for (; i && at; i--)
		at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL;
	if (!at || (!isdigit((unsigned char)*at) && *at != '-')) {
		l->is_bad = true;
		return 0;
	}
	errno = 0;
	n = *at == '-' ? strtoll(at, &end, 10) : (int64_t)strtoull(at, &end, 10);
	l->is_bad |= errno || (*end && *end != ',');
	return n;
}

/* Returns: a time; `otherwise`, where the trace has none, as MPI was not up. */
static double time_of(struct lap_line *l, const char *text, double otherwise)
{
	char *end;
	double us;

	if (!strcmp(text, "-"))
		return otherwise;
	us = isdigit((unsigned char)*text) ? strtod(text, &end) : -1;
	if (us < 0 || *end || !(us < MOST_US)) {
		l->is_bad = true;
		return otherwise;
	}
	return us;
}

/* Returns: whether there is another line; one without an end was being written. */
static bool read_line(struct lap_line *l, FILE *stream)
{
	ssize_t n = getline(&l->text, &l->cap, stream);

	if (n <= 0 || l->text[n - 1] != '\n')
		return false;
	l->text[n - 1] = 0;
	l->number++;
	return true;
}

static void split_line(struct lap_line *l)
{
	char *at = l->text, *colon = at;

	l->is_bad = false;
	for (l->count = 0; colon; at = colon + 1) {
		colon = strchr(at, ':');
		if (colon)
			*colon = 0;
		if (l->count < LAP_FIELDS)
			l->fields[l->count++] = at;
		l->last = at;
	}
	l->is_bad = l->count < 3 || strncmp(l->text, "MPI_", 4) != 0;
}

/* ---- communicators ----------------------------------------------------------------------- */

static struct lap_group copy_of(const struct lap_group *g)
{
	struct lap_group copy = *g;

	copy.world = trace_alloc(g->size * sizeof *g->world);
	memcpy(copy.world, g->world, g->size * sizeof *g->world);
	return copy;
}

/* Adds a communicator of the present rank. Owner: of the group's list, the communicator. */
static struct lap_comm *add_comm(struct lap *l, uint64_t handle, const struct lap_group *g)
{
	struct lap_comm *c = TRACE_ADD(&l->now, comms);
	struct messages_record r = { .type = MESSAGES_COMM, .count = g->size };

	*c = (struct lap_comm){ .handle = handle, .group = *g };
	if (g->world) {
		c->number = r.id = l->now.comms_made++;
		c->name = messages_name_comm(l->names, g->world, g->size, !r.id);
		lap_put(l, r, copy_of(g).world);
	}
	return c;
}

static struct lap_group world_of(const struct lap *l)
{
	struct lap_group g = { trace_alloc(l->ranks * sizeof *g.world), l->now.number, l->ranks };

	for (uint32_t i = 0; i < l->ranks; i++)
		g.world[i] = (int32_t)i;
	return g;
}

/* Finds the members of a handle that is used for the first time. */
static struct lap_group members_of(struct lap *l, uint64_t handle, uint32_t rank, uint32_t size)
{
	struct lap_group g = { NULL, rank, size };

	for (size_t i = 0; i < l->now.made_count; i++) {
		struct lap_made *m = &l->now.made[i];

		if (m->handle || m->group.rank != rank || m->group.size != size)
			continue;
		m->handle = handle;
		return copy_of(&m->group);
	}
	if (size == 1) {
		g.world = trace_alloc(sizeof *g.world);
		g.world[0] = (int32_t)l->now.number;
	} else if (size == l->ranks && rank == l->now.number) {
		return world_of(l);
	}
	return g;
}

/* Notes the kind of handles. MPICH has numbers whose bits 26 to 29 are 1, Fortran's are small where
 * they are others. */
static void see_handle(struct lap_rank *now, uint64_t handle)
{
	uint32_t high = (uint32_t)(handle >> 32);

	if ((!high || high == UINT32_MAX) && (handle >> 26 & 15) == 1 && (handle >> 30 & 3))
		now->is_mpich = true;
	else if (handle > UINT8_MAX)
		now->has_pointers = true;
}

const struct lap_comm *lap_comm_of(struct lap *l, uint32_t field)
{
	uint64_t handle = (uint64_t)lap_int(&l->now.line, field, 0);
	int64_t rank = lap_int(&l->now.line, field, 1), size = lap_int(&l->now.line, field, 2);
	struct lap_comm *c;
	struct lap_group g;

	if (rank < 0 || rank >= size || size > l->ranks)
		l->now.line.is_bad = true;
	if (l->now.line.is_bad)
		return NULL;
	see_handle(&l->now, handle);
	if (!l->now.has_world && size == l->ranks && rank == l->now.number) {
		l->now.has_world = true;
		l->now.comms[0].handle = handle;
	}
	for (size_t i = 0; i < l->now.comms_count; i++) {
		c = &l->now.comms[i];
		if ((!i && !l->now.has_world) || c->handle != handle || c->is_freed)
			continue;
		if (c->group.rank == rank && c->group.size == size)
			return c->group.world ? c : NULL;
		c->is_freed = true;
	}
	g = members_of(l, handle, (uint32_t)rank, (uint32_t)size);
	c = add_comm(l, handle, &g);
	return g.world ? c : NULL;
}

static int by_key(const void *a, const void *b)
{
	const struct lap_split *const *x = a, *const *y = b;

	if ((*x)->key != (*y)->key)
		return (*x)->key < (*y)->key ? -1 : 1;
	return (*x)->rank < (*y)->rank ? -1 : (*x)->rank > (*y)->rank;
}

/* Returns: the group that the n-th call of MPI_Comm_split gave the present rank. */
static struct lap_group split_group(struct lap *l, uint32_t n)
{
	const struct lap_split *mine = &l->splits[l->now.number].calls[n];
	const struct lap_split **all = trace_alloc(l->ranks * sizeof(void *));
	struct lap_group g = { trace_alloc(l->ranks * sizeof *g.world), 0, 0 };
	size_t count = 0;

	for (uint32_t r = 0; r < l->ranks; r++)
		if (l->splits[r].calls_count > n && l->splits[r].calls[n].color == mine->color)
			all[count++] = &l->splits[r].calls[n];
	qsort(all, count, sizeof *all, by_key);
	for (; g.size < count; g.size++) {
		g.world[g.size] = all[g.size]->world;
		if (all[g.size] == mine)
			g.rank = g.size;
	}
	free(all);
	return g;
}

void lap_comm_split(struct lap *l)
{
	struct lap_line *line = &l->now.line;
	struct lap_split s = { lap_int(line, 3, 0), lap_int(line, 4, 0), lap_int(line, 2, 1),
			       (int32_t)l->now.number };
	uint64_t address = (uint64_t)lap_int(line, 5, 0);

	if (line->is_bad || lap_int(line, 2, 2) != l->ranks)
		return;
	if (l->pass == LAP_SPLITS) {
		*TRACE_ADD(&l->splits[l->now.number], calls) = s;
	} else if (l->now.splits_met < l->splits[l->now.number].calls_count) {
		uint32_t n = l->now.splits_met++;

		if (s.color >= 0) /* else MPI_UNDEFINED */
			*TRACE_ADD(&l->now, made) =
				(struct lap_made){ address, 0, split_group(l, n) };
	}
}

void lap_comm_dup(struct lap *l)
{
	const struct lap_comm *c = lap_comm_of(l, 2);
	uint64_t address = (uint64_t)lap_int(&l->now.line, 3, 0);

	if (c && !l->now.line.is_bad)
		*TRACE_ADD(&l->now, made) = (struct lap_made){ address, 0, copy_of(&c->group) };
}

/* The handle may come back for another communicator. */
void lap_comm_free(struct lap *l)
{
	uint64_t address = (uint64_t)lap_int(&l->now.line, 2, 0);
	size_t i = l->now.made_count;

	while (i && l->now.made[i - 1].address != address)
		i--;
	if (!i)
		return;
	for (size_t j = 1; j < l->now.comms_count; j++)
		if (l->now.comms[j].handle == l->now.made[i - 1].handle)
			l->now.comms[j].is_freed = true;
	l->now.made[i - 1].address = 0;
	l->now.made[i - 1].handle = UINT64_MAX;
}

/* ---- records ----------------------------------------------------------------------------- */

void lap_put(struct lap *l, struct messages_record r, void *payload)
{
	if (r.type != MESSAGES_COMM) {
		r.computed_ns = (uint64_t)(l->now.computed_us * 1e3 + 0.5);
		l->now.computed_us = 0;
	}
	*TRACE_ADD(&l->now, queue) = (struct lap_record){ r, payload };
}

static void end_rank(struct lap *l, double now_us)
{
	struct messages_record r = { .type = MESSAGES_END };

	if (now_us > l->now.begun_us)
		r.bytes = (uint64_t)((now_us - l->now.begun_us) * 1e3 + 0.5);
	lap_put(l, r, NULL);
}

/* Reads a call, and what the program computed before it. */
static void read_call(struct lap *l)
{
	struct lap_line *line = &l->now.line;
	double before = l->now.ended_us < 0 ? 0 : l->now.ended_us, begin, end;

	split_line(line);
	if (line->is_bad)
		return;
	begin = time_of(line, line->fields[1], before);
	end = time_of(line, line->last, begin);
	if (!strcmp(line->text, "MPI_Init") || !strcmp(line->text, "MPI_Init_thread")) {
		l->now.begun_us = l->now.ended_us = end;
		return;
	}
	if (l->now.begun_us < 0)
		l->now.begun_us = l->now.ended_us = begin;
	if (begin > l->now.ended_us)
		l->now.computed_us += begin - l->now.ended_us;
	l->now.ended_us = end > begin ? end : begin;
	if (!strcmp(line->text, "MPI_Finalize"))
		end_rank(l, begin);
	else if (l->pass != LAP_SPLITS)
		lap_call(l);
	else if (!strcmp(line->text, "MPI_Comm_split"))
		lap_comm_split(l);
}

static void rank_free(struct lap_rank *r)
{
	for (size_t i = 0; i < r->comms_count; i++)
		free(r->comms[i].group.world);
	for (size_t i = 0; i < r->made_count; i++)
		free(r->made[i].group.world);
	for (size_t i = r->queue_at; i < r->queue_count; i++)
		free(r->queue[i].payload);
	free(r->comms);
	free(r->made);
	free(r->requests);
	free(r->addresses.all);
	free(r->queue);
	free(r->line.text);
}

int liballprof_restart(struct messages_file *f)
{
	struct lap *l = f->text;
	struct lap_group world;

	rank_free(&l->now);
	l->now = (struct lap_rank){
		.number = (uint32_t)f->header.rank, .file = f, .begun_us = -1, .ended_us = -1
	};
	if (l->pass == LAP_RECORDS)
		lap_sends_restart(l, l->now.number);
	world = world_of(l);
	add_comm(l, 0, &world);
	return fseek(f->stream, 0, SEEK_SET) ? -errno : 0;
}

int liballprof_read(struct messages_file *f, struct messages_record *out,
		    struct messages_payload *payload)
{
	struct lap_rank *now = &f->text->now;
	struct lap_record *next;

	while (now->queue_at == now->queue_count) {
		now->queue_at = now->queue_count = 0;
		if (!read_line(&now->line, f->stream))
			return 0;
		if (now->line.text[0] && now->line.text[0] != '#')
			read_call(f->text);
		if (now->line.is_bad) {
			tool_say("trace: %s:%llu: no call as liballprof writes it", f->path,
				 (unsigned long long)now->line.number);
			return -EIO;
		}
	}
	next = &now->queue[now->queue_at++];
	*out = next->record;
	free(payload->data);
	*payload = (struct messages_payload){ next->payload, 0 };
	return 1;
}

/* Reads all ranks for what the next pass needs. */
static int read_all(struct lap *l, enum lap_pass pass)
{
	struct messages_payload payload = { NULL };
	struct messages_record r;
	int ret = 1;

	l->pass = pass;
	for (uint32_t i = 0; i < l->ranks && ret >= 0; i++) {
		ret = liballprof_restart(&l->files[i]);
		while (!ret && (ret = liballprof_read(&l->files[i], &r, &payload)) > 0)
			ret = 0;
	}
	free(payload.data);
	return ret < 0 ? ret : 0;
}

/* ---- files ------------------------------------------------------------------------------- */

/* Returns: the rank in a name like pmpi-trace-rank-07.txt; -1: another file. */
static long rank_in(const char *name)
{
	const char *dot = strrchr(name, '.'), *at = dot;
	long rank;

	if (!dot || strcmp(dot, ".txt"))
		return -1;
	while (at > name && isdigit((unsigned char)at[-1]))
		at--;
	rank = at < dot && dot - at < 10 ? strtol(at, NULL, 10) : -1;
	return rank;
}

static bool is_trace(FILE *f)
{
	static const char *const firsts[] = { "# htor's PMPI Tracer",
					      "# collprof 0." /* of 2009 */ };
	char line[64];

	if (!fgets(line, sizeof line, f))
		return false;
	for (size_t i = 0; i < BASE_ARRAY_LEN(firsts); i++)
		if (!strncmp(line, firsts[i], strlen(firsts[i])))
			return true;
	return false;
}

/* Adds the file of a rank. Returns: 0, or -EINVAL after a message. */
static int open_one(struct lap *l, const char *folder, const char *name, size_t *cap)
{
	long rank = rank_in(name);
	struct messages_file f = { .header.rank = (int32_t)rank, .text = l };
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	f.stream = rank < 0 || rank >= GOAL_RANKS_MAX ? NULL : fopen(path, "re");
	if (!f.stream)
		return 0;
	if (!is_trace(f.stream)) {
		fclose(f.stream);
		return 0;
	}
	while (l->ranks <= rank) {
		size_t count = l->ranks++;

		*(struct messages_file *)trace_add(&l->files, &count, cap, sizeof *l->files) =
			(struct messages_file){ .text = l };
	}
	if (l->files[rank].stream) {
		tool_say("trace: %s and %s are both of rank %ld", path, l->files[rank].path, rank);
		fclose(f.stream);
		return -EINVAL;
	}
	f.path = strdup(path);
	l->files[rank] = f;
	return 0;
}

static int open_all(struct lap *l, const char *folder)
{
	DIR *dir = opendir(folder);
	struct dirent *e;
	size_t cap = 0;
	int ret = 0;

	while (dir && !ret && (e = readdir(dir)))
		ret = open_one(l, folder, e->d_name, &cap);
	if (dir)
		closedir(dir);
	if (!ret && !l->ranks)
		return -ENOENT;
	for (uint32_t r = 0; !ret && r < l->ranks; r++) {
		l->files[r].header.rank = (int32_t)r;
		l->files[r].header.ranks = (int32_t)l->ranks;
		if (!l->files[r].stream) {
			tool_say("trace: %s holds no trace of rank %u", folder, r);
			ret = -EINVAL;
		}
	}
	return ret;
}

int liballprof_open(const char *folder, struct messages_file **out, uint32_t *out_ranks)
{
	struct lap *l = trace_alloc(sizeof *l);
	int ret = open_all(l, folder);

	*out = l->files;
	*out_ranks = l->ranks;
	if (ret) {
		free(l->splits);
		if (!l->files)
			free(l);
		return ret;
	}
	l->splits = trace_alloc(l->ranks * sizeof *l->splits);
	l->sends = lap_sends_create();
	l->names = messages_names_create();
	ret = read_all(l, LAP_SPLITS);
	if (!ret)
		ret = read_all(l, LAP_SENDS);
	l->pass = LAP_RECORDS;
	l->unknown = 0;
	return ret;
}

uint64_t liballprof_unknown(const struct lap *l) { return l->unknown; }

void liballprof_close(struct lap *l)
{
	rank_free(&l->now);
	for (uint32_t r = 0; l->splits && r < l->ranks; r++)
		free(l->splits[r].calls);
	free(l->splits);
	if (l->sends)
		lap_sends_free(l->sends);
	if (l->names)
		messages_names_free(l->names);
	free(l);
}
