/* SPDX-License-Identifier: BSD-3-Clause */
#include "os/os.h"
#include "unit.h"

enum {
	LARGEST = 5000,
	LONGEST = 100 << 10,
	GUARD = 64,
	ALIGNMENTS = 64,
	ROOM = LONGEST + 2 * GUARD + ALIGNMENTS,
};

static _Alignas(4096) uint8_t source[ROOM];
static _Alignas(4096) uint8_t target[ROOM];

static const char *const kernel_names[] = { "auto", "plain", "movsb", "nontemporal",
					    "interleaved" };

/* Copies, then compares the target and the bytes around it. */
static void check_copy(enum base_copy_kernel kernel, size_t to, size_t from, size_t bytes)
{
	uint8_t *dst = target + GUARD + to;
	bool intact = true;

	memset(dst - GUARD, 0xee, bytes + 2 * GUARD);
	os_copy(dst, source + from, bytes, kernel);
	for (int i = 1; i <= GUARD; i++)
		intact &= dst[-i] == 0xee && dst[bytes + (size_t)i - 1] == 0xee;
	if (!intact || memcmp(dst, source + from, bytes))
		unit_fail(__FILE__, __LINE__, "%s: %zu bytes from +%zu to +%zu: %s",
			  kernel_names[kernel], bytes, from, to,
			  intact ? "wrong bytes" : "wrote outside");
}

static void fill_source(void)
{
	for (size_t i = 0; i < ROOM; i++)
		source[i] = (uint8_t)(i * 7 + i / 251);
}

static void check_kernel(enum base_copy_kernel kernel)
{
	if (!os_copy_has(kernel))
		unit_skip("this CPU does not have it");
	fill_source();
	/* every size, with alignments that cover all pairs */
	for (size_t bytes = 0; bytes <= LARGEST; bytes++)
		for (size_t turn = 0; turn < 4; turn++)
			check_copy(kernel, (bytes * 5 + turn * 17) % ALIGNMENTS,
				   (bytes / 13 + turn * 29) % ALIGNMENTS, bytes);
	/* every pair of alignments, with sizes around the steps of the kernels */
	for (size_t to = 0; to < ALIGNMENTS; to++)
		for (size_t from = 0; from < ALIGNMENTS; from++)
			for (size_t bytes = 255; bytes < 1400; bytes += 191)
				check_copy(kernel, to, from, bytes);
	/* around blocks of 4 and 8 pages */
	for (size_t pages = 4; pages <= 24; pages += 4)
		for (size_t to = 0; to < ALIGNMENTS; to += 7)
			for (size_t odd = 0; odd < 400; odd += 57)
				check_copy(kernel, to, 3, pages * OS_PAGE + odd - 130);
}

UNIT_TEST(plain_copies_every_size_and_alignment)
{
	check_kernel(BASE_COPY_PLAIN);
}

UNIT_TEST(movsb_copies_every_size_and_alignment)
{
	check_kernel(BASE_COPY_MOVSB);
}

UNIT_TEST(nontemporal_copies_every_size_and_alignment)
{
	check_kernel(BASE_COPY_NONTEMPORAL);
}

UNIT_TEST(interleaved_copies_every_size_and_alignment)
{
	check_kernel(BASE_COPY_INTERLEAVED);
}

UNIT_TEST(large_copies_agree)
{
	size_t bytes = (3 << 20) + 17;
	uint8_t *from = malloc(bytes), *to = malloc(bytes);
	bool same = from && to;

	for (size_t i = 0; same && i < bytes; i++)
		from[i] = (uint8_t)(i * 31 + i / 4093);
	for (int kernel = BASE_COPY_AUTO; same && kernel < BASE_COPY_KERNELS; kernel++) {
		if (!os_copy_has(kernel))
			continue;
		memset(to, 0, bytes);
		os_copy(to, from, bytes, kernel);
		same = !memcmp(to, from, bytes);
	}
	free(from);
	free(to);
	CHECK(same);
}

UNIT_TEST(amd_cores_do_not_walk_pages_by_choice)
{
	base_opt.xfer_copy = BASE_COPY_AUTO;
	for (uint64_t bytes = 1 << 16; bytes <= 1 << 21; bytes += 1 << 16)
		if (__builtin_cpu_is("amd"))
			CHECK(os_copy_pick(1 << 15, bytes) != BASE_COPY_INTERLEAVED);
}

UNIT_TEST(pick_obeys_the_option_and_is_never_auto)
{
	base_opt.xfer_copy = BASE_COPY_AUTO;
	for (uint64_t bytes = 1; bytes <= (uint64_t)1 << 34; bytes *= 2) {
		enum base_copy_kernel kernel = os_copy_pick(base_min_u64(bytes, 1 << 20), bytes);

		CHECK(kernel != BASE_COPY_AUTO);
		CHECK(os_copy_has(kernel));
	}
	for (int kernel = BASE_COPY_PLAIN; kernel < BASE_COPY_KERNELS; kernel++) {
		base_opt.xfer_copy = kernel;
		CHECK_EQ(os_copy_pick(1 << 20, 1 << 20),
			 os_copy_has(kernel) ? kernel : BASE_COPY_PLAIN);
	}
	base_opt.xfer_copy = BASE_COPY_AUTO;
}
