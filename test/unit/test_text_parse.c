/* SPDX-License-Identifier: BSD-3-Clause */
/* The meaning of texts. */
#include "text_case.h"

UNIT_TEST(operations_of_the_dialect_are_read_and_printed_in_canonical_form)
{
	CHECK_STR(
		text_case_of("num_ranks 2\n\nrank 0 {\nl1: send 10b to 1 tag 3 cpu 1 nic 2\n"
			     "l2: calc 100 cpu 4\nl3: recv 7b from 1\nl2 requires l1\nl3 irequires "
			     "l2\n}\nrank 1 {\n}\n"),
		"num_ranks 2\n\nrank 0 {\nl0: send 10b to 1 tag 3 cpu 1 nic 2\nl1: calc 100 cpu 4\n"
		"l2: recv 7b from 1 tag 0\nl1 requires l0\nl2 irequires l1\n}\n\nrank 1 {\n}\n");
}

UNIT_TEST(statements_end_with_lines_or_semicolons_and_blanks_do_not_matter)
{
	const char *plain = "num_ranks 1\n\nrank 0 {\nl0: calc 1\nl1: calc 2\nl1 requires l0\n}\n";

	CHECK_STR(text_case_of("num_ranks 1;rank 0{a:calc 1;b:calc 2;b requires a}"), plain);
	CHECK_STR(
		text_case_of(
			"num_ranks 1 rank 0\n\n{ ;; a : calc 1 ; b: calc 2\r\n\tb   requires\ta }"),
		plain);
	CHECK_STR(text_case_of("\xef\xbb\xbfnum_ranks 1\r\nrank 0 {\r\na: calc 1\r\nb: calc 2\r\nb "
			       "requires a\r\n}\r\n"),
		  plain);
	CHECK_STR(text_case_of("num_ranks 1\nrank 0 {\na: calc 1\nb: calc 2\nb requires a\n}"),
		  plain);
}

UNIT_TEST(comments_stand_wherever_blanks_may)
{
	CHECK_STR(text_case_of("// a\nnum_ranks /* b */ 1 // c\n/* d\n * e */ rank 0 { /**/\ncalc "
			       "/*/ f /*/ 5 // g }\n}"
			       "/* h */"),
		  "num_ranks 1\n\nrank 0 {\nl0: calc 5\n}\n");
	/* one that spans lines ends the statement before it */
	CHECK_STR(text_case_of("num_ranks 1 rank 0 { calc 5 /* \n */ calc 6 }"),
		  "num_ranks 1\n\nrank 0 {\nl0: calc 5\nl1: calc 6\n}\n");
}

UNIT_TEST(a_comment_of_many_lines_does_not_lose_what_stood_before_it)
{
	/* the line of the wrong word is not in memory any more when the comment ends */
	size_t bytes = 1 << 20;
	char *text = malloc(bytes + 200);
	struct text_case c;

	CHECK(text);
	strcpy(text, "num_ranks 1\nrank 0 {\n\tput: A/* ");
	for (size_t at = strlen(text), end = at + bytes; at < end; at++)
		text[at] = at % 70 ? 'x' : '\n', text[at + 1] = '\0';
	strcat(text, "*/\n}\n");
	text_case_parse_in(&c, text, strlen(text), 3000);
	CHECK_STR(c.problems, "3:7: there is no operation 'A'\n");
	text_case_free(&c);
	free(text);
}

UNIT_TEST(keywords_are_labels_where_a_label_stands)
{
	CHECK_STR(text_case_of("num_ranks 1 rank 0 { send: calc 1; max: calc 2; rank: calc 3; "
			       "scratch: calc 4;"
			       "max requires send; requires: calc 5; requires requires rank; rank "
			       "requires scratch }"),
		  "num_ranks 1\n\nrank 0 {\nl0: calc 1\nl1: calc 4\nl2: calc 2\nl3: calc 3\nl4: "
		  "calc 5\n"
		  "l2 requires l0\nl3 requires l1\nl4 requires l3\n}\n");
}

UNIT_TEST(labels_may_be_used_before_they_are_defined)
{
	CHECK_STR(
		text_case_of(
			"num_ranks 1 rank 0 { b requires a, c; a: calc 1; b: calc 2; c: calc 3 }"),
		"num_ranks 1\n\nrank 0 {\nl0: calc 1\nl1: calc 3\nl2: calc 2\nl2 requires l0\nl2 "
		"requires l1\n}\n");
}

