/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The packed form of a program: its header with version GOAL_PROGRAM_PACKED, then each line of 64
 * bytes behind it as a mask of 16 bits, bit i for the i-th word of 4 bytes that is not 0, and these
 * words. The last line may be shorter; what it lacks is 0. An operation is a line, and most of its
 * fields are 0.
 */
#ifndef SLUICE_GOALFILE_PACK_H
#define SLUICE_GOALFILE_PACK_H

#include <stddef.h>
#include <stdint.h>

enum { PACK_LINE = 64, PACK_LINE_MAX = 2 + PACK_LINE };

/* out: [PACK_LINE_MAX]. Returns: the length. */
size_t pack_line(const void *line, void *out);
/* Writes out_bytes bytes of lines. packed: any bytes. Returns: 0; -EINVAL: they are too few or too
 * many. */
int pack_open(const void *packed, uint64_t bytes, void *out, uint64_t out_bytes);

#endif
