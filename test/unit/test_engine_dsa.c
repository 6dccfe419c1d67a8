/* SPDX-License-Identifier: BSD-3-Clause */
/* Intel DSA over its model. The conformance suite runs over it, too. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dsa_machine.h"
#include "engine/dsa/dsa.h"
#include "engine/slots.h"
#include "engine_case.h"
#include "unit.h"
#if __has_include(<linux/idxd.h>)
#include <linux/idxd.h>
#endif

static struct engine_case dsa;

static void begin(const char *model, const char *more)
{
	dsa = (struct engine_case){ .ops = &engine_dsa, .fault = "", .workers = 1 };
	engine_case_options(&dsa, more);
	dsa_machine_reset();
	dsa.ch = engine_case_open(&dsa, 0);
	dsa.ops->caps(dsa.ch, &dsa.caps);
	dsa_model_set(model);
}

#ifdef DSA_COMP_STATUS_MASK
UNIT_TEST(dsa_has_the_format_of_the_kernels_header)
{
	struct dsa_hw_desc d = { .opcode = DSA_OPCODE_MEMMOVE,
				 .flags = IDXD_OP_FLAG_CRAV | IDXD_OP_FLAG_RCR | IDXD_OP_FLAG_CC,
				 .completion_addr = 32, .src_addr = 1, .dst_addr = 2,
				 .xfer_size = 3 };
	struct dsa_desc ours = { .flags_and_opcode = (uint32_t)DSA_MEMMOVE << 24 |
						     DSA_RECORD_VALID | DSA_RECORD_ASKED |
						     DSA_TO_CACHE,
				 .record = 32, .src = 1, .dst = 2, .bytes = 3 };

	CHECK(sizeof d == sizeof ours && !memcmp((char *)&d, (char *)&ours, sizeof d));
	CHECK_EQ(sizeof(struct dsa_completion_record), sizeof(struct dsa_record));
	CHECK_EQ(offsetof(struct dsa_completion_record, bytes_completed),
		 offsetof(struct dsa_record, bytes));
	CHECK(DSA_COMP_SUCCESS == (int)DSA_ENDED_WELL &&
	      DSA_COMP_PAGE_FAULT_NOBOF == (int)DSA_PAGE_FAULT);
}
#endif

/* ---- discovery --------------------------------------------------------------------------- */

static void check_reason(const char *part)
{
	char reason[700] = "";
	struct engine_chan *ch;

	CHECK(engine_dsa.probe(reason, sizeof reason) < 0);
	CHECK_HAS(reason, part);
	if (engine_dsa.chan_count(-1) > 0) /* it exists and cannot be used */
		return;
	CHECK_EQ(engine_dsa.chan_open(-1, 0, &ch), -ENODEV);
}

UNIT_TEST(dsa_says_which_step_fails)
{
	static const struct { const char *file, *text, *reason; } cases[] = {
		{ "wq0.0/type", "kernel", "no work queue has the type user" },
		{ "wq0.0/type", NULL, "no work queue has the type user" },
		{ "wq0.0/state", "disabled", "no work queue of type user is enabled" },
		{ "dsa0/pasid_enabled", "0", "without shared virtual memory" },
	};
	struct engine_case e = { .fault = "" };
	char reason[200] = "", path[128];

	engine_case_options(&e, NULL);
	for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		dsa_machine_reset();
		snprintf(path, sizeof path, "sys/bus/dsa/devices/%s", cases[i].file);
		dsa_machine_set(path, cases[i].text);
		check_reason(cases[i].reason);
	}
	dsa_machine_reset();
	dsa_machine_set("dev/dsa/wq0.0", NULL);
	check_reason("dev/dsa/wq0.0 cannot be opened: No such file");
	dsa_machine_reset();
	CHECK_EQ(engine_dsa.probe(reason, sizeof reason), 0);
	CHECK_EQ(engine_dsa.chan_count(-1), 1);
	CHECK_EQ(engine_dsa.chan_count(0), 1);
	CHECK_EQ(engine_dsa.chan_count(1), 0);
}

UNIT_TEST(dsa_says_that_the_machine_has_none)
{
	char reason[200] = "";

	base_opt.dsa_root = "/nonexistent";
	CHECK_EQ(engine_dsa.probe(reason, sizeof reason), -ENODEV);
	CHECK_STR(reason, "the kernel has no driver idxd, or this machine no DSA");
	CHECK_EQ(engine_dsa.chan_count(-1), 0);
}

