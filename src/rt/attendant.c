/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The attendant: a thread that sleeps until a peer calls, because it waits for fragments that a channel of this
 * process has claimed while the program computes. Only this process may take them back (retire the channel,
 * after which it writes nowhere), lend a displaced worker its CPU, or notice an end that must be polled for.
 */
#include <pthread.h>
#include <string.h>

#include "rt/private.h"

static void attend(void *arg)
{
	uint32_t seen = 0;

	(void)arg;
	while (!node_wait_call(&seen))
		pending_rescue_all();
}

void attendant_start(void)
{
	struct engine_thread thread;
	int ret = engine_thread_create("sluice-attend", NULL, attend, NULL, &thread);

	if (ret)
		base_log(BASE_LOG_INFO, "rt", "no thread for peers that wait for a channel (%s): they wait for the next "
			 "call of this rank", strerror(-ret));
	else
		pthread_detach(thread.handle);
}
