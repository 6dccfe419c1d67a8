/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads message files, and gives communicators and tags numbers that all ranks share. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "trace_data.h"
#include "trace_schedule.h"

/* ---- files ------------------------------------------------------------------------------- */

static bool is_ours(const char *name)
{
	size_t n = strlen(name), m = strlen(MESSAGES_SUFFIX);

	return n > m && !strcmp(name + n - m, MESSAGES_SUFFIX);
}

static int open_one(const char *path, struct messages_file *out)
{
	const struct messages_header *h = &out->header;

	out->stream = fopen(path, "re");
	if (!out->stream) {
		tool_say("trace: cannot read %s: %s", path, strerror(errno));
		return -EINVAL;
	}
	if (fread(&out->header, sizeof out->header, 1, out->stream) != 1 ||
	    memcmp(h->magic, MESSAGES_MAGIC, sizeof h->magic) ||
	    h->version != MESSAGES_VERSION || h->record_bytes != sizeof(struct messages_record) ||
	    h->ranks <= 0 || h->rank < 0 || h->rank >= h->ranks) {
		tool_say("trace: %s holds no messages that this version can read", path);
		fclose(out->stream);
		return -EINVAL;
	}
	out->path = strdup(path);
	out->text = NULL;
	return 0;
}

/* Puts a file where its rank belongs. */
static int place(struct messages_file *f, struct messages_file **all, uint32_t *ranks)
{
	if (!*all) {
		*ranks = (uint32_t)f->header.ranks;
		*all = trace_alloc(*ranks * sizeof **all);
	}
	if ((uint32_t)f->header.ranks != *ranks || (*all)[f->header.rank].stream) {
		tool_say("trace: %s and another file there come from different runs", f->path);
		fclose(f->stream);
		free(f->path);
		return -EINVAL;
	}
	(*all)[f->header.rank] = *f;
	return 0;
}

/* The files of all ranks are open at a time. */
static void allow_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files))
		return;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

int messages_open(const char *folder, struct messages_file **out, uint32_t *out_ranks)
{
	DIR *dir = opendir(folder);
	char path[PATH_MAX];
	struct dirent *e;
	int ret = 0;

	*out = NULL;
	*out_ranks = 0;
	allow_files();
	if (!dir) {
		tool_say("trace: cannot read %s: %s", folder, strerror(errno));
		return -EINVAL;
	}
	while (!ret && (e = readdir(dir))) {
		struct messages_file f;

		if (!is_ours(e->d_name))
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
		ret = open_one(path, &f);
		if (!ret)
			ret = place(&f, out, out_ranks);
	}
	closedir(dir);
	if (!ret && !*out)
		ret = liballprof_open(folder, out, out_ranks);
	for (uint32_t r = 0; !ret && r < *out_ranks; r++)
		if (!(*out)[r].stream) {
			tool_say("trace: %s holds no messages of rank %u", folder, r);
			ret = -EINVAL;
		}
	if (ret)
		messages_close(*out, *out_ranks);
	return ret;
}

void messages_close(struct messages_file *files, uint32_t ranks)
{
	if (ranks && files[0].text)
		liballprof_close(files[0].text);
	for (uint32_t r = 0; r < ranks; r++)
		if (files[r].stream) {
			fclose(files[r].stream);
			free(files[r].path);
		}
	free(files);
}

static size_t payload_bytes(const struct messages_record *r)
{
	if (r->type == MESSAGES_COMM)
		return r->count * sizeof(int32_t);
	return r->type == MESSAGES_COLL || r->type == MESSAGES_ONE_SIDED
		       ? r->count * sizeof(struct messages_part)
		       : 0;
}

int messages_restart(struct messages_file *f)
{
	if (f->text)
		return liballprof_restart(f);
	return fseek(f->stream, (long)sizeof f->header, SEEK_SET) ? -errno : 0;
}

int messages_read(struct messages_file *f, struct messages_record *out,
		  struct messages_payload *payload)
{
	size_t bytes;

