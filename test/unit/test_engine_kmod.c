/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel module's engine over a model of the module. The conformance suite runs over it, too.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine_case.h"
#include "kmod_model.h"
#include "unit.h"

enum { COPIES = 40 };
static struct engine_case kmod;
static struct engine_job jobs[COPIES];

static void begin(void)
{
	if (kmod_model_is_absent())
		unit_skip("only over the model");
	kmod_model_reset();
	kmod = (struct engine_case){ .ops = &engine_kmod, .fault = "", .workers = 1 };
	kmod.ch = engine_case_open(&kmod, 0);
	kmod.ops->caps(kmod.ch, &kmod.caps);
}

static void post_all(size_t bytes)
{
	for (int i = 0; i < COPIES; i++) {
		engine_job_make(&jobs[i], 0, 0, bytes);
		CHECK_EQ(engine_post(kmod.ch, &jobs[i].c), 0);
	}
	engine_flush(kmod.ch);
}

/* Waits for all. bad: the number of the copy that fails; -1: none. */
static void end_all(int bad, int result)
{
	for (int i = 0; i < COPIES; i++) {
		engine_job_wait(&kmod, kmod.ch, &jobs[i]);
		CHECK_EQ(jobs[i].result, i == bad ? result : 0);
		if (i != bad)
			engine_job_check(&jobs[i]);
		engine_job_free(&jobs[i]);
	}
	engine_case_close(&kmod, kmod.ch);
	kmod_model_reset();
}

UNIT_TEST(kmod_says_why_it_cannot_be_used)
{
	static const struct {
		struct kmod_model model;
		const char *reason;
	} cases[] = {
		{ { .open_error = -ENOENT },
		  "there is no /dev/sluice: the module sluice is not loaded" },
		{ { .open_error = -EACCES }, "Permission denied (a udev rule gives access)" },
		{ { .abi = SLUICE_ABI + 1, .channels = 1 }, "version 3 of its interface" },
		{ { .abi = SLUICE_ABI }, "the kernel has no free DMA channel" },
		{ { .abi = SLUICE_ABI, .channels = 1, .attach_error = -EBUSY },
		  "channel 0 is refused" },
		{ { .abi = SLUICE_ABI, .channels = 1, .enter_error = -EPERM },
		  "a copy of a page failed" },
		{ { .abi = SLUICE_ABI, .channels = 1, .error_at = 1, .copy_error = -ENOMEM },
		  "Cannot allocate memory (pinned pages count against ulimit -l)" },
		{ { .abi = SLUICE_ABI, .channels = 1, .hang_at = 1 }, "did not end in 1000 ms" },
	};
	char reason[300];

	if (kmod_model_is_absent())
		unit_skip("only over the model");
	for (size_t i = 0; i < BASE_ARRAY_LEN(cases); i++) {
		kmod_model = cases[i].model;
		reason[0] = 0;
		CHECK(engine_kmod.probe(reason, sizeof reason) < 0);
		CHECK_HAS(reason, cases[i].reason);
	}
	kmod_model_reset();
	CHECK_EQ(engine_kmod.probe(reason, sizeof reason), 0);
	CHECK_EQ(engine_kmod.chan_count(-1), 2);
	CHECK_EQ(engine_kmod.chan_count(0), 2);
	CHECK_EQ(engine_kmod.chan_count(1), 0);
}

UNIT_TEST(kmod_submits_16_copies_by_a_call)
{
	begin();
	CHECK_EQ(kmod.caps.depth, 63);
	post_all(100000);
	CHECK_EQ(kmod_model.enters, (COPIES + 15) / 16);
	end_all(-1, 0);
}

UNIT_TEST(kmod_submits_later_what_a_call_does_not_accept)
{
	begin();
	kmod_model.accepts = 3;
	post_all(4096);
	end_all(-1, 0);
}

UNIT_TEST(kmod_reports_a_copy_that_failed)
{
	begin();
	kmod_model.error_at = 5;
	post_all(3000);
	end_all(4, -EIO);
}

UNIT_TEST(kmod_is_retired_while_the_device_hangs)
{
	begin();
	kmod_model.hang_at = 3;
	post_all(3000);
	for (int i = 0; i < 2; i++)
		engine_job_wait(&kmod, kmod.ch, &jobs[i]);
	CHECK_EQ(jobs[COPIES - 1].ends, 0);
	kmod.ops->retire(kmod.ch);
	for (int i = 0; i < COPIES; i++) {
		CHECK_EQ(jobs[i].ends, 1);
		CHECK(i < 2 ? !jobs[i].result : jobs[i].result < 0);
		engine_job_free(&jobs[i]);
	}
	engine_case_close(&kmod, kmod.ch);
	kmod_model_reset();
}

UNIT_TEST(kmod_uses_no_file_of_a_program_that_closed_its_descriptor)
{
	struct kmod_device *d;
	uint64_t accepted;
	int fd, ours[2];

	begin();
	d = (struct kmod_device *)((struct engine_slots *)kmod.ch + 1);
	fd = d->fd;
	CHECK(!pipe(ours) && dup2(ours[1], fd) == fd);
	CHECK_EQ(kmod_submit(d, 1, &accepted), -EBADF);
	engine_job_make(&jobs[0], 0, 0, 64);
	engine_job_post(&kmod, kmod.ch, &jobs[0]);
	engine_job_wait(&kmod, kmod.ch, &jobs[0]);
	CHECK_EQ(jobs[0].result, -EIO);
	engine_case_close(&kmod, kmod.ch);
	CHECK_EQ(write(fd, "x", 1), 1); /* it is still the program's */
	close(fd);
	close(ours[0]);
	close(ours[1]);
	engine_job_free(&jobs[0]);
}
