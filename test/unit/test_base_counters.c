/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"
#include "capture.h"
#include "unit.h"

static struct capture captured;
static const char *const names[] = {
#define X(id, name, help) name,
	BASE_COUNTERS(X)
#undef X
};

UNIT_TEST(counters_have_different_names)
{
	for (int a = 0; a < BASE_CTR_COUNT; a++)
		for (int b = 0; b < a; b++)
			CHECK(strcmp(names[a], names[b]));
}

UNIT_TEST(counters_are_silent_by_default)
{
	base_opt.stats = "";
	capture_begin(&captured);
	CHECK_EQ(base_counters_report(), 0);
	capture_end(&captured);
	CHECK_STR(captured.text, "");
}

UNIT_TEST(counters_print_a_table_with_the_rank_and_without_zeros)
{
	base_opt.stats = "-";
	base_log_set_rank(2);
	base_count(BASE_CTR_BYTES_CMA, 123456789012);
	capture_begin(&captured);
	int rc = base_counters_report();
	capture_end(&captured);
	base_opt.stats = "";
	base_log_set_rank(-1);
	CHECK_EQ(rc, 0);
	CHECK_HAS(captured.text, "sluice: rank 2: counters\n");
	CHECK_HAS(captured.text, "\n  bytes_cma                   123456789012  bytes this rank "
				 "copied by process_vm");
	CHECK(!strstr(captured.text, names[BASE_CTR_ADOPTED])); /* zero */
	atomic_store(&base_counters[BASE_CTR_BYTES_CMA], 0);
}

UNIT_TEST(counters_write_json_per_rank)
{
	char folder[] = "/tmp/unit-counters-XXXXXX", prefix[64], path[80], text[8192];
	ssize_t n;
	int fd;

	CHECK(mkdtemp(folder));
	snprintf(prefix, sizeof(prefix), "%s/stats", folder);
	snprintf(path, sizeof(path), "%s.4.json", prefix);
	base_count(BASE_CTR_ADOPTED, 7);
	base_opt.stats = prefix;
	base_log_set_rank(4);
	CHECK_EQ(base_counters_report(), 0);
	base_opt.stats = "";
	base_log_set_rank(-1);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	unlink(path);
	rmdir(folder);
	CHECK(n > 0);
	text[n] = 0;
	CHECK_HAS(text, "{\n  \"rank\": 4,\n  \"pid\": ");
	CHECK_HAS(text, "  \"adopted\": 7,\n");
	CHECK_EQ(text[n - 2], '}');
	atomic_store(&base_counters[BASE_CTR_ADOPTED], 0);
}

UNIT_TEST(counters_say_why_they_cannot_be_written)
{
	base_opt.stats = "/nowhere/at/all";
	base_opt.log_level = BASE_LOG_ERROR;
	capture_begin(&captured);
	int rc = base_counters_report();
	capture_end(&captured);
	base_opt.stats = "";
	CHECK_EQ(rc, -ENOENT);
	CHECK_HAS(captured.text, "cannot write counters to /nowhere/at/all.");
}
