/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes the parts of the manual that come from tables in the program, as lines for generate.py:
 * "@NAME@" begins a part, roff follows.
 */
#include "base/base.h"

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

int main(void)
{
	puts("@OPTIONS@");
	for (size_t i = 0; i < base_option_count; i++) {
		const struct base_option *o = &base_option_table[i];
		char takes[256];

		base_option_describe(o, takes, sizeof(takes));
		printf(".TP\n.B %s\n", o->name);
		roff(o->help);
		fputs(".\nTakes ", stdout);
		roff(takes);
		fputs("; default ", stdout);
		roff(*o->dflt ? o->dflt : "none");
		puts(".");
	}
	puts("@COUNTERS@");
	for (int i = 0; i < BASE_CTR_COUNT; i++) {
		printf(".TP\n.B %s\n", base_counter_name((enum base_counter)i));
		roff(base_counter_help((enum base_counter)i));
		putchar('\n');
	}
	return ferror(stdout) || fflush(stdout);
}
