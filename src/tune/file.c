/* SPDX-License-Identifier: BSD-3-Clause */
/* Search for a tune file, and its reader. */
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "sluice/sluice.h"
#include "tune/tune.h"
#include "tune/tune_paths.h"

#define SHIPPED_NAME "sluice/host-mpi.tune"
#define FILE_BYTES (32u << 10) /* longest file; `sluice tune` writes 4 KiB */

/* ---- names --------------------------------------------------------------------------------- */

void tune_mpi_name(const char *library_version, char *out, size_t cap)
{
	const char *text = library_version;
	size_t n = 0, end = strcspn(text, "\n,");

	for (size_t i = 0; i < end && n + 1 < cap; i++) {
		char c = text[i] == '\t' ? ' ' : text[i];

		if (strncmp(text + i, " Version:", 9) == 0)
			i += 8;
		else if (c != ' ' || (n && out[n - 1] != ' '))
			out[n++] = c;
	}
	while (n && out[n - 1] == ' ')
		n--;
	out[n] = '\0';
}

/* "Intel(R) MPI Library 2021.18" becomes "intel-r-mpi-library-2021.18". */
static size_t append_slug(const char *text, char *out, size_t used, size_t cap)
{
	for (; *text && used + 1 < cap; text++) {
		bool is_upper = *text >= 'A' && *text <= 'Z';
		bool is_word = is_upper || (*text >= 'a' && *text <= 'z') ||
			       (*text >= '0' && *text <= '9') || *text == '.';

		if (is_word)
			out[used++] = is_upper ? (char)(*text - 'A' + 'a') : *text;
		else if (used && out[used - 1] != '-' && out[used - 1] != '.')
			out[used++] = '-';
	}
	while (used && out[used - 1] == '-')
		used--;
	out[used] = '\0';
	return used;
}

static void host_name(char *out, size_t cap)
{
	struct utsname names;

	snprintf(out, cap, "%s", uname(&names) ? "unknown" : names.nodename);
}

void tune_file_name(const char *mpi, bool for_alike, char *out, size_t cap)
{
	char text[512];
	size_t used;

	if (for_alike) {
		os_machine_text(text, sizeof text);
		used = (size_t)snprintf(out, cap, "like-%016llx",
					(unsigned long long)base_hash(BASE_HASH_START, text,
								      strlen(text)));
	} else {
		host_name(text, sizeof text);
		used = append_slug(text, out, 0, cap);
	}
	used += (size_t)snprintf(out + used, cap - used, ".");
	used = append_slug(mpi, out, used, cap);
	snprintf(out + used, cap - used, ".tune");
}

/* ---- places -------------------------------------------------------------------------------- */

/* Writes `prefix`/`folder`/`name`; a configured folder outside the prefix is absolute.
 * Writes an empty text when the path is too long. */
static void join(const char *prefix, const char *folder, const char *name, char *out, size_t cap)
{
	int n = folder[0] == '/' ? snprintf(out, cap, "%s/%s", folder, name)
				 : snprintf(out, cap, "%s/%s/%s", prefix, folder, name);

	if (n >= (int)cap)
		*out = '\0';
}

/* Writes the prefix of the installed tree, seen from libsluice.so or the program: the tree may be
 * moved as a whole. In the build tree: the configured prefix. */
static void find_prefix(char *out, size_t cap)
{
	static const char *const up[] = { "..", "../..", "../../.." };
	char folder[PATH_MAX], path[2 * PATH_MAX], real[PATH_MAX];
	bool may_move = TUNE_DATADIR[0] != '/' && !os_own_folder(folder, sizeof folder);

	for (size_t i = 0; may_move && i < BASE_ARRAY_LEN(up); i++) {
		snprintf(path, sizeof path, "%s/%s", folder, up[i]);
		if (!realpath(path, real))
			continue;
		join(real, TUNE_DATADIR, SHIPPED_NAME, path, sizeof path);
		if (!access(path, R_OK) && snprintf(out, cap, "%s", real) < (int)cap)
			return;
	}
	snprintf(out, cap, TUNE_PREFIX);
}

