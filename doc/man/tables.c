/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes the parts of the manual that come from tables in the program, as lines for generate.py:
 * "@NAME@" begins a part, roff follows.
 */
#include "base/base.h"
#include "goal/goal.h"

/* Hyphens of names and commands must be typed "\-" to be found by search and copied whole. */
static void roff(const char *text)
{
	for (; *text; text++) {
		if (*text == '-')
			fputs("\\-", stdout);
		else if (*text == '\\')
			fputs("\\e", stdout);
		else
			putchar(*text);
	}
}

/* What sluice-goal(5) says of operations and types. */
static void goal_tables(void)
{
	puts("@GOALOPERATIONS@");
#define X(id, word, operands, help)                                                 \
	printf(".TP\n.B %u %s\n", GOAL_##id, word);                                 \
	roff(*(operands) ? operands ". " : "");                                      \
	roff(help);                                                                 \
	puts(".");
	GOAL_OPS(X)
#undef X
	puts("@GOALTYPES@");
#define X(id, word, bytes) printf("%u %s%s\n", GOAL_##id, word, GOAL_##id + 1 < GOAL_DTYPE_COUNT ? "," : ".");
	GOAL_DTYPES(X)
#undef X
}

/* Rows of one group. */
static void options_of(enum base_group group)
{
	for (size_t i = 0; i < base_option_count; i++) {
		const struct base_option *o = &base_option_table[i];
		char takes[256];

		if (o->group != group)
			continue;
		base_option_describe(o, takes, sizeof(takes));
		printf(".TP\n.B %s\n", o->name);
		roff(o->help);
		fputs(".\nTakes ", stdout);
		roff(takes);
		fputs("; default ", stdout);
		roff(*o->dflt ? o->dflt : "none");
		puts(".");
	}
}

/* What sluice(7) and sluice-tune(1) say of options. */
static void option_tables(void)
{
	puts("@OPTIONS@");
	for (enum base_group g = BASE_GROUP_USE; g <= BASE_GROUP_OUTPUT; g++) {
		printf(".SS %s\n", base_group_title(g));
		options_of(g);
	}
	puts("@COLLECTIVES@");
	options_of(BASE_GROUP_COLL);
	puts("@TUNING@");
	options_of(BASE_GROUP_TUNE);
	puts("@TESTS@");
	options_of(BASE_GROUP_TEST);
}

int main(void)
{
	option_tables();
	puts("@COUNTERS@");
#define X(id, name, help)       \
	puts(".TP\n.B " name); \
	roff(help);             \
	putchar('\n');
	BASE_COUNTERS(X)
#undef X
	goal_tables();
	return ferror(stdout) || fflush(stdout);
}
