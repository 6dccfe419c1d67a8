/* SPDX-License-Identifier: BSD-3-Clause */
#include "goal/goal.h"

const char *const goal_op_words[GOAL_TYPES + 1] = {
#define X(id, word, operands, help) word,
	GOAL_OPS(X)
#undef X
};

const char *const goal_dtype_words[GOAL_DTYPE_COUNT + 1] = {
#define X(id, word, bytes) word,
	GOAL_DTYPES(X)
#undef X
};
