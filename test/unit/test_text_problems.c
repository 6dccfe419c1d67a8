/* SPDX-License-Identifier: BSD-3-Clause */
/* Problems of texts and their places. */
#include <errno.h>

#include "text_case.h"

/* A statement alone in rank 0 of 4, in the third line. */
static const char *statement(const char *text)
{
	char all[512];

	snprintf(all, sizeof all, "num_ranks 4\nrank 0 {\n%s\n} rank 1 {} rank 2 {} rank 3 {}\n",
		 text);
	return text_case_of(all);
}

UNIT_TEST(a_wrong_word_is_named_with_what_was_expected_and_the_nearest)
{
	CHECK_STR(statement("l1: snd 10b to 1"),
		  "3:5: there is no operation 'snd'; did you mean 'send'?\n");
	CHECK_STR(statement("send 10b ot 1"),
		  "3:10: expected 'to', not 'ot'; did you mean 'to'?\n");
	CHECK_STR(statement("send 10b from 1"), "3:10: expected 'to', not 'from'\n");
	CHECK_STR(statement("recv 10b fron 1"),
		  "3:10: expected 'from', not 'fron'; did you mean 'from'?\n");
	CHECK_STR(statement("send 10b to 1 tga 3"), "3:15: expected 'from', 'tag', 'cpu', 'nic', "
						    "'match' or the end of the line, not 'tga'; "
						    "did you mean 'tag'?\n");
	CHECK_STR(statement("send 10b to 1 tag 3 tag 4"), "3:21: a second 'tag'\n");
	CHECK_STR(statement("add f63 8b from user0, user0 into user0"),
		  "3:5: expected 'i8', 'i16', 'i32', 'i64', 'u8', 'u16', 'u32', 'u64', 'f16', "
		  "'bf16', 'f32' or 'f64', "
		  "not 'f63'; did you mean 'f64'?\n");
	CHECK_STR(statement("l1: calc 1; l2: calc 2; l1 reqires l2"),
		  "3:28: expected 'requires', 'irequires' or ':' and an operation, not 'reqires'; "
		  "did you mean 'requires'?\n");
	CHECK_STR(text_case_of("num_rank 4\n"),
		  "1:1: expected 'num_ranks' or 'rank', not 'num_rank'; did you mean "
		  "'num_ranks'?\n");
}

UNIT_TEST(a_missing_or_wrong_number_is_named)
{
	CHECK_STR(statement("send to 1"),
		  "3:6: expected a number of bytes such as '10b', not 'to'\n");
	CHECK_STR(statement("send 10 to 1"),
		  "3:9: expected 'b' after the number of bytes, not 'to'\n");
	CHECK_STR(statement("calc"),
		  "3:5: expected a number of nanoseconds, not the end of the line\n");
	CHECK_STR(statement("calc;"), "3:5: expected a number of nanoseconds, not ';'\n");
	CHECK_STR(statement("calc 5 cpu x"), "3:12: expected the number of a CPU, not 'x'\n");
	CHECK_STR(statement("calc -5"), "3:6: expected a number of nanoseconds, not '-'\n");
	CHECK_STR(statement("send 1b to 1 tag \xc3\xa9"),
		  "3:18: expected the number of a tag, not '\xc3\xa9'\n");
}

UNIT_TEST(numbers_that_do_not_fit_are_refused)
{
	CHECK_STR(statement("calc 18446744073709551616"),
		  "3:6: '18446744073709551616' is too large: at most 18446744073709551615\n");
	CHECK_STR(statement("send 1b to 1 tag 4294967296"),
		  "3:18: '4294967296' is too large: at most 4294967294\n");
	CHECK_STR(statement("send 1b to 1 cpu 65536"),
		  "3:18: '65536' is too large: at most 65535\n");
	CHECK_STR(statement("send 18446744073709551615b to 1 from user0+1"),
		  "3:44: 18446744073709551615 bytes at this offset go beyond 64 bits\n");
	CHECK_STR(statement("stamp into user64"), "3:12: there are user0 to user63\n");
	CHECK_STR(statement("stamp into user99999999999999999999"),
		  "3:12: there are user0 to user63\n");
	CHECK_STR(text_case_of("num_ranks 2147483648"),
		  "1:11: '2147483648' is too large: at most 2147483647\n");
	CHECK_STR(text_case_of("num_ranks 0"), "1:11: a program has at least one rank\n");
}

