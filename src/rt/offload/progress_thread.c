/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The attendant: a thread that sleeps until a peer calls, because it waits for what only this
 * process can do while the program computes: take back fragments that a channel of its own has
 * claimed (retire the channel, after which it writes nowhere), lend a displaced worker its CPU,
 * notice an end that must be polled for, or publish a collective of a request that has waited for
 * its turn.
 */
#include <pthread.h>
#include <string.h>

#include "rt/private.h"

static void attend(void *arg)
{
	uint32_t seen = 0;

	(void)arg;
	while (!node_wait_process_wake(&seen)) {
		pending_rescue_all();
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
	ret = engine_thread_create("sluice-attend", NULL, attend, NULL, &thread);

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