UNIT_TEST(dsa_says_that_a_first_copy_fails)
{
	struct engine_case e = { .fault = "" };

	dsa_machine_reset();
	engine_case_options(&e, "SLUICE_TEST=fault=dsa_refuse:all");
	base_opt.dsa_root = dsa_machine();
	check_reason("a copy of a page failed: Input/output error");
	engine_case_options(&e, NULL);
	dsa_model_set("hang=1");
	check_reason("a copy of a page did not end in 1000 ms");
	dsa_model_set("status=1");
	check_reason("a copy of a page failed");
	dsa_machine_reset();
}

/* ---- copies ------------------------------------------------------------------------------ */

enum { COPIES = 40 };
static struct engine_job jobs[COPIES];

static void post_all(size_t bytes)
{
	for (int i = 0; i < COPIES; i++) {
		engine_job_make(&jobs[i], 0, 0, bytes);
		CHECK_EQ(engine_post(dsa.ch, &jobs[i].c), 0);
	}
	engine_flush(dsa.ch);
}

/* Waits for all. bad: the number of the copy that fails; -1: none. */
static void end_all(int bad, int result)
{
	for (int i = 0; i < COPIES; i++) {
		engine_job_wait(&dsa, dsa.ch, &jobs[i]);
		CHECK_EQ(jobs[i].result, i == bad ? result : 0);
		if (i != bad)
			engine_job_check(&jobs[i]);
		engine_job_free(&jobs[i]);
	}
	engine_case_close(&dsa, dsa.ch);
	dsa_machine_reset();
}

/* System calls of this process that wrote. */
static uint64_t writes(void)
{
	FILE *f = fopen("/proc/self/io", "re");
	unsigned long long n = 0;
	char line[64];

	while (f && fgets(line, sizeof line, f))
		sscanf(line, "syscw: %llu", &n);
	if (!f)
		unit_skip("no /proc/self/io");
	fclose(f);
	return n;
}

UNIT_TEST(dsa_submits_one_descriptor_a_copy_and_meets_no_missing_page)
{
	uint64_t partial = dsa_partial_copies, before;

	begin("", NULL);
	CHECK_EQ(dsa.caps.depth, 63);
	CHECK_EQ(dsa.caps.piece_bytes, 2 << 20);
	post_all(100000);
	end_all(-1, 0);
	CHECK_EQ(dsa_partial_copies, partial);
	begin("", NULL);
	before = writes();
	post_all(100000);
	CHECK_EQ(writes() - before, (COPIES + 31) / 32); /* 32 descriptors a call */
	for (int i = 0; i < COPIES; i++)
		engine_job_wait(&dsa, dsa.ch, &jobs[i]);
	CHECK_EQ(dsa_model_descriptors(), COPIES);
	CHECK_EQ(dsa_model_bytes(), COPIES * 100000);
	end_all(-1, 0);
}

UNIT_TEST(dsa_goes_on_when_the_queue_accepts_fewer)
{
	begin("", "SLUICE_TEST=fault=dsa_short:1,dsa_full:2,dsa_full:3");
	post_all(4096);
	end_all(-1, 0);
}

UNIT_TEST(dsa_goes_on_when_other_processes_fill_the_queue)
{
	begin("others=7", NULL);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < COPIES; i++)
			engine_job_make(&jobs[i], 0, 0, 4096);
		for (int i = 0; i < COPIES; i++)
			CHECK_EQ(engine_post(dsa.ch, &jobs[i].c), 0);
		engine_flush(dsa.ch);
		for (int i = 0; i < COPIES; i++) {
			engine_job_wait(&dsa, dsa.ch, &jobs[i]);
			CHECK_EQ(jobs[i].result, 0);
			engine_job_check(&jobs[i]);
			engine_job_free(&jobs[i]);
		}
	}
	CHECK(dsa_model_of_others() > COPIES);
	engine_case_close(&dsa, dsa.ch);
	dsa_machine_reset();
}