UNIT_TEST(ranks_that_there_are_not_or_twice_or_never_are_named)
{
	CHECK_STR(statement("send 1b to 4"), "3:12: there is no rank 4: num_ranks is 4\n");
	CHECK_STR(text_case_of("num_ranks 1 rank 1 {}"),
		  "1:18: there is no rank 1: num_ranks is 1\n");
	CHECK_STR(text_case_of("num_ranks 2 rank 1 {} rank 1 {}"),
		  "1:28: a second block of rank 1\n");
	CHECK_STR(text_case_of("num_ranks 3 rank 1 {}"),
		  "0:0: rank 0 has no block, as 2 of 3; one with nothing to do is 'rank 0 { }'\n");
	CHECK_STR(text_case_of("rank 0 {}"),
		  "1:1: 'num_ranks N' must come before the first rank\n");
	CHECK_STR(text_case_of("num_ranks 1 num_ranks 1 rank 0 {}"),
		  "1:13: a second 'num_ranks'\n");
}

UNIT_TEST(labels_that_are_not_defined_or_twice_are_named)
{
	CHECK_STR(statement("a: calc 1\nb requires a\na: calc 2"),
		  "5:1: a second operation 'a'; the first is in line 3\n4:1: there is no operation "
		  "'b' in rank 0\n");
	CHECK_STR(statement("a: calc 1; a requires b, a"),
		  "3:26: 'a' would wait for itself\n3:23: there is no operation 'b' in rank 0\n");
	CHECK_STR(statement("a: calc 1; a requires 5"),
		  "3:23: expected the label of an operation, not '5'\n");
	/* a label whose statement is wrong is defined nevertheless */
	CHECK_STR(statement("a: cacl 1\nb: calc 1\nb requires a"),
		  "3:4: there is no operation 'cacl'; did you mean 'calc'?\n");
}

UNIT_TEST(a_cycle_is_named_from_where_it_begins_in_the_text)
{
	CHECK_STR(statement("l1: calc 1\nl2: calc 2\nl3: calc 3\nl4: calc 4\nl3 requires l2\nl2 "
			    "requires l4\n"
			    "l4 irequires l3\nl1 requires l2"),
		  "4:0: requirements of rank 0 form a cycle: l2 -> l4 -> l3 -> l2\n");
	CHECK_HAS(statement("a:calc 1;b:calc 1;c:calc 1;d:calc 1;e:calc 1;f:calc 1;g:calc 1;h:calc "
			    "1;i:calc 1;j:calc 1;"
			    "k:calc 1;l:calc 1;m:calc 1;n:calc 1;a requires b;b requires c;c "
			    "requires d;d requires e;"
			    "e requires f;f requires g;g requires h;h requires i;i requires j;j "
			    "requires k;k requires l;"
			    "l requires m;m requires n;n requires a"),
		  " -> ...\n");
}

UNIT_TEST(what_is_not_closed_is_told_where_it_begins)
{
	CHECK_STR(text_case_of("num_ranks 1\nrank 0 {\ncalc 1\n"),
		  "2:0: rank 0 is not closed: there is no '}'\n");
	CHECK_STR(text_case_of("num_ranks 1\nrank 0 {\ncalc 1\n/* }\n"),
		  "4:0: a comment begins here and does not end\n");
	CHECK_STR(text_case_of("num_ranks 2\nrank 0 {\ncalc 1\nrank 1 {\n}\n"),
		  "4:1: expected '}': rank 0 is not closed\n");
	CHECK_STR(text_case_of("num_ranks 1\nrank 0 {}\n}\n"), "3:1: a '}' without '{'\n");
	CHECK_STR(text_case_of("num_ranks 1\nrank 0 calc 1\n"), "2:8: expected '{', not 'calc'\n");
	CHECK_STR(text_case_of("num_ranks 1\nrank 0"),
		  "2:7: expected '{', not the end of the text\n");
}

UNIT_TEST(what_is_no_text_is_refused_at_once)
{
	struct text_case c;

	CHECK_STR(text_case_of(""),
		  "0:0: the text is empty: a program begins with 'num_ranks N'\n");
	CHECK_STR(text_case_of(" \n // nothing\n"),
		  "0:0: the text is empty: a program begins with 'num_ranks N'\n");
	text_case_parse_in(&c, "num_ranks 1\n\0\0", 14, 5);
	CHECK_EQ(c.ret, -EINVAL);
	CHECK_STR(c.problems, "2:0: this is not text: it contains byte 0x00\n");
	text_case_free(&c);
}

