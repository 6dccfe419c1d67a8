/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts in memory for the tests of text/. */
#ifndef SLUICE_TEST_TEXT_CASE_H
#define SLUICE_TEST_TEXT_CASE_H

#include "goal/text/text.h"
#include "unit.h"

/* The result of parsing a text. Owner: text_case_free(). */
struct text_case {
	int ret;
	char *printed;  /* all ranks, in the order of the text, as text_print() has them */
	char *problems; /* "3:9: message\n" each */
	struct goal_block **blocks; /* [rank_count], in the order of the text */
	uint32_t *ranks;
	uint32_t rank_count, begun; /* begin()'s number */
	uint64_t *lines;            /* of the last rank's operations, in the block's order */
	char label[64];             /* of the last rank's last operation */
};

/* Parses a text that is read in pieces of up to `piece` bytes. */
void text_case_parse_in(struct text_case *c, const char *text, size_t bytes, size_t piece);
void text_case_parse(struct text_case *c, const char *text);
void text_case_free(struct text_case *c);
/* Returns: the canonical form of a text, or its problems. Valid until the next call. */
const char *text_case_of(const char *text);

/* Appends to a string that grows. */
int text_case_append(void *string, const char *text, size_t bytes);

#endif
