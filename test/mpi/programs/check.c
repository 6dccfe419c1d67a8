/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <unistd.h>

int rank, size;

static struct behaviour *first, **last = &first;
static const char *current = "start";
static int failed;
static const char *skipped;

void check_register(struct behaviour *b)
{
	*last = b;
	last = &b->next;
}

static void line(const char *kind, const char *fmt, va_list args)
{
	char text[1200];
	int n = snprintf(text, sizeof(text), "%s %s: rank %d: ", kind, current, rank);

	n += vsnprintf(text + n, sizeof(text) - (size_t)n - 1, fmt, args);
	if (n > (int)sizeof(text) - 2)
		n = (int)sizeof(text) - 2;
	text[n++] = '\n';
	fwrite(text, 1, (size_t)n, stdout);
	fflush(stdout);
}

void check_fail(const char *fmt, ...)
{
	va_list args;

	if (__atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED) >= 5)
		return;
	va_start(args, fmt);
	line("#", fmt, args);
	va_end(args);
}

bool check_failed(void)
{
	return __atomic_load_n(&failed, __ATOMIC_RELAXED);
}

void check_say(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	line("say", fmt, args);
	va_end(args);
}

void check_say_error(const char *what, int rc)
{
	char text[MPI_MAX_ERROR_STRING] = "";
	int class = -1, length = 0;

	if (rc != MPI_SUCCESS)
		MPI_Error_string(rc, text, &length);
	MPI_Error_class(rc, &class);
	for (char *p = text; *p; p++)
		if (*p == '\n')
			*p = '|';
	check_say("%s: class %d: %s", what, class, text);
}

void check_note(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	line("note", fmt, args);
	va_end(args);
}

void check_skip(const char *why)
{
	skipped = why;
}