UNIT_TEST(memory_and_types_are_checked)
{
	CHECK_STR(statement("recv 8b from 1 into usr0"),
		  "3:21: expected memory such as 'user0+4096' or 'scratch+0', not 'usr0'\n");
	CHECK_STR(statement("recv 8b from 1 into user0+x"),
		  "3:27: expected an offset in bytes, not 'x'\n");
	CHECK_STR(statement("recv 8b from 1 into [4b user0, 5b user1]"),
		  "3:1: the pieces of the list are 9 bytes, not 8\n");
	CHECK_STR(statement("recv 8b from 1 into [4b user0"),
		  "3:30: expected ',' or ']', not the end of the line\n");
	CHECK_STR(statement("add f64 9b from user0, user0 into user0"),
		  "3:9: not a whole number of f64: each has 8 bytes\n");
	CHECK_STR(statement("xor f64 8b from user0, user0 into user0"),
		  "3:5: 'xor' is for integers\n");
	CHECK_STR(statement("copy 8b from user0+4 into user0"),
		  "3:1: the result overlaps an operand in part\n");
	CHECK_STR(statement("add i8 8b from user1, user0+7 into user0"),
		  "3:1: the result overlaps an operand in part\n");
	CHECK_STR(statement("copy 8b from user0"), "3:19: expected 'into' and memory\n");
	CHECK_STR(statement("copy 8b into user0"), "3:19: expected 'from' and memory\n");
	CHECK_STR(statement("scratch 4b; recv 8b from 1 into scratch"),
		  "0:0: rank 0 uses 8 bytes of scratch memory and states 4\n");
	CHECK_STR(statement("scratch 4b; scratch 5b"), "3:13: a second 'scratch' in rank 0\n");
	CHECK_STR(statement("send 8b to -1"),
		  "3:12: 'send' names its rank: '-1' means any, which is for receives and "
		  "appends\n");
	CHECK_STR(statement("send 8b to 0 tag 18446744073709551615"),
		  "3:18: 'send' names its tag: '18446744073709551615' means any, which is for "
		  "receives and appends\n");
	CHECK_STR(statement("recv 8b from 0 tag 18446744073709551614"),
		  "3:20: '18446744073709551614' is too large: at most 4294967294\n");
	CHECK_STR(statement("recv 8b from -2"), "3:15: expected '1': only -1 means any, not '2'\n");
}

UNIT_TEST(what_a_one_sided_operation_lacks_is_named)
{
	CHECK_STR(statement("append 8b to priority_list allowed 1"), "3:37: expected 'ct'\n");
	CHECK_STR(statement("append 8b to priority_list ct 1"), "3:32: expected 'allowed'\n");
	CHECK_HAS(statement("append 8b to list allowed 1 ct 0"),
		  "3:14: expected 'priority_list' or 'overflow_list', not 'list'");
	CHECK_STR(statement("tput 8b to 1 tag 3"), "3:19: expected 'when'\n");
	CHECK_HAS(statement("tput 8b to 1 when 3 tag 3"), "3:21: expected 'reaches', not 'tag'");
	CHECK_HAS(statement("put 8b to 1 when 3 reaches 1"),
		  "3:13: expected 'tag', 'cpu', 'nic', 'ct'");
	CHECK_STR(statement("put 8b to -1"),
		  "3:11: 'put' names its rank: '-1' means any, which is for receives and "
		  "appends\n");
	CHECK_HAS(statement("get 8b to 1"), "3:8: expected 'from', not 'to'");
	CHECK_HAS(statement("test 1"), "3:7: expected 'for'");
	CHECK_STR(statement("test 4294967295 for 1"),
		  "3:6: '4294967295' is too large: at most 4294967293\n");
	CHECK_HAS(statement("append 8b to priority_list hh 254 allowed 1 ct 0"), "at most 253");
	CHECK_STR(statement("calcgem5 3 10b"), "3:1: 'calcgem5' runs in the processor simulator of "
					       "LogGOPSim2, which Sluice does not have\n");
}

