/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * goalfile: programs (goal/program.h) in files, sluice-goal(5).
 *
 *   goalfile_open -> goal_program_block(f.program, rank) ... -> goalfile_close
 *   goalfile_create -> (goalfile_add -> goalfile_assign ...) ... -> goalfile_finish |
 * goalfile_abandon
 *
 * Reading maps the file: only the blocks that are looked at need memory. Like any mapped file it
 * must not be changed or cut by others while it is open; who runs a block of unknown origin copies
 * it first and verifies the copy. Writing keeps 8 bytes a block and 4 bytes a rank in memory and
 * the rest in the file.
 */
#ifndef SLUICE_GOALFILE_H
#define SLUICE_GOALFILE_H

#include "goal/program.h"

struct goalfile {
	const struct goal_program *program;
	size_t bytes;
};

/* Maps and verifies a program. Returns: 0; -EINVAL: the file is no program, or a block is not
 * valid, then its number is in *out_block (GOAL_NONE: no single block is wrong); other -errno.
 * out_block: may be NULL. */
int goalfile_open(const char *path, struct goalfile *out, uint32_t *out_block);
void goalfile_close(struct goalfile *f);

struct goalfile_writer;

/* Begins a file. The contents are in "PATH.part" until goalfile_finish() renames it. Returns: 0;
 * -EINVAL: path names no regular file; other -errno. */
int goalfile_create(const char *path, uint32_t ranks, struct goalfile_writer **out);
/* Adds a block that goal_compile() has made. Its number is the count of blocks before it. */
int goalfile_add(struct goalfile_writer *w, const struct goal_block *b, uint32_t *out_number);
/* Gives rank `rank` the block of this number. A rank without a call has the first block. */
int goalfile_assign(struct goalfile_writer *w, uint32_t rank, uint32_t number);
/* Ends the file and frees the writer. Returns: 0; the first error of any call, then there is no
 * file. */
int goalfile_finish(struct goalfile_writer *w);
void goalfile_abandon(struct goalfile_writer *w);

#endif