int tune_folder(int number, char *out, size_t cap)
{
	char prefix[PATH_MAX];

	switch (number) {
	case 0:
		return base_user_folder(out, cap) ? -ENOENT : 0;
	case 1:
		snprintf(out, cap, "/etc/sluice");
		return 0;
	case 2:
		find_prefix(prefix, sizeof prefix);
		join(prefix, TUNE_SYSCONFDIR, "sluice", out, cap);
		return strcmp(out, "/etc/sluice") ? 0 : -ENOENT;
	default:
		return -ERANGE;
	}
}

/* ---- reading ------------------------------------------------------------------------------- */

struct reader {
	const char *mpi; /* name or, with sections, the whole version text; "": any */
	struct tune_result *out;
	unsigned found; /* heads so far, a bit each */
	int (*set)(void *arg, const char *name, const char *value);
	void *arg;
	unsigned needed;   /* heads required before the first value, a bit each */
	bool has_sections; /* one for each kind of MPI */
	bool skips;        /* this section is for another MPI */
	bool has_matched;  /* a section was for this MPI */
};

enum { HEAD_FORMAT, HEAD_VERSION, HEAD_HOST, HEAD_MACHINE, HEAD_MPI, HEADS };
static const char *const head_names[HEADS] = { "sluice-tune", "version", "host", "machine", "mpi" };

__attribute__((format(printf, 2, 3)))
static int refuse(struct tune_result *out, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(out->reason, sizeof out->reason, fmt, args);
	va_end(args);
	return -EINVAL;
}

static int check_head(struct reader *r, int head, const char *value)
{
	char ours[512];

	if (head != HEAD_FORMAT && !(r->found & 1u << HEAD_FORMAT))
		return refuse(r->out, "it is not a tune file");
	r->found |= 1u << head;
	switch (head) {
	case HEAD_FORMAT:
		snprintf(ours, sizeof ours, "%d", TUNE_FORMAT);
		if (strcmp(value, ours))
			return refuse(r->out, "its format is %.20s; this Sluice reads %s", value,
				      ours);
		return 0;
	case HEAD_VERSION:
		if (strcmp(value, SLUICE_VERSION))
			return refuse(r->out, "Sluice %.20s wrote it; this is " SLUICE_VERSION,
				      value);
		return 0;
	case HEAD_HOST:
		host_name(ours, sizeof ours);
		if (strcmp(value, "*") && strcmp(value, ours))
			return refuse(r->out, "it is for machine %.60s; this is %.60s", value,
				      ours);
		return 0;
	case HEAD_MACHINE:
		os_machine_text(ours, sizeof ours);
		if (strcmp(value, ours))
			return refuse(r->out, "it was measured on %.90s; this is %.90s", value,
				      ours);
		return 0;
	default:
		if (r->has_sections) {
			r->skips = r->has_matched || fnmatch(value, r->mpi, 0);
			r->has_matched |= !r->skips;
			return 0;
		}
		if (r->mpi[0] && strcmp(value, r->mpi))
			return refuse(r->out, "it was measured with %.60s; this is %.60s", value,
				      r->mpi);
		return 0;
	}
}

static int read_value(struct reader *r, char *line, int number)
{
	char *equals = strchr(line, '=');
	int ret;

	if (r->skips)
		return 0;
	if (r->found != r->needed)
		return refuse(r->out,
			      "line %d stands before the lines sluice-tune, version, host, "
			      "machine and mpi",
			      number);
	*equals++ = '\0';
	line[strcspn(line, " \t")] = '\0';
	equals += strspn(equals, " \t");
	ret = r->set(r->arg, line, equals);
	if (ret == -ENOENT)
		return refuse(r->out, "line %d: %.60s is not an option", number, line);
	if (ret == -EPERM)
		return refuse(r->out, "line %d: %.60s cannot be set there", number, line);
	if (ret)
		return refuse(r->out, "line %d: %.60s does not take '%.40s'", number, line, equals);
	r->out->values++;
	return 0;
}

static int read_line(struct reader *r, char *line, int number)
{
	line[strcspn(line, "#")] = '\0';
	for (size_t n = strlen(line); n && strchr(" \t\r", line[n - 1]); n--)
		line[n - 1] = '\0';
	line += strspn(line, " \t");
	if (!*line)
		return 0;
	for (int head = 0; head < HEADS; head++) {
		size_t len = strlen(head_names[head]);

		if (!strncmp(line, head_names[head], len) && line[len] == ' ')
			return check_head(r, head, line + len + 1 + strspn(line + len + 1, " "));
	}
	if (!r->found)
		return refuse(r->out, "it is not a tune file");
	if (strchr(line, '='))
		return read_value(r, line, number);
	return refuse(r->out, "line %d is neither a value nor a comment", number);
}

