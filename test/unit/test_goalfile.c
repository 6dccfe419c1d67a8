/* SPDX-License-Identifier: BSD-3-Clause */
/* Program files: written as a stream, mapped, verified. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../fuzz/goal_walk.h"
#include "goal/file/goalfile.h"
#include "ranks.h"

enum { RANKS = 5, BLOCK_MAX = 1024, FILE_MAX = 8192 };

static char dir[64], path[96];
static _Alignas(8) char room[BLOCK_MAX];
static struct goal_block *const block = (struct goal_block *)room;

/* Rank r sends to the next rank; the last two ranks share a block. */
static void build_rank(uint32_t rank)
{
	struct goal_edge edges[2];
	struct goal_op ops[3];
	struct goal_build b;

	goal_build_init(&b, ops, 3, edges, 2);
	goal_send(&b, (rank + 1) % RANKS, 1, 0, GOAL_USER, 0, 10 + rank);
	goal_recv(&b, (rank + RANKS - 1) % RANKS, 1, GOAL_NOWHERE, 0, 10);
	if (rank % 2)
		goal_requires(&b, 0, 1);
	CHECK_EQ(goal_compile(&b, block, sizeof room), 0);
}

static void write_program(void)
{
	struct goalfile_writer *w;
	uint32_t number;

	CHECK_EQ(goalfile_create(path, RANKS, &w), 0);
	for (uint32_t r = 0; r < RANKS - 1; r++) {
		build_rank(r);
		CHECK_EQ(goalfile_add(w, block, &number), 0);
		CHECK_EQ(number, r);
		CHECK_EQ(goalfile_assign(w, r, number), 0);
	}
	CHECK_EQ(goalfile_assign(w, RANKS - 1, number), 0);
	CHECK_EQ(goalfile_assign(w, RANKS, number), -EINVAL);
	CHECK_EQ(goalfile_assign(w, 0, number + 1), -EINVAL);
	CHECK(access(path, F_OK));
	CHECK_EQ(goalfile_finish(w), 0);
}

static int check_damaged(const struct goal_program *p, uint64_t bytes);