	if (f->text)
		return liballprof_read(f, out, payload);
	bytes = fread(out, 1, sizeof *out, f->stream);
	if (bytes != sizeof *out)
		return 0; /* the rank was killed */
	bytes = payload_bytes(out);
	if (out->type == MESSAGES_NOTHING || out->type >= MESSAGES_TYPES ||
	    out->collective >= MESSAGES_COLLECTIVE_COUNT || bytes > 1u << 30)
		return -EINVAL;
	if (bytes > payload->cap) {
		free(payload->data);
		payload->data = trace_alloc(bytes);
		payload->cap = bytes;
	}
	return !bytes || fread(payload->data, bytes, 1, f->stream) == 1;
}

/* ---- numbers ----------------------------------------------------------------------------- */

#define FIRST_OWN_TAG (1u << 20) /* smaller tags of MPI_COMM_WORLD keep their number */

/* A list of members. `made`: how many communicators of the present rank have it. */
struct members {
	int32_t *world;
	uint32_t count, made, rank;
};
struct messages_names {
	struct messages_numbers tags, comms;
	struct members *lists;
	size_t lists_count, lists_cap;
	uint32_t rank;           /* counts the ranks that are read */
};

struct messages_names *messages_names_create(void)
{
	return trace_alloc(sizeof(struct messages_names));
}

void messages_names_free(struct messages_names *n)
{
	for (size_t i = 0; i < n->lists_count; i++)
		free(n->lists[i].world);
	free(n->lists);
	free(n->tags.all);
	free(n->comms.all);
	free(n);
}

static struct messages_number *slot_of(struct messages_numbers *n, uint64_t a, uint64_t b)
{
	uint64_t hash = (a * 0x9e3779b97f4a7c15u ^ b) * 0xff51afd7ed558ccdu;
	size_t i = (size_t)(hash >> 32) & (n->cap - 1);

	while (n->all[i].number && (n->all[i].key[0] != a || n->all[i].key[1] != b))
		i = (i + 1) & (n->cap - 1);
	return &n->all[i];
}

uint32_t messages_number_of(struct messages_numbers *n, uint64_t a, uint64_t b)
{
	struct messages_number *slot;

	if (4 * (n->count + 1) > 3 * n->cap) {
		struct messages_numbers old = *n;

		n->cap = old.cap ? 2 * old.cap : 256;
		n->all = trace_alloc(n->cap * sizeof *n->all);
		for (size_t i = 0; i < old.cap; i++)
			if (old.all[i].number)
				*slot_of(n, old.all[i].key[0], old.all[i].key[1]) = old.all[i];
		free(old.all);
	}
	slot = slot_of(n, a, b);
	if (!slot->number)
		*slot = (struct messages_number){ { a, b }, (uint32_t)++n->count };
	return slot->number;
}

uint32_t messages_number_known(struct messages_numbers *n, uint64_t a, uint64_t b)
{
	return n->cap ? slot_of(n, a, b)->number : 0;
}

static struct members *members_of(struct messages_names *n, const int32_t *world, uint32_t count)
{
	struct members *m;

	for (size_t i = 0; i < n->lists_count; i++) {
		m = &n->lists[i];
		if (m->count == count && !memcmp(m->world, world, count * sizeof *world))
			return m;
	}
	m = trace_add(&n->lists, &n->lists_count, &n->lists_cap, sizeof *n->lists);
	m->world = trace_alloc(count * sizeof *world + 1);
	memcpy(m->world, world, count * sizeof *world);
	m->count = count;
	return m;
}

/* Members create communicators of the same members in the same order. */
uint32_t messages_name_comm(struct messages_names *n, const int32_t *world, uint32_t count,
			    bool is_first)
{
	struct members *m = members_of(n, world, count);

	n->rank += is_first;
	if (m->rank != n->rank)
		m->made = 0;
	m->rank = n->rank;
	return messages_number_of(&n->comms, (uint64_t)(m - n->lists), m->made++);
}

uint32_t messages_name_tag(struct messages_names *n, uint32_t comm, uint32_t turn, uint32_t tag)
{
	if (comm == 1 && !turn && tag < FIRST_OWN_TAG)
		return tag;
	return FIRST_OWN_TAG + messages_number_of(&n->tags, (uint64_t)comm << 32 | turn, tag);
}
