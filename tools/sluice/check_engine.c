/* SPDX-License-Identifier: BSD-3-Clause */
/* sluice check ENGINE: a test of a copy engine for people who have the hardware. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "text.h"
#include "tool.h"

enum { CHANNELS = 64, EDGE = 64, STILL_US = 20000 };
#define MEMORY_BYTES ((size_t)32 << 20) /* one half is copied into the other */
#define COPY_BYTES   ((size_t)4 << 20)
#define TABLE_BYTES  ((size_t)1 << 20)

enum step_name { FOUND, COPIES, MANY, FRESH, FORK, RETIRE, STEPS };

struct state {
	const struct engine_ops *ops;
	struct engine_chan *ch;
	struct engine_caps caps;
	struct check_copy *copies; /* [caps.depth] */
	char *from, *to;           /* halves of shared memory, as the arenas of ranks are */
	int channels;
	struct step {
		const char *name;
		bool ok, was_run;
		char text[700];
	} steps[STEPS];
	struct check_tables closed, opened;
	struct check_speed speeds[CHECK_SPEEDS];
	bool has_speeds;
};

static void say(struct step *s, bool ok, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static void say(struct step *s, bool ok, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(s->text, sizeof s->text, fmt, args);
	va_end(args);
	s->ok = ok;
	s->was_run = true;
}

/* ---- steps ------------------------------------------------------------------------------- */

static void fill(char *p, size_t bytes, uint32_t seed)
{
	for (size_t i = 0; i + 4 <= bytes; i += 4, seed = seed * 1664525 + 1013904223)
		memcpy(p + i, &seed, 4);
}

/* Returns: the first byte in which they differ, or -1. */
static ssize_t differ(const char *a, const char *b, size_t bytes)
{
	if (!memcmp(a, b, bytes))
		return -1;
	for (size_t i = 0;; i++)
		if (a[i] != b[i])
			return (ssize_t)i;
}

static bool is_clean(const char *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (p[i] != 'e')
			return false;
	return true;
}

/* Copies so many bytes between two addresses, and compares them and what lies around them. */
static bool copy_right(struct state *s, size_t bytes, size_t src_at, size_t dst_at)
{
	char *dst = s->to + EDGE + dst_at;
	const char *src = s->from + src_at;
	struct step *step = &s->steps[COPIES];
	ssize_t at;
	int rc;

	memset(dst - EDGE, 'e', bytes + 2 * EDGE);
	rc = check_copy(s->ch, s->copies, dst, src, bytes, SIZE_MAX, bytes);
	if (rc) {
		say(step, false, "a copy of %zu bytes failed: %s", bytes,
		    rc == -ETIME ? "it did not end" : strerror(-rc));
		return false;
	}
	at = differ(dst, src, bytes);
	if (at >= 0)
		say(step, false, "byte %zd of a copy of %zu bytes is wrong", at, bytes);
	else if (!is_clean(dst - EDGE, EDGE) || !is_clean(dst + bytes, EDGE))
		say(step, false, "a copy of %zu bytes wrote beside its destination", bytes);
	else
		return true;
	return false;
}

static void check_copies(struct state *s)
{
	static const size_t lengths[] = {
		1, 2, 3, 63, 64, 65, 4095, 4096, 4097, 65537, COPY_BYTES
	};
	static const size_t offsets[][2] = { { 0, 0 }, { 1, 0 }, { 0, 3 }, { 31, 17 } };
	int n = 0;

	for (size_t i = 0; i < BASE_ARRAY_LEN(lengths); i++) {
		for (size_t o = 0; o < BASE_ARRAY_LEN(offsets); o++, n++) {
			if ((lengths[i] | offsets[o][0] | offsets[o][1]) % s->caps.align_bytes)
				continue;
			if (!copy_right(s, lengths[i], offsets[o][0], offsets[o][1]))
				return;
		}
	}
	say(&s->steps[COPIES], true,
	    "%d of 1 B to %zu MiB at odd addresses by each channel, compared byte by byte", n,
	    COPY_BYTES >> 20);
}

/* Posts as many copies as the channel holds. */
static size_t post_many(struct state *s, size_t each)
{
	size_t n = 0;

	each = base_min_u64(each, s->caps.max_copy_bytes);
	memset(s->to, 'e', base_min_u64(each * s->caps.depth, MEMORY_BYTES / 2));
	while (n < s->caps.depth && (n + 1) * each <= MEMORY_BYTES / 2 &&
	       !check_post(s->ch, &s->copies[n], s->to + n * each, s->from + n * each, each, each))
		n++;
	engine_flush(s->ch);
	return n;
}

static void check_many(struct state *s, struct step *step, const char *how)
{
	size_t each = base_min_u64(64 << 10, s->caps.max_copy_bytes);
	size_t n = post_many(s, each);
	int rc, status = 0;
	pid_t child = 0;

	if (step == &s->steps[FORK]) {
		child = fork();
		if (!child) {
			engine_after_fork_child();
			_exit(0);
		}
	}
	rc = n ? check_wait(s->ch, s->copies, n) : -EAGAIN;
	rc = rc ? rc : check_result(s->copies, n);
	if (child > 0)
		waitpid(child, &status, 0);
	if (child < 0 || status)
		say(step, false, "the child failed");
	else if (rc)
		say(step, false, "%zu copies: %s", n, strerror(-rc));
	else if (differ(s->to, s->from, n * each) >= 0)
		say(step, false, "byte %zd of %zu copies is wrong",
		    differ(s->to, s->from, n * each), n);
	else
		say(step, true, "%zu copies of %zu KiB %s", n, each >> 10, how);
}

/* Pages that were never touched, first unannounced. */
static void check_fresh(struct state *s)
{
	struct step *step = &s->steps[FRESH];
	char *p = mmap(NULL, COPY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int rc = p == MAP_FAILED ? -errno : 0;

	for (uint32_t round = 0; round < 2 && !rc; round++) {
		if (round)
			rc = madvise(p, COPY_BYTES, MADV_REMOVE)
				     ? -errno
				     : engine_memory(s->ch, p, COPY_BYTES, round);
		if (!rc)
			rc = check_copy(s->ch, s->copies, p, s->from, COPY_BYTES, SIZE_MAX,
					COPY_BYTES);
		if (!rc && differ(p, s->from, COPY_BYTES) >= 0)
			rc = -EIO;
	}
	if (p != MAP_FAILED && rc != -ETIME)
		munmap(p, COPY_BYTES);
	if (rc)
		say(step, false, "into pages that were not present: %s", strerror(-rc));
	else
		say(step, true,
		    "copies into pages that were not present, unannounced and announced");
}

/* Retires the channel while it copies. */
static void check_retire(struct state *s)
{
	struct step *step = &s->steps[RETIRE];
	size_t each = base_min_u64(1 << 20, s->caps.max_copy_bytes), n = post_many(s, each),
	       ended = 0;
	uint64_t begin_ns = os_now_ns();
	char *now = malloc(n * each + 1);

	s->ops->retire(s->ch);
	begin_ns = os_now_ns() - begin_ns;
	for (size_t i = 0; i < n; i++) {
		int ends = atomic_load_explicit(&s->copies[i].ends, memory_order_acquire);

		if (ends != 1 || (s->copies[i].result && s->copies[i].result != -ECANCELED)) {
			say(step, false, "copy %zu of %zu ended %d times, with %s", i, n, ends,
			    strerror(-s->copies[i].result));
			goto out;
		}
		ended += !s->copies[i].result;
	}
	memcpy(now, s->to, n * each);
	usleep(STILL_US);
	if (differ(now, s->to, n * each) >= 0)
		say(step, false, "it wrote after it had been retired");
	else if (check_post(s->ch, &s->copies[0], s->to, s->from, 64, 64) != -ESHUTDOWN)
		say(step, false, "a retired channel accepts copies");
	else
		say(step, true,
		    "with %zu copies of %zu KiB: %zu had ended, %zu came back, after %.2f ms", n,
		    each >> 10, ended, n - ended, (double)begin_ns / 1e6);
out:
	free(now);
}

/* ---- the whole --------------------------------------------------------------------------- */

static bool open_channel(struct state *s, int index)
{
	int rc = s->ops->chan_open(-1, index, &s->ch);

	if (rc) {
		say(&s->steps[COPIES], false, "channel %d cannot be opened: %s", index,
		    strerror(-rc));
		return false;
	}
	s->ops->caps(s->ch, &s->caps);
	free(s->copies);
	s->copies = calloc(s->caps.depth, sizeof *s->copies);
	return s->copies;
}

/* Returns: whether all went well so far. */
static bool check_channels(struct state *s)
{
	for (int i = 0; i < s->channels; i++) {
		if (!open_channel(s, i))
			return false;
		check_copies(s);
		if (!s->steps[COPIES].ok)
			return false;
		if (i + 1 < s->channels)
			s->ops->chan_close(s->ch);
	}
	return s->channels > 0;
}

static void check_all(struct state *s)
{
	char reason[600] = "";
	int rc;

	check_tables(TABLE_BYTES, &s->closed);
	rc = s->ops->probe(reason, sizeof reason);
	if (rc) {
		say(&s->steps[FOUND], false, "%s", *reason ? reason : strerror(-rc));
		return;
	}
	s->channels = (int)base_min_u64((uint64_t)s->ops->chan_count(-1), CHANNELS);
	say(&s->steps[FOUND], s->channels > 0, "%d %s", s->channels,
	    s->channels == 1 ? "channel" : "channels");
	if (!check_channels(s))
		return;
	check_tables(TABLE_BYTES, &s->opened);
	check_many(s, &s->steps[MANY], "at once");
	if (s->steps[MANY].ok)
		check_fresh(s);
	if (s->steps[FRESH].ok)
		check_many(s, &s->steps[FORK], "while the process forks");
	if (s->steps[FORK].ok)
		s->has_speeds = !check_speeds(s->ch, s->copies, s->from, s->speeds);
	if (s->steps[FORK].ok)
		check_retire(s);
	s->ops->chan_close(s->ch);
}

static void print_text(const struct state *s)
{
	struct text_table t = { 0 };

	printf("copy engine %s: %s\n", s->ops->name, s->ops->help);
	for (int i = 0; i < STEPS && s->steps[i].was_run; i++)
		text_table_row(&t, s->steps[i].name, s->steps[i].ok ? "yes" : "NO",
			       s->steps[i].text, NULL);
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
	if (!s->has_speeds)
		return;
	t = (struct text_table){ 0 };
	text_table_row(&t, "bytes", "engine", "this CPU", "CPU time of the engine's copy", NULL);
	for (int i = 0; i < CHECK_SPEEDS; i++) {
		const struct check_speed *f = &s->speeds[i];
		char cell[4][32];

		base_format_bytes(f->bytes, cell[0], sizeof cell[0]);
		snprintf(cell[1], 32, "%.1f GB/s", (double)f->bytes / (double)f->engine_ns);
		snprintf(cell[2], 32, "%.1f GB/s", (double)f->bytes / (double)f->memcpy_ns);
		snprintf(cell[3], 32, "%.0f %%", 100 * (double)f->cpu_ns / (double)f->engine_ns);
		text_table_row(&t, cell[0], cell[1], cell[2], cell[3], NULL);
	}
	text_table_print(&t, "  ", stdout);
	text_table_free(&t);
	printf("  1 MiB of page tables, with the engine closed and open: mprotect %.1f and %.1f "
	       "us, "
	       "mremap %.1f and %.1f us\n",
	       (double)s->closed.mprotect_ns / 1e3, (double)s->opened.mprotect_ns / 1e3,
	       (double)s->closed.mremap_ns / 1e3, (double)s->opened.mremap_ns / 1e3);
}

static void print_tables(struct text_json *j, const char *key, const struct check_tables *t)
{
	text_json_open(j, key, '{');
	text_json_uint(j, "mprotect_ns", t->mprotect_ns);
	text_json_uint(j, "mremap_ns", t->mremap_ns);
	text_json_close(j, '}');
}

static void print_json(const struct state *s)
{
	struct text_json j = { .out = stdout };
	struct utsname kernel;

	text_json_open(&j, NULL, '{');
	text_json_string(&j, "engine", s->ops->name);
	text_json_string(&j, "kernel", uname(&kernel) ? "" : kernel.release);
	text_json_uint(&j, "channels", (uint64_t)s->channels);
	text_json_uint(&j, "depth", s->caps.depth);
	text_json_uint(&j, "max_copy_bytes", s->caps.max_copy_bytes);
	text_json_open(&j, "steps", '[');
	for (int i = 0; i < STEPS; i++) {
		text_json_open(&j, NULL, '{');
		text_json_string(&j, "name", s->steps[i].name);
		text_json_bool(&j, "was_run", s->steps[i].was_run);
		text_json_bool(&j, "ok", s->steps[i].ok);
		text_json_string(&j, "text", s->steps[i].text);
		text_json_close(&j, '}');
	}
	text_json_close(&j, ']');
	text_json_open(&j, "speeds", '[');
	for (int i = 0; i < CHECK_SPEEDS && s->has_speeds; i++) {
		text_json_open(&j, NULL, '{');
		text_json_uint(&j, "bytes", s->speeds[i].bytes);
		text_json_uint(&j, "engine_ns", s->speeds[i].engine_ns);
		text_json_uint(&j, "cpu_ns", s->speeds[i].cpu_ns);
		text_json_uint(&j, "memcpy_ns", s->speeds[i].memcpy_ns);
		text_json_close(&j, '}');
	}
	text_json_close(&j, ']');
	print_tables(&j, "page_tables_closed", &s->closed);
	print_tables(&j, "page_tables_open", &s->opened);
	text_json_close(&j, '}');
	putchar('\n');
}

int check_engine(const struct engine_ops *ops, bool json)
{
	static struct state s = { .steps = {
					  [FOUND] = { .name = "found" },
					  [COPIES] = { .name = "copies" },
					  [MANY] = { .name = "many" },
					  [FRESH] = { .name = "fresh pages" },
					  [FORK] = { .name = "fork" },
					  [RETIRE] = { .name = "retire" },
				  } };
	char problems[2048];
	bool ok = true;

	if (base_options_load(NULL, problems, sizeof problems)) {
		tool_say("check: %.*s", (int)strcspn(problems, "\n"), problems);
		return TOOL_MISUSE;
	}
	s.ops = ops;
	s.from = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (s.from == MAP_FAILED) {
		tool_say("check: no memory: %s", strerror(errno));
		return TOOL_FAILED;
	}
	s.to = s.from + MEMORY_BYTES / 2;
	fill(s.from, MEMORY_BYTES / 2, 1);
	check_all(&s);
	(json ? print_json : print_text)(&s);
	for (int i = 0; i < STEPS; i++)
		ok &= s.steps[i].ok;
	return ok ? TOOL_DONE : TOOL_FAILED;
}