static void begin(void)
{
	snprintf(dir, sizeof dir, "%s", "/tmp/unit-goalfile-XXXXXX");
	CHECK(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/program.goal", dir);
}

static void end(void)
{
	unlink(path);
	CHECK(!rmdir(dir)); /* and no ".part" remains */
}

UNIT_TEST(program_that_was_written_is_read)
{
	struct goalfile f;

	begin();
	write_program();
	CHECK_EQ(goalfile_open(path, &f, NULL), 0);
	CHECK_EQ(f.program->ranks, RANKS);
	CHECK_EQ(f.program->block_count, RANKS - 1);
	for (uint32_t r = 0; r < RANKS; r++) {
		build_rank(r < RANKS - 1 ? r : RANKS - 2);
		CHECK_EQ(goal_program_block(f.program, r)->bytes, block->bytes);
		CHECK(!memcmp(goal_program_block(f.program, r), block, block->bytes));
	}
	goalfile_close(&f);
	end();
}

/* Returns: the length of the packed file, whose bytes are copied. */
static size_t read_packed(char *out)
{
	FILE *f = fopen(path, "r");
	size_t n;

	CHECK(f);
	n = fread(out, 1, FILE_MAX, f);
	CHECK(n < FILE_MAX);
	fclose(f);
	return n;
}

/* A writer that does not know packed form wrote this. */
static void write_unpacked(const struct goal_program *p)
{
	FILE *f = fopen(path, "w");

	CHECK(f && fwrite(p, p->bytes, 1, f) == 1 && !fclose(f));
}

UNIT_TEST(files_are_packed_and_both_forms_are_read)
{
	static _Alignas(64) char packed[FILE_MAX], again[FILE_MAX];
	struct goalfile f, g;
	size_t bytes;
	FILE *to;

	begin();
	write_program();
	bytes = read_packed(packed);
	CHECK_EQ(goalfile_open(path, &f, NULL), 0);
	CHECK(bytes < f.bytes / 2 + 64);
	CHECK_EQ(f.program->version, GOAL_PROGRAM_VERSION);
	to = fopen(path, "w");
	CHECK(to);
	CHECK_EQ(goalfile_write(f.program, to), 0);
	fclose(to);
	CHECK_EQ(read_packed(again), bytes);
	CHECK(!memcmp(packed, again, bytes));
	write_unpacked(f.program);
	CHECK_EQ(goalfile_open(path, &g, NULL), 0);
	CHECK_EQ(g.bytes, f.bytes);
	CHECK(!memcmp(g.program, f.program, f.bytes));
	goalfile_close(&g);
	goalfile_close(&f);
	end();
}

/* A damaged packed file: every bit, every length, lengths of programs that do not exist. */
UNIT_TEST(packed_file_that_is_damaged_is_refused_or_valid)
{
	static _Alignas(64) char packed[FILE_MAX], out[FILE_MAX * 32];
	static const uint64_t lengths[] = { 0, 63, 64, 65, 1u << 20, 1ull << 40, UINT64_MAX };
	struct goal_program *p = (struct goal_program *)packed;
	uint64_t was, n;
	size_t bytes;

	begin();
	write_program();
	bytes = read_packed(packed);
	for (size_t bit = 0; bit < 8 * bytes; bit++) {
		packed[bit / 8] ^= (char)(1 << bit % 8);
		n = goalfile_packed_bytes(packed, bytes);
		CHECK(n == UINT64_MAX || n <= sizeof out);
		if (n && n != UINT64_MAX && !goalfile_unpack(packed, bytes, out))
			check_damaged((struct goal_program *)out, n);
		packed[bit / 8] ^= (char)(1 << bit % 8);
	}
	for (size_t cut = 0; cut < bytes; cut++) {
		n = goalfile_packed_bytes(packed, cut);
		CHECK(!n || n == UINT64_MAX || goalfile_unpack(packed, cut, out) == -EINVAL);
	}
	was = p->bytes;
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		p->bytes = lengths[i];
		n = goalfile_packed_bytes(packed, bytes);
		CHECK(n == UINT64_MAX || goalfile_unpack(packed, bytes, out) == -EINVAL);
	}
	p->bytes = was;
	CHECK_EQ(goalfile_unpack(packed, bytes, out), 0);
	end();
}

UNIT_TEST(file_that_is_no_program_is_refused)
{
	struct goalfile f;
	uint32_t at;

	begin();
	CHECK_EQ(goalfile_open(path, &f, &at), -ENOENT);
	CHECK_EQ(goalfile_open(dir, &f, &at), -EISDIR);
	CHECK_EQ(goalfile_open("/dev/null", &f, &at), -EINVAL);
	write_program();
	CHECK(!truncate(path, 100));
	CHECK_EQ(goalfile_open(path, &f, &at), -EINVAL);
	CHECK_EQ(at, GOAL_NONE);
	CHECK(!truncate(path, 0));
	CHECK_EQ(goalfile_open(path, &f, &at), -EINVAL);
	end();
}

UNIT_TEST(block_that_is_wrong_is_named)
{
	struct goalfile f;
	uint32_t at, version = 99;
	uint64_t off;
	int fd;

	begin();
	write_program();
	CHECK_EQ(goalfile_open(path, &f, NULL), 0);
	off = goal_program_offsets(f.program)[2];
	write_unpacked(f.program);
	goalfile_close(&f);
	fd = open(path, O_WRONLY);
	CHECK(pwrite(fd, &version, sizeof version, (off_t)off + 4) == sizeof version);
	close(fd);
	CHECK_EQ(goalfile_open(path, &f, &at), -EINVAL);
	CHECK_EQ(at, 2);
	end();
}

