/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens files: distinguishes text from program, and makes a program in memory of both. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "goal.h"

#define GROW (1u << 20)

/* State while a file is read. */
struct reading {
	struct goal_input *in;
	int fd;
	char head[8]; /* the first bytes, which distinguish text from program */
	size_t head_bytes, head_used;
	bool with_places;
	char *image; /* the program so far; image[used ..] is zero */
	size_t used, cap;
	uint64_t *offsets; /* [ranks] */
	uint32_t block_count, most_ops, ranks;
	uint32_t *numbers; /* [ranks] */
	const char *to_path; /* destination of the ranks of a text, instead of image */
	const struct goalfile_calls *calls; /* another */
	void *ctx;
	struct goalfile_writer *to;
	int write_error;
};

int goal_input_refuse(struct goal_input *in, const char *verb, const char *fmt, ...)
{
	va_list args;
	int n;

	free(in->why);
	va_start(args, fmt);
	n = vasprintf(&in->why, fmt, args);
	va_end(args);
	if (n < 0)
		in->why = NULL;
	tool_say("%s%s: %s: %s", strcmp(verb, "trace") ? "goal " : "", verb, in->name,
		 in->why ? in->why : goal_why(-ENOMEM));
	return TOOL_FAILED;
}

static int64_t read_some(int fd, char *buf, size_t cap)
{
	ssize_t n;

	do
		n = read(fd, buf, cap);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int64_t read_text(void *ctx, char *buf, size_t cap)
{
	struct reading *r = ctx;
	size_t n = base_min_u64(cap, r->head_bytes - r->head_used);

	if (!n)
		return read_some(r->fd, buf, cap);
	memcpy(buf, r->head + r->head_used, n);
	r->head_used += n;
	return (int64_t)n;
}

/* ---- the program as it grows ------------------------------------------------------------ */

/* Makes room for `bytes` more, which are zero. Returns: 0 or -ENOMEM. */
static int make_room(struct reading *r, size_t bytes)
{
	size_t capacity = r->cap + r->cap / 2;
	void *more;

	if (bytes <= r->cap - r->used)
		return 0;
	capacity = (base_max_u64(capacity, r->used + bytes) + GROW - 1) / GROW * GROW;
	if (r->image)
		more = mremap(r->image, r->cap, capacity, MREMAP_MAYMOVE);
	else
		more = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);
	if (more == MAP_FAILED)
		return -ENOMEM;
	r->image = more;
	r->cap = capacity;
	return 0;
}

static int begin(void *ctx, uint32_t ranks)
{
	struct reading *r = ctx;
	struct stat st;

	/* in a text that is too short for its ranks, the missing ones are a problem of the text */
	if (r->calls && !fstat(r->fd, &st) && S_ISREG(st.st_mode) &&
	    (uint64_t)st.st_size / 8 < ranks)
		r->calls = NULL;
	r->ranks = ranks;
	r->offsets = malloc(ranks * sizeof *r->offsets);
	r->numbers = malloc(ranks * sizeof *r->numbers);
	if (r->with_places)
		r->in->places = calloc(ranks, sizeof *r->in->places);
	r->in->place_count = r->in->places ? ranks : 0;
	if (!r->offsets || !r->numbers || (r->with_places && !r->in->places))
		return -ENOMEM;
	if (r->calls)
		return r->calls->begin(r->ctx, ranks);
	if (make_room(r, sizeof(struct goal_program)))
		return -ENOMEM;
	r->used = sizeof(struct goal_program);
	return 0;
}

static int copy_places(struct goal_places *to, const struct text_rank *rank)
{
	size_t bytes = rank->block->op_count * sizeof *to->all;

	to->all = malloc(bytes + 1);
	to->labels = malloc(rank->labels_bytes + 1);
	if (!to->all || !to->labels)
		return -ENOMEM;
	if (rank->places)
		memcpy(to->all, rank->places, bytes);
	if (rank->labels_bytes)
		memcpy(to->labels, rank->labels, rank->labels_bytes);
	return 0;
}

static int give_to_calls(struct reading *r, const struct text_rank *rank)
{
	int ret = r->calls->add(r->ctx, rank->rank, rank->block);

	if (!ret && r->with_places)
		ret = copy_places(&r->in->places[rank->rank], rank);
	return ret;
}

