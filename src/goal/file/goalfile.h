/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * goalfile: programs (goal/program.h) in files, sluice-goal(5).
 *
 *   goalfile_open -> goal_program_block(f.program, rank) ... -> goalfile_close
 *   goalfile_create -> (goalfile_add -> goalfile_assign ...) ... -> goalfile_finish |
 * goalfile_abandon
 *
 * Reading maps the file, or unpacks it into memory. A file that is mapped must not be changed or
 * cut by others while it is open; who runs a block of unknown origin copies it first and verifies
 * the copy. Writing keeps 8 bytes a block and 4 bytes a rank in memory and the rest in the file.
 */
#ifndef SLUICE_GOALFILE_H
#define SLUICE_GOALFILE_H

#include <stdio.h>

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

/*
 * Files are written in packed form (pack.h), and read in both forms. For data that are not in a
 * file: the length of the program, 0: the data are not packed, UINT64_MAX: they are damaged; and
 * the program in out, of that length. Returns: 0; -EINVAL. data: any bytes, from an address that is
 * a multiple of 8.
 */
uint64_t goalfile_packed_bytes(const void *data, uint64_t bytes);
int goalfile_unpack(const void *data, uint64_t bytes, void *out);

/* First number of the binary files of LogGOPSim; of those that it has used up. */
#define GOALFILE_LOGGOPSIM      4223u
#define GOALFILE_LOGGOPSIM_USED 2342u

/* Callbacks of a reader; what they return other than 0 ends the reading and is its result. */
struct goalfile_calls {
	int (*begin)(void *ctx, uint32_t ranks);
	int (*add)(void *ctx, uint32_t rank, const struct goal_block *block);
};
/* Returns: one of the numbers above; 0: the data begin otherwise. */
uint64_t goalfile_loggopsim_cookie(const void *data, size_t bytes);
/* Reads a whole file of LogGOPSim; data: any bytes. Returns: 0; -EINVAL: it is damaged; -ELOOP:
 * requirements form a cycle; -ENOMEM. *out_rank: the rank at fault; GOAL_NONE: none. */
int goalfile_loggopsim_read(const void *data, size_t bytes, const struct goalfile_calls *calls,
			    void *ctx, uint32_t *out_rank);

/* Writes a verified program in packed form. Returns: 0 or -errno. */
int goalfile_write(const struct goal_program *p, FILE *to);

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
