/* SPDX-License-Identifier: BSD-3-Clause */
/* sluice goal print and compile: a program to text, a text to a program. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "goal.h"

static const char print_help[] =
	"usage: sluice goal print [--loggopsim] FILE [-o OUT]\n"
	"\n"
	"Prints the program in FILE as canonical text: the operations of each rank in an\n"
	"order in which they may start, with labels l0, l1, ... Printing that text again\n"
	"changes nothing.\n"
	"\n"
	"  -o OUT       write to OUT instead of standard output\n"
	"  --loggopsim  for LogGOPSim's txt2bin: sends, receives and calc without memory;\n"
	"               local operations become a calc of 0 ns\n"
	"\n"
	"Examples:\n"
	"  sluice goal print program\n"
	"  echo 'num_ranks 1; rank 0 { l1: calc 5 }' | sluice goal print -\n"
	"\n"
	"Exit code: 0 done; 1 FILE is wrong or cannot be read; 2 misuse.\n"
	"More: man sluice-goal\n";

static const char compile_help[] =
	"usage: sluice goal compile [--loggopsim] FILE -o OUT\n"
	"\n"
	"Compiles a text to a program file, which is mapped instead of parsed (man 5\n"
	"sluice-goal describes it).\n"
	"\n"
	"  -o OUT       write to OUT; - is standard output\n"
	"  --loggopsim  write the binary of LogGOPSim and ATLAHS (as sluice goal print)\n"
	"\n"
	"Examples:\n"
	"  sluice goal compile text.goal -o program\n"
	"  sluice goal compile - -o program < text.goal\n"
	"\n"
	"Exit code: 0 done; 1 FILE is wrong, or a file cannot be read or written; 2\n"
	"misuse. More: man sluice-goal\n";

static int print_all(const struct goal_program *p, FILE *out)
{
	int ret = text_print_head(p->ranks, goal_write_text, out);

	for (uint32_t r = 0; r < p->ranks && !ret; r++)
		ret = text_print(r, goal_program_block(p, r), goal_write_text, out);
	return ret;
}

static int cannot_write(const char *verb, const char *path, int error)
{
	tool_say("goal %s: cannot write %s: %s", verb, path, goal_why(error));
	return TOOL_FAILED;
}

static int write_loggopsim(const struct goal_program *p, const char *path, const char *verb,
			   int (*write)(const struct goal_program *, FILE *))
{
	bool is_stdout = !strcmp(path, "-");
	FILE *out = is_stdout ? stdout : fopen(path, "we");
	int ret, failed;

	if (!out)
		return cannot_write(verb, path, -errno);
	ret = write(p, out);
	errno = 0;
	failed = fflush(out) || ferror(out);
	if (!is_stdout && fclose(out))
		failed = 1;
	if (!ret && failed)
		return cannot_write(verb, path, errno ? -errno : -EIO);
	return ret;
}

int goal_print_main(int argc, char **argv)
{
	const char *file, *path;
	struct goal_input in;
	FILE *out = stdout;
	bool loggopsim;
	int ret = goal_file_args("print", print_help, argv, &file, &path, &loggopsim);

	if (ret >= 0)
		return ret;
	ret = goal_input_need(&in, "print", file);
	if (ret)
		return ret;
	if (loggopsim) {
		ret = write_loggopsim(in.program, path ? path : "-", "print", goal_loggopsim_print);
		goal_input_close(&in);
		return ret;
	}
	if (path && strcmp(path, "-"))
		out = fopen(path, "we");
	ret = out ? print_all(in.program, out) : -errno;
	if (out && out != stdout && fclose(out) && !ret)
		ret = -errno;
	goal_input_close(&in);
	return ret ? cannot_write("print", path ? path : "standard output", ret) : TOOL_DONE;
}

/* ---- compile ---------------------------------------------------------------------------- */

static const struct goal_block *block_at(const struct goal_program *p, uint32_t number)
{
	return (const struct goal_block *)((const char *)p + goal_program_offsets(p)[number]);
}

/* Replaces an existing file when the new one is complete; does not replace a device or a pipe. */
static bool is_replaceable(const char *path)
{
	struct stat st;

	return stat(path, &st) || S_ISREG(st.st_mode);
}

static int write_stream(const struct goal_program *p, const char *path)
{
	FILE *out = strcmp(path, "-") ? fopen(path, "we") : stdout;
	int ret = out ? goalfile_write(p, out) : -errno;

	if (out && !ret && fflush(out))
		ret = -errno;
	if (out && out != stdout && fclose(out) && !ret)
		ret = -errno;
	return ret;
}

static int write_file(const struct goal_program *p, const char *path)
{
	struct goalfile_writer *w;
	uint32_t number;
	int ret = goalfile_create(path, p->ranks, &w);

	if (ret)
		return ret;
	/* a block that ranks share is written once */
	for (uint32_t i = 0; i < p->block_count && !ret; i++)
		ret = goalfile_add(w, block_at(p, i), &number);
	for (uint32_t r = 0; r < p->ranks && !ret; r++)
		ret = goalfile_assign(w, r, goal_program_numbers(p)[r]);
	if (!ret)
		return goalfile_finish(w);
	goalfile_abandon(w);
	return ret;
}

int goal_compile_main(int argc, char **argv)
{
	const char *file, *path;
	struct goal_input in;
	bool to_file, loggopsim;
	int ret = goal_file_args("compile", compile_help, argv, &file, &path, &loggopsim);

	if (ret >= 0)
		return ret;
	if (!path) {
		tool_say("goal compile: no output; use -o OUT");
		return TOOL_MISUSE;
	}
	if (loggopsim) {
		ret = goal_input_need(&in, "compile", file);
		if (ret)
			return ret;
		ret = write_loggopsim(in.program, path, "compile", goal_loggopsim_write);
		goal_input_close(&in);
		return ret;
	}
	to_file = strcmp(path, "-") && is_replaceable(path);
	ret = goal_input_compile(&in, "compile", file, to_file ? path : NULL);
	if (ret)
		return ret;
	if (in.program)
		ret = to_file ? write_file(in.program, path) : write_stream(in.program, path);
	goal_input_close(&in);
	return ret ? cannot_write("compile", path, ret) : TOOL_DONE;
}