bool check_library(const char *name)
{
	char text[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	MPI_Get_library_version(text, &length);
	return strstr(text, name);
}

bool check_serves_requests(void)
{
	const char *preload = getenv("LD_PRELOAD"), *wanted = getenv("SLUICE_COLL");

	return preload && strstr(preload, "libsluice") && wanted &&
	       strstr(wanted, "nonblocking:on");
}

/* ---- data ------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

uint64_t check_random(uint64_t *state)
{
	return mix((*state)++);
}

/* A new word each 8 bytes; never 0, so that a hole of zeros is seen. */
static inline uint64_t word_at(uint64_t seed, size_t index)
{
	return (seed * 0x9e3779b97f4a7c15u + index * 0xd1b54a32d192ed03u) | 0x0101010101010101u;
}

void check_fill(void *buf, size_t bytes, uint64_t seed)
{
	uint8_t *out = buf;
	size_t i;

	seed = mix(seed);
	for (i = 0; i + 8 <= bytes; i += 8) {
		uint64_t w = word_at(seed, i);

		memcpy(out + i, &w, 8);
	}
	if (i < bytes) {
		uint64_t w = word_at(seed, i);

		memcpy(out + i, &w, bytes - i);
	}
}

bool check_same(const void *buf, size_t bytes, uint64_t seed, const char *what)
{
	const uint8_t *in = buf;

	seed = mix(seed);
	for (size_t i = 0; i < bytes; i += 8) {
		uint64_t w = word_at(seed, i);
		size_t n = bytes - i < 8 ? bytes - i : 8;

		if (!memcmp(in + i, &w, n))
			continue;
		for (size_t k = 0; k < n; k++) {
			if (in[i + k] == (uint8_t)(w >> (8 * k)))
				continue;
			check_fail("%s: byte %zu of %zu is %02x, not %02x", what, i + k, bytes,
				   in[i + k], (uint8_t)(w >> (8 * k)));
			return false;
		}
	}
	return true;
}

bool check_zero(const void *buf, size_t bytes, const char *what)
{
	const uint8_t *in = buf;

	for (size_t i = 0; i < bytes; i++) {
		if (!in[i])
			continue;
		check_fail("%s: byte %zu of %zu is %02x, not zero", what, i, bytes, in[i]);
		return false;
	}
	return true;
}

void *check_alloc(size_t bytes)
{
	void *p = malloc(bytes ? bytes : 1);

	if (!p) {
		check_fail("no memory for %zu bytes", bytes);
		MPI_Abort(MPI_COMM_WORLD, 3);
	}
	return p;
}

long check_env(const char *name, long dflt)
{
	const char *text = getenv(name);

	return text ? atol(text) : dflt;
}

void check_bcast(void *buf, size_t bytes, int root, MPI_Comm comm, uint64_t seed)
{
	int me;

	MPI_Comm_rank(comm, &me);
	if (me == root)
		check_fill(buf, bytes, seed);
	else
		memset(buf, 0, bytes);
	EXPECT(MPI_Bcast(buf, (int)bytes, MPI_BYTE, root, comm) == MPI_SUCCESS);
	check_same(buf, bytes, seed, "broadcast");
}

void check_gather(void *send, void *recv, size_t bytes, int root, MPI_Comm comm, uint64_t seed)
{
	int me, n;

	MPI_Comm_rank(comm, &me);
	MPI_Comm_size(comm, &n);
	check_fill(send, bytes, check_seed(seed, me));
	if (me == root)
		memset(recv, 0, bytes * n);
	EXPECT(MPI_Gather(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, root, comm) ==
	       MPI_SUCCESS);
	for (int r = 0; me == root && r < n; r++)
		check_same((char *)recv + r * bytes, bytes, check_seed(seed, r), "gather");
	check_same(send, bytes, check_seed(seed, me), "sender's own data");
}

/* ---- what must not grow -------------------------------------------------------------------- */

static long entries(const char *folder)
{
	DIR *d = opendir(folder);
	long n = 0;

	if (!d)
		return -1;
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

void check_usage(struct check_usage *out)
{
	char text[512];
	int loaders = 0;
	FILE *f;

	memset(out, 0, sizeof(*out));
	out->descriptors = entries("/proc/self/fd");
	out->threads = entries("/proc/self/task");
	f = fopen("/proc/self/maps", "r");
	while (f && fgets(text, sizeof(text), f)) {
		out->mappings += strchr(text, '\n') != NULL;
		loaders += strstr(text, "r-xp") && strstr(text, "/ld-linux");
	}
	if (loaders > 1) /* of all ranks of this address space */
		out->mappings = 0;
	if (f)
		fclose(f);
	f = fopen("/proc/self/status", "r");
	while (f && fgets(text, sizeof(text), f))
		sscanf(text, "VmRSS: %ld", &out->rss_kb);
	if (f)
		fclose(f);
}

/* ---- running ----------------------------------------------------------------------------- */

static void run_one(struct behaviour *b)
{
	int all = 0;

	current = b->name;
	failed = 0;
	skipped = NULL;
	if (size < b->min_ranks) {
		if (!rank)
			printf("skip %s: needs %d ranks\n", b->name, b->min_ranks);
		return;
	}
	b->run();
	MPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (!rank && skipped && !all)
		printf("skip %s: %s\n", b->name, skipped);
	else if (!rank)
		printf("%s %s\n", all ? "fail" : "ok", b->name);
	fflush(stdout);
}

static struct behaviour *find(const char *name)
{
	for (struct behaviour *b = first; b; b = b->next)
		if (!strcmp(b->name, name))
			return b;
	return NULL;
}

int check_main(int argc, char **argv, int thread_level)
{
	int got, bad = 0;

	if (!check_env("HARNESS_DUMPABLE", 1))
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (check_env("HARNESS_THREAD_MULTIPLE", 0))
		thread_level = MPI_THREAD_MULTIPLE;
	MPI_Init_thread(&argc, &argv, thread_level, &got);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (rank == 1 && getenv("HARNESS_USER") && setuid((uid_t)check_env("HARNESS_USER", 0)))
		return 98;
	for (int i = 1; i < argc; i++) {
		struct behaviour *b = find(argv[i]);

		if (b)
			run_one(b);
		else
			bad = 2;
	}
	for (struct behaviour *b = first; b && argc == 1; b = b->next)
		run_one(b);
	current = "end";
	MPI_Finalize();
	if (bad && !rank)
		fprintf(stderr, "%s: no such behaviour\n", argv[0]);
	return bad;
}