UNIT_TEST(writer_that_fails_leaves_no_file)
{
	struct goalfile_writer *w;
	uint32_t number;

	begin();
	CHECK_EQ(goalfile_create(path, 0, &w), -EINVAL);
	CHECK_EQ(goalfile_create("/nowhere/at/all", 1, &w), -ENOENT);
	CHECK_EQ(goalfile_create(path, 1, &w), 0);
	CHECK_EQ(goalfile_finish(w), -EINVAL); /* no block */
	CHECK(access(path, F_OK));
	CHECK_EQ(goalfile_create(path, 1, &w), 0);
	build_rank(0);
	CHECK_EQ(goalfile_add(w, block, &number), 0);
	goalfile_abandon(w);
	CHECK(access(path, F_OK));
	end();
}

/* A full device: the error comes at the latest from goalfile_finish(). */
UNIT_TEST(device_is_not_replaced)
{
	struct goalfile_writer *w = NULL;
	struct stat st;

	CHECK_EQ(goalfile_create("/dev/null", RANKS, &w), -EINVAL);
	CHECK(!stat("/dev/null", &st) && S_ISCHR(st.st_mode));
}

UNIT_TEST(disk_that_is_full_is_told)
{
	static _Alignas(8) char large[1 << 20];
	struct goal_block *b = (struct goal_block *)large;
	struct goalfile_writer *w;
	uint32_t number;
	int ret = 0;

	begin();
	CHECK(!symlink("/dev/full", strcat(path, ".part")));
	path[strlen(path) - 5] = 0;
	CHECK_EQ(goalfile_create(path, 1, &w), 0);
	build_rank(0);
	memcpy(b, block, block->bytes);
	b->bytes = sizeof large;
	ret = goalfile_add(w, b, &number);
	CHECK(!ret || ret == -ENOSPC);
	CHECK_EQ(goalfile_finish(w), -ENOSPC);
	end();
}

/* ---- damaged programs -------------------------------------------------------------------- */

static int check_damaged(const struct goal_program *p, uint64_t bytes)
{
	static const uint64_t mem_bytes[GOAL_SPACES_MAX] = { [0 ... GOAL_SPACES_MAX - 1] =
								     UINT64_MAX };
	const struct goal_limits limits = { p->ranks, GOAL_SPACES_MAX, mem_bytes, true };
	uint32_t work[FILE_MAX / sizeof(struct goal_op)], at;

	if (goal_program_verify_header(p, bytes) || p->most_ops > BASE_ARRAY_LEN(work) ||
	    goal_program_verify(p, bytes, work, &at))
		return 0;
	for (uint32_t r = 0; r < p->ranks; r++) {
		const struct goal_block *b = goal_program_block(p, r);
		const char *wrong;

		CHECK((const char *)b >= (const char *)(p + 1) &&
		      (const char *)b < (const char *)p + bytes);
		wrong = goal_walk(b, bytes - (size_t)((const char *)b - (const char *)p), &limits);
		if (wrong)
			unit_fail(__FILE__, __LINE__, "accepted: %s", wrong);
	}
	return 1;
}

UNIT_TEST(program_with_a_flipped_bit_is_refused_or_runs)
{
	static _Alignas(64) char copy[FILE_MAX];
	uint64_t accepted = 0;
	struct goalfile f;
	size_t bytes;

	begin();
	write_program();
	CHECK_EQ(goalfile_open(path, &f, NULL), 0);
	bytes = f.bytes;
	CHECK(bytes <= sizeof copy);
	memcpy(copy, f.program, bytes);
	goalfile_close(&f);
	CHECK_EQ(check_damaged((struct goal_program *)copy, bytes), 1);
	for (size_t bit = 0; bit < 8 * bytes; bit++) {
		copy[bit / 8] ^= (char)(1 << bit % 8);
		accepted += (uint64_t)check_damaged((struct goal_program *)copy, bytes);
		copy[bit / 8] ^= (char)(1 << bit % 8);
	}
	CHECK(accepted && accepted < 4 * bytes);
	for (size_t cut = 0; cut < bytes; cut++)
		CHECK_EQ(check_damaged((struct goal_program *)copy, cut), 0);
	end();
}

