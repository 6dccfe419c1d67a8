/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads /proc/self/maps. Uses neither malloc nor stdio, as the caller may be inside malloc, and raw
 * system calls, as libc's open, read and close are cancellation points and preloaded tools wrap
 * them.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/private.h"

enum {
	LINE_BYTES = 192,         /* the fields and the beginning of the name */
	SMALLEST_HUGE = 64 << 10, /* smallest huge page of any architecture */
};

/* Reads lines, and drops the end of a long line. */
struct reader {
	int fd;
	size_t next, filled;
	char buf[4096];
	char line[LINE_BYTES];
};

/* Returns: 1 with a line, 0 at the end, or -errno. */
static int reader_line(struct reader *r)
{
	size_t used = 0;

	for (;;) {
		if (r->next == r->filled) {
			long n = syscall(SYS_read, r->fd, r->buf, sizeof(r->buf));

			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0)
				return n ? -errno : 0;
			r->next = 0;
			r->filled = (size_t)n;
		}
		char c = r->buf[r->next++];

		if (c == '\n') {
			r->line[used] = 0;
			return 1;
		}
		if (used < sizeof(r->line) - 1)
			r->line[used++] = c;
	}
}

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return 16;
}

/* Reads a number and skips the one character that must follow. Returns: false when there is
 * none. */
static bool read_number(const char **text, unsigned base, char end, uint64_t *out)
{
	const char *start = *text;
	uint64_t value = 0;

	for (; digit_value(**text) < (int)base; (*text)++)
		value = value * base + (uint64_t)digit_value(**text);
	if (*text == start || **text != end)
		return false;
	(*text)++;
	*out = value;
	return true;
}

/* Parses "7f0000000000-7f0000001000 rw-p 00000000 00:01 1234 /memfd:x (deleted)". */
static bool parse_line(const char *line, struct os_vma *v, const char **name)
{
	uint64_t major, minor;

	memset(v, 0, sizeof(*v));
	if (!read_number(&line, 16, '-', &v->start) || !read_number(&line, 16, ' ', &v->end))
		return false;
	if (strlen(line) < 5)
		return false;
	v->read = line[0] == 'r';
	v->write = line[1] == 'w';
	v->exec = line[2] == 'x';
	v->shared = line[3] == 's';
	line += 5;
	if (!read_number(&line, 16, ' ', &v->offset) || !read_number(&line, 16, ':', &major) ||
	    !read_number(&line, 16, ' ', &minor))
		return false;
	/* on some kernels a line without a name ends with the inode */
	if (!read_number(&line, 10, ' ', &v->inode) && *line)
		return false;
	v->dev_major = (uint32_t)major;
	v->dev_minor = (uint32_t)minor;
	*name = line + strspn(line, " ");
	return true;
}

int os_vma_open(const char *name)
{
	/* /proc/self is empty once the main thread has left by pthread_exit */
	static const char *const folders[] = { "/proc/thread-self/", "/proc/self/" };
	char path[64];
	int rc = -ENOSYS;

	for (size_t i = 0; i < BASE_ARRAY_LEN(folders); i++) {
		int fd, high;

		snprintf(path, sizeof(path), "%s%s", folders[i], name);
		fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
		if (fd > STDERR_FILENO)
			return fd;
		/* ENOENT would mean "nothing is mapped" */
		rc = fd < 0 && errno != ENOENT ? -errno : -ENOSYS;
		if (fd < 0)
			continue;
		/* The program has closed its standard streams; its output must not land in this
		 * descriptor. */
		high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		rc = high < 0 ? -errno : high;
		syscall(SYS_close, fd);
		return rc;
	}
	return rc;
}

void os_vma_classify(struct os_vma *v, const char *name)
{
	if (name[0] != '[' || !strncmp(name, "[heap]", 6) || !strncmp(name, "[anon", 5))
		return;
	if (!strncmp(name, "[stack", 6))
		v->is_stack = true;
	else
		v->is_special = true;
}

/* Reads the page size from smaps, which contains the lines of maps. Returns: bytes, or 0 when it is
 * unknown. */
static uint64_t scan_page_bytes(const struct os_vma *v, struct reader *r)
{
	static const char key[] = "KernelPageSize:";
	struct os_vma known = { 0 };
	const char *name;
	uint64_t kib = 0;
	bool inside = false;

	r->next = r->filled = 0;
	r->fd = os_vma_open("smaps");
	if (r->fd < 0)
		return 0;
	while (reader_line(r) == 1) {
		if (parse_line(r->line, &known, &name)) {
			inside = known.start == v->start && known.inode == v->inode;
			continue;
		}
		if (inside && !strncmp(r->line, key, sizeof(key) - 1)) {
			const char *text = r->line + sizeof(key) - 1;

			text += strspn(text, " ");
			if (!read_number(&text, 10, ' ', &kib))
				kib = 0;
			break;
		}
	}
	syscall(SYS_close, r->fd);
	return kib << 10;
}

int os_vma_scan_each(uint64_t addr, os_vma_visit *visit, void *arg)
{
	struct reader r = { .fd = os_vma_open("maps") };
	struct os_vma v;
	const char *name;
	int rc;

	if (r.fd < 0)
		return r.fd;
	while ((rc = reader_line(&r)) == 1) {
		if (!parse_line(r.line, &v, &name)) {
			rc = -EPROTO;
			break;
		}
		if (addr >= v.end)
			continue;
		if (!v.inode)
			os_vma_classify(&v, name);
		/* hugetlbfs mappings have an inode and whole huge pages */
		if (!v.inode || v.start % SMALLEST_HUGE || v.end % SMALLEST_HUGE)
			v.page_bytes = OS_PAGE;
		if (!visit(&v, arg))
			break;
	}
	syscall(SYS_close, r.fd);
	return rc < 0 ? rc : 0;
}

static bool keep_first(const struct os_vma *v, void *out)
{
	*(struct os_vma *)out = *v;
	return false;
}

int os_vma_scan(uint64_t addr, bool or_next, struct os_vma *out)
{
	struct os_vma v = { 0 };
	struct reader r;
	int rc = os_vma_scan_each(addr, keep_first, &v);

	if (rc)
		return rc;
	if (!v.end || (!or_next && addr < v.start))
		return -ENOENT;
	if (!v.page_bytes)
		v.page_bytes = scan_page_bytes(&v, &r);
	*out = v;
	return 0;
}
