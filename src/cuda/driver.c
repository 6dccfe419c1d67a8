/* SPDX-License-Identifier: BSD-3-Clause */
/* The driver, the context in which this process uses it, and the stream on which it copies. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/base.h"
#include "cuda/private.h"
#include "os/endpoint.h"
#include "os/os.h"

enum { NON_BLOCKING = 1 }; /* does not wait for the default stream */
#define DEFAULT_STREAM ((void *)1)

struct cuda_driver cuda_driver;

static const char *const names[] = {
	"cuCtxGetCurrent",        "cuCtxGetId",
	"cuPointerGetAttributes", "cuIpcGetMemHandle",
	"cuIpcOpenMemHandle_v2",  "cuIpcCloseMemHandle",
	"cuStreamCreate",         "cuStreamIsCapturing",
	"cuStreamSynchronize",    "cuMemcpyAsync",
	"cuCtxGetDevice",         "cuDeviceGetUuid_v2",
};
_Static_assert(sizeof(cuda_driver) == sizeof(names), "one of each");

static struct {
	pthread_mutex_t lock; /* protects all but is_broken */
	bool is_found;
	void *stream;
	unsigned long long context; /* of the stream: its number, which is never used again */
	struct cuda_gpu gpu;        /* of the context */
	_Atomic bool is_broken;     /* a copy has failed. Relaxed */
} state = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool find_locked(void)
{
	void *functions[BASE_ARRAY_LEN(names)];

	if (!state.is_found && os_gpu_find(names, BASE_ARRAY_LEN(names), functions)) {
		memcpy(&cuda_driver, functions, sizeof(cuda_driver));
		state.is_found = true;
	}
	return state.is_found;
}

/* Returns: the number of the current context; 0: none. */
static unsigned long long current(void)
{
	unsigned long long id = 0;
	void *context = NULL;

	if (cuda_driver.context_current(&context) || !context ||
	    cuda_driver.context_id(context, &id))
		return 0;
	return id;
}

static int use_context_locked(void)
{
	unsigned long long id;
	int device;

	if (endpoint_image || !find_locked())
		return -ENOTSUP;
	id = current();
	if (!id)
		return -ENXIO;
	if (state.stream)
		return id == state.context ? 0 : -EXDEV;
	if (cuda_driver.device_current(&device) || cuda_driver.device_uuid(&state.gpu, device) ||
	    cuda_driver.stream_create(&state.stream, NON_BLOCKING)) {
		state.stream = NULL;
		return -EIO;
	}
	state.context = id;
	return 0;
}

/* A program need not wait for its copies in the default stream if its host MPI does. To wait while
 * a graph is captured would end the capture. */
static int wait_for_default_stream(void)
{
	int is_capturing = 0;

	if (cuda_driver.stream_is_capturing(DEFAULT_STREAM, &is_capturing) || is_capturing)
		return -EBUSY;
	return cuda_driver.stream_wait(DEFAULT_STREAM) ? -EIO : 0;
}

int cuda_begin(struct cuda_gpu *out)
{
	int ret;

	if (atomic_load_explicit(&state.is_broken, memory_order_relaxed))
		return -EIO;
	pthread_mutex_lock(&state.lock);
	ret = use_context_locked();
	*out = state.gpu;
	pthread_mutex_unlock(&state.lock);
	return ret ? ret : wait_for_default_stream();
}

bool cuda_is_current(void)
{
	bool is;

	pthread_mutex_lock(&state.lock);
	is = state.stream && current() == state.context;
	pthread_mutex_unlock(&state.lock);
	return is;
}

static int fail(void)
{
	if (!atomic_exchange_explicit(&state.is_broken, true, memory_order_relaxed))
		base_log(BASE_LOG_WARN, "cuda",
			 "a copy on the GPU has failed: device memory is left to the host MPI");
	return -EIO;
}

int cuda_copy(void *dst, const void *src, uint64_t bytes)
{
	return cuda_driver.copy((uintptr_t)dst, (uintptr_t)src, bytes, state.stream) ? fail() : 0;
}

int cuda_wait(void)
{
	/* An error may be that of earlier work: the second call waits for copies that go on. After
	 * a second error the context is lost, and its work has ended. */
	if (cuda_driver.stream_wait(state.stream)) {
		cuda_driver.stream_wait(state.stream);
		return fail();
	}
	return atomic_load_explicit(&state.is_broken, memory_order_relaxed) ? -EIO : 0;
}
