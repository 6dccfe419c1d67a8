/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * text: GOAL programs as text (sluice-goal-text(5)): the dialect that LogGOPSim reads, and more.
 * Parse and print are exact inverses: what text_print() writes of a block that goal_compile() made,
 * text_parse() makes into the same block, byte for byte.
 *
 *   bytes --read()--> text_parse() --rank()--> one compiled block after the other
 *                          \-------problem()--> line, column, what is wrong, what was expected
 *   blocks --text_print()--> write() --> bytes
 *
 * A text is read in pieces and compiled a rank at a time: memory is bounded by the largest rank and
 * by the longest line (TEXT_LINE_MAX), not by the text. Nothing here opens a file or prints.
 *
 *   source.c lex.c     lines and tokens          labels.c   names of a rank's operations
 *   parse.c operation.c  statements              rank.c     what a rank's block is made from
 *   problem.c          messages                  print.c    blocks as text
 */
#ifndef SLUICE_TEXT_H
#define SLUICE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "goal/goal.h"

#define TEXT_LINE_MAX     (64u << 20)
#define TEXT_PROBLEMS_MAX 20 /* parsing stops after as many problems */

/* A mistake in the text. Valid during the call of problem(). */
struct text_problem {
	uint64_t line;          /* from 1; 0: the text as a whole */
	/* column of the mistake, in bytes, from 1; 0 bytes: between two tokens */
	uint32_t column, bytes;
	/* the line, without its end, not terminated; NULL when it is not in memory */
	const char *text;
	size_t text_bytes;
	const char *message; /* "expected 'to', not 'too'" */
};

/* Where an operation stands in the text, and its label. */
struct text_place {
	uint64_t line;
	uint32_t label; /* offset in labels, terminated; TEXT_NO_LABEL */
	uint32_t reserved;
};
#define TEXT_NO_LABEL UINT32_MAX

/* A rank that was parsed. Valid during the call of rank(). */
struct text_rank {
	uint32_t rank;
	const struct goal_block *block;
	const struct text_place *places; /* of the block's operations, in its order */
	const char *labels;
	size_t labels_bytes;
};

/* Callbacks. A value other than 0 from begin() or rank() ends parsing, which returns it. */
struct text_calls {
	/* Reads up to cap bytes. Returns: 0 at the end; -errno. */
	int64_t (*read)(void *ctx, char *buf, size_t cap);
	/* Receives the number of ranks, before any rank(). NULL: not wanted. */
	int (*begin)(void *ctx, uint32_t ranks);
	/* Receives each rank once, in the order of the text, until the first problem. NULL: not
	 * wanted. */
	int (*rank)(void *ctx, const struct text_rank *r);
	void (*problem)(void *ctx, const struct text_problem *p);
};

/*
 * Parses a text. Returns: 0; -EINVAL when problem() was called; -ENOMEM; the value of read(),
 * begin() or rank(). Context: any thread; allocates.
 */
int text_parse(const struct text_calls *calls, void *ctx);

/* Receives printed text. Not 0 ends printing. */
typedef int text_write_fn(void *ctx, const char *text, size_t bytes);

/* Prints "num_ranks 4\n". text_print() of each rank's block completes a program. */
int text_print_head(uint32_t ranks, text_write_fn *write, void *ctx);
/*
 * Prints "\nrank 3 {\n" ... "}\n". The block must have passed goal_verify(). Returns: 0 or the
 * value of write(). Context: any thread; allocates nothing.
 */
int text_print(uint32_t rank, const struct goal_block *b, text_write_fn *write, void *ctx);
/* Prints one operation without label and end of line, "send 8b to 1 tag 0". Of a long list only the
 * first pieces are printed. */
void text_print_op(const struct goal_block *b, uint32_t op, char *buf, size_t cap);

#endif