UNIT_TEST(dsa_fails_copies_that_are_refused)
{
	begin("", "SLUICE_TEST=fault=dsa_refuse:2");
	engine_job_make(&jobs[0], 0, 0, 64);
	engine_job_make(&jobs[1], 0, 0, 64);
	engine_job_post(&dsa, dsa.ch, &jobs[0]);
	engine_job_wait(&dsa, dsa.ch, &jobs[0]);
	CHECK_EQ(jobs[0].result, 0);
	engine_job_post(&dsa, dsa.ch, &jobs[1]);
	engine_job_wait(&dsa, dsa.ch, &jobs[1]);
	CHECK_EQ(jobs[1].result, -EIO);
	engine_job_free(&jobs[0]);
	engine_job_free(&jobs[1]);
	engine_case_close(&dsa, dsa.ch);
}

UNIT_TEST(dsa_resumes_copies_that_meet_missing_pages)
{
	uint64_t partial = dsa_partial_copies;

	begin("fault=3", NULL);
	post_all(50000);
	end_all(-1, 0);
	CHECK(dsa_partial_copies - partial >= COPIES / 3);
	/* every submission meets a missing page: tries are counted only where nothing was copied */
	begin("fault=1", NULL);
	partial = dsa_partial_copies;
	engine_job_make(&jobs[0], 0, 0, 1 << 20);
	engine_job_post(&dsa, dsa.ch, &jobs[0]);
	engine_job_wait(&dsa, dsa.ch, &jobs[0]);
	CHECK_EQ(jobs[0].result, -EFAULT);
	CHECK(dsa_partial_copies - partial >= 10);
	engine_job_free(&jobs[0]);
	engine_case_close(&dsa, dsa.ch);
	dsa_machine_reset();
}

UNIT_TEST(dsa_copies_into_memory_that_was_never_touched)
{
	enum { BYTES = 1 << 20 };
	char *to = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t partial = dsa_partial_copies;

	begin("", NULL);
	for (int round = 0; round < 2; round++) {
		/* announced, no page is missing */
		CHECK(!round || (!madvise(to, BYTES, MADV_REMOVE) &&
				 !engine_memory(dsa.ch, to, BYTES, 7)));
		engine_job_make(&jobs[0], 0, 0, BYTES);
		jobs[0].c.dst = to;
		engine_job_post(&dsa, dsa.ch, &jobs[0]);
		engine_job_wait(&dsa, dsa.ch, &jobs[0]);
		CHECK(!jobs[0].result && !memcmp(to, jobs[0].src, BYTES));
		engine_job_free(&jobs[0]);
		CHECK_EQ(dsa_partial_copies - partial, 1);
	}
	engine_case_close(&dsa, dsa.ch);
	munmap(to, BYTES);
}

UNIT_TEST(dsa_reports_a_copy_that_the_device_failed)
{
	begin("status=5", NULL);
	post_all(3000);
	end_all(4, -EIO);
}

UNIT_TEST(dsa_is_retired_while_the_device_hangs)
{
	begin("hang=3", NULL);
	post_all(3000);
	usleep(5000);
	engine_poll(dsa.ch);
	CHECK_EQ(jobs[COPIES - 1].ends, 0);
	dsa.ops->retire(dsa.ch);
	for (int i = 0; i < COPIES; i++) {
		CHECK_EQ(jobs[i].ends, 1);
		CHECK_EQ(jobs[i].result, i < 2 ? 0 : -ECANCELED);
		engine_job_free(&jobs[i]);
	}
	engine_case_close(&dsa, dsa.ch);
	dsa_machine_reset();
}

UNIT_TEST(dsa_writes_into_no_file_of_a_program_that_closed_its_descriptor)
{
	int fd = DSA_MODEL_FD, ours[2];
	struct dsa_portal *p;
	uint64_t accepted;

	begin("", NULL);
	p = (struct dsa_portal *)((struct engine_slots *)dsa.ch + 1);
	fd = p->fd;
	CHECK(!pipe(ours) && dup2(ours[1], fd) == fd);
	CHECK_EQ(dsa_portal_submit(p, 1, &accepted), -EBADF);
	engine_job_make(&jobs[0], 0, 0, 64);
	engine_job_post(&dsa, dsa.ch, &jobs[0]);
	engine_job_wait(&dsa, dsa.ch, &jobs[0]);
	CHECK_EQ(jobs[0].result, -EIO);
	engine_case_close(&dsa, dsa.ch);
	CHECK_EQ(write(fd, "x", 1), 1); /* it is still the program's */
	close(fd);
	close(ours[0]);
	close(ours[1]);
	engine_job_free(&jobs[0]);
}