UNIT_TEST(any_source_and_any_tag_are_minus_one_or_a_word)
{
	CHECK_STR(
		text_case_of(
			"num_ranks 1 rank 0 { recv 1b from -1 tag any; recv 1b from any tag - 1 }"),
		"num_ranks 1\n\nrank 0 {\nl0: recv 1b from -1 tag -1\nl1: recv 1b from -1 tag "
		"-1\n}\n");
}

/* schedgen writes MPI's -1 with 64 bits, txt2bin keeps 32 of them */
UNIT_TEST(any_is_also_minus_one_as_an_unsigned_number)
{
	CHECK_STR(text_case_of("num_ranks 1 rank 0 { recv 1b from 4294967295 tag "
			       "18446744073709551615; recv 1b from 0 tag 4294967295 }"),
		  "num_ranks 1\n\nrank 0 {\nl0: recv 1b from -1 tag -1\nl1: recv 1b from 0 tag "
		  "-1\n}\n");
}

UNIT_TEST(memory_lists_and_local_operations_are_read)
{
	const char *text = "num_ranks 1\n\nrank 0 {\nl0: send 8b to 0 tag 0 from user0+4096\n"
			   "l1: recv 30b from 0 tag 1 into [10b user0+0, 20b scratch+100]\n"
			   "l2: copy 8b from user0+0 into user63+8\n"
			   "l3: add f64 80b from user0+0, scratch+8 into user1+0\n"
			   "l4: xor u8 3b from user0+0, user0+1 into user2+0 cpu 3\nl5: stamp into "
			   "user0+8\nl6: nop nic 9\n}\n";

	CHECK_STR(text_case_of(text), text);
	CHECK_STR(
		text_case_of("num_ranks 1 rank 0 { add f64 8b into user1 from user0, user0 + 8 }"),
		"num_ranks 1\n\nrank 0 {\nl0: add f64 8b from user0+0, user0+8 into user1+0\n}\n");
}

UNIT_TEST(what_stands_behind_a_list_counts_as_well)
{
	CHECK_STR(text_case_of("num_ranks 1 rank 0 { send 8b to 0 from [3b user0, 5b user1] nic 1 "
			       "match 5 cpu 2 tag 3;"
			       "recv 8b from 0 into [8b user0+8] tag any cpu 4 }"),
		  "num_ranks 1\n\nrank 0 {\n"
		  "l0: send 8b to 0 tag 3 cpu 2 nic 1 match 5 from [3b user0+0, 5b user1+0]\n"
		  "l1: recv 8b from 0 tag -1 cpu 4 into [8b user0+8]\n}\n");
}

UNIT_TEST(scratch_memory_is_what_is_used_unless_it_is_stated)
{
	struct text_case c;

	text_case_parse(&c, "num_ranks 1 rank 0 { recv 8b from 0 into scratch+100 }");
	CHECK_EQ(c.blocks[0]->scratch_bytes, 108);
	text_case_free(&c);
	text_case_parse(&c,
			"num_ranks 1 rank 0 { scratch 4096b; recv 8b from 0 into scratch+100 }");
	CHECK_EQ(c.blocks[0]->scratch_bytes, 4096);
	CHECK_STR(c.printed, "num_ranks 1\n\nrank 0 {\nscratch 4096b\nl0: recv 8b from 0 tag 0 "
			     "into scratch+100\n}\n");
	text_case_free(&c);
}

UNIT_TEST(what_a_rank_states_does_not_count_for_the_next)
{
	struct text_case c;

	text_case_parse(&c,
			"num_ranks 2 rank 0 { scratch 9b } rank 1 { recv 8b from 0 into scratch; "
			"recv 0b from 0 match 0 }");
	CHECK_STR(c.problems ? c.problems : "none",
		  "0:0: rank 1: its receives are not numbered from 0 without "
		  "gaps\n");
	text_case_free(&c);
	text_case_parse(
		&c,
		"num_ranks 2 rank 0 { scratch 9b; recv 0b from 0 match 0 } rank 1 { scratch 7b; "
		"recv 2b from 0 into scratch; recv 0b from 0 }");
	CHECK_EQ(c.ret, 0);
	CHECK_EQ(c.blocks[0]->scratch_bytes, 9);
	CHECK_EQ(c.blocks[1]->scratch_bytes, 7);
	CHECK_EQ(goal_ops_const(c.blocks[1])[1].match, 1);
	text_case_free(&c);
	text_case_parse(&c,
			"num_ranks 2 rank 0 { scratch 9b } rank 1 { recv 2b from 0 into scratch }");
	CHECK_EQ(c.blocks[1]->scratch_bytes, 2);
	text_case_free(&c);
}

