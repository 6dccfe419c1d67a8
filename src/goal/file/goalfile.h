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

/* Maps and verifies a program. 0; -EINVAL: it is not a program, or a block is not what it should
 * be, and its number is in *out_block (GOAL_NONE: not a matter of one block); other -errno.
 * out_block: may be NULL. */
int goalfile_open(const char *path, struct goalfile *out, uint32_t *out_block);
void goalfile_close(struct goalfile *f);

struct goalfile_writer;

/* The file is there, complete, after goalfile_finish(); until then its contents are in "PATH.part".
 * -EINVAL: what is at path is no file (a device); other -errno. */
int goalfile_create(const char *path, uint32_t ranks, struct goalfile_writer **out);
/* One more block, as goal_compile() has made it; its number is how many there were before. */
int goalfile_add(struct goalfile_writer *w, const struct goal_block *b, uint32_t *out_number);
/* Rank `rank` does what the block of this number says. Without it: the first block. */
int goalfile_assign(struct goalfile_writer *w, uint32_t rank, uint32_t number);
/* 0 or the first error that there was, then there is no file. The writer is gone. */
int goalfile_finish(struct goalfile_writer *w);
void goalfile_abandon(struct goalfile_writer *w);

#endif