static void load_text(struct reader *r, char *text)
{
	int number = 1, ret = 0;
	char *line;

	while (!ret && (line = strsep(&text, "\n")))
		ret = read_line(r, line, number++);
	if (!ret && r->found != r->needed)
		ret = refuse(r->out, r->found ? "its head is incomplete" : "it is not a tune file");
	r->out->state = ret ? TUNE_REFUSED : TUNE_IN_FORCE;
	if (ret)
		r->out->values = 0;
}

/* Returns: false when the file does not exist. */
__attribute__((cold)) static bool load_path(struct reader *r, const char *path)
{
	struct tune_result *out = r->out;
	char text[FILE_BYTES];
	int n = os_procfile_read(path, text, sizeof text);

	if (n == -ENOENT || n == -ENOTDIR)
		return false;
	snprintf(out->path, sizeof out->path, "%s", path);
	if (n == FILE_BYTES - 1)
		n = -EFBIG;
	else if (n >= 0 && strlen(text) != (size_t)n)
		n = -EILSEQ;
	if (n < 0) {
		out->state = TUNE_REFUSED;
		refuse(out, "it cannot be read: %s", strerror(-n));
	} else {
		load_text(r, text);
	}
	return true;
}

static int set_option(void *arg, const char *name, const char *value)
{
	return base_option_tune(name, value);
}

static bool load_file(const char *mpi, const char *path, struct tune_result *out)
{
	struct reader r = { .mpi = mpi, .out = out, .set = set_option,
			    .needed = (1u << HEADS) - 1 };
	bool exists = load_path(&r, path);

	if (exists && out->state == TUNE_REFUSED)
		base_options_untune(false);
	return exists;
}

void tune_shipped_path(char *out, size_t cap)
{
	char prefix[PATH_MAX];

	find_prefix(prefix, sizeof prefix);
	join(prefix, TUNE_DATADIR, SHIPPED_NAME, out, cap);
}

void tune_load_figures(const char *path, const char *library_version,
		       int (*set)(void *arg, const char *name, const char *value), void *arg,
		       struct tune_result *out)
{
	struct reader r = { .mpi = library_version,
			    .out = out,
			    .set = set,
			    .arg = arg,
			    .has_sections = true,
			    .needed = 1u << HEAD_FORMAT | 1u << HEAD_MPI };
	char shipped[PATH_MAX];

	*out = (struct tune_result){ .state = TUNE_ABSENT };
	if (!path) {
		tune_shipped_path(shipped, sizeof shipped);
		path = shipped;
	}
	if (!load_path(&r, path)) {
		snprintf(out->path, sizeof out->path, "%s", path);
		refuse(out, "it does not exist");
	}
}

void tune_load(const char *mpi, struct tune_result *out)
{
	char folder[PATH_MAX], name[2 * TUNE_MPI_BYTES], path[PATH_MAX + sizeof name];
	int ret;

	*out = (struct tune_result){ .state = TUNE_ABSENT };
	base_options_untune(false);
	if (base_is_word(base_opt.tune_file, "none")) {
		out->state = TUNE_OFF;
		refuse(out, "SLUICE_TUNE is none");
		return;
	}
	if (base_opt.tune_file[0]) {
		if (!load_file(mpi, base_opt.tune_file, out)) {
			snprintf(out->path, sizeof out->path, "%s", base_opt.tune_file);
			out->state = TUNE_REFUSED;
			refuse(out, "it does not exist");
		}
		return;
	}
	if (!mpi[0]) {
		out->state = TUNE_OFF;
		refuse(out, "no MPI is known");
		return;
	}
	for (int i = 0; (ret = tune_folder(i, folder, sizeof folder)) != -ERANGE; i++) {
		if (ret || access(folder, X_OK))
			continue; /* the usual case, which needs no other fact */
		for (int for_alike = 0; for_alike < 2; for_alike++) {
			tune_file_name(mpi, for_alike, name, sizeof name);
			snprintf(path, sizeof path, "%s/%s", folder, name);
			if (load_file(mpi, path, out))
				return;
		}
	}
}
