/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "goal/file/goalfile.h"
#include "goal/file/pack.h"
#include "goal/grow/grow.h"

struct goalfile_writer {
	FILE *file;
	char *path, *part;
	uint64_t at; /* bytes of the program so far */
	char line[PACK_LINE]; /* the last line, of at % PACK_LINE bytes */
	uint64_t *offsets;
	uint32_t *numbers; /* [ranks] */
	uint32_t ranks, block_count, block_cap, most_ops;
	int error; /* first error */
};

static void write_out(struct goalfile_writer *w, const void *p, size_t bytes)
{
	if (w->error)
		return;
	errno = EIO; /* when the library does not set errno */
	if (fwrite(p, 1, bytes, w->file) != bytes)
		w->error = -errno;
}

static void put(struct goalfile_writer *w, const void *p, uint64_t bytes)
{
	char packed[PACK_LINE_MAX];

	for (uint64_t n; bytes; bytes -= n, p = (const char *)p + n) {
		uint64_t used = w->at % PACK_LINE;

		n = bytes < PACK_LINE - used ? bytes : PACK_LINE - used;
		memcpy(w->line + used, p, n);
		w->at += n;
		if (used + n == PACK_LINE)
			write_out(w, packed, pack_line(w->line, packed));
	}
}

static void put_gap(struct goalfile_writer *w)
{
	static const char zeros[GOAL_PROGRAM_ALIGN];

	put(w, zeros, goal_program_align(w->at) - w->at);
}

static void release(struct goalfile_writer *w)
{
	free(w->path);
	free(w->part);
	free(w->offsets);
	free(w->numbers);
	free(w);
}

static int open_part(struct goalfile_writer *w, const char *path)
{
	size_t length = strlen(path) + sizeof ".part";
	struct stat st;

	/* rename() would replace a device or a pipe */
	if (!stat(path, &st) && !S_ISREG(st.st_mode))
		return -EINVAL;
	w->path = strdup(path);
	w->part = malloc(length);
	w->numbers = calloc(w->ranks, sizeof *w->numbers);
	if (!w->path || !w->part || !w->numbers)
		return -ENOMEM;
	snprintf(w->part, length, "%s.part", path);
	w->file = fopen(w->part, "wbe");
	return w->file ? 0 : -errno;
}

int goalfile_create(const char *path, uint32_t ranks, struct goalfile_writer **out)
{
	const struct goal_program place = { 0 }; /* written again at the end */
	struct goalfile_writer *w;
	int ret;

	if (!ranks || ranks > GOAL_RANKS_MAX)
		return -EINVAL;
	w = calloc(1, sizeof *w);
	if (!w)
		return -ENOMEM;
	w->ranks = ranks;
	ret = open_part(w, path);
	if (ret) {
		release(w);
		return ret;
	}
	write_out(w, &place, sizeof place);
	w->at = sizeof place;
	*out = w;
	return 0;
}

static int grow(struct goalfile_writer *w)
{
	if (w->block_count >= GOAL_RANKS_MAX)
		return -ENOSPC;
	return goal_grow(&w->offsets, &w->block_cap, w->block_count + 1ull, sizeof *w->offsets);
}

int goalfile_add(struct goalfile_writer *w, const struct goal_block *b, uint32_t *out_number)
{
	int ret = w->error ? w->error : grow(w);

	if (ret)
		return ret;
	w->offsets[w->block_count] = w->at;
	put(w, b, b->bytes);
	put_gap(w);
	if (b->op_count > w->most_ops)
		w->most_ops = b->op_count;
	*out_number = w->block_count++;
	return w->error;
}

int goalfile_assign(struct goalfile_writer *w, uint32_t rank, uint32_t number)
{
	if (rank >= w->ranks || number >= w->block_count)
		return -EINVAL;
	w->numbers[rank] = number;
	return 0;
}

static void put_tables(struct goalfile_writer *w)
{
	struct goal_program head = {
		.magic = GOAL_PROGRAM_MAGIC,
		.version = GOAL_PROGRAM_PACKED,
		.ranks = w->ranks,
		.offsets_off = w->at,
		.block_count = w->block_count,
		.most_ops = w->most_ops,
	};

	head.bytes = head.offsets_off + goal_program_tables_bytes(w->block_count, w->ranks);
	put(w, w->offsets, w->block_count * sizeof *w->offsets);
	put(w, w->numbers, w->ranks * sizeof *w->numbers);
	put_gap(w); /* completes the line */
	if (!w->error && fseek(w->file, 0, SEEK_SET))
		w->error = -errno;
	write_out(w, &head, sizeof head);
}

int goalfile_finish(struct goalfile_writer *w)
{
	int ret;

	if (!w->block_count && !w->error)
		w->error = -EINVAL;
	put_tables(w);
	if (fclose(w->file) && !w->error)
		w->error = -errno;
	w->file = NULL;
	if (!w->error && rename(w->part, w->path))
		w->error = -errno;
	ret = w->error;
	if (ret)
		unlink(w->part);
	release(w);
	return ret;
}

void goalfile_abandon(struct goalfile_writer *w)
{
	fclose(w->file);
	unlink(w->part);
	release(w);
}

int goalfile_write(const struct goal_program *p, FILE *to)
{
	struct goalfile_writer w = { .file = to };
	struct goal_program head = *p;

	head.version = GOAL_PROGRAM_PACKED;
	write_out(&w, &head, sizeof head);
	w.at = sizeof head;
	put(&w, p + 1, p->bytes - sizeof *p);
	put_gap(&w);
	return w.error;
}
