/* SPDX-License-Identifier: BSD-3-Clause */
/* Private to text/. */
#ifndef SLUICE_TEXT_PRIVATE_H
#define SLUICE_TEXT_PRIVATE_H

#include "goal/grow/grow.h"
#include "goal/text/text.h"

/* ---- source.c: lines -------------------------------------------------------------------- */

/* The text, line by line. [line, line_end) is contiguous in memory; line_end is its '\n' or the
 * end. */
struct text_source {
	int64_t (*read)(void *ctx, char *buf, size_t cap);
	void *ctx;
	char *buf;
	size_t cap, begin, end; /* bytes of the text in buf: [begin, end) */
	const char *line, *line_end;
	uint64_t line_number;
	bool ended; /* read() returned 0 */
};
void text_source_init(struct text_source *s, int64_t (*read)(void *, char *, size_t), void *ctx);
void text_source_fini(struct text_source *s);
/* Returns: 1: there is a line; 0: end of the text; -EFBIG: a line above TEXT_LINE_MAX; -ENOMEM; an
 * error of read(). */
int text_source_next(struct text_source *s);

/* ---- lex.c: tokens ---------------------------------------------------------------------- */

enum text_kind {
	TEXT_WORD,   /* [A-Za-z_][A-Za-z0-9_.]* */
	TEXT_NUMBER, /* [0-9]+ */
	TEXT_END,    /* end of a line, or ';' */
	TEXT_EOF,
	TEXT_MARK,    /* one of { } : , + - [ ] */
	TEXT_INVALID, /* a byte that begins no token */
};

struct text_token {
	enum text_kind kind;
	bool overflow; /* number: above 64 bits */
	uint32_t bytes;
	const char *start; /* in the current line */
	uint64_t number;
};

struct text_lexer {
	struct text_source source;
	const char *at; /* where the next token begins */
	struct text_token token;
	int error;             /* error of the source; the token is then TEXT_EOF */
	uint64_t comment_line; /* line in which the open comment began; 0: none */
};
/* Reads the next token into lexer->token. */
void text_next(struct text_lexer *l);
static inline bool text_is_mark(const struct text_lexer *l, char c)
{
	return l->token.kind == TEXT_MARK && *l->token.start == c;
}
bool text_is_word(const struct text_token *t, const char *word);

/* ---- labels.c: the names of a rank ------------------------------------------------------ */

struct text_label {
	uint32_t name, bytes; /* in names, terminated */
	uint32_t hash;
	uint32_t op;            /* GOAL_NONE: mentioned, not defined yet */
	uint32_t column;        /* line of the first mention */
	uint64_t line, defined; /* of the first mention, of the operation */
};
#define TEXT_BROKEN (GOAL_NONE - 1) /* op: its statement has a mistake */
struct text_labels {
	struct text_label *all;
	uint32_t count, cap;
	char *names;
	uint32_t names_bytes, names_cap;
	uint32_t *slots, mask; /* open addressing: index of the label + 1 */
	uint32_t slots_cap;
};
void text_labels_fini(struct text_labels *t);
/* Removes all labels and keeps the memory. Returns: 0 or -ENOMEM. */
int text_labels_clear(struct text_labels *t);
/* Returns: the label's index; a new label gets line and column. GOAL_NONE: out of memory. */
uint32_t text_label(struct text_labels *t, const char *name, uint32_t bytes, uint64_t line,
		    uint32_t column);
static inline const char *text_label_name(const struct text_labels *t, uint32_t label)
{
	return t->names + t->all[label].name;
}

/* ---- rank.c: what a block is made from -------------------------------------------------- */

struct text_number {
	uint32_t op, match; /* `match` of the receive was given */
};

/* A rank while it is parsed. Until its end edges hold labels: operations may be defined later. */
struct text_making {
	uint32_t rank;
	struct text_labels labels;
	struct goal_build build;
	struct text_place *places, *sorted; /* of the operations as added; as compiled */
	struct text_number *numbers;
	uint32_t place_cap, sorted_cap, number_count, number_cap;
	uint64_t scratch_bytes; /* scratch memory that the text states */
	bool has_scratch;
	uint64_t scratch_used; /* scratch memory that operations name */
	struct goal_block *block;
	size_t block_cap;
	uint32_t *work;
	size_t work_cap;
};

struct text_parser;
/* Keeps all memory for the next rank. Returns: 0 or -ENOMEM. */
int text_making_begin(struct text_making *m, uint32_t rank);
void text_making_fini(struct text_making *m);
/* Returns: the number of the added operation; GOAL_NONE: out of memory. label: TEXT_NO_LABEL for
 * none. */
uint32_t text_making_add(struct text_making *m, const struct goal_op *op, uint64_t line,
			 uint32_t label);
/* 0 or -ENOMEM */
int text_making_piece(struct text_making *m, uint32_t op, uint32_t mem, uint64_t off,
		      uint64_t bytes);
int text_making_number(struct text_making *m, uint32_t op, uint32_t match);
int text_making_edge(struct text_making *m, uint32_t after, uint32_t before, bool immediate);
/* Compiles the rank and hands it to the caller, or reports its problems. */
void text_making_end(struct text_parser *p);

/* ---- parse.c ---------------------------------------------------------------------------- */

struct text_parser {
	const struct text_calls *calls;
	void *ctx;
	struct text_lexer lexer;
	struct text_making making;
	uint32_t ranks; /* num_ranks; 0: not stated yet */
	bool has_ranks;
	uint64_t *ranks_read; /* one bit for each rank that had a block */
	size_t ranks_read_words;
	uint32_t read_count;
	uint32_t problem_count, problems_before; /* all problems; those before the current rank */
	uint64_t rank_line;                      /* where the current rank begins */
	int error; /* out of memory, or result of a callback: parsing ends */
};

/* Checks for the end of a statement; does not consume the token. */
static inline bool text_at_end(const struct text_lexer *l)
{
	return l->token.kind == TEXT_END || l->token.kind == TEXT_EOF || text_is_mark(l, '}');
}

/* ---- operation.c ------------------------------------------------------------------------ */

/* Is this a keyword that begins an operation? */
bool text_is_operation(const struct text_token *word);
/*
 * Parses an operation after its keyword `word`. label: index in labels, or TEXT_NO_LABEL. Returns:
 * false: a problem was reported, or memory is out.
 */
bool text_operation(struct text_parser *p, const struct text_token *word, uint32_t label);
/* Parses a number up to max into *out; reports "expected <what>" otherwise. */
bool text_expect_number(struct text_parser *p, const char *what, uint64_t max, uint64_t *out);
/* "10b" */
bool text_expect_bytes(struct text_parser *p, uint64_t *out);

/* ---- problem.c -------------------------------------------------------------------------- */

/* Reports a problem at a token of the current line. Each returns false. */
bool text_wrong(struct text_parser *p, const struct text_token *at, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Reports a problem in a line that may not be in memory any more; column 0: the whole line; line 0:
 * the text. */
bool text_wrong_at(struct text_parser *p, uint64_t line, uint32_t column, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* "expected <what>, not 'word'", about the current token. */
bool text_expected(struct text_parser *p, const char *what);
/*
 * "expected 'tag', 'cpu' or <other>, not 'tga'; did you mean 'tag'?", at token `at`. words: ends
 * with NULL; other NULL: nothing else is expected.
 */
bool text_expected_words(struct text_parser *p, const struct text_token *at,
			 const char *const *words, const char *other);
/* "there is no operation 'snd'; did you mean 'send'?" */
bool text_unknown(struct text_parser *p, const struct text_token *at, const char *const *words);

#endif
