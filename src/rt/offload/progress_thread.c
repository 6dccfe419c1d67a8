/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The progress thread sleeps until a peer calls, because the peer waits for something that only
 * this process can do while its program computes: take back fragments that a channel has claimed
 * (retire the channel, which writes nowhere afterwards), lend a displaced worker its CPU, notice an
 * end that must be polled for, or publish a queued request.
 */
#include <pthread.h>
#include <string.h>

#include "rt/private.h"

static void attend(void *arg)
{
	uint64_t again_ns = OS_FOR_EVER;
	uint32_t wakes = 0;

	while (!node_wait_process_wake(&wakes, again_ns)) {
		again_ns = pending_rescue_all();
		requests_publish_queued();
	}
}

void progress_thread_own(void)
{
	sud_own_thread();
	region_own_thread();
}

static void start_once(void)
{
	struct engine_thread thread;
	int ret;

	engine_thread_started = progress_thread_own;
	ret = engine_thread_create("sluice-progress", NULL, attend, NULL, &thread);

	if (ret)
		base_log(BASE_LOG_INFO, "rt",
			 "no thread for peers that wait for a channel (%s): they wait for the next "
			 "call of this rank",
			 strerror(-ret));
	else
		pthread_detach(thread.handle);
}

void progress_thread_start(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, start_once);
}