static int add_rank(void *ctx, const struct text_rank *rank)
{
	struct reading *r = ctx;
	size_t bytes = goal_program_align(rank->block->bytes);
	int ret;

	if (r->calls)
		return give_to_calls(r, rank);
	ret = make_room(r, bytes);
	if (ret)
		return ret;
	memcpy(r->image + r->used, rank->block, rank->block->bytes);
	r->numbers[rank->rank] = r->block_count;
	r->offsets[r->block_count++] = r->used;
	r->used += bytes;
	r->most_ops = (uint32_t)base_max_u64(r->most_ops, rank->block->op_count);
	return r->with_places ? copy_places(&r->in->places[rank->rank], rank) : 0;
}

static int add_tables(struct reading *r)
{
	uint64_t tables = goal_program_tables_bytes(r->block_count, r->ranks);
	struct goal_program *p;

	if (r->calls)
		return 0;
	if (make_room(r, tables))
		return -ENOMEM;
	p = (struct goal_program *)r->image;
	*p = (struct goal_program){ .magic = GOAL_PROGRAM_MAGIC,
				    .version = GOAL_PROGRAM_VERSION,
				    .ranks = r->ranks,
				    .bytes = r->used + tables,
				    .offsets_off = r->used,
				    .block_count = r->block_count,
				    .most_ops = r->most_ops };
	memcpy(r->image + r->used, r->offsets, r->block_count * sizeof *r->offsets);
	r->used += r->block_count * sizeof *r->offsets;
	memcpy(r->image + r->used, r->numbers, r->ranks * sizeof *r->numbers);
	return 0;
}

/* ---- a text that goes to a file as it is read -------------------------------------------- */

static int begin_file(void *ctx, uint32_t ranks)
{
	struct reading *r = ctx;

	return r->write_error = goalfile_create(r->to_path, ranks, &r->to);
}

static int add_to_file(void *ctx, const struct text_rank *rank)
{
	struct reading *r = ctx;
	uint32_t number;
	int ret = goalfile_add(r->to, rank->block, &number);

	if (!ret)
		ret = goalfile_assign(r->to, rank->rank, number);
	return r->write_error = ret;
}

static int finish_file(struct reading *r, int ret)
{
	struct goalfile_writer *w = r->to;

	r->to = NULL;
	if (w && !ret)
		ret = r->write_error = goalfile_finish(w);
	else if (w)
		goalfile_abandon(w);
	return ret;
}

/* ---- text ------------------------------------------------------------------------------- */

static void add_problem(void *ctx, const struct text_problem *p)
{
	struct reading *r = ctx;
	struct goal_problem *to;

	goal_problem_add(&r->in->problems, p->line, "%s", p->message);
	to = &r->in->problems.all[r->in->problems.count - 1];
	to->column = p->column;
	to->bytes = p->bytes;
	if (p->text)
		to->text = strndup(p->text, p->text_bytes);
	r->in->problems.more = r->in->problems.count >= TEXT_PROBLEMS_MAX;
}

/* Reads again the lines that were not in memory when their problem was found. */
static void find_lines(struct goal_input *in, const char *path)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t cap = 0;
	ssize_t n;

	for (uint64_t number = 1; f && (n = getline(&line, &cap, f)) >= 0; number++)
		for (size_t i = 0; i < in->problems.count; i++)
			if (in->problems.all[i].line == number && !in->problems.all[i].text)
				in->problems.all[i].text =
					strndup(line, (size_t)n - (line[n - 1] == '\n'));
	free(line);
	if (f)
		fclose(f);
}

static int read_as_text(struct reading *r, const char *verb, const char *path)
{
	static const struct text_calls to_memory = { read_text, begin, add_rank, add_problem };
	static const struct text_calls to_file = { read_text, begin_file, add_to_file,
						   add_problem };
	struct stat st;
	int ret = text_parse(r->to_path ? &to_file : &to_memory, r);

	if (r->to_path)
		ret = finish_file(r, ret);
	else if (!ret)
		ret = add_tables(r);
	if (!ret && r->to_path)
		return TOOL_DONE;
	if (!ret) {
		r->in->program = (struct goal_program *)r->image;
		r->in->bytes = r->cap;
		return TOOL_DONE;
	}
	if (r->in->problems.count) {
		if (strcmp(path, "-") && !fstat(r->fd, &st) && S_ISREG(st.st_mode))
			find_lines(r->in, path);
	} else if (r->write_error) {
		tool_say("goal %s: cannot write %s: %s", verb, r->to_path,
			 goal_why(r->write_error));
	} else {
		goal_input_refuse(r->in, verb, "%s", goal_why(ret));
	}
	return TOOL_FAILED;
}

/* ---- programs --------------------------------------------------------------------------- */