UNIT_TEST(memory_that_is_not_named_is_nowhere)
{
	struct text_case c;

	text_case_parse(&c, "num_ranks 1 rank 0 { send 8b to 0 }");
	CHECK_EQ(goal_ops_const(c.blocks[0])->mem, GOAL_NOWHERE);
	text_case_free(&c);
}

UNIT_TEST(receives_are_numbered_in_the_order_of_the_block_unless_told)
{
	struct text_case c;
	const char *text = "num_ranks 1\n\nrank 0 {\nl0: recv 1b from 0 tag 0 match 2\nl1: recv 1b "
			   "from 0 tag 1\n"
			   "l2: recv 1b from 0 tag 2 match 0\nl3: send 1b to 0 tag 0 match 7\n}\n";

	text_case_parse(&c, text);
	CHECK_STR(c.printed, text);
	CHECK_EQ(goal_ops_const(c.blocks[0])[0].match, 2);
	CHECK_EQ(goal_ops_const(c.blocks[0])[1].match, 1);
	CHECK_EQ(goal_ops_const(c.blocks[0])[3].match, 7);
	text_case_free(&c);
	CHECK_HAS(text_case_of("num_ranks 1 rank 0 { recv 1b from 0; recv 1b from 0 match 0 }"),
		  "not numbered from 0");
}

UNIT_TEST(ranks_come_in_any_order)
{
	struct text_case c;

	text_case_parse(&c, "num_ranks 3 rank 2 { calc 2 } rank 0 { } rank 1 { calc 1 }");
	CHECK_EQ(c.ret, 0);
	CHECK_EQ(c.begun, 3);
	CHECK_EQ(c.rank_count, 3);
	CHECK_EQ(c.ranks[0], 2);
	CHECK_EQ(c.ranks[2], 1);
	CHECK_EQ(goal_ops_const(c.blocks[2])->bytes, 1);
	text_case_free(&c);
}

UNIT_TEST(places_are_those_of_the_operations_as_they_stand_in_the_block)
{
	struct text_case c;

	text_case_parse(
		&c, "num_ranks 1\nrank 0 {\nlate: calc 1\nfirst: calc 2\nlate requires first\n}\n");
	CHECK_EQ(c.lines[0], 4);
	CHECK_EQ(c.lines[1], 3);
	CHECK_STR(c.label, "late");
	text_case_free(&c);
}

UNIT_TEST(the_largest_numbers_are_read)
{
	const char *text =
		"num_ranks 2147483647\n\nrank 2147483646 {\n"
		"l0: send 18446744073709551615b to 2147483646 tag 4294967294 cpu 65535 nic 65535\n"
		"l1: calc 18446744073709551615\n}\n";
	char *with = NULL;

	/* printed as read; the missing ranks are reported at the end */
	text_case_append(&with, text, strlen(text));
	CHECK_HAS(text_case_of(with), "0:0: rank 0 has no block, as 2147483646 of 2147483647");
	free(with);
}

UNIT_TEST(one_block_after_the_other_of_a_large_text_needs_no_more_than_the_largest)
{
	/* ranks of growing and shrinking size reuse labels, slots and arrays */
	char *text = NULL, line[200];
	struct text_case c;
	uint32_t ops = 0, want = 0;

	text_case_append(&text, "num_ranks 300\n", 14);
	for (int r = 0; r < 300; r++) {
		int n = r % 7 == 3 ? 400 : r % 5;

		want += (uint32_t)n;
		text_case_append(&text, line,
				 (size_t)snprintf(line, sizeof line, "rank %d {\n", r));
		for (int i = 0; i < n; i++)
			text_case_append(
				&text, line,
				(size_t)snprintf(line, sizeof line, "x%d: calc %d\n", i, i));
		for (int i = 1; i < n; i++)
			text_case_append(&text, line,
					 (size_t)snprintf(line, sizeof line, "x%d requires x%d\n",
							  i, i - 1));
		text_case_append(&text, "}\n", 2);
	}
	text_case_parse_in(&c, text, strlen(text), 4099);
	CHECK_EQ(c.ret, 0);
	for (uint32_t i = 0; i < c.rank_count; i++) {
		ops += c.blocks[i]->op_count;
		CHECK_EQ(c.blocks[i]->ready_count, c.blocks[i]->op_count ? 1 : 0);
	}
	CHECK_EQ(c.rank_count, 300);
	CHECK_EQ(ops, want);
	text_case_free(&c);
	free(text);
}