/* Offsets inside another block: only blocks that were verified may run. */
UNIT_TEST(blocks_that_overlap_are_refused)
{
	static _Alignas(64) char copy[FILE_MAX];
	struct goal_program *p = (struct goal_program *)copy;
	struct goalfile f;
	uint64_t *offsets;

	begin();
	write_program();
	CHECK_EQ(goalfile_open(path, &f, NULL), 0);
	memcpy(copy, f.program, f.bytes);
	offsets = (uint64_t *)(copy + p->offsets_off);
	for (int i = 0; i < 4; i++) {
		uint64_t was = offsets[i],
			 others[] = { 0,          64,     was - 64, was + 64, offsets[(i + 1) % 4],
				      UINT64_MAX, was + 1 };

		for (int k = 0; k < 7; k++) {
			offsets[i] = others[k];
			CHECK_EQ(check_damaged(p, f.bytes), others[k] == was);
		}
		offsets[i] = was;
	}
	goalfile_close(&f);
	end();
}

/* ---- LogGOPSim's binary files ------------------------------------------------------------ */

static int take_ranks(void *ctx, uint32_t ranks)
{
	*(uint32_t *)ctx = ranks;
	return ranks > 16 ? -E2BIG : 0;
}

static int verify_rank(void *ctx, uint32_t rank, const struct goal_block *b)
{
	const uint64_t bytes[1] = { 0 };
	const struct goal_limits limits = { *(uint32_t *)ctx, 1, bytes, true };
	uint32_t *work = malloc(b->bytes);

	CHECK(work != NULL);
	CHECK_EQ(goal_verify(b, b->bytes, &limits, work), 0);
	free(work);
	return 0;
}

/* Two ranks: calc -> send; a receive from any. In words of 32 bits, then the operations' bytes. */
static size_t make_loggopsim(unsigned char *out)
{
	static const unsigned char head[] = { 0x7f, 0x10, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0 };
	const uint64_t jumps[] = { 38, 38 + 94, 38 + 94, 38 + 94 + 51 };
	unsigned char *p = out;

	memset(out, 0, 256);
	memcpy(p, head, sizeof head);
	memcpy(p + 14, jumps, sizeof jumps);
	p = out + 8 + 38;
	p[0] = 2;   /* operations */
	p[4] = 1;   /* one requires nothing: number 0 */
	p[12 + 4] = 3;
	p[12 + 9] = 100;
	p[12 + 23] = 1; /* one requires its end */
	p[51] = 1;      /* number of requirements */
	p[51 + 4] = 1;
	p[51 + 5] = 1;
	p[51 + 9] = 8;
	p[90] = 1;      /* the list */
	p = out + 8 + 38 + 94;
	p[0] = p[4] = 1;
	p[12 + 4] = 2;
	memset(p + 12 + 5, 0xff, 4);
	p[12 + 9] = 8;
	return 8 + 38 + 94 + 51;
}

UNIT_TEST(damaged_files_of_loggopsim_are_read_or_refused)
{
	const struct goalfile_calls calls = { take_ranks, verify_rank };
	unsigned char good[256], *bad;
	size_t bytes = make_loggopsim(good), read = 0;
	uint32_t ranks, at;
	uint64_t x = 88172645463325252ull;

	CHECK_EQ(goalfile_loggopsim_read(good, bytes, &calls, &ranks, &at), 0);
	CHECK_EQ(ranks, 2);
	for (int i = 0; i < 30000; i++) {
		size_t length = i % 3 ? bytes : x % (bytes + 1);

		bad = malloc(length + !length); /* a sanitizer sees what is read behind it */
		memcpy(bad, good, length);
		for (int k = i % 4; k >= 0 && length > 8; k--) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			bad[8 + (x >> 8) % (length - 8)] = (unsigned char)(k % 2 ? x : x >> 62);
		}
		read += !goalfile_loggopsim_read(bad, length, &calls, &ranks, &at);
		free(bad);
	}
	CHECK(read > 1000 && read < 29000);
}