static int refuse_program(struct goal_input *in, const char *verb, int error, uint32_t block)
{
	if (error != -EINVAL)
		return goal_input_refuse(in, verb, "%s", goal_why(error));
	if (block != GOAL_NONE)
		return goal_input_refuse(
			in, verb, "a damaged program: block %" PRIu32 " is not valid", block);
	return goal_input_refuse(in, verb, "a damaged program, or one of another version");
}

static int map_program(struct reading *r, const char *verb, const char *path)
{
	uint32_t block = GOAL_NONE;
	int ret = goalfile_open(path, &r->in->file, &block);

	if (ret)
		return refuse_program(r->in, verb, ret, block);
	r->in->program = r->in->file.program;
	return TOOL_DONE;
}

/* Reads a pipe, which cannot be mapped. */
static int slurp(struct reading *r)
{
	int64_t n;
	int ret;

	do {
		ret = make_room(r, GROW);
		if (ret)
			return ret;
		n = read_text(r, r->image + r->used, r->cap - r->used);
		if (n < 0)
			return (int)n;
		r->used += (size_t)n;
	} while (n);
	return 0;
}

/* Replaces what was read by the program, when it is packed. */
static int unpack(struct reading *r)
{
	uint64_t bytes = goalfile_packed_bytes(r->image, r->used);
	struct reading packed = *r;
	int ret;

	if (!bytes)
		return 0;
	if (bytes == UINT64_MAX)
		return -EINVAL;
	r->image = NULL;
	r->used = r->cap = 0;
	ret = make_room(r, bytes);
	if (!ret)
		ret = goalfile_unpack(packed.image, packed.used, r->image);
	r->used = bytes;
	munmap(packed.image, packed.cap);
	return ret;
}

static int read_program(struct reading *r, const char *verb)
{
	const struct goal_program *p;
	uint32_t *work = NULL, block = GOAL_NONE;
	int ret = slurp(r);

	if (!ret)
		ret = unpack(r);
	p = (const struct goal_program *)r->image;
	if (!ret)
		ret = goal_program_verify_header(p, r->used);
	if (!ret) {
		work = malloc((p->most_ops + 1ull) * sizeof *work);
		ret = work ? goal_program_verify(p, r->used, work, &block) : -ENOMEM;
	}
	free(work);
	if (!ret) {
		r->in->program = p;
		r->in->bytes = r->cap;
		return TOOL_DONE;
	}
	return refuse_program(r->in, verb, ret, block);
}

/* ---- LogGOPSim's binary files ------------------------------------------------------------ */

static int begin_binary(void *ctx, uint32_t ranks)
{
	return ((struct reading *)ctx)->to_path ? begin_file(ctx, ranks) : begin(ctx, ranks);
}

static int add_binary(void *ctx, uint32_t rank, const struct goal_block *block)
{
	const struct text_rank as_text = { .rank = rank, .block = (struct goal_block *)block };

	return ((struct reading *)ctx)->to_path ? add_to_file(ctx, &as_text)
						: add_rank(ctx, &as_text);
}

static int refuse_binary(struct reading *r, const char *verb, int error, uint32_t rank)
{
	const char *what = error == -EINVAL  ? "damaged"
			   : error == -ELOOP ? "its requirements form a cycle"
					     : goal_why(error);

	if (rank == GOAL_NONE && !r->write_error)
		return goal_input_refuse(r->in, verb, "binary file of LogGOPSim: %s", what);
	if (!r->write_error)
		return goal_input_refuse(
			r->in, verb, "binary file of LogGOPSim: rank %" PRIu32 ": %s", rank, what);
	tool_say("goal %s: cannot write %s: %s", verb, r->to_path, goal_why(r->write_error));
	return TOOL_FAILED;
}

/* Maps a file of which only the head has been read. Returns: false: it must be read. */
static bool map_rest(struct reading *r)
{
	struct stat st;
	void *p;

	if (fstat(r->fd, &st) || !S_ISREG(st.st_mode) || st.st_size <= 0 ||
	    lseek(r->fd, 0, SEEK_CUR) != (off_t)r->head_bytes)
		return false;
	p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, r->fd, 0);
	if (p == MAP_FAILED)
		return false;
	r->image = p;
	r->used = r->cap = (size_t)st.st_size;
	return true;
}