UNIT_TEST(several_problems_are_told_and_then_it_is_enough)
{
	struct text_case c;
	char text[4096] = "num_ranks 1\nrank 0 {\n";
	uint32_t lines = 0;

	CHECK_STR(statement("clac 1\nclac 2; calc 3; clac 4"),
		  "3:1: there is no operation 'clac'; did you mean 'calc'?\n"
		  "4:1: there is no operation 'clac'; did you mean 'calc'?\n"
		  "4:17: there is no operation 'clac'; did you mean 'calc'?\n");
	for (int i = 0; i < 100; i++)
		strcat(text, "oops\n");
	text_case_parse(&c, text);
	for (const char *p = c.problems; (p = strchr(p, '\n')); p++)
		lines++;
	CHECK_EQ(lines, TEXT_PROBLEMS_MAX);
	CHECK_EQ(c.rank_count, 0);
	text_case_free(&c);
	/* also when one statement has more than are left */
	strcpy(text, "num_ranks 1\nrank 0 {\n");
	for (int i = 0; i < TEXT_PROBLEMS_MAX - 1; i++)
		strcat(text, "oops\n");
	strcat(text, "rank 7 oops\n");
	text_case_parse(&c, text);
	lines = 0;
	for (const char *p = c.problems; (p = strchr(p, '\n')); p++)
		lines++;
	CHECK_EQ(lines, TEXT_PROBLEMS_MAX);
	text_case_free(&c);
}

UNIT_TEST(a_mistake_in_one_rank_does_not_hide_those_of_the_next)
{
	CHECK_STR(text_case_of(
			  "num_ranks 2 rank 0 { clac 1 }\nrank 1 { a: nop; b: nop; a requires b\n"
			  "b requires a }"),
		  "1:22: there is no operation 'clac'; did you mean 'calc'?\n"
		  "2:0: requirements of rank 1 form a cycle: a -> b -> a\n");
}

UNIT_TEST(ranks_after_a_problem_are_not_handed_out)
{
	struct text_case c;

	text_case_parse(&c, "num_ranks 3 rank 0 { calc 1 } rank 1 { clac 1 } rank 2 { calc 1 }");
	CHECK_EQ(c.ret, -EINVAL);
	CHECK_EQ(c.rank_count, 1);
	text_case_free(&c);
}

/* ---- what the caller says
 * ------------------------------------------------------------------------ */

static int64_t fails(void *ctx, char *buf, size_t cap)
{
	(void)cap;
	if ((*(int *)ctx)++)
		return -EIO;
	memcpy(buf, "num_ranks 1\n", 12);
	return 12;
}

static void none(void *ctx, const struct text_problem *p)
{
	(void)ctx, (void)p;
	abort();
}

UNIT_TEST(an_error_of_reading_is_returned)
{
	const struct text_calls calls = { .read = fails, .problem = none };
	int count = 0;

	CHECK_EQ(text_parse(&calls, &count), -EIO);
}

static int64_t endless(void *ctx, char *buf, size_t cap)
{
	(void)ctx;
	memset(buf, ' ', cap);
	return (int64_t)cap;
}

static void too_long(void *ctx, const struct text_problem *p)
{
	CHECK_STR(p->message, "a line of more than 64 MiB");
	++*(int *)ctx;
}

UNIT_TEST(a_line_without_end_is_refused_before_it_fills_the_memory)
{
	const struct text_calls calls = { .read = endless, .problem = too_long };
	int count = 0;

	CHECK_EQ(text_parse(&calls, &count), -EINVAL);
	CHECK_EQ(count, 1);
}

static int64_t one_rank(void *ctx, char *buf, size_t cap)
{
	static const char text[] = "num_ranks 2 rank 0 { } rank 1 { }";

	(void)cap;
	if ((*(int *)ctx)++)
		return 0;
	memcpy(buf, text, sizeof text - 1);
	return sizeof text - 1;
}

static int refuses(void *ctx, const struct text_rank *r)
{
	(void)ctx;
	return r->rank ? 0 : 77;
}

UNIT_TEST(what_a_callback_returns_ends_the_parsing)
{
	const struct text_calls calls = { .read = one_rank, .rank = refuses, .problem = none };
	int count = 0;

	CHECK_EQ(text_parse(&calls, &count), 77);
}

static int full(void *ctx, const char *text, size_t bytes)
{
	(void)ctx, (void)text, (void)bytes;
	return -ENOSPC;
}

UNIT_TEST(an_error_of_writing_ends_the_printing)
{
	struct text_case c;

	text_case_parse(&c, "num_ranks 1 rank 0 { calc 5 }");
	CHECK_EQ(text_print_head(1, full, NULL), -ENOSPC);
	CHECK_EQ(text_print(0, c.blocks[0], full, NULL), -ENOSPC);
	text_case_free(&c);
}
