/* SPDX-License-Identifier: BSD-3-Clause */
#include "region_case.h"
#include "region_stats.h"

#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { TIME_LIMIT_S = 30, OPTIONS_MAX = 16 };

bool be_an_older_kernel(void)
{
	/* struct sock_filter and sock_fprog: fail ioctl() with ENOTTY, as kernels before 6.11 do
	 * here */
	struct { uint16_t code; uint8_t jt, jf; uint32_t k; } code[] = {
		{ 0x20, 0, 0, 0 },          /* the number of the call */
		{ 0x15, 0, 1, SYS_ioctl },
		{ 0x06, 0, 0, 0x00050000 | ENOTTY },
		{ 0x06, 0, 0, 0x7fff0000 },
	};
	struct { unsigned short len; void *filter; } prog = { 4, code };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, 2, &prog, 0, 0);
}

/* The loader unmaps static data by a call inside itself, and reuses its addresses. */
const char *environment(const char *name)
{
	size_t bytes = strlen(name);

	for (char **e = environ; *e; e++)
		if (!strncmp(*e, name, bytes) && (*e)[bytes] == '=')
			return *e + bytes + 1;
	return NULL;
}

void region_case_run(void *body)
{
	alarm(TIME_LIMIT_S); /* a deadlock is a failure, not a hang */
	if (environment("UNIT_REGION_OLDER_KERNEL") && !be_an_older_kernel())
		unit_skip("no seccomp here");
	((void (*)(void))body)();
}

static void options_load(const char *first, va_list more)
{
	static char after[] = "SLUICE_REGION_ADOPT_AFTER=0",
		    min[] = "SLUICE_TEST=region_adopt_min=1", arena[] = "SLUICE_REGION_ARENA=1G",
		    early[] = "SLUICE_EARLY_MIN=0";
	char *env[OPTIONS_MAX] = { after, min, arena, early };
	char problems[256] = "";
	int n = 4;

	for (const char *o = first; o && n < OPTIONS_MAX - 1; o = va_arg(more, const char *)) {
		const char *in_list = strncmp(o, "SLUICE_TEST=", 12) ? o : o + 12;
		size_t name = (size_t)(strchr(in_list, '=') - o) + 1;
		int at = 0;

		while (at < n && strncmp(env[at], o, name))
			at++;
		env[at] = (char *)o;
		n += at == n;
	}
	if (base_options_load(env, problems, sizeof problems))
		unit_fail(__FILE__, __LINE__, "%s", problems);
}

void region_options(const char *first, ...)
{
	va_list more;

	va_start(more, first);
	options_load(first, more);
	va_end(more);
}

void region_begin(const char *first, ...)
{
	va_list more;

	va_start(more, first);
	options_load(first, more);
	va_end(more);
	CHECK_EQ(region_init(), 0);
}

static uint64_t word_of(size_t at, unsigned seed)
{
	return (at + 1) * 0x9e3779b97f4a7c15ull + seed * 0xd1b54a32d192ed03ull;
}

void fill(void *p, size_t bytes, unsigned seed)
{
	for (size_t i = 0; i < bytes / 8; i++)
		memcpy((char *)p + 8 * i, &(uint64_t){ word_of(i, seed) }, 8);
	memset((char *)p + bytes / 8 * 8, (int)seed, bytes % 8);
}

void check_part_at(const char *file, int line, const void *p, size_t from, size_t to, unsigned seed)
{
	for (size_t i = from / 8; i < to / 8; i++) {
		uint64_t word;

		memcpy(&word, (const char *)p + 8 * i, 8);
		if (word != word_of(i, seed))
			unit_fail(file, line, "byte %zu holds other data (%#" PRIx64 ")", 8 * i,
				  word);
	}
}