static int read_binary(struct reading *r, const char *verb)
{
	static const struct goalfile_calls calls = { begin_binary, add_binary };
	uint32_t rank = GOAL_NONE;
	size_t bytes, mapped;
	char *data;
	int ret = map_rest(r) ? 0 : slurp(r);

	data = r->image;
	bytes = r->used;
	mapped = r->cap;
	r->image = NULL;
	r->used = r->cap = 0;
	r->with_places = false;
	if (!ret && goalfile_loggopsim_cookie(data, bytes) == GOALFILE_LOGGOPSIM_USED) {
		munmap(data, mapped);
		return goal_input_refuse(r->in, verb,
					 "LogGOPSim has used up this binary file (--save-mem): "
					 "make it again with txt2bin, or read its text");
	}
	if (!ret)
		ret = goalfile_loggopsim_read(data, bytes, &calls, r, &rank);
	if (data)
		munmap(data, mapped);
	if (r->to_path)
		ret = finish_file(r, ret);
	else if (!ret)
		ret = add_tables(r);
	if (ret)
		return refuse_binary(r, verb, ret, rank);
	if (!r->to_path) {
		r->in->program = (struct goal_program *)r->image;
		r->in->bytes = r->cap;
	}
	return TOOL_DONE;
}

/* ---- both ------------------------------------------------------------------------------- */

static int read_head(struct reading *r)
{
	int64_t n = 1;

	while (n > 0 && r->head_bytes < sizeof r->head) {
		n = read_some(r->fd, r->head + r->head_bytes, sizeof r->head - r->head_bytes);
		if (n < 0)
			return (int)n;
		r->head_bytes += (size_t)n;
	}
	return 0;
}

/* what: with_places, to_path, calls and ctx are set. */
static int open_input(struct goal_input *in, const char *verb, const char *path,
		      const struct reading *what)
{
	struct reading r = *what;
	const uint64_t magic = GOAL_PROGRAM_MAGIC;
	bool is_stdin = !strcmp(path, "-"), is_file;
	struct stat st;
	int ret;

	r.in = in;
	r.fd = STDIN_FILENO;
	*in = (struct goal_input){ .name = is_stdin ? "standard input" : path };
	if (!is_stdin)
		r.fd = open(path, O_RDONLY | O_CLOEXEC);
	ret = r.fd < 0 ? -errno : read_head(&r);
	if (ret) {
		ret = goal_input_refuse(in, verb, "%s", goal_why(ret));
	} else if (r.head_bytes == sizeof magic && !memcmp(r.head, &magic, sizeof magic)) {
		is_file = !is_stdin && !fstat(r.fd, &st) && S_ISREG(st.st_mode);
		ret = is_file ? map_program(&r, verb, path) : read_program(&r, verb);
	} else if (goalfile_loggopsim_cookie(r.head, r.head_bytes)) {
		ret = read_binary(&r, verb);
	} else {
		ret = read_as_text(&r, verb, path);
	}
	if (r.fd >= 0 && !is_stdin)
		close(r.fd);
	free(r.offsets);
	free(r.numbers);
	if (ret && r.image)
		munmap(r.image, r.cap);
	return ret;
}

int goal_input_open(struct goal_input *in, const char *verb, const char *path, bool with_places)
{
	return open_input(in, verb, path, &(struct reading){ .with_places = with_places });
}

int goal_input_stream(struct goal_input *in, const char *verb, const char *path,
		      const struct goalfile_calls *to, void *ctx)
{
	int ret = open_input(in, verb, path,
			     &(struct reading){ .with_places = true, .calls = to, .ctx = ctx });
	int error = !ret && in->program ? to->begin(ctx, in->program->ranks) : 0;

	for (uint32_t rank = 0; !ret && !error && in->program && rank < in->program->ranks; rank++)
		error = to->add(ctx, rank, goal_program_block(in->program, rank));
	if (!error)
		return ret;
	return goal_input_refuse(in, verb, "%s", goal_why(error));
}

int goal_input_need(struct goal_input *in, const char *verb, const char *path)
{
	return goal_input_compile(in, verb, path, NULL);
}

int goal_input_compile(struct goal_input *in, const char *verb, const char *path,
		       const char *to_path)
{
	int ret = open_input(in, verb, path, &(struct reading){ .to_path = to_path });

	goal_problems_print(&in->problems, in->name);
	if (ret)
		goal_input_close(in);
	return ret;
}

void goal_input_close(struct goal_input *in)
{
	for (uint32_t r = 0; r < in->place_count; r++) {
		free(in->places[r].all);
		free(in->places[r].labels);
	}
	free(in->places);
	if (in->file.program)
		goalfile_close(&in->file);
	else if (in->program)
		munmap((void *)(uintptr_t)in->program, in->bytes);
	goal_problems_free(&in->problems);
	free(in->why);
	*in = (struct goal_input){ 0 };
}