void check_filled_at(const char *file, int line, const void *p, size_t bytes, unsigned seed)
{
	check_part_at(file, line, p, 0, bytes, seed);
	for (size_t i = bytes / 8 * 8; i < bytes; i++)
		if (((const unsigned char *)p)[i] != (seed & 0xff))
			unit_fail(file, line, "byte %zu of %zu holds other data", i, bytes);
}

void check_zero_at(const char *file, int line, const void *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if (((const char *)p)[i])
			unit_fail(file, line, "byte %zu of %zu is not zero", i, bytes);
}

void *block_get(size_t bytes)
{
	void *(*volatile get)(size_t) = malloc;
	void *p = get(bytes);

	CHECK(p != NULL);
	return p;
}

void *pages_get(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

void *pages_get_aligned(size_t bytes, size_t unit)
{
	/* readable neighbours: memory above an inaccessible page may be a stack */
	char *raw = mmap(NULL, bytes + 2 * unit, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *p = (char *)base_round_up((uintptr_t)raw + 1, unit);

	CHECK(raw != MAP_FAILED);
	CHECK_EQ(mprotect(p, bytes, PROT_READ | PROT_WRITE), 0);
	return p;
}

bool adopts(const void *p, size_t bytes)
{
	struct region_desc d;

	region_describe(p, bytes, REGION_FORCE, &d);
	region_release(&d);
	return d.flags & REGION_DESC_MAPPED;
}

struct region_desc adopt_at(const char *file, int line, const void *p, size_t bytes)
{
	struct region_desc d;

	region_describe(p, bytes, REGION_FORCE, &d);
	region_release(&d);
	if (!(d.flags & REGION_DESC_MAPPED)) {
		const char *why = region_refusal(p, bytes);

		unit_fail(file, line, "%zu bytes are not adopted: %s", bytes,
			  why ? why : "no reason given");
	}
	return d;
}

bool is_adopted(const void *p, size_t bytes)
{
	struct region_desc d;

	region_describe(p, bytes, REGION_LOOKUP, &d);
	region_release(&d);
	return d.flags & REGION_DESC_MAPPED;
}

bool is_mapped(const void *p)
{
	struct os_vma v;

	return !os_vma_query(p, &v);
}

bool is_shared(const void *p)
{
	struct os_vma v;

	return !os_vma_query(p, &v) && v.shared && v.inode;
}

bool is_anonymous(const void *p)
{
	struct os_vma v;

	return !os_vma_query(p, &v) && !v.shared && !v.inode && v.read && v.write;
}

char *peer_view(const struct region_desc *d) { return (char *)region_arena_base() + d->arena_off; }

uint32_t active(void)
{
	struct region_stats s;

	region_get_stats(&s);
	return s.active;
}

/* Without the head, which holds the table of regions. */
uint64_t arena_file_bytes(void)
{
	struct stat st;
	off_t data = 0, hole = 0, head = 0;

	CHECK_EQ(fstat(region_arena_fd(), &st), 0);
	while ((data = lseek(region_arena_fd(), hole, SEEK_DATA)) >= 0 &&
	       data < (off_t)REGION_HEAD_BYTES) {
		hole = lseek(region_arena_fd(), data, SEEK_HOLE);
		hole = hole < (off_t)REGION_HEAD_BYTES ? hole : (off_t)REGION_HEAD_BYTES;
		head += hole - data;
	}
	return (uint64_t)st.st_blocks * 512 - (uint64_t)head;
}

char *middle_adopted_at(const char *file, int line, struct region_desc *out)
{
	char *p = pages_get_aligned(4 * MIB, 2 * MIB);
	struct region_desc d;

	fill(p, 4 * MIB, 1);
	d = adopt_at(file, line, p + MIB, 2 * MIB);
	if (out)
		*out = d;
	return p;
}

void reuse_the_arena(size_t bytes)
{
	char *q = pages_get(bytes);

	memset(q, 0xc3, bytes);
	ADOPT(q, bytes);
	memset(q, 0xc4, bytes);
}
